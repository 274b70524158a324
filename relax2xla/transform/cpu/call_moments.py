"""CallMoments: means and variances of channels, and the sums of a batch norm's gradient, as calls.

XLA computes a mean, the squares of what is left without it, and their sum, each in a loop of its
own, some through memory; and for the gradient of a batch norm likewise. A function in C++ reads
numbers once for both of a pair.

As with oneDNN (:mod:`relax2xla.transform.cpu.call_onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule
from relax2xla.ir import Binding, Call, Expr, Function, IRModule, SeqExpr, Var, VarBinding
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as is_call
from relax2xla.ir.rewrite import reads
from relax2xla.kernels.moments import FAMILY, Moments, RowSums, Sums, pays
from relax2xla.kernels.native import may_call
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.native_sites import Sites, tensor_of, with_composites
from relax2xla.transform.cpu.normalised import factors, normalised

_x: Final = wildcard()


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallMoments(Pass):
    """Make composites of ``variance`` with ``mean``, and of pairs of sums, static shapes.

    Of float32, over the first axes and maybe the last ones, as batch norms have them. A pair is
    that of ``g`` and of ``g * (x - m)`` with a number of ``m`` for each channel, or of ``g * (x -
    m) * f`` with one of ``m`` and ``f`` for each row, as layer norms have them. Exact up to
    rounding.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        return with_composites(mod, _Calls) if may_call() else mod


class _Axes(NamedTuple):
    """What is kept of the axes of a value: those from ``begin`` on, before ``end``."""

    dims: tuple[int, ...]
    begin: int
    end: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """The axes before them, these, and those behind them, each as one."""
        d, begin, end = self
        return math.prod(d[:begin]), math.prod(d[begin:end]), math.prod(d[end:])

    def keeps(self, value: Expr) -> bool:
        """Whether ``value`` has a number for each place along what is kept."""
        tensor = tensor_of(value)
        if tensor is None or tensor.dtype != "float32" or len(tensor.shape) > len(self.dims):
            return False
        before, behind = (1,) * self.begin, (1,) * (len(self.dims) - self.end)
        wanted = (*before, *self.dims[self.begin : self.end], *behind)
        return (1,) * (len(self.dims) - len(tensor.shape)) + tensor.shape == wanted


@dataclass(frozen=True, eq=False)
class _Pair:
    """What one call computes: ``moments`` of ``x``, or the sums of ``gradient``.

    ``mean`` is of each channel, or with a ``factor`` of each row, as that is.
    """

    axes: _Axes
    x: Expr
    gradient: Expr | None = None
    mean: Expr | None = None
    factor: Expr | None = None

    @property
    def described(self) -> Moments | Sums | RowSums:
        """The call."""
        if self.factor is not None:
            return RowSums(self.axes.shape[:2])
        return (Moments if self.gradient is None else Sums)(self.axes.shape)

    def operands(self, m: Match) -> list[Expr]:
        """What the call takes, in the place of a match."""
        given = [v for v in (self.gradient, self.x, self.mean, self.factor) if v is not None]
        shapes = [t.shape for t in self.described.operands]
        return [
            m.bind("given", R.reshape(v, shape)) for v, shape in zip(given, shapes, strict=True)
        ]


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.parts: dict[Var, tuple[_Pair, int]] = {}
        self.made: dict[_Pair, Var] = {}

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        names = ("mean", "variance", "sum")
        return [Rule(is_op(f"relax.{name}")(_x), self._part) for name in names]

    def rows(self, described: Moments | Sums | RowSums, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        axes, channels = (0, 2), described.shape[1]
        if isinstance(described, Moments):
            made = [R.mean(params[0], axes), R.variance(params[0], axes)]
        else:
            gradient, x, mean, *factor = params
            if factor:
                axes, rows = (0,), (described.shape[0], 1)
                left: Expr = R.subtract(x, R.reshape(mean, rows))
                left = R.multiply(left, R.reshape(factor[0], rows))
            else:
                left = R.subtract(x, R.reshape(mean, (1, channels, 1)))
            made = [R.sum(gradient, axes), R.sum(R.multiply(gradient, left), axes)]
        return R.concat([R.reshape(v, (1, channels)) for v in made], axis=0)

    def function(self, func: Function) -> Function:
        """See :class:`Sites`; sums are moved to where their pairs are complete."""
        if self.family.forms in self.name:  # what a call is in rows
            return func
        blocks = [
            type(block)(self._paired(block.bindings), block.span) for block in func.body.blocks
        ]
        if not self.parts:
            return func
        body = SeqExpr(blocks, func.body.body, func.body.span)
        return super().function(func.replace(body=body))

    def _paired(self, bindings: Sequence[Binding]) -> list[Binding]:
        """The bindings of a block, each first sum of a pair right before the second."""
        pairs = _Pairs(bindings)
        self.parts |= pairs.parts
        due = {first: second for second, first in pairs.moved.items()}
        made: list[Binding] = []
        for b in bindings:
            if b.var in pairs.moved:
                made.append(pairs.bindings[pairs.moved[b.var]])
            if b.var not in due:
                made.append(b)
        return made

    def _part(self, m: Match) -> Expr | None:
        """One of two values of a call, which stands where the first of them is."""
        if m.var not in self.parts:
            return None
        pair, at = self.parts[m.var]
        call = self.made.get(pair)
        if call is None:
            made = self.call(pair.described, pair.operands(m))
            call = self.made[pair] = m.bind("both", made)
        row = m.bind("row", R.strided_slice(call, (0,), (at,), (at + 1,)))
        result = tensor_of(m.value)
        assert result is not None
        return R.reshape(row, result.shape)


class _Pairs:
    """The pairs of one block: what is part of which, and which sums go before which others."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self.bindings: dict[Expr, VarBinding] = {}
        self.parts: dict[Var, tuple[_Pair, int]] = {}
        self.moved: dict[Var, Var] = {}
        self._places: dict[Expr, int] = {}
        self._read: dict[Expr, int] = {}
        reductions: dict[tuple[str, Expr, _Axes], Var] = {}
        for place, b in enumerate(bindings):
            for v in reads(b.value):
                self._read.setdefault(v, place)
            self._places[b.var] = place
            if isinstance(b, VarBinding):
                self.bindings[b.var] = b
                if (key := _reduction(b.value)) is not None:
                    reductions.setdefault(key, b.var)
        for (name, x, axes), var in reductions.items():
            if name == "relax.variance":
                self._add(_Pair(axes, x), reductions.get(("relax.mean", x, axes)), var)
            elif name == "relax.sum":
                for gradient, pair in self._sums(x, axes):
                    first = reductions.get(("relax.sum", gradient, axes))
                    if first is not None and self._may_move(first, var):
                        self._add(pair, first, var)

    def _add(self, pair: _Pair, first: Var | None, second: Var) -> None:
        if not pays(pair.described) or second in self.parts or first in self.parts:
            return
        self.parts[second] = pair, 1
        if first is not None:
            self.parts[first] = pair, 0

    def _sums(self, value: Expr, axes: _Axes) -> list[tuple[Expr, _Pair]]:
        """The gradients whose sums the sum of a product may belong to, and the pairs."""
        found: list[tuple[Expr, _Pair]] = []
        for gradient, other in factors(self._bound, value):
            rows, call = normalised(self._bound, other), self._bound(other)
            if rows is not None and axes.shape[2] == 1:
                pair = _Pair(axes, rows.x, gradient, rows.mean, rows.factor)
            elif isinstance(call, Call) and is_call(call, "relax.subtract"):
                pair = _Pair(axes, call.args[0], gradient, call.args[1])
                if not axes.keeps(call.args[1]):
                    continue
            else:
                continue
            if _dims(pair.x) == _dims(gradient) == axes.dims:
                found.append((gradient, pair))
        return found

    def _bound(self, value: Expr) -> Expr | None:
        """What computes a value in this block."""
        b = self.bindings.get(value)
        return None if b is None else b.value

    def _may_move(self, first: Var, second: Var) -> bool:
        """Whether a sum may stand right before another; if it has to, it is noted."""
        if self._places[first] < self._places[second]:
            if self._read.get(first, len(self._places)) <= self._places[second]:
                return False
            self.moved[second] = first
        return True


def _dims(value: Expr) -> tuple[int, ...] | None:
    """The shape of a value of float32, where it is known."""
    tensor = tensor_of(value)
    return tensor.shape if tensor is not None and tensor.dtype == "float32" else None


def _reduction(value: Expr) -> tuple[str, Expr, _Axes] | None:
    """What a value is the mean, the variance or the sum of, and what is kept of the axes."""
    name = next((n for n in ("mean", "variance", "sum") if is_call(value, f"relax.{n}")), None)
    if name is None or not isinstance(value, Call):
        return None
    dims, axis = _dims(value.args[0]), call_attrs(value)["axis"]
    if not dims or not axis:
        return None
    gone = {a % len(dims) for a in axis}
    kept = [a for a in range(len(dims)) if a not in gone]
    # Without the first axis they are those of rows, as layer norms have them.
    if not kept or 0 in kept or kept[-1] - kept[0] >= len(kept):
        return None
    return f"relax.{name}", value.args[0], _Axes(dims, kept[0], kept[-1] + 1)


def form(call: Moments | Sums | RowSums) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)

"""CallMoments: means and variances of channels, and gradients of batch norms, as calls.

XLA computes a mean, the squares of what is left without it, and their sum, each in a loop of its
own, some through memory; and for the gradient of a batch norm likewise. A function in C++ reads
numbers once for both of a pair, and has planes in the caches yet for the gradient behind its sums.

As with oneDNN (:mod:`relax2xla.transform.cpu.calls.onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule
from relax2xla.ir import (
    Binding,
    Call,
    Expr,
    Function,
    IRModule,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.make import const
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as is_call
from relax2xla.ir.rewrite import reads
from relax2xla.kernels.moments import (
    FAMILY,
    AnyCall,
    BatchGradient,
    Moments,
    RowSums,
    Sums,
    pays,
)
from relax2xla.kernels.native import may_call
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import number_of, tensor_of
from relax2xla.transform.cpu.calls.normalised import Bound, factors, normalised
from relax2xla.transform.cpu.calls.sites import Sites, with_composites

_x, _other = wildcard(), wildcard()
# Which part of a call is no row of its sums, but what lies behind them.
_GRADIENT: Final = -1
# Products in each other that are looked through.
_MOST_PRODUCTS: Final = 4


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallMoments(Pass):
    """Make composites of moments, sums and gradients of batch norms, static shapes.

    ``variance`` with ``mean``, and pairs of sums, of float32, over the first axes and maybe the
    last ones, as batch norms have them; with sums over planes, what torch's
    ``native_batch_norm_backward`` makes of them. A pair is that of ``g`` and of ``g * (x - m)``
    with a number of ``m`` for each channel, or of ``g * (x - m) * f`` with one of ``m`` and ``f``
    for each row, as layer norms have them. Exact up to rounding.
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


class _End(NamedTuple):
    """How a batch norm's gradient comes of its sums, which it has of what ``x`` is without means.

    powers: what the sum of the product is multiplied by, but the reciprocal of the count; factor:
    what all is multiplied by
    """

    powers: list[Expr]
    factor: Expr

    def power(self, axes: _Axes) -> Expr:
        """The product of all powers, a number for each channel."""
        made: Expr = const(np.ones(axes.shape[1], "float32"))
        for v in self.powers:
            flat = v if number_of(v) is not None else R.reshape(v, axes.shape[1:2])
            made = R.multiply(made, flat)
        return made


@dataclass(frozen=True, eq=False)
class _Pair:
    """What one call computes: ``moments`` of ``x``, or the sums of ``gradient``.

    ``mean`` is of each channel, or with a ``factor`` of each row, as that is. With an ``end`` it is
    the gradient behind the sums, too.
    """

    axes: _Axes
    x: Expr
    gradient: Expr | None = None
    mean: Expr | None = None
    factor: Expr | None = None
    end: _End | None = None

    @property
    def described(self) -> AnyCall:
        """The call."""
        if self.end is not None:
            return BatchGradient(self.axes.shape)
        if self.factor is not None:
            return RowSums(self.axes.shape[:2])
        return (Moments if self.gradient is None else Sums)(self.axes.shape)

    def operands(self, m: Match) -> list[Expr]:
        """What the call takes, in the place of a match."""
        given = [v for v in (self.gradient, self.x, self.mean, self.factor) if v is not None]
        if self.end is not None:
            given += [m.bind("power", self.end.power(self.axes)), self.end.factor]
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
        patterns = [is_op(f"relax.{name}")(_x) for name in ("mean", "variance", "sum")]
        return [Rule(p, self._part) for p in (*patterns, is_op("relax.multiply")(_x, _other))]

    def rows(self, described: AnyCall, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        axes, channels = (0, 2), described.shape[1]
        if isinstance(described, BatchGradient):
            return _gradient_in_rows(self.rows(described.sums, params[:3]), *params)
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
        """See :class:`Sites`; what a call takes is moved ahead of it, and sums to their pairs."""
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
        """The bindings of a block, what has to be ahead of a sum right before that."""
        pairs = _Pairs(bindings)
        self.parts |= pairs.parts
        due = pairs.due
        made: list[Binding] = []
        for b in bindings:
            made += [pairs.bindings[v] for v in pairs.moved.get(b.var, ())]
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
        result = tensor_of(m.value)
        assert result is not None
        if at == _GRADIENT:
            return R.reshape(m.bind("made", TupleGetItem(call, 0)), result.shape)
        both = call if pair.end is None else m.bind("sums", TupleGetItem(call, 1))
        row = m.bind("row", R.strided_slice(both, (0,), (at,), (at + 1,)))
        return R.reshape(row, result.shape)


class _Pairs:
    """The pairs of one block: what is part of which, and what goes before which sums."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self.bindings: dict[Expr, VarBinding] = {}
        self.parts: dict[Var, tuple[_Pair, int]] = {}
        self.moved: dict[Var, list[Var]] = {}
        self._places: dict[Expr, int] = {}
        self._read: dict[Expr, int] = {}
        self._ends: dict[Expr, list[tuple[Var, _Inner]]] = {}
        reductions: dict[tuple[str, Expr, _Axes], Var] = {}
        for place, b in enumerate(bindings):
            for v in reads(b.value):
                self._read.setdefault(v, place)
            self._places[b.var] = place
            if isinstance(b, VarBinding):
                self.bindings[b.var] = b
                if (key := _reduction(b.value)) is not None:
                    reductions.setdefault(key, b.var)
        for b in self.bindings.values():
            for inner in _inner(self._bound, b.var):
                self._ends.setdefault(inner.gradient, []).append((b.var, inner))
        for (name, x, axes), var in reductions.items():
            if name == "relax.variance":
                self._add(_Pair(axes, x), reductions.get(("relax.mean", x, axes)), var)
            elif name == "relax.sum":
                for gradient, pair in self._sums(x, axes):
                    first = reductions.get(("relax.sum", gradient, axes))
                    if first is not None:
                        self._add(pair, first, var)

    @property
    def due(self) -> set[Var]:
        """What goes before a sum, and not where it stands."""
        return {v for moved in self.moved.values() for v in moved}

    def _add(self, pair: _Pair, first: Var | None, second: Var) -> None:
        """Note a pair, unless one of its values is another's: it would be moved to both."""
        if not pays(pair.described) or second in self.parts or first in self.parts:
            return
        if pair.gradient is not None and first is not None:
            if not self._may_move(first, second):
                return
            pair = self._with_end(pair, first, second)
        self.parts[second] = pair, 1
        if first is not None:
            self.parts[first] = pair, 0

    def _with_end(self, pair: _Pair, first: Var, second: Var) -> _Pair:
        """A pair of sums with the gradient that comes of them, which is part of it from now on.

        Itself where there is none, and of rows: all of these are read before a channel's sums are
        there, so that nothing is left of them in a cache.
        """
        assert pair.gradient is not None
        if pair.factor is not None or pair.axes.shape[2] == 1:
            return pair
        for var, inner in self._ends.get(pair.gradient, ()):
            end = inner.of(self._bound, pair, first, second)
            if end is None:
                continue
            ahead = self._ahead([*end.powers, end.factor], {first, second})
            if ahead is not None:
                self.moved[second] = [*ahead, *self.moved.get(second, ())]
                made = replace(pair, end=end)
                self.parts[var] = made, _GRADIENT
                return made
        return pair

    def _ahead(self, values: Sequence[Expr], sums: set[Var]) -> list[Var] | None:
        """What is bound behind ``sums`` and computes ``values``; None: it has read them."""
        begin, due = min(self._places[v] for v in sums), self.due
        found, todo = set[Var](), list(values)
        while todo:
            v = todo.pop()
            if v in sums:
                return None
            if self._places.get(v, -1) > begin and v not in found and v not in due:
                if v not in self.bindings:
                    return None
                assert isinstance(v, Var)
                found.add(v)
                todo += reads(self.bindings[v].value)
        return sorted(found, key=lambda v: self._places[v])

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
            if first in self.due:  # another gradient's factor is made of it
                return False
            self.moved[second] = [first]
        return True


class _Inner(NamedTuple):
    """What may be the gradient of a batch norm: ``(gradient - left * slope - shift) * factor``."""

    gradient: Expr
    left: Expr
    slope: Expr
    shift: Expr
    factor: Expr

    def of(self, bound: Bound, pair: _Pair, first: Var, second: Var) -> _End | None:
        """How it comes of the sums of a pair; None where it does not."""
        axes, left = pair.axes, bound(self.left)
        if not isinstance(left, Call) or not is_call(left, "relax.subtract"):
            return None
        if left.args[0] is not pair.x or left.args[1] is not pair.mean:
            return None
        if not all(map(axes.keeps, (self.slope, self.shift, self.factor))):
            return None
        shift, slope = (
            _others(bound, v, s) for v, s in ((self.shift, first), (self.slope, second))
        )
        outer, channels, inner = axes.shape
        each = float(np.float32(1 / (outer * inner)))
        if shift is None or slope is None or list(map(number_of, shift)) != [each]:
            return None
        place = next((i for i, v in enumerate(slope) if number_of(v) == each), None)
        powers = [v for i, v in enumerate(slope) if i != place]
        shapes = [t.shape for t in map(tensor_of, powers) if t is not None]
        if place is None or any(math.prod(s) not in (1, channels) for s in shapes):
            return None
        return _End(powers, self.factor) if len(shapes) == len(powers) else None


def _inner(bound: Bound, value: Expr) -> Iterator[_Inner]:
    """What a value may be the gradient of a batch norm of."""
    for inner, factor in factors(bound, value):
        outside = bound(inner)
        if not isinstance(outside, Call) or not is_call(outside, "relax.subtract"):
            continue
        inside, shift = bound(outside.args[0]), outside.args[1]
        if not isinstance(inside, Call) or not is_call(inside, "relax.subtract"):
            continue
        for left, slope in factors(bound, inside.args[1]):
            yield _Inner(inside.args[0], left, slope, shift, factor)


def _others(
    bound: Bound, product: Expr, value: Expr, depth: int = _MOST_PRODUCTS
) -> list[Expr] | None:
    """What ``value`` is multiplied by in a product, whose shape does not matter; None: nothing."""
    while isinstance(call := bound(product), Call) and _reshapes(call):
        product = call.args[0]
    if product is value:
        return []
    for factor, other in factors(bound, product) if depth else ():
        found = _others(bound, factor, value, depth - 1)
        if found is not None:
            return [*found, other]
    return None


def _reshapes(call: Call) -> bool:
    return any(is_call(call, f"relax.{name}") for name in ("reshape", "expand_dims"))


def _gradient_in_rows(sums: Expr, *params: Expr) -> Expr:
    gradient, x, *vectors = params
    tensor = tensor_of(gradient)
    assert tensor is not None
    outer, channels, inner = tensor.shape
    flat = (1, channels, 1)
    mean, power, factor = (R.reshape(v, flat) for v in vectors)
    each = const(np.float32(1 / (outer * inner)))
    shift, slope = (
        R.multiply(R.reshape(R.strided_slice(sums, (0,), (k,), (k + 1,)), flat), each)
        for k in (0, 1)
    )
    left = R.multiply(R.subtract(x, mean), R.multiply(slope, power))
    made = R.multiply(R.subtract(R.subtract(gradient, left), shift), factor)
    return Tuple([made, sums])


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


def form(call: AnyCall) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)

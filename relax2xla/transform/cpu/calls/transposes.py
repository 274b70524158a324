"""CallTransposes: transpositions as composites.

XLA transposes in a loop over the result, which leaves what it reads for another line of the cache,
often for another page, at each number. Transpositions stand between images with channels first,
as arguments, results and XLA's gradients of convolutions have them, and calls and convolutions with
channels last; and where training reads weights and writes their gradients. A function in C++ turns
blocks in registers.

Where loops compute the operand or alone read the result, XLA makes one loop of all; a call pays
where that one is slower still (:func:`relax2xla.kernels.transposes.pays`). Products take a matrix
transposed for nothing, if nothing else needs it, and reductions and other transpositions anything;
of more axes (patches) XLA makes a matrix for a product first, and divides at each number to find
its place: 0.6 ms for patches of 2x2x2 in 32 channels of 16x28x28, and a call takes 0.2.

As with oneDNN (:mod:`relax2xla.transform.cpu.calls.onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from relax2xla import op as R
from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import Binding, Call, Expr, Function, IRModule, Tuple, Var
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as is_call
from relax2xla.ir.traits import (
    Broadcasting,
    Channelwise,
    Convolution,
    Permutes,
    Pointwise,
    Reshapes,
    axes_of,
)
from relax2xla.kernels.native import may_call
from relax2xla.kernels.transposes import FAMILY, Transpose, pays
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import tensor_of
from relax2xla.transform.cpu.apart import has_trait, readers_of
from relax2xla.transform.cpu.calls.sites import Sites, with_composites

# A product takes a transposition for nothing that leaves no more runs of axes than a batch, rows
# and columns.
_MOST_RUNS: Final = 3
# What XLA makes one loop of with what is beside it.
_LOOPS: Final = (Pointwise, Broadcasting, Channelwise)

_x = wildcard()


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallTransposes(Pass):
    """Make composites of transpositions after which another axis is the last, static shapes.

    Between arguments, results, convolutions, calls and loops, of numbers of four bytes. Which
    these are says :func:`relax2xla.kernels.transposes.pays`.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        return with_composites(mod, _Calls) if may_call() else mod


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.params: Sequence[Var] = ()
        self.readers: Mapping[Var, Sequence[Binding | None]] = {}

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [
            Rule(is_op("relax.permute_dims")(_x), self._transpose),
            Rule(is_op("relax.flip")(_x), self._flipped),
        ]

    def rows(self, described: Transpose, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        made = R.permute_dims(params[0], described.order)
        return R.flip(made, described.flipped) if described.flipped else made

    def function(self, func: Function) -> Function:
        """See :class:`Sites`."""
        if self.family.forms in self.name:  # what a call is in rows
            return func
        plain, merged = rewrite(
            func, [Rule(is_op("relax.permute_dims")(_x), _merged)], inside=False
        )
        plain = remove_all_unused(plain) if merged else func
        once = rewrite(plain, [Rule(is_op("relax.permute_dims")(_x), _Once())], inside=False)[0]
        self.params, self.readers = once.params, readers_of(once)
        made = super().function(once)
        return func if made is once else made

    def _transpose(self, m: Match) -> Expr | None:
        call = _call_of(m)
        if call is None:
            return None
        source = self._source(m)
        computed, read = _is_loop(source), self._read_by(m.var, call.runs <= _MOST_RUNS)
        known = computed or source in self.params or _is_apart(source)
        if not known or read is None or not pays(call, computed, read):
            return None
        return self.call(call, [m[_x]])

    def _flipped(self, m: Match) -> Expr | None:
        """A transposition of an argument that goes backwards along some axes."""
        turned = m.bound(m[_x])
        if not isinstance(turned, Call) or not is_call(turned, "relax.permute_dims"):
            return None
        operand, order = turned.args[0], _order_of(turned)
        tensor = tensor_of(operand)
        if tensor is None or order is None or m.uses(m[_x]) > 1 or operand not in self.params:
            return None
        wide = {i for i, axis in enumerate(order) if tensor.shape[axis] > 1}
        flipped = sorted(_flipped_by(m.call) & wide)
        call = Transpose(tensor.shape, tuple(order), tensor.dtype, tuple(flipped))
        if call.problem() or not pays(call, computed=False, read=True):
            return None
        m.drop(m[_x])
        return self.call(call, [operand])

    def _source(self, m: Match) -> Expr:
        """What computes the numbers of the operand."""
        made = m.bound(m[_x])
        while has_trait(made, Reshapes):
            assert isinstance(made, Call)
            made = m.bound(made.args[0])
        return made

    def _read_by(self, var: Var, matrix: bool) -> bool | None:
        """Whether loops alone read a variable; None where what reads it takes it as it was.

        What has a reader that is no loop is computed, and nothing else reads it in vain. Products
        take a ``matrix`` as it was.
        """
        readers = list(self._readers_of(var))
        if any(r is not None and has_trait(r, Permutes) for r in readers):
            return None
        if any(r is None or _is_apart(r) or (not matrix and _is_product(r)) for r in readers):
            return False
        return True if readers and all(r is not None and _is_loop(r) for r in readers) else None

    def _readers_of(self, var: Var) -> Iterator[Expr | None]:
        """What reads the numbers of a variable; None for the function's result."""
        for b in self.readers.get(var, ()):
            if b is None:
                yield None
            elif isinstance(b.value, Tuple | Var) or has_trait(b.value, Reshapes):
                yield from self._readers_of(b.var)
            else:
                yield b.value


def _merged(m: Match) -> Expr | None:
    """One transposition in the place of several, one after the other; one flip is behind it then.

    The weight of a convolution goes back turned around, as the window of another.
    """
    value, order = m[_x], _order_of(m.call)
    flipped: set[int] = set()
    while order is not None and isinstance(made := m.bound(value), Call):
        if is_call(made, "relax.permute_dims"):
            before = _order_of(made)
            order = None if before is None else [before[axis] for axis in order]
        elif is_call(made, "relax.flip") and m.uses(value) <= 1:
            # A variable that was made on the way is read here alone.
            flipped = flipped ^ {order.index(axis) for axis in _flipped_by(made)}
        else:
            break
        value = made.args[0]
    if order is None or value is m[_x]:
        return None
    if order == sorted(order) and not flipped:
        return value
    made = R.permute_dims(value, order)
    return R.flip(m.bind("turned", made), sorted(flipped)) if flipped else made


def _flipped_by(flip: Call) -> set[int]:
    tensor = tensor_of(flip)
    assert tensor is not None
    return {*axes_of(call_attrs(flip)["axis"], len(tensor.shape))}


def _order_of(call: Call) -> list[int] | None:
    """The axes of a transposition; None where the rank is not known."""
    tensor, axes = tensor_of(call), call_attrs(call)["axes"]
    if tensor is None:
        return None
    rank = len(tensor.shape)
    return [*reversed(range(rank))] if axes is None else [axis % rank for axis in axes]


class _Once:
    """One transposition in the place of several of one value, which XLA would see in rows alone."""

    def __init__(self) -> None:
        self.known: dict[tuple[Expr, Transpose], Var] = {}

    def __call__(self, m: Match) -> Expr | None:
        call = _call_of(m)
        if call is None or not isinstance(m.var, Var):
            return None
        first = self.known.setdefault((m[_x], call), m.var)
        return None if first is m.var else first


def _call_of(m: Match) -> Transpose | None:
    tensor, order = tensor_of(m[_x]), _order_of(m.call)
    if tensor is None or order is None:
        return None
    call = Transpose(tensor.shape, tuple(order), tensor.dtype)
    return None if call.problem() else call


def form(call: Transpose) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)


def _is_loop(value: Expr) -> bool:
    return has_trait(value, *_LOOPS)


def _is_product(value: Expr) -> bool:
    return is_call(value, "relax.matmul") or is_call(value, "relax.einsum")


def _is_apart(value: Expr) -> bool:
    return is_call(value, "relax.stablehlo.composite") or has_trait(value, Convolution)

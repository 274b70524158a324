"""CallSlices: slices of volumes side by side, as composites.

Convolutions of volumes are those of planes with the channels of all slices under the window
(:mod:`relax2xla.transform.cpu.convolutions.planes`), and so are the gradients of their weights in
graphs of torch. XLA joins the slices in a loop that decides at each number where it comes from: 1.9
ms for three of 32 channels in 16 slices of 28x28, beside 0.4 for the zeros around them. A function
in C++ copies rows in 0.6 (one core with AVX-512).

As with oneDNN (:mod:`relax2xla.transform.cpu.calls.onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule
from relax2xla.ir import Call, Expr, Function, IRModule, PrimValue, Tuple
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as is_call
from relax2xla.kernels.native import may_call
from relax2xla.kernels.slices import FAMILY, Joined, pays
from relax2xla.tir import IntImm
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import tensor_of
from relax2xla.transform.cpu.calls.sites import Sites, with_composites

_parts = wildcard()


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallSlices(Pass):
    """Make composites of slices of volumes in NDHWC that are joined, static shapes, in float32.

    Which these are says :func:`relax2xla.kernels.slices.pays`.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        return with_composites(mod, _Calls) if may_call() else mod


class _Slices(NamedTuple):
    """Slices of a volume along its depth, with the channels of each group apart."""

    volume: Expr
    begin: int
    step: int
    shape: tuple[int, ...]


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [Rule(is_op("relax.concat")(_parts), self._join)]

    def rows(self, described: Joined, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        (volume,) = params
        before, behind = described.before, described.behind
        if before or behind:
            volume = R.nn.pad(volume, (0, 0, before, behind, *[0] * 6))
        *shape, wide = described.result.shape
        parts: list[Expr] = []
        for k in range(described.depth):
            first = k * described.apart
            end = first + (described.slices - 1) * described.step + 1
            under = R.strided_slice(volume, (1,), (first,), (end,), (described.step,))
            parts.append(R.reshape(under, (*shape, wide // described.depth)))
        return R.concat(parts, axis=-1) if len(parts) > 1 else parts[0]

    def function(self, func: Function) -> Function:
        """See :class:`Sites`."""
        # What a call is in rows stays.
        return func if self.family.forms in self.name else super().function(func)

    def _join(self, m: Match) -> Expr | None:
        joined, fields = tensor_of(m.call), m.bound(m[_parts])
        if joined is None or joined.dtype != "float32" or len(joined.shape) != 6:
            return None
        if call_attrs(m.call)["axis"] not in (-1, 5) or not isinstance(fields, Tuple):
            return None
        found = [_slices_of(m, field) for field in fields.fields]
        parts = [part for part in found if part is not None]
        if len(parts) < max(2, len(found)):
            return None
        first, *others = parts
        apart = others[0].begin - first.begin
        at = first.begin
        for part in others:
            at += apart
            if part != first._replace(begin=at):
                return None
        volume, before = _between_zeros(m, first.volume)
        tensor, before = tensor_of(volume), before - first.begin
        if tensor is None or before < 0:
            return None
        batch, deep, height, width, channels = tensor.shape
        slices, groups = first.shape[1], first.shape[4]
        sizes = (batch, deep, height, width, channels)
        call = Joined(sizes, len(parts), slices, first.step, apart, before, groups)
        if call.problem() or call.result.shape != joined.shape or not pays(call):
            return None
        return self.call(call, [volume])


def _slices_of(m: Match, value: Expr) -> _Slices | None:
    """Slices along the depth of a volume that a part is; None of other parts."""
    shaped = tensor_of(value)
    reshape = m.bound(value)
    if shaped is None or not isinstance(reshape, Call) or not is_call(reshape, "relax.reshape"):
        return None
    taken = m.bound(reshape.args[0])
    if not isinstance(taken, Call) or not is_call(taken, "relax.strided_slice"):
        return None
    volume = tensor_of(taken.args[0])
    numbers = [_numbers_of(v) for v in taken.args[1:]]
    if volume is None or len(volume.shape) != 5 or len(shaped.shape) != 6:
        return None
    axes, begins, ends, *strides = numbers
    if axes != [1] or not begins or not ends or begins[0] < 0 or ends[0] < 1:
        return None
    step = strides[0] if strides else [1]
    whole = (*volume.shape[:1], shaped.shape[1], *volume.shape[2:4])
    channels = shaped.shape[4] * shaped.shape[5]
    if not step or shaped.shape[:4] != whole or channels != volume.shape[4]:
        return None
    return _Slices(taken.args[0], begins[0], step[0], shaped.shape)


def _numbers_of(value: Expr) -> list[int] | None:
    """The numbers of a tuple; None where one is not known."""
    if not isinstance(value, Tuple):
        return None
    given = [f.value if isinstance(f, PrimValue) else None for f in value.fields]
    found = [v.value for v in given if isinstance(v, IntImm)]
    return found if len(found) == len(given) else None


def _between_zeros(m: Match, value: Expr) -> tuple[Expr, int]:
    """What stands between slices of zeros, and how many are before it; a value itself and 0."""
    pad = m.bound(value)
    if not isinstance(pad, Call) or not is_call(pad, "relax.nn.pad"):
        return value, 0
    attrs = call_attrs(pad)
    widths = [int(n) for n in attrs["pad_width"]]
    around = [n for i, n in enumerate(widths) if i not in (2, 3)]
    if any(around) or min(widths) < 0 or attrs["pad_mode"] != "constant":
        return value, 0
    return (pad.args[0], widths[2]) if attrs["pad_value"] == 0 else (value, 0)


def form(call: Joined) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)

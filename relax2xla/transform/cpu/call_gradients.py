"""CallGradients: gradients of the weights of convolutions and products as composites.

XLA:CPU has them as convolutions with a window as large as the image, or as products of matrices
that it transposes first. A function in C++ reads image and gradient as they lie: a 3x3 on eight
images of 64 channels of 28x28 takes 2.7 ms instead of 4.5 (one core with AVX-512), and nothing is
transposed.

As with oneDNN (:mod:`relax2xla.transform.cpu.call_onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import Call, Expr, IRModule, Op
from relax2xla.ir.op import call_attrs
from relax2xla.kernels.gradients import FAMILY, LAYOUTS, WeightGradient, pays
from relax2xla.kernels.native import may_call
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.native_sites import Sites, tensor_of, with_composites
from relax2xla.transform.cpu.weight_gradients import gradient_of, rows

_x, _other = wildcard(), wildcard()


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallGradients(Pass):
    """Make composites of gradients of weights, static shapes, in float32.

    Those of convolutions are convolutions in which batch and channels have changed places, as JAX
    and torch write them; those of products are products whose first matrix is transposed. Exact up
    to the order of the additions. Where there are no calls they get forms that XLA computes well.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        if may_call():
            return with_composites(mod, _Calls)
        new = {g: rewrite(f, [_in_rows], inside=False)[0] for g, f in mod.relax_functions().items()}
        return mod.replace({**mod.functions, **new})


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [
            Rule(is_op("relax.stablehlo.convolution")(_x, _other), self._convolution),
            Rule(is_op("relax.matmul")(_x, _other), self._product),
        ]

    def rows(self, described: WeightGradient, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        return rows(described, *params)

    def _convolution(self, m: Match) -> Expr | None:
        return _made(m, pays, self.call)

    def _product(self, m: Match) -> Expr | None:
        value = m.bound(m[_x])
        if not isinstance(value, Call) or value.op is not Op.get("relax.permute_dims"):
            return None
        left, right = tensor_of(value.args[0]), tensor_of(m[_other])
        if left is None or right is None or {left.dtype, right.dtype} != {"float32"}:
            return None
        if len(left.shape) != 2 or len(right.shape) != 2 or m.from_constants(m[_other]):
            return None
        # The results of the product that this is the gradient of are its rows.
        image, gradient = ((1, 1, *t.shape) for t in (right, left))
        described = WeightGradient(image, gradient)
        if described.problem() or not pays(described):
            return None
        operands = [
            m.bind("pixels", R.reshape(v, shape))
            for v, shape in ((m[_other], image), (value.args[0], gradient))
        ]
        made = m.bind("called", self.call(described, operands))
        return R.reshape(made, described.result.shape[:2])


def _made(
    m: Match,
    fits: Callable[[WeightGradient], bool],
    make: Callable[[WeightGradient, Sequence[Expr]], Expr],
) -> Expr | None:
    """What is made of a gradient that a convolution is, in the order of its axes."""
    found = gradient_of(m.call)
    if found is None or found.is_depthwise:
        return None
    lies = next((name for name, axes in LAYOUTS.items() if axes == found.weight), "last")
    described = found.described(lies)
    if described.problem() or not fits(described):
        return None
    operands = [_pixels(m, m[_x], found.image), _pixels(m, m[_other], found.gradient)]
    axes = [LAYOUTS[lies].index(axis) for axis in found.weight]
    made = make(described, operands)
    return R.permute_dims(m.bind("called", made), axes) if axes != [0, 1, 2, 3] else made


def _pixels(m: Match, value: Expr, axes: Sequence[int]) -> Expr:
    """The image whose axes are ``axes`` of a value; what was transposed before is seen through."""
    call = m.bound(value)
    while isinstance(call, Call) and call.op is Op.get("relax.permute_dims"):
        before = call_attrs(call)["axes"] or (3, 2, 1, 0)
        value, axes = call.args[0], [before[axis] for axis in axes]
        call = m.bound(value)
    return value if list(axes) == [0, 1, 2, 3] else m.bind("pixels", R.permute_dims(value, axes))


def _slow(call: WeightGradient) -> bool:
    """Whether XLA's convolution is slower than the form in rows."""
    return call.groups > 1 or math.prod(call.window) == 1


# Where there are no calls.
_in_rows: Final = Rule(
    is_op("relax.stablehlo.convolution")(_x, _other),
    lambda m: _made(m, _slow, lambda described, operands: rows(described, *operands)),
)

"""CallGradients: gradients of the weights of convolutions and products as composites.

XLA:CPU has them as convolutions with a window as large as the image, or as products of matrices
that it transposes first. A function in C++ reads image and gradient as they lie: a 3x3 on eight
images of 64 channels of 28x28 takes 2.7 ms instead of 4.5 (one core with AVX-512), and nothing is
transposed.

As with oneDNN (:mod:`relax2xla.transform.cpu.calls.onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import Call, Expr, Function, IRModule
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as is_call
from relax2xla.kernels.gradients import FAMILY, LAYOUTS, MatrixGradient, WeightGradient, pays
from relax2xla.kernels.native import may_call, pair
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import tensor_of
from relax2xla.transform.cpu.calls.sites import Sites, with_composites
from relax2xla.transform.cpu.convolutions.weight_gradients import Gradient, gradient_of, rows

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
        new = {g: rewrite(f, [_IN_ROWS], inside=False)[0] for g, f in mod.relax_functions().items()}
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

    def rows(self, described: WeightGradient | MatrixGradient, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        image, gradient = params
        if isinstance(described, MatrixGradient):
            return R.matmul(R.permute_dims(gradient), image)
        return rows(described, image, gradient)

    def _convolution(self, m: Match) -> Expr | None:
        found = _found(m)
        if found is None:
            return None
        if found.in_planes or not pays(found.described):
            return found.in_rows()
        return found.given(self.call(found.described, found.operands()))

    def _product(self, m: Match) -> Expr | None:
        value = m.bound(m[_x])
        if not isinstance(value, Call) or not is_call(value, "relax.permute_dims"):
            return None
        left, right, made = (tensor_of(v) for v in (value.args[0], m[_other], m.call))
        if left is None or right is None or made is None:
            return None
        if {left.dtype, right.dtype, made.dtype} != {"float32"}:
            return None
        if len(left.shape) != 2 or len(right.shape) != 2:
            return None
        # Programs may name the axes in their own order, which transposes nothing.
        axes = call_attrs(value)["axes"]
        if axes is not None and axes[0] % 2 == 0:
            return None
        # A weight is laid out at load, for the product that it is in.
        if m.from_constants(m[_x]) or m.from_constants(m[_other]):
            return None
        # The results of the product that this is the gradient of are its rows.
        described = MatrixGradient(pair(right.shape), left.shape[1])
        if described.problem() or not pays(described.convolution):
            return None
        return self.call(described, [m[_other], value.args[0]])


class _Found(NamedTuple):
    """The gradient of a weight that a match is, and the call for it."""

    m: Match
    gradient: Gradient
    described: WeightGradient

    def operands(self) -> list[Expr]:
        """Image and gradient with channels last."""
        m = self.m
        pairs = ((m[_x], self.gradient.image), (m[_other], self.gradient.gradient))
        return [_pixels(m, value, axes) for value, axes in pairs]

    @property
    def in_planes(self) -> bool:
        """Whether it is a product of planes, of channels first as they come to the function."""
        call, (n, height, width, channels) = self.described, self.gradient.image_sizes
        if call.window != (1, 1) or call.groups > 1 or call.gradient[1:3] != (height, width):
            return False
        axes = {self.gradient.image, self.gradient.gradient}
        given = any(isinstance(self.m.origin(self.m[p]), Call) for p in (_x, _other))
        results = call.gradient[3]
        few = results * channels <= (results + channels) * height * width
        return axes == {(0, 2, 3, 1)} and not given and few and n > 0

    def _of_planes(self) -> Expr:
        """The product of the planes of each image, added up."""
        m, call = self.m, self.described
        pairs = ((m[_other], call.gradient), (m[_x], call.image))
        gradient, image = (
            m.bind("planes", R.reshape(value, (n, channels, height * width)))
            for value, (n, height, width, channels) in pairs
        )
        operands = (gradient, image) if call.lies == "first" else (image, gradient)
        made = m.bind("products", R.einsum(operands, "nap,nbp->nab"))
        return self.given(R.reshape(m.bind("sum", R.sum(made, axis=0)), call.result.shape))

    def given(self, made: Expr) -> Expr:
        """What a call gives, in the order of the match's axes."""
        return self.gradient.in_its_order(made, LAYOUTS[self.described.lies])

    def in_rows(self) -> Expr | None:
        """The form in rows or planes, where XLA's convolution is slower; else None."""
        if self.in_planes:
            return self._of_planes()
        if self.described.groups == 1 and math.prod(self.described.window) > 1:
            return None
        return self.given(rows(self.described, *self.operands()))


def _found(m: Match) -> _Found | None:
    gradient = gradient_of(m.call)
    if gradient is None or gradient.is_depthwise:
        return None
    lies = next((name for name, axes in LAYOUTS.items() if axes == gradient.weight), "last")
    described = gradient.described(lies)
    return None if described.problem() else _Found(m, gradient, described)


def _pixels(m: Match, value: Expr, axes: Sequence[int]) -> Expr:
    """The image whose axes are ``axes`` of a value; what was transposed before is seen through."""
    last = [0, 1, 2, 3]
    while list(axes) != last:
        call = m.bound(value)
        if not isinstance(call, Call) or not is_call(call, "relax.permute_dims"):
            return m.bind("pixels", R.permute_dims(value, axes))
        before = call_attrs(call)["axes"] or last[::-1]
        value, axes = call.args[0], [before[axis] for axis in axes]
    return value


def _alone(m: Match) -> Expr | None:
    found = _found(m)
    return None if found is None else found.in_rows()


# Where there are no calls.
_IN_ROWS: Final = Rule(is_op("relax.stablehlo.convolution")(_x, _other), _alone)


def form(call: WeightGradient | MatrixGradient) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)

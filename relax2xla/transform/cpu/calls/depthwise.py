"""CallDepthwise: depthwise convolutions, and gradients of their weights, as composites.

XLA:CPU has no fast road for ``groups == channels``; as sums of shifted products
(:class:`~relax2xla.transform.cpu.convolutions.depthwise.ExpandDepthwise`) each pixel is read once
for each tap. A function in C++ reads it once for each row of the window: a 5x5 on 672 channels of
14x14 takes 0.07 ms instead of 0.27, a 7x7 on eight images of 64 channels of 28x28 0.36 ms instead
of 1.28 (one core with AVX-512). It takes images in either order, a bias, and activations behind it.
An image that is a product for it alone, as in inverted residuals, is made as far as it is read: it
would be the largest tensor of the network, written to memory and read back.

As with oneDNN (:mod:`relax2xla.transform.cpu.calls.onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule
from relax2xla.ir import Call, Expr, Function, IRModule, Op
from relax2xla.ir.op import call_attrs
from relax2xla.kernels import products
from relax2xla.kernels.depthwise import FAMILY, Convolution, Expanded, WeightGradient, pays
from relax2xla.kernels.native import ENDINGS, may_call
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.calls.activations import ended
from relax2xla.transform.cpu.calls.products import unpacked
from relax2xla.transform.cpu.calls.sites import Site, Sites, composite_call, with_composites
from relax2xla.transform.cpu.convolutions.depthwise import by_channel, gradient_rows, is_depthwise
from relax2xla.transform.cpu.convolutions.weight_gradients import gradient_of
from relax2xla.transform.cpu.convolutions.windows import LAYOUTS, Windows, is_known

_LAST, _FIRST = [0, 2, 3, 1], [0, 3, 1, 2]

_x, _other = wildcard(), wildcard()


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallDepthwise(Pass):
    """Make composites of depthwise convolutions and of gradients of their weights, static shapes.

    In NHWC and HWIO, in float32; also images that such a convolution takes from NCHW, or gives
    back to it. Exact up to the order of the additions.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        return with_composites(mod, _Calls) if may_call() else mod


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY
    endings = ENDINGS

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [
            Rule(is_op("relax.nn.conv2d")(_x, _other), self._convolution),
            Rule(is_op("relax.stablehlo.convolution")(_x, _other), self._gradient),
            Rule(is_op("relax.permute_dims")(_x), self._first),
        ]

    def axis(self, described: Convolution | WeightGradient) -> int:
        """See :class:`Sites`."""
        first = isinstance(described, Convolution) and described.result_layout == "NCHW"
        return 1 if first else -1

    def rows(self, described: Convolution | WeightGradient, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        if isinstance(described, Expanded):
            x, panels, bias, *rest = params
            plain = unpacked(panels, (described.given,), described.image[3])
            image = ended(R.add(R.matmul(x, plain), bias), described.first)
            return _convolved(described, image, *rest)
        if isinstance(described, Convolution):
            return _convolved(described, *params)
        return gradient_rows(described, *params)

    def _convolution(self, m: Match) -> Expr | None:
        if not is_known(m.call):
            return None
        w = Windows(m.call, m.var, m.bind)
        dilated = tuple(w.attrs["dilation"]) != (1, 1)
        if w.dtype != "float32" or w.layouts != LAYOUTS or dilated or not is_depthwise(w):
            return None
        image, layout = _source(m, m[_x])
        n, height, width, channels = w.image
        top, left, bottom, right = (int(p) for p in w.attrs["padding"])
        rows, columns = (int(s) for s in w.attrs["strides"])
        described = Convolution(
            (n, height, width, channels),
            (w.weight[0], w.weight[1]),
            (rows, columns),
            (top, left, bottom, right),
            layout,
        )
        site = _expansion(m, described, image) or Site(described, image, m[_other])
        made = self.composite(m, site)
        if made is not None and site.image is not m[_x]:
            m.drop(m[_x])
        return made

    def _gradient(self, m: Match) -> Expr | None:
        whole = gradient_of(m.call)
        call = by_channel(whole)
        if whole is None or call is None:
            return None
        image, gradient = m[_x], m[_other]
        # What lies channels first for this call only is read as it lay before.
        if call.image_layout == "NCHW" and (found := _last(m, image)) is not None:
            image, call = found, replace(call, image_layout="NHWC")
        if call.gradient_layout == "NCHW" and (found := _last(m, gradient)) is not None:
            gradient, call = found, replace(call, gradient_layout="NHWC")
        if call.problem():
            return None
        made = m.bind("called", self.call(call, [image, gradient]))
        return whole.in_its_order(made, "HWIO")

    def _first(self, m: Match) -> Expr | None:
        site = self.sites.get(m[_x])
        if site is None or m.uses(m[_x]) != 1 or self.axis(site.described) != -1:
            return None
        if list(call_attrs(m.call)["axes"] or ()) != _FIRST:
            return None
        m.drop(m[_x])
        described = replace(site.described, result_layout="NCHW")
        return self.composite(m, site._replace(described=described))


def form(call: Convolution | WeightGradient) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)


def _convolved(call: Convolution, image: Expr, weight: Expr, bias: Expr) -> Expr:
    x: Expr = image if call.image_layout == "NHWC" else R.permute_dims(image, _LAST)
    made: Expr = R.nn.conv2d(
        x,
        weight,
        call.strides,
        call.padding,
        groups=call.image[3],
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    made = ended(R.add(made, bias), call.ending)
    return made if call.result_layout == "NHWC" else R.permute_dims(made, _FIRST)


def _expansion(m: Match, call: Convolution, image: Expr) -> Site | None:
    """A convolution with the product that makes its image, where that is for it alone."""
    value = m.bound(image)
    product = composite_call(value, products.FAMILY)
    if not isinstance(product, products.Product) or m.uses(image) != 1:
        return None
    if product.added or product.lies:  # only weights in panels are read one vector at a time
        return None
    if call.image_layout != "NHWC" or product.result.shape != call.image:
        return None
    made = Expanded(
        call.image,
        call.window,
        call.strides,
        call.padding,
        given=product.rows[-1],
        first=product.ending,
    )
    if made.problem() or not pays(made):
        return None
    assert isinstance(value, Call)
    x, panels, bias, _ = value.args
    return Site(made, x, m[_other], more=(panels, bias))


def _source(m: Match, image: Expr) -> tuple[Expr, str]:
    """An image and how it lies: what a transposition for this call alone has made is undone."""
    value = m.bound(image)
    if m.uses(image) == 1 and _permutes(value, _LAST):
        assert isinstance(value, Call)
        return value.args[0], "NCHW"
    return image, "NHWC"


def _last(m: Match, image: Expr) -> Expr | None:
    """Of an image in NCHW the one in NHWC that it is made of; None where it is made otherwise."""
    value = m.bound(image)
    return value.args[0] if isinstance(value, Call) and _permutes(value, _FIRST) else None


def _permutes(value: Expr, axes: Sequence[int]) -> bool:
    if not isinstance(value, Call) or value.op is not Op.get("relax.permute_dims"):
        return False
    return list(call_attrs(value)["axes"] or ()) == list(axes)

"""ChannelsLast: activations of convolutional networks in the layout that XLA:CPU likes.

Convolution and pooling are rewritten to the desired layout, and what lies between them follows (see
:mod:`relax2xla.transform.layout.propagation`). Transpositions of weights are arithmetic on weights
alone, so ``LiftWeights`` moves them to load time.
"""

from __future__ import annotations

from relax2xla import processor
from relax2xla.ir import Call, Expr, Function, IRModule, Op, TensorStructInfo, Var, VarBinding
from relax2xla.ir.op import call_attrs, trait_of
from relax2xla.ir.rewrite import bindings_of
from relax2xla.ir.traits import Permutes, Trait, Window
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.layout.propagation import (
    Order,
    Ordered,
    Rule,
    Twins,
    dims_of,
    identity,
)

SOURCE = "NCHW"
_CONVOLUTIONS = ("relax.nn.conv2d", "relax.nn.conv3d")


@register(opt_level=2)
class ChannelsLast(FunctionPass):
    """Convert ``nn.conv2d`` in NCHW, ``nn.conv3d`` in NCDHW and what is around them.

    ``data``, ``kernel``: the layouts of convolutions of planes, which are not packed; those that
    are not in NCHW stay. Those of volumes have D before H. ``pointwise_as_matmul``: 1x1
    convolutions become contractions, where the layout has the channels last. It goes across blocks
    and through reshapes, and transposes a value once for all that read it; :class:`ConvertLayout`
    is for layouts of one's own.
    """

    def __init__(
        self,
        data: str = "NHWC",
        kernel: str = "HWIO",
        pointwise_as_matmul: bool = True,
        weights_at_load: bool = True,
    ) -> None:
        self.data, self.kernel = data, kernel
        self.pointwise = pointwise_as_matmul
        self.weights_at_load = weights_at_load

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        converter = _Converter(self.data, self.kernel, self.pointwise, self.weights_at_load)
        return converter.function(func) if converter.applies(func) else func


def _is_pointwise(call: Call) -> bool:
    """Whether a convolution is a matrix product at each pixel."""
    attrs = call_attrs(call)
    info = call.args[1].struct_info
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return False
    sizes = [d for a, d in zip(attrs["kernel_layout"], info.dims, strict=True) if a not in "OI"]
    plain = attrs["groups"] == 1 and not any(attrs["padding"])
    return plain and {*sizes} == {1} and attrs["out_dtype"] in (None, "", "void", info.dtype)


def _of_rank(layout: str, rank: int) -> str:
    """A layout of planes, or what it is for volumes: with D before H."""
    return layout if rank == len(SOURCE) else layout.replace("H", "DH")


class _Converter(Twins):
    """Converts one function whose convolutions are in NCHW or NCDHW."""

    def __init__(self, data: str, kernel: str, pointwise: bool, weights_at_load: bool) -> None:
        super().__init__(RULES)
        self.data = data
        self.kernel = kernel
        self.weights_at_load = weights_at_load
        self.pointwise = pointwise and data.endswith("C")

    def order(self, rank: int) -> Order:
        """The axes of images of that rank in the desired layout."""
        source = _of_rank(SOURCE, rank)
        return tuple(source.index(a) for a in _of_rank(self.data, rank))

    def applies(self, func: Function) -> bool:
        """Whether ``func`` has a convolution to convert."""
        return self.data != SOURCE and any(
            isinstance(b, VarBinding)
            and isinstance(b.value, Call)
            and isinstance(b.value.op, Op)
            and b.value.op.name in _CONVOLUTIONS
            and self.convertible(b.value)
            for b in bindings_of(func.body)
        )

    def convertible(self, call: Call) -> bool:
        """Whether a convolution is in the source layout, its kernel in any order of the desired."""
        attrs, weight = call_attrs(call), dims_of(call.args[1])
        if weight is None:
            return False
        source = _of_rank(SOURCE, len(weight))
        return (
            attrs["data_layout"] == source
            and attrs.get("out_layout") in (None, "", source)
            and sorted(attrs["kernel_layout"]) == sorted(_of_rank(self.kernel, len(weight)))
        )

    def convolution(self, call: Call) -> Ordered | None:
        """A convolution, with its weight in the desired kernel layout."""
        if not self.convertible(call):
            return None
        layout: str = call_attrs(call)["kernel_layout"]
        order = self.order(len(layout))
        data, kernel = (_of_rank(v, len(layout)) for v in (self.data, self.kernel))
        if self.pointwise and _is_pointwise(call):
            return self.contraction(call, layout), order
        axes = tuple(layout.index(a) for a in kernel)
        weight: Expr = call.args[1]
        if axes != identity(len(axes)):
            weight = self.bind(self.permuted(weight, axes), "weight")
        args = [self.ordered(call.args[0], order), weight]
        layouts = {"data_layout": data, "kernel_layout": kernel, "out_layout": data}
        return self.again(call, args, order, **layouts), order

    def contraction(self, call: Call, layout: str) -> Call:
        """A 1x1 convolution as one contraction over channels, which XLA:CPU runs faster.

        The weight is (inputs, outputs) where Eigen multiplies, which takes 0.5 to 0.95 of the time
        of YNNPACK so; elsewhere (outputs, inputs), which YNNPACK likes as well or better, and where
        weights come with each call, because transposing them takes longer than that gains.
        """
        data, order = _of_rank(self.data, len(layout)), self.order(len(layout))
        space = [a for a in data if a not in "NC"]
        x = self.ordered(call.args[0], order)
        strides = tuple(call_attrs(call)["strides"])
        strides = strides * len(space) if len(strides) == 1 else strides
        if max(strides) > 1:
            axes = [data.index(a) for a in space]
            dims = dims_of(x) or ()
            ends = [dims[a] for a in axes]
            sliced = self.call(
                "strided_slice",
                x,
                axes=axes,
                begin=[0] * len(space),
                end=ends,
                strides=list(strides),
            )
            x = self.bind(sliced, "strided")
        weight: Expr = call.args[1]
        dims = dims_of(weight) or ()
        places = {"o": layout.index("O"), "i": layout.index("I")}
        wanted = "io" if self.weights_at_load and processor.eigen_multiplies() else "oi"
        if places[wanted[0]] > places[wanted[1]]:
            turned = tuple(layout.index(a) for a in (*wanted.upper(), *space))
            weight = self.bind(self.permuted(weight, turned), "weight")
        shape = [dims[places[axis]] for axis in wanted]
        matrix = self.bind(self.call("reshape", weight, shape), "weight")
        pixels = data[:-1].lower()
        return self.einsum(call, (x, matrix), f"{pixels}i,{wanted}->{pixels}o", order)

    def pool(self, call: Call) -> Ordered | None:
        """A pooling operator."""
        attrs, names = call_attrs(call), trait_of(call, Window)
        order = self.order_of(call.args[0])
        if order is None or len(order) not in _RANKS or order != self.order(len(order)):
            return None
        source, data = _of_rank(SOURCE, len(order)), _of_rank(self.data, len(order))
        if attrs[names.layout] != source:
            return None
        if len(call.args) != 1 or not names.out or attrs[names.out] not in (None, "", source):
            return None
        layouts = {names.layout: data, names.out: data}
        args = [self.ordered(call.args[0], order)]
        return self.again(call, args, order, **layouts), order

    def permute_dims(self, call: Call) -> Ordered | None:
        """A permutation; one of a value that lies as convolutions like it moves nothing, too.

        Networks such as ConvNeXt keep the channels last themselves for their linear layers.
        """
        x = call.args[0]
        if self.order_of(x) is not None or not isinstance(x, Var) or dims_of(x) is None:
            return super().permute_dims(call)
        axes = call_attrs(call)[trait_of(call, Permutes).axes]
        if axes is None or len(axes) not in _RANKS:
            return None
        # The value is the result with its axes in this order.
        order = tuple([a % len(axes) for a in axes].index(i) for i in range(len(axes)))
        return (x, order) if order == self.order(len(axes)) else None


# Of images that are planes, and that are volumes.
_RANKS = (len(SOURCE), len(SOURCE) + 1)
RULES: dict[str | type[Trait], Rule] = {
    Permutes: _Converter.permute_dims,
    **dict.fromkeys(_CONVOLUTIONS, _Converter.convolution),
    Window: _Converter.pool,
}

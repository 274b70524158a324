"""ConvertLayout: activations of convolutional networks in the layout that the backend likes.

The pass is an interpreter that keeps, beside each variable, a copy of it in the desired layout once
one exists. Operators that know layouts (convolution, pooling) are rewritten to it, and operators
that do not care (element-wise, reductions, concatenation) follow their operands. The original form
of a value is made only where something asks for it. Transpositions of weights are arithmetic on
weights alone, so ``lift_weights`` moves them to load time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    Span,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import Rewriter
from relax2xla.transform._pass import Pass, PassContext, PassInfo


def _names(text: str) -> frozenset[str]:
    return frozenset(f"relax.{n}" for n in text.split())


UNARY = _names(
    """abs acos acosh asin asinh atan atanh bitwise_not ceil clip cos cosh erf exp floor isfinite
    isinf isnan log logical_not negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh
    trunc astype nn.relu nn.relu6 nn.leakyrelu nn.gelu nn.gelu_tanh nn.silu nn.selu nn.softplus"""
)
BINARY = _names(
    """add subtract multiply divide floor_divide mod floor_mod power maximum minimum equal not_equal
    less less_equal greater greater_equal logical_and logical_or logical_xor where"""
)
POOLS = _names("nn.max_pool2d nn.avg_pool2d nn.adaptive_avg_pool2d")
REDUCTIONS = _names("sum mean max min prod std variance")


class ConvertLayout(Pass):
    """Convert ``nn.conv2d`` and what is around it to other layouts.

    ``desired_layouts``: {"relax.nn.conv2d": [data layout, kernel layout]}, for example
    ["NHWC", "HWIO"]. Convolutions that are not in NCHW stay. ``pointwise_as_matmul``: 1x1
    convolutions become contractions.
    """

    def __init__(
        self, desired_layouts: Mapping[str, Sequence[str]], pointwise_as_matmul: bool = False
    ) -> None:
        unknown = [k for k in desired_layouts if k != "relax.nn.conv2d"]
        if unknown:
            raise TransformError(f"ConvertLayout knows relax.nn.conv2d; got {', '.join(unknown)}")
        self.pointwise = pointwise_as_matmul
        self.layouts = {k: tuple(v) for k, v in desired_layouts.items()}
        super().__init__(PassInfo("ConvertLayout", opt_level=2), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        data, kernel = self.layouts["relax.nn.conv2d"]
        new = {
            g: _Converter(data, kernel, self.pointwise).function(f)
            if isinstance(f, Function)
            else f
            for g, f in mod.items()
        }
        return mod.replace(new)


def _is_pointwise(call: Call) -> bool:
    """Whether a convolution is a matrix product at each pixel."""
    attrs = call_attrs(call)
    info = call.args[1].struct_info
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return False
    layout: str = attrs["kernel_layout"]
    size = [info.dims[layout.index(a)] for a in "HW"]
    plain = attrs["groups"] == 1 and not any(attrs["padding"])
    return plain and size == [1, 1] and attrs["out_dtype"] in (None, "", info.dtype)


class _Converter:
    """Converts one function whose convolutions have the source layout NCHW."""

    source = "NCHW"

    def __init__(self, data: str, kernel: str, pointwise: bool) -> None:
        self.pointwise = pointwise
        self.data = data
        self.kernel = kernel
        self.perm = [self.source.index(a) for a in data]
        self.inverse = [data.index(a) for a in self.source]
        # Variables by their twin in the desired layout, and those whose own binding is still due.
        self.twins: dict[Expr, Var] = {}
        self.due: dict[Expr, Var] = {}
        self.out: list[Binding] = []
        self.block_var: type[Var] = Var
        self.span: Span | None = None

    def function(self, func: Function) -> Function:
        """``func`` in the desired layout; the same object where it has no convolution."""
        if self.data == self.source or not any(
            isinstance(b, VarBinding) and self._convertible(b.value)
            for block in func.body.blocks
            for b in block.bindings
        ):
            return func
        blocks: list[BindingBlock] = []
        for block in func.body.blocks:
            self.out = []
            self.block_var = DataflowVar if isinstance(block, DataflowBlock) else Var
            for b in block.bindings:
                self.binding(b)
            # What leaves the block leaves it in its own form.
            for var in [v for v in self.due if not isinstance(v, DataflowVar)]:
                self.plain(var)
            self.due.clear()
            self.twins.clear()
            blocks.append(type(block)(self.out, block.span))
        return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))

    def _convertible(self, value: Expr) -> bool:
        return (
            isinstance(value, Call)
            and isinstance(value.op, Op)
            and value.op.name == "relax.nn.conv2d"
            and call_attrs(value)["data_layout"] == self.source
            and call_attrs(value).get("out_layout") in (None, "", self.source)
            and sorted(call_attrs(value)["kernel_layout"]) == sorted(self.kernel)
        )

    def binding(self, b: Binding) -> None:
        """One binding: in the desired layout if its operator follows, else as it is."""
        self.span = b.var.span
        if isinstance(b, VarBinding) and isinstance(b.value, Call) and isinstance(b.value.op, Op):
            converted = self._convert(b.value)
            if converted is not None:
                call, follows = converted
                if not follows:
                    self.out.append(VarBinding(b.var, call, b.span))
                    return
                twin = self.bind(call, b.var.name_hint)
                self.twins[b.var] = twin
                self.due[b.var] = twin
                return
        self._read(b)
        self.out.append(b)

    def _read(self, b: Binding) -> None:
        """Make every variable that ``b`` reads available in its own form."""
        value = b.value if isinstance(b, VarBinding | MatchCast) else None
        if value is not None and self.due:
            _Reader(self.plain).expr(value)

    def plain(self, var: Expr) -> None:
        """Bind ``var`` itself from its twin, once."""
        twin = self.due.pop(var, None)
        if twin is not None and isinstance(var, Var):
            call = Op.get("relax.permute_dims")(twin, axes=self.inverse)
            self.out.append(VarBinding(var, call, var.span))

    def bind(self, value: Expr, name: str) -> Var:
        """A new variable for ``value``."""
        var = self.block_var(name, value.struct_info, self.span)
        self.out.append(VarBinding(var, value, self.span))
        return var

    def twin(self, value: Expr) -> Expr:
        """A rank-4 value in the desired layout."""
        if value in self.twins:
            return self.twins[value]
        call = Op.get("relax.permute_dims")(value, axes=self.perm)
        made = self.bind(call, f"{getattr(value, 'name_hint', 'const')}_{self.data.lower()}")
        if isinstance(value, Var):
            self.twins[value] = made
        return made

    def _convert(self, call: Call) -> tuple[Call, bool] | None:
        """A call that takes the place of ``call``, or None where that stays as it is.

        The flag says whether its result is in the desired layout (else it is that of ``call``).
        """
        assert isinstance(call.op, Op)
        name = call.op.name
        if self._convertible(call):
            return self._conv(call), True
        info = call.struct_info_
        args = [f for a in call.args for f in (a.fields if isinstance(a, Tuple) else (a,))]
        if not isinstance(info, TensorStructInfo) or not any(a in self.twins for a in args):
            return None
        if name in REDUCTIONS:
            return self._reduction(call)
        rule = RULES.get(name)
        made = rule(self, call) if rule is not None and info.ndim == 4 else None
        return None if made is None else (made, True)

    def unary(self, call: Call) -> Call:
        """An element-wise call of one tensor."""
        return self._again(call, [self.twin(call.args[0]), *call.args[1:]])

    def _again(self, call: Call, args: Sequence[Expr], **attrs: Any) -> Call:
        return Call(call.op, args, {**call.attrs, **attrs}, call.sinfo_args, call.span)

    def _conv(self, call: Call) -> Call:
        weight_layout: str = call_attrs(call)["kernel_layout"]
        if self.pointwise and self.data.endswith("C") and _is_pointwise(call):
            return self._dot(call, weight_layout)
        axes = [weight_layout.index(a) for a in self.kernel]
        weight: Expr = call.args[1]
        if axes != list(range(len(axes))):
            permuted = Op.get("relax.permute_dims")(weight, axes=axes)
            weight = self.bind(permuted, f"{getattr(weight, 'name_hint', 'weight')}_hwio")
        return self._again(
            call,
            [self.twin(call.args[0]), weight],
            data_layout=self.data,
            kernel_layout=self.kernel,
            out_layout=self.data,
        )

    def _dot(self, call: Call, weight_layout: str) -> Call:
        """A 1x1 convolution as one contraction over channels, which XLA:CPU runs faster."""
        x = self.twin(call.args[0])
        strides = call_attrs(call)["strides"]
        strides = tuple(strides) * 2 if len(strides) == 1 else tuple(strides)
        if strides != (1, 1):
            axes = [self.data.index(a) for a in "HW"]
            ends = [x.struct_info.dims[a] for a in axes]  # pyright: ignore[reportAttributeAccessIssue]
            sliced = Op.get("relax.strided_slice")(
                x, axes=axes, begin=[0, 0], end=ends, strides=list(strides)
            )
            x = self.bind(sliced, "strided")
        weight: Expr = call.args[1]
        outputs, inputs = (weight_layout.index(a) for a in "OI")
        dims = weight.struct_info.dims  # pyright: ignore[reportAttributeAccessIssue]
        if outputs > inputs:
            order = [outputs, inputs, *(weight_layout.index(a) for a in "HW")]
            weight = self.bind(Op.get("relax.permute_dims")(weight, axes=order), "weight")
        weight = self.bind(Op.get("relax.reshape")(weight, (dims[outputs], dims[inputs])), "weight")
        spatial = self.data[:-1].lower()
        subscripts = f"{spatial}i,oi->{spatial}o"
        return Op.get("relax.einsum")((x, weight), subscripts=subscripts)

    def binary(self, call: Call) -> Call | None:
        """An element-wise call of several tensors that broadcast."""
        args: list[Expr] = []
        for a in call.args:
            operand = a.struct_info_
            if not isinstance(operand, TensorStructInfo) or operand.ndim < 0:
                return None
            if operand.ndim == 0:
                args.append(a)
            elif operand.ndim == 4:
                args.append(self.twin(a))
            elif operand.dims is not None:
                shape = [1] * (4 - operand.ndim) + list(operand.dims)
                lifted = self.bind(Op.get("relax.reshape")(a, shape), "operand")
                args.append(self.twin(lifted))
            else:
                return None
        return self._again(call, args)

    def pool(self, call: Call) -> Call | None:
        """A pooling call."""
        attrs = call_attrs(call)
        if attrs["layout"] != self.source or attrs.get("out_layout") not in (None, "", self.source):
            return None
        layouts = {"layout": self.data}
        if attrs.get("out_layout"):
            layouts["out_layout"] = self.data
        return self._again(call, [self.twin(call.args[0])], **layouts)

    def _reduction(self, call: Call) -> tuple[Call, bool] | None:
        attrs = call_attrs(call)
        axes = range(4) if attrs["axis"] is None else [a % 4 for a in attrs["axis"]]
        moved = [self.inverse[a] for a in axes]
        again = self._again(call, [self.twin(call.args[0])], axis=moved)
        if attrs["keepdims"]:
            return again, True
        kept = [a for i, a in enumerate(self.source) if i not in axes]
        # Without the reduced axes both layouts may have the others in the same order.
        return (again, False) if kept == [a for a in self.data if a in kept] else None

    def softmax(self, call: Call) -> Call:
        """A call along one axis."""
        axis = self.inverse[call_attrs(call)["axis"] % 4]
        return self._again(call, [self.twin(call.args[0])], axis=axis)

    def concat(self, call: Call) -> Call | None:
        """A concatenation of values that are written out as a tuple."""
        parts = call.args[0]
        if not isinstance(parts, Tuple):
            return None
        twins = Tuple([self.twin(p) for p in parts.fields])
        return self._again(call, [twins], axis=self.inverse[(call_attrs(call)["axis"] or 0) % 4])

    def pad(self, call: Call) -> Call:
        """Padding, given as (before, after) for each axis."""
        width = list(call_attrs(call)["pad_width"])
        moved = [n for i in self.perm for n in width[2 * i : 2 * i + 2]]
        return self._again(call, [self.twin(call.args[0]), *call.args[1:]], pad_width=moved)


RULES: dict[str, Callable[[_Converter, Call], Call | None]] = {
    **dict.fromkeys(UNARY, _Converter.unary),
    **dict.fromkeys(BINARY, _Converter.binary),
    **dict.fromkeys(POOLS, _Converter.pool),
    "relax.concat": _Converter.concat,
    "relax.nn.pad": _Converter.pad,
    "relax.nn.softmax": _Converter.softmax,
}


class _Reader(Rewriter):
    """Walks an expression, also inside functions and branches, and reports its variables."""

    def __init__(self, report: Callable[[Expr], None]) -> None:
        super().__init__()
        self.report = report

    def leaf(self, node: Expr) -> Expr:
        if isinstance(node, Var):
            self.report(node)
        return super().leaf(node)

"""``relax.grad``: marks that the gradient pass obeys, and gradients with operators of their own.

Marks are the identity when the program runs. Sources: TVM Relax v0.20 for names and inference,
torch's autograd for values. As in TVM, whether a gradient fits the output that it belongs to is
asked when the call is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax2xla.errors import OpError
from relax2xla.ir.expr import Call, Expr, TupleGetItem, Var
from relax2xla.ir.op import Op, Rule, op
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import Opaque, Pointwise, Window
from relax2xla.op.binary import ANY, as_operand
from relax2xla.op.index import wide_index
from relax2xla.op.nn.loss import hits
from relax2xla.op.nn.pool import Pool
from relax2xla.op.shared.checks import COMPLEX, FLOAT, norm_axis, want_tensor
from relax2xla.op.shared.families import member
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    compare,
    convert,
    dtype_of,
    full,
    full_like,
    hlo,
    larger,
    no_gradient,
    pad,
    reduce,
    relax,
    scalar,
    scalar_region,
    select,
    shape_of,
    sum_dtype,
    take_slice,
    tensor_info,
    transpose,
)
from relax2xla.op.shared.spatial import Ints, Padding, arrange
from relax2xla.op.shared.traced import Numbers, tensor_of


def _mark(name: str, text: str, bound: bool = False) -> Op[[Expr]]:
    """``bound``: of what a variable holds, alone."""
    kind = "a variable, or what will be bound to one" if bound else "any value"

    @op(
        f"relax.grad.{name}",
        Pointwise(flops=0),
        doc=f"{text}\n\ninput: {kind}\nresult: ``input``",
    )
    def made(input: Expr) -> StructInfo:
        if bound and not isinstance(input, Var | Call | TupleGetItem):
            raise OpError(f"`input` of {name} must be a variable; got {input!r}: bind it first")
        return input.struct_info

    @made.legalize
    def _(input: Expr) -> Expr:
        return input

    return made


no_grad = _mark("no_grad", "No gradient flows into ``input``.")


@no_grad.derivative
def _(input: Expr) -> Expr:
    info = input.struct_info
    if not isinstance(info, TensorStructInfo):
        return input
    if info.dtype in COMPLEX:
        return hlo("complex", *(no_gradient(hlo(part, input)) for part in ("real", "imag")))
    return no_gradient(input) if info.dtype in FLOAT else input


@op("relax.grad.differentiate_as", Pointwise(flops=0))
def differentiate_as(input: Expr, smooth: Expr) -> Rule:
    """``input``, with the derivative of ``smooth``, an equal value computed in another way.

    input:  a tensor
    smooth: a tensor of its shape and dtype
    result: ``input``
    """
    info = want_tensor(input, "input", ANY)
    _like_output(smooth, info, "smooth", "input")
    return info, lambda: input


@differentiate_as.derivative
def _(input: Expr, smooth: Expr) -> Expr:
    return smooth


start_checkpoint = _mark(
    "start_checkpoint", "Begins a region whose values are computed again for the gradient.", True
)
end_checkpoint = _mark("end_checkpoint", "Ends the region that start_checkpoint began.", True)


# ---- losses
def _like_output(
    output_grad: Expr, output: StructInfo, name: str = "output_grad", of: str = "the output"
) -> None:
    """OpError unless the gradient of an output can have its shape and dtype."""
    grad = want_tensor(output_grad, name, FLOAT if name == "output_grad" else ANY)
    assert isinstance(output, TensorStructInfo)
    differ = grad.ndim != -1 and output.ndim != -1 and grad.ndim != output.ndim
    for a, b in zip(grad.dims or (), output.dims or (), strict=False):
        differ = differ or (isinstance(a, int) and isinstance(b, int) and a != b)
    if differ or (grad.dtype and output.dtype and grad.dtype != output.dtype):
        raise OpError(f"`{name}` must be {show(output)}, as {of}; got {show(grad)}")


@op("relax.grad.nll_loss_backward", Opaque())
def nll_loss_backward(
    output_grad: Expr,
    predictions: Expr,
    targets: Expr,
    weights: Expr | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Rule:
    """The gradient of ``relax.nn.nll_loss`` with respect to its predictions.

    output_grad: gradient of the loss; predictions, targets, weights: as of ``relax.nn.nll_loss``
    result: shape and dtype of ``predictions``
    """
    info = want_tensor(predictions, "predictions", FLOAT)
    want_tensor(output_grad, "output_grad", FLOAT)

    def lower() -> Expr:
        loss: Call = relax(
            "nn.nll_loss",
            predictions,
            targets,
            *([] if weights is None else [weights]),
            reduction=reduction,
            ignore_index=ignore_index,
        )
        _like_output(output_grad, loss.struct_info)
        dtype, shape = dtype_of(predictions), shape_of(predictions)
        wide = sum_dtype(dtype)
        hit, weight = hits(shape, wide, targets, weights, ignore_index)
        zero = full(shape, 0, wide)
        grad = convert(output_grad, wide)
        if reduction == "mean":
            every = range(len(shape))
            grad = hlo("divide", grad, reduce(select(hit, weight, zero), "add", every))
        each = [0, *range(2, len(shape))] if reduction == "none" and len(shape) > 1 else []
        grad = broadcast_in_dim(grad, shape, each)
        return convert(select(hit, hlo("negate", hlo("multiply", grad, weight)), zero), dtype)

    return info, lower


# ---- pooling
_POOL = """The gradient of ``relax.nn.{name}`` with respect to its data{more}.

output_grad: gradient of the output, in ``out_layout``; data: what was pooled, in ``layout``, a
float dtype; the attributes are those of ``relax.nn.{name}``
result: shape and dtype of ``data``
"""


def _pool_backward(
    maximum: bool,
    output_grad: Expr,
    data: Expr,
    pool_size: Ints = 1,
    strides: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "",
    out_layout: str | None = None,
) -> Rule:
    info = want_tensor(data, "data", FLOAT, 4)
    want_tensor(output_grad, "output_grad", FLOAT, 4)
    pool = Pool(pool_size, strides, padding, dilation, ceil_mode, layout, out_layout)

    def lower() -> Expr:
        _like_output(output_grad, pool.infer(data))
        dtype = dtype_of(data)
        wide = sum_dtype(dtype)
        windows = _Windows(pool, shape_of(data))
        grad = convert(transpose(output_grad, arrange(pool.out_axes, pool.axes)), wide)
        if maximum:
            total = _to_maximum(grad, data, windows)
        else:
            total = _to_all(grad, pool.held(shape_of(data), count_include_pad), windows, pool)
        return convert(windows.cropped(total), dtype)

    return info, lower


def _to_maximum(grad: Expr, data: Expr, windows: _Windows) -> Expr:
    """Each window's gradient at its maximum."""
    padded = windows.padded(data, scalar(-np.inf, dtype_of(data)))
    values = [windows.take(padded, tap) for tap in windows.taps]
    best, at = values[0], full(shape_of(grad), 0, "int32")
    for i, value in enumerate(values[1:], 1):
        # The first NaN wins, as it does in a maximum.
        wins = hlo("or", compare(value, best, "GT"), compare(value, value, "NE"))
        wins = hlo("and", wins, compare(best, best, "EQ"))
        best, at = select(wins, value, best), select(wins, full_like(at, i), at)
    total: Expr = full(windows.size, 0, dtype_of(grad))
    for i, tap in enumerate(windows.taps):
        part = select(compare(at, full_like(at, i), "EQ"), grad, full_like(grad, 0))
        total = hlo("add", total, windows.put(part, tap))
    return total


def _to_all(grad: Expr, held: Sequence[Numbers], windows: _Windows, pool: Pool) -> Expr:
    """Each window's gradient in equal parts at the values that it averages."""
    wide = dtype_of(grad)
    for axis, count in zip(pool.axes[2:], held, strict=True):
        divisor = broadcast_in_dim(tensor_of(count, wide), shape_of(grad), [axis])
        grad = hlo("divide", grad, divisor)
    total: Expr = full(windows.size, 0, wide)
    for tap in windows.taps:
        total = hlo("add", total, windows.put(grad, tap))
    return total


class _Windows:
    """The windows of a pooling as one strided slice of the padded data for each tap."""

    def __init__(self, pool: Pool, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        count, pads = pool.counts(shape)
        space = pool.axes[2:]
        self.low, self.high, self.step, self.span = [0] * 4, [0] * 4, [1] * 4, list(shape)
        for i, axis in enumerate(space):
            reach = (count[i] - 1) * pool.strides[i] + 1
            need = reach + pool.dilation[i] * (pool.pool_size[i] - 1)
            self.low[axis] = pads[i][0]
            self.high[axis] = larger(pads[i][1], need - shape[axis] - pads[i][0])
            self.step[axis], self.span[axis] = pool.strides[i], reach
        self.size = [d + a + b for d, a, b in zip(shape, self.low, self.high, strict=True)]
        self.taps: list[list[int]] = []
        for offsets in np.ndindex(*pool.pool_size):
            tap = [0] * 4
            for i, axis in enumerate(space):
                tap[axis] = offsets[i] * pool.dilation[i]
            self.taps.append(tap)

    def padded(self, data: Expr, value: Expr) -> Expr:
        """``data`` with its padding."""
        return pad(data, self.low, self.high, value)

    def take(self, padded: Expr, tap: Sequence[int]) -> Expr:
        """What one tap sees of each window."""
        limit = [t + s for t, s in zip(tap, self.span, strict=True)]
        return take_slice(padded, tap, limit, self.step)

    def put(self, part: Expr, tap: Sequence[int]) -> Expr:
        """The inverse of :meth:`take`, with 0 where the tap sees nothing."""
        high = [d - t - s for d, t, s in zip(self.size, tap, self.span, strict=True)]
        inner = [s - 1 for s in self.step]
        return pad(part, tap, high, scalar(0, dtype_of(part)), inner)

    def cropped(self, padded: Expr) -> Expr:
        """Without the padding."""
        end = [a + d for a, d in zip(self.low, self.shape, strict=True)]
        return take_slice(padded, self.low, end)


_PLANES = {
    **dict.fromkeys(("pool_size", "strides", "dilation"), (1, 1)),
    "padding": (0, 0),
    "layout": "NCHW",
}
max_pool2d_backward = member(
    "relax.grad.max_pool2d_backward",
    *(_pool_backward, True, 2),
    traits=[Window()],
    doc=_POOL.format(name="max_pool2d", more="; of equal maxima the first gets it"),
    follows={"out_layout": "layout"},
    defaults=_PLANES,
)
avg_pool2d_backward = member(
    "relax.grad.avg_pool2d_backward",
    *(_pool_backward, False, 2),
    traits=[Window()],
    doc=_POOL.format(name="avg_pool2d", more=""),
    follows={"out_layout": "layout"},
    defaults=_PLANES,
)


# ---- take
@op("relax.grad.take_backward", Opaque())
def take_backward(output_grad: Expr, x: Expr, indices: Expr, axis: int | None = None) -> Rule:
    """The gradient of ``relax.take`` with respect to ``x``: gradients of one element are added.

    output_grad: gradient of the output; x: (*s), a float dtype; indices, axis: as of ``relax.take``
    result: shape and dtype of ``x``
    """
    info = want_tensor(x, "x", FLOAT)
    want_tensor(output_grad, "output_grad", FLOAT)

    def lower() -> Expr:
        _like_output(output_grad, relax("take", x, indices, axis=axis).struct_info)
        shape, dtype = shape_of(x), dtype_of(x)
        wide = sum_dtype(dtype)
        at = 0 if axis is None else norm_axis(axis, len(shape))
        where = wide_index(as_operand(indices))
        lowest, highest = (scalar(v, dtype_of(where)) for v in (0, larger(shape[at] - 1, 0)))
        where = hlo("clamp", lowest, where, highest)
        rank = len(shape_of(where))
        windows = [i for i in range(len(shape) - 1 + rank) if not at <= i < at + rank]
        total = hlo(
            "scatter",
            full(shape, 0, wide),
            where,
            convert(output_grad, wide),
            scalar_region("add", wide),
            scatter_dimension_numbers={
                "update_window_dims": tuple(windows),
                "inserted_window_dims": (at,),
                "scattered_dims_to_operand_dims": (at,),
                "index_vector_dim": rank,
            },
            out=tensor_info(shape, wide),
        )
        return convert(total, dtype)

    return info, lower

"""A call of every operator over a symbolic dimension ``n``, for test_dynamic_rows.py.

An operand is its shape, with its dtype after it unless that is float32. Integers are drawn from
0, 1 and 2, so that they are indices, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relax2xla import BlockBuilder, op
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir import Expr, ShapeExpr, TensorStructInfo, Tuple, Var
from relax2xla.ir.op import Op
from relax2xla.ir.op_param import EXPR
from relax2xla.ir.traits import Broadcasting, Pointwise
from relax2xla.transform import LegalizeOps

Operand = tuple[Any, ...]
Sample = tuple[tuple[Operand, ...], Callable[..., Expr]]

X = ("n", 4)
IMAGE = ("n", 3, 8, 8)


def first_dim(x: Expr) -> Any:
    """The symbolic dimension of a sample."""
    return x.struct_info.dims[0]


def call(name: str, **attrs: Any) -> Callable[..., Expr]:
    """A call of the operator with these attributes."""
    return lambda *operands: Op.get(f"relax.{name}")(*operands, **attrs)


def _families() -> dict[str, Sample]:
    """Operators that take each element by itself, and need no attribute: these say so."""
    made: dict[str, Sample] = {}
    for name in Op.list_op_names():
        short = name.removeprefix("relax.")
        found = Op.registry[name]
        if type(found) is not Op or found.lowering is None:
            continue
        shapes = {1: (X,), 2: (X, (1, 4))}.get(sum(p.required for p in found.params), ())
        plain = all(not p.required or p.kind is EXPR for p in found.params)
        if (
            plain
            and shapes
            and (found.has(Broadcasting) or (found.has(Pointwise) and X in shapes[-1:]))
        ):
            kind = () if _takes_floats(found, len(shapes)) else ("int32",)
            made[short] = tuple([(*shape, *kind) for shape in shapes]), call(short)
    return made


def _takes_floats(found: Op[...], count: int) -> bool:
    """Whether it infers and lowers; those on bits infer, as in TVM, and are refused then."""
    operands = [Var("x", TensorStructInfo((2, 4), "float32")) for _ in range(count)]
    builder = BlockBuilder()
    try:
        with builder.function("main", operands):
            builder.emit_func_output(builder.emit(found(*operands)))
        LegalizeOps(every=True)(builder.get())
    except (OpError, LegalizeError):
        return False
    return True


SAMPLES: dict[str, Sample] = {
    **_families(),
    "arange": ((X,), lambda x: op.arange(first_dim(x), dtype="int64")),
    "argmax": ((X,), call("argmax", axis=0)),
    "argmin": ((X,), call("argmin")),
    "argsort": ((X,), call("argsort", axis=0)),
    "astype": ((X,), call("astype", dtype="int32")),
    "broadcast_to": (((1, 4), X), lambda a, x: op.broadcast_to(a, (first_dim(x), 4))),
    "bucketize": ((X, (3,)), call("bucketize")),
    "builtin.alloc_tensor": (
        (X,),
        lambda x: op.builtin.alloc_tensor(ShapeExpr((first_dim(x), 2)), "float32", 0),
    ),
    "ccl.allgather": ((X,), call("ccl.allgather", num_workers=1)),
    "ccl.scatter_from_worker0": ((X,), call("ccl.scatter_from_worker0", num_workers=1)),
    "clip": ((X,), lambda x: op.clip(x, -0.5, 0.5)),
    "collapse_sum_like": ((X, (1, 4)), call("collapse_sum_like")),
    "collapse_sum_to": ((X,), lambda x: op.collapse_sum_to(x, (first_dim(x), 1))),
    "concat": ((X, X), lambda a, b: op.concat((a, b), 0)),
    "cumsum": ((X,), call("cumsum", axis=1)),
    "cumprod": ((X,), call("cumprod", axis=1)),
    "dequantize": (
        (("n", 4, "int8"), (4,), (4, "int8")),
        call("dequantize", axis=1),
    ),
    "einsum": ((X, (4, 5)), lambda a, b: op.einsum((a, b), "ij,jk->ki")),
    "ewise_fma": ((X, X, X), call("ewise_fma")),
    "expand_dims": ((X,), call("expand_dims", axis=[0, 2])),
    "eye": ((X,), lambda x: op.eye(first_dim(x), first_dim(x) + 1, 1)),
    "eye_like": ((X,), lambda x: op.eye_like(x, 1)),
    "flatten": ((X,), call("flatten")),
    "flip": ((X,), call("flip", axis=0)),
    "full": ((X, ()), lambda x, v: op.full((first_dim(x), 2), v)),
    "full_like": ((X, ()), call("full_like")),
    "gather_elements": ((X, ("n", 2, "int64")), call("gather_elements", axis=1)),
    "gather_nd": ((X, ("n", 1, "int64")), call("gather_nd", batch_dims=1)),
    "grad.differentiate_as": ((X, X), call("grad.differentiate_as")),
    "grad.avg_pool2d_backward": (
        (("n", 3, 4, 4), IMAGE),
        call("grad.avg_pool2d_backward", pool_size=(2, 2), strides=(2, 2)),
    ),
    "grad.max_pool2d_backward": (
        (("n", 3, 4, 4), IMAGE),
        call("grad.max_pool2d_backward", pool_size=(2, 2), strides=(2, 2)),
    ),
    "grad.nll_loss_backward": (
        ((), X, ("n", "int64"), (4,)),
        call("grad.nll_loss_backward"),
    ),
    "grad.take_backward": (
        (("n", 2), X, (2, "int64")),
        call("grad.take_backward", axis=1),
    ),
    "hint_on_device": ((X,), call("hint_on_device", dst_vdevice="cpu")),
    "image.affine_grid": ((("n", 2, 3),), lambda x: op.image.affine_grid(x, (4, 5))),
    "image.grid_sample": ((IMAGE, ("n", 2, 5, 5)), call("image.grid_sample")),
    "image.resize2d": ((IMAGE,), lambda x: op.image.resize2d(x, (5, 11))),
    "image.resize3d": ((("n", 2, 4, 4, 4),), lambda x: op.image.resize3d(x, (5, 3, 8))),
    "index_put": (
        (X, ("n", "int64"), ("n", 4)),
        lambda x, i, v: op.index_put(x, (i,), v, accumulate=True),
    ),
    "index_tensor": ((X, ("n", "int64")), lambda x, i: op.index_tensor(x, (i,))),
    "layout_transform": (
        (X,),
        lambda x: op.layout_transform(x, index_map=lambda i, j: (i, j // 2, j % 2)),
    ),
    "matmul": ((("n", 2, 4), ("n", 4, "n")), call("matmul")),
    "max": ((X,), call("max", axis=0)),
    "mean": ((X,), call("mean", axis=0)),
    "median": ((X,), call("median", axis=[0])),
    "memory.ensure_zero_offset": ((X,), call("memory.ensure_zero_offset")),
    "memory.view": ((X,), lambda x: op.memory.view(x, (first_dim(x) * 4,))),
    "meshgrid": ((("n",), (3,)), lambda a, b: op.meshgrid((a, b))),
    "min": ((X,), call("min", axis=0)),
    "multinomial_from_uniform": (
        (X, ("n", 1), ("n", 1, "int64")),
        call("multinomial_from_uniform"),
    ),
    "nn.adaptive_avg_pool1d": ((("n", 3, 8),), call("nn.adaptive_avg_pool1d", output_size=3)),
    "nn.adaptive_avg_pool2d": ((IMAGE,), call("nn.adaptive_avg_pool2d", output_size=(3, 2))),
    "nn.adaptive_avg_pool3d": (
        (("n", 2, 4, 4, 4),),
        call("nn.adaptive_avg_pool3d", output_size=(2, 2, 3)),
    ),
    "nn.attention": (
        ((2, "n", 2, 4), (2, "n", 2, 4), (2, "n", 2, 4)),
        call("nn.attention", causal_mask="BottomRight", window_size=2),
    ),
    "nn.attention_bias": (
        ((2, "n", 2, 4), (2, "n", 2, 4), (2, "n", 2, 4), (2, 1, "n", "n")),
        call("nn.attention_bias"),
    ),
    "nn.attention_var_len": (
        (
            *((1, "n", 2, 4),) * 3,
            *((2, "int32"),) * 2,
            *(("int32",),) * 2,
        ),
        lambda *a: op.nn.attention_var_len_op(*a),
    ),
    "nn.avg_pool1d": ((("n", 3, 8),), call("nn.avg_pool1d", pool_size=2)),
    "nn.avg_pool2d": ((IMAGE,), call("nn.avg_pool2d", pool_size=(3, 3), padding=1)),
    "nn.avg_pool3d": ((("n", 2, 4, 4, 4),), call("nn.avg_pool3d", pool_size=2, ceil_mode=True)),
    "nn.batch_flatten": ((IMAGE,), call("nn.batch_flatten")),
    "nn.batch_norm": ((IMAGE, *((3,),) * 4), call("nn.batch_norm", axis=1)),
    "nn.conv1d": ((("n", 3, 8), (4, 3, 3)), call("nn.conv1d", padding=1)),
    "nn.conv1d_transpose": ((("n", 3, 8), (3, 4, 3)), call("nn.conv1d_transpose", strides=2)),
    "nn.conv2d": ((IMAGE, (6, 1, 3, 3)), call("nn.conv2d", strides=2, groups=3)),
    "nn.conv2d_transpose": (
        (IMAGE, (3, 2, 3, 3)),
        call("nn.conv2d_transpose", strides=2, output_padding=1),
    ),
    "nn.conv3d": ((("n", 2, 4, 4, 4), (3, 2, 2, 2, 2)), call("nn.conv3d")),
    "nn.conv3d_transpose": ((("n", 2, 4, 4, 4), (2, 3, 2, 2, 2)), call("nn.conv3d_transpose")),
    "nn.cross_entropy_with_logits": ((X, X), call("nn.cross_entropy_with_logits")),
    "nn.group_norm": (
        (("n", 4, 6), (4,), (4,)),
        call("nn.group_norm", num_groups=2, channel_axis=1, axes=[2]),
    ),
    "nn.instance_norm": (
        (("n", 4, 6), (4,), (4,)),
        call("nn.instance_norm", channel_axis=1, axes=[2]),
    ),
    "nn.layer_norm": ((X, (4,), (4,)), call("nn.layer_norm", axes=[1])),
    "nn.log_softmax": ((X,), call("nn.log_softmax", axis=0)),
    "nn.max_pool1d": ((("n", 3, 8),), call("nn.max_pool1d", pool_size=2)),
    "nn.max_pool2d": ((IMAGE,), call("nn.max_pool2d", pool_size=(3, 3), padding=1, strides=2)),
    "nn.max_pool3d": ((("n", 2, 4, 4, 4),), call("nn.max_pool3d", pool_size=2)),
    "nn.nll_loss": ((X, ("n", "int64"), (4,)), call("nn.nll_loss")),
    "nn.pad": ((X,), call("nn.pad", pad_width=[1, 2, 0, 1])),
    "nn.pixel_shuffle": ((("n", 8, 3, 3),), call("nn.pixel_shuffle", upscale_factor=2)),
    "nn.prelu": ((X, (4,)), call("nn.prelu")),
    "nn.rms_norm": ((X, (4,)), call("nn.rms_norm")),
    "nn.softmax": ((X,), call("nn.softmax", axis=0)),
    "nn.winograd_conv2d": ((("n", 8, 8, 3), (4, 4, 3, 5)), call("nn.winograd_conv2d")),
    "one_hot": (
        (("n", "int64"),),
        lambda i: op.one_hot(i, op_value(1.0), op_value(0.0), 4),
    ),
    "ones": ((X,), lambda x: op.ones((first_dim(x), 2), "float32")),
    "outer": ((("n",), (4,)), call("outer")),
    "permute_dims": ((X,), call("permute_dims")),
    "prod": ((X,), call("prod", axis=0)),
    "quantize": ((X, (4,), (4, "int8")), call("quantize", axis=1)),
    "repeat": ((X,), call("repeat", repeats=2, axis=0)),
    "reshape": ((X,), lambda x: op.reshape(x, (2, first_dim(x), 2))),
    "reverse_sequence": ((("n", 4), ("n", "int64")), call("reverse_sequence")),
    "scatter_elements": (
        (X, ("n", 2, "int64"), ("n", 2)),
        call("scatter_elements", axis=1, reduction="add"),
    ),
    "scatter_nd": ((X, (2, 1, "int64"), (2, 4)), call("scatter_nd", reduction="add")),
    "shape_of": ((X,), lambda x: op.shape_to_tensor(op.shape_of(x))),
    "shape_to_tensor": ((X,), lambda x: op.shape_to_tensor(ShapeExpr((first_dim(x) * 2, 3)))),
    "size": ((X,), call("size")),
    "slice_scatter": (
        (X, ("n", 2)),
        lambda x, y: op.slice_scatter(x, y, 0, 4, 2, axis=1),
    ),
    "sort": ((X,), call("sort", axis=0)),
    "split": ((X,), call("split", indices_or_sections=3)),
    "squeeze": ((("n", 1, 4),), call("squeeze", axis=1)),
    "stack": ((X, X), lambda a, b: op.stack((a, b), 1)),
    "std": ((X,), call("std", axis=0)),
    "strided_slice": ((X,), lambda x: op.strided_slice(x, [0, 1], [-1, 1], [-100, 3], [-2, 1])),
    "sum": ((X,), call("sum", axis=0)),
    "take": ((X, (2, "int64")), call("take", axis=1)),
    "tile": ((X,), call("tile", repeats=[2, 3])),
    "to_vdevice": ((X,), call("to_vdevice", dst_vdevice="cpu")),
    "topk": ((X,), call("topk", k=2, axis=1)),
    "tril": ((("n", "n"),), call("tril")),
    "triu": ((("n", "n"),), lambda x: op.triu(x, 1)),
    "variance": ((X,), call("variance", axis=0)),
    "vision.roi_align": (
        (IMAGE, ("n", 5)),
        call("vision.roi_align", pooled_size=[2, 2], spatial_scale=1.0, sample_ratio=2),
    ),
    "vision.roi_pool": (
        (IMAGE, ("n", 5)),
        call("vision.roi_pool", pooled_size=[2, 2], spatial_scale=1.0),
    ),
    "vision.get_valid_counts": ((("n", 5, 6),), call("vision.get_valid_counts")),
    "vision.multibox_transform_loc": (
        (("n", 3, 5), ("n", 20), (1, 5, 4)),
        call("vision.multibox_transform_loc"),
    ),
    "where": (((4, "bool"), X, (1, 4)), call("where")),
    "wrap_param": ((X,), call("wrap_param", dtype="float16")),
    "zeros": ((X,), lambda x: op.zeros((first_dim(x), 2), "float32")),
}


def op_value(value: float) -> Expr:
    """A number as an operand."""
    from relax2xla.ir import PrimValue

    return PrimValue(value)


__all__ = ["SAMPLES", "Operand", "Sample", "Tuple", "first_dim"]

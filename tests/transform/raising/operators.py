"""Operators that are raised again after they were lowered: calls, and shapes of operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relax2xla import op as R
from relax2xla.ir import Expr, TensorStructInfo
from tests.transform.raising.support import (
    number,
)

T = TensorStructInfo
F, INT, B, H, U = "float32", "int32", "bool", "float16", "uint32"
Case = tuple[str, Callable[..., Expr], tuple[Any, ...]]
A, V, M = (4, 8), (8,), (4, 4)
IMAGE = (2, 3, 8, 8)
UNARY = (
    *(
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "exp",
    ),
    *(
        "floor",
        "isfinite",
        "isinf",
        "isnan",
        "log",
        "negative",
        "round",
        "rsqrt",
        "sigmoid",
        "sign",
    ),
    *("sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)
BINARY = (
    "add atan2 divide maximum minimum multiply power subtract floor_divide floor_mod log_add_exp"
)
COMPARE = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
OPERATORS: list[Case] = [
    *((n, getattr(R, n), (A,)) for n in UNARY),
    *((n, getattr(R, n), (A, A)) for n in BINARY.split()),
    *((n + " row", getattr(R, n), (A, V)) for n in ["add", "multiply", "subtract", "divide"]),
    *((n + " column", getattr(R, n), ((4, 1), A)) for n in ["add", "multiply"]),
    *((n + " number", lambda x, n=n: getattr(R, n)(x, number(2.5)), (A,)) for n in ("add", "less")),
    *((n, getattr(R, n), (A, A)) for n in COMPARE),
    *(
        (n, getattr(R, n), ((4, INT), (4, INT)))
        for n in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *((n, getattr(R, n), ((4, B), (4, B))) for n in ("logical_and", "logical_or", "logical_xor")),
    *((n, getattr(R, n), ((4, INT), (4, INT))) for n in ("left_shift", "right_shift")),
    ("right_shift unsigned", R.right_shift, ((4, U), (4, U))),
    ("bitwise_not", R.bitwise_not, ((4, INT),)),
    ("logical_not", R.logical_not, ((4, B),)),
    ("where", R.where, ((4, B), (4, F), (4, F))),
    ("where column", R.where, (((4, 1), B), A, ())),
    ("clip", lambda x: R.clip(x, 0.0, 1.1), (A,)),
    ("clip tensors", R.clip, (A, (), ())),
    ("astype", lambda x: R.astype(x, "float64"), (A,)),
    ("astype to int", lambda x: R.astype(x, "int32"), (A,)),
    ("reshape", lambda x: R.reshape(x, (2, 16)), (A,)),
    ("permute_dims", lambda x: R.permute_dims(x, [1, 0]), (A,)),
    ("flip", lambda x: R.flip(x, axis=[1]), (A,)),
    ("broadcast_to", lambda x: R.broadcast_to(x, (4, 8)), (V,)),
    ("concat", lambda x, y: R.concat([x, y], axis=1), (A, M)),
    ("strided_slice", lambda x: R.strided_slice(x, [1], [2], [6]), (A,)),
    ("strided_slice step", lambda x: R.strided_slice(x, [0, 1], [0, 1], [3, 8], [2, 3]), (A,)),
    ("nn.pad", lambda x: R.nn.pad(x, [(1, 2), (0, 1)], pad_value=1.5), (A,)),
    ("arange", lambda: R.arange(0, 9, 1, dtype="int64"), ()),
    ("arange step", lambda: R.arange(3, 11, 2, dtype="int32"), ()),
    ("eye", lambda: R.eye(4, 5, 1, dtype="float32"), ()),
    ("tril", lambda x: R.tril(x, 1), (A,)),
    ("triu", lambda x: R.triu(x, -1), (A,)),
    *(
        (n, lambda x, n=n: getattr(R, n)(x, axis=[1]), (A,))
        for n in ["sum", "prod", "max", "min", "mean", "variance", "std"]
    ),
    *(
        (n + " keepdims", lambda x, n=n: getattr(R, n)(x, axis=[0], keepdims=True), (A,))
        for n in ["sum", "prod", "max", "min", "mean", "variance", "std"]
    ),
    *((n + " all", getattr(R, n), (A,)) for n in ("sum", "max", "mean")),
    *(
        (n + " half", lambda x, n=n: getattr(R, n)(x, axis=[1]), ((A, H),))
        for n in ["sum", "prod", "mean", "variance", "std"]
    ),
    ("sum bool", lambda x: R.sum(x, axis=[0]), ((A, B),)),
    ("prod bool", lambda x: R.prod(x, axis=[0]), ((A, B),)),
    ("matmul", R.matmul, (A, (8, 5))),
    ("matmul batch", R.matmul, ((2, 3, 4), (2, 4, 5))),
    ("matmul vector", R.matmul, (A, V)),
    ("matmul half", R.matmul, ((A, H), ((8, 5), H))),
    ("einsum", lambda a, b: R.einsum([a, b], subscripts="abc,dac->abd"), ((2, 3, 4), (5, 2, 4))),
    ("conv1d", lambda x, w: R.nn.conv1d(x, w, 2, 1), ((2, 4, 9), (6, 4, 3))),
    ("conv2d", lambda x, w: R.nn.conv2d(x, w, (2, 1), (1, 0, 2, 1), (1, 2)), (IMAGE, (6, 3, 3, 3))),
    (
        "conv2d NHWC",
        lambda x, w: R.nn.conv2d(x, w, groups=3, data_layout="NHWC", kernel_layout="HWIO"),
        ((2, 8, 8, 3), (3, 3, 1, 6)),
    ),
    ("conv2d half", R.nn.conv2d, ((IMAGE, H), ((6, 3, 3, 3), H))),
    ("conv3d", R.nn.conv3d, ((1, 2, 4, 4, 4), (3, 2, 2, 2, 2))),
    (
        "conv2d_transpose",
        lambda x, w: R.nn.conv2d_transpose(x, w, (2, 2), (1, 1), (1, 1)),
        (IMAGE, (3, 4, 3, 3)),
    ),
    (
        "conv2d_transpose groups",
        lambda x, w: R.nn.conv2d_transpose(x, w, (2, 2), groups=3),
        (IMAGE, (3, 4, 3, 3)),
    ),
    ("nn.softmax", lambda x: R.nn.softmax(x, axis=-1), (A,)),
    ("nn.softmax 0", lambda x: R.nn.softmax(x, axis=0), (A,)),
    ("nn.softmax half", lambda x: R.nn.softmax(x, axis=-1), ((A, H),)),
    ("nn.log_softmax", lambda x: R.nn.log_softmax(x, axis=-1), (A,)),
    *(
        (f"nn.{n}", getattr(R.nn, n), (A,))
        for n in ["relu", "relu6", "gelu", "gelu_tanh", "silu", "selu", "softplus", "leakyrelu"]
    ),
    *((f"nn.{n} half", getattr(R.nn, n), ((A, H),)) for n in ["gelu", "gelu_tanh", "silu"]),
    ("nn.layer_norm", lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]), (A, V, V)),
    (
        "nn.layer_norm half",
        lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]),
        ((A, H), (V, H), (V, H)),
    ),
    ("nn.rms_norm", lambda x, g: R.nn.rms_norm(x, g, axes=[-1], epsilon=1e-6), (A, V)),
    (
        "nn.group_norm",
        lambda x, g, b: R.nn.group_norm(x, g, b, 2, 1, [2, 3]),
        ((2, 4, 5, 5), (4,), (4,)),
    ),
    (
        "nn.instance_norm",
        lambda x, g, b: R.nn.instance_norm(x, g, b, 1, [2, 3]),
        (IMAGE, (3,), (3,)),
    ),
    (
        "nn.batch_norm",
        lambda x, g, b, m, v: R.nn.batch_norm(x, g, b, m, v, 1, training=False)[0],
        (IMAGE, (3,), (3,), (3,), (3,)),
    ),
    ("nn.attention", lambda q, k, v: R.nn.attention(q, k, v), ((2, 5, 3, 4),) * 3),
    (
        "nn.attention causal",
        lambda q, k, v: R.nn.attention(q, k, v, causal_mask="TopLeft"),
        ((2, 5, 3, 4),) * 3,
    ),
    (
        "nn.attention scale",
        lambda q, k, v: R.nn.attention(q, k, v, scale=0.125),
        ((2, 5, 3, 4),) * 3,
    ),
    (
        "nn.attention_bias",
        lambda q, k, v, b: R.nn.attention(q, k, v, b),
        (*((2, 5, 3, 4),) * 3, (2, 1, 5, 5)),
    ),
    ("nn.max_pool2d", lambda x: R.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)), (IMAGE,)),
    ("nn.max_pool2d NHWC", lambda x: R.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), (IMAGE,)),
    ("nn.avg_pool2d", lambda x: R.nn.avg_pool2d(x, (2, 2), (2, 2)), (IMAGE,)),
    (
        "nn.avg_pool2d include",
        lambda x: R.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1), count_include_pad=True),
        (IMAGE,),
    ),
    ("nn.avg_pool2d exclude", lambda x: R.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1)), (IMAGE,)),
    ("take", lambda x, i: R.take(x, i, axis=0), (A, (3, INT))),
    ("take nan", lambda x, i: R.take(x, i, axis=1, mode="nan"), (A, ((2, 3), INT))),
    *((n, lambda x, n=n: getattr(R, n)(x, axis=1), (A,)) for n in ("argmax", "argmin")),
    ("argmax keepdims", lambda x: R.argmax(x, axis=0, keepdims=True), (A,)),
    ("argmin across", lambda x: R.argmin(x, axis=0), (A,)),
    ("argmax all", lambda x: R.argmax(x), (A,)),
    ("sort", R.sort, (A,)),
    ("sort descending", lambda x: R.sort(x, axis=0, descending=True), (A,)),
    ("argsort", R.argsort, (A,)),
    ("argsort int64", lambda x: R.argsort(x, dtype="int64"), (A,)),
    ("topk values", lambda x: R.topk(x, 3, ret_type="values"), (A,)),
    ("topk indices", lambda x: R.topk(x, 3, ret_type="indices", largest=False), (A,)),
    ("topk int", lambda x: R.topk(x, 3, ret_type="values"), ((A, INT),)),
    ("cumsum", lambda x: R.cumsum(x, axis=1), (A,)),
    ("cumsum long", lambda x: R.cumsum(x, axis=1), ((2, 100),)),
    ("cumsum blocks", lambda x: R.cumsum(x, axis=0), ((16, 2),)),
    ("cumprod half", lambda x: R.cumprod(x, axis=0, exclusive=True), ((21, "float16"),)),
    ("cumprod", lambda x: R.cumprod(x, axis=0), (A,)),
]

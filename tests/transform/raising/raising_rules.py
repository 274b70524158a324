"""A program for each rule of RaiseStableHLO, where those of ``raise_programs`` have none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from jax import lax

from relax2xla import op as R
from relax2xla.ir import Expr
from relax2xla.ir.traits import AsRow, Recognised
from relax2xla.op.shared.lowering import hlo
from relax2xla.transform.raising.common import hole
from relax2xla.transform.raising.graph import row_name
from relax2xla.transform.raising.match import lowered
from relax2xla.transform.raising.operators import OPERATORS

from .raise_programs import Program, X

H = "float16"
A, V, M = ((4, 8), H), ((8,), H), (4, 8)
PIXELS, CHANNEL = ((2, 4, 6, 6), H), ((4,), H)
HEADS = ((2, 5, 3, 4), H)
Case = tuple[str, Callable[..., Expr], tuple[Any, ...]]

# Operators, and shapes of their operands; float32 where no dtype is given.
MORE: list[Case] = [
    ("arange int64", lambda: R.arange(3, 11, 2, dtype="int64"), ()),
    ("arange uint8", lambda: R.arange(3, 11, 2, dtype="uint8"), ()),
    ("topk int64", lambda x: R.topk(x, 3, ret_type="indices", dtype="int64"), (M,)),
    ("topk 0", lambda x: R.topk(x, 3, axis=0, ret_type="values"), (M,)),
    ("topk smallest", lambda x: R.topk(x, 3, ret_type="values", largest=False), (M,)),
    ("avg_pool2d half", lambda x: R.nn.avg_pool2d(x, (2, 2), (2, 2)), (PIXELS,)),
    ("cumsum half", lambda x: R.cumsum(x, axis=1), (A,)),
    ("log_softmax half", lambda x: R.nn.log_softmax(x, axis=-1), (A,)),
    (
        "group_norm half",
        lambda x, g, b: R.nn.group_norm(x, g, b, 2, 1, [2, 3]),
        (PIXELS, CHANNEL, CHANNEL),
    ),
    (
        "batch_norm half",
        lambda x, *p: R.nn.batch_norm(x, *p, 1, training=False)[0],
        (PIXELS, CHANNEL, CHANNEL, CHANNEL, CHANNEL),
    ),
    ("attention half", R.nn.attention, (HEADS, HEADS, HEADS)),
    ("argmax all keepdims", lambda x: R.argmax(x, keepdims=True), (M,)),
    ("argmax last keepdims", lambda x: R.argmax(x, axis=-1, keepdims=True), (M,)),
    (
        "batch_norm row",
        lambda x, g, b, m, v: hlo(
            "batch_norm_inference", x, g, b, m, v, epsilon=1e-5, feature_index=1
        ),
        ((2, 4, 6, 6), (4,), (4,), (4,), (4,)),
    ),
]


def normalised(x: Any) -> Any:
    """A layer norm without parameters, by a division."""
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


# Functions of JAX, and their arguments.
FUNCTIONS: list[Program] = [
    (
        "normalised",
        lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5),
        (X,),
    ),
    ("mean reshaped", lambda x: (x.sum(1) / 8).reshape(4, 1), (X,)),
    ("variance reshaped", lambda x: jnp.var(x, 1).reshape(4, 1), (X,)),
    ("std reshaped", lambda x: lax.reshape(jnp.std(x, 1), (4, 1)), (X,)),
]

# The program of each rule: by the program, patterns (``table``: single rows) and their last rows.
RULES: dict[str, dict[str, str]] = {
    "jax argmax": {"argmax": "item"},
    "jax bits": {"table": "not shift_left shift_right_arithmetic xor"},
    "jax cond": {"table": "convert", "softmax": "divide", "statistics": "divide"},
    "jax dot_product_attention": {"attention": "reshape"},
    "jax eye": {"eye": "convert", "table": "iota"},
    "jax floats": {
        "table": (
            "abs add and atan2 chlo.square compare divide exponential is_finite maximum "
            "multiply negate or power select sqrt subtract"
        ),
    },
    "jax keepdims": {"reduction": "broadcast_in_dim"},
    "jax mean half": {"reduction": "convert", "statistics": "convert"},
    "jax mean reshaped": {"statistics": "reshape"},
    "jax normalised": {"layer_norm": "divide"},
    "jax shapes": {"table": "broadcast_in_dim reshape reverse slice transpose"},
    "jax sort": {"argsort": "item", "sort": "sort"},
    "jax top_k ints": {"topk": "chlo.top_k"},
    "jax unary": {"table": "ceil cosine floor log rsqrt sine tan tanh"},
    "jax unary more": {
        "table": "chlo.atan chlo.cosh chlo.erf chlo.sinh round_nearest_even",
    },
    "jax while": {"table": "reduce"},
    "acos": {"table": "chlo.acos"},
    "acosh": {"table": "chlo.acosh"},
    "arange int64": {"arange": "add"},
    "arange step": {"arange": "add"},
    "arange uint8": {"arange": "convert"},
    "argmax": {"argmax": "convert"},
    "argmax all keepdims": {"argmax": "reshape"},
    "argmax keepdims": {"argmax in two": "reshape"},
    "argmin across": {"argmax in two": "convert"},
    "argsort int64": {"argsort": "convert"},
    "asinh": {"table": "chlo.asinh"},
    "asin": {"table": "chlo.asin"},
    "astype to int": {"astype": "convert"},
    "atanh": {"table": "chlo.atanh"},
    "attention half": {"attention": "convert"},
    "avg_pool2d half": {"avg_pool": "convert"},
    "batch_norm half": {"batch_norm": "convert"},
    "batch_norm row": {"batch_norm": "batch_norm_inference"},
    "clip": {"table": "clamp"},
    "concat": {"table": "concatenate"},
    "conv1d": {"table": "convolution"},
    "conv2d_transpose": {"conv_transpose": "convolution"},
    "cumprod half": {"running in blocks": "convert"},
    "cumsum": {"running": "reduce_window"},
    "cumsum blocks": {"running in blocks": "reshape"},
    "cumsum half": {"running": "convert"},
    "cumsum long": {"running in blocks": "slice"},
    "group_norm half": {"group_norm": "convert"},
    "log_softmax half": {"log_softmax": "convert"},
    "matmul": {"table": "dot_general"},
    "matmul half": {"product": "convert"},
    "minimum": {"table": "minimum"},
    "nn.attention": {"attention": "transpose"},
    "nn.avg_pool2d": {"avg_pool": "divide"},
    "nn.batch_norm": {"batch_norm": "add"},
    "nn.group_norm": {"group_norm": "reshape"},
    "nn.layer_norm": {"layer_norm": "add"},
    "nn.layer_norm half": {"layer_norm": "convert"},
    "nn.leakyrelu": {"leakyrelu": "select"},
    "nn.log_softmax": {"log_softmax": "subtract"},
    "nn.max_pool2d": {"max_pool": "reduce_window"},
    "nn.pad": {"table": "pad"},
    "nn.rms_norm": {"layer_norm": "multiply"},
    "nn.softmax half": {"softmax": "convert"},
    "right_shift unsigned": {"table": "shift_right_logical"},
    "sigmoid": {"table": "logistic"},
    "std": {"statistics": "sqrt"},
    "sum keepdims": {"reduction": "reshape"},
    "take": {"table": "gather"},
    "take nan": {"take": "select"},
    "topk 0": {"topk": "transpose"},
    "topk int": {"topk": "slice"},
    "topk int64": {"topk": "convert"},
    "topk smallest": {"topk": "negate"},
    "topk values": {"topk": "item"},
    "tril": {"triangle": "select"},
}


def _own() -> Iterator[tuple[Case, str, str]]:
    """A program for each rule that an operator brings itself, with its pattern and last row."""
    named = {r for found in RULES.values() for r in found.get("table", "").split()}
    for made in OPERATORS:
        short = made.name.removeprefix("relax.")
        ends: set[str] = set()
        for dtype in ("float32", "int32", H) if made.has(Recognised) else ():
            if dtype == "int32" and made.trait(Recognised) == Recognised(floats=True):
                continue
            for i, way in enumerate((made, *made.spellings)):
                shapes = [(M, dtype)] * len(made.operands)
                end = row_name(lowered(way(*(hole(*shape) for shape in shapes))))
                single = any(isinstance(t, AsRow) and t.row == end for t in made.traits)
                if end not in ends and not single:
                    ends.add(end)
                    yield (f"{short} of {dtype} {i}", way, tuple(shapes)), short, end
        for trait in made.traits:
            if isinstance(trait, AsRow) and trait.row not in named:
                named.add(trait.row)
                shapes = [(M, trait.on or "float32")] * len(made.operands)
                yield (f"{short} as {trait.row}", made, tuple(shapes)), "table", trait.row


for _case, _pattern, _end in _own():
    MORE.append(_case)
    RULES[_case[0]] = {_pattern.removeprefix("nn."): _end}

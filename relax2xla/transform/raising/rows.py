"""One row, one operator: the table, and the operands that broadcasting operators take.

Every guess is compared with the operator's own lowering before it is used, so an entry need not
say for which dtypes and attributes it holds. A guess whose ``forms`` hold the row itself is one
where the lowering is written otherwise, but gives the same numbers; each says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, Final

import numpy as np

from relax2xla.dtypes import dtype_info, is_float, is_kind, numpy_dtype
from relax2xla.errors import OpError, TVMError
from relax2xla.ir import Call, Constant, Expr, Function, ShapeExpr, Tuple
from relax2xla.op.shared.lowering import relax, scalar_region
from relax2xla.op.shared.spatial import SPATIAL
from relax2xla.transform.raising.common import shortest
from relax2xla.transform.raising.graph import Graph, dtype_of, row_name, shape_of
from relax2xla.transform.raising.match import Guess
from relax2xla.transform.raising.operators import REDUCTIONS, ROWS
from relax2xla.transform.raising.regions import Key, region_key, region_of

Guesses = Iterator[Guess]
Rule = Callable[[Graph, Call], Guesses]


# ---- operands
def sources(graph: Graph, x: Expr, shape: tuple[int, ...]) -> list[Expr]:
    """What may stand for ``x`` where numpy's broadcasting makes ``shape`` of it; the best first."""
    if (
        row_name(graph.value(x)) in ("broadcast_in_dim", "")
        and (number := graph.splat(x)) is not None
    ):
        return [Constant(number), x]
    found: list[Expr] = [x]
    last, axes = x, ()
    for level in graph.levels(x):
        own = level.shape
        if own is None or len(own) > len(shape):
            break
        if own == shape:
            last, axes = level.expr, level.axes
            if level.expr is not x and axes == tuple(range(len(level.squeezed))):
                found.insert(0, level.expr)
            continue
        kept = [i for i, d in enumerate(shape) if d != 1]
        offset = len(shape) - len(own)
        wanted = tuple(
            kept.index(i + offset) for i, d in enumerate(own) if d != 1 and i + offset in kept
        )
        if wanted == level.axes and level.expr is not found[0]:
            found.insert(0, level.expr)
        last, axes = level.expr, level.axes
    if len(found) == 1 and last is not x and (spread := _spread(last, shape, axes)) is not None:
        found.insert(0, spread)
    return found


def _spread(x: Expr, shape: tuple[int, ...], axes: Sequence[int]) -> Expr | None:
    """``x`` with axes of size 1 such that numpy's broadcasting puts its axes at ``axes``."""
    own = shape_of(x) or ()
    kept = [i for i, d in enumerate(shape) if d != 1]
    at = [kept[a] for a in axes]
    if 1 in own or at != sorted(at) or not at:
        return None
    return relax("expand_dims", x, axis=[i for i in range(at[0], len(shape)) if i not in at])


def broadcasting(graph: Graph, name: str, operands: Sequence[Expr], shape: Any) -> Expr | None:
    """The operator ``name`` on the smallest operands from which it makes ``shape``."""
    choices = [sources(graph, x, shape) for x in operands]
    best: Expr | None = None
    for picked in product(*choices):
        if all(isinstance(p, Constant) for p in picked):
            continue
        shapes = [shape_of(p) for p in picked]
        try:
            joint = np.broadcast_shapes(*(s for s in shapes if s is not None))
        except ValueError:
            continue
        if joint == shape:
            best = relax(name, *picked)
            break
    return best


# ---- element by element
def _operator(graph: Graph, call: Call) -> Guesses:
    """The operator that says that it is this row."""
    name = row_name(call)
    key = (name, call.attrs.get("comparison_direction", ""))
    wanted = ROWS.get((*key, dtype_of(call))) or ROWS[*key, ""]
    shape = shape_of(call)
    if len(call.args) == 1 or shape is None:
        yield Guess(relax(wanted, *call.args))
        return
    made = broadcasting(graph, wanted, call.args, shape)
    # A select with one truth value for all is where with a condition that broadcasts.
    whole = name == "select" and shape_of(call.args[0]) == () and shape != ()
    if made is not None:
        yield Guess(made, (call,) if whole else ())
    yield Guess(relax(wanted, *call.args), (call,) if whole else ())


def _square(graph: Graph, call: Call) -> Guesses:
    # CHLO defines square as x * x.
    if is_kind(dtype_of(call), "int", "uint", "float"):
        yield Guess(relax("square", call.args[0]), (call,))


def _convert(graph: Graph, call: Call) -> Guesses:
    yield Guess(relax("astype", call.args[0], dtype=dtype_of(call)))


def _clamp(graph: Graph, call: Call) -> Guesses:
    low, x, high = call.args
    bounds = [graph.splat(b) for b in (low, high)]
    numbers = [shortest(b) if is_float(dtype_of(x)) else b.item() for b in bounds if b is not None]
    if len(numbers) == 2 and all(isinstance(n, int | float) for n in numbers):
        yield Guess(relax("clip", x, *numbers))
    if shape_of(low) == shape_of(high) == ():
        yield Guess(relax("clip", x, low, high))


# ---- shapes
def _reshape(graph: Graph, call: Call) -> Guesses:
    shape = shape_of(call)
    if shape is not None:
        yield Guess(relax("reshape", call.args[0], ShapeExpr(shape)))


def _broadcast(graph: Graph, call: Call) -> Guesses:
    """``full`` of a number; otherwise broadcast_to, after expand_dims where axes do not align."""
    shape, x = shape_of(call), call.args[0]
    own = shape_of(x)
    if shape is None or own is None:
        return
    number = graph.splat(x)
    if number is not None:
        yield Guess(relax("full", ShapeExpr(shape), Constant(number), dtype=dtype_of(call)))
    to = call.attrs["broadcast_dimensions"]
    if list(to) != sorted(to):
        order = sorted(range(len(to)), key=lambda i: to[i])
        x = relax("permute_dims", x, axes=order)
        own, to = tuple(own[i] for i in order), tuple(sorted(to))
    if to and (new := [i for i in range(to[0], len(shape)) if i not in to]):
        x = relax("expand_dims", x, axis=new)
    inner = shape_of(x) or ()
    same = inner == shape
    # The same row, after a transposition or with axes of size 1 put in by a reshape of their own.
    yield Guess(x if same else relax("broadcast_to", x, ShapeExpr(shape)), (call,))


def _transpose(graph: Graph, call: Call) -> Guesses:
    yield Guess(relax("permute_dims", call.args[0], axes=call.attrs["permutation"]))


def _reverse(graph: Graph, call: Call) -> Guesses:
    yield Guess(relax("flip", call.args[0], axis=call.attrs["dimensions"]))


def _concatenate(graph: Graph, call: Call) -> Guesses:
    yield Guess(relax("concat", Tuple(call.args), axis=call.attrs["dimension"]))


def _slice(graph: Graph, call: Call) -> Guesses:
    shape = shape_of(call.args[0])
    if shape is None:
        return
    names = ("start_indices", "limit_indices", "strides")
    parts = list(zip(*(call.attrs[n] for n in names), strict=True))
    axes = [i for i, p in enumerate(parts) if p != (0, shape[i], 1)]
    begin, end, step = ([parts[i][k] for i in axes] for k in range(3))
    strides = {} if all(s == 1 for s in step) else {"strides": step}
    # Where a stride leaves a rest, the lowering stops at the last element that is taken.
    yield Guess(
        relax("strided_slice", call.args[0], axes=axes, begin=begin, end=end, **strides), (call,)
    )


def _pad(graph: Graph, call: Call) -> Guesses:
    low, high = call.attrs["edge_padding_low"], call.attrs["edge_padding_high"]
    value = graph.splat(call.args[1])
    if value is None or any(call.attrs["interior_padding"]) or value.dtype.kind == "c":
        return
    widths = [w for pair in zip(low, high, strict=True) for w in pair]
    if widths:
        kwargs = {"pad_width": widths, "pad_value": float(value)}
        yield Guess(relax("nn.pad", call.args[0], **kwargs))


def _iota(graph: Graph, call: Call) -> Guesses:
    """``iota`` is ``arange``, spread over the other axes.

    The lowering counts in int64 and converts, which is the same where every number fits exactly.
    """
    shape, dtype = shape_of(call), dtype_of(call)
    if shape is None or not is_kind(dtype, "int", "uint", "float"):
        return
    axis = call.attrs["iota_dimension"]
    n = shape[axis]
    numbers = np.arange(n) if n <= 1 << 24 else np.array([n])
    if n and not np.array_equal(numbers.astype(numpy_dtype(dtype)).astype(np.int64), numbers):
        return
    made: Expr = relax("arange", 0, n, 1, dtype=dtype)
    if len(shape) > 1:
        if axis < len(shape) - 1:
            made = relax("reshape", made, ShapeExpr((n, *(1,) * (len(shape) - 1 - axis))))
        made = relax("broadcast_to", made, ShapeExpr(shape))
    yield Guess(made, (call,))


# ---- contractions
def _dot_general(graph: Graph, call: Call) -> Guesses:
    yield from contraction(call, dtype_of(call.args[0]), (call,))


def contraction(call: Call, dtype: str, forms: tuple[Expr, ...]) -> Guesses:
    """A ``dot_general`` as matmul, or else as einsum, with a result of ``dtype``.

    einsum may transpose what the row gives in another order of its batch axes: the same numbers.
    """
    a, b = call.args
    out = dtype_of(call)
    kwargs = {} if out == dtype else {"out_dtype": out}
    with suppress(OpError):  # Not the shapes of a matrix product.
        yield Guess(relax("matmul", a, b, **kwargs))
    operands = {dtype_of(a), dtype_of(b), out}
    plain = set(call.attrs) == {"dot_dimension_numbers"} or (
        "algorithm" not in call.attrs
        and all(p == "DEFAULT" for p in call.attrs.get("precision_config") or ())
    )
    if operands != {dtype} or not plain or is_kind(dtype, "bool"):
        return
    if is_float(dtype) and dtype_info(dtype).bits < 32:
        return
    subscripts = _subscripts(call)
    if subscripts is not None and "discardable" not in call.attrs:
        yield Guess(relax("einsum", Tuple([a, b]), subscripts=subscripts), forms)


def _subscripts(call: Call) -> str | None:
    dims = call.attrs["dot_dimension_numbers"]
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    shapes = [s for x in call.args if (s := shape_of(x)) is not None]
    ranks = [len(s) for s in shapes]
    if len(shapes) < 2 or sum(ranks) > len(letters):
        return None
    left, right = list(letters[: ranks[0]]), list(letters[ranks[0] : sum(ranks)])
    pairs = {
        kind: list(
            zip(*(dims.get(f"{s}_{kind}_dimensions", ()) for s in ("lhs", "rhs")), strict=True)
        )
        for kind in ("batching", "contracting")
    }
    for i, j in (*pairs["batching"], *pairs["contracting"]):
        right[j] = left[i]
    shared = set(left) & set(right)
    # Letters in the order in which they occur.
    order = {c: letters[n] for n, c in enumerate(dict.fromkeys((*left, *right)))}
    out = [left[i] for i, _ in pairs["batching"]]
    out += [c for c in (*left, *right) if c not in shared]
    texts = ("".join(order[c] for c in part) for part in (left, right, out))
    a, b, c = texts
    return f"{a},{b}->{c}"


def layouts(call: Call) -> tuple[str, str, str]:
    """Layouts of data, kernel and result of a ``convolution``, such as NHWC, HWIO, NHWC."""
    dims = call.attrs["dimension_numbers"]
    space = SPATIAL[len(dims["input_spatial_dimensions"])]

    def layout(side: str, first: tuple[str, str], second: tuple[str, str]) -> str:
        at = {dims[f"{side}_{n}_dimension"]: letter for n, letter in (first, second)}
        at |= dict(zip(dims[f"{side}_spatial_dimensions"], space, strict=True))
        return "".join(at[i] for i in range(len(at)))

    return (
        layout("input", ("batch", "N"), ("feature", "C")),
        layout("kernel", ("output_feature", "O"), ("input_feature", "I")),
        layout("output", ("batch", "N"), ("feature", "C")),
    )


def conv_attrs(call: Call, names: Sequence[str]) -> dict[str, Any]:
    """Attributes of ``nn.conv*`` for a ``convolution``."""
    n = len(call.attrs["dimension_numbers"]["input_spatial_dimensions"])
    data, kernel, out = layouts(call)
    pads = call.attrs.get("padding") or ((0, 0),) * n
    made: dict[str, Any] = {
        "strides": call.attrs.get("window_strides") or (1,) * n,
        "padding": [p[0] for p in pads] + [p[1] for p in pads],
        "dilation": call.attrs.get("rhs_dilation") or (1,) * n,
        "groups": call.attrs["feature_group_count"],
        "data_layout": data,
        "kernel_layout": kernel,
        "out_layout": out,
    }
    return {name: made[name] for name in names}


CONV: Final = (
    *("strides", "padding", "dilation", "groups"),
    *("data_layout", "kernel_layout", "out_layout"),
)


def _convolution(graph: Graph, call: Call) -> Guesses:
    n = len(call.attrs["dimension_numbers"]["input_spatial_dimensions"])
    if n in SPATIAL:
        attrs = conv_attrs(call, CONV)
        if dtype_of(call) != dtype_of(call.args[0]):
            attrs["out_dtype"] = dtype_of(call)
        yield Guess(relax(f"nn.conv{n}d", *call.args, **attrs))


# ---- reductions
def reduction_row(graph: Graph, call: Call) -> str:
    """Name of the row that the region of a reduction of one operand is, or ""."""
    key = region_of(graph, call.args[-1])
    if key is None or len(key[0]) != 2:
        return ""
    region = graph.value(call.args[-1])
    dtype = dtype_of(region.params[0]) if isinstance(region, Function) else ""
    return graph.once(("regions", dtype), lambda: _reductions(dtype)).get(key, "")


def _reductions(dtype: str) -> dict[Key | None, str]:
    """Which row the region of a reduction is, by the region's key."""
    made: dict[Key | None, str] = {}
    for name in REDUCTIONS:
        with suppress(TVMError, ValueError):
            made[region_key(scalar_region(name, dtype))] = name
    return made


def axes_or_all(axes: Sequence[int], ndim: int) -> list[int] | None:
    """None where ``axes`` are all there are, which is how a reduction of all is written."""
    return None if len(axes) == ndim else list(axes)


def _reduce(graph: Graph, call: Call) -> Guesses:
    if len(call.args) != 3:
        return
    name = reduction_row(graph, call)
    shape = shape_of(call.args[0])
    if name and shape is not None:
        axes = axes_or_all(call.attrs["dimensions"], len(shape))
        yield Guess(relax(REDUCTIONS[name], call.args[0], axis=axes))


# ---- gathers
def _gather(graph: Graph, call: Call) -> Guesses:
    """``gather`` of whole slices along one axis is ``take``; indices beyond the ends are clamped.

    Index vectors of one entry (JAX's form) are the indices themselves.
    """
    x, indices = call.args
    shape, where, out = shape_of(x), shape_of(indices), shape_of(call)
    dims = call.attrs["dimension_numbers"]
    if shape is None or where is None or out is None or len(dims["start_index_map"]) != 1:
        return
    (axis,) = dims["start_index_map"]
    vector = dims["index_vector_dim"]
    if dims.get("operand_batching_dims") or tuple(dims["collapsed_slice_dims"]) != (axis,):
        return
    if tuple(call.attrs["slice_sizes"]) != (*shape[:axis], 1, *shape[axis + 1 :]):
        return
    if dtype_of(indices) not in ("int32", "int64") or "discardable" in call.attrs:
        return
    explicit = vector < len(where)
    kept = (*where[:vector], *where[vector + 1 :]) if explicit else where
    offsets = [*range(axis), *range(axis + len(kept), len(shape) - 1 + len(kept))]
    if list(dims["offset_dims"]) != offsets or not shape[axis]:
        return
    at = indices
    if explicit:
        known = next((lv.expr for lv in graph.levels(indices) if shape_of(lv.expr) == kept), None)
        at = known if known is not None else relax("reshape", indices, ShapeExpr(kept))
    yield Guess(relax("take", x, at, axis=axis), (call,))


TABLE: Final[dict[str, Rule]] = {
    **{row: _operator for row, _, _ in ROWS},
    "chlo.square": _square,
    "convert": _convert,
    "clamp": _clamp,
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "reverse": _reverse,
    "concatenate": _concatenate,
    "slice": _slice,
    "pad": _pad,
    "iota": _iota,
    "dot_general": _dot_general,
    "convolution": _convolution,
    "reduce": _reduce,
    "gather": _gather,
}

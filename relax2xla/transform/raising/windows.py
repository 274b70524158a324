"""Patterns of windows, transposed convolutions, order and indexing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Final

from relax2xla.dtypes import is_float, is_kind
from relax2xla.ir import Call, Expr, Function, TupleGetItem
from relax2xla.op.shared.lowering import (
    compare,
    full_like,
    hlo,
    identity_of,
    iota,
    reduce,
    region,
    relax,
    scalar,
    scalar_region,
    select,
    spread,
    tensor_info,
)
from relax2xla.op.shared.spatial import SPATIAL
from relax2xla.transform.raising.common import Guesses, Pattern, core, hole, last, like, rule
from relax2xla.transform.raising.graph import Graph, dtype_of, row_name, shape_of
from relax2xla.transform.raising.match import Guess, lowered
from relax2xla.transform.raising.operators import RUNNING
from relax2xla.transform.raising.rows import CONV, conv_attrs, reduction_row

# Chains of rows are followed no further than this.
_CHAIN: Final = 12


# ---- windows
def _windows(graph: Graph, end: Expr) -> tuple[Expr, str, list[dict[str, Any]]] | None:
    """What a chain of ``reduce_window`` starts from, its row, and the windows of each axis."""
    node = graph.value(end)
    axes: list[dict[str, Any]] = []
    name = ""
    for _ in range(_CHAIN):
        if row_name(node) != "reduce_window" or not isinstance(node, Call) or len(node.args) != 3:
            break
        kind = reduction_row(graph, node)
        window = node.attrs["window_dimensions"]
        ones = (1,) * len(window)
        if not kind or (name and kind != name):
            return None
        if any(d != 1 for d in node.attrs.get("base_dilations") or ones):
            return None
        name = kind
        axes = axes or [{"window": 1, "stride": 1, "dilation": 1, "pad": (0, 0)} for _ in window]
        for i, at in enumerate(axes):
            here = {
                "window": window[i],
                "stride": (node.attrs.get("window_strides") or ones)[i],
                "dilation": (node.attrs.get("window_dilations") or ones)[i],
                "pad": tuple((node.attrs.get("padding") or ((0, 0),) * len(ones))[i]),
            }
            if here != {"window": 1, "stride": 1, "dilation": 1, "pad": (0, 0)}:
                if at["window"] != 1 or at["stride"] != 1:
                    return None
                at.update(here)
        end = node.args[0]
        node = graph.value(end)
    return (end, name, axes) if name else None


def _layout(axes: Sequence[dict[str, Any]]) -> str | None:
    """NCHW, or NHWC where the windows lie so."""
    n = len(axes) - 2
    idle = {"window": 1, "stride": 1, "dilation": 1, "pad": (0, 0)}
    busy = [i for i, a in enumerate(axes) if a != idle]
    if n not in SPATIAL or not busy:
        return None
    if min(busy) >= 2:
        return "NC" + SPATIAL[n]
    return "N" + SPATIAL[n] + "C" if min(busy) >= 1 and max(busy) <= n else None


def _pool_attrs(axes: Sequence[dict[str, Any]], layout: str) -> dict[str, Any]:
    space = [axes[layout.index(c)] for c in SPATIAL[len(layout) - 2]]
    return {
        "pool_size": [a["window"] for a in space],
        "strides": [a["stride"] for a in space],
        "padding": [a["pad"][0] for a in space] + [a["pad"][1] for a in space],
        "dilation": [a["dilation"] for a in space],
        "layout": layout,
    }


def _key(axes: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    return tuple([tuple(a.values()) for a in axes])


def _window_row(x: Expr, name: str, axes: Sequence[dict[str, Any]]) -> Expr:
    """One ``reduce_window`` over all axes, as JAX writes it."""
    dtype = dtype_of(x)
    return hlo(
        "reduce_window",
        x,
        scalar(identity_of(name, dtype), dtype),
        scalar_region(name, dtype),
        window_dimensions=tuple(a["window"] for a in axes),
        window_strides=tuple(a["stride"] for a in axes),
        window_dilations=tuple(a["dilation"] for a in axes),
        padding=tuple(a["pad"] for a in axes),
    )


def _max_pool(graph: Graph, call: Call) -> Guesses:
    """The maximum of each window, in one step or axis by axis: the same numbers."""
    found = _windows(graph, call)
    layout = None if found is None else _layout(found[2])
    if found is None or layout is None or found[1] != "maximum":
        return
    start, _, axes = found

    def make() -> Guess:
        x = like(start)
        made = relax(f"nn.max_pool{len(layout) - 2}d", x, **_pool_attrs(axes, layout))
        return Guess(made, (_window_row(x, "maximum", axes),))

    yield graph.once(("max_pool", start.struct_info, layout, _key(axes)), make)


def _avg_pool(graph: Graph, call: Call) -> Guesses:
    """The sum of each window divided by its size."""
    end = core(graph, call)
    found = _windows(graph, end.args[0]) if row_name(end) == "divide" else None
    layout = None if found is None else _layout(found[2])
    if found is None or layout is None or found[1] != "add":
        return
    start, _, axes = found
    shape = shape_of(start)
    if shape is None:
        return
    wide = end is call

    def make(**include: bool) -> Guess:
        x = hole(shape, dtype_of(call))
        forms: tuple[Expr, ...] = ()
        if wide and is_float(dtype_of(call)) and include.get("count_include_pad", True):
            total = _window_row(x, "add", axes)
            count = math.prod(a["window"] for a in axes)
            forms = (hlo("divide", total, full_like(total, count)),)
        attrs = {**_pool_attrs(axes, layout), **include}
        return Guess(relax(f"nn.avg_pool{len(layout) - 2}d", x, **attrs), forms)

    key = ("avg_pool", shape, call.struct_info, wide, layout, _key(axes))
    if any(a["pad"] != (0, 0) for a in axes):
        yield graph.once((*key, True), lambda: make(count_include_pad=True))
        yield graph.once((*key, False), lambda: make(count_include_pad=False))
    else:
        yield graph.once(key, make)


def _running(graph: Graph, call: Call, name: str, axis: int, axes: Any = None) -> Guesses:
    """``axes``: windows over the whole of an axis, of which the row may be made as it is."""

    def make(**exclusive: bool) -> Guess:
        x = like(call)
        forms = () if axes is None or exclusive else (_window_row(x, name, axes),)
        return Guess(relax(RUNNING[name], x, axis=axis, **exclusive), forms)

    key = ("running", call.struct_info, name, axis, axes is None)
    yield graph.once(key, make)
    yield graph.once((*key, "exclusive"), lambda: make(exclusive=True))


def _cumulative(graph: Graph, call: Call) -> Guesses:
    """A window of the whole axis, padded in front: running sums and products."""
    end = core(graph, call)
    found = _windows(graph, end)
    if found is None or found[1] not in RUNNING:
        return
    _, name, axes = found
    busy = [i for i, a in enumerate(axes) if a["window"] != 1]
    if len(busy) == 1:
        (axis,) = busy
        size = (shape_of(call) or {axis: 0})[axis]
        here = axes[axis]
        plain = here["stride"] == here["dilation"] == 1
        whole = plain and here["window"] == size and here["pad"] == (size - 1, 0)
        yield from _running(graph, call, name, axis, axes if whole and end is call else None)


def _cumulative_blocks(graph: Graph, call: Call) -> Guesses:
    """Running sums and products of a long axis: of blocks, and of what precedes each."""
    end: Expr = core(graph, call)
    if isinstance(end, Call) and row_name(end) == "slice":
        end = graph.value(end.args[0])
    node = graph.value(end.args[0]) if isinstance(end, Call) and row_name(end) == "reshape" else end
    if not isinstance(node, Call) or row_name(node) not in RUNNING:
        return
    blocks = graph.value(node.args[0])
    if isinstance(blocks, Call) and row_name(blocks) == "reduce_window":
        busy = [i for i, w in enumerate(blocks.attrs["window_dimensions"]) if w != 1]
        if len(busy) == 1 and busy[0] > 0:
            yield from _running(graph, call, row_name(node), busy[0] - 1)


# ---- transposed convolutions
def _conv_transpose(graph: Graph, call: Call) -> Guesses:
    """A convolution over dilated data; the kernel is turned, here or by a ``flip`` put before."""
    n = len(call.attrs["dimension_numbers"]["input_spatial_dimensions"])
    grown = tuple(call.attrs.get("lhs_dilation") or (1,) * n)
    reverse = graph.value(call.args[1])
    turned = graph.find(reverse, "reverse") if row_name(reverse) in ("reverse", "reshape") else None
    if n not in SPATIAL or (all(g == 1 for g in grown) and turned is None):
        return
    attrs = conv_attrs(call, CONV)
    shape = shape_of(call.args[1])
    if shape is None or any(s != 1 for s in attrs["strides"]):
        return
    kernel, groups = attrs["kernel_layout"], attrs["groups"]
    low, high, extra = [], [], []
    for i, letter in enumerate(SPATIAL[n]):
        reach = attrs["dilation"][i] * (shape[kernel.index(letter)] - 1)
        before, after = reach - attrs["padding"][i], reach - attrs["padding"][n + i]
        # What the end gets more than the kernel reaches is output padding.
        more = max(0, before - after) if before >= 0 else 0
        low.append(before)
        high.append(after + more)
        extra.append(more)
    attrs |= {"strides": grown, "padding": low + high, "output_padding": extra}
    infos = tuple([a.struct_info for a in call.args])

    def make() -> Guess:
        own = list(shape)
        own[kernel.index("I")] *= groups
        own[kernel.index("O")] //= groups
        x, weight = like(call.args[0]), hole(own, dtype_of(call.args[1]), "weight")
        return Guess(relax(f"nn.conv{n}d_transpose", x, weight, **attrs))

    def turn() -> Guess:
        x, weight = like(call.args[0]), like(call.args[1], "weight")
        flipped = relax("flip", weight, axis=[kernel.index(c) for c in SPATIAL[n]])
        made = relax(f"nn.conv{n}d_transpose", x, flipped, **attrs)
        again = lowered(made)
        # Turned twice is not turned at all: the rest must be this row.
        if not isinstance(again, Call) or row_name(again) != "convolution":
            return Guess(made)
        return Guess(made, (Call(again.op, [x, weight], again.attrs, again.sinfo_args),))

    key = ("conv_transpose", call.op, call.attrs, infos)
    yield graph.once(key, make)
    if groups == 1:
        yield graph.once((*key, "turned"), turn)


# ---- order
def _extreme(graph: Graph, end: Expr) -> tuple[Call, str] | None:
    """The reduction of (values, positions) that ``end`` takes the positions of."""
    node = graph.value(end)
    for _ in range(_CHAIN):
        if row_name(node) not in ("convert", "reshape") or not isinstance(node, Call):
            break
        node = graph.value(node.args[0])
    if not isinstance(node, TupleGetItem) or node.index != 1:
        return None
    found = graph.value(node.tuple_value)
    return (found, row_name(found)) if isinstance(found, Call) else None


def _argmax(graph: Graph, call: Expr) -> Guesses:
    """The second result of a reduction of pairs; positions are int64 in Relax, int32 in JAX."""
    found = _extreme(graph, call)
    if found is None or found[1] != "reduce" or len(found[0].args) != 5:
        return
    source = found[0].args[0]
    shape, out = shape_of(source), shape_of(call)
    if shape is None or out is None or 0 in shape:
        return
    (at,) = found[0].attrs["dimensions"]
    keepdims = tuple(1 if i == at else d for i, d in enumerate(shape))
    kept = {"keepdims": True} if out == keepdims else {}
    choices: list[tuple[tuple[int, ...], int | None, dict[str, Any]]] = [(shape, at, kept)]
    before = graph.value(source)
    flat = shape_of(before.args[0]) if isinstance(before, Call) and before.args else None
    if len(shape) == 1 and row_name(before) == "reshape" and flat is not None:
        everywhere = {"keepdims": True} if out == (1,) * len(flat) and flat != (1,) else {}
        choices.insert(0, (flat, None, everywhere))
    if len(shape) == 1 and out == ():
        choices.append((shape, None, {}))
    field = isinstance(call, TupleGetItem)

    def make(name: str, own: tuple[int, ...], axis: int | None, kwargs: dict[str, Any]) -> Guess:
        x = hole(own, dtype_of(source))
        made = relax(name, x, axis=axis, **kwargs)
        if dtype_of(call) == "int64":
            return Guess(made)
        if axis is None:
            raise ValueError("JAX reduces along an axis")
        return Guess(relax("astype", made, dtype="int32"), (_positions(x, axis, name),))

    if dtype_of(call) != "int64" and (dtype_of(call) != "int32" or not field):
        return
    for (own, axis, kwargs), name in product(choices, ("argmax", "argmin")):
        if dtype_of(call) == "int32" and axis is None:
            continue
        key = (name, own, axis, *kwargs, dtype_of(source), call.struct_info)
        yield graph.once(key, lambda n=name, o=own, a=axis, k=kwargs: make(n, o, a, k))


def _argmax_in_two(graph: Graph, call: Expr) -> Guesses:
    """The extreme value, then the first position that holds it: argmax across the last axis."""
    node = graph.value(call)
    path = ["reshape", "convert", "negate", "reduce", "select", "select", "compare"]
    reduced: Call | None = None
    while path and isinstance(node, Call):
        name = row_name(node)
        if name == path[0]:
            reduced = node if name == "reduce" else reduced
            node = graph.value(node.args[0]) if name != "compare" else node
            path.pop(0)
            if name == "select" and path == ["select", "compare"]:
                # Integers have no NaN to test for.
                path = path if row_name(node) == "select" else ["compare"]
            elif name == "select" and isinstance(node, Call):
                # The test is whether the extreme is NaN: `x` is in the choice after it.
                inner = graph.value(reduced.args[0]) if reduced is not None else node
                test = graph.value(inner.args[0]) if isinstance(inner, Call) else inner
                node = graph.value(test.args[1]) if isinstance(test, Call) else test
        elif path[0] == "reshape":
            path.pop(0)
        else:
            return
    if path or reduced is None or not isinstance(node, Call) or dtype_of(call) != "int64":
        return
    shape, out = shape_of(node.args[0]), shape_of(call)
    if shape is None or out is None:
        return
    (at,) = reduced.attrs["dimensions"]
    dtype = dtype_of(node.args[0])
    kept = {"keepdims": True} if len(out) == len(shape) else {}
    for operator in ("argmax", "argmin"):
        yield graph.once(
            ("in two", operator, shape, dtype, at, *kept),
            lambda o=operator: Guess(relax(o, hole(shape, dtype), axis=at, **kept)),
        )


def _positions(x: Expr, axis: int, name: str) -> Expr:
    """The positions as JAX reduces them: its region tests for NaN whatever the dtype."""
    shape, dtype = shape_of(x) or (), dtype_of(x)
    value, index = tensor_info((), dtype), tensor_info((), "int32")
    kept = [d for i, d in enumerate(shape) if i != axis]

    def better(a: Expr, i: Expr, b: Expr, j: Expr) -> list[Expr]:
        wins = compare(a, b, "GT" if name == "argmax" else "LT")
        wins = hlo("or", wins, compare(a, a, "NE"))
        first = hlo("and", compare(a, b, "EQ"), compare(i, j, "LT"))
        return [select(wins, a, b), select(hlo("or", wins, first), i, j)]

    init = identity_of("maximum" if name == "argmax" else "minimum", dtype)
    pair = hlo(
        "reduce",
        x,
        iota(shape, axis, "int32"),
        scalar(init, dtype),
        scalar(0, "int32"),
        region([("a", value), ("i", index), ("b", value), ("j", index)], better),
        dimensions=(axis,),
        out=(tensor_info(kept, dtype), tensor_info(kept, "int32")),
    )
    return pair[1]


def _before(descending: bool, dtype: str, positions: str = "") -> Function:
    """The comparator of JAX: zeros of one sign and one NaN, in the total order."""
    params = [("a", tensor_info((), dtype)), ("b", tensor_info((), dtype))]
    if positions:
        params += [(n, tensor_info((), positions)) for n in "ij"]

    def key(x: Expr) -> Expr:
        zero = scalar(0, dtype)
        some = select(compare(x, zero, "EQ"), zero, x)
        return select(compare(x, x, "NE"), scalar(math.nan, dtype), some)

    def body(a: Expr, b: Expr, *_: Expr) -> Expr:
        way = "GT" if descending else "LT"
        return hlo("compare", key(a), key(b), comparison_direction=way, compare_type="TOTALORDER")

    return region(params, body)


def _sorted_axis(call: Call) -> int:
    """The axis of a row ``sort``; one that says none sorts the last."""
    dim = call.attrs.get("dimension", -1)
    return dim if dim >= 0 else dim + len(shape_of(call.args[0]) or ())


def _sort(graph: Graph, call: Call) -> Guesses:
    shape = shape_of(call)
    if len(call.args) == 2 and shape:
        dim = _sorted_axis(call)

        def make(descending: bool) -> Guess:
            x, forms = like(call), ()
            if is_float(dtype_of(call)):
                before = _before(descending, dtype_of(call))
                forms = (hlo("sort", x, before, dimension=dim, is_stable=True),)
            made = relax("sort", x, axis=last(dim, len(shape)), descending=descending)
            return Guess(made, forms)

        for descending in (False, True):
            yield graph.once(
                ("sort", call.struct_info, dim, descending), lambda d=descending: make(d)
            )


def _argsort(graph: Graph, call: Expr) -> Guesses:
    """The positions that a sort of (values, 0, 1, 2, ...) gives."""
    found = _extreme(graph, call)
    if found is None or found[1] != "sort" or len(found[0].args) != 3:
        return
    x = found[0].args[0]
    shape, dtype = shape_of(x), dtype_of(call)
    if not shape or dtype not in ("int32", "int64"):
        return
    dim, field = _sorted_axis(found[0]), isinstance(call, TupleGetItem)

    def make(descending: bool) -> Guess:
        values, forms = like(x), ()
        if is_float(dtype_of(x)) and field:
            before = _before(descending, dtype_of(x), dtype)
            order = iota(shape, dim, dtype)
            forms = (hlo("sort", values, order, before, dimension=dim, is_stable=True)[1],)
        kwargs = {"descending": descending, "dtype": dtype}
        return Guess(relax("argsort", values, axis=last(dim, len(shape)), **kwargs), forms)

    for descending in (False, True):
        yield graph.once(
            ("argsort", x.struct_info, dim, dtype, field, descending), lambda d=descending: make(d)
        )


def _top_k(graph: Graph, call: Call) -> Guesses:
    """Integers: the largest, the first of several. Floats are ordered otherwise (NaN, -0)."""
    if is_kind(dtype_of(call.args[0]), "int", "uint"):
        yield Guess(relax("topk", call.args[0], k=call.attrs["k"], axis=-1), (call,))


def _topk(graph: Graph, call: Expr) -> Guesses:
    """Values or positions of the first ``k`` of a sort, or of XLA's partial sort."""
    partial = graph.find(call, "chlo.top_k")
    sort = graph.find(call, "sort")
    shape, dtype = shape_of(call), dtype_of(call)
    found = partial or sort
    if found is None or not shape:
        return
    source = found.args[0]
    node = graph.value(call)
    for _ in range(_CHAIN):
        if not isinstance(node, Call) or not node.args:
            break
        node = graph.value(node.args[0])
    index = node.index if isinstance(node, TupleGetItem) else 0
    order = graph.value(source)
    whole = shape_of(source)
    if whole is None:
        return
    axis = len(shape) - 1 if partial is not None else _sorted_axis(found)
    if partial is not None and row_name(order) == "transpose" and isinstance(order, Call):
        axis = order.attrs["permutation"][-1]
        whole = shape_of(order) or whole
        inverse = list(order.attrs["permutation"])
        whole = tuple(whole[inverse.index(i)] for i in range(len(whole)))
    k, at = shape[axis], last(axis, len(shape))

    def make(largest: bool) -> Guess:
        x = hole(whole, dtype_of(source))
        kwargs: dict[str, Any] = {"k": k, "axis": at, "largest": largest}
        kwargs |= {"ret_type": "indices", "dtype": dtype} if index == 1 else {"ret_type": "values"}
        return Guess(relax("topk", x, **kwargs))

    for largest in (True, False):
        key = ("topk", whole, dtype_of(source), k, at, index, dtype, largest)
        yield graph.once(key, lambda g=largest: make(g))


# ---- indexing
def _take_nan(graph: Graph, call: Call) -> Guesses:
    """A gather, and NaN where the index lies outside: numpy's take with mode "fill" (JAX)."""
    gather = graph.find(call.args[1], "gather")
    shape = shape_of(call)
    source = None if gather is None else shape_of(gather.args[0])
    if gather is None or shape is None or source is None or not is_float(dtype_of(call)):
        return
    mapped = gather.attrs["dimension_numbers"]["start_index_map"]
    count = len(shape) - len(source) + 1
    if len(mapped) != 1 or count < 0:
        return
    (axis,) = mapped
    where = shape[axis : axis + count]
    kind = dtype_of(gather.args[1])

    def make() -> Guess:
        x, indices = hole(source, dtype_of(call)), hole(where, kind, "indices")
        size = source[axis]
        forms: tuple[Expr, ...] = ()
        if where and kind in ("int32", "int64"):
            vectors = hlo("reshape", indices, out=tensor_info((*where, 1), kind))
            inside = hlo(
                "and",
                compare(vectors, full_like(vectors, 0), "GE"),
                compare(vectors, full_like(vectors, size - 1), "LE"),
            )
            taken = Call(gather.op, [x, vectors], gather.attrs)
            seen = reduce(inside, "and", [count])
            others = [i for i in range(len(shape)) if not axis <= i < axis + count]
            nan = full_like(taken, math.nan)
            forms = (select(spread(seen, shape, others), taken, nan),)
        return Guess(relax("take", x, indices, axis=axis, mode="nan"), forms)

    yield graph.once(("take nan", source, kind, axis, call.struct_info, gather.attrs), make)


def _eye(graph: Graph, call: Call) -> Guesses:
    """One where column - row is k."""
    mask = graph.value(call.args[0])
    shape = shape_of(call)
    if row_name(mask) != "compare" or shape is None or len(shape) != 2:
        return
    moved = graph.find(mask, "add")
    known = [] if moved is None else [graph.splat(a) for a in moved.args]
    offset = next((int(k) for k in known if k is not None and k.dtype.kind in "iu"), 0)

    def make() -> Guess:
        row, column = iota(shape, 0, "int32"), iota(shape, 1, "int32")
        shifted = hlo("add", row, full_like(row, offset))
        made = hlo("convert", compare(shifted, column, "EQ"), out=call.struct_info)
        return Guess(relax("eye", shape[0], shape[1], offset, dtype=dtype_of(call)), (made,))

    yield graph.once(("eye", call.struct_info, offset), make)


WINDOWS: Final[dict[str, tuple[Pattern, ...]]] = {
    "reduce_window": (rule("max_pool", _max_pool), rule("running", _cumulative)),
    "divide": (rule("avg_pool", _avg_pool, 0, "reduce_window"),),
    "convolution": (rule("conv_transpose", _conv_transpose),),
    "item": (
        rule("argmax", _argmax, 0, "reduce"),
        rule("argsort", _argsort, 0, "sort"),
        rule("topk", _topk, 0, "chlo.top_k", "sort"),
    ),
    "convert": (
        rule("argmax", _argmax, 2, "reduce"),
        rule("argmax in two", _argmax_in_two, 2, "reduce"),
        rule("argsort", _argsort, 2, "sort"),
        rule("topk", _topk, 3, "chlo.top_k", "sort"),
        rule("avg_pool", _avg_pool, 1, "reduce_window", narrow=True),
        rule("running", _cumulative, 0, "reduce_window", narrow=True),
        rule("running in blocks", _cumulative_blocks, 3, "reduce_window", narrow=True),
        rule("eye", _eye, 0, "compare"),
    ),
    "reshape": (
        rule("running in blocks", _cumulative_blocks, 2, "reduce_window"),
        rule("argmax", _argmax, 2, "reduce"),
        rule("argmax in two", _argmax_in_two, 2, "reduce"),
    ),
    "sort": (rule("sort", _sort),),
    "slice": (
        rule("running in blocks", _cumulative_blocks, 2, "reduce_window"),
        rule("topk", _topk, 2, "chlo.top_k", "sort"),
    ),
    "negate": (rule("topk", _topk, 2, "chlo.top_k", "sort"),),
    "transpose": (rule("topk", _topk, 2, "chlo.top_k", "sort"),),
    "chlo.top_k": (rule("topk", _top_k),),
    "select": (rule("take", _take_nan, 0, "gather"),),
}

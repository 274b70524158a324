"""Rows in the place of loop-level functions that programs bring, by the name of the function.

Most kernels become rows loop by loop (``stablehlo/loops``). Some are written for the threads of a
GPU so closely that their loops say little of what they compute: a grouped product walks over tiles
in persistent blocks. Here such a kernel has a function that makes rows of its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, overload

from relax2xla import op, tir
from relax2xla.dtypes import limits
from relax2xla.errors import LegalizeError
from relax2xla.ir import Expr, TensorStructInfo, TupleGetItem
from relax2xla.op.shared.loops import int32, while_loop
from relax2xla.op.shared.lowering import (
    binary,
    broadcast_in_dim,
    compare,
    convert,
    dot_general,
    dtype_of,
    full,
    hlo,
    iota,
    pad,
    reduce,
    reshape,
    scalar,
    select,
    shape_of,
    slice_axis,
    sum_dtype,
    take_slice,
)
from relax2xla.tir.buffer import Buffer, BufferLoad
from relax2xla.tir.stmt_functor import post_order_visit


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a loop-level function: its arguments, what the results are like, numbers."""

    name: str
    func: tir.PrimFunc
    tensors: tuple[Expr, ...]
    results: tuple[TensorStructInfo, ...]
    numbers: tuple[object, ...] = ()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors."""
        return [shape_of(t) for t in self.tensors]


Rows = Callable[[KernelCall], Sequence[Expr] | None]
"""The results as rows; None where the kernel is another one of this name.

A result that takes the place of an argument (``call_tir_inplace``) is what the argument becomes.
"""

_ROWS: Final[dict[str, Rows]] = {}


@overload
def register_kernel_rows(name: str, rows: Rows, override: bool = False) -> Rows: ...


@overload
def register_kernel_rows(
    name: str, rows: None = None, override: bool = False
) -> Callable[[Rows], Rows]: ...


def register_kernel_rows(
    name: str, rows: Rows | None = None, override: bool = False
) -> Rows | Callable[[Rows], Rows]:
    r"""Make calls of the loop-level function ``name`` (also ``name1``, ``name_1``, ...) rows.

    name: a regular expression, such as ``top\d+``. rows: takes a :class:`KernelCall` of static
    shapes and gives an expression for each result, or None: then the kernel is lowered loop by
    loop. Also a decorator. Raises ValueError where there is one of the name, unless ``override``.
    """
    if rows is None:

        def register(made: Rows) -> Rows:
            return register_kernel_rows(name, made, override)

        return register
    if name in _ROWS and not override:
        raise ValueError(f"there are rows for {name!r} already; pass override=True to replace them")
    _ROWS[name] = rows
    return rows


def rows_for(name: str) -> Rows | None:
    """The function registered for a kernel of this name."""
    # BlockBuilder.add_func numbers functions of one name.
    matching = (rows for key, rows in _ROWS.items() if re.fullmatch(rf"(?:{key})(?:_?\d+)?", name))
    return next(matching, None)


def keeps_rows_apart(name: str) -> bool:
    """Whether a kernel computes each row of its results from the same rows of its operands."""
    return rows_for(name) in {_ROWS[key] for key in _APART}


def rows_of(call: KernelCall) -> tuple[Expr, ...] | None:
    """The rows registered for a kernel; LegalizeError where they are not like its results."""
    make = rows_for(call.name)
    made = None if make is None else make(call)
    if made is None:
        return None
    got = [(shape_of(x), dtype_of(x)) for x in made]
    wanted = [(tuple(r.dims or ()), r.dtype) for r in call.results]
    if got != wanted:
        raise LegalizeError(
            f"the rows registered for {call.name} give {got}; the call says {wanted}"
        )
    return tuple(made)


# -- the largest of each row -----------------------------------------------------------------------
def _largest(call: KernelCall) -> tuple[Expr, Expr] | None:
    """The k largest of rows (b, n), falling, and their places; of equal ones the first."""
    infos = call.results
    if [len(s) for s in call.shapes] != [2] or len(infos) != 2 or infos[0].dims != infos[1].dims:
        return None
    (x,), ((b, n),), dims = call.tensors, call.shapes, infos[0].dims or ()
    count = dims[-1] if len(dims) == 2 and dims[0] == b else None
    if not isinstance(count, int) or count > n or infos[1].dtype != "int32":
        return None
    found = op.topk(x, count, -1, "both", True, "int32")
    return TupleGetItem(found, 0), TupleGetItem(found, 1)


@register_kernel_rows(r"top\d+")
def _top(call: KernelCall) -> Sequence[Expr] | None:
    """The k largest and their places."""
    return _largest(call)


@register_kernel_rows(r"top\d+_softmax")
def _top_softmax(call: KernelCall) -> Sequence[Expr] | None:
    """The softmax of the k largest alone, computed in float32, and their places."""
    found = _largest(call)
    if found is None:
        return None
    values, places = found
    shares = op.nn.softmax(op.astype(values, "float32"), -1)
    return [op.astype(shares, call.results[0].dtype), places]


# -- grouped products ------------------------------------------------------------------------------
#: The rows of ``x`` that are multiplied at once, where there are many.
_TILE: Final = 32
#: Kernels whose result's first axis is a batch, row by row of the operands that have it.
_APART: Final = (r"top\d+", r"top\d+_softmax", "chosen_matmul")


@register_kernel_rows("group_gemm")
def _group_gemm(call: KernelCall) -> Sequence[Expr] | None:
    """``x[indptr[e] : indptr[e + 1]] @ w[e].T`` for x (b, k), w (groups, n, k)."""
    if [len(s) for s in call.shapes] != [2, 3, 1] or len(call.results) != 1:
        return None
    x, w, indptr = call.tensors
    (b, k), (groups, n, k_of_w), (ends,) = call.shapes
    if (k_of_w, ends) != (k, groups + 1) or call.results[0].dims != (b, n):
        return None
    return [_grouped(x, [w], indptr, lambda parts: parts[0], n)]


@register_kernel_rows("dequantize_group_gemm")
def _dequantize_group_gemm(call: KernelCall) -> Sequence[Expr] | None:
    """The same where ``w`` is packed: words (groups, n, words), scales (groups, n, parts)."""
    if [len(s) for s in call.shapes] != [2, 3, 3, 1] or len(call.results) != 1:
        return None
    x, w, scale, indptr = call.tensors
    (b, k), (groups, n, words), (_, _, parts), (ends,) = call.shapes
    packing = _packing(call.func, call.func.params[2])
    if packing is None or (ends, call.results[0].dims) != (groups + 1, (b, n)):
        return None
    bits, size = packing
    each = 32 // bits
    if dtype_of(w) != "uint32" or words * each < k or parts * size < k or dtype_of(x) == "uint32":
        return None

    def unpacked(held: Sequence[Expr]) -> Expr:
        return dequantized(held[0], held[1], bits, size, k)

    return [_grouped(x, [w, scale], indptr, unpacked, n)]


@register_kernel_rows("chosen_matmul")
def _chosen_matmul(call: KernelCall) -> Sequence[Expr] | None:
    """``x[i, j] @ w[which[i, j]].T`` for x (b, s or 1, k), w (groups, n, k), which (b, s).

    Rows are sorted by their group; weights that no row takes are not read.
    """
    if [len(s) for s in call.shapes] != [3, 3, 2] or len(call.results) != 1:
        return None
    x, w, which = call.tensors
    (b, given, k), (groups, n, k_of_w), (b_of_which, s) = call.shapes
    if (k_of_w, b_of_which) != (k, b) or given not in (1, s) or call.results[0].dims != (b, s, n):
        return None
    chosen = op.reshape(op.astype(which, "int32"), (b * s,))
    order = op.argsort(chosen, 0, False, "int32")
    rows = op.reshape(op.broadcast_to(x, (b, s, k)), (b * s, k))
    bounds = op.sum(
        convert(
            compare(
                broadcast_in_dim(chosen, (groups + 1, b * s), (1,)),
                iota((groups + 1, b * s), 0, "int32"),
                "LT",
            ),
            "int32",
        ),
        1,
    )
    made = _grouped(op.take(rows, order, 0), [w], bounds, lambda parts: parts[0], n)
    back = op.argsort(order, 0, False, "int32")
    return [op.reshape(op.take(made, back, 0), (b, s, n))]


@register_kernel_rows("moe_gemv")
def _moe_gemv(call: KernelCall) -> Sequence[Expr] | None:
    """``x[e] @ w[which[0, e]].T`` for x (1 or s, k), w (groups, n, k), which (1, s): (s, n)."""
    if [len(s) for s in call.shapes] != [2, 3, 2] or len(call.results) != 1:
        return None
    x, w, which = call.tensors
    (_, k), (_, n, k_of_w), (one, s) = call.shapes
    if (k_of_w, one) != (k, 1) or not _is_chosen(call, n):
        return None
    return [_one_by_one(x, [w], reshape(which, (s,)), lambda parts: parts[0], n)]


@register_kernel_rows("moe_dequantize_gemv")
def _moe_dequantize_gemv(call: KernelCall) -> Sequence[Expr] | None:
    """The same where ``w`` is packed: words (groups, n, words), scales (groups, n, parts)."""
    if [len(s) for s in call.shapes] != [2, 3, 3, 2] or len(call.results) != 1:
        return None
    x, w, scale, which = call.tensors
    (_, k), (_, n, words), (_, n_of_scale, parts), (one, s) = call.shapes
    packing = _packing(call.func, call.func.params[2])
    if packing is None or (n_of_scale, one) != (n, 1) or not _is_chosen(call, n):
        return None
    bits, size = packing
    if dtype_of(w) != "uint32" or words * (32 // bits) < k or parts * size < k:
        return None

    def unpacked(held: Sequence[Expr]) -> Expr:
        return dequantized(held[0], held[1], bits, size, k)

    return [_one_by_one(x, [w, scale], reshape(which, (s,)), unpacked, n)]


def _is_chosen(call: KernelCall, n: int) -> bool:
    """Whether the result is (s, n) for an ``x`` of 1 or ``s`` rows, in one dtype of floats."""
    s, result = call.shapes[-1][1], call.results[0]
    dtypes = {dtype_of(call.tensors[0]), result.dtype}
    return call.shapes[0][0] in (1, s) and result.dims == (s, n) and len(dtypes) == 1


def _one_by_one(
    x: Expr, held: Sequence[Expr], which: Expr, weight: Callable[[Sequence[Expr]], Expr], n: int
) -> Expr:
    """Row after row of ``x`` (1 or s, k), times the weight that ``which`` (s,) names: (s, n).

    As in :func:`_grouped`, a product of one row reads its weight where it lies; a gather of all
    weights would copy them before.
    """
    (given, k), (s,) = shape_of(x), shape_of(which)
    dtype = dtype_of(x)
    chosen = convert(which, "int32")

    def step(t: Expr, made: Expr, *carried: Expr) -> list[Expr]:
        rows, chosen_, *parts = carried
        at = t if given == s else int32(0)
        row = hlo("dynamic_slice", rows, at, int32(0), slice_sizes=(1, k))
        one = [_part(p, _element(chosen_, t)) for p in parts]
        product = dot_general(row, weight(one), ((1,), (1,)), out_dtype=sum_dtype(dtype))
        made = hlo("dynamic_update_slice", made, convert(product, dtype), t, int32(0))
        return [binary("add", t, int32(1)), made, *carried]

    start = [int32(0), full((s, n), 0, dtype), x, chosen, *held]
    return while_loop(start, lambda t, *_: compare(t, int32(s), "LT"), step)[1]


def dequantized(words: Expr, scale: Expr, bits: int, size: int, k: int) -> Expr:
    """(n, words) of unsigned ``bits`` and a scale (n, parts) for each ``size``: weights (n, k).

    A value is ``(field - (2 ** (bits - 1) - 1)) * scale``, the lowest field first.
    """
    n, count = shape_of(words)
    each, dtype = 32 // bits, dtype_of(scale)
    shifts = binary(
        "multiply", iota((n, count, each), 2, "uint32"), full((n, count, each), bits, "uint32")
    )
    wide = broadcast_in_dim(words, (n, count, each), (0, 1))
    mask = full((n, count, each), 2**bits - 1, "uint32")
    fields = hlo("and", hlo("shift_right_logical", wide, shifts), mask)
    values = slice_axis(reshape(convert(fields, dtype), (n, count * each)), 1, 0, k)
    zero = full((n, k), 2 ** (bits - 1) - 1, dtype)
    parts = shape_of(scale)[1]
    spread = reshape(broadcast_in_dim(scale, (n, parts, size), (0, 1)), (n, parts * size))
    return hlo("multiply", hlo("subtract", values, zero), slice_axis(spread, 1, 0, k))


def _packing(func: tir.PrimFunc, scale: tir.Var) -> tuple[int, int] | None:
    """The bits of a weight and the weights that share a scale, as the function reads them."""
    buffer: Buffer | None = func.buffer_map.get(scale)
    masks: set[int] = set()
    sizes: set[int] = set()

    def look(e: object) -> None:
        if isinstance(e, tir.Call) and e.op == "tir.bitwise_and":
            masks.update(a.value for a in e.args if isinstance(a, tir.IntImm))
        if isinstance(e, BufferLoad) and e.buffer is buffer:
            last = e.indices[-1]
            if isinstance(last, tir.FloorDiv) and isinstance(last.b, tir.IntImm):
                sizes.add(last.b.value)

    post_order_visit(func, look)
    if len(masks) != 1 or len(sizes) != 1:
        return None
    (mask,), (size,) = masks, sizes
    bits = mask.bit_length()
    return (bits, size) if mask == 2**bits - 1 and 2 <= bits <= 8 else None


def _grouped(
    x: Expr, held: Sequence[Expr], indptr: Expr, weight: Callable[[Sequence[Expr]], Expr], n: int
) -> Expr:
    """Tile after tile of a group's rows, times the group's weight: (b, n).

    held: what ``weight`` makes the weight (n, k) of a group from, each (groups, *s). Rows of a tile
    beyond its group are computed as well; the next group's tiles, which come later, replace them.
    """
    b, k = shape_of(x)
    groups = shape_of(indptr)[0] - 1
    # A product with one row reads a weight once, where it lies; those of few rows copy it before.
    tile = 1 if b <= 2 * groups else min(_TILE, b)
    dtype = dtype_of(x)
    bounds = convert(indptr, "int32")
    first, last = slice_axis(bounds, 0, 0, groups), slice_axis(bounds, 0, 1, groups + 1)
    tiles = hlo(
        "divide",
        binary("add", hlo("subtract", last, first), full((groups,), tile - 1, "int32")),
        full((groups,), tile, "int32"),
    )
    ends = _running(tiles, groups)
    starts = hlo("subtract", ends, tiles)
    total = reshape(slice_axis(ends, 0, groups - 1, groups), ())
    zero = scalar(0, dtype)
    wide = pad(x, (0, 0), (tile, 0), zero)
    out = full((b + tile, n), 0, dtype)

    def step(t: Expr, made: Expr, *carried: Expr) -> list[Expr]:
        _, rows, first_, starts_, ends_, *parts = carried
        done = convert(compare(ends_, broadcast_in_dim(t, (groups,), ()), "LE"), "int32")
        group = reduce(done, "add", [0])
        at = binary(
            "add",
            _element(first_, group),
            binary("multiply", hlo("subtract", t, _element(starts_, group)), int32(tile)),
        )
        some = hlo("dynamic_slice", rows, at, int32(0), slice_sizes=(tile, k))
        one = [_part(p, group) for p in parts]
        product = dot_general(some, weight(one), ((1,), (1,)), out_dtype=sum_dtype(dtype))
        made = hlo("dynamic_update_slice", made, convert(product, dtype), at, int32(0))
        return [binary("add", t, int32(1)), made, *carried]

    start = [int32(0), out, total, wide, first, starts, ends, *held]
    done = while_loop(start, lambda t, made, total, *_: compare(t, total, "LT"), step)[1]
    return take_slice(done, (0, 0), (b, n))


def _part(x: Expr, index: Expr) -> Expr:
    """``x[index]`` of a tensor, for an index that is known when the program runs."""
    shape = shape_of(x)[1:]
    starts = (index, *(int32(0) for _ in shape))
    return reshape(hlo("dynamic_slice", x, *starts, slice_sizes=(1, *shape)), shape)


def _element(values: Expr, index: Expr) -> Expr:
    return reshape(hlo("dynamic_slice", values, index, slice_sizes=(1,)), ())


def _running(values: Expr, count: int) -> Expr:
    """The running sums of an int32 vector, as a triangle: there are few groups."""
    square = broadcast_in_dim(values, (count, count), (1,))
    before = compare(iota((count, count), 1, "int32"), iota((count, count), 0, "int32"), "LE")
    return reduce(select(before, square, full((count, count), 0, "int32")), "add", [1])


# -- sampling --------------------------------------------------------------------------------------
@register_kernel_rows("apply_bitmask_inplace")
def _apply_bitmask(call: KernelCall) -> Sequence[Expr] | None:
    """Logits (b, v), the least number in rows ``ids`` (s,) where bits (b, v / 32) are 0.

    The kernel writes rows that the data names, element by element. Here every row is computed from
    itself: those that no id names stay.
    """
    if [len(s) for s in call.shapes] != [2, 1, 2] or len(call.results) != 1:
        return None
    logits, ids, words = call.tensors
    (b, v), (s,), held = call.shapes
    dtype, count = dtype_of(logits), -(-v // 32)
    if held != (b, count) or dtype_of(words) != "int32" or call.results[0].dims != (b, v):
        return None
    wide = broadcast_in_dim(words, (b, count, 32), (0, 1))
    places = iota((b, count, 32), 2, "int32")
    bits = hlo("and", hlo("shift_right_logical", wide, places), full((b, count, 32), 1, "int32"))
    flat = slice_axis(reshape(bits, (b, count * 32)), 1, 0, v)
    rows = broadcast_in_dim(convert(ids, "int32"), (b, s), (1,))
    named = reduce(compare(rows, iota((b, s), 0, "int32"), "EQ"), "or", [1])
    cleared = hlo(
        "and",
        broadcast_in_dim(named, (b, v), (0,)),
        compare(flat, full((b, v), 0, "int32"), "EQ"),
    )
    return [select(cleared, full((b, v), limits(dtype)[0], dtype), logits)]

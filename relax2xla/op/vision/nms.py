"""Non-maximum suppression: of boxes that overlap, the one with the best score stays.

Sizes do not depend on data: results have room for every box, and what is not used holds -1. Each
loops over the boxes (``stablehlo.while``) and compares one with all others at each step, so memory
grows with the number of boxes and not with its square. A box is two corners in either order. Scores
that are NaN never win. Sources: TVM Relax v0.25 for names, inference and ``non_max_suppression``;
ONNX's NonMaxSuppression for ``all_class_non_max_suppression``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, Tuple
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import PrimLike
from relax2xla.ir.struct_info import (
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    show,
)
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import FLOAT, INTEGER, differ, fold, tensor, want_tensor
from relax2xla.op.shared.loops import count_true, int32, keep_or, rows, stable_order, while_loop
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    broadcast_to,
    compare,
    convert,
    dtype_of,
    full,
    full_like,
    hlo,
    iota,
    reduce,
    reshape,
    scalar,
    select,
    shape_of,
    slice_axis,
)
from relax2xla.op.shared.scalars import number
from relax2xla.tir import Dim


def _agree(a: Dim, b: Dim, what: str) -> None:
    if differ(a, b):
        raise OpError(f"{what} must be equal; got {a} and {b}")


def _want_index(value: int, name: str, size: Dim | None, length: int = 1) -> None:
    if value < 0 or (isinstance(size, int) and value + length > size):
        raise OpError(f"`{name}` is {value}, which is no position in rows of {size} numbers")


# ---- boxes
def _sides(boxes: Sequence[Expr]) -> tuple[Expr, Expr, Expr, Expr]:
    """Four coordinates as the lower and the higher of each direction."""
    a, b, c, d = boxes
    return hlo("minimum", a, c), hlo("minimum", b, d), hlo("maximum", a, c), hlo("maximum", b, d)


def _overlap(one: Sequence[Expr], others: Sequence[Expr]) -> Expr:
    """Intersection over union of a box of each row (b, 1) and all its boxes (b, n); 0 if empty."""
    shape = shape_of(others[0])
    spread = [broadcast_in_dim(x, shape, [0, 1]) for x in _sides(one)]
    (al, at, ar, ab), (bl, bt, br, bb) = spread, _sides(others)
    zero = full_like(bl, 0)

    def extent(low: Expr, high: Expr) -> Expr:
        return hlo("subtract", high, low)

    width = hlo("maximum", zero, extent(hlo("maximum", al, bl), hlo("minimum", ar, br)))
    height = hlo("maximum", zero, extent(hlo("maximum", at, bt), hlo("minimum", ab, bb)))
    inner = hlo("multiply", width, height)
    areas = hlo(
        "add",
        hlo("multiply", extent(al, ar), extent(at, ab)),
        hlo("multiply", extent(bl, br), extent(bt, bb)),
    )
    union = hlo("subtract", areas, inner)
    return select(compare(union, zero, "LE"), zero, hlo("divide", inner, union))


def _columns(x: Expr, start: int) -> list[Expr]:
    """Four columns of rows (b, n, e), each (b, n)."""
    shape = shape_of(x)[:2]
    return [reshape(slice_axis(x, 2, start + i, start + i + 1), shape) for i in range(4)]


def _hard(
    boxes: Sequence[Expr],
    groups: Expr | None,
    candidate: Expr,
    limit: Expr,
    threshold: Expr,
    suppress: str,
) -> Expr:
    """Which boxes (b, n), in order of their scores, are selected.

    candidate: which take part; limit: how many may be selected in a row, (); groups: only boxes of
    one group suppress each other; suppress: "GE" or "GT" of overlap and threshold, ()
    """
    batch, count = shape_of(candidate)
    grouped = [] if groups is None else [groups]

    def test(i: Expr, *_: Expr) -> Expr:
        return compare(i, int32(count), "LT")

    def body(i: Expr, alive: Expr, chosen: Expr, *rest: Expr) -> list[Expr]:
        most, least = rest[0], rest[1]
        own = rest[2:6]
        where = broadcast_to(reshape(i, (1, 1)), (batch, 1))
        room = compare(count_true(chosen), broadcast_to(most, (batch,)), "LT")
        take = hlo("and", reshape(rows(alive, where), (batch,)), room)
        overlap = _overlap([rows(x, where) for x in own], own)
        hit = compare(overlap, broadcast_to(least, (batch, count)), suppress)
        if len(rest) > 6:
            hit = hlo("and", hit, compare(rows(rest[6], where), rest[6], "EQ"))
        position = iota((batch, count), 1, "int32")
        later = compare(position, broadcast_to(i, (batch, count)), "GT")
        taken = broadcast_in_dim(take, (batch, count), [0])
        drop = hlo("and", hlo("and", hit, later), taken)
        here = compare(position, broadcast_to(i, (batch, count)), "EQ")
        return [
            hlo("add", i, int32(1)),
            hlo("and", alive, hlo("not", drop)),
            hlo("or", chosen, hlo("and", here, taken)),
            *rest,
        ]

    start = [
        int32(0),
        candidate,
        full((batch, count), False, "bool"),
        limit,
        threshold,
        *boxes,
        *grouped,
    ]
    return while_loop(start, test, body)[2]


def _packed(chosen: Expr, values: Expr) -> tuple[Expr, Expr]:
    """The chosen of ``values`` (b, n) at the front of each row, -1 after them; their number."""
    order = stable_order([(hlo("not", chosen), False)])
    moved, kept = rows(values, order), rows(chosen, order)
    return keep_or(kept, moved, -1), count_true(chosen)


# ---- get_valid_counts
@op("relax.vision.get_valid_counts", Opaque())
def get_valid_counts(
    data: Expr, score_threshold: float = 0, id_index: int = 0, score_index: int = 1
) -> StructInfo:
    """The boxes whose score is above a threshold, moved to the front.

    data: (b, n, e), a float dtype: n boxes of e numbers; score_index: which is the score; id_index:
    which is the class, that must not be negative (-1: no such check)
    result: their number (b,), int32; the boxes (b, n, e) with -1 after them; and where they were
    (b, n), int32, with -1 after them
    """
    x = want_tensor(data, "data", FLOAT, 3)
    size = None if x.dims is None else x.dims[2]
    _want_index(score_index, "score_index", size)
    if id_index != -1:
        _want_index(id_index, "id_index", size)
    dims = x.dims
    return TupleStructInfo(
        [
            tensor(None if dims is None else dims[:1], "int32", 1, x),
            x if dims is not None else tensor(None, x.dtype, 3, x),
            tensor(None if dims is None else dims[:2], "int32", 2, x),
        ]
    )


@get_valid_counts.legalize
def _(data: Expr, score_threshold: float = 0, id_index: int = 0, score_index: int = 1) -> Expr:
    batch, count, _width = shape_of(data)

    def column(i: int) -> Expr:
        return reshape(slice_axis(data, 2, i, i + 1), (batch, count))

    score = column(score_index)
    valid = compare(score, full_like(score, score_threshold), "GT")
    if id_index >= 0:
        group = column(id_index)
        valid = hlo("and", valid, compare(group, full_like(group, 0), "GE"))
    where, total = _packed(valid, iota((batch, count), 1, "int32"))
    kept = compare(where, full_like(where, 0), "GE")
    return Tuple([total, keep_or(kept, rows(data, where), -1), where])


# ---- non_max_suppression
@op("relax.vision.non_max_suppression", Opaque())
def non_max_suppression(
    data: Expr,
    valid_count: Expr,
    indices: Expr,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> Rule:
    """Non-maximum suppression of the results of :func:`get_valid_counts`.

    Boxes are taken in order of their scores; each that is taken removes those after it of its class
    that overlap it by ``iou_threshold`` or more. With ``soft_nms_sigma`` above 0 the others lose
    score instead, by ``exp(-overlap ** 2 / (2 * sigma))``, and go at ``score_threshold``.

    data: (b, n, e), a float dtype; valid_count: (b,), integers: how many boxes count; indices:
    (b, n), integers: what to return for each box
    max_output_size, top_k: how many boxes to take, and to look at (no limit unless positive)
    force_suppress: classes do not matter, nor do they with an ``id_index`` of -1
    coord_start, score_index, id_index: where in a row the corners, score and class are
    invalid_to_bottom: without ``return_indices``: boxes to the front
    result: with ``return_indices`` (b, n), int32, the ``indices`` of what is taken and -1 after
    them, and their number (b, 1), int32, and before both the boxes if ``soft_nms_sigma`` is above
    0; else (b, n, e), the boxes in order of their scores, those not taken all -1
    """
    x = want_tensor(data, "data", FLOAT, 3)
    valid = want_tensor(valid_count, "valid_count", INTEGER, 1)
    where = want_tensor(indices, "indices", INTEGER, 2)
    size = None if x.dims is None else x.dims[2]
    _want_index(coord_start, "coord_start", size, 4)
    _want_index(score_index, "score_index", size)
    if id_index != -1:
        _want_index(id_index, "id_index", size)
    if x.dims is not None:
        if valid.dims is not None:
            _agree(x.dims[0], valid.dims[0], "the batch of `data` and the size of `valid_count`")
        if where.dims is not None:
            _agree(x.dims[0], where.dims[0], "the batches of `data` and `indices`")
            _agree(x.dims[1], where.dims[1], "the numbers of boxes of `data` and `indices`")

    def lower() -> Expr:
        batch, count, _width = shape_of(data)
        dtype = dtype_of(data)

        def column(x: Expr, i: int) -> Expr:
            return reshape(slice_axis(x, 2, i, i + 1), (batch, count))

        position = iota((batch, count), 1, "int32")
        limit = broadcast_in_dim(convert(valid_count, "int32"), (batch, count), [0])
        score = column(data, score_index)
        low = full_like(score, -np.inf)
        key = select(compare(score, score, "NE"), low, score)
        order = stable_order([(compare(position, limit, "GE"), False), (key, True)])
        found = rows(data, order)
        if top_k > 0:
            limit = hlo("minimum", limit, full_like(limit, top_k))
        inside = compare(position, limit, "LT")
        found = keep_or(inside, found, -1)
        groups = None if force_suppress or id_index < 0 else column(found, id_index)
        boxes = _columns(found, coord_start)
        most = int32(max_output_size if max_output_size > 0 else count)
        least = scalar(iou_threshold, dtype)
        source = rows(convert(indices, "int32"), order)
        if soft_nms_sigma > 0:
            soft = _Soft(soft_nms_sigma, score_threshold, score_index)
            return soft.run(found, boxes, groups, inside, most, least, source, return_indices)
        score = column(found, score_index)
        candidate = hlo("and", inside, compare(score, full_like(score, 0), "GT"))
        chosen = _hard(boxes, groups, candidate, most, least, "GE")
        if return_indices:
            taken, total = _packed(chosen, source)
            return Tuple([taken, reshape(total, (batch, 1))])
        if not invalid_to_bottom:
            return keep_or(chosen, found, -1)
        where, _total = _packed(chosen, position)
        return keep_or(compare(where, full_like(where, 0), "GE"), rows(found, where), -1)

    same = x if x.dims is not None else tensor(None, x.dtype, 3, x)
    if not return_indices:
        return same, lower
    dims = x.dims
    fields = [
        tensor(None if dims is None else dims[:2], "int32", 2, x),
        tensor(None if dims is None else (dims[0], 1), "int32", 2, x),
    ]
    return TupleStructInfo([same, *fields] if soft_nms_sigma > 0 else fields), lower


class _Soft:
    """Soft suppression: at each step the best of what is left goes to the next place."""

    def __init__(self, sigma: float, threshold: float, score_index: int) -> None:
        self.scale = -0.5 / sigma
        self.threshold = threshold
        self.score_index = score_index

    def run(
        self,
        data: Expr,
        boxes: Sequence[Expr],
        groups: Expr | None,
        inside: Expr,
        most: Expr,
        least: Expr,
        source: Expr,
        return_indices: bool,
    ) -> Expr:
        batch, count, width = shape_of(data)
        score = reshape(slice_axis(data, 2, self.score_index, self.score_index + 1), (batch, count))
        position = iota((batch, count), 1, "int32")
        moved = [score, inside, position, *boxes, *([] if groups is None else [groups])]
        taken = full((batch, 1), 0, "int32")
        start = [int32(0), taken, most, least, *moved]
        _i, taken, _most, _least, score, _alive, slot, *_rest = while_loop(
            start, lambda i, *_: compare(i, int32(count), "LT"), self._step(batch, count)
        )
        kept = compare(position, broadcast_to(taken, (batch, count)), "LT")
        column = compare(
            iota((batch, count, width), 2, "int32"),
            full((batch, count, width), self.score_index, "int32"),
            "EQ",
        )
        spread = broadcast_in_dim(score, (batch, count, width), [0, 1])
        result = keep_or(kept, select(column, spread, rows(data, slot)), -1)
        if not return_indices:
            return result
        return Tuple([result, keep_or(kept, rows(source, slot), -1), taken])

    def _step(self, batch: int, count: int) -> Callable[..., list[Expr]]:
        wide = (batch, count)

        def body(
            i: Expr, taken: Expr, most: Expr, least: Expr, score: Expr, alive: Expr, *moved: Expr
        ) -> list[Expr]:
            position = iota(wide, 1, "int32")
            place = broadcast_to(taken, wide)
            bar = full_like(score, self.threshold)
            open_ = hlo("and", alive, compare(score, bar, "GT"))
            open_ = hlo("and", open_, compare(position, place, "GE"))
            value = select(open_, score, full_like(score, -np.inf))
            top = broadcast_in_dim(reduce(value, "maximum", [1]), wide, [0])
            first = select(
                hlo("and", open_, compare(value, top, "EQ")), position, full_like(position, count)
            )
            best = reshape(reduce(first, "minimum", [1]), (batch, 1))
            go = hlo(
                "and",
                compare(best, full_like(best, count), "LT"),
                compare(taken, broadcast_to(most, (batch, 1)), "LT"),
            )
            here = compare(position, place, "EQ")
            there = compare(position, broadcast_to(best, wide), "EQ")
            go_wide = broadcast_to(go, wide)

            def swapped(x: Expr) -> Expr:
                at_place, at_best = (broadcast_to(rows(x, w), wide) for w in (taken, best))
                new = select(here, at_best, select(there, at_place, x))
                return select(go_wide, new, x)

            score, alive, *moved_ = [swapped(x) for x in (score, alive, *moved)]
            slot, *rest = moved_
            own, groups = rest[:4], rest[4:]
            overlap = _overlap([rows(x, taken) for x in own], own)
            meets = hlo("and", hlo("and", alive, go_wide), compare(position, place, "GT"))
            meets = hlo("and", meets, compare(score, bar, "GT"))
            for group in groups:
                meets = hlo("and", meets, compare(rows(group, taken), group, "EQ"))
            gone = hlo("and", meets, compare(overlap, broadcast_to(least, wide), "GE"))
            power = hlo("multiply", overlap, hlo("multiply", overlap, full_like(score, self.scale)))
            less = hlo("multiply", score, hlo("exponential", power))
            score = select(hlo("and", meets, hlo("not", gone)), less, score)
            faded = hlo("and", meets, compare(score, bar, "LE"))
            alive = hlo("and", alive, hlo("not", hlo("or", gone, faded)))
            taken = hlo("add", taken, convert(go, "int32"))
            return [hlo("add", i, int32(1)), taken, most, least, score, alive, slot, *rest]

        return body


# ---- all classes
def _scalar_info(x: Expr, name: str) -> None:
    info = x.struct_info
    if isinstance(info, PrimStructInfo):
        return
    if isinstance(info, TensorStructInfo) and (
        info.ndim in (-1, 0) or info.dims is None or info.dims == (1,)
    ):
        return
    raise OpError(f"`{name}` must be one number: a scalar or a tensor (1,); got {show(info)}")


def _scalar(x: Expr, name: str, dtype: str) -> Expr:
    if isinstance(x.struct_info, PrimStructInfo):
        return scalar(number(x, name), dtype)
    return convert(reshape(x, ()), dtype)


@op("relax.vision.all_class_non_max_suppression", Opaque())
def all_class_non_max_suppression(
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: PrimLike,
    iou_threshold: PrimLike,
    score_threshold: PrimLike,
    output_format: str = "onnx",
) -> Rule:
    """Non-maximum suppression of each class by itself, as ONNX's NonMaxSuppression.

    A box takes part if its score is above ``score_threshold``, and goes if it overlaps a better one
    by more than ``iou_threshold``.

    boxes: (b, n, 4), a float dtype: two corners; scores: (b, c, n), same dtype
    max_output_boxes_per_class, iou_threshold, score_threshold: one number each: PrimValues, or
    tensors () or (1,)
    result: with "onnx" (b * c * n, 3), int64: batch, class and box, the first rows by batch, class
    and score, -1 in the others; and the number of the first, (1,), int64. With "tensorflow"
    (b, c * n, 2), int64: class and box; (b, c * n), the scores; and the numbers, (b,), int64; 0
    in the other rows
    """
    a = want_tensor(boxes, "boxes", FLOAT, 3)
    s = want_tensor(scores, "scores", FLOAT, 3)
    for value, name in (
        (max_output_boxes_per_class, "max_output_boxes_per_class"),
        (iou_threshold, "iou_threshold"),
        (score_threshold, "score_threshold"),
    ):
        _scalar_info(value, name)
    if output_format not in ("onnx", "tensorflow"):
        raise OpError(f'`output_format` must be "onnx" or "tensorflow"; got {output_format!r}')
    if a.dims is not None:
        _agree(a.dims[2], 4, "the numbers of a box and 4")
        if s.dims is not None:
            _agree(a.dims[0], s.dims[0], "the batches of `boxes` and `scores`")
            _agree(a.dims[1], s.dims[2], "the numbers of boxes of `boxes` and `scores`")

    def lower() -> Expr:
        batch, classes, count = shape_of(scores)
        dtype = dtype_of(scores)
        most = _scalar(max_output_boxes_per_class, "max_output_boxes_per_class", "int64")
        bound = scalar(count, "int64")
        most = convert(hlo("minimum", most, bound), "int32")
        least = _scalar(iou_threshold, "iou_threshold", dtype_of(boxes))
        bar = _scalar(score_threshold, "score_threshold", dtype)
        flat = (batch * classes, count)
        score = reshape(scores, flat)
        key = select(compare(score, score, "NE"), full_like(score, -np.inf), score)
        order = stable_order([(key, True)])
        score = rows(score, order)
        candidate = compare(score, broadcast_to(bar, flat), "GT")
        each = broadcast_in_dim(boxes, (batch, classes, count, 4), [0, 2, 3])
        own = rows(reshape(each, (*flat, 4)), order)
        chosen = _hard(_columns(own, 0), None, candidate, most, least, "GT")
        group = reshape(iota((batch, classes, count), 1, "int64"), flat)
        index = convert(order, "int64")
        if output_format == "onnx":
            owner = reshape(iota((batch, classes, count), 0, "int64"), flat)
            line = (1, batch * classes * count)
            chosen = reshape(chosen, line)
            columns = [_packed(chosen, reshape(c, line))[0] for c in (owner, group, index)]
            rows_ = [reshape(c, (line[1], 1)) for c in columns]
            total = convert(reshape(count_true(chosen), (1,)), "int64")
            return Tuple([hlo("concatenate", *rows_, dimension=1), total])
        line = (batch, classes * count)
        chosen = reshape(chosen, line)
        by_class = stable_order([(hlo("not", chosen), False)])
        kept = rows(chosen, by_class)
        columns = [
            reshape(keep_or(kept, rows(reshape(c, line), by_class), 0), (*line, 1))
            for c in (group, index)
        ]
        best = keep_or(kept, rows(reshape(score, line), by_class), 0)
        total = convert(count_true(chosen), "int64")
        return Tuple([hlo("concatenate", *columns, dimension=2), best, total])

    if output_format == "onnx":
        total = None if s.dims is None else (fold(s.dims[0] * s.dims[1] * s.dims[2]), 3)
        return TupleStructInfo([tensor(total, "int64", 2, a), tensor((1,), "int64", like=a)]), lower
    wide = None if s.dims is None else (s.dims[0], fold(s.dims[1] * s.dims[2]))
    fields = [
        tensor(None if wide is None else (*wide, 2), "int64", 3, a),
        tensor(wide, s.dtype, 2, a),
        tensor(None if wide is None else wide[:1], "int64", 1, a),
    ]
    return TupleStructInfo(fields), lower

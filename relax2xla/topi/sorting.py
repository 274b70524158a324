"""Sorted elements and running sums: loops of their own, for no expression of an element says them.

The rank of each element is counted, with as many comparisons along the axis as its length squared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.dtypes import is_float
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer
from relax2xla.topi.index import loops, read_at, store
from relax2xla.topi.math import cast
from relax2xla.topi.shared import (
    FUNCTIONS,
    compute,
    of_dtype,
    one_axis,
    product,
    replaced,
    unravel,
    want_int,
    want_one_of,
)
from relax2xla.topi.transform import strided_slice


def _below(a: Any, b: Any) -> Any:
    """Whether ``a`` comes before ``b``; a NaN comes last."""
    if not is_float(a.dtype):
        return a < b
    isnan = FUNCTIONS["isnan"]
    return tir.Or.make(a < b, tir.And.make(isnan(b), tir.Not(isnan(a))))


def _ranks(data: te.Tensor, axis: int, ascending: bool) -> te.Tensor:
    """Where each element comes along ``axis``; equal ones keep their order."""
    k = te.reduce_axis((0, data.shape[axis]), "k")

    def element(*i: Any) -> Any:
        own, other = data(*i), data(*replaced(i, axis, k))
        if not ascending:
            own, other = other, own
        before, after = _below(other, own), _below(own, other)
        earlier = tir.And.make(tir.Not(after), k.var < i[axis])
        return te.sum(tir.cast(k.var.dtype, tir.Or.make(before, earlier)), axis=k)

    return compute(data.shape, element, "rank", "comm_reduce")


def _places(data: te.Tensor, axis: int, ascending: bool) -> te.Tensor:
    """Which element comes at each place: each is put at its rank."""
    ranks = _ranks(data, axis, ascending)

    def body(given: Sequence[Buffer], made: Sequence[Buffer]) -> s.Stmt:
        (where,), out = given, made[0]

        def put(i: list[tir.Var]) -> s.Stmt:
            # A sum, for which all lanes may go at once; each place is met once.
            at = replaced(i, axis, read_at(where, i))
            return store(out, read_at(out, at) + tir.cast(out.dtype, i[axis]), at)

        zero = tir.const(0, out.dtype)
        return s.seq(
            [loops(out.shape, "i", lambda i: store(out, zero, i)), loops(where.shape, "j", put)]
        )

    return te.extern([list(data.shape)], [ranks], body, "argsort", ranks.dtype)


def _ordered(data: te.Tensor, axis: int, ascending: bool, dtype: str | None) -> te.Tensor:
    """The elements in order, or their places in ``dtype``."""
    places = _places(data, axis, ascending)
    if dtype is not None:
        return cast(places, dtype)
    return compute(data.shape, lambda *i: data(*replaced(i, axis, places(*i))), "sort")


def sort(data: te.Tensor, axis: int = -1, is_ascend: bool = True) -> te.Tensor:
    """The elements in order along one axis; a NaN is the largest, equal ones keep their order."""
    return _ordered(data, one_axis(axis, data.ndim, "sort"), bool(is_ascend), None)


def argsort(
    data: te.Tensor,
    valid_count: None = None,
    axis: int = -1,
    is_ascend: bool = True,
    dtype: str = "float32",
) -> te.Tensor:
    """The places of the elements in order along one axis; ``valid_count`` is not taken."""
    if valid_count is not None:
        raise ValueError("topi.argsort: valid_count is not taken; cut off what is not valid")
    return _ordered(data, one_axis(axis, data.ndim, "argsort"), bool(is_ascend), dtype)


def topk(
    data: te.Tensor,
    k: Any = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int64",
) -> Any:
    """The first ``k`` elements in order, falling unless ``is_ascend``; all where k < 1.

    ret_type: "values", "indices" or "both".
    """
    want_one_of(ret_type, ("both", "values", "indices"), "topk: ret_type")
    at = one_axis(axis, data.ndim, "topk")
    count = want_int(k, "topk: k")

    def first(t: te.Tensor) -> te.Tensor:
        return t if count < 1 else strided_slice(t, [0], [count], axes=[at])

    kinds = {"values": None, "indices": dtype}
    wanted = kinds if ret_type == "both" else {ret_type: kinds[ret_type]}
    made = [first(_ordered(data, at, bool(is_ascend), d)) for d in wanted.values()]
    return made if ret_type == "both" else made[0]


# -- running sums ----------------------------------------------------------------------------------
def scanop(
    data: te.Tensor,
    binop: Callable[[Any, Any], Any],
    identity_value: Any,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> te.Tensor:
    """``binop`` of all elements up to each along ``axis``, or of all in row-major order.

    exclusive: without the element itself, so that the first is ``identity_value``.
    """
    made_dtype = dtype or data.dtype
    if axis is None:
        whole = product(data.shape)
        flat = compute([whole], lambda i: data(*unravel(i, data.shape)), "T_reshape")
        return scanop(flat, binop, identity_value, op_name, 0, dtype, exclusive)
    at = one_axis(axis, data.ndim, op_name)
    start = of_dtype(identity_value, made_dtype)

    def body(given: Sequence[Buffer], made: Sequence[Buffer]) -> s.Stmt:
        (values,), out = given, made[0]

        def step(i: list[tir.Var]) -> s.Stmt:
            zero, one = of_dtype(0, i[at].dtype), of_dtype(1, i[at].dtype)
            here = i[at]
            before = replaced(i, at, here - one)
            own = tir.cast(made_dtype, read_at(values, before if exclusive else i))
            first = start if exclusive else own
            again = store(out, binop(read_at(out, before), own), i)
            return s.IfThenElse(tir.EQ.make(here, zero), store(out, first, i), again)

        return loops(values.shape, "i", step)

    return te.extern([list(data.shape)], [data], body, op_name, made_dtype)


def cumsum(
    data: te.Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> te.Tensor:
    """Running sums; see :func:`scanop`."""
    return scanop(data, lambda a, b: a + b, 0, "cumsum_generic", axis, dtype, exclusive)


def cumprod(
    data: te.Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> te.Tensor:
    """Running products; see :func:`scanop`."""
    return scanop(data, lambda a, b: a * b, 1, "cumprod_generic", axis, dtype, exclusive)


def searchsorted(
    sorted_sequence: te.Tensor, values: te.Tensor, right: bool = False, out_dtype: str = "int64"
) -> te.Tensor:
    """How many elements of a sorted vector, or of its row, are below each value.

    right: those that are equal count as well.
    """
    seq = sorted_sequence
    k = te.reduce_axis((0, seq.shape[-1]), "k")

    def element(*i: Any) -> Any:
        other = seq(k) if seq.ndim == 1 else seq(*i[:-1], k)
        below = other <= values(*i) if right else other < values(*i)
        return te.sum(FUNCTIONS["cast"](below, out_dtype), axis=k)

    return compute(values.shape, element, "searchsorted", "comm_reduce")

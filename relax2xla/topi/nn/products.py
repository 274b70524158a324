"""Products with weights: matmul, dense, batch_matmul."""

from __future__ import annotations

from typing import Any

from relax2xla import te, tir
from relax2xla.topi.broadcast import add, broadcast_shapes, element
from relax2xla.topi.math import cast
from relax2xla.topi.shared import is_same, known, shown


def matmul(
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> te.Tensor:
    """Products of matrices, the last two axes; those in front broadcast.

    bias: a vector that is added to each row; out_dtype: in which is computed.
    """
    a, b = tensor_a, tensor_b
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError("topi.nn.matmul takes tensors of two axes or more")
    dtype = out_dtype or a.dtype
    rows, inner = a.shape[:-3:-1] if transpose_a else a.shape[-2:]
    other, columns = b.shape[:-3:-1] if transpose_b else b.shape[-2:]
    _want_inner(inner, other, "nn.matmul")
    batch = broadcast_shapes([a.shape[:-2], b.shape[:-2]], "nn.matmul")
    k = te.reduce_axis((0, inner), "k")

    def product(*index: Any) -> Any:
        *lead, i, j = index
        left = _read(a, lead, (k, i) if transpose_a else (i, k))
        right = _read(b, lead, (j, k) if transpose_b else (k, j))
        return te.sum(tir.cast(dtype, left) * tir.cast(dtype, right), axis=k)

    letters = "NT"
    name = f"T_matmul_{letters[bool(transpose_a)]}{letters[bool(transpose_b)]}"
    tag = "dense" if (transpose_a, transpose_b) == (False, True) else "matmul"
    made = te.compute([*batch, rows, columns], product, name, tag)
    return made if bias is None else add(made, cast(bias, dtype))


def _read(t: te.Tensor, lead: list[Any], last: tuple[Any, Any]) -> Any:
    """The element at the batch that broadcasts."""
    own = lead[len(lead) - (t.ndim - 2) :]
    return t(*(0 if known(n) == 1 else i for i, n in zip(own, t.shape[:-2], strict=True)), *last)


def _want_inner(a: Any, b: Any, what: str) -> None:
    if not is_same(a, b) and known(a) is not None and known(b) is not None:
        raise ValueError(f"topi.{what}: the inner sizes are {shown(a)} and {shown(b)}")


def dense(
    data: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
) -> te.Tensor:
    """``data @ weight.T + bias``."""
    return matmul(data, weight, bias, out_dtype, False, True)


def batch_matmul(
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    oshape: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> te.Tensor:
    """A product of matrices for each batch, of which one of both may have only one."""
    a, b = tensor_a, tensor_b
    if a.ndim != 3 or b.ndim != 3:
        raise ValueError("topi.nn.batch_matmul takes two tensors of three axes")
    dtype = out_dtype or a.dtype
    rows, inner = a.shape[:0:-1] if transpose_a else a.shape[1:]
    other, columns = b.shape[:0:-1] if transpose_b else b.shape[1:]
    _want_inner(inner, other, "nn.batch_matmul")
    batch = broadcast_shapes([a.shape[:1], b.shape[:1]], "nn.batch_matmul")
    k = te.reduce_axis((0, inner), "k")

    def product(*index: Any) -> Any:
        n, i, j = index
        left = element(a, (n, k, i) if transpose_a else (n, i, k))
        right = element(b, (n, j, k) if transpose_b else (n, k, j))
        return te.sum(tir.cast(dtype, left) * tir.cast(dtype, right), axis=k)

    letters = "NT"
    name = f"T_batch_matmul_{letters[bool(transpose_a)]}{letters[bool(transpose_b)]}"
    shape = [*batch, rows, columns] if oshape is None else list(oshape)
    return te.compute(shape, product, name, "batch_matmul", None, ["b", "i", "j"])

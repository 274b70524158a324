"""Products of tensors: matmul, tensordot, einsum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te
from relax2xla.op.shared.einsum import parse
from relax2xla.topi.shared import compute, is_same, known, listed, one_axis, shown


def matmul(a: te.Tensor, b: te.Tensor, transp_a: bool = False, transp_b: bool = False) -> te.Tensor:
    """The product of two matrices, each transposed if so said."""
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(
            f"topi.matmul takes two matrices; got {shown(a.shape)} and {shown(b.shape)}"
        )
    rows, inner = a.shape[::-1] if transp_a else a.shape
    other, columns = b.shape[::-1] if transp_b else b.shape
    if not is_same(inner, other):
        raise ValueError(f"topi.matmul: the inner sizes are {shown(inner)} and {shown(other)}")
    k = te.reduce_axis((0, inner), "k")

    def element(*index: Any) -> Any:
        i, j = index
        left = a(k, i) if transp_a else a(i, k)
        return te.sum(left * (b(j, k) if transp_b else b(k, j)), axis=k)

    return compute([rows, columns], element, "T_matmul", "matmul")


def tensordot(a: te.Tensor, b: te.Tensor, axes: Any = 2) -> te.Tensor:
    """The sum of products over ``axes``: a number (last ones of a, first of b), or two lists."""
    if isinstance(axes, list | tuple):
        first, second = (listed(x) for x in axes)
    else:
        first, second = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    left = [one_axis(x, a.ndim, "tensordot") for x in first]
    right = [one_axis(x, b.ndim, "tensordot") for x in second]
    if len(left) != len(right):
        raise ValueError(f"topi.tensordot: {len(left)} axes of a and {len(right)} of b")
    for p, q in zip(left, right, strict=True):
        if not is_same(a.shape[p], b.shape[q]):
            raise ValueError(
                f"topi.tensordot: the axis {p} of a has size {shown(a.shape[p])}, the axis {q} of "
                f"b {shown(b.shape[q])}"
            )
    loops = [te.reduce_axis((0, a.shape[p]), f"k{n}") for n, p in enumerate(left)]
    free_a = [n for n in range(a.ndim) if n not in left]
    free_b = [n for n in range(b.ndim) if n not in right]

    def element(*i: Any) -> Any:
        at_a = dict(zip([*left, *free_a], [*loops, *i[: len(free_a)]], strict=True))
        at_b = dict(zip([*right, *free_b], [*loops, *i[len(free_a) :]], strict=True))
        product = a(*(at_a[n] for n in range(a.ndim))) * b(*(at_b[n] for n in range(b.ndim)))
        return te.sum(product, axis=loops) if loops else product

    shape = [*(a.shape[n] for n in free_a), *(b.shape[n] for n in free_b)]
    return compute(shape, element, "T_tensordot", "matmul")


def einsum(subscripts: str, *operands: te.Tensor) -> te.Tensor:
    """Einstein's sum, such as ``"bij,bjk->bik"``."""
    given: tuple[Any, ...] = operands
    several = len(given) == 1 and isinstance(given[0], list | tuple)
    tensors: Sequence[te.Tensor] = given[0] if several else given
    inputs, output = parse(subscripts, [t.ndim for t in tensors])
    sizes: dict[Any, Any] = {}
    for labels, t in zip(inputs, tensors, strict=True):
        for label, n in zip(labels, t.shape, strict=True):
            old = sizes.get(label)
            if old is None or known(old) == 1:
                sizes[label] = n
            elif known(n) != 1 and not is_same(old, n):
                raise ValueError(
                    f"topi.einsum {subscripts!r}: an index has the sizes {shown(old)} and "
                    f"{shown(n)}"
                )
    inner = [label for label in sizes if label not in output]
    loops = {label: te.reduce_axis((0, sizes[label]), f"k{n}") for n, label in enumerate(inner)}

    def element(*i: Any) -> Any:
        at: dict[Any, Any] = {**loops, **dict(zip(output, i, strict=True))}
        made: Any = None
        for labels, t in zip(inputs, tensors, strict=True):
            here = [0 if known(n) == 1 else at[x] for x, n in zip(labels, t.shape, strict=True)]
            made = t(*here) if made is None else made * t(*here)
        return te.sum(made, axis=list(loops.values())) if loops else made

    return compute([sizes[x] for x in output], element, "T_einsum", "einsum")

"""What struct-info rules share: checks of dtypes, ranks and axes, broadcasting, windows.

Every check raises :class:`OpError` that names the argument, what it got and what it accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from relax2xla import tir
from relax2xla.dtypes import DTYPES
from relax2xla.errors import OperandTypeError, OpError
from relax2xla.ir.expr import Expr, ShapeExpr, Tuple
from relax2xla.ir.struct_info import (
    Dims,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    show,
)
from relax2xla.ir.struct_info import seen_dims as seen_dims
from relax2xla.tir import Dim

FLOAT: Final = tuple(d.name for d in DTYPES.values() if d.kind == "float")
INTEGER: Final = tuple(d.name for d in DTYPES.values() if d.kind in ("int", "uint"))
COMPLEX: Final = ("complex64", "complex128")
NUMBER: Final = (*INTEGER, *FLOAT, *COMPLEX)
REAL: Final = (*INTEGER, *FLOAT)
BOOL: Final = ("bool",)
INEXACT: Final = (*FLOAT, *COMPLEX)


def want_tensor(
    x: Expr, name: str, dtypes: Sequence[str] | None = None, ndim: int | None = None
) -> TensorStructInfo:
    """Struct info of a tensor operand; of one of ``dtypes`` and of rank ``ndim`` where known."""
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise OpError(f"`{name}` must be a tensor; got {show(info)}")
    if dtypes is not None and info.dtype and info.dtype not in dtypes:
        raise OpError(
            f"`{name}` must be one of {', '.join(dtypes)}; got {info.dtype}. "
            f"Cast it first: R.astype({name}, ...)"
        )
    if ndim is not None and info.ndim not in (-1, ndim):
        raise OpError(f"`{name}` must have rank {ndim}; got {show(info)}")
    return info


def want_shape(x: Expr, name: str) -> ShapeStructInfo:
    """Struct info of a shape operand."""
    info = x.struct_info
    if not isinstance(info, ShapeStructInfo):
        raise OpError(f"`{name}` must be a shape such as R.shape([2, 3]); got {show(info)}")
    return info


def known_shape(x: Expr) -> Expr | Dims:
    """The dimensions of a shape operand where its struct info has them, else the operand."""
    values = want_shape(x, "shape").values
    return x if values is None or isinstance(x, ShapeExpr) else values


def want_fields(x: Expr, name: str) -> tuple[StructInfo, ...]:
    """Struct infos of the fields of a tuple operand."""
    info = x.struct_info
    if not isinstance(info, TupleStructInfo):
        raise OpError(f"`{name}` must be a tuple; got {show(info)}")
    return info.fields


def fields_of(x: Expr) -> list[Expr]:
    """The values of a tuple operand, one expression each."""
    if isinstance(x, Tuple):
        return list(x.fields)
    return [x[i] for i in range(len(want_fields(x, "tuple")))]


def literal_dims(x: Expr, name: str) -> Dims:
    """Dimensions of a shape operand that must be known where the program is built."""
    if isinstance(x, ShapeExpr):
        return x.values
    info = want_shape(x, name)
    if info.values is None:
        raise OpError(f"the dimensions of `{name}` must be known here; got {show(info)}")
    return info.values


def norm_axis(axis: int, ndim: int, name: str = "axis") -> int:
    """``axis`` counted from the front; OpError where it is out of range."""
    if not -ndim <= axis < ndim:
        valid = f"valid: {-ndim}..{ndim - 1}" if ndim else "a scalar has no axes"
        raise OpError(f"{name} {axis} is out of range for a rank-{ndim} tensor; {valid}.")
    return axis % ndim


def norm_axes(axes: Iterable[int] | None, ndim: int, name: str = "axis") -> tuple[int, ...]:
    """Axes counted from the front, None meaning all of them; refuses repetitions."""
    if axes is None:
        return tuple(range(ndim))
    normal = tuple(norm_axis(a, ndim, name) for a in axes)
    if len(set(normal)) != len(normal):
        raise OpError(f"{name} {tuple(axes)} names an axis twice (rank {ndim})")
    return normal


def want_elements(info: TensorStructInfo, axes: Iterable[int] | None, what: str) -> None:
    """OpError where one of ``axes`` (None: all) is known to have no elements."""
    if info.dims is None:
        return
    for axis in norm_axes(axes, info.ndim):
        size = info.dims[axis]
        if isinstance(size, int) and size == 0:
            raise OpError(
                f"axis {axis} of {show(info)} has no elements: there is no {what} of none"
            )


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are provably equal."""
    return a == b if isinstance(a, int) and isinstance(b, int) else tir.can_prove_equal(a, b)


def differ(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are provably different: by a number other than 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a != b
    apart = 0 if a is b else fold(a - b)
    return isinstance(apart, int) and apart != 0


def fold(dim: Dim | tir.PrimExpr) -> Dim:
    """A dimension in normal form."""
    return dim if isinstance(dim, int) else tir.as_dim(tir.simplify(dim))


def product(dims: Iterable[Dim]) -> Dim:
    """Number of elements."""
    total: Dim = 1
    for d in dims:
        total = fold(total * d)
    return total


def broadcast_dims(shapes: Sequence[Dims], what: str = "operands") -> Dims | None:
    """numpy broadcasting of shapes; None where symbolic dimensions leave it open.

    OpError where two static dimensions differ and neither is 1.
    """
    ndim = max(map(len, shapes), default=0)
    result: list[Dim] = []
    known = True
    for i in range(ndim):
        dims = [s[i - ndim + len(s)] for s in shapes if i - ndim + len(s) >= 0]
        out: Dim = 1
        for d in dims:
            if isinstance(d, int) and d == 1:
                continue
            if isinstance(out, int) and out == 1:
                out = d
            elif same_dim(out, d):
                out = d if isinstance(d, int) else out
            elif isinstance(out, int) and isinstance(d, int):
                text = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
                raise OpError(
                    f"{what} of shapes {text} cannot be broadcast: "
                    f"dimension {i - ndim} is {out} in one and {d} in another"
                )
            else:
                known = False
        result.append(out)
    return tuple(result) if known else None


def common_dtype(infos: Sequence[TensorStructInfo], names: Sequence[str]) -> str:
    """The one dtype of several operands, "" where any is unknown.

    OperandTypeError where they differ.
    """
    known = {i.dtype for i in infos if i.dtype}
    if len(known) > 1:
        text = ", ".join(f"`{n}` is {i.dtype}" for n, i in zip(names, infos, strict=True))
        raise OperandTypeError(f"the operands must have one dtype, but {text}; use R.astype")
    return known.pop() if known and all(i.dtype for i in infos) else ""


def tensor(
    dims: Dims | None, dtype: str, ndim: int = -1, like: TensorStructInfo | None = None
) -> TensorStructInfo:
    """A tensor's struct info from dimensions that may be unknown, on the device of ``like``."""
    device = None if like is None else like.vdevice
    if dims is None and ndim == 0:
        dims = ()
    if dims is None:
        return TensorStructInfo(None, dtype, device, ndim)
    return TensorStructInfo.make(dims, dtype, device)


def with_dtype(info: TensorStructInfo, dtype: str) -> TensorStructInfo:
    """``info`` with another dtype."""
    shape = info.dims if info.dims is not None else info.shape
    if shape is None:
        return TensorStructInfo(None, dtype, info.vdevice, info.ndim)
    return TensorStructInfo(shape, dtype, info.vdevice)


def reduced(info: TensorStructInfo, axis: Sequence[int] | None, keepdims: bool) -> TensorStructInfo:
    """Struct info of a reduction over axes (None: all)."""
    if axis is None and not keepdims:
        return tensor((), info.dtype, like=info)
    if info.ndim == -1:
        return tensor(None, info.dtype, like=info)
    axes = norm_axes(axis, info.ndim)
    if axis is None:
        return tensor((1,) * info.ndim, info.dtype, like=info)
    if info.dims is None:
        ndim = info.ndim if keepdims else info.ndim - len(axes)
        return tensor(None, info.dtype, ndim, info)
    if keepdims:
        dims = tuple(1 if i in axes else d for i, d in enumerate(info.dims))
    else:
        dims = tuple(d for i, d in enumerate(info.dims) if i not in axes)
    return tensor(dims, info.dtype, like=info)


def window_dim(
    size: Dim,
    window: Dim,
    stride: int,
    low: int,
    high: int,
    dilation: int = 1,
    ceil_mode: bool = False,
) -> Dim:
    """Output size of a window that slides over ``size`` (convolution and pooling).

    ``(size + low + high - dilation * (window - 1) - 1) // stride + 1``; with ``ceil_mode`` rounded
    up, where a last window that would start in the padding on the right is dropped (as in torch).
    """
    span = fold(dilation * (window - 1) + 1)
    reach = fold(size + (low + high) - span)
    if not ceil_mode:
        count = fold(reach // stride + 1)
    else:
        count = fold((reach + (stride - 1)) // stride + 1)
        if not isinstance(span, int) or high + stride > span:
            starts = fold((size + (low - 1)) // stride + 1)
            if isinstance(count, int) and isinstance(starts, int):
                count = min(count, starts)
            else:
                count = fold(tir.min(count, starts))
    if isinstance(count, int) and count <= 0 and not (isinstance(size, int) and size == 0):
        raise OpError(
            f"a window of {window} (dilation {dilation}) does not fit in a dimension of {size} "
            f"with padding ({low}, {high})"
        )
    return count


def pairs(padding: Sequence[int], ndim: int, name: str = "padding") -> list[tuple[int, int]]:
    """(before, after) per spatial axis from TVM's forms: one number, one per axis, or all befores
    followed by all afters.
    """
    if len(padding) == 1:
        return [(padding[0], padding[0])] * ndim
    if len(padding) == ndim:
        return [(p, p) for p in padding]
    if len(padding) == 2 * ndim:
        return list(zip(padding[:ndim], padding[ndim:], strict=True))
    raise OpError(f"`{name}` must have 1, {ndim} or {2 * ndim} entries; got {tuple(padding)}")


def per_axis(values: Sequence[int], ndim: int, name: str) -> tuple[int, ...]:
    """One value per spatial axis; a single one serves all."""
    if len(values) == 1:
        return tuple(values) * ndim
    if len(values) != ndim:
        raise OpError(f"`{name}` must have 1 or {ndim} entries; got {tuple(values)}")
    return tuple(values)

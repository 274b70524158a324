"""What converters work with: the node at hand, type promotion, and emitting bindings."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from relax2xla import op as R
from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import dtype_name, is_float, is_integer, limits
from relax2xla.importers.shared import conversion as _conversion
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import wrapped
from relax2xla.importers.shared.ranges import range_of
from relax2xla.importers.shared.tensors import chlo as chlo
from relax2xla.importers.shared.tensors import dims_of as dims_of
from relax2xla.importers.shared.tensors import dtype_of as dtype_of
from relax2xla.importers.shared.tensors import info_of as info_of
from relax2xla.importers.shared.tensors import ndim_of as ndim_of
from relax2xla.importers.shared.tensors import row as row
from relax2xla.importers.torch.source.symbols import Symbols
from relax2xla.ir import Constant, Expr, ShapeExpr, TensorStructInfo, Var, const

Dim = tir.Dim
Dims = tuple[Dim, ...]
Number = bool | int | float | complex

LARGEST_E4M3FN = 448.0
# Torch keeps what is between the steps of an operator on these in float32, and rounds once.
NARROW = ("float16", "bfloat16")


def dtype_of_torch(dtype: torch.dtype) -> str:
    """Relax name of a torch dtype; a gap for one that is not in the dtype table."""
    try:
        return dtype_name(dtype)
    except TypeError:
        instead = "use torch.complex64 (x.cfloat())" if dtype == torch.complex32 else ""
        raise Unsupported(f"the dtype {dtype} has no Relax counterpart", instead) from None


def axis_of(axis: int, ndim: int) -> int:
    """``axis`` counted from the front; 0 and -1 are axes of a scalar too, as in torch."""
    return axis % max(ndim, 1)


def axes_of(axes: int | Sequence[int] | None, ndim: int) -> list[int]:
    """Axes counted from the front; None and the empty list are all of them."""
    if axes is None or (not isinstance(axes, int) and len(axes) == 0):
        return list(range(ndim))
    given = [axes] if isinstance(axes, int) else axes
    return [axis_of(a, ndim) for a in given] if ndim else []


class UnknownSize(Unsupported):
    """A converter needs a size that is symbolic; torch's decomposition may do without it."""


def static(dim: Any, what: str) -> int:
    """``dim`` as an integer; :class:`UnknownSize` where it is symbolic."""
    if not isinstance(dim, int):
        raise UnknownSize(
            f"{what} must be known at compile time; it is {dim}", "export with a static dimension"
        )
    return dim


def smaller(a: Dim, b: Dim) -> Dim:
    """The smaller of two dimensions, which are never negative."""
    return 0 if 0 in (a, b) else tir.as_dim(tir.simplify(tir.min(a, b)))


def larger(a: Dim, b: Dim) -> Dim:
    """The larger of two dimensions."""
    return tir.as_dim(tir.simplify(tir.max(a, b)))


_PROTOTYPES: dict[tuple[str, bool], torch.Tensor] = {}


def _prototype(x: Expr) -> torch.Tensor:
    """A tensor that promotes as ``x`` does: its dtype, and whether it has dimensions."""
    info = info_of(x)
    key = (info.dtype, info.ndim > 0)
    if key not in _PROTOTYPES:
        shape = (1,) if key[1] else ()
        dtype = getattr(torch, info.dtype)
        _PROTOTYPES[key] = torch.empty(shape, dtype=dtype, device="meta")
    return _PROTOTYPES[key]


def result_type(*values: Any) -> str:
    """dtype that torch computes in when these tensors and numbers meet.

    Tensors with dimensions come first, then those of rank 0, then numbers; an operand of a lower
    kind counts only where it is of a higher category (bool, integer, float, complex).
    """
    groups: list[torch.dtype | None] = [None, None, None]
    for v in values:
        if isinstance(v, Expr):
            proto = _prototype(v)
            kind, dtype = (0 if proto.ndim else 1), proto.dtype
        else:
            kind = 2
            dtype = torch.int64 if isinstance(v, tir.PrimExpr) else torch.result_type(v, v)
        known = groups[kind]
        groups[kind] = dtype if known is None else torch.promote_types(known, dtype)
    dimensioned, scalars, numbers = groups
    found = dimensioned or scalars or numbers
    if found is None:
        raise Unsupported("no operand has a dtype")
    if dimensioned is not None and scalars is not None:
        found = torch.result_type(_meta(dimensioned, (1,)), _meta(scalars, ()))
    if numbers is not None and found is not numbers:
        found = torch.result_type(_meta(found, (1,)), _NUMBER[_category(numbers)])
    return dtype_name(found)


_NUMBER: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


def _category(dtype: torch.dtype) -> str:
    if dtype.is_complex:
        return "complex"
    if dtype.is_floating_point:
        return "float"
    return "bool" if dtype == torch.bool else "int"


def _meta(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@dataclass(kw_only=True, eq=False)
class Context:
    """One node under conversion.

    values: of the nodes before it, for those that read what an operand is a view of
    out:    what torch says of its result (a fake tensor, or a tuple of them)
    node:   itself, for the few operators that need to know how torch lays an operand out in memory
    draws:  numbers that tell the operators of a program apart that draw random numbers
    stops:  what torch detaches has no gradient in Relax either
    wide:   the result is said to be of float32 where it is of a narrow kind, and rounded later
    """

    builder: BlockBuilder
    symbols: Symbols
    values: Mapping[Any, Any]
    out: Any = None
    node: Any = None
    conditions: dict[str, None] = field(default_factory=dict[str, None])
    draws: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    wide: bool = False
    stops: bool = False

    def giving(self, *out: Any) -> Context:
        """The same node, of which is said that it has these results."""
        return replace(self, out=out)

    # -- the result as torch describes it ----------------------------------------------------
    def dims(self, index: int | None = None) -> Dims:
        """Shape of the result, or of field ``index`` of it."""
        return self.symbols.dims((self.out if index is None else self.out[index]).shape)

    def dtype(self, index: int | None = None) -> str:
        """dtype of the result, or of field ``index`` of it, that a converter computes it in."""
        found = dtype_of_torch((self.out if index is None else self.out[index]).dtype)
        return "float32" if self.wide and found in NARROW else found

    def becomes_integers(self) -> bool:
        """Whether all that reads the result makes integers of it, which have no derivative."""
        users = [] if self.node is None else [u.meta.get("val") for u in self.node.users]
        tensors = [x for x in users if isinstance(x, torch.Tensor)]
        return 0 < len(users) == sum(not x.is_floating_point() for x in tensors)

    def reads(self, index: int) -> bool:
        """Whether the graph reads field ``index`` of the result."""
        users = [] if self.node is None else list(self.node.users)
        taken = [u for u in users if u.target is operator.getitem and u.args[1] == index]
        others = any(u.target is not operator.getitem for u in users)
        return others or not users or any(u.users for u in taken)

    def require(self, condition: Any) -> None:
        """Let each call check a condition on sizes; False is a gap now."""
        known = tir.simplify(condition) if isinstance(condition, tir.PrimExpr) else condition
        if isinstance(known, tir.IntImm):
            known = bool(known.value)
        if known is False:
            raise Unsupported(f"the condition `{condition}`, which never holds")
        if known is not True:
            self.conditions[str(known)] = None

    def never_negative(self, value: tir.PrimExpr) -> bool:
        """Whether that follows from sizes; numbers that are inputs may be negative."""
        return self.symbols.never_negative(value)

    # -- emitting ----------------------------------------------------------------------------
    def emit(self, value: Expr) -> Expr:
        """Bind a value that is used more than once."""
        return value if isinstance(value, Var) else self.builder.emit(value)

    def cast(self, x: Expr, dtype: str) -> Expr:
        """``x`` in another dtype; float8_e4m3fn, without infinity, ends at its largest number.

        Booleans choose between 1 and 0: XLA makes of products with converted ones a choice between
        the other factor and 0, where torch has NaN times 0.
        """
        if dtype_of(x) == dtype:
            return x
        if dtype_of(x) == "bool" and is_float(dtype):
            return R.where(x, scalar(1, dtype), scalar(0, dtype))
        if dtype == "float8_e4m3fn":
            wide = x if is_float(dtype_of(x)) else R.astype(x, "float32")
            x = R.clip(wide, -LARGEST_E4M3FN, LARGEST_E4M3FN)
        bound = self.builder.lookup_binding(x) if isinstance(x, Var) else x
        if _conversion.fits(bound, dtype):
            return R.astype(x, dtype)
        return _conversion.converted(x, dtype)

    def tensor(self, value: Any, dtype: str) -> Expr:
        """A tensor, number or symbolic integer as a tensor of ``dtype``."""
        if isinstance(value, Expr):
            return self.cast(value, dtype)
        if isinstance(value, tir.PrimExpr):
            if value.dtype == "bool":
                value = tir.if_then_else(value, 1, 0)
            if self.never_negative(value):
                vector = R.shape_to_tensor(ShapeExpr((value,)))
            else:  # no dimension: it may be negative
                vector = R.arange(value, value + 1, 1, "int64")
            return self.cast(R.reshape(vector, ()), dtype)
        return scalar(value, dtype)

    def promote(self, *values: Any, dtype: str | None = None) -> list[Expr]:
        """Tensors of the dtype that torch computes in (or of ``dtype``)."""
        common = dtype or result_type(*values)
        return [self.tensor(v, common) for v in values]

    def reshape(self, x: Expr, dims: Iterable[Dim]) -> Expr:
        """``x`` in another shape."""
        shape = tuple(dims)
        return x if info_of(x).dims == shape else R.reshape(x, shape)

    def full(self, dims: Dims, value: Any, dtype: str) -> Expr:
        """A tensor that holds one value everywhere."""
        return R.full(dims, self.tensor(value, dtype), dtype)

    def count(self, x: Expr, axes: Iterable[int], minus: Any, dtype: str) -> Expr:
        """Number of elements along ``axes``, less ``minus``, at least zero, as a scalar."""
        total: Any = 1
        for a in axes:
            total = total * dims_of(x)[a]
        if isinstance(total, int):
            return scalar(max(total - minus, 0), dtype)
        return R.maximum(
            R.subtract(self.tensor(total, dtype), scalar(minus, dtype)), scalar(0, dtype)
        )

    def grid(
        self, sizes: Sequence[Dim], steps: Sequence[Dim], start: Dim = 0, dtype: str = "int64"
    ) -> Expr:
        """``start + i * steps[0] + j * steps[1] + ...`` at each place (i, j, ...) of ``sizes``."""
        rank = len(sizes)
        one = [1] * rank
        numbers = [v for v in (start, *sizes, *steps) if isinstance(v, int)]
        if len(numbers) == 1 + 2 * rank:
            at = np.full(one, numbers[0], dtype)
            for axis in range(rank):
                line = np.arange(numbers[1 + axis], dtype=dtype) * numbers[1 + rank + axis]
                at = at + line.reshape((*one[:axis], -1, *one[axis + 1 :]))
            return Constant(np.array(at, dtype, order="C"))
        total = self.tensor(start, dtype)
        for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
            line = R.multiply(R.arange(0, size, 1, dtype), self.tensor(step, dtype))
            total = R.add(total, R.reshape(line, (*one[:axis], size, *one[axis + 1 :])))
        return self.emit(total)

    def shaped(self, x: Expr, dims: Dims) -> Expr:
        """``x`` as a variable of this shape, where an operator cannot tell it of symbolic sizes."""
        x = self.emit(x)
        info = info_of(x)
        if info.dims is not None:
            return x
        return self.builder.match_cast(x, TensorStructInfo(dims, info.dtype))

    def from_front(self, index: Expr) -> bool:
        """Whether no index is negative."""
        known = range_of(index, self.builder.lookup_binding)
        return known is not None and known[0] >= 0

    def wrap(self, index: Expr, size: Dim) -> Expr:
        """Indices that may be negative, counted from the front."""
        index = self.emit(index)
        if self.from_front(index):
            return index
        dtype = dtype_of(index)
        return wrapped(index, self.tensor(size, dtype), scalar(0, dtype))


def scalar(value: Number, dtype: str) -> Constant:
    """A 0-dimensional constant; integers too large for theirs wrap around, as torch's do.

    Raises ``Unsupported`` for a fraction among integers, and complex numbers among real ones.
    """
    if isinstance(value, float) and is_integer(dtype) and not value.is_integer():
        raise Unsupported(f"the number {value} meets a tensor of {dtype}")
    if isinstance(value, complex) and not dtype.startswith("complex"):
        raise Unsupported(f"the complex number {value} meets a tensor of {dtype}")
    if is_integer(dtype):
        low, high = limits(dtype)
        if not low <= value <= high:  # pyright: ignore[reportOperatorIssue]
            value = low + (int(value.real) - low) % (high - low + 1)
    return const(value, dtype)


def stated_dtype(x: Expr) -> str | None:
    """``out_dtype`` of products of ``x``: TVM's importers state float32, which changes nothing."""
    return "float32" if dtype_of(x) == "float32" else None


def broadcast(x: Expr, dims: Dims) -> Expr:
    """``x`` broadcast to the shape ``dims``."""
    return x if dims_of(x) == dims else R.broadcast_to(x, dims)


def as_bool(x: Expr) -> Expr:
    """Where ``x`` is not zero."""
    return x if dtype_of(x) == "bool" else R.astype(x, "bool")


def want_float(x: Expr, what: str) -> None:
    """A gap unless ``x`` is a real floating-point tensor."""
    if not is_float(dtype_of(x)):
        raise Unsupported(f"{what} of a {dtype_of(x)} tensor")

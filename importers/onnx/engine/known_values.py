"""Values that are known at import: constants, and integers that depend on symbolic dimensions.

The integers that exporters compute from shapes (``Shape``, ``Gather``, ``Concat``, ``Mul``, ...)
are arrays of Python integers and symbolic expressions here, so that numpy's functions move them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import dtype_name, is_float, is_integer
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.tensors import dims_of as dims_of
from relax2xla.importers.shared.tensors import dtype_of as dtype_of
from relax2xla.importers.shared.tensors import info_of as info_of
from relax2xla.importers.shared.tensors import ndim_of as ndim_of
from relax2xla.ir import Constant, Expr, ShapeExpr, Span, Tuple
from relax2xla.tir import Dim

Array = npt.NDArray[Any]


class NeedsValue(Unsupported):
    """Raised by a converter that must know ``value`` at import, which is computed at run time."""

    def __init__(self, value: Expr, what: str) -> None:
        super().__init__(
            f"{what} is computed at run time; it must be known at import",
            "fold it to a constant, or give static shapes in shape_dict",
        )
        self.value = value


class Host:
    """A value known at import.

    ``data``: an array; of dtype object where it holds symbolic integers (then ``dtype`` is what the
    tensor has). ``fold`` is False for a parameter that stays an input of the function: its value
    is known, but what is computed from it is left to run time.
    """

    __slots__ = ("_expr", "data", "dtype", "fold")
    _expr: Expr | None

    def __init__(
        self, data: Array, dtype: str | None = None, expr: Expr | None = None, fold: bool = True
    ) -> None:
        self.data = data
        self.dtype = dtype_name(data.dtype) if dtype is None else dtype
        self._expr = expr
        self.fold = fold

    @classmethod
    def weight(cls, data: Array, name: str, is_number: Callable[[str], bool]) -> Host:
        """An initializer: where it may be a weight it keeps its name, and is not folded away.

        So ``VirtualMachine.set_params`` reaches all that depends on it. Other integers than those
        of quantised weights are constants, and so are single numbers, but for those of floats that
        ``is_number`` knows: these are parameters for who differentiates, as torch's are.
        """
        info = dtype_name(data.dtype)
        if not data.ndim and is_float(info) and is_number(name):
            return cls(data, expr=Constant(data, span=Span(name, metadata="parameter")), fold=False)
        is_weight = data.ndim > 0 and (not is_integer(info) or "8" in info) and data.dtype != bool
        if not is_weight or data.dtype.kind in "OSUT":
            return cls(data)
        return cls(data, expr=Constant(data, span=Span(name=name)), fold=False)

    def known(self) -> Array:
        """The data, for what is decided by it at import: it has no name to be replaced by then."""
        if isinstance(self._expr, Constant):
            self._expr.span = None
        return self.data

    @property
    def symbolic(self) -> bool:
        """Whether it holds symbolic integers."""
        return self.data.dtype == object

    @property
    def expr(self) -> Expr:
        """The value as an expression, made at the first use."""
        if self._expr is None:
            self._expr = self._made() if self.symbolic else Constant(self.data)
        return self._expr

    def _made(self) -> Expr:
        items = [tir.as_dim(v) for v in self.data.reshape(-1)]
        whole = len(items) == 1 or all(map(_never_negative, items))
        vector: Expr = _vector(items) if whole else R.concat([_vector([v]) for v in items])
        if self.data.ndim != 1:
            vector = R.reshape(vector, self.data.shape)
        return vector if self.dtype == "int64" else R.astype(vector, self.dtype)


class Items(Host):
    """A sequence: tensors whose number is known at import, as one tuple."""

    def __init__(self, items: Iterable[Expr]) -> None:
        super().__init__(np.empty(0), "sequence", expr=Tuple(list(items)), fold=False)


class Text(Host):
    """Strings that are known at import: an array of dtype object."""

    def __init__(self, data: Array) -> None:
        super().__init__(data, "string", fold=False)

    @property
    def symbolic(self) -> bool:
        """No string is an integer."""
        return False

    @property
    def expr(self) -> Expr:
        """The strings as the value of an operator on the host."""
        found = self._expr
        if found is None:
            flat = tuple(str(v) for v in self.data.reshape(-1).tolist())
            found = self._expr = R.text.constant(flat, tuple(self.data.shape))
        return found


def text_of(values: Iterable[str], shape: Iterable[int]) -> Text:
    """Known strings in row-major order."""
    items = list(values)
    data = np.empty(len(items), object)
    data[:] = items
    return Text(data.reshape(tuple(shape)))


def _vector(items: list[Dim]) -> Expr:
    """Integers as an int64 vector; several of them are never negative."""
    numbers = [v for v in items if isinstance(v, int)]
    if len(numbers) == len(items):
        return Constant(np.array(numbers, np.int64))
    if len(items) == 1 and not _never_negative(items[0]):  # no shape holds it
        return R.arange(items[0], items[0] + 1, 1, "int64")
    return R.shape_to_tensor(ShapeExpr(items))


def _never_negative(value: Dim) -> bool:
    """Whether that is known; a variable of a shape never is."""
    if isinstance(value, int):
        return value >= 0
    return tir.Analyzer(tir.free_vars(value)).can_prove_greater_equal(value, 0)


def integers(values: Iterable[Any], dtype: str = "int64", ndim: int = 1) -> Host:
    """A host value of (symbolic) integers: a vector, or a scalar with ``ndim=0``."""
    items = [tir.as_dim(v) for v in values]
    if all(isinstance(v, int) for v in items):
        data = np.array(items, dtype)
    else:
        data = np.empty(len(items), object)
        data[:] = items
    return Host(data if ndim else data.reshape(()), dtype)


# More terms take a symbolic size longer to simplify than anything needs.
TERMS = 256


def sprawls(value: Any) -> bool:
    """Whether a symbolic integer has more than TERMS terms, each place of a shared one counted."""
    if not isinstance(value, tir.PrimExpr):
        return False
    stack, count = [value], 0
    while stack and count <= TERMS:
        count += 1
        stack.extend(stack.pop().children())
    return count > TERMS


def tidy(data: Array, dtype: str) -> Host:
    """The host value of an array that may be of dtype object: simplified, plain where it can be."""
    if data.dtype != object:
        return Host(data)
    flat = [tir.simplify(v) if isinstance(v, tir.PrimExpr) else int(v) for v in data.reshape(-1)]
    made = integers(flat, dtype)
    return Host(made.data.reshape(data.shape), dtype)


def static(value: Any, what: str) -> int:
    """``value`` as an integer; a gap where it is symbolic."""
    value = tir.as_dim(value)
    if not isinstance(value, int):
        raise Unsupported(
            f"{what} must be known at import; it is {value}", "give the shape in shape_dict"
        )
    return value


def statics(values: Iterable[Any], what: str) -> list[int]:
    """Integers, each known at import."""
    return [static(v, what) for v in values]


def axis_of(axis: int, ndim: int) -> int:
    """``axis`` counted from the front. Raises ``ValueError`` out of range."""
    if not -ndim <= axis < ndim:
        raise ValueError(f"the axis {axis} is out of range for a tensor of rank {ndim}")
    return axis % ndim


def scalar(value: Any, dtype: str) -> Constant:
    """A 0-dimensional constant. Integer dtypes take numbers within their range."""
    from relax2xla.dtypes import numpy_dtype

    if is_integer(dtype):
        value = int(value)
    return Constant(np.asarray(value, numpy_dtype(dtype)))


def like(x: Expr, value: float) -> Constant:
    """A scalar of the dtype of ``x``."""
    return scalar(value, dtype_of(x))

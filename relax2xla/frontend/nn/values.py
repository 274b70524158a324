"""What models compute with: Tensor, Parameter and Object, and the expressions behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import dtype_name, is_float, numpy_dtype
from relax2xla.errors import BuilderError
from relax2xla.ir import (
    Constant,
    Expr,
    ObjectStructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    const,
)
from relax2xla.ir.rewrite import post_order

IntExpr = int | tir.PrimExpr
Size = int | str | tir.PrimExpr

_default_dtype = "float32"
# TVM's name of an 8-bit float without its kind: a parameter may be declared so, nothing computes
# with it.
_FLOAT8 = "float8"
# As in TVM, constants without a dtype are of 32 bits.
_NARROW = {"float64": "float32", "int64": "int32"}


def get_default_dtype() -> str:
    """The dtype of parameters that are made without one: float32, unless it was changed."""
    return _default_dtype


def set_default_dtype(dtype: str) -> None:
    """Make ``dtype`` that of parameters without one. Raises TypeError for an unknown one."""
    global _default_dtype
    _default_dtype = dtype_name(dtype)


class Tensor:
    """A value of a model under construction: an expression that is a tensor of known rank.

    It has no numbers; ``shape`` and ``dtype`` are known as soon as an operator made it. Users never
    construct one; methods get them, and operators give them. Python's operators work as in torch;
    a number takes the tensor's dtype.
    """

    _expr: Expr
    # numpy arrays at the left of an operator leave it to the tensor.
    __array_ufunc__ = None

    def __init__(self, *, _expr: Expr) -> None:
        info = _expr.struct_info_
        if not isinstance(info, TensorStructInfo) or info.dims is None:
            raise TypeError(f"an nn.Tensor is a tensor of known shape; got {info}")
        self._expr = _expr

    @staticmethod
    def from_const(data: Any, dtype: str | None = None) -> Tensor:
        """A constant. As in TVM, float64 and int64 become float32 and int32 unless ``dtype`` says
        otherwise; ValueError where an integer does not fit.
        """
        array = np.asarray(data)
        kind = dtype or _NARROW.get(str(array.dtype), str(array.dtype))
        if dtype is None and kind == "int32" and array.size:
            low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
            if array.min() < low or array.max() > high:
                raise ValueError("from_const: values beyond int32; give dtype='int64'")
        return Tensor(_expr=const(array, kind))

    @staticmethod
    def from_scalar(data: int | float, dtype: str) -> Tensor:
        """A 0-dimensional constant."""
        return Tensor(_expr=const(data, dtype))

    @staticmethod
    def from_struct_info(struct_info: TensorStructInfo, name: str = "tensor") -> Tensor:
        """A placeholder that ``struct_info`` describes."""
        return Tensor(_expr=Var(name, struct_info))

    @staticmethod
    def placeholder(shape: Sequence[Size], dtype: str, name: str = "tensor") -> Tensor:
        """A placeholder: what an external function gives, for example.

        A string in ``shape`` makes a new ``tir.Var`` of that name. Raises TypeError for what is no
        size, ValueError for a negative one.
        """
        return Tensor(_expr=Var(name, _tensor_info(shape, dtype)))

    @property
    def shape(self) -> list[Any]:
        """The sizes: ints where they are known, else symbolic expressions."""
        return list(self._info.dims or ())

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> str:
        """The name of the dtype."""
        return self._info.dtype

    @property
    def _info(self) -> TensorStructInfo:
        info = self._expr.struct_info
        assert isinstance(info, TensorStructInfo)
        return info

    def __repr__(self) -> str:
        return f'{type(self).__name__}([{", ".join(map(str, self.shape))}], "{self.dtype}")'

    def __bool__(self) -> bool:
        raise TypeError(
            "an nn.Tensor has no numbers yet, so that `if`, `and`, `or`, `not`, min and max cannot "
            "ask for its truth; op.where chooses by values, op.maximum and op.minimum compare them"
        )

    # -- operators, which are functions of `op`
    def __add__(self, other: Any) -> Tensor:
        return _ops().add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _ops().add(self, other)

    def __sub__(self, other: Any) -> Tensor:
        return _ops().subtract(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _ops().subtract(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _ops().multiply(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _ops().multiply(self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return _ops().divide(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _ops().divide(other, self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return _ops().matmul(self, other)

    def __neg__(self) -> Tensor:
        return _ops().negative(self)

    def __lt__(self, other: Any) -> Tensor:
        return _ops().less(self, other)

    def __le__(self, other: Any) -> Tensor:
        return _ops().less_equal(self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _ops().greater(self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _ops().greater_equal(self, other)

    def astype(self, dtype: str) -> Tensor:
        """``op.astype(self, dtype)``."""
        return _ops().astype(self, dtype)

    def maximum(self, other: Any) -> Tensor:
        """``op.maximum(self, other)``."""
        return _ops().maximum(self, other)

    def minimum(self, other: Any) -> Tensor:
        """``op.minimum(self, other)``."""
        return _ops().minimum(self, other)

    def reshape(self, *shape: IntExpr) -> Tensor:
        """``op.reshape(self, shape)``."""
        return _ops().reshape(self, shape)

    def permute_dims(self, *axes: int) -> Tensor:
        """``op.permute_dims(self, axes)``; without axes their order is reversed."""
        return _ops().permute_dims(self, list(axes) or None)

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """``op.repeat(self, repeats, axis)``."""
        return _ops().repeat(self, repeats, axis)


class Parameter(Tensor):
    """A weight: a Tensor that may be bound to an array (``data``), and holds None before.

    shape: ints, expressions, or strings, each of which names a symbolic size. dtype None: the
    default dtype. ``attrs`` is a dict for what tools want to remember.
    """

    def __init__(self, shape: Sequence[Size], dtype: str | None = None) -> None:
        super().__init__(_expr=Var("param", _tensor_info(shape, dtype or get_default_dtype())))
        self._data: Any = None
        self.attrs: dict[str, Any] = {}

    @property
    def data(self) -> Any:
        """The array that the parameter is bound to, a ``jax.Array``, or None.

        It may be set to None and to a numpy, jax or torch array, or to whatever speaks DLPack; the
        values are copied. Raises ValueError where dtype or shape differ (a symbolic size takes
        any), TypeError for what is no array.
        """
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        self._data = None if data is None else self.checked(data)

    def checked(self, data: Any, cast: bool = False) -> Any:
        """``data`` as an array that fits the parameter; see ``data``. cast: in its dtype."""
        array = _host_array(data)
        wanted = self.shape
        fits = len(wanted) == array.ndim and all(
            not isinstance(w, int) or w == n for w, n in zip(wanted, array.shape, strict=True)
        )
        if not fits:
            raise ValueError(
                f"shape mismatch: the parameter is {tuple(wanted)}, the array {array.shape}"
            )
        if cast:
            array = array.astype(numpy_dtype(self.dtype))
        if dtype_name(array.dtype) != self.dtype:
            raise ValueError(
                f"dtype mismatch: the parameter is {self.dtype}, the array "
                f"{dtype_name(array.dtype)}; cast it, or make the parameter so with .to(dtype)"
            )
        from relax2xla import nd

        return nd.array(array)

    def rebind(self, expr: Expr) -> None:
        """Stand for ``expr``: what the function that is being traced knows it as."""
        self._expr = expr

    def to(self, dtype: str | None = None) -> None:
        """Make it a parameter of ``dtype``; ValueError while it is bound to an array."""
        if dtype is None:
            return
        if self._data is not None:
            raise ValueError(
                "a Parameter that holds data keeps its dtype; set .data to None first, and then to "
                "the array in the new dtype"
            )
        self._expr = Var("param", _tensor_info(self.shape, dtype))


class Object:
    """A value that is no tensor, a cache for example: an expression of plain object struct info."""

    _expr: Var

    def __init__(self, *, _expr: Expr, _name: str) -> None:
        if not isinstance(_expr, Var):
            _expr = current_builder("an nn.Object").emit(_expr, _name)
        if type(_expr.struct_info_) is not ObjectStructInfo:
            raise TypeError(f"an nn.Object is an object; got {_expr.struct_info_}")
        self._expr = _expr


# -- expressions -----------------------------------------------------------------------------------
def current_builder(what: str) -> BlockBuilder:
    """The builder at work; BuilderError where there is none."""
    builder = BlockBuilder.current()
    if builder is None:
        raise BuilderError(
            f"{what} belongs to a method that is being exported; to compute at once give arrays "
            "(numpy, jax or torch)"
        )
    return builder


def expr_of(value: Any, like: Any = None) -> Expr:
    """The expression of an operand: a Tensor, an array (a constant), or an expression.

    A number takes the dtype of the Tensor ``like``. Raises TypeError for anything else.
    """
    if isinstance(value, Tensor | Object):
        return value._expr  # pyright: ignore[reportPrivateUsage]
    if isinstance(value, Expr):
        return value
    if isinstance(value, tir.IntImm | tir.FloatImm):
        value = value.value
    if isinstance(value, bool | int | float) and isinstance(like, Tensor):
        if isinstance(value, float) and not value.is_integer() and not is_float(like.dtype):
            raise TypeError(
                f"{value} is no number of {like.dtype}; cast the tensor to a float dtype before"
            )
        return const(value, like.dtype)
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return Constant(_host_array(value))
    raise TypeError(f"expected an nn.Tensor; got {type(value).__name__}")


def wrap_nested(expr: Expr, name: str) -> Any:
    """``expr``, bound in the builder at work, as a Tensor; a tuple as a tuple of Tensors.

    name: a hint for the variable; of field ``i`` of a tuple ``name.i``. Raises TypeError where it
    is neither a tensor nor a tuple of them.
    """
    var = expr
    if not isinstance(expr, Var) or expr.struct_info_ is None:
        var = current_builder(name).emit(expr, name)
    info = var.struct_info_
    if isinstance(info, TensorStructInfo):
        if info.dims is None:
            infos = [x.struct_info_ for x in post_order(expr) if x is not expr]
            tensors = [str(i) for i in infos if isinstance(i, TensorStructInfo)]
            given = ", ".join(tensors) or "what it is given"
            raise TypeError(
                f"{name}: the shape of the result is not known, as nothing shows that sizes of "
                f"{given} fit. Write sizes that follow from each other with one symbol, or state "
                "them: `bb.match_cast` before wrap_nested checks them at run time"
            )
        return Tensor(_expr=var)
    if isinstance(info, TupleStructInfo):
        fields = range(len(info.fields))
        return tuple(wrap_nested(TupleGetItem(var, i), f"{name}.{i}") for i in fields)
    raise TypeError(f"{name} gives neither a tensor nor a tuple of tensors, but {info}")


def unwrap_nested(value: Any, what: str) -> Expr:
    """The expression of Tensors and Objects in nested tuples and lists; TypeError otherwise."""
    if isinstance(value, tuple | list):
        items: Sequence[Any] = value
        return Tuple([unwrap_nested(v, what) for v in items])
    if isinstance(value, Tensor | Object | Expr):
        return expr_of(value)
    raise TypeError(
        f"{what} must be a Tensor, an Object, or a tuple of them; got {type(value).__name__}"
    )


def _tensor_info(shape: Sequence[Size], dtype: str) -> TensorStructInfo:
    dims = [_dim(d) for d in shape]
    if dtype == _FLOAT8:
        return TensorStructInfo.make(tuple(dims), _FLOAT8)
    return TensorStructInfo(dims, dtype)


def _dim(size: Any) -> int | tir.PrimExpr:
    if isinstance(size, str):
        return tir.Var(size, "int64")
    if isinstance(size, tir.IntImm | np.integer):
        size = int(size.value if isinstance(size, tir.IntImm) else size)
    if isinstance(size, bool) or not isinstance(size, int | tir.PrimExpr):
        raise TypeError(f"a size is an int, a name or an expression; got {size!r}")
    if isinstance(size, int) and size < 0:
        raise ValueError(f"a size must not be negative; got {size}")
    return size


def _host_array(data: Any) -> Any:
    from relax2xla.errors import CallError
    from relax2xla.runtime.convert import to_host

    try:
        return to_host(data)
    except CallError as e:
        raise TypeError(str(e)) from None


# Python's operators of Tensors are functions of `op`, which is made of what stands here: it hands
# itself in.
_operators: Any = None


def use_operators(namespace: Any) -> None:
    """Let ``namespace.add`` be what ``+`` of Tensors does, and so on."""
    global _operators
    _operators = namespace


def _ops() -> Any:
    return _operators

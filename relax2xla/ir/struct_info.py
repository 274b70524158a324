"""Struct info: what is known of a value at compile time (the static type and symbolic shape).

Every class is a value: equality is structural, symbolic variables compare by identity. Dimensions
are ``Dim = int | PrimExpr`` in normal form (a known dimension is always a Python int).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from relax2xla import tir
from relax2xla.dtypes import dtype_name
from relax2xla.errors import StructInfoError
from relax2xla.ir import late
from relax2xla.ir.base import Node, Scriptable, Span, VDevice
from relax2xla.ir.mesh import DeviceMesh, Placement
from relax2xla.tir import Dim

if TYPE_CHECKING:
    from relax2xla.ir.expr import Expr

Dims = tuple[Dim, ...]


class StructInfo(Node, Scriptable):
    """Base class of all struct infos."""

    __slots__ = ("span",)
    span: Span | None

    def key(self) -> tuple[Any, ...]:
        """The fields that make two struct infos equal."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def same_as(self, other: object) -> bool:
        """Structural equality (not object identity)."""
        return self == other

    def is_base_of(self, derived: StructInfo) -> bool:
        """Whether every value described by ``derived`` is described by ``self``."""
        return late.is_base_of.call(self, derived)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, StructInfo)
            and type(self) is type(other)
            and self.key() == other.key()
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.key()))

    def __repr__(self) -> str:
        return show(self)

    def __str__(self) -> str:
        return show(self)


class ObjectStructInfo(StructInfo):
    """Any value at all; nothing more is known."""

    __slots__ = ()

    def __init__(self, span: Span | None = None) -> None:
        self.span = span

    def key(self) -> tuple[Any, ...]:
        return ()


class PrimStructInfo(StructInfo):
    """A scalar of a dtype, with its value if known (``value`` implies the dtype)."""

    __slots__ = ("dtype", "value")
    dtype: str
    value: tir.PrimExpr | None

    def __init__(
        self,
        dtype: Any = None,
        value: int | float | tir.PrimExpr | None = None,
        span: Span | None = None,
    ) -> None:
        if isinstance(dtype, tir.PrimExpr):
            dtype, value = None, dtype
        if value is None:
            if dtype is None:
                raise StructInfoError("PrimStructInfo needs a dtype, a value, or both")
            if isinstance(dtype, list | tuple):
                raise StructInfoError(f"PrimStructInfo is of one scalar; got {dtype!r}")
            self.dtype, self.value = dtype_name(dtype), None
        else:
            if not isinstance(value, tir.PrimExpr):
                default = "bool" if isinstance(value, bool) else "int64"
                if isinstance(value, float):
                    default = "float32"
                value = tir.const(value, dtype_name(dtype) if dtype else default)
            if dtype is not None and dtype_name(dtype) != value.dtype:
                raise StructInfoError(
                    f"PrimStructInfo has dtype {dtype_name(dtype)} but its value {value} is "
                    f"{value.dtype}; leave the dtype out or cast the value"
                )
            self.dtype, self.value = value.dtype, value
        self.span = span

    def key(self) -> tuple[Any, ...]:
        return (self.dtype, self.value)


class ShapeStructInfo(StructInfo):
    """A shape value: its dimensions if known (``values``), else its rank (-1 unknown)."""

    __slots__ = ("ndim", "values")
    values: Dims | None
    ndim: int

    def __init__(
        self, values: Iterable[Dim] | None = None, ndim: int = -1, span: Span | None = None
    ) -> None:
        _want_rank(ndim)
        if values is not None and ndim != -1:
            raise StructInfoError("ShapeStructInfo takes values or ndim, not both")
        self.values = None if values is None else as_dims(values)
        self.ndim = ndim if self.values is None else len(self.values)
        self.span = span

    def key(self) -> tuple[Any, ...]:
        return (self.values, self.ndim)


def _want_rank(ndim: object) -> None:
    if not isinstance(ndim, int) or ndim < -1:
        raise StructInfoError(f"ndim is the number of axes, or -1 where unknown; got {ndim!r}")


class TensorStructInfo(StructInfo):
    """A tensor: shape, dtype, virtual device.

    ``shape`` is a sequence of dimensions, a ShapeExpr, a Var that holds a shape, or None (unknown,
    then ``ndim`` may be known; -1 unknown). ``dtype`` "" means unknown; so do None and "void".
    """

    __slots__ = ("_hash", "_shape", "dims", "dtype", "ndim", "vdevice")
    dims: Dims | None
    dtype: str
    ndim: int
    vdevice: VDevice | None
    _shape: Expr | None
    _hash: int

    def __init__(
        self,
        shape: Expr | Iterable[Dim] | None = None,
        dtype: Any = "float32",
        vdevice: VDevice | str | None = None,
        ndim: int = -1,
        span: Span | None = None,
    ) -> None:
        _want_rank(ndim)
        if shape is not None and ndim != -1:
            raise StructInfoError("TensorStructInfo takes shape or ndim, not both")
        self.dtype = "" if dtype is None or dtype == "void" else dtype_name(dtype)
        self.vdevice = VDevice(vdevice) if isinstance(vdevice, str) else vdevice
        self.span = span
        self._shape = None
        self.dims = None
        self.ndim = ndim
        if shape is None:
            return
        if isinstance(shape, tuple | list):
            self.dims = as_dims(shape)
        else:
            from relax2xla.ir.expr import Expr, ShapeExpr

            if isinstance(shape, ShapeExpr):
                self.dims, self._shape = shape.values, shape
            elif isinstance(shape, Expr):
                self._shape = shape
                known = shape.struct_info_
                if not isinstance(known, ShapeStructInfo):
                    raise StructInfoError(
                        f"a tensor's shape must be a shape value; got struct info {known}"
                    )
                self.ndim = known.ndim
                return
            else:
                self.dims = as_dims(shape)
        self.ndim = len(self.dims)

    @staticmethod
    def make(dims: Dims, dtype: str, vdevice: VDevice | None = None) -> TensorStructInfo:
        """The fast road for code that already holds normalised ``dims`` and a dtype name."""
        made = TensorStructInfo.__new__(TensorStructInfo)
        made.dims, made.dtype, made.vdevice, made.ndim = dims, dtype, vdevice, len(dims)
        made._shape = made.span = None
        return made

    @property
    def shape(self) -> Any:
        """The shape as an expression: a ShapeExpr, a Var of shape struct info, or None."""
        if self._shape is None and self.dims is not None:
            from relax2xla.ir.expr import ShapeExpr

            self._shape = ShapeExpr(self.dims)
        return self._shape

    def key(self) -> tuple[Any, ...]:
        shape = self.dims if self.dims is not None else self._shape
        return (shape, self.dtype, self.ndim, self.vdevice)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # Compared for each operand of each call: without the tuples of `key`.
        if type(other) is not TensorStructInfo or self.dtype != other.dtype:
            return False
        if self.dims is None or other.dims is None:
            return self.key() == other.key()
        return self.dims == other.dims and self.vdevice == other.vdevice

    def __hash__(self) -> int:
        # Keys of calls hold the same struct infos again and again.
        try:
            return self._hash
        except AttributeError:
            shape = self.dims if self.dims is not None else self._shape
            self._hash = hash((shape, self.dtype))
            return self._hash


class DTensorStructInfo(StructInfo):
    """A tensor that is spread over the devices of a mesh: ``tensor_sinfo`` is that of the whole.

    ``placement``: what each axis of the mesh does with the tensor; a Placement or its text.
    """

    __slots__ = ("device_mesh", "placement", "tensor_sinfo")
    tensor_sinfo: TensorStructInfo
    device_mesh: DeviceMesh
    placement: Placement

    def __init__(
        self,
        tensor_sinfo: TensorStructInfo,
        device_mesh: DeviceMesh,
        placement: Placement | str,
        span: Span | None = None,
    ) -> None:
        if isinstance(placement, str):
            placement = Placement.from_text(placement)
        if not isinstance(placement, Placement) or not isinstance(device_mesh, DeviceMesh):
            raise StructInfoError(
                "a distributed tensor is spread over a DeviceMesh as a Placement says; got "
                f"{type(device_mesh).__name__} and {type(placement).__name__}"
            )
        if len(placement.axes) != len(device_mesh.shape):
            raise StructInfoError(
                f"a placement says what each of the {len(device_mesh.shape)} axes of the mesh "
                f"does; got {str(placement)!r}"
            )
        wrong = [a for a in placement.axes if a is not None and a >= tensor_sinfo.ndim != -1]
        if wrong:
            raise StructInfoError(
                f"the placement {str(placement)!r} cuts axis {wrong[0]} of {show(tensor_sinfo)}"
            )
        self.tensor_sinfo, self.device_mesh = tensor_sinfo, device_mesh
        self.placement, self.span = placement, span

    def of_tensor(self, tensor_sinfo: TensorStructInfo) -> DTensorStructInfo:
        """Another tensor, spread in the same way."""
        return DTensorStructInfo(tensor_sinfo, self.device_mesh, self.placement)

    def key(self) -> tuple[Any, ...]:
        return (self.tensor_sinfo, self.device_mesh, self.placement)


class TupleStructInfo(StructInfo):
    """A tuple, from the struct infos of its fields."""

    __slots__ = ("fields",)
    fields: tuple[StructInfo, ...]

    def __init__(self, fields: Sequence[StructInfo], span: Span | None = None) -> None:
        if not isinstance(fields, list | tuple) and not isinstance(fields, Iterable):
            raise StructInfoError(
                f"TupleStructInfo takes a list of struct infos; got {type(fields).__name__}"
            )
        self.fields = tuple(fields)
        self.span = span

    def key(self) -> tuple[Any, ...]:
        return self.fields


Derive = Callable[[Any], StructInfo]


class FuncStructInfo(StructInfo):
    """A function: parameters (None: opaque, any arguments), result, purity.

    ``derive_func`` names a function, registered with ``register_func``, that computes the result's
    struct info: it gets the Call, and None in the place of TVM's BlockBuilder.
    """

    __slots__ = ("derive_func", "params", "purity", "ret")
    params: tuple[StructInfo, ...] | None
    ret: StructInfo
    purity: bool
    derive_func: str | None

    def __init__(
        self,
        params: Sequence[StructInfo] | None,
        ret: StructInfo | None = None,
        purity: bool = True,
        span: Span | None = None,
        *,
        derive_func: str | None = None,
    ) -> None:
        self.params = None if params is None else tuple(params)
        self.ret = ObjectStructInfo() if ret is None else ret
        self.purity = purity
        self.derive_func = derive_func
        self.span = span

    @staticmethod
    def opaque_func(
        *,
        ret: StructInfo | None = None,
        derive_func: str | None = None,
        purity: bool = False,
        span: Span | None = None,
    ) -> FuncStructInfo:
        """A function of which only the result (``ret``) or its rule (``derive_func``) is known."""
        if ret is not None and derive_func is not None:
            raise StructInfoError("opaque_func takes ret or derive_func, not both")
        return FuncStructInfo(None, ret, purity, span, derive_func=derive_func)

    def key(self) -> tuple[Any, ...]:
        return (self.params, self.ret, self.purity, self.derive_func)


def as_dims(values: Iterable[Any]) -> Dims:
    """Dimensions in normal form; refuses negative and non-integer ones."""
    try:
        dims = tuple(v if type(v) is int else tir.as_dim(v) for v in values)
    except TypeError as e:
        raise StructInfoError(str(e)) from None
    for d in dims:
        if isinstance(d, int):
            if d < 0:
                raise StructInfoError(f"a dimension must not be negative; got {dims}")
        elif d.dtype != "int64":
            raise StructInfoError(
                "the value in ShapeStructInfo can only have dtype of int64: "
                f"{d} is {d.dtype}; cast it, or make the variable an int64"
            )
    return dims


def flatten_info(info: StructInfo) -> list[StructInfo]:
    """Struct infos of the leaves of a nested tuple, in order."""
    if not isinstance(info, TupleStructInfo):
        return [info]
    return [leaf for f in info.fields for leaf in flatten_info(f)]


def show(info: StructInfo | None) -> str:
    """Struct info in TVMScript form without the ``R.`` prefix, for messages."""
    if info is None:
        return "?"
    if isinstance(info, TensorStructInfo):
        parts: list[str] = []
        if info.dims is not None:
            inner = ", ".join(str(d) for d in info.dims)
            parts.append(f"({inner},)" if len(info.dims) == 1 else f"({inner})")
        elif info.shape is not None:
            parts.append(info.shape.name_hint)
        elif info.ndim != -1:
            parts.append(f"ndim={info.ndim}")
        if info.dtype:
            parts.append(f'dtype="{info.dtype}"')
        return f"Tensor({', '.join(parts)})"
    if isinstance(info, DTensorStructInfo):
        inside = show(info.tensor_sinfo).removeprefix("Tensor(")[:-1]
        placed = f"mesh of {info.device_mesh.shape}, {str(info.placement)!r})"
        return f"DTensor({inside}, {placed}" if inside else f"DTensor({placed}"
    if isinstance(info, TupleStructInfo):
        return f"Tuple({', '.join(map(show, info.fields))})"
    if isinstance(info, ShapeStructInfo):
        if info.values is not None:
            return f"Shape([{', '.join(map(str, info.values))}])"
        return "Shape()" if info.ndim == -1 else f"Shape(ndim={info.ndim})"
    if isinstance(info, PrimStructInfo):
        return f"Prim({info.dtype!r})" if info.value is None else f"Prim(value={info.value})"
    if isinstance(info, FuncStructInfo):
        params = "..." if info.params is None else f"({', '.join(map(show, info.params))})"
        return f"Callable({params}, {show(info.ret)}, {info.purity})"
    return "Object"


def seen_dims(info: TensorStructInfo) -> Dims | None:
    """Dimensions as far as anything says them: also those of a variable that holds the shape."""
    if info.ndim == 0:
        return ()
    if info.dims is not None or info.shape is None:
        return info.dims
    held = info.shape.struct_info_
    return held.values if isinstance(held, ShapeStructInfo) else None


def dims_of(info: StructInfo | None) -> Dims | None:
    """The dimensions of a tensor's or shape's struct info, if known."""
    if isinstance(info, TensorStructInfo):
        return info.dims
    return info.values if isinstance(info, ShapeStructInfo) else None

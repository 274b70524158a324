"""``x.dtype``, ``x.shape[i]`` and the like: what a tensor is when the program runs, as expressions.

Each is a call of an operator of ``relax.inspect``; where the struct info says it already, that
call's struct info has the value. Source: TVM Relax v0.20.
"""

from __future__ import annotations

from typing import Any, NoReturn

from relax2xla import tir
from relax2xla.ir import late
from relax2xla.ir.struct_info import PrimStructInfo, TensorStructInfo


def _field(tensor: TensorFields, operator: str, name: str, *args: Any) -> Any:
    """A call of ``relax.inspect``; AttributeError for what is not known to be a tensor."""
    info = getattr(tensor, "struct_info_", None)
    if not isinstance(info, TensorStructInfo):
        raise AttributeError(f"{tensor!r} is {info}; only a tensor has `{name}`")
    return late.operator.call(f"relax.inspect.{operator}")(tensor, *args)


class TensorFields:
    """The part of every expression that reads the fields of a tensor."""

    __slots__ = ()

    @property
    def dtype(self) -> DTypeFields:
        """The parts of the dtype: ``type_code``, ``bits``, ``lanes``, each a scalar."""
        return DTypeFields(self)

    @property
    def ndim(self) -> Any:
        """The number of axes, a scalar of int32."""
        return _field(self, "tensor_ndim", "ndim")

    @property
    def shape(self) -> AxisFields:
        """``x.shape[axis]``: the size of an axis, a scalar of int64."""
        return AxisFields(self, "tensor_shape_i", "shape")

    @property
    def strides(self) -> AxisFields:
        """``x.strides[axis]``: elements between neighbours along an axis, a scalar of int64."""
        return AxisFields(self, "tensor_stride_i", "strides")

    @property
    def byte_offset(self) -> Any:
        """Where the data starts in its memory, in bytes: a scalar of uint64."""
        return _field(self, "tensor_byte_offset", "byte_offset")

    @property
    def elem_offset(self) -> Any:
        """Where the data starts in its memory, in elements: a scalar of uint64."""
        return _field(self, "tensor_elem_offset", "elem_offset")


class DTypeFields:
    """The dtype of a tensor, by its parts."""

    def __init__(self, tensor: TensorFields) -> None:
        self._tensor = tensor

    def _part(self, name: str) -> Any:
        return _field(self._tensor, f"tensor_dtype_{name}", "dtype")

    @property
    def type_code(self) -> Any:
        """DLPack's code of the kind, a scalar of uint8."""
        return self._part("code")

    @property
    def bits(self) -> Any:
        """Bits of an element, a scalar of uint8."""
        return self._part("bits")

    @property
    def lanes(self) -> Any:
        """Lanes of an element, a scalar of uint16."""
        return self._part("lanes")


class AxisFields:
    """Shape or strides of a tensor, by axis."""

    def __init__(self, tensor: TensorFields, operator: str, name: str) -> None:
        self._tensor, self._operator, self._name = tensor, operator, name

    def __getitem__(self, axis: Any) -> Any:
        """axis: an int, a symbolic integer, or a scalar expression of int64."""
        if not isinstance(axis, int | tir.PrimExpr | TensorFields):
            raise TypeError(
                f"the index of `{self._name}` must be an integer; got {type(axis).__name__}"
            )
        info = getattr(axis, "struct_info_", None)
        if info is not None and not isinstance(info, PrimStructInfo):
            raise TypeError(f'the index of `{self._name}` must be R.Prim("int64"); got {info}')
        return _field(self._tensor, self._operator, self._name, axis)

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"`{self._name}` of an expression cannot be iterated, for how many axes there are is "
            "seen when the program runs; use struct_info, or R.shape_of"
        )

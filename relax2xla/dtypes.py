"""THE dtype table: every scalar type by its Relax name, with its name in each neighbouring world.

All conversions between numpy, MLIR, torch and ONNX dtypes go through :data:`DTYPES`; nothing else
in the code base may spell such a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

Kind = Literal["bool", "int", "uint", "float", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """One scalar type.

    ``name``: Relax (and numpy) name; ``bits``: width of one value; ``numpy``: dtype of host arrays
    (four-bit kinds take one byte a value); ``mlir``: type in MLIR text; ``torch``: attribute of
    the torch module or None; ``onnx``: number in ``onnx.TensorProto.DataType`` or None.
    """

    name: str
    kind: Kind
    bits: int
    numpy: np.dtype[Any]
    mlir: str
    torch: str | None
    onnx: int | None

    @property
    def nbytes(self) -> int:
        """Bytes that one value takes in a host array."""
        return self.numpy.itemsize


def _row(name: str, kind: Kind, bits: int, mlir: str, torch: str | None, onnx: int | None) -> DType:
    scalar = getattr(ml_dtypes, name, None)
    return DType(name, kind, bits, np.dtype(name if scalar is None else scalar), mlir, torch, onnx)


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        _row("bool", "bool", 1, "i1", "bool", 9),
        _row("int2", "int", 2, "i2", None, 26),
        _row("int4", "int", 4, "i4", None, 22),
        _row("int8", "int", 8, "i8", "int8", 3),
        _row("int16", "int", 16, "i16", "int16", 5),
        _row("int32", "int", 32, "i32", "int32", 6),
        _row("int64", "int", 64, "i64", "int64", 7),
        _row("uint2", "uint", 2, "ui2", None, 25),
        _row("uint4", "uint", 4, "ui4", None, 21),
        _row("uint8", "uint", 8, "ui8", "uint8", 2),
        _row("uint16", "uint", 16, "ui16", "uint16", 4),
        _row("uint32", "uint", 32, "ui32", "uint32", 12),
        _row("uint64", "uint", 64, "ui64", "uint64", 13),
        _row("float4_e2m1fn", "float", 4, "f4E2M1FN", None, 23),
        _row("float6_e2m3fn", "float", 6, "f6E2M3FN", None, None),
        _row("float6_e3m2fn", "float", 6, "f6E3M2FN", None, None),
        _row("float8_e3m4", "float", 8, "f8E3M4", None, None),
        _row("float8_e4m3", "float", 8, "f8E4M3", None, None),
        _row("float8_e4m3b11fnuz", "float", 8, "f8E4M3B11FNUZ", None, None),
        _row("float8_e4m3fn", "float", 8, "f8E4M3FN", "float8_e4m3fn", 17),
        _row("float8_e4m3fnuz", "float", 8, "f8E4M3FNUZ", "float8_e4m3fnuz", 18),
        _row("float8_e5m2", "float", 8, "f8E5M2", "float8_e5m2", 19),
        _row("float8_e5m2fnuz", "float", 8, "f8E5M2FNUZ", "float8_e5m2fnuz", 20),
        _row("float8_e8m0fnu", "float", 8, "f8E8M0FNU", "float8_e8m0fnu", 24),
        _row("float16", "float", 16, "f16", "float16", 10),
        _row("bfloat16", "float", 16, "bf16", "bfloat16", 16),
        _row("float32", "float", 32, "f32", "float32", 1),
        _row("float64", "float", 64, "f64", "float64", 11),
        _row("complex64", "complex", 64, "complex<f32>", "complex64", 14),
        _row("complex128", "complex", 128, "complex<f64>", "complex128", 15),
    )
}
BY_MLIR: dict[str, DType] = {row.mlir: row for row in DTYPES.values()}
BY_TORCH: dict[str, DType] = {row.torch: row for row in DTYPES.values() if row.torch}
BY_ONNX: dict[int, DType] = {row.onnx: row for row in DTYPES.values() if row.onnx}

ALIASES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat": "bfloat16",
    "int": "int32",
    "long": "int64",
}


@lru_cache(maxsize=256)
def dtype_name(dtype: Any) -> str:
    """Relax name of ``dtype``: a name, a numpy dtype or scalar type, a torch dtype or a DType.

    The empty string (unknown dtype) stays. Raises ``TypeError`` for anything not in the table.
    """
    if isinstance(dtype, DType):
        return dtype.name
    if isinstance(dtype, str):
        if dtype in DTYPES:
            return DTYPES[dtype].name  # A plain string, also where a subclass is given.
        if dtype == "" or dtype.startswith("!"):
            return dtype
        if dtype in ALIASES:
            return ALIASES[dtype]
    text = str(dtype)
    if text.startswith("torch.") and text[6:] in BY_TORCH:
        return BY_TORCH[text[6:]].name
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = text
    if name in DTYPES:
        return name
    raise TypeError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")


def dtype_info(dtype: Any) -> DType:
    """The row of :data:`DTYPES` for ``dtype`` (anything that :func:`dtype_name` takes)."""
    name = dtype_name(dtype)
    if name not in DTYPES:
        raise TypeError(f"the dtype {name!r} has no entry in the dtype table")
    return DTYPES[name]


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """numpy dtype (ml_dtypes for the kinds that numpy lacks) of ``dtype``."""
    return dtype_info(dtype).numpy


def is_kind(dtype: str, *kinds: Kind) -> bool:
    """Whether ``dtype`` is of one of ``kinds``; False for an unknown dtype."""
    row = DTYPES.get(dtype)
    return row is not None and row.kind in kinds


def is_float(dtype: str) -> bool:
    """Whether ``dtype`` is a real floating-point kind."""
    return is_kind(dtype, "float")


def is_integer(dtype: str) -> bool:
    """Whether ``dtype`` is a signed or unsigned integer kind (bool is not)."""
    return is_kind(dtype, "int", "uint")


def limits(dtype: str) -> tuple[int | float, int | float]:
    """Smallest and largest finite value of a real ``dtype``, as Python numbers."""
    row = dtype_info(dtype)
    if row.kind == "bool":
        return 0, 1
    if row.kind in ("int", "uint"):
        low = -(1 << (row.bits - 1)) if row.kind == "int" else 0
        return low, low + (1 << row.bits) - 1
    info = ml_dtypes.finfo(row.numpy)
    return float(info.min), float(info.max)


Array = npt.NDArray[Any]

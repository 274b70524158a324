"""The metadata section of a text: arrays that have no literal, as JSON with base64.

``metadata = I.metadata(\"\"\"{...}\"\"\")`` ends a text printed with ``show_meta=True``. Each entry
holds dtype, shape and little-endian bytes in C order; sizes are checked before anything is
allocated, and nothing in it can run code.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import math
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import DTYPES
from relax2xla.ir import Constant, Span, TensorStructInfo
from relax2xla.ir.source_names import chain_of, names_of
from relax2xla.ir.struct_info import StructInfo

CONSTANT: Final = "relax.expr.Constant"
ARRAY: Final = "numpy.ndarray"
_Maker = Callable[[Any, StructInfo, "Span | None"], Any]
MAX_BYTES: Final = 1 << 40  # A shape beyond it is a damaged text, not an array.


# Gives an array that lies in a file: by the file, the array's name there, dtype and shape.
Outside = Callable[[str, str, str, tuple[int, ...]], npt.NDArray[Any]]
_OUTSIDE: ContextVar[Outside | None] = ContextVar("arrays outside of a text", default=None)


@contextlib.contextmanager
def arrays_from(outside: Outside) -> Generator[None]:
    """Texts parsed inside may name arrays in files, which ``outside`` gives."""
    token = _OUTSIDE.set(outside)
    try:
        yield
    finally:
        _OUTSIDE.reset(token)


def encode(
    tables: Mapping[str, Sequence[Any]],
    names: bool = False,
    file: str = "",
    left_out: Callable[[Constant], str | None] = lambda constant: None,
) -> str:
    """The JSON of tables of Constants and arrays, one entry a line, for a string in a text.

    ``names``: with the names of weights, those of Constants' spans. ``left_out`` gives the name of
    an array that is in ``file`` instead, else None.
    """
    sections: list[str] = []
    for key, items in tables.items():
        rows = ",\n    ".join(json.dumps(_encode(item, names, file, left_out)) for item in items)
        sections.append(f'  "{key}": [\n    {rows}\n  ]')
    # It stands in a string of Python's.
    return ("{\n" + ",\n".join(sections) + "\n}").replace("\\", "\\\\")


def _encode(
    item: Constant | npt.NDArray[Any],
    names: bool,
    file: str,
    left_out: Callable[[Constant], str | None],
) -> dict[str, Any]:
    data = item.data if isinstance(item, Constant) else item
    name = _name_of(data.dtype)
    one = data.base
    if data.size == 0 and isinstance(one, np.ndarray) and one.size == 1 and one.dtype == data.dtype:
        # MLIR tells a splat without elements from no elements.
        splat, held = True, one.reshape(1)
    else:
        splat = data.size > 1 and not any(data.strides)
        held = data.reshape(-1)[:1] if splat else np.ascontiguousarray(data)
    if sys.byteorder == "big" and held.dtype.itemsize > 1:
        held = held.byteswap()
    entry: dict[str, Any] = {"dtype": name, "shape": list(data.shape)}
    if splat:
        entry["splat"] = True
    if isinstance(item, Constant):
        info = item.struct_info_
        if not isinstance(info, TensorStructInfo) or info.dims != data.shape:
            raise TypeError(f"a constant of shape {data.shape} has the struct info {info}")
        if info.dtype != name:
            entry["type"] = info.dtype
        if names and (called := names_of(item.span)):
            entry["names"] = list(called)
        if (outside := left_out(item)) is not None:
            return {**entry, "file": file, "array": outside}
    return {**entry, "data": base64.b64encode(held.tobytes()).decode("ascii")}


def _name_of(dtype: np.dtype[Any]) -> str:
    if dtype.name not in DTYPES:
        raise TypeError(f"an array of dtype {dtype} cannot be written as metadata")
    return dtype.name


def decode(text: str) -> dict[str, list[Any]]:
    """Tables of Constants and arrays from the JSON text; ValueError says what is wrong."""
    made: dict[str, list[Any]] = {}
    try:
        tables = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"the metadata is no valid JSON: {e}") from None
    if not isinstance(tables, dict):
        raise ValueError("the metadata must be a JSON object of lists")
    for key, items in tables.items():
        make = _MAKERS.get(key)
        if make is None or not isinstance(items, list):
            known = ", ".join(_MAKERS)
            raise ValueError(f"metadata section {key!r}: expected a list under one of {known}")
        made[key] = [_decode(item, f"metadata[{key!r}][{i}]", make) for i, item in enumerate(items)]
    return made


def _decode(item: Any, where: str, make: _Maker) -> Any:
    if not isinstance(item, dict):
        raise ValueError(f"{where} must be a JSON object")
    row = DTYPES.get(str(item.get("dtype")))
    shape = item.get("shape")
    if row is None:
        raise ValueError(f"{where} has an unknown dtype {item.get('dtype')!r}")
    if not isinstance(shape, list) or any(type(d) is not int or d < 0 for d in shape):
        raise ValueError(f"{where} has no valid shape: {shape!r}")
    count = 1 if item.get("splat") else math.prod(shape)
    size = count * row.nbytes
    if size > MAX_BYTES:
        raise ValueError(f"{where} would take {size} bytes")
    kind = item.get("type", row.name)
    names = item.get("names", [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{where} has names that are no list of strings")
    info, span = TensorStructInfo.make(tuple(shape), kind), chain_of(names)
    if "file" in item:
        outside, file, name = _OUTSIDE.get(), item["file"], item.get("array")
        if not isinstance(file, str) or not isinstance(name, str):
            raise ValueError(f"{where} names no array of a file")
        if outside is None:
            raise ValueError(
                f"{where} is in the file {file}; read the text with relax2xla.load(path)"
            )
        return make(outside(file, name, row.name, tuple(shape)), info, span)
    text = item.get("data")
    # Base64 writes 4 characters for each 3 bytes begun.
    if not isinstance(text, str) or len(text) != (size + 2) // 3 * 4:
        raise ValueError(f"{where}: the data do not hold {size} bytes for {row.name} {shape}")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise ValueError(f"{where}: the data are no base64: {e}") from None
    if len(raw) != size:
        raise ValueError(f"{where}: {len(raw)} bytes, expected {size}")
    array = np.frombuffer(raw, row.numpy)
    if sys.byteorder == "big" and row.nbytes > 1:
        array = array.byteswap()
    array = np.broadcast_to(array[0], shape) if item.get("splat") else array.reshape(shape)
    return make(array, info, span)


_MAKERS: Final[dict[str, _Maker]] = {
    CONSTANT: lambda array, info, span: Constant(array, info, span),
    ARRAY: lambda array, info, span: array,
}

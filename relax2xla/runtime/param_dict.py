"""Dictionaries of tensors as bytes, in the format of ``tvm.runtime.save_param_dict``.

A header, the names, then the tensors in their order; all numbers little-endian. Source of the
format: what TVM 0.25 writes, which reads what is written here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import dtype_name, numpy_dtype
from relax2xla.errors import FileFormatError
from relax2xla.runtime.whole_file import whole_file

Array = npt.NDArray[Any]
_LIST: Final = struct.pack("<QQ", 0xF7E58D4F05049CB7, 0)
# Of each tensor, with the device that it was on: the CPU.
_TENSOR: Final = struct.pack("<QQ", 0xDD5E40F096B4A13F, 0)
_CPU: Final = struct.pack("<ii", 1, 0)
# Dtypes by the code and the bits of DLPack, whose codes from 7 on are of one dtype each.
_KINDS: Final = ("int", "uint", "float")
_SINGLE: Final = {
    (4, 16): "bfloat16",
    (5, 64): "complex64",
    (5, 128): "complex128",
    (6, 8): "bool",
    **{
        (7 + i, 8): f"float8_{form}"
        for i, form in enumerate(
            ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
        )
    },
}
_CODES: Final = {name: code for code, name in _SINGLE.items()} | {
    f"{kind}{bits}": (code, bits)
    for code, kind in enumerate(_KINDS)
    for bits in ((16, 32, 64) if kind == "float" else (8, 16, 32, 64))
}
_NAMES: Final = {code: name for name, code in _CODES.items()} | {(1, 1): "bool"}  # as before 0.25


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """The bytes of tensors (anything that numpy takes) with their names.

    ValueError for a dtype that the format has no code for.
    """
    made = bytearray(_LIST)
    made += struct.pack("<Q", len(params))
    for name in params:
        text = name.encode()
        made += struct.pack("<Q", len(text)) + text
    made += struct.pack("<Q", len(params))
    for name, value in params.items():
        array = np.asarray(value)
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        dtype = dtype_name(array.dtype)
        if dtype not in _CODES:
            raise ValueError(f"save_param_dict: {name!r} is of {dtype}, which TVM's format has not")
        made += _TENSOR + _CPU
        made += struct.pack(f"<iBBH{array.ndim}q", array.ndim, *_CODES[dtype], 1, *array.shape)
        made += struct.pack("<q", array.nbytes) + array.tobytes()
    return made


def load_param_dict(param_bytes: bytes | bytearray | memoryview) -> dict[str, Array]:
    """The tensors that :func:`save_param_dict` has written, here or in TVM, by name.

    Safe for bytes of unknown origin: FileFormatError for those of another format, that end too
    early, or whose sizes contradict each other, before memory is asked for.
    """
    reader = _Reader(memoryview(param_bytes).cast("B"))
    if bytes(reader.take(len(_LIST))) != _LIST:
        reader.fail("it does not begin as a list of tensors does")
    names = [reader.name() for _ in range(reader.count(8))]
    if reader.count(len(_TENSOR)) != len(names):
        reader.fail("it has not as many tensors as names")
    if len(set(names)) < len(names):
        reader.fail("two tensors have one name")
    found = {name: reader.tensor(name) for name in names}
    if reader.at != len(reader.data):
        reader.fail("something stands behind the last tensor")
    return found


def save_param_dict_to_file(params: Mapping[str, Any], path: str | Path) -> None:
    """Write what :func:`save_param_dict` gives; the file is there whole or not at all."""
    made = save_param_dict(params)
    with whole_file(Path(path)) as file:
        file.write(made)


def load_param_dict_from_file(path: str | Path) -> dict[str, Array]:
    """:func:`load_param_dict` of a file."""
    try:
        return load_param_dict(Path(path).read_bytes())
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from None


class _Reader:
    """Bytes, and where reading them has come to."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def fail(self, why: str) -> NoReturn:
        """Raise a FileFormatError that says where."""
        raise FileFormatError(f"no dictionary of tensors of TVM: {why} (byte {self.at:,})")

    def take(self, size: int) -> memoryview:
        """The next bytes."""
        if not 0 <= size <= len(self.data) - self.at:
            self.fail(f"{size:,} bytes are stated here, and {len(self.data) - self.at:,} are there")
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, form: str) -> tuple[int, ...]:
        """The next numbers, in the notation of ``struct``."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def count(self, least: int) -> int:
        """How many things follow, of ``least`` bytes or more each."""
        (count,) = self.numbers("Q")
        if count * least > len(self.data) - self.at:
            self.fail(f"{count:,} entries are stated, more than there are bytes for")
        return count

    def name(self) -> str:
        """The next name."""
        text = bytes(self.take(self.count(1)))
        try:
            return text.decode()
        except UnicodeDecodeError:
            self.fail("a name is no UTF-8")

    def tensor(self, name: str) -> Array:
        """The next tensor, a copy."""
        if bytes(self.take(len(_TENSOR))) != _TENSOR:
            self.fail(f"the tensor {name!r} does not begin here")
        _, _, ndim, code, bits, lanes = self.numbers("iiiBBH")
        if not 0 <= ndim <= 64:  # as many as numpy has
            self.fail(f"{name!r} has {ndim} dimensions")
        dtype = _NAMES.get((code, bits)) if lanes == 1 else None
        if dtype is None:
            self.fail(f"{name!r} is of a dtype that is not known: {code}, {bits} bits x {lanes}")
        *shape, size = self.numbers(f"{ndim}qq")
        kind = numpy_dtype(dtype)
        if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != size:
            self.fail(
                f"{name!r} of shape {tuple(shape)} and {dtype} is stated to have {size:,} bytes"
            )
        return np.frombuffer(self.take(size), kind).reshape(shape).copy()

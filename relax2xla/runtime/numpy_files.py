"""numpy's formats, .npy and .npz, read with suspicion: nothing in them is run.

What a header declares is checked before anything is allocated: the memory that reading takes is
bounded by the size of the file (of what is compressed, by the most that deflate can make of it).
"""

from __future__ import annotations

import contextlib
import lzma
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla import syntax
from relax2xla.errors import FileFormatError
from relax2xla.runtime.progress import report

Array = npt.NDArray[Any]

# Axes that a numpy array can have.
_MAX_RANK: Final = 64
# numpy's own writes some 128 bytes; it reads no more than so many either.
_MAX_HEADER: Final = 10_000
# Deflate makes at most about 1032 bytes of one, the other methods no zip of numpy's uses.
_MAX_RATIO: Final = 1040
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAX_MEMBERS: Final = 1_000_000
# Booleans, numbers, strings; plain bytes, as which numpy writes dtypes that it does not know.
_KINDS: Final = "biufcSUV"
_KEYS: Final = frozenset({"descr", "fortran_order", "shape"})
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,
    NotImplementedError,
    ValueError,
    LookupError,
    OverflowError,
    MemoryError,
)


def check_shape(shape: Sequence[Any], itemsize: int) -> tuple[int, ...]:
    """``shape`` as one that a numpy array can have. Raises ValueError, which says why it is none.

    A dimension of 0 makes others no less impossible: numpy multiplies the others, too.
    """
    if not all(type(d) is int and d >= 0 for d in shape):
        raise ValueError(f"the shape {_short(shape)} is not made of sizes")
    if len(shape) > _MAX_RANK:
        raise ValueError(f"the shape has {len(shape)} dimensions; {_MAX_RANK} are possible")
    if math.prod(d or 1 for d in shape) * max(itemsize, 1) > np.iinfo(np.intp).max:
        raise ValueError(f"the shape {_short(shape)} is too large for any memory")
    return tuple(shape)


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # integers of thousands of digits
        return "..."
    return text if len(text) <= 200 else text[:200] + "..."


# -- one array -----------------------------------------------------------------------------------
def read_npy(file: IO[bytes], size: int, where: str) -> Array:
    """One array in numpy's format, its header checked against ``size`` before it is read.

    Raises FileFormatError, for arrays of Python objects too: reading them could run code.
    """
    try:
        shape, fortran, dtype = _header(file)
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > size:
            raise ValueError(f"shape {_short(shape)} of {dtype} does not fit its {size} bytes")
        data = bytearray(nbytes)
        if _fill(file, memoryview(data)) != nbytes:
            raise ValueError("it is truncated")
        array = np.frombuffer(data, dtype, math.prod(shape))
        return array.reshape(shape, order="F" if fortran else "C")
    except MemoryError:
        raise FileFormatError(f"{where} does not fit into memory") from None
    except (*_DAMAGE, OSError) as e:
        raise FileFormatError(f"{where} is no readable .npy array: {_reason(e)}") from None


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:300]


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the first axis is the innermost, and dtype."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not known")
    layout = "<H" if version == (1, 0) else "<I"
    (length,) = struct.unpack(layout, _exactly(file, struct.calcsize(layout)))
    if length > _MAX_HEADER:
        raise ValueError(f"its header has {length} bytes; no plain array needs {_MAX_HEADER}")
    text = _exactly(file, length).decode("latin1" if version[0] < 3 else "utf-8")
    try:
        # Python 2 wrote its long integers with an L.
        fields: Any = syntax.literal(re.sub(r"(\d)L\b", r"\1", text.strip()))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError("its header does not parse") from None
    if not isinstance(fields, dict) or fields.keys() != _KEYS:
        raise ValueError("its header does not say descr, fortran_order and shape")
    shape, fortran = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or not isinstance(fortran, bool):
        raise ValueError("its header has no shape and order")
    dtype = _dtype(fields["descr"])
    return check_shape(shape, dtype.itemsize), fortran, dtype


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise ValueError("it is truncated")
    return data


def _dtype(descr: Any) -> np.dtype[Any]:
    """The dtype that a header names: a plain one, without fields, shape or Python objects."""
    if not isinstance(descr, str):
        raise ValueError("its elements are structures; save each field as an array of its own")
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError, SyntaxError):
        raise ValueError(f"its dtype {_short(descr)} is not known") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which can run code; save plain arrays")
    if dtype.kind not in _KINDS or dtype.names is not None or dtype.subdtype is not None:
        raise ValueError(f"elements of dtype {_short(descr)} are not supported")
    if dtype.itemsize == 0:
        raise ValueError(f"its dtype {_short(descr)} has elements of no bytes")
    return dtype


def _fill(file: IO[bytes], into: memoryview) -> int:
    """Read until ``into`` is full or the file ends; gives how much was read."""
    at = 0
    while at < len(into):
        piece = file.read(min(1 << 20, len(into) - at))
        if not piece:
            break
        into[at : at + len(piece)] = piece
        at += len(piece)
    return at


# -- archives ------------------------------------------------------------------------------------
def read_npz(path: Path) -> Iterator[tuple[str, Array]]:
    """The arrays of an .npz by name, one after the other; other members are left alone.

    Raises FileFormatError where the archive is damaged or tells what cannot be true.
    """
    with _opened(path) as archive:
        with _told(path):
            infos = _members(archive, path)
        total, done = sum(i.file_size for i in infos), 0
        for info in infos:
            report("reading", done, total)
            done += info.file_size
            if not info.filename.endswith(".npy"):
                continue
            where = f"{path}:{info.filename[:200]}"
            with _told(path), archive.open(info) as file:
                array = read_npy(file, info.file_size, where)
            yield info.filename.removesuffix(".npy"), array
        report("reading", total, total)


@contextlib.contextmanager
def _told(path: Path) -> Generator[None]:
    """Whatever zipfile raises on damage as one error."""
    try:
        yield
    except FileFormatError:
        raise
    except _DAMAGE as e:
        raise FileFormatError(f"{path} is no .npz file, or is truncated: {_reason(e)}") from None


@contextlib.contextmanager
def _opened(path: Path) -> Generator[zipfile.ZipFile]:
    with _told(path):
        archive = zipfile.ZipFile(path)
    with archive:
        yield archive


def _members(archive: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
    """The members, each of them once and no larger than what is compressed can be."""
    infos = archive.infolist()
    if len(infos) > _MAX_MEMBERS:
        raise ValueError(f"it has {len(infos)} members")
    names: set[str] = set()
    room, memory = path.stat().st_size, _memory()
    for info in infos:
        if info.filename in names:
            raise ValueError(f"{_short(info.filename)} is there twice")
        names.add(info.filename)
        if info.compress_type not in _METHODS:
            raise ValueError(f"{_short(info.filename)} is compressed in an unknown way")
        room -= info.compress_size
        most = info.compress_size * (1 if info.compress_type == zipfile.ZIP_STORED else _MAX_RATIO)
        if room < 0 or info.file_size > most:
            raise ValueError(f"{_short(info.filename)} is larger than the file can say")
        memory -= info.file_size
        if memory < 0:
            raise FileFormatError(f"{path}:{info.filename} does not fit into memory")
    return infos


def _memory() -> int:
    """Bytes of memory of this machine; very many where that is not known."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62

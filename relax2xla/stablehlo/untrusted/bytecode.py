"""What is checked in MLIR bytecode before MLIR reads it.

jaxlib ends the process where a name or a message of MLIR is no UTF-8, so the strings of a damaged
file are looked at first. The layout is MLIR's: the magic number, a version, the producer's name,
and sections of an id, a length and perhaps an alignment; the strings stand in section 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from relax2xla.errors import StableHLOParseError

MAGIC: Final = b"ML\xefR"
_STRINGS: Final = 0
_ALIGNED: Final = 0x80


def check(data: bytes) -> None:
    """StableHLOParseError where the bytecode ``data`` is cut short."""
    try:
        for _ in _sections(data):
            pass
    except (IndexError, ValueError) as e:
        raise StableHLOParseError(
            "the MLIR bytecode ends within a section; is the file complete and undamaged?"
        ) from e


def check_strings(data: bytes) -> None:
    """StableHLOParseError where a string of the bytecode ``data`` is not UTF-8."""
    try:
        data[len(MAGIC) : data.index(b"\0", _varint(data, len(MAGIC))[1])].decode()
        for kind, section in _sections(data):
            if kind == _STRINGS:
                _check_strings(section)
    except UnicodeDecodeError as e:
        raise StableHLOParseError(
            f"the MLIR bytecode holds a string that is not UTF-8 ({e.reason}), which jaxlib cannot "
            "show. Is the file complete and undamaged? If such strings are meant, read it with "
            "isolate=True, or write it as text"
        ) from e
    except (IndexError, ValueError) as e:
        raise StableHLOParseError("the strings of the MLIR bytecode are damaged") from e


def _sections(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Ids and bytes of the sections; IndexError or ValueError where one is cut short."""
    at = data.index(b"\0", _varint(data, len(MAGIC))[1]) + 1
    while at < len(data):
        kind, at = data[at], at + 1
        length, at = _varint(data, at)
        if kind & _ALIGNED:
            alignment, at = _varint(data, at)
            at += -at % alignment if alignment else 0
        if at + length > len(data):
            raise IndexError
        yield kind & ~_ALIGNED, data[at : at + length]
        at += length


def _check_strings(section: bytes) -> None:
    """The count of the strings, their lengths, and the strings."""
    count, at = _varint(section, 0)
    if count > len(section):
        raise IndexError
    for _ in range(count):
        _, at = _varint(section, at)
    section[at:].decode()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number whose length is the count of zeros at the end of its first byte, and its end."""
    first = data[at]
    if first == 0:
        size, shift = 9, 8
    else:
        size = shift = (first & -first).bit_length()
    if at + size > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + size], "little") >> shift, at + size

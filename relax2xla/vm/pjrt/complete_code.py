"""Serialised code of XLA:CPU: a protocol buffer, of which one thing is read."""

from __future__ import annotations

import re

# Steps that run a function, sort by one, and object files with functions.
_KERNEL = re.compile(rb"\n\x06kernel")
_SORT = b"\n\x04sort"
_OBJECT = b"\x7fELF"


def is_complete(data: bytes) -> bool:
    """Whether serialised code of XLA:CPU holds all the functions that it calls.

    With jaxlib 0.10.2 on several cores, some programs (two concatenations fused, for one) come
    without any code, and fail when they are run: "Function ... not found (type id: 1)". Each step
    of kind "kernel" names a function, and the list of compiled functions must have that.
    """
    if _SORT in data and _OBJECT not in data:
        return False
    for found in _KERNEL.finditer(data):
        name = _kernel_name(data, found.end())
        if name is None or b"\x08\x01\x12" + _varint(len(name)) + name not in data:
            return False
    return True


def _kernel_name(data: bytes, at: int) -> bytes | None:
    """The function of a kernel step: field 1 of field 11 of the message that begins here."""
    while at < len(data):
        tag, at = _read_varint(data, at)
        if tag & 7 == 0:
            _, at = _read_varint(data, at)
            continue
        if tag & 7 != 2:
            return None
        size, at = _read_varint(data, at)
        if tag >> 3 == 11:
            _, start = _read_varint(data, at)
            length, start = _read_varint(data, start)
            return data[start : start + length]
        at += size
    return None


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, at


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)

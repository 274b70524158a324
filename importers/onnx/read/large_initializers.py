"""Large initializers cut out of a serialized model, so that its message does not hold them.

Protobuf copies what it parses, and again what is read off a message. Here the bytes of large
``raw_data`` stay where they are, in the mapped file; the message says where (as external data of
the name that the caller gives). Nothing is checked: what looks odd is left for protobuf to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import TensorProto

# Fields of the messages by number, as in onnx.proto.
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
EXTERNAL = (13, 14)
# Wire types.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED = {FIXED64: 8, FIXED32: 4}
# Smaller tensors are not worth the trouble.
LARGE = 1 << 16


class Odd(Exception):
    """What protobuf should look at itself."""


def cut(contents: memoryview, location: str) -> bytes | None:
    """The model without its large initializers; None where there are none, or something is odd.

    An initializer that was cut out has external data at ``location``, with its offset and length
    in ``contents``.
    """
    try:
        made, found = _model(contents, location)
    except Odd:
        return None
    return made if found else None


def _model(contents: memoryview, location: str) -> tuple[bytes, bool]:
    parts: list[bytes | memoryview] = []
    found = False
    for number, start, at, end in _fields(contents, 0, len(contents), GRAPH):
        if number != GRAPH:
            parts.append(contents[start:end])
            continue
        graph: list[bytes | memoryview] = []
        for inner, begin, first, last in _fields(contents, at, end, INITIALIZER):
            tensor = _tensor(contents, first, last, location) if inner == INITIALIZER else None
            found |= tensor is not None
            graph.append(contents[begin:last] if tensor is None else _message(inner, tensor))
        parts.append(_message(number, b"".join(graph)))
    return b"".join(parts), found


def _tensor(contents: memoryview, start: int, end: int, location: str) -> bytes | None:
    """An initializer without its bytes, if they are many and where they are expected."""
    if end - start < LARGE:
        return None
    rest: list[bytes | memoryview] = []
    raw: list[tuple[int, int]] = []
    for number, begin, first, last in _fields(contents, start, end, RAW_DATA):
        if number in EXTERNAL:
            return None
        if number == RAW_DATA:
            raw.append((first, last))
        else:
            rest.append(contents[begin:last])
    if len(raw) != 1:
        return None
    ((first, last),) = raw
    where = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, v in (("location", location), ("offset", first), ("length", last - first)):
        where.external_data.add(key=key, value=str(v))
    return b"".join([*rest, where.SerializeToString()])


def _fields(
    contents: memoryview, start: int, end: int, field: int
) -> Iterator[tuple[int, int, int, int]]:
    """Number, start, start of the value and end of each field of the message in a range.

    field: number of the one that must hold bytes
    """
    at = start
    while at < end:
        begin = at
        tag, at = _varint(contents, at, end)
        number, kind = tag >> 3, tag & 7
        first = at
        if kind == VARINT:
            _, at = _varint(contents, at, end)
        elif kind == BYTES:
            size, first = _varint(contents, at, end)
            at = first + size
        elif kind in FIXED:
            at += FIXED[kind]
        else:
            raise Odd
        if at > end or (number == field and kind != BYTES):
            raise Odd
        yield number, begin, first, at


def _varint(contents: memoryview, at: int, end: int) -> tuple[int, int]:
    """An integer in base 128, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise Odd
        byte = contents[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise Odd


def _message(number: int, contents: bytes) -> bytes:
    """A field that holds a message."""
    size, length = len(contents), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | BYTES, *length]) + contents

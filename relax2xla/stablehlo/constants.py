"""Constant tensors: numpy arrays <-> dense MLIR attributes, exact to the bit, splats for free.

A splat is an array of strides 0, however large its shape, and is written as a splat again.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from relax2xla.dtypes import BY_MLIR, Array, DType, dtype_info
from relax2xla.errors import UnsupportedError
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.stablehlo.mlir import dense, ir

# A resource's name, bare or quoted, and its bytes: four of alignment, then the elements.
_RESOURCE = re.compile(r'dense_resource<([\w.$-]+|"[^"]*")> : ')
_BLOB = re.compile(r': "0x([0-9A-Fa-f]*)"\s*\}\s*\}\s*#-\}\s*$')
# A dense attribute of complex elements: its type, and the type of their halves.
_COMPLEX = re.compile(r"(?s)dense<.*> : ((?:tensor|vector)<[0-9x]*complex<(\w+)>>)")
_TOKEN = re.compile(r"[-+.\w]+")
# What jaxlib's bindings expose through Python's buffer protocol; the other kinds go through text.
_BUFFERED = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ]
)


def read_elements(op: Any, info: TensorStructInfo) -> Array:
    """The value of a ``constant`` operation whose result is ``info``."""
    dtype = dtype_info(info.dtype)
    shape = tuple(d for d in info.dims or () if isinstance(d, int))
    if info.dims != shape:
        raise UnsupportedError(f"a constant needs a static shape; this one is {info}")
    try:
        attribute = op.attributes["value"]
    except TypeError:  # jaxlib cannot wrap complex elements; they are read from the text.
        return _from_text(str(op), dtype, shape)
    if isinstance(attribute, ir.DenseResourceElementsAttr) or not hasattr(attribute, "is_splat"):
        text = str(attribute)
        if not text.startswith("dense<"):
            raise UnsupportedError(f"a constant's value is {text[:60]}; only dense<...> works")
        return _from_text(text, dtype, shape)
    if dtype.name in _BUFFERED and not attribute.is_splat:
        return np.array(attribute, dtype.numpy).reshape(shape)
    return _from_text(str(attribute), dtype, shape)


def read_resource(op: Any, info: TensorStructInfo) -> tuple[Array, dict[str, Any]] | None:
    """Value, name and alignment of a constant that is a ``dense_resource``; None for others.

    jaxlib shows the bytes of a resource only in the text of an operation that stands alone.
    """
    found = _RESOURCE.match(str(op.attributes["value"])) if _may_be_resource(op) else None
    if found is None:
        return None
    blob = _BLOB.search(str(op.operation.clone()))
    if blob is None:
        raise UnsupportedError(f"the resource {found[1]} has no data in this program")
    data = bytes.fromhex(blob[1])
    dtype = dtype_info(info.dtype).numpy
    shape = tuple(d for d in info.dims or () if isinstance(d, int))
    if len(data) - 4 != math.prod(shape) * dtype.itemsize:
        raise UnsupportedError(
            f"the resource {found[1]} has {len(data) - 4} bytes, which are not the elements of "
            f"{info}"
        )
    values = np.frombuffer(data[4:], dtype)
    name = json.loads(found[1]) if found[1].startswith('"') else found[1]
    return values.reshape(shape), {"name": name, "alignment": int.from_bytes(data[:4], "little")}


def _may_be_resource(op: Any) -> bool:
    try:
        return not hasattr(op.attributes["value"], "is_splat")
    except TypeError:
        return False  # complex elements, which jaxlib cannot wrap


def write_resource(data: Array, t: ir.Type, name: str, alignment: int) -> ir.Attribute:
    """The ``dense_resource`` attribute that :func:`read_resource` reads."""
    raw: Any = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    get: Any = ir.DenseResourceElementsAttr.get_from_buffer
    return get(memoryview(raw), name, t, alignment=alignment)


def name_resource(name: str, t: ir.Type) -> ir.Attribute:
    """A ``dense_resource`` attribute without data."""
    return ir.Attribute.parse(f'dense_resource<"{name}"> : {t}')


def named_resource(op: Any) -> str | None:
    """The name of a constant's resource if the program does not hold its data, else None."""
    found = _RESOURCE.match(str(op.attributes["value"])) if _may_be_resource(op) else None
    if found is None or _BLOB.search(str(op.operation.clone())) is not None:
        return None
    return json.loads(found[1]) if found[1].startswith('"') else found[1]


def _from_text(text: str, dtype: DType, shape: Any) -> Array:
    """Values of the last ``dense<...>`` in ``text``."""
    start = text.rfind("dense<")
    end = text.rfind("> : ")
    if start < 0 or end < start:
        raise UnsupportedError(f"a constant's value is {text[:60]}; only dense<...> works")
    inner = text[start + 6 : end]
    if inner.startswith('"0x'):
        values = np.frombuffer(bytes.fromhex(inner[3:-1]), dtype.numpy)
    else:
        values = _parse_values(_TOKEN.findall(inner), dtype)
    if values.size == 1:
        return np.broadcast_to(values.reshape(()).copy(), shape)
    return values.reshape(shape)


def _parse_values(tokens: list[str], dtype: DType) -> Array:
    if dtype.kind == "complex":
        half = dtype_info("float32" if dtype.bits == 64 else "float64")
        return _parse_values(tokens, half).view(dtype.numpy)
    if dtype.kind == "bool":
        return np.array([t == "true" for t in tokens], np.bool_)
    if dtype.kind in ("int", "uint"):
        return np.array([int(t) for t in tokens], np.int64 if dtype.bits < 64 else object).astype(
            dtype.numpy
        )
    # MLIR prints a float in decimal where that is exact, else as the hexadecimal of its bits.
    values = np.array([0.0 if t.startswith("0x") else float(t) for t in tokens]).astype(dtype.numpy)
    bits = values.view(f"u{dtype.nbytes}")
    for i, t in enumerate(tokens):
        if t.startswith("0x"):
            bits[i] = int(t, 16)
    return values


def dense_of_text(text: str) -> ir.Attribute | None:
    """The attribute of ``dense<...> : tensor<...xcomplex<...>>``, which jaxlib cannot parse by
    itself; None for any other text.
    """
    found = _COMPLEX.fullmatch(text)
    half = BY_MLIR.get(found[2]) if found else None
    if found is None or half is None or half.nbytes * 8 != half.bits:
        return None
    t = ir.Type.parse(found[1])
    inner = found[0][len("dense<") : found.start(1) - len("> : ")]
    if inner.startswith('"0x'):
        return dense(np.frombuffer(bytes.fromhex(inner[3:-1]), np.uint8), t)
    return dense(_parse_values(_TOKEN.findall(inner), half).view(np.uint8), t)


def is_splat(data: Array) -> bool:
    """Whether ``data`` is one element repeated by strides of 0."""
    return data.size > 1 and all(
        s == 0 for s, n in zip(data.strides, data.shape, strict=True) if n > 1
    )


def write_elements(data: Array, t: ir.Type) -> ir.Attribute:
    """The dense attribute of ``data`` with the tensor type ``t``."""
    if data.size == 0:
        one = data.base
        if isinstance(one, np.ndarray) and one.size == 1 and one.dtype == data.dtype:
            return _write_splat(one, t)  # MLIR tells a splat without elements from no elements.
        return dense(np.zeros(0, np.uint8), t)
    if is_splat(data):
        return _write_splat(data[(slice(0, 1),) * data.ndim], t)
    flat = np.ascontiguousarray(data).reshape(-1)
    return dense(flat if flat.dtype == np.bool_ else flat.view(np.uint8), t)


def _write_splat(one: Array, t: ir.Type) -> ir.Attribute:
    if one.dtype == np.bool_:
        return ir.DenseElementsAttr.get_splat(t, ir.BoolAttr.get(bool(one.item())))
    return dense(np.ascontiguousarray(one).reshape(-1).view(np.uint8), t)

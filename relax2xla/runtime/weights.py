"""Weights by name in files: safetensors (memory-mapped), .npz and .npy; nothing in them is run.

Files are treated as hostile: what a header declares is checked against the size of the file before
anything is allocated.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import FileFormatError
from relax2xla.runtime.numpy_files import check_shape, read_npy, read_npz
from relax2xla.runtime.whole_file import whole_file

Array = npt.NDArray[Any]

# The format's names of dtypes, and ours.
_DTYPES: Final = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
CODES: Final = {numpy_dtype(ours): theirs for theirs, ours in _DTYPES.items()}
# Longer headers are damage: a million tensors take about this much.
_MAX_HEADER: Final = 100_000_000
# XLA takes memory as it is where it is aligned to this.
ALIGNMENT: Final = 64
METADATA: Final = "__metadata__"


def load_weights(path: str | Path) -> dict[str, Array]:
    """The arrays of a .safetensors (memory-mapped, read-only), .npz or .npy file by name.

    The array of an .npy file is called as the file is. Raises FileFormatError for what is damaged
    or of another kind. Torch checkpoints are read with
    ``relax2xla.importers.torch.load_state_dict``.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    try:
        if suffix == ".safetensors":
            return read_safetensors(map_file(path), str(path))
        if suffix == ".npz":
            return dict(read_npz(path))
        if suffix == ".npy":
            with path.open("rb") as file:
                return {path.stem: read_npy(file, path.stat().st_size, str(path))}
    except OSError as e:
        raise FileFormatError(f"{path}: {e.strerror or e}") from None
    raise FileFormatError(
        f"{path}: weights are read from .safetensors, .npz and .npy; a torch checkpoint is read "
        "with relax2xla.importers.torch.load_state_dict"
    )


def save_weights(path: str | Path, weights: Mapping[str, Any]) -> None:
    """Write arrays (numpy, jax) as a .safetensors file; what was there stays if that fails.

    Raises FileFormatError for dtypes that the format does not have.
    """
    with whole_file(Path(path)) as file:
        write_safetensors(file, {n: np.asarray(w) for n, w in weights.items()})


# -- safetensors -----------------------------------------------------------------------------------
def map_file(path: Path) -> memoryview:
    """A file as memory that is read as it is used. OSError as ``open`` raises it.

    The file must not be changed in place while arrays of it are in use; replacing it is fine.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_safetensors(data: memoryview, where: str) -> dict[str, Array]:
    """The arrays of a file in the format of safetensors, as read-only views of its bytes.

    Raises FileFormatError where the header is not true to the format (tensors lie without gap or
    overlap, and fill the file).
    """
    header, start = _header(data, where)
    made: dict[str, Array] = {}
    spans: list[tuple[int, int]] = []
    for name, row in header.items():
        if name == METADATA:
            continue
        what = f"{where}: the tensor {name[:200]!r}"
        code, sizes, span = _row(row, what)
        dtype = numpy_dtype(_DTYPES[code])
        try:
            shape = check_shape(sizes, dtype.itemsize)
        except ValueError as e:
            raise FileFormatError(f"{what} does not fit: {e}") from None
        count = math.prod(shape)
        if span[1] - span[0] != count * dtype.itemsize or span[1] > len(data) - start:
            raise FileFormatError(
                f"{what} of shape {shape} and dtype {code} does not fit its "
                f"place {span} in {len(data) - start} bytes"
            )
        spans.append(span)
        piece = data[start + span[0] : start + span[1]]
        made[name] = np.frombuffer(piece, dtype, count).reshape(shape)
    end = 0
    for low, high in sorted(spans):
        if low != end:
            raise FileFormatError(f"{where}: tensors overlap or leave a gap at byte {end}")
        end = high
    if end != len(data) - start:
        raise FileFormatError(f"{where}: {len(data) - start - end} bytes belong to no tensor")
    return made


def _header(data: memoryview, where: str) -> tuple[dict[str, Any], int]:
    """The header, and where what follows it begins."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= size <= min(_MAX_HEADER, len(data) - 8):
        raise FileFormatError(f"{where} is no safetensors file, or is truncated")
    try:
        text = str(data[8 : 8 + size], "utf-8")
        header = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError, MemoryError) as e:
        raise FileFormatError(
            f"{where}: the header of the safetensors file: {str(e)[:300]}"
        ) from None
    if not isinstance(header, dict):
        raise FileFormatError(f"{where}: the header of the safetensors file is no object")
    return header, 8 + size


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name is there twice")
    if not all(map(_encodes, made)):
        raise ValueError("a name is no text")
    return made


def _encodes(name: str) -> bool:
    """Whether a name can be printed: JSON can write half a character."""
    return not any("\ud800" <= c <= "\udfff" for c in name)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _row(row: Any, where: str) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """Dtype, shape and place of one tensor."""
    if not isinstance(row, dict):
        raise FileFormatError(f"{where} has no description")
    code, shape, span = row.get("dtype"), row.get("shape"), row.get("data_offsets")
    if not isinstance(code, str) or code not in _DTYPES:
        raise FileFormatError(
            f"{where} has the dtype {str(code)[:100]!r}; known: {', '.join(_DTYPES)}"
        )
    if not _is_sizes(shape) or not _is_sizes(span) or len(span) != 2 or span[0] > span[1]:
        raise FileFormatError(f"{where} has the shape {_brief(shape)} and the place {_brief(span)}")
    return code, tuple(shape), (span[0], span[1])


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:200] + "..."


def _is_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)


class Writer(Protocol):
    """What arrays are written to."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Write all of ``data``."""
        ...


def write_safetensors(file: Writer, weights: Mapping[str, Array]) -> None:
    """Write arrays in the format of safetensors, little-endian, so that most lie aligned.

    Tensors whose size is a multiple of ``ALIGNMENT`` come first, and each of them can be used in
    place. Raises FileFormatError for dtypes that the format does not have.
    """
    rows: dict[str, Any] = {}
    at = 0
    order = sorted(weights, key=lambda n: (weights[n].nbytes % ALIGNMENT != 0, n))
    for name in order:
        array = weights[name]
        code = CODES.get(array.dtype.newbyteorder("="))
        if code is None or name == METADATA:
            raise FileFormatError(
                f"the weight {name!r} of dtype {array.dtype} cannot be written as safetensors"
            )
        rows[name] = {
            "dtype": code,
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        array = weights[name]
        plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        file.write(plain.reshape(-1).view(np.uint8).data)

"""Weights in a file beside a program's text: written, found again, and checked.

StableHLO text has ``dense_resource<name>`` in place of such a constant and names the file in the
attribute ``relax2xla.weights`` of its module, which MLIR's tools read and write as they are. Relax
text has a row without data, and names the file once. Several programs may share one file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import FileFormatError
from relax2xla.importers.shared.paths import inside
from relax2xla.ir import Constant, IRModule
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.source_names import names_of
from relax2xla.runtime.weights import CODES, load_weights, save_weights
from relax2xla.runtime.whole_file import is_stream
from relax2xla.stablehlo.constants import is_splat

Array = npt.NDArray[Any]

#: What stands for "in the text" where a file is asked for.
INLINE: Final = "inline"
# Text with more bytes of constants than this has them beside it, unless it is told otherwise.
_READABLE: Final = 1 << 20
# Smaller arrays are sizes, axes and scales, which a reader wants to see.
_SMALL: Final = 1 << 10


def weights_file(mod: IRModule, path: Path, form: str, asked: str | Path | None) -> Path | None:
    """Where the weights of ``mod`` go if it is written to ``path``; None: into the program.

    ``asked``: a file, "inline", or None: beside text that has more than 1 MiB of them. Raises
    FileFormatError for a file that the program cannot name.
    """
    if asked == INLINE or (asked is None and form not in ("mlir", "relax")):
        return None
    if is_stream(path):
        if asked is None:
            return None
        raise FileFormatError(f"{path} is no file that names another; leave the weights {INLINE}")
    if asked is None:
        beside = path.with_suffix(".safetensors")
        if _bytes(mod) <= _READABLE:
            return None
        if beside.exists() and not _is_named(beside, path):
            raise FileFormatError(
                f"{beside} is there already, and is not that of a program {path}. Say where the "
                f"weights go, to another .safetensors file or {INLINE}: weights=, or --weights on "
                "the command line"
            )
        return beside
    file = Path(asked)
    if file.suffix.lower() != ".safetensors":
        raise FileFormatError(f"{file}: weights are written as .safetensors, or {INLINE}")
    if form == "stablehlo":
        raise FileFormatError(
            "a portable artefact holds its weights itself; write .mlir, .mlirbc or .relax"
        )
    location_of(file, path)
    return file


def _is_named(file: Path, path: Path) -> bool:
    """Whether the program at ``path`` names ``file`` as that of its weights."""
    try:
        return f'"{file.name}"'.encode() in path.read_bytes().replace(b'\\"', b'"')
    except OSError:
        return False


def location_of(file: Path, path: Path) -> str:
    """How the program at ``path`` names ``file``, which must be in its folder, or below."""
    folder = Path(os.path.abspath(path)).parent
    try:
        found = Path(os.path.abspath(file)).relative_to(folder)
    except ValueError:
        raise FileFormatError(
            f"{file}: weights must lie in the folder of the program ({folder}), or below it"
        ) from None
    return PurePosixPath(found).as_posix()


def _bytes(mod: IRModule) -> int:
    arrays = {
        id(node.data): node.data.nbytes
        for func in mod.relax_functions().values()
        for node in post_order_deep(func)
        if isinstance(node, Constant) and not is_splat(node.data)
    }
    return sum(arrays.values())


@dataclass(slots=True)
class Beside:
    """Arrays that a program names instead of holding them; ``location``: of the file, for it."""

    location: str
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    _names: dict[int, str] = field(default_factory=dict[int, str])

    def __call__(self, value: Constant) -> str | None:
        """The name of a constant that is left out, else None."""
        data = value.data
        if data.nbytes < _SMALL or is_splat(data):
            return None
        known = self._names.get(id(data))
        if known is not None:
            return known
        base = next(iter(names_of(value.span)), "") or "constant"
        base = "".join(c if c.isprintable() and c not in '"\\' else "_" for c in base)
        name, number = base, 0
        while name in self.arrays:
            number += 1
            name = f"{base}.{number}"
        self._names[id(data)] = name
        self.arrays[name] = data
        return name

    def write(self, file: Path) -> None:
        """Write the arrays; the file appears complete or not at all."""
        try:
            save_weights(file, {n: _storable(a) for n, a in self.arrays.items()})
        except OSError as e:
            raise FileFormatError(f"{file}: cannot be written: {e.strerror or e}") from e


def _storable(array: Array) -> Array:
    """What safetensors has no name for is written as bytes."""
    if array.dtype.newbyteorder("=") in CODES:
        return array
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Found:
    """The arrays beside a program in ``folder``, by the file that it names; mapped, not read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, Mapping[str, Array]] = {}

    def __call__(self, location: str, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """One array. FileFormatError for what is missing, or has another shape or dtype."""
        if location not in self._files:
            path = inside(self.folder, location, "the program")
            if not path.is_file():
                raise FileFormatError(
                    f"{path}: the program's weights are in this file, which is not there. Copy it "
                    "with the program"
                )
            self._files[location] = load_weights(path)
        held = self._files[location].get(name)
        if held is None:
            raise FileFormatError(f"{location} has no array {name!r}, which the program names")
        wanted = numpy_dtype(dtype)
        plain = wanted.newbyteorder("=") not in CODES
        if plain and held.dtype == np.uint8 and held.size == np.prod(shape) * wanted.itemsize:
            return held.view(wanted).reshape(shape)
        if held.dtype != wanted or held.shape != shape:
            raise FileFormatError(
                f"{location}: {name!r} is {held.dtype} of shape {held.shape}; the program says "
                f"{wanted} of shape {shape}. Is it the file that was written with the program?"
            )
        return held

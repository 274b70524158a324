"""Programs that ``jax.export.Exported.serialize`` wrote: a table around a portable artefact.

The layout is FlatBuffers': numbers are little-endian, an offset counts from where it stands, and a
table begins with the distance back to the places of its fields. JAX only ever adds fields, so that
a few numbers find what a program needs in files of every version. JAX's own reader, which makes
pytrees of classes that must be registered, is neither needed nor trusted: here every place is
checked, and no code is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any, Final

from relax2xla.errors import StableHLOParseError
from relax2xla.ir.expr import Function, Var
from relax2xla.stablehlo.untrusted.bytecode import MAGIC

#: The function attribute with the platforms that the value of :data:`PLATFORM_INDEX` counts.
PLATFORMS: Final = "platforms"
#: The argument attribute of values that the caller's program knows, and that of the platform.
GLOBAL_CONSTANT: Final = "jax.global_constant"
PLATFORM_INDEX: Final = "_platform_index"

# Places of fields among the offsets of a table.
_PLATFORMS, _MODULE, _KEPT, _ALL_AVALS = 22, 30, 34, 42
_INPUTS, _OUTPUTS = (10, 48), (14, 50)
_SHAPE = 6
# More platforms and dimensions than anybody has.
_MOST: Final = 1 << 16

Data = bytes | mmap
Shapes = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Exported:
    """What is read of a serialised program.

    ``module``: a portable artefact. ``platforms``: where it may run; if several, ``main`` takes the
    place of the one that it runs on. ``inputs``, ``outputs``: the dimensions of what ``main`` takes
    from its callers and gives, as JAX writes them ("n", "2*n", "3").
    """

    module: bytes
    platforms: tuple[str, ...]
    inputs: Shapes
    outputs: Shapes

    @classmethod
    def of(cls, exported: Any) -> Exported:
        """What a ``jax.export.Exported`` says."""
        kept = [exported.in_avals[i] for i in exported.module_kept_var_idx]
        inputs, outputs = (
            tuple(tuple(map(str, a.shape)) for a in avals) for avals in (kept, exported.out_avals)
        )
        data = bytes(exported.mlir_module_serialized)
        return cls(data, tuple(exported.platforms), inputs, outputs)


def is_exported(data: Data) -> bool:
    """Whether ``data`` holds a serialised program, or did before it was cut short."""
    try:
        root = _Table(data, _number(data, 0, 4))
        at = root.field(_MODULE)
        return at is not None and data[at + 4 : at + 4 + len(MAGIC)] == MAGIC
    except _Damaged:
        return False


def read_exported(data: Data) -> Exported:
    """The program in ``data``. Raises StableHLOParseError for what is damaged."""
    try:
        root = _Table(data, _number(data, 0, 4))
        at = root.field(_MODULE)
        if at is None:
            raise _Damaged
        size = _number(data, at, 4)
        module = data[at + 4 : at + 4 + size]
        if len(module) != size:
            raise _Damaged
        platforms = tuple(_text(data, p) for p in root.offsets(_PLATFORMS))
        return Exported(module, platforms, _inputs(data, root), _shapes(data, root, *_OUTPUTS))
    except (_Damaged, UnicodeDecodeError) as e:
        raise StableHLOParseError(
            "what jax.export wrote is damaged or cut short; copy it again"
        ) from e


def _inputs(data: Data, root: _Table) -> Shapes:
    """The shapes of the inputs that are left in the program."""
    every, kept = _shapes(data, root, *_INPUTS), root.numbers(_KEPT, 2)
    if any(i >= len(every) for i in kept):
        raise _Damaged
    return tuple(every[i] for i in kept)


def _shapes(data: Data, root: _Table, own: int, places: int) -> Shapes:
    """Shapes, which have a field of their own or (since 2026) places among all that there are."""
    found = root.offsets(own)
    if not found:
        known, at = root.offsets(_ALL_AVALS), root.numbers(places, 4)
        if any(i >= len(known) for i in at):
            raise _Damaged
        found = [known[i] for i in at]
    return tuple(tuple(_text(data, d) for d in _Table(data, t).offsets(_SHAPE)) for t in found)


def platform_param(func: Function) -> Var | None:
    """The parameter that takes the place of the platform among those of the export."""
    known = func.attrs.get("arg_attrs", {})
    return next(
        (
            p
            for p in func.params
            if known.get(p.name_hint, {}).get(GLOBAL_CONSTANT) == PLATFORM_INDEX
        ),
        None,
    )


class _Damaged(Exception):
    """A place outside of the data."""


class _Table:
    """The table at a place."""

    def __init__(self, data: Data, at: int) -> None:
        self.data, self.at = data, at
        back = _number(data, at, 4)
        self.places = at - (back - (1 << 32) if back >> 31 else back)
        self.size = _number(data, self.places, 2)

    def field(self, name: int) -> int | None:
        """Where the vector of a field is; None where there is none."""
        if name + 2 > self.size:
            return None
        at = _number(self.data, self.places + name, 2)
        return self.at + at + _number(self.data, self.at + at, 4) if at else None

    def numbers(self, name: int, width: int) -> Sequence[int]:
        """The elements of a vector of numbers."""
        at = self.field(name)
        count = 0 if at is None else _number(self.data, at, 4)
        if at is None or count > _MOST:
            return () if at is None else _damaged()
        return [_number(self.data, at + 4 + i * width, width) for i in range(count)]

    def offsets(self, name: int) -> Sequence[int]:
        """Where the elements of a vector of strings or tables are."""
        at = self.field(name)
        if at is None:
            return ()
        return [at + 4 + 4 * i + offset for i, offset in enumerate(self.numbers(name, 4))]


def _damaged() -> Sequence[int]:
    raise _Damaged


def _number(data: Data, at: int, width: int) -> int:
    found = data[at : at + width] if at >= 0 else b""
    if len(found) != width:
        raise _Damaged
    return int.from_bytes(found, "little")


def _text(data: Data, at: int) -> str:
    size = _number(data, at, 4)
    found = data[at + 4 : at + 4 + size]
    if size > _MOST or len(found) != size:
        raise _Damaged
    return found.decode()

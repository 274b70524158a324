"""Results compared with those of another runtime, within tolerances by dtype."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax2xla.cli.process.console import status
from relax2xla.cli.reading.model import by_value_noted, entry_name, inputs_of, nest
from relax2xla.cli.reading.values import (
    Array,
    dtype_of,
    is_map,
    is_maps,
    is_text,
    kind_of,
    maps_of,
    plain,
)
from relax2xla.ir import IRModule
from relax2xla.ir.source_names import full_names, result_names
from relax2xla.runtime.device import Device

# Relative and absolute tolerance by dtype; what is not here must be equal.
TOLERANCES: Final[dict[str, tuple[float, float]]] = {
    "float64": (1e-6, 1e-8),
    "complex128": (1e-6, 1e-8),
    "float32": (1e-3, 1e-4),
    "complex64": (1e-3, 1e-4),
    "float16": (1e-2, 1e-3),
    "bfloat16": (5e-2, 1e-2),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``verify``; ``rtol`` and ``atol`` None: by dtype.

    ``taps``: None is where an output departs, of a file that has values inside of it to compare.
    ``bisect``: a folder for the part that departs; ``html``: a page with the errors as colours.
    ``plugins``: those that are loaded, which a reproducer loads as well.
    """

    inputs: Sequence[str]
    seed: int
    rtol: float | None
    atol: float | None
    device: str
    taps: bool | None
    json: bool
    bisect: Path | None = None
    html: Path | None = None
    plugins: Sequence[str] = ()


# Results that are no arrays: sizes, and constants of a model.
PLAIN: Final = (bool, int, float, complex, str)


@dataclass(frozen=True, slots=True)
class Row:
    """How one result compares: ``largest`` absolute and ``relative`` error, and the tolerance.

    ``expected``: what the dtype and shape should have been, where they are other ones.
    """

    name: str
    dtype: str
    shape: str
    fits: bool
    largest: float = 0.0
    relative: float = 0.0
    rtol: float = 0.0
    atol: float = 0.0
    expected: str = ""

    def cells(self) -> tuple[str, ...]:
        """For the table."""
        head = (self.name, self.dtype, self.shape)
        if self.expected:
            return (*head, "", "", "", f"expected {self.expected}")
        errors = (f"{self.largest:.2e}", f"{self.relative:.2e}")
        tolerance = f"{self.atol:g} + {self.rtol:g}|x|"
        return (*head, *errors, tolerance, "ok" if self.fits else "MISMATCH")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {n: getattr(self, n) for n in self.__slots__}


def results(
    file: Path,
    mod: IRModule,
    device: Device,
    asked: Asked,
    shapes: Mapping[str, Any],
    flat: Any = None,
) -> tuple[list[Any], Any]:
    """The inputs of ``mod``, read from ``file``, made unless given; what it gives for them."""
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    with status("compiling"):
        machine = VirtualMachine(build(mod), device)
        name = entry_name(list(machine.executable))
        flat = flat or inputs_of(machine, name, file, asked.inputs, asked.seed, shapes)
    with status("running"):
        main = machine[name]
        with by_value_noted(machine, name, asked.inputs):
            return flat, main(*nest(main.params, flat))


def compare(
    ours: Sequence[Any],
    theirs: Sequence[Any],
    rtol: float | None,
    atol: float | None,
    name: str = "output",
    scaled: bool = False,
) -> list[Row]:
    """One row a result; results of one name have numbers.

    scaled: let ``atol``, unless it is given, grow with the largest number expected, because sums
            of large terms that cancel are off by as much
    """
    from relax2xla.runtime.convert import to_host

    if len(ours) != len(theirs):
        expected = f"{len(theirs)} results"
        return [Row(name, "", f"{len(ours)} results", False, expected=expected)]
    rows: list[Row] = []
    for i, (mine, yours) in enumerate(zip(ours, theirs, strict=True)):
        label = f"{name}_{i}" if name == "output" or len(ours) > 1 else name
        if _hosted(mine) or _hosted(yours):
            rows.append(_compare_hosted(label, mine, yours, rtol, atol))
            continue
        a, b = (np.asarray(v) if isinstance(v, PLAIN) else to_host(v) for v in (mine, yours))
        rel, ab = _tolerance(a.dtype.name, rtol, atol)
        head = (label, *kind_of(a))
        if a.shape != b.shape or dtype_of(a) != dtype_of(b):
            rows.append(Row(*head, False, expected=f"{dtype_of(b)} of shape {b.shape}"))
            continue
        if scaled and atol is None and ab:
            ab *= max(1.0, _largest(b))
        largest, relative, good = difference(a, b, rel, ab)
        rows.append(Row(*head, good, largest, relative, rel, ab))
    return rows


def names_of_results(mod: IRModule, count: int) -> list[str]:
    """What the source of ``mod`` calls its ``count`` results; output_0, ... without a name."""
    functions = {g.name_hint: f for g, f in mod.relax_functions().items()}
    function = functions.get(entry_name(list(functions)))
    return full_names(() if function is None else result_names(function), count)


def named(rows: Sequence[Row], mod: IRModule) -> list[Row]:
    """The rows of the results of ``mod`` by its own names for them."""
    names = names_of_results(mod, len(rows))
    return [replace(r, name=n) for r, n in zip(rows, names, strict=True)]


def _tolerance(dtype: str, rtol: float | None, atol: float | None) -> tuple[float, float]:
    rel, ab = TOLERANCES.get(dtype, (0.0, 0.0))
    return (rel if rtol is None else rtol), (ab if atol is None else atol)


def _hosted(value: object) -> bool:
    """Whether a result is a map, a sequence of maps, or not there."""
    return value is None or is_map(value) or is_maps(value)


def _compare_hosted(
    label: str, mine: Any, yours: Any, rtol: float | None, atol: float | None
) -> Row:
    """Maps have the same keys, and their values differ as those of tensors may."""
    head = (label, *(kind_of(mine) if _hosted(mine) else kind_of(np.asarray(mine))))
    other = kind_of(yours) if _hosted(yours) else kind_of(np.asarray(yours))
    if mine is None or yours is None or head[1:] != other:
        return Row(*head, mine is None and yours is None, expected=" ".join(other).strip())
    a, b = maps_of(mine), maps_of(yours)
    wrong = [y for x, y in zip(a, b, strict=True) if set(x) != set(y)]
    if wrong:
        keys = ", ".join(repr(k) for k in list(wrong[0])[:5])
        return Row(*head, False, expected=f"the keys {keys}")
    values = [
        np.array([x[k] for x, keys in zip(rows, a, strict=True) for k in keys]) for rows in (a, b)
    ]
    if dtype_of(values[0]) != dtype_of(values[1]):
        return Row(*head, False, expected=f"values of {dtype_of(values[1])}")
    # What is a number of Python now was a float32: ONNX has no other floats in maps but doubles.
    floats = "float32" if values[0].dtype.kind == "f" else values[0].dtype.name
    rel, ab = _tolerance(floats, rtol, atol)
    largest, relative, good = difference(values[0], values[1], rel, ab)
    return Row(*head, good, largest, relative, rel, ab)


def _largest(a: Array) -> float:
    """The largest finite magnitude."""
    size = np.abs(_wide(a))
    return float(size[np.isfinite(size)].max(initial=0.0))


def _wide(a: Array) -> Array:
    wide: Any = np.complex128 if a.dtype.kind == "c" else np.float64
    return a.astype(wide)


def difference(ours: Array, theirs: Array, rtol: float, atol: float) -> tuple[float, float, bool]:
    """Largest absolute and relative difference, and whether every element is within tolerance.

    Infinities and NaN must stand at the same places. Strings are equal or not.
    """
    if is_text(ours):
        same = [_text(x) == _text(y) for x, y in zip(ours.flat, theirs.flat, strict=True)]
        error = 0.0 if all(same) else math.inf
        return error, error, all(same)
    a, b = _wide(ours), _wide(theirs)
    equal = (ours == theirs) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Large integers that differ may be equal as floats.
        least = 1.0 if ours.dtype.kind in "biu" else 0.0
        gap = np.where(equal, 0.0, np.maximum(np.abs(a - b), least))
        relative = np.where(equal, 0.0, gap / np.abs(b))
        good = equal | (np.isfinite(gap) & (gap <= atol + rtol * np.abs(b)))
    return float(gap.max(initial=0.0)), float(relative.max(initial=0.0)), bool(good.all())


def _text(value: Any) -> str:
    return str(plain(value))

"""Values that are no arrays: sequences, maps, strings and what is absent, to and from JSON.

The machine has them as Python values: a tuple for a sequence, a dict for a map, an array of dtype
object for strings, None for an optional value that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from relax2xla.budget import physical_memory
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import BudgetError, CallError
from relax2xla.runtime.convert import to_host

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Declared:
    """What a model says of an input that is no tensor of numbers.

    ``dtype``: of the tensors, or of the values of the maps; "" for strings. ``keys``: "int64" or
    "string" for maps, "" for tensors. ``dims``: of the tensors, None where it is not known; sizes
    that are not are names.
    """

    dtype: str
    sequence: bool = False
    optional: bool = False
    keys: str = ""
    dims: tuple[int | str, ...] | None = None

    def __str__(self) -> str:
        held = self.dtype or "strings"
        one = f"map from {self.keys} to {held}" if self.keys else f"tensor of {held}"
        return ("optional " * self.optional) + ("sequence: each a " * self.sequence) + one


# -- results ---------------------------------------------------------------------------------------
def flat_results(value: Any) -> list[Any]:
    """The results in nested tuples, in order. A sequence of maps is one result."""
    made: list[Any] = []
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, tuple | list) and not is_maps(top):
            stack += reversed(top)
        else:
            made.append(top)
    return made


def is_maps(value: object) -> bool:
    """Whether ``value`` is a sequence of maps, which has at least one."""
    return isinstance(value, tuple | list) and bool(value) and all(map(is_map, value))


def is_map(value: object) -> bool:
    """Whether ``value`` is a map."""
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[Array]:
    """Whether a value is an array of numbers."""
    return isinstance(value, np.ndarray) and not is_text(value)


def is_text(value: Array) -> bool:
    """Whether an array holds strings."""
    return value.dtype.kind in "OSUT"


def host_results(value: Any) -> list[Any]:
    """:func:`flat_results` on the host; waits until they are computed."""
    return [
        v if v is None or is_map(v) or is_maps(v) else np.asarray(v) for v in flat_results(value)
    ]


def maps_of(value: Any) -> list[dict[Any, Any]]:
    """A map, or a sequence of such, as dicts with Python's own keys and values."""
    rows: Sequence[Any] = [value] if is_map(value) else value
    return [{plain(k): plain(v) for k, v in dict(row).items()} for row in rows]


def plain(value: Any) -> Any:
    """One number or string as Python has it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.item() if hasattr(value, "item") else value


def kind_of(value: Any) -> tuple[str, str]:
    """What a result is in a table: dtype, and shape or length."""
    if value is None:
        return "none", ""
    if isinstance(value, np.ndarray):
        return dtype_of(value), "x".join(map(str, value.shape)) or "scalar"
    return "map", f"{len(value)}" if is_map(value) else f"{len(value)}x{len(value[0])}"


def dtype_of(value: Array) -> str:
    """The dtype's name; strings have several in numpy."""
    return "string" if is_text(value) else value.dtype.name


def words(value: Any, most: int = 60) -> str:
    """A result that is no array of numbers, on one line."""
    if value is None:
        return ""
    if isinstance(value, np.ndarray):
        parts = [repr(plain(v)) for v in value.reshape(-1)[:5]]
        more = value.size > len(parts)
        joined = " ".join(parts)
    else:
        rows = maps_of(value)
        joined = "{" + ", ".join(f"{k!r}: {_short(v)}" for k, v in rows[0].items()) + "}"
        more = len(rows) > 1
    return joined[:most] + (" ..." if more or len(joined) > most else "")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


# -- JSON ------------------------------------------------------------------------------------------
def to_json(value: Any) -> Any:
    """A result of :func:`host_results` as JSON has it: lists, objects, numbers, strings and null.

    NaN and infinities, which JSON lacks, are the strings ``"nan"``, ``"inf"`` and ``"-inf"``.
    Complex numbers are pairs.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if is_map(value):
        return {str(k): to_json(v) for k, v in maps_of(value)[0].items()}
    if is_maps(value):
        return [to_json(row) for row in maps_of(value)]
    if isinstance(value, list):
        return [to_json(v) for v in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufcOSUT":
            value = value.astype(np.int64 if "int" in value.dtype.name else np.float64)
        return to_json(value.tolist())
    value = plain(value)
    if isinstance(value, complex):
        return [to_json(value.real), to_json(value.imag)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_json(data: Any, kind: Declared, what: str) -> Any:
    """An argument of ``kind``; CallError where ``data`` is none."""
    if data is None:
        if kind.optional:
            return None
        raise CallError(f"{what}: expected a {kind}; got null")
    if not kind.sequence:
        return _one_from_json(data, kind, what)
    if not isinstance(data, list):
        raise CallError(f"{what}: expected a {kind}, as a list; got {_brief(data)}")
    return tuple(_one_from_json(v, kind, f"{what}[{i}]") for i, v in enumerate(data))


def _one_from_json(data: Any, kind: Declared, what: str) -> Any:
    if not kind.keys:
        return texts(data, what) if not kind.dtype else numbers(data, kind.dtype, what)
    if not isinstance(data, dict):
        raise CallError(f"{what}: expected a {kind}, as an object; got {_brief(data)}")
    return {_key(k, kind, what): _value(v, kind, f"{what}[{k!r}]") for k, v in data.items()}


def _key(text: str, kind: Declared, what: str) -> Any:
    if kind.keys != "int64":
        return text
    try:
        return int(text)
    except ValueError:
        raise CallError(f"{what}: the keys are int64; {text!r} is none") from None


def _value(data: Any, kind: Declared, what: str) -> Any:
    if kind.dtype:
        return numbers(data, kind.dtype, what).item()
    if not isinstance(data, str):
        raise CallError(f"{what}: expected a string; got {_brief(data)}")
    return data


def numbers(data: Any, dtype: str, what: str) -> Array:
    """A number, or nested lists of such, as an array; they must fit ``dtype``."""
    if any(_leaf(data, kind) for kind in (str, dict, type(None))):
        raise CallError(f"{what}: expected numbers of {dtype}; got {_brief(data)}")
    try:
        return to_host(data, dtype)
    except CallError as e:
        raise CallError(f"{what}: {e}") from None


def texts(data: Any, what: str) -> Array:
    """A string, or nested lists of such, as an array of dtype object."""
    shape: list[int] = []
    first = data
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    flat: list[Any] = [data]
    for size in shape:
        if not all(isinstance(v, list) and len(v) == size for v in flat):
            raise CallError(f"{what}: lists in it differ in length")
        flat = [v for row in flat for v in row]
    if not all(isinstance(v, str) for v in flat):
        raise CallError(f"{what}: expected strings; got {_brief(data)}")
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(shape)


def _leaf(data: Any, kind: type) -> list[Any]:
    """The first value of ``kind`` in nested lists, in a list; [] where there is none."""
    stack = [data]
    while stack:
        top = stack.pop()
        if isinstance(top, kind):
            return [top]
        if isinstance(top, list):
            stack += top
    return []


def _brief(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."


def guessed(data: Any) -> Declared:
    """The kind that data of JSON looks like, for models that do not say."""
    if data is None:
        return Declared("", optional=True)
    if isinstance(data, dict):
        return _guessed_map(data)
    if isinstance(data, list) and data and all(isinstance(v, dict) for v in data):
        kind = _guessed_map(data[0])
        return Declared(kind.dtype, sequence=True, keys=kind.keys)
    if _leaf(data, str):
        return Declared("")
    return Declared("float32" if _leaf(data, float) else "int64")


def _guessed_map(data: Mapping[str, Any]) -> Declared:
    keys = "int64" if all(k.removeprefix("-").isdecimal() for k in data) else "string"
    values = list(data.values())
    if any(isinstance(v, str) for v in values):
        return Declared("", keys=keys)
    return Declared("float32" if any(isinstance(v, float) for v in values) else "int64", keys=keys)


# -- made from a seed ------------------------------------------------------------------------------
def generated(kind: Declared, name: str, rng: np.random.Generator, sizes: Mapping[str, Any]) -> Any:
    """A value of ``kind``; CallError where the model does not say enough to make one."""
    if kind.keys:
        raise CallError(
            f"no value can be made for the input {name}, a {kind}: its keys are not known. Give "
            f"one: --inputs {name}=FILE.json"
        )
    if kind.dims is None:
        raise CallError(
            f"no value can be made for the input {name}, a {kind} of no known shape. Give one: "
            f"--inputs {name}=FILE.json"
        )
    found = [d if isinstance(d, int) else sizes.get(d) for d in kind.dims]
    shape = tuple(s for s in found if isinstance(s, int))
    if missing := [d for d, s in zip(kind.dims, found, strict=True) if not isinstance(s, int)]:
        asked = " ".join(f"--shape {d}=4" for d in dict.fromkeys(missing))
        raise CallError(f"the input {name} is a {kind}; give its sizes: {asked}")
    if any(s < 0 for s in shape):
        raise CallError(f"the input {name} is a {kind}: a size must not be negative")
    affordable(name, shape)
    made = tuple(_random(kind.dtype, shape, rng) for _ in range(2 if kind.sequence else 1))
    return made if kind.sequence else made[0]


def _random(dtype: str, shape: Any, rng: np.random.Generator) -> Array:
    if not dtype:
        made = np.empty(shape, object)
        made[...] = np.array(["a", "b", "c"], object)[rng.integers(0, 3, shape)]
        return made
    return random_numbers(numpy_dtype(dtype), shape, rng)


def affordable(name: str, shape: Sequence[int]) -> None:
    """BudgetError where the random value of an input does not fit the machine's memory.

    A string takes a pointer, and numbers are drawn as 64 bits.
    """
    if math.prod(shape) * 8 > (physical_memory() or 2**62):
        raise BudgetError(f"the input {name} of shape {tuple(shape)} does not fit into memory")


def random_numbers(dtype: np.dtype[Any], shape: Any, rng: np.random.Generator) -> Array:
    """Normal numbers; 0 and 1 for integers, which serve as indices and masks too."""
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype.kind in "biu" or "int" in dtype.name:
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)

"""How the host runs ``relax.maps``: maps as Python dicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import CallError
from relax2xla.vm.host.operators import Array, host


def _map(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise CallError(f"expected a map, as a dict; got {type(value).__name__}")
    return {_plain(k): _plain(v) for k, v in value.items()}


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _row(values: Sequence[Any], dtype: str) -> Array:
    """(1, n); the texts of numbers become numbers, and the other way round."""
    if not dtype:
        made = np.empty((1, len(values)), object)
        made[0, :] = [v if isinstance(v, str) else str(v) for v in values]
        return made
    target = numpy_dtype(dtype)
    try:
        return np.array([[target.type(v) for v in values]], target).reshape(1, len(values))
    except (TypeError, ValueError, OverflowError) as e:
        raise CallError(f"a value of the map is no {dtype}: {e}") from None


@host("relax.maps.zip")
def zip_(x: Array, integers: Sequence[int] = (), strings: Sequence[str] = ()) -> Any:
    """Dicts of Python numbers."""
    keys = tuple(integers) or tuple(strings)
    rows = np.atleast_2d(x)
    if rows.ndim != 2 or rows.shape[1] != len(keys):
        raise CallError(f"{len(keys)} keys for numbers of the shape {x.shape}")
    return tuple(dict(zip(keys, row, strict=True)) for row in rows.tolist())


@host("relax.maps.vectorize", arrays=False)
def vectorize(
    map: Any, integers: Sequence[int] = (), strings: Sequence[str] = (), dtype: str = ""
) -> Array:
    """CallError for a key that is not listed."""
    keys = tuple(integers) or tuple(strings)
    given = _map(map)
    unknown = [k for k in given if k not in keys]
    if unknown:
        raise CallError(f"the map has the key {unknown[0]!r}, which the vocabulary lacks")
    return _row([given.get(k, 0 if dtype else "") for k in keys], dtype)


@host("relax.maps.cast", arrays=False)
def cast(map: Any, size: int = -1, dtype: str = "") -> Array:
    """CallError for keys that are no integers, or beyond ``size``."""
    given = _map(map)
    if not all(isinstance(k, int) for k in given):
        raise CallError("the keys of the map must be integers")
    if size < 0:
        return _row([given[k] for k in sorted(given)], dtype)
    if given and not (min(given) >= 0 and max(given) < size):
        raise CallError(f"the map has a key beyond its {size} places")
    return _row([given.get(k, 0 if dtype else "") for k in range(size)], dtype)

"""Arguments as ``jax.jit`` takes them: typed keys, and 64-bit values where JAX's x64 flag is off.

Without that flag JAX gives 32 bits for 64, whatever it is given. A parameter of 64 bits takes such
a value, exactly; and a function that was traced from 64-bit arrays has parameters of 32 bits, which
take such arrays (the function attribute :data:`NARROWED`).
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import CallError

#: The function attribute that names parameters which take arrays of twice the width.
NARROWED: Final = "narrowed"
#: Dtypes that JAX has under its x64 flag alone, and what it takes instead.
NARROW: Final = {
    "int64": np.dtype("int32"),
    "uint64": np.dtype("uint32"),
    "float64": np.dtype("float32"),
    "complex128": np.dtype("complex64"),
}


def is_key(value: Any) -> bool:
    """Whether ``value`` is a typed key of ``jax.random``, concrete or traced."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def plain(value: Any) -> Any:
    """The integers of a typed key; anything else as it is."""
    return jax.random.key_data(value) if is_key(value) else value


def is_wide(value: Any) -> bool:
    """Whether JAX, as its x64 flag is now, makes an array of half the width of ``value``."""
    dtype = str(getattr(value, "dtype", ""))
    return dtype in NARROW and jax.dtypes.canonicalize_dtype(dtype) == NARROW[dtype]


def is_narrowed(given: np.dtype[Any], dtype: str) -> bool:
    """Whether a jax array has the dtype ``given`` where JAX was to have one of ``dtype``."""
    narrow = NARROW.get(dtype)
    # The dtype that JAX gives for the wide one says what the flag is.
    return narrow is not None and given == narrow == jax.dtypes.canonicalize_dtype(dtype)


def widened(value: Any, dtype: str) -> Any:
    """A concrete jax array as one of ``dtype`` if JAX narrowed it from that, else as it is."""
    if not is_narrowed(value.dtype, dtype):
        return value
    with jax.enable_x64(True):
        return value.astype(numpy_dtype(dtype))


def narrowed(host: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """A host array as one of ``dtype`` if that is what JAX makes of it, else as it is.

    Floats are rounded, as ``jax.jit`` does; CallError for what ``dtype`` cannot hold, which
    ``jax.jit`` wraps.
    """
    if NARROW.get(host.dtype.name) != numpy_dtype(dtype):
        return host
    with np.errstate(over="ignore"):
        made = host.astype(numpy_dtype(dtype))
    if host.dtype.kind in "iu":
        lost = made != host
    else:
        lost = np.isfinite(host) & ~np.isfinite(made)
    if lost.any():
        value = host[lost].flat[0]
        raise CallError(f"{value} does not fit {dtype}, which the function was traced with")
    return made

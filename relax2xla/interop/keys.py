"""Typed keys of ``jax.random``: dtypes, and the names of their generators."""

from __future__ import annotations

from typing import Any

from relax2xla.errors import UnsupportedError

_GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")


def is_key_dtype(dtype: Any) -> bool:
    """Whether arrays of ``dtype`` are typed keys."""
    import jax

    return bool(jax.numpy.issubdtype(dtype, jax.dtypes.prng_key))


def key_impl(dtype: Any) -> str:
    """The generator of keys of ``dtype``, as ``jax.random.key(impl=)`` takes it."""
    import jax

    for name in _GENERATORS:
        made: Any = jax.eval_shape(lambda impl=name: jax.random.key(0, impl=impl))
        if made.dtype == dtype:
            return name
    raise UnsupportedError(f"keys of {dtype} are of a generator that is not known here")

"""Random numbers of rows: of the program's own states, or of a key that the caller gave.

Each draw has a key of its own: that of the program with the draw's number folded in, and in a loop
the number of the round.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla.interop.lax_rows.site import Region, Rule, Site, in_jax_width
from relax2xla.ir import Call, Function, GlobalVar
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.stablehlo.draws import draw_number, is_draw

_ALGORITHMS: Final = {
    "DEFAULT": lax.RandomAlgorithm.RNG_DEFAULT,
    "THREE_FRY": lax.RandomAlgorithm.RNG_THREE_FRY,
    "PHILOX": lax.RandomAlgorithm.RNG_PHILOX,
}
# What is folded in before the number of something that is no marked draw; theirs are smaller.
_ROUNDS: Final = (1 << 32) - 1
_UNMARKED: Final = (1 << 32) - 2


class _Keys(NamedTuple):
    """What draws take their keys from: ``key``, and how many there were without a number."""

    key: Any
    unmarked: Iterator[int]


_KEYS: contextvars.ContextVar[_Keys | None] = contextvars.ContextVar("keys", default=None)


@contextlib.contextmanager
def drawing_from(key: Any) -> Generator[None]:
    """Rows that are evaluated here draw from a key of JAX; None: from their own states."""
    token = _KEYS.set(None if key is None else _Keys(key, itertools.count()))
    try:
        yield
    finally:
        _KEYS.reset(token)


@contextlib.contextmanager
def drawing_in_round(number: Any) -> Generator[None]:
    """As ``drawing_from``, for one round of a loop that stands here."""
    keys = _KEYS.get()
    assert keys is not None
    token = _KEYS.set(keys._replace(key=_folded(keys.key, _ROUNDS, number)))
    try:
        yield
    finally:
        _KEYS.reset(token)


def draws_here(*regions: Region) -> bool:
    """Whether what is evaluated in these regions draws from a key of the caller's."""
    return _KEYS.get() is not None and any(_draws(r) for r in regions)


def _draws(region: Region) -> bool:
    todo: list[Function] = [region.func]
    seen: set[str] = set()
    for func in todo:
        for b in bindings_deep(func):
            if is_draw(b.value):
                return True
            callee = b.value.op if isinstance(b.value, Call) else None
            if isinstance(callee, GlobalVar) and callee.name_hint not in seen:
                seen.add(callee.name_hint)
                todo.append(region.runner.named(callee.name_hint))
    return False


def _folded(key: Any, *numbers: Any) -> Any:
    for number in numbers:
        key = jax.random.fold_in(key, np.uint32(number) if isinstance(number, int) else number)
    return key


def _bits(site: Site, state: Any) -> Any:
    made = site.outputs[1]
    dtype = np.dtype(made.dtype)
    unsigned: Any = np.dtype(f"uint{dtype.itemsize * 8}")
    shape = tuple(map(site.runner.dimension, made.dims or ()))
    keys, number = _KEYS.get(), draw_number(site.call)
    if keys is not None and number is not None:
        # Of JAX's generator, so that a key for each of several examples is mapped over as it is.
        return state, _typed(_bits_of(_folded(keys.key, number), shape, unsigned), dtype)
    algorithm = _ALGORITHMS[site.attrs["rng_algorithm"]]
    narrows = isinstance(state, np.ndarray) and in_jax_width(state.dtype) != state.dtype
    if not narrows:
        key, bits = lax.rng_bit_generator(state, shape, unsigned, algorithm)
        return key, _typed(bits, dtype)
    # JAX takes a state of 64 bits as one of 32, too, and would cut off its upper half.
    key, bits = lax.rng_bit_generator(state.view(np.uint32), shape, unsigned, algorithm)
    with jax.enable_x64(True):
        return lax.bitcast_convert_type(key.reshape(-1, 2), state.dtype), _typed(bits, dtype)


def _bits_of(key: Any, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> Any:
    """Bits of a key. Those of 64 are two of 32, which JAX has whatever its x64 flag is."""
    if dtype.itemsize < 8:
        return jax.random.bits(key, shape, dtype)
    return lax.bitcast_convert_type(jax.random.bits(key, (*shape, 2), np.dtype(np.uint32)), dtype)


def _typed(bits: Any, dtype: np.dtype[Any]) -> Any:
    return bits if bits.dtype == dtype else lax.bitcast_convert_type(bits, dtype)


def _drawn(site: Site, a: Any, b: Any, shape: Any) -> Any:
    """Numbers of XLA's own generator: never the same, where nobody gives a key."""
    uniform = site.attrs["rng_distribution"] == "UNIFORM"
    keys = _KEYS.get()
    if keys is not None:
        key = _folded(keys.key, _UNMARKED, next(keys.unmarked))
        return _of_key(key, uniform, site.shape, site.dtype, a, b)
    if uniform:
        return lax.rng_uniform(a, b, site.shape)
    wide = np.dtype(np.float64 if site.dtype.itemsize == 8 else np.float32)
    ends = np.nextafter(wide.type(-1), wide.type(0)), wide.type(1)
    normal = wide.type(np.sqrt(2)) * lax.erf_inv(lax.rng_uniform(*ends, site.shape))
    # a is the mean and b the deviation, so that both have derivatives.
    return a + b * lax.convert_element_type(normal, site.dtype)


def _of_key(
    key: Any, uniform: bool, shape: Sequence[Any], dtype: np.dtype[Any], a: Any, b: Any
) -> Any:
    """Numbers of a key of JAX, between ``a`` and ``b`` or of this mean and deviation."""
    if jnp.issubdtype(dtype, np.integer):
        return jax.random.randint(key, shape, a, b, dtype)
    draw: Any = jax.random.uniform if uniform else jax.random.normal
    made = draw(key, shape, dtype)
    return a + (b - a) * made if uniform else a + b * made


RULES: dict[str, Rule] = {
    "stablehlo.rng_bit_generator": _bits,
    "stablehlo.rng": _drawn,
}

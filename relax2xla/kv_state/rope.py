"""Rotary position embedding: the angle of each pair of features by position, with all scalings.

Angles are ``position * frequency``, in float32 as transformers computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.errors import TVMError

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rotation:
    """How the first ``2 * len(frequencies)`` features of a head are turned.

    Feature ``i`` turns with ``i + len(frequencies)``, or ``2 * i`` with ``2 * i + 1`` where
    ``interleaved``; ``magnitude`` multiplies sine and cosine.
    """

    frequencies: tuple[float, ...]
    magnitude: float = 1.0
    interleaved: bool = False

    @property
    def size(self) -> int:
        """The number of features that are turned."""
        return 2 * len(self.frequencies)


def rotation(
    rotary_dim: int,
    theta: float,
    scale: float = 1.0,
    scaling: Mapping[str, Any] | None = None,
    ext_factors: Sequence[float] | None = None,
) -> Rotation:
    """The rotation of ``rotary_dim`` features with the base ``theta``.

    scale: multiplies positions. scaling: ``{"rope_type": ..., ...}`` as in a model's config.json:
    default, gptj (neighbours are pairs), linear, llama3, longrope, yarn. ext_factors: longrope's
    divisor of each frequency. Raises TVMError for another type, or where a field is missing.
    """
    if rotary_dim < 2 or rotary_dim % 2:
        raise TVMError(f"rope turns pairs of features; got rotary_dim {rotary_dim}")
    fields = dict(scaling or {})
    kind = str(fields.get("rope_type", fields.get("type", "default")))
    if kind not in _KINDS:
        raise TVMError(f"rope scaling {kind!r} is unknown; known are {', '.join(_KINDS)}")
    exponents = np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim)
    powers = np.power(np.float32(theta), exponents, dtype=np.float32)
    if ext_factors is not None:
        factors = np.asarray(ext_factors, np.float32)
        if factors.shape != powers.shape:
            raise TVMError(
                f"rope: {factors.size} extension factors for {len(powers)} pairs of features"
            )
        powers = powers * factors
    try:
        turned, magnitude = _KINDS[kind](np.float32(1) / powers, float(theta), fields)
    except KeyError as e:
        raise TVMError(f"rope scaling {kind!r} needs the field {e.args[0]!r}") from None
    turned = (turned * np.float32(scale)).astype(np.float32)
    return Rotation(tuple(map(float, turned)), magnitude, kind == "gptj")


Made = tuple[F32, float]


def _plain(freq: F32, _: float, _fields: Mapping[str, Any]) -> Made:
    return freq, 1.0


def _linear(freq: F32, _: float, fields: Mapping[str, Any]) -> Made:
    return freq / np.float32(fields["factor"]), 1.0


def _llama3(freq: F32, _: float, fields: Mapping[str, Any]) -> Made:
    low, high = float(fields["low_freq_factor"]), float(fields["high_freq_factor"])
    turns = freq * (float(fields["original_max_position_embeddings"]) / (2 * math.pi))
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return ((1 - smooth) * freq / float(fields["factor"]) + smooth * freq).astype(np.float32), 1.0


def _longrope(freq: F32, _: float, fields: Mapping[str, Any]) -> Made:
    original = float(fields["original_max_position_embeddings"])
    ratio = float(fields["max_position_embeddings"]) / original
    return freq, math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 else 1.0


def _yarn(freq: F32, theta: float, fields: Mapping[str, Any]) -> Made:
    """As the paper and transformers have it; TVM 0.20 takes the feature for the dimension.

    The factor of the scores is the model's own matter, as in TVM.
    """
    size = 2 * len(freq)
    longest = float(fields["original_max_position_embeddings"])

    def where(turns: float) -> float:
        return size * math.log(longest / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(where(float(fields["beta_fast"]))), 0)
    high = float(min(math.ceil(where(float(fields["beta_slow"]))), size - 1))
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(len(freq), dtype=np.float32) - low) / (high - low), 0, 1)
    kept = 1 - ramp
    made = freq / float(fields["factor"]) * (1 - kept) + freq * kept
    return made.astype(np.float32), 1.0


_KINDS: Final[dict[str, Callable[[F32, float, Mapping[str, Any]], Made]]] = {
    "default": _plain,
    "gptj": _plain,
    "linear": _linear,
    "llama3": _llama3,
    "longrope": _longrope,
    "yarn": _yarn,
}

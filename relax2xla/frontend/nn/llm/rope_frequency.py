"""The angle of rope as an expression, for tensor expressions of models: ``switch_rope_freq_func``.

A function of these takes ``(s, d, d_range, theta, dtype)``: the position, the feature, how many
features are turned, the base, and the dtype of the results. It gives the cosine and the sine of the
angle, and what the variables in them stand for (``tir.Let``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.te import functions as f

Made = tuple[tir.PrimExpr, tir.PrimExpr, dict[tir.Var, tir.PrimExpr]]
Index = tir.PrimExpr | int


def _pair(d: Index, d_range: int) -> tir.PrimExpr:
    """Which pair a feature belongs to, where feature ``i`` turns with ``i + d_range / 2``."""
    return tir.floormod(_expr(d), d_range // 2)


def _expr(value: Index) -> tir.PrimExpr:
    return tir.as_prim_expr(value, "int32")


def _power(pair: tir.PrimExpr, d_range: int, theta: float) -> tir.PrimExpr:
    """What the position is divided by: ``theta ** (2 * pair / d_range)``."""
    exponent = (pair * 2).astype("float32") / tir.const(d_range, "float32")
    return f.power(tir.const(float(theta), "float32"), exponent)


def _angle(s: Index, frequency: tir.PrimExpr, dtype: str, magnitude: float = 1.0) -> Made:
    position = _expr(s).astype("float32")
    angle = tir.Var("freq", "float32")
    cos, sin = (
        (g(angle) if magnitude == 1 else g(angle) * tir.const(magnitude, "float32")).astype(dtype)
        for g in (f.cos, f.sin)
    )
    return cos, sin, {angle: position * frequency}


def _one(power: tir.PrimExpr) -> tir.PrimExpr:
    return tir.const(1.0, "float32") / power


def rope_freq_default(s: Index, d: Index, d_range: int, theta: float, dtype: str) -> Made:
    """Feature ``i`` turns with ``i + d_range / 2``."""
    return _angle(s, _one(_power(_pair(d, d_range), d_range, theta)), dtype)


def rope_freq_gptj(s: Index, d: Index, d_range: int, theta: float, dtype: str) -> Made:
    """Feature ``2 * i`` turns with ``2 * i + 1``."""
    pair = tir.floormod(tir.floordiv(_expr(d), 2), d_range // 2)
    return _angle(s, _one(_power(pair, d_range, theta)), dtype)


def rope_freq_llama3(
    s: Index,
    d: Index,
    d_range: int,
    theta: float,
    dtype: str,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Made:
    """Low frequencies are divided by ``factor``, those between the bounds partly."""
    plain = _one(_power(_pair(d, d_range), d_range, theta))
    width = high_freq_factor - low_freq_factor
    turns = tir.const(original_max_position_embeddings / (2 * math.pi) / width, "float32") * plain
    smooth = tir.max(
        tir.const(0.0, "float32"),
        tir.min(tir.const(1.0, "float32"), turns - tir.const(low_freq_factor / width, "float32")),
    )
    low = (tir.const(1.0, "float32") - smooth) * plain / tir.const(float(factor), "float32")
    return _angle(s, low + smooth * plain, dtype)


def rope_freq_longrope(
    s: Index,
    d: Index,
    d_range: int,
    theta: float,
    dtype: str,
    max_position_embeddings: int,
    original_max_position_embeddings: int,
    ext_factors: Any = None,
) -> Made:
    """ext_factors: a tensor or a buffer of a divisor for each pair."""
    ratio = max_position_embeddings / original_max_position_embeddings
    magnitude = 1.0
    if ratio > 1:
        magnitude = math.sqrt(1 + math.log(ratio) / math.log(original_max_position_embeddings))
    pair = _pair(d, d_range)
    power = _power(pair, d_range, theta)
    if ext_factors is not None:
        power = ext_factors[pair] * power
    return _angle(s, _one(power), dtype, magnitude)


def rope_freq_yarn(
    s: Index,
    d: Index,
    d_range: int,
    theta: float,
    dtype: str,
    original_max_position_embeddings: int,
    scaling_factor: float,
    beta_fast: float,
    beta_slow: float,
) -> Made:
    """As the paper and transformers have it; TVM 0.20 takes the feature for the dimension."""

    def where(turns: float) -> float:
        longest = original_max_position_embeddings
        return d_range * math.log(longest / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(where(beta_fast)), 0)
    high = float(min(math.ceil(where(beta_slow)), d_range - 1))
    if low == high:
        high += 0.001
    pair = _pair(d, d_range)
    plain = _one(_power(pair, d_range, theta))
    one, zero = tir.const(1.0, "float32"), tir.const(0.0, "float32")
    place = (pair.astype("float32") - tir.const(float(low), "float32")) / tir.const(
        high - low, "float32"
    )
    ramp = tir.max(zero, tir.min(one, place))
    scaled = plain / tir.const(float(scaling_factor), "float32")
    return _angle(s, scaled * ramp + plain * (one - ramp), dtype)


# The function of each type of scaling, and its parameters by the fields of config.json.
_KINDS: Final[dict[str, tuple[Callable[..., Made], dict[str, str]]]] = {
    "default": (rope_freq_default, {}),
    "gptj": (rope_freq_gptj, {}),
    "llama3": (
        rope_freq_llama3,
        {
            name: name
            for name in (
                *("factor", "low_freq_factor", "high_freq_factor"),
                "original_max_position_embeddings",
            )
        },
    ),
    "longrope": (
        rope_freq_longrope,
        {name: name for name in ("max_position_embeddings", "original_max_position_embeddings")},
    ),
    "yarn": (
        rope_freq_yarn,
        {
            "original_max_position_embeddings": "original_max_position_embeddings",
            "scaling_factor": "factor",
            "beta_fast": "beta_fast",
            "beta_slow": "beta_slow",
        },
    ),
}


def switch_rope_freq_func(rope_scaling: Mapping[str, Any]) -> Callable[..., Made]:
    """The function of a scaling, ``{"rope_type": ..., ...}`` as in config.json; empty: default.

    Raises TVMError for another type, or where a field is missing.
    """
    kind = str(rope_scaling.get("rope_type", "default"))
    if kind not in _KINDS:
        raise TVMError(f"rope scaling {kind!r} is unknown; known are {', '.join(_KINDS)}")
    function, fields = _KINDS[kind]
    missing = [field for field in fields.values() if field not in rope_scaling]
    if missing:
        raise TVMError(f"rope scaling {kind!r} needs the fields {', '.join(missing)}")
    return partial(function, **{name: rope_scaling[field] for name, field in fields.items()})

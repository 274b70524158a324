"""Frequencies of rope against those of transformers, and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla.errors import TVMError
from relax2xla.kv_state import rotation

FACTORS = [1 + i / 10 for i in range(16)]
LONGROPE = {
    "long_factor": FACTORS,
    "short_factor": FACTORS,
    "original_max_position_embeddings": 64,
    "max_position_embeddings": 256,
    "factor": 4.0,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "factor": 4.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "original_max_position_embeddings": 64,
    # Of the scores; here it is the model's matter.
    "attention_factor": 1.0,
}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("linear", {"factor": 4.0}), ("llama3", LLAMA3), ("yarn", YARN), ("longrope", LONGROPE)],
)
def test_scalings_are_those_of_transformers(kind: str, fields: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", "5.0")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = transformers.LlamaConfig(
        hidden_size=128,
        num_attention_heads=4,
        head_dim=32,
        max_position_embeddings=256,
        rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **fields},
    )
    expected, magnitude = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=256)
    made = rotation(32, 10000.0, 1.0, {"rope_type": kind, **fields}, fields.get("long_factor"))
    np.testing.assert_allclose(made.frequencies, expected.numpy(), rtol=1e-6)
    assert made.magnitude == pytest.approx(magnitude)


def test_scale_and_plain_kinds() -> None:
    plain = rotation(8, 100.0)
    np.testing.assert_allclose(plain.frequencies, 100.0 ** (-np.arange(0, 8, 2) / 8), rtol=1e-6)
    half = rotation(8, 100.0, 0.5, {"rope_type": "gptj"})
    np.testing.assert_allclose(np.multiply(half.frequencies, 2), plain.frequencies, rtol=1e-6)
    assert half.interleaved
    assert not plain.interleaved


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((7, 100.0), "pairs of features; got rotary_dim 7"),
        ((8, 100.0, 1.0, {"rope_type": "spiral"}), "'spiral' is unknown; known are default"),
        ((8, 100.0, 1.0, {"rope_type": "yarn"}), "needs the field 'original_max"),
        ((8, 100.0, 1.0, {}, [1.0]), "1 extension factors for 4 pairs"),
    ],
)
def test_mistakes(args: Any, message: str) -> None:
    with pytest.raises(TVMError, match=message):
        rotation(*args)

"""Rope as an expression beside the cache's, and attention without a cache beside numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import te, tir
from relax2xla.errors import TVMError
from relax2xla.frontend.nn.llm import kv_cache
from relax2xla.frontend.nn.llm.position_embedding import rope_freq_longrope, switch_rope_freq_func
from relax2xla.kv_state.rope import rotation
from relax2xla.op.intrinsic import call_tir

SIZE, THETA = 16, 1000.0
LONG = {"max_position_embeddings": 64, "original_max_position_embeddings": 16}
SCALINGS: list[dict[str, Any]] = [
    {},
    {"rope_type": "gptj"},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    {"rope_type": "longrope", **LONG},
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 16,
    },
]


def test_every_scaling_is_the_caches() -> None:
    builder = rx.BlockBuilder()
    positions = rx.Var("positions", rx.TensorStructInfo((9,), "int32"))

    def table(function: Any, which: int) -> Any:
        def compute(s: te.Tensor) -> te.Tensor:
            def element(i: tir.Var, d: tir.Var) -> tir.PrimExpr:
                *made, held = function(s[i], d, SIZE, THETA, "float32")
                ((var, value),) = held.items()
                return tir.Let(var, value, made[which])

            return te.compute((9, SIZE), element)

        return compute

    with builder.function("main", [positions]):
        tables = [
            builder.emit_te(table(switch_rope_freq_func(s), which), positions)
            for s in SCALINGS
            for which in (0, 1)
        ]
        builder.emit_func_output(builder.emit(rx.Tuple(tables)))
    at = np.arange(9, dtype=np.int32) * 5
    made = rx.VirtualMachine(rx.build(builder.get()))["main"](at)
    for i, scaling in enumerate(SCALINGS):
        how = rotation(SIZE, THETA, 1.0, scaling)
        angles = np.outer(at.astype(np.float32), np.array(how.frequencies, np.float32))
        full = np.repeat(angles, 2, 1) if how.interleaved else np.concatenate([angles] * 2, 1)
        for part, f in zip(made[2 * i : 2 * i + 2], (np.cos, np.sin), strict=True):
            np.testing.assert_allclose(part, how.magnitude * f(full), atol=2e-5)


def test_factors_and_mistakes() -> None:
    factors = te.placeholder((SIZE // 2,), "float32", "factors")
    _, _, held = rope_freq_longrope(3, 5, SIZE, THETA, "float32", **LONG, ext_factors=factors)
    assert any(isinstance(e, te.ProducerLoad) for v in held.values() for e in tir.post_order(v))
    with pytest.raises(TVMError, match="needs the fields factor, low_freq_factor"):
        switch_rope_freq_func({"rope_type": "llama3"})
    with pytest.raises(TVMError, match="'dynamic' is unknown; known are default, gptj"):
        switch_rope_freq_func({"rope_type": "dynamic"})


def run_attention(func: tir.PrimFunc, **arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    builder = rx.BlockBuilder()
    callee = builder.add_func(func, "attention")
    params = [
        rx.Var(name, rx.TensorStructInfo(a.shape, str(a.dtype))) for name, a in arrays.items()
    ]
    q = arrays["q"]
    infos = [rx.TensorStructInfo(s, str(q.dtype)) for s in (q.shape, q.shape[:3])]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call_tir(callee, params, infos)))
    o, lse = rx.VirtualMachine(rx.build(builder.get()))["main"](*arrays.values())
    return np.asarray(o), np.asarray(lse)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_without_a_cache(causal: int) -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(size=(2, 3, 4, 8)).astype(np.float32)
    k, v = (rng.normal(size=(2, 5, 2, 8)).astype(np.float32) for _ in range(2))
    func = kv_cache._attention_sequence_prefill(2, 4, 8, "float32", None, causal, 0.5)
    o, lse = run_attention(func, q=q, k=k, v=v)
    scores = 0.5 * np.einsum("bihd,bjhd->bihj", q, np.repeat(k, 2, 2))
    if causal:
        seen = np.arange(5)[None] <= np.arange(3)[:, None] + 2
        scores = np.where(seen[None, :, None], scores, -np.inf)
    powers = np.exp(scores)
    sums = powers.sum(-1)
    want = np.einsum("bihj,bjhd->bihd", powers / sums[..., None], np.repeat(v, 2, 2))
    np.testing.assert_allclose(o, want, atol=1e-5)
    np.testing.assert_allclose(lse, np.log2(sums), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("mask", ["padded", "causal_padded_left"])
def test_attention_of_padded_sequences(mask: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    lengths = np.array([0, 6, 4, 1], np.int32)
    q = rng.normal(size=(4, 6, 4, 8)).astype(dtype)
    k, v = (rng.normal(size=(4, 6, 2, 8)).astype(dtype) for _ in range(2))
    func = kv_cache._attention_sequence_prefill_with_mask(2, 4, 8, dtype, None, 0.5, mask_mode=mask)
    o, lse = run_attention(func, q=q, k=k, v=v, valid_lens=lengths)
    assert np.isfinite(o).all()
    for b, length in enumerate(lengths):
        rows = slice(0, length) if mask == "padded" else slice(6 - length, 6)
        whole = kv_cache._attention_sequence_prefill(2, 4, 8, dtype, None, mask != "padded", 0.5)
        if length:
            cut = [np.ascontiguousarray(x[b : b + 1, rows]) for x in (q, k, v)]
            want, sums = run_attention(whole, q=cut[0], k=cut[1], v=cut[2])
            np.testing.assert_allclose(
                o[b, rows], want[0], atol=2e-3 if dtype == "float16" else 1e-6
            )
            np.testing.assert_allclose(lse[b, rows], sums[0], rtol=2e-3, atol=2e-3)
    with pytest.raises(ValueError, match="mask_mode is 'left'; known: padded, causal_padded_left"):
        kv_cache._attention_sequence_prefill_with_mask(2, 4, 8, dtype, mask_mode="left")

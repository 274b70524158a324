"""Models with caches, exported and run: attention of batches against numpy, and rope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import tir
from relax2xla.errors import RunError, TVMError, UnsupportedError
from relax2xla.frontend import nn
from relax2xla.frontend.nn.llm import kv_cache as kv
from relax2xla.frontend.nn.llm.position_embedding import llama_rope
from relax2xla.kv_state import PagedKVCache, RopeMode
from relax2xla.runtime import ShapeTuple, get_global_func

HQ, HKV, D = 4, 2, 8
CREATE = "create_cache"


def state(name: str, *args: Any) -> Any:
    function = get_global_func(f"vm.builtin.{name}")
    assert function is not None
    return function(*args)


def turned(x: np.ndarray[Any, Any], start: int, size: int = D, pairs: bool = False) -> Any:
    """Rope of the first ``size`` features of (n, h, d) by complex numbers, base 100."""
    angles = np.outer(np.arange(start, start + len(x)), 100.0 ** (-np.arange(0, size, 2) / size))
    part, rest = x[..., :size], x[..., size:]
    a, b = (part[..., ::2], part[..., 1::2]) if pairs else np.split(part, 2, -1)
    z = (a + 1j * b) * np.exp(1j * angles[:, None])
    both = (
        np.stack([z.real, z.imag], -1).reshape(part.shape)
        if pairs
        else np.concatenate([z.real, z.imag], -1)
    )
    return np.concatenate([both, rest], -1)


def attention(q: Any, k: Any, v: Any, scale: float) -> Any:
    k, v = (np.repeat(x, HQ // HKV, 1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    seen = np.tri(len(q), len(k), len(k) - len(q), dtype=bool)
    p = np.exp(np.where(seen, scores, -np.inf))
    return np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v)


class Attention(nn.Module):
    """Attention of given keys and values."""

    def forward(self, qkv: nn.Tensor, cache: kv.PagedKVCache) -> tuple[nn.Tensor, nn.Tensor]:
        """Two layers, and the positions."""
        o = cache.attention_with_fused_qkv(0, qkv, HQ, 0.25)
        p = cache.attention_with_fused_qkv(1, qkv, HQ, 0.25)
        return o + p, cache.get_query_positions(qkv.shape[0] * qkv.shape[1])

    def parts(self, q: nn.Tensor, k: nn.Tensor, v: nn.Tensor, cache: kv.PagedKVCache) -> nn.Tensor:
        """The same by parts, without adding to the cache."""
        o, lse = cache.self_attention(0, q, k, v, 0.25)
        other, other_lse = cache.cross_attention(0, q, D, 0.25)
        merged, _ = cache.merge_attn_output_inplace(o, lse, other, other_lse)
        return merged

    def create_cache(
        self,
        batch: tir.Var,
        tokens: tir.Var,
        chunk: tir.Var,
        page: tir.Var,
        sliding: tir.Var,
    ) -> kv.PagedKVCache:
        """A cache of two layers."""
        return kv.PagedKVCache.create_generic(
            "mha", batch, tokens, chunk, page, sliding, 2, HQ, HKV, D, D,
            RopeMode.NORMAL, 1, 100, "float32",
        )  # fmt: skip


@pytest.fixture(scope="module")
def machine() -> Any:
    none = {"param_mode": "none", "effect_mode": "none"}
    tensor, obj = nn.spec.Tensor, nn.spec.Object(object_type=kv.PagedKVCache)
    mod, _ = Attention().export_tvm(
        {
            "forward": {
                "qkv": tensor(["b", "n", HQ + 2 * HKV, D], "float32"),
                "cache": obj,
                "$": none,
            },
            "parts": {
                "q": tensor(["b", "n", HQ, D], "float32"),
                "k": tensor(["b", "n", HKV, D], "float32"),
                "v": tensor(["b", "n", HKV, D], "float32"),
                "cache": obj,
                "$": none,
            },
            CREATE: {
                **dict.fromkeys(("batch", "tokens", "chunk", "page", "sliding"), int),
                "$": none,
            },
        }
    )
    return rx.VirtualMachine(rx.build(mod))


def test_a_model_with_a_cache(machine: Any, rng: np.random.Generator) -> None:
    cache = machine[CREATE](*(ShapeTuple([n]) for n in (4, 64, 32, 4, 0)))
    assert isinstance(cache, PagedKVCache)
    state("kv_state_add_sequence", cache, 7)
    keys, values = np.zeros((0, HKV, D)), np.zeros((0, HKV, D))
    for n in (5, 1, 3):
        state("kv_state_begin_forward", cache, ShapeTuple([7]), ShapeTuple([n]))
        qkv = rng.standard_normal((n, HQ + 2 * HKV, D)).astype(np.float32)
        old = len(keys)
        q, k, v = np.split(qkv, [HQ, HQ + HKV], 1)
        keys = np.concatenate([keys, turned(k, old)])
        values = np.concatenate([values, v])
        expected = attention(turned(q, old), keys, values, 0.25)
        o, positions = machine["forward"](qkv[None], cache)
        np.testing.assert_allclose(o[0], 2 * expected, rtol=1e-5, atol=1e-5)
        assert np.asarray(positions).tolist() == list(range(old, old + n))
        state("kv_state_end_forward", cache)
    assert state("attention_kv_cache_get_total_sequence_length", cache) == 9
    assert state("attention_kv_cache_get_num_available_pages", cache) == 17 - 3
    assert not state("attention_kv_cache_empty", cache)
    # By parts: what is there, and the new tokens, which are not added.
    state("kv_state_begin_forward", cache, [7], [2])
    q, k, v = (rng.standard_normal((1, 2, h, D)).astype(np.float32) for h in (HQ, HKV, HKV))
    made = machine["parts"](q, k, v, cache)
    expected = attention(q[0], np.concatenate([keys, k[0]]), np.concatenate([values, v[0]]), 0.25)
    np.testing.assert_allclose(made[0], expected, rtol=1e-5, atol=1e-5)


def test_a_program_says_what_is_wrong(machine: Any) -> None:
    cache = machine[CREATE](*(ShapeTuple([n]) for n in (4, 64, 32, 4, 0)))
    with pytest.raises(RunError, match="call begin_forward first"):
        machine["forward"](np.zeros((1, 1, HQ + 2 * HKV, D), np.float32), cache)


@pytest.mark.parametrize(
    ("scaling", "size"), [({}, D), ({"rope_type": "gptj"}, D), ({"rope_type": "default"}, 4)]
)
def test_llama_rope(scaling: dict[str, Any], size: int, rng: np.random.Generator) -> None:
    class Rope(nn.Module):
        def forward(self, qkv: nn.Tensor, total: tir.Var) -> Any:
            return llama_rope(qkv, total, 100.0, 1.0, HQ, HKV, scaling, size)

    none = {"param_mode": "none", "effect_mode": "none"}
    mod, _ = Rope().export_tvm(
        {
            "forward": {
                "qkv": nn.spec.Tensor([1, "n", HQ + 2 * HKV, D], "float32"),
                "total": int,
                "$": none,
            }
        }
    )
    qkv = rng.standard_normal((1, 3, HQ + 2 * HKV, D)).astype(np.float32)
    q, k, v = rx.VirtualMachine(rx.build(mod))["forward"](qkv, ShapeTuple([10]))
    pairs = scaling.get("rope_type") == "gptj"
    np.testing.assert_allclose(q[0], turned(qkv[0, :, :HQ], 7, size, pairs), rtol=1e-4, atol=1e-5)
    expected = turned(qkv[0, :, HQ : HQ + HKV], 7, size, pairs)
    np.testing.assert_allclose(k[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(v[0], qkv[0, :, HQ + HKV :])


def create(**other: Any) -> Any:
    """TVM's constructor, with kernels as its programs give them."""
    rope = kv.llama_rope_with_position_map(100.0, 1.0, D, HQ, HKV, "float32", {}, 4)
    plain = kv._attention_prefill_cpu(HKV, HQ, D, "float32", False, {})  # pyright: ignore[reportPrivateUsage]
    kernels = [plain, None, *[["tir", plain]] * 7, [], [plain], rope, *[plain] * 3]
    given = {
        "sizes": (4, 64, 32, 4, 0),
        "layers": (0, 2),
        "heads": HQ,
        "kv_heads": HKV,
        "dim": D,
        "v_dim": D,
        "kinds": (0, 0),
        "transfer": False,
        "mode": 1,
        "scale": 1.0,
        "theta": 100.0,
        "factors": None,
        "init": np.zeros((), np.float32),
        **other,
    }
    return state("paged_attention_kv_cache_create", *given.values(), *kernels)


def test_tvms_constructor_takes_the_size_of_rope_from_its_kernel(rng: np.random.Generator) -> None:
    cache = create()
    cache.add_sequence(0)
    cache.begin_forward([0], [3])
    qkv = rng.standard_normal((3, HQ + 2 * HKV, D)).astype(np.float32)
    out = np.zeros((3, HQ, D), np.float32)
    state("attention_kv_cache_attention_with_fused_qkv", cache, 0, 0.25, qkv, out)
    q, k, v = np.split(qkv, [HQ, HQ + HKV], 1)
    expected = attention(turned(q, 0, 4), turned(k, 0, 4), v, 0.25)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_what_constructors_refuse() -> None:
    with pytest.raises(UnsupportedError, match="disaggregation"):
        create(transfer=True)
    with pytest.raises(TVMError, match="1 kinds of attention for 2 layers"):
        create(kinds=(0,))
    with pytest.raises(TVMError, match="got 2 numbers"):
        create(sizes=(1, 2))
    with pytest.raises(UnsupportedError, match="stands for a kernel of TVM"):
        kv.tree_attn_cpu(HKV, HQ, D, "float32", {})()

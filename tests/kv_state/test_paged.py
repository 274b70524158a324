"""PagedKVCache against a plain model: each sequence as lists of keys and values in numpy."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from relax2xla import get_global_func
from relax2xla.errors import RunError, TVMError
from relax2xla.kv_state import AttnKind, CacheSizes, PagedKVCache, RopeMode, rotation
from relax2xla.kv_state.paged import merge_attention
from relax2xla.kv_state.rows import Bounds

Array = npt.NDArray[Any]
LAYERS, HQ, HKV, D, PAGE = 2, 4, 2, 8, 4
SCALE = 0.3
HOW = rotation(D, 100.0)


def make(
    mode: RopeMode = RopeMode.NONE, sliding: bool = False, tokens: int = 96, dtype: str = "float32"
) -> PagedKVCache:
    sizes = CacheSizes(8, tokens, 64, PAGE, sliding)
    return PagedKVCache(sizes, [AttnKind.MHA] * LAYERS, (HQ, HKV), (D, D), HOW, mode, dtype)


def turn(x: Array, positions: Sequence[int]) -> Array:
    """Rope of (n, h, D) by complex numbers."""
    half = D // 2
    angles = np.outer(positions, 100.0 ** (-np.arange(0, D, 2) / D))[:, None]
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag], -1)


def softmax_attention(q: Array, k: Array, v: Array, seen: Array) -> tuple[Array, Array]:
    """(n, hq, d) over (N, hkv, d), and the base-2 logarithm of the sums."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.where(seen[None], np.einsum("qhd,khd->hqk", q, k) * SCALE, -np.inf)
    top = scores.max(-1, keepdims=True)
    p = np.exp(scores - top)
    total = p.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", p / total, v), (np.log2(total) + top / np.log(2))[..., 0].T


class Plain:
    """The semantics, written plainly: raw keys, values, and positions of every token."""

    def __init__(self, mode: RopeMode, rng: np.random.Generator) -> None:
        self.mode, self.rng = mode, rng
        self.kv: dict[int, list[Array]] = {}
        self.windows: dict[int, tuple[int, int]] = {}

    def step(
        self,
        cache: PagedKVCache,
        ids: list[int],
        counts: list[int],
        trees: dict[int, list[int]] | None = None,
    ) -> None:
        """One step of both, compared."""
        parents = None if trees is None else [p for i in ids for p in trees[i]]
        cache.begin_forward(ids, counts, parents)
        total, extra = sum(counts), int(self.rng.integers(0, 3))
        at: list[list[int]] = []
        for i, n in zip(ids, counts, strict=True):
            old = len(self.kv[i])
            here = list(range(old, old + n))
            if trees is not None:
                for node, parent in enumerate(trees[i]):
                    here[node] = old if parent == -1 else here[parent] + 1
            at.append(here)
        assert cache.query_positions().tolist() == [p for here in at for p in here]
        qkv = self.rng.standard_normal((LAYERS, total + extra, HQ + 2 * HKV, D))
        qkv = qkv.astype(cache.dtype)
        new: list[list[Array]] = [[] for _ in ids]
        for layer in range(LAYERS):
            out = np.full((total + extra, HQ, D), 7, cache.dtype)
            cache.attention_with_fused_qkv(layer, SCALE, qkv[layer], out)
            assert (out[total:] == 7).all()
            start = 0
            for b, (i, n) in enumerate(zip(ids, counts, strict=True)):
                part = qkv[layer, start : start + n].astype(np.float64)
                q, k, v = np.split(part, [HQ, HQ + HKV], 1)
                old = len(self.kv[i])
                keys = np.stack([kv[layer, 0] for kv in self.kv[i]] + list(k))
                values = np.stack([kv[layer, 1] for kv in self.kv[i]] + list(v))
                where = [*range(old), *at[b]]
                if self.mode is not RopeMode.NONE:
                    q = turn(q, at[b])
                    keys = turn(keys, where)
                seen = np.tri(n, old + n, old, dtype=bool)
                if trees is not None:
                    seen[:, old:] = False
                    for node, parent in enumerate(trees[i]):
                        if parent != -1:
                            seen[node] = seen[parent]
                        seen[node, old + node] = True
                expected, _ = softmax_attention(q, keys, values, seen)
                loose = 1e-2 if cache.dtype == "float16" else 1e-5
                np.testing.assert_allclose(out[start : start + n], expected, rtol=loose, atol=loose)
                new[b].append(np.stack([part[:, HQ : HQ + HKV], part[:, HQ + HKV :]], 1))
                start += n
        for i, layers in zip(ids, new, strict=True):
            self.kv[i] = [*self.kv[i], *np.stack(layers, 1)]
        if trees is None:
            cache.end_forward()
            for i in ids:
                self.slide(i)

    def slide(self, i: int) -> None:
        window, sink = self.windows.get(i, (0, 0))
        if window and len(self.kv[i]) > window:
            del self.kv[i][sink : sink + len(self.kv[i]) - window]

    def check(self, cache: PagedKVCache) -> None:
        """What is kept, of all sequences."""
        assert cache.total_length == sum(map(len, self.kv.values()))
        for i, tokens in self.kv.items():
            if not tokens:
                continue
            k, v = (np.zeros((LAYERS, len(tokens), HKV, D), cache.dtype) for _ in range(2))
            cache.debug_get_kv(i, 0, len(tokens), k, v)
            expected = np.stack(tokens, 1)
            keys = expected[:, :, 0]
            if cache.mode is RopeMode.NORMAL:
                keys = np.stack([turn(layer, range(len(tokens))) for layer in keys])
            loose = 1e-2 if cache.dtype == "float16" else 1e-5
            np.testing.assert_allclose(k, keys, rtol=loose, atol=loose)
            np.testing.assert_allclose(v, expected[:, :, 1], rtol=loose, atol=loose)


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [
        (RopeMode.NONE, "float32"),
        (RopeMode.NORMAL, "float32"),
        (RopeMode.INLINE, "float32"),
        (RopeMode.NORMAL, "float16"),
    ],
)
def test_random_operations(mode: RopeMode, dtype: str) -> None:
    rng = np.random.default_rng([mode, len(dtype)])
    cache, plain = make(mode, dtype=dtype), Plain(mode, rng)
    pages, fresh = cache.free_pages, 0
    for _ in range(40):
        known = list(plain.kv)
        what = rng.choice(["add", "fork", "pop", "remove", "step", "step", "step"])
        if what == "add" and len(known) < 4:
            cache.add_sequence(fresh)
            plain.kv[fresh], fresh = [], fresh + 1
        elif what == "fork" and known and len(known) < 4:
            parent = int(rng.choice(known))
            at = int(rng.integers(-1, len(plain.kv[parent]) + 1))
            cache.fork_sequence(parent, fresh, at)
            plain.kv[fresh] = plain.kv[parent][: None if at == -1 else at]
            fresh += 1
        elif what == "pop" and known:
            i = int(rng.choice(known))
            n = int(rng.integers(0, len(plain.kv[i]) + 1))
            cache.popn(i, n)
            plain.kv[i] = plain.kv[i][: len(plain.kv[i]) - n]
        elif what == "remove" and len(known) > 2:
            i = int(rng.choice(known))
            cache.remove_sequence(i)
            del plain.kv[i]
        elif what == "step" and known:
            ids = rng.permutation(known)[: rng.integers(1, len(known) + 1)].tolist()
            counts = rng.choice([[1], [1, 2, 3, 4]][rng.integers(0, 2)], len(ids)).tolist()
            try:
                plain.step(cache, ids, counts)
            except RunError as e:
                assert "the cache is full" in str(e)  # noqa: PT017
        plain.check(cache)
    for i in list(plain.kv):
        cache.remove_sequence(i)
    assert cache.empty
    assert cache.free_pages == pages  # none is lost, none is there twice


@pytest.mark.parametrize("mode", [RopeMode.NONE, RopeMode.INLINE])
def test_sliding_windows(mode: RopeMode) -> None:
    rng = np.random.default_rng(3)
    cache, plain = make(mode, sliding=True), Plain(mode, rng)
    for i, window in enumerate([(9, 3), (6, 0), (0, 0)]):
        cache.add_sequence(i)
        plain.kv[i] = []
        if window[0]:
            cache.enable_sliding_window(i, *window)
            plain.windows[i] = window
    for counts in ([7, 3, 2], [5, 9, 1], *[[1, 1, 1]] * 8, [2, 3, 4]):
        plain.step(cache, [0, 1, 2], counts)
        plain.check(cache)
    with pytest.raises(RunError, match="within its sink of 3 tokens"):
        cache.fork_sequence(0, 5, 4)
    cache.fork_sequence(0, 5, 3)
    plain.kv[5] = plain.kv[0][:3]
    plain.step(cache, [5, 0], [6, 2])
    plain.check(cache)


def test_what_is_shared_does_not_slide() -> None:
    rng = np.random.default_rng(4)
    cache, plain = make(sliding=True), Plain(RopeMode.NONE, rng)
    cache.add_sequence(0)
    plain.kv[0] = []
    plain.step(cache, [0], [10])
    cache.fork_sequence(0, 1, 9)  # two whole pages are shared
    cache.enable_sliding_window(1, 10, 2)
    plain.kv[1], plain.windows[1] = plain.kv[0][:9], (10, 8)
    plain.step(cache, [1, 0], [5, 1])
    plain.check(cache)


@pytest.mark.parametrize("mode", [RopeMode.NONE, RopeMode.NORMAL])
def test_token_trees(mode: RopeMode) -> None:
    rng = np.random.default_rng(5)
    cache, plain = make(mode), Plain(mode, rng)
    for i in range(3):
        cache.add_sequence(i)
        plain.kv[i] = []
    plain.step(cache, [0, 1], [5, 3])
    trees = {0: [-1, 0, 0, 1, 1, 2, 2], 1: [-1, 0, 1, 2], 2: [-1, -1, 0, 1]}
    plain.step(cache, [2, 0, 1], [4, 7, 4], trees)
    with pytest.raises(RunError, match="token tree of sequence 0 is not committed"):
        cache.begin_forward([0], [1])
    cache.commit_token_tree([0, 1, 2], [6, -1, 3])
    for i, path in ((0, [0, 2, 6]), (1, []), (2, [1, 3])):
        start = len(plain.kv[i]) - len(trees[i])
        plain.kv[i] = plain.kv[i][:start] + [plain.kv[i][start + p] for p in path]
    plain.check(cache)
    plain.step(cache, [0, 1, 2], [1, 1, 1])
    plain.step(cache, [0, 1, 2], [3, 1, 2])
    plain.check(cache)


def test_a_tree_grows_over_steps() -> None:
    rng = np.random.default_rng(6)
    cache = make()
    cache.add_sequence(0)
    keys, values = [rng.standard_normal((7, HKV, D)).astype(np.float32) for _ in range(2)]
    for start, parents in ((0, [-1, 0, 0]), (3, [1, 1, 2, 2])):
        n = len(parents)
        cache.begin_forward([0], [n], parents)
        q = rng.standard_normal((n, HQ, D)).astype(np.float32)
        new = slice(start, start + n)
        out = np.zeros((n, HQ, D), np.float32)
        cache.attention_with_fused_qkv(
            0, SCALE, np.concatenate([q, keys[new], values[new]], 1), out
        )
    # Nodes 3 to 6 see their ancestors and themselves.
    seen = np.zeros((4, 7), bool)
    for row, path in enumerate(([0, 1, 3], [0, 1, 4], [0, 2, 5], [0, 2, 6])):
        seen[row, path] = True
    expected, _ = softmax_attention(q, keys, values, seen)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    assert cache.query_positions().tolist() == [2, 2, 2, 2]


def test_parts_of_attention_and_their_merge() -> None:
    rng = np.random.default_rng(7)
    cache, plain = make(), Plain(RopeMode.NONE, rng)
    cache.add_sequence(0)
    cache.add_sequence(1)
    plain.kv = {0: [], 1: []}
    plain.step(cache, [0], [6])
    cache.begin_forward([0, 1], [3, 2])
    q, k, v = (rng.standard_normal((5, h, D)).astype(np.float32) for h in (HQ, HKV, HKV))
    own, other = (np.zeros((5, HQ, D), np.float32) for _ in range(2))
    own_lse, other_lse = (np.zeros((5, HQ), np.float32) for _ in range(2))
    cache.self_attention(0, SCALE, q, k, v, own, own_lse)
    cache.cross_attention(0, SCALE, q, other, other_lse)
    assert np.isneginf(other_lse[3:]).all()  # sequence 1 had nothing before
    assert not other[3:].any()
    o, lse = merge_attention(own, own_lse, other, other_lse)
    assert o is not own
    np.testing.assert_array_equal(o, own)  # the first pair is overwritten
    before = np.stack(plain.kv[0], 1)[0]
    for new, old in ((slice(0, 3), before), (slice(3, 5), before[:0])):
        n = new.stop - new.start
        keys = np.concatenate([old[:, 0], k[new]])
        values = np.concatenate([old[:, 1], v[new]])
        seen = np.tri(n, len(keys), len(old), dtype=bool)
        expected, sums = softmax_attention(q[new], keys, values, seen)
        np.testing.assert_allclose(o[new], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(lse[new], sums, rtol=1e-5, atol=1e-5)


def test_latent_attention() -> None:
    rng = np.random.default_rng(8)
    sizes = CacheSizes(4, 64, 32, PAGE)
    cache = PagedKVCache(sizes, [AttnKind.MLA], (HQ, 1), (12, 8))
    kept: list[Array] = []
    cache.add_sequence(3)
    for n in (5, 1, 1, 3):
        cache.begin_forward([3], [n])
        kv = rng.standard_normal((n, 12)).astype(np.float32)
        assert cache.append_mla_kv(0, kv) is cache
        q = rng.standard_normal((n, HQ, 12)).astype(np.float32)
        o, lse = np.zeros((n, HQ, 8), np.float32), np.zeros((n, HQ), np.float32)
        cache.cross_attention(0, SCALE, q, o, lse)
        # One token sees itself; several see what was there before them.
        seen = np.stack([*kept, *kv][: len(kept) + (n == 1)] or [np.zeros(12)])[:, None]
        if kept:
            mask = np.ones((n, len(seen)), bool)
            expected, sums = softmax_attention(q, seen, seen[..., :8], mask)
            np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-5)
        else:
            assert np.isneginf(lse).all()
        kept += list(kv)
        cache.end_forward()
    out = np.zeros((1, 4, 12), np.float32)
    cache.debug_get_kv(3, 2, 6, out)
    np.testing.assert_array_equal(out[0], kept[2:6])


def test_mistakes_leave_the_cache_as_it_was() -> None:
    rng = np.random.default_rng(9)
    cache, plain = make(tokens=16), Plain(RopeMode.NONE, rng)
    cache.add_sequence(0)
    plain.kv[0] = []
    plain.step(cache, [0], [6])
    free = cache.free_pages
    out = np.zeros((1, HQ, D), np.float32)
    qkv = np.zeros((1, HQ + 2 * HKV, D), np.float32)
    for call, message in (
        (lambda: cache.add_sequence(0), "sequence 0 is in the cache already"),
        (lambda: cache.remove_sequence(4), "no sequence 4 in the cache; it has 0"),
        (lambda: cache.fork_sequence(4, 5), "no sequence 4"),
        (lambda: cache.fork_sequence(0, 0), "sequence 0 is in the cache already"),
        (lambda: cache.fork_sequence(0, 5, 7), "cannot be forked at 7"),
        (lambda: cache.popn(0, 7), "has 6 tokens; cannot pop 7"),
        (lambda: cache.popn(0, -1), "cannot pop -1"),
        (lambda: cache.enable_sliding_window(0, 4, 1), "without support of sliding"),
        (lambda: cache.begin_forward([0], [60]), "the cache is full: 15 pages"),
        (lambda: cache.begin_forward([0, 9], [1, 1]), "no sequence 9"),
        (lambda: cache.begin_forward([0, 0], [1, 1]), "each comes once in a step"),
        (lambda: cache.begin_forward([0], [1, 1]), "2 lengths for the sequences"),
        (lambda: cache.begin_forward([0], [0]), "each sequence gets tokens"),
        (lambda: cache.begin_forward([0], [99]), "this cache takes 8 and 64"),
        (lambda: cache.begin_forward([0], [2], [-1, 1]), "parent of node 1"),
        (lambda: cache.begin_forward([0], [2], [-1]), "1 parents of 2 tokens"),
        (lambda: cache.commit_token_tree([0], [0]), "none of the tokens of its last step"),
        (lambda: cache.attention_with_fused_qkv(0, 1.0, qkv, out), "call begin_forward first"),
        (lambda: cache.debug_get_kv(0, 2, 9, out, out), "tokens 2 to 9"),
    ):
        with pytest.raises(RunError, match=message):
            call()
    assert cache.free_pages == free
    plain.check(cache)
    cache.begin_forward([0], [1])
    for args, message in (
        ((5, 1.0, qkv, out), "layer 5"),
        ((0, 1.0, qkv[:, 1:], out), r"must be of the shape \(1 or more, 8, 8\)"),
        ((0, 1.0, qkv.astype(np.float16), out), "must be of float32"),
        ((0, 1.0, qkv, out[0]), "out must be float32"),
    ):
        with pytest.raises(RunError, match=message):
            cache.attention_with_fused_qkv(*args)
    cache.popn(0, 1)
    plain.check(cache)


def test_what_is_refused_during_a_step_does_not_end_it() -> None:
    cache = make()
    cache.add_sequence(0)
    cache.begin_forward([0], [2])
    for call in (
        lambda: cache.remove_sequence(4),
        lambda: cache.popn(0, 9),
        lambda: cache.begin_forward([3], [1]),
    ):
        with pytest.raises(RunError):
            call()
    out = np.ones((2, HQ, D), np.float32)
    cache.attention_with_fused_qkv(0, 1.0, np.zeros((2, HQ + 2 * HKV, D), np.float32), out)
    assert not out.any()
    assert cache.total_length == 2


def test_a_refused_call_does_not_slide_the_windows() -> None:
    cache = make(sliding=True)
    cache.add_sequence(0)
    cache.enable_sliding_window(0, 6, 1)
    pages = cache.free_pages
    cache.begin_forward([0], [9])
    held = cache.free_pages
    for call in (
        lambda: cache.remove_sequence(4),
        lambda: cache.popn(0, 7),
        lambda: cache.fork_sequence(0, 1, 5),
        lambda: cache.begin_forward([0, 4], [1, 1]),
    ):
        with pytest.raises(RunError):
            call()
        assert (cache.total_length, cache.free_pages) == (9, held)
    assert cache.query_positions().tolist() == list(range(9))
    assert repr(cache) == f"<PagedKVCache of 2 layers, float32: 9 of 96 tokens, {held} pages free>"
    qkv = np.random.default_rng(3).normal(size=(9, HQ + 2 * HKV, D)).astype(np.float32)
    out = np.zeros((9, HQ, D), np.float32)
    cache.attention_with_fused_qkv(0, SCALE, qkv, out)
    q, k, v = np.split(qkv, [HQ, HQ + HKV], 1)
    want, _ = softmax_attention(q, k, v, np.tri(9, dtype=bool))
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    cache.end_forward()
    assert cache.total_length == 6
    cache.remove_sequence(0)
    assert cache.free_pages == pages


def test_arguments_of_another_kind() -> None:
    cache = make()
    cache.add_sequence(np.int64(0))
    call = {n: get_global_func(f"vm.builtin.kv_state_{n}") for n in ("add_sequence", "popn")}
    for wrong, message in (
        (lambda: cache.add_sequence(1.5), "a sequence's number must be a whole number; got 1.5"),
        (lambda: cache.remove_sequence("0"), "must be a whole number; got '0'"),
        (lambda: cache.fork_sequence(0, None), "each of sequences' numbers must be a whole"),
        (lambda: cache.popn(0, 0.5), "a count must be a whole number; got 0.5"),
        (lambda: cache.begin_forward(0, 1), "sequences' numbers must be whole numbers; got 0"),
        (lambda: cache.begin_forward([0], ["1"]), "each of lengths must be a whole number"),
        (lambda: cache.begin_forward([0], [1], [None]), "each of parents of tokens must be"),
        (lambda: call["add_sequence"]("x", 1), "must be a PagedKVCache or RNNState; got str"),
        (lambda: call["popn"](None, 0, 1), "vm.builtin.kv_state_popn: the first argument must be"),
    ):
        with pytest.raises(RunError, match=message):
            wrong()
    assert cache.total_length == 0
    cache.remove_sequence(0)
    assert cache.empty


def test_arguments_of_a_step_of_another_kind() -> None:
    """Each is one error that names it, and the cache stays as it was."""
    cache = make()
    cache.add_sequence(0)
    cache.begin_forward([0], [2])
    qkv, out = np.zeros((2, HQ + 2 * HKV, D), np.float32), np.zeros((2, HQ, D), np.float32)
    lse, fused = np.zeros((2, HQ), np.float32), cache.attention_with_fused_qkv
    for wrong, message in (
        (lambda: fused(0.0, 1.0, qkv, out), r"a layer must be a whole number; got 0\.0"),
        (lambda: fused(0, None, qkv, out), "scale must be a finite number; got None"),
        (lambda: fused(0, np.nan, qkv, out), "scale must be a finite number; got nan"),
        (lambda: fused(0, 1.0, qkv.tolist(), out), "qkv must be an array; got list"),
        (lambda: fused(0, 1.0, qkv, out, (4, 0.0)), r"bounds are a Bounds; got \(4, 0\.0\)"),
        (lambda: Bounds(-1), "at least 0; got -1 and 0"),
        (lambda: Bounds(0, np.inf), "a cap of scores must be a finite number"),
        (lambda: Bounds(2.5), r"a window must be a whole number; got 2\.5"),
        (
            lambda: cache.self_attention(0, 1.0, out, out[:, :0], out[:, :0], out, lse),
            f"{HQ} heads of queries and 0 of keys",
        ),
        (lambda: cache.self_attention(0, 1.0, None, out, out, out, lse), "q must be an array"),
        (lambda: cache.cross_attention(0, "x", out, out, lse), "scale must be a finite number"),
        (lambda: cache.debug_get_kv(0, None, 2, out), "must be a whole number; got None"),
        (lambda: cache.debug_get_kv(0, 0, 2), "writes keys and values, or MLA's alone; got 0"),
        (lambda: merge_attention(out, "x", out, lse), "merge: lse must be an array; got str"),
    ):
        before = repr(cache), cache._step  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(RunError, match=message):
            wrong()
        assert (repr(cache), cache._step) == before  # pyright: ignore[reportPrivateUsage]


def test_packed_functions_say_what_they_take() -> None:
    cache = make()
    for name, given, message in (
        ("kv_state_popn", (cache, 0), r"kv_state_popn takes \(state, number, count\); got 2 argu"),
        ("kv_state_add_sequence", (), r"takes \(state, number\); got 0 arguments"),
        ("kv_state_fork_sequence", (cache, 0, 1, 2, 3), r"child, position\); got 5 arguments"),
        ("attention_kv_cache_attention_with_fused_qkv", (cache, 0, 1.0, 0), "got 4 arguments"),
        ("paged_attention_kv_cache_create", (1, 2, 3), r"takes \(sizes, .*\); got 3 arguments"),
        ("rnn_state_create", (1,), r"takes \(layers, .*\); got 1 arguments"),
        ("attention_kv_cache_append", (None, 1), "what attention_kv_cache_create gave; got None"),
        ("attention_kv_cache_create", (1.0, (3,), 0), r"begins with entries of \(\); got float64"),
    ):
        call = get_global_func(f"vm.builtin.{name}")
        assert call is not None
        with pytest.raises(RunError, match=message):
            call(*given)


def test_one_thread_at_a_time() -> None:
    cache = make()
    found: list[BaseException] = []

    def other() -> None:
        try:
            cache.add_sequence(1)
        except RunError as e:
            found.append(e)

    with cache.lock:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another thread is using this object" in str(found[0])
    cache.add_sequence(1)


def test_the_memory_of_a_pool_is_reused() -> None:
    cache = make()
    cache.add_sequence(0)
    qkv = np.ones((1, HQ + 2 * HKV, D), np.float32)
    cache.begin_forward([0], [1])
    before = cache._pools[0]  # pyright: ignore[reportPrivateUsage]
    cache.attention_with_fused_qkv(0, 1.0, qkv, np.zeros((1, HQ, D), np.float32))
    assert before.is_deleted()


def test_settings_that_cannot_be() -> None:
    sizes = CacheSizes(1, 1, 1, 1)
    with pytest.raises(TVMError, match="multiple of the second"):
        PagedKVCache(sizes, [AttnKind.MHA], (3, 2), (8, 8))
    with pytest.raises(TVMError, match="float16, float32"):
        PagedKVCache(sizes, [AttnKind.MHA], (2, 2), (8, 8), dtype="int8")
    with pytest.raises(TVMError, match="rope of"):
        PagedKVCache(sizes, [AttnKind.MHA], (2, 2), (4, 4), HOW, RopeMode.NORMAL)
    with pytest.raises(TVMError, match="sizes must be positive"):
        CacheSizes(1, 0, 1, 1)
    for tokens, page in ((10**13, 1), (1, 2**40)):
        with pytest.raises(TVMError, match="places are counted in 32 bits"):
            CacheSizes(1, tokens, 1, page)
    for wrong in (2.5, "3", None, True):
        with pytest.raises(TVMError, match="sizes must be positive whole numbers"):
            CacheSizes(wrong, 1, 1, 1)  # pyright: ignore[reportArgumentType]
    made: Any = lambda **given: PagedKVCache(  # noqa: E731
        **{"sizes": sizes, "kinds": [0], "heads": (2, 2), "head_dims": (4, 4)} | given
    )
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"sizes": (1, 1, 1, 1)}, "sizes are a CacheSizes"),
        ({"kinds": []}, "one layer at least"),
        ({"kinds": [5]}, "kinds of layers are AttnKinds.* 5 is not a valid"),
        ({"mode": 3}, "3 is not a valid RopeMode"),
        ({"heads": (4,)}, r"heads are two positive whole numbers; got \(4,\)"),
        ({"head_dims": (4.0, 4)}, "head_dims are two positive whole numbers"),
        ({"rope": 3}, "rope is a Rotation, or None; got 3"),
        ({"device": 3.5}, "device is a Device or the name of one"),
    ]
    for given, message in wrongs:
        with pytest.raises(TVMError, match=message):
            made(**given)
    assert made(device="cpu").free_pages == 2


def test_windows_and_caps_of_layers(rng: np.random.Generator) -> None:
    """A layer that sees the last tokens only, with capped scores; the other one sees all."""
    cache, window, cap = make(), 3, 0.7
    cache.add_sequence(0)
    kept = np.zeros((0, HQ + 2 * HKV, D))
    for count in (5, 1, 2):
        cache.begin_forward([0], [count])
        qkv = rng.standard_normal((count, HQ + 2 * HKV, D)).astype("float32")
        kept = np.concatenate([kept, qkv])
        q, k, v = np.split(kept, [HQ, HQ + HKV], 1)
        k, v = (np.repeat(x, HQ // HKV, 1) for x in (k, v))
        scores = np.einsum("qhd,khd->hqk", q[-count:], k) * SCALE
        causal = np.tri(count, len(kept), len(kept) - count, dtype=bool)
        near = causal & ~np.tri(count, len(kept), len(kept) - count - window, dtype=bool)
        for layer, bounds, made, seen in (
            (0, Bounds(window, cap), cap * np.tanh(scores / cap), near),
            (1, Bounds(), scores, causal),
        ):
            weights = np.where(seen, np.exp(made), 0)
            wanted = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)
            out = np.zeros((count, HQ, D), "float32")
            cache.attention_with_fused_qkv(layer, SCALE, qkv, out, bounds)
            np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
        cache.end_forward()
    cache.begin_forward([0], [3], [-1, 0, 0])
    with pytest.raises(RunError, match="a token tree is of no use to a layer with a window"):
        cache.attention_with_fused_qkv(
            0,
            SCALE,
            np.zeros((3, *kept.shape[1:]), "float32"),
            np.zeros((3, HQ, D), "float32"),
            Bounds(window),
        )

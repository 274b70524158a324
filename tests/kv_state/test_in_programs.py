"""Caches and states in programs: one XLA program a step, against the object driven by the host."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import relax2xla as rx
from relax2xla.errors import CallError, RunError, TransformError
from relax2xla.kv_state import AttnKind, CacheSizes, PagedKVCache, RNNState, RopeMode, rotation
from relax2xla.kv_state.paged import merge_attention
from relax2xla.script import from_source
from relax2xla.transform import ObjectsToArrays
from relax2xla.vm.call.object_function import ObjectFunction

Array = npt.NDArray[Any]
LAYERS, HQ, HKV, D, PAGE = 2, 4, 2, 8, 4
HOW = rotation(D, 100.0)

ATTENTION = """
@I.ir_module
class Module:
    @R.function
    def main(qkv: R.Tensor(("n", 8, 8), "float32"), cache: R.Object):
        n = T.int64()
        with R.dataflow():
            a = R.call_dps_packed(
                "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
                (cache, R.prim_value(0), R.prim_value(0.3), qkv),
                out_sinfo=R.Tensor((n, 4, 8), "float32"),
            )
            parts = R.split(qkv, [4], axis=1)
            next = R.concat((a, parts[1]), axis=1)
            b = R.call_dps_packed(
                "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
                (cache, R.prim_value(1), R.prim_value(0.3), next),
                out_sinfo=R.Tensor((n, 4, 8), "float32"),
            )
            at = R.call_pure_packed(
                "vm.builtin.attention_kv_cache_get_query_positions", cache,
                sinfo_args=R.Tensor((n,), "int32"),
            )
            out = (b, (cache, at))
            R.output(out)
        return out
"""

LATENT = """
@I.ir_module
class Module:
    @R.function
    def main(q: R.Tensor(("n", 4, 12), "float32"), kv: R.Tensor(("n", 12), "float32"),
             k: R.Tensor(("n", 4, 12), "float32"), v: R.Tensor(("n", 4, 8), "float32"),
             cache: R.Object):
        n = T.int64()
        with R.dataflow():
            own = R.call_dps_packed(
                "vm.builtin.attention_kv_cache_self_attention",
                (cache, R.prim_value(0), R.prim_value(0.3), q, k, v),
                out_sinfo=[R.Tensor((n, 4, 8), "float32"), R.Tensor((n, 4), "float32")],
            )
            other = R.call_dps_packed(
                "vm.builtin.attention_kv_cache_cross_attention",
                (cache, R.prim_value(0), R.prim_value(0.3), q),
                out_sinfo=[R.Tensor((n, 4, 8), "float32"), R.Tensor((n, 4), "float32")],
            )
            after = R.call_pure_packed(
                "vm.builtin.attention_kv_cache_append_mla_kv", cache, R.prim_value(0), kv,
                sinfo_args=R.Object,
            )
            both = R.call_pure_packed(
                "vm.builtin.attention_kv_cache_merge_attn_output_inplace",
                after, own[0], own[1], other[0], other[1],
                sinfo_args=R.Tuple(R.Tensor((n, 4, 8), "float32"), R.Tensor((n, 4), "float32")),
            )
            out = (both, after)
            R.output(out)
        return out
"""

RECURRENT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("b", 3), "float32"), state: R.Object):
        b = T.int64()
        with R.dataflow():
            old = R.call_dps_packed(
                "vm.builtin.rnn_state_get", (state, R.prim_value(1), R.prim_value(0)),
                out_sinfo=R.Tensor((b, 3), "float32"),
            )
            new = R.add(R.multiply(old, R.const(2, "float32")), x)
            after = R.call_pure_packed(
                "vm.builtin.rnn_state_set", state, R.prim_value(1), R.prim_value(0), new,
                sinfo_args=R.Object,
            )
            out = (new, after)
            R.output(out)
        return out
"""


def module(text: str) -> rx.IRModule:
    made = from_source(text)
    assert isinstance(made, rx.IRModule)
    return made


def built(text: str) -> ObjectFunction:
    made = rx.VirtualMachine(rx.build(module(text)))["main"]
    assert isinstance(made, ObjectFunction)
    return made


@pytest.fixture(scope="module")
def attention() -> ObjectFunction:
    return built(ATTENTION)


def make(mode: RopeMode = RopeMode.NORMAL, sliding: bool = False) -> PagedKVCache:
    sizes = CacheSizes(8, 96, 64, PAGE, sliding)
    return PagedKVCache(sizes, [AttnKind.MHA] * LAYERS, (HQ, HKV), (D, D), HOW, mode)


def by_host(cache: PagedKVCache, qkv: Array) -> Array:
    """What the program computes, call by call on the object."""
    for layer in range(LAYERS):
        out = np.zeros((len(qkv), HQ, D), np.float32)
        cache.attention_with_fused_qkv(layer, 0.3, qkv, out)
        qkv = np.concatenate([out, qkv[:, HQ:]], 1)
    return qkv[:, :HQ]


def contents(cache: PagedKVCache, number: int, count: int) -> list[Array]:
    k, v = (np.zeros((LAYERS, count, HKV, D), np.float32) for _ in range(2))
    cache.debug_get_kv(number, 0, count, k, v)
    return [k, v]


class Pair:
    """Two caches that go the same way: one in the program, one driven by the host."""

    def __init__(self, run: ObjectFunction, mode: RopeMode, sliding: bool = False) -> None:
        self.run, self.rng = run, np.random.default_rng(mode)
        self.caches = make(mode, sliding), make(mode, sliding)
        self.lengths: dict[int, int] = {}

    def both(self, name: str, *args: Any) -> None:
        for cache in self.caches:
            getattr(cache, name)(*args)

    def step(
        self, ids: Sequence[int], counts: Sequence[int], parents: Sequence[int] | None = None
    ) -> None:
        self.both("begin_forward", ids, counts, parents)
        qkv = self.rng.standard_normal((sum(counts), HQ + 2 * HKV, D)).astype(np.float32)
        made, (cache, at) = self.run(qkv, self.caches[0])
        assert cache is self.caches[0]
        np.testing.assert_array_equal(at, self.caches[1].query_positions())
        np.testing.assert_allclose(made, by_host(self.caches[1], qkv), rtol=1e-5, atol=1e-5)
        for i, n in zip(ids, counts, strict=True):
            self.lengths[i] = self.lengths.get(i, 0) + n
        if parents is None:
            self.both("end_forward")

    def same_contents(self) -> None:
        mine, theirs = self.caches
        assert mine.total_length == theirs.total_length
        for i, n in self.lengths.items():
            pairs = zip(contents(mine, i, n), contents(theirs, i, n), strict=True)
            for a, b in pairs:
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", [RopeMode.NORMAL, RopeMode.INLINE])
def test_ragged_batches_and_forks(attention: ObjectFunction, mode: RopeMode) -> None:
    pair = Pair(attention, mode)
    for i in range(2):
        pair.both("add_sequence", i)
    pair.step([0, 1], [5, 3])
    pair.step([1, 0], [1, 1])
    pair.both("fork_sequence", 0, 2, 5)
    pair.lengths[2] = 5
    pair.step([2, 0], [1, 1])
    pair.both("popn", 1, 2)
    pair.lengths[1] -= 2
    pair.step([1, 2], [3, 5])
    pair.same_contents()


def test_sliding_windows(attention: ObjectFunction) -> None:
    pair = Pair(attention, RopeMode.NORMAL, sliding=True)
    pair.both("add_sequence", 0)
    pair.both("enable_sliding_window", 0, 6, 2)
    for n in (8, 1, 1):
        pair.step([0], [n])
        pair.lengths[0] = min(pair.lengths[0], 6)
    pair.same_contents()


def test_token_trees(attention: ObjectFunction) -> None:
    pair = Pair(attention, RopeMode.NORMAL)
    pair.both("add_sequence", 0)
    pair.step([0], [5])
    pair.step([0], [5], [-1, 0, 0, 1, 2])
    pair.both("commit_token_tree", [0], [4])
    pair.lengths[0] = 8
    pair.same_contents()


def test_a_step_is_one_program_that_takes_the_memory(attention: ObjectFunction) -> None:
    cache = make()
    cache.add_sequence(0)
    qkv = np.ones((1, HQ + 2 * HKV, D), np.float32)
    known = len(attention.programs())
    for _ in range(3):
        cache.begin_forward([0], [1])
        before = list(cache._pools)  # pyright: ignore[reportPrivateUsage]
        attention(qkv, cache)
        assert all(pool.is_deleted() for pool in before)
    # The three steps are of one form: a few tokens more are no other program.
    assert len(attention.programs()) <= known + 1
    assert all(len(loaded) >= 1 for loaded in attention.programs().values())
    loaded = next(iter(attention.programs().values()))[0]
    assert loaded.memory().alias_size_in_bytes >= sum(
        pool.nbytes
        for pool in cache._pools  # pyright: ignore[reportPrivateUsage]
    )


def test_numbers_of_tokens_share_a_program(attention: ObjectFunction) -> None:
    pair = Pair(attention, RopeMode.NORMAL)
    pair.both("add_sequence", 0)

    def count() -> int:
        return sum(map(len, attention.programs().values()))

    pair.step([0], [13])
    before = count()
    for n in (14, 16):
        pair.step([0], [n])
    assert count() == before
    pair.same_contents()


def test_latent_attention() -> None:
    run = built(LATENT)
    rng = np.random.default_rng(8)
    sizes = CacheSizes(4, 64, 32, PAGE)
    mine, theirs = (PagedKVCache(sizes, [AttnKind.MLA], (HQ, 1), (12, 8)) for _ in range(2))
    for cache in (mine, theirs):
        cache.add_sequence(3)
    for n in (5, 3):
        for cache in (mine, theirs):
            cache.begin_forward([3], [n])
        q, k = (rng.standard_normal((n, HQ, 12)).astype(np.float32) for _ in range(2))
        v = rng.standard_normal((n, HQ, 8)).astype(np.float32)
        kv = rng.standard_normal((n, 12)).astype(np.float32)
        (o, lse), cache = run(q, kv, k, v, mine)
        assert cache is mine
        own, other = (np.zeros((n, HQ, 8), np.float32) for _ in range(2))
        own_lse, other_lse = (np.zeros((n, HQ), np.float32) for _ in range(2))
        theirs.self_attention(0, 0.3, q, k, v, own, own_lse)
        theirs.cross_attention(0, 0.3, q, other, other_lse)
        theirs.append_mla_kv(0, kv)
        merge_attention(own, own_lse, other, other_lse)
        np.testing.assert_allclose(o, own, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(lse, own_lse, rtol=1e-5, atol=1e-5)
    kept = [np.zeros((1, 8, 12), np.float32) for _ in range(2)]
    for cache, out in zip((mine, theirs), kept, strict=True):
        cache.debug_get_kv(3, 0, 8, out)
    np.testing.assert_array_equal(kept[0], kept[1])


def test_recurrent_states() -> None:
    run = built(RECURRENT)
    initial = np.arange(3, dtype=np.float32)
    state = RNNState(2, 3, 2, [initial])
    for i in range(2):
        state.add_sequence(i)
    plain = {0: initial, 1: initial}
    for ids in ([0], [1, 0], [0, 1]):
        x = np.random.default_rng(len(ids)).standard_normal((len(ids), 3)).astype(np.float32)
        state.begin_forward(ids, [1] * len(ids))
        made, after = run(x, state)
        assert after is state
        state.end_forward()
        for i, row in zip(ids, x, strict=True):
            plain[i] = plain[i] * 2 + row
        np.testing.assert_allclose(made, [plain[i] for i in ids], rtol=1e-6)
    before = np.asarray(state.debug_get(1, 0, 0))
    np.testing.assert_allclose(before, plain[0], rtol=1e-6)
    state.fork_sequence(0, 7)
    state.popn(0, 1)
    np.testing.assert_allclose(state.debug_get(1, 0, 7), before)
    assert np.abs(np.asarray(state.debug_get(1, 0, 0)) - before).max() > 0.1


def test_saved(attention: ObjectFunction, tmp_path: Path) -> None:
    file = tmp_path / "model.r2x"
    rx.build(module(ATTENTION)).export_library(file)
    run = rx.VirtualMachine(rx.load_module(file))["main"]
    assert isinstance(run, ObjectFunction)
    cache = make()
    cache.add_sequence(0)
    qkv = np.random.default_rng(3).standard_normal((5, HQ + 2 * HKV, D)).astype(np.float32)
    cache.begin_forward([0], [5])
    made = run(qkv, cache)[0]
    assert run.programs()  # not in parts
    cache.popn(0, 5)
    cache.begin_forward([0], [5])
    np.testing.assert_array_equal(made, attention(qkv, cache)[0])


def test_mistakes_leave_the_cache_as_it_was(attention: ObjectFunction) -> None:
    pair = Pair(attention, RopeMode.NORMAL)
    pair.both("add_sequence", 0)
    qkv = np.zeros((2, HQ + 2 * HKV, D), np.float32)
    with pytest.raises(RunError, match="call begin_forward first"):
        attention(qkv, pair.caches[0])
    pair.step([0], [5])
    pair.both("begin_forward", [0], [3])
    with pytest.raises(RunError, match="has 3 tokens; the program was given 2"):
        attention(qkv, pair.caches[0])
    with pytest.raises(CallError, match="qkv"):
        attention(np.zeros((3, 7, D), np.float32), pair.caches[0])
    pair.both("popn", 0, 3)
    pair.step([0], [5])
    pair.same_contents()


def test_one_thread_at_a_time(attention: ObjectFunction) -> None:
    cache = make()
    cache.add_sequence(0)
    cache.begin_forward([0], [1])
    qkv = np.ones((1, HQ + 2 * HKV, D), np.float32)
    found: list[BaseException] = []

    def other() -> None:
        try:
            attention(qkv, cache)
        except RunError as e:
            found.append(e)

    with cache.lock:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another thread is using this object" in str(found[0])
    attention(qkv, cache)


def test_what_the_host_does_keeps_the_function_in_parts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "relax2xla.vm")
    looked = (
        'c = R.call_pure_packed("test.kv_look", b, sinfo_args=R.Tensor((n, 4, 8), "float32"))'
        "\n            out = (c,"
    )
    printed = ATTENTION.replace("out = (b,", looked)
    rx.register_func("test.kv_look", lambda x: x, override=True)
    run = built(printed)
    pair = Pair(run, RopeMode.NORMAL)
    pair.both("add_sequence", 0)
    pair.step([0], [5])
    pair.same_contents()
    assert "runs in parts, the host between them: " in caplog.text
    assert "test.kv_look" in caplog.text


def test_the_pass() -> None:
    cache = make()
    cache.add_sequence(0)
    cache.begin_forward([0], [1])
    mod = module(ATTENTION)
    with cache.lent() as loan:
        assert loan.form is not None
        made = ObjectsToArrays("main", {1: loan.form})(mod)["main"]
    names = [p.name_hint for p in made.params]
    tables = ["positions", "slots", "table", "limits", "rows", "back"]
    assert names == ["qkv", "cache_kept", *(f"cache_{t}" for t in tables)]
    wrong = module(ATTENTION.replace("R.prim_value(1), R", "R.prim_value(9), R"))
    turn = ObjectsToArrays("main", {1: loan.form})
    with pytest.raises(TransformError, match="of layer 9"):
        turn(wrong)

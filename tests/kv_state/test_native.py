"""Attention of decodes in C++ against the same caches driven by the host, whose calls are rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import processor
from relax2xla.errors import TVMError
from relax2xla.kv_state import AttnKind, CacheSizes, PagedKVCache, RopeMode, native, rotation
from relax2xla.kv_state.rows import Bounds
from relax2xla.runtime.compiler import has_compiler
from relax2xla.script import from_source
from relax2xla.vm.call.object_function import ObjectFunction

HQ, HKV, D = 4, 2, 80
BOUNDS = (Bounds(), Bounds(3, 0.7))

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(qkv: R.Tensor(("n", 8, 80), "float32"), cache: R.Object):
        n = T.int64()
        with R.dataflow():
            a = R.call_dps_packed(
                "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
                (cache, R.prim_value(0), R.prim_value(0.3), qkv),
                out_sinfo=R.Tensor((n, 4, 80), "float32"),
            )
            b = R.call_dps_packed(
                "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
                (cache, R.prim_value(1), R.prim_value(0.3), qkv, R.prim_value(3),
                 R.prim_value(0.7)),
                out_sinfo=R.Tensor((n, 4, 80), "float32"),
            )
            out = ((a, b), cache)
            R.output(out)
        return out
"""

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with few processors, for steps of any size."""
    monkeypatch.setattr(native, "_LEAST", 0)
    monkeypatch.setattr(processor, "count", lambda: 2)


# Attention, and a product behind it whose weight is large.
PRODUCT = """
@I.ir_module
class Module:
    @R.function
    def main(qkv: R.Tensor(("n", 8, 80), "float32"), w: R.Tensor((821, 320), "float32"),
             cache: R.Object):
        n = T.int64()
        with R.dataflow():
            a = R.call_dps_packed(
                "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
                (cache, R.prim_value(0), R.prim_value(0.3), qkv),
                out_sinfo=R.Tensor((n, 4, 80), "float32"),
            )
            x = R.reshape(a, (1, n, 320))
            y = R.matmul(x, R.permute_dims(w))
            out = ((x, y), cache)
            R.output(out)
        return out
"""


def built(text: str = TEXT) -> ObjectFunction:
    mod = from_source(text)
    assert isinstance(mod, rx.IRModule)
    made = rx.VirtualMachine(rx.build(mod))["main"]
    assert isinstance(made, ObjectFunction)
    return made


def cache(mode: RopeMode = RopeMode.NORMAL, dtype: str = "float32") -> PagedKVCache:
    sizes, how = CacheSizes(8, 256, 64, 4), rotation(D, 100.0)
    return PagedKVCache(sizes, [AttnKind.MHA] * 2, (HQ, HKV), (D, D), how, mode, dtype)


def step(
    run: ObjectFunction, both: tuple[PagedKVCache, PagedKVCache], counts: list[int], qkv: Any
) -> None:
    for each in both:
        each.begin_forward(range(len(counts)), counts)
    (made, _) = run(qkv, both[0])
    for layer, bounds in enumerate(BOUNDS):
        out = np.zeros((len(qkv), HQ, D), qkv.dtype)
        both[1].attention_with_fused_qkv(layer, 0.3, qkv, out, bounds)
        np.testing.assert_allclose(made[layer], out, rtol=2e-5, atol=2e-5)
    for each in both:
        each.end_forward()


def calls(run: ObjectFunction) -> list[int]:
    """Of each program how many calls of the function it has."""
    programs = [p for loaded in run.programs().values() for p in loaded]
    return [p.hlo_text().count(f'custom_call_target="{native.TARGET}"') for p in programs]


def test_decodes_of_ragged_batches(rng: np.random.Generator) -> None:
    run, both = built(), (cache(), cache())
    for each in both:
        for i in range(3):
            each.add_sequence(i)

    def qkv(count: int) -> Any:
        return rng.standard_normal((count, HQ + 2 * HKV, D)).astype(np.float32)

    step(run, both, [21, 1, 7], qkv(29))
    assert calls(run) == [0]
    for _ in range(2):
        # Three sequences in a program for four.
        step(run, both, [1, 1, 1], qkv(3))
    assert calls(run) == [0, 2]
    # Scores far apart, where weights become zeros; and what is no number stays so.
    step(run, both, [1, 1, 1], 30 * qkv(3))
    strange = qkv(3)
    strange[1, 0] = np.nan
    step(run, both, [1, 1, 1], strange)


def test_what_stays_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def native_now(made: PagedKVCache, parents: list[int] | None = None) -> bool:
        made.begin_forward([0], [1], parents)
        with made.lent() as loan:
            assert loan.form is not None
            return bool(loan.form.targets)

    plain, turned, half = cache(), cache(RopeMode.INLINE), cache(dtype="float16")
    for made in (plain, turned, half):
        made.add_sequence(0)
    assert not native_now(turned)
    assert not native_now(half)
    assert native_now(plain)
    monkeypatch.setattr(processor, "count", lambda: 64)
    assert not native_now(plain)
    monkeypatch.undo()
    assert not native_now(plain)  # so few keys
    monkeypatch.setattr(native, "_LEAST", 0)
    made = cache()
    made.add_sequence(0)
    # Two tokens of a tree that do not see each other.
    assert [native_now(made, [-1]) for _ in range(2)] == [processor.count() <= 4, False]


@pytest.mark.parametrize("processors", [1, 2])
def test_products_of_few_rows(
    processors: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "count", lambda: processors)
    run, made = built(PRODUCT), cache()
    for i in range(8):
        made.add_sequence(i)
    w = rng.standard_normal((821, 320)).astype(np.float32)
    for count in (3, 1, 8):
        made.begin_forward(range(count), [1] * count)
        qkv = rng.standard_normal((count, HQ + 2 * HKV, D)).astype(np.float32)
        (x, y), _ = run(qkv, w, made)
        np.testing.assert_allclose(y[0], np.asarray(x)[0] @ w.T, rtol=1e-4, atol=1e-4)
        made.end_forward()
    # Attention, and the product where it is of two to four rows.
    assert calls(run) == [2 if processors == 1 else 1, 1, 1]


def test_the_function_of_few_rows(rng: np.random.Generator) -> None:
    multiply = native.compiled("relax2xla_few_rows")
    for rows, size, out in ((1, 5, 1), (2, 16, 4), (3, 37, 11), (7, 130, 6), (9, 64, 13)):
        x, w = (rng.standard_normal((n, size)).astype(np.float32) for n in (rows, out))
        y = np.zeros((rows, out), np.float32)
        multiply(x, w, y)
        np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-5)
        x[0, -1] = np.nan
        multiply(x, w, y)
        assert np.isnan(y).any(1).tolist() == [True] + [False] * (rows - 1)
    with pytest.raises(TVMError, match="relax2xla_few_rows"):
        multiply(x[:, 1:].copy(), w, y)

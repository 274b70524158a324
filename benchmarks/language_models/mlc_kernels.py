"""Kernels that MLC-LLM's models and samplers bring, beside the same by hand in jax.numpy.

``python -m benchmarks mlc_kernels --mlc PATH``: kernels for mixtures of experts and for sampling
are made by MLC's own functions and passes, for CUDA, at sizes of real models; each is built by the
default pipeline, and its results are compared with those by hand. Table: docs/nn.md.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import relax2xla
from benchmarks.language_models.mlc import PAGE, use
from benchmarks.timing import interleaved
from relax2xla.cli.figures.timing import calls_for, ratio
from relax2xla.op.intrinsic import call_tir, call_tir_inplace

BEGIN, END = "<!-- mlc_kernels: python -m benchmarks mlc_kernels -->", "<!-- end of mlc_kernels -->"
LEAST: Final = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Case:
    """A call: what of a module, its arguments, the same by hand, names of the kernels in it."""

    name: str
    sizes: str
    kernels: Sequence[str]
    mod: Any
    function: str
    arrays: Sequence[np.ndarray]
    by_hand: Callable[..., Any]
    tolerance: float = 1e-4


RNG: Final = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _traced(function: Callable[..., Any], arrays: dict[str, np.ndarray], rows: str = "") -> Any:
    """A module of nn that calls ``function`` of tensors; the first axis of ``rows`` is symbolic."""
    from relax2xla.frontend import nn

    class Model(nn.Module):
        """The call."""

        def forward(self, *given: Any) -> Any:
            """The call."""
            return function(*given)

    names = list(arrays)
    source = f"def forward(self, {', '.join(names)}):\n    return call({', '.join(names)})\n"
    held: dict[str, Any] = {"call": function}
    exec(source, held)  # the specification names parameters
    Model.forward = held["forward"]
    infos = {
        k: nn.spec.Tensor(["n", *v.shape[1:]] if k == rows else list(v.shape), str(v.dtype))
        for k, v in arrays.items()
    }
    return Model().export_tvm({"forward": infos})[0]


def _in_place(func: Any, name: str, arrays: Sequence[np.ndarray], place: int | None = 0) -> Any:
    """A module that calls a kernel which writes its argument ``place`` (None: the last, new)."""
    builder = relax2xla.BlockBuilder()
    infos = [relax2xla.TensorStructInfo(a.shape, str(a.dtype)) for a in arrays]
    params = [relax2xla.Var(f"p{i}", info) for i, info in enumerate(infos)]
    with builder.function("main", params):
        callee = builder.add_func(func, name)
        if place is None:
            call = call_tir(callee, params[:-1], infos[-1])
        else:
            call = call_tir_inplace(callee, relax2xla.Tuple(params), [place], infos[place])
        builder.emit_func_output(builder.emit(call))
    return builder.get()


# -- mixtures of experts ---------------------------------------------------------------------------
def _gating(n: int, e: int, k: int) -> Iterator[Case]:
    from mlc_llm.op import moe_misc  # pyright: ignore

    def shares(x: Any) -> Any:
        values, places = jax.lax.top_k(x, k)
        return jax.nn.softmax(values, -1), places

    x = {"x": _normal(n, e)}
    sizes = f"{n} tokens, {k} of {e} experts"
    for name, kernel, function, by_hand in (
        ("softmax of the largest", f"top{k}_softmax", moe_misc.gating_softmax_topk, shares),
        ("the largest", f"top{k}", moe_misc.gating_topk, lambda x: jax.lax.top_k(x, k)),
    ):
        mod = _traced(lambda x, f=function: f(x, k), x)
        yield Case(name, sizes, [kernel], mod, "forward", [*x.values()], by_hand)


def _chosen(n: int, e: int, k: int) -> np.ndarray:
    return np.stack([RNG.permutation(e)[:k] for _ in range(n)]).astype(np.int32)


def _routing(n: int, e: int, k: int) -> Iterator[Case]:
    from mlc_llm.op import moe_misc  # pyright: ignore

    def sums(i: Any) -> Any:
        mask = (i[:, :, None] == jnp.arange(e)).any(1)
        return jnp.cumsum(mask.astype(jnp.int32).T.reshape(-1), dtype=jnp.int32)

    def places(c: Any, i: Any) -> Any:
        at = (c[i * n + jnp.arange(n)[:, None]] - 1).reshape(-1)
        place = jnp.arange(n * k, dtype=jnp.int32)
        return jnp.zeros_like(place).at[at].set(place), jnp.zeros_like(place).at[at].set(place // k)

    def ends(c: Any, i: Any) -> Any:
        return jnp.concatenate([jnp.zeros(1, jnp.int32), c.reshape(e, n)[:, -1]])

    i = _chosen(n, e, k)
    c = np.asarray(sums(i))
    sizes = f"{n} tokens, {k} of {e} experts"
    mod = _traced(lambda i: moe_misc.moe_cumsum(i, e), {"i": i})
    yield Case("moe_cumsum", sizes, ["expert_mask"], mod, "forward", [i], sums)
    mod = _traced(moe_misc.get_indices, {"c": c, "i": i})
    yield Case("get_indices", sizes, ["get_indices"], mod, "forward", [c, i], places)
    whole = lambda c, i: moe_misc.get_indptr(c, e, i.shape[0], False, "int32")  # noqa: E731
    mod = _traced(whole, {"c": c, "i": i}, rows="i")
    yield Case("get_indptr", sizes, [], mod, "forward", [c, i], ends)
    x, p = _normal(n * k, 2048), RNG.permutation(n * k).astype(np.int32)
    mod = _traced(moe_misc.scatter_output, {"x": x, "p": p})
    yield Case(
        "scatter_output",
        f"{n * k} rows of 2048",
        ["scatter_output"],
        mod,
        "forward",
        [x, p],
        lambda x, p: jnp.zeros_like(x).at[p].set(x),
    )


def _in_groups(n: int, e: int, groups: int, taken: int, k: int) -> Iterator[Case]:
    from mlc_llm.op import moe_misc  # pyright: ignore

    def by_hand(s: Any, b: Any) -> Any:
        c = s + b
        best = jax.lax.top_k(c.reshape(n, groups, -1), 2)[0].sum(-1)
        which = jax.lax.top_k(best, taken)[1]
        kept = (which[:, :, None] == jnp.arange(groups)).any(1)
        masked = jnp.where(jnp.repeat(kept, e // groups, 1), c, LEAST)
        places = jax.lax.top_k(masked, k)[1]
        return jnp.take_along_axis(s, places, 1), places

    arrays = {"s": 1 / (1 + np.exp(-_normal(n, e))), "b": _normal(e) / 10}
    mod = _traced(
        lambda s, b: moe_misc.group_limited_greedy_topk(s, k, e, groups, taken, "noaux_tc", n, b),
        arrays,
    )
    sizes = f"{n} tokens, {k} of {e} experts in {groups} groups"
    kernels = ["top2", "group_limited_mask_scores", f"top{k}", "gather_scores"]
    yield Case("the largest of groups", sizes, kernels, mod, "forward", [*arrays.values()], by_hand)


def _unpacked(words: Any, scale: Any, k: int) -> Any:
    """Weights of groups of 32 in four bits."""
    fields = (words[..., None] >> (jnp.arange(8, dtype=jnp.uint32) * 4)) & jnp.uint32(15)
    values = fields.reshape(*words.shape[:-1], -1)[..., :k].astype(jnp.float32) - 7
    return values * jnp.repeat(scale, 32, -1)[..., :k]


def _experts(e: int, s: int, n: int, k: int, tokens: int) -> Iterator[Case]:
    from mlc_llm.op import moe_matmul  # pyright: ignore

    def one_by_one(weight: Callable[..., Any], x: Any, *rest: Any) -> Any:
        *held, i = rest
        rows = jnp.broadcast_to(x, (s, k))
        return jax.lax.map(lambda a: weight(*(h[a[0]] for h in held)) @ a[1], (i[0], rows))

    def grouped(weight: Callable[..., Any], x: Any, *rest: Any) -> Any:
        *held, p = rest
        return jax.lax.ragged_dot(x, jnp.swapaxes(weight(*held), 1, 2), p[1:] - p[:-1])

    plain: Callable[..., Any] = lambda w: w  # noqa: E731
    packed: Callable[..., Any] = lambda q, c: _unpacked(q, c, k)  # noqa: E731
    weights = {"w": _normal(e, n, k)}
    words = RNG.integers(0, 2**32, (e, n, k // 8), dtype=np.uint32)
    quantised = {"q": words, "c": np.abs(_normal(e, n, k // 32)) / 100}
    chosen, i = {"x": _normal(1, k)}, {"i": _chosen(1, e, s)}
    counts = np.bincount(_chosen(tokens, e, s).ravel(), minlength=e)
    rows = {"x": _normal(tokens * s, k)}
    p = {"p": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)}
    few = f"1 token, {s} of {e} experts of ({n}, {k})"
    many = f"{tokens} tokens, the same"

    def four_bits(*given: Any) -> Any:
        return moe_matmul.dequantize_gemv(*given, "int4", 32)

    def four_bits_grouped(*given: Any) -> Any:
        return moe_matmul.dequantize_group_gemm(*given, "int4", "int32", 32)

    for kernel, sizes, function, arrays, by_hand, weight in (
        ("moe_gemv", few, moe_matmul.gemv, chosen | weights | i, one_by_one, plain),
        ("moe_dequantize_gemv", few, four_bits, chosen | quantised | i, one_by_one, packed),
        ("group_gemm", many, moe_matmul.group_gemm, rows | weights | p, grouped, plain),
        ("dequantize_group_gemm", many, four_bits_grouped, rows | quantised | p, grouped, packed),
    ):
        yield Case(
            kernel,
            sizes,
            [kernel],
            _traced(function, arrays),
            "forward",
            [*arrays.values()],
            lambda *given, f=by_hand, w=weight: f(w, *given),
            1e-2,
        )


# -- sampling --------------------------------------------------------------------------------------
def _logits(b: int, v: int) -> Iterator[Case]:
    import tvm  # pyright: ignore
    from mlc_llm.compiler_pass import (  # pyright: ignore
        attach_logit_processor,
        attach_softmax_with_temperature,
    )

    cuda = tvm.target.Target("cuda")
    logits, count, sizes = _normal(b, v), 1000, f"({b}, {v})"
    rows = np.sort(RNG.integers(0, b, count)).astype(np.int32)
    tokens = RNG.permutation(v)[:count].astype(np.int32)
    ids = np.arange(b, dtype=np.int32)[::-1].copy()
    counts = RNG.integers(1, 9, count).astype(np.int32)
    penalties, bias = np.abs(_normal(b, 3)) + np.float32(0.5), _normal(count)
    words = RNG.integers(0, 2**32, (b, -(-v // 32)), dtype=np.uint32).view(np.int32)

    def penalised(x: Any, ids: Any, s: Any, t: Any, c: Any, p: Any) -> Any:
        at = ids[s]
        y = x[at, t] - (p[s, 0] + c * p[s, 1])
        return x.at[at, t].set(jnp.where(y < 0, y * p[s, 2], y / p[s, 2]))

    def masked(x: Any, ids: Any, m: Any) -> Any:
        bits = ((m[ids][:, :, None] >> jnp.arange(32)) & 1).reshape(b, -1)[:, :v]
        return x.at[ids].set(jnp.where(bits == 1, x[ids], LEAST))

    for name, arrays, by_hand in (
        ("logit_bias", [logits, rows, tokens, bias], lambda x, s, t, c: x.at[s, t].add(c)),
        ("penalty", [logits, ids, rows, tokens, counts, penalties], penalised),
        ("bitmask", [logits, ids, words], masked),
    ):
        kernel = f"apply_{name}_inplace"
        more = "" if name == "bitmask" else f", {count} tokens"
        func = getattr(attach_logit_processor, f"_get_{kernel}")(cuda)
        mod = _in_place(func, kernel, arrays)
        yield Case(kernel, sizes + more, [kernel], mod, "main", arrays, by_hand)

    def softmax(x: Any, t: Any) -> Any:
        t = t[:, None, None]
        y = jnp.where(t > 1e-5, x / t, x)
        first = (y == y.max(-1, keepdims=True)).astype(jnp.float32)
        return jnp.where(t > 1e-5, jax.nn.softmax(y, -1), first / first.sum(-1, keepdims=True))

    mod = attach_softmax_with_temperature.AttachSoftmaxWithTemperature(cuda)(tvm.IRModule())
    name, temperature = "softmax_with_temperature", np.abs(_normal(b)) + np.float32(0.3)
    kernels, arrays = ["chunk_lse", "softmax_with_chunked_sum"], [logits[:, None], temperature]
    yield Case(name, sizes, kernels, mod, name, arrays, softmax)


def _sampling(b: int, v: int) -> Iterator[Case]:
    import tvm  # pyright: ignore
    from mlc_llm.compiler_pass import attach_sampler  # pyright: ignore

    made = attach_sampler.AttachGPUSamplingFunc(tvm.target.Target("cuda"), {"batch_size": b})
    mod: Any = made(tvm.IRModule())
    powers = np.exp(3 * _normal(b, v).astype(np.float64))
    p = (powers / powers.sum(1, keepdims=True)).astype(np.float32)
    order = np.argsort(-p, 1, kind="stable").astype(np.int32)
    falling = np.take_along_axis(p, order, 1)
    u, rows = RNG.random(b).astype(np.float32), np.arange(b, dtype=np.int32)
    most = np.full(b, 0.9, np.float32)
    pivots = np.tile(np.array([0.1, 0.01, 0.001], np.float32), (b, 1))
    offsets = np.concatenate([np.arange(5) + r * v for r in range(b)]).astype(np.int32)
    drawn = RNG.integers(0, v, b).astype(np.int32)

    def kept(p: Any, most: Any) -> tuple[Any, Any]:
        sums = jnp.cumsum(p, 1)
        return sums, (sums < most[:, None]).sum(1)[:, None]

    def draw(p: Any, i: Any, u: Any, r: Any, most: Any) -> Any:
        sums, last = kept(p, most)
        total = jnp.take_along_axis(sums, last, 1)[:, 0]
        return i[r, (sums[r] > (u * total[r])[:, None]).argmax(1)]

    def cut(p: Any, most: Any, _: Any) -> Any:
        ordered = jnp.sort(p, 1, descending=True)
        least = jnp.take_along_axis(ordered, kept(ordered, most)[1], 1)
        y = jnp.where(p >= least, p, 0)
        return y / y.sum(1, keepdims=True)

    def sort(p: Any) -> Any:
        i = jnp.argsort(p, 1, descending=True).astype(jnp.int32)
        return jnp.take_along_axis(p, i, 1), i

    def take(p: Any, i: Any, r: Any, t: Any, at: Any) -> Any:
        row, column = at // v, at % v
        return p[r, t], p[row, i[row, column]], i[row, column]

    def multinomial(p: Any, u: Any, r: Any) -> Any:
        return (jnp.cumsum(p, 1)[r] > u[:, None]).argmax(1)

    pivot = ["top_p_pivot_cutoff", "top_p_renorm_after_cutoff"]
    for name, kernels, arrays, by_hand in (
        ("multinomial_from_uniform", [], [p, u, rows], multinomial),
        ("argsort_probs", ["take_sorted_probs"], [p], sort),
        ("sample_with_top_p", ["full"], [falling, order, u, rows, most], draw),
        ("sampler_take_probs", ["sampler_take_probs_tir"], [p, order, rows, drawn, offsets], take),
        ("renormalize_by_top_p", pivot, [p, most, pivots], cut),
    ):
        yield Case(name, f"({b}, {v})", kernels, mod, name, arrays, by_hand, 2e-4)
    yield _verify(mod, v)


def _verify(mod: Any, v: int) -> Case:
    """Two chains of four drafted tokens; the first is refused at its third."""
    nodes = 8
    powers = np.exp(3 * _normal(2, nodes, v))
    drafted, wanted = (powers / powers.sum(-1, keepdims=True)).astype(np.float32)
    tokens = RNG.integers(0, v, nodes).astype(np.int32)
    child = np.array([1, 2, 3, -1, 5, 6, 7, -1], np.int32)
    sibling = np.full(nodes, -1, np.int32)
    uniform = np.zeros(nodes, np.float32)
    uniform[2] = 1e9
    start = np.array([0, 4], np.int32)
    name = "sampler_verify_draft_tokens"

    def by_hand(q: Any, t: Any, p: Any, child: Any, sibling: Any, u: Any, start: Any) -> Any:
        def body(state: Any) -> Any:
            p, at, c = state
            taken = p[at, t[c]] >= u[c] * q[c, t[c]]
            rest = jnp.maximum(p[at] - q[c], 0)
            total = rest.sum()
            moves = taken | (total < 1e-7)
            p = p.at[at].set(jnp.where(moves, p[at], rest / total))
            return p, jnp.where(moves, c, at), jnp.where(moves, child[c], sibling[c])

        ends: list[Any] = []
        for b in range(2):
            state = (p, start[b], child[start[b]])
            p, at, _ = jax.lax.while_loop(lambda s: s[2] != -1, body, state)
            ends.append(at)
        return p, jnp.stack(ends)

    arrays = [drafted, tokens, wanted, child, sibling, uniform, start]
    kernels = ["batch_verify_on_gpu_single_kernel"]
    return Case(name, f"2 chains of 4 tokens of {v}", kernels, mod, name, arrays, by_hand)


def cases() -> Iterator[Case]:
    """All of them, made when their turn comes."""
    yield from _gating(256, 8, 2)
    yield from _gating(256, 64, 8)
    yield from _routing(256, 64, 8)
    yield from _in_groups(64, 256, 8, 4, 8)
    yield from _experts(8, 2, 2048, 2048, 64)
    yield from _experts(64, 8, 1024, 2048, 16)
    for size in ((1, 32000), (8, 128256)):
        yield from _logits(*size)
        yield from _sampling(*size)


# -- measuring -------------------------------------------------------------------------------------
def measure(case: Case, rounds: int) -> str:
    """A line of the table; AssertionError where results differ."""
    ex = relax2xla.build(case.mod)
    machine: Any = relax2xla.VirtualMachine(ex, relax2xla.cpu())
    given = [jnp.asarray(a) for a in case.arrays]
    ours, by_hand = machine[case.function], jax.jit(case.by_hand)
    got, want = (jax.tree.leaves(f(*given)) for f in (ours, by_hand))
    for a, b in zip(got, want, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        limit = case.tolerance
        np.testing.assert_allclose(a, b.reshape(a.shape), limit, limit, err_msg=case.name)
    both = {
        "ours": lambda: jax.block_until_ready(ours(*given)),
        "by hand": lambda: jax.block_until_ready(by_hand(*given)),
    }
    calls = max(map(calls_for, both.values()))
    times = interleaved(both, rounds, calls, untimed=1, clock=time.process_time)
    forms = {form.name: form for form in ex.kernels() if form.name in case.kernels}
    became = "; ".join(form.lines()[0].partition(": ")[2] for form in forms.values())
    cells = [f"`{case.name}`" if "_" in case.name else case.name, case.sizes, became or "rows"]
    cells += [f"{min(t) * 1e3:.3g}" for t in times.values()]
    cells.append(f"{ratio(times, 'ours', 'by hand'):.2f}")
    return f"| {' | '.join(cells)} |"


def main(quick: bool = False, mlc: str | None = None) -> None:
    """Measure the kernels, and write the page (``quick``: few rounds, and no page)."""
    if mlc is None:
        raise SystemExit("mlc_kernels needs a checkout of mlc-ai/mlc-llm: --mlc PATH")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    use(Path(mlc))
    # The package's root asks for libraries that are of no use to these passes.
    package = ModuleType("mlc_llm.compiler_pass")
    package.__path__ = [str(Path(p) / "compiler_pass") for p in sys.modules["mlc_llm"].__path__]
    sys.modules[package.__name__] = package
    lines = ["| what | at | becomes | ours ms | by hand ms | ratio |", "|---|---|---|---|---|---|"]
    print("\n".join(lines))
    for case in cases():
        lines.append(measure(case, 2 if quick else 9))
        print(lines[-1], flush=True)
    if quick:
        return
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text("\n".join([before + BEGIN, *lines, END + after]))

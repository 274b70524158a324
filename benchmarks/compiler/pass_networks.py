"""Passes that can change speed: small networks before and after, and what a pass costs itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import relax2xla as rx
from benchmarks.timing import interleaved
from relax2xla import op, transform
from relax2xla.cli.figures.timing import ratio
from relax2xla.ir import Expr, IRModule, TensorStructInfo, Var

RNG = np.random.default_rng(0)
Body = Callable[[rx.BlockBuilder, Sequence[Var]], Expr]


class Case(NamedTuple):
    """A network on which a pass (or several) is measured.

    weights: how many parameters from the end are weights; bound: whether they become constants
    """

    name: str
    shapes: Sequence[tuple[int, ...]]
    body: Body
    steps: Sequence[transform.Pass]
    weights: int = 0
    bound: bool = False
    indices: int = 0  # the parameter that holds integers, 0 for none


def _chain(bb: rx.BlockBuilder, p: Sequence[Var]) -> Expr:
    return op.matmul(p[0], bb.emit(op.matmul(p[1], p[2])))


def _lora(bb: rx.BlockBuilder, p: Sequence[Var]) -> Expr:
    return op.matmul(p[0], bb.emit(op.add(p[3], bb.emit(op.matmul(p[1], p[2])))))


def _heads(bb: rx.BlockBuilder, p: Sequence[Var]) -> Expr:
    return op.concat([bb.emit(op.matmul(p[0], w)) for w in p[1:]], 1)


def _adapters(bb: rx.BlockBuilder, p: Sequence[Var]) -> Expr:
    return op.matmul(p[0], bb.emit(op.take(p[1], p[2], 0)))


def _layers(bb: rx.BlockBuilder, p: Sequence[Var]) -> Expr:
    h: Expr = p[0]
    for w in p[1:]:
        h = bb.emit(op.nn.relu(op.matmul(h, op.permute_dims(op.multiply(w, rx.const(0.1))))))
    return h


def _repeated(bb: rx.BlockBuilder, p: Sequence[Var]) -> Expr:
    parts = [bb.emit(op.nn.relu(bb.emit(op.matmul(p[0], p[1])))) for _ in range(4)]
    return op.concat(parts, 1)


def _dead_argument(bb: rx.BlockBuilder, p: Sequence[Var]) -> Expr:
    """A private function is given a product that it does not read."""
    inner, info = rx.BlockBuilder(), TensorStructInfo((64, 512), "float32")
    a, b = Var("a", info), Var("b", info)
    with inner.function("part", [a, b], private=True):
        with inner.dataflow():
            out = inner.emit_output(op.nn.relu(a))
        inner.emit_func_output(out)
    part = bb.add_func(inner.get()["part"], "part")
    first, second = (bb.emit(op.matmul(p[0], w)) for w in p[1:])
    return rx.Call(part, [first, second])


ADJUST, EXPAND = transform.AdjustMatmulOrder(), transform.ExpandMatmulOfSum()
CASES = (
    Case("x (a b): 64x1024, rank 8", [(64, 1024), (1024, 8), (8, 1024)], _chain, [ADJUST]),
    Case(
        "x (w + a b): 4x1024, rank 8",
        [(4, 1024), (1024, 8), (8, 1024), (1024, 1024)],
        _lora,
        [EXPAND, ADJUST],
    ),
    Case(
        "8 projections 256 to 64 of one row, constants",
        [(1, 256), *[(256, 64)] * 8],
        _heads,
        [transform.CombineParallelMatmul()],
        8,
        True,
    ),
    Case(
        "3 projections 512 to 512 of 64 rows, constants",
        [(64, 512), *[(512, 512)] * 3],
        _heads,
        [transform.CombineParallelMatmul()],
        3,
        True,
    ),
    Case(
        "16 requests choose one of 4 matrices 512x512",
        [(16, 1, 512), (4, 512, 512), (16,)],
        _adapters,
        [transform.ReorderTakeAfterMatmul()],
        indices=2,
    ),
    Case(
        "4 layers 512x512 on 16 rows, constants",
        [(16, 512), *[(512, 512)] * 4],
        _layers,
        [transform.ToMixedPrecision()],
        4,
        True,
    ),
    Case(
        "4 layers 512x512 on 16 rows, constants",
        [(16, 512), *[(512, 512)] * 4],
        _layers,
        [transform.FoldConstant()],
        4,
        True,
    ),
    Case(
        "one product 512 to 512 of 64 rows, 4 times",
        [(64, 512), (512, 512)],
        _repeated,
        [transform.EliminateCommonSubexpr()],
    ),
    Case(
        "a product 512 to 512 of 64 rows, for an argument that is not read",
        [(64, 512), *[(512, 512)] * 2],
        _dead_argument,
        [transform.RemoveUnusedParameters()],
    ),
    Case(
        "4 layers 512x512 on 16 rows, weights as arguments",
        [(16, 512), *[(512, 512)] * 4],
        _layers,
        [transform.LiftTransformParams()],
        4,
    ),
)


def main(quick: bool = False) -> None:
    """Print a table of times before and after, and one of costs."""
    print("| pass | network | before ms | after ms | after / before |\n|---|---|---|---|---|")
    for case in CASES:
        times = measured(case, 5 if quick else 40)
        before, after = (1e3 * statistics.median(times[k]) for k in ("before", "after"))
        names = ", ".join(step.info.name for step in case.steps)
        change = ratio(times, "after", "before")
        print(f"| {names} | {case.name} | {before:.3f} | {after:.3f} | {change:.2f} |")
    print("\n| pass | CPU us a binding, of 10,000 | of 100,000 |\n|---|---|---|")
    sizes = (1_000, 10_000) if quick else (10_000, 100_000)
    mods = [_long(n) for n in sizes]
    for step in dict.fromkeys(type(s) for c in CASES for s in c.steps):
        costs = " | ".join(f"{_cost(step(), mod):.1f}" for mod in mods)
        print(f"| {step.__name__} | {costs} |")


def measured(case: Case, rounds: int) -> dict[str, list[float]]:
    """Seconds of calls of the network before and after the passes, in turns."""
    args = _arrays(case)
    inputs, weights = args[: len(args) - case.weights], args[len(args) - case.weights :]
    mod = _network(case, weights)
    calls: dict[str, Callable[[], Any]] = {}
    for name, steps in (("before", ()), ("after", case.steps)):
        new = mod
        for step in steps:
            new = step(new)
        machine = rx.VirtualMachine(rx.build(new), rx.cpu())
        given: Sequence[Any] = () if case.bound else weights
        if "main_transform_params" in new:
            given = machine["main_transform_params"](tuple(weights))
        on_device = [rx.nd.array(a) for a in (*inputs, *given)]
        calls[name] = lambda f=machine["main"], given=on_device: f(*given).block_until_ready()
    return interleaved(calls, rounds)


def _network(case: Case, weights: Sequence[np.ndarray]) -> IRModule:
    bb = rx.BlockBuilder()
    params: list[Var] = []
    for i, shape in enumerate(case.shapes):
        dtype = "int64" if case.indices and i == case.indices else "float32"
        params.append(Var(f"p{i}", TensorStructInfo(shape, dtype)))
    attrs = {"num_input": len(params) - case.weights} if case.weights else {}
    with bb.function("main", params, attrs=attrs):
        with bb.dataflow():
            out = bb.emit_output(case.body(bb, params))
        bb.emit_func_output(out)
    mod = bb.get()
    if case.bound:
        values: dict[Any, Any] = dict(zip(params[-case.weights :], weights, strict=True))
        mod = transform.BindParams("main", values)(mod)
    return mod


def _arrays(case: Case) -> list[np.ndarray]:
    arrays: list[np.ndarray] = []
    for i, shape in enumerate(case.shapes):
        if case.indices and i == case.indices:
            arrays.append(np.arange(shape[0]) % case.shapes[i - 1][0])
        else:
            arrays.append(RNG.standard_normal(shape).astype("float32"))
    return arrays


def _long(bindings: int) -> IRModule:
    """A network of so many bindings."""
    bb = rx.BlockBuilder()
    x, *weights = (Var(f"p{i}", TensorStructInfo((4, 4), "float32")) for i in range(101))
    with bb.function("main", [x, *weights], attrs={"num_input": 1}):
        with bb.dataflow():
            h: Expr = x
            for i in range(bindings // 5):
                t = bb.emit(op.permute_dims(weights[i % 100]))
                h = bb.emit(op.nn.relu(op.add(op.matmul(h, t), op.matmul(h, weights[i % 100]))))
            out = bb.emit_output(h)
        bb.emit_func_output(out)
    return bb.get()


def _cost(step: transform.Pass, mod: IRModule) -> float:
    """CPU microseconds a binding."""
    count = sum(len(block.bindings) for block in mod["main"].body.blocks)
    start = time.process_time()
    step(mod)
    return 1e6 * (time.process_time() - start) / count

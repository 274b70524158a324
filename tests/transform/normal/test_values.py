"""No pass of this room changes what a program computes: random programs, before and after."""

from __future__ import annotations

import random

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import transform
from relax2xla.ir import IRModule
from relax2xla.transform import Pass

from .compare import CHECKED, module

UNARY = ("exp", "sin", "cos", "tanh", "negative")
BINARY = ("add", "multiply", "subtract", "maximum")
INFO = 'R.Tensor((3,), "float32")'
PASSES: dict[str, Pass] = {
    "CanonicalizeBindings": transform.CanonicalizeBindings(),
    "EliminateCommonSubexpr": transform.EliminateCommonSubexpr(),
    "ConvertToDataflow": transform.ConvertToDataflow(1),
    "ToNonDataflow": transform.ToNonDataflow(),
    "depth-first": transform.TopologicalSort("depth-first", "from-inputs"),
    "breadth-first": transform.TopologicalSort("breadth-first", "from-outputs"),
    "FoldConstant": transform.FoldConstant(),
    "InlinePrivateFunctions": transform.InlinePrivateFunctions(),
    "LambdaLift": transform.LambdaLift(),
    "RemoveUnusedParameters": transform.RemoveUnusedParameters(),
    "RemoveUnusedOutputs": transform.RemoveUnusedOutputs(),
    "ExpandTupleArguments": transform.ExpandTupleArguments(),
    "DeadCodeElimination": transform.DeadCodeElimination(),
    "Normalize": transform.Normalize(),
}

# After these there is nothing left for them to do.
ONCE = ("ToNonDataflow", "DeadCodeElimination", "Normalize")


class Program:
    """A random module: copies, tuples, blocks, branches, local and private functions."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.count = 0
        self.lines: list[str] = []

    def text(self) -> str:
        for name in ("f", "g"):
            self.lines += ["@R.function(private=True)"]
            pair = f"t: R.Tuple({INFO}, {INFO}), x: {INFO}, unused: {INFO}"
            self.lines += [f"def {name}({pair}) -> R.Tuple({INFO}, {INFO}):", "    a = t[0]"]
            values = self.body(["a", "x"], 1, 3, calls=())
            self.lines += [f"    return ({values[-1]}, {values[0]})", ""]
        self.lines += ["@R.function", f'def main(x: {INFO}, y: {INFO}, c: R.Tensor((), "bool")):']
        values = self.body(["x", "y"], 1, 8, calls=("f", "g"))
        self.lines.append(f"    return ({values[-1]}, {self.draw.choice(values)})")
        return "\n".join(self.lines)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def simple(self, values: list[str], depth: int) -> str:
        """One binding of a value."""
        draw, name = self.draw, self.fresh()
        a, b = draw.choice(values), draw.choice(values)
        kind = draw.randrange(6)
        if kind == 0:
            self.line(depth, f"{name} = {a}")
        elif kind == 1:
            self.line(depth, f"{name}_t = ({a}, {b})")
            self.line(depth, f"{name} = {name}_t[{draw.randrange(2)}]")
        elif kind == 2:
            self.line(depth, f'{name} = R.const([1.0, 2.0, {draw.randrange(3)}.0], "float32")')
        elif kind == 3:
            self.line(depth, f"{name} = R.{draw.choice(UNARY)}({a})")
        else:
            self.line(depth, f"{name} = R.{draw.choice(BINARY)}({a}, {b})")
        return name

    def body(self, values: list[str], depth: int, steps: int, calls: tuple[str, ...]) -> list[str]:
        """Bindings of some values, all that are visible afterwards."""
        values, draw = [*values], self.draw
        for _ in range(steps):
            kind = draw.randrange(6)
            if kind == 0 and depth < 3 and calls:
                name = self.fresh()
                self.line(depth, "if c:")
                for branch in range(2):
                    if branch:
                        self.line(depth, "else:")
                    inner = self.body(values, depth + 1, 2, calls)
                    self.line(depth + 1, f"{name} = R.exp({inner[-1]})")
                values.append(name)
            elif kind == 1:
                self.line(depth, "with R.dataflow():")
                inside = [*values]
                made = [self.simple(inside, depth + 1) for _ in range(1)]
                for _ in range(3):
                    made.append(self.simple([*inside, *made], depth + 1))
                outputs = sorted(set(draw.sample(made, 2)), key=made.index)
                self.line(depth + 1, f"R.output({', '.join(outputs)})")
                values += outputs
            elif kind == 2 and depth == 1 and calls:
                name = self.fresh()
                self.line(depth, "@R.function")
                self.line(depth, f"def {name}_f(z: {INFO}) -> {INFO}:")
                inner = self.body([*values, "z"], depth + 1, 2, ())
                self.line(depth + 1, f"return {inner[-1]}")
                self.line(depth, f"{name} = {name}_f({draw.choice(values)})")
                values.append(name)
            elif kind == 3 and calls:
                name = self.fresh()
                a, b, d = (draw.choice(values) for _ in range(3))
                self.line(depth, f"{name}_r = M.{draw.choice(calls)}(({a}, {b}), {d}, {a})")
                self.line(depth, f"{name} = {name}_r[{draw.randrange(2)}]")
                values.append(name)
            else:
                values.append(self.simple(values, depth))
        return values


def ran(mod: IRModule) -> list[np.ndarray]:
    """What ``main`` gives for both values of its condition."""
    machine = rx.VirtualMachine(rx.build(mod, relax_pipeline="zero"))
    x = np.array([0.5, -1.0, 0.25], "float32")
    found: list[np.ndarray] = []
    for c in (True, False):
        found += [np.asarray(v) for v in machine["main"](x, x * x, np.array(c))]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_values_stay(seed: int) -> None:
    before = module(Program(seed).text())
    expected = ran(before)
    mod = before
    for name, given in PASSES.items():
        with CHECKED:
            alone = given(before)
            mod = given(mod)
        if name in ONCE:
            assert given(alone) is alone
        for new in (alone,) if seed % 2 else (mod,):
            for a, b in zip(ran(new), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6, err_msg=name)

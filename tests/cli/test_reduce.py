"""``relax2xla reduce``: small, well-formed, and with the fault that the command looks for."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.cli.proof.shrink import cost, shrunk
from relax2xla.ir import Call, IRModule, Op
from relax2xla.ir.check import check_well_formed
from relax2xla.ir.rewrite import post_order_deep
from tests.cli.conftest import ROOT, Cli

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="commands of a POSIX shell")

PROGRAM = """
from relax2xla.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function(private=True)
    def helper(a: R.Tensor(("n", 4)), b: R.Tensor(("n", 4))) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            c = R.exp(R.add(a, a))
            d = R.tanh(c)
            R.output(d)
        return d

    @R.function
    def other(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        return R.floor(x)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), u: R.Tensor((), "bool")):
        cls = Module
        with R.dataflow():
            y = R.nn.relu(R.nn.softmax(R.multiply(x, R.const(2.0, "float32"))))
            k = R.argmax(y, axis=1)
            y2 = R.sin(y)
            y3 = R.add(y2, y)
            h = cls.helper(R.cos(y3), y)
            R.output(y3, h, k)
        if u:
            q = R.sqrt(h)
            w = R.add(q, q)
        else:
            w = R.add(h, y3)
        return (R.nn.gelu(w), y3, k)
"""


def module() -> IRModule:
    made = rx.script.from_source(PROGRAM)
    assert isinstance(made, IRModule)
    return made


def operators(mod: IRModule) -> list[str]:
    nodes = (n for f in mod.relax_functions().values() for n in post_order_deep(f))
    ops = [n.op for n in nodes if isinstance(n, Call)]
    return [o.name.removeprefix("relax.") if isinstance(o, Op) else "call" for o in ops]


@pytest.mark.parametrize("wanted", ["sin", "tanh", "sqrt", "argmax", "floor", "nn.gelu"])
def test_one_operator_is_left(wanted: str) -> None:
    """Wherever it stands: in a private function, in a branch, in another function, at the end."""

    def interesting(mod: IRModule) -> bool:
        check_well_formed(mod)
        assert cost(mod) < last[0]
        if wanted not in operators(mod):
            return False
        last[0] = cost(mod)
        return True

    last = [cost(module())]
    found = shrunk(module(), interesting)
    assert operators(found) == [wanted]
    ((_, func),) = found.relax_functions().items()
    assert len(func.params) == 1


def test_what_belongs_together_stays_together() -> None:
    def interesting(mod: IRModule) -> bool:
        found = operators(mod)
        return "argmax" in found and "tanh" in found

    found = shrunk(module(), interesting)
    assert sorted(operators(found)) == ["argmax", "tanh"]
    assert len(found.functions) == 1


def test_weights_become_inputs(cli: Cli, tmp_path: Path) -> None:
    from relax2xla import op
    from relax2xla.builder import BlockBuilder
    from relax2xla.ir import TensorStructInfo, Var, const

    bb, x = BlockBuilder(), Var("x", TensorStructInfo((3, 64)))
    with bb.function("main", [x]):
        y = bb.emit(op.matmul(op.nn.relu(x), const(np.ones((64, 8), np.float32))))
        bb.emit_func_output(bb.emit(op.nn.softmax(y)))
    file, out = tmp_path / "model.mlir", tmp_path / "small.mlir"
    rx.save(bb.get(), file)
    words = ("reduce", file, "-o", out, "--check", "grep -q dot_general {}")
    done = cli(*words, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["complete"]
    assert (found["before"]["constants"] >= 64 * 8 * 4, found["after"]["constants"]) == (True, 0)
    assert re.findall(r"stablehlo\.(\w+)", out.read_text()) == ["dot_general"]
    assert cli("run", out).code == 0
    table = cli(*words).out
    assert "functions and bindings" in table


def test_wrong_commands(cli: Cli, models: Callable[[str], Path], tmp_path: Path) -> None:
    file, out = models("relax"), tmp_path / "out.relax"
    for words, message in (
        (["--check", "true"], "write {} where"),
        (["--check", "echo oops {}; exit 3"], "status 3: oops"),
        (["--check", "sleep 20; : {}", "--timeout", "0.2"], "took too long"),
    ):
        done = cli("reduce", file, "-o", out, *words)
        assert (done.code, message in done.err, done.out) == (2, True, "")
    assert not out.exists()
    done = cli("reduce", file, "-o", file, "--check", "true {}")
    assert (done.code, "is the file that is read" in done.err) == (2, True)


def test_an_interruption_keeps_the_smallest_so_far(tmp_path: Path) -> None:
    (tmp_path / "model.relax").write_text(PROGRAM)
    # The command waits once there is no floor any more: then the signal comes.
    check = "grep -q R.sin {} && { grep -q R.floor {} || { echo > waits; sleep 60; }; }"
    words = [sys.executable, "-m", "relax2xla", "reduce", "model.relax", "--check", check]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        subprocess.Popen(
            ["sh", "-c", "while ! [ -e waits ]; do sleep 0.1; done"], cwd=tmp_path
        ) as waiting,
        subprocess.Popen(
            words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env
        ) as process,
    ):
        waiting.wait(timeout=60)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"the smallest so far" in said
    text = (tmp_path / "model.reduced.relax").read_text()
    assert "R.sin" in text
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "model.reduced.relax", "model.relax", "waits"
    ]  # fmt: skip

"""What kernels become, as executables and ``inspect`` say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import relax2xla as rx
from relax2xla.script import from_source

SCRIPT = """
from relax2xla.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func
    def product(
        A: T.Buffer((16, 8), "float32"), B: T.Buffer((8, 4), "float32"),
        C: T.Buffer((16, 4), "float32"),
    ):
        for i, j, k in T.grid(16, 4, 8):
            with T.block("c"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] += A[vi, vk] * B[vk, vj]

    @T.prim_func
    def twice(A: T.Buffer((16, 4), "float32"), C: T.Buffer((16, 4), "float32")):
        for i, j in T.grid(16, 4):
            C[i, j] = A[i, j] * T.float32(2)

    @T.prim_func
    def leak(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4))
        C = T.match_buffer(c, (n, 4))
        for j in range(4):
            C[0, j] = A[0, j]
        for t, j in T.grid(n - 1, 4):
            C[t + 1, j] = C[t, j] * T.float32(0.5) + A[t + 1, j]

    @R.function
    def main(
        x: R.Tensor((16, 8), "float32"), y: R.Tensor((8, 4), "float32"),
        z: R.Tensor(("n", 4), "float32"),
    ):
        n = T.int64()
        cls = Module
        a = R.call_tir(cls.product, (x, y), out_sinfo=R.Tensor((16, 4), "float32"))
        b = R.call_tir(cls.twice, (a,), out_sinfo=R.Tensor((16, 4), "float32"))
        c = R.call_tir(cls.leak, (z,), out_sinfo=R.Tensor((n, 4), "float32"))
        return b, c
"""
LINES = [
    "kernel product: dot_general",
    "kernel twice: element by element",
    "kernel leak at n = 32: dynamic_update_slice, 31-step while",
    "  warning: the loop t of leak (line 30) runs step by step: "
    "C is written where another step of the loop reads or writes",
]


def test_an_executable_says_what_its_kernels_became() -> None:
    executable = rx.build(from_source(SCRIPT))
    assert [line for k in executable.kernels() for line in k.lines()] == LINES
    assert executable.stats().splitlines()[-4:] == LINES


def test_inspect_warns_of_loops_that_stay(tmp_path: Path, capsys: Any) -> None:
    from relax2xla.cli.commands.inspect import run_inspect

    file = tmp_path / "kernels.relax"
    file.write_text(SCRIPT)
    run_inspect(file, as_json=True, text=False, trust=False, shape=())
    kernels = json.loads(capsys.readouterr().out)["runs"]["kernels"]
    assert [k["name"] for k in kernels] == ["product", "twice", "leak"]
    assert kernels[2]["loops"][0]["steps"] == 31


def test_a_kernel_that_cannot_be_lowered_is_named() -> None:
    mod = from_source(SCRIPT.replace("A[i, j] * T.float32(2)", "A[i + 1, j] * T.float32(2)"))
    line = rx.build(mod).kernels()[1].lines()[0]
    assert "kernel twice: twice, line 21: the index `i + T.int32(1)` of A runs from 1 to 16" in line

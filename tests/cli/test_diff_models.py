"""``diff`` of models by what they mean: names and types, weights, structure, results."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relax2xla.cli.commands import diff as home

from .conftest import Cli

PROGRAM = """
func.func @main(%x: tensor<2x3xf32> {{jax.arg_info = "x"}},
                %y: tensor<3xf32> {{jax.arg_info = "y"}})
    -> (tensor<2x2xf32> {{jax.result_info = "z"}}) {{
  %w = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, {last}]]> : tensor<3x2xf32> loc("w")
  %b = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
  %s = stablehlo.{op} %x, %b : tensor<2x3xf32>
  %z = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0]
    : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
  return %z : tensor<2x2xf32>
}}
"""
SWAPPED = """
from relax2xla.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(
        y: R.Tensor((3,), "float32"), x: R.Tensor((2, 3), "float32")
    ) -> R.Tensor((2, 2), "float32"):
        R.func_attr({"num_input": 2})
        with R.dataflow():
            w = R.const([[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]], "float32")  #: w
            z = R.matmul(R.add(y, x), R.permute_dims(w))
            R.output(z)
        return z
"""


def write(path: Path, **parts: Any) -> Path:
    path.write_text(PROGRAM.format(**{"op": "add", "last": 6.0, **parts}))
    return path


def test_models_of_one_format(cli: Cli, tmp_path: Path) -> None:
    a = write(tmp_path / "a.mlir")
    near = write(tmp_path / "near.mlir", last=6.001)
    far = write(tmp_path / "far.mlir", last=7.5)
    other = write(tmp_path / "other.mlir", op="multiply")
    assert cli("diff", a, near).code == 1  # as they are
    done = cli("diff", a, near, "--as", "model")
    assert done.code == 0, done.out
    assert "1 of 1 weights are the same" in done.out
    assert "are the same model" in done.out
    assert cli("diff", a, near, "--as", "model", "--rtol", "1e-6", "--atol", "1e-6").code == 1
    done = cli("diff", a, far, "--as", "model")
    assert (done.code, "max abs 1.50e+00, max rel 2.00e-01, differs" in done.out) == (1, True)
    assert "the same structure" in done.out
    found = json.loads(cli("diff", a, other, "--as", "model", "--json").out)
    assert found["operators"] == {"add": [1, 0], "multiply": [0, 1]}
    assert "different operators at main.body" in found["structure"]
    assert [p["fits"] for p in (*found["inputs"], *found["outputs"])] == [True] * 3
    assert (found["equal"], found["values"]) == (False, None)


SQUARE = """
func.func @main(%x: tensor<2x2xf32> {{jax.arg_info = "x"}}) -> tensor<2x2xf32> {{
  %v = stablehlo.constant dense<{v}> : tensor<2x2xf32> loc("{name}")
  %y = stablehlo.dot_general %x, %v, contracting_dims = [1] x [{side}]
    : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %w = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32> loc("w")
  %z = stablehlo.dot_general %y, {last}, contracting_dims = [1] x [0]
    : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return %z : tensor<2x2xf32>
}}
"""


def test_square_weights_that_are_transposed_or_shared(cli: Cli, tmp_path: Path) -> None:
    def program(name: str, v: str, side: int, last: str) -> Path:
        path = tmp_path / f"{name}.mlir"
        path.write_text(SQUARE.format(name=name, v=v, side=side, last=last))
        return path

    straight, turned = "[[5.0, 6.0], [7.0, 8.0]]", "[[5.0, 7.0], [6.0, 8.0]]"
    a, b = program("a", straight, 0, "%w"), program("b", turned, 1, "%w")
    done = cli("diff", a, b, "--as", "model")
    assert (done.code, "2 of 2 weights are the same" in done.out) == (1, True), done.out
    # By the same operators a transposed matrix is another one.
    done = cli("diff", a, program("c", turned, 0, "%w"), "--as", "model")
    assert done.code == 1
    assert "1 of 2 weights are the same" in done.out
    assert "transposed" in done.out
    assert "the same structure" in done.out
    two = program("v", "[[1.0, 2.0], [3.0, 4.0]]", 0, "%w")
    one = tmp_path / "one.mlir"
    one.write_text(two.read_text().replace("%y, %w", "%y, %v"))
    for pair in ((one, two), (two, one)):
        found = json.loads(cli("diff", *pair, "--as", "model", "--json").out)
        assert [p["fits"] for p in found["weights"]] == [True, True], found


def test_results_decide(cli: Cli, tmp_path: Path) -> None:
    """Another order of the inputs and another program, and the same values."""
    a, b = write(tmp_path / "a.mlir"), tmp_path / "b.relax"
    b.write_text(SWAPPED)
    done = cli("diff", a, b)
    assert done.code == 1
    assert "2 of 2 inputs are the same" in done.out
    done = cli("diff", a, b, "--values")
    assert done.code == 0, done.out + done.err
    assert "give the same results" in done.out
    done = cli("diff", write(tmp_path / "c.mlir", op="subtract"), b, "--values", "--json")
    found = json.loads(done.out)
    assert (done.code, found["equal"]) == (1, False)
    assert [(r["name"], r["fits"]) for r in found["values"]] == [("z", False)]
    x = tmp_path / "in.npz"
    np.savez(x, x=np.zeros((2, 3), np.float32), y=np.zeros(3, np.float32))
    done = cli("diff", tmp_path / "c.mlir", b, "--values", "--inputs", x)
    assert done.code == 0, done.out


def test_signatures(cli: Cli, tmp_path: Path) -> None:
    a = write(tmp_path / "a.mlir")
    b = tmp_path / "b.mlir"
    text = a.read_text()
    b.write_text(text.replace('result_info = "z"', 'result_info = "scores"'))
    done = cli("diff", a, b, "--as", "model")
    assert (done.code, "another name" in done.out) == (1, True)
    b.write_text(text.replace(' {jax.result_info = "z"}', ""))
    assert cli("diff", a, b, "--as", "model").code == 0
    b.write_text(text.replace("2x3xf32", "4x3xf32").replace("2x2xf32", "4x2xf32"))
    done = cli("diff", a, b, "--as", "model", "--values")
    assert (done.code, "another type" in done.out) == (1, True)


def test_sizes_have_other_names(cli: Cli, tmp_path: Path) -> None:
    from .conftest import RELAX

    a, b = tmp_path / "a.relax", tmp_path / "b.relax"
    a.write_text(RELAX)
    b.write_text(RELAX.replace('"n"', '"rows"'))
    assert cli("diff", a, b, "--as", "model").code == 0
    done = cli("diff", a, b, "--values", "--shape", "n=3")
    assert done.code == 0, done.out + done.err
    static = tmp_path / "static.mlir"
    assert cli("convert", a, "-o", static, "--shape", "n=3").code == 0
    assert cli("diff", b, static, "--shape", "rows=3").code == 0
    assert cli("diff", b, static).code == 1


def test_words_that_cannot_be(cli: Cli, tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.mlir"), tmp_path / "b.mlir"
    text = "func.func @{}(%a: tensor<f32>) -> tensor<f32> {{ return %a : tensor<f32> }}\n"
    b.write_text(text.format("one") + text.format("two"))
    for words, message in (
        ((a, a, "--values", "--as", "relax"), "--values goes with --as model"),
        ((a, b, "--as", "model"), "by their function main, which one of the files has not"),
    ):
        done = cli("diff", *words)
        assert (done.code, message in done.err) == (2, True), done.err


@pytest.mark.parametrize("width", [80, 140])
def test_on_a_terminal(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relax2xla.importers.files import load

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    files = write(tmp_path / "a.mlir"), write(tmp_path / "b.mlir", op="subtract")
    found = home.difference(load(files[0]), load(files[1]), files)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    lines = home._words(found).splitlines()
    beside = [line for line in lines if "stablehlo.add" in line and "stablehlo.subtract" in line]
    assert len(beside) == (width == 140)
    assert any(line.startswith("\x1b[31m") for line in lines)
    assert any("\x1b[32m" in line for line in lines)

"""``diff``: the first difference by path, binding and place in the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import RELAX, Cli

PROGRAM = """func.func @main(%a: tensor<2x3xf32>, %b: tensor<f32>) -> tensor<2xf32> {
  %0 = stablehlo.tanh %a : tensor<2x3xf32> loc("activation")
  %1 = stablehlo.reduce(%0 init: %b) applies stablehlo.add across dimensions = [1]
    : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return make


Write = Callable[[str, str], Path]


def test_the_same_program(cli: Cli, write: Write) -> None:
    a = write("a.mlir", PROGRAM)
    b = write("b.mlir", PROGRAM.replace("%0", "%hidden").replace("activation", "other"))
    done = cli("diff", a, b)
    assert (done.code, done.out) == (0, f"{a} and {b} are the same program\n")
    assert json.loads(cli("diff", a, b, "--json").out) == {"equal": True}


def test_the_first_difference(cli: Cli, write: Write) -> None:
    a = write("a.mlir", PROGRAM)
    b = write("b.mlir", PROGRAM.replace("stablehlo.tanh", "stablehlo.sine"))
    done = cli("diff", a, b)
    assert done.code == 1
    assert "different operators at main.body.blocks[0].bindings[0].value.op" in done.out
    assert done.out.count("in the binding v0, activation") == 2
    assert "relax.stablehlo.tanh" in done.out
    assert "relax.stablehlo.sine" in done.out


@pytest.mark.parametrize(
    ("old", "new", "binding", "line"),
    [
        ("applies stablehlo.add", "applies stablehlo.maximum", "the binding", 3),
        ("2x3xf32", "2x4xf32", "the parameter arg0", 1),
    ],
)
def test_the_place_is_named(
    old: str, new: str, binding: str, line: int, cli: Cli, write: Write
) -> None:
    a, b = write("a.mlir", PROGRAM), write("b.mlir", PROGRAM.replace(old, new))
    found = json.loads(cli("diff", a, b, "--json").out)
    assert not found["equal"]
    for side, path in zip(found["sides"], (a, b), strict=True):
        assert side["file"] == str(path)
        assert side["binding"].startswith(binding)
        assert side["source"].startswith(f"{path}:{line}:")


def test_other_functions(cli: Cli, write: Write) -> None:
    helper = "func.func private @helper(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }"
    a, b = write("a.mlir", PROGRAM), write("b.mlir", PROGRAM + helper)
    done = cli("diff", a, b)
    assert done.code == 1
    assert "different functions" in done.out
    assert "helper" in done.out


def test_formats_are_compared_at_one_level(cli: Cli, write: Write, tmp_path: Path) -> None:
    relax = write("a.relax", RELAX)
    rows, size = tmp_path / "a.mlir", ("--shape", "n=3")
    assert cli("convert", relax, "-o", rows, *size).code == 0
    static = tmp_path / "static.relax"
    assert cli("convert", relax, "-o", static, "--to", "relax", *size).code == 0
    assert cli("diff", static, rows).code == 1
    assert cli("diff", static, static).code == 0
    lowered = tmp_path / "lowered.relax"
    assert cli("convert", rows, "-o", lowered).code == 0
    assert cli("diff", lowered, rows, "--as", "stablehlo").code == 0


def test_errors(cli: Cli, write: Write, tmp_path: Path) -> None:
    done = cli("diff", write("a.mlir", PROGRAM), tmp_path / "b.mlir")
    assert done.code == 2
    assert "there is no such file" in done.err

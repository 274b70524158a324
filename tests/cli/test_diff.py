"""``diff``: the first difference by path, binding and place in the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import OPTIONS, RELAX, Cli

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
    assert cli("diff", static, rows, "--as", "as-is").code == 1
    assert cli("diff", static, rows).code == 0
    assert cli("diff", static, static).code == 0
    lowered = tmp_path / "lowered.relax"
    assert cli("convert", rows, "-o", lowered).code == 0
    assert cli("diff", lowered, rows, "--as", "stablehlo").code == 0


@pytest.mark.parametrize("level", ["stablehlo", "relax"])
@pytest.mark.parametrize("kind", ["onnx", "pt2", "mlir", "relax"])
def test_a_model_and_its_own_conversions(
    kind: str, level: str, models: Callable[[str], Path], cli: Cli, tmp_path: Path
) -> None:
    file, sizes = models(kind), OPTIONS[kind]
    for name in ("own.mlir", "own.mlirbc", "own.relax"):
        assert cli("convert", file, "-o", tmp_path / name, *sizes).code == 0
        options = ["--as", level, "--trust", *(s for s in sizes if s != "--trust")]
        done = cli("diff", file, tmp_path / name, *options)
        assert done.code == 0, done.out + done.err


def test_one_network_by_two_roads(cli: Cli, tmp_path: Path) -> None:
    torch, onnx = pytest.importorskip("torch"), pytest.importorskip("onnx")
    layer = torch.nn.Linear(4, 3)
    weight, bias = (p.detach().numpy() for p in (layer.weight, layer.bias))
    h, shape = onnx.helper, {"x": [2, 4], "y": [2, 3]}
    x, y = (h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shape.items())
    node = h.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    arrays = [onnx.numpy_helper.from_array(a, n) for a, n in ((weight, "w"), (bias, "b"))]
    graph = h.make_graph([node], "g", [x], [y], arrays)
    opsets = [h.make_opsetid("", 17)]
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "a.onnx")
    torch.export.save(torch.export.export(layer, (torch.ones(2, 4),)), tmp_path / "a.pt2")
    words = (tmp_path / "a.onnx", tmp_path / "a.pt2", "--trust")
    assert cli("diff", *words, "--as", "relax").code == 0
    done = cli("diff", *words, "--as", "as-is")
    assert (done.code, "num_input" in done.out) == (1, True)
    # As models all but a name is the same.
    done = cli("diff", *words)
    assert (done.code, "another name" in done.out) == (1, True)
    for line in ("0 of 1 inputs", "1 of 1 outputs", "2 of 2 weights"):
        assert f"{line} are the same" in done.out


def test_attributes_of_frameworks(cli: Cli, write: Write) -> None:
    a = write("a.mlir", PROGRAM)
    named = PROGRAM.replace("-> tensor<2xf32> {", '-> (tensor<2xf32> {jax.result_info = "y"}) {')
    b = write("b.mlir", named)
    assert cli("diff", a, b).code == 1
    assert cli("diff", a, b, "--as", "stablehlo").code == 0


def test_what_stablehlo_cannot_hold(cli: Cli, write: Write) -> None:
    text = RELAX.replace("R.nn.softmax(", 'R.call_pure_packed("host", ').replace(
        '2.0, "float32")))', '2.0, "float32")), sinfo_args=R.Tensor(("n", 4), "float32"))'
    )
    a, b = write("a.relax", text), write("b.relax", text.replace("2.0", "3.0"))
    assert cli("diff", a, a, "--as", "relax").code == 0
    done = cli("diff", a, b, "--as", "relax")
    assert (done.code, "different constants" in done.out) == (1, True), done.out + done.err
    done = cli("diff", a, b, "--as", "stablehlo")
    assert (done.code, "has no lowering to StableHLO" in done.err) == (2, True)


def test_errors(cli: Cli, write: Write, tmp_path: Path) -> None:
    a = write("a.mlir", PROGRAM)
    done = cli("diff", a, tmp_path / "b.mlir")
    assert done.code == 2
    assert "there is no such file" in done.err
    done = cli("diff", a, a, "--shape", "m=3")
    assert (done.code, "neither program has such an input" in done.err) == (2, True)

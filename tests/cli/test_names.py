"""Names of inputs, outputs, weights, dimensions and layers survive every file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.cli.reading.model import load_model
from relax2xla.importers.files import save
from relax2xla.ir import Constant, Function, IRModule, Span, TensorStructInfo, Var
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.source_names import (
    full_names,
    identifier,
    module_of,
    names_of,
    result_info,
    result_names,
    source_name,
)
from relax2xla.runtime import load_module
from relax2xla.stablehlo import to_stablehlo

from .conftest import Cli, weights

# Inputs whose names are no identifiers, are equal as such, or are taken in texts.
ODD = ("a/b", "a.b", "1st", "class", "R", "metadata", "été")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that are no identifiers or that texts use, one that is the name of a dimension, and two
    outputs; a node that torch.onnx.export wrote.
    """
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        h.make_node("MatMul", ["in.x", "layer.w"], ["y"], name="encoder/0/matmul"),
        h.make_node("Add", ["y", "n"], ["result['sum']"], name="encoder/0/add"),
        h.make_node("Relu", ["y"], ["file"], name="relu"),
    ]
    scopes = nodes[0].metadata_props.add()
    scopes.key, scopes.value = "pkg.torch.onnx.name_scopes", "['', 'encoder.0', 'matmul']"
    inputs = [
        h.make_tensor_value_info("long", t, ["T", "R"]),
        h.make_tensor_value_info("in.x", t, ["n", 4]),
        h.make_tensor_value_info("n", t, ["n", 3]),
        *(h.make_tensor_value_info(name, t, ["n"]) for name in ODD),
    ]
    outputs = [h.make_tensor_value_info(n, t, ["n", 3]) for n in ("result['sum']", "file")]
    given = [onnx.numpy_helper.from_array(weights(), "layer.w")]
    graph = h.make_graph(nodes, "graph", inputs, outputs, given)
    path = tmp_path_factory.mktemp("named") / "m.onnx"
    onnx.save(h.make_model(graph, ir_version=9, opset_imports=[h.make_opsetid("", 17)]), path)
    return path


def told(mod: IRModule) -> dict[str, Any]:
    """All names of ``mod``."""
    main = mod["main"]
    nodes = list(post_order_deep(main))
    spans = [b.span for block in main.body.blocks for b in block.bindings if b.span]
    return {
        "inputs": [source_name(p) or p.name_hint for p in main.params],
        "dims": [", ".join(map(str, p.struct_info.dims)) for p in main.params],  # type: ignore[union-attr,arg-type]
        "results": list(result_names(main)),
        "weights": {
            n for e in nodes if isinstance(e, Constant) and e.data.ndim for n in names_of(e.span)
        },
        "layers": {s.name for s in spans},
        "modules": {module_of(s) for s in spans} - {""},
    }


@pytest.mark.parametrize(
    "forms", ["mlir", "mlirbc", "relax", "relax mlir relax", "mlirbc relax mlir"]
)
def test_names_survive(forms: str, model: Path, tmp_path: Path) -> None:
    mod = load_model(model, False, {})
    wanted = told(mod)
    assert wanted["inputs"] == ["long", "in.x", "n", *ODD]
    assert wanted["dims"][0] == "T, R"
    assert wanted["modules"] == {"encoder.0"}
    assert wanted["results"] == ["result['sum']", "file"]
    for i, form in enumerate(forms.split()):
        path = tmp_path / f"{i}.{form}"
        save(mod, path)
        mod = load_model(path, False, {})
    found = told(mod)
    assert found["inputs"] == wanted["inputs"]
    assert found["dims"] == wanted["dims"]
    assert found["results"] == wanted["results"]
    assert "layer.w" in found["weights"]
    assert found["modules"] == wanted["modules"]
    assert {"encoder/0/matmul", "encoder/0/add", "relu"} <= found["layers"]


def test_a_run_takes_and_gives_names(model: Path, cli: Cli, tmp_path: Path) -> None:
    x, n = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)
    odd = ["a/b", "a_b_1", "input_1st", "class", "R", "metadata", "été"]
    np.savez(tmp_path / "in.npz", **{"long": x, "in.x": x, "n": n, **dict.fromkeys(odd, n[:, 0])})
    other = {"layer.w": np.full((4, 3), 2, np.float32)}
    np.savez(tmp_path / "w.npz", **other)
    assert cli("convert", model, "-o", tmp_path / "m.mlir").code == 0
    assert cli("compile", model, "-o", tmp_path / "m.r2x", "--raw-weights").code == 0
    for name in ("m.mlir", "m.r2x"):
        words = ("-i", tmp_path / "in.npz", "--weights", tmp_path / "w.npz")
        done = cli("run", tmp_path / name, *words, "-o", tmp_path / "out.npz")
        assert done.code == 0, done.err
        with np.load(tmp_path / "out.npz") as found:
            assert sorted(found.files) == ["file", "result['sum']"]
            np.testing.assert_allclose(found["file"], x @ other["layer.w"])
    saved = load_module(tmp_path / "m.r2x")
    assert [source_name(p) or p.name_hint for p in saved.params("main")] == [
        "long",
        "in.x",
        "n",
        *ODD,
    ]


def test_identifiers_follow_one_rule() -> None:
    for name, made in {
        "x": "x", "_x": "_x", "a/b": "a_b", "onnx::MatMul_1": "onnx_MatMul_1", "1": "input_1",
        "params['w'][0]": "params_w_0", "class": "input_class", "": "input", "été": "t",
    }.items():  # fmt: skip
        assert identifier(name) == made
        assert identifier(name, {made, f"{made}_1"}) == f"{made}_2"
    assert identifier("2*n", prefix="dim") == "dim_2_n"


def test_sizes_by_either_name(cli: Cli, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto.FLOAT
    infos = [h.make_tensor_value_info(name, t, ["batch-size"]) for name in ("x", "y")]
    graph = h.make_graph([h.make_node("Relu", ["x"], ["y"])], "graph", infos[:1], infos[1:])
    path = tmp_path / "m.onnx"
    onnx.save(h.make_model(graph, ir_version=9, opset_imports=[h.make_opsetid("", 17)]), path)
    for name in ("batch-size", "batch_size"):
        assert cli("convert", path, "--shape", f"{name}=3", "-o", tmp_path / "m.mlir").code == 0
        assert "tensor<3xf32>" in (tmp_path / "m.mlir").read_text()


def test_weights_that_change_nothing_are_written() -> None:
    """A trained one may take their place; what no one has named is left out."""
    given = {"w": np.ones(4, np.float32), "b": np.zeros(4, np.float32)}
    x = Var("x", TensorStructInfo((2, 4), "float32"))
    for named, count in ((True, 1), (False, 0)):
        held = [Constant(a, span=Span(n) if named else None) for n, a in given.items()]
        call = rx.op.nn.layer_norm(x, *held, axes=[-1])
        text = to_stablehlo(rx.transform.LegalizeOps()(IRModule.from_expr(Function([x], call))))
        assert str(text).count("dense<1.000000e+00> : tensor<4xf32>") == count
        assert str(text).count("dense<0.000000e+00> : tensor<4xf32>") == count


@pytest.mark.parametrize("sizes", ["?", "2"])
def test_a_weight_of_one_number_can_be_replaced(sizes: str, cli: Cli, tmp_path: Path) -> None:
    """A norm's before training, also where sizes are given; what a layer fills in is no weight."""
    (tmp_path / "m.mlir").write_text(NORM.replace("N", sizes))
    w = np.float32([1, 2, 3])
    np.savez(tmp_path / "w.npz", **{"norm.weight": w})
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    words = ("-i", tmp_path / "x.npy", "--weights", tmp_path / "w.npz", "-o", tmp_path / "y.npy")
    shape = () if sizes == "2" else ("--shape", "n=2")
    done = cli("run", tmp_path / "m.mlir", *words, *shape)
    assert "weights: 1 of 1 from w.npz\n" in done.err
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.tile(w + 0.5, (2, 1)))
    if shape:
        assert "no such input" in cli("run", tmp_path / "m.mlir", *words, "--shape", "m=2").err


NORM = """module {
  func.func @main(%arg0: tensor<Nx3xf32> {relax2xla.shape = "n, 3"}) -> tensor<Nx3xf32> {
    %w = stablehlo.constant dense<1.0> : tensor<3xf32> loc("norm.weight")
    %b = stablehlo.constant dense<0.5> : tensor<3xf32> loc("norm")
    %n = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<Nx3xf32>) -> tensor<i32>
    %r = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %c = stablehlo.constant dense<3> : tensor<1xi32>
    %s = stablehlo.concatenate %r, %c, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %0 = stablehlo.dynamic_broadcast_in_dim %w, %s, dims = [1] \
: (tensor<3xf32>, tensor<2xi32>) -> tensor<Nx3xf32>
    %1 = stablehlo.dynamic_broadcast_in_dim %b, %s, dims = [1] \
: (tensor<3xf32>, tensor<2xi32>) -> tensor<Nx3xf32>
    %2 = stablehlo.multiply %arg0, %0 : tensor<Nx3xf32> loc("norm")
    %3 = stablehlo.add %2, %1 : tensor<Nx3xf32> loc("norm")
    return %3 : tensor<Nx3xf32>
  }
}
"""


def test_what_a_model_and_a_file_of_weights_lack_is_told(
    model: Path, cli: Cli, tmp_path: Path
) -> None:
    names = ["layer.w", *(f"other.{i}" for i in range(11))]
    np.savez(tmp_path / "w.npz", **dict.fromkeys(names, weights()))
    done = cli("run", model, "--shape", "n=2", "--weights", tmp_path / "w.npz")
    assert "weights: 1 of 1 from w.npz" in done.err
    assert "not in the model: other.0, other.1," in done.err
    assert "other.9, ...\n" in done.err


def test_what_is_written_twice_is_the_same(model: Path, tmp_path: Path) -> None:
    for form in ("mlir", "relax"):
        first, second = tmp_path / f"a.{form}", tmp_path / f"b.{form}"
        save(load_model(model, False, {}), first)
        save(load_model(first, False, {}), second)
        assert first.read_text() == second.read_text()
        assert os.path.getsize(first) > 500


PROGRAM = """module {
  func.func @main(%arg0: tensor<2xf32> {tf_saved_model.index_path = ["a"]}, \
%arg1: tensor<2xf32> {jax.arg_info = "params['arg0']"}, %arg2: tensor<2xf32>) -> \
(tensor<2xf32> {jax.result_info = "result[0]['y']"}, tensor<2xf32>) {
    %0 = stablehlo.add %arg0, %arg1 : tensor<2xf32>
    return %0, %arg2 : tensor<2xf32>, tensor<2xf32>
  }
}
"""
TENSORFLOW = """module {
  func.func @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) -> tensor<2xf32> \
attributes {tf.entry_function = {inputs = "x:0,class", outputs = "Identity"}} {
    %0 = stablehlo.add %arg0, %arg1 : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""


def test_names_in_attributes() -> None:
    from relax2xla.importers.stablehlo import from_stablehlo

    for text, inputs, hints, results in (
        (PROGRAM, ["a", "params['arg0']", ""], ["a", "params_arg0", "arg2"], ["0.y", "output_1"]),
        (TENSORFLOW, ["x:0", "class"], ["x_0", "input_class"], ["Identity"]),
    ):
        mod = from_stablehlo(text, raise_ops=False)
        main = mod["main"]
        assert [source_name(p) for p in main.params] == inputs
        assert [p.name_hint for p in main.params] == hints
        assert full_names(result_names(main), len(results)) == results
        # Nothing is added to what was read.
        assert to_stablehlo(mod) == rx.to_stablehlo(from_stablehlo(text)) == text


def test_dimensions_are_told_by_attributes() -> None:
    from relax2xla.importers.stablehlo import from_stablehlo

    text = """module {
  func.func @main(%arg0: tensor<?x?xf32> {relax2xla.shape = "n, floordiv(n, 2)"}) \
-> tensor<?x?xf32> {
    return %arg0 : tensor<?x?xf32>
  }
}
"""
    mod = from_stablehlo(text, raise_ops=False)
    assert str(mod["main"].params[0].struct_info) == 'Tensor((n, n // 2), dtype="float32")'
    fixed = from_stablehlo(text, [((4, 2), "float32")], raise_ops=False)
    assert "relax2xla.shape" not in rx.to_stablehlo(fixed)
    for wrong in ("n", "n, m, k", "2*n, 3*k", "((", ",,"):
        odd = text.replace("n, floordiv(n, 2)", wrong)
        assert rx.to_stablehlo(from_stablehlo(odd, raise_ops=False)).count("?x?") == 3


@pytest.mark.parametrize(
    "name", ["y", "a.b", "result", "result['x']", "['q']", "result[0]", "ü'\""]
)
def test_names_of_results_are_their_own(name: str) -> None:
    text = result_info(name)
    row = {"jax.result_info": text}
    mod = IRModule({"main": rx.Function([], rx.Tuple([]), attrs={"res_attrs": [row]})})
    assert result_names(mod["main"]) == (name,)


def test_names_that_are_there_twice_or_not_at_all() -> None:
    assert full_names(("a", "", "a"), 4) == ["a", "output_1", "output_2", "output_3"]
    assert full_names(("a", "b"), 1) == ["output_0"]


def test_results_of_torch_have_their_keys(tmp_path: Path, cli: Cli) -> None:
    torch = pytest.importorskip("torch")
    from relax2xla.frontend.torch import from_exported_program

    class Network(torch.nn.Module):
        def forward(self, image: Any) -> Any:
            return {"logits": image + 1, "hidden": [image * 2, image.sum()]}

    batch = torch.export.Dim("batch")
    program = torch.export.export(
        Network(), (torch.ones(3, 2),), dynamic_shapes={"image": {0: batch}}
    )
    mod = from_exported_program(program)
    assert str(mod["main"].params[0].struct_info) == 'Tensor((batch, 2), dtype="float32")'
    assert result_names(mod["main"]) == ("logits", "hidden.0", "hidden.1")
    torch.export.save(program, tmp_path / "m.pt2")
    done = cli("run", tmp_path / "m.pt2", "--trust", "--shape", "image=3x2")
    assert done.code == 0, done.err
    assert "hidden.1" in done.out

"""What the command line does with ONNX models alone: support, plug-ins, taps, symbolic sizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Cli, shell
from tests.cli.test_view import data_of
from tests.installed import ROOT

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from relax2xla import op as R  # noqa: E402
from relax2xla.frontend.onnx import unregister_converter  # noqa: E402
from relax2xla.importers.onnx.engine import converters  # noqa: E402
from relax2xla.ir import const  # noqa: E402

PLUGIN = """
from relax2xla import op as R
from relax2xla.frontend.onnx import register_converter
from relax2xla.ir import const

@register_converter("Scale", domain="com.example")
def scale(ctx, X, *, factor=1.0):
    return R.multiply(X, const(factor, "float32"))
"""


def save(folder: Path, nodes: list[Any], dims: list[Any], domain: str = "") -> Path:
    """A model of ``nodes`` from ``x`` to ``y``, float32."""
    weights = [numpy_helper.from_array(np.array([1, 0], np.int64), "swap")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    opsets = [helper.make_opsetid("", 21), *[helper.make_opsetid(domain, 1)] * bool(domain)]
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


@pytest.fixture
def custom(tmp_path: Path) -> Generator[tuple[Path, Path]]:
    """A model with an operator of an own domain, and a plug-in that converts it."""
    nodes = [
        helper.make_node("Scale", ["x"], ["h"], domain="com.example", factor=3.0, name="triple"),
        helper.make_node("Neg", ["h"], ["y"]),
    ]
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    yield save(tmp_path, nodes, [2, 2], "com.example"), plugin
    if ("com.example", "Scale") in converters.CUSTOM:
        unregister_converter("Scale", domain="com.example")


# -- inspect --support -----------------------------------------------------------------------------
def test_support_of_a_model_that_lacks_nothing(tmp_path: Path, cli: Cli) -> None:
    file = save(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], ["n", 2])
    done = cli("inspect", file, "--support")
    assert done.code == 0, done.err
    assert "every operator and attribute is supported" in done.out


def test_support_names_each_gap_without_converting(tmp_path: Path, cli: Cli) -> None:
    nodes = [
        helper.make_node("Mystery", ["x"], ["a"], domain="com.example", name="m1"),
        helper.make_node("Mystery", ["a"], ["b"], domain="com.example", name="m2"),
        helper.make_node("Relu", ["b"], ["c"], name="r", slope=2.0),
        helper.make_node("Nothing", ["c"], ["y"], name="n"),
    ]
    file = save(tmp_path, nodes, [2], "com.example")
    done = cli("inspect", file, "--support")
    assert done.code == 1
    assert "com.example.Mystery x2: no converter (opset 1) (at m1, m2)" in done.out
    assert "hint: register a converter of your own" in done.out
    done = cli("inspect", file, "--support", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["complete"] is False
    assert found["opsets"] == {"": 21, "com.example": 1}
    assert [(g["op"], g["nodes"]) for g in found["gaps"]] == [
        ("com.example.Mystery", ["m1", "m2"]),
        ("Relu", ["r"]),
        ("Nothing", ["n"]),
    ]
    assert found["gaps"][1]["hint"] == "its schema has no attribute slope: take it out of the node"


def test_support_says_which_opset_has_an_operator(tmp_path: Path, cli: Cli) -> None:
    file = save(tmp_path, [helper.make_node("RMSNormalization", ["x", "x"], ["y"])], [2])
    done = cli("inspect", file, "--support")
    assert done.code == 1
    assert "convert_version(model, 23)" in done.out


@pytest.mark.parametrize("contents", [b"", b"\x08\x09", b"no model at all"])
def test_support_of_what_is_no_model(contents: bytes, tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(contents)
    done = cli("inspect", file, "--support")
    assert (done.code, done.out) == (2, "")
    assert str(file) in done.err
    file = tmp_path / "m.relax"
    file.write_text("x")
    assert "--support is for .onnx models" in cli("inspect", file, "--support").err


# -- --plugin --------------------------------------------------------------------------------------
def test_a_plugin_converts_operators_of_an_own_domain(
    custom: tuple[Path, Path], cli: Cli, tmp_path: Path
) -> None:
    file, plugin = custom
    done = cli("inspect", file, "--support")
    assert done.code == 1, done.out
    x, out = tmp_path / "x.npy", tmp_path / "out.npy"
    np.save(x, np.array([[1, 2], [3, 4]], np.float32))
    done = cli("run", file, "--plugin", plugin, "-i", x, "-o", out)
    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(out), np.array([[-3, -6], [-9, -12]]))
    assert cli("inspect", file, "--support", "--plugin", plugin).code == 0
    for words in (["convert", file, "-o", tmp_path / "m.mlir"], ["inspect", file]):
        done = cli(*words, "--plugin", plugin)
        assert done.code == 0, done.err
    assert "stablehlo.multiply" in (tmp_path / "m.mlir").read_text()


def test_there_is_nothing_to_compare_an_own_operator_with(
    custom: tuple[Path, Path], cli: Cli
) -> None:
    file, plugin = custom
    done = cli("verify", file, "--plugin", plugin)
    assert done.code == 2
    assert "there is nothing to compare with" in done.err
    assert "Traceback" not in done.err


def test_plugins_that_cannot_be_loaded(custom: tuple[Path, Path], cli: Cli) -> None:
    file, plugin = custom
    for name in (plugin.with_name("missing.py"), "no_such_module_of_mine"):
        done = cli("inspect", file, "--plugin", name)
        assert done.code == 2
        assert f"the plug-in {name} cannot be loaded" in done.err
    plugin.write_text("1 / 0")
    done = cli("inspect", file, "--plugin", plugin)
    assert done.code == 2
    assert f"the plug-in {plugin} fails: ZeroDivisionError" in done.err
    plugin.write_text(PLUGIN.replace("R.multiply", "R.no_such_operator"))
    done = cli("inspect", file, "--plugin", plugin)
    assert done.code == 2
    assert "'triple' (Scale) cannot be converted: the registered converter scale fails" in done.err


def test_installed_packages_register_by_their_entry_points(
    custom: tuple[Path, Path], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import EntryPoint

    file, plugin = custom
    monkeypatch.syspath_prepend(plugin.parent)
    points = [EntryPoint("mine", "mine", "relax2xla.onnx_converters")]
    monkeypatch.setattr(
        converters.importlib.metadata,
        "entry_points",
        lambda group: points if group == "relax2xla.onnx_converters" else [],
    )
    converters.load_entry_points.cache_clear()
    assert cli("inspect", file, "--support").code == 0
    points[:] = [EntryPoint("bad", "no_such_module_of_mine", "relax2xla.onnx_converters")]
    converters.load_entry_points.cache_clear()
    done = cli("inspect", file, "--support")
    assert done.code == 2
    assert "the entry point bad" in done.err
    monkeypatch.undo()
    converters.load_entry_points.cache_clear()


# -- verify ----------------------------------------------------------------------------------------
CHAIN = [
    helper.make_node("Exp", ["x"], ["a"], name="first"),
    helper.make_node("Softmax", ["a"], ["b"], name="second"),
    helper.make_node("Split", ["b"], ["c", "d"], num_outputs=2, axis=0, name="third"),
    helper.make_node("Add", ["c", "d"], ["y"], name="last"),
]
# As torch.onnx.export tells the modules that a node is in.
_SCOPES = CHAIN[1].metadata_props.add()
_SCOPES.key, _SCOPES.value = "pkg.torch.onnx.name_scopes", "['', 'encoder.0', 'softmax']"


def test_verify_compares_with_both_references(tmp_path: Path, cli: Cli) -> None:
    file = save(tmp_path, CHAIN, ["n", 3])
    done = cli("verify", file, "--shape", "n=4", "--taps")
    assert done.code == 0, done.out + done.err
    for name in ("ONNX Runtime", "onnx.reference"):
        assert f"agrees with {name}" in done.out
    assert "5 values compared; 0 depart" in done.out


def test_taps_name_the_first_node_that_departs(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = [c for c in converters.CONVERTERS["", "Softmax"] if c.since == 13]
    assert forms

    def wrong(ctx: Any, input: Any, *, axis: int = -1) -> Any:
        return R.add(forms[0].function(ctx, input, axis=axis), const(0.25, "float32"))

    converters.register_converter("Softmax", since=13)(wrong)
    try:
        file = save(tmp_path, CHAIN, ["n", 3])
        x = tmp_path / "x.npz"
        np.savez(x, x=np.ones((2, 3), np.float32))
        done = cli("verify", file, "--inputs", x, "--taps", "--json")
        text = cli("verify", file, "--inputs", x).out  # it looks by itself
        alone = cli("verify", file, "--inputs", x, "--no-taps").out
        folder, page = tmp_path / "piece", tmp_path / "errors.html"
        bisected = cli("verify", file, "--inputs", x, "--bisect", folder, "--html", page)
        script = {"__file__": str(folder / "reproduce.py")}
        words = ["reproduce.py", "--json"]
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as ended:
            exec((folder / "reproduce.py").read_text(), script)
    finally:
        unregister_converter("Softmax")
    assert done.code == 1
    data = json.loads(done.out)
    assert data["agrees"] is False
    for found in data["references"]:
        assert not found["outputs"][0]["fits"]
        assert found["outputs"][0]["name"] == "y"
        taps = found["taps"]
        assert (taps["compared"], taps["departing"]) == (5, 4)
        first = taps["first"]
        assert (first["node"], first["op"], first["output"]["name"]) == ("second", "Softmax", "b")
        assert first["output"]["largest"] == pytest.approx(0.25)
        assert first["largest relative error of its inputs"] < 1e-5
    assert first["module"] == "encoder.0"
    assert "first departure: node 'second' (Softmax) of encoder.0, output 'b', float32 2x3" in text
    table = text.partition("what departs, in the order of the program\n")[2].splitlines()
    assert [line.split()[:2] for line in table[:2]] == [["layer", "value"], ["second", "b"]]
    assert "first departure" not in alone
    # The node alone departs on what the reference has for its input, and the page shows it.
    assert (bisected.code, ended.value.code) == (1, 1)
    assert "reproducer: python" in bisected.out
    assert "(second), which departs as well" in bisected.out
    assert {p.name for p in folder.iterdir()} == {"model.onnx", "inputs.npz", "reproduce.py"}
    with np.load(folder / "inputs.npz") as inputs:
        assert inputs["a"] == pytest.approx(np.exp(np.ones((2, 3))))
    heat = data_of(page.read_text())["heat"]
    words = [text for _, text, *_ in heat["nodes"].values()]
    assert heat["title"] == "error"
    assert [text.endswith("DEPARTS") for text in words].count(False) == 1


WRONG = """
from relax2xla import op as R
from relax2xla.frontend.onnx import register_converter
from relax2xla.ir import const

@register_converter("Softmax", since=13)
def wrong(ctx, input, *, axis=-1):
    return R.add(R.nn.softmax(input, axis), const(0.25, "float32"))
"""


def test_a_reproducer_takes_plug_ins_along(tmp_path: Path) -> None:
    """In processes of its own, and elsewhere: without the plug-in there is nothing to see."""
    file, plugin, folder = save(tmp_path, CHAIN, [2, 3]), tmp_path / "wrong.py", tmp_path / "piece"
    plugin.write_text(WRONG)
    done = shell("verify", file, "--plugin", plugin, "--bisect", folder)
    assert done.returncode == 1, done.stderr
    assert "(second), which departs as well" in done.stdout
    elsewhere = tmp_path / "empty"
    elsewhere.mkdir()
    moved = folder.rename(elsewhere / "moved")
    for path in (file, plugin):
        path.unlink()
    again = subprocess.run(
        [sys.executable, "moved/reproduce.py", "--json"],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1, again.stderr
    assert json.loads(again.stdout)["agrees"] is False
    # Python may keep the bytecode of the plugin beside it.
    assert {p.name for p in moved.iterdir()} - {"__pycache__"} == {
        "model.onnx", "inputs.npz", "reproduce.py", "plugin_0_wrong.py",
    }  # fmt: skip


def test_a_piece_grows_until_it_departs(tmp_path: Path) -> None:
    """What departs because of a neighbour is not found in the node alone."""
    from onnx import load

    from relax2xla.cli.proof.onnx_pieces import onnx_pieces
    from relax2xla.cli.proof.reproduce import reproduce

    x = np.ones((2, 3), np.float32)
    values = dict.fromkeys("xabcd", x)
    seen: list[list[str]] = []

    def departs(model: Path, inputs: Path) -> bool:
        with np.load(inputs) as given:
            assert set(given) == {i.name for i in load(model).graph.input}
        seen.append([n.name for n in load(model).graph.node])
        return "first" in seen[-1]

    model = load(save(tmp_path, CHAIN, [2, 3]))
    pieces = onnx_pieces(model, "y", values)
    names, found = reproduce(tmp_path / "piece", pieces, departs, ["--rtol", "0.1"])
    assert seen == [["last"], ["third", "last"], ["first", "second", "third", "last"]]
    assert (names, found) == (seen[-1], True)
    assert "['--rtol', '0.1']" in (tmp_path / "piece" / "reproduce.py").read_text()


def test_a_bisection_that_cannot_be(models: Any, cli: Cli, tmp_path: Path) -> None:
    for words, message in (
        ((models("relax"), "--shape", "n=2", "--bisect", tmp_path / "p"), "is for .onnx and .pt2"),
        ((models("onnx"), "--bisect", models("onnx")), "that is a file"),
        ((models("relax"), "--shape", "n=2", "--html", tmp_path / "a.html"), "--html is for"),
    ):
        done = cli("verify", *words)
        assert (done.code, message in done.err) == (2, True), done.err


def test_taps_need_a_framework(models: Any, cli: Cli) -> None:
    done = cli("verify", models("relax"), "--taps")
    assert done.code == 2
    assert "--taps is for .onnx and .pt2 models and StableHLO" in done.err


def test_taps_take_sequences_and_strings(tmp_path: Path, cli: Cli) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=1),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    done = cli("verify", save(tmp_path, nodes, [2, 3]), "--taps")
    assert done.code == 0, done.out + done.err
    assert "2 values compared" in done.out


# -- convert ---------------------------------------------------------------------------------------
def test_convert_keeps_shapes_that_the_model_computes(tmp_path: Path, cli: Cli) -> None:
    """Reshape to (d, n) by Shape and Gather, of a model whose batch size is not known."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "swap"], ["swapped"]),
        helper.make_node("Reshape", ["x", "swapped"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    file = save(tmp_path, nodes, ["n", 3])
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    results = []
    for shape in ([], ["--shape", "n=5"]):
        out, saved = tmp_path / "m.mlir", tmp_path / "y.npy"
        done = cli("convert", file, "-o", out, *shape)
        assert done.code == 0, done.err
        assert ("tensor<?x3xf32>" in out.read_text()) is not bool(shape)
        done = cli("run", out, "-i", tmp_path / "x.npy", "-o", saved)
        assert done.code == 0, done.err
        results.append(np.load(saved))
    e = np.exp(x.reshape(3, 5))
    for y in results:
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


def sized(folder: Path) -> Path:
    """A model that resizes ``x`` by the values of ``scales``."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], name="bigger")
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2]),
            helper.make_tensor_value_info("scales", TensorProto.FLOAT, [4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
    )
    path = folder / "sized.onnx"
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def test_inputs_that_are_specialised_by_value(cli: Cli, tmp_path: Path) -> None:
    model, out = str(sized(tmp_path)), tmp_path / "y.npy"
    shown = cli("inspect", model).out
    assert 'scales: Tensor((4,), dtype="float32"), specialised by its value' in shown
    found = json.loads(cli("inspect", model, "--json").out)["functions"][0]
    assert found["by_value"] == ["scales"]
    cli("run", model, "-i", "scales=1,1,2,1.5", "-o", str(out))
    assert np.load(out).shape == (1, 1, 4, 3)
    # Ones where nothing is given.
    cli("run", model, "-o", str(out))
    assert np.load(out).shape == (1, 1, 2, 2)
    assert cli("verify", model, "-i", "scales=1,1,3,1").code == 0
    wrong = cli("run", model, "-i", "scales=1,1,-2,1")
    assert wrong.code == 2
    assert "scales_2 = -2.0" in wrong.err
    assert "the scale -2.0 of axis 2" in wrong.err


def test_made_up_values_that_do_not_fit_are_told(cli: Cli, tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
    )
    path = tmp_path / "reshape.onnx"
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    told = cli("run", path)
    assert told.code == 2
    assert "--inputs shape=1,2" in " ".join(told.err.split())
    assert cli("run", path, "-i", "shape=3,-1").code == 0
    bad = cli("run", path, "-i", "shape=1.5,2")
    assert bad.code == 2
    assert "--inputs shape=1.5,2" in " ".join(bad.err.split())


def test_shapes_of_inputs_and_sizes_of_dimensions(cli: Cli, tmp_path: Path) -> None:
    """A number is the shape of an input of rank 1, too; two sizes of one dimension are an error."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "main", [x], [y])
    path, out = tmp_path / "relu.onnx", tmp_path / "relu.mlir"
    sets = [helper.make_opsetid("", 20)]
    path.write_bytes(helper.make_model(graph, opset_imports=sets).SerializeToString())
    assert cli("convert", path, "-o", out, "--shape", "x=4").code == 0
    assert "tensor<4xf32>" in out.read_text()
    assert cli("convert", path, "-o", out, "--shape", "x=4", "--shape", "n=4").code == 0
    done = cli("convert", path, "-o", out, "--shape", "x=4", "--shape", "n=5")
    assert done.code == 2
    assert "the dimension 'n' of 'x' is given as 5 and 4" in done.err

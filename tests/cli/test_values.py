"""Models whose inputs and results are more than tensors: maps, sequences, strings, optionals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Cli

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

ort = pytest.importorskip("onnxruntime")

from relax2xla.cli.proof import comparison  # noqa: E402

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
ML = "ai.onnx.ml"
X = np.array([[1, -2], [0.5, 3], [0, 0.25]], np.float32)
LABELS: dict[str, dict[str, Any]] = {
    "int": {"classlabels_ints": [7, 9, -4]},
    "string": {"classlabels_strings": ["ash", "birch", "cedar"]},
}


def tensor(name: str, code: int, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, code, shape)


def typed(name: str, proto: Any) -> Any:
    return helper.make_value_info(name, proto)


def save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def map_of(key: int, value: int) -> Any:
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, None))


def classifier(folder: Path, kind: str) -> Path:
    """What skl2onnx makes of a classifier unless it is told otherwise."""
    keys = LABELS[kind]
    zipped = {k.replace("_ints", "_int64s"): v for k, v in keys.items()}
    numbers = {"coefficients": [1.0, 0.5, -1, 2, 0.25, -3], "intercepts": [0.1, 0, -0.1]}
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "p"], domain=ML,
            post_transform="SOFTMAX", **keys, **numbers,
        ),
        helper.make_node("Reshape", ["label", "one"], ["flat"]),
        helper.make_node("ZipMap", ["p"], ["maps"], domain=ML, **zipped),
    ]  # fmt: skip
    one = helper.make_node("Constant", [], ["one"], value_ints=[-1])
    code = STRING if kind == "string" else INT64
    maps = helper.make_sequence_type_proto(map_of(code, FLOAT))
    outputs = [tensor("flat", code, [None]), typed("maps", maps)]
    path = folder / f"{kind}.onnx"
    return save(path, [one, *nodes], [tensor("x", FLOAT, [None, 2])], outputs)


def expected(path: Path, feeds: dict[str, Any]) -> list[Any]:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)


# -- classifiers -----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", list(LABELS))
def test_a_classifier_is_printed_and_written(kind: str, cli: Cli, tmp_path: Path) -> None:
    file = classifier(tmp_path, kind)
    np.save(tmp_path / "x.npy", X)
    given = ("-i", tmp_path / "x.npy")
    labels, maps = expected(file, {"x": X})
    done = cli("run", file, *given, "-o", tmp_path / "out.npz")
    assert done.code == 0, done.err
    for key, value in maps[0].items():
        assert f"{key!r}: {value:.4g}" in done.out
    assert "map  " in done.out
    assert f"wrote {tmp_path / 'out.npz'} and {tmp_path / 'out.json'}" in done.err
    with np.load(tmp_path / "out.npz") as saved:
        assert saved["flat"].tolist() == list(labels)
        assert saved.files == ["flat"]
    rows = json.loads((tmp_path / "out.json").read_text())["maps"]
    for ours, theirs in zip(rows, maps, strict=True):
        assert ours == pytest.approx({str(k): v for k, v in theirs.items()}, rel=1e-5)
    done = cli("run", file, *given, "-o", tmp_path / "all.json")
    assert done.code == 0, done.err
    everything = json.loads((tmp_path / "all.json").read_text())
    assert everything["flat"] == list(labels)
    assert everything["maps"] == rows
    done = cli("run", file, *given, "-o", tmp_path / "one.npy")
    assert (done.code, "there are 2 results" in done.err) == (2, True)


@pytest.mark.parametrize("kind", list(LABELS))
def test_a_classifier_is_verified_and_timed(kind: str, cli: Cli, tmp_path: Path) -> None:
    file = classifier(tmp_path, kind)
    np.save(tmp_path / "x.npy", X)
    done = cli("verify", file, "-i", f"x={tmp_path / 'x.npy'}", "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["references"][0]["outputs"]
    assert [(r["dtype"], r["shape"]) for r in rows] == [
        ("string" if kind == "string" else "int64", "3"),
        ("map", "3x3"),
    ]
    done = cli("bench", file, "-i", tmp_path / "x.npy", "--rounds", 1)
    assert done.code == 0, done.err
    assert "ONNX Runtime" in done.out


def test_maps_that_differ() -> None:
    def row(mine: Any, yours: Any) -> Any:
        (found,) = comparison.compare([mine], [yours], None, None)
        return found

    assert row(({1: 0.5},), [{np.int64(1): np.float32(0.50001)}]).fits
    assert row({"a": "x"}, {b"a": b"x"}).fits
    assert row(None, None).fits
    assert not row(({1: 0.5},), [{1: 0.6}]).fits
    assert not row({"a": "x"}, {"a": "y"}).fits
    assert row(({1: 0.5},), [{2: 0.5}]).expected == "the keys 2"
    assert row(({1: 0.5},), [{"1": 0.5}]).expected == "the keys '1'"
    assert row(({1: 0.5},), [{1: 0.5}, {1: 0.5}]).expected == "map 2x1"
    assert row({1: 2}, {1: 2.0}).expected == "values of float64"
    assert row(None, np.ones(2, np.float32)).expected == "float32 2"
    assert row(np.ones(2, np.float32), None).expected == "none"
    assert row(np.ones(2, np.float32), {1: 0.5}).expected == "map 1"


# -- inputs ----------------------------------------------------------------------------------------
def chosen(folder: Path) -> Path:
    """``y``: the element of ``xs`` at ``at``; strings beside it."""
    xs = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [None]))
    nodes = [
        helper.make_node("SequenceAt", ["xs", "at"], ["y"]),
        helper.make_node("Identity", ["words"], ["same"]),
        helper.make_node("SequenceInsert", ["xs", "y"], ["more"]),
    ]
    inputs = [typed("xs", xs), tensor("at", INT64, []), tensor("words", STRING, ["n"])]
    outputs = [tensor("y", FLOAT, [None]), tensor("same", STRING, [None]), typed("more", xs)]
    return save(folder / "chosen.onnx", nodes, inputs, outputs)


def test_sequences_and_strings(cli: Cli, tmp_path: Path) -> None:
    file = chosen(tmp_path)
    data = {"xs": [[1, 2.5], [3]], "at": 1, "words": ["a", "b c"]}
    (tmp_path / "in.json").write_text(json.dumps(data))
    done = cli("run", file, "-i", tmp_path / "in.json", "-o", tmp_path / "out.json")
    assert done.code == 0, done.err
    assert "sequence of float32" in done.out
    found = json.loads((tmp_path / "out.json").read_text())
    assert list(found.values()) == [[3], ["a", "b c"], [1, 2.5], [3], [3]]
    done = cli("verify", file, "-i", tmp_path / "in.json")
    assert done.code == 0, done.out + done.err
    # The same from files of numpy.
    np.savez(tmp_path / "xs.npz", *[np.array(x, np.float32) for x in data["xs"]])
    np.savez(tmp_path / "rest.npz", at=np.int64(1), words=np.array(data["words"]))
    words = ("-i", f"xs={tmp_path / 'xs.npz'}", "-i", tmp_path / "rest.npz")
    done = cli("run", file, *words, "-o", tmp_path / "again.json")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "again.json").read_text()) == found
    # The strings are made; the elements of the sequence have no known shape.
    done = cli("run", file)
    assert done.code == 2
    assert "xs, a sequence: each a tensor of float32" in done.err or "--shape" in done.err
    (tmp_path / "some.json").write_text(json.dumps({"xs": [[1]], "at": 0}))
    done = cli("run", file, "-i", tmp_path / "some.json", "--shape", "n=2")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"xs": [["a"]]}, "xs[0]: expected numbers of float32; got ['a']"),
        ({"xs": 3}, "expected a sequence"),
        ({"xs": [[1, [2]]]}, "xs[0]:"),
        ({"xs": None}, "got null"),
        ({"words": ["a", 1]}, "expected strings"),
        ({"words": [["a"], "b"]}, "words: lists in it differ in length"),
        ({"words": [["a"], ["b", "c"]]}, "words: lists in it differ in length"),
        ({"at": "1"}, "at: expected numbers of int64"),
        ({"at": 1.5}, "does not fit int64"),
        ({"other": 1}, "there is no input 'other'; there are xs, at, words"),
        ([1], "name the one that it is for"),
    ],
)
def test_json_that_does_not_fit(data: Any, says: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps(data))
    done = cli("run", chosen(tmp_path), "-i", tmp_path / "in.json")
    assert (done.code, says in done.err, "not an error" in done.err) == (2, True, False), done.err


def test_maps_as_inputs(cli: Cli, tmp_path: Path) -> None:
    node = helper.make_node("DictVectorizer", ["m"], ["y"], domain=ML, int64_vocabulary=[5, 2, 3])
    proto = map_of(INT64, FLOAT)
    file = save(tmp_path / "m.onnx", [node], [typed("m", proto)], [tensor("y", FLOAT, [None, 3])])
    (tmp_path / "m.json").write_text('{"2": 0.5, "5": 3}')
    given = ("-i", f"m={tmp_path / 'm.json'}")
    done = cli("run", file, *given, "-o", tmp_path / "y.npy")
    assert done.code == 0, done.err
    assert np.load(tmp_path / "y.npy").tolist() == [[3, 0.5, 0]]
    # onnx.reference gives another shape and dtype than the operator has.
    assert "agrees with ONNX Runtime" in cli("verify", file, *given).out
    (tmp_path / "wrong.json").write_text('{"two": 0.5}')
    done = cli("run", file, "-i", f"m={tmp_path / 'wrong.json'}")
    assert (done.code, "the keys are int64; 'two' is none" in done.err) == (2, True)
    done = cli("run", file)
    assert (done.code, "map from int64 to float32" in done.err) == (2, True), done.err
    # A saved executable does not know the types; JSON says them.
    assert cli("compile", file, "-o", tmp_path / "m.r2x").code == 0
    done = cli("run", tmp_path / "m.r2x", *given, "-o", tmp_path / "again.npy")
    assert done.code == 0, done.err
    assert np.load(tmp_path / "again.npy").tolist() == [[3, 0.5, 0]]


def test_what_is_not_there(cli: Cli, tmp_path: Path) -> None:
    proto = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    nodes = [
        helper.make_node("OptionalHasElement", ["x"], ["has"]),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    outputs = [tensor("has", TensorProto.BOOL, []), typed("y", proto)]
    file = save(tmp_path / "m.onnx", nodes, [typed("x", proto)], outputs)
    for text, has in (("null", False), ("[1, 2]", True)):
        (tmp_path / "x.json").write_text(text)
        given = ("-i", f"x={tmp_path / 'x.json'}")
        done = cli("run", file, *given, "-o", tmp_path / "out.json")
        assert done.code == 0, done.err
        found = json.loads((tmp_path / "out.json").read_text())
        assert found == {"has": has, "y": json.loads(text)}
    assert cli("run", file).code == 0  # a tensor is made


# -- which array of a file -------------------------------------------------------------------------
def test_a_named_npz(models: Callable[[str], Path], cli: Cli, tmp_path: Path) -> None:
    x, out = np.arange(8, dtype=np.float32).reshape(2, 4), tmp_path / "out.npy"
    file = models("onnx")
    results = []
    for arrays in ({"in.x": x, "other": x + 1}, {"arr_0": x}, {"in_x": x, "o": x}):
        np.savez(tmp_path / "in.npz", **arrays)
        done = cli("run", file, "-i", f"in.x={tmp_path / 'in.npz'}", "-o", out)
        assert done.code == 0, done.err
        results.append(np.load(out))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    np.savez(tmp_path / "in.npz", a=x, b=x)
    done = cli("run", file, "-i", f"in.x={tmp_path / 'in.npz'}")
    assert (done.code, "the file has the arrays a, b" in done.err) == (2, True), done.err
    assert "twice" not in done.err
    np.savez(tmp_path / "in.npz", in_x=x)
    twice = ("-i", tmp_path / "in.npz", "-i", f"in_x={tmp_path / 'in.npz'}")
    assert "is given twice" in cli("run", file, *twice).err


@pytest.mark.parametrize(
    ("size", "says"), [(2**31 - 1, "does not fit into memory"), (-7, "must not be negative")]
)
def test_sizes_of_values_that_cannot_be_made(
    size: int, says: str, cli: Cli, tmp_path: Path
) -> None:
    words = tensor("words", STRING, [size, 64])
    nodes = [helper.make_node("Identity", ["words"], ["same"])]
    done = cli("run", save(tmp_path / "w.onnx", nodes, [words], [tensor("same", STRING, None)]))
    assert (done.code, says in done.err) == (2, True), done.err

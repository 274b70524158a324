"""Files that mean harm: each is one clear error or an import, within little memory and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relax2xla.errors import BudgetError, FileFormatError, OpError, OpNotImplemented
from relax2xla.frontend.onnx import from_onnx
from relax2xla.importers.onnx import support
from relax2xla.importers.onnx.engine import graph as importer
from relax2xla.importers.onnx.engine import model as reading
from relax2xla.importers.onnx.read import source
from tests.importers.onnx.mutants import MODELS, F, info, model, node
from tests.work import calls, peak

ROOT = Path(__file__).resolve().parents[3]
# All of them: at least 2,000.
MUTANTS = 450

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of memory and time are POSIX's")
@pytest.mark.parametrize("name", MODELS)
def test_mutants(name: str) -> None:
    assert len(MODELS) * MUTANTS >= 2000
    done = subprocess.run(
        [sys.executable, "-m", "tests.importers.onnx.mutants", name, str(MUTANTS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["bad"] == []
    # Most are damaged in a way that shows, and some are still models.
    assert 0.05 * MUTANTS < found["imported"] < 0.6 * MUTANTS


# -- small models that come to much ----------------------------------------------------------------
DEPTH = 40


def doubling(nodes: Callable[[int], list[Any]]) -> list[Any]:
    return [n for i in range(DEPTH) for n in nodes(i)]


def functions_that_call_two() -> onnx.ModelProto:
    """2^40 nodes when they are written out."""
    own = [helper.make_opsetid("own", 1)]
    made = [
        helper.make_function(
            "own",
            f"F{i}",
            ["a"],
            ["b"],
            [
                node(f"F{i + 1}", ["a"], ["t"], domain="own"),
                node(f"F{i + 1}", ["t"], ["b"], domain="own"),
            ],
            own,
        )
        for i in range(DEPTH)
    ]
    last = [node("Relu", ["a"], ["b"])]
    opset = [helper.make_opsetid("", 21)]
    made.append(helper.make_function("own", f"F{DEPTH}", ["a"], ["b"], last, opset))
    call = node("F0", ["x"], ["y"], domain="own")
    return model([call], [info("x", F, [2])], [info("y", F, None)], functions=made, opsets=own)


def polynomials() -> onnx.ModelProto:
    """A size that is a polynomial of 2^40 terms."""
    nodes = [node("Shape", ["x"], ["v0"])]
    nodes += doubling(
        lambda i: [
            node("Mul", [f"v{i}", f"v{i}"], [f"m{i}"]),
            node("Add", [f"m{i}", f"v{i}"], [f"v{i + 1}"]),
        ]
    )
    nodes.append(node("Expand", ["x", f"v{DEPTH}"], ["y"]))
    return model(nodes, [info("x", F, ["n"])], [info("y", F, None)])


def flattened_squares() -> onnx.ModelProto:
    """Products of dimensions, to the power of 2^40."""
    nodes = doubling(
        lambda i: [
            node("Flatten", [f"v{i}"], [f"q{i}"], axis=0),
            node("Transpose", [f"q{i}"], [f"t{i}"]),
            node("MatMul", [f"t{i}", f"q{i}"], [f"v{i + 1}"]),
        ]
    )
    return model(nodes, [info("v0", F, ["n", "m"])], [info(f"v{DEPTH}", F, None)])


def constants_that_double() -> onnx.ModelProto:
    """2^42 numbers."""
    nodes = doubling(lambda i: [node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0)])
    weights = {"v0": np.ones(4, np.int64)}
    return model(nodes, [], [info(f"v{DEPTH}", TensorProto.INT64, None)], weights)


def a_shape_of_many_numbers() -> onnx.ModelProto:
    """A shape of 2^33 dimensions."""
    nodes = [
        node("ConstantOfShape", ["s"], ["z"]),
        node("Cast", ["z"], ["i"], to=TensorProto.INT64),
    ]
    nodes.append(node("Reshape", ["x", "i"], ["y"]))
    weights = {"s": np.array([2**33])}
    return model(nodes, [info("x", F, [1])], [info("y", F, None)], weights)


def parts_without_end() -> onnx.ModelProto:
    """2^40 parts."""
    split = node("Split", ["x"], ["y"], axis=0, num_outputs=2**40)
    return model([split], [info("x", F, [2**41])], [info("y", F, None)])


def a_gigantic_image(mode: str) -> Callable[[], onnx.ModelProto]:
    """8 rows become 8 billion."""

    def build() -> onnx.ModelProto:
        resize = node("Resize", ["x", "", "s"], ["y"], mode=mode)
        weights = {"s": np.array([1, 1, 1e9, 1], np.float32)}
        return model([resize], [info("x", F, [1, 1, 8, 8])], [info("y", F, None)], weights)

    return build


def an_endless_kernel() -> onnx.ModelProto:
    """2^40 rows become 2^20, each a mean of two million."""
    resize = node("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1)
    weights = {"s": np.array([1, 1, 2.0**-20, 1], np.float32)}
    return model([resize], [info("x", F, [1, 1, 2**40, 8])], [info("y", F, None)], weights)


ABSURD = {
    "functions": (functions_that_call_two, "come to more than 1024 nodes"),
    "polynomials": (polynomials, ""),
    "squares": (flattened_squares, "sizes of its result are too long"),
    "doubling": (constants_that_double, "of shape .* the limit is"),
    "shape": (a_shape_of_many_numbers, "has 8589934592 values; 65536 are supported"),
    "parts": (parts_without_end, "num_outputs is 1099511627776; the node has 1 outputs"),
    "nearest": (a_gigantic_image("nearest"), "an axis that is resized to 8000000000 values"),
    "cubic": (a_gigantic_image("cubic"), "an axis that is resized to 8000000000 values"),
    "antialias": (an_endless_kernel, "an axis that is resized to 1048576 values"),
}


@pytest.mark.parametrize("what", ABSURD)
def test_absurd_sizes_take_neither_time_nor_memory(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, message = ABSURD[what]
    monkeypatch.setattr(importer, "NODE_LIMIT", 1024)

    def run() -> None:
        if message:
            with pytest.raises((BudgetError, FileFormatError, OpNotImplemented), match=message):
                from_onnx(build())
        else:
            from_onnx(build())

    # Most take a few hundred calls; the numbers of the models themselves are 2^20 and more.
    assert calls(run) < 2**21
    assert peak(run) < 2**24


# -- deep and long ---------------------------------------------------------------------------------
def field(number: int, contents: bytes) -> bytes:
    """A field of a message, as protobuf writes it."""
    size, head = len(contents), bytearray([number << 3 | 2])
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + contents


def nested(depth: int) -> bytes:
    """``If`` inside of ``If``. Messages of such a depth can be written, but not built."""
    inner = helper.make_graph([node("Relu", ["x"], ["o"])], "g", [], [info("o", F, None)])
    leaf = graph = inner.SerializeToString()
    rest = field(2, b"g") + field(12, info("o", F, None).SerializeToString())
    for _ in range(depth):
        # Of a node: inputs, outputs, operator, attributes; of an attribute: name, graph, type.
        made = field(1, b"c") + field(2, b"o") + field(4, b"If")
        for name, branch in ((b"then_branch", graph), (b"else_branch", leaf)):
            made += field(5, field(1, name) + field(6, branch) + b"\xa0\x01\x05")
        graph = field(1, made) + rest
    inputs = [info("c", TensorProto.BOOL, []), info("x", F, [2])]
    graph += b"".join(field(11, i.SerializeToString()) for i in inputs)
    return b"\x08\x09" + field(7, graph) + field(8, b"\x10\x15")


def test_nested_subgraphs(tmp_path: Path) -> None:
    assert from_onnx(nested(20))["main"].ret_struct_info.dims == (2,)
    path = tmp_path / "m.onnx"
    path.write_bytes(nested(500))
    for read in (from_onnx, support):
        with pytest.raises(FileFormatError, match=r"m\.onnx is nested too deeply"):
            read(path)


def test_a_long_graph() -> None:
    """Each node once, without recursion."""
    count = 2000
    nodes = [node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    long = model(nodes, [info("v0", F, [2])], [info(f"v{count}", F, [2])])
    assert support(long).operators == {"Relu": count}
    bindings = from_onnx(long)["main"].body.blocks[0].bindings
    assert len(bindings) == count + 1  # the output is a binding of its own


def test_too_long_a_graph_is_refused_before_anything_looks_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes of subgraphs and of functions count."""
    monkeypatch.setattr(source, "GRAPH_LIMIT", 40)

    def complaints(_: Any) -> None:
        raise AssertionError("the checker ran")

    inside = helper.make_graph(
        [node("Relu", ["v"], [f"v{i}"]) for i in range(40)], "g", [], [info("v0", F, [2])]
    )
    body = helper.make_function("own", "F", ["v"], ["v0"], inside.node, [])
    ends = [info("v", F, [2])], [info("v0", F, [2])]
    calls = [node("F", ["v"], ["v0"], domain="own")]
    branches = [node("If", ["v"], ["v0"], then_branch=inside, else_branch=inside)]
    from_onnx(model(inside.node, *ends))
    monkeypatch.setattr(reading, "complaints", complaints)
    for nodes, functions in (
        ([*inside.node, node("Neg", ["v0"], ["w"])], []),
        (branches, []),
        (calls, [body]),
    ):
        long = model(nodes, *ends)
        long.functions.extend(functions)
        for read in (from_onnx, support):
            with pytest.raises(FileFormatError, match="the model has more than 40 nodes"):
                read(long.SerializeToString())


# -- files beside the model ------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_beside_the_model_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data")
    weight = TensorProto(name="w", data_type=F, dims=[1], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="data")
    made = model([node("Add", ["x", "w"], ["y"])], [info("x", F, [1])], [info("y", F, [1])])
    made.graph.initializer.append(weight)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(FileFormatError, match="data is not a regular file"):
        from_onnx(path)


# -- constants that do not fit their node ----------------------------------------------------------
MISFITS = [
    ("Concat", ["v", "v"], {"axis": 1}, "axis 1 is out of range for a rank-1 tensor"),
    ("Gather", ["v", "seven"], {"axis": 3}, "the axis 3 is out of range for a tensor of rank 1"),
    ("Gather", ["v", "seven"], {}, "takes an index out of range for 3 elements"),
    ("Range", ["zero", "seven", "zero"], {}, "has a step of 0"),
    ("Squeeze", ["v", "axis"], {}, "only an axis of one can be squeezed"),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "message"), MISFITS)
def test_constants_that_do_not_fit_are_said_by_the_operator(
    op: str, inputs: list[str], attributes: dict[str, Any], message: str
) -> None:
    """They are computed at import, where numpy would speak of its own arguments."""
    constants = {"v": [1, 2, 3], "seven": 7, "zero": 0, "axis": [0]}
    held = {n: np.array(a, np.int64) for n, a in constants.items()}
    made = model(
        [helper.make_node(op, inputs, ["y"], **attributes)],
        [],
        [info("y", TensorProto.INT64, None)],
        held,
    )
    with pytest.raises((OpError, FileFormatError), match=message):
        from_onnx(made)

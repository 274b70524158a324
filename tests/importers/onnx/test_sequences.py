"""Sequences and optionals, of known length and as values of the machine, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relax2xla import onnx_backend
from relax2xla.errors import CallError
from relax2xla.frontend.onnx import from_onnx
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.script.entry import from_source
from relax2xla.script.tables import script_tables
from relax2xla.vm.call.machine import VirtualMachine
from relax2xla.vm.plan.build import build
from tests.importers.onnx.support import agree, model_of, ours, value

pytest.importorskip("onnxruntime")

X = np.arange(24, dtype=np.float32).reshape(6, 4)


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs, [output], **attributes)


WEIGHTS = {
    "two": np.array(2, np.int64),
    "last": np.array(-1, np.int64),
    "uneven": np.array([1, 5], np.int64),
}
CASES = [
    [
        node("SplitToSequence", ["x", "two"], "s"),
        node("SequenceErase", ["s", "last"], "t"),
        node("SequenceInsert", ["t", "x", "last"], "u"),
        node("ConcatFromSequence", ["u"], "y", axis=0),
    ],
    [
        node("SplitToSequence", ["x", "uneven"], "s"),
        node("SequenceAt", ["s", "last"], "y"),
    ],
    [
        node("SplitToSequence", ["x"], "s", axis=1, keepdims=0),
        node("SequenceLength", ["s"], "y"),
    ],
    [
        node("SequenceConstruct", ["x", "x"], "s"),
        node("ConcatFromSequence", ["s"], "y", axis=-1, new_axis=1),
    ],
    [
        node("SequenceEmpty", [], "e"),
        node("SequenceInsert", ["e", "x"], "s"),
        node("SequenceAt", ["s", "last"], "y"),
    ],
]


@pytest.mark.parametrize("at", range(len(CASES)))
def test_sequences_agree_with_onnx_runtime(at: int) -> None:
    agree(model_of(CASES[at], [value("x", X)], weights=WEIGHTS), [X])


def test_a_sequence_may_be_a_result() -> None:
    model = model_of([node("SplitToSequence", ["x", "two"], "y")], [value("x", X)], weights=WEIGHTS)
    (parts,) = (ours(model, [X]),)
    assert [p.tolist() for p in parts] == [X[i : i + 2].tolist() for i in (0, 2, 4)]


def test_positions_out_of_range_are_refused() -> None:
    nodes = [node("SequenceConstruct", ["x"], "s"), node("SequenceAt", ["s", "two"], "y")]
    with pytest.raises(ValueError, match="position 2 of a sequence with 1 places"):
        from_onnx(model_of(nodes, [value("x", X)], weights=WEIGHTS))
    model = model_of(nodes, [value("x", X), value("two", WEIGHTS["two"])])
    for at in (0, -1):
        agree(model, [X, np.array(at, np.int64)])
    with pytest.raises(CallError, match="position 2 of a sequence of 1"):
        ours(model, [X, WEIGHTS["two"]])


# -- sequences that are inputs -------------------------------------------------------------------
def sequence(name: str, dims: Any = None, code: int = TensorProto.FLOAT) -> Any:
    inner = helper.make_tensor_type_proto(code, dims)
    return helper.make_value_info(name, helper.make_sequence_type_proto(inner))


PARTS = [X[:2], X[2:3], X[3:]]
POSITION = np.array(-2, np.int64)
ON_HOST = [
    [node("SequenceAt", ["s", "p"], "t"), node("Mul", ["t", "t"], "y")],
    [node("SequenceErase", ["s", "p"], "t"), node("ConcatFromSequence", ["t"], "y", axis=0)],
    [
        node("SequenceInsert", ["s", "x", "p"], "t"),
        node("SequenceErase", ["t"], "u"),
        node("ConcatFromSequence", ["u"], "v", axis=0),
        node("Exp", ["v"], "y"),
    ],
    [node("SequenceLength", ["s"], "n"), node("Add", ["n", "p"], "y")],
]


@pytest.mark.parametrize("at", range(len(ON_HOST)))
def test_sequences_of_any_length_agree_with_onnx_runtime(at: int) -> None:
    inputs = [sequence("s", ["n", 4]), value("p", POSITION), value("x", X)]
    used = {i for n in ON_HOST[at] for i in n.input}
    model = model_of(ON_HOST[at], [i for i in inputs if i.name in used])
    for parts in (PARTS, PARTS[1:]):
        given: dict[str, Any] = {"s": parts, "p": POSITION, "x": X}
        agree(model, [v for n, v in given.items() if n in used])


def test_a_split_by_a_computed_length() -> None:
    nodes = [node("SplitToSequence", ["x", "k"], "s"), node("SequenceAt", ["s", "p"], "y")]
    k = np.array(4, np.int64)
    agree(model_of(nodes, [value("x", X), value("k", k), value("p", POSITION)]), [X, k, POSITION])


def test_the_machine_checks_what_it_is_given_and_says_what_runs_on_the_host() -> None:
    model = model_of(ON_HOST[0], [sequence("s", ["n", 4]), value("p", POSITION)])
    executable = build(from_onnx(model), "cpu")
    assert "on the host: relax.sequence.at (at t)" in executable.stats()
    run = VirtualMachine(executable)["main"]
    for bad, what in (
        ([X.astype(np.float64)], "got one of float64"),
        ([X[0]], "of rank 2"),
        (X, "expected a sequence"),
    ):
        with pytest.raises(CallError, match=what):
            run(bad, np.array(0, np.int64))


@pytest.mark.parametrize("optional", [None, X[0]])
def test_an_optional_that_may_not_be_there(optional: Any) -> None:
    """Against what the nodes say: ONNX Runtime's Python takes no optional tensors."""
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    maybe = helper.make_value_info("o", helper.make_optional_type_proto(inner))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    branches = {
        "then_branch": helper.make_graph([node("OptionalGetElement", ["o"], "y")], "a", [], [y]),
        "else_branch": helper.make_graph([node("Neg", ["x"], "y")], "b", [], [y]),
    }
    nodes = [node("OptionalHasElement", ["o"], "h"), node("If", ["h"], "y", **branches)]
    model = model_of(nodes, [maybe, value("x", X[1])], ["y", "h"])
    got, there = ours(model, [optional, X[1]])
    assert there == (optional is not None)
    np.testing.assert_array_equal(got, -X[1] if optional is None else optional)


GROWING = """
<ir_version: 9, opset_import: ["" : 18]>
g (int64 count, optional(seq(float)) start) => (seq(float[]) y)
<float[5] x = {1, 2, 3, 4, 5}, int64[1] zero = {0}, int64[1] one = {1}> {
  y = Loop (count, , start) <body = b (int64 i, bool on, optional(seq(float)) have)
      => (bool on2, seq(float[]) grown) {
    on2 = Identity (on)
    there = OptionalHasElement (have)
    s = If (there) <
      then_branch = t () => (seq(float) s1) { s1 = OptionalGetElement (have) },
      else_branch = e () => (seq(float) s2) {
        n = Constant <value: tensor = float {0}> ()
        s2 = SequenceConstruct (n)
      }>
    end = Add (i, one)
    part = Slice (x, zero, end)
    grown = SequenceInsert (s, part)
  }>
}
"""


def test_a_sequence_grows_in_a_loop_from_an_optional_and_may_hold_scalars() -> None:
    """As the case loop16_seq_none of onnx, whose runner cannot compare a scalar in a list."""
    rep = onnx_backend.prepare(onnx.parser.parse_model(GROWING))
    scalar = np.array(0, np.float32)
    for start in (None, [scalar]):
        (got,) = rep.run([np.array(3, np.int64), start])
        assert {g.dtype for g in got} == {np.dtype(np.float32)}
        assert [g.tolist() for g in got] == [0.0, [1.0], [1.0, 2.0], [1.0, 2.0, 3.0]]


def test_the_text_of_a_loop_of_the_machine_says_the_same_module() -> None:
    mod = from_onnx(onnx.parser.parse_model(GROWING))
    text, tables = script_tables(mod)
    assert_structural_equal(from_source(text, {"metadata": tables}), mod)


# What torch writes for a bag of embeddings: bounds are slices, whose length is computed too.
BAGS = """
<ir_version: 9, opset_import: ["" : 18]>
g (int64[k] bounds, float[n, 3] x, int64 last) => (float[3, m] y)
<int64[1] one = {1}, int64[1] zero = {0}, bool go = {1}> {
  none = SequenceEmpty ()
  rows = Loop (last, go, none) <body = b (int64 i, bool on, seq(float) have)
      => (bool on2, seq(float) grown) {
    on2 = Identity (on)
    at = Reshape (i, one)
    following = Add (at, one)
    after = Add (following, one)
    start = Slice (bounds, at, following)
    end = Slice (bounds, following, after)
    part = Slice (x, start, end)
    row = ReduceSum (part, zero)
    grown = SequenceInsert (have, row)
  }>
  all = ConcatFromSequence <axis = 0> (rows)
  y = Transpose (all)
}
"""


def test_an_empty_sequence_grows_by_slices_of_as_many_axes_as_are_computed() -> None:
    bounds = np.array([0, 2, 3, 6], np.int64)
    agree(onnx.parser.parse_model(BAGS), [bounds, X[:, :3].copy(), np.array(3, np.int64)])

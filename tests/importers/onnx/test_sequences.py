"""Sequences whose length is known at import, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from relax2xla.errors import OpNotImplemented
from relax2xla.frontend.onnx import from_onnx
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


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_positions_out_of_range_and_unknown_ones_are_refused() -> None:
    nodes = [node("SequenceConstruct", ["x"], "s"), node("SequenceAt", ["s", "two"], "y")]
    with pytest.raises(ValueError, match="position 2 of a sequence with 1 places"):
        from_onnx(model_of(nodes, [value("x", X)], weights=WEIGHTS))
    inputs = [value("x", X), value("two", WEIGHTS["two"])]
    with pytest.raises(OpNotImplemented, match="SequenceAt"):
        from_onnx(model_of(nodes, inputs))

"""What a model needs, told without converting it."""

from __future__ import annotations

import json

import numpy as np
from onnx import helper

from relax2xla.frontend.onnx import support
from tests.importers.onnx.support import model_of, value

X = np.zeros((2, 3), np.float32)


def test_a_model_that_is_supported() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    found = support(model_of(nodes, [value("x", X)]).SerializeToString())
    assert found.complete
    assert (found.opsets, found.operators) == ({"": 21}, {"Relu": 2})
    assert "every operator and attribute is supported" in found.as_text()


def test_what_is_missing_is_named_with_its_nodes() -> None:
    nodes = [
        helper.make_node("Mystery", ["x"], ["a"], domain="com.example", name="first"),
        helper.make_node("Relu", ["a"], ["y"], name="second", slope=1.0),
    ]
    imports = [helper.make_opsetid("com.example", 1)]
    found = support(model_of(nodes, [value("x", X)], imports=imports))
    assert not found.complete
    assert [(g.op, g.nodes) for g in found.gaps] == [
        ("com.example.Mystery", ("first",)),
        ("Relu", ("second",)),
    ]
    assert "com.example.Mystery x1: no converter (opset 1) (at first)" in found.as_text()
    assert json.loads(json.dumps(found.as_dict()))["complete"] is False

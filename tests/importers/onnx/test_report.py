"""What a model needs, told without converting it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import helper

from relax2xla.errors import OpNotImplemented
from relax2xla.frontend.onnx import from_onnx, support
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


def test_what_is_laid_out_for_one_processor_says_how_it_is_saved_otherwise() -> None:
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain="com.microsoft.nchwc")
    imports = [helper.make_opsetid("com.microsoft.nchwc", 1)]
    found = support(model_of([node], [value("x", X)], imports=imports))
    assert "ORT_ENABLE_EXTENDED" in found.as_text()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_missing_inside_of_graphs_and_functions_comes_in_the_same_error() -> None:
    """Nothing is converted first; constants and identities are always there."""

    def unknown(name: str, x: str, y: str) -> list[object]:
        constant = helper.make_node("Constant", [], [f"{name}_k"], value_float=1.0)
        same = helper.make_node("Identity", [x], [f"{name}_i"])
        inputs = [f"{name}_i", f"{name}_k"]
        return [constant, same, helper.make_node("Unknown", inputs, [y], name=name)]

    def branch(name: str) -> object:
        output = helper.make_empty_tensor_value_info(f"{name}_y")
        return helper.make_graph(unknown(name, "x", f"{name}_y"), name, [], [output])

    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("own", "F", ["v"], ["w"], unknown("body", "v", "w"), opsets)
    nodes = [
        *unknown("outside", "x", "a"),
        helper.make_node("F", ["a"], ["b"], domain="own"),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("then"), else_branch=branch("else")
        ),
    ]
    inputs = [value("x", X), value("c", np.array(True))]
    imports = [helper.make_opsetid("own", 1)]
    model = model_of(nodes, inputs, imports=imports, functions=[function])
    with pytest.raises(OpNotImplemented) as e:
        from_onnx(model)
    for gaps in (e.value.gaps, support(model).gaps):
        assert [(g.op, sorted(g.nodes)) for g in gaps] == [
            ("Unknown", ["body", "else", "outside", "then"])
        ]

"""What programs written for TVM's importer rely on: texts, orders, and what is left out."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from relax2xla.errors import OpNotImplemented
from relax2xla.frontend.onnx import from_onnx
from relax2xla.ir import Constant, IRModule, TensorStructInfo, TupleStructInfo
from relax2xla.ir.rewrite import post_order_deep
from tests.importers.onnx.support import model_of, ours, value

X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.arange(1, 5, dtype=np.float32)


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


def relu(dims: Any = None, opset: int = 21) -> onnx.ModelProto:
    return model_of([node("Relu", ["x"], ["y"])], [value("x", X, dims)], opset=opset)


def said(model: onnx.ModelProto, *arguments: Any, **options: Any) -> list[str]:
    """The texts of all warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_onnx(model, *arguments, **options)
    return [str(w.message) for w in caught]


def params(mod: IRModule) -> list[str]:
    return [p.name_hint for p in mod["main"].params]


# -- warnings ------------------------------------------------------------------------------------
def test_the_words_about_a_lower_opset() -> None:
    lower = (
        "You are overwritting original opset ver = 21 by lower ver = 13. "
        "That might cause model conversion errors."
    )
    assert said(relu(), opset=13) == [lower]
    assert said(relu(), opset=21) == said(relu(), opset=22) == said(relu()) == []


def test_the_given_opset_is_the_one_that_converts() -> None:
    """Before 13, Softmax was of everything from its axis on."""
    for own, given in ((13, {12: 1, 13: 4, 21: 4}), (12, {12: 1, 13: 4})):
        model = model_of([node("Softmax", ["x"], ["y"], axis=0)], [value("x", X)], opset=own)
        for opset, total in given.items():
            np.testing.assert_allclose(ours(model, [X], opset=opset)[0].sum(), total, rtol=1e-6)


def test_without_an_opset_it_is_1() -> None:
    model = model_of(
        [node("Add", ["x", "w"], ["y"], broadcast=1, axis=0)],
        [value("x", X), value("w", W[:3])],
        opset=6,
    )
    del model.opset_import[:]
    assert len(said(model)) == 1  # the checker's complaint
    np.testing.assert_array_equal(ours(model, [X, W[:3]])[0], X + W[:3, None])


def test_the_words_about_dimensions_without_a_name() -> None:
    model = relu([None, "n"])
    text = (
        "Input x has unknown dimension shapes: ['', 'n']. "
        "Specifying static values may improve performance"
    )
    assert said(model) == [text]
    assert said(model, {"x": [3, 4]}) == said(model, {"x": ["m", 4]}) == []
    assert said(relu(["m", "n"])) == []


def test_each_complaint_of_the_checker_is_one_warning() -> None:
    model = relu()
    model.graph.node[0].output.append("")
    (text,) = said(model)
    with pytest.raises(onnx.checker.ValidationError, match=re.escape(text.splitlines()[0])):
        onnx.checker.check_model(model)


# -- parameters ----------------------------------------------------------------------------------
def weighted() -> onnx.ModelProto:
    """Weights that ``graph.input`` lists, weights that it does not, and some that nothing needs."""
    inputs = [value("listed", W), value("x", X), value("unused", X), value("idle", W)]
    weights = {n: W * i for i, n in enumerate(("late", "listed", "needless", "early", "idle"))}
    nodes = [
        node("Add", ["x", "early"], ["a"]),
        node("Add", ["a", "late"], ["b"]),
        node("Mul", ["b", "listed"], ["y"]),
    ]
    return model_of(nodes, inputs, weights=weights)


def test_the_order_of_parameters() -> None:
    """That of ``graph.input``; then what is needed of the rest, in the order of initializers."""
    mod = from_onnx(weighted(), keep_params_in_input=True)
    assert params(mod) == ["listed", "x", "unused", "idle", "late", "early"]
    assert mod["main"].attrs["num_input"] == 2
    kept = [p[0] for p in mod["main"].attrs["params"]]
    assert kept == [1, 4, 0, 3]


def test_frozen_weights_vanish_from_the_parameters() -> None:
    mod = from_onnx(weighted())
    assert params(mod) == ["x", "unused"]
    assert mod["main"].attrs["num_input"] == 2
    assert "params" not in mod["main"].attrs
    held = [n.data for n in post_order_deep(mod["main"].body) if isinstance(n, Constant)]
    assert sorted(d[0] for d in held) == [0, 1, 3]
    np.testing.assert_array_equal(ours(weighted(), [X, X])[0], (X + W * 3) * W)


def test_only_a_dictionary_of_dtypes_says_anything() -> None:
    mod = from_onnx(weighted(), {"x": [7, 4]}, {"unused": "float16"})
    x, unused = (p.struct_info for p in mod["main"].params)
    assert isinstance(x, TensorStructInfo)
    assert isinstance(unused, TensorStructInfo)
    assert (x.dims, x.dtype) == ((7, 4), "float32")
    assert (unused.dims, unused.dtype) == ((3, 4), "float16")
    for text in ("float16", "nonsense"):
        assert from_onnx(weighted(), dtype_dict=text).script() == from_onnx(weighted()).script()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("given", [{"i": [1]}, {"v": [3, 4]}, {"y": [3, 4]}])
def test_shapes_are_given_to_inputs_of_the_outermost_graph_only(given: dict[str, Any]) -> None:
    model = loop()
    assert params(from_onnx(model, {"x": [3, 4]})) == ["m", "x"]
    with pytest.raises(ValueError, match=r"the model's inputs are 'm', 'x'$"):
        from_onnx(model, given)
    with pytest.raises(ValueError, match=r"^dtype_dict names "):
        from_onnx(model, dtype_dict=dict.fromkeys(given, "float16"))


def test_a_shape_given_for_a_weight_must_be_its_own() -> None:
    given = {"listed": [4], "x": [3, 4]}
    assert params(from_onnx(weighted(), given)) == ["x", "unused"]
    with pytest.raises(ValueError, match=r"'listed' the shape \(5,\); it is an initializer"):
        from_onnx(weighted(), {"listed": [5]})


# -- inputs and outputs of nodes -------------------------------------------------------------------
def test_an_empty_name_is_an_input_that_is_left_out_in_its_place() -> None:
    clip = model_of([node("Clip", ["x", "", "w"], ["y"])], [value("x", X)], weights={"w": W[1]})
    np.testing.assert_array_equal(ours(clip, [X])[0], np.minimum(X, 2))
    resize = [node("Resize", ["x", "", "", "sizes"], ["y"])]
    sizes = {"sizes": np.array([6, 4])}
    made = ours(model_of(resize, [value("x", X)], weights=sizes), [X])[0]
    np.testing.assert_array_equal(made, X.repeat(2, 0))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("keep", [(True, False), (False, True), (True, True)])
def test_outputs_without_a_name_are_dropped(keep: tuple[bool, bool]) -> None:
    """What is left has its own value; a single one is no tuple."""
    names = [n if k else "" for n, k in zip(("values", "places"), keep, strict=True)]
    wanted = [n for n in names if n]
    model = model_of(
        [node("TopK", ["x", "k"], names)], [value("x", X)], wanted, weights={"k": np.array([2])}
    )
    info = from_onnx(model)["main"].ret_struct_info
    assert isinstance(info, TensorStructInfo if len(wanted) == 1 else TupleStructInfo)
    found = dict(zip(wanted, ours(model, [X]), strict=True))
    if keep[0]:
        np.testing.assert_array_equal(found["values"], X[:, [3, 2]])
    if keep[1]:
        np.testing.assert_array_equal(found["places"], [[3, 2]] * 3)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_words_about_outputs_that_an_operator_lacks() -> None:
    model = model_of([node("Neg", ["x"], ["y", "z"])], [value("x", X)], ["y", "z"])
    with pytest.raises(OpNotImplemented) as e:
        from_onnx(model)
    assert [g.reason for g in e.value.gaps] == ["Number of output mismatch 2 vs 1 in Neg."]


# -- graphs inside the graph -----------------------------------------------------------------------
def loop() -> onnx.ModelProto:
    """y = x + m * (2 * x), whose body reads ``d`` from around it and has a weight of its own."""
    body = helper.make_graph(
        [
            node("Mul", ["d", "half"], ["h"]),
            node("Add", ["v", "h"], ["once"]),
            node("Add", ["once", "h"], ["w"]),
            node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, [3, 4]),
        ],
        [helper.make_empty_tensor_value_info(o) for o in ("on", "w")],
        [onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")],
    )
    nodes = [node("Add", ["x", "x"], ["d"]), node("Loop", ["m", "", "x"], ["y"], body=body)]
    return model_of(nodes, [value("m", np.array(3)), value("x", X)])


def test_the_body_of_a_loop_sees_what_is_around_it() -> None:
    np.testing.assert_array_equal(ours(loop(), [np.array(3), X])[0], X * 7)


def test_a_branch_gives_its_outputs_in_order() -> None:
    def graph(nodes: list[Any], outputs: list[str]) -> Any:
        return helper.make_graph(
            nodes, "g", [], [helper.make_empty_tensor_value_info(o) for o in outputs]
        )

    # The second branch gives what stands outside, twice, and computes nothing.
    then = graph([node("Neg", ["x"], ["b"]), node("Abs", ["b"], ["a"])], ["a", "b"])
    other = graph([], ["x", "x"])
    model = model_of(
        [node("If", ["c"], ["first", "second"], then_branch=then, else_branch=other)],
        [value("c", np.array(True)), value("x", X)],
        ["second", "first"],
    )
    for c, want in ((True, [-X, X]), (False, [X, X])):
        for got, expected in zip(ours(model, [np.array(c), X]), want, strict=True):
            np.testing.assert_array_equal(got, expected)

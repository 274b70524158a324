"""``from_onnx`` itself: inputs, parameters, names, opsets, folding, symbolic shapes, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relax2xla import tir
from relax2xla.errors import FileFormatError, OpNotImplemented
from relax2xla.frontend.onnx import from_onnx
from relax2xla.ir import Call, IRModule, TensorStructInfo, Tuple
from tests.importers.onnx.support import model_of, ours, value
from tests.work import peak

X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.ones((4, 2), np.float32)


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


def calls(mod: IRModule) -> list[str]:
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    return [b.value.op.name for b in bindings if isinstance(b.value, Call)]


def params(mod: IRModule) -> list[str]:
    return [p.name_hint for p in mod["main"].params]


def dims(mod: IRModule) -> Any:
    info = mod["main"].ret_struct_info
    assert isinstance(info, TensorStructInfo)
    return info.dims


def dense(weights_listed: bool = False) -> onnx.ModelProto:
    """y = relu(x @ w); with ``weights_listed`` the weight is an input too, before ``x``."""
    inputs = [value("w", W)] * weights_listed + [value("x", X)]
    nodes = [node("MatMul", ["x", "w"], ["h"], name="fc"), node("Relu", ["h"], ["y"])]
    return model_of(nodes, inputs, weights={"w": W})


# -- what a model may be -------------------------------------------------------------------------
def test_a_message_a_path_and_bytes_give_the_same(tmp_path: Path) -> None:
    model = dense()
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    text = from_onnx(model).script()
    assert from_onnx(path).script() == from_onnx(str(path)).script() == text
    assert from_onnx(model.SerializeToString()).script() == text


@pytest.mark.parametrize("keep", [0, 1, 10, 0.5, 0.9])
def test_truncated_files_give_one_clear_error(keep: float, tmp_path: Path) -> None:
    contents = dense().SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(contents[: int(keep * len(contents)) if isinstance(keep, float) else keep])
    with pytest.raises(FileFormatError, match=r"m.onnx is not an ONNX model, or is truncated"):
        from_onnx(path)


def test_random_bytes_give_a_clear_error() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 7, 100, 5000):
        with pytest.raises(FileFormatError, match="not an ONNX model"):
            from_onnx(rng.bytes(size))


def test_a_missing_file_a_folder_and_other_types(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        from_onnx(tmp_path / "none.onnx")
    with pytest.raises(FileFormatError, match="is a directory"):
        from_onnx(tmp_path)
    with pytest.raises(TypeError, match="takes a ModelProto, a path or bytes; got int"):
        from_onnx(3)  # pyright: ignore[reportArgumentType]


def test_an_old_ir_version_is_refused() -> None:
    model = dense()
    model.ir_version = 2
    with pytest.raises(ValueError, match="ir_version 2"):
        from_onnx(model)


# -- opset ---------------------------------------------------------------------------------------
def test_a_lower_opset_warns_and_a_higher_one_does_not() -> None:
    model = dense()
    with pytest.warns(UserWarning, match="overwritting original opset ver = 21 by lower ver = 13"):
        from_onnx(model, opset=13)
    from_onnx(model, opset=22)


def test_an_opset_that_nobody_knows_warns() -> None:
    model = dense()
    model.opset_import[0].version = 99
    with pytest.warns(UserWarning, match="opset 99, and the newest that this onnx knows"):
        from_onnx(model)


def test_the_opset_is_that_of_the_models_own_operators() -> None:
    """Wherever it stands among the versions of domains; TVM takes the first of them."""
    model = model_of([node("Softmax", ["x"], ["y"], axis=0)], [value("x", X)], opset=13)
    model.opset_import.insert(0, helper.make_opsetid("com.other", 1))
    np.testing.assert_allclose(ours(model, [X])[0].sum(0), np.ones(4), rtol=1e-6)


def test_the_checker_only_warns() -> None:
    model = dense()
    model.graph.node[1].attribute.append(helper.make_attribute("nonsense", 1))
    with pytest.warns(UserWarning, match="nonsense"), pytest.raises(OpNotImplemented) as e:
        from_onnx(model)
    assert [g.reason for g in e.value.gaps] == [
        "the attribute nonsense is not supported (opset 21)"
    ]


def test_a_checker_that_fails_only_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: onnx.ModelProto) -> None:
        raise RuntimeError("the checker itself is broken")

    monkeypatch.setattr(onnx.checker, "check_model", fail)
    with pytest.warns(UserWarning, match="^the checker itself is broken$"):
        assert params(from_onnx(dense())) == ["x"]


# -- inputs --------------------------------------------------------------------------------------
def test_the_users_shape_and_dtype_replace_the_models() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], [value("x", X, ["n", 4])])
    assert dims(from_onnx(model, {"x": [5, 6]})) == (5, 6)
    info = from_onnx(model, dtype_dict="float16")["main"].ret_struct_info
    assert isinstance(info, TensorStructInfo)
    assert info.dtype == "float32"  # a string changes nothing
    info = from_onnx(model, dtype_dict={"x": "float16"})["main"].ret_struct_info
    assert isinstance(info, TensorStructInfo)
    assert info.dtype == "float16"
    with pytest.raises(ValueError, match="shape_dict names 'z'; the model's inputs are 'x'"):
        from_onnx(model, {"z": [1]})


def test_an_unnamed_dimension_warns_unless_the_user_says_it() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], [value("x", X, [None, 4])])
    with pytest.warns(UserWarning, match="Input x has unknown dimension shapes"):
        mod = from_onnx(model)
    assert isinstance(dims(mod)[0], tir.Var)
    assert dims(from_onnx(model, {"x": [3, 4]})) == (3, 4)


def test_a_named_dimension_is_one_variable_everywhere() -> None:
    inputs = [value("a", X, ["batch", 4]), value("b", X, ["batch", 4])]
    model = model_of([node("Add", ["a", "b"], ["y"])], inputs)
    mod = from_onnx(model)
    first, second = (p.struct_info.dims for p in mod["main"].params)
    assert first == second == dims(mod)
    assert first[0].name == "batch"
    # A size given for one input holds for the name.
    assert dims(from_onnx(model, {"a": [7, 4]})) == (7, 4)
    with pytest.raises(ValueError, match="two sizes: 7 and 8"):
        from_onnx(model, {"a": [7, 4], "b": [8, 4]})


def test_names_become_identifiers_and_spans_keep_them() -> None:
    inputs = [value("input:0", X), value("input.0", X), value("0", X)]
    nodes = [
        node("Add", ["input:0", "input.0"], ["s"], name="layer/add"),
        node("Mul", ["s", "0"], ["y"]),
    ]
    model = model_of(nodes, inputs)
    with pytest.warns(UserWarning, match="Renaming name"):
        mod = from_onnx(model)
    assert params(mod) == ["input_0", "input_0_1", "input_0_2"]
    spans = [b.span.name for b in mod["main"].body.blocks[0].bindings[:2]]
    assert spans == ["layer/add", "y"]
    assert [p.span.name for p in mod["main"].params] == ["input:0", "input.0", "0"]
    assert params(from_onnx(model, sanitize_input_names=False)) == ["input:0", "input.0", "0"]


@pytest.mark.filterwarnings("ignore:Renaming name")
def test_names_that_python_keeps_or_ascii_lacks_are_changed() -> None:
    model = model_of(
        [node("Sum", ["class", "größe", "w/1"], ["y"])],
        [value("class", X), value("größe", X)],
        weights={"w/1": X},
    )
    assert params(from_onnx(model)) == ["input_class", "gr__e"]
    kept = from_onnx(model, keep_params_in_input=True)
    assert params(kept) == ["input_class", "gr__e", "w_1"]
    assert [p.span.name for p in kept["main"].params] == ["class", "größe", "w/1"]


@pytest.mark.filterwarnings("ignore:Renaming name")
def test_names_are_those_of_tvm() -> None:
    """As TVM's own tests have them."""
    for given, made in (
        ([".", "123"], ["_", "input_123"]),
        ([".", "_"], ["_", "__1"]),
        (["123", "input_123"], ["input_123", "input_123_1"]),
        (["a..b", "I"], ["a__b", "I"]),
    ):
        model = model_of([node("Add", given, ["y"])], [value(name, X) for name in given])
        assert params(from_onnx(model)) == made


def test_unused_inputs_stay_and_unused_outputs_go() -> None:
    inputs = [value("x", X), value("unused", X)]
    model = model_of([node("Dropout", ["x"], ["y", ""])], inputs)
    mod = from_onnx(model)
    assert params(mod) == ["x", "unused"]
    assert calls(mod) == []


def test_one_output_is_bare_and_several_are_a_tuple() -> None:
    nodes = [node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2)]
    model = model_of(nodes, [value("x", X)], ["b", "a"])
    b, a = ours(model, [X])
    np.testing.assert_array_equal(np.concatenate([a, b], 1), X)


# -- parameters ----------------------------------------------------------------------------------
def test_weights_are_constants_even_where_they_are_listed_as_inputs() -> None:
    for listed in (False, True):
        mod = from_onnx(dense(listed))
        assert params(mod) == ["x"]
        assert mod["main"].attrs["num_input"] == 1
        np.testing.assert_array_equal(ours(dense(listed), [X])[0], X @ W)


def test_weights_kept_as_inputs_keep_their_place() -> None:
    mod = from_onnx(dense(weights_listed=True), keep_params_in_input=True)
    assert params(mod) == ["w", "x"]
    assert mod["main"].attrs["num_input"] == 1
    np.testing.assert_array_equal(mod["main"].attrs["params"][0], W)
    assert params(from_onnx(dense(), keep_params_in_input=True)) == ["x", "w"]


def test_shapes_and_weights_that_nothing_needs_are_no_parameters() -> None:
    weights = {"shape": np.array([4, 3]), "unused": W, "b": np.float32([1, 2, 3])}
    nodes = [node("Reshape", ["x", "shape"], ["h"]), node("Add", ["h", "b"], ["y"])]
    model = model_of(nodes, [value("x", X)], weights=weights)
    mod = from_onnx(model, keep_params_in_input=True)
    assert params(mod) == ["x", "b"]
    assert len(mod["main"].attrs["params"]) == 1


def test_a_blank_initializer_name_is_an_error() -> None:
    model = dense()
    model.graph.initializer[0].name = " "
    with (
        pytest.warns(UserWarning, match=r"."),
        pytest.raises(ValueError, match="Tensor's name is required"),
    ):
        from_onnx(model)


# -- folding -------------------------------------------------------------------------------------
def test_constants_are_folded_into_attributes() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["rows"]),
        node("Mul", ["rows", "two"], ["twice"]),
        node("Concat", ["twice", "minus"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    weights = {"zero": np.array([0]), "two": np.array([2]), "minus": np.array([-1])}
    model = model_of(nodes, [value("x", X)], weights=weights)
    mod = from_onnx(model)
    assert calls(mod) == ["relax.reshape"]
    assert dims(mod) == (6, 2)


def test_what_is_made_at_import_is_folded_further() -> None:
    """As are tables of converters, small kept weights, and what a known branch gives."""
    sizes = {"bins": 3, "length": 4, "rate": 100, "top": 40.0, "low": 0.0}
    mel = node("MelWeightMatrix", ["bins", "length", "rate", "low", "top"], ["m"])
    nodes = [mel, node("Transpose", ["m"], ["t"]), node("MatMul", ["x", "t"], ["y"])]
    weights = {n: np.asarray(v, np.float32 if n in ("low", "top") else None)
               for n, v in sizes.items()}  # fmt: skip
    model = model_of(nodes, [value("x", X[:, :3])], weights=weights)
    assert calls(from_onnx(model)) == ["relax.matmul"]
    twice = [node("Add", ["s", "s"], ["d"]), node("Reshape", ["x", "d"], ["y"])]
    model = model_of(twice, [value("x", X)], weights={"s": np.array([3, 1])})
    mod = from_onnx(model, keep_params_in_input=True)
    assert (calls(mod), params(mod)) == (["relax.reshape"], ["x"])
    shape = node("Constant", [], ["k"], value_ints=[3, 1])
    branch = helper.make_graph([shape], "g", [], [helper.make_empty_tensor_value_info("k")])
    chosen = node("If", ["c"], ["s"], then_branch=branch, else_branch=branch)
    model = model_of([chosen, *twice], [value("x", X)], weights={"c": np.array(True)})
    assert calls(from_onnx(model)) == ["relax.reshape"]


def test_shapes_of_symbolic_dimensions_stay_symbolic() -> None:
    """Shape, Gather, Div, Mul, Concat, Unsqueeze, Where and Expand on symbols are arithmetic."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Gather", ["s", "one"], ["d"]),
        node("Div", ["d", "two"], ["half"]),
        node("Unsqueeze", ["n", "axis"], ["n1"]),
        node("Unsqueeze", ["half", "axis"], ["half1"]),
        node("Concat", ["n1", "pair", "half1"], ["shape"], axis=0),
        node("Equal", ["shape", "minus"], ["is_minus"]),
        node("Where", ["is_minus", "ones", "shape"], ["clean"]),
        node("Reshape", ["x", "clean"], ["y"]),
    ]
    weights = {
        "zero": np.array(0),
        "one": np.array(1),
        "two": np.array(2),
        "axis": np.array([0]),
        "pair": np.array([2]),
        "minus": np.array(-1),
        "ones": np.array([1, 1, 1]),
    }
    model = model_of(nodes, [value("x", X, ["n", 4])], weights=weights)
    mod = from_onnx(model)
    assert calls(mod) == ["relax.reshape"]
    assert str(dims(mod)) == "(n, 2, 2)"
    np.testing.assert_array_equal(ours(model, [X])[0], X.reshape(3, 2, 2))


def test_a_symbolic_size_can_be_a_value_too() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ReduceProd", ["s"], ["count"], keepdims=0),
        node("Neg", ["s"], ["negative"]),
        node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        node("Sqrt", ["f"], ["root"]),
    ]
    model = model_of(nodes, [value("x", X, ["n", 4])], ["count", "negative", "root"])
    count, negative, root = ours(model, [X])
    assert count == 12
    assert negative.tolist() == [-3, -4]
    np.testing.assert_allclose(root, np.sqrt([3, 4]), rtol=1e-6)


def test_large_results_are_left_to_run_time() -> None:
    shape = {"shape": np.array([10**6, 10**3])}
    nodes = [
        node("ConstantOfShape", ["shape"], ["z"]),
        node("Neg", ["z"], ["m"]),
        node("Slice", ["m", "from", "to"], ["y"]),
    ]
    weights = {**shape, "from": np.array([0, 0]), "to": np.array([2, 2])}
    model = model_of(nodes, [value("x", X)], weights=weights)
    assert peak(lambda: from_onnx(model)) < 2**24
    assert "relax.negative" in calls(from_onnx(model))


# -- branches and functions ----------------------------------------------------------------------
def branches(condition: Any) -> list[Any]:
    then = helper.make_graph(
        [node("Add", ["x", "x"], ["t"])], "then", [], [helper.make_empty_tensor_value_info("t")]
    )
    other = helper.make_graph(
        [node("Neg", ["x"], ["e"])], "else", [], [helper.make_empty_tensor_value_info("e")]
    )
    return [node("If", [condition], ["y"], then_branch=then, else_branch=other)]


def test_a_known_condition_picks_its_branch() -> None:
    model = model_of(branches("c"), [value("x", X)], weights={"c": np.array(True)})
    assert calls(from_onnx(model)) == ["relax.add"]


def test_a_branch_sees_the_values_around_it() -> None:
    c = np.array(True)
    model = model_of(branches("c"), [value("c", c), value("x", X)])
    np.testing.assert_array_equal(ours(model, [c, X])[0], X + X)
    np.testing.assert_array_equal(ours(model, [np.array(False), X])[0], -X)


def test_functions_of_the_model_are_inlined() -> None:
    body = helper.make_function(
        "own",
        "Twice",
        ["a", "b"],
        ["c"],
        [node("Add", ["a", "a"], ["t"]), _with_reference(node("LeakyRelu", ["t"], ["c"]))],
        [helper.make_opsetid("", 21)],
        ["slope"],
    )
    call = node("Twice", ["x"], ["y"], domain="own", slope=0.5, name="call")
    model = model_of(
        [call],
        [value("x", X)],
        imports=[helper.make_opsetid("own", 1)],
        functions=[body],
    )
    mod = from_onnx(model)
    assert calls(mod) == ["relax.add", "relax.nn.leakyrelu"]
    assert mod["main"].body.blocks[0].bindings[0].span.name == "call/t"
    np.testing.assert_allclose(ours(model, [-X])[0], -X)


def _with_reference(made: Any) -> Any:
    a = made.attribute.add()
    a.name, a.ref_attr_name, a.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    return made


# -- gaps ----------------------------------------------------------------------------------------
def test_all_gaps_come_in_one_error_before_anything_is_converted() -> None:
    nodes = [
        node("Unknown", ["x"], ["a"], name="first"),
        node("Unknown", ["a"], ["b"], name="second"),
        node("Relu", ["b"], ["c"], name="wrong", slope=1.0),
        node("Twice", ["c"], ["y"], domain="com.other"),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x", X)], [helper.make_tensor_value_info("y", 1, ["p", "q"])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    with pytest.warns(UserWarning, match="Unknown"), pytest.raises(OpNotImplemented) as e:
        from_onnx(model)
    found = [(g.op, g.nodes) for g in e.value.gaps]
    assert found == [
        ("Unknown", ("first", "second")),
        ("Relu", ("wrong",)),
        ("com.other.Twice", ("y",)),
    ]
    assert e.value.gaps[0].reason == "not an operator of ONNX (opset 21)"
    assert "4 nodes of this ONNX model cannot be converted" in str(e.value)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_converters_refuse_is_collected_too() -> None:
    nodes = [
        node("Reshape", ["x", "s"], ["a"], name="r1"),
        node("Relu", ["a"], ["b"]),
        node("Reshape", ["x", "s"], ["c"], name="r2"),
        node("Add", ["b", "c"], ["y"]),
    ]
    model = model_of(nodes, [value("x", X), value("s", np.array([4, 3]), ["n"])])
    message = "shape, whose number of values is not known, is computed at run time"
    with pytest.raises(OpNotImplemented, match=message) as e:
        from_onnx(model)
    assert [g.nodes for g in e.value.gaps] == [("r1", "r2")]


# -- graphs that make no sense -------------------------------------------------------------------
def broken(nodes: list[Any], **more: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", [value("x", X)], [helper.make_tensor_value_info("y", 1, ["p", "q"])], **more
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


BROKEN = {
    "undefined": ([node("Relu", ["nowhere"], ["y"])], "no input, initializer or node has that"),
    "cycle": (
        [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Neg", ["b"], ["y"])],
        "not in topological order, or form a cycle",
    ),
    "twice": ([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])], "'y' is produced twice"),
    "output": ([node("Relu", ["x"], ["z"])], "the value 'y' is read, but"),
    "axis": ([node("Softmax", ["x"], ["y"], axis=7, name="s")], "node 's' .Softmax. cannot be"),
    "permutation": ([node("Transpose", ["x"], ["y"], perm=[0, 5])], "Transpose. cannot be"),
    "attributes": ([node("Concat", ["x", "x"], ["y"], axis=99)], "Concat. cannot be"),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_broken_graphs_give_one_clear_error(what: str) -> None:
    nodes, message = BROKEN[what]
    with pytest.raises(ValueError, match=message):
        from_onnx(broken(nodes))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_a_branch_makes_stays_inside() -> None:
    shape = node("Constant", [], ["k"], value_ints=[12])
    branch = helper.make_graph([shape], "g", [], [helper.make_empty_tensor_value_info("k")])
    model = model_of([node("Relu", ["x"], ["y"])], [value("x", X)], weights={"c": np.array(True)})
    del model.graph.node[:]
    model.graph.node.extend(
        [
            node("If", ["c"], ["s"], then_branch=branch, else_branch=branch),
            node("Reshape", ["x", "k"], ["y"]),
        ]
    )
    with pytest.raises(FileFormatError, match="the value 'k' is read, but no input"):
        from_onnx(model)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_function_sees_its_own_inputs_only() -> None:
    opsets = [helper.make_opsetid("", 21)]
    body = helper.make_function("own", "F", ["v"], ["w"], [node("Add", ["v", "x"], ["w"])], opsets)
    model = model_of(
        [node("F", ["x"], ["y"], domain="own")],
        [value("x", X)],
        imports=[helper.make_opsetid("own", 1)],
        functions=[body],
    )
    with pytest.raises(FileFormatError, match="the value 'x' is read, but no input"):
        from_onnx(model)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_function_that_calls_itself_is_an_error() -> None:
    body = helper.make_function(
        "own", "F", ["a"], ["b"], [node("F", ["a"], ["b"], domain="own")], []
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    graph = broken([node("F", ["x"], ["y"], domain="own")]).graph
    model = helper.make_model(graph, opset_imports=imports, functions=[body], ir_version=9)
    with pytest.raises(FileFormatError, match="a function calls itself"):
        from_onnx(model)


def test_a_long_chain_does_not_recurse() -> None:
    nodes = [node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(5000)]
    nodes.append(node("Neg", ["v5000"], ["y"]))
    assert len(calls(from_onnx(broken(nodes)))) == 5001


def test_the_tuple_of_outputs_is_bound_once() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"])]
    mod = from_onnx(model_of(nodes, [value("x", X)], ["a", "b"]))
    assert isinstance(mod["main"].body.blocks[0].bindings[-1].value, Tuple)

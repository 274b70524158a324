"""Tensors of strings against ONNX's reference, and what the host says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from relax2xla.errors import CallError, OpNotImplemented
from relax2xla.frontend.onnx import from_onnx
from relax2xla.vm.call.machine import VirtualMachine
from relax2xla.vm.plan.build import build

# The outputs have no shapes, of which onnx's checker complains.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

WORDS = np.array([["red apple", "ox"], ["", "big red ox"]], object)
STRING, BOOL, INT64 = TensorProto.STRING, TensorProto.BOOL, TensorProto.INT64


def model(nodes: list[Any], dims: list[Any], outputs: dict[str, int]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", STRING, dims)],
        [helper.make_tensor_value_info(o, code, None) for o, code in outputs.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def machine(made: onnx.ModelProto) -> VirtualMachine:
    return VirtualMachine(build(from_onnx(made), "cpu"), "cpu")


def ours(made: onnx.ModelProto, x: Any) -> list[Any]:
    results = machine(made)["main"](x)
    results = results if isinstance(results, tuple | list) else [results]
    return [np.asarray(r) for r in results]


def theirs(made: onnx.ModelProto, given: dict[str, Any]) -> list[Any]:
    results: Any = onnxruntime.InferenceSession(made.SerializeToString()).run(None, given)
    return results


CASES: list[tuple[list[Any], Any, dict[str, int]]] = [
    (
        [
            helper.make_node("Constant", [], ["c"], value_strings=["-a", "-b"]),
            helper.make_node("StringConcat", ["x", "c"], ["y"]),
        ],
        WORDS,
        {"y": STRING},
    ),
    ([helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=".*red.*")], WORDS, {"y": BOOL}),
    (
        [helper.make_node("StringSplit", ["x"], ["y", "n"], maxsplit=1)],
        WORDS,
        {"y": STRING, "n": INT64},
    ),
    (
        [
            helper.make_node(
                "StringNormalizer", ["x"], ["y"], case_change_action="UPPER", stopwords=["OX"]
            )
        ],
        np.array(["a", "ox", "b"], object),
        {"y": STRING},
    ),
    (
        [
            helper.make_node(
                "LabelEncoder",
                ["x"],
                ["y"],
                domain="ai.onnx.ml",
                keys_strings=["ox", "cow"],
                values_int64s=[3, 4],
                default_int64=-7,
            )
        ],
        np.array(["ox", "pig"], object),
        {"y": INT64},
    ),
]


@pytest.mark.parametrize("at", range(len(CASES)))
def test_strings_agree_with_the_reference(at: int) -> None:
    nodes, x, outputs = CASES[at]
    made = model(nodes, list(x.shape), outputs)
    for got, want in zip(ours(made, x), ReferenceEvaluator(made).run(None, {"x": x}), strict=True):
        assert got.shape == want.shape
        assert got.tolist() == want.tolist()


def test_numbers_made_of_strings_go_on_in_xla() -> None:
    nodes = [
        helper.make_node("StringSplit", ["x"], ["", "n"]),
        helper.make_node("ReduceSum", ["n"], ["y"], keepdims=0),
    ]
    vm = machine(model(nodes, [2, 2], {"y": INT64}))
    assert int(vm["main"](WORDS)) == 6
    assert "relax.text.split" in vm.executable.stats()


def test_what_is_no_string_is_an_error() -> None:
    made = model([helper.make_node("StringSplit", ["x"], ["y", "n"])], [2], {"y": STRING})
    with pytest.raises(CallError, match="must hold strings; got float32"):
        ours(made, np.zeros(2, np.float32))
    pattern = [helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="(")]
    with pytest.raises(CallError, match="is not valid"):
        ours(model(pattern, [2], {"y": BOOL}), np.array(["a", "b"], object))


def test_operators_that_take_no_strings_refuse_them() -> None:
    made = model([helper.make_node("Softmax", ["x"], ["y"])], [2, 2], {"y": STRING})
    with pytest.raises((OpNotImplemented, ValueError), match="Softmax"):
        from_onnx(made)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_strings_are_not_reduced(op: str) -> None:
    nodes = [ints(0, 0), helper.make_node("Constant", [], ["s"], value_ints=[2, 1])]
    nodes += [helper.make_node("Reshape", ["n", "s"], ["i"]), word("p", "q")]
    given = ["x", "i" if op == "ScatterND" else "n", "w"]
    made = model([*nodes, helper.make_node(op, given, ["y"], reduction="max")], [2], {"y": STRING})
    with pytest.raises(OpNotImplemented, match=r"a reduction of strings \(max\)"):
        from_onnx(made)


def ints(*values: int) -> Any:
    return helper.make_node("Constant", [], ["n"], value_ints=values)


def word(*values: str) -> Any:
    return helper.make_node("Constant", [], ["w"], value_strings=values)


ROWS = np.array([["a", "bb", "c"], ["c", "", "a"]], object)
MOVED: list[tuple[str, list[Any], dict[str, int]]] = [
    ("Transpose", [helper.make_node("Transpose", ["x"], ["y"])], {"y": STRING}),
    ("Reshape", [ints(-1, 2), helper.make_node("Reshape", ["x", "n"], ["y"])], {"y": STRING}),
    ("Flatten", [helper.make_node("Flatten", ["x"], ["y"], axis=0)], {"y": STRING}),
    ("Gather", [ints(-1, 0), helper.make_node("Gather", ["x", "n"], ["y"], axis=1)], {"y": STRING}),
    ("Slice", [ints(1), helper.make_node("Slice", ["x", "n", "n"], ["y"])], {"y": STRING}),
    ("Tile", [ints(2, 1), helper.make_node("Tile", ["x", "n"], ["y"])], {"y": STRING}),
    ("Expand", [ints(2, 1, 3), helper.make_node("Expand", ["x", "n"], ["y"])], {"y": STRING}),
    (
        "Split",
        [ints(1, 2), helper.make_node("Split", ["x", "n"], ["y", "z"], axis=1)],
        {"y": STRING, "z": STRING},
    ),
    (
        "Concat",
        [
            word("q"),
            ints(2, 1),
            helper.make_node("Expand", ["w", "n"], ["v"]),
            helper.make_node("Concat", ["x", "v", "x"], ["y"], axis=1),
        ],
        {"y": STRING},
    ),
    (
        "Where",
        [
            word("q"),
            helper.make_node("Equal", ["x", "k"], ["e"]),
            helper.make_node("Where", ["e", "w", "x"], ["y"]),
        ],
        {"y": STRING},
    ),
    (
        "GatherElements",
        [
            ints(0, 1),
            helper.make_node("Reshape", ["n", "m"], ["i"]),
            helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1),
        ],
        {"y": STRING},
    ),
    ("GatherND", [ints(1), helper.make_node("GatherND", ["x", "n"], ["y"])], {"y": STRING}),
    (
        "Compress",
        [
            helper.make_node("Equal", ["x", "k"], ["e"]),
            ints(-1),
            helper.make_node("Reshape", ["e", "n"], ["f"]),
            helper.make_node("Compress", ["x", "f"], ["y"]),
        ],
        {"y": STRING},
    ),
    (
        "ScatterElements",
        [
            ints(1, 0),
            helper.make_node("Reshape", ["n", "m"], ["i"]),
            word("p", "q"),
            helper.make_node("Reshape", ["w", "m"], ["u"]),
            helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=1),
        ],
        {"y": STRING},
    ),
    (
        "ScatterND",
        [
            ints(1, 0),
            helper.make_node("Reshape", ["n", "m"], ["i"]),
            word("p", "q", "r", "s", "t", "u"),
            helper.make_node("Constant", [], ["s"], value_ints=[2, 3]),
            helper.make_node("Reshape", ["w", "s"], ["u"]),
            helper.make_node("ScatterND", ["x", "i", "u"], ["y"]),
        ],
        {"y": STRING},
    ),
    (
        "Unique",
        [helper.make_node("Unique", ["x"], ["y", "i", "j", "n"])],
        {"y": STRING, "i": INT64, "j": INT64, "n": INT64},
    ),
    (
        "Unique, unsorted",
        [helper.make_node("Unique", ["x"], ["y", "i", "j", "n"], sorted=0)],
        {"y": STRING, "i": INT64, "j": INT64, "n": INT64},
    ),
    (
        "Unique, of rows",
        [
            helper.make_node("Concat", ["x", "x"], ["t"], axis=0),
            helper.make_node("Unique", ["t"], ["y", "i", "j", "n"], axis=0),
        ],
        {"y": STRING, "i": INT64, "j": INT64, "n": INT64},
    ),
    (
        "SplitToSequence",
        [
            helper.make_node("SplitToSequence", ["x"], ["t"], axis=-1, keepdims=0),
            helper.make_node("Constant", [], ["l"], value_int=-1),
            helper.make_node("SequenceAt", ["t", "l"], ["y"]),
        ],
        {"y": STRING},
    ),
    (
        "SplitToSequence, of lengths",
        [
            ints(1, 2),
            helper.make_node("SplitToSequence", ["x", "n"], ["t"], axis=1),
            helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=-1),
            helper.make_node("SequenceLength", ["t"], ["z"]),
        ],
        {"y": STRING, "z": INT64},
    ),
    ("Shape", [helper.make_node("Shape", ["x"], ["y"])], {"y": INT64}),
    ("Size", [helper.make_node("Size", ["x"], ["y"])], {"y": INT64}),
    (
        "ArrayFeatureExtractor",
        [
            ints(2),
            helper.make_node("ArrayFeatureExtractor", ["x", "n"], ["y"], domain="ai.onnx.ml"),
        ],
        {"y": STRING},
    ),
    (
        "OneHotEncoder",
        [
            helper.make_node(
                "OneHotEncoder", ["x"], ["y"], domain="ai.onnx.ml", cats_strings=["c", "a"]
            )
        ],
        {"y": TensorProto.FLOAT},
    ),
]


@pytest.mark.parametrize("case", MOVED, ids=lambda case: case[0])
@pytest.mark.parametrize("dims", [[2, 3], ["n", "m"]], ids=["fixed", "symbolic"])
def test_strings_move_as_in_onnx_runtime(case: Any, dims: list[Any]) -> None:
    _, nodes, outputs = case
    constants = [
        helper.make_node("Constant", [], ["k"], value_strings=["c"]),
        helper.make_node("Constant", [], ["m"], value_ints=[2, 1]),
    ]
    made = model([*constants, *nodes], dims, outputs)
    for got, want in zip(ours(made, ROWS), theirs(made, {"x": ROWS}), strict=True):
        assert got.shape == want.shape
        assert got.tolist() == want.tolist()


def test_columns_of_strings_and_numbers_are_encoded_and_joined() -> None:
    """As in a pipeline of scikit-learn: categories in columns of their own, and numbers."""
    onehot: dict[str, Any] = {"domain": "ai.onnx.ml", "cats_strings": ["red", "big"]}
    graph = helper.make_graph(
        [
            helper.make_node("Concat", ["a", "b"], ["ab"], axis=1),
            helper.make_node("OneHotEncoder", ["ab"], ["hot"], **onehot),
            helper.make_node("Flatten", ["hot"], ["flat"]),
            helper.make_node("Cast", ["c"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Concat", ["flat", "number", "d"], ["y"], axis=1),
        ],
        "g",
        [helper.make_tensor_value_info(n, STRING, [None, 1]) for n in "abc"]
        + [helper.make_tensor_value_info("d", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9)
    given = {
        "a": np.array([["red"], ["ox"], ["big"]], object),
        "b": np.array([["big"], ["big"], [""]], object),
        "c": np.array([["1.5"], ["-2e3"], ["7"]], object),
        "d": np.arange(6, dtype=np.float32).reshape(3, 2),
    }
    (want,) = theirs(made, given)
    np.testing.assert_array_equal(np.asarray(machine(made)["main"](*given.values())), want)


WRITTEN = [
    np.array([1.5, 0.1, 1 / 3, 1e10, 1e-7, 123456789, np.inf, -np.inf, np.nan, -0.0], np.float32),
    np.array([0.3, 1e22, 123456789.5], np.float64),
    np.array([-3, 2**40], np.int64),
    np.array([2**64 - 1], np.uint64),
    np.array([True, False]),
    np.array([0.1, 65504], np.float16),
]


@pytest.mark.parametrize("x", WRITTEN, ids=lambda x: x.dtype.name)
def test_numbers_are_written_as_onnx_runtime_writes_them(x: Any) -> None:
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = cast(code, STRING, len(x))
    (want,) = theirs(made, {"x": x})
    assert ours(made, x)[0].tolist() == want.tolist()


READ = [
    (TensorProto.FLOAT, ["1.5", "INF", "-inf", "+INF", "NaN", "1e-5", " 2", ".5", "0x10"]),
    (TensorProto.DOUBLE, ["0.1", "-1e300"]),
    (TensorProto.FLOAT16, ["0.1"]),
    (INT64, ["3", "-7", "+4", "9223372036854775807"]),
    (TensorProto.UINT64, ["18446744073709551615"]),
    (TensorProto.UINT8, ["255"]),
    (BOOL, ["0", "1", "7"]),
]


@pytest.mark.parametrize(("code", "words"), READ)
def test_numbers_are_read_as_onnx_runtime_reads_them(code: int, words: list[str]) -> None:
    made, x = cast(STRING, code, len(words)), np.array(words, object)
    (want,) = theirs(made, {"x": x})
    (got,) = ours(made, x)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("code", "text", "message"),
    [
        (TensorProto.FLOAT, "abc", "'abc' is not a number"),
        (TensorProto.FLOAT, "1_0", "'1_0' is not a number"),
        (INT64, "1.5", "'1.5' is not an integer"),
        (TensorProto.INT8, "300", "'300' does not fit int8"),
    ],
)
def test_texts_of_no_number_are_errors(code: int, text: str, message: str) -> None:
    with pytest.raises(CallError, match=message):
        ours(cast(STRING, code, 1), np.array([text], object))


def cast(source: int, target: int, count: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=target)],
        "g",
        [helper.make_tensor_value_info("x", source, [count])],
        [helper.make_tensor_value_info("y", target, [count])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


@pytest.mark.parametrize(
    "words", [["a", "c", "a", "b", "zz", "a"], [["a", "b"], ["c", "b"]], ["a"]]
)
def test_ngrams_of_strings_agree_with_the_reference(words: Any) -> None:
    x = np.array(words, object)
    node = helper.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode="TFIDF",
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=2,
        ngram_counts=[0, 3],
        ngram_indexes=[0, 1, 2, 3, 4],
        pool_strings=["a", "b", "c", "a", "b", "c", "a"],
        weights=[1.0, 0.5, 2.0, 3.0, 4.0],
    )
    made = model([node], list(x.shape), {"y": TensorProto.FLOAT})
    (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_array_equal(ours(made, x)[0], want)

"""Tensors of strings against ONNX's reference, and what the host says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
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


def model(nodes: list[Any], dims: list[int], outputs: dict[str, int]) -> onnx.ModelProto:
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
    made = model([helper.make_node("Transpose", ["x"], ["y"])], [2, 2], {"y": STRING})
    with pytest.raises((OpNotImplemented, ValueError), match="Transpose"):
        from_onnx(made)


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

"""ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

from relax2xla.frontend.onnx import from_onnx
from tests.importers.onnx.support import agree, ours, theirs, value

# The checker wants shapes of outputs, which shape inference does not give for this domain.
pytestmark = pytest.mark.filterwarnings("ignore:Field 'shape'")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 4), np.float32)
N = RNG.integers(-3, 3, (6, 4))
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
BOTH = {"y": INT, "z": FLOAT}


def numbers(count: int) -> list[float]:
    return [float(v) for v in RNG.standard_normal(count)]


def model_for(op: str, x: Any, outputs: dict[str, int], **attributes: Any) -> onnx.ModelProto:
    opset = attributes.pop("opset", 3)
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", name="n", **attributes)
    results = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    graph = helper.make_graph([node], "g", [value("x", x)], results)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


ONE = {"y": FLOAT}
CASES: list[tuple[str, Any, dict[str, int], dict[str, Any]]] = [
    ("LinearRegressor", X, ONE, {"coefficients": numbers(8), "targets": 2, "intercepts": [0.5, 1]}),
    *(
        (
            "LinearClassifier",
            X,
            BOTH,
            {
                "coefficients": numbers(12),
                "intercepts": numbers(3),
                "classlabels_ints": [3, 5, 9],
                "post_transform": post,
            },
        )
        for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    ),
    ("LinearClassifier", X, BOTH,
     {"coefficients": numbers(4), "intercepts": [0.1], "classlabels_ints": [3, 5],
      "post_transform": "LOGISTIC"}),
    ("Normalizer", X, ONE, {"norm": "L1"}),
    ("Normalizer", X, ONE, {"norm": "L2"}),
    ("Scaler", N, ONE, {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [2.0, 1.0, 0.5, 1.0]}),
    ("Binarizer", X, ONE, {"threshold": 0.3}),
    ("OneHotEncoder", N, ONE, {"cats_int64s": [-1, 0, 2]}),
    ("FeatureVectorizer", X, ONE, {"inputdimensions": [4]}),
    ("Imputer", np.where(X > 0.5, np.float32(np.nan), X), ONE,
     {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}),
    ("Imputer", N, {"y": INT}, {"imputed_value_int64s": [7], "replaced_value_int64": -1}),
    ("LabelEncoder", N, {"y": INT},
     {"keys_int64s": [-1, 0, 2], "values_int64s": [5, 6, 7], "default_int64": 9}),
    *(
        (
            "SVMRegressor",
            X,
            ONE,
            {
                "coefficients": numbers(5),
                "support_vectors": numbers(20),
                "n_supports": 5,
                "rho": [0.2],
                "kernel_type": kernel,
                "kernel_params": [0.3, 0.5, 2.0],
            },
        )
        for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")
    ),
    *(
        (
            "SVMClassifier",
            X,
            BOTH,
            {
                "coefficients": numbers((n - 1) * 3 * n),
                "support_vectors": numbers(12 * n),
                "vectors_per_class": [3] * n,
                "rho": numbers(n * (n - 1) // 2),
                "kernel_type": "RBF",
                "kernel_params": [0.3, 0.0, 0.0],
                "classlabels_ints": list(range(3, 3 + n)),
                **(
                    {"prob_a": [-1.0] * (n * (n - 1) // 2), "prob_b": numbers(n * (n - 1) // 2)}
                    if probabilities
                    else {}
                ),
            },
        )
        for n, probabilities in ((2, False), (3, False), (4, True))
    ),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda k: CASES[k][0])
def test_against_onnxruntime(at: int) -> None:
    op, x, outputs, attributes = CASES[at]
    agree(model_for(op, x, outputs, **attributes), [x])


# -- trees ---------------------------------------------------------------------------------------
MODES = ["LEQ", "LT", "GT", "GTE", "EQ", "NEQ"]


def forest(prefix: str, targets: int, positive: bool = False) -> dict[str, Any]:
    """Five random trees; every leaf has a weight for each target."""
    nodes: list[tuple[Any, ...]] = []
    leaves: list[tuple[int, int, int, float]] = []

    def grow(tree: int, depth: int, start: int) -> int:
        at = len(nodes) - start
        nodes.append(())
        if depth == 0 or (at and RNG.random() < 0.2):
            nodes[start + at] = (tree, at, "LEAF", 0, 0.0, 0, 0, 0)
            for t in range(targets):
                w = float(RNG.standard_normal())
                leaves.append((tree, at, t, abs(w) if positive else w))
            return at
        yes, no = grow(tree, depth - 1, start), grow(tree, depth - 1, start)
        mode = "BRANCH_" + MODES[int(RNG.integers(len(MODES)))]
        split, feature = float(RNG.standard_normal()), int(RNG.integers(4))
        nodes[start + at] = (tree, at, mode, feature, split, yes, no, int(RNG.integers(2)))
        return at

    for tree in range(5):
        grow(tree, 4, len(nodes))
    names = "treeids nodeids modes featureids values truenodeids falsenodeids"
    keys = [f"nodes_{n}" for n in (*names.split(), "missing_value_tracks_true")]
    made = {k: list(v) for k, v in zip(keys, zip(*nodes, strict=True), strict=True)}
    parts = [list(v) for v in zip(*leaves, strict=True)]
    ends = [f"{prefix}_{n}" for n in ("treeids", "nodeids", "ids", "weights")]
    return made | dict(zip(ends, parts, strict=True))


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressor(how: str) -> None:
    x = X.copy()
    x[0, 1] = x[3, 2] = np.nan
    model = model_for(
        "TreeEnsembleRegressor",
        x,
        ONE,
        n_targets=2,
        aggregate_function=how,
        base_values=[0.1, 0.2],
        **forest("target", 2),
    )
    agree(model, [x])


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_tree_classifier(post: str) -> None:
    model = model_for(
        "TreeEnsembleClassifier",
        X,
        BOTH,
        classlabels_int64s=[4, 5, 6],
        post_transform=post,
        **forest("class", 3),
    )
    agree(model, [X])


@pytest.mark.parametrize(
    ("post", "positive"), [("NONE", True), ("NONE", False), ("LOGISTIC", False)]
)
def test_two_classes_by_one_score(post: str, positive: bool) -> None:
    model = model_for(
        "TreeEnsembleClassifier",
        X,
        BOTH,
        classlabels_int64s=[4, 5],
        post_transform=post,
        **forest("class", 1, positive),
    )
    agree(model, [X])


def test_trees_that_are_no_trees() -> None:
    attributes = forest("target", 1)
    at = attributes["nodes_modes"].index(next(m for m in attributes["nodes_modes"] if m != "LEAF"))
    attributes["nodes_truenodeids"][at] = attributes["nodes_nodeids"][at]
    model = model_for("TreeEnsembleRegressor", X, ONE, n_targets=1, **attributes)
    with pytest.raises(ValueError, match="form a cycle"):
        from_onnx(model)


# -- strings -------------------------------------------------------------------------------------
CLASSIFIERS = [c for c in CASES if c[0].endswith("Classifier")]


@pytest.mark.parametrize("case", CLASSIFIERS, ids=lambda c: c[0])
def test_labels_that_are_strings(case: Any) -> None:
    """What numbers were labels before are strings, of all kinds of classifiers."""
    op, x, _, attributes = case
    words = {
        "classlabels_strings" if k.startswith("classlabels") else k: (
            [f"class {n}" for n in v] if k.startswith("classlabels") else v
        )
        for k, v in attributes.items()
    }
    model = model_for(op, x, {"y": TensorProto.STRING, "z": FLOAT}, **words)
    got, want = ours(model, [x]), theirs(model, [x])
    assert got[0].tolist() == want[0].tolist()
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-5)


def test_labels_that_nobody_asks_for() -> None:
    attributes: dict[str, Any] = {
        "coefficients": numbers(12),
        "intercepts": numbers(3),
        "classlabels_strings": ["a", "b", "c"],
    }
    model = model_for("LinearClassifier", X, {"y": TensorProto.STRING, "z": FLOAT}, **attributes)
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    assert ours(model, [X])[0].shape == (6, 3)


@pytest.mark.parametrize(
    ("op", "more", "shape"),
    [
        ("Reshape", [np.array([1, -1])], (1, 6)),
        ("Flatten", [], (6, 1)),
        ("Unsqueeze", [np.array([0])], (1, 6)),
        ("Squeeze", [], (6,)),
        ("Transpose", [], (6,)),
    ],
)
def test_labels_take_another_shape(op: str, more: list[Any], shape: tuple[int, ...]) -> None:
    """Classes are a constant, from which scikit-learn's converters take entries."""
    words = helper.make_tensor("words", TensorProto.STRING, [4], ["a", "b", "c", "d"])
    nodes = [
        helper.make_node("ArrayFeatureExtractor", ["words", "x"], ["row"], domain="ai.onnx.ml"),
        helper.make_node("Reshape", ["row", "flat"], ["label"]),
        helper.make_node(op, ["label", *(["more"] if more else [])], ["y"]),
    ]
    x = np.array([3, 0, 1, 2, 2, 1])
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", x)],
        [helper.make_tensor_value_info("y", TensorProto.STRING, None)],
        [words, onnx.numpy_helper.from_array(np.array([-1]), "flat")]
        + [onnx.numpy_helper.from_array(m, "more") for m in more],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    (got,) = ours(model, [x])
    assert (got.shape, got.tolist()) == (shape, theirs(model, [x])[0].tolist())

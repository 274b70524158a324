# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx.ml: ensembles of decision trees.

All trees are walked side by side, one level an iteration, in a table of nodes; a leaf leads to
itself. Semantics: the operator specifications and, where they are open, ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, Unpack

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import numpy_dtype
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import Array, dims_of, dtype_of, scalar
from relax2xla.importers.onnx.ops.ml import (
    DOMAIN,
    TRANSFORMS,
    floats,
    labels_of,
    rows_of,
    transformed,
)
from relax2xla.importers.shared import loops
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Constant, Expr, ShapeExpr

# Entries of the table of what leaves contribute.
TABLE_LIMIT = 1 << 26
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
LEAF = len(MODES)


@dataclass(frozen=True, slots=True)
class Forest:
    """Nodes of all trees: for each its mode (or LEAF), feature, threshold and children.

    ``missing``: whether NaN takes the true branch, ``members``: (nodes, n) sets filled up with NaN.
    """

    modes: Array
    features: Array
    splits: Array
    true: Array
    false: Array
    missing: Array
    roots: Array
    members: Array | None = None

    def depth(self) -> int:
        """Levels below the roots. Raises ``ValueError`` where the nodes form a cycle."""
        size = len(self.modes)
        for a in (self.true, self.false, self.roots):
            if len(a) and (a.min() < 0 or a.max() >= size):
                raise ValueError("a node that does not exist is named")
        level, current = 0, np.unique(self.roots)
        while True:
            inner = current[self.modes[current] != LEAF]
            if not len(inner):
                return level
            level += 1
            if level > size:
                raise ValueError("the nodes form a cycle")
            current = np.unique(np.concatenate([self.true[inner], self.false[inner]]))

    def leaves(self, ctx: Context, x: Expr) -> Expr:
        """The leaf of each tree for each row of ``x``: (rows, trees), int64."""
        kind = dtype_of(x)
        depth = self.depth()
        trees = len(self.roots)
        count = dims_of(x)[0]
        start = R.broadcast_to(Constant(self.roots.astype(np.int64)), ShapeExpr((count, trees)))

        def step(_: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
            (at,) = values

            def looked_up(table: Array) -> Expr:
                return R.take(Constant(np.ascontiguousarray(table)), at, 0)

            seen = ctx.emit(R.gather_elements(x, looked_up(self.features), 1))
            split = ctx.emit(looked_up(self.splits.astype(numpy_dtype(kind))))
            mode = ctx.emit(looked_up(self.modes.astype(np.int32)))
            verdict: Expr | None = None
            for m in sorted(set(self.modes.tolist()) - {LEAF}):
                one = self._test(m, seen, split, at)
                chosen = R.equal(mode, scalar(m, "int32"))
                verdict = one if verdict is None else R.where(chosen, one, verdict)
            assert verdict is not None
            if self.missing.any():
                verdict = R.logical_or(
                    verdict, R.logical_and(R.isnan(seen), looked_up(self.missing.astype(bool)))
                )
            follow = R.where(
                verdict,
                looked_up(self.true.astype(np.int64)),
                looked_up(self.false.astype(np.int64)),
            )
            return [follow], []

        if not depth:
            return start
        return loops.scan(ctx.builder, depth, step, [start], [])[0][0]

    def _test(self, mode: int, seen: Expr, split: Expr, at: Expr) -> Expr:
        tests = {
            "LEQ": R.less_equal,
            "LT": R.less,
            "GTE": R.greater_equal,
            "GT": R.greater,
            "EQ": R.equal,
            "NEQ": R.not_equal,
        }
        if MODES[mode] in tests:
            return tests[MODES[mode]](seen, split)
        assert self.members is not None
        listed = R.take(Constant(self.members.astype(numpy_dtype(dtype_of(seen)))), at, 0)
        same = R.equal(R.expand_dims(seen, [2]), listed)
        return R.astype(R.max(R.astype(same, "int8"), [2]), "bool")


def _combined(
    ctx: Context,
    leaf: Expr,
    weights: Sequence[tuple[int, int, float]],
    nodes: int,
    targets: int,
    how: str,
    dtype: str,
) -> Expr:
    """Sums (or the least, the largest) over trees of what leaves say about targets.

    weights: leaf, target, weight
    """
    if targets < 1:
        raise ValueError(f"it has {targets} targets")
    if nodes * targets > TABLE_LIMIT:
        raise Unsupported(f"trees of {nodes} nodes with {targets} targets")
    real = numpy_dtype(dtype)
    empty = {"MIN": np.finfo(real).max, "MAX": np.finfo(real).min}.get(how, 0.0)
    table = np.full((nodes, targets), empty, real)
    for node, target, weight in weights:
        if not 0 <= target < targets:
            raise ValueError(f"the target {target} of {targets}")
        if how in ("SUM", "AVERAGE"):
            table[node, target] += weight
        else:
            pick = min if how == "MIN" else max
            table[node, target] = pick(table[node, target], weight)
    seen = R.take(Constant(table), leaf, 0)
    rule = {"MIN": R.min, "MAX": R.max}.get(how, R.sum)
    made = rule(seen, [1])
    if how == "AVERAGE":
        trees = dims_of(leaf)[1]
        made = R.divide(made, R.astype(ctx.size(trees, "int64"), dtype))
    return made


# -- opset 5 -------------------------------------------------------------------------------------
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@onnx_op("TreeEnsemble", since=5, domain=DOMAIN)
def tree_ensemble(
    ctx: Context,
    X: Expr,
    *,
    aggregate_function: int = 1,
    leaf_targetids: list[int],
    leaf_weights: Array,
    membership_values: Array | None = None,
    n_targets: int | None = None,
    nodes_falseleafs: list[int],
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: Array | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: Array,
    nodes_splits: Array,
    nodes_trueleafs: list[int],
    nodes_truenodeids: list[int],
    post_transform: int = 0,
    tree_roots: list[int],
) -> Expr:
    """``nodes_hitrates`` is about speed. Leaves come after the nodes in the table."""
    how = _AGGREGATES[choice(aggregate_function, range(4), "aggregate_function")]
    count, leaves = len(nodes_featureids), len(leaf_targetids)
    modes = nodes_modes.reshape(-1).astype(np.int64)
    if count and (modes.min() < 0 or modes.max() >= LEAF):
        raise ValueError("nodes_modes has a mode that is not defined")

    def whole(values: Any, fill: Any, dtype: Any) -> Array:
        return np.concatenate([np.asarray(values, dtype), np.full(leaves, fill, dtype)])

    own = np.arange(count, count + leaves)

    def children(ids: Sequence[int], leaf: Sequence[int]) -> Array:
        to = np.asarray(ids, np.int64) + np.where(np.asarray(leaf, bool), count, 0)
        return np.concatenate([to, own])

    members = None
    if (modes == MODES.index("MEMBER")).any():
        members = _members(modes, membership_values, leaves)
    forest = Forest(
        whole(modes, LEAF, np.int64),
        whole(nodes_featureids, 0, np.int64),
        whole(nodes_splits.reshape(-1), 0, np.float64),
        children(nodes_truenodeids, nodes_trueleafs),
        children(nodes_falsenodeids, nodes_falseleafs),
        whole(nodes_missing_value_tracks_true or [0] * count, 0, np.int64),
        np.asarray(tree_roots, np.int64),
        members,
    )
    kind = dtype_of(X)
    weights = [
        (count + i, t, float(w))
        for i, (t, w) in enumerate(zip(leaf_targetids, leaf_weights.reshape(-1), strict=True))
    ]
    targets = n_targets if n_targets is not None else max(leaf_targetids) + 1
    x = floats(ctx, rows_of(X))
    made = _combined(ctx, forest.leaves(ctx, x), weights, count + leaves, targets, how, dtype_of(x))
    made = transformed(made, TRANSFORMS[choice(post_transform, range(5), "post_transform")])
    return ctx.cast(made, kind)


def _members(modes: Array, values: Array | None, leaves: int) -> Array:
    """Sets of the nodes, in order of the nodes, which NaN ends in ``values``."""
    sets: list[list[float]] = [[]]
    for v in (np.array([]) if values is None else values).reshape(-1).tolist():
        if np.isnan(v):
            sets.append([])
        else:
            sets[-1].append(v)
    if sets and not sets[-1]:
        sets.pop()
    at = np.flatnonzero(modes == MODES.index("MEMBER"))
    if len(sets) != len(at):
        raise ValueError(f"{len(sets)} sets in membership_values for {len(at)} nodes")
    table = np.full((len(modes) + leaves, max(map(len, sets))), np.nan)
    for node, items in zip(at, sets, strict=True):
        table[node, : len(items)] = items
    return table


# -- before opset 5 ------------------------------------------------------------------------------
class Nodes(TypedDict):
    """The attributes of the older operators that say their nodes, and what is added to scores.

    ``nodes_hitrates`` and ``nodes_hitrates_as_tensor`` are about speed.
    """

    base_values: Annotated[list[float] | None, None]
    base_values_as_tensor: Annotated[Array | None, None]
    nodes_falsenodeids: list[int]
    nodes_featureids: list[int]
    nodes_hitrates: Annotated[list[float] | None, None]
    nodes_hitrates_as_tensor: Annotated[Array | None, None]
    nodes_missing_value_tracks_true: Annotated[list[int] | None, None]
    nodes_modes: list[str]
    nodes_nodeids: list[int]
    nodes_treeids: list[int]
    nodes_truenodeids: list[int]
    nodes_values: Annotated[list[float] | None, None]
    nodes_values_as_tensor: Annotated[Array | None, None]


@dataclass(frozen=True, slots=True)
class Listed:
    """The trees of the older operators, the positions of their nodes, and what is added at last."""

    forest: Forest
    index: dict[tuple[int, int], int]
    base: Array

    @staticmethod
    def of(nodes: Nodes) -> Listed:
        """A tree's root is its first node."""
        treeids, nodeids = nodes["nodes_treeids"], nodes["nodes_nodeids"]
        index = {key: i for i, key in enumerate(zip(treeids, nodeids, strict=True))}
        if len(index) != len(treeids):
            raise ValueError("two nodes of a tree have the same number")
        codes = {f"BRANCH_{m}": i for i, m in enumerate(MODES[:-1])} | {"LEAF": LEAF}
        named = [codes[choice(m, codes, "nodes_modes")] for m in nodes["nodes_modes"]]
        kinds = np.array(named, np.int64)

        def children(ids: Sequence[int]) -> Array:
            found = [
                i if kinds[i] == LEAF else index[treeids[i], child] for i, child in enumerate(ids)
            ]
            return np.array(found, np.int64)

        roots: dict[int, int] = {}
        for i, tree in enumerate(treeids):
            roots.setdefault(tree, i)
        values = _either(nodes["nodes_values"], nodes["nodes_values_as_tensor"])
        missing = nodes["nodes_missing_value_tracks_true"] or [0] * len(kinds)
        forest = Forest(
            kinds,
            np.where(kinds == LEAF, 0, np.asarray(nodes["nodes_featureids"], np.int64)),
            np.asarray(values, np.float64).reshape(-1),
            children(nodes["nodes_truenodeids"]),
            children(nodes["nodes_falsenodeids"]),
            np.asarray(missing, np.int64),
            np.array(list(roots.values()), np.int64),
        )
        base = _either(nodes["base_values"], nodes["base_values_as_tensor"])
        return Listed(forest, index, np.asarray(base, np.float64).reshape(-1))

    def weights(
        self, trees: Sequence[int], nodes: Sequence[int], targets: Sequence[int], weights: Any
    ) -> list[tuple[int, int, float]]:
        """Leaf, target and weight of each entry."""
        return [
            (self.index[tree, node], target, float(w))
            for tree, node, target, w in zip(
                trees, nodes, targets, np.asarray(weights).reshape(-1), strict=True
            )
        ]


def _either(floats_given: Any, tensor: Array | None) -> Any:
    if tensor is not None and floats_given:
        raise ValueError("a list is given twice, as floats and as a tensor")
    return tensor if tensor is not None else floats_given or []


@onnx_op("TreeEnsembleRegressor", domain=DOMAIN)
def tree_regressor(
    ctx: Context,
    X: Expr,
    *,
    aggregate_function: str = "SUM",
    n_targets: int | None = None,
    post_transform: str = "NONE",
    target_ids: list[int],
    target_nodeids: list[int],
    target_treeids: list[int],
    target_weights: list[float] | None = None,
    target_weights_as_tensor: Array | None = None,
    **nodes: Unpack[Nodes],
) -> Expr:
    how = choice(aggregate_function, _AGGREGATES, "aggregate_function")
    trees = Listed.of(nodes)
    x = floats(ctx, rows_of(X))
    kind = dtype_of(x)
    targets = n_targets if n_targets is not None else max(target_ids) + 1
    weights = trees.weights(
        target_treeids,
        target_nodeids,
        target_ids,
        _either(target_weights, target_weights_as_tensor),
    )
    leaf = trees.forest.leaves(ctx, x)
    made = _combined(ctx, leaf, weights, len(trees.index), targets, how, kind)
    if trees.base.size:
        made = R.add(made, Constant(trees.base.astype(numpy_dtype(kind))))
    return ctx.cast(transformed(made, post_transform), "float32")


@onnx_op("TreeEnsembleClassifier", domain=DOMAIN)
def tree_classifier(
    ctx: Context,
    X: Expr,
    *,
    class_ids: list[int],
    class_nodeids: list[int],
    class_treeids: list[int],
    class_weights: list[float] | None = None,
    class_weights_as_tensor: Array | None = None,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    post_transform: str = "NONE",
    **nodes: Unpack[Nodes],
) -> list[Expr | None]:
    """Two classes of which one has weights: see ``_binary``."""
    trees = Listed.of(nodes)
    x = floats(ctx, rows_of(X))
    kind = dtype_of(x)
    classes = len(classlabels_int64s or classlabels_strings or [])
    if classes < 2:
        raise Unsupported(f"{classes} classes")
    given = _either(class_weights, class_weights_as_tensor)
    binary = classes == 2 and len(set(class_ids)) == 1
    ids = [0] * len(class_ids) if binary else class_ids
    weights = trees.weights(class_treeids, class_nodeids, ids, given)
    columns = 1 if binary else classes
    leaf = trees.forest.leaves(ctx, x)
    scores = _combined(ctx, leaf, weights, len(trees.index), columns, "SUM", kind)
    if binary:
        if trees.base.size:
            scores = R.add(scores, scalar(trees.base[-1], kind))
        positive = bool((np.asarray(given) >= 0).all())
        index, scores = _binary(ctx, ctx.emit(scores), positive, post_transform)
    else:
        if trees.base.size:
            scores = R.add(scores, Constant(trees.base.astype(numpy_dtype(kind))))
        scores = ctx.emit(scores)
        index = R.argmax(scores, axis=1)
        scores = transformed(scores, post_transform)
    labels = labels_of(ctx, index, classlabels_int64s, classlabels_strings)
    return [labels, ctx.cast(scores, "float32")]


def _binary(ctx: Context, score: Expr, positive: bool, post_transform: str) -> tuple[Expr, Expr]:
    """Which class, and the scores of both, from one score (rows, 1).

    With weights that are all positive the score is a probability, else the second class's margin.
    A transform is of the margins in both cases.
    """
    kind = dtype_of(score)
    if post_transform == "PROBIT":
        raise Unsupported("PROBIT of one score")
    limit = 0.5 if positive else 0
    index = R.astype(R.greater(R.squeeze(score, [1]), scalar(limit, kind)), "int64")
    if positive and post_transform == "NONE":
        return index, R.concat([R.subtract(scalar(1, kind), score), score], 1)
    return index, transformed(R.concat([R.negative(score), score], 1), post_transform)

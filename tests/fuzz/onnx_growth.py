"""A random ONNX model as it grows: values, and nodes that ONNX's reference evaluates at once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator

Array = npt.NDArray[Any]

OPSET = 18
SIZES = (0, 1, 1, 2, 2, 3, 3)
KINDS = ("float32", "float32", "float32", "int64", "int64", "int32", "bool", "float64")
FLOATS, INTS = ("float32", "float64"), ("int64", "int32")
NUMBERS = (*FLOATS, *INTS)
# Elements of one value, and the size of its numbers.
ELEMENTS, LARGE = 4096, 1e4


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the graph: its name, what it is for the inputs of the seed, and how it came."""

    name: str
    data: Array
    exact: bool = True


class NoFit(Exception):
    """The values so far have no operands for the operator that was drawn."""


class Graph:
    """A model as it grows."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.inputs: dict[str, Array] = {}
        self.values: list[Value] = []
        self.used: set[str] = set()
        self.static: set[str] = set()
        self.count = 0

    # -- drawing -----------------------------------------------------------------------------
    def pick(self, items: Sequence[Any]) -> Any:
        """One of ``items``."""
        if not items:
            raise NoFit
        return items[int(self.rng.integers(len(items)))]

    def chance(self, of: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < of)

    def between(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def shape(self, ranks: Sequence[int] = (0, 1, 2, 2, 3, 3, 4)) -> tuple[int, ...]:
        """A shape of small sizes."""
        return tuple(self.pick(SIZES) for _ in range(self.pick(ranks)))

    def numbers(self, shape: Sequence[int], kind: str) -> Array:
        """Small numbers that floats hold exactly."""
        if kind == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if kind in FLOATS:
            return (self.rng.integers(-12, 13, shape) / 4).astype(kind)
        return self.rng.integers(-5, 6, shape).astype(kind)

    def value(
        self,
        kinds: Sequence[str] = NUMBERS,
        fits: Callable[[Value], bool] = lambda v: True,
        exact: bool = False,
    ) -> Value:
        """One of the values so far, of one of these dtypes; or a new leaf if none fits."""
        found = [
            v
            for v in self.values
            if str(v.data.dtype) in kinds and fits(v) and (v.exact or not exact)
        ]
        if found:
            return self.pick(found[-6:] if self.chance(0.7) else found)
        made = self.leaf(self.numbers(self.shape(), self.pick(kinds)))
        if not fits(made):
            raise NoFit
        return made

    def beside(self, x: Value, exact: bool = False) -> Value:
        """A value that broadcasts with ``x``, of the same dtype."""

        def fits(v: Value) -> bool:
            try:
                return math.prod(np.broadcast_shapes(v.data.shape, x.data.shape)) <= ELEMENTS
            except ValueError:
                return False

        if self.chance(0.5):
            kind = str(x.data.dtype)
            found = [v for v in self.values if str(v.data.dtype) == kind and fits(v)]
            found = [v for v in found if v.exact or not exact]
            if found:
                return self.pick(found)
        shape = [d if self.chance(0.7) else 1 for d in x.data.shape]
        if 1 in shape and self.chance(0.3):
            shape[shape.index(1)] = self.pick(SIZES)
        shape = shape[self.between(0, len(shape)) :] if self.chance(0.4) else shape
        shape = [1, *shape] if self.chance(0.2) else shape
        made = self.leaf(self.numbers(shape, str(x.data.dtype)))
        if not fits(made):
            raise NoFit
        return made

    def axis(self, x: Value) -> int:
        """An axis of ``x``, from the front or from the back."""
        rank = x.data.ndim
        if not rank:
            raise NoFit
        return self.between(-rank, rank - 1)

    # -- making ------------------------------------------------------------------------------
    def name(self, prefix: str) -> str:
        """A new name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def leaf(self, data: Array, known: float = 0.5) -> Value:
        """An initializer, or (with the probability ``1 - known``) an input of the model."""
        data = np.asarray(data)
        inside = self.chance(known)
        made = Value(self.name("w" if inside else "x"), data)
        (self.weights if inside else self.inputs)[made.name] = data
        if data.size <= ELEMENTS:
            self.values.append(made)
        return made

    def known(self, data: Any, kind: str = "int64") -> Value:
        """Numbers that say a shape or positions: mostly an initializer, and never open in size."""
        return self.closed(self.leaf(np.asarray(data, kind), 0.8))

    def closed(self, leaf: Value) -> Value:
        """A leaf whose sizes are in the model, for what needs them at import."""
        self.static.add(leaf.name)
        return leaf

    def sizes(self, dims: Sequence[int]) -> Value:
        """A vector of sizes: known, given at run time, or pieced together from shapes."""
        if not dims or self.chance(0.6):
            return self.known(list(dims))
        parts = [self.size(d) for d in dims]
        (made,) = self.emit("Concat", parts, axis=0)
        return made

    def size(self, dim: int) -> Value:
        """A vector of one size."""
        found = [
            (v, i) for v in self.values for i, d in enumerate(v.data.shape) if d == dim and dim >= 0
        ]
        if not found or self.chance(0.3):
            return self.known([dim])
        v, at = self.pick(found)
        (shape,) = self.emit("Shape", [v])
        if self.chance(0.5):
            ends = [self.leaf(np.asarray(e, np.int64), 1.0) for e in ([at], [at + 1])]
            (made,) = self.emit("Slice", [shape, *ends])
            return made
        (one,) = self.emit("Gather", [shape, self.leaf(np.asarray(at), 1.0)], axis=0)
        (made,) = self.emit("Unsqueeze", [one, self.leaf(np.asarray([0]), 1.0)])
        return made

    def emit(
        self,
        op: str,
        operands: Sequence[Value | None],
        outputs: int = 1,
        exact: bool = True,
        **attributes: Any,
    ) -> list[Value]:
        """A node; ``NoFit`` where the reference refuses it or its result is too large.

        exact: whether it rounds nothing
        """
        names = ["" if v is None else v.name for v in operands]
        results = [self.name("v") for _ in range(outputs)]
        node = helper.make_node(op, names, results, name=f"n{self.count}", **attributes)
        given = {v.name: v.data for v in operands if v is not None}
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                arrays = _evaluated(node, given, results)
        except Exception as e:  # the reference raises whatever numpy does
            raise NoFit from e
        exact = exact and all(v.exact for v in operands if v is not None)
        made = [Value(n, a, exact) for n, a in zip(results, arrays, strict=True)]
        for v in made:
            large = v.data.dtype.kind in "fi" and v.data.size and np.abs(v.data).max() > LARGE
            if v.data.size > ELEMENTS or v.data.ndim > 6 or large or not _finite(v.data):
                raise NoFit
        self.nodes.append(node)
        self.used.update(given)
        self.values.extend(made)
        return made


def _finite(data: Array) -> bool:
    return data.dtype.kind != "f" or bool(np.isfinite(data).all())


def info(name: str, data: Array, dims: Sequence[int | str] | None = None) -> Any:
    """What a graph says of a value; ``dims`` if other sizes than those of ``data``."""
    code = helper.np_dtype_to_tensor_dtype(data.dtype)
    return helper.make_tensor_value_info(name, code, data.shape if dims is None else dims)


def _evaluated(node: NodeProto, given: dict[str, Array], results: Sequence[str]) -> list[Array]:
    """What the reference makes of one node."""
    outputs = [helper.make_empty_tensor_value_info(r) for r in results]
    infos = [info(n, a) for n, a in given.items()]
    made = model(helper.make_graph([node], "g", infos, outputs))
    copies = {n: np.array(a) for n, a in given.items()}
    arrays: list[Any] = ReferenceEvaluator(made).run(None, copies)  # pyright: ignore
    return [np.asarray(a) for a in arrays]


def model(graph: GraphProto) -> ModelProto:
    """A model of opset ``OPSET``."""
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)

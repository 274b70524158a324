"""Random ONNX models with small sizes, 0 and 1 among them, from seeds.

A model is grown node by node: an operator of the table draws its operands among the values so far,
and ONNX's own reference evaluates the node, which says whether it is valid and what comes out. So
inputs that say shapes and positions fit, wherever they come from: initializers, inputs of the
model, or arithmetic on shapes such as exporters write. The same seed gives the same model and the
same inputs with the same releases of onnx and numpy.

Values are small. What is rounded on the way (``exact`` is False) never meets an operator that
jumps, such as ``Floor`` or ``ArgMax``, so that results of two runtimes can be compared closely.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = npt.NDArray[Any]

OPSET = 18
SIZES = (0, 1, 1, 2, 2, 3, 3)
KINDS = ("float32", "float32", "float32", "int64", "int64", "int32", "bool", "float64")
FLOATS, INTS = ("float32", "float64"), ("int64", "int32")
NUMBERS = (*FLOATS, *INTS)
# Elements of one value, and the size of its numbers.
ELEMENTS, LARGE = 4096, 1e4
# Draws of one node before the model is left as it is.
TRIES = 30


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


def _info(name: str, data: Array, dims: Sequence[int | str] | None = None) -> Any:
    code = helper.np_dtype_to_tensor_dtype(data.dtype)
    return helper.make_tensor_value_info(name, code, data.shape if dims is None else dims)


def _only(wanted: bool, **attributes: Any) -> dict[str, Any]:
    """Attributes that a node has or leaves out."""
    return attributes if wanted else {}


def _evaluated(node: NodeProto, given: dict[str, Array], results: Sequence[str]) -> list[Array]:
    """What the reference makes of one node."""
    outputs = [helper.make_empty_tensor_value_info(r) for r in results]
    infos = [_info(n, a) for n, a in given.items()]
    made = _model(helper.make_graph([node], "g", infos, outputs))
    copies = {n: np.array(a) for n, a in given.items()}
    arrays: list[Any] = ReferenceEvaluator(made).run(None, copies)  # pyright: ignore
    return [np.asarray(a) for a in arrays]


def _model(graph: GraphProto) -> ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


# -- the operators: each draws operands and emits -------------------------------------------
Rule = Callable[[Graph], object]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Callable[[Graph, str], object]], Callable[[Graph, str], object]]:
    """Register what draws the operands of these operators."""

    def register(draw: Callable[[Graph, str], object]) -> Callable[[Graph, str], object]:
        for name in names:
            RULES[name] = lambda g, name=name: draw(g, name)
        return draw

    return register


@rule("Abs", "Neg", "Sign", "Identity")
def _unary(g: Graph, op: str) -> object:
    return g.emit(op, [g.value(exact=op == "Sign")])


@rule("Floor", "Ceil", "Round")
def _steps(g: Graph, op: str) -> object:
    return g.emit(op, [g.value(FLOATS, exact=True)])


@rule("Exp", "Tanh", "Sigmoid", "Softplus", "Softsign", "Erf", "Elu", "LeakyRelu", "HardSigmoid")
def _rounding(g: Graph, op: str) -> object:
    return g.emit(op, [g.value(("float32",))], exact=False)


@rule("Relu", "Clip")
def _bounded(g: Graph, op: str) -> object:
    x = g.value(("float32", "int32") if op == "Relu" else NUMBERS)
    if op == "Relu":
        return g.emit(op, [x])
    bounds = [
        g.leaf(g.numbers((), str(x.data.dtype)), 0.7) if g.chance(0.7) else None for _ in range(2)
    ]
    return g.emit(op, [x, *bounds])


@rule("Add", "Sub", "Mul")
def _arithmetic(g: Graph, op: str) -> object:
    x = g.value()
    pair = [x, g.beside(x)]
    return g.emit(op, pair if g.chance(0.5) else pair[::-1])


@rule("Min", "Max", "Sum", "Mean")
def _variadic(g: Graph, op: str) -> object:
    x = g.value(("float32",) if op in ("Sum", "Mean") else NUMBERS)
    more = [g.beside(x) for _ in range(g.between(0, 2))]
    return g.emit(op, [x, *more], exact=op != "Mean")


@rule("Div", "Mod")
def _division(g: Graph, op: str) -> object:
    x = g.value(INTS if op == "Mod" else NUMBERS, exact=True)
    y = g.beside(x)
    if not y.data.all():
        raise NoFit
    exact = x.data.dtype.kind == "i"
    return g.emit(op, [x, y], exact=exact, **_only(op == "Mod", fmod=g.between(0, 1)))


@rule("Pow")
def _power(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"))
    shape = [1] * g.between(0, 4) if g.chance(0.7) else x.data.shape
    exponent = g.rng.integers(0, 4, shape).astype(g.pick(("float32", "int64")))
    return g.emit(op, [x, g.leaf(exponent)], exact=x.data.dtype.kind == "i")


@rule("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
def _comparison(g: Graph, op: str) -> object:
    x = g.value(exact=True)
    return g.emit(op, [x, g.beside(x, exact=True)])


@rule("And", "Or", "Xor", "Not")
def _logic(g: Graph, op: str) -> object:
    x = g.value(("bool",))
    return g.emit(op, [x] if op == "Not" else [x, g.beside(x)])


@rule("Where")
def _where(g: Graph, op: str) -> object:
    x = g.value()
    y = g.beside(x)
    shape = np.broadcast_shapes(x.data.shape, y.data.shape)
    shape = [d if g.chance(0.7) else 1 for d in shape]
    return g.emit(op, [g.leaf(g.numbers(shape, "bool")), x, y])


@rule("Cast")
def _cast(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), exact=True)
    kind = g.pick((*NUMBERS, "bool", "float16", "int8", "uint8"))
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return g.emit(op, [x], to=code)


# -- shapes
@rule("Reshape")
def _reshape(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    dims = _regrouped(g, x.data.shape)
    zero = 0
    if 0 in x.data.shape and g.chance(0.3):
        zero = 1
    else:
        # 0 copies the size at the same place.
        dims = [
            0 if i < x.data.ndim and d == x.data.shape[i] and g.chance(0.4) else d
            for i, d in enumerate(dims)
        ]
    if dims and g.chance(0.4) and not (zero and 0 in dims):
        dims[g.between(0, len(dims) - 1)] = -1
    return g.emit(op, [x, g.sizes(dims)], **_only(zero == 1, allowzero=zero))


def _regrouped(g: Graph, shape: Sequence[int]) -> list[int]:
    """Sizes of as many elements."""
    total = math.prod(shape)
    if not total:
        dims = list(g.shape((1, 2, 3)))
        return dims if 0 in dims else [*dims[:-1], 0]
    dims: list[int] = []
    for factor in (2, 2, 3, 3, 4):
        if total % factor == 0 and g.chance(0.5):
            dims.append(factor)
            total //= factor
    dims.append(total)
    dims += [1] * g.between(0, 2)
    return [dims[int(i)] for i in g.rng.permutation(len(dims))]


@rule("Flatten")
def _flatten(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    return g.emit(op, [x], axis=g.between(-x.data.ndim, x.data.ndim))


@rule("Squeeze")
def _squeeze(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: 1 in v.data.shape)
    if g.chance(0.2) and x.name in g.weights:  # else the rank would depend on the sizes
        return g.emit(op, [x])
    ones = [i for i, d in enumerate(x.data.shape) if d == 1]
    axes = sorted({g.pick(ones) for _ in range(2)})
    return g.emit(op, [x, g.known([a - x.data.ndim if g.chance(0.3) else a for a in axes])])


@rule("Unsqueeze")
def _unsqueeze(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    count = g.between(1, 2)
    rank = x.data.ndim + count
    axes = [int(a) for a in g.rng.permutation(rank)[:count]]
    return g.emit(op, [x, g.known([a - rank if g.chance(0.3) else a for a in axes])])


@rule("Transpose")
def _transpose(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    perm = [int(i) for i in g.rng.permutation(x.data.ndim)]
    return g.emit(op, [x], **_only(bool(perm) and g.chance(0.8), perm=perm))


@rule("Expand")
def _expand(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    dims = [g.pick(SIZES) if d == 1 else d if g.chance(0.7) else 1 for d in x.data.shape]
    dims = [*g.shape((0, 0, 1)), *dims] if g.chance(0.7) else dims[g.between(0, len(dims)) :]
    return g.emit(op, [x, g.sizes(dims)])


@rule("Tile")
def _tile(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    return g.emit(op, [x, g.sizes([g.pick((0, 1, 1, 2, 3)) for _ in x.data.shape])])


@rule("Concat")
def _concat(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0)
    axis = g.axis(x)
    parts = [x]
    for _ in range(g.between(0, 2)):
        shape = list(x.data.shape)
        shape[axis] = g.pick(SIZES)
        parts.append(x if g.chance(0.3) else g.leaf(g.numbers(shape, str(x.data.dtype))))
    return g.emit(op, [parts[int(i)] for i in g.rng.permutation(len(parts))], axis=axis)


@rule("Split")
def _split(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0)
    axis = g.axis(x)
    size, count = x.data.shape[axis], g.between(1, 3)
    if g.chance(0.4) and size >= count and size % count == 0:
        return g.emit(op, [x], count, axis=axis, num_outputs=count)
    cuts = sorted(g.between(0, size) for _ in range(count - 1))
    lengths = [int(n) for n in np.diff([0, *cuts, size])]
    return g.emit(op, [x, g.sizes(lengths)], count, axis=axis)


@rule("Slice")
def _slice(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0)
    axes = [int(a) for a in g.rng.permutation(x.data.ndim)[: g.between(1, 2)]]
    step = [g.pick((1, 1, 1, 2, -1, -2)) for _ in axes]
    ends = [g.pick((-(2**63), -4, -2, -1, 0, 1, 2, 3, 5, 2**63 - 1)) for _ in axes]
    starts = [g.between(-4, 4) for _ in axes]
    operands = [x, *(g.known(v) for v in (starts, ends, axes, step))]
    return g.emit(op, operands)


@rule("Pad")
def _pad(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"), lambda v: v.data.ndim > 0)
    widths = [g.pick((0, 0, 1, 2, -1)) for _ in range(2 * x.data.ndim)]
    rank = x.data.ndim
    if any(d + widths[i] + widths[i + rank] < 0 for i, d in enumerate(x.data.shape)):
        raise NoFit
    fill = g.leaf(g.numbers((), str(x.data.dtype)), 0.7) if g.chance(0.7) else None
    return g.emit(op, [x, g.known(widths), fill])


@rule("Gather", "GatherElements")
def _gather(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0)
    axis = g.axis(x)
    shape = g.shape((0, 1, 1, 2))
    if op == "GatherElements":
        shape = tuple(g.between(0, d) for d in x.data.shape)
    return g.emit(op, [x, _indices(g, x.data.shape[axis], shape)], axis=axis)


def _indices(g: Graph, size: int, shape: Sequence[int]) -> Value:
    """Positions among ``size``, counted from either end."""
    if not size and math.prod(shape):
        raise NoFit
    return g.known(g.rng.integers(-size, max(size, 1), shape), g.pick(("int64", "int32")))


@rule("GatherND")
def _gather_nd(g: Graph, op: str) -> object:
    x = g.value(NUMBERS, lambda v: v.data.ndim > 0)
    depth = g.between(1, x.data.ndim)
    count = g.pick(SIZES)
    sizes = x.data.shape[:depth]
    if 0 in sizes and count:
        raise NoFit
    columns = [g.rng.integers(-s, max(s, 1), (count, 1)) for s in sizes]
    return g.emit(op, [x, g.known(np.concatenate(columns, 1))])


@rule("ScatterElements")
def _scatter_elements(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"), lambda v: v.data.ndim > 0)
    axis = g.axis(x) % x.data.ndim
    shape = [g.between(0, d) for d in x.data.shape]
    # No place twice along the axis: the order of writes would count.
    ranks = np.argsort(g.rng.random(x.data.shape), axis)
    where = ranks[tuple(slice(0, n) for n in shape)]
    return g.emit(op, [x, g.known(where), g.leaf(g.numbers(shape, str(x.data.dtype)))], axis=axis)


@rule("ScatterND")
def _scatter_nd(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"), lambda v: v.data.ndim > 0)
    rows = g.rng.permutation(x.data.shape[0])[: g.pick(SIZES)].reshape(-1, 1)
    updates = g.numbers((len(rows), *x.data.shape[1:]), str(x.data.dtype))
    return g.emit(op, [x, g.known(rows), g.leaf(updates)])


@rule("Compress")
def _compress(g: Graph, op: str) -> object:
    x = g.value(NUMBERS, lambda v: v.data.ndim > 0)
    axis = g.axis(x)
    flags = g.leaf(g.numbers((x.data.shape[axis],), "bool"))
    return g.emit(op, [x, flags], axis=axis)


@rule("Shape", "Size")
def _shape(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    if op == "Size" or g.chance(0.5):
        return g.emit(op, [x])
    return g.emit(op, [x], start=g.between(-3, 2), end=g.between(-2, 4))


@rule("ConstantOfShape")
def _constant_of_shape(g: Graph, op: str) -> object:
    fill = numpy_helper.from_array(g.numbers((1,), g.pick(KINDS)), "fill")
    return g.emit(op, [g.sizes(g.shape())], **_only(g.chance(0.7), value=fill))


@rule("Range")
def _range(g: Graph, op: str) -> object:
    kind = g.pick(("int64", "int32", "float32"))
    step = g.pick((-2, -1, 1, 2))
    return g.emit(op, [g.known(v, kind) for v in (g.between(-3, 3), g.between(-3, 5), step)])


@rule("NonZero")
def _nonzero(g: Graph, op: str) -> object:
    return g.emit(op, [g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0, exact=True)])


@rule("OneHot")
def _one_hot(g: Graph, op: str) -> object:
    where = g.value(("int64",), lambda v: v.data.ndim > 0)
    ends = g.leaf(g.numbers((2,), "float32"))
    return g.emit(op, [where, g.known([g.between(1, 4)]), ends], axis=g.pick((0, -1)))


@rule("Trilu")
def _trilu(g: Graph, op: str) -> object:
    x = g.value(NUMBERS, lambda v: v.data.ndim > 1)
    return g.emit(op, [x, g.known(g.between(-2, 2))], upper=g.between(0, 1))


@rule("CumSum")
def _cumsum(g: Graph, op: str) -> object:
    x = g.value(NUMBERS, lambda v: v.data.ndim > 0)
    where = g.known(g.axis(x))
    return g.emit(op, [x, where], exclusive=g.between(0, 1), reverse=g.between(0, 1))


@rule("EyeLike")
def _eye_like(g: Graph, op: str) -> object:
    return g.emit(op, [g.value(NUMBERS, lambda v: v.data.ndim == 2)], k=g.between(-1, 2))


@rule("DepthToSpace", "SpaceToDepth")
def _blocks(g: Graph, op: str) -> object:
    n, c, h, w = (g.pick(SIZES) for _ in range(4))
    shape = (n, 4 * c, h, w) if op == "DepthToSpace" else (n, c, 2 * h, 2 * w)
    return g.emit(op, [g.leaf(g.numbers(shape, "float32"))], blocksize=2)


# -- along axes
_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")


@rule(*(f"Reduce{r}" for r in _REDUCTIONS))
def _reduce(g: Graph, op: str) -> object:
    # The reference gives the squares of int32 as int64.
    floats = op[6:] in ("Mean", "L2", "LogSumExp", "SumSquare")
    x = g.value(("float32",) if floats else ("float32", "int32"))
    rank = x.data.ndim
    axes = [int(a) for a in g.rng.permutation(rank)[: g.between(0, rank)]]
    axes = [a - rank if g.chance(0.3) else a for a in axes]
    # Of nothing, the two runtimes disagree on a mean and on extremes of integers.
    over = axes or range(rank)
    if any(x.data.shape[a] == 0 for a in over) and op[6:] in ("Mean", "Max", "Min", "LogSumExp"):
        raise NoFit
    by = g.known(axes) if axes or g.chance(0.5) else None
    if op in _REDUCED_LATE and by is not None:
        return g.emit(op, [x, by], exact=False, keepdims=g.between(0, 1))
    if op == "ReduceSum":
        noop = g.between(0, 1)
        return g.emit(op, [x, by], keepdims=g.between(0, 1), noop_with_empty_axes=noop)
    exact = op[6:] in ("Max", "Min", "L1", "SumSquare", "Prod")
    return g.emit(op, [x, by], exact=exact, keepdims=g.between(0, 1))


_REDUCED_LATE = ("ReduceMean", "ReduceL2", "ReduceLogSumExp")


@rule("ArgMax", "ArgMin")
def _position(g: Graph, op: str) -> object:
    x = g.value(("float32", "int32"), lambda v: v.data.ndim > 0, exact=True)
    last, keep = g.between(0, 1), g.between(0, 1)
    return g.emit(op, [x], axis=g.axis(x), keepdims=keep, select_last_index=last)


@rule("TopK")
def _topk(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"), lambda v: v.data.ndim > 0, exact=True)
    axis = g.axis(x)
    count = g.between(0, x.data.shape[axis])
    return g.emit(op, [x, g.known([count])], 2, axis=axis, largest=g.between(0, 1))


@rule("Softmax", "LogSoftmax", "Hardmax")
def _soft(g: Graph, op: str) -> object:
    x = g.value(("float32",), lambda v: v.data.ndim > 0, exact=op == "Hardmax")
    return g.emit(op, [x], exact=op == "Hardmax", axis=g.axis(x))


# -- products and networks
@rule("MatMul")
def _matmul(g: Graph, op: str) -> object:
    x = g.value(("float32",), lambda v: v.data.ndim > 0)
    shape = [*x.data.shape[:-2], x.data.shape[-1], g.pick(SIZES)]
    shape = shape[g.between(0, len(shape) - 2) :] if g.chance(0.5) else shape
    shape = shape[:1] if g.chance(0.15) and len(shape) == 2 else shape
    return g.emit(op, [x, g.leaf(g.numbers(shape, "float32"))])


@rule("Gemm")
def _gemm(g: Graph, op: str) -> object:
    m, k, n = (g.pick(SIZES) for _ in range(3))
    turned = [g.between(0, 1) for _ in range(2)]
    a = g.leaf(g.numbers((k, m) if turned[0] else (m, k), "float32"))
    b = g.leaf(g.numbers((n, k) if turned[1] else (k, n), "float32"))
    c = g.leaf(g.numbers(g.pick([(m, n), (1, n), (n,), (m, 1), ()]), "float32"))
    more = _only(g.chance(0.5), alpha=0.5, beta=g.pick((0.0, 2.0)))
    return g.emit(op, [a, b, c], transA=turned[0], transB=turned[1], **more)


@rule("Conv")
def _conv(g: Graph, op: str) -> object:
    n, c, size, out, kernel = (g.pick(SIZES) for _ in range(5))
    x = g.leaf(g.numbers((n, max(c, 1), size + 2), "float32"))
    w = g.closed(g.leaf(g.numbers((max(out, 1), max(c, 1), max(kernel, 1)), "float32")))
    pads, strides = [g.between(0, 1) for _ in range(2)], [g.between(1, 2)]
    if kernel > size + 2 + sum(pads):
        pads = [1, 1]  # windows that do not fit are refused; ONNX Runtime computes something
    return g.emit(op, [x, w], pads=pads, strides=strides)


@rule("MaxPool", "AveragePool")
def _pool(g: Graph, op: str) -> object:
    x = g.leaf(g.numbers((g.pick(SIZES), g.pick((1, 2)), g.between(2, 4)), "float32"))
    kernel = g.between(1, 2)
    return g.emit(op, [x], exact=op == "MaxPool", kernel_shape=[kernel], strides=[g.between(1, 2)])


@rule("GlobalAveragePool", "GlobalMaxPool")
def _whole(g: Graph, op: str) -> object:
    # Of rank 3, the reference drops the last axis of a maximum.
    x = g.value(("float32",), lambda v: v.data.ndim > 3 and 0 not in v.data.shape[2:])
    return g.emit(op, [x], exact=op == "GlobalMaxPool")


@rule("LayerNormalization")
def _layer_norm(g: Graph, op: str) -> object:
    x = g.value(("float32",), lambda v: v.data.ndim > 0 and v.data.shape[-1] > 1)
    scale = g.leaf(g.numbers((x.data.shape[-1],), "float32"))
    return g.emit(op, [x, scale], exact=False, axis=-1)


@rule("Einsum")
def _einsum(g: Graph, op: str) -> object:
    x = g.value(("float32",), lambda v: v.data.ndim == 2)
    y = g.leaf(g.numbers((x.data.shape[1], g.pick(SIZES)), "float32"))
    return g.emit(op, [x, y], equation=g.pick(("ij,jk->ik", "ij,jk->ki", "ij,jk->j", "ij,jk->")))


# -- the whole -------------------------------------------------------------------------------------
def _grown(seed: int) -> Graph:
    g = Graph(seed)
    for _ in range(g.between(1, 3)):
        g.leaf(g.numbers(g.shape(), g.pick(KINDS)), 0.3)
    wanted, tries = g.between(2, 9), 0
    names = list(RULES)
    while len(g.nodes) < wanted and tries < TRIES:
        tries += 1
        before = (dict(g.weights), dict(g.inputs), list(g.values), list(g.nodes), set(g.used))
        try:
            RULES[g.pick(names)](g)
        except NoFit:
            g.weights, g.inputs, g.values, g.nodes, g.used = before
    if not g.nodes:
        g.emit("Identity", [g.leaf(g.numbers((2, 1), "float32"), 0.0)])
    return g


def graph(seed: int) -> ModelProto:
    """A valid model of opset ``OPSET`` with two to about twenty nodes.

    Sizes of the inputs are static in half of the models and named in the others, each by a name
    of its own. Its outputs are the values that no node reads, and some of the others.
    """
    g = _grown(seed)
    named = g.chance(0.5)
    opened = set(g.inputs) - g.static if named else set[str]()
    inputs = [
        _info(
            n,
            a,
            [f"{n}_{i}" if n in opened and g.chance(0.7) else d for i, d in enumerate(a.shape)],
        )
        for n, a in g.inputs.items()
        if n in g.used
    ]
    made = {o for n in g.nodes for o in n.output}
    outputs = [v for v in g.values if v.name in made and (v.name not in g.used or g.chance(0.2))]
    proto = helper.make_graph(
        g.nodes,
        f"seed{seed}",
        inputs,
        [_info(v.name, v.data, _open(v.data, named)) for v in outputs],
        [numpy_helper.from_array(a, n) for n, a in g.weights.items() if n in g.used],
    )
    return _model(proto)


def _open(data: Array, named: bool) -> list[Any]:
    """Dimensions of an output, which are not known where those of the inputs are not."""
    return [None] * data.ndim if named else list(data.shape)


def inputs(model: ModelProto, seed: int) -> dict[str, Array]:
    """The inputs that :func:`graph` made the model for, by name."""
    drawn = _grown(seed).inputs
    return {i.name: drawn[i.name] for i in model.graph.input}


__all__ = ["OPSET", "graph", "inputs"]

"""Whether rows of a function are what an operator lowers to.

A *template* is the lowering of an operator over :class:`Hole`\\ s: an expression made of rows.
:class:`Matcher` compares it with rows of a function. What it takes for the same:

* the order of the operands of commutative rows, and attributes that are the default or left out;
* axes of size 1, where they are added and dropped by reshape and broadcast, between element-wise
  rows, and broadcasts in one step or in several;
* splats, however they are made; rows that copy their operand (``maximum(-inf, x)``).

So a match is exact: the operator lowers to rows that compute the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relax2xla.ir import Call, Constant, Expr, Function, Op, Tuple, TupleGetItem, Var, VarBinding
from relax2xla.ir.arrays import arrays_equal
from relax2xla.ir.base import Attrs
from relax2xla.ir.rewrite import bindings_of, children, post_order, rebuild
from relax2xla.transform.raising.graph import Graph, Level, dtype_of, row_name, shape_of, squeezed

COMMUTATIVE: Final = frozenset(["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
ELEMENTWISE: Final = frozenset(
    [
        "abs",
        "add",
        "and",
        "atan2",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "complex",
        "convert",
        "cosine",
        "divide",
        "exponential",
        "exponential_minus_one",
        "floor",
        "imag",
        "is_finite",
        "log",
        "log_plus_one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "popcnt",
        "power",
        "real",
        "remainder",
        "round_nearest_afz",
        "round_nearest_even",
        "rsqrt",
        "select",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sine",
        "sqrt",
        "subtract",
        "tan",
        "tanh",
        "xor",
        "chlo.acos",
        "chlo.acosh",
        "chlo.asin",
        "chlo.asinh",
        "chlo.atan",
        "chlo.atanh",
        "chlo.cosh",
        "chlo.erf",
        "chlo.erfc",
        "chlo.sinh",
        "chlo.square",
        "chlo.tan",
    ]
)


class Hole(Var):
    """A place in a template that takes any value of its struct info."""

    __slots__ = ()


def lowered(root: Expr) -> Expr:
    """``root`` with every operator lowered to rows, not yet in A-normal form."""
    done: dict[int, Expr] = {}
    for node in post_order(root):
        kids = children(node)
        new = rebuild(node, [done[id(k)] for k in kids]) if kids else node
        if isinstance(new, Call) and isinstance(new.op, Op) and new.op.lowering is not None:
            args, kwargs = new.op.bind(new)
            rule: Any = new.op.lowering
            new = lowered(rule(*args, **kwargs))
        done[id(node)] = new
    return done[id(root)]


def filled(root: Expr, holes: Mapping[Expr, Expr]) -> Expr:
    """``root`` with the values of its holes."""
    done: dict[int, Expr] = {}
    for node in post_order(root):
        kids = children(node)
        done[id(node)] = (
            rebuild(node, [done[id(k)] for k in kids]) if kids else holes.get(node, node)
        )
    return done[id(root)]


# ---- attributes
def _is_default(name: str, value: Any) -> bool:
    if name in ("indices_are_sorted", "unique_indices"):
        return not value
    if name == "precision_config":
        return all(v == "DEFAULT" for v in value)
    if name in ("window_strides", "base_dilations", "window_dilations", "lhs_dilation"):
        return all(v == 1 for v in value)
    if name == "rhs_dilation":
        return all(v == 1 for v in value)
    if name == "padding":
        return all(v == 0 for pair in value for v in pair)
    if name == "window_reversal":
        return not any(value)
    if name == "result_accuracy":
        return "DEFAULT" in str(value)
    return value is None


def plain_attrs(call: Call) -> dict[str, Any]:
    """Attributes of a row without those that say what is the default anyway."""
    made: dict[str, Any] = {}
    for name, value in call.attrs.items():
        if isinstance(value, Attrs):
            made[name] = {k: v for k, v in value.items() if v != ()}
        elif not _is_default(name, value):
            made[name] = value
    return made


# ---- regions
def region_key(region: Expr) -> tuple[Any, ...] | None:
    """A value that is equal for regions that compute the same; None for large or nested ones."""
    if not isinstance(region, Function):
        return None
    keys: dict[Expr, Any] = {p: ("param", i) for i, p in enumerate(region.params)}

    def key_of(root: Expr) -> Any:
        done: dict[int, Any] = {}
        for node in post_order(root):
            done[id(node)] = _key(node, [done[id(k)] for k in children(node)], keys)
        return done[id(root)]

    for count, b in enumerate(bindings_of(region.body)):
        if count > 64 or not isinstance(b, VarBinding) or isinstance(b.value, Function):
            return None
        keys[b.var] = key_of(b.value)
    types = tuple(str(p.struct_info_) for p in region.params)
    return (types, key_of(region.body.body))


def _key(node: Expr, kids: list[Any], known: Mapping[Expr, Any]) -> Any:
    if isinstance(node, Var):
        return known.get(node, ("free", id(node)))
    if isinstance(node, Constant):
        value = node.data
        nan = value.dtype.kind not in "biu" and bool((value != value).all())
        return ("const", str(node.struct_info_), "nan" if nan else value.tobytes())
    if isinstance(node, Tuple):
        return ("tuple", *kids)
    if isinstance(node, Call):
        name = row_name(node)
        attrs = plain_attrs(node)
        flips = name in COMMUTATIVE or attrs.get("comparison_direction") in ("EQ", "NE")
        parts = sorted(kids, key=repr) if flips else kids
        return (name, repr(sorted(attrs.items())), *parts)
    return ("other", id(node))


# ---- the matcher
class Matcher:
    """One comparison: ``bound`` are the values of holes, ``inner`` the variables matched."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.bound: dict[Expr, Expr] = {}
        self.inner: dict[Expr, None] = {}
        # Pairs that matched: templates share their parts.
        self._done: dict[tuple[int, Expr, bool], None] = {}

    def _state(self) -> tuple[Any, ...]:
        return dict(self.bound), dict(self.inner), dict(self._done)

    def _restore(self, state: tuple[Any, ...]) -> None:
        self.bound, self.inner, self._done = state

    def matches(self, template: Expr, var: Var) -> bool:
        """Whether ``var`` is computed as ``template`` says."""
        if template.struct_info_ != var.struct_info_:
            return False
        return self.unify(template, var, exact=True)

    def unify(self, template: Expr, actual: Expr, exact: bool = False) -> bool:
        """Compare two values, up to axes of size 1 unless ``exact``."""
        graph = self.graph
        if isinstance(template, Function):
            mine, other = region_key(template), region_key(graph.value(actual))
            return mine is not None and mine == other
        want = shape_of(template)
        if want is None:
            return self._node(template, actual)
        if exact and want != shape_of(actual):
            return False
        pair = (id(template), self.graph.leaf(actual), exact)
        if pair in self._done:
            return True
        number = _splat(template)
        if number is not None:
            known = graph.splat(actual)
            return known is not None and arrays_equal(np.asarray(number), np.asarray(known))
        source, axes = _deepest(template)
        for level in graph.levels(actual):
            if self._fits(source, axes, level):
                saved = self._state()
                if self._node(source, level.expr):
                    if not isinstance(source, Var | Constant):
                        self.inner.update(dict.fromkeys(level.trail))
                    self._done[pair] = None
                    return True
                self._restore(saved)
        return False

    def _fits(self, source: Expr, axes: tuple[int, ...], level: Level) -> bool:
        shape, own = shape_of(source), shape_of(level.expr)
        if shape is None or own is None or dtype_of(source) != dtype_of(level.expr):
            return False
        if isinstance(source, Var) and shape != own:
            return False
        return squeezed(shape) == squeezed(own) and axes == level.axes

    def _node(self, template: Expr, actual: Expr) -> bool:
        graph = self.graph
        if isinstance(template, Hole):
            return self._bind(template, actual)
        if isinstance(template, Var):
            return graph.leaf(actual) is graph.leaf(template)
        node = graph.value(actual)
        if isinstance(template, Constant):
            return isinstance(node, Constant) and arrays_equal(template.data, node.data)
        if isinstance(template, TupleGetItem) and isinstance(node, TupleGetItem):
            if template.index != node.index:
                return False
            if not self._node(template.tuple_value, node.tuple_value):
                return False
        elif isinstance(template, Call) and isinstance(node, Call):
            if not self._call(template, node):
                return False
        else:
            return False
        at = graph.leaf(actual)
        if isinstance(at, Var):
            self.inner[at] = None
        return True

    def _bind(self, hole: Hole, actual: Expr) -> bool:
        leaf = self.graph.leaf(actual)
        if hole.struct_info_ != leaf.struct_info_:
            return False
        known = self.bound.setdefault(hole, leaf)
        return known is leaf or self._equal(known, leaf)

    def _equal(self, a: Expr, b: Expr) -> bool:
        x, y = self.graph.value(a), self.graph.value(b)
        return isinstance(x, Constant) and isinstance(y, Constant) and arrays_equal(x.data, y.data)

    def _call(self, template: Call, node: Call) -> bool:
        name = row_name(template)
        if not name or name != row_name(node) or len(template.args) != len(node.args):
            return False
        elementwise = name in ELEMENTWISE
        if not elementwise and template.struct_info_ != node.struct_info_:
            return False
        attrs = plain_attrs(template)
        if attrs != plain_attrs(node):
            return False
        flips = name in COMMUTATIVE or attrs.get("comparison_direction") in ("EQ", "NE")
        orders = (node.args, node.args[::-1]) if flips else (node.args,)
        for args in orders:
            saved = self._state()
            if all(
                self.unify(t, a, exact=not elementwise)
                for t, a in zip(template.args, args, strict=True)
            ):
                return True
            self._restore(saved)
        return False

    def fills(self, value: Expr) -> bool:
        """Whether every hole of ``value`` has found what it stands for."""
        return all(n in self.bound for n in post_order(value) if isinstance(n, Hole))

    def private(self, root: Var, value: Expr) -> bool:
        """Whether everything matched is used by nothing else, and lies in one sequence.

        What takes its place, ``value``, must not use it either: an operand of the operator may be
        a part of the rows that it stands for.
        """
        graph = self.graph
        counts: dict[Expr, int] = {}
        operands = {*self.bound.values(), *post_order(value)}
        if any(v in operands for v in self.inner if v is not root):
            return False
        for var in {**self.inner, root: None}:
            for node in post_order(graph.defs[var]):
                if isinstance(node, Var):
                    counts[node] = counts.get(node, 0) + 1
        return all(
            v is root or (graph.uses[v] == counts.get(v, 0) and graph.home[v] == graph.home[root])
            for v in self.inner
        )


def _splat(template: Expr) -> Any:
    """The number that a template's value holds everywhere, else None."""
    while row_name(template) in ("broadcast_in_dim", "reshape"):
        assert isinstance(template, Call)
        template = template.args[0]
    if isinstance(template, Constant):
        data = template.data
        if data.size == 1 or (data.size > 1 and not any(data.strides)):
            return np.asarray(data[(0,) * data.ndim])
    return None


def _deepest(template: Expr) -> tuple[Expr, tuple[int, ...]]:
    """What a template's value is broadcast from, and where its axes lie."""
    level = list(_TEMPLATES.levels(template))[-1]
    return level.expr, level.axes


class _Templates(Graph):
    """Templates are nested, so there is nothing to look up."""

    def __init__(self) -> None:
        self.defs = {}
        self._splats = {}


_TEMPLATES: Final = _Templates()


@dataclass(frozen=True, slots=True)
class Guess:
    """What rows may be: ``value``, made of operators over holes and variables.

    ``forms``: further templates that compute what ``value`` does, as other programs write it.
    """

    value: Expr
    forms: Iterable[Expr] = ()

    def templates(self) -> Iterator[Expr]:
        """The lowering of ``value``, then the other forms."""
        yield lowered(self.value)
        yield from self.forms

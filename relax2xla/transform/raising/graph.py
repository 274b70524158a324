"""Definitions and uses of one function, and what a pattern may look through.

A *level* of a value is the value itself, or what it was made of by broadcasting and by adding or
dropping axes of size 1. All levels of a value hold the same numbers; ``Level.axes`` says where the
axes (those of size 1 are not counted) of the level lie in the value.

What is found out about a value is kept: it depends on what stands before the value, and a function
is raised from its end. So each question is answered once, whichever patterns ask it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from relax2xla.dtypes import is_float, is_kind, numpy_dtype
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Op,
    SeqExpr,
    TensorStructInfo,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import post_order
from relax2xla.ir.traits import Trait

HLO: Final = "relax.stablehlo."
CONTROL: Final = ("while", "if", "case")
# A chain of broadcasts, reshapes and copies is looked through no further than this.
LEVELS: Final = 8
# Rows are looked for at most this many steps before a pattern's last row.
DEPTH: Final = 5
T = TypeVar("T")
Scalar = np.ndarray[Any, np.dtype[Any]]
_NAMES: Final[dict[Op[...], str]] = {}
_BITS: Final[dict[str, int]] = {}


def row_name(e: Expr) -> str:
    """Name of the row that ``e`` is a call of, without its dialect's prefix; "" if of none.

    Rows of CHLO keep theirs: ``add``, ``and``, ``chlo.erf``.
    """
    if not isinstance(e, Call) or not isinstance(e.op, Op):
        return ""
    found = _NAMES.get(e.op)
    if found is None:
        name, found = e.op.name, ""
        if name.startswith(HLO):
            found = name[len(HLO) :].removesuffix("_")
        elif name.startswith("relax.chlo."):
            found = name[len("relax.") :]
        _NAMES[e.op] = found
    return found


def row_has(e: Expr, kind: type[Trait]) -> bool:
    """Whether ``e`` is a call of a row with a trait of this kind."""
    return bool(row_name(e)) and isinstance(e, Call) and isinstance(e.op, Op) and e.op.has(kind)


def bit(name: str) -> int:
    """The bit that stands for the row ``name`` in sets of rows."""
    return _BITS.setdefault(name, 1 << len(_BITS))


def bits(*names: str) -> int:
    """The set of these rows."""
    made = 0
    for name in names:
        made |= bit(name)
    return made


def shape_of(e: Expr) -> tuple[int, ...] | None:
    """Static shape of a tensor, else None."""
    info = e.struct_info_
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return None
    for d in info.dims:
        if type(d) is not int:
            return None
    return info.dims  # pyright: ignore[reportReturnType]


def dtype_of(e: Expr) -> str:
    """dtype of a tensor, "" for anything else."""
    info = e.struct_info_
    return info.dtype if isinstance(info, TensorStructInfo) else ""


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` without its ones."""
    return tuple([d for d in shape if d != 1]) if 1 in shape else shape


class Level:
    """``expr`` makes up a value by broadcasting; ``trail``: the variables on the way.

    ``node`` is what ``expr`` is bound to, and ``name`` the row that it is.
    """

    __slots__ = ("axes", "expr", "name", "node", "shape", "squeezed", "trail")

    def __init__(
        self, expr: Expr, node: Expr, axes: tuple[int, ...], trail: tuple[Var, ...]
    ) -> None:
        self.expr, self.node, self.axes, self.trail = expr, node, axes, trail
        self.name = row_name(node)
        self.shape = shape_of(expr)
        self.squeezed = () if self.shape is None else squeezed(self.shape)


def _fold_convert(call: Call, x: Scalar) -> Scalar | None:
    exact = is_float(dtype_of(call)) and is_kind(dtype_of(call.args[0]), "int", "float")
    return x.astype(numpy_dtype(dtype_of(call))) if exact else None


_FOLDED: Final = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
}
_COMPARED: Final = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
_SPREAD: Final = ("broadcast_in_dim", "reshape", "broadcast")


def number_of(constant: Constant) -> Scalar | None:
    """The one number that a constant holds everywhere, else None."""
    data = constant.data
    if data.size == 1 or (data.size > 1 and not any(data.strides)):
        return np.asarray(data[(0,) * data.ndim])
    return None


def number_key(number: Scalar | None) -> tuple[str, bytes] | None:
    """A value that is equal for numbers that are the same bit for bit, NaN like any other NaN."""
    if number is None:
        return None
    nan = number.dtype.kind not in "biu" and bool(number != number)
    return (str(number.dtype), b"nan" if nan else number.tobytes())


def flat(call: Call) -> bool:
    """Whether all operands are variables or constants, as they mostly are."""
    return all([isinstance(a, Var | Constant) for a in call.args])


def variables(value: Expr) -> Sequence[Var]:
    """The variables that a plain expression reads, each once."""
    if isinstance(value, Call) and isinstance(value.op, Op):
        if flat(value):
            found = [a for a in value.args if isinstance(a, Var)]
            return found if len(found) < 2 else list(dict.fromkeys(found))
    elif isinstance(value, Var):
        return (value,)
    return [n for n in post_order(value) if isinstance(n, Var)]


class Graph:
    """``defs``: value of each variable; ``uses``: how often it is read; ``home``: its sequence."""

    def __init__(
        self, func: Function | None = None, memo: dict[Hashable, Any] | None = None
    ) -> None:
        self.defs: dict[Expr, Expr] = {}
        self.uses: Counter[Expr] = Counter()
        self.home: dict[Expr, int] = {}
        # Functions that are regions of rows other than control flow: they stay as they are.
        self.closed: set[Expr] = set()
        # What is known of regions; see ``raising/regions.py``.
        self.regions: dict[Expr, Any] = {}
        # What has been made, shared with the graphs of other functions; see :meth:`once`.
        self._memo: dict[Hashable, Any] = {} if memo is None else memo
        self._splats: dict[Expr, tuple[Scalar, tuple[str, bytes]]] = {}
        self._near: dict[Expr, dict[str, tuple[int, Call]]] = {}
        self._levels: dict[Expr, tuple[Level, ...]] = {}
        self._rows: list[dict[Expr, int]] = [{} for _ in range(DEPTH + 1)]
        # Sequences to raise, outer ones before those inside them.
        self.seqs: list[SeqExpr] = []
        if func is not None:
            self._collect(func)

    def _collect(self, func: Function) -> None:
        stack: list[tuple[SeqExpr, Expr | None, bool]] = [(func.body, None, False)]
        while stack:
            seq, owner, inside = stack.pop()
            # The calls that take a region stand in the sequence before, which is done.
            inside = inside or owner in self.closed
            if not inside:
                self.seqs.append(seq)
            for block in seq.blocks:
                for b in block.bindings:
                    if isinstance(b, VarBinding):
                        self.defs[b.var] = b.value
                        known = self._number(b.value)
                        if known is not None:
                            self._splats[b.var] = known
                    self.home[b.var] = id(seq)
                    # A function that is itself an operand is a region that stays, too.
                    closed = inside or isinstance(b.value, Call)
                    stack += [(inner, b.var, closed) for inner in self._count(b.value)]
            stack += [(inner, None, True) for inner in self._count(seq.body)]

    def _count(self, root: Expr) -> list[SeqExpr]:
        """Count the variables that ``root`` reads; gives the sequences inside it."""
        if isinstance(root, Function):
            return [root.body]
        for var in variables(root):
            self.uses[var] += 1
            if isinstance(self.defs.get(var), Function):
                # Rare: a region, or a call of a local function.
                self._close(root)
        if isinstance(root, Var | Constant) or (isinstance(root, Call) and flat(root)):
            return []
        inner: list[SeqExpr] = []
        for node in post_order(root):
            if isinstance(node, Function):
                inner.append(node.body)
            elif isinstance(node, If):
                inner += [node.true_branch, node.false_branch]
            elif isinstance(node, SeqExpr):
                inner.append(node)
        return inner

    def _close(self, root: Expr) -> None:
        """Note the functions that are regions of rows in ``root`` and no control flow."""
        for node in post_order(root):
            if isinstance(node, Call) and row_name(node) not in ("", *CONTROL):
                self.closed.update(a for a in node.args if isinstance(self.defs.get(a), Function))

    def replace(self, var: Var, value: Expr) -> list[Var]:
        """Note that ``var`` is ``value`` from now on; gives what is read less often."""
        less = self._uncount(self.defs[var])
        self.defs[var] = value
        self.uses.update(variables(value))
        return less

    def drop(self, var: Expr) -> list[Var]:
        """Note that the binding of ``var`` is gone; gives what is read less often."""
        return self._uncount(self.defs.pop(var))

    def _uncount(self, value: Expr) -> list[Var]:
        less = list(variables(value))
        self.uses.subtract(less)
        return less

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """``make()``, called once for each ``key``; ValueError where it refuses."""
        if key not in self._memo:
            try:
                self._memo[key] = make()
            except (TVMError, ValueError):
                self._memo[key] = None
        found: T | None = self._memo[key]
        if found is None:
            raise ValueError("no operator is of these shapes and dtypes")
        return found

    def forget(self) -> None:
        """Drop what is known about values: some of them have changed."""
        self._near.clear()
        self._levels.clear()
        for known in self._rows:
            known.clear()

    # ---- looking through
    def value(self, e: Expr) -> Expr:
        """What a variable was bound to; other expressions are themselves."""
        while isinstance(e, Var):
            found = self.defs.get(e)
            if found is None:
                return e
            if not isinstance(found, Var):
                return found
            e = found
        return e

    def leaf(self, e: Expr) -> Expr:
        """The variable at the end of a chain of aliases."""
        while isinstance(e, Var) and isinstance(found := self.defs.get(e), Var):
            e = found
        return e

    def splat(self, e: Expr) -> Scalar | None:
        """The one number that a tensor holds everywhere, where that is known."""
        known = self._splats.get(e) if isinstance(e, Var) else self._number(e)
        return None if known is None else known[0]

    def splat_key(self, e: Expr) -> tuple[str, bytes] | None:
        """:func:`number_key` of the number that a tensor holds everywhere."""
        known = self._splats.get(e) if isinstance(e, Var) else self._number(e)
        return None if known is None else known[1]

    def _number(self, node: Expr) -> tuple[Scalar, tuple[str, bytes]] | None:
        """The number that a value holds everywhere; those of variables before it are known."""
        found: Scalar | None = None
        if isinstance(node, Constant):
            found = number_of(node)
        elif isinstance(node, Var):
            return self._splats.get(node)
        elif isinstance(node, Call):
            name = row_name(node)
            if name in _SPREAD:
                inner = node.args[0]
                if isinstance(inner, Call):
                    return self._number(inner)
                return self._splats.get(inner) if isinstance(inner, Var) else self._number(inner)
            if name in _FOLDABLE and shape_of(node) == ():
                found = self._folded(node, name)
        if found is None:
            return None
        key = number_key(found)
        return None if key is None else (found, key)

    def _folded(self, call: Call, name: str) -> Scalar | None:
        """The value of arithmetic on known scalars, as JAX leaves it (``n - ddof``)."""
        known: list[Scalar] = []
        for a in call.args:
            number = self.splat(a) if isinstance(a, Var | Constant) else None
            if number is None:
                return None
            known.append(number)
        with np.errstate(all="ignore"):
            if name == "convert":
                return _fold_convert(call, known[0])
            if name == "compare":
                return np.asarray(_COMPARED[call.attrs["comparison_direction"]](*known))
            return np.asarray(_FOLDED[name](*known))

    def same(self, e: Expr) -> Expr | None:
        """The operand of which the row ``e`` is an exact copy, else None.

        Such rows are ``maximum(-inf, x)``, ``select(true, x, y)``, ``i + 0``, conversions to the
        same dtype.
        """
        node = self.value(e)
        name = row_name(node)
        if name not in _COPIES or not isinstance(node, Call):
            return None
        if name == "convert" and node.args[0].struct_info_ == node.struct_info_:
            return node.args[0]
        if name == "maximum":
            for low, other in (node.args, node.args[::-1]):
                known = self.splat(low)
                if known is not None and is_float(dtype_of(low)) and known == -np.inf:
                    return other
        if name == "select":
            known = self.splat(node.args[0])
            if known is not None:
                return node.args[1 if known else 2]
        if name in ("add", "subtract"):
            known = self.splat(node.args[1])
            if known is not None and known == 0 and is_kind(dtype_of(node), "int", "uint"):
                return node.args[0]
        return None

    def levels(self, e: Expr) -> Sequence[Level]:
        """All levels of ``e``, itself first; see the module's docstring."""
        found = self._levels.get(e)
        if found is None:
            found = tuple(self.look_through(e))
            if isinstance(e, Var):
                self._levels[e] = found
        return found

    def look_through(self, e: Expr) -> list[Level]:
        """:meth:`levels`, found anew."""
        level = Level(e, self.value(e), (), ())
        if level.shape is None:
            return [level]
        level.axes = tuple(range(len(level.squeezed)))
        found = [level]
        while level.name in _LEVELLED and len(found) < LEVELS:
            node, name, own = level.node, level.name, level.shape or ()
            assert isinstance(node, Call)
            below = self.same(level.expr) if name in _COPIES else None
            if below is not None and shape_of(below) == own:
                axes = level.axes
            elif name in _COPIES:
                break
            else:
                below = node.args[0]
                source = shape_of(below)
                # A level beyond other dialects' attributes would lose them.
                if source is None or "discardable" in node.attrs:
                    break
                if name == "broadcast_in_dim":
                    count = [0]
                    for d in own:
                        count.append(count[-1] + (d != 1))
                    to = node.attrs["broadcast_dimensions"]
                    pairs = zip(source, to, strict=True)
                    axes = tuple([level.axes[count[t]] for d, t in pairs if d != 1])
                elif squeezed(source) == squeezed(own):
                    axes = level.axes
                else:
                    break
            at = self.leaf(level.expr)
            trail = (*level.trail, at) if isinstance(at, Var) else level.trail
            level = Level(below, self.value(below), axes, trail)
            found.append(level)
        return found

    def rows(self, e: Expr, depth: int) -> int:
        """The set of rows (see :func:`bits`) that make up ``e``, and ``depth`` steps before it.

        A step leads from a row to its operands; levels of one value are no steps.
        """
        known = self._rows[depth]
        found = known.get(e)
        if found is None:
            found = 0
            for level in self.levels(e):
                node = level.node
                if isinstance(node, TupleGetItem):
                    node = self.value(node.tuple_value)
                if isinstance(node, Call) and (name := row_name(node)):
                    found |= bit(name)
                    if depth:
                        for a in node.args:
                            found |= self.rows(a, depth - 1)
            if isinstance(e, Var):
                known[e] = found
        return found

    def near(self, call: Expr, depth: int, wanted: int) -> bool:
        """Whether ``call`` has one of the rows ``wanted`` among those of its operands; see rows."""
        if isinstance(call, TupleGetItem):
            # The row with several results is as near as an operand.
            return bool(self.rows(call, depth) & wanted)
        if isinstance(call, Call):
            for a in call.args:
                if self.rows(a, depth) & wanted:
                    return True
        return False

    def under(self, e: Expr, name: str) -> Call | None:
        """The row ``name`` that ``e``, or a level of it, is."""
        for level in self.levels(e):
            if level.name == name and isinstance(level.node, Call):
                return level.node
        return None

    def find(self, root: Expr, name: str, limit: int = 40) -> Call | None:
        """The nearest row ``name`` that ``root`` is computed from, breadth first."""
        top = self.value(root)
        near = self._near.get(top)
        if near is None:
            near = self._near[top] = self._above(top)
        at, call = near.get(name, (limit, None))
        return call if at < limit else None

    def _above(self, top: Expr) -> dict[str, tuple[int, Call]]:
        """The first of each kind of row among the 40 nearest, with its place in the order."""
        queue, visited = deque([top]), set[Expr]()
        found: dict[str, tuple[int, Call]] = {}
        while queue and len(visited) < 40:
            node = self.value(queue.popleft())
            if isinstance(node, TupleGetItem):
                node = self.value(node.tuple_value)
            if node in visited or not isinstance(node, Call):
                continue
            if name := row_name(node):
                found.setdefault(name, (len(visited), node))
            visited.add(node)
            queue.extend(node.args)
        return found


_FOLDABLE: Final = (*_FOLDED, "compare", "convert")
_COPIES: Final = ("convert", "maximum", "select", "add", "subtract")
_LEVELLED: Final = (*_COPIES, "broadcast_in_dim", "reshape")

"""Definitions and uses of one function, and what a pattern may look through.

A *level* of a value is the value itself, or what it was made of by broadcasting and by adding or
dropping axes of size 1. All levels of a value hold the same numbers; ``Level.axes`` says where the
axes (those of size 1 are not counted) of the level lie in the value.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relax2xla.dtypes import is_float, is_kind, numpy_dtype
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

HLO: Final = "relax.stablehlo."
CONTROL: Final = ("while", "if", "case")
Scalar = np.ndarray[Any, np.dtype[Any]]


def row_name(e: Expr) -> str:
    """Name of the row that ``e`` is a call of, without its dialect's prefix; "" if of none.

    Rows of CHLO keep theirs: ``add``, ``and``, ``chlo.erf``.
    """
    if not isinstance(e, Call) or not isinstance(e.op, Op):
        return ""
    name = e.op.name
    if name.startswith(HLO):
        return name[len(HLO) :].removesuffix("_")
    return name[len("relax.") :] if name.startswith("relax.chlo.") else ""


def shape_of(e: Expr) -> tuple[int, ...] | None:
    """Static shape of a tensor, else None."""
    info = e.struct_info_
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return None
    dims = tuple(d for d in info.dims if isinstance(d, int))
    return dims if len(dims) == len(info.dims) else None


def dtype_of(e: Expr) -> str:
    """dtype of a tensor, "" for anything else."""
    info = e.struct_info_
    return info.dtype if isinstance(info, TensorStructInfo) else ""


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` without its ones."""
    return tuple(d for d in shape if d != 1)


@dataclass(frozen=True, slots=True)
class Level:
    """``expr`` makes up a value by broadcasting; ``trail``: the variables on the way."""

    expr: Expr
    axes: tuple[int, ...]
    trail: tuple[Var, ...]


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


class Graph:
    """``defs``: value of each variable; ``uses``: how often it is read; ``home``: its sequence."""

    def __init__(self, func: Function) -> None:
        self.defs: dict[Expr, Expr] = {}
        self.uses: Counter[Expr] = Counter()
        self.home: dict[Expr, int] = {}
        # Functions that are regions of rows other than control flow: they stay as they are.
        self.closed: set[Expr] = set()
        self._splats: dict[Expr, Scalar | None] = {}
        self._near: dict[int, dict[str, tuple[int, Call]]] = {}
        # Sequences to raise, outer ones before those inside them.
        self.seqs: list[SeqExpr] = []
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
                    self.home[b.var] = id(seq)
                    stack += [(inner, b.var, inside) for inner in self._count(b.value, 1)]
            stack += [(inner, None, inside) for inner in self._count(seq.body, 1)]

    def _count(self, root: Expr, sign: int) -> list[SeqExpr]:
        """Count the variables that ``root`` reads; gives the sequences inside it."""
        inner: list[SeqExpr] = []
        for node in post_order(root):
            if isinstance(node, Var):
                self.uses[node] += sign
            if isinstance(node, Call) and row_name(node) not in ("", *CONTROL):
                self.closed.update(a for a in node.args if isinstance(self.defs.get(a), Function))
            if isinstance(node, Function):
                inner.append(node.body)
            elif isinstance(node, If):
                inner += [node.true_branch, node.false_branch]
            elif isinstance(node, SeqExpr):
                inner.append(node)
        return inner

    def replace(self, var: Var, value: Expr) -> None:
        """Note that ``var`` is ``value`` from now on."""
        self._near.clear()
        self._count(self.defs[var], -1)
        self.defs[var] = value
        self._count(value, 1)

    def drop(self, var: Expr) -> None:
        """Note that the binding of ``var`` is gone."""
        self._near.clear()
        self._count(self.defs.pop(var), -1)

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
        if isinstance(e, Var) and e in self._splats:
            return self._splats[e]
        order: list[Expr] = []
        node: Expr = e
        found: Scalar | None = None
        while True:
            order.append(node)
            node = self.value(node)
            if isinstance(node, Constant):
                data = node.data
                one = data.size == 1 or (data.size > 1 and not any(data.strides))
                found = data[(0,) * data.ndim] if one else None
                found = None if found is None else np.asarray(found)
                break
            name = row_name(node)
            if name in ("broadcast_in_dim", "reshape", "broadcast"):
                assert isinstance(node, Call)
                node = node.args[0]
                continue
            if isinstance(node, Call) and shape_of(node) == ():
                found = self._folded(node, name)
            break
        for v in order:
            if isinstance(v, Var):
                self._splats[v] = found
        return found

    def _folded(self, call: Call, name: str) -> Scalar | None:
        """The value of arithmetic on known scalars, as JAX leaves it (``n - ddof``)."""
        if name not in (*_FOLDED, "compare", "convert"):
            return None
        values = [self.splat(a) for a in call.args]
        known = [v for v in values if v is not None]
        if len(known) < len(values):
            return None
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
        if not isinstance(node, Call):
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
        if name in ("add", "subtract") and is_kind(dtype_of(node), "int", "uint"):
            known = self.splat(node.args[1])
            if known is not None and known == 0:
                return node.args[0]
        return None

    def levels(self, e: Expr) -> Iterator[Level]:
        """All levels of ``e``, itself first; see the module's docstring."""
        shape = shape_of(e)
        if shape is None:
            yield Level(e, (), ())
            return
        level = Level(e, tuple(range(len(squeezed(shape)))), ())
        while True:
            yield level
            node, at = self.value(level.expr), self.leaf(level.expr)
            trail = (*level.trail, at) if isinstance(at, Var) else level.trail
            own = shape_of(level.expr) or ()
            copied = self.same(level.expr)
            if copied is not None and shape_of(copied) == own:
                level = Level(copied, level.axes, trail)
                continue
            below = node.args[0] if isinstance(node, Call) and node.args else None
            source = None if below is None else shape_of(below)
            name = row_name(node)
            if below is None or source is None or not isinstance(node, Call):
                return
            if "discardable" in node.attrs:
                return  # A level beyond would lose them.
            if name == "broadcast_in_dim":
                count = np.cumsum([0] + [d != 1 for d in own])
                to = node.attrs["broadcast_dimensions"]
                axes = tuple(
                    level.axes[count[t]] for d, t in zip(source, to, strict=True) if d != 1
                )
                level = Level(below, axes, trail)
            elif name == "reshape" and squeezed(source) == squeezed(own):
                level = Level(below, level.axes, trail)
            else:
                return

    def find(self, root: Expr, name: str, limit: int = 40) -> Call | None:
        """The nearest row ``name`` that ``root`` is computed from, breadth first."""
        top = self.value(root)
        near = self._near.get(id(top))
        if near is None:
            near = self._near[id(top)] = self._above(top)
        at, call = near.get(name, (limit, None))
        return call if at < limit else None

    def _above(self, top: Expr) -> dict[str, tuple[int, Call]]:
        """The first of each kind of row among the 40 nearest, with its place in the order."""
        queue, visited = deque([top]), set[int]()
        found: dict[str, tuple[int, Call]] = {}
        while queue and len(visited) < 40:
            node = self.value(queue.popleft())
            if isinstance(node, TupleGetItem):
                node = self.value(node.tuple_value)
            if id(node) in visited or not isinstance(node, Call):
                continue
            if name := row_name(node):
                found.setdefault(name, (len(visited), node))
            visited.add(id(node))
            queue.extend(node.args)
        return found

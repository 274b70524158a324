"""Symbolic dimensions as tensors: the arithmetic of sizes in a StableHLO program.

A symbolic variable is the size of the first dimension of a parameter that defines it, the value of
a parameter, or the size of what an ``R.match_cast`` or a region's parameter defines; all else is
integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    Binding,
    Constant,
    Expr,
    StructInfo,
    TensorStructInfo,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import (
    free_symbolic_vars,
)
from relax2xla.op.shared.lowering import hlo
from relax2xla.tir import Dim

# Symbolic variables by the parameter that holds them: a tensor of rank 0, or a place in a vector.
Sources = dict[tir.Var, tuple[Var, int | None]]
INDEX: Final = "int64"
SCALAR: Final = TensorStructInfo.make((), INDEX)
_ASSERTED: Final = TensorStructInfo.make((), "int32")
_FLAG: Final = TensorStructInfo.make((), "bool")


def is_open(info: StructInfo) -> bool:
    """Whether a shape in ``info`` is unknown or symbolic."""
    if isinstance(info, TupleStructInfo):
        return any(map(is_open, info.fields))
    if isinstance(info, TensorStructInfo) and info.dims is None:
        return True
    return bool(free_symbolic_vars(info))


def symbolic_dim(d: Any) -> bool:
    """Whether a dimension is no number."""
    return isinstance(d, tir.PrimExpr)


@dataclass(slots=True)
class Scope:
    """The head of a function, its body, or a region: what is computed there, and known by then."""

    bindings: list[Binding]
    known: dict[Any, Expr] = field(default_factory=dict)
    # Where the symbolic variables that it defines are dimensions: tensor, axis, dimension.
    places: dict[tir.Var, tuple[Expr, int, Dim]] = field(default_factory=dict)

    def define(self, variables: Iterable[Var]) -> None:
        """Note the dimensions of ``variables``."""
        dims = [place for v in variables for place in _dims_of(v)]
        # Where a variable stands alone, it is read off; else the equation is solved for it.
        for expr, axis, d in sorted(dims, key=lambda place: not isinstance(place[2], tir.Var)):
            for v in tir.free_vars(d):
                if v not in self.places and (d is v or _linear(d, v) is not None):
                    self.places[v] = expr, axis, d


class Sizes:
    """Symbolic dimensions as tensors, computed once each in a scope.

    What the parameters define is computed by ``bindings``, at the head of the function; what
    ``R.match_cast`` and the parameters of regions define, where it is needed.
    """

    def __init__(self, params: Sequence[Var], sources: Sources) -> None:
        self.bindings: list[Binding] = []
        self.sources = sources
        self.scopes = [Scope(self.bindings)]
        self.scopes[0].define(params)
        self.target = self.scopes[0]
        # Whether there are assertions, which are effects that a pure function may have.
        self.asserts = False

    def define(self, var: Var) -> None:
        """``var``, bound or a parameter of a region, is known from here on."""
        if len(self.scopes) > 1 and is_open(var.struct_info):
            self.scopes[-1].define([var])

    def bind(self, name: str, value: Expr) -> Var:
        """A variable where the dimension is computed that is asked for."""
        var = Var(name, value.struct_info)
        self.target.bindings.append(VarBinding(var, value))
        return var

    def _get(self, key: Any, make: Callable[[Any], Expr]) -> Expr:
        """What is known of a dimension or of several, else made in the scope it belongs to."""
        for scope in self.scopes:
            known = scope.known.get(key)
            if known is not None:
                return known
        parts = key if isinstance(key, tuple) else (key,)
        before = self.target
        at_head = all(self._at_head(v) for d in parts for v in tir.free_vars(d))
        self.target = self.scopes[0 if at_head else -1]
        made = self.target.known[key] = make(key)
        self.target = before
        return made

    def _at_head(self, var: tir.Var) -> bool:
        """Whether a parameter defines ``var``."""
        held = var in self.sources and self._place(var) is None
        return held or var in self.scopes[0].places

    def _place(self, var: tir.Var) -> tuple[Expr, int, Dim] | None:
        return next((s.places[var] for s in self.scopes if var in s.places), None)

    def defined(self, dim: Dim) -> bool:
        """Whether the value of ``dim`` can be computed here."""
        return all(v in self.sources or self._place(v) for v in tir.free_vars(dim))

    def scalar(self, dim: Dim) -> Expr:
        """A dimension as a tensor of rank 0 and dtype int64."""
        if not isinstance(dim, tir.PrimExpr):
            return self._get(dim, lambda d: Constant(np.asarray(d, np.int64)))
        for node in tir.post_order(dim):
            self._get(node, self._node)
        return self._get(dim, self._node)

    def vector(self, dims: Sequence[Dim]) -> Expr:
        """Dimensions as a tensor of rank 1 and dtype int64."""
        return self._get(tuple(tir.as_dim(d) for d in dims), self._vector)

    def require(self, a: Dim, b: Dim, message: str, in_dataflow: bool) -> None:
        """Assert that two dimensions are equal, as jax.export does; not in dataflow but before it.

        ``message`` holds ``{0}`` and ``{1}`` where the sizes shall stand.
        """
        at_head = all(self._at_head(v) for d in (a, b) for v in tir.free_vars(d))
        if in_dataflow and not at_head:
            raise LegalizeError(
                f"R.match_cast of {a} to {b} cannot be checked in dataflow, for not all of these "
                "dimensions are those of parameters; move it out of R.dataflow()"
            )
        sizes = self.scalar(a), self.scalar(b)
        before, self.target = self.target, self.scopes[0 if at_head else -1]
        call = hlo(
            "custom_call",
            _compared(self, *sizes, "EQ"),
            *(self.bind("size", hlo("convert", s, out=_ASSERTED)) for s in sizes),
            out=TupleStructInfo(()),
            call_target_name="shape_assertion",
            has_side_effect=True,
            api_version=2,
            discardable={"error_message": message},
        )
        self.bind("asserted", call)
        self.asserts = True
        self.target = before

    def _vector(self, dims: tuple[Dim, ...]) -> Expr:
        parts: list[Expr] = []
        numbers: list[int] = []

        def flush() -> None:
            if numbers:
                parts.append(Constant(np.asarray(numbers, np.int64)))
                numbers.clear()

        for d in dims:
            if isinstance(d, int):
                numbers.append(d)
                continue
            flush()
            one = TensorStructInfo.make((1,), INDEX)
            parts.append(self.bind("dim", hlo("reshape", self.scalar(d), out=one)))
        flush()
        if not parts:
            return Constant(np.zeros(0, np.int64))
        if len(parts) == 1:
            return parts[0]
        return self.bind("dims", hlo("concatenate", *parts, dimension=0))

    def _node(self, node: tir.PrimExpr) -> Expr:
        if isinstance(node, tir.IntImm):
            return Constant(np.asarray(node.value, np.bool_ if node.dtype == "bool" else np.int64))
        if isinstance(node, tir.Var):
            return self._var(node)
        operands = [self._get(c, self._node) for c in node.children()]
        conditional = isinstance(node, tir.Call) and node.op == "tir.if_then_else"
        rule = _ARITHMETIC.get(tir.Select if conditional else type(node))
        if rule is None:
            raise LegalizeError(
                f"the dimension `{node}` cannot be computed in a StableHLO program "
                f"({type(node).__name__}); bind its variables (Function.bind_symbolic_vars)"
            )
        return rule(self, node, operands)

    def _var(self, var: tir.Var) -> Expr:
        # Sizes come before values: a size is known where the program is specialised.
        place = self._place(var)
        if place is None and var in self.sources:
            return self._held(var, *self.sources[var])
        if place is None:
            raise LegalizeError(
                f"no dimension of a parameter defines the symbolic variable {var}; bind it "
                "(Function.bind_symbolic_vars). Shapes and numbers that are parameters become "
                "tensors in relax2xla.to_stablehlo only"
            )
        tensor, axis, dim = place
        if isinstance(tensor, TupleGetItem):
            tensor = self.bind("part", tensor)
        size = self.bind("size", hlo("get_dimension_size", tensor, dimension=axis))
        value: Expr = self.bind(var.name, hlo("convert", size, out=SCALAR))
        if dim is var:
            return value
        solved = _linear(dim, var)
        assert solved is not None
        slope, rest = solved
        rest_value = self.scalar(rest)
        value = self.bind("rest", hlo("subtract", value, rest_value))
        return self.bind(var.name, hlo("divide", value, self.scalar(slope)))

    def _held(self, var: tir.Var, tensor: Expr, place: int | None) -> Expr:
        """A variable that is the value of a parameter."""
        if place is not None:
            row = hlo(
                "slice",
                tensor,
                start_indices=(place,),
                limit_indices=(place + 1,),
                strides=(1,),
            )
            part = self.bind("part", row)
            tensor = self.bind(var.name, hlo("reshape", part, out=SCALAR))
        return self.bind(var.name, hlo("convert", tensor, out=SCALAR))


def _dims_of(param: Var) -> list[tuple[Expr, int, Dim]]:
    """The symbolic dimensions of a parameter: the tensor, the axis and the dimension."""
    found: list[tuple[Expr, int, Dim]] = []
    todo: list[tuple[Expr, StructInfo]] = [(param, param.struct_info)]
    while todo:
        expr, info = todo.pop(0)
        if isinstance(info, TupleStructInfo):
            if isinstance(expr, Var):
                todo[:0] = [(TupleGetItem(expr, i), f) for i, f in enumerate(info.fields)]
        elif isinstance(info, TensorStructInfo):
            found += [(expr, i, d) for i, d in enumerate(info.dims or ()) if symbolic_dim(d)]
    return found


def _linear(dim: Dim, var: tir.Var) -> tuple[int, Dim] | None:
    """``(slope, rest)`` of ``dim = slope * var + rest`` with ``var`` the only variable."""
    if tir.free_vars(dim) != [var]:
        return None
    at = [tir.as_dim(tir.simplify(tir.substitute(dim, {var: i}))) for i in (0, 1)]
    if not all(isinstance(v, int) for v in at):
        return None
    rest, slope = int(at[0]), int(at[1]) - int(at[0])  # pyright: ignore[reportArgumentType]
    if slope <= 0 or not tir.can_prove_equal(dim, var * slope + rest):
        return None
    return slope, rest


# ---- arithmetic
Arithmetic = Callable[[Sizes, tir.PrimExpr, Sequence[Expr]], Expr]


def _row(name: str) -> Arithmetic:
    return lambda sizes, node, args: sizes.bind("dim", hlo(name, *args))


def _compare(direction: str) -> Arithmetic:
    return lambda sizes, node, args: _compared(sizes, args[0], args[1], direction)


def _compared(sizes: Sizes, a: Expr, b: Expr, direction: str) -> Expr:
    row = hlo("compare", a, b, comparison_direction=direction, compare_type="SIGNED")
    return sizes.bind("holds", row)


def _floor_div(sizes: Sizes, node: tir.PrimExpr, args: Sequence[Expr]) -> Expr:
    quotient = sizes.bind("dim", hlo("divide", *args))
    if _never_negative(node.children()[0]):
        return quotient
    rest = sizes.bind("rest", hlo("remainder", *args))
    below = _compared(sizes, rest, sizes.scalar(0), "LT")
    less = sizes.bind("dim", hlo("subtract", quotient, sizes.scalar(1)))
    return sizes.bind("dim", hlo("select", below, less, quotient))


def _floor_mod(sizes: Sizes, node: tir.PrimExpr, args: Sequence[Expr]) -> Expr:
    rest = sizes.bind("rest", hlo("remainder", *args))
    if _never_negative(node.children()[0]):
        return rest
    below = _compared(sizes, rest, sizes.scalar(0), "LT")
    more = sizes.bind("dim", hlo("add", rest, args[1]))
    return sizes.bind("dim", hlo("select", below, more, rest))


def _never_negative(e: tir.PrimExpr) -> bool:
    """Whether ``e`` is at least 0 where all variables, which are sizes, are."""
    env: dict[tir.Var, Dim] = {v: tir.SizeVar(v.name, v.dtype) for v in tir.free_vars(e)}
    sized = tir.substitute(e, env)
    return isinstance(sized, tir.PrimExpr) and tir.Analyzer().can_prove(sized >= 0)


def _cast(sizes: Sizes, node: tir.PrimExpr, args: Sequence[Expr]) -> Expr:
    if node.dtype == "bool":
        raise LegalizeError(f"the dimension `{node}` is a bool")
    return sizes.bind("dim", hlo("convert", args[0], out=SCALAR))


# Divisors are positive numbers in what operators infer of shapes.
_ARITHMETIC: Final[dict[type[tir.PrimExpr], Arithmetic]] = {
    tir.Add: _row("add"),
    tir.Sub: _row("subtract"),
    tir.Mul: _row("multiply"),
    tir.Max: _row("maximum"),
    tir.Min: _row("minimum"),
    tir.Div: _row("divide"),
    tir.Mod: _row("remainder"),
    tir.FloorDiv: _floor_div,
    tir.FloorMod: _floor_mod,
    tir.And: _row("and"),
    tir.Or: _row("or"),
    tir.Not: _row("not"),
    tir.Select: _row("select"),
    tir.Cast: _cast,
    tir.EQ: _compare("EQ"),
    tir.NE: _compare("NE"),
    tir.LT: _compare("LT"),
    tir.LE: _compare("LE"),
    tir.GT: _compare("GT"),
    tir.GE: _compare("GE"),
}

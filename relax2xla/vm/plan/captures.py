"""What values need from outside, and whether they have effects: each scope is looked at once.

Branches and local functions are summed up where they stand, so that a nest of any depth costs what
its nodes cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relax2xla import tir
from relax2xla.ir import (
    Binding,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    MatchCast,
    Op,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    StructInfo,
    Var,
)
from relax2xla.ir.base import Attrs
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import definable_vars, free_symbolic_vars
from relax2xla.ir.rewrite import bindings_of, post_order
from relax2xla.ir.traits import Foreign
from relax2xla.vm.host.operators import HOST

LEAVES = (Var, Constant, ShapeExpr, PrimValue, StringImm, DataTypeImm, ExternFunc)


def is_flat(value: Expr) -> bool:
    """Whether ``value`` is a call over leaves, of a known callee, as almost every binding's is."""
    return (
        isinstance(value, Call)
        and isinstance(value.op, Op | ExternFunc | GlobalVar)
        and all(isinstance(a, LEAVES) for a in value.args)
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """Of a value: ``variables`` and ``symbols`` it needs from outside, in order of use.

    ``casts``: symbolic variables that a cast inside defines, or checks where they are known.
    ``effect``: whether its place among other effects counts.
    """

    variables: tuple[Var, ...]
    symbols: tuple[tir.Var, ...]
    casts: tuple[tir.Var, ...]
    effect: bool


@dataclass(slots=True)
class _Sum:
    """Facts as they are gathered, in order."""

    variables: dict[Var, None] = field(default_factory=dict[Var, None])
    symbols: dict[tir.Var, None] = field(default_factory=dict[tir.Var, None])
    casts: dict[tir.Var, None] = field(default_factory=dict[tir.Var, None])
    effect: bool = False

    def add(self, facts: Facts, bound: set[Var], own: set[tir.Var]) -> None:
        """What a part needs, except what the scope around it has bound."""
        self.variables.update((v, None) for v in facts.variables if v not in bound)
        self.symbols.update((s, None) for s in facts.symbols if s not in own)
        self.casts.update(dict.fromkeys(facts.casts))
        self.effect = self.effect or facts.effect

    def facts(self) -> Facts:
        return Facts(tuple(self.variables), tuple(self.symbols), tuple(self.casts), self.effect)


class Captures:
    """:class:`Facts` of values and scopes, each found once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Expr, Facts]] = {}

    def of(self, value: Expr) -> Facts:
        """Facts of the value of a binding, or of a function, a branch or a sequence."""
        if isinstance(value, Call) and is_flat(value):
            return _flat(value)
        known = self._known.get(id(value))
        if known is None:
            # The key is kept alive with the result, so that its id stays its own.
            known = self._known[id(value)] = (value, self._find(value))
        return known[1]

    def inlined(self, value: Expr, functions: Mapping[Var, Binding]) -> Facts:
        """Those of ``value`` with the local ``functions`` put in where it calls them."""
        made = _Sum()
        seen: set[Var] = set()
        todo = [self.of(value)]
        while todo:
            facts = todo.pop()
            calls = [v for v in facts.variables if v in functions]
            made.add(facts, set(calls), set())
            todo += [self.of(functions[v].value) for v in calls if v not in seen]
            seen.update(calls)
        return made.facts()

    @nests
    def _find(self, root: Expr) -> Facts:
        if isinstance(root, SeqExpr):
            return self._sequence(root)
        if isinstance(root, Function):
            made = _Sum()
            own = {s for p in root.params for s in definable_vars(p.struct_info)}
            made.add(self.of(root.body), set(root.params), own)
            return made.facts()
        made = _Sum()
        for node in post_order(root):
            if isinstance(node, Var):
                made.variables[node] = None
            elif isinstance(node, Function | SeqExpr) and node is not root:
                made.add(self.of(node), set(), set())
            elif isinstance(node, If):
                for branch in (node.true_branch, node.false_branch):
                    made.add(self.of(branch), set(), set())
            elif isinstance(node, Call):
                _note_call(node, made)
            else:
                _note_symbols(node, made)
        return made.facts()

    def _sequence(self, seq: SeqExpr) -> Facts:
        made, bound, own = _Sum(), set[Var](), set[tir.Var]()
        for b in bindings_of(seq):
            if isinstance(b.value, Function):
                bound.add(b.var)  # it may call itself
            made.add(self.of(b.value), bound, own)
            bound.add(b.var)
            if isinstance(b, MatchCast):
                new = definable_vars(b.struct_info)
                needed = (s for s in free_symbolic_vars(b.struct_info) if s not in new)
                made.symbols.update((s, None) for s in needed if s not in own)
                own.update(new)
                made.casts.update(dict.fromkeys(new))
        made.add(self.of(seq.body), bound, own)
        return made.facts()


def _flat(call: Call) -> Facts:
    made = _Sum()
    for a in call.args:
        if isinstance(a, Var):
            made.variables[a] = None
        else:
            _note_symbols(a, made)
    _note_call(call, made)
    return made.facts()


def _note_call(call: Call, made: _Sum) -> None:
    """What a call needs besides its operands."""
    if call.sinfo_args:
        _note(call.sinfo_args, made)
    if call.attrs:
        _note(call.attrs, made)
    made.effect = made.effect or _has_effect(call)


def _note_symbols(node: Expr, made: _Sum) -> None:
    if isinstance(node, ShapeExpr):
        _note(node.values, made)
    elif isinstance(node, PrimValue):
        _note(node.value, made)


def _note(value: object, made: _Sum) -> None:
    """The symbolic variables in an attribute or a dimension."""
    if isinstance(value, tir.PrimExpr):
        made.symbols.update(dict.fromkeys(tir.free_vars(value)))
    elif isinstance(value, StructInfo):
        made.symbols.update(dict.fromkeys(free_symbolic_vars(value)))
    elif isinstance(value, tuple):
        for v in value:
            _note(v, made)
    elif isinstance(value, Attrs):
        for v in value.values():
            _note(v, made)


def _has_effect(call: Call) -> bool:
    """Whether a call keeps its place among others with effects."""
    if isinstance(call.op, Op):
        known = HOST.get(call.op.name)
        foreign = call.op.trait(Foreign)
        if (known is not None and known.effect) or (foreign is not None and foreign.ordered):
            return True
        return not call.op.is_pure_call(call)
    # A function may be declared pure and still call packed ones, by a promise of its own.
    return not isinstance(call.op, Function)

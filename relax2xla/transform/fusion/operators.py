"""FuseOps: kernels whose loops can be one are put into a function, for FuseTIR.

Source of the semantics: ``FuseOps`` of TVM v0.20, whose classes of kernels decide what goes
together (:mod:`relax2xla.analysis.op_pattern`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from relax2xla.analysis.op_pattern import OpPatternKind
from relax2xla.analysis.variables import used_vars
from relax2xla.ir import (
    Binding,
    Call,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.tir import PrimFunc
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.context import FUSE_DEPTH
from relax2xla.transform.core.kernel_calls import CALL_TIR
from relax2xla.transform.fusion.grouping import Fuser, Group, by_name, is_made

OP_PATTERN: Final = "op_pattern"
NUM_INPUT: Final = "num_input"
MOST_FUSED: Final = 256


@register()
class FuseOps(Pass):
    """Group calls of loop-level functions whose loops can be one, and call a function for each
    group.

    Within dataflow blocks, by the class of each function (its attribute ``op_pattern``, which
    AnnotateTIROpPattern sets; without it the function stays alone): elementwise functions go
    together and follow a product, a convolution or a fold; functions that move elements go
    together. A value is fused with the first one that all its readers lead to. The functions that
    are made have the attribute ``Primitive``; FuseTIR makes one loop-level function of each.
    fuse_opt_level: 0 fuses nothing; -1 is the level of the context. The key
    ``relax.FuseOps.max_depth`` of its config limits how many are fused into one. XLA fuses what it
    compiles by itself, so this is for programs that go on with loop-level functions.
    """

    def __init__(self, fuse_opt_level: int = -1) -> None:
        self.fuse_opt_level = fuse_opt_level

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        level = context.opt_level if self.fuse_opt_level == -1 else self.fuse_opt_level
        most = int(context.config.get(FUSE_DEPTH, MOST_FUSED))
        fuser = Fuser(mod, lift_constants=True)
        for gvar in by_name(mod):
            func = mod[gvar]
            if level > 0 and isinstance(func, Function) and not is_made(func):
                fuser.fuse(gvar, _groups(func, mod, most))
        return fuser.result()


@dataclass(eq=False, slots=True)
class _Node:
    """A binding: its class, and who reads it.

    ``kept``: it is read outside of its block, so that it cannot vanish in a function. ``after``,
    ``depth`` and ``between``: the first value that all readers lead to (None: there is none), how
    many such values follow each other, and the class of all that lies on the way there.
    ``group``: the set that it is in; ``size`` and ``joined`` are those of a set's last value.
    """

    var: Var
    kind: OpPatternKind
    place: int
    kept: bool
    outputs: list[tuple[_Node, OpPatternKind]] = field(
        default_factory=list["tuple[_Node, OpPatternKind]"]
    )
    after: _Node | None = None
    depth: int = 1
    between: OpPatternKind = OpPatternKind.Opaque
    group: _Node | None = None
    size: int = 1
    joined: OpPatternKind = OpPatternKind.Opaque

    def root(self) -> _Node:
        """The last value of the set that this one is in."""
        node = self
        while node.group is not None:
            if node.group.group is not None:
                node.group = node.group.group
            node = node.group
        return node


def _groups(func: Function, mod: IRModule, most: int) -> dict[Var, Group]:
    """The sets of bindings of ``func`` that become functions."""
    nodes = list(_graph(func, mod))
    for node in reversed(nodes):
        _dominate(node)
    for phase in range(2):
        for node in nodes:
            _fuse(node, phase, most)
    members: dict[_Node, list[Var]] = {}
    for node in nodes:
        members.setdefault(node.root(), []).append(node.var)
    found: dict[Var, Group] = {}
    for variables in members.values():
        if len(variables) > 1:
            found.update(dict.fromkeys(variables, Group(variables)))
    return found


# -- the graph -------------------------------------------------------------------------------------
def _graph(func: Function, mod: IRModule) -> Iterator[_Node]:
    """The bindings of ``func`` as nodes, each with what reads it."""
    assert isinstance(func.body, SeqExpr)
    number = func.attrs.get(NUM_INPUT)
    packed = set(func.params[int(number) :]) if number is not None else set[Var]()
    known: dict[Var, _Node] = {}
    for block in func.body.blocks:
        for b in block.bindings:
            kind, read = _reads(b, mod, packed)
            node = _Node(b.var, kind, len(known), not isinstance(b.var, DataflowVar), joined=kind)
            known[b.var] = node
            for var in read:
                if var in known:
                    known[var].outputs.append((node, kind))
            yield node


def _reads(b: Binding, mod: IRModule, packed: set[Var]) -> tuple[OpPatternKind, Sequence[Var]]:
    """The class of a binding, and the variables that it reads."""
    value = b.value
    if not isinstance(b, VarBinding):
        return OpPatternKind.Opaque, used_vars(value)
    if isinstance(value, TupleGetItem):
        # Fields of a tuple of weights are read at the head of a function, far from their use.
        fetched = isinstance(value.tuple_value, Var) and value.tuple_value in packed
        kind = OpPatternKind.Opaque if fetched else OpPatternKind.Injective
        return kind, used_vars(value)
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in CALL_TIR:
        callee, args = value.args[0], value.args[1]
        kernel = mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
        given = kernel.attrs.get(OP_PATTERN) if isinstance(kernel, PrimFunc) else None
        # A tuple that is passed whole has no operands to fuse with.
        if isinstance(given, int) and isinstance(args, Tuple):
            return OpPatternKind(given), _operands(args)
    return OpPatternKind.Opaque, used_vars(value)


def _operands(args: Tuple) -> Sequence[Var]:
    """The variables among operands, each as often as it is given."""
    stack: list[Expr] = list(reversed(args.fields))
    found: list[Var] = []
    while stack:
        arg = stack.pop()
        if isinstance(arg, Tuple):
            stack += reversed(arg.fields)
        elif isinstance(arg, Var):
            found.append(arg)
    return found


def _dominate(node: _Node) -> None:
    """Find where all readers of ``node`` lead; those of its readers are known."""
    if node.kept or not node.outputs:
        return
    between = OpPatternKind.ElemWise
    found: _Node | None = node.outputs[0][0]
    for reader, kind in node.outputs:
        between = max(between, kind)
        other: _Node | None = reader
        while found is not other and found is not None and other is not None:
            if found.depth >= other.depth:
                step, found = found, found.after
                if step.depth == other.depth:
                    between = max(between, other.between)
                    other = other.after
                between = max(between, step.between)
            else:
                between = max(between, other.between)
                other = other.after
        if found is not other:
            found = None
    node.after, node.between = found, between
    node.depth = 1 if found is None else found.depth + 1


# -- fusing ----------------------------------------------------------------------------------------
Allowed = Callable[[OpPatternKind, bool], bool]
_ELEMENTWISE: Final = (OpPatternKind.ElemWise, OpPatternKind.Broadcast)
_MOVING: Final = (*_ELEMENTWISE, OpPatternKind.Injective)
_FOLLOWED: Final = (*_MOVING, OpPatternKind.CommReduce, OpPatternKind.OutEWiseFusable)


def _into_product(kind: OpPatternKind, last: bool) -> bool:
    return kind in _ELEMENTWISE


def _elementwise(kind: OpPatternKind, last: bool) -> bool:
    return kind in (_FOLLOWED if last else _MOVING)


def _moving(kind: OpPatternKind, last: bool) -> bool:
    return kind in _MOVING


def _fuse(node: _Node, phase: int, most: int) -> None:
    """Fuse ``node`` with where its readers lead, and what lies between, if all classes allow it.

    Functions that move elements wait for the second phase, so that products get theirs first.
    """
    sink = node.after
    if node.joined is OpPatternKind.Opaque or sink is None or node.root() is sink.root():
        return
    allowed: Allowed | None = None
    if node.joined is OpPatternKind.OutEWiseFusable:
        if phase == 0 and node.between is OpPatternKind.ElemWise:
            allowed = _into_product
    elif node.joined in _ELEMENTWISE:
        if node.between in _MOVING or node.between is OpPatternKind.CommReduce:
            allowed = _elementwise
    elif node.joined is OpPatternKind.Injective and phase == 1:
        allowed = _moving
    if allowed is None:
        return
    path = _between(node, sink, most - sink.root().size)
    if path is None:
        return
    kinds = [(n.root().joined, False) for n in path[1:]]
    if all(allowed(*k) for k in (*kinds, (sink.root().joined, True))):
        for n in path:
            _join(n, sink)


def _between(node: _Node, sink: _Node, most: int) -> list[_Node] | None:
    """``node`` and all that lies between it and ``sink``; None where that is above ``most``."""
    found: dict[_Node, None] = {}
    stack, size = [node], 0
    while stack:
        n = stack.pop()
        if n is sink or n in found:
            continue
        found[n] = None
        size += n.size
        if size > most:
            return None
        stack += [reader for reader, _ in n.outputs]
    return list(found)


def _join(node: _Node, sink: _Node) -> None:
    """Make the set of ``node`` part of that of ``sink``."""
    child, parent = node.root(), sink.root()
    if child is parent:
        return
    parent.size += child.size
    child.group = parent
    if child.joined is OpPatternKind.OutEWiseFusable:
        parent.joined = max(child.joined, parent.joined)

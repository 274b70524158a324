"""Gradients of equal calls are worked out once: identical layers repeat their calls.

A rule of ``op.shared.gradients`` sees of a call what the key of
:mod:`relax2xla.transform.lower.replay` holds, and of the gradient its struct info. What it gave for
the first call is kept as steps over its variables, and made again over those of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from relax2xla.ir import Call, Expr, Tuple, TupleGetItem, TupleStructInfo, Var
from relax2xla.ir.op import Op, PrimalGradient, is_op
from relax2xla.ir.rewrite import LEAF_TYPES, children, post_order
from relax2xla.op.shared.gradients.table import is_differentiable
from relax2xla.transform.lower.replay import key_of

# A node, and the places of its operands among the values; none of a leaf that stays.
Step: TypeAlias = "tuple[Expr, tuple[int, ...] | None]"

_NEW = object()


class Formulas:
    """Gradients by rules that give equal expressions for equal calls."""

    def __init__(self) -> None:
        self._known: dict[object, _Steps | None] = {}

    def partials(
        self, rule: PrimalGradient, var: Var, call: Call, adjoint: Var
    ) -> Sequence[Expr | None] | Flat:
        """What ``rule`` gives for each operand of ``call``, whose result is ``var``.

        None of those without a gradient.
        """
        leaves: dict[Var, int] = {}
        key = key_of(call, var, True, leaves)
        if key is None:
            return wanted(rule(var, call, adjoint, None))
        info = adjoint.struct_info_
        key = (info is var.struct_info_ or info, key)
        steps = self._known.get(key, _NEW)
        if isinstance(steps, _Steps):
            if steps.plan is not None:
                return Flat(steps.plan, [var, adjoint, *leaves, *steps.nodes])
            return steps.made([var, adjoint, *leaves])
        made = wanted(rule(var, call, adjoint, None))
        if steps is _NEW:
            self._known[key] = _Steps.of(made, [var, adjoint, *leaves], call)
        return made


def wanted(made: Sequence[Expr]) -> list[Expr | None]:
    """Gradients, with None for those that are ``R.grad.no_grad``."""
    return [None if is_op(m, "relax.grad.no_grad") else m for m in made]


Pick: TypeAlias = Callable[[Sequence[Expr]], tuple[Expr, ...]]
"""What a step reads of the values."""


class Part(NamedTuple):
    """How the gradient of one operand is bound.

    operand: its place in the call
    before:  the calls that are bound, and tuples that are put together, before it, each with its
             place among the values and what it reads
    root:    the place of the gradient, and the call that makes it unless it is an input
    """

    operand: int
    before: Sequence[tuple[int, Expr, Pick]]
    root: int
    step: tuple[Call, Pick] | None


class _Steps:
    """Expressions over some variables, to be made again over others.

    results: of each expression its place among the values; None where there is none
    nodes:   of each step the expression
    plan:    for each operand that is a variable with a gradient how that is bound, where each step
             is flat then; None where that cannot be, where an expression is part of another, and
             of calls that take tuples
    """

    __slots__ = ("nodes", "plan", "results", "steps")

    def __init__(
        self, steps: Sequence[Step], results: Sequence[int | None], inputs: int, call: Call
    ) -> None:
        self.steps, self.results = steps, results
        self.nodes = [node for node, _ in steps]
        # Adjoints of tuples are added up field by field.
        tuples = any(isinstance(a.struct_info_, TupleStructInfo) for a in call.args)
        self.plan = None if tuples else _plan(steps, results, inputs, call)

    @staticmethod
    def of(exprs: Sequence[Expr | None], inputs: Sequence[Var], call: Call) -> _Steps | None:
        """The steps to ``exprs``; None where they hold more than calls, tuples and leaves."""
        places: dict[int, int] = {id(v): i for i, v in enumerate(inputs)}
        steps: list[Step] = []
        for root in exprs:
            for node in () if root is None else post_order(root):
                if id(node) in places:
                    continue
                places[id(node)] = len(inputs) + len(steps)
                if type(node) in LEAF_TYPES and not isinstance(node, Var):
                    steps.append((node, None))
                elif isinstance(node, Call | Tuple | TupleGetItem) and node.span is None:
                    steps.append((node, _places(node, places)))
                else:
                    return None
        results = [None if e is None else places[id(e)] for e in exprs]
        return _Steps(steps, results, len(inputs), call)

    def made(self, inputs: Sequence[Var]) -> list[Expr | None]:
        """The expressions over ``inputs``, in the order of those that they were made of."""
        values: list[Expr] = list(inputs)
        for node, places in self.steps:
            if places is None:
                values.append(node)
                continue
            kids = [values[p] for p in places]
            if isinstance(node, Call):
                values.append(Call.make(node, kids))
            elif isinstance(node, TupleGetItem):
                values.append(TupleGetItem(kids[0], node.index))
            else:
                values.append(Tuple(kids))
        return [None if r is None else values[r] for r in self.results]


def _places(node: Expr, places: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(places[id(k)] for k in children(node))


def _pick(places: tuple[int, ...]) -> Pick:
    """What takes the values of these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple([values[p] for p in places])


def _plan(
    steps: Sequence[Step], results: Sequence[int | None], inputs: int, call: Call
) -> list[Part] | None:
    """See :class:`_Steps`."""
    read = {p for _, places in steps for p in places or ()}
    roots = [r for r in results if r is not None and r >= inputs]
    if len(set(roots)) < len(roots) or not read.isdisjoint(roots):
        return None
    if not all(_is_flat(step, steps, inputs) for step in steps):
        return None
    if any(not isinstance(steps[r - inputs][0], Call) for r in roots):
        return None
    found: list[Part] = []
    bound: set[int] = set()
    for n, (operand, root) in enumerate(zip(call.args, results, strict=False)):
        if root is None or not isinstance(operand, Var):
            continue
        if not is_differentiable(operand.struct_info_):
            continue
        mine: set[int] = set()
        waiting = [root]
        while waiting:
            at = waiting.pop()
            if at >= inputs and at not in mine:
                mine.add(at)
                waiting.extend(steps[at - inputs][1] or ())
        # In post-order, as they are emitted: operands first, from the left.
        todo = [(at, *steps[at - inputs]) for at in sorted(mine - {root} - bound)]
        bound |= mine
        before = [(at, node, _pick(places)) for at, node, places in todo if places is not None]
        step = None
        if root >= inputs:
            node, places = steps[root - inputs]
            assert isinstance(node, Call)
            step = (node, _pick(places or ()))
        found.append(Part(n, before, root, step))
    return found


def _is_flat(step: Step, steps: Sequence[Step], inputs: int) -> bool:
    """Whether a step is a leaf, a tuple of leaves for a call, or a call that nothing changes."""
    node, places = step
    if places is None:
        return True
    kids = [steps[p - inputs][0] for p in places if p >= inputs]
    if isinstance(node, Tuple):
        return not any(isinstance(k, Tuple) for k in kids)
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.normal is None


class Flat:
    """Gradients of a call that are bound step by step, each where its turn comes.

    plan:   how each is bound
    values: what steps read, by place; in those of steps that are bound first stands what they are
            made of, until they are
    """

    __slots__ = ("plan", "values")

    def __init__(self, plan: Sequence[Part], values: list[Expr]) -> None:
        self.plan, self.values = plan, values

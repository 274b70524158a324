"""Gradients of equal calls are worked out once: identical layers repeat their calls.

A rule of ``op.shared.gradients`` sees of a call what the key of
:mod:`relax2xla.transform.lower.replay` holds, and of the gradient its struct info. What it gave for
the first call is kept as steps over its variables, and made again over those of the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from relax2xla.ir import Call, Expr, Tuple, TupleGetItem, Var
from relax2xla.ir.op import PrimalGradient, is_op
from relax2xla.ir.rewrite import LEAF_TYPES, children, post_order
from relax2xla.transform.lower.replay import key_of, leaves_of

# A node, and the places of its operands among the values; none of a leaf that stays.
Step: TypeAlias = "tuple[Expr, tuple[int, ...] | None]"


class Formulas:
    """Gradients by rules that give equal expressions for equal calls."""

    def __init__(self) -> None:
        self._known: dict[object, _Steps | None] = {}

    def partials(
        self, rule: PrimalGradient, var: Var, call: Call, adjoint: Var
    ) -> Sequence[Expr | None]:
        """What ``rule`` gives for each operand of ``call``, whose result is ``var``.

        None of those without a gradient.
        """
        key = key_of(call, var, True)
        if key is None:
            return wanted(rule(var, call, adjoint, None))
        key = (rule, adjoint.struct_info_, key)
        inputs = [var, adjoint, *leaves_of(call)]
        if key in self._known:
            steps = self._known[key]
            return wanted(rule(var, call, adjoint, None)) if steps is None else steps.made(inputs)
        made = wanted(rule(var, call, adjoint, None))
        self._known[key] = _Steps.of(made, inputs)
        return made


def wanted(made: Sequence[Expr]) -> list[Expr | None]:
    """Gradients, with None for those that are ``R.grad.no_grad``."""
    return [None if is_op(m, "relax.grad.no_grad") else m for m in made]


class _Steps:
    """Expressions over some variables, to be made again over others.

    results: of each expression its place among the values; None where there is none
    """

    __slots__ = ("results", "steps")

    def __init__(self, steps: Sequence[Step], results: Sequence[int | None]) -> None:
        self.steps, self.results = steps, results

    @staticmethod
    def of(exprs: Sequence[Expr | None], inputs: Sequence[Var]) -> _Steps | None:
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
        return _Steps(steps, [None if e is None else places[id(e)] for e in exprs])

    def made(self, inputs: Sequence[Var]) -> list[Expr | None]:
        """The expressions over ``inputs``, in the order of those that they were made of."""
        values: list[Expr] = list(inputs)
        for node, places in self.steps:
            if places is None:
                values.append(node)
                continue
            kids = [values[p] for p in places]
            if isinstance(node, Call):
                info = node.struct_info_
                again = Call(node.op, kids, node.attrs, node.sinfo_args, struct_info=info)
                values.append(again)
            elif isinstance(node, TupleGetItem):
                values.append(TupleGetItem(kids[0], node.index))
            else:
                values.append(Tuple(kids))
        return [None if r is None else values[r] for r in self.results]


def _places(node: Expr, places: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(places[id(k)] for k in children(node))

"""RemoveGradientMarks: values without what only their derivatives need."""

from __future__ import annotations

import functools
import operator
from typing import Final

from relax2xla.analysis.foreign import ForeignCalls
from relax2xla.analysis.unused import remove_unused
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import Expr, IRModule
from relax2xla.transform.core import Pass, PassContext, register

_MARKS: Final = ("differentiate_as", "no_grad", "start_checkpoint", "end_checkpoint")


@register()
class RemoveGradientMarks(Pass):
    """Put a value in the place of the operators that only say what its derivative is.

    They are ``R.grad.no_grad``, ``differentiate_as`` and the marks of checkpoints: all give their
    operand. What ``differentiate_as`` had the derivative computed from goes, where nothing else
    reads it, so that passes see a value with its readers alone. After this a function is for its
    values: differentiate it before.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        found = rewrite(mod, [_unmarked])[0]
        if found is mod:
            return mod
        foreign = ForeignCalls(found)
        changed = {g: f for g, f in found.relax_functions().items() if f is not mod[g]}
        cleaned = {g: remove_unused(f, foreign) for g, f in changed.items()}
        return found.replace({**found.functions, **cleaned})


_mark = functools.reduce(operator.or_, [is_op(f"relax.grad.{name}") for name in _MARKS])


@rule(_mark(wildcard(), varg_default_wildcard=True))
def _unmarked(m: Match) -> Expr:
    return m.call.args[0]

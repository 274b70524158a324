"""RemoveGradientMarks: values without what only their derivatives need."""

from __future__ import annotations

import functools
import operator
from typing import Final

from relax2xla.analysis.foreign import ForeignCalls
from relax2xla.analysis.unused import remove_unused
from relax2xla.analysis.variables import called_by_symbol, detect_recursion
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import Call, Expr, Function, GlobalVar, IRModule, TensorStructInfo
from relax2xla.ir.op import is_op as is_call
from relax2xla.stablehlo.own_derivatives import OWN_DERIVATIVES
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.normal.canonicalize import canonical
from relax2xla.transform.normal.inline import inline_calls

_MARKS: Final = ("differentiate_as", "no_grad", "start_checkpoint", "end_checkpoint")


@register()
class RemoveGradientMarks(Pass):
    """Put a value in the place of the operators that only say what its derivative is.

    They are ``R.grad.no_grad``, ``differentiate_as`` and the marks of checkpoints, which all give
    their operand, and the composites of JAX's functions with rules of their own, which become what
    they compute. What only the derivative was computed from goes, where nothing else reads it, so
    that passes see a value with its readers alone. After this a function is for its values:
    differentiate it before.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        found = rewrite(without_own_derivatives(mod), [_unmarked])[0]
        if found is mod:
            return mod
        foreign = ForeignCalls(found)
        changed = {g: f for g, f in found.relax_functions().items() if f is not mod[g]}
        cleaned = {g: remove_unused(f, foreign) for g, f in changed.items()}
        return found.replace({**found.functions, **cleaned})


def without_own_derivatives(mod: IRModule) -> IRModule:
    """``mod`` with what functions of JAX compute in the place of their composites.

    And with values in the place of their bits and back, which have no derivative.
    """
    named: dict[str, GlobalVar] = {}

    @rule(is_op("relax.stablehlo.composite")(varg_default_wildcard=True))
    def called(m: Match) -> Expr | None:
        call = m.call
        if call.attrs["name"] not in OWN_DERIVATIVES:
            return None
        (gvar,) = called_by_symbol(mod, call)
        named[gvar.name_hint] = gvar
        return Call(gvar, call.args, span=call.span, struct_info=call.struct_info)

    found = rewrite(mod, [called, _from_bits])[0]
    if not named:
        return found
    # What calls itself stays a call, which no program may have.
    endless = {g for group in detect_recursion(found) for g in group}
    callees = {name: found[gvar] for name, gvar in named.items() if gvar not in endless}
    foreign = ForeignCalls(found)
    changed: dict[GlobalVar, Function] = {}
    for gvar, func in found.relax_functions().items():
        new = inline_calls(func, callees)
        if new is not func:
            # What a rule gives is read by nobody, once results are no tuple.
            changed[gvar] = remove_unused(canonical(new), foreign)
    return found.replace({**found.functions, **changed})


_bits, _whole = "relax.stablehlo.bitcast_convert", wildcard()


@rule(is_op(_bits)(_whole))
def _from_bits(m: Match) -> Expr | None:
    bits, made = m.origin(m[_whole]), m.call.struct_info  # behind a cast, where sizes are symbolic
    if not isinstance(bits, Call) or not is_call(bits, _bits):
        return None
    (whole,) = bits.args
    info = whole.struct_info
    assert isinstance(info, TensorStructInfo)
    assert isinstance(made, TensorStructInfo)
    return whole if info.dtype == made.dtype else None


_mark = functools.reduce(operator.or_, [is_op(f"relax.grad.{name}") for name in _MARKS])


@rule(_mark(wildcard(), varg_default_wildcard=True))
def _unmarked(m: Match) -> Expr:
    return m.call.args[0]

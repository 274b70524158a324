"""Operators as calls of loop-level functions: ``LegalizeOps(to="kernels")``.

The forms of the operators are in the room te_forms; this is the walk over a module, with the rules
of TVM v0.20 for what is replaced: a call whose shapes are all known, symbolic or not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Final

from relax2xla.analysis.variables import all_global_vars
from relax2xla.builder import BlockBuilder
from relax2xla.errors import TVMError
from relax2xla.expr_functor import PyExprMutator, mutator
from relax2xla.ir import (
    Call,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    IRModule,
    Op,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)
from relax2xla.op import call_pure_packed
from relax2xla.op.intrinsic import call_tir_op
from relax2xla.tir import PrimFunc
from relax2xla.topi.shared import FUNCTIONS
from relax2xla.transform.lower.origins import origin_of, with_origins
from relax2xla.transform.lower.te_forms import packed
from relax2xla.transform.lower.te_forms.table import FORMS, Site, Stays

Rule = Callable[[BlockBuilder, Call], Expr]

# What needs no shapes, for a function of the runtime takes the operands as they are.
_UNSIZED: Final = frozenset(f"relax.{name}" for name in packed.PACKED)
# Calls of functions, which are what operators are to become.
_DONE: Final = frozenset({"relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed"})


def to_kernels(mod: IRModule, custom: Mapping[str, Rule], warns: bool) -> IRModule:
    """``mod`` with calls of loop-level functions in place of operators that have a form.

    ``custom``: rules by operator name that take precedence. ``warns``: of each operator that stays.
    """
    lowered = _ToKernels(mod, custom, warns)
    for gvar, func in mod.relax_functions().items():
        made = lowered.visit_expr(func)
        assert isinstance(made, Function)
        if made is not func:
            lowered.builder_.update_func(gvar, made)
    made = lowered.builder_.get()
    called = {g for f in made.relax_functions().values() for g in all_global_vars(f)}
    # Those whose every call is of one for a device.
    left = lowered.replaced - called - set(mod.functions)
    if left:
        made = made.replace({g: f for g, f in made.items() if g not in left})
    return with_origins(made, lowered.origins)


@mutator
class _ToKernels(PyExprMutator):
    def __init__(self, mod: IRModule, custom: Mapping[str, Rule], warns: bool) -> None:
        super().__init__(mod)
        self.custom, self.warns = custom, warns
        # Functions that have another one for a device beside them.
        self.replaced: set[GlobalVar] = set()
        # What functions were made of.
        self.origins: dict[GlobalVar, Function] = {}

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        rule = self._rule(call, call.op)
        if rule is None:
            return call
        # What a rule emits are operators as well.
        self.builder_.begin_block(self.builder_.current_block_is_dataflow())
        try:
            made = self.builder_.normalize(self._for_device(rule(self.builder_, call)))
        except Stays as e:
            self.builder_.end_block()
            self._leave(call.op.name, str(e))
            return call
        except (TVMError, TypeError, ValueError) as e:  # of te or topi, which know of no operator
            e.add_note(f"  while making a loop-level function of {call.op.describe(call)}")
            raise
        for binding in self.builder_.end_block().bindings:
            self.visit_binding(binding)
        if call.op.pure and isinstance(made, Call) and isinstance(made.op, ExternFunc):
            made = call_pure_packed(made.op, *made.args, sinfo_args=list(made.sinfo_args))
        return made if made is call else self.visit_expr(made)

    def _rule(self, call: Call, op: Op[...]) -> Rule | None:
        """What is to take the place of a call; None where it stays."""
        known = _are_known(call)
        own = self.custom.get(op.name) or op.attributes.get("FLegalize", (0, None))[1]
        if own is not None and known:
            return own
        made = FORMS.get(op.name)
        if made is not None and (known or op.name in _UNSIZED):
            return lambda builder, call: self._noted(call, made(Site(builder, call)))
        if op.name not in _DONE:
            why = "" if known else "the shapes of its operands and of its result are not all known"
            self._leave(op.name, why)
        return None

    def _leave(self, name: str, why: str) -> None:
        """Let an operator stay that has no loop-level form."""
        if self.warns:
            reason = f" here, for {why}" if why else ""
            warnings.warn(f"{name} has no loop-level form{reason}; it stays", stacklevel=2)

    def _noted(self, call: Call, made: Expr) -> Expr:
        """``made``, what a form has made of ``call``; which call it was is known of its kernel."""
        if isinstance(made, Call) and made.op is call_tir_op:
            callee, tensors, *numbers = made.args
            assert isinstance(callee, GlobalVar)
            assert isinstance(tensors, Tuple)
            origin = None if numbers else origin_of(call, tensors.fields)
            if origin is not None:
                self.origins.setdefault(callee, origin)
        return made

    def _for_device(self, made: Expr) -> Expr:
        """``made``, of a function of its own for the target on which its result is."""
        if not isinstance(made, Call) or not made.args or not isinstance(made.args[0], GlobalVar):
            return made
        target = next(filter(None, map(_target, made.sinfo_args)), None)
        func = self.builder_.get().functions.get(made.args[0])
        if target is None or not isinstance(func, PrimFunc) or "target" in func.attrs:
            return made
        name = f"{made.args[0].name_hint}_{target.partition(' ')[0]}"
        own = self.builder_.add_func(func.with_attr("target", FUNCTIONS["target"](target)), name)
        self.replaced.add(made.args[0])
        args = [own, *made.args[1:]]
        return Call(made.op, args, made.attrs, made.sinfo_args, made.span)


def _target(info: StructInfo) -> str | None:
    """The target of the device on which a tensor is, or the first one of several."""
    if isinstance(info, TupleStructInfo):
        return next(filter(None, map(_target, info.fields)), None)
    device = info.vdevice if isinstance(info, TensorStructInfo) else None
    return None if device is None else device.target


def _are_known(call: Call) -> bool:
    """Whether all shapes are known, or will be when the function runs."""
    assert isinstance(call.op, Op)
    given = all(_is_known(a.struct_info_) for a in call.args)
    # The size of what these give is computed by their form.
    return given and ("dynamic" in call.op.name or _is_known(call.struct_info_))


def _is_known(info: StructInfo | None) -> bool:
    match info:
        case TensorStructInfo():
            return info.dims is not None
        case ShapeStructInfo():
            return info.values is not None
        case TupleStructInfo():
            return all(map(_is_known, info.fields))
        case _:
            return isinstance(info, PrimStructInfo)

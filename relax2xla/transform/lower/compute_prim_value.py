"""ComputePrimValue: functions that compute numbers from symbolic variables.

Source of the semantics: ``ComputePrimValue`` of TVM v0.20.
"""

from __future__ import annotations

from typing import Any, Final

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.ir import Call, Expr, Function, GlobalVar, IRModule, PrimValue
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.tir.kernel.renew import renewed
from relax2xla.transform.core import Pass, PassContext, register

HOST: Final = "tir.is_host_func"


@register()
class ComputePrimValue(Pass):
    """Call a loop-level function ``compute_symbolic_expr`` for each number that is an expression.

    Before: ``R.assert_op(n % 16 == 0)``. After: a private function of ``n`` that returns
    ``n % 16 == 0``, and the assertion of what it gives. Numbers that are known, and variables
    alone, stay. What is known of such a number is its dtype; ``build`` reads the expressions again
    where it finds these calls (CallsAsValues), so programs compute the same.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        builder = BlockBuilder(mod)

        def computed(node: Expr) -> Expr | None:
            if not isinstance(node, PrimValue):
                return None
            params = tir.free_vars(node.value)
            if not params or isinstance(node.value, tir.Var):
                return None
            gvar = builder.add_func(_returning(node.value, params), "compute_symbolic_expr")
            return Call(gvar, [PrimValue(p) for p in params], span=node.span)

        changed: dict[GlobalVar, Any] = {}
        for gvar, func in mod.relax_functions().items():
            made = rewrite_function(func, rule=computed)
            if made is not func:
                normal = builder.normalize(made)
                assert isinstance(normal, Function)
                changed[gvar] = normal
        return mod.replace({**builder.get().functions, **changed}) if changed else mod


def _returning(value: tir.PrimExpr, params: list[tir.Var]) -> tir.PrimFunc:
    """The function of ``params`` that gives ``value``."""
    body = tir.Evaluate(tir.Call(value.dtype, "tir.ret", (value,)))
    return renewed(tir.PrimFunc(params, body, value.dtype, {}, {HOST: True}))

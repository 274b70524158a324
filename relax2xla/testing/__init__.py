"""Helpers for tests: run an expression or a function on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.ir import Expr, Function, IRModule, Var
from relax2xla.testing.ast_printer import dump_ast as dump_ast
from relax2xla.testing.attention import get_relax_attention_module as get_relax_attention_module
from relax2xla.testing.attention import (
    get_relax_stacked_attention_module as get_relax_stacked_attention_module,
)
from relax2xla.testing.matmul import get_relax_matmul_module as get_relax_matmul_module


def evaluate(target: Expr | Function | IRModule, inputs: Mapping[Var, Any] | Sequence[Any]) -> Any:
    """The value of ``target`` as numpy, lowered to StableHLO and run by XLA without optimisation.

    target: a function or a module with a function ``main`` (``inputs``: one for each parameter), or
    an expression (``inputs``: by variable).
    """
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    if isinstance(target, IRModule | Function):
        values = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
        mod = target
    else:
        if not isinstance(inputs, Mapping):
            raise TypeError("inputs of an expression are given by variable")
        values = list(inputs.values())
        builder = BlockBuilder()
        with builder.function("main", list(inputs)):
            with builder.dataflow():
                output = builder.emit_output(target)
            builder.emit_func_output(output)
        mod = builder.get()
    symbol = "main" if isinstance(mod, IRModule) else mod.attrs.get("global_symbol", "main")
    vm = VirtualMachine(build(mod, "cpu", relax_pipeline="zero"))
    return to_numpy(vm[symbol](*values))


def to_numpy(value: Any) -> Any:
    """Arrays as numpy, in the same nested tuples."""
    if isinstance(value, tuple | list):
        return tuple(to_numpy(v) for v in value)
    return np.asarray(value)


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raise AssertionError unless two arrays have the same shape and nearly the same values."""
    left, right = np.asanyarray(to_numpy(actual)), np.asanyarray(to_numpy(desired))
    np.testing.assert_allclose(left.shape, right.shape)
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, verbose=True)


def assert_prim_expr_equal(lhs: tir.PrimExpr, rhs: tir.PrimExpr) -> None:
    """Raise ValueError unless two symbolic expressions are proved equal."""
    if not tir.can_prove_equal(lhs, rhs):
        raise ValueError(f"{lhs} and {rhs} are not proved equal")

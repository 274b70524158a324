"""Small values that the constants of a module decide: how often a loop goes round, for instance.

Sizes are numbers in a program for known shapes, but what a loop compares with may be a few rows
away from them. JAX traces these rows like any others, and a loop with a limit that is traced has no
reverse mode. So such rows are evaluated apart from the trace, where somebody asks for a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    IRModule,
    Op,
    ShapeExpr,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import bindings_deep

SIZE: Final = 64  # elements of a value
LENGTH: Final = 256  # rows that a value is made by
# Nothing of these depends on the place or the time where they run.
_PURE: Final = """
    abs add and_ broadcast_in_dim ceil clamp compare concatenate convert divide dynamic_slice floor
    gather iota maximum minimum multiply negate not_ or_ power remainder reshape reverse select
    sign slice subtract transpose xor
"""
ROWS: Final = frozenset(f"relax.stablehlo.{name}" for name in _PURE.split())


class Known:
    """Values of variables that depend on no argument of the functions of ``mod``.

    compute: the result of a call of a row, or of sizes as a tensor; of the variables it reads
    """

    def __init__(self, mod: IRModule, compute: Callable[[Call, Mapping[Expr, Any]], Any]) -> None:
        self._compute = compute
        self._bound: dict[Expr, Expr] = {
            b.var: b.value
            for func in mod.relax_functions().values()
            for b in bindings_deep(func)
            if isinstance(b, VarBinding)
        }

    def value(self, expr: Expr, env: Mapping[Expr, Any]) -> np.ndarray[Any, Any] | None:
        """What ``expr`` is whatever the arguments are; None: it depends on them, or is large.

        ``env``: values at hand where it is asked for
        """
        made: dict[Expr, Any] = {}
        todo = [expr]
        while todo:
            at = todo[-1]
            if at not in made and (found := _at_hand(at, env)) is not None:
                made[at] = found
            if at not in made:
                operands = self._operands(at)
                if operands is None or len(made) + len(todo) > LENGTH:
                    return None
                missing = [a for a in operands if a not in made]
                if missing:
                    todo += missing
                    continue
                made[at] = self._computed(self._bound[at], made)
            todo.pop()
        return made[expr]

    def _operands(self, expr: Expr) -> Sequence[Expr] | None:
        """What a value is made of; None for one that constants do not decide, or a large one."""
        match self._bound.get(expr) if isinstance(expr, Var) else None:
            case Var() as other:
                return [other]
            case Call(op=Op(name="relax.shape_to_tensor"), args=[ShapeExpr() as sizes]):
                return [] if all(isinstance(d, int) for d in sizes.values) else None
            case Call(op=Op(name=name)) as call if name in ROWS and _is_small(call):
                return call.args
            case _:
                return None

    def _computed(self, value: Expr, made: Mapping[Expr, Any]) -> Any:
        if not isinstance(value, Call):
            return made[value]
        # How constants come into the trace is known where calls are computed.
        operands: dict[Expr, Any] = {v: made[v] for v in value.args if isinstance(v, Var)}
        with jax.ensure_compile_time_eval():
            return np.asarray(self._compute(value, operands))


def _at_hand(expr: Expr, env: Mapping[Expr, Any]) -> np.ndarray[Any, Any] | None:
    found = expr.data if isinstance(expr, Constant) else env.get(expr)
    if isinstance(found, np.ndarray | np.generic) and found.size <= SIZE:
        return np.asarray(found)
    return None


def _is_small(call: Call) -> bool:
    info = call.struct_info
    dims = info.dims if isinstance(info, TensorStructInfo) else None
    if dims is None:
        return False
    sizes = [d for d in dims if isinstance(d, int)]
    return len(sizes) == len(dims) and math.prod(sizes) <= SIZE

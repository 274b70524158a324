"""Values of expressions of constants alone, computed by XLA where a converter must know one.

Folding (:mod:`.folding`) knows the operators that exporters compute shapes with; this is for the
rest, and runs only for a value that must be known at import.
"""

from __future__ import annotations

import math

import numpy as np

from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import is_float
from relax2xla.errors import TVMError
from relax2xla.importers.onnx.engine.known_values import Array
from relax2xla.ir import (
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    Op,
    SeqExpr,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.traits import Division, Random

# A loop may never end, which must not happen at import.
_WHILE = Op.get("relax.stablehlo.while_")
# Bindings and elements (of one value) of what is computed at import.
BINDINGS = 256
ELEMENTS = 1 << 16


def constant_value(builder: BlockBuilder, root: Expr) -> Array | None:
    """The value of ``root`` if it depends on constants alone and is small, else None."""
    if isinstance(root, Constant):
        return root.data
    order = _closure(builder, root)
    if order is None:
        return None
    body = SeqExpr([BindingBlock([VarBinding(v, value) for v, value in order])], root)
    try:
        return np.asarray(_run(Function([], body)))
    except TVMError:
        return None


def _run(function: Function) -> object:
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    machine = VirtualMachine(build(function, "cpu", relax_pipeline="zero"), "cpu")
    return machine["main"]()


def _closure(builder: BlockBuilder, root: Expr) -> list[tuple[Var, Expr]] | None:
    """Bindings that ``root`` needs, in order; None where it depends on an input."""
    order: list[tuple[Var, Expr]] = []
    done: set[Var] = set()
    stack: list[tuple[Var | None, Expr, bool]] = [(None, root, False)]
    if isinstance(root, Var):
        value = builder.lookup_binding(root)
        if value is None:
            return None
        stack = [(root, value, False)]
    while stack:
        var, value, ready = stack.pop()
        if ready:
            assert var is not None
            if var not in done:
                done.add(var)
                order.append((var, value))
            continue
        if len(order) + len(stack) > BINDINGS:
            return None
        if var is not None:
            stack.append((var, value, True))
        inside: set[Var] = set()
        free: list[Var] = []
        for node in post_order_deep(value):
            if isinstance(node, Call) and _must_wait(node):
                return None
            if isinstance(node, Function):
                inside.update(node.params)
            elif isinstance(node, SeqExpr):
                inside.update(b.var for block in node.blocks for b in block.bindings)
            elif isinstance(node, Var):
                free.append(node)
            info = node.struct_info_
            if isinstance(info, TensorStructInfo) and not _small(info):
                return None
        for node in free:
            if node in inside or node in done:
                continue
            bound = builder.lookup_binding(node)
            if bound is None:
                return None
            stack.append((node, bound, False))
    return order


def _must_wait(call: Call) -> bool:
    """Whether a call is for a run: random numbers are drawn at each; and see below."""
    random = isinstance(call.op, Op) and call.op.has(Random)
    return random or call.op is _WHILE or _may_divide_by_zero(call)


def _may_divide_by_zero(call: Call) -> bool:
    """XLA's constant folding ends the process where it divides integers by zero."""
    if not isinstance(call.op, Op) or not call.op.has(Division):
        return False
    divisor = call.args[1]
    info = divisor.struct_info_
    if isinstance(info, TensorStructInfo) and is_float(info.dtype):
        return False
    return not (isinstance(divisor, Constant) and bool(np.all(divisor.data)))


def _small(info: TensorStructInfo) -> bool:
    dims = info.dims or ()
    sizes = [d for d in dims if isinstance(d, int)]
    return info.dims is not None and len(sizes) == len(dims) and math.prod(sizes) <= ELEMENTS

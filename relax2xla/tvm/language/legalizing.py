"""``tvm.relax.transform.legalize_ops.common``: lowerings of operators that a program declares."""

from __future__ import annotations

from typing import Any

from relax2xla.op_attributes import register_op_attr


def register_legalize(op_name: str, legal_func: Any = None) -> Any:
    """Register ``legal_func(builder, call)`` as the lowering of an operator; also a decorator.

    The attribute ``FLegalize`` of ``relax2xla.register_op_attr``: UnsupportedError for an operator
    of relax2xla itself.
    """
    return register_op_attr(op_name, "FLegalize", legal_func)

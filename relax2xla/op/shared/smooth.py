"""Lowerings to differentiate, of all operators that have one beside their legalisation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Op


@functools.cache
def smooth_lowerings() -> Mapping[str, Callable[..., Expr]]:
    """By the operator's name: what ``Op.derivative`` has registered."""
    Op.list_op_names()
    rules: dict[str, Any] = {n: op.smooth for n, op in Op.registry.items()}
    return {name: rule for name, rule in rules.items() if rule is not None}

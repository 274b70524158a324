"""Gradients that functions of te compute, by name: what ``call_tir_with_grad`` refers to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

TeGradient = Callable[..., Any]
"""Of the gradient of the result and of the operands: the operands' gradients, a list of tensors."""

GRADIENTS: Final[dict[str, TeGradient]] = {}


def register_te_gradient(te_grad_name: str, te_grad_func: TeGradient | None = None) -> Any:
    """Register a gradient under a name; also a decorator.

    te_grad_func: ``(output_grad, *operands, **te_grad_kwargs)`` to a list of tensors of te, one for
        each operand of the call; where the call has several results, ``output_grad`` is a list.
    """

    def register(func: TeGradient) -> TeGradient:
        GRADIENTS[te_grad_name] = func
        return func

    return register if te_grad_func is None else register(te_grad_func)

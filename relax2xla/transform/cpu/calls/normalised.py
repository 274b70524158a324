"""Rows that a layer norm has made, as its gradient has them: ``(x - mean) * factor``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from relax2xla.ir import Call, Expr
from relax2xla.ir.op import is_op as is_call
from relax2xla.transform.core.values import tensor_of

Bound = Callable[[Expr], Expr | None]


class Normalised(NamedTuple):
    """Rows without their means, times a number for each of them.

    x: [..., C]; mean, factor: [..., 1]
    """

    x: Expr
    mean: Expr
    factor: Expr

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows."""
        tensor = tensor_of(self.x)
        assert tensor is not None
        return tensor.shape


def normalised(bound: Bound, value: Expr) -> Normalised | None:
    """The rows that ``value`` is, where ``bound`` says what computes a variable."""
    for difference, factor in factors(bound, value):
        call = bound(difference)
        if not isinstance(call, Call) or not is_call(call, "relax.subtract"):
            continue
        x, mean = call.args
        kinds = [tensor_of(v) for v in (x, mean, factor)]
        shapes = [t.shape for t in kinds if t is not None and t.dtype == "float32"]
        if len(shapes) == len(kinds) and shapes[0]:
            row = (*shapes[0][:-1], 1)
            if shapes[1] == shapes[2] == row and shapes[0] != row:
                return Normalised(x, mean, factor)
    return None


def factors(bound: Bound, value: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The two values of which ``value`` is the product, either way round."""
    call = bound(value)
    if isinstance(call, Call) and is_call(call, "relax.multiply"):
        a, b = call.args
        yield a, b
        yield b, a

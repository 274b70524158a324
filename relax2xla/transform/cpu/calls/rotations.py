"""Rotary embeddings as importers write them: halves of rows turned against each other by angles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from relax2xla.dpl.rules import Match
from relax2xla.ir import Call, Expr, Op, Tuple
from relax2xla.ir.op import call_attrs
from relax2xla.transform.core.values import own_call, tensor_of
from relax2xla.transform.cpu.calls.strided import strided


class Turned(NamedTuple):
    """``x * cosine + concat(-second, first) * sine``, of the halves of x along the last axis.

    between: what is read for that alone
    """

    x: Expr
    cosine: Expr
    sine: Expr
    between: tuple[Expr, ...]


def halves(m: Match, plain: Expr, crossed: Expr) -> Turned | None:
    """What the sum of ``plain`` and ``crossed`` turns; None where it is another sum."""
    product, other = (own_call(m, value, "relax.multiply") for value in (plain, crossed))
    if product is None or other is None:
        return None
    for exchanged, sine in (other.args, other.args[::-1]):
        for x, cosine in (product.args, product.args[::-1]):
            if _exchanges(m, exchanged, x):
                return Turned(x, cosine, sine, (plain, crossed, exchanged))
    return None


def for_all_heads(
    tables: Sequence[Sequence[int]], shape: Sequence[int], axes: Sequence[int]
) -> bool:
    """Whether tables of four axes are the same for all heads of a value.

    axes: where the value has (batch, rows, heads, width)
    """
    batch, rows, heads, width = axes
    return all(
        (table[rows], table[heads], table[width]) == (shape[rows], 1, shape[width])
        and table[batch] in (1, shape[batch])
        for table in tables
    )


def _exchanges(m: Match, value: Expr, x: Expr) -> bool:
    """Whether ``value`` is ``concat(-second, first)`` of the halves of ``x``, and read once."""
    parts, tensor, whole = own_call(m, value, "relax.concat"), tensor_of(x), strided(x, m.bound)
    fields = None if parts is None else parts.args[0]
    if parts is None or tensor is None or whole is None or not isinstance(fields, Tuple):
        return False
    last = len(tensor.shape) - 1
    if len(fields.fields) != 2 or call_attrs(parts)["axis"] not in (-1, last):
        return False
    minus = m.bound(fields.fields[0])
    if not isinstance(minus, Call) or minus.op is not Op.get("relax.negative"):
        return False
    size = tensor.shape[-1]
    wanted = [whole.cut(last, size // 2, size), whole.cut(last, 0, size // 2)]
    found = [strided(e, m.bound) for e in (minus.args[0], fields.fields[1])]
    return size % 2 == 0 and found == wanted

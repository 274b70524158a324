"""Operators that are gradients of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te, tir, topi
from relax2xla.ir import Expr
from relax2xla.tir import stmt
from relax2xla.tir.buffer import Buffer
from relax2xla.topi.index import loops, read_at, store
from relax2xla.transform.lower.te_forms.losses import no_weights
from relax2xla.transform.lower.te_forms.table import Form, Site, Stays, form, tensor_of


@form("relax.grad.nll_loss_backward")
def _(s: Site) -> Expr:
    weighed = len(s.args) == 4
    name = "nll_loss_backward" if weighed else "te_nll_loss_backward_no_weight"
    return s.te(
        *(_nll_loss if weighed else _nll_loss_without_weight, *s.args),
        reduction=s.attrs["reduction"],
        ignore_index=s.attrs["ignore_index"],
        name=name,
    )


def _nll_loss_without_weight(
    grad: te.Tensor, predictions: te.Tensor, targets: te.Tensor, reduction: str, ignore_index: int
) -> te.Tensor:
    weights = no_weights(predictions)
    return _nll_loss(grad, predictions, targets, weights, reduction, ignore_index)


def _nll_loss(
    grad: te.Tensor,
    predictions: te.Tensor,
    targets: te.Tensor,
    weights: te.Tensor,
    reduction: str,
    ignore_index: int,
) -> te.Tensor:
    """-weight of the target, at its class, times the gradient of the loss of its place."""
    zero = tir.const(0, predictions.dtype)

    def weight(*i: Any) -> Any:
        # What is ignored may be no class.
        target = targets(*i)
        counts = tir.NE.make(target, ignore_index)
        place = tir.Select(counts, target, tir.const(0, target.dtype))
        return tir.Select(counts, weights(place), tir.const(0, weights.dtype))

    each = te.compute(targets.shape, weight, name="all_weights")
    if reduction in ("sum", "mean"):
        grad = topi.broadcast_to(grad, targets.shape)
    if reduction == "mean":
        grad = topi.divide(grad, topi.sum(each) if targets.ndim else each)

    def element(*i: Any) -> Any:
        rest, at = ((), i[0]) if predictions.ndim == 1 else ((i[0], *i[2:]), i[1])
        here = tir.EQ.make(at, targets(*rest))
        return tir.Select(here, -each(*rest) * grad(*rest), zero)

    return te.compute(predictions.shape, element, name="pred_grad")


def _pool(kind: str) -> Form:
    def rule(s: Site) -> Expr:
        attrs = s.attrs
        if any(d != 1 for d in attrs["dilation"]):
            raise Stays("it is dilated")
        return s.te(
            *(topi.nn.pool_grad, *s.args),
            *map(list, (attrs["pool_size"], attrs["strides"], attrs["padding"])),
            pool_type=kind,
            ceil_mode=attrs["ceil_mode"],
            count_include_pad=attrs["count_include_pad"],
            layout=attrs["layout"],
            name=f"{kind}_pool2d_backward",
        )

    return rule


for _kind in ("max", "avg"):
    form(f"relax.grad.{_kind}_pool2d_backward")(_pool(_kind))


@form("relax.grad.take_backward")
def _(s: Site) -> Expr:
    if tensor_of(s.args[2]).ndim != 1:
        raise Stays("its indices are no vector")
    return s.te(take_backward, *s.args, s.attrs["axis"])


def take_backward(grad: te.Tensor, x: te.Tensor, indices: te.Tensor, axis: int | None) -> te.Tensor:
    """Zeros, to which each slice of ``grad`` is added where it was taken from."""
    along = 0 if axis is None else axis % x.ndim

    def body(given: Sequence[Buffer], made: Sequence[Buffer]) -> stmt.Stmt:
        new, _, where = given
        out = made[0]

        def clear(i: list[tir.Var]) -> stmt.Stmt:
            return store(out, tir.const(0, x.dtype), i)

        def add(i: list[tir.Var]) -> stmt.Stmt:
            at: list[Any] = [*i[:along], read_at(where, [i[along]]), *i[along + 1 :]]
            return store(out, read_at(out, at) + read_at(new, i), at)

        return stmt.seq([loops(x.shape, "i", clear), loops(grad.shape, "j", add)])

    return te.extern(
        [list(x.shape)], [grad, x, indices], body, "take_backward", x.dtype, tag="take_backward"
    )

"""Normalisations, and attention."""

from __future__ import annotations

from typing import Any

from relax2xla import te, tir, topi
from relax2xla.ir import Expr
from relax2xla.topi.shared import FUNCTIONS
from relax2xla.transform.lower.te_forms.table import Form, Site, Stays, form


@form("relax.nn.batch_norm")
def _(s: Site) -> Expr:
    names = ("axis", "epsilon", "center", "scale", "training", "momentum")
    return s.te(topi.nn.batch_norm, *s.args, **{n: s.attrs[n] for n in names})


def _affine(s: Site) -> list[Expr]:
    """The operands, of which the functions use scale and offset whatever the attributes say."""
    if not (s.attrs["center"] and s.attrs["scale"]):
        raise Stays("it is without scale or offset")
    return list(s.args)


@form("relax.nn.layer_norm")
def _(s: Site) -> Expr:
    axes, epsilon = list(s.attrs["axes"]), s.attrs["epsilon"]
    return s.te(topi.nn.layer_norm, *_affine(s), axis=axes, epsilon=epsilon)


@form("relax.nn.group_norm")
def _(s: Site) -> Expr:
    groups, channel = s.attrs["num_groups"], s.attrs["channel_axis"]
    axes, epsilon = list(s.attrs["axes"]), s.attrs["epsilon"]
    return s.te(topi.nn.group_norm, *_affine(s), groups, channel, axes, epsilon)


@form("relax.nn.rms_norm")
def _(s: Site) -> Expr:
    axes, epsilon = list(s.attrs["axes"]), s.attrs["epsilon"]
    return s.te(topi.nn.rms_norm, *s.args, axis=axes, epsilon=epsilon)


def _attention(name: str) -> Form:
    def rule(s: Site) -> Expr:
        if s.attrs["window_size"] is not None:
            raise Stays("its window slides")
        q, k, v, *bias = s.args
        scale, mask = s.attrs["scale"], s.attrs["causal_mask"]
        return s.te(attention, q, k, v, bias[0] if bias else None, scale, mask, name=name)

    return rule


for _name in ("attention", "attention_bias"):
    form(f"relax.nn.{_name}")(_attention(_name))


def attention(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    bias: te.Tensor | None,
    scale: float | None,
    causal_mask: str | None,
) -> te.Tensor:
    """Attention over tensors (batch, place, head, element); see ``relax.nn.attention``."""
    batch, queries, heads, width = q.shape
    keys, value_width = v.shape[1], v.shape[3]

    def flat(x: te.Tensor, places: Any, size: Any) -> te.Tensor:
        return topi.reshape(topi.transpose(x, [0, 2, 1, 3]), [batch * heads, places, size])

    wide = flat(q, queries, width), flat(k, keys, width), flat(v, keys, value_width)
    p = topi.nn.batch_matmul(wide[0], wide[1])
    if scale is None:
        p = topi.divide(p, FUNCTIONS["sqrt"](tir.cast(p.dtype, width)))
    else:
        p = topi.multiply(p, scale)
    if bias is not None:
        p = topi.add(topi.reshape(p, [batch, heads, queries, keys]), bias)
        p = topi.reshape(p, [batch * heads, queries, keys])
    made = topi.nn.softmax(p) if causal_mask is None else _masked(p, causal_mask, queries, keys)
    made = topi.nn.batch_matmul(made, wide[2], transpose_b=False)
    made = topi.reshape(made, [batch, heads, queries, value_width])
    return topi.transpose(made, [0, 2, 1, 3])


def _masked(p: te.Tensor, causal_mask: str, queries: Any, keys: Any) -> te.Tensor:
    """Softmax of what is on or below a diagonal: of the first places, or of the last."""
    k: Any = tir.const(0, "int32")
    if causal_mask == "BottomRight":
        k = tir.cast("int32", FUNCTIONS["abs"](queries - keys))
    masked = topi.trilu(p, k, upper=False)
    powers = topi.exp(topi.subtract(masked, topi.max(masked, axis=-1, keepdims=True)))
    powers = topi.trilu(powers, k, upper=False)
    return topi.divide(powers, topi.sum(powers, axis=-1, keepdims=True))

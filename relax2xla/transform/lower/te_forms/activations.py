"""Activations and softmax."""

from __future__ import annotations

import math
from typing import Any

from relax2xla import te, tir, topi
from relax2xla.ir import Expr
from relax2xla.transform.lower.te_forms.elementwise import wide_erf
from relax2xla.transform.lower.te_forms.table import Site, form


@form("relax.nn.relu")
def _(s: Site) -> Expr:
    return s.te(topi.nn.relu, s.x)


@form("relax.nn.leakyrelu")
def _(s: Site) -> Expr:
    return s.te(topi.nn.leaky_relu, s.x, s.attrs["alpha"])


@form("relax.nn.prelu")
def _(s: Site) -> Expr:
    return s.te(topi.nn.prelu, *s.args, s.attrs["axis"])


@form("relax.nn.softplus")
def _(s: Site) -> Expr:
    return s.te(topi.nn.softplus, s.x, s.attrs["beta"], s.attrs["threshold"])


@form("relax.nn.softmax")
def _(s: Site) -> Expr:
    return s.te(topi.nn.softmax, s.x, s.attrs["axis"])


@form("relax.nn.log_softmax")
def _(s: Site) -> Expr:
    return s.te(topi.nn.log_softmax, s.x, s.attrs["axis"])


@form("relax.nn.gelu")
def _(s: Site) -> Expr:
    return s.te(gelu, s.x)


def gelu(x: te.Tensor) -> te.Tensor:
    """x * (1 + erf(x / sqrt(2))) / 2."""
    half = tir.const(0.5, x.dtype)
    erf = wide_erf(topi.multiply(x, tir.const(0.5**0.5, x.dtype)))
    return topi.multiply(x, topi.add(half, topi.multiply(erf, half)))


@form("relax.nn.gelu_tanh")
def _(s: Site) -> Expr:
    return s.te(gelu_tanh, s.x)


def gelu_tanh(x: te.Tensor) -> te.Tensor:
    """GELU with tanh in place of erf."""

    def number(value: float) -> Any:
        return tir.const(value, x.dtype)

    cubic = topi.add(number(1.0), topi.multiply(topi.multiply(number(0.044715), x), x))
    inner = topi.multiply(topi.multiply(number(math.sqrt(2.0 / math.pi)), x), cubic)
    outer = topi.add(number(1.0), topi.tanh(inner))
    return topi.multiply(topi.multiply(number(0.5), x), outer)


@form("relax.nn.selu")
def _(s: Site) -> Expr:
    return s.te(selu, s.x)


def selu(x: te.Tensor) -> te.Tensor:
    """scale * (max(0, x) + min(0, alpha * (exp(x) - 1)))."""
    zero, one = tir.const(0, x.dtype), tir.const(1, x.dtype)
    alpha = tir.const(1.6732632423543772848170429916717, x.dtype)
    scale = tir.const(1.0507009873554804934193349852946, x.dtype)
    below = topi.minimum(zero, topi.multiply(alpha, topi.subtract(topi.exp(x), one)))
    return topi.multiply(scale, topi.add(topi.maximum(x, zero), below))


@form("relax.nn.silu")
def _(s: Site) -> Expr:
    return s.te(silu, s.x)


def silu(x: te.Tensor) -> te.Tensor:
    """x * sigmoid(x)."""
    return topi.multiply(x, topi.sigmoid(x))

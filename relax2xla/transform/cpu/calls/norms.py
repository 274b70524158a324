"""CallNorms: layer norm, its gradient and RMS norm over the last axis as composites.

XLA computes a norm in several loops: each mean reads the rows from memory, or from a cache that is
far. A function in C++ has a row in the nearest cache from its first sum to its result. On several
cores XLA's sums also wake threads, which takes longer than the sums of a small network.

As with oneDNN (:mod:`relax2xla.transform.cpu.calls.onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from relax2xla import op as R
from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule
from relax2xla.ir import Call, Expr, Function, IRModule
from relax2xla.ir.make import const
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as is_call
from relax2xla.kernels.native import may_call
from relax2xla.kernels.norms import FAMILY, Norm, NormGradient, pays
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import number_of, own_call, tensor_of, vector_of
from relax2xla.transform.cpu.calls.normalised import Normalised, factors, normalised
from relax2xla.transform.cpu.calls.sites import Sites, with_composites

# The rows, the scale, and the reciprocal root: what is multiplied.
_MOST_FACTORS: Final = 3

_x, _other, _shift = wildcard(), wildcard(), wildcard()


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallNorms(Pass):
    """Make composites of layer norms and RMS norms over the last axis, static shapes.

    In float32; also those that are written out in arithmetic, where nothing else reads what is
    between, and gradients of layer norms by their rows, as the importer of torch writes them. Exact
    up to rounding. Which these are says :func:`relax2xla.kernels.norms.pays`.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        return with_composites(mod, _Calls) if may_call() else mod


class _Site(NamedTuple):
    """A norm and what it takes; None: what changes nothing."""

    norm: Norm
    rows: Expr
    scale: Expr | None = None
    shift: Expr | None = None


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.norms: dict[Expr, _Site] = {}

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [
            Rule(is_op("relax.nn.layer_norm")(_x, _other, _shift), self._layer_norm),
            Rule(is_op("relax.nn.rms_norm")(_x, _other), self._rms_norm),
            Rule(is_op("relax.multiply")(_x, _other), self._product),
            Rule(is_op("relax.divide")(_x, _other), self._written),
            Rule(is_op("relax.add")(_x, _other), self._shifted),
        ]

    def rows(self, described: Norm | NormGradient, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        if isinstance(described, NormGradient):
            return _gradient_in_rows(*params)
        x, scale, shift = params
        if described.centered:
            return R.nn.layer_norm(x, scale, shift, [-1], described.epsilon)
        return R.nn.rms_norm(x, scale, [-1], described.epsilon)

    def function(self, func: Function) -> Function:
        """See :class:`Sites`; without what norms were written out in."""
        if self.family.forms in self.name:  # what a call is in rows
            return func
        made = super().function(func)
        return made if made is func else remove_all_unused(made)

    def _layer_norm(self, m: Match) -> Expr | None:
        attrs = call_attrs(m.call)
        site = _site(m[_x], attrs["axes"], float(attrs["epsilon"]), centered=True)
        scale, shift = attrs["scale"], attrs["center"]
        return self._made(m, site, m[_other] if scale else None, m[_shift] if shift else None)

    def _rms_norm(self, m: Match) -> Expr | None:
        attrs = call_attrs(m.call)
        site = _site(m[_x], attrs["axes"], float(attrs["epsilon"]), centered=False)
        return self._made(m, site, m[_other])

    def _product(self, m: Match) -> Expr | None:
        """The scale of a norm, or a norm that is written out."""
        for at, other in ((m[_x], m[_other]), (m[_other], m[_x])):
            site = self.norms.get(at)
            if site is None or site.scale is not None or site.shift is not None:
                continue
            scale = vector_of(m, other, site.norm.shape) if m.uses(at) == 1 else None
            if scale is not None:
                return self._made(m, site, scale)
        return self._gradient(m) or self._written(m)

    def _shifted(self, m: Match) -> Expr | None:
        """The shift of a norm."""
        for at, other in ((m[_x], m[_other]), (m[_other], m[_x])):
            site = self.norms.get(at)
            if site is None or site.shift is not None or not site.norm.centered:
                continue
            shift = vector_of(m, other, site.norm.shape) if m.uses(at) == 1 else None
            if shift is not None:
                return self._made(m, site, site.scale, shift)
        return None

    def _written(self, m: Match) -> Expr | None:
        """A norm that is written out, maybe with its scale."""
        found = _root(m)
        if found is None:
            return None
        power, factors = found
        place = next((i for i, f in enumerate(factors) if power.is_of(m, f)), None)
        if place is None:
            return None
        del factors[place]
        site = _site(power.source, [-1], power.epsilon, power.centered)
        if site is None or tensor_of(m.value) != site.norm.result or len(factors) > 1:
            return None
        scale = vector_of(m, factors[0], site.norm.shape) if factors else None
        return None if factors and scale is None else self._made(m, site, scale)

    def _gradient(self, m: Match) -> Expr | None:
        """The gradient of a layer norm's rows."""
        found = next(_gradients(m), None)
        if found is None:
            return None
        by, left = found
        *many, size = left.shape
        described = NormGradient((math.prod(many), size))
        if described.problem() or not pays(described):
            return None
        gradient, scale = by, None
        for value, other in factors(m.bound, by):
            tensor = tensor_of(value)
            if scale is None and tensor is not None and tensor.shape == left.shape:
                gradient, scale = value, vector_of(m, other, left.shape)
        if scale is None:
            gradient, scale = by, const(np.ones(size, "float32"))
        given = [gradient, left.x, left.mean, left.factor]
        shapes = [t.shape for t in described.operands]
        matrices = [R.reshape(v, s) for v, s in zip(given, shapes, strict=False)]
        made = self.call(described, [m.bind("rows", v) for v in matrices] + [scale])
        return R.reshape(m.bind("gradient", made), left.shape)

    def _made(
        self, m: Match, site: _Site | None, scale: Expr | None, shift: Expr | None = None
    ) -> Expr | None:
        """The call for a site, in the place of a match."""
        if site is None or site.norm.problem() or not pays(site.norm):
            return None
        self.norms[m.var] = site._replace(scale=scale, shift=shift)
        _, scales, shifts = (t.shape for t in site.norm.operands)
        scale = const(np.ones(scales, "float32")) if scale is None else scale
        shift = const(np.zeros(shifts, "float32")) if shift is None else shift
        return self.call(site.norm, [site.rows, scale, shift])


def form(call: Norm | NormGradient) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)


def _site(rows: Expr, axes: Sequence[int], epsilon: float, centered: bool) -> _Site | None:
    """A norm of ``rows``; None where it is of others than the numbers along the last axis."""
    tensor = tensor_of(rows)
    if tensor is None or tensor.dtype != "float32" or not _is_last(axes, len(tensor.shape)):
        return None
    return _Site(Norm(tensor.shape, epsilon, centered), rows)


def _is_last(axes: Sequence[int] | None, rank: int) -> bool:
    return axes is not None and len(axes) == 1 and axes[0] in (-1, rank - 1)


# -- gradients -------------------------------------------------------------------------------------
def _gradients(m: Match) -> Iterator[tuple[Expr, Normalised]]:
    """What a match is the gradient of a layer norm for: that of the scaled rows, and these.

    ``factor * (by - mean(by) - left * mean(by * left))``, where ``left`` are the rows.
    """
    for factor, inner in factors(m.bound, m.value):
        difference = own_call(m, inner, "relax.subtract")
        first = None if difference is None else own_call(m, difference.args[0], "relax.subtract")
        if difference is None or first is None:
            continue
        by = first.args[0]
        if _mean_of(m, first.args[1]) is not by:
            continue
        for rows, mean in factors(m.bound, difference.args[1]):
            left, product = normalised(m.bound, rows), _mean_of(m, mean)
            if left is None or product is None or left.factor is not factor:
                continue
            if any(a is by and b is rows for a, b in factors(m.bound, product)):
                yield by, left


def _mean_of(m: Match, value: Expr) -> Expr | None:
    """The rows of which ``value`` are the means."""
    call = m.bound(value)
    if not isinstance(call, Call) or not is_call(call, "relax.mean") or not _keeps_last(call):
        return None
    return call.args[0]


def _gradient_in_rows(*params: Expr) -> Expr:
    gradient, rows, mean, factor, scale = params
    tensor = tensor_of(mean)
    assert tensor is not None
    mean, factor = (R.reshape(v, (*tensor.shape, 1)) for v in (mean, factor))
    left = R.multiply(R.subtract(rows, mean), factor)
    by = R.multiply(gradient, scale)
    means = [R.mean(v, axis=-1, keepdims=True) for v in (by, R.multiply(by, left))]
    inner = R.subtract(R.subtract(by, means[0]), R.multiply(left, means[1]))
    return R.multiply(factor, inner)


# -- norms written out -----------------------------------------------------------------------------
class _Power(NamedTuple):
    """Under a root: the mean of the squares of ``source``, to which ``epsilon`` is added.

    centered: of what is left of ``source`` without its mean
    """

    source: Expr
    epsilon: float
    centered: bool

    def is_of(self, m: Match, rows: Expr) -> bool:
        """Whether ``rows`` are what it is the power of."""
        return (_centred(m, rows) if self.centered else rows) is self.source


def _root(m: Match) -> tuple[_Power, list[Expr]] | None:
    """What is under the root that a match divides by, and what else is multiplied."""
    if is_call(m.value, "relax.divide"):
        power = _power(m, m[_other], "relax.sqrt")
        factors = None if power is None else _factors(m, m[_x])
        return None if power is None or factors is None else (power, factors)
    factors = _factors(m, m.value) or []
    for i, factor in enumerate(factors):
        power = _power(m, factor, "relax.rsqrt")
        if power is not None:
            return power, [*factors[:i], *factors[i + 1 :]]
    return None


def _factors(m: Match, product: Expr) -> list[Expr] | None:
    """What is multiplied, if it is not too much."""
    factors, todo = list[Expr](), [product]
    while todo:
        if len(factors) + len(todo) > _MOST_FACTORS:
            return None
        expr = todo.pop()
        call = own_call(m, expr, "relax.multiply") if expr is not m.value else m.call
        if call is None:
            factors.append(expr)
        else:
            todo += call.args
    return factors


def _power(m: Match, expr: Expr, root: str) -> _Power | None:
    """What is under a root."""
    rooted = own_call(m, expr, root)
    if rooted is None and root == "relax.rsqrt":
        inverse = own_call(m, expr, "relax.divide")
        if inverse is not None and number_of(inverse.args[0]) == 1:
            rooted = own_call(m, inverse.args[1], "relax.sqrt")
    total = None if rooted is None else own_call(m, rooted.args[0], "relax.add")
    if total is None:
        return None
    mean, epsilon = total.args
    if number_of(epsilon) is None:
        mean, epsilon = epsilon, mean
    number = number_of(epsilon)
    variance = own_call(m, mean, "relax.variance")
    if number is not None and variance is not None and _keeps_last(variance):
        return _Power(variance.args[0], number, centered=True)
    mean = own_call(m, mean, "relax.mean")
    source = _squared(m, mean.args[0]) if mean is not None and _keeps_last(mean) else None
    if number is None or source is None:
        return None
    rows = _centred(m, source)
    return _Power(source if rows is None else rows, number, rows is not None)


def _squared(m: Match, expr: Expr) -> Expr | None:
    """What ``expr`` is the square of."""
    if square := own_call(m, expr, "relax.square"):
        return square.args[0]
    product, power = (own_call(m, expr, f"relax.{name}") for name in ("multiply", "power"))
    if product is not None and product.args[0] is product.args[1]:
        return product.args[0]
    if power is not None and number_of(power.args[1]) == 2:
        return power.args[0]
    return None


def _centred(m: Match, expr: Expr) -> Expr | None:
    """The rows of which ``expr`` is what is left without their means."""
    difference = m.bound(expr)
    if not is_call(difference, "relax.subtract"):
        return None
    assert isinstance(difference, Call)
    rows, mean = difference.args[0], m.bound(difference.args[1])
    if not is_call(mean, "relax.mean"):
        return None
    assert isinstance(mean, Call)
    return rows if mean.args[0] is rows and _keeps_last(mean) else None


def _keeps_last(call: Call) -> bool:
    """Whether a mean is of the numbers along the last axis, which stays."""
    attrs, tensor = call_attrs(call), tensor_of(call.args[0])
    return tensor is not None and attrs["keepdims"] and _is_last(attrs["axis"], len(tensor.shape))

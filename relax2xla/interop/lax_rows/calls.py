"""Custom calls: annotations, LAPACK's routines, the largest values of an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla.errors import UnsupportedError
from relax2xla.interop.lax_rows.arithmetic import RULES as ARITHMETIC
from relax2xla.interop.lax_rows.site import Rule, Site, shape_of, with_derivative_of
from relax2xla.interop.lax_rows.sorting import RULES as SORTING
from relax2xla.ir import Call
from relax2xla.stablehlo.untrusted.lapack import PERTURBED, TARGET
from relax2xla.stablehlo.untrusted.targets import CALLS_BACK, SAFE, is_callback
from relax2xla.vm.pjrt.compiler import load_lapack
from relax2xla.vm.pjrt.varying import axes_of, like, over, scan


class NoRule(UnsupportedError):
    """A call of a row that has a rule for other calls only."""


# ---- LAPACK
def _flags(site: Site) -> dict[str, Any]:
    """The flags of a call, letters as such."""
    found = site.attrs.get("backend_config") or (site.attrs.get("discardable") or {}).get(
        "mhlo.backend_config"
    )
    made: dict[str, Any] = {}
    for name, value in (found or {}).items():
        if isinstance(value, Mapping):
            number, _, kind = value.get("mlir", "").partition(" : ")
            value = chr(int(number)) if kind == "ui8" else number
        made[name] = value
    return made


def _failed(values: Any, x: Any, axes: int) -> Any:
    """LAPACK's sign of failure, which JAX's own functions turn into NaN."""
    bad = jnp.isnan(lax.stop_gradient(values)).any(range(x.ndim - 2, x.ndim - 2 + axes))
    return lax.convert_element_type(bad, np.int32)


def _symmetric(x: Any, lower: bool) -> Any:
    """The symmetric matrix of a triangle; of its derivative both triangles have a half."""
    fixed = lax.stop_gradient(x)
    change = x - fixed
    part = jnp.tril(fixed, -1) if lower else jnp.triu(fixed, 1)
    fixed = jnp.where(
        jnp.eye(x.shape[-1], dtype=bool), fixed, part + jnp.conj(jnp.swapaxes(part, -1, -2))
    )
    return fixed + (change + jnp.conj(jnp.swapaxes(change, -1, -2))) / 2


def _potrf(site: Site, x: Any) -> Any:
    lower = _flags(site).get("uplo") == "L"
    x = _symmetric(x, lower)
    if lower:
        made = lax.linalg.cholesky(x, symmetrize_input=False)
    else:
        turned = jnp.conj(jnp.swapaxes(x, -1, -2))
        made = jnp.conj(jnp.swapaxes(lax.linalg.cholesky(turned, symmetrize_input=False), -1, -2))
    return made, _failed(made, x, 2)


def _getrf(site: Site, x: Any) -> Any:
    # Its derivative indexes the tangent, which numpy cannot by a traced permutation.
    made, pivots, _ = lax.linalg.lu(lax.optimization_barrier(x))
    diagonal = jnp.diagonal(lax.stop_gradient(made), axis1=-2, axis2=-1)
    zero = diagonal == 0
    first = lax.argmax(zero, zero.ndim - 1, np.int32) + np.int32(1)
    info = jnp.where(zero.any(-1), first, np.int32(0))
    return made, pivots + np.int32(1), info


def _syevd(site: Site, x: Any) -> Any:
    lower = _flags(site).get("uplo", "L") == "L"
    x = _symmetric(x, lower)
    vectors, values = lax.linalg.eigh(x, lower=lower, symmetrize_input=False, sort_eigenvalues=True)
    return vectors, values, _failed(values, x, 1)


def _reads(site: Site, *fields: int) -> bool:
    """Whether any of these results may be read: vectors that are not have no derivative to fail."""
    read = site.runner.fields_read(site.call)
    return read is None or not read.isdisjoint(fields)


def _gesdd(site: Site, x: Any) -> Any:
    mode = _flags(site)["mode"]
    if mode == "N" or not _reads(site, 2, 3):
        s = lax.linalg.svd(x, compute_uv=False)
        _, _, *sides, _ = site.outputs
        return x, s, *(jnp.zeros(shape_of(o), x.dtype) for o in sides), _failed(s, x, 1)
    u, s, v = lax.linalg.svd(x, full_matrices=mode == "A")
    return x, s, u, v, _failed(s, x, 1)


def _geev(site: Site, x: Any) -> Any:
    flags = _flags(site)
    first = 1 if jnp.iscomplexobj(x) else 2
    left, right = (
        flags[f"compute_{side}"] == "V" and _reads(site, first + n)
        for n, side in enumerate(("left", "right"))
    )
    made = list(lax.linalg.eig(x, compute_left_eigenvectors=left, compute_right_eigenvectors=right))
    values = made.pop(0)
    nothing = jnp.zeros(x.shape, values.dtype)
    vectors = [made.pop(0) if asked else nothing for asked in (left, right)]
    parts = [values] if jnp.iscomplexobj(x) else [lax.real(values), lax.imag(values)]
    return *parts, *vectors, _failed(lax.real(values), x, 1)


def _reflectors(x: Any, signs: Any) -> tuple[Any, Any]:
    """geqrf, column by column: Householder's vectors under R, and their factors.

    ``signs``: of the diagonal of R, which LAPACK takes from numbers that may be rounding alone.
    """
    m, n = x.shape[-2:]
    rows = lax.iota(np.int32, m)

    def step(x: Any, j: Any) -> Any:
        column = jnp.take(x, j, axis=-1)
        below = jnp.where(rows > j, column, 0)
        alpha = jnp.take(column, j, axis=-1)
        tail = (below * below).sum(-1)
        size = jnp.sqrt(jnp.where(tail == 0, 1, alpha * alpha + tail))
        sign = jnp.take(signs, j, axis=-1)
        beta = jnp.where(tail == 0, alpha, jnp.where(sign < 0, -size, size))
        safe = jnp.where(tail == 0, 1, alpha - beta)
        tau = jnp.where(tail == 0, 0, (beta - alpha) / jnp.where(tail == 0, 1, beta))
        vector = jnp.where(rows == j, 1, below / safe[..., None])
        product = jnp.einsum("...i,...ij->...j", vector, x)
        moved = x - tau[..., None, None] * vector[..., :, None] * product[..., None, :]
        columns = lax.iota(np.int32, n)
        kept = jnp.where(rows == j, beta[..., None], column)
        kept = jnp.where(rows > j, below / safe[..., None], kept)
        made = jnp.where(columns > j, moved, x)
        return jnp.where(columns == j, kept[..., None], made), tau

    made, taus = scan(step, x, lax.iota(np.int32, min(m, n)))
    return made, jnp.moveaxis(taus, 0, -1)


def _product(x: Any, taus: Any) -> Any:
    """orgqr: the first columns of the product of Householder's reflections."""
    m, n = x.shape[-2:]
    rows = lax.iota(np.int32, m)
    start = jnp.broadcast_to(jnp.eye(m, n, dtype=x.dtype), x.shape)

    def step(q: Any, j: Any) -> Any:
        column = jnp.take(x, j, axis=-1)
        vector = jnp.where(rows > j, column, jnp.where(rows == j, 1, 0)).astype(x.dtype)
        tau = jnp.take(taus, j, axis=-1)
        product = jnp.einsum("...i,...ij->...j", vector, q)
        return q - tau[..., None, None] * vector[..., :, None] * product[..., None, :], None

    made, _ = scan(step, start, lax.iota(np.int32, taus.shape[-1]), reverse=True)
    return made


def _foreign(site: Site, *xs: Any) -> Any:
    """The routine itself, which JAX does not know to need LAPACK."""
    load_lapack()
    infos = [jax.ShapeDtypeStruct(shape_of(o), o.dtype) for o in site.outputs]
    layouts = [tuple(reversed(p)) for p in site.attrs.get("operand_layouts") or ()] or None
    results = [tuple(reversed(p)) for p in site.attrs.get("result_layouts") or ()] or None
    flags = {k: np.uint8(ord(v)) if isinstance(v, str) else v for k, v in _flags(site).items()}
    call = jax.ffi.ffi_call(
        site.attrs["call_target_name"],
        infos,
        vmap_method="sequential",
        input_layouts=layouts,
        output_layouts=results,
    )
    return over(axes_of(xs), tuple(call(*xs, **flags)))


def _geqrf(site: Site, x: Any) -> Any:
    """geqrf, with the derivative of what LAPACK found; NaN where there is none.

    That is where R is singular, and where a column is 0 below the diagonal: LAPACK leaves it, and
    turns its neighbours round.
    """
    call = jax.custom_jvp(lambda x: tuple(_foreign(site, x)))

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        made = call(*primals)
        m, n = made[0].shape[-2:]
        diagonal = jnp.diagonal(lax.stop_gradient(made[0]), axis1=-2, axis2=-1)
        kept = lax.stop_gradient(made[1])[..., : min(m - 1, n)] == 0
        bad = jnp.where((diagonal == 0).any(-1) | kept.any(-1), np.nan, 0).astype(diagonal.dtype)
        _, (factors, taus) = jax.jvp(lambda x: _reflectors(x, diagonal), primals, tangents)
        zero = jnp.sum(tangents[0], (-2, -1)) * bad  # linear in the tangent
        return made, like(made, (factors + zero[..., None, None], taus + zero[..., None]))

    return call(x)


def _orgqr(site: Site, x: Any, taus: Any) -> Any:
    if jnp.iscomplexobj(x):
        return lax.linalg.householder_product(x, taus)
    return with_derivative_of(lax.linalg.householder_product, _product)(x, taus)


def _trsm(site: Site, a: Any, b: Any) -> Any:
    flags = _flags(site)
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=flags["side"] == "L",
        lower=flags["uplo"] == "L",
        transpose_a=flags["trans_x"] != "N",
        conjugate_a=flags["trans_x"] == "C",
        unit_diagonal=flags["diag"] == "U",
    )


def _tridiagonal(site: Site, below: Any, diagonal: Any, above: Any, b: Any) -> Any:
    """gtsv: the solution. What it leaves of the diagonals comes of a second call, if it is read."""
    made = lax.linalg.tridiagonal_solve(below, diagonal, above, b)
    left = _foreign(site, *map(lax.stop_gradient, (below, diagonal, above, b)))
    return *left[:3], made, _failed(made, b, 2)


def _perturbed(site: Site, below: Any, diagonal: Any, above: Any, b: Any) -> Any:
    return lax.linalg.tridiagonal_solve(below, diagonal, above, b, perturb_singular=True)


_LAPACK: dict[str, Rule] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "geqrf": _geqrf,
    "orgqr": _orgqr,
    "ungqr": _orgqr,
    "gesdd": _gesdd,
    "syevd": _syevd,
    "heevd": _syevd,
    "geev": _geev,
    "trsm": _trsm,
    "gtsv": _tridiagonal,
}


# ---- the largest values
def _approximate(site: Site, x: Any, *_: Any) -> Any:
    """ApproxTopK of one operand and its positions."""
    config = (site.attrs.get("discardable") or {}).get("mhlo.backend_config") or {}
    (comparator,) = site.attrs["called_computations"]
    body = site.runner.named(comparator)
    falling = "GT" in {b.attrs.get("comparison_direction") for b in _calls(body)}
    recall = config.get("recall_target")
    if isinstance(recall, Mapping):
        recall = float(recall["mlir"].partition(" : ")[0])
    choose = lax.approx_max_k if falling else lax.approx_min_k
    return tuple(
        choose(
            x,
            int(config["top_k"]),
            reduction_dimension=int(config["reduction_dim"]),
            recall_target=float(recall or 0.95),
            reduction_input_size_override=int(config.get("reduction_input_size_override", -1)),
            aggregate_to_topk=bool(config.get("aggregate_to_topk", True)),
        )
    )


def _calls(func: Any) -> list[Any]:
    from relax2xla.ir.rewrite import bindings_of

    return [b.value for b in bindings_of(func.body) if hasattr(b.value, "attrs")]


def _largest(site: Site, x: Any) -> Any:
    return tuple(lax.top_k(x, site.shape[-1]))


#: QR of complex matrices has no derivative here.
_COMPLEX_QR = {("c", "geqrf"), ("z", "geqrf")}
#: Targets that are no family: how many operands they take, and the rule.
_NAMED: Mapping[str, tuple[int, Rule]] = {
    PERTURBED: (4, _perturbed),
    "ApproxTopK": (4, _approximate),
    "TopK": (1, _largest),
}
_SPELT: Mapping[str, Callable[..., Any]] = {
    name.removeprefix("chlo."): rule for name, rule in (ARITHMETIC | SORTING).items()
}


def _meaning(call: Call) -> Rule | None:
    """The rule of a custom call, by what its target means; None where nothing here knows it."""
    target = str(call.attrs["call_target_name"])
    group = SAFE.get(target)
    if (routine := TARGET.fullmatch(target)) is not None:
        letter, name = routine.groups()
        return _LAPACK.get(name) if (letter, name) not in _COMPLEX_QR else None
    if target in _NAMED:
        wanted, rule = _NAMED[target]
        return rule if len(call.args) == wanted else None
    prefix, _, name = target.partition(".")
    if prefix in ("mhlo", "chlo") and name in _SPELT and not call.attrs.get("discardable"):
        return _SPELT[name]
    if group is not None and group.why.startswith("annotations") and len(call.args) == 1:
        return lambda site, x: x
    return None


def _unknown(call: Call) -> str:
    target = str(call.attrs["call_target_name"])
    if _meaning(call) is not None:
        return ""
    return f"the custom call {target}" + (f": {CALLS_BACK}" if is_callback(target) else "")


def custom_call(site: Site, *xs: Any) -> Any:
    """A custom call by what its target means; NoRule for one that nothing here knows."""
    rule = _meaning(site.call)
    if rule is None:
        raise NoRule(_unknown(site.call))
    return site.result(_as_tuple(rule(site, *xs)))


def _as_tuple(made: Any) -> tuple[Any, ...]:
    return tuple(made) if isinstance(made, tuple | list) else (made,)


#: Of rows whose rule does not know every call: why it does not know one, or "".
EXCEPTIONS: dict[str, Callable[[Call], str]] = {
    "stablehlo.custom_call": _unknown,
}
RULES: dict[str, Rule] = {
    "stablehlo.custom_call": custom_call,
}

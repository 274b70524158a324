"""What a result must be: torch's values, or the properties of it where torch leaves values open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.testing._comparison import default_tolerances

Check = Callable[[Any, Sequence[Any], Sequence[Any]], str]


class Tolerance(NamedTuple):
    """Relative and absolute error that is allowed beside the defaults."""

    rtol: float = 0.0
    atol: float = 0.0


DEFAULTS = Tolerance()


def same_kind(sample: Any, got: Sequence[Any], want: Sequence[Any]) -> str:
    """dtype and shape only: random values, and memory that torch does not initialise."""
    for g, w in zip(got, want, strict=True):
        if not isinstance(g, torch.Tensor) or g.dtype != w.dtype or g.shape != w.shape:
            return f"{_kind(g)} instead of {_kind(w)}"
    return ""


def _kind(x: Any) -> str:
    return f"{x.dtype} {tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)


def _close(a: Any, b: Any, what: str, loose: float = 1e-3) -> str:
    try:
        torch.testing.assert_close(a, b, rtol=loose, atol=loose, equal_nan=True)
    except AssertionError as e:
        return f"{what}: {' '.join(str(e).split())[:300]}"
    return ""


def attention(sample: Any, got: Sequence[Any], want: Sequence[Any]) -> str:
    """Random where its weights are dropped."""
    # multi_head_attention_forward takes the probability as its eleventh argument.
    given = sample.args[9] if len(sample.args) > 9 else 0.0
    random = sample.kwargs.get("dropout_p", given) and sample.kwargs.get("training", True)
    return (same_kind if random else _equal)(sample, got, want)


def _equal(sample: Any, got: Sequence[Any], want: Sequence[Any]) -> str:
    return equal(got, want)


def eigenvectors(sample: Any, got: Sequence[Any], want: Sequence[Any]) -> str:
    """The eigenvalues, and vectors that give the same matrix: their signs are open."""
    whole = [v @ torch.diag_embed(w).to(v.dtype) @ v.mH for w, v in (got, want)]
    return (
        same_kind(sample, got, want)
        or equal(got[:1], want[:1])
        or _close(whole[0], whole[1], "V diag(w) V^H")
    )


def low_rank(sample: Any, got: Sequence[Any], want: Sequence[Any]) -> str:
    """Random projections: the singular values, and the same matrix."""
    whole = [u @ torch.diag_embed(s).to(u.dtype) @ v.mH for u, s, v in (got, want)]
    return (
        same_kind(sample, got, want)
        or _close(got[1], want[1], "the singular values")
        or _close(whole[0], whole[1], "U diag(S) V^H")
    )


def picked(sample: Any, got: Sequence[Any], want: Sequence[Any]) -> str:
    """Values, and places where they stand: which of equal values is open."""
    wrong = same_kind(sample, got, want) or equal(got[:1], want[:1])
    if wrong or len(got) < 2 or torch.equal(got[1], want[1]):
        return wrong
    if sample.kwargs.get("stable"):
        return "another order than the stable one"
    x, at = sample.input, got[1]
    if x.ndim == 0:
        return "" if not at.any() else f"places {at}"
    value = got[0]
    for dim in range(x.ndim):
        thin = value.ndim < x.ndim
        own, place = (t.unsqueeze(dim) if thin else t for t in (value, at))
        sizes = [s for i, s in enumerate(x.shape) if i != dim % x.ndim]
        if [s for i, s in enumerate(own.shape) if i != dim % x.ndim] != sizes:
            continue
        if not bool(((place >= 0) & (place < x.shape[dim])).all()):
            continue
        ordered = place.sort(dim).values
        twice = (ordered.diff(dim=dim) == 0).any()
        if not twice and not equal([x.gather(dim, place)], [own]):
            return ""
    return "the places do not hold the values"


def order(sample: Any, got: Sequence[Any], want: Sequence[Any]) -> str:
    """Places in the order of their values: that of equal values is open, unless it is stable."""
    values = [[sample.input.gather(_dim(sample), at), at] for (at,) in (got, want)]
    return same_kind(sample, got, want) or picked(sample, *values)


def _dim(sample: Any) -> int:
    """The argument ``dim`` of a call."""
    return sample.kwargs.get("dim", sample.args[0] if sample.args else -1)


CHECKS: dict[str, Check] = dict.fromkeys(
    (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "bernoulli",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "normal.in_place",
        "normal.number_mean",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "uniform",
        "nn.functional.alpha_dropout",
        "nn.functional.dropout",
        "nn.functional.dropout2d",
        "nn.functional.dropout3d",
        "nn.functional.feature_alpha_dropout.with_train",
        "nn.functional.rrelu",
        "nn.functional.fractional_max_pool2d",
        "nn.functional.fractional_max_pool3d",
    ),
    same_kind,
)
CHECKS.update(dict.fromkeys(("topk", "kthvalue", "mode", "sort", "msort"), picked))
CHECKS.update(
    dict.fromkeys(
        ("median", "nanmedian", "max.reduction_with_dim", "min.reduction_with_dim"), picked
    )
)
CHECKS.update({"linalg.eigh": eigenvectors, "argsort": order})
for _name in ("scaled_dot_product_attention", "multi_head_attention_forward"):
    CHECKS[f"nn.functional.{_name}"] = attention
CHECKS.update(dict.fromkeys(("svd_lowrank", "pca_lowrank"), low_rank))


def verdict(
    name: str,
    sample: Any,
    got: Sequence[Any],
    want: Sequence[Any],
    own: Tolerance = DEFAULTS,
) -> str:
    """What is wrong with the results of an entry; "" where nothing is."""
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    check = CHECKS.get(name)
    return check(sample, got, want) if check is not None else equal(got, want, own)


def tolerance_of(entry: Any, dtype: torch.dtype) -> Tolerance:
    """What torch's tests of an entry allow beyond the defaults of the result's dtype.

    These are the overrides for all of its tests, and for those that compare it on the CPU with
    itself in another form (``TestCommon``) or with its decomposition (``TestDecomp``). Torch uses
    the widest of an override and the default, and so does :func:`equal`.
    """
    rtol, atol = 0.0, 0.0
    for decorator in entry.decorators or ():
        inner = [decorator]
        if hasattr(decorator, "decorators"):
            own_dtype = decorator.dtypes is None or dtype in decorator.dtypes
            on_cpu = decorator.device_type in (None, "cpu")
            if decorator.cls_name not in COMPARING or not own_dtype or not on_cpu:
                continue
            inner = decorator.decorators
        for override in inner:
            found = getattr(override, "d", {}).get(dtype)
            if isinstance(found, tuple):
                atol, rtol = max(atol, found[0]), max(rtol, found[1])
            elif found is not None:
                atol = max(atol, found)
    return Tolerance(rtol, atol)


COMPARING = (None, "TestCommon", "TestDecomp")


def equal(got: Sequence[Any], want: Sequence[Any], own: Tolerance = DEFAULTS) -> str:
    """Torch's values, by the defaults of ``assert_close``, or by ``own`` where that is wider."""
    for at, (g, w) in enumerate(zip(got, want, strict=True)):
        if not isinstance(w, torch.Tensor):
            if g != w and not (g != g and w != w):
                return f"result {at} is {g!r} instead of {w!r}"
            continue
        if not isinstance(g, torch.Tensor):
            return f"result {at} is {g!r} instead of a tensor"
        rtol, atol = default_tolerances(w.dtype)
        if rtol:  # whole numbers are compared exactly
            rtol, atol = max(rtol, own.rtol), max(atol, own.atol)
        try:
            exact = w.detach().resolve_conj().resolve_neg()
            torch.testing.assert_close(g, exact, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as e:
            return f"result {at}: {' '.join(str(e).split())[:300]}"
    return ""


def as_exact(
    got: Sequence[Any], want: Sequence[Any], reference: Callable[[], Sequence[Any]]
) -> bool:
    """Whether results are at least as near to the double-precision ones as eager torch's.

    What matters is the largest relative error among the elements that differ from torch's, or the
    root of their mean square error: of sums that almost cancel, and of inverses of matrices of bad
    condition, the one relative error is luck, but the mean is not. Results that agree with the
    double-precision ones by torch's tolerances are near enough, too. Whole numbers, and where
    infinities and NaN stand, must be torch's.
    """
    if not all(
        isinstance(w, torch.Tensor)
        and isinstance(g, torch.Tensor)
        and g.dtype == w.dtype
        and g.shape == w.shape
        for g, w in zip(got, want, strict=True)
    ):
        return False
    try:
        exact = reference()
    except Exception:
        return False
    if len(exact) != len(want):
        return False
    for g, w, e in zip(got, want, exact, strict=True):
        if not w.is_floating_point() and not w.is_complex():
            if not torch.equal(g, w):
                return False
            continue
        if e.shape != w.shape:
            return False
        if not equal([g], [e.to(w.dtype)]):
            continue
        wide = torch.complex128 if w.is_complex() else torch.float64
        ours, torchs, truth = (x.detach().resolve_conj().to(wide) for x in (g, w, e))
        differ = (ours != torchs) & ~(ours.isnan() & torchs.isnan())
        ours, torchs, truth = ours[differ], torchs[differ], truth[differ]
        if not bool((ours.isfinite() & torchs.isfinite() & truth.isfinite()).all()):
            return False
        ours_off, torchs_off = ((x - truth).abs() for x in (ours, torchs))
        scale = truth.abs().clamp_min(1e-30)
        worse = (ours_off / scale).amax() > (torchs_off / scale).amax() if differ.any() else False
        if worse and ours_off.square().mean() > torchs_off.square().mean():
            return False
    return True

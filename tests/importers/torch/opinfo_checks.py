"""What a result must be: torch's values, or the properties of it where torch leaves values open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Check = Callable[[Any, Sequence[Any], Sequence[Any]], str]


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
        if not equal([x.gather(dim, place)], [own]):
            return ""
    return "the places do not hold the values"


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
CHECKS.update({"linalg.eigh": eigenvectors})
for _name in ("scaled_dot_product_attention", "multi_head_attention_forward"):
    CHECKS[f"nn.functional.{_name}"] = attention
CHECKS.update(dict.fromkeys(("svd_lowrank", "pca_lowrank"), low_rank))


def verdict(name: str, sample: Any, got: Sequence[Any], want: Sequence[Any]) -> str:
    """What is wrong with the results of an entry; "" where nothing is."""
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    check = CHECKS.get(name)
    return check(sample, got, want) if check is not None else equal(got, want)


def equal(got: Sequence[Any], want: Sequence[Any]) -> str:
    """Torch's values, by its own tolerances."""
    for at, (g, w) in enumerate(zip(got, want, strict=True)):
        if not isinstance(w, torch.Tensor):
            if g != w and not (g != g and w != w):
                return f"result {at} is {g!r} instead of {w!r}"
            continue
        if not isinstance(g, torch.Tensor):
            return f"result {at} is {g!r} instead of a tensor"
        try:
            torch.testing.assert_close(g, w.detach().resolve_conj().resolve_neg(), equal_nan=True)
        except AssertionError as e:
            return f"result {at}: {' '.join(str(e).split())[:300]}"
    return ""


def as_exact(
    got: Sequence[Any], want: Sequence[Any], reference: Callable[[], Sequence[Any]]
) -> bool:
    """Whether results are at least about as near to the double-precision ones as eager torch's.

    Element by element what matters is the largest error, relative to the largest magnitude.
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
        ours, torchs = (x.resolve_conj().to(wide) - e.to(wide) for x in (g, w))
        scale = e.abs().clamp_min(1e-30)
        if not float((ours.abs() / scale).max()) <= 2 * float((torchs.abs() / scale).max()):
            return False
    return True

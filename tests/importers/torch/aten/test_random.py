"""Random operators: torch's distributions, one seed and other numbers each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import imported, not_traced_anew, run  # noqa: E402

N = 20_000
X = torch.linspace(-2, 2, N)


def _draws(function: Any, inputs: Any = (X,), seed: int = 0) -> list[Any]:
    torch.manual_seed(seed)
    return [np.asarray(v, np.float64) for v in run(imported(function, inputs), inputs)]


def _follows(sample: Any, mean: float, deviation: float) -> None:
    """The mean within five standard errors, the deviation within 5 %."""
    assert abs(sample.mean() - mean) < 5 * deviation / np.sqrt(sample.size)
    assert abs(sample.std() - deviation) < 0.05 * deviation


# Shares of the draws that are below the median and the quartiles of torch's own.
QUARTERS = (0.25, 0.5, 0.75)


@not_traced_anew()
def test_what_is_filled_in_place() -> None:
    """As eager torch, by the quartiles; torch traces nothing anew for it."""

    def fill(x: Any) -> tuple[Any, ...]:
        def new() -> Any:
            return torch.empty_like(x)

        return (
            new().normal_(1, 2),
            new().uniform_(-1, 3),
            new().log_normal_(0.5, 0.25),
            new().cauchy_(1, 2),
            new().exponential_(0.5),
            new().random_(),
            new().bfloat16().random_().float(),
            new().random_(1000),
            torch.empty_like(x, dtype=torch.int64).random_(),
            torch.empty_like(x, dtype=torch.int32).geometric_(0.01),
            F.gumbel_softmax(x.view(-1, 4) * 0, tau=0.5),
        )

    ours = _draws(fill)
    for at, (mine, his) in enumerate(zip(ours, fill(X), strict=True)):
        bounds = np.quantile(his.double().numpy(), QUARTERS)
        below = (mine.reshape(-1, 1) < bounds).mean(0)
        assert np.abs(below - QUARTERS).max() < 0.02, at


def test_distributions() -> None:
    uniform, normal, moved, whole, coins, times, order = _draws(
        lambda x: (
            torch.rand_like(x),
            torch.randn(N),
            torch.normal(3.0, 2.0, (N,)),
            torch.randint(-3, 7, (N,)),
            torch.bernoulli(torch.full_like(x, 0.3)),
            torch.empty_like(x).exponential_(2.0),
            torch.randperm(N),
        )
    )
    _follows(uniform, 0.5, 12**-0.5)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    _follows(normal, 0, 1)
    # Two in three within one deviation, and some beyond three.
    assert abs((np.abs(normal) < 1).mean() - 0.6827) < 0.02
    assert 0.001 < (np.abs(normal) > 3).mean() < 0.005
    _follows(moved, 3, 2)
    _follows(whole, 1.5, (99 / 12) ** 0.5)
    assert set(whole) == set(range(-3, 7))
    _follows(coins, 0.3, 0.21**0.5)
    _follows(times, 0.5, 0.5)
    assert times.min() >= 0
    assert sorted(order) == list(range(N))
    assert (order[:-1] < order[1:]).mean() < 0.6
    # Operators of one program draw numbers of their own.
    assert abs(np.corrcoef(uniform, normal)[0, 1]) < 0.05


def test_dropout() -> None:
    x = torch.ones(200, 100, 2)
    dropped, channels, alpha = _draws(
        lambda x: (
            F.dropout(x, 0.4),
            F.dropout1d(x, 0.4),
            F.alpha_dropout(X, 0.4, True),
        ),
        (x,),
    )
    assert set(np.round(dropped, 4).ravel()) == {0.0, 1.6667}
    assert abs((dropped == 0).mean() - 0.4) < 0.02
    assert (channels[..., 0] == channels[..., 1]).all()
    assert abs((channels == 0).mean() - 0.4) < 0.02
    assert len(np.unique(alpha)) > N / 2
    assert abs((alpha == alpha.min()).mean()) < 0.5


def test_choices() -> None:
    weights = torch.tensor([[1.0, 0.0, 3.0], [2.0, 2.0, 0.0]])
    several, single = _draws(
        lambda w: (
            torch.multinomial(w, 10_000, replacement=True),
            torch.multinomial(w.repeat(50, 1), 2),
        ),
        (weights,),
    )
    for row, chances in zip(several, ([0.25, 0, 0.75], [0.5, 0.5, 0]), strict=True):
        found = np.bincount(row.astype(int), minlength=3) / row.size
        assert np.abs(found - chances).max() < 0.02
    assert {frozenset(r) for r in single.astype(int).tolist()} == {
        frozenset({0, 2}),
        frozenset({0, 1}),
    }


def test_seeds() -> None:
    """torch.manual_seed before the import chooses the numbers."""
    first, again, other = (_draws(torch.rand_like, seed=s)[0] for s in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_generators() -> None:
    """None is torch's own; the state of another one is not in the program."""

    def drawn(**own: Any) -> list[Any]:
        return _draws(
            lambda x: (
                torch.rand(9, **own),
                torch.randn(9, **own),
                torch.randint(2, 9, (9,), **own),
            )
        )

    for plain, named in zip(drawn(), drawn(generator=None), strict=True):
        assert (plain == named).all()
    assert sorted(_draws(lambda x: torch.randperm(9, generator=None))[0]) == list(range(9))


def test_rrelu() -> None:
    drawn, fixed = _draws(lambda x: (F.rrelu(x, training=True), F.rrelu(x)))
    below = X.numpy() < 0
    slopes = drawn[below] / X.numpy()[below]
    _follows(slopes, (1 / 8 + 1 / 3) / 2, (1 / 3 - 1 / 8) * 12**-0.5)
    assert (drawn[~below] == X.numpy()[~below]).all()
    np.testing.assert_allclose(fixed, F.rrelu(X).numpy(), rtol=1e-6)

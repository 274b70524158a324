"""Choosing tokens, beside the filters of transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla.frontend.nn.llm.sampling import Sampler, Sampling, candidates

LOGITS = np.random.default_rng(0).normal(size=50).astype(np.float32) * 2


@pytest.mark.parametrize(
    ("temperature", "k", "p"), [(1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.8), (0.5, 20, 0.6)]
)
def test_probabilities_are_those_of_transformers(temperature: float, k: int, p: float) -> None:
    torch = pytest.importorskip("torch")
    filters: Any = pytest.importorskip("transformers.generation.logits_process")
    scores = filters.TemperatureLogitsWarper(temperature)(None, torch.tensor(LOGITS[None]))
    if k:
        scores = filters.TopKLogitsWarper(k)(None, scores)
    if p < 1:
        scores = filters.TopPLogitsWarper(p)(None, scores)
    want = torch.softmax(scores.double(), -1)[0].numpy()
    order, shares = candidates(LOGITS, Sampling(temperature, k, p))
    got = np.zeros(50)
    got[order] = shares
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12)


def test_draws_follow_the_probabilities_and_the_seed() -> None:
    how = Sampling(temperature=1.0, top_k=4, seed=3)
    sampler = Sampler(how)
    drawn = [sampler(LOGITS) for _ in range(4000)]
    order, shares = candidates(LOGITS, how)
    counts = np.array([drawn.count(int(t)) for t in order]) / 4000
    np.testing.assert_allclose(counts, shares, atol=0.03)
    again = Sampler(how)
    assert [again(LOGITS) for _ in range(20)] == drawn[:20]


def test_greedy_takes_the_first_of_equals() -> None:
    assert Sampler(Sampling())(np.array([0.0, 2.0, 2.0])) == 1


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("temperature", -1.0, "temperature must be a finite number of at least 0"),
        ("top_p", 0.0, "top_p must be a number above 0"),
        ("top_k", -1, "top_k must be a whole number of at least 0"),
        ("max_tokens", 0, "max_tokens must be None or a whole number of at least 1"),
        ("max_tokens", 3.5, "max_tokens must be None or a whole number"),
        ("temperature", float("inf"), "temperature must be a finite number"),
        ("temperature", "1", "temperature must be a finite number"),
        ("seed", -1, "seed must be None or a whole number of at least 0"),
        ("seed", 1.5, "seed must be None or a whole number of at least 0"),
        ("stop", ("a", 1), "stop must be texts"),
        ("stop_tokens", ("a",), "stop_tokens must be whole numbers"),
        ("stop", ("",), "none of them empty"),
    ],
)
def test_settings_out_of_range(field: str, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sampling(**{field: value})


def test_an_error_shows_what_is_wrong_alone() -> None:
    with pytest.raises(ValueError, match="top_k must be") as raised:
        Sampling(top_k=-1, seed=-2, stop=["long " * 1000] * 1000)
    assert str(raised.value).splitlines() == [
        "top_k must be a whole number of at least 0; got -1",
        "seed must be None or a whole number of at least 0; got -2",
    ]
    with pytest.raises(ValueError, match="stop must be texts") as raised:
        Sampling(stop=["long " * 1000] * 1000 + [""])
    assert len(str(raised.value)) < 400

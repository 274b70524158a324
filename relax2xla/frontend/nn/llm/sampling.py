"""Choosing the next token: greedy, or by chance with temperature, top-k and top-p."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sampling:
    """How a text goes on, and where it ends.

    temperature: divides logits; 0 takes the most probable token (greedy), and the next three
    settings do nothing. top_k: of the k most probable tokens, 0: of all. top_p: of the most
    probable ones that together have at least this probability. seed: of this request's own random
    numbers, so that what else is generated changes nothing; None: another one each time. stop:
    texts at which it ends, which are not given. stop_tokens: tokens at which it ends, beside the
    end of text of the tokenizer. max_tokens: None: until the context is full. Raises ValueError for
    what is out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    max_tokens: int | None = None
    ignore_end: bool = False

    def __post_init__(self) -> None:
        for name in ("stop", "stop_tokens"):
            given: Any = getattr(self, name)
            one = isinstance(given, str) or not isinstance(given, Iterable)
            object.__setattr__(self, name, (given,) if one else tuple(given))
        # What each setting must be, and whether it is.
        checks: dict[str, tuple[str, bool]] = {
            "temperature": (
                "a finite number of at least 0",
                _number(self.temperature) and 0 <= self.temperature < np.inf,
            ),
            "top_k": ("a whole number of at least 0", _whole(self.top_k) and self.top_k >= 0),
            "top_p": (
                "a number above 0 and at most 1",
                _number(self.top_p) and 0 < self.top_p <= 1,
            ),
            "seed": (
                "None or a whole number of at least 0",
                self.seed is None or (_whole(self.seed) and self.seed >= 0),
            ),
            "max_tokens": (
                "None or a whole number of at least 1",
                self.max_tokens is None or (_whole(self.max_tokens) and self.max_tokens >= 1),
            ),
            "stop": (
                "texts, none of them empty",
                all(isinstance(word, str) and word for word in self.stop),
            ),
            "stop_tokens": ("whole numbers", all(map(_whole, self.stop_tokens))),
        }
        # Stop words may be many and long: only what is wrong is shown, and the beginning of it.
        failed = [
            f"{name} must be {what}; got {reprlib.repr(getattr(self, name))}"
            for name, (what, fits) in checks.items()
            if not fits
        ]
        if failed:
            raise ValueError("\n".join(failed))


def _number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating)


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class Sampler:
    """Chooses the tokens of one request."""

    def __init__(self, how: Sampling) -> None:
        self._how = how
        self._random = np.random.default_rng(how.seed)

    def __call__(self, logits: npt.NDArray[Any]) -> int:
        """The next token of its logits (vocab,); of equal ones the first."""
        if self._how.temperature == 0:
            return int(np.argmax(logits))
        order, shares = candidates(logits, self._how)
        place = np.searchsorted(np.cumsum(shares), self._random.random(), side="right")
        return int(order[min(int(place), len(order) - 1)])


def candidates(logits: npt.NDArray[Any], how: Sampling) -> tuple[npt.NDArray[Any], Floats]:
    """The tokens that may come, most probable first, and their probabilities, which sum to 1.

    Top-k counts before top-p, as in transformers. Computed in float64.
    """
    scaled = np.asarray(logits, np.float64) / how.temperature
    if 0 < how.top_k < len(scaled):
        # Those as good as the k-th stay, as in transformers.
        least = np.partition(scaled, -how.top_k)[-how.top_k]
        kept = np.flatnonzero(scaled >= least)
    else:
        kept = np.arange(len(scaled))
    order = kept[np.argsort(-scaled[kept], kind="stable")]
    shares = np.exp(scaled[order] - scaled[order[0]])
    shares /= shares.sum()
    if how.top_p < 1:
        count = int(np.searchsorted(np.cumsum(shares), how.top_p, side="left")) + 1
        order, shares = order[:count], shares[:count]
        shares = shares / shares.sum()
    return order, shares

"""Strings on the host: what would not fit memory is refused before it is made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from relax2xla import budget
from relax2xla.errors import BudgetError
from relax2xla.vm.host import text


@pytest.fixture
def little() -> Iterator[None]:
    """A limit of 64 KiB for what Python holds."""
    before = budget.use(64 * 65536)
    yield
    budget.use(before)


def test_strings_that_double_end_before_memory_does(little: None) -> None:
    made = np.array(["ab", "c"], object)
    for _ in range(14):
        made = text.concat(made, made)
    assert [len(v) for v in made] == [2**15, 2**14]
    with pytest.raises(BudgetError, match="StringConcat: 96 KiB; the limit is 64 KiB"):
        text.concat(made, made)


def test_parts_are_counted_before_they_are_made(little: None) -> None:
    words, counts = text.split(np.array(["a b\u3000c", "d"], object))
    assert (words.shape, counts.tolist()) == ((2, 3), [3, 1])
    long = np.array(["a," * 4000, "b"], object)
    with pytest.raises(BudgetError, match="the parts of StringSplit"):
        text.split(long, ",")
    assert text.split(long, ",", 2)[1].tolist() == [3, 1]
    with pytest.raises(BudgetError, match="the parts of StringSplit"):
        text.split(np.array(["a\u2003" * 4000], object))

"""A few rounds of each run of ``tests.fuzz.endurance``; the whole is in docs/reliability.md."""

from __future__ import annotations

import itertools
from collections.abc import Generator

import pytest

from tests.fuzz import endurance
from tests.work import held


@pytest.fixture(autouse=True)
def no_cache() -> Generator[None]:
    before = endurance.cache.use(None)
    yield
    endurance.cache.use(before)


def test_threads() -> None:
    counts = [row["done"] for row in endurance.threads(0.01)]
    assert counts == [16, 16, 640, 16]


def test_tasks() -> None:
    started, executed, cancelled = (row["done"] for row in endurance.tasks(0.03))
    assert started == executed == 30
    assert 0 < cancelled <= 30


def test_processes_and_their_errors() -> None:
    (row,) = endurance.processes(0.01)
    assert row["done"] == 4


def test_nothing_of_a_build_stays() -> None:
    endurance.some_builds(2000, 2)
    before = endurance.survivors()
    kept = held(lambda: endurance.some_builds(2002, 6))
    assert endurance.survivors() == before
    # Caches with a limit take some of it.
    assert kept < 100_000


def test_programs_of_many_shapes_do_not_pile_up() -> None:
    made = endurance.some_calls(max_programs=4)
    counts = [endurance.survivors() for done in itertools.islice(made, 120) if done % 60 == 0]
    first, last = counts
    assert last["Loaded"] <= first["Loaded"] <= 6
    assert last["Function"] <= first["Function"]
    assert last["buffers"] <= first["buffers"] + 2

"""A few rounds of each run of ``tests.fuzz.endurance``; the whole is in docs/reliability.md."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from tests.fuzz import endurance


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


def apart(work: Callable[[], Any]) -> Any:
    """What ``work`` gives in a process of its own, which holds nothing of other tests."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work).result(endurance.PATIENCE)


def test_nothing_of_a_build_stays() -> None:
    before, after, kept = apart(endurance.what_builds_leave)
    assert after == before
    # Caches with a limit take some of it.
    assert kept < 100_000


def test_programs_of_many_shapes_do_not_pile_up() -> None:
    first, last = apart(endurance.what_calls_leave)
    assert last["Loaded"] <= first["Loaded"] <= 6
    assert last["Function"] <= first["Function"]
    assert last["buffers"] <= first["buffers"] + 2

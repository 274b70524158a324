"""The first inputs of every target, for about a minute; and the engine on planted faults.

``make fuzz`` runs more of them; docs/reliability.md has the figures of the long runs.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzz.engine import TARGETS, Worker, campaign, load_target
from tests.fuzz.mutate import some_bytes, some_json, some_text
from tests.fuzz.planted import FAULTS
from tests.fuzz.relax_values import off

# Seconds for each target, without what it takes to load it; and the most inputs, so that those of a
# fast machine have been tried before.
SHARE = 60 / len(TARGETS)
MOST = 600


@pytest.fixture(scope="module")
def worker():
    with Worker() as made:
        yield made


@pytest.mark.xdist_group("fuzz")
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found(name: str, worker: Worker) -> None:
    loading = campaign(name, range(1), SHARE, workers=[worker])
    rest = campaign(name, range(1, MOST), SHARE, workers=[worker])
    for count in (loading, rest):
        assert count.inputs > 0
        assert not count.findings, [o for found in count.findings.values() for o in found]


@pytest.mark.xdist_group("fuzz")
def test_planted_faults_are_found() -> None:
    with Worker() as own:
        count = campaign("planted.Faults", range(len(FAULTS)), 100, workers=[own])
    kinds = ["accepted", "refused", "wrong", "leaked", "leaked", "died", "hung", "endless"]
    assert sum(count.kinds.values()) == len(FAULTS)
    assert dict(count.kinds) == {k: kinds.count(k) for k in kinds}
    found = [o for outcomes in count.findings.values() for o in outcomes]
    assert [FAULTS[o.number] for o in found] == [f for f in FAULTS if f in FAULTS[2:7]]
    assert next(o for o in found if o.kind == "died").detail.startswith("SIGABRT")


@pytest.mark.parametrize("name", ["npy", "safetensors", "npz"])
def test_an_input_is_known_by_its_number(name: str) -> None:
    one, other = load_target(name), load_target(name)
    assert [one.input(n) for n in range(20)] == [other.input(n) for n in reversed(range(20))][::-1]


def test_mutations_change_something() -> None:
    text = "func @main(%0: tensor<2x3xf32>) {\n  %1 = add %0, %0 : f32\n  return %1\n}"
    data = bytes(range(64))
    plain = {"a": [1, {"b": "c"}], "d": None}
    texts = {some_text(text, random.Random(n), ("i32",), (text,)) for n in range(200)}
    datas = {some_bytes(data, random.Random(n)) for n in range(200)}
    plains = {repr(some_json(plain, random.Random(n))) for n in range(200)}
    assert len(texts) > 100
    assert len(datas) > 120
    assert len(plains) > 60
    assert plain == {"a": [1, {"b": "c"}], "d": None}


def test_rounding_is_allowed_and_errors_are_not() -> None:
    exact = np.linspace(-1, 1, 7)
    own = exact.astype(np.float32)
    assert off(own + np.float32(1e-6), own, exact, 1.0) == ""
    assert off(own + np.float32(1e-4), own, exact, 1.0)
    assert off(np.full_like(own, np.nan), own, exact, 1.0)

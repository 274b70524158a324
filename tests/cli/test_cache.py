"""``cache``: what it shows and removes; ``run`` of a second process compiles nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relax2xla.vm.cache import DiskCache

from .conftest import Cli, shell


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    monkeypatch.setenv("RELAX2XLA_CACHE", "1")
    monkeypatch.setenv("RELAX2XLA_CACHE_DIR", str(tmp_path / "c"))
    return DiskCache(tmp_path / "c" / "compiled")


def test_show_limit_and_clear(cli: Cli, store: DiskCache) -> None:
    assert "holds     0 programs" in cli("cache").out
    for i in range(4):
        store.put(f"k{i}", os.urandom(1000))
        os.utime(store.folder / f"k{i}.xla", (i, i))
    shown = cli("cache").out
    assert "4 programs, 4." in shown
    assert str(store.folder) in shown
    assert "last use" in shown
    found = json.loads(cli("cache", "--limit", "2500", "--json").out)
    assert (found["removed"], [e["key"] for e in found["entries"]]) == (2, ["k3", "k2"])
    assert "removed   2 programs" in cli("cache", "--clear").out
    assert store.entries() == []


def test_wrong_sizes_and_a_cache_turned_off(
    cli: Cli, store: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = cli("cache", "--limit", "lots")
    assert (wrong.code, "--limit: 'lots' is no size" in wrong.err) == (2, True)
    monkeypatch.setenv("RELAX2XLA_CACHE", "0")
    assert "turned off" in cli("cache").out
    assert json.loads(cli("cache", "--json").out) == {"enabled": False}


def test_run_fills_it(models: Callable[[str], Path], store: DiskCache) -> None:
    for _ in range(2):
        assert shell("run", models("relax"), "--shape", "n=3").returncode == 0
    assert len(store.entries()) == 1

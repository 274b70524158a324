"""``cache``: what it shows and removes; ``run`` of a second process compiles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relax2xla.vm.pjrt.cache import DiskCache

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


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
@pytest.mark.parametrize(
    ("words", "answer", "left"),
    [
        (("--limit", "2500"), "n\n", 4),
        (("--limit", "2500"), "y\n", 2),
        (("--limit", "1M"), "", 4),  # nothing would go, and nothing is asked
        (("--clear",), "\n", 4),
        (("--clear",), "yes\n", 0),
        (("--limit", "2500", "--yes"), "", 2),
        (("--clear", "-y"), "", 0),
    ],
)
def test_on_a_terminal_it_asks(
    words: tuple[str, ...], answer: str, left: int, store: DiskCache
) -> None:
    import pty

    for i in range(4):
        store.put(f"k{i}", os.urandom(1000))
        os.utime(store.folder / f"k{i}.xla", (i, i))
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        command = [sys.executable, "-m", "relax2xla", "cache", *words]
        done = subprocess.run(
            command, stdin=theirs, stdout=theirs, stderr=theirs, timeout=120, check=False
        )
        os.set_blocking(ours, False)
        shown = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, shown
    assert ("remove? [y/N]" in shown) == bool(answer)
    if answer:
        count = 4 if words == ("--clear",) else 2
        assert f"this removes {count} programs of 4, " in shown
    assert ("nothing was removed" in shown) == (bool(answer) and left == 4)
    assert len(store.entries()) == left

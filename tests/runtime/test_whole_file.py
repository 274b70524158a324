"""Files that appear whole, and what killed writers leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relax2xla.runtime.whole_file import whole_file

ROOT = Path(__file__).resolve().parents[2]
KILLED = """
import os, signal, sys
from pathlib import Path
from relax2xla.runtime.whole_file import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_what_a_killed_writer_left_goes_with_the_next_save(tmp_path: Path) -> None:
    path = tmp_path / "model.r2x"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, check=False)
    # The second writer has removed what the first one left.
    assert len(names(tmp_path)) == 1
    with whole_file(tmp_path / "other.r2x") as file:
        file.write(b"other")
    assert len(names(tmp_path)) == 2  # of another file, so it stays
    with whole_file(path) as file:
        file.write(b"whole")
    assert names(tmp_path) == ["model.r2x", "other.r2x"]


def test_what_a_living_writer_has_begun_stays(tmp_path: Path) -> None:
    path = tmp_path / "model.r2x"
    with whole_file(path) as first:
        first.write(b"first")
        (begun,) = tmp_path.iterdir()
        os.utime(begun, (0, 0))
        with whole_file(path) as second:
            second.write(b"second")
        assert begun.exists()
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["model.r2x"]


def test_files_whose_writers_cannot_be_asked_for_go_by_age(tmp_path: Path) -> None:
    path = tmp_path / "model.r2x"
    old = [tmp_path / f".model.r2x.{n}.tmp" for n in ("0a1b2c3d", "elsewhere-1-0a1b2c3d")]
    young = tmp_path / ".model.r2x.elsewhere-1-1a1b2c3d.tmp"
    others = [tmp_path / n for n in (".model.r2x.notes.tmp", ".model.r2x.txt", "model.r2x.tmp")]
    for file in (*old, young, *others):
        file.write_bytes(b"")
        os.utime(file, (0, 0))
    os.utime(young, (time.time(), time.time()))
    with whole_file(path) as file:
        file.write(b"whole")
    assert not any(p.exists() for p in old)
    assert all(p.exists() for p in (young, *others))


def test_long_names(tmp_path: Path) -> None:
    path = tmp_path / ("\U0001f600" * 60)
    with whole_file(path) as file:
        file.write(b"whole")
    assert names(tmp_path) == [path.name]

"""Files that appear whole, and what killed writers leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relax2xla.runtime.whole_file import abandon, is_stream, whole_file

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


def test_what_is_being_written_can_be_given_up(tmp_path: Path) -> None:
    path = tmp_path / "model.r2x"

    def give_up() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            abandon()

    with pytest.raises(OSError, match=r"model\.r2x"):
        give_up()
    assert names(tmp_path) == []
    with whole_file(path) as file:
        file.write(b"whole")
    abandon()
    assert path.read_bytes() == b"whole"


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.r2x"
    path.write_bytes(b"before")
    path.chmod(0o600)
    with whole_file(path) as file:
        (beside,) = (p for p in tmp_path.iterdir() if p != path)
        assert beside.stat().st_mode & 0o777 == 0o600  # nobody else reads what is half written
        file.write(b"whole")
    assert path.stat().st_mode & 0o777 == 0o600


STREAMED = """
import sys
from pathlib import Path
from relax2xla.runtime.whole_file import is_stream, whole_file
for name in sys.argv[1:]:
    assert is_stream(Path(name)), name
    print("and")
    with whole_file(Path(name)) as file:
        file.write(b"more\\n")
"""


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="names of streams")
def test_streams_are_written_to_as_they_are(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to("/dev/stdout")
    target.write_bytes(b"before\n")
    names_of_it = ("/dev/stdout", "/dev/fd/1", "/dev/fd/../stdout", str(link), "/dev/null")
    with target.open("ab") as out:
        program = [sys.executable, "-c", STREAMED, *names_of_it]
        subprocess.run(program, cwd=ROOT, check=True, stdout=out)
    assert target.read_text().split() == ["before", *["and", "more"] * 4, "and"]
    assert names(tmp_path) == ["link", "target"]
    assert link.is_symlink()
    assert not is_stream(target)
    assert not is_stream(tmp_path / "none")
    assert not is_stream(Path("\0"))

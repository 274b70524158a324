"""The C++ compiler of the tests: what it keeps is what the real one makes, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from relax2xla.runtime.compiler import INCLUDE, find_compiler, has_compiler
from tests import compile_once

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="the compiler of the tests is a shell script"),
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
]

SOURCE = INCLUDE / "relax2xla" / "nothing.cpp"
COUNTED = """#!/bin/sh
if [ "$1" = --version ]; then echo 1; exit 0; fi
echo run >> "{log}"
if [ -e "{bad}" ]; then echo no >&2; exit 3; fi
while [ $# -gt 1 ]; do if [ "$1" = -o ]; then date +%N > "$2"; fi; shift; done
"""


class Session:
    """A folder as of a session, and a compiler that counts its runs."""

    def __init__(self, folder: Path) -> None:
        self.log, self.bad, home = folder / "log", folder / "bad", folder / "home"
        real, self.home = folder / "real", home
        for made in (home, real):
            made.mkdir()
        compiler = real / "c++"
        compiler.write_text(COUNTED.format(log=self.log, bad=self.bad))
        compiler.chmod(0o700)
        path = f"{real}{os.pathsep}{os.defpath}"
        path = compile_once.install(home, {"PATH": path})
        self.env = {**os.environ, "PATH": path, "RELAX2XLA_TESTS_COMPILED": str(home)}

    def run(self, *options: object) -> int:
        command = [str(self.home / "c++"), *map(str, options)]
        return subprocess.run(command, env=self.env, check=False, capture_output=True).returncode

    @property
    def runs(self) -> int:
        return len(self.log.read_text().split()) if self.log.exists() else 0


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def test_a_library_is_compiled_once_for_each_set_of_options(
    session: Session, tmp_path: Path
) -> None:
    made = [tmp_path / f"{n}.so" for n in range(3)]
    for target in made[:2]:
        assert session.run("-shared", "-O3", SOURCE, "-o", target) == 0
    assert session.runs == 1
    assert made[0].read_bytes() == made[1].read_bytes()
    assert session.run("-shared", "-O3", "-DA", SOURCE, "-o", made[2]) == 0
    assert session.runs == 2
    assert made[2].read_bytes() != made[0].read_bytes()


def test_what_fails_fails_each_time(session: Session, tmp_path: Path) -> None:
    session.bad.touch()
    for _ in range(2):
        assert session.run("-shared", SOURCE, "-o", tmp_path / "a.so") == 3
    assert session.runs == 2
    session.bad.unlink()
    assert session.run("-shared", SOURCE, "-o", tmp_path / "a.so") == 0


def test_other_commands_are_the_compilers(session: Session, tmp_path: Path) -> None:
    other = tmp_path / "own.cpp"
    for options in ((other,), (other, other), (SOURCE,)):
        for _ in range(2):
            shared = [] if options == (SOURCE,) else ["-shared"]
            assert session.run(*shared, *options, "-o", tmp_path / "a") == 0
    assert session.runs == 6


def test_this_session_uses_it() -> None:
    """In the process of the tests, and so in those that it starts."""
    if os.environ.get("CXX"):
        pytest.skip("CXX names the compiler")
    home = os.environ["RELAX2XLA_TESTS_COMPILED"]
    found = subprocess.run(
        ["sh", "-c", f"command -v {find_compiler()[0]}"], capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).parent == Path(home)

"""The check of commit messages that ``make lint`` makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parent.parent / ".ci" / "commits"


def git(folder: Path, *args: str) -> None:
    who = {f"GIT_{r}_{w}": "x@y.z" for r in ("AUTHOR", "COMMITTER") for w in ("NAME", "EMAIL")}
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *args], cwd=folder, env={**os.environ, **who, **quiet}, check=True)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("Add mish\n\nThe importers wrote it out.", ""),
        ("Add mish", "no body"),
        ("Add " + "m" * 70 + "\n\nWhy.", "a subject of 74 characters; 72 at most"),
    ],
)
def test_messages(message: str, says: str, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", message)
    done = subprocess.run([CHECK, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, says in done.stdout) == (1 if says else 0, True)


def test_what_is_no_history_has_no_commits(tmp_path: Path) -> None:
    done = subprocess.run([CHECK, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "commits: no git history here\n")

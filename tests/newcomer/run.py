"""`make newcomer`: what README and the tutorials say, done from the wheel in a fresh environment.

    python tests/newcomer/run.py [--only DOCUMENT ...] [--constraints FILE]

Builds the source distribution, from it the wheel, and installs that step by step: what needs no
extra is done before an extra is there, so that a document which asks for too little is found. Needs
an interpreter with pip, an index that pip knows, and some minutes and gigabytes, which are given
back. Exit code 1 where something printed is not what a document says.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md")))
BUILT = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")


def extras_of(document: Path) -> tuple[str, ...]:
    """The extras that a document's install line names."""
    found = re.search(r"pip install '?\.(?:\[([\w,]+)\])?", document.read_text("utf-8"))
    if found is None:
        raise SystemExit(f"{document} does not say how to install what it needs")
    return tuple(sorted((found[1] or "").split(","))) if found[1] else ()


def call(*words: object, cwd: Path) -> None:
    """Run a command; SystemExit with its output where it fails."""
    line = [str(w) for w in words]
    done = subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}\n{done.stdout}{done.stderr}")


def build(python: Path, folder: Path) -> Path:
    """The wheel of the source distribution of a copy of the tree."""
    tree = folder / "tree"
    tree.mkdir()
    for name in (*BUILT, "constraints.txt"):
        shutil.copy(ROOT / name, tree)
    for name in ("relax2xla", "importers"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignore)
    call(python, "-m", "pip", "install", "-q", "setuptools>=77", "wheel", cwd=folder)
    code = f"import setuptools.build_meta as b; b.build_sdist({str(folder)!r})"
    call(python, "-c", code, cwd=tree)
    (archive,) = folder.glob("*.tar.gz")
    pip = (python, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps")
    call(*pip, "-w", folder, archive, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def size_of(folder: Path) -> str:
    """What the files of a folder take, as text."""
    held = sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_dir())
    return f"{held / 1e6:,.0f} MB"


def main() -> int:
    """Do all of it; the number of sets of documents that are not true."""
    parser = argparse.ArgumentParser(description="Do what README and the tutorials say.")
    parser.add_argument("--constraints", type=Path, help="versions, as of `pip install -c`")
    parser.add_argument("--only", nargs="+", default=[], help="documents by name, such as tvm")
    options = parser.parse_args()
    chosen = [d for d in DOCUMENTS if not options.only or d.stem in options.only]
    needs = {d: extras_of(d) for d in chosen}
    limits = ["-c", options.constraints.resolve()] if options.constraints else []
    failed = 0
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        folder = Path(name)
        venv.create(folder / "maker", with_pip=True)
        wheel = build(folder / "maker" / "bin" / "python", folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        environment = folder / "environment"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        # Fewer extras first; each step sees those that came before it.
        for extras in sorted(set(needs.values()), key=lambda e: (len(e), e)):
            began = time.perf_counter()
            wanted = f"{wheel}[{','.join(extras)}]" if extras else wheel
            call(python, "-m", "pip", "install", "-q", *limits, wanted, cwd=folder)
            took = time.perf_counter() - began
            print(
                f"[{','.join(extras)}]: {size_of(environment)} installed in {took:.0f} s",
                flush=True,
            )
            documents = [d for d in chosen if needs[d] == extras]
            done = subprocess.run(
                # -P: the package is the wheel's, wherever this is started.
                [python, "-P", Path(__file__).with_name("blocks.py"), "--shell", *documents],
                cwd=folder,
                check=False,
            )
            failed += done.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))

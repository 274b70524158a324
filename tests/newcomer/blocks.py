"""Runs what a document says, as its reader would, and compares what is printed.

    python tests/newcomer/blocks.py [--shell] DOCUMENT.md ...

Blocks marked ``python`` run in order, those of one document in one module and in an empty folder.
What a block prints must be the block marked ``text`` that follows it, and nothing where none does.
In blocks marked ``console`` lines that begin with ``$ `` are commands, and the lines below are what
each prints. ``...`` stands for anything, and amounts of white space do not count, as in doctest.

Commands of relax2xla run in this process, or with --shell as processes of their own. It needs
nothing but the package that the document is about, so that it runs where only that is installed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RULES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Differs(Exception):
    """A document that is not true: place, what it says, what is."""


@dataclass(frozen=True)
class Block:
    """``text`` of a kind, whose first line is line ``line`` (from 1) of the document."""

    kind: str
    text: str
    line: int


def blocks_of(document: str) -> list[Block]:
    """All marked blocks, in order."""
    return [
        Block(m[1], m[2], document.count("\n", 0, m.start(2)) + 1)
        for m in _FENCE.finditer(document)
    ]


def run_document(path: Path, shell: bool = False, given: str = "", strict: bool = True) -> int:
    """Run one document in an empty folder; gives the number of blocks and commands that ran.

    given: Python that runs before its blocks, in their module
    strict: whether a block that no text follows may print nothing
    """
    blocks = blocks_of(path.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        module = _module_of(blocks, Path(folder, f"{path.stem}_blocks.py"))
        exec(compile(given, f"what is given to {path.name}", "exec"), vars(module))
        ran = 0
        for i, block in enumerate(blocks):
            place = f"{path}:{block.line}"
            if block.kind == "python":
                after = blocks[i + 1] if i + 1 < len(blocks) else None
                said = after.text if after is not None and after.kind == "text" else None
                printed = _printed_by(block, module, place)
                if said is not None or strict:
                    _compare(place, said or "", printed)
                ran += 1
            elif block.kind == "console":
                for command, said in _commands(block.text):
                    _compare(f"{place}: {command}", said, _output_of(command, shell))
                    ran += 1
    return ran


def _module_of(blocks: list[Block], file: Path) -> types.ModuleType:
    """The module that the Python blocks are run in.

    Its file has each block at its line in the document: tracebacks say that line, and what reads
    sources (TVMScript does) finds them.
    """
    lines: list[str] = []
    for block in (b for b in blocks if b.kind == "python"):
        lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    file.write_text("\n".join(lines) + "\n", "utf-8")
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    return module


def _printed_by(block: Block, module: types.ModuleType, place: str) -> str:
    tree = ast.parse(block.text)
    ast.increment_lineno(tree, block.line - 1)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(tree, str(module.__file__), "exec"), vars(module))
        except Exception as e:
            e.add_note(f"in the block at {place}")
            raise
    return printed.getvalue()


def _commands(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, said = part.partition("\n")
        yield command, said


def _output_of(command: str, shell: bool) -> str:
    words = shlex.split(command)
    if shell or words[0] != "relax2xla":
        # `python` and `relax2xla` are those of the environment that this runs in.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        done = subprocess.run(
            command,
            shell=True,
            env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Differs(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout
    from relax2xla.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = main(words[1:])
    if status:
        raise Differs(f"{command} ended with {status}:\n{printed.getvalue()}")
    return printed.getvalue()


def _compare(place: str, said: str, printed: str) -> None:
    if not doctest.OutputChecker().check_output(said, printed, _RULES):
        raise Differs(f"{place}\n--- the document says\n{said}--- printed was\n{printed}")


def _main() -> None:
    parser = argparse.ArgumentParser(description="Run the blocks of documents.")
    parser.add_argument("--shell", action="store_true", help="commands as processes of their own")
    parser.add_argument("documents", nargs="+", type=lambda p: Path(p).resolve())
    options = parser.parse_args()
    failed = 0
    for document in options.documents:
        began = time.perf_counter()
        try:
            ran = run_document(document, options.shell)
        except Exception as e:
            failed += 1
            notes = "".join(f"\n{n}" for n in getattr(e, "__notes__", ()))
            print(f"{document.name}: {type(e).__name__}: {e}{notes}", file=sys.stderr)
        else:
            print(f"{document.name}: {ran} blocks, {time.perf_counter() - began:.1f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    _main()

"""The documents beside README and the tutorials: their programs run, their commands are there.

README and tutorials are in test_readme.py and test_tutorials.py.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from relax2xla.cli.app import app
from tests.newcomer.blocks import Block, blocks_of
from tests.newcomer.documents import DOCS, GIVEN, ROOT

DOCUMENTS = sorted([*DOCS.glob("*.md"), ROOT / "CONTRIBUTING.md"])
#: What a block is for; those without a mark are shown as they are.
MARKS = {"python", "py", "text", "sh", "toml", "console", "mermaid", "cpp", "c"}
#: What a reader of CONTRIBUTING is about to write.
NOT_YET = {"relax2xla.cli.commands.count"}


def blocks(path: Path, kind: str) -> list[Block]:
    return [b for b in blocks_of(path.read_text("utf-8")) if b.kind == kind]


def test_programs_run() -> None:
    """All in one process; ``python -m tests.newcomer.documents`` alone says more."""
    for package in ("torch", "onnx", "onnxscript", "flax", "equinox", "optax"):
        pytest.importorskip(package)
    marked = {p.stem for p in DOCUMENTS if blocks(p, "python")}
    assert marked == set(GIVEN)
    done = subprocess.run(
        [sys.executable, "-m", "tests.newcomer.documents"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.stem)
def test_parts_are_python(path: Path) -> None:
    """What is shown alone parses, and what it imports from here is there."""
    for kind in {b.kind for b in blocks_of(path.read_text("utf-8"))}:
        assert kind in MARKS, f"{path.name}: a block marked {kind}"
    for block in blocks(path, "py"):
        # A part of a function may return.
        text = "def part():\n" + "".join(f"    {line}\n" for line in block.text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("relax2xla"):
                if node.module in NOT_YET:
                    continue
                room = importlib.import_module(node.module or "")
                for alias in node.names:
                    assert hasattr(room, alias.name), f"{path.name}:{block.line}: {alias.name}"


def test_names_need_no_import_but_of_the_package() -> None:
    """What documents name as ``relax2xla.room.name``, and not as a thing to import or run."""
    named = re.compile(r"(?<!from )(?<!import )(?<!-m )\brelax2xla(?:\.\w+){2,}")
    blocks_with = [
        b.text for p in DOCUMENTS for kind in ("python", "py", "text") for b in blocks(p, kind)
    ]
    found = {name for text in blocks_with for name in named.findall(text)}
    # In the text around programs.
    found |= {
        "relax2xla.budget.use",
        "relax2xla.importers.onnx.load_initializers",
        "relax2xla.importers.torch.load_state_dict",
        "relax2xla.interop.jax.to_jax",
        "relax2xla.kv_state.PagedKVCache",
        "relax2xla.te.compute",
        "relax2xla.topi.add",
    }
    assert "relax2xla.interop.jax.to_nnx" in found
    program = f"""
import relax2xla
for name in {sorted(found)!r}:
    try:
        eval(name)
    except AttributeError as e:
        print(name, e)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr[-2000:]


def commands(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Lines that call the command line, with their words; what follows two spaces is a remark."""
    shown = re.findall(r"^```\w*\n(.*?)^```$", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for line in (line for text in shown for line in text.splitlines()):
        found = re.match(r"(?:\$ )?relax2xla (\w+)(.*)", line)
        if found is None:
            continue
        said = re.split(r"\s{2,}|\s[|>&#]", found[2].strip())[0]
        try:
            yield found[1], shlex.split(said)
        except ValueError:  # a quote that only the shell closes, on the next line
            yield found[1], said.split()


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "README.md"], ids=lambda p: p.stem)
def test_commands_are_there(path: Path) -> None:
    group: Any = typer.main.get_command(app)
    for name, words in commands(path):
        command = group.commands.get(name)
        assert command is not None, f"{path.name}: relax2xla {name}"
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
        known |= {"-h", "--help", "-q", "-v", "-vv", "--debug"}
        for word in words:
            option = word.partition("=")[0]
            if re.fullmatch(r"--?[a-z][\w-]*", option):
                assert option in known, f"{path.name}: relax2xla {name} {option}"


def test_commands_are_found() -> None:
    found = dict(commands(DOCS / "cli.md"))
    assert {"inspect", "verify", "bench", "diff", "reduce", "view"} <= set(found)
    assert sum(1 for _ in commands(DOCS / "cli.md")) > 30

"""Processes forked from one that has used XLA say so at once, instead of hanging."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# One process for all tests of this file, also where tests run in several processes.
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork"),
    pytest.mark.xdist_group("fork"),
]

HEAD = """
import multiprocessing, os, subprocess, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import relax2xla as rx
from relax2xla import op as R
from relax2xla.vm.pjrt import cache
cache.use(None)

def module():
    n = rx.tir.Var("n")
    x = rx.Var("x", rx.TensorStructInfo((n,), "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(R.add(x, x)))
    return builder.get()

def build():
    return rx.VirtualMachine(rx.build(module()))

def said(call):
    try:
        return str(call())
    except rx.TVMError as e:
        return f"{type(e).__name__}: {e}"

def in_child(call):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, said(call).encode())
        os._exit(0)
    os.close(writing)
    return os.fdopen(reading).read()
"""

# What the process does, in this order, and prints: before it uses XLA, and afterwards.
BUILT_BEFORE, FORKED_FIRST, DOES_WITHOUT, AFTER = range(4)
PARTS = (
    """
built = rx.build(module())
machine = lambda: rx.VirtualMachine(built)["main"]
print(in_child(lambda: np.asarray(machine()(np.ones(2, np.float32))).tolist()))
""",
    """
import relax2xla.vm.pjrt.xla
print(in_child(lambda: build()["main"](np.ones(4, np.float32)).shape))
""",
    """
print(in_child(lambda: "imported"))
main = build()["main"]
four, five = np.ones(4, np.float32), np.ones(5, np.float32)
main(four)
print(in_child(lambda: np.ones(3).sum()))
print(subprocess.run([sys.executable, "-c", "print(1)"], stdout=-1).stdout.decode().strip())
""",
    """
import jax.numpy as jnp
main(jnp.ones(4)); placed = jnp.ones(4)
print(in_child(lambda: main(four)))  # a shape that is known
print(in_child(lambda: main(placed)))
print(in_child(lambda: main(five)))  # a new one
print(in_child(lambda: build()["main"](four)))  # a new program
print(main(five).shape)  # nothing changes in the parent
""",
)
BETWEEN = "-- next --"


@pytest.fixture(scope="module")
def printed() -> list[list[str]]:
    """Lines that the process prints, a list for each part; it must not hang."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + f"print({BETWEEN!r}, flush=True)\n".join(PARTS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [part.splitlines() for part in done.stdout.split(f"{BETWEEN}\n")]


def test_building_alone_uses_no_device(printed: list[list[str]]) -> None:
    """What is built before a fork runs after it."""
    assert printed[BUILT_BEFORE] == ["[2.0, 2.0]"]


def test_the_parent_may_fork_first(printed: list[list[str]]) -> None:
    assert printed[FORKED_FIRST] == ["(4,)"]


def test_a_fork_before_the_first_use_and_children_that_do_without(printed: list[list[str]]) -> None:
    assert printed[DOES_WITHOUT] == ["imported", "3.0", "1"]


def test_a_fork_after_the_first_use(printed: list[list[str]]) -> None:
    lines = printed[AFTER]
    assert len(lines) == 5
    assert all(line.startswith("DeviceError: this process was forked") for line in lines[:4])
    assert all('get_context("spawn")' in line for line in lines[:4])
    assert lines[4] == "(5,)"

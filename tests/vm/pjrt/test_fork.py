"""Processes forked from one that has used XLA say so at once, instead of hanging."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")

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


def run(code: str) -> list[str]:
    """Lines that a process of its own prints; it must not hang."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_fork_after_the_first_use() -> None:
    lines = run(
        "import jax.numpy as jnp\n"
        "main = build()['main']\n"
        "four, five = np.ones(4, np.float32), np.ones(5, np.float32)\n"
        "main(four); main(jnp.ones(4)); placed = jnp.ones(4)\n"
        "print(in_child(lambda: main(four)))\n"  # a shape that is known
        "print(in_child(lambda: main(placed)))\n"
        "print(in_child(lambda: main(five)))\n"  # a new one
        "print(in_child(lambda: build()['main'](four)))\n"  # a new program
        "print(main(five).shape)\n"  # nothing changes in the parent
    )
    assert len(lines) == 5
    assert all(line.startswith("DeviceError: this process was forked") for line in lines[:4])
    assert all('get_context("spawn")' in line for line in lines[:4])
    assert lines[4] == "(5,)"


def test_a_fork_before_the_first_use_and_children_that_do_without() -> None:
    lines = run(
        "import relax2xla.vm.pjrt.xla\n"
        "print(in_child(lambda: 'imported'))\n"
        "build()['main'](np.ones(4, np.float32))\n"
        "print(in_child(lambda: np.ones(3).sum()))\n"
        "print(subprocess.run([sys.executable, '-c', 'print(1)'], stdout=-1).stdout.decode())\n"
    )
    assert lines[:3] == ["imported", "3.0", "1"]


def test_the_parent_may_fork_first() -> None:
    lines = run(
        "import relax2xla.vm.pjrt.xla\n"
        "print(in_child(lambda: build()['main'](np.ones(4, np.float32)).shape))\n"
    )
    assert lines == ["(4,)"]


def test_building_alone_uses_no_device() -> None:
    """What is built before a fork runs after it."""
    code = """
built = rx.build(module())
machine = lambda: rx.VirtualMachine(built)["main"]
print(in_child(lambda: np.asarray(machine()(np.ones(2, np.float32))).tolist()))
"""
    assert run(code) == ["[2.0, 2.0]"]

"""The C++ loader of saved executables gives what the machine gives.

It needs a PJRT plugin for CPUs with its header, which no dependency brings. The package
xla-cpu-pjrt has both; RELAX2XLA_PJRT names another plugin, and RELAX2XLA_PJRT_INCLUDE the folder of
pjrt_c_api.h.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.ir import IRModule, TensorStructInfo, Var, const
from tests.installed import ROOT

FOLDER = ROOT / "examples" / "cpp"


def plugin() -> tuple[Path, Path] | None:
    """The plugin and the folder of its header, where there is one."""
    if named := os.environ.get("RELAX2XLA_PJRT"):
        return Path(named), Path(os.environ.get("RELAX2XLA_PJRT_INCLUDE", Path(named).parent))
    if importlib.util.find_spec("xla_plugins") is None:
        return None
    found = importlib.util.find_spec("xla_plugins.xla_cpu_pjrt")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    return folder / "xla_cpu_pjrt.so", folder / "include"


FOUND = plugin()
pytestmark = [
    pytest.mark.skipif(FOUND is None, reason="no PJRT plugin for CPUs"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler"),
]


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert FOUND is not None
    made = tmp_path_factory.mktemp("loader") / "run"
    sources = [FOLDER / "r2x.cpp", FOLDER / "run.cpp"]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{FOUND[1]}"]
    subprocess.run(["g++", *flags, *sources, "-o", made, "-ldl", "-lz"], check=True)
    return made


def run(loader: Path, *words: object, fails: bool = False) -> str:
    assert FOUND is not None
    line = [str(loader), str(FOUND[0]), *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def network(layers: int) -> IRModule:
    """Matrices and, from some layers on, vectors in packs; nested results of several dtypes."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: const(rng.standard_normal(shape).astype(np.float32))  # noqa: E731
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo((5, 18), "float32"))
    n = Var("n", TensorStructInfo((5,), "int64"))
    with builder.function("main", [x, n]):
        h: Any = x
        for _ in range(layers):
            h = builder.emit(op.add(op.matmul(h, draw(18, 18)), draw(18)))
            h = builder.emit(op.nn.layer_norm(h, draw(18), draw(18), axes=[-1]))
        half = builder.emit(op.astype(h, "float16"))
        flags = builder.emit(op.greater(h, const(0.0, "float32")))
        builder.emit_func_output(builder.emit((h, (half, op.add(n, const(3, "int64"))), flags)))
    return builder.get()


@pytest.mark.parametrize("layers", [1, 6])
def test_values_are_those_of_the_machine(loader: Path, tmp_path: Path, layers: int) -> None:
    executable = relax2xla.build(network(layers))
    file = tmp_path / "model.r2x"
    executable.export_library(file)

    inputs = (np.linspace(-1, 1, 90, dtype=np.float32).reshape(5, 18), np.arange(5))
    first, (second, third), fourth = relax2xla.VirtualMachine(executable)["main"](*inputs)
    wanted = [np.asarray(a) for a in (first, second, third, fourth)]
    said = run(loader, file)
    assert said.splitlines()[1:3] == ["input x float32 5 18", "input n int64 5"]
    files = [tmp_path / f"{i}.bin" for i in range(6)]
    for array, path in zip(inputs, files, strict=False):
        array.tofile(path)
    run(loader, file, *files[:2], "--", *files[2:])
    for want, path in zip(wanted, files[2:], strict=True):
        got = np.fromfile(path, want.dtype).reshape(want.shape)
        np.testing.assert_allclose(got, want, rtol=2e-3 if want.dtype == "float16" else 1e-5)


def test_what_is_wrong_is_said(loader: Path, tmp_path: Path) -> None:
    file, short = tmp_path / "model.r2x", tmp_path / "short.bin"
    relax2xla.build(network(1)).export_library(file)
    np.zeros(3, np.float32).tofile(short)
    error = run(loader, file, short, short, "--", tmp_path / "y", fails=True)
    assert "x: expected float32[5,18]" in error
    assert "12 bytes" in error
    assert "expected 2 arguments, given 1" in run(loader, file, short, "--", fails=True)
    whole = file.read_bytes()
    for cut in (0, 30, len(whole) // 2, len(whole) - 70):
        file.write_bytes(whole[:cut])
        assert run(loader, file, fails=True).startswith("error: ")

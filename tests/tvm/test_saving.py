"""export_library with TVM's arguments, in a process that serves ``import tvm``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.contrib import cc, ndk, tar
from tvm.script import ir as I, relax as R

@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return R.add(x, x)

ex = tvm.compile(M, target="llvm")
plain, other = sys.argv[1] + "/plain.so", sys.argv[1] + "/other.so"
ex.export_library(plain)
ex.export_library(other, fcompile=cc.create_shared, options=["-O3"], workspace_dir=sys.argv[1])
ex.export_library(other, tar.tar)
for path in (plain, other):
    vm = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
    assert vm["main"](np.ones(4, "float32")).numpy().tolist() == [2, 2, 2, 2]
for given, words in (
    ({"fcompile": ndk.create_shared}, "create_shared would make a library"),
    ({"fcompile": lambda *args: None}, "fcompile=<lambda> would make a library"),
    ({"addons": ["x.o"]}, "addons are libraries"),
):
    with pytest.raises(tvm.TVMError, match=words):
        ex.export_library(other, **given)
with pytest.raises(TypeError, match="no speed without fcompile"):
    ex.export_library(other, speed=1)
with pytest.raises(tvm.TVMError, match="makes libraries of code that TVM generates"):
    cc.create_shared("a.so", ["a.o"])
print("done")
"""


def test_compilers_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "-m", "relax2xla.tvm", str(file), str(tmp_path)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.stdout.strip() == "done", ran.stderr[-2000:]

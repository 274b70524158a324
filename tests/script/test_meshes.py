"""Meshes that annotations name, as programs have them that Python runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from relax2xla import VirtualMachine, build
from relax2xla.errors import DiagnosticError
from relax2xla.ir import DTensorStructInfo, Function, IRModule, TupleStructInfo
from relax2xla.script import relax as R
from relax2xla.script.annotations import as_struct_info

# Python evaluates these annotations before the module is there: no `from __future__` line.
PROGRAM = """
from relax2xla.script import ir as I, relax as R

@I.ir_module
class Module:
    I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4))]})

    @R.function
    def main(
        x: R.DTensor((8, 4), "float32", "mesh[0]", "S[0], R")
    ) -> R.Tuple(R.DTensor((8, 4), "float32", "mesh[0]", "S[0], R")):
        y: R.DTensor((8, 4), "float32", "mesh[0]", "S[0], R") = R.add(x, x)
        return (y,)

    @R.function
    def apply(
        f: R.Callable([R.DTensor((8,), "int8", "mesh[0]", "R, R")], R.Tensor), x: R.Tensor
    ) -> R.Tensor:
        return x
"""


@pytest.mark.parametrize("room", ["R", "R.dist"])
def test_a_file_names_meshes_of_its_module(tmp_path: Path, room: str) -> None:
    path = tmp_path / "program.py"
    program = PROGRAM.replace("R.device_mesh", f"{room}.device_mesh")
    path.write_text(program.replace("R.DTensor", f"{room}.DTensor"))
    mod = runpy.run_path(str(path))["Module"]
    assert isinstance(mod, IRModule)
    func = mod["main"]
    assert isinstance(func, Function)
    made = func.ret_struct_info
    assert isinstance(made, TupleStructInfo)
    (info,) = made.fields
    assert isinstance(info, DTensorStructInfo)
    assert info.device_mesh.shape == (2, 2)


OTHER = """
from relax2xla.script import ir as I, relax as R

@I.ir_module
class Kernels:
    @R.function(private=True)
    def double(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return R.add(x, x)

@I.ir_module(check_well_formed=False)
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return Kernels.get_global_var("double")(x)
"""


def test_a_function_of_another_module_by_name(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(OTHER)
    made = runpy.run_path(str(path))
    whole = made["Module"].clone()
    kernels = made["Kernels"]
    whole[kernels.get_global_var("double")] = kernels["double"]
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(VirtualMachine(build(whole))["main"](x), x + x)
    path = tmp_path / "wrong.py"  # Sources are kept by their file's name.
    path.write_text(OTHER.replace('var("double")', 'var("treble")'))
    with pytest.raises(DiagnosticError, match="treble"):
        runpy.run_path(str(path))


def test_without_a_module_its_name_says_nothing() -> None:
    named = R.DTensor((4,), "float32", "mesh[0]", "R")
    for use in (as_struct_info, lambda info: info.dtype):
        with pytest.raises(ValueError, match=r"no module .* could have the mesh 'mesh\[0\]'"):
            use(named)
    with pytest.raises(ValueError, match="no module"):
        as_struct_info(R.Tuple(R.Tensor, named))

"""SpecializePrimFuncBasedOnCallSite."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import IRModule, VirtualMachine, build
from relax2xla.errors import TransformError
from relax2xla.script import from_source
from relax2xla.transform import SpecializePrimFuncBasedOnCallSite

TEXT = """
from tvm.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm", 0, "global.texture"), I.vdevice("llvm", 0, "global")]}
    )
    @T.prim_func(private=True)
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 3), "float32")
        B = T.match_buffer(b, (n, 3), "float32")
        for i, j in T.grid(n, 3):
            with T.block("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((4, 3), "float32", "llvm:0")):
        cls = Module
        a = R.call_tir(cls.double, (x,), R.Tensor((2, 3), "float32"))
        b = R.call_tir(cls.double, (y,), R.Tensor((SIZE, 3), "float32", "llvm:0"))
        c = R.call_tir(cls.double, (a,), R.Tensor((2, 3), "float32"))
        return (b, c)
"""


def specialised(size: int = 4) -> IRModule:
    """The module after the pass."""
    return SpecializePrimFuncBasedOnCallSite()(from_source(TEXT.replace("SIZE", str(size))))


def test_each_way_of_calling_has_a_function_of_its_sizes_and_scopes() -> None:
    new = specialised()
    kernels = [f for g, f in new.items() if g.name_hint.startswith("double")]
    found = [[(b.shape, b.scope) for b in f.buffer_map.values()] for f in kernels]
    assert found == [[((2, 3), "global")] * 2, [((4, 3), "global.texture")] * 2]
    pointers = [
        [b.data.type_annotation.storage_scope for b in f.buffer_map.values()] for f in kernels
    ]
    assert pointers == [["global"] * 2, ["global.texture"] * 2]
    assert all(f.attrs["scoped"] == 1 for f in kernels)
    assert "n" not in kernels[0].script().replace("range", "").split()
    one = np.ones((4, 3), "float32")
    b, c = VirtualMachine(build(new))["main"](one[:2], one)
    assert [float(np.asarray(v).max()) for v in (b, c)] == [2, 4]


def test_a_call_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(TransformError, match="does not fit double: specialize: n of the buffer"):
        specialised(5)

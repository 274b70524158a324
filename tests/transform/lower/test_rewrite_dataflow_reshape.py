"""RewriteDataflowReshape: which calls of loop-level functions become reshapes."""

from __future__ import annotations

import pytest

from relax2xla.ir import IRModule
from relax2xla.script import from_source
from relax2xla.transform import RewriteDataflowReshape
from tests.transform.programs import operators

TEXT = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def flat(a: T.Buffer((2, 3), "float32"), b: T.Buffer((6,), "float32")):
        for i in range(6):
            b[i] = a[i // 3, i % 3]

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.call_tir(Module.flat, (x,), R.Tensor((6,), "float32"))
            z = R.call_tir(Module.flat, (x,), R.Tensor((3,), "float32"))
            out = R.call_tir(Module.flat, (x,), R.Tensor((6,), "float32"))
            both = (y, z, out)
            R.output(out, both)
        return both
"""


@pytest.mark.parametrize("pattern", [True, False])
def test_calls(pattern: bool) -> None:
    mod = from_source(TEXT if pattern else TEXT.replace("i // 3, i % 3", "i % 2, i // 2"))
    assert isinstance(mod, IRModule)
    new = RewriteDataflowReshape()(mod)
    # Another number of elements stays, and so does what leaves the block.
    wanted = ["reshape" if pattern else "call_tir", "call_tir", "call_tir"]
    assert operators(new) == wanted
    assert (new is mod) != pattern

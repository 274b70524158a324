# ruff: noqa: T201, PT017, PT018
"""A program written for TVM, run by test_install.py with relax2xla in its place."""

import importlib
import sys

import numpy as np
import tvm
import tvm.testing
from tvm import relax
from tvm._ffi.base import py_str
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tir as T


@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 5), "float32")) -> R.Tensor(
        ("n", 5), "float32"
    ):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


@T.prim_func
def scale(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    B = T.match_buffer(b, (n,))
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * 3.0


@tvm.register_func("test.quick_start.twice")
def twice(a, out):
    out.copyfrom(2 * a.numpy())


def main():
    print(sys.argv[1:])
    with tvm.target.Target("llvm") as target:
        assert tvm.target.Target.current() is target
        mod = tvm.transform.Sequential([relax.transform.DeadCodeElimination()])(Mod)
        mod = tvm.dlight.ApplyDefaultSchedule(tvm.dlight.gpu.Matmul())(mod)
    ex = tvm.compile(mod, target="llvm")
    vm = relax.VirtualMachine(ex, tvm.cpu())
    x = tvm.nd.array(np.arange(8, dtype="float32").reshape(2, 4), tvm.cpu())
    w = tvm.nd.array(np.ones((4, 5), "float32"))
    out = vm["main"](x, w)
    assert isinstance(out, tvm.nd.NDArray) and isinstance(x, tvm.runtime.NDArray)
    tvm.testing.assert_allclose(out.numpy(), np.full((2, 5), [[6], [22]]), rtol=1e-6)
    copy = tvm.nd.empty((2, 5))
    copy.copyfrom(out)
    copy[0, 0] = 7.0
    assert copy.numpy()[0, 0] == 7.0 and out.numpy()[0, 0] == 6.0
    assert relax.const(1.5).data.numpy() == 1.5
    assert isinstance(Mod["main"], tvm.ir.BaseFunc) and isinstance(mod, tvm.IRModule)
    tvm.get_global_func("test.quick_start.twice")(x, x)
    assert x.numpy()[1, 3] == 14
    lib = tvm.compile(scale, target="llvm")
    a, b = tvm.nd.array(np.arange(3, dtype="float32")), tvm.nd.empty((3,))
    lib.main(a, b)
    assert py_str("ä".encode()) == "ä"
    lib["scale"](b, b)
    assert list(b.numpy()) == [0, 9, 18] and isinstance(lib, tvm.runtime.Module)
    x = tvm.te.placeholder((3,), name="X")
    y = tvm.te.compute((3,), lambda i: tvm.te.max(x[i], 1.0), name="Y")
    tvm.tir.build(tvm.te.create_prim_func([x, y]))(a, b)
    assert list(b.numpy()) == [1, 1, 2]
    try:
        lib(a, np.broadcast_to(np.float32(0), 3))
    except tvm.TVMError as e:
        assert "cannot be written to" in str(e)
    for name in ("tvm.relax.nothing_of_that_name", "tvm.relay"):
        try:
            eval(name)
        except AttributeError as e:
            print(e)
    try:
        importlib.import_module("tvm.relay")
    except ImportError as e:
        print(e)


if __name__ == "__main__":
    main()

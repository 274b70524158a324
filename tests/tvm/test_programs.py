"""What programs written for TVM see of expressions; relax2xla's own modules see no other thing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import numpy as np
import tvm
from tvm import te, tir
from tvm.ir import assert_structural_equal
from tvm.script import tir as T

i, j = te.var("i"), te.var("j")
equal = i + 1 == j
assert isinstance(equal, tir.EQ) and not equal
assert i == i and i != j and {i: 1}[i] == 1 and i in [j, i]
assert str(tir.any(i < j, i > j * 2)) == "i < j or i > j * 2"
assert tir.const(3.14, "float16").value == 3.14

@T.prim_func
def double(A: T.Buffer((4, T.int64(8)), "float32"), B: T.Buffer((4, 8), "float32")):
    for x, y in T.grid(4, T.int64(8)):
        with T.block("B"):
            vx, vy = T.axis.remap("SS", [x, y])
            B[vx, vy] = A[vx, vy] * T.float32(2)

buffer = double.buffer_map[double.params[0]]
assert isinstance(buffer.shape[1], tir.IntImm) and buffer.shape[1].dtype == "int64"
assert buffer.shape[0].value == 4
outer = double.body.block.body
assert (outer.extent.dtype, outer.body.extent.dtype) == ("int32", "int64")
assert tir.Ramp(0, 1, 8).lanes.dtype == "int32"
assert double.script().startswith("# from tvm.script import tir as T")
assert_structural_equal(tvm.script.from_source(double.script()), double)

n = te.placeholder((3, 5), name="n")
product = te.compute(n.shape, lambda a, b: tir.if_then_else(a == b, n[a, b], 0.0))
diagonal = te.create_prim_func([n, product])
built = tvm.compile(tir.Schedule(diagonal).mod, target="llvm")
given = np.arange(15, dtype="float32").reshape(3, 5)
made = tvm.nd.empty((3, 5))
built(tvm.nd.array(given), made)
np.testing.assert_array_equal(made.numpy(), given * np.eye(3, 5, dtype="float32"))
assert tvm.target.Target("llvm").kind.name == "llvm"
assert tvm.topi.utils.get_const_tuple(n.shape) == (3, 5)

from tvm import relax

info = relax.TensorStructInfo([tir.Var("n", "int64"), 4], "float32")
x = relax.Var("x", info)
assert str(info) == repr(info) == 'R.Tensor((n, 4), dtype="float32")'
assert str(relax.op.add(x, x)) == "R.add(x, x)" and f"{relax.op.add(x, x).op}" == "relax.add"
assert str([relax.const(1.0)]) == '[R.const(1.0, "float32")]'
assert str(relax.VarBinding(x, relax.PrimValue(3))).endswith(" = R.prim_value(3)")
again = relax.TensorStructInfo([tir.Var("n", "int64"), 4], "float32")
one, other = (relax.FuncStructInfo([of], of) for of in (info, again))
assert info != again and one == other and hash(one) == hash(other) and len({one, other}) == 1
assert one != relax.FuncStructInfo([info], again) and one != info


from tvm.relax.distributed import transform as spread

assert spread.LowerDistIR is not relax.transform.LowerDistIR  # on parts, and on whole tensors
for name in (
    "PropagateSharding", "LowerGlobalViewToLocalView", "LegalizeRedistribute", "LowerDistIR"
):
    assert getattr(spread, name)().info.opt_level == 1

from tvm.relax.backend.patterns import make_fused_bias_activation_pattern

assert make_fused_bias_activation_pattern("relax.matmul", True, "relax.nn.relu") is not None
saved = tvm.runtime.save_param_dict({"w": tvm.nd.array(given)})
np.testing.assert_array_equal(tvm.runtime.load_param_dict(saved)["w"].numpy(), given)


def total(a, b, out):
    tvm.nd.array(a.numpy() + b.numpy()).copyto(out)


def grow(a):
    a.copyfrom(a.numpy() * 2)
    return a


tvm.register_func("test.programs.total", total)
tvm.register_func("test.programs.grow", grow)
dense = relax.TensorStructInfo([3], "float32")
y, builder = relax.Var("y", dense), relax.BlockBuilder()
with builder.function("main", [y]):
    summed = builder.emit(relax.call_dps_packed("test.programs.total", (y, y), dense))
    twice = relax.op.call_inplace_packed(
        "test.programs.grow", summed, inplace_indices=[0], sinfo_args=[dense]
    )
    builder.emit_func_output(builder.emit(twice))
machine = relax.VirtualMachine(tvm.compile(builder.get()), tvm.cpu())
result = machine["main"](tvm.nd.array(np.arange(3, dtype="float32")))
host, other = result.copyto(tvm.cpu()), tvm.nd.empty((3,))
result.copyto(other)
assert host.numpy().tolist() == other.numpy().tolist() == [0, 4, 8]
for wrong in (result, 1):
    try:
        host.copyto(wrong)
    except ValueError as error:
        assert str(error).startswith("copyto: ")
    else:
        raise AssertionError(wrong)
print("whole")
"""


def test_a_program(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "relax2xla.tvm", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr

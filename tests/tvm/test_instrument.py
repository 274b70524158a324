"""WellFormedInstrument: modules, and functions that the machine specialises alone."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.script import tir as T
from relax2xla.transform import PassContext, module_pass
from relax2xla.tvm.testing.instrument import WellFormedInstrument


@I.ir_module
class Calls:
    @T.prim_func
    def twice(x: T.handle, y: T.handle):
        n = T.int64()
        A = T.match_buffer(x, (n,))
        B = T.match_buffer(y, (n,))
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * T.float32(2)

    @R.function
    def part(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.call_tir(Calls.twice, (x,), R.Tensor((4,), "float32"))
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Object:
        y = Calls.part(x)
        z = R.call_pure_packed("test_instrument.same", y, sinfo_args=(R.Object,))
        return z


def test_a_function_alone_may_call_others() -> None:
    rx.register_func("test_instrument.same", lambda x: x, override=True)
    with PassContext(instruments=[WellFormedInstrument()]):
        vm = rx.VirtualMachine(rx.build(Calls), rx.cpu())
        x = np.arange(4, dtype="float32")
        np.testing.assert_array_equal(vm["main"](x), 2 * x)


def test_a_module_may_not() -> None:
    @module_pass(opt_level=0)
    def without_part(mod: rx.IRModule, context: PassContext) -> rx.IRModule:
        return mod.replace({g: f for g, f in mod.items() if g.name_hint != "part"})

    wrong = pytest.raises(AssertionError, match="not well-formed after the pass without_part")
    with PassContext(instruments=[WellFormedInstrument()]), wrong:
        without_part(Calls)

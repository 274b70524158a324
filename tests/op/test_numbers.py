"""Numbers that are computed, as attributes: tensor_to_bits, reinterpret, number_to_tensor."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla
from relax2xla import op, tir
from relax2xla.errors import CallError, OpError
from relax2xla.op.shape import bits_of
from relax2xla.script import from_source
from relax2xla.testing import evaluate
from tests.op.harness import tensor

NUMBERS = [0.0, 1.0, -1.0, 1.3, -2.5e-308, 5e-324, -1e300, np.inf, -np.inf]

PROGRAM = """
from relax2xla.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float64")):
        a, b, c, d = T.int64(), T.int64(), T.int64(), T.int64()
        with R.dataflow():
            s = R.tensor_to_bits(x)
            t = R.match_cast(s, R.Shape([a, b, c, d]))
            y = R.number_to_tensor(R.prim_value(T.reinterpret("float64", a - b)), "float64", -3.0)
            z = R.number_to_tensor(R.prim_value(T.reinterpret("float64", c - d)), "float64")
            w = R.stack((y, z))
            R.output(w)
        return w
"""


@pytest.mark.parametrize("number", NUMBERS)
def test_bits_are_the_number_again(number: float) -> None:
    m, t = bits_of(np.array([number]))
    assert min(m, t) >= 0
    again = tir.reinterpret("float64", m - t)
    assert isinstance(again, tir.FloatImm)
    assert again.value == number


def test_a_number_is_read_and_bound() -> None:
    mod = from_source(PROGRAM)
    assert relax2xla.ir.structural_equal(mod, from_source(mod.script()))
    vm = relax2xla.VirtualMachine(relax2xla.build(mod))
    for values in ([1.5, -0.25], [-2.0, 1e300]):
        np.testing.assert_array_equal(vm["main"](np.array(values)), values)
    with pytest.raises(CallError, match=r"a = -4.0.*-4.0 is outside of \[-3.0"):
        vm["main"](np.array([-4.0, 0.0]))


def test_number_to_tensor_of_what_is_known() -> None:
    got = evaluate(op.number_to_tensor(7, "int32"), {})
    assert np.asarray(got) == 7
    with pytest.raises(OpError, match="outside of"):
        op.number_to_tensor(1.0, "float32", 0.0, 1.0)
    with pytest.raises(OpError, match="must be one of"):
        op.tensor_to_bits(tensor((3,), "int64"))

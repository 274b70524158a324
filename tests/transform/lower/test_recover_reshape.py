"""RecoverReshape: which packed calls become the operator, and that programs are whole then."""

from __future__ import annotations

import numpy as np

import relax2xla
from relax2xla.ir import IRModule
from relax2xla.script import from_source
from relax2xla.transform import RecoverReshape
from tests.transform.programs import operators

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        n = T.int64()
        with R.dataflow():
            flat = R.call_pure_packed("vm.builtin.reshape", x, R.shape([n * 3]),
                sinfo_args=R.Tensor((n * 3,), "float32"))
            y = R.exp(flat)
            z = R.call_pure_packed("vm.builtin.reshape", y, R.shape([3, n]),
                sinfo_args=R.Tensor((3, n), "float32"))
            other = R.call_pure_packed("vm.builtin.copy", z, sinfo_args=R.Tensor((3, n), "float32"))
            wrong = R.call_pure_packed("vm.builtin.reshape", y, R.shape([3, n + 1]),
                sinfo_args=R.Tensor((3, n + 1), "float32"))
            R.output(z, other, wrong)
        return {results}
"""


def test_calls() -> None:
    mod = from_source(TEXT.format(results="(z, other, wrong)"))
    assert isinstance(mod, IRModule)
    new = RecoverReshape()(mod)
    wanted = ["reshape", "exp", "reshape", "call_pure_packed", "call_pure_packed"]
    assert operators(new) == wanted
    assert RecoverReshape()(new) is new


def test_the_program_is_one() -> None:
    ex = relax2xla.build(from_source(TEXT.format(results="z")))
    assert "on the host" not in ex.stats()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = relax2xla.VirtualMachine(ex, relax2xla.cpu())["main"](x)
    np.testing.assert_allclose(got, np.exp(x).reshape(3, 2), rtol=1e-6)

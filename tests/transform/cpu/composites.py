"""What tests of ComputeInIntegers look at, whichever importer a module is from."""

from __future__ import annotations

from relax2xla.ir import IRModule
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform.cpu.integers import ComputeInIntegers


def composites_of(mod: IRModule) -> list[str]:
    """The kinds of the composites that the pass makes in ``main``, in order."""
    found = [b.value for b in bindings_of(ComputeInIntegers()(mod)["main"].body)]
    named = [v.attrs["name"] for v in found if is_op(v, "relax.stablehlo.composite")]
    return [str(n).rpartition(".")[2] for n in named]

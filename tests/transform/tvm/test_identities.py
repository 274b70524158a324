"""Passes of TVM's pipelines that change nothing here."""

from __future__ import annotations

import pytest

from relax2xla import IRModule, tir, transform
from relax2xla.errors import UnsupportedError
from relax2xla.script import from_source
from relax2xla.transform.core.registry import all_passes
from relax2xla.transform.tvm.identities import Unchanged

TEXT = """
from tvm.script import relax as R
@R.function
def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    y = R.exp(x)
    return y
"""


def test_the_module_stays_the_same_object() -> None:
    mod = IRModule.from_expr(from_source(TEXT))
    known = [p for p in all_passes().values() if issubclass(p, Unchanged)]
    assert len(known) >= 15
    assert all(made()(mod) is mod for made in known)


def test_arguments_are_those_of_tvm() -> None:
    transform.VMShapeLower(emit_err_ctx=False)
    transform.MetaScheduleApplyDatabase(work_dir="tuned", enable_warning=True)
    transform.MetaScheduleTuneIRMod({}, "tuned", 100, max_trials_per_task=4)
    transform.FewShotTuning(valid_count=2, benchmark=True)


def test_the_kind_of_a_pass_is_what_it_does() -> None:
    kinds = {name: p.kind for name, p in all_passes().items()}
    assert all(p.kind == "identity" for p in all_passes().values() if issubclass(p, Unchanged))
    assert (kinds["FastMathTransform"], kinds["FuseTIR"]) == ("identity", "real")
    assert [name for name, kind in kinds.items() if kind == "refused"] == ["SplitCallTIRByPattern"]


def test_what_is_refused_says_what_serves_instead() -> None:
    mod = IRModule.from_expr(from_source(TEXT))
    kernel = tir.PrimFunc([], tir.Evaluate(tir.IntImm("int32", 0)))
    split = transform.SplitCallTIRByPattern([kernel], lambda matches: [])
    assert split(mod) is mod
    with pytest.raises(UnsupportedError, match="FuseOpsByPattern"):
        split(IRModule({"main": mod["main"], "kernel": kernel}))

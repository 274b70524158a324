"""Passes of TVM's pipelines that change nothing here."""

from __future__ import annotations

from relax2xla import IRModule, transform
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
    assert len(known) >= 18
    assert all(made()(mod) is mod for made in known)


def test_arguments_are_those_of_tvm() -> None:
    transform.VMShapeLower(emit_err_ctx=False)
    transform.MetaScheduleApplyDatabase(work_dir="tuned", enable_warning=True)
    transform.MetaScheduleTuneIRMod({}, "tuned", 100, max_trials_per_task=4)
    transform.FewShotTuning(valid_count=2, benchmark=True)

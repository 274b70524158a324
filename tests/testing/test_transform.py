"""Passes and analyses for tests, by TVM's names."""

from __future__ import annotations

from relax2xla import analysis, ir
from relax2xla.analysis import dataflow_inplace
from relax2xla.script import from_source
from relax2xla.testing import transform

TEXT = """
@R.function
def main(x: R.Tensor((2,), "float32")):
    with R.dataflow():
        y = R.add(x, x)
        z = R.add(y, x)
        R.output(z)
    return z
"""


def test_the_analyses_of_what_may_be_written_over() -> None:
    func = from_source(TEXT)
    assert isinstance(func, ir.Function)
    (block,) = func.body.blocks
    assert isinstance(block, ir.DataflowBlock)
    lives = transform.dataflow_liveness_analysis(block)
    aliases, _ = transform.dataflow_alias_analysis(block, func.params)
    _, exact = transform.dataflow_inplace_analysis(block, func.params, ir.IRModule({}))
    assert lives == dataflow_inplace.dataflow_liveness_analysis(block)
    assert set(aliases) == set(analysis.all_vars(func))
    assert exact == [(1, {0})]

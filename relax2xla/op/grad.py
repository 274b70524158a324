"""``relax.grad``: marks that the gradient pass obeys; each is the identity when the program runs.

Source: TVM Relax v0.20.
"""

from __future__ import annotations

from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Op, op
from relax2xla.ir.struct_info import StructInfo


def _mark(name: str, text: str) -> Op[[Expr]]:
    @op(f"relax.grad.{name}", doc=f"{text}\n\ninput: any value\nresult: ``input``")
    def made(input: Expr) -> StructInfo:
        return input.struct_info

    @made.legalize
    def _(input: Expr) -> Expr:
        return input

    return made


no_grad = _mark("no_grad", "No gradient flows into ``input``.")
start_checkpoint = _mark(
    "start_checkpoint", "Begins a region whose values are computed again for the gradient."
)
end_checkpoint = _mark("end_checkpoint", "Ends the region that start_checkpoint began.")

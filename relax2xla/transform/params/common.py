"""What passes over the weights of functions share: which parameters those are, and reading them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from relax2xla.analysis.variables import free_vars
from relax2xla.errors import TransformError
from relax2xla.ir import Binding, BindingBlock, DataflowBlock, Function, SeqExpr, Var
from relax2xla.ir.rewrite import Rewriter

Load = Callable[[Var, bool], tuple[list[Binding], Var]]
"""Bindings that load a weight, and the variable that then holds it; asked whether they stand in a
dataflow block."""


def number_of_inputs(func: Function, what: str) -> int | None:
    """The attribute ``num_input``: how many parameters come before the weights; None: not said.

    TransformError, which names the pass ``what``, where there are not as many.
    """
    inputs = func.attrs.get("num_input")
    if inputs is None:
        return None
    if not 0 <= int(inputs) <= len(func.params):
        raise TransformError(
            f"{what}: the function says num_input={inputs}, but has {len(func.params)} parameters"
        )
    return int(inputs)


def loaded_where_read(seq: SeqExpr, weights: Collection[Var], load: Load, *, once: bool) -> SeqExpr:
    """``seq``, in which each binding that reads some of ``weights`` stands behind what loads them.

    ``once``: a weight is loaded before the first that reads it, and held for the others.
    """
    rename = Rewriter()

    def loads(reader: Binding | SeqExpr, dataflow: bool) -> list[Binding]:
        read = reader.body if isinstance(reader, SeqExpr) else reader.value
        out: list[Binding] = []
        for var in free_vars(read):
            if var in weights and not (once and var in rename.env):
                made, rename.env[var] = load(var, dataflow)
                out += made
        return out

    blocks: list[BindingBlock] = []
    for block in seq.blocks:
        out: list[Binding] = []
        for b in block.bindings:
            out += loads(b, isinstance(block, DataflowBlock))
            out.append(rename.binding(b))
        same = len(out) == len(block.bindings) and all(map(_is, out, block.bindings))
        blocks.append(block if same else type(block)(out, block.span))
    last = loads(seq, False)
    if last:
        blocks.append(BindingBlock(last))
    return SeqExpr(blocks, rename.expr(seq.body), seq.span)


def _is(a: Binding, b: Binding) -> bool:
    return a is b

"""The samples of torch's database with symbolic sizes: one import that serves other sizes too.

Every dimension of every tensor of a sample may be symbolic (``Dim.AUTO``; torch.export fixes those
that it must). The program runs for the sample's sizes, and for sizes that are one larger each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: Entries with a sorted operand, which other values would not be.
SORTED = ("bucketize", "searchsorted", "nn.functional.embedding_bag")
#: Torch fixed every size, so there is nothing to see that the static run does not show.
FIXED = "torch fixes every size"


def exported(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> Any:
    """The program of ``module`` with all sizes of ``inputs`` symbolic; None where none is."""
    if not any(n > 1 for x in inputs for n in x.shape):
        return None
    auto = torch.export.Dim.AUTO
    shapes = tuple({i: auto for i, n in enumerate(x.shape) if n > 1} for x in inputs)
    program = torch.export.export(module, tuple(inputs), dynamic_shapes=(shapes,))
    sizes = [s for n in _placeholders(program) for s in n.meta["val"].shape]
    return program if any(isinstance(s, torch.SymInt) for s in sizes) else None


def larger(program: Any, call: Any) -> list[tuple[Any, list[Any]]]:
    """The call with other sizes and eager torch's results; none where torch takes no other sizes.

    The conditions of the program are torch's too, so sizes that break one are not tried.
    """
    for by in (1, 2):
        try:
            other = call.with_tensors(_larger(program, call.tensors, by))
            want = pytree.tree_leaves(other.module(*other.inputs()))
            program.module()(*other.inputs())
        except Exception:  # what torch does not take is no sample
            continue
        if [x.shape for x in other.tensors] != [x.shape for x in call.tensors]:
            return [(other, want)]
    return []


def _larger(program: Any, inputs: Sequence[torch.Tensor], by: int) -> list[torch.Tensor]:
    """``inputs`` with ``by`` added to each symbol in their shapes, within its range.

    New elements repeat those that are there, so that indices stay indices; floats are spread a
    little, so that matrices are not singular.
    """
    generator = torch.Generator().manual_seed(0)
    made: list[torch.Tensor] = []
    for node, x in zip(_placeholders(program), inputs, strict=True):
        for axis, size in enumerate(node.meta["val"].shape):
            if isinstance(size, torch.SymInt):
                wanted = _value(program, size, by)
                at = torch.arange(wanted) % x.shape[axis]
                x = x.index_select(axis, at)
        if x.is_floating_point() or x.is_complex():
            noise = torch.rand(x.shape, generator=generator, dtype=torch.float64)
            x = torch.where(x.isfinite(), x * (1 + noise / 8), x).to(x.dtype)
        made.append(x)
    return made


def _placeholders(program: Any) -> list[Any]:
    names = set(program.graph_signature.user_inputs)
    return [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]


def _value(program: Any, size: torch.SymInt, by: int) -> int:
    expr = size.node.expr
    ranges = program.range_constraints
    values = {}
    for symbol in expr.free_symbols:
        wanted = size.node.shape_env.backed_var_to_val[symbol] + by
        if symbol in ranges and ranges[symbol].upper.is_Integer:
            wanted = min(int(wanted), int(ranges[symbol].upper))
        values[symbol] = wanted
    return int(expr.subs(values))

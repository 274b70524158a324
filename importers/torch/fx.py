"""FX graph modules to Relax, by way of torch.export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from relax2xla.dtypes import dtype_info
from relax2xla.errors import UnsupportedError
from relax2xla.importers.torch.export import Options, convert_program
from relax2xla.importers.torch.source import exported
from relax2xla.ir import IRModule

InputInfo = Sequence[tuple[Sequence[int], str]]


def from_fx(
    model: GraphModule,
    input_info: InputInfo,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[Any, Any] | None = None,
) -> IRModule:
    """A graph module of ``torch.fx.symbolic_trace`` as an IRModule with the function ``main``.

    ``input_info`` lists shape and dtype of each placeholder in order; the inputs keep the
    placeholders' names. A graph that returns one value without a tuple gives a ``main`` that does
    so too. The other options are those of ``from_exported_program``.

    Raises ``ValueError`` where ``input_info`` does not fit the placeholders, ``UnsupportedError``
    for symbolic shapes (export with ``torch.export.Dim`` instead) and for ``custom_convert_map``.
    """
    if custom_convert_map:
        raise UnsupportedError(
            "custom_convert_map is not supported; register a converter with "
            "relax2xla.importers.torch.registry.aten"
        )
    names = [n.name for n in model.graph.nodes if n.op == "placeholder"]
    if len(names) != len(input_info):
        raise ValueError(
            f"input_info has {len(input_info)} entries, but the graph has {len(names)} "
            f"placeholders: {', '.join(names) or 'none'}"
        )
    inputs = tuple(
        _example(name, shape, dtype) for name, (shape, dtype) in zip(names, input_info, strict=True)
    )
    (output,) = (n for n in model.graph.nodes if n.op == "output")
    alone = not isinstance(output.args[0], tuple | list | dict)
    options = Options(
        keep_params_as_input, unwrap_unit_return_tuple or alone, no_bind_return_tuple, names
    )
    return convert_program(exported(torch.export.export(model, inputs)), options)


def _example(name: str, shape: Sequence[Any], dtype: str) -> torch.Tensor:
    """A tensor of one placeholder, for torch.export to trace with."""
    if not all(isinstance(d, int) for d in shape):
        raise UnsupportedError(
            f"the shape of {name} is {tuple(shape)}; from_fx takes integers. For symbolic "
            "dimensions use torch.export with torch.export.Dim, and from_exported_program"
        )
    kind = dtype_info(dtype).torch
    if kind is None:
        raise ValueError(f"torch has no dtype for {dtype!r} of {name}")
    return torch.zeros(tuple(shape), dtype=getattr(torch, kind))

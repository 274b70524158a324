"""Names of ``torch.export.Dim`` in .pt2 files, which torch itself does not write.

They are a file of its own among the ``extra_files`` of the archive: JSON from torch's symbols
(``s77``) to names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Graph

#: The name of that file.
FILE: Final = "relax2xla_dims.json"
_MOST: Final = 1 << 20


def dim_names(exported_program: ExportedProgram) -> dict[str, str]:
    """What ``torch.export.save(program, path, extra_files=dim_names(program))`` takes.

    A program that is saved so keeps the names of its ``torch.export.Dim`` when relax2xla reads the
    file: ``Dim("batch")`` is the symbolic variable ``batch``. Others read the file as any. Only the
    program that ``torch.export.export`` gave knows the names.

    Raises TypeError for anything else than an exported program.
    """
    if not isinstance(exported_program, ExportedProgram):
        raise TypeError(
            f"dim_names takes the result of torch.export.export; got "
            f"{type(exported_program).__name__}"
        )
    found: dict[str, str] = {}
    for env in environments(exported_program.graph):
        names = getattr(env, "source_name_to_debug_name", {})
        symbols = getattr(env, "source_to_var", {})
        for source, name in names.items():
            symbol = env.replace(symbols[source]) if source in symbols else None
            if symbol is not None and symbol.is_Symbol:
                found[str(symbol)] = name
    return {FILE: json.dumps(found)}


def give_names(program: Any, text: str | bytes) -> None:
    """Let a program that was loaded know what :func:`dim_names` says; "" says nothing.

    What is no JSON of names is left alone: the file may be anybody's.
    """
    try:
        told = json.loads(text) if 0 < len(text) < _MOST else {}
    except ValueError:
        return
    if not isinstance(told, dict):
        return
    symbols = {str(s): s for s in program.range_constraints}
    for env in environments(program.graph):
        names: dict[str, str] = dict(getattr(env, "source_name_to_debug_name", {}))
        for symbol, name in told.items():
            if symbol in symbols and isinstance(name, str) and name.isidentifier():
                source = f"dimension {symbol}"
                env.source_to_var[source] = symbols[symbol]
                names[source] = name
        env.source_name_to_debug_name = names


def environments(graph: Graph) -> Iterator[Any]:
    """The environments of symbols that the inputs of a graph have: one, or none."""
    seen: set[int] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or not isinstance(value, torch.Tensor):
            continue
        for size in value.shape:
            if isinstance(size, torch.SymInt):
                env = size.node.shape_env
                if id(env) not in seen:
                    seen.add(id(env))
                    yield env

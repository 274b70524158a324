"""``torch.export.export`` for the user, with errors that say where in the user's source."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from relax2xla.errors import UnsupportedError
from relax2xla.importers.torch.spans import LIBRARY

_SHAPES = (
    "the dynamic_shapes that were given do not fit the program: give the torch.export.Dim that it "
    "names, or none for this dimension"
)
# What to do, by the name of torch's exception (its modules are private).
ADVICE = {
    "GuardOnDataDependentSymNode": "the program decides by the values of a tensor: choose values "
    "by torch.where, branches by torch.cond, and bound sizes by torch._check",
    "UserError": _SHAPES,
    "ConstraintViolationError": _SHAPES,
    "RuntimeError": "run module(*args) with torch alone first; what works there but calls numpy, "
    "or reads values of tensors, is no part of a graph",
    "TypeError": "check the example arguments: they must fit the module's forward",
}


def capture(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """The exported program of a module for example arguments.

    Raises ``UnsupportedError`` where torch does not export it: torch's reason, the module path,
    file and line, and what to do; TypeError for arguments that are no tuple or list.
    """
    if not isinstance(args, tuple | list):
        raise TypeError(
            "the example arguments of a module are a tuple, of one tensor too: (x,); got "
            f"{type(args).__name__}. Those by name have a dict of their own"
        )
    for path, leaf in pytree.tree_leaves_with_path((tuple(args), dict(kwargs))):
        if isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided:
            raise UnsupportedError(
                f"the example argument {pytree.keystr(path[1:])} is a tensor of layout "
                f"{leaf.layout}; XLA has dense tensors only: give .to_dense(), or a padded tensor "
                "and a mask"
            )
    try:
        return torch.export.export(module, tuple(args), dict(kwargs), dynamic_shapes=dynamic_shapes)
    except Exception as e:  # torch's errors have no common base class
        reason = str(e).strip().partition("\n")[0] or type(e).__name__
        where = _place(module, e)
        advice = ADVICE.get(type(e).__name__, "torch.export.draft_export may say more")
        raise UnsupportedError(
            f"torch.export.export cannot export {type(module).__name__}"
            f"{f' ({where})' if where else ''}: {reason}\n  {advice}"
        ) from e


def _place(root: torch.nn.Module, error: BaseException) -> str:
    """Module path and line of the innermost frame of the user's own."""
    paths = {id(m): name for name, m in root.named_modules()}
    path, place = "", ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        inside = paths.get(id(frame.f_locals.get("self")))
        path = inside or path
        if file != __file__ and not LIBRARY.search(file) and not file.startswith("<"):
            place = f"{file}:{line}"
    return ", ".join(p for p in (path and f"in {path}", place) if p)

"""``torch.export.export`` for the user, with errors that say where in the user's source."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.export import ExportedProgram

from relax2xla.errors import UnsupportedError
from relax2xla.importers.torch.source.spans import LIBRARY
from relax2xla.importers.torch.source.torch_internals import (
    FakeTensor,
    has_hooks,
    lost_gradients,
    pytree,
)

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
    "writes through .data or reads values of tensors, is no part of a graph",
    "TypeError": "check the example arguments: they must fit the module's forward",
}
_ELSE = "run module(*args) with torch alone first; torch.export.draft_export may say more"
# Where Python's own modules are, such as inspect.
_STANDARD = sysconfig.get_path("stdlib")
# Lines of torch's reason that are shown where sizes do not fit, and those that say nothing of it.
_LINES = 3
_ASIDE = re.compile(r"\s*$|For more information|The error above occurred")


def capture(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any = None,
    lost: dict[str, str] | None = None,
) -> ExportedProgram:
    """The exported program of a module for example arguments.

    ``lost`` is given what the module says of gradients and torch.export leaves out (the backward of
    a torch.autograd.Function, hooks), with the first place of each.

    Raises ``UnsupportedError`` where torch does not export it: torch's reason, the module path,
    file and line, and what to do; TypeError for arguments that are no tuple or list, for those by
    name that are no dict, and for arrays of numpy and others.
    """
    if not isinstance(args, tuple | list):
        raise TypeError(
            "the example arguments of a module are a tuple, of one tensor too: (x,); got "
            f"{type(args).__name__}. Those by name have a dict of their own"
        )
    if not isinstance(kwargs, Mapping):
        raise TypeError(
            "the example arguments of a module by name are a dict, {'mask': m}; got "
            f"{type(kwargs).__name__}"
        )
    for path, leaf in pytree.tree_leaves_with_path((tuple(args), dict(kwargs))):
        _check(f"the example argument {pytree.keystr(path[1:])}", leaf)
    inputs, named = _apart((tuple(args), dict(kwargs)))
    paths = {id(m): name for name, m in module.named_modules()}

    missing: dict[str, str] = {} if lost is None else lost
    for name, weight in module.named_parameters():
        if has_hooks(weight):
            missing[f"a hook on the gradient of {name}"] = "Tensor.register_hook"

    def leaves_out(what: str, frames: list[Any]) -> None:
        missing.setdefault(what, _place(paths, reversed(frames)))

    try:
        with lost_gradients(leaves_out):
            return torch.export.export(module, inputs, named, dynamic_shapes=dynamic_shapes)
    except Exception as e:  # torch's errors have no common base class
        lines = [line for line in str(e).strip().splitlines() if not _ASIDE.match(line)]
        advice = ADVICE.get(type(e).__name__, _ELSE if dynamic_shapes is None else _SHAPES)
        reason = "\n  ".join(lines[: _LINES if advice is _SHAPES else 1])
        if type(e).__name__ not in ADVICE:
            reason = f"{type(e).__name__}{': ' * bool(reason)}{reason}"
        where = _place(paths, traceback.walk_tb(e.__traceback__))
        raise UnsupportedError(
            f"torch.export.export cannot export {type(module).__name__}"
            f"{f' ({where})' if where else ''}: {reason}\n  {advice}"
        ) from e


def _apart(arguments: Any) -> Any:
    """Arguments, none of which is another one: torch.export reads one tensor for both for good."""
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) in seen:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        seen.add(id(leaf))
        return leaf

    return pytree.tree_map(own, arguments)


def _check(what: str, leaf: Any) -> None:
    """Raise for an argument that torch.export refuses in other words, or takes for another."""
    if not isinstance(leaf, torch.Tensor):
        if hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__"):
            raise TypeError(
                f"{what} is a {type(leaf).__module__}.{type(leaf).__name__}; give a torch tensor: "
                "torch.from_numpy(x), or torch.from_dlpack(x)"
            )
    elif leaf.layout != torch.strided or leaf.is_nested:
        raise UnsupportedError(
            f"{what} is a tensor of layout {leaf.layout}; XLA has dense tensors only: give "
            ".to_dense(), or a padded tensor and a mask"
        )
    elif leaf.is_quantized:
        raise UnsupportedError(
            f"{what} has the dtype {leaf.dtype}; give x.int_repr(), or x.dequantize()"
        )
    elif _has_own_rules(leaf):
        raise UnsupportedError(
            f"{what} is a {type(leaf).__name__}, whose own rules (__torch_function__ or "
            "__torch_dispatch__) torch.export leaves out: give plain tensors, "
            "x.as_subclass(torch.Tensor) or those that it is made of"
        )


def _has_own_rules(tensor: torch.Tensor) -> bool:
    """Whether a subclass says itself what operators do with it."""
    kind: Any = type(tensor)
    plain: Any = torch.Tensor
    if kind is plain or isinstance(tensor, torch.nn.Parameter | FakeTensor):
        return False
    return any(
        getattr(f, "__func__", f) is not getattr(torchs, "__func__", torchs)
        for f, torchs in (
            (kind.__torch_function__, plain.__torch_function__),
            (kind.__torch_dispatch__, plain.__torch_dispatch__),
        )
    )


def _place(paths: Mapping[int, str], frames: Iterable[tuple[FrameType, int]]) -> str:
    """Module path and line of the innermost frame of the user's own."""
    path, place = "", ""
    for frame, line in frames:
        file = frame.f_code.co_filename
        inside = paths.get(id(frame.f_locals.get("self")))
        path = inside or path
        standard = file.startswith(_STANDARD) and "site-packages" not in file
        if file != __file__ and not (standard or LIBRARY.search(file) or file.startswith("<")):
            place = f"{file}:{line}"
    return ", ".join(p for p in (path and f"in {path}", place) if p)

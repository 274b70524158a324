"""Sharding annotations in programs for one device, where they say nothing.

XLA takes them out itself, but not all (a ``sdy.manual_computation`` is an unknown custom call), and
one that names an unknown mesh ends the process. So they are gone before XLA sees a program.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

from relax2xla.errors import DeviceError, StableHLOParseError
from relax2xla.stablehlo.mlir import ir, operations
from relax2xla.stablehlo.table import CONSTANT
from relax2xla.stablehlo.untrusted.targets import ANNOTATIONS

#: One of them is in the bytecode of each program that has annotations.
_MARKS: Final = (b"sdy", b"harding", b"SPMD")
_FRONTEND: Final = "mhlo.frontend_attributes"
# Operations whose value is that of their region.
_SCOPES: Final = frozenset({"sdy.manual_computation", "sdy.named_computation"})


def without_shardings(module: ir.Module) -> ir.Module:
    """``module`` for one device: a copy without annotations, or ``module`` where it has none.

    Raises :class:`DeviceError` where an annotation changes shapes: that takes several devices.
    """
    data = _bytecode(module)
    if not any(mark in data for mark in _MARKS):
        return module
    with module.context, ir.Location.unknown():
        made = ir.Module.parse(data)
        for op in operations(made):
            _strip(op)
            if (rewrite := _rewrite(op)) is not None:
                rewrite(op)
    return made


def _rewrite(op: Any) -> Callable[[Any], None] | None:
    """How ``op`` goes; None: it stays."""
    name = op.name
    if name in _SCOPES:
        return _inline
    if name == "sdy.constant":
        return _constant
    if name == "stablehlo.custom_call":
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        return _forward if target in ANNOTATIONS else None
    return _forward if name.startswith("sdy.") and name != "sdy.return" else None


def _forward(op: Any) -> None:
    """Put the operands of ``op`` in place of its results."""
    _replace(op, list(op.operands) if len(op.results) else [])
    op.erase()


def _inline(op: Any) -> None:
    """Put what the region of ``op`` computes in its place."""
    block = op.regions[0].blocks[0]
    for argument, operand in zip(list(block.arguments), list(op.operands), strict=True):
        _check(op, argument, operand)
        argument.replace_all_uses_with(operand)
    *body, end = [view.operation for view in block.operations]
    for inner in body:
        inner.move_before(op)
    _replace(op, list(end.operands))
    op.erase()


def _constant(op: Any) -> None:
    t = op.results[0].type
    held = {"value": op.attributes["value"]}
    point = ir.InsertionPoint(op)
    made = ir.Operation.create(CONSTANT, [t], [], held, loc=op.location, ip=point)
    _replace(op, [made.results[0]])
    op.erase()


def _replace(op: Any, values: list[Any]) -> None:
    for result, value in zip(list(op.results), values, strict=True):
        _check(op, result, value)
        result.replace_all_uses_with(value)


def _check(op: Any, one: Any, other: Any) -> None:
    if one.type != other.type:
        raise DeviceError(
            f"{op.name} makes {one.type} of {other.type}: parts of an array on several devices; "
            "this is a program for one"
        )


# ---- attributes
def _strip(op: Any) -> None:
    """Take the annotations off ``op`` and, if it is a function, off its arguments and results."""
    held = op.attributes
    for name in [n for n in held if n in ("arg_attrs", "res_attrs")]:
        kept = [ir.DictAttr.get(_kept(d)) for d in ir.ArrayAttr(held[name])]
        held[name] = ir.ArrayAttr.get(kept)
    for name in [n for n in held if _is_annotation(n)]:
        if not op.name.startswith("sdy."):
            del held[name]
    if _FRONTEND in held:
        _set(held, _FRONTEND, _kept(held[_FRONTEND]))


def _kept(given: ir.Attribute) -> dict[str, Any]:
    """The attributes of a dictionary that are no annotations."""
    if not isinstance(given, ir.DictAttr):
        raise StableHLOParseError(f"expected a dictionary of attributes; got {given}")
    made = {a.name: a.attr for a in given if not _is_annotation(a.name)}
    if _FRONTEND in made:
        _set(made, _FRONTEND, _kept(made[_FRONTEND]))
    return made


def _set(held: Any, name: str, value: dict[str, Any]) -> None:
    if value:
        held[name] = ir.DictAttr.get(value)
    else:
        del held[name]


def _is_annotation(name: str) -> bool:
    return name == "mhlo.sharding" or name.startswith(("sdy.", "xla.sdy."))


def _bytecode(module: ir.Module) -> bytes:
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()

"""Sharding annotations that XLA does not take: all, for one device; some forms of them, for a mesh.

For one device they say nothing. XLA takes them out itself, but not all (a
``sdy.manual_computation`` is an unknown custom call), and one that names an unknown mesh ends the
process. So they are gone before XLA sees a program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla.errors import DeviceError, StableHLOParseError
from relax2xla.stablehlo.mlir import ir, operations, to_bytecode
from relax2xla.stablehlo.table import CONSTANT
from relax2xla.stablehlo.untrusted.targets import ANNOTATIONS

#: One of them is in the bytecode of each program that has annotations.
_MARKS: Final = (b"sdy", b"harding", b"SPMD")
_FRONTEND: Final = "mhlo.frontend_attributes"
# Operations that only move a value, and their attribute that says where to.
_MOVES: Final = {
    "sdy.reshard": "sharding",
    "sdy.all_gather": "out_sharding",
    "sdy.all_slice": "out_sharding",
    "sdy.all_to_all": "out_sharding",
    "sdy.collective_permute": "out_sharding",
}
# Operations that add up what devices hold of a value that is whole already: each its share of a
# product that is cut along what it contracts.
_SUMS: Final = frozenset({"sdy.all_reduce", "sdy.reduce_scatter"})
# Operations whose value is that of their region.
_SCOPES: Final = frozenset({"sdy.manual_computation", "sdy.named_computation"})


def without_shardings(module: ir.Module) -> ir.Module:
    """``module`` for one device: a copy without annotations, or ``module`` where it has none.

    Raises :class:`DeviceError` where an annotation changes shapes: that takes several devices.
    """
    data = to_bytecode(module)
    if not any(mark in data for mark in _MARKS):
        return module
    with module.context, ir.Location.unknown():
        made = ir.Module.parse(data)
        for op in operations(made):
            _strip(op)
            if (rewrite := _rewrite(op)) is not None:
                rewrite(op)
    return made


def with_constraints(module: ir.Module) -> ir.Module:
    """``module`` for a mesh: a copy whose annotations are those that XLA takes, or ``module``.

    Shardy's own passes say how a value moves between devices (``sdy.reshard``, ``sdy.all_gather``
    of whole values); where it lies then is what a ``sdy.sharding_constraint`` says, and XLA moves
    it there. ``sdy.all_reduce`` and ``sdy.reduce_scatter`` are such moves where they sum up what
    an operation made in parts, which XLA does itself.

    Raises :class:`DeviceError` where they are of a value that each device has a copy of: the sum of
    copies is nothing that whole values say.
    """
    names = {op.name for op in operations(module)}
    if not names & {*_MOVES, *_SUMS, "sdy.constant"}:
        return module
    with module.context, ir.Location.unknown():
        made = ir.Module.parse(to_bytecode(module))
        for op in operations(made):
            if op.name == "sdy.constant":
                _constant(op)
            elif op.name in _MOVES or op.name in _SUMS:
                _constrain(op)
    return made


def _constrain(op: Any) -> None:
    (given,) = op.operands
    if op.name in _SUMS and _is_whole(given):
        raise DeviceError(
            f"{op.name} at {op.location} sums up copies of a whole value, one for each device; sum "
            "up what devices compute inside a stablehlo (jax.shard_map) program, or with R.ccl"
        )
    held = {"sharding": op.attributes[_MOVES.get(op.name, "out_sharding")]}
    point = ir.InsertionPoint(op)
    made = ir.Operation.create(
        "sdy.sharding_constraint", [given.type], [given], held, loc=op.location, ip=point
    )
    _replace(op, [made.results[0]])
    op.erase()


def _is_whole(value: Any) -> bool:
    """Whether each device is stated to have all of a value's sum: an argument's, or an annotated
    result's without axes along which it is in parts."""
    if isinstance(value.owner, ir.Block):
        return True
    attributes = value.owner.attributes
    return "sdy.sharding" in attributes and "unreduced=" not in str(attributes["sdy.sharding"])


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

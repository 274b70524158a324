"""Composites in a program about to be compiled: what they ask for, for all who take them over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from relax2xla.kernels.native import Tensor
from relax2xla.stablehlo.codecs import dtype_of, read_any
from relax2xla.stablehlo.mlir import ir, to_bytecode

COMPOSITE: Final = "stablehlo.composite"
_CUSTOM_CALL: Final = "stablehlo.custom_call"


class Asked(NamedTuple):
    """What a composite asks for, all of static shapes."""

    name: str
    attributes: dict[str, Any]
    operands: list[Tensor]
    results: list[Tensor]


def names_forms(module: ir.Module, forms: Iterable[str]) -> bool:
    """Whether functions of the module have one of ``forms`` in their names.

    A look into each operation would take long.
    """
    named = (op.attributes for op in module.body.operations if "sym_name" in op.attributes)
    names = [ir.StringAttr(attrs["sym_name"]).value for attrs in named]
    return any(form in name for form in forms for name in names)


def asked(op: ir.Operation, prefixes: Iterable[str]) -> Asked | None:
    """What ``op`` asks for, if it is a composite whose name begins so; None for all else."""
    if op.name != COMPOSITE:
        return None
    name = ir.StringAttr(op.attributes["name"]).value
    if not name.startswith(tuple(prefixes)):
        return None
    given = op.attributes
    attributes = read_any(given["composite_attributes"]) if "composite_attributes" in given else {}
    operands, results = ([_tensor(v.type) for v in vs] for vs in (op.operands, op.results))
    known, made = [t for t in operands if t], [t for t in results if t]
    if len(known) != len(operands) or len(made) != len(results):
        return None
    return Asked(name, attributes, known, made)


def replaced_by_call(op: ir.Operation, attributes: Mapping[str, ir.Attribute]) -> None:
    """Put a custom call of these attributes in the place of a composite."""
    types, given = [v.type for v in op.results], list(op.operands)
    made = ir.Operation.create(
        _CUSTOM_CALL, types, given, dict(attributes), loc=op.location, ip=ir.InsertionPoint(op)
    )
    for old, new in zip(op.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def copied(module: ir.Module) -> ir.Module:
    """The same program, once more."""
    return ir.Module.parse(to_bytecode(module))


def _tensor(kind: Any) -> Tensor | None:
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return None
    return Tensor(tuple(kind.shape), dtype_of(kind.element_type))

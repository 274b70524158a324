"""Programs with types of few bits as XLA can compile them.

XLA ends the process where it concatenates integers of 2 bits and where it draws random numbers of a
type that it has no code for, and it refuses other operations on integers of 2 and 4 bits. They
compute in wider integers here, and what they give is narrowed again: a random number lies between
the same bounds, and sums and products keep their low bits in any width.
"""

from __future__ import annotations

from typing import Any, Final

from relax2xla.dtypes import DTYPES
from relax2xla.errors import UnsupportedError
from relax2xla.stablehlo.codecs import dtype_of
from relax2xla.stablehlo.mlir import ir

_TWO: Final = frozenset({"int2", "uint2"})
_FOUR: Final = frozenset({"int4", "uint4"})
_INTEGERS: Final = _TWO | _FOUR
_RANDOM: Final = _INTEGERS | {"int8", "uint8", "int16", "uint16", "bool"}
_FLOATS: Final = frozenset(d.name for d in DTYPES.values() if d.kind == "float" and d.bits < 16)
#: Dtypes of programs that :func:`widen` may have to change.
FORMS: Final = _RANDOM | _FLOATS
# Operations to the dtypes that XLA has no code for there, and the bits that they compute in.
_ROWS: Final = {
    "stablehlo.concatenate": (_TWO, 8),
    "stablehlo.sort": (_TWO, 8),
    "stablehlo.rng": (_RANDOM, 32),
}
_PRODUCTS: Final = frozenset({"stablehlo.dot_general", "stablehlo.convolution"})


def widen(module: ir.Module) -> None:
    """Change ``module`` so that XLA has code for what it does with types of few bits.

    UnsupportedError where that would change what the program says.
    """
    with module.context, ir.Location.unknown():
        stack = [module.operation]
        while stack:
            for region in stack.pop().regions:
                for block in region.blocks:
                    for op in [held.operation for held in block.operations]:
                        if len(op.regions):
                            stack.append(op)
                        name = op.name
                        if name in _ROWS:
                            _widen_row(op)
                        elif name in _PRODUCTS:
                            _widen_product(op)


def _widen_row(op: Any) -> None:
    forms, bits = _ROWS[op.name]
    if op.name == "stablehlo.rng" and (name := _name(op.results[0].type)) in _FLOATS:
        raise UnsupportedError(
            f"stablehlo.rng of {name} has no code in XLA; draw float32 and convert it"
        )
    change: dict[str, ir.Type] = {}
    for name in {_name(v.type) for v in (*op.operands, *op.results)} & forms:
        signless = name.startswith("int")
        change[name] = ir.Type.parse(f"i{bits}" if signless else f"ui{bits}")
    if change:
        _widen(op, change)


def _widen_product(op: Any) -> None:
    names = {_name(v.type) for v in (*op.operands, *op.results)}
    if not (names & _TWO or (names & _FOUR and len(names) > 1)):
        return
    result: Any = ir.RankedTensorType(op.results[0].type).element_type
    name = dtype_of(result)
    if name in _INTEGERS:
        result = ir.Type.parse("ui8" if name.startswith("u") else "i8")
    _widen(op, {name: result for name in names})


def _widen(op: Any, change: dict[str, ir.Type]) -> None:
    """Let ``op`` take and give elements of the types that ``change`` has for their dtypes."""

    def wide(t: ir.Type) -> ir.Type:
        element = change.get(_name(t))
        if element is None:
            return t
        shape: Any = ir.RankedTensorType(t).shape
        return ir.RankedTensorType.get(shape, element)

    for i, value in enumerate(list(op.operands)):
        op.operands[i] = _converted(value, wide(value.type), ir.InsertionPoint(op))
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                _change(argument, wide(argument.type), ir.InsertionPoint.at_block_begin(block))
    for value in op.results:
        _change(value, wide(value.type), ir.InsertionPoint.after(op))


def _converted(value: Any, to: ir.Type, at: ir.InsertionPoint) -> Any:
    if value.type == to:
        return value
    return ir.Operation.create("stablehlo.convert", [to], [value], ip=at).results[0]


def _change(value: Any, to: ir.Type, at: ir.InsertionPoint) -> None:
    """Give ``value`` another type; what uses it gets what it was."""
    was = value.type
    if was != to:
        value.set_type(to)
        back = _converted(value, was, at)
        value.replace_all_uses_except(back, [back.owner.operation])


def _name(t: ir.Type) -> str:
    """The dtype of a tensor; nothing of other types."""
    return dtype_of(t.element_type) if isinstance(t, ir.RankedTensorType) else ""

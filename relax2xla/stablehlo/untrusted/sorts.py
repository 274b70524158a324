"""Sorts of XLA:CPU by comparisons that are no order.

An unstable sort is C++'s ``std::sort`` there, which trusts its comparison: one that is no strict
weak order (``NE``, ``true``, the parts of complex numbers, even ``LT`` where a number is NaN) leads
it beyond the ends of its memory, or round for ever. A stable sort merges, and stays inside whatever
the comparison says. The order of equals is free in an unstable sort, so a stable one will do.
"""

from __future__ import annotations

from typing import Any, Final

from relax2xla.stablehlo.mlir import ir, operations

_SORT: Final = "stablehlo.sort"


def make_safe(module: ir.Module) -> None:
    """Make each sort of ``module`` stable whose comparison is not known to be an order."""
    with module.context:
        for op in operations(module):
            if op.name == _SORT and not _is_order(op.regions[0].blocks[0]):
                op.attributes["is_stable"] = ir.BoolAttr.get(True)


def _is_order(block: Any) -> bool:
    """Whether a comparison is less or greater of one operand, of whole numbers or TOTALORDER."""
    compared, *rest = (op.operation for op in block.operations)
    if compared.name != "stablehlo.compare" or len(rest) != 1:
        return False
    places = list(block.arguments)
    at = [places.index(v) for v in compared.operands if v in places]
    of_one_operand = len(at) == 2 and at[0] // 2 == at[1] // 2 and at[0] != at[1]
    direction = str(compared.attributes["comparison_direction"])
    kind = compared.attributes.get("compare_type", "")
    element = ir.RankedTensorType(compared.operands[0].type).element_type
    return (
        of_one_operand
        and direction.endswith((" LT>", " GT>"))
        and (isinstance(element, ir.IntegerType) or "TOTALORDER" in str(kind))
    )

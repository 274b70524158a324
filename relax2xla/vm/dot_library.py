"""Which library multiplies the matrices of a program of XLA:CPU.

XLA:CPU gives products to YNNPACK, or, where an option takes that away, to Eigen. On AVX-512 Eigen
is 5 to 40 % faster in float32 and has no work at a program's first run (YNNPACK plans each product
then), but it transposes a right operand that is contracted over its last axis at every call.
``python -m benchmarks dots`` measures this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from relax2xla import processor

#: All that jaxlib 0.10 gives to YNNPACK but products of matrices.
EIGEN: Final[Mapping[str, str]] = {
    processor.YNNPACK: "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION,LIBRARY_FUSION_TYPE_REDUCE"
}

# Seconds that Eigen gains for each multiplication, and loses for each element that it transposes.
_GAIN: Final = 4e-12
_LOSS: Final = 9e-9
# YNNPACK multiplies these as they are; Eigen widens them first.
_NARROW: Final = frozenset({"bf16", "f16", "i8", "ui8", "i4", "ui4"})


def options(module: ir.Module) -> Mapping[str, str]:
    """XLA's options for the products in ``module``: empty, or :data:`EIGEN`."""
    return EIGEN if processor.eigen_multiplies() and balance(module) > 0 else {}


def balance(module: ir.Module) -> float:
    """Seconds that a call of ``module`` gains with Eigen: negative where it loses."""
    total = 0.0

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal total
        if op.name == "stablehlo.dot_general":
            total += _gain(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return total


def _gain(op: ir.Operation) -> float:
    types = [ir.RankedTensorType(v.type) for v in op.operands]
    dtypes = {str(t.element_type) for t in types}
    if dtypes & _NARROW:
        return -math.inf
    if dtypes != {"f32"} or not all(t.has_static_shape for t in types):
        return 0.0
    dims: Any = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    left, right = (list(t.shape) for t in types)
    batch = list(dims.rhs_batching_dimensions)
    contracted = list(dims.rhs_contracting_dimensions)
    free = [a for a in range(len(right)) if a not in batch and a not in contracted]
    if not batch and free and max(contracted, default=-1) > max(free):
        return -_LOSS * math.prod(right)
    return _GAIN * math.prod(left) * math.prod(right[a] for a in free)

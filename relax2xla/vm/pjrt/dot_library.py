"""Which library multiplies the matrices of a program of XLA:CPU, and which sums up.

XLA:CPU gives products to YNNPACK, or, where an option takes that away, to Eigen. Eigen has no work
at a program's first run (YNNPACK plans each product then), but it transposes a right operand that
is contracted over its last axis at every call. In float32 it is 5 to 40 % faster on AVX-512; with
AVX2 alone it is up to 10 % faster where the right operand is narrow, and takes up to twice as long
where that is wide. A large matrix times a few columns is YNNPACK's, which reads it at the speed of
memory: with 2 to 16 columns Eigen takes 1.3 to 2 times as long. ``python -m benchmarks dots``
measures this. Small products are YNNPACK's too: each costs some microseconds more with Eigen.

Reductions go to YNNPACK as well, which plans each of them too. XLA's own loops are as fast along an
axis that is not the last, as those of a transformer are whose features come first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from relax2xla import processor
from relax2xla.stablehlo.mlir import operations

#: All that jaxlib 0.10 to 0.12 give to YNNPACK but products of matrices.
EIGEN: Final[Mapping[str, str]] = {
    processor.YNNPACK: "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION,LIBRARY_FUSION_TYPE_REDUCE"
}
#: The same without reductions.
EIGEN_AND_LOOPS: Final[Mapping[str, str]] = {
    processor.YNNPACK: "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION"
}

# Seconds that Eigen gains for each multiplication on AVX-512; with AVX2 alone it gains less, and
# loses where the right operand has more rows and columns than these.
_GAIN: Final = 4e-12
_NARROW_GAIN: Final = 1.5e-12
# Seconds that each product costs more with Eigen, however small: networks of 30 to 40 products of a
# few thousand multiplications take 0.27 ms instead of 0.18.
_CALL_LOSS: Final = 2e-6
_WIDE_LOSS: Final = 2.5e-11
_WIDE: Final = 128, 448
# Columns that are few, elements of a left operand that are many then, and seconds that Eigen loses
# for each of these.
_FEW: Final = 2, 16
_MANY: Final = 1 << 18
_FEW_LOSS: Final = 1.5e-10
# Seconds that it loses for each element that it transposes.
_LOSS: Final = 9e-9
# Seconds that YNNPACK takes to plan a reduction, and calls that have to earn it back.
_PLAN: Final = 1.6e-3
_CALLS: Final = 100
# Seconds that it gains for each element of a sum along the last axis, and of other reductions.
_SUM: Final = 1.5e-10
_REDUCTION: Final = 1.2e-9
# YNNPACK multiplies these as they are; Eigen widens them first.
_NARROW: Final = frozenset({"bf16", "f16", "i8", "ui8", "i4", "ui4"})


def options(module: ir.Module) -> Mapping[str, str]:
    """XLA's options for the products in ``module``: empty, or one of the two above."""
    if not processor.eigen_may_multiply() or balance(module) <= 0:
        return {}
    return EIGEN if planning_pays(module) else EIGEN_AND_LOOPS


def planning_pays(module: ir.Module) -> bool:
    """Whether YNNPACK gains more on the reductions in ``module`` than it takes to plan them."""
    gains = [_reduction_gain(op) for op in _operations(module, "stablehlo.reduce")]
    return _CALLS * sum(gains) >= _PLAN * len(gains)


def _reduction_gain(op: ir.Operation) -> float:
    """Seconds that a call gains with YNNPACK; it takes float32 to a single result."""
    kind = ir.RankedTensorType(op.operands[0].type)
    if len(op.operands) != 2 or str(kind.element_type) != "f32" or not kind.has_static_shape:
        return 0.0
    axes = [int(a) for a in ir.DenseI64ArrayAttr(op.attributes["dimensions"])]
    last = kind.rank - 1 in axes
    if len(axes) == 1 and not last:
        return 0.0
    body = op.regions[0].blocks[0].operations[0].operation.name
    each = _SUM if body == "stablehlo.add" and len(axes) == 1 else _REDUCTION
    return each * math.prod(kind.shape)


def balance(module: ir.Module) -> float:
    """Seconds that a call of ``module`` gains with Eigen: negative where it loses."""
    return sum(map(_gain, _operations(module, "stablehlo.dot_general")))


def _operations(module: ir.Module, name: str) -> list[ir.Operation]:
    """All operations of one name, those in regions too."""
    return [op for op in operations(module) if op.name == name]


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
        if math.prod(left) == math.prod(right[a] for a in contracted):
            return 0.0  # A row is multiplied as the matrix lies.
        return -_LOSS * math.prod(right)
    columns = math.prod(right[a] for a in free)
    multiplications = math.prod(left) * columns
    few = not batch and _FEW[0] <= columns <= _FEW[1]
    if few and math.prod(left) >= _MANY:
        return -_FEW_LOSS * math.prod(left)
    if processor.eigen_multiplies():
        return _GAIN * multiplications - _CALL_LOSS
    wide = math.prod(right[a] for a in contracted) > _WIDE[0] and columns > _WIDE[1]
    return -_WIDE_LOSS * multiplications if wide else _NARROW_GAIN * multiplications

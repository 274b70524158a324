"""``tvm.relax.backend.cuda.cublas``: its patterns by name, and a code generator that XLA serves.

XLA calls cuBLAS for products on a GPU itself. So what the code generator ``cublas`` makes of a
function is that function, and a program that dispatches to cuBLAS runs on every platform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from relax2xla.dpl import DFPattern, is_op, wildcard
from relax2xla.ir import Call, Function, IRModule, TensorStructInfo
from relax2xla.runtime import get_global_func
from relax2xla.transform import FuseOpsByPattern, register_codegen
from relax2xla.transform.fusion.codegen import PREFIX
from relax2xla.transform.fusion.patterns import (
    FusionPattern,
    PatternCheckContext,
    get_patterns_with_prefix,
    register_patterns,
)

NAME: Final = "cublas"
_DTYPES: Final = frozenset({"float16", "float32", "bfloat16", "float64"})


def partition_for_cublas(mod: IRModule, bind_constants: bool = False) -> IRModule:
    """``mod`` with a function, for the code generator ``cublas``, for each product it would take.

    bind_constants: whether constants stay in these functions
    """
    patterns = get_patterns_with_prefix(f"{NAME}.")
    return FuseOpsByPattern(patterns, bind_constants, annotate_codegen=True)(mod)


def _is_product(context: PatternCheckContext) -> bool:
    """Whether both operands are floats of one dtype, and as long as a number says."""
    product = context.annotated_expr["root"]
    assert isinstance(product, Call)
    infos = [a.struct_info for a in product.args]
    if not all(isinstance(i, TensorStructInfo) and i.dims and i.dtype in _DTYPES for i in infos):
        return False
    left, right = infos
    assert isinstance(left, TensorStructInfo)
    assert isinstance(right, TensorStructInfo)
    return left.dtype == right.dtype and left.dims is not None and isinstance(left.dims[-1], int)


def _pattern(transposed: bool, bias: bool, activation: str) -> FusionPattern:
    lhs, rhs, added = wildcard(), wildcard(), wildcard()
    root: DFPattern = is_op("relax.matmul")(
        lhs, is_op("relax.permute_dims")(rhs) if transposed else rhs
    )
    parts: dict[str, DFPattern] = {"lhs": lhs, "rhs": rhs, "root": root}
    out = root
    if bias:
        parts["bias"] = added
        out = is_op("relax.add")(out, added)
    if activation:
        out = is_op(f"relax.nn.{activation}")(out)
    name = "_".join(
        ["matmul", *["transposed"] * transposed, *["bias"] * bias, *[activation] * bool(activation)]
    )
    return FusionPattern(f"{NAME}.{name}", out, parts, _is_product)


def _unchanged(
    functions: Sequence[Function], options: Mapping[str, Any], constants: Any
) -> Mapping[str, Function]:
    """Each function for its symbol: XLA compiles it with what is around it."""
    return {f.attrs["global_symbol"]: f for f in functions}


# The longer ones last: those of the end are tried first.
register_patterns(
    [
        _pattern(transposed, bias, activation)
        for bias, activation in ((False, ""), (True, ""), (True, "relu"), (True, "gelu"))
        for transposed in (False, True)
    ]
)
if get_global_func(PREFIX + NAME, allow_missing=True) is None:
    register_codegen(NAME, _unchanged)

"""The pattern language: what to look for in a program, and what takes its place.

Patterns and matching lie below the passes, which are made of them; rewriters are passes themselves
and are loaded when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relax2xla.dpl.binding_rewrite import DataflowBlockRewrite as DataflowBlockRewrite
from relax2xla.dpl.builders import make_attention_pattern as make_attention_pattern
from relax2xla.dpl.builders import make_conv2d_pattern as make_conv2d_pattern
from relax2xla.dpl.builders import (
    make_fused_bias_activation_pattern as make_fused_bias_activation_pattern,
)
from relax2xla.dpl.builders import make_layer_norm_pattern as make_layer_norm_pattern
from relax2xla.dpl.builders import make_matmul_dequantize_pattern as make_matmul_dequantize_pattern
from relax2xla.dpl.builders import make_matmul_multiply_pattern as make_matmul_multiply_pattern
from relax2xla.dpl.builders import make_matmul_pattern as make_matmul_pattern
from relax2xla.dpl.builders import make_residual_block_pattern as make_residual_block_pattern
from relax2xla.dpl.builders import make_rms_norm_pattern as make_rms_norm_pattern
from relax2xla.dpl.builders import make_stacked_attention_pattern as make_stacked_attention_pattern
from relax2xla.dpl.context import PatternContext as PatternContext
from relax2xla.dpl.make import has_attr as has_attr
from relax2xla.dpl.make import has_dtype as has_dtype
from relax2xla.dpl.make import is_call_dps_packed as is_call_dps_packed
from relax2xla.dpl.make import is_call_packed as is_call_packed
from relax2xla.dpl.make import is_call_tir as is_call_tir
from relax2xla.dpl.make import is_const as is_const
from relax2xla.dpl.make import is_dfv as is_dfv
from relax2xla.dpl.make import is_expr as is_expr
from relax2xla.dpl.make import is_gv as is_gv
from relax2xla.dpl.make import is_op as is_op
from relax2xla.dpl.make import is_shape as is_shape
from relax2xla.dpl.make import is_tuple as is_tuple
from relax2xla.dpl.make import is_tuple_get_item as is_tuple_get_item
from relax2xla.dpl.make import is_var as is_var
from relax2xla.dpl.make import reject as reject
from relax2xla.dpl.make import wildcard as wildcard
from relax2xla.dpl.pattern import AndPattern as AndPattern
from relax2xla.dpl.pattern import AttrPattern as AttrPattern
from relax2xla.dpl.pattern import CallPattern as CallPattern
from relax2xla.dpl.pattern import ConstantPattern as ConstantPattern
from relax2xla.dpl.pattern import DataflowVarPattern as DataflowVarPattern
from relax2xla.dpl.pattern import DataTypePattern as DataTypePattern
from relax2xla.dpl.pattern import DFPattern as DFPattern
from relax2xla.dpl.pattern import ExprPattern as ExprPattern
from relax2xla.dpl.pattern import ExternFuncPattern as ExternFuncPattern
from relax2xla.dpl.pattern import FunctionPattern as FunctionPattern
from relax2xla.dpl.pattern import GlobalVarPattern as GlobalVarPattern
from relax2xla.dpl.pattern import NotPattern as NotPattern
from relax2xla.dpl.pattern import OrPattern as OrPattern
from relax2xla.dpl.pattern import PrimArrPattern as PrimArrPattern
from relax2xla.dpl.pattern import ShapePattern as ShapePattern
from relax2xla.dpl.pattern import StructInfoPattern as StructInfoPattern
from relax2xla.dpl.pattern import TupleGetItemPattern as TupleGetItemPattern
from relax2xla.dpl.pattern import TuplePattern as TuplePattern
from relax2xla.dpl.pattern import TypePattern as TypePattern
from relax2xla.dpl.pattern import UnorderedTuplePattern as UnorderedTuplePattern
from relax2xla.dpl.pattern import VarPattern as VarPattern
from relax2xla.dpl.pattern import WildcardPattern as WildcardPattern
from relax2xla.dpl.relations import DFConstraint as DFConstraint
from relax2xla.dpl.relations import PatternSeq as PatternSeq
from relax2xla.dpl.relations import SameShapeConstraint as SameShapeConstraint

if TYPE_CHECKING:
    from relax2xla.dpl.rewrite import ExprPatternRewriter as ExprPatternRewriter
    from relax2xla.dpl.rewrite import OrRewriter as OrRewriter
    from relax2xla.dpl.rewrite import PatternMatchingRewriter as PatternMatchingRewriter
    from relax2xla.dpl.rewrite import TupleRewriter as TupleRewriter
    from relax2xla.dpl.rewrite import rewrite_bindings as rewrite_bindings
    from relax2xla.dpl.rewrite import rewrite_call as rewrite_call

# For `from relax2xla.dpl import *`, which programs for TVM write.
__all__ = [
    "AndPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DFConstraint",
    "DFPattern",
    "DataTypePattern",
    "DataflowBlockRewrite",
    "DataflowVarPattern",
    "ExprPattern",
    "ExprPatternRewriter",
    "ExternFuncPattern",
    "FunctionPattern",
    "GlobalVarPattern",
    "NotPattern",
    "OrPattern",
    "OrRewriter",
    "PatternContext",
    "PatternMatchingRewriter",
    "PatternSeq",
    "PrimArrPattern",
    "SameShapeConstraint",
    "ShapePattern",
    "StructInfoPattern",
    "TupleGetItemPattern",
    "TuplePattern",
    "TupleRewriter",
    "TypePattern",
    "UnorderedTuplePattern",
    "VarPattern",
    "WildcardPattern",
    "has_attr",
    "has_dtype",
    "is_call_dps_packed",
    "is_call_packed",
    "is_call_tir",
    "is_const",
    "is_dfv",
    "is_expr",
    "is_gv",
    "is_op",
    "is_shape",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "make_attention_pattern",
    "make_conv2d_pattern",
    "make_fused_bias_activation_pattern",
    "make_layer_norm_pattern",
    "make_matmul_dequantize_pattern",
    "make_matmul_multiply_pattern",
    "make_matmul_pattern",
    "make_residual_block_pattern",
    "make_rms_norm_pattern",
    "make_stacked_attention_pattern",
    "reject",
    "rewrite_bindings",
    "rewrite_call",
    "wildcard",
]


def __getattr__(name: str) -> Any:
    # Of the names above only those of rewriters are not here yet.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from relax2xla.dpl import rewrite

    return getattr(rewrite, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

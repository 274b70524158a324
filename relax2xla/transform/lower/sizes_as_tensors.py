"""SizesAsTensors: the shapes and numbers that a program takes and gives are tensors."""

from __future__ import annotations

from typing import Any

from relax2xla import tir
from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    BindingBlock,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.ir.struct_info import show
from relax2xla.op.shared.lowering import convert, relax, reshape, scalar
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.lower.dimension_values import Sources


@register(needed=True)
class SizesAsTensors(Pass):
    """Make shapes and numbers among parameters and results int64 tensors of rank 1 and 0.

    A number keeps its dtype. ``sources`` holds, by function, the parameters whose values are
    symbolic variables from then on: LegalizeOps takes it. LegalizeError for a shape of unknown
    rank.
    """

    def __init__(self) -> None:
        self.sources: dict[GlobalVar, Sources] = {}

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            new[gvar], self.sources[gvar] = _tensor_params(_tensor_results(func))
        return mod.replace(new)


def _tensor_params(func: Function) -> tuple[Function, Sources]:
    """``func`` with a tensor for each shape and number that it takes, and what they define."""
    params: list[Var] = []
    values: dict[Var, Expr] = {}
    sources: Sources = {}
    for p in func.params:
        info = p.struct_info
        if isinstance(info, PrimStructInfo):
            new = Var(p.vid, TensorStructInfo((), info.dtype), p.span)
            value = info.value if info.value is not None else tir.Var(p.name_hint, info.dtype)
            values[p] = PrimValue(value)
            given: list[tuple[Any, int | None]] = [(value, None)]
        elif isinstance(info, ShapeStructInfo) and info.ndim >= 0:
            new = Var(p.vid, TensorStructInfo((info.ndim,), "int64"), p.span)
            dims = info.values or [tir.Var(f"{p.name_hint}_{i}") for i in range(info.ndim)]
            values[p] = ShapeExpr(dims)
            given = [(d, i) for i, d in enumerate(dims)]
        elif isinstance(info, ShapeStructInfo):
            raise LegalizeError(
                f"the parameter `{p.name_hint}` is {show(info)}; its rank must be known to be a "
                "tensor of a StableHLO program"
            )
        else:
            params.append(p)
            continue
        params.append(new)
        for d, place in given:
            if isinstance(d, tir.Var):
                sources.setdefault(d, (new, place))
    if not values:
        return func, sources
    return rewrite_function(func.replace(params=params), values=values), sources


def _tensor_results(func: Function) -> Function:
    """``func`` with a tensor for each shape and number that it gives."""
    bindings: list[VarBinding] = []

    def bind(name: str, value: Expr) -> Var:
        var = Var(name, value.struct_info)
        bindings.append(VarBinding(var, value))
        return var

    def tensors(value: Expr) -> Expr:
        info = value.struct_info
        if isinstance(value, Tuple):
            fields = [tensors(f) for f in value.fields]
            same = all(a is b for a, b in zip(fields, value.fields, strict=True))
            return value if same else Tuple(fields, value.span)
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            return bind("shape", relax("shape_to_tensor", ShapeExpr(info.values)))
        if not isinstance(info, PrimStructInfo) or info.value is None:
            return value
        if isinstance(info.value, tir.IntImm | tir.FloatImm):
            return bind("number", scalar(info.value.value, info.dtype))
        vector = bind("shape", relax("shape_to_tensor", ShapeExpr([tir.cast("int64", info.value)])))
        return bind("number", convert(reshape(vector, ()), info.dtype))

    body = tensors(func.body.body)
    if not bindings:
        return func
    seq = SeqExpr([*func.body.blocks, BindingBlock(bindings)], body, func.body.span)
    return Function(func.params, seq, None, func.is_pure, func.attrs, func.span)

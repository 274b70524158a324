"""CallTIRRewrite: tensors for the results of kernels are allocated, and kernels write into them.

Source of the semantics: ``CallTIRRewrite`` of TVM v0.20.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    FuncStructInfo,
    Function,
    IRModule,
    Op,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.base import VDevice
from relax2xla.ir.deep import nests
from relax2xla.ir.rewrite import Rewriter, bindings_deep
from relax2xla.ir.struct_info import show
from relax2xla.op.builtin import alloc_tensor
from relax2xla.op.vm import call_tir_dyn
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.core.kernel_calls import CALL_TIR
from relax2xla.transform.normal.to_non_dataflow import ToNonDataflow

REWRITTEN: Final = (*CALL_TIR, "relax.call_dps_packed")
FORCE_PURE: Final = "relax.force_pure"


@register()
class CallTIRRewrite(FunctionPass):
    """Write ``y = R.call_tir(f, (x,), info)`` as ``y = R.builtin.alloc_tensor(...); f(x, y)``.

    So for ``call_dps_packed``, and for ``call_tir_inplace``, whose results are operands; with
    ``tir_vars`` the call is ``R.vm.call_tir_dyn``. Functions that hold such calls get ordinary
    blocks (ToNonDataflow), and pure ones the attribute ``relax.force_pure``, since calls that write
    are not pure. TransformError for results that are no tensors of known shape. ``build`` reads
    what this pass makes as values again (CallsAsValues): XLA allocates, and nothing is overwritten.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        if not any(map(_is_written, bindings_deep(func))):
            return func
        flat = ToNonDataflow().transform_function(func, mod, context)
        return _Allocated(mod).function(flat)


def _is_written(b: Binding) -> bool:
    value = b.value
    return (
        isinstance(b, VarBinding)
        and isinstance(value, Call)
        and isinstance(value.op, Op)
        and value.op.name in REWRITTEN
    )


class _Allocated(Rewriter):
    """Rebuilds functions with calls that write."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.devices: Sequence[object] = mod.global_infos.get("vdevice", ())
        self.made: dict[tuple[object, ...], Call] = {}

    @nests
    def function(self, func: Function) -> Function:
        new = super().function(func)
        if new is func or not new.is_pure or new.attrs.get(FORCE_PURE):
            return new
        return new.with_attr(FORCE_PURE, True)

    def block(self, block: BindingBlock) -> BindingBlock:
        made: list[Binding] = []
        for old in block.bindings:
            new = self.binding(old)
            if _is_written(new):
                assert isinstance(new, VarBinding)
                assert isinstance(new.value, Call)
                made += self._written(new, new.value)
            else:
                made.append(new)
        same = len(made) == len(block.bindings)
        if same and all(a is b for a, b in zip(made, block.bindings, strict=True)):
            return block
        return type(block)(made, block.span)

    def _written(self, b: VarBinding, call: Call) -> Iterator[Binding]:
        """Allocations, the call that writes, and what the call gave."""
        given = call.args[1]
        if isinstance(given, Tuple):
            args = list(given.fields)
        else:
            args: list[Expr] = []
            info = given.struct_info
            assert isinstance(info, TupleStructInfo)
            for i in range(len(info.fields)):
                item = TupleGetItem(given, i)
                var = Var(f"{b.var.name_hint}_{i}", item.struct_info)
                args.append(var)
                yield VarBinding(var, item, b.span)
        info = call.sinfo_args[0]
        fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
        places = call.attrs.get("inplace_indices") or (-1,) * len(fields)
        outs: list[Expr] = []
        new: list[Expr] = []
        for field, place in zip(fields, places, strict=True):
            if place != -1:
                outs.append(args[place])
                continue
            value = self._allocation(field, b.var)
            var = Var("alloc", value.struct_info, b.span)
            yield VarBinding(var, value, b.span)
            outs.append(var)
            new.append(var)
        callee, operands = call.args[0], [*args, *new]
        if len(call.args) > 2:
            made = call_tir_dyn(callee, Tuple([*operands, call.args[2]]))
        else:
            # Of what it is given call_tir has said already that it fits.
            known = callee.struct_info_
            result = known.ret if isinstance(known, FuncStructInfo) else None
            made = Call(callee, operands, span=call.span, struct_info=result)
        yield VarBinding(Var("_", made.struct_info), made, b.span)
        single = not isinstance(info, TupleStructInfo)
        yield VarBinding(b.var, outs[0] if single else Tuple(outs), b.span)

    def _allocation(self, info: StructInfo, var: Var) -> Expr:
        """A new tensor for a result."""
        if not isinstance(info, TensorStructInfo) or info.dims is None or not info.dtype:
            raise TransformError(
                f"CallTIRRewrite: `{var.name_hint}` is {show(info)}; memory can be allocated for "
                "tensors of known shape and dtype"
            )
        key = info.dims, info.dtype, info.vdevice
        if key not in self.made:
            device = info.vdevice
            index = self.devices.index(device) if isinstance(device, VDevice) else 0
            made = alloc_tensor(ShapeExpr(info.dims), info.dtype, index, "global")
            assert isinstance(made, Call)
            self.made[key] = made
        one = self.made[key]  # inferred once
        return Call(one.op, one.args, one.attrs, struct_info=one.struct_info_)

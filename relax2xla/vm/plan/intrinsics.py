"""Calls of Relax's intrinsics (packed functions, closures, moves) as bytecode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    Call,
    Expr,
    ExternFunc,
    StringImm,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)
from relax2xla.vm.code import bytecode as bc
from relax2xla.vm.plan.host_reasons import MOVE, devices

if TYPE_CHECKING:
    from relax2xla.vm.plan.lower import Lowerer


def _dps(to: Lowerer, call: Call) -> bc.Arg:
    func, args = call.args[0], call.args[1]
    info = call.sinfo_args[0]
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    made: list[bc.Arg] = []
    for f in fields:
        if not isinstance(f, TensorStructInfo) or f.dims is None:
            raise LegalizeError(f"call_dps_packed needs results of known shape; got {f}")
        made.append(to.tuple_of([to.dim(d) for d in f.dims]))
        made.append(bc.Imm(f.dtype))
    operands = args.fields if isinstance(args, Tuple) else None
    packed = to.arg(args) if operands is None else to.tuple_of([to.arg(a) for a in operands])
    several = isinstance(info, TupleStructInfo)
    result = to.builtin("call_dps", to.arg(func), packed, bc.Imm(several), *made)
    if not to.module.hosts.placed:
        return result
    where = to.module.constant(to.pattern(info))
    return to.builtin("as_stated", result, where, bc.Imm(f"{to.name}: the result of {func!r}"))


def _to_device(to: Lowerer, call: Call) -> bc.Arg:
    (device,) = devices(call.struct_info)
    return to.builtin("to_device", to.arg(call.args[0]), bc.Imm(str(device)))


def _inplace(to: Lowerer, call: Call) -> bc.Arg:
    func, *args = call.args
    places = to.module.constant(tuple(call.attrs["inplace_indices"]))
    made = to.builtin("call_inplace", to.arg(func), places, *(to.arg(a) for a in args))
    return to.stated(made, call, f"{to.name}: the result of {func!r}")


def _closure_call(to: Lowerer, call: Call) -> bc.Arg:
    closure, args = to.arg(call.args[0]), call.args[1]
    if isinstance(args, Tuple):
        made = to.builtin("invoke_closure", closure, *(to.arg(a) for a in args.fields))
    else:
        made = to.builtin("invoke_with", closure, to.arg(args))
    return to.stated(made, call, f"{to.name}: the result of {call.args[0]!r}")


def _make_closure(to: Lowerer, call: Call) -> bc.Arg:
    func, args = call.args
    fields = args.fields if isinstance(args, Tuple) else [args[i] for i in range(_length(args))]
    return to.builtin("make_closure", to.arg(func), *(to.arg(a) for a in fields))


def _length(args: Expr) -> int:
    info = args.struct_info
    if not isinstance(info, TupleStructInfo):
        raise LegalizeError(f"make_closure needs a tuple of known length; got {info}")
    return len(info.fields)


def _with_ctx(to: Lowerer, call: Call) -> bc.Arg:
    func, args = call.args
    if not isinstance(func, ExternFunc) or not isinstance(args, Tuple):
        raise LegalizeError("call_builtin_with_ctx needs the name of a builtin, and its arguments")
    row = to.module.row("packed", func.global_symbol)
    made = to.call(row, [bc.VM_STATE, *(to.arg(a) for a in args.fields)])
    return to.stated(made, call, f"{to.name}: the result of {func.global_symbol}")


def _py_func(to: Lowerer, call: Call) -> bc.Arg:
    name, args = call.args
    if not isinstance(name, StringImm) or not isinstance(args, Tuple):
        raise LegalizeError("call_py_func needs the name of a function, and its arguments")
    return to.packed(ExternFunc(name.value), args.fields, call.sinfo_args, call)


INTRINSICS: dict[str, Callable[[Lowerer, Call], bc.Arg]] = {
    MOVE: _to_device,
    "relax.call_pure_packed": lambda to, call: to.packed(
        call.args[0], call.args[1:], call.sinfo_args, call
    ),
    "relax.call_py_func": _py_func,
    "relax.call_dps_packed": _dps,
    "relax.call_inplace_packed": _inplace,
    "relax.call_builtin_with_ctx": _with_ctx,
    "relax.make_closure": _make_closure,
    "relax.invoke_closure": _closure_call,
    "relax.invoke_pure_closure": _closure_call,
}

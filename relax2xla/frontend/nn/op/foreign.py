"""Operators that call functions: te and TIR, packed functions, debugging, collectives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, TypeVar

from relax2xla import op, tir
from relax2xla.builder import BlockBuilder
from relax2xla.frontend.nn.eager import eager, is_array
from relax2xla.frontend.nn.exporter import DebugOff, Exporter
from relax2xla.frontend.nn.extern import packed_args
from relax2xla.frontend.nn.values import (
    Tensor,
    current_builder,
    expr_of,
    unwrap_nested,
    wrap_nested,
)
from relax2xla.ir import (
    Expr,
    GlobalVar,
    ObjectStructInfo,
    PrimValue,
    ShapeExpr,
    StringImm,
    StructInfo,
)
from relax2xla.op.intrinsic import (
    call_dps_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
)
from relax2xla.runtime.registry import get_global_func

OutType = TypeVar("OutType")

_INVOKE, _PRINT = "vm.builtin.invoke_debug_func", "vm.builtin.debug_print"


# -- te and TIR ------------------------------------------------------------------------------------
@eager
def tensor_expr_op(
    tensor_expr_func: Callable[..., Any],
    name_hint: str,
    args: Sequence[Any],
    *,
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """What a function of tensor expressions (te) computes, as a PrimFunc of the module.

    args: Tensors, symbolic variables and ints; attrs: of the PrimFunc.
    """
    made = current_builder("tensor_expr_op").emit_te(
        tensor_expr_func,
        *(expr_of(a) if isinstance(a, Tensor) else a for a in args),
        primfunc_name_hint=name_hint,
        primfunc_attrs=attrs,
    )
    return wrap_nested(made, name_hint)


@eager
def tensor_ir_op(func: tir.PrimFunc, name_hint: str, args: Any, out: OutType) -> OutType:
    """``R.call_tir`` of ``func``, which becomes a function of the module.

    args: Tensors; shapes and symbolic expressions among them are further integers. out: Tensors
    (``Tensor.placeholder``) like the results.
    """
    gvar, tensors, sizes, infos = _tir_call("tensor_ir_op", func, name_hint, args, out)
    return wrap_nested(call_tir(gvar, tensors, infos, tir_vars=sizes or None), name_hint)


@eager
def tensor_ir_inplace_op(
    func: tir.PrimFunc,
    name_hint: str,
    args: Any,
    inplace_indices: int | Sequence[int],
    out: OutType,
) -> OutType:
    """:func:`tensor_ir_op` whose result ``i`` takes the place of argument ``inplace_indices[i]``.

    A -1 asks for a new tensor; not all may be -1. One int stands for a list of one.
    """
    gvar, tensors, sizes, infos = _tir_call("tensor_ir_inplace_op", func, name_hint, args, out)
    call = call_tir_inplace(gvar, tensors, inplace_indices, infos, tir_vars=sizes or None)
    return wrap_nested(call, name_hint)


def _tir_call(
    what: str, func: tir.PrimFunc, name_hint: str, args: Any, out: Any
) -> tuple[GlobalVar, list[Expr], list[Any], list[StructInfo]]:
    tensors: list[Expr] = []
    sizes: list[Any] = []
    given: Sequence[Any] = args if isinstance(args, tuple | list) else [args]
    for arg in given:
        if isinstance(arg, ShapeExpr | tir.PrimExpr):
            sizes.append(arg)
        elif isinstance(arg, Tensor) or is_array(arg):
            tensors.append(expr_of(arg))
        else:
            raise TypeError(
                f"{what}: an argument is a Tensor, a shape or an expression; got "
                f"{type(arg).__name__}"
            )
    outs: Sequence[Tensor] = [out] if isinstance(out, Tensor) else out
    gvar = current_builder(what).add_func(func, name_hint)
    return gvar, tensors, sizes, [expr_of(t).struct_info for t in outs]


# -- packed functions ------------------------------------------------------------------------------
@eager
def extern(name: str, args: Sequence[Any], out: OutType) -> OutType:
    """A call of the packed function ``name``, which writes into tensors like ``out``.

    args: Tensors, symbolic expressions, numbers (passed with 64 bits), strings, and lists of them.
    out: a Tensor or several, of the shapes and dtypes of the results.
    """
    infos = unwrap_nested(out, "out").struct_info
    return wrap_nested(call_dps_packed(name, packed_args(list(args)), infos), name)


def debug_func(name: str, *args: Any, _line_info: str | None = None) -> None:
    """Call the packed function ``name`` at this place of a run: ``f(line, *args)``, without result.

    args: Tensors, symbolic expressions, numbers, strings. line: file and line of this call, or
    ``_line_info``. RuntimeError in an export without ``debug=True``; TypeError for other arguments.
    """
    line = _line_info or _line_of(inspect.currentframe())
    if BlockBuilder.current() is None and any(is_array(a) for a in args):
        function = get_global_func(name)
        assert function is not None
        function(line, *args)
        return
    io = Exporter.current().io_effect
    if io is None:
        raise DebugOff(f"{name}: debugging needs an export with debug=True")
    call = call_pure_packed(
        _INVOKE,
        io.effect,
        StringImm(name),
        StringImm(line),
        *map(_debug_arg, args),
        sinfo_args=[ObjectStructInfo()],
    )
    io.effect = current_builder("debug_func").emit(call, io.effect.name_hint)


def print_(tensor: Tensor) -> None:
    """Print a tensor at this place of a run, after file and line of this call."""
    debug_func(_PRINT, tensor, _line_info=_line_of(inspect.currentframe()))


def _line_of(frame: FrameType | None) -> str:
    caller = frame.f_back if frame is not None else None
    return "" if caller is None else f"{caller.f_code.co_filename}:{caller.f_lineno}"


def _debug_arg(arg: Any) -> Expr:
    match arg:
        case bool() | int():
            return PrimValue(tir.IntImm("int64", int(arg)))
        case float():
            return PrimValue(tir.FloatImm("float32", arg))
        case str():
            return StringImm(arg)
        case tir.PrimExpr():
            return PrimValue(arg)
        case _:
            return expr_of(arg)


# -- collectives -----------------------------------------------------------------------------------
@eager
def ccl_allreduce(
    x: Tensor, op_type: str = "sum", in_group: bool = True, name: str = "ccl_allreduce"
) -> Tensor:
    """``x`` of all workers (of the group) folded by "sum", "prod", "min", "max" or "avg"."""
    return wrap_nested(op.ccl.allreduce(expr_of(x), op_type, in_group), name)


@eager
def ccl_allgather(x: Tensor, num_workers: int, name: str = "ccl_allgather") -> Tensor:
    """``x`` of all workers, one after the other along the first axis."""
    return wrap_nested(op.ccl.allgather(expr_of(x), num_workers), name)


@eager
def ccl_broadcast_from_worker0(x: Tensor, name: str = "broadcast_from_worker") -> Tensor:
    """``x`` of the first worker, for all."""
    return wrap_nested(op.ccl.broadcast_from_worker0(expr_of(x)), name)

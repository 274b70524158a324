"""Statements of Relax for IRBuilder: functions, bindings, dataflow blocks, branches."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.errors import BuilderError, StructInfoError
from relax2xla.ir.base import VDevice
from relax2xla.ir.bind import as_value
from relax2xla.ir.expr import Call, DataflowVar, Expr, PrimValue, Tuple, Var, VarBinding
from relax2xla.ir.lattice import Mismatch, unify
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import Op
from relax2xla.ir.struct_info import StructInfo, show
from relax2xla.script.annotations import as_struct_info
from relax2xla.script.ir_builder.base import IRBuilder, want
from relax2xla.script.ir_builder.ir import IRModuleFrame, lookup_vdevice
from relax2xla.script.ir_builder.relax.frame import (
    BlockFrame,
    ElseFrame,
    FunctionFrame,
    IfFrame,
    SeqExprFrame,
    ThenFrame,
)

# Python's own, under the names by which code that imports R's can still have them.
py_print = builtins.print
py_tuple = builtins.tuple
py_str = builtins.str


def _function(what: str) -> FunctionFrame:
    return want(FunctionFrame, f"R.{what}", "R.function()")


def function(is_pure: bool = True, is_private: bool = False) -> FunctionFrame:
    """The frame of a function, for ``with``; it ends with exactly one ``R.func_ret_value``.

    ``is_private``: it gets no ``global_symbol``.
    """
    return FunctionFrame(is_pure, is_private)


def arg(name: str, struct_info: StructInfo) -> Var:
    """Add a parameter to the function; it may come after bindings."""
    frame = _function("arg")
    var = Var(name, as_struct_info(struct_info))
    frame.params.append(var)
    frame.block_builder.get_unique_name(name)
    return var


def func_name(name: str) -> None:
    """Name the function; once."""
    frame = _function("func_name")
    if frame.name is not None:
        raise BuilderError(f"the function {frame.name!r} is named again: {name!r}")
    frame.name = name


def func_attr(attrs: Mapping[str, Any]) -> None:
    """Give the function attributes, each once."""
    frame = _function("func_attr")
    for key in attrs:
        if key in frame.attrs:
            raise BuilderError(f"the attribute {key!r} is given twice")
    frame.attrs.update(attrs)


def func_ret_struct_info(ret_sinfo: StructInfo) -> None:
    """Declare the result of the function; once."""
    frame = _function("func_ret_struct_info")
    if frame.ret_struct_info is not None:
        raise BuilderError(f"the result is declared already, as {show(frame.ret_struct_info)}")
    frame.ret_struct_info = as_struct_info(ret_sinfo)


def func_ret_value(value: Any) -> None:
    """The result of the function, after its last binding and outside of other frames; once."""
    frame = _function("func_ret_value")
    if frame.output is not None:
        raise BuilderError("R.func_ret_value is called twice")
    if IRBuilder.current().frames[-1] is not frame:
        raise BuilderError("R.func_ret_value inside a dataflow block or a branch")
    frame.output = frame.block_builder.as_operand(_value(value))
    stack = [frame.output]
    while stack:
        node = stack.pop()
        if isinstance(node, Tuple):
            stack.extend(node.fields)
        elif isinstance(node, DataflowVar):
            frame.output = None
            raise BuilderError(
                f"{node.name_hint} is visible only in its dataflow block; name it in R.output, and "
                "return the variable that is in the frame's output_vars"
            )


def dataflow() -> BlockFrame:
    """The frame of a dataflow block, for ``with``; ``R.output`` ends it, where it gives anything.

    ``frame.output_vars`` has the outputs after its end: variables of their own, which take the
    places of those that were emitted.
    """
    return BlockFrame()


def output(*vars: Var) -> None:
    """What is visible after the dataflow block: variables that it binds."""
    frame = IRBuilder.current().frames[-1:]
    if not frame or not isinstance(frame[0], BlockFrame):
        raise BuilderError("R.output stands in R.dataflow()")
    if frame[0].ended:
        raise BuilderError("R.output is called twice in one dataflow block")
    for var in vars:
        if not isinstance(var, Var):
            raise TypeError(f"R.output takes variables; got {type(var).__name__}")
    frame[0].output_vars, frame[0].ended = vars, True


def _block(what: str) -> BlockBuilder:
    """The builder of the innermost open block."""
    function = _function(what)
    if function.output is not None:
        raise BuilderError(f"R.{what} after R.func_ret_value")
    frame = IRBuilder.current().frames[-1]
    if isinstance(frame, BlockFrame) and frame.ended:
        raise BuilderError(f"R.{what} after R.output")
    if not isinstance(frame, BlockFrame | SeqExprFrame):
        raise BuilderError(f"R.{what} in R.If stands in R.Then() or R.Else()")
    return function.block_builder


def _value(value: Any) -> Expr:
    if isinstance(value, tuple | list):
        return Tuple([_value(v) for v in value])
    return as_value(value)


def emit(value: Any, annotate_struct_info: StructInfo | None = None) -> Var:
    """Bind ``value`` to a new variable; ``IRBuilder.name`` names it.

    ``annotate_struct_info``: what the variable declares, which ``value`` must not contradict
    (StructInfoError).
    """
    builder = _block("emit")
    expr = _value(value)
    if annotate_struct_info is None:
        return builder.emit(expr)
    info = as_struct_info(annotate_struct_info)
    expr = builder.normalize(expr)
    if expr.struct_info_ is not None and not info.is_base_of(expr.struct_info_):
        try:
            unify(info, expr.struct_info_, {})
        except Mismatch as e:
            raise StructInfoError(
                f"a value of {show(expr.struct_info_)} is annotated as {show(info)}: it has {e}"
            ) from None
    local = builder.current_block_is_dataflow()
    name = builder.get_unique_name("lv" if local else "gv")
    var = (DataflowVar if local else Var)(name, info)
    builder.emit_normalized(VarBinding(var, expr))
    return var


def emit_match_cast(value: Any, struct_info: StructInfo) -> Var:
    """Bind ``value``, checked at run time against ``struct_info``."""
    return _block("emit_match_cast").match_cast(_value(value), as_struct_info(struct_info))


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Expr:
    """A call of what ``func``, a function of te, computes, which joins the module.

    Arguments are those of ``BlockBuilder.call_te``. Unlike in BlockBuilder, it is not bound yet.
    """
    frame = want(IRModuleFrame, "R.emit_te", "I.ir_module()")
    builder = BlockBuilder(IRModule(frame.functions))
    call = builder.call_te(func, *args, **kwargs)
    for gvar, kernel in builder.get().items():
        if gvar not in frame.functions:
            frame.global_vars[gvar.name_hint] = gvar
            frame.functions[gvar] = kernel
    return call


def emit_var_binding(value: VarBinding) -> Var:
    """Append a binding that has its own variable."""
    if not isinstance(value, VarBinding):
        raise TypeError(f"R.emit_var_binding takes a VarBinding; got {type(value).__name__}")
    _block("emit_var_binding").emit_normalized(value)
    return value.var


def If(condition: Any) -> IfFrame:
    """The frame of a condition, for ``with``; ``R.Then()`` and ``R.Else()`` stand in it.

    Both end by binding variables of one name; ``frame.var`` has the value after the end.
    """
    if isinstance(condition, tir.PrimExpr):
        condition = PrimValue(condition)
    return IfFrame(_value(condition))


def Then() -> ThenFrame:
    """The branch that is taken where the condition holds."""
    return ThenFrame()


def Else() -> ElseFrame:
    """The branch that is taken where it does not."""
    return ElseFrame()


def to_vdevice(data: Expr, dst_vdevice: str | VDevice) -> Call:
    """``data`` on another device, which ``kind`` or ``kind:index`` names in the module."""
    if isinstance(dst_vdevice, str):
        kind, _, index = dst_vdevice.partition(":")
        dst_vdevice = lookup_vdevice(kind, int(index or 0))
    return Op.get("relax.to_vdevice")(data, dst_vdevice)


__all__ = [
    "Else",
    "If",
    "Then",
    "arg",
    "dataflow",
    "emit",
    "emit_match_cast",
    "emit_te",
    "emit_var_binding",
    "func_attr",
    "func_name",
    "func_ret_struct_info",
    "func_ret_value",
    "function",
    "output",
    "to_vdevice",
]

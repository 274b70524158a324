"""Calls of functions that are no Relax functions: call_tir, call_dps_packed, closures, print.

The struct info of the result is stated by the caller. The names that end users call are functions
that build the Call in TVM's form; the operators below them are what printer and passes see.
Source: TVM Relax v0.20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.expr import (
    Call,
    Expr,
    ExternFunc,
    GlobalVar,
    PrimValue,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    convert_to_expr,
)
from relax2xla.ir.lattice import dims_equal, is_base_of
from relax2xla.ir.normal import Normalizer
from relax2xla.ir.op import Given, Op, op
from relax2xla.ir.op_param import IntsLike, Kind, PrimLike, ShapeLike, as_shape_operand
from relax2xla.ir.struct_info import (
    DTensorStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    show,
)
from relax2xla.ir.traits import Foreign, Opaque
from relax2xla.op.builtin import StringOperand, as_string_operand
from relax2xla.op.shared.checks import want_tensor


def as_callee(value: Any) -> Expr:
    """A function operand; a string is the name of a packed function."""
    if isinstance(value, str):
        return ExternFunc(value)
    if isinstance(value, Expr):
        return value
    raise TypeError(f"expected a function or the name of one; got {type(value).__name__}")


def as_args(value: Any) -> Expr:
    """Arguments as a Tuple; a single value is a tuple of one."""
    if isinstance(value, Expr):
        is_tuple = isinstance(value.struct_info_, TupleStructInfo) or isinstance(value, Tuple)
        return value if is_tuple else Tuple([value])
    if isinstance(value, Sequence):
        items: Sequence[Any] = value
        return Tuple([convert_to_expr(v) for v in items])
    raise TypeError(f"expected a tuple of arguments; got {type(value).__name__}")


def as_packed(value: Any) -> Expr:
    """An argument of a packed function: Python's numbers are values of 64 bits."""
    if isinstance(value, int):
        return PrimValue(tir.const(int(value), "int64"))
    if isinstance(value, float):
        return PrimValue(tir.const(value, "float64"))
    if isinstance(value, list | tuple):
        items: Sequence[Any] = value
        return Tuple([as_packed(v) for v in items])
    return convert_to_expr(value)


Callee = Annotated[Any, Kind(True, as_callee)]
Arguments = Annotated[Any, Kind(True, as_args)]
Infos = StructInfo | Sequence[StructInfo]


def _stated(name: str) -> StructInfo:
    raise OpError(f"{name}: the struct info of the result must be given as `sinfo_args`")


# ---- the operators
@op("relax.call_tir", Opaque())
def call_tir_op(func: Callee, args: Arguments, tir_vars: ShapeLike = None) -> StructInfo:
    """A call of a loop-level function that writes its results into new tensors.

    func: its GlobalVar; args: tensors; tir_vars: a shape of further integers
    result: the tensors given with the call
    """
    return _stated("call_tir")


@op("relax.call_tir_inplace", Opaque())
def call_tir_inplace_op(
    func: Callee, args: Arguments, tir_vars: ShapeLike = None, *, inplace_indices: Any
) -> StructInfo:
    """:func:`call_tir` that may write into its arguments; a -1 asks for a new tensor.

    func, args, tir_vars: as of ``call_tir``; inplace_indices: one for each result
    result: the tensors given with the call
    """
    return _stated("call_tir_inplace")


@op("relax.call_tir_with_grad", Opaque())
def call_tir_with_grad_op(
    func: Callee,
    args: Arguments,
    tir_vars: ShapeLike = None,
    *,
    te_grad_name: str,
    te_grad_kwargs: Any = None,
) -> StructInfo:
    """:func:`call_tir` with the name of the function that computes its gradient.

    func, args, tir_vars: as of ``call_tir``
    result: the tensors given with the call
    """
    return _stated("call_tir_with_grad")


@op("relax.call_dps_packed", Opaque(), Foreign(ordered=True))
def call_dps_packed_op(func: Callee, args: Arguments) -> StructInfo:
    """A call of a packed function that writes into new tensors, given as last arguments.

    func: a packed function; args: its arguments
    result: the struct infos given with the call
    """
    return _stated("call_dps_packed")


@op("relax.call_pure_packed", Opaque(), Foreign())
def call_pure_packed_op(func: Callee, *args: Expr) -> StructInfo:
    """A call of a packed function that the caller promises has no side effects.

    func: a packed function; args: its arguments
    result: the struct infos given with the call
    """
    return _stated("call_pure_packed")


@op("relax.call_inplace_packed", Opaque(), Foreign(ordered=True))
def call_inplace_packed_op(func: Callee, *args: Expr, inplace_indices: IntsLike) -> StructInfo:
    """A call of a packed function that changes arguments which are not used afterwards.

    func: a packed function; args: its arguments; inplace_indices: which of them become results,
    -1 for a new tensor
    result: the struct infos given with the call
    """
    return _stated("call_inplace_packed")


@op("relax.call_py_func", Opaque(), Foreign(ordered=True))
def call_py_func_op(func: StringOperand, args: Arguments) -> StructInfo:
    """A call of a Python function of the module by its name.

    func: a name; args: its arguments
    result: the tensors given with the call
    """
    return _stated("call_py_func")


@op("relax.call_builtin_with_ctx", Opaque(), Foreign(), pure=False)
def call_builtin_with_ctx_op(func: Callee, args: Arguments) -> StructInfo:
    """A call of a builtin of the virtual machine, which gets the machine as first argument.

    func: a global function's name; args: its arguments
    result: the struct infos given with the call
    """
    return ObjectStructInfo()


@op("relax.make_closure", Opaque())
def make_closure(func: Callee, args: Arguments) -> StructInfo:
    """A function value with its last arguments fixed.

    func: a GlobalVar; args: the last arguments
    result: an object
    """
    return ObjectStructInfo()


@op("relax.invoke_closure", Opaque(), Foreign(), pure=False)
def invoke_closure_op(closure: Expr, args: Arguments) -> StructInfo:
    """A call of a closure, which may have side effects.

    closure: a function value; args: its arguments
    result: the struct infos given with the call
    """
    return ObjectStructInfo()


@op("relax.invoke_pure_closure", Opaque(), Foreign())
def invoke_pure_closure_op(closure: Expr, args: Arguments) -> StructInfo:
    """A call of a closure that the caller promises has no side effects.

    closure: a function value; args: its arguments
    result: the struct infos given with the call
    """
    return ObjectStructInfo()


# ---- their part of A-normal form
def _operands_written_out(builder: Normalizer | None, call: Call) -> Expr:
    """The call with its arguments as a tuple that stands in it, not one that a variable holds.

    A variable that ``builder`` bound to a tuple gives that tuple's fields, another one its items.
    """
    args = call.args[1] if len(call.args) > 1 else None
    if args is None or isinstance(args, Tuple):
        return call
    known = builder.lookup_binding(args) if builder is not None and isinstance(args, Var) else None
    info = args.struct_info_
    if isinstance(known, Tuple):
        fields = Tuple(known.fields)  # The bound one is that variable to the builder.
    elif isinstance(info, TupleStructInfo):
        fields = Tuple([TupleGetItem(args, i) for i in range(len(info.fields))])
    else:
        return call
    operands = list(call.args)
    operands[1] = fields
    return Call(call.op, operands, call.attrs, call.sinfo_args, call.span)


for _kernel_call in (call_tir_op, call_tir_inplace_op, call_tir_with_grad_op):
    _kernel_call.normal = _operands_written_out


# ---- how users build them
def _one(out: Infos, name: str) -> list[StructInfo]:
    """The result's struct info; several are one tuple, a list of one is that one, as in TVM."""
    infos = [out] if isinstance(out, StructInfo) else list(out)
    for i in infos:
        if not isinstance(i, StructInfo):
            raise OpError(f"{name}: struct info expected; got {type(i).__name__}")
    if not infos:
        raise OpError(f"{name}: the struct info of at least one result must be given")
    return infos if len(infos) == 1 else [TupleStructInfo(infos)]


def _tensors_only(out: Infos, name: str) -> list[StructInfo]:
    infos = _one(out, name)
    fields = infos[0].fields if isinstance(infos[0], TupleStructInfo) else infos
    for field in fields:
        i = field.tensor_sinfo if isinstance(field, DTensorStructInfo) else field
        if not isinstance(i, TensorStructInfo) or (i.dims is None and i.shape is None):
            raise OpError(f"{name}: results must be tensors of known shape; got {show(i)}")
    return infos


TirVars = Expr | Sequence[tir.PrimExpr | int] | None


def _named_by_itself(func: tir.PrimFunc) -> GlobalVar:
    """The GlobalVar under which a module has ``func``: that of its ``global_symbol``."""
    name = func.attrs.get("global_symbol")
    if not isinstance(name, str):
        raise OpError(
            "a private PrimFunc is called by the GlobalVar that it has in its module, which "
            "mod.get_global_var(name) or BlockBuilder.add_func gives"
        )
    return GlobalVar(name)


def destination(
    operator: Op[...],
    func: Expr | tir.PrimFunc | str,
    args: Any,
    out_sinfo: Infos,
    tir_vars: TirVars,
    attrs: Mapping[str, Any] | None = None,
) -> Call:
    """A call of ``operator`` whose results are new tensors that ``out_sinfo`` describes."""
    callee = as_callee(_named_by_itself(func) if isinstance(func, tir.PrimFunc) else func)
    if operator is not call_dps_packed_op and not isinstance(callee, GlobalVar):
        raise OpError(f"{operator.name} calls a function of the module by its GlobalVar")
    operands = [callee, as_args(args)]
    if tir_vars is not None:
        operands.append(as_shape_operand(tir_vars))
    return Call(operator, operands, attrs, _tensors_only(out_sinfo, operator.name))


def call_tir(
    gvar: GlobalVar | tir.PrimFunc, args: Any, out_sinfo: Infos, tir_vars: TirVars = None
) -> Call:
    """``gvar(*args, *results)`` of a PrimFunc, with new tensors for the results.

    args: one value or several; out_sinfo: of each result (several make a tuple); tir_vars: values
    of its symbolic parameters that no argument's shape defines
    """
    return destination(call_tir_op, gvar, args, out_sinfo, tir_vars)


def call_tir_inplace(
    gvar: GlobalVar | tir.PrimFunc,
    args: Any,
    inplace_indices: int | Sequence[int],
    out_sinfo: Infos,
    tir_vars: TirVars = None,
) -> Call:
    """:func:`call_tir` whose result i may take the place of argument ``inplace_indices[i]``.

    -1 asks for a new tensor. The arguments that are replaced must not be used afterwards.
    """
    places = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(inplace_indices)
    attrs = {"inplace_indices": places}
    call = destination(call_tir_inplace_op, gvar, args, out_sinfo, tir_vars, attrs)
    _check_places(places, call)
    return call


def _check_places(places: tuple[int, ...], call: Call) -> None:
    """TVM's rules for ``call_tir_inplace``."""
    out = call.sinfo_args[0]
    results = out.fields if isinstance(out, TupleStructInfo) else (out,)
    info = call.args[1].struct_info_
    args = info.fields if isinstance(info, TupleStructInfo) else None
    name = "call_tir_inplace"
    if len(places) != len(results):
        raise OpError(
            f"{name}: inplace_indices is {list(places)}; there must be one for each of the "
            f"{len(results)} results"
        )
    _check_taken(places, None if args is None else len(args), name)
    for i, (place, result) in enumerate(zip(places, results, strict=True)):
        if args is not None and place != -1 and not _same_tensor(result, args[place]):
            raise OpError(
                f"{name}: result {i} is {show(result)} and cannot take the place of argument "
                f"{place}, which is {show(args[place])}; shape and dtype must be the same"
            )


def _check_taken(places: tuple[int, ...], count: int | None, name: str) -> None:
    """Indices of arguments or -1: in range, not all -1, no argument twice."""
    taken = [i for i in places if i != -1]
    why = ""
    if not taken:
        why = "at least one must not be -1"
    elif any(i < 0 or (count is not None and i >= count) for i in taken):
        why = f"each must be -1 or the index of one of the {count} arguments"
    elif len(set(taken)) != len(taken):
        why = "no argument can be replaced by two results"
    if why:
        raise OpError(f"{name}: inplace_indices is {list(places)}; {why}")


def _same_tensor(result: StructInfo, arg: StructInfo) -> bool:
    return (
        isinstance(result, TensorStructInfo)
        and isinstance(arg, TensorStructInfo)
        and result.dtype == arg.dtype
        and (dims_equal(result.dims, arg.dims) or (result.dims is None and result == arg))
    )


def call_tir_with_grad(
    gvar: GlobalVar | tir.PrimFunc,
    args: Any,
    out_sinfo: Infos,
    te_grad_name: str,
    te_grad_kwargs: Mapping[str, Any] | None = None,
    tir_vars: TirVars = None,
) -> Call:
    """:func:`call_tir` with the registered name of the function that gives its gradient."""
    attrs = {"te_grad_name": te_grad_name, "te_grad_kwargs": dict(te_grad_kwargs or {})}
    return destination(call_tir_with_grad_op, gvar, args, out_sinfo, tir_vars, attrs)


def call_dps_packed(func: Expr | str, args: Any, out_sinfo: Infos) -> Call:
    """``func(*args, *results)`` of a packed function, with new tensors for the results.

    args: one value or several; numbers of Python have 64 bits
    """
    given = as_packed(args) if isinstance(args, list | tuple | int | float) else args
    return destination(call_dps_packed_op, func, given, out_sinfo, None)


def call_py_func(func_name: str | Expr, args: Any, out_sinfo: Infos) -> Call:
    """A call of a Python function of the module, or a registered one, by its name.

    args: one value or several; out_sinfo: of each result (several make a tuple)
    """
    name = as_string_operand(func_name)
    if not isinstance(name, StringImm):
        raise OpError(f"call_py_func: the name of a function expected; got {func_name!r}")
    return Call(
        call_py_func_op, [name, as_args(args)], None, _tensors_only(out_sinfo, "call_py_func")
    )


def _several(sinfo_args: Infos | None, name: str) -> list[StructInfo]:
    if isinstance(sinfo_args, StructInfo):
        return [sinfo_args]
    infos = list(sinfo_args or ())
    if not infos:
        raise OpError(f"{name}: `sinfo_args` must say what the result is")
    return [_one(i, name)[0] for i in infos]


def _values(args: Sequence[Any]) -> list[Expr]:
    return [as_packed(a) for a in args]


def call_pure_packed(func: Expr | str, *args: Any, sinfo_args: Infos) -> Call:
    """A call of a packed function that the caller promises has no side effects.

    func: a packed function; args: its arguments
    result: the struct infos given with the call
    """
    infos = _several(sinfo_args, "call_pure_packed")
    return Call(call_pure_packed_op, [as_callee(func), *_values(args)], None, infos)


def call_inplace_packed(
    func: Expr | str, *args: Any, inplace_indices: int | Sequence[int], sinfo_args: Infos
) -> Call:
    """A call of a packed function whose result i is argument ``inplace_indices[i]`` changed."""
    places = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(inplace_indices)
    values, infos = _values(args), _several(sinfo_args, "call_inplace_packed")
    _check_taken(places, len(values), "call_inplace_packed")
    whole = infos[0] if len(infos) == 1 else TupleStructInfo(infos)
    results: Sequence[StructInfo] = [whole]
    if len(places) > 1:
        results = whole.fields if isinstance(whole, TupleStructInfo) else ()
        if len(results) != len(places):
            raise OpError(
                f"call_inplace_packed: {len(places)} inplace_indices need a tuple of as many "
                f"results; sinfo_args say {show(whole)}"
            )
    for place, result in zip(places, results, strict=True):
        known = None if place == -1 else values[place].struct_info_
        if known is not None and not is_base_of(result, known):
            raise OpError(
                f"call_inplace_packed: the result in the place of argument {place} is "
                f"{show(result)}, but that argument is {show(known)}"
            )
    return Call(
        call_inplace_packed_op, [as_callee(func), *values], {"inplace_indices": places}, infos
    )


def call_builtin_with_ctx(func: Expr | str, args: Any, *, sinfo_args: Infos | None = None) -> Call:
    """A call of a builtin of the virtual machine; its result is an object unless stated."""
    infos = [] if sinfo_args is None else _several(sinfo_args, "call_builtin_with_ctx")
    return Call(call_builtin_with_ctx_op, [as_callee(func), as_args(args)], None, infos)


def invoke_closure(closure: Expr, args: Any, sinfo_args: Infos) -> Call:
    """A call of a closure, which may have side effects.

    sinfo_args: of the result; several make a tuple, none an object
    """
    infos = _several(sinfo_args, "invoke_closure") if sinfo_args else []
    return Call(invoke_closure_op, [closure, as_args(args)], None, infos)


def invoke_pure_closure(closure: Expr, args: Any, sinfo_args: Infos) -> Call:
    """A call of a closure that the caller promises has no side effects.

    sinfo_args: of the result; several make a tuple, none an object
    """
    infos = _several(sinfo_args, "invoke_pure_closure") if sinfo_args else []
    return Call(invoke_pure_closure_op, [closure, as_args(args)], None, infos)


# ---- effects
@op("relax.print", Opaque(), pure=False)
def print(*values: Expr, format: str = "") -> StructInfo:
    """Prints values when the program runs; ``format`` is a Python format string.

    values: anything; tuples of Python are tuples
    result: an empty tuple
    """
    return TupleStructInfo(())


@print.shorthand
def _(given: Given) -> Given:
    values: Sequence[Any] = given["values"]
    return {"values": tuple(as_args(v) if isinstance(v, list | tuple) else v for v in values)}


@op("relax.assert_op", Opaque(), pure=False)
def assert_op(condition: PrimLike, *format_args: Expr, format: str = "") -> StructInfo:
    """Stops the program with an error unless ``condition`` holds.

    condition: a bool of rank 0; format_args: values for the Python format string ``format``
    result: an empty tuple
    """
    info = condition.struct_info
    if isinstance(info, PrimStructInfo):
        if info.dtype != "bool":
            raise OpError(f"`condition` must be a bool; got {show(info)}")
    else:
        want_tensor(condition, "condition", ("bool",), ndim=0)
    return TupleStructInfo(())


@assert_op.shorthand
def _(given: Given) -> Given:
    values = given["format_args"]
    if len(values) == 1 and isinstance(values[0], list | tuple):
        return {"format_args": tuple(values[0])}
    return {}

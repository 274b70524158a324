"""The lattice of struct infos: base checks, least common ancestors, and results of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import tir
from relax2xla.errors import OpError, StructInfoError
from relax2xla.ir import late
from relax2xla.ir.expr import Call, Expr, ShapeExpr, Var
from relax2xla.ir.op import Op
from relax2xla.ir.struct_info import (
    Dims,
    DTensorStructInfo,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    show,
)
from relax2xla.tir import Dim

SymMap = dict[tir.Var, Dim]


def dims_equal(a: Dims | None, b: Dims | None) -> bool:
    """Whether two shapes are provably equal."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(x == y or tir.can_prove_equal(x, y) for x, y in zip(a, b, strict=True))


@late.is_base_of.given
def is_base_of(base: StructInfo, derived: StructInfo) -> bool:
    """Whether every value that ``derived`` describes is described by ``base``, provably."""
    match base, derived:
        case ObjectStructInfo(), _:
            return True
        case TensorStructInfo(), TensorStructInfo():
            if base.dtype and base.dtype != derived.dtype:
                return False
            if base.vdevice is not None and base.vdevice != derived.vdevice:
                return False
            if base.dims is not None:
                return dims_equal(base.dims, derived.dims)
            if base.shape is not None:
                return base.shape is derived.shape
            return base.ndim in (-1, derived.ndim)
        case DTensorStructInfo(), DTensorStructInfo():
            return _placed_alike(base, derived) and is_base_of(
                base.tensor_sinfo, derived.tensor_sinfo
            )
        case ShapeStructInfo(), ShapeStructInfo():
            if base.values is not None:
                return dims_equal(base.values, derived.values)
            return base.ndim in (-1, derived.ndim)
        case PrimStructInfo(), PrimStructInfo():
            if base.dtype != derived.dtype:
                return False  # also where both have one value: 0 of int32 is none of int64
            if base.value is None:
                return True
            return derived.value is not None and tir.can_prove_equal(base.value, derived.value)
        case TupleStructInfo(), TupleStructInfo():
            return len(base.fields) == len(derived.fields) and all(
                map(is_base_of, base.fields, derived.fields)
            )
        case FuncStructInfo(), FuncStructInfo():
            if base.purity and not derived.purity:
                return False
            if base.params is None:
                return is_base_of(base.ret, derived.ret)
            if derived.params is None or len(base.params) != len(derived.params):
                return False
            if same_function(base, derived):
                return True
            # Parameters like results, as in TVM: what a function takes is checked at its call.
            return all(map(is_base_of, base.params, derived.params)) and is_base_of(
                base.ret, derived.ret
            )
        case _:
            return False


def same_function(a: FuncStructInfo, b: FuncStructInfo) -> bool:
    """Whether both are equal up to the symbolic variables that their parameters define."""
    return a == b or late.structural_equal.call(a, b)


def _placed_alike(a: DTensorStructInfo, b: DTensorStructInfo) -> bool:
    return a.device_mesh == b.device_mesh and a.placement == b.placement


@late.struct_info_lca.given
def struct_info_lca(lhs: StructInfo, rhs: StructInfo) -> StructInfo:
    """The most specific struct info that describes the values of both."""
    a, b = lhs, rhs
    if is_base_of(a, b):
        return a
    if is_base_of(b, a):
        return b
    match a, b:
        case TensorStructInfo(), TensorStructInfo():
            dtype = a.dtype if a.dtype == b.dtype else ""
            device = a.vdevice if a.vdevice == b.vdevice else None
            if a.dims is not None and dims_equal(a.dims, b.dims):
                return TensorStructInfo(a.dims, dtype, device)
            return TensorStructInfo(None, dtype, device, a.ndim if a.ndim == b.ndim else -1)
        case DTensorStructInfo(), DTensorStructInfo() if _placed_alike(a, b):
            both = struct_info_lca(a.tensor_sinfo, b.tensor_sinfo)
            cut = [d for d in a.placement.axes if d is not None]
            if isinstance(both, TensorStructInfo) and (both.ndim != -1 or not cut):
                return a.of_tensor(both)
            return ObjectStructInfo()
        case ShapeStructInfo(), ShapeStructInfo():
            return ShapeStructInfo(ndim=a.ndim if a.ndim == b.ndim else -1)
        case PrimStructInfo(), PrimStructInfo() if a.dtype == b.dtype:
            return PrimStructInfo(a.dtype)
        case TupleStructInfo(), TupleStructInfo() if len(a.fields) == len(b.fields):
            return TupleStructInfo(list(map(struct_info_lca, a.fields, b.fields)))
        case FuncStructInfo(), FuncStructInfo():
            purity = a.purity and b.purity
            ret = struct_info_lca(a.ret, b.ret)
            if a.params is None or b.params is None or len(a.params) != len(b.params):
                return FuncStructInfo.opaque_func(ret=ret, purity=purity)
            return FuncStructInfo(list(map(struct_info_lca, a.params, b.params)), ret, purity)
        case _:
            return ObjectStructInfo()


Held = Callable[[Expr], Expr | None]


def map_dims(
    info: StructInfo, fn: Callable[[Dim], Dim | None], held: Held | None = None
) -> StructInfo:
    """``info`` with every dimension and known scalar replaced by ``fn`` of it.

    Where ``fn`` gives None for any dimension, the shape is forgotten and its rank kept. So does
    ``held`` with the shape of a tensor that a variable holds; without it these shapes stay.
    """

    def dims(values: Dims) -> Dims | None:
        new = [fn(d) for d in values]
        known = [d for d in new if d is not None]
        return tuple(known) if len(known) == len(new) else None

    match info:
        case TensorStructInfo() if info.dims is not None:
            new = dims(info.dims)
            if new is None:
                return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)
            return info if new == info.dims else TensorStructInfo(new, info.dtype, info.vdevice)
        case TensorStructInfo() if held is not None and info.shape is not None:
            shape = held(info.shape)
            if isinstance(shape, ShapeExpr):
                return map_dims(TensorStructInfo(shape, info.dtype, info.vdevice), fn)
            if isinstance(shape, Var):
                same = shape is info.shape
                return info if same else TensorStructInfo(shape, info.dtype, info.vdevice)
            return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)
        case DTensorStructInfo():
            tensor = map_dims(info.tensor_sinfo, fn, held)
            assert isinstance(tensor, TensorStructInfo)
            return info if tensor is info.tensor_sinfo else info.of_tensor(tensor)
        case ShapeStructInfo() if info.values is not None:
            new = dims(info.values)
            return ShapeStructInfo(ndim=info.ndim) if new is None else ShapeStructInfo(new)
        case PrimStructInfo() if info.value is not None:
            value = fn(tir.as_dim(info.value)) if info.dtype == "int64" else info.value
            return (
                PrimStructInfo(info.dtype) if value is None else PrimStructInfo(info.dtype, value)
            )
        case TupleStructInfo():
            return TupleStructInfo([map_dims(f, fn, held) for f in info.fields])
        case FuncStructInfo() if info.params is not None:
            params = [map_dims(p, fn, held) for p in info.params]
            return FuncStructInfo(params, map_dims(info.ret, fn, held), info.purity)
        case _:
            return info


def substitute(info: StructInfo, env: SymMap, held: Held | None = None) -> StructInfo:
    """``info`` with symbolic variables replaced, dimensions simplified; ``held`` of map_dims."""
    if (not env and held is None) or of_numbers(info):
        return info

    def one(d: Dim) -> Dim:
        return d if isinstance(d, int) else tir.as_dim(tir.simplify(tir.substitute(d, env)))

    return map_dims(info, one, held)


def of_numbers(info: StructInfo | None) -> bool:
    """Whether this is a tensor whose shape is numbers, or a tuple of such."""
    if type(info) is TensorStructInfo:
        return info.dims is not None and all([type(d) is int for d in info.dims])
    return isinstance(info, TupleStructInfo) and all(map(of_numbers, info.fields))


def free_symbolic_vars(info: StructInfo | None) -> list[tir.Var]:
    """Symbolic variables of ``info`` in order of appearance."""
    if of_numbers(info):
        return []
    found: dict[tir.Var, None] = {}

    def note(d: Dim) -> Dim:
        if not isinstance(d, int):
            found.update(dict.fromkeys(tir.free_vars(d)))
        return d

    if info is not None:
        map_dims(info, note)
    return list(found)


def definable_vars(info: StructInfo) -> list[tir.Var]:
    """Symbolic variables that a parameter of this struct info defines (a dimension by itself)."""
    if of_numbers(info):
        return []
    found: dict[tir.Var, None] = {}

    def note(d: Dim) -> Dim:
        if isinstance(d, tir.Var):
            found[d] = None
        return d

    map_dims(info, note)
    return list(found)


def held_shapes(info: StructInfo | None) -> list[Expr]:
    """The variables that hold the shapes of tensors in ``info``."""
    if isinstance(info, TensorStructInfo):  # the common case first
        return [] if info.dims is not None or info.shape is None else [info.shape]
    found: list[Expr] = []

    def note(shape: Expr) -> Expr:
        found.append(shape)
        return shape

    if info is not None:
        map_dims(info, lambda d: d, note)
    return found


def erase(
    info: StructInfo,
    known: Callable[[tir.Var], bool],
    visible: Callable[[Expr], bool] | None = None,
) -> StructInfo:
    """``info`` without the dimensions that use a symbolic variable which is not ``known``.

    A shape with such a dimension becomes its rank, a scalar its dtype; so do shapes that a
    variable holds which is not ``visible`` (left out: all are).
    """
    if of_numbers(info):
        return info

    def one(d: Dim) -> Dim | None:
        return d if isinstance(d, int) or all(map(known, tir.free_vars(d))) else None

    if visible is None:
        return map_dims(info, one)
    return map_dims(info, one, lambda shape: shape if visible(shape) else None)


def result_info(params: Sequence[Var], info: StructInfo) -> StructInfo:
    """What a function can say of its result: ``info`` as far as its parameters define it."""
    defined = {v for p in params for v in definable_vars(p.struct_info)}
    return erase(info, defined.__contains__, params.__contains__)


@late.signature_info.given
def signature_info(params: Sequence[Var], ret: StructInfo, pure: bool) -> FuncStructInfo:
    """What callers know of a function: its parameters' struct infos, but not the parameters."""
    if held_shapes(ret):
        ret = erase(ret, lambda v: True, lambda shape: shape not in params)
    return FuncStructInfo([p.struct_info for p in params], ret, pure)


class Mismatch(Exception):
    """Why a value does not fit a parameter (internal to the unifier)."""


def unify(param: StructInfo, value: StructInfo, env: SymMap) -> None:
    """Bind the symbolic variables of ``param`` so that ``value`` fits it; raise Mismatch if never.

    What cannot be decided at compile time (an unknown rank, an unprovable equality of symbolic
    dimensions) passes; the machine checks it when the call runs.
    """
    match param, value:
        case (ObjectStructInfo(), _) | (_, ObjectStructInfo()):
            return
        case TensorStructInfo(), TensorStructInfo():
            if param.dtype and value.dtype and param.dtype != value.dtype:
                raise Mismatch(f"dtype {value.dtype}, expected {param.dtype}")
            if param.ndim != -1 and value.ndim != -1 and param.ndim != value.ndim:
                raise Mismatch(f"ndim {value.ndim}, expected {param.ndim}")
            if param.dims is not None and value.dims is not None:
                unify_dims(param.dims, value.dims, env)
        case DTensorStructInfo(), DTensorStructInfo() if _placed_alike(param, value):
            unify(param.tensor_sinfo, value.tensor_sinfo, env)
        case ShapeStructInfo(), ShapeStructInfo():
            if param.ndim != -1 and value.ndim != -1 and param.ndim != value.ndim:
                raise Mismatch(f"ndim {value.ndim}, expected {param.ndim}")
            if param.values is not None and value.values is not None:
                unify_dims(param.values, value.values, env)
        case PrimStructInfo(), PrimStructInfo():
            if param.dtype != value.dtype:
                raise Mismatch(f"dtype {value.dtype}, expected {param.dtype}")
            if param.value is not None and value.value is not None and param.dtype == "int64":
                unify_dims((tir.as_dim(param.value),), (tir.as_dim(value.value),), env)
        case TupleStructInfo(), TupleStructInfo():
            if len(param.fields) != len(value.fields):
                raise Mismatch(f"{len(value.fields)} fields, expected {len(param.fields)}")
            for i, (p, v) in enumerate(zip(param.fields, value.fields, strict=True)):
                try:
                    unify(p, v, env)
                except Mismatch as e:
                    raise Mismatch(f"field {i}: {e}") from None
        case FuncStructInfo(), FuncStructInfo():
            _unify_functions(param, value)
        case _:
            raise Mismatch(f"{show(value)}, expected {show(param)}")


def _unify_functions(param: FuncStructInfo, value: FuncStructInfo) -> None:
    """As :func:`unify`; symbolic variables of a function's parameters are its own."""
    if param.params is None or is_base_of(param, value):
        return
    mismatch = Mismatch(f"{show(value)}, expected {show(param)}")
    if param.purity and not value.purity:
        raise mismatch
    if value.params is None:
        return
    if len(param.params) != len(value.params):
        raise mismatch
    own: SymMap = {}
    try:
        for p, v in zip((*param.params, param.ret), (*value.params, value.ret), strict=True):
            unify(p, v, own)
    except Mismatch as e:
        raise mismatch from e


def unify_dims(params: Dims, values: Dims, env: SymMap) -> None:
    """Bind dimensions of a parameter to those of a value, one by one."""
    for i, (p, v) in enumerate(zip(params, values, strict=True)):
        if isinstance(p, tir.Var):
            if p not in env:
                env[p] = v
                continue
            expected: Dim = env[p]
        elif isinstance(p, int):
            expected = p
        else:
            expected = tir.as_dim(tir.simplify(tir.substitute(p, env)))
        if isinstance(expected, int) and isinstance(v, int) and expected != v:
            name = "" if isinstance(p, int) else f" ({p})"
            raise Mismatch(f"{v} in dimension {i}, expected {expected}{name}")


def derive_call(func: FuncStructInfo, args: Sequence[StructInfo], what: str) -> StructInfo:
    """Struct info of calling a function value: bind its symbolic parameters, rewrite its result."""
    if func.params is None:
        return func.ret
    if len(func.params) != len(args):
        raise OpError(f"{what} takes {len(func.params)} arguments; got {len(args)}")
    env: SymMap = {}
    for i, (p, a) in enumerate(zip(func.params, args, strict=True)):
        try:
            unify(p, a, env)
        except Mismatch as e:
            raise OpError(f"{what}: argument {i} has {e}") from None
    bound = {v: d for p in func.params for v in definable_vars(p) if (d := env.get(v)) is not None}

    def result(d: Dim) -> Dim | None:
        if isinstance(d, int):
            return d
        if any(v not in bound for v in tir.free_vars(d)):
            return None
        return tir.as_dim(tir.simplify(tir.substitute(d, bound)))

    params_vars = {v for p in func.params for v in free_symbolic_vars(p)}
    if params_vars <= bound.keys() and not bound:
        return func.ret
    return map_dims(func.ret, result)


@late.infer_call.given
def infer_call(call: Call) -> StructInfo | None:
    """Struct info of a call that was just built; None if the callee's is not known yet."""
    if isinstance(call.op, Op):
        return call.op.infer_call(call)
    info: Any = call.op.struct_info_
    if call.sinfo_args:
        return call.sinfo_args[0] if len(call.sinfo_args) == 1 else TupleStructInfo(call.sinfo_args)
    if info is None:
        return None
    if isinstance(info, ObjectStructInfo):
        return ObjectStructInfo()
    if not isinstance(info, FuncStructInfo):
        raise StructInfoError(f"{call.op!r} is called, but it is no function: {show(info)}")
    if info.derive_func is not None:
        return _derived(info.derive_func, call)
    args = [a.struct_info_ for a in call.args]
    known = [a for a in args if a is not None]
    return derive_call(info, known, repr(call.op)) if len(known) == len(args) else None


def _derived(name: str, call: Call) -> StructInfo:
    """What the registered function ``name`` says of ``call``; it gets the call and None."""
    import importlib

    rule = importlib.import_module("relax2xla.runtime.registry").get_global_func(name)
    made: object = rule(call, None)
    if not isinstance(made, StructInfo):
        raise StructInfoError(
            f"the derive_func {name!r} of {call.op!r} must give a StructInfo; it gave {made!r}"
        )
    return made

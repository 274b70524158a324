"""Struct infos and symbolic variables: the lattice and its variables, under TVM's names."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from relax2xla import tir
from relax2xla.errors import StructInfoError
from relax2xla.ir import lattice
from relax2xla.ir.base import VDevice
from relax2xla.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    Var,
)
from relax2xla.ir.lattice import struct_info_lca as struct_info_lca
from relax2xla.ir.rewrite import (
    LEAF_TYPES,
    bindings_of,
    children,
    holders_deep,
    post_order_deep,
)
from relax2xla.ir.struct_info import (
    DTensorStructInfo,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.ir.types import Type, type_of


class BaseCheckResult(enum.IntEnum):
    """How far a struct info describes another; see ``struct_info_base_check``."""

    FAIL_L0 = 0
    FAIL_L1 = 1
    FAIL_L2 = 2
    PASS = 3


def struct_info_base_check(base: StructInfo, derived: StructInfo) -> BaseCheckResult:
    """Whether ``base`` describes what ``derived`` describes.

    PASS: always. FAIL_L2: kind, rank and dtype fit, the run-time shape decides. FAIL_L1: perhaps,
    for ``derived`` does not know enough of kind, rank or dtype. FAIL_L0: never.
    """
    if lattice.is_base_of(base, derived):
        return BaseCheckResult.PASS
    if _elsewhere(base, derived):
        return BaseCheckResult.FAIL_L0
    try:
        lattice.unify(base, derived, {v: v for v in lattice.free_symbolic_vars(base)})
    except lattice.Mismatch:
        return BaseCheckResult.FAIL_L0
    static = lattice.is_base_of(_static(base), _static(derived))
    return BaseCheckResult.FAIL_L2 if static else BaseCheckResult.FAIL_L1


def _elsewhere(base: StructInfo, derived: StructInfo) -> bool:
    """Whether a tensor of one is on another device than that of the other."""
    match base, derived:
        case TensorStructInfo(vdevice=VDevice() as a), TensorStructInfo(vdevice=VDevice() as b):
            return a != b
        case TupleStructInfo(), TupleStructInfo() if len(base.fields) == len(derived.fields):
            return any(map(_elsewhere, base.fields, derived.fields))
        case _:
            return False


def tir_vars_in_struct_info(sinfo: StructInfo) -> list[tir.Var]:
    """Symbolic variables in order of appearance."""
    return lattice.free_symbolic_vars(sinfo)


def definable_tir_vars_in_struct_info(sinfo: StructInfo) -> list[tir.Var]:
    """Symbolic variables that a value of this struct info defines: dimensions by themselves."""
    return lattice.definable_vars(sinfo)


def collect_non_negative_expressions(sinfo: StructInfo) -> list[tir.Dim]:
    """Symbolic dimensions, which are never negative; each once, in order.

    Scalars and numbers are not among them; of a function those of its parameters count.
    """
    found: dict[tir.Dim, None] = {}
    stack = [sinfo]
    while stack:
        info = stack.pop()
        if isinstance(info, TupleStructInfo):
            stack.extend(reversed(info.fields))
        elif isinstance(info, DTensorStructInfo):
            stack.append(info.tensor_sinfo)
        elif isinstance(info, FuncStructInfo):
            stack.extend(reversed(info.params or ()))
        elif isinstance(info, TensorStructInfo | ShapeStructInfo):
            dims = info.dims if isinstance(info, TensorStructInfo) else info.values
            found.update((d, None) for d in dims or () if not isinstance(d, int))
    return list(found)


def defined_symbolic_vars(func: Expr) -> list[tir.Var]:
    """Symbolic variables that ``func`` defines: parameters first, then match-casts and insides."""
    found: dict[tir.Var, None] = {}
    for p in func.params if isinstance(func, Function) else ():
        found.update(dict.fromkeys(lattice.definable_vars(p.struct_info)))
    # Inner ones first; of one function that is its body.
    nodes = list(holders_deep(func))[::-1]
    for node in nodes if len(nodes) <= 2 else post_order_deep(func):
        if isinstance(node, SeqExpr):
            for b in bindings_of(node):
                if isinstance(b, MatchCast):
                    found.update(dict.fromkeys(lattice.definable_vars(b.struct_info)))
        elif isinstance(node, Function):
            for p in node.params:
                found.update(dict.fromkeys(lattice.definable_vars(p.struct_info)))
    return list(found)


def free_symbolic_vars(func: Expr) -> list[tir.Var]:
    """Symbolic variables that ``func`` (a function, or any expression) uses but does not define."""
    used: dict[tir.Var, None] = {}

    def note(info: StructInfo | None) -> None:
        used.update(dict.fromkeys(lattice.free_symbolic_vars(info)))

    if type(func) is Call and all(type(k) in LEAF_TYPES for k in children(func)):
        read = [k.struct_info_ for k in children(func) if not isinstance(k, GlobalVar)]
        for info in (*read, *func.sinfo_args):
            note(info)
        return list(used)
    if isinstance(func, Function) and _is_static(func):
        return []
    for node in post_order_deep(func):
        if isinstance(node, Function):
            for p in node.params:
                note(p.struct_info)
            note(node.ret_struct_info)
        elif isinstance(node, SeqExpr):
            for b in bindings_of(node):
                note(b.var.struct_info_)
                note(b.struct_info if isinstance(b, MatchCast) else None)
        elif isinstance(node, ShapeExpr | PrimValue):
            note(node.struct_info_)
        elif isinstance(node, Call):
            for info in node.sinfo_args:
                note(info)
        elif not children(node) and not isinstance(node, GlobalVar):
            # What a function of the module says of itself names symbols of its own.
            note(node.struct_info_)
    defined = set(defined_symbolic_vars(func))
    return [v for v in used if v not in defined]


def _is_static(func: Function) -> bool:
    """Whether ``func`` is bindings of calls on tensors of known numbers; False: perhaps not."""
    known = [p.struct_info_ for p in func.params]
    known.append(func.ret_struct_info)
    for b in bindings_of(func.body):
        value = b.value
        if type(value) is not Call or isinstance(b, MatchCast):
            return False
        known.append(b.var.struct_info_)
        known += value.sinfo_args
        for a in children(value):
            for leaf in a.fields if type(a) is Tuple else (a,):
                if isinstance(leaf, Var | Constant):
                    known.append(leaf.struct_info_)
                elif not isinstance(leaf, GlobalVar):
                    return False
    body = func.body.body
    for leaf in body.fields if isinstance(body, Tuple) else (body,):
        if not isinstance(leaf, Var):
            return False
        known.append(leaf.struct_info_)
    # Mostly there are few of them, which many share.
    return all(map(lattice.of_numbers, {id(i): i for i in known}.values()))


def erase_to_well_defined(
    sinfo: StructInfo,
    shape_var_map: Mapping[tir.Var, tir.Dim] | None = None,
    var_map: Mapping[Var, Expr] | None = None,
) -> StructInfo:
    """``sinfo`` in terms of what is visible elsewhere.

    ``shape_var_map`` replaces symbolic variables, ``var_map`` variables that hold a tensor's
    shape. Shapes that use others become ranks; so without maps all symbolic shapes do. Functions
    have symbols of their own and stay as they are.
    """
    env, values = dict(shape_var_map or {}), dict(var_map or {})

    def erased(info: StructInfo) -> StructInfo:
        match info:
            case FuncStructInfo():
                return info
            case TupleStructInfo():
                return TupleStructInfo([erased(f) for f in info.fields])
            case TensorStructInfo() if isinstance(info.shape, Var):
                shape = values.get(info.shape)
                if shape is None:
                    return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)
                new = TensorStructInfo(shape, info.dtype, info.vdevice)
                return new if isinstance(shape, Var) else erased(new)
            case _:
                return lattice.substitute(lattice.erase(info, env.__contains__), env)

    return erased(sinfo)


def get_static_type(sinfo: StructInfo) -> Type:
    """The type of ``sinfo``: the kind of value, dtype and rank, without shapes."""
    return type_of(sinfo)


def _static(sinfo: StructInfo) -> StructInfo:
    """``sinfo`` without shape values: what depends on no run-time value (ranks and dtypes stay)."""
    match sinfo:
        case TensorStructInfo():
            return TensorStructInfo(None, sinfo.dtype, ndim=sinfo.ndim)
        case ShapeStructInfo():
            return ShapeStructInfo(ndim=sinfo.ndim)
        case DTensorStructInfo():
            tensor = sinfo.tensor_sinfo
            return sinfo.of_tensor(TensorStructInfo(None, tensor.dtype, ndim=tensor.ndim))
        case PrimStructInfo():
            return PrimStructInfo(sinfo.dtype)
        case TupleStructInfo():
            return TupleStructInfo([_static(f) for f in sinfo.fields])
        case FuncStructInfo():
            params = None if sinfo.params is None else [_static(p) for p in sinfo.params]
            return FuncStructInfo(params, _static(sinfo.ret), sinfo.purity)
        case _:
            return sinfo


def derive_call_ret_struct_info(
    func_sinfo: FuncStructInfo, call: Call, ctx: object = None
) -> StructInfo:
    """Struct info of ``call``, whose callee has ``func_sinfo``.

    ``ctx``: the BlockBuilder, as in TVM; nothing is asked of it, for symbols are known by identity.
    Raises OpError where the arguments do not fit.
    """
    if func_sinfo.params is None and call.sinfo_args:
        infos = call.sinfo_args
        return infos[0] if len(infos) == 1 else TupleStructInfo(infos)
    infos = [a.struct_info_ for a in call.args]
    known = [i for i in infos if i is not None]
    if len(known) != len(infos):
        raise StructInfoError(f"an argument of {call!r} has no struct info")
    return lattice.derive_call(func_sinfo, known, repr(call.op))

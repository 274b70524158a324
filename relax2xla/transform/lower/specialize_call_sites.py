"""SpecializePrimFuncBasedOnCallSite: kernels for the shapes and memory that calls give them.

Source of the semantics: the pass of this name of TVM v0.25.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from relax2xla.builder import BlockBuilder
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Call,
    Expr,
    GlobalVar,
    IRModule,
    Op,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)
from relax2xla.ir.rewrite import children, inner_children, post_order, rewrite_function
from relax2xla.ir.struct_info import show
from relax2xla.tir import PrimExpr, PrimFunc, Var
from relax2xla.tir.buffer import Buffer, PointerVar
from relax2xla.tir.node import Dim
from relax2xla.tir.stmt_functor import Rewriter as LoopRewriter
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.kernel_calls import CALL_TIR, PRIMITIVE

SCOPED: Final = "scoped"
# The sizes that a call binds, by parameter and axis, and the memory scope of each parameter.
Site = tuple[GlobalVar, tuple[tuple[int | None, ...], ...], tuple[str, ...]]


@register()
class SpecializePrimFuncBasedOnCallSite(Pass):
    """Bind sizes of loop-level functions to those of calls, and buffers to their memory scopes.

    For each ``call_tir`` and ``call_tir_inplace``: symbolic sizes of the function become the
    numbers that the call gives, and each buffer gets the scope of the virtual device of its tensor
    (``global`` without one). A function that is called in several ways is there several times.
    They get the attribute ``scoped``. Functions with the attribute ``Primitive`` are left alone.
    TransformError where a call does not fit the function. XLA knows no scopes: results stay.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        sites = _Sites(mod)
        changed = {
            gvar: rewrite_function(func, rule=sites.call, leaves=False)
            for gvar, func in mod.relax_functions().items()
            if not func.attrs.get(PRIMITIVE)
        }
        return mod.replace({**sites.builder.get().functions, **sites.made, **changed})


class _Sites:
    """Kernels by how they are called; ``made``: those that keep their names."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.builder = BlockBuilder(mod)
        self.made: dict[GlobalVar, PrimFunc] = {}
        self.known: dict[Site, GlobalVar] = {}
        # The same by what calls say, which costs less to compare.
        self.by_infos: dict[tuple[Any, ...], GlobalVar] = {}
        self.elsewhere = _named_elsewhere(mod)

    def call(self, node: Expr) -> Expr | None:
        """The call of the kernel that is made for it."""
        if not _is_site(node):
            return None
        assert isinstance(node, Call)
        name = node.args[0]
        kernel = self.mod.functions.get(name) if isinstance(name, GlobalVar) else None
        if not isinstance(name, GlobalVar) or not isinstance(kernel, PrimFunc):
            return None
        key = (name, node.args[1].struct_info_, node.sinfo_args, node.attrs)
        found = self.by_infos.get(key)
        if found is None:
            found = self.by_infos[key] = self._kernel(node, name, kernel)
        if found is name:
            return None
        args = [found, *node.args[1:]]
        info = node.struct_info
        return Call(node.op, args, node.attrs, node.sinfo_args, node.span, struct_info=info)

    def _kernel(self, node: Call, name: GlobalVar, kernel: PrimFunc) -> GlobalVar:
        """The kernel for a call of ``kernel``, made where it is the first of its kind."""
        infos = _tensors(node, name)
        handles = [p for p in kernel.params if p in kernel.buffer_map]
        if len(handles) != len(infos):
            raise TransformError(
                f"SpecializePrimFuncBasedOnCallSite: {name.name_hint} takes {len(handles)} buffers;"
                f" a call has {len(infos)} operands and new results"
            )
        own = [kernel.buffer_map[p] for p in handles]
        sizes = tuple(_bound(b, i, name) for b, i in zip(own, infos, strict=True))
        scopes = tuple("global" if i.vdevice is None else i.vdevice.memory_scope for i in infos)
        site = name, sizes, scopes
        if site not in self.known:
            func = _specialised(kernel, name, handles, sizes, scopes)
            if name in self.made or name in self.elsewhere:
                self.known[site] = self.builder.add_func(func, name.name_hint)
            else:
                self.made[name] = func
                self.known[site] = name
        return self.known[site]


def _is_site(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name in CALL_TIR


def _named_elsewhere(mod: IRModule) -> set[GlobalVar]:
    """Functions that are called by anything else than a call that is looked at."""
    found: set[GlobalVar] = set()
    for func in mod.relax_functions().values():
        left = bool(func.attrs.get(PRIMITIVE))
        for node in post_order(func, below=inner_children):
            below = children(node)
            if _is_site(node) and not left:
                below = below[1:]
            found.update(c for c in below if isinstance(c, GlobalVar))
    return found


def _tensors(call: Call, name: GlobalVar) -> list[TensorStructInfo]:
    """What the buffers of a kernel hold: operands, then results that are new."""
    given = call.args[1]
    operands: Sequence[StructInfo]
    if isinstance(given, Tuple):
        operands = [f.struct_info for f in given.fields]
    else:
        info = given.struct_info
        operands = info.fields if isinstance(info, TupleStructInfo) else [info]
    result = call.sinfo_args[0]
    results = result.fields if isinstance(result, TupleStructInfo) else (result,)
    places = call.attrs.get("inplace_indices") or (-1,) * len(results)
    new = [i for i, place in zip(results, places, strict=True) if place == -1]
    found: list[TensorStructInfo] = []
    for info in (*operands, *new):
        if not isinstance(info, TensorStructInfo) or info.dims is None:
            raise TransformError(
                f"SpecializePrimFuncBasedOnCallSite: a call of {name.name_hint} has {show(info)}; "
                "its operands and results must be tensors of known shapes"
            )
        found.append(info)
    return found


def _bound(own: Buffer, info: TensorStructInfo, name: GlobalVar) -> tuple[int | None, ...]:
    """The numbers that symbolic sizes of a buffer are; None where nothing is bound."""
    dims: Sequence[Dim] = info.dims or ()
    if len(dims) != own.ndim:
        raise TransformError(
            f"SpecializePrimFuncBasedOnCallSite: {name.name_hint} has {own.name} with {own.ndim} "
            f"axes; a call gives it {show(info)}"
        )
    pairs = zip(own.shape, dims, strict=True)
    return tuple(d if isinstance(s, Var) and isinstance(d, int) else None for s, d in pairs)


def _specialised(
    kernel: PrimFunc,
    name: GlobalVar,
    handles: Sequence[Var],
    sizes: Sequence[tuple[int | None, ...]],
    scopes: Sequence[str],
) -> PrimFunc:
    """``kernel`` with its sizes and scopes bound."""
    given: dict[Var, Dim | Buffer] = {}
    for p, bound in zip(handles, sizes, strict=True):
        own = kernel.buffer_map[p]
        if any(n is not None for n in bound):
            pairs = zip(own.shape, bound, strict=True)
            given[p] = replace(own, shape=tuple(s if n is None else n for s, n in pairs))
    try:
        func = kernel.specialize(given)
    except ValueError as e:
        raise TransformError(
            f"SpecializePrimFuncBasedOnCallSite: a call does not fit {name.name_hint}: {e}"
        ) from None
    return _in_scopes(func, dict(zip(handles, scopes, strict=True))).with_attr(SCOPED, 1)


def _in_scopes(func: PrimFunc, scopes: dict[Var, str]) -> PrimFunc:
    """``func`` with the buffers of its parameters in these memory scopes."""
    pointers: dict[Var, PrimExpr] = {}
    rewriter = LoopRewriter(lambda e: pointers.get(e) if isinstance(e, Var) else None)
    held = dict(func.buffer_map)
    for p, own in func.buffer_map.items():
        if own.scope != scopes[p]:
            data = PointerVar(own.data.name, own.dtype, scopes[p])
            pointers[own.data] = data
            held[p] = replace(own, data=data, scope=scopes[p])
            rewriter.buffers[id(own)] = own, held[p]
    if not pointers:
        return func
    return PrimFunc(func.params, rewriter.stmt(func.body), func.ret_type, held, func.attrs)

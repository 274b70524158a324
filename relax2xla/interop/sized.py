"""Sizes that depend on values: computed from known arguments, before the rest is traced.

``nonzero``, ``unique`` and sizes that tensors hold make a function no single program. What they
are computed from is often known where JAX traces what is differentiated: a mask, positions to split
at. So the function is cut in two: what leads to such values, which the machine runs on known
arguments, and the rest, a program that takes these values as further parameters and is specialised
for their shapes. This is what JAX does of ``jnp.nonzero`` of an array that it does not trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import UnsupportedError
from relax2xla.interop.weights import kind_of
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    MatchCast,
    Op,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Span,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import definable_vars, free_symbolic_vars
from relax2xla.ir.rewrite import bindings_of, post_order_deep, rewrite_function
from relax2xla.transform.normal.homes import Ordinary
from relax2xla.vm.plan.host_reasons import HostReasons, is_machine_call, place


class Sizes:
    """Values of a function that decide on sizes, as a function of its parameters.

    ``params``: those that it reads, by their number; ``what``: the operators and their places, for
    messages.
    """

    def __init__(self, func: Function, params: Mapping[int, str], what: Sequence[str]) -> None:
        self.func, self.params, self.what = func, params, what

    @cached_property
    def _call(self) -> Any:
        from relax2xla.vm.call.machine import VirtualMachine
        from relax2xla.vm.plan.build import build

        return VirtualMachine(build(IRModule({GlobalVar("main"): self.func})))["main"]

    def values(self, leaves: Sequence[Any], name: str) -> list[Any]:
        """The values for the arguments of a call; UnsupportedError for those that JAX traces."""
        import jax

        from relax2xla.vm.pjrt.xla import is_tracer

        given = {i: jax.tree.leaves(leaves[i]) for i in self.params}
        traced = [n for i, n in self.params.items() if any(map(is_tracer, given[i]))]
        if traced:
            raise UnsupportedError(
                f"{name}: sizes depend on the values of {', '.join(traced)}, which JAX traces: "
                f"{', '.join(self.what)}. Give known arrays there: neither differentiate nor map "
                "over them, and under jax.jit close over them"
            )
        held = zip(self.params, self.func.params, strict=True)
        made = self._call(*(_entered(leaves[i], p.struct_info) for i, p in held))
        return [_plain(m) for m in made]


def _entered(value: Any, declared: StructInfo) -> Any:
    """An argument in the declared dtype, of which JAX may have less: 32 bits, or a policy's."""
    if isinstance(declared, TupleStructInfo) and isinstance(value, tuple | list):
        return tuple(map(_entered, value, declared.fields))
    if isinstance(declared, TensorStructInfo) and declared.dtype and hasattr(value, "aval"):
        return np.asarray(value).astype(numpy_dtype(declared.dtype))
    return value


def _plain(value: Any) -> Any:
    """A value of the machine as callers have them: arrays of numpy, tuples of integers."""
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return np.asarray(value) if hasattr(value, "dtype") else value


def apart(mod: IRModule, name: str) -> tuple[IRModule, Sizes] | str:
    """The module with parameters for the values that decide on sizes, and these values.

    Or why the function cannot be cut: it has effects or packed functions, such values are inside
    branches or loops, or they depend on weights, which are the caller's.
    """
    func = mod[name]
    assert isinstance(func, Function)
    own = list(bindings_of(func.body))
    # Parameters that hold weights are behind the inputs, where the values would be.
    holds = func.attrs.get("num_input", len(func.params)) != len(func.params)
    if holds or any(map(_is_nested, own)):
        return _NO_PROGRAM
    hosts = HostReasons(mod)
    wanted: list[VarBinding] = []
    for b in own:
        if not isinstance(b, VarBinding) or hosts.value(b.value, b) is None:
            continue
        op = b.value.op if isinstance(b.value, Call) else None
        if not isinstance(op, Op) or not op.pure or is_machine_call(op):
            return _NO_PROGRAM
        wanted.append(b)
    if not wanted:
        return _NO_PROGRAM
    kept = _needed(own, wanted)
    weights = [c.span.name if c.span is not None else "" for c in _constants(kept) if _is_weight(c)]
    if weights:
        named = ", ".join(dict.fromkeys(w for w in weights if w)) or "constants"
        return f"its size depends on weights, which the caller may change ({_shortened(named)})"
    read = {n for b in kept for n in post_order_deep(b.value) if isinstance(n, Var)}
    params = {i: p.name_hint for i, p in enumerate(func.params) if p in read}
    body = SeqExpr([BindingBlock(kept)], Tuple([b.var for b in wanted]))
    sizes = Ordinary().function(
        Function([func.params[i] for i in params], body, attrs={"global_symbol": "main"})
    )
    what = [f"{_name(b)}{_at(b.span or b.var.span)}" for b in wanted]
    new = {**mod.functions, mod.get_global_var(name): _rest(func, wanted)}
    return mod.replace(new), Sizes(sizes, params, what)


_NO_PROGRAM = "it runs on the host, so the function is no single program"


def _shortened(text: str) -> str:
    """A list of names that is not too long for a message."""
    return text if len(text) <= 80 else f"{text[:80]} ..."


def _is_nested(b: Binding) -> bool:
    """Whether a binding calls a function, which may itself be on the host."""
    return isinstance(b.value, Call) and isinstance(b.value.op, GlobalVar | Var)


def _name(b: VarBinding) -> str:
    assert isinstance(b.value, Call)
    assert isinstance(b.value.op, Op)
    return b.value.op.name


def _at(span: Span | None) -> str:
    return f" (at {place(span)})" if span is not None else ""


def _rest(func: Function, wanted: Sequence[VarBinding]) -> Function:
    """``func`` with parameters for the values of ``wanted``, after its own."""
    new: dict[Var, Expr] = {b.var: Var(b.var.name_hint, b.var.struct_info, b.span) for b in wanted}
    gone = {b.var for b in wanted}
    blocks = [
        type(block)([b for b in block.bindings if b.var not in gone], block.span)
        for block in func.body.blocks
    ]
    body = SeqExpr([b for b in blocks if b.bindings], func.body.body, func.body.span)
    params = [*func.params, *(v for v in new.values() if isinstance(v, Var))]
    attrs = dict(func.attrs)
    if "num_input" in attrs:
        attrs["num_input"] = len(params)
    return rewrite_function(func.replace(params=params, body=body, attrs=attrs), values=new)


def _needed(own: Sequence[Binding], wanted: Sequence[Binding]) -> list[Binding]:
    """The bindings that ``wanted`` are computed from, these included, in order."""
    live: set[Expr] = {b.var for b in wanted}
    symbols: set[tir.Var] = set()
    kept: list[Binding] = []
    for b in reversed(own):
        defined = definable_vars(b.struct_info) if isinstance(b, MatchCast) else []
        if b.var not in live and symbols.isdisjoint(defined):
            continue
        kept.append(b)
        for node in post_order_deep(b.value):
            if isinstance(node, Var):
                live.add(node)
            symbols.update(_mentioned(node))
        symbols.update(free_symbolic_vars(b.var.struct_info_))
    return kept[::-1]


def _mentioned(node: Expr) -> Iterable[tir.Var]:
    """Symbolic dimensions that an expression itself names."""
    if isinstance(node, ShapeExpr):
        return [v for d in node.values if isinstance(d, tir.PrimExpr) for v in tir.free_vars(d)]
    if isinstance(node, PrimValue) and isinstance(node.value, tir.PrimExpr):
        return tir.free_vars(node.value)
    if isinstance(node, Call):
        return [v for info in node.sinfo_args for v in free_symbolic_vars(info)]
    return ()


def _constants(bindings: Sequence[Binding]) -> Iterable[Constant]:
    return (n for b in bindings for n in post_order_deep(b.value) if isinstance(n, Constant))


def _is_weight(node: Constant) -> bool:
    """Whether a constant may be in ``params``, so that its values are those of the call."""
    return kind_of(node) == "parameter" or (
        not kind_of(node) and node.data.ndim > 0 and node.data.dtype.kind not in "iub"
    )

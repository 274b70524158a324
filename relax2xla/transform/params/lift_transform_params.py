"""LiftTransformParams: what is computed from weights alone becomes a function of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from relax2xla import op
from relax2xla.analysis.struct_infos import free_symbolic_vars as symbols_within
from relax2xla.analysis.unused import remove_all_unused
from relax2xla.analysis.variables import contains_impure_call, free_vars
from relax2xla.dpl.emit import part_key, value_key
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    IRModule,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.lattice import (
    Mismatch,
    SymMap,
    definable_vars,
    free_symbolic_vars,
    of_numbers,
    substitute,
    unify,
)
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import Rewriter, bindings_deep, bindings_of, post_order_deep
from relax2xla.ir.struct_info import show
from relax2xla.tir import IntImm, PrimExpr
from relax2xla.tir import Var as Symbol
from relax2xla.tir import free_vars as symbols_of
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.context import CONSUME_PARAMS
from relax2xla.transform.normal.canonicalize import CanonicalizeBindings
from relax2xla.transform.params.bundle_model_params import bundled
from relax2xla.transform.params.common import number_of_inputs

SUFFIX = "transform_params"
RESET = "vm.builtin.tuple_reset_item"
STOP = "relax.builtin.stop_lift_params"


@register(opt_level=1)
class LiftTransformParams(Pass):
    """Split each function with ``num_input``: ``f_transform_params`` computes, from a tuple of the
    weights, what dataflow blocks compute from weights alone; ``f`` takes the results instead.

    Weights are the parameters behind the first ``num_input``. The results are the weights that are
    still read as they are, then what was lifted, each in its order; before them, if sizes are
    needed that nothing else tells, a shape. What depends on no weight (``zeros``) stays and is
    repeated; ``builtin.stop_lift_params(x)`` is not lifted, and then ``x``. A
    ``f_transform_params`` that the module has is run before the new one.

    ``shared_transform``: True for one function ``transform_params`` that serves all of them, a list
    for one that serves those; it computes what all have in common. Raises TransformError where
    their weights differ, and for a name in the list that is no function with ``num_input``.

    ``build`` does this by itself for weights that are constants (LiftWeights); this pass is for
    weights that are arguments, so that they are prepared once and not at every call.

    Measured: four layers 512x512 on 16 rows, weights arguments that are scaled and transposed: 5.5,
    3.6
    """

    def __init__(self, shared_transform: bool | Sequence[str] = False) -> None:
        if isinstance(shared_transform, str):
            raise TypeError(
                f"shared_transform is a bool or a list of names; got {shared_transform!r}"
            )
        self.shared = bool(shared_transform)
        self.names = None if isinstance(shared_transform, bool) else tuple(shared_transform)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        functions = self._functions(mod)
        new = dict(mod.functions)
        made: dict[str, Function] = {}
        if self.shared:
            if functions:
                plan = _Plan(list(functions.values()), shared=True)
                made[SUFFIX] = plan.transform()
                new |= dict(zip(functions, plan.mains(), strict=True))
        else:
            for gvar, func in functions.items():
                plan = _Plan([func], shared=False)
                made[f"{gvar.name_hint}_{SUFFIX}"] = plan.transform()
                new[gvar] = plan.mains()[0]
        for name, func in made.items():
            old = next((g for g in new if g.name_hint == name), None)
            if old is not None:
                func = _after(new.pop(old), func, name)
            new[GlobalVar(name)] = func
        consume = bool(context.config.get(CONSUME_PARAMS))
        for gvar, func in new.items():
            if isinstance(func, Function) and gvar.name_hint.endswith(SUFFIX):
                func = func.with_attr("global_symbol", gvar.name_hint)
                new[gvar] = _consuming(func) if consume else func
        canonical = CanonicalizeBindings()
        for gvar in functions:
            new[gvar] = canonical.transform_function(new[gvar], mod, context)
        return mod.replace(new)

    def _functions(self, mod: IRModule) -> dict[GlobalVar, Function]:
        """The functions to be split, by name."""
        all_functions = {g.name_hint: (g, f) for g, f in mod.relax_functions().items()}
        able = {n: f for n, f in all_functions.items() if "num_input" in f[1].attrs}
        for name in self.names or ():
            if name not in able:
                raise TransformError(
                    f"LiftTransformParams: shared_transform names {name!r}, which is no Relax "
                    f"function with the attribute num_input; such are {', '.join(able) or 'none'}"
                )
        if self.names:
            return dict(able[name] for name in self.names)
        return {
            gvar: func for name, (gvar, func) in sorted(able.items()) if not name.endswith(SUFFIX)
        }


class _Local:
    """One function of a plan: which of its bindings may be lifted, and what the others need.

    names: weights and lifted variables to those of the plan; symbols: its symbolic variables to
    the plan's
    """

    def __init__(self, func: Function, index: int) -> None:
        self.func, self.index = func, index
        self.inputs = number_of_inputs(func, "LiftTransformParams") or 0
        self.weights = func.params[self.inputs :]
        self.names: dict[Var, Var] = {}
        self.symbols: dict[Symbol, Symbol] = {}

    def liftable(self) -> Iterator[Binding]:
        """Bindings that depend on weights, constants and sizes of weights alone, in order."""
        known: set[Var] = set(self.weights)
        sizes = {s for w in self.weights for s in definable_vars(w.struct_info)}
        for block in self.func.body.blocks:
            if not isinstance(block, DataflowBlock):
                continue
            for b in block.bindings:
                if (
                    isinstance(b, VarBinding)
                    and not is_op(b.value, STOP)
                    and not isinstance(b.value, ExternFunc)
                    and not contains_impure_call(b.value)
                    and known.issuperset(free_vars(b.value))
                    and sizes.issuperset(_symbols(b))
                ):
                    known.add(b.var)
                    yield b

    def stays(self) -> Iterator[Binding]:
        """Bindings that are not lifted."""
        return (b for b in bindings_of(self.func.body) if b.var not in self.names)


class _Plan:
    """How functions are split; the first of them gives variables and symbolic sizes their names.

    lifted: bindings of the transform, in order; outputs: the weights and lifted variables that
    functions go on with; sizes: symbolic variables that are handed on as a shape
    """

    def __init__(self, functions: Sequence[Function], shared: bool) -> None:
        self.locals = [_Local(func, i) for i, func in enumerate(functions)]
        first = self.locals[0]
        self.weights = first.weights
        for local in self.locals:
            _match(first, local)
        self.lifted = self._unified() if shared else list(first.liftable())
        if not shared:
            first.names.update((b.var, b.var) for b in self.lifted)
        self.from_weights: set[Var] = set(self.weights)
        for b in self.lifted:
            if not self.from_weights.isdisjoint(free_vars(b.value)):
                self.from_weights.add(b.var)
        needed: set[Var] = set()
        sizes: set[Symbol] = set()
        for local in self.locals:
            read = {v for b in local.stays() for v in free_vars(b.value)}
            read.update(free_vars(local.func.body.body))
            needed.update(local.names[v] for v in read if v in local.names)
            used = {s for b in local.stays() for s in _symbols(b)}
            used.update(free_symbolic_vars(local.func.ret_struct_info))
            given = {
                s for p in local.func.params[: local.inputs] for s in definable_vars(p.struct_info)
            }
            sizes.update(local.symbols[s] for s in used - given if s in local.symbols)
        bound = [b.var for b in self.lifted]
        kept = [v for v in (*self.weights, *bound) if v in needed]
        self.outputs = [v for v in kept if v in self.from_weights]
        told = {s for v in self.outputs for s in definable_vars(v.struct_info)}
        known = [s for w in self.weights for s in definable_vars(w.struct_info)]
        self.sizes = [s for s in dict.fromkeys(known) if s in sizes and s not in told]

    def _unified(self) -> list[Binding]:
        """What all functions compute alike, as the first that does."""
        found: dict[object, Binding] = {}
        holders: dict[object, set[int]] = {}
        same: list[dict[Var, object]] = []
        for local in self.locals:
            names, keys = dict(local.names), dict[Var, object]()
            for b in local.liftable():
                value = Rewriter(local.symbols, names).expr(b.value)
                key = (value_key(value) or part_key(value), b.var.struct_info_ is None)
                holders.setdefault(key, set()).add(local.index)
                names[b.var] = found.setdefault(key, b).var
                keys[b.var] = key
            same.append(keys)
        shared = {k for k, where in holders.items() if len(where) == len(self.locals)}
        for local, keys in zip(self.locals, same, strict=True):
            local.names.update((v, found[k].var) for v, k in keys.items() if k in shared)
        return [b for k, b in found.items() if k in shared]

    def transform(self) -> Function:
        """The function from the tuple of weights to the tuple of results."""
        if self.outputs == list(self.weights) and self.outputs and not self.sizes:
            whole = Var("model_params", TupleStructInfo([w.struct_info for w in self.weights]))
            return copy_with_new_vars(Function([whole], SeqExpr([], whole), attrs={"num_input": 0}))
        shape = [ShapeExpr(self.sizes)] if self.sizes else []
        results = Tuple([*shape, *self.outputs])
        out = Var("output_tuple", results.struct_info)
        block = DataflowBlock([*self.lifted, VarBinding(out, results)])
        body = SeqExpr([block], out) if results.fields else SeqExpr([], results)
        func = copy_with_new_vars(Function(self.weights, body, attrs={"num_input": 0}))
        return remove_all_unused(_canonical(bundled(func, 0)))

    def mains(self) -> list[Function]:
        """The functions on the results of the transform."""
        return [self._main(local) for local in self.locals]

    def _main(self, local: _Local) -> Function:
        own = {s: t for t, s in local.symbols.items()}
        names = Rewriter(own)
        params = list(local.func.params[: local.inputs])
        if self.sizes:
            dims = [own.get(s, s) for s in self.sizes]
            params.append(Var("vars_from_compile_time_params", ShapeStructInfo(dims)))
        passed: dict[Var, Var] = {}
        for v in self.outputs:
            passed[v] = Var(v.name_hint, names.info(v.struct_info), v.span)
        params += passed.values()
        values = {v: passed[u] for v, u in local.names.items() if u in passed}
        gone = {v for v, u in local.names.items() if u in self.from_weights}
        blocks: list[BindingBlock] = []
        for block in local.func.body.blocks:
            kept = [b for b in block.bindings if b.var not in gone]
            if kept or not block.bindings:
                blocks.append(type(block)(kept, block.span))
        body = SeqExpr(blocks, local.func.body.body, local.func.body.span)
        func = local.func
        made = Function(params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)
        stops = any(is_op(b.value, STOP) for b in bindings_deep(made))
        return Rewriter(values=values, rule=_stop_over if stops else None).function(made)


def _stop_over(node: Expr) -> Expr | None:
    """``x`` for ``stop_lift_params(x)``: it has done what it is for."""
    return node.args[0] if isinstance(node, Call) and is_op(node, STOP) else None


def _match(first: _Local, local: _Local) -> None:
    """Give weights and symbolic sizes of a function the names that they have in the first one."""
    pairs = list(zip(local.weights, first.weights, strict=False))
    if len(local.weights) != len(first.weights):
        raise TransformError(
            "LiftTransformParams: functions that share a transform must have the same weights; "
            f"one has {len(first.weights)}, another {len(local.weights)}"
        )
    env: SymMap = {}
    for own, known in pairs:
        with suppress(Mismatch):  # which the comparison below tells better
            unify(known.struct_info, own.struct_info, env)
        if substitute(known.struct_info, env) != own.struct_info:
            raise TransformError(
                "LiftTransformParams: functions that share a transform must have the same weights; "
                f"{own.name_hint} is {show(own.struct_info)} in one and "
                f"{show(known.struct_info)} in another"
            )
        local.names[own] = known
    local.symbols = {own: known for known, own in env.items() if isinstance(own, Symbol)}
    if len(local.symbols) != len(env):
        raise TransformError(
            "LiftTransformParams: functions that share a transform must have the same weights; "
            "sizes that are symbolic in one are numbers, or the same, in another"
        )


def _symbols(b: Binding) -> set[Symbol]:
    """Symbolic variables in a binding."""
    value = b.value
    if type(value) is Call and not value.attrs and not value.sinfo_args:
        if of_numbers(b.var.struct_info_) and all(map(_is_plain, value.args)):
            return set()  # as most bindings have none
    found = {*free_symbolic_vars(b.var.struct_info_), *symbols_within(b.value)}
    for node in post_order_deep(b.value):
        if isinstance(node, Call):
            found.update(v for a in node.attrs.values() for v in _attr_symbols(a))
    return found


def _is_plain(arg: Expr) -> bool:
    return isinstance(arg, Var | Constant) and of_numbers(arg.struct_info_)


def _attr_symbols(value: object) -> list[Symbol]:
    if isinstance(value, tuple):
        return [v for part in value for v in _attr_symbols(part)]
    return symbols_of(value) if isinstance(value, PrimExpr) else []


def _canonical(func: Function) -> Function:
    return CanonicalizeBindings().transform_function(func, IRModule(), PassContext.current())


def _after(old: object, new: Function, name: str) -> Function:
    """What ``old`` and then ``new`` do, which takes the tuple that ``old`` gives."""
    if not isinstance(old, Function):
        raise TransformError(
            f"LiftTransformParams: {name!r} is in the module and no Relax function"
        )
    first, then = copy_with_new_vars(old), copy_with_new_vars(new)
    env: SymMap = {}
    try:
        unify(then.params[0].struct_info, first.body.struct_info, env)
    except Mismatch as e:
        raise TransformError(
            f"LiftTransformParams: what {name!r} gives, which is in the module already, does not "
            f"fit the weights: {e}"
        ) from None
    body = Rewriter(env, {then.params[0]: first.body.body}).seq(then.body)
    blocks = [*first.body.blocks, *body.blocks]
    if all(isinstance(block, DataflowBlock) for block in blocks):
        # Fields of the first's result are read directly then, and those need not be its outputs.
        blocks = [DataflowBlock([b for block in blocks for b in block.bindings])]
    both = SeqExpr(blocks, body.body, body.span)
    made = Function(first.params, both, None, first.is_pure, first.attrs, first.span)
    return remove_all_unused(_canonical(made))


def _consuming(func: Function) -> Function:
    """``func``, which says of each field of its tuple that it has read it for the last time."""
    bundle = func.params[-1]
    read: dict[int, Var] = {}
    values: dict[Var, Expr] = {}
    blocks: list[BindingBlock] = []
    for block in func.body.blocks:
        out: list[Binding] = []
        for b in block.bindings:
            field = b.value
            if not isinstance(field, TupleGetItem) or field.tuple_value is not bundle:
                out.append(b)
            elif field.index in read:
                values[b.var] = read[field.index]
            else:
                read[field.index] = b.var
                place = PrimValue(IntImm("int32", field.index))
                call = op.call_pure_packed(RESET, bundle, place, sinfo_args=TupleStructInfo([]))
                kind = DataflowVar if isinstance(block, DataflowBlock) else Var
                out += [b, VarBinding(kind("_", TupleStructInfo([])), call)]
        blocks.append(type(block)(out, block.span))
    body = SeqExpr(blocks, func.body.body, func.body.span)
    return Rewriter(values=values).function(func.replace(body=body))

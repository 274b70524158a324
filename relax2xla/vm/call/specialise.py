"""One call shape, one program: bind symbolic dimensions, lower, write StableHLO (decision D7)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from relax2xla import tir
from relax2xla.analysis.sizes_fit import check_sizes
from relax2xla.analysis.variables import called_by_symbol
from relax2xla.dtypes import DTYPES
from relax2xla.errors import CallError, LegalizeError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    Op,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import Mismatch, SymMap, is_base_of, unify
from relax2xla.ir.rewrite import Rewriter, bindings_of, post_order_deep, rewrite_function
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.ir.traits import ShapedByValue
from relax2xla.runtime.shape_tuple import ShapeTuple
from relax2xla.stablehlo.prelude import derived
from relax2xla.stablehlo.specialise import static_program, with_main
from relax2xla.stablehlo.untrusted.limits import CALLS
from relax2xla.transform.core import Pass, run_alone, run_on_function
from relax2xla.transform.export import is_high, lowered
from relax2xla.transform.lower.kernels import is_kernel_call, prim_funcs
from relax2xla.transform.lower.legalize import LegalizeStatic, Lowering
from relax2xla.transform.lower.ragged_dots import ExpandRaggedDots
from relax2xla.transform.lower.safe_division import ShieldDivisions
from relax2xla.transform.lower.safe_loops import ShieldCounters
from relax2xla.transform.lower.workers import WORKERS, as_manual
from relax2xla.transform.normal.inline import inline_calls

# What XLA cannot compile as it stands, or would end the process of.
FOR_XLA: Final[Sequence[Pass]] = (ExpandRaggedDots(), ShieldDivisions(), ShieldCounters())


@dataclass(frozen=True, slots=True)
class HostValue:
    """A result that is known without running anything: a shape or a number."""

    value: Any


class Packed(Protocol):
    """What a machine needs of a program beside its code: results from the list of arrays."""

    @property
    def pack(self) -> Callable[[Sequence[Any]], Any]:
        """Makes the function's result."""
        ...


@dataclass(frozen=True, slots=True)
class Program:
    """A static program: its module (one function ``main`` over flat tensors), and its results.

    ``outputs``: struct infos of the arrays it returns; ``tree``: the function's result as nested
    lists of :class:`HostValue` and places among the arrays; ``pack`` makes it of them.
    """

    module: IRModule
    outputs: tuple[TensorStructInfo, ...]
    tree: Any
    pack: Callable[[Sequence[Any]], Any]


def match(name: str, params: Sequence[Var], infos: Sequence[StructInfo]) -> SymMap:
    """Symbolic dimensions by the arguments' struct infos; CallError names what does not fit."""
    if len(params) != len(infos):
        names = ", ".join(p.name_hint for p in params)
        raise CallError(f"{name} takes {len(params)} arguments ({names}); got {len(infos)}")
    env: SymMap = {}
    # The second round sees every variable bound, and so checks dimensions such as n + 1 too.
    for _ in range(2):
        for p, info in zip(params, infos, strict=True):
            try:
                unify(p.struct_info, info, env)
            except Mismatch as e:
                raise CallError(
                    f"{name}: the argument for parameter `{p.name_hint}` has {e}; "
                    f"expected {show(p.struct_info)}, given {show(info)}"
                ) from None
    return env


def specialise(
    mod: IRModule,
    name: str,
    func: Function,
    env: SymMap,
    passes: Sequence[Pass] = (),
    infos: Sequence[StructInfo] = (),
    lowerings: Mapping[str, Lowering] | None = None,
) -> Program:
    """The static StableHLO-row program of ``func`` under bound symbolic dimensions.

    Those of ``passes`` that the context enables see the static function before it is lowered;
    ``infos`` are of the arguments for the first parameters, whose shapes and numbers take the place
    of what is declared. ``lowerings`` by operator name take precedence.
    """
    try:
        return _specialise(mod, name, func, env, passes, infos, lowerings)
    except CallError as e:
        raise CallError(f"{name}: {e}") from None


def specialise_symbolic(
    mod: IRModule,
    name: str,
    func: Function,
    env: SymMap,
    infos: Sequence[StructInfo],
    lowerings: Mapping[str, Lowering] | None = None,
) -> Program:
    """The program of ``func`` whose dimensions are expressions of a caller's symbols.

    Its rows hold these expressions where static ones have numbers; who evaluates them knows what
    they mean. Raises LegalizeError for an operator that has no lowering over symbolic dimensions,
    and for StableHLO of dynamic shapes, whose sizes are values.
    """
    func = _flatten_params(func)
    known = [leaf for info in infos for leaf in flatten_info(info)]
    if _is_dynamic(func) or _asserts_shapes(func):
        raise LegalizeError(
            f"{name} computes sizes as values (StableHLO of dynamic shapes), so it runs for sizes "
            "that are numbers alone"
        )
    func = _Static(env).function(_bind_known(func, known, env))
    kernels = prim_funcs(mod)
    to_rows = (LegalizeStatic(lowerings, kernels, symbolic=True), *FOR_XLA)
    legal, outputs, tree = _flatten_results(run_on_function(to_rows, func, name, kernels))
    legal = Function([p for p in legal.params if _is_device(p)], legal.body)
    functions: dict[GlobalVar, Any] = {GlobalVar("main"): legal}
    functions.update(_callees(mod, name, legal, to_rows))
    functions = _shallow(mod, _with_one_main(functions))
    return Program(derived(mod, functions), outputs, tree, packer(tree))


def _specialise(
    mod: IRModule,
    name: str,
    func: Function,
    env: SymMap,
    passes: Sequence[Pass],
    infos: Sequence[StructInfo],
    lowerings: Mapping[str, Lowering] | None,
) -> Program:
    func = _flatten_params(func)
    known = [leaf for info in infos for leaf in flatten_info(info)]
    kernels = prim_funcs(mod)
    dynamic = _is_dynamic(func)
    if kernels and dynamic and _calls_kernels(func):
        # Kernels become rows of static shapes; XLA finds those that values of the program say.
        func = _Static(env).function(_bind_known(func, known, env))
        func = run_on_function([LegalizeStatic(lowerings, kernels)], func, name, kernels)
        dynamic = _is_dynamic(func)
    func = _bind_known(func, known, {} if dynamic else env)
    if (env or _asserts_shapes(func) or _lacks_sizes(func)) and _is_dynamic(func):
        inputs = [*known, *(p.struct_info for p in func.params[len(known) :])]
        mod, func = _rows(mod, func)
        mod = static_program(mod, func, [i for i in inputs if isinstance(i, TensorStructInfo)])
        func, env = mod["main"].with_attr("global_symbol", name), {}
    if env or any(isinstance(b, MatchCast) or _is_if(b) for b in bindings_of(func.body)):
        func = _Static(env).function(func)
    alone = run_alone(passes, func, name, kernels)
    func = alone[name]
    beside = {g: f for g, f in alone.relax_functions().items() if g.name_hint != name}
    if beside:
        mod = mod.replace({**mod.functions, **beside})
    check_sizes(func, name)
    # What makes rows of a static function, and of the functions that it calls.
    to_rows = (LegalizeStatic(lowerings, kernels), *FOR_XLA)
    legal, outputs, tree = _flatten_results(run_on_function(to_rows, func, name, kernels))
    params = [p for p in legal.params if _is_device(p)]
    attrs = {"global_symbol": "main", **_shardings(func, params, tree)}
    legal = Function(params, legal.body, attrs=attrs)
    if WORKERS in func.attrs:
        legal = as_manual(legal, [(name, size) for name, size in func.attrs[WORKERS]])
    functions: dict[GlobalVar, Any] = {GlobalVar("main"): legal}
    functions.update(_callees(mod, name, legal, to_rows))
    functions = _shallow(mod, _with_one_main(functions))
    return Program(derived(mod, functions), outputs, tree, packer(tree))


def _shardings(func: Function, params: Sequence[Var], tree: Any) -> dict[str, Any]:
    """What ``func`` states of how arguments and results are spread; programs on a mesh obey it."""
    held: dict[str, Any] = {}
    names = [p.name_hint for p in params]
    notes = {n: _sharding(a) for n, a in func.attrs.get("arg_attrs", {}).items()}
    stated = {n: a for n, a in notes.items() if a and names.count(n) == 1}
    if stated:
        held["arg_attrs"] = stated
    results = [_sharding(a) for a in func.attrs.get("res_attrs", ())]
    places = tree if isinstance(tree, list) else [tree]
    if any(results) and places == list(range(len(results))):
        held["res_attrs"] = results
    return held


def _sharding(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in attrs.items() if n in ("sdy.sharding", "mhlo.sharding")}


def _rows(mod: IRModule, func: Function) -> tuple[IRModule, Function]:
    """``func`` and the functions of its module as rows of symbolic dimensions."""
    whole = with_main(mod, func)
    if not is_high(whole):
        return mod, func
    whole = lowered(whole)
    return whole, whole["main"]


def _calls_kernels(func: Function) -> bool:
    return any(isinstance(node, Call) and is_kernel_call(node) for node in post_order_deep(func))


def _is_dynamic(func: Function) -> bool:
    """Whether sizes of dimensions are values of the program: StableHLO of dynamic shapes."""
    for b in bindings_of(func.body):
        value = b.value
        if isinstance(value, Call):
            if isinstance(value.op, Op) and (
                value.op.has(ShapedByValue) or _says_nothing(value.op, value.struct_info)
            ):
                return True
            # A function of symbolic shapes serves all its callers, so its types stay as they are.
            if isinstance(value.op, GlobalVar) and any(
                isinstance(i, TensorStructInfo)
                and not (i.dims is not None and all(isinstance(d, int) for d in i.dims))
                for i in flatten_info(value.struct_info)
            ):
                return True
    return False


def _asserts_shapes(func: Function) -> bool:
    """Whether ``func`` checks its shapes, as a program of ``jax.export`` does: XLA cannot."""
    return any(
        isinstance(b.value, Call) and b.value.attrs.get("call_target_name") == "shape_assertion"
        for b in bindings_of(func.body)
    )


def _lacks_sizes(func: Function) -> bool:
    """Whether a value has a ``?`` that no argument decides: a constant of the program may.

    Those with a bound have a dtype of their own, and XLA knows them.
    """
    infos = (i for b in bindings_of(func.body) for i in flatten_info(b.var.struct_info))
    return any(
        isinstance(i, TensorStructInfo) and i.dims is None and i.dtype in DTYPES for i in infos
    )


def _says_nothing(op: Op[...], info: StructInfo) -> bool:
    """Whether a row was read whose result has ``?`` that nothing in Relax gives a value."""
    return op.infer is None and isinstance(info, TensorStructInfo) and info.dims is None


def _flatten_params(func: Function) -> Function:
    """``func`` with each tuple parameter replaced by its leaves."""
    values: dict[Var, Expr] = {}
    params: list[Var] = []

    def leaves(info: StructInfo, hint: str) -> Expr:
        if isinstance(info, TupleStructInfo):
            return Tuple([leaves(f, f"{hint}_{i}") for i, f in enumerate(info.fields)])
        params.append(Var(hint, info))
        return params[-1]

    for p in func.params:
        if isinstance(p.struct_info, TupleStructInfo):
            values[p] = leaves(p.struct_info, p.name_hint)
        else:
            params.append(p)
    return rewrite_function(func.replace(params=params), values=values) if values else func


def _bind_known(func: Function, infos: Sequence[StructInfo], env: SymMap) -> Function:
    """``func`` with the shapes and numbers among its arguments, and with the tensors' shapes.

    ``env``: symbolic dimensions that are known, so that casts check them rather than bind them.
    """
    values: dict[Var, Expr] = {}
    params: list[Var] = list(func.params[len(infos) :])
    for p, info in reversed(list(zip(func.params, infos, strict=False))):
        declared = p.struct_info
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            values[p] = ShapeExpr(info.values)
            continue
        if isinstance(info, PrimStructInfo) and info.value is not None:
            values[p] = PrimValue(info.value)
            continue
        if isinstance(declared, TensorStructInfo) and (declared.dims is None or not declared.dtype):
            values[p] = p = Var(p.name_hint, info, p.span)
        params.insert(0, p)
    return _Static(env, values=values).function(func.replace(params=params)) if values else func


def _is_if(b: Binding) -> bool:
    return isinstance(b, VarBinding) and isinstance(b.value, If)


class _Static(Rewriter):
    """A Rewriter for programs of static shapes.

    Every ``R.match_cast`` binds the symbolic dimensions that it names, and variables get what is
    known of their values now, however little was declared.
    """

    def binding(self, b: Binding) -> Binding:
        if isinstance(b, MatchCast):
            found: SymMap = dict(self.symbolic)
            declared, given = self.info(b.struct_info), self.expr(b.value).struct_info
            try:
                unify(declared, given, found)
            except Mismatch as e:
                # What is not known of the value yet is the legaliser's to check.
                if _is_known(given):
                    raise CallError(
                        f"R.match_cast of {b.var.name_hint}: the value has {e}; "
                        f"expected {show(declared)}, given {show(given)}"
                    ) from None
            if len(found) > len(self.symbolic):
                self.symbolic = found
                self._infos.clear()
        new = super().binding(b)
        declared, known = new.var.struct_info_, new.value.struct_info_
        if isinstance(new, MatchCast) or declared == known or known is None:
            return new
        if declared is not None and not is_base_of(declared, known):
            return new
        var = type(new.var)(new.var.vid, known, new.var.span)
        self.env[b.var] = var
        return VarBinding(var, new.value, new.span)


def _is_known(info: StructInfo) -> bool:
    """Whether nothing of a value's shapes and dtypes is left open."""
    return all(
        isinstance(leaf, TensorStructInfo)
        and bool(leaf.dtype)
        and leaf.dims is not None
        and all(isinstance(d, int) for d in leaf.dims)
        for leaf in flatten_info(info)
    )


def _is_device(p: Var) -> bool:
    info = p.struct_info
    if isinstance(info, TensorStructInfo):
        return True
    if isinstance(info, ShapeStructInfo | PrimStructInfo):
        return False
    raise LegalizeError(
        f"the parameter `{p.name_hint}` is {show(info)}; only tensors, shapes and "
        "numbers (and tuples of them) can be passed to a compiled function"
    )


def _callees(
    mod: IRModule, name: str, func: Function, to_rows: Sequence[Pass]
) -> dict[GlobalVar, Function]:
    """What ``func`` needs, directly or not, legal; LegalizeError where a function needs itself."""
    done: dict[GlobalVar, Function] = {}
    # The functions on the way from ``func``, each with what it calls and was not visited yet.
    legal: dict[GlobalVar, Function] = {}
    stack: list[tuple[GlobalVar | None, Iterator[GlobalVar]]] = [
        (None, iter(_referenced(mod, func)))
    ]
    while stack:
        caller, rest = stack[-1]
        gvar = next(rest, None)
        if gvar is None:
            stack.pop()
            if caller is not None:
                done[caller] = legal.pop(caller)
            continue
        if gvar in done:
            continue
        if gvar in legal or gvar.name_hint == name:
            trail = (name, *(g.name_hint for g in legal), gvar.name_hint)
            raise LegalizeError(
                f"{' -> '.join(trail)}: a recursive function cannot be part of an XLA program"
            )
        callee = mod[gvar]
        if not isinstance(callee, Function):
            last = name if caller is None else caller.name_hint
            raise LegalizeError(f"{last} calls {gvar.name_hint}, no Relax function")
        if any(isinstance(b, MatchCast) for b in bindings_of(callee.body)):
            callee = _Static().function(callee)
        callee = callee.without_attr("global_symbol")
        legal[gvar] = run_on_function(to_rows, callee, gvar.name_hint, prim_funcs(mod))
        stack.append((gvar, iter(_referenced(mod, legal[gvar]))))
    return done


def _referenced(mod: IRModule, func: Function) -> list[GlobalVar]:
    """Functions of the module that the body of ``func`` names, in order.

    The bodies are legal: a binding holds one call whose operands are leaves or functions.
    """
    found: dict[GlobalVar, None] = {}
    seqs = [func.body]
    while seqs:
        seq = seqs.pop()
        for block in seq.blocks:
            for b in block.bindings:
                if not isinstance(b, VarBinding | MatchCast):
                    continue
                value = b.value
                if isinstance(value, Function):
                    seqs.append(value.body)
                elif isinstance(value, Call):
                    seqs += [a.body for a in value.args if isinstance(a, Function)]
                    if isinstance(value.op, GlobalVar):
                        found[mod.get_global_var(value.op.name_hint)] = None
                    found.update(dict.fromkeys(called_by_symbol(mod, value)))
    return list(found)


def _shallow(mod: IRModule, functions: dict[GlobalVar, Any]) -> dict[GlobalVar, Any]:
    """The functions; where more call each other than XLA's stack holds, those that must be.

    Then a function that is called once is part of its caller, which makes no program larger.
    """
    if len(functions) <= CALLS:
        return functions
    calls: Counter[str] = Counter()
    bound: set[str] = set()
    depths: dict[str, int] = {}
    entry, *others = functions
    for gvar in (*others, entry):  # what is called comes first
        deepest = 0
        for node in post_order_deep(functions[gvar]):
            if isinstance(node, Call):
                called = called_by_symbol(mod, node)
                bound.update(g.name_hint for g in called)
                if isinstance(node.op, GlobalVar):
                    calls[node.op.name_hint] += 1
                    called = [*called, node.op]
                deepest = max(deepest, *(depths.get(g.name_hint, 0) for g in called), 0)
        depths[gvar.name_hint] = 1 + deepest
    if depths[entry.name_hint] <= CALLS:
        return functions
    once = {
        g.name_hint: functions[g]
        for g in others
        if calls[g.name_hint] == 1 and g.name_hint not in bound
    }
    return {g: inline_calls(f, once) for g, f in functions.items() if g.name_hint not in once}


def _with_one_main(functions: dict[GlobalVar, Any]) -> dict[GlobalVar, Any]:
    """The functions, of which only the first is ``main``; another gets another name."""
    entry, *rest = functions
    clash = next((g for g in rest if g.name_hint == entry.name_hint), None)
    if clash is None:
        return functions
    taken = {g.name_hint for g in functions}
    fresh = next(n for i in itertools.count(1) if (n := f"main_{i}") not in taken)
    renamed = GlobalVar(fresh, clash.struct_info_)

    def rename(node: Expr) -> Expr | None:
        if isinstance(node, Call) and node.op is clash:
            return Call(renamed, node.args, node.attrs, node.sinfo_args, node.span)
        return None

    return {
        renamed if g is clash else g: rewrite_function(f, rule=rename) for g, f in functions.items()
    }


def _located(b: Binding) -> Binding:
    """``b`` with the span of its variable on the operation too, where XLA's reports find it."""
    value, span = b.value, b.var.span
    if span is None or not isinstance(value, Call) or value.span is not None:
        return b
    if not isinstance(b, VarBinding):
        return b
    known = value.struct_info_
    call = Call(value.op, value.args, value.attrs, value.sinfo_args, span, struct_info=known)
    return VarBinding(b.var, call, b.span)


def _flatten_results(
    func: Function,
) -> tuple[Function, tuple[TensorStructInfo, ...], Any]:
    """``func`` with its arrays as one flat result, their struct infos, and the result's tree."""
    bindings = [_located(b) for block in func.body.blocks for b in block.bindings]
    arrays: list[Expr] = []

    def plan(value: Expr) -> Any:
        info = value.struct_info
        if isinstance(value, Tuple):
            return [plan(f) for f in value.fields]
        if isinstance(info, TupleStructInfo):
            parts: list[Any] = []
            for i, field in enumerate(info.fields):
                var = Var(f"{getattr(value, 'name_hint', 'result')}_{i}", field)
                bindings.append(VarBinding(var, TupleGetItem(value, i)))
                parts.append(plan(var))
            return parts
        if isinstance(value, ShapeExpr):
            return HostValue(ShapeTuple(cast("Any", tir.as_dim(d)) for d in value.values))
        if isinstance(value, PrimValue):
            literal = tir.simplify(value.value)
            known = isinstance(literal, tir.IntImm | tir.FloatImm)
            number = literal.value if known else literal
            return HostValue(bool(number) if value.value.dtype == "bool" else number)
        if not isinstance(info, TensorStructInfo):
            raise LegalizeError(
                f"a result is {show(info)}; only tensors, shapes and numbers can be "
                "returned from a compiled function"
            )
        arrays.append(value)
        return len(arrays) - 1

    tree = plan(func.body.body)
    body = SeqExpr([BindingBlock(bindings)] if bindings else [], Tuple(arrays))
    if len(arrays) == 1:
        body = SeqExpr(body.blocks, arrays[0])
    infos = tuple(i for i in flatten_info(Tuple(arrays).struct_info))
    tensors = tuple(i for i in infos if isinstance(i, TensorStructInfo))
    return Function(func.params, body, attrs=func.attrs), tensors, tree


def packer(tree: Any) -> Callable[[Sequence[Any]], Any]:
    """A function from the flat list of arrays to nested tuples as ``tree`` says."""
    if isinstance(tree, int):
        return lambda arrays: arrays[tree]
    if isinstance(tree, HostValue):
        return lambda arrays: tree.value
    count = len(tree)
    if all(isinstance(t, int) for t in tree) and tree == list(range(count)):
        return lambda arrays: tuple(arrays[:count])
    parts = [packer(t) for t in tree]
    return lambda arrays: tuple(p(arrays) for p in parts)

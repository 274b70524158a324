"""LambdaLift: local functions become functions of the module."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from typing import Any

from relax2xla.analysis.variables import free_vars
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    FuncStructInfo,
    Function,
    GlobalVar,
    IRModule,
    ObjectStructInfo,
    Op,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import is_base_of, result_info
from relax2xla.ir.rewrite import Rewriter, deep_children
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.normal.signatures import free_symbols

Place = tuple[str, ...]


@register(opt_level=1)
class LambdaLift(Pass):
    """Make every local function a private function of the module.

    One that captures variables gets parameters for them and becomes a closure
    (``R.make_closure``); calls of it become ``R.invoke_pure_closure``, or ``R.invoke_closure``
    where it is impure. Names are those of the outermost function and of the variable, joined by
    ``_``; where these are taken, of all functions between, or with a number. A local function with
    the attribute ``global_symbol`` keeps that name; TransformError where it is taken.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        names = _names(mod)
        if not names:
            return mod
        new: dict[GlobalVar, Any] = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            lifter = _Lifter(names)
            new[gvar] = _fitted(func, lifter.function(func))
            new.update(lifter.lifted)
        return mod.replace(new)


# ---- names ---------------------------------------------------------------------------------------
def _local_functions(root: Expr) -> Iterator[VarBinding]:
    """Bindings of functions, in order, without those inside of these."""
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, VarBinding):
            yield node
        elif isinstance(node, SeqExpr):
            inside: list[Any] = [
                b if isinstance(b, VarBinding) and isinstance(b.value, Function) else b.value
                for block in node.blocks
                for b in block.bindings
            ]
            stack += reversed([*inside, node.body])
        else:
            stack += reversed(deep_children(node))


def _names(mod: IRModule) -> dict[Function, str]:
    """A name for each local function of the module."""
    places: dict[Function, Place] = {}
    todo: list[tuple[Function, Place]] = [
        (f, (g.name_hint,)) for g, f in reversed(mod.relax_functions().items())
    ]
    while todo:
        func, place = todo.pop()
        for b in _local_functions(func.body):
            if isinstance(b.value, Function):
                places[b.value] = (*place, b.var.name_hint)
                todo.append((b.value, places[b.value]))
    found: dict[Function, str] = {}
    taken = {g.name_hint for g in mod}
    for func in places:
        symbol = func.attrs.get("global_symbol")
        if symbol is None:
            continue
        if symbol in taken:
            raise TransformError(
                f"a local function has the global_symbol {symbol!r}, which is the name of another "
                "function; give one of them another name"
            )
        found[func] = symbol
        taken.add(symbol)
    for proposed, depth in ((_short, 2), (_whole, 3)):
        left = {f: p for f, p in places.items() if f not in found and len(p) >= depth}
        names = {f: proposed(p) for f, p in left.items()}
        count = Counter(names.values())
        fits = {f: n for f, n in names.items() if count[n] == 1 and n not in taken}
        found.update(fits)
        taken.update(fits.values())
    number: Counter[str] = Counter()
    for func, place in places.items():
        while func not in found:
            short = _short(place)
            name = f"{short}_{number[short]}"
            number[short] += 1
            if name not in taken:
                found[func] = name
                taken.add(name)
    return found


def _short(place: Place) -> str:
    return f"{place[0]}_{place[-1]}"


def _whole(place: Place) -> str:
    return "_".join(place)


# ---- functions -----------------------------------------------------------------------------------
class _Lifter(Rewriter):
    """One function of the module; ``lifted`` gets what was local in it."""

    def __init__(self, names: dict[Function, str]) -> None:
        super().__init__()
        self.names = names
        self.lifted: dict[GlobalVar, Function] = {}
        # In a recursive closure: itself as a function of the module, and what it captures.
        self._inside: dict[Expr, tuple[GlobalVar, list[Var]]] = {}

    def leaf(self, node: Expr) -> Expr:
        if node in self._inside:
            raise TransformError(
                f"{node!r} is a recursive closure that is passed on as a value inside of itself; "
                "LambdaLift can only call it there"
            )
        return super().leaf(node)

    def block(self, block: BindingBlock) -> BindingBlock:
        made: list[Binding] = []
        for b in block.bindings:
            if isinstance(b, VarBinding) and isinstance(b.value, Function):
                closure = self._lift(b.var, b.value)
                if closure is not None:
                    made.append(VarBinding(self._renewed(b.var, closure), closure, b.span))
            else:
                made.append(self.binding(b))
        if len(made) == len(block.bindings) and all(map(operator.is_, made, block.bindings)):
            return block
        return type(block)(made, block.span)

    def binding(self, b: Binding) -> Binding:
        if not isinstance(b, VarBinding) or not isinstance(b.value, Call):
            return super().binding(b)
        if isinstance(b.value.op, Op):
            return super().binding(b)
        value = self._call(b.value)
        return b if value is b.value else VarBinding(self._renewed(b.var, value), value, b.span)

    def _renewed(self, var: Var, value: Expr) -> Var:
        """``var``, or one in its place, which ``value`` fits."""
        info, declared = value.struct_info_, var.struct_info_
        if info is None or (declared is not None and is_base_of(declared, info)):
            return var
        made = self.env[var] = type(var)(var.vid, info, var.span)
        return made

    def _call(self, call: Call) -> Call:
        """A call of a function value."""
        args = [self.expr(a) for a in call.args]
        recursive = self._inside.get(call.op)
        if recursive is not None:
            callee, captured = recursive
            return Call(callee, [*args, *captured], call.attrs, call.sinfo_args, call.span)
        callee = self.expr(call.op)
        declared = call.op.struct_info_
        if isinstance(declared, FuncStructInfo) and isinstance(
            callee.struct_info_, ObjectStructInfo
        ):
            name = "relax.invoke_pure_closure" if declared.purity else "relax.invoke_closure"
            info = call.struct_info_
            # What a closure gives may be another one, which is an object, too.
            known = [] if info is None or isinstance(info, FuncStructInfo) else [info]
            return Call(Op.get(name), [callee, Tuple(args)], None, known, call.span)
        if callee is call.op and all(map(operator.is_, args, call.args)):
            return call
        return Call(callee, args, call.attrs, call.sinfo_args, call.span)

    @nests
    def _lift(self, var: Var, func: Function) -> Call | None:
        """Lift ``func``, which ``var`` names; the closure in its place, if it captures anything."""
        captured: dict[Expr, Var] = {}  # what is captured, and its parameter
        outer, inside = dict[Var, Expr](), dict(self._inside)
        for v in free_vars(func):
            if v is var:
                continue
            passed = inside[v][1] if v in inside else [self.env.get(v, v)]
            for value in passed:
                if isinstance(value, Var):
                    captured.setdefault(value, Var(value.name_hint, value.struct_info_))
            if v in inside:
                self._inside[v] = inside[v][0], [captured[p] for p in passed]
            elif isinstance(known := self.env.get(v, v), Var):
                outer[v] = known
                self.env[v] = captured[known]
        params = [*func.params, *captured.values()]
        for symbol in free_symbols(params, func):
            made = Var(f"param_{symbol.name}", PrimStructInfo(symbol.dtype, symbol))
            captured[PrimValue(symbol)] = made
            params.append(made)
        info = FuncStructInfo([p.struct_info for p in params], func.ret_struct_info, func.is_pure)
        gvar = GlobalVar(self.names[func], info, func.span)
        if captured:
            self._inside[var] = gvar, list(captured.values())
        else:
            self.env[var] = gvar
        body = self.seq(func.body)
        self._inside = inside
        self.env.update(outer)
        found = body.struct_info_
        ret = func.ret_struct_info if found is None else result_info(params, found)
        lifted = Function(params, body, ret, func.is_pure, func.attrs, func.span)
        self.lifted[gvar] = lifted = copy_with_new_vars(lifted)
        gvar.struct_info_ = lifted.struct_info_
        if not captured:
            return None
        return Call(Op.get("relax.make_closure"), [gvar, Tuple(captured)], span=func.span)


def _fitted(old: Function, new: Function) -> Function:
    """``new``, in the place of ``old``, with the result that its body gives now."""
    info = new.body.struct_info_
    if info is None or info == old.body.struct_info_:
        return new
    return new.replace(ret_struct_info=result_info(new.params, info))

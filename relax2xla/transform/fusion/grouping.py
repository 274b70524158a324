"""Bindings of dataflow blocks, group by group, as calls of functions that hold them.

Passes say which bindings belong together; what a group reads becomes parameters, what others read
of it its results. Source of the semantics, names of functions and order of parameters: the passes
FuseOps, FuseOpsByPattern and MergeCompositeFunctions of TVM v0.20.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from relax2xla import tir
from relax2xla.analysis.struct_infos import free_symbolic_vars
from relax2xla.analysis.variables import used_vars
from relax2xla.builder import BlockBuilder
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
    Op,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    StructInfo,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.expr import DataTypeImm
from relax2xla.ir.lattice import free_symbolic_vars as symbols_of
from relax2xla.ir.rewrite import (
    LEAF_TYPES,
    Rewriter,
    children,
    holders_deep,
    post_order,
    post_order_deep,
)
from relax2xla.transform.core.kernel_calls import CALL_TIR, PRIMITIVE
from relax2xla.transform.lower.replay import NoKey, exact

Key = tuple[Any, ...]
COMPOSITE: Final = "Composite"
CODEGEN: Final = "Codegen"
LONGEST_NAME: Final = 400


@dataclass(eq=False, slots=True)
class Group:
    """Variables whose bindings belong together, and attributes of the function that holds them."""

    members: list[Var] = field(default_factory=list[Var])
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])


Groups = Mapping[Var, Group]


def dataflow_blocks(func: Function) -> list[DataflowBlock]:
    """Every dataflow block of ``func``, those of branches and local functions included."""
    seqs = [n for n in holders_deep(func) if isinstance(n, SeqExpr)]
    if len(seqs) > 1:  # inner ones first
        seqs = [n for n in post_order_deep(func) if isinstance(n, SeqExpr)]
    return [b for seq in seqs for b in seq.blocks if isinstance(b, DataflowBlock)]


def is_made(func: object) -> bool:
    """Whether a function is what fusion has made, which no pass of fusion takes apart."""
    return isinstance(func, Function) and any(
        func.attrs.get(name) for name in (COMPOSITE, CODEGEN, PRIMITIVE)
    )


def by_name(mod: IRModule) -> list[GlobalVar]:
    """The names of the functions of ``mod`` in the alphabet's order, as TVM walks them."""
    return sorted(mod, key=lambda g: g.name_hint)


def single_assignment(blocks: Iterable[DataflowBlock]) -> None:
    """ValueError where two of the blocks of a module (or one, twice) bind the same variable."""
    seen: set[Var] = set()
    for block in blocks:
        for b in block.bindings:
            if b.var in seen:
                raise ValueError(
                    f"the variable `{b.var.name_hint}` is bound twice in the module; give each "
                    "function variables of its own (relax2xla.utils.copy_with_new_vars)"
                )
            seen.add(b.var)


@dataclass(frozen=True, slots=True)
class _Made:
    """A function of a group: its name, what it gives, and symbols that it takes as a shape.

    is_static: its struct infos have no symbols, so that calls give what the function does
    """

    gvar: GlobalVar
    result: StructInfo
    symbols: Sequence[tir.Var]
    is_static: bool


class Fuser:
    """Makes functions of groups and adds them to a module; equal ones are added once.

    ``lift_constants``: constants become arguments of the functions, else they stay in them.
    """

    def __init__(self, mod: IRModule, lift_constants: bool) -> None:
        self.mod = mod
        self.builder = BlockBuilder(mod)
        self.changed: dict[GlobalVar, Function] = {}
        self.lift_constants = lift_constants
        # Functions that were made, by what makes them equal.
        self.made: dict[Key, _Made] = {}

    def function(self, gvar: GlobalVar) -> Function:
        """The function of that name as it is by now."""
        return self.changed.get(gvar) or self.mod[gvar]

    def fuse(self, gvar: GlobalVar, groups: Groups) -> None:
        """The function ``gvar`` with a call for each group."""
        if groups:
            self.changed[gvar] = _Fused(self, groups).function(self.function(gvar))

    def result(self) -> IRModule:
        """The module with the functions that were made; itself where there are none."""
        if not self.changed:
            return self.mod
        return self.mod.replace({**self.builder.get().functions, **self.changed})


class _Fused(Rewriter):
    """Rebuilds one function with groups of bindings as calls."""

    def __init__(self, fuser: Fuser, groups: Groups) -> None:
        super().__init__()
        self.fuser, self.groups = fuser, groups

    def block(self, block: BindingBlock) -> BindingBlock:
        if not isinstance(block, DataflowBlock) or not any(
            b.var in self.groups for b in block.bindings
        ):
            return super().block(block)
        parts: dict[Group | Var, list[Binding]] = {}
        for b in block.bindings:
            parts.setdefault(self.groups.get(b.var, b.var), []).append(b)
        holders = {
            key: _Holder(bindings, self.fuser.lift_constants)
            for key, bindings in parts.items()
            if isinstance(key, Group)
        }
        needs = self._needs(block, holders)
        made: list[Binding] = []
        for key in _in_order(parts, needs):
            if isinstance(key, Var):
                made.append(self.binding(parts[key][0]))
            else:
                made += self._call(key, holders[key])
        return DataflowBlock(made, block.span)

    def _needs(
        self, block: DataflowBlock, holders: Mapping[Group, _Holder]
    ) -> dict[Group | Var, dict[Group | Var, None]]:
        """Which part of the block reads which others; what is read becomes a result."""
        groups, own = self.groups, {b.var for b in block.bindings}
        needs: dict[Group | Var, dict[Group | Var, None]] = {}
        for b in block.bindings:
            here = groups.get(b.var, b.var)
            found = needs.setdefault(here, {})
            for var in used_vars(b.value):
                there = groups.get(var, var)
                if there is here or var not in own:
                    continue
                found[there] = None
                if isinstance(there, Group):
                    holders[there].result(var)
        return needs

    def _call(self, group: Group, holder: _Holder) -> Iterator[Binding]:
        """The bindings that take the place of a group's; none where nothing reads its values."""
        if not holder.results:
            return
        last = holder.bindings[-1]
        made = self._made(group, holder)
        gvar = made.gvar
        args: list[Expr] = []
        for arg in holder.args(made.symbols):
            new = self.expr(arg)
            if isinstance(new, TupleGetItem):
                item = DataflowVar(last.var.name_hint, new.struct_info_, last.span)
                yield VarBinding(item, new, last.span)
                new = item
            args.append(new)
        known = made.result if made.is_static else None
        call = Call(gvar, args, span=last.span, struct_info=known)
        if len(holder.results) == 1:
            (var,) = holder.results
            yield self.binding(VarBinding(var, call, last.span))
            return
        whole = DataflowVar(last.var.name_hint, made.result, last.span)
        yield VarBinding(whole, call, last.span)
        for b in holder.bindings:
            if b.var in holder.results:
                item = TupleGetItem(whole, holder.results[b.var])
                yield self.binding(VarBinding(b.var, item, b.span))

    def _made(self, group: Group, holder: _Holder) -> _Made:
        """The function of a group, added to the module; one that was made before if it is equal."""
        key = holder.key(group.attrs)
        known = None if key is None else self.fuser.made.get(key)
        if known is not None:
            return known
        func, symbols, is_static = holder.function(group.attrs)
        gvar = self.fuser.builder.add_func(func, holder.name)
        made = _Made(gvar, func.ret_struct_info, symbols, is_static)
        if key is not None:
            self.fuser.made[key] = made
        return made


def _in_order(
    parts: Mapping[Group | Var, Sequence[Binding]],
    needs: Mapping[Group | Var, Mapping[Group | Var, None]],
) -> Iterator[Group | Var]:
    """Parts of a block, each behind those that it needs, else in the order of the bindings."""
    done: set[Group | Var] = set()
    open_parts: dict[Group | Var, None] = {}
    for first in parts:
        if first not in done and done.issuperset(needs.get(first, ())):
            done.add(first)
            yield first
            continue
        stack: list[tuple[Group | Var, bool]] = [(first, False)]
        while stack:
            part, ready = stack.pop()
            if ready:
                open_parts.pop(part, None)
                done.add(part)
                yield part
            elif part not in done:
                if part in open_parts:
                    raise TransformError(_cycle(part, open_parts, parts))
                open_parts[part] = None
                stack.append((part, True))
                stack += [(p, False) for p in reversed([*needs.get(part, ())]) if p not in done]


def _cycle(
    part: Group | Var,
    open_parts: Iterable[Group | Var],
    parts: Mapping[Group | Var, Sequence[Binding]],
) -> str:
    shown = ", ".join(f"`{b.var.name_hint}`" for b in parts[part])
    others = [parts[p][0].var.name_hint for p in open_parts if p is not part]
    return (
        f"A cyclic dependency detected: {shown} would become one call, but what lies between them "
        f"(`{others[-1] if others else ''}`) reads its results and is read by it; let the pattern "
        "hold that as well, or check the match for it"
    )


class _Holder:
    """One group on its way to a function: bindings, parameters with their arguments, results.

    results: variables that others read, with their places in the result
    """

    def __init__(self, bindings: Sequence[Binding], lift_constants: bool) -> None:
        self.bindings = [_without_tuple(b) for b in bindings]
        self.lift_constants = lift_constants
        self.results: dict[Var, int] = {}
        self._own: set[Var] = {b.var for b in bindings}
        # By the argument: the parameter; of a tuple whose fields alone are read: these, by index.
        self._params: dict[Expr, Var | dict[int, Var]] = {}
        names: list[str] = []
        for b in self.bindings:
            if not isinstance(b, VarBinding):
                raise TransformError(f"`{b.var.name_hint}` is a match_cast, and cannot be fused")
            if not isinstance(b.var, DataflowVar):
                self.result(b.var)
            names.append(self._read(b.value))
        self.name = ("fused" + "".join(f"_{n}" for n in names if n))[:LONGEST_NAME]

    def result(self, var: Var) -> None:
        """Others read ``var``."""
        self.results.setdefault(var, len(self.results))

    def _read(self, value: Expr) -> str:
        """Parameters for what ``value`` reads; what it adds to the name of the function."""
        if isinstance(value, TupleGetItem):
            source = value.tuple_value
            if source not in self._own:
                fields = self._params.setdefault(source, {})
                if isinstance(fields, dict) and value.index not in fields:
                    name = f"{getattr(source, 'name_hint', 'param')}_{value.index}"
                    fields[value.index] = Var(name, value.struct_info_)
            return ""
        if not isinstance(value, Call):
            self._param(value)
            return ""
        args: Sequence[Expr] = value.args
        if isinstance(value.op, Op) and value.op.name in CALL_TIR:
            callee, operands = value.args[0], value.args[1]
            args = operands.fields if isinstance(operands, Tuple) else (operands,)
            name = getattr(callee, "name_hint", "")
        elif isinstance(value.op, Op):
            name = value.op.name
        else:
            name = getattr(value.op, "name_hint", "").removeprefix("fused_")
            if not isinstance(value.op, GlobalVar):
                self._param(value.op)
        for arg in args:
            self._param(arg)
        return name

    def _param(self, arg: Expr) -> None:
        """A parameter for ``arg``, unless it is of the group or may stand in the function."""
        if isinstance(arg, Tuple) and any(v in self._own for v in used_vars(arg)):
            for f in arg.fields:
                self._param(f)
            return
        held = isinstance(arg, Constant) and not self.lift_constants
        if arg in self._own or _stays(arg) or held:
            return
        known = self._params.get(arg)
        if isinstance(known, Var):
            return
        name = getattr(arg, "name_hint", None) or f"param_{len(self._params)}"
        # Of a tuple that is read whole, fields are read in the function.
        self._params[arg] = Var(name, arg.struct_info_)

    def args(self, symbols: Sequence[tir.Var]) -> list[Expr]:
        """The arguments of the call, those that are fields of a tuple as such; ``symbols`` last."""
        found: list[Expr] = []
        for arg, param in self._params.items():
            if isinstance(param, Var):
                found.append(arg)
            else:
                found += [TupleGetItem(arg, i) for i in param]
        return found + ([ShapeExpr(symbols)] if symbols else [])

    def key(self, attrs: Mapping[str, Any]) -> Key | None:
        """What groups have in common whose functions are equal; None where that is not known.

        Groups of one key have equal functions; those of different keys may have, too.
        """
        places: dict[Expr, Any] = {}
        taken: list[Any] = []
        for arg, param in self._params.items():
            places[arg] = len(taken)
            if isinstance(param, Var):
                taken.append(param.struct_info_)
            else:
                taken.append(tuple([(i, p.struct_info_) for i, p in param.items()]))
        rows: list[Any] = []
        try:
            for n, b in enumerate(self.bindings):
                rows.append((_alike(b.value, places), b.var.struct_info_))
                places[b.var] = ("own", n)
            held = tuple([(name, exact(value)) for name, value in attrs.items()])
        except NoKey:
            return None
        return (tuple(rows), tuple(taken), tuple([places[v] for v in self.results]), held)

    def function(self, attrs: Mapping[str, Any]) -> tuple[Function, Sequence[tir.Var], bool]:
        """The function of the group, with variables and symbols of its own.

        Beside it, the symbols that the call has to give as a shape, and whether there are none at
        all in what it takes.
        """
        params = [
            p
            for param in self._params.values()
            for p in ([param] if isinstance(param, Var) else param.values())
        ]
        inside = _Inside(self._params)
        made = [inside.part(b, b.var in self.results) for b in self.bindings]
        results = [inside.expr(v) for v in self.results]
        body = results[0] if len(results) == 1 else Tuple(results)
        seq = SeqExpr([DataflowBlock([b for b in made if b is not None])], body)
        held = {**attrs, PRIMITIVE: 1}
        func = Function(params, seq, attrs=held)
        symbols = free_symbolic_vars(func)
        if symbols:
            shape = Var("tir_vars", ShapeStructInfo(symbols))
            func = Function([*params, shape], seq, attrs=held)
        # Its variables are new; symbols that the function has are those of the caller.
        symbolic = symbols or any(symbols_of(p.struct_info_) for p in params)
        return (copy_with_new_vars(func) if symbolic else func), symbols, not symbolic


def _without_tuple(b: Binding) -> Binding:
    """``b``; of a field of a tuple that stands in it, the field."""
    value = b.value
    if not (isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Tuple)):
        return b
    return VarBinding(b.var, value.tuple_value.fields[value.index], b.span)


class _Inside(Rewriter):
    """Rebuilds bindings inside the function that gets them."""

    def __init__(self, params: Mapping[Expr, Var | dict[int, Var]]) -> None:
        super().__init__()
        self.params = params

    def expr(self, root: Expr) -> Expr:
        """``root`` with parameters in the place of what is an argument as it stands."""
        if type(root) is Call and isinstance(root.op, Op) and root not in self.params:
            flat = [self._operand(a) for a in root.args]  # as most values are
            known = [a for a in flat if a is not None]
            if len(known) == len(flat) and root.sinfo_args:
                # A call of a kernel says what it gives, and parameters are what arguments were.
                info = root.struct_info_
                return Call(
                    root.op, known, root.attrs, root.sinfo_args, root.span, struct_info=info
                )
            if len(known) == len(flat):
                return self._node(root, known)
        done: dict[int, Expr] = {}
        for node in post_order(root, below=self._below):
            param = self.params.get(node)
            kids = [done[id(k)] for k in self._below(node)]
            done[id(node)] = param if isinstance(param, Var) else self._node(node, kids)
        return done[id(root)]

    def _operand(self, arg: Expr) -> Expr | None:
        """A leaf or a tuple of leaves there; None for anything else."""
        param = self.params.get(arg)
        if isinstance(param, Var):
            return param
        if type(arg) in LEAF_TYPES:
            return self.leaf(arg)
        if type(arg) is Tuple and all([type(f) in LEAF_TYPES for f in arg.fields]):
            fields = [self._operand(f) for f in arg.fields]
            return self._node(arg, [f for f in fields if f is not None])
        return None

    def _below(self, node: Expr) -> Sequence[Expr]:
        return () if isinstance(self.params.get(node), Var) else children(node)

    def part(self, b: Binding, result: bool) -> Binding | None:
        """``b`` there; None for a field of a tuple that is a parameter."""
        assert isinstance(b, VarBinding)
        fields = self.params.get(b.value.tuple_value) if isinstance(b.value, TupleGetItem) else None
        if isinstance(b.value, TupleGetItem) and isinstance(fields, dict):
            self.env[b.var] = fields[b.value.index]
            return None
        value = self.expr(b.value)
        kind = Var if result else DataflowVar
        var = kind(b.var.name_hint, b.var.struct_info_, b.var.span)
        self.env[b.var] = var
        return VarBinding(var, value, b.span)


def _alike(value: Expr, places: Mapping[Expr, Any]) -> Any:
    """What values have in common that are one in functions of groups; NoKey for other kinds."""
    if type(value) is Call:
        op = value.op if isinstance(value.op, Op) else _operand_key(value.op, places)
        attrs = tuple([(k, exact(v)) for k, v in value.attrs.items()]) if value.attrs else ()
        return op, attrs, tuple([_operand_key(a, places) for a in value.args]), value.sinfo_args
    if type(value) is TupleGetItem:
        return value.index, _operand_key(value.tuple_value, places)
    raise NoKey


def _operand_key(arg: Expr, places: Mapping[Expr, Any]) -> Any:
    """The place of an operand among parameters and values of the group, else what it is."""
    place = places.get(arg)
    if place is not None:
        return place
    if type(arg) is Tuple:
        return tuple([_operand_key(f, places) for f in arg.fields])
    if isinstance(arg, StringImm | DataTypeImm):
        return type(arg), arg.value
    if isinstance(arg, PrimValue | ShapeExpr):
        return type(arg), arg.struct_info_
    return arg


def _stays(arg: Expr) -> bool:
    """Whether an operand is part of the function itself: names, and numbers that are known."""
    if isinstance(arg, Tuple):
        return all(map(_stays, arg.fields))
    if isinstance(arg, PrimValue | ShapeExpr):
        return not symbols_of(arg.struct_info_)
    return isinstance(arg, StringImm | DataTypeImm | GlobalVar | ExternFunc)

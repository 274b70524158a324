"""MergeCompositeFunctions: neighbouring calls for one code generator become one function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from relax2xla.analysis.variables import used_vars
from relax2xla.ir import (
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.rewrite import Rewriter
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.kernel_calls import PRIMITIVE
from relax2xla.transform.fusion.grouping import (
    CODEGEN,
    COMPOSITE,
    Fuser,
    Group,
    dataflow_blocks,
)
from relax2xla.transform.fusion.patterns import codegen_name
from relax2xla.transform.normal.dead_code import DeadCodeElimination


@register()
class MergeCompositeFunctions(Pass):
    """Make one function, for a code generator, of composite functions that ``main`` calls in a row.

    Calls whose composite functions (FuseOpsByPattern) name one code generator, and of which one
    reads the other, are merged unless something between them reads the first and is read by the
    second. The function has the attributes ``Codegen`` and ``global_symbol`` and holds the
    composite functions as local ones. What ``main`` does not reach any more goes.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        main = mod.get_global_var("main")
        composites = {
            g: codegen_name(f.attrs[COMPOSITE])
            for g, f in mod.relax_functions().items()
            if COMPOSITE in f.attrs
        }
        if not composites:
            return mod
        fuser = Fuser(mod, lift_constants=True)
        groups: dict[Var, Group] = {}
        for block in dataflow_blocks(mod[main]):
            groups.update(_Merging(block, composites).groups())
        fuser.fuse(main, groups)
        made = _self_contained(fuser.result(), mod)
        return DeadCodeElimination(["main"]).run(made, context)


class _Part:
    """Bindings of a block that are merged: their codegen, and what they read of other parts."""

    __slots__ = ("codegen", "first", "into", "last", "members", "needs")

    def __init__(self, var: Var, codegen: str | None, at: int) -> None:
        self.members, self.codegen = [var], codegen
        self.first = self.last = at
        self.needs: set[_Part] = set()
        self.into: _Part | None = None

    def root(self) -> _Part:
        """The part that this one was merged into."""
        found = self
        while found.into is not None:
            found = found.into
        # Paths stay short.
        at: _Part = self
        while at.into is not None and at.into is not found:
            at.into, at = found, at.into
        return found

    def take(self, other: _Part) -> None:
        """Merge ``other`` into this part."""
        other.into = self
        self.members += other.members
        self.needs |= other.needs
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)


class _Merging:
    """Which composite calls of one dataflow block are merged."""

    def __init__(self, block: DataflowBlock, composites: Mapping[GlobalVar, str]) -> None:
        self.parts: dict[Var, _Part] = {}
        for at, b in enumerate(block.bindings):
            call = b.value if isinstance(b, VarBinding) else None
            callee = call.op if isinstance(call, Call) else None
            codegen = composites.get(callee) if isinstance(callee, GlobalVar) else None
            new = _Part(b.var, codegen, at)
            read = {p.root() for v in used_vars(b.value) if (p := self.parts.get(v)) is not None}
            new.needs |= read
            self.parts[b.var] = new
            if isinstance(b, VarBinding) and isinstance(b.value, Var) and read:
                # Another name for what a function gives: the function may give it as well.
                (source,) = read
                if source.codegen is not None:
                    source.take(new)
            elif codegen is not None and isinstance(call, Call):
                self._merge(new, call.args, read)

    def _merge(self, new: _Part, args: Sequence[Expr], read: set[_Part]) -> None:
        """Merge ``new`` with the parts of its operands that nothing in between keeps apart."""
        # Operands in their order: the first gives the function its first bindings.
        roots = dict.fromkeys(
            p.root() for a in args if isinstance(a, Var) and (p := self.parts.get(a))
        )
        fitting = [p for p in roots if p.codegen == new.codegen]
        chosen = [p for p in fitting if not self._needed_by(p, read)]
        for part in chosen:
            new.take(part)

    def _needed_by(self, part: _Part, others: Iterable[_Part]) -> bool:
        """Whether one of ``others`` besides ``part`` reads it, directly or not."""
        todo = [p for p in others if p is not part]
        # What ends before all parts begin that go on behind the first binding of this one cannot
        # need it. Only these are looked at, so that far ends of a long program are not walked.
        since = islice(reversed(self.parts.values()), len(self.parts) - 1 - part.first)
        begin = min((p.root().first for p in since if p.root() is not part), default=part.first)
        seen: set[_Part] = set(todo)
        while todo:
            for need in {n.root() for n in todo.pop().needs}:
                if need is part:
                    return True
                if need not in seen and need.last >= begin:
                    seen.add(need)
                    todo.append(need)
        return False

    def groups(self) -> dict[Var, Group]:
        """The groups of variables, each a function."""
        made: dict[_Part, Group] = {}
        found: dict[Var, Group] = {}
        for var, part in self.parts.items():
            root = part.root()
            if root.codegen is not None:
                group = made.setdefault(root, Group([], {CODEGEN: root.codegen}))
                group.members.append(var)
                found[var] = group
        return found


def _self_contained(mod: IRModule, source: IRModule) -> IRModule:
    """``mod`` with the merged functions under public names, composite functions inside of them."""
    names: dict[GlobalVar, GlobalVar] = {}
    functions = dict(mod.functions)
    for gvar, func in mod.relax_functions().items():
        if gvar in source or CODEGEN not in func.attrs:
            continue
        new = GlobalVar(f"{gvar.name_hint}_{func.attrs[CODEGEN]}")
        made = _with_local_functions(func, source).without_attr(PRIMITIVE)
        del functions[gvar]
        functions[new] = made.with_attr("global_symbol", new.name_hint)
        names[gvar] = new
        new.struct_info_ = made.struct_info_
    if not names:
        return mod
    main = mod.get_global_var("main")
    renamed = Rewriter(rule=lambda e: names.get(e) if isinstance(e, GlobalVar) else None)
    functions[main] = renamed.function(mod[main])
    return mod.replace(functions)


def _with_local_functions(func: Function, source: IRModule) -> Function:
    """``func`` out of dataflow, with the composite functions that it calls as local ones."""
    out = Rewriter()
    made: list[VarBinding] = []
    locals_: dict[GlobalVar, Var] = {}
    for block in func.body.blocks:
        for b in block.bindings:
            value = out.expr(b.value)
            if isinstance(value, Call) and isinstance(value.op, GlobalVar):
                name = locals_.get(value.op)
                if name is None:
                    local = copy_with_new_vars(source[value.op]).without_attr(PRIMITIVE)
                    name = locals_[value.op] = Var(value.op.name_hint, local.struct_info_)
                    made.append(VarBinding(name, local))
                value = Call(name, value.args, span=value.span, struct_info=value.struct_info_)
            var = Var(b.var.name_hint, b.var.struct_info_, b.var.span)
            out.env[b.var] = var
            made.append(VarBinding(var, value, b.span))
    body = out.expr(func.body.body)
    return func.replace(body=SeqExpr([BindingBlock(made)], body))

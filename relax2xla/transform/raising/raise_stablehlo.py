"""RaiseStableHLO: rows become high-level operators again where that is exact (decision D3).

The inverse of LegalizeOps on what can be recognised. Every operator that is put in place of rows
is first lowered, and its lowering compared with them, so no table entry has to be trusted: a
raised module computes what it did. The few places where numbers may differ in the last digit are
composites that other programs write with another order of rounding (a mean as a sum times 1 / n);
``raising/composites.py`` names them. What does not match stays a row: modules may mix both.

The pass walks the bindings backwards, so that the largest pattern is seen first, and looks at each
row once; so its cost is linear. Patterns are asked only where a row of theirs is near, templates
are made once for all rows of the same shapes, and single rows are looked up by what they are. The
insides of loops and branches are raised, too; regions of reductions and sorts stay as they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from relax2xla.analysis.foreign import ForeignCalls
from relax2xla.analysis.unused import remove_unused
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Op,
    SeqExpr,
    Span,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import children, post_order, rebuild
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.grad.remove_marks import without_own_derivatives
from relax2xla.transform.raising.common import Pattern
from relax2xla.transform.raising.composites import PATTERNS
from relax2xla.transform.raising.graph import Graph, flat, row_name
from relax2xla.transform.raising.inline import inline_private
from relax2xla.transform.raising.match import Guess, Matcher, filled
from relax2xla.transform.raising.table import Recipe, Table


@dataclass(frozen=True, slots=True)
class Kept:
    """A row that stayed: its name, its variable, where it comes from, and why."""

    function: str
    row: str
    var: str
    span: Span | None
    reason: str

    def __str__(self) -> str:
        at = f" at {self.span}" if self.span else ""
        return f"{self.function}: {self.row} ({self.var}){at}: {self.reason}"


@register()
class RaiseStableHLO(Pass):
    """Put high-level operators in place of StableHLO and CHLO rows, where they are the same.

    ``report``: a list that gets a :class:`Kept` for every row that stayed. ``inline``: private
    functions of at most 64 bindings (JAX's helpers, such as ``_where`` and ``silu``) are inlined
    first, so that patterns that call them are seen; False keeps all functions. Names of variables
    and spans are kept, and unused bindings removed.
    """

    def __init__(self, report: list[Kept] | None = None, inline: bool = True) -> None:
        self.report = report
        self.inline = inline

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        # Operators have derivatives of their own.
        mod = without_own_derivatives(mod)
        if self.inline:
            mod = inline_private(mod)
        foreign = ForeignCalls(mod)
        new: dict[GlobalVar, Any] = {}
        shared = _Shared()
        for gvar, func in mod.items():
            new[gvar] = func
            if not isinstance(func, Function):
                continue
            new[gvar], reasons = raised(func, foreign, shared)
            if self.report is not None:
                self.report += [Kept(gvar.name_hint, *r) for r in reasons]
        return mod.replace(new)


Reasons = list[tuple[str, str, Span | None, str]]
# An operator, and the variables whose rows it takes the place of besides the last.
Found = tuple[Expr, list[Expr]]


@dataclass
class _Shared:
    """What the functions of a module have in common: templates, and answers of the table."""

    templates: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])
    recipes: dict[Hashable, Recipe | None] = field(default_factory=dict[Hashable, Recipe | None])


def raised(
    func: Function, foreign: ForeignCalls, shared: _Shared | None = None
) -> tuple[Function, Reasons]:
    """``func`` with operators in place of rows, and of each row that stayed its name, variable,
    span and reason; see :class:`RaiseStableHLO`. ``foreign``: of its module.
    """
    raiser = _Raiser(remove_unused(func, foreign), shared or _Shared())
    new = raiser.function()
    return (remove_unused(new, foreign) if raiser.made else new), raiser.kept()


class _Raiser:
    """One function: each row is looked at once, from the end, so that the largest pattern is seen
    first. A pattern of which something else uses a part waits until that is used less often.
    """

    def __init__(self, func: Function, shared: _Shared) -> None:
        self.func = func
        self.graph = Graph(func, shared.templates)
        self.table = Table(self.graph, shared.recipes)
        self.reasons: dict[Expr, str] = {}
        self.seen: set[Expr] = set()
        # What takes the place of a binding's value, and the pattern that said so.
        self.made: dict[Expr, Expr] = {}
        self.patterns: dict[Expr, str] = {}
        # Last rows of patterns, by a part that kept them from being taken.
        self.waiting: dict[Expr, dict[Var, None]] = {}
        self.again: dict[Var, None] = {}
        # What is free now may be asked for by a later look.
        self.looked: set[Expr] = set()

    def kept(self) -> Reasons:
        """Rows that stayed, in order, but not those of regions."""
        made: Reasons = []
        for var, value in self.graph.defs.items():
            stayed = var in self.seen and var not in self.made
            if stayed and isinstance(var, Var) and isinstance(value, Call):
                reason = self.reasons.get(var, "no operator is exactly this row")
                made.append((f"{value.op!r}", var.name_hint, value.span, reason))
        return made

    def function(self) -> Function:
        """The function with a raised body; no recursion, however deep loops and branches nest."""
        graph = self.graph
        for seq in reversed(graph.seqs):
            for block in reversed(seq.blocks):
                for b in reversed(block.bindings):
                    if isinstance(b, VarBinding):
                        self.look(b.var)
        while self.again:
            graph.forget()
            turn, self.again = self.again, {}
            for var in turn:
                self.look(var)
        if not self.made:
            return self.func
        done: dict[int, SeqExpr] = {}
        for seq in reversed(graph.seqs):
            done[id(seq)] = self.seq(seq, done)
        return self.func.replace(body=done[id(self.func.body)])

    def look(self, var: Var) -> None:
        """Put an operator in place of the row that ``var`` is bound to, if it is one."""
        value = self.graph.defs.get(var)
        if not isinstance(value, Call | TupleGetItem):
            return
        found = self.guess(var, value)
        if found is not None:
            self.made[var], parts = found
            less = self.graph.replace(var, self.made[var])
            for part in parts:
                less += self.graph.drop(part)
            self.freed(less)

    def freed(self, variables: list[Var]) -> None:
        """These are read less often than before: patterns that wait for them may be tried again,
        and what nothing reads any more reads nothing itself.
        """
        graph = self.graph
        while variables:
            var = variables.pop()
            self.again.update(self.waiting.pop(var, {}))
            value = graph.defs.get(var)
            if graph.uses[var] <= 0 and isinstance(value, Call) and is_pure_row(value):
                variables += graph.drop(var)

    def seq(self, seq: SeqExpr, done: dict[int, SeqExpr]) -> SeqExpr:
        """A sequence with what was found; those inside it are done."""
        blocks: list[BindingBlock] = []
        for block in seq.blocks:
            out: list[Binding] = []
            for b in block.bindings:
                self.binding(b, done, out)
            blocks.append(type(block)(out, block.span))
        return SeqExpr(blocks, seq.body, seq.span)

    def binding(self, b: Binding, done: dict[int, SeqExpr], out: list[Binding]) -> None:
        """Put into ``out`` what takes the place of one binding."""
        graph, value = self.graph, b.value
        if not isinstance(b, VarBinding):
            out.append(b)
        elif b.var not in graph.defs:
            pass  # Part of a pattern.
        elif isinstance(value, Function):
            if b.var not in graph.closed:
                b = VarBinding(b.var, value.replace(body=done[id(value.body)]), b.span)
            out.append(b)
        elif isinstance(value, If):
            one, two = (done[id(x)] for x in (value.true_branch, value.false_branch))
            out.append(VarBinding(b.var, If(value.cond, one, two, value.span), b.span))
        elif b.var in self.made:
            last = _bind_all(self.made[b.var], b, out)
            out.append(VarBinding(b.var, last, b.span))
        else:
            out.append(b)

    def guess(self, var: Var, value: Call | TupleGetItem) -> Found | None:
        """The operator that ``var`` is, or None with the reason noted."""
        name = row_name(value)
        if name:
            self.seen.add(var)
        if isinstance(value, Call) and "discardable" in value.attrs:
            self.reasons[var] = "it has attributes of other dialects, which operators cannot hold"
            return None
        for pattern in PATTERNS.get(name or "item", ()) if name or _is_item(value) else ():
            if not pattern.fits(self.graph, value):
                continue
            for guess in self.guesses(pattern, value):
                found = self.match(var, guess)
                if found is not None:
                    self.patterns[var] = pattern.name
                    return found
        made = self.table.operator(var, value) if isinstance(value, Call) else None
        return None if made is None else (made, [])

    def guesses(self, pattern: Pattern, value: Expr) -> Iterator[Guess]:
        """What a pattern makes of a value."""
        try:
            yield from pattern.look(self.graph, value)
        except (TVMError, ValueError):
            return  # An operator or numpy's broadcasting refuses the shapes supposed.

    def match(self, var: Var, guess: Guess) -> Found | None:
        """The value of a guess, if ``var`` is computed as one of its templates says."""
        if guess.value.struct_info_ != var.struct_info_:
            return None
        matcher = Matcher(self.graph)
        for form in guess.templates():
            if matcher.matches(form, var) and matcher.fills(guess.value):
                break
            matcher = Matcher(self.graph)
        else:
            return None
        if matcher.bound or len(matcher.inner) > 1:
            shared = matcher.shared(var, guess.value)
            if shared:
                self.reasons[var] = f"a part of {_name(guess.value)} is used elsewhere"
                for part in shared:
                    self.waiting.setdefault(part, {})[var] = None
                return None
        parts = [v for v in matcher.inner if v is not var]
        return filled(guess.value, matcher.bound), parts


def _is_item(value: Expr) -> bool:
    return isinstance(value, TupleGetItem)


def is_pure_row(value: Call) -> bool:
    """Whether a call of a row may go if nothing reads it."""
    return isinstance(value.op, Op) and value.op.is_pure_call(value)


def _name(value: Expr) -> str:
    while isinstance(value, TupleGetItem):
        value = value.tuple_value
    return value.op.name if isinstance(value, Call) and isinstance(value.op, Op) else "a pattern"


def _bind_all(root: Expr, b: VarBinding, out: list[Binding]) -> Expr:
    """``root`` in A-normal form; what it is made of is bound in ``out``."""
    if isinstance(root, Call) and flat(root):
        return _at(root, b)
    done: dict[int, Expr] = {}
    for node in post_order(root):
        kids = children(node)
        new = rebuild(node, [done[id(k)] for k in kids]) if kids else node
        if node is not root and isinstance(new, Call | TupleGetItem):
            name = _name(new).rpartition(".")[2]
            var = type(b.var)(name, new.struct_info, b.var.span)
            out.append(VarBinding(var, new, b.span))
            new = var
        done[id(node)] = new
    last = done[id(root)]
    return _at(last, b) if isinstance(last, Call) else last


def _at(call: Call, b: VarBinding) -> Call:
    """``call`` with the span of the value that it takes the place of."""
    return Call(
        call.op,
        call.args,
        call.attrs,
        call.sinfo_args,
        b.value.span,
        struct_info=call.struct_info_,
    )

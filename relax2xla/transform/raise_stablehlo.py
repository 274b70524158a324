"""RaiseStableHLO: rows become high-level operators again where that is exact (decision D3).

The inverse of LegalizeOps on what can be recognised. Every operator that is put in place of rows
is first lowered, and its lowering compared with them, so no table entry has to be trusted: a
raised module computes what it did. The few places where numbers may differ in the last digit are
composites that other programs write with another order of rounding (a mean as a sum times 1 / n);
``raising/composites.py`` names them. What does not match stays a row: modules may mix both.

The pass walks the bindings backwards, so that the largest pattern is seen first, and repeats until
nothing changes, so that it is idempotent. The insides of loops and branches are raised, too;
regions of reductions and sorts stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
from relax2xla.transform._pass import Pass, PassContext, PassInfo
from relax2xla.transform.raising.composites import PATTERNS
from relax2xla.transform.raising.graph import Graph, row_name
from relax2xla.transform.raising.inline import inline_private
from relax2xla.transform.raising.match import Guess, Matcher, filled
from relax2xla.transform.raising.rows import TABLE


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
        super().__init__(PassInfo("RaiseStableHLO"), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        if self.inline:
            mod = inline_private(mod)
        foreign = ForeignCalls(mod)
        new: dict[GlobalVar, Any] = {}
        for gvar, func in mod.items():
            new[gvar] = func
            if not isinstance(func, Function):
                continue
            new[gvar], reasons = raised(func, foreign)
            if self.report is not None:
                self.report += [Kept(gvar.name_hint, *r) for r in reasons]
        return mod.replace(new)


Reasons = list[tuple[str, str, Span | None, str]]


def raised(func: Function, foreign: ForeignCalls) -> tuple[Function, Reasons]:
    """``func`` with operators in place of rows, and of each row that stayed its name, variable,
    span and reason; see :class:`RaiseStableHLO`. ``foreign``: of its module.
    """
    func = remove_unused(func, foreign)
    while True:
        raiser = _Raiser(Graph(func))
        new = raiser.function(func)
        if not raiser.changed:
            break
        func = remove_unused(new, foreign)
    return func, raiser.kept()


class _Raiser:
    """One walk over a function; ``reasons`` says of rows that stayed why."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.changed = False
        self.reasons: dict[Expr, str] = {}
        self.seen: set[Expr] = set()
        self.done: dict[int, SeqExpr] = {}

    def kept(self) -> Reasons:
        """Rows that stayed, in order, but not those of regions."""
        made: Reasons = []
        for var, value in self.graph.defs.items():
            if var in self.seen and isinstance(var, Var) and isinstance(value, Call):
                reason = self.reasons.get(var, "no operator is exactly this row")
                made.append((f"{value.op!r}", var.name_hint, value.span, reason))
        return made

    def function(self, func: Function) -> Function:
        """``func`` with a raised body; no recursion, however deep loops and branches nest."""
        for seq in reversed(self.graph.seqs):
            self.done[id(seq)] = self.seq(seq)
        return func.replace(body=self.done[id(func.body)])

    def seq(self, seq: SeqExpr) -> SeqExpr:
        """All bindings of a sequence, the last first; those inside it are done."""
        blocks: list[BindingBlock] = []
        for block in reversed(seq.blocks):
            out: list[Binding] = []
            for b in reversed(block.bindings):
                out += reversed(self.binding(b))
            blocks.append(type(block)(out[::-1], block.span))
        return SeqExpr(blocks[::-1], seq.body, seq.span)

    def binding(self, b: Binding) -> list[Binding]:
        """What takes the place of one binding."""
        graph = self.graph
        if not isinstance(b, VarBinding):
            return [b]
        if b.var not in graph.defs:
            return []  # Part of a pattern.
        value = b.value
        if isinstance(value, Function):
            if b.var in graph.closed:
                return [b]
            return [VarBinding(b.var, value.replace(body=self.done[id(value.body)]), b.span)]
        if isinstance(value, If):
            one, two = (self.done[id(x)] for x in (value.true_branch, value.false_branch))
            return [VarBinding(b.var, If(value.cond, one, two, value.span), b.span)]
        made = self.guess(b.var, value)
        if made is None:
            return [b]
        self.changed = True
        out: list[Binding] = []
        last = _bind_all(made, b, out)
        graph.replace(b.var, made)
        out.append(VarBinding(b.var, last, b.span))
        return out

    def guess(self, var: Var, value: Expr) -> Expr | None:
        """The operator that ``var`` is, or None with the reason noted."""
        if not isinstance(value, Call | TupleGetItem):
            return None
        if row_name(value):
            self.seen.add(var)
        if isinstance(value, Call) and "discardable" in value.attrs:
            self.reasons[var] = "it has attributes of other dialects, which operators cannot hold"
            return None
        for guess in self.guesses(value):
            if guess.value.struct_info_ != var.struct_info_:
                continue
            matcher = Matcher(self.graph)
            for template in _templates(guess):
                if matcher.matches(template, var) and matcher.fills(guess.value):
                    break
                matcher = Matcher(self.graph)
            else:
                continue
            if matcher.bound or len(matcher.inner) > 1:
                if not matcher.private(var, guess.value):
                    self.reasons[var] = f"a part of {_name(guess.value)} is used elsewhere"
                    continue
                for inner in matcher.inner:
                    if inner is not var:
                        self.graph.drop(inner)
            return filled(guess.value, matcher.bound)
        return None

    def guesses(self, value: Expr) -> Iterator[Guess]:
        """All guesses for a value: composites first, then the table of rows."""
        for pattern in PATTERNS.get(_anchor(value), ()):
            try:
                yield from pattern(self.graph, value)
            except (TVMError, ValueError):
                continue  # An operator or numpy's broadcasting refuses the shapes supposed.
        rule = TABLE.get(row_name(value))
        if rule is not None and isinstance(value, Call):
            try:
                yield from rule(self.graph, value)
            except TVMError:
                return  # The operator refuses these dtypes or shapes.


def _templates(guess: Guess) -> Iterator[Expr]:
    try:
        yield from guess.templates()
    except (TVMError, ValueError):
        return  # The operator has no lowering for these shapes.


def _anchor(value: Expr) -> str:
    return "item" if isinstance(value, TupleGetItem) else row_name(value)


def _name(value: Expr) -> str:
    while isinstance(value, TupleGetItem):
        value = value.tuple_value
    return value.op.name if isinstance(value, Call) and isinstance(value.op, Op) else "a pattern"


def _bind_all(root: Expr, b: VarBinding, out: list[Binding]) -> Expr:
    """``root`` in A-normal form; what it is made of is bound in ``out``."""
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
    if isinstance(last, Call):
        last = Call(
            last.op,
            last.args,
            last.attrs,
            last.sinfo_args,
            b.value.span,
            struct_info=last.struct_info_,
        )
    return last

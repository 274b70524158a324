"""Rules over functions: a pattern, and a function that says what takes the place of a match.

::

    x, w = wildcard(), wildcard()


    @rule(is_op("relax.matmul")(x, is_op("relax.permute_dims")(w)))
    def product_of_rows(m: Match) -> Expr | None:
        return op.einsum((m[x], m[w]), "...y,zy->...z")


    func, modified = rewrite(func, [product_of_rows])

Rules are found by the operator at the root of their patterns, so that a binding which none can
match costs one look into a dictionary. Functions are walked once, front to back. A match sees what
the operands of its root are computed from, as the rules before it have left it; never what comes
later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from relax2xla.dpl.constancy import FromConstants
from relax2xla.dpl.emit import Emitter, refitted, retyped
from relax2xla.dpl.match import Matcher, key_of
from relax2xla.dpl.pattern import DFPattern
from relax2xla.errors import TransformError
from relax2xla.ir.deep import nests
from relax2xla.ir.equal import structural_equal
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import Rewriter, bindings_of, post_order_deep, reads


class Match:
    """What a rule gets: the value it may replace, and what the nodes of its pattern have matched.

    var: the variable that the value is bound to; value: the value; found: what each node has
    matched, variables looked through; at: the operands as they stand; span: of the binding
    """

    __slots__ = ("_emitter", "_sweep", "at", "found", "span", "value", "var")

    def __init__(self, sweep: Sweep, emitter: Emitter, binding: Binding) -> None:
        self._sweep, self._emitter = sweep, emitter
        self.var, self.value, self.span = binding.var, binding.value, binding.span
        self.found: Mapping[DFPattern, Expr] = sweep.matcher.found
        self.at: Mapping[DFPattern, Expr] = sweep.matcher.at

    @property
    def call(self) -> Call:
        """The value, where the pattern is one of a call."""
        assert isinstance(self.value, Call)
        return self.value

    def __getitem__(self, pattern: DFPattern) -> Expr:
        """The operand that ``pattern`` has matched."""
        return self.at[pattern]

    def called(self, pattern: DFPattern) -> Call:
        """The call that ``pattern`` has matched."""
        found = self.found[pattern]
        assert isinstance(found, Call)
        return found

    def bound(self, expr: Expr) -> Expr:
        """What ``expr`` is bound to, if it is a variable and what computes it is in sight here."""
        return self._sweep.matcher.value(expr)

    def origin(self, expr: Expr) -> Expr:
        """What ``expr`` is bound to, wherever: it may read what is out of sight here."""
        while isinstance(expr, Var) and expr in self._sweep.defined:
            expr = self._sweep.defined[expr]
        return expr

    def from_constants(self, expr: Expr) -> bool:
        """Whether ``expr`` is computed from constants alone, none of them behind a barrier."""
        return self._sweep.from_constants(expr)

    def uses(self, expr: Expr) -> int:
        """How often the function, as it was given, reads ``expr``."""
        return self._sweep.uses[expr]

    def bind(self, name: str, value: Expr) -> Var:
        """A variable for ``value``, before this one and named after it.

        Operands that compute get variables of their own.
        """
        flat = self._emitter.flat(value, self.var.span)
        return self._emitter.bind(flat, f"{self.var.name_hint}_{name}", self.var.span)

    def drop(self, expr: Expr) -> None:
        """If the match is replaced, the binding of the variable ``expr`` goes: nobody reads it."""
        self._sweep.to_drop.add(expr)


Action: TypeAlias = Callable[[Match], Expr | None]
"""What takes the place of a match; None, or the value itself, leaves it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern and what takes its place."""

    pattern: DFPattern
    action: Action


def rule(pattern: DFPattern) -> Callable[[Action], Rule]:
    """Make a Rule of the decorated function."""
    return lambda action: Rule(pattern, action)


class Index:
    """Rules by what their patterns have at the root.

    found: by key; anywhere: those that any value may match
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        found: dict[object, list[tuple[int, Rule]]] = {}
        anywhere: list[tuple[int, Rule]] = []
        for i, r in enumerate(rules):
            keys = r.pattern.keys()
            if keys is None:
                anywhere.append((i, r))
            for key in keys or ():
                found.setdefault(key, []).append((i, r))

        def in_order(some: Sequence[tuple[int, Rule]]) -> tuple[Rule, ...]:
            return tuple(r for _, r in sorted([*some, *anywhere], key=lambda pair: pair[0]))

        self.found = {key: in_order(some) for key, some in found.items()}
        self.anywhere = in_order(())

    def get(self, value: Expr) -> tuple[Rule, ...]:
        """The rules whose patterns may match ``value``, in order."""
        return self.found.get(key_of(value), self.anywhere)


Target = TypeVar("Target", Function, IRModule)


def rewrite(
    target: Target, rules: Iterable[Rule], *, again: bool = False, inside: bool = True
) -> tuple[Target, int]:
    """``target`` under ``rules``, the first that applies to a binding; and how many did.

    ``again``: rules see what rules have made, until none applies; TransformError if that does not
    end. ``inside``: also in branches, in functions that are values or operands. Where no rule
    applies, ``target`` itself comes back. The cost is linear in the bindings.
    """
    index = Index(rules)
    if isinstance(target, Function):
        return _of_function(target, index, again, inside)
    made: dict[Any, Any] = {}
    modified = 0
    for gvar, func in target.items():
        made[gvar] = func
        if isinstance(func, Function):
            made[gvar], count = _of_function(func, index, again, inside)
            modified += count
    return (target.replace(made) if modified else target), modified


def _of_function(func: Function, index: Index, again: bool, inside: bool) -> tuple[Function, int]:
    if not _is_candidate(func.body, index, inside):
        return func, 0
    sweep = Sweep(index, again=again, inside=inside, root=func)
    body = sweep.seq(func.body)
    return finished(func, body, sweep.renamed), sweep.modified


def finished(func: Function, body: SeqExpr, renamed: Mapping[Var, Var]) -> Function:
    """``func`` with another body, in which variables may have got other struct infos."""
    if body is func.body:
        return func
    func = func.replace(body=body)
    if renamed:
        func = Rewriter(values=renamed).function(func)
    return refitted(func)


@nests
def _is_candidate(seq: SeqExpr, index: Index, inside: bool) -> bool:
    """Whether a rule may match anything in ``seq``; most bindings of most functions none does."""
    found = index.found
    for block in seq.blocks:
        for b in block.bindings:
            value = b.value
            if type(value) is not Call:
                if index.get(value):
                    return True
                if inside and any(_is_candidate(s, index, inside) for s in _scopes(value)):
                    return True
                continue
            op = value.op
            if op in found or ((index.anywhere or not isinstance(op, Op)) and index.get(value)):
                return True
            if inside:
                for a in value.args:
                    if type(a) is Function and _is_candidate(a.body, index, inside):
                        return True
    return False


def _scopes(value: Expr) -> list[SeqExpr]:
    """The sequences in a value."""
    if type(value) is Call:
        return [a.body for a in value.args if type(a) is Function]
    if isinstance(value, Function):
        return [value.body]
    return [value.true_branch, value.false_branch] if isinstance(value, If) else []


class Sweep:
    """One walk over bindings, front to back, under rules.

    matcher: with what the variables in sight are bound to; renamed: variables whose struct infos
    their new values do not have, and those in their place
    """

    def __init__(
        self,
        index: Index,
        *,
        again: bool = False,
        inside: bool = False,
        share: bool = False,
        root: Function | None = None,
    ) -> None:
        self.index, self.again, self.inside, self.share = index, again, inside, share
        self.matcher = Matcher()
        self.renamed: dict[Var, Var] = {}
        self.modified = 0
        self.defined: dict[Expr, Expr] = {}  # never forgotten, unlike what patterns see
        self.to_drop: set[Expr] = set()
        self._dropped: set[Expr] = set()
        self.from_constants = FromConstants(self.defined)
        self._root = root
        self._uses: Counter[Expr] | None = None
        self._seen = 0

    @property
    def uses(self) -> Counter[Expr]:
        """How often each variable is read in the function, wherever."""
        if self._uses is None:
            self._uses = Counter()
            if self._root is not None:
                for node in post_order_deep(self._root):
                    if isinstance(node, SeqExpr):
                        self._uses.update(v for b in bindings_of(node) for v in reads(b.value))
                        self._uses.update(reads(node.body))
        return self._uses

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        """``seq`` with what the rules have made; itself if nothing changes."""
        blocks = [self.block(block) for block in seq.blocks]
        if self._dropped:
            blocks = [
                type(block)([b for b in block.bindings if b.var not in self._dropped], block.span)
                for block in blocks
            ]
        if all(a is b for a, b in zip(blocks, seq.blocks, strict=True)):
            return seq
        return SeqExpr(blocks, seq.body, seq.span)

    def block(self, block: BindingBlock) -> BindingBlock:
        """One block; what only it can see is forgotten after it."""
        dataflow = isinstance(block, DataflowBlock)
        out: list[Binding] = []
        emitter = Emitter(out, dataflow, self.share)
        before = self.modified
        for b in block.bindings:
            self.binding(b, emitter)
        if dataflow:
            for b in out:
                hidden = isinstance(b.var, DataflowVar) or any(
                    isinstance(v, DataflowVar) for v in reads(b.value)
                )
                if hidden:
                    self.matcher.forget(b.var)
        return block if self.modified == before else type(block)(out, block.span)

    def binding(self, b: Binding, emitter: Emitter) -> None:
        """One binding and, if ``again``, whatever rules make of it."""
        todo = [b]
        self._seen += 1
        while todo:
            b = todo.pop()
            if isinstance(b, VarBinding):
                if rules := self.index.get(b.value):
                    made = self._rewritten(b, rules, emitter)
                    if made is not None:
                        todo += reversed(made)
                        continue
                if self.inside and (scopes := _scopes(b.value)):
                    b = self._inner(b, scopes)
                self.matcher.define(b.var, b.value)
                emitter.note(b.var, b.value)
            self.defined[b.var] = b.value
            emitter.out.append(b)

    def _rewritten(
        self, b: VarBinding, rules: Iterable[Rule], emitter: Emitter
    ) -> list[Binding] | None:
        """The bindings in the place of ``b`` that are still to be looked at; None: it stays."""
        start = len(emitter.out)
        for r in rules:
            if not self.matcher.match(r.pattern, b.value):
                continue
            self.to_drop = set()
            made = r.action(Match(self, emitter, b))
            value = None if made is None or made is b.value else emitter.flat(made, b.span)
            if value is None or structural_equal(value, b.value):
                emitter.drop(start)
                continue
            self.modified += 1
            self._dropped |= self.to_drop
            if self.modified > 10 * (self._seen + 100):
                raise TransformError(
                    f"a rewrite does not come to an end: at {b.var.name_hint} its results match "
                    "again and again; let the rule leave alone what it has made itself"
                )
            new: list[Binding] = [
                *emitter.out[start:],
                VarBinding(retyped(b.var, value, self.renamed), value, b.span),
            ]
            if not self.again:
                for x in new:
                    self.defined[x.var] = x.value
                    if isinstance(x, VarBinding):
                        self.matcher.define(x.var, x.value)
                emitter.note(new[-1].var, value)
                emitter.out.append(new[-1])
                return []
            # They come again one by one, and are known when they have stayed.
            emitter.drop(start)
            return new
        return None

    def _inner(self, b: VarBinding, scopes: Sequence[SeqExpr]) -> VarBinding:
        """``b`` with its branches and functions under the rules."""
        new = {id(s): self.seq(s) for s in scopes}
        if all(new[id(s)] is s for s in scopes):
            return b
        return VarBinding(b.var, with_scopes(b.value, lambda s: new[id(s)]), b.span)


def with_scopes(value: Expr, change: Callable[[SeqExpr], SeqExpr]) -> Expr:
    """``value`` with other sequences in it."""
    if isinstance(value, If):
        yes, no = change(value.true_branch), change(value.false_branch)
        return If(value.cond, yes, no, value.span)
    if isinstance(value, Function):
        return value.replace(body=change(value.body))
    assert isinstance(value, Call)
    args = [a.replace(body=change(a.body)) if isinstance(a, Function) else a for a in value.args]
    info = value.struct_info_
    return Call(value.op, args, value.attrs, value.sinfo_args, value.span, struct_info=info)

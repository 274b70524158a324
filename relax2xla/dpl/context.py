"""Patterns of whole dataflow blocks: which values use which, beside what each looks like.

::

    with PatternContext() as ctx:
        conv, relu = is_op("relax.nn.conv2d")(wildcard(), wildcard()), is_op("relax.nn.relu")
        conv >> relu(wildcard())
    matched = ctx.match_dfb(block)

Source of the semantics: ``tvm.relax.dpl``, version 0.20.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TypeAlias

from relax2xla.dpl.match import Matcher, key_of
from relax2xla.dpl.pattern import DFPattern
from relax2xla.dpl.relations import Edge, Relations
from relax2xla.errors import TVMError
from relax2xla.ir.expr import Binding, DataflowBlock, Var, VarBinding
from relax2xla.ir.rewrite import reads


class PatternContext(Relations):
    """Collects how the patterns that are written inside it use each other.

    ``incremental``: with all that the context around it has collected, to add more.
    """

    def match_dfb(self, dfb: DataflowBlock) -> dict[DFPattern, Var] | None:
        """Variables of ``dfb`` that the patterns of this context match, one for each; else None.

        A pattern that uses nothing may match a parameter, too. Uses outside of the block do not
        count.
        """
        return GraphMatcher(self, dfb.bindings).match()


# ---- the match -----------------------------------------------------------------------------------
Found: TypeAlias = dict[DFPattern, Var]
Search: TypeAlias = Generator["Search", "Found | None", "Found | None"]
"""A step of the search: yields searches, gets what they find, returns what it finds itself."""


def _run(root: Search) -> Found | None:
    """What a search finds; patterns may be chains of any length, so it is a loop."""
    stack, result = [root], None
    while stack:
        try:
            stack.append(stack[-1].send(result))
            result = None
        except StopIteration as stop:
            stack.pop()
            result = stop.value
    return result


class GraphMatcher:
    """Matches the patterns of a context with bindings, again and again as some of them go.

    visits: how often a pattern was compared with a variable
    """

    def __init__(self, context: PatternContext, bindings: Iterable[Binding]) -> None:
        self.consumers = context.edges
        self.constraints = context.constraints
        self.matcher = Matcher()
        self.visits = 0
        # What each variable reads, in order, as often as it does; who reads it, each once.
        self.reads: dict[Var, list[Var]] = {}
        for b in bindings:
            if isinstance(b, VarBinding):
                self.matcher.define(b.var, b.value)
                self.reads[b.var] = reads(b.value, inside=True)
        self.users: dict[Var, dict[Var, None]] = {}
        for user, used in self.reads.items():
            for var in used:
                self.users.setdefault(var, {})[user] = None
        used_patterns = {c for consumers in self.consumers.values() for c in consumers}
        self.patterns = [*self.consumers, *(p for p in used_patterns if p not in self.consumers)]
        self.roots = [p for p in self.consumers if p not in used_patterns]
        self._keys = {p: p.keys() for p in self.roots}
        known = {p for c in self.constraints for p in c.args}
        for pattern in known.difference(self.patterns):
            raise TVMError(f"same_shape_as names {pattern!r}, which no pattern uses or is used by")
        self._order = list(self.users)
        self._rank = {var: i for i, var in enumerate(self._order)}
        self._start = 0

    def remove(self, variables: Iterable[Var]) -> None:
        """Leave bindings out of further matches."""
        for var in variables:
            for used in self.reads.pop(var, ()):
                self.users[used].pop(var, None)
            self.matcher.forget(var)

    def skip(self) -> None:
        """Leave the last match as it is; the next one begins with another variable."""
        self._start += 1

    def match(self) -> Found | None:
        """The next match; without a removal it is the same again."""
        if not self.roots:
            return None
        # What is removed makes no new matches, so the first root goes on where it found the last.
        first = self.roots[0]
        for at in range(self._start, len(self._order)):
            self._start = at
            if self._may_be(first, self._order[at]):
                found = _run(self._rest({}, 0, [self._order[at]]))
                if found is not None:
                    return found
        self._start = len(self._order)
        return None

    def _may_be(self, root: DFPattern, var: Var) -> bool:
        keys = self._keys[root]
        if keys is not None and key_of(self.matcher.value(var)) not in keys:
            return False
        return len(self.users[var]) > 0

    def _rest(self, found: Found, index: int, candidates: Sequence[Var] | None = None) -> Search:
        """``found`` with all roots from ``index`` on."""
        while index < len(self.roots) and self.roots[index] in found:
            index += 1
        if index == len(self.roots):
            return found
        root = self.roots[index]
        if candidates is None:
            candidates = self._candidates(root, found)
        taken = set(found.values())
        for var in candidates:
            if var in taken or not self._may_be(root, var):
                continue
            more = yield self._with(root, var, found)
            if more is None:
                continue
            tried = {**found, **more}
            if all(c.may_hold(tried.get) for c in self.constraints):
                result = yield self._rest(tried, index + 1)
                if result is not None:
                    return result
        return None

    def _candidates(self, root: DFPattern, found: Mapping[DFPattern, Var]) -> Sequence[Var]:
        """Variables that ``root`` may be: where a user is known already, what that one reads."""
        for consumer in self.consumers[root]:
            if consumer in found:
                return sorted({*self.reads.get(found[consumer], ())}, key=self._rank.__getitem__)
        return self._order

    def _with(self, pattern: DFPattern, var: Var, found: Found) -> Search:
        """``var`` as ``pattern``, and its users as the patterns that use it."""
        self.visits += 1
        if not self.matcher.match(pattern, var):
            return None
        new: Found = {pattern: var}
        for consumer, edges in self.consumers.get(pattern, {}).items():
            for user in self.users.get(var, ()):
                if user in new.values() or found.get(consumer, user) is not user:
                    continue
                if not all(self._holds(edge, var, user) for edge in edges):
                    continue
                more = yield self._with(consumer, user, found)
                if more is not None:
                    new.update(more)
                    break
            if consumer not in new:
                return None
        return new

    def _holds(self, edge: Edge, var: Var, user: Var) -> bool:
        if edge.only and len(self.users[var]) != 1:
            return False
        read = self.reads[user]
        return edge.place == -1 or (edge.place < len(read) and read[edge.place] is var)

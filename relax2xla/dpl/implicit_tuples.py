"""Tuples that no tuple holds: values of a block that match the fields of a tuple pattern."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from relax2xla.dpl.emit import part_key
from relax2xla.dpl.match import Matcher, key_of
from relax2xla.dpl.pattern import DFPattern
from relax2xla.ir.equal import structural_equal
from relax2xla.ir.expr import Binding, Expr, Tuple, TupleGetItem, Var, VarBinding
from relax2xla.ir.rewrite import reads

Found = dict[DFPattern, Expr]
Replace = Callable[[Tuple, Found], Expr | None]


def matched_tuples(
    patterns: Sequence[DFPattern], bindings: Sequence[Binding], replace: Replace
) -> dict[Var, Expr]:
    """New values of variables that match ``patterns``, one each, together.

    ``replace`` gets a tuple of the values with what was matched; what it gives is a tuple, whose
    fields are the new values. A variable that anything has read before the last of its tuple is
    computed is left, for it would be computed twice. ValueError where the number of fields differs.
    """
    search = _Search(patterns, replace)
    for b in bindings:
        search.add(b)
    return search.made


class _Candidate:
    """A variable that matches one of the patterns."""

    __slots__ = ("found", "free", "value", "var")

    def __init__(self, var: Var, value: Expr, found: list[Found | None]) -> None:
        self.var, self.value, self.found, self.free = var, value, found, True


class _Search:
    """Goes through bindings in order; candidates are looked up by what the patterns share."""

    def __init__(self, patterns: Sequence[DFPattern], replace: Replace) -> None:
        self.patterns, self.replace = patterns, replace
        self.keys = [p.keys() for p in patterns]
        nodes = [set(_nodes(p)) for p in patterns]
        count = range(len(patterns))
        self.shared = {(a, b): list(nodes[a] & nodes[b]) for a in count for b in count if a != b}
        self.candidates: dict[tuple[int, int, Hashable], list[_Candidate]] = {}
        self.by_var: dict[Var, _Candidate] = {}
        self.matcher = Matcher()
        self.made: dict[Var, Expr] = {}

    def add(self, b: Binding) -> None:
        """The next binding."""
        if isinstance(b, VarBinding):
            found = [self._found(i, b.value) for i in range(len(self.patterns))]
            new = _Candidate(b.var, b.value, found)
            matched = any(f is not None for f in found)
            if not (matched and self._completed(new)):
                self.matcher.define(b.var, b.value)
                if matched:
                    self._note(new)
        for var in reads(b.value, inside=True):
            if var in self.by_var:
                self.by_var[var].free = False

    def _found(self, i: int, value: Expr) -> Found | None:
        keys = self.keys[i]
        if keys is not None and key_of(value) not in keys:
            return None
        return self.matcher.found if self.matcher.match(self.patterns[i], value) else None

    def _note(self, new: _Candidate) -> None:
        self.by_var[new.var] = new
        for (i, other), shared in self.shared.items():
            found = new.found[i]
            if found is not None:
                key = (i, other, _key(found, shared))
                self.candidates.setdefault(key, []).append(new)

    def _completed(self, new: _Candidate) -> bool:
        """Whether ``new`` is the last of a tuple; its variables then have new values."""
        for i in reversed(range(len(self.patterns))):
            for chosen in self._choices(new, i):
                if self._replaced(chosen):
                    return True
        return False

    def _choices(self, new: _Candidate, i: int) -> Iterator[list[_Candidate]]:
        """Candidates for all patterns, with ``new`` for the i-th; the latest first."""
        found = new.found[i]
        if found is None:
            return
        others = [j for j in reversed(range(len(self.patterns))) if j != i]
        lists: list[list[_Candidate]] = []
        for j in others:
            key = (j, i, _key(found, self.shared[j, i]))
            free = [c for c in self.candidates.get(key, ()) if c.free]
            self.candidates[key] = free
            lists.append(free[::-1])
        for combination in _product(lists):
            chosen: dict[int, _Candidate] = {i: new, **dict(zip(others, combination, strict=True))}
            if len({id(c) for c in chosen.values()}) == len(chosen):
                yield [chosen[k] for k in range(len(self.patterns))]

    def _replaced(self, chosen: list[_Candidate]) -> bool:
        merged: Found = {}
        for i, c in enumerate(chosen):
            for pattern, expr in (c.found[i] or {}).items():
                if not structural_equal(merged.setdefault(pattern, expr), expr):
                    return False
        whole = Tuple([c.value for c in chosen])
        made = self.replace(whole, merged)
        if made is None or made is whole:
            return False
        if isinstance(made, Tuple) and len(made.fields) != len(chosen):
            raise ValueError(
                f"the replacement of a tuple of {len(chosen)} values has {len(made.fields)}"
            )
        for i, c in enumerate(chosen):
            self.made[c.var] = made.fields[i] if isinstance(made, Tuple) else TupleGetItem(made, i)
            c.free = False
            self.matcher.forget(c.var)
        return True


def _product(lists: Sequence[list[_Candidate]]) -> Iterator[tuple[_Candidate, ...]]:
    if not lists:
        yield ()
        return
    for first in lists[0]:
        for rest in _product(lists[1:]):
            yield (first, *rest)


def _key(found: Found, shared: Sequence[DFPattern]) -> Hashable:
    return tuple(part_key(found[p]) if p in found else None for p in shared)


def _nodes(pattern: DFPattern) -> Iterator[DFPattern]:
    """``pattern`` and the patterns in it."""
    todo: list[Any] = [pattern]
    seen: set[int] = set()
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo.extend(node)
        elif isinstance(node, DFPattern) and id(node) not in seen:
            seen.add(id(node))
            yield node
            todo.extend(getattr(node, name) for name in node.parts)

"""Names of a printed program: unique in their scope, valid in Python, stable.

The rule is TVM's: the hint, with every character that an identifier cannot hold replaced by ``_``;
where it is taken, ``hint_1``, ``hint_2`` and so on.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Container, Generator, Iterable
from contextlib import contextmanager

_BAD = re.compile(r"\W", re.ASCII)


class Names:
    """Names in use, in nested scopes; ``of`` maps the id of an object to its name."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self.of: dict[int, str] = {}
        self._used: set[str] = set(reserved)
        # Those of scopes that have ended inside the outermost one: the text still has them.
        self._ended: set[str] = set()
        # Where the search for a free suffix goes on; without it 100,000 equal hints cost squares.
        self._next: dict[str, int] = {}
        self._added: list[tuple[int, str]] = []
        self._searched: list[tuple[str, int]] = []
        self._hoisted: list[tuple[int, str]] = []
        self._depth = 0

    def define(self, thing: object, hint: str, *, hoist: bool = False) -> str:
        """Give ``thing`` a name that is new in all open scopes, until the innermost one ends.

        ``hoist``: until the outermost one ends, and new in all of it: its definition comes first,
        so a scope that has ended would hide it.
        """
        name = self.fresh(hint, self._ended if hoist else ())
        self.of[id(thing)] = name
        (self._hoisted if hoist else self._added).append((id(thing), name))
        return name

    def fresh(self, hint: str, others: Container[str] = ()) -> str:
        """A new name that is none of ``others``, held until ``define``'s scope ends or forever if
        none is open.
        """
        clean = _BAD.sub("_", hint) or "_"
        if clean[0].isdigit() or keyword.iskeyword(clean):
            clean = f"_{clean}"
        name = clean
        if name in self._used or name in others:
            start = self._next.get(clean, 1)
            self._searched.append((clean, start))
            n = start
            while (name := f"{clean}_{n}") in self._used or name in others:
                n += 1
            self._next[clean] = n + 1
        self._used.add(name)
        return name

    def keep(self) -> None:
        """Names that are hoisted stay when the outermost scope ends."""
        self._added += self._hoisted
        self._hoisted.clear()

    @contextmanager
    def scope(self) -> Generator[None]:
        """Names defined inside are free again afterwards."""
        added, searched = len(self._added), len(self._searched)
        self._depth += 1
        yield
        self._depth -= 1
        ended = self._added[added:]
        if self._depth:
            self._ended.update(name for _, name in ended)
        else:
            ended += self._hoisted
            self._hoisted.clear()
            self._ended.clear()
        for key, name in ended:
            self._used.discard(name)
            self.of.pop(key, None)
        for hint, start in reversed(self._searched[searched:]):
            self._next[hint] = start
        del self._added[added:], self._searched[searched:]

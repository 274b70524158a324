"""Which token of which sequence lies where: slots in pages, on the host.

A token's place is a slot, ``page * page_size + offset``, and a sequence is the list of its slots.
Sequences share pages by reference counts; a slot is given out once until its page is free again, so
that whoever shares a page may go on in it and nothing is ever copied. Taking tokens away from
anywhere (the end, the middle of a window, branches of a token tree) changes lists only.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from relax2xla.errors import RunError

Ints = npt.NDArray[np.int32]
# As in TVM.
MAX_TREE = 256


def _no_slots() -> Ints:
    return np.zeros(0, np.int32)


@dataclass(slots=True)
class Sequence:
    """One sequence.

    slots: of its tokens, in order. window, sink: of sliding, 0 for none. shared: how many tokens
    at the front a fork has in common with another, which never slide away. tree: parents of the
    tokens that are not committed yet. step: how many tokens the last step added.
    """

    slots: Ints = field(default_factory=_no_slots)
    window: int = 0
    sink: int = 0
    shared: int = 0
    tree: list[int] = field(default_factory=list[int])
    step: int = 0

    def __len__(self) -> int:
        return len(self.slots)


class Sequences:
    """The sequences of one cache, by number, and its pages."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.total = pages
        self.clear()

    def clear(self) -> None:
        """Forget all sequences."""
        self._known: dict[int, Sequence] = {}
        self._free = list(range(self.total))[::-1]
        # Of pages in use: sequences with tokens there, and slots that were given out.
        self._holders: dict[int, int] = {}
        self._used: dict[int, int] = {}

    @property
    def free_pages(self) -> int:
        """The number of pages that nobody uses."""
        return len(self._free)

    @property
    def empty(self) -> bool:
        """Whether there is no sequence."""
        return not self._known

    @property
    def tokens(self) -> int:
        """The lengths of all sequences together; what two share counts twice."""
        return sum(map(len, self._known.values()))

    def __getitem__(self, number: int) -> Sequence:
        found = self._known.get(number)
        if found is None:
            known = ", ".join(map(str, list(self._known)[:8])) or "none"
            raise RunError(f"there is no sequence {number} in the cache; it has {known}")
        return found

    def add(self, number: int) -> None:
        """A new sequence without tokens."""
        self._refuse_known(number)
        self._known[number] = Sequence()

    def remove(self, number: int) -> None:
        """Forget one; its pages are free where no other sequence shares them."""
        gone = self[number]
        self._release(gone.slots, gone.slots[:0])
        del self._known[number]

    def fork(self, parent: int, child: int, position: int = -1) -> None:
        """``child`` begins with the first ``position`` tokens of ``parent``; -1: with all."""
        old = self[parent]
        self._refuse_known(child)
        if not -1 <= position <= len(old):
            raise RunError(
                f"sequence {parent} has {len(old)} tokens; it cannot be forked at {position}"
            )
        if old.tree:
            raise RunError(
                f"the token tree of sequence {parent} is not committed; commit it, then fork"
            )
        at = len(old) if position == -1 else position
        if old.window and at > max(old.sink, old.shared):
            raise RunError(
                f"sequence {parent} slides; it can be forked within its sink of "
                f"{max(old.sink, old.shared)} tokens only, not at {at}"
            )
        common = at if at == len(old) else at // self.page_size * self.page_size
        old.shared = max(old.shared, common)
        new = Sequence(old.slots[:at].copy(), shared=common)
        for page in np.unique(new.slots // self.page_size).tolist():
            self._holders[page] += 1
        self._known[child] = new

    def popn(self, number: int, count: int) -> None:
        """Forget the last ``count`` tokens of one."""
        old = self[number]
        if not 0 <= count <= len(old):
            raise RunError(f"sequence {number} has {len(old)} tokens; cannot pop {count}")
        if old.tree and count:
            raise RunError(f"the token tree of sequence {number} is not committed; commit it first")
        self._keep(old, old.slots[: len(old) - count])

    def slide(self, number: int, window: int, sink: int) -> None:
        """From now on keep the first ``sink`` tokens and the last ``window - sink`` only."""
        old = self[number]
        if not 0 <= sink < window:
            raise RunError(f"a window of {window} with a sink of {sink}: 0 <= sink < window needed")
        if old.window:
            raise RunError(f"sequence {number} slides already")
        if old.shared >= window:
            raise RunError(
                f"sequence {number} shares its first {old.shared} tokens with others, which do "
                f"not fit the window of {window}"
            )
        old.window, old.sink = window, sink

    def slid(self) -> Sequences:
        """These without what left the windows: another object, or this one where nothing did."""
        if not any(s.window and len(s) > s.window for s in self._known.values()):
            return self
        made = self._copy()
        for s in made._known.values():
            if s.window and len(s) > s.window:
                sink = max(s.sink, s.shared)
                made._keep(s, np.delete(s.slots, np.s_[sink : sink + len(s) - s.window]))
        return made

    def _copy(self) -> Sequences:
        made = Sequences(0, self.page_size)
        made.total, made._free = self.total, self._free.copy()
        made._holders, made._used = self._holders.copy(), self._used.copy()
        # Slots are never written to, only replaced.
        made._known = {n: replace(s, tree=s.tree.copy()) for n, s in self._known.items()}
        return made

    def append(self, numbers: Items[int], lengths: Items[int], trees: Items[Items[int]]) -> Ints:
        """New tokens at the ends: their slots, one sequence after the other.

        trees: of each sequence the parents of its new tokens, counted from the first token that is
        not committed (-1: a root); nothing for plain tokens. Nothing changes where it raises.
        """
        found = [self[n] for n in numbers]
        for n, s, tree in zip(numbers, found, trees or [()] * len(found), strict=True):
            _check_tree(n, s, tree)
        rooms: dict[int, int] = {}
        plan: list[tuple[int, int, int, int]] = []  # page (or -1 for a new one), from, to
        needed = 0
        for s, length in zip(found, lengths, strict=True):
            tail = int(s.slots[-1]) // self.page_size if len(s) else -1
            at = rooms.get(tail, self._used.get(tail, 0)) if tail != -1 else self.page_size
            kept = min(length, self.page_size - at)
            if kept:
                rooms[tail] = at + kept
            fresh = -(-(length - kept) // self.page_size)
            plan.append((tail, at, kept, fresh))
            needed += fresh
        if needed > len(self._free):
            raise RunError(
                f"the cache is full: {needed} pages of {self.page_size} tokens are needed, and "
                f"{len(self._free)} of {self.total} are free; remove sequences, pop tokens, or "
                "make a larger cache"
            )
        made: list[Ints] = []
        for i, (s, length, (tail, at, kept, fresh)) in enumerate(
            zip(found, lengths, plan, strict=True)
        ):
            pages = [self._free.pop() for _ in range(fresh)]
            parts = [np.arange(kept) + (tail * self.page_size + at)] if kept else []
            parts += [np.arange(self.page_size) + p * self.page_size for p in pages]
            new = np.concatenate(parts)[:length].astype(np.int32)
            if kept:
                self._used[tail] = at + kept
            for p in pages:
                self._holders[p], self._used[p] = 1, self.page_size
            if pages:
                self._used[pages[-1]] = int(new[-1]) % self.page_size + 1
            s.slots = np.concatenate([s.slots, new])
            s.step = length
            s.tree += trees[i] if trees else ()
            made.append(new)
        return np.concatenate(made)

    def commit(self, numbers: Items[int], leaves: Items[int]) -> None:
        """Of the tokens of the last step keep those from a root to a leaf; -1: none of them.

        A leaf is counted among the tokens of the last step, and so are its parents: as in TVM,
        tokens of earlier steps that were not committed in between are kept.
        """
        kept: list[tuple[Sequence, Ints]] = []
        if len(numbers) != len(leaves) or len(set(numbers)) != len(numbers):
            raise RunError(f"{len(leaves)} leaves for the sequences {list(numbers)}")
        for number, leaf in zip(numbers, leaves, strict=True):
            s = self[number]
            path: list[int] = []
            if not -1 <= leaf < max(1, len(s.tree)):
                raise RunError(f"{leaf} is no node of the tree of sequence {number}")
            while leaf != -1:
                if not s.tree or leaf >= s.step:
                    raise RunError(
                        f"node {leaf} of sequence {number} is none of the tokens of its last step"
                    )
                path.append(leaf)
                leaf = s.tree[leaf]
            start = len(s) - s.step
            added = s.step if s.tree else 0
            rest = s.slots[: len(s) - added]
            kept.append((s, np.concatenate([rest, s.slots[[start + p for p in path[::-1]]]])))
        for s, slots in kept:
            s.tree.clear()
            self._keep(s, slots.astype(np.int32))

    def _refuse_known(self, number: int) -> None:
        if number in self._known:
            raise RunError(f"sequence {number} is in the cache already")

    def _keep(self, s: Sequence, slots: Ints) -> None:
        """Let ``slots``, some of those of ``s`` in their order, be all of them."""
        old, s.slots = s.slots, slots
        s.shared = min(s.shared, len(slots))
        s.step = 0
        self._release(old, slots)

    def _release(self, old: Ints, new: Ints) -> None:
        """A sequence had tokens at ``old``, and has them at ``new`` now."""
        pages = np.unique(new // self.page_size)
        for page in np.setdiff1d(old // self.page_size, pages).tolist():
            self._holders[page] -= 1
            if not self._holders[page]:
                del self._holders[page], self._used[page]
                self._free.append(page)
        if len(new):
            # What lies behind the last token of a page of one's own is given out again.
            page, offset = divmod(int(new[-1]), self.page_size)
            if self._holders[page] == 1:
                self._used[page] = offset + 1


def depths(parents: Items[int]) -> list[int]:
    """How far each node of a tree is from its root."""
    made: list[int] = []
    for parent in parents:
        made.append(0 if parent == -1 else made[parent] + 1)
    return made


def _check_tree(number: int, s: Sequence, tree: Items[int]) -> None:
    if not tree:
        if s.tree:
            raise RunError(
                f"the token tree of sequence {number} is not committed; commit it, or go on "
                "with a tree"
            )
        return
    if len(s.tree) + len(tree) > MAX_TREE:
        raise RunError(
            f"the token tree of sequence {number} has {len(s.tree) + len(tree)} nodes; "
            f"{MAX_TREE} are possible"
        )
    for node, parent in enumerate(tree, len(s.tree)):
        if not -1 <= parent < node:
            raise RunError(
                f"the parent of node {node} of sequence {number} is {parent}; it must be -1 or "
                "an earlier node"
            )

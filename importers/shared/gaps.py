"""Collecting everything of a model that cannot be converted, to report all of it at once (D11)."""

from __future__ import annotations

import traceback
from typing import NoReturn

from relax2xla.errors import Gap, OpNotImplemented, TVMError


class Unsupported(Exception):
    """Raised by a converter: this node cannot be converted, for this reason.

    The interpreter turns it into a :class:`Gap` and goes on, so that one error lists all of them.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def _place(where: str) -> str:
    """The module and line of "node, in module, file:line"; all of it where there are none."""
    return where.partition(", ")[2] or where


class Gaps:
    """The gaps of one model, grouped by operator and reason in order of first appearance."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: dict[tuple[str, str, str], list[str]] = {}

    def add(self, op: str, reason: str, where: str, hint: str = "") -> None:
        """Note that ``op`` at ``where`` cannot be converted because of ``reason``."""
        self._found.setdefault((op, reason, hint), []).append(where)

    def keep(self, earlier: Gaps) -> None:
        """Take over the gaps with a hint from an ``earlier`` walk, where some are left.

        What was found since at the same places of the source is dropped: it comes from torch's
        own rewriting of the operator that the earlier gap names.
        """
        left = {_place(where) for at in self._found.values() for where in at}
        named: dict[tuple[str, str, str], list[str]] = {}
        for key, at in earlier._found.items():
            again = [where for where in at if _place(where) in left]
            if key[2] and again:
                named[key] = again
        known = {_place(where) for at in named.values() for where in at}
        rest: dict[tuple[str, str, str], list[str]] = {}
        for key, at in self._found.items():
            others = [where for where in at if _place(where) not in known]
            if others and key not in named:
                rest[key] = others
        self._found = {**named, **rest}

    def snapshot(self) -> dict[tuple[str, str, str], list[str]]:
        """What has been found so far, for :meth:`restore`."""
        return {key: list(at) for key, at in self._found.items()}

    def restore(self, snapshot: dict[tuple[str, str, str], list[str]]) -> None:
        """Forget what was found since: an attempt that is made in another way."""
        self._found = snapshot

    def __bool__(self) -> bool:
        return bool(self._found)

    def gaps(self) -> list[Gap]:
        """What has been found."""
        return [Gap(op, why, tuple(at), hint) for (op, why, hint), at in self._found.items()]

    def raise_if_any(self) -> None:
        """:meth:`raise_all`, if there is a gap."""
        if self._found:
            self.raise_all()

    def raise_all(self) -> NoReturn:
        """Raise one :class:`OpNotImplemented` that lists every gap."""
        raise self.error()

    def error(self) -> OpNotImplemented:
        """The error that lists every gap."""
        count = sum(map(len, self._found.values()))
        nodes = "node" if count == 1 else "nodes"
        return OpNotImplemented(
            f"{count} {nodes} of this {self.source} cannot be converted to Relax:", self.gaps()
        )


def reason_of(error: Exception) -> str:
    """Why something cannot be read, of any error: what we say ourselves as it is.

    What Python and numpy say of damaged content speaks of our code, not of the content.
    """
    if isinstance(error, MemoryError):
        return "it takes more memory than there is"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    text = str(error).strip()
    kind = type(error).__name__
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    module = "" if place is None else str(place.tb_frame.f_globals.get("__name__"))
    if text and isinstance(error, TVMError):
        return text
    if text and not module.startswith("relax2xla."):
        # A library's own words.
        return f"{kind}: {text.splitlines()[0][:300]}"
    raised = traceback.extract_tb(place)[0].line if place is not None else ""
    if text and (raised or "").startswith("raise "):
        return text.splitlines()[0][:300]
    said = f"; {kind}: {text[:200]}" if isinstance(error, ValueError | OverflowError) else ""
    return f"its attributes or operands do not fit together (is it damaged?{said})"

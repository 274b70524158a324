"""Collecting everything of a model that cannot be converted, to report all of it at once (D11)."""

from __future__ import annotations

from relax2xla.errors import Gap, OpNotImplemented


class Unsupported(Exception):
    """Raised by a converter: this node cannot be converted, for this reason.

    The interpreter turns it into a :class:`Gap` and goes on, so that one error lists all of them.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Gaps:
    """The gaps of one model, grouped by operator and reason in order of first appearance."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: dict[tuple[str, str, str], list[str]] = {}

    def add(self, op: str, reason: str, where: str, hint: str = "") -> None:
        """Note that ``op`` at ``where`` cannot be converted because of ``reason``."""
        self._found.setdefault((op, reason, hint), []).append(where)

    def __bool__(self) -> bool:
        return bool(self._found)

    def gaps(self) -> list[Gap]:
        """What has been found."""
        return [Gap(op, why, tuple(at), hint) for (op, why, hint), at in self._found.items()]

    def raise_if_any(self) -> None:
        """Raise one :class:`OpNotImplemented` that lists every gap, if there is one."""
        if self._found:
            count = sum(map(len, self._found.values()))
            nodes = "node" if count == 1 else "nodes"
            raise OpNotImplemented(
                f"{count} {nodes} of this {self.source} cannot be converted to Relax:", self.gaps()
            )

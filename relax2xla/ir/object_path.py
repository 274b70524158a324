"""Where a value stands in a larger one: the names of ``tvm.runtime.ObjectPath``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A way from a root: steps into attributes, elements and values of dictionaries.

    Paths with the same steps are equal.
    """

    steps: tuple[tuple[str, Any], ...] = ()
    root_name: str | None = None

    @staticmethod
    def root(root_name: str | None = None) -> ObjectPath:
        """The path of the root itself."""
        return ObjectPath((), root_name)

    def _step(self, kind: str, key: Any) -> ObjectPath:
        return ObjectPath((*self.steps, (kind, key)), self.root_name)

    def attr(self, attr_key: str) -> ObjectPath:
        """The path of an attribute."""
        return self._step("attr", attr_key)

    def array_index(self, index: int) -> ObjectPath:
        """The path of an element."""
        return self._step("index", index)

    def missing_array_element(self, index: int) -> ObjectPath:
        """The path of an element that is not there."""
        return self._step("missing", index)

    def map_value(self, key: Any) -> ObjectPath:
        """The path of the value of a key."""
        return self._step("value", key)

    def missing_map_entry(self) -> ObjectPath:
        """The path of a value whose key is not there."""
        return self._step("missing entry", None)

    @property
    def parent(self) -> ObjectPath | None:
        """The path without its last step; None of the root."""
        return ObjectPath(self.steps[:-1], self.root_name) if self.steps else None

    def is_prefix_of(self, other: ObjectPath) -> bool:
        """Whether ``other`` goes this way first."""
        n = len(self.steps)
        return self.root_name == other.root_name and self.steps == other.steps[:n]

    def get_prefix(self, length: int) -> ObjectPath:
        """The first steps; the root counts as one."""
        if not 1 <= length <= len(self):
            raise IndexError(f"a path of {len(self)} steps has no prefix of {length}")
        return ObjectPath(self.steps[: length - 1], self.root_name)

    def __len__(self) -> int:
        return len(self.steps) + 1

    def __str__(self) -> str:
        texts = {
            "attr": ".{0}",
            "index": "[{0}]",
            "missing": "[<missing element #{0}>]",
            "value": "[{0!r}]",
            "missing entry": "[<missing entry>]",
        }
        return (self.root_name or "<root>") + "".join(
            texts[kind].format(getattr(key, "name_hint", key)) for kind, key in self.steps
        )

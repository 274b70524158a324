"""The small value types that the IR is made of (Span, Attrs, VDevice), and the way to its text."""

from __future__ import annotations

import importlib
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any, Literal, Self

from relax2xla.ir import late


class Node:
    """Copies and pickles of everything that IR is made of; see ``relax2xla.ir.serial``."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return late.shallow_copy.call(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return late.deep_copy.call(self, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return late.pickled.call(self)


class Scriptable:
    """What has a text of its own in TVMScript."""

    __slots__ = ()

    def script(self, **options: Any) -> str:
        """The TVMScript text; options: :func:`relax2xla.script.printer.script`."""
        return importlib.import_module("relax2xla.script.printer").script(self, **options)

    def show(
        self, style: str | None = None, black_format: bool | None = None, **options: Any
    ) -> None:
        """Print the TVMScript text, highlighted on a terminal."""
        display = importlib.import_module("relax2xla.script.display")
        display.show(self, style, black_format, **options)

    def _relax_script(self, **options: Any) -> str:
        """:meth:`script`, by the name that TVM has for types of Relax."""
        return self.script(**options)


@dataclass(frozen=True, slots=True)
class Span:
    """Where in the user's source an expression comes from (design decision D10).

    ``name``: the source's own name of the thing (ONNX node, torch module path, MLIR NameLoc);
    ``file``, ``line``, ``column``, ``end_line``, ``end_column``: a place in text, 1-based
    (0: unknown);
    ``kind`` says how an MLIR location is spelt: a *named* place (its child, if any, is the place),
    a *file* place, a *fused* list of children, a *callsite* with children (callee, caller), or
    *opaque*, whose ``name`` is the text of an MLIR location of another kind.
    ``metadata``: text of the MLIR attribute of a fused location.
    """

    name: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    kind: Literal["name", "file", "fused", "callsite", "opaque"] = "name"
    children: tuple[Span, ...] = ()
    metadata: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.file else ""
        if self.kind == "callsite":
            return " called from ".join(map(str, self.children))
        own = f"{self.name} ({place})" if self.name and place else self.name or place
        inner = ", ".join(str(c) for c in self.children)
        return f"{own} [{inner}]" if own and inner else own or inner or "unknown location"


class Attrs(Node, Mapping[str, Any]):
    """An immutable mapping of attributes; ``attrs.axis`` is ``attrs["axis"]``.

    Values are plain Python values: bool, int, float, str, None, tuples, nested :class:`Attrs`,
    symbolic integers, struct infos, numpy arrays. Lists become tuples, dictionaries become Attrs.
    Equality is by value and order of keys does not count.
    """

    __slots__ = ("_items",)
    _items: dict[str, Any]

    def __init__(self, items: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        merged = {**(items or {}), **more}
        object.__setattr__(self, "_items", {k: freeze(v) for k, v in merged.items()})

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __getattr__(self, key: str) -> Any:
        try:
            return self._items[key]
        except KeyError:
            names = ", ".join(self._items) or "none"
            raise AttributeError(f"no attribute {key!r}; present: {names}") from None

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"attributes are immutable; build a new Attrs to change {key!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    # Those of Mapping walk key by key; passes ask for attributes of every call.
    def get(self, key: str, default: Any = None) -> Any:
        return self._items.get(key, default)

    def keys(self) -> KeysView[str]:
        return self._items.keys()

    def values(self) -> ValuesView[Any]:
        return self._items.values()

    def items(self) -> ItemsView[str, Any]:
        return self._items.items()

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Attrs):
            return self._items is other._items or self._items == other._items
        return isinstance(other, Mapping) and self._items == dict(other)

    def __repr__(self) -> str:
        return repr(self._items)


DictAttrs = Attrs
EMPTY_ATTRS = Attrs()


def freeze(value: Any) -> Any:
    """``value`` with lists as tuples and dictionaries as Attrs, all the way down."""
    if isinstance(value, list | tuple):
        return tuple(freeze(v) for v in value)
    if isinstance(value, dict):
        return Attrs(value)
    return value


@dataclass(frozen=True, slots=True)
class VDevice:
    """A virtual device: target kind, index and memory scope, as ``I.vdevice`` in TVMScript."""

    target: str = "cpu"
    vdevice_id: int = 0
    memory_scope: str = "global"

    def __post_init__(self) -> None:
        fields = (self.target, str), (self.vdevice_id, int), (self.memory_scope, str)
        wrong = [value for value, kind in fields if not isinstance(value, kind)]
        if wrong:
            raise TypeError(
                "a virtual device is a target's name, an index and the name of a memory scope; "
                f"got {wrong[0]!r}, of type {type(wrong[0]).__name__}"
            )

    @property
    def kind(self) -> str:
        """The first word of ``target``: "cuda" of "cuda -arch=sm_80"."""
        return self.target.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class DummyGlobalInfo:
    """An entry of a module's global infos that says nothing, as ``I.dummy_global_info()``."""

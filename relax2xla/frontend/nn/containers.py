"""Containers: modules and parameters in lists and dicts."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Generic, TypeVar

from relax2xla.frontend.nn.module import Module
from relax2xla.frontend.nn.values import Parameter

M = TypeVar("M")


class _List(Module, Generic[M]):
    """Items in a list; those of a ParameterList are of ``_kind``."""

    _kind: type[Any] = object

    def _items(self) -> list[M]:
        raise NotImplementedError

    def _checked(self, item: M) -> M:
        if not isinstance(item, self._kind):
            raise _wrong(self, "items", self._kind, item)
        return item

    def __children__(self) -> Iterator[tuple[str, Any]]:
        """The items, by their places."""
        yield from ((str(i), item) for i, item in enumerate(list(self._items())))

    def __set_child__(self, name: str, value: Any) -> None:
        """Put ``value`` in the place ``name``, a number."""
        self._items()[int(name)] = value

    def __iter__(self) -> Iterator[M]:
        return iter(self._items())

    def __getitem__(self, idx: int) -> M:
        return self._items()[idx]

    def __setitem__(self, idx: int, item: M) -> None:
        self._items()[idx] = self._checked(item)

    def __len__(self) -> int:
        return len(self._items())

    def append(self, module: M) -> None:
        """Add an item at the end."""
        self._items().append(self._checked(module))

    def extend(self, items: Iterable[M]) -> None:
        """Add items at the end."""
        for item in items:
            self.append(item)


class _Dict(Module, Generic[M]):
    """Items by name."""

    _kind: type[Any] = object

    def _items(self) -> dict[str, M]:
        raise NotImplementedError

    def __children__(self) -> Iterator[tuple[str, Any]]:
        """The items by name."""
        yield from list(self._items().items())

    def __set_child__(self, name: str, value: Any) -> None:
        """Put ``value`` under ``name``."""
        self._items()[name] = value

    def __getitem__(self, key: str) -> M:
        return self._items()[key]

    def __setitem__(self, key: str, item: M) -> None:
        if not isinstance(key, str):
            raise _wrong(self, "keys", str, key)
        if not isinstance(item, self._kind):
            raise _wrong(self, "items", self._kind, item)
        self._items()[key] = item

    def __len__(self) -> int:
        return len(self._items())

    def __contains__(self, key: object) -> bool:
        return key in self._items()

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._items().keys()

    def values(self) -> ValuesView[M]:
        """The items."""
        return self._items().values()

    def items(self) -> ItemsView[str, M]:
        """Names and items."""
        return self._items().items()

    def get(self, key: str, default: M | None = None) -> M | None:
        """The item ``key``, or ``default``."""
        return self._items().get(key, default)

    def update(self, items: Mapping[str, M]) -> None:
        """Add items, over those of the same names."""
        for key, item in items.items():
            self[key] = item

    def clear(self) -> None:
        """Remove all items."""
        self._items().clear()

    def pop(self, key: str) -> M:
        """Remove and give the item ``key``."""
        return self._items().pop(key)


class ModuleList(_List[Any]):
    """Modules in a list, which ``forward`` runs one after the other."""

    def __init__(self, modules: list[Any] | None = None) -> None:
        self.modules: list[Any] = [] if modules is None else modules

    def _items(self) -> list[Any]:
        return self.modules

    def forward(self, x: Any) -> Any:
        """``x`` through all modules, each one's result into the next."""
        for module in self.modules:
            x = module(x)
        return x


class ModuleDict(_Dict[Any]):
    """Modules by name. Iteration gives the modules, as in TVM (torch: the names)."""

    def __init__(self, modules: Mapping[str, Any] | None = None) -> None:
        self.modules: dict[str, Any] = dict(modules or {})

    def _items(self) -> dict[str, Any]:
        return self.modules

    def __iter__(self) -> Iterator[Any]:
        return iter(self.modules.values())


class ParameterList(_List[Parameter]):
    """Parameters in a list; TypeError for anything else in it."""

    _kind = Parameter

    def __init__(self, params: Iterable[Parameter] | None = None) -> None:
        self.params: list[Parameter] = []
        self.extend(params or ())

    def _items(self) -> list[Parameter]:
        return self.params


class ParameterDict(_Dict[Parameter]):
    """Parameters by name; TypeError for anything else in it. Iteration gives the names."""

    _kind = Parameter

    def __init__(self, params: Mapping[str, Parameter] | None = None) -> None:
        self.params: dict[str, Parameter] = {}
        self.update(params or {})

    def _items(self) -> dict[str, Parameter]:
        return self.params

    def __iter__(self) -> Iterator[str]:
        return iter(self.params)


def _wrong(holder: Module, what: str, kind: type[Any], got: Any) -> TypeError:
    return TypeError(
        f"{what} of a {type(holder).__name__} must be {kind.__name__}; got {type(got).__name__}"
    )

"""Layers inside layers: ModuleTree, what every Module is beneath its calls, and Effect, state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.frontend.nn.values import Parameter, get_default_dtype
from relax2xla.ir import Var

T = TypeVar("T")


class Effect:
    """State that functions of a model read and change, printing included.

    Exported functions take it as arguments and give it back. Its life: ``emit_init`` makes the
    first state, in a function ``_initialize_effect``; for every exported method ``create`` makes
    parameters, ``set_state`` says which values stand for the state now, and ``finalize`` gives
    those at the end.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def emit_init(self, name_hint: str, builder: BlockBuilder, /) -> list[Var]:
        """Emit the first state."""
        raise NotImplementedError

    def create(self, name_hint: str) -> list[Var]:
        """New parameters for the state."""
        raise NotImplementedError

    def set_state(self, state_vars: list[Var]) -> None:
        """Let these variables be the state."""
        raise NotImplementedError

    def finalize(self) -> list[Var]:
        """The variables that are the state now; the effect forgets them."""
        raise NotImplementedError

    def forget(self) -> None:
        """Let go of the variables that are the state, after an error."""

    def to(self, dtype: str | None = None) -> None:
        """Change the dtype of the state; most effects have none."""


def _is_layer(item: object) -> bool:
    return isinstance(item, ModuleTree | Effect)


def _is_setting(name: str, value: object) -> bool:
    """Whether an attribute says how a layer was made: numbers, names, and few of them."""
    if name.startswith("_") or name == "dtype":
        return False
    if isinstance(value, list | tuple):
        parts: Sequence[Any] = value
        return 0 < len(parts) <= _FEW and all(isinstance(v, int | float | str) for v in parts)
    return isinstance(value, int | float | str | tir.PrimExpr)


# Numbers of a list that says how a layer was made: a kernel's sizes, axes.
_FEW = 8


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


class ModuleTree:
    """The tree of a Module: parameters, effects, and modules inside it, as attributes.

    What walks models asks for this class; :class:`Module` adds what one does with a model.
    """

    # Whether ``forward`` becomes a function of its own; see SubroutineMixin.
    define_subroutine: bool = False

    def __repr__(self) -> str:
        """The tree of modules, as torch prints it: names, sizes and settings, a line each."""
        held = self.__children__()
        lines = [f"({name}): {_indented(repr(item))}" for name, item in held if _is_layer(item)]
        name, told = type(self).__name__, self.extra_repr()
        if not lines:
            return f"{name}({told})"
        return "\n  ".join([f"{name}(", *([told] if told else []), *lines]) + "\n)"

    def extra_repr(self) -> str:
        """What stands in the brackets of ``repr``: sizes and settings. A subclass may say more."""
        settings = [f"{k}={v!r}" for k, v in self.__dict__.items() if _is_setting(k, v)]
        params = {n: p for n, p in self.__children__() if isinstance(p, Parameter)}
        if "weight" in params and "bias" in self.__dict__:
            settings.append(f"bias={'bias' in params}")
        settings += [
            f"{name}=[{', '.join(map(str, p.shape))}]"
            for name, p in params.items()
            if name not in ("weight", "bias")
        ]
        kinds = dict.fromkeys(p.dtype for p in params.values())
        if set(kinds) - {get_default_dtype()}:
            settings.append(f"dtype={' and '.join(kinds)}")
        return ", ".join(settings)

    # -- the tree; the names are such that no attribute of a user's has them
    def __children__(self) -> Iterator[tuple[str, Any]]:
        """What it holds, by name: its attributes; of a container, its items."""
        yield from list(self.__dict__.items())

    def __set_child__(self, name: str, value: Any) -> None:
        """Put ``value`` in the place that ``__children__`` calls ``name``."""
        setattr(self, name, value)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """All parameters with their paths, ``prefix`` before each.

        A parameter that stands in two places comes twice, unlike in torch.
        """
        yield from named(self, Parameter, prefix)

    def parameters(self) -> Iterator[Parameter]:
        """All parameters."""
        for _, param in named(self, Parameter):
            yield param

    def state_dict(
        self, *, prefix: str = "", destination: dict[str, Parameter] | None = None
    ) -> dict[str, Parameter]:
        """The parameters themselves by path, in ``destination`` where it is given."""
        found = {} if destination is None else destination
        found.update(named(self, Parameter, prefix))
        return found

    def to(self, dtype: str | None = None) -> None:
        """Change the dtype of every parameter and effect in the tree.

        An attribute ``dtype`` that is a string follows, too.
        """
        for _, item in self.__children__():
            if isinstance(item, Parameter | ModuleTree | Effect):
                item.to(dtype=dtype)
        if dtype is not None and isinstance(getattr(self, "dtype", None), str):
            self.dtype = dtype


def named(module: ModuleTree, kind: type[T], prefix: str = "") -> Iterator[tuple[str, T]]:
    """What is of ``kind`` in the tree, in the order of attributes, by dotted path."""
    for name, item in module.__children__():
        if isinstance(item, kind):
            yield prefix + name, item
        elif isinstance(item, ModuleTree):
            yield from named(item, kind, f"{prefix}{name}.")

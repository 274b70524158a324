"""Static arguments of a function that is jitted already: which they are, and what they were."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relax2xla.importers.shared.trees import register_node

_SERIAL = itertools.count()
_KEY = "static "


@dataclass(frozen=True, slots=True)
class Static:
    """The static arguments of one call, by place and by name."""

    places: Mapping[int, Any] = field(default_factory=dict[int, Any])
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Static:
        """Those that ``fn`` has, if it is jitted; TypeError where JAX does not say which."""
        from jax import stages

        if not isinstance(fn, stages.Wrapped):
            return cls()
        taken, named = fn.trace(*args, **kwargs).args_info
        names = {k: v for k, v in kwargs.items() if k not in named}
        if len(taken) == len(args):
            return cls({}, names)
        # JAX tells the dynamic ones in order, so static ones are what does not fit in between.
        fits = [
            rest
            for rest in itertools.combinations(range(len(args)), len(taken))
            if all(_fits(args[i], info) for i, info in zip(rest, taken, strict=True))
        ]
        if len(fits) != 1:
            raise TypeError(
                f"from_jax cannot tell which {len(args) - len(taken)} of {len(args)} positional "
                "arguments are static: pass them by name, or close over them "
                "(functools.partial)"
            )
        return cls({i: v for i, v in enumerate(args) if i not in fits[0]}, names)

    def dynamic(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with None, which has no leaves, for static ones."""
        return (
            tuple(None if i in self.places else a for i, a in enumerate(args)),
            {k: None if k in self.names else v for k, v in kwargs.items()},
        )

    def bound(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """``fn`` of arguments as ``dynamic`` gives them."""
        if not self.places and not self.names:
            return fn

        def call(*args: Any, **kwargs: Any) -> Any:
            given = [self.places.get(i, a) for i, a in enumerate(args)]
            return fn(*given, **{**kwargs, **self.names})

        call.__name__ = getattr(fn, "__name__", "call")
        return call

    def in_trees(self, trees: dict[str, Any]) -> dict[str, Any]:
        """``trees`` of what a function takes, with static arguments as what they were."""
        where, by_name = trees["in"]["tuple"]
        for i, value in self.places.items():
            where["tuple"][i] = _fixed(value)
        for entry in by_name["dict"]:
            if entry[0] in self.names:
                entry[1] = _fixed(self.names[entry[0]])
        return trees


def _fits(value: Any, info: Any) -> bool:
    """Whether an argument may be what JAX says of a dynamic one."""
    import jax
    import numpy as np

    if jax.tree.structure(value) != jax.tree.structure(info):
        return False
    for leaf, known in zip(jax.tree.leaves(value), jax.tree.leaves(info), strict=True):
        if isinstance(leaf, str) or callable(leaf) or np.shape(leaf) != known.shape:
            return False
        dtype = jax.dtypes.result_type(leaf)
        if not jax.numpy.issubdtype(dtype, jax.dtypes.extended):  # as those of typed keys
            dtype = jax.dtypes.canonicalize_dtype(dtype)
        if dtype != known.dtype:
            return False
    return True


def is_fixed(tree: Any) -> bool:
    """Whether an argument has one value, so that it may be left out."""
    return "const" in tree or ("node" in tree and str(tree["node"][0]).startswith(_KEY))


def _fixed(value: Any) -> dict[str, Any]:
    """The tree of an argument that has one value."""
    if value is None or isinstance(value, bool | int | float | str):
        return {"const": value}
    # What is no number and no text is known in this process alone.
    key = f"{_KEY}{next(_SERIAL)}"

    def flatten(given: Any) -> Sequence[Any]:
        if given is not value and given != value:
            raise ValueError(f"it was {value!r} when the function was traced; given {given!r}")
        return ()

    register_node(key, flatten, lambda _: value)
    return {"node": [key, []]}

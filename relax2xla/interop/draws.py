"""Keys of ``jax.random`` for models that draw random numbers: ``fn(params, x, rng=key)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from relax2xla.builder import BlockBuilder
from relax2xla.errors import CallError
from relax2xla.interop.keys import is_key_dtype, key_impl
from relax2xla.interop.weights import described
from relax2xla.ir import Call, Constant, Expr, Function, IRModule, TupleGetItem
from relax2xla.ir.rewrite import Rewriter
from relax2xla.op.random import random_key
from relax2xla.stablehlo.draws import DRAWS, drawn_bits


class Key(NamedTuple):
    """The integers of a key, and its generator as ``jax.random.key(impl=)`` takes it."""

    data: Any
    impl: str


class Draws:
    """What is known of the random numbers of one function.

    keyword: the argument that takes the key; used: whether the function draws at all;
    anew: whether it has to be others at each run, so that there is no function without a key
    """

    def __init__(self, keyword: str, used: bool, anew: bool) -> None:
        self.keyword, self.used, self.anew = keyword, used, anew

    def taken(
        self, name: str, kwargs: Mapping[str, Any], own: Iterable[str]
    ) -> tuple[Key | None, Mapping[str, Any]]:
        """The key among the arguments of a call, and the others; CallError for one that is none.

        own: names of the arguments of the model
        """
        if not self.used and self.keyword in kwargs and self.keyword not in own:
            raise CallError(
                f"{name} draws no random numbers, so it takes no {self.keyword}=; a model with "
                "dropout does where it was exported in training mode (module.train() in torch)"
            )
        if not self.used:
            return None, kwargs
        rest = dict(kwargs)
        given = rest.pop(self.keyword, None)
        if given is None and self.anew:
            raise CallError(
                f"{name} draws random numbers, others at each call: give it a key, as in "
                f"fn(params, ..., {self.keyword}=jax.random.key(0))"
            )
        return (None if given is None else _key(given, f"{name}: {self.keyword}")), rest


def _key(value: Any, where: str) -> Key:
    """A key as its integers; CallError for anything else."""
    import jax

    dtype = getattr(value, "dtype", None)
    typed = value
    if dtype == np.uint32:  # keys of jax.random.PRNGKey
        try:
            typed = jax.random.wrap_key_data(value)
        except (TypeError, ValueError):
            dtype = None
    elif dtype is None or not is_key_dtype(dtype):
        dtype = None
    if dtype is None:
        raise CallError(f"{where} is a key, as jax.random.key(0); given {described(value)}")
    if typed.shape:
        raise CallError(
            f"{where} is one key; given {described(value)}: jax.vmap maps over keys as over "
            "examples"
        )
    return Key(jax.random.key_data(typed), key_impl(typed.dtype))


def as_key(key: Key) -> Any:
    """A typed key of its integers."""
    import jax

    return jax.random.wrap_key_data(key.data, impl=key.impl)


def with_keys(mod: IRModule) -> IRModule:
    """``mod`` with draws of rows in place of ``R.random_key``, which only the machine has."""
    numbers: dict[str, int] = {}

    def drawn(node: Expr) -> Expr | None:
        if not is_random_key(node):
            return None
        name = str(node.attrs.get("name") or "")
        # From the end, so that no importer's draw has the number.
        number = DRAWS - 1 - numbers.setdefault(name, len(numbers))
        return TupleGetItem(drawn_bits(_STATE, (1,), "uint64", "THREE_FRY", number), 1)

    functions = {
        g: Rewriter(rule=drawn).function(f) if isinstance(f, Function) else f
        for g, f in mod.items()
    }
    if not numbers:
        return mod
    return mod.replace({g: BlockBuilder().normalize(f) for g, f in functions.items()})


def is_random_key(node: Expr) -> TypeGuard[Call]:
    """Whether an expression is a call of ``R.random_key``."""
    return isinstance(node, Call) and node.op is random_key


# Never read: such a program takes a key.
_STATE = Constant(np.zeros(2, np.uint64))

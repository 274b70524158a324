"""Models as modules of Flax NNX and Equinox, for their training loops, optimisers and states.

Both hold the weights of :func:`relax2xla.interop.jax.jax_function` by the source's names and call
its function. Flax linen, Haiku and plain JAX take that function and its ``params`` as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from relax2xla.errors import UnsupportedError
from relax2xla.interop.extract import JaxFunction


def as_nnx(fn: JaxFunction, params: Mapping[str, Any], rngs: Any = None) -> Any:
    """A ``flax.nnx.Module`` that calls ``fn``.

    ``module.params`` is a tree of ``nnx.Param``, ``module.buffers`` one of ``nnx.BatchStat``, in
    which a call leaves what a model in training mode made of them. ``rngs``: an ``nnx.Rngs``, whose
    stream ``dropout`` gives each call its key, if the call has none itself.
    """
    return nnx_module()(fn, params, rngs)


def as_equinox(fn: JaxFunction, params: Mapping[str, Any]) -> Any:
    """An ``equinox.Module`` that calls ``fn``; its leaves are ``params`` and ``buffers``.

    No gradient reaches ``buffers``. ``module.apply(*args)`` gives the result and the module after
    the call, whose buffers a model in training mode changes. Calls take a key as those of Equinox
    do, by the name ``fn.rng``.
    """
    return equinox_module()(dict(params), fn.buffers, fn)


# -- the classes, made when their package is first needed ------------------------------------------
@cache
def nnx_module() -> Callable[..., Any]:
    """The class of what :func:`as_nnx` gives; UnsupportedError without flax."""
    nnx: Any = _package("flax.nnx", "flax").nnx

    def tree(values: Mapping[str, Any], kind: Any) -> Any:
        made = nnx.Dict()
        for name, value in values.items():
            made[name] = tree(value, kind) if isinstance(value, Mapping) else kind(value)
        return made

    def arrays(held: Any) -> dict[str, Any]:
        return {
            name: value[...] if isinstance(value, nnx.Variable) else arrays(value)
            for name, value in held.items()
        }

    def keep(held: Any, after: Mapping[str, Any]) -> None:
        for name, value in after.items():
            if isinstance(value, Mapping):
                keep(held[name], value)
            elif value is not held[name][...]:
                held[name][...] = value

    def key(given: Any) -> Any:
        """A key of streams, of a stream, or itself."""
        if isinstance(given, nnx.Rngs):
            given = given.dropout
        return given() if isinstance(given, nnx.RngStream) else given

    class Model(nnx.Module):
        """An imported model."""

        def __init__(self, fn: JaxFunction, params: Mapping[str, Any], rngs: Any) -> None:
            self.fn = fn
            self.rngs = rngs
            self.params = tree(params, nnx.Param)
            self.buffers = tree(fn.buffers, nnx.BatchStat)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            before = arrays(self.buffers)
            kwargs = _with_key(self.fn, kwargs, lambda k: key(self.rngs if k is None else k))
            result, after = self.fn.apply(arrays(self.params), before, *args, **kwargs)
            if _changed(before, after):
                keep(self.buffers, after)
            return result

    return Model


@cache
def equinox_module() -> Callable[..., Any]:
    """The class of what :func:`as_equinox` gives; UnsupportedError without equinox."""
    import jax

    eqx: Any = _package("equinox", "equinox")

    class Model(eqx.Module):
        """An imported model."""

        params: dict[str, Any]
        buffers: dict[str, Any]
        fn: JaxFunction = eqx.field(static=True)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.apply(*args, **kwargs)[0]

        def apply(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            """The result, and the module after the call."""
            buffers = jax.lax.stop_gradient(self.buffers)
            kwargs = _with_key(self.fn, kwargs, lambda given: given)
            result, after = self.fn.apply(self.params, buffers, *args, **kwargs)
            return result, Model(self.params, after, self.fn)

    return Model


def _with_key(
    fn: JaxFunction, kwargs: Mapping[str, Any], key: Callable[[Any], Any]
) -> dict[str, Any]:
    """Arguments with the key that ``key`` makes of what is given, where ``fn`` takes one.

    Layers of these libraries take one also where they do not draw.
    """
    rest = dict(kwargs)
    if fn.draws:
        rest[fn.rng] = key(rest.get(fn.rng))
    elif fn.rng not in fn.argument_names:
        rest.pop(fn.rng, None)
    return rest


def _changed(before: Any, after: Any) -> bool:
    """Whether a call made new buffers."""
    if isinstance(before, Mapping):
        return any(_changed(value, after[name]) for name, value in before.items())
    return before is not after


def _package(module: str, name: str) -> Any:
    """A package that is no dependency of the project; UnsupportedError says how to get it."""
    import importlib

    try:
        importlib.import_module(module)
    except ImportError as e:
        raise UnsupportedError(f"this needs {name}, which is not here: pip install {name}") from e
    return importlib.import_module(module.partition(".")[0])

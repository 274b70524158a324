"""Compiled modules: their methods by name, arrays in and arrays out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from relax2xla.frontend.nn import spec as _spec
from relax2xla.frontend.nn.exporter import INITIALIZE
from relax2xla.runtime.shape_tuple import ShapeTuple

if TYPE_CHECKING:
    from relax2xla.vm.call.machine import VirtualMachine


class CompiledModule:
    """Methods of a compiled module by name: ``compiled["forward"](x)``.

    Arguments are those of the specification: arrays (numpy, jax, torch), ints, tuples. Effects keep
    their state from call to call. ``spec``, ``vm``, ``params`` and ``effects`` are what it is made
    of; parameters in mode "plain" are held by ``vm``, and the others given with each call.
    """

    def __init__(
        self, spec: _spec.ModuleSpec, vm: VirtualMachine, params: Sequence[Any], bound: bool = False
    ) -> None:
        self.spec = spec
        self.vm = vm
        self.params = list(params)
        self.effects: tuple[Any, ...] | None = None
        self._bound = bound
        if INITIALIZE in vm.names():
            self.effects = tuple(vm[INITIALIZE]())

    def __getitem__(self, method_name: str) -> Callable[..., Any]:
        """The method; ValueError for one that the specification has not."""
        known = dict(zip(self.spec.method_names, self.spec.method_specs, strict=True))
        if method_name not in known:
            raise ValueError(f"no method {method_name!r} in the specification: {self.spec}")
        method, function = known[method_name], self.vm[method_name]

        def call(*args: Any, **by_name: Any) -> Any:
            if by_name:
                args = _in_order(method, method_name, args, by_name)
            if len(args) != len(method.arg_specs):
                raise TypeError(
                    f"{method.describe(method_name)} takes {len(method.arg_specs)} arguments; "
                    f"got {len(args)}"
                )
            pairs = zip(method.arg_names, method.arg_specs, args, strict=True)
            values = [self.taken(name, spec, value) for name, spec, value in pairs]
            states = self.effects if method.effect_mode != "none" else None
            output = function(
                *values, *self._states(method, states), *self._params(method.param_mode)
            )
            if states is not None:
                output, self.effects = output
            return self.given(output)

        call.__name__ = method_name
        return call

    def _states(self, method: _spec.MethodSpec, states: tuple[Any, ...] | None) -> tuple[Any, ...]:
        if states is None:
            return ()
        return (states,) if method.effect_mode == "packed" else states

    def _params(self, mode: str) -> Sequence[Any]:
        if mode == "packed":
            return (tuple(self.params),)
        return self.params if mode == "plain" and not self._bound else ()

    def taken(self, name: str, spec: Any, value: Any) -> Any:
        """An argument as the machine takes it; TypeError where it is not as ``spec`` says."""
        match spec:
            case _spec.Int():
                if isinstance(value, bool) or not isinstance(value, int | np.integer):
                    raise TypeError(f"the argument {name} is an int; got {type(value).__name__}")
                return ShapeTuple([int(value)])
            case _spec.Tuple():
                if not isinstance(value, tuple | list) or len(value) != len(spec.elements):
                    raise TypeError(f"the argument {name} is {spec}; got {value!r}")
                return tuple(
                    self.taken(f"{name}[{i}]", s, v)
                    for i, (s, v) in enumerate(zip(spec.elements, value, strict=True))
                )
            case _:
                return value

    def given(self, value: Any) -> Any:
        """A result as the user gets it: arrays as ``array`` says, sizes in lists."""
        if isinstance(value, ShapeTuple):
            return list(value)
        if isinstance(value, tuple | list):
            return [self.given(v) for v in value]
        return self.array(value)

    def array(self, value: Any) -> Any:
        """An array of a result, a ``jax.Array``."""
        return value


def _in_order(
    method: _spec.MethodSpec, name: str, args: tuple[Any, ...], by_name: dict[str, Any]
) -> tuple[Any, ...]:
    """All arguments by position; TypeError for names that are not those of the others."""
    rest = method.arg_names[len(args) :]
    if set(by_name) != set(rest):
        raise TypeError(
            f"{method.describe(name)} takes {', '.join(method.arg_names)}; got {len(args)} by "
            f"position, and {', '.join(by_name)}"
        )
    return (*args, *(by_name[n] for n in rest))


class NumpyModule(CompiledModule):
    """A compiled module whose results are numpy arrays."""

    def array(self, value: Any) -> Any:
        """An array of a result as numpy."""
        return np.asarray(value)

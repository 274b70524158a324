"""Eager calls: modules and operators on arrays compute at once, by programs that are kept.

A call is traced once for the shapes and dtypes of its arrays, the values of its other arguments,
and the plain attributes of the module's tree (so a changed setting is seen); the program is then
kept. Parameters are arguments of the program, so that new data is used without compiling again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import dtype_name
from relax2xla.frontend.nn.effects import OneValue, StateNeeded
from relax2xla.frontend.nn.exporter import INITIALIZE, DebugOff, Exporter
from relax2xla.frontend.nn.extern import ExternModule
from relax2xla.frontend.nn.tree import Effect, ModuleTree, named
from relax2xla.frontend.nn.values import Object, Parameter, Tensor, expr_of
from relax2xla.ir import Constant, Tuple, Var
from relax2xla.runtime.convert import is_torch, to_host

P = ParamSpec("P")
R = TypeVar("R")

# Programs that are kept for a module, and for all operators together.
KEPT_OF_MODULE = 64
KEPT_OF_OPERATORS = 1024
_MAIN = "eager"


def is_array(value: Any) -> bool:
    """Whether ``value`` holds numbers: a numpy, jax or torch array."""
    if isinstance(value, np.ndarray | np.generic) or is_torch(value):
        return True
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def has_arrays(value: Any) -> bool:
    """Whether there is an array in nested tuples, lists and dicts."""
    if isinstance(value, tuple | list):
        return any(has_arrays(v) for v in cast("Sequence[Any]", value))
    if isinstance(value, dict):
        return any(has_arrays(v) for v in cast("dict[Any, Any]", value).values())
    return is_array(value)


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Let ``function``, an operator, compute at once where it is called with arrays.

    Parameters and constants count as arrays where nothing is being exported.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if BlockBuilder.current() is None and _computable((args, kwargs)):
            return _run(function, None, args, kwargs, _OPERATORS)
        return function(*args, **kwargs)

    return call


def run(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``method(*args, **kwargs)`` of a module at once: numbers for arrays, compiled and kept.

    ``module(x)`` is ``run(module.forward, x)``. Arrays are numpy, jax or torch, also in tuples,
    lists and dicts; other arguments are part of the program. Results are jax arrays, or torch
    tensors where a torch tensor was given. Effects (a KVCache) keep their state from call to call;
    ``reset`` forgets it. Raises ValueError for parameters that hold no data, all of them named.
    """
    module = getattr(method, "__self__", None)
    if not isinstance(module, ModuleTree):
        raise TypeError(f"run takes a method of an nn.Module; got {method!r}")
    return _run(method, module, args, kwargs, _programs_of(module))


def reset(module: ModuleTree) -> None:
    """Forget the state that effects of ``module`` kept between eager calls."""
    for _, effect in named(module, Effect):
        _STATES.pop(effect, None)


# Tracing puts variables into the parameters of modules, and effects have one state: one at a time.
_LOCK = threading.RLock()


# -- what is kept ----------------------------------------------------------------------------------
class _Program(NamedTuple):
    """A traced call: ``vm[main]``, what it reads, and how its result is put together."""

    vm: Any
    params: list[Parameter]
    effects: list[Effect]
    result: Any


class _Kept:
    """Programs by key; the least recently used one goes first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._made: OrderedDict[Hashable, _Program] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], _Program]) -> _Program:
        with _LOCK:
            if key not in self._made:
                self._made[key] = make()
                if len(self._made) > self._size:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            return self._made[key]


_OPERATORS = _Kept(KEPT_OF_OPERATORS)
_OF_MODULES: dict[int, tuple[weakref.ref[ModuleTree], _Kept]] = {}
# The state of effects between eager calls.
_STATES: weakref.WeakKeyDictionary[Effect, Any] = weakref.WeakKeyDictionary()


def _programs_of(module: ModuleTree) -> _Kept:
    """Beside the module, not in it: a module can be copied, and may be unhashable."""
    place = id(module)
    found = _OF_MODULES.get(place)
    if found is None or found[0]() is not module:
        gone = weakref.ref(module, lambda _: _OF_MODULES.pop(place, None))
        found = _OF_MODULES[place] = (gone, _Kept(KEPT_OF_MODULE))
    return found[1]


# -- one call --------------------------------------------------------------------------------------
class _Leaf(NamedTuple):
    """An array's place in the arguments or the result; ``info`` is its dtype and shape."""

    place: int
    info: tuple[Any, ...] = ()


def _computable(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_computable(v) for v in cast("Sequence[Any]", value))
    if isinstance(value, dict):
        return any(_computable(v) for v in cast("dict[Any, Any]", value).values())
    return is_array(value) or _known(value) is not None


def _known(value: Any) -> Any:
    """The numbers of a bound parameter or of a constant, else None."""
    if isinstance(value, Parameter):
        if value.data is None:
            raise ValueError(f"{value!r} is a parameter without data; set its .data first")
        return value.data
    if isinstance(value, Tensor):
        expr = expr_of(value)
        return expr.data if isinstance(expr, Constant) else None
    return None


def _run(
    function: Callable[..., Any],
    module: ModuleTree | None,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    kept: _Kept,
) -> Any:
    arrays: list[Any] = []
    structure = _taken((tuple(args), kwargs), arrays, module is None)
    name = getattr(function, "__func__", function)
    key = (name, _key(structure), () if module is None else _fingerprint(module, {}))
    try:
        hash(key)
    except TypeError as e:
        raise TypeError(f"{e}: an argument of an eager call that is no array is hashable") from None
    program = kept.get(key, lambda: _trace(function, module, structure, arrays))
    values = [*arrays, *(p.data for p in program.params)]
    outputs = _with_states(program, values) if program.effects else program.vm[_MAIN](*values)
    give = _to_torch if any(is_torch(a) for a in arrays) else (lambda value: value)
    return _filled(program.result, [give(v) for v in outputs])


def _with_states(program: _Program, values: Sequence[Any]) -> Any:
    """The outputs; the effects' states go in, and are kept as they come out."""
    with _LOCK:
        if any(e not in _STATES for e in program.effects):
            made = program.vm[INITIALIZE]()
            for effect, state in zip(program.effects, made, strict=True):
                _STATES.setdefault(effect, state)
        outputs, states = program.vm[_MAIN](*values, *(_STATES[e] for e in program.effects))
        for effect, state in zip(program.effects, states, strict=True):
            _STATES[effect] = state
    return outputs


def _taken(value: Any, arrays: list[Any], known: bool) -> Any:
    """``value`` with leaves in place of arrays, which go to ``arrays``."""
    if isinstance(value, tuple | list):
        items = [_taken(v, arrays, known) for v in cast("Sequence[Any]", value)]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        named = cast("dict[Any, Any]", value)
        return {k: _taken(v, arrays, known) for k, v in named.items()}
    if known and isinstance(value, Tensor):
        held = _known(value)
        value = value if held is None else held
    if not is_array(value):
        return value
    if not is_torch(value) and isinstance(value, np.generic):
        value = np.asarray(value)
    arrays.append(value)
    dtype = str(value.dtype).removeprefix("torch.") if is_torch(value) else dtype_name(value.dtype)
    return _Leaf(len(arrays) - 1, (dtype, tuple(value.shape)))


def _key(value: Any) -> Any:
    """``value`` as a key: lists and dicts as tuples, numbers with their types."""
    if isinstance(value, _Leaf):
        return value
    if isinstance(value, tuple | list):
        items = cast("Sequence[Any]", value)
        return (type(value).__name__, *(_key(v) for v in items))
    if isinstance(value, dict):
        named = cast("dict[Any, Any]", value)
        return ("dict", *((k, _key(v)) for k, v in named.items()))
    return (type(value).__name__, value)


def _fingerprint(value: Any, seen: dict[int, int]) -> Any:
    """What a traced program depends on in a module's tree."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return (type(value).__name__, value)
    if id(value) in seen:
        return ("seen", seen[id(value)])
    seen[id(value)] = len(seen)
    if isinstance(value, ExternModule):
        return value
    if isinstance(value, Parameter):
        return ("parameter", value.dtype, tuple(value.shape))
    if is_array(value):  # constants of the program, which may be written to
        held = np.ascontiguousarray(to_host(value))
        return ("array", str(held.dtype), held.shape, hashlib.sha256(held.tobytes()).digest())
    if isinstance(value, ModuleTree):
        items = value.__children__()
        inner = tuple((n, _fingerprint(v, seen)) for n, v in items)
        return (type(value), value.define_subroutine, inner)
    if isinstance(value, tuple | list | set | frozenset):
        return (type(value), *(_fingerprint(v, seen) for v in cast("Sequence[Any]", value)))
    if isinstance(value, dict):
        named = cast("dict[Any, Any]", value)
        return ("dict", *((k, _fingerprint(v, seen)) for k, v in named.items()))
    if hasattr(value, "__dict__") and not callable(value) and not isinstance(value, ModuleType):
        inner = cast("dict[str, Any]", vars(value))
        return (
            type(value),
            *((n, _fingerprint(v, seen)) for n, v in inner.items() if n != "_state"),
        )
    return value if isinstance(value, Hashable) else (type(value), id(value))


# -- tracing ---------------------------------------------------------------------------------------
def _trace(
    function: Callable[..., Any], module: ModuleTree | None, structure: Any, arrays: Sequence[Any]
) -> _Program:
    """Trace; again with effects if they are used, and with that of printing if it prints."""
    if module is not None:
        unbound = [name for name, p in named(module, Parameter) if p.data is None]
        if unbound:
            raise ValueError(
                f"these parameters hold no data: {', '.join(unbound)}; load them with "
                "load_state_dict, or set .data"
            )
    # Effects cost a program its road straight to XLA: they are in it only where they are needed.
    stateful = module is not None and not all(
        isinstance(e, OneValue) for _, e in named(module, Effect)
    )
    debug = False
    while True:
        try:
            return _traced(function, module, structure, arrays, stateful=stateful, debug=debug)
        except StateNeeded:
            if stateful:
                raise
            stateful = True
        except DebugOff:
            if debug:
                raise
            debug = True


def _traced(
    function: Callable[..., Any],
    module: ModuleTree | None,
    structure: Any,
    arrays: Sequence[Any],
    *,
    stateful: bool,
    debug: bool,
) -> _Program:
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    exporter = Exporter(debug=debug)
    params = _unique(module)
    before = [(param, expr_of(param)) for _, param in params]
    effects = exporter.effects_of(module if stateful else None)
    builder = exporter.builder
    names = _names(function, structure, len(arrays))
    inputs: list[Var] = []
    outputs: list[Any] = []
    try:
        with exporter.scope(effects):
            exporter.initialize(effects)
            with builder.function(_MAIN):
                with builder.dataflow():
                    pairs = zip(arrays, names, strict=True)
                    leaves = [Tensor.placeholder(*_info(a), n) for a, n in pairs]
                    inputs = [cast("Var", expr_of(t)) for t in leaves]
                    inputs += exporter.enter_params(params, "plain")
                    inputs += exporter.enter_effects(effects, "plain")
                    args, kwargs = _filled(structure, leaves)
                    result = _given(function(*args, **kwargs), outputs)
                    states = [v for _, e in effects for v in e.finalize()]
                    made = Tuple([expr_of(t) for t in outputs])
                    output = builder.emit_output(Tuple([made, Tuple(states)]) if effects else made)
                builder.emit_func_output(output, inputs)
    finally:
        for param, expr in before:
            param.rebind(expr)
    vm = VirtualMachine(build(exporter.linked()))
    return _Program(vm, [p for _, p in params], [e for _, e in effects], result)


def _unique(module: ModuleTree | None) -> list[tuple[str, Parameter]]:
    """The parameters of a module; one that stands in several places once."""
    found: dict[int, tuple[str, Parameter]] = {}
    for name, param in named(module, Parameter) if module is not None else ():
        found.setdefault(id(param), (name, param))
    return list(found.values())


def _info(array: Any) -> tuple[list[int], str]:
    dtype = str(array.dtype).removeprefix("torch.") if is_torch(array) else dtype_name(array.dtype)
    return [int(n) for n in array.shape], dtype


def _names(function: Callable[..., Any], structure: Any, count: int) -> list[str]:
    """Names for the arrays: those of parameters, where an argument is an array."""
    names = [f"x{i}" for i in range(count)]
    args, kwargs = structure
    bound = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    for name, value in bound.items():
        if isinstance(value, _Leaf):
            names[value.place] = name
    return names


def _given(value: Any, outputs: list[Any]) -> Any:
    """A result with leaves in place of Tensors, which go to ``outputs``."""

    def given(value: Any) -> Any:
        if isinstance(value, Tensor):
            outputs.append(value)
            return _Leaf(len(outputs) - 1)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Object | tir.PrimExpr):
            raise TypeError("an eager call gives tensors; an Object stays inside of the program")
        raise TypeError(f"an eager call gives tensors and plain values; got {type(value).__name__}")

    return _mapped(value, given)


def _filled(value: Any, leaves: Sequence[Any]) -> Any:
    """``value`` with ``leaves`` in their places."""
    return _mapped(value, lambda v: leaves[v.place] if isinstance(v, _Leaf) else v)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested tuples, lists and dicts with what is in them changed."""
    if isinstance(value, _Leaf):  # a tuple, too
        return change(value)
    if isinstance(value, tuple | list):
        items = [_mapped(v, change) for v in cast("Sequence[Any]", value)]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        named = cast("dict[Any, Any]", value)
        return {k: _mapped(v, change) for k, v in named.items()}
    return change(value)


def _to_torch(value: Any) -> Any:
    from relax2xla.frontend.nn.torch import to_torch

    return to_torch(value)

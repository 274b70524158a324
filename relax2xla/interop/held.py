"""A function of JAX as the machine's program, with functions in C++, where one CPU runs it.

Where weights are arrays that do not change, they are laid out once, as the machine's are. Where
they come with each call, whatever is done to them is done at each call: the functions read them as
they lie.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relax2xla.errors import UnsupportedError
from relax2xla.interop.weights import Weights
from relax2xla.ir import Call, Op, StructInfo, TensorStructInfo
from relax2xla.ir.rewrite import bindings_deep

if TYPE_CHECKING:
    from relax2xla.vm.call.executable import Executable
    from relax2xla.vm.call.programs import Programs
    from relax2xla.vm.call.specialise import Program
    from relax2xla.vm.pjrt.held import Calls, Held, Inline

#: From arrays to arrays.
Rows = Callable[..., Sequence[Any]]


class OnWeights(NamedTuple):
    """A function over its weights, for one set of shapes; ``pack`` makes its result of arrays."""

    call: Held
    pack: Callable[[Sequence[Any]], Any]


class Machine:
    """What the machine makes of a function, on the weights that were last asked for.

    build: makes the executable, when it is first needed; ``weights`` are those of the function
    """

    def __init__(self, build: Callable[[], Executable], name: str, weights: Weights) -> None:
        self._build, self._name, self._weights = build, name, weights
        self._lock = threading.Lock()
        self._programs: Programs | None = None
        self._values: list[Any] = []
        self._prepared: Any = None
        self._found: dict[Any, OnWeights] = {}

    def held(
        self, given: Mapping[str, Any], infos: Sequence[StructInfo], rows: Rows
    ) -> OnWeights | None:
        """The function over ``given`` weights, for arguments of ``infos``; None: it has rows alone.

        ``rows``: the same in ``jax.lax`` operations.
        """
        from relax2xla.vm.call.call_shapes import key_of

        values = list(given.values())
        if not values or not _are_arrays(values) or not _on_one_cpu():
            return None
        with self._lock:
            programs = self._programs = self._programs or _programs(self._build, self._name)
            if not _same(values, self._values):
                self._values, self._found = values, {}
                self._prepared = self._weights_of(programs, given)
            if self._prepared is None:
                return None
            key = key_of(infos)
            if key not in self._found:
                self._found[key] = _on_weights(programs, self._prepared, infos, rows)
            return self._found[key]

    def _weights_of(self, programs: Programs, given: Mapping[str, Any]) -> Any:
        """The weights as programs take them; None where one that was changed is not among them."""
        from relax2xla.vm.call.weights import Weights as Prepared
        from relax2xla.vm.call.weights import WeightStore

        entry = programs.entry
        lifted = entry.lifted
        values: dict[str, Any] = {}

        def named(arrays: Sequence[Any], names: Sequence[str]) -> tuple[str, ...]:
            """The paths of arrays, whose values are then those of ``given``."""
            made: list[str] = []
            for i, array in enumerate(arrays):
                name = names[i] if names else ""
                path = self._weights.paths.get(id(array), name)
                known = path in given and not isinstance(array, int)
                if known:
                    values[path] = _as(given[path], array)
                made.append(path if known else "")
            return tuple(made)

        lifted = dataclasses.replace(
            lifted,
            names=named(lifted.weights, lifted.names),
            raw_names=named(lifted.raw, lifted.raw_names),
            ready={},
        )
        if any(path not in values and self._weights.differs(path, given[path]) for path in given):
            return None
        entry = dataclasses.replace(entry, lifted=lifted)
        return Prepared(programs.executable, entry, programs.device, (), WeightStore(values))


class WithCalls:
    """What the machine makes of a function whose weights come with each call.

    build: makes the executable, when it is first needed; ``weights`` are those of the function,
    ``arrays`` by path, as the module has them
    """

    def __init__(
        self,
        build: Callable[[], Executable],
        name: str,
        weights: Weights,
        arrays: Mapping[str, Any],
    ) -> None:
        self.arrays = arrays
        self._build, self._name, self._weights = build, name, weights
        self._lock = threading.Lock()
        self._programs: Programs | None = None
        self._found: dict[Any, Held] = {}

    def held(
        self, values: Sequence[Any], infos: Sequence[StructInfo], program: Program, rows: Rows
    ) -> Held | None:
        """The function of weights, in the order of ``arrays``, and arguments of ``infos``; None: it
        has rows alone.

        ``values``: weights and arguments; ``program``: that of the rows; ``rows``: the same in
        ``jax.lax`` operations.
        """
        from relax2xla.vm.call.call_shapes import key_of
        from relax2xla.vm.pjrt import held, xla
        from relax2xla.vm.pjrt.jax_arguments import is_wide

        if not _calls_here() or not all(map(held.is_staged, values)) or not _is_large(program):
            return None
        # Rows follow JAX's flag.
        key = (key_of(infos), is_wide(np.zeros(0)))
        with self._lock:
            if key not in self._found:
                outputs = map(xla.aval, program.outputs)
                self._found[key] = held.Held(rows, outputs, lambda: self._calls(infos))
            return self._found[key]

    def _calls(self, infos: Sequence[StructInfo]) -> Calls | None:
        from relax2xla.stablehlo.emitter import emit
        from relax2xla.vm.call.specialise import specialise
        from relax2xla.vm.pjrt import compiler

        with self._lock:
            programs = self._programs = self._programs or _programs(self._build, self._name)
        executable, lifted = programs.executable, programs.entry.lifted
        places = {path: i for i, path in enumerate(self.arrays)}

        def operands(arrays: Sequence[Any], names: Sequence[str]) -> list[Any]:
            """Of each array the place of the weight that it is; itself, if it is none."""
            paths = self._weights.paths
            named = (paths.get(id(a), n) for a, n in zip(arrays, names, strict=True))
            return [places.get(n, a) for n, a in zip(named, arrays, strict=True)]

        raw = operands(lifted.raw, lifted.raw_names)
        weights = operands(lifted.weights, lifted.names)
        module, _ = programs.lowered(infos)
        try:
            main = compiler.called(module, programs.device, executable.allowed)
        except UnsupportedError:  # of a whole program; in rows JAX may compute it otherwise
            return None
        used = [*raw, *(w for w, own in zip(weights, lifted.weights, strict=True) if w is not own)]
        # Weights may have become numbers of the program.
        if main is module or {u for u in used if isinstance(u, int)} != {*places.values()}:
            return None
        transform = None
        if lifted.transform is not None:
            transform = emit(
                specialise(executable.mod, self._name, lifted.transform, {}).module, resources=False
            )

        def calls(inline: Inline, values: Sequence[Any]) -> Sequence[Any]:
            given, arguments = values[: len(places)], values[len(places) :]

            def known(operand: Any) -> Any:
                return given[operand] if isinstance(operand, int) else operand

            made = () if transform is None else inline(transform, [known(r) for r in raw])
            fields = [
                made[own] if isinstance(own, int) else known(w)
                for own, w in zip(lifted.weights, weights, strict=True)
            ]
            return inline(main, [*fields, *arguments])

        return calls


# Rows that multiply matrices.
_PRODUCTS = ("relax.stablehlo.dot_general", "relax.stablehlo.convolution")


def _is_large(program: Program) -> bool:
    """Whether a program of rows has a product that is large enough for a call."""
    from relax2xla.kernels.products import FASTER

    least = min(FASTER.values())
    for func in program.module.relax_functions().values():
        for b in bindings_deep(func):
            call = b.value
            if isinstance(call, Call) and isinstance(call.op, Op) and call.op.name in _PRODUCTS:
                # Each number of an operand or a result is in as many products as an axis is long.
                sizes = [_size(e.struct_info) for e in (*call.args[:2], call)]
                if math.prod(sizes) >= least**2:
                    return True
    return False


def _size(info: StructInfo) -> int:
    dims = info.dims if isinstance(info, TensorStructInfo) else None
    return math.prod(d for d in dims or () if isinstance(d, int))


def _calls_here() -> bool:
    """Whether this process runs on one CPU that functions in C++ are known to be faster on."""
    from relax2xla import processor
    from relax2xla.kernels.native import may_call
    from relax2xla.kernels.products import FASTER

    return _on_one_cpu() and processor.kind() in FASTER and may_call()


def _programs(build: Callable[[], Executable], name: str) -> Programs:
    from relax2xla.vm.call.arguments import Arguments
    from relax2xla.vm.call.programs import Programs

    executable = build()
    return Programs(executable, Arguments(name, executable[name].params, None))


def _on_weights(
    programs: Programs, weights: Any, infos: Sequence[StructInfo], rows: Rows
) -> OnWeights:
    from relax2xla.vm.call.call_shapes import key_of
    from relax2xla.vm.pjrt import compiler, xla
    from relax2xla.vm.pjrt.held import Held

    def calls() -> Calls:
        module, _ = programs.lowered(infos)
        called = compiler.called(module, programs.device, programs.executable.allowed)
        known = [np.asarray(w) for w in weights.operands()]
        return lambda inline, values: inline(called, [*known, *values])

    def run(*arrays: Any) -> Sequence[Any]:
        loaded, _ = programs.find(key_of(infos))
        placed = [xla.on_device(a, programs.device) for a in arrays]
        return loaded.run([*weights.operands(), *placed])

    made = programs.program(infos)
    return OnWeights(Held(rows, map(xla.aval, made.outputs), calls, run), made.pack)


def _on_one_cpu() -> bool:
    """Whether this process has one device, a CPU, and JAX makes programs for it."""
    import jax

    disabled = getattr(jax.config, "jax_disable_jit", False)
    return not disabled and jax.device_count() == 1 and jax.default_backend() == "cpu"


def _are_arrays(values: Sequence[Any]) -> bool:
    from relax2xla.vm.pjrt.xla import ARRAY

    return all(type(v) is ARRAY for v in values)


def _as(value: Any, array: Any) -> Any:
    """A weight as the module has it, which JAX may have narrowed; itself, where it is that.

    Numpy's view of an array would keep JAX from donating it.
    """
    if value.dtype == array.dtype and value.shape == array.shape:
        return value
    return np.asarray(value, array.dtype).reshape(array.shape)


def _same(values: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(values) == len(others) and all(a is b for a, b in zip(values, others, strict=True))

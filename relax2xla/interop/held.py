"""A function of JAX over weights that are arrays: the machine's program, where one CPU runs it.

Where weights come with each call, whatever is done to them is done at each call. Where they are
arrays that do not change, they are laid out once for functions in C++, as the machine's are.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relax2xla.interop.weights import Weights
from relax2xla.ir import StructInfo

if TYPE_CHECKING:
    from relax2xla.vm.call.executable import Executable
    from relax2xla.vm.call.programs import Programs
    from relax2xla.vm.pjrt.held import Held

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
        if not values or not _on_this_cpu(values):
            return None
        with self._lock:
            programs = self._programs = self._programs or self._made()
            if not _same(values, self._values):
                self._values, self._found = values, {}
                self._prepared = self._weights_of(programs, given)
            if self._prepared is None:
                return None
            key = key_of(infos)
            if key not in self._found:
                self._found[key] = _on_weights(programs, self._prepared, infos, rows)
            return self._found[key]

    def _made(self) -> Programs:
        from relax2xla.vm.call.arguments import Arguments
        from relax2xla.vm.call.programs import Programs

        executable, name = self._build(), self._name
        arguments = Arguments(name, executable[name].params, None)
        return Programs(executable, arguments)

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


def _on_weights(
    programs: Programs, weights: Any, infos: Sequence[StructInfo], rows: Rows
) -> OnWeights:
    from relax2xla.vm.call.call_shapes import key_of
    from relax2xla.vm.pjrt import compiler, xla
    from relax2xla.vm.pjrt.held import Held

    def program() -> tuple[Any, Sequence[Any]]:
        module, _ = programs.lowered(infos)
        called = compiler.called(module, programs.device, programs.executable.allowed)
        return called, [np.asarray(w) for w in weights.operands()]

    def run(*arrays: Any) -> Sequence[Any]:
        loaded, _ = programs.find(key_of(infos))
        placed = [xla.on_device(a, programs.device) for a in arrays]
        return loaded.run([*weights.operands(), *placed])

    made = programs.program(infos)
    return OnWeights(Held(rows, map(xla.aval, made.outputs), program, run), made.pack)


def _on_this_cpu(arrays: Any) -> bool:
    """Whether they are all arrays, and this process has one device, a CPU."""
    import jax

    from relax2xla.vm.pjrt.xla import ARRAY

    if (
        getattr(jax.config, "jax_disable_jit", False)
        or jax.device_count() > 1
        or jax.default_backend() != "cpu"
    ):
        return False
    return all(type(a) is ARRAY for a in arrays)


def _as(value: Any, array: Any) -> Any:
    """A weight as the module has it, which JAX may have narrowed; itself, where it is that.

    Numpy's view of an array would keep JAX from donating it.
    """
    if value.dtype == array.dtype and value.shape == array.shape:
        return value
    return np.asarray(value, array.dtype).reshape(array.shape)


def _same(values: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(values) == len(others) and all(a is b for a, b in zip(values, others, strict=True))

"""State that stays on the device from call to call: KV caches, running statistics, optimisers.

A function that takes a state and returns the next one is bound to it by
``VirtualMachine.bind_state``. The state's memory is donated, so XLA updates it in place wherever
the next value has the shape of the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import CallError
from relax2xla.ir import StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.lattice import Mismatch, SymMap, unify
from relax2xla.ir.struct_info import show
from relax2xla.runtime.convert import to_host
from relax2xla.runtime.device import Device
from relax2xla.vm.call.donation import arrays_in
from relax2xla.vm.call.signatures import positional, signature
from relax2xla.vm.call.state_slots import Slot
from relax2xla.vm.pjrt import xla
from relax2xla.vm.pjrt.jax_arguments import plain


class StatefulFunction:
    """A function that keeps its state on the device: ``step = vm.bind_state("main", {...})``.

    Calls take the other arguments, by position or name, and are one after another, whatever thread
    they come from. ``state`` reads copies by name, and takes new values; ``reset`` goes back to the
    first values.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        params: Sequence[str],
        slots: Sequence[Slot],
        values: Sequence[Any],
        device: Device | None,
        infos: Sequence[StructInfo] = (),
    ) -> None:
        self.name: str = getattr(call, "name", "")
        self._call = call
        self._slots = tuple(slots)
        self._device = device
        self._infos = tuple(infos) or (None,) * len(slots)
        places = {s.param: i for i, s in enumerate(slots)}
        self._free = [p for i, p in enumerate(params) if i not in places]
        # For each parameter the place of its value: in the state, or after it in the arguments.
        rest = iter(range(len(slots), len(params)))
        self._order = [places[i] if i in places else next(rest) for i in range(len(params))]
        self._lock = threading.RLock()
        self._first = [self._host(s, v) for s, v in zip(slots, values, strict=True)]
        self._fit(self._first)
        self._held: list[Any] | None = None
        self.reset()
        self.__signature__ = signature(self._free)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run one step. Where a call fails before it runs, the state is as it was."""
        rest = self.step(*args, **kwargs)
        return rest if len(rest) > 1 else rest[0] if rest else None

    def step(self, /, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As a call; what is left of the result is a tuple, however much that is."""
        if kwargs:
            args = positional(self.name, self._free, args, kwargs)
        if len(args) != len(self._free):
            names = ", ".join(self._free)
            raise CallError(
                f"{self.name} takes {len(self._free)} arguments beside its state ({names}); "
                f"got {len(args)}"
            )
        with self._lock:
            held = self._present()
            given = (*held, *args)
            try:
                result = self._call(*[given[i] for i in self._order])
                self._held, rest = self._split(result)
            except BaseException:
                if any(a.is_deleted() for v in held for a in arrays_in(v)):
                    self._held = None
                raise
        return rest

    def _present(self) -> list[Any]:
        if self._held is None:
            raise CallError(
                f"the state of {self.name} is lost: a call that failed had taken its memory; call "
                "reset()"
            )
        return self._held

    def _split(self, result: Any) -> tuple[list[Any], tuple[Any, ...]]:
        """The next state, and what is left of the result."""
        if self._slots[0].result is None:
            return [result], ()
        if not isinstance(result, tuple) or len(result) < len(self._slots):
            raise CallError(f"{self.name} does not return its {len(self._slots)} states")
        taken = [s.result % len(result) for s in self._slots if s.result is not None]
        return [result[i] for i in taken], tuple(r for i, r in enumerate(result) if i not in taken)

    # -- the state

    @property
    def state(self) -> MutableMapping[str, Any]:
        """The state by name: what is read are copies (jax arrays), and assigning replaces it."""
        return _State(self)

    @state.setter
    def state(self, values: Mapping[str, Any]) -> None:
        self.reset(values)

    def reset(self, values: Mapping[str, Any] | None = None) -> None:
        """Go back to the first values, or to others for some of them (by name)."""
        given = dict(values or {})
        unknown = [n for n in given if n not in self.names]
        if unknown:
            raise CallError(
                f"{self.name} keeps no {unknown[0]!r}; its state is {', '.join(self.names)}"
            )
        pairs = zip(self._slots, self._first, strict=True)
        new = [self._host(s, given[s.name]) if s.name in given else v for s, v in pairs]
        self._fit(new)
        with self._lock:
            self._held = [self._put(v) for v in new]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is kept, in order."""
        return tuple(s.name for s in self._slots)

    def read(self, name: str) -> Any:
        """A copy of one piece of the state."""
        with self._lock:
            value = self._present()[self.names.index(name)]
            return self._put(_copied(value))

    def write(self, name: str, value: Any) -> None:
        """Another value for one piece of the state."""
        index = self.names.index(name)
        host = self._host(self._slots[index], value)
        self._fit([host if i == index else None for i in range(len(self._slots))])
        with self._lock:
            held = list(self._present())
            held[index] = self._put(host)
            self._held = held

    def _host(self, slot: Slot, value: Any) -> Any:
        """A first value on the host, and our own."""
        info = self._infos[self._slots.index(slot)]
        return _copied(value, info, f"the state `{slot.name}` of {self.name}")

    def _fit(self, values: Sequence[Any]) -> None:
        """CallError where values do not fit the parameters."""
        env: SymMap = {}
        for slot, info, value in zip(self._slots, self._infos, values, strict=True):
            if info is None or value is None:
                continue
            try:
                unify(info, _info_of(value), env)
            except Mismatch as e:
                raise CallError(
                    f"the state `{slot.name}` of {self.name} has {e}; expected {show(info)}, given "
                    f"{show(_info_of(value))}"
                ) from None

    def _put(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._put, value))
        return xla.device_put(value, self._device)


class _State(MutableMapping[str, Any]):
    """The state of a function by name."""

    def __init__(self, of: StatefulFunction) -> None:
        self._of = of

    def __getitem__(self, name: str) -> Any:
        if name not in self._of.names:
            raise KeyError(name)
        return self._of.read(name)

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._of.names:
            raise KeyError(name)
        self._of.write(name, value)

    def __delitem__(self, name: str) -> None:
        raise TypeError("state cannot be removed; call reset(), or assign other values")

    def __iter__(self) -> Iterator[str]:
        return iter(self._of.names)

    def __len__(self) -> int:
        return len(self._of.names)

    def __repr__(self) -> str:
        return f"<state of {self._of.name}: {', '.join(self._of.names)}>"


def _copied(value: Any, info: StructInfo | None = None, where: str = "") -> Any:
    """A value as numpy arrays of our own; CallError where it is no tensor of the right dtype."""
    if isinstance(value, tuple | list) and not isinstance(info, TensorStructInfo):
        fields = info.fields if isinstance(info, TupleStructInfo) else (None,) * len(value)
        if len(fields) != len(value):
            raise CallError(f"{where} is a tuple of {len(fields)}; got {len(value)} values")
        return tuple(
            _copied(v, f, f"{where}[{i}]")
            for i, (v, f) in enumerate(zip(value, fields, strict=True))
        )
    dtype = info.dtype if isinstance(info, TensorStructInfo) else ""
    try:
        made = np.array(to_host(plain(value), dtype))
    except (CallError, TypeError, ValueError) as e:
        raise CallError(f"{where}: {e}") from None
    if dtype and made.dtype != numpy_dtype(dtype):
        raise CallError(f"{where} has the dtype {made.dtype}; expected {dtype}")
    return made


def _info_of(value: Any) -> StructInfo:
    if isinstance(value, tuple):
        return TupleStructInfo([_info_of(v) for v in value])
    return xla.value_info(value)

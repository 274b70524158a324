"""State that stays on the device from call to call: KV caches, running statistics, optimisers.

A function that takes a state and returns the next one is bound to it by
``VirtualMachine.bind_state``. The state's memory is donated, so XLA updates it in place wherever
the next value has the shape of the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import CallError
from relax2xla.ir import StructInfo, TensorStructInfo, TupleStructInfo, Var
from relax2xla.ir.lattice import Mismatch, SymMap, unify
from relax2xla.ir.struct_info import show
from relax2xla.runtime.convert import to_host
from relax2xla.transform.lower.legalize import flatten_info
from relax2xla.vm.call.arguments import positional, signature
from relax2xla.vm.call.canonical import plain
from relax2xla.vm.call.donation import DonatingFunction, Reuse, has_tensors_only
from relax2xla.vm.call.specialise import Program
from relax2xla.vm.code.interpreter import VMFunction
from relax2xla.vm.pjrt import xla

if TYPE_CHECKING:
    from relax2xla.vm.call.bound import BoundFunction
    from relax2xla.vm.call.machine import VirtualMachine


@dataclass(frozen=True, slots=True)
class Slot:
    """One piece of state: its name, and the places of its parameter and of its next value.

    ``result``: among the fields of the function's result, from the end where negative; None where
    the result is the state.
    """

    name: str
    param: int
    result: int | None


def bind(
    machine: VirtualMachine,
    name: str,
    state: Mapping[str, Any] | None,
    results: Mapping[str, int] | None,
) -> StatefulFunction:
    """See ``VirtualMachine.bind_state``."""
    function = machine[name]
    slots, values = _slots(machine, function, state, results)
    if isinstance(function, VMFunction):
        return StatefulFunction(function, function.param_names, slots, values, machine)
    _check(function.name, slots, function.params, function.entry.func.ret_struct_info)
    made = machine.stateful(name, tuple(slots))
    hints = [p.name_hint for p in function.params]
    infos = [function.params[s.param].struct_info for s in slots]
    return StatefulFunction(made, hints, slots, values, machine, infos)


def declared(machine: VirtualMachine, name: str) -> BoundFunction | None:
    """The function that ``bind_state(name)`` runs, where the program says what its state is."""
    function = machine[name]
    if name not in machine.executable.states or isinstance(function, VMFunction):
        return None
    slots, _ = _slots(machine, function, None, None)
    _check(name, slots, function.params, function.entry.func.ret_struct_info)
    return machine.stateful(name, tuple(slots))


def _slots(
    machine: VirtualMachine,
    function: Any,
    state: Mapping[str, Any] | None,
    results: Mapping[str, int] | None,
) -> tuple[list[Slot], list[Any]]:
    """What is kept, in order of the parameters, and its first values."""
    name = function.name
    hints = (
        list(function.param_names)
        if isinstance(function, VMFunction)
        else [p.name_hint for p in function.params]
    )
    said = machine.executable.states.get(name)
    if state is None and said is None:
        raise CallError(
            f"nothing says what the state of {name} is; give its parameters and their first "
            f'values, as in vm.bind_state("{name}", {{"{hints[-1] if hints else "cache"}": zeros}})'
        )
    known = {h: i for i, h in enumerate(hints) if hints.count(h) == 1}
    places: dict[str, tuple[int, int | None]] = dict(said.places) if said is not None else {}
    first = dict(zip(places, said.values, strict=True)) if said is not None else {}
    for key, value in (state or {}).items():
        if key not in first and key not in known:
            names = ", ".join(dict.fromkeys((*first, *known))) or "none"
            raise CallError(f"{name} has no parameter {key!r} to keep as state; it has {names}")
        first[key] = value
    for key in (k for k in first if k not in places):
        places[key] = (known[key], None)
    order = sorted(first, key=lambda k: places[k][0])
    for key in results or {}:
        if key not in first:
            raise CallError(f"results names {key!r}, which is no state of {name}")
    asked = results or {}
    slots = [Slot(k, places[k][0], asked.get(k, places[k][1])) for k in order]
    left = [s for s in slots if s.result is None]
    if left and len(left) < len(slots):
        raise CallError(
            f"{name}: say in results= where the next value of {left[0].name} is, as for the others"
        )
    if left:
        slots = [Slot(s.name, s.param, i - len(slots)) for i, s in enumerate(slots)]
    if len({s.param for s in slots}) < len(slots):
        raise CallError(f"{name}: two names are of the same parameter: {', '.join(order)}")
    return slots, [first[k] for k in order]


def _check(name: str, slots: list[Slot], params: Sequence[Var], result: StructInfo) -> None:
    """Parameters and results of the same kind; brings ``slots`` to places from the front."""
    fields = result.fields if isinstance(result, TupleStructInfo) else ()
    alone = len(slots) == 1
    for i, s in enumerate(slots):
        declared = params[s.param].struct_info
        if not has_tensors_only(declared):
            raise CallError(
                f"{name}: `{s.name}` is {show(declared)}; only tensors, and tuples of them, can be "
                "kept as state"
            )
        assert s.result is not None
        place, following = None, result
        if not alone or not _same_kind(declared, result):
            if not -len(fields) <= s.result < len(fields):
                raise CallError(
                    f"{name} returns {show(result)}; the next value of `{s.name}` cannot be its "
                    f"field {s.result}"
                )
            place = s.result % len(fields)
            following = fields[place]
        if not _same_kind(declared, following):
            raise CallError(
                f"{name}: the next value of `{s.name}`, {show(declared)}, cannot be field {place} "
                f"of the result, which is {show(following)}; name the fields with results="
            )
        slots[i] = Slot(s.name, s.param, place)
    taken = [s.result for s in slots]
    twice = next((s for s in slots if taken.count(s.result) > 1), None)
    if twice is not None:
        raise CallError(f"{name}: field {twice.result} is the next value of two states")


def _same_kind(a: StructInfo, b: StructInfo) -> bool:
    """Whether dtypes, ranks and sizes agree, where both are known."""
    if isinstance(a, TupleStructInfo):
        return (
            isinstance(b, TupleStructInfo)
            and len(a.fields) == len(b.fields)
            and all(map(_same_kind, a.fields, b.fields))
        )
    if not isinstance(a, TensorStructInfo) or not isinstance(b, TensorStructInfo):
        return False
    if (a.ndim >= 0 and b.ndim >= 0 and a.ndim != b.ndim) or (
        a.dtype and b.dtype and a.dtype != b.dtype
    ):
        return False
    dims = zip(a.dims or (), b.dims or (), strict=False)
    return all(x == y for x, y in dims if isinstance(x, int) and isinstance(y, int))


def reuse_of(params: Sequence[Var], slots: Sequence[Slot]) -> Reuse:
    """Each array of the state gives its memory to its next value, where that has its shape."""
    starts: dict[int, tuple[int, int]] = {}
    at = 0
    for i, p in enumerate(params):
        count = sum(isinstance(x, TensorStructInfo) for x in flatten_info(p.struct_info))
        starts[i] = (at, count)
        at += count

    def reuse(program: Program) -> dict[int, int | None]:
        infos = [p.struct_info for p in program.module["main"].params]
        made: dict[int, int | None] = {}
        for s in slots:
            low, count = starts[s.param]
            following = _flat(program.tree if s.result is None else program.tree[s.result])
            for i in range(count):
                info, place = infos[low + i], following[i]
                fits = isinstance(place, int) and program.outputs[place] == info
                made[low + i] = place if fits and place not in made.values() else None
        return made

    return reuse


def _flat(tree: Any) -> list[Any]:
    return [leaf for t in tree for leaf in _flat(t)] if isinstance(tree, list) else [tree]


class KeepingFunction(DonatingFunction):
    """A function whose state is donated, into the places of its next values."""

    def __init__(self, *args: Any, slots: Sequence[Slot], **kwargs: Any) -> None:
        super().__init__(*args, donated=[s.param for s in slots], **kwargs)
        self.reuse = reuse_of(self.params, slots)
        self.variant = variant(self.name, slots)

    def _check(self, args: Sequence[Any], given: Sequence[Any]) -> None:
        pass  # no one else has these arrays


def variant(name: str, slots: Sequence[Slot]) -> str:
    """What a function that keeps this state is called among programs."""
    return f"{name} with " + ", ".join(f"{s.param}:{s.result}" for s in slots)


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
        machine: VirtualMachine,
        infos: Sequence[StructInfo] = (),
    ) -> None:
        self.name: str = getattr(call, "name", "")
        self._call = call
        self._slots = tuple(slots)
        self._machine = machine
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
                if any(a.is_deleted() for v in held for a in _arrays(v)):
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
        return xla.device_put(value, self._machine.device_of(self.name))


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


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [a for v in value for a in _arrays(v)]
    return [value] if xla.is_array(value) else []


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

"""One function of an executable on one device, ready to be called.

It is made of parts: its arguments, its programs by call shape, its weights, the road of its calls
and, where calls take the memory of arguments, the donation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from relax2xla.ir import StructInfo
from relax2xla.runtime.device import Device
from relax2xla.vm.call.arguments import Arguments
from relax2xla.vm.call.donation import Donation
from relax2xla.vm.call.executable import Executable
from relax2xla.vm.call.in_place import Places, in_callers_memory, with_callers_memory
from relax2xla.vm.call.programs import CACHE_SIZE, WARN_AFTER, Programs
from relax2xla.vm.call.roads import Road
from relax2xla.vm.call.signatures import signature
from relax2xla.vm.call.staging import OTHER
from relax2xla.vm.call.weights import Weights, WeightStore
from relax2xla.vm.pjrt import compiler, xla
from relax2xla.vm.pjrt.xla import ARRAY


class BoundFunction:
    """A function with its parts; ``specialised`` are its programs."""

    def __init__(
        self,
        programs: Programs,
        weights: Weights,
        donation: Donation | None = None,
        in_place: Places = (),
    ) -> None:
        self.name, self.device, self.entry = programs.name, programs.device, programs.entry
        self.specialised = programs
        self.params, self.param_names = programs.arguments.params, programs.arguments.names
        self._arguments, self._weights, self._donation = programs.arguments, weights, donation
        self._in_place = in_place
        # What calls usually go to instead, and what they go to now, if anything.
        self._usual: Callable[[Sequence[Any]], Any] | None = None
        if in_place:
            inner = BoundFunction(programs, weights, donation)
            self._road = inner._road
            self._usual = lambda args: in_callers_memory(in_place, args, inner(*args))
        elif donation is None:
            self._road = Road(programs, weights)
        else:
            plain = BoundFunction(programs, weights)
            self._road = plain._road
            self._usual = functools.partial(donation.call, plain)
        self._other = self._usual
        self.__signature__ = signature(self.param_names)

    def __repr__(self) -> str:
        where = self.device or "the default device"
        return f"<function {self.name}{self.__signature__} on {where}>"

    @classmethod
    def of(
        cls,
        executable: Executable,
        name: str,
        device: Device | None,
        store: WeightStore,
        donation: Donation | None = None,
        limit: int = CACHE_SIZE,
        warn_after: int = WARN_AFTER,
    ) -> BoundFunction:
        """The function ``name`` of ``executable``; see :class:`Programs`."""
        entry = executable[name]
        hint = f'; vm.bind_state("{name}") keeps its state for it'
        arguments = Arguments(
            name,
            entry.params,
            device,
            executable.narrowed.get(name, ()),
            hint if name in executable.states else "",
        )
        # What an argument costs beside the rest is known of the CPU only.
        one_cpu = xla.jax_device(device).platform == "cpu" and xla.count(device) == 1
        packs = entry.packs if one_cpu else ()
        programs = Programs(executable, arguments, packs, donation, limit, warn_after)
        in_place = executable.in_place.get(name, ())
        return cls(programs, Weights(executable, entry, device, packs, store), donation, in_place)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run; see :class:`VirtualMachine` for what arguments may be."""
        if kwargs:
            return self(*self._arguments.positional(args, kwargs))
        if self._other is not None:
            return self._other(args)
        road = self._road
        fast = road.fast
        if fast is not None:
            for a in args:
                if type(a) is not ARRAY:
                    break
            else:
                try:
                    return fast(*args)
                except xla.ERROR as e:
                    raise xla.of_xla("run", e) from e
                except ValueError as e:
                    if xla.is_status(e):
                        raise xla.of_xla("run", e) from e
                    # Arrays spread over several devices are brought to this one.
                    moved = [xla.on_device(a, self.device) for a in args]
                    if all(a is b for a, b in zip(moved, args, strict=True)):
                        raise
                    return fast(*moved)
        elif (direct := road.direct) is not None:
            fits, call = direct
            if len(args) == len(fits):
                sharding = road.sharding
                for a, (shape, dtype) in zip(args, fits):  # noqa: B905 - the hot path
                    if type(a) is not ARRAY or a.shape != shape or a.dtype != dtype:
                        break
                    if a.sharding != sharding:
                        break
                else:
                    return call(args)
        try:
            if road.staged is not None:
                result = road.staged(args)
                if result is not OTHER:
                    return result
            return road.slow(args)
        except xla.ERROR as e:
            raise xla.of_xla("run", e) from e
        except ValueError as e:
            if xla.is_status(e):
                raise xla.of_xla("run", e) from e
            raise

    def intercept(self, call: Callable[[Sequence[Any]], Any] | None) -> None:
        """Send the calls of this object to ``call``, or (None) to the program again."""
        self._other = self._usual if call is None else call

    def twin(self) -> BoundFunction:
        """The same function, with the same programs, whose calls nothing intercepts."""
        return BoundFunction(self.specialised, self._weights, self._donation, self._in_place)

    # -- ahead of calls

    def placed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """See :meth:`Arguments.placed`; memory of the caller that results go to stays as it is."""
        args = self._arguments.positional(args, kwargs)
        return with_callers_memory(self._in_place, args, self._arguments.placed(args, {}))

    def warm(self, infos: Sequence[StructInfo] = ()) -> None:
        """Compile for arguments of these struct infos; none: those of a static function."""
        self._weights.operands()
        self.specialised.warm(infos)

    def prepare(self, args: Sequence[Any]) -> compiler.Loaded:
        """Compile for the shapes of ``args``, as :meth:`placed` gave them, without a call."""
        self._weights.operands()
        return self.specialised.find(self._arguments.key(args))[0]

    def named(self, args: Sequence[Any]) -> compiler.Loaded:
        """As :meth:`prepare`, the program with the names of this source."""
        self._weights.operands()
        return self.specialised.named(self._arguments.key(args))

    def zeros(self, args: Sequence[Any]) -> Any:
        """What a call with ``args``, as :meth:`placed` gave them, would give, but of zeros."""
        loaded, program = self.specialised.find(self._arguments.key(args))
        made = [xla.device_put(np.zeros(o.shape, o.dtype), self.device) for o in loaded.outputs]
        return program.pack(made)

    def programs(self) -> list[compiler.Loaded]:
        """The programs that are loaded, one a call shape."""
        return self.specialised.loaded()

    # -- weights

    def weights(self, store: WeightStore | None = None) -> list[Any]:
        """The weights on the device, or those that ``store`` would give.

        The first call places them and computes what is lifted.
        """
        return self._weights.placed(store)

    def use_store(self, store: WeightStore) -> None:
        """Take the weights from ``store`` from now on; calls that run already end as they began."""
        self._weights.use(store)
        self._road.forget()


def _after_fork() -> None:
    """In the child of a fork: programs that are loaded would wait for XLA's threads."""
    BoundFunction.__call__ = xla.refuse_after_fork


xla.AFTER_FORK.append(_after_fork)

"""The virtual machine: a thin dispatcher over XLA programs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from relax2xla import tir
from relax2xla.errors import CallError
from relax2xla.ir import StructInfo, TensorStructInfo
from relax2xla.runtime.device import Device, Mesh
from relax2xla.runtime.device import device as device_named
from relax2xla.script import html
from relax2xla.vm.call.bound import BoundFunction
from relax2xla.vm.call.bytecode_function import VMFunction
from relax2xla.vm.call.call_shapes import call_shapes, dimension, sizes_of
from relax2xla.vm.call.donation import Donation
from relax2xla.vm.call.executable import Executable
from relax2xla.vm.call.object_function import ObjectFunction, takes_objects
from relax2xla.vm.call.padding import Bucketed, seen
from relax2xla.vm.call.programs import CACHE_SIZE, WARN_AFTER
from relax2xla.vm.call.state import StatefulFunction
from relax2xla.vm.call.state_slots import Slot, checked_slots, keeping, slots_of
from relax2xla.vm.call.tvm_methods import METHODS, SavedFunction, TvmMethods, checked_memory
from relax2xla.vm.call.weights import WeightStore, checked_params, weight_infos
from relax2xla.vm.code.interpreter import Interpreter
from relax2xla.vm.observe.instrument import Hook
from relax2xla.vm.pjrt import compiler, xla
from relax2xla.vm.pjrt.platforms import check_platforms


class VirtualMachine(TvmMethods):
    """Runs the functions of an executable: ``vm["main"](x)``.

    rt_mod: what ``build`` made. device: a Device, its name, a list of Devices (the first is used),
    or None (what the target named, else JAX's first). memory_cfg: "naive" or "pooled", for all
    devices or by device; checked and kept, XLA has allocators of its own. profile: accepted,
    ``profile()`` is always there. max_programs: call shapes of a function whose programs are kept,
    the least recently used one goes first. warn_after: call shapes after which a warning says that
    a function compiles again and again (0: never). max_steps: calls of bytecode functions and
    rounds of their loops that one call may make before it is a RunError, for programs of strangers;
    None: any number.

    Arguments are numpy, torch or jax arrays, and numbers where a parameter is 0-dimensional;
    results are jax arrays, in tuples as the function says. Besides the functions of the program,
    ``vm[name]`` gives those of ``save_function``, and the machine's own of :data:`METHODS`.
    """

    def __init__(
        self,
        rt_mod: Executable,
        device: Device | str | Sequence[Device | str] | None = None,
        memory_cfg: str | Mapping[Device, str] | None = None,
        profile: bool = False,
        *,
        max_programs: int = CACHE_SIZE,
        warn_after: int = WARN_AFTER,
        max_steps: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(rt_mod, Executable):
            raise TypeError(
                f"VirtualMachine takes what relax2xla.build(mod) gives; got {type(rt_mod).__name__}"
            )
        if max_programs < 1:
            raise ValueError(f"max_programs must be at least 1; got {max_programs}")
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps must be at least 1; got {max_steps}")
        self.max_steps = max_steps
        self.executable = rt_mod
        self.devices = _devices(device)
        self.memory_cfg = checked_memory(memory_cfg)
        self.max_programs, self.warn_after = max_programs, warn_after
        self.device = self.devices[0] if self.devices else rt_mod.device
        for used in (self.device, *self.devices):
            xla.jax_device(used)
        check_platforms(rt_mod.platforms, self.device)
        self._functions: dict[str, Any] = {}
        # The same functions for the machine's own calls, which nothing redirects.
        self._twins: dict[str, BoundFunction] = {}
        self._buckets: dict[str, Bucketed] = {}
        self._store = rt_mod.store
        self._hook: Hook | None = None
        self._plain = self._hooked(None)
        self._interpreter = self._plain

    # -- functions

    def __getitem__(self, name: str) -> Any:
        """The function ``name``, ready to be called: of the program, saved, or the machine's."""
        if name in self._functions:
            return self._functions[name]
        if name not in self.names():
            if name in self._saved:
                return self._saved[name]
            if name in METHODS:
                return getattr(self, name)
        return self.function(name)

    @property
    def module(self) -> VirtualMachine:
        """What TVM calls the machine's module: functions by name, saved ones too."""
        return self

    def names(self) -> tuple[str, ...]:
        """The functions of the program."""
        return tuple(self.executable)

    def function(self, name: str) -> BoundFunction | VMFunction:
        """The function ``name`` of the program, or one of its regions."""
        if name not in self._functions:
            index = self.executable.code.find(name)
            if index is None or self.executable.code.functions[index].private:
                made: Any = self._compiled(name)
            else:
                made = self._functions.setdefault(name, self._bytecode(self._plain, index))
            if self._hook is not None:
                self.redirect(name, None)
            return made
        return self._functions[name]

    def runner(self, name: str, hook: Hook | None = None) -> Callable[..., Any]:
        """``name`` by ``hook`` or the machine's instrument, whatever its direct calls do."""
        hook = hook or self._hook
        function = self.function(name)
        if isinstance(function, VMFunction):
            index = self.executable.code.find(name)
            assert index is not None
            interpreter = self._interpreter
            if hook is not interpreter.hook:
                interpreter = self._hooked(hook)
            return self._bytecode(interpreter, index)
        call = self._buckets.get(name) or self._twin(name)
        return call if hook is None else functools.partial(hook, call, name)

    def redirect(self, name: str, call: Callable[..., Any] | None) -> None:
        """Let direct calls of ``name`` go to ``call``; None: as the instrument says."""
        function = self.function(name)
        if call is None and name in self._inputs:
            return
        if call is None and (self._hook is not None or name in self._buckets):
            call = self.runner(name)
        function.intercept(None if call is None else lambda args: call(*args))

    def use_hook(self, hook: Hook | None) -> None:
        """Make all calls by ``hook`` from now on, or (None) as usual."""
        self._hook = hook
        self._interpreter = self._plain if hook is None else self._hooked(hook)
        for name in self.names():
            if name in self._functions:
                self.redirect(name, None)
        self.relink_saved()

    def _bytecode(self, interpreter: Interpreter, index: int) -> VMFunction:
        """A bytecode function. Where a hook is to see every call, its parts run one by one."""
        built, name = self.executable, self.executable.code.functions[index].name
        one = interpreter.hook is None and not isinstance(self.device, Mesh)
        if not one or not takes_objects(built, name):
            return VMFunction(interpreter, index, built.in_place)

        def bind(alone: Executable, name: str, donation: Donation) -> BoundFunction:
            given = (self.device, self._store, donation, self.max_programs, self.warn_after)
            return BoundFunction.of(alone, name, *given)

        return ObjectFunction(interpreter, index, built, bind, self.max_programs)

    def _hooked(self, hook: Hook | None) -> Interpreter:
        built = self.executable
        return Interpreter(
            *(built.code, self.device, self._region, self, hook, self.max_steps, built.external)
        )

    def _region(self, name: str) -> BoundFunction:
        """A function that is one XLA program, for bytecode."""
        return self._twin(name) if name in self.executable.entries else self._compiled(name)

    def _twin(self, name: str) -> BoundFunction:
        if name not in self._twins:
            self._twins.setdefault(name, self._compiled(name).twin())
        return self._twins[name]

    def _compiled(self, name: str) -> BoundFunction:
        """A function that is one XLA program."""
        if name not in self._functions:
            donated = self.executable.donated.get(name)
            params = self.executable[name].params
            self._bind(name, name, Donation.of(name, params, donated) if donated else None)
        return self._functions[name]

    def _bind(self, key: str, name: str, donation: Donation | None) -> BoundFunction:
        """The function ``name``, kept under ``key``."""
        made = BoundFunction.of(
            self.executable,
            name,
            self.device_of(name),
            self._store,
            donation,
            self.max_programs,
            self.warn_after,
        )
        return self._functions.setdefault(key, made)

    def device_of(self, name: str) -> Device | None:
        """Where a function or region runs: where the program says, else on the machine's device."""
        return self.executable.devices.get(name, self.device)

    def bind_state(
        self,
        name: str,
        state: Mapping[str, Any] | None = None,
        results: Mapping[str, int] | None = None,
    ) -> StatefulFunction:
        """The function ``name`` with some parameters kept on the device from call to call.

        state: values that these parameters have at first, by name (arrays of any kind, copied;
            tuples for parameters that are). None: what the function's attributes ``state`` and
            ``state_values`` say, which importers set for buffers that a program changes.
        results: for each the place among the fields of the result that is its next value. By
            default they are the last fields, in the order of the parameters.

        The result takes the other arguments, and gives the other fields: alone where there is one,
        as a tuple where there are several, None where there is none. See
        :class:`~relax2xla.vm.call.state.StatefulFunction`. Raises CallError for what does not fit.
        """
        function = self[name]
        names, said = list(function.param_names), self.executable.states.get(name)
        slots, values = slots_of(name, names, said, state, results)
        if isinstance(function, VMFunction):
            return StatefulFunction(function, names, slots, values, self.device)
        made, kept = self._keeping(function, slots)
        infos = [function.params[s.param].struct_info for s in kept]
        return StatefulFunction(made, names, kept, values, self.device_of(name), infos)

    def declared_state(self, name: str) -> BoundFunction | None:
        """The function that ``bind_state(name)`` runs, where the program says what its state is."""
        function, said = self[name], self.executable.states.get(name)
        if said is None or not isinstance(function, BoundFunction):
            return None
        slots, _ = slots_of(name, function.param_names, said, None, None)
        return self._keeping(function, slots)[0]

    def _keeping(
        self, function: BoundFunction, slots: Sequence[Slot]
    ) -> tuple[BoundFunction, Sequence[Slot]]:
        """A function that gives up the memory of its state at each call, and what it keeps."""
        name, result = function.name, function.entry.func.ret_struct_info
        kept = checked_slots(name, slots, function.params, result)
        donation = keeping(name, function.params, kept)
        known = self._functions.get(donation.variant)
        return known or self._bind(donation.variant, name, donation), kept

    def warm(
        self,
        name: str,
        *shapes: StructInfo | Sequence[int],
        background: bool = False,
        **sizes: int | Sequence[int],
    ) -> Future[None]:
        """Compile ``name`` ahead of its calls.

        shapes: one for each parameter, a struct info or (for a tensor) its dimensions.
        sizes: instead, values of symbolic dimensions by name, one or several each; every
            combination is compiled. Neither: what is static.
        background: return at once and compile in a thread; ``result()`` of what is returned waits
            for it and raises its errors. Calls of shapes that are compiled already go on.

        Of bytecode the regions of static shapes are compiled; the others are when they are called.
        """
        function = self.function(name)
        done: Future[None] = Future()
        if isinstance(function, BoundFunction):
            twin = self._twin(name) if name in self.executable.entries else function
            wanted = call_shapes(name, twin.params, shapes, sizes)
            jobs = [functools.partial(twin.warm, infos) for infos in wanted]
        elif shapes or sizes:
            raise CallError(
                f"warm: {name} is bytecode over several XLA programs, whose shapes depend on what "
                "runs before them; warm it without shapes, or call it once"
            )
        else:
            regions = [self._region(r) for r in function.regions()]
            jobs = [r.warm for r in regions if r.entry.is_static]

        def work() -> None:
            try:
                for job in jobs:
                    job()
            except BaseException as e:
                if not background:
                    raise
                done.set_exception(e)
            else:
                done.set_result(None)

        if background:
            threading.Thread(target=work, name=f"relax2xla warm {name}", daemon=True).start()
        else:
            work()
        return done

    def bucket(self, name: str, **sizes: int | Sequence[int]) -> None:
        """Let several sizes of symbolic dimensions of ``name`` share one program.

        sizes: by the dimension's name; a call takes the next size that is large enough, its
            arguments are padded on the host and its results cut back. Larger sizes have programs of
            their own. None at all: as it was.

        CallError where padding could be seen in a result, with the reason. Results are equal up to
        rounding, which may depend on the size of a program.
        """
        function = self.function(name)
        if isinstance(function, VMFunction):
            raise CallError(
                f"bucket: {name} is bytecode over several XLA programs; what runs on the host "
                "would see the padding"
            )
        made: dict[tir.Var, list[int]] = {}
        for key, given in sizes.items():
            dim = dimension(name, function.params, key)
            made[dim] = sorted(set(sizes_of("bucket", key, given)))
            if not made[dim] or made[dim][0] < 1:
                raise ValueError(f"bucket: the sizes of {key} must be at least 1; got {given}")
            reason = seen(function.entry.func, dim)
            if reason is not None:
                raise CallError(f"bucket: {name} cannot be padded along {key}: {reason}")
        if name in self.executable.donated and made:
            raise CallError(f"bucket: {name} has donated parameters, which padding would copy")
        self._buckets.pop(name, None)
        if made:
            self._buckets[name] = Bucketed(self._twin(name), made)
        self.redirect(name, None)
        self.relink_saved()

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Call a function value that a program returned."""
        if isinstance(closure, SavedFunction):
            raise TypeError(
                f"invoke_closure takes a closure that a program returned; {closure.name!r} is a "
                f'saved function, call it as vm["{closure.name}"]()'
            )
        if not callable(closure):
            raise TypeError(f"invoke_closure takes a closure; got {type(closure).__name__}")
        return closure(*args)

    def set_params(self, params: Mapping[str, Any], strict: bool = True) -> None:
        """Use other weights from now on, by the source's names, without compiling again.

        What is computed from them at load is computed anew. Other machines keep theirs.
        ``params``: arrays of any kind, in shape and dtype as those that they replace. Raises
        CallError for what does not fit and, if ``strict``, for names that no weight has.
        """
        values = checked_params(self.executable, params, strict)
        store = WeightStore({**self._store.values, **values}, self.executable.store)
        every = (*self._functions.values(), *self._twins.values())
        bound = [f for f in every if isinstance(f, BoundFunction)]
        for function in bound:
            # Placed now, so that what is missing is said before anything changes.
            function.weights(store)
        self._store = store
        for function in bound:
            function.use_store(store)

    def programs(self) -> dict[str, list[compiler.Loaded]]:
        """The programs that are loaded, by function and region."""
        bound = {n: f for n, f in self._functions.items() if isinstance(f, BoundFunction)}
        return {n: f.programs() for n, f in bound.items()}

    def __repr__(self) -> str:
        names = ", ".join(self.executable) or "no functions"
        return f"<{type(self).__name__} of {names} on {self.device or 'the default device'}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the functions, and the weights that have names."""
        found = self.params()
        rows = [(name, info) for name, info in found.items()]
        weights = html.table(f"{len(rows)} weights", ("name", "struct info"), rows)
        stats = html.program("what runs where", self.executable.stats(), "text")
        return html.joined(repr(self)[1:-1], [stats, weights])

    def params(self) -> dict[str, TensorStructInfo]:
        """The weights that ``set_params`` takes, by name."""
        return weight_infos(self.executable)


def _devices(device: Device | str | Sequence[Device | str] | None) -> tuple[Device, ...]:
    """The devices that a user names, in order."""
    given = [device] if isinstance(device, Device | str) else device
    if given is None:
        return ()
    if not isinstance(given, Sequence) or not all(isinstance(d, Device | str) for d in given):
        raise TypeError(
            f"device is a Device (relax2xla.cpu(0)), its name, or a list of these; got {device!r}"
        )
    return tuple(device_named(d) for d in given)

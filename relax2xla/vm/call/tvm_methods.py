"""What programs written for TVM do with a machine besides calling it.

Saved functions, inputs that are set ahead, instruments, timing, profiles: the methods that
``VirtualMachine`` has from :class:`TvmMethods`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from relax2xla.errors import CallError, TVMError
from relax2xla.runtime.device import Device
from relax2xla.runtime.device import device as device_named
from relax2xla.runtime.registry import get_global_func
from relax2xla.vm.call.bound import BoundFunction
from relax2xla.vm.call.padding import Bucketed
from relax2xla.vm.observe.instrument import Hook, hook_of
from relax2xla.vm.observe.profile import Report, profile
from relax2xla.vm.observe.timing import BenchmarkResult, Timing, leaves, measure
from relax2xla.vm.pjrt import compiler, xla

ALLOCATORS: Final = ("naive", "pooled")

# Methods that are functions of the module as well, where no function of the program has the name.
METHODS: Final = (
    "invoke_stateful",
    "set_input",
    "get_outputs",
    "save_function",
    "invoke_closure",
    "set_instrument",
)


class SavedFunction:
    """A function with its arguments: what ``save_function`` saved, called with none."""

    def __init__(
        self,
        name: str,
        func_name: str,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        include_return: bool,
    ) -> None:
        self.name, self.func_name, self.include_return = name, func_name, include_return
        self.run, self._args = run, args

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run; the result, or None where the function was saved without."""
        if args or kwargs:
            raise TypeError(
                f"{self.name} takes no arguments: save_function has given them to {self.func_name}"
            )
        result = self.run(*self._args)
        return result if self.include_return else None

    def __repr__(self) -> str:
        return f"SavedFunction({self.name!r})"


class TvmMethods(ABC):
    """The part of ``VirtualMachine`` that is about calls to come."""

    device: Device | None

    def __init__(self) -> None:
        self._saved: dict[str, SavedFunction] = {}
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self._outputs: dict[str, Any] = {}

    # -- what the machine has to give

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The functions of the program."""

    @abstractmethod
    def function(self, name: str) -> Any:
        """The function of the program that ``machine[name]`` is."""

    @abstractmethod
    def runner(self, name: str, hook: Hook | None = None) -> Callable[..., Any]:
        """The same by ``hook`` or the instrument, whatever direct calls do."""

    @abstractmethod
    def redirect(self, name: str, call: Callable[..., Any] | None) -> None:
        """Let direct calls of ``name`` go to ``call``; None: as the instrument says."""

    @abstractmethod
    def use_hook(self, hook: Hook | None) -> None:
        """Make all calls by ``hook`` from now on, or (None) as usual."""

    @abstractmethod
    def programs(self) -> dict[str, list[compiler.Loaded]]:
        """The programs that are loaded, by function and region."""

    # -- saved functions

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None:
        """Keep ``func_name`` with its arguments as ``machine[saved_name]``, called with none.

        Arguments are copied to the device now. include_return: whether the saved function gives
        its result. Another saved function of that name is replaced; a function of the program
        cannot be (TVMError).
        """
        if saved_name in self.names():
            raise TVMError(
                f"save_function: {saved_name!r} is a function of the program, which a saved "
                "function cannot replace; save it under another name"
            )
        if saved_name in METHODS:
            raise TVMError(f"save_function: {saved_name!r} is a function of the machine itself")
        if func_name in self._saved and func_name not in self.names():
            raise TVMError(
                f"save_function: {func_name!r} is a saved function already, with its arguments; "
                "save a function of the program"
            )
        placed = tuple(self.function(func_name).placed(args, kwargs))
        run = self.runner(func_name)
        self._saved[saved_name] = SavedFunction(saved_name, func_name, run, placed, include_return)

    def relink_saved(self) -> None:
        """Let saved functions run as functions are run now: the instrument or buckets changed."""
        for saved in list(self._saved.values()):
            saved.run = self.runner(saved.func_name)

    # -- inputs, call, outputs

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep arguments for ``invoke_stateful``; from now on a direct call is an error.

        Arguments by position, by the parameters' names, or both; they are copied to the device.
        CallError where they do not fit, and then those that were set before stay.
        """
        function = self.function(func_name)
        placed = tuple(function.placed(args, kwargs))

        def refuse(*args: Any) -> Any:
            raise CallError(
                f"{func_name}: its inputs are set with set_input, so it must be called with "
                f"invoke_stateful({func_name!r}), and its result fetched with get_outputs"
            )

        self._inputs[func_name] = placed
        self.redirect(func_name, refuse)

    def invoke_stateful(self, func_name: str) -> None:
        """Call ``func_name`` with the arguments of ``set_input``; ``get_outputs`` has the result.

        CallError where none were set, even for a function without parameters.
        """
        self.function(func_name)
        if func_name not in self._inputs:
            raise CallError(
                f"invoke_stateful: no inputs are set for {func_name}; call "
                f"set_input({func_name!r}, ...) first, also where it takes none"
            )
        self._outputs[func_name] = self.runner(func_name)(*self._inputs[func_name])

    def get_outputs(self, func_name: str) -> Any:
        """The result of the last ``invoke_stateful`` of ``func_name``, tuples as tuples.

        CallError where there was none.
        """
        self.function(func_name)
        if func_name not in self._outputs:
            raise CallError(
                f"get_outputs: {func_name} has not run; call invoke_stateful({func_name!r}) first"
            )
        return self._outputs[func_name]

    # -- instruments

    def set_instrument(self, instrument: Callable[..., Any] | str | None) -> None:
        """Let ``instrument`` see each call that this machine makes, before and after it runs.

        instrument: ``f(func, func_symbol, before_run, ret_value, *args)``, or the name of a packed
            function or of a function of the program; None ends it. ``ret_value`` is None before the
            call. What it returns before a call may be a ``VMInstrumentReturnKind``: SKIP_RUN leaves
            the call out, which then gives None.

        Calls are those of bytecode (regions, packed functions, builtins) and, of functions that are
        one XLA program, the call of that program. An exception of the instrument ends the call.
        """
        if isinstance(instrument, str):
            named = instrument in self.names()
            instrument = self.runner(instrument) if named else get_global_func(instrument)
        if instrument is not None and not callable(instrument):
            raise TypeError(
                f"set_instrument takes a function, its name or None; got "
                f"{type(instrument).__name__}"
            )
        self.use_hook(None if instrument is None else hook_of(instrument))

    # -- time

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | str | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that takes the arguments of ``func_name`` and times it, in seconds.

        func_name: a function of the program, a saved one, or "invoke_stateful" (its argument is
            then the name of a function whose inputs are set).
        dev: the device to wait for; this machine's.
        number, repeat: one call that does not count, then ``repeat`` figures, each the mean of
            ``number`` calls. min_repeat_ms: ``number`` grows until a repeat lasts that long.
        cooldown_interval_ms: rest after each ``repeats_to_cooldown`` repeats.
        f_preproc: the name of a packed function that runs ahead of each repeat, not timed, with
            the same arguments.

        Every call is waited for. Arguments are on the device before the first call.
        """
        timing = Timing(number, repeat, min_repeat_ms, cooldown_interval_ms, repeats_to_cooldown)
        if dev is not None:
            asked = device_named(dev)
            if xla.jax_device(asked) != xla.jax_device(self.device):
                raise CallError(
                    f"time_evaluator: this machine runs on {self.device or xla.jax_device(None)}, "
                    f"not on {asked}"
                )
        preproc = get_global_func(f_preproc) if f_preproc else None
        if func_name not in (*self.names(), *self._saved, *METHODS):
            self.function(func_name)  # says which functions there are

        def evaluate(*args: Any, **kwargs: Any) -> BenchmarkResult:
            call, given = self._timed(func_name, args, kwargs)
            before = None if preproc is None else functools.partial(preproc, *given)
            return measure(lambda: call(*given), wait, timing, before)

        def wait(result: Any) -> None:
            if func_name == "invoke_stateful" and func_name not in self.names():
                result = tuple(self._outputs.values())
            xla.block([v for v in leaves(result) if xla.is_array(v)])

        return evaluate

    def _timed(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What to time, and its arguments on the device."""
        if name in self.names():
            if name in self._inputs:
                self.function(name)(*args)  # says that invoke_stateful is to be used
            return self.runner(name), tuple(self.function(name).placed(args, kwargs))
        call = self._saved.get(name) or getattr(self, name)
        if kwargs:
            raise CallError(f"time_evaluator: {name} takes no arguments by name")
        return call, args

    def profile(self, func_name: str, *args: Any, **kwargs: Any) -> Report:
        """Run ``func_name`` once and say where the time went; see ``vm.observe.profile.Report``.

        Programs are compiled before they are timed, and every call is waited for, so the sum is
        more than a call takes. Without arguments those of ``set_input`` are taken, if there are.
        """
        placed: Sequence[Any] = self._inputs.get(func_name, ())
        if args or kwargs or not placed:
            placed = self.function(func_name).placed(args, kwargs)
        return profile(func_name, functools.partial(self.runner, func_name), placed, _program)


def _program(function: Any, args: Sequence[Any]) -> compiler.Loaded | None:
    """The program that a call runs, with the source's names; None where it is no single one."""
    return function.named(args) if isinstance(function, BoundFunction | Bucketed) else None


def checked_memory(memory_cfg: Any) -> dict[Device, str] | str | None:
    """``memory_cfg`` of ``VirtualMachine``, checked: one allocator's name, or one by device."""
    if memory_cfg is None:
        return None
    if isinstance(memory_cfg, str):
        names: list[Any] = [memory_cfg]
    elif isinstance(memory_cfg, Mapping):
        for key in memory_cfg:
            if not isinstance(key, Device):
                raise TypeError(f"memory_cfg: the keys must be Devices; got {key!r}")
        names = list(memory_cfg.values())
    else:
        raise TypeError(
            "memory_cfg is the name of an allocator, or a dictionary from Devices to names; got "
            f"{type(memory_cfg).__name__}"
        )
    for name in names:
        if name not in ALLOCATORS:
            raise ValueError(
                f"memory_cfg: unknown allocator {name!r}; known: {', '.join(ALLOCATORS)}"
            )
    return memory_cfg if isinstance(memory_cfg, str) else dict(memory_cfg)

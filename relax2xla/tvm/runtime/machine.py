"""TVM's ``relax.VirtualMachine``: instruments and profiles see operators, as they do in TVM.

A function that is one XLA program runs its operators one by one while an instrument sees them or a
profile is made, and as one program otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from relax2xla.vm.call.bound import BoundFunction
from relax2xla.vm.call.machine import VirtualMachine as Machine
from relax2xla.vm.observe.instrument import Hook
from relax2xla.vm.observe.profile import Report
from relax2xla.vm.plan.operators import by_operator


class VirtualMachine(Machine):
    """``relax2xla.VirtualMachine`` whose instruments and profiles see each operator."""

    #: TVM's numbers of allocators; ``memory_cfg`` takes their names, and XLA has its own.
    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    @functools.cached_property
    def apart(self) -> Machine:
        """The machine that runs operators one by one, with the weights of this one."""
        made = Machine(by_operator(self.executable), self.device, max_steps=self.max_steps)
        made.set_params(self._store.values, strict=False)
        return made

    @property
    def imported_modules(self) -> list[OperatorLibrary]:
        """What TVM calls the modules of the machine's module: its operators as functions."""
        return [OperatorLibrary(self.apart)]

    @property
    def imports(self) -> list[OperatorLibrary]:
        """:attr:`imported_modules`, as TVM 0.25 calls it."""
        return self.imported_modules

    def set_params(self, params: Mapping[str, Any], strict: bool = True) -> None:
        super().set_params(params, strict)
        if "apart" in self.__dict__:
            self.apart.set_params(params, strict=False)

    def profile(self, func_name: str, *args: Any, **kwargs: Any) -> Report:
        """Time each operator, run one by one; see ``relax2xla.VirtualMachine.profile``.

        Together they take longer than the program does: ``time_evaluator`` says how long that is.
        """
        made = super().profile(func_name, *args, **kwargs)
        return OperatorReport(**{f.name: getattr(made, f.name) for f in fields(made)})

    def use_hook(self, hook: Hook | None) -> None:
        super().use_hook(None if hook is None else _with_results(hook))

    def runner(self, name: str, hook: Hook | None = None) -> Callable[..., Any]:
        hook = hook or self._hook
        if hook is None or name not in self.names():
            return super().runner(name, hook)
        run = self.apart.runner(name, hook)
        if name not in self.executable.entries:
            return run
        weights = self._twin(name).weights
        return lambda *args: run(*args, *weights())


class OperatorReport(Report):
    """A report whose text is a table as TVM's are."""

    def table(self) -> str:
        """The calls, the longest first."""
        rows = [(r.name, f"{r.seconds * 1e6:,.2f}", f"{r.count}") for r in self.calls]
        total = sum(r.seconds for r in self.calls) or 1.0
        shares = [f"{100 * r.seconds / total:.2f}" for r in self.calls]
        width = max([len("Name"), *(len(name) for name, *_ in rows)])
        lines = [f"{'Name':{width}s}  Duration (us)  Percent  Count"]
        lines += [
            f"{name:{width}s}  {time:>13s}  {share:>7s}  {count:>5s}"
            for (name, time, count), share in zip(rows, shares, strict=True)
        ]
        return "\n".join([*lines, f"{'Total':{width}s}  {self.seconds * 1e6:13,.2f}"])


def _with_results(hook: Hook) -> Hook:
    """``hook``, where an operator that it leaves out gives zeros, not None.

    In TVM such an operator gives memory as it was.
    """

    def call(func: Any, symbol: str, /, *args: Any) -> Any:
        made = hook(func, symbol, *args)
        return func.zeros(args) if made is None and isinstance(func, BoundFunction) else made

    return call


class OperatorLibrary:
    """The operators of a program as functions that write into their last arguments."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., None]:
        """The operator that instruments see as ``name``; AttributeError where there is none.

        It takes operands, then an array to write to for each result.
        """
        regions = self._machine.executable.regions
        if name not in regions:
            known = ", ".join(regions) or "none"
            raise AttributeError(f"there is no operator {name!r}; the program has {known}")
        function = self._machine.function(name)
        count = len(function.params)

        def call(*args: Any) -> None:
            results = jax.tree.leaves(function(*args[:count]))
            if len(results) != len(args) - count:
                raise TypeError(
                    f"{name} takes {count} operands and {len(results)} arrays for its results; "
                    f"got {len(args)} arguments"
                )
            for into, value in zip(args[count:], results, strict=True):
                into[...] = np.asarray(value)

        return call

    def __getitem__(self, name: str) -> Callable[..., None]:
        """:meth:`get_function`"""
        return self.get_function(name)

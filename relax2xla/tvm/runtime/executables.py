"""What ``tvm.compile`` and ``tvm.build`` give: executables; kernels that write into arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.errors import CallError
from relax2xla.frontend.nn.llm.kernels import Kernel
from relax2xla.ir import IRModule
from relax2xla.tvm.runtime.arrays import HostArray
from relax2xla.tvm.runtime.devices import enabled as enabled
from relax2xla.vm.call.machine import VirtualMachine
from relax2xla.vm.plan.build import build as build_relax
from relax2xla.vm.save.executable import VMExecutable
from relax2xla.vm.save.reader import load_module as load_executable


class KernelModule:
    """Loop-level functions, built alone: ``lib["add"](a, b, out)`` writes into ``out``.

    ``lib(a, b, out)`` calls the only function, or the one named ``main``; it gives the number
    that the function returns, or None.
    """

    def __init__(self, executable: VMExecutable) -> None:
        self.executable = executable
        self._machine = VirtualMachine(executable)
        # The places of parameters, in the order of the results that took them.
        self._written = {
            name: [at for at, _ in sorted(executable.in_place.get(name, ()), key=_field)]
            for name in executable.prim_funcs
        }

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function of that name; KeyError where there is none."""
        if name not in self._written:
            known = ", ".join(self._written)
            raise KeyError(f"there is no function {name!r}; the module has {known}")
        function, written = self._machine[name], self._written[name]

        def call(*args: Any) -> Any:
            for i in written:
                if i < len(args) and not _writable(args[i]):
                    raise CallError(
                        f"{name} writes into argument {i}, which cannot be written to "
                        f"({type(args[i]).__name__}); pass what tvm.nd.empty or tvm.nd.array gives"
                    )
            made = function(*args)
            results = list(made) if isinstance(made, tuple) else [made]
            for i in written:
                made = results.pop(0)
                if made is not args[i]:
                    args[i][...] = np.asarray(made)
            return np.asarray(results[0]).item() if results else None

        call.__name__ = name
        return call

    def get_function(self, name: str) -> Callable[..., Any]:
        """``self[name]``"""
        return self[name]

    @property
    def entry_name(self) -> str:
        """The name of the only function, or ``main``."""
        names = list(self._written)
        return "main" if "main" in names else names[0]

    @property
    def entry_func(self) -> Callable[..., Any]:
        """The function named :attr:`entry_name`."""
        return self[self.entry_name]

    @property
    def main(self) -> Callable[..., Any]:
        """:attr:`entry_func`, as TVM 0.25 calls it."""
        return self.entry_func

    def __call__(self, *args: Any) -> Any:
        """Run :attr:`entry_func`."""
        return self.entry_func(*args)

    def time_evaluator(self, func_name: str, dev: Any = None, **options: Any) -> Any:
        """A function that times ``func_name`` on arguments, as that of the machine."""
        return self._machine.time_evaluator(func_name, dev, **options)

    def export_library(self, file_name: str | Path, **options: Any) -> None:
        """Save as one file for :func:`load_module`; see ``VMExecutable.export_library``."""
        self.executable.export_library(file_name, **options)


def _field(place: Sequence[int]) -> int:
    return place[1]


class StandIn:
    """A kernel of caches, built: the constructor of a cache takes it, and computes itself.

    See ``relax2xla.frontend.nn.llm.kernels``: what ``entry_func`` gives is the stand-in as it was.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.entry_func = self.main = kernel


def _writable(value: Any) -> bool:
    return isinstance(value, HostArray | np.ndarray) and bool(value.flags.writeable)


class _AnyModule(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, VMExecutable | KernelModule | VirtualMachine)


class Module(metaclass=_AnyModule):
    """What ``isinstance(x, tvm.runtime.Module)`` asks for."""


Executable = VMExecutable


def build(mod: Any, target: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``tvm.compile`` and ``tvm.build``: kernels alone become a :class:`KernelModule`."""
    if isinstance(mod, Kernel):
        return StandIn(mod)
    if isinstance(mod, tir.PrimFunc):
        name = str(mod.attrs.get("global_symbol", "main"))
        mod = IRModule({name: mod.with_attr("global_symbol", name)})
    executable = build_relax(mod, target, *args, **kwargs)
    return KernelModule(executable) if executable.prim_funcs else executable


def load_module(
    path: str | Path,
    fmt: str = "",
    compiled: bool = True,
    *,
    native: bool = True,
    allow_custom_calls: Sequence[str] = (),
) -> Any:
    """What ``export_library`` saved: an executable, or a :class:`KernelModule`.

    ``fmt`` is without effect; the rest as of ``relax2xla.load_module``. Native code of external
    modules is loaded, as it is in TVM: load files that you trust.
    """
    executable = load_executable(
        path, compiled, native=native, allow_custom_calls=allow_custom_calls
    )
    return KernelModule(executable) if executable.prim_funcs else executable


def compile(mod: Any, target: Any = None, **kwargs: Any) -> Any:
    """``tvm.compile``; see :func:`build`."""
    return build(mod, target, **kwargs)

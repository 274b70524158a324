"""Calls of a bytecode function: arguments by name, and Python's recursion limit."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from relax2xla.errors import CallError
from relax2xla.ir import Var
from relax2xla.vm.call.in_place import Places, in_callers_memory, with_callers_memory
from relax2xla.vm.call.signatures import positional, signature
from relax2xla.vm.code.call_graph import goes_deep, regions
from relax2xla.vm.code.interpreter import DEPTH, Interpreter

_deep_lock = threading.Lock()
_deep_runs = 0
_usual_limit = 0


@contextlib.contextmanager
def _deep() -> Generator[None]:
    """Raise Python's recursion limit, which is one for all threads, while anything needs it."""
    global _deep_runs, _usual_limit
    with _deep_lock:
        if _deep_runs == 0:
            _usual_limit = sys.getrecursionlimit()
            sys.setrecursionlimit(max(DEPTH, _usual_limit))
        _deep_runs += 1
    try:
        yield
    finally:
        with _deep_lock:
            _deep_runs -= 1
            # A limit that the program set itself stays.
            if _deep_runs == 0 and sys.getrecursionlimit() == max(DEPTH, _usual_limit):
                sys.setrecursionlimit(_usual_limit)


class VMFunction:
    """A bytecode function of an executable on one device."""

    def __init__(
        self,
        interpreter: Interpreter,
        index: int,
        in_place: Mapping[str, Places] | None = None,
    ) -> None:
        row = interpreter.code.functions[index]
        self.name = row.name
        self.param_names = row.params
        self._interpreter, self._index = interpreter, index
        self._call = interpreter.function(index)
        self._intercept: Callable[[Sequence[Any]], Any] | None = None
        self._inputs = row.inputs or (("object",),) * len(row.params)
        self._in_place = (in_place or {}).get(row.name, ())
        self._deep = goes_deep(interpreter.code, index)
        self._where = [f"{row.name}: the argument for parameter `{p}`" for p in row.params]
        self.__signature__ = signature(row.params)

    @property
    def params(self) -> tuple[Var, ...]:
        """The parameters as the program states them; TVMError for bytecode written by hand."""
        return self._interpreter.machine.executable.params(self.name)

    def regions(self) -> list[str]:
        """Names of the XLA programs that the function may run, in order."""
        return regions(self._interpreter.code, self._index)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run; arguments as for :class:`VirtualMachine`."""
        if kwargs:
            args = positional(self.name, self.param_names, args, kwargs)
        if self._intercept is not None:
            return self._intercept(args)
        return in_callers_memory(self._in_place, args, self._run(self._converted(args)))

    def _run(self, values: Sequence[Any]) -> Any:
        if self._interpreter.steps is not None:
            self._interpreter.steps.start()
        try:
            if self._deep:
                with _deep():
                    return self._call(*values)
            return self._call(*values)
        except Exception as e:
            self._interpreter.explain(e)

    def intercept(self, call: Callable[[Sequence[Any]], Any] | None) -> None:
        """Send the calls of this object to ``call``, or (None) to the bytecode again."""
        self._intercept = call

    def placed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Arguments as values of the machine; CallError where they do not fit.

        Memory of the caller that results go to stays as it is.
        """
        if kwargs:
            args = positional(self.name, self.param_names, args, kwargs)
        return with_callers_memory(self._in_place, args, self._converted(args))

    def _converted(self, args: Sequence[Any]) -> list[Any]:
        if len(args) != len(self._inputs):
            names = ", ".join(self.param_names)
            raise CallError(
                f"{self.name} takes {len(self._inputs)} arguments ({names}); got {len(args)}"
            )
        convert = self._interpreter.argument
        return [convert(a, p, w) for a, p, w in zip(args, self._inputs, self._where, strict=True)]

"""Bytecode functions of one machine: linked, their values, and their failures explained."""

from __future__ import annotations

import linecache
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NoReturn

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import CallError, RunError, TVMError
from relax2xla.runtime.convert import SharedArray, aligned_zeros, is_torch, to_host, written_to
from relax2xla.runtime.device import Device
from relax2xla.runtime.device import device as device_named
from relax2xla.runtime.external import find_external
from relax2xla.runtime.registry import get_global_func
from relax2xla.vm.code.builtins import FUNCTIONS, INLINE
from relax2xla.vm.code.bytecode import Call, Code, FunctionRow, Instruction
from relax2xla.vm.code.call_graph import CLOSURE_CALLS
from relax2xla.vm.code.codegen import Linked, calls_of, vm_stack
from relax2xla.vm.host.layout import LAYOUT_OPERATORS, keep_layout
from relax2xla.vm.host.operators import HOST, bind_host
from relax2xla.vm.observe.instrument import Hook
from relax2xla.vm.pjrt import xla
from relax2xla.vm.pjrt.jax_arguments import plain, widened

# Python's recursion limit while a function runs that may call itself. A call of generated code by
# generated code takes no stack of C, so that this many are safe.
DEPTH = 13_000

# Modules whose code instructions are made of.
_OURS = re.compile(r"(relax2xla|numpy|ml_dtypes|jax|jaxlib)(\.|$)")

# What Python and numpy raise where an instruction has operands that do not fit it.
_MISTAKES = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError)

# Arrays of these numpy kinds stay on the host: text and Python objects.
_HOST_KINDS = "OSUT"


class Interpreter:
    """The bytecode of an executable, linked on first use.

    ``regions`` gives the compiled function of a name; ``machine`` is what builtins of programs get
    as the running machine; ``hook``, where there is one, makes every call. ``external``: modules
    with packed functions, before those of the registry.
    """

    def __init__(
        self,
        code: Code,
        device: Device | None,
        regions: Callable[[str], Callable[..., Any]],
        machine: Any,
        hook: Hook | None = None,
        max_steps: int | None = None,
        external: Sequence[Any] = (),
    ) -> None:
        self._external = external
        self._shares = any(row.kind == "packed" for row in code.functions)
        self.hook, self.machine = hook, machine
        self.steps = None if max_steps is None else _Steps(max_steps)
        self.code, self.device, self.regions = code, device, regions
        # Whether a program asks how the arrays lay that it is called with.
        self._layouts = any(row.name in LAYOUT_OPERATORS for row in code.functions)
        # The globals of all generated functions: the machine, callees F0, ..., constants C0, ...
        self._scope: dict[str, Any] = {"VM": machine, "H": hook, "S": self.steps}
        self.linked: dict[CodeType, Linked] = {}
        self._callables: dict[int, Callable[..., Any]] = {}
        self._constants: dict[int, Any] = {}
        self._lock = threading.RLock()
        self._own: Mapping[str, Callable[..., Any]] = {
            "vm.builtin.as_stated": self._as_stated,
            "vm.builtin.call_dps": self._call_dps,
            "vm.builtin.call_inplace": self._call_inplace,
            "vm.builtin.to_device": _to_device,
            "vm.builtin.invoke_with": lambda func, args: func(*args),
        }

    # -- linking

    def function(self, index: int) -> Callable[..., Any]:
        """Function ``index`` of the table as a Python function; links what it calls."""
        with self._lock:
            new: list[int] = []
            try:
                todo = [index]
                while todo:
                    at = todo.pop()
                    if at in self._callables:
                        continue
                    new.append(at)
                    row = self.code.functions[at]
                    if row.kind == "vm":
                        todo += self._link(at, row)
                    else:
                        self._callables[at] = self._scope[f"F{at}"] = self._resolve(row)
            except BaseException:
                # What is linked by half, such as a caller of what is not registered yet, goes.
                for at in new:
                    self._callables.pop(at, None)
                raise
            return self._callables[index]

    def _link(self, index: int, row: FunctionRow) -> list[int]:
        """Compile a bytecode function; gives the functions that it needs."""
        hooked, counted = self.hook is not None, self.steps is not None
        made = Linked(self.code, index, self._scope, hooked, counted)
        needed: list[int] = []
        for name in made.python.co_names:
            if name[1:].isdigit():
                if name[0] == "C":
                    self._scope[name] = self.constant(int(name[1:]))
                elif name[0] == "F":
                    needed.append(int(name[1:]))
        self.linked[made.python] = made
        lines = made.text.splitlines(keepends=True)
        linecache.cache[made.filename] = (len(made.text), None, lines, made.filename)
        self._callables[index] = self._scope[f"F{index}"] = made.call
        return needed

    def _resolve(self, row: FunctionRow) -> Callable[..., Any]:
        if row.kind == "xla":
            return self.regions(row.name)
        if row.kind == "packed":
            return self._packed(row)
        found = FUNCTIONS.get(row.name) or self._own.get(row.name)
        if found is None and row.name in HOST:
            found = bind_host(row.name, self.fetch, self.put)
        if found is None and row.name in INLINE:
            found = _inline(row.name)
        # Programs may bring builtins of their own.
        found = found or get_global_func(row.name, allow_missing=True)
        if found is None:
            raise RunError(f"this machine has no builtin {row.name!r}")
        return found

    def _packed(self, row: FunctionRow) -> Callable[..., Any]:
        """The function of an external module, or the one that is registered now; TVMError with
        all places that call it.
        """
        try:
            found = find_external(self._external, row.name) or get_global_func(row.name)
        except TVMError as e:
            for note in calls_of(self.code, row):
                e.add_note(note)
            raise
        assert found is not None
        return found

    def constant(self, index: int) -> Any:
        """Constant ``index``; arrays of numbers lie on the device."""
        if index not in self._constants:
            self._constants[index] = self.put(self.code.constants[index])
        return self._constants[index]

    # -- values

    def put(self, value: Any, device: Device | None = None) -> Any:
        """A host value as one of the machine: arrays on the device, lists as tuples.

        ``device``: another one than the machine's own.
        """
        if isinstance(value, xla.ARRAY):
            return value
        if isinstance(value, np.ndarray):
            if value.dtype.kind in _HOST_KINDS:
                return value
            held = np.ascontiguousarray(value).reshape(value.shape)
            return xla.device_put(held, device or self.device)
        if isinstance(value, tuple | list):
            return tuple(self.put(v) for v in value)
        if isinstance(value, np.generic):
            return self.put(np.asarray(value))
        return self.put(to_host(value)) if is_torch(value) else value

    def fetch(self, value: Any) -> Any:
        """A value of the machine for the host: arrays as numpy."""
        if isinstance(value, xla.ARRAY):
            return np.asarray(value)
        if isinstance(value, tuple):
            return tuple(self.fetch(v) for v in value)
        return value

    def argument(self, value: Any, pattern: tuple[Any, ...], where: str) -> Any:
        """A user's argument as a value of the machine."""
        kind, device = pattern[0] if pattern else "object", self.device
        if kind == "placed":
            _, name, pattern = pattern
            kind, device = pattern[0], device_named(name)
        if not isinstance(value, xla.ARRAY):
            value = plain(value)
        if isinstance(value, xla.ARRAY) and kind in ("tensor", "object"):
            value = xla.on_device(value, device)
            return widened(value, pattern[1]) if kind == "tensor" else value
        if xla.is_tracer(value):
            raise CallError(
                f"{where} is traced by JAX, but the function does work on the host, which JAX "
                "cannot trace; call it outside of jax.jit"
            )
        if self._shares and isinstance(value, SharedArray) and kind in ("tensor", "object"):
            return value
        try:
            if kind == "tensor":
                made = self.put(to_host(value, pattern[1]), device)
                if self._layouts and isinstance(value, np.ndarray) and isinstance(made, xla.ARRAY):
                    keep_layout(made, value)
                return made
            if kind == "shape":
                return tuple(int(v) for v in value)
            if kind == "prim":
                return _number(value, pattern[1])
        except (TypeError, ValueError) as e:
            raise CallError(f"{where}: {e}") from None
        if kind == "tuple" and isinstance(value, tuple | list):
            fields = pattern[1]
            if len(fields) != len(value):
                raise CallError(f"{where} must be a tuple of {len(fields)}; got {len(value)} items")
            return tuple(
                self.argument(v, p, f"{where}[{i}]")
                for i, (v, p) in enumerate(zip(value, fields, strict=True))
            )
        if isinstance(value, tuple | list):
            return tuple(self.argument(v, ("object",), where) for v in value)
        return self.put(value)

    # -- builtins that need the machine

    def _as_stated(self, value: Any, pattern: Any, where: str) -> Any:
        """What a packed function returned, as the program says it is."""
        return self.argument(value, pattern, where)

    def _call_dps(self, func: Any, args: Any, several: bool, *outputs: Any) -> Any:
        """``func(*args, *results)`` writes into new numpy arrays, zero before."""
        made = [
            written_to.call(aligned_zeros(outputs[i], numpy_dtype(outputs[i + 1])))
            for i in range(0, len(outputs), 2)
        ]
        func(*args, *made)
        return tuple(self.put(m) for m in made) if several else self.put(made[0])

    def _call_inplace(self, func: Any, places: Sequence[int], *args: Any) -> Any:
        """``func`` gets writable numpy copies of the arrays that it changes; objects themselves.

        So it does arrays whose memory the caller shares: what it writes is the caller's then.
        """
        given = [
            written_to.call(np.array(a)) if i in places and _is_kept(a) else a
            for i, a in enumerate(args)
        ]
        result = func(*given)
        if result is None and all(p >= 0 for p in places):
            changed = [given[p] for p in places]
            result = changed[0] if len(changed) == 1 else changed
        ours = {id(g) for g, a in zip(given, args, strict=True) if g is not a}

        def taken(made: Any) -> Any:
            shared = isinstance(made, SharedArray) and id(made) not in ours
            return made if shared else self.put(made)

        return tuple(map(taken, result)) if isinstance(result, tuple | list) else taken(result)

    # -- failures

    def explain(self, error: Exception) -> NoReturn:
        """Raise ``error`` with the VM call stack as a note."""
        if isinstance(error, RecursionError):
            made = RunError(
                f"the program recurses deeper than {max(DEPTH, sys.getrecursionlimit())} calls; "
                "raise the limit with sys.setrecursionlimit, or let the function call itself last, "
                "which costs no depth"
            )
            notes = vm_stack(error.__traceback__, self.linked)
            made.add_note(notes[0] if notes else "")
            raise made from None
        notes = vm_stack(error.__traceback__, self.linked)
        mistake = isinstance(error, _MISTAKES) and not isinstance(error, TVMError)
        if isinstance(error, TypeError) and self._calls_none(error):
            made = RunError(f"the program calls a value that is no function: {error}")
            for note in notes:
                made.add_note(note)
            raise made from None
        if mistake and self._is_own(error):
            made = RunError(f"the program cannot go on: {type(error).__name__}: {error}")
            for note in notes:
                made.add_note(note)
            raise made from error
        # Once each, however deep a recursion was, and where machines call each other.
        for note in notes:
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
        raise error

    def _calls_none(self, error: TypeError) -> bool:
        """Whether an instruction called what cannot be called, and no function within one did."""
        tb = error.__traceback__
        while tb is not None and tb.tb_next is not None:
            tb = tb.tb_next
        ours = tb is not None and tb.tb_frame.f_code in self.linked
        return ours and str(error).endswith("object is not callable")

    def _is_own(self, error: Exception) -> bool:
        """Whether an instruction itself failed, and no function of the user's that it called."""
        found: Instruction | None = None
        tb = error.__traceback__
        while tb is not None:
            linked = self.linked.get(tb.tb_frame.f_code)
            if linked is not None:
                found = linked.instruction(tb.tb_lineno)
            elif not _OURS.match(str(tb.tb_frame.f_globals.get("__name__"))):
                return False  # an instrument's
            tb = tb.tb_next
        if not isinstance(found, Call):
            return found is not None
        row = self.code.functions[found.func]
        known = row.name in FUNCTIONS or row.name in INLINE or row.name in HOST
        return row.kind == "builtin" and known and row.name not in CLOSURE_CALLS


def _inline(name: str) -> Callable[..., Any]:
    """A builtin that is an expression, as a function value."""
    if name == "vm.builtin.invoke_closure":
        return lambda func, *args: func(*args)
    if name == "vm.builtin.make_tuple":
        return lambda *args: args
    text = INLINE[name]
    count = sum(f"{{{i}}}" in text for i in range(3))
    params = ", ".join(f"a{i}" for i in range(count))
    return eval(f"lambda {params}: {text.format(*(f'a{i}' for i in range(count)))}")


def _is_kept(value: Any) -> bool:
    """Whether it is an array that nobody may write to."""
    return isinstance(value, xla.ARRAY | np.ndarray) and not isinstance(value, SharedArray)


def _to_device(value: Any, *where: Any) -> Any:
    """An array on the device of a name, or of TVM's numbers of its kind and of itself."""
    if len(where) == 1:
        return xla.moved(value, device_named(where[0]))
    moved = get_global_func("vm.builtin.to_device")
    assert moved is not None
    return moved(value, *where)


def _number(value: Any, dtype: str) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool | int | float):
        if dtype == "bool":
            return bool(plain)
        if "int" in dtype and not isinstance(plain, float):
            return int(plain)
        if "float" in dtype:
            return float(plain)
    raise CallError(f"expected a number for Prim({dtype!r}); got {type(value).__name__} {value!r}")


class _Steps:
    """Counts the functions that begin and the rounds of loops, up to a limit for each call."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._own = threading.local()

    def start(self) -> None:
        """A new call begins in this thread."""
        self._own.left = self.limit

    def __call__(self) -> None:
        self._own.left -= 1
        if self._own.left < 0:
            raise RunError(
                f"the program has made {self.limit} steps (VirtualMachine(max_steps=...)) and has "
                "not come to an end"
            )

"""How a call gets to its program (design decision D5).

Functions of few arguments and weights run under JAX's C++ dispatch, which also checks the
arguments; functions with many weights run straight on PJRT, where an argument costs least. Small
numpy arguments are copied into memory that the device has already (``vm.call.staging``), on either
road.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla.dtypes import DTYPES
from relax2xla.errors import CallError
from relax2xla.ir import StructInfo, TensorStructInfo
from relax2xla.ir.struct_info import flatten_info
from relax2xla.stablehlo.emitter import emit
from relax2xla.stablehlo.untrusted import sorts
from relax2xla.stablehlo.untrusted.gate_mlir import check_mlir
from relax2xla.vm.call.call_shapes import Key, infos_of
from relax2xla.vm.call.programs import Programs
from relax2xla.vm.call.staging import OTHER, staged
from relax2xla.vm.call.weights import Weights
from relax2xla.vm.pjrt import compiler, jit, xla
from relax2xla.vm.pjrt.jax_arguments import is_narrowed

# Up to this many arguments and weights the jitted road is the faster one
# (benchmarks/machine/dispatch.py).
JIT_ARGUMENTS = 8


class Road:
    """The way of calls to ``programs``; what made the last call quick is kept for the next.

    ``fast``: JAX's dispatch with the weights given. ``direct``: on the other road, the shapes and
    dtypes of the last call, and what runs its program. ``staged``: the same for numpy arrays.
    """

    __slots__ = (
        "_arguments",
        "_generation",
        "_jits",
        "_programs",
        "_stages",
        "_weights",
        "direct",
        "fast",
        "sharding",
        "staged",
    )

    def __init__(self, programs: Programs, weights: Weights) -> None:
        self._programs, self._weights = programs, weights
        self._arguments = programs.arguments
        self.sharding = xla.sharding(programs.device)
        self.fast: Callable[..., Any] | None = None
        self.direct: tuple[list[tuple[Any, Any]], Callable[..., Any]] | None = None
        self.staged: Callable[[Sequence[Any]], Any] | None = None
        self._stages: dict[Key, Any] = {}
        # Counts what made these wrong, for calls that were on their way then.
        self._generation = 0
        self._jits = self._jit_serves()
        programs.listeners.append(self.forget)

    def forget(self) -> None:
        """Nothing that a call finds at once is right any more."""
        self._generation += 1
        self.fast = self.direct = self.staged = None
        self._stages = {}

    def slow(self, args: Sequence[Any]) -> Any:
        """A call that is not made of jax arrays only, or whose weights are not placed yet."""
        arguments, generation = self._arguments, self._generation
        if not self._jits or len(args) != len(arguments.dtypes):
            return self.run(args)
        for a, dtype in zip(args, arguments.dtypes, strict=True):
            # JAX would narrow 64-bit numpy arrays without a word; other kinds it does not know.
            if type(a) is not xla.ARRAY and not (type(a) is np.ndarray and a.dtype == dtype):
                return self.run(args)
        fast = self.fast
        if fast is None:
            fast = self.fast = self._dispatched()
        stage = self.staged = self._stage(args, fast)
        if self._generation != generation:
            self.forget()
        if stage is not None and (result := stage(args)) is not OTHER:
            return result
        # Copies: the program runs on after this call returns, and JAX would read numpy's memory
        # then, which the caller may have written to.
        device = self._programs.device
        return fast(*(xla.on_device(a, device) if type(a) is xla.ARRAY else a.copy() for a in args))

    def run(self, args: Sequence[Any]) -> Any:
        """A call over PJRT."""
        generation = self._generation
        buffers, key = self._arguments.on_device(args)
        if any(map(xla.is_tracer, buffers)):
            return self._traced(buffers, key)
        try:
            loaded, program = self._programs.find(tuple(key))
        except CallError as e:
            self._arguments.refuse_lists(args, e)
            raise
        weights, run, pack = self._weights.operands(), loaded.run, program.pack
        if self._arguments.only_tensors:
            self.direct = (key, lambda args: pack(run([*weights, *args])))
            self.staged = self._stage(args, lambda *a: pack(run([*weights, *a])))
            if self._generation != generation:
                self.forget()
        return pack(run(weights + buffers))

    def _stage(
        self, args: Sequence[Any], call: Callable[..., Any]
    ) -> Callable[[Sequence[Any]], Any] | None:
        """``call`` for numpy arguments like these, where their memory can be shared."""
        programs, arguments = self._programs, self._arguments
        if programs.reuse is not None or not all(type(a) is np.ndarray for a in args):
            return None
        if xla.count(programs.device) > 1:
            return None
        if any(args[i].dtype != arguments.dtypes[i] for i in arguments.narrowed):
            return None
        key = tuple((a.shape, a.dtype) for a in args)
        found = self._stages.get(key, OTHER)
        if found is OTHER:
            if len(self._stages) >= programs.limit:
                self._stages.clear()
            found = self._stages[key] = staged(args, programs.device, call)
        return found

    # -- JAX's dispatch, and its tracing

    def _jit_serves(self) -> bool:
        """Whether the jitted road can run this function, exactly as the other one would."""
        arguments, programs = self._arguments, self._programs
        infos = [*arguments.leaves, *flatten_info(programs.entry.func.ret_struct_info)]
        return (
            xla.count(programs.device) == 1
            and len(arguments.params) + programs.weights <= JIT_ARGUMENTS
            and bool(arguments.params)
            and arguments.only_tensors
            and all(isinstance(i, TensorStructInfo) and _fits_jit(i.dtype) for i in infos)
        )

    def _dispatched(self) -> Callable[..., Any]:
        programs, weights = self._programs, self._weights.operands()
        count = len(weights)

        def compiled(args: Sequence[Any]) -> tuple[compiler.Loaded, Callable[[Sequence[Any]], Any]]:
            loaded, program = programs.find(self._key(args))
            return loaded, program.pack

        def traced(*values: Any) -> Any:
            args = values[count:]
            return self._traced(args, self._key(args), values[:count])

        traced.__name__ = programs.name
        return jit.dispatcher(programs.name, compiled, traced, weights, programs.device)

    def _key(self, args: Sequence[Any]) -> Key:
        if len(args) != len(self._arguments.leaves):
            self._arguments.refuse_count(len(args))
        return tuple((a.shape, a.dtype) for a in args)

    def _traced(
        self, args: Sequence[Any], key: Sequence[Any], weights: Sequence[Any] | None = None
    ) -> Any:
        """The function on values that JAX traces: its program, inlined."""
        arguments, programs = self._arguments, self._programs
        wide = [_wide(k, info) for k, info in zip(key, arguments.leaves, strict=True)]
        program = programs.program(infos_of(arguments.params, wide))
        module = emit(program.module, resources=False)
        check_mlir(module, programs.executable.allowed)
        sorts.make_safe(module)
        text = str(module)
        values = [*args, *(self._weights.operands() if weights is None else weights)]
        outputs = [xla.aval(o) for o in program.outputs]
        return program.pack(jit.inline_program(values, text, outputs))


def _wide(key: Any, info: StructInfo) -> Any:
    """What a call is found by, ``key``, with the dtype that JAX narrowed."""
    if isinstance(info, TensorStructInfo) and is_narrowed(key[1], info.dtype):
        return (key[0], np.dtype(DTYPES[info.dtype].numpy))
    return key


def _fits_jit(dtype: str) -> bool:
    """Whether JAX without its x64 flag keeps values of ``dtype`` as they are."""
    row = DTYPES.get(dtype)
    if row is None:
        return False
    return row.bits <= (64 if row.kind == "complex" else 32)

"""Torch tensors in and out of compiled programs, over the same memory where that can be."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy.typing as npt
import torch

from relax2xla import IRModule, VirtualMachine, build
from relax2xla.importers.torch.compile.arguments import Borrowed, Stage, Stages
from relax2xla.importers.torch.compile.call_plan import Plan, Result
from relax2xla.importers.torch.engine.tensor_data import as_numpy
from relax2xla.importers.torch.source.torch_internals import writes_of
from relax2xla.runtime.device import Device
from relax2xla.runtime.device import cpu as cpu_device
from relax2xla.runtime.device import cuda as cuda_device
from relax2xla.vm.pjrt.xla import block, device_put, dlpack

log = logging.getLogger("relax2xla.torch")

# A weight that is written to is constant no longer; so often it may be one anew.
MAX_FREEZES = 3
# Elements of a frozen weight that are compared at each call, beside torch's count of writes.
SAMPLES = 8


def device_for(device: torch.device) -> Device:
    """The device of relax2xla on which torch's memory lies."""
    return cpu_device() if device.type == "cpu" else cuda_device(device.index or 0)


def to_jax(tensor: torch.Tensor, device: Device) -> Any:
    """``tensor`` as a jax array over the same memory, where it is aligned and dense.

    The array must have been used up before torch writes to the tensor.
    """
    if tensor.device.type == "cpu":
        return device_put(as_numpy(tensor), device, copy=False)
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    with jax.enable_x64(True):  # else JAX narrows 64-bit types
        return jax.dlpack.from_dlpack(dense)


def copied(array: Any) -> Any:
    """An array with memory of its own."""
    with jax.enable_x64(True):  # else JAX narrows 64-bit types
        return array.copy()


def to_torch(array: Any, order: Sequence[int] | None, on_cpu: bool) -> torch.Tensor:
    """A result as a torch tensor over the same memory; ``order`` undoes a permutation."""
    # Torch asks an array for its device, in many steps, to name a stream; the CPU has none.
    tensor = torch.from_dlpack(dlpack(array) if on_cpu else array)
    return tensor if order is None else tensor.permute(*order)


class Part:
    """One graph on XLA, called with torch tensors and sizes.

    mod:     its function ``main`` takes the arguments at ``plan.feeds``, as ``p<place>``
    static:  places of the arguments that are weights
    freeze:  compile weights in, and watch that they stay what they are
    """

    def __init__(
        self,
        mod: IRModule,
        plan: Plan,
        pipeline: Any,
        device: torch.device,
        static: Sequence[int] = (),
        freeze: bool = False,
    ) -> None:
        self.mod, self.plan = mod, plan
        self._pipeline, self._device = pipeline, device_for(device)
        self._static = frozenset(static)
        self._freezes = MAX_FREEZES if freeze and device.type == "cpu" else 0
        self._built: Built | None = None
        self._building = threading.Lock()
        self._held: dict[int, tuple[Any, Any]] = {}
        self._borrowed, self._stages = Borrowed(self._device), Stages(self._device)
        self._on_cpu = device.type == "cpu"
        self._known: dict[tuple[int, ...], Mapping[Any, int]] = {}

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Results as torch has them; tensors share XLA's memory."""
        built = self._built
        if built is None or built.changed(args):
            built = self._make(args)
        taken: list[Stage] = []
        given = [self._array(i, args[i], taken) for i in built.live]
        arrays = built.call(*given)
        # Until then XLA reads the arguments' memory.
        block(arrays)
        mine = {id(a) for a in given}
        if any(id(r) in mine for r in arrays):
            # Their memory is the arguments', which are written to.
            arrays = [copied(r) if id(r) in mine else r for r in arrays]
        self._stages.give_back(taken)
        plan = self.plan
        sizes = self._evaluated(args) if plan.computed else {}
        bases = [self._result(r, args, arrays, sizes) for r in plan.bases] if plan.bases else ()
        return tuple(self._result(r, args, arrays, sizes, bases) for r in plan.results)

    def _make(self, args: Sequence[Any]) -> Built:
        """Build, at the first call and after weights have changed; one thread does."""
        with self._building:
            before = self._built
            if before is not None and not before.changed(args):
                return before
            if before is not None:
                log.info("weights have changed since they were compiled in; compiling again")
            frozen: list[Frozen] = []
            if self._freezes:
                self._freezes -= 1
                watched = [Frozen.of(i, args[i]) for i in self.plan.feeds if i in self._static]
                frozen = [f for f in watched if f is not None]
            fixed = {f.at for f in frozen}
            params = {f"p{i}": as_numpy(args[i]) for i in sorted(fixed)}
            pipeline = {} if self._pipeline is None else {"relax_pipeline": self._pipeline}
            executable = build(self.mod, self._device, params, **pipeline)
            call = VirtualMachine(executable, self._device)["main"]
            live = tuple(i for i in self.plan.feeds if i not in fixed)
            made = self._built = Built(call, live, tuple(frozen))
            return made

    def _array(self, at: int, value: Any, taken: list[Stage]) -> Any:
        """An argument as the program takes it; ``taken`` gets the stage that it was copied to."""
        if not isinstance(value, torch.Tensor):
            return value
        if at not in self._static:
            if not self._on_cpu:
                return to_jax(value, self._device)
            array = self._borrowed.find(value)
            if array is not None:
                return array
            stage = self._stages.take(value)
            if stage is None:
                return to_jax(value, self._device)
            taken.append(stage)
            return stage[1]
        # Weights mostly stay where they are: the array over their memory serves again.
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        held = self._held.get(at)
        if held is not None and held[0] == key:
            return held[1]
        array = to_jax(value, self._device)
        if array.size and array.unsafe_buffer_pointer() == key[0]:
            self._held[at] = (key, array)
        return array

    def _result(
        self,
        r: Result,
        args: Sequence[Any],
        arrays: Sequence[Any],
        sizes: Mapping[Any, int],
        bases: Sequence[Any] = (),
    ) -> Any:
        if r.kind == "array":
            tensor = to_torch(arrays[r.at], r.order, self._on_cpu)
            return tensor if tensor.device == r.device else tensor.to(r.device)
        if r.kind == "argument":
            return args[r.at]
        if r.kind == "view":
            view = bases[r.at]
            for step in r.value:
                view = step(view, sizes)
            return view
        return sizes[r.value] if r.kind == "size" else r.value

    def _evaluated(self, args: Sequence[Any]) -> Mapping[Any, int]:
        """The sizes that the results need, for the sizes among the arguments."""
        given = tuple(size.of(args) for size in self.plan.sizes)
        found = self._known.get(given)
        if found is None:
            values: dict[Any, Any] = {}
            for size, number in zip(self.plan.sizes, given, strict=True):
                size.tell(number, values)
            found = {expr: int(expr.xreplace(values)) for expr in self.plan.computed}
            self._known[given] = found
        return found


@dataclass(frozen=True, slots=True)
class Built:
    """A part as it is compiled: the places of its arguments, and the weights compiled in.

    It is replaced as a whole, since other threads are within calls.
    """

    call: Callable[..., Any]
    live: tuple[int, ...]
    frozen: tuple[Frozen, ...]

    def changed(self, args: Sequence[Any]) -> bool:
        """Whether torch has written to one of the weights since."""
        return any(f.changed(args) for f in self.frozen)


@dataclass(frozen=True, slots=True)
class Frozen:
    """A weight that is compiled in, and how to see that it is no longer what it was."""

    at: int
    pointer: int
    version: int
    sample: npt.NDArray[Any]
    before: bytes

    @staticmethod
    def of(at: int, value: Any) -> Frozen | None:
        """None for what torch does not count the writes of, or that is not dense."""
        if not isinstance(value, torch.Tensor) or value.is_inference():
            return None
        if not value.is_contiguous() or value.is_conj() or value.is_neg():
            return None
        flat = as_numpy(value).reshape(-1)
        sample = flat[:: max(1, flat.size // SAMPLES)]
        return Frozen(at, value.data_ptr(), writes_of(value), sample, sample.tobytes())

    def changed(self, args: Sequence[Any]) -> bool:
        """Whether torch has written to the weight since."""
        value = args[self.at]
        if value.data_ptr() != self.pointer or writes_of(value) != self.version:
            return True
        return self.sample.tobytes() != self.before

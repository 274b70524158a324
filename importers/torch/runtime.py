"""Torch tensors in and out of compiled programs, over the same memory where that can be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy.typing as npt
import sympy
import torch
from torch.fx import GraphModule, Node

from relax2xla import IRModule, VirtualMachine, build
from relax2xla.importers.torch.graphs import memory_order, placeholders_of, results_of
from relax2xla.importers.torch.weights import as_numpy
from relax2xla.runtime.device import Device
from relax2xla.runtime.device import cpu as cpu_device
from relax2xla.runtime.device import cuda as cuda_device
from relax2xla.vm.xla import block, device_put

log = logging.getLogger("relax2xla.torch")

# A weight that is written to is constant no longer; so often it may be one anew.
MAX_FREEZES = 3
# Elements of a frozen weight that are compared at each call, beside torch's count of writes.
SAMPLES = 8


def device_of(values: Sequence[Any]) -> torch.device:
    """The device of a graph: that of its tensors; numbers of rank 0 may lie on the CPU.

    Raises ValueError for devices that XLA has no part in, and for more than one.
    """
    found = {v.device for v in values if isinstance(v, torch.Tensor)}
    others = {d for d in found if d.type != "cpu"}
    if not others:
        return torch.device("cpu")
    on_cpu = [v for v in values if isinstance(v, torch.Tensor) and v.device.type == "cpu"]
    if len(others) > 1 or any(v.ndim for v in on_cpu):
        raise ValueError(f"tensors on several devices: {', '.join(sorted(map(str, found)))}")
    (device,) = others
    if device.type != "cuda":
        raise ValueError(f"tensors on a device of type {device.type}")
    return device


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


def to_torch(array: Any, order: Sequence[int] | None) -> torch.Tensor:
    """A result as a torch tensor over the same memory; ``order`` undoes a permutation."""
    tensor = torch.from_dlpack(array)
    return tensor if order is None else tensor.permute(*order)


@dataclass(frozen=True, slots=True)
class Result:
    """Where a result comes from: ``kind`` "array" (of the program, ``at`` its place), "argument"
    (passed through), "constant", or "size" (a sympy expression).
    """

    kind: str
    at: int = 0
    value: Any = None
    order: tuple[int, ...] | None = None
    device: torch.device | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a graph is called: which arguments its program takes, and what its results are.

    ``sizes``: places of symbolic sizes among the arguments, and their symbols. The graph is left
    with the results that it computes, each in the order of axes that it has in torch's memory.
    """

    feeds: tuple[int, ...]
    results: tuple[Result, ...]
    sizes: tuple[tuple[int, Any], ...]


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
        self._frozen: list[Frozen] = []
        self._live = plan.feeds
        self._call: Callable[..., Any] | None = None
        self._held: dict[int, tuple[Any, Any]] = {}
        self._known: dict[tuple[int, ...], list[Any]] = {}
        self._wants_sizes = any(r.kind == "size" for r in plan.results)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Results as torch has them; tensors share XLA's memory."""
        call = self._call
        if call is None or any(f.changed(args) for f in self._frozen):
            call = self._make(args)
        arrays = call(*(self._array(i, args[i]) for i in self._live))
        # Until then XLA reads the arguments' memory.
        block(arrays)
        sizes = self._evaluated(args) if self._wants_sizes else ()
        return tuple(self._result(r, args, arrays, sizes) for r in self.plan.results)

    def _make(self, args: Sequence[Any]) -> Callable[..., Any]:
        """Build, at the first call and after weights have changed."""
        if self._frozen:
            log.info("weights have changed since they were compiled in; compiling again")
        self._frozen = []
        if self._freezes:
            self._freezes -= 1
            frozen = [Frozen.of(i, args[i]) for i in self.plan.feeds if i in self._static]
            self._frozen = [f for f in frozen if f is not None]
        fixed = {f.at for f in self._frozen}
        self._live = tuple(i for i in self.plan.feeds if i not in fixed)
        params = {f"p{i}": as_numpy(args[i]) for i in sorted(fixed)}
        pipeline = {} if self._pipeline is None else {"relax_pipeline": self._pipeline}
        executable = build(self.mod, self._device, params, **pipeline)
        call = self._call = VirtualMachine(executable, self._device)["main"]
        return call

    def _array(self, at: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if at not in self._static:
            return to_jax(value, self._device)
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
        self, r: Result, args: Sequence[Any], arrays: Sequence[Any], sizes: Sequence[Any]
    ) -> Any:
        if r.kind == "array":
            tensor = to_torch(arrays[r.at], r.order)
            return tensor if tensor.device == r.device else tensor.to(r.device)
        if r.kind == "argument":
            return args[r.at]
        return sizes[r.at] if r.kind == "size" else r.value

    def _evaluated(self, args: Sequence[Any]) -> list[Any]:
        """The sizes among the results, for the sizes among the arguments."""
        given = tuple(int(args[i]) for i, _ in self.plan.sizes)
        found = self._known.get(given)
        if found is None:
            values = {
                expr: sympy.Integer(v) for (_, expr), v in zip(self.plan.sizes, given, strict=True)
            }
            found = [int(r.value.xreplace(values)) for r in self.plan.results if r.kind == "size"]
            self._known[given] = found
        return found


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
        return Frozen(at, value.data_ptr(), value._version, sample, sample.tobytes())

    def changed(self, args: Sequence[Any]) -> bool:
        """Whether torch has written to the weight since."""
        value = args[self.at]
        if value.data_ptr() != self.pointer or value._version != self.version:
            return True
        return self.sample.tobytes() != self.before


def planned(graph: GraphModule) -> Plan:
    """The plan for a graph, which is changed to compute what the plan asks for."""
    placeholders = placeholders_of(graph)
    (output,) = (n for n in graph.graph.nodes if n.op == "output")
    places = {n: i for i, n in enumerate(placeholders)}
    results: list[Result] = []
    computed: dict[Node, int] = {}
    made: list[Node] = []
    sizes = 0
    for item in results_of(graph):
        value = item.meta.get("val") if isinstance(item, Node) else item
        if not isinstance(item, Node):
            results.append(Result("constant", value=item))
        elif item in places:
            results.append(Result("argument", places[item]))
        elif isinstance(value, torch.SymInt):
            results.append(Result("size", sizes, value.node.expr))
            sizes += 1
        elif isinstance(value, torch.Tensor):
            order = memory_order(value)
            if item not in computed:
                computed[item] = len(made)
                made.append(item if order is None else _permuted(graph, output, item, order))
            back = None if order is None else tuple(order.index(a) for a in range(len(order)))
            results.append(Result("array", computed[item], None, back, value.device))
        else:
            results.append(Result("constant", value=value))
    output.args = (tuple(made),)
    graph.graph.eliminate_dead_code()
    used = [i for i, n in enumerate(placeholders) if n.users]
    tensors = [placeholders[i].meta["val"] for i in used]
    bound = {
        size.node.expr
        for value in tensors
        if isinstance(value, torch.Tensor)
        for size in value.shape
        if isinstance(size, torch.SymInt)
    }
    symbols = [
        (i, n.meta["val"].node.expr)
        for i, n in enumerate(placeholders)
        if isinstance(n.meta["val"], torch.SymInt)
    ]
    known = {i for i, expr in symbols if expr in bound}
    return Plan(tuple(i for i in used if i not in known), tuple(results), tuple(symbols))


def _permuted(graph: GraphModule, output: Node, node: Node, order: Sequence[int]) -> Node:
    with graph.graph.inserting_before(output):
        made = graph.graph.call_function(torch.ops.aten.permute.default, (node, list(order)))
    made.meta = {**node.meta, "val": node.meta["val"].permute(*order)}
    return made

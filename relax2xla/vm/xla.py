"""XLA through jaxlib: compile, place arrays, run. The machine's only road to the device.

With ``relax2xla/stablehlo`` the only user of jaxlib, so that its drift stays in one place. Two ways
to run a program (design decision D5, measured in ``benchmarks/dispatch.py``):

* :class:`Loaded`: straight on PJRT. The cost of an argument is small, so functions with many
  weights go this way; 64-bit types are exact whatever JAX's x64 flag says.
* :func:`jitted`: a ``jax.jit`` function whose trace is one primitive that inlines the program. The
  C++ dispatch of JAX is the fastest for few arguments, and checks them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir as jax_mlir
from jaxlib import xla_client as xc
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func as func_dialect

from relax2xla.dtypes import dtype_name, numpy_dtype
from relax2xla.errors import DeviceError
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.runtime.device import Device

# StableHLO's minimum and maximum propagate NaN; XLA:CPU's fast form does not.
COMPILER_OPTIONS: dict[str, Any] = {"xla_cpu_enable_fast_min_max": False}
# For programs that run once (weights at load): compiled several times faster, run no better.
RUN_ONCE_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
}

# The class of concrete jax arrays, for the check on the hot path.
ARRAY: type = xc.ArrayImpl


@functools.cache
def jax_device(device: Device | None) -> Any:
    """The jax device of ``device``; None is JAX's default device."""
    if device is None:
        return jax.local_devices()[0]
    try:
        found = jax.local_devices(backend=device.platform)
    except RuntimeError as e:
        raise DeviceError(
            f"there is no {device.platform} backend in this process ({e}); install a jaxlib for it "
            "or use relax2xla.cpu()"
        ) from None
    if device.index >= len(found):
        names = ", ".join(f"{device.platform}:{i}" for i in range(len(found)))
        raise DeviceError(f"there is no device {device}; this process has {names}")
    return found[device.index]


@functools.cache
def sharding(device: Device | None) -> Any:
    """The sharding of an array that lies on ``device`` alone."""
    return jax.sharding.SingleDeviceSharding(jax_device(device))


def aval(info: TensorStructInfo) -> Any:
    """The abstract value of a tensor of static shape, 64-bit types included."""
    return jax.core.ShapedArray(info.dims, numpy_dtype(info.dtype))


def is_array(value: Any) -> bool:
    """Whether ``value`` is a concrete jax array."""
    return isinstance(value, xc.ArrayImpl)


def is_tracer(value: Any) -> bool:
    """Whether ``value`` is being traced by a JAX transformation."""
    return isinstance(value, jax.core.Tracer)


def device_put(value: np.ndarray[Any, Any], device: Device | None, copy: bool = True) -> Any:
    """A numpy array on the device, dtype unchanged.

    ``copy=False``: on the CPU the memory is shared where it is aligned, so the array must not be
    written to afterwards.
    """
    semantics = xc.HostBufferSemantics
    return xc.batched_device_put(
        jax.core.ShapedArray(value.shape, value.dtype),
        sharding(device),
        [value],
        [jax_device(device)],
        host_buffer_semantics=(
            semantics.IMMUTABLE_ONLY_DURING_CALL if copy else semantics.ZERO_COPY
        ),
        enable_x64=True,
    )


def on_device(value: Any, device: Device | None) -> Any:
    """A jax array on ``device``, moved if it is elsewhere."""
    target = jax_device(device)
    if value.devices() == {target}:
        return value
    with jax.enable_x64(True):
        return jax.device_put(value, target)


def _compile(target: Any, module: ir.Module, overrides: dict[str, Any]) -> Any:
    options = xc.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = xc.DeviceAssignment.create(np.array([[target.id]]))
    options.env_option_overrides = list(overrides.items())
    return target.client.compile_and_load(module, xc.DeviceList((target,)), options)


class Loaded:
    """A compiled program on one device: ``run(buffers)`` gives the list of results.

    ``run_once``: compile fast rather than well.
    """

    __slots__ = ("_execute", "_handlers", "executable")

    def __init__(
        self,
        module: ir.Module,
        outputs: Sequence[Any],
        device: Device | None,
        run_once: bool = False,
    ) -> None:
        target = jax_device(device)
        options = dict(COMPILER_OPTIONS)
        if run_once and target.platform == "cpu":
            options.update(RUN_ONCE_OPTIONS)
        self.executable = _compile(target, module, options)
        where = sharding(device)
        self._handlers = [
            xc.array_result_handler(a, where, committed=True, _skip_checks=True) for a in outputs
        ]
        self._execute = self.executable.execute_sharded

    def run(self, buffers: list[Any]) -> list[Any]:
        """Run on jax arrays that lie on the device and fit the program; results in order."""
        return self._execute(buffers).consume_with_handlers(self._handlers)

    def memory(self) -> Any:
        """XLA's own account of the program's memory."""
        return self.executable.get_compiled_memory_stats()

    def hlo_text(self) -> str:
        """The optimised HLO."""
        return self.executable.get_hlo_text()


# A specialisation: abstract arguments to (module text, abstract results).
Specialise = Callable[[Sequence[Any]], tuple[str, Sequence[Any]]]

_program_p = Primitive("relax2xla_program")
_program_p.multiple_results = True
_serial = itertools.count()


@_program_p.def_abstract_eval
def _program_abstract(*args: Any, program: str, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return outputs


@_program_p.def_impl
def _program_impl(*args: Any, program: str, outputs: tuple[Any, ...]) -> Any:
    bound = functools.partial(_program_p.bind, program=program, outputs=outputs)
    return jax.jit(bound, compiler_options=COMPILER_OPTIONS)(*args)


def _program_lowering(
    ctx: Any, *args: Any, program: str, outputs: tuple[Any, ...]
) -> Sequence[ir.Value[Any]]:
    """Clone the functions of the program into the module being lowered, and call the entry."""
    target = ctx.module_context.module
    source = ir.Module.parse(program, context=target.context)
    prefix = f"relax2xla_{next(_serial)}_"
    entry = None
    with ir.InsertionPoint(target.body):
        for op in source.body.operations:
            clone = op.operation.clone()
            name = ir.StringAttr(clone.attributes["sym_name"]).value
            clone.attributes["sym_name"] = ir.StringAttr.get(prefix + name)
            clone.attributes["sym_visibility"] = ir.StringAttr.get("private")
            _prefix_callees(clone, prefix)
            if name == "main":
                entry = clone
    if entry is None:
        raise DeviceError("the program has no function main")
    result_types = ir.FunctionType(ir.TypeAttr(entry.attributes["function_type"]).value).results
    callee = ir.FlatSymbolRefAttr.get(prefix + "main")
    return list(func_dialect.CallOp(result_types, callee, list(args)).results)


def _prefix_callees(root: Any, prefix: str) -> None:
    def visit(op: Any) -> Any:
        for name in ("callee", "decomposition"):
            if name in op.attributes:
                symbol = ir.FlatSymbolRefAttr(op.attributes[name]).value
                op.attributes[name] = ir.FlatSymbolRefAttr.get(prefix + symbol)
        if "called_computations" in op.attributes:
            symbols = [ir.FlatSymbolRefAttr(a).value for a in op.attributes["called_computations"]]
            op.attributes["called_computations"] = ir.ArrayAttr.get(
                [ir.FlatSymbolRefAttr.get(prefix + s) for s in symbols]
            )
        return ir.WalkResult.ADVANCE

    root.walk(visit)


jax_mlir.register_lowering(_program_p, _program_lowering)


def inline_program(args: Sequence[Any], program: str, outputs: Sequence[Any]) -> list[Any]:
    """The results of a program (StableHLO text, function main) on jax values, traced or not."""
    return _program_p.bind(*args, program=program, outputs=tuple(outputs))


def jitted(call: Callable[..., Any], device: Device | None) -> Any:
    """``call`` under ``jax.jit`` on ``device``, with the options that every program gets.

    Arrays on another device are moved; ValueError for those that are spread over several.
    """
    return jax.jit(call, in_shardings=sharding(device), compiler_options=COMPILER_OPTIONS)


def value_info(value: Any) -> TensorStructInfo:
    """Struct info of an array, concrete or traced."""
    return TensorStructInfo.make(tuple(value.shape), dtype_name(value.dtype))


def block(values: Sequence[Any]) -> None:
    """Wait until arrays are computed."""
    jax.block_until_ready(list(values))

"""Programs that XLA compiles: in this process, from the disk cache, from bytes of another process.

A program is compiled once for all processes of a user (:mod:`relax2xla.vm.pjrt.cache`). What runs
it is here, too: :class:`Loaded`, straight on PJRT.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxlib import version as jaxlib_version
from jaxlib import xla_client as xc
from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from relax2xla import budget, processor
from relax2xla.errors import BudgetError, UnsupportedError
from relax2xla.runtime.device import Device, Mesh
from relax2xla.stablehlo import few_bits, six_bits
from relax2xla.stablehlo.mlir import operations, to_bytecode
from relax2xla.stablehlo.shardings import with_constraints, without_shardings
from relax2xla.stablehlo.untrusted import limits, sorts
from relax2xla.stablehlo.untrusted.gate_mlir import check_mlir
from relax2xla.stablehlo.untrusted.targets import CALLBACKS, CALLS_BACK
from relax2xla.vm.pjrt import cache, dot_library, mesh, native_calls, onednn, xla
from relax2xla.vm.pjrt.complete_code import is_complete

log = logging.getLogger("relax2xla.vm")

# StableHLO's minimum and maximum propagate NaN; XLA:CPU's fast form does not.
COMPILER_OPTIONS: dict[str, Any] = {"xla_cpu_enable_fast_min_max": False}
# For programs that run once (weights at load): compiled several times faster, run no better. Both
# or neither: jaxlib 0.10's fusion emitters give wrong numbers at level 0.
RUN_ONCE_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
}

# Those that this XLA no longer has. They only save time; it must have all others.
_gone: set[str] = set()
_NO_OPTION = re.compile(r"No such compile option: '(\w+)'")

# XLA's results have the shapes that XLA says; a jaxlib with this option checks them otherwise.
_UNCHECKED: dict[str, Any] = (
    {"_skip_checks": True} if "_skip_checks" in str(xc.array_result_handler.__doc__) else {}
)


def _options(
    device: Device | None, overrides: Mapping[str, Any], shardy: bool, free: Sequence[bool]
) -> Any:
    options = xc.CompileOptions()
    if isinstance(device, Mesh):
        mesh.partition(options, device, shardy, free)
    else:
        target = xla.jax_device(device)
        options.num_replicas = options.num_partitions = 1
        options.device_assignment = xc.DeviceAssignment.create(np.array([[target.id]]))
    options.env_option_overrides = [(k, v) for k, v in overrides.items() if k not in _gone]
    return options


#: How the names of XLA:CPU's calls into LAPACK begin.
LAPACK = b"lapack_"


@functools.cache
def load_lapack() -> None:
    """Point XLA:CPU's calls to scipy's LAPACK; without it they end the process."""
    importlib.import_module("jaxlib.cpu._lapack").initialize()


def _compile(device: Device | None, module: ir.Module, overrides: Mapping[str, Any]) -> Any:
    target = xla.jax_device(device)
    dtypes = limits.check(module)
    if dtypes & six_bits.FORMS.keys():
        six_bits.widen(module)
    if dtypes & few_bits.FORMS:
        few_bits.widen(module)
    if target.platform == "cpu":
        sorts.make_safe(module)
        if LAPACK in to_bytecode(module):
            load_lapack()
    shardy, free = isinstance(device, Mesh) and b"sdy." in str(module).encode(), [True]
    if shardy:
        module = with_constraints(module)
    elif isinstance(device, Mesh):
        free = mesh.results_free(module) or free
    make = target.client.compile_and_load
    made = _with_options(make, device, module, overrides, shardy, free)
    _check_memory(made)
    return made


def _with_options(
    make: Any,
    device: Device | None,
    source: Any,
    overrides: Mapping[str, Any],
    shardy: bool = False,
    free: Sequence[bool] = (True,),
) -> Any:
    """The executable that ``make`` gives, without options that only save time where it has none."""
    several = isinstance(device, Mesh)
    devices = xc.DeviceList(xla.mesh_devices(device) if several else (xla.jax_device(device),))
    while True:
        try:
            return make(source, devices, _options(device, overrides, shardy, free))
        except jax.errors.JaxRuntimeError as e:
            unknown = _NO_OPTION.search(str(e))
            if unknown is None or unknown[1] not in RUN_ONCE_OPTIONS:
                raise xla.of_xla("compile", e) from e
            _gone.update(RUN_ONCE_OPTIONS)


def _check_memory(executable: Any) -> None:
    """BudgetError where running takes more memory than is allowed."""
    try:
        found = executable.get_compiled_memory_stats()
    except Exception:  # jaxlib names no class for a platform that keeps no account
        return
    size = found.temp_size_in_bytes + found.output_size_in_bytes
    if size > budget.held():
        raise BudgetError(
            f"the program takes {budget.show(size)} for its results and in between; the limit is "
            f"{budget.show(budget.held())}. {budget.RAISE}"
        )


def mark_donated(module: ir.Module, arguments: Mapping[int, int | None]) -> None:
    """Let ``main`` take the memory of arguments for its results.

    ``arguments``: places of arguments to the place of the result that takes it, of the same shape
    and dtype; None where XLA may choose.
    """
    with module.context:
        (main,) = (
            op
            for op in module.body.operations
            if ir.StringAttr(op.attributes["sym_name"]).value == "main"
        )
        count = len(ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).inputs)
        held: list[dict[str, Any]] = [{} for _ in range(count)]
        if "arg_attrs" in main.attributes:
            for own, given in zip(held, ir.ArrayAttr(main.attributes["arg_attrs"]), strict=True):
                own.update({a.name: a.attr for a in ir.DictAttr(given)})
        integer = ir.IntegerType.get_signless(32)
        for at, result in arguments.items():
            if result is None:
                held[at]["jax.buffer_donor"] = ir.BoolAttr.get(True)
            else:
                held[at]["tf.aliasing_output"] = ir.IntegerAttr.get(integer, result)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(h) for h in held])


# -- compiled code that outlives the process -------------------------------------------------------
def fingerprint(device: Device | None) -> str:
    """What compiled code depends on beside its program and options; no key for another machine.

    The number of processors counts: XLA:CPU splits its loops by it.
    """
    target = xla.jax_device(device)
    client = target.client
    return "\n".join(
        (
            f"jaxlib {jaxlib_version.__version__}",
            f"{client.platform} {client.platform_version}",
            f"{target.device_kind} {target.id}",
            processor.machine(),
            f"{processor.count()} processors",
            *(f"{n}={os.environ.get(n, '')}" for n in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")),
        )
    )


def versions() -> dict[str, str]:
    """Versions of what compiles."""
    return {"jax": jax.__version__, "jaxlib": jaxlib_version.__version__}


def program_bytes(module: ir.Module) -> bytes:
    """``module`` as MLIR bytecode without locations: the same program gives the same bytes."""
    with module.context:
        bare = ir.Module.parse(to_bytecode(module))
        PassManager.parse("builtin.module(strip-debuginfo)").run(bare.operation)
        return to_bytecode(bare)


def _key(module: ir.Module, device: Device | None, overrides: Mapping[str, Any]) -> str | None:
    """The program's key in the disk cache; None where its code is good for this process alone."""
    program = program_bytes(module)
    # Calls into Python go by an address or an index of this process.
    if b"callback" in program:
        return None
    options = "\n".join(f"{k}={v}" for k, v in sorted(overrides.items()))
    return cache.key_of(program, options, fingerprint(device))


def _cached(module: ir.Module, device: Device | None, overrides: Any) -> tuple[Any, bool]:
    """The executable of ``module``, and whether the disk cache had it; else compiled into it."""
    slot = _slot(module, device, overrides)
    if slot is None:
        return _compile(device, module, overrides), False
    store, key = slot
    data = store.get(key)
    if data is not None:
        try:
            return _deserialize(device, data, overrides), True
        except Exception as e:  # jaxlib names no class for what it cannot read
            log.info("a cached program cannot be loaded (%s); compiling again", e)
            store.forget(key)
    made = _compile(device, module, overrides)
    _keep(slot, _serialize(made, xla.jax_device(device)))
    return made, False


def _slot(
    module: ir.Module, device: Device | None, overrides: Mapping[str, Any]
) -> tuple[cache.DiskCache, str] | None:
    """The disk cache and the program's key in it; None without one, or where it does not go in."""
    # A program for several devices is compiled in each process.
    store = None if isinstance(device, Mesh) else cache.current()
    if store is None or not store.programs:
        return None
    key = _key(module, device, overrides)
    return None if key is None else (store, key)


def _keep(slot: tuple[cache.DiskCache, str] | None, data: bytes | None) -> None:
    """Put compiled code into the disk cache."""
    if slot is not None and data is not None:
        store, key = slot
        store.put(key, data)


def machine_code(
    module: ir.Module, device: Device | None, allowed: Iterable[str] = ()
) -> bytes | None:
    """The compiled code of ``module``, for :class:`Loaded` in another process; None: XLA has none.

    The disk cache is asked first, as an executable that was itself read from bytes cannot always be
    written again. ``allowed``, errors: as of :class:`Loaded`.
    """
    check_mlir(module, allowed, xla.count(device))
    target = xla.jax_device(device)
    module = _annotated(module, device)
    module = _with_native_calls(module, device) or module
    if _with_calls(module, device) is not None:
        return None
    settings = _settings(target, module)
    slot = _slot(module, device, settings)
    data = None if slot is None else slot[0].get(slot[1])
    if data is None:
        data = _serialize(_compile(device, module, settings), target)
        _keep(slot, data)
    return data


def _annotated(module: ir.Module, device: Device | None) -> ir.Module:
    """``module`` with the shardings that say something on ``device``."""
    return module if isinstance(device, Mesh) else without_shardings(module)


def called(module: ir.Module, device: Device | None, allowed: Iterable[str] = ()) -> ir.Module:
    """``module`` as :class:`Loaded` compiles it, with calls, for XLA as part of a larger program.

    ``allowed``, errors: as of :class:`Loaded`.
    """
    check_mlir(module, allowed, xla.count(device))
    sorts.make_safe(module)
    if LAPACK in to_bytecode(module):
        load_lapack()
    module = _with_native_calls(module, device) or module
    return _with_calls(module, device) or module


def _with_calls(module: ir.Module, device: Device | None) -> ir.Module | None:
    """``module`` with calls of oneDNN, whose code XLA cannot write; None where it has none."""
    if isinstance(device, Mesh) or xla.jax_device(device).platform != "cpu":
        return None
    return onednn.with_calls(module)


def _with_native_calls(module: ir.Module, device: Device | None) -> ir.Module | None:
    """``module`` with calls of this process's functions in C++; None where it has none."""
    if isinstance(device, Mesh) or xla.jax_device(device).platform != "cpu":
        return None
    return native_calls.with_calls(module)


def _settings(target: Any, module: ir.Module) -> dict[str, Any]:
    """The compiler's options for a program that runs many times."""
    if target.platform != "cpu":
        return dict(COMPILER_OPTIONS)
    own = {} if _has_arctangents(module) else processor.vector_options()
    return {**COMPILER_OPTIONS, **own, **dot_library.options(module)}


def _has_arctangents(module: ir.Module) -> bool:
    """Whether XLA:CPU may compute an arctangent of one number: of atan, atan2 or a complex power.

    With vectors of 512 bits the code for it is wrong where loops are vectorised (jaxlib 0.10.2; 16
    elements are right, 100 are not): lanes get the results of others, or 0.
    """
    fine: set[Any] = set()
    for op in operations(module.operation):
        if "atan" in op.name:
            return True
        for t in {r.type for r in op.results} - fine:
            if isinstance(t, ir.RankedTensorType) and isinstance(t.element_type, ir.ComplexType):
                return True
            fine.add(t)
    return False


def _serialize(executable: Any, target: Any) -> bytes | None:
    """Compiled code as bytes; None where the platform or the program does not allow it."""
    try:
        data = executable.serialize()
    except Exception as e:  # jaxlib names no class for it
        log.debug("a program cannot be serialised: %s", e)
        return None
    return data if target.platform != "cpu" or is_complete(data) else None


def _deserialize(device: Device | None, data: bytes, overrides: Mapping[str, Any]) -> Any:
    target = xla.jax_device(device)
    if target.platform == "cpu" and LAPACK in data:
        load_lapack()
    return _with_options(target.client.deserialize_executable, device, data, overrides)


class Loaded:
    """A compiled program on one device, or on a mesh: ``run(buffers)`` gives the list of results.

    ``module``: the program, or the bytes that :func:`machine_code` gave on a machine of the same
    :func:`fingerprint`. ``run_once``: compile fast rather than well. The disk cache is asked first,
    but not with ``fresh``; ``from_cache`` says whether it had the program. ``allowed``: targets of
    custom calls that a caller in Python allows.

    Raises UnsupportedError for a module that asks for what it may not have (``stablehlo.gate``).
    """

    __slots__ = ("_execute", "_handlers", "executable", "from_cache", "outputs")

    def __init__(
        self,
        module: ir.Module | bytes,
        outputs: Sequence[Any],
        device: Device | None,
        run_once: bool = False,
        fresh: bool = False,
        allowed: Iterable[str] = (),
    ) -> None:
        self.from_cache = False
        xla.check_fork()
        if not isinstance(module, bytes):
            check_mlir(module, allowed, xla.count(device))
        elif any(part.encode() in module for part in CALLBACKS):
            raise UnsupportedError(f"the compiled program cannot run: {CALLS_BACK}")
        target = xla.jax_device(device)
        run_once = run_once and target.platform == "cpu"
        if isinstance(module, bytes):
            if native_calls.TARGET.encode() in module:
                native_calls.require()
            self.executable = _deserialize(device, module, dict(COMPILER_OPTIONS))
        else:
            module = _annotated(module, device)
            options = (
                {**COMPILER_OPTIONS, **RUN_ONCE_OPTIONS} if run_once else _settings(target, module)
            )
            if not run_once:
                module = _with_native_calls(module, device) or module
            calls = None if run_once else _with_calls(module, device)
            if calls is not None:
                # Not for the disk cache: XLA has no way to write such code.
                self.executable = _compile(device, calls, options)
            elif fresh:
                self.executable = _compile(device, module, options)
            else:
                self.executable, self.from_cache = _cached(module, device, options)
        self.outputs = tuple(outputs)
        self._execute: Callable[[list[Any]], Any] = self.executable.execute_sharded
        if isinstance(device, Mesh):
            spread = mesh.Spread(self.executable, device, self.outputs)
            self._execute, places = spread.execute, spread.results
            handler: Callable[..., Any] = spread.handler
        else:
            places = [xla.sharding(device)] * len(self.outputs)
            handler = functools.partial(xc.array_result_handler, committed=True)
        self._handlers = [
            handler(a, where, **_UNCHECKED) for a, where in zip(self.outputs, places, strict=True)
        ]

    def run(self, buffers: list[Any]) -> list[Any]:
        """Run on jax arrays that lie on the device and fit the program; results in order.

        Arrays on a mesh are spread as the program wants them.
        """
        try:
            return self._execute(buffers).consume_with_handlers(self._handlers)
        except jax.errors.JaxRuntimeError as e:
            raise xla.of_xla("run", e) from e

    def memory(self) -> Any:
        """XLA's own account of the program's memory."""
        return self.executable.get_compiled_memory_stats()

    def types(self) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Shapes and dtypes of arguments and results, as XLA has them."""
        proto = self.executable.hlo_modules()[0].as_serialized_hlo_module_proto()
        shape = xc.XlaComputation(proto).program_shape()
        result = shape.result_shape()
        results = result.tuple_shapes() if result.is_tuple() else [result]
        return [_plain(s) for s in shape.parameter_shapes()], [_plain(s) for s in results]

    def hlo_text(self) -> str:
        """The optimised HLO."""
        return self.executable.get_hlo_text()


def _plain(shape: Any) -> tuple[Any, Any]:
    return tuple(shape.dimensions()), np.dtype(shape.numpy_dtype())


def _after_fork() -> None:
    """In the child of a fork: a program that is loaded would wait for XLA's threads."""
    Loaded.run = xla.refuse_after_fork


xla.AFTER_FORK.append(_after_fork)

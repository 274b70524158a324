"""Other ways to run the same file: the framework it comes from, or XLA without our passes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax2xla.cli.commands.inspect import STABLEHLO
from relax2xla.cli.process.console import note
from relax2xla.cli.reading.model import entry_name, nest
from relax2xla.cli.reading.values import flat_results, is_array
from relax2xla.errors import TVMError, UnsupportedError
from relax2xla.importers.files import format_of, load_exported
from relax2xla.ir import IRModule, TensorStructInfo
from relax2xla.runtime.device import Device


@dataclass(frozen=True, slots=True)
class Reference:
    """One way to run a model on given inputs: ``run()`` gives the flat results when computed."""

    name: str
    run: Callable[[], list[Any]]


def references(
    file: Path,
    mod: IRModule,
    flat: Sequence[Any],
    device: Device,
    threads: int | None = None,
    taps: Sequence[str] = (),
    interpreter: bool = False,
) -> Generator[tuple[Reference, list[Any]]]:
    """The references of ``verify`` (see its help) that can run the model, with their results.

    taps: values inside of an ONNX graph that are results too, after its outputs
    interpreter: StableHLO's, too, for files of StableHLO
    """
    kind = format_of(file).name
    if interpreter and kind in STABLEHLO:
        from relax2xla.importers.stablehlo import from_stablehlo

        program, args = static_program(file, mod, flat, device)
        yield from both_ways(
            from_stablehlo(program, raise_ops=False), args, device, "jax.jit of the file"
        )
        return
    if kind != "onnx":
        made = _reference(kind, file, mod, flat, device, threads)
        yield made, made.run()
        return
    from relax2xla.cli.proof.onnx_runtimes import runtimes

    refused: list[str] = []
    ways = runtimes(file, flat, threads, taps)
    for name, make in ways.items():
        try:
            made = Reference(name, make())
            results = made.run()
        except Exception as e:  # errors of other projects, without a common base class
            refused.append(f"{name} cannot run this model: {' '.join(str(e).split())[:200]}")
            note(refused[-1])
            continue
        yield made, results
    if len(refused) == len(ways):
        raise TVMError(f"{file}: there is nothing to compare with. {'; '.join(refused)}")


def _reference(
    kind: str, file: Path, mod: IRModule, flat: Sequence[Any], device: Device, threads: int | None
) -> Reference:
    if kind == "pt2":
        return torch_reference(file, mod, flat, threads)
    if kind == "relax":
        return unoptimised(mod, flat, device)
    return jit_reference(file, mod, flat, device)


def torch_reference(
    file: Path, mod: IRModule, flat: Sequence[Any], threads: int | None = None
) -> Reference:
    """The exported program, run by torch: its results, then what the program changes.

    mod: what was imported of it, whose parameters ``flat`` is for
    """
    import torch
    from torch.utils import _pytree as pytree

    from relax2xla.importers.torch.engine.tensor_data import from_numpy

    if threads is not None:
        torch.set_num_threads(threads)
    program = load_exported(file)
    module = program.module()
    args, kwargs = torch_arguments(program, flat)
    tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
    main = mod["main"]
    attrs = main.attrs
    buffers = module.state_dict(keep_vars=True)
    changed: dict[int, torch.Tensor] = {}
    for name, (param, result) in attrs.get("state", {}).items():
        changed[int(result)] = buffers[name]
        buffers[name].data.copy_(from_numpy(flat[int(param)]))
    names = [p.name_hint for p in main.params]
    for name, result in attrs.get("mutated_inputs", {}).items():
        changed[int(result)] = tensors[names.index(name)]

    def run() -> list[Any]:
        with torch.no_grad():
            found = pytree.tree_leaves(module(*args, **kwargs))
        after = [changed[at].clone() for at in sorted(changed)]
        return [v for v in (*found, *after) if v is not None]

    return Reference("torch", run)


def torch_arguments(program: Any, flat: Sequence[Any]) -> tuple[Any, Any]:
    """Arrays as the arguments of an exported program, nested as its example inputs are."""
    import torch
    from torch.utils import _pytree as pytree

    from relax2xla.importers.torch.engine.tensor_data import from_numpy

    tensors = [from_numpy(a) for a in flat]
    if program.example_inputs is None:
        return tuple(tensors[: len(program.graph_signature.user_inputs)]), {}
    leaves, spec = pytree.tree_flatten(program.example_inputs)
    rest = iter(tensors)
    mixed = [next(rest) if isinstance(v, torch.Tensor) else v for v in leaves]
    args, kwargs = pytree.tree_unflatten(mixed, spec)
    return args, kwargs


def unoptimised(mod: IRModule, flat: Sequence[Any], device: Device) -> Reference:
    """The module compiled by XLA as it is: nothing but lowered."""
    import jax

    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    machine = VirtualMachine(build(mod, relax_pipeline="zero"), device)
    main = machine[entry_name(list(machine.executable))]
    args = nest(main.params, on_device(flat, device))
    return Reference("XLA without passes", lambda: flat_results(jax.block_until_ready(main(*args))))


def on_device(flat: Sequence[Any], device: Device) -> list[Any]:
    """Arrays placed on ``device``, dtypes unchanged; other values as they are."""
    from relax2xla.vm.pjrt import xla

    return [xla.device_put(v, device) if is_array(v) else v for v in flat]


def jit_reference(file: Path, mod: IRModule, flat: Sequence[Any], device: Device) -> Reference:
    """The StableHLO program of the file, untouched by importer and passes, under ``jax.jit``."""
    return jitted(*static_program(file, mod, flat, device), device, "jax.jit of the file")


def static_program(
    file: Path, mod: IRModule, flat: Sequence[Any], device: Device
) -> tuple[Any, list[Any]]:
    """The MLIR module of a StableHLO file for the shapes of ``flat``, and its arguments.

    They are ``flat``, after the number of the platform where the program takes one.
    Raises TVMError for a program without a function ``main``.
    """
    import numpy as np

    from relax2xla.importers.beside import Found
    from relax2xla.importers.stablehlo import WEIGHTS, from_stablehlo
    from relax2xla.stablehlo import emit, parse
    from relax2xla.stablehlo.exported import PLATFORMS, is_exported, read_exported
    from relax2xla.stablehlo.specialise import specialise
    from relax2xla.vm.pjrt import xla

    attrs = mod["main"].attrs
    data = file.read_bytes()
    module = parse(read_exported(data).module if is_exported(data) else data)
    if WEIGHTS in module.operation.attributes or "dense_resource<" in str(module):
        # What lies in another file, or behind the program, is put into it: else only we can run it.
        held = from_stablehlo(data, raise_ops=False, weights=Found(file.parent))
        module = emit(held, resources=False)
    if PLATFORMS in attrs:
        place = attrs[PLATFORMS].index(xla.platform(device))
        flat = [np.asarray(place, np.int32), *flat]
    infos = [xla.value_info(v) for v in flat]
    # The program itself, as ``mod`` may have its shapes bound already.
    main = from_stablehlo(module, raise_ops=False)["main"]
    if [p.struct_info for p in main.params] != infos:
        module = specialise(module, infos)
    if "@main" not in str(module):
        raise TVMError(f"{file}: the program has no function @main, so nothing else can run it")
    return module, list(flat)


def jitted(program: Any, flat: Sequence[Any], device: Device, name: str) -> Reference:
    """An MLIR module of static shapes as it is, under ``jax.jit``.

    Raises UnsupportedError and BudgetError for one that ends XLA.
    """
    import jax

    from relax2xla.importers.stablehlo import from_stablehlo
    from relax2xla.stablehlo.untrusted.gate_mlir import check_mlir
    from relax2xla.vm.pjrt import jit, xla

    check_mlir(program)
    main = from_stablehlo(program, raise_ops=False)["main"]
    text = str(program)
    outputs = [xla.aval(i) for i in flat_infos(main.ret_struct_info)]
    compiled = jax.jit(lambda *args: jit.inline_program(args, text, outputs))
    placed = on_device(flat, device)

    def run() -> list[Any]:
        with jax.enable_x64(True):
            return list(jax.block_until_ready(compiled(*placed)))

    return Reference(name, run)


def by_interpreter(program: IRModule, flat: Sequence[Any]) -> Reference:
    """A program of rows and static shapes, run by StableHLO's reference interpreter."""
    from relax2xla.runtime.convert import to_host
    from relax2xla.stablehlo.interpreter import interpret

    args = [to_host(v) for v in flat]
    return Reference("StableHLO's interpreter", lambda: list(interpret(program, args)))


def both_ways(
    program: IRModule, flat: Sequence[Any], device: Device, name: str
) -> Generator[tuple[Reference, list[Any]]]:
    """A program of rows by the interpreter, where that can run it, and by XLA as it stands."""
    from relax2xla.stablehlo.emitter import emit

    made = by_interpreter(program, flat)
    try:
        yield made, made.run()
    except UnsupportedError as e:
        note(f"left out: {e}")
    made = jitted(emit(program, resources=False), flat, device, name)
    yield made, made.run()


def flat_infos(info: Any) -> list[TensorStructInfo]:
    """Struct infos of the arrays in a result, in order."""
    from relax2xla.ir.struct_info import flatten_info

    return [i for i in flatten_info(info) if isinstance(i, TensorStructInfo)]

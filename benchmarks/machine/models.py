"""ResNet-50 and BERT-base: latency, time to import and compile, memory, beside the peers.

Everything runs in one process on one core, the variants in turn. The JAX peers are the same
networks written in JAX in their fastest form, with weights as arguments (``benchmarks/peers``).
TVM, which takes seconds a call, is measured by ``tvm_resnet50.py`` beside this file, in an
environment of its own. Steps of compilation are given in the process's own CPU time, the shortest
of some rounds.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from typing import Any

# One core for everybody: the process before any runtime starts its threads.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
# Programs are compiled here, whatever was compiled before.
os.environ["RELAX2XLA_CACHE"] = "0"

import jax
import numpy as np
import torch

import relax2xla as rx
from benchmarks.peers import bert_jax, resnet50_jax
from benchmarks.peers.onnxruntime_options import one_thread
from benchmarks.timing import interleaved, table
from examples.models import MODELS
from relax2xla.frontend.torch import from_exported_program
from relax2xla.vm.pjrt import compiler, xla

PEERS = {"resnet50": resnet50_jax, "bert_base": bert_jax}


def _rss() -> float:
    """Peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _onnxruntime(network: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """A session of ONNX Runtime on one thread, and its feeds; None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    import io

    buffer = io.BytesIO()
    program = torch.onnx.export(network, inputs, dynamo=True, verbose=False)
    if program is None:
        return None
    save: Any = program.save  # it takes a file as well, which its annotation does not say
    save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue(), one_thread())
    feeds = {i.name: t.numpy() for i, t in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feeds)


OURS = ("passes (build)", "specialise and lower", "write StableHLO")
COMPILE = "XLA's compile"


def _clocked(run: Callable[[], Any]) -> tuple[Any, float]:
    """What ``run`` gives, and the CPU time that it took in this process."""
    start = time.process_time()
    return run(), time.process_time() - start


def compile_path(mod: rx.IRModule, rounds: int) -> dict[str, float]:
    """CPU time of each step from the module to XLA's program, the shortest of all rounds."""
    times: dict[str, list[float]] = {}

    def step(label: str, run: Callable[[], Any]) -> Any:
        result, seconds = _clocked(run)
        times.setdefault(label, []).append(seconds)
        return result

    for _ in range(rounds):
        main = rx.VirtualMachine(step(OURS[0], lambda: rx.build(mod)))["main"]
        infos = [p.struct_info for p in main.params]
        program = step(OURS[1], lambda main=main, infos=infos: main.specialised.program(infos))
        step(OURS[2], lambda program=program: rx.stablehlo.emit(program.module))
        module, _ = main.specialised.lowered(infos)
        avals = [xla.aval(o) for o in program.outputs]
        step(COMPILE, lambda module=module, avals=avals: compiler.Loaded(module, avals, None))
    return {label: min(found) for label, found in times.items()}


def measure(name: str, rounds: int) -> None:
    """Print the tables of one model."""
    network = MODELS[name].build()
    inputs = MODELS[name].example_inputs()
    host = [t.numpy() for t in inputs]
    weights = sum(p.numel() * p.element_size() for p in network.parameters()) / 2**20
    exported = torch.export.export(network, inputs)
    before = _rss()

    mod, imported = _clocked(lambda: from_exported_program(exported))
    executable = rx.build(mod)
    main = rx.VirtualMachine(executable)["main"]
    _, placed_in = _clocked(lambda: jax.block_until_ready(main.weights()))
    main.warm([p.struct_info for p in main.params])
    peak = _rss() - before
    steps = {
        "import (from_exported_program)": imported,
        "weights placed, and what is computed from them alone": placed_in,
        **compile_path(mod, 2 if rounds < 10 else 6),
    }

    peer = PEERS[name]
    params = jax.device_put(peer.from_torch(network))
    jitted = jax.jit(peer.apply)
    lowered = jitted.lower(params, *host)
    steps["XLA's compile of the JAX peer"] = _clocked(lowered.compile)[1]
    # jax.device_put would narrow 64-bit inputs; the peer gets them as JAX takes them.
    placed = [xla.device_put(h, None) for h in host]
    narrow = [jax.device_put(h) for h in host]
    variants: dict[str, Callable[[], Any]] = {
        "relax2xla": lambda: jax.block_until_ready(main(*placed)),
        "jax.jit": lambda: jax.block_until_ready(jitted(params, *narrow)),
    }

    def eager() -> Any:
        with torch.no_grad():
            return network(*inputs)

    variants["torch eager"] = eager
    session = _onnxruntime(network, inputs)
    if session is not None:
        variants["ONNX Runtime"] = session
    ours, reference = main(*placed), eager()
    first = (ours if isinstance(ours, tuple) else (ours,))[0]
    expected = reference if isinstance(reference, torch.Tensor) else reference[0]
    error = float(np.abs(np.asarray(first) - expected.numpy()).max())
    print(
        f"\n## {name}\n\nweights {weights:.0f} MiB; maximum absolute error to torch {error:.1e}\n"
    )
    print(table(interleaved(variants, rounds, warmup=2), "jax.jit", "ms"))
    print("\n| step | CPU ms |\n|---|---|")
    for label, seconds in steps.items():
        print(f"| {label} | {1000 * seconds:.0f} |")
    ours = sum(steps[label] for label in OURS)
    print(f"\nours in the compile path: {ours / steps[COMPILE]:.3f} of XLA's compile")
    print(
        f"\npeak memory of import, build and load beyond the frameworks' own: {peak:.0f} MiB "
        f"({peak / weights:.2f} times the weights)"
    )


def main(quick: bool = False) -> None:
    """Print the tables of both models."""
    torch.set_num_threads(1)
    for name in PEERS:
        measure(name, 3 if quick else 20)

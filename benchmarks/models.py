"""ResNet-50 and BERT-base: latency, time to import and compile, memory, beside the peers.

Everything runs in one process on one core, the variants in turn. The JAX peers are the same
networks written in JAX in their fastest form, with weights as arguments (``benchmarks/peers``).
TVM, which
takes seconds a call, is measured by ``benchmarks/tvm_resnet50.py`` in an environment of its own.
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

import jax
import numpy as np
import torch

import relax2xla as rx
from benchmarks.peers import bert_jax, resnet50_jax
from benchmarks.timing import interleaved, table
from examples.models import MODELS
from relax2xla.frontend.torch import from_exported_program
from relax2xla.vm import xla

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
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(buffer.getvalue(), options)
    feeds = {i.name: t.numpy() for i, t in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feeds)


def measure(name: str, rounds: int) -> None:
    """Print the tables of one model."""
    network = MODELS[name].build()
    inputs = MODELS[name].example_inputs()
    host = [t.numpy() for t in inputs]
    weights = sum(p.numel() * p.element_size() for p in network.parameters()) / 2**20
    exported = torch.export.export(network, inputs)
    before = _rss()

    steps: dict[str, float] = {}

    def step(label: str, run: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = run()
        steps[label] = time.perf_counter() - start
        return result

    mod = step("import (from_exported_program)", lambda: from_exported_program(exported))
    executable = step("build (passes)", lambda: rx.build(mod))
    main = rx.VirtualMachine(executable)["main"]
    step("weights (placed and transformed)", lambda: jax.block_until_ready(main.weights()))
    infos = [p.struct_info for p in main.params]
    program = step("specialise and lower", lambda: main.program(infos))
    step("write StableHLO", lambda: rx.stablehlo.emit(program.module))
    step("all of the above but import and weights, and XLA's compile", lambda: main.warm(infos))
    peak = _rss() - before

    peer = PEERS[name]
    params = jax.device_put(peer.from_torch(network))
    jitted = jax.jit(peer.apply)
    step("XLA's compile of the JAX peer", lambda: jitted.lower(params, *host).compile())
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
    print("\n| step | ms |\n|---|---|")
    for label, seconds in steps.items():
        print(f"| {label} | {1000 * seconds:.0f} |")
    print(
        f"\npeak memory of import, build and load beyond the frameworks' own: {peak:.0f} MiB "
        f"({peak / weights:.2f} times the weights)"
    )


def main(quick: bool = False) -> None:
    """Print the tables of both models."""
    torch.set_num_threads(1)
    for name in PEERS:
        measure(name, 3 if quick else 20)

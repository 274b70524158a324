"""A saved BERT-base beside the build from the exported program: time to the first result.

Every variant runs in processes of its own on one core, in turn; starting Python and importing the
frameworks is not counted. Shown are wall clock and the process's own CPU time, which says more on a
busy machine. "second call" is one inference after the first; reading the weights is
``numpy.fromfile`` of a file of the same size. The peers: "JAX's own" is the same network written in
JAX (``benchmarks/peers``), saved by ``jax.experimental.serialize_executable`` with its weights as
mapped ``.npy`` files, none of which is checked; "ONNX Runtime" makes a session of an optimised
``.ort`` file.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.onnxruntime_options import one_thread
from benchmarks.timing import table

VARIANTS = (
    *("build", "load", "load, warm disk cache", "read weights"),
    *("JAX's own, loaded", "ONNX Runtime, loaded"),
)


def _pinned() -> None:
    """One core for everybody: the process before any runtime starts its threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def prepare(folder: Path) -> None:
    """Export the model with torch, save it in every form, and fill the disk cache."""
    import torch

    import relax2xla as rx
    from examples.models import MODELS
    from relax2xla.frontend.torch import from_exported_program

    torch.set_num_threads(1)
    model = MODELS["bert_base"]
    inputs = model.example_inputs()
    exported = torch.export.export(model.build(), inputs)
    torch.export.save(exported, folder / "model.pt2")
    np.savez(folder / "inputs.npz", *(t.numpy() for t in inputs))
    executable = rx.build(from_exported_program(exported))
    executable.export_library(folder / "compiled.r2x")
    executable.export_library(folder / "plain.r2x", compiled=False)
    os.environ["RELAX2XLA_CACHE"] = "1"
    first_result("load, warm disk cache", folder)
    weights = (folder / "plain.r2x").stat().st_size
    np.zeros(weights, np.uint8).tofile(folder / "weights.bin")
    prepare_jax(folder, model.build())
    prepare_onnxruntime(folder, model.build(), inputs)


def prepare_jax(folder: Path, network: Any) -> None:
    """The network in JAX, compiled and saved, and each weight as a file that can be mapped."""
    import jax
    from jax.experimental import serialize_executable

    from benchmarks.peers import bert_jax

    params = bert_jax.from_torch(network)
    leaves = jax.tree.leaves(params)
    (folder / "jax").mkdir()
    for i, leaf in enumerate(leaves):
        np.save(folder / "jax" / f"{i}.npy", leaf)
    compiled = jax.jit(bert_jax.apply).lower(params, *inputs_of(folder)).compile()
    payload, *trees = serialize_executable.serialize(compiled)
    (folder / "jax" / "code.xla").write_bytes(payload)
    (folder / "jax" / "trees.pkl").write_bytes(pickle.dumps((jax.tree.structure(params), *trees)))


def jax_loaded(folder: Path) -> tuple[Any, Any]:
    """What :func:`prepare_jax` saved: the program and its weights."""
    import jax
    from jax.experimental import serialize_executable

    structure, *trees = pickle.loads((folder / "jax" / "trees.pkl").read_bytes())
    code = (folder / "jax" / "code.xla").read_bytes()
    run = serialize_executable.deserialize_and_load(code, *trees)
    files = [folder / "jax" / f"{i}.npy" for i in range(structure.num_leaves)]
    arrays = [jax.device_put(np.load(f, mmap_mode="r")) for f in files]
    return run, jax.tree.unflatten(structure, arrays)


def prepare_onnxruntime(folder: Path, network: Any, inputs: tuple[Any, ...]) -> None:
    """The network in ONNX Runtime's own format, optimised for this machine."""
    import onnxruntime
    import torch

    program: Any = torch.onnx.export(network, inputs, dynamo=True, verbose=False)
    program.save(folder / "model.onnx")
    options = one_thread()
    options.optimized_model_filepath = str(folder / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(folder / "model.onnx", options)


def inputs_of(folder: Path) -> list[np.ndarray]:
    """The example inputs."""
    with np.load(folder / "inputs.npz") as archive:
        return [archive[n] for n in archive.files]


class Clock:
    """Wall clock and CPU time since a moment, in seconds."""

    def __init__(self) -> None:
        self.start = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Both until now."""
        return time.perf_counter() - self.start[0], time.process_time() - self.start[1]


def first_result(variant: str, folder: Path) -> dict[str, tuple[float, float]]:
    """Wall clock and CPU time to the first result of one variant, and of a second call."""
    import jax

    import relax2xla as rx

    jax.block_until_ready(jax.numpy.zeros(1))  # the runtime is there
    inputs = inputs_of(folder)
    exported: Any = None
    if variant == "build":
        import torch

        from relax2xla.frontend.torch import from_exported_program

        torch.set_num_threads(1)
        exported = torch.export.load(folder / "model.pt2")
        clock = Clock()
        executable = rx.build(from_exported_program(exported))
    elif variant == "read weights":
        clock = Clock()
        np.fromfile(folder / "weights.bin", np.uint8)
        return {variant: clock.read()}
    elif variant == "JAX's own, loaded":
        from jax.experimental import serialize_executable

        assert serialize_executable  # imported before the clock starts
        clock = Clock()
        run, params = jax_loaded(folder)
        jax.block_until_ready(run(params, *inputs))
        return {variant: clock.read()}
    elif variant == "ONNX Runtime, loaded":
        import onnxruntime

        clock = Clock()
        session = onnxruntime.InferenceSession(folder / "model.ort", one_thread())
        session.run(None, {i.name: x for i, x in zip(session.get_inputs(), inputs, strict=True)})
        return {variant: clock.read()}
    else:
        load: Any = rx.load_module  # imported before the clock starts, as the others are
        name = "compiled.r2x" if variant == "load" else "plain.r2x"
        clock = Clock()
        executable = load(folder / name)
    main = rx.VirtualMachine(executable)["main"]
    jax.block_until_ready(main(*inputs))
    took = clock.read()
    clock = Clock()
    jax.block_until_ready(main(*inputs))
    again = clock.read()
    return {variant: took, **({"second call": again} if variant == "load" else {})}


def main(quick: bool = False) -> None:
    """Print the table of all variants."""
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, "RELAX2XLA_CACHE_DIR": str(Path(name) / "cache")}

        def child(*words: str, cache: str) -> str:
            command = [sys.executable, "-m", "benchmarks.machine.aot", name, *words]
            given = {**environment, "RELAX2XLA_CACHE": cache}
            done = subprocess.run(command, env=given, stdout=-1, stderr=-1, text=True, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr)
            return done.stdout

        child("prepare", cache="1")
        wall: dict[str, list[float]] = {}
        busy: dict[str, list[float]] = {}
        for _ in range(2 if quick else 7):
            for variant in VARIANTS:
                cache = "1" if "cache" in variant else "0"
                took = json.loads(child(variant, cache=cache).splitlines()[-1])
                for step, (seconds, cpu) in took.items():
                    wall.setdefault(step, []).append(seconds)
                    busy.setdefault(step, []).append(cpu)
        for kind, times in (("wall clock", wall), ("CPU time", busy)):
            print(f"\nBERT-base, to the first result, {kind}\n")
            print(table(times, "build"))
        size = (Path(name) / "compiled.r2x").stat().st_size / 2**20
        print(f"\ncompiled.r2x: {size:.1f} MiB")


if __name__ == "__main__":
    _pinned()
    where, what = Path(sys.argv[1]), sys.argv[2]
    if what == "prepare":
        prepare(where)
    else:
        print(json.dumps(first_result(what, where)))

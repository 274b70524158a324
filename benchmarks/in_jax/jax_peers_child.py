"""What a process of :mod:`benchmarks.in_jax.jax_peers` runs, in the environment of a peer.

``python -m benchmarks.in_jax.jax_peers_child PEER FOLDER NETWORK...`` prints a line of JSON for
each network. PEER "export" writes, for the others, FOLDER/NETWORK.npz (inputs, results and
gradients of the parameters), NETWORK.onnx, and NETWORK.plain.onnx, which torch has not optimised:
there parameters are what they are in the module, so that is what gradients are of.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# What a peer gives: a function of parameters by torch's names, and of arrays; and parameters.
Made = tuple[Callable[..., Any], dict[str, Any]]


def _torchs(name: str) -> tuple[Any, tuple[Any, ...]]:
    from tests.importers.zoo import NETWORKS

    return NETWORKS[name].build(), NETWORKS[name].arguments()


def by_relax2xla(name: str, file: Path) -> Made:
    import relax2xla

    fn, params = relax2xla.jax_function(*_torchs(name))
    return fn, params


def by_relax2xla_onnx(name: str, file: Path) -> Made:
    import relax2xla

    fn, params = relax2xla.jax_function(str(file))
    return fn, params


def by_torchax(name: str, file: Path) -> Made:
    import torchax

    module, _ = _torchs(name)
    states, function = torchax.extract_jax(module)
    trained = {n for n, p in module.named_parameters()}
    held = {n: v for n, v in states.items() if n not in trained}
    params = {n: v for n, v in states.items() if n in trained}
    return lambda params, *args: function({**held, **params}, args), params


def by_torch2jax(name: str, file: Path) -> Made:
    from torch2jax import t2j

    module, _ = _torchs(name)
    function = t2j(module)
    held = {n: t2j(v) for n, v in module.named_buffers()}
    params = {n: t2j(p) for n, p in module.named_parameters()}
    return lambda params, *args: function(*args, state_dict={**held, **params}), params


def by_jaxonnxruntime(name: str, file: Path) -> Made:
    import jax
    import onnx
    from jaxonnxruntime import call_onnx, config

    # ONNX's sizes are of 64 bits.
    jax.config.update("jax_enable_x64", True)
    config.update("jaxort_only_allow_initializers_as_static_args", False)
    model = onnx.load(str(file))
    names = [i.name for i in model.graph.input]
    with np.load(file.parent / f"{name}.npz") as held:
        inputs = {n: held[f"input {i}"] for i, n in enumerate(names)}
    function, params = call_onnx.call_onnx_model(model, inputs)
    floats = {n: v for n, v in params.items() if np.asarray(v).dtype.kind == "f"}
    rest = {n: v for n, v in params.items() if n not in floats}
    return (
        lambda params, *args: function({**rest, **params}, dict(zip(names, args, strict=True))),
        floats,
    )


PEERS: dict[str, Callable[[str, Path], Made]] = {
    "relax2xla": by_relax2xla,
    "torchax": by_torchax,
    "torch2jax": by_torch2jax,
    "relax2xla, ONNX": by_relax2xla_onnx,
    "jaxonnxruntime": by_jaxonnxruntime,
}


def export(name: str, folder: Path) -> dict[str, str]:
    """Write what the others need of a network."""
    import torch

    module, args = _torchs(name)
    held = {f"input {i}": a.numpy() for i, a in enumerate(args)}
    made = _leaves(module(*args))
    held |= {f"output {i}": y.detach().numpy() for i, y in enumerate(made)}
    sum((y**2).mean() for y in made if y.is_floating_point()).backward()
    for path, p in module.named_parameters():
        if p.grad is not None:
            held[f"grad {path}"] = p.grad.numpy()
    np.savez(folder / f"{name}.npz", **held)
    for kind, optimise in (("", True), (".plain", False)):
        program: Any = torch.onnx.export(
            module, args, dynamo=True, verbose=False, opset_version=18, optimize=optimise
        )
        program.save(str(folder / f"{name}{kind}.onnx"))
    return {}


def _leaves(made: Any) -> list[Any]:
    """Arrays of a result, in order."""
    if isinstance(made, dict):
        return [y for v in made.values() for y in _leaves(v)]
    if isinstance(made, list | tuple):
        return [y for v in made for y in _leaves(v)]
    return [] if made is None else [made]


def tried(peer: str, name: str, folder: Path) -> dict[str, str]:
    """What is right of a network: "values" and "grad"."""
    import jax

    with np.load(folder / f"{name}.npz") as file:
        held = dict(file)
    expected = [held[k] for k in held if k.startswith("output ")]
    optimised, plain = (folder / f"{name}{kind}.onnx" for kind in ("", ".plain"))
    fn, params = PEERS[peer](name, optimised)
    made = _leaves(jax.jit(fn)(params, *_arguments(held)))
    right = len(made) == len(expected) and all(map(_close, made, expected))
    said = {"values": "yes" if right else "other"}
    # The parameters of an optimised file may be others, of which other gradients say nothing.
    for file in (optimised, plain) if "onnx" in peer.lower() else (optimised,):
        try:
            said |= _gradients(*PEERS[peer](name, file), held)
        except Exception as e:
            said |= {"grad": f"{type(e).__name__}: {str(e)[:200]}"}
        if said["grad"] == "yes":
            break
    return said


def _arguments(held: dict[str, Any]) -> list[Any]:
    import jax.numpy as jnp

    return [jnp.asarray(held[k]) for k in held if k.startswith("input ")]


def _gradients(fn: Callable[..., Any], params: Any, held: dict[str, Any]) -> dict[str, str]:
    """Whether the gradients of the parameters of torch's names are torch's, and of how many."""
    import jax
    import jax.numpy as jnp

    def loss(params: Any) -> Any:
        made = _leaves(fn(params, *_arguments(held)))
        return sum((y**2).mean() for y in made if jnp.issubdtype(y.dtype, jnp.floating))

    grads = _flat(jax.jit(jax.grad(loss))(params))
    known = {k.removeprefix("grad "): g for k, g in held.items() if k.startswith("grad ")}
    found = {n: g for n, g in grads.items() if n in known}
    # Some are 0 but for rounding, as those of the biases of keys.
    least = 1e-3 * max(float(np.abs(g).max(initial=0)) for g in known.values())
    good = found and all(_close(g, known[n], least) for n, g in found.items())
    return {"grad": "yes" if good else "other", "parameters": f"{len(found)}/{len(known)}"}


def _close(made: Any, expected: Any, least: float = 1e-6) -> bool:
    """Whether arrays agree but for sums of float32 in another order, beside values of ``least``."""
    made, scale = np.asarray(made), max(float(np.abs(expected).max(initial=0)), least)
    error = np.abs(made - expected).max(initial=0) if made.shape == expected.shape else np.inf
    return bool(error < 1e-3 * scale)


def _flat(tree: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {".".join(path): tree}
    return {k: v for n, v in tree.items() for k, v in _flat(v, (*path, n)).items()}


def main() -> None:
    """Say of each network what became of it."""
    warnings.simplefilter("ignore")
    what, folder, *names = sys.argv[1:]
    for name in names:
        try:
            said = (
                export(name, Path(folder)) if what == "export" else tried(what, name, Path(folder))
            )
        except Exception as e:
            said = {"error": f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"}
        print(json.dumps({"name": name, **said}), flush=True)


if __name__ == "__main__":
    main()

"""The tour: one network by three routes into Relax and onto XLA, then two large ones timed.

    python -m examples.demo

needs the extra demo (in a clone: pip install '.[demo]').
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import statistics
import textwrap
import time
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import onnxruntime
import torch
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import relax2xla as rx
from examples.models import MODELS
from relax2xla.cli.commands.inspect import operators
from relax2xla.cli.figures.timing import interleaved, ratio, rounds_for
from relax2xla.frontend.onnx import from_onnx
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.frontend.torch import from_exported_program

console = Console(highlight=False)


class Digits(nn.Module):
    """Images (n, 1, 8, 8) of handwritten digits to logits (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv1(images))
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.head(x.flatten(1))


@dataclass(frozen=True)
class Split:
    """Images (n, 1, 8, 8) in 0..1 and labels, to learn from and held out."""

    images: torch.Tensor
    labels: torch.Tensor
    unseen: torch.Tensor
    truth: np.ndarray


def digits() -> Split:
    """scikit-learn's bundled digits; one in five is held out."""
    found = load_digits()
    images = (found.images[:, None] / 16).astype(np.float32)
    a, b, labels, truth = train_test_split(images, found.target, test_size=0.2, random_state=0)
    return Split(torch.from_numpy(a), torch.from_numpy(labels), torch.from_numpy(b), truth)


def train(data: Split, epochs: int) -> nn.Module:
    """A trained network in eval mode, the same for each run."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the faster way for so small a network
    network = Digits()
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(data.images)).split(64):
            loss = nn.functional.cross_entropy(network(data.images[batch]), data.labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    torch.set_num_threads(threads)
    return network.eval()


# -- the three routes ------------------------------------------------------------------------------
def by_torch_export(network: nn.Module, images: torch.Tensor) -> rx.IRModule:
    """torch.export, then the PyTorch importer."""
    return from_exported_program(torch.export.export(network, (images,)))


def by_onnx(network: nn.Module, images: torch.Tensor) -> rx.IRModule:
    """torch.onnx, then the ONNX importer."""
    return from_onnx(onnx_bytes(network, (images,)))


def by_jax(network: nn.Module, images: torch.Tensor) -> rx.IRModule:
    """The same network in JAX with the same weights, lowered to StableHLO, then its importer."""
    weights = {name: value.numpy() for name, value in network.state_dict().items()}

    def conv(x: jax.Array, name: str) -> jax.Array:
        y = jax.lax.conv(x, weights[f"{name}.weight"], (1, 1), "SAME")
        return jax.nn.relu(y + weights[f"{name}.bias"][:, None, None])

    def apply(x: jax.Array) -> jax.Array:
        x = conv(conv(x, "conv1"), "conv2")
        window = (1, 1, 2, 2)
        x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, window, "VALID")
        return x.reshape(len(x), -1) @ weights["head.weight"].T + weights["head.bias"]

    return from_stablehlo(jax.jit(apply).lower(images.numpy()))


def onnx_bytes(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    """The network as an ONNX file's contents."""
    file = io.BytesIO()
    program = torch.onnx.export(network, inputs, dynamo=True, verbose=False)
    program.save(file)
    return file.getvalue()


ROUTES: dict[str, Callable[[nn.Module, torch.Tensor], rx.IRModule]] = {
    "torch.export": by_torch_export,
    "ONNX": by_onnx,
    "StableHLO from JAX": by_jax,
}


# -- the tour --------------------------------------------------------------------------------------
@contextlib.contextmanager
def step(message: str) -> Generator[None]:
    """Say what is happening, and afterwards how long it took."""
    start = time.perf_counter()
    with console.status(message):
        yield
    console.print(f"[green]✓[/] {message} [dim]({time.perf_counter() - start:.1f} s)[/]")


def first(value: Any) -> Any:
    """The first result of a function that gives a tuple."""
    return value[0] if isinstance(value, tuple) else value


def classify(quick: bool) -> None:
    """Train, import by each route, and compare on the images held out."""
    data = digits()
    with step(f"Training a digit classifier in torch on {len(data.images)} images"):
        network = train(data, 2 if quick else 10)
    with torch.no_grad():
        expected = network(data.unseen).numpy()

    table = Table(title="One network, four ways", title_justify="left")
    for name in ("route", "difference to torch", "accuracy on unseen images"):
        table.add_column(name, justify="left" if name == "route" else "right")

    def add(name: str, logits: np.ndarray) -> None:
        accuracy = float((logits.argmax(1) == data.truth).mean())
        table.add_row(name, f"{np.abs(logits - expected).max():.1e}", f"{accuracy:.2%}")

    add("torch itself", expected)
    mods: dict[str, rx.IRModule] = {}
    for name, route in ROUTES.items():
        with step(f"{name} → Relax → XLA"):
            mods[name] = route(network, data.unseen)
            run = rx.VirtualMachine(rx.build(mods[name]))["main"]
            add(name, np.asarray(first(run(data.unseen.numpy()))))
    console.print()
    console.print("[bold]As Relax, by torch.export[/] (mod.script() gives all of it)")
    text = mods["torch.export"].script().split("def main", 1)[1].splitlines()[1:10]
    body = textwrap.dedent("\n".join(text))
    console.print(Syntax(body, "python", background_color="default"), "    ...", sep="")
    counts = operators(list(mods["StableHLO from JAX"].relax_functions().values()))
    listed = ", ".join(f"{name.removeprefix('stablehlo.')} {n}" for name, n in counts.items())
    console.print(f"[bold]By JAX it arrives as StableHLO operations:[/] {listed}\n")
    console.print(table)


def latency(quick: bool) -> None:
    """ResNet-50 and BERT-base beside torch and ONNX Runtime, all in turn."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    table = Table(title=f"Latency in ms, batch 1, {cores} CPU cores", title_justify="left")
    for name in ("network", "relax2xla", "torch", "ONNX Runtime", "difference to torch"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for name, label in (("resnet50", "ResNet-50"), ("bert_base", "BERT-base")):
        label = f"{label}, small" if quick else label
        with step(f"{label}: import and compile"):
            network = MODELS[name].build(small=quick)
            inputs = MODELS[name].example_inputs(small=quick)
            mod = from_exported_program(torch.export.export(network, inputs))
            run = rx.VirtualMachine(rx.build(mod))["main"]
            arrays = [t.numpy() for t in inputs]
            ours = np.asarray(first(run(*arrays)))
        with step(f"{label}: export for ONNX Runtime"):
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            session = onnxruntime.InferenceSession(onnx_bytes(network, inputs), options)
            feeds = {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
        variants: dict[str, Callable[[], Any]] = {
            "relax2xla": lambda run=run, arrays=arrays: jax.block_until_ready(run(*arrays)),
            "torch": torch.no_grad()(lambda network=network, inputs=inputs: network(*inputs)),
            "ONNX Runtime": lambda session=session, feeds=feeds: session.run(None, feeds),
        }
        with step(f"{label}: measure"):
            rounds = rounds_for(variants, seconds=0.2 if quick else 12)
            times = interleaved(variants, rounds, warmup=0, untimed=1)
        cells = [
            f"{1e3 * statistics.median(values):.1f}"
            + ("" if variant == "relax2xla" else f" ({ratio(times, variant, 'relax2xla'):.2f}×)")
            for variant, values in times.items()
        ]
        error = np.abs(ours - first(variants["torch"]()).numpy()).max()
        table.add_row(label, *cells, f"{error:.1e}")
    console.print()
    console.print(table)
    console.print("[dim]Medians; in brackets the time relative to relax2xla's.[/]")


def main(quick: bool = False) -> None:
    """Everything; ``quick`` trains less and times the networks at a small size."""
    warnings.simplefilter("ignore")  # of exporters, about their own deprecations
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    console.rule("relax2xla: PyTorch, ONNX and JAX models on XLA")
    classify(quick)
    console.rule("Two larger networks")
    latency(quick)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="small networks: does it work?")
    main(parser.parse_args().quick)

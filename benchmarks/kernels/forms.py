"""Convolutions and products in their forms on XLA:CPU: the facts behind kernels/onednn/choice.py.

Each shape is built twice, as rows (what the other passes make of it) and for oneDNN, and the two
run in turn on one core. Times are the process's own CPU time.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

# One core for everybody: the process before any runtime starts its threads.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np

import relax2xla as rx
from relax2xla import op, processor
from relax2xla.ir import Expr
from relax2xla.kernels.native import Tensor
from relax2xla.kernels.onednn import choice
from relax2xla.kernels.onednn.calls import Call, Convolution, Product

RNG = np.random.default_rng(0)


class Shape(NamedTuple):
    """A square convolution: pixels a side, channels in and out, taps a side, steps, groups."""

    pixels: int
    inner: int
    outer: int
    taps: int
    step: int = 1
    groups: int = 1


# From ResNet, RegNet, MobileNet, EfficientNet, ConvNeXt and ViT.
CONVOLUTIONS = (
    *(Shape(224, 3, 64, 7, 2), Shape(224, 3, 32, 3, 2), Shape(224, 3, 96, 4, 4)),
    *(Shape(56, 64, 64, 3), Shape(28, 128, 128, 3), Shape(14, 256, 256, 3), Shape(7, 512, 512, 3)),
    *(Shape(56, 128, 128, 3, 2), Shape(14, 512, 512, 3, 2), Shape(128, 32, 32, 3)),
    *(Shape(28, 64, 32, 5), Shape(17, 192, 192, 7), Shape(14, 32, 32, 3), Shape(7, 32, 32, 3)),
    *(Shape(56, 64, 256, 1), Shape(14, 256, 1024, 1), Shape(7, 2048, 512, 1)),
    *(Shape(56, 256, 512, 1, 2), Shape(112, 16, 64, 1), Shape(28, 40, 240, 1)),
    *(Shape(56, 128, 128, 3, 1, 32), Shape(28, 256, 256, 3, 2, 32), Shape(7, 1024, 1024, 3, 1, 32)),
    *(Shape(56, 48, 48, 3, 1, 2), Shape(28, 120, 120, 3, 1, 5), Shape(7, 888, 888, 3, 1, 37)),
    *(Shape(28, 64, 64, 3, 1, 8), Shape(14, 32, 32, 3, 1, 8), Shape(7, 16, 16, 3, 1, 4)),
    *(
        Shape(n, c, c, k, s, c)
        for n, c in ((112, 96), (28, 240), (7, 960))
        for k in (3, 5)
        for s in (1, 2)
    ),
    *(Shape(56, 96, 96, 7, 1, 96), Shape(14, 384, 384, 7, 1, 384), Shape(7, 64, 64, 3, 1, 64)),
)
# Rows, features in, features out.
PRODUCTS = ((1, 768, 3072), (16, 768, 3072), (128, 768, 768), (512, 768, 3072))


def _cases() -> Iterator[tuple[str, Call, Callable[..., Expr], list[np.ndarray[Any, Any]]]]:
    for s in CONVOLUTIONS:
        pad = s.taps // 2 if s.taps % 2 else 0
        window = (s.taps, s.taps, s.inner // s.groups, s.outer)
        described = Convolution(
            (1, s.pixels, s.pixels, s.inner), window, (s.step,) * 2, (pad,) * 4, (1, 1), s.groups
        )

        def convolve(x: Expr, w: Expr, s: Shape = s, pad: int = pad) -> Expr:
            return op.nn.conv2d(
                x, w, s.step, pad, 1, s.groups, data_layout="NHWC", kernel_layout="HWIO"
            )

        name = f"{s.taps}x{s.taps}, {s.inner} to {s.outer}, {s.pixels}x{s.pixels}"
        name += f", steps of {s.step}" * (s.step > 1) + f", {s.groups} groups" * (s.groups > 1)
        operands = [RNG.standard_normal(t.shape).astype("f") for t in described.operands]
        yield name, described, convolve, operands
    for m, k, n in PRODUCTS:
        for left in ("int8", "uint8"):
            described = Product(Tensor((m, k), left), Tensor((k, n), "int8"))

            def multiply(x: Expr, w: Expr) -> Expr:
                return op.matmul(x, w, out_dtype="int32")

            operands = [RNG.integers(0, 100, t.shape).astype(t.dtype) for t in described.operands]
            yield f"{left} {m}x{k}x{n}", described, multiply, operands


def _built(
    compute: Callable[..., Expr], operands: list[np.ndarray[Any, Any]], disabled: list[str]
) -> Callable[[], Any]:
    builder = rx.BlockBuilder()
    params = [
        rx.Var(f"x{i}", rx.TensorStructInfo(a.shape, str(a.dtype))) for i, a in enumerate(operands)
    ]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(compute(*params)))
    with rx.transform.PassContext(disabled_pass=disabled):
        executable = rx.build(builder.get(), "cpu")
    run = rx.VirtualMachine(executable)["main"]
    arrays = [rx.nd.array(a) for a in operands]
    return lambda: run(*arrays).block_until_ready()


def main(quick: bool = False) -> None:
    """Print a row for each shape, with what the table says of it."""
    kind = processor.kind()
    kinds = {choice.kind_of(described) for _, described, _, _ in _cases()}
    every = {kind: dict.fromkeys(kinds, choice.Faster(0, 1.0))}
    print(f"processor: {kind or 'none of the table'}\n")
    print("| computation | kind | million multiplications | rows ms | oneDNN ms | ratio | called |")
    print("|---|---|---|---|---|---|---|")
    for name, described, compute, operands in _cases():
        asked = mock.patch.dict(os.environ, {"RELAX2XLA_ONEDNN": "1"})
        with asked, mock.patch.object(choice, "TABLE", every):
            runs = [_built(compute, operands, []), _built(compute, operands, ["CallOneDnn"])]
            values = [np.asarray(run()).astype("d") for run in runs]
        error = abs(values[0] - values[1]).max() / abs(values[1]).max()
        assert error < 1e-4, f"{name}: {error}"
        times: list[list[float]] = [[], []]
        for _ in range(3 if quick else 15):
            for run, own in zip(runs, times, strict=True):
                start = time.process_time()
                run()
                own.append(1e3 * (time.process_time() - start))
        ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
        called = "yes" if choice.gain(described) else ""
        print(
            f"| {name} | {choice.kind_of(described)} | {described.multiplications / 1e6:.1f} "
            f"| {min(times[1]):.2f} | {min(times[0]):.2f} | {ratio:.2f} | {called} |",
            flush=True,
        )

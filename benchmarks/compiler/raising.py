"""What raising costs beside reading: the same programs, read as rows and then raised."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relax2xla.ir import IRModule
from relax2xla.stablehlo import context, parse, read
from relax2xla.transform import RaiseStableHLO


def mixed(count: int, shapes: int = 3) -> str:
    """About ``count`` operations of many kinds in no order, on matrices of ``shapes`` shapes."""
    rng = random.Random(0)
    sizes = [(2 * i + 4, 4 * i + 12) for i in range(shapes)]
    values = {s: [f"%a{i}"] for i, s in enumerate(sizes)}
    lines = [
        f"%{n} = stablehlo.constant dense<{v}> : tensor<f32>" for n, v in (("c", 2.0), ("z", 0.0))
    ]
    while len(lines) < count:
        size = rng.choice(sizes)
        a, b = size
        t, v, turned, narrow = (
            f"tensor<{s}>" for s in (f"{a}x{b}xf32", f"{a}xf32", f"{b}x{a}xf32", f"{a}x{b}xf16")
        )
        flat, mask = f"tensor<{a * b}xf32>", f"tensor<{a}x{b}xi1>"
        x, y, n = values[size][-1], rng.choice(values[size][-6:]), len(lines)
        both = [f"%v{n} = stablehlo.{op} {x}, {y} : {t}" for op in ("add", "multiply", "maximum")]
        one = [f"%v{n} = stablehlo.{op} {x} : {t}" for op in ("tanh", "exponential", "rsqrt")]
        lines += rng.choice(
            [
                *([row] for row in (*both, *one)),
                [
                    f"%b{n} = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> {t}",
                    f"%v{n} = stablehlo.divide {x}, %b{n} : {t}",
                ],
                [
                    f"%r{n} = stablehlo.reduce({x} init: %z) applies stablehlo.add "
                    f"across dimensions = [1] : ({t}, tensor<f32>) -> {v}",
                    f"%b{n} = stablehlo.broadcast_in_dim %r{n}, dims = [0] : ({v}) -> {t}",
                    f"%v{n} = stablehlo.subtract {x}, %b{n} : {t}",
                ],
                [
                    f"%m{n} = stablehlo.compare GT, {x}, {y} : ({t}, {t}) -> {mask}",
                    f"%v{n} = stablehlo.select %m{n}, {x}, {y} : {mask}, {t}",
                ],
                [
                    f"%h{n} = stablehlo.convert {x} : ({t}) -> {narrow}",
                    f"%v{n} = stablehlo.convert %h{n} : ({narrow}) -> {t}",
                ],
                [
                    f"%f{n} = stablehlo.reshape {x} : ({t}) -> {flat}",
                    f"%v{n} = stablehlo.reshape %f{n} : ({flat}) -> {t}",
                ],
                [
                    f"%t{n} = stablehlo.transpose {x}, dims = [1, 0] : ({t}) -> {turned}",
                    f"%v{n} = stablehlo.transpose %t{n}, dims = [1, 0] : ({turned}) -> {t}",
                ],
            ]
        )
        values[size].append(f"%v{n}")
    types = [f"tensor<{a}x{b}xf32>" for a, b in sizes]
    given = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
    kinds, last = ", ".join(types), ", ".join(v[-1] for v in values.values())
    body = "\n".join(lines)
    return f"func.func @main({given}) -> ({kinds}) {{\n{body}\nreturn {last} : {kinds}\n}}"


def training_step(layers: int) -> str:
    """One step of Adam on a small GPT-2 of ``layers`` layers, from JAX."""
    depth, heads, words, length = 64, 4, 256, 32
    f32 = np.float32
    shape = jax.ShapeDtypeStruct
    sizes = {
        "g1": (depth,),
        "b1": (depth,),
        "g2": (depth,),
        "b2": (depth,),
        "qkv": (depth, 3 * depth),
        "cq": (3 * depth,),
        "out": (depth, depth),
        "co": (depth,),
        "up": (depth, 4 * depth),
        "cu": (4 * depth,),
        "down": (4 * depth, depth),
    }
    block = {n: shape(s, f32) for n, s in sizes.items()}
    params: Any = {"words": shape((words, depth), f32), "places": shape((length, depth), f32)}
    params["layers"] = [block] * layers

    def norm(x: Any, gain: Any, bias: Any) -> Any:
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * gain + bias

    def attend(x: Any, p: Any) -> Any:
        qkv = jnp.split(x @ p["qkv"] + p["cq"], 3, -1)
        q, k, v = (a.reshape(*a.shape[:2], heads, -1).swapaxes(1, 2) for a in qkv)
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(depth // heads)
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        mixed = jax.nn.softmax(jnp.where(seen, scores, -1e9)) @ v
        return mixed.swapaxes(1, 2).reshape(x.shape) @ p["out"] + p["co"]

    def loss(params: Any, ids: Any) -> Any:
        x = params["words"][ids[:, :-1]] + params["places"][: ids.shape[1] - 1]
        for p in params["layers"]:
            x = x + attend(norm(x, p["g1"], p["b1"]), p)
            x = x + jax.nn.gelu(norm(x, p["g2"], p["b2"]) @ p["up"] + p["cu"]) @ p["down"]
        logits = jax.nn.log_softmax(x @ params["words"].T)
        return -jnp.take_along_axis(logits, ids[:, 1:, None], -1).mean()

    def step(params: Any, first: Any, second: Any, ids: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, ids)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
        new = jax.tree.map(
            lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second
        )
        return new, first, second, value

    ids = shape((2, length), np.int32)
    return jax.jit(step).lower(params, params, params, ids).as_text()


def convolutions(blocks: int) -> str:
    """The gradient of a network of ``blocks`` residual blocks, from JAX."""
    shape = jax.ShapeDtypeStruct
    one = [shape((3, 3, 16, 16), np.float32), *[shape((16,), np.float32)] * 2]

    def loss(params: Any, x: Any) -> Any:
        for kernel, gain, bias in params:
            y = jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            y = (y - y.mean((0, 1, 2))) * jax.lax.rsqrt(y.var((0, 1, 2)) + 1e-5) * gain + bias
            x = x + jax.nn.relu(y)
        return jax.nn.log_softmax(x.mean((1, 2)))[:, 0].sum()

    x = shape((2, 8, 8, 16), np.float32)
    return jax.jit(jax.grad(loss)).lower([one] * blocks, x).as_text()


def cost(text: str, rounds: int) -> dict[str, float]:
    """Median seconds of this process to parse, read and raise a program."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        marks = [time.process_time()]
        module = parse(text, context())
        marks.append(time.process_time())
        mod: IRModule = read(module)
        marks.append(time.process_time())
        RaiseStableHLO()(mod)
        marks.append(time.process_time())
        for name, a, b in zip(("parse", "read", "raise"), marks, marks[1:], strict=False):
            times[name].append(b - a)
    return {name: statistics.median(values) for name, values in times.items()}


def main(chains: dict[str, str], quick: bool = False) -> None:
    """Print what reading and raising cost, side by side; ``chains``: further programs."""
    programs = dict(chains)
    for count in (2_000,) if quick else (2_000, 10_000, 100_000):
        programs[f"many kinds of operations, {count:,}"] = mixed(count)
    for layers in (1,) if quick else (2, 12):
        programs[f"training step of a GPT-2 of {layers} layers"] = training_step(layers)
    for blocks in (2,) if quick else (8, 50):
        programs[f"gradient of {blocks} residual blocks"] = convolutions(blocks)
    print(
        "\n| program | lines | parse ms | read ms | raise ms | raise / read "
        "| raise / (parse + read) |\n|---|---|---|---|---|---|---|"
    )
    for name, text in programs.items():
        t = {k: 1e3 * v for k, v in cost(text, 1 if quick else 3).items()}
        row = [f"{t[k]:.0f}" for k in ("parse", "read", "raise")]
        row += [f"{t['raise'] / t['read']:.1f}", f"{t['raise'] / (t['parse'] + t['read']):.1f}"]
        print(f"| {name} | {text.count(chr(10)):,} | {' | '.join(row)} |", flush=True)

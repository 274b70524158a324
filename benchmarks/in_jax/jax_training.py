"""Torch models trained in JAX beside torch: the same losses, step by step.

``python -m benchmarks jax_training [--only PATTERN]`` trains each of ``MODELS`` for ``STEPS`` steps
by optax beside torch's own optimiser, in float32, from the same weights on the same batches, and
prints the largest relative difference of the losses, and of the weights after the last step.
Needs transformers. ``--quick``: two steps.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

STEPS = 20
#: Largest relative difference of a loss that is the same.
TOLERANCE = 1e-4


def _images(side: int) -> Callable[[Any, int], tuple[dict[str, Any], Any]]:
    def make(torch: Any, seed: int) -> tuple[dict[str, Any], Any]:
        draw = torch.Generator().manual_seed(seed)
        images = torch.randn(4, 3, side, side, generator=draw)
        return {"pixel_values": images}, torch.randint(10, (4,), generator=draw)

    return make


def _text(torch: Any, seed: int) -> tuple[dict[str, Any], Any]:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 1000, (2, 16), generator=draw)
    return {"input_ids": ids}, ids.roll(-1, 1)


def _resnet18(transformers: Any) -> Any:
    config = transformers.ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=10,
    )
    return transformers.ResNetForImageClassification(config)


def _bert_small(transformers: Any) -> Any:
    config = transformers.BertConfig(
        vocab_size=30522,
        hidden_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=2048,
    )
    return transformers.BertForMaskedLM(config)


def _gpt2_small(transformers: Any) -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))


def _vit(transformers: Any) -> Any:
    """ViT-S/16 of images of 64 pixels."""
    config = transformers.ViTConfig(
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=64,
        num_labels=10,
    )
    return transformers.ViTForImageClassification(config)


# Name: how it is made, its batches, the learning rate, and the optimiser in both.
MODELS: dict[str, tuple[Callable[[Any], Any], Callable[..., Any], float, str]] = {
    "ResNet-18": (_resnet18, _images(64), 1e-3, "sgd"),
    "BERT-small": (_bert_small, _text, 1e-4, "adamw"),
    "GPT-2-small": (_gpt2_small, _text, 0.01, "sgd"),
    "ViT-S/16": (_vit, _images(64), 1e-4, "adamw"),
}


def trained(name: str, steps: int = STEPS) -> tuple[float, float, list[float]]:
    """Largest differences of losses and of weights, and torch's losses."""
    import optax
    import torch

    import relax2xla
    from benchmarks.from_torch.torch_models_zoo import package

    torch.set_num_threads(1)
    torch.manual_seed(0)
    make, batch, rate, kind = MODELS[name]
    model = make(
        package("transformers")
    ).eval()  # no dropout; a ResNet's running statistics are fixed
    fn, params = relax2xla.jax_function(model, (), example_kwargs=batch(torch, 0)[0])
    adam = {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
    tx = optax.sgd(rate) if kind == "sgd" else optax.adamw(rate, **adam)
    optimiser: Any = (
        torch.optim.SGD(model.parameters(), lr=rate)
        if kind == "sgd"
        else torch.optim.AdamW(model.parameters(), lr=rate)
    )

    def loss(params: Any, inputs: Any, labels: Any) -> Any:
        logits = fn(params, **inputs)["logits"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def step(params: Any, state: Any, inputs: Any, labels: Any) -> Any:
        value, grad = jax.value_and_grad(loss)(params, inputs, labels)
        updates, state = tx.update(grad, state, params)
        return value, optax.apply_updates(params, updates), state

    state, worst, losses = tx.init(params), 0.0, []
    for n in range(steps):
        inputs, labels = batch(torch, n % 4)
        value, params, state = step(
            params, state, {k: v.numpy() for k, v in inputs.items()}, labels.numpy()
        )
        optimiser.zero_grad()
        logits = model(**inputs).logits.flatten(0, -2)
        there = torch.nn.functional.cross_entropy(logits, labels.flatten())
        there.backward()
        optimiser.step()
        losses.append(there.item())
        worst = max(worst, abs(float(value) / there.item() - 1))
    apart = 0.0
    for path, weight in jax.tree_util.tree_flatten_with_path(params)[0]:
        there = model.get_parameter(".".join(k.key for k in path)).detach().numpy()
        apart = max(apart, float(np.abs(weight - there).max()))
    return worst, apart, losses


def main(quick: bool = False, only: Sequence[str] | None = None) -> None:
    """Train, and print a table."""
    print("| model | steps | losses | largest difference of a loss | of a weight | |")
    print("|---|---|---|---|---|---|")
    for name in MODELS:
        if not any(fnmatch.fnmatchcase(name, p) for p in only or "*"):
            continue
        steps, start = 2 if quick else STEPS, time.process_time()
        worst, apart, losses = trained(name, steps)
        verdict = "the same" if worst <= TOLERANCE else "DIFFERENT"
        print(
            f"| {name} | {steps} | {losses[0]:.4f} to {losses[-1]:.4f} | {worst:.1e} | {apart:.1e} "
            f"| {verdict} ({time.process_time() - start:.0f} s of processor) |",
            flush=True,
        )

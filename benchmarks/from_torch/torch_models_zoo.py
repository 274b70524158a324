"""Architectures of torchvision, timm and transformers, small and with random weights.

``ZOO["timm/resnest"]()`` makes an :class:`Example`. Nothing is downloaded. A package that is not
installed has no part in it (``absent`` tells which).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.from_torch.torch_models_configs import KINDS, SMALL, TIMM, TORCHVISION, TRANSFORMERS
from examples.models import MODELS
from examples.models._common import observe

PACKAGES = ("torchvision", "timm", "transformers")


@dataclass(frozen=True)
class Example:
    """A network in eval mode and arguments for it: ``inputs(batch)`` gives (args, kwargs)."""

    network: nn.Module
    inputs: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]


def absent() -> list[str]:
    """The packages that are not installed."""
    return [p for p in PACKAGES if importlib.util.find_spec(p) is None]


@functools.cache
def package(name: str) -> Any:
    """An installed package; the other two use torchvision where they find it."""
    if name != "torchvision":
        if "torchvision" not in absent():
            package("torchvision")
        return importlib.import_module(name)
    try:
        return importlib.import_module(name)
    except RuntimeError:
        for module in [m for m in sys.modules if m.partition(".")[0] == name]:
            del sys.modules[module]
    _define_operators()
    return importlib.import_module(name)


def _define_operators() -> None:
    """Let torchvision load beside any torch.

    Its compiled operators load beside one version only, and they are defined once. No model here
    uses them, but these two must have a schema, or the package does not load at all.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for op in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, op):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)


# Operators are gone with their library.
_LIBRARIES: list[torch.library.Library] = []


def _settled(network: nn.Module) -> nn.Module:
    """Eval mode, with noise on what is initialised to one value, or almost (gains, layer scales).

    A layer whose scale is 1e-6 could be left out and nobody would see it.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in network.parameters():
            if p.numel() > 1 and p.is_floating_point() and p.std() < 1e-3:
                p.add_(0.1 * torch.randn(p.shape, generator=generator))
    return network.eval()


def _kind(layer: nn.Module) -> tuple[Any, ...]:
    """What two layers have in common that differ in their weights alone."""
    parts = tuple(type(m) for m in layer.modules())
    return parts, tuple((n, t.shape) for n, t in layer.state_dict().items())


def _shortened(network: nn.Module, keep: int) -> None:
    """Of layers of one kind in a row leave the first ``keep``; the others show nothing new."""
    for layer in list(network.modules()):
        if type(layer) is not nn.Sequential:
            continue
        names = list(layer._modules)  # pyright: ignore[reportPrivateUsage]
        kinds = [_kind(layer[i]) for i in range(len(layer))]
        for i, name in enumerate(names):
            if i >= keep and all(kinds[i - k] == kinds[i] for k in range(1, keep + 1)):
                if kinds[i][1]:  # it has weights
                    del layer._modules[name]  # pyright: ignore[reportPrivateUsage]


# -- images ------------------------------------------------------------------------------------
def _images(size: int, frames: int = 0) -> Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]:
    shape = (3, frames, size, size) if frames else (3, size, size)

    def make(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        generator = torch.Generator().manual_seed(batch)
        return (torch.randn(batch, *shape, generator=generator),), {}

    return make


def _vision(make: Callable[[], nn.Module], size: int, keep: int, frames: int = 0) -> Example:
    inputs = _images(size, frames)
    torch.manual_seed(0)
    network = make()
    _shortened(network, keep)
    _settled(network)
    with torch.no_grad():
        observe(network, inputs(8)[0][0])
    return Example(network, inputs)


def _torchvision(
    name: str, size: int = 64, keep: int = 1, frames: int = 0, **options: Any
) -> Example:
    models = package("torchvision").models
    options = {"num_classes": 10, **options}
    if name[0].isupper():  # a class, for sizes that its functions fix
        return _vision(lambda: getattr(models, name)(**options), size, keep, frames)
    return _vision(lambda: models.get_model(name, weights=None, **options), size, keep, frames)


def _flow(name: str, size: int = 128, steps: int = 2) -> Example:
    """A network of torchvision that says how the pixels of one image move to those of another."""
    torch.manual_seed(0)
    network = _settled(package("torchvision").models.get_model(name, weights=None))

    def make(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        (images,), _ = _images(size)(2 * batch)
        both = {"image1": images[:batch].clone(), "image2": images[batch:].clone()}
        return (), {**both, "num_flow_updates": steps}

    return Example(network, make)


def _timm(name: str, size: int = 64, keep: int = 1, **options: Any) -> Example:
    timm = package("timm")
    return _vision(
        lambda: timm.create_model(name, pretrained=False, num_classes=10, **options), size, keep
    )


# -- text, speech and more -----------------------------------------------------------------------
def _transformers(name: str, kind: str, options: Mapping[str, Any]) -> Example:
    library = package("transformers")
    model = getattr(library, name)
    config_class = model.config_class
    known = config_class().to_dict()
    options = {**{k: v for k, v in SMALL.items() if k in known or "_id" in k}, **options}
    options.setdefault("attn_implementation", "sdpa")
    torch.manual_seed(0)
    config = config_class(**options)
    try:
        network = model(config)
    except ValueError:  # no such attention
        config = config_class(**{**options, "attn_implementation": "eager"})
        network = model(config)
    return Example(_settled(network), lambda n: ((), KINDS[kind](n)))


def _own(name: str) -> Example:
    model = MODELS[name]
    return Example(
        model.build(small=True), lambda n: (model.example_inputs(batch=n, small=True), {})
    )


ZOO: dict[str, Callable[[], Example]] = {
    **{f"examples/{n}": functools.partial(_own, n) for n in MODELS},
    **{f"torchvision/{n}": functools.partial(_torchvision, n, **o) for n, o in TORCHVISION.items()},
    **{f"timm/{n}": functools.partial(_timm, n, **o) for n, o in TIMM.items()},
    "torchvision/raft_small": functools.partial(_flow, "raft_small"),
    **{
        f"transformers/{n}": functools.partial(_transformers, n, kind, o)
        for n, (kind, o) in TRANSFORMERS.items()
    },
}

# Transformers of 24 layers, for what an import costs.
DEEP: dict[str, Callable[[], Example]] = {
    name: functools.partial(
        _transformers, name, TRANSFORMERS[name][0], {**TRANSFORMERS[name][1], layers: 24}
    )
    for name, layers in (
        ("BertModel", "num_hidden_layers"),
        ("GPT2LMHeadModel", "n_layer"),
        ("LlamaForCausalLM", "num_hidden_layers"),
    )
}

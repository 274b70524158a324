"""Five published networks in plain torch, with random weights: what the tests and benchmarks use.

``MODELS["resnet50"].build()`` makes a network in eval mode, ``.example_inputs()`` its arguments.
``build(small=True)`` and ``example_inputs(small=True)`` keep the structure at a size for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from . import bert_base, gpt2_small, mobilenet_v3_small, resnet50, vit_b16


@dataclass(frozen=True)
class Model:
    """One network.

    network:        makes the module at full size with torch's default weights; under
                    ``torch.device("meta")`` this costs no memory
    build:          ``(seed=0, *, small=False, **config) -> module`` in eval mode
    example_inputs: ``(batch=1, seed=0, *, small=False) -> positional arguments``
    inputs:         names of the arguments; the first dimension of each is the batch
    outputs:        names of the results; the first dimension of each is the batch
    parameters:     published number of parameters at full size
    """

    network: Callable[[], nn.Module]
    build: Callable[..., nn.Module]
    example_inputs: Callable[..., tuple[torch.Tensor, ...]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: int


MODELS: dict[str, Model] = {
    "resnet50": Model(
        lambda: resnet50.ResNet50(resnet50.Config()),
        resnet50.build,
        resnet50.example_inputs,
        ("x",),
        ("logits",),
        25_557_032,
    ),
    "mobilenet_v3_small": Model(
        lambda: mobilenet_v3_small.MobileNetV3Small(mobilenet_v3_small.Config()),
        mobilenet_v3_small.build,
        mobilenet_v3_small.example_inputs,
        ("x",),
        ("logits",),
        2_542_856,
    ),
    "vit_b16": Model(
        lambda: vit_b16.ViT(vit_b16.Config()),
        vit_b16.build,
        vit_b16.example_inputs,
        ("x",),
        ("logits",),
        86_567_656,
    ),
    "bert_base": Model(
        lambda: bert_base.Bert(bert_base.Config()),
        bert_base.build,
        bert_base.example_inputs,
        ("input_ids", "attention_mask", "token_type_ids"),
        ("last_hidden_state", "pooled"),
        109_482_240,
    ),
    "gpt2_small": Model(
        lambda: gpt2_small.GPT2(gpt2_small.Config()),
        gpt2_small.build,
        gpt2_small.example_inputs,
        ("input_ids",),
        ("logits",),
        124_439_808,
    ),
}

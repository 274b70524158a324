"""The programs of ``jax_functions``, by group and name: how each becomes a :class:`Case`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from benchmarks.in_jax.jax_functions_checks import Case, is_float, leaves, weighted

Cases = dict[str, Callable[[], Case]]
#: Of the architectures of docs/torch.md: of many kinds, and small.
ARCHITECTURES = [
    "torchvision/alexnet",
    "torchvision/resnet18",
    "torchvision/googlenet",
    "torchvision/squeezenet1_1",
    "torchvision/mnasnet0_5",
    "torchvision/efficientnet_b0",
    "torchvision/regnet_y_400mf",
    "torchvision/convnext_tiny",
    "torchvision/vit_b_32",
    "torchvision/swin_t",
    "torchvision/fcn_resnet50",
    "timm/mixer_s32_224",
    "timm/gmlp_ti16_224",
    "timm/beit_base_patch16_224",
    "timm/cait_xxs24_224",
    "timm/convit_tiny",
    "timm/dla34",
    "timm/ghostnet_050",
    "timm/pvt_v2_b0",
    "timm/resnest14d",
    "timm/xcit_nano_12_p16_224",
    "transformers/BertModel",
    "transformers/RobertaForSequenceClassification",
    "transformers/DistilBertModel",
    "transformers/AlbertModel",
    "transformers/ElectraForTokenClassification",
    "transformers/DebertaV2Model",
    "transformers/MPNetModel",
    "transformers/MobileBertModel",
    "transformers/SqueezeBertModel",
    "transformers/ConvBertModel",
    "transformers/LongformerModel",
    "transformers/RoFormerModel",
    "transformers/ModernBertModel",
    "transformers/XLNetModel",
    "transformers/FNetModel",
    "transformers/GPT2LMHeadModel",
    "transformers/GPTNeoXForCausalLM",
    "transformers/GPTJForCausalLM",
    "transformers/OPTForCausalLM",
    "transformers/BloomForCausalLM",
    "transformers/LlamaForCausalLM",
    "transformers/MixtralForCausalLM",
    "transformers/Qwen3ForCausalLM",
    "transformers/Gemma3ForCausalLM",
    "transformers/MambaForCausalLM",
    "transformers/T5ForConditionalGeneration",
    "transformers/BartForConditionalGeneration",
    "transformers/ViTForImageClassification",
    "transformers/ConvNextModel",
]

# What a published model of more than 100 M parameters has, but for its depth: (class, options,
# inputs). Sizes of vocabularies are cut as well: no layer is another for it.
_LARGE = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "num_hidden_layers": 1,
}
WIDE: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "bert-large": ("BertModel", _LARGE, "text"),
    "roberta-large": ("RobertaModel", _LARGE, "text"),
    "deberta-v2-xlarge": (
        "DebertaV2Model",
        _LARGE
        | {
            "hidden_size": 1536,
            "num_attention_heads": 24,
            "intermediate_size": 6144,
        },
        "text",
    ),
    "gpt2-medium": ("GPT2Model", {"n_embd": 1024, "n_head": 16, "n_layer": 1}, "text"),
    "opt-1.3b": (
        "OPTModel",
        {
            "hidden_size": 2048,
            "word_embed_proj_dim": 2048,
            "num_attention_heads": 32,
            "ffn_dim": 8192,
            "num_hidden_layers": 1,
        },
        "text",
    ),
    "tinyllama-1.1b": (
        "LlamaModel",
        {
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "intermediate_size": 5632,
            "num_hidden_layers": 1,
        },
        "text",
    ),
    "qwen2-1.5b": (
        "Qwen2Model",
        {
            "hidden_size": 1536,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "intermediate_size": 8960,
            "num_hidden_layers": 1,
        },
        "text",
    ),
    "vit-large": ("ViTModel", _LARGE | {"image_size": 64, "patch_size": 16}, "image"),
    "dinov2-large": ("Dinov2Model", _LARGE | {"image_size": 56, "patch_size": 14}, "image56"),
    "convnext-large": (
        "ConvNextModel",
        {
            "hidden_sizes": [192, 384, 768, 1536],
            "depths": [1, 1, 1, 1],
        },
        "image",
    ),
}


def cases() -> Cases:
    """All programs by ``group/name``."""
    from tests.importers.zoo import NETWORKS

    made: Cases = {}
    for name, network in NETWORKS.items():
        made[f"networks/{name}"] = functools.partial(_of_network, network)
    for name in ARCHITECTURES:
        made[f"architectures/{name}"] = functools.partial(_of_zoo, name)
    for name in WIDE:
        made[f"wide/{name}"] = functools.partial(_of_wide, name)
    made |= {f"programs/{name}": of for name, of in _programs().items()}
    from benchmarks.in_jax.jax_functions_libraries import PROGRAMS

    for name, program in PROGRAMS.items():
        made[f"libraries/{name}"] = functools.partial(_of_library, program)
    return made


# ---- torch
def of_torch(module: Any, args: Any, kwargs: Any, tolerance: float = 1.0) -> Case:
    """A module in eval mode, called with these tensors."""
    import torch

    import relax2xla

    torch.set_num_threads(1)
    made, params = relax2xla.jax_function(module, tuple(args), example_kwargs=kwargs or None)
    arrays = jax.tree.map(lambda x: x.numpy(), (tuple(args), dict(kwargs)))

    def tensors(given: Any, want: bool) -> Any:
        """Copies: some networks write to what they are given."""
        return jax.tree.map(
            lambda x: torch.from_numpy(np.array(x)).requires_grad_(want and is_float(x)), given
        )

    def truth(given: Any) -> list[Any]:
        args, kwargs = tensors(given, False)
        with torch.no_grad():
            return leaves(module(*args, **kwargs))

    def slopes(given: Any, weights: list[Any]) -> dict[str, Any] | None:
        args, kwargs = tensors(given, True)
        flat = jax.tree.leaves((args, kwargs))
        named = {**dict(module.named_parameters())}
        named |= {str(i): x for i, x in enumerate(flat) if x.requires_grad}
        wanted = {n: x for n, x in named.items() if x.requires_grad}
        # Networks may write to their arguments, which leaves may not be.
        args, kwargs = jax.tree.map(lambda x: x * 1 if x.requires_grad else x, (args, kwargs))
        found = [y for y in leaves(module(*args, **kwargs)) if is_float(y)]
        pairs = [(y, w) for y, w in zip(found, weights, strict=True) if y.requires_grad]
        if not pairs or not wanted:
            return None
        total: Any = sum((y * torch.from_numpy(w)).sum().real for y, w in pairs)
        grads = torch.autograd.grad(total, list(wanted.values()), allow_unused=True)
        return {n: g for n, g in zip(wanted, grads, strict=True) if g is not None}

    def wide() -> Case:
        doubled = jax.tree.map(
            lambda x: x.double() if x.dtype == torch.float32 else x, (tuple(args), dict(kwargs))
        )
        return of_torch(copy.deepcopy(module).double(), doubled[0], doubled[1], tolerance)

    run: Any = lambda p, a, k: made(p, *a, **k)  # noqa: E731
    return Case(run, params, arrays, truth, slopes, tolerance, wide)


def _of_network(network: Any) -> Case:
    return of_torch(network.build(), network.arguments(), {}, max(1.0, network.tolerance / 1e-4))


def _of_zoo(name: str) -> Case:
    from benchmarks.from_torch.torch_models_zoo import ZOO

    example = ZOO[name]()
    args, kwargs = example.inputs(2)
    return of_torch(example.network, args, kwargs)


def _of_wide(name: str) -> Case:
    import torch

    from benchmarks.from_torch.torch_models_zoo import package

    kind, options, inputs = WIDE[name]
    model = getattr(package("transformers"), kind)
    common = {"vocab_size": 1000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config_class: Any = model.config_class
    given = common | dict(options) if inputs == "text" else dict(options)
    torch.manual_seed(0)
    network = model(config_class(**given, use_cache=False, attn_implementation="eager")).eval()
    if inputs == "text":
        ids = torch.randint(3, 1000, (2, 8))
        return of_torch(network, (), {"input_ids": ids})
    side = 56 if inputs == "image56" else 64
    return of_torch(network, (), {"pixel_values": torch.randn(2, 3, side, side)})


# ---- JAX
def of_jax(program: Callable[..., Any], args: tuple[Any, ...], tolerance: float = 1.0) -> Case:
    """A function of JAX, there and back."""
    from relax2xla.interop.jax import extract_jax, from_jax

    fn, params = extract_jax(from_jax(program, *args))

    def truth(given: Any) -> list[Any]:
        return leaves(jax.jit(program)(*given))

    def slopes(given: Any, weights: list[Any]) -> dict[str, Any] | None:
        flat, tree = jax.tree.flatten(given)
        flat = [x if hasattr(x, "dtype") else np.asarray(x) for x in flat]
        places = [i for i, x in enumerate(flat) if is_float(x)]

        def loss(floats: Any) -> Any:
            values = list(flat)
            for i, x in zip(places, floats, strict=True):
                values[i] = x
            return weighted(leaves(program(*jax.tree.unflatten(tree, values))), weights)

        found = jax.jit(jax.grad(loss))([flat[i] for i in places])
        return {str(i): g for i, g in zip(places, found, strict=True)}

    return Case(fn, params, args, truth, slopes, tolerance, source=truth)


def _of_library(program: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]) -> Case:
    return of_jax(*program())


def _programs() -> Cases:
    """Programs of the tests of StableHLO, with numbers in place of ones."""
    from tests.stablehlo import jax_more, jax_programs

    made: Cases = {}
    for name, program, args in (*jax_programs.PROGRAMS, *jax_more.PROGRAMS):
        if name != "debug_print":  # it calls out, which programs that are read may not
            made[name] = functools.partial(lambda p, a: of_jax(p, _varied(a)), program, args)
    return made


def _varied(args: Any) -> Any:
    """Arguments of the tests, mostly ones, as numbers that are all different."""
    draw = np.random.default_rng(0)

    def one(x: Any) -> Any:
        x = np.asarray(x)
        if x.dtype.kind != "f" or x.ndim == 0:
            return x
        made = 0.2 + 0.6 * draw.random(x.shape)
        if x.ndim >= 2 and x.shape[-1] == x.shape[-2]:  # matrices that can be factored
            made = made @ np.swapaxes(made, -1, -2) + np.eye(x.shape[-1])
        return made.astype(x.dtype)

    return jax.tree.map(one, args)

"""What a decoder of language models is made of, read from ``config.json`` of transformers.

``ARCHITECTURES`` is the table of what differs; all of them share the decoder of ``decoder.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from relax2xla.errors import FileFormatError, UnsupportedError
from relax2xla.kv_state.rope import Rotation, rotation

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """Sizes of a decoder, and how it differs from Llama.

    context: the longest sequence whose attention is exact here. windows: of each layer how many of
    the last tokens it sees (None: all), () for all of all. cap, score_cap: of logits, and of the
    scores of attention. turns: the rotations of positions;
    turn: which of them each layer takes (-1: none). scale: of the scores. norm: "rms", "rms+1" (the
    weight counts from 1) or "layer". positions: rows of a table of learned positions. parallel:
    attention and network both take the norm of what comes in. fused: weights of the folder lie in
    one tensor for queries, keys and values, and one for both halves of the network.
    """

    architecture: str
    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    eps: float
    scale: float
    turns: tuple[Rotation, ...] = ()
    turn: tuple[int, ...] = ()
    norm: str = "rms"
    activation: str = "silu"
    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    parallel: bool = False
    fused: bool = False
    tied: bool = False
    positions: int = 0
    embed_scale: float = 1.0
    cap: float | None = None
    score_cap: float | None = None
    windows: tuple[int | None, ...] = ()
    experts: int = 0
    experts_per_token: int = 0


def config_from(fields: Fields) -> Config:
    """The configuration that config.json says.

    Raises UnsupportedError for an architecture that is not in the table and for settings that the
    decoder has not, FileFormatError where fields are missing or are no sizes (all of them are
    named).
    """
    given_names = fields.get("architectures") or ()
    names = [given_names] if isinstance(given_names, str) else list(given_names)
    found = [n for n in names if n in ARCHITECTURES]
    if not found:
        raise UnsupportedError(
            f"config.json is of the architecture {', '.join(map(str, names)) or 'nobody says'}; "
            f"known are {', '.join(sorted(ARCHITECTURES))}"
        )
    if fields.get("quantization_config"):
        raise UnsupportedError(
            "config.json has a quantization_config: the weights are packed for another library; "
            "load the folder of the original weights, and quantise it here (docs/llm.md)"
        )
    needs, make = ARCHITECTURES[found[0]]
    if missing := [n for n in needs if fields.get(n) is None]:
        raise FileFormatError(f"config.json of {found[0]} lacks the fields {', '.join(missing)}")
    sizes = (*needs, "num_key_value_heads", "head_dim", "n_inner")
    given = {n: fields[n] for n in sizes if fields.get(n) is not None}
    if wrong := [f"{n}={v!r:.50}" for n, v in given.items() if not _is_size(n, v)]:
        raise FileFormatError(f"config.json: {', '.join(wrong)}; these are positive whole numbers")
    if many := [f"{n}={given[n]}" for n in _COUNTED if given.get(n, 0) > _MOST]:
        raise FileFormatError(
            f"config.json: {', '.join(many)}; a model of more than {_MOST} of these is none"
        )
    made = make(fields, found[0])
    if made.heads % made.kv_heads:
        raise FileFormatError(
            f"config.json: {made.heads} heads of queries cannot share {made.kv_heads} heads of keys"
        )
    return made


def _is_size(name: str, value: Any) -> bool:
    """Whether a field's value may be one; a scale of scores may be no whole number."""
    kinds = int | float if name == "query_pre_attn_scalar" else int
    return isinstance(value, kinds) and not isinstance(value, bool) and value > 0


def _eps(fields: Fields, name: str, default: float) -> float:
    """What is added to a variance."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise FileFormatError(
            f"config.json: {name}={value!r:.50}; it is a number from 0 to below 1"
        )
    return float(value)


# What is made one by one before tensors are looked at, and how many of it are believed.
_COUNTED = ("num_hidden_layers", "n_layer", "num_local_experts")
_MOST = 10_000

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def _activation(fields: Fields, *names: str) -> str:
    given = next((fields[n] for n in names if fields.get(n)), "silu")
    if given not in _ACTIVATIONS:
        raise UnsupportedError(
            f"the activation {given!r} is unknown; known are {', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[given]


def _rope(fields: Fields, kind: str | None = None) -> dict[str, Any]:
    """The description of a rotation: ``rope_parameters`` of new files, two fields of older ones."""
    new, old = fields.get("rope_parameters"), fields.get("rope_scaling")
    for name, given in (("rope_parameters", new), ("rope_scaling", old)):
        if given and not isinstance(given, dict):
            raise FileFormatError(
                f"config.json: {name}={given!r:.100}; it is a table of settings, or null"
            )
    if new and old and any(new.get(n) != v for n, v in old.items()):
        raise FileFormatError(
            f"config.json says rope_parameters={new!r:.150} and rope_scaling={old!r:.150}, which "
            "do not agree; leave out the one that does not count"
        )
    if new:
        return dict(new.get(kind, new))
    made = dict(old or {})
    made["rope_theta"] = fields.get("rope_theta", 10000.0)
    if kind == "sliding_attention":
        made = {"rope_theta": fields.get("rope_local_base_freq", 10000.0)}
    return made


def _turn(fields: Fields, head_dim: int, rope: dict[str, Any]) -> Rotation:
    """The rotation; the magnitude is transformers' (attention_factor)."""
    rope = dict(rope)
    rope["rope_type"] = kind = rope.get("rope_type", rope.get("type", "default"))
    part = rope.get("partial_rotary_factor", fields.get("partial_rotary_factor"))
    size = head_dim if part is None else int(head_dim * part)
    longest = fields["max_position_embeddings"]
    rope.setdefault(
        "original_max_position_embeddings",
        fields.get("original_max_position_embeddings", longest),
    )
    if kind == "yarn":
        rope.setdefault("beta_fast", 32)
        rope.setdefault("beta_slow", 1)
        if any(rope.get(n) is not None for n in ("mscale", "mscale_all_dim", "truncate")):
            raise UnsupportedError("yarn with mscale or truncate is not supported")
    if kind in ("longrope", "su"):
        rope["rope_type"] = "longrope"
        rope["max_position_embeddings"] = longest
        made = rotation(size, rope["rope_theta"], 1.0, rope, rope["short_factor"])
    else:
        made = rotation(size, rope["rope_theta"], 1.0, rope)
    factor = rope.get("attention_factor")
    if factor is None and kind == "yarn":
        factor = 0.1 * math.log(rope["factor"]) + 1
    return made if factor is None else replace(made, magnitude=float(factor))


def _context(fields: Fields) -> int:
    """How long a sequence may be: positions of all of it are turned by one rotation."""
    found = [int(fields["max_position_embeddings"])]
    rope = _rope(fields)
    if rope.get("rope_type", rope.get("type")) in ("longrope", "su"):
        original = rope.get(
            "original_max_position_embeddings", fields.get("original_max_position_embeddings")
        )
        if original is None:
            raise FileFormatError("config.json lacks original_max_position_embeddings (longrope)")
        found.append(int(original))
    return min(found)


_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)


def _llama(fields: Fields, name: str) -> Config:
    heads, layers = fields["num_attention_heads"], fields["num_hidden_layers"]
    head_dim = fields.get("head_dim") or fields["hidden_size"] // heads
    turn = () if _by_layer(fields) else (_turn(fields, head_dim, _rope(fields)),)
    bias = bool(fields.get("attention_bias", False))
    return Config(
        architecture=name,
        vocab=fields["vocab_size"],
        hidden=fields["hidden_size"],
        inner=fields["intermediate_size"],
        layers=layers,
        heads=heads,
        kv_heads=fields.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        context=_context(fields),
        windows=_windows(fields, name),
        eps=_eps(fields, "rms_norm_eps", 1e-6),
        scale=head_dim**-0.5,
        turns=turn,
        turn=(0,) * layers,
        activation=_activation(fields, "hidden_activation", "hidden_act"),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bool(fields.get("mlp_bias", False)),
        tied=bool(fields.get("tie_word_embeddings", False)),
    )


# Whose layers see the last tokens only: how many, where config.json does not say, and which layers
# (0: all; n: all but every n-th; -1: those from ``max_window_layers`` on, if it is switched on).
_SLIDE: dict[str, tuple[int | None, int]] = {
    "MistralForCausalLM": (4096, 0),
    "MixtralForCausalLM": (None, 0),
    "Phi3ForCausalLM": (None, 0),
    "Gemma2ForCausalLM": (4096, 2),
    "Gemma3ForCausalLM": (4096, 6),
    "Qwen2ForCausalLM": (4096, -1),
    "Qwen3ForCausalLM": (4096, -1),
}
_KINDS = ("full_attention", "sliding_attention")


def _windows(fields: Fields, name: str) -> tuple[int | None, ...]:
    """How many of the last tokens each layer sees; () where all see all."""
    default, _ = _SLIDE.get(name, (None, 0))
    window, kinds = fields.get("sliding_window", default), _kinds(fields, name)
    if name not in _SLIDE or window is None or _KINDS[1] not in kinds:
        return ()
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise FileFormatError(f"config.json: sliding_window={window!r}; it is a positive number")
    return tuple(window if kind == _KINDS[1] else None for kind in kinds)


def _kinds(fields: Fields, name: str) -> list[str]:
    """Of each layer "full_attention" or "sliding_attention"."""
    layers, (_, every) = fields["num_hidden_layers"], _SLIDE.get(name, (None, 0))
    if every == 0:
        return [_KINDS[1]] * layers
    if every < 0 and not fields.get("use_sliding_window"):
        return [_KINDS[0]] * layers
    said = fields.get("layer_types")
    if said is None and every < 0:
        first = fields.get("max_window_layers", 28)
        return [_KINDS[i >= first] for i in range(layers)]
    if said is None:
        given = (fields.get(f"{p}sliding_window_pattern") for p in ("", "_"))
        every = next((n for n in given if n), every)
        return [_KINDS[(i + 1) % every != 0] for i in range(layers)]
    if len(said) != layers or not set(said) <= set(_KINDS):
        raise FileFormatError(
            f"config.json: layer_types must say {' or '.join(_KINDS)} for each of {layers} "
            f"layers; got {said!r:.200}"
        )
    return list(said)


def _by_layer(fields: Fields) -> bool:
    return "full_attention" in (fields.get("rope_parameters") or {})


def _qwen2(fields: Fields, name: str) -> Config:
    return replace(_llama(fields, name), qkv_bias=True)


def _qwen3(fields: Fields, name: str) -> Config:
    return replace(_llama(fields, name), qk_norm=True)


def _mixtral(fields: Fields, name: str) -> Config:
    return replace(
        _llama(fields, name),
        experts=fields["num_local_experts"],
        experts_per_token=fields["num_experts_per_tok"],
    )


# Caps of scores and of logits, where config.json does not say.
_CAPS: Mapping[str, float] = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}


def _gemma2(fields: Fields, name: str, caps: Mapping[str, float] = _CAPS) -> Config:
    base = _llama(fields, name)
    score_cap, cap = (_cap(fields, field, caps.get(field)) for field in _CAPS)
    return replace(
        base,
        norm="rms+1",
        post_norms=True,
        tied=bool(fields.get("tie_word_embeddings", True)),
        scale=float(fields["query_pre_attn_scalar"]) ** -0.5,
        embed_scale=math.sqrt(base.hidden),
        cap=cap,
        score_cap=score_cap,
    )


def _cap(fields: Fields, field: str, default: float | None) -> float | None:
    value = fields.get(field, default)
    if value is not None and not (isinstance(value, int | float) and value > 0):
        raise FileFormatError(f"config.json: {field}={value!r}; it is a positive number, or null")
    return None if value is None else float(value)


def _gemma3(fields: Fields, name: str) -> Config:
    if fields.get("use_bidirectional_attention"):
        raise UnsupportedError("use_bidirectional_attention is not supported: decoding is causal")
    base = _gemma2(fields, name, {})
    return replace(
        base,
        qk_norm=True,
        turns=tuple(_turn(fields, base.head_dim, _rope(fields, kind)) for kind in _KINDS),
        turn=tuple(_KINDS.index(kind) for kind in _kinds(fields, name)),
    )


def _phi3(fields: Fields, name: str) -> Config:
    return replace(_llama(fields, name), fused=True)


def _phi(fields: Fields, name: str) -> Config:
    if fields.get("qk_layernorm"):
        raise UnsupportedError("qk_layernorm of Phi is not supported")
    part = {"partial_rotary_factor": 0.5, **fields}
    return replace(
        _llama(part, name),
        norm="layer",
        eps=_eps(fields, "layer_norm_eps", 1e-5),
        gated=False,
        parallel=True,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        head_bias=True,
    )


def _gpt2(fields: Fields, name: str) -> Config:
    for field in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        if fields.get(field):
            raise UnsupportedError(f"{field} of GPT-2 is not supported")
    heads, hidden = fields["n_head"], fields["n_embd"]
    size = hidden // heads
    return Config(
        architecture=name,
        vocab=fields["vocab_size"],
        hidden=hidden,
        inner=fields.get("n_inner") or 4 * hidden,
        layers=fields["n_layer"],
        heads=heads,
        kv_heads=heads,
        head_dim=size,
        context=fields["n_positions"],
        eps=_eps(fields, "layer_norm_epsilon", 1e-5),
        scale=size**-0.5 if fields.get("scale_attn_weights", True) else 1.0,
        turn=(-1,) * fields["n_layer"],
        norm="layer",
        activation=_activation(
            {"activation_function": "gelu_new", **fields}, "activation_function"
        ),
        gated=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        tied=bool(fields.get("tie_word_embeddings", True)),
        positions=fields["n_positions"],
    )


_Make = Callable[[Fields, str], Config]
# Of each architecture the fields that config.json must have, and what reads them.
ARCHITECTURES: dict[str, tuple[tuple[str, ...], _Make]] = {
    "LlamaForCausalLM": (_SIZES, _llama),
    "MistralForCausalLM": (_SIZES, _llama),
    "MixtralForCausalLM": ((*_SIZES, "num_local_experts", "num_experts_per_tok"), _mixtral),
    "Qwen2ForCausalLM": (_SIZES, _qwen2),
    "Qwen3ForCausalLM": (_SIZES, _qwen3),
    "Gemma2ForCausalLM": ((*_SIZES, "head_dim", "query_pre_attn_scalar"), _gemma2),
    "Gemma3ForCausalLM": ((*_SIZES, "head_dim", "query_pre_attn_scalar"), _gemma3),
    "Phi3ForCausalLM": (_SIZES, _phi3),
    "PhiForCausalLM": (_SIZES, _phi),
    "GPT2LMHeadModel": (("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"), _gpt2),
}

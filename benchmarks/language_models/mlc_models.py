"""Small configurations of the architectures that MLC-LLM defines, in the words of config.json.

``hf`` names the model type of transformers that computes the same, ``None`` where it has none; what
only one of the two understands stands in ``mlc_only`` and ``hf_only``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Small:
    """A small configuration; ``hf``: transformers' model type, or None.

    ``batches``: False where MLC's ``batch_decode`` takes one sequence only (the definition says
    that a batch has one position). ``turns_halves``: MLC turns the halves of a head, transformers
    neighbours, so MLC's model gets the rows of queries and keys in the order that makes both one.
    """

    config: dict[str, Any]
    hf: str | None = None
    mlc_only: dict[str, Any] = field(default_factory=dict[str, Any])
    hf_only: dict[str, Any] = field(default_factory=dict[str, Any])
    batches: bool = True
    turns_halves: bool = False


#: Tokens that a cache holds, and the longest sequence.
CONTEXT: Final = 64
VOCABULARY: Final = 96

_SHAPE: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
}
_GROUPED: Final = _SHAPE | {"num_key_value_heads": 2}
_RMS: Final = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "rope_theta": 10000}
_TOKENS: Final = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_USE: Final = {"use_cache": True, "initializer_range": 0.02}
_LLAMA: Final = _GROUPED | _RMS
_GPT2: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_inner": 96,
    "n_positions": CONTEXT,
    "layer_norm_epsilon": 1e-5,
}
_GEMMA: Final = _GROUPED | {
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "attention_bias": False,
    "hidden_activation": "gelu_pytorch_tanh",
}
_GEMMA3: Final = _GEMMA | {
    "query_pre_attn_scalar": 32,
    "sliding_window": 512,
}
_CLIP: Final[dict[str, Any]] = {
    "hidden_size": 64,
    "image_size": 28,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "patch_size": 14,
    "projection_dim": 64,
    "vocab_size": VOCABULARY,
    "layer_norm_eps": 1e-5,
    "num_channels": 3,
}
_MOE: Final = {"num_experts_per_tok": 2, "norm_topk_prob": True}
_DEEPSEEK: Final[dict[str, Any]] = (
    _SHAPE
    | _RMS
    | _MOE
    | {
        "num_key_value_heads": 4,
        "moe_intermediate_size": 32,
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "moe_layer_freq": 1,
        "first_k_dense_replace": 1,
        "hidden_act": "silu",
        "attention_bias": False,
    }
    | _TOKENS
    | _USE
)
_YARN: Final[dict[str, Any]] = {
    "rope_type": "yarn",
    "type": "yarn",
    "factor": 4.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
    "original_max_position_embeddings": CONTEXT // 4,
}
_MLA: Final[dict[str, Any]] = _DEEPSEEK | {
    "rope_scaling": _YARN,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "routed_scaling_factor": 1.5,
    "n_group": 2,
    "topk_group": 1,
}

SMALL: Final[dict[str, Small]] = {
    "llama": Small(_LLAMA, "llama"),
    "mistral": Small(_LLAMA, "mistral", {"sliding_window_size": -1}, {"sliding_window": None}),
    "gemma": Small(_GEMMA, "gemma"),
    "gemma2": Small(
        _GEMMA
        | {
            "final_logit_softcapping": 30.0,
            "query_pre_attn_scalar": 32,
            "sliding_window": 4096,
        },
        "gemma2",
        {"attn_logit_softcapping": 50.0},
        {"attn_logit_softcapping": None},
    ),
    "gemma3": Small({"vocab_size": VOCABULARY}, "gemma3_text", {"text_config": _GEMMA3}, _GEMMA3),
    "gemma3_text": Small(_GEMMA3, "gemma3_text"),
    "gpt2": Small(_GPT2, "gpt2", batches=False),
    "mixtral": Small(_LLAMA | {"num_local_experts": 8, "num_experts_per_tok": 2}, "mixtral"),
    "gpt_neox": Small(
        _SHAPE
        | {
            "use_parallel_residual": True,
            "layer_norm_eps": 1e-5,
            "rotary_pct": 0.25,
            "rotary_emb_base": 10000,
        },
        "gpt_neox",
    ),
    "gpt_bigcode": Small(
        _GPT2,
        "gpt_bigcode",
        hf_only={"tie_word_embeddings": False, "activation_function": "gelu"},
        batches=False,
    ),
    "phi-msft": Small(_GPT2 | {"model_type": "phi-msft", "rotary_dim": 8}),
    "phi": Small(
        _SHAPE | {"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "rope_theta": 10000}, "phi"
    ),
    "phi3": Small(
        _LLAMA | {"original_max_position_embeddings": CONTEXT} | _TOKENS,
        "phi3",
        {"model_type": "phi3"},
    ),
    "phi3_v": Small(
        _LLAMA
        | {
            "num_key_value_heads": 4,
            "model_type": "phi3_v",
            "original_max_position_embeddings": CONTEXT,
            "img_processor": {"image_dim_out": 1024},
        }
    ),
    "qwen": Small(
        _SHAPE
        | {
            "layer_norm_epsilon": 1e-6,
            "scale_attn_weights": True,
            "kv_channels": 16,
            "rotary_emb_base": 10000,
            "intermediate_size": 192,
        }
    ),
    "qwen2": Small(_LLAMA | {"hidden_act": "silu"}, "qwen2"),
    "qwen2_moe": Small(
        _LLAMA
        | _MOE
        | {
            "hidden_act": "silu",
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64,
            "num_experts": 8,
            "decoder_sparse_step": 1,
            "norm_topk_prob": False,
        },
        "qwen2_moe",
    ),
    "qwen3": Small(
        _LLAMA | {"hidden_act": "silu", "attention_bias": False, "head_dim": 16}, "qwen3"
    ),
    "qwen3_moe": Small(
        _LLAMA
        | _MOE
        | {
            "hidden_act": "silu",
            "attention_bias": False,
            "head_dim": 16,
            "moe_intermediate_size": 32,
            "num_experts": 8,
            "decoder_sparse_step": 1,
        },
        "qwen3_moe",
    ),
    "deepseek_v2": Small(
        # transformers does not make the experts' weights sum to 1 in this one.
        _MLA
        | {
            "topk_method": "group_limited_greedy",
            "scoring_func": "softmax",
            "norm_topk_prob": False,
        },
        "deepseek_v2",
        batches=False,
    ),
    "deepseek_v3": Small(
        _MLA | {"topk_method": "noaux_tc", "scoring_func": "sigmoid"},
        "deepseek_v3",
        batches=False,
    ),
    "stablelm": Small(
        _GROUPED
        | {
            "layer_norm_eps": 1e-5,
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000,
            "use_qkv_bias": True,
        },
        "stablelm",
    ),
    "baichuan": Small(_SHAPE | _RMS | _TOKENS | _USE),
    "internlm": Small(_SHAPE | _RMS | _TOKENS | _USE | {"bias": True}),
    "internlm2": Small(_LLAMA | _TOKENS | _USE | {"bias": False}),
    "rwkv5": Small(_SHAPE | {"model_version": "5_2", "head_size": 32, "layer_norm_epsilon": 1e-5}),
    "orion": Small(_LLAMA),
    "llava": Small(
        {
            "vocab_size": VOCABULARY,
            "image_token_index": 95,
            "text_config": _LLAMA,
            "vision_config": _CLIP,
        },
        "llava",
    ),
    "rwkv6": Small(_SHAPE | {"model_version": "6_0", "head_size": 32, "layer_norm_epsilon": 1e-5}),
    "chatglm": Small(
        {
            "hidden_size": 64,
            "num_layers": 2,
            "kv_channels": 16,
            "num_attention_heads": 4,
            "ffn_hidden_size": 96,
            "layernorm_epsilon": 1e-5,
            "post_layer_norm": True,
            "rmsnorm": True,
            "add_bias_linear": False,
            "add_qkv_bias": True,
            "apply_query_key_layer_scaling": True,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "vocab_size": VOCABULARY,
            "seq_length": CONTEXT,
        }
    ),
    "eagle": Small(_LLAMA),
    "bert": Small(
        _SHAPE | {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2}, "bert"
    ),
    "medusa": Small(
        {
            "medusa_num_heads": 2,
            "medusa_num_layers": 1,
            "hidden_size": 64,
            "vocab_size": VOCABULARY,
        }
    ),
    "starcoder2": Small(
        _GROUPED
        | _TOKENS
        | _USE
        | {
            "hidden_act": "gelu_pytorch_tanh",
            "norm_epsilon": 1e-5,
            "rope_theta": 10000,
            "use_bias": True,
        },
        "starcoder2",
        # MLC's names take the last product from the table of tokens.
        hf_only={"tie_word_embeddings": True, "sliding_window": None},
    ),
    "cohere": Small(
        _GROUPED
        | {"model_type": "cohere", "layer_norm_eps": 1e-5, "rope_theta": 10000, "logit_scale": 1.0},
        "cohere",
        turns_halves=True,
    ),
    "minicpm": Small(
        _LLAMA
        | _TOKENS
        | _USE
        | {
            "hidden_act": "silu",
            "scale_emb": 12,
            "scale_depth": 1.4,
            "dim_model_base": 32,
            "num_experts": 0,
        }
    ),
    "deepseek": Small(_DEEPSEEK),
    "gptj": Small(
        _GPT2 | {"rotary_dim": 8},
        "gptj",
        # gelu_new is what MLC computes as gelu; its config says how heads are turned.
        {"activation_function": "gelu_new", "rope_scaling": {"rope_type": "gptj"}},
        {"activation_function": "gelu"},
    ),
    "olmo": Small(_LLAMA | {"hidden_act": "silu", "clip_qkv": 8.0}, "olmo"),
    "nemotron": Small(
        _GROUPED
        | {
            "norm_eps": 1e-5,
            "partial_rotary_factor": 0.5,
            "rope_theta": 10000,
            "tie_word_embeddings": False,
            "head_dim": 16,
        },
        "nemotron",
    ),
}

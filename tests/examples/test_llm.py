"""The language models of examples/models/llm beside transformers, small and with random weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import generate
from examples.models.llm import load
from relax2xla.errors import FileFormatError, UnsupportedError
from relax2xla.frontend.nn.llm.generate import Generator

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GEMMA = {**SIZES, "head_dim": 16, "query_pre_attn_scalar": 24}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# Of each model the configuration's class, and its fields.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("LlamaConfig", {**SIZES, "rope_parameters": LLAMA3, "mlp_bias": True}),
    "MistralForCausalLM": ("MistralConfig", {**SIZES, "head_dim": 16, "sliding_window": 6}),
    "Qwen2ForCausalLM": (
        "Qwen2Config",
        {
            **SIZES,
            "tie_word_embeddings": True,
            "num_hidden_layers": 2,
            "use_sliding_window": True,
            "max_window_layers": 1,
            "sliding_window": 4,
        },
    ),
    "Qwen3ForCausalLM": ("Qwen3Config", {**SIZES, "head_dim": 16}),
    "Gemma2ForCausalLM": (
        "Gemma2Config",
        {**GEMMA, "num_hidden_layers": 2, "sliding_window": 5, "attn_logit_softcapping": 2.0},
    ),
    "Gemma3ForCausalLM": (
        "Gemma3TextConfig",
        {
            **GEMMA,
            "num_hidden_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 9,
            "final_logit_softcapping": 2.0,
        },
    ),
    "Phi3ForCausalLM": ("Phi3Config", SIZES),
    "PhiForCausalLM": ("PhiConfig", {**SIZES, "partial_rotary_factor": 0.5}),
    "MixtralForCausalLM": ("MixtralConfig", {**SIZES, "num_local_experts": 4}),
    "GPT2LMHeadModel": (
        "GPT2Config",
        {
            "vocab_size": 64,
            "n_embd": 32,
            "n_layer": 1,
            "n_head": 4,
            "n_positions": 128,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
}
TOKENS = np.random.default_rng(0).integers(3, 64, 13).tolist()


def saved(name: str, folder: Path, **how: Any) -> Any:
    """A model of transformers with random weights, saved."""
    config, fields = MODELS[name]
    made = getattr(transformers, config)(**fields)
    made._attn_implementation = "eager"
    torch.manual_seed(0)
    with torch.random.fork_rng():
        model = getattr(transformers, name)(made).eval()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(folder, **how)
    return model


# Whose parts the others have as well; RELAX2XLA_ALL_NETWORKS takes them, too.
ALIKE = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"}
TAKEN = set(MODELS) - (set() if os.environ.get("RELAX2XLA_ALL_NETWORKS") else ALIKE)


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    ours = Generator(load(tmp_path), sequences=1, tokens=64, chunk=8)
    with torch.no_grad():
        want = theirs(torch.tensor([TOKENS])).logits[0].numpy()
    np.testing.assert_allclose(ours.logits(TOKENS), want, rtol=0, atol=1e-5)


def test_texts_of_a_folder_are_those_of_transformers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    theirs = saved("LlamaForCausalLM", tmp_path, max_shard_size="12KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1  # the weights come in parts
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(64)}))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    wanted: list[str] = []
    prompts = [TOKENS[:4], TOKENS]
    for prompt in prompts:
        with torch.no_grad():
            made = theirs.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                max_new_tokens=5,
                do_sample=False,
            )[0, len(prompt) :].tolist()
        wanted.append(words.decode([t for t in made if t != 2]))
    texts = [words.decode(p) for p in prompts]
    made = generate.main([str(tmp_path), *texts, "--tokens", "5"])
    assert [t.split() for t in made] == [t.split() for t in wanted]
    assert f"--- {texts[0]}" in capsys.readouterr().out


def test_folders_that_are_wrong(tmp_path: Path) -> None:
    saved("MistralForCausalLM", tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())

    def says(error: type[Exception], said: str, **changed: Any) -> None:
        with pytest.raises(error, match=said):
            load(tmp_path, changed)

    says(UnsupportedError, "known are GPT2LMHeadModel, Gemma2", architectures=["BertModel"])
    says(FileFormatError, "lacks the fields vocab_size, hidden", vocab_size=None, hidden_size=None)
    says(
        FileFormatError,
        "hidden_size='32', num_hidden_layers=-1; these are positive whole",
        hidden_size="32",
        num_hidden_layers=-1,
    )
    says(FileFormatError, "num_key_value_heads=0; these", num_key_value_heads=0)
    says(FileFormatError, "num_hidden_layers=1000000000; a model", num_hidden_layers=10**9)
    says(FileFormatError, "rms_norm_eps=nan; it is a number", rms_norm_eps=float("nan"))
    says(UnsupportedError, "architecture Bert; known", architectures="Bert")
    says(FileFormatError, "heads of queries cannot share 3 heads of keys", num_key_value_heads=3)
    says(
        FileFormatError,
        "which do not agree",
        rope_parameters={"rope_type": "default"},
        rope_scaling={"rope_type": "linear", "factor": 2.0},
    )
    says(FileFormatError, r"model.embed_tokens.weight is of the shape \[64, 32\]", vocab_size=65)
    says(FileFormatError, "layers.1.self_attn.q_proj.weight is missing", num_hidden_layers=2)
    says(UnsupportedError, "activation 'sin' is unknown", hidden_act="sin")
    says(UnsupportedError, "packed for another library", quantization_config={"bits": 4})
    says(FileFormatError, "sliding_window=-1; it is a positive", sliding_window=-1)
    gemma = {"architectures": ["Gemma2ForCausalLM"], "query_pre_attn_scalar": 16}
    says(FileFormatError, "attn_logit_softcapping='x'; it is", attn_logit_softcapping="x", **gemma)
    says(FileFormatError, "layer_types must say", layer_types=["full"], **gemma)
    assert load(tmp_path, {"sliding_window": 6}).context == fields["max_position_embeddings"]

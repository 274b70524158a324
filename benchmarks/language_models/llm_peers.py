"""What ``python -m benchmarks llm --peers PYTHON`` runs in that Python: a peer on the same weights.

``python -m benchmarks.language_models.llm_peers NAME FOLDER PROMPT DECODED ROUNDS`` prints a line
of JSON: tokens a processor second of a prefill of PROMPT tokens and of decoding DECODED more, each
the best of the rounds, on one thread, and the MiB that the process holds beyond what its libraries
take. FOLDER holds config.json and model.safetensors of a Llama. A name whose library is not there
is an ImportError.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Fills the memory of a cache with a prompt; gives one token, and the number of tokens held.
Prefill = Callable[[list[int]], None]
Decode = Callable[[], None]


def resident() -> float:
    """MiB of memory that this process holds; 0 where the system does not say."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def by_transformers(folder: Path) -> tuple[Prefill, Decode]:
    import torch
    import transformers

    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    held: dict[str, Any] = {}

    def run(tokens: Any, cache: Any) -> None:
        with torch.no_grad():
            out = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
        held.update(token=out.logits[:, -1:].argmax(-1), cache=out.past_key_values)

    return (
        lambda prompt: run(torch.tensor([prompt]), None),
        lambda: run(held["token"], held["cache"]),
    )


def by_genai(folder: Path) -> tuple[Prefill, Decode]:
    import onnxruntime_genai as og

    made = folder / "onnx"
    if not (made / "genai_config.json").exists():
        _write_tokenizer(folder)
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        paths = ["-i", str(folder), "-o", str(made), "-c", str(folder / "cache")]
        subprocess.run(
            [*command, *paths, "-p", "fp32", "-e", "cpu"], check=True, stdout=subprocess.DEVNULL
        )
    config = og.Config(str(made))
    config.overlay(
        json.dumps(
            {
                "model": {
                    "decoder": {
                        "session_options": {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
                    }
                }
            }
        )
    )
    model = og.Model(config)
    held: dict[str, Any] = {}

    def prefill(prompt: list[int]) -> None:
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=2 * len(prompt) + 256, do_sample=False)
        held["generator"] = og.Generator(model, params)
        held["generator"].append_tokens(np.array([prompt], np.int32))
        held["generator"].generate_next_token()

    # The token that was chosen is computed with, and the next one chosen.
    return prefill, lambda: held["generator"].generate_next_token()


def _write_tokenizer(folder: Path) -> None:
    """A tokenizer of numbers, which the converter wants to copy."""
    from tokenizers import Tokenizer, models

    count = json.loads((folder / "config.json").read_text())["vocab_size"]
    words = Tokenizer(models.WordLevel({str(i): i for i in range(count)}, unk_token="0"))
    words.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "0"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))


def by_llama_cpp(folder: Path, bits: str = "") -> tuple[Prefill, Decode]:
    import llama_cpp

    path = folder / "model.gguf"
    if not path.exists():
        _write_gguf(folder, path)
    if bits:
        whole, path = path, folder / f"model.{bits}.gguf"
        if not path.exists():
            how = llama_cpp.llama_model_quantize_default_params()
            how.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{bits}")
            how.nthread = 1
            names = (str(whole).encode(), str(path).encode())
            if llama_cpp.llama_model_quantize(*names, how) != 0:
                raise RuntimeError(f"llama.cpp does not quantise to {bits}")
    model = llama_cpp.Llama(
        str(path), n_ctx=1024, n_threads=1, n_threads_batch=1, verbose=False, logits_all=False
    )

    def prefill(prompt: list[int]) -> None:
        model.reset()
        model.eval(prompt)

    return prefill, lambda: model.eval([model.sample(temp=0.0)])


def _write_gguf(folder: Path, path: Path) -> None:
    """The same model in llama.cpp's format, in float32."""
    import gguf
    from safetensors.numpy import load_file

    c = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(c["hidden_size"] // heads)
    writer.add_rope_freq_base(c["rope_theta"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_vocab_size(c["vocab_size"])
    writer.add_tokenizer_model("none")
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        **{f"self_attn.{n}_proj": f"attn_{n}" for n in "qkv"},
        "self_attn.o_proj": "attn_output",
        **{f"mlp.{n}_proj": f"ffn_{n}" for n in ("gate", "up", "down")},
    }
    for name, value in load_file(folder / "model.safetensors").items():
        base = name.removesuffix(".weight")
        layer = ""
        if base.startswith("model.layers."):
            _, _, number, base = base.split(".", 3)
            layer = f"blk.{number}."
        if base in ("self_attn.q_proj", "self_attn.k_proj"):
            # llama.cpp turns neighbours where transformers turns halves.
            count = heads if base == "self_attn.q_proj" else kv_heads
            size = len(value) // count
            value = value.reshape(count, 2, size // 2, -1).swapaxes(1, 2).reshape(value.shape)
        writer.add_tensor(f"{layer}{names[base]}.weight", np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


#: By name what loads a model, and gives its prefill and its decode of a token.
PEERS: dict[str, Callable[[Path], tuple[Prefill, Decode]]] = {
    "transformers": by_transformers,
    "onnxruntime-genai": by_genai,
    "llama.cpp": by_llama_cpp,
    "llama.cpp Q8_0": lambda folder: by_llama_cpp(folder, "Q8_0"),
    "llama.cpp Q4_0": lambda folder: by_llama_cpp(folder, "Q4_0"),
}


def measure(name: str, folder: Path, length: int, decoded: int, rounds: int) -> dict[str, float]:
    """What the module's docstring says."""
    prompt = np.random.default_rng(1).integers(3, 1000, length).tolist()
    before = resident()
    prefill, decode = PEERS[name](folder)
    best = {"prefill": 0.0, "decode": 0.0}
    for _ in range(rounds + 1):  # the first makes what is made once
        start = time.process_time()
        prefill(prompt)
        best["prefill"] = max(best["prefill"], length / (time.process_time() - start))
        start = time.process_time()
        for _ in range(decoded):
            decode()
        best["decode"] = max(best["decode"], decoded / (time.process_time() - start))
    return {**best, "memory": resident() - before}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    made = measure(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6]))
    print(json.dumps(made))

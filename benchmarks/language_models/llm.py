"""Tokens a processor second of Llamas: alone, four at once, in few bits, beside their peers.

Random weights, which cost what others do, in a folder that all of them read: of 125 M parameters,
and of TinyLlama's shape with 11 layers. Seconds are those of a process, all its threads, in the
best of some rounds. GB/s is what bounds a decode: the weights that a token reads. MiB are what the
process holds then beyond what it held before the model, beside the weights' own.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.language_models.llm_peers import PEERS, resident
from examples.models.llm import CausalLM, load
from relax2xla.frontend.nn.llm.generate import Generator
from relax2xla.frontend.nn.llm.quantization import quantize
from relax2xla.frontend.nn.llm.sampling import Sampling
from relax2xla.runtime.weights import write_safetensors

ROOT = Path(__file__).parents[2]
FIELDS: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "float32",
    "vocab_size": 32000,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SIZES: dict[str, dict[str, Any]] = {
    "125 M": FIELDS,
    "TinyLlama, 11 layers": FIELDS
    | {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 11,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
    },
}
PROMPT, DECODED = 128, 32
SCHEMES = (None, "q8f16_1", "q4f16_1", "q3f16_1")
# Tokens a processor second that the project promises: decode of one text, by size and scheme.
GOALS = {
    ("125 M", None): 32,
    ("125 M", "q8f16_1"): 63,
    ("125 M", "q4f16_1"): 82,
    ("TinyLlama, 11 layers", None): 6,
}
# Peers of other numbers than float32 are run on the small model alone.
_PRECISE = ("transformers", "onnxruntime-genai", "llama.cpp")


def write_folder(fields: dict[str, Any], folder: Path) -> None:
    """A model of transformers' layout with random weights."""
    rng = np.random.default_rng(0)
    size, inner = fields["hidden_size"], fields["intermediate_size"]
    head = size // fields["num_attention_heads"]
    kv = fields["num_key_value_heads"] * head
    layer = {
        **{f"self_attn.{n}_proj": (size, size) for n in "qo"},
        **{f"self_attn.{n}_proj": (kv, size) for n in "kv"},
        **{f"mlp.{n}_proj": (inner, size) for n in ("gate", "up")},
        "mlp.down_proj": (size, inner),
        "input_layernorm": (size,),
        "post_attention_layernorm": (size,),
    }
    table = (fields["vocab_size"], size)
    shapes = {"model.embed_tokens": table, "lm_head": table, "model.norm": (size,)}
    for i in range(fields["num_hidden_layers"]):
        shapes |= {f"model.layers.{i}.{n}": shape for n, shape in layer.items()}
    made = {
        f"{name}.weight": rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)
        if len(shape) > 1
        else np.ones(shape, np.float32)
        for name, shape in shapes.items()
    }
    (folder / "config.json").write_text(json.dumps(fields))
    with (folder / "model.safetensors").open("wb") as file:
        write_safetensors(file, made)


def ours(made: CausalLM, batch: int, rounds: int) -> tuple[float, float, float]:
    """Tokens a second of a prefill, of decoding that many texts at once, and MiB held then."""
    generator = Generator(made, sequences=batch, tokens=batch * 256, chunk=batch * PROMPT)
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, made.vocab, PROMPT).tolist() for _ in range(batch)]
    how = Sampling(max_tokens=DECODED + 1)
    spent: dict[str, list[float]] = {"prefill": [], "decode": []}
    for _ in range(rounds + 1):
        for prompt in prompts:
            generator.submit(prompt, how)
        for kind in ("prefill", "decode"):
            start, count = time.process_time(), 0
            if kind == "prefill":
                generator.step()
                count = batch * PROMPT
            while kind == "decode" and generator.busy:
                count += len(generator.step())
            spent[kind].append(count / (time.process_time() - start))
    return max(spent["prefill"][1:]), max(spent["decode"][1:]), resident()


def _read(made: CausalLM) -> float:
    """GB of weights that a token reads: all but the table of tokens, of which it takes a row."""
    skipped = {id(p) for p in made.embed.parameters()}
    arrays = [np.asarray(p.data) for p in made.parameters() if id(p) not in skipped]
    return sum(a.nbytes for a in arrays) / 1e9


def _row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _ours(folder: Path, size: str, rounds: int, quick: bool) -> None:
    before = resident()
    for scheme in SCHEMES[:1] if quick or size != "125 M" else SCHEMES:
        alone = 0.0
        for batch in (1, 4):
            gc.collect()
            made = load(folder)
            if scheme is not None:
                quantize(made, scheme)
            first, rate, held = ours(made, batch, rounds)
            read = _read(made)
            goal = GOALS.get((size, scheme), "") if batch == 1 else f"{3.2 * alone:.0f}"
            alone = alone or rate
            weights = sum(np.asarray(p.data).nbytes for p in made.parameters()) / 2**20
            _row(
                *(size, f"relax2xla, {scheme or 'float32'}", batch, f"{first:.0f}"),
                *(f"{rate:.1f}", goal, f"{read * rate / batch:.1f}"),
                f"{held - before:.0f} ({weights:.0f})",
            )
            del made


def _theirs(python: str, folder: Path, size: str, rounds: int) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    for name in PEERS:
        if size != "125 M" and name not in _PRECISE:
            continue
        numbers = map(str, (PROMPT, DECODED, rounds))
        command = [
            python,
            "-m",
            "benchmarks.language_models.llm_peers",
            name,
            str(folder),
            *numbers,
        ]
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            _row(size, name, 1, f"{said:.90}", "", "", "", "")
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        _row(
            *(size, name, 1, f"{found['prefill']:.0f}", f"{found['decode']:.1f}", "", ""),
            f"{found['memory']:.0f}",
        )


def main(quick: bool = False, peers: str | None = None) -> None:
    """Print the table. ``peers``: a Python with their libraries; None: this one."""
    rounds = 1 if quick else 3
    _row("model", "by", "texts", "prefill, tokens/s", "decode, tokens/s", "goal", "GB/s", "MiB")
    _row(*["---"] * 8)
    for size, fields in SIZES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_folder(fields, folder)
            _ours(folder, size, rounds, quick)
            _theirs(peers or sys.executable, folder, size, rounds)

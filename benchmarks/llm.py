"""Tokens a processor second of a Llama of 125 M parameters: alone, four at once, in few bits.

Random weights, which cost what others do. Seconds are those of this process, all its threads, in
the best of some rounds; a model of the same sizes runs in transformers, where it is installed, on
one thread. The last column is what bounds a decode: the weights that a token reads, in GB/s.
"""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from examples.models.llm import CausalLM
from examples.models.llm.config import config_from
from relax2xla.frontend.nn.llm.generate import Generator
from relax2xla.frontend.nn.llm.quantization import quantize
from relax2xla.frontend.nn.llm.sampling import Sampling

FIELDS: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
PROMPT, DECODED = 128, 32
SCHEMES = (None, "q8f16_1", "q4f16_1", "q3f16_1")
# Tokens a processor second that the project promises: decode of one text, by scheme.
GOALS = {None: 32, "q8f16_1": 63, "q4f16_1": 82}


def model() -> CausalLM:
    """The model with random weights."""
    made, rng = CausalLM(config_from(FIELDS)), np.random.default_rng(0)
    for _, p in made.named_parameters():
        shape = [int(n) for n in p.shape]
        values = rng.standard_normal(shape, np.float32) * shape[-1] ** -0.5
        p.data = values if len(shape) > 1 else np.ones(shape, np.float32)
    return made


def _rate(run: Callable[[], int], rounds: int) -> float:
    """The most tokens a processor second; the first round, which compiles, does not count."""
    run()
    best = 0.0
    for _ in range(rounds):
        start = time.process_time()
        count = run()
        best = max(best, count / (time.process_time() - start))
    return best


def ours(made: CausalLM, batch: int, rounds: int) -> tuple[float, float]:
    """Tokens a second of a prefill, and of decoding that many texts at once."""
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
    return max(spent["prefill"][1:]), max(spent["decode"][1:])


def theirs(rounds: int) -> tuple[float, float]:
    """The same of transformers (one text), by the model's own shapes."""
    import torch
    import transformers

    torch.set_num_threads(1)
    fields = {k: v for k, v in FIELDS.items() if k != "architectures"}
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields)).eval()
    tokens = torch.randint(0, FIELDS["vocab_size"], (1, PROMPT))
    with torch.no_grad():

        def prefill() -> int:
            made(tokens, use_cache=True)
            return PROMPT

        def decode() -> int:
            out = made(tokens, use_cache=True)
            nonlocal spent
            start = time.process_time()
            token, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
            for _ in range(DECODED):
                out = made(token, past_key_values=cache, use_cache=True)
                token, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
            spent = min(spent, time.process_time() - start)
            return DECODED

        spent = float("inf")
        first = _rate(prefill, rounds)
        for _ in range(rounds):
            decode()
        return first, DECODED / spent


def _read(made: CausalLM) -> float:
    """GB of weights that a token reads: all but the table of tokens, of which it takes a row."""
    skipped = {id(p) for p in made.embed.parameters()}
    arrays = [np.asarray(p.data) for p in made.parameters() if id(p) not in skipped]
    return sum(a.nbytes for a in arrays) / 1e9


def main(quick: bool = False) -> None:
    """Print the table."""
    rounds = 1 if quick else 3
    print("| weights | batch | prefill 128, tokens/s | decode, tokens/s | goal | weights, GB/s |")
    print("|---" * 6 + "|")
    for scheme in SCHEMES[:1] if quick else SCHEMES:
        for batch in (1, 4):
            made = model()
            if scheme is not None:
                quantize(made, scheme)
            first, rate = ours(made, batch, rounds)
            goal = GOALS.get(scheme, "") if batch == 1 else ""
            read = _read(made) * rate / batch
            name = scheme or "float32"
            print(
                f"| {name} | {batch} | {first:.0f} | {rate:.1f} | {goal} | {read:.1f} |", flush=True
            )
            del made
            gc.collect()
    if importlib.util.find_spec("transformers") and importlib.util.find_spec("torch"):
        first, rate = theirs(rounds)
        print(f"| transformers, float32 | 1 | {first:.0f} | {rate:.1f} | | |")

"""Text of a language model in a folder of transformers, as it comes.

    python -m examples.generate FOLDER "Once upon a time" --tokens 100
    python -m examples.generate FOLDER "One:" "Two:" --temperature 0.8 --top-p 0.95 --seed 1
    python -m examples.generate FOLDER "Once" --quantize q4f16_1

A folder has config.json, *.safetensors and tokenizer.json (docs/llm.md); needs the package
tokenizers (pip install '.[llm]'). Without a folder, a small model with random weights is
made and continues a text of bytes: it says nothing, and shows that all of it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.models.llm import CausalLM, load
from examples.models.llm.config import config_from
from relax2xla.errors import TVMError
from relax2xla.frontend.nn.llm.folder import read_config
from relax2xla.frontend.nn.llm.generate import Generator
from relax2xla.frontend.nn.llm.quantization import quantize
from relax2xla.frontend.nn.llm.sampling import Sampling
from relax2xla.frontend.nn.llm.text import FolderTokenizer

SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


class Bytes:
    """Every byte of UTF-8 is a token."""

    def encode(self, text: str) -> list[int]:
        """The bytes."""
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """Their text."""
        return bytes(tokens).decode("utf-8", "replace")


def small_model(fields: dict[str, Any] = SMALL, seed: int = 0) -> CausalLM:
    """A model with random weights."""
    model, rng = CausalLM(config_from(fields)), np.random.default_rng(seed)
    for _, p in model.named_parameters():
        shape = [int(n) for n in p.shape]
        values = rng.standard_normal(shape, np.float32) * shape[-1] ** -0.5
        p.data = values if len(shape) > 1 else np.ones(shape, np.float32)
    return model


def end_of_text(folder: Path) -> tuple[int, ...]:
    """The tokens that end a text, as the folder says."""
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            found = read_config(folder, name).get("eos_token_id")
            if found is not None:
                return tuple(found) if isinstance(found, list) else (found,)
    return ()


def field(word: str) -> tuple[str, Any]:
    """A field of config.json, of FIELD=JSON."""
    name, _, value = word.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        raise ValueError(f"--set {word}: expected FIELD=JSON, as in hidden_size=128") from None


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of the model; none: a small one")
    parser.add_argument("prompts", nargs="*", default=[], help="one text, or several at once")
    parser.add_argument("--tokens", type=int, default=64, help="of each text, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the most probable token")
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--stop", action="append", default=[], help="a text at which it ends")
    parser.add_argument("--quantize", metavar="NAME", help="q4f16_1, q8f32_1, ... (docs/llm.md)")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=JSON", dest="fields")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> list[str]:
    """Print the texts, and give them."""
    args = parsed(words)
    if args.folder is None:
        model, tokenizer, end = small_model(), Bytes(), ()
    else:
        model = load(args.folder, dict(map(field, args.fields)))
        tokenizer, end = FolderTokenizer(args.folder), end_of_text(args.folder)
    if args.quantize:
        quantize(model, args.quantize)
    prompts = args.prompts or ["Once upon a time"]
    how = Sampling(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        seed=args.seed,
        stop=tuple(args.stop),
        max_tokens=args.tokens,
    )
    generator = Generator(model, tokenizer, sequences=len(prompts), end=end)
    start = time.perf_counter()
    if len(prompts) == 1:
        made = []
        for piece in generator.stream(prompts[0], how):
            print("" if made else prompts[0], piece.text, sep="", end="", flush=True)
            made = [piece.request]
        print()
    else:
        made = generator.generate(prompts, how)
        for prompt, request in zip(prompts, made, strict=True):
            print(f"--- {prompt}{request.text}")
    seconds = time.perf_counter() - start
    count = sum(len(r.tokens) for r in made)
    print(f"{count} tokens in {seconds:.1f} s, the compilation included", file=sys.stderr)
    return [r.text for r in made]


if __name__ == "__main__":
    try:
        main()
    except (TVMError, ValueError) as e:  # of the folder or the model; of settings
        sys.exit(f"error: {e}")

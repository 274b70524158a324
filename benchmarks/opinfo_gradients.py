"""Derivatives of torch's operator database: JAX's of the imported program beside torch.autograd's.

``python -m benchmarks.opinfo_gradients [--only NAME ...] [--out FILE] [--samples N]`` tries samples
that require gradients (and the same at kinks: values rounded, so that there are zeros and ties).
One line of JSON a sample: entry, number, status, reason.

pass      every gradient of a random weighting of the results is torch's
refused   the importer, or JAX, says that it cannot
wrong     another gradient, without a word
no grad   torch itself does not differentiate or export the sample
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import itertools
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.importers.torch.opinfo import Call, _brief, database, full_name

ROOT = Path(__file__).parents[1]
PASS, REFUSED, WRONG, NO_GRAD = "pass", "refused", "wrong", "no grad"


class Found(NamedTuple):
    """What came of one sample."""

    name: str
    sample: int
    status: str
    reason: str = ""


def entries() -> list[Any]:
    """The entries that torch differentiates in float32."""
    import torch

    return [e for e in database() if e.supports_autograd and e.supports_dtype(torch.float32, "cpu")]


def run(entry: Any, samples: int = 2, kinks: bool = True) -> Iterator[Found]:
    """The outcomes of one entry."""
    import torch

    name = full_name(entry)
    torch.manual_seed(0)
    try:
        given = list(
            itertools.islice(entry.sample_inputs("cpu", torch.float32, requires_grad=True), samples)
        )
    except Exception as e:
        yield Found(name, 0, NO_GRAD, f"no samples: {_brief(e)}")
        return
    for at, sample in enumerate(given):
        call = Call(entry.op, sample)
        wanted = [x.is_floating_point() for x in call.tensors]
        variants = [call]
        if kinks:
            variants.append(
                call.with_tensors(
                    [x.round() if f else x for x, f in zip(call.tensors, wanted, strict=True)]
                )
            )
        for n, variant in enumerate(variants):
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                status, reason = attempt(variant)
            torch.compiler.reset()
            yield Found(name, at * len(variants) + n, status, reason)


def attempt(call: Call) -> tuple[str, str]:
    """Status and reason of one sample."""
    import torch
    from torch.utils import _pytree as pytree

    from relax2xla.errors import OpNotImplemented, UnsupportedError
    from relax2xla.frontend.torch import from_exported_program

    floats = [i for i, x in enumerate(call.tensors) if x.is_floating_point()]
    try:
        torch.manual_seed(0)
        inputs = [x.clone().requires_grad_(i in floats) for i, x in enumerate(call.tensors)]
        outs = [y for y in pytree.tree_leaves(call.module(*inputs)) if isinstance(y, torch.Tensor)]
        used = [i for i, y in enumerate(outs) if y.is_floating_point() and y.requires_grad]
        if not used or not floats:
            return NO_GRAD, "nothing requires a gradient"
        weights = [torch.cos(torch.arange(outs[i].numel())).reshape(outs[i].shape) for i in used]
        total = sum((outs[i] * w).sum() for i, w in zip(used, weights, strict=True))
        want = torch.autograd.grad(total, [inputs[i] for i in floats], allow_unused=True)
        want = [
            np.zeros(inputs[i].shape, "f") if w is None else w.numpy()
            for i, w in zip(floats, want, strict=True)
        ]
        with torch.no_grad():
            program = torch.export.export(call.module, call.inputs())
    except Exception as e:
        return NO_GRAD, _brief(e)
    try:
        mod = from_exported_program(program)
    except (OpNotImplemented, UnsupportedError) as e:
        return REFUSED, f"import: {_brief(e)}"
    except Exception as e:
        return REFUSED, f"import error: {_brief(e)}"
    import jax

    from relax2xla.interop.jax import extract_jax

    fixed = [x.numpy() for x in call.tensors]
    try:
        fn, params = extract_jax(mod)
        with jax.enable_x64(False):

            def loss(*given: Any) -> Any:
                values = list(fixed)
                for i, g in zip(floats, given, strict=True):
                    values[i] = g
                made = jax.tree.leaves(fn(params, *values))
                return sum((made[i] * w.numpy()).sum() for i, w in zip(used, weights, strict=True))

            got = jax.grad(loss, tuple(range(len(floats))))(*(fixed[i] for i in floats))
    except Exception as e:
        return REFUSED, f"{type(e).__name__}: {_brief(e)}"
    for n, (g, w) in enumerate(zip(got, want, strict=True)):
        g = np.asarray(g)
        scale = np.abs(w[np.isfinite(w)]).max(initial=1.0)
        if not np.allclose(g, w, rtol=2e-4, atol=2e-5 * scale, equal_nan=True):
            bad = np.argwhere(~np.isclose(g, w, rtol=2e-4, atol=2e-5 * scale, equal_nan=True))
            at = tuple(map(int, bad[0]))
            what = f"{g[at]}, torch has {w[at]} ({len(bad)} of {g.size})"
            return WRONG, f"input {floats[n]} at {at}: {what}"
    return PASS, ""


def main(argv: Sequence[str] | None = None) -> None:
    """Run entries, and print what differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--out", type=Path, default=ROOT / "out/opinfo_gradients.jsonl")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--part", default="0/1", help="every n-th entry from k: k/n")
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    first, step = map(int, options.part.split("/"))
    todo = [e for e in entries() if not options.only or full_name(e) in options.only][first::step]
    worst: collections.Counter[str] = collections.Counter()
    order = (WRONG, REFUSED, PASS, NO_GRAD)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a") as out:
        for entry in todo:
            found = list(run(entry, options.samples))
            for f in found:
                out.write(json.dumps(f) + "\n")
            out.flush()
            statuses = {f.status for f in found}
            status = next((s for s in order if s in statuses), NO_GRAD)
            worst[status] += 1
            if status in (WRONG, REFUSED):
                shown = next(f for f in found if f.status == status)
                print(f"{status}: {shown.name} [{shown.sample}] {shown.reason[:300]}", flush=True)
    print(dict(worst), file=sys.stderr)


if __name__ == "__main__":
    main()

"""Derivatives of torch's operator database: JAX's of the imported program beside torch.autograd's.

``python -m benchmarks.opinfo_gradients [--only NAME ...] [--out FILE] [--samples N]`` tries samples
that require gradients (and the same at kinks: values rounded, so that there are zeros and ties).
Of a weighting of the results: the gradient (``grad``), the derivative in a direction by forward
mode (``jvp``, beside torch's gradient), and the derivative of the gradient in that direction
(``second``), forward over reverse mode here, twice reverse mode in torch.
One line of JSON a sample and kind: entry, number, kind, status, reason. A run goes on where the
file of an earlier one ends; ``--again`` runs what did not pass once more, ``--report`` only counts.

pass      it is torch's
refused   the importer, or JAX, says that it cannot
wrong     another value, without a word
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.importers.torch.opinfo import Call, _brief, database, full_name

ROOT = Path(__file__).parents[1]
PASS, REFUSED, WRONG, NO_GRAD = "pass", "refused", "wrong", "no grad"
#: From worst to best.
ORDER = (WRONG, REFUSED, PASS, NO_GRAD)
KINDS = ("grad", "jvp", "second")


class Found(NamedTuple):
    """What came of one derivative of one sample."""

    name: str
    sample: int
    kind: str
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
        yield Found(name, 0, "grad", NO_GRAD, f"no samples: {_brief(e)}")
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
                outcomes = attempt(variant, second=entry.supports_gradgrad)
            torch.compiler.reset()
            for kind, (status, reason) in outcomes.items():
                yield Found(name, at * len(variants) + n, kind, status, reason)


def attempt(call: Call, second: bool = True) -> dict[str, tuple[str, str]]:
    """Status and reason of one sample, by kind of derivative."""
    import torch

    from relax2xla.errors import OpNotImplemented, UnsupportedError
    from relax2xla.frontend.torch import from_exported_program

    floats = [i for i, x in enumerate(call.tensors) if x.is_floating_point()]
    directions = [
        torch.sin(torch.arange(x.numel()) + 1.0).reshape(x.shape)
        for x in (call.tensors[i] for i in floats)
    ]
    try:
        truth = _of_torch(call, floats, directions, second)
        if truth is None:
            return {"grad": (NO_GRAD, "nothing requires a gradient")}
        with torch.no_grad():
            program = torch.export.export(call.module, call.inputs())
    except Exception as e:
        return {"grad": (NO_GRAD, _brief(e))}
    try:
        mod = from_exported_program(program)
    except (OpNotImplemented, UnsupportedError) as e:
        return {"grad": (REFUSED, f"import: {_brief(e)}")}
    except Exception as e:
        return {"grad": (REFUSED, f"import error: {_brief(e)}")}
    import jax

    from relax2xla.interop.jax import extract_jax

    fixed = [x.numpy() for x in call.tensors]
    points = tuple(fixed[i] for i in floats)
    ways = tuple(d.numpy() for d in directions)
    try:
        fn, params = extract_jax(mod)
    except (OpNotImplemented, UnsupportedError) as e:
        return {"grad": (REFUSED, f"extract_jax: {_brief(e)}")}
    places = tuple(range(len(floats)))

    def loss(*given: Any) -> Any:
        values = list(fixed)
        for i, g in zip(floats, given, strict=True):
            values[i] = g
        made = jax.tree.leaves(fn(params, *values))
        weighted = zip(truth.used, truth.weights, strict=True)
        return sum((made[i] * w.numpy()).sum() for i, w in weighted)

    def forward(*given: Any) -> Any:
        return [jax.jvp(loss, given, ways)[1]]

    def twice(*given: Any) -> Any:
        return jax.jvp(jax.grad(loss, places), given, ways)[1]

    along = sum(float((w * d).sum()) for w, d in zip(truth.first, ways, strict=True))
    size = sum(float(np.abs(w * d).sum()) for w, d in zip(truth.first, ways, strict=True))
    todo = {
        "grad": (jax.grad(loss, places), truth.first, 0.0),
    }
    # Of a gradient that is infinite or none, sums say nothing.
    if np.isfinite(size):
        todo["jvp"] = forward, [np.asarray(along, "f")], size
    if truth.second is not None:
        todo["second"] = (twice, truth.second, 0.0)
    found: dict[str, tuple[str, str]] = {}
    for kind, (derivative, want, scale) in todo.items():
        try:
            with jax.enable_x64(False):
                got = jax.jit(derivative)(*points)
        except Exception as e:
            found[kind] = REFUSED, f"{type(e).__name__}: {_brief(e)}"
            continue
        found[kind] = _verdict(got, want, floats, scale, 10.0 if kind == "second" else 1.0)
    if any(status == WRONG for status, _ in found.values()) and _is_random(call, floats, truth):
        return {"grad": (NO_GRAD, "torch draws random numbers")}
    return found


def _is_random(call: Call, floats: Sequence[int], truth: Truth) -> bool:
    """Whether torch's own derivative is another for other random numbers."""
    other = _of_torch(call, floats, (), second=False, seed=1)
    pairs = zip(truth.first, other.first if other is not None else (), strict=False)
    return any(not np.array_equal(a, b, equal_nan=True) for a, b in pairs)


class Truth(NamedTuple):
    """Torch's derivatives: which outputs count, by which weights, and what came of them."""

    used: list[int]
    weights: list[Any]
    first: list[np.ndarray[Any, Any]]
    second: list[np.ndarray[Any, Any]] | None


def _of_torch(
    call: Call, floats: Sequence[int], directions: Sequence[Any], second: bool, seed: int = 0
) -> Truth | None:
    """Torch's derivatives of a sample; None where nothing requires a gradient."""
    import torch
    from torch.utils import _pytree as pytree

    torch.manual_seed(seed)
    inputs = [x.clone().requires_grad_(i in floats) for i, x in enumerate(call.tensors)]
    outs = [y for y in pytree.tree_leaves(call.module(*inputs)) if isinstance(y, torch.Tensor)]
    used = [i for i, y in enumerate(outs) if y.is_floating_point() and y.requires_grad]
    if not used or not floats:
        return None
    weights = [torch.cos(torch.arange(outs[i].numel())).reshape(outs[i].shape) for i in used]
    total: Any = sum((outs[i] * w).sum() for i, w in zip(used, weights, strict=True))
    wanted = [inputs[i] for i in floats]

    def filled(found: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        return [
            np.zeros(x.shape, "f") if f is None else f.detach().numpy()
            for x, f in zip(wanted, found, strict=True)
        ]

    first: Any = torch.autograd.grad(
        total, wanted, allow_unused=True, retain_graph=True, create_graph=False
    )
    if not second:
        return Truth(used, weights, filled(first), None)
    try:
        graph: Any = torch.autograd.grad(total, wanted, allow_unused=True, create_graph=True)
        pairs = zip(graph, directions, strict=True)
        along = [(g * d).sum() for g, d in pairs if g is not None and g.requires_grad]
        twice: Any = [None] * len(wanted)
        if along:
            whole: Any = sum(along)
            twice = torch.autograd.grad(whole, wanted, allow_unused=True)
    except (RuntimeError, NotImplementedError):
        # Torch has no second derivative of some compositions of entries that it says it has one of.
        return Truth(used, weights, filled(first), None)
    return Truth(used, weights, filled(first), filled(twice))


def _verdict(
    got: Sequence[Any], want: Sequence[Any], floats: Sequence[int], size: float, slack: float
) -> tuple[str, str]:
    """Status and reason of derivatives beside torch's."""
    for n, (given, w) in enumerate(zip(got, want, strict=True)):
        g = np.asarray(given)
        scale = max(np.abs(w[np.isfinite(w)]).max(initial=1.0), size)
        near = np.isclose(g, w, rtol=2e-4 * slack, atol=2e-5 * scale * slack, equal_nan=True)
        if not near.all():
            bad = np.argwhere(~near)
            at = tuple(map(int, bad[0]))
            what = f"{g[at]}, torch has {w[at]} ({len(bad)} of {g.size})"
            return WRONG, f"input {floats[n]} at {at}: {what}"
    return PASS, ""


def load(path: Path) -> dict[str, list[Found]]:
    """The latest outcomes of each entry in a file of results."""
    found: dict[str, list[Found]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        outcomes = [Found(*o) for o in json.loads(line)]
        found[outcomes[0].name] = outcomes
    return found


def report(found: Mapping[str, Sequence[Found]]) -> str:
    """Counts of entries by kind of derivative, each by its worst sample."""
    lines: list[str] = []
    for kind in KINDS:
        worst: collections.Counter[str] = collections.Counter()
        for outcomes in found.values():
            statuses = {f.status for f in outcomes if f.kind == kind}
            worst[next((s for s in ORDER if s in statuses), NO_GRAD)] += 1
        imported = sum(worst[s] for s in (PASS, REFUSED, WRONG))
        share = 100 * worst[PASS] / max(1, imported)
        lines.append(f"{kind}: {share:.1f} % of {imported} entries pass; {dict(worst)}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run entries, and print what differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--out", type=Path, default=ROOT / "out/opinfo_gradients.jsonl")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--part", default="0/1", help="every n-th entry from k: k/n")
    parser.add_argument("--again", action="store_true", help="run what did not pass once more")
    parser.add_argument("--report", action="store_true", help="count what the file has")
    options = parser.parse_args(argv)
    known = load(options.out)
    if options.report:
        print(report(known))
        return
    import torch

    torch.set_num_threads(1)
    first, step = map(int, options.part.split("/"))
    todo = [e for e in entries() if not options.only or full_name(e) in options.only][first::step]
    if options.again:
        failed = {n for n, fs in known.items() if any(f.status in (WRONG, REFUSED) for f in fs)}
        todo = [e for e in todo if full_name(e) in failed]
    elif not options.only:
        todo = [e for e in todo if full_name(e) not in known]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a") as out:
        for n, entry in enumerate(todo):
            found = list(run(entry, options.samples))
            known[found[0].name] = found
            out.write(json.dumps(found) + "\n")
            out.flush()
            for kind in KINDS:
                bad = [f for f in found if f.kind == kind and f.status in (WRONG, REFUSED)]
                for f in sorted(bad, key=lambda f: ORDER.index(f.status))[:1]:
                    where = f"{n + 1}/{len(todo)} {f.status} {kind}: {f.name} [{f.sample}]"
                    print(f"{where} {f.reason[:300]}", flush=True)
    print(report(known), file=sys.stderr)


if __name__ == "__main__":
    main()

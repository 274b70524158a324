"""Derivatives of torch's operator database: JAX's of the imported program beside torch.autograd's.

``python -m benchmarks.from_torch.opinfo_gradients [--only NAME ...] [--out FILE] [--samples N]``
tries samples that require gradients (and the same at kinks: values rounded, so that there are zeros
and ties). Of a weighting of the results: the gradient (``grad``), the derivative in a direction by
forward mode (``jvp``, beside torch's gradient), and the derivative of the gradient in that
direction (``second``), forward over reverse mode here, twice reverse mode in torch. One line of
JSON a sample and kind: entry, number, kind, status, reason. A run goes on where the file of an
earlier one ends; ``--again`` runs what did not pass once more, ``--report`` only counts.

pass      it is torch's, of float32 or of float64
right     torch's is not the derivative of its own function, and this is: by differences of torch's
          float64 values (gradients, for the second derivative)
refused   the importer, or JAX, says that it cannot
wrong     another value, without a word
no grad   torch itself does not differentiate or export the sample

Where elements are equal, torch leaves open which of them ``topk``, ``kthvalue`` and ``mode`` take:
sums of the gradient over equal elements are compared. A pole, where the derivative is infinite, is
a number beyond 1e20 in torch's float64. A second derivative where there is no finite one, which is
a sum of infinities of either sign, is infinite or NaN, in torch as here: which of them depends on
the order in which they meet, so one counts for the other. Operators of symmetric matrices are given
those, as in torch's own tests (``gradcheck_wrapper``).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import io
import itertools
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.importers.torch.opinfo.suite import Call, _brief, database, full_name

ROOT = Path(__file__).parents[2]
PASS, RIGHT, REFUSED, WRONG, NO_GRAD = "pass", "right", "refused", "wrong", "no grad"
#: From worst to best.
ORDER = (WRONG, REFUSED, RIGHT, PASS, NO_GRAD)
#: Of differences in float64.
STEP = 1e-5
#: A derivative that is infinite.
POLE = 1e20
#: Entries that take one of equal elements, whichever.
OPEN = ("topk", "kthvalue", "mode")
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
        call = Call(_function(entry, sample), sample)
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
                outcomes = attempt(variant, entry.supports_gradgrad, entry.name in OPEN)
            torch.compiler.reset()
            for kind, (status, reason) in outcomes.items():
                yield Found(name, at * len(variants) + n, kind, status, reason)


def _function(entry: Any, sample: Any) -> Any:
    """The operator; one of symmetric matrices with what torch's tests put around it."""
    if getattr(entry.gradcheck_wrapper, "__name__", "") != "gradcheck_wrapper_hermitian_input":
        return entry.op

    def function(*args: Any, **kwargs: Any) -> Any:
        made = entry.gradcheck_wrapper(entry.op, *args, **kwargs)
        return sample.output_process_fn_grad(made)

    return function


def attempt(call: Call, second: bool = True, is_open: bool = False) -> dict[str, tuple[str, str]]:
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

    def results(*given: Any) -> Any:
        values = list(fixed)
        for i, g in zip(floats, given, strict=True):
            values[i] = g
        return jax.tree.leaves(fn(params, *values))

    def loss(*given: Any) -> Any:
        made = results(*given)
        weighted = zip(truth.used, truth.weights, strict=True)
        return sum((made[i] * w.numpy()).sum() for i, w in weighted)

    def forward(*given: Any) -> Any:
        return [jax.jvp(loss, given, ways)[1]]

    def twice(*given: Any) -> Any:
        return jax.jvp(jax.grad(loss, places), given, ways)[1]

    found: dict[str, tuple[str, str]] = {}
    check = _Check(call, floats, directions, truth, second)

    def tried(kind: str, derivative: Any) -> Any:
        try:
            with jax.enable_x64(False):
                return [np.asarray(g) for g in jax.jit(derivative)(*points)]
        except Exception as e:
            found[kind] = REFUSED, f"{type(e).__name__}: {_brief(e)}"
            return None

    first = tried("grad", jax.grad(loss, places))
    if first is not None:
        found["grad"] = check.gradient(first, is_open)
    # Forward mode says what reverse mode says, where that is right.
    if first is None or found["grad"][0] == WRONG:
        first = truth.first
    products = [g * d for g, d in zip(first, ways, strict=True)]
    size = sum(float(np.abs(p).sum()) for p in products)
    # Of a gradient that is infinite or none, sums say nothing.
    if np.isfinite(size):
        along = np.asarray(sum(float(p.sum()) for p in products), "f")
        got = tried("jvp", forward)
        if got is not None:
            # Forward mode rounds tangents to the dtype of the result, which may have few digits.
            made = jax.eval_shape(results, *points)
            digits = max(float(jax.numpy.finfo(made[i].dtype).eps) for i in truth.used)
            found["jvp"] = _verdict(got, [along], floats, size, max(1.0, digits / 2e-4))
    if truth.second is not None:
        got = tried("second", twice)
        if got is not None:
            found["second"] = check.twice(got)
    is_wrong = any(status == WRONG for status, _ in found.values())
    if is_wrong and (_draws(program) or _is_random(call, floats, truth)):
        return {"grad": (NO_GRAD, "torch draws random numbers")}
    return found


def _draws(program: Any) -> bool:
    """Whether an operator of a program draws numbers, also where torch's test fixes the seed."""
    import torch

    return any(
        torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
        for n in program.graph.nodes
    )


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
            np.zeros(x.shape, x.detach().numpy().dtype) if f is None else f.numpy(force=True)
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
    got: Sequence[Any],
    want: Sequence[Any],
    floats: Sequence[int],
    size: float,
    slack: float = 1.0,
    exact: Sequence[Any] | None = None,
    second: bool = False,
) -> tuple[str, str]:
    """Status and reason of derivatives beside torch's; ``exact``: those of float64, if known.

    ``second``: of second derivatives, which may be infinite here and none there (see the module).
    """
    for n, (given, w) in enumerate(zip(got, want, strict=True)):
        g = np.asarray(given)
        scale = max(np.abs(w[np.isfinite(w)]).max(initial=1.0), size)
        near = np.isclose(g, w, rtol=2e-4 * slack, atol=2e-5 * scale * slack, equal_nan=True)
        if second:
            near |= ~np.isfinite(g) & ~np.isfinite(w)
        if exact is not None:
            wide = exact[n]
            scale = max(np.abs(wide[np.isfinite(wide) & (np.abs(wide) < POLE)]).max(initial=1.0), 1)
            near |= np.isclose(g, wide, rtol=2e-4 * slack, atol=2e-5 * scale * slack)
            near |= np.isinf(g) & (np.sign(g) == np.sign(wide)) & (np.abs(wide) > POLE)
            if second:
                near |= ~np.isfinite(g) & ~(np.abs(wide) < POLE)
        if not near.all():
            bad = np.argwhere(~near)
            at = tuple(map(int, bad[0]))
            what = f"{g[at]}, torch has {w[at]} ({len(bad)} of {g.size})"
            return WRONG, f"input {floats[n]} at {at}: {what}"
    return PASS, ""


class _Check:
    """Derivatives of a sample beside torch's, and where they differ, beside what they should be."""

    def __init__(
        self, call: Call, floats: list[int], ways: Sequence[Any], truth: Truth, second: bool
    ) -> None:
        self.call, self.floats, self.truth, self.second = call, floats, truth, second
        self.ways = [w.double() for w in ways]

    def gradient(self, got: Sequence[Any], is_open: bool) -> tuple[str, str]:
        """Status and reason of a gradient."""
        verdict = _verdict(got, self.truth.first, self.floats, 0.0)
        exact = self._exact if verdict[0] == WRONG else None
        if exact is not None:
            verdict = _verdict(got, self.truth.first, self.floats, 0.0, exact=exact.first)
        if verdict[0] == WRONG and is_open:
            pairs = [
                (_by_value(x.numpy(), g), _by_value(x.numpy(), w))
                for x, g, w in zip(self._points, got, self.truth.first, strict=True)
            ]
            (ours, theirs) = zip(*pairs, strict=True)
            return _verdict(ours, theirs, self.floats, 0.0)
        if verdict[0] == WRONG and exact is not None:
            return self._judged(verdict, got, self.truth.first, self._slope())
        return verdict

    def twice(self, got: Sequence[Any]) -> tuple[str, str]:
        """Status and reason of the derivative of a gradient."""
        assert self.truth.second is not None
        verdict = _verdict(got, self.truth.second, self.floats, 0.0, 10.0, second=True)
        exact = self._exact if verdict[0] == WRONG else None
        if exact is None or exact.second is None:
            return verdict
        verdict = _verdict(got, self.truth.second, self.floats, 0.0, 10.0, exact.second, True)
        if verdict[0] != WRONG:
            return verdict
        ends = [self._moved(h, False) for h in (STEP, -STEP)]
        if any(e is None for e in ends):
            return verdict
        high, low = ([*e.first] for e in ends if e is not None)
        numeric = [(a - b) / (2 * STEP) for a, b in zip(high, low, strict=True)]
        is_right = _verdict(got, numeric, self.floats, 0.0, 10.0)[0] == PASS
        return (RIGHT, f"torch differs: {verdict[1]}") if is_right else verdict

    @property
    def _points(self) -> list[Any]:
        return [self.call.tensors[i] for i in self.floats]

    def _call(self, shift: float) -> Call:
        """The call in float64, moved along the direction."""
        tensors = [x.double() if x.is_floating_point() else x for x in self.call.tensors]
        for i, way in zip(self.floats, self.ways, strict=True):
            tensors[i] = tensors[i] + shift * way
        return self.call.with_tensors(tensors)

    def _moved(self, shift: float, second: bool) -> Truth | None:
        try:
            return _of_torch(self._call(shift), self.floats, self.ways, second)
        except (RuntimeError, NotImplementedError, ValueError):
            return None  # Some entries have arguments of float32 that are no tensors.

    @functools.cached_property
    def _exact(self) -> Truth | None:
        """Torch's derivatives in float64."""
        return self._moved(0.0, self.second)

    def _slope(self) -> float | None:
        """The derivative of torch's function along the direction, by differences."""
        import torch
        from torch.utils import _pytree as pytree

        def total(shift: float) -> float:
            torch.manual_seed(0)
            call = self._call(shift)
            outs = pytree.tree_leaves(call.module(*call.inputs()))
            outs = [y for y in outs if isinstance(y, torch.Tensor)]
            weighted = zip(self.truth.used, self.truth.weights, strict=True)
            return sum(float((outs[i] * w).sum()) for i, w in weighted)

        try:
            return (total(STEP) - total(-STEP)) / (2 * STEP)
        except (RuntimeError, NotImplementedError, ValueError):
            return None

    def _judged(
        self, verdict: tuple[str, str], got: Sequence[Any], want: Sequence[Any], slope: float | None
    ) -> tuple[str, str]:
        """RIGHT where differences say so of ours and not of torch's."""
        if slope is None:
            return verdict

        def agrees(gradient: Sequence[Any]) -> bool:
            pairs = list(zip(gradient, self.ways, strict=True))
            along = sum(float((g * w.numpy()).sum()) for g, w in pairs)
            size = sum(float(np.abs(g * w.numpy()).sum()) for g, w in pairs)
            return bool(abs(along - slope) <= 1e-3 * max(1.0, size))

        is_right = agrees(got) and not agrees(want)
        return (RIGHT, f"torch differs: {verdict[1]}") if is_right else verdict


def _by_value(x: Any, gradient: Any) -> Any:
    """Sums of a gradient over equal elements."""
    _, groups = np.unique(x, return_inverse=True)
    return np.bincount(groups.ravel(), gradient.ravel())


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
        imported = sum(worst[s] for s in (PASS, RIGHT, REFUSED, WRONG))
        share = 100 * (worst[PASS] + worst[RIGHT]) / max(1, imported)
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

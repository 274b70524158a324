# ruff: noqa: T201  (this is a program)
"""The onnx package's backend suite against relax2xla: every case, by the suite's own runner.

::

    python -m tests.importers.onnx.suite            # run all cases, print the table
    python -m tests.importers.onnx.suite --write    # and write docs/onnx.md
    python -m tests.importers.onnx.suite -k resize  # those whose names hold "resize"
    python -m tests.importers.onnx.suite --run-time # nothing is known before the call

The cases are those of ``onnx.backend.test`` for the CPU, with its inputs, tolerances and
comparison. They run in processes of their own, each case within a time limit.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "onnx.md"
CATEGORIES = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
    "OnnxBackendRealModelTest": "light models",
}
PASSED, REFUSED, WRONG, BROKEN, LATE = "passed", "refused", "wrong", "broken", "late"
UNCOMPARED = "not compared"
LIMIT = 120.0
# onnx calls these cases informational: their values cannot be expected of anyone.
DRAWS = re.compile(r"bernoulli(_double|_seed)?(_expanded)?")
DRAWN_REASON = (
    "the case holds one draw of numpy's global generator, whose state is not in the model; onnx "
    "itself says that implementations differ (tests/importers/onnx/test_signal_sample.py tests the "
    "distribution)"
)
# Sums of numbers up to 90 that cancel to zero, expected within 1e-7 of what numpy's transform in
# single precision rounds them to: numpy 2.4 and jaxlib 0.10 round alike, other releases need not.
ROUNDED = re.compile(r"dft_inverse(_opset19)?")
ROUNDED_REASON = (
    "the case expects the rounding of one release of numpy "
    "(tests/importers/onnx/test_signal_sample.py compares the transform)"
)
# The runner takes the length of every element of a list, which a scalar has not.
SCALARS = "loop16_seq_none"
SCALARS_REASON = (
    "the suite's comparison takes no scalar in a sequence (tests/importers/onnx/test_sequences.py "
    "compares them)"
)


@dataclass(frozen=True)
class Outcome:
    """What became of one case: ``kind`` is one of the above, ``reason`` why it did not pass."""

    name: str
    category: str
    kind: str
    reason: str = ""
    seconds: float = 0.0


@functools.cache
def load(run_time: bool = False) -> dict[str, tuple[str, Callable[[], None]]]:
    """Every case for the CPU by name without ``test_`` and ``_cpu``: category and what runs it.

    run_time: by one import and one machine for each model, which see no value before the call
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, while the suite makes its data
        from onnx.backend.test import BackendTest

        classes = BackendTest(_backend(run_time), __name__).test_cases
    found: dict[str, tuple[str, Callable[[], None]]] = {}
    for kind, category in CATEGORIES.items():
        for name in dir(classes[kind]):
            if name.startswith("test_") and name.endswith("_cpu"):
                short = name.removeprefix("test_").removesuffix("_cpu")
                found[short] = (category, classes[kind](name).debug)
    return found


def _backend(run_time: bool) -> Any:
    from relax2xla.onnx_backend import Relax2XLABackend

    if not run_time:
        return Relax2XLABackend

    from onnx.backend.base import BackendRep

    import relax2xla
    from relax2xla.frontend.onnx import from_onnx

    class Once(BackendRep):
        """One machine, made from nothing but the model."""

        def __init__(self, model: Any) -> None:
            self.main = relax2xla.VirtualMachine(relax2xla.build(from_onnx(model)))["main"]
            self.single = len(model.graph.output) == 1

        def run(self, inputs: Any, **_: Any) -> Any:
            made = self.main(*inputs)
            return [_host(r) for r in ([made] if self.single else made)]

    class RunTime(Relax2XLABackend):
        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **_: Any) -> Any:
            return Once(model)

    return RunTime


def _host(result: Any) -> Any:
    import numpy as np

    if isinstance(result, tuple | list):
        return [_host(r) for r in result]
    return result if result is None or isinstance(result, dict) else np.asarray(result)


def run(name: str, category: str, case: Callable[[], None]) -> Outcome:
    """Run one case."""
    from relax2xla.errors import OpNotImplemented, UnsupportedError

    start = time.perf_counter()
    kind, reason = PASSED, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case()
    except OpNotImplemented as e:
        kind = REFUSED
        reason = "; ".join(sorted({f"{g.op}: {g.reason}" for g in e.gaps}))
    except UnsupportedError as e:
        kind, reason = REFUSED, str(e)
    except AssertionError as e:
        if DRAWS.fullmatch(name):
            return Outcome(name, category, UNCOMPARED, DRAWN_REASON, time.perf_counter() - start)
        if ROUNDED.fullmatch(name):
            return Outcome(name, category, UNCOMPARED, ROUNDED_REASON, time.perf_counter() - start)
        kind, reason = WRONG, " ".join(str(e).split())[:400]
    except Exception as e:
        if name == SCALARS and "Unable to compare" in str(e):
            return Outcome(name, category, UNCOMPARED, SCALARS_REASON, time.perf_counter() - start)
        kind, reason = BROKEN, f"{type(e).__name__}: {' '.join(str(e).split())[:400]}"
    return Outcome(name, category, kind, reason, time.perf_counter() - start)


# -- processes -----------------------------------------------------------------------------------
def _serve(pipe: multiprocessing.connection.Connection, run_time: bool) -> None:
    """A worker: names in, outcomes out."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ONNX_MODELS"] = scratch
        os.environ["RELAX2XLA_CACHE"] = "0"  # two thousand programs that nobody runs again
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (the suite prints)
        cases = load(run_time)
        pipe.send(None)
        while (name := pipe.recv()) is not None:
            pipe.send(run(name, *cases[name]))


class Worker:
    """A process that runs cases, replaced when it dies or hangs."""

    def __init__(self, run_time: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, run_time), daemon=True)
        self.process.start()
        theirs.close()
        self.name = ""
        self.category = ""
        self.start = time.monotonic()
        self.ready = False

    def give(self, name: str, category: str) -> None:
        self.name, self.category, self.start = name, category, time.monotonic()
        self.pipe.send(name)

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def run_all(
    cases: Iterable[tuple[str, str]], jobs: int = 2, limit: float = LIMIT, run_time: bool = False
) -> list[Outcome]:
    """Outcomes of (name, category) pairs, in order of name. ``run_time``: see :func:`load`."""
    todo = sorted(cases, reverse=True)
    count = len(todo)
    done: list[Outcome] = []
    workers = [Worker(run_time) for _ in range(min(jobs, max(count, 1)))]

    def replace(at: int, kind: str, reason: str) -> None:
        old = workers[at]
        old.end()
        done.append(Outcome(old.name, old.category, kind, reason, time.monotonic() - old.start))
        workers[at] = Worker(run_time)

    while len(done) < count:
        ready = multiprocessing.connection.wait([w.pipe for w in workers], timeout=1)
        for at, w in enumerate(list(workers)):
            if w.pipe in ready:
                try:
                    outcome = w.pipe.recv()
                except (EOFError, ConnectionResetError):
                    if not w.ready:
                        raise RuntimeError("a worker could not load the suite") from None
                    replace(at, BROKEN, "the process died")
                    continue
                if outcome is not None:
                    done.append(outcome)
                w.ready, w.name = True, ""
                if todo:
                    w.give(*todo.pop())
            elif w.name and time.monotonic() - w.start > limit:
                replace(at, LATE, f"not done after {limit:g} s")
    for w in workers:
        w.end()
    return sorted(done, key=lambda o: o.name)


# -- the document --------------------------------------------------------------------------------
def table(outcomes: Sequence[Outcome]) -> str:
    """Counts by category, as Markdown."""
    lines = [
        "| category | cases | passed | refused with a clear error | not comparable | wrong |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    total: Counter[str] = Counter()
    for category in CATEGORIES.values():
        kinds = Counter(o.kind for o in outcomes if o.category == category)
        total.update(kinds)
        lines.append(_row(category, kinds))
    lines.append(_row("**all**", total))
    return "\n".join(lines)


def _row(title: str, kinds: Counter[str]) -> str:
    bad = sum(kinds[k] for k in (WRONG, BROKEN, LATE))
    cells = [title, kinds.total(), kinds[PASSED], kinds[REFUSED], kinds[UNCOMPARED], bad]
    return f"| {' | '.join(map(str, cells))} |"


def document(outcomes: Sequence[Outcome]) -> str:
    """The text of docs/onnx.md."""
    import onnx

    failed = [o for o in outcomes if o.kind != PASSED]
    groups: dict[str, list[str]] = {}
    for o in failed:
        groups.setdefault(_told(o), []).append(o.name)
    listing = "\n".join(
        f"- {reason} ({len(names)}): {', '.join(f'`{n}`' for n in names)}"
        for reason, names in sorted(groups.items())
    )
    passed = sum(o.kind == PASSED for o in outcomes)
    return HEAD.format(
        version=onnx.__version__,
        count=f"{len(outcomes):,}",
        passed=f"{passed:,}",
        table=table(outcomes),
        failed=f"{len(failed):,}",
        listing=listing or "None.",
    )


def _told(o: Outcome) -> str:
    """The reason in the document: one line, without what only one case has."""
    lead = "" if o.kind in (REFUSED, UNCOMPARED) else f"**{o.kind}**: "
    reason = re.sub(r"\s+", " ", o.reason).replace("|", "\\|")[:300]
    return lead + reason


HEAD = """# ONNX

`relax2xla.frontend.onnx.from_onnx` imports ONNX models: a message, a path or bytes. This page says
how models run through the onnx package's interface, how to add operators, and which cases of that
package's own suite pass. It is written by `python -m tests.importers.onnx.suite --write`.

## As a backend

`relax2xla.onnx_backend` is the onnx package's `Backend` interface:

```python
from relax2xla import onnx_backend

rep = onnx_backend.prepare(model, "CPU")  # imports and builds
(y,) = rep.run([x])
```

Where one program cannot serve every value of a small input (the shape of what a loop of XLA
carries), the input stays an input of `run`: a program is made for each value, and the last 32 are
kept.

## Shapes from values

Numbers that are computed at run time, or given as inputs then, may say a shape, an axis, a bound, a
count or a scale (`Reshape`, `Expand`, `Tile`, `Slice`, `Pad`, `Range`, `TopK`, `Split`, reductions;
sizes, scales and the region of `Resize`; `Col2Im`, `MaxUnpool`, `DFT`, `STFT`, `MelWeightMatrix`,
the mode and the ratio of `Dropout`, ...). Nothing needs to be known at import: `from_onnx` binds
them to symbolic variables, and the virtual machine reads them at the call, compiles what follows
for each value and keeps the program, as it does for shapes ([vm.md](vm.md)). `stats()` and
`relax2xla inspect` say which inputs are specialised by value, the log says which value changed, and
a value that an operator cannot take is an error that names the input. On the command line numbers
can be written: `relax2xla run model.onnx -i scales=1,1,2,2`.

How many values there are must be known. In the body of a loop of XLA they cannot be read: those
that come from outside are bound before it, and a `Loop` that computes its own is run by the
machine. `Squeeze` without axes takes sizes that are not known at import not to be 1; where one is,
the call fails.

`NonZero`, `Unique`, `Compress` and `NonMaxSuppression` have results of any size. Tensors of strings
are numpy arrays of dtype object; their operators run on the host, and `stats()` names them. What
moves elements (`Concat`, `Gather`, `Where`, ...) moves strings, too; `Cast` reads and writes
numbers.

## Sequences, optionals, maps

A sequence whose length is known at import is a tuple of the program, and costs nothing. Any other
one, an optional value and a map cross the boundary as a Python list (a tuple on the way back), None
and a dict; their operators run on the host, named in `stats()`, and the tensors in them stay where
they are. What an input sequence holds is checked when it is read.

A `Loop` that carries one, or that has rows or changing shapes and a trip count that is not known at
import, is run by the machine, iteration by iteration. So is the choice of an `If` whose branches
differ in shape. `ImageDecoder` needs Pillow. `RegexFullMatch` matches as RE2 does, in linear time,
without Unicode classes (`\\p`).

## com.microsoft

What graph optimisers and exporters for ONNX Runtime write: attention (`Attention`,
`MultiHeadAttention`, `GroupQueryAttention`, `QAttention`), `RotaryEmbedding`, skip and simplified
normalisations, `MatMulNBits` (2, 4 and 8 bits), fused products and activations, and the `QLinear`
family. A form that is not supported (a quantised cache, `do_rotary` of `Attention`) is refused.

`relax2xla.frontend.onnx.support(model)` says without converting which operators a model has and
which of them, or of their attributes, are missing (`as_text()`, `as_dict()`).

## Operators of your own

A converter is a function whose parameters are the operator's inputs and, keyword-only, its
attributes. It gives an expression, or a list with one for each output:

```python
from relax2xla import op as R
from relax2xla.frontend.onnx import Context, register_converter
from relax2xla.ir import Expr, const


@register_converter("Clamp01", domain="com.example", since=1)
def clamp01(ctx: Context, X: Expr, *, scale: float = 1.0) -> Expr:
    return R.clip(R.multiply(X, const(scale, "float32")), 0, 1)
```

An input annotated `Known` arrives as a numpy array, which must be known at import; one annotated
`Ints`, `Sizes` (not negative) or `Floats` as a list of numbers, which are symbolic where they are
computed at run time and may be attributes of operators. A node with an input or attribute that the
function lacks is refused. A converter for an operator of ONNX takes the place of the built-in one,
and one for a function of the model that of its body. `load_plugin("module_or_file.py")` imports a
module that registers converters; installed packages name theirs in the entry-point group
`relax2xla.onnx_converters`.

## What to know

- What both forms of `torch.onnx.export` make of many architectures is in
  [networks.md](networks.md).
- Loops are loops of XLA over values of fixed shape. Where a body changes a shape and the number of
  iterations is known, it is written out (1,024 iterations in all); other loops run on the host.
- Random numbers without a seed differ at each run and in each iteration of a loop: XLA makes them
  from a key that the host draws from numpy's global generator, so that `numpy.random.seed` makes
  runs repeatable. With the attribute `seed` they are the same each time; tensors of up to 65,536
  values are then drawn by numpy's `RandomState(seed)`, as in `onnx.reference`.
- float8, float4, int4, int2 and bfloat16 are `ml_dtypes` arrays.
- The clip of an LSTM is of its gates, not of its cell, as in ONNX Runtime.

## The suite

`onnx.backend.test` of onnx {version}, all {count} cases for the CPU, with the suite's inputs,
tolerances, dtypes and comparison. Inputs stay inputs. By one import and one machine for each model,
which see no value before the call (`--run-time`), 2,023 pass: of the expanded `AffineGrid` in three
dimensions with aligned corners an `If` has branches of different ranks.

{table}

Beside the peers, on the same {count} cases (measured with onnx 1.23):

| | passed |
|---|---:|
| relax2xla | {passed} |
| ONNX Runtime 1.31, as shipped | 1,533 |
| ONNX Runtime 1.31, with every accommodation | 1,836 |
| TVM 0.27, as shipped | 896 |
| TVM 0.27, small inputs baked in | 1,120 |
| jaxonnxruntime | 548 |

## What does not pass

{failed} cases, by reason. Gradient is an operator of a preview domain: the derivative of the part
of the graph that its attributes name. The importer does not differentiate.

{listing}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite."""
    parser = argparse.ArgumentParser(prog="python -m tests.importers.onnx.suite")
    parser.add_argument("--write", action="store_true", help="write docs/onnx.md")
    parser.add_argument(
        "--run-time", action="store_true", help="one machine a model, made without any value"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds a case may take")
    parser.add_argument("-k", metavar="REGEX", default="", help="cases whose names match")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes here")
    parser.add_argument("--read", type=Path, metavar="FILE", help="outcomes of an earlier --json")
    parser.add_argument("--quiet", action="store_true", help="the table only")
    args = parser.parse_args(arguments)
    if args.write and (args.k or args.run_time):
        parser.error("--write needs all cases as users run them; leave out -k and --run-time")
    if args.read:
        outcomes = [Outcome(**o) for o in json.loads(args.read.read_text())]
    else:
        cases = [(n, category) for n, (category, _) in load().items() if re.search(args.k, n)]
        outcomes = run_all(cases, args.jobs, args.limit, args.run_time)
    if not args.quiet:
        for o in outcomes:
            if o.kind != PASSED:
                print(f"{o.kind:8s} {o.name}: {o.reason}")
    print(table(outcomes))
    if args.json:
        args.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    if args.write:
        DOCUMENT.write_text(document(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Our side of the corpus of kernels: parsed, printed, lowered, run, and compared with TVM's run.

``python -m tests.tir.corpus.compare FOLDER [PART]`` reads what ``make.py`` wrote, prints a table,
and each kernel (whose source has PART in it) that fails.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import relax2xla
from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.ir import Function, IRModule, TensorStructInfo, Tuple, Var
from relax2xla.script import from_source
from relax2xla.stablehlo import loops
from relax2xla.stablehlo.loops.repeat import function
from relax2xla.tir.interpret import interpret
from tests.tir.corpus.inputs import arguments

KINDS = (
    ("extern", r"call_packed|call_extern|call_cpacked|call_pure_extern|tvm_struct|call_llvm"),
    ("warp", r"tvm_warp|ptx|wmma|mma_|simdgroup|T\.cuda|shuffle|tvm_thread_allreduce"),
    ("threads", r"thread"),
)
TOLERANCE = {"float16": 2e-2, "bfloat16": 8e-2, "float64": 1e-6}
HALF = ("float16", "bfloat16")
NOT_VALID = ("refused by both", "no sizes")
LOWERED = ("equal", "lowers", "WRONG", "all three differ")
MOST_ELEMENTS = 1 << 24
STEPS = 1_000_000
"""How many statements of a kernel are interpreted where ours and TVM's run differ."""


class Verdict(NamedTuple):
    """What became of a kernel.

    ``kind``: "plain", "threads", "warp" or "extern"; ``state``: "equal", "lowers" where no run of
    TVM with valid inputs is at hand, else what is wrong, with ``why``; ``loops``: those that
    stayed.
    """

    kind: str
    state: str
    why: str = ""
    loops: tuple[loops.StayedLoop, ...] = ()


def _function(func: tir.PrimFunc, given: Sequence[Any]) -> tuple[Function, loops.Lowered]:
    """A function of the arrays that gives all buffers afterwards, and what the kernel became."""
    params = [
        Var(f"p{i}", TensorStructInfo(a.shape, str(a.dtype)))
        for i, a in enumerate(given)
        if isinstance(a, np.ndarray)
    ]
    left = iter(params)
    made = loops.lower(func, [next(left) if isinstance(a, np.ndarray) else a for a in given])
    results = [made.contents[i] for i in sorted(made.contents)]
    return function(params, [Tuple(results)]).with_attr("global_symbol", "main"), made


def _ours(main: Function, given: Sequence[Any]) -> list[np.ndarray]:
    machine = relax2xla.VirtualMachine(relax2xla.build(IRModule.from_expr(main)), relax2xla.cpu())
    return [
        np.asarray(x) for x in machine["main"](*(a for a in given if isinstance(a, np.ndarray)))
    ]


def _difference(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> str:
    """The first buffer that differs; empty where all are equal."""
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        b = b.view(a.dtype) if b.dtype != a.dtype else b
        if a.dtype.kind in "biu":
            same = a == b
        else:
            near = TOLERANCE.get(str(a.dtype), 1e-4)
            with np.errstate(all="ignore"):
                x, y = a.astype("float64"), b.astype("float64")
            # Long sums that nearly cancel differ by their order, and those of half floats are
            # rounded at each step there, once here.
            most = np.abs(y[np.isfinite(y)]).max(initial=1)
            far = near if str(a.dtype) in HALF else near / 10
            same = np.isclose(x, y, rtol=near, atol=max(far * most, near), equal_nan=True)
        if not same.all():
            at = tuple(int(p[0]) for p in np.nonzero(~same)) if a.shape else ()
            return f"buffer {i} at {at}: {a[at]} instead of {b[at]} ({(~same).sum()} of {a.size})"
    return ""


def _interpreted(func: tir.PrimFunc, given: Sequence[Any]) -> list[np.ndarray] | str:
    """The buffers after the interpreter; a text where the inputs are not valid or it gives up."""
    held = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    try:
        with np.errstate(all="ignore"):
            interpret(func, *held, max_steps=STEPS)
    except (TVMError, ValueError, ZeroDivisionError, IndexError) as e:
        return f"{type(e).__name__}: {str(e).splitlines()[0]}"
    return [a for a in held if isinstance(a, np.ndarray)]


def verdict(kernel: dict[str, Any], folder: Path) -> Verdict:
    """What becomes of a kernel of the corpus."""
    text: str = kernel["text"]
    kind = next((k for k, pattern in KINDS if re.search(pattern, text)), "plain")
    try:
        func = from_source(text)
    except TVMError as e:
        return Verdict(kind, "not parsed", str(e).splitlines()[0])
    assert isinstance(func, tir.PrimFunc)
    printed = func.script()
    again = from_source(printed)
    if not isinstance(again, tir.PrimFunc) or again.script() != printed:
        return Verdict(kind, "no fixed point")
    if isinstance(kernel["parameters"], str):
        return Verdict(kind, "no sizes", kernel["parameters"])
    sizes = [math.prod(p[1]) for p in kernel["parameters"] if p[0] == "buffer"]
    if max(sizes, default=0) > MOST_ELEMENTS:
        return Verdict(kind, "no sizes", "too large")
    stayed: tuple[loops.StayedLoop, ...] = ()
    state, why = "", ""
    refused = ""
    ways: dict[str, str] = kernel["runs"] or {"wide": "not run"}
    for way, done in ways.items():
        if state == "equal" and done != "ok":
            continue
        try:
            given = arguments(kernel["parameters"], way)
        except TypeError as e:
            return Verdict(kind, "no sizes", str(e))
        try:
            main, made = _function(func, given)
        except TVMError as e:
            why = str(e).splitlines()[0] + (f" ({done})" if done != "ok" else "")
            refused = refused or ("refused" if done == "ok" else "refused by both")
            continue
        state = state or "lowers"
        stayed = made.loops
        if done != "ok":
            why = why or done
            continue
        with np.load(folder / f"{kernel['number']:04}.{way}.npz") as held:
            want = [held[f"arr_{i}"] for i in range(len(held.files))]
        wrong = _difference(_ours(main, given), want)
        if not wrong:
            state, why = "equal", ""
            continue
        exact = _interpreted(func, given)
        if isinstance(exact, str):
            why = why or f"{way}: {exact}"
            continue
        if _difference(exact, want):
            why = f"{way}: TVM differs from the interpreter: {_difference(exact, want)}"
            if _difference(_ours(main, given), exact):
                return Verdict(kind, "all three differ", f"{way}: {wrong}", stayed)
            continue
        return Verdict(kind, "WRONG", f"{way}: {wrong}", stayed)
    return Verdict(kind, state or refused, why, stayed)


def corpus(folder: Path, part: str = "") -> Iterator[dict[str, Any]]:
    """The kernels of a corpus."""
    with (folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            kernel = json.loads(line)
            if part in f"{kernel['number']} {kernel['source']}":
                yield kernel


def table(found: Sequence[Verdict]) -> Iterator[str]:
    """The kernels by kind and state, and how many of each kind lower, are equal and keep a loop.

    Kernels that TVM refuses as well, or that have no sizes, are not in the shares; "equal" is of
    those whose run was compared with TVM's, "WRONG" included.
    """
    for (kind, state), n in sorted(Counter((v.kind, v.state) for v in found).items()):
        yield f"{kind:8} {state:24} {n}"
    for kind in sorted({v.kind for v in found}):
        valid = [v for v in found if v.kind == kind and v.state not in NOT_VALID]
        lowered = [v for v in valid if v.state in LOWERED]
        compared = [v for v in lowered if v.state != "lowers"]
        equal = sum(v.state == "equal" for v in compared)
        stayed = sum(bool(v.loops) for v in lowered)
        yield (
            f"{kind}: {len(lowered)} of {len(valid)} lower, {equal} of {len(compared)} equal, "
            f"{stayed} with a loop that stayed"
        )


def main() -> None:
    """Print what became of the kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what make.py wrote")
    parser.add_argument("part", nargs="?", default="", help="kernels whose number or source has it")
    options = parser.parse_args()
    found: list[Verdict] = []
    for kernel in corpus(options.folder, options.part):
        one = verdict(kernel, options.folder)
        found.append(one)
        if len(found) % 100 == 0:
            print(f"{len(found)} kernels", file=sys.stderr, flush=True)
        if one.state != "equal" or one.loops:
            where = f"{kernel['number']} {kernel['source']} {kernel['name']}"
            held = "; ".join(f"{x.name}[{x.steps}] {x.why}" for x in one.loops[:3])
            print(f"{one.kind}\t{one.state}\t{where}\t{one.why}\t{held}", flush=True)
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()

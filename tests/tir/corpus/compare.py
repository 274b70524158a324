"""Our side of the corpus of kernels: parsed, printed, lowered, run, and compared with TVM's run.

``python -m tests.tir.corpus.compare FOLDER [PART]`` reads what ``make.py`` wrote, prints a table,
and each kernel (whose source has PART in it) that is not simply equal. Verdicts are kept in
``FOLDER/verdicts.jsonl``; ``--resume`` goes on behind them.

A kernel is run in several ways, which differ in what its arguments hold. It lowers where each way
lowers, and equals TVM where each way with a run of TVM and valid arguments does. Arguments are not
valid where the interpreter of the tree leaves a buffer, divides an integer by zero, shifts by a
negative number or meets a false assertion.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import relax2xla
from relax2xla import tir
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import AssertError, RunError, TVMError
from relax2xla.ir import Function, IRModule, TensorStructInfo, Tuple, Var
from relax2xla.script import from_source
from relax2xla.stablehlo import loops
from relax2xla.stablehlo.loops.repeat import function
from relax2xla.stablehlo.loops.scalars import exact_quotients
from relax2xla.tir.kernel.interpret import interpret
from relax2xla.tir.stmt_functor import post_order_visit
from tests.tir.corpus.inputs import arguments, doubled, in_double, ways

KINDS = (
    ("extern", r"call_packed|call_extern|call_cpacked|call_pure_extern|tvm_struct|call_llvm"),
    ("warp", r"tvm_warp|ptx|wmma|mma_|simdgroup|T\.cuda|shuffle"),
    ("threads", r"thread"),
)
MOST_ELEMENTS = 1 << 24
SECONDS = 600
"""The longest that one kernel may take: some do not end with the numbers that fill arguments."""
ROUNDINGS = 64
"""How many roundings a result may be away from TVM's besides those of its sums: the error of
functions such as exp, in both programs, and of short chains of operations."""

STATES = (
    "WRONG",  # TVM and the interpreter agree, or TVM has no run: ours differs
    "all three differ",
    "CRASH",
    "not parsed",
    "no fixed point",
    "refused",
    "undecided",  # ours and TVM's run differ, and the interpreter gives up
    "TVM differs",  # ours equals the interpreter, TVM's run neither
    "exact",  # ours equals TVM or the interpreter in float64; TVM's roundings are larger
    "equal",
    "interpreted",  # TVM has no run; ours equals the interpreter
    "lowers",  # TVM has no run and the interpreter gives up
    "invalid",  # no way has valid arguments
    "no sizes",
)
"""What becomes of a way, and of a kernel: the first of its ways' in this order, where "invalid"
ways and those with no run count only if there is no other."""

LOWERED = ("WRONG", "all three differ", "undecided", *STATES[7:12])
COMPARED = ("WRONG", "all three differ", "undecided", "TVM differs", "exact", "equal")


class Verdict(NamedTuple):
    """What became of a kernel.

    ``kind``: "plain", "threads", "warp" or "extern"; ``state``: one of ``STATES``, with ``why``;
    ``loops``: those that stayed.
    """

    kind: str
    state: str
    why: str = ""
    loops: tuple[loops.StayedLoop, ...] = ()


class _Invalid(Exception):
    """The arguments are not valid."""


class _GivesUp(Exception):
    """The interpreter does not say what a kernel gives."""


def _sizes(func: tir.PrimFunc, given: Sequence[Any]) -> dict[tir.Var, Any]:
    sizes: dict[tir.Var, Any] = {}
    for param, value in zip(func.params, given, strict=True):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            sizes[param] = value
        else:
            sizes.update(
                (d, n)
                for d, n in zip(buffer.shape, value.shape, strict=True)
                if isinstance(d, tir.Var)
            )
    return sizes


def terms(func: tir.PrimFunc, given: Sequence[Any]) -> int:
    """How many terms a result may be summed of, one sum after the other: no less than there are.

    Of each store that reads its own buffer: the steps of the loops around it that its place does
    not depend on. A loop whose length the program computes counts as the longest axis of a buffer.
    """
    sizes = _sizes(func, given)
    longest = max((n for a in given if isinstance(a, np.ndarray) for n in a.shape), default=1)

    def used(e: tir.PrimExpr, known: Mapping[tir.Var, frozenset[tir.Var]]) -> frozenset[tir.Var]:
        found: set[tir.Var] = set()

        def visit(x: Any) -> None:
            if isinstance(x, tir.Var):
                found.update(known.get(x, ()))

        post_order_visit(e, visit)
        return frozenset(found)

    def reads(e: tir.PrimExpr, buffer: tir.Buffer) -> bool:
        found: list[bool] = []
        post_order_visit(
            e, lambda x: found.append(isinstance(x, tir.BufferLoad) and x.buffer is buffer)
        )
        return any(found)

    def steps(extent: Any) -> int:
        made = extent if isinstance(extent, int) else tir.stmt_functor.substitute(extent, sizes)
        made = tir.Analyzer().simplify(made) if isinstance(made, tir.PrimExpr) else made
        made = made.value if isinstance(made, tir.IntImm) else made
        return made if isinstance(made, int) else longest

    total = 1
    stack: list[tuple[tir.Stmt, dict[tir.Var, frozenset[tir.Var]], dict[tir.Var, int]]]
    stack = [(func.body, {}, {})]
    while stack:
        node, known, around = stack.pop()
        if isinstance(node, tir.For):
            known = {**known, node.loop_var: frozenset((node.loop_var,))}
            around = {**around, node.loop_var: steps(node.extent)}
        elif isinstance(node, tir.BlockRealize):
            axes = zip(node.block.iter_vars, node.iter_values, strict=True)
            known = {**known, **{a.var: used(v, known) for a, v in axes}}
        elif isinstance(node, tir.While):
            around = {**around, tir.Var("while", "int32"): longest}
        elif isinstance(node, tir.BufferStore) and reads(node.value, node.buffer):
            placed = frozenset(v for i in node.indices for v in used(i, known))
            total += math.prod(n for v, n in around.items() if v not in placed)
        stack += [(c, known, around) for c in tir.stmt.children(node)]
    return total


def _eps(dtype: str) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)


def coarsest(text: str) -> float:
    """The eps of the coarsest float dtype that a kernel names, of those it computes in."""
    return max(map(_eps, re.findall(r"\bb?float\d+\w*", text)), default=0)


def tolerance(eps: float, n: int) -> tuple[float, float]:
    """How far apart two results of ``n`` terms may be: of their size, and absolutely.

    Each rounding is half an eps of a partial sum. The sums of ``n`` terms of one sign are as large
    as the result at most, and roundings add up as a random walk: eps * sqrt(n) of the result. Terms
    of both signs (about 1 in size: the inputs are) have partial sums of sqrt(n) however small the
    result is: eps * n. Not more than 1 in 10.
    """
    # The functions of float16 and bfloat16 are computed in float32 by one of the two programs.
    constant = 4 if eps > 1e-4 else ROUNDINGS
    return min(eps * (constant + math.sqrt(n)), 0.1), min(eps * (constant + n), 0.1)


def _difference(got: Sequence[np.ndarray], want: Sequence[np.ndarray], n: int, eps: float) -> str:
    """The first buffer that differs; empty where all are equal. ``eps``: of what is computed in."""
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if b.dtype != a.dtype:
            b = b.view(a.dtype) if b.dtype.kind == "u" else b.astype(a.dtype)
        if a.dtype.kind in "biu":
            same = a == b
        else:
            relative, absolute = tolerance(max(eps, _eps(str(a.dtype))), n)
            with np.errstate(all="ignore"):
                x, y = a.astype("float64"), b.astype("float64")
                same = np.isclose(x, y, rtol=relative, atol=absolute, equal_nan=True)
        if not same.all():
            at = tuple(int(p[0]) for p in np.nonzero(~same)) if a.shape else ()
            return f"buffer {i} at {at}: {a[at]} instead of {b[at]} ({(~same).sum()} of {a.size})"
    return ""


def _interpreted(func: tir.PrimFunc, given: Sequence[Any], steps: int) -> list[np.ndarray]:
    """The buffers after the interpreter, then what the function returns."""
    held = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    try:
        with np.errstate(all="ignore"):
            result = interpret(func, *held, max_steps=steps)
    except AssertError as e:
        raise _Invalid(str(e)) from e
    except RunError as e:
        said = str(e).splitlines()[0]
        if re.search("is outside of|reaches outside|divided by zero|shifted by|expected", said):
            raise _Invalid(said) from e
        raise _GivesUp(said) from e
    except (TVMError, ValueError, TypeError, OverflowError) as e:
        raise _GivesUp(f"{type(e).__name__}: {str(e).splitlines()[0]}") from e
    made = [a for a in held if isinstance(a, np.ndarray)]
    return made if result is None else [*made, np.asarray(result)]


def _exact(
    kernel: dict[str, Any], way: str, given: Sequence[Any], folder: Path, steps: int
) -> list[np.ndarray]:
    """The buffers with float64 in the place of smaller floats: of TVM, or of the interpreter."""
    file = folder / f"{kernel['number']:04}.{way}.exact.npz"
    if file.exists() and file.read_bytes()[:2] == b"PK":
        with np.load(file) as held:
            return [held[f"arr_{i}"] for i in range(len(held.files))]
    try:
        func = from_source(in_double(kernel["text"]))
        assert isinstance(func, tir.PrimFunc)
        return _interpreted(func, doubled(given), steps)
    except (TVMError, AssertionError) as e:
        raise _GivesUp(str(e).splitlines()[0]) from e


class _Ours:
    """A kernel here, for arguments of one shape."""

    def __init__(self, func: tir.PrimFunc) -> None:
        self.func = func
        self.made: dict[str, tuple[Any, loops.Lowered]] = {}

    def lowered(self, given: Sequence[Any]) -> tuple[Any, loops.Lowered]:
        """The executable, and what the kernel became."""
        key = repr([a for a in given if not isinstance(a, np.ndarray)])
        if key not in self.made:
            self.made[key] = self._lower(given)
        return self.made[key]

    def _lower(self, given: Sequence[Any]) -> tuple[Any, loops.Lowered]:
        params = [
            Var(f"p{i}", TensorStructInfo(a.shape, str(a.dtype)))
            for i, a in enumerate(given)
            if isinstance(a, np.ndarray)
        ]
        left = iter(params)
        with exact_quotients(True):  # as where the machine lowers for a CPU
            made = loops.lower(
                self.func, [next(left) if isinstance(a, np.ndarray) else a for a in given]
            )
        results = [made.contents[i] for i in sorted(made.contents)]
        main: Function = function(params, [Tuple(results)]).with_attr("global_symbol", "main")
        machine = relax2xla.VirtualMachine(
            relax2xla.build(IRModule.from_expr(main)), relax2xla.cpu()
        )
        return machine["main"], made

    def run(self, given: Sequence[Any]) -> list[np.ndarray]:
        """All buffers afterwards."""
        main, _ = self.lowered(given)
        return [np.asarray(x) for x in main(*(a for a in given if isinstance(a, np.ndarray)))]


def _way(
    kernel: dict[str, Any], ours: _Ours, way: str, done: str, folder: Path, steps: int
) -> tuple[str, str]:
    """The state of one way, and why."""
    func, given = ours.func, arguments(kernel["parameters"], way)
    try:
        got = ours.run(given)
    except TVMError as e:
        said = str(e).splitlines()[0]
        try:
            _interpreted(func, given, steps)
        except _Invalid as invalid:
            return "invalid", f"{invalid}; {said}"
        except _GivesUp as up:
            return "refused", f"{said} ({up})"
        return "refused", said
    n, eps = terms(func, given), coarsest(kernel["text"])
    want: list[np.ndarray] = []
    wrong = ""
    if done == "ok":
        with np.load(folder / f"{kernel['number']:04}.{way}.npz") as held:
            want = [held[f"arr_{i}"] for i in range(len(held.files))]
        wrong = _difference(got, want, n, eps)
        if not wrong:
            return "equal", ""
    if want:
        try:
            nearer = _exact(kernel, way, given, folder, steps)
            if not _difference(got, _rounded(nearer, got), 1, eps):
                return "exact", wrong
        except (_Invalid, _GivesUp):
            pass
    try:
        exact = _interpreted(func, given, steps)
    except _Invalid as e:
        return "invalid", str(e)
    except _GivesUp as e:
        return ("undecided", f"{wrong}; {e}") if want else ("lowers", f"{done}; {e}")
    from_exact = _difference(got, exact, n, eps)
    if not want:
        return ("WRONG", f"{from_exact}; {done}") if from_exact else ("interpreted", done)
    if not from_exact:
        return "TVM differs", wrong
    return ("all three differ" if _difference(exact, want, n, eps) else "WRONG"), wrong


def _rounded(exact: Sequence[np.ndarray], like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Exact results in the dtypes of the kernel."""
    with np.errstate(all="ignore"):
        return [
            e.astype(a.dtype) if a.dtype.kind not in "biu" else e
            for e, a in zip(exact, like, strict=True)
        ]


def _kind(text: str) -> str:
    return next((k for k, pattern in KINDS if re.search(pattern, text)), "plain")


def verdict(kernel: dict[str, Any], folder: Path, steps: int) -> Verdict:
    """What becomes of a kernel of the corpus."""
    text: str = kernel["text"]
    kind = _kind(text)
    try:
        func = from_source(text)
    except TVMError as e:
        return Verdict(kind, "not parsed", str(e).splitlines()[0])
    assert isinstance(func, tir.PrimFunc)
    printed = func.script()
    again = from_source(printed)
    if not isinstance(again, tir.PrimFunc) or again.script() != printed:
        return Verdict(kind, "no fixed point")
    parameters = kernel["parameters"]
    if isinstance(parameters, str):
        return Verdict(kind, "no sizes", parameters)
    try:
        arguments(parameters, "wide") if _largest(parameters) <= MOST_ELEMENTS else None
    except TypeError as e:
        return Verdict(kind, "no sizes", str(e))
    ours = _Ours(func)
    if _largest(parameters) > MOST_ELEMENTS:
        return _too_large(kind, func, parameters)
    found: list[tuple[str, str]] = []
    for way in ways(parameters):
        state, why = _way(kernel, ours, way, kernel["runs"][way], folder, steps)
        found.append((state, f"{way}: {why}" if why else ""))
    state, why = min(found, key=lambda x: STATES.index(x[0]))
    stayed = next((m.loops for _, m in ours.made.values()), ())
    return Verdict(kind, state, why, stayed)


def _largest(parameters: Sequence[Any]) -> int:
    return max((math.prod(p[1]) for p in parameters if p[0] == "buffer"), default=0)


def _too_large(kind: str, func: tir.PrimFunc, parameters: Sequence[Any]) -> Verdict:
    """A kernel that is lowered only."""
    given = [TensorStructInfo(p[1], p[2]) if p[0] == "buffer" else p[1] for p in parameters]
    try:
        made = loops.lower(func, given)
    except TVMError as e:
        return Verdict(kind, "refused", str(e).splitlines()[0])
    return Verdict(kind, "lowers", "too large", made.loops)


def _guarded(job: tuple[dict[str, Any], Path, int]) -> Verdict:
    try:
        return verdict(*job)
    except Exception as e:
        return Verdict("plain", "CRASH", f"{type(e).__name__}: {str(e)[:200]}")


def _verdicts(
    jobs: Sequence[tuple[dict[str, Any], Path, int]], processes: int
) -> Iterator[Verdict]:
    """The verdicts of kernels in their order; processes begin anew behind one that does not end."""
    done = 0
    while done < len(jobs):
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            made = pool.imap(_guarded, jobs[done:])
            while done < len(jobs):
                try:
                    one = made.next(timeout=SECONDS)
                except multiprocessing.TimeoutError:
                    kind = _kind(jobs[done][0]["text"])
                    yield Verdict(kind, "lowers", f"does not end in {SECONDS} s")
                    done += 1
                    break
                yield one
                done += 1


def corpus(folder: Path, part: str = "") -> Iterator[dict[str, Any]]:
    """The kernels of a corpus."""
    with (folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            kernel = json.loads(line)
            if part in f"{kernel['number']} {kernel['source']}":
                yield kernel


def _read(file: Path) -> dict[int, Verdict]:
    """The verdicts that :func:`main` kept in a file, by the number of their kernel."""
    found: dict[int, Verdict] = {}
    if file.exists():
        for line in file.read_text("utf-8").splitlines():
            number, kind, state, why, stayed = json.loads(line)
            found[number] = Verdict(kind, state, why, tuple(loops.StayedLoop(*x) for x in stayed))
    return found


def table(found: Sequence[Verdict]) -> Iterator[str]:
    """The kernels by kind and state, and how many of each kind lower, are equal and keep a loop.

    Kernels without sizes or valid arguments are not in the shares; "equal" is of those whose run
    was compared with TVM's.
    """
    for (kind, state), n in sorted(Counter((v.kind, v.state) for v in found).items()):
        yield f"{kind:8} {state:24} {n}"
    for kind in sorted({v.kind for v in found}):
        valid = [v for v in found if v.kind == kind and v.state not in ("invalid", "no sizes")]
        lowered = [v for v in valid if v.state in LOWERED]
        compared = [v for v in lowered if v.state in COMPARED]
        equal = sum(v.state == "equal" for v in compared)
        stayed = sum(bool(v.loops) for v in lowered)
        exact = sum(v.state == "exact" for v in compared)
        yield (
            f"{kind}: {len(lowered)} of {len(valid)} lower, {equal} of {len(compared)} equal, "
            f"{exact} more are right and TVM's run less exact, {stayed} with a loop that stayed"
        )


def main() -> None:
    """Print what became of the kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what make.py wrote")
    parser.add_argument("part", nargs="?", default="", help="kernels whose number or source has it")
    parser.add_argument("--steps", type=int, default=1_000_000, help="statements interpreted")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--resume", action="store_true", help="keep the verdicts of earlier runs")
    options = parser.parse_args()
    kept = options.folder / "verdicts.jsonl"
    known = _read(kept) if options.resume else {}
    kernels = list(corpus(options.folder, options.part))
    found: list[Verdict] = []
    with kept.open("a" if options.resume else "w", encoding="utf-8") as out:
        left = [k for k in kernels if k["number"] not in known]
        made = _verdicts([(k, options.folder, options.steps) for k in left], options.processes)
        for kernel in kernels:
            one = known.get(kernel["number"])
            if one is None:
                one = next(made)
                kept_loops = [astuple(x) for x in one.loops]
                out.write(json.dumps([kernel["number"], *one[:3], kept_loops]) + "\n")
                out.flush()
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

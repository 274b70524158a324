"""StableHLO both ways: programs read, written back identical, and run; and what it costs.

The programs are the tests of the repository openxla/stablehlo (``testdata``: one JAX operator a
file with its expected result; ``interpret``: several programs a file for the reference
interpreter), in the folder ``../shared/stablehlo_testdata`` or the one that the environment
variable ``STABLEHLO_TESTDATA`` names. Checks (``check.expect_*``) become outputs; a program is
*right* if XLA, given what relax2xla wrote, computes what the checks demand.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compiler import raising
from relax2xla.errors import TVMError
from relax2xla.stablehlo import context, emit, parse, read
from relax2xla.stablehlo.codecs import type_to_sinfo
from relax2xla.stablehlo.mlir import ir, stablehlo
from relax2xla.vm.pjrt import compiler, xla

TESTDATA = Path(
    os.environ.get("STABLEHLO_TESTDATA", Path(__file__).parents[3] / "shared/stablehlo_testdata")
)
# Defaults of the check dialect: units in the last place, and absolute difference.
MAX_ULPS = 3
TOLERANCE = 1e-4
_CONST = re.compile(
    r"(?s)check\.(expect_(?:almost_)?eq)_const (%[\w#]+),\s+(dense<.*?>) : ([^\n]*?>)"
    r"(?: \{tolerance = ([-\w.+]+) : f64\})?[ \t]*(?://[^\n]*)?\n"
)
_PAIR = re.compile(
    r"check\.(expect_\w+) (%[\w#]+), (%[\w#]+)(?:, tolerance = ([-\w.+]+))?(?:,[^:]*)?"
    r" : (.*?>)\s*\n"
)


def programs(kind: str) -> Iterator[tuple[str, str]]:
    """Names and texts of the programs of one folder."""
    for path in sorted((TESTDATA / kind).glob("*.mlir")):
        if kind == "testdata":
            yield path.stem, path.read_text()
            continue
        for i, text in enumerate(re.split(r"(?m)^// -----.*$", path.read_text())):
            yield f"{path.stem} {i + 1}", _with_calls(text)


def _with_calls(text: str) -> str:
    """The operations of the check dialect, which jaxlib does not have, as custom calls."""
    count = 0

    def constant(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        kind, value, data, t, tolerance = found.groups()
        name = f"%check{count}"
        more = f", tolerance = {tolerance} : f64" if tolerance else ""
        return (
            f"{name} = stablehlo.constant {data} : {t}\n"
            f"stablehlo.custom_call @check.{kind}({value}, {name}) "
            f"{{has_side_effect = true{more}}} : ({t}, {t}) -> ()\n"
        )

    def pair(found: re.Match[str]) -> str:
        kind, a, b, tolerance, t = found.groups()
        types = t if t.count("tensor<") == 2 else f"{t}, {t}"
        more = f", tolerance = {tolerance} : f64" if tolerance else ""
        return (
            f"stablehlo.custom_call @check.{kind}({a}, {b}) {{has_side_effect = true{more}}} "
            f": ({types}) -> ()\n"
        )

    text = _PAIR.sub(pair, _CONST.sub(constant, text))
    # What is left checks files of the test's own machinery.
    return re.sub(r"(?m)^\s*check\.expect_serialized_eq.*$", "", text)


# ---- running
# What XLA, and what we before it, say of what only StableHLO's interpreter runs: several devices.
_UNTRANSLATED = re.compile(
    r"unsupported op for export to XLA|can't be translated to XLA HLO"
    r"|a program runs on one here|it waits for another host or device"
)
Execute = Callable[[ir.Module, Sequence[ir.Type]], list[Any]]


def by_xla(module: ir.Module, types: Sequence[ir.Type]) -> list[Any]:
    """The results of a program without arguments, of these types."""
    avals = [xla.aval(type_to_sinfo(t)) for t in types]  # pyright: ignore[reportArgumentType]
    return [np.asarray(a) for a in compiler.Loaded(module, avals, None).run([])]


def by_interpreter(module: ir.Module, types: Sequence[ir.Type]) -> list[Any]:
    """The same by StableHLO's reference interpreter, which may end the process."""
    results: Any = stablehlo.eval_module(module, [])
    return [np.array(a) for a in results]


def run(module: ir.Module, execute: Execute = by_xla) -> str:
    """Why the program's checks fail; "" if all hold. ``module`` is changed."""
    with module.context, ir.Location.unknown():
        functions = [op.operation for op in module.body.operations if op.name != "sdy.mesh"]
        entry, checks = _checks(functions)
        if entry is None:
            return "nothing is checked"
        if len(entry.regions[0].blocks[0].arguments):
            return "the entry takes arguments"
        outputs = [v for check in checks for v in check.operands]
        rules = [_rule(check) for check in checks]
        types = [v.type for v in outputs]
        _return(entry, outputs)
        for check in checks:
            check.erase()
        module.operation.verify()
    with module.context, ir.Location.unknown():
        found = execute(module, types)
    pairs = zip(found[::2], found[1::2], rules, strict=True)
    return "; ".join(filter(None, (rule(a, b) for a, b, rule in pairs)))


def _checks(functions: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The function that checks, and its checks."""
    for function in functions:
        found = [
            op.operation
            for op in function.regions[0].blocks[0].operations
            if op.name == "stablehlo.custom_call"
            and str(op.operation.attributes["call_target_name"]).startswith('"check.')
        ]
        if found:
            return function, found
    return None, []


def _return(entry: Any, outputs: list[Any]) -> None:
    """Let ``entry`` be ``main``, and return ``outputs``."""
    block = entry.regions[0].blocks[0]
    *_, last = block.operations
    last.operation.erase()
    ir.Operation.create("func.return", [], outputs, ip=ir.InsertionPoint(block))
    types = ir.FunctionType.get([], [v.type for v in outputs])
    entry.attributes["function_type"] = ir.TypeAttr.get(types)
    entry.attributes["sym_name"] = ir.StringAttr.get("main")
    entry.attributes["sym_visibility"] = ir.StringAttr.get("public")
    if "res_attrs" in entry.attributes:
        del entry.attributes["res_attrs"]


def _rule(check: Any) -> Callable[[Any, Any], str]:
    kind = ir.StringAttr(check.attributes["call_target_name"]).value.removeprefix("check.")
    number = {
        name: ir.IntegerAttr(check.attributes[name]).value
        for name in ("min_ulp_difference", "max_ulp_difference")
        if name in check.attributes
    }
    if kind == "expect_close":
        limit = number.get("max_ulp_difference", MAX_ULPS)
        return lambda a, b: _close(a, b, limit)
    if kind == "expect_almost_eq":
        held = "tolerance" in check.attributes
        tolerance = ir.FloatAttr(check.attributes["tolerance"]).value if held else TOLERANCE
        return lambda a, b: _almost(a, b, tolerance)
    return _equal


def _parts(a: Any) -> Any:
    """Real numbers, those of complex ones side by side."""
    return a.reshape(-1).view(a.real.dtype) if a.dtype.kind == "c" else a.reshape(-1)


def _equal(a: Any, b: Any) -> str:
    a, b = _parts(a), _parts(b)
    nans = (a != a) & (b != b)
    wrong = int(np.sum(~((a == b) | nans)))
    return f"{wrong} of {a.size} elements differ" if wrong else ""


def _close(a: Any, b: Any, limit: int) -> str:
    a, b = _parts(a), _parts(b)
    unsigned = np.dtype(f"u{a.dtype.itemsize}")

    def order(x: Any) -> Any:
        bits = x.view(unsigned).astype(object)
        sign = 1 << (8 * x.dtype.itemsize - 1)
        return np.where(bits >= sign, sign - bits, bits)

    far = np.abs(order(a) - order(b)) > limit
    far &= ~((a != a) & (b != b)) & (a != b)
    return (
        f"{int(far.sum())} of {a.size} elements are off by more than {limit} ulps"
        if any(far)
        else ""
    )


def _almost(a: Any, b: Any, tolerance: float) -> str:
    a, b = (_parts(x).astype(np.float64) for x in (a, b))
    with np.errstate(invalid="ignore"):
        good = (a == b) | (np.isnan(a) & np.isnan(b))
        good |= np.abs(a - b) <= tolerance * np.maximum(1, np.abs(b))
    return "" if np.all(good) else f"{int(np.sum(~good))} of {a.size} elements are off"


def outcome(text: str, ctx: ir.Context | None = None, execute: bool = True) -> tuple[str, str]:
    """How far a program gets (unparsed, unread, differs, fails, right), and the reason."""
    try:
        module = parse(text, ctx)
    except TVMError as e:
        return "unparsed", _line(e)
    try:
        again = emit(read(module), ctx)
    except TVMError as e:
        return "unread", _line(e)
    if str(again) != str(module):
        return "differs", "the text is another one"
    if not execute:
        return "identical", ""
    try:
        reason = run(again)
    except Exception as e:  # XLA's own errors, of many classes
        return "fails", _line(e)
    return ("fails", reason) if reason else ("right", "")


def interpreted(text: str) -> bool:
    """Whether the reference interpreter, in a child process, finds what was written right."""
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.compiler.stablehlo"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    return child.returncode == 0 and child.stdout == "right\n"


def _line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160]


# ---- the cost
def chain(count: int) -> str:
    """A program of ``count`` operations, with attributes and a constant."""
    t = "tensor<8x8xf32>"
    lines = [f"func.func @main(%0: {t}) -> {t} {{", f"%c = stablehlo.constant dense<1.0> : {t}"]
    for i in range(0, count, 4):
        lines += [
            f"%{i + 1} = stablehlo.add %{i}, %c : {t}",
            f"%{i + 2} = stablehlo.transpose %{i + 1}, dims = [1, 0] : ({t}) -> {t}",
            f"%{i + 3} = stablehlo.dot_general %{i + 2}, %c, contracting_dims = [1] x [0] "
            f": ({t}, {t}) -> {t}",
            f"%{i + 4} = stablehlo.tanh %{i + 3} : {t}",
        ]
    return "\n".join([*lines, f"return %{count} : {t}", "}"])


def nested(depth: int) -> str:
    """``depth`` conditionals in one another."""
    text = "func.func @main(%p: tensor<i1>, %a: tensor<f32>) -> tensor<f32> {\n"
    text += "".join(f'%r{i} = "stablehlo.if"(%p) ({{\n' for i in range(depth))
    text += "stablehlo.return %a : tensor<f32>\n"
    for i in reversed(range(depth)):
        text += "}, { stablehlo.return %a : tensor<f32> }) : (tensor<i1>) -> tensor<f32>\n"
        text += f"{'stablehlo.return' if i else 'return'} %r{i} : tensor<f32>\n"
    return text + "}"


def cost(text: str, rounds: int) -> dict[str, float]:
    """Median seconds of MLIR's parser and printer, and of our reader and writer."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        marks = [time.perf_counter()]
        module = parse(text, context())
        marks.append(time.perf_counter())
        printed = str(module)
        marks.append(time.perf_counter())
        mod = read(module)
        marks.append(time.perf_counter())
        again = emit(mod)
        marks.append(time.perf_counter())
        assert str(again) == printed
        for name, a, b in zip(("parse", "print", "read", "emit"), marks, marks[1:], strict=False):
            times[name].append(b - a)
    return {name: statistics.median(values) for name, values in times.items()}


def main(quick: bool = False) -> None:
    """Print the table of programs, each that is not right with its reason, and the times."""
    print(
        "\n| programs | all | parsed by jaxlib | read | identical text | right on XLA "
        "| right by StableHLO's interpreter alone | fail |\n|---|---|---|---|---|---|---|---|"
    )
    reasons: list[str] = []
    for kind in ("testdata", "interpret"):
        counts: Counter[str] = Counter()
        for name, text in list(programs(kind))[:: 10 if quick else 1]:
            state, reason = outcome(text)
            if state == "fails" and _UNTRANSLATED.search(reason) and interpreted(text):
                state, reason = "interpreted", ""
            counts[state] += 1
            if reason:
                reasons.append(f"{kind} {name}: {state}: {reason}")
        total = counts.total()
        parsed = total - counts["unparsed"]
        held = parsed - counts["unread"]
        same = held - counts["differs"]
        ran = (counts[s] for s in ("right", "interpreted", "fails"))
        numbers = (total, parsed, held, same, *ran)
        print(f"| {kind} | {' | '.join(map(str, numbers))} |", flush=True)
    print("\n" + "\n".join(reasons))
    print(
        "\n| module | MLIR parse + print ms | relax2xla read + emit ms | ratio |\n|---|---|---|---|"
    )
    rows = {"10,000 operations": (chain(10_000), 5), "200 nested regions": (nested(200), 5)}
    if not quick:
        rows["100,000 operations"] = (chain(100_000), 3)
    for name, (text, rounds) in rows.items():
        t = {k: 1e3 * v for k, v in cost(text, 1 if quick else rounds).items()}
        mlir, ours = t["parse"] + t["print"], t["read"] + t["emit"]
        print(f"| {name} | {mlir:.0f} | {ours:.0f} | {ours / mlir:.1f} |", flush=True)
    sizes = (2_000,) if quick else (2_000, 10_000, 100_000)
    raising.main({f"chain of {n:,} operations": chain(n) for n in sizes}, quick)


if __name__ == "__main__":
    print(run(emit(read(parse(sys.stdin.read()))), by_interpreter) or "right")

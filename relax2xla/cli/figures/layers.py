"""``inspect --layers``: what each layer of a model costs, by the source's names.

The model is lowered to StableHLO rows, whose shapes tell FLOPs and bytes as if nothing were fused.
A layer's time is at least what its FLOPs take at the machine's best rate, and what its bytes take
at the rate of its memory: the larger of both is its part of the roofline.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from relax2xla.cli.figures.costs import Cost, add
from relax2xla.cli.process.console import out, size, table
from relax2xla.ir import Call, Function, IRModule, Op, VarBinding
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.stablehlo.table import TABLE
from relax2xla.transform.export import is_high, lowered
from relax2xla.vm.plan.host_reasons import place

NAMELESS: Final = "(no name)"
#: Rows of a table; the others are one.
MOST: Final = 30


def layer_costs(mod: IRModule) -> dict[str, Cost]:
    """The cost of each name of the source, in the order of the program."""
    rows = lowered(mod) if is_high(mod) else mod
    made: dict[str, Cost] = {}
    for func in rows.relax_functions().values():
        for name, call in _calls(func):
            add(made.setdefault(name, Cost()), call)
    return made


def _calls(func: Function) -> Iterator[tuple[str, Call]]:
    """The calls of rows with their names; those of regions have the name of what runs them."""
    regions: dict[Any, Function] = {}
    for block in func.body.blocks:
        for b in block.bindings:
            if not isinstance(b, VarBinding):
                continue
            if isinstance(b.value, Function):
                regions[b.var] = b.value
                continue
            name = place(b.value.span or b.span or b.var.span) or NAMELESS
            inner = [regions[a] for a in getattr(b.value, "args", ()) if a in regions]
            for node in (n for e in (b.value, *inner) for n in post_order_deep(e)):
                if isinstance(node, Call) and isinstance(node.op, Op) and node.op.name in TABLE:
                    yield name, node


def roofline() -> tuple[float, float]:
    """FLOPs and bytes a second of this machine: a product of matrices, and a copy."""
    a = np.ones((256, 256), np.float32)
    b = np.ones(1 << 24, np.uint8)
    flops = 2 * 256**3 / min(_timed(lambda: a @ a) for _ in range(30))
    return flops, 2 * b.nbytes / min(_timed(b.copy) for _ in range(3))


def _timed(run: Any) -> float:
    start = time.perf_counter()
    run()
    return max(time.perf_counter() - start, 1e-9)


def layer_report(mod: IRModule) -> dict[str, Any]:
    """Rows by layer, and the rates that their shares are reckoned with, as plain data."""
    flops, rate = roofline()
    costs = layer_costs(mod)
    found = shares(list(costs.values()), flops, rate)
    return {
        "flops_per_s": flops,
        "bytes_per_s": rate,
        "rows": {
            n: {**asdict(c), "share": share, "bound": _bound(c, flops, rate)}
            for (n, c), share in zip(costs.items(), found, strict=True)
        },
    }


def shares(costs: Sequence[Cost], flops: float, rate: float) -> list[float]:
    """The parts of the time by a roofline of these FLOPs and bytes a second, which add up to 1."""
    least = [max(c.flops / flops, c.bytes / rate) for c in costs]
    total = sum(least) or 1.0
    return [t / total for t in least]


def rates(found: Mapping[str, Any]) -> str:
    """What the shares of a report are reckoned with."""
    flops, rate = (found[k] / 1e9 for k in ("flops_per_s", "bytes_per_s"))
    return f"roofline: {flops:.0f} GFLOP/s, {rate:.0f} GB/s, measured now"


def _bound(cost: Cost, flops: float, rate: float) -> str:
    return "arithmetic" if cost.flops / flops > cost.bytes / rate else "memory"


def print_layers(found: Mapping[str, Any]) -> None:
    """The layers that take most, the others in one row, and the total."""
    rows = sorted(found["rows"].items(), key=lambda item: -item[1]["share"])
    shown = [(n, *cells([r]), r["bound"]) for n, r in rows[:MOST]]
    if rest := [r for _, r in rows[MOST:]]:
        shown.append((f"other ({len(rest)})", *cells(rest), ""))
    shown.append(("total", *cells([r for _, r in rows]), ""))
    out()
    table(("layer", "FLOPs", "bytes", "%", "bound by"), shown)
    out(f"\n{rates(found)}; bytes as if nothing were fused")
    if dynamic := sum(r["dynamic"] for _, r in rows):
        out(f"{dynamic} operations have no static shape, and are not counted: give --shape")


def cells(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    """FLOPs, bytes and share of some rows together."""
    flops, moved, share = (sum(r[k] for r in rows) for k in ("flops", "bytes", "share"))
    return f"{flops:,}", size(moved), f"{100 * share:.1f}"

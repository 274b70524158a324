"""How much memory the tensors of functions take, with and without reuse."""

from __future__ import annotations

from relax2xla.analysis.variables import used_vars
from relax2xla.dtypes import dtype_info
from relax2xla.ir.expr import Call, Function, Var
from relax2xla.ir.module import IRModule
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, TupleStructInfo


def estimate_memory_usage(mod: IRModule | Function) -> str:
    """A report of what the results of all calls take in memory, function by function.

    Without planning every tensor has memory of its own; with planning, one that is not used any
    more makes room for later ones. As in TVM the estimate is static: branches and local functions
    count as if all of them ran, called functions do not count, and tensors with symbolic shapes
    are only counted. XLA fuses operations, so a compiled program needs less.
    """
    if isinstance(mod, Function):
        mod = IRModule({"main": mod})
    reports = [_report(g.name_hint, f) for g, f in mod.relax_functions().items()]
    return "\n".join(["Memory usage estimation:", *reports] if reports else [])


def _report(name: str, func: Function) -> str:
    sizes: list[int] = []  # of each call's result
    ends: list[int] = []  # the last call that uses it
    holds: dict[Var, set[int]] = {}  # the results that a variable shows
    dynamic = 0
    for b in bindings_deep(func):
        inside = {i for v in used_vars(b.value) for i in holds.get(v, ())}
        if not isinstance(b.value, Call):
            holds[b.var] = inside
            continue
        for i in inside:
            ends[i] = len(sizes)
        known = [_bytes(info) for info in _tensors(b.value.struct_info_)]
        dynamic += known.count(None)
        holds[b.var] = {len(sizes)}
        ends.append(len(sizes))
        sizes.append(sum(size or 0 for size in known))
    for v in used_vars(func.body.body):
        for i in holds.get(v, ()):
            ends[i] = len(sizes)
    total, peak = sum(sizes), _peak(sizes, ends)
    lines = [
        f"- Function {name}:",
        f" * Without memory planning, there are {sum(map(bool, sizes))} constant-size memory "
        f"allocation(s) with total size {total / 2**30:.4} GB.",
        f" * With memory planning, at most {peak / 2**30:.4} GB are in use at once.",
    ]
    if total:
        lines.append(f" * Memory planning reduces constant memory size to {peak / total:.1%}.")
    if dynamic:
        lines.append(f" * {dynamic} tensor(s) have shapes that are known at run time only.")
    return "\n".join(lines)


def _peak(sizes: list[int], ends: list[int]) -> int:
    freed: list[int] = [0] * (len(sizes) + 1)
    for size, end in zip(sizes, ends, strict=True):
        freed[end] += size
    live = peak = 0
    for at, size in enumerate(sizes):
        live += size
        peak = max(peak, live)
        live -= freed[at]
    return peak


def _tensors(info: StructInfo | None) -> list[TensorStructInfo]:
    found: list[TensorStructInfo] = []
    stack = [info]
    while stack:
        at = stack.pop()
        if isinstance(at, TupleStructInfo):
            stack.extend(at.fields)
        elif isinstance(at, TensorStructInfo):
            found.append(at)
    return found


def _bytes(info: TensorStructInfo) -> int | None:
    """Bytes of a tensor; None where shape or dtype are not known."""
    if info.dims is None or not info.dtype:
        return None
    bits = dtype_info(info.dtype).bits
    for d in info.dims:
        if not isinstance(d, int):
            return None
        bits *= d
    return -(-bits // 8)

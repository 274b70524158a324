"""Functions that each of several workers runs on its own values: those with ``R.ccl``.

TVM's programs of this kind run once in each worker's process. Here one program of all devices of a
mesh does the same, as a manual computation of Shardy's (design decision D19). What an argument or
result is on each worker has to be said in one array:

- a parameter is the same on all workers, and so is its argument; those that the function attribute
  ``per_worker`` names differ: they get an axis in front, of one part for each worker;
- a result that is the same on all workers, whatever the arguments, is that value; any other gets
  an axis in front in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from relax2xla.builder import BlockBuilder
from relax2xla.errors import LegalizeError, TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.rewrite import bindings_of, post_order_deep, rewrite_function
from relax2xla.ir.struct_info import show
from relax2xla.ir.traits import AsksPlace, Collective
from relax2xla.op.ccl import between_workers, gathered
from relax2xla.op.shared.lowering import (
    full,
    hlo,
    info_of,
    reshape,
    shape_of,
    symbolic_dims,
    tensor_info,
)
from relax2xla.transform.core import Pass, PassContext, register

#: Of a function: the names of parameters whose arguments differ between workers.
PER_WORKER: Final = "per_worker"
#: Of a function that each worker runs: names and sizes of the axes of the mesh.
WORKERS: Final = "workers"
# What gives every worker the same, whatever it had before.
_EVENS: Final = frozenset(
    f"relax.{name}"
    for name in (
        "ccl.allreduce",
        "ccl.allgather",
        "ccl.broadcast_from_worker0",
    )
)
# How many calls are looked into; what others give may differ.
_CALLS: Final = 256


@register(needed=True)
class LowerWorkers(Pass):
    """Exchanges between the workers of a mesh become rows, in functions that each of them runs.

    Before: ``R.ccl.allreduce(x, "sum")``. After: ``R.stablehlo.all_reduce`` between all devices.
    Parameters and results that differ between workers get an axis in front. Functions without
    exchanges stay. ``axes``: names and sizes of the mesh's axes. TransformError where a function
    also spreads values by annotations.
    """

    def __init__(self, axes: Sequence[tuple[str, int]] = (("worker", 1),)) -> None:
        super().__init__()
        self.axes = tuple((str(name), int(size)) for name, size in axes)
        self.workers = math.prod(size for _, size in self.axes)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        concerned = _concerned(mod)
        if not concerned:
            return mod
        new = dict(mod.functions)
        for gvar in concerned:
            func = mod[gvar]
            assert isinstance(func, Function)
            try:
                public = global_symbol(func) is not None
                made = self._function(func, mod) if public else self._exchanges(func)
            except (TransformError, LegalizeError) as e:
                e.add_note(f"  in the function {gvar.name_hint}")
                raise
            new[gvar] = BlockBuilder().normalize(made)
        return mod.replace(new)

    def _exchanges(self, func: Function) -> Function:
        """``func`` with rows for its exchanges."""
        lowerings = between_workers(self.workers)

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Call) or not isinstance(node.op, Op):
                return None
            lowering = lowerings.get(node.op.name)
            return None if lowering is None else lowering(*node.args, **node.attrs)

        with symbolic_dims():
            return rewrite_function(func, rule=rule)

    def _function(self, func: Function, mod: IRModule) -> Function:
        if any("sharding" in str(func.attrs.get(n, "")) for n in ("arg_attrs", "res_attrs")):
            raise TransformError(
                "it states how arrays are spread, and has R.ccl, which each worker runs on values "
                "of its own; take R.dist.redistribute in place of R.ccl, or R.Tensor for R.DTensor"
            )
        names = list(func.attrs.get(PER_WORKER, ()))
        unknown = [n for n in names if n not in [p.name_hint for p in func.params]]
        if unknown:
            raise TransformError(f"{PER_WORKER} names {unknown[0]!r}, which is no parameter")
        uneven = _Evenness(mod).of(func, [p for p in func.params if p.name_hint in names])
        func = self._exchanges(func)
        params: list[Var] = []
        head: list[Binding] = []
        with symbolic_dims():
            for p in func.params:
                if p.name_hint not in names:
                    params.append(p)
                    continue
                whole = Var(p.name_hint, _stacked(p, self.workers), p.span)
                params.append(whole)
                head += _own(whole, p)
            blocks = [BindingBlock(head), *func.body.blocks] if head else func.body.blocks
            result = self._result(func.body.body, uneven)
        body = SeqExpr(blocks, result)
        return Function(
            params,
            body,
            is_pure=func.is_pure,
            attrs={**func.attrs, WORKERS: [list(axis) for axis in self.axes]},
            span=func.span,
        )

    def _result(self, value: Expr, uneven: set[Expr]) -> Expr:
        """A result, with what workers have of it where that differs."""
        if isinstance(value, Tuple):
            return Tuple([self._result(f, uneven) for f in value.fields])
        if value not in uneven:
            return value
        return gathered(self.workers, reshape(value, (1, *shape_of(value))))


def _stacked(p: Var, workers: int) -> TensorStructInfo:
    """The struct info of all workers' values of a parameter."""
    info = p.struct_info
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        raise TransformError(
            f"{PER_WORKER} names {p.name_hint!r}, which is {show(info)}; it has to be a tensor of "
            "known rank"
        )
    return TensorStructInfo.make((workers, *info.dims), info.dtype)


def _own(whole: Var, own: Var) -> list[Binding]:
    """Bindings of ``own``, this worker's part of ``whole``."""
    sizes = (1, *shape_of(own))
    number = hlo("convert", hlo("partition_id"), out=tensor_info((), "int32"))
    zero = full((), 0, "int32")
    part = hlo("dynamic_slice", whole, number, *[zero] * (len(sizes) - 1), slice_sizes=sizes)
    return [VarBinding(own, reshape(part, sizes[1:]))]


# ---- which functions, which values
def _concerned(mod: IRModule) -> list[GlobalVar]:
    """The functions with exchanges, and those that call such."""
    functions = mod.relax_functions()
    found = {g for g, f in functions.items() if any(map(_is_exchange, _calls(f)))}
    while True:
        more = {
            g
            for g, f in functions.items()
            if g not in found
            and any(isinstance(c.op, GlobalVar) and _named(c.op, found) for c in _calls(f))
        }
        if not more:
            return [g for g in functions if g in found]
        found |= more


def _named(gvar: GlobalVar, found: Iterable[GlobalVar]) -> bool:
    return any(g.name_hint == gvar.name_hint for g in found)


def _calls(func: Function) -> list[Call]:
    return [n for n in post_order_deep(func) if isinstance(n, Call)]


def _is_exchange(call: Call) -> bool:
    return isinstance(call.op, Op) and (
        call.op.name.startswith("relax.ccl.")
        or (
            call.op.name == "relax.distributed.redistribute_replica_to_shard"
            and isinstance(call.struct_info_, TensorStructInfo)
        )
    )


class _Evenness:
    """What of a module's values workers may have differently, from which parameters they do."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        # By function and places of parameters that differ: whether its result does.
        self.known: dict[tuple[str, tuple[int, ...]], bool] = {}

    def of(self, func: Function, params: Iterable[Expr]) -> set[Expr]:
        """The variables of ``func`` that may differ."""
        found: set[Expr] = set(params)
        for b in bindings_of(func.body):
            if self.differs(b.value, found):
                found.add(b.var)
        return found

    def differs(self, value: Expr, uneven: set[Expr]) -> bool:
        """Whether workers may compute different values of an expression."""
        if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in _EVENS:
            return False
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            return self.called(value, uneven)
        for node in post_order_deep(value):
            if node in uneven or isinstance(node, GlobalVar):
                return True
            if isinstance(node, Call) and isinstance(node.op, Op):
                if node.op.has(AsksPlace) or node.op.name == "relax.ccl.scatter_from_worker0":
                    return True
                if node.op.has(Collective) and node.op.name not in _EVENS:
                    return True
        return False

    def called(self, call: Call, uneven: set[Expr]) -> bool:
        """Whether the result of a call of the module's function may differ."""
        assert isinstance(call.op, GlobalVar)
        name = call.op.name_hint
        callee = self.mod[name]
        if not isinstance(callee, Function):
            return True
        places = tuple(i for i, a in enumerate(call.args) if self.differs(a, uneven))
        if (name, places) not in self.known:
            # Until it is known: of a function that calls itself, and of deep chains of calls.
            self.known[name, places] = True
            if len(self.known) <= _CALLS:
                own = self.of(callee, [callee.params[i] for i in places])
                result = callee.body.body
                self.known[name, places] = any(n in own for n in post_order_deep(result))
        return self.known[name, places]


# ---- programs of rows
def as_manual(func: Function, axes: Sequence[tuple[str, int]]) -> Function:
    """A static program of rows as a manual computation over all axes of a mesh.

    What is made of all workers' values of a parameter, and what is gathered for a result, is cut
    instead of copied.
    """
    names = ", ".join(f'"{name}"' for name, _ in axes)
    sizes = ", ".join(f'"{name}"={size}' for name, size in axes)
    fields = func.body.body.fields if isinstance(func.body.body, Tuple) else [func.body.body]
    bound = {b.var: b.value for b in bindings_of(func.body)}
    results: list[Expr] = []
    spread: list[bool] = []
    for field in fields:
        value = bound.get(field) if isinstance(field, Var) else None
        ends = value is not None and _is_last_gather(value)
        spread.append(ends)
        results.append(value.args[0] if ends and isinstance(value, Call) else field)
    result = Tuple(results) if isinstance(func.body.body, Tuple) else results[0]
    cut, region = _region(func, result)

    def shardings(values: Sequence[Expr], cuts: Sequence[bool]) -> dict[str, str]:
        each = [
            f"<mesh<[{sizes}]>, [{', '.join(_dims(len(shape_of(v)), c, names))}]>"
            for v, c in zip(values, cuts, strict=True)
        ]
        return {"mlir": f"#sdy.sharding_per_value<[{', '.join(each)}]>"}

    region_var = Var("worker", region.struct_info)
    made = Op.get("relax.sdy.manual_computation")(
        *func.params,
        region_var,
        sinfo_args=[info_of(f) for f in fields],
        in_shardings=shardings(func.params, [p in cut for p in func.params]),
        out_shardings=shardings(fields, spread),
        manual_axes={"mlir": f"#sdy<manual_axes{{{names}}}>"},
    )
    made_var = Var("result", made.struct_info)
    body = [VarBinding(region_var, region), VarBinding(made_var, made)]
    return func.replace(body=SeqExpr([BindingBlock(body)], made_var))


def _dims(rank: int, cut: bool, names: str) -> list[str]:
    return [f"{{{names}}}" if cut and axis == 0 else "{}" for axis in range(rank)]


def _region(func: Function, result: Expr) -> tuple[set[Var], Function]:
    """Parameters that each worker takes its own part of, and what a worker runs.

    They are those of which nothing else is used than the slice at this worker's number.
    """
    bindings = list(bindings_of(func.body))
    uses: dict[Expr, int] = {}
    for value in (*(b.value for b in bindings), result):
        for node in post_order_deep(value):
            if node in func.params:
                uses[node] = uses.get(node, 0) + 1
    bound = {b.var: b.value for b in bindings if isinstance(b, VarBinding)}
    parts: dict[Expr, VarBinding] = {}
    for b in bindings:
        value = b.value
        if (
            isinstance(b, VarBinding)
            and _is_row(value, "dynamic_slice")
            and isinstance(value, Call)
        ):
            source, first = value.args[0], value.args[1]
            if source in func.params and uses[source] == 1 and _is_number(first, bound):
                parts[source] = b
    inner: list[Var] = []
    replaced: dict[Var, Expr] = {}
    for p in func.params:
        part = parts.get(p)
        made = Var(p.name_hint, p.struct_info if part is None else part.var.struct_info)
        inner.append(made)
        replaced[p if part is None else part.var] = made
    dropped = {b.var for b in parts.values()}
    kept = [b for b in bindings if b.var not in dropped]
    body = SeqExpr([BindingBlock(kept)] if kept else [], result)
    region = rewrite_function(Function(inner, body), values=replaced)
    return {p for p in func.params if p in parts}, region


def _is_row(value: Any, name: str) -> bool:
    return (
        isinstance(value, Call)
        and isinstance(value.op, Op)
        and value.op.name == f"relax.stablehlo.{name}"
    )


def _is_number(value: Expr, bound: Mapping[Var, Expr]) -> bool:
    """Whether a value is this worker's number."""
    while isinstance(value, Var) and value in bound:
        value = bound[value]
        if _is_row(value, "convert") and isinstance(value, Call):
            value = value.args[0]
    return _is_row(value, "partition_id")


def _is_last_gather(value: Expr) -> bool:
    """Whether a value is one of each worker, in a row, as ``LowerWorkers`` makes results."""
    if not _is_row(value, "all_gather") or not isinstance(value, Call):
        return False
    return value.attrs["all_gather_dim"] == 0 and shape_of(value.args[0])[0] == 1

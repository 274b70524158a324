# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: branches and loops.

A loop is ``stablehlo.while`` over values of fixed shape. Where the body changes a shape and the
number of iterations is known, it is written out; any other loop is run by the machine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from onnx import GraphProto

from relax2xla import op as R
from relax2xla import tir
from relax2xla.importers.onnx.engine.context import Context, Missing, known, known_number
from relax2xla.importers.onnx.engine.converters import as_int, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    NeedsValue,
    axis_of,
    dims_of,
    dtype_of,
    scalar,
)
from relax2xla.importers.onnx.engine.objects import Kind, as_value, host_loop, kind_of, stacked
from relax2xla.importers.onnx.ops.random import loop_key
from relax2xla.importers.shared import loops
from relax2xla.importers.shared.dims import fold_dim, same_dim
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import joined
from relax2xla.importers.shared.loops import NotInvariant, Stack
from relax2xla.ir import (
    Constant,
    Expr,
    If,
    ObjectStructInfo,
    SeqExpr,
    TensorStructInfo,
    Tuple,
)
from relax2xla.tir import Dim

# Iterations of all loops of a model that may be written out.
UNROLL_LIMIT = 1024


# -- If ------------------------------------------------------------------------------------------
@onnx_op("If")
def if_(
    ctx: Context, cond: Expr, *, then_branch: GraphProto, else_branch: GraphProto
) -> list[Expr]:
    """A condition that is known picks its branch at import."""
    chosen = known(cond)
    if chosen is not None:
        return ctx.subgraph(then_branch if bool(chosen.reshape(())) else else_branch, [])
    flag = ctx.emit(_truth(cond))
    count = len(ctx.wanted)
    branches = [_branch(ctx, g) for g in (then_branch, else_branch)]
    first, second = (b.body.fields if isinstance(b.body, Tuple) else [b.body] for b in branches)
    if len(first) != len(second) or len(first) != count:
        raise ValueError(
            f"its branches have {len(first)} and {len(second)} outputs; it has {count}"
        )
    for a, b in zip(first, second, strict=True):
        if not (loops.same(a.struct_info, b.struct_info) or _is_either(ctx, a, b)):
            raise NeedsValue(
                cond, f"the branches differ ({a.struct_info}, {b.struct_info}) and the condition"
            )
    made = ctx.emit(If(flag, branches[0], branches[1]))
    results = [made] if count == 1 else [ctx.emit(made[i]) for i in range(count)]
    return [_joined(ctx, x, a, b) for x, a, b in zip(results, first, second, strict=True)]


def _truth(cond: Expr) -> Expr:
    """A condition as the bool of rank 0 that Relax branches on."""
    if (dtype := dtype_of(cond)) != "bool":
        raise ValueError(f"its condition must be a bool tensor; got one of {dtype or 'no dtype'}")
    return R.reshape(cond, ())


def _is_either(ctx: Context, a: Expr, b: Expr) -> bool:
    """Whether the machine can choose between two values of different types."""
    left, right = a.struct_info, b.struct_info
    if isinstance(left, ObjectStructInfo) or isinstance(right, ObjectStructInfo):
        return ctx.host
    return (
        ctx.binds
        and isinstance(left, TensorStructInfo)
        and isinstance(right, TensorStructInfo)
        and left.dtype == right.dtype
        and left.ndim == right.ndim > 0
    )


def _joined(ctx: Context, x: Expr, a: Expr, b: Expr) -> Expr:
    """The value of a branch, with what is known of those of both."""
    info = x.struct_info
    if isinstance(info, ObjectStructInfo):
        ctx.kinds[x] = kind_of(ctx, a).joined(kind_of(ctx, b))
    elif not loops.same(a.struct_info, b.struct_info):
        sides = zip(dims_of(a), dims_of(b), strict=True)
        return ctx.pinned(x, [p if isinstance(p, int) and p == q else None for p, q in sides])
    return x


def _branch(ctx: Context, graph: GraphProto) -> SeqExpr:
    builder = ctx.builder
    builder.begin_scope()
    try:
        outputs = [as_value(ctx, x) for x in ctx.subgraph(graph, [])]
        body = outputs[0] if len(outputs) == 1 else Tuple(outputs)
    finally:
        blocks = builder.end_scope()
    return SeqExpr(blocks, body)


# -- Loop ----------------------------------------------------------------------------------------
class _Conditional(Exception):
    """Whether a loop goes on is computed in its body."""


class _TooLong(Exception):
    """More iterations than may be written out."""


@onnx_op("Loop")
def loop(
    ctx: Context,
    M: Expr | None = None,
    cond: Expr | None = None,
    *v_initial: Expr,
    body: GraphProto,
) -> list[Expr]:
    """Rows can be stacked where the number of iterations is known, or a dimension."""
    starts = list(v_initial)
    rows = len(body.output) - 1 - len(starts)
    if rows < 0:
        raise ValueError(f"its body has {len(body.output)} outputs for {len(starts)} values")
    going = True if cond is None else known_number(cond)
    count = None if M is None else known_number(M)
    if rows and not ctx.binds:
        if M is not None and count is None:
            count = as_int(ctx.value(M, "the trip count of a loop whose results grow"), "M")
        if cond is not None and going is None:
            going = bool(ctx.value(cond, "the condition of a loop whose results grow").all())
    if going is not None and not going:
        count, going = 0, True
    ways: list[tuple[str, Callable[[], list[Expr]]]] = []
    if going and count is not None:
        ways.append(("scan", lambda: _counted(ctx, max(int(count), 0), starts, body, rows)))
        ways.append(("unroll", lambda: _unrolled(ctx, max(int(count), 0), starts, body)))
    if not rows and all(isinstance(x.struct_info, TensorStructInfo) for x in starts):
        ways.append(("while", lambda: _open_ended(ctx, M, cond, starts, body)))
    if ctx.binds:
        ways.append(("host", lambda: _hosted(ctx, M, cond, starts, body, rows)))
    reason: Exception | None = None
    for name, way in ways:
        if (id(body), name) in ctx.loops.failed:
            continue
        undo = ctx.mark()
        try:
            return way()
        except (NotInvariant, _Conditional, _TooLong) as e:
            ctx.loops.failed[id(body), name] = body
            reason = e
        except Missing:
            # A node of the body may have to know the number of the iteration.
            if name == ways[-1][0]:
                raise
            ctx.loops.failed[id(body), name] = body
        undo()
    raise Unsupported(
        f"a loop whose results grow by a number of iterations that its body decides: {reason}"
        if isinstance(reason, _Conditional) or reason is None
        else f"a loop of {'unknown' if count is None else int(count)} iterations: {reason}"
    )


def _counted(
    ctx: Context, count: int, starts: list[Expr], body: GraphProto, rows: int
) -> list[Expr]:
    keys = loop_key(ctx, body)

    def step(at: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        going, *made = ctx.subgraph(body, [at, scalar(True, "bool"), *values], key=keys(at))
        if not known_number(going) and count > 1:
            raise _Conditional("it may end early")
        return made[: len(starts)], made[len(starts) :]

    last, stacked = loops.scan(ctx.builder, count, step, starts, [Stack()] * rows)
    return [*last, *stacked]


def _unrolled(ctx: Context, count: int, starts: list[Expr], body: GraphProto) -> list[Expr]:
    values, rows = list(starts), [list[Expr]() for _ in body.output[1 + len(starts) :]]
    for at in range(count):
        ctx.loops.unrolled += 1
        if ctx.loops.unrolled > UNROLL_LIMIT:
            raise _TooLong(
                f"loops that change a shape have more than {UNROLL_LIMIT} iterations together"
            )
        outputs = ctx.subgraph(body, [scalar(at, "int64"), scalar(True, "bool"), *values])
        going, *made = (x if isinstance(x, Constant) else ctx.emit(x) for x in outputs)
        values = made[: len(starts)]
        for stack, row in zip(rows, made[len(starts) :], strict=True):
            stack.append(R.expand_dims(row, [0]))
        decided = known_number(going)
        if decided is None and at + 1 < count:
            raise _Conditional("it may end early")
        if not decided:
            break
    if any(not stack for stack in rows):
        raise NotInvariant("it has no iterations")
    return [*values, *(joined(s) for s in rows)]


def _open_ended(
    ctx: Context, M: Expr | None, cond: Expr | None, starts: list[Expr], body: GraphProto
) -> list[Expr]:
    """Without rows: the trip count and the condition may be computed."""
    limit = None if M is None else ctx.emit(R.reshape(M, ()))
    flag = scalar(True, "bool") if cond is None else _truth(cond)
    keys = loop_key(ctx, body)

    def go_on(values: Sequence[Expr]) -> Expr:
        at, going, *_ = values
        return going if limit is None else R.logical_and(going, R.less(at, limit))

    def step(values: Sequence[Expr]) -> list[Expr]:
        at, going, *rest = values
        new, *made = ctx.subgraph(body, [at, going, *rest], key=keys(at))
        return [R.add(at, scalar(1, "int64")), _truth(new), *made]

    inits = [scalar(0, "int64"), flag, *starts]
    return loops.while_loop(ctx.builder, go_on, step, inits)[2:]


def _hosted(
    ctx: Context,
    M: Expr | None,
    cond: Expr | None,
    starts: list[Expr],
    body: GraphProto,
    rows: int,
) -> list[Expr]:
    """By the machine, iteration by iteration: anything may change but dtypes and ranks."""
    limit = None if M is None else ctx.emit(R.reshape(M, ()))
    flag = scalar(True, "bool") if cond is None else _truth(cond)
    infos = [i.type for i in body.input[2:]]
    if len(infos) != len(starts):
        raise ValueError(f"its body has {len(body.input)} inputs for {len(starts)} values")
    declared = [Kind.of(t, "Loop") for t in infos]

    def step(
        at: Expr, going: Expr, values: Sequence[Expr]
    ) -> tuple[Expr, Sequence[Expr], Sequence[Expr]]:
        new, *made = ctx.subgraph(body, [at, going, *values], host=True)
        return _truth(new), made[: len(starts)], made[len(starts) :]

    done = host_loop(ctx, limit, ctx.emit(flag), starts, declared, rows, step)
    return [*done.last, *map(functools.partial(stacked, ctx), done.rows, done.infos)]


# -- Scan ----------------------------------------------------------------------------------------
@onnx_op("Scan", since=9)
def scan(
    ctx: Context,
    *initial_state_and_scan_inputs: Expr,
    body: GraphProto,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> list[Expr]:
    states, inputs = _parts(initial_state_and_scan_inputs, num_scan_inputs)
    axes = scan_input_axes or [0] * len(inputs)
    turns = scan_input_directions or [0] * len(inputs)
    rows = len(body.output) - len(states)
    out_axes = scan_output_axes or [0] * rows
    out_turns = scan_output_directions or [0] * rows
    at = [axis_of(a, len(dims_of(x))) for a, x in zip(axes, inputs, strict=True)]
    length = _length(inputs, at)
    stacks = [Stack(a, bool(t)) for a, t in zip(out_axes, out_turns, strict=True)]
    keys = loop_key(ctx, body)

    def step(i: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        last = R.subtract(loops.number(length), scalar(1, "int64"))
        back = ctx.emit(R.subtract(last, i)) if any(turns) else i
        seen = [
            loops.element(x, back if t else i, a) for x, a, t in zip(inputs, at, turns, strict=True)
        ]
        made = ctx.subgraph(body, [*values, *map(ctx.emit, seen)], key=keys(i))
        return made[: len(states)], made[len(states) :]

    undo = ctx.mark()
    try:
        last, stacked = loops.scan(ctx.builder, length, step, states, stacks)
        return [*last, *stacked]
    except NotInvariant as e:
        known_sizes = _required(e)
        if not known_sizes:
            raise Unsupported(f"a scan whose states change their shape: {e}") from e
    # Exporters write states as constants of the batch that they traced, beside a symbolic one.
    undo()
    inputs = [_with(ctx, x, known_sizes) for x in inputs]
    return _scanned(ctx, length, step, states, stacks)


def _required(e: NotInvariant) -> list[tuple[Dim, int]]:
    """The symbolic sizes of which a loop says that they can only be numbers."""
    before, after = e.before, e.after
    if not (isinstance(before, TensorStructInfo) and isinstance(after, TensorStructInfo)):
        return []
    pairs = zip(before.dims or (), after.dims or (), strict=False)
    return [(b, a) for a, b in pairs if isinstance(a, int) and isinstance(b, tir.Var)]


def _with(ctx: Context, x: Expr, known_sizes: Sequence[tuple[Dim, int]]) -> Expr:
    """``x`` with these sizes, which the call checks."""
    dims = [next((n for s, n in known_sizes if same_dim(d, s)), d) for d in dims_of(x)]
    return ctx.sized(x, dims)


@onnx_op("Scan", since=8)
def scan_batch(
    ctx: Context,
    sequence_lens: Expr | None = None,
    *initial_state_and_scan_inputs: Expr,
    body: GraphProto,
    directions: list[int] | None = None,
    num_scan_inputs: int,
) -> list[Expr]:
    """A scan over axis 1 for each entry of axis 0; beyond a sequence's end rows are zero."""
    states, inputs = _parts(initial_state_and_scan_inputs, num_scan_inputs)
    turns = directions or [0] * len(inputs)
    rows = len(body.output) - len(states)
    length = _length(inputs, [1] * len(inputs))
    batch = dims_of(inputs[0])[0]
    keys = loop_key(ctx, body)

    def entry(b: Expr, _: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        own = [ctx.emit(loops.element(x, b, 0)) for x in inputs]
        size = loops.number(length)
        if sequence_lens is not None:
            size = ctx.emit(R.astype(loops.element(sequence_lens, b, 0), "int64"))

        def step(i: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
            within = None if sequence_lens is None else ctx.emit(R.less(i, size))
            # Reversed, a sequence starts at its own end.
            back = R.maximum(
                R.subtract(R.subtract(size, scalar(1, "int64")), i), scalar(0, "int64")
            )
            back = ctx.emit(back)
            seen = [loops.element(x, back if t else i, 0) for x, t in zip(own, turns, strict=True)]
            place = R.add(R.multiply(b, loops.number(length)), i)
            made = ctx.subgraph(body, [*values, *map(ctx.emit, seen)], key=keys(place))
            new, out = made[: len(states)], made[len(states) :]
            if within is None:
                return new, out
            kept = [R.where(within, a, b) for a, b in zip(new, values, strict=True)]
            return kept, [R.where(within, x, scalar(0, dtype_of(x))) for x in out]

        first = [ctx.emit(loops.element(s, b, 0)) for s in states]
        last, stacked = loops.scan(ctx.builder, length, step, first, [Stack()] * rows)
        return [], [*last, *stacked]

    return _scanned(ctx, batch, entry, [], [Stack()] * (len(states) + rows))


def _parts(values: Sequence[Expr], count: int) -> tuple[list[Expr], list[Expr]]:
    """States and scanned inputs."""
    if not 1 <= count <= len(values):
        raise ValueError(f"num_scan_inputs={count} of {len(values)} inputs")
    return list(values[: len(values) - count]), list(values[len(values) - count :])


def _length(inputs: Sequence[Expr], axes: Sequence[int]) -> Dim:
    sizes = [dims_of(x)[a] for x, a in zip(inputs, axes, strict=True)]
    known_sizes = {s for s in sizes if isinstance(s, int)}
    if len(known_sizes) > 1:
        raise ValueError(f"the inputs have sequences of the lengths {sorted(known_sizes)}")
    return fold_dim(sizes[0])


def _scanned(ctx: Context, length: Dim, step: Any, states: list[Expr], stacks: Any) -> list[Expr]:
    try:
        last, stacked = loops.scan(ctx.builder, length, step, states, stacks)
    except NotInvariant as e:
        raise Unsupported(f"a scan whose states change their shape: {e}") from e
    return [*last, *stacked]

"""Higher-order operators of torch: regions converted in place, branches, loops and scans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule, Node

from relax2xla import op as R
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.loops import NotInvariant, Stack, element, scan, while_loop
from relax2xla.importers.torch.engine.context import dims_of
from relax2xla.importers.torch.engine.gradients import stopped
from relax2xla.ir import Expr, If, SeqExpr, Tuple, Var

if TYPE_CHECKING:
    from relax2xla.importers.torch.engine.graph_walk import Walk


def convert(walk: Walk, node: Node, op: Any) -> Any:
    """The value of a higher-order operator; :class:`Unsupported` for one without a rule."""
    name = op.name()
    rule = RULES.get(name)
    if rule is None:
        raise Unsupported(f"the higher-order operator {name} has no converter")
    args = [walk.read(a) for a in node.args]
    kwargs = {k: walk.read(v) for k, v in node.kwargs.items()}
    try:
        return rule(walk, *args, **kwargs)
    except NotInvariant as e:
        raise Unsupported(str(e)) from e


def _values(walk: Walk, values: Sequence[Any]) -> list[Expr]:
    """Operands of a loop or of a branch as tensors; numbers are not carried."""
    for v in values:
        if not isinstance(v, Expr):
            raise Unsupported(
                f"it carries the number {v}", "carry a tensor, such as torch.tensor(0)"
            )
    return [walk.ctx.emit(v) if not isinstance(v, Var) else v for v in values]


def _inline(walk: Walk, *args: Any, enables: bool = False) -> Any:
    """Regions that concern gradients alone, which only set_grad_enabled(True) lets through."""
    at = next(i for i, a in enumerate(args) if isinstance(a, GraphModule))
    made = walk.region(args[at], args[at + 1 :])
    if enables and args[0]:
        return made
    return [stopped(walk.ctx, v) if isinstance(v, Expr) else v for v in made]


def _cond(
    walk: Walk, pred: Any, true: GraphModule, false: GraphModule, operands: Sequence[Any]
) -> Any:
    """``torch.cond``: an ``If``, whose branches see the values around them."""
    if isinstance(pred, bool):
        return walk.region(true if pred else false, operands)
    if not isinstance(pred, Expr):
        pred = walk.ctx.tensor(pred, "bool")
    pred = walk.ctx.emit(walk.ctx.cast(walk.ctx.reshape(pred, ()), "bool"))
    bb = walk.builder
    branches: list[Expr] = []
    count = 0
    for module in (true, false):
        bb.begin_scope()
        try:
            made = _values(walk, walk.region(module, operands))
            result = bb.emit(Tuple(made))
        finally:
            blocks = bb.end_scope()
        count = len(made)
        branches.append(SeqExpr(blocks, result))
    chosen = bb.emit(If(pred, branches[0], branches[1]))
    return [bb.emit(chosen[i]) for i in range(count)]


def _while(
    walk: Walk,
    cond: GraphModule,
    body: GraphModule,
    carried: Sequence[Any],
    extra: Sequence[Any] = (),
) -> Any:
    def test(values: Sequence[Expr]) -> Expr:
        (verdict,) = walk.region(cond, [*values, *extra])
        if not isinstance(verdict, Expr):
            verdict = walk.ctx.tensor(verdict, "bool")
        return walk.ctx.reshape(walk.ctx.cast(verdict, "bool"), ())

    def step(values: Sequence[Expr]) -> Sequence[Expr]:
        return _values(walk, walk.region(body, [*values, *extra]))

    return while_loop(walk.builder, test, step, _values(walk, carried))


def _scan(
    walk: Walk,
    combine: GraphModule,
    init: Sequence[Any],
    xs: Sequence[Any],
    extra: Sequence[Any] = (),
) -> Any:
    """``scan`` along the first axis: the last carried values, then the stacked rows."""
    start, sequence = _values(walk, init), _values(walk, xs)
    outputs = _results(combine) - len(start)

    def step(at: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        rows = [walk.ctx.emit(element(x, at, 0)) for x in sequence]
        made = _values(walk, walk.region(combine, [*values, *rows, *extra]))
        return made[: len(start)], made[len(start) :]

    length = dims_of(sequence[0])[0]
    last, stacked = scan(walk.builder, length, step, start, [Stack()] * outputs)
    return [*last, *stacked]


def _map(walk: Walk, function: GraphModule, xs: Sequence[Any], extra: Sequence[Any] = ()) -> Any:
    return _scan(walk, function, (), xs, extra)


def _associative_scan(
    walk: Walk, combine: GraphModule, xs: Sequence[Any], extra: Sequence[Any] = ()
) -> Any:
    """Running results of an associative function along the first axis, one element after another.

    The order of the operations is not part of the operator's meaning.
    """
    sequence = _values(walk, xs)
    first = [walk.ctx.emit(R.strided_slice(x, [0], [0], [1])) for x in sequence]
    start = [walk.ctx.emit(R.squeeze(x, [0])) for x in first]
    length = dims_of(sequence[0])[0]

    def step(at: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        one = walk.ctx.tensor(1, "int64")
        rows = [walk.ctx.emit(element(x, R.add(at, one), 0)) for x in sequence]
        made = _values(walk, walk.region(combine, [*values, *rows, *extra]))
        return made, made

    stacks = [Stack()] * len(sequence)
    _, rest = scan(walk.builder, length - 1, step, start, stacks)
    return [R.concat([a, b], 0) for a, b in zip(first, rest, strict=True)]


def _results(module: GraphModule) -> int:
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    fields: Any = output.args[0]
    return len(fields)


RULES: dict[str, Callable[..., Any]] = {
    "wrap_with_set_grad_enabled": functools.partial(_inline, enables=True),
    "inference_mode": _inline,
    "invoke_subgraph": lambda walk, module, _name, *args: walk.region(module, args),
    "tag_activation_checkpoint": lambda walk, module, *args, **_: walk.region(module, args),
    "cond": _cond,
    "while_loop": _while,
    "scan": _scan,
    "map_impl": _map,
    "associative_scan": _associative_scan,
}

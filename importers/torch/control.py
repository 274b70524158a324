"""Higher-order operators of torch: regions converted in place, branches, loops and scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule, Node

from relax2xla import op as R
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers._loops import NotInvariant, Stack, element, scan, while_loop
from relax2xla.importers.torch.context import dims_of
from relax2xla.ir import Expr, If, SeqExpr, Tuple, Var

if TYPE_CHECKING:
    from relax2xla.importers.torch.export import Importer


def convert(importer: Importer, node: Node, op: Any) -> Any:
    """The value of a higher-order operator; :class:`Unsupported` for one without a rule."""
    name = op.name()
    rule = RULES.get(name)
    if rule is None:
        raise Unsupported(f"the higher-order operator {name} has no converter")
    args = [importer.read(a) for a in node.args]
    kwargs = {k: importer.read(v) for k, v in node.kwargs.items()}
    try:
        return rule(importer, *args, **kwargs)
    except NotInvariant as e:
        raise Unsupported(str(e)) from e


def _values(importer: Importer, values: Sequence[Any]) -> list[Expr]:
    """Operands of a loop or of a branch as tensors; numbers are not carried."""
    for v in values:
        if not isinstance(v, Expr):
            raise Unsupported(
                f"it carries the number {v}", "carry a tensor, such as torch.tensor(0)"
            )
    return [importer.ctx.emit(v) if not isinstance(v, Var) else v for v in values]


def _inline(importer: Importer, *args: Any) -> Any:
    """Regions that only concern gradients (set_grad_enabled, inference_mode, checkpoints)."""
    at = next(i for i, a in enumerate(args) if isinstance(a, GraphModule))
    return importer.region(args[at], args[at + 1 :])


def _cond(
    importer: Importer, pred: Any, true: GraphModule, false: GraphModule, operands: Sequence[Any]
) -> Any:
    """``torch.cond``: an ``If``, whose branches see the values around them."""
    if isinstance(pred, bool):
        return importer.region(true if pred else false, operands)
    if not isinstance(pred, Expr):
        pred = importer.ctx.tensor(pred, "bool")
    pred = importer.ctx.emit(importer.ctx.cast(importer.ctx.reshape(pred, ()), "bool"))
    bb = importer.builder
    branches: list[Expr] = []
    count = 0
    for module in (true, false):
        bb.begin_scope()
        try:
            made = _values(importer, importer.region(module, operands))
            result = bb.emit(Tuple(made))
        finally:
            blocks = bb.end_scope()
        count = len(made)
        branches.append(SeqExpr(blocks, result))
    chosen = bb.emit(If(pred, branches[0], branches[1]))
    return [bb.emit(chosen[i]) for i in range(count)]


def _while(
    importer: Importer,
    cond: GraphModule,
    body: GraphModule,
    carried: Sequence[Any],
    extra: Sequence[Any] = (),
) -> Any:
    def test(values: Sequence[Expr]) -> Expr:
        (verdict,) = importer.region(cond, [*values, *extra])
        if not isinstance(verdict, Expr):
            verdict = importer.ctx.tensor(verdict, "bool")
        return importer.ctx.reshape(importer.ctx.cast(verdict, "bool"), ())

    def step(values: Sequence[Expr]) -> Sequence[Expr]:
        return _values(importer, importer.region(body, [*values, *extra]))

    return while_loop(importer.builder, test, step, _values(importer, carried))


def _scan(
    importer: Importer,
    combine: GraphModule,
    init: Sequence[Any],
    xs: Sequence[Any],
    extra: Sequence[Any] = (),
) -> Any:
    """``scan`` along the first axis: the last carried values, then the stacked rows."""
    start, sequence = _values(importer, init), _values(importer, xs)
    outputs = _results(combine) - len(start)

    def step(at: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        rows = [importer.ctx.emit(element(x, at, 0)) for x in sequence]
        made = _values(importer, importer.region(combine, [*values, *rows, *extra]))
        return made[: len(start)], made[len(start) :]

    length = dims_of(sequence[0])[0]
    last, stacked = scan(importer.builder, length, step, start, [Stack()] * outputs)
    return [*last, *stacked]


def _map(
    importer: Importer, function: GraphModule, xs: Sequence[Any], extra: Sequence[Any] = ()
) -> Any:
    return _scan(importer, function, (), xs, extra)


def _associative_scan(
    importer: Importer, combine: GraphModule, xs: Sequence[Any], extra: Sequence[Any] = ()
) -> Any:
    """Running results of an associative function along the first axis, one element after another.

    The order of the operations is not part of the operator's meaning.
    """
    sequence = _values(importer, xs)
    first = [importer.ctx.emit(R.strided_slice(x, [0], [0], [1])) for x in sequence]
    start = [importer.ctx.emit(R.squeeze(x, [0])) for x in first]
    length = dims_of(sequence[0])[0]

    def step(at: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        one = importer.ctx.tensor(1, "int64")
        rows = [importer.ctx.emit(element(x, R.add(at, one), 0)) for x in sequence]
        made = _values(importer, importer.region(combine, [*values, *rows, *extra]))
        return made, made

    stacks = [Stack()] * len(sequence)
    _, rest = scan(importer.builder, length - 1, step, start, stacks)
    return [R.concat([a, b], 0) for a, b in zip(first, rest, strict=True)]


def _results(module: GraphModule) -> int:
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    fields: Any = output.args[0]
    return len(fields)


RULES: dict[str, Callable[..., Any]] = {
    "wrap_with_set_grad_enabled": _inline,
    "inference_mode": _inline,
    "invoke_subgraph": lambda importer, module, _name, *args: importer.region(module, args),
    "tag_activation_checkpoint": lambda importer, module, *args, **_: importer.region(module, args),
    "cond": _cond,
    "while_loop": _while,
    "scan": _scan,
    "map_impl": _map,
    "associative_scan": _associative_scan,
}

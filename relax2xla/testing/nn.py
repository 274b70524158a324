"""Parts of networks that are computed again for the gradient, under TVM's names.

Each calls a function on expressions, and marks its arguments and its results for
``relax2xla.transform.Gradient``: the arguments are kept, the rest is computed again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.errors import BuilderError
from relax2xla.ir import Expr, Var


def emit(expr: Expr, name_hint: str = "") -> Var:
    """Bind ``expr`` in the BlockBuilder whose function is open."""
    return _builder().emit(expr, name_hint)


def checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``func(*args, **kwargs)``, whose insides the gradient computes again.

    Expressions among the arguments are kept. Gives what ``func`` gives, a list where that is a
    list or a tuple.
    """
    start = op.grad.start_checkpoint
    args = tuple(start(v) if isinstance(v, Expr) else v for v in args)
    kwargs = {k: start(v) if isinstance(v, Expr) else v for k, v in kwargs.items()}
    return _ended(func(*args, **kwargs), op.grad.end_checkpoint)


def emit_checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As :func:`checkpoint`, each mark bound to a variable: ``NAME_scp`` of what is kept,
    ``NAME_ecp`` of a result.
    """
    builder = _builder()

    def start(value: Any) -> Any:
        if not isinstance(value, Var):
            return value
        return builder.emit(op.grad.start_checkpoint(value), f"{value.name_hint}_scp")

    def end(value: Expr) -> Var:
        var = value if isinstance(value, Var) else builder.emit(value)
        return builder.emit(op.grad.end_checkpoint(var), f"{var.name_hint}_ecp")

    given = {k: start(v) for k, v in kwargs.items()}
    return _ended(func(*map(start, args), **given), end)


def emit_checkpoint_sequential(
    functions: Sequence[Callable[..., Any]],
    segments: int | Sequence[int],
    input: Var,
    checkpoint_last: bool = False,
) -> Var:
    """The functions one after another, in segments of which each is as :func:`emit_checkpoint`.

    segments: into how many parts, or the index of each one's first function.
    checkpoint_last: the last segment, too; else what it computes is kept.
    """
    count = len(functions)
    if isinstance(segments, int):
        starts = [*range(0, count, count // segments), count]
    else:
        starts = list(segments)
    if starts[-1] != count:
        starts.append(count)

    def segment(part: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for function in part:
                value = function(value)
            return value

        return run

    value: Any = input
    for i, (first, after) in enumerate(itertools.pairwise(starts)):
        run = segment(functions[first:after])
        last = i == len(starts) - 2 and not checkpoint_last
        value = run(value) if last else emit_checkpoint(run, value)
    return value if isinstance(value, Var) else emit(value)


def _ended(result: Any, end: Callable[[Expr], Expr]) -> Any:
    """The results of a part, marked."""
    if isinstance(result, list | tuple):
        values: Sequence[Any] = result
        return [end(v) if isinstance(v, Expr) else v for v in values]
    return end(result)


def _builder() -> BlockBuilder:
    found = BlockBuilder.current()
    if found is None:
        raise BuilderError("there is no open function; use this inside `with bb.function(...):`")
    return found

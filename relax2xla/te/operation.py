"""``te.placeholder``, ``te.compute``, ``te.extern``, axes and reductions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.script.prim_func.values import FUNCTIONS
from relax2xla.te.tensor import (
    ComputeOp,
    ExternOp,
    PlaceholderOp,
    ScanOp,
    Tensor,
)
from relax2xla.tir.buffer import Buffer, buffer_of
from relax2xla.tir.node import PrimExpr, StandsForExpr, writing
from relax2xla.tir.reduce import CommReducer, Reduce
from relax2xla.tir.reduce import comm_reducer as one_for_all
from relax2xla.tir.stmt import IterVar, Stmt


def as_size(value: Any) -> PrimExpr:
    """A size as an expression: a Python number is an int32, as everywhere in te."""
    if isinstance(value, PrimExpr | StandsForExpr):
        return tir.as_prim_expr(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"a size is an integer; got {value!r}, of type {type(value).__name__}")
    return tir.const(int(value), "int32" if -(2**31) <= int(value) < 2**31 else "int64")


def as_shape(shape: Any) -> tuple[PrimExpr, ...]:
    """A shape: one size, or several."""
    if isinstance(shape, PrimExpr | int):
        return (as_size(shape),)
    return tuple(map(as_size, shape))


def placeholder(shape: Any, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """A tensor that the function takes. ``dtype``: float32 if it is not given."""
    return PlaceholderOp(name, shape=as_shape(shape), dtype=str(dtype or "float32")).output(0)


def const(value: Any, dtype: str = "int32") -> PrimExpr:
    """A literal."""
    return tir.const(value, dtype)


class tag_scope:
    """Give a tag to what is computed within: ``with te.tag_scope(tag="conv"):``, or a decorator.

    Scopes do not nest: ValueError, also where a computation within says a tag of its own.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def __enter__(self) -> tag_scope:
        if _tag.get():
            raise ValueError(f"te.tag_scope({self.tag!r}) within that of {_tag.get()!r}")
        _tag.set(self.tag)
        return self

    def __exit__(self, *_: object) -> None:
        _tag.set("")

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with tag_scope(self.tag):
                return function(*args, **kwargs)

        return within


_tag: ContextVar[str] = ContextVar("tag", default="")


def _tagged(tag: str) -> str:
    """The tag of a computation: its own, or that of the scope."""
    if tag and _tag.get():
        raise ValueError(f"the tag {tag!r} within te.tag_scope({_tag.get()!r})")
    return tag or _tag.get()


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """The tensor (or the tuple of tensors) whose element at ``i, j ...`` is ``fcompute(i, j ...)``.

    shape: sizes; fcompute: takes one index an axis and gives a scalar expression, a reduction
    (``te.sum`` ...), or a sequence of such. Raises ValueError where it takes another number of
    indices, TVMError where a reduction is part of an expression.
    """
    sizes = as_shape(shape)
    names = _index_names(fcompute, len(sizes), varargs_names)
    axis = tuple(
        IterVar(_from_zero(size), tir.Var(n, size.dtype), "spatial")
        for n, size in zip(names, sizes, strict=True)
    )
    with writing():
        made = fcompute(*(a.var for a in axis))
    several = isinstance(made, tuple | list)
    body = tuple(map(_scalar, made if several else (made,)))
    tag = _tagged(tag)
    op = ComputeOp(name, tag, dict(attrs or {}), axis=axis, shape=sizes, body=_checked(body, name))
    return op.outputs if several and len(body) > 1 else op.output(0)


def _from_zero(size: PrimExpr) -> tir.Range:
    return tir.Range.from_min_extent(tir.as_dim(tir.const(0, size.dtype)), tir.as_dim(size))


def _index_names(
    fcompute: Callable[..., Any], ndim: int, varargs_names: Sequence[str] | None
) -> list[str]:
    """What the indices are called, by the parameters of ``fcompute``."""
    names: list[str] = []
    takes_more = False
    for p in inspect.signature(fcompute).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            takes_more = True
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty:
            names.append(p.name)
    if takes_more:
        more = ndim - len(names)
        extra = list(varargs_names or ())
        names += extra if varargs_names is not None else [f"i{i}" for i in range(more)]
    elif not names:
        names = [f"i{i}" for i in range(ndim)] if ndim else []
    if len(names) != ndim:
        raise ValueError(
            f"te.compute: the function takes {len(names)} indices, the shape has {ndim} axes"
        )
    return names


def _scalar(value: Any) -> PrimExpr:
    if isinstance(value, Tensor):
        if value.ndim:
            raise TypeError(
                f"te.compute: the function gives an element, not the tensor {value.name} "
                f"of {value.ndim} axes"
            )
        return value()
    if isinstance(value, PrimExpr | StandsForExpr):
        return tir.as_prim_expr(value)
    if isinstance(value, bool | int | float):
        return _literal(value)
    raise TypeError(
        f"te.compute: expected a scalar expression or a number; got {type(value).__name__}"
    )


def _literal(value: float) -> PrimExpr:
    if isinstance(value, bool):
        return tir.const(value)
    return tir.const(value, "int32" if isinstance(value, int) else "float32")


def _checked(body: tuple[PrimExpr, ...], name: str) -> tuple[PrimExpr, ...]:
    """TVMError where a reduction is not all that an element is."""
    first = body[0]
    for b in body:
        inner = tir.post_order(b)
        if any(isinstance(node, Reduce) and node is not b for node in inner):
            raise TVMError(
                f"te.compute {name!r}: a reduction must be the whole element; compute it as a "
                "tensor of its own, and use that in the expression"
            )
        if isinstance(b, Reduce) is not isinstance(first, Reduce):
            raise TVMError(f"te.compute {name!r}: all elements are reductions, or none is")
        if isinstance(b, Reduce) and isinstance(first, Reduce):
            if b.combiner is not first.combiner or b.source != first.source:
                raise TVMError(f"te.compute {name!r}: the results must be of one reduction")
    return body


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> IterVar:
    """An axis to reduce over: ``(begin, end)`` or a Range."""
    if isinstance(dom, tir.Range):
        first, extent = tir.as_prim_expr(dom.min), tir.as_prim_expr(dom.extent)
    else:
        begin, end = dom
        first, last = tir.match_dtypes(as_size(begin), as_size(end))
        extent = tir.as_prim_expr(tir.simplify(last - first), first.dtype)
    wide = extent.dtype if extent.dtype == "int64" else first.dtype
    span = tir.Range.from_min_extent(
        tir.as_dim(tir.cast(wide, first)), tir.as_dim(tir.cast(wide, extent))
    )
    return IterVar(span, tir.Var(name, wide), "reduce", thread_tag)


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """An axis of threads, such as "threadIdx.x", for attributes ``thread_extent``.

    A text alone is the tag. ValueError without one.
    """
    if isinstance(dom, str):
        dom, tag = None, dom
    if not tag:
        raise ValueError('te.thread_axis: say which threads, such as te.thread_axis("threadIdx.x")')
    return IterVar(dom, tir.Var(name or tag, "int32"), "thread", tag)


# -- step by step ----------------------------------------------------------------------------------
def scan(
    init: Any,
    update: Any,
    state_placeholder: Any,
    inputs: Sequence[Tensor] | None = None,
    name: str = "scan",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Any:
    """Tensors whose first axis is time: each step is computed from earlier ones.

    init: a tensor or a list, the first elements along time. update: the tensors whose element at a
    step is computed, by ``te.compute`` over the whole shape. state_placeholder: what stands for
    the result in ``update``, which reads it at earlier steps (``s[t - 1, i]``). inputs: what else
    is read; it is found without it.
    Raises ValueError where their numbers, ranks or dtypes differ, or the time of an update is not
    that of its state.
    """
    inits, updates, states = map(_tensors, (init, update, state_placeholder))
    if not len(inits) == len(updates) == len(states) or not states:
        raise ValueError(
            f"te.scan: {len(inits)} init, {len(updates)} update and {len(states)} "
            "state_placeholder; there is one of each for a state"
        )
    for first, step, state in zip(inits, updates, states, strict=True):
        ranks = {t.ndim for t in (first, step, state)}
        if len(ranks) != 1 or len({t.dtype for t in (first, step, state)}) != 1 or 0 in ranks:
            raise ValueError(
                f"te.scan: {first.name}, {step.name} and {state.name} are of one rank, at least "
                "1, and of one dtype"
            )
        whole = zip(step.shape, state.shape, strict=True)
        rest = zip(first.shape[1:], state.shape[1:], strict=True)
        if not all(tir.structural_equal(a, b) for a, b in (*whole, *rest)):
            raise ValueError(
                f"te.scan: the shape of {step.name} is that of {state.name}, and that of "
                f"{first.name} too but for the first axis"
            )
    begins, ends = [t.shape[0] for t in inits], [t.shape[0] for t in states]
    if not all(tir.structural_equal(x, xs[0]) for xs in (begins, ends) for x in xs):
        raise ValueError("te.scan: all states have the same first steps, and the same last one")
    low, high = tir.match_dtypes(begins[0], ends[0])
    span = tir.Range.from_min_extent(tir.as_dim(low), tir.as_dim(tir.simplify(high - low)))
    axis = IterVar(span, tir.Var(f"{name}.idx", high.dtype), "scan")
    op = ScanOp(
        name,
        _tagged(tag),
        dict(attrs or {}),
        scan_axis=axis,
        init=inits,
        update=updates,
        state_placeholder=states,
        given=tuple(inputs or ()),
    )
    return op.output(0) if len(states) == 1 else list(op.outputs)


def _tensors(value: Any) -> tuple[Tensor, ...]:
    return (value,) if isinstance(value, Tensor) else tuple(value)


# -- reductions ------------------------------------------------------------------------------------
def comm_reducer(
    fcombine: Callable[[Any, Any], Any],
    fidentity: Callable[..., Any],
    name: str = "reduce",
) -> Callable[..., Any]:
    """A reduction of one's own.

    fcombine: ``(x, y)`` to the combined value, or tuples of values to a tuple; it must be
    associative and commutative. fidentity: dtypes to the neutral values.
    The result is called as ``te.sum`` is: ``reducer(expr, axis, where=None, init=None)``; of values
    instead of an axis, ``te.max(x, y)``, it is their combination.
    """

    def of(source: Sequence[PrimExpr], several: bool) -> CommReducer:
        """The reducer of these values."""
        dtypes = [e.dtype for e in source]
        names = list(inspect.signature(fcombine).parameters)
        sides = [[f"{n}_{i}" if several else n for i in range(len(dtypes))] for n in names]
        if len(sides) != 2:
            raise ValueError(f"te.{name}: the reducer combines 2 values; it takes {len(sides)}")
        neutral: Any = fidentity(*dtypes)
        begins: Sequence[Any] = neutral if isinstance(neutral, tuple | list) else (neutral,)
        if len(begins) != len(dtypes):
            raise TVMError(f"te.{name}: the identity gives {len(begins)} values of {len(dtypes)}")

        def combined(*values: Any) -> Any:
            both = (values[: len(dtypes)], values[len(dtypes) :])
            return fcombine(*(both if several else (side[0] for side in both)))

        identity = [tir.as_prim_expr(e, d) for e, d in zip(begins, dtypes, strict=True)]
        return one_for_all(combined, identity, [n for side in sides for n in side], f"te.{name}")

    def reduce(expr: Any, axis: Any, where: Any = None, init: Any = None, *more: Any) -> Any:
        if isinstance(expr, Tensor):
            raise TypeError(
                f"te.{name} takes an element and the axes to reduce over; for a tensor use "
                f"topi.{name}"
            )
        if not isinstance(axis, IterVar | tuple | list):
            # Values side by side: te.max(x, 0.0).
            result = expr
            for value in (axis, where, init, *more):
                if value is not None:
                    with writing():
                        result = fcombine(result, value)
            return result
        axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
        if not axes or not all(isinstance(a, IterVar) for a in axes):
            raise TypeError(f"te.{name}: axis is what te.reduce_axis gives, or several of them")
        if isinstance(where, bool):
            raise TypeError(
                f"te.{name}: where= is {where}, not an expression: outside of the function of "
                "te.compute == compares how expressions are built. Write the condition inside of "
                "it, or tir.EQ(a, b)"
            )
        several = isinstance(expr, tuple | list)
        source = [_scalar(e) for e in (expr if several else (expr,))]
        condition = tir.const(True) if where is None else where
        starts = init if isinstance(init, tuple | list) else (() if init is None else (init,))
        if len(starts) not in (0, len(source)):
            raise ValueError(f"te.{name}: init has {len(starts)} values for {len(source)}")
        reducer = of(source, several)
        made = [Reduce(reducer, source, axes, condition, i, starts) for i in range(len(source))]
        return tuple(made) if several else made[0]

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"Reduce ``expr`` over ``axis`` by {name}; see :func:`comm_reducer`."
    return reduce


_least, _greatest = FUNCTIONS["min_value"], FUNCTIONS["max_value"]
sum = comm_reducer(lambda x, y: x + y, lambda t: tir.const(0, t), name="sum")
prod = comm_reducer(lambda x, y: x * y, lambda t: tir.const(1, t), name="prod")
max = comm_reducer(lambda x, y: tir.max(x, y), _least, name="max")
min = comm_reducer(lambda x, y: tir.min(x, y), _greatest, name="min")


# -- functions of one's own ------------------------------------------------------------------------
def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[..., Any],
    name: str = "extern",
    dtype: Any = None,
    in_buffers: Any = None,
    out_buffers: Any = None,
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Any:
    """Tensors that statements of one's own fill, such as a call of a packed function.

    shape: of the result, or a list of shapes; fcompute: ``(input buffers, output buffers)`` to a
    statement or a call expression; dtype: of the results, that of the inputs by default.
    Raises ValueError where the dtype cannot be told.
    """
    several = isinstance(shape, list | tuple) and any(isinstance(s, list | tuple) for s in shape)
    shapes = [as_shape(s) for s in shape] if several else [as_shape(shape)]
    dtypes = [dtype] * len(shapes) if isinstance(dtype, str) else list(dtype or ())
    if not dtypes and out_buffers is None:
        known = {t.dtype for t in inputs}
        if len(known) != 1:
            raise ValueError("te.extern: the dtype of the results cannot be told; say dtype=")
        dtypes = [known.pop()] * len(shapes)
    given = _listed(in_buffers) or [_anywhere(t.shape, t.dtype, t.name) for t in inputs]
    made = _listed(out_buffers) or [
        _anywhere(s, t, name) for s, t in zip(shapes, dtypes, strict=True)
    ]
    body = fcompute(given, made)
    if isinstance(body, PrimExpr):
        body = tir.Evaluate(body)
    if not isinstance(body, Stmt):
        raise ValueError(
            f"te.extern: the function gives a statement or an expression; got {type(body).__name__}"
        )
    op = ExternOp(
        name,
        _tagged(tag),
        dict(attrs or {}),
        given=tuple(inputs),
        input_buffers=tuple(given),
        output_buffers=tuple(made),
        body=body,
    )
    return op.output(0) if len(shapes) == 1 else list(op.outputs)


def _anywhere(shape: Sequence[PrimExpr], dtype: str, name: str) -> Buffer:
    """A buffer that may start anywhere in its memory: a packed function is told where."""
    start = tir.Var("elem_offset", "int32")
    return buffer_of([tir.as_dim(d) for d in shape], dtype, name, elem_offset=start)


def _listed(buffers: Any) -> list[Buffer]:
    if buffers is None:
        return []
    return [buffers] if isinstance(buffers, Buffer) else list(buffers)

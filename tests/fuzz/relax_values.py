"""Random Relax programs by numpy, in float64, as the judge.

A program is a graph of operators over a few arrays, some sizes of which are symbolic, with calls of
functions, conditions and tuples in it. numpy computes it twice, in the program's dtype and in
float64; what relax2xla gives may be as far from the second as numpy's own rounding is, some times.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.fuzz.elements import first_wrong, told
from tests.fuzz.target import Target, Wrong

# How many roundings of numpy's own, and of the largest value, a result may be off.
TIMES, UNITS = 16.0, 64.0
MOST, LARGE = 4096, 1e6  # elements of a value, and the size of its numbers


@dataclass(frozen=True)
class Value:
    """A value of the program: its expression, and what numpy makes of it (dtype, then float64)."""

    expr: Any
    own: Any
    exact: Any


class Scope(list[Value]):
    """The values at hand, and what makes new ones. ``choice``: a condition and what it is, outside
    of dataflow blocks, which hold none.
    """

    def __init__(self, builder: Any, choice: tuple[Any, bool] | None) -> None:
        super().__init__()
        self.builder, self.choice = builder, choice


def sizes(v: Value) -> tuple[Any, ...]:
    """The dimensions of a value; where they are not known, each is of its own."""
    dims = v.expr.struct_info.dims
    return tuple(object() for _ in v.own.shape) if dims is None else tuple(dims)


def unary(name: str, f: Callable[[Any], Any]) -> Callable[..., Any]:
    """An operator of one array."""

    def make(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
        return getattr(op, name)(x.expr), lambda a: f(a), (x,)

    return make


def binary(name: str, f: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """An operator of two arrays whose shapes broadcast."""

    def make(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
        fits = [v for v in values if _broadcasts(v.own.shape, x.own.shape)]
        y = draw.choice(fits)
        return getattr(op, name)(x.expr, y.expr), f, (x, y)

    return make


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(a, b))) <= MOST
    except ValueError:
        return False


def reduction(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction over some axes, kept or not."""

    def make(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
        if not x.own.ndim or not x.own.size:
            return None
        axes = sorted(draw.sample(range(x.own.ndim), draw.randint(1, x.own.ndim)))
        keep = draw.random() < 0.5
        made = getattr(op, name)(x.expr, axis=axes, keepdims=keep)
        return made, lambda a: f(a, axis=tuple(axes), keepdims=keep), (x,)

    return make


def _softmax(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    if not x.own.ndim:
        return None
    axis = draw.randrange(-x.own.ndim, x.own.ndim)

    def truth(a: Any) -> Any:
        if not a.size:
            return a
        e = np.exp(a - a.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)

    return op.nn.softmax(x.expr, axis=axis), truth, (x,)


def _permute(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    order = list(range(x.own.ndim))
    draw.shuffle(order)
    return op.permute_dims(x.expr, axes=order), lambda a: np.transpose(a, order), (x,)


def _reshape(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    how = draw.choice(("flat", "split", "one"))
    if how == "flat":
        if x.expr.struct_info.dims is None:  # a size that follows from others needs those
            return None
        return op.reshape(x.expr, (-1,)), lambda a: a.reshape(-1), (x,)
    if how == "one" or not x.own.ndim or x.own.shape[0] % 2:
        at = draw.randint(0, x.own.ndim)
        return op.expand_dims(x.expr, axis=at), lambda a: np.expand_dims(a, at), (x,)
    halves = (x.own.shape[0] // 2, 2, *x.own.shape[1:])
    if any(not isinstance(d, int) for d in sizes(x)):
        return None
    return op.reshape(x.expr, halves), lambda a: a.reshape(halves), (x,)


def _slice(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    if not x.own.ndim:
        return None
    axis = draw.randrange(x.own.ndim)
    begin, end = draw.randint(-6, 6), draw.randint(-6, 6)
    step = draw.choice((1, 1, 2, 3, -1, -2))
    if not isinstance(sizes(x)[axis], int):
        begin, end, step = 0, draw.choice((1, 2**31)), 1
    made = op.strided_slice(x.expr, axes=[axis], begin=[begin], end=[end], strides=[step])

    def truth(a: Any) -> Any:
        return a[(slice(None),) * axis + (slice(begin, end, step),)]

    return made, truth, (x,)


def _concat(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    if not x.own.ndim:
        return None
    axis = draw.randrange(x.own.ndim)

    def rest(v: Value) -> tuple[Any, ...]:
        dims = sizes(v)
        return (*(str(d) for d in dims[:axis]), *(str(d) for d in dims[axis + 1 :]))

    fits = [v for v in values if v.own.ndim == x.own.ndim and rest(v) == rest(x)]
    others = tuple(draw.choice(fits) for _ in range(draw.randint(0, 2)))
    if sum(v.own.size for v in (x, *others)) > MOST:
        return None
    made = op.concat(tuple(v.expr for v in (x, *others)), axis=axis)
    return made, lambda *a: np.concatenate(a, axis=axis), (x, *others)


def _matmul(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    if not x.own.ndim:
        return None
    inner = str(sizes(x)[-1])

    def dims(v: Value) -> list[str]:
        return [str(d) for d in sizes(v)]

    fits = [
        v
        for v in values
        if v.own.ndim
        and dims(v)[-2 if v.own.ndim > 1 else -1] == inner
        and (v.own.ndim <= 2 or x.own.ndim <= 2)
    ]
    if not fits:
        return None
    y = draw.choice(fits)
    return op.matmul(x.expr, y.expr), np.matmul, (x, y)


def _where(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    fits = [v for v in values if v.own.shape == x.own.shape and _same_dims(v, x)]
    y, z = draw.choice(fits), draw.choice(fits)
    made = op.where(op.greater(x.expr, y.expr), x.expr, z.expr)
    # The judge decides as the program does, or a rounding would choose another value.
    return made, lambda a, b, c: np.where(a > b, a, c), (x, y, z)


def _same_dims(v: Value, x: Value) -> bool:
    return list(map(str, sizes(v))) == list(map(str, sizes(x)))


def _split(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    axes = [i for i, d in enumerate(sizes(x)) if isinstance(d, int) and d % 2 == 0]
    if not axes:
        return None
    axis, part = draw.choice(axes), draw.randrange(2)
    made = op.split(x.expr, 2, axis=axis)[part]
    return made, lambda a: np.split(a, 2, axis=axis)[part], (x,)


def _pad(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    if not x.own.ndim or x.own.size > 512:
        return None
    widths = [(draw.randint(0, 2), draw.randint(0, 2)) for _ in range(x.own.ndim)]
    value = draw.choice((0.0, 1.5, -2.0))
    flat = [w for pair in widths for w in pair]
    made = op.nn.pad(x.expr, flat, pad_mode="constant", pad_value=value)
    return made, lambda a: np.pad(a, widths, constant_values=value), (x,)


def _cumsum(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    if not x.own.ndim:
        return None
    axis = draw.randrange(x.own.ndim)
    return op.cumsum(x.expr, axis=axis), lambda a: np.cumsum(a, axis=axis, dtype=a.dtype), (x,)


def _flip(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    if not x.own.ndim:
        return None
    axis = draw.randrange(x.own.ndim)
    return op.flip(x.expr, axis=axis), lambda a: np.flip(a, axis), (x,)


def _take(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    if not x.own.ndim or not min(x.own.shape):
        return None
    from relax2xla import const

    axis = draw.randrange(x.own.ndim)
    if not isinstance(sizes(x)[axis], int):
        return None
    at = np.array([draw.randrange(x.own.shape[axis]) for _ in range(draw.randint(0, 3))], "int64")
    return op.take(x.expr, const(at), axis=axis), lambda a: np.take(a, at, axis=axis), (x,)


def _broadcast(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    dims = sizes(x)
    if any(type(d) is object for d in dims):
        return None
    shape = [draw.choice((2, 3)), *(draw.choice((2, 1)) if d == 1 else d for d in dims)]
    known = zip(shape[1:], x.own.shape, strict=True)
    real = [shape[0], *(s if isinstance(s, int) else n for s, n in known)]
    if int(np.prod(real)) > MOST:
        return None
    return op.broadcast_to(x.expr, shape), lambda a: np.broadcast_to(a, real), (x,)


def _called(draw: random.Random, op: Any, x: Any, values: Scope) -> Any:
    """A private function of one step, called."""
    from relax2xla import Function, GlobalVar, SeqExpr, Var

    inner = Var("v", x.expr.struct_info)
    expr, truth, _ = draw.choice(PLAIN)(draw, op, Value(inner, x.own, x.exact), values)
    function = Function([inner], SeqExpr([], expr))
    made = values.builder.add_func(values.builder.normalize(function), "step")
    assert isinstance(made, GlobalVar)
    return made(x.expr), truth, (x,)


def _chosen(draw: random.Random, op: Any, x: Any, values: Scope) -> Any:
    """One of two steps, by the program's condition."""
    from relax2xla import If, SeqExpr

    if values.choice is None:
        return None
    condition, taken = values.choice
    sides = [draw.choice(PLAIN)(draw, op, x, values) for _ in range(2)]
    branches = [SeqExpr([], side[0]) for side in sides]
    return If(condition, *branches), sides[not taken][1], (x,)


def _norm(draw: random.Random, op: Any, x: Any, values: Any) -> Any:
    if not x.own.ndim or not isinstance(sizes(x)[-1], int) or not x.own.shape[-1]:
        return None
    from relax2xla import const

    size = x.own.shape[-1]
    gamma = np.linspace(0.5, 1.5, size)
    beta = np.linspace(-1.0, 1.0, size)
    dtype = x.own.dtype

    def truth(a: Any) -> Any:
        centred = a - a.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + a.dtype.type(1e-3))
        return scaled * gamma.astype(dtype).astype(a.dtype) + beta.astype(dtype).astype(a.dtype)

    weights = (const(gamma.astype(dtype)), const(beta.astype(dtype)))
    return op.nn.layer_norm(x.expr, *weights, axes=-1, epsilon=1e-3), truth, (x,)


PLAIN: Final = (
    *(unary(n, getattr(np, n)) for n in ("tanh", "sin", "cos", "abs", "negative", "floor", "ceil")),
    unary("sigmoid", lambda a: 1 / (1 + np.exp(-a))),
    unary("square", np.square),
    unary("sign", lambda x: np.where(x != x, 0, np.sign(x)).astype(x.dtype)),
)
OPERATORS: Final = (
    *PLAIN,
    *(binary(n, getattr(np, n)) for n in ("add", "subtract", "multiply", "maximum", "minimum")),
    *(reduction(n, getattr(np, n)) for n in ("sum", "mean", "max", "min")),
    *(_softmax, _permute, _reshape, _slice, _concat, _matmul, _where, _split, _pad, _cumsum),
    *(_flip, _take, _broadcast, _norm, _called, _chosen, _chosen),
)


class RelaxValues(Target):
    """A Relax program and its arguments."""

    name, title, suffix = "relax-values", "random Relax programs against numpy", ".relax"
    is_right = True
    seconds = 60.0

    def make(self, draw: random.Random) -> Any:
        """A module, its arguments, and what numpy makes of them: own dtype, float64, scales."""
        with np.errstate(all="ignore"):
            return program(draw)

    def show(self, made: Any) -> bytes:
        return made[0].script().encode()

    def attempt(self, made: Any, folder: Path) -> str:
        import relax2xla
        from relax2xla.testing import to_numpy

        mod, inputs, own, exact, scale = made
        self.phase("build")
        machine = relax2xla.VirtualMachine(relax2xla.build(mod))
        self.phase("call")
        found = to_numpy(machine["main"](*inputs))
        if len(found) != len(own):
            raise Wrong(f"{len(found)} results instead of {len(own)}")
        for i, (f, o, e) in enumerate(zip(found, own, exact, strict=True)):
            if f.shape != o.shape or f.dtype != o.dtype:
                raise Wrong(f"result {i} is {f.dtype}{f.shape} instead of {o.dtype}{o.shape}")
            if problem := off(f, o, e, scale):
                raise Wrong(f"result {i}: {problem}")
        return "same"


def off(found: Any, own: Any, exact: Any, scale: float) -> str:
    """How ``found`` is further from ``exact`` than rounding may take it; "" where it is not.

    own: what another implementation has in the same dtype. scale: the largest value on the way.
    """
    unit = float(np.finfo(own.dtype).eps)
    wide = found.astype(np.float64)
    near = np.abs(own.astype(np.float64) - exact)
    finite = np.isfinite(exact) & np.isfinite(own.astype(np.float64))
    bound = TIMES * np.where(finite, near, 0) + UNITS * unit * max(scale, 1.0)
    with np.errstate(all="ignore"):
        good = (np.abs(wide - exact) <= bound) | ~finite
    if good.all():
        return ""
    return f"{told(good, found, exact)} (numpy {own[first_wrong(good)]!r}, scale {scale:g})"


def program(draw: random.Random) -> Any:
    """A random program, with its values."""
    from relax2xla import BlockBuilder, TensorStructInfo, Var, op, tir

    rng = np.random.default_rng(draw.getrandbits(32))
    dtype = np.dtype(draw.choice(("float32", "float32", "float64")))
    n, size = tir.Var("n", "int64"), draw.choice((0, 1, 2, 5))
    builder = BlockBuilder()
    params, inputs = list[Any](), list[Any]()
    ranks = draw.choice(((2, 2), (3, 1, 2), (1, 0), (4, 2)))
    for i, rank in enumerate(ranks):
        dims = [draw.choice((1, 2, 2, 3, 4, 4, 0, n)) for _ in range(rank)]
        shape = [size if d is n else d for d in dims]
        params.append(Var(f"x{i}", TensorStructInfo(dims, dtype.name)))
        inputs.append(rng.uniform(-2, 2, shape).astype(dtype))
    choice = (Var("c", TensorStructInfo((), "bool")), draw.random() < 0.5)
    plain = draw.random() < 0.4
    values = Scope(builder, choice if plain else None)
    values += [Value(p, a, a.astype(np.float64)) for p, a in zip(params, inputs, strict=True)]
    params.append(choice[0])
    inputs.append(np.array(choice[1]))
    scale = 2.0
    with builder.function("main", params):
        with contextlib.nullcontext() if plain else builder.dataflow():
            for _ in range(draw.randint(1, 14)):
                x = draw.choice(values[-4:] if draw.random() < 0.7 else values)
                made = draw.choice(OPERATORS)(draw, op, x, values)
                if made is None:
                    continue
                expr, truth, of = made
                own = np.asarray(truth(*(v.own for v in of)))
                exact = np.asarray(truth(*(v.exact for v in of)))
                if own.size > MOST or not np.all(np.abs(own) < LARGE):
                    continue
                # What rounding decides (floor, sign, a choice) is no one's fault.
                if np.abs(own - exact).max(initial=0) > 1e-2 * max(scale, 1.0):
                    continue
                own = own.astype(dtype)
                values.append(Value(builder.emit(expr), own, exact))
                scale = max(scale, float(np.abs(exact).max(initial=0)))
            results = draw.sample(values, min(len(values), draw.randint(1, 4)))
            if values[-1] not in results:
                results.append(values[-1])
            outputs = [r.expr if plain else builder.emit_output(r.expr) for r in results]
        builder.emit_func_output(outputs)
    return builder.get(), inputs, [r.own for r in results], [r.exact for r in results], scale

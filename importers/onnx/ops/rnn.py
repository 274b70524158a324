"""ai.onnx: RNN, GRU and LSTM, in every direction and layout, with every activation.

The products of all inputs with the weights are one matmul before the loop; a step of the loop
multiplies the state alone. Semantics: the operator specifications of ONNX. Beyond the end of a
sequence the state stays and the output is zero.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    dims_of,
    dtype_of,
    like,
    ndim_of,
    scalar,
    static,
)
from relax2xla.importers.shared.recurrent import sweep
from relax2xla.ir import Constant, Expr, ShapeExpr

Activation = Callable[[Expr], Expr]
DIRECTIONS = ("forward", "reverse", "bidirectional")


# -- activations ---------------------------------------------------------------------------------
def _affine(x: Expr, a: float, b: float) -> Expr:
    return R.add(R.multiply(x, like(x, a)), like(x, b))


def _hard_sigmoid(x: Expr, a: float, b: float) -> Expr:
    return R.minimum(R.maximum(_affine(x, a, b), like(x, 0)), like(x, 1))


def _elu(x: Expr, a: float) -> Expr:
    grown = R.multiply(R.subtract(R.exp(x), like(x, 1)), like(x, a))
    return R.where(R.less(x, like(x, 0)), grown, x)


# Function of the value and of what it takes of activation_alpha and activation_beta, with the
# defaults of ONNX's operators of these names (None: there is none).
_ACTIVATIONS: dict[str, tuple[Callable[..., Expr], tuple[float | None, ...]]] = {
    "relu": (lambda x: R.nn.relu(x), ()),
    "tanh": (lambda x: R.tanh(x), ()),
    "sigmoid": (lambda x: R.sigmoid(x), ()),
    "softsign": (lambda x: R.divide(x, R.add(R.abs(x), like(x, 1))), ()),
    "softplus": (lambda x: R.log_add_exp(x, like(x, 0)), ()),
    "affine": (_affine, (1.0, 0.0)),
    "scaledtanh": (
        lambda x, a, b: R.multiply(R.tanh(R.multiply(x, like(x, b))), like(x, a)),
        (None, None),
    ),
    "hardsigmoid": (_hard_sigmoid, (0.2, 0.5)),
    "leakyrelu": (lambda x, a: R.nn.leakyrelu(x, a), (0.01,)),
    "thresholdedrelu": (
        lambda x, a: R.where(R.greater(x, like(x, a)), x, like(x, 0)),
        (1.0,),
    ),
    "elu": (_elu, (1.0,)),
}


def _activations(
    names: Sequence[str] | None,
    defaults: Sequence[str],
    directions: int,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
) -> list[list[Activation]]:
    """Activations of each direction; alphas and betas go to those that take them, in order."""
    given = list(names or [*defaults] * directions)
    if len(given) != len(defaults) * directions:
        raise ValueError(f"{len(given)} activations; expected {len(defaults) * directions}")
    scales = [list(alphas or ()), list(betas or ())]
    made: list[Activation] = []
    for name in given:
        rule, preset = _ACTIVATIONS[choice(name.lower(), _ACTIVATIONS, "activations")]
        values: list[float] = []
        for rest, standard in zip(scales, preset, strict=False):
            if rest:
                values.append(rest.pop(0))
            elif standard is None:
                raise ValueError(f"{name} needs activation_alpha and activation_beta")
            else:
                values.append(standard)
        # The third activation is of LSTM's cell, which ONNX Runtime does not clip.
        of_cell = len(defaults) == 3 and len(made) % 3 == 2
        made.append(_clipped(rule, values, None if of_cell else clip))
    each = len(defaults)
    return [made[i : i + each] for i in range(0, len(made), each)]


def _clipped(rule: Callable[..., Expr], values: Sequence[float], clip: float | None) -> Activation:
    def activation(x: Expr) -> Expr:
        if clip is not None:
            x = R.maximum(R.minimum(x, like(x, clip)), like(x, -clip))
        return rule(x, *values)

    return activation


# -- what the three share ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Weights:
    """One direction's: ``w`` (gates * h, in), ``r`` (gates * h, h), biases (gates * h), peepholes.

    ``bias`` of the input's product; ``state_bias`` of the state's.
    """

    w: Expr
    r: Expr
    bias: Expr | None
    state_bias: Expr | None
    peephole: Expr | None


# New states from: the input's part of all gates, the states, the weights.
Step = Callable[[Expr, Sequence[Expr], Weights], list[Expr]]


@dataclass(frozen=True, slots=True)
class Sequences:
    """The operands that RNN, GRU and LSTM have in common."""

    X: Expr
    W: Expr
    R: Expr
    B: Expr | None
    lens: Expr | None
    initial: Sequence[Expr | None]
    P: Expr | None
    direction: str
    hidden_size: int | None
    layout: int


def _entry(x: Expr, at: int) -> Expr:
    """``x[at]``."""
    if isinstance(x, Constant):
        return Constant(np.ascontiguousarray(x.data[at]))
    return R.squeeze(R.strided_slice(x, [0], [at], [at + 1]), [0])


def part(x: Expr, at: int, size: int, axis: int = -1) -> Expr:
    """Part ``at`` of parts of ``size`` along an axis."""
    axis %= ndim_of(x)
    if isinstance(x, Constant):
        index = [slice(None)] * x.data.ndim
        index[axis] = slice(at * size, (at + 1) * size)
        return Constant(np.ascontiguousarray(x.data[tuple(index)]))
    return R.strided_slice(x, [axis], [at * size], [(at + 1) * size])


def _recurrent(ctx: Context, s: Sequences, gates: int, steps: Callable[[int], Step]) -> list[Expr]:
    """Y and the last states. ``steps``: the step of each direction."""
    direction = choice(s.direction, DIRECTIONS, "direction")
    layout = choice(s.layout, (0, 1), "layout")
    h = static(dims_of(s.R)[-1], "the hidden size")
    if s.hidden_size not in (None, h):
        raise ValueError(f"hidden_size={s.hidden_size}, but R is for {h}")
    x = R.permute_dims(s.X, [1, 0, 2]) if layout else s.X
    batch = dims_of(x)[1]
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    if dims_of(s.W)[0] != len(reverse):
        raise ValueError(f"W is for {dims_of(s.W)[0]} directions; {direction} has {len(reverse)}")
    lens = None if s.lens is None else ctx.emit(R.astype(s.lens, "int64"))
    dtype = dtype_of(x)
    outputs: list[Expr] = []
    finals: list[list[Expr]] = [[] for _ in s.initial]
    for d, backwards in enumerate(reverse):
        both = None if s.B is None else _entry(s.B, d)
        weights = Weights(
            _entry(s.W, d),
            ctx.emit(R.permute_dims(_entry(s.R, d))),
            None if both is None else part(both, 0, gates * h),
            None if both is None else part(both, 1, gates * h),
            None if s.P is None else _entry(s.P, d),
        )
        projected = R.matmul(x, R.permute_dims(weights.w))
        if weights.bias is not None:
            projected = R.add(projected, weights.bias)
        projected = ctx.emit(projected)
        states: list[Expr] = []
        for initial in s.initial:
            if initial is None:
                states.append(R.zeros(ShapeExpr((batch, h)), dtype))
            else:
                first = R.permute_dims(initial, [1, 0, 2]) if layout else initial
                states.append(_entry(first, d))
        step = steps(d)

        def cell(
            row: Expr, values: Sequence[Expr], step: Step = step, weights: Weights = weights
        ) -> list[Expr]:
            return step(row, values, weights)

        y, last = sweep(ctx.builder, projected, states, cell, backwards, lens)
        outputs.append(R.expand_dims(y, [1]))
        for final, state in zip(finals, last, strict=True):
            final.append(R.expand_dims(state, [0]))
    y = outputs[0] if len(outputs) == 1 else R.concat(outputs, 1)
    ends = [f[0] if len(f) == 1 else R.concat(f, 0) for f in finals]
    if layout:
        y = R.permute_dims(y, [2, 0, 1, 3])
        ends = [R.permute_dims(e, [1, 0, 2]) for e in ends]
    return [y, *ends]


def _plus(a: Expr, b: Expr | None) -> Expr:
    return a if b is None else R.add(a, b)


# -- RNN -----------------------------------------------------------------------------------------
@onnx_op("RNN", since=7)
def rnn(
    ctx: Context,
    X: Expr,
    W: Expr,
    R: Expr,
    B: Expr | None = None,
    sequence_lens: Expr | None = None,
    initial_h: Expr | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> list[Expr]:
    """``Ht = f(Xt W' + Ht-1 R' + Wb + Rb)``."""
    s = Sequences(X, W, R, B, sequence_lens, [initial_h], None, direction, hidden_size, layout)
    count = 2 if direction == "bidirectional" else 1
    acts = _activations(activations, ["Tanh"], count, activation_alpha, activation_beta, clip)

    def steps(d: int) -> Step:
        (f,) = acts[d]

        def step(x: Expr, states: Sequence[Expr], w: Weights) -> list[Expr]:
            return [ctx.emit(f(_plus(_product(states[0], w, x), w.state_bias)))]

        return step

    return _recurrent(ctx, s, 1, steps)


def _product(h: Expr, w: Weights, x: Expr) -> Expr:
    """The input's part and the state's product with all gates."""
    return R.add(x, R.matmul(h, w.r))


# -- GRU -----------------------------------------------------------------------------------------
@onnx_op("GRU", since=7)
def gru(
    ctx: Context,
    X: Expr,
    W: Expr,
    R: Expr,
    B: Expr | None = None,
    sequence_lens: Expr | None = None,
    initial_h: Expr | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> list[Expr]:
    """Gates z (update), r (reset), h (hidden)."""
    s = Sequences(X, W, R, B, sequence_lens, [initial_h], None, direction, hidden_size, layout)
    count = 2 if direction == "bidirectional" else 1
    acts = _activations(
        activations, ["Sigmoid", "Tanh"], count, activation_alpha, activation_beta, clip
    )

    def steps(d: int) -> Step:
        f, g = acts[d]
        return lambda x, states, w: _gru_step(ctx, f, g, bool(linear_before_reset), x, states[0], w)

    return _recurrent(ctx, s, 3, steps)


def _gru_step(
    ctx: Context, f: Activation, g: Activation, linear: bool, x: Expr, h: Expr, w: Weights
) -> list[Expr]:
    size = static(dims_of(h)[-1], "the hidden size")
    bias = [None if w.state_bias is None else part(w.state_bias, i, size) for i in range(3)]
    of_input = [part(x, i, size) for i in range(3)]
    of_gates = ctx.emit(R.matmul(h, part(w.r, 0, 2 * size)))
    z = ctx.emit(f(_plus(R.add(of_input[0], part(of_gates, 0, size)), bias[0])))
    r = ctx.emit(f(_plus(R.add(of_input[1], part(of_gates, 1, size)), bias[1])))
    hidden = part(w.r, 2, size)
    if linear:
        inner = R.multiply(r, _plus(R.matmul(h, hidden), bias[2]))
    else:
        inner = _plus(R.matmul(R.multiply(r, h), hidden), bias[2])
    candidate = g(R.add(of_input[2], inner))
    one = scalar(1, dtype_of(h))
    return [ctx.emit(R.add(R.multiply(R.subtract(one, z), candidate), R.multiply(z, h)))]


# -- LSTM ----------------------------------------------------------------------------------------
@onnx_op("LSTM", since=7)
def lstm(
    ctx: Context,
    X: Expr,
    W: Expr,
    R: Expr,
    B: Expr | None = None,
    sequence_lens: Expr | None = None,
    initial_h: Expr | None = None,
    initial_c: Expr | None = None,
    P: Expr | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> list[Expr]:
    """Gates i, o, f, c; peepholes in the order i, o, f."""
    s = Sequences(
        X, W, R, B, sequence_lens, [initial_h, initial_c], P, direction, hidden_size, layout
    )
    count = 2 if direction == "bidirectional" else 1
    acts = _activations(
        activations, ["Sigmoid", "Tanh", "Tanh"], count, activation_alpha, activation_beta, clip
    )

    def steps(d: int) -> Step:
        return lambda x, states, w: _lstm_step(ctx, acts[d], bool(input_forget), x, states, w)

    return _recurrent(ctx, s, 4, steps)


def _lstm_step(
    ctx: Context,
    activations: Sequence[Activation],
    coupled: bool,
    x: Expr,
    states: Sequence[Expr],
    w: Weights,
) -> list[Expr]:
    f, g, out = activations
    h, c = states
    size = static(dims_of(h)[-1], "the hidden size")
    sums = ctx.emit(_plus(_product(h, w, x), w.state_bias))
    gates = [part(sums, i, size) for i in range(4)]

    def peep(gate: int, at: int, cell: Expr) -> Expr:
        if w.peephole is None:
            return gates[gate]
        return R.add(gates[gate], R.multiply(part(w.peephole, at, size), cell))

    i = ctx.emit(f(peep(0, 0, c)))
    forget = R.subtract(scalar(1, dtype_of(h)), i) if coupled else f(peep(2, 2, c))
    cell = ctx.emit(R.add(R.multiply(forget, c), R.multiply(i, g(gates[3]))))
    hidden = R.multiply(f(peep(1, 1, cell)), out(cell))
    return [ctx.emit(hidden), cell]


# -- opset 1 -------------------------------------------------------------------------------------
def _register_first(name: str, later: Callable[..., list[Expr]]) -> None:
    """Opset 1 says in an attribute whether the node has the output Y, which its outputs say too."""

    def first(
        ctx: Context, *inputs: Expr | None, output_sequence: int = 0, **attributes: Any
    ) -> list[Expr]:
        return later(ctx, *inputs, **attributes)

    signature = inspect.signature(later)
    parameters = [p for p in signature.parameters.values() if p.name != "layout"]
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters.append(inspect.Parameter("output_sequence", kind, default=0))
    first.__signature__ = signature.replace(parameters=parameters)
    onnx_op(name)(first)


for _name, _later in (("RNN", rnn), ("GRU", gru), ("LSTM", lstm)):
    _register_first(_name, _later)

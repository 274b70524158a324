"""ai.onnx: RNN, GRU and LSTM, in every direction and layout, with every activation.

What a step computes is in :mod:`relax2xla.importers.shared.recurrent`. Semantics: the operator
specifications of ONNX. Beyond the end of a sequence the state stays and the output is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relax2xla import op
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import dims_of, dtype_of, like, static
from relax2xla.importers.shared import activations as activation
from relax2xla.importers.shared.index import entry, joined, part
from relax2xla.importers.shared.recurrent import (
    Activation,
    State,
    gru_cell,
    lstm_cell,
    plain_cell,
    sweep,
)
from relax2xla.ir import Expr, ShapeExpr
from relax2xla.tir import Dim

DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}


# -- activations ---------------------------------------------------------------------------------
# Function of the value and of what it takes of activation_alpha and activation_beta, with the
# defaults of ONNX's operators of these names (None: there is none).
_ACTIVATIONS: dict[str, tuple[Callable[..., Expr], tuple[float | None, ...]]] = {
    "relu": (op.nn.relu, ()),
    "tanh": (op.tanh, ()),
    "sigmoid": (op.sigmoid, ()),
    "softsign": (activation.softsign, ()),
    "softplus": (activation.softplus, ()),
    "affine": (activation.affine, (1.0, 0.0)),
    "scaledtanh": (activation.scaled_tanh, (None, None)),
    "hardsigmoid": (activation.hard_sigmoid, (0.2, 0.5)),
    "leakyrelu": (op.nn.leakyrelu, (0.01,)),
    "thresholdedrelu": (activation.thresholded, (1.0,)),
    "elu": (activation.elu, (1.0,)),
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
    def clipped(x: Expr) -> Expr:
        if clip is not None:
            x = op.maximum(op.minimum(x, like(x, clip)), like(x, -clip))
        return rule(x, *values)

    return clipped


# -- cells ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Form:
    """What a cell does: ``linear`` and ``coupled`` are the attributes linear_before_reset and
    input_forget; ``peepholes``: of the gates i, f, o.
    """

    activations: Sequence[Activation]
    peepholes: Sequence[Expr]
    linear: bool
    coupled: bool


# New states from: the input's part of all gates, the states, the state's weights.
Step = Callable[[Context, Expr, Sequence[Expr], State, _Form], list[Expr]]


def _size(h: Expr) -> int:
    return static(dims_of(h)[-1], "the hidden size")


def _rnn(ctx: Context, x: Expr, states: Sequence[Expr], w: State, form: _Form) -> list[Expr]:
    return plain_cell(ctx.emit, x, states[0], w, form.activations[0])


def _gru(ctx: Context, x: Expr, states: Sequence[Expr], w: State, form: _Form) -> list[Expr]:
    """Gates z (update), r (reset), h (hidden)."""
    (h,), size = states, _size(states[0])
    z, r, n = (part(x, i, size) for i in range(3))
    # Behind the product, the reset gate leaves one for all gates.
    both, last = (
        State(part(w.weight, at, count), None if w.bias is None else part(w.bias, at, count))
        for at, count in ((0, 2 * size), (2, size))
    )
    of_gates = ctx.emit((w if form.linear else both).product(h))

    def hidden(reset: Expr) -> Expr:
        if form.linear:
            return op.multiply(reset, part(of_gates, 2, size))
        return last.product(op.multiply(reset, h))

    of_state = [part(of_gates, 1, size), part(of_gates, 0, size)]
    return gru_cell(ctx.emit, [r, z, n], of_state, h, hidden, form.activations)


def _lstm(ctx: Context, x: Expr, states: Sequence[Expr], w: State, form: _Form) -> list[Expr]:
    """Gates i, o, f, c."""
    h, c = states
    sums = ctx.emit(op.add(x, w.product(h)))
    i, o, f, g = (part(sums, k, _size(h)) for k in range(4))
    return lstm_cell(ctx.emit, [i, f, g, o], c, form.activations, form.peepholes, form.coupled)


# By operator: how many gates, its activations, its step.
_CELLS: dict[str, tuple[int, list[str], Step]] = {
    "RNN": (1, ["Tanh"], _rnn),
    "GRU": (3, ["Sigmoid", "Tanh"], _gru),
    "LSTM": (4, ["Sigmoid", "Tanh", "Tanh"], _lstm),
}


def _of_batch(ctx: Context, x: Expr, others: Sequence[Dim]) -> Expr:
    """``x`` (length, batch, size) with the batch of what comes beside it, where only that is known.

    Exporters write states and lengths as constants for the batch that they traced, and a symbolic
    batch beside them: no other one fits, which the call checks.
    """
    length, batch, size = dims_of(x)
    known = next((d for d in (batch, *others) if isinstance(d, int)), batch)
    return ctx.sized(x, [length, known, size])


# -- layers --------------------------------------------------------------------------------------
_OF_LSTM = "initial_c P input_forget"


@onnx_op("RNN", lacks=f"{_OF_LSTM} linear_before_reset layout")
@onnx_op("RNN", since=7, lacks=f"{_OF_LSTM} linear_before_reset output_sequence")
@onnx_op("GRU", lacks=f"{_OF_LSTM} layout")
@onnx_op("GRU", since=7, lacks=f"{_OF_LSTM} output_sequence")
@onnx_op("LSTM", lacks="linear_before_reset layout")
@onnx_op("LSTM", since=7, lacks="linear_before_reset output_sequence")
def recurrent(
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
    linear_before_reset: int = 0,
    output_sequence: int = 0,
) -> list[Expr]:
    """Y and the last states. Peepholes are in the order i, o, f.

    ``output_sequence`` says whether the node has the output Y, which its outputs say too.
    """
    gates, defaults, step = _CELLS[ctx.op]
    turns = DIRECTIONS[choice(direction, DIRECTIONS, "direction")]
    choice(layout, (0, 1), "layout")
    h = _size(R)
    if hidden_size not in (None, h):
        raise ValueError(f"hidden_size={hidden_size}, but R is for {h}")
    if dims_of(W)[0] != len(turns):
        raise ValueError(f"W is for {dims_of(W)[0]} directions; {direction} has {len(turns)}")
    acts = _activations(activations, defaults, len(turns), activation_alpha, activation_beta, clip)
    x = op.permute_dims(X, [1, 0, 2]) if layout else X
    initial = [initial_h, initial_c] if ctx.op == "LSTM" else [initial_h]
    fixed = [dims_of(s)[0 if layout else 1] for s in initial if s is not None]
    x = _of_batch(ctx, x, [*fixed, *(dims_of(sequence_lens) if sequence_lens is not None else ())])
    lens = None if sequence_lens is None else ctx.emit(op.astype(sequence_lens, "int64"))
    outputs: list[Expr] = []
    finals: list[list[Expr]] = [[] for _ in initial]
    for d, backwards in enumerate(turns):
        bias = None if B is None else entry(B, d)
        w = State(
            ctx.emit(op.permute_dims(entry(R, d))),
            None if bias is None else ctx.emit(part(bias, 1, gates * h)),
        )
        rows = op.matmul(x, op.permute_dims(entry(W, d)))
        if bias is not None:
            rows = op.add(rows, part(bias, 0, gates * h))
        states: list[Expr] = []
        for given in initial:
            if given is None:
                states.append(op.zeros(ShapeExpr((dims_of(x)[1], h)), dtype_of(x)))
            else:
                states.append(entry(op.permute_dims(given, [1, 0, 2]) if layout else given, d))
        peepholes = [] if P is None else [part(entry(P, d), k, h) for k in (0, 2, 1)]
        form = _Form(acts[d], peepholes, bool(linear_before_reset), bool(input_forget))

        def cell(row: Expr, values: Sequence[Expr], w: State = w, form: _Form = form) -> list[Expr]:
            return step(ctx, row, values, w, form)

        y, last = sweep(ctx.builder, ctx.emit(rows), states, cell, backwards, lens)
        outputs.append(op.expand_dims(y, [1]))
        for final, state in zip(finals, last, strict=True):
            final.append(op.expand_dims(state, [0]))
    y, ends = joined(outputs, 1), [joined(f) for f in finals]
    if layout:
        return [op.permute_dims(y, [2, 0, 1, 3]), *(op.permute_dims(e, [1, 0, 2]) for e in ends)]
    return [y, *ends]

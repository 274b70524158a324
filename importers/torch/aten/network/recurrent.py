"""Recurrent layers, as loops over sequences of any length (torch writes out a step each).

Weights of a layer's direction: (gates * h, in), (gates * h, h), with ``has_biases`` (gates * h)
twice, and for an LSTM with projections (out, h). The gates' order is torch's: i, f, g, o; r, z, n.
The products of all inputs with the weights are one matmul before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relax2xla import op as R
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import entry, joined
from relax2xla.importers.shared.recurrent import State, gru_cell, lstm_cell, plain_cell, sweep
from relax2xla.importers.torch.aten.random import dropout as dropped
from relax2xla.importers.torch.engine.context import Context, dims_of, ndim_of
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Expr

#: From the sums of the gates of an input and the states to the next states.
Step = Callable[[Context, Expr, Sequence[Expr], State], list[Expr]]


def _gates(ctx: Context, x: Expr, count: int) -> list[Expr]:
    parts = ctx.emit(R.split(x, count, axis=-1))
    return [ctx.emit(parts[i]) for i in range(count)]


def _lstm_step(ctx: Context, x: Expr, values: Sequence[Expr], state: State) -> list[Expr]:
    h, c = values
    return lstm_cell(ctx.emit, _gates(ctx, ctx.emit(R.add(x, state.product(h))), 4), c)


def _gru_step(ctx: Context, x: Expr, values: Sequence[Expr], state: State) -> list[Expr]:
    (h,) = values
    of_state = _gates(ctx, ctx.emit(state.product(h)), 3)
    return gru_cell(ctx.emit, _gates(ctx, x, 3), of_state, h, lambda r: R.multiply(r, of_state[2]))


def _plain_step(activation: Callable[[Expr], Expr]) -> Step:
    return lambda ctx, x, values, state: plain_cell(ctx.emit, x, values[0], state, activation)


def _layer(
    ctx: Context,
    step: Step,
    x: Expr,
    states: Sequence[Expr],
    weights: Sequence[Expr],
    has_biases: bool,
    backwards: bool = False,
) -> tuple[Expr, list[Expr]]:
    """One direction of a layer: (length, batch, out) and the last states."""
    own, other = (ctx.emit(R.permute_dims(w)) for w in weights[:2])
    biases = list(weights[2:4]) if has_biases else [None, None]
    rest = weights[4 if has_biases else 2 :]
    projection = ctx.emit(R.permute_dims(rest[0])) if rest else None
    rows = R.matmul(x, own)
    if biases[0] is not None:
        rows = R.add(rows, biases[0])
    state = State(other, biases[1])

    def cell(row: Expr, values: Sequence[Expr]) -> list[Expr]:
        h, *rest = step(ctx, row, values, state)
        return [h if projection is None else ctx.emit(R.matmul(h, projection)), *rest]

    return sweep(ctx.builder, ctx.emit(rows), states, cell, backwards)


def _recurrent(step: Step) -> Function:
    def convert(
        ctx: Context,
        input: Expr,
        hx: Expr | Sequence[Expr],
        params: Sequence[Expr],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Expr]:
        """The outputs of the last layer, and the last states (layers * directions, batch, ...)."""
        x, states = input, [hx] if isinstance(hx, Expr) else hx
        directions = [False, True] if bidirectional else [False]
        each = len(params) // (num_layers * len(directions))
        if batch_first:
            x = R.permute_dims(x, [1, 0, 2])
        finals: list[list[Expr]] = [[] for _ in states]
        for layer in range(num_layers):
            x = ctx.emit(x)
            outputs: list[Expr] = []
            for backwards in directions:
                at = layer * len(directions) + backwards
                begin = [entry(s, at) for s in states]
                weights = params[at * each : (at + 1) * each]
                y, last = _layer(ctx, step, x, begin, weights, has_biases, backwards)
                outputs.append(y)
                for final, value in zip(finals, last, strict=True):
                    final.append(R.expand_dims(value, [0]))
            x = joined(outputs, -1)
            if layer + 1 < num_layers:
                x = dropped(ctx, ctx.emit(x), dropout, train)
        if batch_first:
            x = R.permute_dims(x, [1, 0, 2])
        return [x, *(joined(f, 0) for f in finals)]

    return convert


aten("lstm.input")(_recurrent(_lstm_step))
aten("gru.input")(_recurrent(_gru_step))
aten("rnn_tanh.input")(_recurrent(_plain_step(R.tanh)))
aten("rnn_relu.input")(_recurrent(_plain_step(R.nn.relu)))

# ideep::rnn_kind of an LSTM.
LSTM_MODE = 2


@aten("mkldnn_rnn_layer")
def mkldnn_rnn_layer(
    ctx: Context,
    input: Expr,
    weight0: Expr,
    weight1: Expr,
    weight2: Expr,
    weight3: Expr,
    hx_: Expr,
    cx_: Expr,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> list[Expr | None]:
    """What torch makes of a direction of an LSTM for inference on the CPU; biases may be zeros."""
    whole = num_layers != 1 or bidirectional or batch_first
    if mode != LSTM_MODE or whole or batch_sizes or train or ndim_of(input) != 3:
        raise Unsupported("mkldnn_rnn_layer of other than one direction of an LSTM")
    if dims_of(weight1)[-1] != hidden_size:
        raise Unsupported(f"weights for {dims_of(weight1)[-1]} states, and {hidden_size} states")
    begin = [R.squeeze(s, [0]) for s in (hx_, cx_)]
    # Without biases, weight2 and weight3 are zeros.
    weights = [weight0, weight1, *((weight2, weight3) if has_biases else ())]
    y, last = _layer(ctx, _lstm_step, input, begin, weights, has_biases, reverse)
    return [y, *(R.expand_dims(s, [0]) for s in last), None]

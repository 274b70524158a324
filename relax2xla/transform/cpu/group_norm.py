"""ExpandGroupNorm: group normalisation with channels last, its factors laid out by channel.

The mean and the deviation of a group count for each of its channels. XLA takes that into the loop
over the elements, which then divides for each to find its group and runs without vectors: 0.46 ms
for 32 channels of 128x128 with an activation behind it, 0.11 ms where both are vectors over the
channels. Functions of their own make these vectors (:mod:`relax2xla.transform.cpu.apart`).
"""

from __future__ import annotations

import math

from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import Expr, Function, IRModule, TensorStructInfo, Var, const
from relax2xla.ir.op import call_attrs
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.apart import Apart, Bind, each_apart
from relax2xla.transform.cpu.convolutions.windows import op

_x, _gamma, _beta = wildcard(), wildcard(), wildcard()


@register(opt_level=2, stage="static", platform="cpu")
class ExpandGroupNorm(Pass):
    """Expand ``nn.group_norm`` with channels last, in float32, static shapes.

    Exact up to the order of the additions.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return each_apart(mod, "group_norm", _expand)


def _expand(func: Function, apart: Apart) -> Function:
    pattern = is_op("relax.nn.group_norm")(_x, _gamma, _beta)
    return rewrite(func, [Rule(pattern, lambda m: _expanded(m, apart))], inside=False)[0]


def _expanded(m: Match, apart: Apart) -> Expr | None:
    info, attrs = m[_x].struct_info_, call_attrs(m.call)
    if not isinstance(info, TensorStructInfo) or info.dtype != "float32":
        return None
    dims = [d for d in info.dims or () if isinstance(d, int)]
    rank, groups = len(dims), attrs["num_groups"]
    space = sorted(a % rank for a in attrs["axes"]) if rank == info.ndim else []
    last = bool(space) and attrs["channel_axis"] % rank == rank - 1
    if not last or space != list(range(1, rank - 1)) or 0 in dims or groups in (1, dims[-1]):
        return None
    batch, channels = dims[0], dims[-1]
    by_group, by_channel = (batch, groups, channels // groups), (batch, channels)
    count = const(math.prod(dims[1:-1]) * (channels // groups), "float32")
    beside = (batch, *[1] * (rank - 2), channels)

    def spread(total: Expr, bind: Bind) -> Expr:
        """The means of the groups, for each channel, of the sums of the channels."""
        summed = op("sum", bind("groups", op("reshape", total, by_group)), [2], True)
        mean = op("divide", bind("summed", summed), count)
        each = op("broadcast_to", bind("mean", mean), by_group)
        return op("reshape", bind("each", each), by_channel)

    def factor(params: list[Var], bind: Bind) -> Expr:
        """What the deviations and gamma multiply the channels by."""
        variance = bind("variance", spread(params[0], bind))
        safe = bind("safe", op("add", variance, const(attrs["epsilon"], "float32")))
        deviation = op("rsqrt", safe)
        return op("multiply", bind("rsqrt", deviation), params[1]) if params[1:] else deviation

    def vector(name: str, value: Expr) -> Var:
        return m.bind(name, op("reshape", m.bind(f"{name}s", value), beside))

    gamma = [m[_gamma]] if attrs["scale"] else []
    total = m.bind("total", op("sum", m[_x], space))
    mean = apart.call([total], lambda params, bind: spread(params[0], bind))
    centred = m.bind("centred", op("subtract", m[_x], vector("mean", mean)))
    squares = m.bind("squares", op("multiply", centred, centred))
    total = m.bind("variance", op("sum", squares, space))
    result = op("multiply", centred, vector("factor", apart.call([total, *gamma], factor)))
    return op("add", m.bind("scaled", result), m[_beta]) if attrs["center"] else result

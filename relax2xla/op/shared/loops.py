"""What lowerings with loops share: ``while`` over several values, gathers of rows by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relax2xla.ir.expr import Expr
from relax2xla.op.shared.lowering import (
    broadcast_to,
    compare,
    hlo,
    info_of,
    iota,
    outputs,
    reduce,
    region,
    scalar,
    select,
    shape_of,
    tensor_info,
)

State = Sequence[Expr]


def while_loop(
    start: State, test: Callable[..., Expr], body: Callable[..., Sequence[Expr]]
) -> list[Expr]:
    """Values that go through ``body`` as long as ``test`` holds; both take all of them.

    The bodies must use no value from outside: what they read is carried.
    """
    params = [(f"s{i}", info_of(x)) for i, x in enumerate(start)]
    return outputs(hlo("while", *start, region(params, test), region(params, body)))


def int32(value: int) -> Expr:
    """A 0-dimensional int32 constant."""
    return scalar(value, "int32")


def rows(x: Expr, index: Expr) -> Expr:
    """``result[b, k] = x[b, index[b, k]]`` for x (b, n, *s) and index (b, k), clamped."""
    shape = shape_of(x)
    return hlo(
        "gather",
        x,
        index,
        dimension_numbers={
            "offset_dims": tuple(range(2, len(shape))),
            "collapsed_slice_dims": (1,),
            "operand_batching_dims": (0,),
            "start_indices_batching_dims": (0,),
            "start_index_map": (1,),
            "index_vector_dim": 2,
        },
        slice_sizes=(1, 1, *shape[2:]),
    )


def stable_order(keys: Sequence[tuple[Expr, bool]]) -> Expr:
    """Positions (b, n), int32, that sort rows by several keys (value, descending), stably."""
    shape = shape_of(keys[0][0])
    infos = [info_of(k) for k, _ in keys]
    params = [
        (f"{side}{i}", tensor_info((), info.dtype)) for i, info in enumerate(infos) for side in "ab"
    ]
    params += [("i", tensor_info((), "int32")), ("j", tensor_info((), "int32"))]

    def before(*values: Expr) -> Expr:
        result: Expr | None = None
        for i in reversed(range(len(keys))):
            a, b = values[2 * i], values[2 * i + 1]
            ahead = compare(a, b, "GT" if keys[i][1] else "LT")
            if result is not None:
                ahead = hlo("or", ahead, hlo("and", compare(a, b, "EQ"), result))
            result = ahead
        assert result is not None
        return result

    position = iota(shape, 1, "int32")
    operands = [k for k, _ in keys]
    made = hlo("sort", *operands, position, region(params, before), dimension=1, is_stable=True)
    return outputs(made)[-1]


def count_true(mask: Expr) -> Expr:
    """The number of true elements of each row of (b, n), int32."""
    ones = hlo("convert", mask, out=tensor_info(shape_of(mask), "int32"))
    return reduce(ones, "add", [1])


def keep_or(mask: Expr, x: Expr, other: float) -> Expr:
    """``x`` where ``mask`` holds, else a number; ``mask`` (b, n) spreads over later axes."""
    shape = shape_of(x)
    wide = hlo(
        "broadcast_in_dim",
        mask,
        out=tensor_info(shape, "bool"),
        broadcast_dimensions=tuple(range(len(shape_of(mask)))),
    )
    return select(wide, x, broadcast_to(scalar(other, info_of(x).dtype), shape))

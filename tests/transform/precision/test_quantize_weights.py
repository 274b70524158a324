"""QuantizeWeights: which weights, how far from them, and what a machine runs then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.errors import TransformError
from relax2xla.ir import Constant, IRModule, TensorStructInfo, Tuple, Var, const
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.transform import QuantizeWeights

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(20, 72)).astype(np.float32)
WEIGHT = RNG.normal(size=(72, 50)).astype(np.float32)
FILTER = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
SHIFT = RNG.normal(size=(2, 50)).astype(np.float32)


def program() -> IRModule:
    """Rows of a table times a weight, plus something, and a convolution."""
    bb = BlockBuilder()
    ids, x = Var("ids", TensorStructInfo((2,), "int32")), Var("x", TensorStructInfo((1, 3, 5, 5)))
    with bb.function("main", [ids, x]):
        with bb.dataflow():
            rows = bb.emit(op.take(const(TABLE), ids, 0))
            y = bb.emit(op.add(op.matmul(rows, const(WEIGHT)), const(SHIFT)))
            z = bb.emit(op.nn.conv2d(x, const(FILTER)))
            out = bb.emit_output(Tuple([y, z]))
        bb.emit_func_output(out)
    return bb.get()


def rounded(weight: Any, bits: int, group: int) -> Any:
    """The weight that groups of integers give, group by group."""
    top = 2 ** (bits - 1) - 1
    flat = weight.reshape(len(weight), -1)
    made = np.zeros_like(flat)
    for i, row in enumerate(flat):
        for at in range(0, len(row), group):
            part = row[at : at + group]
            scale = np.float32(np.abs(part).max() / top)
            made[i, at : at + group] = np.rint(part / scale).clip(-top, top) * scale
    return made.reshape(weight.shape)


def held(mod: IRModule) -> dict[str, int]:
    """Bytes of constants by dtype."""
    found: dict[str, int] = {}
    for e in post_order_deep(mod["main"]):
        if isinstance(e, Constant):
            name = str(e.data.dtype)
            found[name] = found.get(name, 0) + e.data.nbytes
    return found


@pytest.mark.parametrize(("bits", "group"), [(8, 32), (4, 16)])
def test_results_are_those_of_the_rounded_weights(bits: int, group: int) -> None:
    made = QuantizeWeights(bits, group, least=64)(program())
    sizes = held(made)
    values = TABLE.size + WEIGHT.size + FILTER.size
    assert sizes["uint8" if bits == 4 else "int8"] < 1.3 * values * bits / 8
    main = rx.VirtualMachine(rx.build(made))["main"]
    ids, x = np.array([3, 7], np.int32), RNG.normal(size=(1, 3, 5, 5)).astype(np.float32)
    y, z = main(ids, x)
    table, weight, filters = (rounded(w, bits, group) for w in (TABLE, WEIGHT, FILTER))
    np.testing.assert_allclose(y, table[ids] @ weight + SHIFT, rtol=1e-4, atol=1e-4)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    want = np.einsum("chwij,ocij->ohw", windows, filters)
    np.testing.assert_allclose(np.asarray(z)[0], want, rtol=1e-4, atol=1e-4)


def test_what_is_small_or_no_weight_stays() -> None:
    mod = program()
    assert QuantizeWeights()(mod) is mod  # all of them are below 4096 elements
    left = held(QuantizeWeights(8, 32, least=100)(mod))["float32"]
    assert left >= SHIFT.nbytes


def test_settings_that_are_wrong() -> None:
    wrong: list[tuple[Any, Any]] = [(3, 32), (8.0, 32), (8, 3), (8, 0), (4, -2), (8, 32.0)]
    for bits, group in wrong:
        with pytest.raises(TransformError, match=f"bits are 8 or 4.*bits={bits}, group={group}"):
            QuantizeWeights(bits, group)
    bad = np.full((80, 80), np.inf, np.float32)
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((2, 80)))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(op.matmul(x, const(bad)))
        bb.emit_func_output(out)
    with pytest.raises(TransformError, match="not finite"):
        QuantizeWeights()(bb.get())


def test_a_group_of_whole_rows() -> None:
    """A wider one takes no more room."""
    rows = held(QuantizeWeights(8, 72, least=1)(program()))
    assert held(QuantizeWeights(8, 10**12, least=1)(program())) == rows


def test_copies_of_calls_stay() -> None:
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((2, 72)))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(op.matmul(x, const(WEIGHT)))
            out = bb.emit_output(bb.emit(y))
        bb.emit_func_output(out)
    assert held(QuantizeWeights(least=1)(bb.get()))["int8"] == 72 * 64

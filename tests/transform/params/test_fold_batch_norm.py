"""FoldBatchNorm: a bias before the normalisation goes into its shift."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.ir.rewrite import bindings_of
from relax2xla.testing import evaluate
from relax2xla.transform import FoldBatchNorm

RNG = np.random.default_rng(3)


def vector(*shape: int) -> rx.Expr:
    return rx.const(RNG.uniform(0.5, 1.5, shape or (4,)).astype("float32"))


def module(bias: tuple[int, ...], given: bool = False, twice: bool = False) -> rx.IRModule:
    """A convolution, what is added, and a batch norm, of which the mean is a result too.

    given: the bias is an argument; twice: others read the sum
    """
    x = rx.Var("x", rx.TensorStructInfo((2, 3, 5, 5)))
    added = rx.Var("b", rx.TensorStructInfo(bias))
    builder = rx.BlockBuilder()
    with builder.function("main", [x, added]):
        with builder.dataflow():
            made = builder.emit(R.nn.conv2d(x, vector(4, 3, 3, 3)))
            total = builder.emit(R.add(added if given else vector(*bias), made))
            norm = builder.emit(
                R.nn.batch_norm(
                    total, vector(), vector(), vector(), vector(), axis=1, training=False
                )
            )
            fields = [builder.emit(norm[i]) for i in range(2)]
            if twice:
                fields.append(total)
            out = builder.emit_output(rx.Tuple(fields))
        builder.emit_func_output(out)
    return builder.get()


def additions(mod: rx.IRModule) -> int:
    """How many values of the convolution's size are added up or multiplied."""
    calls = [b.value for b in bindings_of(mod["main"].body) if isinstance(b.value, rx.Call)]
    large = [c for c in calls if getattr(c.struct_info, "ndim", 0) == 4]
    return sum(getattr(c.op, "name", "") in ("relax.add", "relax.multiply") for c in large)


@pytest.mark.parametrize(
    ("bias", "given", "twice", "left"),
    [
        ((1, 4, 1, 1), False, False, 2),  # the scale of the weight, and the shift
        ((4, 1, 1), False, False, 2),
        ((1, 4, 1, 1), True, False, 3),
        ((1, 4, 1, 1), False, True, 3),
        ((1, 1, 1, 1), False, False, 3),
        ((1, 4, 3, 3), False, False, 3),
        ((2, 4, 1, 1), False, False, 3),
    ],
)
def test_a_bias(bias: tuple[int, ...], given: bool, twice: bool, left: int) -> None:
    mod = module(bias, given, twice)
    folded = FoldBatchNorm()(mod)
    assert additions(folded) == left
    inputs = [RNG.standard_normal(s).astype("float32") for s in ((2, 3, 5, 5), bias)]
    for made, wanted in zip(
        evaluate(folded["main"], inputs), evaluate(mod["main"], inputs), strict=True
    ):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)

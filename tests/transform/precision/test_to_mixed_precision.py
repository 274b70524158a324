"""ToMixedPrecision: what is computed in float16, and how far values move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import transform
from relax2xla.ir import Call, IRModule, Op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform import ToMixedPrecision
from tests.transform.programs import module, operators, same_values, tensor

RNG = np.random.default_rng(10)


def draw(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


def dtypes(mod: IRModule) -> dict[str, Any]:
    """The dtype that each operator of ``main`` gives, casts left out."""
    found = {}
    for b in bindings_of(mod["main"].body):
        if isinstance(b.value, Call) and isinstance(b.value.op, Op):
            name = b.value.op.name.removeprefix("relax.")
            if name != "astype":
                found[name] = getattr(b.value.struct_info, "dtype", None)
    return found


LAYERS = (
    "h = R.matmul(x, w)",
    "a = R.nn.relu(h)",
    "s = R.nn.softmax(a)",
    "q = R.matmul(s, v)",
    "r = R.add(q, R.const(0.5, 'float32'))",
    "p = R.reshape(r, R.shape([6]))",
    "out = R.sum(p)",
)
PARAMS = [tensor("x", 3, 4), tensor("w", 4, 5), tensor("v", 5, 2)]
ARGS = draw(3, 4), draw(4, 5), draw(5, 2)


@pytest.mark.parametrize("out_dtype", ["float32", "float16"])
def test_policies(out_dtype: str) -> None:
    mod = module(PARAMS, *LAYERS)
    new = same_values(mod, ToMixedPrecision(out_dtype), *ARGS, rtol=1e-2)
    have = dtypes(new)
    half = ["nn.relu", "add", "reshape"]
    assert {have[name] for name in half} == {"float16"}
    assert have["nn.softmax"] == have["sum"] == "float32"
    assert have["matmul"] == out_dtype
    # Weights once, before everything else; no cast of what is float16 already.
    assert operators(new)[:3] == ["astype"] * 3
    mixed = [b.value for b in bindings_of(new["main"].body)]
    assert all(
        v.args[0].struct_info != v.struct_info
        for v in mixed
        if isinstance(v, Call) and isinstance(v.op, Op) and v.op.name == "relax.astype"
    )


def test_outputs_keep_their_dtypes_and_other_blocks_stay() -> None:
    mod = module(
        [tensor("x", 2, 2), tensor("i", 2, dtype="int64")],
        "with R.dataflow():",
        "    h = R.matmul(x, x)",
        "    pair = (h, (i, h))",
        "    first = pair[1]",
        "    R.output(h, first)",
        "k = R.matmul(h, x)",
        "out = (k, first)",
        block=False,
    )
    x, i = draw(2, 2), np.array([1, 2])
    new = same_values(mod, ToMixedPrecision(), x, i, rtol=1e-2)
    last = new["main"].body.blocks[-1].bindings
    assert last[0].value is mod["main"].body.blocks[-1].bindings[0].value
    plain = module(PARAMS, *LAYERS[:1], result="h", block=False)
    assert ToMixedPrecision()(plain) is plain


def test_constants_out_of_range_stay() -> None:
    for value, dtype in ((1e3, "float16"), (1e5, "float32")):
        mod = module(
            PARAMS[:2], "h = R.matmul(x, w)", f"out = R.add(h, R.const({value}, 'float32'))"
        )
        new = same_values(mod, ToMixedPrecision(), *ARGS[:2], rtol=1e-2)
        assert dtypes(new)["add"] == dtype


def test_inputs_in_half_precision() -> None:
    body: Sequence[str] = (
        "before = R.exp(w)",
        "with R.dataflow():",
        "    h = R.matmul(x, w)",
        "    s = R.sum(w)",
        "    out = R.add(h, s)",
        "    R.output(out)",
    )
    mod = module(PARAMS[:2], *body, result="(out, before, w)", block=False)
    new = ToMixedPrecision(fp16_input_names=["w"])(mod)
    relax2xla.analysis.check_well_formed(new)
    x, w = ARGS[:2]
    have = relax2xla.VirtualMachine(relax2xla.build(new), relax2xla.cpu())["main"](
        x, w.astype("float16")
    )
    for got, want in zip(have, (x @ w + w.sum(), np.exp(w), w), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)


def test_wrap_param() -> None:
    mod = module(
        [tensor("x", 2, 3), tensor("w", 3, 2, dtype="float16")],
        "f = R.wrap_param(w, 'float32')",
        "out = R.matmul(x, f)",
    )
    new = same_values(mod, ToMixedPrecision(), draw(2, 3), draw(3, 2).astype("float16"), rtol=1e-2)
    assert operators(new) == ["astype", "matmul"]


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="out_dtype"):
        ToMixedPrecision("float64")
    with pytest.raises(TypeError, match="list of names"):
        ToMixedPrecision(fp16_input_names="w")
    assert isinstance(ToMixedPrecision(), transform.Pass)

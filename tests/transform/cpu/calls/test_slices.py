"""CallSlices: which slices become a call, and that programs compute what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels import slices
from relax2xla.kernels.slices import Joined
from relax2xla.runtime.compiler import has_compiler
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls import slices as call_slices
from relax2xla.transform.cpu.calls.slices import CallSlices
from tests.transform.cpu import composites

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

RNG = np.random.default_rng(3)
SHAPE = (2, 7, 3, 4, 12)
Body = Callable[[rx.Expr], rx.Expr]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their size and the processor."""
    monkeypatch.setattr(call_slices, "pays", lambda call: True)


def module(body: Body, shape: tuple[Any, ...] = SHAPE, dtype: str = "float32") -> rx.IRModule:
    made = composites.of_params(body, [rx.Var("x", rx.TensorStructInfo(shape, dtype))])
    return rx.transform.Normalize()(made)


def calls(mod: rx.IRModule) -> list[dict[str, Any]]:
    values = [b.value for b in bindings_of(CallSlices()(mod)["main"].body)]
    return [
        dict(call_attrs(v)["composite_attributes"])
        for v in values
        if is_op(v, "relax.stablehlo.composite")
    ]


def under(x: rx.Expr, begin: int, end: int, step: int = 1, groups: int = 1) -> rx.Expr:
    n, _, height, width, channels = x.struct_info.dims
    made = R.strided_slice(x, [1], [begin], [end], [step])
    shape = (n, len(range(begin, end, step)), height, width, groups, channels // groups)
    return R.reshape(made, shape)


def padded(x: rx.Expr, before: int, behind: int, value: float = 0.0) -> rx.Expr:
    return R.nn.pad(x, (0, 0, before, behind, *[0] * 6), pad_value=value)


BODIES: dict[str, tuple[Body, Joined]] = {
    "side by side": (
        lambda x: R.concat([under(x, k, k + 5) for k in range(3)], axis=-1),
        Joined(SHAPE, 3, 5),
    ),
    "between zeros": (
        lambda x: (lambda y: R.concat([under(y, k, k + 7) for k in range(3)], axis=5))(
            padded(x, 1, 1)
        ),
        Joined(SHAPE, 3, 7, before=1),
    ),
    "steps, gaps, groups": (
        lambda x: (lambda y: R.concat([under(y, k, k + 5, 2, 3) for k in (0, 3)], axis=-1))(
            padded(x, 2, 0)
        ),
        Joined(SHAPE, 2, 3, 2, 3, 2, 3),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_joined_slices_are_a_call(name: str) -> None:
    body, call = BODIES[name]
    mod = module(body)
    assert calls(mod) == [call.attributes]
    x = RNG.standard_normal(SHAPE, "float32")
    plain, made = (
        np.asarray(rx.VirtualMachine(rx.build(m, "cpu"))["main"](x))
        for m in (mod, CallSlices()(mod))
    )
    np.testing.assert_array_equal(plain, evaluate(mod["main"], [x]))
    np.testing.assert_array_equal(made, plain)


OTHERS: dict[str, Body] = {
    # The first slice is not the volume's: nothing is cut off here.
    "that begin later": lambda x: R.concat([under(x, k, k + 2) for k in (1, 2)], axis=-1),
    "at other distances": lambda x: R.concat([under(x, k, k + 2) for k in (0, 1, 3)], axis=-1),
    "of other steps": lambda x: R.concat([under(x, 0, 3, 2), under(x, 1, 3)], axis=-1),
    "backwards": lambda x: R.concat([under(x, k, k + 2) for k in (2, 1, 0)], axis=-1),
    "along another axis": lambda x: R.concat([under(x, k, k + 2) for k in (0, 1)], axis=4),
    "between other numbers": lambda x: (
        lambda y: R.concat([under(y, k, k + 8) for k in (0, 1)], axis=-1)
    )(padded(x, 1, 1, value=1.0)),
    "of several": lambda x: R.concat([under(x, 0, 3), under(R.exp(x), 1, 4)], axis=-1),
    "that are computed": lambda x: R.concat([under(x, 0, 3), R.exp(under(x, 1, 4))], axis=-1),
    "of rows": lambda x: R.concat(
        [
            R.reshape(R.strided_slice(x, [2], [k], [k + 2], [1]), (2, 7, 2, 4, 1, 12))
            for k in (0, 1)
        ],
        axis=-1,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_or_are_the_same(name: str) -> None:
    mod = module(OTHERS[name])
    made = CallSlices()(mod)
    if name == "between other numbers":  # these are slices of what lies between them
        assert calls(mod) == [Joined((2, 9, 3, 4, 12), 2, 8).attributes]
    else:
        assert made is mod


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_other_dtypes_stay(dtype: str) -> None:
    mod = module(BODIES["side by side"][0], dtype=dtype)
    assert CallSlices()(mod) is mod


def test_without_a_compiler_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_slices, "may_call", lambda: False)
    mod = module(BODIES["side by side"][0])
    assert CallSlices()(mod) is mod


def test_several_devices_and_other_platforms() -> None:
    info = CallSlices().info
    assert info.is_for("cpu", several=False)
    assert not info.is_for("cpu", several=True)
    assert not info.is_for("cuda", several=False)


@pytest.mark.parametrize(("pixels", "paid"), [((2, 4, 4), False), ((8, 14, 14), True)])
def test_which_pay(pixels: tuple[int, int, int], paid: bool, monkeypatch: Any) -> None:
    monkeypatch.undo()
    deep, height, width = pixels
    call = Joined((1, deep, height, width, 32), 3, deep, before=1)
    monkeypatch.setattr(slices, "is_measured", lambda: True)
    assert slices.pays(call) is paid

"""CallTransposes: what becomes one call, what does not, and that all computes what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.frontend.torch import from_exported_program
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels.transposes import Transpose, pays
from relax2xla.runtime.compiler import has_compiler
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls import transposes as call_transposes
from relax2xla.transform.cpu.calls.norms import CallNorms
from relax2xla.transform.cpu.calls.transposes import CallTransposes
from tests.transform.cpu import composites

pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
    pytest.mark.usefixtures("quickly_compiled"),
]

T = rx.TensorStructInfo
RNG = np.random.default_rng(3)
SHAPE = (2, 16, 5, 6)
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
Body = Callable[[rx.Expr], rx.Expr]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their size and the processor, calls take the place of transpositions between calls.

    Beside loops those stay that are read or computed by some.
    """
    monkeypatch.setattr(
        call_transposes, "pays", lambda call, computed, read: not computed and not read
    )


def module(body: Body, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> rx.IRModule:
    """``main`` gives what ``body`` makes; each operator has a binding."""
    made = composites.of_params(body, [rx.Var("x", T(shape, dtype))])
    return rx.transform.Normalize()(made)


def orders(mod: rx.IRModule) -> list[list[int]]:
    """What the composites in ``main`` for transpositions make of axes."""
    main = mod["main"]
    assert isinstance(main, rx.Function)
    values = [b.value for b in bindings_of(main.body) if isinstance(b.value, rx.Call)]
    calls = [call_attrs(v) for v in values if is_op(v, "relax.stablehlo.composite")]
    found = [c["composite_attributes"]["order"] for c in calls if "transposes" in c["name"]]
    return [list(order) for order in found]


def norm(x: rx.Expr, size: int) -> rx.Expr:
    """What becomes a call."""
    return R.nn.rms_norm(x, rx.const(np.ones(size, "float32")), [-1])


def convolution(x: rx.Expr) -> rx.Expr:
    weight = rx.const(RNG.standard_normal((3, 3, 16, 16), "float32"))
    return R.nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="HWIO")


def last(x: rx.Expr) -> rx.Expr:
    return R.permute_dims(x, LAST)


def twice(x: rx.Expr) -> rx.Expr:
    return R.add(x, x)


def patches(x: rx.Expr) -> rx.Expr:
    """A row for the two pixels at a time that are three apart, with channels last."""
    apart = R.reshape(x, (2, 16, 5, 2, 3))
    return R.reshape(R.permute_dims(apart, [0, 2, 4, 3, 1]), (30, 32))


CALLS: dict[str, tuple[Body, list[list[int]]]] = {
    "argument and result": (last, [LAST]),
    "all axes turned around": (R.permute_dims, [[3, 2, 1, 0]]),
    "counted from the end": (lambda x: R.permute_dims(x, [0, -2, -1, 1]), [LAST]),
    "before a convolution": (lambda x: convolution(last(x)), [LAST]),
    "behind it": (lambda x: R.permute_dims(convolution(last(x)), FIRST), [LAST, FIRST]),
    "through reshapes": (
        lambda x: R.reshape(R.permute_dims(R.reshape(x, (2, 16, 30)), [0, 2, 1]), (60, 16)),
        [[0, 2, 1]],
    ),
    "what is no matrix, for a product": (
        lambda x: R.matmul(patches(x), rx.const(RNG.standard_normal((32, 7), "float32"))),
        [[0, 2, 4, 3, 1]],
    ),
    "one of several results": (lambda x: rx.Tuple([last(x), twice(x)]), [LAST]),
}


@pytest.mark.parametrize(("body", "wanted"), CALLS.values(), ids=CALLS)
def test_between_arguments_calls_and_results(body: Body, wanted: list[list[int]]) -> None:
    mod = module(body)
    made = CallTransposes()(mod)
    assert orders(made) == wanted
    assert CallTransposes()(made) is made
    x = RNG.standard_normal(SHAPE, "float32")
    expected = evaluate(mod, [x])
    run = rx.VirtualMachine(rx.build(mod, "cpu"))["main"]
    for got in (evaluate(made, [x]), run(x)):
        for one, other in zip(_several(got), _several(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def _several(value: object) -> Sequence[np.ndarray]:
    return list(value) if isinstance(value, list | tuple) else [np.asarray(value)]


def test_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relax2xla.transform.cpu.calls.norms.pays", lambda call: True)
    shape = (4, 16, 20)
    mod = module(lambda x: norm(R.permute_dims(norm(x, 20), [0, 2, 1]), 16), shape)
    assert orders(CallTransposes()(mod)) == []
    made = CallTransposes()(CallNorms()(mod))
    assert orders(made) == [[0, 2, 1]]
    x = RNG.standard_normal(shape, "float32")
    np.testing.assert_allclose(evaluate(made, [x]), evaluate(mod, [x]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_other_numbers_of_four_bytes(dtype: str) -> None:
    mod = module(last, dtype=dtype)
    assert orders(CallTransposes()(mod)) == [LAST]
    x = RNG.integers(0, 1 << 30, SHAPE).astype(dtype)
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)
    np.testing.assert_array_equal(np.asarray(got), x.transpose(LAST))


OTHERS: dict[str, Body] = {
    "the last axis stays": lambda x: R.permute_dims(x, [1, 0, 2, 3]),
    "nothing moves": lambda x: R.permute_dims(x, [0, 1, 2, 3]),
    "of size one": lambda x: R.permute_dims(R.reshape(x, (960, 1)), [1, 0]),
    "float16": lambda x: last(R.astype(x, "float16")),
    "for a product": lambda x: R.matmul(
        R.permute_dims(x, [0, 1, 3, 2]), rx.const(RNG.standard_normal((5, 7), "float32"))
    ),
    "for a product, through a reshape": lambda x: R.matmul(
        R.reshape(last(x), (60, 16)), rx.const(RNG.standard_normal((16, 7), "float32"))
    ),
    "of a product": lambda x: last(R.matmul(x, rx.const(np.ones((6, 6), "float32")))),
    "for a sum": lambda x: R.sum(last(x), [1]),
    "of a sum": lambda x: R.permute_dims(R.sum(x, [1]), [0, 2, 1]),
    "for another one": lambda x: R.permute_dims(last(x), [3, 0, 1, 2]),
    "cut": lambda x: R.strided_slice(last(x), [0], [0], [1]),
    "of a loop": lambda x: last(twice(x)),
    "for a loop": lambda x: twice(last(x)),
    "of a constant": lambda x: rx.Tuple([x, last(rx.const(np.ones(SHAPE, "float32")))]),
}


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_others_stay(body: Body) -> None:
    mod = module(body)
    assert CallTransposes()(mod) is mod


def test_loops_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told whether a loop computes the operand, and whether loops alone read the result."""
    seen: list[tuple[bool, bool]] = []
    monkeypatch.setattr(call_transposes, "pays", lambda call, *beside: seen.append(beside) or True)
    bodies: list[Body] = [
        *(last, lambda x: last(twice(x)), lambda x: twice(last(x))),
        lambda x: twice(last(R.nn.relu(x))),
    ]
    for body in bodies:
        mod = module(body)
        made = CallTransposes()(mod)
        assert orders(made) == [LAST]
        x = RNG.standard_normal(SHAPE, "float32")
        np.testing.assert_allclose(evaluate(made, [x]), evaluate(mod, [x]))
    assert seen == [(False, False), (True, False), (False, True), (True, True)]


READERS: dict[str, tuple[Body, Body, bool]] = {
    "a call and a loop": (convolution, twice, True),
    "a call and a product": (
        *(convolution, lambda x: R.matmul(x, rx.const(np.ones((16, 2), "float32")))),
        True,
    ),
    "a call and the way back": (convolution, lambda x: R.permute_dims(x, FIRST), True),
    "a loop and a sum": (twice, lambda x: R.sum(x, [1]), False),
}


@pytest.mark.parametrize(("one", "other", "called"), READERS.values(), ids=READERS)
def test_several_readers(one: Body, other: Body, called: bool) -> None:
    x, builder = rx.Var("x", T(SHAPE)), rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            moved = builder.emit(last(x))
            out = builder.emit_output(rx.Tuple([builder.emit(one(moved)), other(moved)]))
        builder.emit_func_output(out)
    mod = rx.transform.Normalize()(builder.get())
    made = CallTransposes()(mod)
    assert orders(made) == [LAST] * called
    given = RNG.standard_normal(SHAPE, "float32")
    for got, wanted in zip(evaluate(made, [given]), evaluate(mod, [given]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_sizes_that_only_a_call_knows() -> None:
    """As they are in the module; known when the machine specialises it."""
    n = rx.tir.Var("n", "int64")
    x = rx.Var("x", T((n, 16, 30), "float32"))
    mod = composites.of_params(lambda x: R.permute_dims(x, [0, 2, 1]), [x])
    assert CallTransposes()(mod) is mod
    run = rx.VirtualMachine(rx.build(mod, "cpu"))["main"]
    for count in (1, 7):
        given = RNG.standard_normal((count, 16, 30), "float32")
        np.testing.assert_array_equal(np.asarray(run(given)), given.transpose(0, 2, 1))


def _values_stay(mod: rx.IRModule, made: rx.IRModule, shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape, "float32")
    plain, now = (np.asarray(rx.VirtualMachine(rx.build(m, "cpu"))["main"](x)) for m in (mod, made))
    np.testing.assert_array_equal(now, plain)
    np.testing.assert_array_equal(now, evaluate(mod["main"], [x]))


def test_several_one_after_the_other_are_one() -> None:
    mod = module(lambda x: R.permute_dims(last(x), [0, 3, 2, 1]))
    made = CallTransposes()(mod)
    assert orders(made) == [[0, 1, 3, 2]]
    _values_stay(mod, made, SHAPE)


def test_there_and_back_is_nothing() -> None:
    back = module(lambda x: norm(R.permute_dims(last(x), FIRST), 6))
    assert not orders(CallTransposes()(back))


WEIGHT = (24, 16, 3, 2, 3)


@pytest.mark.parametrize("axes", [(2, 3, 4), (2, -1), (3, 3), (0,), (1, 2), ([2, -2],)])
def test_windows_turned_around_are_read_backwards(
    axes: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the flips stand between transpositions; not along what is the last axis then."""
    monkeypatch.setattr(call_transposes, "pays", lambda call, computed, read: not computed)

    def body(x: rx.Expr) -> rx.Expr:
        x = R.flip(x, axes[0])
        x = R.permute_dims(x, [1, 0, 2, 3, 4])
        for axis in axes[1:]:
            x = R.flip(x, axis if axis not in (0, 1) else 1 - axis)
        return R.reshape(R.permute_dims(x, [3, 4, 2, 1, 0]), (2, 9, 24, 16))

    mod = module(body, WEIGHT)
    made = CallTransposes()(mod)
    values = [b.value for b in bindings_of(made["main"].body)]
    calls = [call_attrs(v) for v in values if is_op(v, "relax.stablehlo.composite")]
    found = [list(c["composite_attributes"].get("flipped", [])) for c in calls]
    wanted = {
        "(2, 3, 4)": [[0, 1, 2]],
        "(2, -1)": [[1, 2]],
        "(3, 3)": [[]],
        "(0,)": [[3]],
        "([2, -2],)": [[0, 2]],
    }
    assert found == wanted.get(str(axes), [])
    flips = sum(is_op(v, "relax.flip") for v in values)
    assert flips == (0 if found else len(axes))
    _values_stay(mod, made, WEIGHT)


def test_without_a_compiler_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_transposes, "may_call", lambda: False)
    mod = module(last)
    assert CallTransposes()(mod) is mod


def test_several_devices_and_other_platforms() -> None:
    info = CallTransposes().info
    assert info.is_for("cpu", several=False)
    assert not info.is_for("cpu", several=True)
    assert not info.is_for("cuda", several=False)


PAYS: list[tuple[tuple[int, ...], list[int], tuple[bool, bool, bool]]] = [
    # Between calls, read by a loop, computed by a loop.
    ((8, 64, 28, 28), LAST, (True, False, False)),
    ((8, 256, 28, 28), LAST, (True, True, False)),
    ((8, 28, 28, 256), FIRST, (True, True, True)),
    ((8, 28, 28, 64), [3, 0, 1, 2], (True, True, True)),
    ((8, 7, 7, 512), FIRST, (True, False, False)),
    ((4, 56, 56, 16), FIRST, (True, True, False)),
    ((3, 3, 64, 64), [3, 2, 0, 1], (True, True, True)),
    ((1024, 2048), [1, 0], (True, True, True)),
    ((64, 64), [1, 0], (False, False, False)),
    ((8, 3, 112, 112), LAST, (False, False, False)),
    ((8, 112, 112, 3), FIRST, (False, False, False)),
    ((1000, 8, 8), [0, 2, 1], (False, False, False)),
]


@pytest.mark.parametrize(("shape", "order", "wanted"), PAYS, ids=[str(p[:2]) for p in PAYS])
def test_what_pays(
    shape: tuple[int, ...],
    order: list[int],
    wanted: tuple[bool, bool, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Transpose(shape, tuple(order))
    monkeypatch.setattr("relax2xla.processor.kind", lambda: "avx2")
    beside = ((False, False), (False, True), (True, False))
    assert tuple(pays(call, *b) for b in beside) == wanted
    monkeypatch.setattr("relax2xla.processor.kind", lambda: "")
    assert not any(pays(call, *b) for b in beside)


class Model(torch.nn.Module):
    """Channels first outside, channels last inside."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(16, 32, 3)
        self.second = torch.nn.Conv2d(32, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_torch() -> None:
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(2, 16, 12, 12)
    mod = from_exported_program(torch.export.export(model, (x,)))
    (got,) = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x.numpy())
    with torch.no_grad():
        np.testing.assert_allclose(np.asarray(got), model(x).numpy(), rtol=1e-4, atol=1e-5)

"""CallNorms: what becomes one call, what does not, and that all computes what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from jax import numpy as jnp

import relax2xla as rx
from relax2xla import op as R
from relax2xla.frontend.torch import from_exported_program
from relax2xla.interop.extract import extract_jax
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels.norms import Norm, pays
from relax2xla.runtime.compiler import has_compiler
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls import norms as call_norms
from relax2xla.transform.cpu.calls.norms import CallNorms
from relax2xla.transform.pipeline import get_pipeline
from tests.transform.cpu import composites

pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
    pytest.mark.usefixtures("quickly_compiled"),
]

T = rx.TensorStructInfo
RNG = np.random.default_rng(7)
SHAPE, SIZE = (2, 5, 40), 40
INFO = T(SHAPE)
Body = Callable[[rx.Expr], rx.Expr]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their size and the processor, calls take the place of operators."""
    monkeypatch.setattr(call_norms, "pays", lambda call: True)


def vector(*shape: int) -> rx.Expr:
    return rx.const(RNG.standard_normal(shape or (SIZE,), "float32"))


def number(value: float) -> rx.Expr:
    return rx.const(value, "float32")


def module(body: Body, shape: tuple[int, ...] = SHAPE) -> rx.IRModule:
    """``main`` gives what ``body`` makes; each operator has a binding."""
    return rx.transform.Normalize()(composites.module(body, shape))


def called(mod: rx.IRModule) -> list[rx.Call]:
    """The calls in ``main``."""
    main = mod["main"]
    assert isinstance(main, rx.Function)
    return [b.value for b in bindings_of(main.body) if isinstance(b.value, rx.Call)]


def norms(mod: rx.IRModule) -> list[dict[str, Any]]:
    """The attributes of the composites in ``main``."""
    return [
        call_attrs(v)["composite_attributes"]
        for v in called(mod)
        if is_op(v, "relax.stablehlo.composite")
    ]


def operators(mod: rx.IRModule) -> list[str]:
    return [str(v.op.name) for v in called(mod) if isinstance(v.op, rx.Op)]


def mean(x: rx.Expr, axis: int = -1, keepdims: bool = True) -> rx.Expr:
    return R.mean(x, [axis], keepdims)


def under(power: rx.Expr, epsilon: float = 1e-6) -> rx.Expr:
    return R.add(power, number(epsilon))


def inverse(x: rx.Expr, squared: rx.Expr | None = None) -> rx.Expr:
    return R.rsqrt(under(mean(R.square(x) if squared is None else squared)))


def centred(x: rx.Expr) -> rx.Expr:
    return R.subtract(x, mean(x))


def onnx(x: rx.Expr) -> rx.Expr:
    """As ONNX exports a layer norm to operator sets before 17."""
    left = centred(x)
    root = R.sqrt(under(mean(R.power(left, number(2)))))
    return R.add(R.multiply(R.divide(left, root), vector()), vector())


LAYER: dict[str, Body] = {
    "layer_norm": lambda x: R.nn.layer_norm(x, vector(), vector(), [-1]),
    "by its number": lambda x: R.nn.layer_norm(x, vector(), vector(), [2]),
    "no scale": lambda x: R.nn.layer_norm(x, vector(), vector(), [-1], scale=False),
    "no shift": lambda x: R.nn.layer_norm(x, vector(), vector(), [-1], center=False),
    "of an operator": lambda x: R.nn.layer_norm(x, R.exp(vector()), R.exp(vector()), [-1]),
    "onnx": onnx,
    "multiplied, the mean taken twice": lambda x: R.multiply(
        vector(), R.multiply(centred(x), inverse(centred(x)))
    ),
    "with its variance": lambda x: R.add(
        vector(1, 1, SIZE),
        R.divide(centred(x), R.sqrt(under(R.variance(x, [-1], keepdims=True)))),
    ),
}
RMS: dict[str, Body] = {
    "rms_norm": lambda x: R.nn.rms_norm(x, vector(), [-1]),
    "without a scale": lambda x: R.multiply(x, inverse(x)),
    "scale last": lambda x: R.multiply(R.multiply(x, inverse(x)), vector()),
    "scale first": lambda x: R.multiply(vector(), R.multiply(inverse(x), x)),
    "rows scaled": lambda x: R.multiply(R.multiply(vector(1, SIZE), x), inverse(x)),
    "root scaled": lambda x: R.multiply(x, R.multiply(inverse(x), vector())),
    "divided": lambda x: R.multiply(R.divide(x, R.sqrt(under(mean(R.square(x))))), vector()),
    "scaled, divided": lambda x: R.divide(
        R.multiply(vector(), x), R.sqrt(under(mean(R.square(x))))
    ),
    "one by the root": lambda x: R.multiply(
        x, R.divide(number(1), R.sqrt(R.add(number(1e-6), mean(R.square(x)))))
    ),
    "product with itself": lambda x: R.multiply(x, inverse(x, R.multiply(x, x))),
    "power": lambda x: R.multiply(x, inverse(x, R.power(x, number(2)))),
    "1 + scale": lambda x: R.multiply(R.multiply(x, inverse(x)), R.add(number(1), R.exp(vector()))),
}


@pytest.mark.parametrize(
    ("body", "centered"),
    [*((b, True) for b in LAYER.values()), *((b, False) for b in RMS.values())],
    ids=[*LAYER, *RMS],
)
def test_one_call_for_all(body: Body, centered: bool) -> None:
    mod = module(body)
    made = CallNorms()(mod)
    (found,) = norms(made)
    assert found["centered"] is centered
    assert operators(made)[-1] == "relax.stablehlo.composite"
    assert {*operators(made)} <= {
        *("relax.stablehlo.composite", "relax.reshape", "relax.exp", "relax.add")
    }
    assert len(made.functions) == 2
    x = RNG.standard_normal(SHAPE, "float32")
    expected = evaluate(mod["main"], [x])
    np.testing.assert_allclose(evaluate(made, [x]), expected, rtol=1e-5, atol=1e-5)
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-5)


def test_numbers_under_the_root_are_those_that_were_there() -> None:
    for epsilon in (1e-5, 0.1 + 0.2):
        mod = module(lambda x, e=epsilon: R.nn.rms_norm(x, vector(), [-1], e))
        assert norms(CallNorms()(mod))[0]["epsilon"] == epsilon
    written = module(lambda x: R.multiply(x, inverse(x)))
    assert norms(CallNorms()(written))[0]["epsilon"] == float(np.float32(1e-6))


def half(x: rx.Expr) -> rx.Expr:
    return R.astype(x, "float16")


OTHERS: dict[str, Body] = {
    "other axis": lambda x: R.nn.layer_norm(x, vector(5), vector(5), [1]),
    "two axes": lambda x: R.nn.layer_norm(x, vector(5, SIZE), vector(5, SIZE), [1, 2]),
    "rms, two axes": lambda x: R.nn.rms_norm(x, vector(5, SIZE), [-2, -1]),
    "other dtype": lambda x: R.nn.layer_norm(half(x), half(vector()), half(vector()), [-1]),
    "float64": lambda x: R.nn.rms_norm(R.astype(x, "float64"), R.astype(vector(), "float64"), [-1]),
    "mean of another axis": lambda x: R.multiply(x, R.rsqrt(under(mean(R.square(x), 1)))),
    "third power": lambda x: R.multiply(x, inverse(x, R.power(x, number(3)))),
    "root of another": lambda x: R.multiply(x, inverse(R.exp(x))),
    "squared rows": lambda x: R.multiply(R.multiply(x, x), inverse(x)),
    "rows divide": lambda x: R.divide(R.sqrt(under(mean(R.square(x)))), x),
    "root divides": lambda x: R.divide(x, inverse(x)),
    "multiplied by the root": lambda x: R.multiply(x, R.sqrt(under(mean(R.square(x))))),
    "a number for each row": lambda x: R.multiply(R.multiply(vector(5, 1), x), inverse(x)),
    "more rows": lambda x: R.multiply(R.multiply(vector(3, 1, 1, SIZE), x), inverse(x)),
    "epsilon for each number": lambda x: R.multiply(
        x, R.rsqrt(R.add(mean(R.square(x)), vector(5, 1)))
    ),
    "less than nothing": lambda x: R.nn.layer_norm(x, vector(), vector(), [-1], -1e-5),
}


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_others_stay(body: Body) -> None:
    mod = module(body)
    assert CallNorms()(mod) is mod


@pytest.mark.parametrize("size", [1, 7, 15])
def test_short_rows_stay(size: int) -> None:
    mod = module(lambda x: R.nn.layer_norm(x, vector(size), vector(size), [-1]), (900, size))
    assert CallNorms()(mod) is mod
    x = RNG.standard_normal((900, size), "float32")
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)
    np.testing.assert_allclose(np.asarray(got), evaluate(mod["main"], [x]), rtol=1e-5, atol=1e-5)


def emitted(body: Callable[[rx.BlockBuilder, rx.Var], rx.Expr], info: T = INFO) -> rx.IRModule:
    """``main`` gives what ``body`` makes, which binds values itself."""
    x, builder = rx.Var("x", info), rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(body(builder, x))
        builder.emit_func_output(made)
    return builder.get()


def test_what_others_read_too_stays() -> None:
    def root(b: rx.BlockBuilder, x: rx.Var) -> rx.Expr:
        factor = b.emit(inverse(x))
        return R.add(b.emit(R.multiply(x, factor)), factor)

    def power(b: rx.BlockBuilder, x: rx.Var) -> rx.Expr:
        squares = b.emit(R.square(x))
        return R.add(b.emit(R.multiply(x, inverse(x, squares))), squares)

    for body in (root, power):
        mod = rx.transform.Normalize()(emitted(body))
        assert CallNorms()(mod) is mod


def test_a_norm_that_is_read_twice_takes_no_scale() -> None:
    def body(b: rx.BlockBuilder, x: rx.Var) -> rx.Expr:
        made = b.emit(R.multiply(x, inverse(x)))
        return R.add(b.emit(R.multiply(made, vector())), made)

    mod = rx.transform.Normalize()(emitted(body))
    made = CallNorms()(mod)
    assert len(norms(made)) == 1
    assert operators(made) == ["relax.stablehlo.composite", "relax.multiply", "relax.add"]
    x = RNG.standard_normal(SHAPE, "float32")
    np.testing.assert_allclose(evaluate(made, [x]), evaluate(mod, [x]), rtol=1e-5, atol=1e-5)


def test_what_is_left_without_the_mean_may_be_read_elsewhere() -> None:
    def body(b: rx.BlockBuilder, x: rx.Var) -> rx.Expr:
        left = b.emit(centred(x))
        return R.add(b.emit(R.multiply(left, inverse(left))), left)

    mod = rx.transform.Normalize()(emitted(body))
    made = CallNorms()(mod)
    assert [n["centered"] for n in norms(made)] == [True]
    x = RNG.standard_normal(SHAPE, "float32")
    np.testing.assert_allclose(evaluate(made, [x]), evaluate(mod, [x]), rtol=1e-5, atol=1e-5)


def test_sizes_that_only_a_call_knows() -> None:
    """As they are in the module; known when the machine specialises it."""
    n = rx.tir.Var("n", "int64")

    def body(b: rx.BlockBuilder, x: rx.Var) -> rx.Expr:
        return R.nn.layer_norm(x, vector(), vector(), [-1])

    mod = emitted(body, T((n, SIZE), "float32"))
    assert CallNorms()(mod) is mod
    run = rx.VirtualMachine(rx.build(mod, "cpu"))["main"]
    for count in (3, 300):
        x = RNG.standard_normal((count, SIZE), "float32")
        wanted = evaluate(mod["main"], [x])
        np.testing.assert_allclose(np.asarray(run(x)), wanted, rtol=1e-5, atol=1e-5)


def test_what_is_made_stays_as_it_is() -> None:
    made = CallNorms()(module(LAYER["layer_norm"]))
    assert CallNorms()(made) is made


def test_without_a_compiler_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_norms, "may_call", lambda: False)
    mod = module(LAYER["layer_norm"])
    assert CallNorms()(mod) is mod


def test_small_ones_do_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relax2xla.processor.kind", lambda: "avx2")
    assert pays(Norm((197, 768), 1e-5, centered=True))
    assert not pays(Norm((1, 8, 64), 1e-5, centered=True))
    assert not pays(Norm((1, 1, 8192), 1e-5, centered=False))
    monkeypatch.setattr("relax2xla.processor.kind", lambda: "")
    assert not pays(Norm((197, 768), 1e-5, centered=True))


# -- from other places -----------------------------------------------------------------------------
class Own(torch.nn.Module):
    """As language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6)).to(x.dtype)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.LayerNorm(SIZE)
        self.second = torch.nn.RMSNorm(SIZE)
        self.linear = torch.nn.Linear(SIZE, SIZE)
        self.plain = torch.nn.LayerNorm(SIZE, elementwise_affine=False)
        self.own = Own()
        for p in self.parameters():
            torch.nn.init.normal_(p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.linear(self.second(self.first(x)))
        return self.own(self.plain(x))


def exported() -> tuple[Model, torch.Tensor, rx.IRModule]:
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(SHAPE)
    return model, x, from_exported_program(torch.export.export(model, (x,)))


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_torch() -> None:
    model, x, mod = exported()
    found = norms(CallNorms()(get_pipeline("default")(mod)))
    assert [n["centered"] for n in found] == [True, False, True, False]
    (got,) = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x.numpy())
    with torch.no_grad():
        np.testing.assert_allclose(np.asarray(got), model(x).numpy(), rtol=1e-5, atol=2e-5)


@pytest.mark.filterwarnings("ignore")
def test_derivatives_are_those_of_torch() -> None:
    """What JAX compiles for one CPU calls the function; where it differentiates, rows are."""
    model, x, mod = exported()
    given = x.requires_grad_()
    model(given).square().sum().backward()
    fn, params = extract_jax(mod)

    def loss(params: Any, x: Any) -> Any:
        return jnp.square(fn(params, x)).sum()

    at = jnp.asarray(x.detach().numpy())
    made = jax.jit(lambda p, x: fn(p, x))(params, at)
    np.testing.assert_allclose(made, model(x).detach().numpy(), rtol=1e-5, atol=2e-5)
    weights, rows = jax.jit(jax.grad(loss, (0, 1)))(params, at)
    assert given.grad is not None
    np.testing.assert_allclose(rows, given.grad.numpy(), rtol=1e-3, atol=1e-3)
    wanted = model.first.weight.grad
    assert wanted is not None
    np.testing.assert_allclose(weights["first"]["weight"], wanted.numpy(), rtol=1e-3, atol=1e-3)
    mapped = jax.vmap(lambda x: fn(params, x))(at[None])
    np.testing.assert_allclose(mapped[0], made, rtol=1e-5, atol=1e-5)


def gradient(swapped: bool = False, scaled: bool = True) -> Callable[..., rx.Expr]:
    """A layer norm's gradient by its rows, with its factors one way round or the other."""

    def times(a: rx.Expr, b: rx.Expr) -> rx.Expr:
        return R.multiply(b, a) if swapped else R.multiply(a, b)

    def body(g: rx.Expr, x: rx.Expr, m: rx.Expr, f: rx.Expr, *scale: rx.Expr) -> rx.Expr:
        left = bb.emit(times(R.subtract(x, m), f))
        by = bb.emit(times(g, scale[0])) if scaled else g
        inner = R.subtract(R.subtract(by, mean(by)), times(left, mean(times(by, left))))
        return times(f, inner)

    bb = rx.BlockBuilder()

    def module(scale: tuple[int, ...] = (SIZE,), row: tuple[int, ...] = (2, 5, 1)) -> rx.IRModule:
        shapes = [SHAPE, SHAPE, row, row, *([scale] if scaled else [])]
        params = [rx.Var(f"p{i}", T(s)) for i, s in enumerate(shapes)]
        with bb.function("main", params):
            with bb.dataflow():
                made = bb.emit_output(bb.normalize(body(*params)))
            bb.emit_func_output(made)
        return rx.transform.Normalize()(bb.finalize())

    return module


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_gradients_of_layer_norms(swapped: bool, scaled: bool) -> None:
    mod = gradient(swapped, scaled)()
    made = CallNorms()(mod)
    assert norms(made) == [{}]
    assert "relax.mean" not in operators(made)
    given = [RNG.standard_normal(p.struct_info.dims, "float32") for p in mod["main"].params]
    wanted = evaluate(mod["main"], given)
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*given)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=1e-5)


def test_gradients_of_other_norms_stay() -> None:
    """A scale for each row is part of what comes; a mean for each channel is no row's."""
    assert norms(CallNorms()(gradient()(scale=(2, 5, 1)))) == [{}]
    assert not norms(CallNorms()(gradient()(row=(1, 1, SIZE))))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_training_of_layer_norms_in_torch(affine: bool, dtype: torch.dtype) -> None:
    """Gradients by rows, scale and shift are those of eager mode; over one axis and two."""
    for shape in ((40,), (5, 40)):
        eager = torch.nn.LayerNorm(shape, elementwise_affine=affine, dtype=dtype)
        torch.compiler.reset()
        compiled = torch.compile(eager, backend="relax2xla")
        x = torch.randn(3, 5, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
        found: list[list[torch.Tensor]] = []
        for call in (eager, compiled):
            rows = x.clone().requires_grad_()
            eager.zero_grad()
            call(rows).mul(torch.arange(40.0).to(dtype)).sum().backward()
            parts = [rows, *eager.parameters()]
            found.append([p.grad.clone() for p in parts if p.grad is not None])
        for got, wanted in zip(found[1], found[0], strict=True):
            # Of numbers up to 39, which eager mode rounds to 8 bits more often.
            rtol, atol = (0.1, 0.5) if dtype == torch.bfloat16 else (1e-4, 1e-4)
            torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol)


def test_complex_numbers_are_no_rows_of_norms() -> None:
    """Whose numbers, written out as those of a norm, are not compared with real ones."""
    x = rx.Var("x", T((4, 32), "complex64"))

    def body(x: rx.Expr) -> rx.Expr:
        power = R.mean(R.multiply(x, x), axis=-1, keepdims=True)
        root = R.sqrt(R.add(power, rx.const(1e-5 + 0j, "complex64")))
        return R.multiply(x, R.divide(rx.const(1 + 0j, "complex64"), root))

    mod = composites.of_params(body, [x])
    given = (RNG.standard_normal((4, 32)) + 1j * RNG.standard_normal((4, 32))).astype("complex64")
    made = np.asarray(rx.VirtualMachine(rx.build(mod, "cpu"))["main"](given))
    wanted = given / np.sqrt((given * given).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)

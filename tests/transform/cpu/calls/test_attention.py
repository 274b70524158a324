"""CallAttention: which attention becomes one call, what it reads, and that all compute the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.frontend.torch import from_exported_program
from relax2xla.interop.jax import extract_jax
from relax2xla.ir import Expr, IRModule
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels import attention
from relax2xla.kernels.attention import FAMILY, Attention, Lie, Rotation
from relax2xla.runtime.compiler import has_compiler
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls import attention as call_attention
from relax2xla.transform.cpu.calls.attention import CallAttention
from relax2xla.transform.cpu.calls.sites import composite_call
from relax2xla.transform.cpu.calls.strided import Strided, strided
from relax2xla.transform.pipeline import get_pipeline
from tests.transform.cpu import composites

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

T = rx.TensorStructInfo
B, H, S, K, D, E = 2, 3, 10, 17, 8, 4
Made = Callable[..., Expr]


@pytest.fixture(autouse=True)
def _all_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_attention, "pays", lambda call: True)


def module(body: Made, shapes: Mapping[str, tuple[int, ...]], dtype: str = "float32") -> IRModule:
    """``main`` gives what ``body`` makes of arguments."""
    params = [rx.Var(name, T(shape, dtype)) for name, shape in shapes.items()]
    return composites.of_params(body, params)


def calls(mod: IRModule) -> list[Attention]:
    """What becomes a call."""
    values = [b.value for b in bindings_of(CallAttention()(mod)["main"].body)]
    found = [composite_call(v, FAMILY) for v in values]
    return [c for c in found if isinstance(c, Attention)]


def same(mod: IRModule) -> None:
    """What is built computes what the module does."""
    rng = np.random.default_rng(3)
    shapes = [p.struct_info.dims for p in mod["main"].params]
    given = [rng.standard_normal(s, "float32") for s in shapes]
    expected = np.asarray(evaluate(mod["main"], given))
    got = np.asarray(rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*given))
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


OPERANDS = {"q": (B, S, H, D), "k": (B, K, H, D), "v": (B, K, H, E)}
HEADS = {"q": (B, H, S, D), "k": (B, H, K, D), "v": (B, H, K, E)}


# -- the operator ----------------------------------------------------------------------------------
@pytest.mark.parametrize("mask", [None, "TopLeft", "BottomRight"])
def test_the_operator(mask: str | None) -> None:
    mod = module(lambda q, k, v: R.nn.attention(q, k, v, causal_mask=mask), OPERANDS)
    (call,) = calls(mod)
    assert call.scale == 1 / math.sqrt(D)
    assert call.mask == (mask or "")
    assert (call.query, call.key, call.value) == (Lie(H * D), Lie(H * D), Lie(H * E))
    same(mod)


@pytest.mark.parametrize("shape", [(K,), (S, 1), (H, 1, K), (B, 1, S, K), (1, 1, 1, 1)])
def test_a_bias_of_any_axes(shape: tuple[int, ...]) -> None:
    def body(q: Expr, k: Expr, v: Expr, b: Expr) -> Expr:
        return R.nn.attention(q, k, v, b, scale=0.3)

    mod = module(body, {**OPERANDS, "b": shape})
    (call,) = calls(mod)
    assert call.biases == ((*(1,) * (4 - len(shape)), *shape),)
    same(mod)


def test_a_bias_that_is_spread_is_read_before() -> None:
    def body(q: Expr, k: Expr, v: Expr, b: Expr) -> Expr:
        return R.nn.attention(q, k, v, R.broadcast_to(b, (B, H, S, K)))

    mod = module(body, {**OPERANDS, "b": (B, 1, 1, K)})
    assert calls(mod)[0].biases == ((B, 1, 1, K),)
    same(mod)


def test_what_the_operator_has_that_calls_have_not() -> None:
    window = module(lambda q, k, v: R.nn.attention(q, k, v, window_size=3), OPERANDS)
    half = module(R.nn.attention, OPERANDS, "float16")
    n = rx.tir.Var("n", "int64")
    symbolic = module(R.nn.attention, {"q": (B, n, H, D), "k": (B, n, H, D), "v": (B, n, H, E)})
    for mod in (window, half, symbolic):
        assert CallAttention()(mod) is mod


# -- where operands lie ----------------------------------------------------------------------------
def test_one_product_for_queries_keys_and_values() -> None:
    """All are read from it, as torch's layers, GPT-2 and Swin cut it."""

    def cut(x: Expr) -> Expr:
        parts = R.split(x, 3, axis=2)
        return R.nn.attention(*(R.reshape(parts[i], (B, S, H, D)) for i in range(3)))

    def unbound(x: Expr) -> Expr:
        apart = R.permute_dims(R.reshape(x, (B, S, 3, H, D)), (2, 0, 3, 1, 4))
        parts = R.split(apart, 3, axis=0)
        rows = [R.permute_dims(R.squeeze(parts[i], [0]), (0, 2, 1, 3)) for i in range(3)]
        return R.nn.attention(*rows)

    def sliced(x: Expr) -> Expr:
        rows = R.reshape(x, (B, S, 3, H, D))
        parts = [R.strided_slice(rows, [2], [i], [i + 1]) for i in range(3)]
        return R.nn.attention(*(R.reshape(p, (B, S, H, D)) for p in parts))

    for body in (cut, unbound, sliced):
        mod = module(body, {"x": (B, S, 3 * H * D)})
        (call,) = calls(mod)
        assert [tuple(o) for o in (call.query, call.key, call.value)] == [
            (3 * H * D, i * H * D) for i in range(3)
        ]
        same(mod)


def test_heads_first_and_rows_in_another_order() -> None:
    def heads(q: Expr, k: Expr, v: Expr) -> Expr:
        return R.nn.attention(*(R.permute_dims(x, (0, 2, 1, 3)) for x in (q, k, v)))

    mod = module(heads, HEADS)
    assert {c for c in (calls(mod)[0].query, calls(mod)[0].value)} == {Lie(0)}
    same(mod)

    def rows_first(q: Expr, k: Expr, v: Expr) -> Expr:
        return R.nn.attention(*(R.permute_dims(x, (1, 0, 2, 3)) for x in (q, k, v)))

    # Rows lie before the batch: they are put in order.
    mod = module(rows_first, {"q": (S, B, H, D), "k": (K, B, H, D), "v": (K, B, H, E)})
    assert calls(mod)[0].query == Lie(H * D)
    same(mod)


def test_heads_that_lie_between_the_numbers_of_others() -> None:
    """Of [rows, heads, 3, depth] no pitch says where rows are."""

    def body(x: Expr) -> Expr:
        parts = R.split(R.reshape(x, (B, S, H, 3, D)), 3, axis=3)
        return R.nn.attention(*(R.reshape(parts[i], (B, S, H, D)) for i in range(3)))

    mod = module(body, {"x": (B, S, 3 * H * D)})
    assert calls(mod)[0].query == Lie(H * D)
    same(mod)


# -- written out -----------------------------------------------------------------------------------
def scaled(scores: Expr) -> Expr:
    return R.multiply(scores, rx.const(0.5, "float32"))


def written(
    between: Callable[[Expr], Expr] = scaled,
    query: Callable[[Expr], Expr] = lambda q: q,
    behind: Callable[[Expr], Expr] = lambda w: w,
    order: tuple[int, ...] = (0, 1, 3, 2),
    axis: int = -1,
) -> Made:
    def body(q: Expr, k: Expr, v: Expr) -> Expr:
        scores = between(R.matmul(query(q), R.permute_dims(k, order)))
        return R.matmul(behind(R.nn.softmax(scores, axis)), v)

    return body


def plus(*shape: int) -> Callable[[Expr], Expr]:
    rng = np.random.default_rng(len(shape))
    bias = rx.const(rng.standard_normal(shape, "float32"))
    return lambda scores: R.add(scores, bias)


def swins(scores: Expr) -> Expr:
    """Two tensors that are added, the second one under an axis more."""
    one = R.reshape(plus(H, S, K)(scores), (1, B, H, S, K))
    return R.reshape(plus(B, 1, S, K)(one), (B, H, S, K))


# What stands between the products, and the scale and the shapes of biases of the call.
WRITTEN: dict[str, tuple[Made, float, tuple[tuple[int, ...], ...]]] = {
    "nothing": (written(lambda s: s), 1.0, ()),
    "a factor": (written(), 0.5, ()),
    "a divisor": (written(lambda s: R.divide(s, rx.const(4.0, "float32"))), 0.25, ()),
    "a factor before": (written(lambda s: s, query=scaled), 0.5, ()),
    "both, and a bias": (
        written(lambda s: plus(K)(scaled(s)), query=scaled),
        0.25,
        ((1, 1, 1, K),),
    ),
    "a bias before the sum": (
        written(lambda s: R.add(rx.const(np.ones((S, K), "float32")), s)),
        1.0,
        ((1, 1, S, K),),
    ),
    "two biases": (written(swins), 1.0, ((1, H, S, K), (B, 1, S, K))),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_out(name: str) -> None:
    body, scale, biases = WRITTEN[name]
    mod = module(body, HEADS)
    (call,) = calls(mod)
    assert (call.scale, call.biases) == (scale, biases)
    assert not any(
        is_op(b.value, "relax.nn.softmax") for b in bindings_of(CallAttention()(mod)["main"].body)
    )
    same(mod)


def test_no_heads() -> None:
    def body(q: Expr, k: Expr, v: Expr) -> Expr:
        scores = plus(B, S, K)(R.matmul(q, R.permute_dims(k, (0, 2, 1))))
        return R.matmul(R.nn.softmax(scores), v)

    mod = module(body, {"q": (B, S, D), "k": (B, K, D), "v": (B, K, E)})
    (call,) = calls(mod)
    assert (call.heads, call.biases) == (1, ((B, 1, S, K),))
    same(mod)


def test_no_elements() -> None:
    """Without rows, or images, nothing is looked for."""
    for shape in ((0, 4, 2, 8), (2, 0, 2, 8)):
        q, k, v = (rx.Var(n, T(shape, "float32")) for n in "qkv")
        builder = rx.BlockBuilder()
        with builder.function("main", [q, k, v]):
            builder.emit_func_output(builder.emit(R.nn.attention(q, k, v)))
        x = np.zeros(shape, "f")
        assert rx.VirtualMachine(rx.build(builder.get()))["main"](x, x, x).shape == shape


def test_keys_that_lie_across() -> None:
    """As a product takes them, they are exchanged once."""
    mod = module(
        lambda q, k, v: R.matmul(R.nn.softmax(R.matmul(q, k)), v), {**HEADS, "k": (B, H, D, K)}
    )
    assert calls(mod)[0].key == Lie(0)
    same(mod)


def twice(scores: Expr) -> Expr:
    return R.multiply(scores, scores)


STAYS: dict[str, Made] = {
    "a factor behind a bias": written(lambda s: scaled(plus(S, K)(s))),
    "another function of scores": written(lambda s: R.tanh(s)),
    "scores that are read twice": written(twice),
    "a factor for each key": written(lambda s: R.multiply(s, rx.const(np.ones(K, "float32")))),
    "weights that something is made of": written(behind=R.nn.relu),
    "a softmax of queries": written(axis=2),
    "values of another dtype": lambda q, k, v: R.matmul(
        R.nn.softmax(R.matmul(q, R.permute_dims(k, (0, 1, 3, 2)))), v, out_dtype="float64"
    ),
    "three biases": written(lambda s: plus(S, K)(plus(1, K)(plus(H, 1, 1)(s)))),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_is_no_attention(name: str) -> None:
    mod = module(STAYS[name], HEADS)
    assert CallAttention()(mod) is mod
    same(mod)


def test_weights_that_are_a_result_as_well() -> None:
    q, k, v = (rx.Var(n, T(s)) for n, s in HEADS.items())
    builder = rx.BlockBuilder()
    with builder.function("main", [q, k, v]):
        with builder.dataflow():
            scores = builder.emit(R.matmul(q, R.permute_dims(k, (0, 1, 3, 2))))
            weights = builder.emit(R.nn.softmax(scores))
            made = builder.emit(R.matmul(weights, v))
            total = builder.emit_output(R.add(made, R.sum(weights, axis=-1, keepdims=True)))
        builder.emit_func_output(total)
    mod = builder.get()
    assert CallAttention()(mod) is mod


def test_its_form_is_not_taken_for_another() -> None:
    mod = CallAttention()(module(R.nn.attention, OPERANDS))
    assert CallAttention()(mod) is mod


def test_small_ones_and_single_queries_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    large = Attention(1, 4, 64, 64, 32, 32, Lie(0), Lie(0), Lie(0), 1.0)
    assert attention.pays(large)
    small = Attention(1, 1, 16, 16, 8, 8, Lie(0), Lie(0), Lie(0), 1.0)
    single = Attention(1, 32, 1, 4096, 64, 64, Lie(0), Lie(0), Lie(0), 1.0)
    assert not any(map(attention.pays, (small, single)))


# -- rotations -------------------------------------------------------------------------------------
def rotated(
    order: tuple[int, ...] = (0, 1, 2, 3),
    tables: tuple[int, ...] = (S, D),
    halves: Callable[[Expr], list[Expr]] = lambda x: [R.split(x, 2, axis=-1)[i] for i in (1, 0)],
    minus: Callable[[Expr], Expr] = R.negative,
) -> Made:
    """Of rows of heads under axes in an ``order``, as importers write it."""
    rng = np.random.default_rng(1)
    cosine, sine = (rx.const(rng.standard_normal(tables, "float32")) for _ in range(2))

    def body(x: Expr) -> Expr:
        rows = R.permute_dims(x, order)
        second, first = halves(rows)
        crossed = R.concat((minus(second), first), axis=-1)
        return R.add(R.multiply(crossed, sine), R.multiply(rows, cosine))

    return body


def sliced(x: Expr) -> list[Expr]:
    return [R.strided_slice(x, [3], [b], [b + D // 2]) for b in (D // 2, 0)]


ROTATED: list[tuple[Made, tuple[int, ...], Lie]] = [
    (rotated(), (B, H, S, D), Lie(0)),
    (rotated(halves=sliced, tables=(1, 1, S, D)), (B, H, S, D), Lie(0)),
    (rotated((0, 2, 1, 3)), (B, S, H, D), Lie(H * D)),
    (rotated(tables=(S, 1, D)), (B, S, H, D), Lie(H * D)),
    (rotated(tables=(B, S, 1, D), halves=sliced), (B, S, H, D), Lie(H * D)),
]


@pytest.mark.parametrize("case", range(len(ROTATED)))
def test_rotations(case: int) -> None:
    body, shape, lie = ROTATED[case]
    mod = module(body, {"x": shape})
    values = [b.value for b in bindings_of(CallAttention()(mod)["main"].body)]
    (call,) = filter(None, (composite_call(v, FAMILY) for v in values))
    assert isinstance(call, Rotation)
    assert call.lie == lie
    same(mod)


@pytest.mark.parametrize(
    "body",
    [
        rotated(minus=R.abs),
        rotated(halves=lambda x: sliced(x)[::-1]),
        rotated(tables=(H, S, D)),
        rotated(tables=(D,)),
        rotated(halves=lambda x: [R.nn.relu(h) for h in sliced(x)]),
    ],
)
def test_what_is_no_rotation(body: Made) -> None:
    mod = module(body, {"x": (B, H, S, D)})
    assert CallAttention()(mod) is mod


def test_attention_reads_what_was_turned() -> None:
    def body(x: Expr, k: Expr, v: Expr) -> Expr:
        turned = rotated((0, 2, 1, 3))(x)
        return R.nn.attention(R.permute_dims(turned, (0, 2, 1, 3)), k, v)

    mod = module(body, {"x": (B, S, H, D), "k": (B, K, H, D), "v": (B, K, H, E)})
    (call,) = calls(mod)
    assert call.query == Lie(H * D)
    same(mod)


# -- networks --------------------------------------------------------------------------------------
class Block(torch.nn.Module):
    """Attention of torch, with a causal mask or one that is given."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.inner, self.outer = torch.nn.Linear(48, 144), torch.nn.Linear(48, 48)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, 12)).transpose(1, 2) for t in self.inner(x).chunk(3, -1))
        seen = None if self.causal else mask[:, None, None, :]
        made = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, seen, is_causal=self.causal
        )
        return self.outer(made.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("causal", [True, False])
def test_torch(causal: bool) -> None:
    torch.manual_seed(0)
    block = Block(causal).eval()
    given = torch.randn(2, 21, 48), torch.arange(21).expand(2, 21) < torch.tensor([[9], [21]])
    mod = from_exported_program(torch.export.export(block, given))
    assert "relax2xla.attention.attention" in CallAttention()(get_pipeline("default")(mod)).script()
    (got,) = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*(g.numpy() for g in given))
    with torch.no_grad():
        np.testing.assert_allclose(np.asarray(got), block(*given).numpy(), atol=2e-6)


def test_gradients_are_those_of_rows() -> None:
    """In functions of JAX, over weights and arguments."""
    torch.manual_seed(0)
    block = Block(True)
    given = torch.randn(2, 21, 48), torch.zeros(2, 21, dtype=torch.bool)
    mod = from_exported_program(torch.export.export(block, given))
    fn, params = extract_jax(mod)
    x, mask = (g.numpy() for g in given)

    def loss(params: Any, x: Any) -> Any:
        return jax.numpy.sum(fn(params, x, mask) ** 2)

    made, of_x = jax.jit(jax.grad(loss, argnums=(0, 1)))(params, x)
    leaf = given[0].clone().requires_grad_()
    block(leaf, given[1]).square().sum().backward()
    assert leaf.grad is not None
    np.testing.assert_allclose(of_x, leaf.grad.numpy(), rtol=1e-4, atol=1e-4)
    wanted = block.inner.weight.grad
    assert wanted is not None
    np.testing.assert_allclose(made["inner"]["weight"], wanted.numpy(), rtol=1e-4, atol=1e-4)


# -- views -----------------------------------------------------------------------------------------
X = rx.Var("x", T((2, 3, 4)))
VIEWS: list[tuple[Callable[[Expr], Expr], Callable[[np.ndarray[Any, Any]], Any]]] = [
    (lambda x: x, lambda x: x),
    (lambda x: R.permute_dims(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    (R.permute_dims, np.transpose),
    (lambda x: R.reshape(x, (6, 2, 1, 2)), lambda x: x.reshape(6, 2, 1, 2)),
    (lambda x: R.expand_dims(x, [0, 2]), lambda x: x[None, :, None]),
    (lambda x: R.strided_slice(x, [1, 2], [1, -3], [9, -1]), lambda x: x[:, 1:9, -3:-1]),
    (lambda x: R.split(x, 2, axis=-1)[1], lambda x: x[..., 2:]),
    (lambda x: R.split(x, [1, 3], axis=2)[1], lambda x: x[..., 1:3]),
    (lambda x: R.split(x, [1, 3], axis=2)[2], lambda x: x[..., 3:]),
    (
        lambda x: R.reshape(R.permute_dims(x, (1, 0, 2)), (3, 2, 2, 2)),
        lambda x: x.transpose(1, 0, 2).reshape(3, 2, 2, 2),
    ),
]


@pytest.mark.parametrize("case", range(len(VIEWS)))
def test_views(case: int) -> None:
    """Each element is where numpy has it."""
    moved, wanted = VIEWS[case]
    found = view_of(moved)
    assert found is not None
    numbers = np.arange(24, dtype="float32")
    strides = [4 * s for s in found.strides]
    got = np.lib.stride_tricks.as_strided(numbers[found.offset :], found.shape, strides)
    np.testing.assert_array_equal(got, wanted(numbers.reshape(2, 3, 4)))
    assert found.base is X


def view_of(moved: Callable[[Expr], Expr]) -> Strided | None:
    """What ``moved`` gives of an argument, as a view of ``X``, if it is one of the argument."""
    mod = module(moved, {"x": (2, 3, 4)})
    values = {b.var: b.value for b in bindings_of(mod["main"].body)}
    found = strided(bound(values, mod["main"].body.body), lambda e: bound(values, e))
    if found is None:
        return None
    (param,) = mod["main"].params
    return Strided(
        X if found.base is param else found.base, found.shape, found.strides, found.offset
    )


def bound(values: Mapping[Any, Expr], expr: Expr) -> Expr:
    while expr in values:
        expr = values[expr]
    return expr


@pytest.mark.parametrize(
    "moved",
    [
        lambda x: R.reshape(R.permute_dims(x, (1, 0, 2)), (6, 4)),
        lambda x: R.strided_slice(x, [2], [0], [4], [2]),
        R.nn.relu,
    ],
)
def test_what_no_strides_say(moved: Callable[[Expr], Expr]) -> None:
    """It is a value by itself."""
    found = view_of(moved)
    assert found is not None
    assert found.base is not X
    assert found.offset == 0

"""Keys for models that draw random numbers: dropout in training, noise, samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.errors import CallError, UnsupportedError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.interop.jax import extract_jax, from_jax, gaps
from relax2xla.ir import TensorStructInfo, Var

torch = pytest.importorskip("torch")
F = torch.nn.functional

KEYS = jax.random.split(jax.random.key(7), 4)
X = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


class Layer(torch.nn.Module):
    """A function as a module in training mode, with one weight."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.scale = torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Any) -> Any:
        return self.function(x * self.scale)


def of_torch(function: Callable[[Any], Any], x: Any = X, **options: Any) -> Any:
    module: Any = function if isinstance(function, torch.nn.Module) else Layer(function)
    return rx.jax_function(module.train(), (torch.from_numpy(x),), **options)


def attention(x: Any) -> Any:
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)


DRAWING: dict[str, Callable[[Any], Any]] = {
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "attention": attention,
    "bernoulli": lambda x: torch.bernoulli(torch.sigmoid(x)),
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout1d": lambda x: F.dropout1d(x[None], 0.5),
    "exponential": lambda x: x + torch.empty_like(x).exponential_(),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x[..., None], 0.5, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, tau=0.7),
    "half": lambda x: F.dropout(x.to(torch.bfloat16), 0.5),
    "multinomial": lambda x: torch.multinomial(torch.softmax(x, -1), 3),
    "normal": lambda x: torch.empty_like(x).normal_(1, 2) * x,
    "rand": lambda x: torch.rand_like(x) + torch.rand(8),
    "randint": lambda x: torch.randint(0, 1000, (8,)) + x,
    "randn": lambda x: torch.randn_like(x) * x,
    "randn64": lambda x: torch.randn(6, 8, dtype=torch.float64) * x,
    "randperm": lambda x: torch.randperm(50) + x.sum(),
    "rrelu": lambda x: F.rrelu(x, training=True),
}


@pytest.mark.parametrize("name", DRAWING)
def test_what_torch_draws_is_of_the_key(name: str) -> None:
    fn, params = of_torch(DRAWING[name])
    assert fn.draws
    draw = jax.jit(lambda key: fn(params, X, rng=key))
    made = [np.asarray(draw(key), np.float64) for key in KEYS]
    for i, one in enumerate(made):
        assert all(not np.array_equal(one, other) for other in made[:i]), name
    # A key for each of several examples is that of each alone.
    np.testing.assert_allclose(jax.vmap(draw)(KEYS), made, rtol=1e-6, atol=1e-6)
    # Without a key they are the same at each call, as without JAX.
    np.testing.assert_array_equal(fn(params, X), fn(params, X))


IMAGE = np.random.default_rng(0).normal(size=(1, 1, 16, 16)).astype(np.float32)
LAYERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "lstm": (lambda: torch.nn.LSTM(8, 4, num_layers=3, dropout=0.5), X),
    "encoder": (lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5), X),
    "pool": (lambda: torch.nn.FractionalMaxPool2d(2, output_ratio=0.6), IMAGE),
}


@pytest.mark.filterwarnings("ignore:The tensor attributes")  # torch's, of an LSTM in training
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_torch(name: str) -> None:
    make, x = LAYERS[name]
    fn, params = of_torch(make(), x)
    made = [np.asarray(jax.tree.leaves(fn(params, x, rng=k))[0]) for k in (*KEYS, KEYS[0])]
    assert not np.array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[4])


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_dropout_is_between_recurrent_layers(kind: str) -> None:
    """All of it is dropped there, and nothing of the first layer's input or the last's output."""
    module = getattr(torch.nn, kind)(8, 4, num_layers=2, dropout=1.0, bidirectional=True).train()
    want = module(torch.from_numpy(X))[0].detach()
    fn, params = of_torch(module)
    np.testing.assert_allclose(fn(params, X, rng=KEYS[0])[0], want, rtol=1e-5, atol=1e-6)


def test_each_draw_has_a_mask_of_its_own() -> None:
    def three(x: Any) -> Any:
        ones = torch.ones_like(x)
        return F.dropout(ones, 0.5), F.dropout(ones, 0.5), torch.rand_like(x)

    x = np.ones((64, 64), np.float32)
    fn, params = of_torch(three, x)
    first, second, third = fn(params, x, rng=KEYS[0])
    for a, b in ((first, second), (first, third), (second, third)):
        assert abs(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1]) < 0.08
    again = fn(params, x, rng=KEYS[0])
    jax.tree.map(np.testing.assert_array_equal, again, (first, second, third))


def test_the_mean_is_kept() -> None:
    fn, params = of_torch(lambda x: F.dropout(x, 0.25))
    keys = jax.random.split(jax.random.key(0), 4000)
    made = jax.vmap(lambda key: fn(params, X, rng=key))(keys)
    error = np.abs(1.5 * X) * (0.25 / 0.75 / len(keys)) ** 0.5
    assert np.all(np.abs(made.mean(0) - 1.5 * X) < 5 * error + 1e-6)
    share = float((np.asarray(made) == 0).mean())
    assert abs(share - 0.25) < 5 * (0.25 * 0.75 / made.size) ** 0.5


def network(kind: Any = torch.float32) -> Any:
    torch.manual_seed(0)
    blocks = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)) for _ in range(3)]
    return torch.nn.Sequential(*blocks, torch.nn.Linear(8, 2)).to(kind)


def test_gradients_are_those_of_the_mask() -> None:
    """Of differences, in float64; and the mask is computed again with the same numbers."""
    wide = X.astype(np.float64)
    fn, params = of_torch(network(torch.float64), wide)

    def narrow(p: Any) -> Any:  # x64 is off
        return (fn(p, wide, rng=KEYS[1]).astype(np.float32) ** 2).mean()

    with jax.enable_x64(True):

        def loss(p: Any) -> Any:
            return (fn(p, wide, rng=KEYS[1]) ** 2).mean()

        grad = jax.grad(loss)(params)
        way = jax.tree.map(lambda p: jnp.cos(p * 1e3), params)

        def at(step: float) -> Any:
            return loss(jax.tree.map(lambda p, w: p + step * w, params, way))

        numeric = (at(1e-6) - at(-1e-6)) / 2e-6
        along = sum(jax.tree.leaves(jax.tree.map(lambda g, w: (g * w).sum(), grad, way)))
        np.testing.assert_allclose(along, numeric, rtol=1e-6)
        _, forward = jax.jvp(loss, (params,), (way,))
        np.testing.assert_allclose(forward, along, rtol=1e-10)
        again = jax.grad(jax.checkpoint(loss))(params)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-10), grad, again)
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-7), jax.grad(narrow)(params), grad
    )


def test_values_that_are_computed_again_have_the_same_mask() -> None:
    module = network()
    fn, params = of_torch(module)
    again, _ = of_torch(module, remat=["?"])

    def grad(f: Any) -> Any:
        return jax.jit(jax.grad(lambda p: (f(p, X, rng=KEYS[2]) ** 2).mean()))(params)

    text = str(
        jax.make_jaxpr(lambda p: jax.grad(lambda p: again(p, X, rng=KEYS[2]).sum())(p))(params)
    )
    assert text.count("remat") >= 3
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), grad(fn), grad(again))


def test_steps_in_a_scan_and_programs_that_are_exported() -> None:
    fn, params = of_torch(network())

    def step(p: Any, key: Any) -> Any:
        loss, grad = jax.value_and_grad(lambda p: (fn(p, X, rng=key) ** 2).mean())(p)
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, grad), loss

    end, losses = jax.lax.scan(step, params, KEYS)
    p, want = params, []
    for key in KEYS:
        p, loss = step(p, key)
        want.append(loss)
    np.testing.assert_allclose(losses, want, rtol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), end, p)
    exported = jax.export.export(jax.jit(step))(params, KEYS[0])
    got = jax.export.deserialize(exported.serialize()).call(params, KEYS[3])[1]
    np.testing.assert_allclose(got, step(params, KEYS[3])[1], rtol=1e-6)


def test_sizes_that_are_open() -> None:
    n = torch.export.Dim("n")
    fn, params = rx.jax_function(network(), (torch.from_numpy(X),), dynamic_shapes=({0: n},))
    (size,) = jax.export.symbolic_shape("n")
    for keys in ({"rng": KEYS[0]}, {}):
        call = jax.jit(lambda p, x, keys=keys: fn(p, x, **keys))
        exported = jax.export.export(call)(params, jax.ShapeDtypeStruct((size, 8), "float32"))
        np.testing.assert_allclose(exported.call(params, X), fn(params, X, **keys), rtol=1e-5)


def test_any_form_of_a_key() -> None:
    fn, params = of_torch(lambda x: F.dropout(x, 0.5))
    old = jax.random.PRNGKey(3)
    want = fn(params, X, rng=jax.random.key(3))
    np.testing.assert_array_equal(fn(params, X, rng=old), want)
    np.testing.assert_array_equal(fn(params, X, rng=np.asarray(old)), want)
    other = fn(params, X, rng=jax.random.key(3, impl="rbg"))
    assert not np.array_equal(other, want)
    np.testing.assert_array_equal(fn(params, X, rng=None), fn(params, X))
    for bad, said in (
        (0, "given int 0"),
        (np.zeros(3, np.uint32), r"given uint32\[3\]"),
        (np.zeros(2, np.float32), r"given float32\[2\]"),
        (KEYS, r"given .*\[4\]: jax.vmap maps over keys"),
    ):
        with pytest.raises(CallError, match=f"main: rng is (a|one) key.*{said}"):
            fn(params, X, rng=bad)


def test_a_function_without_draws_takes_no_key() -> None:
    module = network().eval()
    fn, params = rx.jax_function(module, (torch.from_numpy(X),))
    assert not fn.draws
    with pytest.raises(CallError, match=r"draws no random numbers, so it takes no rng=.*training"):
        fn(params, X, rng=KEYS[0])


class Named(torch.nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Any, *, rng: Any) -> Any:
        return F.dropout(x, self.p) + rng


def test_the_model_has_an_argument_of_that_name() -> None:
    given: dict[str, Any] = {"example_kwargs": {"rng": torch.ones(8)}}
    x = torch.from_numpy(X)
    with pytest.raises(ValueError, match='own, so the key needs another name, as in rng="rng_key"'):
        rx.jax_function(Named(0.5).train(), (x,), **given)
    fn, params = rx.jax_function(Named(0.5).train(), (x,), rng="key", **given)
    bias = np.ones(8, np.float32)
    made = fn(params, X, rng=bias, key=KEYS[0])
    assert not np.array_equal(made, fn(params, X, rng=bias, key=KEYS[1]))
    fn, params = rx.jax_function(Named(0.0).train(), (x,), **given)
    np.testing.assert_allclose(fn(params, X, rng=bias), X + 1)


class Chosen(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nonzero(F.dropout(x, 0.5))


def test_sizes_that_depend_on_draws_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"sizes depend on random numbers, .*nonzero"):
        of_torch(Chosen())


# ---- ONNX
onnx = pytest.importorskip("onnx")


def onnx_model(nodes: Any, shape: Any = (6, 8), weights: Any = ()) -> Any:
    from onnx import TensorProto, helper

    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("x", (6, 8)), ("y", shape))
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return rx.frontend.onnx.from_onnx(made)


def node(kind: str, inputs: Any, outputs: Any, **attrs: Any) -> Any:
    return onnx.helper.make_node(kind, inputs, outputs, **attrs)


def dropout(**attrs: Any) -> Any:
    weights = [
        onnx.helper.make_tensor("r", onnx.TensorProto.FLOAT, (), [0.5]),
        onnx.helper.make_tensor("t", onnx.TensorProto.BOOL, (), [True]),
    ]
    return onnx_model([node("Dropout", ["x", "r", "t"], ["y"], **attrs)], weights=weights)


ONNX: dict[str, Callable[[], Any]] = {
    "Dropout": dropout,
    "RandomNormalLike": lambda: onnx_model([node("RandomNormalLike", ["x"], ["y"])]),
    "RandomUniform": lambda: onnx_model([node("RandomUniform", [], ["y"], shape=(6, 8))]),
    "Bernoulli": lambda: onnx_model(
        [node("Sigmoid", ["x"], ["p"]), node("Bernoulli", ["p"], ["y"])]
    ),
}


@pytest.mark.parametrize("name", ONNX)
def test_onnx_without_a_seed_needs_a_key(name: str) -> None:
    mod = ONNX[name]()
    assert gaps(mod) == []
    fn, params = extract_jax(mod)
    with pytest.raises(CallError, match=r"give it a key, as in fn\(params, \.\.\., rng=jax"):
        fn(params, X)
    draw = jax.jit(lambda key: fn(params, X, rng=key))
    made = [np.asarray(draw(key)) for key in KEYS]
    assert not np.array_equal(made[0], made[1])
    np.testing.assert_array_equal(jax.vmap(draw)(KEYS), made)


def test_onnx_with_a_seed_says_which_numbers() -> None:
    fn, params = extract_jax(dropout(seed=3))
    assert not fn.draws
    np.testing.assert_array_equal(fn(params, X), fn(params, X))


def test_rounds_of_a_loop_draw_other_numbers() -> None:
    """Of one that is counted, and of one that ends by a condition."""
    from onnx import TensorProto, helper

    def info(name: str, kind: int, shape: Any) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    inner = [
        node("RandomUniformLike", ["c"], ["z"]),
        node("Add", ["c", "z"], ["d"]),
        node("Identity", ["on"], ["off"]),
    ]
    body = helper.make_graph(
        inner,
        "b",
        [info("i", TensorProto.INT64, ()), info("on", TensorProto.BOOL, ()), info("c", 1, (6, 8))],
        [info("off", TensorProto.BOOL, ()), info("d", 1, (6, 8)), info("z", 1, (6, 8))],
    )
    count = [helper.make_tensor("m", TensorProto.INT64, (), [30])]
    loop = node("Loop", ["m", "", "x"], ["e", "y"], body=body)
    fn, params = extract_jax(onnx_model([loop], (30, 6, 8), count))
    made = np.asarray(fn(params, X, rng=KEYS[0]))
    assert len(np.unique(made[:, 0, 0])) == 30
    both = jax.vmap(lambda key: fn(params, X, rng=key))(KEYS)
    np.testing.assert_array_equal(both[0], made)

    text = """
    func.func @main(%x: tensor<i32>) -> tensor<8xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %low = stablehlo.constant dense<0.0> : tensor<f32>
      %high = stablehlo.constant dense<1.0> : tensor<f32>
      %start = stablehlo.constant dense<0.0> : tensor<8xf32>
      %none = stablehlo.constant dense<> : tensor<0xi64>
      %i, %y = stablehlo.while(%a = %zero, %b = %start) : tensor<i32>, tensor<8xf32>
        cond {
          %go = stablehlo.compare LT, %a, %x : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        } do {
          %u = stablehlo.rng %low, %high, %none, distribution = UNIFORM
              : (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32>
          %v = stablehlo.reshape %u : (tensor<f32>) -> tensor<1xf32>
          %w = stablehlo.dynamic_update_slice %b, %v, %a
              : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
          %n = stablehlo.add %a, %one : tensor<i32>
          stablehlo.return %n, %w : tensor<i32>, tensor<8xf32>
        }
      return %y : tensor<8xf32>
    }"""
    fn, params = extract_jax(from_stablehlo(text))
    made = np.asarray(fn(params, np.int32(8), rng=KEYS[0]))
    assert len(np.unique(made)) == 8
    np.testing.assert_array_equal(made, jax.jit(lambda k: fn(params, 8, rng=k))(KEYS[0]))
    assert not np.array_equal(made, fn(params, np.int32(8), rng=KEYS[1]))


# ---- rows and operators
def test_numbers_of_xla_itself() -> None:
    text = """
    func.func @main(%a: tensor<f32>, %b: tensor<f32>)
        -> (tensor<20000xf32>, tensor<20000xf32>, tensor<20000xf32>, tensor<20000xi32>) {
      %s = stablehlo.constant dense<20000> : tensor<1xi64>
      %i = stablehlo.constant dense<-3> : tensor<i32>
      %j = stablehlo.constant dense<5> : tensor<i32>
      %n = stablehlo.rng %a, %b, %s, distribution = NORMAL
          : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<20000xf32>
      %u = stablehlo.rng %a, %b, %s, distribution = UNIFORM
          : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<20000xf32>
      %v = stablehlo.rng %a, %b, %s, distribution = UNIFORM
          : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<20000xf32>
      %w = stablehlo.rng %i, %j, %s, distribution = UNIFORM
          : (tensor<i32>, tensor<i32>, tensor<1xi64>) -> tensor<20000xi32>
      return %n, %u, %v, %w
          : tensor<20000xf32>, tensor<20000xf32>, tensor<20000xf32>, tensor<20000xi32>
    }"""
    fn, params = extract_jax(from_stablehlo(text))
    ends = np.float32(1), np.float32(3)
    normal, uniform, other, whole = fn(params, *ends, rng=KEYS[0])
    assert abs(normal.mean() - 1) < 0.1
    assert abs(normal.std() - 3) < 0.1
    assert abs(uniform.mean() - 2) < 0.02
    assert 1 <= uniform.min() < uniform.max() < 3
    assert not np.array_equal(uniform, other)
    assert np.unique(whole).tolist() == list(range(-3, 5))
    again = jax.jit(lambda key: fn(params, *ends, rng=key))
    np.testing.assert_allclose(again(KEYS[0])[0], normal, rtol=1e-5, atol=1e-6)
    moved = jax.grad(lambda b: fn(params, ends[0], b, rng=KEYS[0])[0].sum())(ends[1])
    np.testing.assert_allclose(moved, ((normal - 1) / 3).sum(), rtol=1e-4)


def test_the_operator_of_relax() -> None:
    bb = BlockBuilder()
    x = Var("x", TensorStructInfo((1,), "uint64"))
    with bb.function("main", [x]):
        keys = [R.bitwise_xor(R.random_key(name), x) for name in ("a", "b", "a")]
        bb.emit_func_output(bb.emit(R.concat([bb.emit(k) for k in keys])))
    fn, params = extract_jax(bb.get())
    with jax.enable_x64(True):
        zero = np.zeros(1, np.uint64)
        first, second, third = fn(params, zero, rng=KEYS[0])
        assert first == third != second
        assert first != fn(params, zero, rng=KEYS[1])[0]


def test_keys_that_jax_takes_stay_arguments() -> None:
    def f(key: Any, x: Any) -> Any:
        fixed = jax.random.bernoulli(jax.random.key(0, impl="rbg"), 0.5, x.shape)
        return jnp.where(fixed, x, jax.random.normal(key, x.shape))

    fn, params = extract_jax(from_jax(f, KEYS[0], X))
    assert not fn.draws
    np.testing.assert_allclose(fn(params, KEYS[1], X), f(KEYS[1], X), rtol=1e-6)


# ---- training
def test_training_with_dropout_is_as_in_torch() -> None:
    """The loss after some steps, over seeds: its mean, and how far seeds are apart."""
    torch.manual_seed(0)
    size, steps, seeds, rate = 16, 15, 60, 0.2
    parts = torch.nn.Linear(8, size), torch.nn.ReLU(), torch.nn.Dropout(0.5)
    module = torch.nn.Sequential(*parts, torch.nn.Linear(size, 1)).train()
    x = np.random.default_rng(1).normal(size=(32, 8)).astype(np.float32)
    y = np.sin(x.sum(1, keepdims=True))
    fn, params = rx.jax_function(module, (torch.from_numpy(x),))

    def run(key: Any) -> Any:
        def step(p: Any, key: Any) -> Any:
            loss, grad = jax.value_and_grad(lambda p: ((fn(p, x, rng=key) - y) ** 2).mean())(p)
            return jax.tree.map(lambda p, g: p - rate * g, p, grad), loss

        return jax.lax.scan(step, params, jax.random.split(key, steps))[1]

    ours = np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds)))
    start = {n: v.clone() for n, v in module.state_dict().items()}
    theirs = np.zeros((seeds, steps))
    for seed in range(seeds):
        torch.manual_seed(seed)
        module.load_state_dict(start)
        optimiser = torch.optim.SGD(module.parameters(), rate)
        for i in range(steps):
            optimiser.zero_grad()
            loss = (module(torch.from_numpy(x)) - torch.from_numpy(y)).square().mean()
            loss.backward()
            optimiser.step()
            theirs[seed, i] = loss.item()
    error = np.sqrt((ours.var(0) + theirs.var(0)) / seeds)
    assert np.all(np.abs(ours.mean(0) - theirs.mean(0)) < 4 * error)
    assert np.all(np.abs(np.log(ours.std(0) / theirs.std(0))) < 0.5)
    assert ours.mean(0)[-1] < 0.8 * ours.mean(0)[0]

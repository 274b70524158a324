"""``extract_jax`` of models of torch and ONNX, beside torch.autograd and ONNX's reference."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import CallError, UnsupportedError
from relax2xla.frontend.torch import from_exported_program
from relax2xla.interop.jax import extract_jax, from_jax, gaps, to_jax
from relax2xla.script import from_source

torch = pytest.importorskip("torch")
F = torch.nn.functional


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.qkv = torch.nn.Linear(8, 24)
        self.out = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(2, 5, 8))


class Words(torch.nn.Module):
    """A GPT-2 in small: tied embeddings, positions in an integer buffer, dictionaries out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8, padding_idx=0)
        self.layers = torch.nn.ModuleList([Block() for _ in range(2)])
        self.head = torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.scale = torch.nn.Parameter(torch.tensor(1.5))
        self.register_buffer("places", torch.arange(5))

    def forward(self, ids: Any, *, gain: Any) -> Any:
        x = self.embed(ids) + torch.sin(self.places * 0.3)[:, None]
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.head(x) * self.scale * gain, "last": (x[:, -1], x.mean())}


IDS = torch.tensor([[1, 2, 3, 0, 4], [5, 0, 7, 8, 10]])
GAIN = torch.tensor(0.7)


@pytest.fixture(scope="module")
def words() -> Any:
    torch.manual_seed(0)
    return Words().eval()


def exported(model: Any) -> Any:
    return torch.export.export(model, (IDS,), {"gain": GAIN})


def loss_of(made: Any) -> Any:
    return (made["logits"] ** 2).mean() + made["last"][1]


def test_a_torch_model_is_a_function_of_jax(words: Any) -> None:
    fn, params = rx.jax_function(words, (IDS,), example_kwargs={"gain": GAIN})
    assert params["layers"]["0"]["qkv"]["weight"].shape == (24, 8)
    assert "head" not in params  # tied: once, under its first name
    assert set(fn.buffers) == {"places"}
    ids, gain = IDS.numpy(), GAIN.numpy()

    @jax.jit
    def both(params: Any) -> Any:
        made = fn(params, ids, gain=gain)
        return made, jax.grad(lambda p: loss_of(fn(p, ids, gain=gain)))(params)

    made, grad = both(params)
    want = words(IDS, gain=GAIN)
    np.testing.assert_allclose(made["logits"], want["logits"].detach(), rtol=1e-4, atol=1e-5)
    assert isinstance(made["last"], tuple)
    words.zero_grad()
    loss_of(want).backward()
    for name, p in words.named_parameters():
        at = grad
        for step in name.split("."):
            at = at[step]
        np.testing.assert_allclose(at, p.grad, rtol=1e-3, atol=1e-6, err_msg=name)
    # The row of the padding has no gradient from where it was looked up, only as a column of head.
    assert np.asarray(grad["scale"]).shape == ()


@dataclasses.dataclass
class Made:
    """What a module takes and gives."""

    value: Any
    parts: Any
    more: Any = None


class Opaque:
    """A type that is flattened by a rule of its user's."""

    def __init__(self, value: Any) -> None:
        self.value = value


torch.export.register_dataclass(Made)
torch.utils._pytree.register_pytree_node(
    Opaque,
    lambda x: ([x.value], None),
    lambda values, _: Opaque(*values),
    serialized_type_name="tests.Opaque",
)


def test_data_classes_are_named_tuples_of_their_fields() -> None:
    class Scale(torch.nn.Module):
        def forward(self, given: Any, table: Any, *, gain: Any) -> Any:
            return Made(given.value * gain, {"sum": table["y"][0] + given.parts[0]})

    x, y = np.arange(3, dtype="f"), np.ones(3, "f")
    traced = Made(torch.tensor(x), [torch.tensor(y)]), {"y": [torch.tensor(y)]}
    fn, params = rx.jax_function(Scale(), traced, example_kwargs={"gain": GAIN})
    given = Made(x, [y])
    for call in (fn, jax.jit(lambda p, t, gain: fn(p, given, t, gain=gain))):
        args = (params, given) if call is fn else (params,)
        made = call(*args, {"y": [y]}, gain=np.float32(2))
        np.testing.assert_array_equal(made.value, x * 2)
        np.testing.assert_array_equal(made.parts["sum"], y * 2)
        assert made.more is None
    with pytest.raises(CallError, match="is a Made of value, parts, more; given ndarray"):
        fn(params, x, {"y": [y]}, gain=np.float32(2))


def test_results_of_a_type_of_the_users_are_a_row_and_arguments_stay_nested() -> None:
    class Scale(torch.nn.Module):
        def forward(self, table: Any) -> Any:
            return Opaque(table["y"][0] * 2)

    fn, params = rx.jax_function(Scale(), ({"y": [torch.ones(3)]},))
    (made,) = fn(params, {"y": [np.ones(3, "f")]})
    np.testing.assert_array_equal(made, np.full(3, 2, "f"))


def test_remat_and_precision(words: Any) -> None:
    program = exported(words)
    ids, gain = IDS.numpy(), GAIN.numpy()
    fn, params = rx.jax_function(program)
    again, _ = rx.jax_function(program, remat=["layers.*"])
    low, small = rx.jax_function(program, dtype="bfloat16")

    def grad(f: Any, p: Any) -> Any:
        return jax.grad(lambda p: loss_of(f(p, ids, gain=gain)))(p)

    text = str(jax.make_jaxpr(lambda p: grad(again, p))(params))
    assert text.count("remat") >= 2
    assert "remat" not in str(jax.make_jaxpr(lambda p: grad(fn, p))(params))
    plain, repeated = jax.jit(lambda p: (grad(fn, p), grad(again, p)))(params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), plain, repeated
    )
    assert {str(x.dtype) for x in jax.tree.leaves(small)} == {"bfloat16"}
    made = jax.jit(lambda p: low(p, ids, gain=gain))(small)
    assert made["logits"].dtype == jnp.float32
    want = words(IDS, gain=GAIN)["logits"].detach().numpy()
    np.testing.assert_allclose(made["logits"], want, atol=0.05 * np.abs(want).max())
    lowered = jax.jit(lambda p: low(p, ids, gain=gain)).lower(small).as_text()
    dots = [line for line in lowered.splitlines() if "stablehlo.dot_general" in line]
    assert dots
    assert all("bf16" in line for line in dots)


def test_what_does_not_fit_is_one_error_with_its_path(words: Any) -> None:
    fn, params = rx.jax_function(exported(words))
    ids, gain = IDS.numpy(), GAIN.numpy()
    bad = jax.tree.map(lambda x: x, params)
    bad["layers"]["1"]["out"]["bias"] = jnp.zeros(9)
    with pytest.raises(
        CallError, match=r"params\['layers'\]\['1'\]\['out'\]\['bias'\].*\[8\].*\[9\]"
    ):
        fn(bad, ids, gain=gain)
    bad["layers"]["1"]["out"]["bias"] = jnp.zeros(8, jnp.int32)
    with pytest.raises(CallError, match=r"\['bias'\]: expected float32\[8\], given int32\[8\]"):
        fn(bad, ids, gain=gain)
    del bad["layers"]["1"]["out"]["bias"]
    with pytest.raises(CallError, match=r"params\['layers'\]\['1'\]\['out'\]\['bias'\] is missing"):
        fn(bad, ids, gain=gain)
    with pytest.raises(CallError, match=r"params\['more'\] is no weight"):
        fn({**params, "more": jnp.zeros(1)}, ids, gain=gain)
    with pytest.raises(CallError, match="gain"):
        fn(params, ids)
    with pytest.raises(CallError, match=r"\(2, 4\)|2, 4"):
        fn(params, ids[:, :4], gain=gain)


def test_some_are_trainable(words: Any) -> None:
    fn, params = rx.jax_function(exported(words), trainable=["layers.1.*", "scale"])
    assert set(params) == {"layers", "scale"}
    assert set(params["layers"]) == {"1"}
    assert "embed" in fn.buffers
    with pytest.raises(ValueError, match="x64"):
        rx.jax_function(exported(words), x64="perhaps")
    for option, what in (("trainable", "weight"), ("remat", "module")):
        with pytest.raises(ValueError, match=rf"{option}: 'layer\.1\.\*' fits no {what}; there"):
            rx.jax_function(exported(words), **{option: ["layers.0.*", "layer.1.*"]})
    _, none = rx.jax_function(exported(words), trainable=[])
    assert none == {}


class Branching(torch.nn.Module):
    """A loop and branches whose float32 meets weights inside."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(3, 4)
        self.out = torch.nn.Linear(4, 3)

    def forward(self, x: Any, first: Any) -> Any:
        made, last = self.gru(x)
        made = torch.cond(
            first, lambda y: y @ self.out.weight.T, lambda y: y[:, :, 1:] * 2, (made,)
        )
        return made, last


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_loops_and_branches_in_lower_precision() -> None:
    torch.manual_seed(0)
    module = Branching()
    x, first = torch.randn(5, 2, 3), torch.tensor(True)
    fn, params = rx.jax_function(module, (x, first), dtype="bfloat16")
    for branch in (True, False):
        made = jax.jit(fn)(params, x.numpy(), branch)
        for y, want in zip(made, module(x, torch.tensor(branch)), strict=True):
            assert y.dtype == np.float32
            np.testing.assert_allclose(y, want.detach(), atol=0.02)
    grads = jax.jit(jax.grad(lambda p: sum(y.sum() for y in fn(p, x.numpy(), True))))(params)
    made, last = module.gru(x)
    (module.out(made).sum() + last.sum()).backward()
    for name, weight in module.gru.named_parameters():
        assert grads["gru"][name].dtype == jnp.bfloat16
        np.testing.assert_allclose(grads["gru"][name].astype("f"), weight.grad, atol=0.1)


class Places(torch.nn.Module):
    def forward(self, at: Any) -> Any:
        return torch.where(at > 1, at + 3, at)


def test_a_function_follows_the_x64_flag() -> None:
    at = torch.arange(3)
    fn, params = rx.jax_function(Places(), (at,), x64="jax")
    for wide in (False, True, False):
        with jax.enable_x64(wide):
            made = jax.jit(fn)(params, at.numpy())
        assert made.dtype == ("int64" if wide else "int32")
        np.testing.assert_array_equal(made, [0, 1, 5])


class Scaled(torch.nn.Module):
    def forward(self, x: Any, *, scale: float) -> Any:
        return x * scale


def test_a_traced_number_of_python_is_refused_with_its_path() -> None:
    fn, params = rx.jax_function(Scaled(), (torch.ones(2),), example_kwargs={"scale": 2.0})
    x = np.ones(2, np.float32)
    made = jax.jit(fn, static_argnames="scale")(params, x, scale=2.0)
    np.testing.assert_array_equal(made, [2, 2])
    for scale in (2.0, np.full(2, 2.0, np.float32)):
        with pytest.raises(CallError, match=r"\['scale'\] was 2.0 .*static_argnames"):
            jax.jit(fn)(params, x, scale=scale)
    with pytest.raises(CallError, match=r"given 3\.0"):
        fn(params, x, scale=3.0)


class Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(3)

    def forward(self, x: Any) -> Any:
        return F.relu6(self.bn(self.conv(x))).amax((2, 3))


def test_gradients_reach_what_is_folded_away() -> None:
    torch.manual_seed(1)
    model = Normed().eval()
    model.bn.running_var.fill_(0.3)
    x = torch.randn(2, 2, 6, 6)
    fn, params = rx.jax_function(model, (x,))
    assert set(fn.buffers["bn"]) == {"running_mean", "running_var"}
    grad = jax.jit(jax.grad(lambda p: (fn(p, x.numpy()) ** 2).sum()))(params)
    (model(x) ** 2).sum().backward()
    for name, p in model.named_parameters():
        outer, inner = name.split(".")
        np.testing.assert_allclose(grad[outer][inner], p.grad, rtol=2e-3, atol=1e-4, err_msg=name)


def test_a_model_in_training_mode_gives_new_buffers() -> None:
    torch.manual_seed(1)
    model = Normed().train()
    x = torch.randn(2, 2, 6, 6)
    fn, params = rx.jax_function(torch.export.export(model, (x,)))
    made, after = fn.apply(params, fn.buffers, x.numpy())
    want = model(x)
    np.testing.assert_allclose(made, want.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after["bn"]["running_mean"], model.bn.running_mean, rtol=1e-4)
    assert int(after["bn"]["num_batches_tracked"]) == 1


def test_parameters_that_a_model_changes_are_no_parameters_of_the_function() -> None:
    """torch trains what the call made of them; who asks for that, or for nothing, is told."""
    ids, table = torch.tensor([1, 2]), torch.nn.Embedding(5, 3, max_norm=0.5)
    with pytest.warns(UserWarning, match="weight: the model itself changes this parameter"):
        fn, params = rx.jax_function(table, (ids,))
    assert not params
    assert list(fn.buffers) == ["weight"]
    with pytest.raises(ValueError, match=r"trainable: weight: .*max_norm.* cannot be trained"):
        rx.jax_function(table, (ids,), trainable=["weight"])
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3)).train()  # whose state is no parameter
    fn, params = rx.jax_function(model, (torch.ones(2, 3),), trainable=["*"])
    assert list(params["0"]) == ["weight", "bias"]


class Hollow(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.none = torch.nn.Parameter(torch.zeros(0, 3))
        self.some = torch.nn.Parameter(torch.ones(2, 3))

    def forward(self, x: Any) -> Any:
        return x @ torch.cat([self.none, self.some]).T


def test_parameters_without_elements_are_there() -> None:
    fn, params = rx.jax_function(Hollow(), (torch.ones(1, 3),))
    x = np.ones((1, 3), np.float32)
    grads = jax.jit(jax.grad(lambda p: fn(p, x).sum()))(params)
    assert jax.tree.map(jnp.shape, grads) == {"none": (0, 3), "some": (2, 3)}
    np.testing.assert_array_equal(jax.jit(functools.partial(fn, params))(x), [[3.0, 3.0]])
    assert list(rx.jax_function(Hollow(), (torch.ones(1, 3),), trainable=["some"])[1]) == ["some"]


# ---- JAX's own
class Pair(NamedTuple):
    left: Any
    right: Any


def test_from_jax_and_back_keeps_trees() -> None:
    def program(state: Any, x: Any, *, scale: Any) -> Any:
        return Pair(state["a"].left @ x * scale, [state["a"].right, {"n": x.sum()}])

    state = {"a": Pair(np.ones((2, 3), "f"), np.arange(2, dtype="f"))}
    x = np.arange(3, dtype="f")
    fn, params = extract_jax(from_jax(program, state, x, scale=np.float32(2)))
    made, want = fn(params, state, x, scale=np.float32(2)), program(state, x, scale=np.float32(2))
    assert type(made) is Pair
    assert jax.tree.structure(made) == jax.tree.structure(want)
    jax.tree.map(np.testing.assert_allclose, made, want)
    with pytest.raises(CallError, match=r"\['a'\]"):
        fn(params, {"b": state["a"]}, x, scale=np.float32(2))


def test_to_jax_is_differentiated_and_runs_as_the_machine_does() -> None:
    x = np.linspace(-1, 1, 6, dtype="f").reshape(2, 3)
    fn = to_jax(from_jax(lambda a: jnp.tanh(a) @ a.T, x))
    assert isinstance(fn(x), jax.Array)
    want = jax.grad(lambda a: (jnp.tanh(a) @ a.T).sum())(x)
    np.testing.assert_allclose(jax.grad(lambda a: fn(a).sum())(x), want, rtol=1e-5)
    two = np.stack([x, 2 * x])
    np.testing.assert_allclose(jax.vmap(fn)(two), [fn(a) for a in two], rtol=1e-5)


# ---- 64 bits, symbolic shapes
def test_wide_integers_are_exact_or_refused() -> None:
    big = 2**40
    mod = from_source(
        f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "int64"), y: R.Tensor((2,), "float32")):
        z = R.add(x, R.const({big}, "int64"))
        return (z, R.multiply(y, R.astype(R.subtract(z, R.const({big}, "int64")), "float32")))
"""
    )
    fn, params = extract_jax(mod)
    assert params == {}
    x, y = np.array([1, -3]), np.ones(2, "f")
    wide, _ = jax.jit(lambda x, y: fn({}, x, y))(jnp.asarray(x), y)
    assert wide.dtype == np.int64
    np.testing.assert_array_equal(wide, x + big)
    np.testing.assert_array_equal(jax.grad(lambda y: fn({}, x, y)[1].sum())(y), x)
    with pytest.raises(UnsupportedError, match=str(big)):
        extract_jax(mod, x64="jax")


def test_symbolic_shapes_are_those_of_the_call() -> None:
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        return R.sum(R.nn.softmax(x), axis=[1])
"""
    )
    fn, _ = extract_jax(mod)
    for n in (2, 3):
        assert fn({}, np.ones((n, 4), "f")).shape == (n,)
    with pytest.raises(CallError, match="4"):
        fn({}, np.ones((2, 5), "f"))


# ---- ONNX
def test_an_onnx_model_by_names() -> None:
    onnx = pytest.importorskip("onnx")
    helper, array = onnx.helper, onnx.numpy_helper.from_array
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((70, 4)).astype("f"), "b": np.zeros(4, "f")}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Elu", ["h"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", 1, [2, 70])],
        [value("y", 1, [2, 4])],
        [array(w, n) for n, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    from relax2xla.frontend.onnx import from_onnx

    fn, params = extract_jax(from_onnx(model))
    x = rng.standard_normal((2, 70)).astype("f") * 30  # exponentials overflow
    h = x @ weights["w"] + weights["b"]
    want = np.where(h > 0, h, np.expm1(np.minimum(h, 0)))
    np.testing.assert_allclose(fn(params, x=x), want, rtol=1e-4, atol=1e-4)
    grad = jax.grad(lambda p: fn(p, x).sum())(params)
    slope = np.where(h > 0, 1, np.exp(np.minimum(h, 0)))
    np.testing.assert_allclose(grad["w"], x.T @ slope, rtol=1e-3, atol=1e-3)
    with pytest.raises(CallError, match="z is no argument"):
        fn(params, z=x)


def test_weights_of_onnx_recurrences_have_gradients() -> None:
    helper = pytest.importorskip("onnx").helper
    from onnx import numpy_helper

    from relax2xla.frontend.onnx import from_onnx

    rng = np.random.default_rng(0)
    shapes = {"W": (2, 3, 4), "R": (2, 3, 3), "B": (2, 6)}
    weights = {n: rng.standard_normal(s).astype("f") for n, s in shapes.items()}
    node = helper.make_node("RNN", ["x", *weights], ["y"], hidden_size=3, direction="bidirectional")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, [5, 2, 4])],
        [helper.make_tensor_value_info("y", 1, [5, 2, 2, 3])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    fn, params = extract_jax(from_onnx(model))
    assert {n: w.shape for n, w in params.items()} == shapes
    x = rng.standard_normal((5, 2, 4)).astype("f")

    def plain(p: Any) -> Any:
        made: list[Any] = []
        for d, xs in enumerate((x, x[::-1])):
            w, r, (bias, more) = p["W"][d], p["R"][d], p["B"][d].reshape(2, 3)
            h, states = jnp.zeros((2, 3)), []
            for row in xs:
                h = jnp.tanh(row @ w.T + h @ r.T + bias + more)
                states.append(h)
            made.append(jnp.stack(states[:: 1 - 2 * d]))
        return jnp.stack(made, 1)

    def loss(y: Any) -> Any:
        return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum()

    np.testing.assert_allclose(fn(params, x), plain(weights), atol=1e-6)
    got, want = jax.jit(
        lambda p: (jax.grad(lambda p: loss(fn(p, x)))(p), jax.grad(lambda p: loss(plain(p)))(p))
    )(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want)


def test_constants_of_a_program_with_named_weights_are_buffers() -> None:
    helper = pytest.importorskip("onnx").helper
    from onnx import numpy_helper

    from relax2xla.frontend.onnx import from_onnx

    nodes = [  # with a seed, what is drawn is a constant
        helper.make_node("Dropout", ["x", "ratio", "training"], ["h"], seed=3),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    weights = {"w": np.ones((64, 3), "f"), "ratio": np.array(0.5, "f"), "training": np.array(True)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, [2, 64])],
        [helper.make_tensor_value_info("y", 1, [2, 3])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    fn, params = extract_jax(from_onnx(model))
    assert list(params) == ["w"]
    assert [b.shape for b in fn.buffers.values()] == [(2, 64)]


# ---- places and sizes
ANNOTATED = """
from tvm.script import ir as I, relax as R

@I.ir_module
class Module:
    I.module_attrs({"device_num": 2})
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @R.function
    def main(
        x: R.DTensor((4, 8), "float32", "mesh[0]", "R"),
        w: R.DTensor((8, 6), "float32", "mesh[0]", "S[1]"),
    ):
        y = R.matmul(x, w)
        z = R.dist.redistribute(y, device_mesh="mesh[0]", placement="R")
        return z
"""


def test_annotations_of_devices_are_no_part_of_the_function() -> None:
    """`R.dist` says where values lie: values and gradients are those of one device."""
    fn, params = extract_jax(from_source(ANNOTATED))
    x, w = (np.random.default_rng(0).standard_normal(s).astype("f") for s in ((4, 8), (8, 6)))
    np.testing.assert_allclose(jax.jit(fn)(params, x, w), x @ w, rtol=1e-5, atol=1e-5)
    grad = jax.grad(lambda w: fn(params, x, w)[:, 0].sum())(w)
    np.testing.assert_allclose(grad[:, 0], x.sum(0), rtol=1e-5, atol=1e-5)


class Chosen(torch.nn.Module):
    """Rows that a mask has, and pieces that positions cut."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: Any, mask: Any, at: Any) -> Any:
        y = self.linear(x)
        return y.masked_select(mask).sin(), *torch.tensor_split(x.exp(), at)


def test_sizes_of_known_values_are_those_of_the_call() -> None:
    torch.manual_seed(0)
    module, x = Chosen(), torch.randn(5, 4)
    mask, at = torch.rand(5, 3) > 0.4, torch.tensor([1, 3])
    fn, params = rx.jax_function(module, (x, mask, at))

    def total(made: Any) -> Any:
        return sum((y * y).sum() for y in made)

    for m, cuts in ((mask, [1, 3]), (~mask, [0, 4])):
        known = m.numpy(), np.array(cuts)
        given = x.clone().requires_grad_()
        want = module(given, m, torch.tensor(cuts))
        total(want).backward()
        for got, w in zip(fn(params, x.numpy(), *known), want, strict=True):
            np.testing.assert_allclose(got, w.detach(), rtol=1e-5, atol=1e-6)
        loss = jax.jit(lambda p, x, known=known: total(fn(p, x, *known)))
        slopes = jax.grad(loss, (0, 1))(params, x.numpy())
        np.testing.assert_allclose(slopes[1], given.grad, rtol=1e-5, atol=1e-5)
        weight = module.linear.weight.grad
        np.testing.assert_allclose(slopes[0]["linear"]["weight"], weight, rtol=1e-5, atol=1e-5)
        module.zero_grad()
    # JAX's arrays, whose integers are of 32 bits.
    made = fn(params, x.numpy(), jnp.asarray(mask), jnp.array([1, 3]))
    assert [y.shape for y in made[1:]] == [(1, 4), (2, 4), (2, 4)]


@pytest.mark.parametrize("op", ["NonZero", "Unique", "Compress", "NonMaxSuppression"])
def test_sizes_of_known_values_of_onnx(op: str) -> None:
    reference = pytest.importorskip("onnx.reference")
    from tests.importers.onnx.support import one

    x = np.array([0.0, 1.5, 2.5, 1.5], np.float32)
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32)
    scores, most = np.array([[[0.9, 0.75, 0.6]]], np.float32), np.array([3])
    given = {
        "Compress": [x, np.array([True, False, True, True])],
        "NonMaxSuppression": [boxes, scores, most, np.array([0.5], np.float32)],
    }
    model, inputs = one(op, given.get(op, [x]))
    fn, params = rx.jax_function(model)
    want = reference.ReferenceEvaluator(model).run(
        None, dict(zip((i.name for i in model.graph.input), inputs, strict=True))
    )
    np.testing.assert_array_equal(fn(params, *inputs), want[0])
    if op == "Compress":
        slope = jax.grad(lambda x: (fn(params, x, *inputs[1:]) ** 2).sum())(x)
        np.testing.assert_array_equal(slope, 2 * x * inputs[1])
    else:
        with pytest.raises(UnsupportedError, match=r"values of x0.*, which JAX traces"):
            jax.jit(fn)(params, *inputs)


def test_sizes_of_traced_values_are_refused_by_name() -> None:
    module, x = Chosen(), torch.ones(5, 4)
    mask, at = torch.ones(5, 3) > 0, torch.tensor([1, 3])
    mod = from_exported_program(module, (x, mask, at))
    assert {g.op for g in gaps(mod)} == {"relax.nonzero", "relax.tensor_to_shape"}
    assert all("have to be known" in g.reason for g in gaps(mod))
    fn, params = extract_jax(mod)
    with pytest.raises(
        UnsupportedError, match=r"values of mask, at, which JAX traces: relax\.nonzero"
    ):
        jax.jit(fn)(params, x.numpy(), mask.numpy(), at.numpy())


class Pruned(torch.nn.Module):
    """What is left depends on a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(4))

    def forward(self, x: Any) -> Any:
        return x.masked_select(self.scale > 0)


def test_sizes_of_weights_are_refused() -> None:
    """The caller may give other weights, of which the sizes would not know."""
    mod = from_exported_program(Pruned(), (torch.ones(3, 4),))
    with pytest.raises(UnsupportedError, match=r"relax\.nonzero x1: .*weights.*\(scale\)"):
        extract_jax(mod)


def test_weights_are_asked_to_be_in_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    from relax2xla.vm.pjrt import allocator

    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(allocator, "to_large_pages", asked.extend)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3))
    _, params = extract_jax(
        from_exported_program(torch.export.export(network, (torch.ones(2, 4),)))
    )
    leaves = jax.tree.leaves(params)
    assert sorted(asked) == sorted((p.unsafe_buffer_pointer(), p.nbytes) for p in leaves)

"""Functions of JAX over weights that are arrays: the machine's program, and rows for JAX."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from relax2xla import processor
from relax2xla.errors import CallError
from relax2xla.frontend.torch import from_exported_program
from relax2xla.interop.jax import extract_jax, from_jax, to_jax
from relax2xla.kernels.products import FAMILY, Product, pays
from relax2xla.vm.pjrt.native_calls import functions
from tests.processes import run_python

torch = pytest.importorskip("torch")


@functools.cache
def have_calls() -> bool:
    """Whether calls are of functions in C++: this machine compiles them and they are faster.

    Asked by tests alone: compiling takes seconds, in which no process could collect its tests.
    """
    return pays(Product((64, 768), 1024)) and bool(functions(FAMILY))


def of_network() -> int:
    """The calls in the network below."""
    return 2 if have_calls() else 0


class Network(torch.nn.Module):
    """A convolution and a product that are large enough for calls, and a buffer of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(32)
        self.linear = torch.nn.Linear(32, 256)
        self.register_buffer("places", torch.arange(256) % 3)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        y = torch.nn.functional.gelu(self.linear(y)) * self.places
        return {"mean": y.mean(), "values": y, "kind": y.argmax(-1)}


X = np.random.default_rng(0).normal(size=(1, 16, 12, 12)).astype("float32")


@pytest.fixture(scope="module")
def made() -> Any:
    torch.manual_seed(0)
    module = Network().eval()
    with torch.no_grad():
        expected = module(torch.from_numpy(X))
    exported = torch.export.export(module, (torch.from_numpy(X),))
    fn, params = extract_jax(from_exported_program(exported))
    return module, {k: v.numpy() for k, v in expected.items()}, fn, params


def close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    for f, w in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(f), np.asarray(w), rtol=tolerance, atol=tolerance)


def primitives(f: Any, *args: Any) -> list[str]:
    return [e.primitive.name for e in jax.make_jaxpr(f)(*args).jaxpr.eqns]


def loss(f: Any, *args: Any) -> Any:
    return (f(*args)["values"] ** 2).sum()


def calls(f: Any, *args: Any) -> int:
    return jax.jit(f).lower(*args).as_text().count("stablehlo.custom_call")


def test_weights_that_are_known_or_given_make_programs_with_calls(made: Any) -> None:
    _, expected, fn, params = made
    held = functools.partial(fn, params)
    for f, args in ((held, (X,)), (fn, (params, X))):
        assert primitives(f, *args) == (
            ["relax2xla_held"] if have_calls() else primitives(f, *args)
        )
        assert calls(f, *args) == of_network()
    for found in (held(X), jax.jit(held)(X), jax.jit(fn)(params, X)):
        close(found, expected)
        assert found["kind"].dtype == np.int64


def test_given_weights_are_read_where_they_lie(made: Any) -> None:
    """No weight is laid out before it is used, and each call has those that it is given."""
    module, _, fn, params = made
    compiled = jax.jit(fn).lower(params, X).compile().as_text() or ""
    # A copy would have the results last, or panels of 16.
    copies = ("f32[3,3,16,32]", "f32[32,256]", "f32[16,32,16]")
    assert not any(shape in compiled for shape in copies) or not have_calls()
    jitted = jax.jit(fn)
    for factor in (1, 3):
        other = jax.tree.map(lambda w, by=factor: by * w, params)
        with torch.no_grad():
            changed = Network().eval()
            changed.load_state_dict(module.state_dict())
            for p in changed.parameters():
                p *= factor
            wanted = {k: v.numpy() for k, v in changed(torch.from_numpy(X)).items()}
        close(jitted(other, X), wanted)
        close(jitted(other, 1 * X), wanted)


def as_rows(fn: Any) -> Any:
    """The function in operations of ``jax.lax`` alone, under ``jax.jit`` as well.

    References are compiled as a whole: without, XLA compiles each of their operations.
    """

    def rows(*args: Any) -> Any:
        with jax.disable_jit():
            return fn(*args)

    return rows


def forward(f: Any, at: Any) -> Any:
    """Value and derivative of a reference at and along ``at``."""
    return jax.jit(lambda at: jax.jvp(f, (at,), (at,)))(at)


def test_rows_are_rows_under_jit(made: Any) -> None:
    """What the derivatives and maps below are compared with."""
    _, _, fn, params = made
    for rows, args in ((as_rows(functools.partial(fn, params)), (X,)), (as_rows(fn), (params, X))):
        assert "conv_general_dilated" in primitives(rows, *args)
        assert calls(rows, *args) == 0


def test_derivatives_by_given_weights_are_those_of_the_rows(made: Any) -> None:
    _, _, fn, params = made
    rows = as_rows(fn)
    wanted = jax.jit(jax.grad(lambda p: loss(rows, p, X)))(params)
    jitted = jax.jit(fn)
    forms = {
        "of the function": jax.grad(lambda p: loss(fn, p, X)),
        "jitted": jax.jit(jax.grad(lambda p: loss(fn, p, X))),
        "of what was jitted": jax.grad(lambda p: loss(jitted, p, X)),
        "kept": jax.grad(jax.checkpoint(lambda p: loss(fn, p, X))),
        "kept of what was jitted": jax.jit(jax.grad(jax.checkpoint(lambda p: loss(jitted, p, X)))),
    }
    for name, f in forms.items():
        close(f(params), wanted, 2e-4)
        assert calls(f, params) == 0, name
    # Of some weights alone, and forward.
    part = {"linear": params["linear"]}
    some = jax.grad(lambda p: loss(jitted, {**params, **p}, X))(part)
    close(some, {"linear": wanted["linear"]}, 2e-4)
    ways = jax.jvp(lambda p: loss(jitted, p, X), (params,), (params,))
    close(ways, forward(lambda p: loss(rows, p, X), params), 2e-4)


def test_given_weights_in_maps_and_loops(made: Any) -> None:
    _, expected, fn, params = made
    rows, jitted = as_rows(fn), jax.jit(fn)
    batch = jnp.stack([X, 2 * X])
    wanted = jax.jit(jax.vmap(rows, (None, 0)))(params, batch)
    close(jax.vmap(jitted, (None, 0))(params, batch), wanted)
    close(jax.jit(jax.vmap(fn, (None, 0)))(params, batch), wanted)
    several = jax.tree.map(lambda w: jnp.stack([w, w]), params)
    close(jax.vmap(jitted, (0, None))(several, X)["values"][1], expected["values"])

    def total(params: Any, xs: Any) -> Any:
        def step(total: Any, x: Any) -> Any:
            return total + fn(params, x)["mean"], None

        return jax.lax.scan(step, 0.0, xs)[0]

    close(jax.jit(total)(params, jnp.stack([X, X, X])), 3 * expected["mean"])
    assert calls(total, params, batch) == of_network()
    slopes = jax.jit(jax.grad(total))(params, jnp.stack([X]))
    close(slopes, jax.jit(jax.grad(lambda p: rows(p, X)["mean"]))(params), 2e-4)


def test_given_weights_for_others_are_rows(made: Any) -> None:
    _, expected, fn, params = made
    exported = export.export(jax.jit(fn))(params, X)
    assert "custom_call" not in exported.mlir_module()
    close(export.deserialize(exported.serialize()).call(params, X), expected)
    on_gpu = export.export(jax.jit(fn), platforms=["cuda"])(params, X)
    assert "custom_call" not in on_gpu.mlir_module()
    again, weights = extract_jax(from_jax(fn, params, X))
    close(again(weights, params, X), expected)


def test_processors_that_nobody_knows_have_rows(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, expected, fn, params = made
    monkeypatch.setattr(processor, "kind", lambda: "")

    def anew(*args: Any) -> Any:
        """JAX keeps what it traced of ``fn`` before."""
        return fn(*args)

    assert "conv_general_dilated" in primitives(anew, params, X)
    assert calls(anew, params, X) == 0
    close(jax.jit(anew)(params, X), expected)


class Tied(torch.nn.Module):
    """A weight that is read twice, and one without axes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(500, 128)
        self.scale = torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, ids: Any) -> Any:
        return torch.nn.functional.linear(self.words(ids) * self.scale, self.words.weight)


def test_given_weights_that_are_tied_or_numbers() -> None:
    torch.manual_seed(2)
    module, ids = Tied().eval(), torch.randint(0, 500, (2, 40))
    fn, params = extract_jax(from_exported_program(torch.export.export(module, (ids,))))
    assert calls(fn, params, ids.numpy()) == of_network() // 2
    other = jax.tree.map(lambda w: np.asarray(w) * np.float32(0.5), params)
    for given, factor in ((params, 1), (other, 1 / 8)):
        wanted = factor * module(ids).detach().numpy()
        close(jax.jit(fn)(given, ids.numpy()), wanted, 1e-4)
        close(fn(given, ids.numpy()), wanted, 1e-4)


def test_small_functions_show_their_operations() -> None:
    x = torch.randn(3, 8)
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
    fn, params = extract_jax(from_exported_program(torch.export.export(module, (x,))))
    assert "dot_general" in primitives(fn, params, x.numpy())
    with torch.no_grad():
        close(jax.jit(fn)(params, x.numpy()), module(x).numpy())


def test_weights_that_were_changed_are_prepared_anew(made: Any) -> None:
    module, expected, fn, params = made
    held = jax.jit(functools.partial(fn, params))
    twice = jax.tree.map(lambda w: 2 * w, params)
    with torch.no_grad():
        changed = Network().eval()
        changed.load_state_dict(module.state_dict())
        for p in changed.parameters():
            p *= 2
        wanted = {k: v.numpy() for k, v in changed(torch.from_numpy(X)).items()}
    close(jax.jit(functools.partial(fn, twice))(X), wanted)
    close(fn(twice, X), wanted)
    # What was traced before keeps its own.
    close(held(X), expected)
    other = fn.with_buffers({**fn.buffers, "places": jnp.zeros(256, int)})
    assert not other(params, X)["values"].any()


def test_what_jax_does_to_it_is_what_it_does_to_the_rows(made: Any) -> None:
    _, _, fn, params = made
    held = functools.partial(fn, params)
    rows = as_rows(held)

    def loss(f: Any) -> Any:
        return lambda x: f(x)["mean"] ** 2

    batch = jnp.stack([X, 2 * X])
    slope = jax.jit(jax.grad(loss(rows)))
    close(jax.jit(jax.grad(loss(held)))(X), slope(X))
    close(jax.jvp(loss(held), (X,), (X,)), forward(loss(rows), X))
    close(jax.jit(jax.vmap(held))(batch), jax.jit(jax.vmap(rows))(batch))
    close(jax.vmap(jax.grad(loss(held)))(batch), jax.jit(jax.vmap(jax.grad(loss(rows))))(batch))

    def hessian(f: Any) -> Any:
        return jax.jit(lambda x: jax.jvp(jax.grad(loss(f)), (x,), (x,))[1])(X)

    close(hessian(held), hessian(rows))
    kept = jax.jit(jax.grad(jax.checkpoint(loss(held))))
    close(kept(X), slope(X))


def test_weights_can_be_donated_after_a_call(made: Any) -> None:
    _, expected, fn, params = made
    own = jax.tree.map(jnp.copy, params)
    close(fn(own, X), expected)
    doubled = jax.jit(lambda p: jax.tree.map(lambda w: 2 * w, p), donate_argnums=0)(own)
    assert own["conv"]["weight"].is_deleted()
    close(fn(doubled, X), jax.jit(fn)(doubled, X))
    with pytest.raises(CallError, match=r"weights are deleted.*: .*conv\.weight"):
        fn(own, X)


def test_loops_and_branches_hold_it(made: Any) -> None:
    _, expected, fn, params = made

    def step(total: Any, x: Any) -> Any:
        return total + jax.lax.cond(total < 0, lambda: 0.0, lambda: fn(params, x)["mean"]), total

    total, _ = jax.jit(lambda x: jax.lax.scan(step, 0.0, x))(jnp.stack([X, X, X]))
    close(total, 3 * expected["mean"])


def test_programs_for_others_have_rows_alone(made: Any) -> None:
    _, expected, fn, params = made
    held = functools.partial(fn, params)
    exported = export.export(jax.jit(held))(X)
    assert "custom_call" not in exported.mlir_module()
    close(export.deserialize(exported.serialize()).call(X), expected)
    mod = from_jax(held, X)
    assert "custom_call" not in mod.script()
    again, weights = extract_jax(mod)
    close(again(weights, X), expected)


def test_to_jax_is_the_machines_program_under_jit() -> None:
    torch.manual_seed(1)
    module = torch.nn.Linear(768, 1024).eval()
    x = torch.randn(64, 768)
    function = to_jax(from_exported_program(torch.export.export(module, (x,))))
    given = jnp.asarray(x.numpy())
    called = "custom_call" if have_calls() else "stablehlo"
    assert called in jax.jit(function).lower(given).as_text()
    with torch.no_grad():
        close(jax.jit(function)(given), [module(x).numpy()])
    slope = jax.grad(lambda v: function(v)[0].sum())(given)
    close(slope, np.broadcast_to(module.weight.detach().sum(0).numpy(), (64, 768)))


def test_several_devices_see_rows() -> None:
    code = """
import functools, jax, numpy as np, torch
from jax.sharding import NamedSharding, PartitionSpec as P
from relax2xla.interop.jax import jax_function
torch.manual_seed(0)
module = torch.nn.Linear(256, 512).eval()
x = torch.randn(64, 256)
fn, params = jax_function(module, (x,))
held = functools.partial(fn, params)
mesh = jax.make_mesh((4,), ("x",))
spread = jax.device_put(x.numpy(), NamedSharding(mesh, P("x")))
made = jax.jit(held)(spread)
assert len(made.sharding.device_set) == 4
np.testing.assert_allclose(made, module(x).detach().numpy(), rtol=1e-5, atol=1e-5)
"""
    run_python(code, devices=4)


def test_transformations_that_ask_for_rules_of_each_primitive_see_rows() -> None:
    """Taylor series, and functions of sparse arrays."""
    from jax.experimental.jet import jet
    from jax.experimental.sparse import BCOO, sparsify

    torch.manual_seed(0)
    module, x = torch.nn.Linear(768, 1024).eval(), jnp.full((64, 768), 0.1)
    fn, params = extract_jax(
        from_exported_program(torch.export.export(module, (torch.randn(64, 768),)))
    )
    held = functools.partial(fn, params)
    forms = {
        "known": held,
        "jitted": jax.jit(held),
        "called": lambda x: jax.jit(fn)(params, x),
    }

    def cubed(f: Any) -> Any:
        return lambda x: f(x) ** 3

    wanted = jet(cubed(as_rows(held)), (x,), ((x, x),))
    dense = as_rows(held)(x)
    for name, f in forms.items():
        close(jet(cubed(f), (x,), ((x, x),)), wanted, 1e-3)
        close(jax.jit(lambda x, f=f: jet(cubed(f), (x,), ((x, x),)))(x), wanted, 1e-3)
        for use_tracer in (False, True):
            given = BCOO.fromdense(x)
            close(sparsify(f, use_tracer=use_tracer)(given), dense, 1e-4)
        assert calls(f, x) == of_network() // 2, name

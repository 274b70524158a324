"""Derivatives of functions of ``extract_jax`` where rules differ, beside torch.autograd."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.frontend.torch import from_exported_program, from_fx
from relax2xla.interop.jax import extract_jax

torch = pytest.importorskip("torch")
F = torch.nn.functional


KINKS = [[-100.0, -4, -3, -1, -0.5, 0, 0.5, 1, 3, 6, 100]]
AT_KINKS = {
    "abs": torch.abs,
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp min": lambda x: x.clamp(min=0),
    "clamp by tensors": lambda x: torch.clamp(x, torch.tensor(-1.0), torch.tensor(1.0)),
    "clamp by equal tensors": lambda x: torch.clamp(x, 1 - x * 0, 1 + x * 0),
    "max_pool2d": lambda x: F.max_pool2d(x.clamp(-1, 1)[:, :9].reshape(1, 3, 3), 2, 1),
    "scatter amax": lambda x: (x * 0).scatter_reduce(
        1, torch.tensor([[0, 1] * 5 + [2]]), x, "amax"
    ),
    "scatter amin": lambda x: (x * 0).scatter_reduce(
        1, torch.tensor([[0] * 5 + [2] * 6]), x.clamp(-1, 1), "amin", include_self=False
    ),
    "ndtri": lambda x: torch.special.ndtri(x.clamp(0, 1)),
    "log_ndtr": lambda x: torch.special.log_ndtr(x.clamp(-6, 6)),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "logsigmoid": F.logsigmoid,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "softplus": F.softplus,
    "norm": lambda x: (x * 0).norm(dim=1),
    "norm of order 3": lambda x: torch.linalg.vector_norm(x * 0, 3),
    "std": lambda x: (x * 0).std(),
    "cosine": lambda x: F.cosine_similarity(x * 0, x),
    "max": lambda x: torch.cat([x, x], 1).max(1).values,
    "amax": lambda x: torch.cat([x, x], 1).amax(1),
    "maximum": lambda x: torch.maximum(x, x * 1),
    "power 0": lambda x: x**0,
    "power": lambda x: torch.pow(2.0, x / 10),
    "sqrt": lambda x: torch.sqrt(x.abs()),
    "where": lambda x: torch.where(x > 0, x.sqrt(), x),
    "cumprod": lambda x: (x / 4).cumprod(1),
    "prod": lambda x: (x / 4).prod(1),
    "softmax": lambda x: torch.softmax(torch.cat([x, x], 1), 1)[:, :11],
    "remainder": lambda x: torch.remainder(x, 2.0),
    "sinc": torch.sinc,
    "frexp": lambda x: torch.frexp(x).mantissa,
    "entr": lambda x: torch.special.entr(x.abs()),
    "logit": lambda x: torch.logit(x.clamp(-4, 4) / 8 + 0.5),
    "logit within": lambda x: torch.logit(x.clamp(-4, 4) / 8 + 0.5, 0.25),
    "digamma": lambda x: torch.digamma(x / 10 - 5.23),
    "lgamma": torch.lgamma,
    "polygamma": lambda x: torch.polygamma(1, x / 10 - 5.23),
    "nextafter": lambda x: torch.nextafter(x, x * 0),
    "topk": lambda x: x.topk(8).values,
    "median": lambda x: x.clamp(-1, 1).median(),
    "nanmedian": lambda x: x.clamp(-1, 1).nanmedian(),
    "cross entropy of 0 and 1": lambda x: F.binary_cross_entropy(
        x.clamp(0, 1), (x > 0.2).float(), reduction="none"
    ),
    "max_unpool1d": lambda x: F.max_unpool1d(x[:, None, :4], torch.tensor([[[0, 2, 2, 5]]]), 2),
    "pinv of rank 1": lambda x: torch.linalg.pinv(x.clamp(-4, 4).reshape(11, 1).expand(11, 3)),
    "pinv of symmetric matrices": lambda x: torch.linalg.pinv(  # of equal values, and of rank 1
        torch.stack([torch.diag(x[0, [6, 6, 8]]), x[0, 6:9] * x[0, 6:9, None]]), hermitian=True
    ),
    "atan2": lambda x: torch.atan2(x, x * 1),
    "l1": lambda x: F.l1_loss(x, x * 0),
    "fmax": lambda x: torch.fmax(x, x * 1),
    "fmin": lambda x: torch.fmin(x, x * 1),
    "xlogy": lambda x: torch.xlogy(x, torch.zeros(11)),
    "xlog1py": lambda x: torch.special.xlog1py(x, torch.full((11,), -2.0)),
    "i1": lambda x: torch.special.i1(x / 10),
    "i1e": torch.special.i1e,
    "i0e": torch.special.i0e,
    "norm of order 1/2": lambda x: torch.linalg.vector_norm(x.clamp(0, 1), 0.5),
    "norm of order -1": lambda x: torch.linalg.vector_norm(x.clamp(0, 1), -1),
    "grid_sample": lambda x: F.grid_sample(
        torch.arange(16.0).reshape(1, 1, 4, 4) ** 1.5,
        x.clamp(-1, 1)[:, :10].reshape(1, 1, 5, 2),
        padding_mode="border",
        align_corners=True,
    ),
    "multi margin": lambda x: F.multi_margin_loss(x, torch.tensor([7])),
    "multi margin squared": lambda x: F.multi_margin_loss(
        x, torch.tensor([7]), p=2, weight=torch.arange(11.0), reduction="sum"
    ),
    "padding": lambda x: F.embedding(torch.tensor([0, 1, 0]), x.reshape(11, 1), padding_idx=0),
}


def test_derivatives_at_kinks_are_those_of_torch() -> None:
    """All in one program, each of an argument of its own: one compilation, one gradient."""
    x = torch.tensor(KINKS)
    count = len(AT_KINKS)

    class All(torch.nn.Module):
        def forward(self, xs: list[Any]) -> Any:
            return [f(x) for f, x in zip(AT_KINKS.values(), xs, strict=True)]

    fn, params = rx.jax_function(All(), ([x.clone() for _ in range(count)],))

    def weighted(y: Any, cos: Any, arange: Any) -> Any:
        return (y * cos(arange(y.size if cos is jnp.cos else y.numel())).reshape(y.shape)).sum()

    @jax.jit
    @jax.grad
    def gradients(xs: list[Any]) -> Any:
        return sum(weighted(y, jnp.cos, jnp.arange) for y in fn(params, xs))

    got = gradients([x.numpy()] * count)
    wrong: list[str] = []
    for (name, f), g in zip(AT_KINKS.items(), got, strict=True):
        leaf = x.clone().requires_grad_(True)
        weighted(f(leaf), torch.cos, torch.arange).backward()
        if not np.allclose(g, leaf.grad, rtol=1e-4, atol=1e-5, equal_nan=True):
            wrong.append(f"{name}: {g}, torch has {leaf.grad.numpy()}")
    assert not wrong, "\n".join(wrong)


SMOOTH = {
    "softplus": F.softplus,
    "softplus of twice": lambda x: F.softplus(x, beta=2),
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "logits": lambda x: F.binary_cross_entropy_with_logits(x, (x > 0.2).float()),
    "weighted logits": lambda x: F.binary_cross_entropy_with_logits(
        x, x.detach().sigmoid(), x.detach() + 2, pos_weight=torch.tensor([1.0, 2, 3, 4])
    ),
    "soft margin": lambda x: F.multilabel_soft_margin_loss(x[None], (x[None] > 0.2).float()),
    "huber": lambda x: F.huber_loss(x, x.detach() * 0, delta=0.6),
    "smooth l1": lambda x: F.smooth_l1_loss(x, x.detach() * 0, beta=0.6),
    "i0": torch.i0,
    "i1": torch.special.i1,
}


def test_second_derivatives_where_a_size_has_none() -> None:
    """At 0, where these functions have all of them; formulas of sizes and maxima lose those."""
    x = torch.tensor([0.0, 0.5, -0.7, 3.0])

    class All(torch.nn.Module):
        def forward(self, xs: list[Any]) -> Any:
            return sum(f(x).sum() for f, x in zip(SMOOTH.values(), xs, strict=True))

    given = [x.clone() for _ in SMOOTH]
    fn, params = rx.jax_function(All(), (given,))
    slope = lambda xs: sum(g.sum() for g in jax.grad(lambda xs: fn(params, xs))(xs))  # noqa: E731
    got = jax.jit(jax.grad(slope))([x.numpy() for x in given])
    for (name, f), g in zip(SMOOTH.items(), got, strict=True):
        leaf = x.clone().requires_grad_(True)
        (first,) = torch.autograd.grad(f(leaf).sum(), leaf, create_graph=True)
        (want,) = torch.autograd.grad(first.sum(), leaf)
        np.testing.assert_allclose(g, want, rtol=1e-3, atol=1e-5, err_msg=name)


def test_derivatives_of_matrices() -> None:
    """Of what is read alone; of singular ones, where torch has 0 for the cofactors; of turns."""
    z = torch.tensor([[1 + 1j, 2], [0.5j, 1], [2, 3j]])
    a = torch.tensor([[1.0, 2, 0.3], [0.5, 3, 1], [0.2, 0.1, 2]])

    class All(torch.nn.Module):
        def forward(self, a: Any, z: Any) -> Any:
            found = torch.linalg.eigvals(a).abs().sum() + torch.linalg.svd(z)[1].sum()
            turn = (
                torch.linalg.slogdet(z[:2])[0]
                + torch.sgn(torch.cat([z.reshape(-1), z[0] * 0])).sum()
            )
            return found + turn.real + 2 * turn.imag

    fn, params = rx.jax_function(All(), (a, z))
    got = jax.jit(jax.grad(lambda a, z: fn(params, a, z), (0, 1)))(a.numpy(), z.numpy())
    leaves = [t.clone().requires_grad_(True) for t in (a, z)]
    All()(*leaves).backward()
    np.testing.assert_allclose(got[0], leaves[0].grad, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.conj(got[1]), leaves[1].grad, rtol=1e-3, atol=1e-4)
    singular = torch.tensor([[1.0, 2], [2, 4]])

    class Determinant(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.linalg.det(x) + torch.linalg.det(y)

    fn, params = rx.jax_function(Determinant(), (singular, torch.ones(3, 3)))
    pair = jax.grad(lambda x, y: fn(params, x, y), (0, 1))(singular.numpy(), np.ones((3, 3), "f"))
    np.testing.assert_allclose(pair[0], [[4, -2], [-2, 1]], atol=1e-5)
    np.testing.assert_allclose(pair[1], np.zeros((3, 3)), atol=1e-5)


class Reversed(torch.autograd.Function):
    """Its backward is not the derivative of its forward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return -grads[0]


class Inner(torch.nn.Module):
    apply_it = staticmethod(Reversed.apply)

    def forward(self, x: Any) -> Any:
        return self.apply_it(x) + Reversed.apply(x)


def test_a_backward_that_torch_export_leaves_out_is_warned_of() -> None:
    """Once for a class, with its place, wherever the module was imported; torch's own have none."""
    x = torch.ones(3)
    module = torch.nn.Sequential(torch.nn.Identity(), Inner())
    with pytest.warns(
        UserWarning, match=r"backward of Reversed, .*\(in 1, .*test_deriv.*:\d+\)"
    ) as w:
        fn, params = rx.jax_function(module, (x,))
    assert len(w) == 1
    np.testing.assert_array_equal(jax.grad(lambda x: fn(params, x).sum())(jnp.ones(3)), [4.0] * 3)
    mod = from_exported_program(module, (x,))
    rx.build(mod)  # for its values alone
    with pytest.warns(UserWarning, match="Reversed"):
        extract_jax(mod)

    class Checkpointed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True)

    rx.jax_function(Checkpointed(), (x.requires_grad_(),))


class Hooked(torch.nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.where = where
        if where == "module":
            self.inner.register_full_backward_hook(lambda module, given, made: None)
        if where == "parameter":
            self.inner.weight.register_hook(lambda grad: grad * 2)

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        if self.where == "value":
            y.register_hook(lambda grad: grad * 2)
        return y


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("module", "a module's backward hook"),
        ("parameter", "a hook on the gradient of inner.weight"),
        ("value", "a hook on a gradient"),
    ],
)
def test_hooks_of_gradients_are_warned_of(where: str, what: str) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    with pytest.warns(UserWarning, match=f"leaves out {what}") as seen:
        rx.jax_function(Hooked(where), (x,))
    assert len(seen) == 1


class MaskedOut(torch.nn.Module):
    """Attention whose second query sees no key."""

    def forward(self, q: Any, k: Any, v: Any, seen: Any) -> Any:
        attend = F.scaled_dot_product_attention
        score = torch.where(seen, q @ k.mT, -torch.inf)
        return (
            attend(q, k, v, attn_mask=seen),
            attend(q, k, v, attn_mask=torch.where(seen, 0.0, -torch.inf)),
            attend(q, k, v, attn_mask=seen, dropout_p=1e-7),
            torch.ops.aten._safe_softmax(score, -1),
        )


def test_rows_that_are_masked_out_have_no_gradient() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3, 4) for _ in range(3))
    seen = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    seen[0, 0, 1] = False
    seen[0, 0, 0, 2] = False
    fn, params = rx.jax_function(MaskedOut(), (q, k, v, seen))

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1, 2), has_aux=True)
    def gradients(q: Any, k: Any, v: Any) -> Any:
        made = fn(params, q, k, v, seen.numpy())
        return sum((y * y).sum() for y in made), made

    got, made = gradients(q.numpy(), k.numpy(), v.numpy())
    leaves = [x.requires_grad_() for x in (q, k, v)]
    truth = MaskedOut()(*leaves, seen)
    for y, want in zip(made, truth, strict=True):
        np.testing.assert_allclose(y, want.detach(), atol=1e-6)
    wants = torch.autograd.grad(sum((y * y).sum() for y in truth), leaves)
    for g, want in zip(got, wants, strict=True):
        np.testing.assert_allclose(g, want, atol=1e-5)


FACTORED = """
import torch, jax
import relax2xla as rx
class Factors(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.qr(x)
x = torch.tensor([[1.0, 2, 3], [2, 4, 7], [0, 1, 1]])
fn, params = rx.jax_function(Factors(), (x,))
q, r = fn(params, x.numpy())
assert abs(q @ r - x.numpy()).max() < 1e-5
"""


def test_lapack_is_loaded_by_what_calls_it_first() -> None:
    """In a process of its own: where it is not, the process ends."""
    made = subprocess.run([sys.executable, "-c", FACTORED], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


class Factors(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.qr(x)


@pytest.mark.parametrize(
    ("rows", "is_known"),
    [
        # The second reflection's sign is that of a rounding error.
        ([[1.0, 2, 3], [2, 4, 7], [0, 1, 1]], True),
        ([[3.0, 1], [1, 2], [2, 5], [1, 0]], True),
        ([[0.0, 0], [0, 0], [0, 0]], False),
        ([[1.0, 1], [0, 2], [0, 3]], False),
    ],
)
def test_derivatives_of_qr(rows: Any, is_known: bool) -> None:
    """Those of the factors that LAPACK gives; NaN where there is none, or none is known."""
    x = torch.tensor(rows, requires_grad=True)
    fn, params = rx.jax_function(Factors(), (x.detach(),))

    def weighted(parts: Any, cos: Any, arange: Any, size: Any) -> Any:
        return sum((y * cos(arange(size(y))).reshape(y.shape)).sum() for y in parts)

    got = jax.grad(lambda x: weighted(fn(params, x), jnp.cos, jnp.arange, jnp.size))(
        x.detach().numpy()
    )
    if not is_known:
        assert np.isnan(got).all()
        return
    weighted(torch.linalg.qr(x), torch.cos, torch.arange, torch.numel).backward()
    np.testing.assert_allclose(got, x.grad, rtol=1e-4, atol=1e-5)


class Exponential(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.matrix_exp(x)


def test_products_ask_for_no_64_bits_in_backward_passes() -> None:
    """Warnings are errors here."""
    x = torch.tensor([[0.3, -1.0], [0.5, 0.2]], requires_grad=True)
    fn, params = rx.jax_function(Exponential(), (x.detach(),))
    got = jax.grad(lambda x: fn(params, x).sum())(x.detach().numpy())
    torch.linalg.matrix_exp(x).sum().backward()
    np.testing.assert_allclose(got, x.grad, rtol=1e-4)


def test_second_derivatives_of_lgamma_left_of_zero() -> None:
    x = torch.tensor([-8.7, -3.3, -0.5, 0.4, 2.0])

    class Gamma(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.lgamma(x), torch.digamma(x)

    fn, params = rx.jax_function(Gamma(), (x,))
    ones = np.ones(5, "f")
    for place, order in ((0, 1), (0, 2), (1, 1)):
        derivative: Any = lambda x, place=place: fn(params, x)[place]  # noqa: E731
        for _ in range(order):
            derivative = functools.partial(_along, derivative, ones)
        want = torch.special.polygamma(order - 1 + place, x.double())
        np.testing.assert_allclose(derivative(x.numpy()), want, rtol=1e-4, atol=1e-5)


def _along(f: Any, way: Any, x: Any) -> Any:
    return jax.jvp(f, (x,), (way,))[1]


class Powers(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        exponents = torch.tensor([0.0, 1.0, 2.0, 3.0, -1.0])
        return x**1, x**0, x[:, None] ** exponents, torch.float_power(x, 1.0).float()


def test_second_derivatives_of_powers_at_zero() -> None:
    x = torch.tensor([0.0, 2.0, -1.5])
    fn, params = rx.jax_function(Powers(), (x,))

    def slope(x: Any) -> Any:
        return jax.grad(lambda x: sum(y.sum() for y in fn(params, x)))(x)

    first, second = jax.jit(lambda x: jax.jvp(slope, (x,), (jnp.ones(3),)))(x.numpy())
    # Of x**0, ..., x**3 and 1/x, and x**1 twice.
    want = [-np.inf, 3 + 4 + 12 - 0.25, 3 - 3 + 6.75 - 1 / 2.25]
    np.testing.assert_allclose(first, want, rtol=1e-6)
    np.testing.assert_allclose(second, [np.inf, 2 + 12 + 0.25, 2 - 9 - 2 / 3.375], rtol=1e-6)


def test_second_derivatives_of_logaddexp_where_numbers_are_equal() -> None:
    """Infinities and numbers that differ are beside them: none becomes NaN."""
    x = torch.tensor([1.0, 1.0, 2.0, 0.5, 2.0])
    y = torch.tensor([1.0, 3.0, 2.0, -torch.inf, 2.0])

    class Sums(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.logaddexp(x, y) + torch.logcumsumexp(x, 0)

    fn, params = rx.jax_function(Sums(), (x, y))
    way, weights = np.arange(1.0, 6.0, dtype="f"), torch.tensor([1.0, -2.0, 0.5, 3.0, 1.5])

    def gradient(x: Any) -> Any:
        return jax.grad(lambda v: (fn(params, v, y.numpy()) * weights.numpy()).sum())(x)

    twice = jax.grad(lambda v: (gradient(v) * way).sum())(x.numpy())
    given = x.double().requires_grad_()
    total = (Sums()(given, y.double()) * weights).sum()
    (first,) = torch.autograd.grad(total, given, create_graph=True)
    (want,) = torch.autograd.grad((first * torch.from_numpy(way)).sum(), given)
    plain = np.isfinite(want.numpy())
    # torch's own may be NaN beside an infinity.
    assert plain.sum() >= 4
    got = np.asarray(_along(gradient, way, x.numpy()))
    assert np.isfinite(twice).all()
    np.testing.assert_allclose(twice, got, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[plain], want.numpy()[plain], rtol=1e-4, atol=1e-5)


class Detached(torch.nn.Module):
    """What torch differentiates only in part, in all the ways that it has for this."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        with torch.no_grad():
            factor = self.inner(y).softmax(-1)
            angles = (self.table * 2).cos()
            with torch.enable_grad():
                again = self.inner(x)
        turned = torch.complex(y, x).detach() * torch.complex(x, y)
        return y * factor + angles, y.detach() * x, turned.real, again


def test_what_torch_detaches_has_no_gradient() -> None:
    torch.manual_seed(0)
    module, x = Detached(), torch.randn(2, 4, requires_grad=True)
    want = torch.autograd.grad(
        sum((p.sin().sum() for p in module(x)), torch.zeros(())), [x, *module.parameters()]
    )
    mod = from_exported_program(module, (x.detach(),))
    graph = torch.fx.symbolic_trace(module)  # which does not record regions
    assert from_fx(graph, [((2, 4), "float32")]).script().count("no_grad") == 2
    assert mod.script().count("no_grad") == 3, "of the factor and what is detached; not of angles"
    fn, params = extract_jax(mod)

    def loss(params: Any, x: Any) -> Any:
        return sum(jnp.sin(y).sum() for y in fn(params, x))

    of_params, of_x = jax.grad(loss, (0, 1))(params, x.detach().numpy())
    got = [of_x, of_params["inner"]["weight"], of_params["inner"]["bias"]]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


class OfWeights(torch.nn.Module):
    """Kinks in what depends on weights alone: equal largest ones, zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(torch.tensor([[1.0, 1.0, 0.5], [2.0, -1.0, 2.0]]))
        self.gains = torch.nn.Parameter(torch.tensor([0.0, -1.0, 1.0]))

    def forward(self, x: Any) -> Any:
        return x @ self.scores.softmax(-1).T, x * F.hardtanh(F.relu(self.gains))


def test_derivatives_of_what_depends_on_weights_alone_are_those_of_torch() -> None:
    module, x = OfWeights(), torch.tensor([[0.3, -1.0, 2.0]])
    total = sum((y.sin().sum() for y in module(x)), torch.zeros(()))
    want = torch.autograd.grad(total, [module.scores, module.gains])
    fn, params = rx.jax_function(module, (x,))
    made = jax.grad(lambda p: sum(jnp.sin(y).sum() for y in fn(p, x.numpy())))(params)
    for got, w in zip((made["scores"], made["gains"]), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-6)

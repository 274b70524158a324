"""Programs of optax, Equinox, Diffrax, BlackJAX, NumPyro, JAXopt, Flax NNX and Flax linen.

Each is ``() -> (function, arguments)``: what users of these libraries write, small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Program = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Callable[[], Program]] = {}
X = np.random.default_rng(0).standard_normal((6, 4)).astype("f")
Y = np.random.default_rng(1).standard_normal((6, 3)).astype("f")
W = {"w": np.random.default_rng(2).standard_normal((4, 3)).astype("f"), "b": np.ones(3, "f")}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    """Put a program into the list, under its function's name."""
    PROGRAMS[make.__name__] = make
    return make


def _loss(p: Any, x: Any, y: Any) -> Any:
    return ((jnp.tanh(x @ p["w"] + p["b"]) - y) ** 2).mean()


# ---- optax
def _stepped(make: Callable[[Any], Any]) -> Program:
    """A step of an optimiser."""
    import optax

    optimiser = make(optax)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, grad = jax.value_and_grad(_loss)(params, x, y)
        updates, state = optimiser.update(grad, state, params)
        return optax.apply_updates(params, updates), state, value

    # One step on, so that no moment is 0, where roots have no derivative.
    params, state, _ = step(W, optimiser.init(W), X, Y)
    return step, (params, state, X, Y)


@program
def optax_adam() -> Program:
    return _stepped(lambda optax: optax.adam(1e-2))


@program
def optax_adamw_clipped_and_scheduled() -> Program:
    return _stepped(
        lambda optax: optax.chain(
            optax.clip_by_global_norm(0.5), optax.adamw(optax.cosine_decay_schedule(0.1, 10))
        )
    )


@program
def optax_momentum() -> Program:
    return _stepped(lambda optax: optax.sgd(1e-2, momentum=0.9, nesterov=True))


@program
def optax_lamb() -> Program:
    return _stepped(lambda optax: optax.lamb(1e-2))


@program
def optax_losses() -> Program:
    import optax

    labels = np.array([0, 2, 1, 1, 0, 2], np.int32)
    return lambda x, y: (
        optax.softmax_cross_entropy_with_integer_labels(x[:, :3] + y, labels),
        optax.huber_loss(x[:, :3], y),
        optax.cosine_similarity(x[:, :3], y),
    ), (X, Y)


@program
def optax_ctc() -> Program:
    import optax

    logits = np.random.default_rng(3).standard_normal((2, 5, 4)).astype("f")
    blank = np.zeros((2, 5), "f")
    labels = np.array([[1, 2], [3, 0]], np.int32)
    empty = np.array([[0, 0], [0, 1]], "f")
    return lambda x: optax.ctc_loss(x, blank, labels, empty), (logits,)


# ---- Equinox
def _equinox(model: Any, call: Callable[[Any, Any], Any], x: Any) -> Program:
    import equinox as eqx

    arrays, static = eqx.partition(model, eqx.is_array)
    return lambda arrays, x: call(eqx.combine(arrays, static), x), (arrays, x)


@program
def equinox_mlp() -> Program:
    import equinox as eqx

    model = eqx.nn.MLP(4, 2, 8, 2, key=jax.random.key(0))
    return _equinox(model, lambda m, x: jax.vmap(m)(x), X)


@program
def equinox_convolutions() -> Program:
    import equinox as eqx

    keys = jax.random.split(jax.random.key(0), 2)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 4, 3, key=keys[0]),
            eqx.nn.GroupNorm(2, 4),
            eqx.nn.Lambda(jax.nn.gelu),
            eqx.nn.AvgPool2d(2, 2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(16, 3, key=keys[1]),
        ]
    )
    image = np.sin(np.arange(36, dtype="f")).reshape(1, 6, 6)
    return _equinox(model, lambda m, x: m(x), image)


@program
def equinox_gru() -> Program:
    import equinox as eqx

    cell = eqx.nn.GRUCell(4, 5, key=jax.random.key(0))
    return _equinox(cell, lambda m, x: jax.lax.scan(lambda h, t: (m(t, h), h), jnp.zeros(5), x), X)


@program
def equinox_attention() -> Program:
    import equinox as eqx

    model = eqx.nn.MultiheadAttention(2, 4, key=jax.random.key(0))
    mask = jnp.tril(jnp.ones((6, 6), bool))
    return _equinox(model, lambda m, x: m(x, x, x, mask=mask), X)


# ---- Diffrax
def _oscillator(t: Any, y: Any, args: Any) -> Any:
    return jnp.stack([y[1], -args * y[0] - 0.1 * y[1]])


def _solved(**options: Any) -> Program:
    import diffrax

    def run(y: Any, args: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(_oscillator),
            t0=0.0,
            t1=1.0,
            dt0=0.125,
            y0=y,
            args=args,
            throw=False,
            **options,
        ).ys

    return run, (np.array([1.0, 0.5], "f"), np.float32(2))


@program
def diffrax_heun() -> Program:
    """Of bounded loops, which have reverse mode."""
    import diffrax

    return _solved(solver=diffrax.Heun(), adjoint=diffrax.DirectAdjoint(), max_steps=16)


@program
def diffrax_tsit5_adaptive() -> Program:
    import diffrax

    return _solved(
        solver=diffrax.Tsit5(),
        stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-4),
        saveat=diffrax.SaveAt(ts=jnp.linspace(0, 1, 5)),
    )


@program
def diffrax_backsolve() -> Program:
    import diffrax

    return _solved(solver=diffrax.Euler(), adjoint=diffrax.BacksolveAdjoint())


@program
def diffrax_brownian() -> Program:
    import diffrax

    def run(y: Any, key: Any) -> Any:
        path = diffrax.UnsafeBrownianPath((2,), key)
        noise = diffrax.ControlTerm(lambda t, y, _: jnp.diag(0.1 * y), path)
        terms = diffrax.MultiTerm(diffrax.ODETerm(_oscillator), noise)
        return diffrax.diffeqsolve(
            terms,
            diffrax.Euler(),
            0.0,
            1.0,
            0.125,
            y,
            2.0,
            adjoint=diffrax.DirectAdjoint(),
            max_steps=16,
            throw=False,
        ).ys

    return run, (np.array([1.0, 0.5], "f"), jax.random.key(0))


# ---- BlackJAX
def _density(x: Any) -> Any:
    return -0.5 * (x**2 * jnp.arange(1, 4)).sum() - 0.1 * jnp.cos(x).sum()


def _sampled(make: Callable[[Any], Any]) -> Program:
    import blackjax

    algorithm = make(blackjax)
    state = algorithm.init(jnp.array([0.3, -0.2, 0.5]))
    return lambda key, state: algorithm.step(key, state)[0], (jax.random.key(3), state)


@program
def blackjax_hmc() -> Program:
    return _sampled(
        lambda blackjax: blackjax.hmc(
            _density, step_size=0.1, inverse_mass_matrix=jnp.ones(3), num_integration_steps=4
        )
    )


@program
def blackjax_nuts() -> Program:
    return _sampled(
        lambda blackjax: blackjax.nuts(
            _density, step_size=0.3, inverse_mass_matrix=jnp.ones(3), max_num_doublings=3
        )
    )


@program
def blackjax_mala() -> Program:
    return _sampled(lambda blackjax: blackjax.mala(_density, step_size=0.1))


@program
def blackjax_random_walk() -> Program:
    return _sampled(lambda blackjax: blackjax.additive_step_random_walk(_density, _normal_walk()))


def _normal_walk() -> Any:
    from blackjax.mcmc.random_walk import normal

    return normal(jnp.ones(3) * 0.2)


# ---- NumPyro
def _regression(x: Any, y: Any = None) -> None:
    import numpyro
    import numpyro.distributions as dist

    w = numpyro.sample("w", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.StudentT(4.0, x @ w, s), obs=y)


@program
def numpyro_density() -> Program:
    from numpyro.infer.util import log_density

    return (
        lambda w, s, x, y: log_density(_regression, (x, y), {}, {"w": w, "s": s})[0],
        (W["w"][:, 0], np.float32(0.7), X, Y[:, 0]),
    )


@program
def numpyro_distributions() -> Program:
    import numpyro.distributions as dist

    def run(x: Any) -> Any:
        p = jax.nn.sigmoid(x)
        return (
            dist.Beta(2.0, 3.0).log_prob(p),
            dist.Gamma(2.0 + p, 1.5).log_prob(p),
            dist.MultivariateNormal(jnp.zeros(4), 2 * jnp.eye(4) + 0.1).log_prob(x),
            dist.Dirichlet(jnp.ones(4) * 1.3).log_prob(jax.nn.softmax(x)),
            dist.LKJCholesky(3, 1.2).log_prob(jnp.linalg.cholesky(jnp.eye(3) + 0.1)),
        )

    return run, (X,)


@program
def numpyro_predictive() -> Program:
    from numpyro.infer import Predictive

    return lambda key, w, s, x: Predictive(_regression, {"w": w[None], "s": s[None]})(key, x)[
        "y"
    ], (
        jax.random.key(0),
        W["w"][:, 0],
        np.float32(0.7),
        X,
    )


@program
def numpyro_svi() -> Program:
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    svi = SVI(_regression, AutoNormal(_regression), numpyro.optim.Adam(0.01), Trace_ELBO())
    state = svi.init(jax.random.key(0), X, Y[:, 0])
    state, _ = svi.update(state, X, Y[:, 0])
    return lambda state, x, y: svi.update(state, x, y)[1], (state, X, Y[:, 0])


# ---- JAXopt
@program
def jaxopt_gradient_descent() -> Program:
    import jaxopt

    solver = jaxopt.GradientDescent(_loss, maxiter=5, stepsize=0.1, acceleration=False)
    return lambda p, x, y: solver.run(p, x, y).params, (W, X, Y)


@program
def jaxopt_lbfgs_unrolled() -> Program:
    import jaxopt

    solver = jaxopt.LBFGS(
        _loss, maxiter=3, stepsize=0.1, linesearch="zoom", implicit_diff=False, unroll=True
    )
    return lambda p, x, y: solver.run(p, x, y).params, (W, X, Y)


@program
def jaxopt_projections() -> Program:
    from jaxopt import projection

    return lambda x: (
        projection.projection_simplex(x[0]),
        projection.projection_l2_ball(x, 0.5),
        projection.projection_box(x, (-0.3, 0.4)),
    ), (X,)


@program
def jaxopt_losses() -> Program:
    import jaxopt

    labels = np.array([0, 2, 1, 1, 0, 2], np.int32)
    return lambda y: (
        jax.vmap(jaxopt.loss.multiclass_sparsemax_loss)(labels, y),
        jax.vmap(jaxopt.loss.multiclass_logistic_loss)(labels, y),
    ), (Y,)


# ---- Flax NNX
def _nnx(model: Any, x: Any) -> Program:
    from flax import nnx

    graph, state = nnx.split(model)
    return lambda state, x: nnx.merge(graph, state)(x), (state, x)


@program
def nnx_perceptron() -> Program:
    from flax import nnx

    rngs = nnx.Rngs(0)
    layers = [nnx.Linear(4, 8, rngs=rngs), nnx.relu, nnx.LayerNorm(8, rngs=rngs)]
    return _nnx(nnx.Sequential(*layers, nnx.Linear(8, 3, rngs=rngs)), X)


@program
def nnx_convolutions() -> Program:
    from flax import nnx

    rngs = nnx.Rngs(0)
    model = nnx.Sequential(
        nnx.Conv(2, 4, (3, 3), rngs=rngs),
        nnx.BatchNorm(4, use_running_average=True, rngs=rngs),
        nnx.gelu,
        lambda x: nnx.max_pool(x, (2, 2), (2, 2)).mean((1, 2)),
    )
    return _nnx(model, np.sin(np.arange(144, dtype="f")).reshape(2, 6, 6, 2))


@program
def nnx_attention() -> Program:
    from flax import nnx

    model = nnx.MultiHeadAttention(2, 4, 8, decode=False, rngs=nnx.Rngs(0))
    return _nnx(model, X[None])


@program
def nnx_lstm() -> Program:
    from flax import nnx

    return _nnx(nnx.RNN(nnx.LSTMCell(4, 5, rngs=nnx.Rngs(0))), X[None])


# ---- Flax linen
def _linen(model: Any, x: Any, **options: Any) -> Program:
    variables = model.init(jax.random.key(0), x)
    return lambda variables, x: model.apply(variables, x, **options), (variables, x)


@program
def linen_perceptron() -> Program:
    from flax import linen as nn

    return _linen(nn.Sequential([nn.Dense(8), nn.tanh, nn.LayerNorm(), nn.Dense(3)]), X)


@program
def linen_batch_norm_in_training() -> Program:
    from flax import linen as nn

    model = nn.BatchNorm(use_running_average=False)
    return _linen(model, X, mutable=["batch_stats"])


@program
def linen_attention() -> Program:
    from flax import linen as nn

    return _linen(nn.SelfAttention(num_heads=2, qkv_features=8), X[None])


@program
def linen_gru() -> Program:
    from flax import linen as nn

    return _linen(nn.RNN(nn.GRUCell(5)), X[None])

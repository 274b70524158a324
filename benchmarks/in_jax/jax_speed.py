"""What an imported model costs as a function of JAX: its calls, its gradients and its tracing.

``python -m benchmarks jax_speed``: processor time of this process, the variants in turn, medians
of the ratios round by round.

* ``jax.jit`` of the function of ``extract_jax``, with weights as arguments and with weights that it
  knows, and the function alone, beside the machine's own program, of ResNet-50 and BERT-base
  (``examples/models``; batch 1, 128 tokens);
* ``jax.jit(jax.grad)`` of BERT-base beside the same network written in Flax linen;
* tracing (``jax.make_jaxpr``), microseconds an operator of the program, beside JAX's own evaluation
  of what was traced, which does nothing but bind, and beside a loop over a list that binds the same
  primitives, which no interpreter can be faster than.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, jaxpr_as_fun


def ratios(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds of each call, and of its ratio to the last."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            jax.block_until_ready(call())
            times[name].append(time.process_time() - start)
    last = list(times.values())[-1]
    return {
        name: (
            1e3 * statistics.median(found),
            statistics.median(a / b for a, b in zip(found, last, strict=True)),
        )
        for name, found in times.items()
    }


def flax_bert(length: int) -> tuple[Callable[..., Any], Any]:
    """BERT-base's encoder as one writes it in Flax linen: a function and its weights."""
    from flax import linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: Any, mask: Any) -> Any:
            mixed = nn.MultiHeadDotProductAttention(num_heads=12)(x, x, x, mask=mask)
            x = nn.LayerNorm(epsilon=1e-12)(x + mixed)
            wide = nn.gelu(nn.Dense(3072)(x), approximate=False)
            return nn.LayerNorm(epsilon=1e-12)(x + nn.Dense(768)(wide))

    class Bert(nn.Module):
        @nn.compact
        def __call__(self, ids: Any, mask: Any, kinds: Any) -> Any:
            x = nn.Embed(30522, 768)(ids) + nn.Embed(2, 768)(kinds)
            x = x + nn.Embed(512, 768)(jnp.arange(ids.shape[1]))
            x = nn.LayerNorm(epsilon=1e-12)(x)
            for _ in range(12):
                x = Layer()(x, mask[:, None, None, :] > 0)
            return x, jnp.tanh(nn.Dense(768)(x[:, 0]))

    model, ids = Bert(), jnp.zeros((1, length), jnp.int32)
    return model.apply, model.init(jax.random.key(0), ids, ids, ids)


def main(quick: bool = False) -> None:
    """Measure, and print."""
    import torch

    import relax2xla as rx
    from examples.models import MODELS
    from relax2xla.frontend.torch import from_exported_program
    from relax2xla.interop.jax import extract_jax

    rounds = 2 if quick else 8
    torch.set_num_threads(1)
    for name in ("resnet50", "bert_base"):
        model = MODELS[name]
        network, inputs = model.build(), model.example_inputs()
        with torch.no_grad():
            mod = from_exported_program(torch.export.export(network, inputs))
        given = [jnp.asarray(x.numpy()) for x in inputs]
        fn, params = extract_jax(mod)
        count = _operators(fn, params, given)
        jitted, over = jax.jit(fn), jax.jit(functools.partial(fn, params))
        vm = rx.VirtualMachine(rx.build(mod))
        found = ratios(
            {
                "jit of the function": lambda j=jitted, p=params, g=given: j(p, *g),
                "jit over its weights": lambda j=over, g=given: j(*g),
                "no jit": lambda f=fn, p=params, g=given: f(p, *g),
                "the machine's": lambda v=vm, g=given: v["main"](*g),
            },
            rounds,
        )
        _show(name, found)
        own, bare, least = (1e6 * t / count for t in _tracing(fn, params, given))
        print(
            f"{name}, tracing: {own:.1f} us for each of {count} operators; JAX evaluates them "
            f"again in {bare:.1f}, and binds them in {least:.1f}",
            flush=True,
        )
        if name == "bert_base":
            other, weights = flax_bert(given[0].shape[1])

            def loss(f: Any, ids: Any, *rest: Any) -> Callable[[Any], Any]:
                return lambda p: sum(y.sum() for y in jax.tree.leaves(f(p, ids, *rest)))

            grads = [jax.jit(jax.grad(loss(f, *given))) for f in (fn, other)]
            _show(
                "bert_base, gradient",
                ratios(
                    {
                        "of the function": lambda g=grads[0], p=params: g(p),
                        "in Flax": lambda g=grads[1], p=weights: g(p),
                    },
                    max(2, rounds // 2),
                ),
            )


def _operators(fn: Any, params: Any, given: Any) -> int:
    """How many operations the program has, as JAX counts them."""
    made = _written(fn, params, *given)
    return sum(1 for _ in _equations(made.jaxpr))


def _written(f: Any, *args: Any) -> Any:
    """The program of a function in operations, not as one primitive for a CPU."""
    with jax.disable_jit():
        return jax.make_jaxpr(f)(*args)


def _equations(jaxpr: Any) -> Any:
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def _tracing(fn: Any, params: Any, given: Any) -> list[float]:
    """Seconds that a trace takes, JAX's evaluation of its program, and binding: least of some."""
    flat, tree = jax.tree.flatten((params, given))
    made = _written(fn, params, *given)
    again, bound = jaxpr_as_fun(made), _binding(made)

    def own(*values: Any) -> Any:
        params, given = tree.unflatten(values)
        return fn(params, *given)

    times: dict[Any, list[float]] = {own: [], again: [], bound: []}
    for _ in range(9):
        for f, found in times.items():
            start = time.process_time()
            _written(lambda *values, f=f: f(*values), *flat)
            found.append(time.process_time() - start)
    return [min(found) for found in times.values()]


def _binding(made: Any) -> Callable[..., Any]:
    """The equations of a program in turn, each bound with what is known of it beforehand."""
    jaxpr = made.jaxpr
    places: dict[Any, int] = {}

    def place(v: Any) -> Any:
        return (None, v.val) if isinstance(v, Literal) else (places.setdefault(v, len(places)), 0)

    def several(vs: Any) -> list[int]:
        return [place(v)[0] for v in vs]

    known, inputs = several(jaxpr.constvars), several(jaxpr.invars)
    steps = [
        (
            e.primitive.bind,
            e.primitive.get_bind_params(e.params),
            [place(v) for v in e.invars],
            several(e.outvars),
            e.primitive.multiple_results,
        )
        for e in jaxpr.eqns
    ]
    outputs = [place(v) for v in jaxpr.outvars]

    def run(*values: Any) -> list[Any]:
        held = dict(zip([*known, *inputs], [*made.consts, *values], strict=True))
        for bind, params, taken, given, many in steps:
            found = bind(*[x if at is None else held[at] for at, x in taken], **params)
            held.update(zip(given, found if many else (found,), strict=True))
        return [x if at is None else held[at] for at, x in outputs]

    return run


def _show(name: str, found: Mapping[str, tuple[float, float]]) -> None:
    for variant, (milliseconds, ratio) in found.items():
        print(f"{name}, {variant}: {milliseconds:.1f} ms, ratio {ratio:.2f}", flush=True)

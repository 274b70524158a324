"""What a call costs: functions that compute next to nothing, beside ``jax.jit``.

One argument takes the jitted road of the machine; 200 weights take the road straight over PJRT,
beside ``jax.jit`` with the same weights as arguments (design decision D5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import relax2xla as rx
from benchmarks.timing import interleaved, table


def _one_argument() -> rx.IRModule:
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(rx.op.add(x, x))
        builder.emit_func_output(out)
    return builder.get()


def _with_weights(weights: list[np.ndarray[Any, Any]]) -> rx.IRModule:
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((128,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: rx.Expr = x
            for w in weights:
                y = builder.emit(rx.op.add(y, rx.const(w)))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


def variants() -> dict[str, dict[str, Callable[[], Any]]]:
    """Groups of calls to compare; the last of each group is the peer."""
    x = jax.device_put(np.ones(4, np.float32))
    host = np.ones(4, np.float32)
    one = rx.VirtualMachine(rx.build(_one_argument()))["main"]
    jit_one = jax.jit(lambda v: v + v)
    groups: dict[str, dict[str, Callable[[], Any]]] = {
        "1 argument, jax array": {
            "relax2xla": lambda: one(x),
            "jax.jit": lambda: jit_one(x),
        },
        "1 argument, numpy in and out": {
            "relax2xla": lambda: np.asarray(one(host)),
            "jax.jit": lambda: np.asarray(jit_one(host)),
        },
    }
    rng = np.random.default_rng(0)
    for count in (200, 400):
        weights = [rng.standard_normal(128).astype(np.float32) for _ in range(count)]
        v = jax.device_put(np.ones(128, np.float32))
        many = rx.VirtualMachine(rx.build(_with_weights(weights)))["main"]

        def chain(value: Any, *ws: Any) -> Any:
            for w in ws:
                value = value + w
            return value

        jitted = jax.jit(chain)
        placed = [jax.device_put(w) for w in weights]
        np.testing.assert_allclose(many(v), jitted(v, *placed), rtol=1e-5)
        groups[f"{count} weights"] = {
            "relax2xla": lambda f=many, v=v: f(v),
            "jax.jit": lambda f=jitted, v=v, p=placed: f(v, *p),
        }
    return groups


def main(quick: bool = False) -> None:
    """Print one table a group, in microseconds a call."""
    for name, group in variants().items():
        times = interleaved(group, rounds=5 if quick else 30, calls=50 if quick else 400)
        print(f"\n{name}\n\n{table(times, 'jax.jit', 'us')}")

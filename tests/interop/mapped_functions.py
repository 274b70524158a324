"""Functions of torch inside ``jax.shard_map`` over two devices: values and derivatives.

Run by test_varying.py: JAX takes the number of its devices from the environment.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from relax2xla.interop.jax import extract_jax, from_jax, jax_function

X = np.random.default_rng(0).normal(size=(4, 3, 3)).astype(np.float32)
MESH = Mesh(np.array(jax.devices()[:2]), ("x",))


class Fn(torch.nn.Module):
    """A function of a square matrix for each example, with a weight that scales it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.scale = torch.nn.Parameter(torch.full((3, 1), 1.5))

    def forward(self, x: Any) -> Any:
        return self.function(x * self.scale)


def _branches(x: Any) -> Any:
    """Branches of which one is the same on each device, and the choice is not."""
    return torch.cond((x > 9).all(), torch.zeros_like, lambda y: y * 2, (x,))


def _product_at(x: Any) -> Any:
    index = torch.zeros(x.shape, dtype=torch.int64)
    return torch.ones_like(x).scatter_reduce(-1, index, x, "prod")


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    # loops, and scans that rows are made of
    "inv": torch.linalg.inv,
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "cummax": lambda x: x.cummax(-1)[0],
    "products at places": _product_at,
    "branches": _branches,
    # rules of derivatives: of LAPACK, and in 64 bits
    "qr": lambda x: torch.linalg.qr(x)[1],
    "matrix_exp": torch.matrix_exp,
}


def mapped(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` of weights and a part of the examples, on each device."""
    return jax.shard_map(f, mesh=MESH, in_specs=(P(), P("x")), out_specs=P("x"))


def compare(name: str, f: Callable[..., Any], params: Any) -> None:
    """ValueError where the function that is mapped gives something else."""

    def made(f: Callable[..., Any]) -> Any:
        slopes = jax.grad(lambda p, x: (f(p, x) ** 2).sum(), (0, 1))
        both = jax.jit(lambda p, x: (slopes(p, x), jax.jvp(f, (p, x), (p, x))))
        return jax.tree.leaves(both(params, X))

    for found, wanted in zip(made(mapped(f)), made(f), strict=True):
        if not np.allclose(found, wanted, rtol=1e-3, atol=1e-4):
            raise ValueError(f"{name} differs")


def _halved(x: Any) -> Any:
    """A loop that ends in another round on each device."""
    start = jnp.float32(1), jnp.int32(0)
    end = lax.while_loop(lambda s: s[0] > jnp.abs(x).min(), lambda s: (s[0] / 2, s[1] + 1), start)
    return jnp.full(x.shape[:1], end[1], jnp.float32)


def main() -> None:
    """All of them."""
    warnings.simplefilter("ignore")
    batch = ({0: torch.export.Dim("b", min=2, max=50)},)
    modules: dict[str, Any] = {name: Fn(function) for name, function in FUNCTIONS.items()}
    modules["LSTM"] = torch.nn.LSTM(3, 3, batch_first=True)
    for name, module in modules.items():
        fn, params = jax_function(module, (torch.from_numpy(X),), dynamic_shapes=batch)
        compare(name, lambda p, x, fn=fn: jax.tree.leaves(fn(p, x))[0], params)
    scale = np.array([4.0, 4.0, 0.01, 0.01], np.float32)[:, None, None]
    fn, params = extract_jax(from_jax(_halved, X[:2]))
    wanted = [_halved(part) for part in np.split(X * scale, 2)]
    found = jax.jit(mapped(fn))(params, X * scale)
    if not np.array_equal(found, np.concatenate(wanted)) or wanted[0][0] == wanted[1][0]:
        raise ValueError("loops end in other rounds")


if __name__ == "__main__":
    sys.exit(main())

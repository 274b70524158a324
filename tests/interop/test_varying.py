"""Values that vary over devices of ``jax.shard_map``, whose types JAX checks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from tests.processes import run_python

torch = pytest.importorskip("torch")


def test_functions_between_two_devices() -> None:
    run_python(str(Path(__file__).with_name("mapped_functions.py")), devices=2)


def test_the_machines_program_on_a_mesh_of_one_device() -> None:
    from relax2xla.interop.jax import jax_function

    torch.manual_seed(0)
    module, x = torch.nn.Linear(768, 1024).eval(), torch.randn(64, 768)
    fn, params = jax_function(module, (x,))
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    with torch.no_grad():
        wanted = module(x).numpy()
    given = x.numpy()
    spread: Any = {"mesh": mesh, "out_specs": P("x")}
    held = jax.shard_map(partial(fn, params), in_specs=P("x"), **spread)
    called = jax.shard_map(fn, in_specs=(P(), P("x")), **spread)
    jitted = jax.shard_map(jax.jit(partial(fn, params)), in_specs=P("x"), **spread)
    for f in (held, jitted, partial(called, params)):
        np.testing.assert_allclose(jax.jit(f)(given), wanted, rtol=1e-4, atol=1e-4)
        slopes = jax.jit(jax.grad(lambda x, f=f: f(x).sum()))(given)
        of_torch = module.weight.detach().numpy().sum(0)
        np.testing.assert_allclose(slopes, np.broadcast_to(of_torch, x.shape), rtol=1e-3, atol=1e-3)

"""Vectors of 512 bits: where programs get them, and that no result depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relax2xla import processor
from relax2xla.vm.pjrt import compiler, xla

X = np.random.default_rng(0).standard_normal(100).astype("float32")


@pytest.mark.parametrize(
    ("function", "reference", "wide"),
    [
        (jnp.arctan, np.arctan, False),
        (lambda x: jnp.arctan2(x, jnp.ones_like(x)), np.arctan, False),
        (lambda x: ((1 + 1j * x) ** 2.5).real, lambda x: ((1 + 1j * x) ** 2.5).real, False),
        (jnp.sin, np.sin, True),
    ],
)
def test_arctangents_are_right(
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    wide: bool,
) -> None:
    monkeypatch.setattr(processor, "vector_options", lambda: {processor.WIDTH: 512})
    lowered = jax.jit(function).lower(X)
    module = lowered.compiler_ir()
    settings = compiler._settings(xla.jax_device(None), module)
    assert (processor.WIDTH in settings) == wide
    (got,) = compiler.Loaded(
        module, [jax.core.ShapedArray(X.shape, X.dtype)], None, fresh=True
    ).run([jnp.asarray(X)])
    np.testing.assert_allclose(np.asarray(got), reference(X), rtol=1e-5, atol=1e-6)

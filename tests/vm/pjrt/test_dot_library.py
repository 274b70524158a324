"""Which library multiplies: what the choice follows, and that results do not depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relax2xla import processor
from relax2xla.vm.pjrt import compiler, dot_library, xla


def program(subscripts: str, left: tuple[int, ...], right: tuple[int, ...], dtype: str):
    arguments = [jax.ShapeDtypeStruct(s, dtype) for s in (left, right)]
    lowered = jax.jit(lambda a, b: jnp.einsum(subscripts, a, b)).lower(*arguments)
    return lowered.compiler_ir(), arguments


@pytest.mark.parametrize(
    ("subscripts", "left", "right", "dtype", "gains"),
    [
        ("mk,kn->mn", (64, 256), (256, 64), "float32", True),
        ("mk,kn->mn", (8, 32), (32, 16), "float32", False),
        ("nk,km->nm", (64, 256), (256, 64), "float32", True),
        ("bmk,bkn->bmn", (2, 64, 128), (2, 128, 64), "float32", True),
        ("bmk,bnk->bmn", (2, 64, 128), (2, 64, 128), "float32", True),
        ("nk,km->nm", (768, 512), (512, 4), "float32", False),
        ("nk,km->nm", (1536, 512), (512, 1), "float32", True),
        ("nk,km->nm", (768, 512), (512, 32), "float32", True),
        ("mk,nk->mn", (8, 32), (16, 32), "float32", False),
        ("mk,kn->mn", (8, 32), (32, 16), "bfloat16", False),
        ("mk,kn->mn", (8, 32), (32, 16), "int32", False),
    ],
)
def test_the_choice(
    monkeypatch: pytest.MonkeyPatch,
    subscripts: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    dtype: str,
    gains: bool,
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    module, _ = program(subscripts, left, right, dtype)
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx512f"}))
    monkeypatch.setattr(processor, "KNOWN", "")
    assert (dot_library.balance(module) > 0) == gains
    assert dot_library.options(module) == (dot_library.EIGEN if gains else {})
    monkeypatch.setattr(processor, "features", lambda: frozenset({"neon"}))
    assert dot_library.options(module) == {}


def test_a_row_by_a_matrix_that_lies_the_other_way_does_not_count() -> None:
    shapes = [(128, 128), (128, 64), (1, 512), (1000, 512)]
    arguments = [jax.ShapeDtypeStruct(s, "float32") for s in shapes]

    def two(a: Any, b: Any, row: Any, matrix: Any) -> Any:
        return a @ b, jnp.einsum("mk,nk->mn", row, matrix)

    alone, _ = program("mk,kn->mn", shapes[0], shapes[1], "float32")
    both = jax.jit(two).lower(*arguments).compiler_ir()
    assert dot_library.balance(both) == dot_library.balance(alone) > 0


@pytest.mark.parametrize(
    ("left", "right", "eigen"),
    [
        ((3072, 768), (768, 128), True),
        ((768, 768), (768, 384), True),
        ((768, 768), (768, 512), False),
        ((3136, 64), (64, 1024), True),
        ((1024, 1024), (1024, 1024), False),
    ],
)
def test_without_avx512_eigen_takes_narrow_operands(
    monkeypatch: pytest.MonkeyPatch, left: tuple[int, ...], right: tuple[int, ...], eigen: bool
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(processor, "KNOWN", "")
    module, _ = program("mk,kn->mn", left, right, "float32")
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx2"}))
    assert dot_library.options(module) == (dot_library.EIGEN if eigen else {})
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx2", "avx512f"}))
    assert dot_library.options(module) == dot_library.EIGEN


@pytest.mark.parametrize(
    ("shape", "axes", "kind", "planned"),
    [
        ((768, 1, 128), (0,), "sum", False),
        ((12, 128, 128), (1,), "max", False),
        ((12, 128, 128), (2,), "max", True),
        ((1024, 1024), (1,), "sum", True),
        ((8, 64), (1,), "sum", False),
        ((1, 56, 56, 256), (1, 2), "sum", True),
        ((8, 64), (1,), "argmax", False),
    ],
)
def test_reductions_are_planned_where_that_pays(
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    kind: str,
    planned: bool,
) -> None:
    def call(a: jax.Array, b: jax.Array, x: jax.Array) -> object:
        axis = axes[0] if kind == "argmax" else axes
        return a @ b, getattr(jnp, kind)(x, axis=axis)

    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx512f"}))
    monkeypatch.setattr(processor, "KNOWN", "")
    arguments = [jax.ShapeDtypeStruct(s, "float32") for s in ((64, 256), (256, 64), shape)]
    module = jax.jit(call).lower(*arguments).compiler_ir()
    expected = dot_library.EIGEN if planned else dot_library.EIGEN_AND_LOOPS
    assert dot_library.options(module) == expected


def test_of_this_jaxlib_the_choice_is_known() -> None:
    """A new jaxlib is measured (``python -m benchmarks dots``), and its names looked up."""
    assert processor.jaxlib_version().startswith(processor.KNOWN)


def test_xla_knows_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without products nothing is YNNPACK's; what is not named stays with XLA."""

    def compiled(options: Mapping[str, str] | None) -> str:
        def call(a: jax.Array, b: jax.Array) -> object:
            return a @ b, b.sum(-1)

        arguments = [jax.ShapeDtypeStruct(s, "float32") for s in ((128, 256), (256, 64))]
        return jax.jit(call).lower(*arguments).compile(dict(options or {})).as_text()

    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if not processor.features() & {"avx2", "avx512f"}:
        pytest.skip("YNNPACK serves other processors otherwise")
    counts = [
        compiled(o).count("__ynn_fusion")
        for o in (None, dot_library.EIGEN, dot_library.EIGEN_AND_LOOPS)
    ]
    assert counts == [2, 1, 0]


def test_the_users_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx512f"}))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")
    assert dot_library.options(program("mk,kn->mn", (8, 32), (32, 16), "float32")[0]) == {}


def test_results_do_not_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype("f") for s in ((5, 7, 33), (5, 33, 19)))
    for chosen in ({}, dot_library.EIGEN, dot_library.EIGEN_AND_LOOPS):
        monkeypatch.setattr(dot_library, "options", lambda _, found=chosen: found)
        module, _ = program("bmk,bkn->bmn", a.shape, b.shape, "float32")
        loaded = compiler.Loaded(module, [jax.core.ShapedArray((5, 7, 19), np.dtype("f"))], None)
        (got,) = loaded.run([xla.device_put(v, None) for v in (a, b)])
        np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-5)

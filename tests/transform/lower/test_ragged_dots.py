"""Programs that multiply groups of unknown sizes run where XLA has no such product; beside JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import relax2xla as rx
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.transform.core import run_on_function
from relax2xla.transform.lower.ragged_dots import ExpandRaggedDots

FEW, EACH = np.array([2, 3, 2], "int32"), np.array([[2, 3, 2], [0, 8, 0]], "int32")

# Numbers of dimensions, shapes of both operands, sizes of groups, and the dtypes.
Case = tuple[Any, tuple[int, ...], tuple[int, ...], Any, str, str]


def _dims(
    contracted: tuple[list[int], list[int]],
    batch: tuple[list[int], list[int]] = ([], []),
    ragged: int = 0,
    group: int | None = None,
) -> Any:
    groups = [] if group is None else [group]
    return lax.RaggedDotDimensionNumbers((contracted, batch), [ragged], groups)


F32 = ("float32", "float32")
CASES: dict[str, Case] = {
    "rows": (_dims(([1], [1]), group=0), (8, 4), (3, 4, 5), FEW, *F32),
    "groups between": (_dims(([1], [0]), group=1), (8, 4), (4, 3, 5), FEW, *F32),
    "integers": (_dims(([1], [1]), group=0), (8, 4), (3, 4, 5), FEW, "int8", "int32"),
    "sizes of a batch": (
        _dims(([2], [2]), ([0], [0]), ragged=1, group=1),
        (2, 8, 4),
        (2, 3, 4, 5),
        EACH,
        *F32,
    ),
    "sizes for all": (
        _dims(([2], [2]), ([0], [0]), ragged=1, group=1),
        (2, 8, 4),
        (2, 3, 4, 5),
        FEW,
        *F32,
    ),
    "axes in another order": (
        _dims(([0], [1]), ([1], [2]), ragged=2, group=3),
        (4, 2, 8),
        (5, 4, 2, 3),
        EACH,
        *F32,
    ),
    "sizes of rows before": (
        _dims(([2], [1]), ragged=1, group=0),
        (2, 8, 4),
        (3, 4, 5),
        EACH,
        *F32,
    ),
    "added up": (_dims(([0], [0])), (8, 4), (8, 5), FEW.astype("int8"), "float32", "bfloat16"),
    "added up, of a batch": (
        _dims(([1], [1]), ([0], [0]), ragged=1),
        (2, 8, 4),
        (2, 8, 5),
        EACH,
        *F32,
    ),
    "the batch": (_dims(([2], [1]), ([0], [0])), (6, 8, 4), (6, 4, 5), FEW, *F32),
}


def _text(function: Callable[..., Any], *args: Any) -> str:
    """As JAX writes it where there is such a product."""
    text = jax.jit(function).trace(*args).lower(lowering_platforms=("tpu",)).as_text()
    assert "chlo.ragged_dot" in text
    return text


def _run(text: str, *args: Any) -> Any:
    return np.asarray(rx.VirtualMachine(rx.build(from_stablehlo(text)), rx.cpu())["main"](*args))


@pytest.mark.parametrize("name", CASES)
def test_beside_jax(name: str, rng: np.random.Generator) -> None:
    dims, left, right, sizes, dtype, made = CASES[name]
    x, y = (np.round(rng.uniform(-9, 9, shape)).astype(dtype) for shape in (left, right))

    def function(x: Any, y: Any, sizes: Any) -> Any:
        return lax.ragged_dot_general(x, y, sizes, dims, preferred_element_type=made)

    found, expected = _run(_text(function, x, y, sizes), x, y, sizes), function(x, y, sizes)
    assert found.dtype == expected.dtype == made
    # Whole numbers: any order of additions gives the same.
    np.testing.assert_array_equal(found, expected)


def test_what_is_not_finite_stays_in_its_group() -> None:
    rows, weights = np.ones((6, 2), "f"), np.ones((3, 2, 2), "f")
    weights[1] = np.inf
    rows[5] = np.nan
    sizes = np.array([2, 1, 2], "int32")
    found = _run(_text(lax.ragged_dot, rows, weights, sizes), rows, weights, sizes)
    np.testing.assert_array_equal(found[:, 0], [2, 2, np.inf, 2, 2, 0])


def test_in_loops_and_for_any_number_of_rows(rng: np.random.Generator) -> None:
    def function(rows: Any, weights: Any, sizes: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, x: jnp.tanh(lax.ragged_dot(x, weights, sizes)), rows)

    (n,) = jax.export.symbolic_shape("n")
    shapes = [((n, 4), "float32"), ((3, 4, 4), "float32"), ((3,), "int32")]
    given = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    exported = jax.export.export(jax.jit(function), platforms=["tpu"])(*given)
    main = rx.VirtualMachine(rx.build(from_stablehlo(exported.mlir_module())), rx.cpu())["main"]
    weights = rng.standard_normal((3, 4, 4), "f")
    for count in (7, 9):
        rows = rng.standard_normal((count, 4), "f")
        expected = function(rows, weights, FEW)
        np.testing.assert_allclose(main(rows, weights, FEW), expected, rtol=1e-5, atol=1e-6)


def test_functions_without_are_left_alone() -> None:
    text = jax.jit(lambda x: x @ x).lower(np.ones((2, 2), "f")).as_text()
    func = from_stablehlo(text, raise_ops=False)["main"]
    assert run_on_function([ExpandRaggedDots()], func, "main") is func

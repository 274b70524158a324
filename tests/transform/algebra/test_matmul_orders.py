"""Passes that put products in another order: which they take, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relax2xla import transform
from tests.transform.programs import module, operators, same_values, tensor

RNG = np.random.default_rng(5)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def flops(sizes: tuple[int, int, int, int], left: bool) -> int:
    n, r, k, p = sizes
    return n * r * k + n * k * p if left else r * k * p + n * r * p


@settings(max_examples=12, deadline=None)
@given(
    st.tuples(*[st.integers(1, 9)] * 4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "a", "c"]),
)
def test_order_of_three(
    sizes: tuple[int, int, int, int], left: bool, turned: bool, vector: str
) -> None:
    n, r, k, p = sizes
    n, p = (1 if vector == "a" else n), (1 if vector == "c" else p)
    shapes = {"a": [n, r], "b": [r, k], "c": [k, p]}
    if vector:
        shapes[vector] = [r] if vector == "a" else [k]
    one, two = "ab" if left else "bc"
    outer = "out = R.matmul(i, c)" if left else "out = R.matmul(a, i)"
    if turned and vector not in (one, two):
        shapes[one], shapes[two] = shapes[one][::-1], shapes[two][::-1]
        lines = [f"t = R.matmul({two}, {one})", "i = R.permute_dims(t)", outer]
    else:
        lines = [f"i = R.matmul({one}, {two})", outer]
    mod = module([tensor(x, *s) for x, s in shapes.items()], *lines)
    args = [draw(*s) for s in shapes.values()]
    new = same_values(mod, transform.AdjustMatmulOrder(), *args)
    costs = flops((n, r, k, p), left), flops((n, r, k, p), not left)
    assert (new is mod) == (costs[0] <= costs[1])


def test_order_of_four_and_of_batches() -> None:
    mod = module(
        [tensor("x", 2, 1, 16), tensor("a", 16, 8), tensor("b", 8, 16), tensor("c", 16, 12)],
        "ab = R.matmul(a, b)",
        "abc = R.matmul(ab, c)",
        "out = R.matmul(x, abc)",
    )
    args = draw(2, 1, 16), draw(16, 8), draw(8, 16), draw(16, 12)
    new = same_values(mod, transform.AdjustMatmulOrder(), *args)
    # Each product is one of a row and a matrix.
    main = new["main"]
    shapes = [b.var.struct_info.dims for b in main.body.blocks[0].bindings]
    assert shapes == [(2, 1, 8), (2, 1, 16), (2, 1, 12)]


@pytest.mark.parametrize("step", [transform.AdjustMatmulOrder(), transform.ExpandMatmulOfSum()])
def test_weights_stay_together(step: transform.Pass) -> None:
    for operator in ("matmul", "add"):
        mod = module(
            [tensor("x", 4), tensor("a", 4, 4), tensor("b", 4, 4)],
            'R.func_attr({"num_input": 1})',
            f"w = R.{operator}(a, b)",
            "out = R.matmul(x, w)",
        )
        assert step(mod) is mod
        bound = mod.clone()
        bound["main"] = bound["main"].bind_params({"a": draw(4, 4), "b": draw(4, 4)})
        bound["main"] = bound["main"].without_attr("num_input")
        assert step(bound) is bound


def test_a_vector_and_batches_stay() -> None:
    # (2, 2) would be a matrix for c, and is a batch of rows.
    params = [tensor("a", 3), tensor("b", 2, 3, 2), tensor("c", 2, 2, 9)]
    mod = module(params, "i = R.matmul(a, b)", "out = R.matmul(i, c)")
    assert transform.AdjustMatmulOrder()(mod) is mod


def test_upper_bounds_decide() -> None:
    params = [tensor("x", "n", 64), tensor("a", 64, "r"), tensor("b", "r", 64)]
    body = "w = R.matmul(a, b)", "out = R.matmul(x, w)"
    mod = module(params, *body)
    assert transform.AdjustMatmulOrder()(mod) is mod
    for bound, changes in ((32, True), (64, False)):
        attrs = f'R.func_attr({{"tir_var_upper_bound": {{"r": {bound}}}}})'
        mod = module(params, attrs, *body)
        new = same_values(mod, transform.AdjustMatmulOrder(), draw(3, 64), draw(64, 5), draw(5, 64))
        assert (new is not mod) == changes


def test_sum_is_expanded() -> None:
    mod = module(
        [tensor("x", 2, 3), tensor("a", 4, 3), tensor("b", 4, 3)],
        "s = R.add(a, b)",
        "t = R.permute_dims(s)",
        "out = R.matmul(x, t)",
    )
    args = draw(2, 3), draw(4, 3), draw(4, 3)
    new = same_values(mod, transform.ExpandMatmulOfSum(), *args)
    assert operators(new) == ["permute_dims", "matmul", "permute_dims", "matmul", "add"]
    # A bias that is broadcast is no matrix.
    mod = module(
        [tensor("x", 2, 3), tensor("a", 3, 4), tensor("b", 4)],
        "s = R.add(a, b)",
        "out = R.matmul(x, s)",
    )
    assert transform.ExpandMatmulOfSum()(mod) is mod


@pytest.mark.parametrize(
    ("x", "table", "count", "axis"),
    [((2, 3), (3, 5), 7, -1), ((3,), (3, 5), 4, 1), ((2, 2, 3), (2, 3, 5), 4, 2)],
)
def test_columns_are_taken_after(
    x: tuple[int, ...], table: tuple[int, ...], count: int, axis: int
) -> None:
    mod = module(
        [tensor("x", *x), tensor("w", *table), tensor("i", count, dtype="int64")],
        f"c = R.take(w, i, axis={axis})",
        "out = R.matmul(x, c)",
    )
    places = RNG.integers(0, table[axis], count)
    new = same_values(mod, transform.ReorderTakeAfterMatmul(), draw(*x), draw(*table), places)
    assert operators(new) == ["matmul", "take"]


def test_matrices_are_taken_after() -> None:
    mod = module(
        [tensor("x", 4, 2, 3), tensor("w", 6, 3, 5), tensor("i", 4, dtype="int64")],
        "c = R.take(w, i, axis=0)",
        "out = R.matmul(x, c)",
    )
    args = draw(4, 2, 3), draw(6, 3, 5), np.array([5, 0, 5, 2])
    new = same_values(mod, transform.ReorderTakeAfterMatmul(), *args)
    assert operators(new).count("einsum") == 1
    # One matrix for all of the batch is another thing.
    mod = module(
        [tensor("x", 4, 2, 3), tensor("w", 6, 3, 5), tensor("i", 1, dtype="int64")],
        "c = R.take(w, i, axis=0)",
        "out = R.matmul(x, c)",
    )
    assert transform.ReorderTakeAfterMatmul()(mod) is mod

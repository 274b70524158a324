"""Passes over transpositions and reshapes."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import transform
from relax2xla.ir import assert_structural_equal
from tests.transform.programs import module, operators, same_values, tensor

RNG = np.random.default_rng(6)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize(("axes", "axis"), [([2, 0, 1], 0), ([2, 0, 1], -1), (None, 1)])
def test_transposed_after_concat(axes: list[int] | None, axis: int) -> None:
    joined = (axes or [2, 1, 0])[axis]
    shapes = [[2, 3, 4] for _ in range(3)]
    for i, s in enumerate(shapes):
        s[joined] += i
    mod = module(
        [tensor(n, *s) for n, s in zip("abc", shapes, strict=True)],
        *(f"t{n} = R.permute_dims({n}, axes={axes})" for n in "abc"),
        f"out = R.concat([ta, tb, tc], axis={axis})",
    )
    new = same_values(mod, transform.ReorderPermuteDimsAfterConcat(), *(draw(*s) for s in shapes))
    assert operators(new) == ["concat", "permute_dims"]


def test_other_transpositions_stay() -> None:
    mod = module(
        [tensor("a", 2, 2), tensor("b", 2, 2)],
        "t = R.permute_dims(a)",
        "u = R.permute_dims(b, axes=[0, 1])",
        "v = R.concat([t, u])",
        "w = R.concat([t, b])",
        "out = R.add(v, w)",
    )
    assert transform.ReorderPermuteDimsAfterConcat()(mod) is mod


def test_reshapes_of_reshapes() -> None:
    shapes = tensor("x", "n", 4)
    mod = module(
        [shapes],
        "a = R.reshape(x, R.shape([n, 2, 2]))",
        "b = R.reshape(a, R.shape([n, 4]))",
        "c = R.exp(b)",
        "d = R.reshape(c, R.shape([n, 4]))",
        "e = R.reshape(d, R.shape([n * 2, 2]))",
        "out = R.reshape(e, R.shape([n * 4]))",
    )
    expected = module([shapes], "c = R.exp(x)", "out = R.reshape(c, R.shape([n * 4]))")
    new = same_values(mod, transform.RemoveRedundantReshape(), draw(3, 4))
    assert_structural_equal(new, expected)
    assert transform.RemoveRedundantReshape()(new) is new
    primitive = mod.clone()
    primitive["main"] = primitive["main"].with_attr("Primitive", 1)
    assert transform.RemoveRedundantReshape()(primitive) is primitive

"""layout_transform and reverse_sequence against numpy and ONNX Runtime's rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import LegalizeError, OpError, TVMError
from relax2xla.script import relax as R
from relax2xla.testing import evaluate
from tests.op.harness import Case, check, tensor, var_like

RNG = np.random.default_rng(9)
MAPS: list[tuple[tuple[int, ...], Any]] = [
    ((4, 5), lambda i, j: (j // 4, i, j % 4)),
    ((16,), lambda i: (i // 4, i % 4)),
    ((3,), lambda i: (i // 4, i % 4)),
    ((2, 3, 4), lambda *i: i[::-1]),
    ((2, 12, 3), lambda n, c, w: (n, c // 6, w, c % 6 // 2, c % 2)),
    ((7, 3), lambda i, j: (j, i // 4, i // 2 % 2, i % 2)),
    ((4, 5), lambda i, j: (i * 5 + j,)),
    ((4, 5), lambda i, j: (3 - i, j + 1)),
    ((6,), lambda i: (i * 2,)),
    ((2, 0), lambda i, j: (j, i)),
]


def moved(x: Any, rule: Any, blank: float) -> Any:
    places = {i: tuple(rule(*i)) for i in np.ndindex(x.shape)}
    ndim = len(rule(*(0,) * x.ndim))
    shape = [max((p[k] for p in places.values()), default=-1) + 1 for k in range(ndim)]
    if not places:
        shape = [d for d in x.shape[::-1]]
    if x.shape == (3,):  # a remainder by 4 has four places, as in TVM
        shape = [1, 4]
    out = np.full(shape, blank, x.dtype)
    for i, p in places.items():
        out[p] = x[i]
    return out


def test_layout_transform():
    cases: list[Case] = []
    for shape, rule in MAPS:
        x = RNG.integers(1, 100, shape)
        for dtype, blank in (("float32", None), ("int64", -3)):
            y = x.astype(dtype)
            want = moved(y, rule, blank or 0)

            def make(a: Any, rule: Any = rule, blank: Any = blank) -> Any:
                return op.layout_transform(a, rule, blank)

            cases.append(Case(f"{shape} {dtype}", make, [y], want))
    check(cases)


def test_symbolic_shapes_of_index_maps():
    n = tir.Var("n", "int64")
    made = tir.IndexMap.from_func(lambda i, j: (j // 4, i, j % 4))
    assert [str(d) for d in made.map_shape((n, n))] == ["(n + 3) // 4", "n", "4"]
    assert made.map_indices([1, 6]) == [1, 1, 2]
    again = tir.IndexMap.from_func(lambda a, b: (b // 4, a, b % 4))
    assert made == again
    assert made.is_equivalent_to(again)
    assert str(made) == "T.index_map(lambda i, j: (j // 4, i, j % 4))"
    info = op.layout_transform(tensor((n, 8)), made).struct_info
    assert [str(d) for d in info.dims] == ["2", "n", "4"]


def test_layout_transform_errors():
    x = tensor((4, 5))
    with pytest.raises(OpError, match="takes 1 indices"):
        op.layout_transform(x, tir.IndexMap.from_func(lambda i: (i,)))
    with pytest.raises(OpError, match="`index_map`"):
        op.layout_transform(x, 3)
    with pytest.raises(OpError, match="`pad_value`"):
        op.layout_transform(x, lambda i, j: (j, i), "a")
    with pytest.raises(OpError, match="may use"):
        op.layout_transform(x, lambda i, j: (tir.max(i, j), i))
    with pytest.raises(TVMError, match="no index"):
        tir.IndexMap.from_func(lambda i: (tir.Var("k", "int64"),))
    y = var_like(np.zeros((4, 5), np.float32))
    twice = op.layout_transform(y, lambda i, j: (i + j,))
    with pytest.raises(LegalizeError, match="one place"):
        evaluate(twice, {y: np.zeros((4, 5), np.float32)})


def test_text():
    from relax2xla.script import parse

    text = """# from relax2xla.script import tir as T
# from relax2xla.script import relax as R

@R.function
def main(x: R.Tensor((4, 5), dtype="float32")) -> R.Tensor((2, 4, 4), dtype="float32"):
    gv: R.Tensor((2, 4, 4), dtype="float32") = R.layout_transform(x, index_map=MAP, REST)
    return gv"""
    rule = "T.index_map(lambda i, j: (j // 4, i, j % 4))"
    rest = "pad_value=None, axis_separators=[], input_axis_separators=[]"
    text = text.replace("MAP", rule).replace("REST", rest)
    made = parse(text)
    assert made.script() == text
    short = text.replace(
        "T.index_map(lambda i, j: (j // 4, i, j % 4))", "lambda a, b: (b // 4, a, b % 4)"
    )
    from relax2xla.ir import assert_structural_equal

    assert_structural_equal(parse(short), made)
    assert R.layout_transform is op.layout_transform


def reversed_rows(x: Any, lengths: Any, along: int, batch: int) -> Any:
    out = x.copy()
    for b, n in enumerate(lengths):
        here: list[Any] = [slice(None)] * x.ndim
        here[batch] = b
        row = np.moveaxis(out[tuple(here)], (along if along < batch else along - 1), 0)
        row[:n] = row[:n][::-1].copy()
    return out


def test_reverse_sequence():
    cases: list[Case] = []
    for shape, along, batch in (((4, 6), 1, 0), ((6, 4), 0, 1), ((2, 3, 5, 2), 2, 1)):
        x = RNG.normal(size=shape).astype(np.float32)
        lengths = RNG.integers(0, shape[along] + 3, shape[batch])
        want = reversed_rows(x, lengths, along, batch)

        def make(a: Any, n: Any, along: int = along - x.ndim, batch: int = batch) -> Any:
            return op.reverse_sequence(a, n, along, batch)

        cases.append(Case(f"{shape}", make, [x, lengths], want))
    check(cases)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.reverse_sequence(tensor((4,)), tensor((4,), "int64")), "rank 2"),
        (lambda: op.reverse_sequence(tensor((4, 5)), tensor((4,))), "`seq_lengths`"),
        (lambda: op.reverse_sequence(tensor((4, 5)), tensor((5,), "int64")), "4 sequences"),
        (lambda: op.reverse_sequence(tensor((4, 5)), tensor((4,), "int64"), 2), "out of range"),
        (lambda: op.reverse_sequence(tensor((4, 5)), tensor((4,), "int64"), 0, -2), "differ"),
    ],
)
def test_reverse_sequence_errors(call: Any, message: str):
    with pytest.raises(OpError, match=message):
        call()

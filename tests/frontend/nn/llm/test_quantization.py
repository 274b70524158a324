"""Weights in few bits: layouts by loops over values, products in C++ beside operators."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from relax2xla.errors import UnsupportedError
from relax2xla.frontend import nn
from relax2xla.frontend.nn.llm.experts import ChosenLinear
from relax2xla.frontend.nn.llm.quantization import (
    AwqLinear,
    AwqScheme,
    GroupQuantizedChosenLinear,
    GroupQuantizedEmbedding,
    GroupQuantizedLinear,
    GroupScheme,
    quantize,
    scheme,
)
from relax2xla.runtime.compiler import has_compiler


def read(words: Any, scales: Any, bits: int, group: int, columns: int) -> Any:
    """The weight of packed words, value by value."""
    made = np.zeros((len(words), columns))
    per, mask = 32 // bits, 2**bits - 1
    for i in range(len(words)):
        for k in range(columns):
            q = (int(words[i, k // per]) >> (bits * (k % per))) & mask
            made[i, k] = (q - (2 ** (bits - 1) - 1)) * float(scales[i, k // group])
    return made


@pytest.mark.parametrize("name", ["q3f32_1", "q4f16_1", "q8f32_1"])
def test_the_layout_of_groups(name: str, rng: np.random.Generator) -> None:
    how = scheme(name)
    weight = rng.normal(size=(3, 100)).astype(np.float32)
    weight[1, : how.group] = 0
    words, scales = how.packed(weight)
    groups = -(-100 // how.group)
    assert words.shape == (3, groups * how.group // (32 // how.bits))
    assert (words.dtype, scales.dtype) == (np.uint32, np.dtype(how.dtype))
    made = read(words, scales, how.bits, how.group, 100)
    # No value is further away than half a step, the largest of a group not at all.
    steps = np.repeat(scales.astype(np.float64), how.group, 1)[:, :100]
    slack = 1e-2 if how.dtype == "float16" else 1e-5
    assert (np.abs(made - weight) <= steps * (0.5 + slack)).all()
    assert not made[1, : how.group].any()


class Linear(nn.Module):
    def __init__(self, rng: np.random.Generator, size: int, out: int) -> None:
        self.l = nn.Linear(size, out)
        self.l.weight.data = rng.normal(size=(out, size)).astype(np.float32)
        self.l.bias.data = np.ones(out, np.float32)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.l(x)


@pytest.mark.parametrize("name", ["q4f16_1", "q4f32_0"])
def test_products_by_operators(name: str, rng: np.random.Generator) -> None:
    how, model = scheme(name), Linear(rng, 100, 6)
    words, scales = how.packed(np.asarray(model.l.weight.data))
    want = read(words, scales, how.bits, how.group, 100)
    quantize(model, name, native=False)
    assert isinstance(model.l, GroupQuantizedLinear)
    assert tuple(model.l.q_weight.shape) == (words.shape if how.by_rows else words.T.shape)
    x = rng.normal(size=(2, 3, 100)).astype(np.float32)
    np.testing.assert_allclose(model(x), x @ want.T + 1, rtol=2e-3, atol=2e-2)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("name", ["q3f16_1", "q4f32_1", "q8f16_1", "q4f16_0"])
def test_products_in_cpp(name: str, rng: np.random.Generator) -> None:
    # Odd numbers of groups, a last group that is not full, rows beyond those taken at once.
    how, model = scheme(name), Linear(rng, 210, 5)
    words, scales = how.packed(np.asarray(model.l.weight.data))
    weight = read(words, scales, how.bits, how.group, 210)
    quantize(model, name, native=True)
    x = rng.normal(size=(7, 210)).astype(np.float32)
    x[2] *= 1000
    x[3, :50] = 0
    x[4, 7] = np.inf
    got = np.asarray(model(x))
    assert np.isnan(got[4]).all()
    kept = [0, 1, 2, 3, 5, 6]
    want = (x[kept] @ weight.T + 1).astype(np.float32)
    bound = np.abs(x[kept]).max(1, keepdims=True) * np.abs(weight).sum(1) / 65534
    assert (np.abs(got[kept] - want) <= bound + 1e-4).all()


@pytest.mark.parametrize(
    ("name", "native", "same"),
    [
        ("q8f32_0", False, False),
        *(
            pytest.param(
                *("q4f32_1" if same else "q4f32_0", True, same),
                marks=pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
            )
            for same in (True, False)
        ),
    ],
)
def test_experts(name: str, native: bool, same: bool, rng: np.random.Generator) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.up = ChosenLinear(4, 40, 6)

        def forward(self, x: nn.Tensor, which: nn.Tensor) -> nn.Tensor:
            return self.up(x, which)

    how, model = scheme(name), Model()
    model.up.weight.data = rng.normal(size=(4, 6, 40)).astype(np.float32)
    packed = [how.packed(w) for w in np.asarray(model.up.weight.data)]
    weight = np.stack([read(*p, how.bits, how.group, 40) for p in packed])
    quantize(model, name, native=native)
    assert isinstance(model.up, GroupQuantizedChosenLinear)
    words = np.stack([p[0] for p in packed])
    wanted = words if how.by_rows else words.swapaxes(1, 2)
    np.testing.assert_array_equal(model.up.q_weight.data, wanted)
    # Nobody takes weight 2; six rows of weight 1 are more than go together.
    which = np.array([[1, 3], [1, 1], [0, 1], [1, 3], [1, 0]])
    x = rng.normal(size=(5, 1 if same else 2, 40)).astype(np.float32)
    wide = np.broadcast_to(x, (5, 2, 40))
    want = np.einsum("bsi,bsoi->bso", wide, weight[which])
    np.testing.assert_allclose(model(x, which), want, rtol=1e-3, atol=1e-2 if native else 1e-4)


def test_tables_of_which_few_rows_are_read(rng: np.random.Generator) -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            self.t = nn.Embedding(9, 40)

        def forward(self, x: nn.Tensor) -> Any:
            return self.t(x), self.t.product(self.t(x))

    model = Table()
    model.t.weight.data = rng.normal(size=(9, 40)).astype(np.float32)
    how = scheme("q8f32_1")
    weight = read(*how.packed(np.asarray(model.t.weight.data)), 8, 32, 40)
    quantize(model, how, native=False)
    assert isinstance(model.t, GroupQuantizedEmbedding)
    rows, logits = model(np.array([[3, 0]], np.int32))
    np.testing.assert_allclose(rows, weight[[3, 0]][None], rtol=1e-6)
    np.testing.assert_allclose(logits, weight[[3, 0]][None] @ weight.T, rtol=1e-4)


def test_awq(rng: np.random.Generator) -> None:
    how = AwqScheme(group=32, dtype="float32")
    values, zeros = rng.integers(0, 16, (64, 16)), rng.integers(0, 16, (2, 16))
    scales = rng.random((2, 16)).astype(np.float32)
    model = AwqLinear(64, 16, how)
    model.qweight.data, model.qzeros.data = how.packed(values), how.packed(zeros)
    model.scales.data = scales
    order = (0, 2, 4, 6, 1, 3, 5, 7)  # of the values in a word, from the lowest bits
    word = sum(int(values[0, v]) << (4 * i) for i, v in enumerate(order))
    assert int(np.asarray(model.qweight.data)[0, 0]) == word
    weight = (values - np.repeat(zeros, 32, 0)) * np.repeat(scales, 32, 0)
    x = rng.normal(size=(3, 64)).astype(np.float32)
    np.testing.assert_allclose(model(x), x @ weight, rtol=1e-4, atol=1e-3)
    with pytest.raises(UnsupportedError, match="a multiple of 32"):
        AwqLinear(65, 16, how)


def test_what_stays_as_it_is() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.table = nn.Embedding(8, 32)
            self.gate = nn.Linear(32, 4)
            self.kept = nn.Linear(32, 4)
            self.kept.no_quantization = True
            self.inner = nn.Linear(32, 4)
            self.lm_head = nn.Linear(32, 8)

    def kinds(name: str) -> list[str]:
        items = vars(quantize(Model(), name, native=False)).items()
        return [n for n, m in items if "Quantized" in type(m).__name__]

    assert kinds("q4f16_1") == ["table", "inner", "lm_head"]
    assert kinds("q4f16_2") == ["inner"]
    quantised, nothing = quantize(Model(), "q4f16_1", native=False), 3
    for model, said in ((quantised, "Model holds no linear"), (nothing, "an nn.Module; got int")):
        with pytest.raises(UnsupportedError, match=said):
            quantize(model, "q8f16_1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnsupportedError, match="as in q4f16_1"):
        scheme("q5f16_1")


@pytest.mark.parametrize(("bits", "group", "dtype"), [(4, 64, "float16"), (2, 16, "float32")])
def test_schemes_of_your_own(bits: int, group: int, dtype: str, rng: np.random.Generator) -> None:
    """Groups that the function in C++ does not read are computed with by operators."""
    how = GroupScheme(bits, dtype, group, by_rows=True, embedding=True, last=True)
    model = Linear(rng, 100, 7)
    weight = np.asarray(model.l.weight.data)
    quantize(model, how)
    words, scales = how.packed(weight)
    x = rng.normal(size=(3, 100)).astype(np.float32)
    want = x @ read(words, scales, bits, group, 100).T + 1
    np.testing.assert_allclose(np.asarray(model(x)), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"bits": 9}, "bits are 2 to 8; got 9"),
        ({"bits": "4"}, "bits is an integer; got '4'"),
        ({"group": 33}, "a group is a multiple of 8, the values of 4 bits in a word; got 33"),
        ({"group": 0}, "got 0"),
        ({"group": 32.0}, "group is an integer; got 32.0"),
        ({"dtype": "f16"}, "scales are float16, float32, bfloat16; got 'f16'"),
    ],
)
def test_wrong_schemes(changed: dict[str, Any], said: str) -> None:
    fields: dict[str, Any] = {"bits": 4, "dtype": "float16", "group": 32}
    with pytest.raises(UnsupportedError, match="GroupScheme: .*" + re.escape(said)):
        GroupScheme(**(fields | changed), by_rows=True, embedding=True, last=True)


def test_weights_beyond_the_scales_are_refused() -> None:
    """Not a model of NaN."""
    weight = np.full((2, 32), 7e4, np.float32)
    narrow, wide = (GroupScheme(4, d, 32, True, True, True) for d in ("float16", "float32"))
    with pytest.raises(ValueError, match="holds 70000, which float16 does not"):
        narrow.packed(weight)
    assert wide.packed(weight)[1].tolist() == [[1e4], [1e4]]


def test_wrong_schemes_of_awq(rng: np.random.Generator) -> None:
    with pytest.raises(UnsupportedError, match=r"AwqScheme: bits are 4.*bits=8, group=128"):
        AwqScheme(bits=8)
    with pytest.raises(UnsupportedError, match="AwqScheme: scales are"):
        AwqScheme(dtype="int8")
    wrong: Any = AwqScheme()
    with pytest.raises(UnsupportedError, match="or a GroupScheme; got AwqScheme"):
        quantize(Linear(rng, 8, 8), wrong)

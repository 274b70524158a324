"""Types of few bits: rows that XLA ends the process for, or refuses, compute in wider integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import UnsupportedError
from relax2xla.importers.stablehlo import from_stablehlo
from tests.stablehlo.test_limits import call
from tests.stablehlo.test_limits import no_cache as no_cache

BITS = {"i2": 2, "ui2": 2, "i4": 4, "ui4": 4}
DTYPES = {"i2": "int2", "ui2": "uint2", "i4": "int4", "ui4": "uint4"}


def drawn(element: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random values of the whole range."""
    low = 0 if element.startswith("u") else -(2 ** (BITS[element] - 1))
    values = np.random.default_rng(seed).integers(low, low + 2 ** BITS[element], shape)
    return values.astype(getattr(ml_dtypes, DTYPES[element]))


def wrapped(values: np.ndarray, element: str) -> np.ndarray:
    """Integers as those bits hold them."""
    span = 2 ** BITS[element]
    low = values % span
    return low if element.startswith("u") else np.where(low >= span // 2, low - span, low)


def wide(values: np.ndarray) -> np.ndarray:
    return np.asarray(values).astype(np.int64)


@pytest.mark.parametrize("element", BITS)
@pytest.mark.parametrize("axis", [0, 1])
def test_concatenate(element: str, axis: int) -> None:
    t = f"tensor<2x4x{element}>"
    out = f"tensor<{6 if axis == 0 else 2}x{4 if axis == 0 else 12}x{element}>"
    text = f"""func.func public @main(%a: {t}, %b: {t}) -> {out} {{
      %0 = stablehlo.concatenate %a, %b, %a, dim = {axis} : ({t}, {t}, {t}) -> {out}
      return %0 : {out}
    }}"""
    a, b = drawn(element, (2, 4), 0), drawn(element, (2, 4), 1)
    got = call(text, a, b)
    assert got.dtype == a.dtype
    np.testing.assert_array_equal(wide(got), np.concatenate([wide(a), wide(b), wide(a)], axis))


@pytest.mark.parametrize("element", BITS)
def test_sort_with_keys(element: str) -> None:
    t = f"tensor<9x{element}>"
    text = f"""func.func public @main(%k: tensor<9xi32>, %a: {t}) -> {t} {{
      %0:2 = "stablehlo.sort"(%k, %a) <{{dimension = 0 : i64, is_stable = true}}> ({{
      ^bb0(%x: tensor<i32>, %y: tensor<i32>, %v: tensor<{element}>, %w: tensor<{element}>):
        %c = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %d = stablehlo.compare EQ, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %e = stablehlo.compare LT, %v, %w : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
        %f = stablehlo.and %d, %e : tensor<i1>
        %g = stablehlo.or %c, %f : tensor<i1>
        stablehlo.return %g : tensor<i1>
      }}) : (tensor<9xi32>, {t}) -> (tensor<9xi32>, {t})
      return %0#1 : {t}
    }}"""
    keys, a = np.array([3, 1, 2, 1, 3, 1, 2, 0, 0], np.int32), drawn(element, (9,), 2)
    expected = wide(a)[np.lexsort((wide(a), keys))]
    np.testing.assert_array_equal(wide(call(text, keys, a)), expected)


@pytest.mark.parametrize("element", BITS)
@pytest.mark.parametrize("result", ["same", "i32"])
def test_products(element: str, result: str) -> None:
    out = element if result == "same" else "ui32" if element.startswith("u") else "i32"
    text = f"""func.func public @main(%a: tensor<3x70x{element}>, %b: tensor<70x5x{element}>)
        -> (tensor<3x5x{out}>, tensor<1x1x8x{out}>) {{
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<3x70x{element}>, tensor<70x5x{element}>) -> tensor<3x5x{out}>
      %1 = stablehlo.slice %a [0:1, 0:10] : (tensor<3x70x{element}>) -> tensor<1x10x{element}>
      %2 = stablehlo.reshape %1 : (tensor<1x10x{element}>) -> tensor<1x1x10x{element}>
      %3 = stablehlo.slice %a [1:2, 0:3] : (tensor<3x70x{element}>) -> tensor<1x3x{element}>
      %4 = stablehlo.reshape %3 : (tensor<1x3x{element}>) -> tensor<1x1x3x{element}>
      %5 = stablehlo.convolution(%2, %4) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
        window = {{}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
        : (tensor<1x1x10x{element}>, tensor<1x1x3x{element}>) -> tensor<1x1x8x{out}>
      return %0, %5 : tensor<3x5x{out}>, tensor<1x1x8x{out}>
    }}"""
    a, b = drawn(element, (3, 70), 3), drawn(element, (70, 5), 4)
    dot, convolved = rx.VirtualMachine(rx.build(from_stablehlo(text)))["main"](a, b)
    exact = wide(a) @ wide(b), np.correlate(wide(a)[0, :10], wide(a)[1, :3])
    if out == element:
        exact = wrapped(exact[0], element), wrapped(exact[1], element)
    np.testing.assert_array_equal(wide(dot), exact[0])
    np.testing.assert_array_equal(wide(convolved)[0, 0], exact[1])


def random(element: str, low: str, high: str) -> str:
    return f"""func.func public @main(%q: tensor<i64>) -> tensor<400xi32> {{
      %l = stablehlo.constant dense<{low}> : tensor<{element}>
      %h = stablehlo.constant dense<{high}> : tensor<{element}>
      %s = stablehlo.constant dense<[400]> : tensor<1xi64>
      %r = stablehlo.rng %l, %h, %s, distribution = UNIFORM
        : (tensor<{element}>, tensor<{element}>, tensor<1xi64>) -> tensor<400x{element}>
      %w = stablehlo.convert %r : (tensor<400x{element}>) -> tensor<400xi32>
      return %w : tensor<400xi32>
    }}"""


@pytest.mark.parametrize(
    ("element", "low", "high"),
    [
        ("i2", -2, 1),
        ("ui2", 0, 3),
        ("i4", -8, 7),
        ("ui4", 3, 15),
        ("i8", -3, 4),
        ("ui8", 250, 255),
        ("i16", -300, -297),
        ("ui16", 65530, 65535),
    ],
)
def test_random_integers_lie_between_their_bounds(element: str, low: int, high: int) -> None:
    found = call(random(element, str(low), str(high)), np.int64(0))
    assert sorted(set(found.tolist())) == list(range(low, high))


def test_random_floats_of_eight_bits_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="rng of float8_e5m2 has no code in XLA; draw"):
        call(random("f8E5M2", "0.0", "1.0"), np.int64(0))
    assert not call(random("i1", "false", "true"), np.int64(0)).any()

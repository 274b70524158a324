"""Programs that XLA does not survive are errors, or are changed so that it does."""

from __future__ import annotations

from collections.abc import Generator

import ml_dtypes
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import budget
from relax2xla.errors import BudgetError, StableHLOParseError, UnsupportedError, XlaError
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.stablehlo.mlir import context, ir
from relax2xla.stablehlo.untrusted import limits, sorts
from relax2xla.vm.pjrt import cache


@pytest.fixture(autouse=True)
def no_cache() -> Generator[None]:
    before = cache.use(None)
    yield
    cache.use(before)


def call(text: str, *args: np.ndarray) -> np.ndarray:
    machine = rx.VirtualMachine(rx.build(from_stablehlo(text)))
    return np.asarray(machine["main"](*args))


def nested(depth: int, keyword: str = "if") -> str:
    """``depth`` conditionals in each other; in text they are twice as many brackets."""
    lines = ["func.func public @main(%p: tensor<i1>, %a: tensor<f32>) -> tensor<f32> {"]
    lines += [f'%r{d} = "stablehlo.{keyword}"(%p) ({{' for d in range(depth)]
    lines.append('"stablehlo.return"(%a) : (tensor<f32>) -> ()')
    for d in reversed(range(depth)):
        lines.append('}, { "stablehlo.return"(%a) : (tensor<f32>) -> () })')
        lines.append(": (tensor<i1>) -> tensor<f32>")
        lines.append(f'"stablehlo.return"(%r{d}) : (tensor<f32>) -> ()' if d else "return %r0")
    return "\n".join([*lines[:-1], "return %r0 : tensor<f32>", "}"])


@pytest.mark.parametrize("size", [2**62, 2**61, 2**45])
def test_sizes_beyond_all_memory(size: int) -> None:
    text = f"""func.func public @main(%a: tensor<f32>) -> tensor<f32> {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<{size}xf32>
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<{size}xf32>, tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }}"""
    with pytest.raises(BudgetError, match=f"shape {size} .*RELAX2XLA_MEMORY_LIMIT"):
        call(text, np.float32(1))


def test_the_budget_can_be_raised_and_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """func.func public @main(%a: tensor<f32>) -> tensor<1000xf32> {
      %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<1000xf32>
      return %0 : tensor<1000xf32>
    }"""
    monkeypatch.setenv("RELAX2XLA_MEMORY_LIMIT", "3999")
    with pytest.raises(BudgetError, match=r"takes 3\.906|takes 4 KiB"):
        call(text, np.float32(1))
    before = budget.use("1M")
    try:
        assert call(text, np.float32(1)).shape == (1000,)
    finally:
        budget.use(before)
    # One value fits, but not what the program holds at once.
    text = """func.func public @main(%a: tensor<f32>) -> (tensor<900xf32>, tensor<900xf32>) {
      %b = stablehlo.negate %a : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<900xf32>
      %1 = stablehlo.broadcast_in_dim %b, dims = [] : (tensor<f32>) -> tensor<900xf32>
      return %0, %1 : tensor<900xf32>, tensor<900xf32>
    }"""
    with pytest.raises(BudgetError, match="for its results and in between"):
        call(text, np.float32(1))
    monkeypatch.setenv("RELAX2XLA_MEMORY_LIMIT", "")
    assert budget.memory() >= 2**30
    with pytest.raises(ValueError, match="'much' is no size"):
        budget.use("much")


def test_regions_in_each_other() -> None:
    assert call(nested(40), np.True_, np.float32(3)) == 3
    with pytest.raises(BudgetError, match="more than 128 times"):
        call(nested(limits.DEPTH + 2), np.True_, np.float32(3))
    with pytest.raises(BudgetError, match="brackets lie in each other"):
        from_stablehlo(nested(3000))


def chain(depth: int, calls: int) -> str:
    """``depth`` functions, each of which adds 1 and calls the next one so many times."""
    scalar = "(tensor<f32>) -> tensor<f32>"
    made = ["func.func public @main(%0: tensor<f32>) -> tensor<f32> {"]
    for i in range(depth):
        made += [f"%{j + 1} = call @f{i}(%{j}) : {scalar}" for j in range(calls)]
        made += [f"return %{calls} : tensor<f32> }}"]
        made += [f"func.func private @f{i}(%a: tensor<f32>) -> tensor<f32> {{"]
        made += ["%one = stablehlo.constant dense<1.0> : tensor<f32>"]
        made += ["%0 = stablehlo.add %a, %one : tensor<f32>"]
    return "\n".join([*made, "return %0 : tensor<f32> }"])


def test_functions_that_call_each_other() -> None:
    """XLA makes copies of what is called, on its stack."""

    def run(text: str, x: float) -> Any:
        mod = from_stablehlo(text, raise_ops=False)
        return rx.VirtualMachine(rx.build(mod), rx.cpu())["main"](np.float32(x))

    assert run(chain(300, 1), 3) == 303  # those that are called once are part of their callers
    assert run(chain(8, 2), 0) == sum(2**i for i in range(1, 9))
    with pytest.raises(BudgetError, match="in each other more than 64 times"):
        run(chain(70, 2), 3)
    with pytest.raises(BudgetError, match="f29 is called 1073741824 times"):
        run(chain(30, 2), 3)


def test_brackets_that_mean_nothing() -> None:
    many = "([{<" * 1000
    limits.check_text(f'// {many}\nmodule attributes {{a = "{many}"}} {{}}'.encode())
    limits.check_text(f'module attributes {{a = "\\"{many}"}} {{}}'.encode())
    hidden = "[" * 2000 + '")]}>->"'
    with pytest.raises(BudgetError):
        limits.check_text(f'module attributes {{a = "{"]" * 3000}", b = {hidden}'.encode())


def test_what_xla_refuses_is_an_error_with_its_reason() -> None:
    text = """func.func public @main(%a: tensor<4xf8E4M3>) -> tensor<4xf8E4M3> {
      %0 = stablehlo.custom_call @check.unknown(%a) : (tensor<4xf8E4M3>) -> tensor<4xf8E4M3>
      return %0 : tensor<4xf8E4M3>
    }"""
    with pytest.raises((XlaError, UnsupportedError), match=r"check\.unknown"):
        call(text, np.zeros(4, ml_dtypes.float8_e4m3))


# ---- six bits
SIX = {"float6_e2m3fn": "f6E2M3FN", "float6_e3m2fn": "f6E3M2FN"}


@pytest.mark.parametrize("dtype", SIX)
@pytest.mark.parametrize("values", ["[1.0, 2.0, -0.5, 0.125]", "1.5"])
def test_constants_of_six_bits(dtype: str, values: str) -> None:
    t = SIX[dtype]
    text = f"""func.func public @main(%i: tensor<4xi32>, %n: tensor<i32>) -> tensor<2xf32> {{
      %c = stablehlo.constant dense<{values}> : tensor<4x{t}>
      %0 = stablehlo.dynamic_slice %c, %n, sizes = [2] : (tensor<4x{t}>, tensor<i32>)
        -> tensor<2x{t}>
      %1 = stablehlo.reverse %0, dims = [0] : tensor<2x{t}>
      %2 = stablehlo.convert %1 : (tensor<2x{t}>) -> tensor<2xf32>
      return %2 : tensor<2xf32>
    }}"""
    expected = np.broadcast_to(np.array(eval(values), dtype).astype(np.float32), 4)[1:3][::-1]
    np.testing.assert_array_equal(call(text, np.zeros(4, np.int32), np.int32(1)), expected)


@pytest.mark.parametrize("dtype", SIX)
def test_conversion_to_six_bits_rounds_as_ml_dtypes(dtype: str) -> None:
    grid = np.concatenate([np.arange(-40, 40, 1 / 64), [1e-9, 1e9, np.inf, -np.inf, np.nan, -0.0]])
    x = grid.astype(np.float32)
    n, t = len(x), SIX[dtype]
    text = f"""func.func public @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{
      %0 = stablehlo.convert %x : (tensor<{n}xf32>) -> tensor<{n}x{t}>
      %1 = stablehlo.convert %0 : (tensor<{n}x{t}>) -> tensor<{n}xf32>
      return %1 : tensor<{n}xf32>
    }}"""
    expected = x.astype(getattr(ml_dtypes, dtype)).astype(np.float32)
    np.testing.assert_array_equal(call(text, x), expected)
    np.testing.assert_array_equal(np.signbit(call(text, x)), np.signbit(expected))


def test_arithmetic_of_six_bits_is_refused() -> None:
    text = """func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xf6E2M3FN>
      %1 = stablehlo.add %0, %0 : tensor<4xf6E2M3FN>
      %2 = stablehlo.convert %1 : (tensor<4xf6E2M3FN>) -> tensor<4xf32>
      return %2 : tensor<4xf32>
    }"""
    with pytest.raises(
        UnsupportedError, match=r"stablehlo\.add of 6-bit floats has no code in XLA"
    ):
        call(text, np.ones(4, np.float32))


@pytest.mark.parametrize(
    ("kind", "given", "made"),
    [("FFT", "8x8xcomplex<f32>", "8x8xcomplex<f32>"), ("IFFT", *["8x8xcomplex<f32>"] * 2)],
)
def test_lengths_of_fft_are_those_of_the_data(kind: str, given: str, made: str) -> None:
    text = f"""func.func public @main(%a: tensor<{given}>) -> tensor<{made}> {{
      %0 = stablehlo.fft %a, type = {kind}, length = [%d, 8] : (tensor<{given}>) -> tensor<{made}>
      return %0 : tensor<{made}>
    }}"""
    x = np.ones((8, 8), np.complex64)
    assert call(text.replace("%d", "8"), x).shape == (8, 8)
    with pytest.raises(StableHLOParseError, match=r"fft_length is \[9, 8\]; .* are \[8, 8\]"):
        call(text.replace("%d", "9"), x)


@pytest.mark.parametrize(
    ("config", "result", "fits"),
    [
        ("ab,bc->ca", "4x2", True),
        ("ab,bc", "2x4", True),
        ("a...,bc->...c", "3x4", True),
        ("aa,bc->bc", "3x4", False),  # of a 2x3 matrix
        ("abc,bc->a", "2", False),  # XLA ends the process
        ("ab,bc->ac", "2", False),
        ("ab,bc->ac", "4x2", False),
        ("ab,bc->aa", "2x2", False),
        ("ab,bc->ad", "2x4", False),
        ("ab,cb->ac", "2x3", False),
        ("a b,bc->ac", "2x4", False),
        ("ab->a", "2", False),
    ],
)
def test_labels_of_an_einsum_fit_its_shapes(config: str, result: str, fits: bool) -> None:
    text = f"""func.func public @main(%a: tensor<2x3xf32>, %b: tensor<3x4xf32>)
        -> tensor<{result}xf32> {{
      %0 = stablehlo.einsum %a, %b, config = "{config}"
        : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<{result}xf32>
      return %0 : tensor<{result}xf32>
    }}"""
    a, b = (np.arange(n, dtype=np.float32) for n in (6, 12))
    a, b = a.reshape(2, 3), b.reshape(3, 4)
    if fits:
        np.testing.assert_allclose(call(text, a, b), np.einsum(config, a, b))
        return
    with pytest.raises(StableHLOParseError, match=r"stablehlo\.einsum at .* does not fit"):
        call(text, a, b)


@pytest.mark.parametrize(
    ("low", "high", "inner"),
    [(-(1 << 62), 1 << 62, 0), (0, -(1 << 62), 1 << 62), ((1 << 63) - 1, 1 - (1 << 63), 0)],
)
def test_padding_that_is_taken_away_again_counts(low: int, high: int, inner: int) -> None:
    made = 2 + low + high + inner
    text = f"""func.func public @main(%a: tensor<2xf32>) -> tensor<{made}xf32> {{
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.pad %a, %c, low = [{low}], high = [{high}], interior = [{inner}]
        : (tensor<2xf32>, tensor<f32>) -> tensor<{made}xf32>
      return %0 : tensor<{made}xf32>
    }}"""
    with pytest.raises(BudgetError, match=r"stablehlo\.pad at .*what is padded"):
        call(text, np.ones(2, np.float32))


@pytest.mark.parametrize(("given", "made"), [("3xi8", "3x8xi1"), ("3x8xi1", "3xi8")])
def test_truth_values_are_no_parts_of_numbers(given: str, made: str) -> None:
    text = f"""func.func public @main(%a: tensor<{given}>) -> tensor<{made}> {{
      %0 = stablehlo.bitcast_convert %a : (tensor<{given}>) -> tensor<{made}>
      return %0 : tensor<{made}>
    }}"""
    x = np.ones((3, 8), bool) if given.endswith("i1") else np.ones(3, np.int8)
    with pytest.raises(UnsupportedError, match="no truth values of one bit"):
        call(text, x)


@pytest.mark.parametrize(
    "before",
    [
        "%c = stablehlo.constant dense<true> : tensor<i1>",
        "%c = stablehlo.compare NE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>",
        "%c = stablehlo.compare LT, %x, %x, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>",
    ],
)
def test_sorts_by_what_is_no_order_stay_inside_their_memory(before: str) -> None:
    text = f"""func.func public @main(%a: tensor<3000xf32>) -> tensor<3000xf32> {{
      %0 = "stablehlo.sort"(%a) <{{dimension = 0 : i64, is_stable = false}}> ({{
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          {before}
          stablehlo.return %c : tensor<i1>
      }}) : (tensor<3000xf32>) -> tensor<3000xf32>
      return %0 : tensor<3000xf32>
    }}"""
    x = np.random.default_rng(0).permutation(3000).astype(np.float32)
    np.testing.assert_array_equal(np.sort(call(text, x)), np.arange(3000))


@pytest.mark.parametrize(
    ("kind", "before", "stable"),
    [
        ("f32", "LT, %x, %y, TOTALORDER", False),
        ("f32", "GT, %y, %x, TOTALORDER", False),
        ("i32", "LT, %x, %y, SIGNED", False),
        ("f32", "LT, %x, %y, FLOAT", True),
        ("i32", "LE, %x, %y, SIGNED", True),
    ],
)
def test_sorts_by_an_order_stay_as_they_are(kind: str, before: str, stable: bool) -> None:
    with context():
        module = ir.Module.parse(f"""func.func public @main(%a: tensor<4x{kind}>) {{
          %0 = "stablehlo.sort"(%a) <{{dimension = 0 : i64, is_stable = false}}> ({{
            ^bb0(%x: tensor<{kind}>, %y: tensor<{kind}>):
              %c = stablehlo.compare {before} : (tensor<{kind}>, tensor<{kind}>) -> tensor<i1>
              stablehlo.return %c : tensor<i1>
          }}) : (tensor<4x{kind}>) -> tensor<4x{kind}>
          return
        }}""")
    sorts.make_safe(module)
    assert ("is_stable = true" in str(module)) == stable


def test_results_of_dtypes_that_no_array_has() -> None:
    kind = "tensor<2x!quant.uniform<i8:f32, 0.5:3>>"
    text = f"""func.func public @main(%a: tensor<2xf32>) -> {kind} {{
      %0 = stablehlo.uniform_quantize %a : (tensor<2xf32>) -> {kind}
      return %0 : {kind}
    }}"""
    with pytest.raises(UnsupportedError, match="no array has this dtype"):
        call(text, np.ones(2, np.float32))


def test_mlirs_mark_of_an_unknown_size_is_no_number() -> None:
    text = """func.func public @main(%a: tensor<4x8xf32>) -> tensor<4x3xf32> {
      %0, %1 = chlo.top_k(%a, k = -9223372036854775808)
        : tensor<4x8xf32> -> (tensor<4x3xf32>, tensor<4x3xi32>)
      return %0 : tensor<4x3xf32>
    }"""
    with pytest.raises(StableHLOParseError, match="k holds -9223372036854775808"):
        from_stablehlo(text)

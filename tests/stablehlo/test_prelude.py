"""Symbols of a module that are no functions stay with all that is made of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import EmitError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.interop.jax import to_jax
from relax2xla.stablehlo import emit, parse
from relax2xla.stablehlo.prelude import derived
from relax2xla.transform import LegalizeOps, RaiseStableHLO

# The second mesh stands behind functions, of which raising inlines one.
TEXT = """
sdy.mesh @first = <["x"=1]>
func.func public @main(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = func.call @twice(%x) : (tensor<?x3xf32>) -> tensor<?x3xf32>
  %1 = sdy.sharding_constraint %0 <@last, [{}, {"y"}]> : tensor<?x3xf32>
  return %1 : tensor<?x3xf32>
}
func.func private @twice(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = sdy.sharding_constraint %x <@first, [{}, {"x"}]> : tensor<?x3xf32>
  %1 = stablehlo.add %0, %0 : tensor<?x3xf32>
  return %1 : tensor<?x3xf32>
}
sdy.mesh @last = <["y"=1]>
"""
STATIC = TEXT.replace("?x3", "2x3")
X = np.arange(6, dtype=np.float32).reshape(2, 3)
SPLIT = """
from tvm.script import ir as I, relax as R
@I.ir_module
class M:
    I.module_attrs({"prelude": ['sdy.mesh @m = <["x"=1]>']})
    @R.function
    def main(x: R.Tensor((2, 3), dtype="float32")):
        a = R.sdy.sharding_constraint(x, sharding={"mlir": '#sdy.sharding<@m, [{"x"}, {}]>'})
        n = R.nonzero(R.add(a, a))
        m = R.match_cast(n, R.Tensor((2, "k"), "int64"))
        b = R.sdy.sharding_constraint(m, sharding={"mlir": '#sdy.sharding<@m, [{}, {"x"}]>'})
        return R.add(b, b)
"""


@pytest.mark.parametrize("text", [TEXT, STATIC], ids=["dynamic", "static"])
@pytest.mark.parametrize("raise_ops", [False, True])
def test_whole_programs(text: str, raise_ops: bool, tmp_path: Path) -> None:
    mod = from_stablehlo(text, raise_ops=raise_ops)
    assert rx.to_stablehlo(mod) == str(parse(text))
    executable = rx.build(mod)
    np.testing.assert_array_equal(rx.VirtualMachine(executable)["main"](X), 2 * X)
    np.testing.assert_array_equal(to_jax(mod)(X), 2 * X)
    (written,) = executable.stablehlo().values()
    assert "sdy.mesh @first" in written
    assert "sdy.mesh @last" in written
    executable.export_library(str(tmp_path / "m.r2x"))
    loaded = rx.runtime.load_module(str(tmp_path / "m.r2x"))
    np.testing.assert_array_equal(rx.VirtualMachine(loaded)["main"](X), 2 * X)


def test_regions(tmp_path: Path) -> None:
    mod = rx.script.from_source(SPLIT)
    executable = rx.build(mod)
    assert len(executable.regions) == 2
    wanted = 2 * np.stack(np.nonzero(X))
    np.testing.assert_array_equal(rx.VirtualMachine(executable)["main"](X), wanted)
    assert all("sdy.mesh @m" in text for text in executable.stablehlo().values())
    executable.export_library(str(tmp_path / "m.r2x"))
    loaded = rx.runtime.load_module(str(tmp_path / "m.r2x"))
    np.testing.assert_array_equal(rx.VirtualMachine(loaded)["main"](X), wanted)


def test_passes() -> None:
    # One function is left, where the second mesh stood behind two.
    raised = RaiseStableHLO()(from_stablehlo(STATIC, raise_ops=False))
    assert len(raised) == 1
    text = str(emit(LegalizeOps()(raised)))
    assert "sdy.mesh @first" in text
    assert "sdy.mesh @last" in text


def test_a_derived_module_has_symbols_and_nothing_else() -> None:
    mod = from_stablehlo(f"module @own attributes {{mhlo.is_dynamic = true}} {{{STATIC}}}")
    assert set(mod.meaning) == {"sym_name", "discardable", "prelude"}
    made = derived(mod, {})
    assert list(made.attrs) == ["prelude"]
    assert [text.partition(" =")[0] for text in made.attrs["prelude"]] == [
        "sdy.mesh @first",
        "sdy.mesh @last",
    ]
    assert not derived(from_stablehlo("func.func @main() { return }"), {}).attrs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func private @f()", "holds func.func; it may hold sdy.mesh"),
        ("sdy.mesh @m = <[", "the module's attribute prelude: "),
        ("nothing", "the module's attribute prelude: "),
    ],
)
def test_what_is_no_symbol(text: str, message: str) -> None:
    mod = from_stablehlo(STATIC, raise_ops=False).with_attr("prelude", [text])
    with pytest.raises(EmitError, match=message):
        emit(mod)

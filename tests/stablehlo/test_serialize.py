"""Text, bytecode and portable artefacts: there and back, and clear errors for the rest."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relax2xla import VirtualMachine, build
from relax2xla.errors import EmitError, StableHLOParseError
from relax2xla.stablehlo import mlir, parse, read, to_stablehlo
from relax2xla.stablehlo.serialize import serialize

TEXT = """module {
  func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<2xf32> loc("layer")
    return %0 : tensor<2xf32>
  }
}
"""
PLAIN = TEXT.replace(' loc("layer")', "")
MOD = read(parse(TEXT))


@pytest.mark.parametrize("form", ["text", "bytecode", "portable"])
def test_there_and_back(form: Any) -> None:
    data = to_stablehlo(MOD, form)
    assert isinstance(data, str if form == "text" else bytes)
    assert data == to_stablehlo(MOD, form), "not reproducible"
    assert to_stablehlo(read(parse(data))) == PLAIN


def test_dialects_are_loaded_by_the_programs_that_have_them() -> None:
    """To load all that jaxlib registers takes longer than to write or read a small program."""
    ctx = mlir.context()
    assert ctx.is_registered_operation("stablehlo.add")
    assert not ctx.is_registered_operation("math.exp")
    text = "func.func @f(%x: f32) -> f32 { %y = math.exp %x : f32 return %y : f32 }"
    binary = mlir.to_bytecode(mlir.ir.Module.parse(text, ctx))
    assert ctx.is_registered_operation("math.exp")
    again = mlir.ir.Module.parse(binary, mlir.context())
    assert "math.exp" in str(again)


def test_bytes_may_hold_text() -> None:
    assert str(parse(TEXT.encode())) == PLAIN


def test_locations_are_written_on_demand() -> None:
    assert "loc" not in to_stablehlo(MOD)
    assert 'loc("layer")' in to_stablehlo(MOD, debug_info=True)
    for form in ("bytecode", "portable"):
        back = read(parse(to_stablehlo(MOD, form)))
        assert back["main"].body.blocks[0].bindings[0].span.name == "layer"


def test_older_version() -> None:
    data = to_stablehlo(MOD, "portable", "1.0.0")
    assert b"StableHLO_v1.0.0" in data
    assert str(parse(data)) == PLAIN


def test_wrong_version_and_form() -> None:
    with pytest.raises(ValueError, match=r"version must be one from 0\.9\.0"):
        to_stablehlo(MOD, "portable", "99.0.0")
    with pytest.raises(ValueError, match="version must be"):
        to_stablehlo(MOD, "portable", "new")
    with pytest.raises(ValueError, match="belongs to form"):
        to_stablehlo(MOD, "text", "1.0.0")
    with pytest.raises(ValueError, match="form must be"):
        to_stablehlo(MOD, "json")  # type: ignore[arg-type]


def test_what_a_version_lacks() -> None:
    lowered = jax.jit(lambda x: x.astype("float4_e2m1fn")).lower(np.ones(2, "f"))
    mod = read(lowered.compiler_ir("stablehlo"))
    with pytest.raises(EmitError, match=r"StableHLO 1\.0\.0 lacks func\.func"):
        to_stablehlo(mod, "portable", "1.0.0")


def test_the_operation_that_a_version_lacks() -> None:
    text = PLAIN.replace("stablehlo.add %arg0, %arg0", "stablehlo.tan %arg0")
    mod = read(
        parse(
            text.replace(
                "%0 = stablehlo.tan %arg0 : tensor<2xf32>",
                '%0 = stablehlo.tan %arg0 : tensor<2xf32> loc("layer")',
            )
        )
    )
    with pytest.raises(EmitError, match=r"StableHLO 1\.0\.0 lacks stablehlo\.tan .* at layer"):
        to_stablehlo(mod, "portable", "1.0.0")
    assert str(parse(to_stablehlo(mod, "portable"))) == text


@pytest.mark.parametrize("size", ["2", "?"])
@pytest.mark.parametrize("name", ["erf", "acos", "cosh", "square"])
def test_chlo_is_written_as_stablehlo(name: str, size: str) -> None:
    text = PLAIN.replace(
        "stablehlo.add %arg0, %arg0 : tensor<2xf32>",
        f"chlo.{name} %arg0 : tensor<2xf32> -> tensor<2xf32>",
    )
    text = text.replace("tensor<2xf32>", f"tensor<{size}xf32>")
    written = parse(to_stablehlo(read(parse(text)), "portable"))
    assert not re.search(r"chlo\.|index|unrealized", str(written))
    if size == "2":
        given = np.float32([-0.25, 0.75])
        machines = [VirtualMachine(build(read(p))) for p in (parse(text), written)]
        np.testing.assert_allclose(*(m["main"](given) for m in machines), rtol=1e-6)


def test_what_no_artefact_holds() -> None:
    text = PLAIN.replace(
        "stablehlo.add %arg0, %arg0 :", 'sdy.sharding_constraint %arg0 <@m, [{"x"}]> :'
    )
    mod = read(parse(text.replace("module {", 'module {\n  sdy.mesh @m = <["x"=2]>')))
    with pytest.raises(EmitError, match=r"this program has sdy\.mesh, sdy\.sharding_constr"):
        to_stablehlo(mod, "portable")


BAD: list[tuple[str | bytes, str]] = [
    ("", "empty"),
    ("   \n", "empty"),
    ("foo", "line 1, column 1: .*unknown"),
    (TEXT.replace("%arg0, %arg0", "%arg0, %b"), r"line 3, column 31: use of undeclared"),
    (TEXT.replace("stablehlo.add", "stablehlo.plus"), "line 3"),
    (TEXT.replace(": tensor<2xf32> loc", ": tensor<3xf32> loc"), "line"),
    (b"\x00\x01\x02", "zero bytes"),
    (b"\xff\xfe", "UTF-8"),
    (to_stablehlo(MOD, "bytecode")[:60], "bytecode"),
    (to_stablehlo(MOD, "portable")[:60], "ends within a section"),
]


@pytest.mark.parametrize(("data", "message"), BAD)
def test_bad_programs(data: str | bytes, message: str) -> None:
    with pytest.raises(StableHLOParseError, match=message):
        parse(data)


@settings(max_examples=60)
@given(st.data())
def test_mutated_text_never_escapes(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(TEXT)))
    end = data.draw(st.integers(start, min(len(TEXT), start + 12)))
    with contextlib.suppress(StableHLOParseError):
        read(parse(TEXT[:start] + data.draw(st.text("%<>x0 f:", max_size=3)) + TEXT[end:]))


def test_a_portable_artefact_names_the_attribute_that_it_cannot_hold() -> None:
    text = """func.func public @main(%a: tensor<2xf32> {my.a = 1 : i32}) -> tensor<2xf32> {{
      %0 = stablehlo.add %a, %a {{{}}} : tensor<2xf32>
      return %0 : tensor<2xf32>
    }}"""
    text = text.replace("{my.a = 1 : i32}", "{{my.a = 1 : i32}}")
    for value in ("unit", "[1, unit]", "affine_map<(d0) -> (d0)>"):
        with pytest.raises(EmitError, match=r"my\.b = .* of stablehlo\.add at .*:2:"):
            serialize(parse(text.format(f"my.b = {value}")), "portable")
    assert serialize(parse(text.format("my.b = [true]")), "portable")

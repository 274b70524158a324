"""``from_stablehlo`` on everything it takes, and on what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import CallError, OpNotImplemented, StableHLOParseError, TVMError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.ir import TensorStructInfo
from relax2xla.script import from_source
from relax2xla.stablehlo import emit, parse, to_stablehlo
from relax2xla.stablehlo.serialize import serialize

from .hostile import damaged

X = np.ones((2, 3), np.float32)


def fn(x: Any) -> Any:
    return jnp.tanh(x) + 1


LOWERED = jax.jit(fn).lower(X)
TEXT = LOWERED.as_text()


def sources(tmp_path: Path) -> list[Any]:
    path = tmp_path / "program.mlir"
    path.write_text(TEXT)
    mod = from_stablehlo(TEXT)
    binary = to_stablehlo(mod, "bytecode"), to_stablehlo(mod, "portable")
    return [TEXT, TEXT.encode(), path, LOWERED, LOWERED.compiler_ir("stablehlo"), *binary]


def test_sources(tmp_path: Path) -> None:
    for source in sources(tmp_path):
        text = str(LOWERED.compiler_ir("stablehlo"))
        mod = from_stablehlo(source, [((2, 3), "float32")], raise_ops=False)
        assert str(emit(mod)) == text
        raised = from_stablehlo(source)
        # Text without locations has no names.
        own = "x" if source is LOWERED or "Module" in type(source).__name__ else "arg0"
        assert f"R.tanh({own})" in raised.script()
        assert rx.to_stablehlo(raised) == to_stablehlo(raised) == text


def test_an_edited_module_is_not_written_as_it_was_read() -> None:
    mod = from_stablehlo(TEXT)
    edited = from_source(mod.script(show_meta=True).replace("R.tanh", "R.exp"))
    mod["main"] = edited["main"]
    assert "stablehlo.exponential" in rx.to_stablehlo(mod)
    assert "stablehlo.exponential" in rx.to_stablehlo(edited)
    named = from_stablehlo(TEXT).with_attr("sym_name", "other")
    assert "module @other" in rx.to_stablehlo(named)


def test_exported() -> None:
    mod = from_stablehlo(jax.export.export(jax.jit(fn))(X))
    assert mod["main"].params[0].struct_info == TensorStructInfo((2, 3), "float32")


def test_every_binding_has_a_span() -> None:
    for binding in from_stablehlo(LOWERED, raise_ops=False)["main"].body.blocks[0].bindings:
        if "tanh" in repr(binding.value):
            assert "tanh" in str(binding.span)


def test_symbolic_shapes_are_bound() -> None:
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(jnp.tanh))(jax.ShapeDtypeStruct((n, 3), "float32"))
    mod = from_stablehlo(exported)
    assert mod["main"].params[0].struct_info.ndim == 2
    bound = from_stablehlo(exported, [((7, 3), "float32")])
    assert bound["main"].params[0].struct_info == TensorStructInfo((7, 3), "float32")


def test_the_only_public_function_is_main() -> None:
    text = TEXT.replace("@main", '@"an-entry"')
    mod = from_stablehlo(text, raise_ops=False)
    assert mod["main"].attrs["global_symbol"] == "main"
    assert str(emit(mod)) == text
    assert rx.to_stablehlo(from_source(mod.script(show_meta=True))) == text
    assert from_stablehlo(text, [((2, 3), "float32")])["main"].params


def test_several_public_functions_keep_their_names() -> None:
    two = TEXT.replace("@main", "@a").rstrip().removesuffix("}") + "func.func @b() { return }}"
    mod = from_stablehlo(two)
    assert [g.name_hint for g in mod] == ["a", "b"]
    assert rx.to_stablehlo(mod) == str(parse(two))
    with pytest.raises(StableHLOParseError, match="has a, b"):
        from_stablehlo(two, [((2, 3), "float32")])


def test_bytes_that_end_the_process_are_an_error() -> None:
    """Bytecode that says of itself where things lie, with places that are none."""
    data = to_stablehlo(from_stablehlo(TEXT), "bytecode")
    seen: set[str] = set()
    for broken in damaged(data, seed=5, count=150):
        try:
            from_stablehlo(broken)
        except (StableHLOParseError, OpNotImplemented) as e:
            seen.add(str(e)[:20])
    assert seen


def test_bytecode_whose_strings_are_no_text() -> None:
    call = '@f(%a) {backend_config = "\\00\\D2"} : (tensor<f32>) -> tensor<f32>'
    text = f"func.func @main(%a: tensor<f32>) {{ %0 = stablehlo.custom_call {call} return }}"
    data = serialize(parse(text), "bytecode")
    assert rx.to_stablehlo(from_stablehlo(data)) == str(parse(text))
    with pytest.raises(StableHLOParseError, match="isolate=True"):
        from_stablehlo(data, isolate=False)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ([], "takes 1 inputs"),
        ([((2, 4), "float32")], "dimension 1 of arg0 is 3"),
        ([((2, 3), "int32")], "input_info says"),
        ([((2,), "float32")], "input_info says"),
    ],
)
def test_input_info_that_does_not_fit(info: Any, message: str) -> None:
    with pytest.raises(CallError, match=message):
        from_stablehlo(TEXT, info)


def test_wrong_source() -> None:
    with pytest.raises(TypeError, match="got int"):
        from_stablehlo(3)


@pytest.mark.parametrize("raise_ops", [False, True])
def test_functions_that_attributes_name_are_kept_and_found(raise_ops: bool, tmp_path: Path) -> None:
    def scaled(x: Any) -> Any:
        scale = jax.lax.composite(lambda v: v * 2.0, name="my.scale")
        return scale(x) + jnp.sin(x)

    mod = from_stablehlo(jax.jit(scaled).lower(X).as_text(), raise_ops=raise_ops)
    executable = rx.build(mod)
    got = rx.VirtualMachine(executable)["main"](X)
    np.testing.assert_allclose(np.asarray(got), scaled(X), rtol=1e-6)
    executable.export_library(tmp_path / "saved.r2x")
    again = rx.VirtualMachine(rx.load_module(tmp_path / "saved.r2x"))["main"](X)
    np.testing.assert_array_equal(np.asarray(again), np.asarray(got))


def test_a_function_that_is_named_but_not_there_is_an_error() -> None:
    mod = from_source("""
@R.function
def main(x: R.Tensor((2, 3), "float32")):
    return R.stablehlo.composite(
        x, name="my.scale", decomposition="my.scale", version=1,
        sinfo_args=(R.Tensor((2, 3), "float32"),)
    )
""")
    machine = rx.VirtualMachine(rx.build(mod))
    with pytest.raises(TVMError, match="which the module does not have; it has main"):
        machine["main"](X)

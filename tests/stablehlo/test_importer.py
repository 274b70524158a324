"""``from_stablehlo`` on everything it takes, and on what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from relax2xla.errors import CallError, StableHLOParseError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.ir import TensorStructInfo
from relax2xla.stablehlo import emit, to_stablehlo

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
        mod = from_stablehlo(source, [((2, 3), "float32")])
        assert str(emit(mod)) == str(LOWERED.compiler_ir("stablehlo"))


def test_exported() -> None:
    mod = from_stablehlo(jax.export.export(jax.jit(fn))(X))
    assert mod["main"].params[0].struct_info == TensorStructInfo((2, 3), "float32")


def test_every_binding_has_a_span() -> None:
    for binding in from_stablehlo(LOWERED)["main"].body.blocks[0].bindings:
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
    mod = from_stablehlo(TEXT.replace("@main", "@entry"))
    assert mod["main"].attrs["global_symbol"] == "main"
    two = TEXT.replace("@main", "@a").rstrip().removesuffix("}") + "func.func @b() { return }}"
    with pytest.raises(StableHLOParseError, match="it has a, b"):
        from_stablehlo(two)


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

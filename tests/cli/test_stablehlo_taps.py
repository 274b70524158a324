"""``verify --taps`` and ``--bisect`` of StableHLO: what departs first, by the interpreter too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relax2xla import IRModule
from relax2xla.cli.proof.stablehlo_pieces import inside_of
from relax2xla.ir import Call, Expr, Op
from relax2xla.ir.rewrite import post_order_deep, rewrite_function
from relax2xla.stablehlo.interpreter import interpret
from tests.cli.conftest import Cli
from tests.cli.test_view import data_of

PROGRAM = """
#layer = loc("block/act")
module @net {
  func.func private @twice(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32> loc("x"), %n: tensor<i32> loc("n"))
      -> (tensor<4xf32>, tensor<i32>) {
    %0 = func.call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.tanh %0 : tensor<4xf32> loc(#layer)
    %c = stablehlo.constant dense<3> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %w:2 = stablehlo.while(%i = %n, %v = %1) : tensor<i32>, tensor<4xf32>
      cond {
        %p = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        %u = stablehlo.multiply %v, %x : tensor<4xf32>
        stablehlo.return %j, %u : tensor<i32>, tensor<4xf32>
      }
    %2 = stablehlo.exponential %w#1 : tensor<4xf32> loc("block/exp")
    return %2, %w#0 : tensor<4xf32>, tensor<i32>
  }
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "net.mlir"
    path.write_text(PROGRAM)
    return path


def calls(mod: IRModule, name: str) -> bool:
    found = (n.op for n in post_order_deep(mod["main"]) if isinstance(n, Call))
    return any(isinstance(op, Op) and op.name == f"relax.stablehlo.{name}" for op in found)


def faulty(monkeypatch: pytest.MonkeyPatch, shows: Callable[[IRModule], bool]) -> None:
    """What relax2xla compiles has sines for hyperbolic tangents where ``shows`` says so."""
    from relax2xla.vm.plan import build as home

    right = home.build
    sine = Op.get("relax.stablehlo.sine")

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Call) and node.op == Op.get("relax.stablehlo.tanh"):
            return Call(sine, node.args, None, [node.struct_info], node.span)
        return None

    def wrong(mod: IRModule, *args: Any, **options: Any) -> Any:
        if shows(mod):
            changed = rewrite_function(mod["main"], rule=rule)
            mod = mod.replace({**mod.functions, mod.get_global_var("main"): changed})
        return right(mod, *args, **options)

    monkeypatch.setattr(home, "build", wrong)


def test_all_agree(program: Path, cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "errors.html"
    done = cli("verify", program, "--taps", "--bisect", tmp_path / "piece", "--html", page)
    assert done.code == 0, done.out + done.err
    assert "5 values compared; 0 depart" in done.out
    for name in ("StableHLO's interpreter", "jax.jit of the file"):
        assert f"agrees with {name}" in done.out
    assert "nothing departs" in done.err
    assert not (tmp_path / "piece").exists()
    heat = data_of(page.read_text())["heat"]
    assert heat["title"] == "error"
    assert len(heat["nodes"]) >= 3


def test_the_first_that_departs_is_written(
    program: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(monkeypatch, lambda mod: True)
    found = cli("verify", program)  # it looks by itself
    assert found.code == 1
    assert "(stablehlo.tanh, block/act), float32 4: max abs" in found.out
    folder = tmp_path / "piece"
    done = cli("verify", program, "--bisect", folder, "--json")
    assert done.code == 1
    reports = json.loads(done.out)["references"]
    assert [r["reference"] for r in reports] == ["StableHLO's interpreter", "jax.jit of the file"]
    first = reports[0]["taps"]["first"]
    assert (first["layer"], first["where"].split(",")[0]) == ("block/act", "stablehlo.tanh")
    assert reports[0]["taps"]["reproducer"] == {
        "folder": str(folder),
        "nodes": ["block/act"],
        "departs": True,
    }
    text = (folder / "model.mlir").read_text()
    assert text.count("stablehlo.tanh") == 1
    assert "stablehlo.while" not in text
    with np.load(folder / "inputs.npz") as inputs:
        assert len(inputs) == 1
    # The script finds it again, and nothing once the fault is mended.
    monkeypatch.setattr("sys.argv", ["reproduce.py", "-q"])
    script = compile((folder / "reproduce.py").read_text(), "reproduce.py", "exec")
    for status in (1, 0):
        with pytest.raises(SystemExit) as ended:
            exec(script, {"__file__": str(folder / "reproduce.py")})
        assert ended.value.code == status
        monkeypatch.undo()
        monkeypatch.setattr("sys.argv", ["reproduce.py", "-q"])


def test_a_piece_grows_where_values_inside_agree(
    program: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that shows only where the loop and the function before it are one program."""
    faulty(monkeypatch, lambda mod: calls(mod, "exponential") and len(_results(mod)) <= 2)
    folder = tmp_path / "piece"
    done = cli("verify", program, "--bisect", folder)
    assert done.code == 1
    assert "values compared; 0 depart" in done.out
    assert "which departs as well" in done.out
    text = (folder / "model.mlir").read_text()
    for op in ("tanh", "while", "exponential"):
        assert f"stablehlo.{op}" in text
    assert "stablehlo.add %arg0, %arg0" not in text


def _results(mod: IRModule) -> tuple[Any, ...]:
    return getattr(mod["main"].ret_struct_info, "fields", (None,))


def test_without_the_interpreter(cli: Cli, tmp_path: Path) -> None:
    """It does not know custom calls; XLA does."""
    file = tmp_path / "call.mlir"
    file.write_text(
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
        "  %0 = stablehlo.custom_call @Sharding(%x) : (tensor<2xf32>) -> tensor<2xf32>\n"
        "  %1 = stablehlo.sine %0 : tensor<2xf32>\n"
        "  return %1 : tensor<2xf32>\n}"
    )
    done = cli("verify", file, "--taps")
    assert done.code == 0, done.out + done.err
    assert "left out: StableHLO's interpreter does not run this program" in done.err
    assert "Unsupported op" in done.err
    assert "agrees with jax.jit of the file" in done.out


def test_the_interpreter_takes_every_dtype() -> None:
    import jax
    import jax.numpy as jnp

    from relax2xla.importers.stablehlo import from_stablehlo

    def f(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        at = jnp.zeros(3).at[1].set(2.0)
        return a + 1, b * 2, ~c, d * (1 + 2j), at, jnp.sum(e[0]) * jnp.complex64(1j), e[1]

    args = [
        np.ones(3, jnp.bfloat16),
        np.arange(3, dtype="uint8"),
        np.array([True, False]),
        np.array([1 + 2j], "complex64"),
        np.array([[1, 2], [3, 4]], np.float32),
    ]
    mod = from_stablehlo(jax.jit(f).lower(*args).as_text(), raise_ops=False)
    for got, want in zip(interpret(mod, args), jax.jit(f)(*args), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, np.asarray(want))


def test_the_operand_of_a_scatter_stays() -> None:
    """As a result of its own, which the interpreter would write the scatter's into."""
    from relax2xla.importers.stablehlo import from_stablehlo

    text = """
    func.func @main(%x: tensor<3xf32>, %u: tensor<1xf32>) -> tensor<3xf32> {
      %i = stablehlo.constant dense<1> : tensor<1x1xi32>
      %s = stablehlo.sine %x : tensor<3xf32>
      %0 = "stablehlo.scatter"(%s, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          stablehlo.return %b : tensor<f32>
      }) : (tensor<3xf32>, tensor<1x1xi32>, tensor<1xf32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }"""
    inside = inside_of(from_stablehlo(text, raise_ops=False))
    x, u = np.float32([1, 2, 3]), np.float32([9])
    result, sine, again = interpret(inside.program, [x, u])
    np.testing.assert_allclose(sine, np.sin(x), rtol=1e-6)
    assert result[1] == again[1] == 9


def test_the_interpreter_has_a_time() -> None:
    from relax2xla.errors import UnsupportedError
    from relax2xla.importers.stablehlo import from_stablehlo

    text = PROGRAM.replace("stablehlo.compare LT", "stablehlo.compare NE")
    mod = from_stablehlo(text, raise_ops=False)
    with pytest.raises(UnsupportedError, match="longer than 2 s"):
        interpret(mod, [np.ones(4, np.float32), np.int32(4)], seconds=2)

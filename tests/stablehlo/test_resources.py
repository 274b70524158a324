"""Constants whose bytes stand behind the program run, and are dense where nobody takes others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import relax2xla as rx
from relax2xla.cli import main
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.interop.jax import extract_jax
from relax2xla.stablehlo import emit, to_stablehlo
from relax2xla.stablehlo.interpreter import interpret

PROGRAM = """
module @resources {
  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %c = stablehlo.constant dense_resource<w> : tensor<2xf32>
    %0 = stablehlo.add %arg0, %c : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
{-#
  dialect_resources: {
    builtin: {
      w: "0x040000000000803F00000040"
    }
  }
#-}
"""
GIVEN, EXPECTED = np.array([1, 2], np.float32), [2, 4]


def test_they_run() -> None:
    mod = from_stablehlo(PROGRAM)
    machine = rx.VirtualMachine(rx.build(mod), rx.cpu())
    assert np.asarray(machine["main"](GIVEN)).tolist() == EXPECTED
    fn, params = extract_jax(mod)
    assert fn(params, GIVEN).tolist() == EXPECTED
    rows = from_stablehlo(PROGRAM, raise_ops=False)
    assert interpret(rows, [GIVEN])[0].tolist() == EXPECTED


def test_text_has_them_and_portable_artefacts_do_not() -> None:
    rows = from_stablehlo(PROGRAM, raise_ops=False)
    text = to_stablehlo(rows)
    assert isinstance(text, str)
    assert "dense_resource<w>" in text
    assert "dense_resource<w>" in str(emit(rows))
    portable = to_stablehlo(rows, "portable")
    again = from_stablehlo(portable, raise_ops=False)
    assert "dense<[1.000000e+00, 2.000000e+00]>" in str(emit(again))


def test_jax_runs_them_beside_us(tmp_path: Path) -> None:
    file = tmp_path / "model.mlir"
    file.write_text(PROGRAM)
    assert main(["verify", str(file)]) == 0

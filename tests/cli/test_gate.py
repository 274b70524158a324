"""Files that call back into Python: one message and exit code 2, whatever way they come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import relax2xla
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.stablehlo import parse
from relax2xla.stablehlo.serialize import serialize
from relax2xla.vm.save.manifest import MODULE
from relax2xla.vm.save.writer import collect

from .conftest import Cli

TARGET = "xla_ffi_python_cpu_callback"
TEXT = f"""func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = stablehlo.custom_call @{TARGET}(%a)
    {{api_version = 4 : i32, backend_config = {{index = 0 : ui64}}, has_side_effect = true}}
    : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}
"""


FORMS: dict[str, Callable[[], Any]] = {
    "m.mlir": lambda: TEXT.encode(),
    "m.mlirbc": lambda: serialize(parse(TEXT), "bytecode"),
    "portable.mlirbc": lambda: serialize(parse(TEXT), "portable"),
    "m.relax": lambda: from_stablehlo(TEXT).script().encode(),
}


@pytest.mark.parametrize("name", FORMS)
def test_callbacks_in_files(cli: Cli, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(FORMS[name]())
    for words in (("run", file), ("compile", file, "-o", tmp_path / "out.r2x")):
        done = cli(*words)
        assert done.code == 2
        assert f"the custom call {TARGET} cannot run (at " in done.err
        assert "unexpected" not in done.err
    assert not (tmp_path / "out.r2x").exists()


@pytest.mark.parametrize("member", ["programs/0.mlirbc", MODULE])
def test_callbacks_in_packages(cli: Cli, tmp_path: Path, member: str) -> None:
    made = collect(relax2xla.build(from_stablehlo(TEXT.replace(TARGET, "Sharding"))), False)
    if member == MODULE:
        made.members[member] = made.members[member].replace(b'"Sharding"', f'"{TARGET}"'.encode())
        made.manifest["functions"][0]["programs"] = []
    else:
        data = serialize(parse(TEXT), "bytecode")
        assert isinstance(data, bytes)
        made.members[member] = data
    made.write(tmp_path / "m.r2x")
    done = cli("run", tmp_path / "m.r2x", "--trust")
    assert done.code == 2
    assert f"the custom call {TARGET} cannot run" in done.err


def test_circles_of_calls_are_refused_by_every_command(cli: Cli, tmp_path: Path) -> None:
    """Also where one is no loop of ours, and another runs the file as it is."""
    file = tmp_path / "m.mlir"
    text = """func.func public @main(%a: tensor<f32>) -> tensor<f32> {{
      {0}
      %1 = func.call @main(%0) : (tensor<f32>) -> tensor<f32>
      {1}
      return %{2} : tensor<f32>
    }}"""
    double = "%{} = stablehlo.add %{}, %{} : tensor<f32>"
    forms = {
        "on every path": text.format(double.format(0, "a", "a"), "", 1),
        "recurses deeper": text.format(double.format(0, "a", "a"), double.format(2, 1, 1), 2),
    }
    for said, form in forms.items():
        file.write_text(form)
        for command in ("run", "verify", "bench"):
            done = cli(command, file)
            assert (done.code, said in done.err) == (2, True), (command, done.err)

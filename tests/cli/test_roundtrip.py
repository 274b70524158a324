"""``roundtrip`` and what ``inspect`` says of StableHLO, against counts made by hand."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.cli.commands import roundtrip
from relax2xla.cli.process.isolate import Worker
from relax2xla.cli.proof import programs
from relax2xla.cli.proof.programs import Outcome, check_program, split
from relax2xla.ir import TensorStructInfo, Var, const

from .conftest import Cli

ADD = """func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {
%0 = stablehlo.add %a, %a : tensor<3xf32>
return %0 : tensor<3xf32>
}
"""
NETWORK = """
func.func @main(%a: tensor<1x8x8x4xf32>, %w: tensor<3x3x4x16xf32>, %i: tensor<f32>)
    -> tensor<16x5xf32> {
  %0 = stablehlo.convolution(%a, %w)
    dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x8x8x16xf32>
  %1 = stablehlo.tanh %0 : tensor<1x8x8x16xf32>
  %2 = stablehlo.reduce(%1 init: %i) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<1x8x8x16xf32>, tensor<f32>) -> tensor<8x16xf32>
  %3 = stablehlo.slice %2 [0:8, 0:5] : (tensor<8x16xf32>) -> tensor<8x5xf32>
  %4 = stablehlo.dot_general %2, %3, contracting_dims = [0] x [0]
    : (tensor<8x16xf32>, tensor<8x5xf32>) -> tensor<16x5xf32>
  return %4 : tensor<16x5xf32>
}
"""
FOREVER = """
func.func @main(%a: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.while(%x = %a) : tensor<i32>
    cond { %t = stablehlo.constant dense<true> : tensor<i1>
           stablehlo.return %t : tensor<i1> }
    do { %y = stablehlo.add %x, %x : tensor<i32>
         stablehlo.return %y : tensor<i32> }
  return %0 : tensor<i32>
}
"""
DYNAMIC = """func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {
%0 = stablehlo.tanh %a : tensor<?xf32>
return %0 : tensor<?xf32>
}
"""
ASSERTION = """
func.func @main() {
  %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  stablehlo.custom_call @check.expect_eq(%0, %0) {has_side_effect = true}
    : (tensor<2xi32>, tensor<2xi32>) -> ()
  return
}
"""


def outcome(tmp_path: Path, text: str, run: bool = True) -> Outcome:
    path = tmp_path / "program.mlir"
    path.write_text(text)
    return check_program(path, 0, run, 0)


@pytest.mark.parametrize(
    "text",
    [ADD, NETWORK, DYNAMIC, ASSERTION, ADD.replace("@main", "@other")],
    ids=["add", "network", "dynamic", "assertion", "not main"],
)
def test_the_same(text: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, text)
    assert (found.status, found.detail) == ("same", "")
    assert outcome(tmp_path, text, run=False).status == "identical"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (ADD.replace("@main(", "@a(") + ADD.replace("@main(", "@b("), "2 are public"),
        (
            "func.func @main(%t: !stablehlo.token) -> !stablehlo.token {\n"
            "return %t : !stablehlo.token\n}",
            "no value can be made",
        ),
        (
            "func.func @main(%a: tensor<2xi17>) -> tensor<2xi17> {\nreturn %a : tensor<2xi17>\n}",
            "!i17",
        ),
        (
            "func.func @main(%t: !stablehlo.token) -> (tensor<i32>, !stablehlo.token) {\n"
            '%0:2 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> (tensor<i32>, '
            "!stablehlo.token)\nreturn %0#0, %0#1 : tensor<i32>, !stablehlo.token\n}",
            "stablehlo.infeed cannot run",
        ),
        (
            ADD.replace(
                "stablehlo.add %a, %a : tensor<3xf32>",
                "stablehlo.custom_call @foo(%a) {api_version = 4 : i32} "
                ": (tensor<3xf32>) -> tensor<3xf32>",
            ),
            "foo",
        ),
    ],
    ids=["no main", "token", "dtype", "infeed", "custom call"],
)
def test_what_cannot_be_run_is_still_read(text: str, why: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, text)
    assert found.status == "identical", found
    assert why in found.detail


def test_differences_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relax2xla import stablehlo

    wrong = stablehlo.parse(ADD.replace("stablehlo.add", "stablehlo.multiply"))
    monkeypatch.setattr(stablehlo, "emit", lambda mod: wrong)
    found = outcome(tmp_path, ADD)
    assert found.status == "differs"
    assert "stablehlo.multiply" in found.detail
    assert "line 3" in found.detail

    class Same:
        """The program that multiplies, with the other's text."""

        def __getattr__(self, name: str) -> object:
            return getattr(wrong, name)

        def __str__(self) -> str:
            return str(stablehlo.parse(ADD))

    monkeypatch.setattr(stablehlo, "emit", lambda mod: Same())
    monkeypatch.setattr(
        programs,
        "_runnable",
        lambda *args: (lambda x: [x[0] + x[0]], lambda x: [x[0] * x[0]], [np.arange(3.0)]),
    )
    found = outcome(tmp_path, ADD)
    assert (found.status, found.detail) == ("differs", "result 0: 1 of 3 elements differ")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (np.float32([np.nan, 1]), np.float32([-np.nan, 1]), True),
        (np.float32([0.0]), np.float32([-0.0]), False),
        (np.complex64([1 + 2j]), np.complex64([1 + 3j]), False),
        (np.complex64([complex(np.nan, 1)]), np.complex64([complex(-np.nan, 1)]), True),
        (np.array([True]), np.array([False]), False),
        (np.int32([1]), np.int64([1]), False),
        (np.zeros((0, 2)), np.zeros((0, 2)), True),
    ],
)
def test_bits_are_compared(a: np.ndarray, b: np.ndarray, same: bool) -> None:
    assert (programs._different([a], [b]) == "") == same


def test_split() -> None:
    parts = split(f"{ADD}// -----\n{ADD}// ----- the last\n{DYNAMIC}".encode())
    assert [p.decode() for p in parts] == [ADD, ADD, DYNAMIC]
    assert split(b"ML\xefR\n// -----\nx") == [b"ML\xefR\n// -----\nx"]
    assert split(b"") == [b""]


def test_command(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "add.mlir"
    file.write_text(f"{ADD}// -----\n{DYNAMIC}")
    done = cli("roundtrip", file)
    assert done.code == 0, done.err
    assert f"{file}#2" in done.out
    assert done.out.endswith("2 programs: 2 the same\n")
    done = cli("roundtrip", file, "--no-run", "--json")
    found = json.loads(done.out)
    assert [p["status"] for p in found["programs"]] == ["identical", "identical"]
    assert found["summary"]["identical"] == 2


def test_binary_forms(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "add.mlir"
    file.write_text(ADD)
    made = [tmp_path / "add.mlirbc", tmp_path / "add.stablehlo"]
    for path in made:
        assert cli("convert", file, "-o", path).code == 0
    done = cli("roundtrip", *made)
    assert done.code == 0
    assert "2 programs: 2 the same" in done.out


def test_a_folder_goes_through_a_child(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "add.mlir").write_text(ADD)
    (tmp_path / "broken.mlir").write_text("func.func @main(")
    (tmp_path / "notes.txt").write_text("not a program")
    monkeypatch.setattr(roundtrip, "ROWS", 1)
    done = cli("roundtrip", tmp_path, tmp_path / "broken.mlir", "--save", tmp_path / "saved")
    assert done.code == 2
    assert "line 1, column" in done.out
    assert "add.mlir" not in done.out  # more programs than rows: only what needs a look
    assert done.out.endswith("2 programs: 1 the same, 1 not parsed\n")
    assert not list((tmp_path / "saved").iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_child_that_dies_is_one_row(tmp_path: Path) -> None:
    add, forever = tmp_path / "add.mlir", tmp_path / "forever.mlir"
    add.write_text(ADD)
    forever.write_text(FOREVER)
    with Worker(timeout=60, memory=2**33) as worker:
        assert worker.check(add, 0, True, 0).status == "same"
        first = worker.process
        assert worker.check(add, 0, False, 0).status == "identical"
        assert worker.process is first
        assert first is not None
        os.kill(first.pid, signal.SIGABRT)
        first.wait()
        died = worker.check(add, 0, True, 0)
        assert died.status == "error"
        assert "ended by SIGABRT" in died.detail
        worker.timeout = 10
        assert worker.check(add, 0, True, 0).status == "same"
        worker.timeout = 1
        late = worker.check(forever, 0, True, 0)
        assert (late.status, late.detail) == ("error", "not done after 1 s (--timeout)")
        assert worker.process is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps this limit")
def test_memory_is_limited(tmp_path: Path) -> None:
    large = tmp_path / "large.mlir"
    large.write_text(ADD.replace("3xf32", "400000000xf32"))
    with Worker(timeout=60, memory=2**30) as worker:
        found = worker.check(large, 0, True, 0)
    assert found.status in ("error", "identical")
    assert found.detail


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.onnx", "x", "round trips are of StableHLO"),
        ("missing.mlir", None, "there is no such file"),
        ("folder", None, "holds no file of the kinds .mlir, .mlirbc, .stablehlo"),
    ],
)
def test_errors(name: str, content: str | None, message: str, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    elif not path.suffix:
        path.mkdir()
    done = cli("roundtrip", path)
    assert done.code == 2
    assert message in done.err


def test_inspect_counts_flops_and_bytes(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "network.mlir"
    file.write_text(NETWORK)
    costs = json.loads(cli("inspect", file, "--json").out)["costs"]
    pixels = 8 * 8 * 16
    assert costs["stablehlo.convolution"]["flops"] == 2 * pixels * 3 * 3 * 4
    assert costs["stablehlo.convolution"]["bytes"] == 4 * (8 * 8 * 4 + 3 * 3 * 4 * 16 + pixels)
    assert costs["stablehlo.tanh"] == {
        "calls": 1, "flops": pixels, "bytes": 8 * pixels, "dynamic": 0,
    }  # fmt: skip
    assert costs["stablehlo.reduce"]["flops"] == pixels
    assert costs["stablehlo.slice"]["flops"] == 0
    assert costs["stablehlo.dot_general"]["flops"] == 2 * 16 * 5 * 8
    done = cli("inspect", file)
    assert f"{2 * pixels * 36:,}" in done.out
    assert "before any fusion" in done.out


def test_inspect_shows_custom_calls_and_dynamic_shapes(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "calls.mlir"
    file.write_text(
        "func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {\n"
        "%0 = stablehlo.custom_call @foo(%a) : (tensor<?xf32>) -> tensor<?xf32>\n"
        "return %0 : tensor<?xf32>\n}"
    )
    done = cli("inspect", file)
    assert done.code == 0, done.err
    assert "custom calls: foo (1)" in done.out
    assert "symbolic dimensions: " in done.out
    found: dict[str, Callable[..., object]] = json.loads(cli("inspect", file, "--json").out)
    assert found["costs"] == {
        "stablehlo.custom_call": {"calls": 1, "flops": 0, "bytes": 0, "dynamic": 1}
    }


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("roundtrip", "relax2xla roundtrip programs/ --no-run"),
        ("diff", "relax2xla diff before.mlir after.mlir"),
        ("opt", "relax2xla opt model.mlir --passes RaiseStableHLO"),
    ],
)
def test_help_has_examples(command: str, example: str, cli: Cli) -> None:
    assert example in cli(command, "--help").out


def test_weights_beside_a_program(cli: Cli, tmp_path: Path) -> None:
    weight = const(np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32))
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((3, 64)))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.matmul(x, weight)))
    file = tmp_path / "m.mlir"
    rx.save(bb.get(), file, weights=tmp_path / "m.safetensors")
    assert "dense_resource<" in file.read_text()
    done = cli("roundtrip", file)
    assert (done.code, "the same" in done.out) == (0, True), done.out
    (tmp_path / "m.safetensors").unlink()
    done = cli("roundtrip", file)
    assert (done.code, "m.safetensors" in done.out) == (2, True), done.out

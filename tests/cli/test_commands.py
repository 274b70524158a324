"""Every command on a small model of each format, against the frameworks' own results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

import relax2xla as rx

from .conftest import OPTIONS, RELAX, WRITERS, Cli, weights

Models = Callable[[str], Path]
KINDS = pytest.mark.parametrize("kind", list(WRITERS))


@KINDS
def test_inspect(kind: str, models: Models, cli: Cli) -> None:
    done = cli("inspect", models(kind), *OPTIONS[kind])
    assert done.code == 0, done.err
    assert "main" in done.out
    assert "what runs where" in done.out
    assert "one XLA program" in done.out
    assert "\x1b" not in done.out


def test_inspect_as_json(models: Models, cli: Cli) -> None:
    found = json.loads(cli("inspect", models("onnx"), "--json").out)
    assert found["format"] == "ONNX model"
    assert found["symbolic_dimensions"] == ["n"]
    assert found["operators"] == {"matmul": 1, "nn.softmax": 1}
    assert found["weights"]["elements"] == 12
    (main,) = found["functions"]
    assert main["parameters"] == [
        {
            "name": "in_x",
            "source_name": "in.x",
            "struct_info": 'Tensor((n, 4), dtype="float32")',
        }
    ]
    assert main["result_names"] == ["z"]


def test_inspect_text(models: Models, cli: Cli) -> None:
    assert "R.nn.softmax" in cli("inspect", models("relax"), "--text").out


@KINDS
@pytest.mark.parametrize("to", ["relax", "py", "mlir", "mlirbc", "stablehlo"])
def test_convert_keeps_the_results(
    kind: str, to: str, models: Models, cli: Cli, tmp_path: Path
) -> None:
    out = tmp_path / f"model.{to}"
    done = cli("convert", models(kind), "-o", out, *OPTIONS[kind])
    assert done.code == 0, done.err
    assert [p.name for p in tmp_path.iterdir()] == [out.name]
    before = run_saved(cli, models(kind), tmp_path / "a.npz", *OPTIONS[kind])
    after = run_saved(cli, out, tmp_path / "b.npz")
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-5, atol=1e-6)


def test_convert_keeps_symbolic_sizes(models: Models, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "model.mlir"
    done = cli("convert", models("relax"), "-o", out)
    assert done.code == 0, done.err
    assert "tensor<?x" in out.read_text()
    before = run_saved(cli, models("relax"), tmp_path / "a.npz", "--shape", "n=3")
    arg = next(line for line in out.read_text().split("\n") if "tensor<?x" in line)
    assert "@main" in arg
    size = ["--shape", f"{dimension(cli, out)}=3"]
    after = run_saved(cli, out, tmp_path / "b.npz", *size)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-5, atol=1e-6)


def dimension(cli: Cli, file: Path) -> str:
    """The symbolic dimension of a program that has one."""
    done = cli("inspect", file, "--json")
    (name,) = json.loads(done.out)["symbolic_dimensions"]
    return name


def run_saved(cli: Cli, file: Path, out: Path, *options: str) -> dict[str, np.ndarray]:
    done = cli("run", file, "-o", out, *options)
    assert done.code == 0, done.err
    with np.load(out) as archive:
        return dict(archive)


def test_stablehlo_text_is_unchanged_through_relax(
    models: Models, cli: Cli, tmp_path: Path
) -> None:
    relax, back = tmp_path / "model.relax", tmp_path / "model.mlir"
    assert cli("convert", models("mlir"), "-o", relax).code == 0
    assert cli("convert", relax, "-o", back).code == 0
    assert back.read_text() == models("mlir").read_text()


def test_convert_to_standard_output(
    models: Models, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from relax2xla.cli import main

    assert main(["convert", str(models("mlir")), "-o", "-", "--to", "mlir"]) == 0
    assert capfdbinary.readouterr().out == models("mlir").read_bytes()


def test_a_portable_artefact_of_an_old_version(models: Models, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "old.stablehlo"
    words = ("convert", models("mlir"), "-o", out, "--stablehlo-version", "1.0.0")
    assert cli(*words).code == 0
    assert b"StableHLO_v1.0.0" in out.read_bytes()[:64]


def test_run_on_files(models: Models, cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    x, bias = rng.standard_normal((2, 4), np.float32), rng.standard_normal(3, np.float32)
    np.savez(tmp_path / "in.npz", arg1=bias, arg0=x)
    out = tmp_path / "out.npz"
    done = cli("run", models("mlir"), "--inputs", tmp_path / "in.npz", "-o", out)
    assert done.code == 0, done.err
    with np.load(out) as found:
        np.testing.assert_allclose(
            found["output_0"], np.tanh(x @ weights()) + bias, rtol=1e-4, atol=1e-5
        )
        np.testing.assert_array_equal(found["output_1"], x.max(1))
    # The same arrays by position, and one by name.
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "bias.npy", np.asfortranarray(bias))
    for words in (["x.npy", "bias.npy"], ["arg1=bias.npy", "x.npy"]):
        inputs = [w if "=" not in w else w.replace("=", f"={tmp_path}/") for w in words]
        given = [tmp_path / w if "=" not in w else w for w in inputs]
        flags = [f for w in given for f in ("--inputs", w)]
        again = tmp_path / "again.npz"
        assert cli("run", models("mlir"), *flags, "-o", again).code == 0
        with np.load(out) as a, np.load(again) as b:
            np.testing.assert_array_equal(a["output_0"], b["output_0"])


def test_onnx_inputs_go_by_the_models_own_name(
    models: Models, cli: Cli, tmp_path: Path, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((5, 4), np.float32)
    np.savez(tmp_path / "in.npz", **{"in.x": x})
    out = tmp_path / "out.npy"
    done = cli("run", models("onnx"), "-i", tmp_path / "in.npz", "-o", out)
    assert done.code == 0, done.err
    np.testing.assert_allclose(np.load(out), jax.nn.softmax(x @ weights()), rtol=1e-5, atol=1e-6)
    for shape in ("in.x=2x4", "in_x=2x4", "n=2"):
        assert "2x3" in cli("run", models("onnx"), "--shape", shape).out


def test_the_seed_decides_the_inputs(models: Models, cli: Cli) -> None:
    first, same, other = (cli("run", models("mlir"), "--seed", s).out for s in (1, 1, 2))
    assert first == same != other


def test_bfloat16_and_integers_are_saved(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "model.mlir"
    file.write_text(
        "func.func @main(%a: tensor<3xbf16>, %b: tensor<3xi64>, %c: tensor<3xi1>) -> "
        "(tensor<3xbf16>, tensor<3xi64>, tensor<3xi1>) {\n"
        "  return %a, %b, %c : tensor<3xbf16>, tensor<3xi64>, tensor<3xi1>\n}"
    )
    big = np.array([2**62 + 1, -(2**63), 7])
    np.save(tmp_path / "b.npy", big)
    found = run_saved(cli, file, tmp_path / "o.npz", "-i", f"arg1={tmp_path / 'b.npy'}")
    assert found["output_0"].dtype == np.float32
    np.testing.assert_array_equal(found["output_1"], big)
    assert found["output_2"].dtype == np.bool_
    done = cli("verify", file)
    assert done.code == 0, done.out + done.err


@KINDS
def test_verify(kind: str, models: Models, cli: Cli) -> None:
    done = cli("verify", models(kind), *OPTIONS[kind])
    assert done.code == 0, done.out + done.err
    names = {"onnx": "on", "pt2": "torch", "mlir": "jax.jit", "relax": "XLA without passes"}
    assert f"agrees with {names[kind]}" in done.out.replace("ONNX", "onnx")


def test_verify_finds_a_mismatch(models: Models, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from relax2xla.cli.commands import verify

    def wrong(*args: object, **options: object) -> object:
        for reference, found in references(*args, **options):
            yield reference, [np.asarray(v) + 1 for v in found]

    references = verify.references
    monkeypatch.setattr(verify, "references", wrong)
    done = cli("verify", models("mlir"))
    assert done.code == 1
    assert "MISMATCH" in done.out
    assert "DIFFERS" in done.out
    assert cli("verify", models("onnx"), "--shape", "n=2", "--atol", "2").code == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        (np.float32([1, np.inf, np.nan]), np.float32([1, np.inf, np.nan]), True),
        (np.float32([np.inf]), np.float32([-np.inf]), False),
        (np.float32([np.nan]), np.float32([0]), False),
        (np.float32([0]), np.float32([np.nan]), False),
        (np.int64([2**62]), np.int64([2**62 + 1]), False),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), True),
        (np.array([True]), np.array([False]), False),
        (np.float32([1]), np.float32([1.0005]), True),
        (np.float32([1]), np.float32([1.01]), False),
    ],
)
def test_compare(ours: np.ndarray, theirs: np.ndarray, fits: bool) -> None:
    from relax2xla.cli.proof.comparison import compare

    assert compare([ours], [theirs], None, None)[0].fits is fits


def test_a_tolerance_that_grows_with_the_largest_number() -> None:
    from relax2xla.cli.proof.comparison import compare

    expected = np.float32([1000, 0.001, np.inf])
    off = expected + np.float32([0, 0.05, 0])
    assert not compare([off], [expected], None, None)[0].fits
    assert compare([off], [expected], None, None, scaled=True)[0].fits
    assert not compare([off * np.float32(1.01)], [expected], None, None, scaled=True)[0].fits
    assert not compare([off], [expected], None, 1e-4, scaled=True)[0].fits


@KINDS
def test_bench(kind: str, models: Models, cli: Cli) -> None:
    done = cli("bench", models(kind), "--rounds", 2, "--json", *OPTIONS[kind])
    assert done.code == 0, done.err
    variants = json.loads(done.out)["variants"]
    assert variants["relax2xla"]["ratio"] == 1
    assert len(variants) >= 2
    assert all(v["min_ms"] > 0 for v in variants.values())


def test_load_takes_every_format(models: Models, tmp_path: Path) -> None:
    assert isinstance(rx.load(models("mlir")), rx.IRModule)
    assert isinstance(rx.load(str(models("pt2")), trust=True), rx.IRModule)
    fixed = rx.load(models("relax"), shapes={"n": 7})
    assert fixed["main"].params[0].struct_info.dims == (7, 4)
    whole = rx.load(models("relax"), shapes={"x": (7, 4)})
    rx.ir.assert_structural_equal(fixed, whole)
    script = tmp_path / "one.py"
    script.write_text(RELAX)
    rx.ir.assert_structural_equal(rx.load(script), rx.load(models("relax")))


def test_relax_text_is_never_executed(tmp_path: Path, cli: Cli) -> None:
    witness = tmp_path / "witness"
    file = tmp_path / "model.py"
    file.write_text(f"open({str(witness)!r}, 'w').write('x')\n{RELAX}")
    cli("inspect", file)
    file.write_text(RELAX.replace('"n", 4', f'open({str(witness)!r}, "w"), 4'))
    assert cli("inspect", file).code == 2
    assert not witness.exists()


def test_run_reports(cli: Cli, models: Models, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = cli("run", models("mlir"), "--profile", "--memory", "--trace", trace)
    assert done.code == 0, done.err
    assert "time in XLA's steps" in done.out
    assert 0 <= done.out.find("memory of main by XLA") < done.out.index("outputs\n")
    assert "temporaries" in done.out
    events = json.loads(trace.read_text())["traceEvents"]
    assert any(e["ph"] == "X" and e["dur"] > 0 for e in events)


HOSTED = """
from relax2xla.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        y = R.exp(R.nn.relu(x))
        found = R.nonzero(R.subtract(y, R.const(1.0, "float32")))
        return R.add(found, R.const(1, "int64"))
"""


def test_programs_with_work_on_the_host(cli: Cli, tmp_path: Path) -> None:
    file, saved, trace = tmp_path / "m.relax", tmp_path / "m.r2x", tmp_path / "t.json"
    file.write_text(HOSTED)
    np.save(tmp_path / "x.npy", np.array([-1, 2, 0, 3], np.float32))
    given = ("-i", tmp_path / "x.npy", "-o", tmp_path / "out.npz")
    done = cli("run", file, *given, "--profile", "--memory", "--trace", trace)
    assert done.code == 0, done.err
    assert "main_region0" in done.out
    assert "relax.nonzero" in done.out
    assert "m.relax:8" in done.out
    assert cli("compile", file, "-o", saved).code == 0
    assert "give its sizes" in cli("run", saved).err
    for command in (("run", saved, *given), ("verify", file, "--shape", "n=5")):
        done = cli(*command)
        assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["output_0"], [[2, 4]])


def test_run_a_saved_executable(cli: Cli, models: Models, tmp_path: Path) -> None:
    import relax2xla as rx
    from relax2xla.importers.files import load

    rx.build(load(models("mlir"))).export_library(tmp_path / "m.r2x")
    outputs = [tmp_path / f"{i}.npz" for i in range(3)]
    commands = [[models("mlir")], [tmp_path / "m.r2x"], [tmp_path / "m.r2x", "--trust"]]
    for words, output in zip(commands, outputs, strict=True):
        done = cli("run", *words, "-o", output)
        assert done.code == 0, done.err
    first, *others = (np.load(o) for o in outputs)
    for other in others:
        for name in first:
            np.testing.assert_allclose(first[name], other[name], rtol=1e-6)
    (tmp_path / "bad.r2x").write_bytes(b"PK\3\4")
    assert "no saved executable" in cli("run", tmp_path / "bad.r2x").err


def test_a_program_that_jax_serialised(cli: Cli, tmp_path: Path) -> None:
    export = pytest.importorskip("jax.export")
    pytest.importorskip("flatbuffers")
    (n,) = export.symbolic_shape("n")

    def fn(a: jax.Array) -> jax.Array:
        return jax.lax.platform_dependent(a, cpu=lambda v: v + 1, cuda=lambda v: v + 100)

    made = export.export(jax.jit(fn), platforms=["cuda", "cpu"])
    path = tmp_path / "model.bin"
    path.write_bytes(made(jax.ShapeDtypeStruct((n,), "float32")).serialize())
    np.save(tmp_path / "x.npy", np.arange(3, dtype=np.float32))
    assert "serialised program of jax.export" in cli("inspect", path).out
    found = cli("run", path, "-i", tmp_path / "x.npy", "-o", tmp_path / "out.npz")
    assert found.code == 0, found.err
    with np.load(tmp_path / "out.npz") as results:
        np.testing.assert_array_equal(results[results.files[0]], [1.0, 2.0, 3.0])
    assert "ok" in cli("verify", path, "--shape", "n=3").out
    assert cli("convert", path, "-o", tmp_path / "model.relax").code == 0
    found = cli("run", tmp_path / "model.relax", "--shape", "n=3")
    # The argument's own name, and none for the platform's.
    assert re.search(r"^a +float32", found.out, re.MULTILINE)
    assert "arg0" not in found.out

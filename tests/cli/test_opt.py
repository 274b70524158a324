"""``opt``: passes by name, what it prints, and results that stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relax2xla import transform
from relax2xla.cli.commands.opt import PIPELINES, WITH_ARGUMENT, names, parse_passes
from relax2xla.errors import TVMError
from relax2xla.ir import Function, GlobalVar, IRModule
from relax2xla.transform.core.registry import all_passes, takes_arguments

from .conftest import Cli

Models = Callable[[str], Path]


def test_every_pass_can_be_named() -> None:
    for name, made in all_passes().items():
        if takes_arguments(made) and name != "ConvertLayout":
            with pytest.raises(TVMError, match=r"from Python|is named as|written as"):
                parse_passes(name)
            continue
        assert [p.info.name for p in parse_passes(name)] == [name]
    assert set(WITH_ARGUMENT) <= set(all_passes())
    assert set(names()) == {*all_passes(), *PIPELINES}


def test_names_may_be_written_in_other_ways() -> None:
    text = "legalize-ops, DEADCODEELIMINATION,convert_layout=NHWC/OHWI,zero"
    names = [p.info.name for p in parse_passes(text)]
    assert names == ["LegalizeOps", "DeadCodeElimination", "ConvertLayout", "zero"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LegaliseOps", "did you mean LegalizeOps"),
        (
            "nothing-like-it",
            r"(?s)\nThere are .*BindParams,.*CanonicalizeBindings,.*ConvertLayout.*\bzero",
        ),
        ("LegalizeOps=2", "LegalizeOps=kernels"),
        ("FoldConstant=2", "takes no argument"),
        ("ConvertLayout=NHWC", "ConvertLayout=NHWC/HWIO"),
        ("BindSymbolicVars=n", "BindSymbolicVars=n=3/m=4"),
        ("bind-params", "bind-params=weights.safetensors"),
        ("zero,,default", "names with commas"),
        ("", r"names with commas between\nThere are "),
    ],
)
def test_wrong_passes(text: str, message: str) -> None:
    with pytest.raises(TVMError, match=message):
        parse_passes(text)


def test_text_on_standard_output(cli: Cli, models: Models, tmp_path: Path) -> None:
    done = cli("opt", models("relax"), "--passes", "LegalizeOps", "--shape", "n=3")
    assert done.code == 0, done.err
    assert "R.stablehlo.multiply" in done.out
    assert "LegalizeOps: 2 -> " in done.err
    again = tmp_path / "again.relax"
    again.write_text(done.out)
    assert cli("inspect", again).code == 0


def test_operators_as_loop_level_functions(cli: Cli, models: Models) -> None:
    words = ("opt", models("relax"), "--shape", "n=3", "--passes")
    done = cli(*words, "LegalizeOps=kernels")
    assert done.code == 0, done.err
    assert "R.call_tir(cls.multiply" in done.out
    assert "R.stablehlo" not in done.out
    assert "R.stablehlo.multiply" in cli(*words, "LegalizeOps=rows").out


def test_printing(cli: Cli, models: Models) -> None:
    words = ("opt", models("relax"), "--passes", "default,LegalizeOps", "--shape", "n=3")
    done = cli(*words, "--print-before", "legalize-ops", "--print-after", "zero")
    assert done.code == 0, done.err
    assert done.err.count("# ---- ") == 1
    _, _, shown = done.err.partition("# ---- before LegalizeOps\n")
    assert "R.nn.softmax" in shown
    assert "warning: zero did not run" in done.err
    assert "\n  FoldBatchNorm: " in done.err  # inside of the pipeline
    done = cli(*words, "--print-after", "all")
    assert done.err.count("# ---- after") >= 5


@pytest.mark.parametrize("passes", ["RaiseStableHLO", "RaiseStableHLO,default,LegalizeOps"])
def test_results_stay(passes: str, cli: Cli, models: Models, tmp_path: Path) -> None:
    out = tmp_path / "out.mlir"
    done = cli("opt", models("mlir"), "--passes", passes, "-o", out)
    assert done.code == 0, done.err
    assert f"wrote {out}" in done.err
    values: list[dict[str, np.ndarray]] = []
    for i, file in enumerate((models("mlir"), out)):
        saved = tmp_path / f"{i}.npz"
        assert cli("run", file, "-o", saved).code == 0
        with np.load(saved) as archive:
            values.append(dict(archive))
    for name, value in values[0].items():
        np.testing.assert_allclose(values[1][name], value, rtol=1e-5, atol=1e-6)


def test_parameters_from_a_file(cli: Cli, tmp_path: Path) -> None:
    model, weights = tmp_path / "model.relax", tmp_path / "weights.npz"
    model.write_text(
        "@R.function\n"
        'def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):\n'
        "    y = R.multiply(x, w)\n"
        "    return y\n"
    )
    np.savez(weights, w=np.float32([3, 5]))
    done = cli("opt", model, "--passes", f"BindParams={weights}")
    assert done.code == 0, done.err
    assert "def main(x: R.Tensor" in done.out
    assert "w: R.Tensor" not in done.out
    np.savez(weights, v=np.float32([3, 5]))
    done = cli("opt", model, "--passes", f"BindParams={weights}")
    assert done.code == 2
    assert "'v'" in done.err
    done = cli("opt", model, "--passes", f"BindParams={tmp_path / 'missing.npz'}")
    assert done.code == 2
    assert "missing.npz" in done.err


def test_errors(cli: Cli, models: Models, tmp_path: Path) -> None:
    done = cli("opt", models("relax"), "--passes", "zero", "-o", tmp_path / "out.onnx")
    assert done.code == 2
    assert "does not say what to write" in done.err
    done = cli("opt", models("relax"), "--passes", "zero", "--print-after", "nothing")
    assert done.code == 2
    assert "--print-after: there is no pass" in done.err


def test_modules_are_checked_if_asked(
    cli: Cli, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("opt", models("relax"), "--passes", "CanonicalizeBindings")
    assert cli(*words, "--check").code == 0

    def spoil(self: object, mod: IRModule, context: transform.PassContext) -> IRModule:
        main = mod["main"]
        assert isinstance(main, Function)
        return IRModule({GlobalVar("main"): Function([], main.body, main.ret_struct_info)})

    monkeypatch.setattr(transform.CanonicalizeBindings, "transform_module", spoil)
    done = cli(*words, "--check")
    assert done.code == 2
    assert "in what the pass CanonicalizeBindings made" in done.err

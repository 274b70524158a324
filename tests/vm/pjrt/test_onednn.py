"""oneDNN is called for composites, gives what their rows give, and no file can ask for it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.errors import UnsupportedError
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.ir import Expr
from relax2xla.kernels.onednn import choice
from relax2xla.kernels.onednn.calls import FEATURES, FUSIONS
from relax2xla.stablehlo import mlir
from relax2xla.transform.cpu.calls import depthwise as call_depthwise
from relax2xla.vm.pjrt import cache, onednn

RNG = np.random.default_rng(3)
KINDS = {k for row in choice.TABLE.values() for k in row}


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAX2XLA_ONEDNN", "1")


@pytest.fixture
def everything_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be called is; skips where nothing can."""
    if not choice.may_call() or "dense 2" not in onednn.features():
        pytest.skip("oneDNN cannot be called here")
    row = dict.fromkeys(KINDS, choice.Faster(0, 1.0))
    monkeypatch.setattr(choice, "TABLE", {processor.kind(): row})
    # Depthwise convolutions have a function of their own where there is a compiler.
    monkeypatch.setattr(call_depthwise, "may_call", lambda: False)


def array(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype("f")


def conv(x: Expr, w: Expr, **options: Any) -> Expr:
    return R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", **options)


GIVEN = (array(1, 9, 8, 6), array(3, 2, 6, 8), array(8), array(3, 3, 1, 8), array(1, 5, 4, 8))


def network(x: Expr, w: Expr, b: Expr, deep: Expr, y: Expr) -> Expr:
    """Convolutions, with steps, without and depthwise, and all that is fused behind them."""
    emit = rx.BlockBuilder.current().emit
    strided = conv(x, w, strides=(2, 2), padding=(1, 0, 1, 1))
    h = emit(R.nn.gelu(emit(R.add(emit(R.add(emit(strided), b)), y))))
    h = emit(R.sigmoid(emit(conv(h, deep, padding=1, groups=8))))
    h = emit(R.nn.gelu_tanh(emit(conv(h, deep, padding=2, dilation=2, groups=8))))
    return R.tanh(emit(conv(h, deep, padding=1, groups=8)))


def module(body: Callable[..., Expr] = network, given: Sequence[Any] = GIVEN) -> rx.IRModule:
    infos = [rx.TensorStructInfo(a.shape, str(a.dtype)) for a in given]
    params = [rx.Var(f"x{i}", info) for i, info in enumerate(infos)]
    builder = rx.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(body(*params)))
    return builder.get()


def built(mod: rx.IRModule, disabled: Sequence[str] = ()) -> rx.VirtualMachine:
    with rx.transform.PassContext(disabled_pass=list(disabled)):
        return rx.VirtualMachine(rx.build(mod, "cpu"))


def calls(vm: rx.VirtualMachine) -> int:
    """The calls of oneDNN in the program that ran."""
    (loaded,) = vm["main"].specialised.loaded()
    return loaded.hlo_text().count('custom_call_target="__onednn$')


@pytest.mark.usefixtures("everything_is_faster")
def test_a_program_calls_it_and_gives_what_rows_give() -> None:
    vm, rows = built(module()), built(module(), ["CallOneDnn"])
    made, expected = vm["main"](*GIVEN), rows["main"](*GIVEN)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)
    assert (calls(vm), calls(rows)) == (4, 0)


@pytest.mark.usefixtures("everything_is_faster")
def test_files_hold_rows_and_choose_where_they_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = rx.build(module(), "cpu")
    expected = np.asarray(rx.VirtualMachine(executable)["main"](*GIVEN))
    path = tmp_path / "model.r2x"
    executable.export_library(path)
    with zipfile.ZipFile(path) as file:
        assert not any(b"__onednn$" in file.read(name) for name in file.namelist())
    loaded = rx.VirtualMachine(rx.load_module(path))
    np.testing.assert_array_equal(loaded["main"](*GIVEN), expected)
    assert calls(loaded) == 4
    monkeypatch.setattr(onednn, "features", frozenset)
    without = rx.VirtualMachine(rx.load_module(path))
    np.testing.assert_allclose(without["main"](*GIVEN), expected, rtol=1e-5, atol=1e-5)
    assert calls(without) == 0


@pytest.mark.usefixtures("everything_is_faster")
def test_programs_that_gain_little_are_kept_on_disk(tmp_path: Path) -> None:
    before = cache.use(tmp_path)
    try:
        row = dict.fromkeys(KINDS, choice.Faster(0, 1e-15))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choice, "TABLE", {processor.kind(): row})
            vm = built(module())
            vm["main"](*GIVEN)
            assert calls(vm) == 0
    finally:
        cache.use(before)


def text(operands: str, attributes: str, call: str) -> str:
    return f"""
    func.func @main(%x: tensor<1x8x8x4xf32>, %w: tensor<3x3x4x4xf32>) -> tensor<1x8x8x4xf32> {{
      %0 = stablehlo.{call}({operands}) {{{attributes}}}
        : (tensor<1x8x8x4xf32>, tensor<3x3x4x4xf32>) -> tensor<1x8x8x4xf32>
      return %0 : tensor<1x8x8x4xf32>
    }}
    func.func private @f__onednn_form_0(%x: tensor<1x8x8x4xf32>, %w: tensor<3x3x4x4xf32>)
        -> tensor<1x8x8x4xf32> {{
      return %x : tensor<1x8x8x4xf32>
    }}"""


def composite(strides: str, groups: str = "1 : i64", padding: str = "1, 1, 1, 1") -> str:
    attributes = (
        f"composite_attributes = {{dilation = [1, 1], fusions = [], groups = {groups}, "
        f"padding = [{padding}], strides = {strides}}}, decomposition = @f__onednn_form_0"
    )
    made = text("%x, %w", attributes, "composite")
    return made.replace("composite(%x, %w)", 'composite "relax2xla.onednn.convolution" %x, %w')


def test_no_program_may_bring_the_call() -> None:
    config = FEATURES["dense 2"].config().replace('"', '\\"')
    source = text("%x, %w", f'backend_config = "{config}"', 'custom_call @"__onednn$convolution"')
    with pytest.raises(UnsupportedError, match="__onednn"):
        rx.build(from_stablehlo(source), "cpu")


@pytest.mark.usefixtures("everything_is_faster")
@pytest.mark.parametrize(
    ("source", "called"),
    [
        (composite("[1, 1]"), True),
        (composite("[2, 1]"), False),
        (composite("[1]"), False),
        (composite('["1", 1]'), False),
        (composite("[1, 1]", "3 : i64"), False),
        (composite("[1, 1]", padding="9, -7, 1, 1"), False),
        (composite("[1, 1]").replace("convolution", "pooling"), False),
    ],
)
def test_a_composite_that_says_what_cannot_be_keeps_its_rows(source: str, called: bool) -> None:
    parsed = mlir.ir.Module.parse(source, mlir.context())
    made = onednn.with_calls(parsed)
    assert (made is not None and "__onednn$" in str(made)) is called
    assert "__onednn$" not in str(parsed)


# -- what oneDNN has -------------------------------------------------------------------------------
def test_a_child_that_ends_costs_its_features_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def child(names: Sequence[str]) -> list[str] | None:
        tried.append(len(names))
        return None if "dense 3" in names or "product ELU" in names else list(names)

    monkeypatch.setattr(onednn, "_child", child)
    assert FEATURES.keys() - onednn._probe(list(FEATURES)) == {"dense 3", "product ELU"}
    # Where the simplest ends, nothing else is tried.
    tried.clear()
    monkeypatch.setattr(onednn, "_child", lambda names: tried.append(len(names)))
    assert onednn._probe(list(FEATURES)) == frozenset()
    assert tried == [len(FEATURES), 1]


def test_a_child_that_hangs_is_one_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Any, **options: Any) -> Any:
        raise onednn.subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(onednn.subprocess, "run", run)
    assert onednn._child(["dense 2"]) is None


def test_calls_are_made_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With jaxlib 0.10.2 some wait for ever."""
    monkeypatch.delenv("RELAX2XLA_ONEDNN")
    assert not choice.may_call()


def test_what_waits_for_ever_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def probe(names: Sequence[str]) -> frozenset[str]:
        tried.extend(names)
        return frozenset(names)

    monkeypatch.setattr(onednn, "_probe", probe)
    monkeypatch.setattr(cache, "current", lambda: None)
    monkeypatch.setattr(processor, "kind", lambda: "avx2")
    assert onednn.features.__wrapped__() == frozenset(tried)
    assert {"dense 1", "depthwise 2", "grouped 3", "float32 product 2"} <= set(tried)
    assert not {"depthwise 1", "depthwise 3", "int8 product 2", "uint8 product 3"} & set(tried)
    monkeypatch.setattr(processor, "kind", lambda: "avx512")
    tried.clear()
    onednn.features.__wrapped__()
    assert "int8 product 2" in tried
    assert "depthwise 1" not in tried


def test_a_program_that_is_no_python_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn.subprocess, "run", lambda *a, **k: pytest.fail("it was started"))
    monkeypatch.setattr(onednn.sys, "frozen", True, raising=False)
    assert onednn._child(["dense 2"]) == []


def test_the_answer_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["dense 2", "no such feature"], []]
    monkeypatch.setattr(onednn, "_probe", lambda names: frozenset(answers.pop(0)))
    ask = onednn.features.__wrapped__
    before = cache.use(tmp_path)
    try:
        ask()
        assert ask() == {"dense 2"}
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
        assert ask() == frozenset()
    finally:
        cache.use(before)


def test_what_the_child_says_is_right() -> None:
    if not choice.may_call() or not onednn.features():
        pytest.skip("oneDNN cannot be called here")
    # oneDNN's relu gives 0 for what is no number, so it is not to be among them.
    assert not {f for f in onednn.features() if f.endswith((" RELU", " RELU6"))}
    assert {f"dense {n}" for n in (1, 2, 3)} <= onednn.features()
    assert {f"convolution {f}" for f in FUSIONS if not f.startswith("RELU")} <= onednn.features()

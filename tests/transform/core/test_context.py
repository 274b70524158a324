"""The context at build holds for what the machine specialises later; checks name passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.errors import TransformError, WellFormedError
from relax2xla.instrument import PassTimingInstrument
from relax2xla.ir import Function, IRModule, SeqExpr
from relax2xla.transform import PassContext, PassInstrument, function_pass, module_pass
from relax2xla.transform.core import PassInfo, Sequential, register
from relax2xla.transform.core.registry import _PASSES  # pyright: ignore[reportPrivateUsage]
from relax2xla.transform.pipeline import STATIC, Pipeline

CHECKED = {"relax2xla.check": True}
STEPS = ["LegalizeOps", "ExpandRaggedDots", "ShieldDivisions", "ShieldCounters"]


def network(symbolic: bool = False) -> IRModule:
    """A depthwise convolution."""
    builder = rx.BlockBuilder()
    batch = rx.tir.Var("n") if symbolic else 2
    x = rx.Var("x", rx.TensorStructInfo((batch, 8, 8, 32), "float32"))
    weight = rx.const(np.linspace(-1, 1, 9 * 32, dtype="f").reshape(3, 3, 1, 32))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.conv2d(x, weight, padding=1, groups=32, **layouts))
            out = builder.emit_output(R.nn.relu(y))
        builder.emit_func_output(out)
    return builder.get()


X = np.linspace(0, 1, 2 * 8 * 8 * 32, dtype="f").reshape(2, 8, 8, 32)


class Seen(PassInstrument):
    """The passes that ran, and the names of the functions that they were given."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.functions: list[list[str]] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.names.append(info.name)
        self.functions.append([g.name_hint for g in mod])


def program(executable: rx.VMExecutable) -> str:
    """What is compiled for X."""
    bound = rx.VirtualMachine(executable)["main"]
    return bound.specialised.program([rx.TensorStructInfo(X.shape, "float32")]).module.script()


@pytest.mark.parametrize("symbolic", [False, True])
def test_what_is_disabled_at_build_stays_so(symbolic: bool, tmp_path: Path) -> None:
    mod = network(symbolic)
    expanded = rx.build(mod)
    assert "R.stablehlo.convolution" not in program(expanded)
    with PassContext(disabled_pass=["ExpandDepthwise"]):
        plain = rx.build(mod)
    assert "R.stablehlo.convolution" in program(plain)
    with PassContext(opt_level=1):
        low = rx.build(mod)
    assert "R.stablehlo.convolution" in program(low)
    with PassContext(opt_level=0, required_pass=["ExpandDepthwise"]):
        required = rx.build(mod)
    assert "R.stablehlo.convolution" not in program(required)
    for executable, kept in ((plain, True), (low, True), (required, False), (expanded, False)):
        path = tmp_path / "m.r2x"
        executable.export_library(path, compiled=False)
        loaded = rx.load_module(path)
        assert loaded.context.disabled_pass == executable.context.disabled_pass
        assert ("R.stablehlo.convolution" in program(loaded)) is kept
    made = [rx.VirtualMachine(e)["main"](X) for e in (expanded, plain)]
    np.testing.assert_allclose(made[0], made[1], rtol=1e-5, atol=1e-6)


def test_instruments_see_what_the_machine_runs() -> None:
    seen, outside = Seen(), Seen()
    with PassContext(instruments=[outside]):
        machine = rx.VirtualMachine(rx.build(network()))
    assert outside.names[:3] == ["OneDevice", "LowerDistIR", "TailRecursionToLoops"]
    assert outside.names[-1] == "LiftWeights"
    built = list(outside.names)
    # Which needs a compiler, and adds functions.
    with PassContext(instruments=[seen], disabled_pass=["CallDepthwise"]):
        machine["main"](X)
    names = [p.__name__ for p in STATIC if p.__name__ != "CallDepthwise"]
    assert seen.names == [*names, *STEPS]
    assert seen.functions == [["main"]] * len(seen.names)
    assert outside.names == built  # it saw nothing of the machine's


def test_the_context_of_a_call_disables_more() -> None:
    executable = rx.build(network())
    with PassContext(disabled_pass=["ExpandDepthwise"]):
        assert "R.stablehlo.convolution" in program(executable)
    assert "R.stablehlo.convolution" not in program(executable)


def test_weights_that_are_not_lifted_are_constants() -> None:
    with PassContext(disabled_pass=["LiftWeights"]):
        executable = rx.build(network())
    assert executable["main"].lifted.weights == ()
    np.testing.assert_allclose(
        rx.VirtualMachine(executable)["main"](X),
        rx.VirtualMachine(rx.build(network()))["main"](X),
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    "name", ["ExpandRaggedDots", "LegalizeOps", "LowerDistIR", "ShieldCounters", "ShieldDivisions"]
)
def test_build_cannot_do_without(name: str) -> None:
    with (
        PassContext(disabled_pass=[name]),
        pytest.raises(TransformError, match=f"disabled_pass names {name}, and without it"),
    ):
        rx.build(network())


def test_lowering_runs_in_the_context() -> None:
    seen = Seen()
    with PassContext(instruments=[seen], config=CHECKED):
        rx.to_stablehlo(network(symbolic=True))
    steps = ["CallsAsValues", "LowerDistIR", "SizesAsTensors", "LegalizeOps", "DynamicRows"]
    assert seen.names == steps


def test_a_pipeline_of_ones_own() -> None:
    ran: list[str] = []

    @function_pass(name="Mine")
    def mine(func: Function, mod: IRModule, context: PassContext) -> Function:
        ran.append(str(context.config.get("tir.mine")))
        return func

    pipeline = Pipeline([], [mine], "own")
    with PassContext(config={"tir.mine": 3}):
        executable = rx.build(network(), relax_pipeline=pipeline)
    rx.VirtualMachine(executable)["main"](X)
    assert ran == ["3"]
    with PassContext(disabled_pass=["Mine"]):
        executable = rx.build(network(), relax_pipeline=pipeline)
    rx.VirtualMachine(executable)["main"](X)
    assert ran == ["3"]


# -- checks ----------------------------------------------------------------------------------------
@module_pass(name="Breaks")
def breaks(mod: IRModule, context: PassContext) -> IRModule:
    """The result of main is a variable that nothing defines."""
    func = mod["main"]
    bad = func.replace(body=SeqExpr([], rx.Var("stranger", func.ret_struct_info)))
    return mod.replace({mod.get_global_var("main"): bad})


def test_checks_name_the_pass() -> None:
    broken = breaks(network())
    with PassContext(config=CHECKED):
        with pytest.raises(WellFormedError, match="in what the pass Breaks made"):
            Sequential([breaks])(network())
        with pytest.raises(WellFormedError, match="in what the pass FoldBatchNorm was given"):
            rx.transform.FoldBatchNorm()(broken)
    rx.transform.FoldBatchNorm()(broken)
    with PassContext(config={"relax2xla.check": False}):
        rx.transform.FoldBatchNorm()(broken)


def test_checks_hold_where_the_machine_specialises() -> None:
    with PassContext(config=CHECKED):
        good = rx.build(network(symbolic=True))
        bad = rx.build(network(), relax_pipeline=Pipeline([], [breaks], "own"))
    rx.VirtualMachine(good)["main"](X)
    with pytest.raises(WellFormedError, match=r"in the function main(.|\n)*the pass Breaks made"):
        rx.VirtualMachine(bad)["main"](X)


def test_facts_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    shield = rx.transform.ShieldDivisions()
    with (
        PassContext(config=CHECKED),
        pytest.raises(TransformError, match=r"ShieldDivisions was given must have rows .*conv2d"),
    ):
        shield(network())

    legalize = rx.transform.LegalizeOps
    monkeypatch.setattr(legalize, "transform_module", lambda self, mod, context: mod)
    with (
        PassContext(config=CHECKED),
        pytest.raises(TransformError, match="what the pass LegalizeOps made must have rows"),
    ):
        legalize(every=True)(network())


def test_keys_of_config() -> None:
    assert "relax2xla.check" in PassContext.list_configs()
    PassContext(config={"tir.disable_vectorize": True})
    with pytest.raises(ValueError, match=r"'relax2xla.chek'; known: relax2xla.check"):
        PassContext(config={"relax2xla.chek": True})


def test_times_say_whether_anything_changed() -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        rx.transform.LegalizeOps()(rx.transform.FoldBatchNorm()(network()))
    assert [(t.name, t.modified) for t in timing.times] == [
        ("FoldBatchNorm", False),
        ("LegalizeOps", True),
    ]


def test_registered_passes_take_part_by_name() -> None:
    try:

        @register(opt_level=3)
        class Late(rx.transform.FunctionPass):
            """Runs late."""

            def transform_function(
                self, func: Function, mod: IRModule, context: PassContext
            ) -> Function:
                return func.with_attr("late", True)

        row = Sequential([Late()])
        assert "late" not in row(network())["main"].attrs
        with PassContext(required_pass=["Late"]):
            assert "late" in row(network())["main"].attrs
    finally:
        _PASSES.pop("Late", None)

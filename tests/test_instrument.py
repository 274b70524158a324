"""Instruments see every pass in order, and leave contexts clean whatever they raise."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.errors import TransformError, WellFormedError
from relax2xla.instrument import (
    DumpIR,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    VerifyEachPass,
    pass_instrument,
)
from relax2xla.transform import (
    DeadCodeElimination,
    FoldBatchNorm,
    PassContext,
    Sequential,
    module_pass,
)


@pytest.fixture
def mod() -> rx.IRModule:
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.emit(R.exp(x))
            out = builder.emit_output(R.add(x, x))
        builder.emit_func_output(out)
    return builder.get()


def recorder(said: list[str], name: str, **raises: type[BaseException]) -> PassInstrument:
    """Writes down what it is called with; raises in the methods that are named."""

    @pass_instrument
    class Recorder:
        def _say(self, what: str, *rest: str) -> None:
            said.append(" ".join((name, what, *rest)))
            if what in raises:
                raise raises[what](f"{name} {what}")

        def enter_pass_ctx(self) -> None:
            self._say("enter")

        def exit_pass_ctx(self) -> None:
            self._say("exit")

        def should_run(self, mod: Any, pass_info: Any) -> bool:
            self._say("should", pass_info.name)
            return "Fold" not in pass_info.name

        def run_before_pass(self, mod: Any, pass_info: Any) -> None:
            self._say("before", pass_info.name)

        def run_after_pass(self, mod: Any, pass_info: Any) -> None:
            self._say("after", pass_info.name)

    return Recorder()


def test_the_order_of_calls(mod: rx.IRModule) -> None:
    said: list[str] = []
    with PassContext(instruments=[recorder(said, "a"), recorder(said, "b")]):
        Sequential([DeadCodeElimination(), FoldBatchNorm()], name="both")(mod)
    assert said == [
        *("a enter", "b enter"),
        *("a should both", "b should both", "a before both", "b before both"),
        *("a should DeadCodeElimination", "b should DeadCodeElimination"),
        *("a before DeadCodeElimination", "b before DeadCodeElimination"),
        *("a after DeadCodeElimination", "b after DeadCodeElimination"),
        *("a should FoldBatchNorm", "b should FoldBatchNorm"),  # and no more of it
        *("a after both", "b after both", "a exit", "b exit"),
    ]


def test_required_passes_are_not_asked(mod: rx.IRModule) -> None:
    said: list[str] = []
    with PassContext(required_pass=["FoldBatchNorm"], instruments=[recorder(said, "a")]):
        FoldBatchNorm()(mod)
    assert said[1:-1] == ["a before FoldBatchNorm", "a after FoldBatchNorm"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["enter", "should", "before", "after", "exit"])
def test_an_instrument_that_raises_leaves_contexts_clean(
    mod: rx.IRModule, where: str, error: type[BaseException]
) -> None:
    said: list[str] = []
    instruments = [
        recorder(said, "a"),
        recorder(said, "b", **{where: error}),
        recorder(said, "c"),
    ]
    outer = PassContext(opt_level=3)
    with outer:
        context = PassContext(instruments=instruments)

        def run() -> None:
            with context:
                assert PassContext.current() is context
                DeadCodeElimination()(mod)

        with pytest.raises(error, match=f"b {where}"):
            run()
        assert PassContext.current() is outer
        # Each one that was entered is left once, and nothing more is called.
        for name in "abc":
            entered = said.count(f"{name} enter")
            assert said.count(f"{name} exit") == entered - (where == "enter" and name == "b")
        count = len(said)
        DeadCodeElimination()(mod)
        assert len(said) == count
    assert PassContext.current() is not outer


def test_override_instruments(mod: rx.IRModule) -> None:
    said: list[str] = []
    with PassContext(instruments=[recorder(said, "a")]) as context:
        context.override_instruments([recorder(said, "b")])
        DeadCodeElimination()(mod)
    assert said[:3] == ["a enter", "a exit", "b enter"]
    assert [s[0] for s in said[3:]] == ["b"] * 4


def test_what_is_no_instrument() -> None:
    with pytest.raises(TypeError, match="pass_instrument"):
        PassContext(instruments=[object()])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="must be a class"):
        pass_instrument(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="required_pass is a list"):
        PassContext(required_pass="FoldBatchNorm")


def test_the_decorator_keeps_constructors() -> None:
    @pass_instrument()
    class Skip:
        """Skips passes."""

        def __init__(self, name: str) -> None:
            self.name = name

    made = Skip("x")
    assert isinstance(made, PassInstrument)
    assert (made.name, type(made).__name__, type(made).__doc__) == ("x", "Skip", "Skips passes.")
    assert pass_instrument(type(made)) is type(made)


def test_timing(mod: rx.IRModule) -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([DeadCodeElimination(), FoldBatchNorm()], name="both")(mod)
    assert [(t.name, t.depth) for t in timing.times] == [
        ("both", 0),
        ("DeadCodeElimination", 1),
        ("FoldBatchNorm", 1),
    ]
    both, *inner = timing.times
    assert both.seconds == pytest.approx(both.own_seconds + sum(t.seconds for t in inner))
    lines = timing.render().splitlines()
    assert lines[0].startswith("both: ")
    assert lines[0].endswith("(100.0 %)")
    assert lines[1].startswith("  DeadCodeElimination: ")

    @module_pass
    def broken(mod: rx.IRModule, context: PassContext) -> rx.IRModule:
        raise TransformError("no")

    with PassContext(instruments=[timing]):
        with pytest.raises(TransformError):
            broken(mod)
        FoldBatchNorm()(mod)
    assert "FoldBatchNorm" in [t.name for t in timing.times]


def test_printing(mod: rx.IRModule, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = io.StringIO()
    some = PassPrintingInstrument(["FoldBatchNorm"], ["DeadCodeElimination"], file=text)
    with PassContext(instruments=[PrintBeforeAll(), PrintAfterAll(), some, DumpIR(tmp_path / "d")]):
        FoldBatchNorm()(DeadCodeElimination()(mod))
    shown = capsys.readouterr().out
    assert shown.count("Before Running Pass: ") == shown.count("After Running Pass: ") == 2
    assert shown.count("R.exp") == 1
    assert [line for line in text.getvalue().splitlines() if line.startswith("Print")] == [
        "Print IR after: DeadCodeElimination",
        "Print IR before: FoldBatchNorm",
    ]
    names = ["000_DeadCodeElimination.py", "001_FoldBatchNorm.py"]
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == names
    (tmp_path / "d" / "mine.txt").write_text("")
    DumpIR(tmp_path / "d", refresh=True)
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["mine.txt"]


def test_verifying(mod: rx.IRModule) -> None:
    with PassContext(instruments=[VerifyEachPass()]):
        DeadCodeElimination()(mod)

    @module_pass(name="Breaks")
    def breaks(mod: rx.IRModule, context: PassContext) -> rx.IRModule:
        func = mod["main"]
        stranger = rx.Var("stranger", rx.TensorStructInfo((3,), "float32"))
        bad = rx.Function(func.params, rx.SeqExpr([], stranger), attrs=func.attrs)
        return rx.IRModule({"main": bad})

    with PassContext(instruments=[VerifyEachPass()]), pytest.raises(WellFormedError) as raised:
        breaks(mod)
    assert raised.value.__notes__[-1] == "(in what the pass Breaks made)"
    with PassContext(instruments=[VerifyEachPass()]), pytest.raises(WellFormedError) as raised:
        DeadCodeElimination()(breaks(mod))
    broken = breaks(mod)
    with PassContext(instruments=[VerifyEachPass()]), pytest.raises(WellFormedError) as raised:
        DeadCodeElimination()(broken)
    assert "was given" in raised.value.__notes__[-1]


def test_build_runs_under_instruments(mod: rx.IRModule) -> None:
    timing = PassTimingInstrument()
    with PassContext(opt_level=3, instruments=[timing]):
        rx.build(mod)
    assert {"default", "DeadCodeElimination"} <= {t.name for t in timing.times}

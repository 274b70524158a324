"""Passes of functions and of classes, in a row, and the module that stays the same object."""

from __future__ import annotations

import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.errors import TransformError
from relax2xla.ir import DataflowBlock, Function, IRModule, SeqExpr
from relax2xla.script import from_source
from relax2xla.transform import (
    ApplyPassToFunction,
    DataflowBlockPass,
    FoldBatchNorm,
    FunctionPass,
    FuseTransposeMatmul,
    Pass,
    PassContext,
    PrintIR,
    Sequential,
    dataflowblock_pass,
    function_pass,
    get_pipeline,
    module_pass,
)
from relax2xla.transform.core import PassInfo, run_on_function
from relax2xla.transform.core.registry import all_passes, takes_arguments
from tests.work import calls


def module(length: int = 2) -> IRModule:
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: rx.Expr = x
            for _ in range(length):
                value = builder.emit(R.negative(value))
            out = builder.emit_output(R.add(value, x))
        builder.emit_func_output(out)
    return builder.get()


def doubled(func: Function, mod: IRModule, context: PassContext) -> Function:
    """The same bindings in other objects, then one more."""
    (block,) = func.body.blocks
    out = rx.Var("out", func.body.body.struct_info)
    end = rx.VarBinding(out, R.add(func.body.body, func.body.body))
    blocks = [DataflowBlock(block.bindings), rx.BindingBlock([end])]
    return func.replace(body=SeqExpr(blocks, out))


def test_of_functions() -> None:
    one = function_pass(doubled, opt_level=1, name="Doubled", traceable=True)
    assert isinstance(one, FunctionPass)
    assert one.info == PassInfo("Doubled", 1, traceable=True)
    assert repr(one) == "Pass(Doubled, opt_level=1)"
    mod = module()
    new = one(mod)
    assert len(new["main"].body.blocks) == 2
    assert len(mod["main"].body.blocks) == 1

    @module_pass
    def emptied(mod: IRModule, context: PassContext) -> IRModule:
        return IRModule()

    assert emptied.info.name == "emptied"
    assert len(emptied(mod)) == 0


def test_of_classes() -> None:
    @module_pass(opt_level=2, name="Renamed")
    class Rename:
        """Puts main under another name."""

        def __init__(self, name: str) -> None:
            self.name = name

        def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
            return IRModule({self.name: mod["main"].without_attr("global_symbol")})

    @function_pass
    class Same:
        def transform_function(
            self, func: Function, mod: IRModule, context: PassContext
        ) -> Function:
            return func.replace()

    made = Rename("other")
    assert isinstance(made, Pass)
    assert (type(made).__name__, type(made).__doc__) == ("Rename", "Puts main under another name.")
    mod = Sequential([made, Same()])(module())
    assert [g.name_hint for g in mod] == ["other"]


def test_a_pass_must_return_a_module_or_a_function() -> None:
    with pytest.raises(TransformError, match="the pass Bad must return an IRModule; got NoneType"):
        module_pass(lambda mod, context: None, name="Bad")(module())
    with pytest.raises(TransformError, match="the pass Bad must return a Function; got int"):
        function_pass(lambda func, mod, context: 3, name="Bad")(module())
    with pytest.raises(TypeError, match="the pass FoldBatchNorm takes an IRModule; got Function"):
        FoldBatchNorm()(module()["main"])


def test_passes_over_dataflow_blocks() -> None:
    seen: list[int] = []

    @dataflowblock_pass(opt_level=1, name="Look")
    def look(block: DataflowBlock, mod: IRModule, context: PassContext) -> DataflowBlock:
        seen.append(len(block.bindings))
        return DataflowBlock(block.bindings)

    mod = module()
    assert look(mod) is mod
    assert (seen, look.info.name, look.info.opt_level) == ([3], "Look", 1)

    @dataflowblock_pass
    class KeepFrom:
        def __init__(self, first: int, last: int = 3) -> None:
            self.first, self.last = first, last

        def transform_dataflowblock(
            self, block: DataflowBlock, mod: IRModule, context: PassContext
        ) -> DataflowBlock:
            return DataflowBlock(block.bindings[self.first : self.last])

    assert isinstance(KeepFrom(1), DataflowBlockPass)
    assert len(KeepFrom(1)(mod)["main"].body.blocks[0].bindings) == 2
    with pytest.raises(TransformError, match="KeepFrom removed gv, which its block gives"):
        KeepFrom(0, 2)(mod)
    with pytest.raises(TransformError, match="must return a DataflowBlock; got NoneType"):
        dataflowblock_pass(lambda block, mod, context: None, name="Bad")(mod)


@pytest.mark.parametrize("copy", ["module", "function", "block"])
def test_what_changes_nothing_gives_the_module_back(copy: str) -> None:
    @module_pass
    def again(mod: IRModule, context: PassContext) -> IRModule:
        if copy == "module":
            return mod.clone()
        func = mod["main"]
        blocks = [type(b)(b.bindings) for b in func.body.blocks] if copy == "block" else None
        body = SeqExpr(blocks or func.body.blocks, func.body.body)
        return mod.replace({mod.get_global_var("main"): func.replace(body=body)})

    mod = module()
    if copy == "module":
        assert again(mod) is mod
    else:
        rule = function_pass(lambda func, mod, context: again(mod)["main"])
        assert rule(mod) is mod
    assert FuseTransposeMatmul()(mod) is mod
    assert module_pass(lambda mod, context: mod.with_attr("a", 1))(mod) is not mod


@pytest.mark.parametrize("name", [n for n, p in all_passes().items() if not takes_arguments(p)])
def test_every_pass_leaves_its_module_alone(name: str) -> None:
    mod = module()
    before, text = dict(mod.functions), mod.script()
    made = all_passes()[name]()
    # Those ask for rows.
    shields = ("ExpandRaggedDots", "ShieldCounters", "ShieldDivisions")
    with PassContext(config={"relax2xla.check": made.info.name not in shields}):
        made(mod)
    assert dict(mod.functions) == before
    assert mod.script() == text


def test_a_row_of_passes() -> None:
    ran: list[str] = []

    def named(name: str, level: int = 0, required: list[str] | None = None) -> Pass:
        def rule(mod: IRModule, context: PassContext) -> IRModule:
            ran.append(name)
            return mod

        return module_pass(rule, opt_level=level, name=name, required=required)

    row = Sequential([named("a"), named("b", 3), named("c", 2)], name="row")
    for context, expected in (
        (PassContext(), "ac"),
        (PassContext(opt_level=3), "abc"),
        (PassContext(opt_level=0, required_pass=["c"]), "ac"),
        (PassContext(disabled_pass=["a", "c"], required_pass=["c", "b"]), "b"),
    ):
        ran.clear()
        with context:
            row(module())
        assert "".join(ran) == expected
    seen: list[str] = []
    with PassContext(instruments=[_Names(seen)]):
        Sequential([named("d", required=["DeadCodeElimination"])])(module())
    assert seen == ["sequential", "DeadCodeElimination", "d"]
    with pytest.raises(TransformError, match="there is no pass 'Nothing'"):
        Sequential([named("d", required=["Nothing"])])(module())


class _Names(rx.transform.PassInstrument):
    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.seen.append(info.name)


def test_one_function_alone() -> None:
    func = module()["main"]
    assert run_on_function([FoldBatchNorm(), FuseTransposeMatmul()], func, "main") is func
    with PassContext(disabled_pass=["Doubled"]):
        assert run_on_function([function_pass(doubled, name="Doubled")], func, "main") is func


def test_the_work_of_a_pipeline_grows_with_the_module() -> None:
    def work(length: int) -> int:
        mod, pipeline = module(length), get_pipeline("default")
        return calls(lambda: pipeline(mod))

    work(10)
    few, many = work(1000), work(4000)
    assert many < 5 * few


def test_some_functions_alone() -> None:
    """A pass on functions by their names; others are there for it, and stay."""
    called, main = module()["main"].without_attr("global_symbol"), module()["main"]
    mod = IRModule({"helper": called, "main": main, "mainly": main.without_attr("global_symbol")})
    seen: list[list[str]] = []

    @module_pass(opt_level=0)
    def grow(given: IRModule, context: PassContext) -> IRModule:
        seen.append([type(f).__name__ for f in given.functions.values()])
        made = {g: doubled(f, given, context) for g, f in given.relax_functions().items()}
        return given.replace({**given.functions, **made})

    with PassContext(config={"relax2xla.check": False}):
        new = ApplyPassToFunction(grow, "main.+")(mod)
    assert seen == [["ExternFunc", "ExternFunc", "Function"]]
    assert [new[n] is mod[n] for n in ("helper", "main", "mainly")] == [True, True, False]
    assert len(new["mainly"].body.blocks) == 2
    assert "global_symbol" not in new["mainly"].attrs
    keep = ApplyPassToFunction(module_pass(lambda m, c: m, name="Keep"), ".*")
    assert keep(mod) is mod
    assert ApplyPassToFunction(grow, "other")(mod) is mod
    with pytest.raises(ValueError, match="no function's name fits 'other'"):
        ApplyPassToFunction(grow, "other", error_if_no_function_matches_regex=True)(mod)
    with pytest.raises(ValueError, match="no regular expression"):
        ApplyPassToFunction(grow, "(")


def test_a_sequence_may_print_between_its_passes(capsys: pytest.CaptureFixture[str]) -> None:
    mod = from_source(
        "@I.ir_module\nclass Module:\n"
        "  @R.function\n"
        '  def main(x: R.Tensor((2,), "float32")):\n'
        "    return R.add(x, R.const([1.0, 2.0], 'float32'))\n"
    )
    assert Sequential([PrintIR("at first"), PrintIR("whole", show_meta_data=True)])(mod) is mod
    first, whole = capsys.readouterr().out.split("PrintIR(")[1:]
    assert first == f"at first):\n{mod.script()}\n"
    assert "metadata" in whole

"""RunCodegen and AttachExternModules: functions that code generators of one's own make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import op
from relax2xla.analysis import check_well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.dpl import is_op, wildcard
from relax2xla.errors import TransformError, TVMError
from relax2xla.ir import Function, IRModule, TensorStructInfo, Var
from relax2xla.runtime import remove_global_func
from relax2xla.transform import (
    AttachExternModules,
    FuseOpsByPattern,
    MergeCompositeFunctions,
    RunCodegen,
    register_codegen,
)
from relax2xla.vm import VirtualMachine

INFO = TensorStructInfo((2, 3))
X = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
SYMBOL = "fused_relax_exp_relax_tanh_lib"
PATTERN = ("lib.et", is_op("relax.tanh")(is_op("relax.exp")(wildcard())))


def program() -> IRModule:
    bb = BlockBuilder()
    x = Var("x", INFO)
    with bb.function("main", [x]):
        with bb.dataflow():
            inner = bb.emit(op.tanh(bb.emit(op.exp(x))))
            out = bb.emit_output(op.add(inner, x))
        bb.emit_func_output(out)
    return FuseOpsByPattern([PATTERN], annotate_codegen=True)(bb.get())


@pytest.fixture
def generator() -> Iterator[Callable[[Any], None]]:
    yield lambda made: register_codegen("lib", made, override=True)
    remove_global_func("relax.ext.lib")


def run(mod: IRModule) -> Any:
    check_well_formed(mod)
    return VirtualMachine(relax2xla.build(mod), relax2xla.cpu())["main"](X)


WANT = np.tanh(np.exp(X)) + X


def host(x: Any) -> Any:
    return np.tanh(np.exp(np.asarray(x)))


class Library:
    """An external module as those of TVM."""

    def get_function(self, name: str) -> Callable[..., None] | None:
        def write(x: Any, out: Any) -> None:
            out[...] = host(x)

        return write if name == SYMBOL else None


def relax_function() -> Function:
    bb = BlockBuilder()
    x = Var("x", INFO)
    with bb.function("other", [x]):
        bb.emit_func_output(op.tanh(op.exp(x)))
    return bb.get()["other"]


def stablehlo() -> Any:
    return relax2xla.to_stablehlo(IRModule({"main": relax_function()}))


@pytest.mark.parametrize(
    "made",
    [[host], {SYMBOL: host}, [Library()], [relax_function()], {SYMBOL: stablehlo()}],
    ids=["sequence", "mapping", "external module", "Relax", "StableHLO"],
)
def test_what_a_generator_makes_runs(made: Any, generator: Callable[[Any], None]) -> None:
    seen: list[Any] = []

    def lib(functions: Any, options: Any, names: Any) -> Any:
        seen.append((functions, options))
        return made

    generator(lib)
    mod = program()
    new = RunCodegen({"lib": {"level": 3}})(mod)
    np.testing.assert_allclose(run(new), WANT, rtol=1e-6)
    assert seen == [([mod[SYMBOL]], {"level": 3})]
    assert not any("Codegen" in f.attrs for f in new.relax_functions().values())


def test_without_a_generator_xla_runs_the_functions() -> None:
    np.testing.assert_allclose(run(program()), WANT, rtol=1e-6)
    with pytest.raises(TransformError, match=r"Codegen is not found: relax\.ext\.lib"):
        RunCodegen()(program())


def test_merged_functions_are_generated(generator: Callable[[Any], None]) -> None:
    mod = program()
    single = [("lib.e", is_op("relax.exp")(wildcard())), ("lib.t", is_op("relax.tanh")(wildcard()))]
    bb = BlockBuilder()
    x = Var("x", INFO)
    with bb.function("main", [x]):
        with bb.dataflow():
            inner = bb.emit(op.tanh(bb.emit(op.exp(x))))
            out = bb.emit_output(op.add(inner, x))
        bb.emit_func_output(out)
    merged = MergeCompositeFunctions()(FuseOpsByPattern(single)(bb.get()))
    generator(lambda functions, options, names: [host] * len(functions))
    np.testing.assert_allclose(run(RunCodegen()(merged)), run(mod), rtol=1e-6)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([], "a result for each of 1 functions"),
        ({}, "gave nothing for"),
        ([3], "gave int for"),
        (3, "must give a mapping"),
        ([Function([], op.zeros((2,), "float32"))], "what the code generator gave"),
    ],
)
def test_results_that_do_not_fit(made: Any, message: str, generator: Callable[[Any], None]) -> None:
    generator(lambda functions, options, names: made)
    with pytest.raises(TransformError, match=message):
        RunCodegen()(program())


def test_without_codegen_functions_the_module_comes_back() -> None:
    mod = IRModule({"main": relax_function().with_attr("global_symbol", "main")})
    assert RunCodegen()(mod) is mod
    assert AttachExternModules([])(mod) is mod


def test_external_modules_come_before_the_registry() -> None:
    bb = BlockBuilder()
    x = Var("x", INFO)
    with bb.function("main", [x]):
        call = op.call_dps_packed(SYMBOL, (x,), INFO)
        bb.emit_func_output(bb.emit(call))
    mod = AttachExternModules([Library()])(bb.get())
    assert "external_mods: Library" in mod.script()
    np.testing.assert_allclose(run(mod), WANT - X, rtol=1e-6)
    with pytest.raises(TVMError, match="no packed function"):
        run(bb.get())
    with pytest.raises(TypeError, match="get_function"):
        AttachExternModules([3])

"""FuseOpsByPattern: functions of what patterns match."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import relax2xla
from relax2xla import op
from relax2xla.analysis import check_well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.dpl import DFPattern, is_op, is_tuple_get_item, make_matmul_pattern, wildcard
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    IRModule,
    TensorStructInfo,
    Tuple,
    Var,
)
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.script import from_source
from relax2xla.transform import FuseOpsByPattern, FusionPattern, PatternCheckContext
from relax2xla.transform.fusion.patterns import (
    get_pattern,
    get_patterns_with_prefix,
    register_patterns,
    remove_patterns,
)
from relax2xla.vm import VirtualMachine

HEAD = """
from relax2xla.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
"""


def module(text: str) -> IRModule:
    made = from_source((HEAD + text).replace(", F)", ', "float32")'))
    assert isinstance(made, IRModule)
    return made


def relu_of(name: str) -> DFPattern:
    return is_op("relax.nn.relu")(is_op(name)(wildcard(), wildcard()))


LAYER = module("""
    @R.function
    def main(x: R.Tensor((2, 3), F), w: R.Tensor((3, 3), F), b: R.Tensor((3,), F)):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.nn.relu(lv)
            gv = R.add(lv1, b)
            R.output(gv)
        return gv
""")


def test_a_match_becomes_a_function() -> None:
    made = FuseOpsByPattern([("lib.relu", relu_of("relax.matmul"))])(LAYER)
    check_well_formed(made)
    assert_structural_equal(
        made,
        module("""
    @R.function(private=True)
    def fused_relax_matmul_relax_nn_relu(x: R.Tensor((2, 3), F), w: R.Tensor((3, 3), F)):
        R.func_attr({"Composite": "lib.relu", "Primitive": 1})
        with R.dataflow():
            lv = R.matmul(x, w)
            gv = R.nn.relu(lv)
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((2, 3), F), w: R.Tensor((3, 3), F), b: R.Tensor((3,), F)):
        with R.dataflow():
            lv1 = Module.fused_relax_matmul_relax_nn_relu(x, w)
            gv = R.add(lv1, b)
            R.output(gv)
        return gv
"""),
    )


def test_without_a_match_the_module_comes_back() -> None:
    assert FuseOpsByPattern([("lib.tanh", relu_of("relax.tanh"))])(LAYER) is LAYER
    refused = FusionPattern("lib.relu", relu_of("relax.matmul"), {}, lambda match: False)
    assert FuseOpsByPattern([refused])(LAYER) is LAYER


def test_a_function_with_codegen_holds_the_composite_one() -> None:
    made = FuseOpsByPattern([("lib.relu", relu_of("relax.matmul"))], annotate_codegen=True)(LAYER)
    check_well_formed(made)
    name = "fused_relax_matmul_relax_nn_relu_lib"
    assert [g.name_hint for g in made] == ["main", name]
    assert made[name].attrs == {"Codegen": "lib", "global_symbol": name}
    local = made[name].body.blocks[0].bindings[0].value
    assert isinstance(local, Function)
    assert local.attrs == {"Composite": "lib.relu"}
    again = FuseOpsByPattern([("lib.relu", relu_of("relax.matmul"))], annotate_codegen=True)(made)
    assert again is made


def test_what_others_read_is_a_result_too() -> None:
    mod = module("""
    @R.function
    def main(x: R.Tensor((2, 3), F), w: R.Tensor((3, 3), F)):
        with R.dataflow():
            lv = R.matmul(x, w)
            gv = R.nn.relu(lv)
            lv2 = R.exp(lv)
            gv1 = R.add(lv2, gv)
            R.output(gv, gv1)
        return gv, gv1
""")
    made = FuseOpsByPattern([("lib.relu", relu_of("relax.matmul"))])(mod)
    check_well_formed(made)
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(n, 3)).astype("float32") for n in (2, 3))
    product = x @ w
    got = run(made, x, w)
    np.testing.assert_allclose(got[0], np.maximum(product, 0), rtol=1e-5)
    np.testing.assert_allclose(got[1], np.exp(product) + np.maximum(product, 0), rtol=1e-5)
    fused = made["fused_relax_matmul_relax_nn_relu"]
    assert isinstance(fused.body.body, Tuple)


def run(mod: IRModule, *args: Any) -> Any:
    vm = VirtualMachine(relax2xla.build(mod), relax2xla.cpu())
    return vm["main"](*args)


def test_parts_that_need_what_lies_between_are_refused() -> None:
    mod = module("""
    @R.function
    def main(x: R.Tensor((2, 3), F)):
        with R.dataflow():
            lv = R.nn.relu(x)
            lv1 = R.exp(lv)
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv
""")
    outer = is_op("relax.add")(is_op("relax.nn.relu")(wildcard()), wildcard())
    with pytest.raises(TVMError, match="cyclic dependency"):
        FuseOpsByPattern([("lib.around", outer)])(mod)


def test_constants_stay_or_are_arguments() -> None:
    bb = BlockBuilder()
    x = Var("x", TensorStructInfo((2, 3)))
    w = Constant(np.eye(3, dtype="float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(op.nn.relu(bb.emit(op.matmul(x, w))))
        bb.emit_func_output(out)
    patterns = [("lib.relu", relu_of("relax.matmul"))]
    held = FuseOpsByPattern(patterns)(bb.get())["fused_relax_matmul_relax_nn_relu"]
    given = FuseOpsByPattern(patterns, bind_constants=False)(bb.get())
    assert len(held.params) == 1
    assert len(given["fused_relax_matmul_relax_nn_relu"].params) == 2
    call = given["main"].body.blocks[0].bindings[0].value
    assert isinstance(call, Call)
    assert call.args[1] is w


def test_symbols_that_no_parameter_says_are_passed() -> None:
    mod = module("""
    @R.function
    def main(x: R.Tensor(("n * m",), "float32"), s: R.Shape(["n", "m"])):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            lv = R.reshape(x, R.shape([n, m]))
            gv = R.exp(lv)
            R.output(gv)
        return gv
""")
    made = FuseOpsByPattern([("lib.exp", is_op("relax.exp")(wildcard()))])(mod)
    check_well_formed(made)
    x = np.arange(6, dtype="float32")
    np.testing.assert_allclose(run(made, x, (2, 3)), np.exp(x.reshape(2, 3)), rtol=1e-6)


def test_the_check_sees_the_match() -> None:
    x, w = wildcard(), wildcard()
    product = is_op("relax.matmul")(x, w)
    seen: list[PatternCheckContext] = []

    def check(match: PatternCheckContext) -> bool:
        seen.append(match)
        return True

    pattern = is_op("relax.nn.relu")(product)
    more: Any = lambda parts: {"rows": parts["x"].struct_info.dims[0]}  # noqa: E731
    given = ("lib.relu", pattern, {"x": x, "product": product}, check, more)
    made = FuseOpsByPattern([given])(LAYER)
    (match,) = seen
    func = LAYER["main"]
    first, second, third = func.body.blocks[0].bindings
    assert match.matched_expr is second.value
    assert match.annotated_expr == {"x": func.params[0], "product": first.value}
    assert match.matched_bindings == {first.var: first.value, second.var: second.value}
    assert match.var_usages[second.var] == [third.var]
    assert match.value_to_bound_var[first.value] is first.var
    assert made["fused_relax_matmul_relax_nn_relu"].attrs["rows"] == 2


def test_fields_of_a_tuple_are_parameters() -> None:
    mod = module("""
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            lv = R.split(x, 2, axis=1)
            lv1 = lv[0]
            lv2 = lv[1]
            gv = R.add(lv1, lv2)
            R.output(gv)
        return gv
""")
    whole = wildcard()
    halves = is_op("relax.add")(is_tuple_get_item(whole, 0), is_tuple_get_item(whole, 1))
    made = FuseOpsByPattern([("lib.add", halves)])(mod)
    check_well_formed(made)
    x = np.arange(8, dtype="float32").reshape(2, 4)
    np.testing.assert_array_equal(run(made, x), x[:, :2] + x[:, 2:])
    assert len(made["fused_relax_add"].params) == 2


def test_branches_are_looked_into() -> None:
    mod = module("""
    @R.function
    def main(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
        if c:
            with R.dataflow():
                lv = R.nn.relu(x)
                gv = R.exp(lv)
                R.output(gv)
            out = gv
        else:
            out = R.tanh(x)
        return out
""")
    made = FuseOpsByPattern([("lib.exp", is_op("relax.exp")(is_op("relax.nn.relu")(wildcard())))])(
        mod
    )
    check_well_formed(made)
    branch = made["main"].body.blocks[0].bindings[0].value
    assert isinstance(branch, If)
    (b,) = branch.true_branch.blocks[0].bindings
    assert isinstance(b.value, Call)
    assert b.value.op is made.get_global_var("fused_relax_nn_relu_relax_exp")


def test_functions_that_share_variables_are_refused() -> None:
    shared = LAYER.clone()
    shared["copy"] = LAYER["main"].with_attr("global_symbol", "copy")
    with pytest.raises(ValueError, match="bound twice"):
        FuseOpsByPattern([("lib.relu", relu_of("relax.matmul"))])(shared)


def test_patterns_by_name() -> None:
    first, second = ("lib1.a", wildcard()), FusionPattern("lib1.b", wildcard())
    register_patterns([first, second])
    try:
        assert [p.name for p in get_patterns_with_prefix("lib1")] == ["lib1.b", "lib1.a"]
        assert get_pattern("lib1.b") is second
        assert get_pattern("lib1.c") is None
        with pytest.raises(TypeError, match="Cannot register"):
            register_patterns([wildcard()])
    finally:
        remove_patterns(["lib1.a", "lib1.b"])
    assert get_patterns_with_prefix("lib1") == []


UNARY = ("exp", "tanh", "sigmoid", "abs")


@st.composite
def programs(draw: st.DrawFn) -> IRModule:
    """A dataflow block of unary and binary operators over what came before."""
    bb = BlockBuilder()
    values: list[Any] = [Var("x", TensorStructInfo((3,)))]
    with bb.function("main", [values[0]]):
        with bb.dataflow():
            for _ in range(draw(st.integers(1, 12))):
                a, b = (draw(st.sampled_from(values)) for _ in range(2))
                name = draw(st.sampled_from((*UNARY, "add", "multiply")))
                made = getattr(op, name)(a) if name in UNARY else getattr(op, name)(a, b)
                values.append(bb.emit(op.tanh(made)))
            ends = draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=3, unique=True))
            results = [bb.emit_output(v) for v in ends]
        bb.emit_func_output(Tuple(results))
    return bb.get()


PATTERNS = [
    ("a.tanh_exp", is_op("relax.tanh")(is_op("relax.exp")(wildcard()))),
    ("b.sum", is_op("relax.tanh")(is_op("relax.add")(wildcard(), is_op("relax.tanh")(wildcard())))),
    ("b.any", is_op("relax.tanh")(wildcard()) | is_op("relax.multiply")(wildcard(), wildcard())),
]


@given(programs(), st.booleans())
@settings(max_examples=10, deadline=None)
def test_programs_compute_the_same(mod: IRModule, annotate: bool) -> None:
    try:
        made = FuseOpsByPattern(PATTERNS, annotate_codegen=annotate)(mod)
    except TVMError as error:
        assume("cyclic" not in str(error))
        raise
    check_well_formed(made)
    x = np.linspace(-1, 1, 3, dtype="float32")
    for got, want in zip(run(made, x), run(mod, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    called = {b.value.op for b in bindings_deep(made["main"]) if isinstance(b.value, Call)}
    assert all(g in made for g in called if isinstance(g, GlobalVar))


def chain(length: int) -> IRModule:
    bb = BlockBuilder()
    x, w = Var("x", TensorStructInfo((2, 2))), Var("w", TensorStructInfo((2, 2)))
    value: Any = x
    with bb.function("main", [x, w]):
        with bb.dataflow():
            for _ in range(length):
                value = bb.emit(op.nn.relu(bb.emit(op.add(bb.emit(op.matmul(value, w)), x))))
            value = bb.emit_output(value)
        bb.emit_func_output(value)
    return bb.get()


def test_the_cost_is_linear() -> None:
    patterns = [("lib.layer", make_matmul_pattern(True, "relax.nn.relu")[0])]

    def seconds(length: int) -> float:
        mod = chain(length)
        start = time.perf_counter()
        made = FuseOpsByPattern(patterns)(mod)
        assert len(made) == 3  # one function, and another where x is read twice
        return time.perf_counter() - start

    seconds(20)
    assert seconds(2000) < 30 * max(seconds(200), 0.01)

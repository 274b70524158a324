"""What the documentation of TVM promises in prose about expressions, builders and visitors.

One function a promise; ``cover.tsv`` says which promise each of them, and of other tests, covers.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import relax2xla as relax
from relax2xla import analysis, expr_functor, op, tir
from relax2xla import script as text
from relax2xla.errors import StructInfoError, TVMError
from relax2xla.script import relax as R

T = relax.TensorStructInfo


def parse(body: str, params: str = 'x: R.Tensor((2, 3), "float32")') -> relax.Function:
    made = text.from_source(f"@R.function\ndef main({params}):\n{body}\n")
    assert isinstance(made, relax.Function)
    return made


def chain() -> relax.Function:
    return parse(
        "    with R.dataflow():\n        a = R.exp(x)\n        c = R.sin(x)\n"
        "        b = R.add(a, a)\n        R.output(b)\n    return b"
    )


def test_one_namespace() -> None:
    for name in ("Var", "TensorStructInfo", "BlockBuilder", "VirtualMachine", "op", "transform"):
        assert getattr(relax, name)
        assert name in dir(relax)


def test_constants() -> None:
    values = [(True, "bool"), (3, "int32"), (1.5, "float32"), (np.int8(1), "int8")]
    for value, dtype in values:
        made = relax.const(value)
        assert made.struct_info == T((), dtype)
        assert made.data.shape == ()
    assert relax.const(True, "int64").struct_info == T((), "int64")
    assert relax.const(np.ones((2, 3), "float64")).struct_info == T((2, 3), "float64")


def test_functions_are_not_changed() -> None:
    f = parse("    y = R.exp(x)\n    return y", 'x: R.Tensor(("n", "m"), "float32")')
    before = f.script()
    bound = f.bind_symbolic_vars({"n": 4})
    assert bound.params[0].struct_info == T((4, bound.params[0].struct_info.dims[1]))
    assert f.bind_params({"x": np.ones((2, 2), "float32")}).params == ()
    for call in (
        lambda: f.bind_symbolic_vars({"k": 1}),
        lambda: f.bind_params({"z": np.ones((2, 2), "float32")}),
    ):
        with pytest.raises(TVMError):
            call()
    assert f.script() == before
    twice = relax.Function(
        [relax.Var("x", T((2,))), relax.Var("x", T((2,)))], relax.SeqExpr([], relax.Tuple([]))
    )
    with pytest.raises(TVMError, match="x"):
        twice.bind_params({"x": np.ones(2, "float32")})
    n, other = tir.Var("n"), tir.Var("n")
    s = relax.Var("s", relax.ShapeStructInfo([n, other]))
    with pytest.raises(TVMError, match="n"):
        relax.Function([s], relax.SeqExpr([], s)).bind_symbolic_vars({"n": 1})


def test_definitions_and_uses_are_visited_apart() -> None:
    seen: list[str] = []

    @expr_functor.visitor
    class Walk(relax.PyExprVisitor):
        def visit_var_(self, op: relax.Var) -> None:
            seen.append(f"use {op.name_hint}")

        def visit_dataflow_var_(self, op: relax.DataflowVar) -> None:
            seen.append(f"use local {op.name_hint}")

        def visit_var_def_(self, var: relax.Var) -> None:
            seen.append(f"def {var.name_hint}")

        def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> None:
            seen.append(f"def local {var.name_hint}")

    Walk().visit_expr(chain())
    assert seen == [
        "def x", "use x", "def local a", "use x", "def local c", "use local a", "use local a",
        "def b", "use b",
    ]  # fmt: skip


def test_decorators_give_the_class_back() -> None:
    class Walk(relax.PyExprVisitor):
        pass

    class Change(relax.PyExprMutator):
        pass

    assert expr_functor.visitor(Walk) is Walk
    assert expr_functor.mutator(Change) is Change
    for decorator, other in (
        (expr_functor.visitor, relax.PyExprMutator),
        (expr_functor.mutator, relax.PyExprVisitor),
        (expr_functor.mutator, int),
    ):
        with pytest.raises(TypeError):
            decorator(other)


def test_shared_expressions_are_dispatched_once() -> None:
    count: list[relax.Call] = []

    @expr_functor.visitor
    class Walk(relax.PyExprVisitor):
        def visit_call_(self, op: relax.Call) -> None:
            count.append(op)
            for a in op.args:
                self.visit_expr(a)

    x = relax.Var("x", T((2,)))
    shared = op.exp(x)
    Walk().visit_expr(op.add(shared, shared))
    assert len([c for c in count if c is shared]) == 1
    nodes: list[relax.Expr] = []
    analysis.post_order_visit(op.add(shared, shared), nodes.append)
    assert len([n for n in nodes if n is shared]) == 1


def test_a_mutator_emits_bindings_and_gives_none() -> None:
    given: list[object] = []

    @expr_functor.mutator
    class Change(relax.PyExprMutator):
        def visit_binding(self, binding: relax.Binding) -> None:
            given.append(super().visit_binding(binding))

        def visit_var_binding_(self, binding: relax.VarBinding) -> None:
            given.append(super().visit_var_binding_(binding))

    f = chain()
    assert Change().visit_expr(f) is f
    assert given == [None] * 6


def test_base_classes() -> None:
    for kind, base in (
        (relax.MatchCast, relax.Binding),
        (relax.VarBinding, relax.Binding),
        (relax.DataflowBlock, relax.BindingBlock),
        (relax.DataflowVar, relax.Var),
        (relax.PyExprVisitor, relax.ExprFunctor),
        (relax.PyExprMutator, relax.ExprFunctor),
        (tir.Var, tir.PrimExpr),
        *((getattr(relax, n), relax.Expr) for n in EXPRESSIONS),
        *((getattr(relax, f"{n}StructInfo"), relax.StructInfo) for n in STRUCT_INFOS),
    ):
        assert issubclass(kind, base)
        assert kind is not base
    var = relax.Var(relax.Id("x"), T((2,)))
    assert var.name_hint == "x"
    assert relax.Var("x", T((2,))).vid is not relax.Var("x", T((2,))).vid
    assert T((2,), "int8", "llvm").vdevice == relax.ir.VDevice("llvm")
    bound = relax.VarBinding(var, relax.const(1))
    assert (bound.var, bound.value.data) == (var, 1)


EXPRESSIONS = (
    "Call", "Constant", "DataTypeImm", "ExternFunc", "Function", "GlobalVar", "If", "PrimValue",
    "SeqExpr", "ShapeExpr", "StringImm", "Tuple", "TupleGetItem", "Var",
)  # fmt: skip
STRUCT_INFOS = ("Func", "Object", "Prim", "Shape", "Tensor", "Tuple")


def test_a_module_of_a_function_calls_it_main() -> None:
    f = relax.Function([], relax.Tuple([]))
    assert [g.name_hint for g in relax.IRModule.from_expr(f).get_global_vars()] == ["main"]


def test_one_branch_is_evaluated() -> None:
    ran: list[str] = []
    for name in ("promises.yes", "promises.no"):
        relax.register_func(name, lambda x, name=name: (ran.append(name), x)[1], override=True)
    mod = text.from_source("""
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
        if c:
            y = R.call_packed("promises.yes", x, sinfo_args=R.Tensor((2,), "float32"))
        else:
            y = R.call_packed("promises.no", x, sinfo_args=R.Tensor((2,), "float32"))
        return y
""")
    vm = relax.VirtualMachine(relax.build(mod), relax.cpu())
    for taken in (True, False):
        vm["main"](np.array(taken), np.ones(2, "float32"))
    assert ran == ["promises.yes", "promises.no"]


def test_pure_calls_may_be_removed_and_impure_ones_may_not() -> None:
    mod = text.from_source("""
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")):
        a = R.call_pure_packed("f", x, sinfo_args=R.Tensor((2,), "float32"))
        b = R.call_dps_packed("f", x, R.Tensor((2,), "float32"))
        c = R.call_packed("g", x, sinfo_args=R.Tensor((2,), "float32"))
        return x
""")
    (block,) = relax.transform.DeadCodeElimination()(mod)["main"].body.blocks
    assert [b.value.op.global_symbol for b in block.bindings] == ["g"]
    with pytest.raises(TypeError, match="sinfo_args"):
        op.call_pure_packed("f", mod["main"].params[0])
    grad = op.call_tir_with_grad(relax.GlobalVar("k"), [], T((2,)), te_grad_name="dk")
    assert (grad.attrs["te_grad_name"], dict(grad.attrs["te_grad_kwargs"])) == ("dk", {})


def test_mutators_normalise() -> None:
    @expr_functor.mutator
    class Twice(relax.PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = self.visit_expr_post_order(call)
            return op.multiply(op.exp(call.args[0]), call.args[0]) if call.op is EXP else call

    f = parse(
        "    if c:\n        y = R.exp(x)\n    else:\n        y = R.sin(x)\n    return y",
        'c: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32")',
    )
    made = Twice().visit_expr(f)
    assert analysis.well_formed(relax.IRModule({"main": made}))
    branch = made.body.blocks[0].bindings[0].value.true_branch
    calls = [b.value for block in branch.blocks for b in block.bindings]
    assert [c.op.name for c in calls] == ["relax.exp", "relax.multiply"]
    assert all(b.var.struct_info == T((2, 3)) for blk in branch.blocks for b in blk.bindings)


EXP = relax.ir.Op.get("relax.exp")


def test_arguments_that_exclude_each_other() -> None:
    for make in (
        lambda: relax.ShapeStructInfo([2], 1),
        lambda: T((2,), ndim=1),
        lambda: relax.FuncStructInfo.opaque_func(ret=T((2,)), derive_func="f"),
    ):
        with pytest.raises(StructInfoError):
            make()
    for text_dims in (("n", 3), (2.5,), (None,)):
        with pytest.raises(StructInfoError, match="a dimension must be"):
            T(text_dims)
    assert T((np.int64(2), tir.IntImm("int64", 3))).dims == (2, 3)


def test_purity_of_function_struct_infos() -> None:
    assert relax.FuncStructInfo([], T((2,))).purity is True
    assert relax.FuncStructInfo.opaque_func().purity is False
    assert relax.FuncStructInfo.opaque_func(ret=T((2,)), purity=True).purity is True


def test_shape_of_what_is_unknown() -> None:
    known = relax.get_shape_of(relax.Var("x", T((2, 3))))
    assert isinstance(known, relax.ShapeExpr)
    unknown = relax.get_shape_of(relax.Var("x", T(None, ndim=2)))
    assert isinstance(unknown, relax.Call)
    assert unknown.op is relax.ir.Op.get("relax.shape_of")
    with pytest.raises((TVMError, TypeError)):
        relax.get_shape_of(relax.Var("x", relax.ShapeStructInfo(ndim=1)))


def test_ambiguous_strings_are_refused() -> None:
    with pytest.raises((TVMError, TypeError), match="StringImm"):
        relax.convert_to_expr(tir.StringImm("a"))
    assert isinstance(relax.convert_to_expr("a"), relax.StringImm)


def test_rewriting_is_not_in_place() -> None:
    f = chain()
    mod = relax.IRModule({"main": f})
    before, dfb = mod.script(), f.body.blocks[0]
    rewrite = relax.DataflowBlockRewrite(dfb, f)
    a, c, b = (x.var for x in dfb.bindings)
    rewrite.add(op.cos(f.params[0]))
    rewrite.add(op.tan(f.params[0]), is_dfvar=True)
    rewrite.add(op.tanh(f.params[0]), name="named")
    rewrite.replace_all_uses(a, c)
    rewrite.remove_unused(a)
    for var, allow in ((c, True), (relax.Var("z", T((2,))), False)):
        with pytest.raises(TVMError):
            rewrite.remove_unused(var, allow_undef=allow)
    rewrite.remove_unused(relax.Var("z", T((2,))), allow_undef=True)
    made = {x.var.name_hint: x.var for x in rewrite.mutated_dfb().bindings}
    kinds = {n: isinstance(v, relax.DataflowVar) for n, v in made.items()}
    assert kinds == {"b": False, "c": True, "tmp0": False, "tmp1": True, "named": False}
    assert rewrite.mutated_root_fn().body.blocks[0] is rewrite.mutated_dfb()
    assert "R.cos" in rewrite.mutate_irmodule(mod)["main"].script()
    assert (mod.script(), f.body.blocks[0]) == (before, dfb)
    assert b is dfb.bindings[2].var


def test_the_order_of_post_order_visit() -> None:
    f = parse("    y = R.add(R.exp(x), R.const(1.0))\n    z = R.exp(y)\n    return z")
    nodes: list[relax.Expr] = []
    # What the function that visits gives is ignored.
    analysis.post_order_visit(f, lambda node: nodes.append(node) or False)
    assert len({id(n) for n in nodes}) == len(nodes)
    assert nodes[-1] is f
    assert nodes[0] is EXP or nodes[0] is relax.ir.Op.get("relax.add")
    at = {id(n): i for i, n in enumerate(nodes)}
    for n in nodes:
        if isinstance(n, relax.Call):
            assert all(at[id(a)] < at[id(n)] for a in (n.op, *n.args))
    ops = [n for n in nodes if isinstance(n, relax.ir.Op)]
    assert sorted(o.name for o in ops) == ["relax.add", "relax.exp"]
    kinds = Counter(type(n).__name__ for n in nodes)
    # x, y, z, and the variable that the inner R.exp is bound to, where they are used.
    assert kinds == {"Op": 2, "Call": 3, "Constant": 1, "Var": 4, "SeqExpr": 1, "Function": 1}
    assert type(nodes[-1]).__qualname__ == "Function"


def test_match_cast_populates_then_asserts() -> None:
    mod = text.from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor("float32", ndim=2), y: R.Tensor("float32", ndim=2)):
        n = T.int64()
        a = R.match_cast(x, R.Tensor((n, n), "float32"))
        b = R.match_cast(y, R.Tensor((n, 2), "float32"))
        z = R.add(R.sum(a), R.sum(b))
        return z
""")
    vm = relax.VirtualMachine(relax.build(mod), relax.cpu())
    ones = lambda *s: np.ones(s, "float32")  # noqa: E731
    assert float(vm["main"](ones(3, 3), ones(3, 2))) == 15.0
    for x, y in ((ones(3, 4), ones(3, 2)), (ones(3, 3), ones(4, 2)), (ones(3, 3), ones(3, 3))):
        with pytest.raises(TVMError):
            vm["main"](x, y)


def test_create_empty_needs_the_result() -> None:
    made = relax.Function.create_empty([relax.Var("x", T((2,)))], T((3,)), is_pure=False)
    assert (made.ret_struct_info, made.is_pure) == (T((3,)), False)
    with pytest.raises(TypeError):
        relax.Function.create_empty([])


def test_types_of_struct_info_are_named() -> None:
    assert relax.TensorType().dtype == "float32"
    assert relax.ShapeType().ndim == -1
    assert isinstance(relax.ObjectType(), relax.ir.Type)
    assert R.Tensor((2,), "int8") == T((2,), "int8")

"""Visitors and mutators."""

from __future__ import annotations

import math
import operator
import random
from typing import Any

import pytest

from relax2xla import op, tir
from relax2xla.analysis import check_well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.expr_functor import ExprFunctor, PyExprMutator, PyExprVisitor, mutator, visitor
from relax2xla.ir import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    GlobalVar,
    If,
    IRModule,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Span,
    StringImm,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
)
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.ir.op import Op, is_op
from relax2xla.ir.rewrite import post_order_deep

n = tir.Var("n")
INFO = TensorStructInfo((n, 4))


def model(first: str = "exp", dtype: str = "float32") -> IRModule:
    x, c, y = Var("x", INFO), Var("c", TensorStructInfo((), "bool")), Var("y", INFO)
    bb = BlockBuilder()
    with bb.function("main", [x, c]):
        with bb.dataflow():
            a = bb.emit(getattr(op, first)(x), span=Span("here"))
            b = bb.emit(op.add(a, x))
            g = bb.emit_output(b)
        f = bb.emit(Function([y], getattr(op, first)(y)))
        r = bb.emit(If(c, getattr(op, first)(g), Call(f, [g])))
        m = bb.match_cast(r, INFO)
        bb.emit_func_output((m, g))
    return bb.get()


@visitor
class Log(PyExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def visit_op_(self, op: Op[...]) -> None:
        self.log.append(op.name)

    def visit_var_(self, op: Var) -> None:
        self.log.append(f"use {op.name_hint}")

    def visit_dataflow_var_(self, op: DataflowVar) -> None:
        self.log.append(f"use df {op.name_hint}")

    def visit_var_def_(self, var: Var) -> None:
        self.log.append(f"def {var.name_hint}")

    def visit_dataflow_var_def_(self, var: DataflowVar) -> None:
        self.log.append(f"def df {var.name_hint}")


def test_the_order_of_a_walk() -> None:
    log = Log()
    log.visit_expr(model()["main"])
    assert log.log == [
        *("def x", "def c"),
        *("relax.exp", "use x", "def df lv"),
        *("relax.add", "use df lv", "use x", "def df lv1"),
        *("use df lv1", "def gv"),
        *("def y", "relax.exp", "use y", "def gv1", "use gv1", "def gv2"),
        *("use c", "relax.exp", "use gv", "def gv3", "use gv3"),
        *("use gv2", "use gv", "def gv4", "use gv4", "def gv5"),
        *("use gv5", "def gv6"),
        *("use gv6", "use gv"),
    ]


def test_a_shared_call_is_visited_once_in_a_walk() -> None:
    shared = op.exp(Var("x", INFO))
    log = Log()
    for _ in range(2):
        log.visit_expr(op.add(shared, shared))
    assert log.log == ["relax.add", "relax.exp", "use x"] * 2


def test_a_functor_names_the_method_it_lacks() -> None:
    with pytest.raises(NotImplementedError, match="ExprFunctor has no visit_constant_"):
        ExprFunctor().visit_expr(const(1))


def test_decorators_refuse_other_classes() -> None:
    with pytest.raises(TypeError, match="subclasses of PyExprVisitor"):
        visitor(PyExprMutator)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="subclasses of PyExprMutator"):
        mutator(Log)  # type: ignore[type-var]


@mutator
class ExpToSin(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        return sin(call.args[0]) if is_op(call, "relax.exp") else call  # type: ignore[attr-defined]


def sin(x: Expr) -> Expr:
    return op.sin(x)


def test_a_mutator_without_overrides_changes_nothing() -> None:
    func = model()["main"]
    assert PyExprMutator().visit_expr(func) is func


def test_a_mutator_reaches_everything() -> None:
    func = ExpToSin().visit_expr(model()["main"])
    assert isinstance(func, Function)
    check_well_formed(func)
    assert_structural_equal(func, model("sin")["main"])
    assert func.body.blocks[0].bindings[0].span == Span("here")


def test_what_is_returned_is_normalised() -> None:
    @mutator
    class Expand(PyExprMutator):
        def visit_call_(self, call: Call) -> Expr:
            call = self.visit_expr_post_order(call)  # type: ignore[assignment]
            if not is_op(call, "relax.exp"):
                return call
            return op.negative(op.negative(op.exp(call.args[0])))

    func = Expand().visit_expr(model()["main"])
    assert isinstance(func, Function)
    check_well_formed(func)
    values = [b.value for b in func.body.blocks[0].bindings[:3]]
    assert [v.op.name for v in values] == ["relax.exp", "relax.negative", "relax.negative"]  # type: ignore[attr-defined]


def test_struct_info_follows() -> None:
    @mutator
    class Half(PyExprMutator):
        def visit_call_(self, call: Call) -> Expr:
            if is_op(call, "relax.exp"):
                return op.astype(call, "float16")
            return super().visit_call_(call)

    bb, x = BlockBuilder(), Var("x", INFO)
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(op.sin(bb.emit(op.exp(x))))
        bb.emit_func_output(out)
    func = Half().visit_expr(bb.get()["main"])
    assert isinstance(func, Function)
    check_well_formed(func)
    assert func.ret_struct_info == TensorStructInfo((n, 4), "float16")
    assert isinstance(func.body.blocks[0].bindings[0].var, DataflowVar)


def test_emitting_and_looking_up() -> None:
    @mutator
    class Twice(PyExprMutator):
        def visit_call_(self, call: Call) -> Expr:
            call = self.visit_expr_post_order(call)  # type: ignore[assignment]
            if is_op(call, "relax.add"):
                assert is_op(self.lookup_binding(call.args[0]), "relax.exp")  # type: ignore[arg-type]
                seen.append(call)
                return op.multiply(self.builder_.emit(call), const(2.0))
            return call

    seen: list[Expr] = []
    mod = model()
    made = Twice(mod)
    func = made.visit_expr(mod["main"])
    assert isinstance(func, Function)
    made.builder_.update_func(made.builder_.get().get_global_var("main"), func)
    check_well_formed(made.builder_.get())
    assert len(seen) == 1
    assert len(func.body.blocks[0].bindings) == 4


def test_replacing_a_definition() -> None:
    @mutator
    class Rename(PyExprMutator):
        def visit_var_def_(self, var: Var) -> Var:
            return Var(f"{var.name_hint}_new", var.struct_info_)

    func = Rename().visit_expr(model()["main"])
    assert isinstance(func, Function)
    check_well_formed(func)
    assert_structural_equal(func, model()["main"])
    assert func.params[0].name_hint == "x_new"


def test_with_struct_info_and_remap() -> None:
    m, x = PyExprMutator(), Var("x", INFO)
    assert m.with_struct_info(x, TensorStructInfo((n, 4))) is x
    new = m.with_struct_info(x, TensorStructInfo((1, 4)))
    assert new.vid is x.vid
    with pytest.raises(KeyError):
        m.get_var_remap(x.vid)
    m.set_var_remap(x.vid, new)
    assert m.visit_expr(x) is m.get_var_remap(x.vid) is new
    assert isinstance(m.visit_with_new_scope(op.sin(x)).body, Var)


def test_every_kind_has_a_method() -> None:
    x = Var("x", INFO)
    leaves: list[Expr] = [const(1), StringImm("a"), ShapeExpr([n]), x, op.sin(x).op]
    for node in [*leaves, Tuple([x]), TupleGetItem(Tuple([x]), 0)]:
        Log().visit_expr(node)
        if not isinstance(node, TupleGetItem):
            assert PyExprMutator().visit_expr(node) is node


def test_constants_can_be_replaced() -> None:
    @mutator
    class Zero(PyExprMutator):
        def visit_constant_(self, constant: Constant) -> Expr:
            return const(0.0)

    new = Zero().visit_expr(op.add(Var("x", INFO), const(1.0)))
    assert isinstance(new, Call)
    assert isinstance(new.args[1], Constant)
    assert new.args[1].data == 0


# ---- programs that are not in A-normal form
def dag(rng: random.Random) -> Function:
    """Random calls, branches, sequences and local functions whose parts are shared everywhere."""
    c, x = Var("c", TensorStructInfo((), "bool")), Var("x", INFO)
    pool: list[Expr] = [x]

    def more(shared: list[Expr], count: int, depth: int) -> Expr:
        for _ in range(count):
            a, b = rng.choice(shared), rng.choice(shared)
            match rng.randrange(8 if depth else 4):
                case 0:
                    shared.append(op.sin(a))
                case 1:
                    shared.append(op.add(a, b))
                case 2:
                    shared.append(TupleGetItem(Tuple([a, op.tanh(b)]), rng.randrange(2)))
                case 3:
                    shared.append(op.multiply(op.sin(b), a))
                case 4 | 5:
                    arms = [more(list(shared), rng.randrange(3), depth - 1) for _ in range(2)]
                    shared.append(If(c, *arms))
                case 6:
                    value = more(list(shared), 2, depth - 1)
                    v = Var("v", INFO)
                    kind = DataflowBlock if depth == 1 and not has_if(value) else BindingBlock
                    shared.append(SeqExpr([kind([VarBinding(v, value)])], op.add(v, a)))
                case _:
                    y = Var("y", INFO)
                    body = more([*shared, y], 2, depth - 1)
                    shared.append(Call(Function([y], body), [a]))
        return shared[-1]

    return Function([c, x], more(pool, 6, 2))


def has_if(expr: Expr) -> bool:
    return any(isinstance(node, If) for node in post_order_deep(expr))


def value_of(func: Function, c: bool, x: float) -> float:
    """What ``func`` gives, by the meaning of Relax; it may be in A-normal form or not."""
    calls = {"sin": math.sin, "cos": math.cos, "tanh": math.tanh}
    calls |= {"add": operator.add, "multiply": operator.mul}

    def run(node: Any, env: dict[Var, Any]) -> Any:
        match node:
            case Var():
                return env[node]
            case Tuple():
                return [run(f, env) for f in node.fields]
            case TupleGetItem():
                return run(node.tuple_value, env)[node.index]
            case If():
                return run(node.true_branch if run(node.cond, env) else node.false_branch, env)
            case SeqExpr():
                inner = dict(env)
                for b in (b for block in node.blocks for b in block.bindings):
                    inner[b.var] = run(b.value, inner)
                return run(node.body, inner)
            case Function():
                return lambda *args: run(
                    node.body, {**env, **dict(zip(node.params, args, strict=True))}
                )
            case _:
                args = [run(a, env) for a in node.args]
                if isinstance(node.op, Op):
                    return calls[node.op.name.removeprefix("relax.")](*args)
                return run(node.op, env)(*args)

    return run(func, {})(c, x)


@mutator
class SinToCos(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        return cos(call.args[0]) if is_op(call, "relax.sin") else call  # type: ignore[attr-defined]


def cos(x: Expr) -> Expr:
    return op.cos(x)


@pytest.mark.parametrize("seed", range(60))
def test_shared_parts_stay_in_their_scopes(seed: int) -> None:
    func = dag(random.Random(seed))
    normal = BlockBuilder().normalize(func)
    assert isinstance(normal, Function)
    check_well_formed(normal)
    for made in (SinToCos().visit_expr(func), SinToCos().visit_expr(normal)):
        assert isinstance(made, Function)
        check_well_formed(made)
        for c in (False, True):
            assert value_of(normal, c, 0.3) == value_of(func, c, 0.3)
            assert value_of(made, c, 0.3) == value_of(SinToCos().visit_expr(normal), c, 0.3)  # type: ignore[arg-type]
    unchanged = PyExprMutator().visit_expr(func)
    assert isinstance(unchanged, Function)
    check_well_formed(unchanged)
    assert value_of(unchanged, True, 0.3) == value_of(func, True, 0.3)


SEEDS = [
    "visit_expr",
    "visit_binding",
    "visit_binding_block",
    "visit_var_def",
    "visit_constant_",
    "visit_tuple_",
    "visit_var_",
    "visit_dataflow_var_",
    "visit_shape_expr_",
    "visit_extern_func_",
    "visit_global_var_",
    "visit_function_",
    "visit_call_",
    "visit_seq_expr_",
    "visit_if_",
    "visit_op_",
    "visit_tuple_getitem_",
    "visit_prim_value_",
    "visit_string_imm_",
    "visit_data_type_imm_",
    "visit_var_binding_",
    "visit_match_cast_",
    "visit_binding_block_",
    "visit_dataflow_block_",
    "visit_var_def_",
    "visit_dataflow_var_def_",
]


def everything() -> Function:
    """A function in which every kind of node, binding and block occurs."""
    x, c = Var("x", INFO), Var("c", TensorStructInfo((), "bool"))
    g = GlobalVar("g", FuncStructInfo([INFO], INFO))
    bb = BlockBuilder()
    with bb.function("main", [x, c], pure=False):
        with bb.dataflow():
            y = bb.emit_output(op.add(bb.emit(op.sin(x)), const(1.0)))
        bb.emit(Call(g, [y]))
        shape = bb.emit((ShapeExpr([n]), PrimValue(n), StringImm("s"), DataTypeImm("int8")))
        bb.emit(Call(ExternFunc("f"), [bb.emit(shape[0])]))
        bb.emit(If(c, y, x))
        bb.match_cast(y, INFO)
        bb.emit_func_output(y)
    func = bb.get()["main"]
    assert isinstance(func, Function)
    return func


@pytest.mark.parametrize("base", [PyExprVisitor, PyExprMutator])
def test_every_method_of_the_documentation_is_reached(base: type) -> None:
    """Each can be overridden by itself, and the rest of the walk goes on through ``super()``."""
    for name in SEEDS:
        seen: list[object] = []

        def method(self: Any, node: Any, name: str = name, seen: list[object] = seen) -> Any:
            seen.append(node)
            return getattr(super(self.kind, self), name)(node)

        kind = type("Kind", (base,), {name: method})
        kind.kind = kind  # type: ignore[attr-defined]
        (visitor if base is PyExprVisitor else mutator)(kind)
        func = everything()
        result = kind().visit_expr(func)
        assert seen, name
        assert result is (func if base is PyExprMutator else None), name


def test_a_class_without_the_decorator_works_too() -> None:
    """TVM fails on it with an AttributeError about ``_outer``; nothing here depends on it."""

    class Count(PyExprVisitor):
        calls = 0

        def visit_call_(self, op: Call) -> None:
            self.calls += 1
            super().visit_call_(op)

    count = Count()
    count.visit_expr(everything())
    assert count.calls == 4


def test_recursive_local_functions_follow_their_variable() -> None:
    """The variable of a local function changes with its type, inside the function too."""
    x, y = Var("x", INFO), Var("y", INFO)
    f = Var("f", FuncStructInfo([INFO], INFO))
    inner = Function([y], op.exp(Call(f, [op.exp(y)])), INFO)
    seq = SeqExpr([BindingBlock([VarBinding(f, inner)])], Call(f, [x]))
    func = BlockBuilder().normalize(Function([x], seq))

    @mutator
    class Public(PyExprMutator):
        def visit_function_(self, op: Function) -> Expr:
            new = super().visit_function_(op)
            if isinstance(new, Function) and op.params[0].name_hint == "y":
                return Function(new.params, new.body, new.ret_struct_info, is_pure=False)
            return new

    made = Public().visit_expr(func)
    assert isinstance(made, Function)
    (binding, _) = made.body.blocks[0].bindings
    own = binding.value
    assert isinstance(own, Function)
    calls = [b.value for b in own.body.blocks[0].bindings if isinstance(b.value, Call)]
    assert binding.var in [c.op for c in calls]
    assert binding.var.struct_info == FuncStructInfo([INFO], INFO, purity=False)


def test_new_scopes_for_functions_and_branches() -> None:
    """What an overridden method emits in a branch stays there."""

    @mutator
    class Emit(PyExprMutator):
        def visit_call_(self, op: Call) -> Expr:
            call = self.visit_expr_post_order(op)
            return self.builder_.emit(call, "kept") if is_op(call, "relax.exp") else call

    func = Emit().visit_expr(model()["main"])
    assert isinstance(func, Function)
    check_well_formed(func)
    names = [b.var.name_hint for block in func.body.blocks for b in block.bindings]
    assert names.count("kept") == 1  # the others are inside the local function and the branch


def test_names_of_tvm_for_decorated_classes_and_blocks() -> None:
    @visitor
    class Base(PyExprVisitor):
        pass

    @visitor
    class Leaf(Base._cls):
        pass

    assert Base._cls is Base
    assert Leaf._cls is Leaf
    assert issubclass(Leaf, Base)
    bb = BlockBuilder()
    x = Var("x", TensorStructInfo((2,), "float32"))
    bb._begin_dataflow_block()
    y = bb.emit(op.add(x, x))
    block = bb._end_block()
    assert isinstance(block, DataflowBlock)
    assert block.bindings[0].var is y

"""Well-formedness. The cases and verdicts are those of TVM's own checker, unless a comment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relax2xla import op, tir
from relax2xla.analysis import check_well_formed, well_formed
from relax2xla.errors import WellFormedError
from relax2xla.ir import (
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    ObjectStructInfo,
    SeqExpr,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.script import from_source

n, m, k = tir.Var("n"), tir.Var("m"), tir.Var("k")
INFO = TensorStructInfo((n, 4))
K = TensorStructInfo((k, 4))
UNIT = TupleStructInfo(())
BOOL = TensorStructInfo((), "bool")

x, x2, y, v, v2 = (Var(name, INFO) for name in ("x", "x2", "y", "v", "v2"))
d = DataflowVar("d", INFO)
c = Var("c", BOOL)
vague = Var("vague", TensorStructInfo(ndim=2))
cast = Var("cast", K)
print_ = Call(ExternFunc("print"), [x], sinfo_args=[ObjectStructInfo()])
u = Var("u", ObjectStructInfo())


def fn(
    bindings: Sequence[VarBinding | MatchCast],
    body: Expr,
    params: Sequence[Var] = (x,),
    ret: StructInfo | None = None,
    dataflow: bool = False,
    pure: bool = True,
    **attrs: object,
) -> Function:
    block = (DataflowBlock if dataflow else BindingBlock)(bindings)
    return Function(params, SeqExpr([block], body), ret or INFO, pure, attrs)


def B(var: Var, value: Expr) -> VarBinding:
    return VarBinding(var, value)


inner = Function([y], y)
f = Var("f", inner.struct_info)
captures = Function([y], op.add(x, y))
p2, p1 = Var("p2", TensorStructInfo((n * 2,))), Var("p1", TensorStructInfo((n,)))

GOOD = {
    "plain": fn([B(v, op.sin(x))], v),
    "body is a tuple": Function([x], Tuple([x, Tuple([x])])),
    "tuple item of a tuple": fn([B(v, TupleGetItem(Tuple([x, x]), 0))], v),
    "match_cast defines": fn([MatchCast(cast, x, K)], cast, ret=TensorStructInfo(ndim=2)),
    "a variable says more than is known": fn([B(v, op.sin(vague))], v, [x, vague]),
    "n after n * 2": Function([p2, p1], p2),
    "n before n * 2": Function([p1, p2], p2),
    "if": fn([B(v, If(c, x, x))], v, [x, c]),
    "impure in impure": fn([B(u, print_)], x, pure=False),
    "forced pure": fn([B(u, print_)], x, **{"relax.force_pure": True}),
    "local function": fn([B(f, inner), B(v, Call(f, [x]))], v),
    "weaker declaration": fn([B(Var("w", TensorStructInfo(ndim=2)), op.sin(x))], x),
    "weaker result": fn([], x, ret=ObjectStructInfo()),
    # TVM refuses this one, but regions of StableHLO operators need it.
    "local function captures a dataflow variable": fn(
        [
            B(d, op.sin(x)),
            B(f, Function([y], SeqExpr([BindingBlock([B(v2, op.add(d, y))])], v2))),
            B(v, Call(f, [x])),
        ],
        v,
        dataflow=True,
    ),
}

BAD = {
    "the variable v is defined more than once": fn([B(v, op.sin(x)), B(v, op.sin(x))], v),
    "the variable v is not defined": fn([B(v2, op.sin(v))], v2),
    "the variable x is defined more than once": Function([x, x], x),
    "DataflowVar d is used outside of its dataflow block": fn([B(d, op.sin(x))], d, dataflow=True),
    "DataflowVar d is bound outside of dataflow": fn([B(d, op.sin(x))], x),
    "parameter d is a DataflowVar": Function([d], d),
    "not in A-normal form": fn([B(v, op.sin(op.sin(x)))], v),
    "field that computes": fn(
        [B(Var("t", TupleStructInfo([INFO, INFO])), Tuple([x, op.sin(x)]))], x
    ),
    "must end in a variable": Function([x], op.sin(x)),
    "sequence cannot be bound": fn([B(v, SeqExpr([], x))], v),
    "match_cast takes a variable": fn([MatchCast(cast, op.sin(x), K)], x),
    "the symbolic variable k in Tensor((k + 1, 4)": fn(
        [MatchCast(Var("w", ObjectStructInfo()), x, TensorStructInfo((k + 1, 4)))], x
    ),
    "the symbolic variable n in Tensor((n * 2,)": Function([p2], p2),
    "the symbolic variable k in Tensor((k, 4)": fn([B(Var("w", K), op.sin(x))], x),
    "the symbolic variable k is not defined": fn(
        [B(Var("w", ObjectStructInfo()), ShapeExpr([k]))], x
    ),
    'k in Tensor((k, 4), dtype="float32") is not defined\n  in the function': fn(
        [MatchCast(cast, x, K)], cast, ret=K
    ),
    "If is not allowed in a dataflow block": fn([B(v, If(c, x, x))], v, [x, c], dataflow=True),
    "0-d bool tensor; it is Tensor((n, 4)": fn([B(v, If(x, x, x))], v),
    "used outside of the scope": fn(
        [B(v, If(c, SeqExpr([BindingBlock([B(v2, op.sin(x))])], v2), x))], v2, [x, c]
    ),
    "in a dataflow block": fn([B(u, print_)], x, dataflow=True, pure=False),
    "declared pure but holds the impure call": fn([B(u, print_)], x),
    "w declares Tensor((3, 4)": fn([B(Var("w", TensorStructInfo((3, 4))), op.sin(x))], x),
    "the variable w has no struct info": fn([B(Var("w"), op.sin(x))], x),
    "f takes 1 arguments; got 2": fn([B(f, inner), B(v, Call(f, [x, x], struct_info=INFO))], v),
    "relax.sin takes 1 operands; got 2": fn(
        [B(v, Call(op.sin(x).op, [x, x], struct_info=INFO))], v
    ),
    "has no attribute nope": fn([B(v, Call(op.sin(x).op, [x], {"nope": 1}, struct_info=INFO))], v),
    # TVM lets this pass.
    "its result has dtype float32, expected int8": fn([], x, ret=TensorStructInfo((n, 4), "int8")),
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    check_well_formed(GOOD[name])
    check_well_formed(IRModule({"main": GOOD[name]}))
    assert well_formed(GOOD[name])


@pytest.mark.parametrize("reason", BAD)
def test_bad(reason: str) -> None:
    with pytest.raises(WellFormedError) as e:
        check_well_formed(BAD[reason])
    assert reason in str(e.value)
    with pytest.raises(WellFormedError, match="in the function main"):
        check_well_formed(IRModule({"main": BAD[reason]}))
    assert not well_formed(BAD[reason])


def test_what_is_not_well_formed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert not well_formed(BAD[next(iter(BAD))])
    assert "not well formed: " in caplog.text
    assert next(iter(BAD)) in caplog.text


def test_the_message_names_the_binding() -> None:
    with pytest.raises(WellFormedError, match=r"function main, binding `v2 = relax.sin\(v\)`"):
        check_well_formed(fn([B(v2, op.sin(v))], v2, global_symbol="main"))


def test_struct_info_can_be_left_alone() -> None:
    assert well_formed(fn([B(Var("w"), op.sin(x))], x), check_struct_info=False)
    free = Var("w", TensorStructInfo((tir.Var("unknown"),)))
    assert not well_formed(fn([B(free, op.sin(x))], x), check_struct_info=False)


def test_a_function_cannot_be_forced_pure_and_impure() -> None:
    marked = fn([], x).with_attr("relax.force_pure", True)
    assert well_formed(marked)
    with pytest.raises(WellFormedError, match="and is_pure=False; give it one of the two"):
        check_well_formed(marked.replace(is_pure=False))


def test_modules() -> None:
    g = GlobalVar("nope", FuncStructInfo([INFO], INFO))
    with pytest.raises(WellFormedError, match="no function 'nope'"):
        check_well_formed(IRModule({"main": fn([B(v, Call(g, [x]))], v)}))
    check_well_formed(fn([B(v, Call(g, [x]))], v))  # a lone function may call anything
    with pytest.raises(WellFormedError, match="has the global_symbol 'b'"):
        check_well_formed(IRModule({"a": fn([], x, global_symbol="b")}))
    other = Function([x2], x2)
    with pytest.raises(WellFormedError, match="symbolic variable n is defined in the functions a"):
        check_well_formed(IRModule({"a": fn([], x), "b": other}))
    fixed = Var("z", TensorStructInfo((1,)))
    with pytest.raises(WellFormedError, match="variable z is defined more than once"):
        check_well_formed(IRModule({s: Function([fixed], fixed) for s in "ab"}))
    check_well_formed(
        IRModule({"p": tir.PrimFunc([], tir.Evaluate(tir.IntImm("int32", 0))), "main": fn([], x)})
    )


def test_branches_do_not_share() -> None:
    def arm(value: Expr) -> SeqExpr:
        w = Var("w", INFO)
        return SeqExpr([BindingBlock([B(w, value)])], w)

    check_well_formed(fn([B(v, If(c, arm(op.sin(x)), arm(op.cos(x))))], v, [x, c]))


KERNEL = """
@I.ir_module(check_well_formed=False)
class M:
    @T.prim_func
    def flatten(x: T.handle, y: T.handle):
        m, n = T.int64(), T.int64()
        a = T.match_buffer(x, (m, n), "float16")
        b = T.match_buffer(y, (m * n,), "float16")
        for i, j in T.grid(m, n):
            b[i * n + j] = a[i, j]

    @T.prim_func
    def add_one(a: T.Buffer((16,), "float16")):
        for i in range(16):
            a[i] = a[i] + T.float16(1)

    @R.function
    def main(x: R.Tensor({given})):
        cls = M
        y = {call}
        return y
"""


@pytest.mark.parametrize(
    ("given", "call", "message"),
    [
        ('(8, 4), "float16"', 'call_tir(cls.flatten, x, R.Tensor((32,), "float16"))', ""),
        ("", 'call_tir(cls.flatten, x, R.Tensor((32,), "float16"))', ""),
        (
            *('(8, 4), "float16"', 'call_tir(cls.flatten, x, R.Tensor((64,), "float16"))'),
            "result 0 .* has 64 in dimension 0, expected 32",
        ),
        (
            *('(8, 4), "float16"', 'call_tir(cls.flatten, x, R.Tensor((32,), "float32"))'),
            "result 0 .* has dtype float32, expected float16",
        ),
        (
            *('(32,), "float16"', 'call_tir(cls.flatten, x, R.Tensor((32,), "float16"))'),
            "argument 0 .* has ndim 1, expected 2",
        ),
        (
            *('(8, 4), "float16"', 'call_tir(cls.flatten, (x, x), R.Tensor((32,), "float16"))'),
            "hands over 3 values; .* takes 2",
        ),
        (
            *('(16,), "float16"', "call_tir_inplace(cls.add_one, x, out_sinfo=R.Tensor((16,), "),
            "",
        ),
        (
            *('(32,), "float16"', "call_tir_inplace(cls.add_one, x, out_sinfo=R.Tensor((32,), "),
            "argument 0 .* has 32 in dimension 0, expected 16",
        ),
    ],
)
def test_calls_of_loop_level_functions(given: str, call: str, message: str) -> None:
    """The same programs are well-formed in TVM, and not."""
    if "inplace" in call:
        call += '"float16"), inplace_indices=[0])'
    mod = from_source(KERNEL.format(given=given, call=f"R.{call}"))
    assert isinstance(mod, IRModule)
    assert well_formed(mod) is not bool(message)
    if message:
        with pytest.raises(WellFormedError, match=message):
            check_well_formed(mod)
    assert well_formed(mod, check_struct_info=False)

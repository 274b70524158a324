"""Hand-made modules, good and bad, for the well-formedness checker and TVM's.

Every module is built from constructors alone, so that nothing is refused before it is checked.
``build(relax, tir, Span)`` makes them for either library; names begin with what they are about.
``python modules.py`` in TVM's Python prints its verdicts, which ``test_modules.py`` records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def build(rx: Any, tir: Any, ir: Any) -> dict[str, Callable[[], Any]]:
    """Name to a function that makes the module or function."""
    n, m, k = (tir.Var(s, "int64") for s in "nmk")
    T, S, Ob = rx.TensorStructInfo, rx.ShapeStructInfo, rx.ObjectStructInfo
    F, P, Tup = rx.FuncStructInfo, rx.PrimStructInfo, rx.TupleStructInfo
    op, If, Call, Fn = rx.op, rx.If, rx.Call, rx.Function
    INFO, BOOL, UNIT = T((n, 4), "float32"), T((), "bool"), Tup([])

    def var(name: str, info: Any = INFO) -> Any:
        return rx.Var(name, info)

    def dvar(name: str, info: Any = INFO) -> Any:
        return rx.DataflowVar(name, info)

    def bind(v: Any, value: Any) -> Any:
        return rx.VarBinding(v, value)

    def block(*bindings: Any) -> Any:
        return rx.BindingBlock(list(bindings))

    def flow(*bindings: Any) -> Any:
        return rx.DataflowBlock(list(bindings))

    def fn(
        params: list[Any],
        blocks: list[Any],
        body: Any,
        ret: Any = None,
        pure: bool = True,
        **attrs: Any,
    ) -> Any:
        f = Fn(params, sequence(blocks, body), INFO if ret is None else ret, pure)
        return f.with_attrs(attrs) if attrs else f

    def known(call: Any, info: Any = INFO) -> Any:
        """A call with its struct info, which this library gives it by itself."""
        if rx.__name__.startswith("tvm"):
            rx.expr._update_struct_info(call, info)
        return call

    def sequence(blocks: list[Any], body: Any) -> Any:
        made = rx.SeqExpr(blocks, body)
        info = body.struct_info_
        return made if info is None else known(made, info)

    x, y, z, v, w = (var(s) for s in "xyzvw")
    c, d, d2 = var("c", BOOL), dvar("d"), dvar("d2")
    sin = lambda a: known(op.sin(a))  # noqa: E731
    packed = known(Call(rx.extern("p"), [x], sinfo_args=[Ob()]), Ob())
    u = var("u", Ob())
    tuple2 = Tup([INFO, INFO])

    def seq(*bindings: Any, body: Any) -> Any:
        return sequence([block(*bindings)] if bindings else [], body)

    def branch(cond: Any, yes: Any, no: Any, info: Any = INFO) -> Any:
        return known(If(cond, yes, no), info)

    def cast(target: Any, value: Any, info: Any) -> Any:
        return rx.MatchCast(target, value, info)

    inner = lambda: fn([y], [], y)  # noqa: E731
    f = var("f", F([INFO], INFO))
    impure_f = var("f", F([INFO], INFO, False))
    K, MK = T((k, 4), "float32"), T((m, k), "float32")

    def module(**functions: Any) -> Any:
        return ir.IRModule(functions)

    def calls_itself() -> Any:
        g = rx.GlobalVar("g")
        g2 = fn([x], [block(bind(v, known(Call(g, [x]))))], v, global_symbol="g")
        return ir.IRModule({g: g2})

    def two_functions(second: Callable[[], Any]) -> Any:
        return module(a=fn([x], [], x, global_symbol="a"), b=second())

    a_of_m = var("a", T((m, 4), "float32"))
    cases: dict[str, Callable[[], Any]] = {
        # scopes
        "scope: empty": lambda: fn([x], [], x),
        "scope: chain": lambda: fn([x], [block(bind(v, sin(x)), bind(w, sin(v)))], w),
        "scope: use before definition": lambda: fn(
            [x], [block(bind(w, sin(v)), bind(v, sin(x)))], w
        ),
        "scope: free variable": lambda: fn([x], [], y),
        "scope: free variable in a call": lambda: fn([x], [block(bind(v, sin(y)))], v),
        "scope: bound twice": lambda: fn([x], [block(bind(v, sin(x)), bind(v, sin(x)))], v),
        "scope: parameter bound again": lambda: fn([x], [block(bind(x, sin(x)))], x),
        "scope: parameter twice": lambda: fn([x, x], [], x),
        "scope: bound in two blocks": lambda: fn(
            [x], [block(bind(v, sin(x))), block(bind(v, sin(x)))], v
        ),
        "scope: branch variable after": lambda: fn(
            [x, c], [block(bind(w, branch(c, seq(bind(v, sin(x)), body=v), seq(body=x))))], v
        ),
        "scope: branch variable in the other": lambda: fn(
            [x, c],
            [block(bind(w, branch(c, seq(bind(v, sin(x)), body=v), seq(body=v))))],
            w,
        ),
        "scope: same variable in both branches": lambda: fn(
            [x, c],
            [
                block(
                    bind(w, branch(c, seq(bind(v, sin(x)), body=v), seq(bind(v, sin(x)), body=v)))
                )
            ],
            w,
        ),
        "scope: branches with their own": lambda: fn(
            [x, c],
            [
                block(
                    bind(w, branch(c, seq(bind(v, sin(x)), body=v), seq(bind(z, sin(x)), body=z)))
                )
            ],
            w,
        ),
        "scope: local function": lambda: fn(
            [x], [block(bind(f, inner()), bind(v, known(Call(f, [x]))))], v
        ),
        "scope: local function's parameter after": lambda: fn([x], [block(bind(f, inner()))], y),
        "scope: local function's variable after": lambda: fn(
            [x], [block(bind(f, fn([y], [block(bind(v, sin(y)))], v)))], v
        ),
        "scope: local function captures": lambda: fn(
            [x],
            [block(bind(f, fn([y], [block(bind(v, sin(x)))], v)), bind(w, known(Call(f, [x]))))],
            w,
        ),
        "scope: local function recurses": lambda: fn(
            [x],
            [
                block(
                    bind(f, fn([y], [block(bind(v, known(Call(f, [y]))))], v)),
                    bind(w, known(Call(f, [x]))),
                )
            ],
            w,
        ),
        "scope: value uses its own variable": lambda: fn([x], [block(bind(v, sin(v)))], v),
        # dataflow
        "dataflow: good": lambda: fn([x], [flow(bind(d, sin(x)), bind(v, sin(d)))], v),
        "dataflow: variable is the result": lambda: fn([x], [flow(bind(d, sin(x)))], d),
        "dataflow: variable after the block": lambda: fn(
            [x], [flow(bind(d, sin(x))), block(bind(v, sin(d)))], v
        ),
        "dataflow: variable in the next block": lambda: fn(
            [x], [flow(bind(d, sin(x))), flow(bind(v, sin(d)))], v
        ),
        "dataflow: variable bound outside": lambda: fn([x], [block(bind(d, sin(x)))], x),
        "dataflow: variable bound and used outside": lambda: fn([x], [block(bind(d, sin(x)))], d),
        "dataflow: parameter": lambda: fn([d], [], d),
        "dataflow: branch inside": lambda: fn(
            [x, c], [flow(bind(v, branch(c, seq(body=x), seq(body=x))))], v
        ),
        "dataflow: impure call": lambda: fn([x], [flow(bind(u, packed))], x, pure=False),
        "dataflow: match-cast": lambda: fn([x], [flow(cast(v, x, INFO))], v),
        "dataflow: local function": lambda: fn(
            [x], [flow(bind(f, inner()), bind(v, known(Call(f, [x]))))], v
        ),
        # A-normal form
        "anf: nested call": lambda: fn([x], [block(bind(v, sin(sin(x))))], v),
        "anf: nested in a tuple": lambda: fn(
            [x], [block(bind(var("t", tuple2), rx.Tuple([x, sin(x)])))], x
        ),
        "anf: tuple as an argument": lambda: fn(
            [x], [block(bind(v, known(op.concat(rx.Tuple([x, x]), 1), T((n, 8)))))], x
        ),
        "anf: result is a call": lambda: fn([x], [], sin(x)),
        "anf: result is a tuple": lambda: fn([x], [], rx.Tuple([x, x]), tuple2),
        "anf: result is a nested tuple": lambda: fn(
            [x], [], rx.Tuple([x, rx.Tuple([x])]), Tup([INFO, Tup([INFO])])
        ),
        "anf: result is an If": lambda: fn([x, c], [], branch(c, seq(body=x), seq(body=x))),
        "anf: condition computes": lambda: fn(
            [x, c],
            [
                block(
                    bind(
                        v,
                        branch(known(op.logical_not(c), BOOL), seq(body=x), seq(body=x)),
                    )
                )
            ],
            v,
        ),
        "anf: sequence is bound": lambda: fn([x], [block(bind(v, seq(body=x)))], v),
        "anf: cast of a call": lambda: fn([x], [block(cast(v, sin(x), INFO))], v),
        "anf: item of a tuple": lambda: fn(
            [x], [block(bind(v, known(rx.TupleGetItem(rx.Tuple([x, x]), 0))))], v
        ),
        "anf: function as an argument": lambda: fn(
            [x],
            [
                block(
                    bind(
                        v,
                        known(op.invoke_pure_closure(inner(), rx.Tuple([x]), [INFO])),
                    )
                )
            ],
            v,
        ),
        "anf: branch ends in a call": lambda: fn(
            [x, c], [block(bind(v, branch(c, seq(body=sin(x)), seq(body=x))))], v
        ),
        # purity
        "purity: packed in pure": lambda: fn([x], [block(bind(u, packed))], x),
        "purity: packed in impure": lambda: fn([x], [block(bind(u, packed))], x, pure=False),
        "purity: forced": lambda: fn(
            [x], [block(bind(u, packed))], x, **{"relax.force_pure": True}
        ),
        "purity: print in pure": lambda: fn(
            [x], [block(bind(var("u", UNIT), known(op.print(x, format="{}"), UNIT)))], x
        ),
        "purity: impure local function called": lambda: fn(
            [x],
            [
                block(
                    bind(impure_f, fn([y], [block(bind(u, packed))], y, pure=False)),
                    bind(v, known(Call(impure_f, [x]))),
                )
            ],
            v,
        ),
        "purity: impure local function only made": lambda: fn(
            [x], [block(bind(impure_f, fn([y], [block(bind(u, packed))], y, pure=False)))], x
        ),
        "purity: packed in a branch": lambda: fn(
            [x, c],
            [block(bind(v, branch(c, seq(bind(u, packed), body=x), seq(body=x))))],
            v,
        ),
        "purity: pure local function is impure": lambda: fn(
            [x], [block(bind(f, fn([y], [block(bind(u, packed))], y)))], x, pure=False
        ),
        # symbolic variables
        "symbols: undefined in a parameter": lambda: fn(
            [var("p", T((n * 2,), "float32"))], [], rx.Tuple([]), UNIT
        ),
        "symbols: expression after definition": lambda: fn(
            [x, var("p", T((n * 2,), "float32"))], [], x
        ),
        "symbols: expression before definition": lambda: fn(
            [var("p", T((n * 2,), "float32")), x], [], x
        ),
        "symbols: undefined in a variable": lambda: fn([x], [block(bind(var("v", K), sin(x)))], x),
        "symbols: undefined in a shape": lambda: fn(
            [x], [block(bind(var("s", S((k,))), rx.ShapeExpr([k])))], x
        ),
        "symbols: undefined in a scalar": lambda: fn(
            [x], [block(bind(var("s", P(value=k)), rx.PrimValue(k)))], x
        ),
        "symbols: undefined in the result": lambda: fn([x], [], x, K),
        "symbols: defined by a cast": lambda: fn(
            [x],
            [block(cast(var("v", K), x, K), bind(var("s", S((k,))), rx.ShapeExpr([k])))],
            x,
        ),
        "symbols: cast to an expression": lambda: fn(
            [x], [block(cast(var("v", Ob()), x, T((k + 1, 4), "float32")))], x
        ),
        "symbols: of a cast in the result": lambda: fn(
            [x], [block(cast(var("v", K), x, K))], x, K
        ),
        "symbols: of a branch after it": lambda: fn(
            [x, c],
            [
                block(
                    bind(v, branch(c, seq(cast(var("q", K), x, K), body=x), seq(body=x))),
                    bind(var("s", S((k,))), rx.ShapeExpr([k])),
                )
            ],
            x,
        ),
        "symbols: used before the cast": lambda: fn(
            [x],
            [block(bind(var("s", S((k,))), rx.ShapeExpr([k])), cast(var("v", K), x, K))],
            x,
        ),
        "symbols: by a shape parameter": lambda: fn(
            [var("s", S((m, k)))], [block(bind(var("e", S((m + k,))), rx.ShapeExpr([m + k])))],
            rx.Tuple([]), UNIT,
        ),
        "symbols: by a scalar parameter": lambda: fn(
            [var("s", P(value=m))], [block(bind(var("e", S((m,))), rx.ShapeExpr([m])))],
            rx.Tuple([]), UNIT,
        ),
        "symbols: by a tuple parameter": lambda: fn(
            [var("t", Tup([MK]))], [block(bind(var("e", S((m * k,))), rx.ShapeExpr([m * k])))],
            rx.Tuple([]), UNIT,
        ),
        "symbols: by a function's parameter only": lambda: fn(
            [var("g", F([T((m,), "float32")], Ob()))],
            [block(bind(var("e", S((m,))), rx.ShapeExpr([m])))],
            rx.Tuple([]), UNIT,
        ),
        "symbols: undefined in sinfo_args": lambda: fn(
            [x],
            [
                block(
                    bind(u, known(op.call_pure_packed("p", x, sinfo_args=[K]), Ob()))
                )
            ],
            x,
        ),
        "symbols: local function sees those around": lambda: fn(
            [x],
            [block(bind(f, fn([y], [block(bind(var("s", S((n,))), rx.ShapeExpr([n])))], y)))],
            x,
        ),
        # struct info
        "info: weaker": lambda: fn([x], [block(bind(var("v", T(ndim=2)), sin(x)))], x),
        "info: object": lambda: fn([x], [block(bind(var("v", Ob()), sin(x)))], x),
        "info: wrong shape": lambda: fn([x], [block(bind(var("v", T((3, 4))), sin(x)))], x),
        "info: wrong dtype": lambda: fn(
            [x], [block(bind(var("v", T((n, 4), "int8")), sin(x)))], x
        ),
        "info: wrong rank": lambda: fn([x], [block(bind(var("v", T(ndim=3)), sin(x)))], x),
        "info: wrong kind": lambda: fn([x], [block(bind(var("v", S((n,))), sin(x)))], x),
        "info: stronger": lambda: fn(
            [var("p", T(ndim=2))],
            [block(bind(var("v", T((3, 4))), known(op.sin(var("p", T(ndim=2))), T(ndim=2))))],
            rx.Tuple([]), UNIT,
        ),
        "info: none on a variable": lambda: fn([x], [block(bind(rx.Var("v"), sin(x)))], x),
        "info: result weaker": lambda: fn([x], [], x, Ob()),
        "info: cast to other than declared": lambda: fn(
            [x], [block(cast(var("v", T((3, 4))), x, T((5, 4))))], x
        ),
        "info: condition is no bool": lambda: fn(
            [x], [block(bind(v, branch(x, seq(body=x), seq(body=x))))], v
        ),
        "info: too many arguments": lambda: fn(
            [x], [block(bind(f, inner()), bind(v, known(Call(f, [x, x]))))], v
        ),
        "info: operator with two operands too many": lambda: fn(
            [x], [block(bind(v, known(Call(op.sin(x).op, [x, x]))))], v
        ),
        # modules
        "module: good": lambda: two_functions(
            lambda: fn([a_of_m], [], a_of_m, T((m, 4), "float32"), global_symbol="b")
        ),
        "module: wrong global_symbol": lambda: module(a=fn([x], [], x, global_symbol="b")),
        "module: function not there": lambda: module(
            a=fn([x], [block(bind(v, known(Call(rx.GlobalVar("nope"), [x]))))], v)
        ),
        "module: calls itself": calls_itself,
        "module: shared variable": lambda: two_functions(
            lambda: fn([x], [], x, global_symbol="b")
        ),
        "module: shared symbolic variable": lambda: two_functions(
            lambda: fn([y], [], y, global_symbol="b")
        ),
        "module: private functions": lambda: module(
            a=fn([x], [], x), b=fn([a_of_m], [], a_of_m, T((m, 4), "float32"))
        ),
    }  # fmt: skip
    return cases


def verdict(make: Callable[[], Any], check: Callable[[Any], Any]) -> bool | None:
    """What ``check`` says of the module; None where the library does not even build it."""
    try:
        made = make()
    except Exception:
        return None
    try:
        result = check(made)
    except Exception:
        return False
    return True if result is None else bool(result)


if __name__ == "__main__":
    import json
    import sys

    import tvm  # pyright: ignore[reportMissingImports]
    from tvm import relax, tirx  # pyright: ignore[reportMissingImports]

    check = relax.analysis.well_formed
    found = {name: verdict(make, check) for name, make in build(relax, tirx, tvm).items()}
    sys.stdout.write(
        json.dumps({name: v for name, v in found.items() if v is not True}, indent=1) + "\n"
    )

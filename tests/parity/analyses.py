"""What the functions of ``relax.analysis`` say of a program, as plain text; TVM and we run this."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Key = Callable[[Any], int]


def describe(node: Any) -> str:
    """An expression by its class and name."""
    kind = type(node).__name__
    if kind in ("Var", "DataflowVar", "GlobalVar"):
        return f"{kind}:{node.name_hint}"
    if kind == "Op":
        return f"Op:{node.name}".replace("relax.distributed.", "relax.dist.")
    if kind == "Call":
        return f"Call:{describe(node.op)}"
    return f"{kind}:{node.index}" if kind == "TupleGetItem" else kind


def body(func: Any) -> str:
    """The text of a function without headers; names of a module's functions as TVM writes them."""
    text = re.sub(r"^ *# from .*\n(\s*\n)?", "", func.script(), flags=re.M).strip("\n")
    return re.sub(r'I\.GlobalVar\("(\w+)"\)', r"\1", text)


def _names(found: Any) -> str:
    return " ".join(v.name_hint for v in found)


def of_function(func: Any, analysis: Any, key: Key) -> dict[str, Any]:
    """The facts of one function; ``key``: an object's identity."""
    nodes: list[Any] = []
    analysis.post_order_visit(func, nodes.append)
    # TVM visits what is shared again and again; here each node is visited once.
    seen: dict[int, str] = {}
    for node in nodes:
        seen.setdefault(key(node), describe(node))
    blocks = [b for b in func.body.blocks if type(b).__name__ == "DataflowBlock"]
    chains = [
        sorted(f"{v.name_hint}: {' '.join(sorted(_names([u]) for u in users))}" for v, users in c)
        for c in (analysis.udchain(b).items() for b in blocks)
    ]
    bindings = sorted(
        f"{name}: {len(list(found))}" for name, found in analysis.name_to_binding(func).items()
    )
    values = analysis.get_var2val(func).items()
    less, text = body(analysis.remove_all_unused(func)), body(func)
    return {
        "all_vars": _names(analysis.all_vars(func)),
        "bound_vars": _names(analysis.bound_vars(func)),
        "free_vars": _names(analysis.free_vars(func.body)),
        "all_global_vars": _names(analysis.all_global_vars(func)),
        # Expressions in TVM alone: shapes in struct infos, and the format of R.print.
        "post_order": " ".join(x for x in seen.values() if x not in ("ShapeExpr", "StringImm")),
        "udchain": chains,
        "name_to_binding": bindings,
        "var2val": sorted(f"{v.name_hint}: {describe(value)}" for v, value in values),
        "impure": bool(analysis.contains_impure_call(func)),
        "without_unused": less if less != text else "the same",
    }


def of_program(made: Any, analysis: Any, key: Key) -> dict[str, Any]:
    """The facts of a module or a function, by the names of functions."""
    if not hasattr(made, "functions"):
        return {"": of_function(made, analysis, key)}
    facts: dict[str, Any] = {
        g.name_hint: of_function(f, analysis, key)
        for g, f in made.functions.items()
        if type(f).__name__ == "Function"
    }
    groups = analysis.detect_recursion(made)
    return {**facts, "recursion": sorted(" ".join(sorted(g.name_hint for g in x)) for x in groups)}


def verdicts(relax: Any, tir: Any, module: Any) -> dict[str, bool]:
    """Whether ``well_formed`` accepts programs that are made by hand, most of them wrong."""
    info = relax.TensorStructInfo((2, 3), "float32")
    boolean = relax.TensorStructInfo((), "bool")

    def var(name: str, sinfo: Any = info) -> Any:
        return relax.Var(name, sinfo)

    def local(name: str, sinfo: Any = info) -> Any:
        return relax.DataflowVar(name, sinfo)

    def call(op: str, *args: Any) -> Any:
        return module.inferred(getattr(relax.op, op)(*args), info)

    def bind(v: Any, value: Any) -> Any:
        return relax.VarBinding(v, value)

    def block(*bindings: Any) -> Any:
        return relax.BindingBlock(list(bindings))

    def flow(*bindings: Any) -> Any:
        return relax.DataflowBlock(list(bindings))

    def func(params: Any, blocks: Any, result: Any, ret: Any = info, **options: Any) -> Any:
        options.setdefault("attrs", module.attrs({"global_symbol": "main"}))
        body = module.inferred(relax.SeqExpr(blocks, result), ret)
        return relax.Function(params, body, ret, **options)

    x, y, z, c = var("x"), var("y"), var("z"), var("c", boolean)
    lv, n = local("lv"), tir.Var("n", "int64")
    open_shape = relax.TensorStructInfo((n, 3), "float32")
    effect = module.inferred(relax.Call(relax.ExternFunc("f"), [x], sinfo_args=[info]), info)

    def branches(first: Any, second: Any) -> Any:
        return module.inferred(relax.If(c, first, second), info)

    def seq(blocks: Any, result: Any) -> Any:
        return module.inferred(relax.SeqExpr(blocks, result), info)

    made: dict[str, Any] = {
        "right": func([x], [block(bind(y, call("exp", x)))], y),
        "dataflow": func([x], [flow(bind(lv, call("exp", x)), bind(y, call("sin", lv)))], y),
        "unbound_variable": func([x], [block(bind(y, call("exp", z)))], y),
        "used_before_definition": func(
            [x], [block(bind(y, call("exp", z)), bind(z, call("exp", x)))], y
        ),
        "bound_twice": func([x], [block(bind(y, call("exp", x)), bind(y, call("sin", x)))], y),
        "parameter_bound": func([x], [block(bind(x, call("exp", x)))], x),
        "parameter_twice": func([x, x], [], x),
        "dataflow_variable_escapes": func([x], [flow(bind(lv, call("exp", x)))], lv),
        "dataflow_variable_outside": func([x], [block(bind(lv, call("exp", x)))], x),
        "nested_call": func([x], [block(bind(y, call("exp", call("sin", x))))], y),
        "nested_tuple": func([x], [], relax.Tuple([x, x]), relax.TupleStructInfo([info, info])),
        "result_computes": func([x], [], call("exp", x)),
        "if": func([x, c], [block(bind(y, branches(seq([], x), seq([], x))))], y),
        "if_in_dataflow": func([x, c], [flow(bind(y, branches(seq([], x), seq([], x))))], y),
        "impure_in_pure": func([x], [block(bind(y, effect))], y),
        "impure": func([x], [block(bind(y, effect))], y, is_pure=False),
        "impure_in_dataflow": func([x], [flow(bind(y, effect))], y, is_pure=False),
        "forced_pure": func(
            [x],
            [block(bind(y, effect))],
            y,
            attrs=module.attrs({"global_symbol": "main", "relax.force_pure": True}),
        ),
        "undefined_symbol": func(
            [x], [block(bind(var("s", relax.ShapeStructInfo([n])), relax.ShapeExpr([n])))], x
        ),
        "undefined_symbol_in_result": func([x], [], x, open_shape),
        "defined_symbol": func(
            [var("p", open_shape)],
            [block(bind(var("s", relax.ShapeStructInfo([n])), relax.ShapeExpr([n])))],
            relax.ShapeExpr([n]),
            relax.ShapeStructInfo([n]),
        ),
        "symbol_of_a_cast": func(
            [x],
            [
                block(
                    relax.MatchCast(var("m", open_shape), x, open_shape),
                    bind(var("s", relax.ShapeStructInfo([n])), relax.ShapeExpr([n])),
                )
            ],
            x,
        ),
        "symbol_expression_in_parameter": func(
            [var("p", relax.TensorStructInfo((n + 1, 3), "float32"))],
            [],
            relax.ShapeExpr([2]),
            relax.ShapeStructInfo([2]),
        ),
        "unknown_global": func(
            [x],
            [
                block(
                    bind(
                        y,
                        module.inferred(
                            relax.Call(
                                module.named("other", relax.FuncStructInfo([info], info)), [x]
                            ),
                            info,
                        ),
                    ),
                )
            ],
            y,
        ),
        "other_global_symbol": func([x], [], x, attrs=module.attrs({"global_symbol": "other"})),
        "private": func([x], [], x, attrs=None),
        "branches_share_a_variable": func(
            [x, c],
            [block(bind(y, branches(seq([block(bind(z, x))], z), seq([block(bind(z, x))], z))))],
            y,
        ),
        "branch_variable_escapes": func(
            [x, c], [block(bind(y, branches(seq([block(bind(z, x))], z), seq([], x))))], z
        ),
    }

    def accepted(f: Any) -> bool:
        try:
            return relax.analysis.well_formed(module.make({"main": f})) is not False
        except Exception:  # TVM 0.25 raises its verdict, or returns None
            return False

    return {name: accepted(f) for name, f in made.items()}

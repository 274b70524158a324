"""One-line texts of expressions, for error messages (the full text is ``script``'s job)."""

from __future__ import annotations

from relax2xla.ir import expr as e
from relax2xla.ir import late
from relax2xla.ir.op import Op

LEAVES = (
    Op,
    e.Var,
    e.GlobalVar,
    e.ExternFunc,
    e.Constant,
    e.ShapeExpr,
    e.PrimValue,
    e.StringImm,
    e.DataTypeImm,
)


@late.brief.given
def brief(node: e.Expr) -> str:
    """A short text of ``node``, never more than two levels deep."""
    match node:
        case Op():
            return node.name
        case e.Var() | e.GlobalVar():
            return node.name_hint
        case e.Constant():
            values = f" {node.data}" if node.data.size == 1 else ""
            return f"const({node.struct_info_}{values})"
        case e.ShapeExpr():
            return f"R.shape([{', '.join(map(str, node.values))}])"
        case e.PrimValue() | e.StringImm() | e.DataTypeImm():
            return repr(node.value) if isinstance(node, e.StringImm) else str(node.value)
        case e.ExternFunc():
            return f"extern({node.global_symbol!r})"
        case e.TupleGetItem():
            return f"{leaf(node.tuple_value)}[{node.index}]"
        case e.Tuple():
            return f"({', '.join(map(leaf, node.fields))})"
        case e.Call():
            attrs = "".join(f", {k}={v!r}" for k, v in node.attrs.items())
            return f"{leaf(node.op)}({', '.join(map(leaf, node.args))}{attrs})"
        case e.SeqExpr():
            count = sum(len(b.bindings) for b in node.blocks)
            return f"<{count} binding{'s' * (count != 1)}, then {leaf(node.body)}>"
        case e.If():
            return f"<if {leaf(node.cond)}>"
        case e.Function():
            return f"function({', '.join(p.name_hint for p in node.params)})"
        case _:
            return type(node).__name__


def leaf(node: e.Expr) -> str:
    """``node`` if it is a leaf, else an ellipsis with its kind."""
    return brief(node) if isinstance(node, LEAVES) else f"<{type(node).__name__}>"

"""dump_ast: every node of an expression by the name of its class, with its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from relax2xla import ir, tir
from relax2xla.ir.deep import nests
from relax2xla.ir.op import Op
from relax2xla.ir.types import (
    FuncType,
    ObjectType,
    PackedFuncType,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    type_of,
)


class _Quoted(str):
    """Text that is shown in quotes."""


def _dims(values: Iterable[Any]) -> list[tir.PrimExpr]:
    return [v if isinstance(v, tir.PrimExpr) else tir.IntImm("int64", v) for v in values]


def _tensor(info: ir.TensorStructInfo) -> dict[str, Any]:
    shape = info.shape
    return {"dtype": info.dtype, **({"ndim": info.ndim} if shape is None else {"shape": shape})}


def _shape(info: ir.ShapeStructInfo) -> dict[str, Any]:
    known = {} if info.values is None else {"values": _dims(info.values)}
    return {"ndim": info.ndim, **known}


def _func(info: ir.FuncStructInfo) -> dict[str, Any]:
    known = {} if info.params is None else {"params": info.params}
    return {**known, "ret": info.ret, "purity": info.purity}


def _function(func: ir.Function) -> dict[str, Any]:
    attrs = {"attrs": dict(func.attrs)} if func.attrs else {}
    fields = _of("params", "body", "ret_struct_info", "is_pure")(func)
    return {**fields, **attrs}


def _of(*names: str) -> Callable[[Any], dict[str, Any]]:
    return lambda node: {n: getattr(node, n) for n in names}


def _named(field: str) -> Callable[[Any], dict[str, Any]]:
    return lambda node: {field: _Quoted(getattr(node, field))}


# The fields of each class, in the order in which they are shown.
_FIELDS: Final[dict[type[Any], Callable[[Any], dict[str, Any]]]] = {
    ir.Constant: lambda node: {"data": str(node.data)},
    ir.Tuple: _of("fields"),
    ir.DataflowVar: _named("name_hint"),
    ir.Var: _named("name_hint"),
    ir.GlobalVar: _named("name_hint"),
    ir.ExternFunc: _named("global_symbol"),
    Op: _named("name"),
    ir.StringImm: _named("value"),
    ir.DataTypeImm: _of("value"),
    ir.ShapeExpr: lambda node: {"values": _dims(node.values)},
    ir.PrimValue: _of("value"),
    ir.TupleGetItem: _of("tuple_value", "index"),
    ir.If: _of("cond", "true_branch", "false_branch"),
    ir.SeqExpr: _of("blocks", "body"),
    ir.Function: _function,
    ir.DataflowBlock: _of("bindings"),
    ir.BindingBlock: _of("bindings"),
    ir.VarBinding: _of("var", "value"),
    ir.MatchCast: _of("var", "value", "struct_info"),
    ir.TensorStructInfo: _tensor,
    ir.ShapeStructInfo: _shape,
    ir.FuncStructInfo: _func,
    ir.TupleStructInfo: _of("fields"),
    ir.PrimStructInfo: _of("dtype"),
    ir.ObjectStructInfo: _of(),
    ir.DTensorStructInfo: _of("tensor_sinfo", "device_mesh", "placement"),
    ShapeType: _of("ndim"),
    TensorType: _of("ndim", "dtype"),
    TupleType: _of("fields"),
    FuncType: _of("arg_types", "ret_type"),
    ObjectType: _of(),
    PackedFuncType: _of(),
    PrimType: _of("dtype"),
}


class ASTPrinter:
    """Shows expressions, bindings, blocks, struct infos and types; see :func:`dump_ast`."""

    def __init__(
        self,
        indent_str: str = "    ",
        include_struct_info_annotations: bool = True,
        include_type_annotations: bool = False,
        include_call_attrs: bool = True,
    ) -> None:
        self.indent_str = indent_str
        self.include_struct_info_annotations = include_struct_info_annotations
        self.include_type_annotations = include_type_annotations
        self.include_call_attrs = include_call_attrs

    def visit_expr(self, expr: ir.Expr | ir.Binding | ir.BindingBlock) -> str:
        """The text of an expression, binding or block."""
        return self._text(expr)

    def visit_struct_info_(self, struct_info_node: ir.StructInfo) -> str:
        """The text of a struct info; ValueError for what is none."""
        if not isinstance(struct_info_node, ir.StructInfo):
            raise ValueError(f"{struct_info_node!r} is no struct info")
        return self._text(struct_info_node)

    def visit_type_(self, type_node: Type) -> str:
        """The text of a type; ValueError for what is none."""
        if not isinstance(type_node, Type):
            raise ValueError(f"{type_node!r} is no type")
        return self._text(type_node)

    def _call(self, call: ir.Call) -> dict[str, Any]:
        fields: dict[str, Any] = {"op": call.op, "args": call.args}
        if call.sinfo_args:
            fields["sinfo_args"] = call.sinfo_args
        if call.attrs and self.include_call_attrs:
            fields["attrs"] = dict(call.attrs)
        return fields

    @nests
    def _text(self, value: Any) -> str:
        if isinstance(value, tir.PrimExpr):
            plain = not isinstance(value, tir.IntImm) or value.dtype == "int32"
            return f"PrimExpr(value=`{value if plain else f'T.{value.dtype}({value})'}`)"
        if isinstance(value, _Quoted):
            return f'"{value}"'
        if isinstance(value, tuple | list):
            return self._lines("[", map(self._text, value), "]")
        if isinstance(value, Mapping):
            items = (f'"{k}": {self._plain(v)}' for k, v in value.items())
            return self._lines("{", items, "}")
        kind = next((k for k in type(value).__mro__ if k in _FIELDS), None)
        if isinstance(value, ir.Call):
            kind, fields = ir.Call, self._call(value)
        elif kind is None:
            return str(value)
        else:
            fields = _FIELDS[kind](value)
        # Operators and packed functions have none.
        if isinstance(value, ir.Expr) and not isinstance(value, Op | ir.ExternFunc):
            info = value.struct_info_
            if info is not None and self.include_struct_info_annotations:
                fields["struct_info"] = info
            if info is not None and self.include_type_annotations:
                fields["checked_type_"] = type_of(info)
        shown = (f"{name}={self._text(v)}" for name, v in fields.items())
        return self._lines(f"{kind.__name__}(", shown, ")")

    def _plain(self, value: Any) -> str:
        return f'"{value}"' if isinstance(value, str) else str(value)

    def _lines(self, start: str, items: Iterable[str], end: str) -> str:
        """On one line what is one item of one line, else a line an item."""
        shown = list(items)
        if not shown or (len(shown) == 1 and "\n" not in shown[0]):
            return f"{start}{''.join(shown)}{end}"
        body = ",\n".join(shown).replace("\n", f"\n{self.indent_str}")
        return f"{start}\n{self.indent_str}{body}\n{end}"


def dump_ast(
    exp: ir.Expr | ir.Binding | ir.BindingBlock,
    indent_str: str = "    ",
    include_struct_info_annotations: bool = True,
    include_type_annotations: bool = False,
    include_call_attrs: bool = True,
) -> str:
    """An expression, binding or block as a tree of its nodes: ``Var(name_hint="x")``.

    ``include_struct_info_annotations`` and ``include_type_annotations`` show what is known of each
    expression, ``include_call_attrs`` the attributes of calls.
    """
    return ASTPrinter(
        indent_str, include_struct_info_annotations, include_type_annotations, include_call_attrs
    ).visit_expr(exp)

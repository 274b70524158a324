"""Text of Relax expressions: operands first, with an explicit stack."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache

from relax2xla import ir
from relax2xla.ir.op_param import as_dtype
from relax2xla.script.literals import quote, scalar_text
from relax2xla.script.metadata import CONSTANT
from relax2xla.script.node_text import NodePrinter

# Calls that state their result as ``out_sinfo`` and whose callee may be a packed function's name.
OUT_SINFO = frozenset(
    f"relax.{n}"
    for n in (
        "call_tir", "call_tir_inplace", "call_tir_with_grad", "call_dps_packed",
        "distributed.call_tir_local_view",
    )
)  # fmt: skip
# Those of them that state it well enough for TVM to leave the annotation out.
UNANNOTATED = frozenset({"relax.call_tir", "relax.call_dps_packed"})
# Operators whose first operand, a packed function, is written as its name alone.
CALLEE_FIRST = OUT_SINFO | {"relax.call_pure_packed", "relax.call_inplace_packed"}
# Operators whose format is a string value in TVM's text.
FORMATTED = frozenset({"relax.print", "relax.assert_op"})
# Attributes that TVM's classes declare in another order than its functions take them: by the prefix
# of operators, what comes last, in this order.
_POOL = ("padding", "ceil_mode", "count_include_pad", "layout", "out_layout")
ATTRIBUTE_ORDER: dict[str, tuple[str, ...]] = {
    "relax.nn.max_pool": _POOL,
    "relax.nn.avg_pool": _POOL,
    "relax.grad.max_pool": _POOL,
    "relax.grad.avg_pool": _POOL,
    "relax.nn.pad": ("pad_value", "pad_mode"),
    "relax.quantize": ("out_dtype", "axis"),
    "relax.dequantize": ("out_dtype", "axis"),
}
# Attributes that TVM holds as float32 literals, by the prefix of operators.
FLOAT32 = (("relax.nn.attention", "scale"), ("relax.image.resize", "roi"))

Piece = str | ir.Expr


class ExprPrinter(NodePrinter):
    """The part of the printer that writes expressions and what variables are annotated with."""

    all_info: bool
    alone: bool
    alias: str
    alias_defined: bool
    module: ir.IRModule | None
    module_name: str

    @abstractmethod
    def print_local(self, func: ir.Function, name: str, inline: bool = False) -> None:
        """Write a function inside another one."""

    @abstractmethod
    def branches(self, value: ir.If, target: str) -> None:
        """Write an ``if`` whose value is ``target``."""

    def annotation(self, var: ir.Var, value: ir.Expr | None = None) -> str:
        """``: struct info``; left out where the text of the value states it already."""
        info = var.struct_info_
        if info is None:
            return ""
        if isinstance(value, ir.Call):
            stated = isinstance(value.op, ir.Op) and value.op.name in UNANNOTATED
            hide = stated or (not self.all_info and isinstance(value.op, ir.Op))
        else:
            hide = not (self.all_info or value is None or isinstance(value, ir.ExternFunc))
        if hide and value is not None and value.struct_info_ == info:
            return ""
        return f": {self.info(info)}"

    # -- expressions -----------------------------------------------------------------------------
    def expr(self, root: ir.Expr) -> str:
        """The text of an expression."""
        out: list[str] = []
        stack: list[Piece] = [root]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                out.append(item)
                continue
            known = self.names.of.get(id(item))
            if known is not None:
                out.append(known)
            else:
                stack.extend(reversed(self.pieces(item)))
        return "".join(out)

    def pieces(self, node: ir.Expr) -> list[Piece]:
        """``node`` as text with its operands still to be written."""
        match node:
            case ir.Call():
                return self.call(node)
            case ir.Var():
                return [self.free_var(node)]
            case ir.Constant():
                return [self.constant(node)]
            case ir.Tuple():
                if not node.fields:
                    return [f"{self.relax('tuple')}()"]
                return ["(", *_joined(node.fields), ",)" if len(node.fields) == 1 else ")"]
            case ir.TupleGetItem():
                return [node.tuple_value, f"[{node.index}]"]
            case ir.ShapeExpr():
                return [f"{self.relax('shape')}([{self.dims(node.values)}])"]
            case ir.PrimValue():
                return [f"{self.relax('prim_value')}({self.prim(node.value)})"]
            case ir.StringImm():
                return [f"{self.relax('str')}({quote(node.value)})"]
            case ir.DataTypeImm():
                return [f"{self.relax('dtype')}({quote(node.value)})"]
            case ir.GlobalVar():
                return [self.global_var(node)]
            case ir.ExternFunc():
                return [f"{self.relax('ExternFunc')}({quote(node.global_symbol)})"]
            case ir.Op():
                return [self.operator(node)]
            case ir.Function():
                name = self.names.define(node, "func")
                self.print_local(node, name, inline=True)
                return [name]
            case ir.If():
                name = self.names.define(node, "branch")
                self.branches(node, name)
                return [name]
            case ir.SeqExpr():
                for block in node.blocks:
                    self.block(block)
                return [node.body]
            case _:
                raise TypeError(f"script() has no text for a {type(node).__name__}")

    def call(self, node: ir.Call) -> list[Piece]:
        """A call: operands by position, attributes by keyword in the order of the signature."""
        op = node.op
        if self.alone:  # Its operands are declared before what its attributes mention.
            for arg in node.args:
                for field in arg.fields if isinstance(arg, ir.Tuple) else (arg,):
                    if isinstance(field, ir.Var) and id(field) not in self.names.of:
                        self.free_var(field)
        args: list[list[Piece]] = [[a] for a in node.args]
        attrs = dict(node.attrs)
        if isinstance(op, ir.Op):
            start: list[Piece] = [self.operator(op)]
            if op.name == "relax.call_tir" and any(
                isinstance(i, ir.DTensorStructInfo) for i in node.sinfo_args
            ):
                start = [self.relax("dist.call_tir")]
            if op.name in CALLEE_FIRST and node.args and isinstance(node.args[0], ir.ExternFunc):
                args[0] = [quote(node.args[0].global_symbol)]
            seen_attr = False
            for i, p in enumerate(op.params):
                if not p.kind.operand:
                    seen_attr = True
                elif seen_attr and not p.variadic:
                    # After an attribute, only the operand's name says which parameter it is.
                    at = sum(q.kind.operand for q in op.params[:i])
                    if at < len(args):
                        args[at] = [f"{p.name}=", *args[at]]
            order = {n: i for i, n in enumerate(_attribute_order(op.name))}
            for p in sorted(op.params, key=lambda p: order.get(p.name, -1)):
                if p.name in attrs:
                    value = attrs.pop(p.name)
                    text = self.value(value)
                    if value is None and p.kind.convert is as_dtype:
                        text = quote("void")
                    elif _is_float32(op.name, p.name):
                        text = self.float32(value)
                    elif p.name == "format" and op.name in FORMATTED:
                        text = f"{self.relax('str')}({text})"
                    args.append([f"{p.name}={text}"])
            if node.sinfo_args and op.name in OUT_SINFO:
                # As in TVM: operands, results, attributes, then the symbols of the callee.
                args.insert(2, [f"out_sinfo={self.out_sinfo(node.sinfo_args)}"])
                args += [["tir_vars=", *args.pop(3)] for _ in node.args[2:]]
        elif isinstance(op, ir.ExternFunc):
            start = [self.relax("call_packed")]
            args.insert(0, [quote(op.global_symbol)])
        else:
            start = [op]
        for name, value in sorted(attrs.items()):
            args.append([f"{name}={self.value(value)}"])
        if node.sinfo_args and not (isinstance(op, ir.Op) and op.name in OUT_SINFO):
            infos = ", ".join(map(self.info, node.sinfo_args))
            args.append([f"sinfo_args=({infos}{',' if len(node.sinfo_args) == 1 else ''})"])
        pieces: list[Piece] = [*start, "("]
        for i, a in enumerate(args):
            pieces += [", ", *a] if i else a
        return [*pieces, ")"]

    def operator(self, op: ir.Op[...]) -> str:
        """An operator's name in the namespace; distributed ones are in ``R.dist``."""
        name = op.name.removeprefix("relax.")
        return self.relax(name.replace("distributed.", "dist.", 1))

    def out_sinfo(self, infos: Sequence[ir.StructInfo]) -> str:
        """The result of a call in destination-passing style; several as a list."""
        only = infos[0] if len(infos) == 1 else ir.TupleStructInfo(infos)
        # A list of one is, as in TVM, its only element.
        if isinstance(only, ir.TupleStructInfo) and len(only.fields) > 1:
            return f"[{', '.join(map(self.info, only.fields))}]"
        return self.info(only)

    def free_var(self, var: ir.Var) -> str:
        """A variable that the printed part does not bind: declared above it."""
        note = self.annotation(var)
        name = self.names.define(var, var.name_hint, hoist=True)
        self.head.append(f"{self.head_indent}{name}{note}")
        return name

    def global_var(self, gvar: ir.GlobalVar) -> str:
        """``cls.f`` in the module that has it, else ``I.GlobalVar("f")``; in a part its name."""
        if self.alone:
            return gvar.name_hint
        if self.module is None or gvar not in self.module:
            return f"{self.prefix('ir')}.GlobalVar({quote(gvar.name_hint)})"
        if not self.alias:
            return f"{self.module_name}.{gvar.name_hint}"
        if not self.alias_defined:
            self.alias_defined = True
            self.head.append(f"{self.head_indent}{self.alias} = {self.module_name}")
        return f"{self.alias}.{gvar.name_hint}"

    def constant(self, node: ir.Constant) -> str:
        """``R.const(1.0, "float32")``, or a reference to the metadata section."""
        info = node.struct_info_
        if isinstance(info, ir.DTensorStructInfo):
            text = scalar_text(node.data, info.tensor_sinfo.dtype)
            if text is not None:
                return f"{self.relax('dist.const')}({text}, {self.info(info)})"
        elif isinstance(info, ir.TensorStructInfo) and info.vdevice is None:
            text = scalar_text(node.data, info.dtype)
            if text is not None:
                return f"{self.relax('const')}({text}, {quote(info.dtype)})"
        return self.in_table(CONSTANT, node)


@cache
def _attribute_order(op: str) -> tuple[str, ...]:
    return next((o for start, o in ATTRIBUTE_ORDER.items() if op.startswith(start)), ())


def _is_float32(op: str, attr: str) -> bool:
    return any(op.startswith(start) and attr == name for start, name in FLOAT32)


def _joined(nodes: Sequence[ir.Expr]) -> list[Piece]:
    pieces: list[Piece] = []
    for i, node in enumerate(nodes):
        pieces += [", ", node] if i else [node]
    return pieces

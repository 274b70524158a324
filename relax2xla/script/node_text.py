"""Text of single nodes: what ``script()`` gives of a part of a program.

Source of the semantics: TVM's printer. An expression, struct info or type is one line; with
``verbose_expr`` the variables that it mentions are declared above it. Statements (bindings, blocks,
branches, sequences) always have these declarations. A part has no header: it is read by people.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from relax2xla import ir, tir
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.script.attribute_text import AttributePrinter
from relax2xla.script.literals import quote
from relax2xla.tir import node as tir_node


class NodePrinter(AttributePrinter):
    """The part of the printer that writes single nodes."""

    lines: list[str]
    indent: str
    verbose: bool

    @abstractmethod
    def kernel_lines(self, node: tir_node.Node, ir_prefix: str = "") -> list[str]:
        """The lines of a part of a loop-level function."""

    @abstractmethod
    def block(self, block: ir.BindingBlock) -> None:
        """Write the bindings of a block."""

    @abstractmethod
    def binding(self, b: ir.Binding) -> None:
        """Write one binding."""

    @abstractmethod
    def line(self, text: str) -> None:
        """Write one statement."""

    @abstractmethod
    def indented(self) -> AbstractContextManager[None]:
        """Statements inside are one step deeper."""

    def single_node(self, node: Any) -> None:
        """Write ``node``, which is neither module nor function; TypeError for other things."""
        if isinstance(node, ir.StructInfo):
            self.expression(self.info(node))
        elif isinstance(node, ir.Type):
            self.expression(self.type(node))
        elif isinstance(node, ir.If):
            self.if_alone(node)
        elif isinstance(node, ir.SeqExpr):
            self.sequence(node)
        elif isinstance(node, ir.Expr):
            self.expression(self.expr(node))
        elif isinstance(node, tir.Range):
            for line in self.kernel_lines(node, ir_prefix=self.prefix("ir")):
                self.line(line)
        elif isinstance(node, tir_node.Node):
            for line in self.kernel_lines(node):
                self.line(line)
        elif isinstance(node, ir.BindingBlock):
            self.block(node)
        elif isinstance(node, ir.Binding):
            self.binding(node)
        else:
            raise TypeError(f"script() has no text for a {type(node).__name__}")
        self.lines = [*self.head, *self.lines]

    def expression(self, text: str) -> None:
        """``text`` is all there is; declarations are wanted or not."""
        if not self.verbose:
            self.head.clear()
        self.line(text)

    def sequence(self, seq: ir.SeqExpr) -> None:
        """Blocks, then the result as a statement."""
        for block in seq.blocks:
            self.block(block)
        self.line(self.expr(seq.body))

    def if_alone(self, value: ir.If) -> None:
        """``if`` and ``else``, each with the declarations of what it alone mentions."""
        cond = self.expr(value.cond)
        for part in post_order_deep(value):
            if isinstance(part, ir.Var) and part.struct_info_ is not None:
                self.info(part.struct_info_)  # Both branches mean the same symbolic variables.
        self.names.keep()
        for header, seq in ((f"if {cond}:", value.true_branch), ("else:", value.false_branch)):
            self.line(header)
            outer, self.lines = self.lines, []
            above, self.head = self.head, []
            with self.indented(), self.names.scope():
                self.head_indent = self.indent
                self.sequence(seq)
            self.lines = [*outer, *self.head, *self.lines]
            self.head, self.head_indent = above, self.indent

    def type(self, type_: ir.Type) -> str:
        """A type, as the annotation that says the same."""
        match type_:
            case ir.TensorType():
                dtype = f', dtype="{type_.dtype}"' if type_.dtype else ""
                return f"{self.relax('Tensor')}(ndim={type_.ndim}{dtype})"
            case ir.ShapeType():
                return f"{self.relax('Shape')}(ndim={type_.ndim})"
            case ir.PrimType():
                return f"{self.prefix('tir')}.{type_.dtype}"
            case ir.PointerType():
                scope = type_.storage_scope
                return f"{self.prefix('tir')}.handle({quote(_dtype(type_))}, {quote(scope)})"
            case ir.TupleType() if type_.fields and all(
                isinstance(f, ir.PrimType | ir.PointerType) for f in type_.fields
            ):
                return f"{self.prefix('tir')}.Tuple({', '.join(map(self.type, type_.fields))})"
            case ir.TupleType():
                fields = ", ".join(map(self.type, type_.fields))
                return f"{self.relax('Tuple')}({fields})" if fields else self.relax("Tuple")
            case ir.FuncType():
                params = ", ".join(map(self.type, type_.arg_types))
                comma = "," if len(type_.arg_types) == 1 else ""
                return f"{self.relax('Callable')}(({params}{comma}), {self.type(type_.ret_type)})"
            case ir.PackedFuncType():
                return self.relax("PackedFunc")
            case ir.ObjectType():
                return self.relax("Object")
            case _:
                raise TypeError(f"script() has no text for a {type(type_).__name__}")


def _dtype(pointer: ir.PointerType) -> str:
    element = pointer.element_type
    if not isinstance(element, ir.PrimType):
        raise TypeError(f"script() has no text for a pointer to a {type(element).__name__}")
    return element.dtype

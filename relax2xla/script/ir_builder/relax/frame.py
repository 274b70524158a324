"""Frames of Relax: functions, dataflow blocks and branches, over one BlockBuilder a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla.builder import BlockBuilder
from relax2xla.errors import BuilderError, StructInfoError
from relax2xla.ir.check import is_operand
from relax2xla.ir.expr import (
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import Mismatch, result_info, unify
from relax2xla.ir.normal import outside_dataflow
from relax2xla.ir.rewrite import Rewriter
from relax2xla.ir.struct_info import StructInfo, show
from relax2xla.script.ir_builder.base import IRBuilder, IRBuilderFrame, want
from relax2xla.script.ir_builder.ir import IRModuleFrame


class RelaxFrame(IRBuilderFrame):
    """A frame of Relax."""


class SeqExprFrame(RelaxFrame):
    """A frame that holds binding blocks."""


class FunctionFrame(SeqExprFrame):
    """A function under construction."""

    def __init__(self, is_pure: bool, is_private: bool) -> None:
        super().__init__()
        self.is_pure, self.is_private = is_pure, is_private
        self.name: str | None = None
        self.params: list[Var] = []
        self.attrs: dict[str, Any] = {}
        self.ret_struct_info: StructInfo | None = None
        self.output: Expr | None = None
        self.block_builder = BlockBuilder()

    def enter(self) -> None:
        outer = self.builder.innermost(RelaxFrame)
        if outer is not None:
            raise BuilderError("a function in a function; build it with an IRBuilder of its own")
        self.block_builder.begin_scope([])

    def exit(self) -> None:
        if self.output is None:
            raise BuilderError(f"{self.what()} ends without R.func_ret_value")
        seq = SeqExpr(self.block_builder.end_scope(), self.output)
        attrs = dict(self.attrs)
        if self.is_private and "global_symbol" in attrs:
            raise BuilderError(
                f"{self.what()} is private and has the attribute global_symbol, which makes it "
                "public; leave one of them out"
            )
        if self.name is not None and not self.is_private:
            attrs.setdefault("global_symbol", self.name)
        func = Function(self.params, seq, self.result(self.output), self.is_pure, attrs)
        module = self.builder.innermost(IRModuleFrame)
        if module is None:
            self.builder.finish(func)
            return
        if self.name is None:
            raise BuilderError("a function of a module needs a name; call R.func_name")
        if self.name not in module.global_vars:
            module.declare(self.name, func)
        module.define(self.name, func)

    def result(self, output: Expr) -> StructInfo:
        """The declared result; what the body says, where it says more."""
        found = result_info(self.params, output.struct_info)
        declared = self.ret_struct_info
        if declared is None or declared.is_base_of(found):
            return found
        try:
            unify(declared, found, {})
        except Mismatch as e:
            raise StructInfoError(
                f"the result of {self.what()} is declared as {show(declared)}, but it is "
                f"{show(found)}: it has {e}"
            ) from None
        return declared

    def what(self) -> str:
        return f"the function {self.name!r}" if self.name else "the function"


class BlockFrame(RelaxFrame):
    """A dataflow block under construction; ``output_vars`` are what is visible after its end."""

    def __init__(self) -> None:
        super().__init__()
        self.output_vars: tuple[Var, ...] = ()
        self.ended = False
        self._block: BindingBlock | None = None

    def enter(self) -> None:
        function = want(FunctionFrame, "R.dataflow", "R.function()")
        if not isinstance(self.builder.frames[-1], SeqExprFrame):
            raise BuilderError("R.dataflow stands in a function or a branch; blocks do not nest")
        self._builder = function.block_builder
        self._builder.begin_block(dataflow=True)

    def exit(self) -> None:
        self._block = self._builder.end_block()
        local = {b.var for b in self._block.bindings}
        for var in self.output_vars:
            if var not in local:
                raise BuilderError(f"{var.name_hint} is not bound in this dataflow block")
        shown = _Shown(self.output_vars)
        self._builder.emit_block(shown.block(self._block))
        self.output_vars = tuple(shown.made[v] for v in self.output_vars)

    def leave(self) -> None:
        if self._block is None:
            self._builder.end_block()


class _Shown(Rewriter):
    """Outputs of a dataflow block as variables that are visible after it."""

    def __init__(self, outputs: Sequence[Var]) -> None:
        super().__init__()
        self.outputs = set(outputs)
        self.made: dict[Var, Var] = {}

    def var(self, var: Var, info: StructInfo | None) -> Var:
        if var not in self.outputs:
            return super().var(var, info)
        if isinstance(var, DataflowVar):
            known = var.struct_info if info is None else info
            self.env[var] = self.made[var] = Var(var.vid, outside_dataflow(known), var.span)
        else:
            self.made[var] = var  # bound by emit_var_binding, visible already
        return self.made[var]


class IfFrame(RelaxFrame):
    """A condition and its two branches; ``var`` is bound to the value of the one taken."""

    def __init__(self, condition: Expr) -> None:
        super().__init__()
        self.condition = condition
        self.branches: dict[str, tuple[str, SeqExpr]] = {}
        self.var: Var | None = None

    def enter(self) -> None:
        function = want(FunctionFrame, "R.If", "R.function()")
        if not isinstance(self.builder.frames[-1], SeqExprFrame):
            raise BuilderError("R.If stands in a function or a branch, not in a dataflow block")
        self.block_builder = function.block_builder
        self.condition = self.block_builder.as_operand(self.condition)

    def exit(self) -> None:
        for kind in ("Then", "Else"):
            if kind not in self.branches:
                raise BuilderError(f"R.If ends without R.{kind}()")
        (name, then), (other, otherwise) = self.branches["Then"], self.branches["Else"]
        if name != other:
            raise BuilderError(
                "both branches must end by binding the same variable; one binds "
                f"{name!r}, the other {other!r} (IRBuilder.name names them)"
            )
        self.var = self.block_builder.emit(If(self.condition, then, otherwise))
        IRBuilder.name(name, self.var)


class _BranchFrame(SeqExprFrame):
    """A branch; the variable that it binds last is its value."""

    kind: str

    def enter(self) -> None:
        around = self.builder.frames[-1] if self.builder.frames else None
        if not isinstance(around, IfFrame):
            raise BuilderError(f"R.{self.kind} stands directly in R.If")
        if self.kind in around.branches:
            raise BuilderError(f"R.If has two R.{self.kind}")
        if self.kind == "Else" and not around.branches:
            raise BuilderError("R.Else stands after R.Then")
        self.around = around
        around.block_builder.begin_scope()
        self.blocks: list[BindingBlock] | None = None

    def exit(self) -> None:
        self.blocks = blocks = self.around.block_builder.end_scope()
        if not blocks:
            raise BuilderError(f"R.{self.kind} must end by binding a variable")
        last = blocks[-1].bindings[-1]
        value: Expr = last.var
        if isinstance(blocks[-1], DataflowBlock):
            if isinstance(last.var, DataflowVar):
                raise BuilderError(
                    f"R.{self.kind} ends with {last.var.name_hint}, which only its dataflow block "
                    "sees; name it in R.output"
                )
        elif isinstance(last, VarBinding) and is_operand(last.value):
            # Another name of a value needs no binding.
            value = last.value
            rest = blocks[-1].bindings[:-1]
            blocks = [*blocks[:-1], *([BindingBlock(rest)] if rest else [])]
        self.around.branches[self.kind] = last.var.name_hint, SeqExpr(blocks, value)

    def leave(self) -> None:
        if self.blocks is None:
            self.around.block_builder.end_scope()


class ThenFrame(_BranchFrame):
    """The branch that is taken where the condition holds."""

    kind = "Then"


class ElseFrame(_BranchFrame):
    """The branch that is taken where the condition does not hold."""

    kind = "Else"

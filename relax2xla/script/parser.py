"""Modules of TVMScript, and the whole text that holds one.

Signatures are evaluated first, so that functions can call forward; then the bodies.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from relax2xla import ir, tir
from relax2xla.builder import BlockBuilder
from relax2xla.errors import WellFormedError
from relax2xla.ir.check import check_well_formed
from relax2xla.ir.kernel_info import kernel_info
from relax2xla.script.evaluate import NAMESPACES, Evaluator, ModuleAlias
from relax2xla.script.functions import Flags, FunctionParser, Signature
from relax2xla.script.macros import macro_in_text
from relax2xla.script.markers import Decorator, Marker
from relax2xla.script.prim_func import PrimFuncParser
from relax2xla.script.prim_func.values import Unread
from relax2xla.script.source import Source, message_of

# Callees whose result must be inferred from their body are parsed at their first call; beyond
# this depth of such calls the result is an unknown object.
MAX_FORWARD = 20
_ROOMS = {"ir": "I", "relax": "R", "tir": "T", "tirx": "T"}


class Parser(FunctionParser):
    """One source text."""

    def __init__(
        self,
        source: Source,
        outside: Mapping[str, Any],
        check: bool = True,
        numpy: bool = False,
    ) -> None:
        super().__init__(source, outside, numpy)
        self._check_rules = check
        self._heads: dict[str, Signature] = {}
        self._functions: dict[str, Any] = {}
        self._open: list[str] = []
        self._kernels: list[tuple[ast.FunctionDef, Flags]] = []

    # -- definitions -----------------------------------------------------------------------------
    def definition(
        self, node: ast.ClassDef | ast.FunctionDef
    ) -> ir.IRModule | ir.Function | tir.PrimFunc:
        """A module or a lone function."""
        check = self._check_rules
        if isinstance(node, ast.ClassDef):
            check = self.checks_annotations = check and self._wants_check(node)
            made: ir.IRModule | ir.Function | tir.PrimFunc = self.module(node)
        else:
            decorator, flags = self.flags(node)
            if decorator.name != "R.function":
                return self.prim_func(node, flags, check)
            check = self.checks_annotations = check and flags.check_well_formed
            head = self.signature(node, flags, self.scope)
            made = self.function(head, None if flags.private else node.name)
        if check:
            # The parser has compared annotations itself; like TVM it lets them say more.
            try:
                check_well_formed(made, check_struct_info=False)
            except WellFormedError as e:
                at = self._culprit(node, e)
                self.source.fail(at, f"the program is not well-formed: {message_of(e)}", e)
        return made

    def _culprit(
        self, node: ast.ClassDef | ast.FunctionDef, error: WellFormedError
    ) -> ast.stmt | ast.expr:
        """What broke a rule: the value of a statement, else the function, else the whole."""
        span, found = error.span, node
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef) and inner.name == error.function:
                found = inner
            if isinstance(inner, ast.Assign | ast.AnnAssign | ast.Expr):
                if self.source.span(inner) == span:
                    return inner.value or inner
        return found

    def module(self, node: ast.ClassDef) -> ir.IRModule:
        """``@I.ir_module class Module``."""
        if node.bases or node.keywords:
            self.source.fail(node, "a module of TVMScript has no base classes")
        attrs: dict[str, Any] = {}
        infos: dict[str, Any] = {}
        names: dict[str, ast.stmt] = {}
        todo: list[Signature] = []
        for s in node.body:
            match s:
                case ast.FunctionDef():
                    self._declare(s, names, todo)
                case ast.Expr(value=ast.Call() as call):
                    self._module_call(call, attrs, infos)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    value = self.value(s.value)
                    if not isinstance(value, ir.ExternFunc):
                        self.source.fail(s, "a module holds functions only")
                    self._name_once(s, name, names)
                    self.gvars[name] = ir.GlobalVar(name, value.struct_info_)
                    self._functions[name] = value
                case ast.Pass() | ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    self.source.fail(
                        s, "a module holds functions, I.module_attrs and I.module_global_infos"
                    )
        self.scope.names[node.name] = ModuleAlias(node.name, self._global)
        check = self._check_rules and self._wants_check(node)
        for kernel, flags in self._kernels:  # they may call what follows
            dtype = self._result(kernel, flags)
            if dtype is not None:
                told = ir.FuncStructInfo.opaque_func(ret=ir.PrimStructInfo(dtype))
                self.gvars[kernel.name].struct_info_ = told
        for kernel, flags in self._kernels:
            func = self.prim_func(kernel, flags, check)
            self._functions[kernel.name] = func
            known = not isinstance(func.body, tir.Text)
            self.gvars[kernel.name].struct_info_ = kernel_info(func) if known else None
        self.kernels = BlockBuilder()
        for name in names:
            self.kernels._global_names.reserve(name)  # pyright: ignore[reportPrivateUsage]
        for head in todo:
            self._parse(head.node.name)
        ordered = {self.gvars[n]: self._functions[n] for n in names}
        ordered.update(self.kernels.get().items())
        return ir.IRModule(ordered, attrs, infos)

    def _declare(
        self, node: ast.FunctionDef, names: dict[str, ast.stmt], todo: list[Signature]
    ) -> None:
        decorator, flags = self.flags(node)
        self._name_once(node, node.name, names)
        if decorator.name == "T.prim_func":
            self.gvars[node.name] = ir.GlobalVar(node.name)
            self._kernels.append((node, flags))
            return
        if decorator.name != "R.function":
            self.source.fail(node.decorator_list[-1], "expected @R.function or @T.prim_func")
        head = self.signature(node, flags, self.scope)
        self._heads[node.name] = head
        self.gvars[node.name] = ir.GlobalVar(node.name, head.struct_info(), self.source.span(node))
        todo.append(head)

    def _name_once(self, node: ast.stmt, name: str, names: dict[str, ast.stmt]) -> None:
        if name in names:
            self.source.fail(node, f"the module has two functions named {name!r}")
        names[name] = node

    def _module_call(self, call: ast.Call, attrs: dict[str, Any], infos: dict[str, Any]) -> None:
        marker = self.value(call.func)
        targets = {"I.module_attrs": attrs, "I.module_global_infos": infos}
        target = targets.get(marker.name) if isinstance(marker, Marker) else None
        if target is None or len(call.args) != 1:
            self.source.fail(call, "expected I.module_attrs({...}) or I.module_global_infos({...})")
        target.update(self.attributes(call.args[0], marker.name))
        self.infos = infos

    def _global(self, name: str) -> ir.GlobalVar:
        """The function that ``cls.name`` means."""
        gvar = self.gvars.get(name)
        if gvar is None:
            raise AttributeError(
                f"the module has no function {name!r}; it has {', '.join(self.gvars) or 'none'}"
            )
        head = self._heads.get(name)
        untold = head is not None and (head.ret is None or head.bare_tuple)
        if untold and name not in self._functions:
            if name not in self._open and len(self._open) < MAX_FORWARD:
                self._parse(name)
        return gvar

    def _parse(self, name: str) -> None:
        if name in self._functions:
            return
        head = self._heads[name]
        self._open.append(name)
        func = self.function(head, None if head.flags.private else name)
        self._open.pop()
        self._functions[name] = func
        self.gvars[name].struct_info_ = func.struct_info_

    # -- loop-level functions --------------------------------------------------------------------
    def _result(self, node: ast.FunctionDef, flags: Flags) -> str | None:
        """The dtype of what a ``T.prim_func`` returns; None without a result, or an unread one."""
        try:
            return PrimFuncParser(self, node, flags.private).returned()
        except Unread:
            return None

    def prim_func(self, node: ast.FunctionDef, flags: Flags, check: bool) -> tir.PrimFunc:
        """A ``T.prim_func``."""
        return PrimFuncParser(self, node, flags.private).read(check and flags.check_well_formed)

    # -- texts -----------------------------------------------------------------------------------
    def text(self, tree: ast.Module) -> ir.IRModule | ir.Function | tir.PrimFunc:
        """The one definition of a text, its imports and its metadata."""
        found: list[ast.ClassDef | ast.FunctionDef] = []
        for s in tree.body:
            match s:
                case ast.ClassDef():
                    found.append(s)
                case ast.FunctionDef():
                    macro = macro_in_text(self, s)
                    if macro is None:
                        found.append(s)
                    else:
                        self.scope.names[s.name] = macro
                case ast.ImportFrom():
                    self._import(s)
                case ast.Import() | ast.Expr(value=ast.Constant()):
                    pass
                case ast.Assign(targets=[ast.Name(id="metadata")]):
                    self.metadata = self.value(s.value)
                case _:
                    self.source.fail(
                        s, "a text of TVMScript holds one module or function, and its metadata"
                    )
        if not found:
            end = ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
            self.source.fail(end, "the text holds neither a module nor a function")
        if len(found) > 1:
            self.source.fail(found[1], "the text holds more than one definition")
        return self.definition(found[0])

    def _wants_check(self, node: ast.ClassDef) -> bool:
        """Whether the class's decorator leaves the rules of well-formedness on."""
        wanted = True
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            value = self.value(decorator if call is None else call.func)
            if not isinstance(value, Decorator) or value.name not in ("I.ir_module", "R.rewriter"):
                continue
            for k in [] if call is None else call.keywords:
                if k.arg == "s_tir" and value.name == "I.ir_module":
                    continue  # as of T.prim_func
                if k.arg != "check_well_formed" or value.name != "I.ir_module":
                    self.source.fail(k, f"@{value.name} has no option {k.arg!r}")
                wanted = bool(self.value(k.value))
            return wanted
        self.source.fail(node, f"the class {node.name!r} must be decorated with @I.ir_module")

    def _import(self, node: ast.ImportFrom) -> None:
        """``from relax2xla.script import relax as R`` names a namespace; nothing is imported."""
        for alias in node.names:
            room = _ROOMS.get(alias.name)
            if node.module in ("relax2xla.script", "tvm.script") and room is not None:
                self.scope.names[alias.asname or alias.name] = NAMESPACES[room]


__all__ = ["Evaluator", "Parser"]

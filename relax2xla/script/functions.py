"""Functions of TVMScript: statements to bindings.

Each function is built by a BlockBuilder of its own, which brings values into A-normal form; names
of variables are those of the text.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence, Set
from typing import Any

from relax2xla import ir, tir
from relax2xla.builder import BlockBuilder, is_operand
from relax2xla.ir.check import is_impure_call
from relax2xla.ir.lattice import (
    Mismatch,
    definable_vars,
    erase,
    free_symbolic_vars,
    held_shapes,
    unify,
)
from relax2xla.ir.normal import outside_dataflow
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.ir.source_names import SOURCE_NAMES, with_names_of
from relax2xla.ir.struct_info import show
from relax2xla.ir.traits import Foreign
from relax2xla.script.evaluate import Evaluator, MatchCastPair, ModuleAlias, Scope
from relax2xla.script.macros import expand
from relax2xla.script.markers import Decorator, Macro, Marker
from relax2xla.script.signatures import Flags, Signature
from relax2xla.script.tir_names import declared_dtypes

_UNSUPPORTED: dict[type[ast.stmt], str] = {
    ast.For: "a for loop",
    ast.While: "a while loop",
    ast.AugAssign: "an augmented assignment",
    ast.Try: "try",
    ast.Raise: "raise",
    ast.Delete: "del",
    ast.Global: "global",
    ast.ClassDef: "a class",
    ast.AsyncFunctionDef: "async",
    ast.Assert: "assert; use R.assert_op",
    ast.Import: "an import",
    ast.ImportFrom: "an import",
    ast.Match: "match",
}


class FunctionParser(Evaluator):
    """Evaluates signatures and bodies; one for a whole source text."""

    builder: BlockBuilder
    in_dataflow: bool = False
    # Names that the current dataflow block outputs, each with the statement that binds it last.
    outputs: dict[str, ast.stmt] | None = None
    # Symbolic variables that parameters and casts have defined where the parser is.
    defined: Set[tir.Var] = frozenset()
    # Whether an annotation that contradicts its value is a mistake; without the rules of
    # well-formedness (``check_well_formed=False``) it is believed.
    checks_annotations: bool = True
    # How many calls of macros are being expanded.

    def apply(self, node: ast.Call, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """As of any evaluator; a macro's statements enter the function that calls it."""
        if isinstance(func, Macro):
            return expand(self, func, node, args, kwargs)
        return super().apply(node, func, args, kwargs)

    # -- heads -----------------------------------------------------------------------------------
    def flags(self, node: ast.FunctionDef) -> tuple[Any, Flags]:
        """The decorator of a function and its flags.

        It is the innermost: those above it are given what it makes, by Python.
        """
        if not node.decorator_list:
            self.source.fail(node, f"the function {node.name!r} must have a decorator: @R.function")
        decorator = node.decorator_list[-1]
        options: dict[str, Any] = {}
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        kind = self.value(func)
        if not isinstance(kind, Decorator):
            self.source.fail(func, "expected @R.function or @T.prim_func")
        if isinstance(decorator, ast.Call):
            if decorator.args:
                self.source.fail(decorator.args[0], f"options of @{kind.name} are given by keyword")
            for k in decorator.keywords:
                value = self.value(k.value)
                if kind.name == "T.prim_func" and k.arg == "s_tir":
                    continue  # TVM 0.25 says with it that the function has blocks
                if k.arg is None or k.arg not in Flags.__slots__:
                    names = ", ".join(Flags.__slots__)
                    self.source.fail(k, f"@{kind.name} has no option {k.arg!r}; it has {names}")
                if not isinstance(value, bool):
                    self.source.fail(k.value, f"{k.arg} must be True or False")
                options[k.arg] = value
        return kind, Flags(**options)

    def signature(self, node: ast.FunctionDef, flags: Flags, parent: Scope | None) -> Signature:
        """Parameters and declared result. Strings among dimensions define symbolic variables."""
        a = node.args
        for extra in (a.vararg, a.kwarg, *a.kwonlyargs, *a.posonlyargs):
            if extra is not None:
                self.source.fail(extra, "only plain parameters are supported in TVMScript")
        if a.defaults:
            self.source.fail(a.defaults[0], "parameters cannot have defaults in TVMScript")
        scope = Scope(parent, {})
        outer, self.scope = self.scope, scope
        resolve = self.resolve
        self.resolve = self.defining
        self.declared = declared_dtypes(node.body)
        try:
            params: list[ir.Var] = []
            for arg in a.args:
                if arg.annotation is None:
                    self.source.fail(
                        arg, f"the parameter {arg.arg!r} needs an annotation such as R.Tensor"
                    )
                if any(p.name_hint == arg.arg for p in params):
                    self.source.fail(arg, f"two parameters are named {arg.arg!r}")
                info = self.struct_info(arg.annotation)
                var = ir.Var(arg.arg, info, self.source.span(arg))
                # Later annotations may name it, as the shape of a tensor.
                scope.names[arg.arg] = var
                params.append(var)
            ret = None if node.returns is None else self.struct_info(node.returns)
            # `R.Tuple()` is the empty one.
            bare = isinstance(node.returns, ast.Attribute) and ret == ir.TupleStructInfo(())
        finally:
            self.resolve = resolve
            self.declared = {}
            self.scope = outer
        return Signature(node, flags, scope, params, ret, bare_tuple=bare)

    # -- bodies ----------------------------------------------------------------------------------
    def function(self, head: Signature, name: str | None) -> ir.Function:
        """The function; ``name`` is its global symbol, None for a private or a local one."""
        saved = self.scope, self.in_dataflow, self.outputs, getattr(self, "builder", None)
        outside = self.defined
        own = {v for p in head.params for v in definable_vars(p.struct_info)}
        self.defined = outside | own
        self.scope, self.in_dataflow, self.outputs = Scope(head.scope), False, None
        self.builder = BlockBuilder()
        self.builder.specific = False
        for p in head.params:
            self.builder._names.reserve(p.name_hint)  # pyright: ignore[reportPrivateUsage]
        self.builder.begin_scope(head.params)
        try:
            return self._function(head, name, outside)
        finally:
            self.defined = outside
            self.scope, self.in_dataflow, self.outputs, builder = saved
            if builder is not None:
                self.builder = builder

    def _function(self, head: Signature, name: str | None, outside: Set[tir.Var]) -> ir.Function:
        body = head.node.body
        last = body[-1]
        # What a dataflow block returns at its end, it gives to the outside.
        block = last if isinstance(last, ast.With) else None
        last = last if block is None else block.body[-1]
        for s in body[:-1]:
            if isinstance(s, ast.Return):
                self.source.fail(s, "only the last statement of a function may be a return")
        if not isinstance(last, ast.Return) or last.value is None:
            self.source.fail(last, f"the function {head.node.name!r} must end with `return value`")
        for s in body[:-1]:
            if _is_call_of(self, s, "R.func_attr"):
                self._func_attr(head, s)
            else:
                self.statement(s)
        if block is not None:
            self._dataflow(block)
        value = self.expr(last.value)
        span = self.source.span(last)
        with self.builder.source(span):
            result = self.builder.normalize(value)
            if not is_operand(result):
                var = ir.Var(self.builder.get_unique_name("gv"), result.struct_info_, span)
                self.builder.emit_normalized(ir.VarBinding(var, result, span))
                result = var
        blocks = self.builder.end_scope()
        ret = head.ret
        found = result.struct_info_
        if head.bare_tuple and isinstance(found, ir.TupleStructInfo):
            ret = None  # `-> R.Tuple` says that it is a tuple, not of what.
        if ret is not None:
            what = f"the result of {head.node.name!r}"
            self._check(head.node.returns or last, what, ret, found)
        if found is not None and (ret is None or ret.is_base_of(found)):
            # Like TVM: where the body says more than the annotation, the function says it too.
            known = {v for p in head.params for v in definable_vars(p.struct_info)}
            outer = head.scope.parent
            hidden = self.defined - outside  # A cast in the body defines them.
            stated = held_shapes(ret)
            ret = erase(
                found,
                lambda v: v in known or (v not in hidden and _visible(outer, v)),
                # Like TVM: the shape of a parameter only where the annotation says it.
                lambda s: s in stated or _visible(outer, s),
            )
        attrs = dict(head.attrs)
        if head.flags.private and "global_symbol" in attrs:
            self.source.fail(
                head.node,
                f"the function {head.node.name!r} is private and has the attribute global_symbol, "
                "which makes it public; leave one of them out",
            )
        if name is not None:
            attrs.setdefault("global_symbol", name)
        where = self.source.span(head.node)
        told = attrs.pop(SOURCE_NAMES, None)
        seq = ir.SeqExpr(blocks, result)
        made = ir.Function(head.params, seq, ret, head.flags.pure, attrs, where)
        return made if told is None else with_names_of(_with_dims(made, told), told)

    def _func_attr(self, head: Signature, node: ast.stmt) -> None:
        call = node.value if isinstance(node, ast.Expr) else None
        assert isinstance(call, ast.Call)
        if len(call.args) != 1 or call.keywords:
            self.source.fail(call, "R.func_attr takes one dictionary")
        value = self.attributes(call.args[0], "R.func_attr")
        for key in value:
            if key in head.attrs:
                self.source.fail(call, f"the attribute {key!r} is given twice")
        head.attrs.update(value)

    # -- statements ------------------------------------------------------------------------------
    def statement(self, node: ast.stmt) -> None:
        """One statement; what it binds enters the current scope."""
        match node:
            case ast.Assign():
                self._assign(node)
            case ast.AnnAssign():
                self._annotated(node)
            case ast.Expr():
                self._expression(node)
            case ast.With():
                self._dataflow(node)
            case ast.If():
                name, value, info = self._if(node)
                held = self.scope.names.get("_")
                self._bind_var(node, name or "_", value, info)
                if not name:
                    self._forget_nameless(held)
            case ast.FunctionDef():
                self._local_function(node)
            case ast.Pass() | ast.Nonlocal():  # names of the program around are seen anyway
                pass
            case ast.Return():
                self.source.fail(node, "return is supported only at the end of a function")
            case _:
                what = _UNSUPPORTED.get(type(node), type(node).__name__)
                self.source.fail(node, f"{what} is not supported in TVMScript")

    def _assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.source.fail(node.targets[1], "a value is assigned to one target in TVMScript")
        target = node.targets[0]
        if isinstance(target, ast.Tuple | ast.List):
            self._unpack(node, target)
            return
        self._assign_to(node, target, node.value, self.value(node.value), None)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            self.source.fail(node, "a declaration without a value is not supported in TVMScript")
        value = self.value(node.value)
        info = self.struct_info(node.annotation)
        self._assign_to(node, node.target, node.value, value, info)

    def _unpack(self, node: ast.Assign, target: ast.Tuple | ast.List) -> None:
        """``n, m = T.int64(), T.int64()`` and ``a, b = R.split(...)``."""
        value = self.value(node.value)
        if isinstance(value, ir.Expr):
            info = value.struct_info_
            if not isinstance(info, ir.TupleStructInfo) or len(info.fields) != len(target.elts):
                what = "?" if info is None else show(info)
                self.source.fail(
                    node.value, f"cannot unpack {what} into {len(target.elts)} variables"
                )
            if not isinstance(value, ir.Tuple):
                value = self._bind_var(node, self.builder.get_unique_name("lv"), value, None)
            fields: list[Any] = [value[i] for i in range(len(target.elts))]
        elif isinstance(value, tuple | list) and len(value) == len(target.elts):
            fields = list(value)
        else:
            self.source.fail(node.value, f"cannot unpack this into {len(target.elts)} variables")
        for element, item in zip(target.elts, fields, strict=True):
            self._assign_to(node, element, node.value, item, None)

    def _assign_to(
        self,
        node: ast.Assign | ast.AnnAssign,
        target: ast.expr,
        source: ast.expr,
        value: Any,
        info: ir.StructInfo | None,
    ) -> None:
        if not isinstance(target, ast.Name):
            self.source.fail(target, "only names can be assigned to in TVMScript")
        name = target.id
        # `n = T.int64()`, and `n = T.Var("n", "int64")`, which says its name twice.
        made_here = isinstance(value, tir.Var) and value.name in ("", name)
        if made_here and not isinstance(source, ast.Name):
            self._define_symbol(target, value)
        elif isinstance(value, MatchCastPair):
            self._match_cast(node, name, value, info)
        elif _is_relax(value) or info is not None:
            expr = self.as_expr(source, value)
            self._bind_var(node, name, expr, info)
        else:
            # A Python value (a number, a shape, the module's alias) only gets another name.
            self.scope.names[name] = value

    def _define_symbol(self, target: ast.Name, made: tir.Var) -> None:
        """``n = T.int64()``: the symbol of the signature, if it has one of this name."""
        symbols = self.scope.symbols
        known = symbols.get(target.id)
        if known is None:
            symbols[target.id] = known = type(made)(target.id, made.dtype)
        elif known.dtype != made.dtype:
            self.source.fail(
                target, f"the symbolic variable {target.id!r} is {known.dtype}, not {made.dtype}"
            )
        self.scope.names[target.id] = known

    def _is_output(self, node: ast.stmt, name: str) -> bool:
        return self.outputs is not None and self.outputs.get(name) is node

    def _make_var(self, node: ast.stmt, name: str, info: ir.StructInfo | None) -> ir.Var:
        local = self.in_dataflow and not self._is_output(node, name)
        return (ir.DataflowVar if local else ir.Var)(name, info, self.source.statement_span(node))

    def _bind_var(
        self, node: ast.stmt, name: str, value: ir.Expr, info: ir.StructInfo | None
    ) -> ir.Var:
        """Emit ``name = value``; an annotation must hold, and may say less than is known.

        As in TVM one that says less counts for a call of variables alone: other names, tuples,
        their fields, and calls whose operands are computed first, keep what is known of them.
        """
        span = self.source.statement_span(node)
        written, value = value, self._normal(value, span)
        known = value.struct_info_
        if info is not None:
            self._check(node, repr(name), info, known)
            kept = isinstance(value, ir.Var | ir.Tuple | ir.TupleGetItem) or (
                isinstance(value, ir.Call) and value is not written
            )
            if kept and known is not None and info.is_base_of(known):
                info = None
        if info is None and known is not None and self._is_output(node, name):
            known = outside_dataflow(known)
        var = self._make_var(node, name, known if info is None else info)
        self.builder.emit_normalized(ir.VarBinding(var, value, span))
        self.scope.names[name] = var
        return var

    def _check(
        self,
        node: ast.stmt | ast.expr,
        what: str,
        declared: ir.StructInfo,
        known: ir.StructInfo | None,
    ) -> None:
        """As in TVM an annotation may say less or more than is known, but not contradict it."""
        if known is None or not self.checks_annotations or declared.is_base_of(known):
            return
        try:
            unify(declared, known, {})
        except Mismatch as e:
            at = node.annotation if isinstance(node, ast.AnnAssign) else node
            self.source.fail(
                at, f"{what} is declared as {show(declared)}, but it is {show(known)}: it has {e}"
            )

    def _normal(self, value: ir.Expr, span: ir.Span) -> ir.Expr:
        if isinstance(value, ir.If):
            return value
        with self.builder.source(span):
            return self.builder.normalize(value)

    def _match_cast(
        self, node: ast.stmt, name: str, pair: MatchCastPair, info: ir.StructInfo | None
    ) -> None:
        span = self.source.statement_span(node)
        value = self._normal(pair.value, span)
        if not is_operand(value):
            value = self._bind_var(node, self.builder.get_unique_name("lv"), value, None)
        if info is not None:
            self._check(node, repr(name), info, pair.info)
        var = self._make_var(node, name, pair.info if info is None else info)
        self.builder.emit_normalized(ir.MatchCast(var, value, pair.info, span))
        self.defined |= frozenset(definable_vars(pair.info))
        self.scope.names[name] = var

    def _expression(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring, or `...`
        if isinstance(node.value, ast.Call):
            func = self.value(node.value.func)
            if isinstance(func, Marker) and func.name != "R.match_cast":
                places = {
                    "R.func_attr": "a statement of a function's own body",
                    "R.output": "the last statement of a `with R.dataflow():` block",
                }
                where = places.get(func.name, "used in a module's own body")
                self.source.fail(node, f"{func.name} must be {where}")
        value = self.value(node.value)
        held = self.scope.names.get("_")
        if isinstance(value, MatchCastPair):
            self._match_cast(node, "_", value, None)
        elif isinstance(value, ir.Expr) or _is_relax(value):
            self._want_effect(node, value)
            self._bind_var(node, "_", self.as_expr(node.value, value), None)
        else:
            self.source.fail(node, "this statement has no effect in TVMScript")
        self._forget_nameless(held)

    def _forget_nameless(self, held: Any) -> None:
        """The text gives a variable no name, so the one that it calls `_` is still ``held``."""
        self.scope.names.pop("_", None)
        if held is not None:
            self.scope.names["_"] = held

    def _want_effect(self, node: ast.stmt, value: Any) -> None:
        """A value that nobody gets is a mistake, unless computing it does something."""
        op = value.op if isinstance(value, ir.Call) else None
        if not isinstance(op, Op) or op.has(Foreign) or is_impure_call(value):
            return
        if value.struct_info_ != ir.TupleStructInfo(()):
            self.source.fail(node, f"the result of {op!r} is lost; assign it, as in `_ = ...`")

    def _local_function(self, node: ast.FunctionDef) -> None:
        """A function that is bound to its name, or with ``private=True`` stands where this does."""
        decorator, flags = self.flags(node)
        if getattr(decorator, "name", "") != "R.function":
            self.source.fail(
                node.decorator_list[0], "a local function is decorated with @R.function"
            )
        head = self.signature(node, flags, self.scope)
        if flags.private:
            self.scope.names[node.name] = self.function(head, None)
            return
        var = self._make_var(node, node.name, head.struct_info())
        # In its own scope first: the function may call itself.
        self.scope.names[node.name] = var
        func = self.function(head, None)
        var.struct_info_ = func.struct_info_
        self.builder.emit_normalized(ir.VarBinding(var, func, self.source.span(node)))

    # -- dataflow --------------------------------------------------------------------------------
    def _dataflow(self, node: ast.With) -> None:
        call = node.items[0].context_expr
        marker = self.value(call.func) if isinstance(call, ast.Call) else None
        if len(node.items) != 1 or not (isinstance(marker, Marker) and marker.name == "R.dataflow"):
            self.source.fail(call, "`with` is supported as `with R.dataflow():` only")
        if self.in_dataflow:
            self.source.fail(node, "dataflow blocks do not nest")
        bound = {name: s for s in node.body for name in _targets(s)}
        last = node.body[-1]
        # As in TVM, a block without R.output gives nothing to the outside.
        ended = isinstance(last, ast.Return) or _is_call_of(self, last, "R.output")
        names = self._outputs(last, bound) if ended else []
        before = dict(self.scope.names)
        self.outputs = {a.id: bound[a.id] for a in names if a.id in bound}
        self.in_dataflow = True
        try:
            with self.builder.dataflow():
                for s in node.body[:-1] if ended else node.body:
                    self.statement(s)
        finally:
            self.in_dataflow, self.outputs = False, None
        made = self.scope.names
        for a in names:
            if not isinstance(made.get(a.id), ir.Var) or made.get(a.id) is before.get(a.id):
                self.source.fail(a, f"{a.id!r} is not bound in this dataflow block")
        wanted = {a.id for a in names}
        for name in [n for n, v in made.items() if isinstance(v, ir.DataflowVar)]:
            if name not in wanted:
                if name in before:
                    made[name] = before[name]
                else:
                    del made[name]
                    self.scope.ended.add(name)

    def _outputs(self, last: ast.stmt, bound: Mapping[str, ast.stmt]) -> list[ast.Name]:
        """What a dataflow block gives to the outside: of R.output, or used by a return."""
        if isinstance(last, ast.Return) and last.value is not None:
            used = (n for n in ast.walk(last.value) if isinstance(n, ast.Name) and n.id in bound)
            return list({n.id: n for n in used}.values())
        assert isinstance(last, ast.Expr)
        assert isinstance(last.value, ast.Call)
        names: list[ast.Name] = []
        for a in last.value.args:
            if not isinstance(a, ast.Name):
                self.source.fail(a, "R.output takes names of variables")
            names.append(a)
        return names

    # -- branches --------------------------------------------------------------------------------
    def _if(self, node: ast.If) -> tuple[str, ir.Expr, ir.StructInfo | None]:
        """Both branches; the name they bind last, the If, and the annotation they agree on."""
        if self.in_dataflow:
            self.source.fail(node, "if is not supported in a dataflow block")
        if not node.orelse:
            self.source.fail(node, "an if needs an else branch in TVMScript")
        cond = self.expr(node.test)
        info = cond.struct_info_
        if isinstance(info, ir.TensorStructInfo):
            fits = info.dtype in ("bool", "") and info.ndim in (0, -1)
        else:
            fits = isinstance(info, ir.ObjectStructInfo | None) or (
                isinstance(info, ir.PrimStructInfo) and info.dtype == "bool"
            )
        if not fits:
            self.source.fail(
                node.test, f"the condition must be a bool tensor of rank 0; got {show(info)}"
            )
        with self.builder.source(self.source.span(node.test)):
            cond = self.builder.normalize(cond)
        if not is_operand(cond):
            name = self.builder.get_unique_name("cond")
            cond = self._bind_var(node, name, cond, None)
        then_name, then, then_info = self._branch(node.body, "then")
        else_name, other, else_info = self._branch(node.orelse, "else")
        if (then_name or "_") != (else_name or "_"):
            self.source.fail(
                node.orelse[-1],
                f"both branches must end by binding the same variable; one binds {then_name!r}, "
                f"the other {else_name!r}",
            )
        agreed = then_info if then_info == else_info else None
        return then_name, ir.If(cond, then, other, self.source.span(node)), agreed

    def _branch(
        self, body: Sequence[ast.stmt], suffix: str
    ) -> tuple[str, ir.SeqExpr, ir.StructInfo | None]:
        last = body[-1]
        info: ir.StructInfo | None = None
        self.builder.begin_scope()
        with self.inner():
            for s in body[:-1]:
                self.statement(s)
            match last:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())
                ):
                    assert last.value is not None
                    value = self.value(last.value)
                    if isinstance(last, ast.AnnAssign):
                        info = self.struct_info(last.annotation)
                    if isinstance(value, MatchCastPair):
                        self._match_cast(last, f"{name}_{suffix}", value, info)
                        result: ir.Expr = self.scope.names[f"{name}_{suffix}"]
                    else:
                        result = self._branch_value(
                            last, f"{name}_{suffix}", self.as_expr(last.value, value), info
                        )
                case ast.If():
                    name, value, info = self._if(last)
                    result = self._branch_value(last, f"{name}_{suffix}", value, info)
                case ast.Return():
                    self.source.fail(last, "return is supported only at the end of a function")
                case ast.Expr(value=ast.Call() as call):
                    # Nobody reads what both branches give: nothing, and it has no name.
                    name, value = "", self.as_expr(call, self.value(call))
                    if value.struct_info_ != ir.TupleStructInfo(()):
                        self.source.fail(last, "a branch must end by binding a variable")
                    result = self._branch_value(last, f"nothing_{suffix}", value, None)
                case ast.With(
                    body=[*_, ast.Expr(value=ast.Call(args=[ast.Name(id=name) as given]))]
                ) if _is_call_of(self, last.body[-1], "R.output"):
                    self.statement(last)
                    result = self.as_expr(given, self.scope.lookup(name))
                case _:
                    self.source.fail(last, "a branch must end by binding a variable")
        return name, ir.SeqExpr(self.builder.end_scope(), result), info

    def _branch_value(
        self, node: ast.stmt, name: str, value: ir.Expr, info: ir.StructInfo | None
    ) -> ir.Expr:
        """The result of a branch; a variable or a tuple of them needs no binding."""
        value = self._normal(value, self.source.statement_span(node))
        if not is_operand(value):
            return self._bind_var(node, name, value, info)
        if info is not None:
            self._check(node, "the value of this branch", info, value.struct_info_)
        return value


def _is_relax(value: Any) -> bool:
    """Whether a Python value holds Relax expressions; an empty tuple is a Relax tuple."""
    if isinstance(value, ir.Expr):
        return True
    if not isinstance(value, tuple | list):
        return False
    return len(value) == 0 or any(_is_relax(v) for v in value)


def _visible(scope: Scope | None, var: tir.Var | ir.Expr) -> bool:
    """Whether a symbolic variable, or a variable, is that of its name in ``scope``."""
    if isinstance(var, tir.Var):
        return scope is not None and scope.symbol(var.name) is var
    try:
        return isinstance(var, ir.Var) and scope is not None and scope.lookup(var.name_hint) is var
    except KeyError:
        return False


def _is_call_of(parser: Evaluator, node: ast.stmt, name: str) -> bool:
    """Whether a statement calls the marker ``name``, by whatever prefix."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    func = node.value.func
    if not isinstance(func, ast.Attribute) or func.attr != name.split(".")[1]:
        return False
    value = parser.value(func)
    return isinstance(value, Marker) and value.name == name


def _with_dims(func: ir.Function, told: Any) -> ir.Function:
    """``func`` whose dimensions have the source's names, of which a text may have others: T_1."""
    names = told.get("dims", {}) if isinstance(told, Mapping) else {}
    found: dict[tir.Var, tir.Dim] = {}
    for v in (v for p in func.params for v in free_symbolic_vars(p.struct_info)):
        name = names.get(v.name) if isinstance(names, Mapping) else None
        if isinstance(name, str) and name and v not in found:
            found[v] = tir.Var(name, v.dtype)
    return rewrite_function(func, symbolic=found) if found else func


def _targets(node: ast.stmt) -> list[str]:
    """Names that a statement of a dataflow block binds."""
    match node:
        case ast.Assign():
            return [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name):
            return [name]
        case _:
            return []


__all__ = ["Flags", "FunctionParser", "ModuleAlias", "Signature"]

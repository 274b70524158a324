"""The statements of a ``T.prim_func``, and the function they make.

A construct that this parser does not know gives the function a ``Text`` for its body: the program
is carried and printed as it was written, and the reason says what could not be read.
"""

from __future__ import annotations

import ast
import textwrap
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from relax2xla import tir
from relax2xla.script import macros
from relax2xla.script.evaluate import Evaluator, Scope
from relax2xla.script.markers import Macro
from relax2xla.script.prim_func import buffers, forms
from relax2xla.script.prim_func import values as v
from relax2xla.script.prim_func.expressions import Expressions
from relax2xla.script.prim_func.frames import (
    BlockOpener,
    Branch,
    Frame,
    InitOpener,
    Loop,
    Opener,
    nested,
)
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferRegion
from relax2xla.tir.kernel.well_formed import problems


class PrimFuncParser(Expressions):
    """One function; ``outer`` is the parser of the module or text around it."""

    def __init__(self, outer: Evaluator, node: ast.FunctionDef, private: bool) -> None:
        super().__init__(outer.source, outer.outside)
        self.outer = outer
        self.node = node
        self.private = private
        self.scope = Scope(outer.scope, {})
        self.metadata = outer.metadata
        self.infos = outer.infos
        self.gvars = outer.gvars
        self.frames: list[Frame] = []
        self.func = forms.FunctionHead()
        self.line = node.lineno

    def read(self, check: bool) -> tir.PrimFunc:
        """The function; ``check``: it must be well-formed."""
        try:
            made = self._read()
        except v.Unread as e:
            line = getattr(e.node, "lineno", self.line)
            return _as_text(self, self.node, self.private, f"line {line}: {e}")
        except RecursionError:
            why = f"line {self.line}: expressions are nested too deeply"
            return _as_text(self, self.node, self.private, why)

        if check:
            for message, line in problems(made):
                self.source.fail(self._at(line), f"the function is not well-formed: {message}")
        return made

    def _at(self, line: int) -> ast.stmt:
        """The statement of a line; the function where there is none."""
        found = (n for n in ast.walk(self.node) if isinstance(n, ast.stmt) and n.lineno == line)
        return next(found, self.node)

    def _read(self) -> tir.PrimFunc:
        func = self.func
        root = Frame()
        self.frames.append(root)
        arguments = self.node.args
        for extra in (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs):
            if extra is not None:
                self.source.fail(extra, "a T.prim_func takes plain parameters only")
        if arguments.defaults:
            self.source.fail(arguments.defaults[0], "parameters cannot have defaults in TVMScript")
        for arg in (*arguments.posonlyargs, *arguments.args):
            self._parameter(arg)
        ret = self.returned()
        for statement in self.node.body:
            self.statement(statement)
        self.frames.pop()
        attrs = dict(func.attrs)
        if not self.private:
            attrs.setdefault("global_symbol", self.node.name)
        elif "global_symbol" in attrs:
            self.source.fail(self.node, "a private function has no global_symbol")
        body = root.close()
        for message, line in func.opaque():
            self.source.fail(self._at(line), message)
        return func.finished(body, ret, attrs)

    def _parameter(self, arg: ast.arg) -> None:
        if arg.annotation is None:
            self.source.fail(arg, f"the parameter {arg.arg!r} of a T.prim_func needs an annotation")
        self.line = arg.lineno
        made = self._annotation(arg.annotation)
        if any(p.name in (arg.arg, f"{arg.arg}_handle") for p in self.func.params):
            if arg.arg in self.scope.names:
                self.source.fail(arg, f"two parameters are named {arg.arg!r}")
        if isinstance(made, Buffer):
            self._attempt(arg.annotation, partial(forms.check_parameter, made))
            buffers.named(made, arg.arg)
            handle = tir.Var(f"{arg.arg}_handle", "handle")
            self.func.params.append(handle)
            self.func.buffer_map[handle] = made
        elif isinstance(made, tir.Var):
            named(made, arg.arg)
            self.func.params.append(made)
        else:
            self.source.fail(
                arg.annotation, "a parameter is a T.Buffer, a T.handle or a scalar such as T.int64"
            )
        self.scope.names[arg.arg] = made

    def _annotation(self, node: ast.expr) -> Any:
        """A new variable or buffer, of an annotation such as ``T.int32`` or ``T.Buffer(...)``."""
        if isinstance(node, ast.Subscript):  # T.let[T.int32], T.Ptr[T.float32]
            owner = node.value
            if isinstance(owner, ast.Attribute) and owner.attr == "let":
                node = node.slice
            elif isinstance(owner, ast.Attribute) and owner.attr == "Ptr":
                element = node.slice
                return self._attempt(node, lambda: v.handle(self.value(element)))
        value = self.value(node)
        if callable(value) and not isinstance(value, tir.PrimExpr):
            value = self._attempt(node, value)
        return value

    def returned(self) -> str | None:
        """The dtype that the annotation of the result says; None for a function without result."""
        node = self.node.returns
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return None
        return self._attempt(node, lambda: v.dtype_name(self.value(node)))

    # -- what expressions ask for ----------------------------------------------------------------
    def form(self, name: str) -> Any:
        if name == "axis":
            return forms.Axes(self)
        found = forms.FORMS.get(name)
        return None if found is None else partial(found, self)

    def is_form(self, func: Any) -> bool:
        return isinstance(func, types.MethodType) and isinstance(func.__self__, forms.Axes)

    def symbol_named(self, name: str) -> tir.Dim:
        """The variable that a string in a shape names; a signature defines it."""
        try:
            found = self.scope.lookup(name)
        except KeyError:
            if not name.isidentifier():
                raise ValueError(
                    f"{name!r} is no name of a symbolic variable; define those that it has with "
                    f"`n = T.int64()`, and write the size as an expression"
                ) from None
            found = tir.Var(name, self._declared().get(name, "int64"))
            self.scope.names[name] = found
        if not isinstance(found, int | tir.PrimExpr):
            raise TypeError(f"{name!r} is no symbolic variable")
        return tir.as_dim(found)

    def _declared(self) -> dict[str, str]:
        from relax2xla.script.tir_names import declared_dtypes

        return declared_dtypes(self.node.body)

    # -- statements ------------------------------------------------------------------------------
    def statement(self, node: ast.stmt) -> None:
        """Put what a statement says into the innermost frame."""
        handler = self._STATEMENTS.get(type(node))
        if handler is None:
            raise v.Unread(node, f"`{type(node).__name__}` is not read in a T.prim_func")
        self.line = node.lineno
        handler(self, node)

    def body(self, nodes: Sequence[ast.stmt], frame: Frame | None = None) -> s.Stmt:
        """The statements of a loop, a block or a branch in one."""
        made = frame or Frame()
        self.frames.append(made)
        with self.inner():
            for node in nodes:
                self.statement(node)
        self.frames.pop()
        return made.close()

    def add(self, entry: s.Stmt | Opener) -> None:
        """One more statement of the innermost frame."""
        self.frames[-1].entries.append(entry)

    def _no_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            self.source.fail(node.orelse[0], "a loop of a T.prim_func has no `else`")

    def _for(self, node: ast.For) -> None:
        self._no_else(node)
        loop = self.value(node.iter)
        if isinstance(loop, list | tuple | range):
            raise v.Unread(node, "a loop over a sequence of Python is not read")
        if not isinstance(loop, Loop):
            self.source.fail(
                node.iter,
                "a loop runs over range, T.grid, T.serial, T.parallel, T.vectorized, "
                "T.unroll or T.thread_binding",
            )
        with self.inner():
            found: Any = loop.vars[0] if len(loop.vars) == 1 else list(loop.vars)
            self._assign(node.target, found, self._bind_plain)
            body = self.body(node.body, Frame(loop=loop))
        self.add(nested(loop, body, node.lineno))

    def _while(self, node: ast.While) -> None:
        self._no_else(node)
        condition = self._condition(node.test)
        self.add(s.While(condition, self.body(node.body), line=node.lineno))

    def _condition(self, node: ast.expr) -> tir.PrimExpr:
        value = self._attempt(node, lambda: v.number(self.value(node)))
        if value.dtype != "bool":
            raise v.Unread(node, f"a condition of dtype {value.dtype} is not read")
        return value

    def _if(self, node: ast.If) -> None:
        value = self.value(node.test)
        if isinstance(value, bool):
            with self.inner():
                for x in node.body if value else node.orelse:
                    self.statement(x)
            return
        condition = self._condition(node.test)
        then = self.body(node.body)
        other = self.body(node.orelse) if node.orelse else None
        self.add(s.IfThenElse(condition, then, other, line=node.lineno))

    def _assert(self, node: ast.Assert) -> None:
        condition = self.value(node.test)
        message = "" if node.msg is None else self.value(node.msg)
        opener = self._attempt(node, lambda: forms.FORMS["Assert"](self, condition, message))
        self.add(opener)

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            self.source.fail(node, "a return of a T.prim_func gives a scalar")
        value = node.value
        made = self._attempt(value, lambda: v.FUNCTIONS["ret"](self.operand(value)))
        self.add(s.Evaluate(made, line=node.lineno))

    def _with(self, node: ast.With) -> None:
        with self.inner():
            self._items(node, list(node.items))

    def _items(self, node: ast.With, items: list[ast.withitem]) -> None:
        if not items:
            for x in node.body:
                self.statement(x)
            return
        item, *rest = items
        opened = self.value(item.context_expr)
        line = item.context_expr.lineno
        if isinstance(opened, Branch):
            with opened:
                self._items(node, rest)
            return
        inner = Frame(block=opened if isinstance(opened, BlockOpener) else None)
        self.frames.append(inner)
        if item.optional_vars is not None:
            given = opened.value if isinstance(opened, Opener) else None
            self._assign(item.optional_vars, given, self._bind_plain)
        if rest:
            self._items(node, rest)
        else:
            for x in node.body:
                self.statement(x)
        self.frames.pop()
        body = inner.close()
        match opened:
            case Opener():
                self.add(opened.wrap(body))
            case BlockOpener():
                if not opened.realized:
                    raise v.Unread(item.context_expr, "a block that is not realized is not read")
                self.add(self.func.block(opened, body, line))
            case InitOpener():
                block = next(f.block for f in reversed(self.frames) if f.block is not None)
                block.init = body
            case _:
                self.source.fail(
                    item.context_expr, "`with` opens a T.block, T.init, T.attr or the like"
                )

    def _expression(self, node: ast.Expr) -> None:
        value = self._macro_or_value(node.value)
        match value:
            case None | str():
                pass
            case Opener():
                self.add(value)
            case tir.PrimExpr() | bool() | int():
                self.add(s.Evaluate(v.number(value), line=node.lineno))
            case s.BufferStore():
                self.add(replace(value, line=node.lineno))
            case _:
                self.source.fail(node, "this statement has no effect in a T.prim_func")

    # -- assignments -----------------------------------------------------------------------------
    def _assign_statement(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.source.fail(node, "an assignment has one target, not `a = b = c`")
        (target,) = node.targets
        value = self._assigned(node.value)
        if isinstance(target, ast.Subscript):
            self._store(target, value)
        else:
            self._assign(target, value, self._bind)

    def _assigned(self, node: ast.expr) -> Any:
        """The right side: a slice of a buffer is a vector there."""
        if isinstance(node, ast.Subscript):
            return self.operand(node)
        return self._macro_or_value(node)

    def _store(self, target: ast.Subscript, value: object) -> None:
        owner = self.value(target.value)
        index = self.index(target.slice)
        self._attempt(target, lambda: forms.store(self, owner, value, index))

    def _aug_assign(self, node: ast.AugAssign) -> None:
        old, other = self.operand(node.target), self.operand(node.value)
        value = self._attempt(node, lambda: v.binary(node.op, old, other))
        if isinstance(node.target, ast.Subscript):
            self._store(node.target, value)
        else:
            self._assign(node.target, value, self._bind)

    def _ann_assign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            raise v.Unread(node, "a declaration without a value is not read")
        value = self.operand(node.value)
        var = self._annotation(node.annotation)
        if not isinstance(var, tir.Var):
            self.source.fail(node.annotation, "the annotation of a value is a dtype of T")
        if not isinstance(node.target, ast.Name):
            self.source.fail(node.target, "expected a name")
        named(var, node.target.id)
        self.add(self._attempt(node, lambda: forms.let(value, var, node.lineno)))
        self._define(node.target, node.target.id, var)

    def _define(self, node: ast.expr, name: str, value: Any) -> None:
        """A name of the innermost loop, block or branch, which has it once."""
        known = self.scope.names.setdefault(name, value)
        if known is not value:
            self.source.fail(
                node, f"{name!r} is already defined in this scope; give the second another name"
            )

    def _assign(
        self, target: ast.expr, value: Any, bind: Callable[[ast.expr, str, Any], Any]
    ) -> None:
        match target:
            case ast.Name(id=name):
                self._define(target, name, bind(target, name, value))
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                if isinstance(value, forms.MetaVar):
                    held: Any = value.value
                    value = [forms.MetaVar(x) for x in held]
                value = _spread(elts, value)
                if not isinstance(value, list | tuple) or len(value) != len(elts):
                    self.source.fail(target, f"{len(elts)} names for what is no {len(elts)} values")
                for part, one in zip(elts, value, strict=True):
                    named_part = part.value if isinstance(part, ast.Starred) else part
                    self._assign(named_part, one, bind)
            case _:
                raise v.Unread(target, f"an assignment to `{ast.unparse(target)}` is not read")

    def _bind_plain(self, node: ast.expr, name: str, value: Any) -> Any:
        """A name for what a loop or a ``with`` defines."""
        if isinstance(value, list | tuple):
            return [self._bind_plain(node, f"{name}_{i}", x) for i, x in enumerate(value)]
        if isinstance(value, Buffer):
            return buffers.named(value, name)
        if isinstance(value, tir.Var):
            return named(value, name)
        self.source.fail(node, f"nothing is given here that {name!r} could name")

    def _bind(self, node: ast.expr, name: str, value: Any) -> Any:
        """A name for a value: what is computed becomes a statement that holds what follows."""
        match value:
            case forms.MetaVar():
                return value.value
            case list() | tuple():
                return [self._bind(node, f"{name}_{i}", x) for i, x in enumerate(value)]
            case Opener():
                self.add(value)
                return self._bind_plain(node, name, value.value)
            case Buffer():
                return buffers.named(value, name)
            case s.IterVar():
                named(value.var, name)
                return value
            case tir.Var() if not value.name:
                known = self.scope.symbol(name)
                if known is not None and known.dtype == value.dtype and name in self._strings():
                    return known
                return named(value, name)
            case tir.Var() if not self.scope.holds(value):  # such as T.SizeVar("n", "int32")
                object.__setattr__(value, "name", name)
                return value
            case tir.PrimExpr() | bool() | int() | float():
                opener = forms.let(value, None, node.lineno)
                self.add(opener)
                return named(opener.value, name)
            case BufferRegion() | None:
                self.source.fail(node, f"{name!r} is given no value")
            case _:
                raise v.Unread(node, f"{name!r} is given a {type(value).__name__}")

    def _strings(self) -> set[str]:
        """Names that strings in the signature have defined."""
        args = (*self.node.args.posonlyargs, *self.node.args.args)
        return {
            n.value
            for a in args
            for n in ast.walk(a)
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        }

    # -- macros ----------------------------------------------------------------------------------
    def _macro_or_value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call):
            func = self.value(node.func)
            if isinstance(func, Macro):
                return self._expand(node, func)
        return self.value(node)

    def _expand(self, node: ast.Call, macro: Macro) -> Any:
        """The statements of a macro in the place of its call."""
        args = [self.operand(a) for a in node.args]
        kwargs = {k.arg: self.operand(k.value) for k in node.keywords if k.arg is not None}
        with macros.inside(self, macro, node, args, kwargs):
            for statement in macro.node.body:
                self.statement(statement)

    _STATEMENTS: Final[dict[type[ast.stmt], Callable[[Any, Any], None]]] = {
        ast.For: _for,
        ast.While: _while,
        ast.If: _if,
        ast.Assert: _assert,
        ast.Return: _return,
        ast.With: _with,
        ast.Expr: _expression,
        ast.Assign: _assign_statement,
        ast.AugAssign: _aug_assign,
        ast.AnnAssign: _ann_assign,
        ast.Pass: lambda self, node: None,
    }


def _spread(targets: Sequence[ast.expr], value: Any) -> Any:
    """The values of ``a, *b, c``: one for each target, a list for the one with the star."""
    stars = [i for i, t in enumerate(targets) if isinstance(t, ast.Starred)]
    if len(stars) != 1 or not isinstance(value, list | tuple) or len(value) < len(targets) - 1:
        return value
    values: list[Any] = list(value)
    at, after = stars[0], len(targets) - 1 - stars[0]
    return [*values[:at], values[at : len(values) - after], *values[len(values) - after :]]


def named(var: tir.Var, name: str) -> tir.Var:
    """Give a variable that was just made its name."""
    if not var.name:
        object.__setattr__(var, "name", name)
    return var


# -- what is kept as text ------------------------------------------------------------------------
def _as_text(outer: Evaluator, node: ast.FunctionDef, private: bool, why: str) -> tir.PrimFunc:
    """A ``T.prim_func``, kept as the text of its statements.

    A buffer parameter becomes a handle and the ``T.match_buffer`` that it stands for.
    """
    params: list[tir.Var] = []
    lines: list[str] = []
    for arg in node.args.args:
        text = "" if arg.annotation is None else ast.unparse(arg.annotation)
        prefix, _, rest = text.partition(".")
        kind, _, inside = rest.partition("(")
        if kind in ("Buffer", "match_buffer") and inside:
            handle = f"{arg.arg}_handle"
            params.append(tir.Var(handle, "handle"))
            rest = inside if '"' in inside else inside.replace("'", '"')
            lines.append(f"{arg.arg} = {prefix}.match_buffer({handle}, {rest}")
        elif kind:
            params.append(tir.Var(arg.arg, kind))
        else:
            outer.source.fail(arg, "a parameter of a T.prim_func needs an annotation")
    attrs: dict[str, object] = {} if private else {"global_symbol": node.name}
    for statement in node.body:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="func_attr"), args=[held])):
                attrs.update(outer.attributes(held, "T.func_attr"))
            case _:
                lines += _text_of(outer, statement).split("\n")
    returns = "None" if node.returns is None else ast.unparse(node.returns)
    ret = None if returns == "None" else returns.split(".")[-1]
    return tir.PrimFunc(params, s.Text("\n".join(lines), why), ret, None, attrs)


def _text_of(outer: Evaluator, node: ast.stmt) -> str:
    """The lines of a statement without the indentation they share."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    block = outer.source.lines[first - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(block))

"""BlockBuilder: build functions binding by binding, in A-normal form.

Whatever is emitted is normalised on the way in: operands that compute something are bound to
variables first, each expression *object* once, so that a shared sub-expression stays shared.
The walk is iterative; only branches and nested functions cost a few Python frames a level.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from relax2xla import tir
from relax2xla.errors import BuilderError
from relax2xla.ir.base import Span
from relax2xla.ir.bind import as_value
from relax2xla.ir.check import LEAVES, is_operand
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.deep import nests
from relax2xla.ir.equal import structural_equal, structural_hash
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import definable_vars, erase, infer_call
from relax2xla.ir.module import BaseFunc, IRModule
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import bindings_of, children, post_order_deep, rewrite_function
from relax2xla.ir.struct_info import ShapeStructInfo, StructInfo

OPERANDS = (*LEAVES, Tuple)
_BUILDERS: ContextVar[tuple[BlockBuilder, ...]] = ContextVar("relax2xla_builders", default=())


class NameSupply:
    """Unique names as TVM makes them: ``lv``, ``lv1``, ``lv2``; dots become underscores."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def reserve(self, name: str) -> None:
        """Never give out ``name``."""
        self._next.setdefault(name, 0)

    def fresh(self, prefix: str) -> str:
        """``prefix``, with the lowest number after it that makes it new."""
        prefix = prefix.replace(".", "_") or "v"
        if prefix not in self._next:
            self._next[prefix] = 0
            return prefix
        count = self._next[prefix] + 1
        while (name := f"{prefix}{count}") in self._next:
            count += 1
        self._next[prefix] = count
        self._next[name] = 0
        return name


class _Frame:
    """One sequence under construction: a function's body or a branch.

    ``memo`` maps each expression object that was bound here to its variable; ``parent`` is the
    frame whose bindings are visible too (None for a function). ``local`` lists the keys of
    ``memo`` that end with the dataflow block.
    """

    __slots__ = ("bindings", "blocks", "dataflow", "local", "memo", "parent")

    def __init__(self, parent: _Frame | None) -> None:
        self.parent = parent
        self.blocks: list[BindingBlock] = []
        self.bindings: list[Binding] = []
        self.dataflow = False
        self.memo: dict[Expr, Expr] = {}
        self.local: list[Expr] = []

    def known(self, node: Expr) -> Expr | None:
        """The variable that ``node`` is bound to, if it is."""
        frame: _Frame | None = self
        while frame is not None:
            found = frame.memo.get(node)
            if found is not None:
                return found
            frame = frame.parent
        return None

    def begin(self, dataflow: bool) -> None:
        """Close the current block and open another."""
        if self.bindings:
            block = DataflowBlock if self.dataflow else BindingBlock
            self.blocks.append(block(self.bindings))
        for node in self.local:
            self.memo.pop(node, None)
        self.bindings, self.local, self.dataflow = [], [], dataflow

    def close(self) -> list[BindingBlock]:
        """Close the current block; gives all blocks."""
        self.begin(dataflow=False)
        return self.blocks


class _Scope:
    """A function under construction."""

    __slots__ = ("attrs", "done", "frame", "name", "params", "pure")

    def __init__(
        self, name: str, params: Sequence[Var] | None, attrs: Mapping[str, Any], pure: bool
    ) -> None:
        self.name, self.params, self.attrs, self.pure = name, params, attrs, pure
        self.frame = _Frame(None)
        self.done = False


class BlockBuilder:
    """Builds an IRModule function by function and binding by binding.

    ::

        bb = BlockBuilder()
        with bb.function("main", [x, w]):
            with bb.dataflow():
                h = bb.emit(op.matmul(x, w))
                y = bb.emit_output(op.nn.relu(h))
            bb.emit_func_output(y)
        mod = bb.get()

    ``mod``: functions to start with. Used out of order it raises ``BuilderError``.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self._mod = IRModule() if mod is None else mod.clone()
        self._names = NameSupply()
        self._global_names = NameSupply()
        self._by_content: dict[object, list[GlobalVar]] | None = None
        for gvar in self._mod:
            self._global_names.reserve(gvar.name_hint)
        self._scopes: list[_Scope] = []
        self._frames: list[_Frame] = []
        self._values: dict[Var, Expr] = {}
        self._params: set[Var] = set()  # of local functions
        self._source: Span | None = None

    # -- scopes ------------------------------------------------------------------------------
    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function scope is open, innermost first; None outside."""
        stack = _BUILDERS.get()
        return stack[-1] if stack else None

    @contextmanager
    def function(
        self,
        name: str,
        params: Var | Tuple | Sequence[Var] | None = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> Generator[BlockBuilder]:
        """Scope of a function; it ends with exactly one ``emit_func_output``.

        ``params`` None: they are given to ``emit_func_output``. A function that is not
        ``private`` gets the attribute ``global_symbol``. Raises TypeError where a parameter is no
        Var.
        """
        scope = _Scope(name, _as_params(params), dict(attrs or {}), pure)
        if not private:
            scope.attrs = {**scope.attrs, "global_symbol": name}
        frames, self._frames = self._frames, [scope.frame]
        self._scopes.append(scope)
        token = _BUILDERS.set((*_BUILDERS.get(), self))
        try:
            yield self
        finally:
            _BUILDERS.reset(token)
            self._scopes.pop()
            self._frames = frames
        if not scope.done:
            raise BuilderError(f"the function {name!r} ends without emit_func_output")

    @contextmanager
    def dataflow(self) -> Generator[BlockBuilder]:
        """Scope of a dataflow block: pure bindings; ``emit_output`` makes values visible after."""
        frame = self._frame("dataflow()")
        if frame.dataflow:
            raise BuilderError("a dataflow block is open already; they do not nest")
        frame.begin(dataflow=True)
        try:
            yield self
        finally:
            frame.begin(dataflow=False)

    @contextmanager
    def source(self, span: Span | str | None) -> Generator[BlockBuilder]:
        """Give every binding emitted inside this span, unless its expression has its own."""
        before = self._source
        self._source = Span(span) if isinstance(span, str) else span
        try:
            yield self
        finally:
            self._source = before

    @contextmanager
    def testing_scope(self, def_vars: Sequence[tir.Var]) -> Generator[BlockBuilder]:
        """A dataflow block outside of any function, where ``def_vars`` are defined (for tests)."""
        if any(not isinstance(v, tir.Var) for v in def_vars):
            raise ValueError("testing_scope takes symbolic variables (tir.Var) only")
        self.begin_scope([Var("sparam", ShapeStructInfo(def_vars))])
        self._frames[-1].begin(dataflow=True)
        try:
            yield self
        finally:
            self.end_scope()

    def begin_scope(self, params: Sequence[Var] | None = None) -> None:
        """Open a scope with a sequence of its own.

        With ``params`` it is a function's: nothing that was bound outside is reused inside.
        Without, a branch's.
        """
        for p in params or ():
            if not isinstance(p, Var):
                raise TypeError(f"begin_scope: a parameter must be a Var; got {type(p).__name__}")
        shared = params is None and self._frames
        self._frames.append(_Frame(self._frames[-1] if shared else None))

    def end_scope(self) -> list[BindingBlock]:
        """Close the scope that ``begin_scope`` opened; gives the blocks built in it."""
        return self._pop("end_scope").close()

    def begin_block(self, dataflow: bool) -> None:
        """Open a block by itself, to be taken with ``end_block`` (for rewriters)."""
        frame = _Frame(self._frames[-1] if self._frames else None)
        frame.begin(dataflow)
        self._frames.append(frame)

    def end_block(self) -> BindingBlock:
        """Close and give the block that ``begin_block`` opened.

        Blocks that had to come before it (a spliced dataflow block) go to the scope around.
        """
        frame = self._pop("end_block")
        last = (DataflowBlock if frame.dataflow else BindingBlock)(frame.bindings)
        frame.bindings = []
        before = frame.close()
        if self._frames:
            self._frames[-1].blocks.extend(before)
            self._frames[-1].memo.update(frame.memo)
        return last

    def _pop(self, what: str) -> _Frame:
        if len(self._frames) <= (1 if self._scopes else 0):
            raise BuilderError(f"{what} without its begin")
        return self._frames.pop()

    def current_block_is_dataflow(self) -> bool:
        """Whether the block under construction is a dataflow block."""
        return self._frame("current_block_is_dataflow").dataflow

    def _frame(self, what: str = "emit") -> _Frame:
        if self._scopes and self._scopes[-1].done and len(self._frames) == 1:
            raise BuilderError(
                f"{what} after emit_func_output: the function {self._scopes[-1].name!r} is done"
            )
        if not self._frames:
            raise BuilderError(
                f"{what} outside of a function; open one with `with bb.function(name, params):`"
            )
        return self._frames[-1]

    # -- emitting ----------------------------------------------------------------------------
    def emit(self, expr: Any, name_hint: str = "", *, span: Span | None = None) -> Var:
        """Bind ``expr`` to a new variable: a DataflowVar inside a dataflow block, else a Var.

        Python tuples and lists become Tuples. The binding's span is ``span``, else that of the
        expression, else that of the enclosing ``source``.
        """
        return self._emit(as_value(expr), name_hint, False, span)

    def emit_output(self, output: Any, name_hint: str = "", *, span: Span | None = None) -> Var:
        """Bind a value that is visible after the dataflow block."""
        if not self._frame("emit_output").dataflow:
            raise BuilderError("emit_output outside of a dataflow block; use emit there")
        return self._emit(as_value(output), name_hint, True, span)

    def match_cast(
        self,
        value: Expr,
        struct_info: StructInfo,
        name_hint: str = "",
        *,
        span: Span | None = None,
    ) -> Var:
        """Bind ``value``, checked at run time against ``struct_info`` (which may bind symbols)."""
        frame = self._frame("match_cast")
        value = as_value(value)
        span = span or value.span or self._source
        value = self._operand(value, span)
        var = self._new_var(name_hint, struct_info, frame.dataflow, span)
        frame.bindings.append(MatchCast(var, value, struct_info, span))
        self._values[var] = value
        return var

    def emit_normalized(self, binding: Binding) -> None:
        """Append a binding that is in A-normal form already, with its own variable."""
        if not isinstance(binding, VarBinding | MatchCast):
            raise TypeError(f"emit_normalized takes a binding; got {type(binding).__name__}")
        frame = self._frame("emit_normalized")
        if isinstance(binding.var, DataflowVar) and not frame.dataflow:
            raise BuilderError(
                f"the DataflowVar {binding.var.name_hint} is bound outside of a dataflow block"
            )
        self._names.reserve(binding.var.name_hint)
        frame.bindings.append(binding)
        self._values[binding.var] = binding.value

    def emit_func_output(
        self, output: Any, params: Var | Tuple | Sequence[Var] | None = None
    ) -> GlobalVar:
        """End the function with its result and add it to the module; gives its GlobalVar."""
        frame = self._frame("emit_func_output")
        if not self._scopes or len(self._frames) != 1:
            raise BuilderError("emit_func_output outside of a function's own scope")
        scope = self._scopes[-1]
        if frame.dataflow:
            raise BuilderError(
                "emit_func_output inside a dataflow block; emit_output the result and close it"
            )
        if (scope.params is None) == (params is None):
            when = "neither here nor in" if params is None else "both here and in"
            raise BuilderError(f"parameters of {scope.name!r} are given {when} bb.function(...)")
        inputs = _as_params(params) if scope.params is None else scope.params
        assert inputs is not None
        body = self._operand(as_value(output), self._source)
        for leaf in _leaves(body):
            if isinstance(leaf, DataflowVar):
                raise BuilderError(
                    f"{leaf.name_hint} is visible only in its dataflow block; bind the result "
                    "with emit_output"
                )
        # The caller knows only the symbols that the arguments define.
        defined = {v for p in inputs for v in definable_vars(p.struct_info)}
        func = Function(
            inputs,
            SeqExpr(frame.close(), body),
            erase(body.struct_info, defined.__contains__),
            scope.pure,
            scope.attrs,
        )
        scope.done = True
        return self.add_func(func, scope.name)

    def lookup_binding(self, var: Var) -> Expr | None:
        """The value that ``var`` was bound to by this builder, or None."""
        return self._values.get(var)

    def get_unique_name(self, name_prefix: str) -> str:
        """A variable name that this builder has not used."""
        return self._names.fresh(name_prefix)

    def _new_var(
        self, hint: str, info: StructInfo, dataflow: bool, span: Span | None
    ) -> Var | DataflowVar:
        name = self._names.fresh(hint or ("lv" if dataflow else "gv"))
        return (DataflowVar if dataflow else Var)(name, info, span)

    def _emit(self, expr: Expr, hint: str, output: bool, span: Span | None) -> Var:
        self._frame()
        span = span or expr.span or self._source
        return self._bind(expr, self._value(expr, span), hint, output, span)

    def _bind(
        self, origin: Expr, value: Expr, hint: str, output: bool, span: Span | None
    ) -> Var | DataflowVar:
        """Bind ``value``, the normal form of ``origin``, and remember it."""
        frame = self._frames[-1]
        dataflow = frame.dataflow and not output
        if value.struct_info_ is None and isinstance(value, Call):
            value.struct_info_ = infer_call(value)  # a callee may have been declared since
        var = self._new_var(hint, value.struct_info, dataflow, span)
        frame.bindings.append(VarBinding(var, value, span))
        self._values[var] = value
        if not isinstance(origin, LEAVES):
            frame.memo[origin] = var
            if dataflow:
                frame.local.append(origin)
        return var

    # -- normalising -------------------------------------------------------------------------
    def normalize(self, expr: Expr) -> Expr:
        """``expr`` in A-normal form; itself if it is so already.

        A Function or SeqExpr is normalised inside. Of any other expression the operands that
        compute something are emitted into the current block.
        """
        if isinstance(expr, Function):
            return self._function(expr)
        if isinstance(expr, SeqExpr):
            return self._seq(expr)
        if is_operand(expr):
            return expr
        self._frame("normalize")
        return self._value(expr, expr.span or self._source)

    def in_scope(self) -> bool:
        """Whether a scope is open, so that bindings can be emitted."""
        return bool(self._frames)

    def emit_block(self, block: BindingBlock) -> None:
        """Append a whole block that is in A-normal form already."""
        frame = self._frame("emit_block")
        if frame.dataflow:
            raise BuilderError("emit_block inside a dataflow block; blocks do not nest")
        frame.begin(dataflow=False)
        frame.blocks.append(block)
        self._values.update((b.var, b.value) for b in block.bindings)

    def as_operand(self, expr: Expr) -> Expr:
        """``expr`` if it is a leaf or a tuple of leaves, else the variable it is bound to here."""
        self._frame("as_operand")
        return self._operand(expr, expr.span or self._source)

    def splice(self, seq: SeqExpr) -> Expr:
        """Emit the bindings of ``seq`` here; gives the normal form of its result."""
        self._frame("splice")
        return self._splice(seq, seq.span or self._source)

    def _value(self, root: Expr, span: Span | None) -> Expr:
        """``root`` with operands only below it, what they compute emitted before it."""
        if isinstance(root, LEAVES):
            return root
        if isinstance(root, Call) and isinstance(root.op, LEAVES):
            # The common case first: nothing to do.
            if all(isinstance(a, LEAVES) for a in root.args):
                return root
        done: dict[int, Expr] = {}
        stack: list[tuple[Expr, Span | None, bool]] = [(root, span, False)]
        while stack:
            node, at, ready = stack.pop()
            if id(node) in done:
                continue
            if isinstance(node, LEAVES):
                done[id(node)] = node
                continue
            known = None if node is root else self._frames[-1].known(node)
            if known is not None:
                done[id(node)] = known
                continue
            kids = children(node)
            if kids and not ready:
                stack.append((node, at, True))
                stack.extend((k, k.span or at, False) for k in reversed(kids))
                continue
            new = self._rebuilt(node, [done[id(k)] for k in kids], at)
            if node is not root and not isinstance(new, OPERANDS):
                new = self._bind(node, new, "", False, at)
            done[id(node)] = new
        return done[id(root)]

    def _operand(self, node: Expr, span: Span | None) -> Expr:
        """``node`` as an operand: a leaf, a tuple of leaves, or the variable it is bound to."""
        if is_operand(node):
            return node
        known = self._frames[-1].known(node)
        if known is not None:
            return known
        value = self._value(node, node.span or span)
        if isinstance(value, OPERANDS):
            return value
        return self._bind(node, value, "", False, node.span or span)

    def _rebuilt(self, node: Expr, new: Sequence[Expr], span: Span | None) -> Expr:
        """``node`` over other operands. They hold the same values, so nothing is inferred again."""
        old = children(node)
        same = all(a is b for a, b in zip(old, new, strict=True))
        match node:
            case Call() if not same:
                op, args = (node.op, new) if isinstance(node.op, Op) else (new[0], new[1:])
                known = node.struct_info_
                return Call(op, args, node.attrs, node.sinfo_args, node.span, struct_info=known)
            case Tuple() if not same:
                return Tuple(new, node.span)
            case TupleGetItem() if not same:
                return TupleGetItem(new[0], node.index, node.span)
            case If():
                yes, no = self._branch(node.true_branch), self._branch(node.false_branch)
                if same and yes is node.true_branch and no is node.false_branch:
                    return node
                return If(new[0], yes, no, node.span)
            case Function():
                return self._function(node)
            case SeqExpr():
                return self._splice(node, span)
            case _:
                return node

    def _branch(self, seq: SeqExpr) -> SeqExpr:
        """A branch: a sequence that sees what is bound around it."""
        new = self._seq(seq, self._frames[-1])
        inner = {
            v
            for block in new.blocks
            for b in block.bindings
            if isinstance(b, MatchCast)
            for v in definable_vars(b.struct_info)
        }
        if inner and new.struct_info_ is not None:
            outside = erase(new.struct_info_, lambda v: v not in inner)
            if outside != new.struct_info_:
                new = SeqExpr(new.blocks, new.body, new.span)
                new.struct_info_ = outside
        return new

    @nests
    def _seq(self, seq: SeqExpr, parent: _Frame | None = None) -> SeqExpr:
        if self._claim(seq):
            return seq
        self._frames.append(_Frame(parent))
        try:
            body = self._operand(self._splice(seq, seq.span), seq.span)
            return SeqExpr(self._frames[-1].close(), body, seq.span)
        finally:
            self._frames.pop()

    @nests
    def _function(self, func: Function) -> Function:
        if self._is_known(func):
            func = copy_with_new_vars(func, symbolic=False)
        self._params.update(func.params)
        body = self._seq(func.body)
        return func if body is func.body else func.replace(body=body)

    def _claim(self, seq: SeqExpr) -> bool:
        """Whether ``seq`` can stay as it is: normal, and its variables are bound nowhere else."""
        if not is_normal(seq) or self._is_known(seq):
            return False
        for node in post_order_deep(seq):
            if isinstance(node, SeqExpr):
                self._values.update((b.var, b.value) for b in bindings_of(node))
            elif isinstance(node, Function):
                self._params.update(node.params)
        return True

    def _is_known(self, root: Expr) -> bool:
        """Whether a variable that is defined in ``root`` has been defined here before."""
        for node in post_order_deep(root):
            if isinstance(node, SeqExpr):
                if any(b.var in self._values for b in bindings_of(node)):
                    return True
            elif isinstance(node, Function) and not self._params.isdisjoint(node.params):
                return True
        return False

    @nests
    def _splice(self, seq: SeqExpr, span: Span | None) -> Expr:
        """Emit the bindings of ``seq`` into the current sequence; gives its body's normal form."""
        if self._is_known(seq):
            seq = copy_with_new_vars(seq, symbolic=False)
        frame = self._frames[-1]
        for block in seq.blocks:
            own = isinstance(block, DataflowBlock) and not frame.dataflow
            if own:
                frame.begin(dataflow=True)
            for b in block.bindings:
                at = b.span or self._source or span
                if isinstance(b, MatchCast):
                    value = self._operand(b.value, at)
                    same = value is b.value
                    new = b if same else MatchCast(b.var, value, b.struct_info, b.span)
                else:
                    value = self._value(b.value, at)
                    new = b if value is b.value else VarBinding(b.var, value, b.span)
                self.emit_normalized(new)
            if own:
                frame.begin(dataflow=False)
        return self._value(seq.body, seq.body.span or span)

    # -- the module --------------------------------------------------------------------------
    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Add a function under ``func_name`` or, where that is taken, the name with a number.

        A function that the module holds already (structurally equal) is not added again: the
        GlobalVar that names it comes back.
        """
        if self._by_content is None:
            self._by_content = {}
            for gvar, known in self._mod.items():
                self._by_content.setdefault(_content_key(known), []).append(gvar)
        same_key = self._by_content.setdefault(_content_key(func), [])
        for gvar in same_key:
            if gvar in self._mod and structural_equal(self._mod[gvar], func):
                return gvar
        gvar = GlobalVar(self._global_names.fresh(func_name))
        self._mod[gvar] = func
        same_key.append(gvar)
        return gvar

    def update_func(self, gv: GlobalVar, updated_func: BaseFunc) -> None:
        """Replace the function that ``gv`` names."""
        self._mod[gv] = updated_func
        self._by_content = None

    def get(self) -> IRModule:
        """The module as it is now; what is added later does not change it."""
        return self._mod.clone()

    def finalize(self) -> IRModule:
        """The module with every public function under its ``global_symbol``.

        A private function that stands in the way is renamed. GlobalVars that were renamed are new
        objects, so this is the last call to a builder.
        """
        public: dict[str, GlobalVar] = {}
        for gvar, func in self._mod.items():
            symbol = _symbol(func)
            if symbol is None:
                continue
            if symbol in public:
                raise BuilderError(f"two functions have the global_symbol {symbol!r}")
            public[symbol] = gvar
        names = NameSupply()
        for symbol in public:
            names.reserve(symbol)
        renamed: dict[Expr, Expr] = {}
        for gvar, func in self._mod.items():
            name = _symbol(func) or names.fresh(gvar.name_hint)
            if name != gvar.name_hint:
                renamed[gvar] = GlobalVar(name, gvar.struct_info_, gvar.span)
        if not renamed:
            return self.get()
        functions: dict[Any, Any] = {
            renamed.get(gvar, gvar): rewrite_function(func, rule=renamed.get)
            if isinstance(func, Function)
            else func
            for gvar, func in self._mod.items()
        }
        return self._mod.replace(functions)


def _as_params(params: Var | Tuple | Sequence[Var] | None) -> Sequence[Var] | None:
    if params is None:
        return None
    given = [params] if isinstance(params, Var) else params
    checked: list[Var] = []
    for p in given.fields if isinstance(given, Tuple) else given:
        if not isinstance(p, Var):
            raise TypeError(f"each parameter of a function must be a Var; got {type(p).__name__}")
        checked.append(p)
    return checked


def _leaves(operand: Expr) -> Iterator[Expr]:
    stack = [operand]
    while stack:
        node = stack.pop()
        if isinstance(node, Tuple):
            stack.extend(node.fields)
        else:
            yield node


def is_normal(root: Expr) -> bool:
    """Whether an expression and all that is inside it is in A-normal form."""
    for node in post_order_deep(root):
        if isinstance(node, SeqExpr):
            if not is_operand(node.body):
                return False
            for block in node.blocks:
                for b in block.bindings:
                    if isinstance(b.value, SeqExpr):
                        return False
                    if isinstance(b, MatchCast) and not is_operand(b.value):
                        return False
        elif not all(map(is_operand, children(node))):
            return False
    return True


def _symbol(func: BaseFunc) -> str | None:
    return None if isinstance(func, ExternFunc) else func.attrs.get("global_symbol")


def _content_key(func: BaseFunc) -> object:
    """Equal for structurally equal functions. A public symbol tells most functions apart."""
    symbol = _symbol(func)
    return structural_hash(func) if symbol is None else symbol

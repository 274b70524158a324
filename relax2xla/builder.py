"""BlockBuilder: build functions binding by binding, in A-normal form.

Whatever is emitted is normalised on the way in, see ``relax2xla.ir.normal``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from relax2xla import tir
from relax2xla.errors import BuilderError, StructInfoError
from relax2xla.ir.base import Span
from relax2xla.ir.bind import as_value
from relax2xla.ir.check import is_operand as is_operand
from relax2xla.ir.equal import structural_equal, structural_hash
from relax2xla.ir.expr import (
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
)
from relax2xla.ir.lattice import Mismatch, free_symbolic_vars, result_info, unify
from relax2xla.ir.module import BaseFunc, IRModule
from relax2xla.ir.normal import Frame, NameSupply, Normalizer, specific, with_info
from relax2xla.ir.normal import is_normal as is_normal
from relax2xla.ir.op import Op
from relax2xla.ir.rename import rename_functions
from relax2xla.ir.rewrite import children
from relax2xla.ir.struct_info import FuncStructInfo, ShapeStructInfo, StructInfo, show
from relax2xla.op.intrinsic import call_tir, call_tir_with_grad

_BUILDERS: ContextVar[tuple[BlockBuilder, ...]] = ContextVar("relax2xla_builders", default=())


class _Scope:
    """A function under construction."""

    __slots__ = ("attrs", "done", "frame", "name", "params", "pure")

    def __init__(
        self, name: str, params: Sequence[Var] | None, attrs: Mapping[str, Any], pure: bool
    ) -> None:
        self.name, self.params, self.attrs, self.pure = name, params, attrs, pure
        self.frame = Frame(None)
        self.done = False


class BlockBuilder(Normalizer):
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
        super().__init__()
        self._mod = IRModule() if mod is None else mod.clone()
        self._global_names = NameSupply()
        self._by_content: dict[object, list[GlobalVar]] | None = None
        for gvar in self._mod:
            self._global_names.reserve(gvar.name_hint)
        self._scopes: list[_Scope] = []
        # What emit_output made of variables of dataflow blocks.
        self._outputs: dict[DataflowVar, Var] = {}

    # -- scopes ------------------------------------------------------------------------------
    def __repr__(self) -> str:
        names = ", ".join(g.name_hint for g in self._mod) or "no functions"
        return f"<{type(self).__name__} of {names}{', inside of one' if self._scopes else ''}>"

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function scope is open, innermost first; None outside."""
        stack = _BUILDERS.get()
        return stack[-1] if stack else None

    def function(
        self,
        name: str,
        params: Var | Tuple | Sequence[Var] | None = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> AbstractContextManager[BlockBuilder]:
        """Scope of a function; it ends with exactly one ``emit_func_output``.

        ``params`` None: they are given to ``emit_func_output``. A function that is not
        ``private`` gets the attribute ``global_symbol``. Raises TypeError where a parameter is no
        Var.
        """
        scope = _Scope(name, _as_params(params), dict(attrs or {}), pure)
        if not private:
            scope.attrs = {**scope.attrs, "global_symbol": name}
        return self._function_scope(scope)

    @contextmanager
    def _function_scope(self, scope: _Scope) -> Generator[BlockBuilder]:
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
            raise BuilderError(f"the function {scope.name!r} ends without emit_func_output")

    @contextmanager
    def dataflow(self) -> Generator[BlockBuilder]:
        """Scope of a dataflow block: pure bindings; ``emit_output`` makes values visible after.

        As in TVM, a scope inside another one goes on with the same block, and the end of the inner
        one ends the block for both.
        """
        frame = self._frame("dataflow()")
        if not frame.dataflow:
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

    def testing_scope(self, def_vars: Sequence[tir.Var]) -> AbstractContextManager[BlockBuilder]:
        """A dataflow block outside of any function, where ``def_vars`` are defined (for tests).

        Raises ValueError where one of them is no symbolic variable.
        """
        if any(not isinstance(v, tir.Var) for v in def_vars):
            raise ValueError("testing_scope takes symbolic variables (tir.Var) only")
        return self._testing_scope(Var("sparam", ShapeStructInfo(def_vars)))

    @contextmanager
    def _testing_scope(self, param: Var) -> Generator[BlockBuilder]:
        self.begin_scope([param])
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
        self._frames.append(Frame(self._frames[-1] if shared else None))

    def end_scope(self) -> list[BindingBlock]:
        """Close the scope that ``begin_scope`` opened; gives the blocks built in it."""
        return self._pop("end_scope").close()

    def begin_block(self, dataflow: bool) -> None:
        """Open a block by itself, to be taken with ``end_block`` (for rewriters)."""
        frame = Frame(self._frames[-1] if self._frames else None)
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

    def _begin_binding_block(self) -> None:
        """:meth:`begin_block`, by the name that rewriters have for it in TVM."""
        self.begin_block(False)

    def _begin_dataflow_block(self) -> None:
        """:meth:`begin_block` of a dataflow block."""
        self.begin_block(True)

    def _end_block(self) -> BindingBlock:
        """:meth:`end_block`."""
        return self.end_block()

    def _pop(self, what: str) -> Frame:
        if len(self._frames) <= (1 if self._scopes else 0):
            raise BuilderError(f"{what} without its begin")
        return self._frames.pop()

    def current_block_is_dataflow(self) -> bool:
        """Whether the block under construction is a dataflow block."""
        return self._frame("current_block_is_dataflow").dataflow

    def _frame(self, what: str = "emit") -> Frame:
        if self._scopes and self._scopes[-1].done and len(self._frames) == 1:
            raise BuilderError(
                f"{what} after emit_func_output: the function {self._scopes[-1].name!r} is done"
            )
        return super()._frame(what)

    # -- emitting ----------------------------------------------------------------------------
    def emit(self, expr: Any, name_hint: str = "", *, span: Span | None = None) -> Var:
        """Bind ``expr`` to a new variable: a DataflowVar inside a dataflow block, else a Var.

        Python tuples and lists become Tuples, None ``R.null_value()``, numbers and arrays
        constants. The binding's span is ``span``, else that of the
        expression, else that of the enclosing ``source``.
        """
        return self._emit(_as_value(expr), name_hint, False, span)

    def emit_output(self, output: Any, name_hint: str = "", *, span: Span | None = None) -> Var:
        """Bind a value that is visible after the dataflow block."""
        if not self._frame("emit_output").dataflow:
            raise BuilderError("emit_output outside of a dataflow block; use emit there")
        value = _as_value(output)
        made = self._emit(value, name_hint, True, span)
        if isinstance(value, DataflowVar):
            self._outputs[value] = made
        return made

    def match_cast(
        self,
        value: Expr,
        struct_info: StructInfo,
        name_hint: str = "",
        *,
        span: Span | None = None,
    ) -> Var:
        """Bind ``value``, checked at run time against ``struct_info`` (which may bind symbols).

        Raises StructInfoError where no value of ``value`` could ever pass: another kind, rank,
        dtype, or known dimension.
        """
        frame = self._frame("match_cast")
        value = _as_value(value)
        span = span or value.span or self._source
        value = self._operand(value, span)
        _check_cast(value, struct_info)
        var = self._new_var(name_hint, struct_info, frame.dataflow, span)
        frame.bindings.append(MatchCast(var, value, struct_info, span))
        self._values[var] = value
        return var

    def _seen_outside(self, value: Expr) -> Expr:
        """``value`` with outputs of dataflow blocks for the variables that they were made of."""
        if isinstance(value, Tuple):
            fields = [self._seen_outside(f) for f in value.fields]
            same = all(a is b for a, b in zip(fields, value.fields, strict=True))
            return value if same else Tuple(fields, value.span)
        return self._outputs.get(value, value) if isinstance(value, DataflowVar) else value

    def emit_func_output(
        self, output: Any, params: Var | Tuple | Sequence[Var] | None = None
    ) -> GlobalVar:
        """End the function with its result and add it to the module; gives its GlobalVar.

        A variable of a dataflow block stands for what ``emit_output`` made of it.
        """
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
        body = self._seen_outside(self._operand(_as_value(output), self._source))
        for leaf in _leaves(body):
            if isinstance(leaf, DataflowVar):
                raise BuilderError(
                    f"{leaf.name_hint} is visible only in its dataflow block; bind the result "
                    "with emit_output"
                )
        func = Function(
            inputs,
            SeqExpr(frame.close(), body),
            result_info(inputs, body.struct_info),
            scope.pure,
            scope.attrs,
        )
        scope.done = True
        return self.add_func(func, scope.name)

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Expr:
        """A ``call_tir`` of what ``func``, a function over tensors of ``te``, computes.

        Relax tensors among ``args`` and ``kwargs`` are tensors of te for ``func``, shapes lists of
        sizes; see ``te.from_relax``. ``primfunc_name_hint``: the name of the function that is added
        to the module (that of ``func`` by default), ``primfunc_attrs``: its attributes.
        """
        made, gvar = self._te(func, args, kwargs)
        return call_tir(gvar, made.args, _results(made.out_sinfo), made.tir_vars)

    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: Any,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Expr:
        """:meth:`call_te` with the name of the function that gives its gradient."""
        made, gvar = self._te(func, args, kwargs)
        return call_tir_with_grad(
            gvar,
            made.args,
            _results(made.out_sinfo),
            te_grad_name,
            dict(te_grad_kwargs or {}),
            made.tir_vars,
        )

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
        """Emit :meth:`call_te`; ``name_hint`` names the variable."""
        name_hint = kwargs.pop("name_hint", "")
        return self.emit(self.call_te(func, *args, **kwargs), name_hint)

    def _te(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Any, GlobalVar]:
        """What a function of te computes, and the function that is added for it."""
        if not callable(func):
            raise TypeError(f"call_te takes a function over tensors first; got {func!r}")
        from relax2xla.te.from_relax import tir_call

        own = getattr(func, "__name__", "")
        name = kwargs.pop("primfunc_name_hint", None) or (own if own.isidentifier() else "te_func")
        made = tir_call(func, *args, **kwargs)
        return made, self.add_func(made.func, name)

    def get_unique_name(self, name_prefix: str) -> str:
        """A variable name that this builder has not used."""
        return self._names.fresh(name_prefix)

    def _emit(self, expr: Expr, hint: str, output: bool, span: Span | None) -> Var:
        self._frame()
        span = span or expr.span or self._source
        return self._bind(expr, self._value(expr, span), hint, output, span)

    # -- normalising -------------------------------------------------------------------------
    def normalize(self, expr: Expr) -> Expr:
        """``expr`` in A-normal form; itself if it is so already.

        A Function or SeqExpr is normalised inside. Of any other expression the operands that
        compute something are emitted into the current block, which must be there for it.
        """
        if isinstance(expr, Function):
            return self._function(expr)
        if isinstance(expr, SeqExpr):
            return self._seq(expr)
        if is_operand(expr):
            return expr
        if isinstance(expr, Call | TupleGetItem) and all(map(is_operand, children(expr))):
            if not self.specific or specific(expr, None) is expr:
                return with_info(expr)
        if not self._frames and isinstance(expr, If) and is_operand(expr.cond):
            return self._detached(expr)
        self._frame("normalize")
        return self._value(expr, expr.span or self._source)

    def _detached(self, expr: If) -> Expr:
        """A condition with normal branches outside of any function; it emits nothing."""
        self._frames.append(Frame(None))
        try:
            return self._value(expr, expr.span or self._source)
        finally:
            self._frames.pop()

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
        """Replace the function that ``gv`` names, or add it."""
        self._global_names.reserve(gv.name_hint)
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
        new = {
            gvar: _symbol(func) or names.fresh(gvar.name_hint) for gvar, func in self._mod.items()
        }
        renamed = rename_functions(self._mod, new)
        return self.get() if renamed is self._mod else renamed


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


def _as_value(value: Any) -> Expr:
    """``value`` as an expression; None, by itself or in a tuple, is ``R.null_value()``."""
    if value is None:
        return Op.get("relax.null_value")()
    if isinstance(value, tuple | list):
        items: Sequence[Any] = value
        return Tuple([_as_value(v) for v in items])
    return as_value(value)


def _check_cast(value: Expr, target: StructInfo) -> None:
    known = value.struct_info_
    if known is None or isinstance(known, FuncStructInfo):
        return
    try:
        unify(known, target, {v: v for v in free_symbolic_vars(known)})
    except Mismatch:
        raise StructInfoError(
            f"{value!r} is {show(known)} and can never be cast to {show(target)}"
        ) from None


def _results(infos: Sequence[StructInfo]) -> Any:
    return infos[0] if len(infos) == 1 else infos


def _leaves(operand: Expr) -> Iterator[Expr]:
    stack = [operand]
    while stack:
        node = stack.pop()
        if isinstance(node, Tuple):
            stack.extend(node.fields)
        else:
            yield node


def _symbol(func: BaseFunc) -> str | None:
    return None if isinstance(func, ExternFunc) else func.attrs.get("global_symbol")


def _content_key(func: BaseFunc) -> object:
    """Equal for structurally equal functions. A public symbol tells most functions apart."""
    symbol = _symbol(func)
    return structural_hash(func) if symbol is None else symbol

"""Visitors and mutators: one method a kind of expression, to be overridden.

``PyExprVisitor`` walks, ``PyExprMutator`` rebuilds in A-normal form through its ``builder_``. The
names are TVM's. Bindings are walked in a loop; nested operands, branches and local functions cost
some Python frames a level. In one walk a shared operation (Call, Tuple, TupleGetItem, If) is
dispatched once; a mutator dispatches it once in each scope, for what it becomes may name variables
that are bound there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, TypeVar

from relax2xla.builder import BlockBuilder, is_normal
from relax2xla.ir import expr as e
from relax2xla.ir.deep import LEVELS, elsewhere
from relax2xla.ir.lattice import is_base_of, result_info
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import rebuild, rewrite_function
from relax2xla.ir.struct_info import StructInfo

# The method of each kind; for a subclass (an operator of the StableHLO table) its base's.
METHODS: dict[type[e.Expr], str] = {
    e.Constant: "visit_constant_",
    e.Tuple: "visit_tuple_",
    e.DataflowVar: "visit_dataflow_var_",
    e.Var: "visit_var_",
    e.ShapeExpr: "visit_shape_expr_",
    e.ExternFunc: "visit_extern_func_",
    e.GlobalVar: "visit_global_var_",
    e.Function: "visit_function_",
    e.Call: "visit_call_",
    e.SeqExpr: "visit_seq_expr_",
    e.If: "visit_if_",
    Op: "visit_op_",
    e.TupleGetItem: "visit_tuple_getitem_",
    e.PrimValue: "visit_prim_value_",
    e.StringImm: "visit_string_imm_",
    e.DataTypeImm: "visit_data_type_imm_",
}
SHARED = (e.Call, e.Tuple, e.TupleGetItem, e.If)


def method_of(node: e.Expr) -> str:
    """Name of the method that visits ``node``."""
    for cls in type(node).__mro__:
        if cls in METHODS:
            return METHODS[cls]
    raise TypeError(f"no visit method for {type(node).__name__}")


class ExprFunctor:
    """Dispatch over the kinds of expressions, each shared operation once in a walk.

    A subclass defines the ``visit_*_`` methods that it needs; ``NotImplementedError`` names one
    that is missing.
    """

    _cls: ClassVar[type[Any]]

    def __init_subclass__(cls) -> None:
        """``_cls``, from which subclasses of a decorated class inherit in TVM, is the class."""
        cls._cls = cls

    def __init__(self) -> None:
        self._depth = 0
        self._done: dict[int, tuple[e.Expr, Any]] = {}

    def visit_expr(self, expr: e.Expr) -> Any:
        """Dispatch on the kind of ``expr``."""
        known = self._done.get(id(expr))
        if known is not None:
            return known[1]
        method: Callable[[e.Expr], Any] | None = getattr(self, method_of(expr), None)
        if method is None:
            raise NotImplementedError(f"{type(self).__name__} has no {method_of(expr)}")
        self._depth += 1
        try:
            # Deep in nested scopes or operands the walk goes on in another thread's stack.
            result = elsewhere(method, expr) if self._depth % LEVELS == 0 else method(expr)
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._end_walk()
        if self._depth and isinstance(expr, SHARED):
            self._done[id(expr)] = (expr, result)
        return result

    def _end_walk(self) -> None:
        """The outermost ``visit_expr`` is done."""
        self._done.clear()


class PyExprVisitor(ExprFunctor):
    """Walks an expression; override any method, and call ``super()``'s to go on below.

    ``visit_var_`` and ``visit_dataflow_var_`` see uses, the ``_def`` methods definitions.
    """

    def visit_expr(self, expr: e.Expr) -> None:
        """Dispatch on the kind of ``expr``."""
        super().visit_expr(expr)

    def visit_binding(self, binding: e.Binding) -> None:
        """Dispatch on the kind of binding."""
        if isinstance(binding, e.MatchCast):
            self.visit_match_cast_(binding)
        elif isinstance(binding, e.VarBinding):
            self.visit_var_binding_(binding)

    def visit_binding_block(self, block: e.BindingBlock) -> None:
        """Dispatch on the kind of block."""
        if isinstance(block, e.DataflowBlock):
            self.visit_dataflow_block_(block)
        else:
            self.visit_binding_block_(block)

    def visit_var_def(self, var: e.Var) -> None:
        """Dispatch on the kind of variable that is defined."""
        if isinstance(var, e.DataflowVar):
            self.visit_dataflow_var_def_(var)
        else:
            self.visit_var_def_(var)

    def visit_constant_(self, op: e.Constant) -> None:
        """A constant."""

    def visit_tuple_(self, op: e.Tuple) -> None:
        """A tuple: its fields in order."""
        for field in op.fields:
            self.visit_expr(field)

    def visit_var_(self, op: e.Var) -> None:
        """A use of a variable."""

    def visit_dataflow_var_(self, op: e.DataflowVar) -> None:
        """A use of a dataflow variable."""

    def visit_shape_expr_(self, op: e.ShapeExpr) -> None:
        """A shape."""

    def visit_extern_func_(self, op: e.ExternFunc) -> None:
        """A packed function."""

    def visit_global_var_(self, op: e.GlobalVar) -> None:
        """The name of a function of the module."""

    def visit_function_(self, op: e.Function) -> None:
        """A function: parameters, then the body."""
        for p in op.params:
            self.visit_var_def(p)
        self.visit_expr(op.body)

    def visit_call_(self, op: e.Call) -> None:
        """A call: callee, then arguments."""
        self.visit_expr(op.op)
        for arg in op.args:
            self.visit_expr(arg)

    def visit_seq_expr_(self, op: e.SeqExpr) -> None:
        """A sequence: blocks, then the result."""
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)

    def visit_if_(self, op: e.If) -> None:
        """A condition, then both branches."""
        self.visit_expr(op.cond)
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)

    def visit_op_(self, op: Op[...]) -> None:
        """An operator."""

    def visit_tuple_getitem_(self, op: e.TupleGetItem) -> None:
        """A field of a tuple."""
        self.visit_expr(op.tuple_value)

    def visit_prim_value_(self, op: e.PrimValue) -> None:
        """A scalar."""

    def visit_string_imm_(self, op: e.StringImm) -> None:
        """A string."""

    def visit_data_type_imm_(self, op: e.DataTypeImm) -> None:
        """A dtype."""

    def visit_var_binding_(self, binding: e.VarBinding) -> None:
        """A binding: the value, then the definition."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: e.MatchCast) -> None:
        """A match-cast: the value, then the definition."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_binding_block_(self, block: e.BindingBlock) -> None:
        """A plain block: its bindings in order."""
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: e.DataflowBlock) -> None:
        """A dataflow block: its bindings in order."""
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_var_def_(self, var: e.Var) -> None:
        """The definition of a variable."""

    def visit_dataflow_var_def_(self, var: e.DataflowVar) -> None:
        """The definition of a dataflow variable."""


class PyExprMutator(ExprFunctor):
    """Rebuilds an expression; override any method and return what takes the node's place.

    What is returned is normalised: operands that compute are bound first, through ``builder_``,
    which overridden methods may emit to as well. Unchanged parts stay the same objects.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        super().__init__()
        self.builder_ = BlockBuilder(mod)
        self._var_remap: dict[e.Id, e.Var] = {}
        # Of this walk: the variables defined, and those that were renamed as they came again.
        self._defined: set[e.Var] = set()
        self._renamed: list[e.Id] = []

    @contextmanager
    def _scope(self, function: bool = False) -> Generator[None]:
        """A scope: what is rewritten inside is forgotten after it.

        A branch or a block knows what was rewritten around it, a function does not.
        """
        outer, known = self._done, len(self._done)
        if function:
            self._done = {}
        try:
            yield
        finally:
            self._done = outer
            while len(outer) > known:
                outer.popitem()  # the last in is the first out

    def _end_walk(self) -> None:
        super()._end_walk()
        for vid in self._renamed:
            self._var_remap.pop(vid, None)
        self._defined.clear()
        self._renamed.clear()

    def _define(self, old: e.Var) -> e.Var:
        """What takes the place of ``old`` at its definition.

        A branch or sequence that is used at several places is rewritten at each, with variables
        of its own from the second on.
        """
        var = self.visit_var_def(old)
        if var in self._defined:
            var = type(var)(var.name_hint, var.struct_info_, var.span)
            self._renamed.append(old.vid)
        self._defined.add(var)
        self._remap(old, var)
        return var

    # -- dispatch ----------------------------------------------------------------------------
    def visit_expr(self, expr: e.Expr) -> e.Expr:
        """Dispatch on the kind of ``expr``; the result is normalised."""
        return self._normal(super().visit_expr(expr))

    def visit_binding(self, binding: e.Binding) -> None:
        """Dispatch on the kind of binding; the result is emitted."""
        if isinstance(binding, e.MatchCast):
            self.visit_match_cast_(binding)
        elif isinstance(binding, e.VarBinding):
            self.visit_var_binding_(binding)

    def visit_binding_block(self, block: e.BindingBlock) -> e.BindingBlock:
        """Dispatch on the kind of block."""
        if isinstance(block, e.DataflowBlock):
            return self.visit_dataflow_block_(block)
        return self.visit_binding_block_(block)

    def visit_var_def(self, var: e.Var) -> e.Var:
        """Dispatch on the kind of variable that is defined."""
        if isinstance(var, e.DataflowVar):
            return self.visit_dataflow_var_def_(var)
        return self.visit_var_def_(var)

    # -- helpers for overridden methods -------------------------------------------------------
    def visit_expr_post_order(self, expr: e.Expr) -> e.Expr:
        """``expr`` over rewritten children, normalised: the default for plain expressions."""
        match expr:
            case e.Call():
                callee = self.visit_expr(expr.op)
                args = [self.visit_expr(a) for a in expr.args]
                new = rebuild(expr, args if isinstance(expr.op, Op) else [callee, *args])
                if callee is not expr.op and isinstance(expr.op, Op):
                    new = e.Call(callee, args, expr.attrs, expr.sinfo_args, expr.span)
                return self._normal(new)
            case e.Tuple():
                return self._normal(rebuild(expr, [self.visit_expr(f) for f in expr.fields]))
            case e.TupleGetItem():
                return self._normal(rebuild(expr, [self.visit_expr(expr.tuple_value)]))
            case e.If():
                cond = self.visit_expr(expr.cond)
                yes = self.visit_with_new_scope(expr.true_branch)
                no = self.visit_with_new_scope(expr.false_branch)
                if cond is expr.cond and yes is expr.true_branch and no is expr.false_branch:
                    return expr
                return self._normal(e.If(cond, yes, no, expr.span))
            case e.Var():
                return self._var_remap.get(expr.vid, expr)
            case e.Function():
                return self._function(expr)
            case e.SeqExpr():
                return self._seq(expr)
            case _:
                return expr

    def visit_with_new_scope(
        self, expr: e.Expr, params: Sequence[e.Var] | None = None
    ) -> e.SeqExpr:
        """``expr`` rewritten in a scope of its own: a function's body (with ``params``) or a
        branch."""
        self.builder_.begin_scope(params)
        try:
            with self._scope(function=params is not None):
                seq = e.as_seq(self.visit_expr(e.as_seq(expr)))
        finally:
            before = self.builder_.end_scope()
        return e.SeqExpr([*before, *seq.blocks], seq.body, seq.span) if before else seq

    def with_struct_info(self, var: e.Var, struct_info: StructInfo) -> e.Var:
        """``var`` if it has this struct info, else a new variable of the same Id that has."""
        if var.struct_info_ == struct_info:
            return var
        return type(var)(var.vid, struct_info, var.span)

    def lookup_binding(self, var: e.Var) -> e.Expr | None:
        """The rewritten value that ``var`` is bound to, or None."""
        return self.builder_.lookup_binding(var)

    def set_var_remap(self, vid: e.Id, var: e.Var) -> None:
        """Later uses of the variable with this Id become ``var``."""
        self._var_remap[vid] = var

    def get_var_remap(self, vid: e.Id) -> e.Var:
        """What ``set_var_remap`` stated; KeyError if nothing."""
        return self._var_remap[vid]

    def _normal(self, expr: e.Expr) -> e.Expr:
        if isinstance(expr, e.Function | e.SeqExpr) or not self.builder_.in_scope():
            return expr
        if isinstance(expr, e.If) and is_normal(expr):
            return expr  # the builder knows the variables of its branches already
        return self.builder_.normalize(expr)

    # -- the kinds ---------------------------------------------------------------------------
    def visit_constant_(self, op: e.Constant) -> e.Expr:
        """A constant."""
        return self.visit_expr_post_order(op)

    def visit_tuple_(self, op: e.Tuple) -> e.Expr:
        """A tuple."""
        return self.visit_expr_post_order(op)

    def visit_var_(self, op: e.Var) -> e.Expr:
        """A use of a variable."""
        return self.visit_expr_post_order(op)

    def visit_dataflow_var_(self, op: e.DataflowVar) -> e.Expr:
        """A use of a dataflow variable."""
        return self.visit_expr_post_order(op)

    def visit_shape_expr_(self, op: e.ShapeExpr) -> e.Expr:
        """A shape."""
        return self.visit_expr_post_order(op)

    def visit_extern_func_(self, op: e.ExternFunc) -> e.Expr:
        """A packed function."""
        return self.visit_expr_post_order(op)

    def visit_global_var_(self, op: e.GlobalVar) -> e.Expr:
        """The name of a function of the module."""
        return self.visit_expr_post_order(op)

    def visit_function_(self, op: e.Function) -> e.Expr:
        """A function: parameters, body; the declared result stays where it is still true."""
        return self.visit_expr_post_order(op)

    def visit_call_(self, op: e.Call) -> e.Expr:
        """A call."""
        return self.visit_expr_post_order(op)

    def visit_seq_expr_(self, op: e.SeqExpr) -> e.Expr:
        """A sequence."""
        return self.visit_expr_post_order(op)

    def visit_if_(self, op: e.If) -> e.Expr:
        """A condition and two branches."""
        return self.visit_expr_post_order(op)

    def visit_op_(self, op: Op[...]) -> e.Expr:
        """An operator."""
        return self.visit_expr_post_order(op)

    def visit_tuple_getitem_(self, op: e.TupleGetItem) -> e.Expr:
        """A field of a tuple."""
        return self.visit_expr_post_order(op)

    def visit_prim_value_(self, op: e.PrimValue) -> e.Expr:
        """A scalar."""
        return self.visit_expr_post_order(op)

    def visit_string_imm_(self, op: e.StringImm) -> e.Expr:
        """A string."""
        return self.visit_expr_post_order(op)

    def visit_data_type_imm_(self, op: e.DataTypeImm) -> e.Expr:
        """A dtype."""
        return self.visit_expr_post_order(op)

    def visit_var_binding_(self, binding: e.VarBinding) -> None:
        """A binding: the rewritten value is emitted under the variable's definition."""
        if isinstance(binding.value, e.Function):
            self._visit_local_function(binding, binding.value)
            return
        with self.builder_.source(binding.span):
            value = self.visit_expr(binding.value)
            if isinstance(value, e.SeqExpr):
                value = self.builder_.splice(value)
        self._rebind(binding, self._define(binding.var), value)

    def _visit_local_function(self, binding: e.VarBinding, func: e.Function) -> None:
        """The variable comes first, for the function may call itself."""
        var = self._define(binding.var)
        with self.builder_.source(binding.span):
            value = self.visit_expr(func)
        info = value.struct_info_
        declared = var.struct_info_
        if info is not None and (declared is None or not is_base_of(declared, info)):
            new = self.with_struct_info(var, info)
            self._remap(binding.var, new)
            if isinstance(value, e.Function) and new is not var:
                value = rewrite_function(value, values={var: new})
            var = new
        self._rebind(binding, var, value)

    def _rebind(self, binding: e.VarBinding, var: e.Var, value: e.Expr) -> None:
        if value is binding.value and var is binding.var:
            self.builder_.emit_normalized(binding)
            return
        declared, info = var.struct_info_, value.struct_info_
        if value is not binding.value and info is not None:
            # A weaker declaration than what was inferred is the user's choice and stays.
            chosen = declared is not None and declared != binding.value.struct_info_
            if declared is None or not chosen or not is_base_of(declared, info):
                var = self.with_struct_info(var, info)
        self._remap(binding.var, var)
        self.builder_.emit_normalized(e.VarBinding(var, value, binding.span))

    def visit_match_cast_(self, binding: e.MatchCast) -> None:
        """A match-cast, emitted over the rewritten value."""
        with self.builder_.source(binding.span):
            value = self.builder_.as_operand(self.visit_expr(binding.value))
        var = self._define(binding.var)
        if value is binding.value and var is binding.var:
            self.builder_.emit_normalized(binding)
            return
        cast = e.MatchCast(var, value, binding.struct_info, binding.span)
        self.builder_.emit_normalized(cast)

    def visit_binding_block_(self, block: e.BindingBlock) -> e.BindingBlock:
        """A plain block."""
        return self._block(block, dataflow=False)

    def visit_dataflow_block_(self, block: e.DataflowBlock) -> e.BindingBlock:
        """A dataflow block."""
        return self._block(block, dataflow=True)

    def visit_var_def_(self, var: e.Var) -> e.Var:
        """The definition of a variable; another one that is returned takes its place."""
        return var

    def visit_dataflow_var_def_(self, var: e.DataflowVar) -> e.Var:
        """The definition of a dataflow variable; another one that is returned takes its place."""
        return var

    # -- defaults ----------------------------------------------------------------------------
    def _remap(self, old: e.Var, new: e.Var) -> None:
        if new is not old:
            self.set_var_remap(old.vid, new)

    def _block(self, block: e.BindingBlock, dataflow: bool) -> e.BindingBlock:
        self.builder_.begin_block(dataflow)
        try:
            with self._scope() if dataflow else nullcontext():
                for binding in block.bindings:
                    self.visit_binding(binding)
        finally:
            new = self.builder_.end_block()
        same = len(new.bindings) == len(block.bindings) and all(
            a is b for a, b in zip(new.bindings, block.bindings, strict=True)
        )
        if same:
            return block
        return type(new)(new.bindings, block.span)

    def _seq(self, seq: e.SeqExpr) -> e.SeqExpr:
        self.builder_.begin_scope()
        try:
            with self._scope():
                for block in seq.blocks:
                    new = self.visit_binding_block(block)
                    if new.bindings or not block.bindings:
                        self.builder_.emit_block(new)
                body = self.builder_.as_operand(self.visit_expr(seq.body))
        finally:
            blocks = self.builder_.end_scope()
        if body is seq.body and len(blocks) == len(seq.blocks):
            if all(a is b for a, b in zip(blocks, seq.blocks, strict=True)):
                return seq
        return e.SeqExpr(blocks, body, seq.span)

    def _function(self, func: e.Function) -> e.Function:
        params = [self._define(p) for p in func.params]
        body = self.visit_with_new_scope(func.body, params)
        same = all(a is b for a, b in zip(params, func.params, strict=True))
        if same and body is func.body:
            return func
        ret, info = func.ret_struct_info, body.struct_info_
        if info is not None and not is_base_of(ret, info):
            ret = result_info(params, info)
        return e.Function(params, body, ret, func.is_pure, func.attrs, func.span)


V = TypeVar("V", bound=PyExprVisitor)
M = TypeVar("M", bound=PyExprMutator)


def visitor(visitor_cls: type[V]) -> type[V]:
    """Decorator of every class that inherits from PyExprVisitor; TypeError for others."""
    if not (isinstance(visitor_cls, type) and issubclass(visitor_cls, PyExprVisitor)):
        raise TypeError(f"@visitor decorates subclasses of PyExprVisitor; got {visitor_cls!r}")
    return visitor_cls


def mutator(mutator_cls: type[M]) -> type[M]:
    """Decorator of every class that inherits from PyExprMutator; TypeError for others."""
    if not (isinstance(mutator_cls, type) and issubclass(mutator_cls, PyExprMutator)):
        raise TypeError(f"@mutator decorates subclasses of PyExprMutator; got {mutator_cls!r}")
    return mutator_cls

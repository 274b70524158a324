"""LegalizeOps: high-level operators become StableHLO rows (design decision D3).

The pass is a short interpreter: it walks the bindings in order, asks each operator for its
lowering, and binds what comes back in A-normal form. The last row of a lowering takes the variable
of the operator that it replaces, so that names, struct info and spans survive. Blocks stay what
they are, dataflow or not. A lowering whose result is not what the operator's struct-info rule
promised is an error.

A function of symbolic shapes is lowered by the same rules, over symbolic dimensions; then
dynamic_rows.py puts StableHLO's dynamic operations where sizes are needed.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final, NoReturn

from relax2xla import tir
from relax2xla.analysis.variables import all_global_vars, detect_recursion
from relax2xla.builder import BlockBuilder
from relax2xla.errors import CallError, LegalizeError, TVMError
from relax2xla.ir import (
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
    IRModule,
    MatchCast,
    Op,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Span,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
    const,
)
from relax2xla.ir.copy import copy_function
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import Mismatch, SymMap, is_base_of, unify
from relax2xla.ir.rewrite import (
    LEAF_TYPES,
    Rewriter,
    bindings_of,
    children,
    holders_deep,
    joined,
    post_order,
    post_order_deep,
    rebuild,
)
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.op.shared.lowering import symbolic_dims
from relax2xla.stablehlo.table import TABLE
from relax2xla.transform.core import (
    ROWS,
    UNDIVIDED,
    FunctionPass,
    Pass,
    PassContext,
    register,
)
from relax2xla.transform.lower.dimension_values import Sources, is_open, symbolic_dim
from relax2xla.transform.lower.dynamic_rows import (
    DynamicRows,
    computes_sizes,
    in_function,
    is_symbolic,
    name_dimensions,
)
from relax2xla.transform.lower.kernels import Kernels, is_kernel_call, lower_call, prim_funcs
from relax2xla.transform.lower.leaves import pack, unpack
from relax2xla.transform.lower.replay import Key, Record, key_of
from relax2xla.transform.lower.to_kernels import to_kernels

# What operators are lowered to.
_FORMS: Final = ("rows", "kernels")

Lowering = Callable[..., Expr]
CustomLowering = Callable[[BlockBuilder, Call], Expr]

# What a lowering's own arithmetic raises on operands of which it is not told enough.
_MISTAKES = (TypeError, ValueError, ArithmeticError, AssertionError, AttributeError, LookupError)


# What says on which device a value is, which rows do not (the machine moves values), and memory
# that a call behind it writes (CallsAsValues looks for it).
_MACHINES: Final = frozenset(
    {"relax.to_vdevice", "relax.hint_on_device", "relax.builtin.alloc_tensor"}
)


def _anywhere(info: StructInfo) -> StructInfo:
    """``info`` without devices, of which rows say nothing."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([_anywhere(f) for f in info.fields])
    if not isinstance(info, TensorStructInfo) or info.vdevice is None:
        return info
    return TensorStructInfo(info.shape, info.dtype, None, -1 if info.shape else info.ndim)


def is_row(op: Expr) -> bool:
    """Whether ``op`` is a row: of StableHLO, CHLO, Shardy or the interpreter's dialect."""
    return isinstance(op, Op) and op.name in TABLE


class _Legalizer:
    """Legalises one function body; ``env`` maps variables to the leaves that took their place.

    ``symbolic``: dimensions may be symbolic. ``kept``: is told of operators without a lowering,
    which then stay; without it they are errors. ``kernels``: the loop-level functions; calls of
    them stay where dimensions may be symbolic.
    """

    def __init__(
        self,
        custom: Mapping[str, Lowering],
        symbolic: bool = False,
        kept: Callable[[str], None] | None = None,
        kernels: Kernels | None = None,
        rules: Mapping[str, CustomLowering] | None = None,
        builder: BlockBuilder | None = None,
        later: bool = False,
        beyond: Callable[[], Set[GlobalVar]] = frozenset,
    ) -> None:
        self.custom = custom
        # Gives the functions of the module that no XLA program can hold.
        self.beyond = beyond
        # The function computes sizes while it runs: what cannot be lowered yet may stay.
        self.later = later
        self.rules = rules or {}
        self.builder = builder or BlockBuilder()
        self.kernels = kernels or {}
        self.symbolic = symbolic
        self.kept = kept
        self.dataflow = False
        self.env: dict[Expr, Expr] = {}
        self.local_functions: dict[Expr, Function] = {}
        self.out: list[Binding] = []
        self.span: Span | None = None
        self.records: dict[Key, Record] = {}
        self.kept_functions: set[Var] = set()

    # -- functions and sequences

    def top(self, func: Function) -> Function:
        """``func``, outermost, with a legal body."""
        self.kept_functions = _used_functions(func)
        return self.function(func)

    def function(self, func: Function) -> Function:
        """``func`` with a legal body."""
        return func.replace(body=self.seq(func.body))

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        """A sequence as blocks of rows, and its result."""
        outer = self.out, self.dataflow
        blocks: list[BindingBlock] = []
        for block in seq.blocks:
            self.out, self.dataflow = [], isinstance(block, DataflowBlock)
            for binding in block.bindings:
                self.binding(binding)
            if self.out:
                blocks.append(type(block)(self.out, block.span))
        self.out, self.dataflow = [], False
        body = self.value(seq.body, None)
        if self.out:
            blocks.append(BindingBlock(self.out))
        self.out, self.dataflow = outer
        return SeqExpr(joined(blocks), body, seq.span)

    def binding(self, b: Binding) -> None:
        """One binding; its variable is bound to a row, or stands for a leaf from now on."""
        self.span = b.span or b.var.span
        var = b.var
        if isinstance(var, DataflowVar) and not self.dataflow:
            # Of a local function that is copied to where there is no dataflow.
            var = self.env[b.var] = Var(var.vid, var.struct_info_, var.span)
        if isinstance(b, MatchCast):
            value = self.value(b.value, None)
            self._check_cast(b, value)
            if self._says_nothing_new(b.struct_info, value.struct_info):
                self.env[b.var] = self._surface(value, var)
            else:
                self.out.append(MatchCast(var, value, b.struct_info, b.span))
        elif isinstance(b, VarBinding) and isinstance(b.value, Function):
            self.local_functions[b.var] = b.value
            if b.var in self.kept_functions:
                self.out.append(VarBinding(var, self.function(b.value), b.span))
        elif isinstance(b, VarBinding):
            leaf = self.value(b.value, var)
            if leaf is not var:
                self.env[b.var] = self._surface(leaf, var)
        else:
            raise LegalizeError(f"unknown binding {type(b).__name__}")

    def _surface(self, leaf: Expr, var: Var) -> Expr:
        """``leaf`` as those may use it who see ``var``: what leaves dataflow is no DataflowVar."""
        if not self.dataflow or isinstance(var, DataflowVar):
            return leaf
        if isinstance(leaf, Tuple):
            named = [Var(f"{var.name_hint}_{i}", f.struct_info_) for i, f in enumerate(leaf.fields)]
            fields = [self._surface(f, v) for f, v in zip(leaf.fields, named, strict=True)]
            return Tuple(fields, leaf.span)
        if not isinstance(leaf, DataflowVar):
            return leaf
        if var.struct_info_ != leaf.struct_info_:
            var = Var(var.vid, leaf.struct_info_, var.span)
        self.out.append(VarBinding(var, leaf, self.span))
        return var

    def _says_nothing_new(self, info: StructInfo, known: StructInfo) -> bool:
        """Whether a match_cast to ``info`` refines no symbolic dimension."""
        if not self.symbolic or is_base_of(info, known):
            return True
        if self.later:
            return False
        return not isinstance(info, TensorStructInfo | TupleStructInfo)

    def _check_cast(self, b: MatchCast, value: Expr) -> None:
        env: SymMap = {}
        try:
            unify(b.struct_info, value.struct_info, env)
        except Mismatch as e:
            raise CallError(f"R.match_cast of {b.var.name_hint}: the value has {e}") from None

    # -- expressions

    def bind(self, value: Expr, var: Var | None) -> Expr:
        """Bind ``value`` to ``var``, or to a new variable."""
        if var is None:
            op = value.op if isinstance(value, Call) else None
            name = op.name.rpartition(".")[2] if isinstance(op, Op) else "lv"
            kind = DataflowVar if self.dataflow else Var
            var = kind(name, value.struct_info, self.span)
        self.out.append(VarBinding(var, value, self.span))
        return var

    def value(self, root: Expr, var: Var | None) -> Expr:
        """Bind what ``root`` computes; gives the leaf that holds it (``var`` where it is bound)."""
        if isinstance(root, Call) and isinstance(root.op, Op) and _is_flat(root.args):
            # Most bindings are a call of leaves.
            return self._kept(self._call(self._flat(root), var), var)
        done: dict[int, Expr] = {}
        for node in post_order(root):
            target = var if node is root else None
            kids = children(node)
            if not kids and not isinstance(node, Call | Tuple | SeqExpr | Function):
                done[id(node)] = self.env.get(node, node)
                continue
            new = _with_leaves(node, [done[id(k)] for k in kids])
            done[id(node)] = self._node(new, target)
        return self._kept(done[id(root)], var)

    def _flat(self, call: Call) -> Call:
        """``call`` with the leaves that took the place of its operands."""
        env = self.env
        new = [env.get(a, a) for a in call.args]
        if all(map(operator.is_, new, call.args)):
            return call
        made = _with_leaves(call, new)
        assert isinstance(made, Call)
        return made

    def _kept(self, leaf: Expr, var: Var | None) -> Expr:
        """``leaf``, which is what ``var`` promises to be."""
        if var is not None and leaf is not var and not isinstance(leaf, Tuple):
            self._keep_promise(leaf, var)
        return leaf

    def _node(self, node: Expr, var: Var | None) -> Expr:
        if isinstance(node, TupleGetItem):
            value = node.tuple_value
            return value.fields[node.index] if isinstance(value, Tuple) else self.bind(node, var)
        if isinstance(node, If):
            return self._if(node, var)
        if isinstance(node, Function):
            return self.function(node)
        if isinstance(node, SeqExpr):
            return self._inline(node)
        if isinstance(node, Call):
            return self._call(node, var)
        return node

    def _call(self, call: Call, var: Var | None) -> Expr:
        if isinstance(call.op, Op):
            own = self.rules.get(call.op.name)
            if own is not None:
                return self._lower(call, lambda *_, **__: self._by_rule(own, call), var)
            rule = self.custom.get(call.op.name) or call.op.lowering
            if call.op.name in _MACHINES and self.kept is not None:
                return self.bind(call, var)
            if rule is None and is_kernel_call(call):
                if self.symbolic or (self.rules and call.args[0] not in self.kernels):
                    return self.bind(call, var)
                return self._lower(call, lambda *_, **__: lower_call(call, self.kernels), var)
            if rule is None or (self.symbolic and _is_size(call)):
                if rule is not None or is_row(call.op):
                    return self.bind(call, var)
                if self.kept is not None:
                    self.kept(call.op.name)
                    return self._leave(call, var)
                raise LegalizeError(
                    f"{call.op.name} has no lowering to StableHLO"
                    + (f" (at {self.span})" if self.span else "")
                )
            return self._lower(call, rule, var)
        if isinstance(call.op, GlobalVar):
            return self.bind(call, var)
        func = self.local_functions.get(call.op)
        if func is None and isinstance(call.op, Function):
            func = call.op
        if func is None:
            if self.kept is not None:  # the machine calls it
                return self._leave(call, var)
            raise LegalizeError(
                f"a call of {call.op!r} cannot be part of an XLA program; only operators, "
                "functions of the module and local functions can"
            )
        # A fresh copy of the body: variables are bound once, those of its own functions, too.
        renamed = _sized(copy_function(func), call.args)
        self.kept_functions |= _used_functions(renamed)
        self.env.update(zip(renamed.params, call.args, strict=True))
        return self._inline(renamed.body)

    def _leave(self, call: Call, var: Var | None) -> Expr:
        """``call`` as it is; what reads a size that it computes may have to stay, too."""
        self.later |= _has_computed_size(call)
        return self.bind(call, var)

    def _by_rule(self, rule: CustomLowering, call: Call) -> Expr:
        """What a rule of a user gives; what it emits is legalised before."""
        self.builder.begin_scope([])
        self.builder.begin_block(self.dataflow)
        with self.builder.source(self.span):
            made = rule(self.builder, call)
        last = self.builder.end_block()
        for block in (*self.builder.end_scope(), last):
            for binding in block.bindings:
                self.binding(binding)
        return made

    def _lower(self, call: Call, rule: Lowering, var: Var | None) -> Expr:
        # Shapes with symbols compare slowly, and customised lowerings may do what they want.
        key = (
            None if self.symbolic or self.custom or self.rules else key_of(call, var, self.dataflow)
        )
        if key is None:
            return self._lower_anew(call, rule, var)
        record = self.records.get(key)
        if record is not None:
            made, leaf = record.play(call, var, self.span)
            self.out += made
            return leaf
        start = len(self.out)
        leaf = self._lower_anew(call, rule, var)
        bindings = self.out[start:]
        if Record.fits(bindings):
            self.records[key] = Record(call, var, bindings, leaf)
        return leaf

    def _lower_anew(self, call: Call, rule: Lowering, var: Var | None) -> Expr:
        assert isinstance(call.op, Op)
        try:
            args, kwargs = call.op.bind(call)
            lowered = rule(*args, **kwargs)
        except (TVMError, *_MISTAKES) as e:
            later = self.later or _has_computed_size(call)
            if later and self.kept is not None and rule is call.op.lowering:
                self.kept(call.op.name)
                return self._leave(call, var)
            self._refuse(call, e)
        if lowered is call:  # a rule that wants nothing else
            return self.bind(call, var)
        self._keep_promise(lowered, call)
        if self.symbolic and var is not None and _says_more(lowered.struct_info, var.struct_info_):
            return self.value(lowered, type(var)(var.vid, lowered.struct_info, var.span))
        return self.value(lowered, var)

    def _refuse(self, call: Call, error: Exception) -> NoReturn:
        """Raise why ``call`` cannot be lowered, of which ``error`` is the reason."""
        assert isinstance(call.op, Op)
        if isinstance(error, TVMError):
            error.add_note(f"  while lowering {call.op.describe(call)}")
            if self.span:
                error.add_note(f"  at {self.span}")
            raise error
        if not self.symbolic or not any(is_open(a.struct_info) for a in call.args):
            if self.custom or self.rules:
                raise error
            at = f" (at {self.span})" if self.span else ""
            raise LegalizeError(
                f"{call.op.describe(call)} cannot be lowered{at}: are shape and dtype of each "
                f"operand known, and of a size that can be? ({type(error).__name__}: {error})"
            ) from error
        raise LegalizeError(
            f"{call.op.describe(call)} cannot be lowered over symbolic dimensions, for its "
            f"lowering needs numbers ({error}). Bind them (Function.bind_symbolic_vars), or run it "
            "on the virtual machine"
        ) from error

    def _keep_promise(self, value: Expr, original: Call | Var) -> None:
        promised = original.struct_info_
        if promised is None or is_base_of(promised, value.struct_info):
            return
        promised = _anywhere(promised)
        if not is_base_of(promised, value.struct_info):
            what = repr(original)
            if isinstance(original, Call) and isinstance(original.op, Op):
                what = original.op.describe(original)
            raise LegalizeError(
                f"{what} was inferred as {show(promised)}, but its lowering gives "
                f"{show(value.struct_info)}; please report this"
            )

    @nests
    def _inline(self, seq: SeqExpr) -> Expr:
        for block in seq.blocks:
            for binding in block.bindings:
                self.binding(binding)
        return self.value(seq.body, None)

    def _if(self, node: If, var: Var | None) -> Expr:
        if self.kept is not None and self._is_beyond(node):
            yes, no = self.seq(node.true_branch), self.seq(node.false_branch)
            return self.bind(If(node.cond, yes, no, node.span), var)
        info = node.struct_info
        flat = flatten_info(info)
        branches = [
            Function((), self._branch(b, info)) for b in (node.true_branch, node.false_branch)
        ]
        cond = node.cond
        if isinstance(cond, PrimValue) and isinstance(cond.value, tir.IntImm):
            cond = const(bool(cond.value.value), "bool")  # rows take tensors
        call = Call(
            Op.get("relax.stablehlo.if_"),
            [cond, *branches],
            None,
            flat,
            node.span,
        )
        if not isinstance(info, TupleStructInfo):
            return self.bind(call, var)
        results = self.bind(call, None)
        if len(flat) == 1:
            return pack([results], info)
        return pack([self.bind(results[i], None) for i in range(len(flat))], info)

    def _is_beyond(self, branches: Expr) -> bool:
        """Whether what ``branches`` hold stays as it is, so that the machine must choose."""
        return any(
            isinstance(node, Call)
            and (
                isinstance(node.op, ExternFunc)
                or (isinstance(node.op, GlobalVar) and node.op in self.beyond())
                or node.op in self.kernels  # it writes into what it is given
                or (isinstance(node.op, Op) and self._stays(node.op, node))
            )
            for node in post_order_deep(branches)
        )

    def _stays(self, op: Op[Any], call: Call) -> bool:
        known = op.name in self.rules or op.name in self.custom or op.lowering is not None
        return not known and not is_row(op) and not is_kernel_call(call)

    def _branch(self, branch: SeqExpr, info: StructInfo) -> SeqExpr:
        seq = self.seq(branch)
        if not isinstance(info, TupleStructInfo):
            return seq
        outer, self.out, self.dataflow = (self.out, self.dataflow), [], False
        leaves = [self.value(leaf, None) for leaf in unpack(seq.body, info)]
        bindings = self.out
        self.out, self.dataflow = outer
        blocks = [*seq.blocks, BindingBlock(bindings)] if bindings else seq.blocks
        return SeqExpr(blocks, leaves[0] if len(leaves) == 1 else Tuple(leaves))


def _sized(func: Function, args: Sequence[Expr]) -> Function:
    """A local function whose symbolic dimensions are those of the arguments of a call."""
    sizes: SymMap = {}
    for param, arg in zip(func.params, args, strict=True):
        if param.struct_info_ is not None and arg.struct_info_ is not None:
            # Where they do not fit, what is computed of them says so.
            with contextlib.suppress(Mismatch):
                unify(param.struct_info_, arg.struct_info_, sizes)
    own = {var: dim for var, dim in sizes.items() if dim is not var}
    return Rewriter(own).function(func) if own else func


def _used_functions(func: Function) -> set[Var]:
    """Variables in ``func`` whose functions must stay, for they are not only called.

    Local functions that are only called become part of their callers.
    """
    if not any(isinstance(v, Function) and v is not func for v in holders_deep(func)):
        return set()
    return {k for v in post_order_deep(func) for k in _operands(v) if isinstance(k, Var)}


def _is_flat(args: Sequence[Expr]) -> bool:
    return all(type(a) in LEAF_TYPES for a in args)


def _operands(node: Expr) -> Sequence[Expr]:
    """What ``node`` uses otherwise than by calling it."""
    if isinstance(node, Call):
        return node.args
    if isinstance(node, SeqExpr):
        casts = [b.value for b in bindings_of(node) if not isinstance(b.value, Call)]
        return [node.body, *casts]
    return children(node)


def _with_leaves(node: Expr, leaves: Sequence[Expr]) -> Expr:
    """``node`` over the leaves that hold its operands; what is known of it stays."""
    if not isinstance(node, Call):
        return rebuild(node, leaves)
    op, args = (node.op, leaves) if isinstance(node.op, Op) else (leaves[0], leaves[1:])
    known = node.struct_info_
    return Call(op, args, node.attrs, node.sinfo_args, node.span, struct_info=known)


def _is_size(call: Call) -> bool:
    """Whether ``call`` is the value of symbolic dimensions, which dynamic_rows.py computes."""
    return (
        isinstance(call.op, Op)
        and call.op.name == "relax.shape_to_tensor"
        and isinstance(call.args[0], ShapeExpr)
        and any(map(symbolic_dim, call.args[0].values))
    )


def _has_computed_size(call: Call) -> bool:
    """Whether the size of a result depends on values, so that the machine computes it."""
    infos = [a.struct_info_ for a in call.args]
    return is_open(call.struct_info) and all(i is not None and not is_open(i) for i in infos)


def _says_more(info: StructInfo, declared: StructInfo | None) -> bool:
    """Whether ``info`` knows a shape that ``declared`` does not."""
    return (
        isinstance(info, TensorStructInfo)
        and info.dims is not None
        and isinstance(declared, TensorStructInfo)
        and declared.dims is None
    )


@register(requires=(UNDIVIDED,), ensures=(ROWS,), needed=True)
class LegalizeOps(Pass):
    """Lower every high-level operator to StableHLO rows, or to calls of loop-level functions.

    ``to``: "rows", or "kernels": calls (``R.call_tir``) of loop-level functions, which are added to
    the module, as TVM makes them; FuseOps, FuseTIR and schedules work on these. Operators whose
    shapes are not all known, or which have no such form, stay; a module of both builds and runs.
    What follows is about rows, except that ``customize_legalize_map`` and ``enable_warning`` mean
    the same for both.

    ``customize_legalize_map``: lowerings by operator name that take precedence. Each is called with
    a BlockBuilder and the call, as in TVM, and gives an expression, such as ``bb.call_te(...)``;
    operators in it are lowered, too, calls of functions that it adds to the module stay.
    An operator without a lowering stays, as in TVM: the machine computes it on the host, and
    ``build`` says what nothing can compute. So does one that cannot be lowered before the function
    runs, in a function that computes sizes, and what moves values between devices, which the
    machine does. ``enable_warning``: a warning names it; ``every``: it
    raises :class:`LegalizeError`.
    ``sources``: of functions, the parameters whose values are symbolic variables.
    Functions of symbolic shapes get StableHLO's dynamic operations (:class:`DynamicRows`); what has
    none raises :class:`LegalizeError`.
    """

    def __init__(
        self,
        customize_legalize_map: Mapping[str, CustomLowering] | None = None,
        enable_warning: bool = False,
        *,
        to: str = "rows",
        sources: Mapping[GlobalVar, Sources] | None = None,
        every: bool = False,
    ) -> None:
        if to not in _FORMS:
            raise ValueError(
                f"LegalizeOps: to is one of {', '.join(map(repr, _FORMS))}; got {to!r}"
            )
        self.to, self.warns = to, enable_warning
        self.custom = dict(customize_legalize_map or {})
        self.kept = _warn if enable_warning else None if every else _leave
        self.sources = dict(sources or {})
        if to == "kernels" and (sources or every):
            raise ValueError('LegalizeOps: sources and every are for to="rows"')
        if self.custom or not every:
            self.info = replace(self.info, ensures=())
        if to == "kernels":
            self.info = replace(self.info, requires=())

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if self.to == "kernels":
            return to_kernels(mod, self.custom, self.warns)
        new = dict(mod.functions)
        kernels = prim_funcs(mod)
        builder = BlockBuilder(mod)
        beyond = functools.cache(lambda: _recursive(mod))
        symbolic = {g: is_symbolic(f) for g, f in mod.relax_functions().items()}
        for gvar, func in mod.relax_functions().items():
            with in_function(gvar):
                if symbolic[gvar] or self.sources.get(gvar):
                    with symbolic_dims():
                        legalizer = _Legalizer(
                            *({}, True, self.kept, kernels, self.custom, builder),
                            later=computes_sizes(func),
                            beyond=beyond,
                        )
                        new[gvar] = legalizer.top(name_dimensions(func))
                else:
                    legalizer = _Legalizer(
                        *({}, False, self.kept, kernels, self.custom, builder), beyond=beyond
                    )
                    new[gvar] = legalizer.top(func)
        new.update((g, f) for g, f in builder.get().items() if g not in mod)
        mod = mod.replace(new)
        dynamic = any(symbolic.values()) or any(self.sources.values())
        return DynamicRows(self.sources).run(mod, context) if dynamic else mod


class LegalizeStatic(FunctionPass):
    """LegalizeOps for functions whose shapes are static, whatever their parameters say.

    ``lowerings`` by operator name take precedence; ``kernels`` are the loop-level functions that
    may be called. ``symbolic``: shapes are expressions of symbolic dimensions, and so are those of
    the rows, whose attributes hold them as well.
    """

    info = LegalizeOps.info

    def __init__(
        self,
        lowerings: Mapping[str, Lowering] | None = None,
        kernels: Kernels | None = None,
        symbolic: bool = False,
    ) -> None:
        self.lowerings, self.kernels, self.symbolic = lowerings or {}, kernels, symbolic

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        kernels = self.kernels or prim_funcs(mod)
        if not self.symbolic:
            return _Legalizer(self.lowerings, kernels=kernels).top(func)
        with symbolic_dims():
            return _Legalizer(self.lowerings, True, kernels=kernels).top(func)


def _recursive(mod: IRModule) -> set[GlobalVar]:
    """Functions that call themselves, by whatever way, and those that call them."""
    found = {g for group in detect_recursion(mod) for g in group}
    callers = {g: set(all_global_vars(f)) for g, f in mod.relax_functions().items()}
    new = set(found)
    while new:
        new = {g for g, called in callers.items() if g not in found and called & new}
        found |= new
    return found


def _leave(name: str) -> None:
    """Let an operator stay."""


def _warn(name: str) -> None:
    warnings.warn(f"{name} has no lowering to StableHLO; it stays", stacklevel=2)

"""Which parts of a function XLA can hold, and in which order the parts run (design decision D4).

:class:`Hosts` finds what has to run on the host, through all functions of a module. :func:`split`
cuts one sequence of bindings into steps: host steps, and regions that become one XLA program each.
A binding's stage is the number of regions that have to run before it at least; every pure binding
then moves to the last stage that serves all its users, so that as few regions as possible remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relax2xla import tir
from relax2xla.analysis.variables import all_global_vars, detect_recursion, free_vars, used_vars
from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    Op,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    Span,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    Var,
)
from relax2xla.ir.base import Attrs
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import definable_vars, dims_equal, free_symbolic_vars
from relax2xla.ir.rewrite import (
    Rewriter,
    bindings_of,
    children,
    deep_children,
    post_order,
    post_order_deep,
)
from relax2xla.ir.struct_info import show
from relax2xla.op.intrinsic import LATER
from relax2xla.transform.legalize import flatten_info, is_row
from relax2xla.vm.host import HOST, host_op

# Operators of function values and packed functions: what the machine does itself.
CALLS = frozenset(
    f"relax.{name}"
    for name in (
        "call_pure_packed",
        "call_dps_packed",
        "call_inplace_packed",
        "call_py_func",
        "call_builtin_with_ctx",
        "make_closure",
        "invoke_closure",
        "invoke_pure_closure",
    )
)


LEAVES = (Var, Constant, ShapeExpr, PrimValue, StringImm, DataTypeImm, ExternFunc)


def is_flat(value: Expr) -> bool:
    """Whether ``value`` is a call over leaves, of a known callee, as almost every binding's is."""
    return (
        isinstance(value, Call)
        and isinstance(value.op, Op | ExternFunc | GlobalVar)
        and all(isinstance(a, LEAVES) for a in value.args)
    )


def _used(value: Expr) -> list[Var]:
    """Variables that a value needs from outside."""
    if is_flat(value) and isinstance(value, Call):
        return list(dict.fromkeys(a for a in value.args if isinstance(a, Var)))
    return free_vars(value)


def sequences(root: Expr) -> Iterator[SeqExpr]:
    """All sequences in ``root``, those of branches and functions included, outer ones first."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, SeqExpr):
            yield node
            stack += [b.value for b in bindings_of(node) if not is_flat(b.value)]
            continue
        stack += [c for c in deep_children(node) if not isinstance(c, LEAVES)]


def place(span: Span | None) -> str:
    """The source's name of a thing, or where it is, without the callers."""
    while span is not None and span.kind in ("callsite", "fused") and span.children:
        span = span.children[0]
    if span is None:
        return ""
    return span.name or f"{span.file}:{span.line}:{span.column}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something runs on the host: what it is, and where the source says it."""

    what: str
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.what} (at {place(self.span)})" if self.span else self.what


class Hosts:
    """What of a module has to run on the host, and why."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.reasons: dict[GlobalVar, Reason | None] = {}
        self._inside: dict[int, tuple[Expr, Reason | None]] = {}
        functions = mod.relax_functions()
        self._local = {
            b.var: (b, node)
            for f in functions.values()
            for node in sequences(f)
            for b in bindings_of(node)
            if isinstance(b.value, Function)
        }
        self._callees = {g: all_global_vars(f) for g, f in functions.items()}
        calls = any(self._callees.values())
        recursive = {g for group in detect_recursion(mod) for g in group} if calls else set()
        for g in functions:
            self.reasons[g] = Reason(f"{g.name_hint} calls itself") if g in recursive else None
        for g, f in functions.items():
            if self.reasons[g] is None:
                self.reasons[g] = self._own(f)
        self._spread(functions)

    def _spread(self, functions: Mapping[GlobalVar, Function]) -> None:
        """Callers of functions that run on the host run there, too."""
        callers: dict[GlobalVar, list[GlobalVar]] = {}
        for g in functions:
            for callee in self._callees[g]:
                callers.setdefault(callee, []).append(g)
        todo = [g for g, reason in self.reasons.items() if reason is not None]
        while todo:
            callee = todo.pop()
            for g in callers.get(callee, ()):
                if self.reasons[g] is None:
                    self.reasons[g] = Reason(f"{callee.name_hint}: {self.reasons[callee]}")
                    todo.append(g)
        # What was found inside values before this was known is out of date.
        self._inside.clear()

    def _own(self, func: Function) -> Reason | None:
        for p in func.params:
            if not is_compiled(p.struct_info):
                return Reason(f"the parameter {p.name_hint} is {show(p.struct_info)}", p.span)
        reason = self.inside(func)
        if reason is None and not is_compiled(func.body.body.struct_info):
            return Reason(f"the result is {show(func.body.body.struct_info)}", func.span)
        return reason

    @nests
    def inside(self, root: Expr) -> Reason | None:
        """The first reason in a function, branch or sequence."""
        known = self._inside.get(id(root))
        if known is None:
            # The key is kept alive with the result, so that its id stays its own.
            known = self._inside[id(root)] = (root, self._find(root))
        return known[1]

    def _find(self, root: Expr) -> Reason | None:
        for seq in sequences(root):
            for b in bindings_of(seq):
                if isinstance(b.value, Function):
                    reason = self.closure(b.var)
                else:
                    reason = self.value(b.value, b)
                if reason is not None:
                    return reason
        return None

    def closure(self, var: Var) -> Reason | None:
        """Why the local function ``var`` is a closure of the machine, None where it is inlined."""
        if var not in self._local:
            return Reason(f"a call of {var.name_hint}")
        b, seq = self._local[var]
        span = b.span or b.var.span
        if b.var in used_vars(b.value):
            return Reason(f"{b.var.name_hint} calls itself", span)
        if any(b.var is v for v in _as_values(seq)):
            return Reason(f"the function {b.var.name_hint} is used as a value", span)
        return self.inside(b.value)

    def value(self, value: Expr, b: Binding) -> Reason | None:
        """Why the value that ``b`` binds cannot be part of an XLA program, if it cannot.

        LegalizeError for an operator that can run nowhere.
        """
        for node in (value,) if is_flat(value) else post_order(value):
            reason = self._node(node, node.span or b.span or b.var.span)
            if reason is not None:
                return reason
        return None

    def _node(self, node: Expr, span: Span | None) -> Reason | None:
        if isinstance(node, If):
            return self._if(node, span)
        if not isinstance(node, Call):
            return None
        op = node.op
        if isinstance(op, ExternFunc):
            return Reason(f"the packed function {op.global_symbol}", span)
        if isinstance(op, GlobalVar):
            if not isinstance(self.mod.functions.get(op), Function):
                raise LegalizeError(
                    f"the program calls {op.name_hint}, which is no Relax function of the module"
                    + (f" (at {span})" if span else "")
                )
            reason = self.reasons.get(op)
            return None if reason is None else Reason(f"{op.name_hint}: {reason}", span)
        if isinstance(op, Var):
            return self.closure(op)
        if not isinstance(op, Op):
            return None
        if op.name in CALLS:
            callee = node.args[0] if node.args else None
            named = ""
            if isinstance(callee, ExternFunc | StringImm):
                symbol = callee.value if isinstance(callee, StringImm) else callee.global_symbol
                named = f" of {symbol!r}"
            return Reason(f"{op.name}{named}", span)
        if host_op(node) is not None:
            return Reason(op.name, span)
        if op.lowering is None and not is_row(op) and op.name not in HOST:
            raise LegalizeError(
                LATER.get(op.name)
                or f"{op.name} has no lowering to StableHLO and no implementation on the host"
                + (f" (at {span})" if span else "")
            )
        if any(isinstance(a, GlobalVar) for a in node.args):
            return Reason("a function as a value", span)
        return None

    def _if(self, node: If, span: Span | None) -> Reason | None:
        for branch in (node.true_branch, node.false_branch):
            reason = self.inside(branch)
            if reason is not None:
                return reason
        yes, no = node.true_branch.body.struct_info, node.false_branch.body.struct_info
        if not same_arrays(yes, no):
            return Reason(f"If: its branches give {show(yes)} and {show(no)}", span)
        return None


def _as_values(seq: SeqExpr) -> Iterator[Var]:
    """Variables that ``seq`` uses otherwise than to call them, or as regions of rows."""
    for node in post_order_deep(seq):
        if isinstance(node, SeqExpr):
            tops = [*(b.value for b in bindings_of(node)), node.body]
            yield from (t for t in tops if isinstance(t, Var))
        elif isinstance(node, Call):
            if not is_row(node.op):
                yield from (a for a in node.args if isinstance(a, Var))
        else:
            yield from (c for c in children(node) if isinstance(c, Var))


def is_compiled(info: StructInfo) -> bool:
    """Whether XLA programs can take and give values of ``info``: arrays, shapes, numbers."""
    kinds = TensorStructInfo | ShapeStructInfo | PrimStructInfo
    return all(isinstance(leaf, kinds) for leaf in flatten_info(info))


def same_arrays(a: StructInfo, b: StructInfo) -> bool:
    """Whether two values are provably arrays of the same shapes and dtypes."""
    left, right = flatten_info(a), flatten_info(b)
    return len(left) == len(right) and all(
        isinstance(x, TensorStructInfo)
        and isinstance(y, TensorStructInfo)
        and bool(x.dtype)
        and x.dtype == y.dtype
        and dims_equal(x.dims, y.dims)
        for x, y in zip(left, right, strict=True)
    )


# ---- steps
@dataclass(frozen=True, slots=True)
class HostStep:
    """A binding that the machine runs itself; ``reason`` None: it costs nothing anywhere."""

    binding: Binding
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class DefineStep:
    """Symbolic variables that a cast inside a region defines, read off its value."""

    var: Var
    info: StructInfo
    wanted: tuple[tir.Var, ...]


@dataclass(frozen=True, slots=True)
class RegionStep:
    """``results = func(*args)``; ``symbols`` are passed as a last argument, a shape.

    ``ended``: what made an end of the region.
    """

    func: Function
    args: tuple[Var, ...]
    symbols: tuple[tir.Var, ...]
    results: tuple[Var, ...]
    operations: int
    ended: Reason | None


Step = HostStep | DefineStep | RegionStep


@dataclass(slots=True)
class _Item:
    """A binding with what it needs and where it goes."""

    binding: Binding
    variables: tuple[Var, ...]
    symbols: tuple[tir.Var, ...]
    defines: tuple[tir.Var, ...]
    reason: Reason | None = None
    host: bool = False
    flexible: bool = False
    stage: int = 0
    late: int = 0
    users: list[_Item] = field(default_factory=list["_Item"])
    returned: bool = False


def split(
    seq: SeqExpr, hosts: Hosts, macros: dict[Var, Binding], known: set[tir.Var]
) -> list[Step]:
    """The steps of a sequence, whose outer variables are at hand.

    ``macros``: local functions that are part of each region which calls them; those of the sequence
    are added. ``known``: symbolic variables that the machine knows; those it will learn are added.
    """
    return _Split(seq, hosts, macros, known).steps()


class _Split:
    def __init__(
        self, seq: SeqExpr, hosts: Hosts, macros: dict[Var, Binding], known: set[tir.Var]
    ) -> None:
        self.seq, self.hosts, self.macros, self.known = seq, hosts, macros, known
        self.items: list[_Item] = []
        self.of_var: dict[Var, _Item] = {}
        self.of_symbol: dict[tir.Var, _Item] = {}
        self.result = set(used_vars(seq.body))

    # -- what every binding is and needs

    def steps(self) -> list[Step]:
        for b in bindings_of(self.seq):
            self._add(b)
        self._settle()
        self._stages()
        return self._emit()

    def _add(self, b: Binding) -> None:
        reason = None
        if isinstance(b.value, Function):
            reason = self.hosts.closure(b.var)
            if reason is None:
                self.macros[b.var] = b
                return
        else:
            reason = self.hosts.value(b.value, b)
            if reason is None and not is_compiled(b.var.struct_info):
                if not _is_trivial(b.value):
                    _try_lowering(b.value)
                    reason = Reason(f"a value that is {show(b.var.struct_info)}", b.span)
        variables, symbols = self._needs(b.value)
        defines: tuple[tir.Var, ...] = ()
        if isinstance(b, MatchCast):
            free = free_symbolic_vars(b.struct_info)
            new = [v for v in definable_vars(b.struct_info) if v not in self.of_symbol]
            defines = tuple(v for v in new if v not in self.known)
            symbols.update((v, None) for v in free if v not in defines)
        item = _Item(b, tuple(variables), tuple(symbols), defines, reason)
        at_hand = all(
            v not in self.of_var or self._free(self.of_var[v]) for v in variables
        ) and all(s not in self.of_symbol or self._free(self.of_symbol[s]) for s in symbols)
        if reason is not None or not is_compiled(b.var.struct_info):
            item.host = True
        elif at_hand and _moves(b):
            fixed = all(v not in self.of_var or self.of_var[v].host for v in variables)
            item.host = fixed and bool(variables)
            item.flexible = not item.host
        elif at_hand:
            item.flexible = _is_light(b.value)
        for v in variables:
            if v in self.of_var:
                self.of_var[v].users.append(item)
        for s in symbols:
            if s in self.of_symbol:
                self.of_symbol[s].users.append(item)
        self.items.append(item)
        self.of_var[b.var] = item
        for s in defines:
            self.of_symbol[s] = item

    @staticmethod
    def _free(item: _Item) -> bool:
        """Whether the value is, or can be, on the host without running a region."""
        return item.host or item.flexible

    def _needs(self, value: Expr) -> tuple[dict[Var, None], dict[tir.Var, None]]:
        """Variables and symbolic variables that a value needs, those of local functions too."""
        variables: dict[Var, None] = {}
        symbols: dict[tir.Var, None] = dict.fromkeys(symbols_in(value))
        todo: list[Var] = _used(value)
        while todo:
            v = todo.pop()
            macro = self.macros.get(v)
            if macro is None:
                variables[v] = None
                symbols.update(dict.fromkeys(free_symbolic_vars(v.struct_info_)))
            else:
                todo += [u for u in free_vars(macro.value) if u not in variables]
                symbols.update(dict.fromkeys(symbols_in(macro.value)))
        return variables, symbols

    def _settle(self) -> None:
        """What is cheap on either side goes where its users are."""
        for item in reversed(self.items):
            item.returned = item.binding.var in self.result
            if item.flexible and (item.returned or any(u.host for u in item.users)):
                item.host = True

    # -- stages

    def _stages(self) -> None:
        effects = 0
        for item in self.items:
            sources = [self.of_var[v] for v in item.variables if v in self.of_var]
            sources += [self.of_symbol[s] for s in item.symbols if s in self.of_symbol]
            after = 1 if item.host else 0
            item.stage = max(
                (s.stage + (0 if s.host else after) for s in sources if s is not item), default=0
            )
            if item.host and item.reason is not None:
                item.stage = max(item.stage, effects)
                if _has_effect(item.binding.value):
                    effects = item.stage
        last = max((i.stage for i in self.items if not i.host), default=0)
        for item in reversed(self.items):
            limits = [u.stage - 1 if u.host else u.late for u in item.users]
            item.late = item.stage if item.host else min(limits, default=last)
            if not item.host:
                item.late = max(item.late, item.stage)

    # -- steps in order

    def _emit(self) -> list[Step]:
        made: list[Step] = []
        stages = max((i.late for i in self.items), default=0)
        pure: list[list[_Item]] = [[] for _ in range(stages + 1)]
        host: list[list[_Item]] = [[] for _ in range(stages + 1)]
        for item in self.items:
            (host if item.host else pure)[item.late].append(item)
        for stage in range(stages + 1):
            for item in host[stage]:
                made.append(HostStep(item.binding, item.reason))
                self.known.update(item.defines)
            following = host[stage + 1] if stage < stages else []
            ended = next((i.reason for i in following if i.reason is not None), None)
            made += self._region(pure[stage], stage, ended)
        return made

    def _region(self, items: Sequence[_Item], stage: int, ended: Reason | None) -> list[Step]:
        inside = set(map(id, items))
        bound = {i.binding.var for i in items}
        out: list[_Item] = []
        define: list[DefineStep] = []
        for item in items:
            outside = [u for u in item.users if id(u) not in inside]
            wanted = tuple(s for s in item.defines if any(s in u.symbols for u in outside))
            if item.returned or wanted or any(item.binding.var in u.variables for u in outside):
                out.append(item)
            if wanted:
                info = item.binding.struct_info if isinstance(item.binding, MatchCast) else None
                assert info is not None
                define.append(DefineStep(item.binding.var, info, wanted))
        if not out:
            return []
        live = _live(items, out)
        args = {v: None for i in live for v in i.variables if v not in bound}
        defined = {s for i in live for s in i.defines}
        needed = {s: None for i in live for s in i.symbols if s not in defined}
        readable = {s for v in args for s in definable_vars(v.struct_info)}
        symbols = tuple(s for s in needed if s not in readable)
        for s in symbols:
            if s not in self.known:
                raise LegalizeError(
                    f"the symbolic variable {s} is used before anything defines it; bind it with "
                    "R.match_cast"
                )
        results = tuple(i.binding.var for i in out)
        func = self._function([i.binding for i in live], tuple(args), symbols, results)
        step = RegionStep(func, tuple(args), symbols, results, len(live), ended)
        self.known.update(s for d in define for s in d.wanted)
        return [step, *define]

    def _function(
        self,
        bindings: Sequence[Binding],
        args: Sequence[Var],
        symbols: Sequence[tir.Var],
        results: Sequence[Var],
    ) -> Function:
        # Local functions stand right before their first use, where all that they capture is bound.
        ordered: list[Binding] = []
        placed: set[Var] = set()
        for b in bindings:
            todo = [(b, False)]
            while todo:
                at, ready = todo.pop()
                if ready:
                    ordered.append(at)
                    continue
                todo.append((at, True))
                for v in _used(at.value) if self.macros else ():
                    if v in self.macros and v not in placed:
                        placed.add(v)
                        todo.append((self.macros[v], False))
        params = [Var(v.name_hint, v.struct_info, v.span) for v in args]
        values: dict[Var, Expr] = dict(zip(args, params, strict=True))
        rewriter = _Plain(values=values)
        block = rewriter.block(BindingBlock(ordered))
        ends = [rewriter.expr(v) for v in results]
        body = SeqExpr([block], ends[0] if len(ends) == 1 else Tuple(ends))
        if symbols:
            params.append(Var("symbols", ShapeStructInfo(symbols)))
        return Function(params, body)


class _Plain(Rewriter):
    """A Rewriter that makes ordinary variables of all, for a function of its own."""

    def var(self, var: Var, info: StructInfo | None) -> Var:
        new = Var(var.name_hint, var.struct_info_ if info is None else info, var.span)
        self.env[var] = new
        return new


def _live(items: Sequence[_Item], out: Sequence[_Item]) -> list[_Item]:
    """The items that results depend on; casts stay, because they check."""
    needed = {i.binding.var for i in out}
    symbols = {s for i in out for s in i.symbols}
    kept: list[_Item] = []
    for item in reversed(items):
        cast = isinstance(item.binding, MatchCast)
        if cast or item.binding.var in needed or any(s in symbols for s in item.defines):
            kept.append(item)
            needed.update(item.variables)
            symbols.update(item.symbols)
    return kept[::-1]


def _try_lowering(value: Expr) -> None:
    """Raise the error of an operator that gives no array and has no place on the host."""
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.lowering is not None:
        args, kwargs = value.op.bind(value)
        rule: Callable[..., Expr] = value.op.lowering
        rule(*args, **kwargs)


def _is_trivial(value: Expr) -> bool:
    """Whether binding ``value`` computes nothing."""
    return not isinstance(value, Call | If | Function | SeqExpr)


def _moves(b: Binding) -> bool:
    """Whether the machine can do what ``b`` does without looking at arrays' values."""
    return isinstance(b, MatchCast) or isinstance(b.value, TupleGetItem | Var)


def _is_light(value: Expr) -> bool:
    if isinstance(value, Call):
        known = HOST.get(value.op.name) if isinstance(value.op, Op) else None
        return known is not None and known.light
    return isinstance(value, Tuple | ShapeExpr | PrimValue | Constant)


def _has_effect(value: Expr) -> bool:
    """Whether a host step keeps its place among the others with effects."""
    for node in post_order_deep(value):
        if isinstance(node, Call):
            if isinstance(node.op, Op):
                known = HOST.get(node.op.name)
                if (known is not None and known.effect) or not node.op.is_pure_call(node):
                    return True
            elif not isinstance(node.op, Function) and not _promised_pure(node.op):
                return True
    return False


def _promised_pure(callee: Expr) -> bool:
    info = callee.struct_info_
    return bool(getattr(info, "purity", False))


def symbols_in(root: Expr) -> list[tir.Var]:
    """Symbolic variables that evaluating ``root`` needs, except those it defines itself."""
    found: dict[tir.Var, None] = {}
    own: set[tir.Var] = set()

    def note(value: object) -> None:
        if isinstance(value, tir.PrimExpr):
            found.update(dict.fromkeys(tir.free_vars(value)))
        elif isinstance(value, StructInfo):
            found.update(dict.fromkeys(free_symbolic_vars(value)))
        elif isinstance(value, tuple):
            for v in value:
                note(v)
        elif isinstance(value, Attrs):
            for v in value.values():
                note(v)

    nodes: Iterable[Expr] = post_order_deep(root)
    if isinstance(root, Call) and is_flat(root):
        nodes = (*root.args, root)
    for node in nodes:
        if isinstance(node, ShapeExpr):
            note(node.values)
        elif isinstance(node, PrimValue):
            note(node.value)
        elif isinstance(node, Call):
            note(node.sinfo_args)
            note(node.attrs)
        elif isinstance(node, Function):
            own.update(v for p in node.params for v in definable_vars(p.struct_info))
        elif isinstance(node, SeqExpr):
            for b in bindings_of(node):
                if isinstance(b, MatchCast):
                    note(b.struct_info)
                    own.update(definable_vars(b.struct_info))
    return [v for v in found if v not in own]

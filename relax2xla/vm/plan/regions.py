"""In which order the parts of a function run: host steps, and regions for XLA (decision D4).

:func:`split` cuts one sequence of bindings into steps: host steps, and regions that become one XLA
program each. A binding's stage is the number of regions that have to run before it at least; every
pure binding then moves to the last stage that serves all its users, so that as few regions as
possible remain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relax2xla import tir
from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    If,
    MatchCast,
    Op,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    Tuple,
    TupleGetItem,
    Var,
)
from relax2xla.ir.lattice import definable_vars, free_symbolic_vars, result_info
from relax2xla.ir.rewrite import (
    Rewriter,
    bindings_of,
)
from relax2xla.ir.struct_info import show
from relax2xla.runtime.device import Device
from relax2xla.vm.host.operators import HOST
from relax2xla.vm.plan.host_reasons import HostReasons, Reason, devices, is_compiled


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

    ``ended``: what made an end of the region. ``device``: where it runs, None on the machine's own.
    """

    func: Function
    args: tuple[Var, ...]
    symbols: tuple[tir.Var, ...]
    results: tuple[Var, ...]
    operations: int
    ended: Reason | None
    device: Device | None = None


Step = HostStep | DefineStep | RegionStep


@dataclass(slots=True)
class _Item:
    """A binding with what it needs and where it goes."""

    binding: Binding
    variables: tuple[Var, ...]
    symbols: tuple[tir.Var, ...]
    defines: tuple[tir.Var, ...]
    reason: Reason | None
    effect: bool
    device: Device | None = None
    host: bool = False
    flexible: bool = False
    stage: int = 0
    late: int = 0
    users: list[_Item] = field(default_factory=list["_Item"])
    returned: bool = False


def split(
    seq: SeqExpr, hosts: HostReasons, macros: dict[Var, Binding], known: set[tir.Var]
) -> list[Step]:
    """The steps of a sequence, whose outer variables are at hand.

    ``macros``: local functions that are part of each region which calls them; those of the sequence
    are added. ``known``: symbolic variables that the machine knows; those it will learn are added.
    """
    return _Split(seq, hosts, macros, known).steps()


class _Split:
    def __init__(
        self, seq: SeqExpr, hosts: HostReasons, macros: dict[Var, Binding], known: set[tir.Var]
    ) -> None:
        self.seq, self.hosts, self.macros, self.known = seq, hosts, macros, known
        self.items: list[_Item] = []
        self.of_var: dict[Var, _Item] = {}
        self.of_symbol: dict[tir.Var, _Item] = {}
        self.result = set(hosts.needs.of(seq.body).variables)

    # -- what every binding is and needs

    def steps(self) -> list[Step]:
        for b in bindings_of(self.seq):
            self._add(b)
        self._settle()
        if self.hosts.apart:
            return self._one_by_one()
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
        facts = self.hosts.needs.inlined(b.value, self.macros)
        variables = facts.variables
        symbols = dict.fromkeys(facts.symbols)
        # What a cast inside checks has to be known there.
        symbols.update((s, None) for s in facts.casts if s in self.known or s in self.of_symbol)
        for v in variables:
            symbols.update(dict.fromkeys(free_symbolic_vars(v.struct_info_)))
        defines: tuple[tir.Var, ...] = ()
        if isinstance(b, MatchCast):
            free = free_symbolic_vars(b.struct_info)
            new = [v for v in definable_vars(b.struct_info) if v not in self.of_symbol]
            defines = tuple(v for v in new if v not in self.known)
            symbols.update((v, None) for v in free if v not in defines)
        where = devices(b.var.struct_info) if self.hosts.placed else []
        device = where[0] if where else None
        item = _Item(b, variables, tuple(symbols), defines, reason, facts.effect, device)
        at_hand = all(
            v not in self.of_var or self._free(self.of_var[v]) for v in variables
        ) and all(s not in self.of_symbol or self._free(self.of_symbol[s]) for s in symbols)
        if reason is not None or not is_compiled(b.var.struct_info) or len(where) > 1:
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
            item.stage = max(
                (s.stage + _after(s, item) for s in sources if s is not item), default=0
            )
            if item.host and item.reason is not None:
                item.stage = max(item.stage, effects)
                if item.effect:
                    effects = item.stage
        last = max((i.stage for i in self.items if not i.host), default=0)
        for item in reversed(self.items):
            limits = [(u.stage if u.host else u.late) - _after(item, u) for u in item.users]
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
            for device in dict.fromkeys(i.device for i in pure[stage]):
                made += self._region([i for i in pure[stage] if i.device == device], device, ended)
        return made

    def _one_by_one(self) -> list[Step]:
        """The bindings in their order, each that computes anything a region of its own."""
        made: list[Step] = []
        for item in self.items:
            b = item.binding
            if item.host or item.flexible or isinstance(b, MatchCast) or _is_trivial(b.value):
                made.append(HostStep(b, item.reason))
                self.known.update(item.defines)
            else:
                made += self._region([item], item.device, None)
        return made

    def _region(
        self, items: Sequence[_Item], device: Device | None, ended: Reason | None
    ) -> list[Step]:
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
            # Nobody reads these; casts are checked all the same.
            out = [i for i in items if isinstance(i.binding, MatchCast)]
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
        step = RegionStep(func, tuple(args), symbols, results, len(live), ended, device)
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
                for v in self.hosts.needs.of(at.value).variables if self.macros else ():
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
        return Function(params, body, result_info(params, body.struct_info))


class _Plain(Rewriter):
    """A Rewriter that makes ordinary variables of all, for a function of its own."""

    def var(self, var: Var, info: StructInfo | None) -> Var:
        new = Var(var.name_hint, var.struct_info_ if info is None else info, var.span)
        self.env[var] = new
        return new


def _after(source: _Item, user: _Item) -> int:
    """1 where the program of ``source`` has to end before ``user``, else 0."""
    return int(not source.host and (user.host or user.device != source.device))


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

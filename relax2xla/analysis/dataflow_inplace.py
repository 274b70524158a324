"""Which operators of a dataflow block could write into their operands: lives, aliases, places.

The names and meaning of what TVM shows as ``tvm.relax.testing.transform``. XLA does the same for
its own programs; this is for code generators, and to see what a program leaves to reuse. Alias sets
are sets of numbers, one for each value in memory; -1 is a value from outside of the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from relax2xla import tir
from relax2xla.analysis.variables import all_vars, free_vars
from relax2xla.ir.expr import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    PrimValue,
    Tuple,
    TupleGetItem,
    Var,
)
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import Op, is_op
from relax2xla.ir.struct_info import (
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

AliasSet: TypeAlias = set[int]
OUTSIDE: Final = -1
INPLACE: Final = frozenset(
    f"relax.{n}" for n in ("add", "subtract", "multiply", "divide", "nn.silu", "nn.relu")
)


def dataflow_liveness_analysis(block: DataflowBlock) -> dict[Var, tuple[int, int]]:
    """From which binding of the block to which each variable is needed.

    -1: from before the block; the number of bindings: after the block. Taking a field of a tuple
    does not count as a use of it.
    """
    count = len(block.bindings)
    found: dict[Var, tuple[int, int]] = {}
    for i in reversed(range(count)):
        b = block.bindings[i]
        for var in _read(b.value):
            end = i if isinstance(var, DataflowVar) else count
            found.setdefault(var, (-1, end))
        last = i if isinstance(b.var, DataflowVar) else count
        found[b.var] = (i, found[b.var][1] if b.var in found else last)
    return found


def _read(value: Expr) -> Sequence[Var]:
    if isinstance(value, TupleGetItem):
        return ()
    return free_vars(value) if isinstance(value, Function) else all_vars(value)


def dataflow_alias_analysis(
    block: DataflowBlock, inputs: Iterable[Var]
) -> tuple[dict[Var, AliasSet], dict[int, list[AliasSet]]]:
    """What each variable may be in memory, and what the fields of the tuples among that may be.

    ``inputs``: the parameters of the function, which are taken to be apart. Results of functions
    and of packed functions may be new or any of the arguments, so these sets grow with the calls.
    """
    aliases = _Aliases()
    for var in inputs:
        aliases.of_var[var] = {aliases.fresh(var.struct_info_)}
    for b in block.bindings:
        aliases.of_var[b.var] = aliases.of(b.value, b)
    return aliases.of_var, aliases.fields


class _Aliases:
    """The sets by variable, and by the number of a tuple those of its fields."""

    def __init__(self) -> None:
        self.of_var: dict[Var, AliasSet] = {}
        self.fields: dict[int, list[AliasSet]] = {}
        self._count = 0

    def fresh(self, info: StructInfo | None = None) -> int:
        """The number of a new value, and of the fields that ``info`` says it has."""
        number, self._count = self._count, self._count + 1
        if isinstance(info, TupleStructInfo):
            # A tuple's own number comes before those of its fields, level by level.
            fields: list[AliasSet] = []
            for inner in info.fields:
                fields.append({self.fresh(inner)})
            self.fields[number] = fields
        return number

    def of(self, value: Expr, b: Binding) -> AliasSet:
        """What ``value``, which ``b`` binds, may be."""
        match value:
            case Var():
                return set(self.of_var.get(value, {OUTSIDE}))
            case Tuple():
                number = self.fresh()
                self.fields[number] = [self.of(f, b) for f in value.fields]
                return {number}
            case TupleGetItem():
                return self._field(self.of(value.tuple_value, b), value.index)
            case Call() if not isinstance(value.op, Op):
                return self._unknown(value.args, b)
            case Call() if is_op(value, "relax.call_pure_packed"):
                return self._unknown(value.args[1:], b)
            case Call():
                return {self.fresh(b.var.struct_info_)}
            case Constant() | PrimValue() | Function():
                return {self.fresh()}
            case _:
                return set()

    def _field(self, tuples: AliasSet, index: int) -> AliasSet:
        if OUTSIDE in tuples:
            return {OUTSIDE}
        known = (self.fields[t] for t in tuples if t in self.fields)
        return {n for fields in known if index < len(fields) for n in fields[index]}

    def _unknown(self, args: Sequence[Expr], b: Binding) -> AliasSet:
        """The result of unknown code: new, or anything that its arguments hold."""
        number = self.fresh(b.var.struct_info_)
        starts = {number}.union(*(self.of(a, b) for a in args))
        found = _held(starts, self.fields)
        for t in _held({number}, self.fields):
            for field in self.fields.get(t, ()):
                field |= found
        return found


Places: TypeAlias = list[tuple[int, set[int]]]


def dataflow_inplace_analysis(
    block: DataflowBlock, inputs: Iterable[Var], mod: IRModule
) -> tuple[Places, Places]:
    """Which bindings could write into which of their operands: (binding, operands) each.

    Operands that nothing needs any more, first those that are large enough, then those of exactly
    the result's shape. Operators are those of which TVM says so: sums, products, relu, silu.
    """
    lives = dataflow_liveness_analysis(block)
    aliases, fields = dataflow_alias_analysis(block, inputs)
    holders: dict[int, list[Var]] = {}
    for var, numbers in aliases.items():
        for n in numbers:
            holders.setdefault(n, []).append(var)
    enough: Places = []
    exact: Places = []
    for i, b in enumerate(block.bindings):
        if not isinstance(b.value, Call) or not isinstance(b.value.op, Op):
            continue
        if b.value.op.name not in INPLACE:
            continue
        fits = {j: _fit(b.var.struct_info_, a.struct_info_) for j, a in enumerate(b.value.args)}
        free = {
            j
            for j, fit in fits.items()
            if fit is not None and _is_free(b.value.args[j], i, lives, aliases, fields, holders)
        }
        if free:
            enough.append((i, free))
            if same := {j for j in free if fits[j]}:
                exact.append((i, same))
    return enough, exact


def _fit(result: StructInfo | None, operand: StructInfo | None) -> bool | None:
    """Whether an operand has the shape of the result; None where it may not be large enough."""
    if not isinstance(result, TensorStructInfo) or not isinstance(operand, TensorStructInfo):
        return None
    a, b = result.dims, operand.dims
    if a is None or b is None or not result.dtype or result.dtype != operand.dtype:
        return None
    if len(a) == len(b) and all(tir.can_prove_equal(x, y) for x, y in zip(a, b, strict=True)):
        return True
    sizes = [_elements(dims) for dims in (a, b)]
    large = isinstance(sizes[0], int) and isinstance(sizes[1], int) and sizes[1] >= sizes[0]
    return False if large or tir.can_prove_equal(sizes[0], sizes[1]) else None


def _elements(dims: Iterable[tir.Dim]) -> tir.Dim:
    total: tir.Dim = 1
    for d in dims:
        total = total * d
    return total


def _is_free(
    value: Expr,
    at: int,
    lives: Mapping[Var, tuple[int, int]],
    aliases: Mapping[Var, AliasSet],
    fields: Mapping[int, Sequence[AliasSet]],
    holders: Mapping[int, Sequence[Var]],
) -> bool:
    """Whether nothing needs ``value`` after binding ``at``, under any name."""
    if isinstance(value, Tuple):
        return all(_is_free(f, at, lives, aliases, fields, holders) for f in value.fields)
    if not isinstance(value, Var):
        # A constant is needed at the next run.
        return False
    if value in lives and lives[value][1] > at:
        return False
    held = _held(aliases.get(value, {OUTSIDE}), fields)
    if OUTSIDE in held:
        return False
    others = (v for n in held for v in holders.get(n, ()) if v is not value and v in lives)
    return not any(lives[v][0] <= at < lives[v][1] for v in others)


def _held(starts: Iterable[int], fields: Mapping[int, Sequence[AliasSet]]) -> AliasSet:
    """``starts`` and what the tuples among them hold."""
    found: AliasSet = set()
    todo = list(starts)
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += [n for field in fields.get(number, ()) for n in field]
    return found

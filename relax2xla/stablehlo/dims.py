"""Dimensions that a StableHLO program proves equal: the reader's fresh variables are tied.

Facts come from a function's own body, which runs whole: element-wise rows take operands of one
shape, contracted dimensions are alike, a dynamic row's result has the shape that its operand says,
and jax.export's shape assertions hold. Regions are not looked into, for they may not run. A ``?``
never becomes a number or loses its ``?``: the program is written back as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.ir.expr import (
    Binding,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    MatchCast,
    Var,
)
from relax2xla.ir.lattice import definable_vars, erase
from relax2xla.ir.rewrite import Rewriter, bindings_of
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.stablehlo.rows import RowOp
from relax2xla.tir import Dim

# Rules of infer.py whose operands, from the given one on, have one shape.
_ALIKE: Final = {"same": 0, "predicate": 0, "complex_of": 0, "selected": 1}
# Rows whose result has the shape that is the value of an operand.
_SHAPED: Final = {
    "stablehlo.dynamic_broadcast_in_dim": 1,
    "stablehlo.dynamic_iota": 0,
    "stablehlo.dynamic_reshape": 1,
}
_ARITHMETIC: Final = {
    "stablehlo.add": lambda a, b: a + b,
    "stablehlo.subtract": lambda a, b: a - b,
    "stablehlo.multiply": lambda a, b: a * b,
}
_SAME_VALUE: Final = frozenset({"stablehlo.reshape", "stablehlo.convert"})
# Attributes that name functions.
_NAMING: Final = frozenset({"decomposition", "called_computations", "programs"})
# Integer tensors of more elements are no shapes.
_MOST: Final = 16

Sizes = tuple[Any, ...]


# A call's arguments: the sizes that integers are, and the dimensions of each.
Arguments = list[tuple[Sizes | None, tuple[Dim, ...] | None]]


def tied(functions: Mapping[GlobalVar, Function]) -> dict[GlobalVar, Function]:
    """The functions with one variable for all dimensions that are proved equal.

    A private function that is called once knows what its caller knows of the arguments.
    """
    calls = [
        b.value for f in functions.values() for b in _all_bindings(f) if isinstance(b.value, Call)
    ]
    callers = Counter(c.op for c in calls if isinstance(c.op, GlobalVar))
    if any(not _NAMING.isdisjoint(c.attrs) for c in calls):
        callers.clear()  # Functions may have callers that name them in attributes.
    given: dict[GlobalVar, Arguments] = {}
    made: dict[GlobalVar, Function] = {}
    todo = [g for g, f in functions.items() if callers[g] != 1 or "global_symbol" in f.attrs]
    while todo:
        gvar = todo.pop()
        made[gvar], facts = _tied(functions[gvar], given.get(gvar))
        for callee, arguments in facts.calls.items():
            if callers[callee] == 1 and callee in functions and callee not in made:
                if "global_symbol" not in functions[callee].attrs:
                    given[callee] = arguments
                    todo.append(callee)
    # What is left is called from within regions, or by functions that call each other.
    return {g: made.get(g) or _tied(f, None)[0] for g, f in functions.items()}


def _all_bindings(func: Function) -> Iterator[Binding]:
    """The bindings of a function and of all regions in it."""
    stack = [func]
    while stack:
        for b in bindings_of(stack.pop().body):
            yield b
            if isinstance(b.value, Function):
                stack.append(b.value)


def _tied(func: Function, arguments: Arguments | None) -> tuple[Function, _Facts]:
    facts = _Facts(func)
    if arguments is not None:
        facts.arguments(func.params, arguments)
    for b in bindings_of(func.body):
        if isinstance(b, MatchCast) and isinstance(b.value, Var):
            facts.shapes(b.struct_info, facts.known.get(b.value))
        elif isinstance(b.value, Call):
            facts.call(b.var, b.value)
        elif isinstance(b.value, Constant):
            facts.constant(b.var, b.value)
    env = facts.environment()
    if not env:
        return func, facts
    made = _Tier(env).function(func)
    return made, facts


class _Tier(Rewriter):
    """A Rewriter that keeps what is known of calls, and of regions what is visible around them."""

    def __init__(self, env: Mapping[tir.Var, Dim]) -> None:
        super().__init__(symbolic=env)
        self.defined: set[tir.Var] = set()

    def binding(self, b: Binding) -> Binding:
        new = super().binding(b)
        if isinstance(new, MatchCast):
            self.defined.update(definable_vars(new.struct_info))
        elif isinstance(b.value, Call) and new.value.struct_info_ is None:
            # A call of a function whose struct info is not known yet.
            known = b.value.struct_info_
            new.value.struct_info_ = None if known is None else self.info(known)
        return new

    def function(self, func: Function) -> Function:
        outside = set(self.defined)
        params = [self.info(p.struct_info) for p in func.params]
        self.defined.update(v for info in params for v in definable_vars(info))
        seen = set(self.defined)
        made = super().function(func)
        self.defined = outside
        known = made.body.struct_info_
        ret = made.ret_struct_info if known is None else erase(known, lambda v: v in seen)
        return made if ret == made.ret_struct_info else made.replace(ret_struct_info=ret)


class _Facts:
    """What is known so far in one function."""

    def __init__(self, func: Function) -> None:
        # Variables in order of definition: the first one of equals stays.
        self.order: dict[tir.Var, int] = {}
        self.equal: dict[tir.Var, Dim] = {}
        self.sizes: dict[Expr, Sizes] = {}
        self.known: dict[Var, Sizes] = {}
        self.calls: dict[GlobalVar, Arguments] = {}
        self.compared: dict[Expr, tuple[Dim, Dim]] = {}
        for p in func.params:
            self.define(p.struct_info)
        for b in bindings_of(func.body):
            self.define(b.struct_info if isinstance(b, MatchCast) else b.var.struct_info_)

    def define(self, info: StructInfo | None) -> None:
        """Note the variables of ``info`` in their order."""
        if isinstance(info, TupleStructInfo):
            for f in info.fields:
                self.define(f)
        elif isinstance(info, TensorStructInfo):
            for d in info.dims or ():
                if not isinstance(d, int):
                    for v in tir.free_vars(d):
                        self.order.setdefault(v, len(self.order))

    def arguments(self, params: Sequence[Var], given: Arguments) -> None:
        """What the only caller knows: sizes that are the same there are the same here."""
        own: dict[Dim, Dim] = {}
        for p, (_, dims) in zip(params, given, strict=True):
            for mine, theirs in zip(_dims(p.struct_info_) or (), dims or (), strict=False):
                self.equate(mine, own.setdefault(theirs, mine))
        for p, (sizes, _) in zip(params, given, strict=True):
            if sizes is not None and all(isinstance(s, int) or s in own for s in sizes):
                self.sizes[p] = tuple(s if isinstance(s, int) else own[s] for s in sizes)

    # ---- facts of bindings
    def constant(self, var: Var, value: Constant) -> None:
        """A small integer constant may be a shape."""
        data = value.data
        if data.dtype.kind in "iu" and data.size <= _MOST:
            self.sizes[var] = tuple(int(v) for v in data.reshape(-1))

    def call(self, var: Var, call: Call) -> None:
        """What one row says."""
        if isinstance(call.op, GlobalVar):
            self.calls[call.op] = [
                (
                    None if a not in self.sizes else tuple(map(self.resolve, self.sizes[a])),
                    None
                    if (dims := _dims(a.struct_info_)) is None
                    else tuple(map(self.resolve, dims)),
                )
                for a in call.args
            ]
        if not isinstance(call.op, RowOp):
            return
        row = call.op.row
        args = call.args
        if row.infer in _ALIKE:
            infos = [a.struct_info_ for a in args[_ALIKE[row.infer] :]]
            for info in (*infos[1:], var.struct_info_):
                self.shapes(info, _dims(infos[0]))
        if row.mlir_name == "stablehlo.convert":
            self.known[var] = _dims(args[0].struct_info_) or ()
            self.value(var, row.mlir_name, call)
        elif row.mlir_name in _SHAPED:
            self.known[var] = self.sizes.get(args[_SHAPED[row.mlir_name]], ())
        elif row.mlir_name == "stablehlo.dot_general":
            self.dot(args, call.attrs["dot_dimension_numbers"])
        elif row.mlir_name == "stablehlo.custom_call":
            if call.attrs["call_target_name"] == "shape_assertion" and args[0] in self.compared:
                self.equate(*self.compared[args[0]])
        else:
            self.value(var, row.mlir_name, call)

    def value(self, var: Var, name: str, call: Call) -> None:
        """The value of a row that computes with sizes."""
        args = call.args
        if name == "stablehlo.get_dimension_size":
            dims = _dims(args[0].struct_info_)
            if dims:
                self.sizes[var] = (dims[call.attrs["dimension"]],)
            return
        held = [self.sizes.get(a) for a in args]
        given = [h for h in held if h is not None]
        if not given or len(given) < len(held):
            return
        if name in _SAME_VALUE:
            self.sizes[var] = given[0]
        elif name == "stablehlo.concatenate" and sum(map(len, given)) <= _MOST:
            self.sizes[var] = tuple(v for g in given for v in g)
        elif name in _ARITHMETIC and len(given[0]) == len(given[1]):
            pairs = zip(*given, strict=True)
            self.sizes[var] = tuple(_simple(_ARITHMETIC[name](a, b)) for a, b in pairs)
        elif name == "stablehlo.compare" and call.attrs["comparison_direction"] == "EQ":
            if len(given[0]) == len(given[1]) == 1:
                self.compared[var] = given[0][0], given[1][0]

    def dot(self, args: Sequence[Expr], numbers: Mapping[str, Any]) -> None:
        """Batch and contracted dimensions are alike."""
        left, right = (_dims(a.struct_info_) for a in args[:2])
        if left is None or right is None:
            return
        for kind in ("batching", "contracting"):
            pairs = (numbers.get(f"{side}_{kind}_dimensions", ()) for side in ("lhs", "rhs"))
            for i, j in zip(*pairs, strict=True):
                self.equate(left[i], right[j])

    # ---- equality
    def shapes(self, info: StructInfo | None, other: Sequence[Dim] | None) -> None:
        """``info`` has the dimensions ``other``."""
        dims = _dims(info)
        if dims is not None and other is not None and len(dims) == len(other):
            for a, b in zip(dims, other, strict=True):
                self.equate(a, b)

    def equate(self, a: Dim, b: Dim) -> None:
        """Both are the same size; the one that is defined later goes."""
        a, b = self.resolve(a), self.resolve(b)
        for later, earlier in ((a, b), (b, a)):
            if not isinstance(later, tir.Var) or isinstance(earlier, int):
                continue
            used = tir.free_vars(earlier)
            if used and all(self.order.get(v, -1) < self.order.get(later, -1) for v in used):
                self.equal[later] = earlier
                return

    def resolve(self, d: Dim) -> Dim:
        """``d`` by the equalities known so far."""
        while not isinstance(d, int) and any(v in self.equal for v in tir.free_vars(d)):
            new = tir.substitute(d, {v: self.equal[v] for v in tir.free_vars(d) if v in self.equal})
            d = _simple(new)
        return d

    def environment(self) -> dict[tir.Var, Dim]:
        """What to put in place of each variable that goes."""
        resolved = {v: self.resolve(d) for v, d in self.equal.items()}
        return {v: d for v, d in resolved.items() if not isinstance(d, int)}


def _dims(info: StructInfo | None) -> tuple[Dim, ...] | None:
    return info.dims if isinstance(info, TensorStructInfo) else None


def _simple(value: Any) -> Dim:
    return value if isinstance(value, int) else tir.as_dim(tir.simplify(value))

"""Delta debugging of modules: smaller ones that are still well-formed, and still interesting.

An edit makes a smaller module without a range of things: of functions, results, the bindings of a
sequence, branches, arrays. Ranges begin with all that there are, and end with single things; the
search goes on with what is interesting, until no edit makes it smaller any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np

from relax2xla.analysis import all_global_vars, remove_all_unused, used_vars
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.check import check_well_formed
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.ir.rewrite import (
    Rewriter,
    bindings_deep,
    bindings_of,
    children,
    holders_deep,
    post_order_deep,
)
from relax2xla.ir.struct_info import flatten_info
from relax2xla.transform import (
    DeadCodeElimination,
    InlinePrivateFunctions,
    RemoveUnusedOutputs,
    RemoveUnusedParameters,
)

Interesting = Callable[[IRModule], bool]
Way = Callable[[], IRModule]

#: What a function must keep to be called, and to be allowed what it does.
_NEEDED: Final = ("global_symbol", "sym_name", "relax.force_pure")
# Zeros of at most so many bytes take the place of a value; larger ones become inputs.
_MOST_ZEROS: Final = 1 << 20
# The size that a symbolic dimension is tried with.
_SIZE: Final = 2


class Cost(NamedTuple):
    """How large a module is; what stands first weighs more than all that follows."""

    bindings: int
    constants: int
    results: int
    parameters: int
    symbols: int
    attributes: int


def cost(mod: IRModule) -> Cost:
    """The size of ``mod``: functions count as bindings, and ``constants`` are bytes."""
    funcs = list(mod.relax_functions().values())
    held = {id(c.data): c.data.nbytes for f in funcs for c in _constants(f)}
    return Cost(
        len(mod.functions) + sum(1 for f in funcs for _ in bindings_deep(f)),
        sum(held.values()),
        sum(len(list(flatten_info(f.ret_struct_info))) for f in funcs),
        sum(len(f.params) for f in funcs),
        len({v for f in funcs for p in f.params for v in free_symbolic_vars(p.struct_info)}),
        sum(len(f.attrs) for f in funcs),
    )


def shrunk(mod: IRModule, interesting: Interesting) -> IRModule:
    """The smallest module found that is ``interesting``, as ``mod`` must be.

    ``interesting`` is asked of well-formed modules that are smaller than the last one that was; it
    may raise, which ends the search.
    """
    while True:
        before = cost(mod)
        for edit in _EDITS:
            mod = _sweep(mod, edit, interesting)
        if cost(mod) == before:
            return mod


@dataclass(frozen=True, slots=True)
class Range:
    """Things ``start`` to ``stop`` of a function (``name``), in its sequence number ``seq``."""

    name: str
    seq: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Edit:
    """One way to make a module smaller.

    things: how many things there are, by function and sequence
    make: ways to go without those of a range, the ones that keep most of the program first
    """

    things: Callable[[IRModule], Mapping[tuple[str, int], int]]
    make: Callable[[IRModule, Range], Iterator[Way]]


def _sweep(mod: IRModule, edit: Edit, interesting: Interesting) -> IRModule:
    """All that ``edit`` takes away from ``mod``, in ranges that become smaller, from the end on."""
    for key in edit.things(mod):
        size = edit.things(mod).get(key, 0)
        while size:
            stop = edit.things(mod).get(key, 0)
            while stop > 0:
                start = max(0, stop - size)
                smaller = _first(mod, edit, Range(*key, start, stop), interesting)
                mod = mod if smaller is None else smaller
                # What fed them may have gone as well.
                stop = min(start, edit.things(mod).get(key, 0))
            size //= 2
    return mod


def _first(mod: IRModule, edit: Edit, at: Range, interesting: Interesting) -> IRModule | None:
    known = cost(mod)
    for make in edit.make(mod, at):
        try:
            made = DeadCodeElimination()(make())
            check_well_formed(made)
        except TVMError:  # a rule of inference, of a pass or of form that the edit breaks
            continue
        if cost(made) < known and interesting(made):
            return made
    return None


# -- one function with something else in it --------------------------------------------------------
class _Edited(Rewriter):
    """Rebuild without ``dropped`` variables, which become expressions, with branches inlined."""

    def __init__(
        self,
        dropped: Mapping[Var, Expr],
        outputs: Iterable[Var] = (),
        inlined: Mapping[Var, SeqExpr] | None = None,
        constants: Mapping[int, Var] | None = None,
    ) -> None:
        self.constants = constants or {}
        super().__init__(values=dropped, rule=self.constant if constants else None)
        self.dropped = set(dropped)
        self.outputs = set(outputs)
        self.inlined = inlined or {}

    def constant(self, node: Expr) -> Expr | None:
        """The parameter that takes the place of an array."""
        return self.constants.get(id(node.data)) if isinstance(node, Constant) else None

    def var(self, var: Var, info: StructInfo | None) -> Var:
        """The variable at its definition; results of a dataflow block are seen outside."""
        if var not in self.outputs or not isinstance(var, DataflowVar):
            return super().var(var, info)
        self.env[var] = made = Var(var.vid, info, var.span)
        return made

    def block(self, block: BindingBlock) -> BindingBlock:
        """A block without what is dropped."""
        made: list[Binding] = []
        for b in block.bindings:
            if b.var in self.dropped:
                continue
            if b.var in self.inlined:
                branch = self.inlined[b.var]
                made += [self.binding(inner) for inner in bindings_of(branch)]
                if isinstance(branch.body, Var):
                    self.env[b.var] = self.expr(branch.body)
                    continue
                b = VarBinding(b.var, branch.body, b.span)
            made.append(self.binding(b))
        return type(block)(made, block.span)


def _edited(
    mod: IRModule,
    name: str,
    walk: _Edited,
    inputs: Iterable[Var] = (),
    result: Expr | None = None,
) -> IRModule:
    """``mod`` with one function under ``walk``; ``inputs`` that it then reads are parameters."""
    func: Function = mod[name]
    body = walk.seq(func.body)
    if result is not None:
        body = SeqExpr(body.blocks, walk.expr(result), body.span)
    info = func.ret_struct_info if body.struct_info_ == func.body.struct_info_ else None
    made = remove_all_unused(Function(func.params, body, info, func.is_pure, func.attrs, func.span))
    used = set(used_vars(made.body))
    params = (*made.params, *(v for v in inputs if v in used))
    return _with(mod, name, made.replace(params=params))


def _with(mod: IRModule, name: str, func: Function) -> IRModule:
    return mod.replace({**mod.functions, mod.get_global_var(name): func})


def _sequences(func: Function) -> list[SeqExpr]:
    return [node for node in holders_deep(func) if isinstance(node, SeqExpr)]


def _constants(func: Function) -> Iterator[Constant]:
    return (n for n in post_order_deep(func) if isinstance(n, Constant) and n.data.ndim)


def _by_function(things: Callable[[Function], int]) -> Any:
    """Counts of one kind of things, in the functions as a whole."""
    return lambda mod: {(g.name_hint, 0): things(f) for g, f in mod.relax_functions().items()}


def _entries(mod: IRModule) -> dict[str, Function]:
    """The functions that nothing in the module calls: their signatures are free to change."""
    funcs = mod.relax_functions()
    called = {g for f in funcs.values() for g in all_global_vars(f)}
    return {g.name_hint: f for g, f in funcs.items() if g not in called}


# -- values that take the place of others ----------------------------------------------------------
def _zeros(info: StructInfo | None) -> Expr | None:
    """Zeros of ``info``; None where its sizes are not known, or they were too many."""
    match info:
        case TensorStructInfo(dtype=dtype, dims=dims) if dtype and dims is not None:
            sizes = [d for d in dims if isinstance(d, int)]
            zero = np.zeros((), numpy_dtype(dtype))
            if len(sizes) < len(dims) or zero.nbytes * np.prod(sizes, initial=1) > _MOST_ZEROS:
                return None
            return Constant(np.broadcast_to(zero, sizes), info)
        case TupleStructInfo(fields=fields):
            made = [z for f in fields if (z := _zeros(f)) is not None]
            return Tuple(made) if len(made) == len(fields) else None
        case ShapeStructInfo(values=values) if values is not None:
            return ShapeExpr(values)
        case PrimStructInfo(dtype=dtype):
            return PrimValue(0) if dtype.startswith(("int", "uint")) else None
        case _:
            return None


def _operand(b: Binding, taken: Mapping[Var, Expr]) -> Expr | None:
    """What a call is made of and could be in its place; ``taken``: what went, and what for."""
    if not isinstance(b.value, Call):
        return None
    for a in children(b.value):
        # What one block computes is not seen in another one.
        if isinstance(a, Var) and a.struct_info_ == b.var.struct_info_:
            found = taken.get(a, a)
            if not isinstance(found, DataflowVar) or isinstance(b.var, DataflowVar):
                return found
    return None


# -- edits -----------------------------------------------------------------------------------------
def _bindings(mod: IRModule) -> dict[tuple[str, int], int]:
    return {
        (g.name_hint, i): sum(len(block.bindings) for block in seq.blocks)
        for g, f in mod.relax_functions().items()
        for i, seq in enumerate(_sequences(f))
    }


def _cut_bindings(mod: IRModule, at: Range) -> Iterator[Way]:
    """Without some bindings: an operand, an input or zeros take the place of each."""
    func = mod[at.name]
    gone = list(bindings_of(_sequences(func)[at.seq]))[at.start : at.stop]
    is_open = at.seq == 0 and at.name in _entries(mod)
    for first in (_operand, None):
        for last in ("input", "zeros") if is_open else ("zeros",):
            taken: dict[Var, Expr] = {}
            inputs: list[Var] = []
            for b in gone:
                value = None if first is None else first(b, taken)
                if value is None and last == "zeros":
                    value = _zeros(b.var.struct_info_)
                if value is None and is_open and not isinstance(b.value, Function):
                    value = _input(func, b.var.name_hint, b.var.struct_info_, inputs)
                if value is not None:
                    taken[b.var] = value
            yield partial(_edited, mod, at.name, _Edited(taken), inputs)


def _input(func: Function, name: str, info: StructInfo | None, inputs: list[Var]) -> Var:
    """One more input, with a name that no other parameter has."""
    known = {p.name_hint for p in (*func.params, *inputs)}
    names = (name if not i else f"{name}_{i}" for i in count())
    inputs.append(Var(next(n for n in names if n not in known), info))
    return inputs[-1]


def _tails(mod: IRModule) -> dict[tuple[str, int], int]:
    return {
        (name, 0): sum(len(block.bindings) for block in f.body.blocks)
        for name, f in _entries(mod).items()
    }


def _cut_tail(mod: IRModule, at: Range) -> Iterator[Way]:
    """Without the last bindings: what they read of the ones before are the results."""
    func = mod[at.name]
    bindings = list(bindings_of(func.body))
    if at.stop != len(bindings) or not at.start:
        return
    before = {b.var for b in bindings[: at.start]}
    gone = {b.var for b in bindings[at.start :]}
    read = [v for b in bindings[at.start :] for v in used_vars(b.value)]
    live = [v for v in dict.fromkeys([*read, *used_vars(func.body.body)]) if v in before]
    if live:
        walk = _Edited({v: v for v in gone}, live)
        result = live[0] if len(live) == 1 else Tuple(live)
        yield partial(_edited, mod, at.name, walk, (), result)


def _fields(func: Function) -> tuple[Expr, ...]:
    """What the result of ``func`` has as fields; nothing where it is one value."""
    result: Expr = func.body.body
    if isinstance(result, Var):
        made = (b.value for b in bindings_of(func.body) if b.var is result)
        result = next(made, result)
    return result.fields if isinstance(result, Tuple) else ()


def _results(mod: IRModule) -> dict[tuple[str, int], int]:
    return {(name, 0): len(_fields(f)) for name, f in _entries(mod).items()}


def _cut_results(mod: IRModule, at: Range) -> Iterator[Way]:
    func = mod[at.name]
    fields = _fields(func)
    kept = [*fields[: at.start], *fields[at.stop :]]
    if kept:
        walk = _Edited({}, [v for f in kept for v in used_vars(f)])
        result = kept[0] if len(kept) == 1 else Tuple(kept)
        yield partial(_edited, mod, at.name, walk, (), result)


def _branches(func: Function) -> list[Binding]:
    return [b for b in bindings_deep(func) if isinstance(b.value, If)]


def _cut_branches(mod: IRModule, at: Range) -> Iterator[Way]:
    """One branch in place of both."""
    func = mod[at.name]
    for side in ("true_branch", "false_branch"):
        inlined = {b.var: getattr(b.value, side) for b in _branches(func)[at.start : at.stop]}
        yield partial(_edited, mod, at.name, _Edited({}, inlined=inlined))


def _arrays(func: Function) -> dict[int, Constant]:
    return {id(c.data): c for c in _constants(func)}


def _cut_constants(mod: IRModule, at: Range) -> Iterator[Way]:
    """Inputs in place of arrays."""
    func = mod[at.name]
    inputs: list[Var] = []
    held = list(_arrays(func).values())[at.start : at.stop]
    taken = {id(c.data): _input(func, "weight", c.struct_info_, inputs) for c in held}
    yield partial(_edited, mod, at.name, _Edited({}, constants=taken), inputs)


def _parameters(mod: IRModule) -> dict[tuple[str, int], int]:
    return {(name, 0): len(f.params) for name, f in _entries(mod).items()}


def _cut_parameters(mod: IRModule, at: Range) -> Iterator[Way]:
    func = mod[at.name]
    used = set(used_vars(func.body))
    kept = [p for i, p in enumerate(func.params) if p in used or not at.start <= i < at.stop]
    yield lambda: _with(mod, at.name, func.replace(params=kept))


def _others(mod: IRModule) -> dict[tuple[str, int], int]:
    return {("", 0): len(mod.functions)}


def _cut_functions(mod: IRModule, at: Range) -> Iterator[Way]:
    """Without some functions that nothing calls."""
    gone = [mod.get_global_var(n) for n in _entries(mod)]
    order: dict[GlobalVar, int] = {g: i for i, g in enumerate(mod.functions)}
    gone = [g for g in gone if at.start <= order[g] < at.stop]
    if len(gone) < len(mod.relax_functions()):
        yield lambda: mod.replace({g: f for g, f in mod.items() if g not in gone})


def _attributes(func: Function) -> list[str]:
    return [a for a in func.attrs if a not in _NEEDED]


def _cut_attributes(mod: IRModule, at: Range) -> Iterator[Way]:
    func = mod[at.name]
    gone = _attributes(func)[at.start : at.stop]
    kept = {k: v for k, v in func.attrs.items() if k not in gone}
    yield lambda: _with(mod, at.name, func.replace(attrs=kept))


_PASSES: Final = (RemoveUnusedParameters, RemoveUnusedOutputs, InlinePrivateFunctions)


def _passes(mod: IRModule) -> dict[tuple[str, int], int]:
    return {("", 0): 1 if len(mod.relax_functions()) > 1 else 0}


def _run_passes(mod: IRModule, at: Range) -> Iterator[Way]:
    """What private functions take, give, and are there for."""
    for made in _PASSES:
        yield partial(made(), mod)


def _symbols(func: Function) -> list[Any]:
    return list(dict.fromkeys(v for p in func.params for v in free_symbolic_vars(p.struct_info)))


def _fix_sizes(mod: IRModule, at: Range) -> Iterator[Way]:
    """Sizes in place of symbolic dimensions."""
    func = mod[at.name]
    sizes = dict.fromkeys(_symbols(func)[at.start : at.stop], _SIZE)
    yield lambda: _with(mod, at.name, func.bind_symbolic_vars(sizes))


_EDITS: Final = (
    Edit(_by_function(lambda f: len(_attributes(f))), _cut_attributes),
    Edit(_others, _cut_functions),
    Edit(_tails, _cut_tail),
    Edit(_results, _cut_results),
    Edit(_bindings, _cut_bindings),
    Edit(_by_function(lambda f: len(_branches(f))), _cut_branches),
    Edit(_passes, _run_passes),
    Edit(_by_function(lambda f: len(_arrays(f))), _cut_constants),
    Edit(_parameters, _cut_parameters),
    Edit(_by_function(lambda f: len(_symbols(f))), _fix_sizes),
)

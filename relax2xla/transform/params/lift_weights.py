"""Weights become arguments, and what depends on weights alone runs once (design decision D6).

Constants inlined into a program cost XLA up to minutes of constant folding; weights as plain
arguments cost run time where their layout is changed at every call. So a function is split in two:
``transform`` computes, from the raw weights, everything that depends on nothing else; ``main``
takes the results as further parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dtypes import dtype_name, is_float
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    PrimValue,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.ir.op import is_symbolic
from relax2xla.ir.rewrite import Rewriter, children, post_order
from relax2xla.ir.source_names import names_of
from relax2xla.ir.struct_info import StructInfo, dims_of
from relax2xla.ir.traits import AsksPlace, Collective, Contraction
from relax2xla.tir import PrimFunc
from relax2xla.transform.core import Pass, PassContext, register, run_enabled

# Constants without a name of at most so many bytes stay in the program, where XLA can fold them.
SMALL_BYTES = 256
# A lifted result has at most so many times the elements of what it is computed from (two: unpacking
# of four-bit weights).
MAX_GROWTH = 2
# Elements up to which a weight, or an operand of a product, that is one number everywhere is an
# argument.
MAX_DENSE = 1 << 26

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Lifted:
    """A function split by :class:`LiftWeights`.

    ``main``: parameters are ``num_input`` arguments, then one for each of ``weights``;
    ``transform``: from the arrays ``raw`` to a tuple, or None; a weight is an array that is passed
    as it is, or the index of a field of the transform's result. ``names`` and ``raw_names`` are the
    source's names of weights and raw arrays, "" where there is none. ``ready``: fields that are
    known already (of a saved executable, which need not hold the raw arrays: those are None).
    ``aliases``: further names of weights, such as of tied ones, to the names that they have here.
    """

    main: Function
    num_input: int
    weights: tuple[Array | int, ...]
    transform: Function | None
    raw: tuple[Array | None, ...]
    names: tuple[str, ...] = ()
    raw_names: tuple[str, ...] = ()
    ready: Mapping[int, Array] = field(default_factory=dict[int, Array])
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    def arrays(self) -> list[Array]:
        """The distinct arrays that the weights are made of."""
        known = [a for a in (*self.raw, *self.ready.values()) if a is not None]
        arrays = {id(a): a for a in known}
        arrays.update({id(w): w for w in self.weights if not isinstance(w, int)})
        return list(arrays.values())

    def raw_size(self) -> tuple[int, int]:
        """Number and bytes of :meth:`arrays`."""
        arrays = self.arrays()
        return len(arrays), sum(a.nbytes for a in arrays)


@register()
class LiftWeights(Pass):
    """Split each function: ``main`` takes weights, ``main_transform_params`` computes them.

    ``lifted`` holds, by name, the functions that were split, with the arrays themselves, which the
    new module has no more.
    """

    def __init__(self) -> None:
        self.lifted: dict[str, Lifted] = {}

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            lifted = self.lifted[gvar.name_hint] = _lift(func)
            new[gvar] = lifted.main
            if lifted.transform is not None:
                new[GlobalVar(_fresh(f"{gvar.name_hint}_transform_params", mod))] = lifted.transform
        return mod.replace(new)


def lift_weights(
    functions: Mapping[str, Function], mod: IRModule | None = None
) -> dict[str, Lifted]:
    """Functions split by :class:`LiftWeights`, or as they are where the context disables it.

    ``mod``: the module that they are of, with what they call.
    """
    lift = LiftWeights()
    held = {} if mod is None else dict(mod.functions)
    names = {g.name_hint: g for g in held}
    own = {names.get(name) or GlobalVar(name): f for name, f in functions.items()}
    kernels = {g: f for g, f in held.items() if isinstance(f, PrimFunc)}
    run_enabled([lift], IRModule({**kernels, **own}), whole=False)
    whole = {n: Lifted(f, len(f.params), (), None, ()) for n, f in functions.items()}
    return whole | lift.lifted


def _fresh(name: str, mod: IRModule) -> str:
    while name in mod:
        name = f"{name}_1"
    return name


def _lift(func: Function) -> Lifted:
    split = _Split(func)
    heavy = split.heavy
    constant_bindings: list[Binding] = []
    main_blocks: list[BindingBlock] = []
    for block in func.body.blocks:
        constant_bindings += [b for b in block.bindings if b.var in heavy or b.var in split.light]
        rest = [b for b in block.bindings if b.var not in heavy]
        if rest:
            main_blocks.append(type(block)(rest, block.span))
    given = _Parameters(split.is_weight, heavy)
    raw = _Parameters(split.is_weight, set())
    body = _Replace(given.of).seq(SeqExpr(main_blocks, func.body.body))
    params = [*func.params, *given.params]
    main = remove_all_unused(
        Function(params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)
    )
    transform = None
    if given.outputs:
        needed = _needed(constant_bindings, given.outputs)
        # Variables of its own, outside of dataflow: both functions may need what is light.
        fresh: dict[Expr, Var] = {
            b.var: Var(b.var.name_hint, b.var.struct_info_, b.var.span) for b in needed
        }
        block = BindingBlock([VarBinding(fresh[b.var], b.value, b.span) for b in needed])
        replaced = _Replace(lambda node: fresh.get(node) or raw.of(node)).seq(
            SeqExpr([block], Tuple(given.outputs))
        )
        transform = Function(raw.params, replaced)
    return Lifted(
        main,
        len(func.params),
        tuple(given.values),
        transform,
        tuple(a for a in raw.values if not isinstance(a, int)),
        tuple(given.names),
        tuple(raw.names),
        aliases={**given.aliases, **raw.aliases},
    )


def _aliases(node: Constant) -> dict[str, str]:
    """The further names of a weight to its first."""
    return dict.fromkeys(names_of(node.span)[1:], _name(node))


def _name(node: Constant) -> str:
    return node.span.name if node.span is not None else ""


def _needed(bindings: list[Binding], roots: list[Var]) -> list[Binding]:
    """The bindings that ``roots`` depend on."""
    live: set[Expr] = set(roots)
    kept: list[Binding] = []
    for b in reversed(bindings):
        if b.var in live:
            kept.append(b)
            live.update(n for n in post_order(b.value) if isinstance(n, Var))
    return kept[::-1]


class _Parameters:
    """Parameters in the place of weights and of the variables ``heavy``, in order of first use.

    values: the array of each, or the place of the variable in ``outputs``
    """

    def __init__(self, is_weight: Callable[[Expr], bool], heavy: set[Var]) -> None:
        self.is_weight, self.heavy = is_weight, heavy
        self.params: list[Var] = []
        self.values: list[Array | int] = []
        self.names: list[str] = []
        self.aliases: dict[str, str] = {}
        self.outputs: list[Var] = []
        self.known: dict[Any, Var] = {}

    def of(self, node: Expr) -> Var | None:
        """The parameter in the place of ``node``; None where it stays."""
        if isinstance(node, Constant) and self.is_weight(node):
            if id(node.data) not in self.known:
                self._add(id(node.data), node, "", node.data, _name(node))
                self.aliases.update(_aliases(node))
            return self.known[id(node.data)]
        if isinstance(node, Var) and node in self.heavy:
            if node not in self.known:
                self._add(node, node, f"_{node.name_hint}", len(self.outputs), "")
                self.outputs.append(node)
            return self.known[node]
        return None

    def _add(self, key: object, node: Expr, suffix: str, value: Array | int, name: str) -> None:
        self.known[key] = Var(f"w{len(self.params)}{suffix}", node.struct_info)
        self.params.append(self.known[key])
        self.values.append(value)
        self.names.append(name)


class _Replace(Rewriter):
    """A Rewriter that asks ``find`` for each leaf."""

    def __init__(self, find: Any) -> None:
        super().__init__()
        self.find = find

    def leaf(self, node: Expr) -> Expr:
        return self.find(node) or super().leaf(node)


class _Split:
    """What of a function depends on constants only.

    ``heavy``: variables that depend on weights; they are lifted. ``light``: variables that depend
    on small constants and splats alone; they stay where they are, and are repeated in ``transform``
    if that needs them.
    """

    def __init__(self, func: Function) -> None:
        self.heavy: set[Var] = set()
        self.light: set[Var] = set()
        # Splats that are arguments all the same, by the identity of their array.
        self.dense: set[int] = set()
        calls = (b.value for block in func.body.blocks for b in block.bindings)
        self.layers = {c.span.name for c in calls if isinstance(c, Call) and c.span is not None}
        for block in func.body.blocks:
            for b in block.bindings:
                if isinstance(b, VarBinding):
                    self._note_contraction(b.value)
                    kind = self._kind(b.value)
                    if kind is not None:
                        kind.add(b.var)

    def is_weight(self, node: Expr) -> bool:
        """Whether a constant is an argument: a weight with a name, or a large array.

        Weights with names can be updated, however small they are, and although they are a splat in
        a program's text, as a norm's are before training. Other splats stay, and so do small arrays
        with the name of their layer, such as bounds of slices in StableHLO: sizes depend on them.
        """
        if not isinstance(node, Constant):
            return False
        if any(node.data.strides):
            return node.data.nbytes > SMALL_BYTES or self._is_named(node)
        data = node.data
        floats = data.ndim and 0 < data.size <= MAX_DENSE and is_float(dtype_name(data.dtype))
        return id(data) in self.dense or bool(floats and self._is_named(node))

    def _is_named(self, node: Constant) -> bool:
        """Whether a constant has a name of its own: others have that of their layer."""
        span = node.span
        if span is None or span.kind != "name" or not span.name or span.file:
            return False
        # The span of a tied weight has its other names inside, and says what it is.
        if span.children and not span.metadata:
            return False
        return span.name not in self.layers

    def _note_contraction(self, value: Expr) -> None:
        """Make arguments of operands that are the same number everywhere.

        XLA:CPU (jaxlib 0.10.2) fuses a product with what sums up its result, and computes nonsense
        where an operand of that product is a broadcast scalar (docs/known_issues.md).
        """
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return
        if not value.op.has(Contraction):
            return
        for node in (f for a in value.args for f in (a.fields if isinstance(a, Tuple) else (a,))):
            if not 1 < _elements(node.struct_info) <= MAX_DENSE:
                continue
            if isinstance(node, Constant) and not any(node.data.strides):
                self.dense.add(id(node.data))
            elif isinstance(node, Var) and node in self.light:
                self.light.discard(node)
                self.heavy.add(node)

    def _kind(self, value: Expr) -> set[Var] | None:
        """Where the variable of ``value`` belongs: ``heavy``, ``light``, or neither."""
        info = value.struct_info_
        if not isinstance(value, Call) or not isinstance(value.op, Op) or not value.op.pure:
            return None
        # What differs between devices, or is made by several, belongs to the program of all.
        if value.op.has(Collective) or value.op.has(AsksPlace):
            return None
        if not isinstance(info, TensorStructInfo) or info.dims is None:
            return None
        if value.attrs and any(map(is_symbolic, value.attrs.values())):
            return None
        found = False
        elements = 0
        for node in post_order(value):
            if isinstance(node, Var):
                if node not in self.heavy and node not in self.light:
                    return None
                found = found or node in self.heavy
                elements += _elements(node.struct_info)
            elif isinstance(node, Constant):
                found = found or self.is_weight(node)
                elements += node.data.size
            elif (
                isinstance(node, Function)
                or (not children(node) and free_symbolic_vars(node.struct_info_))
                or (isinstance(node, PrimValue) and is_symbolic(node.value))
            ):
                return None
        if not found:
            return self.light
        # A small array blown up (a broadcast, say) is cheaper made where it is used.
        return self.heavy if _elements(info) <= MAX_GROWTH * elements else None


def _elements(info: StructInfo) -> int:
    """Elements of a tensor; 0 where its shape is unknown or symbolic."""
    dims = dims_of(info)
    if dims is None or not all(isinstance(d, int) for d in dims):
        return 0
    return math.prod(d for d in dims if isinstance(d, int))

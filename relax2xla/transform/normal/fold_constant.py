"""FoldConstant: what depends on constants alone is computed now."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import numpy as np

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dpl.emit import value_key
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataTypeImm,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.op import is_op, is_symbolic
from relax2xla.ir.rewrite import Rewriter, bindings_of, post_order, post_order_deep
from relax2xla.ir.traits import Allocates, AsksPlace, Collective, Fills, Foreign, Random, Waits
from relax2xla.tir import PrimFunc
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.normal.blocks import Precise, refined
from relax2xla.transform.normal.homes import Ordinary

Kernels: TypeAlias = Mapping[GlobalVar, PrimFunc]

log = logging.getLogger("relax2xla.transform")

NODE_LIMIT: Final = 1 << 20  # bytes of a result that may be more than its operands
MAX_GROWTH: Final = 4  # how many times the operands a larger result may be
FUNCTION_LIMIT: Final = 1 << 28  # bytes of all new constants of a function
SMALL: Final = 1 << 10  # bytes of a constant that XLA is given as such, not as an argument
MAIN: Final = "main"  # the function that computes
NEVER: Final = (Allocates, AsksPlace, Collective, Foreign, Random, Waits)
# What these say is for other passes.
MARKS: Final = ("relax.grad.", "relax.builtin.", "relax.memory.")


@register()
class FoldConstant(Pass):
    """Compute what operators and kernels make of constants, and put that in their place.

    XLA computes it, on the CPU, all of a function at once; values may differ from those of the
    program in the last digits. Shapes are followed through ``R.shape_to_tensor`` and
    ``R.tensor_to_shape``, so that what they reshape has a known shape. Results that are much larger
    than their operands (4 times, and 1 MiB), and all beyond 256 MiB for a function, are left to
    run time, as are numbers that are the same everywhere (``R.zeros``), random numbers and
    effects, and operators outside of dataflow blocks. Kernels are loop-level functions of the
    module; of those that give one tensor of known shape. Code that nothing needs any more goes.

    Measured: four layers 512x512 with relu on 16 rows, weights constants that are scaled and
    transposed: 0.27, 0.26 (without it a machine computes them when it is made)
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        kernels = {g: k for g, k in mod.items() if isinstance(k, PrimFunc)}
        functions = mod.relax_functions().items()
        return mod.replace({**mod.functions, **{g: _folded(f, kernels) for g, f in functions}})


def _folded(func: Function, kernels: Kernels) -> Function:
    """``func`` with constants in the place of what can be computed."""
    folder = _Folder(kernels)
    new = folder.function(func)
    values = folder.values(_read_elsewhere(new, folder.pending))
    if new is func and not values:
        return func
    replaced = _Replaced(values=dict(values)).function(new)
    return refined(remove_all_unused(replaced))


class _Replaced(Precise):
    """Constants in the place of variables."""


class _Folder(Precise):
    """One walk: shapes and constants are read directly, what can be computed is noted.

    ``pending``: bindings that can be computed, by their variable, in order. Of those that compute
    the same, they read the first. ``kernels``: the loop-level functions of the module.
    """

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.pending: dict[Var, VarBinding] = {}
        self._known: dict[Var, Constant] = {}
        self._same = Rewriter()  # what is read as another one, which is the first by its key
        self._first: dict[Hashable, Var] = {}
        self._dataflow = False

    def block(self, block: BindingBlock) -> BindingBlock:
        outer, self._dataflow = self._dataflow, isinstance(block, DataflowBlock)
        new = super().block(block)
        self._dataflow = outer
        return new

    @nests
    def function(self, func: Function) -> Function:
        outer, self._dataflow = self._dataflow, False
        new = super().function(func)
        self._dataflow = outer
        return new

    def binding(self, b: Binding) -> Binding:
        new = super().binding(b)
        if not isinstance(new, VarBinding):
            return new
        value = self._shape_value(new.value) if self._dataflow else None
        if value is not None:
            new = VarBinding(self.var(new.var, value.struct_info_), value, new.span)
            self.env[b.var] = new.var
        if isinstance(new.value, Constant | ShapeExpr):
            self.env[b.var] = self.env[new.var] = new.value
        elif (self._dataflow or _is_kernel_call(new.value)) and _can_fold(
            new.value, self.pending, self.kernels
        ):
            self._note(new)
        return new

    def _note(self, b: VarBinding) -> None:
        value = self._same.expr(b.value)
        self.pending[b.var] = VarBinding(b.var, value, b.span)
        key = value_key(value)
        first = b.var if key is None else self._first.setdefault(key, b.var)
        if first is not b.var:
            self._same.env[b.var] = first

    def _shape_value(self, value: Expr) -> Expr | None:
        """A shape of known numbers, or such a shape as a tensor."""
        if is_op(value, "relax.shape_to_tensor") and isinstance(value, Call):
            shape = value.args[0]
            if isinstance(shape, ShapeExpr) and all(isinstance(d, int) for d in shape.values):
                return Constant(np.array(shape.values, "int64"), span=value.span)
        elif is_op(value, "relax.tensor_to_shape") and isinstance(value, Call):
            source = value.args[0]
            if isinstance(source, Var) and source in self.pending:
                source = self.values([source]).get(source, source)
            if isinstance(source, Constant):
                return ShapeExpr([int(d) for d in source.data], value.span)
        return None

    def values(self, wanted: Sequence[Var]) -> dict[Var, Constant]:
        """The values of pending variables, those that can be computed within the limits."""
        left = FUNCTION_LIMIT - sum(c.data.nbytes for c in self._known.values())
        first = {v: self._first_of(v) for v in wanted}
        todo: list[Var] = []
        for var in dict.fromkeys(first.values()):
            size = _bytes(var)
            if var not in self._known and size <= left:
                left -= size
                todo.append(var)
        groups = [todo] if todo else []
        while groups:
            group = groups.pop()
            try:
                self._known.update(self._computed(group))
            except TVMError as e:
                # One that cannot be computed here is left to run time, alone.
                if len(group) > 1:
                    half = len(group) // 2
                    groups += [group[:half], group[half:]]
                else:
                    log.info("FoldConstant leaves %s to run time: %s", group[0].name_hint, e)
        return {v: self._known[f] for v, f in first.items() if f in self._known}

    def _first_of(self, var: Var) -> Var:
        first = self._same.env.get(var, var)
        return first if isinstance(first, Var) else var

    def _computed(self, wanted: Sequence[Var]) -> dict[Var, Constant]:
        from relax2xla.testing import evaluate  # XLA, which is made of passes

        live: set[Expr] = set(wanted)
        needed: list[Binding] = []
        for var, b in reversed(self.pending.items()):
            if var in live and var not in self._known:
                needed.append(b)
                live.update(n for n in post_order(b.value) if isinstance(n, Var))
        arguments = _Arguments(self._known)
        body = arguments.seq(SeqExpr([BindingBlock(needed[::-1])], Tuple(wanted)))
        func = Ordinary().function(Function(arguments.params, body))
        called = {b.value.args[0] for b in needed if _is_kernel_call(b.value)}
        kernels = {g: k for g, k in self.kernels.items() if g in called}
        made = evaluate(IRModule({GlobalVar(MAIN): func, **kernels}), arguments.values)
        return {
            v: Constant(np.asarray(data), v.struct_info_, v.span)
            for v, data in zip(wanted, made, strict=True)
        }


class _Arguments(Rewriter):
    """Constants become parameters: XLA would fold them again, slowly."""

    def __init__(self, known: dict[Var, Constant]) -> None:
        super().__init__(values=dict(known))
        self.params: list[Var] = []
        self.values: list[Any] = []
        self._param: dict[int, Var] = {}

    def leaf(self, node: Expr) -> Expr:
        new = super().leaf(node)
        if not isinstance(new, Constant) or new.data.nbytes <= SMALL:
            return new
        found = self._param.get(id(new.data))
        if found is None:
            found = self._param[id(new.data)] = Var(f"c{len(self.params)}", new.struct_info_)
            self.params.append(found)
            self.values.append(new.data)
        return found


def _read_elsewhere(func: Function, pending: dict[Var, VarBinding]) -> list[Var]:
    """Pending variables that others than pending bindings read, in order."""
    if not pending:
        return []
    read: set[Expr] = set()
    for node in post_order_deep(func):
        if isinstance(node, SeqExpr):
            for b in bindings_of(node):
                if b.var not in pending:
                    read.update(_operands(b.value))
            read.update(_operands(node.body))
    return [v for v, b in pending.items() if v in read and not _is_fill(b.value)]


def _operands(value: Expr) -> Iterable[Expr]:
    """What a value reads, whatever else."""
    if isinstance(value, Call) and all([not isinstance(a, Tuple) for a in value.args]):
        return (value.op, *value.args)
    return post_order(value)


def _is_fill(value: Expr) -> bool:
    return isinstance(value, Call) and isinstance(value.op, Op) and value.op.has(Fills)


def _is_kernel_call(value: Expr) -> TypeGuard[Call]:
    return (
        isinstance(value, Call)
        and is_op(value, "relax.call_tir")
        and isinstance(value.args[0], GlobalVar)
    )


def _can_fold(value: Expr, pending: dict[Var, VarBinding], kernels: Kernels) -> bool:
    """Whether a value depends on constants and pending variables alone, and is not too large."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return False
    if any([isinstance(a, Var) and a not in pending for a in value.args]):
        return False
    op = value.op
    kernel = value.args[0] if _is_kernel_call(value) else None
    if kernel is not None:
        if kernel not in kernels or getattr(kernel, "name_hint", MAIN) == MAIN:
            return False
    elif not op.pure or op.lowering is None or any(map(op.has, NEVER)):
        return False
    if op.name.startswith(MARKS):
        return False
    if value.attrs and any(map(is_symbolic, value.attrs.values())):
        return False
    given = 0
    for node in post_order(value):
        if isinstance(node, Constant):
            given += node.data.nbytes
        elif isinstance(node, Var):
            if node not in pending:
                return False
            given += _bytes(node)
        elif isinstance(node, ShapeExpr):
            if not all(isinstance(d, int) for d in node.values):
                return False
        elif isinstance(node, PrimValue):
            if is_symbolic(node.value):
                return False
        elif node is not value and node is not kernel:
            if not isinstance(node, Tuple | DataTypeImm | StringImm):
                return False
    size = _bytes(value)
    return 0 <= size <= max(NODE_LIMIT, MAX_GROWTH * given)


def _bytes(value: Expr) -> int:
    """The size of a tensor on the host; -1 where it is not known or not on the host."""
    info = value.struct_info_
    if not isinstance(info, TensorStructInfo) or info.dims is None or not info.dtype:
        return -1
    dims = [d for d in info.dims if isinstance(d, int)]
    if info.vdevice is not None or len(dims) < len(info.dims):
        return -1
    return math.prod(dims) * numpy_dtype(info.dtype).itemsize

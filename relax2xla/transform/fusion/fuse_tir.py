"""FuseTIR: functions that call kernels one after the other become one kernel.

Source of the semantics: ``FuseTIR`` of TVM v0.20.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, NoReturn

from relax2xla import tir
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    PrimStructInfo,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.kernel_info import kernel_info
from relax2xla.ir.rewrite import Rewriter, bindings_of
from relax2xla.ir.struct_info import show
from relax2xla.op.intrinsic import call_tir_inplace_op, call_tir_op
from relax2xla.tir import stmt as s
from relax2xla.tir.binary import BinaryExpr
from relax2xla.tir.buffer import Buffer, BufferRegion, buffer_of
from relax2xla.tir.kernel.renew import again, renewed
from relax2xla.tir.node import Dim, PrimExpr, is_int
from relax2xla.tir.stmt_functor import Rewriter as LoopRewriter
from relax2xla.tir.stmt_functor import transformed
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.kernel_calls import CALL_TIR, PRIMITIVE
from relax2xla.transform.lower.origins import Origins, origins_in, whole_origin
from relax2xla.transform.normal.canonicalize import CanonicalizeBindings
from relax2xla.transform.normal.dead_code import DeadCodeElimination
from relax2xla.transform.normal.expand_tuple_arguments import ExpandTupleArguments
from relax2xla.transform.normal.remove_unused_parameters import RemoveUnusedParameters

INPLACE: Final = "inplace_indices"


@register()
class FuseTIR(Pass):
    """Make one loop-level function of each function with the attribute ``Primitive``, and call it
    by ``call_tir``.

    Such functions, which FuseOps makes, call loop-level functions alone; those stand one after the
    other in the new one, whose buffers hold what lies between them. Tuples among their parameters
    are taken apart first (ExpandTupleArguments), what they do not read goes
    (RemoveUnusedParameters), and functions that nothing calls any more, too (DeadCodeElimination).
    TransformError, with the function, for anything else than loop-level functions in one, and where
    sizes of a kernel cannot be those of its arguments. XLA fuses what these become anyway.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if not _primitive(mod):
            return mod
        for prepare in _BEFORE:
            mod = prepare().transform_module(mod, context)
        origins = origins_in(mod)
        made = {g: _fused(g, f, mod, origins) for g, f in _primitive(mod).items()}
        names = {g: GlobalVar(g.name_hint, kernel_info(k.func), g.span) for g, k in made.items()}

        def called(node: Expr) -> Expr | None:
            if not isinstance(node, Call) or not isinstance(node.op, GlobalVar):
                return None
            found = made.get(node.op)
            return None if found is None else _call(names[node.op], found, node)

        functions: dict[GlobalVar, object] = {}
        for gvar, func in mod.items():
            if gvar in made:
                functions[names[gvar]] = made[gvar].func
            elif isinstance(func, Function):
                functions[gvar] = Rewriter(rule=called).function(func)
            else:
                functions[gvar] = func
        return DeadCodeElimination().transform_module(mod.replace(functions), context)


_BEFORE: Final = (ExpandTupleArguments, CanonicalizeBindings, RemoveUnusedParameters)


def _primitive(mod: IRModule) -> dict[GlobalVar, Function]:
    return {g: f for g, f in mod.relax_functions().items() if f.attrs.get(PRIMITIVE)}


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A function that has been fused; ``places``: by result, the argument that it overwrites."""

    func: tir.PrimFunc
    places: tuple[int, ...]


def _fused(gvar: GlobalVar, func: Function, mod: IRModule, origins: Origins) -> _Kernel:
    """The kernel of ``func``, which knows what it was made of if its parts do."""
    made = _Fused(gvar.name_hint, mod).fuse(func)
    origin = whole_origin(func, origins)
    return made if origin is None else replace(made, func=made.func.with_origin(origin))


def _call(name: GlobalVar, kernel: _Kernel, call: Call) -> Call:
    """The call of ``kernel`` in the place of a call of the function that it was made of."""
    tensors: list[Expr] = []
    numbers: list[Dim] = []
    for arg in call.args:
        match arg.struct_info:
            case ShapeStructInfo(values=values) if values is not None:
                numbers += values
            case PrimStructInfo(value=value) if value is not None:
                numbers.append(value)
            case TensorStructInfo():
                tensors.append(arg)
            case info:
                raise TransformError(
                    f"FuseTIR: {name.name_hint} is called with {show(info)}; kernels take tensors "
                    "and numbers whose value is known as an expression"
                )
    args: list[Expr] = [name, Tuple(tensors)]
    if numbers:
        args.append(ShapeExpr(numbers))
    info = call.struct_info
    inplace = any(p != -1 for p in kernel.places)
    op = call_tir_inplace_op if inplace else call_tir_op
    attrs = {INPLACE: kernel.places} if inplace else None
    return Call(op, args, attrs, [info], call.span, struct_info=info)


@dataclass(slots=True)
class _Fused:
    """One function while it is fused.

    ``values``: the buffers of a value, one a tensor; ``bodies`` and ``allocated``: what has been
    put together so far; ``symbols``: what symbolic variables of kernels are here.
    """

    name: str
    mod: IRModule
    values: dict[Expr, list[Buffer]] = field(default_factory=dict["Expr", "list[Buffer]"])
    bodies: list[s.Stmt] = field(default_factory=list[s.Stmt])
    allocated: list[Buffer] = field(default_factory=list[Buffer])
    names: set[str] = field(default_factory=set[str])

    def fuse(self, func: Function) -> _Kernel:
        """The loop-level function of ``func``."""
        assert isinstance(func.body, SeqExpr)
        buffers: list[Buffer] = []
        numbers: list[tir.Var] = []
        read = self._kernel_buffers(func)
        for param in func.params:
            self._param(param, read.get(param), buffers, numbers)
        for b in bindings_of(func.body):
            if not isinstance(b, VarBinding):
                self._refuse(f"`{b.var.name_hint}` is a match_cast")
            self.values[b.var] = self._value(b.value)
        return self._kernel(buffers, numbers, self._value(func.body.body))

    def _refuse(self, what: str) -> NoReturn:
        raise TransformError(
            f"FuseTIR: {self.name} cannot become one kernel: {what}; a function with the attribute "
            "Primitive calls loop-level functions alone"
        )

    # -- parameters and results ------------------------------------------------------------------
    def _param(
        self, param: Var, read: Buffer | None, buffers: list[Buffer], numbers: list[tir.Var]
    ) -> None:
        """What a parameter becomes: a buffer, or variables for numbers."""
        info = param.struct_info
        if isinstance(info, TensorStructInfo) and info.dims is not None and info.dtype:
            # Memory lies as the kernel that reads it wants it.
            scope = "global" if read is None else read.scope
            buffer = buffer_of(info.dims, info.dtype, param.name_hint, scope=scope)
            if read is not None:
                buffer = replace(buffer, axis_separators=read.axis_separators)
            self.values[param] = [buffer]
            buffers.append(buffer)
            return
        values: Sequence[Dim | None] | None = None
        if isinstance(info, ShapeStructInfo):
            values = info.values
        elif isinstance(info, PrimStructInfo):
            values = [info.value]
        found = [v for v in values or () if isinstance(v, tir.Var)]
        if values is None or len(found) != len(values):
            self._refuse(
                f"its parameter {param.name_hint} is {show(info)}; tensors of known shapes and "
                "symbolic variables can be passed"
            )
        numbers += found

    def _kernel_buffers(self, func: Function) -> dict[Expr, Buffer]:
        """By a variable, the buffer through which a kernel reads or writes it."""
        found: dict[Expr, Buffer] = {}
        for b in bindings_of(func.body):
            if isinstance(b.value, Call) and self._calls_kernel(b.value):
                kernel, args = self._called(b.value)
                for value, p in zip([*args, b.var], kernel.params, strict=False):
                    if p in kernel.buffer_map:
                        own = kernel.buffer_map[p]
                        other = found.setdefault(value, own)
                        if _memory(own) != _memory(other):
                            self._refuse(
                                f"Inconsistent buffers {other} and {own} are mapped to the same "
                                f"relax var: {value}; they differ in scope or axis_separators"
                            )
        return found

    def _kernel(
        self, buffers: Sequence[Buffer], numbers: Sequence[tir.Var], results: Sequence[Buffer]
    ) -> _Kernel:
        """All that has been put together, as one function."""
        params: list[tir.Var] = []
        buffer_map: dict[tir.Var, Buffer] = {}
        for buffer in buffers:
            params.append(tir.Var(f"p_{buffer.name}", "handle"))
            buffer_map[params[-1]] = buffer
        places: list[int] = []
        for n, buffer in enumerate(results):
            own = next((i for i, b in enumerate(buffers) if b is buffer), -1)
            if (own in places and own != -1) or any(buffer is r for r in results[:n]):
                self._refuse("it gives one value twice")
            places.append(own)
            if own == -1:
                params.append(tir.Var(f"p_output{n}", "handle"))
                buffer_map[params[-1]] = buffer
        kept = [b for b in self.allocated if not any(b is r for r in results)]
        body = _distinct(s.seq(self.bodies))
        root = s.Block((), (), (), "root", body, alloc_buffers=tuple(kept))
        whole = s.BlockRealize((), s.TRUE, root)
        func = tir.PrimFunc([*params, *numbers], whole, None, buffer_map, {"tir.noalias": True})
        # Symbolic variables are those of the Relax function until here.
        open_ = any(tir.free_vars(d) for b in func.buffer_map.values() for d in b.shape)
        return _Kernel(renewed(func) if numbers or open_ else func, tuple(places))

    # -- values ----------------------------------------------------------------------------------
    def _value(self, value: Expr) -> list[Buffer]:
        """The buffers that hold ``value``."""
        known = self.values.get(value)
        if known is not None:
            return known
        match value:
            case Tuple():
                return [b for f in value.fields for b in self._value(f)]
            case TupleGetItem():
                whole = self._value(value.tuple_value)
                info = value.tuple_value.struct_info
                assert isinstance(info, TupleStructInfo)
                first = sum(map(_tensors, info.fields[: value.index]))
                return whole[first : first + _tensors(info.fields[value.index])]
            case Call() if self._calls_kernel(value):
                return self._add(value)
            case Call():
                called = getattr(value.op, "name", None) or getattr(
                    value.op, "name_hint", "a value"
                )
                self._refuse(f"it calls {called}")
            case _:
                self._refuse(f"it holds a {type(value).__name__}")

    def _calls_kernel(self, call: Call) -> bool:
        return isinstance(call.op, Op) and call.op.name in CALL_TIR

    def _called(self, call: Call) -> tuple[tir.PrimFunc, list[Expr]]:
        """The kernel that is called, and what it is given."""
        name, args = call.args[0], call.args[1]
        kernel = self.mod.functions.get(name) if isinstance(name, GlobalVar) else None
        if not isinstance(kernel, tir.PrimFunc):
            self._refuse(f"it calls {name!r}, which is no loop-level function of the module")
        return kernel, list(args.fields) if isinstance(args, Tuple) else [args]

    def _add(self, call: Call) -> list[Buffer]:
        """Put the kernel of ``call`` behind the others; the buffers of what it gives."""
        kernel, args = self._called(call)
        name = getattr(call.args[0], "name_hint", "")
        if not isinstance(kernel.body, s.BlockRealize):
            self._refuse(f"the body of {name} is no root block (T.sblock_attr, T.block)")
        inside = _Inside(name)
        taken = [b for a in args for b in self._value(a)]
        results = _dims(call)
        places = tuple(call.attrs.get(INPLACE) or (-1,) * len(results))
        handles = [p for p in kernel.params if p in kernel.buffer_map]
        numbers = [p for p in kernel.params if p not in kernel.buffer_map]
        if len(handles) != len(taken) + places.count(-1):
            self._refuse(
                f"{name} takes {len(handles)} buffers; the call has {len(taken)} operands and "
                f"{places.count(-1)} new results"
            )
        own = [kernel.buffer_map[p] for p in handles]
        for buffer, here in zip(own, taken, strict=False):
            inside.buffer(buffer, here)
        fresh = iter(own[len(taken) :])
        made: list[Buffer] = []
        for place, dims in zip(places, results, strict=True):
            if place != -1:
                made.append(taken[place])
                continue
            buffer = next(fresh)
            made.append(self._intermediate(buffer, dims))
            inside.buffer(buffer, made[-1])
        if len(call.args) > 2:
            shape = call.args[2]
            if not isinstance(shape, ShapeExpr):
                self._refuse(f"the values of tir_vars of {name} are no R.shape")
            for var, value in zip(numbers, shape.values, strict=False):
                inside.match(var, value)
        root = inside.finish(kernel.body)
        self.allocated += root.alloc_buffers
        self.allocated += [b for b, place in zip(made, places, strict=True) if place == -1]
        self.bodies.append(root.body)
        return made

    def _intermediate(self, buffer: Buffer, dims: Sequence[Dim]) -> Buffer:
        """A buffer of the fused function for a result of a kernel."""
        first = f"{buffer.name}_intermediate"
        tries = (f"{first}_{n}" if n else first for n in count())
        name = next(n for n in tries if n not in self.names)
        self.names.add(name)
        return replace(buffer, data=again(buffer.data, name), shape=tuple(dims), name=name)


def _memory(buffer: Buffer) -> tuple[object, ...]:
    """What two views of one value must have alike."""
    return buffer.scope, tuple(buffer.axis_separators)


def _tensors(info: StructInfo) -> int:
    """How many tensors a value has, those in tuples included."""
    return sum(map(_tensors, info.fields)) if isinstance(info, TupleStructInfo) else 1


def _dims(call: Call) -> list[tuple[Dim, ...]]:
    """The shapes of the results of a call of a kernel."""
    info = call.sinfo_args[0]
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    found: list[tuple[Dim, ...]] = []
    for f in fields:
        if not isinstance(f, TensorStructInfo) or f.dims is None:
            raise TransformError(
                f"FuseTIR: a call_tir gives {show(f)}; its results must be tensors of known shapes"
            )
        found.append(f.dims)
    return found


class _Inside:
    """The body of one kernel with the buffers and numbers of the function that gets it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.symbols: dict[tir.Var, PrimExpr] = {}
        self.open: list[tuple[PrimExpr, PrimExpr]] = []
        self.rewriter = LoopRewriter(self._leaf)

    def _leaf(self, e: PrimExpr) -> PrimExpr | None:
        if not isinstance(e, tir.Var):
            return None
        # A kernel may stand here twice: what it defines itself is new.
        if e not in self.symbols:
            self.symbols[e] = again(e)
        return self.symbols[e]

    def buffer(self, own: Buffer, here: Buffer) -> None:
        """``own`` is ``here``, and its sizes are those of ``here``."""
        if len(own.shape) != len(here.shape):
            raise TransformError(
                f"FuseTIR: {self.name} reads {own.name} with {len(own.shape)} axes; it is given "
                f"{len(here.shape)}"
            )
        self.rewriter.buffers[id(own)] = (own, here)
        self.symbols[own.data] = here.data
        for a, b in zip(own.shape, here.shape, strict=True):
            self.match(tir.as_prim_expr(a), b)

    def match(self, own: PrimExpr, value: Dim) -> None:
        """``own`` is ``value``: variables of the kernel are bound, other sizes compared later."""
        here = tir.as_prim_expr(value, own.dtype)
        if isinstance(own, tir.Var) and own not in self.symbols and is_int(own.dtype):
            self.symbols[own] = here
        elif isinstance(own, BinaryExpr) and type(own) is type(here):
            assert isinstance(here, BinaryExpr)
            self.match(own.a, here.a)
            self.match(own.b, here.b)
        else:
            self.open.append((own, here))

    def finish(self, body: s.BlockRealize) -> s.Block:
        """The root block of the kernel as it is here; TransformError where sizes differ."""
        for own, here in self.open:
            known = self.rewriter.expr(own)
            difference = tir.simplify(known - here.astype(known.dtype))
            if isinstance(difference, int) and difference != 0:
                raise TransformError(
                    f"FuseTIR: a size of {self.name} is {known}, and {here} of what it is given"
                )
        made = self.rewriter.stmt(body)
        assert isinstance(made, s.BlockRealize)
        return made.block


def _distinct(body: s.Stmt) -> s.Stmt:
    """``body`` with a name of its own for each block, and each region that one reads said once."""
    names: set[str] = set()

    def own(node: s.Stmt) -> s.Stmt:
        if not isinstance(node, s.BlockRealize):
            return node
        block = node.block
        tries: Iterator[str] = (f"{block.name_hint}_{n}" if n else block.name_hint for n in count())
        name = next(n for n in tries if n not in names)
        names.add(name)
        reads, writes = _once(block.reads), _once(block.writes)
        same = name == block.name_hint and reads == block.reads and writes == block.writes
        return (
            node
            if same
            else replace(node, block=replace(block, name_hint=name, reads=reads, writes=writes))
        )

    return transformed(body, own)


def _once(regions: tuple[BufferRegion, ...]) -> tuple[BufferRegion, ...]:
    """Regions without those that another one says: two operands may be one buffer here."""
    kept: list[BufferRegion] = []
    for region in regions:
        if not any(_same_region(region, k) for k in kept):
            kept.append(region)
    return tuple(kept)


def _same_region(a: BufferRegion, b: BufferRegion) -> bool:
    return a.buffer is b.buffer and all(
        tir.can_prove_equal(x.min, y.min) and tir.can_prove_equal(x.extent, y.extent)
        for x, y in zip(a.region, b.region, strict=True)
    )

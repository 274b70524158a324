"""CallsAsValues: calls of loop-level functions that write into tensors, as values again.

What CallTIRRewrite and ComputePrimValue make, and what is written so by hand. XLA has values alone:
the tensors that a call writes are new ones behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from relax2xla import tir
from relax2xla.analysis.variables import free_vars
from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    IRModule,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import Rewriter, post_order_deep
from relax2xla.op.intrinsic import call_dps_packed_op, call_tir_inplace_op, call_tir_op
from relax2xla.tir.stmt import walk
from relax2xla.transform.core import FunctionPass, PassContext, register

ALLOC: Final = "relax.builtin.alloc_tensor"
DYN: Final = "relax.vm.call_tir_dyn"


@register(needed=True)
class CallsAsValues(FunctionPass):
    """Write calls of loop-level functions that write into tensors as ``call_tir``.

    Before: ``y = R.builtin.alloc_tensor(...); f(x, y)``. After: ``y = R.call_tir(f, (x,), ...)``;
    ``call_tir_inplace`` where ``f`` writes into other operands, and ``call_dps_packed`` for packed
    functions whose last operands have just been allocated. What reads a tensor later reads what was
    written last. A call of a function that returns a number is that number. LegalizeError where a
    tensor is written that a tuple or a local function holds, or that is bound outside of a branch.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        if not any(_is_direct(node, mod) for node in post_order_deep(func)):
            return func
        read = {node for node in post_order_deep(func) if isinstance(node, Var)}
        return _Values(mod, read).function(func)


def _kernel(op: Expr, mod: IRModule) -> tir.PrimFunc | None:
    found = mod.functions.get(op) if isinstance(op, GlobalVar) else None
    return found if isinstance(found, tir.PrimFunc) else None


def _is_direct(node: Expr, mod: IRModule) -> bool:
    """Whether ``node`` is a call that may write into what it is given, or returns a number."""
    if not isinstance(node, Call):
        return False
    if isinstance(node.op, ExternFunc):
        return not node.sinfo_args
    return is_op(node, DYN) or _kernel(node.op, mod) is not None


class _Values(Rewriter):
    """Rebuilds a function.

    ``fresh``: tensors that have been allocated and not been written; ``held``: those that are part
    of other values; ``same``: which variable names the memory of another; ``here``: what the
    sequence at hand binds.
    """

    def __init__(self, mod: IRModule, read: set[Var]) -> None:
        super().__init__()
        self.mod, self.read = mod, read
        self.written: dict[tir.PrimFunc, set[int]] = {}
        self.fresh: set[Var] = set()
        self.held: set[Var] = set()
        self.same: dict[Var, Var] = {}
        self.here: set[Var] = set()
        self._params: Sequence[Var] = ()

    def leaf(self, node: Expr) -> Expr:
        if isinstance(node, Var):  # most are
            node = self.same.get(node, node)
            return self.env.get(node, node)
        if isinstance(node, Function):
            # What it captures; its own tensors it may write.
            self.held.update(self.same.get(v, v) for v in free_vars(node))
        return super().leaf(node)

    def _hold(self, value: Expr) -> None:
        """Values that are part of ``value`` must not be written any more."""
        for node in post_order_deep(value):
            if isinstance(node, Var):
                self.held.add(self.same.get(node, node))

    @nests
    def function(self, func: Function) -> Function:
        self._params = func.params
        return super().function(func)

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        outer = self.here
        self.here = {*self._params, *(b.var for block in seq.blocks for b in block.bindings)}
        self._params = ()
        new = super().seq(seq)
        self._hold(seq.body)
        self.here = outer
        return new

    def block(self, block: BindingBlock) -> BindingBlock:
        made: list[Binding] = []
        for b in block.bindings:
            if isinstance(b, VarBinding) and isinstance(b.value, Call):
                if is_op(b.value, ALLOC):
                    self.fresh.add(b.var)
                if _is_direct(b.value, self.mod):
                    made += self._direct(b, b.value)
                    continue
            elif isinstance(b, VarBinding) and isinstance(b.value, Var):
                self.same[b.var] = self.same.get(b.value, b.value)
            elif not isinstance(b.value, If | Function):
                # A match_cast, a tuple and its fields are other names of what they hold.
                self._hold(b.value)
                self.held.add(b.var)
            made.append(self.binding(b))
        same = len(made) == len(block.bindings)
        if same and all(a is b for a, b in zip(made, block.bindings, strict=True)):
            return block
        return type(block)(made, block.span)

    # -- one call ----------------------------------------------------------------------------------
    def _direct(self, b: VarBinding, call: Call) -> Iterator[Binding]:
        """What takes the place of a call that writes."""
        func, given, numbers = _parts(call)
        kernel = _kernel(func, self.mod)
        if kernel is not None and kernel.ret_type is not None:
            number = _number(kernel, given)
            yield self.binding(b if number is None else VarBinding(b.var, number, b.span))
            return
        if kernel is None:
            written = {i for i, a in enumerate(given) if a in self.fresh} - (
                set(range(len(given))) if b.var in self.read else set()
            )
        else:
            if not numbers:
                given, numbers = _without_numbers(given, kernel, func)
            if kernel not in self.written:
                self.written[kernel] = _written(kernel)
            written = self.written[kernel]
        first = len(given)
        while first and given[first - 1] in self.fresh and first - 1 in written:
            first -= 1
        inplace = [] if kernel is None else sorted(i for i in written if i < first)
        if first == len(given) and not inplace:
            yield self.binding(b)
            return
        yield from self._values(b, func, given, numbers, first, inplace)
        if b.var in self.read:
            yield VarBinding(b.var, Tuple([]), b.span)

    def _values(
        self,
        b: VarBinding,
        func: Expr,
        given: Sequence[Expr],
        numbers: Sequence[Expr],
        first: int,
        inplace: Sequence[int],
    ) -> Iterator[Binding]:
        """The call that gives what ``given[first:]`` and those ``inplace`` hold from now on."""
        targets = [self._target(given[i], func) for i in (*inplace, *range(first, len(given)))]
        infos = [v.struct_info for v in targets]
        whole = infos[0] if len(infos) == 1 else TupleStructInfo(infos)
        args = [func, Tuple([self.expr(a) for a in given[:first]]), *map(self.expr, numbers)]
        attrs = None
        if isinstance(func, ExternFunc):
            op = call_dps_packed_op
        elif inplace:
            op = call_tir_inplace_op
            attrs = {"inplace_indices": (*inplace, *(-1,) * (len(given) - first))}
        else:
            op = call_tir_op
        made = Call(op, args, attrs, [whole], b.span or b.value.span, struct_info=whole)
        result = Var(targets[0].name_hint, whole, b.span)
        yield VarBinding(result, made, b.span)
        for i, target in enumerate(targets):
            new = result
            if len(targets) > 1:
                new = Var(target.name_hint, infos[i], b.span)
                yield VarBinding(new, TupleGetItem(result, i), b.span)
            self.env[target] = new
            self.fresh.discard(target)

    def _target(self, arg: Expr, func: Expr) -> Var:
        """The variable that names what is written."""
        name = getattr(func, "name_hint", None) or getattr(func, "global_symbol", "")
        shown = getattr(arg, "name_hint", repr(arg))
        if not isinstance(arg, Var) or not isinstance(arg.struct_info, TensorStructInfo):
            raise LegalizeError(f"{name} writes into {shown}, which is no variable of a tensor")
        target = self.same.get(arg, arg)
        if target in self.held:
            raise LegalizeError(
                f"{name} writes into `{shown}`, which is part of another value by then (a tuple, a "
                "match_cast, a result of a branch or a local function); values stay as they are "
                "here: write into a tensor of its own (R.builtin.alloc_tensor, or R.call_tir)"
            )
        if target not in self.here:
            raise LegalizeError(
                f"{name} writes into `{shown}` in a branch or a local function, and it is bound "
                "outside; let the branch give the new value (R.call_tir)"
            )
        return target


def _parts(call: Call) -> tuple[Expr, list[Expr], list[Expr]]:
    """The function that is called, its operands, and the numbers of ``tir_vars``, if there are."""
    if not is_op(call, DYN):
        return call.op, list(call.args), []
    func, args = call.args
    if not isinstance(args, Tuple):
        raise LegalizeError(f"vm.call_tir_dyn takes a tuple of operands; got {args!r}")
    return func, list(args.fields[:-1]), [args.fields[-1]]


def _without_numbers(
    given: Sequence[Expr], kernel: tir.PrimFunc, func: Expr
) -> tuple[list[Expr], list[Expr]]:
    """The tensors among operands, and the numbers behind them as a shape."""
    tensors = [p in kernel.buffer_map for p in kernel.params[: len(given)]]
    count = sum(tensors)
    if count == len(given):
        return list(given), []
    infos = [g.struct_info for g in given[count:]]
    values = [i.value for i in infos if isinstance(i, PrimStructInfo) and i.value is not None]
    if not all(tensors[:count]) or len(values) != len(infos):
        raise LegalizeError(
            f"{getattr(func, 'name_hint', func)} is called with numbers; they must stand behind "
            "the tensors, and their values must be known as expressions (R.prim_value)"
        )
    return list(given[:count]), [ShapeExpr([tir.as_dim(v) for v in values])]


def _number(kernel: tir.PrimFunc, given: Sequence[Expr]) -> Expr | None:
    """What a function of numbers returns; None where that cannot be told."""
    body = kernel.body
    value = body.value if isinstance(body, tir.Evaluate) else None
    if kernel.buffer_map or not isinstance(value, tir.Call) or value.op != "tir.ret":
        return None
    infos = [g.struct_info for g in given]
    known = [i.value for i in infos if isinstance(i, PrimStructInfo) and i.value is not None]
    if len(known) != len(kernel.params):
        return None
    return PrimValue(tir.substitute(value.args[0], dict(zip(kernel.params, known, strict=True))))


def _written(kernel: tir.PrimFunc) -> set[int]:
    """The places of the parameters into whose memory ``kernel`` stores."""
    part_of: dict[tir.Var, tir.Var] = {}
    stored: set[tir.Var] = set()
    for node in walk(kernel.body):
        if isinstance(node, tir.BlockRealize):
            part_of.update((m.buffer.data, m.source.buffer.data) for m in node.block.match_buffers)
        elif isinstance(node, tir.BufferStore):
            stored.add(node.buffer.data)
    found: set[int] = set()
    for data in stored:
        while data in part_of:
            data = part_of[data]
        found.update(
            i
            for i, p in enumerate(kernel.params)
            if p in kernel.buffer_map and kernel.buffer_map[p].data is data
        )
    return found

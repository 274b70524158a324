"""Programs over several devices: where each value lies, and what is moved.

``R.to_vdevice`` puts a value on a device, and an operation runs where its operands are. Operands
that nothing has placed lie on the machine's own device; an operation that takes them beside placed
ones gets them moved. :func:`place_values` writes all of that into a module: devices into the struct
info of variables, moves as ``R.to_vdevice``.
"""

from __future__ import annotations

from collections.abc import Iterator

from relax2xla.analysis.foreign import ForeignCalls
from relax2xla.analysis.unused import remove_unused
from relax2xla.builder import BlockBuilder
from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    If,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    Span,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
    VDevice,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.rewrite import Rewriter, bindings_of, post_order
from relax2xla.ir.struct_info import flatten_info
from relax2xla.op.shape import as_vdevice, to_vdevice
from relax2xla.runtime.device import Device
from relax2xla.vm.host.operators import host_op
from relax2xla.vm.plan.captures import Captures, is_flat
from relax2xla.vm.plan.host_reasons import (
    MOVE,
    device_of,
    devices,
    is_machine_call,
    place,
    sequences,
)

HINT = "relax.hint_on_device"


def place_values(mod: IRModule) -> tuple[IRModule, bool]:
    """``mod`` with the device of every value in its struct info, and whether it has several.

    Where no value is moved and all that the program says of devices names one, it runs on the
    machine's, and nothing is said of devices any more. Raises LegalizeError for an operation whose
    operands lie on several devices, and for a device of no platform of XLA.
    """
    functions = mod.relax_functions()
    moves = [node for f in functions.values() for node in _moves(f)]
    named = {device_of(d) for m in moves if (d := as_vdevice(m.attrs["dst_vdevice"])) is not None}
    named |= {d for f in functions.values() for p in f.params for d in devices(p.struct_info) if d}
    if not named:
        return mod, False
    if len(named) == 1 and all(_name(m) == HINT for m in moves):
        return one_device(mod), False
    foreign = ForeignCalls(mod)
    placed = {g: _placed(f, foreign) for g, f in functions.items()}
    return mod.replace({**mod.functions, **placed}), True


def _placed(func: Function, foreign: ForeignCalls) -> Function:
    normal = BlockBuilder().normalize(func)
    assert isinstance(normal, Function)
    return remove_unused(_Placer().function(normal), foreign)


def one_device(mod: IRModule) -> IRModule:
    """``mod`` with functions that are for one device each."""
    functions = mod.relax_functions()
    return mod.replace({**mod.functions, **{g: without_devices(f) for g, f in functions.items()}})


def without_devices(func: Function) -> Function:
    """``func`` for one device: what it says of devices is left out."""
    return _Bare(rule=_unmoved).function(func)


class _Bare(Rewriter):
    """A Rewriter that leaves devices out of struct info."""

    def info(self, info: StructInfo) -> StructInfo:
        return _on(info, None)

    def var(self, var: Var, info: StructInfo | None) -> Var:
        return super().var(var, None if info is None else _on(info, None))


def _unmoved(node: Expr) -> Expr | None:
    if not isinstance(node, Call):
        return None
    if _name(node) in (MOVE, HINT):
        return node.args[0]
    bare = [_on(i, None) for i in node.sinfo_args]
    if bare == list(node.sinfo_args):
        return None
    return Call(node.op, node.args, node.attrs, bare, node.span)


def _name(call: Call) -> str:
    return call.op.name if isinstance(call.op, Op) else ""


def _moves(func: Function) -> Iterator[Call]:
    for seq in sequences(func):
        for root in (*(b.value for b in bindings_of(seq)), seq.body):
            for node in (root,) if is_flat(root) else post_order(root):
                if isinstance(node, Call) and _name(node) in (MOVE, HINT):
                    yield node


def _on(info: StructInfo, vdevice: VDevice | None) -> StructInfo:
    """``info`` with all arrays on one device."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([_on(f, vdevice) for f in info.fields])
    if not isinstance(info, TensorStructInfo) or info.vdevice == vdevice:
        return info
    shape = info.dims if info.dims is not None else info.shape
    return TensorStructInfo(shape, info.dtype, vdevice, info.ndim if shape is None else -1)


def _like(info: StructInfo, source: StructInfo) -> StructInfo:
    """``info`` with the devices of ``source``, as far as the two are alike."""
    if isinstance(info, TupleStructInfo) and isinstance(source, TupleStructInfo):
        pairs = zip(info.fields, source.fields, strict=False)
        return TupleStructInfo([_like(a, b) for a, b in pairs])
    return _on(info, source.vdevice) if isinstance(source, TensorStructInfo) else info


class _Placer(Rewriter):
    """Rewrites one function whose bindings are normal."""

    def __init__(self) -> None:
        super().__init__()
        self.needs = Captures()
        self.out: list[Binding] = []
        # Variables (of the new function) on other devices, and what is computed of constants alone.
        self.moved: dict[tuple[Var, VDevice], Var] = {}
        self.free: dict[Var, VarBinding] = {}
        # Inside of what runs on one device as a whole, such as the body of a row.
        self.whole = False

    def block(self, block: BindingBlock) -> BindingBlock:
        """The bindings with moves before them."""
        outer, self.out = self.out, []
        for b in block.bindings:
            new = self.binding(b)
            self.out.append(new)
        made, self.out = self.out, outer
        return BindingBlock(made, block.span)

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        """A scope: what is moved in it is not seen behind it."""
        moved, free = dict(self.moved), dict(self.free)
        made = super().seq(seq)
        self.moved, self.free = moved, free
        return made

    def binding(self, b: Binding) -> Binding:
        """One binding, its operands on one device."""
        value = b.value
        if self.whole or isinstance(value, Function):
            return super().binding(b)
        if isinstance(value, Call) and _name(value) in (MOVE, HINT):
            return self._move(b, value)
        if isinstance(value, Call) and host_op(value) is not None:
            return self._bound(b, self.expr(value), _on(b.var.struct_info, None))
        if isinstance(value, Call) and (
            isinstance(value.op, ExternFunc)
            or (isinstance(value.op, Op) and is_machine_call(value.op))
        ):
            # What a packed function gives is put where the program says.
            return self._bound(b, self.expr(value), b.var.struct_info)
        if isinstance(value, Call):
            return self._computed(b, value)
        new = self.expr(value)
        made = self._bound(b, new, _like(b.var.struct_info, new.struct_info))
        self._note_free(made, value)
        return made

    def _bound(self, b: Binding, value: Expr, info: StructInfo) -> Binding:
        var = self.var(b.var, info)
        if isinstance(b, MatchCast):
            return MatchCast(var, value, _like(b.struct_info, info), b.span)
        return VarBinding(var, value, b.span)

    def _note_free(self, made: Binding, value: Expr) -> None:
        """Remember a value that needs constants alone: it can be had on every device."""
        if isinstance(made, VarBinding) and not isinstance(value, If):
            variables = self.needs.of(value).variables
            if all(self.env.get(v, v) in self.free for v in variables):
                self.free[made.var] = made

    def _move(self, b: Binding, call: Call) -> Binding:
        wanted = as_vdevice(call.attrs["dst_vdevice"])
        operand = self.expr(call.args[0])
        info = _on(b.var.struct_info, wanted)
        here = devices(operand.struct_info)
        if wanted is None or (not isinstance(operand, Constant) and here == [device_of(wanted)]):
            return self._bound(b, operand, _like(b.var.struct_info, operand.struct_info))
        if isinstance(operand, Var) and operand in self.free:
            return self._bound(b, self._there(operand, wanted), info)
        return self._bound(b, _moved(operand, wanted, call.span), info)

    def _computed(self, b: Binding, call: Call) -> Binding:
        """What a device computes: where its operands are, or where its variable is said to be."""
        variables = [(v, self.env.get(v, v)) for v in self.needs.of(call).variables]
        at: dict[Device, tuple[VDevice, str]] = {}
        for old, new in variables:
            for leaf in flatten_info(new.struct_info):
                if isinstance(leaf, TensorStructInfo) and leaf.vdevice is not None:
                    at.setdefault(device_of(leaf.vdevice), (leaf.vdevice, old.name_hint))
        if len(at) > 1:
            span = b.span or b.var.span
            raise LegalizeError(
                f"{_name(call) or 'a call'} takes values of several devices: "
                + ", ".join(f"`{name}` on {d}" for d, (_, name) in at.items())
                + "; move them to one with R.to_vdevice"
                + (f" (at {place(span)})" if span else "")
            )
        said = [
            i.vdevice for i in flatten_info(b.var.struct_info) if isinstance(i, TensorStructInfo)
        ]
        wanted = next((v for v, _ in at.values()), next(iter(said), None))
        before = {old: new for old, new in variables if wanted is not None}
        if wanted is not None:
            for old, new in variables:
                self.env[old] = self._there(new, wanted)
        self.whole = True
        value = self.expr(call)
        self.whole = False
        self.env.update(before)
        made = self._bound(b, value, _on(b.var.struct_info, wanted))
        if wanted is None:
            self._note_free(made, call)
        return made

    # -- values elsewhere

    def _there(self, value: Expr, wanted: VDevice) -> Expr:
        """``value``, a variable, with the arrays that nothing has placed on a device."""
        if not isinstance(value, Var) or None not in devices(value.struct_info):
            return value
        todo = [value]
        while todo:
            var = todo[-1]
            needed = self.needs.of(self.free[var].value).variables if var in self.free else ()
            missing = [v for v in needed if (v, wanted) not in self.moved]
            if missing and (var, wanted) not in self.moved:
                todo += missing
                continue
            todo.pop()
            if (var, wanted) not in self.moved:
                self.moved[var, wanted] = self._emit(var, wanted)
        return self.moved[value, wanted]

    def _emit(self, var: Var, wanted: VDevice) -> Var:
        if var in self.free:
            needed = self.needs.of(self.free[var].value).variables
            values = {v: self.moved[v, wanted] for v in needed}
            new: Expr = Rewriter(values=values).expr(self.free[var].value)
        else:
            new = self._parts(var, var.struct_info, wanted)
        info = new.struct_info if isinstance(new, Tuple) else _on(var.struct_info, wanted)
        made = Var(var.name_hint, info, var.span)
        self.out.append(VarBinding(made, new, var.span))
        return made

    def _parts(self, var: Var, info: StructInfo, wanted: VDevice) -> Expr:
        """Moves of an array, or of the fields of a tuple that nothing has placed."""
        if isinstance(info, TensorStructInfo):
            return _moved(var, wanted)
        assert isinstance(info, TupleStructInfo)
        fields: list[Expr] = []
        for i, f in enumerate(info.fields):
            field = Var(f"{var.name_hint}_{i}", f, var.span)
            self.out.append(VarBinding(field, TupleGetItem(var, i), var.span))
            fields.append(self._emit(field, wanted) if None in devices(f) else field)
        return Tuple(fields)


def _moved(operand: Expr, wanted: VDevice, span: Span | None = None) -> Call:
    made = to_vdevice(operand, wanted)
    return Call(made.op, made.args, made.attrs, made.sinfo_args, span)

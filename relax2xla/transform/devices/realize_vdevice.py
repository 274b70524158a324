"""RealizeVDevice: what one value is said to be on, those that it is computed with are on, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from relax2xla import op
from relax2xla.analysis.variables import free_vars
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    Call,
    Expr,
    Function,
    If,
    IRModule,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VDevice,
)
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import Rewriter, bindings_of, post_order_deep
from relax2xla.transform.core import Pass, PassContext, register

HINT, MOVE = "relax.hint_on_device", "relax.to_vdevice"
CPU_KINDS = ("llvm", "c")


@register()
class RealizeVDevice(Pass):
    """Give every tensor the virtual device that follows from what the module says of others.

    Known are variables with a device, results of ``hint_on_device`` and ``to_vdevice``, and what a
    function says of its result. Operands and results of one call are on the same device, except of
    those two. ``hint_on_device(x)`` becomes ``x`` where ``x`` is there, else
    ``to_vdevice(x)``. Hints name devices of the module's global infos (``I.vdevice``);
    TransformError for one that is not among them. XLA runs a program on one device: the
    annotations stay what they are, notes for whoever splits it.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        places = _Places(mod).found()
        if not places:
            return mod
        new = {
            gvar: _Placed(places, mod).function(func) if isinstance(func, Function) else func
            for gvar, func in mod.items()
        }
        return mod.replace(new)


def device_of(call: Call, mod: IRModule) -> VDevice:
    """The device of the module that a hint names: a VDevice, a runtime device, or "cuda:1"."""
    named = call_attrs(call)["dst_vdevice"]
    if isinstance(named, VDevice):
        return named
    platform, _, index = str(named).partition(":")
    wanted = (_platform(platform), int(index or 0))
    devices = [d for d in mod.global_infos.get("vdevice", ()) if isinstance(d, VDevice)]
    for device in devices:
        if (_platform(device.kind), device.vdevice_id) == wanted:
            return device
    known = ", ".join(f"{d.target}:{d.vdevice_id}" for d in devices) or "none"
    raise TransformError(
        f"hint_on_device names {named}, which is no device of the module; it has {known} "
        "(I.module_global_infos)"
    )


def _platform(kind: str) -> str:
    return "cpu" if kind in CPU_KINDS else kind


def with_device(info: TensorStructInfo, device: VDevice) -> TensorStructInfo:
    """A tensor on a device."""
    return TensorStructInfo(info.shape, info.dtype, device, info.ndim if info.shape is None else -1)


class _Places:
    """What is known of variables and their devices, and what follows."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.known: dict[Var, VDevice] = {}
        self.hinted: dict[Var, VDevice] = {}
        self.near: dict[Var, list[Var]] = {}
        self.bound: dict[Expr, Expr] = {}
        for func in mod.relax_functions().values():
            for node in post_order_deep(func):
                if isinstance(node, SeqExpr):
                    for b in bindings_of(node):
                        self._binding(b)
                elif isinstance(node, Function):
                    for p in node.params:
                        self._said(p, p.struct_info_)
                    self._result(node.body.body, node.ret_struct_info)

    def _said(self, var: Var, info: StructInfo | None) -> None:
        if isinstance(info, TensorStructInfo) and info.vdevice is not None:
            self.known.setdefault(var, info.vdevice)

    def _result(self, expr: Expr, info: StructInfo) -> None:
        """What a function says of its result holds for the variables in it."""
        todo = [(expr, info)]
        while todo:
            expr, info = todo.pop()
            if isinstance(info, TupleStructInfo):
                while expr in self.bound:
                    expr = self.bound[expr]
                if isinstance(expr, Tuple):
                    todo += zip(expr.fields, info.fields, strict=True)
            elif isinstance(expr, Var):
                self._said(expr, info)

    def _binding(self, b: Binding) -> None:
        self.bound[b.var] = b.value
        self._said(b.var, b.var.struct_info_)
        if is_op(b.value, HINT):
            assert isinstance(b.value, Call)
            device = device_of(b.value, self.mod)
            self.known[b.var] = device
            if isinstance(b.value.args[0], Var):
                self.hinted[b.value.args[0]] = device
        elif not is_op(b.value, MOVE):
            for v in _read_with(b.value):
                self.near.setdefault(v, []).append(b.var)
                self.near.setdefault(b.var, []).append(v)

    def found(self) -> dict[Var, VDevice]:
        """The device of each variable; what hints say of their operands counts least."""
        found: dict[Var, VDevice] = {}
        for start in (self.known, self.hinted):
            todo = [v for v in start if v not in found]
            found.update((v, start[v]) for v in todo)
            while todo:
                var = todo.pop()
                new = [v for v in self.near.get(var, ()) if v not in found]
                found.update((v, found[var]) for v in new)
                todo += new
        return found


def _read_with(value: Expr) -> Iterator[Var]:
    """Variables that are where ``value`` is."""
    if isinstance(value, If):
        ends = (value.cond, value.true_branch.body, value.false_branch.body)
        yield from (v for end in ends for v in free_vars(end))
    elif not isinstance(value, Function):
        yield from free_vars(value)


class _Placed(Rewriter):
    """Gives variables their devices, and hints what they come to."""

    def __init__(self, places: Mapping[Var, VDevice], mod: IRModule) -> None:
        super().__init__(rule=self._arrived)
        self.places, self.mod = places, mod

    def var(self, var: Var, info: StructInfo | None) -> Var:
        device = self.places.get(var)
        if device is not None and isinstance(info, TensorStructInfo):
            info = with_device(info, device)
        return super().var(var, info)

    def function(self, func: Function) -> Function:
        made = super().function(func)
        ret = _completed(made.ret_struct_info, made.body.struct_info)
        return made if ret == made.ret_struct_info else made.replace(ret_struct_info=ret)

    def _arrived(self, node: Expr) -> Expr | None:
        if not isinstance(node, Call) or not is_op(node, HINT):
            return None
        device, info = device_of(node, self.mod), node.args[0].struct_info
        if isinstance(info, TensorStructInfo) and info.vdevice == device:
            return node.args[0]
        return op.to_vdevice(node.args[0], device)


def _completed(info: StructInfo, known: StructInfo) -> StructInfo:
    """``info`` with the devices that ``known`` says."""
    if isinstance(info, TupleStructInfo) and isinstance(known, TupleStructInfo):
        pairs = zip(info.fields, known.fields, strict=True)
        return TupleStructInfo([_completed(a, b) for a, b in pairs])
    if isinstance(info, TensorStructInfo) and isinstance(known, TensorStructInfo):
        if info.vdevice is None and known.vdevice is not None:
            return with_device(info, known.vdevice)
    return info

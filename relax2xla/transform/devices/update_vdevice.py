"""UpdateVDevice: another virtual device in the place of one."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from relax2xla.errors import TransformError
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    FuncStructInfo,
    Function,
    IRModule,
    Op,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
    VDevice,
)
from relax2xla.ir.rewrite import Rewriter
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.devices.realize_vdevice import with_device


@register()
class UpdateVDevice(Pass):
    """Put ``new_vdevice`` in the place of the device ``index`` of the module's global infos,
    wherever a tensor or a call names it.

    Raises TransformError if the module has no such device, and TypeError if ``new_vdevice`` is no
    VDevice.
    """

    def __init__(self, new_vdevice: VDevice, index: int) -> None:
        if not isinstance(new_vdevice, VDevice):
            raise TypeError(f"new_vdevice is a VDevice; got {type(new_vdevice).__name__}")
        self.new_vdevice, self.index = new_vdevice, index

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        devices = mod.global_infos.get("vdevice", ())
        if not 0 <= self.index < len(devices):
            raise TransformError(
                f"UpdateVDevice: the module has {len(devices)} virtual devices, and none with the "
                f"index {self.index}"
            )
        old = devices[self.index]
        if old == self.new_vdevice:
            return mod
        new = mod.replace(
            {
                gvar: _Renamed(old, self.new_vdevice).function(f) if isinstance(f, Function) else f
                for gvar, f in mod.items()
            }
        )
        new.update_global_info("vdevice", [self.new_vdevice if d == old else d for d in devices])
        return new


class _Renamed(Rewriter):
    def __init__(self, old: VDevice, new: VDevice) -> None:
        super().__init__(rule=self._constant)
        self.old, self.new = old, new

    def info(self, info: StructInfo) -> StructInfo:
        if isinstance(info, TensorStructInfo):
            return with_device(info, self.new) if info.vdevice == self.old else info
        if isinstance(info, TupleStructInfo):
            fields = [self.info(f) for f in info.fields]
            same = all(a is b for a, b in zip(fields, info.fields, strict=True))
            return info if same else TupleStructInfo(fields)
        if isinstance(info, FuncStructInfo) and info.params is not None:
            params, ret = [self.info(p) for p in info.params], self.info(info.ret)
            return FuncStructInfo(params, ret, info.purity)
        return info

    def var(self, var: Var, info: StructInfo | None) -> Var:
        return super().var(var, None if info is None else self.info(info))

    def function(self, func: Function) -> Function:
        made = super().function(func)
        ret = self.info(made.ret_struct_info)
        return made if ret is made.ret_struct_info else made.replace(ret_struct_info=ret)

    def _node(self, node: Expr, kids: Sequence[Expr]) -> Expr:
        """Calls that name the device, or are on it: nothing has to be inferred again."""
        if not isinstance(node, Call):
            return super()._node(node, kids)
        op, args = (node.op, kids) if isinstance(node.op, Op) else (kids[0], kids[1:])
        attrs: Mapping[str, Any] = node.attrs
        if any(v == self.old for v in attrs.values() if isinstance(v, VDevice)):
            attrs = {k: self.new if v == self.old else v for k, v in attrs.items()}
        infos = [self.info(i) for i in node.sinfo_args]
        info = None if node.struct_info_ is None else self.info(node.struct_info_)
        old = (node.op, *node.args, attrs, *node.sinfo_args, node.struct_info_)
        if all(map(operator.is_, old, (op, *args, node.attrs, *infos, info))):
            return node
        return Call(op, args, attrs, infos, node.span, struct_info=info)

    def _constant(self, node: Expr) -> Expr | None:
        if not isinstance(node, Constant) or node.struct_info_ is None:
            return None
        info = self.info(node.struct_info_)
        return None if info is node.struct_info_ else Constant(node.data, info, node.span)

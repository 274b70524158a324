"""RealizeVDevice and UpdateVDevice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op
from relax2xla.errors import TransformError
from relax2xla.ir import Call, IRModule, TensorStructInfo, VDevice
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform import RealizeVDevice, UpdateVDevice

HOST, CARD, OTHER = VDevice("llvm"), VDevice("cuda -arch=sm_80", 0), VDevice("cuda", 1)


def network(body: Callable[[rx.BlockBuilder, rx.Var, rx.Var], Any], **known: VDevice) -> IRModule:
    bb = rx.BlockBuilder()
    x, y = (rx.Var(n, TensorStructInfo((2,), "float32", known.get(n))) for n in "xy")
    with bb.function("main", [x, y]):
        with bb.dataflow():
            out = bb.emit_output(body(bb, x, y))
        bb.emit_func_output(out)
    mod = bb.get()
    mod.update_global_info("vdevice", [HOST, CARD, OTHER])
    return mod


def places(mod: IRModule) -> list[VDevice | None]:
    func = mod["main"]
    variables = [*func.params, *(b.var for b in bindings_of(func.body))]
    infos = [v.struct_info for v in variables]
    assert all(isinstance(i, TensorStructInfo) for i in infos)
    rx.analysis.check_well_formed(mod)
    return [getattr(i, "vdevice", None) for i in infos]


def test_devices_spread() -> None:
    mod = network(lambda bb, x, y: op.exp(bb.emit(op.add(x, y))), x=CARD)
    new = RealizeVDevice()(mod)
    assert places(new) == [CARD] * 4
    assert getattr(new["main"].ret_struct_info, "vdevice", None) == CARD
    assert places(mod)[1] is None
    plain = network(lambda bb, x, y: op.add(x, y))
    assert RealizeVDevice()(plain) is plain
    x, y = np.ones(2, "f"), np.arange(2, dtype="f")
    result = rx.VirtualMachine(rx.build(new), rx.cpu())["main"](x, y)
    np.testing.assert_allclose(result, np.exp(x + y), rtol=1e-6)


def test_hints() -> None:
    def body(bb: rx.BlockBuilder, x: rx.Var, y: rx.Var) -> Any:
        on_host = bb.emit(op.hint_on_device(x, rx.cpu()))
        total = bb.emit(op.add(on_host, on_host))
        moved = bb.emit(op.hint_on_device(total, rx.cuda()))
        return op.multiply(moved, y)

    new = RealizeVDevice()(network(body))
    assert places(new) == [HOST, CARD, HOST, HOST, CARD, CARD]
    values = [b.value for b in bindings_of(new["main"].body)]
    assert values[0] is new["main"].params[0]
    assert is_op(values[2], "relax.to_vdevice")
    assert isinstance(values[2], Call)
    assert values[2].attrs["dst_vdevice"] == CARD


def test_hint_at_no_device_of_the_module() -> None:
    mod = network(lambda bb, x, y: op.add(op.hint_on_device(x, rx.Device("tpu", 3)), y))
    with pytest.raises(TransformError, match="it has llvm:0, cuda -arch=sm_80:0, cuda:1"):
        RealizeVDevice()(mod)


def test_update() -> None:
    def body(bb: rx.BlockBuilder, x: rx.Var, y: rx.Var) -> Any:
        return op.add(bb.emit(op.to_vdevice(x, CARD)), y)

    mod = network(body, x=HOST, y=CARD)
    new = UpdateVDevice(OTHER, 1)(mod)
    assert places(new) == [HOST, OTHER, OTHER, OTHER]
    assert new.global_infos["vdevice"] == (HOST, OTHER, OTHER)
    assert mod.global_infos["vdevice"] == (HOST, CARD, OTHER)
    assert UpdateVDevice(HOST, 0)(mod) is mod
    with pytest.raises(TransformError, match="none with the index 3"):
        UpdateVDevice(HOST, 3)(mod)
    with pytest.raises(TypeError, match="is a VDevice"):
        UpdateVDevice("cuda", 0)  # pyright: ignore[reportArgumentType]

"""Programs whose values lie on two devices of the host, run by test_devices.py."""

from __future__ import annotations

import logging
from typing import Any

import jax
import numpy as np

import relax2xla as rx
from relax2xla.errors import LegalizeError
from relax2xla.script import from_source
from relax2xla.transform import LegalizeOps, RealizeVDevice

X = np.arange(6, dtype=np.float32).reshape(2, 3)
HEAD = """
from tvm.script import ir as I, relax as R, tir as T
@I.ir_module
class M:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})
"""

# Name: program, expected results, the device of each result, its regions by device.
PROGRAMS: dict[str, tuple[str, Any, Any, dict[str | None, int]]] = {
    "there and back": (
        """
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        a = R.add(x, x)
        b = R.to_vdevice(a, "llvm:1")
        c = R.add(R.exp(b), R.const(1.0, "float32"))
        d = R.to_vdevice(c, "llvm:0")
        e = R.subtract(d, x)
        return (c, e)
""",
        lambda: (np.exp(2 * X) + 1, np.exp(2 * X) + 1 - X),
        (1, 0),
        {None: 1, "cpu:1": 1, "cpu:0": 1},
    ),
    "what nothing has placed comes along": (
        """
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"), t: R.Tuple(R.Tensor((3,), "float32"), R.Shape([2, 3]))
    ):
        w = R.exp(R.const([0.0, 0.0, 0.0], "float32"))
        b = R.to_vdevice(x, "llvm:1")
        c = R.add(R.multiply(b, w), t[0])
        d = R.reshape(R.add(c, x), t[1])
        return d
""",
        lambda: 2 * X + np.array([1, 2, 3], np.float32),
        1,
        {"cpu:1": 1},
    ),
    "parameters by their struct info": (
        """
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32", "llvm:1"), n: R.Tensor(("k",), "float32", "llvm:0")
    ):
        return (R.add(x, x), R.negative(n))
""",
        lambda: (2 * X, -np.array([1, 2, 3], np.float32)),
        (1, 0),
        {"cpu:1": 1, "cpu:0": 1},
    ),
    "branches and local functions": (
        """
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")):
        @R.function
        def twice(v: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            w = R.add(v, v)
            return w

        if c:
            b = R.to_vdevice(x, "llvm:1")
            y = twice(b)
        else:
            y = R.negative(x)
        z = R.to_vdevice(y, "llvm:1")
        return R.add(z, z)
""",
        lambda: 4 * X,
        1,
        {None: 1, "cpu:1": 2},
    ),
    "hints of two devices": (
        """
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        a = R.hint_on_device(x, I.vdevice("llvm", 1))
        b = R.sum(a, axis=[1])
        c = R.hint_on_device(b, I.vdevice("llvm", 0))
        return R.exp(c)
""",
        lambda: np.exp(X.sum(1)),
        0,
        {"cpu:1": 1, "cpu:0": 1},
    ),
    "one device alone is the machine's": (
        """
    @R.function
    def main(x: R.Tensor((2, 3), "float32", "llvm:1")):
        a = R.hint_on_device(x, I.vdevice("llvm", 1))
        return R.sum(R.exp(a), axis=[1])
""",
        lambda: np.exp(X).sum(1),
        0,
        {},
    ),
    "shapes by value on another device": (
        """
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        k = T.int64()
        b = R.to_vdevice(R.exp(x), "llvm:1")
        large = R.nonzero(R.greater(b, R.const(8.0, "float32")))
        where = R.match_cast(large, R.Tensor((2, k), "int64"))
        rows = R.squeeze(R.strided_slice(where, axes=[0], begin=[0], end=[1]), axis=[0])
        return R.take(b, R.to_vdevice(rows, "llvm:1"), axis=0)
""",
        lambda: np.exp(X)[np.nonzero(np.exp(X) > 8)[0]],
        1,
        {None: 2, "cpu:1": 2},
    ),
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "what nothing has placed comes along": ((np.array([1, 2, 3], np.float32), (2, 3)),),
    "parameters by their struct info": (np.array([1, 2, 3], np.float32),),
    "branches and local functions": (np.array(True),),
}


def main(folder: str) -> None:
    """Build, save, load and run each; AssertionError for what is not as it should be."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("relax2xla.vm").addHandler(handler)
    on = jax.devices()
    for name, (text, expected, where, programs) in PROGRAMS.items():
        mod = from_source(HEAD + text)
        assert isinstance(mod, rx.IRModule)
        executable = rx.build(mod)
        placed = [executable.devices.get(r) for r in executable.regions]
        found = {d: sum(str(p or None) == str(d) for p in placed) for d in programs}
        assert found == programs, (name, found, executable.stats())
        path = f"{folder}/{len(name)}.r2x"
        executable.export_library(path)
        want = expected()
        for ex in (executable, rx.load_module(path)):
            vm = rx.VirtualMachine(ex, rx.cpu(0))
            for _ in range(2):
                got = vm["main"](X, *ARGUMENTS.get(name, ()))
                for g, w, d in zip(
                    *((v if isinstance(v, tuple) else (v,)) for v in (got, want, where)),
                    strict=True,
                ):
                    assert g.devices() == {on[d]}, (name, g.devices())
                    np.testing.assert_allclose(g, w, rtol=1e-6, err_msg=name)
    # Programs for TVM lower their operators themselves, after places are known.
    mod = from_source(
        HEAD
        + """
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((3, 4), "float32"),
             z: R.Tensor((4, 5), "float32")) -> R.Tensor((2, 5), "float32"):
        with R.dataflow():
            a = R.hint_on_device(R.matmul(x, y), "llvm:0")
            b: R.Tensor((2, 4), "float32", "llvm:1") = R.to_vdevice(a, "llvm:1")
            c = R.matmul(b, z)
            R.output(c)
        return c
"""
    )
    assert isinstance(mod, rx.IRModule)
    lowered = LegalizeOps()(RealizeVDevice()(mod))
    vm = rx.VirtualMachine(rx.build(lowered), [rx.cpu(0), rx.cpu(1)])
    y, z = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    got = vm["main"](X, y, z)
    assert got.devices() == {on[1]}
    np.testing.assert_allclose(got, X @ y @ z)
    # What the program moves is no argument on the wrong device, of which a warning tells.
    assert not said, said
    mod = from_source(
        HEAD
        + """
    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        a = R.to_vdevice(x, "llvm:0")
        b = R.to_vdevice(y, "llvm:1")
        return R.add(a, b)
"""
    )
    assert isinstance(mod, rx.IRModule)
    try:
        rx.build(mod)
    except LegalizeError as e:
        text = str(e)
        assert "`a` on cpu:0, `b` on cpu:1; move them to one with R.to_vdevice" in text, text
    else:
        raise AssertionError

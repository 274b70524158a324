"""Distributed tensors as parts that two workers have; see tests/transform/distributed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

import relax2xla as rx
from relax2xla.script import from_source
from relax2xla.transform import (
    ForEachWorker,
    LegalizeRedistribute,
    LowerGlobalViewToLocalView,
    PropagateSharding,
    Sequential,
)

RNG = np.random.default_rng(0)
X, W, V = (RNG.standard_normal(s).astype("float32") for s in ((4, 6), (6, 8), (8, 3)))

BY_OPERATORS = """
@I.ir_module
class Module:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})
    @R.function
    def main(
        x: R.DTensor((4, 6), "float32", "mesh[0]", "R"),
        w: R.DTensor((6, 8), "float32", "mesh[0]", "S[1]"),
        b: R.DTensor((8,), "float32", "mesh[0]", "R"),
    ):
        c = R.dist.redistribute(b, "mesh[0]", "S[0]")
        y = R.add(R.matmul(x, w), c)
        z = R.nn.softmax(R.permute_dims(y), axis=1)
        s = R.sum(x, axis=[1])
        return (R.reshape(y, R.shape([4, 2, 4])), z, s)
"""

ANNOTATED = """
@I.ir_module
class Module:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})
    @T.prim_func
    def product(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8, 3), "float32"),
                C: T.Buffer((4, 3), "float32")):
        for i, j, k in T.grid(4, 3, 8):
            with T.block("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    @R.function
    def main(x: R.Tensor((4, 6), "float32"), w: R.Tensor((6, 8), "float32"),
             v: R.Tensor((8, 3), "float32")):
        cls = Module
        a = R.matmul(x, w)
        b = R.dist.annotate_sharding(R.tanh(a), "mesh[0]", "S[1]")
        c = R.call_tir(cls.product, (b, v), out_sinfo=R.Tensor((4, 3), "float32"))
        d = R.dist.annotate_sharding(R.add(c, R.const(1.0)), "mesh[0]", "S[0]")
        return (d, R.sum(b, axis=[1]))
"""


def annotated() -> rx.IRModule:
    made = from_source(ANNOTATED)
    assert isinstance(made, rx.IRModule)
    return made


def wanted() -> tuple[np.ndarray, np.ndarray]:
    b = np.tanh(X @ W)
    return b @ V + 1, b.sum(1)


def close(got: Iterable[Any], want: Iterable[Any]) -> None:
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def spread_by_xla() -> None:
    mod = PropagateSharding()(annotated())
    assert [str(p.struct_info.placement) for p in mod["main"].params] == ["R", "S[1]", "S[0]"]
    close(rx.VirtualMachine(rx.build(mod, mesh=2))["main"](X, W, V), wanted())


def run_by_workers() -> None:
    """The same without ``R.sum``, of whose parts workers would make no sum."""
    given = ANNOTATED.replace("return (d, R.sum(b, axis=[1]))", "return (d, b)")
    mod = from_source(given)
    assert isinstance(mod, rx.IRModule)
    steps = [
        PropagateSharding(),
        LowerGlobalViewToLocalView(),
        LegalizeRedistribute(),
        ForEachWorker(),
    ]
    lowered = Sequential(steps)(mod)
    text = lowered.script()
    assert [text.count(f"R.ccl.{name}(") for name in ("allreduce", "scatter_from_worker0")] == [
        1,
        2,
    ]
    d, b = rx.VirtualMachine(rx.build(lowered, mesh=2))["main"](X, W, V)
    b = np.concatenate(b, 1)
    close((np.concatenate(d, 0), b.sum(1)), wanted())


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def by_operators() -> None:
    b = np.arange(8, dtype="float32")
    given = from_source(BY_OPERATORS)
    assert isinstance(given, rx.IRModule)
    mod = Sequential([LegalizeRedistribute(), ForEachWorker()])(given)
    parts, z, s = rx.VirtualMachine(rx.build(mod, mesh=2))["main"](X, W, b)
    y = X @ W + b
    # Of what differs between workers, each worker's part along an axis in front.
    np.testing.assert_allclose(np.concatenate(parts, 1), y.reshape(4, 2, 4), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(z, 0), softmax(y.T), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(s, X.sum(1), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    by_operators()
    spread_by_xla()
    run_by_workers()
    sys.stdout.write("done\n")

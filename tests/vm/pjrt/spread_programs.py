"""Distributed tensors as parts that two workers have; see tests/transform/distributed."""

from __future__ import annotations

import sys

import numpy as np

import relax2xla as rx
from relax2xla.script import from_source
from relax2xla.transform import ForEachWorker, LegalizeRedistribute, Sequential

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
    sys.stdout.write("done\n")

"""A small convolutional network built by hand with BlockBuilder and ``relax2xla.op.nn``.

python examples/blockbuilder_nn.py
"""

from __future__ import annotations

import numpy as np

import relax2xla as rx
from relax2xla.op import nn


class Builder:
    """Layers on top of BlockBuilder: each emits its operators and gives the result."""

    def __init__(self, seed: int = 0) -> None:
        self.block = rx.BlockBuilder()
        self.rng = np.random.default_rng(seed)

    def weight(self, *shape: int) -> rx.Constant:
        """Random weights at the scale of He's initialisation."""
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return rx.const((scale * self.rng.standard_normal(shape)).astype(np.float32))

    def conv(self, x: rx.Expr, inputs: int, outputs: int) -> rx.Var:
        """A 3x3 convolution, a bias, a ReLU and a 2x2 pooling."""
        y = self.block.emit(nn.conv2d(x, self.weight(outputs, inputs, 3, 3), padding=1))
        y = self.block.emit(rx.op.add(y, rx.const(np.zeros((1, outputs, 1, 1), np.float32))))
        return self.block.emit(nn.max_pool2d(nn.relu(y), pool_size=2, strides=2))

    def linear(self, x: rx.Expr, inputs: int, outputs: int) -> rx.Var:
        """A fully connected layer."""
        return self.block.emit(rx.op.matmul(x, self.weight(inputs, outputs)))


def network() -> rx.IRModule:
    """Images (n, 1, 28, 28) to the probabilities of ten classes (n, 10)."""
    b = Builder()
    n = rx.tir.Var("n", "int64")
    image = rx.Var("image", rx.TensorStructInfo((n, 1, 28, 28), "float32"))
    with b.block.function("main", [image]):
        with b.block.dataflow():
            x = b.conv(image, 1, 8)
            x = b.conv(x, 8, 16)
            x = b.block.emit(rx.op.reshape(x, (n, 16 * 7 * 7)))
            x = b.linear(x, 16 * 7 * 7, 10)
            result = b.block.emit_output(nn.softmax(x))
        b.block.emit_func_output(result)
    return b.block.get()


def main() -> None:
    """Print the network, what is built from it, and one result."""
    mod = network()
    mod.show()
    executable = rx.build(mod)
    print(executable.stats())
    images = np.random.default_rng(1).standard_normal((4, 1, 28, 28), np.float32)
    result = np.asarray(rx.VirtualMachine(executable)["main"](images))
    print(f"\nprobabilities {result.shape}, each row sums to {result.sum(1)}")
    print(f"classes {result.argmax(1)}")


if __name__ == "__main__":
    main()

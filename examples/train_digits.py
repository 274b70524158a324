"""A network written with BlockBuilder learns to read drawn digits, to 97 % and more.

python examples/train_digits.py
"""

from __future__ import annotations

import sys

import numpy as np

import relax2xla as rx
from relax2xla.op import nn
from relax2xla.training import SetupTrainer, Trainer
from relax2xla.training.loss import CrossEntropyLoss
from relax2xla.training.optimizer import Adam

# Each digit in seven rows of five pixels, a row in two octal figures.
DIGITS = (
    *("16212125312116", "04140404040416", "16210106102037", "37020406010116", "02061222370202"),
    *("37203601012116", "06102036212116", "37010204101010", "16212116212116", "16212117010214"),
)
BATCH, CLASSES = 64, 10


def glyph(text: str) -> np.ndarray:
    """A digit as an image (14, 10) of zeros and ones."""
    rows = [[int(text[i : i + 2], 8) >> (4 - x) & 1 for x in range(5)] for i in range(0, 14, 2)]
    return np.kron(np.array(rows, np.float32), np.ones((2, 2), np.float32))


def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (count, 1, 20, 20) of digits somewhere, slanted, pale and noisy; and the digits."""
    images, digits = np.zeros((count, 1, 20, 20), np.float32), rng.integers(0, CLASSES, count)
    for image, digit in zip(images, digits, strict=True):
        top, slant = rng.integers(0, 7), rng.integers(-2, 3)
        left, paint = rng.integers(2, 9), rng.uniform(0.5, 1.0)
        for y, row in enumerate(glyph(DIGITS[digit])):
            shift = left + round(slant * (y - 7) / 7)
            image[0, top + y, shift : shift + 10] = paint * row
    return images + rng.normal(0, 0.2, images.shape).astype(np.float32), digits


def network() -> rx.IRModule:
    """``backbone(image, its parameters)``: images (n, 1, 20, 20) to logits (n, 10)."""
    shapes = {"k1": (8, 1, 3, 3), "b1": (1, 8, 1, 1), "k2": (16, 8, 3, 3), "b2": (1, 16, 1, 1)}
    shapes |= {"w": (400, CLASSES), "b": (CLASSES,)}
    image = rx.Var("image", rx.TensorStructInfo((BATCH, 1, 20, 20), "float32"))
    p = {name: rx.Var(name, rx.TensorStructInfo(s, "float32")) for name, s in shapes.items()}
    block = rx.BlockBuilder()
    with block.function("backbone", [image, *p.values()]):
        with block.dataflow():
            x: rx.Expr = image
            for kernel, bias in ((p["k1"], p["b1"]), (p["k2"], p["b2"])):
                x = block.emit(nn.relu(nn.conv2d(x, kernel, padding=1) + bias))
                x = block.emit(nn.max_pool2d(x, pool_size=2, strides=2))
            x = rx.op.matmul(rx.op.reshape(x, (BATCH, 400)), p["w"])
            result = block.emit_output(x + p["b"])
        block.emit_func_output(result)
    return block.get().with_attrs({"param_num": len(p), "state_num": 0})


def main(steps: int = 600) -> None:
    """Train on new images at each step, then read others."""
    logits = rx.TensorStructInfo((BATCH, CLASSES), "float32")
    labels = rx.TensorStructInfo((BATCH,), "int64")
    mod = SetupTrainer(CrossEntropyLoss(), Adam(0.004), [logits, labels])(network())
    trainer = Trainer(mod, rx.VirtualMachine(rx.build(mod)), rx.cpu())
    rng = np.random.default_rng(0)
    sizes = {k: np.shape(v) for k, v in trainer.export_params().items() if k in ("k1", "k2", "w")}
    scales = {k: np.sqrt(2 / (s[0] if k == "w" else np.prod(s[1:]))) for k, s in sizes.items()}
    trainer.load_params({k: rng.normal(0, scales[k], s).astype("f") for k, s in sizes.items()})
    for step in range(steps):
        loss = trainer.update(*draw(rng, BATCH))
        if step % max(steps // 5, 1) == 0:
            print(f"step {step}: loss {float(loss):.3f}")
    tests = [draw(rng, BATCH) for _ in range(16)]
    right = [np.asarray(trainer.predict(x)).argmax(1) == y for x, y in tests]
    print(f"{100 * np.mean(right):.1f} % of {np.size(right)} new images are read correctly")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""One function for every batch size: a symbolic dimension, specialised and cached for each call.

python examples/symbolic_batch.py
"""

from __future__ import annotations

import time

import numpy as np

import relax2xla as rx


def build_module(rng: np.random.Generator) -> tuple[rx.IRModule, np.ndarray]:
    """A linear layer and a softmax on a batch of ``n`` rows, and the layer's weights."""
    weights = rng.standard_normal((64, 10), np.float32)
    n = rx.tir.Var("n", "int64")
    x = rx.Var("x", rx.TensorStructInfo((n, 64), "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            logits = builder.emit(rx.op.matmul(x, rx.const(weights)))
            result = builder.emit_output(rx.op.nn.softmax(logits))
        builder.emit_func_output(result)
    return builder.get(), weights


def main() -> None:
    """Call one executable with several batch sizes."""
    rng = np.random.default_rng(0)
    mod, weights = build_module(rng)
    mod.show()
    run = rx.VirtualMachine(rx.build(mod))["main"]

    print("\nbatch  result     time     largest error")
    for batch in (1, 8, 1, 8):
        x = rng.standard_normal((batch, 64), np.float32)
        start = time.perf_counter()
        result = np.asarray(run(x))
        took = 1e3 * (time.perf_counter() - start)
        e = np.exp(x @ weights - (x @ weights).max(1, keepdims=True))
        error = np.abs(result - e / e.sum(1, keepdims=True)).max()
        print(f"{batch:5d}  {result.shape!s:9s}{took:7.2f} ms   {error:.1e}")
    print("The first call of a shape compiles it; later ones find it in the cache.")

    try:
        run(np.zeros((2, 63), np.float32))
    except rx.TVMError as error:
        print(f"\nA shape that does not fit: {error}")


if __name__ == "__main__":
    main()

"""An ONNX model to XLA: import it, look at it as Relax, run it beside ONNX Runtime.

    python examples/from_onnx.py [model.onnx]

needs onnx (in a clone: pip install '.[onnx]').

Without a file a small classifier with a symbolic batch size is made on the spot.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import relax2xla
from relax2xla.frontend.onnx import from_onnx


def classifier() -> onnx.ModelProto:
    """Two dense layers; the batch size is the symbol ``batch``."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((16, 32), np.float32),
        "b1": rng.standard_normal(32, np.float32),
        "w2": rng.standard_normal((32, 4), np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["image", "w1", "b1"], ["h"], name="hidden"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["logits"], name="output"),
        helper.make_node("Softmax", ["logits"], ["probabilities"], name="softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def inputs_of(mod: relax2xla.IRModule, batch: int) -> list[Any]:
    """Random inputs for ``main``, ``batch`` in place of every symbolic dimension."""
    rng = np.random.default_rng(1)
    made: list[Any] = []
    for p in mod["main"].params:
        info = p.struct_info
        shape = [d if isinstance(d, int) else batch for d in info.dims]
        made.append(rng.random(shape).astype(info.dtype))
    return made


def main() -> None:
    """Import, print, run, compare."""
    model = onnx.load(sys.argv[1]) if len(sys.argv) > 1 else classifier()
    mod = from_onnx(model)
    mod.show()
    vm = relax2xla.VirtualMachine(relax2xla.build(mod, "cpu"))
    for batch in (1, 8):
        inputs = inputs_of(mod, batch)
        result = vm["main"](*inputs)
        outputs = [np.asarray(y) for y in (result if isinstance(result, tuple) else (result,))]
        print(f"batch {batch}: outputs {[y.shape for y in outputs]}")
        try:
            import onnxruntime
        except ImportError:
            continue
        session = onnxruntime.InferenceSession(model.SerializeToString())
        names = [i.name for i in session.get_inputs()]
        wanted = session.run(None, dict(zip(names, inputs, strict=True)))
        gaps = [float(np.abs(a - b).max()) for a, b in zip(outputs, wanted, strict=True)]
        print(f"         largest difference from ONNX Runtime: {max(gaps):.1e}")


if __name__ == "__main__":
    main()

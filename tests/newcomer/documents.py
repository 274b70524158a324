"""What the documents beside the tutorials take for granted, and a program that runs their blocks.

    python -m tests.newcomer.documents

Blocks marked ``python`` run in order, after what GIVEN has for their document; those marked ``py``
are parts, or need what is not here (eight devices), and are read alone. All run in one process of
their own, since they register converters.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"

_TORCH = """
import numpy as np, torch
import relax2xla
torch.manual_seed(0)
"""

#: Python that comes before the blocks of a document.
GIVEN: Final = {
    "cli": "",
    "jax": _TORCH
    + """
import jax, optax
import jax.numpy as jnp
from flax import nnx
torch_module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
example = torch.ones(2, 3)
rows = ({0: torch.export.Dim("n")},)
torch.onnx.export(torch_module, (example,), "model.onnx", verbose=False, dynamic_shapes=rows)
mod = relax2xla.load("model.onnx")
x = np.ones((2, 3), np.float32)
loss = lambda y: y.sum()
""",
    "nn": "",
    "onnx": """
import numpy as np
from onnx import TensorProto, helper
x = np.ones((2, 3), np.float32)
info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info("x")], [info("y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
""",
    "passes": _TORCH
    + """
from relax2xla.frontend.torch import from_exported_program
network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
mod = from_exported_program(torch.export.export(network, (torch.ones(1, 3, 8, 8),)))
""",
    "patterns": "",
    "stablehlo": "",
    "torch": "",
    "vm": "",
}


def main() -> int:
    """Run all; the number of documents that are not true."""
    from tests.newcomer.blocks import run_document

    failed = 0
    for name, given in GIVEN.items():
        began = time.process_time()
        try:
            ran = run_document(DOCS / f"{name}.md", given=given, strict=False)
        except Exception as e:
            failed += 1
            notes = " ".join(getattr(e, "__notes__", ()))
            print(f"{name}.md: {type(e).__name__}: {e} {notes}")
        else:
            print(f"{name}.md: {ran} blocks, {time.process_time() - began:.1f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""A model that calls C++: compiled by the machine's compiler, run inside the XLA program.

    python examples/extern_cpp.py

needs a C++ compiler (c++, g++ or clang++, or what the environment variable CXX names).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import relax2xla as rx
from relax2xla.frontend import nn
from relax2xla.frontend.nn import op, spec
from relax2xla.runtime.compiler import has_compiler
from relax2xla.transform import AttachExternModules

# A scan that XLA has no operator for: y[t] = decay * y[t - 1] + x[t], by rows. Functions get DLPack
# tensors, the results last; these headers come with relax2xla.
SOURCE = r"""
#include <dlpack/dlpack.h>
#include <tvm/runtime/packed_func.h>

int leaky_sum(DLTensor* x, float decay, DLTensor* y) {
  ICHECK_EQ(x->ndim, 2) << "rows of numbers are expected";
  ICHECK(tvm::DataType(x->dtype) == tvm::DataType::Float(32));
  const int64_t rows = x->shape[0], columns = x->shape[1];
  for (int64_t i = 0; i < rows; ++i) {
    const float* in = static_cast<const float*>(x->data) + i * columns;
    float* out = static_cast<float*>(y->data) + i * columns;
    float sum = 0;
    for (int64_t j = 0; j < columns; ++j) out[j] = sum = decay * sum + in[j];
  }
  return 0;
}
TVM_DLL_EXPORT_TYPED_FUNC(ext_leaky_sum, leaky_sum);
"""


def like_first(x: nn.Tensor, decay: float) -> nn.Tensor:
    """What ext_leaky_sum gives: as large as its first argument."""
    return nn.Tensor.placeholder(x.shape, x.dtype)


class Smooth(nn.Module):
    """A gated, smoothed signal."""

    def __init__(self, width: int) -> None:
        self.gate = nn.Linear(width, width)
        self.kernels = nn.SourceModule({"ext_leaky_sum": like_first}, SOURCE, "cpp")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """x: (n, width) of float32; the result too."""
        nn.add_extern(self.kernels)
        return self.kernels["ext_leaky_sum"](x * op.sigmoid(self.gate(x)), 0.9)


def in_numpy(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The same in numpy."""
    gated = x / (1 + np.exp(-(x @ weight.T + bias)))
    out = np.zeros_like(gated)
    for j in range(x.shape[1]):
        out[:, j] = gated[:, j] + (0.9 * out[:, j - 1] if j else 0)
    return out


def main() -> None:
    """Try the model, export it, and time the external function inside the program."""
    if not has_compiler():
        print("there is no C++ compiler here; install g++, or set CXX")
        return
    rng = np.random.default_rng(0)
    model = Smooth(64)
    weights = {n: rng.normal(size=p.shape, scale=0.1) for n, p in model.named_parameters()}
    model.load_state_dict({n: w.astype(np.float32) for n, w in weights.items()})
    x = rng.normal(size=(8, 64)).astype(np.float32)

    # Called with arrays, the model compiles the C++, and runs.
    tried = np.asarray(model(x))
    want = in_numpy(x, np.asarray(model.gate.weight.data), np.asarray(model.gate.bias.data))
    print(f"largest difference from numpy: {np.abs(tried - want).max():.1e}")

    # Exported, the program calls the function by name; AttachExternModules compiles its source.
    mod, params, externs = model.export_tvm(
        {"forward": {"x": spec.Tensor(["n", 64], "float32")}}, allow_extern=True
    )
    print(mod.script())
    ready = AttachExternModules(externs)(mod)
    executable = rx.build(ready, exec_mode="compiled")
    print(executable.stats())
    forward = rx.VirtualMachine(executable)["forward"]
    values = [p.data for _, p in params]
    assert np.allclose(forward(x, *values), want, atol=1e-5)

    # The same with the function on the host, between two programs.
    with rx.transform.PassContext(config={"relax2xla.external_on_host": True}):
        apart = rx.VirtualMachine(rx.build(ready))["forward"]
    large = rng.normal(size=(4096, 64)).astype(np.float32)
    for name, function in (("inside the program", forward), ("on the host", apart)):
        best = min(seconds(function, large, *values) for _ in range(20))
        print(f"{name}: {best * 1e3:.2f} ms")

    # The object file can be made once, and shipped with what is to load it.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.o"
        model.kernels.compile(path)
        model.kernels = nn.ObjectModule({"ext_leaky_sum": like_first}, path)
        print("from the object file:", np.allclose(np.asarray(model(x)), want, atol=1e-5))


def seconds(function, *args) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    np.asarray(function(*args))
    return time.perf_counter() - start


if __name__ == "__main__":
    main()

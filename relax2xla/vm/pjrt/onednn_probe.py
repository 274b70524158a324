"""The child process that tries oneDNN: ``python -m relax2xla.vm.pjrt.onednn_probe FEATURE...``.

It prints the features whose small calls give what they should, and may end on the way: that is what
it is for.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np
from jaxlib import xla_client as xc

from relax2xla.kernels.native import Tensor
from relax2xla.kernels.onednn.calls import FEATURES, Call, Convolution, Product
from relax2xla.stablehlo import mlir

Array = np.ndarray[Any, Any]

_TYPES: Final = {"float32": "f32", "int8": "i8", "uint8": "ui8", "int32": "i32"}
_ERF: Final = np.vectorize(math.erf)
_TOLERANCE: Final = 1e-5


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_FUNCTIONS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "RELU": lambda x: np.maximum(x, 0),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "TANH": np.tanh,
    "GELU_ERF": lambda x: 0.5 * x * (1 + _ERF(x / math.sqrt(2))),
    "GELU_TANH": _gelu_tanh,
    "ELU": lambda x: np.where(x > 0, x, np.expm1(x)),
}


def expected(call: Call, operands: Sequence[Array]) -> Array:
    """What ``call`` is to give, in float64 or int64."""
    wide = [x.astype(np.int64 if x.dtype.kind in "iu" else np.float64) for x in operands]
    first, second, *rest = wide
    if isinstance(call, Convolution):
        value = _convolved(call, first, second)
    else:
        assert isinstance(call, Product)
        left = first.swapaxes(-1, -2) if call.transpose_left else first
        value = left @ (second.swapaxes(-1, -2) if call.transpose_right else second)
    for fusion in call.fusions:
        value = _FUNCTIONS[fusion](value) if fusion in _FUNCTIONS else value + rest.pop(0)
    return value


def _convolved(call: Convolution, image: Array, window: Array) -> Array:
    pads = [(0, 0), *zip(call.padding[::2], call.padding[1::2], strict=True), (0, 0)]
    image = np.pad(image, pads)
    *sizes, inner, out = window.shape
    batch, *places, _ = call.result.shape
    total = np.zeros((batch, *places, call.groups, out // call.groups))
    for tap in itertools.product(*map(range, sizes)):
        at = [t * d for t, d in zip(tap, call.dilation, strict=True)]
        steps = zip(at, places, call.strides, strict=True)
        pixels = image[:, *(slice(a, a + (n - 1) * s + 1, s) for a, n, s in steps)]
        pixels = pixels.reshape(batch, *places, call.groups, inner)
        taps = window[tap].reshape(inner, call.groups, -1)
        total += np.einsum("...gi,igo->...go", pixels, taps)
    return total.reshape(call.result.shape)


def _type(tensor: Tensor) -> str:
    return f"tensor<{'x'.join(map(str, tensor.shape))}x{_TYPES[tensor.dtype]}>"


def _program(calls: Sequence[Call]) -> str:
    """A program that makes all the calls, each on operands of its own."""
    params: list[str] = []
    lines: list[str] = []
    for n, call in enumerate(calls):
        names = [f"%a{n}_{i}" for i in range(len(call.operands))]
        types = list(map(_type, call.operands))
        params += [f"{name}: {t}" for name, t in zip(names, types, strict=True)]
        config = call.config().replace('"', '\\"')
        lines.append(
            f'%r{n} = stablehlo.custom_call @"{call.target}"({", ".join(names)}) '
            f'{{api_version = 1 : i32, backend_config = "{config}"}} : '
            f"({', '.join(types)}) -> {_type(call.result)}"
        )
    results = ", ".join(_type(c.result) for c in calls)
    lines.append(f"return {', '.join(f'%r{n}' for n in range(len(calls)))} : {results}")
    body = "\n".join(lines)
    return f"func.func @main({', '.join(params)}) -> ({results}) {{\n{body}\n}}"


def _operand(tensor: Tensor, random: np.random.Generator) -> Array:
    if tensor.dtype == "float32":
        return random.standard_normal(tensor.shape).astype(np.float32)
    info = np.iinfo(tensor.dtype)
    return random.integers(info.min, info.max, tensor.shape, tensor.dtype, endpoint=True)


def works(names: Sequence[str]) -> list[str]:
    """Those of the features whose calls, all in one program, give what they should."""
    calls = [FEATURES[n] for n in names]
    random = np.random.default_rng(0)
    operands = [[_operand(t, random) for t in call.operands] for call in calls]
    for call, own in zip(calls, operands, strict=True):
        if call.fusions:  # what is no number stays none
            own[0].flat[0] = np.nan
    device = jax.devices("cpu")[0]
    module = mlir.ir.Module.parse(_program(calls), mlir.context())
    options = xc.CompileOptions()
    # As programs are compiled; see compiler.COMPILER_OPTIONS.
    options.env_option_overrides = [("xla_cpu_enable_fast_min_max", False)]
    program = device.client.compile_and_load(module, xc.DeviceList((device,)), options)
    buffers = [jax.device_put(x, device) for own in operands for x in own]
    made = program.execute_sharded(buffers).disassemble_into_single_device_arrays()
    found: list[str] = []
    for name, call, own, (result,) in zip(names, calls, operands, made, strict=True):
        want = expected(call, own)
        scale = max(1.0, float(np.nanmax(np.abs(want))))
        if np.allclose(np.asarray(result), want, rtol=0, atol=_TOLERANCE * scale, equal_nan=True):
            found.append(name)
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(works(sys.argv[1:])))
    sys.stdout.flush()
    # Nothing of what is torn down at the end may change the answer.
    os._exit(0)

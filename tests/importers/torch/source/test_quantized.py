"""Operators of PT2E's quantised networks, by export and torch.compile, against eager torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")  # registers the operators

from torch.nn import functional as F  # noqa: E402

from relax2xla.errors import OpNotImplemented, UnsupportedError  # noqa: E402
from relax2xla.frontend.torch import relax_dynamo  # noqa: E402
from tests.importers.torch.helpers import check, check_table, imported, run  # noqa: E402

Q = torch.ops.quantized_decomposed
I8, U8 = torch.int8, torch.uint8
SIGNED, UNSIGNED = (-128, 127, I8), (0, 255, U8)
g = torch.Generator().manual_seed(0)
X = 9 * torch.randn(3, 8, generator=g)
SCALES, ZEROS = torch.tensor([0.1, 0.021, 0.3]), torch.tensor([1, -2, 3])
# Halves between two steps are rounded to even, and the ends are cut.
HALVES = torch.tensor([0.05, 0.15, 0.25, -0.05, -0.35, 1e9, -1e9, 12.7])


def test_one_scale() -> None:
    scale, zero = torch.tensor([0.0371]), torch.tensor([5])
    ends = torch.tensor([-100]), torch.tensor([90])

    def there_and_back(x: Any, s: Any, z: Any, kind: Any, name: str = "default") -> Any:
        q = getattr(Q.quantize_per_tensor, name)(x, s, z, *kind)
        return q, getattr(Q.dequantize_per_tensor, name)(q, s, z, *kind)

    def to_half(x: Any) -> Any:
        q = Q.quantize_per_tensor(x, 0.0371, 5, *SIGNED)
        return Q.dequantize_per_tensor(q, 0.0371, 5, *SIGNED, out_dtype=torch.bfloat16)

    check_table(
        {
            "int8": (lambda x: there_and_back(x, 0.1, 3, SIGNED), X),
            "uint8": (lambda x: there_and_back(x, 0.1, 100, UNSIGNED), X),
            "halves": (lambda x: there_and_back(x, 0.1, 0, SIGNED), HALVES),
            "bfloat16": (lambda x: there_and_back(x, 0.1, 0, SIGNED), X.bfloat16()),
            "to bfloat16": (to_half, X),
            "by tensors": (
                lambda x, s, z: there_and_back(x, s, z, SIGNED, "tensor"),
                X,
                scale,
                zero,
            ),
            "ends by tensors": (
                lambda x, s, z, a, b: there_and_back(x, s, z, (a, b, I8), "tensor2"),
                X,
                scale,
                zero,
                *ends,
            ),
        }
    )


def test_scales_that_are_chosen_from_the_data() -> None:
    def f(x: Any) -> list[Any]:
        made: list[Any] = []
        for values in (x, x.abs() + 1, x * 0):
            for low, high, kind in (SIGNED, UNSIGNED):
                for choose in (Q.choose_qparams, Q.choose_qparams_symmetric):
                    scale, zero = choose.tensor(values, low, high, 1e-5, kind)
                    q = Q.quantize_per_tensor.tensor(values, scale, zero, low, high, kind)
                    made += [scale.float(), zero, q]  # it has no more digits
        return made

    check(f, [X])


def _exactly(function: Any, inputs: Any) -> None:
    """To the last digit, by export."""
    want = torch.utils._pytree.tree_leaves(function(*inputs))
    for got, one in zip(run(imported(function, inputs), inputs), want, strict=True):
        assert str(got.dtype) == str(one.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(got.astype(np.float64), one.double().numpy())


def test_chosen_scales_have_all_digits_of_torchs() -> None:
    """Of 16-bit data they are rounded after each step, though the result is wider; counts of steps
    may be beyond float16.
    """
    wide: Any = (-32768, 32767, torch.int16)

    def f(*xs: Any) -> list[Any]:
        made: list[Any] = []
        for x in xs:
            made += [
                Q.choose_qparams_per_token(x, I8),
                Q.choose_qparams_per_token_asymmetric(x, I8),
            ]
            for choose in (Q.choose_qparams, Q.choose_qparams_symmetric):
                made += [choose.tensor(x, low, high, 1e-5, t) for low, high, t in (SIGNED, wide)]
        return made

    def tokens(x: Any) -> Any:
        s, z = Q.choose_qparams_per_token(x, I8)
        q = Q.quantize_per_token(x, s, z, *SIGNED)
        return q, Q.dequantize_per_token(q, s, z, *SIGNED, torch.float32)

    x = 9 * torch.randn(40, 24, generator=g)
    _exactly(f, [x, x.half(), x.bfloat16()])
    _exactly(tokens, [x.bfloat16()])


def test_products_of_int8() -> None:
    a = torch.randint(-128, 128, (20, 16), generator=g).to(I8)
    b = torch.randint(-128, 128, (16, 24), generator=g).to(I8)
    check_table(
        {
            "int8 by int8": (torch._int_mm, a, b),
            "float by int8": (
                torch.ops.aten._weight_int8pack_mm,
                X,
                a[:, :8].contiguous(),
                torch.rand(20),
            ),
        }
    )


def test_packed_weights_and_quantised_tensors_are_refused() -> None:
    def packed(w: Any) -> Any:
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(w, 1)

    with pytest.raises(OpNotImplemented, match="kernels alone know the layout"):
        imported(packed, [torch.zeros(32, 64, dtype=torch.int32)])
    with pytest.raises(OpNotImplemented, match=r"no tensors of torch\.quint8"):
        imported(lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).dequantize(), [X])


def test_weights_of_several_tensors_are_refused() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    model = torch.nn.Linear(4, 4)
    both = TwoTensor(model.weight.detach(), model.weight.detach())
    model.weight = torch.nn.Parameter(both, requires_grad=False)
    with pytest.raises(UnsupportedError, match="got a TwoTensor"):
        imported(model, [torch.ones(2, 4)])


def test_many_scales() -> None:
    groups, offsets = torch.rand(3, 2, generator=g) + 0.05, torch.zeros(3, 2)

    def channels(x: Any, s: Any, z: Any) -> Any:
        q = Q.quantize_per_channel(x, s, z, 0, *SIGNED)
        other = Q.quantize_per_channel(x.T, s, z, 1, *SIGNED)
        back = Q.dequantize_per_channel(q, s, z, 0, *SIGNED)
        return q, other, back, Q.dequantize_per_channel(q, s, None, 0, *SIGNED)

    def tokens(x: Any) -> Any:
        s, z = Q.choose_qparams_per_token_asymmetric(x, I8)
        q = Q.quantize_per_token(x, s, z, *SIGNED)
        return s.float(), z, q, Q.dequantize_per_token(q, s, z, *SIGNED, torch.float32)

    def parts(x: Any, s: Any, z: Any) -> Any:
        q = Q.quantize_per_channel_group(x, s, z, *SIGNED, 4)
        return q, Q.dequantize_per_channel_group(q, s, z, *SIGNED, 4, torch.float32)

    check_table(
        {
            "channels": (channels, X, SCALES, ZEROS),
            "tokens": (tokens, X),
            "groups": (parts, X, groups, offsets),
        }
    )


class Quantised(torch.nn.Module):
    """As PT2E leaves a convolution and a linear layer: weights in int8, activations by scales."""

    def __init__(self) -> None:
        super().__init__()
        kernel, matrix = torch.randn(4, 3, 3, 3, generator=g), torch.randn(5, 4, generator=g)
        self.register_buffer("scales", kernel.abs().amax((1, 2, 3)) / 127)
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))
        scale = (self.scales, self.zeros, 0, -127, 127, I8)
        self.register_buffer("kernel", Q.quantize_per_channel(kernel, *scale))
        self.register_buffer("matrix", Q.quantize_per_tensor(matrix, 0.02, 0, *SIGNED))

    def forward(self, x: Any) -> Any:
        def rounded(x: Any, scale: float, zero: int) -> Any:
            q = Q.quantize_per_tensor(x, scale, zero, *SIGNED)
            return Q.dequantize_per_tensor(q, scale, zero, *SIGNED)

        kernel = Q.dequantize_per_channel(self.kernel, self.scales, self.zeros, 0, -127, 127, I8)
        x = F.relu(F.conv2d(rounded(x, 0.03, 2), kernel, padding=1))
        matrix = Q.dequantize_per_tensor(self.matrix, 0.02, 0, *SIGNED)
        return rounded(F.linear(rounded(x, 0.1, -128).mean((2, 3)), matrix), 0.05, 0)


def test_a_quantised_network() -> None:
    x = torch.randn(2, 3, 6, 6, generator=g)
    model = Quantised().eval()
    check(model, [x])
    batch = torch.export.Dim("batch", min=2, max=64)
    check(model, [x], ({0: batch},), [[torch.randn(5, 3, 6, 6, generator=g)]])
    torch._dynamo.reset()
    with torch.no_grad():
        got = torch.compile(model, backend=relax_dynamo(fallback=False))(x)
        torch.testing.assert_close(got, model(x))

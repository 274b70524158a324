"""When Winograd's form of a 3x3 convolution is faster than XLA:CPU's own: measured facts.

One core with AVX-512 (Zen 4), bias and relu behind it, ratio of the form to the convolution by
rounds: 56x56 with 64 channels 0.6 to 0.8, 64 to 128 0.7, 256 0.6; 28x28 with 128 0.6, 512 0.45;
14x14 with 256 0.55; 7x7 with 512 0.6. Where one side has 32 channels 0.8 to 1.3; 112x112 with 64 to
128 1.0 to 1.6, because its products leave the memory that is kept from call to call.
"""

from __future__ import annotations

from relax2xla import processor

# Multiplications of the convolution from which it pays to compile four loops more.
_LEAST = 50_000_000
# Channels in times out by their sum: additions go by the sum, products by the product.
_BALANCE = 32
# Pixels of the result from which it pays to transform the kernel at each call.
_LEAST_PIXELS = 700
# Bytes of what is multiplied and of the products.
_MOST_BYTES = 30 << 20


def is_faster(
    height: int, width: int, inner: int, outer: int, batch: int = 1, at_load: bool = True
) -> bool:
    """Whether it is, for a result of these pixels, on this processor; False where nobody knows.

    at_load: whether the kernel is transformed once, not at each call
    """
    if not processor.eigen_multiplies():
        return False
    if not at_load and batch * height * width < _LEAST_PIXELS:
        return False
    tiles = batch * -(-height // 2) * -(-width // 2)
    return (
        batch * height * width * 9 * inner * outer >= _LEAST
        and inner * outer >= _BALANCE * (inner + outer)
        and 16 * 4 * tiles * (inner + outer) <= _MOST_BYTES
    )

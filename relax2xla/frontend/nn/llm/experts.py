"""Products with weights that each row chooses, for mixtures of experts.

``quantization`` knows ``ChosenLinear``, the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te
from relax2xla.frontend.nn.module import Module
from relax2xla.frontend.nn.op import tensor_expr_op
from relax2xla.frontend.nn.values import Parameter, Tensor


class ChosenLinear(Module):
    """Linear layers of one size without biases, of which each row takes some.

    weight: (groups, out_features, in_features)
    """

    def __init__(
        self, groups: int, in_features: int, out_features: int, dtype: str | None = None
    ) -> None:
        self.groups, self.in_features, self.out_features = groups, in_features, out_features
        self.weight = Parameter((groups, out_features, in_features), dtype)

    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        """See ``chosen_matmul``."""
        return chosen_matmul(x, self.weight, which)


def chosen_matmul(x: Tensor, weight: Tensor, which: Tensor) -> Tensor:
    """``result[i, j] = x[i, j] @ weight[which[i, j]].T``; weights that nobody chose are not read.

    x: (b, s, in), or (b, 1, in) for the same in all s; weight: (groups, out, in); which: (b, s),
    integers from 0 to groups - 1. result: (b, s, out), the dtype of x

    A kernel of this name, which becomes rows (``relax2xla.register_kernel_rows``). Raises
    ValueError for shapes that do not go together.
    """
    check_choice(x, list(weight.shape), which)
    same = x.shape[1] == 1

    def product(x: Any, weight: Any, which: Any) -> Any:
        r = te.reduce_axis((0, weight.shape[2]), "r")

        def element(i: Any, j: Any, o: Any) -> Any:
            return te.sum(x[i, 0 if same else j, r] * weight[which[i, j], o, r], axis=r)

        return te.compute((*which.shape, weight.shape[1]), element, name="chosen_matmul")

    return tensor_expr_op(product, "chosen_matmul", [x, weight, which])


def check_choice(x: Tensor, weight: Sequence[Any], which: Tensor) -> None:
    """ValueError for shapes that do not go together in ``chosen_matmul``."""
    shapes = [list(x.shape), list(weight), list(which.shape)]
    fit = [len(s) for s in shapes] == [3, 3, 2] and x.shape[2] == weight[2]
    if not fit or x.shape[1] not in (1, which.shape[1]):
        raise ValueError(
            "chosen_matmul takes x (b, s or 1, in), weight (groups, out, in) and which (b, s); got "
            f"{', '.join(map(str, shapes))}"
        )

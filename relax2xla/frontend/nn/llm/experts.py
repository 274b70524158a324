"""Products with weights that each row chooses, for mixtures of experts."""

from __future__ import annotations

from typing import Any

from relax2xla import te
from relax2xla.frontend.nn.core import Tensor
from relax2xla.frontend.nn.op import tensor_expr_op


def chosen_matmul(x: Tensor, weight: Tensor, which: Tensor) -> Tensor:
    """``result[i, j] = x[i, j] @ weight[which[i, j]].T``; weights that nobody chose are not read.

    x: (b, s, in), or (b, 1, in) for the same in all s; weight: (groups, out, in); which: (b, s),
    integers from 0 to groups - 1. result: (b, s, out), the dtype of x

    A kernel of this name, which becomes rows (``relax2xla.register_kernel_rows``). Raises
    ValueError for shapes that do not go together.
    """
    shapes = [list(t.shape) for t in (x, weight, which)]
    fit = [len(s) for s in shapes] == [3, 3, 2] and x.shape[2] == weight.shape[2]
    if not fit or x.shape[1] not in (1, which.shape[1]):
        raise ValueError(
            "chosen_matmul takes x (b, s or 1, in), weight (groups, out, in) and which (b, s); got "
            f"{', '.join(map(str, shapes))}"
        )
    same = x.shape[1] == 1

    def product(x: Any, weight: Any, which: Any) -> Any:
        r = te.reduce_axis((0, weight.shape[2]), "r")

        def element(i: Any, j: Any, o: Any) -> Any:
            return te.sum(x[i, 0 if same else j, r] * weight[which[i, j], o, r], axis=r)

        return te.compute((*which.shape, weight.shape[1]), element, name="chosen_matmul")

    return tensor_expr_op(product, "chosen_matmul", [x, weight, which])

"""Programs that tests of code generators begin with: a product with what follows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.ir import Expr, IRModule, TensorStructInfo, Var
from relax2xla.tir import Dim


def get_relax_matmul_module(
    x_shape: Sequence[Dim],
    y_shape: Sequence[Dim],
    in_dtype: str,
    out_dtype: str | None = None,
    transposed_y: bool = False,
    bias_shape: Sequence[Dim] | None = None,
    activation: Callable[[Expr], Expr] | None = None,
    residual_bin_op: Callable[[Expr, Expr], Expr] | None = None,
    residual_activation: Callable[[Expr], Expr] | None = None,
) -> IRModule:
    """A module whose ``main`` is ``x @ y``, then a bias, an activation, and ``x`` once more.

    ``transposed_y``: ``y`` comes with its last two axes exchanged. ``residual_bin_op`` joins the
    result with ``x``, and ``residual_activation`` is of that.
    """
    out_dtype = in_dtype if out_dtype is None else out_dtype
    x, y = (
        Var(name, TensorStructInfo(shape, in_dtype))
        for name, shape in (("x", x_shape), ("y", y_shape))
    )
    params = [x, y]
    if bias_shape is not None:
        params.append(Var("bias", TensorStructInfo(bias_shape, out_dtype)))
    steps: list[Callable[[Expr], Expr]] = [
        lambda product, bias=bias: op.add(product, bias) for bias in params[2:]
    ]
    if activation is not None:
        steps.append(activation)
    if residual_bin_op is not None:
        steps.append(lambda result: residual_bin_op(result, x))
        if residual_activation is not None:
            steps.append(residual_activation)
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            right: Expr = y
            if transposed_y:
                right = builder.emit(op.permute_dims(y, [*range(len(y_shape) - 2), -1, -2]))
            result = op.matmul(x, right, out_dtype)
            for step in steps:
                result = step(builder.emit(result))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()

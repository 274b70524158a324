"""Programs that tests of code generators begin with: attention, of one operand or of three."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from relax2xla import op as operators
from relax2xla.builder import BlockBuilder
from relax2xla.errors import OpError
from relax2xla.ir import Expr, IRModule, TensorStructInfo, TupleGetItem, Var
from relax2xla.tir import Dim


def get_relax_attention_module(
    q_shape: Sequence[Dim],
    k_shape: Sequence[Dim],
    v_shape: Sequence[Dim],
    *,
    dtype: str,
    bias_shape: Sequence[Dim] | Literal["none"] | None = None,
    qk_scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> IRModule:
    """A module whose ``main`` is ``R.nn.attention`` of ``q``, ``k``, ``v`` and perhaps ``bias``."""
    shapes = {"q": q_shape, "k": k_shape, "v": v_shape}
    if bias_shape is not None and bias_shape != "none":
        shapes["bias"] = bias_shape
    params = [Var(name, TensorStructInfo(shape, dtype)) for name, shape in shapes.items()]
    result = operators.nn.attention(
        *params, scale=qk_scale, causal_mask=causal_mask, window_size=window_size
    )
    return _module(params, result)


def get_relax_stacked_attention_module(
    qkv: Any,
    b: Dim,
    s: Dim,
    n: int,
    h: int,
    h_v: int,
    op: Literal["split", "strided_slice"],
    bias: Any = None,
    qk_scale: float | None = None,
    single_shape: bool = False,
    layout: Literal["BS3NH", "SBN3H"] = "BS3NH",
) -> IRModule:
    """A module whose ``main`` takes query, key and value as parts of one tensor.

    ``qkv`` and ``bias`` are arrays whose shapes, and dtype, the parameters have. ``op``: by
    which operator the parts are taken. In the layout BS3NH the last of three axes has three times
    ``n`` heads, of ``h`` elements, of the value ``h_v`` (``h`` if ``single_shape``); in SBN3H the
    last of four has three times the elements of a head.
    """
    dtype = str(qkv.dtype)
    params = [Var("qkv", TensorStructInfo(qkv.shape, dtype))]
    if bias is not None:
        params.append(Var("bias", TensorStructInfo(bias.shape, dtype)))
    by_head = {"BS3NH": False, "SBN3H": True}.get(layout)
    if by_head is None:
        raise OpError(f"get_relax_stacked_attention_module: no layout {layout!r}; BS3NH or SBN3H")
    axis, width = (3, h) if by_head else (2, n * h)
    parts = _parts(params[0], op, axis, [width, 2 * width], int(qkv.shape[axis]))
    if by_head:
        q, k, v = (operators.permute_dims(x, [1, 0, 2, 3]) for x in parts)
    else:
        sizes = [h, h, h if single_shape else h_v]
        q, k, v = (
            operators.reshape(x, [b, s, n, size]) for x, size in zip(parts, sizes, strict=True)
        )
    result = operators.nn.attention(q, k, v, *params[1:], scale=qk_scale)
    return _module(params, operators.permute_dims(result, [1, 0, 2, 3]) if by_head else result)


def _parts(x: Expr, op_name: str, axis: int, ends: list[int], last: int) -> list[Expr]:
    """Three parts of ``x`` along an axis: up to each of ``ends``, and what remains to ``last``."""
    if op_name == "split":
        all_parts = operators.split(x, ends, axis)
        return [TupleGetItem(all_parts, i) for i in range(3)]
    if op_name != "strided_slice":
        raise OpError(
            f"get_relax_stacked_attention_module: parts are taken by split or strided_slice; got "
            f"{op_name!r}"
        )
    bounds = zip([0, *ends], [*ends, last], strict=True)
    return [operators.strided_slice(x, [axis], [first], [end], [1]) for first, end in bounds]


def _module(params: list[Var], result: Expr) -> IRModule:
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()

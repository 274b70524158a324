"""Patterns that many rewrites share, each a function of what varies.

All but the first give, beside the pattern, its parts by name, for who takes matches apart. Source
of names and forms: ``tvm.relax.dpl.pattern`` and ``tvm.relax.backend.patterns``, version 0.20.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from relax2xla.dpl.make import is_const, is_op, is_tuple_get_item, wildcard
from relax2xla.dpl.pattern import DFPattern, GlobalVarPattern, TuplePattern

Named: TypeAlias = tuple[DFPattern, dict[str, DFPattern]]
"""A pattern, and its parts by name."""


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> DFPattern:
    """The operator ``op_name`` of two operands, a bias added ``with_bias``, an ``activation``."""
    out = is_op(op_name)(wildcard(), wildcard())
    return _finished(out, {}, with_bias, activation)[0]


def _finished(
    out: DFPattern, parts: dict[str, DFPattern], with_bias: bool, activation: str | None
) -> Named:
    """``out`` with a bias and an activation."""
    if with_bias:
        parts["bias"] = wildcard()
        out = is_op("relax.add")(out, parts["bias"])
    return (is_op(activation)(out) if activation else out), parts


def make_residual_block_pattern(
    node_output: DFPattern | tuple[DFPattern, Mapping[str, DFPattern]],
    binary_op: str = "relax.add",
    activation: str | None = None,
) -> Named:
    """``node_output`` and another value (``residual``) under ``binary_op``, in either order.

    ``node_output`` may come with its parts by name; they are among those of the result.
    """
    output, parts = node_output if isinstance(node_output, tuple) else (node_output, {})
    residual = wildcard()
    both = is_op(binary_op)(output, residual) | is_op(binary_op)(residual, output)
    return (is_op(activation)(both) if activation else both), {**parts, "residual": residual}


def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Named:
    """A 2-d convolution; parts ``input``, ``weight``, ``root``, ``bias``."""
    data, weight = wildcard(), wildcard()
    root = is_op("relax.nn.conv2d")(data, weight)
    parts: dict[str, DFPattern] = {"input": data, "weight": weight, "root": root}
    return _finished(root, parts, with_bias, activation)


def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> Named:
    """A product of matrices; parts ``lhs``, ``rhs`` (as it lies), ``root``, ``bias``."""
    root, parts = _product(transposed_rhs)
    return _finished(root, parts, with_bias, activation)


def _product(transposed_rhs: bool) -> Named:
    lhs, rhs = wildcard(), wildcard()
    second = is_op("relax.permute_dims")(rhs) if transposed_rhs else rhs
    root = is_op("relax.matmul")(lhs, second)
    return root, {"lhs": lhs, "rhs": rhs, "root": root}


def make_matmul_dequantize_pattern(transposed_rhs: bool = False) -> Named:
    """A product of matrices, dequantized; its parts, and the constants ``scale`` and ``zp``."""
    root, parts = _product(transposed_rhs)
    parts |= {"scale": is_const(), "zp": is_const()}
    return is_op("relax.dequantize")(root, parts["scale"], parts["zp"]), parts


def make_matmul_multiply_pattern(transposed_rhs: bool = False) -> Named:
    """A product of matrices times ``scaleA * scaleB``, both of shape (1,), cast; and its parts."""
    root, parts = _product(transposed_rhs)
    a, b = parts["scaleA"], parts["scaleB"] = wildcard(), wildcard()
    scale = is_op("relax.multiply")(a.has_shape((1,)), b.has_shape((1,)))
    return is_op("relax.astype")(is_op("relax.multiply")(root, scale)), parts


def make_attention_pattern(with_bias: bool = False, var_len: bool = False) -> Named:
    """Attention; parts ``query``, ``key``, ``value``, ``bias`` or the lengths of ``var_len``."""
    names = ["query", "key", "value"]
    op = "relax.nn.attention"
    if with_bias:
        op, names = "relax.nn.attention_bias", [*names, "bias"]
    elif var_len:
        op = "relax.nn.attention_var_len"
        names += ["seqstart_q", "seqstart_k", "max_seqlen_q", "max_seqlen_k"]
    parts: dict[str, DFPattern] = {name: wildcard() for name in names}
    return is_op(op)(*parts.values()), parts


def make_stacked_attention_pattern(
    start_op: str, with_bias: bool = False, layout: str = "BS3NH"
) -> Named:
    """Attention of one tensor that holds query, key and value (``stacked_qkv``).

    ``start_op``: ``"split"`` or ``"strided_slice"``, which takes it apart; ``layout``: ``"BS3NH"``
    (the parts are reshaped) or ``"SBN3H"`` (they are transposed, and so is the result). ValueError
    for another.
    """
    stacked = wildcard()
    parts: dict[str, DFPattern] = {"stacked_qkv": stacked}
    names = ("query", "key", "value")
    if start_op == "split":
        whole = parts["split"] = is_op("relax.split")(stacked)
        raw: list[DFPattern] = [is_tuple_get_item(whole, i) for i in range(3)]
    elif start_op == "strided_slice":
        cut = is_op("relax.strided_slice")
        raw = [cut(stacked, varg_default_wildcard=True) for _ in names]
        parts.update({f"strided_slice_{n}": p for n, p in zip(names, raw, strict=True)})
    else:
        raise ValueError(f"start_op must be 'split' or 'strided_slice'; got {start_op!r}")
    shapes = [wildcard() for _ in names]
    parts.update({f"{n}_reshape_list": p for n, p in zip(names, shapes, strict=True)})
    if layout == "BS3NH":
        operands = [is_op("relax.reshape")(r, s) for r, s in zip(raw, shapes, strict=True)]
    elif layout == "SBN3H":
        operands = [is_op("relax.permute_dims")(r) for r in raw]
        parts.update({f"{n[0]}_transpose": p for n, p in zip(names, operands, strict=True)})
    else:
        raise ValueError(f"layout must be 'BS3NH' or 'SBN3H'; got {layout!r}")
    more: list[DFPattern] = []
    if with_bias:
        parts["bias"] = wildcard()
        more.append(parts["bias"])
    out = is_op("relax.nn.attention_bias" if with_bias else "relax.nn.attention")(*operands, *more)
    return (is_op("relax.permute_dims")(out) if layout == "SBN3H" else out), parts


def make_layer_norm_pattern() -> Named:
    """Layer normalisation with scale and shift."""
    return is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard()), {}


def make_rms_norm_pattern() -> Named:
    """RMS normalisation as a function of the module, called by ``call_tir``; parts ``gv``, ``inp``,
    ``rms_norm``.
    """
    func, data = GlobalVarPattern(), wildcard()
    out = is_op("relax.call_tir")(func, TuplePattern([data, wildcard()]), add_constraint=False)
    return out, {"gv": func, "inp": data, "rms_norm": out}

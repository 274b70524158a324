"""Decompositions that torch lacks, written with torch's own operators.

An operator goes this way where it has no converter. Those of windows over space are in
``window_gradients``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from relax2xla.importers.torch.source import window_gradients
from relax2xla.importers.torch.source.quantized import QUANTIZED
from relax2xla.importers.torch.source.torch_internals import (
    core_decompositions,
    decomposition_table,
    kernel_of_any_device,
)

ATEN: Any = torch.ops.aten
Table = dict[Any, Callable[..., Any]]


def _masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradients where the mask is set, one after the other, and zeros for the rest."""
    mask = mask.expand_as(grad).reshape(-1)
    count = 1
    for size in sizes:
        count = count * size
    at = torch.where(mask, mask.to(torch.int64).cumsum(0) - 1, count)  # the rest in one more place
    made = torch.zeros([count + 1], dtype=grad.dtype, device=grad.device)
    return made.scatter(0, at, grad.reshape(-1)).narrow(0, 0, count).reshape(sizes)


# -- distances and bags of embeddings ------------------------------------------------------------
def _by_gap(grad: Tensor, gap: Tensor, length: Tensor, p: float) -> Tensor:
    """The gradient by a difference, of its norm of order ``p``; 0 where that has no slope."""
    if p == 0:
        return torch.zeros_like(gap)
    if p == math.inf:
        return grad * gap.sign() * (gap.abs() == length).to(gap.dtype)
    slope = gap.sign() * gap.abs() ** (p - 1) * grad / length ** (p - 1)
    return torch.where((length == 0) | (gap == 0), 0.0, slope)


def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    gap = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return _by_gap(grad.unsqueeze(-1), gap, cdist.unsqueeze(-1), p).sum(-2)


def _pdist_backward(grad: Tensor, x: Tensor, p: float, pdist: Tensor) -> Tensor:
    i, j = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device).unbind(0)
    slope = _by_gap(grad.unsqueeze(-1), x[i] - x[j], pdist.unsqueeze(-1), p)
    return torch.zeros_like(x).index_add(0, i, slope).index_add(0, j, -slope)


def _bags(indices: Tensor, offsets: Tensor, many: int) -> Tensor:
    """The bag of each index."""
    place = torch.arange(indices.shape[0], device=indices.device)
    return (place.unsqueeze(-1) >= offsets[:many]).sum(-1) - 1


def _embedding_bag_backward(
    grad: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, *more: Any
) -> Tensor:
    """That of dense gradients, which takes the same but ``sparse``."""
    *sizes, sparse, per_sample_weights, padding_idx = (*more, -1)[:8]
    if sparse:
        raise NotImplementedError("a sparse gradient of embedding_bag; leave sparse=True out")
    bags = _bags(indices, offsets, grad.shape[0])
    rest: list[Any] = [*sizes, per_sample_weights, padding_idx]
    return _embedding_bag_dense_backward(grad, indices, bags, *rest)


def _embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Each row of the table gets the gradient of the bags that it is in; ``mode``: sum, mean, max.

    What the padding and empty bags would get is 0.
    """
    if scale_grad_by_freq:
        # Torch's kernel halves what follows a word that occurs twice; only it can say what it does.
        raise NotImplementedError("the gradient of embedding_bag with scale_grad_by_freq")
    table = torch.zeros([num_weights, grad.shape[1]], dtype=grad.dtype, device=grad.device)
    if mode == 2:
        part = torch.where((bag_size > 0).unsqueeze(-1), grad, 0)
        return table.scatter_add(0, maximum_indices.to(torch.int64), part)
    at = indices.to(torch.int64)
    if mode == 1:
        grad = grad / bag_size.clamp(min=1).unsqueeze(-1).to(grad.dtype)
    part = grad[offset2bag]
    if per_sample_weights is not None:
        part = part * per_sample_weights.unsqueeze(-1)
    if padding_idx >= 0:
        part = torch.where((at != padding_idx).unsqueeze(-1), part, 0)
    return table.index_add(0, at, part)


def _embedding_bag_per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    made = (grad[_bags(indices, offsets, grad.shape[0])] * weight[indices]).sum(-1)
    return made if padding_idx < 0 else torch.where(indices != padding_idx, made, 0)


def _embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows that are looked up and are longer than ``max_norm`` get that length."""
    length = torch.linalg.vector_norm(weight, norm_type, 1, keepdim=True)
    used = torch.zeros([weight.shape[0]], dtype=torch.bool, device=weight.device)
    used = used.index_fill(0, indices.reshape(-1), True).unsqueeze(1)
    return torch.where(used & (length > max_norm), weight * (max_norm / (length + 1e-7)), weight)


# -- transformers --------------------------------------------------------------------------------
def _attention_block(
    x: Tensor,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None,
    mask_type: int | None,
) -> Tensor:
    """Self-attention; ``mask`` is True where a key must not be seen (type 0: rows by columns, 1:
    batch by keys, 2: all of it).
    """
    batch, length, width = x.shape
    qkv = torch.nn.functional.linear(x, qkv_weight, qkv_bias)
    parts = qkv.reshape(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    seen: Tensor | None = None
    if mask is not None:
        mask = mask.to(torch.bool)  # as the kernel does: -inf masks, 0 does not
        if mask_type == 1:
            mask = mask[:, None, None, :]
        elif mask_type == 0 and mask.ndim == 3:
            mask = mask.reshape(batch, heads, length, length)
        seen = ~mask
    made = torch.nn.functional.scaled_dot_product_attention(*parts.unbind(0), attn_mask=seen)
    made = made.transpose(1, 2).reshape(batch, length, width)
    return torch.nn.functional.linear(made, out_weight, out_bias)


def _transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """The kernel of ``nn.TransformerEncoderLayer`` for inference, step by step."""
    f = torch.nn.functional

    def first(x: Tensor) -> Tensor:
        return f.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return f.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    def attend(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _attention_block(x, num_heads, *weights, mask, mask_type)

    def feed(x: Tensor) -> Tensor:
        inner = f.linear(x, ffn_weight_1, ffn_bias_1)
        inner = f.gelu(inner) if use_gelu else f.relu(inner)
        return f.linear(inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(first(src))
        return x + feed(second(x))
    x = first(src + attend(src))
    return second(x + feed(x))


def _native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The kernel of ``nn.MultiheadAttention`` for inference, for attention of a value to itself."""
    if need_weights or query is not key or key is not value:
        raise NotImplementedError("attention with weights as a result, or between two tensors")
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    made = _attention_block(query, num_head, *weights, mask, mask_type)
    return made, torch.empty(0, dtype=query.dtype, device=query.device)


# -- losses --------------------------------------------------------------------------------------
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Labels are those before the first -1; the loss, and a mask of the labels.

    In torch's own decomposition what stands after it counts as the label 0.
    """
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = rows.shape[1]
    listed = (labels == -1).cumsum(-1) == 0
    at = torch.where(listed, labels, 0)
    hit = (at.unsqueeze(-1) == torch.arange(classes, device=x.device)) & listed.unsqueeze(-1)
    is_target = hit.any(1)
    gap = 1 - rows.gather(1, at).unsqueeze(-1) + rows.unsqueeze(1)
    counts = listed.unsqueeze(-1) & ~is_target.unsqueeze(1) & (gap > 0)
    loss = torch.where(counts, gap, 0).sum((1, 2)) / classes
    loss = (loss.reshape(x.shape[:-1]), loss.mean(), loss.sum())[reduction]
    return loss, is_target.to(x.dtype).reshape(x.shape)


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    return multilabel_margin_loss(x, target, reduction)[0]


def _linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    to_input: bool,
    to_weight: bool,
    to_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All rows at once: chunks only save memory. The loss, and the gradients that are asked for."""
    if label_smoothing != 0:
        # Torch's own kernel says the same; functional.linear_cross_entropy does not call it then.
        raise NotImplementedError("linear_cross_entropy in chunks has no label smoothing")
    bias = None if linear_bias is None else linear_bias.to(acc_dtype)
    wide, matrix = x.to(acc_dtype), linear_weight.to(acc_dtype)
    logs = torch.log_softmax(torch.nn.functional.linear(wide, matrix, bias), 1)
    seen = target != ignore_index
    at = torch.where(seen, target, 0)
    share = seen.to(acc_dtype) if weight is None else torch.where(seen, weight.to(acc_dtype)[at], 0)
    if reduction == "mean":
        share = share / share.sum()
    loss = -(share * logs.gather(1, at.unsqueeze(1)).squeeze(1)).sum()
    hit = at.unsqueeze(1) == torch.arange(logs.shape[1], device=x.device)
    slope = share.unsqueeze(1) * (logs.exp() - hit.to(acc_dtype))
    return (
        loss.to(x.dtype),
        (slope @ matrix).to(x.dtype) if to_input else x.new_empty(0, 0),
        (slope.T @ wide).to(x.dtype) if to_weight else x.new_empty(0, 0),
        slope.sum(0).to(x.dtype) if to_bias else x.new_empty(0),
    )


def _linear_cross_entropy_of_rows(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Tensor:
    wide = (None if v is None else v.to(acc_dtype) for v in (x, linear_weight, linear_bias))
    scale = None if weight is None else weight.to(acc_dtype)
    logits = torch.nn.functional.linear(*wide)  # pyright: ignore[reportArgumentType]
    made = torch.nn.functional.cross_entropy(
        logits, target, scale, ignore_index=ignore_index, reduction="none"
    )
    return made.to(x.dtype)


#: By the name with the number of spatial axes in it.
_BY_RANK: Table = {
    getattr(ATEN, name.format(n)).default: functools.partial(function, n)
    for name, function in {
        "max_pool{}d_with_indices_backward": window_gradients.max_pool_backward,
        "adaptive_max_pool{}d_backward": window_gradients.adaptive_max_pool_backward,
        "avg_pool{}d_backward": window_gradients.avg_pool_backward,
        "_adaptive_avg_pool{}d_backward": window_gradients.adaptive_avg_pool_backward,
    }.items()
    for n in (2, 3)
}
_OF_PADS: Table = {
    getattr(ATEN, f"{kind}_pad{n}d_backward").default: functools.partial(
        window_gradients.pad_backward, along
    )
    for kind, along in window_gradients.PADS.items()
    for n in (1, 2, 3)
}
OWN: Table = {
    ATEN.convolution_backward.default: window_gradients.convolution_backward,
    **_BY_RANK,
    **_OF_PADS,
    ATEN.masked_scatter_backward.default: _masked_scatter_backward,
    ATEN._cdist_backward.default: _cdist_backward,
    ATEN._pdist_backward.default: _pdist_backward,
    ATEN._embedding_bag_backward.default: _embedding_bag_backward,
    ATEN._embedding_bag_dense_backward.default: _embedding_bag_dense_backward,
    ATEN._embedding_bag_per_sample_weights_backward.default: (
        _embedding_bag_per_sample_weights_backward
    ),
    ATEN.embedding_renorm.default: _embedding_renorm,
    ATEN.multilabel_margin_loss.default: _multilabel_margin_loss,
    ATEN.multilabel_margin_loss_forward.default: multilabel_margin_loss,
    ATEN._transformer_encoder_layer_fwd.default: _transformer_encoder_layer,
    ATEN._native_multi_head_attention.default: _native_multi_head_attention,
}


#: Of operators that torch registers when they are first used, by their names.
LATE: dict[str, Callable[..., Any]] = {
    "torch_nn._linear_cross_entropy_batch_chunked.default": _linear_cross_entropy,
    "torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default": (
        _linear_cross_entropy_of_rows
    ),
    **QUANTIZED,
}


def is_ours(op: Any) -> bool:
    """Whether the decomposition of ``op`` is one of this file."""
    return op in OWN or str(op) in LATE


def decompositions(ops: set[Any]) -> Table:
    """The decompositions of those of ``ops`` that have one: ours, or torch's."""
    if not ops:
        return {}
    core, every = core_decompositions(), decomposition_table()
    found: Table = {}
    for op in ops:
        if op in OWN:
            found[op] = OWN[op]
        elif str(op) in LATE:
            found[op] = LATE[str(op)]
        elif op in core:
            found[op] = core[op]
        elif op in every:
            found[op] = every[op]
        elif (of_aten := getattr(op, "impl_aten", None)) is not None:
            found[op] = of_aten  # prims know what they are in ATen
        elif str(op).startswith("aten._foreach_"):
            # Torch's kernel for any device: the operator of one tensor, on each.
            found[op] = kernel_of_any_device(op)
    return found

"""Decompositions that torch lacks, written with torch's own operators.

An operator goes this way where it has no converter. Gradients of convolutions, poolings, padding,
distances and bags of embeddings are here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from relax2xla.importers.torch.quantized import QUANTIZED

ATEN: Any = torch.ops.aten
Table = dict[Any, Callable[..., Any]]


def _each(values: Sequence[Any], rank: int) -> list[Any]:
    """Parameters of a window, one for each spatial axis."""
    return list(values) * rank if len(values) == 1 else list(values)


# -- convolution ---------------------------------------------------------------------------------
def _convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradient of a convolution is one of the other direction, and one of the two operands."""
    rank = x.ndim - 2
    window = [_each(v, rank) for v in (stride, padding, dilation)]
    to_input = to_weight = to_bias = None
    if output_mask[0]:
        missing = [0] * rank
        if not transposed:
            missing = [
                x.shape[i + 2]
                - ((grad.shape[i + 2] - 1) * s - 2 * p + d * (weight.shape[i + 2] - 1) + 1)
                for i, (s, p, d) in enumerate(zip(*window, strict=True))
            ]
        to_input = ATEN.convolution(grad, weight, None, *window, not transposed, missing, groups)
    if output_mask[1]:
        one, other = (grad, x) if transposed else (x, grad)
        to_weight = _weight_gradient(one, other, weight, window, groups)
    if output_mask[2]:
        to_bias = grad.sum([0, *range(2, grad.ndim)])
    return to_input, to_weight, to_bias


def _weight_gradient(
    x: Tensor, grad: Tensor, weight: Tensor, window: Sequence[Any], groups: int
) -> Tensor:
    """Batch and channels change places, and so do stride and dilation."""
    rank = x.ndim - 2
    stride, padding, dilation = window
    n, spatial, steps = x.shape[0], x.shape[2:], grad.shape[2:]
    x = x.reshape(n, groups, -1, *spatial).permute(2, 1, 0, *range(3, 3 + rank))
    x = x.reshape(x.shape[0], groups * n, *spatial)
    grad = grad.transpose(0, 1)
    made = ATEN.convolution(
        x, grad.reshape(-1, n, *steps), None, dilation, padding, stride, False, [0] * rank, groups
    ).transpose(0, 1)
    # Rows of the input that the last step did not reach.
    for axis in range(2, 2 + rank):
        made = made.narrow(axis, 0, weight.shape[axis])
    return made


# -- pooling -------------------------------------------------------------------------------------
def _max_pool_backward(rank: int) -> Callable[..., Tensor]:
    def backward(grad: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Each gradient goes to the place that its element came from."""
        indices: Tensor = kwargs["indices"] if "indices" in kwargs else args[-1]
        lead = x.shape[:-rank]
        count = 1
        for size in x.shape[-rank:]:
            count = count * size
        flat = torch.zeros([*lead, count], dtype=x.dtype, device=x.device)
        made = flat.scatter_add(-1, indices.flatten(-rank), grad.flatten(-rank))
        return made.reshape(x.shape)

    return backward


def _avg_pool_backward(rank: int) -> Callable[..., Tensor]:
    def backward(
        grad: Tensor,
        x: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        """A transposed convolution with equal weights of what each window gives to an element."""
        kernel, pads = _each(kernel_size, rank), _each(padding, rank)
        strides = _each(stride, rank) if stride else kernel
        lead, spatial, steps = x.shape[:-rank], x.shape[-rank:], grad.shape[-rank:]
        window = tuple(zip(spatial, steps, kernel, strides, pads, strict=True))
        divisor = divisor_override or math.prod(kernel)
        if divisor_override is None and (ceil_mode or (any(pads) and not count_include_pad)):
            # Windows at the edges have fewer elements.
            divisor = 1
            counts = torch.ones([], dtype=grad.dtype, device=grad.device)
            for size, many, k, s, p in window:
                start = torch.arange(many, device=grad.device) * s - p
                end = (start + k).clamp(max=size + p)
                if not count_include_pad:
                    start, end = start.clamp(min=0), end.clamp(max=size)
                counts = counts.unsqueeze(-1) * (end - start).to(grad.dtype)
            grad = grad / counts
        weight = torch.full([1, 1, *kernel], 1 / divisor, dtype=grad.dtype, device=grad.device)
        flat, zero, one = grad.reshape(-1, 1, *steps), [0] * rank, [1] * rank
        made = ATEN.convolution(flat, weight, None, strides, zero, one, True, zero, 1)
        # Without the padding, and with what no window reaches.
        edges = [(-p, size + p - ((many - 1) * s + k)) for size, many, k, s, p in window]
        made = ATEN.constant_pad_nd(made, [v for pair in reversed(edges) for v in pair])
        return made.reshape(*lead, *spatial)

    return backward


def _adaptive_avg_pool_backward(rank: int) -> Callable[..., Tensor]:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        """Each element has its share of the windows that cover it, one axis after the other."""
        for axis in range(-1, -rank - 1, -1):
            size, count = x.shape[axis], grad.shape[axis]
            window = torch.arange(count, device=x.device).unsqueeze(-1)
            start, end = window * size // count, -(-(window + 1) * size // count)
            at = torch.arange(size, device=x.device)
            covers = (at >= start) & (at < end)
            share = grad.movedim(axis, -1).unsqueeze(-1) / (end - start).to(grad.dtype)
            grad = torch.where(covers, share, 0).sum(-2).movedim(-1, axis)
        return grad

    return backward


# -- padding and scattering ----------------------------------------------------------------------
def _replication_pad_backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    """The elements at the edges have the gradients of their copies too, axis by axis."""
    for i in range(len(padding) // 2):
        axis, size = x.ndim - 1 - i, x.shape[-1 - i]
        low, high = padding[2 * i : 2 * i + 2]
        # What negative padding has cut off gets 0.
        cut = [0] * (2 * i) + [max(-low, 0), max(-high, 0)]
        grad, low, high = ATEN.constant_pad_nd(grad, cut), max(low, 0), max(high, 0)
        if size == 1:
            grad = grad.sum(axis, keepdim=True)
            continue
        first = grad.narrow(axis, 0, low + 1).sum(axis, keepdim=True)
        last = grad.narrow(axis, low + size - 1, high + 1).sum(axis, keepdim=True)
        grad = torch.cat([first, grad.narrow(axis, low + 1, size - 2), last], axis)
    return grad


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
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    if sparse:
        raise NotImplementedError("a sparse gradient of embedding_bag; leave sparse=True out")
    bags = _bags(indices, offsets, grad.shape[0])
    sizes = (bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode)
    return _embedding_bag_dense_backward(
        grad, indices, bags, *sizes, per_sample_weights, padding_idx
    )


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


OWN: Table = {
    ATEN.convolution_backward.default: _convolution_backward,
    ATEN.max_pool2d_with_indices_backward.default: _max_pool_backward(2),
    ATEN.max_pool3d_with_indices_backward.default: _max_pool_backward(3),
    ATEN.adaptive_max_pool2d_backward.default: _max_pool_backward(2),
    ATEN.adaptive_max_pool3d_backward.default: _max_pool_backward(3),
    ATEN.avg_pool2d_backward.default: _avg_pool_backward(2),
    ATEN.avg_pool3d_backward.default: _avg_pool_backward(3),
    ATEN._adaptive_avg_pool2d_backward.default: _adaptive_avg_pool_backward(2),
    ATEN._adaptive_avg_pool3d_backward.default: _adaptive_avg_pool_backward(3),
    ATEN.replication_pad1d_backward.default: _replication_pad_backward,
    ATEN.replication_pad2d_backward.default: _replication_pad_backward,
    ATEN.replication_pad3d_backward.default: _replication_pad_backward,
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
    from torch._decomp import decomposition_table

    core = torch.export.default_decompositions()
    found: Table = {}
    for op in ops:
        if op in OWN:
            found[op] = OWN[op]
        elif str(op) in LATE:
            found[op] = LATE[str(op)]
        elif op in core:
            found[op] = core[op]
        elif op in decomposition_table:
            found[op] = decomposition_table[op]
        elif (of_aten := getattr(op, "impl_aten", None)) is not None:
            found[op] = of_aten  # prims know what they are in ATen
        elif str(op).startswith("aten._foreach_"):
            # Torch's kernel for any device: the operator of one tensor, on each.
            found[op] = functools.partial(op._op_dk, torch.DispatchKey.CompositeExplicitAutograd)
    return found

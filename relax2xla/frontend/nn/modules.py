"""Layers: modules with the parameters that their operators need.

``dtype`` None is the default dtype. Weights are laid out as torch's layers have them, under the
same names, so that a state dict of torch fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import tir
from relax2xla.errors import UnsupportedError
from relax2xla.frontend.nn import op
from relax2xla.frontend.nn.containers import ModuleDict as ModuleDict
from relax2xla.frontend.nn.containers import ModuleList as ModuleList
from relax2xla.frontend.nn.effects import IOEffect as IOEffect
from relax2xla.frontend.nn.effects import KVCache as KVCache
from relax2xla.frontend.nn.module import Module as Module
from relax2xla.frontend.nn.tree import Effect as Effect
from relax2xla.frontend.nn.values import Parameter as Parameter
from relax2xla.frontend.nn.values import Size
from relax2xla.frontend.nn.values import Tensor as Tensor


# -- without parameters ----------------------------------------------------------------------------
class ReLU(Module):
    """``max(x, 0)``."""

    def forward(self, x: Tensor) -> Tensor:
        """``op.relu``."""
        return op.relu(x)


class SiLU(Module):
    """``x * sigmoid(x)``."""

    def forward(self, x: Tensor) -> Tensor:
        """``op.silu``."""
        return op.silu(x)


class GELU(Module):
    """``0.5 * x * (1 + erf(x / sqrt(2)))``."""

    def forward(self, x: Tensor) -> Tensor:
        """``op.gelu``."""
        return op.gelu(x)


class Identity(Module):
    """``x`` itself."""

    def forward(self, x: Tensor) -> Tensor:
        """``x``."""
        return x


# -- products, convolutions, tables ----------------------------------------------------------------
class Linear(Module):
    """``x @ weight.T + bias``: the last axis from ``in_features`` to ``out_features``.

    weight: ``(out_features, in_features)``; sizes are ints, names of symbolic sizes, expressions.
    out_dtype: of the product and so of the bias; None: ``dtype``.
    """

    def __init__(
        self,
        in_features: Size,
        out_features: Size,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.out_dtype = out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), out_dtype or dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """``(..., in_features)`` to ``(..., out_features)``."""
        out = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return out if self.bias is None else op.add(out, self.bias)

    def to(self, dtype: str | None = None) -> None:
        """Change the weight, and the bias unless ``out_dtype`` says what that is."""
        self.weight.to(dtype)
        if self.bias is not None and self.out_dtype is None:
            self.bias.to(dtype)
        if dtype is not None and isinstance(getattr(self, "dtype", None), str):
            self.dtype = dtype


class _Conv(Module):
    """What convolutions share: their settings, ``weight`` and ``bias``."""

    def __init__(
        self,
        channels: tuple[Any, Any],
        kernel: Sequence[int],
        settings: tuple[Any, Any, Any],
        groups: int,
        bias: bool,
        dtype: str | None,
        *,
        transposed: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = channels
        self.stride, self.padding, self.dilation = settings
        self.groups = groups
        first, second = channels if transposed else channels[::-1]
        if isinstance(second, int) and second % groups:
            raise ValueError(f"{second} channels cannot be divided into {groups} groups")
        each = second // groups if isinstance(second, int) else _grouped(second, groups)
        self.weight = Parameter((first, each, *kernel), dtype)
        self.bias = Parameter((self.out_channels,), dtype) if bias else None

    def _operands(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """What the operators of convolution take after their input."""
        return self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups


def _grouped(channels: Size, groups: int) -> Size:
    if isinstance(channels, str):
        return channels if groups == 1 else tir.floordiv(tir.Var(channels, "int64"), groups)
    return tir.floordiv(channels, groups)


class Conv1D(_Conv):
    """``op.conv1d`` with ``weight`` ``(out, in / groups, kernel_size)`` and ``bias`` ``(out,)``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.kernel_size = kernel_size
        settings = (stride, padding, dilation)
        super().__init__((in_channels, out_channels), [kernel_size], settings, groups, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``(N, in, W)`` to ``(N, out, W')``."""
        return op.conv1d(x, *self._operands())


class Conv2D(_Conv):
    """``op.conv2d`` with ``weight`` ``(out, in / groups, *kernel_size)`` and ``bias`` ``(out,)``.

    kernel_size: two numbers, or one for both. in_channels may be symbolic.
    """

    def __init__(
        self,
        in_channels: Size,
        out_channels: int,
        kernel_size: Sequence[int] | int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCHW",
    ) -> None:
        self.kernel_size = _kernel(kernel_size, 2)
        self.data_layout = data_layout
        settings = (stride, padding, dilation)
        channels = (in_channels, out_channels)
        super().__init__(channels, self.kernel_size, settings, groups, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``(N, in, H, W)`` to ``(N, out, H', W')``, or with channels last."""
        return op.conv2d(x, *self._operands(), self.data_layout)


class Conv3D(_Conv):
    """``op.conv3d`` with ``weight`` ``(out, in / groups, *kernel_size)`` and ``bias`` ``(out,)``.

    kernel_size: three numbers, or one for all. (In TVM ``groups`` does not change the weight.)
    """

    def __init__(
        self,
        in_channels: Size,
        out_channels: int,
        kernel_size: Sequence[int] | int,
        stride: Sequence[int] | int = 1,
        padding: Sequence[int] | int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCDHW",
    ) -> None:
        self.kernel_size = _kernel(kernel_size, 3)
        self.data_layout = data_layout
        settings = (stride, padding, dilation)
        channels = (in_channels, out_channels)
        super().__init__(channels, self.kernel_size, settings, groups, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``(N, in, D, H, W)`` to ``(N, out, D', H', W')``, or with channels last."""
        return op.conv3d(x, *self._operands(), self.data_layout)


class ConvTranspose1D(_Conv):
    """``op.conv1d_transpose`` with ``weight`` ``(in, out / groups, kernel_size)``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.kernel_size = kernel_size
        self.output_padding = output_padding
        super().__init__(
            (in_channels, out_channels),
            [kernel_size],
            (stride, padding, dilation),
            groups,
            bias,
            dtype,
            transposed=True,
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(N, in, W)`` to ``(N, out, W')``."""
        return op.conv1d_transpose(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.dilation,
            self.groups,
        )


def _kernel(size: Sequence[int] | int, rank: int) -> list[int]:
    return [size] * rank if isinstance(size, int) else list(size)


class Embedding(Module):
    """A table of ``num`` vectors of ``dim`` elements, ``weight``; sizes may be symbolic."""

    def __init__(self, num: Size, dim: Size, dtype: str | None = None) -> None:
        self.num = num
        self.dim = dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Integers of any shape to the vectors that they count: one more axis."""
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)
        rows = op.take(self.weight, op.reshape(x, [-1]), axis=0)
        return op.reshape(rows, [*x.shape, self.weight.shape[1]])


# -- norms -----------------------------------------------------------------------------------------
class LayerNorm(Module):
    """``op.layer_norm`` over the last axis, of size ``normalized_shape``.

    elementwise_affine: with ``weight`` and ``bias``. eps None: 1e-5, the default.
    """

    def __init__(
        self,
        normalized_shape: int,
        eps: float | None = 1e-5,
        elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = normalized_shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter((normalized_shape,), dtype) if elementwise_affine else None
        self.bias = Parameter((normalized_shape,), dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        eps = 1e-5 if self.eps is None else self.eps
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, eps)


class RMSNorm(Module):
    """``op.rms_norm`` over ``axes``, with ``weight`` of ``hidden_size``, plus ``bias``."""

    def __init__(
        self,
        hidden_size: int,
        axes: int | Sequence[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.axes = axes
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        out = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return out if self.bias is None else op.add(out, self.bias)


class GroupNorm(Module):
    """``op.group_norm`` of ``num_groups`` groups; affine: with ``weight`` and ``bias``."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        super().__init__()
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(
        self, x: Tensor, channel_axis: int = 1, axes: Sequence[int] | None = None
    ) -> Tensor:
        """The same shape; ``channel_axis`` and ``axes`` as of the operator."""
        return op.group_norm(
            x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes
        )


# -- of diffusion models ---------------------------------------------------------------------------
_ACTIVATIONS: dict[str, Callable[[], Module]] = {"silu": SiLU, "gelu": GELU, "relu": ReLU}


def _activation(name: str) -> Module:
    if name not in _ACTIVATIONS:
        raise UnsupportedError(f"an activation is one of {sorted(_ACTIVATIONS)}; got {name!r}")
    return _ACTIVATIONS[name]()


class TimestepEmbedding(Module):
    """Two linear layers with an activation between them (and one after), as diffusers has it.

    cond_proj_dim: a condition of that size is projected and added first. out_dim None:
    ``time_embed_dim``.
    """

    def __init__(
        self,
        in_channels: int,
        time_embed_dim: int,
        act_fn: str = "silu",
        out_dim: int | None = None,
        post_act_fn: str | None = None,
        cond_proj_dim: int | None = None,
    ) -> None:
        self.linear_1 = Linear(in_channels, time_embed_dim)
        self.cond_proj = (
            None if cond_proj_dim is None else Linear(cond_proj_dim, in_channels, bias=False)
        )
        self.act = _activation(act_fn)
        self.linear_2 = Linear(time_embed_dim, time_embed_dim if out_dim is None else out_dim)
        self.post_act = None if post_act_fn is None else _activation(post_act_fn)

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        """``(n, in_channels)`` to ``(n, out_dim)``; ValueError for a condition without its size."""
        if condition is not None:
            if self.cond_proj is None:
                raise ValueError("a condition needs cond_proj_dim")
            sample = op.add(sample, self.cond_proj(condition))
        out = self.linear_2(self.act(self.linear_1(sample)))
        return out if self.post_act is None else self.post_act(out)


class Timesteps(Module):
    """``op.get_timestep_embedding`` with its settings."""

    def __init__(
        self, num_channels: int, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1
    ) -> None:
        self.num_channels = num_channels
        self.flip_sin_to_cos = flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift

    def forward(self, x: Tensor) -> Tensor:
        """``(n,)`` to ``(n, num_channels)``."""
        return op.get_timestep_embedding(
            x,
            embedding_dim=self.num_channels,
            flip_sin_to_cos=self.flip_sin_to_cos,
            downscale_freq_shift=self.downscale_freq_shift,
        )


class Attention(Module):
    """Attention of several heads between two sequences, as diffusers has it.

    query_dim, cross_attention_dim (None: the same): sizes of their elements. norm_num_groups: the
    queries go through a group norm first. scale_qk False: scores are not scaled. (TVM stores it and
    scales them anyway.)
    """

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        bias: bool = False,
        norm_num_groups: int | None = None,
        out_bias: bool = True,
        scale_qk: bool = True,
    ) -> None:
        self.query_dim = query_dim
        self.cross_attention_dim = cross_attention_dim or query_dim
        self.heads = heads
        self.dim_head = dim_head
        self.bias = bias
        self.norm_num_groups = norm_num_groups
        self.out_bias = out_bias
        self.scale_qk = scale_qk
        self.scale = dim_head**-0.5 if scale_qk else 1.0
        self.inner_dim = dim_head * heads
        self.to_q = Linear(query_dim, self.inner_dim, bias=bias)
        self.to_k = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.to_v = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.group_norm = None if norm_num_groups is None else GroupNorm(norm_num_groups, query_dim)
        self.to_out = ModuleList([Linear(self.inner_dim, query_dim, bias=out_bias)])

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **cross_attention_kwargs: Any,
    ) -> Tensor:
        """``(batch, length, query_dim)``, the same shape.

        encoder_hidden_states: what is attended to; None: the sequence itself, after the group norm.
        Raises UnsupportedError for a mask and for further arguments.
        """
        if attention_mask is not None or cross_attention_kwargs:
            given = sorted(cross_attention_kwargs) or ["attention_mask"]
            raise UnsupportedError(f"Attention does not support {given}")
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states, channel_axis=2, axes=[1])
        others = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        split = [0, -1, self.heads, self.dim_head]
        projected = (self.to_q(hidden_states), self.to_k(others), self.to_v(others))
        query, key, value = (op.reshape(t, split) for t in projected)
        scale = None if self.scale_qk else 1.0
        out = op.scaled_dot_product_attention(query, key, value, is_causal=False, scale=scale)
        return self.to_out[0](op.reshape(out, [0, -1, self.inner_dim]))

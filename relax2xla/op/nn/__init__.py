"""Operators of neural networks: ``relax.nn.*``."""

from __future__ import annotations

from .activation import gelu as gelu
from .activation import gelu_tanh as gelu_tanh
from .activation import leakyrelu as leakyrelu
from .activation import log_softmax as log_softmax
from .activation import prelu as prelu
from .activation import relu as relu
from .activation import relu6 as relu6
from .activation import selu as selu
from .activation import silu as silu
from .activation import softmax as softmax
from .activation import softplus as softplus
from .attention import attention as attention
from .attention import attention_bias as attention_bias
from .attention import attention_op as attention_op
from .attention import attention_var_len as attention_var_len
from .attention import attention_var_len_op as attention_var_len_op
from .conv import conv1d as conv1d
from .conv import conv1d_transpose as conv1d_transpose
from .conv import conv2d as conv2d
from .conv import conv2d_transpose as conv2d_transpose
from .conv import conv3d as conv3d
from .conv import conv3d_transpose as conv3d_transpose
from .loss import cross_entropy_with_logits as cross_entropy_with_logits
from .loss import nll_loss as nll_loss
from .norm import batch_norm as batch_norm
from .norm import group_norm as group_norm
from .norm import instance_norm as instance_norm
from .norm import layer_norm as layer_norm
from .norm import rms_norm as rms_norm
from .pool import adaptive_avg_pool1d as adaptive_avg_pool1d
from .pool import adaptive_avg_pool2d as adaptive_avg_pool2d
from .pool import adaptive_avg_pool3d as adaptive_avg_pool3d
from .pool import avg_pool1d as avg_pool1d
from .pool import avg_pool2d as avg_pool2d
from .pool import avg_pool3d as avg_pool3d
from .pool import max_pool1d as max_pool1d
from .pool import max_pool2d as max_pool2d
from .pool import max_pool3d as max_pool3d
from .shape import batch_flatten as batch_flatten
from .shape import dropout as dropout
from .shape import pad as pad
from .shape import pixel_shuffle as pixel_shuffle
from .winograd import winograd_conv2d as winograd_conv2d
from .winograd import winograd_weight as winograd_weight

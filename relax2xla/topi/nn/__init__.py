"""Functions of neural networks over tensors of ``te``."""

from __future__ import annotations

from relax2xla.topi.nn.activation import fast_softmax as fast_softmax
from relax2xla.topi.nn.activation import leaky_relu as leaky_relu
from relax2xla.topi.nn.activation import log_softmax as log_softmax
from relax2xla.topi.nn.activation import prelu as prelu
from relax2xla.topi.nn.activation import relu as relu
from relax2xla.topi.nn.activation import softmax as softmax
from relax2xla.topi.nn.activation import softplus as softplus
from relax2xla.topi.nn.convolution import conv as conv
from relax2xla.topi.nn.convolution import conv1d as conv1d
from relax2xla.topi.nn.convolution import conv1d_ncw as conv1d_ncw
from relax2xla.topi.nn.convolution import conv1d_nwc as conv1d_nwc
from relax2xla.topi.nn.convolution import conv1d_transpose_ncw as conv1d_transpose_ncw
from relax2xla.topi.nn.convolution import conv2d as conv2d
from relax2xla.topi.nn.convolution import conv2d_hwcn as conv2d_hwcn
from relax2xla.topi.nn.convolution import conv2d_nchw as conv2d_nchw
from relax2xla.topi.nn.convolution import conv2d_nhwc as conv2d_nhwc
from relax2xla.topi.nn.convolution import conv2d_transpose_nchw as conv2d_transpose_nchw
from relax2xla.topi.nn.convolution import conv3d_ncdhw as conv3d_ncdhw
from relax2xla.topi.nn.convolution import conv3d_ndhwc as conv3d_ndhwc
from relax2xla.topi.nn.convolution import conv3d_transpose_ncdhw as conv3d_transpose_ncdhw
from relax2xla.topi.nn.convolution import depthwise_conv2d_nchw as depthwise_conv2d_nchw
from relax2xla.topi.nn.convolution import depthwise_conv2d_nhwc as depthwise_conv2d_nhwc
from relax2xla.topi.nn.convolution import group_conv1d_ncw as group_conv1d_ncw
from relax2xla.topi.nn.convolution import group_conv1d_nwc as group_conv1d_nwc
from relax2xla.topi.nn.convolution import group_conv1d_transpose_ncw as group_conv1d_transpose_ncw
from relax2xla.topi.nn.convolution import group_conv2d_nchw as group_conv2d_nchw
from relax2xla.topi.nn.convolution import group_conv2d_nhwc as group_conv2d_nhwc
from relax2xla.topi.nn.convolution import group_conv2d_transpose_nchw as group_conv2d_transpose_nchw
from relax2xla.topi.nn.convolution import (
    group_conv3d_transpose_ncdhw as group_conv3d_transpose_ncdhw,
)
from relax2xla.topi.nn.loss import nll_loss as nll_loss
from relax2xla.topi.nn.norm import batch_norm as batch_norm
from relax2xla.topi.nn.norm import group_norm as group_norm
from relax2xla.topi.nn.norm import instance_norm as instance_norm
from relax2xla.topi.nn.norm import layer_norm as layer_norm
from relax2xla.topi.nn.norm import lrn as lrn
from relax2xla.topi.nn.norm import rms_norm as rms_norm
from relax2xla.topi.nn.padding import dilate as dilate
from relax2xla.topi.nn.padding import mirror_pad as mirror_pad
from relax2xla.topi.nn.padding import pad as pad
from relax2xla.topi.nn.pool import adaptive_pool as adaptive_pool
from relax2xla.topi.nn.pool import adaptive_pool1d as adaptive_pool1d
from relax2xla.topi.nn.pool import adaptive_pool3d as adaptive_pool3d
from relax2xla.topi.nn.pool import global_pool as global_pool
from relax2xla.topi.nn.pool import pool1d as pool1d
from relax2xla.topi.nn.pool import pool2d as pool2d
from relax2xla.topi.nn.pool import pool3d as pool3d
from relax2xla.topi.nn.pool import pool_grad as pool_grad
from relax2xla.topi.nn.products import batch_matmul as batch_matmul
from relax2xla.topi.nn.products import dense as dense
from relax2xla.topi.nn.products import matmul as matmul
from relax2xla.topi.nn.space import batch_to_space_nd as batch_to_space_nd
from relax2xla.topi.nn.space import depth_to_space as depth_to_space
from relax2xla.topi.nn.space import space_to_batch_nd as space_to_batch_nd
from relax2xla.topi.nn.space import space_to_depth as space_to_depth
from relax2xla.topi.nn.upsampling import upsampling as upsampling
from relax2xla.topi.nn.upsampling import upsampling3d as upsampling3d
from relax2xla.topi.transform import flatten as flatten

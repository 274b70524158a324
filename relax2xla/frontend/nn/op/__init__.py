"""Operators of models: functions of Tensors, and at once of arrays; ``name`` is a variable's hint.

Signatures are TVM's: where its prose names a parameter otherwise, the signature counts.
"""

from __future__ import annotations

import sys
from typing import TypeVar as TypeVar

from relax2xla.frontend.nn.op.elementwise import add as add
from relax2xla.frontend.nn.op.elementwise import astype as astype
from relax2xla.frontend.nn.op.elementwise import divide as divide
from relax2xla.frontend.nn.op.elementwise import equal as equal
from relax2xla.frontend.nn.op.elementwise import exp as exp
from relax2xla.frontend.nn.op.elementwise import floor as floor
from relax2xla.frontend.nn.op.elementwise import gelu as gelu
from relax2xla.frontend.nn.op.elementwise import greater as greater
from relax2xla.frontend.nn.op.elementwise import greater_equal as greater_equal
from relax2xla.frontend.nn.op.elementwise import less as less
from relax2xla.frontend.nn.op.elementwise import less_equal as less_equal
from relax2xla.frontend.nn.op.elementwise import log as log
from relax2xla.frontend.nn.op.elementwise import max as max
from relax2xla.frontend.nn.op.elementwise import maximum as maximum
from relax2xla.frontend.nn.op.elementwise import min as min
from relax2xla.frontend.nn.op.elementwise import minimum as minimum
from relax2xla.frontend.nn.op.elementwise import multiply as multiply
from relax2xla.frontend.nn.op.elementwise import negative as negative
from relax2xla.frontend.nn.op.elementwise import not_equal as not_equal
from relax2xla.frontend.nn.op.elementwise import prelu as prelu
from relax2xla.frontend.nn.op.elementwise import relu as relu
from relax2xla.frontend.nn.op.elementwise import relu6 as relu6
from relax2xla.frontend.nn.op.elementwise import sigmoid as sigmoid
from relax2xla.frontend.nn.op.elementwise import silu as silu
from relax2xla.frontend.nn.op.elementwise import softmax as softmax
from relax2xla.frontend.nn.op.elementwise import softplus as softplus
from relax2xla.frontend.nn.op.elementwise import sqrt as sqrt
from relax2xla.frontend.nn.op.elementwise import square as square
from relax2xla.frontend.nn.op.elementwise import subtract as subtract
from relax2xla.frontend.nn.op.elementwise import sum as sum
from relax2xla.frontend.nn.op.elementwise import tanh as tanh
from relax2xla.frontend.nn.op.elementwise import where as where
from relax2xla.frontend.nn.op.foreign import OutType as OutType
from relax2xla.frontend.nn.op.foreign import ccl_allgather as ccl_allgather
from relax2xla.frontend.nn.op.foreign import ccl_allreduce as ccl_allreduce
from relax2xla.frontend.nn.op.foreign import (
    ccl_broadcast_from_worker0 as ccl_broadcast_from_worker0,
)
from relax2xla.frontend.nn.op.foreign import debug_func as debug_func
from relax2xla.frontend.nn.op.foreign import extern as extern
from relax2xla.frontend.nn.op.foreign import print_ as print_
from relax2xla.frontend.nn.op.foreign import tensor_expr_op as tensor_expr_op
from relax2xla.frontend.nn.op.foreign import tensor_ir_inplace_op as tensor_ir_inplace_op
from relax2xla.frontend.nn.op.foreign import tensor_ir_op as tensor_ir_op
from relax2xla.frontend.nn.op.layers import conv1d as conv1d
from relax2xla.frontend.nn.op.layers import conv1d_transpose as conv1d_transpose
from relax2xla.frontend.nn.op.layers import conv2d as conv2d
from relax2xla.frontend.nn.op.layers import conv3d as conv3d
from relax2xla.frontend.nn.op.layers import get_timestep_embedding as get_timestep_embedding
from relax2xla.frontend.nn.op.layers import group_norm as group_norm
from relax2xla.frontend.nn.op.layers import interpolate as interpolate
from relax2xla.frontend.nn.op.layers import layer_norm as layer_norm
from relax2xla.frontend.nn.op.layers import matmul as matmul
from relax2xla.frontend.nn.op.layers import rms_norm as rms_norm
from relax2xla.frontend.nn.op.layers import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from relax2xla.frontend.nn.op.sampling import multinomial_from_uniform as multinomial_from_uniform
from relax2xla.frontend.nn.op.sampling import (
    renormalize_top_p_top_k_prob as renormalize_top_p_top_k_prob,
)
from relax2xla.frontend.nn.op.sampling import (
    sample_top_p_top_k_from_sorted_prob as sample_top_p_top_k_from_sorted_prob,
)
from relax2xla.frontend.nn.op.shape import arange as arange
from relax2xla.frontend.nn.op.shape import argsort as argsort
from relax2xla.frontend.nn.op.shape import broadcast_to as broadcast_to
from relax2xla.frontend.nn.op.shape import chunk as chunk
from relax2xla.frontend.nn.op.shape import concat as concat
from relax2xla.frontend.nn.op.shape import cumsum as cumsum
from relax2xla.frontend.nn.op.shape import empty as empty
from relax2xla.frontend.nn.op.shape import full as full
from relax2xla.frontend.nn.op.shape import ones as ones
from relax2xla.frontend.nn.op.shape import pad as pad
from relax2xla.frontend.nn.op.shape import permute as permute
from relax2xla.frontend.nn.op.shape import permute_dims as permute_dims
from relax2xla.frontend.nn.op.shape import repeat as repeat
from relax2xla.frontend.nn.op.shape import reshape as reshape
from relax2xla.frontend.nn.op.shape import sort as sort
from relax2xla.frontend.nn.op.shape import split as split
from relax2xla.frontend.nn.op.shape import squeeze as squeeze
from relax2xla.frontend.nn.op.shape import take as take
from relax2xla.frontend.nn.op.shape import topk as topk
from relax2xla.frontend.nn.op.shape import triu as triu
from relax2xla.frontend.nn.op.shape import unsqueeze as unsqueeze
from relax2xla.frontend.nn.op.shape import zeros as zeros
from relax2xla.frontend.nn.values import get_default_dtype as get_default_dtype
from relax2xla.frontend.nn.values import use_operators
from relax2xla.frontend.nn.values import wrap_nested as wrap_nested

use_operators(sys.modules[__name__])

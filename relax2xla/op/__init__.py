"""All Relax operators, by their names in TVM: ``op.add(x, y)``, ``op.nn.softmax(x)``.

Importing this package registers every operator; it imports neither jax nor torch. One operator is
one unit (a decorated function, its docstring and its ``legalize`` rule): see relax2xla/ir/op.py.
"""

from __future__ import annotations

from typing import Any, Final

from relax2xla.op import builtin as builtin
from relax2xla.op import ccl as ccl
from relax2xla.op import distributed as distributed
from relax2xla.op import grad as grad
from relax2xla.op import image as image
from relax2xla.op import inspect as inspect
from relax2xla.op import maps as maps
from relax2xla.op import memory as memory
from relax2xla.op import nn as nn
from relax2xla.op import sequence as sequence
from relax2xla.op import signal as signal
from relax2xla.op import text as text
from relax2xla.op import vision as vision
from relax2xla.op import vm as vm
from relax2xla.op.binary import add as add
from relax2xla.op.binary import atan2 as atan2
from relax2xla.op.binary import bitwise_and as bitwise_and
from relax2xla.op.binary import bitwise_or as bitwise_or
from relax2xla.op.binary import bitwise_xor as bitwise_xor
from relax2xla.op.binary import divide as divide
from relax2xla.op.binary import equal as equal
from relax2xla.op.binary import ewise_fma as ewise_fma
from relax2xla.op.binary import floor_divide as floor_divide
from relax2xla.op.binary import floor_mod as floor_mod
from relax2xla.op.binary import greater as greater
from relax2xla.op.binary import greater_equal as greater_equal
from relax2xla.op.binary import left_shift as left_shift
from relax2xla.op.binary import less as less
from relax2xla.op.binary import less_equal as less_equal
from relax2xla.op.binary import log_add_exp as log_add_exp
from relax2xla.op.binary import logical_and as logical_and
from relax2xla.op.binary import logical_or as logical_or
from relax2xla.op.binary import logical_xor as logical_xor
from relax2xla.op.binary import masked_fill as masked_fill
from relax2xla.op.binary import maximum as maximum
from relax2xla.op.binary import minimum as minimum
from relax2xla.op.binary import mod as mod
from relax2xla.op.binary import multiply as multiply
from relax2xla.op.binary import not_equal as not_equal
from relax2xla.op.binary import power as power
from relax2xla.op.binary import right_shift as right_shift
from relax2xla.op.binary import subtract as subtract
from relax2xla.op.binary import where as where
from relax2xla.op.create import arange as arange
from relax2xla.op.create import eye as eye
from relax2xla.op.create import eye_like as eye_like
from relax2xla.op.create import full as full
from relax2xla.op.create import full_like as full_like
from relax2xla.op.create import hamming_window as hamming_window
from relax2xla.op.create import ones as ones
from relax2xla.op.create import ones_like as ones_like
from relax2xla.op.create import tril as tril
from relax2xla.op.create import triu as triu
from relax2xla.op.create import zeros as zeros
from relax2xla.op.create import zeros_like as zeros_like
from relax2xla.op.index import dynamic_strided_slice as dynamic_strided_slice
from relax2xla.op.index import gather_elements as gather_elements
from relax2xla.op.index import gather_nd as gather_nd
from relax2xla.op.index import index_tensor as index_tensor
from relax2xla.op.index import one_hot as one_hot
from relax2xla.op.index import strided_slice as strided_slice
from relax2xla.op.index import take as take
from relax2xla.op.intrinsic import assert_op as assert_op
from relax2xla.op.intrinsic import call_builtin_with_ctx as call_builtin_with_ctx
from relax2xla.op.intrinsic import call_builtin_with_ctx_op as call_builtin_with_ctx_op
from relax2xla.op.intrinsic import call_dps_packed as call_dps_packed
from relax2xla.op.intrinsic import call_dps_packed_op as call_dps_packed_op
from relax2xla.op.intrinsic import call_inplace_packed as call_inplace_packed
from relax2xla.op.intrinsic import call_inplace_packed_op as call_inplace_packed_op
from relax2xla.op.intrinsic import call_pure_packed as call_pure_packed
from relax2xla.op.intrinsic import call_pure_packed_op as call_pure_packed_op
from relax2xla.op.intrinsic import call_py_func as call_py_func
from relax2xla.op.intrinsic import call_py_func_op as call_py_func_op
from relax2xla.op.intrinsic import call_tir as call_tir
from relax2xla.op.intrinsic import call_tir_inplace as call_tir_inplace
from relax2xla.op.intrinsic import call_tir_inplace_op as call_tir_inplace_op
from relax2xla.op.intrinsic import call_tir_op as call_tir_op
from relax2xla.op.intrinsic import call_tir_with_grad as call_tir_with_grad
from relax2xla.op.intrinsic import call_tir_with_grad_op as call_tir_with_grad_op
from relax2xla.op.intrinsic import invoke_closure as invoke_closure
from relax2xla.op.intrinsic import invoke_closure_op as invoke_closure_op
from relax2xla.op.intrinsic import invoke_pure_closure as invoke_pure_closure
from relax2xla.op.intrinsic import invoke_pure_closure_op as invoke_pure_closure_op
from relax2xla.op.intrinsic import make_closure as make_closure
from relax2xla.op.intrinsic import print as print
from relax2xla.op.join import concat as concat
from relax2xla.op.join import meshgrid as meshgrid
from relax2xla.op.join import split as split
from relax2xla.op.join import stack as stack
from relax2xla.op.layout import layout_transform as layout_transform
from relax2xla.op.layout import reverse_sequence as reverse_sequence
from relax2xla.op.linalg import einsum as einsum
from relax2xla.op.linalg import linear as linear
from relax2xla.op.linalg import matmul as matmul
from relax2xla.op.linalg import outer as outer
from relax2xla.op.manipulate import broadcast_to as broadcast_to
from relax2xla.op.manipulate import collapse_sum_like as collapse_sum_like
from relax2xla.op.manipulate import collapse_sum_to as collapse_sum_to
from relax2xla.op.manipulate import expand_dims as expand_dims
from relax2xla.op.manipulate import flatten as flatten
from relax2xla.op.manipulate import flip as flip
from relax2xla.op.manipulate import permute_dims as permute_dims
from relax2xla.op.manipulate import repeat as repeat
from relax2xla.op.manipulate import reshape as reshape
from relax2xla.op.manipulate import squeeze as squeeze
from relax2xla.op.manipulate import tile as tile
from relax2xla.op.quantize import dequantize as dequantize
from relax2xla.op.quantize import quantize as quantize
from relax2xla.op.random import multinomial_from_uniform as multinomial_from_uniform
from relax2xla.op.random import random_key as random_key
from relax2xla.op.scatter import index_put as index_put
from relax2xla.op.scatter import scatter_elements as scatter_elements
from relax2xla.op.scatter import scatter_nd as scatter_nd
from relax2xla.op.scatter import slice_scatter as slice_scatter
from relax2xla.op.sets import nonzero as nonzero
from relax2xla.op.sets import unique as unique
from relax2xla.op.shape import hint_on_device as hint_on_device
from relax2xla.op.shape import null_value as null_value
from relax2xla.op.shape import number_to_tensor as number_to_tensor
from relax2xla.op.shape import shape_of as shape_of
from relax2xla.op.shape import shape_to_tensor as shape_to_tensor
from relax2xla.op.shape import size as size
from relax2xla.op.shape import tensor_to_bits as tensor_to_bits
from relax2xla.op.shape import tensor_to_shape as tensor_to_shape
from relax2xla.op.shape import to_vdevice as to_vdevice
from relax2xla.op.sorting import argmax as argmax
from relax2xla.op.sorting import argmin as argmin
from relax2xla.op.sorting import argsort as argsort
from relax2xla.op.sorting import bucketize as bucketize
from relax2xla.op.sorting import sort as sort
from relax2xla.op.sorting import topk as topk
from relax2xla.op.statistical import cumprod as cumprod
from relax2xla.op.statistical import cumsum as cumsum
from relax2xla.op.statistical import max as max
from relax2xla.op.statistical import mean as mean
from relax2xla.op.statistical import median as median
from relax2xla.op.statistical import min as min
from relax2xla.op.statistical import prod as prod
from relax2xla.op.statistical import std as std
from relax2xla.op.statistical import sum as sum
from relax2xla.op.statistical import variance as variance
from relax2xla.op.unary import abs as abs
from relax2xla.op.unary import acos as acos
from relax2xla.op.unary import acosh as acosh
from relax2xla.op.unary import asin as asin
from relax2xla.op.unary import asinh as asinh
from relax2xla.op.unary import astype as astype
from relax2xla.op.unary import atan as atan
from relax2xla.op.unary import atanh as atanh
from relax2xla.op.unary import bitwise_not as bitwise_not
from relax2xla.op.unary import ceil as ceil
from relax2xla.op.unary import clip as clip
from relax2xla.op.unary import cos as cos
from relax2xla.op.unary import cosh as cosh
from relax2xla.op.unary import erf as erf
from relax2xla.op.unary import exp as exp
from relax2xla.op.unary import floor as floor
from relax2xla.op.unary import isfinite as isfinite
from relax2xla.op.unary import isinf as isinf
from relax2xla.op.unary import isnan as isnan
from relax2xla.op.unary import log as log
from relax2xla.op.unary import logical_not as logical_not
from relax2xla.op.unary import negative as negative
from relax2xla.op.unary import round as round
from relax2xla.op.unary import rsqrt as rsqrt
from relax2xla.op.unary import sigmoid as sigmoid
from relax2xla.op.unary import sign as sign
from relax2xla.op.unary import sin as sin
from relax2xla.op.unary import sinh as sinh
from relax2xla.op.unary import sqrt as sqrt
from relax2xla.op.unary import square as square
from relax2xla.op.unary import tan as tan
from relax2xla.op.unary import tanh as tanh
from relax2xla.op.unary import trunc as trunc
from relax2xla.op.unary import wrap_param as wrap_param
from relax2xla.op.vision import all_class_non_max_suppression as all_class_non_max_suppression
from relax2xla.op.vision import get_valid_counts as get_valid_counts
from relax2xla.op.vision import multibox_transform_loc as multibox_transform_loc
from relax2xla.op.vision import non_max_suppression as non_max_suppression
from relax2xla.op.vision import roi_align as roi_align
from relax2xla.op.vision import roi_pool as roi_pool

# What TVMScript may call as ``R.NAME`` beside the operators: compositions, and short names.
COMPOSED: Final[dict[str, Any]] = {
    "linear": linear,
    "masked_fill": masked_fill,
    "all_class_non_max_suppression": all_class_non_max_suppression,
    "get_valid_counts": get_valid_counts,
    "multibox_transform_loc": multibox_transform_loc,
    "non_max_suppression": non_max_suppression,
    "roi_align": roi_align,
    "roi_pool": roi_pool,
}

"""The runtime: devices, conversion of arrays, packed functions."""

from __future__ import annotations

from relax2xla.runtime.device import Device as Device
from relax2xla.runtime.device import cpu as cpu
from relax2xla.runtime.device import cuda as cuda
from relax2xla.runtime.device import device as device
from relax2xla.runtime.device import gpu as gpu
from relax2xla.runtime.device import rocm as rocm
from relax2xla.runtime.modules import load_module as load_module
from relax2xla.runtime.param_dict import load_param_dict as load_param_dict
from relax2xla.runtime.param_dict import load_param_dict_from_file as load_param_dict_from_file
from relax2xla.runtime.param_dict import save_param_dict as save_param_dict
from relax2xla.runtime.param_dict import save_param_dict_to_file as save_param_dict_to_file
from relax2xla.runtime.registry import get_global_func as get_global_func
from relax2xla.runtime.registry import list_global_func_names as list_global_func_names
from relax2xla.runtime.registry import register_func as register_func
from relax2xla.runtime.registry import remove_global_func as remove_global_func
from relax2xla.runtime.shape_tuple import ShapeTuple as ShapeTuple
from relax2xla.runtime.weights import load_weights as load_weights
from relax2xla.runtime.weights import save_weights as save_weights

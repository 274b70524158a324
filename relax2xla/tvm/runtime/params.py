"""``tvm.runtime.params``: dictionaries of tensors as bytes, read as arrays of programs for TVM."""

from __future__ import annotations

from pathlib import Path

from relax2xla.runtime import param_dict
from relax2xla.runtime.param_dict import save_param_dict as save_param_dict
from relax2xla.runtime.param_dict import save_param_dict_to_file as save_param_dict_to_file
from relax2xla.tvm.runtime.arrays import HostArray, over


def load_param_dict(param_bytes: bytes | bytearray | memoryview) -> dict[str, HostArray]:
    """The tensors by name; see :func:`relax2xla.runtime.load_param_dict`."""
    return {k: over(v) for k, v in param_dict.load_param_dict(param_bytes).items()}


def load_param_dict_from_file(path: str | Path) -> dict[str, HostArray]:
    """:func:`load_param_dict` of a file."""
    return {k: over(v) for k, v in param_dict.load_param_dict_from_file(path).items()}

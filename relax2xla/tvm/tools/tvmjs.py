"""``tvm.contrib.tvmjs``: folders of tensors. There is no runtime for browsers here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from relax2xla.runtime.tensor_cache import NAMES, bf16_to_f32, dump, f32_to_bf16, load
from relax2xla.tvm.refusing import refusing
from relax2xla.tvm.runtime.arrays import HostArray, over

_NO_BROWSER: Final = "XLA compiles for this machine's CPU and GPU"
_convert_f32_to_bf16, _convert_bf16_to_f32 = f32_to_bf16, bf16_to_f32
export_runtime = refusing("tvm.contrib.tvmjs.export_runtime", _NO_BROWSER)
create_tvmjs_wasm = refusing("tvm.contrib.tvmjs.create_tvmjs_wasm", _NO_BROWSER)

Params = Mapping[str, Any] | Iterable[tuple[str, Any]]


def dump_tensor_cache(
    params: Params,
    cache_dir: str | Path,
    encode_format: str = "f32-to-bf16",
    meta_data: Any = None,
    shard_cap_mb: int = 32,
    show_progress: bool = True,
    update_if_exists: bool = False,
) -> None:
    """Write tensors into a folder, as TVM 0.25 does; :func:`~relax2xla.runtime.tensor_cache.dump`.

    show_progress: accepted; nothing is printed.
    """
    dump(params, cache_dir, encode_format, meta_data, shard_cap_mb, update_if_exists)


def dump_ndarray_cache(
    params: Params,
    cache_dir: str | Path,
    encode_format: str = "f32-to-bf16",
    meta_data: Any = None,
    shard_cap_mb: int = 32,
    show_progress: bool = True,
    update_if_exists: bool = False,
) -> None:
    """:func:`dump_tensor_cache` with the names of files that TVM had before 0.25."""
    dump(params, cache_dir, encode_format, meta_data, shard_cap_mb, update_if_exists, NAMES[1])


def load_ndarray_cache(
    cachepath: str | Path, device: Any = None
) -> tuple[dict[str, HostArray], dict[str, Any]]:
    """The tensors of a folder, or of its ``.json`` file, and the metadata; written by either."""
    found, meta = load(cachepath)
    return {name: over(value) for name, value in found.items()}, meta


load_tensor_cache = load_ndarray_cache

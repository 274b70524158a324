"""tvm.contrib.tvmjs: folders of tensors by TVM's names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relax2xla.errors import UnsupportedError
from relax2xla.tvm.runtime.arrays import HostArray, array
from relax2xla.tvm.tools import tvmjs


def test_both_names_of_the_files_are_read(tmp_path: Path) -> None:
    given = {"w": array(np.arange(6.0).reshape(2, 3).astype("float32"))}
    tvmjs.dump_ndarray_cache(given, str(tmp_path), encode_format="raw", show_progress=False)
    assert (tmp_path / "ndarray-cache.json").is_file()
    found, meta = tvmjs.load_ndarray_cache(str(tmp_path), None)
    assert isinstance(found["w"], HostArray)
    np.testing.assert_array_equal(found["w"].numpy(), given["w"].numpy())
    tvmjs.dump_tensor_cache({"w": given["w"] + 1}, str(tmp_path), meta_data={"n": 2})
    found, meta = tvmjs.load_tensor_cache(str(tmp_path))
    assert (meta, found["w"].numpy()[1, 2]) == ({"n": 2}, 6)
    with pytest.raises(UnsupportedError, match="export_runtime: XLA compiles for this machine"):
        tvmjs.export_runtime("web")

"""The arrays of a saved executable: each is there once, and referred to by a row of plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import dtype_name, numpy_dtype
from relax2xla.ir import Constant, TensorStructInfo
from relax2xla.runtime.weights import CODES
from relax2xla.vm.save.manifest import is_shape

Array = npt.NDArray[Any]


class ArrayWriter:
    """Arrays that are collected for a file, ``tensors`` by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Array] = {}
        self._known: dict[int, tuple[Array, dict[str, Any]]] = {}

    def row(self, array: Array, name: str = "") -> dict[str, Any]:
        """A reference to an array, which is saved once."""
        found = self._known.get(id(array))
        if found is not None:
            return found[1]
        row: dict[str, Any] = {"dtype": dtype_name(array.dtype), "shape": list(array.shape)}
        held = array
        if array.size > 1 and not any(array.strides):
            row["splat"] = True
            held = array.reshape(-1)[:1].copy()
        plain = np.ascontiguousarray(held).reshape(-1).view(np.uint8)
        # What safetensors has no name for is saved as bytes.
        key = name if name and name not in self.tensors else f"r2x.{len(self.tensors)}"
        self.tensors[key] = held if array.dtype.newbyteorder("=") in CODES else plain
        row["tensor"] = key
        self._known[id(array)] = (array, row)
        return row

    def table_row(self, item: Any) -> dict[str, Any]:
        """A constant or array that the Relax text refers to."""
        if not isinstance(item, Constant):
            return self.row(item)
        info = item.struct_info_
        assert isinstance(info, TensorStructInfo)
        return {**self.row(item.data), "constant": info.dtype}


class ArrayReader:
    """The arrays of a file; ``tensors`` are its own, by name."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self.tensors = tensors
        self._known: dict[str, Array] = {}

    def array(self, row: Any) -> Array:
        """An array of the file: the same object for the same row."""
        key = json.dumps(row, sort_keys=True)
        if key not in self._known:
            self._known[key] = self._read(row)
        return self._known[key]

    def _read(self, row: Mapping[str, Any]) -> Array:
        """The array of one reference in the manifest."""
        dtype, shape = numpy_dtype(row["dtype"]), row["shape"]
        if not is_shape(shape):
            raise ValueError(f"no shape: {shape!r}")
        held = self.tensors[row["tensor"]]
        plain = held.reshape(-1).view(np.uint8).view(dtype)
        if row.get("splat"):
            return np.broadcast_to(plain.reshape(()), shape)
        return plain.reshape(shape)

    def table_item(self, row: Mapping[str, Any]) -> Any:
        """A constant or array that the text refers to."""
        if "constant" not in row:
            return self.array(row)
        array = self.array({k: v for k, v in row.items() if k != "constant"})
        return Constant(array, TensorStructInfo.make(array.shape, row["constant"]))

"""Dictionaries of tensors as bytes: those that TVM 0.25 writes, and what is no such dictionary."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax2xla.errors import FileFormatError
from relax2xla.runtime import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)

TENSORS: dict[str, Any] = {
    "x": np.arange(6, dtype="float32").reshape(2, 3),
    "flags": np.array([True, False]),
    "n": np.array(7, "int64"),
    "": np.zeros((0, 2), "uint8"),
    "é": np.array([1.5, -2], ml_dtypes.bfloat16),
    "h": np.array([0.5], "float16"),
    "q": np.array([1, -0.5], ml_dtypes.float8_e4m3fn),
    "r": np.array([2], ml_dtypes.float8_e5m2),
    "i": np.array([-3], "int8"),
    "d": np.array([0.1]),
    "u": np.array([2**63], "uint64"),
}
# Of the bytes that tvm.runtime.save_param_dict of TVM 0.25 made of these.
SIZE, MD5 = 731, "deddd639e01a4b2d161880cf7fbf2dbf"
WRITTEN = bytes(save_param_dict(TENSORS))


def test_the_bytes_are_tvms() -> None:
    assert (len(WRITTEN), hashlib.md5(WRITTEN).hexdigest()) == (SIZE, MD5)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    save_param_dict_to_file(TENSORS, tmp_path / "params")
    for found in (load_param_dict(WRITTEN), load_param_dict_from_file(tmp_path / "params")):
        assert list(found) == list(TENSORS)
        for name, value in TENSORS.items():
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            np.testing.assert_array_equal(found[name], value)
            assert found[name].flags.writeable
    assert load_param_dict(save_param_dict({})) == {}
    turned = TENSORS["x"].astype(">f4")
    np.testing.assert_array_equal(load_param_dict(save_param_dict({"x": turned}))["x"], turned)


def test_bools_of_one_bit_are_those_of_before_025() -> None:
    made = save_param_dict({"b": TENSORS["flags"]})
    at = made.index(struct.pack("<BBH", 6, 8, 1))
    made[at : at + 2] = bytes((1, 1))
    np.testing.assert_array_equal(load_param_dict(made)["b"], TENSORS["flags"])


def test_dtypes_without_a_code_are_named() -> None:
    with pytest.raises(ValueError, match="'w' is of int4"):
        save_param_dict({"w": np.zeros(2, ml_dtypes.int4)})


@pytest.mark.parametrize("end", range(0, SIZE, 7))
def test_what_ends_too_early(end: int) -> None:
    with pytest.raises(FileFormatError, match=r"no dictionary of tensors of TVM: .*\(byte"):
        load_param_dict(WRITTEN[:end])


def _with(old: bytes, new: bytes) -> bytes:
    made = bytes(save_param_dict({"a": TENSORS["x"], "b": TENSORS["flags"]}))
    assert made.count(old) >= 1
    return made.replace(old, new, 1)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (WRITTEN + b"\0", "stands behind the last"),
        (b"PK\3\4" + WRITTEN, "does not begin"),
        (
            _with(struct.pack("<Q", 2), struct.pack("<Q", 2**63)),
            "9,223,372,036,854,775,808 entries",
        ),
        (_with(b"\1\0\0\0\0\0\0\0b", b"\1\0\0\0\0\0\0\0a"), "two tensors have one name"),
        (_with(struct.pack("<qq", 2, 3), struct.pack("<qq", 2**40, 2**40)), "stated to have 24"),
        (_with(struct.pack("<qq", 2, 3), struct.pack("<qq", -2, -3)), "stated to have 24"),
        (_with(struct.pack("<iBBH", 2, 2, 32, 1), struct.pack("<iBBH", 65, 2, 32, 1)), "65 dim"),
        (_with(struct.pack("<BBH", 2, 32, 1), struct.pack("<BBH", 2, 32, 4)), "not known: 2, 32"),
        (_with(b"\1\0\0\0\0\0\0\0b", b"\1\0\0\0\0\0\0\0\xff"), "no UTF-8"),
    ],
)
def test_what_is_no_such_dictionary(data: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "params").write_bytes(data)
    with pytest.raises(FileFormatError, match=f"params: no dictionary .*{why}"):
        load_param_dict_from_file(tmp_path / "params")


@given(at=st.integers(0, SIZE - 1), byte=st.integers(0, 255))
def test_any_byte_may_be_another(at: int, byte: int) -> None:
    data = bytearray(WRITTEN)
    data[at] = byte
    try:
        found = load_param_dict(data)
    except FileFormatError:
        return
    assert len(found) == len(TENSORS)

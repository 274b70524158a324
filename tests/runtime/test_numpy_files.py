"""Numpy's files against numpy itself; what is hostile is one clear error and takes no memory."""

from __future__ import annotations

import io
import random
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relax2xla.errors import FileFormatError
from relax2xla.runtime.numpy_files import check_shape, read_npy, read_npz
from relax2xla.runtime.weights import load_weights

DATA = np.arange(12, dtype=np.float32)


def npy(
    shape: str = "(3, 4)", descr: str = "'<f4'", order: str = "False", version: int = 1
) -> bytes:
    """A file that says this in its header."""
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + DATA.tobytes()


def read(raw: bytes) -> Any:
    return read_npy(io.BytesIO(raw), len(raw), "file")


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "array",
    [
        DATA.reshape(3, 4),
        np.asfortranarray(DATA.reshape(3, 4)),
        DATA[:0].reshape(0, 5),
        np.array(2.5),
        DATA.astype(">i2"),
        np.array([True, False]),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        DATA.astype(np.complex128),
        DATA.view("V4"),
        np.ones((1,) * 64, np.int8),
    ],
    ids=lambda a: f"{a.dtype}-{a.ndim}",
)
def test_what_numpy_writes(array: Any, version: int) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, (version, 0))
    made = read(file.getvalue())
    assert made.dtype == array.dtype
    assert made.flags.f_contiguous == array.flags.f_contiguous
    np.testing.assert_array_equal(made, array)


def test_headers_of_python_2() -> None:
    np.testing.assert_array_equal(read(npy("(3L, 4L)")), DATA.reshape(3, 4))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (npy("(True, 12)"), "not made of sizes"),
        (npy("(-3, -4)"), "not made of sizes"),
        (npy("(3.0, 4)"), "not made of sizes"),
        (npy("[3, 4]"), "no shape"),
        (npy("12"), "no shape"),
        (npy("(0, 9223372036854775807)"), "too large"),
        (npy("(0, 9223372036854775808)"), "too large"),
        (npy("(4611686018427387904, 4)"), "too large"),
        (npy("(4000,)"), "does not fit"),
        (npy(f"({'1, ' * 65})"), "65 dimensions"),
        (npy(f"({'1, ' * 99})"), "99 dimensions"),
        (npy(f"({'(' * 300}{')' * 300},)"), "does not parse"),
        (npy("(" + "9" * 5000 + ",)"), "does not parse"),
        (npy(order="1"), "no shape and order"),
        (npy(descr="'|O'"), "can run code"),
        (npy(descr="'|V0'"), "no bytes"),
        (npy(descr="'|S0'"), "no bytes"),
        (npy(descr="'<f4,<f4'"), "not supported"),
        (npy(descr="'(2,3)<f4'"), "not supported"),
        (npy(descr="('<f4', (2, 3))"), "structures"),
        (npy(descr="[('a', '<f4')]"), "structures"),
        (npy(descr="[('a', '|O')]"), "structures"),
        (npy(descr="'<M8[s]'"), "not supported"),
        (npy(descr="'nonsense'"), "not known"),
        (npy(descr="None"), "structures"),
        (npy(version=9), "version 9.0"),
        (npy()[:-1], "truncated"),
        (npy()[:60], "truncated"),
        (npy()[:7], "magic"),
        (b"", "magic"),
        (npy().replace(b"'shape'", b"'forms'"), "does not say"),
        (npy()[:8] + b"\xff\xff" + npy()[10:], "header has 65535 bytes"),
    ],
)
def test_hostile_headers(raw: bytes, message: str) -> None:
    with pytest.raises(FileFormatError, match=message) as e:
        read(raw)
    assert len(str(e.value)) < 500


def test_changed_headers_are_read_as_numpy_reads_them() -> None:
    """Or refused; whatever happens, in no more memory than the file has."""
    rng = random.Random(0)
    known = 0
    tracemalloc.start()
    for _ in range(1500):
        raw = bytearray(npy(version=rng.choice((1, 1, 2, 3))))
        for _ in range(rng.randint(1, 3)):
            raw[rng.randrange(len(raw) - DATA.nbytes)] = rng.choice(
                b"0123456789<>|=()[]', bfiuOSVTL\0\xff"
            )
        try:
            made = read(bytes(raw))
        except FileFormatError:
            continue
        known += 1
        want = np.load(io.BytesIO(raw), allow_pickle=False)
        assert (made.dtype, made.shape) == (want.dtype, want.shape)
        assert made.tobytes() == want.tobytes()
    assert known > 5
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_numbers_of_dimensions() -> None:
    assert check_shape([0, 2**62], 1) == (0, 2**62)
    with pytest.raises(ValueError, match="too large"):
        check_shape([0, 2**62], 2)


# -- archives
def archive(path: Path, members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members:
            file.writestr(name, data)
    return path


def test_archives(tmp_path: Path) -> None:
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "w.npz", a=DATA, b=DATA.reshape(3, 4).T, zeros=np.zeros((1000, 1000)))
        found = dict(read_npz(tmp_path / "w.npz"))
        want = np.load(tmp_path / "w.npz")
        assert list(found) == list(want)
        for name, array in found.items():
            np.testing.assert_array_equal(array, want[name])
    assert list(load_weights(archive(tmp_path / "n.npz", [("x.txt", b"1"), ("y.npy", npy())]))) == [
        "y"
    ]


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_hostile_archives(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"

    def refused(message: str) -> None:
        with pytest.raises(FileFormatError, match=message):
            load_weights(path)

    archive(path, [("a.npy", npy()), ("a.npy", npy())])
    refused("twice")
    archive(path, [("a.npy", npy())], zipfile.ZIP_LZMA)
    refused("compressed")
    archive(path, [("a.npy", npy("(1000000000000000,)"))], zipfile.ZIP_DEFLATED)
    refused("does not fit")
    raw = archive(path, [("a.npy", npy())]).read_bytes()
    at = raw.rindex(b"PK\1\2")
    for field, message in ((24, "larger than"), (20, "larger than"), (42, "truncated")):
        changed = bytearray(raw)
        changed[at + field : at + field + 4] = b"\xff\xff\xff\x7f"
        path.write_bytes(changed)
        refused(message)
    damaged = bytearray(raw)
    damaged[raw.index(b"NUMPY") + 100] ^= 1  # what the checksum is for
    path.write_bytes(damaged)
    refused("CRC")
    deflated = bytearray(archive(path, [("a.npy", npy())], zipfile.ZIP_DEFLATED).read_bytes())
    deflated[45:60] = b"\xff" * 15
    path.write_bytes(deflated)
    refused("truncated|readable")
    for size in (0, 4, 30, len(raw) - 1):
        path.write_bytes(raw[:size])
        refused("truncated")


def test_more_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "w.npz", a=np.zeros(1 << 20), b=np.zeros(1 << 20))
    monkeypatch.setattr("relax2xla.runtime.numpy_files._memory", lambda: 3 << 22)
    with pytest.raises(FileFormatError, match=r"b\.npy does not fit into memory"):
        load_weights(tmp_path / "w.npz")

"""Files of arrays with damaged headers: .npy, .npz, .safetensors."""

from __future__ import annotations

import io
import json
import random
import warnings
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.fuzz.mutate import some_bytes, some_json
from tests.fuzz.target import Target, Wrong

DTYPES: Final = (
    *("<f4", "<f8", "<f2", ">f4", "<i4", "|i1", "|u1", "<u8", "|b1", "<c8", "|V2", "<V4", "|S3"),
    *("<U2", "|O", "<M8[s]", "<m8", "|S0", "<U0", "|V0", "f4, i4", "(2,2)f4", "<f16", "", "x", "<"),
    *(
        '[("a", "<f4")]',
        '[("a", "<f4", (2,))]',
        '("<f4", (3,))',
        '("<f4", (0,))',
        "[]",
        "None",
        "1",
    ),
)
SIZES: Final = (
    *("0", "1", "2", "3", "4", "-1", "True", "False", "1.0", "2L", "'2'", "None", "1e3", "(2,)"),
    *(str(2**n + d) for n in (31, 32, 61, 62, 63, 64) for d in (-1, 0)),
    "9" * 400,
)
NAMES: Final = ("a.npy", "a.npy", "b.npy", "../c.npy", "/d.npy", "", "e", "é.npy")
ORDERS: Final = ("False", "True", "0", "1", "None", "'x'", "")


def npy(draw: random.Random) -> bytes:
    """An .npy file whose header is seldom right."""
    many = draw.choice((0, 1, 1, 2, 2, 3, 32, 33, 64, 65, 99))
    sizes = [draw.choice(SIZES[:4]) for _ in range(many)]
    if sizes and draw.random() < 0.6:
        sizes[draw.randrange(len(sizes))] = draw.choice(SIZES)
    shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    if draw.random() < 0.1:
        shape = draw.choice(("[2]", "2", "None", "{}", "(2", "((2,),)", "()", "(,)", shape * 50))
    kind = draw.choice(DTYPES)
    quoted = kind if kind[:1] in ("[", "(") or kind in ("None", "1") else repr(kind)
    order = draw.choice(ORDERS) if draw.random() < 0.2 else draw.choice(ORDERS[:2])
    header = f"{{'descr': {quoted}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if draw.random() < 0.1:
        header = draw.choice((header[:-2], "{}", "[]", "", header * 2, "(" * 3000, header + " x"))
    version = draw.choice(((1, 0), (1, 0), (2, 0), (3, 0), (0, 0), (4, 0), (255, 255)))
    text = header.encode("utf-8") + b"\n"
    width = 2 if version[0] == 1 else 4
    length = draw.choice((len(text),) * 12 + (0, len(text) - 1, len(text) + 9, 256**width - 1))
    data = b"\x93NUMPY" + bytes(version) + (length % 256**width).to_bytes(width, "little") + text
    data += draw.randbytes(draw.choice((0, 1, 4, 8, 16, 24, 32, 48, 64, 256)))
    return some_bytes(data, draw) if draw.random() < 0.15 else data


class _Arrays(Target):
    """A file that the readers of weights and of inputs take."""

    seconds = 10.0

    def attempt(self, made: bytes, folder: Path) -> str:
        from relax2xla.runtime.weights import load_weights

        path = folder / f"file{self.suffix}"
        path.write_bytes(made)
        arrays = load_weights(path)
        total = sum(a.nbytes for a in arrays.values())
        if total > 64 * len(made) + 4096:
            raise Wrong(f"{total} bytes of arrays from a file of {len(made)} bytes")
        for name, array in arrays.items():
            if array.dtype.hasobject or array.dtype.fields or array.dtype.subdtype:
                raise Wrong(f"{name} has the dtype {array.dtype}")
            _ = array.tobytes()
        return "read"


class Npy(_Arrays):
    """One array."""

    name, title, suffix = "npy", "numpy's .npy files with damaged headers", ".npy"

    def make(self, draw: random.Random) -> bytes:
        return npy(draw)


class Npz(_Arrays):
    """An archive of arrays."""

    name, title, suffix = "npz", "numpy's .npz files with damaged members", ".npz"

    def make(self, draw: random.Random) -> bytes:
        file = io.BytesIO()
        how = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        with zipfile.ZipFile(file, "w", how) as archive:
            for _ in range(draw.randrange(1, 4)):
                name = draw.choice(
                    ("a.npy", "a.npy", "b.npy", "../c.npy", "/d.npy", "", "e", "é.npy")
                )
                data = npy(draw) if draw.random() < 0.7 else _good(draw)
                if draw.random() < 0.03:
                    data += bytes(10_000_000)  # packed, that is 10 kB
                with warnings.catch_warnings(action="ignore"):  # a name that is there twice
                    archive.writestr(zipfile.ZipInfo(name), data, how)
        data = file.getvalue()
        return some_bytes(data, draw) if draw.random() < 0.4 else data


def _good(draw: random.Random) -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(draw.randrange(20), dtype=draw.choice(("f4", "i8", "b", "c8"))))
    return file.getvalue()


class Safetensors(_Arrays):
    """Tensors by name behind a header in JSON."""

    name, title, suffix = "safetensors", "safetensors files with damaged headers", ".safetensors"

    def make(self, draw: random.Random) -> bytes:
        codes = ("F32", "F16", "BF16", "I64", "U8", "BOOL", "C64", "F8_E4M3", "F64")
        header: dict[str, Any] = {}
        end = 0
        for i in range(draw.randrange(4)):
            code = draw.choice(codes)
            item = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "C64": 8, "F64": 8}.get(code, 1)
            shape = [draw.randrange(4) for _ in range(draw.randrange(4))]
            size = item * int(np.prod(shape, dtype=np.int64))
            header[f"t{i}"] = {"dtype": code, "shape": shape, "data_offsets": [end, end + size]}
            end += size
        if draw.random() < 0.3:
            header["__metadata__"] = {"format": "pt"}
        body = bytes(end)
        if draw.random() < 0.8:
            header = some_json(header, draw)
        try:
            text = json.dumps(header)
        except ValueError:  # a number with too many digits
            text = "{}"
        if draw.random() < 0.1:
            text = draw.choice((text[:-1], text * 2, "[" * 5000, '{"a":' * 5000, "NaN", "\ud800x"))
        raw = text.encode("utf-8", "surrogatepass")
        length = draw.choice((len(raw),) * 12 + (0, 1, len(raw) + 1, 2**63, 2**64 - 1, 10**8))
        data = length.to_bytes(8, "little") + raw + body
        return some_bytes(data, draw) if draw.random() < 0.2 else data

"""The container of saved executables: a zip file that is written whole and read with suspicion.

Members are checked before anything is allocated: names that leave the folder, members twice or on
top of each other, sizes that a compressed member cannot have, encryption, foreign compressions.
Every member has a checksum in the manifest; a byte that changed is a FileFormatError.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from relax2xla.errors import FileFormatError
from relax2xla.runtime.progress import report
from relax2xla.runtime.weights import ALIGNMENT, Writer, map_file
from relax2xla.runtime.whole_file import whole_file

MANIFEST: Final = "manifest.json"
TENSORS: Final = "tensors.safetensors"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
# Deflate makes at most about 1032 bytes of one.
_MAX_RATIO: Final = 1040
_MAX_MEMBERS: Final = 100_000
_LOCAL: Final = struct.Struct("<4s5H3I2H")
# Words of 8 bytes that one checksum of a large member covers.
_CHUNK: Final = 1 << 17
# Bytes between two reports of progress; whole chunks.
_STEP: Final = 64 * 8 * _CHUNK
_DAMAGE: Final = (
    zipfile.BadZipFile,
    EOFError,
    IndexError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    UnicodeError,
    ValueError,
    struct.error,
    zlib.error,
)


def write_archive(
    path: Path,
    manifest: Mapping[str, Any],
    members: Mapping[str, bytes],
    tensors: Callable[[Writer], None],
) -> None:
    """Write a file at ``path`` that appears complete or not at all.

    ``tensors`` writes the large member; it lies uncompressed and aligned, so that it can be mapped.
    The checksums of all go into the manifest. Raises OSError where the disk does not take it.
    """
    with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        summed = _write_tensors(archive, tensors)
        files: dict[str, Any] = {TENSORS: summed}
        for name, data in members.items():
            archive.writestr(_info(name), data, compresslevel=1)
            files[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        text = json.dumps({**manifest, "files": files}, indent=1).encode()
        archive.writestr(_info(MANIFEST), text)
        archive.comment = hashlib.sha256(text).hexdigest().encode()


def _info(name: str, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.compress_type = compression
    made.external_attr = 0o644 << 16
    return made


def _write_tensors(archive: zipfile.ZipFile, tensors: Callable[[Writer], None]) -> dict[str, Any]:
    """The first member: the padding in its header puts its data on a multiple of ``ALIGNMENT``."""
    info = _info(TENSORS, zipfile.ZIP_STORED)
    zip64 = 20  # the field that zipfile adds for sizes beyond 4 GiB
    used = _LOCAL.size + len(TENSORS) + zip64 + 4
    padding = -used % ALIGNMENT
    info.extra = struct.pack("<HH", 0xA2E1, padding) + b"\0" * padding
    with archive.open(info, "w", force_zip64=True) as member:
        watched = _Summing(member)
        tensors(watched)
        return watched.summary()


class _Summing:
    """A file that sums up what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.sums = _Sums()

    def write(self, data: bytes | memoryview, /) -> int:
        """Write, and add to the checksum."""
        self.sums.add(memoryview(data).cast("B"))
        return self.file.write(data)

    def summary(self) -> dict[str, Any]:
        """Size and checksum of all that was written."""
        return {"size": self.sums.size, "sums": self.sums.digest()}


_WEIGHTS: Final = 2 * np.arange(_CHUNK, dtype=np.uint64) + 1


class _Sums:
    """A checksum as fast as memory: for each chunk the sum of its words by odd weights, hashed.

    Any change of one word changes it, and two chunks or words that change places do so but for
    rare coincidences. It finds damage; against someone who writes files on purpose it is no help.
    """

    def __init__(self) -> None:
        self.size = 0
        self._rest = b""
        self._hash = hashlib.sha256()

    def add(self, data: memoryview) -> None:
        """Add bytes."""
        self.size += len(data)
        length = 8 * _CHUNK
        if self._rest:
            missing = min(length - len(self._rest), len(data))
            self._rest += bytes(data[:missing])
            data = data[missing:]
            if len(self._rest) < length:
                return
            self._whole(memoryview(self._rest))
            self._rest = b""
        whole = len(data) // length * length
        if whole:
            self._whole(data[:whole])
        self._rest = bytes(data[whole:])

    def _whole(self, data: memoryview) -> None:
        words = np.frombuffer(data, "<u8").reshape(-1, _CHUNK)
        self._hash.update((words @ _WEIGHTS).astype("<u8").tobytes())

    def digest(self) -> str:
        """The checksum; nothing may be added after it."""
        self._hash.update(self._rest + self.size.to_bytes(8, "little"))
        return self._hash.hexdigest()


class Archive:
    """A file of :func:`write_archive`, checked; ``manifest`` is what was written.

    Raises FileFormatError for what is damaged, hostile or something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._data = map_file(path)
            self._zip = zipfile.ZipFile(path)
        except OSError as e:
            raise FileFormatError(f"{path}: {e.strerror or e}") from None
        except _DAMAGE as e:
            raise self.problem(str(e)) from None
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        """Read the manifest, and compare the members with it."""
        path = self.path
        try:
            self._infos = {i.filename: i for i in self._checked()}
            text = self._read(MANIFEST)
            if self._zip.comment != hashlib.sha256(text).hexdigest().encode():
                raise FileFormatError(f"{path}: the manifest was altered")
            self.manifest: dict[str, Any] = json.loads(text)
            self._files: dict[str, Any] = self.manifest["files"]
            if {*self._files, MANIFEST} != set(self._infos):
                raise FileFormatError(f"{path}: the manifest does not list what the file holds")
        except OSError as e:
            raise FileFormatError(f"{path}: {e.strerror or e}") from None
        except _DAMAGE as e:
            if isinstance(e, FileFormatError):
                raise
            raise self.problem(str(e)) from None

    def _checked(self) -> list[zipfile.ZipInfo]:
        """The members, all of them plausible."""
        infos = self._zip.infolist()
        if len(infos) > _MAX_MEMBERS:
            raise self.problem(f"{len(infos)} members")
        names = {i.filename for i in infos}
        if len(names) != len(infos):
            raise self.problem("a member is there twice")
        end = 0
        for info in sorted(infos, key=lambda i: i.header_offset):
            if not _NAME.fullmatch(info.filename) or ".." in info.filename:
                raise self.problem(f"a member has the name {info.filename!r}")
            if info.flag_bits & 1 or info.compress_type not in (
                zipfile.ZIP_STORED,
                zipfile.ZIP_DEFLATED,
            ):
                raise self.problem(f"{info.filename} is encrypted, or compressed in a foreign way")
            stored = info.compress_type == zipfile.ZIP_STORED
            most = info.compress_size if stored else _MAX_RATIO * info.compress_size
            if info.file_size > most or (stored and info.file_size != info.compress_size):
                raise self.problem(f"{info.filename} cannot have {info.file_size} bytes")
            start = self._start(info)
            if info.header_offset < end or start + info.compress_size > self._zip.start_dir:
                raise self.problem(f"{info.filename} overlaps another member")
            end = start + info.compress_size
        return infos

    def _start(self, info: zipfile.ZipInfo) -> int:
        """Where the data of a member begin."""
        header = self._data[info.header_offset : info.header_offset + _LOCAL.size]
        fields = _LOCAL.unpack(header)
        if fields[0] != b"PK\3\4":
            raise self.problem(f"{info.filename} has no header")
        return info.header_offset + _LOCAL.size + fields[9] + fields[10]

    def _read(self, name: str) -> bytes:
        info = self._infos[name]
        with self._zip.open(info) as file:
            data = file.read(info.file_size + 1)
        if len(data) != info.file_size:
            raise self.problem(f"{name} has {len(data)} bytes, not {info.file_size}")
        return data

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    def read(self, name: str) -> bytes:
        """The bytes of a member."""
        try:
            data = self._read(name)
            if hashlib.sha256(data).hexdigest() != self._files[name]["sha256"]:
                raise self.problem(f"{name} was altered")
        except OSError as e:
            raise FileFormatError(f"{self.path}: {e.strerror or e}") from None
        except _DAMAGE as e:
            if isinstance(e, FileFormatError):
                raise
            raise self.problem(f"{name}: {e}") from None
        return data

    def tensors(self) -> memoryview:
        """The large member as it lies in the file, its checksum compared."""
        info = self._infos.get(TENSORS)
        if info is None or info.compress_type != zipfile.ZIP_STORED:
            raise self.problem(f"there is no {TENSORS} that can be mapped")
        start = self._start(info)
        data = self._data[start : start + info.file_size]
        sums = _Sums()
        for at in range(0, len(data), _STEP):
            sums.add(data[at : at + _STEP])
            report("reading", min(at + _STEP, len(data)), len(data))
        if self._files[TENSORS] != {"size": sums.size, "sums": sums.digest()}:
            raise self.problem(f"{TENSORS} was altered")
        return data

    def problem(self, what: str) -> FileFormatError:
        """An error about this file."""
        return FileFormatError(
            f"{self.path} is no saved executable, or is truncated or altered: {what}"
        )

    def close(self) -> None:
        """Close the file; mapped tensors stay."""
        self._zip.close()

"""A disk that is full at every possible moment: files are whole or not there."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.runtime.weights import load_weights, save_weights
from relax2xla.vm.pjrt import cache
from relax2xla.vm.pjrt.cache import DiskCache
from relax2xla.vm.save.writer import Saved, collect

WEIGHTS = {"w": np.arange(64 * 16, dtype=np.float32).reshape(64, 16)}


class Disk:
    """Takes ``left`` writes; the next one is written by half, and from then on nothing is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = self.count = 0
        disk, fsync, fdopen = self, os.fsync, open

        class Raw(io.FileIO):
            def write(self, data: Any, /) -> int:
                if disk.take():
                    return super().write(data)
                half = len(data) // 2 if disk.left == -1 else 0
                if half:
                    return super().write(memoryview(data)[:half])
                disk.refuse()
                return 0

        def opened(name: Any, mode: str = "r", *args: Any, **kw: Any) -> Any:
            if not set(mode) & set("wx"):
                return fdopen(name, mode, *args, **kw)
            return io.BufferedWriter(Raw(name, mode.replace("b", "")), 1024)

        def synced(handle: int) -> None:
            if not disk.take():
                disk.refuse()
            fsync(handle)

        monkeypatch.setattr(Path, "open", opened)
        monkeypatch.setattr(cache, "open", opened, raising=False)
        monkeypatch.setattr(os, "fsync", synced)

    def take(self) -> bool:
        self.count += 1
        self.left -= 1
        return self.left >= 0

    @staticmethod
    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def saved() -> Saved:
    builder = rx.BlockBuilder()
    params = [rx.Var("x", rx.TensorStructInfo((2, 16))), rx.Var("w", rx.TensorStructInfo((64, 16)))]
    with builder.function("main", params):
        y = builder.emit(R.matmul(params[0], builder.emit(R.permute_dims(params[1]))))
        builder.emit_func_output(builder.emit(R.tanh(y)))
    return collect(rx.build(builder.get(), params=WEIGHTS))


@pytest.mark.parametrize("kind", ["executable", "weights"])
def test_what_was_there_stays_until_all_is_written(kind: str, tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / ("m.r2x" if kind == "executable" else "m.safetensors")
    disk.left = 1 << 30
    made = saved() if kind == "executable" else None
    disk.count = 0

    def write() -> None:
        made.write(path) if made is not None else save_weights(path, WEIGHTS)

    write()
    moments = disk.count
    assert moments >= 3
    for there in (False, True):
        disk.left = 1 << 30
        path.write_bytes(b"before") if there else path.unlink()
        for n in range(moments):
            disk.left = n
            with pytest.raises(OSError, match=f"No space left on device: '{path}'") as e:
                write()
            assert e.value.errno == errno.ENOSPC
            assert [p.name for p in tmp_path.iterdir()] == [path.name] * there
            assert not there or path.read_bytes() == b"before"
    disk.left = moments
    write()
    whole = list(rx.load_module(path)) if made is not None else list(load_weights(path))
    assert whole == (["main"] if made is not None else ["w"])


def test_the_cache_has_whole_entries_or_none(tmp_path: Path, disk: Disk) -> None:
    store, payload = DiskCache(tmp_path / "cache"), bytes(range(256)) * 20
    disk.left = 1 << 30
    assert store.put("0" * 64, payload)
    moments = disk.count
    store.clear()
    for n in range(moments):
        disk.left = n
        assert not store.put("0" * 64, payload)
        assert store.get("0" * 64) is None
        assert list(store.folder.iterdir()) == []
    disk.left = moments
    assert store.put("0" * 64, payload)
    assert store.get("0" * 64) == payload

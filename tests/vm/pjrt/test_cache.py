"""The disk cache: whole entries or none, whatever happens, and never a failure of the program."""

from __future__ import annotations

import errno
import logging
import os
import random
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.budget import parse_size
from relax2xla.vm.pjrt import cache, compiler, jit, xla
from relax2xla.vm.pjrt.cache import DiskCache

ROOT = Path(__file__).resolve().parents[3]
POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are POSIX's")


def network(dtype: str = "float32", scale: float = 2.0, layers: int = 1) -> rx.IRModule:
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((3, 4), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: rx.Expr = x
            for _ in range(layers):
                y = builder.emit(R.exp(R.multiply(y, rx.const(scale, dtype))))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


def run(dtype: str = "float32", **kw: Any) -> np.ndarray:
    main = rx.VirtualMachine(rx.build(network(dtype, **kw)))["main"]
    return np.asarray(main(np.ones((3, 4), dtype)))


# -- what it is for --------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "float64"], ids=["jit", "pjrt"])
def test_both_roads_compile_once(store: DiskCache, dtype: str) -> None:
    first = run(dtype)
    assert (store.hits, store.writes) == (0, 1)
    np.testing.assert_array_equal(run(dtype), first)
    assert (store.hits, store.writes) == (1, 1)
    np.testing.assert_allclose(first, np.exp(np.full((3, 4), 2, dtype)), rtol=1e-6)


def test_saved_files_have_code_that_the_cache_had_too(store: DiskCache, tmp_path: Path) -> None:
    x = np.ones((3, 4), np.float32)
    for name in ("first.r2x", "again.r2x"):
        executable = rx.build(network(layers=2))
        rx.VirtualMachine(executable)["main"](x)
        executable.export_library(tmp_path / name)
        with zipfile.ZipFile(tmp_path / name) as saved:
            assert "compiled/0.xla" in saved.namelist()
    assert store.writes == 1
    before = cache.use(None)
    try:
        main = rx.VirtualMachine(rx.load_module(tmp_path / "again.r2x"))["main"]
        np.testing.assert_allclose(main(x), np.exp(2 * np.exp(2 * x)), rtol=1e-5)
    finally:
        cache.use(before)


def test_another_program_option_or_machine_is_another_entry(
    store: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    run(scale=3.0)
    monkeypatch.setitem(compiler.COMPILER_OPTIONS, "xla_cpu_enable_fast_min_max", True)
    run()
    monkeypatch.setattr(processor, "machine", lambda: "another machine")
    run()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    run()
    assert (store.hits, store.writes) == (0, 5)


def test_places_in_the_source_do_not_count() -> None:
    text = """func.func public @main(%a: tensor<1xf32>) -> tensor<1xf32> {{
      %0 = stablehlo.{} %a : tensor<1xf32> loc({})
      return %0 : tensor<1xf32>
    }}"""
    here, there = text.format("exponential", '"here"'), text.format("exponential", '"x.py":7:1')
    other = text.format("negate", '"here"')
    made = [compiler.program_bytes(rx.stablehlo.parse(t)) for t in (here, there, other)]
    assert made[0] == made[1] != made[2]


def test_a_second_process_does_not_compile(tmp_path: Path) -> None:
    code = (
        "import numpy as np; from tests.vm.pjrt.test_cache import run\n"
        "from relax2xla.vm.pjrt import cache\n"
        "print(run()[0, 0], cache.current().hits, cache.current().writes)"
    )
    env = {**os.environ, "RELAX2XLA_CACHE": "1", "RELAX2XLA_CACHE_DIR": str(tmp_path)}
    env["PYTHONPATH"] = str(ROOT)
    pair = [subprocess.Popen([sys.executable, "-c", code], env=env, stdout=-1) for _ in range(2)]
    both = [p.communicate(timeout=120)[0].split() for p in pair]
    again = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert {b[0] for b in both} == {again.stdout.split()[0]}
    assert again.stdout.split()[1:] == [b"1", b"0"]
    assert len(DiskCache(tmp_path / "compiled").entries()) == 1


def test_programs_that_call_python_are_not_kept(store: DiskCache) -> None:
    def back(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((2,), np.float32), x)

    text = jax.jit(back).lower(np.ones(2, np.float32)).as_text()
    module = rx.stablehlo.parse(text)
    assert compiler._key(module, None, {}) is None


# -- faults ----------------------------------------------------------------------------------------
def only_file(store: DiskCache) -> Path:
    (entry,) = store.entries()
    return entry.path


def flip(data: bytes) -> bytes:
    rng = random.Random(0)
    changed = bytearray(data)
    for _ in range(3):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize(
    "damage",
    [flip, lambda d: d[: len(d) // 2], lambda d: b"", lambda d: d + b"x", lambda d: b"\0" * 4096],
    ids=["flipped", "truncated", "empty", "longer", "zeros"],
)
def test_damaged_entries_are_compiled_again(
    store: DiskCache, damage: Callable[[bytes], bytes]
) -> None:
    expected = run()
    path = only_file(store)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    np.testing.assert_array_equal(run(), expected)
    assert (store.hits, store.writes) == (0, 2)
    np.testing.assert_array_equal(run(), expected)
    assert store.hits == 1


def test_no_flipped_bit_is_ever_loaded() -> None:
    payload = bytes(range(256)) * 8
    data = cache.pack("key", payload)
    assert cache.unpack("key", data) == payload
    assert cache.unpack("other", data) is None
    for i in range(len(data)):
        assert cache.unpack("key", data[:i]) is None
        assert cache.unpack("key", data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :]) is None


def test_whole_entries_that_xla_cannot_read(store: DiskCache) -> None:
    expected = run()
    (entry,) = store.entries()
    store.put(entry.key, b"no executable at all")
    np.testing.assert_array_equal(run(), expected)
    assert store.get(entry.key) not in (None, b"no executable at all")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_disks_that_cannot_be_written(
    store: DiskCache, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(path: Path, data: bytes) -> None:
        path.write_bytes(data[:100])
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(cache, "_write", fail)
    assert run().shape == (3, 4)
    assert store.writes == 0
    assert list(store.folder.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="limits on files are POSIX's")
def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from tests.vm.pjrt.test_cache import run; from relax2xla.vm.pjrt import cache\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "assert run().shape == (3, 4)\n"
        "assert (cache.current().writes, list(cache.current().folder.iterdir())) == (0, [])"
    )
    env = {**os.environ, "RELAX2XLA_CACHE": "1", "RELAX2XLA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, check=True, timeout=120)


WRITER = """
import importlib.util, sys, pathlib
spec = importlib.util.spec_from_file_location("cache", sys.argv[1])
cache = importlib.util.module_from_spec(spec)
sys.modules["cache"] = cache
spec.loader.exec_module(cache)
store = cache.DiskCache(pathlib.Path(sys.argv[2]))
print("ready", flush=True)
number = 0
while True:
    number += 1
    store.put(f"{number % 5}", bytes([number % 251]) * 400_000 + number.to_bytes(8, "little"))
"""


def test_kill_nine_while_writing(tmp_path: Path) -> None:
    rng = random.Random(1)
    source = str(cache.__file__)
    for _ in range(50):
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", WRITER, source, str(tmp_path / "c")], stdout=-1
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.uniform(0, 0.02))
        child.kill()
        child.communicate()
        store = DiskCache(tmp_path / "c")
        for entry in store.entries():
            payload = store.get(entry.key)
            assert payload is not None
            assert len(payload) == 400_008
            assert set(payload[:400_000]) == {int.from_bytes(payload[-8:], "little") % 251}
    # What was left behind goes with the next clearing.
    DiskCache(tmp_path / "c").clear()
    assert list((tmp_path / "c").iterdir()) == []


def test_many_threads_fill_one_cache(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c", limit=20_000)
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(100):
            key = str(rng.randrange(8))
            found = store.get(key)
            if found is not None and found != key.encode() * 3000:
                wrong.append(key)
            store.put(key, key.encode() * 3000)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


@pytest.mark.parametrize("part", [0.1, 0.4, 0.7, 0.95])
def test_interrupted_compilation(store: DiskCache, part: float) -> None:
    """By an interruption after this part of the calls that a compilation makes."""
    count, last = 0, 0

    def see(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        # Only where Python hands an exception on: callbacks of its own swallow them.
        count += event == "call" and str(ROOT / "relax2xla") in frame.f_code.co_filename
        if last and count > last:
            raise KeyboardInterrupt

    def call(layers: int, value: float) -> np.ndarray:
        nonlocal count
        main = rx.VirtualMachine(rx.build(network(layers=layers)))["main"]
        count = 0
        sys.setprofile(see)
        try:
            return np.asarray(main(np.full((3, 4), value, np.float32)))
        finally:
            sys.setprofile(None)

    call(40, 1)  # what is imported and registered at first use
    call(41, 1)
    last = int(part * count)
    with pytest.raises(KeyboardInterrupt):
        call(42, 1)
    last = 0
    assert call(42, 0).shape == (3, 4)
    assert all(store.get(e.key) is not None for e in store.entries())


# -- folders ---------------------------------------------------------------------------------------
@POSIX
def test_the_folder_is_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = DiskCache(tmp_path / "new" / "cache")
    assert own.put("k", b"v")
    assert own.folder.stat().st_mode & 0o777 == 0o700
    assert (own.folder / "k.xla").stat().st_mode & 0o777 == 0o600
    own.folder.chmod(0o755)
    assert DiskCache(own.folder).get("k") == b"v"
    assert own.folder.stat().st_mode & 0o777 == 0o700
    refused = {"others can write": own.folder, "is a link": tmp_path / "link"}
    refused["File exists"] = tmp_path / "file"
    refused["belongs to another user"] = tmp_path / "theirs"
    (tmp_path / "link").symlink_to(own.folder)
    (tmp_path / "file").write_text("")
    (tmp_path / "theirs").mkdir()
    own.folder.chmod(0o770)
    for reason, folder in refused.items():
        caplog.clear()
        if "another user" in reason:
            monkeypatch.setattr(os, "geteuid", lambda: 1 + folder.stat().st_uid)  # noqa: B023
        with caplog.at_level(logging.WARNING, "relax2xla.vm"):
            found = DiskCache(folder)
            assert not found.put("k", b"v")
            assert found.get("k") is None
        assert len(caplog.records) == 1, reason
        assert reason in caplog.text


@POSIX
def test_the_folder_is_looked_at_at_each_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = DiskCache(tmp_path / "open" / "cache")
    assert store.put("k", b"v")
    with caplog.at_level(logging.WARNING, "relax2xla.vm"):
        store.folder.chmod(0o777)
        assert store.get("k") is None
        assert not store.put("k", b"w")
        store.folder.chmod(0o700)
        assert store.get("k") == b"v"
        # Whoever may write to the folder above can put another one in the place of ours.
        store.folder.parent.chmod(0o777)
        assert store.get("k") is None
        store.folder.parent.chmod(0o1777)  # as /tmp is
        assert store.get("k") == b"v"
    assert len(caplog.records) == 2
    assert "anyone can write to" in caplog.text


@POSIX
def test_links_and_foreign_entries_are_not_read(store: DiskCache, tmp_path: Path) -> None:
    store.put("k", b"v")
    (tmp_path / "elsewhere").write_bytes((store.folder / "k.xla").read_bytes())
    store.forget("k")
    (store.folder / "k.xla").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(store.folder / "p.xla")
    assert store.get("k") is None
    assert store.get("p") is None


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c", limit=3500)
    for i, name in enumerate("abc"):
        store.put(name, random.Random(i).randbytes(1000))
        os.utime(store.folder / f"{name}.xla", (i, i))
    assert store.get("a") is not None
    store.put("d", random.Random(9).randbytes(1000))
    assert {e.key for e in store.entries()} == {"a", "c", "d"}
    assert not store.put("e", random.Random(9).randbytes(5000))
    old = store.folder / ".tmp-1-dead"
    old.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert store.trim(1100) == 2
    assert [e.key for e in store.entries()] == ["d"]
    assert not old.exists()


def test_the_folder_is_not_looked_at_for_every_entry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else a thousand programs would cost a million looks; the limit holds all the same."""
    store = DiskCache(tmp_path / "c", limit=64_000)
    looks = 0
    look = store.entries

    def counted() -> list[cache.CacheEntry]:
        nonlocal looks
        looks += 1
        return look()

    monkeypatch.setattr(store, "entries", counted)
    for i in range(300):
        assert store.put(str(i), random.Random(i).randbytes(400))
    assert sum(e.size for e in look()) <= 65_000
    assert len(look()) > 100
    assert looks < 120


def test_settings_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RELAX2XLA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("RELAX2XLA_CACHE_LIMIT", "3M")
    for word in ("0", "off", "False"):
        monkeypatch.setenv("RELAX2XLA_CACHE", word)
        assert cache.from_environment() is None
    monkeypatch.delenv("RELAX2XLA_CACHE")
    found = cache.from_environment()
    assert found is not None
    assert (found.folder, found.limit) == (tmp_path / "compiled", 3 << 20)
    monkeypatch.setenv("RELAX2XLA_CACHE_LIMIT", "much")
    assert cache.from_environment() is None
    assert "'much' is no size" in caplog.text
    monkeypatch.delenv("RELAX2XLA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.default_folder().is_absolute()


@pytest.mark.parametrize(
    ("text", "size"), [("10", 10), ("2k", 2048), ("1 MiB", 1 << 20), ("3GB", 3 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


# -- dispatch --------------------------------------------------------------------------------------
@pytest.mark.parametrize("fits", [True, False])
def test_dispatch_of_jaxlib_and_without_it(fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_dispatch_fits", lambda: fits)
    np.testing.assert_allclose(run(), np.exp(np.full((3, 4), 2, np.float32)), rtol=1e-6)


def test_dispatch_is_tried_out_where_jaxlib_is_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    probe: Any = jit._dispatch_fits.__wrapped__
    monkeypatch.setattr(jit, "KNOWN_DISPATCH", "none")
    assert probe()
    monkeypatch.setattr(jit, "_FastPath", lambda *a: None)
    assert not probe()
    monkeypatch.setattr(xla, "extension", None)
    assert not probe()

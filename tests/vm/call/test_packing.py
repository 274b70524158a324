"""Small weights go together as few arguments, and nobody can tell but by the time of a call."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import tir
from relax2xla.errors import CallError, FileFormatError
from relax2xla.vm.call import executable, packing
from relax2xla.vm.call.packing import packs_of
from relax2xla.vm.pjrt import xla
from relax2xla.vm.pjrt.cache import DiskCache
from relax2xla.vm.save import archive
from relax2xla.vm.save.reader import SavedExecutable
from tests.processes import run_python

T = rx.TensorStructInfo
Weights = dict[str, np.ndarray[Any, Any]]
LAYERS, WIDTH = 6, 16


def values(rng: np.random.Generator) -> Weights:
    """Weights of a network of some layers: a matrix and three vectors each."""
    made: Weights = {}
    for k in range(LAYERS):
        made[f"w{k}"] = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 4
        for n in "gbc":
            made[f"{n}{k}"] = rng.standard_normal(WIDTH).astype(np.float32)
    return made


def network(rows: Any = 2, functions: Sequence[str] = ("main",)) -> rx.IRModule:
    builder = rx.BlockBuilder()
    for function in functions:
        x = rx.Var("x", T((rows, WIDTH), "float32"))
        infos = {n: T(v.shape, "float32") for n, v in values(np.random.default_rng(0)).items()}
        w = {n: rx.Var(n, i) for n, i in infos.items()}
        with builder.function(function, [x, *w.values()]):
            with builder.dataflow():
                y: Any = x
                for k in range(LAYERS):
                    y = builder.emit(R.matmul(y, w[f"w{k}"]))
                    y = builder.emit(R.add(R.multiply(y, w[f"g{k}"]), w[f"b{k}"]))
                    y = builder.emit(R.add(R.tanh(y), w[f"c{k}"]))
                out = builder.emit_output(y)
            builder.emit_func_output(out)
    return builder.get()


def expected(x: np.ndarray[Any, Any], w: Weights) -> np.ndarray[Any, Any]:
    for k in range(LAYERS):
        x = np.tanh(x @ w[f"w{k}"] * w[f"g{k}"] + w[f"b{k}"]) + w[f"c{k}"]
    return x


def arguments(vm: rx.VirtualMachine, name: str = "main") -> int:
    """How many arguments XLA's program takes."""
    (loaded,) = vm.programs()[name]
    return len(loaded.executable.get_parameter_layouts())


def check(vm: rx.VirtualMachine, x: np.ndarray[Any, Any], w: Weights, name: str = "main") -> None:
    for given in (x, jax.device_put(x)):
        np.testing.assert_allclose(vm[name](given), expected(x, w), rtol=1e-4, atol=1e-5)


X = np.linspace(-1, 1, 2 * WIDTH, dtype=np.float32).reshape(2, WIDTH)


# -- what is packed --------------------------------------------------------------------------------
def vector(size: int = 768, dtype: str = "float32") -> rx.TensorStructInfo:
    return T((size,), dtype)


MATRIX = T((64, 64), "float32")
LAYER = [MATRIX, vector(), MATRIX, vector(), vector(), T((1, 5), "float32"), T((), "float32")]


def test_packs_follow_the_repetition_of_layers() -> None:
    """Each layer's vectors have the same places in a pack of their own."""
    before, after = [T((9, 9), "float32"), vector(), vector(3)], [vector(7), T((2, 2), "float32")]
    found = packs_of([*before, *LAYER * 12, *after])
    *layers, rest = found
    places = [tuple(i - pack[0] for i in pack) for pack in layers]
    assert len(layers) == 12
    assert set(places) == {places[0]}
    assert sorted(i for pack in found for i in pack) == sorted(
        i for i, w in enumerate([*before, *LAYER * 12, *after]) if w.ndim < 2 or w.dims == (1, 5)
    )
    assert len(rest) == 3


def test_what_stays_alone() -> None:
    small = [vector() for _ in range(20)]
    assert sum(map(len, packs_of(small))) == 20
    assert packs_of(small[:8]) == ()
    # Beside large matrices, what an argument costs is nothing.
    assert packs_of([*small, T((1024, 1024), "float32")]) == ()
    alone = [
        vector(0),
        vector(5000),
        vector(8, "int4"),
        MATRIX,
        T((tir.Var("n"),), "float32"),
        T(None, "float32"),
    ]
    assert not {i for pack in packs_of([*alone, *small]) for i in pack} & set(range(len(alone)))
    mixed = [vector(8, "float32" if i % 2 else "int64") for i in range(20)]
    for pack in packs_of(mixed):
        assert len({mixed[i].dtype for i in pack}) == 1
    assert sum(map(len, packs_of(mixed))) == 20


DTYPES = [
    *("bool", "int4", "int8", "uint16", "int32", "uint64", "float8_e4m3fn"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape_comes_back_bit_by_bit(dtype: str, rng: np.random.Generator) -> None:
    kind = rx.dtypes.numpy_dtype(dtype)
    shapes = [(5,), (1, 3, 1), (), (1,), (0,), (67,), (1, 1), (2, 3), (4, 0)] * 4
    given = {
        f"v{i}": (rng.standard_normal(shape) * 3).astype(kind) for i, shape in enumerate(shapes)
    }
    x = rx.Var("x", T((1,), "float32"))
    params = [rx.Var(n, T(v.shape, dtype)) for n, v in given.items()]
    builder = rx.BlockBuilder()
    with builder.function("main", [x, *params]):
        with builder.dataflow():
            out = builder.emit_output(rx.Tuple([x, *params]))
        builder.emit_func_output(out)
    vm = rx.VirtualMachine(rx.build(builder.get(), params=given))
    _, *results = vm["main"](np.ones(1, np.float32))
    for found, wanted in zip(results, given.values(), strict=True):
        assert (found.dtype, found.shape) == (kind, wanted.shape)
        np.testing.assert_array_equal(np.asarray(found), wanted)
    whole = {n for n, v in given.items() if v.size and sum(d != 1 for d in v.shape) <= 1}
    packed = dtype != "int4"
    assert (arguments(vm) <= 1 + len(given) - len(whole) + 2) == packed


# -- calls -----------------------------------------------------------------------------------------
def test_results_are_those_of_weights_alone(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = values(rng)
    together = rx.VirtualMachine(rx.build(network(), params=w))
    check(together, X, w)
    assert arguments(together) < 1 + LAYERS + LAYERS
    monkeypatch.setattr(executable, "packs_of", lambda infos: ())
    alone = rx.VirtualMachine(rx.build(network(), params=w))
    np.testing.assert_array_equal(together["main"](X), alone["main"](X))
    assert arguments(alone) == 1 + 4 * LAYERS
    assert len(together["main"].weights()) == len(alone["main"].weights()) == 4 * LAYERS


def test_what_is_left_may_take_the_road_of_few_arguments(rng: np.random.Generator) -> None:
    given = [rng.standard_normal(8).astype(np.float32) for _ in range(12)]
    builder = rx.BlockBuilder()
    x = rx.Var("x", T((8,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: Any = x
            for w in given:
                y = builder.emit(R.add(y, _named(w)))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    vm = rx.VirtualMachine(rx.build(builder.get()))
    ones = np.ones(8, np.float32)
    wanted = ones + sum(given)
    for call in (vm["main"], jax.jit(vm["main"])):
        for given_x in (ones, jax.device_put(ones), jax.device_put(ones)):
            np.testing.assert_allclose(call(given_x), wanted, rtol=1e-5)
    assert vm["main"]._road.fast is not None
    assert arguments(vm) <= 1 + 3


def _named(w: np.ndarray[Any, Any]) -> rx.Constant:
    return rx.Constant(w, T(w.shape, "float32"), rx.Span(name=f"w{id(w)}"))


def test_symbolic_shapes_and_jax(rng: np.random.Generator) -> None:
    w = values(rng)
    vm = rx.VirtualMachine(rx.build(network(tir.Var("n")), params=w))
    for n in (1, 3):
        check(vm, np.ones((n, WIDTH), np.float32), w)
    counts = [len(p.executable.get_parameter_layouts()) for p in vm.programs()["main"]]
    assert len(counts) == 2
    assert max(counts) < 1 + 2 * LAYERS
    np.testing.assert_allclose(jax.jit(vm["main"])(X), expected(X, w), rtol=1e-4, atol=1e-5)


def test_regions_of_bytecode(rng: np.random.Generator) -> None:
    given = [rng.standard_normal(4).astype(np.float32) for _ in range(12)]
    builder = rx.BlockBuilder()
    x = rx.Var("x", T((4,), "float32"))
    with builder.function("main", [x]):
        y: Any = x
        for w in given:
            y = builder.emit(R.add(y, _named(w)))
        builder.emit_func_output(builder.emit(R.nonzero(R.nn.relu(y))))
    vm = rx.VirtualMachine(rx.build(builder.get()))
    value = np.array([100, -100, 100, -100], np.float32)
    np.testing.assert_array_equal(vm["main"](value), [[0, 2]])
    (region,) = vm.programs()
    assert arguments(vm, region) < 5


# -- weights and memory ----------------------------------------------------------------------------
def test_set_params(rng: np.random.Generator, store: DiskCache) -> None:
    first, second = values(rng), values(rng)
    built = rx.build(network(), params=first)
    vm, other = rx.VirtualMachine(built), rx.VirtualMachine(built)
    check(vm, X, first)
    main, writes = vm["main"], store.writes
    vm.set_params({"b3": second["b3"]})
    check(vm, X, {**first, "b3": second["b3"]})
    vm.set_params(second)
    check(vm, X, second)
    assert vm["main"] is main
    check(other, X, first)
    assert store.writes == writes
    with pytest.raises(CallError, match="weight b3 is"):
        vm.set_params({"b3": np.ones(3, np.float32)})
    check(vm, X, second)


def test_machines_and_functions_share_packs(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = values(rng)
    names = ("prefill", "decode")
    given = {n: list(w.values()) for n in names}
    built = rx.build(network(functions=names), params=given)
    put: list[int] = []
    real = xla.device_put

    def counted(array: np.ndarray[Any, Any], *args: Any, **kw: Any) -> Any:
        put.append(array.nbytes)
        return real(array, *args, **kw)

    monkeypatch.setattr(xla, "device_put", counted)
    machines = [rx.VirtualMachine(built) for _ in range(2)]
    for vm in machines:
        for name in names:
            vm[name].warm()
    # Each weight once, and the packs once more.
    vectors = sum(v.nbytes for v in w.values() if v.ndim == 1)
    assert sum(put) == sum(v.nbytes for v in w.values()) + vectors
    for vm in machines:
        for name in names:
            check(vm, X, w, name)


def test_state_and_donation(rng: np.random.Generator) -> None:
    given = [rng.standard_normal(64).astype(np.float32) for _ in range(12)]
    builder = rx.BlockBuilder()
    x, s = rx.Var("x", T((64,), "float32")), rx.Var("s", T((64,), "float32"))
    with builder.function("main", [x, s]):
        with builder.dataflow():
            y: Any = builder.emit(R.add(x, s))
            for w in given:
                y = builder.emit(R.add(y, _named(w)))
            out = builder.emit_output(rx.Tuple([R.multiply(y, y), y]))
        builder.emit_func_output(out)
    vm = rx.VirtualMachine(rx.build(builder.get(), donate=["s"]))
    ones = np.ones(64, np.float32)
    step = vm.bind_state("main", {"s": np.zeros(64, np.float32)})
    total = np.zeros(64, np.float32)
    for _ in range(3):
        total = ones + total + sum(given)
        np.testing.assert_allclose(step(ones), total * total, rtol=1e-4)
    np.testing.assert_allclose(step.state["s"], total, rtol=1e-4)
    old = jax.device_put(ones)
    _, new = vm["main"](ones, old)
    np.testing.assert_allclose(new, 2 * ones + sum(given), rtol=1e-4)
    assert old.is_deleted()
    for found in vm.programs().values():
        assert [p.memory().alias_size_in_bytes for p in found] == [256]


def test_weights_that_stay_inputs_are_no_packs() -> None:
    import torch

    from relax2xla.frontend.torch import from_exported_program

    network_ = torch.nn.Sequential(*(torch.nn.LayerNorm(8) for _ in range(10))).eval()
    exported = torch.export.export(network_, (torch.ones(2, 8),))
    mod = from_exported_program(exported, keep_params_as_input=True)
    vm = rx.VirtualMachine(rx.build(mod))
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    (found,) = vm["main"](x, *mod["main"].attrs["params"])
    np.testing.assert_allclose(found, network_(x).detach(), rtol=1e-4, atol=1e-5)
    assert arguments(vm) == 21
    vm = rx.VirtualMachine(rx.build(from_exported_program(exported)))
    np.testing.assert_allclose(vm["main"](x)[0], network_(x).detach(), rtol=1e-4, atol=1e-5)
    assert arguments(vm) < 10


PROGRAM = """
import jax, numpy as np, relax2xla as rx
from tests.vm.call.test_packing import X, arguments, expected, network, values
w = values(np.random.default_rng(0))
built = rx.build(network(), params=w)
for index in (0, 1):
    vm = rx.VirtualMachine(built, rx.cpu(index))
    (result,) = [vm["main"](X)]
    np.testing.assert_allclose(result, expected(X, w), rtol=1e-4, atol=1e-5)
    assert result.devices() == {jax.devices()[index]}
    assert arguments(vm) < 13
print("done")
"""


def test_several_devices() -> None:
    assert run_python(PROGRAM, devices=2) == "done\n"


# -- files -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["computed", "raw"])
@pytest.mark.parametrize("compiled", [True, False])
def test_saved(
    tmp_path: Path, rng: np.random.Generator, form: str, compiled: bool, store: DiskCache
) -> None:
    w, other = values(rng), values(rng)
    path = tmp_path / "m.r2x"
    rx.build(network(), params=w).export_library(path, compiled=compiled, weights=form)
    loaded = rx.load_module(path)
    vm, writes = rx.VirtualMachine(loaded), store.writes
    check(vm, X, w)
    assert arguments(vm) < 1 + 2 * LAYERS
    if compiled:
        assert store.writes == writes
    vm.set_params(other)
    check(vm, X, other)
    # Matrices are the file's own pages.
    assert isinstance(loaded, SavedExecutable)
    own = {a.ctypes.data for a in loaded.tensors.values()}
    placed = rx.VirtualMachine(loaded)["main"].weights()
    matrices = [a for a in placed if a.ndim == 2]
    assert len(matrices) == LAYERS
    assert all(a.unsafe_buffer_pointer() in own for a in matrices)


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest of a file, and its checksum."""
    with zipfile.ZipFile(path) as old:
        members = {n: old.read(n) for n in old.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for name, data in members.items():
            new.writestr(name, data)
        new.comment = archive.hashlib.sha256(members["manifest.json"]).hexdigest().encode()


def test_a_file_from_before_there_were_packs(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, path = values(rng), tmp_path / "m.r2x"
    with monkeypatch.context() as patch:
        patch.setattr(executable, "packs_of", lambda infos: ())
        rx.build(network(), params=w).export_library(path)
    rewritten(path, lambda m: m["functions"][0].pop("packs"))
    vm = rx.VirtualMachine(rx.load_module(path))
    check(vm, X, w)
    assert arguments(vm) == 1 + 4 * LAYERS


@pytest.mark.parametrize(
    "packs",
    [[[1, 1]], [[1, 99]], [[1, -1]], [[1, "2"]], [[1, True]], [[0, 1]], [[]], [[1], [1]], 7],
)
def test_packs_that_do_not_fit_are_refused(
    tmp_path: Path, rng: np.random.Generator, packs: Any
) -> None:
    path = tmp_path / "m.r2x"
    rx.build(network(), params=values(rng)).export_library(path, compiled=False)
    rewritten(path, lambda m: m["functions"][0].update(packs=packs))
    with pytest.raises(FileFormatError):
        rx.load_module(path)


def test_contents_of_a_pack_are_aligned() -> None:
    made = packing.packed([np.full(3, 1, np.float32), np.full(17, 2, np.float32)])
    assert made.nbytes % packing.ALIGNMENT == 0
    np.testing.assert_array_equal(made[[0, 2, 3, 16, 32, 33]], [1, 1, 0, 2, 2, 0])

"""External modules: C++ that the machine's compiler compiles, called on the arrays' memory."""

from __future__ import annotations

import importlib.util
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import errors
from relax2xla.frontend import nn
from relax2xla.frontend.nn import spec
from relax2xla.runtime.compiler import find_compiler, has_compiler
from relax2xla.runtime.native import NativeModule
from relax2xla.transform import AttachExternModules
from relax2xla.vm.save.writer import collect

SOURCE = r"""
#include <dlpack/dlpack.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/packed_func.h>

#include <string>

namespace {
using tvm::runtime::DataType;

int64_t size_of(const DLTensor* x) {
  int64_t n = 1;
  for (int i = 0; i < x->ndim; ++i) n *= x->shape[i];
  return n;
}
float* floats(const DLTensor* x) { return static_cast<float*>(x->data); }

// c[i, j] = a[i] * b[j]
int outer(DLTensor* a, DLTensor* b, DLTensor* c) {
  ICHECK(DataType(a->dtype) == DataType::Float(32)) << "float32 is expected";
  TVM_FFI_ICHECK_EQ(c->ndim, 2);
  ICHECK(c->strides == nullptr && c->device.device_type == kDLCPU && c->byte_offset == 0);
  ICHECK_EQ(reinterpret_cast<uintptr_t>(c->data) % 64, 0U) << "alignment";
  for (int64_t i = 0; i < a->shape[0]; ++i)
    for (int64_t j = 0; j < b->shape[0]; ++j)
      floats(c)[i * b->shape[0] + j] = floats(a)[i] * floats(b)[j];
  return 0;
}
void affine(DLTensor* x, float scale, int shift, bool negate, std::string name, DLTensor* out) {
  if (name != "affine") throw std::runtime_error("the name is " + name);
  for (int64_t i = 0; i < size_of(x); ++i)
    floats(out)[i] = (negate ? -1 : 1) * (floats(x)[i] * scale + shift);
}
void split_sign(const DLTensor* x, DLTensor* low, DLTensor* high) {
  for (int64_t i = 0; i < size_of(x); ++i) {
    floats(low)[i] = floats(x)[i] < 0 ? floats(x)[i] : 0;
    floats(high)[i] = floats(x)[i] < 0 ? 0 : floats(x)[i];
  }
}
// The dtype as code, bits, lanes and whether DataType knows it.
void dtype_of(DLTensor* x, DLTensor* out) {
  DataType t(x->dtype);
  int32_t* made = static_cast<int32_t*>(out->data);
  made[0] = t.code();
  made[1] = t.bits();
  made[2] = t.lanes();
  made[3] = t == DataType::Bool() || t == DataType::BFloat(16) || t == DataType::Int(8);
}
void address_of(DLTensor* x, DLTensor* out) {
  *static_cast<int64_t*>(out->data) = reinterpret_cast<int64_t>(x->data);
}
int failing(DLTensor* x, DLTensor* out) { return 3; }
}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(ext_outer, outer);
TVM_DLL_EXPORT_TYPED_FUNC(ext_affine, affine);
TVM_DLL_EXPORT_TYPED_FUNC(ext_split, split_sign);
TVM_DLL_EXPORT_TYPED_FUNC(ext_dtype, dtype_of);
TVM_DLL_EXPORT_TYPED_FUNC(ext_address, address_of);
TVM_DLL_EXPORT_TYPED_FUNC(ext_failing, failing);

extern "C" int plain_add(DLTensor* a, DLTensor* b, DLTensor* c) {
  if (a->shape[0] != b->shape[0]) return 5;
  for (int64_t i = 0; i < a->shape[0]; ++i) floats(c)[i] = floats(a)[i] + floats(b)[i];
  return 0;
}
extern "C" int plain_scale(DLTensor* a, int64_t n, double f, const char* text, DLTensor* c) {
  for (int64_t i = 0; i < a->shape[0]; ++i) floats(c)[i] = floats(a)[i] * n * f + (text[0] - 'a');
  return 0;
}
"""


def like(x: nn.Tensor, *rest: Any) -> nn.Tensor:
    return nn.Tensor.placeholder(x.shape, x.dtype)


def four(x: nn.Tensor) -> nn.Tensor:
    return nn.Tensor.placeholder((4,), "int32")


SYMBOLS: dict[str, Callable[..., Any]] = {
    "ext_outer": lambda a, b: nn.Tensor.placeholder((a.shape[0], b.shape[0]), a.dtype),
    "ext_affine": like,
    "ext_split": lambda x: (like(x), like(x)),
    "ext_dtype": four,
    "ext_address": lambda x: nn.Tensor.placeholder((), "int64"),
    "ext_failing": like,
    "plain_add": like,
    "plain_scale": like,
}
X = np.array([1, -2, 3], np.float32)
Y = np.array([4, 5], np.float32)


@pytest.fixture(scope="session")
def source() -> nn.SourceModule:
    """The sources above, compiled once."""
    if not has_compiler():
        pytest.skip("there is no C++ compiler")
    module = nn.SourceModule(SYMBOLS, SOURCE, "cpp")
    module.load()
    return module


class Calls(nn.Module):
    """Calls one external function."""

    def __init__(self, module: nn.ExternModule, function: Callable[..., Any]) -> None:
        self.module, self.function = module, function

    def forward(self, x: nn.Tensor, y: nn.Tensor) -> Any:
        nn.add_extern(self.module)
        return self.function(self.module, x, y)


def exported(model: nn.Module, dtype: str = "float32") -> tuple[Any, list[nn.ExternModule]]:
    methods = {
        "forward": {"x": spec.Tensor(["n"], dtype), "y": spec.Tensor(["m"], dtype)},
    }
    mod, _, externs = model.export_tvm(methods, allow_extern=True)
    return mod, externs


def test_a_model_with_external_functions(source: nn.SourceModule) -> None:
    def forward(ext: Any, x: nn.Tensor, y: nn.Tensor) -> Any:
        low, high = ext["ext_split"](ext["plain_add"](x, x) + 1.0)
        made = ext["ext_affine"](high, 0.5, 2, True, "affine")
        return ext["ext_outer"](ext["plain_scale"](made, 3, 0.25, "b"), y) * 2.0, low

    model = Calls(source, forward)
    twice = 2 * X + 1
    low, high = np.minimum(twice, 0), np.maximum(twice, 0)
    want = np.outer(-(high * 0.5 + 2) * 0.75 + 1, Y) * 2
    mod, externs = exported(model)
    assert externs == [source]
    assert "external_mods: NativeModule" in AttachExternModules(externs)(mod).script()
    for found in (
        rx.VirtualMachine(rx.compile(AttachExternModules(externs)(mod), "llvm"))["forward"](X, Y),
        # Attached at a later stage, after other passes.
        rx.VirtualMachine(
            rx.build(AttachExternModules(externs)(rx.transform.CanonicalizeBindings()(mod)))
        )["forward"](X, Y),
        model(X, Y),
    ):
        np.testing.assert_allclose(found[0], want, rtol=1e-6)
        np.testing.assert_allclose(found[1], low, rtol=1e-6)
    compiled = model.jit(
        {"forward": {"x": spec.Tensor([3], "float32"), "y": spec.Tensor([2], "float32")}},
        out_format="numpy",
    )
    np.testing.assert_allclose(compiled["forward"](X, Y)[0], want, rtol=1e-6)


def on_host(mod: rx.IRModule) -> rx.VMExecutable:
    with rx.transform.PassContext(config={"relax2xla.external_on_host": True}):
        return rx.build(mod)


def mixed(ext: Any, x: nn.Tensor, y: nn.Tensor) -> Any:
    """Numbers, strings, several results, and arguments that XLA would rather keep transposed."""
    outer = nn.op.permute_dims(ext["ext_outer"](x, y) + 1.0, [1, 0])
    low, high = ext["ext_split"](ext["ext_affine"](outer * 2.0, 0.1, -3, True, "affine"))
    return nn.op.matmul(low, nn.op.permute_dims(high, [1, 0]))


def want_mixed(x: Any, y: Any) -> Any:
    made = -((np.outer(x, y) + 1).T * 2 * 0.1 - 3)
    return np.minimum(made, 0) @ np.maximum(made, 0).T


def test_a_function_with_external_calls_is_one_xla_program(source: nn.SourceModule) -> None:
    mod, externs = exported(Calls(source, mixed))
    attached = AttachExternModules(externs)(mod)
    inside = rx.build(attached, exec_mode="whole")
    assert "on the host" not in str(inside.stats())
    outside = on_host(attached)
    assert str(outside.stats()).count("on the host: relax.call_dps_packed") == 3
    rng = np.random.default_rng(0)
    for n, m in ((3, 2), (1, 5), (64, 33)):
        x, y = (rng.normal(size=k).astype(np.float32) for k in (n, m))
        for executable in (inside, outside):
            got = rx.VirtualMachine(executable)["forward"](x, y)
            np.testing.assert_allclose(got, want_mixed(x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("place", [rx.build, on_host])
def test_dtypes_of_programs(source: nn.SourceModule, place: Callable[..., Any]) -> None:
    model = Calls(source, lambda ext, x, y: (ext["ext_dtype"](x), ext["ext_dtype"](y <= y)))
    for dtype, want in (("bfloat16", [4, 16, 1, 1]), ("int8", [0, 8, 1, 1]), ("float64", [2, 64])):
        mod, externs = exported(model, dtype)
        vm = rx.VirtualMachine(place(AttachExternModules(externs)(mod)))
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        got, truth = vm["forward"](np.ones(2, kind), np.ones(3, kind))
        assert np.asarray(got).tolist()[: len(want)] == want
        assert np.asarray(truth).tolist() == [6, 8, 1, 1]


def test_programs_of_several_threads(source: nn.SourceModule) -> None:
    mod, externs = exported(Calls(source, mixed))
    forward = rx.VirtualMachine(rx.build(AttachExternModules(externs)(mod)))["forward"]
    rows = [np.full(7, i, np.float32) for i in range(32)]
    with ThreadPoolExecutor(4) as pool:
        for x, got in zip(rows, pool.map(lambda x: forward(x, Y), rows), strict=True):
            np.testing.assert_allclose(got, want_mixed(x, Y), rtol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "code", "bits", "known"),
    [("int8", 0, 8, 1), ("bool", 6, 8, 1), ("bfloat16", 4, 16, 1), ("float64", 2, 64, 0),
     ("uint32", 1, 32, 0), ("complex64", 5, 64, 0)],
)  # fmt: skip
def test_dtypes(source: nn.SourceModule, dtype: str, code: int, bits: int, known: int) -> None:
    function = source.load().get_function("ext_dtype")
    assert function is not None
    out = np.zeros(4, np.int32)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    function(np.ones((2, 3), kind), out)
    assert out.tolist() == [code, bits, 1, known]


def test_arrays_are_given_by_their_memory(source: nn.SourceModule) -> None:
    function = source.load().get_function("ext_address")
    assert function is not None
    out = np.zeros((), np.int64)
    function(X, out)
    assert out == X.ctypes.data
    array = rx.nd.array(X)
    function(array, out)
    assert out == array.unsafe_buffer_pointer()


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("ext_outer", (Y, Y), "ext_outer: it takes 3 arguments, results included; got 2"),
        ("ext_outer", (X, 1, X), "argument 1 is an integer; the function takes a tensor"),
        ("ext_outer", (X, X, X), r"Check failed: c->ndim == 2 \(1 vs. 2\)"),
        ("ext_outer", (X.astype("float64"), X, X), r"is false: float32 is expected"),
        ("ext_affine", (X, 1.0, 2.0, True, "affine", X), "argument 2 is a float; .* an integer"),
        ("ext_affine", (X, 1.0, 2**40, True, "affine", X), "type of 32 bits does not hold"),
        ("ext_affine", (X, 1.0, 2**70, True, "affine", X), "argument 2 does not fit 64 bits"),
        ("ext_affine", (X, 1.0, 2, True, "x", X), "ext_affine: the name is x"),
        ("ext_failing", (X, X), "ext_failing: it gave the status 3, where 0 means success"),
        ("plain_add", (X, Y, X), "plain_add gave the status 5; .* 0 for success"),
        ("plain_add", (X, (X, X), X), "argument 1 is tuple; .* the items one by one"),
        ("plain_add", (X, X, np.ones(6, np.float32)[::2]), "argument 2 is an array with strides"),
        ("ext_dtype", (np.ones(2, ml_dtypes.int4), X), "argument 0 is of int4"),
    ],
)
def test_calls_that_fail(
    source: nn.SourceModule, name: str, args: tuple[Any, ...], message: str
) -> None:
    function = source.load().get_function(name)
    assert function is not None
    with pytest.raises(errors.TVMError, match=message):
        function(*args)


@pytest.mark.parametrize("place", [rx.build, on_host])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda ext, x, y: ext["plain_add"](x, y), "plain_add gave the status 5"),
        (lambda ext, x, y: ext["ext_failing"](x), "ext_failing: it gave the status 3"),
        (lambda ext, x, y: ext["ext_affine"](x, 1.0, 2, True, "ä b"), "the name is ä b"),
        (lambda ext, x, y: ext["ext_affine"](x, 1.0, 2**40, True, "x"), "of 32 bits"),
    ],
)
def test_an_error_of_a_program(
    source: nn.SourceModule,
    function: Callable[..., Any],
    message: str,
    place: Callable[..., Any],
) -> None:
    mod, externs = exported(Calls(source, function))
    vm = rx.VirtualMachine(place(AttachExternModules(externs)(mod)))
    with pytest.raises(errors.TVMError, match=message):
        np.asarray(vm["forward"](X, Y))


def test_a_program_goes_on_after_an_error(source: nn.SourceModule) -> None:
    model = Calls(source, lambda ext, x, y: ext["plain_add"](x, y))
    with pytest.raises(errors.TVMError, match="the status 5"):
        np.asarray(model(X, Y))
    np.testing.assert_array_equal(model(X, X), 2 * X)


def test_errors_that_come_after_calls_without_one() -> None:
    """By every road of a call: those that JAX's dispatch runs have errors of its own."""
    text = """
#include <dlpack/dlpack.h>
extern "C" int picky(DLTensor* x, DLTensor* y) {
  float* const made = static_cast<float*>(y->data);
  *made = *static_cast<float*>(x->data);
  return *made > 5 ? 7 : 0;
}
"""
    picky = nn.SourceModule({"picky": like}, text, "cpp")

    model = Calls(picky, lambda ext, x, y: ext["picky"](x))
    mod, externs = exported(model)
    vm = rx.VirtualMachine(rx.build(AttachExternModules(externs)(mod)))
    good, bad = np.ones_like(X), np.full_like(X, 9)
    for call in (vm["forward"], model):
        for kind in (np.asarray, jax.numpy.asarray):
            for _ in range(3):
                assert np.asarray(call(kind(good), Y))[0] == 1
                with pytest.raises(errors.TVMError, match="picky gave the status 7"):
                    np.asarray(call(kind(bad), Y))


def test_object_files(source: nn.SourceModule, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Not a file: .*none\.o"):
        nn.ObjectModule(SYMBOLS, tmp_path / "none.o")
    text = 'extern "C" int twice(float*, float*) { return 0; } int missing();'
    made = tmp_path / "main.o"
    module = nn.SourceModule({"twice": like}, text, "cpp", ["-c", "-fPIC"])
    module.compile(made)
    assert made.read_bytes()[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")
    loaded = nn.ObjectModule({"twice": like}, str(made)).load()
    assert isinstance(loaded, NativeModule)
    assert (repr(loaded), loaded.get_function("other")) == ("NativeModule(twice)", None)
    # A shared library is loaded as it stands.
    shared = tmp_path / "lib.so"
    subprocess.run([*find_compiler(), "-shared", str(made), "-o", str(shared)], check=True)
    assert nn.ObjectModule({"twice": like}, shared).load().get_function("twice") is not None
    with pytest.raises(errors.TVMError, match=r"no symbol 'thrice'; .*TVM_DLL_EXPORT_TYPED_FUNC"):
        nn.ObjectModule({"thrice": like}, shared).load()
    made.write_bytes(b"no object")
    with pytest.raises(errors.CompilerError, match=r"object file main\.o cannot be linked"):
        nn.ObjectModule({"twice": like}, made).load()


def test_symbols_of_two_modules(source: nn.SourceModule) -> None:
    mod, externs = exported(Calls(source, lambda ext, x, y: ext["plain_add"](x, x)))
    with pytest.raises(errors.TVMError, match=r"define the symbols .*'ext_outer'.* more than once"):
        AttachExternModules([*externs, source.load()])(mod)
    with pytest.raises(errors.TVMError, match="more than once"):
        AttachExternModules(externs)(AttachExternModules(externs)(mod))


def test_saved_executables_without_native_code(source: nn.SourceModule, tmp_path: Path) -> None:
    mod, externs = exported(Calls(source, lambda ext, x, y: ext["plain_add"](x, x)))
    attached = AttachExternModules(externs)(mod)
    rx.build(attached).export_library(tmp_path / "program.r2x", native=False)
    for native in (False, True):
        with pytest.raises(errors.UnsupportedError, match=r"custom calls .*: relax2xla_external\."):
            rx.load_module(tmp_path / "program.r2x", native=native)
    trusted = rx.load_module(
        tmp_path / "program.r2x", allow_custom_calls=["relax2xla_external"], compiled=False
    )
    np.testing.assert_array_equal(rx.VirtualMachine(trusted)["forward"](X, Y), 2 * X)
    on_host(attached).export_library(tmp_path / "model.r2x")
    vm = rx.VirtualMachine(rx.load_module(tmp_path / "model.r2x"))
    with pytest.raises(errors.TVMError, match="no packed function 'plain_add'"):
        vm["forward"](X, Y)
    function = source.load().get_function("plain_add")
    rx.register_func("plain_add", function)
    try:
        np.testing.assert_array_equal(vm["forward"](X, Y), 2 * X)
    finally:
        rx.runtime.remove_global_func("plain_add")


LOADS = """
import sys
import numpy as np
import relax2xla as rx

for path in sys.argv[1:]:
    loaded = rx.load_module(path, native=True)
    x = np.array([1, -2, 3], np.float32)
    made = rx.VirtualMachine(loaded)["forward"](x, x[:2])
    print(np.asarray(made).tolist())
    loaded.export_library(path)
"""


def test_native_code_is_saved_and_loaded_by_who_trusts_it(
    source: nn.SourceModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(ext: Any, x: nn.Tensor, y: nn.Tensor) -> Any:
        return ext["ext_affine"](x, 2.0, 1, False, "affine")

    mod, externs = exported(Calls(source, forward))
    attached = AttachExternModules(externs)(mod)
    program, host = tmp_path / "program.r2x", tmp_path / "host.r2x"
    rx.build(attached).export_library(program)
    on_host(attached).export_library(host)
    with pytest.raises(errors.UnsupportedError, match=r"is in it: .*ext_affine.*native=True"):
        rx.load_module(program)
    # Another process has never seen the sources, and saves what it has loaded.
    for _ in range(2):
        command = [sys.executable, "-c", LOADS, str(program), str(host)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == "[3.0, -3.0, 7.0]\n" * 2, done.stderr
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(errors.UnsupportedError, match=r"of another kind .*and this is .*riscv64"):
        rx.load_module(program, native=True)


@pytest.mark.parametrize(
    "changed", [{"file": "native/1.so"}, {"symbols": "f"}, {"tuned": 1}, {"more": 1}]
)
def test_rows_of_native_code_that_are_none(
    source: nn.SourceModule, tmp_path: Path, changed: dict[str, Any]
) -> None:
    mod, externs = exported(Calls(source, lambda ext, x, y: ext["plain_add"](x, x)))
    saved = collect(rx.build(AttachExternModules(externs)(mod)), compiled=False)
    saved.manifest["native"][0].update(changed)
    saved.write(tmp_path / "program.r2x")
    for native in (False, True):
        with pytest.raises(errors.FileFormatError, match="native code"):
            rx.load_module(tmp_path / "program.r2x", native=native)


def test_a_library_in_a_file_that_is_none(source: nn.SourceModule, tmp_path: Path) -> None:
    mod, externs = exported(Calls(source, lambda ext, x, y: ext["plain_add"](x, x)))
    saved = collect(rx.build(AttachExternModules(externs)(mod)), compiled=False)
    saved.members["native/0.so"] = b"no library"
    saved.write(tmp_path / "program.r2x")
    with pytest.raises(errors.UnsupportedError, match=r"program\.r2x: .* cannot be loaded"):
        rx.load_module(tmp_path / "program.r2x", native=True)


# -- without running anything ----------------------------------------------------------------------
def test_sources_and_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_HOME", raising=False)
    path = tmp_path / "main.cc"
    path.write_text("int x;")
    for given in (path, str(path), "int x;"):
        assert nn.SourceModule({}, given, "cpp").source_code == "int x;"
    assert nn.SourceModule({}, "int x;" * 10_000, "cpp").source_code == "int x;" * 10_000
    with pytest.raises(ValueError, match=r"Not a file: .*none\.cc"):
        nn.SourceModule({}, tmp_path / "none.cc", "cpp")
    with pytest.raises(ValueError, match=r"Invalid source format: 'c'; expected .*'cpp', 'cu'"):
        nn.SourceModule({}, "", "c")
    with pytest.raises(ValueError, match="Invalid source format: 'c'"):
        nn.SourceModule.get_compile_options("c")
    with pytest.raises(ValueError, match=r"Invalid output format: 'so'; .*'obj', 'wasm'"):
        nn.SourceModule({}, "", "cpp", output_format="so")
    made = nn.SourceModule({}, "", "cu", output_format="wasm")
    assert (made.source_suffix, made.output_suffix) == (".cu", ".wasm")
    with pytest.raises(errors.TVMError, match=r"of \.cu compiled to \.wasm cannot be called"):
        made.load()
    options = nn.SourceModule.get_compile_options("cpp")
    assert options[0] == "-I"
    assert {"-c", "-O3", "-std=c++17", "-fPIC"} < set(options)
    assert "-Xcompiler=-fPIC" in nn.SourceModule.get_compile_options("cu")
    assert nn.SourceModule({}, "", "cpp", ["-O1"]).compile_options == ["-O1"]


def test_headers_are_ours_or_those_of_tvm_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TVM_HOME", raising=False)
    (own,) = nn.SourceModule.get_includes()
    for name in ("dlpack/dlpack.h", "tvm/runtime/packed_func.h", "tvm/runtime/data_type.h"):
        assert (own / name).is_file()
    with pytest.raises(ValueError, match="TVM_HOME is not set"):
        nn.SourceModule.tvm_home()
    with pytest.raises(ValueError, match=r"tvm_pkg=\['cutlass'\] .* set TVM_HOME"):
        nn.SourceModule.get_includes(["cutlass"])
    monkeypatch.setenv("TVM_HOME", str(tmp_path / "python" / "tvm"))
    with pytest.raises(ValueError, match="neither it nor a folder above"):
        nn.SourceModule.tvm_home()
    folders = ["include", "3rdparty/dlpack/include", "3rdparty/dmlc-core/include", "3rdparty/x"]
    for name in folders:
        (tmp_path / name).mkdir(parents=True)
    assert nn.SourceModule.tvm_home() == tmp_path.resolve()
    assert nn.SourceModule.get_includes(["x"]) == [tmp_path.resolve() / n for n in folders]
    with pytest.raises(ValueError, match=r"Not a directory: .*none"):
        nn.SourceModule.get_includes(["none"])


def test_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 'main.cpp:1: no such thing'; exit 1\n")
    compiler.chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    zig = SimpleNamespace(name="ziglang")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: getattr(zig, name, None))
    assert not has_compiler()
    with pytest.raises(errors.CompilerError, match=r"no C\+\+ compiler .* install one, .* CXX"):
        find_compiler()
    zig.ziglang = zig  # the package is installed
    assert find_compiler() == [sys.executable, "-m", "ziglang", "c++"]
    del zig.ziglang
    with pytest.raises(errors.CompilerError, match="compiler= names the compiler 'icpc'"):
        nn.SourceModule({"f": like}, "", "cpp", compiler="icpc").load()
    monkeypatch.setenv("CXX", "clang-99 -m32")
    with pytest.raises(errors.CompilerError, match="CXX names the compiler 'clang-99 -m32'"):
        find_compiler()
    monkeypatch.setenv("CXX", f"{compiler} -m32")
    assert find_compiler() == [str(compiler), "-m32"]
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert find_compiler() == ["g++"] or (Path("/bin") / "c++").exists()
    with pytest.raises(errors.CompilerError, match=r"\(f\) does not compile\n.*g\+\+") as caught:
        nn.SourceModule({"f": like}, "", "cpp", compiler=str(compiler)).compile(tmp_path / "x.o")
    assert "main.cpp:1: no such thing" in str(caught.value)


def test_the_block_of_the_tutorial_runs() -> None:
    if not has_compiler():
        pytest.skip("there is no C++ compiler")
    text = (Path(__file__).resolve().parents[3] / "docs" / "nn.md").read_text("utf-8")
    (block,) = [b for b in re.findall(r"^```py\n(.*?)^```$", text, re.M | re.S) if "SOURCE" in b]
    names: dict[str, Any] = {"relax2xla": rx, "nn": nn, "spec": spec, "np": np}
    exec(block, names)
    np.testing.assert_allclose(names["y"], [1, 1.9, 2.71, 3.439], rtol=1e-6)
    forward = rx.VirtualMachine(names["ex"])["forward"]
    np.testing.assert_allclose(forward(np.ones(2, np.float32)), [1, 1.9], rtol=1e-6)

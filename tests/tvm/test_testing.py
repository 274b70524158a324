"""``tvm.testing``: what test files written for TVM take from it, run by pytest as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relax2xla.tvm.testing import env, machine
from relax2xla.tvm.testing.values import (
    check_numerical_grads,
    device_enabled,
    enabled_targets,
    generate_random_array,
    get_dtype_range,
    strtobool,
)

CONFTEST = """
import pytest
import tvm
from tvm.relax.ir.instrument import WellFormedInstrument
pytest_plugins = ["tvm.testing.plugin"]

@pytest.fixture(autouse=True)
def checked():
    now = tvm.transform.PassContext.current()
    with tvm.transform.PassContext(
        opt_level=now.opt_level, instruments=[*now.instruments, WellFormedInstrument()],
        trace_stack=now.trace_stack, make_traceable=now.make_traceable,
        num_evals=now.num_evals, tuning_api_database=now.get_tuning_api_database(),
    ):
        yield
"""
TESTS = """
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm.relax.testing.vm import check_saved_func
from tvm.script import tir as T

size = tvm.testing.parameter(1, 2, ids=["one", "two"])
kind = tvm.testing.parameter(by_dict={"a": int, "b": float})
shape, dtype = tvm.testing.parameters(((2, 3), "float32"), ((4,), "int8"))
made = []

@tvm.testing.fixture(cache_return_value=True)
def table(size):
    made.append(size)
    return [size]

def test_parameters(size, kind):
    assert isinstance(kind(size), kind)

def test_together(shape, dtype):
    assert (len(shape) == 2) == (dtype == "float32")

def test_one_of_them(dtype):
    assert dtype in ("float32", "int8")

@pytest.mark.parametrize("again", [0, 1])
def test_copies(table, again):
    table.append(again)
    assert len(table) == 2

def test_computed_once():
    assert sorted(made) == [1, 2]

def test_target(target, dev):
    assert dev.exist and target == "llvm" and dev.device_type == 1

@tvm.testing.parametrize_targets("llvm", "vulkan -from_device=0")
def test_targets(target):
    assert target == "llvm"

@tvm.testing.exclude_targets("llvm")
def test_excluded(target):
    assert target != "llvm"

@tvm.testing.known_failing_targets("llvm")
def test_known(target):
    assert target != "llvm"

@tvm.testing.requires_hexagon
def test_absent():
    raise AssertionError

@tvm.testing.uses_gpu
@tvm.testing.requires_llvm
@tvm.testing.requires_package("numpy")
def test_present():
    assert tvm.testing.device_enabled("llvm")

class Members:
    values = tvm.testing.parameter(3, 4)

    @tvm.testing.fixture
    def doubled(self, values):
        return 2 * values

class TestMembers(Members):
    def test_of_a_class(self, values, doubled):
        assert doubled == 2 * values

class Same(tvm.testing.CompareBeforeAfter):
    def transform(self):
        return tvm.transform.Sequential([])

class TestDelayed(Same):
    def before(A: T.Buffer(16, "float32")):
        for i in T.serial(16):
            A[i] = 0.0

    expected = before

class TestDecorated(Same):
    @T.prim_func
    def before():
        T.evaluate(0)

    expected = before

class TestModule(Same):
    class before:
        def one(A: T.Buffer(16, "float32")):
            for i in T.serial(16):
                A[i] = 0.0

    expected = before

class TestRaises(tvm.testing.CompareBeforeAfter):
    def transform(self):
        @tvm.transform.module_pass(opt_level=0)
        def refuse(mod, context):
            raise ValueError("no")

        return refuse

    def before():
        T.evaluate(0)

    expected = ValueError

class TestDiffers(Same):
    def before():
        T.evaluate(0)

    def expected():
        T.evaluate(1)

def test_packed_functions():
    add = tvm.get_global_func("test.vm.add")
    tvm.testing.assert_allclose(add(np.ones(2), np.ones(2)).numpy(), [2, 2])

def test_marks():
    llvm = tvm.testing.requires_llvm
    assert [m.args for m in llvm.marks() if m.name == "skipif"] == [(False,)]
    assert [m.name for m in llvm.marks("optional")] == ["llvm"]
    with pytest.raises(ValueError, match="support_required is 'never'; known: compile-and-run"):
        llvm.marks("never")
    assert tvm.testing.Feature.require("llvm")(test_absent) is test_absent
    def test(): ...
    tvm.testing.requires_package("no_such_package")(test)
    assert test.pytestmark[0].kwargs["reason"] == "no_such_package is not installed"

if __name__ == "__main__":
    tvm.testing.main()
"""


def tvm(*words: str, where: Path) -> str:
    command = [sys.executable, "-m", "relax2xla.tvm", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=where
    )
    return done.stdout + done.stderr


def test_a_file_of_tests(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    told = tvm("-m", "pytest", "-q", "-rfxs", "-p", "no:cacheprovider", ".", where=tmp_path)
    failed = [line.split(" - ")[0] for line in told.splitlines() if line.startswith("FAILED")]
    assert failed == ["FAILED test_it.py::TestDiffers::test_compare"], told
    assert "1 failed, 24 passed, 3 skipped, 1 xfailed" in told
    assert "relax2xla has no code generator for Hexagon" in told
    assert "there is no target vulkan here" in told


def test_a_file_runs_itself(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    told = tvm("test_it.py", "-q", "-k", "test_together", where=tmp_path)
    assert "2 passed" in told, told


def test_gradients_are_compared_with_differences() -> None:
    x, y = np.array([1.0, 2.0]), np.array([3.0])
    check_numerical_grads(lambda a, b: (a**2).sum() * b[0], [x, y], [6 * x, np.array([5.0])])
    check_numerical_grads(lambda a: (a**2).sum(), {"a": x}, {"a": 2 * x})
    with pytest.raises(AssertionError, match=r"argument 0 is .* from central differences"):
        check_numerical_grads(lambda a: (a**2).sum(), [x], [3 * x])
    with pytest.raises(AssertionError, match=r"shape \(2,\), its gradient \(1,\)"):
        check_numerical_grads(lambda a: (a**2).sum(), [x], [y])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "float32", "bfloat16"])
def test_random_arrays_are_finite(dtype: str) -> None:
    made = generate_random_array(dtype, (50, 40))
    assert (made.shape, str(made.dtype)) == ((50, 40), dtype)
    assert np.isfinite(made.astype("float64")).all()
    assert len(np.unique(made)) > 100


def test_facts_of_this_machine() -> None:
    assert device_enabled("llvm -mcpu=native")
    assert not device_enabled("hexagon")
    assert "llvm" in dict(enabled_targets())
    assert env.has_gpu() == (machine.has_device("cuda") or machine.has_device("rocm"))
    assert env.has_cuda_compute(1) == env.has_cuda()
    assert not env.has_cpu_feature(["avx2", "no such feature"])
    assert not env.has_rpc()


def test_words_and_ranges() -> None:
    assert (strtobool("Yes"), strtobool("off")) == (1, 0)
    with pytest.raises(ValueError, match="'perhaps' is no truth value; known: y"):
        strtobool("perhaps")
    assert get_dtype_range("int8") == (-128, 127)
    with pytest.raises(TypeError, match="'S1' is neither"):
        get_dtype_range("S1")

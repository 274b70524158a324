"""Programs written for TVM, run as they are (design decision D23)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import relax2xla
from relax2xla.dtypes import dtype_name
from relax2xla.tvm.aliases import exists
from relax2xla.tvm.names import MODULES
from relax2xla.tvm.runtime.containers import DataType

ROOT = Path(relax2xla.__file__).resolve().parent.parent


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_program_runs_unchanged() -> None:
    done = run("-m", "relax2xla.tvm", "tests/tvm/quick_start.py", "--fast", "x")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "['--fast', 'x']"
    assert lines[1].startswith("tvm.relax.nothing_of_that_name is not part of relax2xla")
    assert lines[2].startswith("tvm.relay is not part of relax2xla")
    assert lines[3].startswith("tvm.relay is not part of relax2xla, which serves `import tvm`")


def test_installed_by_an_import() -> None:
    program = (
        "import relax2xla.tvm.install, tvm, tvm.relax.transform as t\n"
        "from tvm.relax.dpl import *\n"
        "assert t.LegalizeOps is tvm.relax.transform.LegalizeOps and is_op\n"
        "assert t.LegalizeOps().to == 'kernels' and t.LegalizeOps(to='rows').to == 'rows'\n"
        "from tvm.relax.expr import GlobalVar, _update_struct_info\n"
        "f = GlobalVar('f'); _update_struct_info(f, tvm.relax.ObjectStructInfo())\n"
        "assert isinstance(f.struct_info, tvm.relax.ObjectStructInfo)\n"
        "assert tvm.tirx is tvm.tir or tvm.tirx.Var is tvm.tir.Var\n"
        "from tvm.libinfo import find_include_path as a\n"
        "from tvm._ffi.libinfo import find_include_path as b\n"
        "assert [a()] == b() == list(map(str, tvm.relax.frontend.nn.SourceModule.get_includes()))\n"
        "from tvm_ffi.libinfo import find_dlpack_include_path as c; assert c() == a()\n"
        "assert tvm.runtime.enabled('llvm') and not tvm.runtime.enabled('opencl')\n"
        "assert tvm.relax.VirtualMachine.POOLED_ALLOCATOR == 2 and tvm.cpu().sync() is None\n"
        "assert issubclass(tvm.error.OpNotImplemented, tvm.error.InternalError)\n"
        "import os; assert os.path.isfile(tvm.__file__) and tvm.__version__ == '0.20.0'\n"
        "m = tvm.IRModule()\n"
        "for p in (tvm.relax.backend.DispatchSampling(), tvm.relax.backend.DispatchSortScan(),\n"
        "          tvm.tir.transform.DefaultGPUSchedule()):\n"
        "    assert p(m) is m\n"
        "assert tvm.cpu().exist and tvm.cpu().device_type == 1 == tvm.cpu().dlpack_device_type\n"
        "from tvm.support import cc, popen_pool, utils\n"
        "from tvm.relax.testing.lib_comparator import LibCompareVMInstrument\n"
        "from tvm._ffi.runtime_ctypes import Device; assert isinstance(tvm.cpu(), Device)\n"
        "import relax2xla.tvm.install\n"
        "assert str(tvm.IRModule()).startswith('# from tvm.script import ir as I')\n"
        "assert tvm.script.relax.Tuple.as_struct_info().fields == ()\n"
        "from tvm import rpc; from tvm.contrib import cblas; import tvm.topi.testing\n"
        "from tvm.topi.nn.pooling import pool2d; from tvm.topi.nn.elemwise import relu\n"
        "from tvm import topi; assert pool2d is topi.nn.pool2d and callable(topi.nn.conv2d)\n"
        "ib = tvm.tir.ir_builder.create(); ib.emit(tvm.tir.call_extern('int32', 'f', 1))\n"
        "assert ib.get().value.op.same_as(tvm.ir.Op.get('tir.call_extern'))\n"
        "assert isinstance(tvm.tir.schedule.StmtSRef, type)\n"
    )
    done = run("-c", program)
    assert done.returncode == 0, done.stderr


def test_kernels_of_caches_are_stand_ins() -> None:
    # What programs do with the kernels of a cache: schedule, build, give them to its constructor.
    program = (
        "import relax2xla.tvm.install, tvm, tvm_ffi\n"
        "from tvm import dlight as dl\n"
        "from tvm.relax.frontend.nn.llm.kv_cache import llama_rope_with_position_map as rope\n"
        "target = tvm.target.Target.from_device(tvm.cpu())\n"
        "assert str(target) == 'llvm' and tvm.target.Target.from_device('cuda:1').kind == 'cuda'\n"
        "given = rope(1e4, 1.0, 8, 4, 2, 'float32', {'rope_type': 'gptj'})\n"
        "with target:\n"
        "    mod = dl.ApplyDefaultSchedule(dl.gpu.Fallback())(tvm.IRModule({'main': given}))\n"
        "made = tvm.tir.build(mod['main'], target=target)\n"
        "assert made.entry_func is made.main and made.main.rope_scaling == {'rope_type': 'gptj'}\n"
        "assert tuple(tvm_ffi.Shape([1, 2])) == (1, 2)\n"
    )
    done = run("-c", program)
    assert done.returncode == 0, done.stderr


def test_what_programs_for_language_models_import() -> None:
    program = """
import relax2xla.tvm.install
import tvm
from tvm import DataType, DataTypeCode, te, tir
from tvm.contrib import cc, ndk, nvcc, tar, xcode
from tvm.relax.frontend.nn import IntExpr
from tvm.relax.frontend.nn.llm.position_embedding import switch_rope_freq_func
from tvm.script import tir as T
three, vector = DataType("int3"), DataType("float32x4")
assert (three.bits, three.lanes, three.type_code) == (3, 1, DataTypeCode.INT)
assert (vector.bits, vector.lanes, vector.type_code) == (32, 4, DataTypeCode.FLOAT)
assert DataType("bfloat16").type_code == DataTypeCode.BFLOAT and isinstance("int8", DataType)
assert DataType("float8_e4m3fn").bits == 8 and DataType("float32").lanes == 1
assert tir.max_value("int8").value == 127
assert tir.generic.cast(tir.Var("n", "int32"), "int64").dtype == "int64"
assert te.exp and tir.sum and T.exp and tir.power
try:
    ndk.create_shared("lib.so", ["a.o"])
except tvm.error.TVMError as e:
    assert "export_library(path), without fcompile" in str(e)
else:
    raise AssertionError("a compiler of TVM's code")
try:
    cc.nothing
except AttributeError:
    pass
try:
    DataType("int0")
except TypeError:
    pass
else:
    raise AssertionError("no dtype")
"""
    done = run("-c", program)
    assert done.returncode == 0, done.stderr


def test_the_real_one_is_not_replaced_behind_its_back() -> None:
    program = (
        "import sys, types; sys.modules['tvm'] = types.ModuleType('tvm')\n"
        "import relax2xla.tvm.install\n"
    )
    done = run("-c", program)
    assert "tvm was imported before" in done.stderr


def test_a_dtype_has_its_parts() -> None:
    for name, parts in {"bool": (1, 1), "float16": (2, 16), "bfloat": (4, 16)}.items():
        dtype = DataType(name)
        assert (dtype.type_code, dtype.bits, dtype.lanes) == (*parts, 1)
        assert dtype == dtype_name(name)
        assert type(dtype_name(dtype)) is str
    assert isinstance("int8", DataType)
    assert not isinstance(8, DataType)
    with pytest.raises(TypeError, match="unknown dtype 'float33'"):
        DataType("float33")


def test_the_command_line_says_what_is_wrong() -> None:
    assert run("-m", "relax2xla.tvm", "--help").stdout.startswith("usage: python -m relax2xla.tvm")
    for words, text in (((), "usage:"), (("nothing.py",), "there is no file 'nothing.py'")):
        done = run("-m", "relax2xla.tvm", *words)
        assert done.returncode == 2
        assert text in done.stderr
        assert "Traceback" not in done.stderr


def test_what_serves_a_module_exists() -> None:
    """A row of the table that nothing serves is a mistake in it."""
    for name, serving in MODULES.items():
        assert any(map(exists, serving)), name

"""Several devices in one process: machines on each, arguments from elsewhere, threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import DeviceError
from relax2xla.transform.pipeline import PIPELINES, get_pipeline
from tests.processes import run_python

# Runs in a process of its own: XLA reads how many devices the host has when it starts.
PROGRAM = """
import logging, threading
import jax, numpy as np
import relax2xla as rx
from relax2xla.script import from_source

records = []
handler = logging.Handler()
handler.emit = lambda record: records.append(record.getMessage())
logging.getLogger("relax2xla.vm").addHandler(handler)

rx.register_func("test_devices.same", lambda x: x)
mod = from_source('''
@I.ir_module
class Module:
    @R.function
    def whole(x: R.Tensor((3,), "float32")):
        return R.add(x, R.const([1.0, 2.0, 3.0], "float32"))

    @R.function(pure=False)
    def split(x: R.Tensor((3,), "float32")):
        y = R.call_packed("test_devices.same", x, sinfo_args=R.Tensor((3,), "float32"))
        return R.add(y, R.const([1.0, 2.0, 3.0], "float32"))
''')
executable = rx.build(mod)
assert len(jax.devices()) == 4
x = np.ones(3, np.float32)
machines = [rx.VirtualMachine(executable, rx.cpu(i)) for i in range(4)]
machines.append(rx.VirtualMachine(executable, [rx.cpu(2), rx.cpu(0)]))
where = [0, 1, 2, 3, 2]
for name in ("whole", "split"):
    for vm, i in zip(machines, where):
        result = vm[name](x)
        assert result.devices() == {jax.devices()[i]}, (name, i, result.devices())
        np.testing.assert_array_equal(result, [2, 3, 4])
assert not records, records

elsewhere = jax.device_put(x, jax.devices()[3])
for _ in range(3):
    for name in ("whole", "split"):
        result = machines[1][name](elsewhere)
        assert result.devices() == {jax.devices()[1]}
        np.testing.assert_array_equal(result, [2, 3, 4])
assert len(records) == 1 and "is moved to" in records[0], records
machines[1]["whole"](machines[1]["whole"](x))
assert len(records) == 1

wrong = []
def work(k):
    vm = machines[k % 4]
    for i in range(50):
        value = np.full(3, k * 100 + i, np.float32)
        for name in ("whole", "split"):
            result = vm[name](value)
            if not np.array_equal(result, value + [1, 2, 3]) or k % 4 not in {
                d.id for d in result.devices()
            }:
                wrong.append((k, i, name))
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong, wrong
evaluator = machines[1].time_evaluator("whole", rx.cpu(1), number=2)
assert evaluator(x).mean > 0
try:
    machines[1].time_evaluator("whole", rx.cpu(2))
except rx.errors.CallError as e:
    assert "runs on cpu:1, not on cpu:2" in str(e)
else:
    raise AssertionError
print("done")
"""


def run(*command: str) -> None:
    """Run Python in a process whose host has four devices."""
    assert run_python(*command, devices=4) == "done\n"


def test_several_devices() -> None:
    run("-c", PROGRAM)


def test_programs_over_several_devices(tmp_path: Path) -> None:
    program = "from tests.vm.plan.vdevice_programs import main; import sys; main(sys.argv[1])"
    run("-c", f"{program}; print('done')", str(tmp_path))


def test_names_of_devices() -> None:
    assert str(rx.cpu(1)) == "cpu:1"
    assert str(rx.cuda(2)) == "cuda:2"
    assert rx.device("cuda:2") == rx.cuda(2)
    assert rx.device("llvm -mcpu=native") == rx.cpu()
    with pytest.raises(DeviceError, match="unknown device 'abacus'"):
        rx.device("abacus")


def test_pipelines_by_name() -> None:
    for name in ("zero", "default", "default_build"):
        assert callable(get_pipeline(name))
    tuned = get_pipeline("static_shape_tuning", total_trials=8000, target="llvm")
    assert [p.info.name for p in tuned.passes] == ["InlineSymbolicFunctions", "DeadCodeElimination"]
    with pytest.raises(ValueError, match="LiftTransformParams does"):
        get_pipeline("static_shape_tuning", total_trials=1, target="llvm", cpu_weight_prepack=True)
    with pytest.raises(ValueError, match="unknown pipeline 'other'; known: zero, default"):
        get_pipeline("other")


def test_parameters_of_build_for_programs_written_for_tvm() -> None:
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((2,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(rx.op.negative(x)))
    mod = builder.get()
    zero = get_pipeline("zero")
    for tir_pipeline in (None, "default", zero):
        executable = rx.build(
            mod, "llvm", None, "default", tir_pipeline, "bytecode", system_lib=False
        )
        result = rx.VirtualMachine(executable, rx.cpu())["main"](np.ones(2, np.float32))
        np.testing.assert_array_equal(result, [-1, -1])
    with pytest.raises(TypeError, match="tir_pipeline is None, a name or a Pass; got int"):
        rx.build(mod, tir_pipeline=3)  # pyright: ignore[reportArgumentType]


def test_pipelines_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relax2xla.transform.pipeline.PIPELINES", {**PIPELINES})

    @rx.register_pipeline("mine")
    def mine(*names: str, **options: int) -> rx.transform.Pass:
        seen.append(options)
        return get_pipeline("zero")

    seen: list[dict[str, int]] = []
    assert get_pipeline("mine", level=3).info.name == "zero"
    assert seen == [{"level": 3}]
    assert rx.get_default_pipeline("llvm").info.name == "default"
    with pytest.raises(ValueError, match="already been registered"):
        rx.register_pipeline("mine")

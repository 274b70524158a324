"""What a call costs: functions that compute next to nothing, beside ``jax.jit``.

One argument takes the jitted road of the machine; 200 weights take the road straight over PJRT,
beside ``jax.jit`` with the same weights as arguments (design decision D5). Bytecode is measured by
a loop whose four instructions compute nothing. Everything is pinned to one core, and times are the
process's own CPU time, which other work on the machine changes least.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

# One core for everybody: the process before any runtime starts its threads.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import numpy as np

import relax2xla as rx
from benchmarks.peers.onnxruntime_options import one_thread
from benchmarks.timing import interleaved, table


def _one_argument() -> rx.IRModule:
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(rx.op.add(x, x))
        builder.emit_func_output(out)
    return builder.get()


def _with_weights(weights: list[np.ndarray[Any, Any]]) -> rx.IRModule:
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((128,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: rx.Expr = x
            for w in weights:
                y = builder.emit(rx.op.add(y, rx.const(w)))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


def _onnxruntime(x: np.ndarray[Any, Any]) -> dict[str, Callable[[], Any]]:
    """``x + x`` by ONNX Runtime on one thread; nothing where it is not installed."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError:
        return {}
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [value], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    session = onnxruntime.InferenceSession(model.SerializeToString(), one_thread())
    return {"ONNX Runtime": lambda: session.run(None, {"x": x})}


# Turns of the loop of bytecode, and instructions of a turn.
TURNS, INSTRUCTIONS = 1000, 4


def _loop() -> Callable[[], Any]:
    """A loop in bytecode: test, an empty packed call, count down, jump."""
    rx.register_func("benchmarks.empty", lambda: None, override=True)
    ib = rx.ExecBuilder()
    with ib.function("main", num_inputs=1, param_names=["n"]):
        ib.emit_call("vm.builtin.copy", args=[ib.r(0)], dst=ib.r(1))
        ib.emit_if(ib.r(1), 4)
        ib.emit_call("benchmarks.empty", args=[])
        ib.emit_call("vm.builtin.sub", args=[ib.r(1), ib.imm(1)], dst=ib.r(1))
        ib.emit_goto(-3)
        ib.emit_ret(ib.r(1))
    main = rx.VirtualMachine(ib.get())["main"]
    return lambda: main(TURNS)


def variants() -> dict[str, dict[str, Callable[[], Any]]]:
    """Groups of calls to compare, each with ``jax.jit``."""
    x = jax.device_put(np.ones(4, np.float32))
    host = np.ones(4, np.float32)
    one = rx.VirtualMachine(rx.build(_one_argument()))["main"]
    jit_one = jax.jit(lambda v: v + v)
    groups: dict[str, dict[str, Callable[[], Any]]] = {
        "1 argument, jax array": {
            "relax2xla": lambda: one(x),
            "jax.jit": lambda: jit_one(x),
        },
        "1 argument, numpy in and out": {
            "relax2xla": lambda: np.asarray(one(host)),
            "jax.jit": lambda: np.asarray(jit_one(host)),
            **_onnxruntime(host),
        },
    }
    rng = np.random.default_rng(0)
    for count in (200, 400):
        weights = [rng.standard_normal(128).astype(np.float32) for _ in range(count)]
        v = jax.device_put(np.ones(128, np.float32))
        many = rx.VirtualMachine(rx.build(_with_weights(weights)))["main"]

        def chain(value: Any, *ws: Any) -> Any:
            for w in ws:
                value = value + w
            return value

        jitted = jax.jit(chain)
        placed = [jax.device_put(w) for w in weights]
        np.testing.assert_allclose(many(v), jitted(v, *placed), rtol=1e-5)
        groups[f"{count} weights"] = {
            "relax2xla": lambda f=many, v=v: f(v),
            "jax.jit": lambda f=jitted, v=v, p=placed: f(v, *p),
        }
    return groups


def main(quick: bool = False) -> None:
    """Print one table a group, in microseconds a call."""
    rounds, calls = (5, 50) if quick else (30, 400)
    for name, group in variants().items():
        times = interleaved(group, rounds, calls, warmup=50, clock=time.process_time)
        print(f"\n{name}\n\n{table(times, 'jax.jit', 'us')}")
    loop = interleaved({"loop": _loop()}, rounds, calls=10, clock=time.process_time)["loop"]
    print(f"\nbytecode: {1e6 * min(loop) / (TURNS * INSTRUCTIONS):.2f} us an instruction")

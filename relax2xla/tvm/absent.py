"""What TVM's test programs import at their top and few of their tests call."""

from __future__ import annotations

from relax2xla.tvm.refusing import refusing

_PROCESSES = "processes that are sent functions are Python's: use concurrent.futures"

PopenWorker = refusing("tvm.contrib.popen_pool.PopenWorker", _PROCESSES)
PopenPoolExecutor = refusing("tvm.contrib.popen_pool.PopenPoolExecutor", _PROCESSES)
LibCompareVMInstrument = refusing(
    "tvm.relax.testing.lib_comparator.LibCompareVMInstrument",
    "a function is one XLA program, so there are no calls of operators to compare; "
    "use `relax2xla verify`",
)
dataflow_single_inplace_call = refusing(
    "tvm.relax.testing.transform.dataflow_single_inplace_call",
    "XLA decides which results take the memory of operands",
)

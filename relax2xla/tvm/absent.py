"""What TVM's test programs import at their top and few of their tests call."""

from __future__ import annotations

from relax2xla.tvm.refusing import refusing

_PROCESSES = "processes that are sent functions are Python's: use concurrent.futures"

PopenWorker = refusing("tvm.contrib.popen_pool.PopenWorker", _PROCESSES)
PopenPoolExecutor = refusing("tvm.contrib.popen_pool.PopenPoolExecutor", _PROCESSES)

"""The other side of :mod:`relax2xla.stablehlo.untrusted.guard`: the process that reads bytecode."""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from relax2xla.errors import StableHLOParseError
from relax2xla.stablehlo.serialize import checked_bytecode
from relax2xla.stablehlo.untrusted.guard import CLEAN, ERROR, READY, read_message, write_message

# What a program may take, in bytes: at least this much, and this many times its own size.
_LEAST: Final = 4 * 2**30
_TIMES: Final = 16
# What reading may take, in seconds of a processor, and for each of its bytes: a hundred times what
# it takes. Damaged bytecode can make MLIR's reader go on for ever.
_SECONDS: Final = 2
_BYTES_A_SECOND: Final = 1 << 18


def serve() -> None:
    """Answer messages until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    # What libraries print must not look like answers.
    os.dup2(2, 1)
    # Ctrl-C reaches the whole group of processes; the parent ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    write_message(answers, READY)
    while (data := read_message(sys.stdin.buffer)) is not None:
        limit_memory(max(_LEAST, _TIMES * len(data)))
        _limit_time(_SECONDS + len(data) // _BYTES_A_SECOND)
        try:
            write_message(answers, CLEAN + checked_bytecode(data))
        except StableHLOParseError as e:
            write_message(answers, ERROR + str(e).encode())


def _limit_time(seconds: int) -> None:
    """End this process, by SIGXCPU, when it has worked for so long from now on."""
    if sys.platform == "win32":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + seconds + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def limit_memory(memory: int) -> None:
    """Keep this process below ``memory`` bytes of data, and from writing core files."""
    if sys.platform == "win32":
        return
    import resource

    # The data segment: address space is reserved generously, and costs nothing.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        memory = min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

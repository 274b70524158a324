"""``tvm.rpc``: programs may import it; there are no remote devices to connect to."""

from __future__ import annotations

from typing import Final

from relax2xla.tvm.refusing import refusing

_WHY: Final = "there are no remote devices; save with export_library, and load the file there"

Server = refusing("tvm.rpc.Server", _WHY)
connect = refusing("tvm.rpc.connect", _WHY)
connect_tracker = refusing("tvm.rpc.connect_tracker", _WHY)
LocalSession = refusing("tvm.rpc.LocalSession", _WHY)

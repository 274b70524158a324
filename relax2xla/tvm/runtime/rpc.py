"""``tvm.rpc`` on this machine: a session is a temporary folder and this process's own devices.

Nothing opens a port: ``connect`` finds the servers that this process has started, and other
machines cannot be reached.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, ClassVar, Final

from relax2xla.errors import UnsupportedError
from relax2xla.runtime.device import Device, cpu, cuda, device
from relax2xla.runtime.registry import get_global_func
from relax2xla.tvm.refusing import refusing
from relax2xla.tvm.runtime.executables import load_module

_WHY: Final = "there are no remote devices; save with export_library, and load the file there"

connect_tracker = refusing("tvm.rpc.connect_tracker", _WHY)


class Server:
    """A server for ``connect`` in this process; ``host`` and ``port`` are its name there.

    ``options``: those of TVM's server, without effect.
    """

    _running: ClassVar[set[tuple[str, int]]] = set()

    def __init__(self, host: str = "0.0.0.0", port: int = 9091, **options: Any) -> None:
        self.host = host
        self.port = port
        while (host, self.port) in self._running:
            self.port += 1
        self._running.add((host, self.port))

    @classmethod
    def runs(cls, host: str, port: int) -> bool:
        """Whether this process has a server of that name."""
        return (host, port) in cls._running

    def terminate(self) -> None:
        """Let nobody connect any more; sessions go on."""
        self._running.discard((self.host, self.port))


class LocalSession:
    """Files in a temporary folder, which goes with the session, and the devices of this process."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp()).resolve()
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def _path(self, name: str) -> Path:
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder):
            raise ValueError(f"{name!r} is outside of the session's folder; name a file in it")
        return path

    def upload(self, data: str | Path | bytes | bytearray, target: str | None = None) -> None:
        """Keep a file, or ``data``, under ``target``; a file's own name by default."""
        if isinstance(data, bytes | bytearray):
            if target is None:
                raise ValueError("upload: bytes need a name, which `target` gives")
            self._path(target).write_bytes(data)
        else:
            shutil.copyfile(data, self._path(target or Path(data).name))

    def download(self, path: str) -> bytearray:
        """The bytes of a file of the session."""
        return bytearray(self._path(path).read_bytes())

    def remove(self, path: str) -> None:
        """Delete a file of the session."""
        self._path(path).unlink()

    def listdir(self, path: str = ".") -> list[str]:
        """The files of the session, or of a folder in it."""
        return sorted(p.name for p in self._path(path).iterdir())

    def load_module(self, path: str) -> Any:
        """What was saved as a file of the session; see ``tvm.runtime.load_module``."""
        return load_module(self._path(path))

    def get_function(self, name: str) -> Any:
        """A packed function of this process."""
        return get_global_func(name)

    def device(self, dev_type: str, dev_id: int = 0) -> Device:
        """A device of this process."""
        return device(dev_type, dev_id)

    def cpu(self, dev_id: int = 0) -> Device:
        """A CPU device of this process."""
        return cpu(dev_id)

    def cuda(self, dev_id: int = 0) -> Device:
        """A GPU of this process."""
        return cuda(dev_id)


def connect(url: str, port: int, *args: Any, **options: Any) -> LocalSession:
    """A session of a :class:`Server` of this process; UnsupportedError where there is none.

    ``args``, ``options``: those of TVM's function, without effect.
    """
    if not Server.runs(url, port):
        raise UnsupportedError(f"tvm.rpc.connect: no server {url}:{port} in this process; {_WHY}")
    return LocalSession()

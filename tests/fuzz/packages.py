"""Saved executables (.r2x) with damaged manifests, bytecode, texts, programs and bytes.

The checksums are those of what was damaged, as someone would write them who means harm. Machine
code in a file is only for those who trust it (``compiled=True``); the files here have none.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

from tests.fuzz.mutate import some_bytes, some_json, some_text
from tests.fuzz.programs import RELAX_WORDS, call
from tests.fuzz.target import Target

SOURCES: Final = {
    "network": """
@R.function
def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")):
    with R.dataflow():
        a = R.matmul(x, R.permute_dims(w))
        b = R.nn.softmax(R.add(a, R.const([1.0, 2.0, 3.0, 4.0], "float32")))
        R.output(b)
    return (b, R.sum(b))
""",
    "symbolic": """
@R.function
def main(x: R.Tensor(("n", "m"), "float32"), s: R.Shape(["k"])):
    n, m = T.int64(), T.int64()
    y = R.reshape(x, (n * m,))
    return R.concat((y, y), axis=0)
""",
    "bytecode": """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 2), "float32"), c: R.Tensor((), "bool")):
        k = T.int64()
        cls = Module
        found = R.nonzero(x)
        where = R.match_cast(found, R.Tensor((2, k), "int64"))
        if c:
            y = cls.double(x)
        else:
            y = R.negative(x)
        z = R.call_pure_packed("relax2xla.fuzz.none", y, sinfo_args=R.Tensor((3, 2), "float32"))
        return (where, y, z)

    @R.function
    def double(x: R.Tensor((3, 2), "float32")):
        cls = Module
        found = R.unique(R.add(x, x))
        return R.add(x, R.const(1, "float32"))
""",
    "recursion": """
@I.ir_module
class Module:
    @R.function
    def main(i: R.Tensor((), "int32"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Module
        c = R.less(i, R.const(3, "int32"))
        if c:
            found = R.nonzero(x)
            r = cls.main(R.add(i, R.const(1, "int32")), R.add(x, x))
        else:
            r = x
        return r
""",
}


class Package(Target):
    """A saved executable, loaded and called."""

    name, title, suffix = "r2x", "saved executables with damaged members", ".r2x"

    def prepare(self, folder: Path) -> None:
        import numpy as np

        import relax2xla
        from relax2xla.script.entry import from_source
        from relax2xla.vm.save.writer import collect

        relax2xla.register_func("relax2xla.fuzz.none", lambda x: x, override=True)
        self.saved: list[Any] = []
        for name, text in SOURCES.items():
            params = {"w": np.eye(4, dtype=np.float32)} if name == "network" else None
            mod = from_source(text)
            if not isinstance(mod, relax2xla.IRModule):
                mod = relax2xla.IRModule({relax2xla.GlobalVar("main"): mod})
            executable = relax2xla.build(mod, params=params)
            self.saved.append(collect(executable, compiled=False))

    def make(self, draw: random.Random) -> Any:
        """An archive's manifest, members and tensors; or a number of a saved one, and a seed."""
        at = draw.randrange(len(self.saved))
        saved = self.saved[at]
        manifest, members = saved.manifest, dict(saved.members)
        kind = draw.random()
        if kind < 0.1:
            return at, draw.getrandbits(64)
        if kind < 0.55:
            damaged = some_json(manifest, draw)
            # What is no object at all cannot be written with checksums.
            manifest = damaged if isinstance(damaged, dict) else manifest
        else:
            name = draw.choice(sorted(members))
            members[name] = self._damaged(name, members[name], draw)
        return at, (manifest, members)

    def _damaged(self, name: str, data: bytes, draw: random.Random) -> bytes:
        if name.endswith(".json"):
            return json.dumps(some_json(json.loads(data), draw)).encode()
        if name.endswith(".relax"):
            return some_text(data.decode(), draw, RELAX_WORDS, [data.decode()]).encode()
        return some_bytes(data, draw)

    def show(self, made: Any) -> bytes:
        import tempfile

        if not hasattr(self, "saved"):
            self.prepare(Path())
        with tempfile.TemporaryDirectory() as folder:
            return self._write(made, Path(folder)).read_bytes()

    def _write(self, made: Any, folder: Path) -> Path:
        from relax2xla.vm.save.archive import write_archive

        at, what = made
        path = folder / "saved.r2x"
        path.unlink(missing_ok=True)
        manifest, members = (
            (self.saved[at].manifest, self.saved[at].members) if isinstance(what, int) else what
        )
        write_archive(path, manifest, members, self.saved[at].write_tensors)
        if isinstance(what, int):
            path.write_bytes(some_bytes(path.read_bytes(), random.Random(what)))
        return path

    def attempt(self, made: Any, folder: Path) -> str:
        from relax2xla import load_module

        path = self._write(made, folder)
        self.phase("read")
        executable = load_module(path, compiled=False)
        names = list(executable)
        return call(executable, names[0], path, self.phase) if names else "read"

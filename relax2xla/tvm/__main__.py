"""``python -m relax2xla.tvm prog.py [args]``: run a program that was written for TVM."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

USAGE = """usage: python -m relax2xla.tvm PROGRAM.py [ARGUMENTS]
       python -m relax2xla.tvm -m MODULE [ARGUMENTS]

Run a Python program that was written for TVM, unchanged: `import tvm` is served by relax2xla.
docs/tvm.md says what is there and what is not."""


def main() -> int:
    """Run the program that the command line names; 2 where it names none."""
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]):
        sys.stdout.write(f"{USAGE}\n")
        return 0
    module = words[:1] == ["-m"]
    if module:
        words = words[1:]
    if not words:
        sys.stderr.write(f"{USAGE}\n")
        return 2
    if not module and not Path(words[0]).is_file():
        sys.stderr.write(f"relax2xla.tvm: error: there is no file {words[0]!r}\n")
        return 2
    import relax2xla.tvm.install  # noqa: F401  # pyright: ignore[reportUnusedImport]

    sys.argv = words
    if module:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())

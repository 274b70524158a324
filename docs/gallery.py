"""Pictures for the gallery: the program that each example builds, as ``relax2xla view`` draws it.

    python docs/gallery.py [EXAMPLE ...]

Runs the programs of examples/ (by default those of EXAMPLES), takes the largest module that each
one builds or imports, and writes ``docs/gallery/EXAMPLE.svg``. Modules of the source are closed
until at most ``MOST`` boxes are left.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURES: Final = ROOT / "docs" / "gallery"
#: The examples that are drawn: `generate` asks for a folder of transformers, and what trains on
#: digits, as the small Llama, has hundreds of operators that no module closes.
EXAMPLES: Final = (
    "blockbuilder_nn",
    "demo",
    "extern_cpp",
    "finetune_in_jax",
    "from_jax_stablehlo",
    "from_onnx",
    "from_pytorch",
    "sentence_search",
    "symbolic_batch",
    "tensor_parallel",
)
MOST: Final = 36
# What gives a module; relax2xla.build is given one.
_GIVES: Final = ("from_exported_program", "from_onnx")
# Rooms that have them, also for functions of JAX, which are made of modules out of sight.
_ROOMS: Final = ("relax2xla.interop.jax", "relax2xla.frontend.torch", "relax2xla.frontend.onnx")


def modules_of(example: str) -> list[Any]:
    """The modules that an example builds and imports, in order."""
    seen: list[Any] = []

    def taking(function: Callable[..., Any]) -> Callable[..., Any]:
        def take(mod: Any, *args: Any, **options: Any) -> Any:
            seen.append(mod)
            return function(mod, *args, **options)

        return take

    def giving(function: Callable[..., Any]) -> Callable[..., Any]:
        def give(*args: Any, **options: Any) -> Any:
            seen.append(function(*args, **options))
            return seen[-1]

        return give

    import relax2xla

    for room in _ROOMS:
        with contextlib.suppress(ModuleNotFoundError):  # the example has no use of that extra
            importlib.import_module(room)
    relax2xla.build = taking(relax2xla.build)
    for module in [m for n, m in sys.modules.items() if n.startswith("relax2xla.")]:
        for name in _GIVES:
            if callable(found := vars(module).get(name)):
                setattr(module, name, giving(found))
    sys.argv = [f"{example}.py"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        runpy.run_module(f"examples.{example}", run_name="__main__")
    return seen


def draw(example: str) -> str:
    """The picture of an example."""
    from relax2xla.cli.page.graph import graph_of
    from relax2xla.cli.page.layout import plans_of
    from relax2xla.cli.page.pictures import svg

    graphs = [graph_of(mod) for mod in modules_of(example)]
    graph = max(graphs, key=lambda g: len(g.nodes))
    plans = plans_of(graph)
    made = svg(graph, plans, example, depth=0)
    for depth in range(1, 8):
        deeper = svg(graph, plans, example, depth=depth)
        if deeper.count("<rect") > MOST:
            break
        made = deeper
    return made


def main(words: list[str]) -> int:
    """Draw the examples named, each in a process of its own; the number of those that failed."""
    if words[:1] == ["--one"]:
        (PICTURES / f"{words[1]}.svg").write_text(draw(words[1]), "utf-8")
        return 0
    PICTURES.mkdir(exist_ok=True)
    failed = 0
    for example in words or EXAMPLES:
        line = [sys.executable, __file__, "--one", example]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            line, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, timeout=900, check=False
        )
        failed += done.returncode != 0
        print(f"{example}: {'failed' if done.returncode else 'drawn'}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))

"""Arguments of the command line, right and wrong, over small files, whole and damaged."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import random
import shutil
from pathlib import Path
from typing import Final

from tests.fuzz.mutate import some_bytes
from tests.fuzz.target import Target, Wrong

COMMANDS: Final = (
    *("inspect", "convert", "run", "compile", "verify", "roundtrip", "diff", "opt", "cache"),
    *("bench", "nothing", ""),
)
# What each command takes; the values are drawn, whether or not they fit.
OPTIONS: Final = {
    "inspect": ("--json", "--text", "--support", "--trust", "--shape"),
    "convert": ("--output", "--to", "--stablehlo-version", "--trust", "--shape"),
    "run": (
        *("--inputs", "--output", "--seed", "--device", "--function", "--profile", "--trace"),
        *("--memory", "--weights", "--trust", "--shape"),
    ),
    "compile": ("--output", "--trust", "--shape", "--device"),
    "verify": ("--inputs", "--seed", "--rtol", "--atol", "--shape", "--trust", "--function"),
    "bench": ("--seed", "--shape", "--rounds", "--calls", "--trust"),
    "roundtrip": ("--json", "--run", "--timeout", "--memory", "--no-isolate", "--seed"),
    "diff": ("--as", "--shape", "--trust"),
    "opt": ("--passes", "--output", "--print-before", "--print-after", "--check", "--shape"),
    "cache": ("--json", "--limit", "--clear"),
}
FLAGS: Final = (
    *("--json", "--text", "--support", "--trust", "--profile", "--memory", "--run"),
    *("--no-isolate", "--check", "--clear"),
)
VALUES: Final = (
    *("out.mlir", "out.mlirbc", "out.relax", "out.stablehlo", "out.npz", "out.npy", "out.r2x", "-"),
    *("", "out", "none/out.mlir", "model.onnx", ".", "x=in.npz", "in.npz", "x.npy", "bad.npz"),
    *(
        "n=4",
        "x=2x4",
        "x=2x",
        "n=-1",
        "n=99999999999",
        "zz=1",
        "x=0x4",
        "n=0",
        "=",
        "relax",
        "mlir",
    ),
    *("stablehlo", "as-is", "1.0.0", "0.0.0", "99.0.0", "0", "1", "-1", "1e-5", "nan", "inf", "x"),
    *("cpu", "cpu:0", "cpu:9", "cuda", "tpu", "main", "other", "zero", "default", "LegalizeOps"),
    *(
        "RaiseStableHLO,LegalizeOps",
        "ConvertLayout=NHWC/HWIO",
        "BindParams=in.npz",
        "FoldBatchNorm",
    ),
    *("all", "500M", "1G", "-5", "9" * 40, "\0", "é", "--help", "--version", "--debug"),
)


# Lines that are right; most inputs are one of these with a word or two changed.
RIGHT: Final = tuple(
    line.split()
    for line in """
inspect model.onnx
inspect model.onnx --support --json
inspect model.mlir --text
inspect model.r2x
convert model.onnx -o out.relax
convert model.onnx --shape n=4 -o out.mlir
convert model.mlir -o out.stablehlo --stablehlo-version 1.0.0
convert model.relax --to mlirbc -o out.x
convert model.mlirbc -o - --to mlir
run model.mlir
run model.onnx --shape n=2 --seed 3
run model.onnx -i x=x.npy -o out.npz
run model.stablehlo -i in.npz -o out.npy
run model.r2x --profile
run model.relax --memory --trace out.json
compile model.onnx -o out.r2x --shape n=2
compile model.relax -o out.r2x
verify model.onnx --shape n=3
verify model.onnx -i in.npz --rtol 1e-4
bench model.onnx --shape n=2 --rounds 1 --calls 1
roundtrip model.mlir wrong.mlir model.mlirbc
diff model.mlir model.mlirbc
diff model.onnx model.relax --as relax
diff model.mlir model.stablehlo --as stablehlo
opt model.mlir --passes RaiseStableHLO
opt model.onnx --passes FoldBatchNorm,ConvertLayout=NHWC/HWIO -o out.relax
opt model.relax --passes default,LegalizeOps -o out.mlir --check
opt model.relax --passes default --print-after all
cache
cache --json
cache --limit 1M
""".strip().splitlines()
)


class Words(Target):
    """A command line."""

    name, title, suffix = "words", "arguments of the command line", ".txt"
    seconds = 60.0

    def prepare(self, folder: Path) -> None:
        self.source = folder / "source"
        self.source.mkdir()
        os.environ["RELAX2XLA_CACHE_DIR"] = str(folder / "cache")
        files(self.source)

    def make(self, draw: random.Random) -> list[str]:
        files = sorted(p.name for p in self.source.iterdir())
        files += ["nothing.onnx", "folder", ""]
        if draw.random() < 0.6:
            made = list(draw.choice(RIGHT))
            for _ in range(draw.choice((0, 0, 1, 1, 2))):
                at = draw.randrange(len(made))
                option = draw.choice(OPTIONS.get(made[0], ("--json",)))
                match draw.randrange(4):
                    case 0:
                        made[at] = draw.choice((*files, *VALUES))
                    case 1 if len(made) > 1:
                        del made[at]
                    case 2:
                        made += [option] if option in FLAGS else [option, draw.choice(VALUES)]
                    case _:
                        made[at] = draw.choice(files)
            return made
        command = draw.choice(COMMANDS)
        # A measurement takes its time by design.
        rounds = ["--rounds", "1", "--calls", "1"] if command == "bench" else []
        made = [command, *rounds]
        for _ in range(draw.choice((1, 1, 1, 2)) if command != "diff" else 2):
            made.append(draw.choice(files))
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            options = OPTIONS.get(command, ("--json",))
            option = draw.choice(options if draw.random() < 0.95 else ("--wrong", "-o", "-i", "--"))
            made.append(option)
            if option not in FLAGS:
                made.append(draw.choice((*VALUES, *files)))
        if command in ("convert", "compile") and draw.random() < 0.7:
            made += ["-o", draw.choice(VALUES[:7])]
        if draw.random() < 0.1:
            draw.shuffle(made)
        return made

    def show(self, made: list[str]) -> bytes:
        return "\n".join(made).encode("utf-8", "surrogateescape")

    def attempt(self, made: list[str], folder: Path) -> str:
        from relax2xla.cli import main

        place = folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.source, place)
        (place / "folder").mkdir()
        before = {p.name: p.read_bytes() for p in self.source.iterdir()}
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        self.phase("command")
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.chdir(place))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            status = main(made)
        said = err.getvalue()
        if status not in (0, 1, 2):
            raise Wrong(f"{made}: the exit status is {status}")
        # With --debug an error shows where it comes from.
        bare = "Traceback" in said and "--debug" not in made
        if "not an error that relax2xla expects" in said or bare:
            raise Wrong(f"{_error(said)}: {made}")
        if status == 2 and not (said + _text(out)).strip():
            raise Wrong(f"{made}: the exit status is 2, and nothing is said")
        written = _values_after(made, ("-o", "--output", "--trace", "--json"))
        for name, data in before.items():
            if name not in written and (place / name).read_bytes() != data:
                raise Wrong(f"{made}: {name} was changed")
        left = [p.name for p in place.iterdir() if p.name.endswith(".tmp")]
        if left:
            raise Wrong(f"{made}: {left} is left")
        return f"status {status}"


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    held = stream.buffer
    assert isinstance(held, io.BytesIO)
    return held.getvalue().decode(errors="replace")


def _error(said: str) -> str:
    return next((line for line in said.splitlines() if "rror" in line), said[-200:])


def _values_after(words: list[str], options: tuple[str, ...]) -> set[str]:
    return {b for a, b in itertools.pairwise(words) if a in options}


def files(folder: Path) -> None:
    """One small file of each kind, and a damaged one beside it."""
    import numpy as np
    import onnx

    from relax2xla import build
    from relax2xla.importers.files import load
    from relax2xla.stablehlo import to_stablehlo
    from relax2xla.transform import LegalizeOps
    from tests.importers.onnx.mutants import F, info, model, node

    graph = model(
        [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])],
        [info("x", F, ["n", 4])],
        [info("y", F, ["n", 3])],
        {"w": np.arange(12, dtype=np.float32).reshape(4, 3)},
    )
    onnx.save(graph, folder / "model.onnx")
    mod = load(folder / "model.onnx", shapes={"n": 2})
    (folder / "model.relax").write_text(mod.script())
    low = LegalizeOps()(mod)
    (folder / "model.mlir").write_text(str(to_stablehlo(low, "text")))
    (folder / "model.mlirbc").write_bytes(bytes(to_stablehlo(low, "bytecode")))  # type: ignore[arg-type]
    (folder / "model.stablehlo").write_bytes(bytes(to_stablehlo(low, "portable")))  # type: ignore[arg-type]
    build(mod).export_library(folder / "model.r2x")
    x = np.ones((2, 4), np.float32)
    np.save(folder / "x.npy", x)
    np.savez(folder / "in.npz", x=x)
    draw = random.Random(0)
    for path in sorted(folder.iterdir()):
        (folder / f"bad{path.suffix}").write_bytes(some_bytes(path.read_bytes(), draw))
    (folder / "wrong.mlir").write_bytes((folder / "model.onnx").read_bytes())
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "notes.txt").write_text("no model")

"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def by_name(file: Path) -> Path:
    """The file of a model; one that stands for a name is made."""
    if ":" not in str(file):
        return file
    from relax2xla.cli.reading.named_models import resolved

    return resolved(file)


FILE = Annotated[
    Path,
    typer.Argument(
        callback=by_name,
        metavar="FILE",
        help="A model: .onnx, .pt2 (with --trust), .mlir, .mlirbc, .stablehlo, .relax or .py, or "
        "what jax.export serialised. Or one by name, where the package is installed: "
        "torchvision:resnet50, timm:NAME, hf:FOLDER or a cached name, jax:MODULE:FUNCTION.",
        show_default=False,
    ),
]
TRUST = Annotated[
    bool,
    typer.Option(
        "--trust", help="Use a file that can run code that is in it: .pt2, machine code of .r2x."
    ),
]
SHAPE = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZES",
        help="The size of a symbolic dimension (n=4), or the shape of an input (x=1x3x224x224). "
        "May be given several times.",
        show_default=False,
    ),
]


def _load_plugins(names: list[str] | None) -> list[str] | None:
    from relax2xla.cli.reading.plugins import load_plugins

    load_plugins(names)
    return names


PLUGIN = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="MODULE",
        callback=_load_plugins,
        help="A module, or a .py file, that registers converters of operators, or types that a "
        ".pt2 file names; its code runs. May be given several times.",
        show_default=False,
    ),
]


def _alone(asked: bool) -> bool:
    if asked:
        from relax2xla.cli.process.console import keep_for_json

        keep_for_json()
    return asked


# Eager: what plug-ins and models by name print comes after it, and goes to standard error.
JSON = Annotated[
    bool,
    typer.Option(
        "--json", callback=_alone, is_eager=True, help="As JSON, alone on standard output."
    ),
]
INPUTS = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        "-i",
        metavar="[NAME=]FILE|NUMBERS",
        help="Inputs: an .npz with an array for each parameter's name, .npy files in order of the "
        "parameters, or .json, also for maps, sequences and strings; or numbers, as in "
        "scales=1,1,2,2. What is not given is generated.",
        show_default=False,
    ),
]
SEED = Annotated[
    int, typer.Option(help="Seed of generated inputs: normal numbers; integers 0 and 1.", min=0)
]
DEVICE = Annotated[str, typer.Option(help="Where to run: cpu, cuda, cuda:1.")]
FUNCTION = Annotated[
    str, typer.Option("--function", metavar="NAME", help="The function to run, of several.")
]
WEIGHTS_TO = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="FILE|inline",
        help="Where the weights go: a .safetensors file in the folder of OUT, which OUT then "
        "names, or inline. By default beside .mlir and .relax that have more than 1 MiB.",
        show_default=False,
    ),
]
RTOL = Annotated[
    float | None,
    typer.Option(help="Relative tolerance; by default by dtype.", show_default=False, min=0),
]
ATOL = Annotated[
    float | None,
    typer.Option(help="Absolute tolerance; by default by dtype.", show_default=False, min=0),
]

"""Commands that read a model, and show, convert, run or save it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from relax2xla.cli.arguments.options import (
    DEVICE,
    FILE,
    FUNCTION,
    INPUTS,
    JSON,
    PLUGIN,
    SEED,
    SHAPE,
    TRUST,
    WEIGHTS_TO,
)
from relax2xla.cli.arguments.root import app


class To(StrEnum):
    """Forms that ``convert`` writes."""

    relax = "relax"
    mlir = "mlir"
    mlirbc = "mlirbc"
    stablehlo = "stablehlo"


@app.command()
def inspect(
    file: FILE,
    json: JSON = False,
    text: Annotated[bool, typer.Option("--text", help="Print the Relax text as well.")] = False,
    layers: Annotated[
        bool,
        typer.Option(
            "--layers",
            help="FLOPs, bytes and share of the time by the source's names, by a roofline of this "
            "machine, which is measured.",
        ),
    ] = False,
    forms: Annotated[
        bool,
        typer.Option(
            "--forms",
            help="What computes each convolution, product and recurrent layer here (functions in "
            "C++, oneDNN, XLA), and its share of the time by a roofline.",
        ),
    ] = False,
    support: Annotated[
        bool,
        typer.Option(
            "--support",
            help="Of an .onnx model: its opsets and operators, and those that cannot be converted, "
            "with their nodes and what to do. Nothing is converted.",
        ),
    ] = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Show a model's signature, operators and weights.

    And what runs where: on the device, or in steps on the host.

    With --support the exit status is 0 where every operator and attribute is supported, 1 where
    something is missing, and 2 where the file cannot be read.

    \b
    relax2xla inspect model.onnx
    relax2xla inspect model.onnx --layers --shape n=1   what each layer costs
    relax2xla inspect model.onnx --forms                what computes it here
    relax2xla inspect model.onnx --support
    relax2xla inspect model.onnx --support --plugin my_converters.py --json
    relax2xla inspect program.pt2 --trust
    relax2xla inspect model.onnx --shape batch=4 --text
    relax2xla inspect model.mlir --json | jq .operators
    relax2xla inspect model.r2x                         saved by relax2xla compile
    """
    if support:
        from relax2xla.cli.commands.support import run_support

        raise typer.Exit(run_support(file, json))
    from relax2xla.cli.commands.inspect import run_inspect

    run_inspect(file, json, text, trust, shape or [], layers, forms)


@app.command()
def convert(
    file: FILE,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where to write; its extension says what: .relax or .py (Relax text), .mlir "
            "(StableHLO text), .mlirbc (bytecode), .stablehlo (portable artefact). "
            "- is standard output and needs --to.",
            show_default=False,
        ),
    ],
    to: Annotated[
        To | None, typer.Option("--to", help="What to write, whatever the extension says.")
    ] = None,
    stablehlo_version: Annotated[
        str | None,
        typer.Option(
            metavar="X.Y.Z",
            help="Version of StableHLO for a portable artefact; by default the newest.",
            show_default=False,
        ),
    ] = None,
    weights: WEIGHTS_TO = None,
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Convert a model to Relax text or StableHLO.

    StableHLO is written as text, bytecode or a portable artefact. Weights stand in the program, or
    in a .safetensors file beside it. Each file appears complete or not at all.

    \b
    relax2xla convert model.onnx -o model.relax        read and edit it as Relax
    relax2xla convert model.relax -o model.mlir        and on to StableHLO
    relax2xla convert model.onnx -o model.mlir --weights model.safetensors
    relax2xla convert model.onnx --shape n=4 -o model.mlirbc
    relax2xla convert model.mlir -o model.stablehlo --stablehlo-version 1.0.0
    relax2xla convert model.mlirbc -o - --to mlir | less
    """
    from relax2xla.cli.commands.convert import run_convert

    run_convert(
        file,
        output,
        None if to is None else to.value,
        stablehlo_version,
        trust,
        shape or [],
        weights,
        json,
    )


@app.command()
def run(
    file: FILE,
    inputs: INPUTS = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Save the results: .npz by the model's names of them (output_0 without one), .npy "
            "for one alone, or .json. What no .npz can hold, such as maps, goes to a .json beside "
            "it.",
            show_default=False,
        ),
    ] = None,
    seed: SEED = 0,
    device: DEVICE = "cpu",
    function: FUNCTION = "main",
    profile: Annotated[
        bool, typer.Option("--profile", help="Show where the time goes, by the source's names.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the steps of one call as a Chrome trace (chrome://tracing, Perfetto).",
            show_default=False,
        ),
    ] = None,
    flame: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the same for https://www.speedscope.app, in the source's modules.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show what memory the program needs, by XLA's account.")
    ] = False,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Other weights by the model's names: .safetensors, .npz, a torch checkpoint "
            "(.pt), or the initializers of an .onnx model with its external data.",
            show_default=False,
        ),
    ] = None,
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Compile a model with XLA and run it once.

    FILE may also be an executable that relax2xla compile or export_library saved (.r2x). Its
    machine code is used with --trust only; without that XLA compiles its program again.

    \b
    relax2xla run model.onnx                            on inputs generated from seed 0
    relax2xla run model.onnx --inputs in.npz -o out.npz
    relax2xla run model.onnx -i x=image.npy --seed 7    x from a file, the others generated
    relax2xla run model.relax --shape n=4 --device cuda
    relax2xla run model.onnx --profile --trace trace.json --memory
    relax2xla run model.onnx --flame flame.json         a flame graph for speedscope
    relax2xla run model.onnx --weights tuned.safetensors
    relax2xla run model.r2x --trust                     saved by relax2xla compile
    relax2xla run torchvision:resnet50                  where torchvision is installed
    relax2xla run model.onnx --json | jq .outputs
    """
    from relax2xla.cli.commands.run import run_run
    from relax2xla.cli.figures.reports import Reports

    given, sizes, reports = inputs or [], shape or [], Reports(profile, trace, memory, flame)
    run_run(file, given, output, seed, device, function, trust, sizes, reports, weights, json)


@app.command("compile")
def compile_(
    file: FILE,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="OUT", help="Where to write: a .r2x file.", show_default=False
        ),
    ],
    compiled: Annotated[
        bool,
        typer.Option(
            "--compiled/--no-compiled",
            help="With machine code for processors like this one, so that nothing is compiled when "
            "it is loaded.",
        ),
    ] = True,
    raw_weights: Annotated[
        bool,
        typer.Option(
            "--raw-weights",
            help="Keep the weights as the model has them, so that each can be replaced when it is "
            "run, and compute what depends on them at load.",
        ),
    ] = False,
    device: DEVICE = "cpu",
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Save a model with its weights and compiled code (.r2x).

    Running it needs neither torch, onnx nor the model. On another kind of processor, or with
    another jaxlib, XLA compiles its program anew. OUT appears complete or not at all.

    \b
    relax2xla compile model.onnx -o model.r2x
    relax2xla compile model.onnx -o model.r2x --shape batch=8    a symbolic size, fixed
    relax2xla compile model.pt2 -o model.r2x --trust --no-compiled
    relax2xla run model.r2x --trust
    """
    from relax2xla.cli.commands.compile import run_compile

    run_compile(file, output, compiled, raw_weights, device, trust, shape or [], json)


@app.command()
def quantize(
    file: FILE,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where to write: .relax, .mlir or .mlirbc.",
            show_default=False,
        ),
    ] = None,
    weights: WEIGHTS_TO = None,
    bits: Annotated[int, typer.Option(help="Of a weight: 8 or 4.")] = 8,
    group: Annotated[int, typer.Option(help="How many weights share a scale.")] = 32,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run it beside the model as it was: the errors.")
    ] = False,
    inputs: INPUTS = None,
    seed: SEED = 0,
    device: DEVICE = "cpu",
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Write a model with weights in integers of 8 or 4 bits.

    A group of weights has a scale, and activations stay as they are. The weights of products,
    convolutions and tables are quantised; they are computed again once, when the model is loaded,
    so that the file is small and the speed stays.

    \b
    relax2xla quantize model.onnx -o model.mlirbc
    relax2xla quantize model.onnx -o small.mlir --weights small.safetensors
    relax2xla quantize model.pt2 --trust --bits 4 --group 64 --verify
    """
    from relax2xla.cli.commands.quantize import run_quantize
    from relax2xla.cli.proof.comparison import Asked

    asked = Asked(inputs or [], seed, None, None, device, False, False) if verify else None
    run_quantize(file, output, weights, bits, group, asked, trust, shape or [], json)


@app.command()
def view(
    file: FILE,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where to write: .html (a page), .svg (a picture), .dot (Graphviz), .json (for "
            "model-explorer) or .onnx (for Netron, to look at only). By default the model's name "
            "with .html, in this directory.",
            show_default=False,
        ),
    ] = None,
    stablehlo: Annotated[
        bool,
        typer.Option(
            "--stablehlo/--no-stablehlo", help="With the StableHLO text of each operator."
        ),
    ] = True,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Colour operators by their time: what run --trace FILE wrote, or the output of "
            "run --profile --json.",
            show_default=False,
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="In an .svg, close the modules that are inside of N others. By default all are "
            "open.",
            show_default=False,
        ),
    ] = None,
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Draw a model: one HTML page that works offline.

    It has the graph, weights and texts. FILE may also be an executable that relax2xla compile saved
    (.r2x).

    \b
    relax2xla view model.onnx                       writes model.html
    relax2xla view model.pt2 --trust -o net.html    modules by torch's names
    relax2xla view model.mlir -o model.svg
    relax2xla view model.onnx -o model.svg --depth 1
    relax2xla view model.relax -o model.dot         for Graphviz
    relax2xla view model.onnx -o graph.json         for model-explorer
    relax2xla run model.onnx --trace trace.json
    relax2xla view model.onnx --profile trace.json  coloured by time
    """
    from relax2xla.cli.commands.view import run_view

    run_view(file, output, trust, shape or [], stablehlo, profile, json, depth)

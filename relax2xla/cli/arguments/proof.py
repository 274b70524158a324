"""Commands that hold a model against others, or look for what is wrong in it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from relax2xla.cli.arguments.options import (
    ATOL,
    DEVICE,
    FILE,
    INPUTS,
    JSON,
    PLUGIN,
    RTOL,
    SEED,
    SHAPE,
    TRUST,
    by_name,
)
from relax2xla.cli.arguments.root import app


class Level(StrEnum):
    """What ``diff`` turns programs into before it compares them."""

    as_is = "as-is"
    stablehlo = "stablehlo"
    relax = "relax"
    model = "model"


@app.command()
def verify(
    file: FILE,
    inputs: INPUTS = None,
    seed: SEED = 0,
    rtol: RTOL = None,
    atol: ATOL = None,
    device: DEVICE = "cpu",
    taps: Annotated[
        bool | None,
        typer.Option(
            "--taps/--no-taps",
            help="Of an .onnx or .pt2 model, or StableHLO: compare what each node of its graph "
            "computes too, and name the first layer whose result departs; by default where an "
            "output departs.",
            show_default=False,
        ),
    ] = None,
    bisect: Annotated[
        Path | None,
        typer.Option(
            "--bisect",
            metavar="FOLDER",
            help="Write the smallest part that departs to this folder, as a model with its inputs, "
            "and a script that runs it both ways.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write the page of relax2xla view, coloured by the error of each layer.",
            show_default=False,
        ),
    ] = None,
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Compare results with the framework that a model comes from.

    The reference is torch for .pt2; for .onnx there are two, onnx.reference and, where it is
    installed, ONNX Runtime. StableHLO is compiled by XLA as the file has it, Relax text without any
    optimisation. The exit status is 1 where an output (with --taps: any value) is off by more than
    ATOL + RTOL times the expected value.

    \b
    relax2xla verify model.onnx
    relax2xla verify model.onnx --taps
    relax2xla verify program.pt2 --trust --taps
    relax2xla verify program.mlir --taps            beside StableHLO's interpreter and jax.jit
    relax2xla verify model.onnx --bisect wrong      then: python wrong/reproduce.py
    relax2xla verify model.onnx --html errors.html  the error of each layer, in colour
    relax2xla verify model.onnx --shape batch=2 --inputs in.npz
    """
    from relax2xla.cli.commands.verify import run_verify
    from relax2xla.cli.proof.comparison import Asked

    asked = Asked(inputs or [], seed, rtol, atol, device, taps, json, bisect, html, plugin or [])
    raise typer.Exit(run_verify(file, asked, trust, shape or []))


@app.command()
def bench(
    file: FILE,
    inputs: INPUTS = None,
    seed: SEED = 0,
    rounds: Annotated[int, typer.Option(help="Measurements of each variant.", min=1)] = 20,
    threads: Annotated[
        int | None,
        typer.Option(help="CPU threads for everyone; by default all.", show_default=False, min=1),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the times: .svg, or .html (one page that works offline).",
            show_default=False,
        ),
    ] = None,
    device: DEVICE = "cpu",
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Measure the latency beside frameworks that run the file.

    ONNX Runtime for .onnx, torch for .pt2, and plain jax.jit of the program as the file has it for
    StableHLO and Relax. All run in turn, round by round, on the same inputs; shown are medians.

    \b
    relax2xla bench model.onnx
    relax2xla bench program.pt2 --trust --threads 1
    relax2xla bench model.mlir --rounds 50 --json
    relax2xla bench model.onnx --plot times.svg
    """
    from relax2xla.cli.commands.bench import run_bench

    run_bench(file, inputs or [], seed, rounds, threads, device, json, trust, shape or [], plot)


@app.command()
def roundtrip(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="StableHLO programs (.mlir, .mlirbc, .stablehlo), and folders, which are searched "
            "for .mlir and .mlirbc. Text may hold several programs between lines // -----.",
            show_default=False,
        ),
    ],
    run: Annotated[bool, typer.Option("--run/--no-run", help="Run both with XLA as well.")] = True,
    json: JSON = False,
    seed: SEED = 0,
    isolate: Annotated[
        bool | None,
        typer.Option(
            "--isolate/--no-isolate",
            help="Work in a child process, so that an abort inside MLIR or XLA is one row; by "
            "default where a folder is given.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds for a program in the child process.", min=0.1)
    ] = 120.0,
    memory: Annotated[
        float, typer.Option(help="GiB of memory for the child process.", min=0.5)
    ] = 8.0,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Copy the programs that differ or fail to this folder.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Read StableHLO programs, write them back, and compare.

    The text that MLIR prints must be the same before and after. Then XLA runs both on the same
    inputs, and each bit of the results must be the same (any NaN equals any other). Symbolic
    dimensions have size 4. The exit status is 1 where something differs, and 2 where something
    cannot be read.

    \b
    relax2xla roundtrip model.mlir
    relax2xla roundtrip programs/ --no-run
    relax2xla roundtrip programs/ --json > report.json
    relax2xla roundtrip programs/ --timeout 20 --save failures
    """
    from relax2xla.cli.commands.roundtrip import Settings, run_roundtrip

    settings = Settings(run, json, seed, isolate, timeout, memory, save)
    raise typer.Exit(run_roundtrip(files, settings))


@app.command()
def diff(
    a: Annotated[
        Path,
        typer.Argument(metavar="A", callback=by_name, help="A program.", show_default=False),
    ],
    b: Annotated[
        Path,
        typer.Argument(
            metavar="B",
            callback=by_name,
            help="Another, in the same format or another one.",
            show_default=False,
        ),
    ],
    level: Annotated[
        Level | None,
        typer.Option(
            "--as",
            help="Compare the programs as they are, both lowered to StableHLO, both raised to "
            "high-level Relax operators, or as models: signature, weights within tolerance, "
            "operators. By default as they are, and as models where the formats differ.",
            show_default=False,
        ),
    ] = None,
    values: Annotated[
        bool,
        typer.Option(
            "--values", help="Run both on the same inputs: are the results the same, then?"
        ),
    ] = False,
    inputs: INPUTS = None,
    seed: SEED = 0,
    rtol: RTOL = None,
    atol: ATOL = None,
    device: DEVICE = "cpu",
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Show where two programs, or how two models differ.

    Structure, operators, attributes, types and constants are compared; names of variables and
    places in the source are not. Models are compared by the names and types of inputs and outputs,
    weights, and what is left after both were raised; with --values by their results, whatever
    computes them. The exit status is 0 for the same, 1 for another one, and 2 for an error.

    \b
    relax2xla diff before.mlir after.mlir
    relax2xla diff model.onnx model.mlir              a model and what was made of it
    relax2xla diff model.onnx model.pt2 --trust --values
    relax2xla diff model.relax model.mlir --as stablehlo
    relax2xla diff a.onnx b.onnx --json | jq -r .path
    """
    from relax2xla.cli.commands.diff import run_diff
    from relax2xla.cli.proof.comparison import Asked

    asked = Asked(inputs or [], seed, rtol, atol, device, False, json)
    chosen = None if level is None else level.value
    raise typer.Exit(run_diff((a, b), chosen, asked, values, trust, shape or []))


def _pass_names(incomplete: str) -> list[str]:
    """What completes the last name of a list of passes."""
    from relax2xla.cli.commands.opt import names

    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{n}" for n in names() if n.startswith(begun)]


@app.command()
def opt(
    file: FILE,
    passes: Annotated[
        list[str],
        typer.Option(
            "--passes",
            "--pass",
            metavar="A,B,C",
            help="Passes of relax2xla.transform in order (docs/passes.md), such as LegalizeOps or "
            "RaiseStableHLO; ConvertLayout=NHWC/HWIO, BindParams=weights.npz; the pipelines zero "
            "and default. May be given several times. A wrong name lists all.",
            show_default=False,
            autocompletion=_pass_names,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where to write: .relax, .py, .mlir, .mlirbc or .stablehlo (which are lowered). "
            "By default Relax text on standard output.",
            show_default=False,
        ),
    ] = None,
    print_before: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A", help="Print the module before this pass; all for each.", show_default=False
        ),
    ] = None,
    print_after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A", help="Print the module after this pass; all for each.", show_default=False
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Stop where a pass makes a module that is malformed.")
    ] = False,
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Run passes on a model, as mlir-opt does.

    What each pass did, and the modules before and after it, go to standard error.

    \b
    relax2xla opt model.mlir --passes RaiseStableHLO
    relax2xla opt model.onnx --passes FoldBatchNorm,ConvertLayout=NHWC/HWIO -o model.relax
    relax2xla opt model.relax --passes default,LegalizeOps -o model.mlir
    relax2xla opt model.relax --passes default --print-after ChannelsLast > /dev/null
    """
    from relax2xla.cli.commands.opt import run_opt

    before, after = print_before or [], print_after or []
    run_opt(file, passes, output, before, after, check, trust, shape or [], json)


@app.command()
def reduce(
    file: FILE,
    check: Annotated[
        str,
        typer.Option(
            "--check",
            metavar="COMMAND",
            help="A command of the shell that succeeds (exit status 0) where the fault shows. {} "
            "in it is the path of the program to try.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where to write: .relax, .py, .mlir, .mlirbc or .stablehlo, which is what the "
            "command is given, too. By default FILE.reduced in this directory, as FILE is written.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds for the command; then it has failed.", min=0.1)
    ] = 120.0,
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Shrink a program while a command of yours succeeds.

    Bindings, results, branches, functions and weights are left out, in large parts first, by delta
    debugging; what was computed from them takes an operand, a new input or zeros of the same shape
    and dtype. Each program that is tried is well-formed. Ctrl-C ends the search and keeps the
    smallest so far.

    A command that succeeds for any failure finds some failure; look for the message of yours.

    \b
    relax2xla reduce model.mlir --check '! relax2xla verify {}'
    relax2xla reduce model.onnx -o small.relax --check 'relax2xla run {} 2>&1 | grep -q LegalizeOps'
    relax2xla reduce model.relax --check 'python differs.py {}' --timeout 20 --json
    """
    from relax2xla.cli.commands.reduce import run_reduce

    run_reduce(file, check, output, timeout, trust, shape or [], json)

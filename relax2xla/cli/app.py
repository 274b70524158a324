"""The commands' arguments and help. What a command does is in the module of its name."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


class Level(StrEnum):
    """What ``diff`` turns programs into before it compares them."""

    as_is = "as-is"
    stablehlo = "stablehlo"
    relax = "relax"


class To(StrEnum):
    """Forms that ``convert`` writes."""

    relax = "relax"
    mlir = "mlir"
    mlirbc = "mlirbc"
    stablehlo = "stablehlo"


def _resolved(file: Path) -> Path:
    if ":" not in str(file):
        return file
    from relax2xla.cli.reading.named_models import resolved

    return resolved(file)


FILE = Annotated[
    Path,
    typer.Argument(
        callback=_resolved,
        help="A model: .onnx, .pt2 (with --trust), .mlir, .mlirbc, .stablehlo, .relax or .py, or "
        "what jax.export serialised. Or one by name, where the package is installed: "
        "torchvision:resnet50, timm:NAME, hf:FOLDER or a cached name, jax:MODULE:FUNCTION.",
        show_default=False,
    ),
]
TRUST = Annotated[
    bool, typer.Option("--trust", help="Read a .pt2 file, which can run code that is in it.")
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


def _version(asked: bool) -> None:
    if asked:
        from relax2xla import __version__

        typer.echo(f"relax2xla {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Say what happens, such as compilations and why; -vv more.",
        ),
    ] = 0,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Results and errors only, no remarks.")
    ] = False,
) -> None:
    """Relax IR on XLA: look at models, convert them, run, check and time them.

    \b
    relax2xla inspect model.onnx                what is in it, and what runs where
    relax2xla convert model.onnx -o model.mlir  ONNX to StableHLO text
    relax2xla run model.mlir                    on generated inputs
    relax2xla compile model.onnx -o model.r2x   saved with its compiled code
    relax2xla verify model.onnx                 same results as ONNX Runtime?
    relax2xla bench model.onnx                  as fast as ONNX Runtime?
    relax2xla roundtrip programs/               StableHLO read and written back unchanged?
    relax2xla reduce model.mlir --check CMD     a small program with the same fault
    relax2xla doctor                            what is installed, and what is missing?
    """
    from relax2xla.cli.process import settings

    group = context.command
    commands = {
        name: {
            str(p.name): bool(getattr(p, "multiple", False))
            for p in command.params
            if p.name not in ("help", "file")
        }
        for name, command in getattr(group, "commands", {}).items()
    }
    if context.invoked_subcommand != "config":
        context.default_map = settings.apply(commands)
    settings.set_verbosity(verbose, quiet)


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
    """Show a model's signature, operators, weights, and what runs where.

    With --support the exit status is 0 where every operator and attribute is supported, 1 where
    something is missing, and 2 where the file cannot be read.

    \b
    relax2xla inspect model.onnx
    relax2xla inspect model.onnx --layers --shape n=1   what each layer costs
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

    run_inspect(file, json, text, trust, shape or [], layers)


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
    """Convert a model to Relax text, StableHLO text, bytecode or a portable artefact.

    Weights stand in the program, or in a .safetensors file beside it. Each file appears complete or
    not at all.

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
    relax2xla run model.onnx --weights tuned.safetensors
    relax2xla run model.r2x --trust                     saved by relax2xla compile
    relax2xla run torchvision:resnet50                  where torchvision is installed
    relax2xla run model.onnx --json | jq .outputs
    """
    from relax2xla.cli.commands.run import run_run
    from relax2xla.cli.figures.reports import Reports

    given, sizes, reports = inputs or [], shape or [], Reports(profile, trace, memory)
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
    """Save a model as one file with its weights and compiled code (.r2x).

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
            help="Of an .onnx or .pt2 model: compare what each node of its graph computes too, and "
            "name the first layer whose result departs; by default where an output departs.",
            show_default=False,
        ),
    ] = None,
    bisect: Annotated[
        Path | None,
        typer.Option(
            "--bisect",
            metavar="FOLDER",
            help="Of an .onnx or .pt2 model: write the smallest part that departs to this folder, "
            "as a model with its inputs, and a script that runs it both ways.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Of an .onnx or .pt2 model: write the page of relax2xla view, coloured by the "
            "error of each layer.",
            show_default=False,
        ),
    ] = None,
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Compare the results with those of the framework that the model comes from.

    The reference is torch for .pt2; for .onnx there are two, onnx.reference and, where it is
    installed, ONNX Runtime. StableHLO is compiled by XLA as the file has it, Relax text without any
    optimisation. The exit status is 1 where an output (with --taps: any value) is off by more than
    ATOL + RTOL times the expected value.

    \b
    relax2xla verify model.onnx
    relax2xla verify model.onnx --taps
    relax2xla verify program.pt2 --trust --taps
    relax2xla verify model.onnx --bisect wrong      then: python wrong/reproduce.py
    relax2xla verify model.onnx --html errors.html  the error of each layer, in colour
    relax2xla verify model.onnx --shape batch=2 --inputs in.npz
    """
    from relax2xla.cli.commands.verify import run_verify
    from relax2xla.cli.proof.comparison import Asked

    asked = Asked(inputs or [], seed, rtol, atol, device, taps, json, bisect, html)
    raise typer.Exit(run_verify(file, asked, trust, shape or []))


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
    """Write a model with weights in integers of 8 or 4 bits, with a scale a group.

    Activations stay as they are. The weights of products, convolutions and tables are quantised;
    they are computed again once, when the model is loaded, so that the file is small and the speed
    stays.

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
def bench(
    file: FILE,
    inputs: INPUTS = None,
    seed: SEED = 0,
    rounds: Annotated[int, typer.Option(help="Measurements of each variant.", min=1)] = 20,
    threads: Annotated[
        int | None,
        typer.Option(help="CPU threads for everyone; by default all.", show_default=False, min=1),
    ] = None,
    device: DEVICE = "cpu",
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Measure the latency beside the frameworks that can run the same file.

    ONNX Runtime for .onnx, torch for .pt2, and plain jax.jit of the program as the file has it for
    StableHLO and Relax. All run in turn, round by round, on the same inputs; shown are medians.

    \b
    relax2xla bench model.onnx
    relax2xla bench program.pt2 --trust --threads 1
    relax2xla bench model.mlir --rounds 50 --json
    """
    from relax2xla.cli.commands.bench import run_bench

    run_bench(file, inputs or [], seed, rounds, threads, device, json, trust, shape or [])


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
        typer.Argument(metavar="A", callback=_resolved, help="A program.", show_default=False),
    ],
    b: Annotated[
        Path,
        typer.Argument(
            metavar="B",
            callback=_resolved,
            help="Another, in the same format or another one.",
            show_default=False,
        ),
    ],
    level: Annotated[
        Level,
        typer.Option(
            "--as",
            help="Compare the programs as they are, both lowered to StableHLO, or both raised to "
            "high-level Relax operators.",
        ),
    ] = Level.as_is,
    json: JSON = False,
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Show the first place where two programs are not the same.

    Structure, operators, attributes, types and constants are compared; names of variables and
    places in the source are not. The exit status is 0 for the same program and 1 for another one.

    \b
    relax2xla diff before.mlir after.mlir
    relax2xla diff model.relax model.mlir --as stablehlo
    relax2xla diff a.onnx b.onnx --json | jq -r .path
    """
    from relax2xla.cli.commands.diff import run_diff

    raise typer.Exit(run_diff((a, b), level.value, json, trust, shape or []))


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
    """Shrink a program for as long as a command of yours succeeds (delta debugging).

    Bindings, results, branches, functions and weights are left out, in large parts first; what was
    computed from them takes an operand, a new input or zeros of the same shape and dtype. Each
    program that is tried is well-formed. Ctrl-C ends the search and keeps the smallest so far.

    A command that succeeds for any failure finds some failure; look for the message of yours.

    \b
    relax2xla reduce model.mlir --check '! relax2xla verify {}'
    relax2xla reduce model.onnx -o small.relax --check 'relax2xla run {} 2>&1 | grep -q LegalizeOps'
    relax2xla reduce model.relax --check 'python differs.py {}' --timeout 20 --json
    """
    from relax2xla.cli.commands.reduce import run_reduce

    run_reduce(file, check, output, timeout, trust, shape or [], json)


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
    trust: TRUST = False,
    shape: SHAPE = None,
    plugin: PLUGIN = None,
) -> None:
    """Draw a model: one HTML page with its graph, weights and texts, which works offline.

    FILE may also be an executable that relax2xla compile saved (.r2x).

    \b
    relax2xla view model.onnx                       writes model.html
    relax2xla view model.pt2 --trust -o net.html    modules by torch's names
    relax2xla view model.mlir -o model.svg
    relax2xla view model.relax -o model.dot         for Graphviz
    relax2xla view model.onnx -o graph.json         for model-explorer
    relax2xla run model.onnx --trace trace.json
    relax2xla view model.onnx --profile trace.json  coloured by time
    """
    from relax2xla.cli.commands.view import run_view

    run_view(file, output, trust, shape or [], stablehlo, profile)


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove every entry.")] = False,
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Remove the least recently used entries until at most this much is left, "
            "such as 500M.",
            show_default=False,
        ),
    ] = None,
    json: JSON = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Remove without asking, on a terminal, too.")
    ] = False,
) -> None:
    """Show or clear the disk cache of compiled programs.

    Every program that XLA compiles is kept there, and no process of this user compiles it again.
    RELAX2XLA_CACHE=0 turns the cache off, RELAX2XLA_CACHE_DIR moves it, and RELAX2XLA_CACHE_LIMIT
    says how large it may grow (by default 1G). On a terminal it says what --limit and --clear will
    remove, and asks.

    \b
    relax2xla cache
    relax2xla cache --limit 200M
    relax2xla cache --clear
    """
    from relax2xla.cli.commands.cache import run_cache

    run_cache(clear, limit, json, yes)


@app.command()
def doctor(
    json: JSON = False,
) -> None:
    """Show what is installed, what this machine has, and what is missing.

    Versions, processor, devices, what oneDNN computes, the disk cache, and the extras that are not
    there with the line that installs them. A small program is run; the exit status is 1 where that
    fails.

    \b
    relax2xla doctor
    relax2xla doctor --json > report.json       for a bug report
    """
    from relax2xla.cli.commands.doctor import run_doctor

    raise typer.Exit(run_doctor(json))


@app.command()
def config(
    json: JSON = False,
    example: Annotated[
        bool, typer.Option("--example", help="Print an example of the file.")
    ] = False,
) -> None:
    """Show the settings, their environment variables, and the file that sets them.

    The file is ~/.config/relax2xla/config.toml, or what RELAX2XLA_CONFIG names. Its table
    [settings] stands for the variables, which win; a table with the name of a command has defaults
    of its options.

    \b
    relax2xla config
    relax2xla config --example > ~/.config/relax2xla/config.toml
    """
    from relax2xla.cli.process.settings import run_config

    run_config(json, example)

"""The command ``relax2xla`` itself: what stands before the name of a command."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    # Ours take the name of a shell, too: that of a user is not always the one that is found.
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        from relax2xla import __version__

        typer.echo(f"relax2xla {__version__}")
        raise typer.Exit


def _install_completion(shell: str | None) -> None:
    if shell is not None:
        from relax2xla.cli.process import completion

        name, path = completion.install(shell)
        typer.echo(f"completion for {name} installed in {path}; new shells have it")
        raise typer.Exit


def _show_completion(shell: str | None) -> None:
    if shell is not None:
        from relax2xla.cli.process import completion

        typer.echo(completion.script(shell))
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
    install_completion: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="[SHELL]",
            callback=_install_completion,
            is_eager=True,
            help="Install completion: for bash, zsh, fish, powershell, pwsh, or the shell that "
            "this is started from.",
            show_default=False,
        ),
    ] = None,
    show_completion: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="[SHELL]",
            callback=_show_completion,
            is_eager=True,
            help="Print the same, to install it otherwise.",
            show_default=False,
        ),
    ] = None,
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

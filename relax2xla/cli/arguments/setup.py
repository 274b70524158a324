"""Commands about this installation: its cache, its parts, its settings."""

from __future__ import annotations

from typing import Annotated

import typer

from relax2xla.cli.arguments.options import JSON
from relax2xla.cli.arguments.root import app


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
    """Show what is installed, and what is missing.

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
    """Show the settings, their variables, and their file.

    The file is ~/.config/relax2xla/config.toml, or what RELAX2XLA_CONFIG names. Its table
    [settings] stands for the variables, which win; a table with the name of a command has defaults
    of its options.

    \b
    relax2xla config
    relax2xla config --example > ~/.config/relax2xla/config.toml
    """
    from relax2xla.cli.process.settings import run_config

    run_config(json, example)

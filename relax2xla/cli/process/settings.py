"""Settings of the command line: environment variables, and a file that gives their defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relax2xla.budget import parse_size
from relax2xla.errors import FileFormatError, TVMError

#: Where the file is, if not in the user's folder of configurations.
FILE: Final = "RELAX2XLA_CONFIG"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name in the file, its environment variable, its default, what it does."""

    name: str
    variable: str
    default: str
    meaning: str


SETTINGS: Final = (
    Setting("cache", "RELAX2XLA_CACHE", "1", "0 keeps no compiled programs on disk"),
    Setting("cache_dir", "RELAX2XLA_CACHE_DIR", "", "the folder of the disk cache"),
    Setting("cache_limit", "RELAX2XLA_CACHE_LIMIT", "1G", "how large the disk cache may grow"),
    Setting(
        "memory_limit",
        "RELAX2XLA_MEMORY_LIMIT",
        "",
        "the largest value, or program, that is tried; by default four times the memory",
    ),
    Setting(
        "keep_memory",
        "RELAX2XLA_KEEP_MEMORY",
        "1",
        "0 leaves memory as the C library and the system have it, which costs time in each call",
    ),
    Setting("no_color", "NO_COLOR", "", "any value: no colours on terminals"),
    Setting("xla_flags", "XLA_FLAGS", "", "options of XLA"),
    Setting("jax_platforms", "JAX_PLATFORMS", "", "platforms that JAX starts, such as cpu"),
)

_EXAMPLE: Final = """# ~/.config/relax2xla/config.toml
[settings]                # as the environment variables, which win
cache_limit = "4G"
[run]                     # defaults of a command's options
device = "cuda"
[bench]
rounds = 50
"""


def config_file() -> Path:
    """Where the file is, or would be."""
    named = os.environ.get(FILE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return folder / "relax2xla" / "config.toml"


def read_config() -> dict[str, dict[str, Any]]:
    """The tables of the file; FileFormatError for one that is no TOML, or that is not there."""
    path = config_file()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if os.environ.get(FILE):
            raise FileFormatError(f"{path}: there is no such file; {FILE} names it") from None
        return {}
    except (OSError, UnicodeDecodeError) as e:
        raise FileFormatError(f"{path}: cannot be read: {e}") from None
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise FileFormatError(f"{path}: {e}") from None
    for name, table in found.items():
        if not isinstance(table, dict):
            raise FileFormatError(f"{path}: {name!r} stands outside of a table such as [run]")
    return found


def apply(commands: Mapping[str, Mapping[str, bool]]) -> dict[str, dict[str, Any]]:
    """Set the environment as the file says, where it says nothing itself; defaults by command.

    ``commands``: the options of each command, and whether one may be given several times.
    FileFormatError for what the file gets wrong.
    """
    path, found = config_file(), read_config()
    variables = {s.name: s.variable for s in SETTINGS}
    settings = found.pop("settings", {})
    _check(path, "settings", settings, set(variables))
    for name, value in settings.items():
        if not isinstance(value, str | int):
            raise FileFormatError(f"{path}: settings.{name} is a text or number; got {value!r}")
        os.environ.setdefault(variables[name], str(int(value) if value is True else value))
    for s in SETTINGS:
        _check_size(path, s, settings)
    for command, options in found.items():
        if command not in commands:
            raise FileFormatError(
                f"{path}: there is no command {command!r}; tables are settings, "
                f"{', '.join(sorted(commands))}"
            )
        _check(path, command, options, set(commands[command]))
        for name, value in options.items():
            if commands[command][name] and not isinstance(value, list):
                options[name] = [str(value)]
    return found


def _check_size(path: Path, setting: Setting, told: Mapping[str, Any]) -> None:
    """TVMError where a setting that is a size has another value, with the place of it."""
    value = os.environ.get(setting.variable)
    if not value or not setting.name.endswith("_limit"):
        return
    try:
        parse_size(value)
    except ValueError as e:
        in_file = str(told.get(setting.name)) == value
        where = f"{path}: settings.{setting.name}" if in_file else setting.variable
        raise TVMError(f"{where}: {e}") from None


def _check(path: Path, table: str, given: Mapping[str, Any], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise FileFormatError(
                f"{path}: [{table}] has no {name!r}; it has {', '.join(sorted(known))}"
            )


def run_config(as_json: bool, example: bool) -> None:
    """Print where the file is, and each setting with where it comes from."""
    from relax2xla.cli.process.console import out, print_json, table

    if example and as_json:
        print_json({"file": str(config_file()), "example": _EXAMPLE})
        return
    if example:
        out(_EXAMPLE.rstrip())
        return
    path, found = config_file(), read_config()
    held = found.get("settings", {})
    rows: list[dict[str, str]] = []
    for s in SETTINGS:
        value = os.environ.get(s.variable)
        told = str(held.get(s.name, "")) if s.name in held else None
        source = "default" if value is None else "file" if told == value else "environment"
        shown = s.default if value is None else value
        rows.append(
            {"name": s.name, "variable": s.variable, "value": shown, "from": source}
            | {"meaning": s.meaning}
        )
    defaults = {k: v for k, v in found.items() if k != "settings"}
    if as_json:
        data = {"file": str(path), "exists": path.is_file(), "settings": rows, "options": defaults}
        print_json(data)
        return
    out(f"{path}{'' if path.is_file() else ': not there (relax2xla config --example shows one)'}\n")
    columns = ("setting", "variable", "value", "from", "meaning")
    names = ("name", "variable", "value", "from", "meaning")
    table(columns, [tuple(r[n] for n in names) for r in rows])
    for command, options in defaults.items():
        given = ", ".join(f"{k} = {v!r}" for k, v in options.items())
        out(f"\n{command}: {given}")


def set_verbosity(verbose: int, quiet: bool) -> None:
    """What the library logs, on standard error: warnings, with -v what happens, -vv all of it."""
    import logging

    from relax2xla.cli.process import console

    if verbose and quiet:
        raise TVMError("-v and -q ask for opposite things; give one of them")
    console.quiet(quiet)
    level = (
        logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    )
    logger = logging.getLogger("relax2xla")
    logger.setLevel(level)
    if verbose:
        logging.basicConfig(format="%(levelname).1s %(name)s: %(message)s")

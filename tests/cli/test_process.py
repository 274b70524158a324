"""The command as a process: what it loads, help, versions, interruption, a closed pipe."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import relax2xla
from relax2xla.cli.app import app
from relax2xla.cli.figures import timing
from relax2xla.cli.process import console

from .conftest import RELAX, ROOT, Cli, shell


def test_starting_loads_no_framework() -> None:
    code = (
        "import sys, relax2xla.cli\n"
        "relax2xla.cli.main(['--help'])\n"
        "heavy = ('jax', 'jaxlib', 'torch', 'onnx', 'onnxruntime', 'rich', 'scipy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert done.stdout.rstrip().endswith("[]")


def test_version(cli: Cli) -> None:
    done = cli("--version")
    assert (done.code, done.out) == (0, f"relax2xla {relax2xla.__version__}\n")


COMMANDS = [c.name or c.callback.__name__ for c in app.registered_commands if c.callback]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_teaches(command: str, cli: Cli) -> None:
    """CONTRIBUTING.md, "Add a command", says what a command has."""
    done = cli(*command.split(), "--help")
    assert done.code == 0
    example = f"relax2xla {command or 'inspect'} "
    assert example in done.out.partition("\n\n")[2], "its docstring ends with an example"
    assert "\x1b" not in done.out
    assert "..." not in done.out.partition("\nCommands:\n")[2]  # no line is cut


@pytest.mark.parametrize("command", COMMANDS)
def test_the_document_names_every_command(command: str) -> None:
    told = re.search(rf"relax2xla {command}\b", (ROOT / "docs" / "cli.md").read_text())
    assert told, "put it into the list at the top of docs/cli.md"


def test_no_arguments_show_the_help(cli: Cli) -> None:
    done = cli()
    assert "inspect" in done.out + done.err


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "model.relax").write_text(RELAX)
    # The renaming waits, so that the signal comes while the file is being written. It waits in
    # short steps: a signal that comes just before a long sleep is seen after it only.
    code = (
        "import os, sys, time, relax2xla.cli\n"
        "def fsync(descriptor):\n"
        "    print('writing', flush=True)\n"
        "    for _ in range(1200): time.sleep(0.05)\n"
        "os.fsync = fsync\n"
        "sys.exit(relax2xla.cli.main(['convert', 'model.relax', '-o', 'out.mlir', "
        "'--shape', 'n=2']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert [p.name for p in tmp_path.iterdir()] == ["model.relax"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="alarms of POSIX")
@pytest.mark.parametrize("module", ["drops", "lasts"])
def test_an_interruption_in_an_import_is_not_lost(module: str, tmp_path: Path) -> None:
    """A module that drops exceptions, and one whose import does not end, which a second ends."""
    (tmp_path / "drops.py").write_text(
        "import os, signal, time\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0.1)\n"
        "except BaseException: pass\n"
    )
    (tmp_path / "lasts.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(0.6)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    code = (
        "import os, time\n"
        "from relax2xla.cli.process.signals import signals\n"
        "with signals():\n"
        f"    import {module}\n"
        "    time.sleep(0.5)\n"
        "    print('went on')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stdout == ""
    assert set(done.stderr.split("\n")) == {"", "relax2xla: interrupted"}


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors of POSIX")
def test_streams_that_are_closed_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "model.relax").write_text(RELAX)
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        words = f"exec '{sys.executable}' -m relax2xla convert model.relax -o out.mlir {closed}"
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            words, shell=True, cwd=tmp_path, capture_output=True, text=True, env=env, check=False
        )
        assert (done.returncode, "error" in done.stderr) == (0, False)
        out = tmp_path / "out.mlir"
        assert out.read_text().rstrip().endswith("}")
        out.unlink()


def test_a_closed_pipe_is_no_error_message(tmp_path: Path) -> None:
    (tmp_path / "model.relax").write_text(RELAX)
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        [sys.executable, "-m", "relax2xla", "inspect", "model.relax"],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        os.close(write)
        _, err = process.communicate(timeout=60)
    assert err == ""
    assert process.returncode == 141  # as of one that SIGPIPE ended


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux that is always full")
def test_a_device_that_is_full_is_one_plain_message(tmp_path: Path) -> None:
    (tmp_path / "model.relax").write_text(RELAX)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "relax2xla", "inspect", "model.relax"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 2
    expected = "relax2xla: error: the output cannot be written: No space left on device\n"
    assert done.stderr == expected


def test_results_go_to_standard_output_and_progress_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "model.relax").write_text(RELAX)
    done = shell("run", "model.relax", "--shape", "n=2", "-o", "out.npy", cwd=tmp_path)
    assert done.returncode == 0
    assert "output_0" in done.stdout
    assert "wrote" in done.stderr
    assert "wrote" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_plain_tables_are_aligned() -> None:
    text = console.plain_table(("name", "ms"), [("a", "1.5"), ("long", "10.25")], (False, True))
    assert text == "name     ms\na       1.5\nlong  10.25"


def test_sizes() -> None:
    assert [console.size(n) for n in (5, 2048, 3 * 2**20, 5 * 2**30)] == [
        "5 B",
        "2.0 KiB",
        "3.0 MiB",
        "5.0 GiB",
    ]


def test_interleaved_runs_all_in_turn() -> None:
    order: list[str] = []
    variants = {n: lambda n=n: order.append(n) for n in "ab"}
    times = timing.interleaved(variants, rounds=2, calls=1, warmup=1)
    assert order == ["a", "b", "a", "b", "b", "a"]
    assert {n: len(t) for n, t in times.items()} == {"a": 2, "b": 2}
    assert timing.ratio({"a": [2.0, 4.0], "b": [1.0, 2.0]}, "a", "b") == 2


def test_rounds_and_calls_follow_what_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def taking(seconds: float) -> Callable[[], None]:
        def run() -> None:
            nonlocal now
            now += seconds

        return run

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert timing.calls_for(taking(0.01)) == 1
    assert timing.calls_for(taking(1e-4)) == 20
    assert timing.calls_for(taking(0)) == 1000
    assert timing.rounds_for({"a": taking(0.01), "b": taking(0.015)}, 0.2) == 4
    assert timing.rounds_for({"a": taking(0.1)}, 0.2) == 3
    assert timing.rounds_for({"a": taking(1e-6)}, 1, most=20) == 20


def test_untimed_calls_come_before_each_measurement() -> None:
    order: list[str] = []
    variants = {n: lambda n=n: order.append(n) for n in "ab"}
    timing.interleaved(variants, rounds=1, warmup=0, untimed=1)
    assert order == ["a", "a", "b", "b"]

"""The process that runs a command, and the one that the user started, which watches it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def supervised(code: str, *words: str) -> subprocess.Popen[str]:
    """A process whose command is ``code``, under the supervisor."""
    text = (
        "import os, signal, sys, time\n"
        "from relax2xla.cli.process import supervise\n"
        "from relax2xla.cli.process.signals import signals\n"
        f"def command():\n    with signals():\n        {code}\n    return 0\n"
        f"sys.exit(supervise.supervised(command{''.join(words)}))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def ended(code: str, *words: str) -> tuple[int, str, str]:
    with supervised(code, *words) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_command_runs_in_a_child_with_the_same_streams() -> None:
    code, out, err = ended("print('out'); print('err', file=sys.stderr); os.write(2, b'native\\n')")
    assert (code, out) == (0, "out\n")
    assert err == "err\nnative\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os.abort()", "ended by SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "out of memory"),
        ("os._exit(1)", "ended with status 1"),
        ("os.write(2, b'x\\nF1 a.cc:3] Check failed: no tuple\\ny\\n'); os.abort()", "no tuple"),
    ],
)
def test_what_ends_the_process_is_one_message(code: str, said: str) -> None:
    status, out, err = ended(code)
    assert (status, out) == (2, "")
    assert err.startswith("relax2xla: error: the process that did the work")
    assert said in err
    assert len(err.splitlines()) == 2


def test_debug_shows_what_native_code_wrote() -> None:
    _, _, err = ended("os.write(2, b'all of it\\n'); os.abort()", ", debug=True")
    assert err.startswith("all of it\n")
    assert "SIGABRT" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [False, True])
def test_signals_reach_the_command(number: signal.Signals, group: bool) -> None:
    # In short steps: a signal that comes just before a long sleep is seen after it only.
    code = "print(os.getpid(), flush=True); [time.sleep(0.05) for _ in range(1200)]"
    with supervised(code) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert child != process.pid
        if group:  # as a terminal does, and the parent passes it on as well
            os.kill(child, number)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert err == "\nrelax2xla: interrupted\n"


def test_the_command_ends_with_its_parent() -> None:
    code = "print('begun', flush=True); time.sleep(60)"
    with supervised(code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
        # The child holds the other end of the pipe: reading ends when it does.
        assert process.communicate(timeout=30) == ("", "")


def test_a_closed_standard_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m relax2xla --version 2>&-",
        shell=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "relax2xla")

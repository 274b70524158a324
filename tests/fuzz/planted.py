"""Targets with known faults, which the engine has to find."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from relax2xla.errors import FileFormatError, OpError
from tests.fuzz.target import Target, Wrong


class Faults(Target):
    """Input ``n`` has the fault ``n % len(FAULTS)``."""

    name, title = "planted.Faults", "one fault of each kind"
    seconds = 3.0

    def input(self, number: int) -> int:
        return number % len(FAULTS)

    def make(self, draw: random.Random) -> int:
        raise NotImplementedError

    def attempt(self, made: int, folder: Path) -> str:
        sys.stdout.write("what a library prints is no answer\n")
        match FAULTS[made]:
            case "accepted":
                return "read"
            case "refused":
                raise OpError("axis 5 is out of range")
            case "wrong":
                raise Wrong("1 instead of 2")
            case "leaked":
                return str({}["nothing"])
            case "leaked behind an error":
                try:
                    return [""][1]
                except IndexError as e:
                    raise FileFormatError(f"the file cannot be read: {e}") from e
            case "died":
                os.abort()
            case "hung":
                time.sleep(60)
            case _:
                self.phase("run")
                time.sleep(60)
        return ""


FAULTS = (
    *("accepted", "refused", "wrong", "leaked", "leaked behind an error", "died", "hung"),
    "endless",
)

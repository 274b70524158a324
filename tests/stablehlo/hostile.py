"""Reads mutants of StableHLO programs in a child process, and says which of them end it.

As a program (``python hostile.py``) it is that child: it takes a JSON list of mutants from standard
input, reads each, writes it back, and prints one line a mutant: ``ok`` or the name of the error.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

MEMORY = 6 << 30
SECONDS = 300
TYPES = (
    "tensor<f32>",
    "tensor<2xi32>",
    "tensor<?xf32>",
    "tensor<0xi1>",
    "tensor<2x2xcomplex<f32>>",
    "tensor<1048576x1048576xf32>",
    "tensor<9223372036854775807xi8>",
    "tuple<tensor<f32>>",
    "!stablehlo.token",
    "tensor<2x!quant.uniform<i8:f32, 0.5>>",
    "tensor<?xf32, #stablehlo.bounds<4>>",
    "tensor<*xf32>",
    "tensor<2xindex>",
    "none",
)
_TYPE = re.compile(r"tensor<[^<>]*(?:<[^<>]*>[^<>]*)*>|!stablehlo\.token|tuple<[^>]*>>?")
_ATTRIBUTE = re.compile(r",?\s*\w+ = (?:\[[^\]]*\]|#?[\w.]+<[^>]*>|\"[^\"]*\"|[-\w.:]+)")
_NUMBER = re.compile(r"(?<![\w%#@])-?\d+(?![\w.])")


def mutants(text: str, seed: int = 0, count: int = 40) -> Iterator[str]:
    """Mutants of one program, the same ones every time."""
    rng = random.Random(f"{seed}{text}")
    spots = [m.span() for m in _ATTRIBUTE.finditer(text)]
    for start, end in spots:
        yield text[:start] + text[end:]
    for start, end in _sample(rng, [m.span() for m in _TYPE.finditer(text)], count):
        yield text[:start] + rng.choice(TYPES) + text[end:]
    for start, end in _sample(rng, [m.span() for m in _NUMBER.finditer(text)], count):
        value = rng.choice(["-1", "0", "7", "4294967296", "9223372036854775807", "1e400"])
        yield text[:start] + value + text[end:]
    for _ in range(count // 4):
        yield text[: rng.randrange(len(text))]
        start = rng.randrange(len(text))
        junk = "".join(rng.choice('%<>x0 f:{}[]()"@#\0é') for _ in range(rng.randrange(1, 5)))
        yield text[:start] + junk + text[start + rng.randrange(12) :]


def _sample(
    rng: random.Random, spots: Sequence[tuple[int, int]], count: int
) -> list[tuple[int, int]]:
    return rng.sample(spots, min(count, len(spots)))


def damaged(data: bytes, seed: int = 0, count: int = 40) -> Iterator[bytes]:
    """Bytecode cut short or with bytes changed."""
    rng = random.Random(seed)
    for _ in range(count):
        yield data[: rng.randrange(len(data))]
        made = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            made[rng.randrange(len(made))] = rng.randrange(256)
        yield bytes(made)


def outcomes(programs: Sequence[str | bytes]) -> list[str]:
    """What reading each program gave: ``ok``, the name of the error, or ``died (...)``."""
    made: list[str] = []
    while len(made) < len(programs):
        todo = [p if isinstance(p, str) else {"hex": p.hex()} for p in programs[len(made) :]]
        child = subprocess.run(
            [sys.executable, __file__],
            input=json.dumps(todo),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            cwd=Path(__file__).parents[2],
            check=False,
        )
        made += child.stdout.split("\n")[:-1]
        if child.returncode:
            lines = child.stderr.strip().splitlines() or ["no message"]
            made.append(f"died ({child.returncode}): {lines[0][:200]}")
    return made


def _child() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from relax2xla.errors import TVMError
    from relax2xla.stablehlo import emit, parse, read

    for held in json.load(sys.stdin):
        program = held if isinstance(held, str) else bytes.fromhex(held["hex"])
        try:
            module = parse(program)
            again = emit(read(module))
            result = "ok" if str(again) == str(module) else "differs"
        except TVMError as e:
            result = type(e).__name__
        except Exception as e:
            result = f"leaked {type(e).__name__}: {' '.join(str(e).split())[:200]}"
        sys.stdout.write(result + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _child()

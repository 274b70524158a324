"""Damaged and hostile programs: one clear error or success each, never the end of the process.

The mutants are read in a child process with limits on memory and time (hostile.py).
"""

# ruff: noqa: E501 (MLIR text)
from __future__ import annotations

import base64
import sys
from typing import Any

import jax
import numpy as np
import pytest

from relax2xla.errors import StableHLOParseError
from relax2xla.stablehlo import parse, read, to_stablehlo

from . import jax_programs
from .hostile import damaged, mutants, outcomes
from .test_roundtrip import TEXTS

ERRORS = {"ok", "StableHLOParseError", "OpNotImplemented", "EmitError", "UnsupportedError"}
NAMES = ("conv_groups", "sort", "scatter_add", "switch", "dot_algorithm", "avg_pool", "random_bits")


def text_of(name: str) -> str:
    fn, args = next(p[1:] for p in jax_programs.PROGRAMS if p[0] == name)
    return str(jax.jit(fn).lower(*args).compiler_ir("stablehlo"))


def generic(text: str) -> str:
    """The form of MLIR's text that spells every attribute."""
    return parse(text).operation.get_asm(print_generic_op_form=True)


def check(programs: list[Any], crashes: int = 0) -> None:
    """``crashes``: how many may end the child, by errors of MLIR's own that no check can foresee."""
    found = zip(programs, outcomes(programs), strict=True)
    bad = [(result, program) for program, result in found if result not in ERRORS]
    foreseen = [b for b in bad if not b[0].startswith("died") or "nanobind" in b[0]]
    assert foreseen == []
    assert len(bad) <= crashes, bad


def test_mutated_text() -> None:
    texts = [*TEXTS.values(), *map(text_of, NAMES)]
    check([m for text in texts for m in (*mutants(text, 1, 6), *mutants(generic(text), 2, 6))])


def test_damaged_bytecode() -> None:
    mod = read(parse(text_of("sort")))
    check(list(damaged(to_stablehlo(mod, "bytecode"), 3, 40)), crashes=2)


def test_damaged_portable_artefact() -> None:
    mod = read(parse(text_of("sort")))
    check(list(damaged(to_stablehlo(mod, "portable"), 4, 40)), crashes=2)


# Strings and constants that jaxlib cannot show; MLIR prints bytes beyond ASCII as escapes.
STRANGE = [
    r'func.func @main() attributes {"a.\D2" = 1} { return }',
    r'func.func @main() attributes {a.b = "\D2"} { return }',
    r'func.func @main() attributes {a.b = {"\D2" = 1}} { return }',
    r'func.func @"\D2"() { return }',
    r'func.func @main() { return loc("\D2") }',
    r'module @"\D2" {}',
    r'func.func @main() attributes {a.b = ["\D2", dense<(1.0,2.0)> : tensor<complex<f32>>]} { return }',
    r"func.func @main() attributes {a.b = dense<(1.0,2.0)> : tensor<complex<f32>>} { return }",
    r'func.func @main() attributes {a.b = loc("x")} { return }',
    r'func.func @main() attributes {a.b = @"\D2"} { return }',
    r'func.func @main(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.custom_call @"\D2"(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }',
    r'func.func @main(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.custom_call @f(%a) {backend_config="\00\D2"} : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }',
    r'func.func @main(%a: tensor<f32>) -> tensor<f32> { %0 = "stablehlo.\D2"(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }',
    r'func.func @main(%a: tensor<f32>) -> tensor<f32> { %0 = "x\D2"(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }',
    r'func.func @main(%a: !x<"\D2">) { return }',
    r'func.func @main(%a: tensor<2xf32, "\D2">) { return }',
]


def test_what_jaxlib_cannot_show() -> None:
    check(STRANGE)


LARGE = "func.func @main() -> tensor<{0}> {{ %0 = stablehlo.constant dense<{1}> : tensor<{0}> return %0 : tensor<{0}> }}"


@pytest.mark.parametrize("shape", ["1099511627776xi8", "1048576x1048576xf32", "2x549755813888xi1"])
def test_a_splat_of_2_to_the_40(shape: str) -> None:
    value = {"8": "3", "2": "1.0", "1": "true"}[shape[-1]]
    assert outcomes([LARGE.format(shape, value)]) == ["ok"]


def test_random_bytes() -> None:
    rng = np.random.default_rng(0)
    junk = [rng.bytes(int(n)) for n in rng.integers(1, 300, 40)]
    check(
        [
            *junk,
            *(b"ML\xefR" + j for j in junk),
            *(b"ML\xefR\x0dStableHLO_v1.0.0" + j for j in junk),
        ]
    )


# A convolution with two bytes changed: MLIR's reader goes on for ever (jaxlib 0.10).
ENDLESS = (
    "TUzvUg1NTElSMjMuMC4wZ2l0AAEfBwEFCQkBAw8DBQcTBQMXA107EwE3Cw8bCwsLEwsPEwsLCwsTExMPD1OPE1MbUxMT"
    "BQULQwETDwcfHx8PGxcLApIDBQ0BCwUDBQcDCQMFDwURBRMXAQMDDQ0BAxMDAxUXBRUFFwUZBRsXAQUHFwEHERcBB0kR"
    "AQURAQ0jAQUhAQAAAAAAAAACAAAAAAAAACUPQQEAAAAAAAAAAAAAAAAAAAACAAAAAAAAAAEAAAAAAAAAAQU3NyMBBSEC"
    "AAAAAAAAAAEAAAAAAAAAIxEFBQAAIwEFIQIAAAAAAAAAAgAAAAAAAAAXAQkVFwELCxEBCQENBQUJCQ0FAQUBDQUFCQEC"
    "BAsbCQkhIQ0DGwkNDQUZAxsJCQ0hGQMBAgIFBQUHAwkbBQkJAQEJBFUFAVENBQEHBEMDAQUDUB0DBwQvAwcLBQsfDyEA"
    "B0YzBQMJBQEDBQQ1AwUGAwEFAQBeAh0PCw8hGSUpBRkPDxULEWJ1aWx0aW4AZnVuYwBzdGFibGVobG8AbW9kdWxlAHJl"
    "dHVybgBjb252b2x1dGlvbgAtAG1obG8ubnVtX3BhcnRpdGlvbnMAbWhsby5udW1fcmVwbGljYXMAaml0X19sYW1iZGEA"
    "amF4LnJlc3VsdF9pbmZvAHJlc3VsdABtYWluAHB1YmxpYwAIKwcFFwENAQ8BIxk3EyM5JU9TV1tfYw=="
)


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on time is POSIX's")
def test_bytecode_that_is_read_for_ever() -> None:
    with pytest.raises(StableHLOParseError, match="bytecode"):
        parse(base64.b64decode(ENDLESS), isolate=True)

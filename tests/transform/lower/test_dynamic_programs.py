"""Programs of ``jax.export`` over symbolic shapes, read, edited, lowered, written and run.

JAX is the judge: of the values at two sizes, and MLIR of what is written.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import export

import relax2xla as rx
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.ir import assert_structural_equal
from relax2xla.ir.check import check_well_formed
from relax2xla.script import from_source
from relax2xla.testing import to_numpy
from relax2xla.transform import LegalizeOps
from tests.transform.lower.dynamic_programs import PROGRAMS

DTYPES = {"": "float32", "i": "int32", "b": "bool"}
RAISED = {"captured", "fft", "pool", "random"}
SIZES = (
    {"n": 5, "m": 6, "k": 3, "b": 2, "d": 4, "h": 7, "w": 8},
    {"n": 3, "m": 4, "k": 2, "b": 1, "d": 5, "h": 4, "w": 5},
)

# Programs run once here, and compiling them is what takes the time.
pytestmark = pytest.mark.usefixtures("quickly_compiled")


def split(text: str) -> tuple[str, str]:
    """A shape and a dtype: ``"n, 4 i"`` is int32."""
    marked = text[-2:] in (" i", " b")
    return (text[:-2], DTYPES[text[-1]]) if marked else (text, DTYPES[""])


def exported(name: str) -> Any:
    specs, fn = PROGRAMS[name]
    scope = export.SymbolicScope()
    arguments = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype)
        for shape, dtype in map(split, specs)
    ]
    return export.export(jax.jit(fn))(*arguments)


def arguments(name: str, sizes: dict[str, int]) -> list[Any]:
    rng = np.random.default_rng(0)
    made: list[Any] = []
    for shape, dtype in map(split, PROGRAMS[name][0]):
        dims = [eval(d, {}, sizes) for d in shape.split(",") if d.strip()]
        values = rng.standard_normal(dims) if dtype == "float32" else rng.integers(0, 2, dims)
        made.append(np.asarray(values).astype(dtype))
    return made


def check_runs(mod: rx.IRModule, name: str, program: Any) -> None:
    run = rx.VirtualMachine(rx.build(mod, "cpu", relax_pipeline="zero"))["main"]
    for sizes in SIZES:
        given = arguments(name, sizes)
        want = jax.tree.leaves(program.call(*given))
        got = jax.tree.leaves(to_numpy(run(*given)))
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, np.asarray(w), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs(name: str) -> None:
    program = exported(name)
    text = program.mlir_module()
    rows = from_stablehlo(text, raise_ops=False)
    raised = from_stablehlo(text)
    written = rx.to_stablehlo(rows)
    for mod in (rows, raised):
        check_well_formed(mod)
        assert_structural_equal(from_source(mod.script(show_meta=True)), mod)
        assert rx.to_stablehlo(mod) == written
        legal = LegalizeOps()(mod)
        check_well_formed(legal)
        again = from_stablehlo(rx.to_stablehlo(legal), raise_ops=False)
        if mod is raised:
            # The machine lowers some by itself.
            check_runs(raised if name in RAISED else again, name, program)

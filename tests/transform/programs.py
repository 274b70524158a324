"""Functions from text, and what they compute before and after a pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import relax2xla
from relax2xla.ir import Call, IRModule, Op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.script import from_source
from relax2xla.transform import Pass


def module(params: Sequence[str], *body: str, result: str = "out", block: bool = True) -> IRModule:
    """``main(params)`` with these bindings, in a dataflow block or not, that gives ``result``."""
    head = [line for line in body if line.startswith("R.func_attr")]
    lines = [line for line in body if line not in head]
    if block:
        lines = ["with R.dataflow():", *(f"    {x}" for x in lines), f"    R.output({result})"]
    lines = [*head, *lines]
    lines.append(f"return {result}")
    text = "\n".join(
        [
            "@I.ir_module",
            "class Module:",
            "    @R.function",
            f"    def main({', '.join(params)}):",
            *(f"        {line}" for line in lines),
        ]
    )
    made = from_source(text)
    assert isinstance(made, IRModule)
    return made


def tensor(name: str, *shape: int | str, dtype: str = "float32") -> str:
    """A parameter of the text."""
    return f'{name}: R.Tensor({list(shape)!r}, "{dtype}")'


def operators(mod: IRModule) -> list[str]:
    """The operators of ``main`` without their prefix, in order."""
    func = mod.relax_functions()[mod.get_global_var("main")]
    values = (b.value for b in bindings_of(func.body))
    calls = (v.op for v in values if isinstance(v, Call))
    return [o.name.removeprefix("relax.") for o in calls if isinstance(o, Op)]


def leaves(value: object) -> list[np.ndarray]:
    """The arrays of a result."""
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in leaves(v)]
    return [np.asarray(value)]


def same_values(mod: IRModule, step: Pass, *args: np.ndarray, rtol: float = 1e-4) -> IRModule:
    """``mod`` after ``step``, which gives the same results for ``args``."""
    new = step(mod)
    relax2xla.analysis.check_well_formed(new)
    results = [
        relax2xla.VirtualMachine(relax2xla.build(m), relax2xla.cpu())["main"](*args)
        for m in (mod, new)
    ]
    for have, want in zip(*map(leaves, reversed(results)), strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=rtol, atol=rtol)
    return new

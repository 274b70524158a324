"""Import a module, build it, run it, and compare with eager torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import relax2xla
from relax2xla import IRModule
from relax2xla.frontend.torch import from_exported_program

#: Room for sums in another order, by dtype; integers and booleans agree exactly.
TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (2e-5, 2e-5),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (2e-3, 2e-3),
    torch.complex64: (2e-5, 2e-5),
    torch.complex128: (1e-9, 1e-9),
}


class Fn(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@contextlib.contextmanager
def not_traced_anew() -> Generator[None]:
    """Fail where torch is made to trace a whole program anew, which takes it very long."""

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the whole program was traced anew")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.export.ExportedProgram, "run_decompositions", never)
        yield


def imported(
    function: Any, inputs: Sequence[Any], dynamic_shapes: Any = None, **options: Any
) -> IRModule:
    """The Relax module of a torch module or function."""
    module = function if isinstance(function, torch.nn.Module) else Fn(function)
    if dynamic_shapes is not None and not isinstance(function, torch.nn.Module):
        dynamic_shapes = (tuple(dynamic_shapes),)
    program = torch.export.export(module.eval(), tuple(inputs), dynamic_shapes=dynamic_shapes)
    mod = from_exported_program(program, **options)
    relax2xla.analysis.check_well_formed(mod)
    return mod


def machine_of(mod: IRModule) -> Any:
    """The module built, on a machine."""
    return relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())


def run(mod: IRModule, inputs: Sequence[Any], machine: Any = None) -> list[Any]:
    """Results of ``main``, flat, as numpy arrays; ``machine``: that of ``mod``, if it is built."""
    if machine is None:
        machine = machine_of(mod)
    result = machine["main"](*(x for x in inputs if isinstance(x, torch.Tensor)))
    flat = list(result) if isinstance(result, tuple | list) else [result]
    return [np.asarray(x) for x in flat]


def as_numpy(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        x = x.detach().resolve_conj()
        return x.float().numpy() if x.dtype == torch.bfloat16 else x.numpy()
    return np.asarray(x)


def compare(got: Sequence[Any], want: Any, scale: float = 1.0) -> None:
    """dtype, shape and values against eager torch."""
    wanted = pytree.tree_leaves(want)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        if isinstance(w, torch.Tensor):
            assert str(g.dtype) == str(w.dtype).removeprefix("torch.")
            assert g.shape == tuple(w.shape)
        rtol, atol = TOLERANCE.get(getattr(w, "dtype", None), (0.0, 0.0))
        if g.dtype.name == "bfloat16":
            g = g.astype(np.float32)
        np.testing.assert_allclose(g, as_numpy(w), rtol=rtol * scale, atol=atol * scale)


def check(
    function: Any,
    inputs: Sequence[Any],
    dynamic_shapes: Any = None,
    others: Sequence[Sequence[Any]] = (),
    scale: float = 1.0,
) -> IRModule:
    """Import, build and run on ``inputs`` (and ``others``), and compare with torch."""
    # torch.export and eager torch may write into their inputs.
    before = pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, inputs)
    mod = imported(function, inputs, dynamic_shapes)
    module = function if isinstance(function, torch.nn.Module) else Fn(function)
    machine = machine_of(mod)
    for arguments in (before, *others):
        got = run(mod, pytree.tree_leaves(arguments), machine)
        with torch.no_grad():
            compare(got, module.eval()(*arguments), scale)
    return mod


class Many(torch.nn.Module):
    """Many functions as one module, each with inputs of its own: one compilation for all."""

    def __init__(self, table: dict[str, tuple[Any, ...]]) -> None:
        super().__init__()
        self.table = table

    def forward(self, *args: Any) -> Any:
        results, at = [], 0
        for function, *own in self.table.values():
            results.append(pytree.tree_leaves(function(*args[at : at + len(own)])))
            at += len(own)
        return results


def check_table(table: dict[str, tuple[Any, ...]], scale: float = 1.0) -> None:
    """Every ``name: (function, *inputs)`` of a table against eager torch.

    All of them are one program; only if that fails they are run one by one, to name the culprits.
    """
    inputs = [x for _, *own in table.values() for x in own]
    wrong: dict[str, str] = {}
    try:
        got = iter(run(imported(Many(table), inputs), inputs))
        for name, (function, *own) in table.items():
            want = pytree.tree_leaves(function(*own))
            try:
                compare([next(got) for _ in want], want, scale)
            except AssertionError as e:
                wrong[name] = str(e)
    except Exception as error:
        together = str(error)
        for name, (function, *own) in table.items():
            try:
                check(function, own, scale=scale)
            except Exception as e:
                wrong[name] = f"{type(e).__name__}: {e}"
        assert wrong, f"only together they fail: {together}"
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())

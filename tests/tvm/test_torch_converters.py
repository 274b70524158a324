"""Exported programs under ``tvm.relax.frontend.torch``: TVM's operators, and torch's values.

The expected operators are those of the tests of TVM's own importer.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import relax2xla  # noqa: E402
from relax2xla.frontend.torch import from_exported_program as own  # noqa: E402
from relax2xla.ir import Call, Tuple  # noqa: E402
from relax2xla.testing import to_numpy  # noqa: E402
from relax2xla.tvm.frontend.torch import from_exported_program  # noqa: E402

F = torch.nn.functional
SLICE = torch.ops.aten.slice.Tensor
X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
ROWS = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
AT = torch.tensor([[0, 4], [2, 2]])


class Fn(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _operators(mod: Any) -> list[str]:
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    names = {Call: lambda v: v.op.name.removeprefix("relax."), Tuple: lambda v: "tuple"}
    return [names[type(v)](v) for v in values if type(v) in names][:-1]  # without the result


POOL = ["zeros_like", "tuple"]
CASES: list[tuple[str, Any, tuple[Any, ...], list[str]]] = [
    ("embedding", lambda i: F.embedding(i, ROWS), (AT[0],), ["astype", "take"]),
    (
        "embedding of a table",
        lambda i: F.embedding(i, ROWS),
        (AT,),
        ["astype", "reshape", "take", "reshape"],
    ),
    ("hardtanh", F.hardtanh, (X,), ["clip"]),
    ("hardtanh(-2, 0.5)", lambda x: F.hardtanh(x, -2, 0.5), (X,), ["clip"]),
    ("relu6", lambda x: F.hardtanh(x, 0.0, 6.0), (X * 8,), ["clip"]),
    ("max_pool2d", lambda x: F.max_pool2d(x, 2), (X,), ["nn.max_pool2d", *POOL]),
    ("max_pool3d", lambda x: F.max_pool3d(x, 2), (X[None, :, :2],), ["nn.max_pool3d", *POOL]),
    ("median", torch.median, (X,), ["median"]),
    ("median of NaN", torch.median, (X.where(X < 1, torch.nan),), ["median"]),
    ("slice", lambda x: SLICE(x, 1, 0, 3) + SLICE(x, 1), (X,), ["strided_slice", "add"]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_operators_are_tvms(case: tuple[str, Any, tuple[Any, ...], list[str]]) -> None:
    _, function, inputs, wanted = case
    program = torch.export.export(Fn(function), inputs)
    mod = from_exported_program(program, run_ep_decomposition=True)
    assert _operators(mod) == wanted
    assert _operators(own(program, run_ep_decomposition=True)) != wanted
    machine = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())
    found = to_numpy(machine["main"](*(x.numpy() for x in inputs)))[0]
    expected = function(*inputs)
    torch.testing.assert_close(torch.from_numpy(found.copy()), expected, equal_nan=True)


def test_copies_into_slices_of_everything() -> None:
    """A circular pad has a slice of the whole and broadcasts to the same shape."""
    program = torch.export.export(Fn(lambda x: F.pad(x, (1, 1, 2, 2), mode="circular")), (X,))
    mod = from_exported_program(program, run_ep_decomposition=True)
    assert _operators(mod).count("broadcast_to") == 5
    assert _operators(mod).count("strided_slice") == 13
    machine = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())
    found = to_numpy(machine["main"](X.numpy()))[0]
    assert (found == F.pad(X, (1, 1, 2, 2), mode="circular").numpy()).all()


def test_what_has_another_meaning_stays() -> None:
    """Places that are read, the derivative that ``padding_idx`` leaves out, integers."""

    def program(x: Any, at: Any) -> Any:
        values, places = F.max_pool2d(x, 2, return_indices=True)
        rows = F.embedding(at, ROWS, padding_idx=0)
        return values, places, rows, F.hardtanh(at, 1, 3)

    exported = torch.export.export(Fn(program), (X, AT))
    for decompose in (False, True):
        mod, mine = (
            f(exported, run_ep_decomposition=decompose) for f in (from_exported_program, own)
        )
        assert _operators(mod) == _operators(mine)


def test_converters_of_the_program_come_first() -> None:
    def clamped(node: Any, importer: Any) -> Any:
        return relax2xla.op.nn.relu(importer.retrieve_args(node)[0])

    exported = torch.export.export(Fn(F.hardtanh), (X,))
    mod = from_exported_program(exported, custom_convert_map={"hardtanh.default": clamped})
    assert _operators(mod) == ["nn.relu"]

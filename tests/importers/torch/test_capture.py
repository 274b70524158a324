"""Modules that torch does not export: the message has reason, module, line and what to do."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from relax2xla.errors import UnsupportedError  # noqa: E402
from relax2xla.frontend.torch import from_exported_program  # noqa: E402
from relax2xla.importers.torch import verify  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.ones(2, 4)


class Gate(nn.Module):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:  # the line
            return x * 2
        return x


class Host(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.from_numpy(x.numpy() + 1)


class Fits(nn.Module):
    def forward(self, x: Any, *, mask: Any = None) -> Any:
        return x if mask is None else x * mask


def message(module: nn.Module, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(UnsupportedError) as error:
        from_exported_program(module, args, example_kwargs=kwargs)
    return str(error.value)


@pytest.mark.parametrize(
    ("make", "says"), [(Gate, "torch.where"), (Host, "no part of a graph")], ids=["if", "numpy"]
)
def test_what_torch_does_not_export(make: Any, says: str) -> None:
    text = message(nn.Sequential(nn.Linear(4, 4), nn.Sequential(make())), X)
    assert text.startswith("torch.export.export cannot export Sequential (in 1.0, ")
    line = make.forward.__code__.co_firstlineno + 1
    assert f"test_capture.py:{line}): " in text
    assert says in text


def test_wrong_example_arguments() -> None:
    assert "check the example arguments" in message(Fits(), X, X, X)


def test_arguments_that_are_not_dense() -> None:
    jagged = torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged)
    text = message(Fits(), X, mask=jagged)
    assert text.startswith("the example argument ['mask'] is a tensor of layout torch.jagged")
    with pytest.raises(UnsupportedError, match=r"argument \[0\] is a tensor of layout"):
        verify(Fits(), (X.to_sparse(),))


@pytest.mark.parametrize("args", [torch.ones(2, 3), {"input": torch.ones(2, 3)}, 3])
def test_example_arguments_are_a_tuple(args: Any) -> None:
    with pytest.raises(TypeError, match=r"are a tuple, of one tensor too: \(x,\); got"):
        from_exported_program(nn.Linear(3, 2), args)

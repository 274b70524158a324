"""Modules that torch does not export: the message has reason, module, line and what to do."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from relax2xla.errors import UnsupportedError  # noqa: E402
from relax2xla.frontend.torch import from_exported_program  # noqa: E402
from relax2xla.importers.torch import verify  # noqa: E402
from tests.importers.torch.helpers import run  # noqa: E402

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


class _Negated(torch.Tensor):
    """Has rules of its own: results are negated."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_function__(func, types, args, kwargs or {})
        return -made if func is torch.Tensor.mul else made


class _Named(torch.Tensor):
    """A plain tensor by another name."""


def test_arguments_that_torch_export_would_take_for_others() -> None:
    x = torch.ones(2, 4)
    model = nn.Linear(4, 3)
    wrong: list[tuple[Any, type[Exception], str]] = [
        ((x.numpy(),), TypeError, r"argument \[0\] is a numpy.ndarray; give a torch tensor"),
        ((x.as_subclass(_Negated),), UnsupportedError, r"argument \[0\] is a _Negated, whose own"),
        (
            (torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),),
            UnsupportedError,
            r"argument \[0\] has the dtype torch.qint8; give x.int_repr\(\)",
        ),
        ((torch.nested.nested_tensor([x]),), UnsupportedError, "give .to_dense"),
    ]
    for args, error, message in wrong:
        with pytest.raises(error, match=message):
            from_exported_program(model, args)
    with pytest.raises(TypeError, match=r"by name are a dict.*got list"):
        from_exported_program(model, (x,), example_kwargs=[x])  # pyright: ignore
    mod = from_exported_program(model, (x.as_subclass(_Named),))
    assert "main" in str(mod)


class Caches(torch.nn.Module):
    def forward(self, keys: Any, values: Any, more: Any) -> Any:
        return keys * 2, values * 3 + more[0]


def test_one_tensor_for_two_arguments_is_two_arguments() -> None:
    x = torch.zeros(2)
    mod = from_exported_program(Caches(), (x, x, [x]))
    made = run(mod, [torch.full((2,), float(n)) for n in (1, 2, 3)])
    assert made[0].tolist() == [2, 2]
    assert made[1].tolist() == [9, 9]


def test_reasons_have_all_that_torch_says_of_sizes_and_no_line_of_python_itself() -> None:
    x = torch.ones(2, 4)
    model = nn.Linear(4, 3)
    with pytest.raises(UnsupportedError) as missing:
        from_exported_program(model, ())
    assert "cannot export Linear: missing a required argument: 'input'" in str(missing.value)
    dim = torch.export.Dim("b")
    with pytest.raises(UnsupportedError, match=r"(?s)Constraints violated.*to be a constant"):
        from_exported_program(model, (x,), dynamic_shapes=({1: dim},))
    with pytest.raises(UnsupportedError, match=r"(?s)IndexError: .*dynamic_shapes that were given"):
        from_exported_program(model, (x,), dynamic_shapes=({5: dim},))

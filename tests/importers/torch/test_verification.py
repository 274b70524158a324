"""verify: agreement, and the place of the first departure."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from relax2xla import op  # noqa: E402
from relax2xla.importers.torch import verify  # noqa: E402
from relax2xla.importers.torch.engine.converters import CONVERTERS, Converter  # noqa: E402


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.block = nn.Sequential(nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 2))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        self.steps += 1
        y = self.block(self.first(x).sigmoid())
        return {"y": y * scale, "where": y.argmax(-1), "n": x.shape[0]}


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))


def test_what_agrees() -> None:
    report = verify(Model(), (X,), {"scale": 2.0}, taps=True)
    assert report.ok
    assert report.first_departure is None
    assert [c.name for c in report.outputs] == [
        "output 0",
        "output 1",
        "output 2",
        "new value of steps",
    ]
    assert any("in block.1" in c.where and "test_verification.py:" in c.where for c in report.taps)
    assert "4 of 4 outputs agree" in str(report)
    some = verify(Model(), (X,), taps="block")
    assert 0 < len(some.taps) < len(report.taps)


def test_the_first_departure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def silu(ctx: Any, self: Any) -> Any:
        return op.nn.relu(self)

    monkeypatch.setitem(CONVERTERS, "silu", Converter(silu, frozenset({"self"})))
    report = verify(torch.export.export(Model(), (X,)), (X,), taps=True)
    assert not report.ok
    first = report.first_departure
    assert first is not None
    assert first.name == "silu"
    assert "in block.1" in first.where
    assert "elements differ" in first.problem
    assert "first departure: silu" in str(report)
    shown = report._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "first departure: silu (" in shown
    assert "<td>agrees</td>" in shown
    assert shown.count("<details") == 2
    loose = verify(Model(), (X,), rtol=1e3, atol=1e3)
    assert loose.outputs[0].ok


def test_the_users_program_stays_as_it_is() -> None:
    program = torch.export.export(nn.Linear(4, 2), (X,))
    before = str(program.graph)
    assert verify(program, (X,), taps=True).ok
    assert str(program.graph) == before


def test_a_tap_that_is_no_module() -> None:
    with pytest.raises(ValueError, match=r"no value is made in blok"):
        verify(Model(), (X,), taps=["block", "blok"])

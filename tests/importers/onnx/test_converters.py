"""How converters register: forms of one function for several opsets, and shared attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypedDict, Unpack

import pytest

from relax2xla.importers.onnx.engine.converters import (
    CONVERTERS,
    LAZY,
    REQUIRED,
    Converter,
    Lazy,
    find,
    onnx_op,
)
from relax2xla.ir import Expr

DOMAIN = "tests.converters"


class Shared(TypedDict):
    """Attributes of several operators."""

    size: int
    mode: Annotated[str, "plain"]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for key in [k for k in CONVERTERS if k[0] == DOMAIN]:
        del CONVERTERS[key]


def form(opset: int, op: str = "F") -> Converter:
    found = find(DOMAIN, op, opset)
    assert found is not None
    return found


def test_a_form_says_what_is_different_in_its_opset() -> None:
    @onnx_op("F", domain=DOMAIN, attributes="axes", lacks="mode", scale=2.0)
    @onnx_op("F", domain=DOMAIN, since=5, needs="axes")
    @onnx_op("F", domain=DOMAIN, since=7)
    def _(
        ctx: Any, x: Expr, axes: Lazy | None = None, *, mode: str = "a", scale: float = 1.0
    ) -> Any:
        return axes, mode, scale

    first, fifth, last = form(1), form(5), form(9)
    assert [i.name for i in first.inputs] == ["x"]
    assert first.attributes == {"scale": 2.0, "axes": None}
    assert [(i.name, i.required, i.form) for i in fifth.inputs] == [
        ("x", True, None),
        ("axes", True, LAZY),
    ]
    assert [i.required for i in last.inputs] == [True, False]
    assert last.attributes == {"mode": "a", "scale": 1.0}
    # What is not given is what the form says.
    assert first.function(None, None, axes=[1]) == ([1], "a", 2.0)
    assert first.function(None, None, scale=3.0) == (None, "a", 3.0)
    assert last.function(None, None) == (None, "a", 1.0)


def test_shared_attributes_come_with_their_defaults() -> None:
    @onnx_op("F", domain=DOMAIN)
    @onnx_op("F", domain=DOMAIN, since=2, mode="wide")
    def _(ctx: Any, x: Expr, *, own: int = 0, **shared: Unpack[Shared]) -> Any:
        return own, shared

    made = form(1)
    assert made.attributes == {"own": 0, "size": REQUIRED, "mode": "plain"}
    assert made.function(None, None, size=3) == (0, {"size": 3, "mode": "plain"})
    assert form(2).function(None, None, size=3) == (0, {"size": 3, "mode": "wide"})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"lacks": "y"}, "has no parameter y"),
        ({"lacks": "a"}, "a form may lack its last inputs only"),
    ],
)
def test_a_form_that_cannot_be_is_refused(more: dict[str, Any], message: str) -> None:
    def convert(ctx: Any, a: Expr | None = None, b: Expr | None = None) -> Any:
        return a, b

    with pytest.raises(RuntimeError, match=message):
        onnx_op("F", domain=DOMAIN, **more)(convert)

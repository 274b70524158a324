"""What converters say of themselves: the arguments that they ignore, and that they are wide."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from relax2xla.importers.shared.gaps import Unsupported  # noqa: E402
from relax2xla.importers.torch.engine import converters  # noqa: E402
from relax2xla.importers.torch.engine.arguments import PLACEMENT, REFUSED, bind  # noqa: E402
from relax2xla.importers.torch.engine.converters import CONVERTERS  # noqa: E402

from .helpers import check  # noqa: E402


def arguments(name: str) -> set[str]:
    """Names of an operator's arguments; those of packages that are not there are none."""
    space, _, rest = name.rpartition("::")
    packet, _, overload = rest.partition(".")
    op = getattr(getattr(torch.ops, space or "aten"), packet, None)
    return set() if op is None else {a.name for a in _schema(op, overload).arguments}


def _schema(packet: Any, overload: str) -> Any:
    return getattr(packet, overload or "default")._schema


def test_what_is_ignored_is_an_argument_that_nobody_takes() -> None:
    converters.load()
    names: dict[int, list[str]] = {}
    for name, converter in CONVERTERS.items():
        names.setdefault(id(converter), []).append(name)
    for served in names.values():
        converter = CONVERTERS[served[0]]
        known = set().union(*map(arguments, served))
        assert converter.ignored <= known, (served, converter.ignored - known)
        assert not converter.ignored & converter.params, served
        taken = set(PLACEMENT) | set(REFUSED)
        assert not taken & (converter.ignored | converter.params), served


def test_two_converters_for_one_name() -> None:
    converters.load()
    with pytest.raises(RuntimeError, match="two converters for the ATen operator relu"):
        converters.aten("mylib::two relu")(lambda ctx, self: self)
    CONVERTERS.pop("mylib::two", None)


def test_the_overloads_of_a_spread_are_wide() -> None:
    """Torch sums them in float32; those with a mean beside the variance were summed in bfloat16."""
    x = torch.randn(4, 3000, generator=torch.Generator().manual_seed(0)) + 100.25
    for function in (torch.var_mean, torch.std_mean):
        check(lambda x, f=function: f(x, 1), (x.bfloat16(),))


def test_a_generator_is_refused() -> None:
    converter, op = CONVERTERS["rand.generator"], torch.ops.aten.rand.generator
    assert bind(op, converter, [[3]], {"generator": None}) == {}
    with pytest.raises(Unsupported, match="a torch\\.Generator: its state is not part"):
        bind(op, converter, [[3]], {"generator": torch.Generator()})

"""What converters say of themselves: the arguments that they ignore, and that they are wide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from relax2xla.importers.shared.gaps import Unsupported  # noqa: E402
from relax2xla.importers.torch.engine import converters  # noqa: E402
from relax2xla.importers.torch.engine.arguments import PLACEMENT, REFUSED, bind  # noqa: E402
from relax2xla.importers.torch.engine.converters import CONVERTERS  # noqa: E402
from tests.importers.torch.helpers import check  # noqa: E402


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


# Converters that tests call by another name: how theirs begin, and that name.
CALLED = {
    "__xor__ bitwise_xor": "bitwise_",
    "_fft_ c2": "fft",
    "affine_grid_generator": "affine_grid",
    "cross_entropy_loss nll_loss": "cross_entropy",
    "feature_dropout": "dropout2d",
    "grid_sampler": "grid_sample",
    "log_sigmoid": "logsigmoid",
    "lstm gru rnn_ mkldnn_rnn_layer": "LSTM",
    "max_pool": "return_indices",
    "native_batch_norm batch_norm": "batch_norm",
    "numpy_T": "T",
    "upsample_": "interpolate",
    "weight_norm": "weight_norm",
    "unique_dim unique2": "unique",
    "grouped_mm": "grouped_mm",
    "scaled_mm": "_scaled_mm",
    "bessel_ modified_bessel_ chebyshev_ shifted_chebyshev_": "special",
}
# Those that torch's operator database alone has programs of (``python -m benchmarks opinfo``).
IN_THE_DATABASE = {
    *("binary_cross_entropy", "linalg_lstsq", "logit", "max_unpool2d", "max_unpool3d"),
    *("__lshift__", "__rshift__", "special_entr"),
}


def _short(name: str) -> str:
    """What programs call an operator: without its room, its kind of kernel and its rank."""
    name = name.rpartition("::")[2].partition(".")[0]
    name = re.sub(r"^(special|linalg|native|fft)_", "", name.strip("_"))
    return re.sub(r"_(ex|functional|forward|backward|fallback)$", "", name)


def test_every_converter_is_called_by_a_test() -> None:
    """By its name, or by one of the tables above."""
    converters.load()
    own, folder = Path(__file__), Path(__file__).parents[1]
    files = [p for p in folder.rglob("*.*") if p.suffix in (".py", ".txt") and p != own]
    words = set(re.findall(r"\w+", "\n".join(p.read_text("utf-8") for p in files)))
    words |= {w.strip("_") for w in words}
    known = {start for starts in CALLED for start in starts.split()}
    assert {w for w in CALLED.values() if not w.endswith("_")} <= words
    served: dict[int, set[str]] = {}
    for name, converter in CONVERTERS.items():
        served.setdefault(id(converter), set()).add(name.partition(".")[0])
    untested: list[set[str]] = []
    for names in served.values():
        forms = {form for n in names for form in (n, _short(n), re.sub(r"\dd$", "", _short(n)))}
        said = any(f.startswith(start) for f in forms for start in known)
        if not forms & (words | IN_THE_DATABASE) and not said:
            untested.append(names)
    assert not untested, (
        "give each a row of a table of tests/importers/torch/aten, which eager torch computes, too"
    )


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

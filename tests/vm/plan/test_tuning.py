"""build(tune=True): forms are measured once, the fastest is taken, and all compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.errors import TVMError
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels.products import Convolution, Product, Winograd
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.progress import watch
from relax2xla.testing import evaluate
from relax2xla.vm.pjrt import cache
from relax2xla.vm.plan import tuning

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

RNG = np.random.default_rng(5)
X = (1, 12, 12, 32)


def module() -> rx.IRModule:
    """A 3x3 convolution, a pointwise one by a product, and one that is too small to be measured."""
    x = rx.Var("x", rx.TensorStructInfo(X, "float32"))
    window = rx.const(RNG.standard_normal((3, 3, 32, 64), "float32") * 0.1)
    wide, small = (rx.const(RNG.standard_normal(s, "float32") * 0.1) for s in ((64, 48), (48, 2)))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
            y = bb.emit(R.nn.relu(R.nn.conv2d(x, window, padding=1, **layouts)))
            z = bb.emit_output(R.matmul(R.matmul(y, wide), small))
        bb.emit_func_output(z)
    return bb.get()


def as_it_is(mod: rx.IRModule) -> Any:
    return rx.build(mod, "cpu", relax_pipeline="zero")


def kinds(built: Any) -> list[str]:
    """The calls of the program that is compiled."""
    found = [b.value for b in bindings_of(built["main"].func.body)]
    named = [v.attrs for v in found if is_op(v, "relax.stablehlo.composite")]
    return [
        str(a["name"]).rpartition(".")[2] + str(a["composite_attributes"].get("size", ""))
        for a in named
    ]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cache.DiskCache:
    made = cache.DiskCache(tmp_path)
    monkeypatch.setattr(tuning.cache, "current", lambda: made)
    return made


def favour(monkeypatch: pytest.MonkeyPatch, **best: str) -> list[Any]:
    """Measurements that find these the fastest; what was measured."""
    asked: list[Any] = []

    def measured(
        call: Convolution | Product, forms: tuning.Forms, build: tuning.Build
    ) -> Mapping[str, float]:
        asked.append(call)
        name = best["product" if isinstance(call, Product) else "convolution"]
        return {f: 1.0 if f == name else 2.0 for f in forms}

    monkeypatch.setattr(tuning, "measured", measured)
    return asked


@pytest.mark.parametrize(
    ("best", "wanted"),
    [
        ({"convolution": "C++, Winograd 2x2", "product": "C++"}, ["winograd2", "product"]),
        ({"convolution": "C++, Winograd 4x4", "product": "rows"}, ["winograd4"]),
        ({"convolution": "C++", "product": "rows"}, ["convolution"]),
    ],
)
def test_the_fastest_is_taken(
    best: dict[str, str],
    wanted: list[str],
    store: cache.DiskCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On other processors nobody knows whether small calls pay.
    monkeypatch.setattr(processor, "kind", lambda: "")
    asked = favour(monkeypatch, **best)
    mod = module()
    with rx.transform.PassContext(disabled_pass=["CallOneDnn", "UseWinograd"]):
        built = rx.build(mod, "cpu", tune=True)
        assert kinds(built) == wanted
        assert [type(c) for c in asked] == [Convolution, Product]
        # What was found is kept: nothing is measured again, and the same forms are taken.
        assert kinds(rx.build(mod, "cpu", tune=True)) == wanted
    assert len(asked) == 2
    assert store.writes == 2
    x = RNG.standard_normal(X, "float32")
    got = np.asarray(rx.VirtualMachine(built)["main"](x))
    np.testing.assert_allclose(got, evaluate(mod["main"], [x]), atol=2e-5, rtol=1e-5)


def test_what_is_kept_may_be_of_forms_that_are_no_more(
    store: cache.DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = favour(monkeypatch, convolution="C++", product="C++")
    call = Product((64, 64), 64)
    for payload in (b'"by hand"', b"\xff{", b"[]"):
        store.put(tuning._key(call), payload)
        assert tuning.Tuner(as_it_is, 1)(call) is call
    assert len(asked) == 3


def test_each_form_is_measured() -> None:
    for call in (
        Convolution((1, 8, 8, 16), (3, 3), 16, padding=(1, 1, 1, 1)),
        Product((4, 64), 64),
    ):
        forms = tuning.forms_of(call)
        took = tuning.measured(call, forms, as_it_is)
        assert set(took) == set(forms)
        assert min(took.values()) > 0
    sizes = [
        f.size
        for f in tuning.forms_of(Convolution(X, (3, 3), 16)).values()
        if isinstance(f, Winograd)
    ]
    assert sizes == [2, 4]
    assert set(tuning.forms_of(Convolution(X, (3, 3), 16, strides=(2, 2)))) == {"rows", "C++"}


def test_who_watches_sees_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning.cache, "current", lambda: None)
    favour(monkeypatch, convolution="C++", product="C++")
    seen: list[tuple[int, int]] = []

    def watcher(what: str, done: int, total: int, unit: str) -> None:
        if unit == "operators":
            seen.append((done, total))

    with watch(watcher):
        rx.build(module(), "cpu", tune=True)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_what_cannot_be_tuned() -> None:
    with pytest.raises(TVMError, match="for the default pipeline"):
        rx.build(module(), "cpu", relax_pipeline="zero", tune=True)
    with pytest.raises(TVMError, match="measures forms on CPUs"):
        tuning.tuner(module(), "gpu", as_it_is)


@pytest.mark.parametrize(("size", "count"), [(0, 16), (1 << 20, 16), (24 << 20, 3), (1 << 30, 1)])
def test_weights_that_no_cache_holds_are_not_made_twice(size: int, count: int) -> None:
    assert tuning.weights_of(size) == count

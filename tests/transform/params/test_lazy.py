"""LazyGetInput, LazySetOutput, LazyTransformParams: when weights are asked for and handed over."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import transform
from relax2xla.errors import TransformError
from relax2xla.ir import IRModule, ObjectStructInfo, Var
from relax2xla.script import from_source
from tests.transform.programs import module, tensor

RNG = np.random.default_rng(9)
WEIGHTS = [RNG.standard_normal((2, 3)).astype("float32") for _ in range(3)]
BODY = (
    "d = R.add(a, R.const(2, 'float32'))",
    "e = R.multiply(d, b)",
    "f = R.permute_dims(b)",
    "out = (e, f, d, R.const(7, 'float32'), a)",
)
A, B, _ = WEIGHTS
WANTED = [(A + 2) * B, B.T, A + 2, np.float32(7), A]


def weights(block: bool = False) -> IRModule:
    return module([tensor(n, 2, 3) for n in "abc"], *BODY, block=block)


def run(mod: IRModule, name: str, *args: Any) -> Any:
    relax2xla.analysis.check_well_formed(mod)
    return relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())[name](*args)


@contextmanager
def store(log: list[str]) -> Generator[dict[int, Any]]:
    """Packed functions ``get_item`` and ``set_item`` that note what is asked for."""
    results: dict[int, Any] = {}

    def get(*args: Any) -> Any:
        log.append(f"get {args[-1]}")
        return WEIGHTS[args[-1]]

    def put(*args: Any) -> None:
        log.append(f"set {args[-2]}")
        results[args[-2]] = np.asarray(args[-1])

    relax2xla.register_func("get_item", get, override=True)
    relax2xla.register_func("set_item", put, override=True)
    yield results


FIELDS = "(e, f, d, R.const(7, 'float32'), a)"
DATAFLOW = ("with R.dataflow():", *(f"    {x}" for x in BODY[:-1]), "    R.output(d, e, f)")


@pytest.mark.parametrize("body", [BODY[:-1], DATAFLOW])
def test_callbacks(body: Sequence[str]) -> None:
    mod = module([tensor(n, 2, 3) for n in "abc"], *body, result=FIELDS, block=False)
    new = transform.LazySetOutput()(transform.LazyGetInput()(mod))
    names = [p.name_hint for p in new["main"].params]
    assert names == ["fget_param", "fset_output"]
    assert new["main"].attrs["num_input"] == 2
    relax2xla.analysis.check_well_formed(new)
    text = new.script()
    # Each weight once, the third not at all.
    assert text.count("fget_param(") == 2
    assert text.count("fset_output(") == 5
    private = mod.clone()
    private["main"] = private["main"].without_attr("global_symbol")
    assert transform.LazyGetInput()(private) is private
    assert transform.LazySetOutput()(private) is private


def test_inputs_that_are_no_weights() -> None:
    mod = module(
        [tensor("x", "n"), tensor("w", "n"), tensor("v", "m")],
        'R.func_attr({"num_input": 1})',
        "y = R.add(x, w)",
        "out = (y, v)",
    )
    new = transform.LazySetOutput()(transform.LazyGetInput()(mod))["main"]
    assert [p.name_hint for p in new.params] == ["x", "fget_param", "fset_output"]
    info = transform.LazyGetInput()(mod)["main"].ret_struct_info
    # The size n is that of x, m is told by nobody.
    assert str(info) == 'Tuple(Tensor((n,), dtype="float32"), Tensor(ndim=1, dtype="float32"))'


def test_transform_params() -> None:
    mod = weights()
    mod = IRModule({"transform_params": mod["main"].with_attr("global_symbol", "transform_params")})
    log: list[str] = []
    new = transform.LazyTransformParams()(mod)
    with store(log) as results:
        assert run(new, "transform_params") == ()
    assert sorted(log) == ["get 0", "get 1", *(f"set {i}" for i in range(5))]
    for i, want in enumerate(WANTED):
        np.testing.assert_allclose(results[i], want, rtol=1e-6)
    # Handed over as soon as nothing reads it any more.
    assert log.index("set 2") > log.index("get 1")
    only = transform.LazyTransformParams(fset_item=None)(mod)
    with store(log):
        got = run(only, "transform_params")
    for have, want in zip(got, WANTED, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6)


TUPLES = """
@I.ir_module
class Module:
    @R.function
    def whole_transform_params(
        ws: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2, 3), "float32"))
    ):
        return ws

    @R.function
    def transform_params(ws: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor(("n", 3), "float32"))):
        n = T.int64()
        b = ws[1]
        a = ws[0]
        c = R.permute_dims(b)
        out = (c, a, c)
        return out
"""


def test_tuples_and_extra_parameters() -> None:
    mod = from_source(TUPLES)
    assert isinstance(mod, IRModule)
    loader, setter = (Var(n, ObjectStructInfo()) for n in ("loader", "setter"))
    new = transform.LazyTransformParams("get_item", "set_item", [loader], [setter])(mod)
    assert [p.name_hint for p in new["transform_params"].params] == ["loader", "setter"]
    log: list[str] = []
    with store(log) as results:
        run(new, "transform_params", "from", "to")
        assert log == ["get 1", "get 0", "set 1", "set 0", "set 2"]
        for i, want in enumerate((B.T, A, B.T)):
            np.testing.assert_array_equal(results[i], want)
        log.clear()
        run(new, "whole_transform_params", "from", "to")
        assert log == ["get 0", "set 0", "get 1", "set 1"]


def test_dataflow_blocks_and_other_results_are_refused() -> None:
    for mod, why in (
        (weights(block=True), "ToNonDataflow"),
        (module([tensor("x", 2)], "out = R.exp(x)", block=False), "a tuple"),
    ):
        named = IRModule({"transform_params": mod["main"]})
        with pytest.raises(TransformError, match=why):
            transform.LazyTransformParams()(named)

"""BundleModelParams, UpdateParamStructInfo and LiftTransformParams: form and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import transform
from relax2xla.errors import TransformError
from relax2xla.ir import IRModule, TensorStructInfo, TupleStructInfo, assert_structural_equal
from relax2xla.script import from_source
from tests.transform.programs import module, operators, tensor

RNG = np.random.default_rng(8)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def run(mod: IRModule, name: str, *args: Any) -> Any:
    relax2xla.analysis.check_well_formed(mod)
    return relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())[name](*args)


def network() -> IRModule:
    return module(
        [tensor("x", 2, 3), tensor("v", 4, 3), tensor("w", 4, "n"), tensor("b", "n")],
        'R.func_attr({"num_input": 1})',
        "t = R.permute_dims(v)",
        "h = R.matmul(x, t)",
        'one = R.ones((4,), "float32")',
        "c = R.add(h, one)",
        "s = R.multiply(w, b)",
        "p = R.builtin.stop_lift_params(s)",
        "q = R.exp(p)",
        "m = R.matmul(c, q)",
        "out = R.add(m, b)",
    )


def arguments() -> list[np.ndarray]:
    return [draw(2, 3), draw(4, 3), draw(4, 5), draw(5)]


def reference(x: Any, v: Any, w: Any, b: Any) -> Any:
    return (x @ v.T + 1) @ np.exp(w * b) + b


def test_bundled() -> None:
    mod = network()
    new = transform.BundleModelParams("weights")(mod)
    names = [p.name_hint for p in new["main"].params]
    assert names == ["x", "weights"]
    info = new["main"].params[1].struct_info
    assert isinstance(info, TupleStructInfo)
    assert [getattr(f, "ndim", None) for f in info.fields] == [2, 2, 1]
    x, *weights = arguments()
    got = run(new, "main", x, tuple(weights))
    np.testing.assert_allclose(got, reference(x, *weights), rtol=1e-5)
    plain = module([tensor("x", 2)], "out = R.exp(x)")
    assert transform.BundleModelParams()(plain) is plain


def test_weights_in_branches_and_as_results_are_bundled() -> None:
    mod = module(
        ["c: R.Tensor((), 'bool')", tensor("a", 2), tensor("b", 2)],
        'R.func_attr({"num_input": 1})',
        "if c:",
        "    r = R.exp(a)",
        "else:",
        "    r = R.sin(b)",
        "out = (r, a)",
        block=False,
    )
    new = transform.BundleModelParams()(mod)
    a, b = draw(2), draw(2)
    for c in (True, False):
        got = run(new, "main", np.array(c), (a, b))
        np.testing.assert_allclose(got[0], np.exp(a) if c else np.sin(b), rtol=1e-5)
        np.testing.assert_array_equal(got[1], a)


def test_too_few_parameters() -> None:
    mod = module([tensor("x", 2)], 'R.func_attr({"num_input": 3})', "out = R.exp(x)")
    for step in (transform.BundleModelParams(), transform.LiftTransformParams()):
        with pytest.raises(TransformError, match="num_input=3"):
            step(mod)


def test_update_struct_infos() -> None:
    mod = module(
        [tensor("x", 2, 3), tensor("w", 3, 4)], "h = R.matmul(x, w)", "out = R.sum(h, axis=[0])"
    )

    def wider(var: Any) -> Any:
        return TensorStructInfo((3, 7), "float32") if var.name_hint == "w" else None

    new = transform.UpdateParamStructInfo(wider)(mod)
    expected = module(
        [tensor("x", 2, 3), tensor("w", 3, 7)], "h = R.matmul(x, w)", "out = R.sum(h, axis=[0])"
    )
    assert_structural_equal(new, expected)
    assert_structural_equal(transform.UpdateParamType(wider)(mod), expected)
    assert transform.UpdateParamStructInfo(lambda var: None)(mod) is mod
    with pytest.raises(TypeError, match="must give a StructInfo"):
        transform.UpdateParamStructInfo(lambda var: 3)(mod)  # pyright: ignore
    with pytest.raises(relax2xla.TVMError):
        transform.UpdateParamStructInfo(lambda var: TensorStructInfo((5, 5), "float32"))(
            module([tensor("x", 6)], "out = R.reshape(x, R.shape([2, 3]))")
        )


@pytest.mark.parametrize("consume", [False, True])
def test_lifted(consume: bool) -> None:
    mod = network()
    key = "relax.lift_transform_params.consume_params"
    with transform.PassContext(config={key: consume}):
        new = transform.LiftTransformParams()(mod)
    assert [p.name_hint for p in new["main"].params] == ["x", "b", "t", "s"]
    assert operators(new) == ["matmul", "ones", "add", "exp", "matmul", "add"]
    assert new.script().count("tuple_reset_item") == (3 if consume else 0)
    x, *weights = arguments()
    ready = run(new, "main_transform_params", tuple(weights))
    assert len(ready) == 3
    np.testing.assert_allclose(ready[1], weights[0].T)
    got = run(new, "main", x, *ready)
    np.testing.assert_allclose(got, reference(x, *weights), rtol=1e-5)
    # Now that nothing stops it, the exponential is lifted too, behind the transform there is.
    again = transform.LiftTransformParams()(new)
    assert operators(again) == ["matmul", "ones", "add", "matmul", "add"]
    ready = run(again, "main_transform_params", tuple(weights))
    np.testing.assert_allclose(run(again, "main", x, *ready), got, rtol=1e-6)
    if not consume:
        assert_structural_equal(transform.LiftTransformParams()(again), again)


def test_sizes_of_weights_that_nothing_else_tells() -> None:
    mod = module(
        [tensor("x", 6), tensor("w", "n", "k")],
        'R.func_attr({"num_input": 1})',
        "s = R.sum(w)",
        "y = R.multiply(x, s)",
        "z = R.zeros(R.shape([n]), 'float32')",
        "out = (y, z)",
    )
    new = transform.LiftTransformParams()(mod)
    x, w = draw(6), draw(3, 2)
    ready = run(new, "main_transform_params", (w,))
    assert tuple(ready[0]) == (3,)
    y, z = run(new, "main", x, *ready)
    np.testing.assert_allclose(y, x * w.sum(), rtol=1e-5)
    assert z.shape == (3,)


def test_results_and_casts_stay() -> None:
    mod = module(
        [tensor("x", 2), tensor("w", "n")],
        'R.func_attr({"num_input": 1})',
        "w2 = R.match_cast(w, R.Tensor((2,), 'float32'))",
        "e = R.exp(w)",
        "y = R.add(x, w2)",
        "out = (y, e)",
    )
    new = transform.LiftTransformParams()(mod)
    x, w = draw(2), draw(2)
    ready = run(new, "main_transform_params", (w,))
    y, e = run(new, "main", x, *ready)
    np.testing.assert_allclose(y, x + w)
    np.testing.assert_allclose(e, np.exp(w), rtol=1e-5)


SHARED = """
@I.ir_module
class Module:
    @R.function
    def one(x: R.Tensor((2, 3), "float32"), v: R.Tensor(("m", 3), "float32"),
            w: R.Tensor((3,), "float32")):
        m = T.int64()
        R.func_attr({"num_input": 1})
        with R.dataflow():
            e = R.exp(w)
            t = R.permute_dims(v)
            h = R.add(x, e)
            out = R.matmul(h, t)
            R.output(out)
        return out

    @R.function
    def two(v: R.Tensor(("k", 3), "float32"), w: R.Tensor((3,), "float32")):
        k = T.int64()
        R.func_attr({"num_input": 0})
        with R.dataflow():
            t = R.permute_dims(v)
            s = R.sin(w)
            out = R.add(R.permute_dims(t), s)
            R.output(out)
        return out

    @R.function
    def other(x: R.Tensor((2,), "float32")):
        R.func_attr({"num_input": 1})
        y = R.exp(x)
        return y
"""


def test_shared() -> None:
    mod = from_source(SHARED)
    assert isinstance(mod, IRModule)
    with pytest.raises(TransformError, match="must have the same weights"):
        transform.LiftTransformParams(shared_transform=True)(mod)
    with pytest.raises(TransformError, match="'three', which is no Relax function"):
        transform.LiftTransformParams(shared_transform=["one", "three"])(mod)
    new = transform.LiftTransformParams(shared_transform=["one", "two"])(mod)
    assert sorted(g.name_hint for g in new) == ["one", "other", "transform_params", "two"]
    x, v, w = draw(2, 3), draw(5, 3), draw(3)
    ready = run(new, "transform_params", (v, w))
    # exp and sin are each of one function alone.
    assert len(ready) == 2
    np.testing.assert_allclose(run(new, "one", x, *ready), (x + np.exp(w)) @ v.T, rtol=1e-4)
    np.testing.assert_allclose(run(new, "two", *ready), v + np.sin(w), rtol=1e-5)

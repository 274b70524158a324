"""BindParams and the decompositions of composite operators, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import analysis, transform
from relax2xla.errors import TransformError, TVMError
from relax2xla.ir import IRModule
from relax2xla.script import from_source

RNG = np.random.default_rng(0)


def module(params: str, *body: str) -> IRModule:
    lines = "".join(f"        {line}\n" for line in body)
    made = from_source(
        f"@I.ir_module\nclass Module:\n    @R.function\n    def main({params}):\n{lines}"
    )
    assert isinstance(made, IRModule)
    return made


def run(mod: IRModule, *args: Any) -> Any:
    return relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())["main"](*args)


def draw(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 2.0, shape).astype("float32")


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("center", "scale"), [(True, True), (False, True), (True, False)])
def test_batch_norm(training: bool, center: bool, scale: bool) -> None:
    mod = module(
        'x: R.Tensor(("n", 3, 4), "float32"), g: R.Tensor((3,), "float32"), '
        'b: R.Tensor((3,), "float32"), m: R.Tensor((3,), "float32"), v: R.Tensor((3,), "float32")',
        "with R.dataflow():",
        "    y = R.nn.batch_norm(x, g, b, m, v, axis=-2, epsilon=0.1, momentum=0.25, "
        f"center={center}, scale={scale})",
        "    R.output(y)",
        "return y",
    )
    chosen = transform.DecomposeOpsForTraining if training else transform.DecomposeOpsForInference
    made = chosen("main")(mod)
    assert analysis.well_formed(made)
    assert "batch_norm" not in made.script()
    assert "batch_norm" in mod.script()
    args = x, g, b, m, v = draw(2, 3, 4), draw(3), draw(3), draw(3), draw(3)
    new_m, new_v = m, v
    if training:
        now, spread = x.mean((0, 2)), x.var((0, 2))
        new_m, new_v = 0.75 * m + 0.25 * now, 0.75 * v + 0.25 * spread
        m, v = now, spread
    wanted = (x - m[:, None]) / np.sqrt(v[:, None] + 0.1)
    wanted = wanted * (g[:, None] if scale else 1) + (b[:, None] if center else 0)
    for got, want in zip(run(made, *args), (wanted, new_m, new_v), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", [(-1,), (1, 2), (2, 1), (0, 2), (2, 0), (1,)])
def test_layer_norm(axes: tuple[int, ...]) -> None:
    x = draw(2, 3, 4)
    of = tuple(x.shape[a] for a in axes)
    mod = module(
        f'x: R.Tensor((2, 3, 4), "float32"), g: R.Tensor({of}, "float32"), '
        f'b: R.Tensor({of}, "float32")',
        f"y = R.nn.layer_norm(x, g, b, axes={list(axes)}, epsilon=0.1)",
        "return y",
    )
    assert transform.DecomposeOpsForInference()(mod)["main"].script() == mod["main"].script()
    made = transform.DecomposeOpsForTraining()(mod)
    assert "layer_norm" not in made.script()
    g, b = draw(*of), draw(*of)
    inside = tuple(a % 3 for a in axes)
    places = [slice(None) if a in inside else None for a in range(3)]
    factor, shift = (np.transpose(w, np.argsort(inside))[tuple(p for p in places)] for w in (g, b))
    wanted = (x - x.mean(inside, keepdims=True)) / np.sqrt(x.var(inside, keepdims=True) + 0.1)
    np.testing.assert_allclose(run(made, x, g, b), wanted * factor + shift, rtol=1e-5, atol=1e-6)


def test_tensor_to_shape() -> None:
    mod = module(
        'x: R.Tensor((2, 6), "float32"), s: R.Tensor((3,), "int64")',
        "t = R.tensor_to_shape(s)",
        "y = R.reshape(x, t)",
        "return y",
    )
    made = transform.DecomposeOpsForInference()(mod)
    assert analysis.well_formed(made)
    assert "R.tensor_to_shape" not in made.script()
    x = draw(2, 6)
    np.testing.assert_array_equal(run(made, x, np.array([3, 2, 2])), x.reshape(3, 2, 2))


def test_what_is_not_known_stays() -> None:
    params = ", ".join(f'{n}: R.Tensor("float32", ndim=1)' for n in "gbmv")
    mod = module(
        f'x: R.Tensor("float32"), s: R.Tensor("int64", ndim=1), {params}',
        "y = R.nn.batch_norm(x, g, b, m, v, axis=1)",
        "t = R.tensor_to_shape(s)",
        "return (y, t)",
    )
    assert transform.DecomposeOpsForTraining()(mod).script() == mod.script()


def test_one_function_or_all() -> None:
    body = "        y = R.tensor_to_shape(s)\n        return y\n"
    parts = [
        f'    @R.function\n    def {name}(s: R.Tensor((2,), "int64")):\n{body}' for name in "fg"
    ]
    mod = from_source("@I.ir_module\nclass Module:\n" + "".join(parts))
    assert isinstance(mod, IRModule)
    for name, left in (("f", 1), ("g", 1), (None, 0)):
        made = transform.DecomposeOpsForInference(name)(mod)
        assert made.script().count("R.tensor_to_shape") == left
    for make in (
        transform.DecomposeOpsForInference("h"),
        transform.BindParams("h", {"s": np.ones(2)}),
    ):
        with pytest.raises(TransformError, match=r"no Relax function 'h'; it has f, g"):
            make(mod)


def test_bind_params() -> None:
    mod = module(
        'x: R.Tensor((2, 3), "float32"), w: R.Tensor((3,), "float32"), '
        'b: R.Tensor((3,), "float32")',
        "y = R.add(R.multiply(x, w), b)",
        "return y",
    )
    before = mod.script()
    x, w, b = draw(2, 3), draw(3), draw(3)
    bound = transform.BindParams("main", {"w": w, mod["main"].params[2]: relax2xla.const(b)})(mod)
    assert [p.name_hint for p in bound["main"].params] == ["x"]
    np.testing.assert_allclose(run(bound, x), x * w + b, rtol=1e-6)
    assert mod.script() == before
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"z": w}, "'?z'?"),
        ({"w": draw(4)}, "w"),
        ({"w": w.astype("int32")}, "int32"),
    ]
    for params, message in wrong:
        with pytest.raises(TVMError, match=message):
            transform.BindParams("main", params)(mod)

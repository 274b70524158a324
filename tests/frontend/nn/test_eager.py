"""Models on arrays at once, and compiled by jit: kinds of arrays, what is kept, effects, errors."""

from __future__ import annotations

import copy
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
import torch

from relax2xla import errors, tir
from relax2xla.frontend import nn
from relax2xla.frontend.nn import eager, op
from relax2xla.frontend.nn.spec import MethodSpec, Tensor


def bound(module: nn.Module) -> nn.Module:
    for i, p in enumerate(module.parameters()):
        p.data = np.full(p.shape, i + 1, p.dtype)
    return module


class Traced(nn.Module):
    """Counts how often it is traced."""

    def __init__(self) -> None:
        self.weight = nn.Parameter([2])
        self.factor: Any = 1
        self.settings = {"shift": [0.0]}

    def forward(self, x: nn.Tensor, times: int = 1) -> nn.Tensor:
        TRACES.append(times)
        return x * self.weight * times * self.factor + self.settings["shift"][0]


TRACES: list[int] = []


def test_programs_are_kept_by_shapes_values_and_settings() -> None:
    TRACES.clear()
    model, x = bound(Traced()), np.array([1, 2], np.float32)

    def run(*args: Any) -> list[float]:
        return np.asarray(model(*args)).tolist()

    assert run(x) == run(x + 0) == [1, 2]
    assert len(TRACES) == 1
    assert run(x, 3) == [3, 6]
    assert run(x[None]) == [[1, 2]]
    assert len(TRACES) == 3
    model.weight.data = np.array([10, 10], np.float32)  # new data is used, without a new program
    assert run(x) == [10, 20]
    assert len(TRACES) == 3
    model.factor = 2
    assert run(x) == [20, 40]
    model.settings["shift"][0] = 1.0
    assert run(x) == [21, 41]
    model.factor = 2.0  # another type
    assert run(x) == [21, 41]
    assert len(TRACES) == 6


def test_everything_in_attributes_is_looked_at() -> None:
    @dataclass
    class Settings:
        factor: float = 1.0

    class Model(nn.Module):
        def __init__(self) -> None:
            self.settings, self.table = Settings(), np.ones(2, np.float32)
            self.other, self.library = torch.zeros(2), np
            self.function = lambda x: x

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return self.function(x * self.settings.factor) + self.table + self.other

    model, x = Model(), np.ones(2, np.float32)
    for change, wanted in (
        (lambda: None, 2),
        (lambda: setattr(model.settings, "factor", 3.0), 4),
        (lambda: model.table.__setitem__(slice(None), 5), 8),
        (lambda: model.other.add_(10), 18),
        (lambda: setattr(model, "function", lambda x: x * 2), 21),
    ):
        change()
        assert np.asarray(model(x)).tolist() == [wanted] * 2
    assert len(eager._programs_of(model)._made) == 5


def test_kinds_of_arrays() -> None:
    model, x = bound(Traced()), np.array([1, 2], np.float32)
    for given, kind in (
        (x, jax.Array),
        (jax.numpy.asarray(x), jax.Array),
        (torch.tensor(x), torch.Tensor),
    ):
        made = model(given)
        assert isinstance(made, kind)
        assert np.asarray(made).tolist() == [1, 2]
    made = model(torch.tensor(x))
    made += 1  # torch's tensors are its own
    assert np.asarray(model(torch.tensor(x))).tolist() == [1, 2]
    half = op.add(torch.ones(2, dtype=torch.bfloat16), 1)
    assert (half.dtype, half.tolist()) == (torch.bfloat16, [2, 2])
    assert np.asarray(op.add(np.int64(2**40), 1)) == 2**40 + 1


def test_structures() -> None:
    class Model(nn.Module):
        def forward(self, batch: dict[str, Any], pair: tuple[Any, list[Any]], name: str) -> Any:
            first, (second, nothing) = pair
            assert nothing is None
            return {"sum": batch["x"] + first, name: [second, 3, None]}, batch["x"].shape[0]

    x = np.ones(2, np.float32)
    out, size = Model()({"x": x}, (x, [x * 5, None]), name="second")
    assert np.asarray(out["sum"]).tolist() == [2, 2]
    assert np.asarray(out["second"][0]).tolist() == [5, 5]
    assert (out["second"][1:], size) == ([3, None], 2)


def test_operators_take_parameters_and_constants() -> None:
    model = bound(nn.Linear(2, 2))
    assert np.asarray(op.add(model.weight, 1)).tolist() == [[2, 2], [2, 2]]
    assert np.asarray(op.sum(nn.Tensor.from_const([1, 2]))) == 3
    assert np.asarray(np.ones(2, np.float32) + model.bias).tolist() == [3, 3]
    with pytest.raises(ValueError, match="a parameter without data"):
        op.exp(nn.Parameter([2]))


def test_other_methods() -> None:
    class Model(nn.Module):
        def twice(self, x: nn.Tensor) -> nn.Tensor:
            return x + x

    assert np.asarray(nn.run(Model().twice, np.ones(1, np.float32))).tolist() == [2]
    with pytest.raises(TypeError, match="run takes a method"):
        nn.run(len, np.ones(2))


class Cached(nn.Module):
    def __init__(self) -> None:
        self.cache = nn.KVCache(1, [2])

    def forward(self, x: nn.Tensor, total: Any) -> nn.Tensor:
        self.cache.append(x)
        return self.cache.view(total)


def test_effects_keep_their_state() -> None:
    model, other = Cached(), Cached()
    entries = np.arange(10, dtype=np.float32).reshape(5, 2)
    assert model(entries[:1], 1).tolist() == entries[:1].tolist()
    np.testing.assert_array_equal(model(entries[1:4], 4), entries[:4])  # another program
    np.testing.assert_array_equal(model(entries[4:], 2), entries[3:])
    assert other(entries[2:3], 1).tolist() == entries[2:3].tolist()
    nn.reset(model)
    assert model(entries[1:2], 1).tolist() == entries[1:2].tolist()
    with pytest.raises(errors.TVMError, match="a cache with 2 entries"):
        model(entries[:1], 5)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="hold no data: weight, bias"):
        nn.Linear(2, 2)(np.ones(2, np.float32))
    with pytest.raises(TypeError, match="hashable"):
        op.add(np.ones(2), {1, 2})

    class Model(nn.Module):
        def forward(self, x: nn.Tensor, what: Any) -> Any:
            return what

    model = Model()
    with pytest.raises(TypeError, match="gives tensors and plain values; got object"):
        model(np.ones(2), object())
    with pytest.raises(TypeError, match="an Object stays inside"):
        model(np.ones(2), tir.Var("n", "int64"))
    before = bound(nn.Linear(2, 2))
    with pytest.raises(errors.TVMError):
        before(np.ones(3, np.float32))
    assert np.asarray(before(np.ones(2, np.float32))).tolist() == [4, 4]


def test_questions_that_only_numbers_answer() -> None:
    x = np.array([-1, 2], np.float32)

    class Model(nn.Module):
        def forward(self, x: nn.Tensor, ask: Any) -> Any:
            return ask(x)

    for ask in (lambda x: x if x > 0 else -x, lambda x: min(x, x + 1), lambda x: not x):
        with pytest.raises(TypeError, match=r"has no numbers yet.*op\.where"):
            Model()(x, ask)
    with pytest.raises(TypeError, match=r"the condition is False.*op\.equal"):
        Model()(x, lambda x: nn.op.where(x == 0, x, 1.0))
    made = Model()(x, lambda x: nn.op.where(nn.op.equal(x, 2.0), x, 1.0))
    assert np.asarray(made).tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"1\.5 is no number of int32"):
        Model()(x, lambda x: x.astype("int32") * 1.5)
    assert np.asarray(Model()(x, lambda x: x.astype("int32") * 2.0)).tolist() == [-2, 4]


def test_modules_can_be_copied_and_go() -> None:
    model, x = bound(Traced()), np.ones(2, np.float32)
    model(x)
    other = copy.deepcopy(model)
    other.weight.data = np.full(2, 7, np.float32)
    assert np.asarray(other(x)).tolist() == [7, 7]
    assert np.asarray(model(x)).tolist() == [1, 1]
    gone, place = weakref.ref(model), id(model)
    del model
    gc.collect()
    assert gone() is None
    assert place not in eager._OF_MODULES


def test_inside_of_a_jax_function() -> None:
    model, x = bound(Traced()), np.array([1, 2], np.float32)
    assert np.asarray(jax.jit(lambda v: model(v) + 1)(x)).tolist() == [2, 3]


def test_threads_that_trace_one_parameter() -> None:
    weight = nn.Parameter([2])
    weight.data = np.array([3, 4], np.float32)

    class Model(nn.Module):
        def __init__(self) -> None:
            self.weight = weight

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return x * self.weight

    models, x = [Model() for _ in range(8)], np.ones(2, np.float32)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda m: np.asarray(m(x)).tolist(), models * 3))
    assert made == [[3, 4]] * 24


def test_old_programs_go() -> None:
    kept = eager._Kept(2)
    made: list[int] = []

    def make(key: int) -> Any:
        return kept.get(key, lambda: made.append(key))

    for key in (1, 2, 1, 3, 1, 2):
        make(key)
    assert made == [1, 2, 3, 2]


def test_symbolic_parameters_and_exports_between_calls() -> None:
    model, x = nn.Linear(2, "m"), np.ones((1, 2), np.float32)
    spec = {"forward": {"x": Tensor(["n", 2], "float32")}}
    text = model.export_tvm(spec)[0].script()
    model.weight.data, model.bias.data = np.ones((3, 2), np.float32), np.ones(3, np.float32)
    assert model(x).tolist() == [[3, 3, 3]]
    assert model.jit(spec, out_format="numpy")["forward"](x).tolist() == [[3, 3, 3]]
    assert model.export_tvm(spec)[0].script() == text
    model.weight.data, model.bias.data = np.ones((1, 2), np.float32), np.zeros(1, np.float32)
    assert model(x).tolist() == [[2]]
    model.bias.data = np.zeros(4, np.float32)
    with pytest.raises(errors.CallError, match="m"):
        model(x)


# -- jit -------------------------------------------------------------------------------------------
def test_jit() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.linear = nn.Linear(2, 3)

        def forward(self, x: nn.Tensor, pair: list[Any]) -> Any:
            y, n = pair
            return self.linear(x), [nn.op.reshape(y, [n, -1])]

    model, spec = (
        Model(),
        {"forward": {"x": Tensor(["b", 2], "float32"), "pair": [Tensor([6], "int32"), int]}},
    )
    with pytest.raises(ValueError, match=r"hold no data: linear\.weight, linear\.bias"):
        model.jit(spec)
    bound(model)
    x, y = np.ones((4, 2), np.float32), np.arange(6, dtype=np.int32)
    for kind, cls in (("torch", torch.Tensor), ("jax", jax.Array), ("numpy", np.ndarray)):
        compiled = model.jit(spec, out_format=kind)
        given = (torch.tensor(x), torch.tensor(y)) if kind == "torch" else (x, y)
        out, (shaped,) = compiled["forward"](given[0], [given[1], 2])
        assert isinstance(out, cls)
        assert np.asarray(out).tolist() == [[4, 4, 4]] * 4
        assert np.asarray(shaped).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="out_format is one of torch, jax, numpy"):
        model.jit(spec, out_format="list")
    out = compiled["forward"](x, pair=[y, 2])[0]
    assert np.asarray(out).tolist() == [[4, 4, 4]] * 4
    with pytest.raises(TypeError, match="takes x, pair; got 1 by position, and other"):
        compiled["forward"](x, other=3)
    with pytest.raises(ValueError, match="no method 'prefill'"):
        compiled["prefill"]
    with pytest.raises(TypeError, match="takes 2 arguments; got 1"):
        compiled["forward"](x)
    with pytest.raises(TypeError, match=r"pair\[1\] is an int; got str"):
        compiled["forward"](x, (y, "2"))
    with pytest.raises(TypeError, match=r"is a torch\.Tensor; got ndarray"):
        model.jit(spec)["forward"](x, [torch.tensor(y), 2])


@pytest.mark.parametrize("param_mode", ["plain", "packed"])
@pytest.mark.parametrize("effect_mode", ["plain", "packed"])
@pytest.mark.parametrize("debug", [False, True])
def test_jit_with_effects(param_mode: str, effect_mode: str, debug: bool) -> None:
    class Model(Cached):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter([2])

        def forward(self, x: nn.Tensor, total: Any) -> nn.Tensor:
            return super().forward(x * self.scale, total)

    modes = {"param_mode": param_mode, "effect_mode": effect_mode}
    spec = {"forward": {"x": Tensor([1, 2], "float32"), "total": "int", "$": modes}}
    compiled = bound(Model()).jit(spec, out_format="numpy", debug=debug)
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    for i in range(3):
        np.testing.assert_array_equal(compiled["forward"](rows[i : i + 1], i + 1), rows[: i + 1])


def test_specifications_of_torch() -> None:
    def method(x: Any, n: Any) -> None: ...

    spec = MethodSpec.from_torch([torch.ones(2, 3), 4], method)
    assert repr(spec) == "MethodSpec(x: Tensor([2, 3], 'float32'), n: int)"
    with pytest.raises(TypeError, match="2 arguments are needed"):
        MethodSpec.from_torch([1], method)
    with pytest.raises(TypeError, match="got str"):
        MethodSpec.from_torch([1, "a"], method)


def test_effects_that_are_not_used_are_not_in_the_program() -> None:
    class Model(Cached):
        def plain(self, x: nn.Tensor) -> nn.Tensor:
            return x + x

    model, x = Model(), np.ones((1, 2), np.float32)
    assert nn.run(model.plain, x).tolist() == [[2, 2]]
    model(x, 1)
    programs = list(eager._programs_of(model)._made.values())
    assert [len(p.effects) for p in programs] == [0, 1]

"""CombineParallelMatmul: which products go together, where, and that values stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from relax2xla.transform import CombineParallelMatmul
from tests.transform.programs import module, operators, same_values, tensor

RNG = np.random.default_rng(11)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_any_mixture(data: st.DataObject) -> None:
    """Branches with or without additions and activations, with weights made late or of products."""
    count = data.draw(st.integers(2, 4))
    lines: list[str] = []
    params, args = [tensor("x", 3, 4)], [draw(3, 4)]
    outs: list[str] = []
    for i in range(count):
        n = data.draw(st.sampled_from([4, 4, 2]))
        weight = f"w{i}"
        params.append(tensor(weight, n, 4))
        args.append(draw(n, 4))
        lines.append(f"t{i} = R.permute_dims(w{i})")
        if i and data.draw(st.integers(0, 3)) == 0:
            lines.append(f"t{i} = R.multiply(t{i}, R.sum({outs[-1]}))")
        lines.append(f"o{i} = R.matmul(x, t{i})")
        bias = data.draw(st.sampled_from(["", "vector", "number", "residual"]))
        if bias:
            shape = {"vector": (n,), "number": (1,), "residual": (3, n)}[bias]
            params.append(tensor(f"b{i}", *shape))
            args.append(draw(*shape))
            lines.append(f"o{i} = R.add(o{i}, b{i})")
        if activation := data.draw(st.sampled_from(["", "R.nn.relu", "R.nn.gelu", "R.exp"])):
            lines.append(f"o{i} = {activation}(o{i})")
        outs.append(f"o{i}")
    mod = module(params, *lines, f"out = ({', '.join(outs)})")
    same_values(mod, CombineParallelMatmul(), *args)


def heads(*ends: str) -> Any:
    params = [tensor("x", 2, 3, 4), *(tensor(f"w{i}", 5, 4) for i in range(3))]
    params += [tensor(f"b{i}", 5) for i in range(3)]
    lines = [
        line
        for i, end in enumerate(ends)
        for line in (f"t{i} = R.permute_dims(w{i})", f"p{i} = R.matmul(x, t{i})", f"o{i} = {end}")
    ]
    return module(params, *(x.replace("#", x[1]) for x in lines), "out = (o0, o1, o2)")


def combined(*ends: str) -> list[str]:
    args = [draw(2, 3, 4), *(draw(5, 4) for _ in range(3)), *(draw(5) for _ in range(3))]
    return operators(same_values(heads(*ends), CombineParallelMatmul(), *args))[3:]


def test_what_follows() -> None:
    joined = ["concat", "matmul"]
    one = ["concat", "add", "split"]
    assert combined(*["R.add(p#, b#)"] * 3) == [*joined, *one]
    assert combined(*["R.nn.gelu(p#)"] * 3) == [*joined, "nn.gelu", "split"]
    assert combined(*["R.add(p#, b#)"] * 2, "R.exp(p#)") == [*joined, "split", "add", "add", "exp"]


def test_place_and_weights() -> None:
    # w2 depends on a product of x itself, so that it cannot be joined with that.
    mod = module(
        [tensor("x", 4, 4), tensor("w", 4, 4), tensor("v", 4, 4)],
        "a = R.matmul(x, w)",
        "b = R.matmul(x, v)",
        "c = R.matmul(x, b)",
        "out = (a, b, c)",
    )
    new = same_values(mod, CombineParallelMatmul(), draw(4, 4), draw(4, 4), draw(4, 4))
    assert operators(new) == ["concat", "matmul", "split", "matmul"]
    once = module([tensor("x", 4, 4)], "a = R.matmul(x, x)", "out = R.exp(a)")
    assert CombineParallelMatmul()(once) is once


def test_check_sees_what_would_be_joined() -> None:
    seen: list[Any] = []

    def check(x: Any, weights: list[Any], biases: list[Any], values: Mapping[Any, Any]) -> bool:
        seen.append((x.name_hint, len(weights), len(biases), values[weights[0]].op.name))
        return False

    mod = heads(*["R.add(p#, b#)"] * 3)
    assert CombineParallelMatmul(check)(mod) is mod
    assert seen == [("x", 3, 3, "relax.permute_dims")]


def test_symbolic_columns() -> None:
    mod = module(
        [tensor("x", "b", 4), tensor("w", 4, "n"), tensor("v", 4, 3), tensor("u", 4, "m")],
        "p = R.matmul(x, w)",
        "q = R.matmul(x, v)",
        "r = R.matmul(x, u)",
        "out = (p, q, r)",
    )
    new = same_values(mod, CombineParallelMatmul(), draw(2, 4), draw(4, 5), draw(4, 3), draw(4, 2))
    assert operators(new) == ["concat", "matmul", "split", "matmul"]

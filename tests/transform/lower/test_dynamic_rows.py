"""Programs of symbolic dimensions: MLIR verifies them, and they compute what the static ones do.

Every operator with a lowering is in dynamic_samples.py, or below with the reason why not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op, tir
from relax2xla.errors import CallError, LegalizeError, StableHLOParseError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.ir import TensorStructInfo, Var
from relax2xla.ir.check import check_well_formed
from relax2xla.ir.op import Op
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.script import tir as T
from relax2xla.testing import evaluate, to_numpy
from relax2xla.transform import LegalizeOps
from tests.transform.lower.dynamic_samples import SAMPLES, Operand, Sample
from tests.transform.lower.dynamic_variants import VARIANTS

Sizes = dict[Any, Any]
SIZES: tuple[Sizes, ...] = (
    {"n": 5, "m": 7, "k": 3, "h": 6, "w": 9},
    {"n": 3, "m": 10, "k": 4, "h": 5, "w": 4},
)
DTYPES = {"bool", "int8", "int32", "int64"}
NUMBERS = "the machine lowers it when its numbers are known, at the call"
# Operators without a sample.
LEFT_OUT = {
    **dict.fromkeys(("image.col2im", "image.resample", "number_to_tensor", "signal"), NUMBERS),
    "tensor_to_bits": NUMBERS,
    "ccl": "exchanges between workers",
    "distributed": "annotations of programs that run on several devices",
    "dynamic_strided_slice": "the size of the result depends on data",
    "hamming_window": "a constant that is computed in float64",
    "inspect": "gives numbers, no tensors",
    "memory": "XLA plans memory by itself",
    "tensor_to_shape": "the result depends on data",
    "vision.all_class_non_max_suppression": "the number of boxes is a bound of a loop",
    "vision.non_max_suppression": "the number of boxes is a bound of a loop",
    "vm": "XLA plans memory by itself",
    "call_tir": "calls of PrimFuncs",
}

# Programs run once here, and compiling them is what takes the time.
pytestmark = pytest.mark.usefixtures("quickly_compiled")


def operand(given: Operand, sizes: Sizes) -> TensorStructInfo:
    dtype = given[-1] if given and given[-1] in DTYPES else "float32"
    dims = given[:-1] if given and given[-1] in DTYPES else given
    return TensorStructInfo([sizes.get(d, d) for d in dims], dtype)


def module(names: Sequence[str], sizes: Sizes, samples: Mapping[str, Sample]) -> rx.IRModule:
    """The calls of several operators in one function; ``sizes``: of "n" and other symbols."""
    builder = rx.BlockBuilder()
    params: list[Var] = []
    results: list[rx.Expr] = []
    for name in names:
        operands, make = samples[name]
        own = [Var(f"p{len(params) + i}", operand(o, sizes)) for i, o in enumerate(operands)]
        params += own
        results.append(make(*own))
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(rx.Tuple(results))
        builder.emit_func_output(out)
    return builder.get()


def arrays(mod: rx.IRModule) -> list[Any]:
    rng = np.random.default_rng(0)
    made: list[Any] = []
    for p in mod["main"].params:
        dims, dtype = p.struct_info.dims, p.struct_info.dtype
        floats = dtype.startswith("float")
        values = rng.standard_normal(dims) if floats else rng.integers(0, 3, dims)
        made.append(np.asarray(values).astype(dtype))
    return made


def flat(value: Any) -> list[Any]:
    return [x for v in value for x in flat(v)] if isinstance(value, tuple) else [value]


def reread(mod: rx.IRModule) -> Any:
    """``mod`` exported, read back and built: a function over arrays."""
    back = from_stablehlo(rx.to_stablehlo(mod), raise_ops=False)
    vm = rx.VirtualMachine(rx.build(back, "cpu", relax_pipeline="zero"))
    return lambda *args: to_numpy(vm["main"](*args))


def same(got: Any, want: Any) -> None:
    got, want = flat(got), flat(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        np.testing.assert_allclose(
            g.astype("float64"), w.astype("float64"), rtol=1e-5, atol=2e-6, equal_nan=True
        )


def test_every_operator_is_listed() -> None:
    lowered = {
        name.removeprefix("relax.")
        for name in Op.list_op_names()
        if Op.registry[name].lowering is not None
    }
    missing = {
        name
        for name in lowered - SAMPLES.keys() - LEFT_OUT.keys()
        if name.partition(".")[0] not in LEFT_OUT
    }
    assert missing == set(), "give a call of each in dynamic_samples.py, or say in LEFT_OUT why not"
    assert SAMPLES.keys() <= lowered


EVERY = {**SAMPLES, **VARIANTS}
SYMBOLS: Sizes = {name: tir.Var(name) for name in "nmkhw"}


@pytest.mark.parametrize("name", sorted(EVERY))
def test_operators_verify(name: str) -> None:
    legal = LegalizeOps()(module([name], SYMBOLS, EVERY))
    check_well_formed(legal)
    assert "?" in str(rx.to_stablehlo(legal))


def groups(samples: Mapping[str, Sample]) -> list[list[str]]:
    names = sorted(samples.keys() - {"builtin.alloc_tensor"})
    return [names[i : i + 30] for i in range(0, len(names), 30)]


@pytest.mark.parametrize("names", groups(EVERY), ids=lambda names: names[0])
def test_operators_compute(names: Sequence[str]) -> None:
    run = reread(module(names, SYMBOLS, EVERY))
    for sizes in SIZES if set(names) <= VARIANTS.keys() else SIZES[:1]:
        static = module(names, sizes, EVERY)
        same(run(*arrays(static)), evaluate(static, arrays(static)))


def test_a_view_of_other_elements_needs_numbers() -> None:
    sample: Sample = ((("n", 4),), lambda x: op.memory.view(x, (x.struct_info.dims[0], 16), "int8"))
    with pytest.raises(LegalizeError, match=r"memory\.view: elements of another size"):
        LegalizeOps()(module(["view"], SYMBOLS, {"view": sample}))


# ---- whole functions
@I.ir_module
class Calls:
    @R.function(private=True)
    def transposed(x: R.Tensor(("a", "b"), "float32")) -> R.Tensor(("b", "a"), "float32"):
        y = R.permute_dims(x)
        return y

    @R.function
    def main(
        x: R.Tensor(ndim=2, dtype="float32"),
        flag: R.Tensor((), "bool"),
        y: R.Tensor((4, 3), "float32"),
        z: R.Tensor(("k",), "float32"),
    ):
        n = T.int64()
        k = T.int64()
        cls = Calls
        w = R.match_cast(x, R.Tensor((n, 3), "float32"))
        a = cls.transposed(w)
        b = cls.transposed(y)
        c = R.concat((a, b), axis=1)
        if flag:
            d = R.reshape(c, (n * 3 + 12,))
            out = d
        else:
            e = R.zeros((n * 3 + 12,), "float32")
            out = e
        f = R.full(R.shape([k, 2]), R.const(2.0))
        return (out, f, R.shape([n, k]), R.prim_value(n + k))


def test_calls_branches_and_casts() -> None:
    run = reread(Calls)
    rng = np.random.default_rng(0)
    for n, k in ((2, 3), (5, 1)):
        x, y = (rng.standard_normal((i, 3)).astype("f") for i in (n, 4))
        joined = np.concatenate([x.T, y.T], 1).reshape(-1)
        for flag in (True, False):
            got = run(x, np.array(flag), y, np.zeros(k, "f"))
            want = (
                joined * flag,
                np.full((k, 2), 2, "f"),
                np.array([n, k], "int64"),
                np.array(n + k, "int64"),
            )
            same(got, want)


def test_numbers_and_shapes_are_tensors() -> None:
    n, m = tir.Var("n"), tir.Var("m")
    shape = Var("shape", rx.ShapeStructInfo([n, 2]))
    count = Var("count", rx.PrimStructInfo(value=m))
    builder = rx.BlockBuilder()
    with builder.function("main", [shape, count]):
        builder.emit_func_output(rx.Tuple([op.ones((n, m), "float32"), op.arange(count)]))
    text = str(rx.to_stablehlo(builder.get()))
    assert re.search(r"@main\(%arg0: tensor<2xi64> \{.*\}, %arg1: tensor<i64> \{", text)
    assert "tensor<?x?xf32>, tensor<?xi64>" in text
    with pytest.raises(LegalizeError, match="to_stablehlo"):
        LegalizeOps()(builder.get())


def test_dimensions_that_broadcast_when_it_runs() -> None:
    x, y = (Var(v, TensorStructInfo((tir.Var(v), 2), "float32")) for v in "ab")
    builder = rx.BlockBuilder()
    with builder.function("main", [x, y]):
        builder.emit_func_output(op.exp(op.subtract(x, y)))
    run = reread(builder.get())
    for a, b in ((1, 3), (3, 1), (2, 2)):
        left, right = np.ones((a, 2), "f"), np.zeros((b, 2), "f")
        same(run(left, right), np.exp(left - right))


def test_legal_modules_are_well_formed_and_run() -> None:
    check_well_formed(LegalizeOps()(Calls))
    names = ["mean", "nn.softmax", "strided_slice", "concat"]
    vm = rx.VirtualMachine(rx.build(LegalizeOps()(module(names, SYMBOLS, SAMPLES)), "cpu"))
    for n in (2, 5):
        static = module(names, {"n": n}, SAMPLES)
        same(to_numpy(vm["main"](*arrays(static))), evaluate(static, arrays(static)))


def test_a_dimension_is_solved_for_its_variable() -> None:
    n = tir.Var("n")
    x = Var("x", TensorStructInfo((n * 2 + 1,), "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(op.ones((n,), "float32"))
    same(reread(builder.get())(np.zeros(7, "f")), np.ones(3, "f"))


def test_a_dimension_that_nothing_defines() -> None:
    n = tir.Var("n")
    x = Var("x", TensorStructInfo((n // 2,), "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(op.ones((n,), "float32"))
    with pytest.raises(LegalizeError, match="no dimension of a parameter defines"):
        rx.to_stablehlo(builder.get())


def test_casts_are_asserted() -> None:
    n, m = tir.Var("n"), tir.Var("m")
    x, y = (Var(str(v), TensorStructInfo((v,), "float32")) for v in (n, m))
    builder = rx.BlockBuilder()
    with builder.function("main", [x, y]):
        four = builder.match_cast(x, TensorStructInfo((4,), "float32"))
        same_size = builder.match_cast(y, TensorStructInfo((n,), "float32"))
        builder.emit_func_output(op.add(four, same_size))
    check_well_formed(LegalizeOps()(builder.get()))
    assert str(rx.to_stablehlo(builder.get())).count("@shape_assertion") == 2
    run = reread(builder.get())
    same(run(np.ones(4, "f"), np.ones(4, "f")), np.full(4, 2, "f"))
    with pytest.raises(StableHLOParseError, match="cannot be specialised"):
        run(np.ones(3, "f"), np.ones(3, "f"))
    with pytest.raises(CallError, match="expected Tensor"):
        run(np.ones(4, "f"), np.ones(3, "f"))

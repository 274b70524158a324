"""LegalizeOps(to="kernels"): loop-level functions compute what rows do, of every operator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op, tir, topi
from relax2xla.errors import TVMError
from relax2xla.ir import Call, Constant, IRModule, Op, Tuple, TupleGetItem, Var
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.ir.struct_info import flatten_info
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.tir.kernel.interpret import interpret
from relax2xla.transform import (
    AnnotateTIROpPattern,
    FuseOps,
    FuseTIR,
    LegalizeOps,
    PassContext,
    Sequential,
)
from relax2xla.transform.lower.te_forms.packed import PACKED
from relax2xla.transform.lower.te_forms.table import FORMS
from relax2xla.vm.pjrt import compiler
from tests.transform.lower.kernel_cases import CASES, SYMBOLIC, Case

# Operators that become calls of functions of the runtime; tests of their own are below.
CALLED = {
    *(f"relax.{name}" for name in PACKED),
    "relax.dynamic_strided_slice",
    "relax.ccl.allgather",
    "relax.ccl.allreduce",
    "relax.ccl.broadcast_from_worker0",
    "relax.ccl.scatter_from_worker0",
    "relax.distributed.redistribute_replica_to_shard",
}
EACH = [(name, n) for name, cases in CASES.items() for n in range(len(cases))]


def module(cases: dict[str, Case], symbolic: bool = False) -> IRModule:
    """One function that gives the results of all cases, of all their arrays."""
    builder = rx.BlockBuilder()
    n = tir.Var("n", "int64") if symbolic else SYMBOLIC
    params: dict[str, list[Var]] = {
        name: [
            Var(
                f"p{k}",
                rx.TensorStructInfo([n if d == SYMBOLIC else d for d in a.shape], str(a.dtype)),
            )
            for k, a in enumerate(map(np.asarray, c.arrays))
        ]
        for name, c in cases.items()
    }
    with builder.function("main", [*itertools.chain(*params.values())]):
        with builder.dataflow():
            made = [builder.emit_output(c.call(*params[name])) for name, c in cases.items()]
        builder.emit_func_output(Tuple(made))
    return builder.get()


def values(got: Any) -> Iterator[Any]:
    """The arrays of a nested result, in order."""
    if isinstance(got, tuple | list):
        for part in got:
            yield from values(part)
    else:
        yield np.asarray(got)


def ops_of(mod: IRModule) -> set[str]:
    """Names of the operators that functions call."""
    bound = [b.value for f in mod.relax_functions().values() for b in bindings_deep(f)]
    return {v.op.name for v in bound if isinstance(v, Call) and isinstance(v.op, Op)}


def as_loops(mod: IRModule) -> Any:
    """``main``, whose kernels are compiled as the loops that they are."""
    with PassContext(disabled_pass=["RestoreOperators"]):
        return rx.VirtualMachine(rx.build(mod))["main"]


def run(passes: Any) -> dict[tuple[str, int], list[Any]]:
    """What XLA computes of every case, in one program, after passes."""
    whole = module({f"{name}:{n}": CASES[name][n] for name, n in EACH})
    arrays = [a for name, n in EACH for a in CASES[name][n].arrays]
    options = {**compiler.COMPILER_OPTIONS, **compiler.RUN_ONCE_OPTIONS}
    with pytest.MonkeyPatch.context() as patch:
        # To compile takes a seventh of the time.
        patch.setattr(compiler, "COMPILER_OPTIONS", options)
        got = as_loops(passes(whole))(*arrays)
    return {at: list(values(part)) for at, part in zip(EACH, got, strict=True)}


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, int], list[Any]]:
    """What the rows of every case give."""
    return run(LegalizeOps())


def interpreted(mod: IRModule, arrays: Any) -> list[Any]:
    """The result of ``main``, whose calls are of kernels, by the interpreter of their trees."""
    (gvar,) = [g for g in mod.functions if g.name_hint == "main"]
    main: Any = mod.functions[gvar]
    env: dict[Any, Any] = dict(zip(main.params, map(np.array, arrays), strict=True))
    sizes = {
        d: n
        for p, a in zip(main.params, env.values(), strict=True)
        for d, n in zip(p.struct_info.dims, a.shape, strict=True)
        if isinstance(d, tir.Var)
    }

    def number(d: Any) -> int:
        made: Any = d if isinstance(d, int) else tir.simplify(tir.substitute(d, sizes))
        return int(made)

    def value(e: Any) -> Any:
        match e:
            case Constant():
                return np.array(e.data)
            case Tuple():
                return [value(x) for x in e.fields]
            case TupleGetItem():
                return value(e.tuple_value)[e.index]
            case Call():
                return called(e)
            case _:
                return env[e]

    def called(call: Call) -> Any:
        assert isinstance(call.op, Op), call
        assert call.op.name == "relax.call_tir", call
        infos: Any = flatten_info(call.struct_info)
        given: Any = call.args
        made = [np.zeros([number(d) for d in i.dims], i.dtype) for i in infos]
        shape: Any = given[2].values if len(given) > 2 else ()
        func: Any = mod.functions[given[0]]
        interpret(func, *value(given[1]), *made, *map(number, shape))
        return made if isinstance(call.struct_info, rx.TupleStructInfo) else made[0]

    for b in bindings_deep(main):
        env[b.var] = value(b.value)
    return list(values(value(main.body.body)))


def same(case: Case, got: list[Any], want: list[Any]) -> None:
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=case.tolerance, atol=case.tolerance)


def test_every_form_has_a_case() -> None:
    assert {f"relax.{name}" for name in CASES} == set(FORMS) - CALLED


@pytest.mark.parametrize(("name", "n"), EACH)
def test_kernels_compute_what_rows_do(rows: Any, name: str, n: int) -> None:
    case = CASES[name][n]
    for symbolic in (False, True)[: 1 + any(SYMBOLIC in np.shape(a) for a in case.arrays)]:
        made = LegalizeOps(to="kernels")(module({name: case}, symbolic))
        if name == "nn.pad" and n == 1:
            assert ops_of(made) == {"relax.nn.pad"}  # a mode that topi.nn.pad has not
            return
        assert ops_of(made) <= {"relax.call_tir"}, made.script()
        same(case, interpreted(made, case.arrays), rows[name, n])


def test_kernels_build(rows: Any) -> None:
    """Their loops are rows again in what the build makes of them."""
    for (name, n), got in run(LegalizeOps(to="kernels")).items():
        same(CASES[name][n], got, rows[name, n])


# ---- operators that become calls of functions
def called(mod: IRModule, *args: Any) -> Any:
    return as_loops(mod)(*args)


def test_sizes_that_depend_on_values(capsys: Any) -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor("int64", ndim=1)):
            a = R.nonzero(x)
            b = R.unique(y)
            c = R.unique(y, return_counts=True)
            d = R.shape_to_tensor(R.shape([2, 3]))
            R.print(d, format="d is {}")
            R.assert_op(R.const(True), format="never")
            return (a, b, c, d)

    made = LegalizeOps(to="kernels")(Before)
    assert ops_of(made) == {"relax.call_pure_packed"}
    text = made.script()
    for name in ("nonzero", "unique", "shape_to_tensor", "print", "assert_op"):
        assert f'"relax.run.{name}"' in text
    x = np.array([[0, 1, 0], [2, 0, 3]], "float32")
    y = np.array([5, 2, 5, 7, 2])
    a, b, (c, counts), d = called(made, x, y)
    np.testing.assert_array_equal(a, np.stack(np.nonzero(x)))
    np.testing.assert_array_equal(b, [2, 5, 7])
    np.testing.assert_array_equal(c, [2, 5, 7])
    np.testing.assert_array_equal(counts, [2, 2, 1])
    np.testing.assert_array_equal(d, [2, 3])
    assert capsys.readouterr().out == "d is [2 3]\n"


@pytest.mark.parametrize(
    ("begin", "end", "strides"),
    [([1, 0], [5, 7], [2, 3]), ([-2, 9], [-9, 1], [-1, -2]), ([3, 5], [1, 9], [1, 1])],
)
def test_slice_whose_bounds_are_values(
    begin: list[int], end: list[int], strides: list[int]
) -> None:
    """Also where it is empty, and from the end, which TVM's function does not count from."""

    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((6, 7), "float32"),
            begin: R.Tensor((2,), "int64"),
            end: R.Tensor((2,), "int64"),
            strides: R.Tensor((2,), "int64"),
        ):
            return R.dynamic_strided_slice(x, begin, end, strides)

    made = LegalizeOps(to="kernels")(Before)
    assert ops_of(made) == {"relax.call_tir", "relax.call_pure_packed"}
    x = np.arange(42, dtype="float32").reshape(6, 7)
    got = called(made, x, *map(np.array, (begin, end, strides)))
    want = x[tuple(itertools.starmap(slice, zip(begin, end, strides, strict=True)))]
    np.testing.assert_array_equal(np.asarray(got), want)


def test_what_workers_do_together() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 6), "float32")):
            a = R.ccl.allreduce(x, "max")
            b = R.ccl.allgather(a, 2)
            c = R.ccl.broadcast_from_worker0(b)
            return R.ccl.scatter_from_worker0(c, 2, axis=1)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4, 6), "float32")):
            a = R.call_dps_packed(
                "runtime.disco.allreduce", [x, R.shape([3]), True], R.Tensor((4, 6), "float32")
            )
            b = R.call_dps_packed("runtime.disco.allgather", [a, True], R.Tensor((8, 6), "float32"))
            c = R.call_dps_packed(
                "runtime.disco.broadcast_from_worker0", [b, False], R.Tensor((8, 6), "float32")
            )
            d = R.emit_te(topi.reshape, c, [8, 2, 3])
            e = R.emit_te(topi.transpose, d, [1, 0, 2])
            return R.call_dps_packed(
                "runtime.disco.scatter_from_worker0", [e, False], R.Tensor((8, 3), "float32")
            )

    rx.ir.assert_structural_equal(LegalizeOps(to="kernels")(Before), Expected)


# ---- what they are for
def test_kernels_are_fused() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                a = R.nn.conv2d(x, w, padding=1)
                b = R.nn.relu(a)
                c = R.sum(b, [2, 3])
                d = R.nn.softmax(c)
                e = R.multiply(d, R.const(2.0, "float32"))
                R.output(e)
            return e

    passes = [LegalizeOps(to="kernels"), AnnotateTIROpPattern(), FuseOps(), FuseTIR()]
    made = Sequential(passes)(Before)
    names = {g.name_hint for g in made.functions}
    assert "fused_conv2d_relu" in names
    assert ops_of(made) == {"relax.call_tir"}
    x, w = np.ones((1, 3, 8, 8), "float32"), np.full((4, 3, 3, 3), 0.1, "float32")
    w[1] = 0.11
    np.testing.assert_allclose(called(made, x, w), called(Before, x, w), rtol=1e-5)


# ---- what stays, and what is asked for
@I.ir_module
class Add:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        return R.add(x, y)


def test_unknown_shapes_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor("float32", ndim=2)):
            return R.add(x, x)

    with pytest.warns(UserWarning, match=r"relax\.add has no loop-level form here, for the shapes"):
        made = LegalizeOps(None, True, to="kernels")(Before)
    rx.ir.assert_structural_equal(made, Before)


def test_operators_without_a_form_stay_and_run() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            a = R.add(x, R.const(1.0, "float32"))
            return R.sort(a, axis=1)

    with pytest.warns(UserWarning, match=r"relax\.sort has no loop-level form; it stays"):
        made = LegalizeOps(enable_warning=True, to="kernels")(Before)
    assert ops_of(made) == {"relax.call_tir", "relax.sort"}
    x = np.array([[3, 1, 2], [6, 5, 4]], "float32")
    np.testing.assert_array_equal(np.asarray(called(made, x)), np.sort(x + 1, 1))


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (op.power, "int32"),  # TIR's pow is of floats
        (op.logical_and, "float32"),  # a bool in topi, 0.0 or 1.0 in Relax
        (lambda x, y: op.mean(x, 1), "int8"),  # an int8 in topi, a float32 in Relax
        (lambda x, y: op.sign(x), "uint8"),
        (op.add, "complex64"),
        (lambda x, y: op.abs(x), "complex64"),
        (op.matmul, "complex64"),
        (lambda x, y: op.zeros_like(x), "complex64"),
    ],
)
def test_dtypes_for_which_functions_differ_stay(call: Any, dtype: str) -> None:
    builder = rx.BlockBuilder()
    params = [Var(n, rx.TensorStructInfo((3, 3), dtype)) for n in "xy"]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call(*params)))
    made = LegalizeOps(to="kernels")(builder.get())
    rx.ir.assert_structural_equal(made, builder.get())


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda x: op.layout_transform(x, lambda a, b, c, d: (a + b, c, d)), "cannot be inverted"),
        (lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "reflect"), "pad_mode is reflect"),
        (lambda x: op.nn.max_pool2d(x, out_layout="NHWC"), "out_layout NHWC"),
        (lambda x: op.flip(x, [0, 1]), "several axes"),
    ],
)
def test_calls_without_a_form_say_why(call: Any, why: str) -> None:
    builder = rx.BlockBuilder()
    x = Var("x", rx.TensorStructInfo((2, 3, 4, 5), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(call(x)))
    with pytest.warns(UserWarning, match=why):
        made = LegalizeOps(enable_warning=True, to="kernels")(builder.get())
    rx.ir.assert_structural_equal(made, builder.get())


def test_lowerings_of_ones_own_come_first() -> None:
    """What they give, and what they emit, is lowered as well."""

    def twice(builder: rx.BlockBuilder, call: Call) -> Any:
        whole = builder.emit(op.nn.relu(call.args[0]))
        return op.multiply(whole, call.args[1])

    def swapped(builder: rx.BlockBuilder, call: Call) -> Any:
        return builder.call_te(topi.add, call.args[1], call.args[0], primfunc_name_hint="swapped")

    made = LegalizeOps({"relax.add": twice}, to="kernels")(Add)
    assert {g.name_hint for g in made.functions} == {"main", "relu", "multiply"}
    made = LegalizeOps({"relax.add": swapped}, to="kernels")(Add)
    assert {g.name_hint for g in made.functions} == {"main", "swapped"}
    x, y = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
    np.testing.assert_array_equal(np.asarray(called(made, x, y)), x + y)


def test_equal_kernels_are_one_function() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            a = R.nn.relu(x)
            b = R.nn.relu(a)
            return R.nn.relu(R.permute_dims(b))

    made = LegalizeOps(to="kernels")(Before)
    assert sorted(g.name_hint for g in made.functions) == ["main", "relu", "relu1", "transpose"]


def test_a_device_has_functions_of_its_own() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm")]})

        @R.function
        def main(x: R.Tensor((2, 3), "float32", "llvm:0")):
            return R.nn.relu(x)

    made = LegalizeOps(to="kernels")(Before)
    (kernel,) = [g for g in made.functions if g.name_hint != "main"]
    assert kernel.name_hint == "relu_llvm"
    assert made.functions[kernel].attrs["target"] == rx.target.Target("llvm")


def test_a_second_time_changes_nothing() -> None:
    made = LegalizeOps(to="kernels")(Add)
    rx.ir.assert_structural_equal(LegalizeOps(to="kernels")(made), made)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"to": "tir"}, r"to is one of 'rows', 'kernels'; got 'tir'"),
        ({"to": "kernels", "every": True}, r'are for to="rows"'),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LegalizeOps(**options)


def test_matmul_of_unknown_dtype() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3)), y: R.Tensor((3, 4))):
            return R.matmul(x, y)

    with pytest.raises(TVMError, match="the dtype of both operands must be known") as e:
        LegalizeOps(to="kernels")(Before)
    assert "while making a loop-level function of relax.matmul" in e.value.__notes__[0]

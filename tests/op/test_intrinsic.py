"""Calls of foreign functions, shapes as values, marks and data-dependent operators: inference."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla
from relax2xla import op, tir
from relax2xla.analysis import check_well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.errors import LegalizeError, OpError, TVMError
from relax2xla.ir import (
    Call,
    Constant,
    ExternFunc,
    GlobalVar,
    IRModule,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VDevice,
    const,
)
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.script import from_source
from tests.op.harness import Case, check, tensor

N = tir.Var("n", "int64")
F32 = TensorStructInfo((N, 3), "float32")
X = tensor((N, 3))


def test_call_tir():
    func = GlobalVar("f")
    one = op.call_tir(func, X, F32)
    assert one.struct_info == F32
    assert isinstance(one.args[1], Tuple)
    assert one.args[0] is func
    two = op.call_tir(func, (X, X), [F32, F32], tir_vars=(N,))
    assert two.struct_info == TupleStructInfo([F32, F32])
    assert two.args[2] == ShapeExpr((N,))
    place = op.call_tir_inplace(func, (X,), 0, F32)
    assert place.attrs["inplace_indices"] == (0,)
    grad = op.call_tir_with_grad(func, X, F32, "grad", {"k": 1})
    assert grad.attrs["te_grad_name"] == "grad"


def test_the_operators_below_are_not_for_direct_use():
    """A call that does not state its result is refused."""
    for name in ("call_tir", "call_tir_inplace", "call_tir_with_grad", "call_dps_packed"):
        with pytest.raises(OpError, match="must be given as `sinfo_args`"):
            Call(op.add.get(f"relax.{name}"), [GlobalVar("f"), Tuple([X])], ATTRS.get(name))


ATTRS = {
    "call_tir_inplace": {"inplace_indices": [0]},
    "call_tir_with_grad": {"te_grad_name": "g"},
}


def test_packed_calls():
    pure = op.call_pure_packed("f", X, PrimValue(1), sinfo_args=F32)
    assert pure.struct_info == F32
    assert isinstance(pure.args[0], ExternFunc)
    assert pure.args[0].global_symbol == "f"
    dps = op.call_dps_packed("f", X, F32)
    assert dps.struct_info == F32
    inplace = op.call_inplace_packed("f", X, inplace_indices=[0], sinfo_args=[F32])
    assert inplace.struct_info == F32
    assert op.call_builtin_with_ctx("vm.f", (X,)).struct_info == ObjectStructInfo()
    closure = op.make_closure(GlobalVar("f"), (X,))
    assert closure.struct_info == ObjectStructInfo()
    assert op.invoke_closure(closure, (X,), F32).struct_info == F32
    assert op.invoke_pure_closure(closure, (X,), F32).struct_info == F32


def test_purity():
    for impure in ("print", "assert_op", "invoke_closure", "call_builtin_with_ctx"):
        assert not op.add.get(f"relax.{impure}").pure
    for pure in ("call_pure_packed", "call_tir", "invoke_pure_closure", "null_value"):
        assert op.add.get(f"relax.{pure}").pure


def test_effects():
    shown = op.print(X, PrimValue(1), format="{} {}")
    assert shown.struct_info == TupleStructInfo(())
    assert len(shown.args) == 2
    assert shown.attrs["format"] == "{} {}"
    checked = op.assert_op(const(True), [X], format="no {}")
    assert checked.args[1] is X


def test_shapes():
    assert op.shape_of(X).struct_info == ShapeStructInfo((N, 3))
    unknown = Var("x", TensorStructInfo(None, "float32", ndim=2))
    assert op.shape_of(unknown).struct_info == ShapeStructInfo(ndim=2)
    assert op.tensor_to_shape(tensor((3,), "int64")).struct_info == ShapeStructInfo(ndim=3)
    assert op.tensor_to_shape(tensor((N,), "int64")).struct_info == ShapeStructInfo()
    made = op.shape_to_tensor(ShapeExpr((N, 3))).struct_info
    assert made == TensorStructInfo((2,), "int64")
    x = np.zeros((2, 5), np.float32)
    shape = Constant(np.array([5, 2], np.int64))
    check(
        [
            Case("of", lambda x: op.shape_to_tensor(op.shape_of(x)), [x], np.array([2, 5])),
            Case("size", op.size, [x], np.int64(10)),
        ]
    )
    lower = op.tensor_to_shape.lowering
    assert lower is not None
    assert lower(shape) == (5, 2)
    with pytest.raises(LegalizeError, match="only when the program runs"):
        lower(tensor((2,), "int64"))


def test_marks_change_nothing():
    x = np.ones((2, 3), np.float32)
    device = VDevice("llvm")
    check(
        [
            Case("hint", lambda x: op.hint_on_device(x, device), [x], x),
            Case("stop", op.builtin.stop_lift_params, [x], x),
            Case("gather", lambda x: op.ccl.allgather(x, 1), [x], x),
            Case("scatter", lambda x: op.ccl.scatter_from_worker0(x, 1), [x], x),
            Case(
                "alloc",
                lambda: op.builtin.alloc_tensor((2,), "int8", 0),
                [],
                np.zeros(2, np.int8),
            ),
        ]
    )
    moved = op.to_vdevice(X, device).struct_info
    assert isinstance(moved, TensorStructInfo)
    assert moved.vdevice == device
    assert op.null_value().struct_info == ObjectStructInfo()


def test_views():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    view = op.memory.view
    check(
        [
            Case("shape", lambda x: view(x, (4, 3)), [x], x.reshape(4, 3)),
            Case("part", lambda x: view(x, (2, 2), None, 8), [x], x.ravel()[2:6].reshape(2, 2)),
            Case("dtype", lambda x: view(x, None, "int32"), [x], x.view(np.int32)),
            Case("wider", lambda x: view(x, (6,), "int64"), [x], x.ravel().view(np.int64)),
            Case("narrower", lambda x: view(x, (3, 16), "uint8"), [x], x.view(np.uint8)),
            Case("nothing", op.memory.ensure_zero_offset, [x], x),
            Case("no_grad", op.grad.no_grad, [x], x),
        ]
    )
    assert view(X, (3, N)).struct_info == TensorStructInfo((3, N), "float32")
    with pytest.raises(OpError, match="reaches beyond"):
        view(tensor((2, 2)), (5,))


def test_collectives():
    assert op.ccl.allreduce(X, "avg").struct_info == F32
    assert op.ccl.allgather(X, 2).struct_info == TensorStructInfo((N * 2, 3), "float32")
    assert op.ccl.broadcast_from_worker0(X).struct_info == F32
    made = op.ccl.scatter_from_worker0(X, 3, 1).struct_info
    assert made == TensorStructInfo((N, 1), "float32")


def test_inspection():
    def value(call):
        assert isinstance(call.struct_info, PrimStructInfo)
        return str(call.struct_info.value), call.struct_info.dtype

    half = tensor((2, N, 4), "bfloat16")
    assert op.inspect.tensor_ndim(half).struct_info == PrimStructInfo(value=tir.const(3, "int32"))
    assert op.inspect.tensor_dtype_bits(half).struct_info.value.value == 16
    assert op.inspect.tensor_dtype_code(half).struct_info.value.value == 4
    assert op.inspect.tensor_dtype_lanes(half).struct_info.value.value == 1
    assert op.inspect.tensor_byte_offset(half).struct_info.value.value == 0
    assert op.inspect.tensor_elem_offset(half).struct_info.value.value == 0
    assert value(op.inspect.tensor_shape_i(half, 1)) == ("n", "int64")
    assert op.inspect.tensor_stride_i(half, 1).struct_info.value.value == 4
    unknown = Var("x", TensorStructInfo(None, None))
    assert op.inspect.tensor_ndim(unknown).struct_info == PrimStructInfo("int32")
    with pytest.raises(OpError, match="out of range"):
        op.inspect.tensor_shape_i(half, 3)
    with pytest.raises(OpError, match="must not be negative"):
        op.inspect.tensor_shape_i(half, -1)


def test_sizes_that_depend_on_data():
    flat = TensorStructInfo(None, "float32", ndim=1)
    where = TensorStructInfo(None, "int64", ndim=1)
    assert op.unique(X).struct_info == flat
    assert op.unique(X, axis=1).struct_info == TensorStructInfo(None, "float32", ndim=2)
    three = op.unique(X, True, True, False, True).struct_info
    assert three == TupleStructInfo([flat, where, where])
    assert op.nonzero(X).struct_info == TensorStructInfo(None, "int64", ndim=2)
    with pytest.raises(OpError, match="out of range"):
        op.unique(X, axis=2)


def test_multinomial():
    prob = np.array([[0.25, 0.25, 0.5], [0.0, 1.0, 0.0]], np.float32)
    numbers = np.array([[0.0], [0.25], [0.49], [0.5], [0.99], [0.0], [0.999]], np.float32)
    rows = np.array([[0], [0], [0], [0], [0], [1], [1]])
    want = np.array([[0], [1], [1], [2], [2], [1], [1]])
    check([Case("draws", op.multinomial_from_uniform, [prob, numbers, rows], want)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.call_tir(ExternFunc("f"), X, F32), "by its GlobalVar"),
        (lambda: op.call_tir(GlobalVar("f"), X, []), "at least one result"),
        (lambda: op.call_tir(GlobalVar("f"), X, ObjectStructInfo()), "tensors of known shape"),
        (lambda: op.call_pure_packed("f", X, sinfo_args=None), "`sinfo_args` must say"),
        (
            lambda: op.call_inplace_packed("f", X, inplace_indices=1, sinfo_args=F32),
            "one of the 1 arg",
        ),
        (lambda: op.assert_op(const(1)), "`condition` must be one of bool"),
        (lambda: op.assert_op(PrimValue(1)), "`condition` must be a bool"),
        (lambda: op.shape_of(ShapeExpr((1,))), "`expr` must be a tensor"),
        (lambda: op.shape_to_tensor(X), "`expr` must be a shape"),
        (lambda: op.tensor_to_shape(tensor((3,))), "got float32"),
        (lambda: op.to_vdevice(X, 3), "must be a VDevice"),
        (lambda: op.ccl.allreduce(X, "xor"), "`op_type` must be one of"),
        (lambda: op.ccl.allgather(X, 0), "`num_workers` must be positive"),
        (lambda: op.ccl.scatter_from_worker0(X, 2, 1), "no multiple of 2 workers"),
        (lambda: op.multinomial_from_uniform(X, X, tensor((N, 1), "int64")), r"shape \(n, 1\)"),
        (lambda: op.builtin.alloc_tensor((2,), const(1), 0), "`dtype` must be a dtype"),
    ],
)
def test_errors(call, message):
    with pytest.raises(OpError, match=message):
        call()


@pytest.mark.parametrize(
    ("places", "count", "reason"),
    [
        ([-1], 1, "at least one must not be -1"),
        ([1], 1, "index of one of the 1 arguments"),
        ([-2], 1, "index of one of the 1 arguments"),
        ([0, -1], 1, "one for each of the 1 results"),
        ([0, 0], 2, "two results"),
    ],
)
def test_inplace_indices(places: list[int], count: int, reason: str) -> None:
    info = TensorStructInfo((2,), "float32")
    x, out = Var("x", info), [info] * count if count > 1 else info
    with pytest.raises(OpError, match=reason):
        op.call_tir_inplace(GlobalVar("f"), [x], places, out)
    made = op.call_tir_inplace(GlobalVar("f"), [x], 0, info)
    assert made.attrs.inplace_indices == (0,)


@pytest.mark.parametrize(
    ("arg", "result"),
    [
        (TensorStructInfo((N, 3), "int8"), F32),
        (TensorStructInfo((2, 3), "float32"), F32),
        (TensorStructInfo((N + 1, 3), "float32"), F32),
        (TensorStructInfo(None, "float32", ndim=2), F32),
        (ObjectStructInfo(), F32),
    ],
)
def test_a_result_in_place_is_as_the_argument(arg: StructInfo, result: TensorStructInfo) -> None:
    """TVM refuses the same."""
    with pytest.raises(OpError, match=r"result 1 is .* cannot take the place of argument 2"):
        op.call_tir_inplace(GlobalVar("f"), [X, X, Var("y", arg)], [-1, 2], [F32, result])
    twice = TensorStructInfo((N + N, 3), "float32")
    made = op.call_tir_inplace(
        GlobalVar("f"), [Var("y", twice)], 0, TensorStructInfo((N * 2, 3), "float32")
    )
    assert made.struct_info == TensorStructInfo((N * 2, 3), "float32")


@pytest.mark.parametrize(
    ("places", "infos", "reason"),
    [
        (-1, F32, "at least one must not be -1"),
        ([], F32, "at least one must not be -1"),
        (1, F32, "index of one of the 1 arguments"),
        ([0, 0], [F32, F32], "two results"),
        ([0, -1], F32, "need a tuple of as many results"),
        (0, TensorStructInfo((N, 3), "int8"), "that argument is"),
        (0, TensorStructInfo((2, 3), "float32"), "that argument is"),
        (0, [F32, F32], "that argument is"),
    ],
)
def test_inplace_packed_errors(places: object, infos: object, reason: str) -> None:
    with pytest.raises(OpError, match=reason):
        op.call_inplace_packed("f", X, inplace_indices=places, sinfo_args=infos)


def test_results_of_packed_calls() -> None:
    """As TVM infers them: several struct infos are a tuple, none an object."""
    two = TupleStructInfo([F32, F32])
    assert op.call_pure_packed("f", X, sinfo_args=[F32]).struct_info == F32
    assert op.call_pure_packed("f", X, sinfo_args=[F32, F32]).struct_info == two
    made = op.call_inplace_packed("f", X, X, inplace_indices=[0, -1], sinfo_args=[F32, F32])
    assert made.struct_info == two
    assert op.call_dps_packed(GlobalVar("f"), (), F32).struct_info == F32
    assert op.call_dps_packed(GlobalVar("f"), (), [F32]).struct_info == F32
    assert op.call_dps_packed(GlobalVar("f"), (), TupleStructInfo([F32])).struct_info == (
        TupleStructInfo([F32])
    )
    extern = ExternFunc("f")
    assert Call(extern, [X]).struct_info == ObjectStructInfo()
    assert Call(extern, [X], sinfo_args=[F32, F32]).struct_info == two
    assert op.invoke_closure(Var("c", ObjectStructInfo()), (X,), [F32, F32]).struct_info == two
    assert op.invoke_closure(Var("c", ObjectStructInfo()), (X,), []).struct_info == (
        ObjectStructInfo()
    )


INTRINSICS = """
R.call_tir(cls.f, (x,), out_sinfo=R.Tensor((n, 3), dtype="float32"))
R.call_tir(cls.h, (x,), out_sinfo=[R.Tensor((n, 3), dtype="float32"), R.Tensor((2,), dtype="int8")])
R.call_tir(cls.f, (x,), out_sinfo=R.Tuple(R.Tensor((n, 3), dtype="float32")))
R.call_tir(cls.sized, (x,), out_sinfo=R.Tensor((n, 3), dtype="float32"), tir_vars=R.shape([n]))
R.call_tir_inplace(cls.one, (x,), inplace_indices=[0], out_sinfo=R.Tensor((n, 3), dtype="float32"))
R.call_tir_with_grad(cls.f, (x,), out_sinfo=R.Tensor((n, 3), dtype="float32"), te_grad_name="g")
R.call_dps_packed("f", (x,), out_sinfo=R.Tensor((n, 3), dtype="float32"))
R.call_pure_packed("f", x, sinfo_args=(R.Tensor((n, 3), dtype="float32"),))
R.call_inplace_packed("f", x, inplace_indices=[0], sinfo_args=(R.Tensor((n, 3), dtype="float32"),))
R.call_builtin_with_ctx("vm.f", (x,), sinfo_args=(R.Object,))
R.invoke_closure(c, (x,), sinfo_args=(R.Tensor((n, 3), dtype="float32"),))
R.invoke_pure_closure(c, (x,), sinfo_args=(R.Tensor((n, 3), dtype="float32"),))
R.make_closure(cls.g, (x,))
""".strip().splitlines()


@pytest.mark.parametrize("line", INTRINSICS)
def test_text_and_back(line: str) -> None:
    """Every intrinsic is parsed, checked and printed, and the print is parsed to the same."""
    text = f"""
from relax2xla.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def one(a: T.handle):
        T.evaluate(0)
    @T.prim_func(private=True)
    def f(a: T.handle, b: T.handle):
        T.evaluate(0)
    @T.prim_func(private=True)
    def h(a: T.handle, b: T.handle, c: T.handle):
        T.evaluate(0)
    @T.prim_func(private=True)
    def sized(a: T.handle, b: T.handle, n: T.int64):
        T.evaluate(0)
    @R.function(private=True)
    def g(y: R.Tensor(("m", 3), "float32")) -> R.Tensor(("m", 3), "float32"):
        return y
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 3), "float32"), c: R.Object):
        n = T.int64()
        cls = Module
        y = {line}
        return y
"""
    mod = from_source(text)
    check_well_formed(mod)
    shown = mod.script()
    (binding,) = mod["main"].body.blocks[0].bindings
    assert binding.value.op.name.split(".")[-1] in shown
    again = from_source(shown)
    assert_structural_equal(again, mod)
    assert again["main"].body.blocks[0].bindings[0].var.struct_info is not None


def test_call_tir_runs_the_function_with_its_parameters() -> None:
    info = TensorStructInfo((2,), "float32")
    x = Var("x", info)
    bb = BlockBuilder(IRModule({"f": tir.PrimFunc([], tir.Evaluate(tir.IntImm("int32", 0)))}))
    with bb.function("main", [x]):
        call = op.call_tir(bb.get().get_global_var("f"), [x], info)
        bb.emit_func_output(call)
    vm = relax2xla.VirtualMachine(relax2xla.build(bb.get()), relax2xla.cpu())
    with pytest.raises(TVMError, match=r"f: the kernel takes 0 parameters \(\); got 2 arguments"):
        vm["main"](np.ones(2, np.float32))


def test_numbers_in_packed_calls_have_64_bits():
    x = Var("x", ObjectStructInfo())
    calls = [
        op.call_pure_packed("f", x, 3, 1.5, [True, "s"], sinfo_args=ObjectStructInfo()).args[1:],
        op.call_dps_packed("f", [x, 3, 1.5, [True, "s"]], F32).args[1].fields,
    ]
    for args in calls:
        assert [a.value.dtype for a in args[1:3]] == ["int64", "float64"]
        assert [type(f).__name__ for f in args[3].fields] == ["PrimValue", "StringImm"]


def test_a_list_of_one_result_is_that_result():
    func = GlobalVar("f")
    for made in (
        op.call_tir(func, [X], [F32]),
        op.call_tir_inplace(func, [X], [0], [F32]),
        op.call_dps_packed("f", [X], [F32]),
    ):
        assert made.struct_info == F32


def test_a_kernel_s_arguments_are_written_out() -> None:
    """A-normal form has them as a tuple in the call, whatever held them."""
    gvar = GlobalVar("f")
    a, pair = Var("a", F32), Var("pair", TupleStructInfo([F32, F32]))
    builder = BlockBuilder()
    with builder.function("main", [a, pair]):
        bound = builder.emit(Tuple([a, a]))
        calls = [
            builder.lookup_binding(builder.emit(op.call_tir(gvar, args, F32)))
            for args in (bound, pair)
        ]
        builder.emit_func_output(a)
    known, items = calls
    assert isinstance(known, Call)
    assert_structural_equal(known.args[1], Tuple([a, a]))
    assert isinstance(items, Call)
    assert isinstance(items.args[1], Tuple)
    assert len(items.args[1].fields) == 2
    function = builder.get()["main"]
    assert [str(b.value) for b in function.body.blocks[0].bindings[2:4]] == ["pair[0]", "pair[1]"]


def test_a_kernel_is_called_by_its_own_name() -> None:
    text = """
from tvm.script import tir as T
@T.prim_func{options}
def twice(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("y"):
            v = T.axis.spatial(4, i)
            y[v] = x[v] * T.float32(2)
"""
    x, result = tensor((4,)), TensorStructInfo((4,), "float32")
    func = from_source(text.format(options=""))
    assert isinstance(func, tir.PrimFunc)
    call = op.call_tir(func, x, result)
    assert isinstance(call.args[0], GlobalVar)
    assert call.args[0].name_hint == "twice"
    private = from_source(text.format(options="(private=True)"))
    assert isinstance(private, tir.PrimFunc)
    with pytest.raises(OpError, match="a private PrimFunc is called by the GlobalVar"):
        op.call_tir(private, x, result)

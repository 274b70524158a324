"""Kernels are classified, grouped and fused; the values of the program stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import BlockBuilder, IRModule, TensorStructInfo, Var, const, op, te, tir, topi
from relax2xla.analysis import check_well_formed
from relax2xla.analysis.op_pattern import OpPatternKind, op_pattern_kind
from relax2xla.errors import TransformError
from relax2xla.ir import Tuple, TupleGetItem, assert_structural_equal
from relax2xla.script import from_source
from relax2xla.transform import (
    AnnotateTIROpPattern,
    FuseOps,
    FuseTIR,
    LegalizeOps,
    PassContext,
    Sequential,
)

FUSE = Sequential([AnnotateTIROpPattern(), FuseOps(), FuseTIR()])


def module(text: str) -> IRModule:
    mod = from_source("from tvm.script import ir as I, relax as R, tir as T\n" + text)
    assert isinstance(mod, IRModule)
    return mod


@pytest.mark.parametrize(
    ("kind", "compute"),
    [
        ("ElemWise", lambda x, y, z: topi.exp(x)),
        ("ElemWise", lambda x, y, z: topi.add(x, z)),
        ("Broadcast", lambda x, y, z: topi.broadcast_to(z, (3, 4))),
        ("Injective", lambda x, y, z: topi.transpose(x)),
        ("CommReduce", lambda x, y, z: topi.sum(x, 1)),
        ("OutEWiseFusable", lambda x, y, z: topi.matmul(x, y)),
        ("OutEWiseFusable", lambda x, y, z: topi.nn.softmax(x)),
        ("Opaque", lambda x, y, z: topi.cumsum(x, 0)),
    ],
)
def test_kernels_have_the_class_that_tvm_gives_them(kind: str, compute: Any) -> None:
    shapes = {"x": (3, 4), "y": (4, 4), "z": (4,)}
    given = [te.placeholder(shape, "float32", name) for name, shape in shapes.items()]
    assert op_pattern_kind(te.create_prim_func([*given, compute(*given)])).name == kind


def test_what_cannot_be_read_is_opaque() -> None:
    func = tir.PrimFunc([], tir.Evaluate(tir.IntImm("int32", 0)))
    assert op_pattern_kind(func) is OpPatternKind.Opaque


def network() -> IRModule:
    """A convolution with a sum that reads it twice, and a product with what follows it."""
    bb = BlockBuilder()
    x = Var("x", TensorStructInfo((1, 3, 6, 6), "float32"))
    w = Var("w", TensorStructInfo((4, 3, 3, 3), "float32"))
    m = Var("m", TensorStructInfo((144, 5), "float32"))
    with bb.function("main", [x, w, m]):
        with bb.dataflow():
            conv = bb.emit_te(topi.nn.conv2d, x, w, strides=1, padding=1, dilation=1)
            more = bb.emit_te(topi.add, conv, const(1, "float32"))
            both = bb.emit_te(topi.multiply, conv, more)
            flat = bb.emit(op.reshape(both, (1, 144)))
            product = bb.emit_te(topi.matmul, flat, m)
            result = bb.emit_te(topi.nn.relu, product)
            half = bb.emit(op.nn.softmax(result))
            out = bb.emit_output(half)
        bb.emit_func_output(out)
    return bb.get()


def test_groups_follow_products_and_meet_where_readers_do() -> None:
    made = FuseOps()(AnnotateTIROpPattern()(network()))
    names = {g.name_hint for g, f in made.relax_functions().items() if f.attrs.get("Primitive")}
    assert names == {"fused_conv2d_add_multiply", "fused_matmul_relu"}
    assert FuseOps(0)(made) is made
    with PassContext(opt_level=0):
        mod = AnnotateTIROpPattern()(network())
        assert FuseOps()(mod) is mod
    with PassContext(config={"relax.FuseOps.max_depth": 2}):
        made = FuseOps()(AnnotateTIROpPattern()(network()))
    names = {g.name_hint for g, f in made.relax_functions().items() if f.attrs.get("Primitive")}
    assert names == {"fused_add_multiply", "fused_matmul_relu"}


def test_a_network_of_fused_kernels_computes_what_numpy_does() -> None:
    mod = FUSE(network())
    kernels = [g.name_hint for g, f in mod.items() if isinstance(f, tir.PrimFunc)]
    assert sorted(kernels) == ["fused_conv2d_add_multiply", "fused_matmul_relu"]
    rng = np.random.default_rng(0)
    x, w, m = (
        rng.standard_normal(s, dtype=np.float32) for s in ((1, 3, 6, 6), (4, 3, 3, 3), (144, 5))
    )
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x[0], ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2)
    )
    conv = np.einsum("chwij,ocij->ohw", windows, w)
    result = np.maximum((conv * (conv + 1)).reshape(1, 144) @ m, 0)
    e = np.exp(result - result.max())
    vm = relax2xla.VirtualMachine(relax2xla.build(mod))
    np.testing.assert_allclose(vm["main"](x, w, m), e / e.sum(), rtol=1e-4, atol=1e-5)


KERNELS = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("double"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] + A[vi]

    @T.prim_func(private=True)
    def fill(A: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.block("fill"):
                vi = T.axis.spatial(T.int64(8), i)
                A[vi] = A[vi] + T.float32(1)

    @R.function(private=True)
    def both(x: R.Tensor((8,), "float32"), unused: R.Tensor((8,), "float32")
             ) -> R.Tensor((8,), "float32"):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((8,), "float32"))
            z = R.call_tir(cls.double, (y,), out_sinfo=R.Tensor((8,), "float32"))
            R.output(z)
        return z

    @R.function(private=True)
    def inplace(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            y = R.call_tir_inplace(cls.fill, (x,), 0, out_sinfo=R.Tensor((8,), "float32"))
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        cls = Module
        with R.dataflow():
            y = cls.both(x, x)
            z = cls.inplace(y)
            R.output(z)
        return z
"""


def test_one_kernel_twice_sizes_that_are_known_and_results_in_place() -> None:
    mod = module(KERNELS)
    made = FuseTIR()(mod)
    assert {g.name_hint for g in made} == {"both", "inplace", "main"}
    names = [c.value.op.name for c in made["main"].body.blocks[0].bindings]
    assert names == ["relax.call_tir", "relax.call_tir_inplace"]
    x = np.arange(8, dtype=np.float32)
    vm = relax2xla.VirtualMachine(relax2xla.build(made))
    np.testing.assert_array_equal(vm["main"](x), 4 * x + 1)
    assert_structural_equal(made["both"], FuseTIR()(mod)["both"], map_free_vars=True)


OUT = 'out_sinfo=R.Tensor((8,), "float32"))'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f"R.call_tir(cls.double, (y,), {OUT}", "R.exp(y)", "it calls relax.exp"),
        (f"(x,), {OUT}", f"(x,), {OUT.replace('8', '9')}", "is 8, and 9 of what it is given"),
    ],
)
def test_what_cannot_be_one_kernel_is_named(old: str, new: str, message: str) -> None:
    assert old in KERNELS
    text = KERNELS.replace(old, new, 1).replace(' -> R.Tensor((8,), "float32"):', ":")
    with pytest.raises(TransformError, match=message):
        FuseTIR()(module(text))


def test_a_module_without_groups_stays_the_same_object() -> None:
    mod = network()
    assert FuseTIR()(mod) is mod
    assert FuseOps()(mod) is mod


def test_symbols_of_kernels_are_their_own() -> None:
    bb = BlockBuilder()
    x = Var("x", TensorStructInfo((tir.Var("n", "int64"), 4), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(bb.call_te(topi.exp, bb.emit_te(topi.negative, x)))
        bb.emit_func_output(out)
    made = FuseOps()(AnnotateTIROpPattern()(bb.get()))
    (binding,) = made["main"].body.blocks[0].bindings
    assert list(binding.value.args) == [made["main"].params[0]]


def test_a_field_of_a_tuple_that_stands_in_it_is_the_field() -> None:
    bb = BlockBuilder()
    x = Var("x", TensorStructInfo((4,), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(op.sin(x))
            z = bb.emit(TupleGetItem(Tuple([y, bb.emit(op.exp(y))]), 1))
            result = bb.emit_output(op.negative(z))
        bb.emit_func_output(result)
    mod, given = bb.get(), np.linspace(-1, 1, 4, dtype="f")
    fused = FUSE(LegalizeOps(to="kernels")(mod))
    check_well_formed(fused)
    kernels = [f for f in fused.functions.values() if isinstance(f, tir.PrimFunc)]
    assert any("fused" in f.attrs.get("global_symbol", "fused") for f in kernels)
    found = relax2xla.VirtualMachine(relax2xla.build(fused))["main"](given)
    np.testing.assert_allclose(found, -np.exp(np.sin(given)), rtol=1e-6)

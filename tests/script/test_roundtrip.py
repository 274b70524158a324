"""Printing and parsing are inverses, on random modules of everything that a text can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relax2xla import ir, op, tir
from relax2xla.dtypes import DTYPES as DTYPE_TABLE
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import WellFormedError
from relax2xla.ir.check import check_well_formed, well_formed
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.ir.lattice import held_shapes
from relax2xla.script import from_source
from relax2xla.script import relax as R
from relax2xla.transform import LegalizeOps

ODD_NAMES = [
    *("in", "lambda", "None", "True", "match", "a.b", "a b", "1x", "", "_", "__x", '"', "a\nb"),
    # The second and third are one identifier to Python.
    *("é", "ﬁ", "fi", "名", "ñ", "n\u0303", "🙂", "x" * 200),
]
NAMES = st.sampled_from(["x", "y", "lv", "lv", "gv", "n", "R", "T", "I", "cls", "metadata", "main"])
NAMES |= st.sampled_from(ODD_NAMES)
DTYPES = st.sampled_from([name for name, d in DTYPE_TABLE.items() if d.numpy is not None])
DEVICES = [ir.VDevice("llvm"), ir.VDevice("cuda"), ir.VDevice("cuda", 1, "shared")]
# Of a target with options, and one whose name holds what separates the parts of a device.
ODD_DEVICES = [ir.VDevice("cuda -arch=sm_80", 2), ir.VDevice("a:1")]
SYMBOLIC: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a * 2 + b,
    lambda a, b: a - b,
    lambda a, b: a * b - 3,
    lambda a, b: a // 4 + b % 3,
    lambda a, b: tir.truncdiv(a, 3) + tir.truncmod(b, 5),
    lambda a, b: tir.ceildiv(a, 7) - b,
    lambda a, b: tir.max(tir.min(a, b), 3),
    lambda a, b: tir.Select(tir.all(a > b, tir.NE.make(a, b)), a, b),
    lambda a, b: tir.Select(tir.all(tir.LT.make(1, a), tir.EQ.make(3, b)), a, b),
    lambda a, b: tir.if_then_else(tir.any(a <= b, tir.Not(tir.EQ.make(a, b))), a, b + 1),
    lambda a, b: (a << 2) + (b >> 1),
    lambda a, b: (a & b) + (a | 3) + (a ^ b) + ~b,
    lambda a, b: tir.cast("int64", tir.cast("int32", a)) + b,
]
ATTRS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
MESHES = [ir.DeviceMesh((2, 2), range(4)), ir.DeviceMesh((2, 1), [1, 0]), ir.DeviceMesh((), [7])]
PLACEMENTS = {0: [""], 2: ["R, R", "R, S[0]"]}
SCALARS = ["int32", "int8", "uint64", "float32", "bool"]
UNARY: list[Callable[[Any], Any]] = [
    R.exp,
    R.nn.relu,
    R.stablehlo.tanh,
    R.stablehlo.negate,
    lambda x: R.astype(x, "int8"),
    lambda x: R.expand_dims(x, [0, -1]),
    lambda x: R.sum(x, keepdims=True),
    lambda x: R.clip(x, -1, 2.5),
    lambda x: R.permute_dims(x),
    lambda x: R.to_vdevice(x, DEVICES[2]),
    *(lambda x, d=device: R.to_vdevice(x, d) for device in ODD_DEVICES),
    lambda x: R.dist.annotate_sharding(x, MESHES[0], "R, R"),
]
BINARY = [R.add, R.multiply, R.stablehlo.maximum]


KERNELS = [
    tir.PrimFunc(
        [tir.Var("A_handle", "handle"), tir.Var("n", "int32")],
        tir.Text(
            'A = T.match_buffer(A_handle, (4,), "float32")\nA = [A[i] + n for i in "unread"]',
            "test",
        ),
        attrs={"global_symbol": "kernel", "tir.noalias": True},
    ),
    tir.PrimFunc([tir.Var("h", "handle")], tir.Evaluate(tir.IntImm("int32", 0))),
]


class Builder:
    """Draws one function; ``values`` are the float32 tensors of one shape in scope."""

    def __init__(self, draw: st.DrawFn, gvars: list[ir.GlobalVar]) -> None:
        self.draw = draw
        self.kernel, *self.callees = gvars
        self.symbols = [tir.Var(n) for n in draw(st.lists(NAMES, max_size=2))]
        kinds = draw(st.lists(st.sampled_from(SCALARS), max_size=2))
        self.scalars = [tir.Var(draw(NAMES), kind) for kind in kinds]
        # As a parameter it defines the symbols.
        self.shape = ir.Var("s", ir.ShapeStructInfo(self.symbols))
        # Holds the shapes of tensors.
        self.held = ir.Var(draw(NAMES), ir.ShapeStructInfo(ndim=draw(st.integers(-1, 2))))
        self.info = R.Tensor(self.dims(), "float32")
        self.flag = ir.Var("c", R.Tensor((), "bool"))

    def dims(self) -> tuple[tir.Dim, ...]:
        size: st.SearchStrategy[tir.Dim] = st.integers(0, 9)
        if self.symbols:
            one = st.sampled_from(self.symbols)
            size |= one
            size |= st.builds(lambda f, a, b: f(a, b), st.sampled_from(SYMBOLIC), one, one)
        return tuple(self.draw(st.lists(size, max_size=3)))

    def struct_info(self, depth: int = 2) -> ir.StructInfo:
        kinds = ["tensor", "dtensor", "shape", "prim", "object", "tuple", "func"]
        kind = self.draw(st.sampled_from(kinds))
        if kind == "dtensor":
            dims: tuple[tir.Dim, ...] | None = (3, *self.dims())
            dims = self.draw(st.sampled_from([dims, None]))
            tensor = ir.TensorStructInfo(dims, self.draw(DTYPES | st.none()))
            if dims is None:
                tensor = ir.TensorStructInfo(None, tensor.dtype, ndim=self.draw(st.integers(1, 3)))
            mesh = self.draw(st.sampled_from(MESHES))
            placement = self.draw(st.sampled_from(PLACEMENTS[len(mesh.shape)]))
            return ir.DTensorStructInfo(tensor, mesh, placement)
        if kind == "tensor":
            known = self.draw(st.sampled_from([True, False, None]))
            dtype = self.draw(DTYPES | st.none())
            device = self.draw(st.sampled_from([None, None, *DEVICES]))
            if known is None:
                return ir.TensorStructInfo(self.held, dtype, device)
            if known:
                return ir.TensorStructInfo(self.dims(), dtype, device)
            return ir.TensorStructInfo(None, dtype, device, self.draw(st.integers(-1, 3)))
        if kind == "shape":
            if self.draw(st.booleans()):
                return ir.ShapeStructInfo(None, self.draw(st.integers(-1, 3)))
            return ir.ShapeStructInfo(self.dims())
        if kind == "prim":
            if (known := self.symbols + self.scalars) and self.draw(st.booleans()):
                return ir.PrimStructInfo(value=self.draw(st.sampled_from(known)))
            return ir.PrimStructInfo(self.draw(DTYPES))
        if kind == "tuple" and depth:
            count = self.draw(st.integers(0, 3))
            return ir.TupleStructInfo([self.struct_info(depth - 1) for _ in range(count)])
        if kind == "func" and depth:
            pure = self.draw(st.booleans())
            form = self.draw(st.integers(0, 3))
            if form == 0:
                return ir.FuncStructInfo.opaque_func(purity=pure)
            if form == 1:
                return ir.FuncStructInfo.opaque_func(ret=self.struct_info(0), purity=pure)
            if form == 2:
                return ir.FuncStructInfo.opaque_func(derive_func="f", purity=pure)
            count = self.draw(st.integers(0, 2))
            params = [self.struct_info(depth - 1) for _ in range(count)]
            return ir.FuncStructInfo(params, self.struct_info(0), pure)
        return ir.ObjectStructInfo()

    def leaf(self, values: list[ir.Expr]) -> ir.Expr:
        kind = self.draw(st.integers(0, 11))
        if kind == 0:
            return ir.const(self.array())
        if kind == 1:
            number = self.draw(st.floats(width=32, allow_nan=False))
            return ir.const(np.full([2] if self.draw(st.booleans()) else [], number, "float32"))
        return self.draw(st.sampled_from(values))

    def array(self) -> Any:
        """Any bits of any dtype that a constant can have."""
        dtype = numpy_dtype(self.draw(DTYPES))
        shape = self.draw(st.sampled_from([(), (), (1,), (2, 3), (0, 2)]))
        raw = np.random.default_rng(self.draw(st.integers(0, 99))).integers(0, 256, 96, "uint8")
        if dtype.itemsize == 1:
            made = (raw % 2).astype(dtype)  # types of less than a byte have no other bits
        else:
            made = raw.view(dtype)
        return made[: int(np.prod(shape))].reshape(shape)

    def intrinsic(self, values: list[ir.Expr]) -> ir.Expr:
        """A call of something that is no Relax operator."""
        args = ir.Tuple(self.draw(st.lists(st.sampled_from(values), max_size=2)))
        out: list[ir.StructInfo] = [self.info] * self.draw(st.integers(1, 2))
        one = out[0] if len(out) == 1 else out
        name = self.draw(st.text(min_size=1, max_size=4))
        gvar = self.kernel
        calls: list[Callable[[], ir.Expr]] = [
            lambda: op.call_dps_packed(name, args, one),
            lambda: op.call_pure_packed(name, *args.fields, sinfo_args=out),
            lambda: op.call_inplace_packed(
                name, values[0], inplace_indices=0, sinfo_args=[values[0].struct_info]
            ),
            lambda: op.call_tir(gvar, args, one, self.draw(st.sampled_from([None, [2]]))),
            lambda: op.call_tir_with_grad(
                gvar, args, one, te_grad_name=name, te_grad_kwargs={"k": 1}
            ),
            lambda: op.call_py_func(name, args, one),
            lambda: op.call_builtin_with_ctx(name, args, sinfo_args=out[:1]),
            lambda: op.make_closure(gvar, args),
            lambda: op.print(*args.fields, format='{} \\ "'),
            lambda: op.assert_op(self.flag, list(args.fields), format=name),
            lambda: ir.Call(self.draw(st.sampled_from([gvar, *self.callees])), [args], None, out),
        ]
        return self.draw(st.sampled_from(calls))()

    def var(self, value: ir.Expr, dataflow: bool = False) -> ir.VarBinding:
        make = ir.DataflowVar if dataflow else ir.Var
        return ir.VarBinding(make(self.draw(NAMES), value.struct_info_), value)

    def value(self, values: list[ir.Expr], depth: int) -> ir.Expr:
        """Something to bind. Values of the common struct info are added to ``values``."""
        kind = self.draw(st.integers(-1, 9 if depth else 6))
        if kind == -1:
            return self.intrinsic([v for v in values if v.struct_info_ == self.info])
        same = [v for v in values if v.struct_info_ == self.info]
        if kind <= 1:
            return self.draw(st.sampled_from(UNARY))(self.draw(st.sampled_from(same)))
        if kind == 2:
            binary = self.draw(st.sampled_from(BINARY))
            return binary(self.draw(st.sampled_from(same)), self.draw(st.sampled_from(same)))
        if kind == 3:
            return ir.Tuple([self.leaf(values) for _ in range(self.draw(st.integers(0, 3)))])
        if kind == 4:
            pair = ir.Tuple([self.leaf(values), self.leaf(values)])
            return ir.TupleGetItem(pair, self.draw(st.integers(0, 1)))
        if kind == 5:
            literals = [
                ir.ShapeExpr(self.dims()),
                R.zeros(self.held, "float32"),
                ir.PrimValue(self.draw(st.integers(-9, 9))),
                *map(ir.PrimValue, self.scalars),
                *(ir.PrimValue(v + 1) for v in self.scalars if v.dtype == "int32"),
                ir.Constant(
                    np.float32(1.5), ir.DTensorStructInfo(R.Tensor((), "float32"), MESHES[2], "")
                ),
                ir.StringImm(self.draw(st.text(max_size=5))),
                ir.DataTypeImm(self.draw(DTYPES)),
            ]
            return self.draw(st.sampled_from(literals))
        if kind == 6:
            attrs = self.draw(
                st.dictionaries(st.sampled_from(["axis", "k", "zz"]), ATTRS, max_size=2)
            )
            args = [self.leaf(values), *self.draw(st.lists(st.just(self.flag), max_size=1))]
            infos = [self.struct_info() for _ in range(self.draw(st.integers(1, 2)))]
            return ir.Call(ir.ExternFunc(self.draw(st.text(max_size=5))), args, attrs, infos)
        if kind == 7:
            yes, no = self.seq(values, depth - 1), self.seq(values, depth - 1)
            return ir.If(self.flag, yes, no)
        if kind == 8:
            return self.function([], values, depth - 1)
        start = ir.const(0.0)
        i, j = (ir.Var(n, R.Tensor((), "float32")) for n in self.draw(st.tuples(NAMES, NAMES)))
        total = self.var(R.stablehlo.add(i, j))
        body = ir.SeqExpr([ir.BindingBlock([total])], total.var)
        region = ir.Function([i, j], body)
        rank = range(len(self.info.dims))
        source = self.draw(st.sampled_from(same))
        attrs = {"dimensions": tuple(rank)}
        reduce = ir.Op.get("relax.stablehlo.reduce")
        return ir.Call(reduce, [source, start, region], attrs, [start.struct_info])

    def seq(self, values: list[ir.Expr], depth: int) -> ir.SeqExpr:
        values = list(values)
        blocks: list[ir.BindingBlock] = []
        for dataflow in self.draw(st.sampled_from([[], [False], [True], [False, True, False]])):
            bindings: list[ir.Binding] = []
            inside: list[ir.Expr] = list(values)
            for _ in range(self.draw(st.integers(1, 4))):
                value = self.value(inside, 0 if dataflow else depth)
                if isinstance(value, ir.Call):
                    # A region is bound before its call.
                    args = list(value.args)
                    for i, a in enumerate(args):
                        if isinstance(a, ir.Function):
                            held = self.var(a)
                            bindings.append(held)
                            args[i] = held.var
                    if args != list(value.args):
                        value = ir.Call(value.op, args, value.attrs, value.sinfo_args)
                if isinstance(value, ir.TupleGetItem):
                    held = self.var(value.tuple_value, dataflow)
                    bindings.append(held)
                    value = ir.TupleGetItem(held.var, value.index)
                local = dataflow and self.draw(st.booleans())
                made = self.var(value, local)
                bindings.append(made)
                if value.struct_info_ == self.info and self.draw(st.integers(0, 3)) == 0:
                    # A cast that defines symbols of its own.
                    cast = R.Tensor([tir.Var(self.draw(NAMES)) for _ in self.info.dims], "float32")
                    name = self.draw(NAMES)
                    bindings.append(ir.MatchCast(type(made.var)(name, cast), made.var, cast))
                inside.append(made.var)
                if not local:
                    values.append(made.var)
            blocks.append((ir.DataflowBlock if dataflow else ir.BindingBlock)(bindings))
        return ir.SeqExpr(blocks, self.leaf(values))

    def function(self, params: list[ir.Var], values: list[ir.Expr], depth: int) -> ir.Function:
        return ir.Function(params, self.seq([*params, *values], depth))


@st.composite
def modules(draw: st.DrawFn) -> ir.IRModule:
    """A module of one or two functions."""
    devices = draw(st.sampled_from([{}, {"vdevice": DEVICES[1:]}, {"vdevice": DEVICES}]))
    meshes = draw(st.sampled_from([{}, {"mesh": MESHES}, {"a": MESHES[:1], "mesh": MESHES[1:]}]))
    infos = {**devices, **meshes}
    attrs = draw(st.dictionaries(st.text(max_size=4), ATTRS, max_size=2))
    mod = ir.IRModule(attrs=attrs, global_infos=infos)
    mod["kernel"] = draw(st.sampled_from(KERNELS))
    if draw(st.booleans()):
        mod["other"] = ir.ExternFunc("other.name")
    for name in draw(st.sampled_from([["main"], ["f", "g"]])):
        gvars = [g for g in mod.get_global_vars() if g.name_hint != "other"]
        builder = Builder(draw, gvars)
        params = [builder.held, ir.Var(draw(NAMES), builder.info), builder.flag]
        params += [
            ir.Var(draw(NAMES), builder.struct_info()) for _ in range(draw(st.integers(0, 2)))
        ]
        # What the shapes need must be defined by a parameter.
        params.append(builder.shape)
        params += [ir.Var(draw(NAMES), ir.PrimStructInfo(value=v)) for v in builder.scalars]
        attrs = draw(st.dictionaries(st.sampled_from(["k", "z"]), ATTRS, max_size=2))
        if draw(st.booleans()):
            attrs["global_symbol"] = name
        seq = builder.seq(list(params[1:2]), 2)
        pure = draw(st.booleans())
        mod[name] = ir.Function(params, seq, is_pure=pure, attrs=attrs)
    return mod


@settings(max_examples=150)
@given(modules())
def test_print_then_parse(mod: ir.IRModule) -> None:
    text = mod.script(show_meta=True)
    again = from_source(text, check_well_formed=False)
    assert_structural_equal(mod, again)
    assert again.script(show_meta=True) == text


def test_a_result_may_have_the_shape_of_a_parameter() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def f(s: R.Shape(ndim=2), x: R.Tensor(s, "int8")) -> R.Tuple(
        R.Tuple(R.Tensor(s, "int8"), R.Tensor("int8", ndim=2)), R.Tensor("int8", ndim=1)
    ):
        @R.function
        def inner(t: R.Shape(ndim=2)) -> R.Tuple(R.Tensor(s, "int8"), R.Tensor(t, "int8")):
            return x, R.zeros(t, "int8")
        with R.dataflow():
            u = R.shape_of(R.sum(x, axis=[0]))
            y = R.zeros(u, "int8")
            R.output(y)
        return (inner(s), y)

    @R.function
    def main(s: R.Shape(ndim=2), x: R.Tensor(s, "int8")):
        return Module.f(s, x)
"""
    mod = from_source(text)
    s = mod["f"].params[0]
    pair = ir.TupleStructInfo([R.Tensor(s, "int8"), R.Tensor(None, "int8", ndim=2)])
    assert mod["f"].ret_struct_info == ir.TupleStructInfo([pair, R.Tensor(None, "int8", ndim=1)])
    # A caller sees no parameter of the function.
    assert held_shapes(mod["f"].struct_info.ret) == []
    assert held_shapes(mod["main"].ret_struct_info) == []
    again = from_source(mod.script())
    assert_structural_equal(mod, again)
    copied = copy_with_new_vars(mod["f"])
    assert_structural_equal(copied, mod["f"])
    assert held_shapes(copied.ret_struct_info) == [copied.params[0]]
    assert well_formed(copied)
    bound = mod["f"].bind_params({"s": ir.ShapeExpr((2, 3))})
    assert bound.ret_struct_info.fields[0].fields[0] == R.Tensor((2, 3), "int8")
    # Rebuilt calls speak of the new variable, and what is out of sight is an error.
    assert_structural_equal(from_source(bound.script()), bound)
    leaked = mod["f"].replace(params=[ir.Var("s", s.struct_info), mod["f"].params[1]])
    with pytest.raises(WellFormedError, match="the variable s is not defined"):
        check_well_formed(leaked)


@given(ATTRS)
def test_attributes(value: object) -> None:
    func = ir.Function([], ir.Tuple([]), attrs={"global_symbol": "f", "value": value})
    assert from_source(func.script()).attrs == func.attrs


def test_programs_of_jax() -> None:
    """What the StableHLO reader makes of JAX programs: regions, nested attributes, calls."""
    jax = pytest.importorskip("jax")
    from relax2xla.stablehlo import parse, read

    def network(x, w, flag):  # type: ignore[no-untyped-def]
        y = jax.lax.fori_loop(0, 3, lambda i, a: jax.numpy.tanh(a @ w) + jax.numpy.sort(a, 0), x)
        y = jax.lax.cond(flag, lambda v: v * 2, lambda v: v[::-1], y)
        image = jax.lax.conv_general_dilated(y[None, None], w[None, None], (1, 1), "SAME")
        return jax.nn.softmax(y), jax.numpy.argmax(y, 1), image, y[jax.numpy.array([1, 0])]

    def loss(*args):  # type: ignore[no-untyped-def]
        return network(*args)[0][0, 0]

    x = np.ones((4, 4), "float32")
    for f in (network, jax.grad(loss)):
        mod = read(parse(jax.jit(f).lower(x, x, True).as_text()))
        text = mod.script(show_meta=True)
        again = from_source(text)
        assert_structural_equal(mod, again)
        assert again.script(show_meta=True) == text


def test_symbols_and_variables_of_branches_share_a_name() -> None:
    """The text defines symbols above the branch whose variable has the same hint."""
    text = """
@R.function
def f(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Object:
    n = T.int64()
    if c:
        n = R.add(x, x)
        if c:
            r = R.exp(n)
        else:
            r = n
        y = r
    else:
        y = R.exp(x)
    z: R.Object = R.match_cast(y, R.Tensor((n,), "float32"))
    return z
"""
    func = from_source(text)
    outer = next(b.value for b in func.body.blocks[0].bindings if isinstance(b.value, ir.If))
    held, inner = outer.true_branch.blocks[0].bindings
    assert isinstance(inner.value, ir.If)
    assert inner.value.false_branch.body is held.var
    again = func.script()
    assert_structural_equal(from_source(again), func)
    assert "n_1 = T.int64()" in again


def test_regions_that_stand_in_calls_do_so_again() -> None:
    """LegalizeOps leaves the function of a reduction where it is; a bound one stays bound."""
    text = """
@R.function
def f(x: R.Tensor((4, 5), "float32")):
    with R.dataflow():
        @R.function
        def twice(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.add(y, y)

        a = R.sum(x, axis=1)
        b = twice(R.max(x, axis=1))
        out = R.add(a, b)
        R.output(out)
    return out
"""
    mod = LegalizeOps()(ir.IRModule({"f": from_source(text)}))
    shown = mod.script(show_meta=True)
    assert shown.count("@R.function(private=True)") == 2
    again = from_source(shown)
    assert_structural_equal(again, mod)
    assert again.script(show_meta=True) == shown

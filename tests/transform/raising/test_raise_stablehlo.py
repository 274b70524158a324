"""RaiseStableHLO: what it gives computes the same, is the operator that was lowered, is stable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import tree_leaves

import relax2xla as rx
from relax2xla import op as R
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.ir import Call, Expr, Function, IRModule, TensorStructInfo, Tuple, Var
from relax2xla.ir.rewrite import Rewriter, bindings_of, post_order_deep
from relax2xla.stablehlo import parse, read
from relax2xla.transform import LegalizeOps, RaiseStableHLO
from relax2xla.transform.raising.raise_stablehlo import Kept
from tests.work import calls

from .raise_programs import PROGRAMS

T = TensorStructInfo
F, INT, B, H, U = "float32", "int32", "bool", "float16", "uint32"


def names(func: Function) -> list[str]:
    """Operators of a function in order."""
    return [
        b.value.op.name.removeprefix("relax.")
        for b in bindings_of(func.body)
        if isinstance(b.value, Call) and isinstance(b.value.op, rx.ir.Op)
    ]


# ---- (b) what our own lowering makes becomes the operator again
Case = tuple[str, Callable[..., Expr], tuple[Any, ...]]
A, V, M = (4, 8), (8,), (4, 4)
IMAGE = (2, 3, 8, 8)
UNARY = (
    *(
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "exp",
    ),
    *(
        "floor",
        "isfinite",
        "isinf",
        "isnan",
        "log",
        "negative",
        "round",
        "rsqrt",
        "sigmoid",
        "sign",
    ),
    *("sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)
BINARY = (
    "add atan2 divide maximum minimum multiply power subtract floor_divide floor_mod log_add_exp"
)
COMPARE = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
OPERATORS: list[Case] = [
    *((n, getattr(R, n), (A,)) for n in UNARY),
    *((n, getattr(R, n), (A, A)) for n in BINARY.split()),
    *((n + " row", getattr(R, n), (A, V)) for n in ["add", "multiply", "subtract", "divide"]),
    *((n + " column", getattr(R, n), ((4, 1), A)) for n in ["add", "multiply"]),
    *((n + " number", lambda x, n=n: getattr(R, n)(x, number(2.5)), (A,)) for n in ("add", "less")),
    *((n, getattr(R, n), (A, A)) for n in COMPARE),
    *(
        (n, getattr(R, n), ((4, INT), (4, INT)))
        for n in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *((n, getattr(R, n), ((4, B), (4, B))) for n in ("logical_and", "logical_or", "logical_xor")),
    *((n, getattr(R, n), ((4, INT), (4, INT))) for n in ("left_shift", "right_shift")),
    ("right_shift unsigned", R.right_shift, ((4, U), (4, U))),
    ("bitwise_not", R.bitwise_not, ((4, INT),)),
    ("logical_not", R.logical_not, ((4, B),)),
    ("where", R.where, ((4, B), (4, F), (4, F))),
    ("where column", R.where, (((4, 1), B), A, ())),
    ("clip", lambda x: R.clip(x, 0.0, 1.1), (A,)),
    ("clip tensors", R.clip, (A, (), ())),
    ("astype", lambda x: R.astype(x, "float64"), (A,)),
    ("astype to int", lambda x: R.astype(x, "int32"), (A,)),
    ("reshape", lambda x: R.reshape(x, (2, 16)), (A,)),
    ("permute_dims", lambda x: R.permute_dims(x, [1, 0]), (A,)),
    ("flip", lambda x: R.flip(x, axis=[1]), (A,)),
    ("broadcast_to", lambda x: R.broadcast_to(x, (4, 8)), (V,)),
    ("concat", lambda x, y: R.concat([x, y], axis=1), (A, M)),
    ("strided_slice", lambda x: R.strided_slice(x, [1], [2], [6]), (A,)),
    ("strided_slice step", lambda x: R.strided_slice(x, [0, 1], [0, 1], [3, 8], [2, 3]), (A,)),
    ("nn.pad", lambda x: R.nn.pad(x, [(1, 2), (0, 1)], pad_value=1.5), (A,)),
    ("arange", lambda: R.arange(0, 9, 1, dtype="int64"), ()),
    ("arange step", lambda: R.arange(3, 11, 2, dtype="int32"), ()),
    ("eye", lambda: R.eye(4, 5, 1, dtype="float32"), ()),
    ("tril", lambda x: R.tril(x, 1), (A,)),
    ("triu", lambda x: R.triu(x, -1), (A,)),
    *(
        (n, lambda x, n=n: getattr(R, n)(x, axis=[1]), (A,))
        for n in ["sum", "prod", "max", "min", "mean", "variance", "std"]
    ),
    *(
        (n + " keepdims", lambda x, n=n: getattr(R, n)(x, axis=[0], keepdims=True), (A,))
        for n in ["sum", "prod", "max", "min", "mean", "variance", "std"]
    ),
    *((n + " all", getattr(R, n), (A,)) for n in ("sum", "max", "mean")),
    *(
        (n + " half", lambda x, n=n: getattr(R, n)(x, axis=[1]), ((A, H),))
        for n in ["sum", "prod", "mean", "variance", "std"]
    ),
    ("sum bool", lambda x: R.sum(x, axis=[0]), ((A, B),)),
    ("prod bool", lambda x: R.prod(x, axis=[0]), ((A, B),)),
    ("matmul", R.matmul, (A, (8, 5))),
    ("matmul batch", R.matmul, ((2, 3, 4), (2, 4, 5))),
    ("matmul vector", R.matmul, (A, V)),
    ("matmul half", R.matmul, ((A, H), ((8, 5), H))),
    ("einsum", lambda a, b: R.einsum([a, b], subscripts="abc,dac->abd"), ((2, 3, 4), (5, 2, 4))),
    ("conv1d", lambda x, w: R.nn.conv1d(x, w, 2, 1), ((2, 4, 9), (6, 4, 3))),
    ("conv2d", lambda x, w: R.nn.conv2d(x, w, (2, 1), (1, 0, 2, 1), (1, 2)), (IMAGE, (6, 3, 3, 3))),
    (
        "conv2d NHWC",
        lambda x, w: R.nn.conv2d(x, w, groups=3, data_layout="NHWC", kernel_layout="HWIO"),
        ((2, 8, 8, 3), (3, 3, 1, 6)),
    ),
    ("conv2d half", R.nn.conv2d, ((IMAGE, H), ((6, 3, 3, 3), H))),
    ("conv3d", R.nn.conv3d, ((1, 2, 4, 4, 4), (3, 2, 2, 2, 2))),
    (
        "conv2d_transpose",
        lambda x, w: R.nn.conv2d_transpose(x, w, (2, 2), (1, 1), (1, 1)),
        (IMAGE, (3, 4, 3, 3)),
    ),
    (
        "conv2d_transpose groups",
        lambda x, w: R.nn.conv2d_transpose(x, w, (2, 2), groups=3),
        (IMAGE, (3, 4, 3, 3)),
    ),
    ("nn.softmax", lambda x: R.nn.softmax(x, axis=-1), (A,)),
    ("nn.softmax 0", lambda x: R.nn.softmax(x, axis=0), (A,)),
    ("nn.softmax half", lambda x: R.nn.softmax(x, axis=-1), ((A, H),)),
    ("nn.log_softmax", lambda x: R.nn.log_softmax(x, axis=-1), (A,)),
    *(
        (f"nn.{n}", getattr(R.nn, n), (A,))
        for n in ["relu", "relu6", "gelu", "gelu_tanh", "silu", "selu", "softplus", "leakyrelu"]
    ),
    *((f"nn.{n} half", getattr(R.nn, n), ((A, H),)) for n in ["gelu", "gelu_tanh", "silu"]),
    ("nn.layer_norm", lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]), (A, V, V)),
    (
        "nn.layer_norm half",
        lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]),
        ((A, H), (V, H), (V, H)),
    ),
    ("nn.rms_norm", lambda x, g: R.nn.rms_norm(x, g, axes=[-1], epsilon=1e-6), (A, V)),
    (
        "nn.group_norm",
        lambda x, g, b: R.nn.group_norm(x, g, b, 2, 1, [2, 3]),
        ((2, 4, 5, 5), (4,), (4,)),
    ),
    (
        "nn.instance_norm",
        lambda x, g, b: R.nn.instance_norm(x, g, b, 1, [2, 3]),
        (IMAGE, (3,), (3,)),
    ),
    (
        "nn.batch_norm",
        lambda x, g, b, m, v: R.nn.batch_norm(x, g, b, m, v, 1, training=False)[0],
        (IMAGE, (3,), (3,), (3,), (3,)),
    ),
    ("nn.attention", lambda q, k, v: R.nn.attention(q, k, v), ((2, 5, 3, 4),) * 3),
    (
        "nn.attention causal",
        lambda q, k, v: R.nn.attention(q, k, v, causal_mask="TopLeft"),
        ((2, 5, 3, 4),) * 3,
    ),
    (
        "nn.attention scale",
        lambda q, k, v: R.nn.attention(q, k, v, scale=0.125),
        ((2, 5, 3, 4),) * 3,
    ),
    (
        "nn.attention_bias",
        lambda q, k, v, b: R.nn.attention(q, k, v, b),
        (*((2, 5, 3, 4),) * 3, (2, 1, 5, 5)),
    ),
    ("nn.max_pool2d", lambda x: R.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)), (IMAGE,)),
    ("nn.max_pool2d NHWC", lambda x: R.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), (IMAGE,)),
    ("nn.avg_pool2d", lambda x: R.nn.avg_pool2d(x, (2, 2), (2, 2)), (IMAGE,)),
    (
        "nn.avg_pool2d include",
        lambda x: R.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1), count_include_pad=True),
        (IMAGE,),
    ),
    ("nn.avg_pool2d exclude", lambda x: R.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1)), (IMAGE,)),
    ("take", lambda x, i: R.take(x, i, axis=0), (A, (3, INT))),
    ("take nan", lambda x, i: R.take(x, i, axis=1, mode="nan"), (A, ((2, 3), INT))),
    *((n, lambda x, n=n: getattr(R, n)(x, axis=1), (A,)) for n in ("argmax", "argmin")),
    ("argmax keepdims", lambda x: R.argmax(x, axis=0, keepdims=True), (A,)),
    ("argmin across", lambda x: R.argmin(x, axis=0), (A,)),
    ("argmax all", lambda x: R.argmax(x), (A,)),
    ("sort", R.sort, (A,)),
    ("sort descending", lambda x: R.sort(x, axis=0, descending=True), (A,)),
    ("argsort", R.argsort, (A,)),
    ("argsort int64", lambda x: R.argsort(x, dtype="int64"), (A,)),
    ("topk values", lambda x: R.topk(x, 3, ret_type="values"), (A,)),
    ("topk indices", lambda x: R.topk(x, 3, ret_type="indices", largest=False), (A,)),
    ("topk int", lambda x: R.topk(x, 3, ret_type="values"), ((A, INT),)),
    ("cumsum", lambda x: R.cumsum(x, axis=1), (A,)),
    ("cumsum long", lambda x: R.cumsum(x, axis=1), ((2, 100),)),
    ("cumsum blocks", lambda x: R.cumsum(x, axis=0), ((16, 2),)),
    ("cumprod half", lambda x: R.cumprod(x, axis=0, exclusive=True), ((21, "float16"),)),
    ("cumprod", lambda x: R.cumprod(x, axis=0), (A,)),
]


def number(value: float) -> Expr:
    """A float32 number."""
    return rx.const(np.float32(value))


def param(i: int, spec: Any) -> Var:
    """A parameter of a shape, or of a (shape, dtype)."""
    shape, dtype = spec, F
    if len(spec) == 2 and isinstance(spec[1], str):
        shape, dtype = spec
    return Var(f"x{i}", T((shape,) if isinstance(shape, int) else shape, dtype))


@pytest.mark.parametrize(
    ("make", "params"), [c[1:] for c in OPERATORS], ids=[c[0] for c in OPERATORS]
)
def test_the_operator_that_was_lowered(make: Callable[..., Expr], params: tuple[Any, ...]) -> None:
    variables = [param(i, p) for i, p in enumerate(params)]
    builder = rx.BlockBuilder()
    with builder.function("main", variables):
        builder.emit_func_output(builder.emit(make(*variables)))
    mod = builder.get()
    rows = LegalizeOps()(mod)
    assert all(
        ".stablehlo." in f"relax.{n}" or ".chlo." in f"relax.{n}" for n in names(rows["main"])
    )
    again = RaiseStableHLO()(rows)
    want = Function(variables, mod["main"].body, attrs=mod["main"].attrs)
    rx.ir.assert_structural_equal(again["main"], want)
    assert rx.analysis.well_formed(again)


# ---- (a) a raised module computes the same, (c) is stable, (d) is well-formed and prints
def joined(programs: list[tuple[str, IRModule]]) -> IRModule:
    """All programs in one module, which XLA compiles at once; ``main`` calls each."""
    functions: dict[Any, Any] = {}
    params: list[Var] = []
    calls: list[Expr] = []
    for label, mod in programs:
        new = {g: rx.GlobalVar(f"{label}_{g.name_hint}", f.struct_info_) for g, f in mod.items()}
        for g, f in mod.items():
            attrs = {k: v for k, v in f.attrs.items() if k == "private"}
            rename = Rewriter(rule=lambda e, new=new: new.get(e))  # type: ignore[arg-type]
            functions[new[g]] = rename.function(f).replace(attrs=attrs)
        own = [Var(f"{label}_{i}", p.struct_info_) for i, p in enumerate(mod["main"].params)]
        params += own
        calls.append(Call(new[mod.get_global_var("main")], own))
    builder = rx.BlockBuilder(rx.IRModule(functions))
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(Tuple([builder.emit(c) for c in calls])))
    return builder.get()


def leaves(value: Any) -> list[Any]:
    """Arrays of nested tuples."""
    if isinstance(value, tuple):
        return [leaf for v in value for leaf in leaves(v)]
    return [value]


def close(a: Any, b: Any) -> bool:
    """Whether two results are the same up to rounding; integers exactly."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool((a == b).all())
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(finite, a, 0), np.where(finite, b, 0)
    size = np.abs(a).max(initial=1.0)
    rtol = 2e-3 if a.dtype.itemsize == 2 else 2e-6
    return bool((same | (finite & (np.abs(a - b) <= rtol * size))).all())


def same_values(programs: list[tuple[str, IRModule, list[Any]]], *ways: bool) -> int:
    """Run each program and its raised forms, inlined or not (``ways``).

    Gives how many operators took the place of rows in the first form.
    """
    all_of: list[IRModule] = []
    inputs: list[Any] = []
    rows: list[tuple[str, int, list[int]]] = []
    operators = 0
    for label, mod, arguments in programs:
        forms: list[IRModule] = []
        for inline in ways:
            made = RaiseStableHLO(inline=inline)(mod)
            assert rx.analysis.well_formed(made), label
            again = RaiseStableHLO(inline=inline)(made)
            rx.ir.assert_structural_equal(again, made)
            text = rx.script.from_source(made.script(show_meta=True))
            rx.ir.assert_structural_equal(text["main"], made["main"])
            if not any(rx.ir.structural_equal(made, form) for form in forms):
                forms.append(made)
        for f in forms[0].relax_functions().values():
            operators += sum(not n.startswith(("stablehlo.", "chlo.")) for n in names(f))
        at = len(all_of)
        rows.append((label, at, list(range(at + 1, at + 1 + len(forms)))))
        all_of += [mod, *forms]
        inputs += [*arguments] * (1 + len(forms))
    named = [(f"p{i}", mod) for i, mod in enumerate(all_of)]
    results = rx.testing.evaluate(joined(named), inputs)
    wrong: list[str] = []
    for label, at, raised in rows:
        for other in raised:
            pairs = zip(leaves(results[at]), leaves(results[other]), strict=True)
            wrong += [label for x, y in pairs if not close(np.asarray(x), np.asarray(y))][:1]
    assert not wrong, wrong
    return operators


def lowered(fn: Callable[..., Any], args: Any) -> IRModule:
    """A JAX function as rows."""
    return read(jax.jit(fn).lower(*args).compiler_ir("stablehlo"))


@pytest.mark.parametrize("part", range(3))
def test_jax_programs_compute_the_same(part: int) -> None:
    programs = [
        (name, lowered(fn, args), tree_leaves(args)) for name, fn, args in PROGRAMS[part::3]
    ]
    assert same_values(programs, False, True) > 100


TESTDATA = Path(__file__).parents[3] / "shared" / "stablehlo_testdata" / "testdata"


def samples() -> list[Path]:
    """A fixed sample of the test programs of openxla/stablehlo."""
    files = sorted(TESTDATA.glob("*.mlir")) if TESTDATA.exists() else []
    return files[7 :: max(1, len(files) // 105)]


@pytest.mark.skipif(
    not samples(), reason="no folder ../shared/stablehlo_testdata beside the checkout"
)
def test_testdata_computes_the_same() -> None:
    programs: list[tuple[str, IRModule, list[Any]]] = []
    for path in samples():
        text = path.read_text()
        if any(word in text for word in ("?x", "x?", "complex", "custom_call @Sharding")):
            continue
        lines = [line for line in text.splitlines() if "@check." not in line]
        programs.append((path.name, read(parse("\n".join(lines))), []))
    assert len(programs) > 60
    assert same_values(programs, False) > 100


# ---- what stays a row, and why
def raised_text(text: str, **options: Any) -> Function:
    """The raised ``main`` of a StableHLO program."""
    return RaiseStableHLO(**options)(read(parse(text)))["main"]


ROWS = {
    "an init value that is not the identity": (
        "stablehlo.reduce",
        """func.func @main(%a: tensor<4x8xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [1]
    : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32> }""",
    ),
    "a total order": (
        "stablehlo.compare",
        """func.func @main(%a: tensor<4xf32>) -> tensor<4xi1> {
  %0 = stablehlo.compare LT, %a, %a, TOTALORDER
    : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1> }""",
    ),
    "floats to integers without a rule for NaN": (
        "stablehlo.convert",
        """func.func @main(%a: tensor<4xf32>) -> tensor<4xi32> {
  %0 = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xi32>
  return %0 : tensor<4xi32> }""",
    ),
    "a precision": (
        "stablehlo.dot_general",
        """func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0],
    precision = [HIGHEST, HIGHEST] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32> }""",
    ),
    "a sum of narrow floats in their own dtype": (
        "stablehlo.dot_general",
        """func.func @main(%a: tensor<4x4xbf16>) -> tensor<4x4xbf16> {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
    : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  return %0 : tensor<4x4xbf16> }""",
    ),
    "attributes of other dialects": (
        "stablehlo.add",
        """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a {mhlo.frontend_attributes = {k = "v"}} : tensor<4xf32>
  return %0 : tensor<4xf32> }""",
    ),
    "floats with k": (
        "chlo.top_k",
        """func.func @main(%a: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
  %0:2 = chlo.top_k(%a, k = 2) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)
  return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32> }""",
    ),
    "a dimension that is not known": (
        "stablehlo.reduce",
        """func.func @main(%a: tensor<?x8xf32>) -> tensor<?xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [1]
    : (tensor<?x8xf32>, tensor<f32>) -> tensor<?xf32>
  return %0 : tensor<?xf32> }""",
    ),
}


@pytest.mark.parametrize(("row", "text"), ROWS.values(), ids=ROWS)
def test_what_is_not_exact_stays_a_row(row: str, text: str) -> None:
    report: list[Kept] = []
    assert row in names(raised_text(text, report=report))
    assert [k.row for k in report] == [f"relax.{row}"]
    assert row in str(report[0])


def test_a_part_that_is_used_elsewhere_keeps_the_rows_apart() -> None:
    def fn(x: Any) -> Any:
        e = jax.numpy.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True), e

    func = RaiseStableHLO()(lowered(fn, (np.ones((4, 8), "f"),)))["main"]
    assert "divide" in names(func)
    assert "nn.softmax" not in names(func)


def test_names_spans_and_dead_bindings() -> None:
    text = """func.func @main(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.tanh %a : tensor<4x8xf32> loc("layer.act")
  %1 = stablehlo.exponential %0 : tensor<4x8xf32>
  return %0 : tensor<4x8xf32> }"""
    before = read(parse(text))
    func = RaiseStableHLO()(before)["main"]
    (binding,) = bindings_of(func.body)
    assert binding.var is next(bindings_of(before["main"].body)).var
    assert binding.span == rx.Span("layer.act")
    assert binding.value.span == binding.span


def test_helpers_are_inlined_unless_they_are_to_stay() -> None:
    mod = lowered(lambda x: jax.nn.silu(jax.nn.relu(x)), (np.ones((4, 8), "f"),))
    assert len(RaiseStableHLO(inline=False)(mod)) > 1
    inlined = RaiseStableHLO()(mod)
    assert len(inlined) == 1
    assert names(inlined["main"]) == ["nn.relu", "nn.silu"]


def test_helpers_are_inlined_in_loops_and_from_other_helpers() -> None:
    @jax.jit
    def pair(x: Any) -> Any:
        return jax.nn.relu(x), x

    def fn(x: Any) -> Any:
        step = lambda i, c: jnp.where(i > 1, pair(c)[0], jax.nn.silu(pair(c)[1]))  # noqa: E731
        return jax.lax.fori_loop(0, 3, step, x)

    x = np.linspace(-2, 2, 32, dtype="f").reshape(4, 8)
    made = RaiseStableHLO()(lowered(fn, (x,)))
    assert len(made) == 1
    assert "R.nn.silu" in made.script()
    np.testing.assert_allclose(rx.VirtualMachine(rx.build(made))["main"](x), fn(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "options", "name", "scale"),
    [
        ((2, 5, 4, 8), {}, "nn.attention", None),
        ((2, 5, 4, 8), {"is_causal": True}, "nn.attention", None),
        ((2, 5, 4, 8), {"scale": 0.3}, "nn.attention", 0.3),
        ((2, 5, 4, 8), {"bias": (2, 4, 5, 6)}, "nn.attention_bias", None),
        ((2, 5, 4, 8), {"bias": (1, 1, 5, 6), "is_causal": True}, "nn.attention_bias", None),
        ((1, 7, 3, 16), {"is_causal": True}, "nn.attention", None),
    ],
)
def test_attention_of_jax(shape: Any, options: Any, name: str, scale: Any) -> None:
    rng = np.random.default_rng(0)
    batch, _, heads, depth = shape
    q = rng.standard_normal(shape, np.float32)
    k, v = rng.standard_normal((2, batch, 6, heads, depth), np.float32)
    if "bias" in options:
        options = {**options, "bias": rng.standard_normal(options["bias"], np.float32)}

    def fn(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, **options)

    made = RaiseStableHLO()(lowered(fn, (q, k, v)))
    assert [n for n in names(made["main"]) if n.startswith("nn.")] == [name]
    (call,) = (b.value for b in bindings_of(made["main"].body) if isinstance(b.value, Call))
    assert call.attrs["scale"] == scale
    assert call.attrs["causal_mask"] == ("TopLeft" if "is_causal" in options else None)
    found = rx.VirtualMachine(rx.build(made))["main"](q, k, v)
    np.testing.assert_allclose(found, fn(q, k, v), rtol=2e-5, atol=2e-6)


def test_products_of_symbolic_shapes() -> None:
    (n,) = jax.export.symbolic_shape("n")
    shape = jax.ShapeDtypeStruct((n, 5, 2, 8), np.float32)
    for fn in (
        lambda q: jax.nn.dot_product_attention(q, q, q),
        lambda x: x[:, :, 0] @ x[0, :, 0].T,
    ):
        text = jax.export.export(jax.jit(fn))(shape).mlir_module()
        mod = from_stablehlo(text)
        assert rx.to_stablehlo(mod) == str(parse(text))


def test_insides_of_loops_are_raised() -> None:
    fn = lambda x: jax.lax.fori_loop(0, 3, lambda i, c: jax.nn.softmax(c), x)  # noqa: E731
    text = RaiseStableHLO()(lowered(fn, (np.ones((4, 8), "f"),))).script()
    assert "R.nn.softmax" in text
    assert "R.stablehlo.while_" in text


def test_two_hundred_nested_branches() -> None:
    inner = "%x"
    text = ["func.func @main(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {"]
    for i in range(200):
        text += [f'%r{i} = "stablehlo.if"(%p) ({{']
    text += [f"%e = stablehlo.exponential {inner} : tensor<4xf32>"]
    result = "%e"
    for i in reversed(range(200)):
        text += [f"stablehlo.return {result} : tensor<4xf32>", "}, {"]
        text += ["stablehlo.return %x : tensor<4xf32>", "}) : (tensor<i1>) -> tensor<4xf32>"]
        result = f"%r{i}"
    text += [f"return {result} : tensor<4xf32>", "}"]
    made = RaiseStableHLO()(read(parse("\n".join(text))))
    found = [n for f in post_order_deep(made["main"]) if isinstance(f, Function) for n in names(f)]
    assert found.count("exp") == 1


def test_a_chain_of_20_000_rows() -> None:
    x = Var("x", T((4,)))
    value: Expr = x
    for _ in range(20_000):
        value = R.negative(value)
    rows = LegalizeOps()(IRModule({"main": Function([x], value)}))
    assert names(RaiseStableHLO()(rows)["main"]) == ["negative"] * 20_000


# ---- nothing that is put in place of rows reads what is not there
@pytest.mark.parametrize("size", [8, 16, 33])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_running_results_of_long_axes(name: str, size: int) -> None:
    x = np.linspace(0.5, 1.5, 3 * size, dtype="f").reshape(3, size)
    for reverse in (False, True):
        fn = lambda x: getattr(jax.lax, name)(x, axis=1, reverse=reverse)  # noqa: B023, E731
        for inline in (False, True):
            made = RaiseStableHLO(inline=inline)(lowered(fn, (x,)))
            assert rx.analysis.well_formed(made)
            if name in ("cumsum", "cumprod") and not reverse:
                assert any(name in names(f) for f in made.relax_functions().values())
            found = rx.VirtualMachine(rx.build(made))["main"](x)
            np.testing.assert_allclose(found, fn(x), rtol=1e-5)


@pytest.mark.parametrize("inline", [False, True])
def test_functions_that_count_with_running_sums(inline: bool) -> None:
    x = np.arange(40, dtype="i4") % 7
    p = np.full(40, 1 / 40, "f")
    for fn in (
        lambda x: jnp.unique(x, size=9),
        lambda x: jnp.nonzero(x, size=30)[0],
        lambda x: jax.random.choice(jax.random.PRNGKey(0), x, (5,), p=p),
    ):
        made = RaiseStableHLO(inline=inline)(lowered(fn, (x,)))
        assert rx.analysis.well_formed(made)
        found = rx.VirtualMachine(rx.build(made))["main"](x)
        np.testing.assert_array_equal(found, fn(x))


def test_an_operand_that_is_a_part_of_the_rows_stays() -> None:
    def fn(x: Any, gamma: Any) -> Any:
        off = x - x.mean(keepdims=True)
        return off * jax.lax.rsqrt((off * off).mean(keepdims=True) + 1e-5) * gamma + off

    x = np.linspace(-1, 2, 16, dtype="f")
    made = RaiseStableHLO()(lowered(fn, (x, x)))
    assert rx.analysis.well_formed(made)
    found = rx.VirtualMachine(rx.build(made))["main"](x, x)
    np.testing.assert_allclose(found, fn(x, x), rtol=1e-5, atol=1e-6)


# ---- the cost
def layers(count: int, kind: str) -> str:
    """A program of ``count`` operations of one kind, or of all kinds in turn."""
    t, v = "tensor<8x8xf32>", "tensor<8xf32>"
    kinds = {
        "matrices": [
            f"%{{n}} = stablehlo.dot_general %{{x}}, %w, contracting_dims = [1] x [0] "
            f": ({t}, {t}) -> {t}",
            f"%{{n}} = stablehlo.tanh %{{x}} : {t}",
            f"%{{n}} = stablehlo.transpose %{{x}}, dims = [1, 0] : ({t}) -> {t}",
        ],
        "softmax": [
            f"%m{{n}} = stablehlo.reduce(%{{x}} init: %low) applies stablehlo.maximum "
            f"across dimensions = [1] : ({t}, tensor<f32>) -> {v}",
            f"%b{{n}} = stablehlo.broadcast_in_dim %m{{p}}, dims = [0] : ({v}) -> {t}",
            f"%s{{n}} = stablehlo.subtract %{{x}}, %b{{p}} : {t}",
            f"%e{{n}} = stablehlo.exponential %s{{p}} : {t}",
            f"%r{{n}} = stablehlo.reduce(%e{{p}} init: %zero) applies stablehlo.add "
            f"across dimensions = [1] : ({t}, tensor<f32>) -> {v}",
            f"%d{{n}} = stablehlo.broadcast_in_dim %r{{p}}, dims = [0] : ({v}) -> {t}",
            f"%{{n}} = stablehlo.divide %e{{q}}, %d{{p}} : {t}",
        ],
        "norms": [
            f"%s{{n}} = stablehlo.multiply %{{x}}, %{{x}} : {t}",
            f"%{{n}} = stablehlo.rsqrt %s{{p}} : {t}",
            f"%{{n}} = stablehlo.add %{{x}}, %w : {t}",
            f"%{{n}} = stablehlo.multiply %{{x}}, %w : {t}",
        ],
        "copies": [f"%{{n}} = stablehlo.convert %{{x}} : {t}"],
        "axes": [
            f"%f{{n}} = stablehlo.reshape %{{x}} : ({t}) -> tensor<8x1x8xf32>",
            f"%{{n}} = stablehlo.reshape %f{{p}} : (tensor<8x1x8xf32>) -> {t}",
        ],
    }
    rows = [r for k, own in kinds.items() if kind in (k, "all") for r in own]
    lines = [
        f"func.func @main(%x0: {t}, %w: {t}) -> {t} {{",
        "%low = stablehlo.constant dense<0xFF800000> : tensor<f32>",
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
    ]
    x = "x0"
    for n in range(1, count + 1):
        row = rows[(n - 1) % len(rows)]
        lines.append(row.format(n=n, x=x, p=n - 1, q=n - 3))
        x = str(n) if row.startswith("%{n}") else x
    return "\n".join([*lines, f"return %{x} : {t}", "}"])


@pytest.mark.parametrize("kind", ["all", "matrices", "softmax", "norms", "copies", "axes"])
def test_the_work_grows_with_the_program(kind: str) -> None:
    def work(count: int) -> float:
        mod = read(parse(layers(count, kind)))
        return calls(lambda: RaiseStableHLO()(mod)) / count

    few, many = work(1_020), work(8_160)
    # Templates are made once, so that an operation of a longer program costs less.
    assert many <= 1.01 * few, (few, many)
    assert many < 400, many


def test_a_chain_of_scalar_sums_of_unknown_numbers() -> None:
    text = ["func.func @main(%v0: tensor<f32>, %c: tensor<f32>) -> tensor<f32> {"]
    text += [f"%v{i + 1} = stablehlo.add %v{i}, %c : tensor<f32>" for i in range(5_000)]
    text += ["return %v5000 : tensor<f32> }"]
    assert names(raised_text("\n".join(text))) == ["add"] * 5_000


def test_a_region_that_shares_its_parts() -> None:
    rows = [f"%v{i + 1} = stablehlo.multiply %v{i}, %v{i} : tensor<f32>" for i in range(60)]
    text = "\n".join(
        [
            "func.func @main(%a: tensor<4x8xf32>, %i: tensor<f32>) -> tensor<4xf32> {",
            '%0 = "stablehlo.reduce"(%a, %i) <{dimensions = array<i64: 1>}> ({',
            "^bb0(%x: tensor<f32>, %y: tensor<f32>):",
            "%v0 = stablehlo.add %x, %y : tensor<f32>",
            *rows,
            "stablehlo.return %v60 : tensor<f32>",
            "}) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>",
            "return %0 : tensor<4xf32> }",
        ]
    )
    assert "stablehlo.reduce" in names(raised_text(text))


def test_rows_alike_but_for_which_operand_is_which() -> None:
    # What is found for one row is used for rows like it; x * x is not like x * y.
    x, y = np.arange(4, dtype="f") + 1, np.arange(4, dtype="f") + 5
    for fn in (
        lambda x, y: (x * x, x * y, y * x, y * y, x * x),
        lambda x, y: (x * y, x * x, jnp.where(x > y, x, y), jnp.where(x > x, x, x)),
        lambda x, y: (x - x[:1], x - y[:1], y - x[:1], x[:1] - x),
    ):
        made = RaiseStableHLO()(lowered(fn, (x, y)))
        found = rx.VirtualMachine(rx.build(made))["main"](x, y)
        for a, b in zip(found, fn(x, y), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_row_that_copies_its_operand_is_no_operator_of_itself() -> None:
    text = """func.func @main(%x: tensor<4xf32>, %p: tensor<4xi1>) -> tensor<4xf32> {
  %0 = stablehlo.select %p, %x, %x : tensor<4xi1>, tensor<4xf32>
  %1 = stablehlo.convert %0 : tensor<4xf32>
  return %1 : tensor<4xf32> }"""
    made = RaiseStableHLO()(read(parse(text)))
    assert rx.analysis.well_formed(made)
    assert names(made["main"])[0] == "where"


@pytest.mark.parametrize(
    ("kind", "number"), [("complex<f32>", "(1.0, 2.0)"), ("f32", "0x7F800000")]
)
def test_numbers_that_are_no_attribute_of_an_operator(kind: str, number: str) -> None:
    t = f"tensor<4x4x{kind}>"
    iota = "%i = stablehlo.iota dim = 0 : tensor<4x4xf32>\n" if kind == "f32" else ""
    mask = "stablehlo.compare EQ, %m, %m : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>"
    rows = f"""%m = stablehlo.add %i, %n : {t}
  %q = {mask}
  %e = stablehlo.convert %q : (tensor<4x4xi1>) -> {t}
  %w = stablehlo.select %q, %3, %n : tensor<4x4xi1>, {t}"""
    text = f"""func.func @main(%a: {t}) -> {t} {{
  {iota}%n = stablehlo.constant dense<{number}> : {t}
  %0 = stablehlo.add %a, %n : {t}
  %1 = stablehlo.rsqrt %0 : {t}
  %2 = stablehlo.multiply %a, %1 : {t}
  %3 = stablehlo.add %2, %1 : {t}
  {rows if iota else ""}
  %4 = stablehlo.add %{"w" if iota else "3"}, %{"e" if iota else "2"} : {t}
  return %4 : {t} }}"""
    made = RaiseStableHLO()(read(parse(text)))
    assert rx.analysis.well_formed(made)


def test_a_sort_that_says_no_dimension_sorts_the_last() -> None:
    text = """func.func public @main(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %0 = "stablehlo.sort"(%a) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %1 = stablehlo.compare LT, %x, %y, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
      return %0 : tensor<4x8xf32>
    }"""
    raised = RaiseStableHLO()(from_stablehlo(text))
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    machine = rx.VirtualMachine(rx.build(raised))
    np.testing.assert_array_equal(np.asarray(machine["main"](x)), np.sort(x))

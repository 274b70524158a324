"""Gradients of operators: those of jax.grad of extract_jax, and finite differences.

All calls are in one program, each with parameters of its own, so that the gradient of the sum of
their weighted results is that of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from relax2xla import BlockBuilder, VirtualMachine, build, op
from relax2xla.interop.jax import extract_jax
from relax2xla.ir import (
    Expr,
    IRModule,
    Op,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    const,
)
from relax2xla.op.shared.lowering import static
from relax2xla.transform import Gradient

# All gradients are computed once, by the process that has the first of them.
pytestmark = pytest.mark.xdist_group("gradients")

RNG = np.random.default_rng(5)


def real(*shape: int) -> Any:
    """Distinct values, none near 0 nor near an integer, so that no step crosses a kink."""
    count = int(np.prod(shape))
    values = RNG.permutation(count) % 7 * 0.23 + RNG.permutation(count) * 1e-3 - 0.73
    return values.reshape(shape)


def positive(*shape: int) -> Any:
    return RNG.uniform(0.3, 0.9, shape)


def beyond(*shape: int) -> Any:
    return RNG.uniform(1.2, 2.5, shape)


class Call(NamedTuple):
    """An operator on arrays; what is no float64 is a constant."""

    name: str
    inputs: Sequence[Any]
    make: Callable[..., Expr]


def call(name: str, *inputs: Any, **attrs: Any) -> Call:
    made = Op.get(f"relax.{name}")
    return Call(name, inputs, lambda *given: made(*given, **attrs))


def on_tuple(name: str, *inputs: Any, **attrs: Any) -> Call:
    made = Op.get(f"relax.{name}")
    return Call(name, inputs, lambda *given: made(Tuple(given), **attrs))


def shaped(name: str, x: Any, shape: Any) -> Call:
    made = Op.get(f"relax.{name}")
    return Call(name, [x], lambda given: made(given, shape))


ANYWHERE = (
    *("abs", "asinh", "atan", "cos", "cosh", "erf", "exp", "negative", "sin", "sinh", "square"),
    *("tan", "tanh", "sigmoid", "nn.relu", "nn.relu6", "nn.silu", "nn.gelu", "nn.gelu_tanh"),
    *("nn.selu", "nn.softplus", "nn.leakyrelu", "nn.batch_flatten"),
)
CALLS = [
    *(call(name, real(3, 4)) for name in ANYWHERE),
    *(call(name, positive(3, 4)) for name in ("acos", "asin", "atanh", "log", "rsqrt", "sqrt")),
    call("acosh", beyond(3, 4)),
    call("clip", real(3, 4), min=-0.31, max=0.32),
    *(call(name, real(3, 4), beyond(3, 4)) for name in ("add", "subtract", "multiply", "divide")),
    *(call(name, real(2, 1, 4), beyond(3, 1)) for name in ("add", "multiply", "divide")),
    *(call(name, real(3, 4), real(4)) for name in ("maximum", "minimum", "atan2")),
    call("power", beyond(3, 4), real(4)),
    call("mod", beyond(3, 4), positive(4)),
    call("log_add_exp", real(3, 4), real(3, 4)),
    call("astype", real(3, 4), dtype="float64"),
    call("ewise_fma", real(3, 4), real(3, 4), real(3, 4)),
    call("where", np.array([[True], [False], [True]]), real(3, 4), real(4)),
    *(call(name, real(3, 4, 2), axis=[0, 2]) for name in ("sum", "mean", "variance", "std")),
    *(call(name, real(3, 4)) for name in ("sum", "mean", "variance", "max", "min", "prod")),
    *(call(name, real(3, 4), axis=1, keepdims=True) for name in ("sum", "max", "prod", "median")),
    call("cumsum", real(3, 4), axis=1),
    call("cumsum", real(3, 4)),
    call("cumsum", real(3, 4), axis=0, exclusive=True),
    call("cumprod", real(3, 4), axis=1),
    shaped("reshape", real(3, 4), (2, 6)),
    shaped("broadcast_to", real(3, 1), (2, 3, 4)),
    shaped("collapse_sum_to", real(2, 3, 4), (3, 1)),
    call("squeeze", real(3, 1, 2), axis=1),
    call("expand_dims", real(3, 2), axis=[0, 2]),
    call("flatten", real(3, 2)),
    call("permute_dims", real(2, 3, 4), axes=[-1, 0, 1]),
    call("permute_dims", real(2, 3, 4)),
    call("flip", real(3, 2), axis=0),
    call("tile", real(3, 2), repeats=(2, 2)),
    call("repeat", real(3, 2), repeats=2, axis=1),
    on_tuple("concat", real(2, 3), real(2, 2), axis=1),
    on_tuple("concat", real(2, 3), axis=1),
    on_tuple("stack", real(2, 3), real(2, 3), axis=1),
    call("split", real(3, 6), indices_or_sections=[1, 4], axis=1),
    call("split", real(3, 6), indices_or_sections=1, axis=1),
    call("split", real(3, 6), indices_or_sections=[], axis=1),
    call("strided_slice", real(4, 5), axes=[0, 1], begin=[1, 0], end=[4, 5], strides=[1, 2]),
    call("take", real(4, 3), np.array([0, 2, 2]), axis=0),
    call("take", real(4), np.array([[0, 3], [3, 1]])),
    call("take", real(4, 3), np.array([-1, 5]), axis=0, mode="wrap"),
    call("gather_elements", real(3, 3), np.array([[0, 1, 1], [2, 2, 0]]), axis=0),
    call("gather_nd", real(3, 4), np.array([[0, 1], [2, 3]])),
    call("scatter_elements", real(3, 3), np.array([[1, 0, 2]]), real(1, 3)),
    call("scatter_nd", real(4, 2), np.array([[0], [3]]), real(2, 2)),
    call("topk", real(3, 5), k=2),
    call("sort", real(3, 4)),
    call("triu", real(3, 3), k=1),
    call("tril", real(3, 3)),
    call("matmul", real(3, 4), real(4, 2)),
    call("matmul", real(4), real(4)),
    call("matmul", real(4), real(2, 4, 3)),
    call("matmul", real(2, 3, 4), real(4)),
    call("matmul", real(2, 3, 4), real(4, 2)),
    call("matmul", real(2, 1, 3, 4), real(3, 4, 2)),
    on_tuple("einsum", real(3, 4), real(4, 2), subscripts="ij,jk->ik"),
    call("outer", real(3), real(2)),
    call("nn.softmax", real(3, 4), axis=0),
    call("nn.log_softmax", real(3, 4)),
    call("nn.pad", real(3, 4), pad_width=[0, 1, 2, 0]),
    call("nn.prelu", real(2, 3, 4), positive(3), axis=1),
    call("nn.layer_norm", real(3, 4), real(4), real(4), axes=[-1]),
    call("nn.rms_norm", real(3, 4), real(4), axes=[-1]),
    call("nn.group_norm", real(2, 4, 3), real(4), real(4), num_groups=2, channel_axis=1, axes=[2]),
    call("nn.instance_norm", real(2, 3, 4), real(3), real(3), channel_axis=1, axes=[2]),
    call("nn.dropout", real(3, 4)),
    call("nn.cross_entropy_with_logits", real(3, 4), positive(3, 4)),
    call("nn.nll_loss", real(3, 4), np.array([0, 3, 1])),
    call("nn.nll_loss", real(3, 4, 2), np.array([[0, 3], [1, 2], [2, 2]]), reduction="none"),
    call("nn.conv1d", real(2, 3, 7), real(4, 3, 2), padding=1),
    call("nn.conv2d", real(2, 4, 7, 6), real(6, 2, 3, 2), strides=2, padding=(1, 0), groups=2),
    call("nn.conv2d", real(2, 3, 8, 7), real(2, 3, 2, 3), dilation=(2, 1), padding=(0, 2, 1, 0)),
    call("nn.conv2d", real(1, 5, 5, 2), real(2, 2, 2, 3), data_layout="NHWC", kernel_layout="HWIO"),
    call("nn.conv2d_transpose", real(1, 3, 4, 4), real(3, 2, 2, 2), strides=2),
    call("nn.conv3d", real(1, 2, 4, 4, 3), real(2, 2, 2, 2, 2)),
    call("nn.max_pool1d", real(1, 2, 6), pool_size=2),
    call("nn.max_pool2d", real(2, 2, 5, 5), pool_size=(2, 3), strides=(2, 1), padding=(1, 1)),
    call("nn.avg_pool2d", real(2, 2, 5, 5), pool_size=(2, 3), strides=(2, 1), padding=(1, 1)),
    call("nn.avg_pool3d", real(1, 1, 4, 4, 4), pool_size=2, strides=2),
    call("nn.adaptive_avg_pool2d", real(1, 2, 5, 4), output_size=(2, 2)),
    call("nn.pixel_shuffle", real(1, 4, 2, 3), upscale_factor=2),
    call("nn.attention", real(1, 3, 2, 4), real(1, 5, 2, 4), real(1, 5, 2, 4)),
    call("image.resize2d", real(1, 2, 4, 4), (7, 6)),
    call("stablehlo.sine", real(3)),
]


def leaves(value: Expr) -> Sequence[Expr]:
    """The float tensors of a result."""
    fields = list(value) if isinstance(value.struct_info, TupleStructInfo) else [value]
    return [f for f in fields if "float" in getattr(f.struct_info, "dtype", "")]


def program(calls: Sequence[Call]) -> tuple[IRModule, list[Any]]:
    """``main(arrays) -> (the sum, the weighted result of each call)``, and the arrays."""
    builder, values = BlockBuilder(), list[Any]()
    params: list[Var] = []
    operands: list[list[Expr]] = []
    for c in calls:
        operands.append([])
        for x in c.inputs:
            if isinstance(x, np.ndarray) and x.dtype == np.float64:
                params.append(Var(f"x{len(params)}", TensorStructInfo(x.shape, "float64")))
                values.append(x)
                operands[-1].append(params[-1])
            else:
                operands[-1].append(const(x) if isinstance(x, np.ndarray) else x)
    with builder.function("main", params):
        with builder.dataflow():
            sums: list[Expr] = []
            for c, given in zip(calls, operands, strict=True):
                result = builder.emit(c.make(*given))
                parts: list[Expr] = []
                for leaf in leaves(result):
                    info = leaf.struct_info
                    assert isinstance(info, TensorStructInfo)
                    weights = const(RNG.uniform(0.5, 1.5, static(info.dims)))
                    parts.append(op.sum(op.multiply(leaf, weights)))
                each = parts[0]
                for part in parts[1:]:
                    each = op.add(each, part)
                sums.append(builder.emit(each))
            whole = sums[0]
            for each in sums[1:]:
                whole = builder.emit(op.add(whole, each))
            whole = builder.emit_output(whole)
            rest = [builder.emit_output(each) for each in sums]
        builder.emit_func_output(Tuple([whole, *rest]))
    return builder.get(), values


@pytest.fixture(scope="module")
def found() -> tuple[list[Any], Any, Any, list[Any]]:
    """Gradients of the adjoint, those of JAX, of each call the slope along a direction, and it."""
    mod, values = program(CALLS)
    made = Gradient("main", target_index=0)(mod)
    run = VirtualMachine(build(made, "cpu", relax_pipeline="zero"))["main_adjoint"]
    _, grads = run(*values)
    fn, params = extract_jax(mod)
    with jax.enable_x64(True):
        by_jax = jax.jit(jax.grad(lambda given: fn(params, *given)[0]))(values)
    ways = [RNG.normal(size=v.shape) for v in values]
    step = 1e-6
    ahead, _ = run(*(v + step * w for v, w in zip(values, ways, strict=True)))
    behind, _ = run(*(v - step * w for v, w in zip(values, ways, strict=True)))
    slopes = [(float(a) - float(b)) / (2 * step) for a, b in zip(ahead, behind, strict=True)][1:]
    return [np.asarray(g) for g in grads], [np.asarray(g) for g in by_jax], slopes, ways


def places() -> list[tuple[int, slice]]:
    """Of each call, its parameters among all."""
    made, first = list[tuple[int, slice]](), 0
    for i, c in enumerate(CALLS):
        count = sum(isinstance(x, np.ndarray) and x.dtype == np.float64 for x in c.inputs)
        made.append((i, slice(first, first + count)))
        first += count
    return made


@pytest.mark.parametrize(
    ("index", "own"), places(), ids=[f"{i} {c.name}" for i, c in enumerate(CALLS)]
)
def test_gradients(found: Any, index: int, own: slice) -> None:
    grads, by_jax, slopes, ways = found
    for got, want in zip(grads[own], by_jax[own], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)
    slope = sum(float(np.sum(g * w)) for g, w in zip(grads[own], ways[own], strict=True))
    np.testing.assert_allclose(slope, slopes[index], rtol=2e-6, atol=2e-6)
    assert slope != 0


STEPS = ("ceil", "floor", "round", "sign", "trunc")
# Flat where they have floats, or of no floats at all.
FLAT = {
    *STEPS,
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "isfinite", "isinf", "isnan"),
    *("argmax", "argmin", "argsort", "shape_of", "size"),
    *("full", "full_like", "ones", "ones_like", "zeros", "zeros_like"),
}


def test_every_rule_is_tested() -> None:
    rules = {n for n in Op.list_op_names() if Op.get(n).primal_gradient is not None}
    assert rules - {f"relax.{c.name}" for c in CALLS} == {f"relax.{n}" for n in FLAT}


def test_steps_are_flat() -> None:
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((3, 4), "float64"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y: Expr = x
            for name in STEPS:
                y = bb.emit(op.add(y, Op.get(f"relax.{name}")(x)))
            y = bb.emit_output(op.sum(y))
        bb.emit_func_output(y)
    vm = VirtualMachine(build(Gradient("main")(bb.get())))
    _, (grad,) = vm["main_adjoint"](real(3, 4))
    np.testing.assert_array_equal(grad, np.ones((3, 4)))

"""Operators of nn: their values at once, against torch and numpy; what they add to a program."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import relax2xla
from relax2xla import BlockBuilder, errors, tir
from relax2xla.frontend import nn
from relax2xla.frontend.nn import op
from relax2xla.frontend.nn.spec import Tensor as Spec
from relax2xla.script import from_source

X = torch.linspace(-3, 3.5, 24).reshape(2, 3, 4)
Y = torch.linspace(0.5, 2, 12).reshape(1, 3, 4)
POSITIVE = X.abs() + 0.1


def close(ours, theirs) -> None:
    if isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            close(a, b)
        return
    a, b = np.asarray(ours), np.asarray(theirs)
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


UNARY = {
    "square": torch.square,
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "log": torch.log,
    "floor": torch.floor,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "negative": torch.neg,
    "relu": F.relu,
    "relu6": F.relu6,
    "silu": F.silu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "softmax": lambda x: F.softmax(x, -1),
    "sum": torch.sum,
    "max": torch.max,
    "min": torch.min,
}
BINARY = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "equal": torch.eq,
    "not_equal": torch.ne,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    given = POSITIVE if name in ("sqrt", "log") else X * 3
    close(getattr(op, name)(given), UNARY[name](given))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    close(getattr(op, name)(X, Y), BINARY[name](X, Y))


CASES = {
    "gelu_tanh": (lambda: op.gelu(X, "tanh"), lambda: F.gelu(X, approximate="tanh")),
    "softplus": (lambda: op.softplus(X, 2.0, 1.0), lambda: F.softplus(X, 2.0, 1.0)),
    "prelu": (
        lambda: op.prelu(X, torch.tensor([0.1, 0.2, 0.3])),
        lambda: F.prelu(X, torch.tensor([0.1, 0.2, 0.3])),
    ),
    "softmax": (lambda: op.softmax(X, axis=1), lambda: F.softmax(X, 1)),
    "sum": (lambda: op.sum(X, [0, -1], True), lambda: X.sum((0, -1), keepdim=True)),
    "max": (lambda: op.max(X, axis=1), lambda: X.amax(1)),
    "where": (lambda: op.where(X > 0, X, 0.0), lambda: torch.where(X > 0, X, 0.0)),
    "where of numbers": (
        lambda: op.where(torch.tensor([2, 0]), torch.ones(2), torch.zeros(2)),
        lambda: torch.tensor([1.0, 0.0]),
    ),
    "astype": (lambda: op.astype(X, "int32"), lambda: X.to(torch.int32)),
    "matmul": (
        lambda: op.matmul(X, Y.permute(0, 2, 1)),
        lambda: torch.matmul(X, Y.permute(0, 2, 1)),
    ),
    "matmul of vectors": (lambda: op.matmul(X[0, 0], Y[0, 0]), lambda: X[0, 0] @ Y[0, 0]),
    "reshape": (lambda: op.reshape(X, (6, 1, -1)), lambda: X.reshape(6, 1, 4)),
    "broadcast_to": (lambda: op.broadcast_to(Y, (2, 3, 4)), lambda: Y.expand(2, 3, 4)),
    "permute_dims": (lambda: op.permute_dims(X), lambda: X.permute(2, 1, 0)),
    "permute": (lambda: op.permute(X, [1, 0, 2]), lambda: X.permute(1, 0, 2)),
    "unsqueeze": (lambda: op.unsqueeze(X, 1), lambda: X.unsqueeze(1)),
    "squeeze": (lambda: op.squeeze(Y, 0), lambda: Y.squeeze(0)),
    "squeeze all": (lambda: op.squeeze(Y[:, :1], None), lambda: Y[:, :1].squeeze()),
    "concat": (lambda: op.concat([X, X], dim=1), lambda: torch.cat([X, X], 1)),
    "chunk": (lambda: op.chunk(X, 2, dim=2), lambda: X.chunk(2, 2)),
    "split": (lambda: op.split(X, [1, 3], 2), lambda: X.tensor_split([1, 3], 2)),
    "repeat": (
        lambda: op.repeat(torch.tensor([[1, 2], [3, 4]]), 2),
        lambda: torch.tensor([1, 1, 2, 2, 3, 3, 4, 4]),
    ),
    "repeat along": (lambda: op.repeat(X, 2, 1), lambda: X.repeat_interleave(2, 1)),
    "take": (
        lambda: op.take(X, torch.tensor([[2, 0], [1, 1]]), axis=1),
        lambda: X[:, torch.tensor([[2, 0], [1, 1]])],
    ),
    "pad": (
        lambda: op.pad(X, [0, 0, 1, 0, 0, 2], value=7.0),
        lambda: F.pad(X, (0, 2, 1, 0), value=7.0),
    ),
    "triu": (lambda: op.triu(X, 1), lambda: X.triu(1)),
    "cumsum": (lambda: op.cumsum(X, 1), lambda: X.cumsum(1)),
    "cumsum flat": (lambda: op.cumsum(X), lambda: X.flatten().cumsum(0)),
    "cumsum of bool": (
        lambda: op.cumsum(torch.tensor([True, False, True, True]), 0, "int32"),
        lambda: torch.tensor([1, 1, 2, 3], dtype=torch.int32),
    ),
    "cumsum exclusive": (
        lambda: op.cumsum(torch.tensor([1.0, 2.0, 4.0]), 0, exclusive=True),
        lambda: torch.tensor([0.0, 1.0, 3.0]),
    ),
    "sort": (lambda: op.sort(-X, axis=1), lambda: (-X).sort(1).values),
    "argsort": (
        lambda: op.argsort(X, descending=True),
        lambda: X.argsort(-1, descending=True).to(torch.int32),
    ),
    "topk": (
        lambda: op.topk(X, 2),
        lambda: (X.topk(2).values, X.topk(2).indices.to(torch.int32)),
    ),
    "topk of all": (
        lambda: op.topk(X, 0, ret_type="values", largest=False),
        lambda: X.topk(4, largest=False).values,
    ),
    "layer_norm": (lambda: op.layer_norm(X, [3, 4]), lambda: F.layer_norm(X, [3, 4])),
    "layer_norm of one": (
        lambda: op.layer_norm(X, 4, Y[0, 0], Y[0, 1], eps=1e-3),
        lambda: F.layer_norm(X, [4], Y[0, 0], Y[0, 1], eps=1e-3),
    ),
    "rms_norm": (
        lambda: op.rms_norm(X, Y[0, 0], -1, 1e-3),
        lambda: F.rms_norm(X, [4], Y[0, 0], 1e-3),
    ),
    "group_norm": (
        lambda: op.group_norm(X.reshape(2, 4, 3), 2, Y[0, 0], Y[0, 1]),
        lambda: F.group_norm(X.reshape(2, 4, 3), 2, Y[0, 0], Y[0, 1]),
    ),
    "group_norm without weights": (
        lambda: op.group_norm(X.reshape(2, 4, 3), 2, None, None),
        lambda: F.group_norm(X.reshape(2, 4, 3), 2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    ours, theirs = CASES[name]
    close(ours(), theirs())


def image(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


CONVOLUTIONS = {
    "conv1d": ((2, 4, 9), (6, 2, 3), dict(stride=2, padding=1, dilation=2, groups=2)),
    "conv2d": ((2, 4, 9, 8), (6, 2, 3, 2), dict(stride=2, padding=1, groups=2)),
    "conv3d": ((1, 4, 5, 6, 7), (6, 2, 2, 3, 2), dict(padding=1, groups=2)),
    "conv1d_transpose": (
        (2, 4, 9),
        (4, 3, 3),
        dict(stride=2, padding=1, output_padding=1, dilation=2, groups=2),
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    data, kernel, settings = CONVOLUTIONS[name]
    x, w, b = image(*data), image(*kernel), image(6)
    theirs = F.conv_transpose1d if name == "conv1d_transpose" else getattr(F, name)
    np.testing.assert_allclose(
        getattr(op, name)(x, w, b, **settings), theirs(x, w, b, **settings), atol=1e-5
    )


def test_convolution_with_channels_last_and_same_padding() -> None:
    x, w, b = image(2, 3, 8, 9), image(4, 3, 3, 5), image(4)
    theirs = F.conv2d(x, w, b, padding="same")
    np.testing.assert_allclose(op.conv2d(x, w, b, padding="same"), theirs, atol=1e-5)
    last = op.conv2d(x.permute(0, 2, 3, 1), w, b, padding="same", data_layout="NHWC")
    np.testing.assert_allclose(last.permute(0, 3, 1, 2), theirs, atol=1e-5)
    with pytest.raises(errors.UnsupportedError, match="data_layout"):
        op.conv2d(x, w, data_layout="CHWN")
    with pytest.raises(ValueError, match="'same' needs strides of 1"):
        op.conv2d(x, w, padding="same", stride=2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_attention(causal: bool, kv_heads: int) -> None:
    q, k, v = image(2, 5, 4, 8), image(2, 7, kv_heads, 8), image(2, 7, kv_heads, 6)
    theirs = F.scaled_dot_product_attention(
        *(t.transpose(1, 2) for t in (q, k, v)), is_causal=causal, enable_gqa=True
    ).transpose(1, 2)
    ours = op.scaled_dot_product_attention(q, k, v, is_causal=causal)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_attention_refuses_masks_and_odd_heads() -> None:
    q = image(1, 2, 4, 8)
    with pytest.raises(errors.UnsupportedError, match="attn_mask"):
        op.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(2, 2))
    with pytest.raises(ValueError, match="no divisor"):
        op.scaled_dot_product_attention(q, q[:, :, :3], q[:, :, :3])


def test_interpolate() -> None:
    x = image(1, 2, 4, 5)
    doubled = op.interpolate(x, scale_factor=2, mode="nearest-floor")
    np.testing.assert_array_equal(doubled, F.interpolate(x, scale_factor=2))
    even = [0, 0, 1, 2, 2, 2, 3, 3]  # what TVM gives: halves are rounded to even
    np.testing.assert_array_equal(op.interpolate(x, size=(8, 5)), x[:, :, even])
    for settings in (
        dict(scale_factor=[2.0, 3.0], mode="bilinear"),
        dict(size=(7, 9), mode="bilinear", align_corners=True),
        dict(size=8, mode="bilinear"),
    ):
        theirs = F.interpolate(x, **settings)
        np.testing.assert_allclose(op.interpolate(x, **settings), theirs, atol=1e-5)
    cubic = F.interpolate(x, size=(6, 7), mode="bicubic")
    np.testing.assert_allclose(op.interpolate(x, (6, 7), mode="bicubic"), cubic, atol=1e-5)
    with pytest.raises(ValueError, match="mode is one of nearest, nearest-floor"):
        op.interpolate(x, size=4, mode="nearest-exact")
    with pytest.raises(ValueError, match="one of size and scale_factor"):
        op.interpolate(x, size=4, scale_factor=2)
    with pytest.raises(ValueError, match="one of size and scale_factor"):
        op.interpolate(x)
    with pytest.raises(errors.UnsupportedError, match="antialias"):
        op.interpolate(x, size=4, antialias=True)


@pytest.mark.parametrize("width", [6, 7])
def test_timestep_embedding(width: int) -> None:
    steps, half = np.array([0.0, 1.0, 10.0], np.float32), width // 2
    angles = 2.0 * steps[:, None] * np.exp(-math.log(100) * np.arange(half) / (half - 1))
    wanted = np.concatenate([np.cos(angles), np.sin(angles)], 1)
    wanted = np.pad(wanted, ((0, 0), (0, width % 2)))
    made = op.get_timestep_embedding(steps, width, True, scale=2, max_period=100)
    np.testing.assert_allclose(made, wanted, atol=1e-5)


def test_new_tensors() -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor):
            n = x.shape[0]
            three = nn.Tensor.from_scalar(3, "int32")
            return (
                op.zeros([2, 2]),
                op.ones([n], "int64"),
                op.full([2], 3.5),
                op.full([n], three, "int32"),
                op.arange(1, 7, 2, "int32"),
                op.empty([2, 3], "float16"),
            )

    z, o, f, g, a, e = Model()(np.zeros(3, np.float32))
    close((z, o), (np.zeros((2, 2), np.float32), np.ones(3, np.int64)))
    close((f, g), (np.full(2, 3.5, np.float32), np.full(3, 3, np.int32)))
    close(a, np.array([1, 3, 5], np.int32))
    assert (e.shape, e.dtype) == ((2, 3), np.float16)


# -- sampling --------------------------------------------------------------------------------------
def test_multinomial() -> None:
    prob = np.array([[0.2, 0.3, 0.5], [0.3, 0.4, 0.3]], np.float32)
    samples = np.array([[0.4], [0.9]], np.float32)
    close(op.multinomial_from_uniform(prob, samples), np.array([[1], [2]], np.int64))
    rows = np.array([[1], [1], [0]], np.int64)
    more = np.array([[0.1], [0.5], [0.6]], np.float32)
    drawn = op.multinomial_from_uniform(prob, more, rows, dtype="int32")
    close(drawn, np.array([[0], [1], [2]], np.int32))
    with pytest.raises(ValueError, match="3 samples of 2 rows"):
        op.multinomial_from_uniform(prob, more)


def kept_places(row: np.ndarray, top_p: float, top_k: int) -> int:
    """How many elements of a falling row are kept."""
    mass, count = 0.0, 0
    for p in row:
        mass, count = mass + p, count + 1
        if mass >= top_p or count >= top_k:
            break
    return count


def test_top_p_top_k() -> None:
    rng = np.random.default_rng(3)
    prob = rng.dirichlet(np.ones(9), 5).astype(np.float32)
    order = np.argsort(-prob, 1, kind="stable")
    falling = np.take_along_axis(prob, order, 1)
    top_p = rng.uniform(0.2, 1.1, (5, 1)).astype(np.float32)
    top_k = rng.integers(1, 9, (5, 1))
    counts = [kept_places(falling[i], top_p[i, 0], top_k[i, 0]) for i in range(5)]
    made = np.asarray(op.renormalize_top_p_top_k_prob(prob, falling, top_p, top_k))
    for i, count in enumerate(counts):
        wanted = np.where(prob[i] >= falling[i, count - 1], prob[i], 0)
        np.testing.assert_allclose(made[i], wanted / wanted.sum(), rtol=1e-5)
    rows = rng.integers(0, 5, (40, 1))
    uniform = rng.uniform(0, 1, (40, 1)).astype(np.float32)
    drawn = op.sample_top_p_top_k_from_sorted_prob(falling, order, top_p, top_k, uniform, rows)
    for row, u, index in zip(rows[:, 0], uniform[:, 0], np.asarray(drawn)[:, 0], strict=True):
        share = falling[row, : counts[row]].cumsum() / falling[row, : counts[row]].sum()
        assert index == order[row, np.searchsorted(share, u, side="right")]

    class Sampler(nn.Module):
        def forward(self, p: Any, i: Any, most: Any, k: Any, u: Any, rows: Any) -> Any:
            return op.sample_top_p_top_k_from_sorted_prob(p, i, most, k, u, rows)

    # Rows of a length that is known when the program runs.
    tensor = nn.spec.Tensor
    infos = {"p": tensor(["b", "v"], "float32"), "i": tensor(["b", "v"], "int64")}
    infos |= {"most": tensor(["b", 1], "float32"), "k": tensor(["b", 1], "int64")}
    infos |= {"u": tensor(["n", 1], "float32"), "rows": tensor(["n", 1], "int64")}
    compiled = Sampler().jit({"forward": infos}, out_format="numpy")["forward"]
    again = compiled(falling, order, top_p, top_k, uniform, rows)
    np.testing.assert_array_equal(again, np.asarray(drawn))


def test_example_of_the_documentation() -> None:
    drawn = op.sample_top_p_top_k_from_sorted_prob(
        np.array([[0.5, 0.4, 0.1], [0.4, 0.3, 0.3]], np.float32),
        np.array([[2, 1, 0], [2, 0, 1]]),
        np.array([[0.6], [0.9]], np.float32),
        np.array([[3], [2]]),
        np.array([[0.5], [0.6]], np.float32),
        np.array([[0], [1]]),
    )
    assert np.asarray(drawn).tolist() == [[2], [0]]


# -- names, errors, tracing ------------------------------------------------------------------------
HINTS = {
    "multiply": "mul",
    "negative": "neg",
    "ccl_broadcast_from_worker0": "broadcast_from_worker",
}


@pytest.mark.parametrize("name", [*UNARY, *BINARY, *HINTS])
def test_the_hint_of_a_name(name: str) -> None:
    default = inspect.signature(getattr(op, name)).parameters["name"].default
    assert default == HINTS.get(name, name)


FLOAT_ONLY = ("exp", "gelu", "sigmoid", "silu", "softmax", "sqrt", "tanh")


@pytest.mark.parametrize("name", FLOAT_ONLY)
def test_integers_are_refused(name: str) -> None:
    with pytest.raises(errors.TVMError, match="float"):
        getattr(op, name)(np.arange(4))


def test_names_of_variables() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.linear_1 = nn.Linear(4, 8, bias=False)

        def forward(self, x: nn.Tensor):
            return op.add(self.linear_1(x), 1, name="result")

    spec = {"x": Spec([2, 4], "float32"), "$": {"param_mode": "packed"}}
    mod, _ = Model().export_tvm({"forward": spec})
    names = [b.var.name_hint for b in mod["forward"].body.blocks[0].bindings]
    assert names == ["linear_1_weight", "matmul_1_weight", "matmul", "result", "gv"]


def test_outside_of_an_export() -> None:
    with pytest.raises(errors.BuilderError, match="give arrays"):
        op.zeros([2])
    with pytest.raises(errors.BuilderError, match="give arrays"):
        op.add(nn.Tensor.placeholder([2], "float32"), 1)
    with pytest.raises(TypeError, match=r"expected an nn\.Tensor; got str"):
        op.add("a", np.ones(2))


def test_arrays_in_a_program_are_constants() -> None:
    table = np.arange(3, dtype=np.float64)

    class Model(nn.Module):
        def forward(self, x: nn.Tensor):
            return table + x, x * torch.tensor([2.0], dtype=torch.float64)

    mod, _ = Model().export_tvm({"forward": {"x": Spec([3], "float64")}})
    vm = relax2xla.VirtualMachine(relax2xla.build(mod))
    close(vm["forward"](table), (table + table, table * 2))


def test_wrap_nested() -> None:
    builder = BlockBuilder()
    x = nn.Tensor.placeholder([4], "float32", "x")
    with builder.function("main", [x._expr]):
        parts = op.wrap_nested(relax2xla.op.split(x._expr, 2), "parts")
        with pytest.raises(TypeError, match="neither a tensor nor a tuple"):
            op.wrap_nested(relax2xla.op.null_value(), "nothing")
        builder.emit_func_output(parts[1]._expr)
    assert [p.shape for p in parts] == [[2], [2]]
    assert parts[0]._expr.name_hint == "parts_0"


# -- functions from outside ------------------------------------------------------------------------
def test_extern() -> None:
    @relax2xla.register_func("tests.nn.extern", override=True)
    def scaled(x, factor, shift, name, out) -> None:
        assert name == "plus"
        out[:] = np.asarray(x) * factor + shift

    class Model(nn.Module):
        def forward(self, x: nn.Tensor):
            like = nn.Tensor.placeholder(x.shape, x.dtype)
            return op.extern("tests.nn.extern", [x, 2, 0.5, "plus"], like)

    close(Model()(np.ones(3, np.float32)), np.full(3, 2.5, np.float32))
    with pytest.raises(TypeError, match="argument of a packed function"):
        op.extern("f", [np.ones(2), object()], nn.Tensor.placeholder([2], "float32"))


KERNELS = from_source(
    """from tvm.script import ir as I, tir as T
@I.ir_module
class M:
    @T.prim_func(private=True)
    def f(a: T.handle, b: T.handle, c: T.handle, n: T.int64):
        T.evaluate(0)
    @T.prim_func(private=True)
    def g(a: T.handle, b: T.handle):
        T.evaluate(0)
"""
)


class Placed(nn.Module):
    def forward(self, x: nn.Tensor, n: tir.Var):
        like = [nn.Tensor.placeholder([n], "float32"), x]
        first, second = op.tensor_ir_op(KERNELS["f"], "f", [x, n], like)
        third = op.tensor_ir_inplace_op(KERNELS["g"], "g", [first, second], 0, like[0])
        return second, third


def test_tir_functions_are_called_by_a_program() -> None:
    mod, _ = Placed().export_tvm({"forward": {"x": Spec(["n"], "float32"), "n": "int"}})
    text = mod.script()
    assert "R.call_tir(cls.f, (x,), out_sinfo=[" in text
    assert "tir_vars=R.shape([n])" in text
    assert "R.call_tir_inplace(cls.g, (" in text
    with pytest.raises(TypeError, match="an argument is a Tensor, a shape or an expression"):
        op.tensor_ir_op(None, "f", [np.ones(2), "x"], nn.Tensor.placeholder([2], "float32"))


def test_debug_func_and_print(capsys) -> None:
    lines: list[str] = []

    @relax2xla.register_func("tests.nn.debug", override=True)
    def debug(line, x, count, factor, word, size) -> None:
        lines.append(line)
        assert (np.asarray(x).tolist(), count, factor, word, size) == ([1, 2], 3, 0.5, "w", 2)

    class Model(nn.Module):
        def forward(self, x: nn.Tensor, n: tir.Var):
            op.debug_func("tests.nn.debug", x, 3, 0.5, "w", n)
            op.print_(x)
            return op.add(x, x)

    spec = {"forward": {"x": Spec(["n"], "int32"), "n": "int"}}
    with pytest.raises(RuntimeError, match="debug=True"):
        Model().export_tvm(spec)
    compiled = Model().jit(spec, debug=True, out_format="numpy")
    x = np.array([1, 2], np.int32)
    assert compiled["forward"](x, 2).tolist() == [2, 4]
    assert compiled["forward"](x, 2).tolist() == [2, 4]
    assert Model()(x, 2).tolist() == [2, 4]  # eager: with effects, because it prints
    assert len(lines) == 3
    assert all("test_op.py:" in line for line in lines)
    assert capsys.readouterr().out.count("[1 2]") == 3
    op.print_(x)
    assert "test_op.py:" in capsys.readouterr().out


def test_minus_one_is_inferred_when_the_program_is_made() -> None:
    shapes = [op.reshape(X, s).shape for s in ((6, 1, -1), (3, -1, 8), (-1,), (0, -1))]
    assert shapes == [(6, 1, 4), (3, 1, 8), (24,), (2, 12)]
    for wrong in ((-1, -1), (5, -1)):
        with pytest.raises(errors.TVMError):
            op.reshape(X, wrong)


def test_tensor_expressions_are_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def emit_te(self, func, *args, primfunc_name_hint: str, primfunc_attrs):
        seen.append((func, args[1:], primfunc_name_hint, primfunc_attrs))
        return self.emit(relax2xla.op.exp(args[0]), primfunc_name_hint)

    monkeypatch.setattr(BlockBuilder, "emit_te", emit_te)
    made = op.tensor_expr_op(len, "power", [np.zeros(2, np.float32), 3], attrs={"a": 1})
    assert made.tolist() == [1, 1]
    assert seen == [(len, (3,), "power", {"a": 1})]


def test_collectives_are_in_the_program() -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor):
            total = op.ccl_allreduce(x, "max", in_group=False)
            return total, op.ccl_allgather(x, 2), op.ccl_broadcast_from_worker0(x)

    mod, _ = Model().export_tvm({"forward": {"x": Spec([2, 3], "float32")}})
    text = mod.script()
    assert 'R.ccl.allreduce(x, op_type="max", in_group=False)' in text
    assert 'ccl_allgather: R.Tensor((4, 3), dtype="float32") = R.ccl.allgather(x' in text
    assert "broadcast_from_worker: " in text

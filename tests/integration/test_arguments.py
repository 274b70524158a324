"""Odd arguments at calls: memory layouts, byte orders, devices, threads, interrupts, mistakes."""

from __future__ import annotations

import inspect
import textwrap
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import tir
from relax2xla.errors import CallError
from relax2xla.op import add, multiply, negative, permute_dims, reshape, sin
from tests.processes import run_python

T = rx.TensorStructInfo
BASE = np.arange(12).reshape(3, 4) % 3


def function(
    infos: Sequence[tuple[str, rx.StructInfo]], body: Callable[..., rx.Expr], **options: Any
) -> Any:
    """A compiled function of one expression."""
    params = [rx.Var(name, info) for name, info in infos]
    builder = rx.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(body(*params)))
    return rx.VirtualMachine(rx.build(builder.get()), **options)["main"]


def transposed(dtype: str) -> Any:
    return function([("x", T((3, 4), dtype))], permute_dims)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C": lambda a: a,
    "Fortran": np.asfortranarray,
    "negative strides": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "every other": lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "subclass": lambda a: a.view(np.ma.MaskedArray),
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "no elements aligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), a.dtype, offset=1).reshape(
        a.shape
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "complex64", "float16"])
def test_memory_layouts(dtype: str) -> None:
    f = transposed(dtype)
    base = BASE.astype(dtype)
    for name, make in LAYOUTS.items():
        x = make(base)
        got = np.asarray(f(x))
        assert got.dtype == np.dtype(dtype), name
        np.testing.assert_array_equal(got, np.asarray(x).T, name)
        readonly = x.view()
        readonly.flags.writeable = False
        np.testing.assert_array_equal(np.asarray(f(readonly)), np.asarray(x).T, name)


# Torch says once in a process that it gives quantised tensors up.
@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions.*:UserWarning")
def test_torch_views() -> None:
    torch = pytest.importorskip("torch")
    f = transposed("float32")
    b = torch.arange(48.0).reshape(6, 8)
    views = [b[::2, ::2], b[:3, :4], b.reshape(8, 6)[:4, :3].T, torch.ones(1, 4).expand(3, 4)]
    for x in [*views, torch.nn.Parameter(torch.ones(3, 4))]:
        np.testing.assert_array_equal(np.asarray(f(x)), x.detach().numpy().T)
    half = torch.arange(12.0).reshape(4, 3).to(torch.bfloat16).T
    got = np.asarray(transposed("bfloat16")(half)).astype("f")
    np.testing.assert_array_equal(got, half.float().numpy().T)
    z = torch.tensor([1 + 2j, 3 - 1j]).conj()
    twice = function([("x", T((2,), "float32"))], lambda x: add(x, x))
    np.testing.assert_array_equal(np.asarray(twice(z.imag)), 2 * z.imag.resolve_neg().numpy())
    for wrong, message in (
        (torch.eye(3, 4).to_sparse(), "expected a dense torch tensor.*use .to_dense"),
        (torch.empty(3, 4, device="meta"), "expected a torch tensor with data.*the device meta"),
        (torch.quantize_per_tensor(b, 0.1, 0, torch.qint8), "torch.qint8; use .int_repr"),
    ):
        with pytest.raises(CallError, match=message):
            f(wrong)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("body", [lambda x: x, lambda x: reshape(x, (1, -1)), negative])
def test_later_writes_to_arguments_are_not_seen(
    dtype: str, body: Callable[[rx.Expr], rx.Expr]
) -> None:
    size = 1 << 20
    f = function([("x", T((size,), dtype))], body)
    want = np.asarray(f(np.ones(size, dtype)))
    for _ in range(8):
        x = np.ones(size, dtype)
        result = f(x)
        x[:] = 77
        np.testing.assert_array_equal(np.asarray(result), want)


MISTAKES: list[tuple[Any, str]] = [
    ("abc", "expected an array .* got str"),
    (None, "got NoneType"),
    ({}, "got dict"),
    (np.zeros((3, 4), [("a", "f4")]), r"has the dtype \[\('a', '<f4'\)\]"),
    (np.array([["a"] * 4] * 3), "has the dtype <U1"),
    (np.array([[1.0] * 4] * 3, object), "has the dtype object"),
    (np.zeros((3, 4), "M8[s]"), "has the dtype datetime64"),
    ([[1, 2], [3]], "does not fit float32"),
    ([[1j] * 4] * 3, "does not fit float32"),
    ([[1e300] * 4] * 3, "does not fit float32 exactly"),
    ([[2**24 + 1] * 4] * 3, "does not fit float32 exactly"),
    ([[10**400]], "too large"),
    (np.ones((3, 4)), "dtype float64, expected float32"),
    (np.ones((4, 4), "f"), "4 in dimension 0, expected 3"),
    (np.ones(3, "f"), "ndim 1, expected 2"),
    (3.0, "ndim 0, expected 2"),
]


def test_mistakes_are_named_and_a_right_call_still_works() -> None:
    f = transposed("float32")
    right = np.ones((3, 4), "f")
    for wrong, message in MISTAKES:
        with pytest.raises(CallError, match=message) as e:
            f(wrong)
        assert len(str(e.value)) < 400
        np.testing.assert_array_equal(np.asarray(f(right)), right.T)
    for args, kwargs, message in [
        ((), {}, r"takes 1 arguments \(x\); got 0"),
        ((right, right), {}, "got 2"),
        ((), {"y": right}, "no parameter 'y'; it has x"),
        ((right,), {"x": right}, "x given twice"),
    ]:
        with pytest.raises(CallError, match=message):
            f(*args, **kwargs)
        np.testing.assert_array_equal(np.asarray(f(x=right)), right.T)


NUMBERS: list[tuple[str, Any, bool]] = [
    ("float32", True, True),
    ("float32", float("nan"), True),
    ("float32", float("-inf"), True),
    ("float32", np.float64(1.5), True),
    ("float32", 1e300, False),
    ("float16", 1e6, False),
    ("float16", 2049, False),
    ("bfloat16", 257, False),
    ("int8", 128, False),
    ("int8", float("nan"), False),
    ("uint8", -1, False),
    ("int64", 2**63 - 1, True),
    ("int64", 2**63, False),
    ("uint64", 2**64 - 1, True),
    ("uint64", -1, False),
    ("bool", 2, False),
    ("complex64", 1j, True),
    ("float64", np.complex128(1j), False),
]


@pytest.mark.parametrize(("dtype", "value", "fits"), NUMBERS)
def test_python_numbers(dtype: str, value: Any, fits: bool) -> None:
    f = function([("x", T((), dtype))], lambda x: x)
    if fits:
        np.testing.assert_array_equal(np.asarray(f(value)), np.asarray(value, dtype))
    else:
        with pytest.raises(CallError, match="does not fit"):
            f(value)


def test_names_that_python_cannot_have_as_parameters() -> None:
    one = np.ones(2, "f")
    twins = function([("x", T((2,))), ("x", T((2,)))], lambda a, b: add(a, negative(b)))
    np.testing.assert_array_equal(np.asarray(twins(one, 0 * one)), one)
    assert list(inspect.signature(twins).parameters) == ["args"]
    with pytest.raises(CallError, match="parameters of the same name"):
        twins(x=one)
    for name in ("class", "self", "a b"):
        f = function([(name, T((2,)))], lambda a: add(a, a))
        np.testing.assert_array_equal(np.asarray(f(**{name: one})), 2 * one)


def test_weakly_typed_jax_arrays() -> None:
    f = function([("x", T((), "int32"))], lambda x: multiply(x, x))
    result = f(jnp.asarray(3))
    assert result.dtype == "int32"
    assert int(result) == 9


@pytest.mark.parametrize("x64", [False, True])
def test_with_and_without_jaxs_x64(x64: bool) -> None:
    with jax.enable_x64(x64):
        for dtype in ("float32", "float64", "int64"):
            f = function([("x", T((3,), dtype))], lambda x: multiply(x, x))
            for x in (np.full(3, 3, dtype), [3, 3, 3]):
                got = np.asarray(f(x))
                assert got.dtype == np.dtype(dtype)
                np.testing.assert_array_equal(got, [9, 9, 9])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_first_calls_of_many_threads(dtype: str) -> None:
    f = function([("x", T((tir.Var("n"),), dtype))], lambda x: sin(sin(x)))
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(np.asarray(f(np.ones(4, dtype)))))
        for _ in range(8)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 8
    assert all((r == results[0]).all() for r in results)


BUILD = """
import numpy as np, jax, relax2xla as rx
from relax2xla import op as R

def function(dtype, device, weight=None, repeat=1):
    x = rx.Var("x", rx.TensorStructInfo((1000,), dtype))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        y = x
        for _ in range(repeat):
            y = builder.emit(R.add(y, y if weight is None else rx.const(weight)))
        builder.emit_func_output(y)
    return rx.VirtualMachine(rx.build(builder.get()), device)["main"]
"""


def test_arrays_on_any_device_are_brought_to_the_machines() -> None:
    code = BUILD + textwrap.dedent(
        """
        first, second = jax.devices()
        spread = jax.sharding.NamedSharding(
            jax.sharding.Mesh(np.array([first, second]), ("a",)), jax.sharding.PartitionSpec("a"))
        jax.config.update("jax_enable_x64", True)
        for dtype in ("float32", "float64"):
            x = np.ones(1000, dtype)
            for weight in (None, x):
                for device, home in ((None, first), (rx.cpu(0), first), ("cpu:1", second)):
                    for place in (first, second, spread, None):
                        f = function(dtype, device, weight)
                        for arg in (jax.device_put(x, place) if place else list(x), x):
                            for _ in range(2):
                                y = f(arg)
                                assert y.devices() == {home}, (dtype, device, place)
                                assert (np.asarray(y) == 2).all()
        print("fine")
        """
    )
    assert run_python(code, devices=2) == "fine\n"


def test_an_interrupt_while_compiling_leaves_the_function_usable() -> None:
    code = BUILD + textwrap.dedent(
        """
        import os, signal, threading, time
        # A shell ignores it for what runs in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        x, interrupted = np.zeros(1000), 0
        f = function("float64", None, repeat=300)
        for delay in (0.02, 0.05, 0.1):
            timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT))
            try:
                timer.start()
                f(x)
                time.sleep(1)
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
        assert interrupted, "no interrupt arrived"
        assert (np.asarray(f(x)) == 0).all()
        print("fine")
        """
    )
    assert run_python(code) == "fine\n"

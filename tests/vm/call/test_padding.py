"""Buckets: what may be padded, what is refused, and that results are those of the true size."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import CallError
from relax2xla.script import from_source
from relax2xla.vm.pjrt import compiler

GOOD = {
    "element-wise": "R.add(R.exp(x), R.const(1.0, 'float32'))",
    "rows of a matrix product": "R.matmul(x, w)",
    "softmax along the other axis": "R.nn.softmax(x, axis=-1)",
    "a reduction along the other axis": "R.sum(x, axis=[1])",
    "a transposed result": "R.permute_dims(R.nn.relu(x), axes=[1, 0])",
    "every pair": "R.matmul(x, R.permute_dims(x, axes=[1, 0]))",
    "a reshape behind the axis": "R.reshape(x, R.shape([n, 2, 2]))",
    "a reshape before the axis": "R.reshape(R.permute_dims(x, axes=[1, 0]), R.shape([2, 2, n]))",
    "a lookup": "R.take(w, R.astype(R.sum(x, axis=[1]), 'int32'), axis=0)",
    "layer norm": "R.nn.layer_norm(x, g, g, axes=[-1])",
    "a tuple": "(x, R.argmax(x, axis=1))",
    "a division": "R.floor_divide(R.astype(x, 'int32'), R.astype(x, 'int32'))",
    "a new tensor": "R.multiply(x, R.ones(R.shape([n, 4]), 'float32'))",
    "parts": "R.split(x, 2, axis=1)",
    "joined": "R.concat((x, x), axis=1)",
}
BAD = {
    "R.sum(x, axis=[0])": "works along the padded axis",
    "R.mean(x)": "works along all axes",
    "R.nn.softmax(x, axis=0)": "works along the padded axis",
    "R.matmul(R.permute_dims(x, axes=[1, 0]), x)": "sums over the padded axis",
    "R.concat((x, x), axis=0)": "works along the padded axis",
    "R.reshape(x, R.shape([n * 4]))": "a dimension is|moves the padded axis",
    "R.reshape(x, R.shape([2, n, 2]))": "moves the padded axis",
    "R.flip(x, axis=0)": "works along the padded axis",
    "R.cumsum(x, axis=0)": "works along the padded axis",
    "R.sort(x, axis=0)": "works along the padded axis",
    "R.take(x, R.const([0, 1], 'int32'), axis=0)": "looks up in the padded axis",
    "R.shape_of(x)": "shape",
    "R.shape([n])": "a value that depends on n|a shape with n is a value",
    "R.add(R.sum(x), R.astype(R.sum(R.shape_to_tensor(R.shape([n]))), 'float32'))": "works along",
    "R.shape_to_tensor(R.shape([n]))": "not known to keep",
    "R.strided_slice(x, axes=[0], begin=[0], end=[1])": "not known to keep",
    "R.zeros(R.shape([n + 1]), 'float32')": "a dimension is",
}


def machine(body: str) -> rx.VirtualMachine:
    source = f"""
@R.function
def main(
    x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32"), g: R.Tensor((4,), "float32")
):
    n = T.int64()
    y = {body}
    return y
"""
    return rx.VirtualMachine(rx.build(from_source(source)))


def leaves(value: Any) -> list[Any]:
    return [a for v in value for a in leaves(v)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD)
def test_padding_is_not_seen(body: str, rng: np.random.Generator) -> None:
    exact, vm = machine(body), machine(body)
    function = vm["main"]
    vm.bucket("main", n=[8, 3])
    w, g = rng.standard_normal((4, 4), np.float32), np.ones(4, np.float32)
    for size in (1, 3, 5, 8, 9):
        x = rng.standard_normal((size, 4)).astype(np.float32) + 3
        for a, b in zip(leaves(function(x, w, g)), leaves(exact["main"](x, w, g)), strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
    programs = vm.programs()["main"]
    assert len(programs) == 3  # of 3 and 8, and of 9 which no bucket holds


@pytest.mark.parametrize("body", BAD)
def test_what_would_be_seen_is_refused(body: str, rng: np.random.Generator) -> None:
    vm = machine(body)
    with pytest.raises(CallError, match=f"cannot be padded along n: .*({BAD[body]})"):
        vm.bucket("main", n=[8])
    x = rng.standard_normal((2, 4), np.float32)
    vm["main"](x, np.ones((4, 4), np.float32), np.ones(4, np.float32))


def test_buckets_of_several_dimensions_and_what_they_are_part_of() -> None:
    source = """
@R.function
def main(x: R.Tensor(("n", "m"), "int64"), p: R.Tuple(R.Tensor(("m",), "int64"))):
    y = R.add(x, p[0])
    return (y, (R.negative(p[0]), x))
"""
    vm = rx.VirtualMachine(rx.build(from_source(source)))
    vm.bucket("main", n=(4,), m=(2, 16))
    seen: list[Any] = []
    x, p = np.arange(6).reshape(2, 3), np.arange(3)

    def check(result: Any) -> None:
        np.testing.assert_array_equal(result[0], x + p)
        np.testing.assert_array_equal(result[1][0], -p)
        np.testing.assert_array_equal(result[1][1], x)

    check(vm["main"](x, (p,)))
    vm.set_instrument(lambda f, s, before, value, *args: seen.append(s))
    check(vm["main"](x, (p,)))
    assert seen == ["main", "main"]
    vm.set_instrument(None)
    vm.save_function("main", "saved", x, (p,))
    check(vm["saved"]())
    vm.set_input("main", x, (p,))
    vm.invoke_stateful("main")
    check(vm.get_outputs("main"))
    assert len(vm.programs()["main"]) == 1
    empty = rx.VirtualMachine(vm.executable)
    empty.bucket("main", n=[4])
    assert empty["main"](np.zeros((0, 3), np.int64), (p,))[0].shape == (0, 3)
    with pytest.raises(CallError, match="no symbolic dimension 'k'; it has n, m"):
        vm.bucket("main", k=[3])
    with pytest.raises(ValueError, match="at least 1"):
        vm.bucket("main", n=[0])
    vm.bucket("main")
    vm.invoke_stateful("main")
    check(vm.get_outputs("main"))


def test_a_tuple_as_one_value_is_looked_into() -> None:
    for axis, refused in ((0, True), (1, False)):
        source = f"""
@R.function
def main(p: R.Tuple(R.Tensor(("n", 2), "float32"), R.Tensor(("n", 2), "float32"))):
    return R.concat(p, axis={axis})
"""
        vm = rx.VirtualMachine(rx.build(from_source(source)))
        if refused:
            with pytest.raises(CallError, match="works along the padded axis"):
                vm.bucket("main", n=[4])
        else:
            vm.bucket("main", n=[4])
            value = np.ones((3, 2), np.float32)
            assert vm["main"]((value, value)).shape == (3, 4)


def test_bytecode_is_not_padded() -> None:
    source = """
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    _ = R.print(x, format="")
    return x
"""
    vm = rx.VirtualMachine(rx.build(from_source(source)))
    with pytest.raises(CallError, match="what runs on the host would see the padding"):
        vm.bucket("main", n=[3])
    with pytest.raises(CallError, match="several XLA programs"):
        vm.warm("main", n=3)


def test_programs_are_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    vm = machine(GOOD["every pair"])
    vm.warm("main", (2, 4), (4, 4), (4,))
    vm.warm("main", n=[3, 5])
    vm.warm("main", n=7)
    assert len(vm.programs()["main"]) == 4
    made: list[int] = []
    loaded = compiler.Loaded

    def count(*args: Any, **kwargs: Any) -> Any:
        made.append(1)
        return loaded(*args, **kwargs)

    monkeypatch.setattr(compiler, "Loaded", count)
    w, g = np.ones((4, 4), np.float32), np.ones(4, np.float32)
    for size in (2, 3, 5, 7):
        np.testing.assert_array_equal(vm["main"](np.ones((size, 4), np.float32), w, g), 4.0)
    assert not made
    for wrong in (((2, 4),), ((2, 5), (4, 4), (4,))):
        with pytest.raises(CallError):
            vm.warm("main", *wrong)
    with pytest.raises(CallError, match="no symbolic dimension"):
        vm.warm("main", k=3)
    with pytest.raises(CallError, match="shapes or sizes"):
        vm.warm("main", (2, 4), n=3)
    with pytest.raises(CallError, match=r'not static; give .*vm.warm\("main", n=8\)'):
        vm.warm("main")
    for use in (vm.warm, vm.bucket):
        with pytest.raises(TypeError, match=r"give n one size or several, as n=\[8, 64\]"):
            use("main", n="8")
    vm.bucket("main", n=16)
    np.testing.assert_array_equal(vm["main"](np.ones((9, 4), np.float32), w, g), 4.0)
    np.testing.assert_array_equal(vm["main"](np.ones((10, 4), np.float32), w, g), 4.0)
    assert len(made) == 1


def test_compiling_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    vm = machine(GOOD["every pair"])
    w, g = np.ones((4, 4), np.float32), np.ones(4, np.float32)
    vm["main"](np.ones((1, 4), np.float32), w, g)
    begun, go_on = threading.Event(), threading.Event()
    loaded = compiler.Loaded

    def slow(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return loaded(*args, **kwargs)

    monkeypatch.setattr(compiler, "Loaded", slow)
    done = vm.warm("main", n=[2, 3], background=True)
    assert begun.wait(30)
    # What is compiled already runs on meanwhile.
    assert vm["main"](np.ones((1, 4), np.float32), w, g).shape == (1, 1)
    assert not done.done()
    go_on.set()
    done.result(60)
    assert len(vm.programs()["main"]) == 3
    monkeypatch.setattr(compiler, "Loaded", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        vm.warm("main", n=9, background=True).result(60)
    monkeypatch.undo()
    assert vm["main"](np.ones((9, 4), np.float32), w, g).shape == (9, 9)

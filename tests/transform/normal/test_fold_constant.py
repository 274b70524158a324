"""FoldConstant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla import testing
from relax2xla.errors import UnsupportedError
from relax2xla.ir import Constant, Function, IRModule
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.transform import FoldConstant

from .compare import CHECKED, module, stays

W = np.random.default_rng(0).normal(size=(64, 32)).astype("float32")
RUN = FoldConstant()


def calls(func: Function) -> list[Any]:
    return [b.value for b in bindings_deep(func)]


def bound(text: str, **weights: np.ndarray) -> IRModule:
    mod = module(text)
    return IRModule({"main": mod["main"].bind_params(weights)})


def test_values() -> None:
    """Large and small constants, through tuples and several steps; what needs x stays."""
    mod = bound(
        """
        @R.function
        def main(x: R.Tensor((32,), "float32"), w: R.Tensor((64, 32), "float32")):
            with R.dataflow():
                a = R.permute_dims(w)
                b = R.multiply(a, R.const(2.0, "float32"))
                c = R.concat((b, b), axis=1)
                d = R.matmul(x, c)
                s = R.sum(w)
                R.output(d, s)
            return (d, s)
        """,
        w=W,
    )
    with CHECKED:
        func = RUN(mod)["main"]
    (only,) = calls(func)
    weight, total = only.args[1], func.body.body.fields[1]
    np.testing.assert_array_equal(weight.data, np.concatenate([2 * W.T, 2 * W.T], 1))
    np.testing.assert_allclose(total.data, W.sum(), rtol=1e-5)
    again = RUN(IRModule({"main": func}))
    assert again["main"] is func


def test_shapes_that_are_computed() -> None:
    mod = bound(
        """
        @R.function
        def main(x: R.Tensor((4, 6), "float32"), two: R.Tensor((2,), "int64")):
            with R.dataflow():
                s = R.shape_to_tensor(R.shape([4, 6]))
                h = R.floor_divide(s, two)
                t = R.multiply(h, R.const([4, 1], "int64"))
                shape: R.Shape(ndim=2) = R.tensor_to_shape(t)
                y: R.Tensor(ndim=2, dtype="float32") = R.reshape(x, shape)
                R.output(y)
            return y
        """,
        two=np.array([2, 2]),
    )
    with CHECKED:
        func = RUN(mod)["main"]
    (only,) = calls(func)
    assert tuple(only.args[1].values) == (8, 3)
    assert func.ret_struct_info.dims == (8, 3)


def test_what_stays() -> None:
    text = """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            out = R.exp(R.const([1.0, 2.0], "float32"))
            with R.dataflow():
                zeros = R.zeros(R.shape([4]), "float32")
                blown = R.broadcast_to(R.const(1.5, "float32"), R.shape([1024, 1024]))
                y = R.add(x, zeros)
                R.output(y, blown)
            return (out, y, blown)
        """
    stays(RUN, text)


def test_what_cannot_be_computed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One failure takes no other with it."""
    evaluate = testing.evaluate

    def refuse(func: Any, inputs: Any) -> Any:
        if "R.sin" in func.script():
            raise UnsupportedError("no sines here")
        return evaluate(func, inputs)

    monkeypatch.setattr(testing, "evaluate", refuse)
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(R.const([1.0, 2.0], "float32"))
                b = R.sin(R.const([1.0, 2.0], "float32"))
                c = R.cos(R.const([1.0, 2.0], "float32"))
                R.output(a, b, c)
            return (a, b, c)
        """
    )
    func = RUN(mod)["main"]
    kinds = [isinstance(f, Constant) for f in func.body.body.fields]
    assert kinds == [True, False, True]


def test_kernels() -> None:
    """Calls of loop-level functions, two in a row and outside of dataflow; not what reads x."""
    kernel = """
        @T.prim_func(private=True)
        def more(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("more"):
                    v = T.axis.spatial(4, i)
                    b[v] = a[v] + T.float32(1)
        """
    mod = module(
        kernel
        + """
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            cls = M
            a = R.call_tir(cls.more, (w,), out_sinfo=R.Tensor((4,), "float32"))
            b = R.call_tir(cls.more, (a,), out_sinfo=R.Tensor((4,), "float32"))
            c = R.call_tir(cls.more, (x,), out_sinfo=R.Tensor((4,), "float32"))
            return (b, c)
        """
    )
    weights = np.array([1.0, -2.0, 0.5, 0.0], "float32")
    made = RUN(
        mod.replace(
            {**mod.functions, mod.get_global_var("main"): mod["main"].bind_params({"w": weights})}
        )
    )["main"]
    folded, left = made.body.body.fields
    assert isinstance(folded, Constant)
    np.testing.assert_array_equal(folded.data, weights + 2)
    assert [b.var for b in bindings_deep(made)] == [left]

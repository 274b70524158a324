"""CallTIRRewrite, ComputePrimValue, and CallsAsValues, which reads what they make as values."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla
from relax2xla import IRModule, VirtualMachine, build
from relax2xla.errors import LegalizeError
from relax2xla.ir import Call, VarBinding, assert_structural_equal
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.script import from_source
from relax2xla.transform import CallsAsValues, CallTIRRewrite, ComputePrimValue

KERNELS = """
from tvm.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def add(
        A: T.Buffer((2, 3), "float32"), B: T.Buffer((2, 3), "float32"),
        C: T.Buffer((2, 3), "float32"),
    ):
        for i, j in T.grid(2, 3):
            with T.block("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + B[vi, vj]

    @T.prim_func(private=True)
    def into(
        A: T.Buffer((2, 3), "float32"), B: T.Buffer((2, 3), "float32"),
        C: T.Buffer((2, 3), "float32"),
    ):
        for i, j in T.grid(2, 3):
            with T.block("into"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + B[vi, vj]
                C[vi, vj] = A[vi, vj] * T.float32(2)

    @T.prim_func(private=True)
    def fill(a: T.handle, n: T.int64):
        A = T.match_buffer(a, (2, 3), "float32")
        for i, j in T.grid(2, 3):
            with T.block("fill"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = T.cast(n, "float32")

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        cls = Module
{body}
"""


def written(body: str) -> IRModule:
    """A module of the kernels and ``main`` with ``body``."""
    indented = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return from_source(KERNELS.format(body=indented))


def operators(mod: IRModule) -> list[str]:
    """The operators and functions that ``main`` calls, in order."""
    calls = [b.value for b in bindings_deep(mod["main"]) if isinstance(b.value, Call)]
    return [str(getattr(c.op, "name", None) or getattr(c.op, "name_hint", "")) for c in calls]


def test_results_are_allocated_and_written_and_read_as_values_again() -> None:
    mod = written(
        """
info = R.Tensor((2, 3), "float32")
with R.dataflow():
    a = R.call_tir(cls.add, (x, y), info)
    b = R.call_tir_inplace(cls.into, (x, a), [1, -1], [info, info])
    c = R.call_tir(cls.fill, (), info, tir_vars=R.shape([7]))
    d = R.call_dps_packed("test.call_tir_rewrite.negate", (b[0],), info)
    R.output(b, c, d)
return (b, c, d)
"""
    )
    new = CallTIRRewrite()(mod)
    alloc = "relax.builtin.alloc_tensor"
    assert operators(new) == [
        *(alloc, "add", alloc, "into", alloc, "relax.vm.call_tir_dyn", alloc, "")
    ]
    assert new["main"].attrs["relax.force_pure"]
    again = [o for o in operators(CallsAsValues()(new)) if o != alloc]
    assert again == [
        *("relax.call_tir", "relax.call_tir_inplace", "relax.call_tir", "relax.call_dps_packed")
    ]

    def negate(x: object, out: np.ndarray) -> None:
        np.copyto(out, -np.asarray(x))

    relax2xla.register_func("test.call_tir_rewrite.negate", negate, override=True)
    one, two = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
    for m in (mod, new):
        (first, second), seven, negative = VirtualMachine(build(m))["main"](one, two)
        found = [float(np.asarray(v)[1, 2]) for v in (first, second, seven, negative)]
        assert found == [4, 2, 7, -4]


def test_what_is_read_later_is_what_was_written_last() -> None:
    mod = written(
        """
R.func_attr({"relax.force_pure": True})
a = R.builtin.alloc_tensor(R.shape([2, 3]), "float32", R.prim_value(0))
cls.add(x, y, a)
b = a
cls.add(x, x, b)
cls.fill(y, R.prim_value(5))
return (a, b, y)
"""
    )
    one, two = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
    found = VirtualMachine(build(mod))["main"](one, two)
    assert [float(np.asarray(v)[0, 0]) for v in found] == [2, 2, 5]


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("t = (x, y)\ncls.fill(y, R.prim_value(5))\nreturn t", "`y`, which is part of another"),
        (
            "if R.prim_value(True):\n    cls.fill(y, R.prim_value(5))\n    z = x\n"
            "else:\n    z = x\nreturn y",
            "`y` in a branch",
        ),
    ],
)
def test_what_cannot_be_a_value_is_refused(body: str, wrong: str) -> None:
    mod = written('R.func_attr({"relax.force_pure": True})\n' + body)
    with pytest.raises(LegalizeError, match=wrong):
        CallsAsValues()(mod)


def test_functions_without_such_calls_stay() -> None:
    mod = written("z = R.add(x, y)\nreturn z")
    assert CallTIRRewrite()(mod) is mod
    assert CallsAsValues()(mod) is mod


NUMBERS = """
from tvm.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), m: R.Prim(value="m")):
        n = T.int64()
        m = T.int64()
        if R.prim_value(n % 4 == 0):
            y = R.add(x, x)
        else:
            y = x
        k = R.prim_value(n * m)
        five = R.prim_value(5)
        return (y, k, five)
"""


def test_numbers_are_computed_by_functions() -> None:
    mod = from_source(NUMBERS)
    new = ComputePrimValue()(mod)
    made = [f for g, f in new.items() if g.name_hint.startswith("compute_symbolic_expr")]
    assert [(f.ret_type, len(f.params), f.attrs["tir.is_host_func"]) for f in made] == [
        *(("bool", 1, True), ("int64", 2, True))
    ]
    bound = [b for b in bindings_deep(new["main"]) if isinstance(b, VarBinding)]
    calls = [b for b in bound if isinstance(b.value, Call) and b.value.op in new.functions]
    assert len(calls) == 2
    assert ComputePrimValue()(new) is new
    for m in (mod, new):
        run = VirtualMachine(build(m))["main"]
        for size in (4, 5):
            y, k, five = run(np.ones(size, "float32"), 3)
            assert (float(np.asarray(y)[0]), int(k), int(five)) == (2 - size % 4, 3 * size, 5)
    assert_structural_equal(CallsAsValues()(mod), mod)

"""PropagateSharding: what annotations say of other tensors, through operators and kernels."""

from __future__ import annotations

import pytest

from relax2xla import IRModule, tir
from relax2xla.analysis import check_well_formed
from relax2xla.errors import TransformError
from relax2xla.ir import assert_structural_equal
from relax2xla.script import from_source
from relax2xla.transform import PropagateSharding
from relax2xla.transform.distributed.kernels import Groups

KERNELS = """
    @T.prim_func(private=True)
    def double(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32")):
        for i, j in T.grid(8, 6):
            with T.block("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
"""


def module(text: str, params: str = "") -> IRModule:
    made = from_source(f"""
@I.ir_module
class Module:
    I.module_global_infos({{"mesh": [
        R.device_mesh((2,), I.Range(0, 2)), R.device_mesh((4,), I.Range(2, 6)),
        R.device_mesh((2, 2), I.Range(0, 4))]}})
    {KERNELS.strip()}
    @R.function
    def main({params}):
        cls = Module
        {text.strip()}
""")
    assert isinstance(made, IRModule)
    return made


def D(shape: str, placement: str, dtype: str = "float32", mesh: int = 0) -> str:
    return f'R.DTensor({shape}, "{dtype}", "mesh[{mesh}]", "{placement}")'


def test_through_operators_and_kernels() -> None:
    before = module(
        """
        a = R.matmul(x, w)
        b = R.astype(R.add(a, bias), "float16")
        with R.dataflow():
            c = R.permute_dims(b)
            d = R.dist.annotate_sharding(c, "mesh[0]", "S[0]")
            e = R.nn.softmax(d, axis=1)
            f = R.astype(e, "float32")
            g = R.call_tir(cls.double, (f,), out_sinfo=R.Tensor((8, 6), "float32"))
            s = R.sum(g, axis=[0])
            R.output(g, s)
        t = (g, s)
        return t[0], s
        """,
        'x: R.Tensor((6, 5), "float32"), w: R.Tensor((5, 8), "float32"), '
        'bias: R.Tensor((8,), "float32")',
    )
    after = PropagateSharding()(before)
    check_well_formed(after)
    expected = module(
        f"""
        a: {D("(6, 8)", "S[1]")} = R.matmul(x, w)
        b0: {D("(6, 8)", "S[1]")} = R.add(a, bias)
        b: {D("(6, 8)", "S[1]", "float16")} = R.astype(b0, "float16")
        with R.dataflow():
            c: {D("(8, 6)", "S[0]", "float16")} = R.permute_dims(b)
            e: {D("(8, 6)", "S[0]", "float16")} = R.nn.softmax(c, axis=1)
            f: {D("(8, 6)", "S[0]")} = R.astype(e, "float32")
            g = R.dist.call_tir(cls.double, (f,), out_sinfo={D("(8, 6)", "S[0]")})
            s: {D("(6,)", "R")} = R.sum(g, axis=[0])
            R.output(g, s)
        t = (g, s)
        u = t[0]
        return u, s
        """,
        f"x: {D('(6, 5)', 'R')}, w: {D('(5, 8)', 'S[1]')}, bias: {D('(8,)', 'S[0]')}",
    )
    assert_structural_equal(after, expected)
    assert PropagateSharding()(after) is after


def test_a_result_is_moved_to_where_it_belongs() -> None:
    text = """
        a = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")
        b = R.exp(a)
        c = R.dist.annotate_sharding(b, "mesh[0]", "S[1]")
        return c
    """
    after = PropagateSharding()(module(text, 'x: R.Tensor((4, 6), "float32")'))
    expected = module(
        f"""
        b: {D("(4, 6)", "S[0]")} = R.exp(x)
        c: {D("(4, 6)", "S[1]")} = R.dist.redistribute(b, "mesh[0]", "S[1]")
        return c
        """,
        f"x: {D('(4, 6)', 'S[0]')}",
    )
    assert_structural_equal(after, expected)


def test_short_axes_stay_whole_and_what_is_beyond_them() -> None:
    text = """
        a = R.dist.annotate_sharding(x, "mesh[1]", "S[1]")
        b = R.sum(a, axis=[0])
        return b
    """
    after = PropagateSharding()(module(text, 'x: R.Tensor((4, 2), "float32")'))
    told = f"x: {D('(4, 2)', 'R', mesh=1)}"
    assert_structural_equal(after, module("b = R.sum(x, axis=[0])\n        return b", told))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            """
        y = R.add(x, w)
        a = R.dist.annotate_sharding(R.exp(y), "mesh[2]", "S[0], R")
        b = R.dist.annotate_sharding(R.tanh(y), "mesh[2]", "R, S[0]")
        return (a, b)
            """,
            ("axis 0 of", "a (axis 0", "b (axis 1"),
        ),
        (
            """
        y = R.exp(x)
        a = R.dist.annotate_sharding(y, "mesh[0]", "S[0]")
        b = R.dist.annotate_sharding(y, "mesh[1]", "S[0]")
        return (a, b)
            """,
            ("axis 0 of y", "a (axis 0 of the mesh of (2,))", "b (axis 0 of the mesh of (4,))"),
        ),
        (
            """
        a = R.dist.annotate_sharding(R.matmul(x, R.permute_dims(x)), "mesh[0]", "S[0]")
        b = R.dist.annotate_sharding(R.matmul(R.permute_dims(x), w), "mesh[0]", "S[0]")
        return (a, b)
            """,
            ("axis 0 of the mesh would cut its axis 0 and its axis 1", "annotate"),
        ),
        (
            """
        c = R.add(R.const([1.0, 2.0, 3.0, 4.0], "float32"), v)
        return R.dist.annotate_sharding(c, "mesh[0]", "S[0]")
            """,
            ("a constant", "parameter"),
        ),
        (
            """
        c = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")
        return R.take(c, R.const([0], "int32"), axis=0)
            """,
            ("take takes no distributed tensors",),
        ),
    ],
)
def test_contradictions(text: str, names: tuple[str, ...]) -> None:
    params = ", ".join(f'{n}: R.Tensor((4, 4), "float32")' for n in "xw")
    mod = module(text, params + ', v: R.Tensor((4,), "float32")')
    with pytest.raises(TransformError) as error:
        PropagateSharding()(mod)
    assert all(name in str(error.value) for name in names), error.value


def test_functions_that_others_call() -> None:
    text = 'return R.dist.annotate_sharding(x, "mesh[0]", "S[0]")'
    called = module(text, 'x: R.Tensor((4, 6), "float32")').script()
    head = "    @R.function\n    def main("
    caller = """    @R.function
    def outer(x: R.Tensor((4, 6), "float32")):
        cls = Module
        return cls.main(x)

"""
    mod = from_source(called.replace(head, caller + head))
    assert isinstance(mod, IRModule)
    assert "outer" in mod
    with pytest.raises(TransformError, match="outer calls it"):
        PropagateSharding()(mod)


# Body of a kernel of A (8, 6), B (48,) and the result C (8, 6); which axes go together.
LOOPS: dict[str, tuple[str, list[list[tuple[int, int]]]]] = {
    "elements": ("C[i, j] = A[i, j]", [[(0, 0), (2, 0)], [(0, 1), (2, 1)]]),
    "the place itself": ("C[i, j] = A[i, j] + T.Cast('float32', i)", [[(0, 1), (2, 1)]]),
    "neighbours": ("C[i, j] = A[T.max(i - 1, 0), j]", [[(0, 1), (2, 1)]]),
    "in a row": ("C[i, j] = B[i * 6 + j]", [[(1, 0), (2, 0)]]),
    "the condition": ("if i > 2:\n                C[i, j] = A[i, j]", [[(0, 1), (2, 1)]]),
}


@pytest.mark.parametrize("name", LOOPS)
def test_axes_of_kernels(name: str) -> None:
    body, want = LOOPS[name]
    func = from_source(f"""
@T.prim_func
def kernel(A: T.Buffer((8, 6), "float32"), B: T.Buffer((48,), "float32"),
           C: T.Buffer((8, 6), "float32")):
    for i, j in T.grid(8, 6):
            {body}
""")
    assert isinstance(func, tir.PrimFunc)
    found = [group for group in Groups(func).axes() if len(group) > 1]
    assert sorted(map(sorted, found)) == want

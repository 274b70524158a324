"""LowerGlobalViewToLocalView: loop-level functions of parts, run by numpy on each worker's part."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import IRModule, tir
from relax2xla.analysis import check_well_formed
from relax2xla.errors import TransformError
from relax2xla.ir import DeviceMesh, DTensorStructInfo, TensorStructInfo, assert_structural_equal
from relax2xla.script import from_source
from relax2xla.tir.kernel.interpret import interpret
from relax2xla.transform import LowerGlobalViewToLocalView
from relax2xla.transform.distributed.local_view import local_kernel

MESH = DeviceMesh((2,), range(2))


def kernel(params: str, body: str) -> tir.PrimFunc:
    made = from_source(f"""
@T.prim_func(private=True)
def kernel({params}):
    {body.strip()}
""")
    assert isinstance(made, tir.PrimFunc)
    return made


def buffers(*shapes: tuple[int, ...]) -> str:
    return ", ".join(f'{n}: T.Buffer({s}, "float32")' for n, s in zip("ABC", shapes, strict=False))


SOFTMAX = kernel(
    buffers((4, 6), (4, 6)),
    """
    top = T.alloc_buffer((4,))
    for i, k in T.grid(4, 6):
        with T.block("top"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                top[vi] = T.float32(-1e30)
            top[vi] = T.max(top[vi], A[vi, vk])
    for i, j in T.grid(4, 6):
        with T.block("less"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj], top[0:4])
            B[vi, vj] = A[vi, vj] - top[vi]
""",
)
FOLD = """
    for i, j, k in T.grid(4, 6, 8):
        with T.block("fold"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32({start})
            C[vi, vj] = {fold}
"""
PRODUCT = FOLD.format(start=0, fold="C[vi, vj] + A[vi, vk] * B[vk, vj]")
FOLDED = buffers((4, 8), (8, 6), (4, 6))
SPLIT = kernel(
    buffers((4, 8), (4, 2, 4)),
    """
    for i, j, k in T.grid(4, 2, 4):
        with T.block("split"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = A[((vi * 2 + vj) * 4 + vk) // 8, (vj * 4 + vk) % 8]
""",
)
JOIN = kernel(
    buffers((4, 2, 4), (4, 8)),
    """
    for i, j in T.grid(4, 8):
        with T.block("join"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj // 4, vj % 4]
""",
)
PLAIN = kernel(
    buffers((4, 6), (4, 6)), "for i, j in T.grid(4, 6):\n        B[i, j] = A[i, j] * A[i, j]"
)

# Name: the function, how its tensors are cut, and how what workers have is joined.
CASES = {
    "rows of a softmax": (SOFTMAX, "0 0", None),
    "rows of a product": (kernel(FOLDED, PRODUCT), "0 - 0", None),
    "columns of a product": (kernel(FOLDED, PRODUCT), "- 1 1", None),
    "a product's sum": (kernel(FOLDED, PRODUCT), "1 0 -", "sum"),
    "largest": (
        kernel(FOLDED, FOLD.format(start=-9, fold="T.max(A[vi, vk] - B[vk, vj], C[vi, vj])")),
        "1 0 -",
        "max",
    ),
    "multiplied": (
        kernel(FOLDED, FOLD.format(start=1, fold="C[vi, vj] * (A[vi, vk] + B[vk, vj])")),
        "1 0 -",
        "prod",
    ),
    "split in two": (SPLIT, "1 1", None),
    "joined from two": (JOIN, "1 1", None),
    "no blocks": (PLAIN, "1 1", None),
    "nothing cut": (PLAIN, "- -", None),
}
JOINS = {"sum": np.sum, "prod": np.prod, "max": np.max}


def spread(func: tir.PrimFunc, cuts: str) -> list[DTensorStructInfo]:
    shapes = [
        [d if isinstance(d, int) else tir.evaluate(d, {}) for d in func.buffer_map[p].shape]
        for p in func.params
    ]
    return [
        DTensorStructInfo(TensorStructInfo(s), MESH, "R" if c == "-" else f"S[{c}]")
        for s, c in zip(shapes, cuts.split(), strict=True)
    ]


def part(x: np.ndarray, cut: str, worker: int) -> np.ndarray:
    return x.copy() if cut == "-" else np.split(x, 2, int(cut))[worker].copy()


@pytest.mark.parametrize("name", CASES)
def test_parts_are_parts_of_the_whole(name: str) -> None:
    func, cuts, joined = CASES[name]
    local, how = local_kernel(func, spread(func, cuts), len(func.params) - 1)
    assert how == joined
    rng = np.random.default_rng(0)
    whole = [
        rng.standard_normal(i.tensor_sinfo.dims).astype("float32")  # pyright: ignore
        for i in spread(func, cuts)
    ]
    parts = [[part(x, c, w) for x, c in zip(whole, cuts.split(), strict=True)] for w in range(2)]
    interpret(func, *whole)
    for own in parts:
        interpret(local, *own)
    made = [own[-1] for own in parts]
    if joined is not None:
        made = [JOINS[joined](made, axis=0)] * 2
    for worker, got in enumerate(made):
        want = part(whole[-1], cuts.split()[-1], worker)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


REFUSED = {
    "not begun with zero": (kernel(FOLDED, PRODUCT.replace("float32(0)", "float32(3)")), "1 0 -"),
    "two results in one": (
        kernel(FOLDED, FOLD.format(start=0, fold="A[vi, vk] * B[vk, vj]")),
        "1 0 -",
    ),
    "used afterwards": (SOFTMAX, "1 1"),
    "the place itself": (
        kernel(
            buffers((4, 6), (4, 6)),
            'for i, j in T.grid(4, 6):\n        B[i, j] = A[i, j] + T.Cast("float32", i)',
        ),
        "0 0",
    ),
    "one cut, one not": (PLAIN, "0 -"),
    "no equal parts": (
        kernel(buffers((5,), (5,)), "for i in range(5):\n        B[i] = A[i]"),
        "0 0",
    ),
    "within what is joined": (JOIN, "2 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_parts(name: str) -> None:
    func, cuts = REFUSED[name]
    with pytest.raises(TransformError, match=r"cut|apart|equal parts"):
        local_kernel(func, spread(func, cuts), len(func.params) - 1)


def test_programs() -> None:
    text = """
@I.ir_module
class Module:
    I.module_global_infos({{"mesh": [R.device_mesh((2,), I.Range(0, 2))]}})
    @T.prim_func(private=True)
    def {name}(A: T.Buffer((4, {n}), "float32"), B: T.Buffer(({n}, 6), "float32"),
             C: T.Buffer((4, 6), "float32")):
        for i, j, k in T.grid(4, 6, {n}):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(A[vi, vk], B[vk, vj])
                T.writes(C[vi, vj])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    @R.function
    def main(
        x: R.DTensor((4, 8), "float32", "mesh[0]", "S[1]"),
        w: R.DTensor((8, 6), "float32", "mesh[0]", "S[0]"),
    ):
        cls = Module
        with R.dataflow():
            {call}
            R.output(z)
        return z
"""
    info = 'R.DTensor((4, 6), "float32", "mesh[0]", "R")'
    before = from_source(
        text.format(
            name="product", n=8, call=f"z = R.dist.call_tir(cls.product, (x, w), out_sinfo={info})"
        )
    )
    local = (
        f"y = R.dist.call_tir_local_view(cls.product1, (x, w), out_sinfo={info})\n"
        '            z = R.ccl.allreduce(y, op_type="sum", in_group=False)'
    )
    expected = from_source(text.format(name="product1", n=4, call=local))
    assert isinstance(before, IRModule)
    assert isinstance(expected, IRModule)
    after = LowerGlobalViewToLocalView()(before)
    check_well_formed(after)
    assert "product" in after
    for name in ("main", "product1"):
        assert_structural_equal(after[name], expected[name])
    assert LowerGlobalViewToLocalView()(after) is after

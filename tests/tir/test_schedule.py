"""Schedules are checked and not taken: XLA decides how loops run."""

from __future__ import annotations

import pytest

from relax2xla import tir
from relax2xla.errors import UnsupportedError
from relax2xla.script import tir as T


@T.prim_func
def product(
    A: T.Buffer((16, 8), "float32"), B: T.Buffer((8, 4), "float32"), C: T.Buffer((16, 4), "float32")
):
    for i, j, k in T.grid(16, 4, 8):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * B[vk, vj]
    for i, j in T.grid(16, 4):
        with T.block("twice"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = C[vi, vj] * T.float32(2)


def test_steps_change_nothing_and_keep_count_of_loops() -> None:
    sch = tir.Schedule(product)
    block = sch.get_block("product", "main")
    i, j, k = sch.get_loops(block)
    io, ii, it = sch.split(i, factors=[2, None, 4])
    sch.reorder(io, j, ii, it)
    assert [x.name for x in sch.get_loops(block)] == ["i_0", "j", "i_1", "i_2", "k"]
    fused = sch.fuse(j, ii)
    assert sch.get_loops(block) == [io, fused, it, k]
    sch.bind(fused, "threadIdx.x")
    sch.vectorize(it)
    sch.annotate(it, ann_key="pragma_unroll_explicit", ann_val=1)
    init = sch.decompose_reduction(block, k)
    assert len(sch.get_loops(init)) == 4
    twice = sch.get_block("twice")
    sch.reverse_compute_at(twice, fused, preserve_unit_loops=True)
    loops = sch.get_loops(twice)
    assert loops[:2] == [io, fused] and len(loops) == 4  # noqa: PT018
    assert sch.mod["main"] is product


def test_a_block_is_found_where_it_stands() -> None:
    sch = tir.Schedule(product)
    block = sch.get_block("product")
    assert sch.get(block).name_hint == "product"
    assert sch.get_sref(block).stmt is sch.get(block)
    assert [x.name for x in sch.get_loops("product")] == [x.name for x in sch.get_loops(block)]
    fused = sch.fuse(*sch.get_loops("product"))
    assert sch.get_loops("product") == sch.get_loops(block) == [fused]
    made = sch.cache_read(block, 0, "shared")
    with pytest.raises(ValueError, match="'made' is of a step, which changes no kernel"):
        sch.get_sref(made)


def test_what_is_not_there_and_what_would_change_the_kernel() -> None:
    sch = tir.Schedule({"f": product})
    with pytest.raises(ValueError, match="no block 'sum'; there are root, product, twice"):
        sch.get_block("sum")
    with pytest.raises(ValueError, match="there are none"):
        sch.get_block("product", "g")
    with pytest.raises(UnsupportedError, match=r"Schedule.tensorize .* is XLA's decision"):
        sch.tensorize(sch.get_block("product"), "mma")

"""Schedules are checked, kept and not taken. Loops, names and traces are those of TVM 0.25."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relax2xla import tir
from relax2xla.errors import FileFormatError, TVMError, UnsupportedError
from relax2xla.script import ir as I
from relax2xla.script import tir as T
from relax2xla.tir.schedule import ScheduleError, Trace


@T.prim_func
def product(
    A: T.Buffer((16, 8), "float32"), B: T.Buffer((8, 4), "float32"), C: T.Buffer((16, 4), "float32")
):
    P = T.alloc_buffer((16, 4))
    for i, j, k in T.grid(16, 4, 8):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                P[vi, vj] = T.float32(0)
            P[vi, vj] += A[vi, vk] * B[vk, vj]
    for i, j in T.grid(16, 4):
        with T.block("twice"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = P[vi, vj] * T.float32(2)


def loops(sch: tir.Schedule, block: Any) -> list[tuple[str, Any]]:
    return [(x.name, x.loop.extent) for x in sch.get_loops(block)]


def tiled() -> tuple[tir.Schedule, Any]:
    sch = tir.Schedule(product, debug_mask="all")
    block = sch.get_block("product")
    i, j, k = sch.get_loops(block)
    io, ii, it = sch.split(i, factors=[2, None, 4])
    sch.reorder(io, j, ii, it)
    sch.fuse(j, ii)
    tiles = sch.sample_perfect_tile(k, n=2, max_innermost_factor=4, decision=[2, 4])
    sch.split(k, factors=tiles)
    drawn = sch.sample_categorical([0, 16, 64], [0.25, 0.25, 0.5], decision=1)
    sch.annotate(block, "unroll", drawn)
    assert sch.get(drawn) == 16
    sch.vectorize(it)
    return sch, block


def test_loops_of_steps_have_tvms_names_and_sizes() -> None:
    sch, block = tiled()
    outer = [("i_0", 2), ("j_i_1_fused", 8), ("i_2", 4)]
    assert loops(sch, block) == [*outer, ("k_0", 2), ("k_1", 4)]
    assert sch.get(sch.get_loops(block)[1]).extent == 8
    init = sch.decompose_reduction(block, sch.get_loops(block)[3])
    assert (init.name, loops(sch, init)) == ("product_init", outer)
    assert block.name == "product_update"
    (twice,) = sch.get_consumers(block)
    assert [b.name for b in sch.get_producers(twice)] == ["product_init", "product_update"]
    sch.reverse_compute_at(twice, sch.get_loops(block)[0], preserve_unit_loops=True)
    assert [x.name for x in sch.get_loops(twice)] == ["i_0", "ax0", "ax1"]
    root = sch.get_block("root")
    assert len(sch.get_child_blocks(root)) == 3
    assert sch.get_output_blocks(root) == [twice]
    assert sch.mod["main"] is product


def test_blocks_of_steps_that_move_keep_loops_of_their_own() -> None:
    sch = tir.Schedule(product)
    block = sch.get_block("product")
    k = sch.get_loops(block)[2]
    outer, inner = sch.split(k, factors=[None, 4])
    read = sch.cache_read(block, 0, "shared")
    sch.compute_at(read, outer)
    assert [x.name for x in sch.get_loops(read)] == ["i", "j", "k_0", "ax0", "ax1"]
    sch.vectorize(sch.fuse(*sch.get_loops(read)[-2:]))
    init = sch.decompose_reduction(block, outer)
    sch.compute_at(init, sch.get_loops(block)[0])
    assert [x.name for x in sch.get_loops(init)] == ["i", "ax0", "ax1"]
    sch.unroll(inner)
    sch.annotate(outer, "pragma_auto_unroll_max_step", 16)


def test_blocks_of_steps() -> None:
    sch = tir.Schedule(product)
    block = sch.get_block("product")
    read = sch.cache_read(block, 0, "shared")
    assert (read.name, loops(sch, read)) == ("A_shared", [("ax0", 16), ("ax1", 8)])
    write = sch.cache_write(block, "P", "local")
    assert (write.name, loops(sch, write)) == ("P_local", [("ax0", 16), ("ax1", 4)])
    assert sch.get_consumers(block) == [write]
    assert sch.get_producers(block) == [read]
    assert [b.name for b in sch.get_consumers(write)] == ["twice"]
    i, j, k = sch.get_loops(block)
    factored = sch.rfactor(k, 0)
    three = [("i", 16), ("j", 4), ("k", 8)]
    assert (factored.name, loops(sch, factored), loops(sch, block)) == ("product_rf", three, three)
    sch.add_unit_loop(block)
    assert loops(sch, block) == [*three, ("u", 1)]
    sch.add_unit_loop(i)
    assert loops(sch, factored) == three
    assert len(sch.get_loops(sch.reindex(factored, ("read", 0)))) == 2
    outer = sch.blockize(j)
    assert outer.name == "product_o"
    assert [x.name for x in sch.get_loops(outer)] == ["u", "i"]
    assert [x.name for x in sch.get_loops(block)] == ["j", "k", "u"]
    sch.compute_inline("twice")
    with pytest.raises(ScheduleError, match="no block 'twice'"):
        sch.get_block("twice")
    with pytest.raises(ValueError, match="'A_shared' is of a step, which changes no kernel"):
        sch.get_sref(read)


def test_a_block_that_goes_away_is_read_through() -> None:
    sch = tir.Schedule(product)
    block, twice = sch.get_block("product"), sch.get_block("twice")
    copy = sch.cache_read(twice, 0, "local")
    assert sch.get_consumers(block) == [copy]
    sch.compute_inline(copy)
    assert sch.get_consumers(block) == [twice]
    with pytest.raises(ScheduleError, match="'P_local' is no longer in 'main'"):
        sch.annotate(copy, "a", 1)
    sch.reverse_compute_inline(twice)
    assert [b.name for b in sch.get_output_blocks("root")] == ["product"]


def test_a_block_is_found_where_it_stands() -> None:
    sch = tir.Schedule({"f": product})
    sch.work_on("f")
    block = sch.get_block("product")
    assert sch.get(block).name_hint == "product"
    assert sch.get_sref(block).stmt is sch.get(block) is sch.get("product")
    assert sch.get_loops("product") == sch.get_loops(block)
    assert sch.get(sch.get_loops(block)[0]).extent == 16
    fused = sch.fuse(*sch.get_loops("product"))
    assert sch.get_loops("product") == sch.get_loops(block) == [fused]
    assert fused.loop.extent == 512


def test_draws_that_are_left_open() -> None:
    sch = tir.Schedule(product)
    i, j, _ = sch.get_loops("product")
    assert [sch.get(x) for x in sch.sample_perfect_tile(i, 3)] == [16, 1, 1]
    # TVM: a factor that does not divide what is left takes all of it.
    assert [sch.get(x) for x in sch.sample_perfect_tile(i, 3, decision=[5, 3, 8])] == [1, 2, 8]
    assert [sch.get(x) for x in sch.sample_partitioned_tile(j, 2, 1, 2)] == [2, 2]
    drawn = sch.sample_categorical([1, 2, 3], [0.2, 0.5, 0.3])
    assert sch.get(drawn) == 2
    assert sch.get(drawn * 3 + 1) == 7
    twice = sch.get_block("twice")
    loop = sch.sample_compute_location("product", decision=1)
    assert loop == sch.get_loops(twice)[1]
    sch.compute_at("product", sch.sample_compute_location("product"))
    assert len(sch.get_loops("product")) == 3
    sch.compute_at("product", loop)
    assert [x.name for x in sch.get_loops("product")] == ["i", "j", "ax0", "ax1", "ax2"]
    with pytest.raises(ScheduleError, match="size of the loop 'ax0' is not known; give a decision"):
        sch.sample_perfect_tile(sch.get_loops("product")[2], 2)
    # The trace says what was decided, so that it decides the same again.
    assert [i.decision for i in sch.trace.insts if i.step == "sample_categorical"] == [1]


def test_the_trace_is_tvms_text_and_takes_the_steps_again() -> None:
    sch, block = tiled()
    text = """# from tvm import tir
def apply_trace(sch: tir.Schedule) -> None:
  b0 = sch.get_block(name="product", func_name="main")
  l1, l2, l3 = sch.get_loops(block=b0)
  l4, l5, l6 = sch.split(loop=l1, factors=[2, None, 4], preserve_unit_iters=True, \
disable_predication=False)
  sch.reorder(l4, l2, l5, l6)
  l7 = sch.fuse(l2, l5, preserve_unit_iters=True)
  v8, v9 = sch.sample_perfect_tile(loop=l3, n=2, max_innermost_factor=4, decision=[2, 4])
  l10, l11 = sch.split(loop=l3, factors=[v8, v9], preserve_unit_iters=True, \
disable_predication=False)
  v12 = sch.sample_categorical(candidates=[0, 16, 64], probs=[0.25, 0.25, 0.5], decision=1)
  sch.annotate(block_or_loop=b0, ann_key="unroll", ann_val=v12)
  sch.vectorize(loop=l6)"""
    assert str(sch.trace) == text
    assert str(sch.copy().trace) == text
    read = tir.Schedule(product)
    Trace.apply_json_to_schedule(json.loads(json.dumps(sch.trace.as_json())), read)
    assert str(read.trace) == text
    again = tir.Schedule(product)
    written: dict[str, Any] = {}
    exec(text, {"tir": tir}, written)
    written["apply_trace"](again)
    assert loops(again, "product") == loops(sch, block) == loops(read, "product")


def test_parts_of_a_trace() -> None:
    sch = tir.Schedule(product)
    block = sch.get_block("product")
    i, j, _ = sch.get_loops(block)
    sch.get_loops("twice")
    tile = sch.sample_perfect_tile(i, 2)
    sch.split(i, tile)
    sch.enter_postproc()
    sch.parallel(j)
    names = [x.kind.name for x in sch.trace.insts]
    assert names[-3:] == ["Split", "EnterPostproc", "Parallel"]
    assert sch.trace.insts[0].kind.is_pure
    assert sch.trace.insts[2].step == "get_block"  # of the "twice" that was said by name
    short = sch.trace.simplified(remove_postproc=True)
    assert [x.step for x in short.insts] == [
        "get_block", "get_loops", "sample_perfect_tile", "split",
    ]  # fmt: skip
    draw = short.insts[2]
    assert (short.decisions, short.get_decision(draw)) == ({draw: [16, 1]}, [16, 1])
    assert draw.inputs == [i]
    assert draw.attrs == [2, 16]
    other = tir.Schedule(product)
    short.with_decision(draw, [4, 4], True).apply_to_schedule(other)
    assert loops(other, "product")[:2] == [("i_0", 4), ("i_1", 4)]
    third = tir.Schedule(product)
    short.apply_to_schedule(third, decision_provider=lambda inst, inputs, attrs, decision: [8, 2])
    assert loops(third, "product")[:2] == [("i_0", 8), ("i_1", 2)]
    assert short.pop() is sch.trace.insts[-3]


def test_traces_of_others_are_read_with_care() -> None:
    sch = tir.Schedule(product)
    for steps, message in (
        ([["__init__", {}, [], [], False]], "'__init__', which is no step"),
        ([["copy", {}, [], [], False]], "'copy', which is no step"),
        ([["unroll", {"loop": {"rv": "l9"}}, [], [], False]], "'l9' before a step gives it"),
        ([["get_block", {"name": "product"}, [], ["b0", "b1"], False]], "zip"),
        ([["get_block"]], "cannot read the steps"),
        ([["unroll", {"other": 1}, [], [], False]], "cannot read the steps"),
        ([["annotate", {"block_or_loop": {}}, [], [], False]], "no such argument"),
        (7, "cannot read the steps"),
    ):
        with pytest.raises(FileFormatError, match=message):
            Trace.apply_json_to_schedule(steps, sch)


@I.ir_module
class Two:
    @T.prim_func
    def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("f"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]

    @T.prim_func
    def g(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("g"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]


def test_functions_of_a_module() -> None:
    sch = tir.Schedule(Two)
    assert sch.get_block("g").place.func == "g"
    sch.work_on("f")
    assert sch.func_working_on == "f"
    with pytest.raises(ScheduleError, match=r"no block 'g'; there are root, f$"):
        sch.get_block("g")
    with pytest.raises(ScheduleError, match="no loop-level function 'h'; there are f, g"):
        sch.work_on("h")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda s, i, j, k: s.get_block("sum"), "no block 'sum'; there are root, product, twice"),
        (lambda s, i, j, k: s.get_block("product", "g"), "there are none"),
        (lambda s, i, j, k: s.split(k, [2, 2]), r"product of \[2, 2\] is 4, less than its 8 steps"),
        (lambda s, i, j, k: s.split(k, [None, None]), "at most one factor is None"),
        (lambda s, i, j, k: s.fuse(i, k), "each must be directly in the one before"),
        (lambda s, i, j, k: (s.split(i, [4, 4]), s.unroll(i)), "the loop 'i' is no longer there"),
        (lambda s, i, j, k: s.reorder(i, s.get_loops("twice")[0]), "not around one block"),
        (lambda s, i, j, k: s.reorder(i, i), "stands twice"),
        (lambda s, i, j, k: s.decompose_reduction("twice", i), "is not around the block 'twice'"),
        (lambda s, i, j, k: s.cache_read("product", 7, "x"), "no read buffer 7; it has A, B"),
        (lambda s, i, j, k: s.cache_read("product", "D", "x"), "no read buffer 'D'"),
        (lambda s, i, j, k: s.sample_categorical([1], [0.5, 0.5]), "1 candidates have 2"),
        (lambda s, i, j, k: s.sample_perfect_tile(i, 2, decision=[1]), "decision of 1 factors"),
        (lambda s, i, j, k: s.sample_compute_location("product", decision=5), "is not one of 2"),
    ],
)
def test_steps_that_cannot_be_taken(steps: Any, message: str) -> None:
    sch = tir.Schedule({"main": product})
    with pytest.raises(ScheduleError, match=message) as caught:
        steps(sch, *sch.get_loops("product"))
    assert isinstance(caught.value, TVMError)


def test_arguments_are_those_of_python() -> None:
    sch = tir.Schedule(product)
    block = sch.get_block("product")
    with pytest.raises(TypeError, match="ann_val"):
        sch.annotate(block, "a")
    with pytest.raises(TypeError, match="'other'"):
        sch.split(sch.get_loops(block)[0], [4, 4], other=1)


def test_what_would_change_a_function() -> None:
    sch = tir.Schedule(product)
    block = sch.get_block("product")
    sch.transform_layout(block, ("write", 0), lambda i, j: [j, i])  # P, which nobody outside sees
    with pytest.raises(UnsupportedError, match=r"transform_layout of 'A', an argument of 'main'"):
        sch.transform_layout(block, ("read", 0), lambda i, j: [j, i])
    with pytest.raises(UnsupportedError, match=r"Schedule.unsafe_set_dtype .* is XLA's decision"):
        sch.unsafe_set_dtype(block, 0, "float16")
    sch.tensorize(block, "mma")
    assert sch.mod["main"] is product

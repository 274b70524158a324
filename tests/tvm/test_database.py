"""Databases of tuning keep what is committed, and change no program."""

from __future__ import annotations

from pathlib import Path

import pytest

from relax2xla import tir
from relax2xla.errors import FileFormatError, UnsupportedError
from relax2xla.ir import IRModule, structural_equal
from relax2xla.script import tir as T
from relax2xla.target import Target
from relax2xla.tvm.gpu import meta_schedule as ms


@T.prim_func
def doubled(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)


@T.prim_func
def tripled(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(3)


MOD, OTHER = IRModule({"main": doubled}), IRModule({"main": tripled})


def record(
    workload: ms.database.Workload, seconds: list[float] | None, factor: int
) -> ms.database.TuningRecord:
    sch = tir.Schedule(workload.mod)
    (i,) = sch.get_loops("B")
    sch.split(i, [None, factor])
    return ms.database.TuningRecord(sch.trace, workload, seconds, Target("llvm"))


def commit(db: ms.Database) -> list[ms.database.TuningRecord]:
    workload = db.commit_workload(MOD)
    found = [
        record(workload, s, f) for s, f in (([0.5, 0.3], 2), ([0.1], 4), (None, 8), ([1e10], 16))
    ]
    found.append(ms.database.TuningRecord(tir.Schedule(MOD).trace, workload, [0.0]))
    for r in found:
        db.commit_tuning_record(r)
    return found


def test_what_is_committed_is_found() -> None:
    db = ms.Database.create("memory")
    quick = commit(db)[1]
    assert db.has_workload(IRModule({"main": doubled}))
    assert not db.has_workload(OTHER)
    assert db.commit_workload(IRModule({"main": doubled})) is db.workloads[0]
    assert len(db) == len(db.get_all_tuning_records()) == 5
    # No record without steps, without a time, or with TVM's stand-in for one.
    assert [r.run_secs for r in db.get_top_k(db.workloads[0], 9)] == [[0.1], [0.5, 0.3]]
    assert db.get_top_k(db.workloads[0], 1) == [quick]
    with pytest.raises(ValueError, match="got -1"):
        db.get_top_k(db.workloads[0], -1)
    assert db.query_tuning_record(MOD) is quick
    assert db.query(OTHER, Target("llvm")) is None
    sch = db.query(MOD, Target("llvm"))
    assert [x.loop.extent for x in sch.get_loops("B")] == [4, 4]
    assert db.query(MOD, kind="record") is quick
    assert structural_equal(db.query(MOD, kind="ir_module"), MOD)
    with pytest.raises(ValueError, match="got 'other'"):
        db.query(MOD, kind="other")


def test_the_current_database() -> None:
    one, two = ms.database.create("memory"), ms.database.MemoryDatabase()
    assert ms.Database.current() is None
    with one as entered:
        assert entered is one
        with two:
            assert ms.Database.current() is two
        assert ms.Database.current() is one
    assert ms.Database.current() is None


def test_databases_of_databases() -> None:
    slow, quick = ms.database.MemoryDatabase(), ms.database.MemoryDatabase()
    for db, seconds, factor in ((slow, [0.9], 2), (quick, [0.1], 4)):
        db.commit_tuning_record(record(db.commit_workload(MOD), seconds, factor))
    found = {
        kind: ms.Database.create(kind, slow, quick).query_tuning_record(MOD)
        for kind in ("union", "ordered_union")
    }
    assert found["union"].run_secs == [0.1]
    assert found["ordered_union"].run_secs == [0.9]
    with pytest.raises(UnsupportedError, match="commit to one of them"):
        ms.Database.create("union", slow).commit_workload(MOD)
    pruned = ms.database.MemoryDatabase()
    commit(quick)
    quick.dump_pruned(pruned)
    assert [r.run_secs for r in pruned.get_all_tuning_records()] == [[0.1]]


def test_a_function_in_the_place_of_records() -> None:
    def schedule(sch: tir.Schedule) -> bool:
        sch.split(sch.get_loops("B")[0], [None, 8])
        return True

    db = ms.Database.create(schedule)
    assert [x.loop.extent for x in db.query(MOD).get_loops("B")] == [2, 8]
    assert db.query(MOD, kind="record").trace.insts[-1].step == "split"
    assert ms.Database.create(lambda sch: False).query(MOD) is None


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    db = ms.Database.create("json", work_dir=tmp_path / "logs")
    committed = commit(db)
    again = ms.database.JSONDatabase(work_dir=tmp_path / "logs", allow_missing=False)
    assert len(again.workloads) == 1
    assert structural_equal(again.workloads[0].mod, MOD)
    assert [r.as_json() for r in again.get_all_tuning_records()] == [r.as_json() for r in committed]
    assert again.query_tuning_record(MOD).target == Target("llvm")
    assert again.commit_workload(MOD) is again.workloads[0]
    assert len(again.path_workload.read_text().splitlines()) == 1
    with pytest.raises(ValueError, match="give work_dir"):
        ms.Database.create()


@pytest.mark.parametrize(
    ("workload", "entry"),
    [
        ("7", "[0, []]"),
        ("[", ""),
        ('["1", "{}"]', ""),
        ("", "[0, []]"),
        (None, "[-1, []]"),
        (None, "[0, [7, null, null, null]]"),
        (None, '[0, [[["mod", {}, [], [], false]], [0.1], null, null]]'),
        (None, '[0, [[], ["x"], null, null]]'),
        (None, "[" * 100_000),
    ],
)
def test_files_of_others_are_read_with_care(
    tmp_path: Path, workload: str | None, entry: str
) -> None:
    db = ms.database.JSONDatabase(work_dir=tmp_path)
    db.commit_workload(MOD)
    if workload is not None:
        db.path_workload.write_text(workload)
    db.path_tuning_record.write_text(entry)
    with pytest.raises(FileFormatError):
        ms.database.JSONDatabase(work_dir=tmp_path)


def test_what_a_database_is_not() -> None:
    with pytest.raises(UnsupportedError, match="module_equality='anchor-block'"):
        ms.database.MemoryDatabase(module_equality="anchor-block")
    with pytest.raises(ValueError, match="kind is one of json, memory"):
        ms.Database.create("other")
    with pytest.raises(UnsupportedError, match=r"meta_schedule\.tune_tir: XLA decides"):
        ms.tune_tir(MOD)

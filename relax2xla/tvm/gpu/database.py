"""``tvm.meta_schedule.database``: what was tuned, kept and found again; no program runs by it.

Workloads are modules, equal where their structure is. Records say which steps a schedule took and
how long that ran. XLA decides how loops run, so that what is in a database changes no program: a
``with database:`` says which one ``Database.current()`` is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from relax2xla.errors import FileFormatError, UnsupportedError
from relax2xla.ir import IRModule, load_json, save_json, structural_equal, structural_hash
from relax2xla.target import Target
from relax2xla.tir import PrimFunc, Schedule
from relax2xla.tir.schedule import Trace

_CURRENT: ContextVar[tuple[Database, ...]] = ContextVar("database", default=())
# TVM's stand-in for a time that nobody measured.
_NO_TIME: Final = 1e10


class Workload:
    """A module that is tuned: ``mod``."""

    def __init__(self, mod: IRModule | PrimFunc) -> None:
        self.mod = IRModule({"main": mod}) if isinstance(mod, PrimFunc) else mod

    def as_json(self) -> list[Any]:
        """Its hash and its text, for :meth:`from_json`."""
        return [str(structural_hash(self.mod)), save_json(self.mod)]

    @staticmethod
    def from_json(json_obj: Any) -> Workload:
        """What :meth:`as_json` gave. Safe for data of unknown origin: FileFormatError."""
        match json_obj:
            case [str(), str() as text]:
                mod = load_json(text)
            case _:
                raise FileFormatError("a workload is a list of a hash and the text of a module")
        if not isinstance(mod, IRModule):
            raise FileFormatError(f"a workload holds a module, got {type(mod).__name__}")
        return Workload(mod)


class TuningRecord:
    """The steps of a schedule and how long it ran: ``trace``, ``workload``, ``run_secs``."""

    def __init__(
        self,
        trace: Trace,
        workload: Workload,
        run_secs: Sequence[float] | None = None,
        target: Target | None = None,
        args_info: Sequence[Any] | None = None,
    ) -> None:
        self.trace, self.workload = trace, workload
        self.run_secs = None if run_secs is None else [float(x) for x in run_secs]
        self.target, self.args_info = target, args_info

    @property
    def is_valid(self) -> bool:
        """Whether there are steps, and a time that was measured."""
        measured = any(x != _NO_TIME for x in self.run_secs or ())
        return measured and any(True for _ in self.trace.kept(remove_postproc=True))

    @property
    def mean(self) -> float:
        """Seconds on average; without a time infinite."""
        return math.fsum(self.run_secs) / len(self.run_secs) if self.run_secs else math.inf

    def as_json(self) -> list[Any]:
        """Steps, times and target, for :meth:`from_json`; ``args_info`` is not written."""
        return [
            self.trace.as_json(),
            self.run_secs,
            None if self.target is None else str(self.target),
            None,
        ]

    @staticmethod
    def from_json(json_obj: Any, workload: Workload) -> TuningRecord:
        """What :meth:`as_json` gave, of ``workload``. Safe for data of unknown origin."""
        match json_obj:
            case [list() as steps, list() | None as secs, str() | None as target, None]:
                sch = Schedule(workload.mod)
                Trace.apply_json_to_schedule(steps, sch)
            case _:
                raise FileFormatError("a record is a list of steps, times, a target and null")
        if not all(isinstance(x, int | float) for x in secs or ()):
            raise FileFormatError(f"the times of a record are numbers of seconds, got {secs}")
        return TuningRecord(sch.trace, workload, secs, None if target is None else Target(target))


class Database:
    """Workloads and records. Subclasses of a program may override any of the methods.

    module_equality: "structural". TVM's other kinds, which leave out weights or all but one block,
    are an UnsupportedError: what they call equal is not.
    """

    def __init__(self, module_equality: str = "structural") -> None:
        if module_equality != "structural":
            raise UnsupportedError(
                f"meta_schedule.database: module_equality={module_equality!r} is not part of "
                "relax2xla, where a database changes no program; leave it out"
            )
        self.workloads: list[Workload] = []
        self.records: list[TuningRecord] = []

    # -- what is in it -----------------------------------------------------------------------------
    def _find(self, mod: IRModule) -> Workload | None:
        return next((w for w in self.workloads if structural_equal(w.mod, mod)), None)

    def has_workload(self, mod: IRModule) -> bool:
        """Whether a module like this was committed."""
        return self._find(Workload(mod).mod) is not None

    def commit_workload(self, mod: IRModule) -> Workload:
        """The workload of a module: the one that is there, or a new one."""
        made = Workload(mod)
        found = self._find(made.mod)
        if found is None:
            self.workloads.append(made)
        return found or made

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Keep a record."""
        self.records.append(record)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """All records, as they were committed."""
        return list(self.records)

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The quickest ``top_k`` of a workload, of those with steps and a measured time."""
        if top_k < 0:
            raise ValueError(f"get_top_k: top_k is a number of records, got {top_k}")
        found = [
            r
            for r in self.get_all_tuning_records()
            if r.is_valid
            and (r.workload is workload or structural_equal(r.workload.mod, workload.mod))
        ]
        return sorted(found, key=lambda r: r.mean)[:top_k]

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())

    # -- what is asked for -------------------------------------------------------------------------
    def query_tuning_record(
        self, mod: IRModule, target: Target | None = None, workload_name: str = "main"
    ) -> TuningRecord | None:
        """The quickest record of a module like this, or None."""
        best = self.get_top_k(Workload(mod), 1) if self.has_workload(mod) else []
        return best[0] if best else None

    def query_schedule(
        self, mod: IRModule, target: Target | None = None, workload_name: str = "main"
    ) -> Schedule | None:
        """A schedule with the steps of the quickest record, or None."""
        found = self.query_tuning_record(mod, target, workload_name)
        if found is None:
            return None
        sch = Schedule(found.workload.mod)
        found.trace.apply_to_schedule(sch)
        return sch

    def query_ir_module(
        self, mod: IRModule, target: Target | None = None, workload_name: str = "main"
    ) -> Any:
        """The module of :meth:`query_schedule`, in which no loop has changed, or None."""
        found = self.query_schedule(mod, target, workload_name)
        return None if found is None else found.mod

    def query(
        self,
        mod: IRModule,
        target: Target | None = None,
        *,
        workload_name: str = "main",
        kind: str = "schedule",
    ) -> Any:
        """The "schedule", "record" or "ir_module" of a module like this, or None."""
        asked: dict[str, Callable[..., Any]] = {
            "schedule": self.query_schedule,
            "record": self.query_tuning_record,
            "ir_module": self.query_ir_module,
        }
        if kind not in asked:
            raise ValueError(f"query: kind is one of {', '.join(asked)}, got {kind!r}")
        return asked[kind](mod, target, workload_name)

    def dump_pruned(self, destination: Database) -> None:
        """Commit the quickest record of each workload to another database."""
        best: dict[int, TuningRecord] = {}
        for record in self.get_all_tuning_records():
            known = best.get(id(record.workload))
            if record.is_valid and (known is None or record.mean < known.mean):
                best[id(record.workload)] = record
        for r in best.values():
            workload = destination.commit_workload(r.workload.mod)
            destination.commit_tuning_record(
                TuningRecord(r.trace, workload, r.run_secs, r.target, r.args_info)
            )

    # -- the current one ---------------------------------------------------------------------------
    def __enter__(self) -> Database:
        _CURRENT.set((*_CURRENT.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])

    @staticmethod
    def current() -> Database | None:
        """The database whose ``with`` is open, the innermost; None without one."""
        return (_CURRENT.get() or (None,))[-1]

    @staticmethod
    def create(kind: str | Callable[[Schedule], bool] = "json", *args: Any, **kwargs: Any) -> Any:
        """A database by the name of its kind, or of a function that schedules."""
        if callable(kind):
            return ScheduleFnDatabase(kind, *args, **kwargs)
        if kind not in _KINDS:
            raise ValueError(f"Database.create: kind is one of {', '.join(_KINDS)}, got {kind!r}")
        return _KINDS[kind](*args, **kwargs)


PyDatabase = Database


class MemoryDatabase(Database):
    """A database that is gone with the process."""


class JSONDatabase(Database):
    """A database in two files of a line an entry, which are written to at each commit.

    path_workload, path_tuning_record: the files; without them they are in the folder ``work_dir``,
    under TVM's names. The lines are relax2xla's own, not TVM's, and are read with care: what no
    database has written is a FileFormatError. allow_missing: begin anew where there is no file.
    """

    def __init__(
        self,
        path_workload: str | Path | None = None,
        path_tuning_record: str | Path | None = None,
        *,
        work_dir: str | Path | None = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None:
        super().__init__(module_equality)
        if work_dir is not None:
            path_workload = path_workload or Path(work_dir, "database_workload.json")
            path_tuning_record = path_tuning_record or Path(work_dir, "database_tuning_record.json")
        if path_workload is None or path_tuning_record is None:
            raise ValueError("JSONDatabase: give work_dir, or path_workload and path_tuning_record")
        self.path_workload = Path(path_workload)
        self.path_tuning_record = Path(path_tuning_record)
        for path in (self.path_workload, self.path_tuning_record):
            if allow_missing:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        self.workloads = [Workload.from_json(x) for x in _lines(self.path_workload)]
        for line in _lines(self.path_tuning_record):
            match line:
                case [int() as at, record] if 0 <= at < len(self.workloads):
                    self.records.append(TuningRecord.from_json(record, self.workloads[at]))
                case _:
                    raise FileFormatError(
                        f"{self.path_tuning_record}: an entry is a list of the number of a "
                        "workload and a record"
                    )

    def commit_workload(self, mod: IRModule) -> Workload:
        """:meth:`Database.commit_workload`, and to the file."""
        before = len(self.workloads)
        found = super().commit_workload(mod)
        if len(self.workloads) > before:
            _append(self.path_workload, found.as_json())
        return found

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """:meth:`Database.commit_tuning_record`, and to the file."""
        workload = self.commit_workload(record.workload.mod)
        _append(self.path_tuning_record, [self.workloads.index(workload), record.as_json()])
        super().commit_tuning_record(record)


def _lines(path: Path) -> list[Any]:
    try:
        return [json.loads(x) for x in path.read_text("utf-8").splitlines() if x.strip()]
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: not a file of JSONDatabase ({error})") from error


def _append(path: Path, entry: Any) -> None:
    text = json.dumps(entry, separators=(",", ":"))
    with path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")


class UnionDatabase(Database):
    """The quickest answer of several databases. Nothing is committed to it."""

    def __init__(self, *databases: Database) -> None:
        super().__init__()
        self.databases = databases

    def query_tuning_record(
        self, mod: IRModule, target: Target | None = None, workload_name: str = "main"
    ) -> TuningRecord | None:
        """The quickest record of those that the databases give, or None."""
        answers = [d.query_tuning_record(mod, target, workload_name) for d in self.databases]
        return min((a for a in answers if a), key=lambda r: r.mean, default=None)

    def commit_workload(self, mod: IRModule) -> Workload:
        """Refused: name the database that is to keep it."""
        raise UnsupportedError("a union of databases keeps nothing; commit to one of them")

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Refused: name the database that is to keep it."""
        raise UnsupportedError("a union of databases keeps nothing; commit to one of them")


class OrderedUnionDatabase(UnionDatabase):
    """The first answer of several databases."""

    def query_tuning_record(
        self, mod: IRModule, target: Target | None = None, workload_name: str = "main"
    ) -> TuningRecord | None:
        """The record of the first database that gives one, or None."""
        answers = (d.query_tuning_record(mod, target, workload_name) for d in self.databases)
        return next((a for a in answers if a), None)


class ScheduleFnDatabase(Database):
    """A function in the place of records: it takes a schedule, and says whether it scheduled."""

    def __init__(
        self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural"
    ) -> None:
        super().__init__(module_equality)
        self.schedule_fn = schedule_fn

    def query_schedule(
        self, mod: IRModule, target: Target | None = None, workload_name: str = "main"
    ) -> Schedule | None:
        """A schedule that the function was given, or None where it says False."""
        sch = Schedule(mod)
        return sch if self.schedule_fn(sch) else None

    def query_tuning_record(
        self, mod: IRModule, target: Target | None = None, workload_name: str = "main"
    ) -> TuningRecord | None:
        """The steps that the function took, as a record without a time."""
        sch = self.query_schedule(mod, target, workload_name)
        return None if sch is None else TuningRecord(sch.trace, Workload(mod), [0.0], target)


create = Database.create
_KINDS: Final[dict[str, Callable[..., Database]]] = {
    "json": JSONDatabase,
    "memory": MemoryDatabase,
    "union": UnionDatabase,
    "ordered_union": OrderedUnionDatabase,
}

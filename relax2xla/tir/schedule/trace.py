"""Traces: the steps that a schedule was told, in order, as data, as JSON and as Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from relax2xla.errors import FileFormatError
from relax2xla.tir.functor import free_vars, substitute
from relax2xla.tir.node import PrimExpr, Var
from relax2xla.tir.schedule.nest import BlockRV, LoopRV
from relax2xla.tir.schedule.steps import NOTHING, STEPS

_POSTPROC: Final = "enter_postproc"


@dataclass(frozen=True, slots=True)
class InstructionKind:
    """What an instruction is: ``name`` as TVM writes it (``GetBlock``)."""

    name: str

    @property
    def is_pure(self) -> bool:
        """Whether it only looks at the kernel, or draws a number."""
        return self.name.startswith(("Get", "Sample"))


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """A step: its name in Schedule, its arguments by name, and the handles that it gave.

    ``rest`` are the arguments of a ``*`` parameter. ``decision`` is what a draw was told.
    """

    step: str
    arguments: Mapping[str, Any]
    rest: tuple[Any, ...]
    outputs: tuple[Any, ...]
    listed: bool = False

    @property
    def kind(self) -> InstructionKind:
        return InstructionKind("".join(part.capitalize() for part in self.step.split("_")))

    @property
    def inputs(self) -> list[Any]:
        """The handles among the arguments."""
        return [x for x in _leaves([*self.rest, *self.arguments.values()]) if is_handle(x)]

    @property
    def attrs(self) -> list[Any]:
        """The arguments that are neither handles nor a decision."""
        given = [x for name, x in self.arguments.items() if name != "decision"]
        return [x for x in given if not any(map(is_handle, _leaves([x])))]

    @property
    def decision(self) -> Any:
        return self.arguments.get("decision")


@dataclass(eq=False)
class Trace:
    """The steps of a schedule. ``str`` of it is a Python function that takes them again."""

    insts: list[Instruction] = field(default_factory=list[Instruction])

    @property
    def decisions(self) -> dict[Instruction, Any]:
        return {i: i.decision for i in self.insts if i.decision is not None}

    def get_decision(self, inst: Instruction) -> Any:
        """What a draw was told, or None."""
        return inst.decision

    def append(self, inst: Instruction) -> None:
        """One more step."""
        self.insts.append(inst)

    def pop(self) -> Instruction | None:
        """The last step, which is gone then; None where there is none."""
        return self.insts.pop() if self.insts else None

    def kept(self, remove_postproc: bool = False) -> Iterator[Instruction]:
        """The steps; without ``enter_postproc`` and what follows it."""
        for inst in self.insts:
            if remove_postproc and inst.step == _POSTPROC:
                return
            yield inst

    def with_decision(self, inst: Instruction, decision: Any, remove_postproc: bool) -> Trace:
        """The trace with another decision of one draw."""
        return Trace(
            [
                Instruction(
                    i.step, {**i.arguments, "decision": decision}, i.rest, i.outputs, i.listed
                )
                if i is inst
                else i
                for i in self.kept(remove_postproc)
            ]
        )

    def simplified(self, remove_postproc: bool) -> Trace:
        """The trace without steps that only look at the kernel and whose results nothing uses."""
        used: set[int] = set()
        found: list[Instruction] = []
        for inst in reversed(list(self.kept(remove_postproc))):
            if inst.kind.is_pure and not any(id(x) in used for x in inst.outputs):
                continue
            found.append(inst)
            for x in inst.inputs:
                used.update(map(id, free_vars(x) if isinstance(x, PrimExpr) else [x]))
        return Trace(found[::-1])

    def apply_to_schedule(
        self,
        sch: Any,
        remove_postproc: bool = False,
        decision_provider: Callable[..., Any] | None = None,
    ) -> None:
        """Take the steps on another Schedule.

        decision_provider: called with a draw, its inputs, attributes and decision; it gives the
        decision that is taken.
        """
        now: dict[Any, Any] = {}
        for inst in self.kept(remove_postproc):
            given = {k: _renamed(v, now) for k, v in inst.arguments.items()}
            if decision_provider is not None and inst.step.startswith("sample_"):
                given["decision"] = decision_provider(
                    inst, inst.inputs, inst.attrs, given.get("decision")
                )
            made = getattr(sch, inst.step)(*(_renamed(x, now) for x in inst.rest), **given)
            outputs = made if inst.listed else () if made is None else (made,)
            now.update(zip(map(_key, inst.outputs), outputs, strict=True))

    # -- as text -----------------------------------------------------------------------------------
    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """A line for each step."""
        names: dict[int, str] = {}
        return [_line(inst, names) for inst in self.kept(remove_postproc)]

    def __str__(self) -> str:
        lines = self.as_python() or ["pass"]
        head = "# from tvm import tir\ndef apply_trace(sch: tir.Schedule) -> None:"
        return "\n".join([head, *(f"  {line}" for line in lines)])

    __repr__ = __str__

    def show(self, style: str | None = None, black_format: bool = False) -> None:
        """Print the trace; it is not coloured."""
        print(self)  # noqa: T201

    # -- as JSON -----------------------------------------------------------------------------------
    def as_json(self, remove_postproc: bool = False) -> list[Any]:
        """The steps as lists, strings and numbers, for :meth:`apply_json_to_schedule`.

        The form is relax2xla's own. A handle is ``{"rv": name}``; TypeError for an argument that
        is no data, such as a function that orders indices.
        """
        names: dict[int, str] = {}
        found: list[Any] = []
        for inst in self.kept(remove_postproc):
            given = {k: _to_json(v, names) for k, v in inst.arguments.items()}
            rest = [_to_json(x, names) for x in inst.rest]
            found.append([inst.step, given, rest, _named(inst.outputs, names), inst.listed])
        return found

    @staticmethod
    def apply_json_to_schedule(json_obj: Any, sch: Any) -> None:
        """Take the steps that :meth:`as_json` wrote on a Schedule.

        Safe for data of unknown origin: only the steps of schedules are looked up by name;
        FileFormatError for anything else.
        """
        now: dict[str, Any] = {}
        try:
            for step, given, rest, outputs, listed in json_obj:
                if step not in STEPS and step not in NOTHING:
                    raise FileFormatError(f"a trace names {step!r}, which is no step of a schedule")
                arguments = {str(k): _from_json(v, now) for k, v in given.items()}
                made = getattr(sch, step)(*(_from_json(x, now) for x in rest), **arguments)
                found = made if listed else () if made is None else (made,)
                now.update(zip(outputs, found, strict=True))
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise FileFormatError(f"cannot read the steps of a schedule: {error}") from error


def is_handle(x: Any) -> bool:
    """Whether ``x`` is a block, a loop or a number that a schedule gave."""
    return isinstance(x, BlockRV | LoopRV | PrimExpr)


def _leaves(values: Sequence[Any]) -> Iterator[Any]:
    for x in values:
        if isinstance(x, list | tuple):
            yield from _leaves(x)  # arguments of a call: lists of handles
        else:
            yield x


# Two names of one block are equal and are told apart here; a variable may be one of several nodes.
def _key(handle: Any) -> Any:
    return handle if isinstance(handle, Var) else id(handle)


def _renamed(x: Any, now: Mapping[Any, Any]) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(_renamed(y, now) for y in x)
    if isinstance(x, PrimExpr):
        return substitute(x, {v: now[v] for v in free_vars(x) if v in now})
    return now.get(id(x), x)


_PREFIX: Final = ((BlockRV, "b"), (LoopRV, "l"), (PrimExpr, "v"))


def _named(outputs: Sequence[Any], names: dict[int, str]) -> list[str]:
    found: list[str] = []
    for x in outputs:
        prefix = next(p for kind, p in _PREFIX if isinstance(x, kind))
        found.append(names.setdefault(id(x), f"{prefix}{len(names)}"))
    return found


def _line(inst: Instruction, names: dict[int, str]) -> str:
    given = [_text(x, names) for x in inst.rest]
    given += [
        f"{name}={_text(x, names)}"
        for name, x in inst.arguments.items()
        if x is not None or name not in ("decision", "consumer_blocks", "pad_value", "func_name")
    ]
    call = f"sch.{inst.step}({', '.join(given)})"
    outputs = _named(inst.outputs, names)
    if not outputs:
        return call
    comma = "," if inst.listed and len(outputs) == 1 else ""
    return f"{', '.join(outputs)}{comma} = {call}"


def _text(x: Any, names: Mapping[int, str]) -> str:
    match x:
        case list():
            return f"[{', '.join(_text(y, names) for y in x)}]"
        case tuple():
            return f"({', '.join(_text(y, names) for y in x)})"
        case str():
            return '"' + x.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case BlockRV() | LoopRV():
            return names.get(id(x), "None")
        case PrimExpr():
            known = {v.name: names[id(v)] for v in free_vars(x) if id(v) in names}
            return re.sub(r"\w+", lambda m: known.get(m[0], m[0]), str(x))
        case _:
            return str(x)


def _to_json(x: Any, names: Mapping[int, str]) -> Any:
    match x:
        case list() | tuple():
            return [_to_json(y, names) for y in x]
        case str() | int() | float() | None:
            return x
        case _ if id(x) in names:
            return {"rv": names[id(x)]}
        case _:
            raise TypeError(f"{type(x).__name__} {x} is not written as JSON")


def _from_json(x: Any, now: Mapping[str, Any]) -> Any:
    match x:
        case list():
            return [_from_json(y, now) for y in x]
        case {"rv": str() as name}:
            if name not in now:
                raise FileFormatError(f"a trace names {name!r} before a step gives it")
            return now[name]
        case str() | int() | float() | None:
            return x
        case _:
            raise FileFormatError(f"a trace has no such argument: {x!r}")

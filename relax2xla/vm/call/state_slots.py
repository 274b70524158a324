"""What a function keeps as state: by the user's word or the program's, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relax2xla.errors import CallError
from relax2xla.ir import StructInfo, TensorStructInfo, TupleStructInfo, Var
from relax2xla.ir.struct_info import show
from relax2xla.vm.call.donation import Donation, tensor_places
from relax2xla.vm.call.executable import State
from relax2xla.vm.call.specialise import Program


@dataclass(frozen=True, slots=True)
class Slot:
    """One piece of state: its name, and the places of its parameter and of its next value.

    ``result``: among the fields of the function's result, from the end where negative; None where
    the result is the state.
    """

    name: str
    param: int
    result: int | None


def slots_of(
    name: str,
    params: Sequence[str],
    said: State | None,
    state: Mapping[str, Any] | None,
    results: Mapping[str, int] | None,
) -> tuple[list[Slot], list[Any]]:
    """What is kept of the parameters of ``name``, in their order, and its first values.

    ``said``: by the program; ``state`` and ``results``: by the user, as of ``bind_state``.
    CallError where that does not fit the parameters, or says too little.
    """
    if state is None and said is None:
        last = params[-1] if params else "cache"
        raise CallError(
            f"nothing says what the state of {name} is; give its parameters and their first "
            f'values, as in vm.bind_state("{name}", {{"{last}": zeros}})'
        )
    known = {p: i for i, p in enumerate(params) if params.count(p) == 1}
    places: dict[str, tuple[int, int | None]] = dict(said.places) if said is not None else {}
    first = dict(zip(places, said.values, strict=True)) if said is not None else {}
    for key, value in (state or {}).items():
        if key not in first and key not in known:
            names = ", ".join(dict.fromkeys((*first, *known))) or "none"
            raise CallError(f"{name} has no parameter {key!r} to keep as state; it has {names}")
        first[key] = value
    for key in (k for k in first if k not in places):
        places[key] = (known[key], None)
    order = sorted(first, key=lambda k: places[k][0])
    for key in results or {}:
        if key not in first:
            raise CallError(f"results names {key!r}, which is no state of {name}")
    asked = results or {}
    slots = [Slot(k, places[k][0], asked.get(k, places[k][1])) for k in order]
    left = [s for s in slots if s.result is None]
    if left and len(left) < len(slots):
        raise CallError(
            f"{name}: say in results= where the next value of {left[0].name} is, as for the others"
        )
    if left:
        slots = [Slot(s.name, s.param, i - len(slots)) for i, s in enumerate(slots)]
    if len({s.param for s in slots}) < len(slots):
        raise CallError(f"{name}: two names are of the same parameter: {', '.join(order)}")
    return slots, [first[k] for k in order]


def checked_slots(
    name: str, slots: Sequence[Slot], params: Sequence[Var], result: StructInfo
) -> tuple[Slot, ...]:
    """``slots`` with places from the front; CallError unless parameter and result are of a kind."""
    made: list[Slot] = []
    fields = result.fields if isinstance(result, TupleStructInfo) else ()
    alone = len(slots) == 1
    for s in slots:
        declared = params[s.param].struct_info
        if not _has_tensors_only(declared):
            raise CallError(
                f"{name}: `{s.name}` is {show(declared)}; only tensors, and tuples of them, can be "
                "kept as state"
            )
        assert s.result is not None
        place, following = None, result
        if not alone or not _same_kind(declared, result):
            if not -len(fields) <= s.result < len(fields):
                raise CallError(
                    f"{name} returns {show(result)}; the next value of `{s.name}` cannot be its "
                    f"field {s.result}"
                )
            place = s.result % len(fields)
            following = fields[place]
        if not _same_kind(declared, following):
            raise CallError(
                f"{name}: the next value of `{s.name}`, {show(declared)}, cannot be field {place} "
                f"of the result, which is {show(following)}; name the fields with results="
            )
        made.append(Slot(s.name, s.param, place))
    taken = [s.result for s in made]
    twice = next((s for s in made if taken.count(s.result) > 1), None)
    if twice is not None:
        raise CallError(f"{name}: field {twice.result} is the next value of two states")
    return tuple(made)


def _same_kind(a: StructInfo, b: StructInfo) -> bool:
    """Whether dtypes, ranks and sizes agree, where both are known."""
    if isinstance(a, TupleStructInfo):
        return (
            isinstance(b, TupleStructInfo)
            and len(a.fields) == len(b.fields)
            and all(map(_same_kind, a.fields, b.fields))
        )
    if not isinstance(a, TensorStructInfo) or not isinstance(b, TensorStructInfo):
        return False
    if (a.ndim >= 0 and b.ndim >= 0 and a.ndim != b.ndim) or (
        a.dtype and b.dtype and a.dtype != b.dtype
    ):
        return False
    dims = zip(a.dims or (), b.dims or (), strict=False)
    return all(x == y for x, y in dims if isinstance(x, int) and isinstance(y, int))


def _has_tensors_only(info: StructInfo) -> bool:
    """Whether a value is a tensor, or tuples of tensors."""
    if isinstance(info, TupleStructInfo):
        return all(map(_has_tensors_only, info.fields))
    return isinstance(info, TensorStructInfo)


def keeping(name: str, params: Sequence[Var], slots: Sequence[Slot]) -> Donation:
    """Each array of the state gives its memory to its next value, where that has its shape.

    No one else has these arrays.
    """
    tensors = tensor_places(params)

    def reuse(program: Program) -> dict[int, int | None]:
        infos = [p.struct_info for p in program.module["main"].params]
        made: dict[int, int | None] = {}
        for s in slots:
            following = _flat(program.tree if s.result is None else program.tree[s.result])
            for at, place in zip(tensors[s.param], following, strict=False):
                fits = isinstance(place, int) and program.outputs[place] == infos[at]
                made[at] = place if fits and place not in made.values() else None
        return made

    places = tuple(s.param for s in slots)
    return Donation(name, tuple(params), places, reuse, variant(name, slots), held=False)


def variant(name: str, slots: Sequence[Slot]) -> str:
    """What a function that keeps this state is called among programs."""
    return f"{name} with " + ", ".join(f"{s.param}:{s.result}" for s in slots)


def _flat(tree: Any) -> list[Any]:
    return [leaf for t in tree for leaf in _flat(t)] if isinstance(tree, list) else [tree]

"""Donated arguments: a call takes the memory of an argument for a result, and the array is gone.

XLA decides which results take their memory (``Loaded.memory().alias_size_in_bytes`` is its report);
where no result has the shape and dtype, the memory is free after the call all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relax2xla.errors import CallError
from relax2xla.ir import TensorStructInfo, Var
from relax2xla.ir.struct_info import flatten_info
from relax2xla.vm.call.specialise import Program
from relax2xla.vm.pjrt import xla

# For a program: the place among its arrays that each given-up argument's memory goes to, by the
# argument's place among the tensors; None leaves it to XLA.
Reuse = Callable[[Program], Mapping[int, int | None]]


@dataclass(frozen=True, slots=True)
class Donation:
    """Arguments whose memory the calls of a function take: those for ``params`` at ``places``.

    ``reuse`` says what programs make of it, ``variant`` what a file calls these programs. ``held``:
    callers hold the arrays, so that they may be gone already, or be passed twice.
    """

    name: str
    params: tuple[Var, ...]
    places: tuple[int, ...]
    reuse: Reuse
    variant: str
    held: bool = True

    @classmethod
    def of(cls, name: str, params: Sequence[Var], places: Sequence[int]) -> Donation:
        """A donation where XLA chooses the results."""
        tensors = tensor_places(params)
        taken = [at for i in places for at in tensors[i]]
        return cls(name, tuple(params), tuple(places), lambda program: dict.fromkeys(taken), name)

    def call(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Run; CallError for an array that is gone, or that is passed twice and given up."""
        if len(args) != len(self.params):
            return function(*args)
        given = [a for i in self.places for a in arrays_in(args[i])]
        if given and self.held:
            self._check(args, given)
        result = function(*args)
        for a in given:
            # Where no result took its memory, or it lies on another device.
            if not a.is_deleted():
                a.delete()
        return result

    def _check(self, args: Sequence[Any], given: Sequence[Any]) -> None:
        ids = [id(a) for arg in args for a in arrays_in(arg)]
        if len(set(ids)) == len(ids) and not any([a.is_deleted() for a in given]):
            return
        for a in given:
            gone = a.is_deleted()
            if not gone and ids.count(id(a)) == 1:
                continue
            name = next(
                self.params[i].name_hint
                for i in self.places
                if any(b is a for b in arrays_in(args[i]))
            )
            raise CallError(
                f"{self.name}: the array for `{name}` is deleted: an earlier call took its memory. "
                "Use the result of that call, or pass a copy"
                if gone
                else f"{self.name}: the array for the donated parameter `{name}` is passed twice; "
                "pass a copy, or do not donate it"
            )


def tensor_places(params: Sequence[Var]) -> list[range]:
    """For each parameter the places of its tensors among all tensors."""
    made: list[range] = []
    for p in params:
        start = made[-1].stop if made else 0
        count = sum(isinstance(x, TensorStructInfo) for x in flatten_info(p.struct_info))
        made.append(range(start, start + count))
    return made


def arrays_in(value: Any) -> list[Any]:
    """The jax arrays in an argument."""
    if type(value) is xla.ARRAY:
        return [value]
    return [a for v in value for a in arrays_in(v)] if isinstance(value, tuple | list) else []

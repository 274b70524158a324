"""RNNState: what recurrent models keep for each sequence, with a short history to go back to."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import dtype_name
from relax2xla.errors import RunError, TVMError
from relax2xla.kv_state.forms import RNNForm
from relax2xla.kv_state.guards import Exclusive, array, exclusive, whole, wholes
from relax2xla.nd import array as put
from relax2xla.vm.call.objects import DeviceObject, Loan, rows_to

Array = npt.NDArray[Any]


@dataclass(slots=True)
class _Sequence:
    slot: int
    now: int = 0
    back: int = 0
    length: int = 0


class RNNState(Exclusive, DeviceObject):
    """States of ``layers`` layers, each of as many arrays as ``initial`` has, for each sequence.

    Each sequence has a ring of ``history`` states: a step of one token goes on to the next, so that
    ``popn`` can go back by up to ``history - 1`` of them; a step of several cannot be taken back.
    The states are where they were used last: in the host's memory, or on the device, for programs
    that take them as arrays. A call that raises RunError changes nothing.
    """

    def __init__(self, layers: int, sequences: int, history: int, initial: Sequence[Any]) -> None:
        super().__init__()
        layers, sequences, history = wholes(
            (layers, sequences, history), "layers, sequences and the length of the history"
        )
        if min(layers, sequences, history) < 1:
            raise TVMError(
                f"RNNState of {layers} layers, {sequences} sequences and a history of {history}: "
                "all must be positive"
            )
        self.history = history
        self._initial = [np.array(a) for a in initial]
        # A row for each state of each sequence, and one that padding is written to.
        self._rows = sequences * self.history + 1
        self._layers, self._sequences = layers, sequences
        # Layer by layer: numpy arrays, or those of the device.
        self._held = self._fresh()
        self._forget()

    def __repr__(self) -> str:
        shapes = ", ".join(f"{a.dtype} {a.shape}" for a in self._initial)
        return (
            f"<RNNState of {self._layers} layers ({shapes}) with a history of {self.history}: "
            f"{len(self._known)} of {self._sequences} sequences>"
        )

    def _fresh(self) -> list[Any]:
        """States of zeros."""
        shapes = [(self._rows, *a.shape) for a in self._initial] * self._layers
        dtypes = [a.dtype for a in self._initial] * self._layers
        return [np.zeros(s, d) for s, d in zip(shapes, dtypes, strict=True)]

    def _states(self) -> list[Array]:
        """The states in the host's memory, (sequences, history, *shape) each, for the host."""
        if not all(isinstance(a, np.ndarray) for a in self._held):
            self._held = [np.array(a) for a in self._held]
        return [a[:-1].reshape(self._sequences, self.history, *a.shape[1:]) for a in self._held]

    @exclusive
    def clear(self) -> None:
        """Forget all sequences."""
        self._forget()

    def _forget(self) -> None:
        self._known: dict[int, _Sequence] = {}
        self._free = list(range(self._sequences))[::-1]
        self._step: list[tuple[_Sequence, int]] | None = None

    def _slot(self, number: int) -> int:
        if number in self._known:
            raise RunError(f"sequence {number} is in the state already")
        if not self._free:
            raise RunError(f"the state is full: it holds {self._sequences} sequences")
        return self._free[-1]

    def _get(self, number: int) -> _Sequence:
        if number not in self._known:
            raise RunError(f"there is no sequence {number} in the state")
        return self._known[number]

    @exclusive
    def add_sequence(self, number: int) -> None:
        """A new sequence, in the initial state."""
        number = whole(number, "a sequence's number")
        slot = self._slot(number)
        for state, initial in zip(self._states(), self._initial * self._layers, strict=True):
            state[slot, 0] = initial
        self._known[number] = _Sequence(self._free.pop())
        self._step = None

    @exclusive
    def remove_sequence(self, number: int) -> None:
        """Forget one."""
        number = whole(number, "a sequence's number")
        self._free.append(self._get(number).slot)
        del self._known[number]
        self._step = None

    @exclusive
    def fork_sequence(self, parent: int, child: int, position: int = -1) -> None:
        """A copy of a sequence, with its history; it can be made at the end only."""
        parent, child = wholes((parent, child), "sequences' numbers")
        position = whole(position, "a position")
        old = self._get(parent)
        if position not in (-1, old.length):
            raise RunError(f"sequence {parent} has {old.length} tokens; fork at its end (-1) only")
        slot = self._slot(child)
        for state in self._states():
            state[slot] = state[old.slot]
        self._known[child] = _Sequence(self._free.pop(), old.now, old.back, old.length)
        self._step = None

    @exclusive
    def popn(self, number: int, count: int) -> None:
        """Go back by ``count`` steps."""
        number, count = whole(number, "a sequence's number"), whole(count, "a count")
        s = self._get(number)
        if not 0 <= count <= s.back:
            raise RunError(f"sequence {number} can go back by {s.back} steps; got {count}")
        s.now = (s.now - count) % self.history
        s.back -= count
        s.length -= count
        self._step = None

    @exclusive
    def begin_forward(
        self,
        numbers: Sequence[int],
        lengths: Sequence[int],
        parents: Sequence[int] | None = None,
    ) -> None:
        """Begin a step that adds tokens to sequences; ``parents`` may be those of chains only."""
        ids, counts = wholes(numbers, "sequences' numbers"), wholes(lengths, "lengths")
        found = [self._get(n) for n in ids]
        if len(found) != len(counts) or not found or len({s.slot for s in found}) != len(found):
            raise RunError(f"begin_forward: {len(counts)} lengths for the sequences {ids}")
        if min(counts) < 1:
            raise RunError(f"begin_forward: each sequence gets tokens; got the lengths {counts}")
        if parents is not None:
            chains = [i - 1 for n in counts for i in range(n)]
            if wholes(parents, "parents of tokens") != chains:
                raise RunError("a recurrent state takes chains as token trees only")
        self._step = list(zip(found, counts, strict=True))

    @exclusive
    def end_forward(self) -> None:
        """End a step: what was set is the state now."""
        for s, count in self._step or ():
            s.length += count
            s.back = min(s.back + 1, self.history - 1) if count == 1 else 0
            s.now = (s.now + 1) % self.history
        self._step = None

    @exclusive
    def get(self, layer: int, state: int, out: Array) -> None:
        """Write the states of the step's sequences to ``out``, (sequences, *shape)."""
        found, held = self._in_step(), self._of(layer, state)
        made = held[[s.slot for s in found], [s.now for s in found]]
        if not isinstance(out, np.ndarray) or not out.flags.writeable:
            raise RunError("out must be a numpy array that can be written to")
        if out.shape != made.shape or out.dtype != made.dtype:
            raise RunError(f"out must be {made.dtype} {made.shape}; got {out.dtype} {out.shape}")
        out[...] = made

    @exclusive
    def set(self, layer: int, state: int, data: Any) -> RNNState:
        """What the states are after this step, (sequences, *shape); returns the object."""
        found, held = self._in_step(), self._of(layer, state)
        new = np.asarray(array(data, "data"))
        wanted = (len(found), *held.shape[2:])
        if new.shape != wanted or new.dtype != held.dtype:
            raise RunError(f"data must be {held.dtype} {wanted}; got {new.dtype} {new.shape}")
        held[[s.slot for s in found], [(s.now + 1) % self.history for s in found]] = new
        return self

    @exclusive
    def debug_get(self, layer: int, state: int, number: int) -> Any:
        """The state of one sequence, a ``jax.Array``."""
        s = self._get(whole(number, "a sequence's number"))
        return put(self._of(layer, state)[s.slot, s.now])

    def _in_step(self) -> list[_Sequence]:
        if self._step is None:
            raise RunError("there is no step; call begin_forward first")
        return [s for s, _ in self._step]

    def _of(self, layer: int, state: int) -> Array:
        layer, state = wholes((layer, state), "a layer and a state")
        if not 0 <= layer < self._layers or not 0 <= state < len(self._initial):
            raise RunError(
                f"state {state} of layer {layer}; there are {self._layers} layers of "
                f"{len(self._initial)} states"
            )
        return self._states()[layer * len(self._initial) + state]

    # -- calls of programs

    @contextmanager
    def lent(self) -> Generator[Loan]:
        """See :class:`~relax2xla.vm.call.objects.DeviceObject`.

        Where a call fails that has taken the memory, there are no sequences afterwards.
        """
        with self.alone("a program"):
            form = None if self._step is None else self._form()
            loan = Loan(form, (), self._given)
            if form is not None:
                self._held = [put(a) if isinstance(a, np.ndarray) else a for a in self._held]
                loan.kept = tuple(self._held)
            try:
                yield loan
            except Exception as e:
                if loan.lost():
                    self._held = self._fresh()
                    self._forget()
                    e.add_note("the state lost its memory in this call, and is empty now")
                raise
            if loan.back is not None:
                self._held = list(loan.back)

    def _form(self) -> RNNForm:
        shapes = tuple(a.shape for a in self._initial)
        dtypes = tuple(dtype_name(a.dtype) for a in self._initial)
        return RNNForm(self._rows, self._layers, shapes, dtypes)

    def _given(self, name: str, shape: tuple[int, ...]) -> Array:
        """The rows of the step's sequences: "now", or "after" the step."""
        found = [s for s, _ in self._step or ()]
        ahead = int(name == "after")
        if shape[0] < len(found):
            raise RunError(f"the step has {len(found)} sequences; the program was given {shape[0]}")
        rows = [s.slot * self.history + (s.now + ahead) % self.history for s in found]
        return rows_to(np.array(rows, np.int32), shape[0], self._rows - 1)

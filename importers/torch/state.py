"""Programs that change buffers: their state stays on the device between calls."""

from __future__ import annotations

from typing import Any

from relax2xla import IRModule, VirtualMachine, VMExecutable, build


class Stateful:
    """A function of a program with state, as a function that keeps it.

    source:  a module, what ``relax2xla.build`` made of it, or a machine
    name:    the function, whose attributes ``state`` and ``state_values`` tell of the state

    Calling it takes the user's inputs and gives the user's results (and the new values of inputs
    that the program changes) as a tuple. ``state`` maps the names of the buffers to arrays on the
    device; what is assigned to it is used from the next call on.

    Raises ValueError where the function has no state.
    """

    def __init__(
        self, source: IRModule | VMExecutable | VirtualMachine, name: str = "main"
    ) -> None:
        if isinstance(source, IRModule):
            source = build(source)
        machine = VirtualMachine(source) if isinstance(source, VMExecutable) else source
        function: Any = machine.executable.mod[name]
        if "state" not in function.attrs:
            raise ValueError(
                f"the program keeps no state: {name} has no attribute `state`. Call it with a "
                "VirtualMachine"
            )
        self._call: Any = machine[name]
        self._places: dict[str, tuple[int, int]] = dict(function.attrs["state"])
        self._initial: tuple[Any, ...] = tuple(function.attrs["state_values"])
        self._inputs = min(at for at, _ in self._places.values())
        self._results = {result for _, result in self._places.values()}
        self.state: dict[str, Any] = {}
        self.reset()

    def reset(self) -> None:
        """Go back to the values at the export."""
        self.state = dict(zip(self._places, self._initial, strict=True))

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """The user's results; the state is as the program left it afterwards."""
        results = self._call(*args[: self._inputs], *self.state.values(), *args[self._inputs :])
        self.state = {name: results[at] for name, (_, at) in self._places.items()}
        return tuple(r for i, r in enumerate(results) if i not in self._results)

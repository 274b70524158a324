"""Programs that change buffers: their state stays on the device between calls."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from relax2xla import IRModule, VirtualMachine, VMExecutable, build


class Stateful:
    """A function of a program with state, as a function that keeps it.

    source:  a module, what ``relax2xla.build`` or ``load_module`` gave, or a machine
    name:    the function, whose attributes ``state`` and ``state_values`` tell of the state

    Calling it takes the user's inputs and gives the user's results (and the new values of inputs
    that the program changes) as a tuple. ``state`` has the buffers by name: what is read are copies
    on the device; what is assigned is used from the next call on. It is
    ``VirtualMachine.bind_state`` for those who come from torch.

    Raises ValueError where the function has no state.
    """

    def __init__(
        self, source: IRModule | VMExecutable | VirtualMachine, name: str = "main"
    ) -> None:
        if isinstance(source, IRModule):
            source = build(source)
        machine = VirtualMachine(source) if isinstance(source, VMExecutable) else source
        if name not in machine.executable.states:
            raise ValueError(
                f"the program keeps no state: {name} has no attribute `state`. Call it with a "
                "VirtualMachine"
            )
        self._function = machine.bind_state(name)

    @property
    def state(self) -> MutableMapping[str, Any]:
        """The buffers by name."""
        return self._function.state

    def reset(self) -> None:
        """Go back to the values at the export."""
        self._function.reset()

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """The user's results; the state is as the program left it afterwards."""
        return self._function.step(*args)

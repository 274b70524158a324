"""Which arguments of a bytecode function are read as numbers, for which programs are specialised.

The answer is in the bytecode, so that a saved executable has it too.
"""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.vm.code import bytecode as bc

# What reads numbers that programs are then compiled for.
READS = frozenset({"relax.tensor_to_shape", "relax.tensor_to_bits"})
# What looks at the shape of an array only.
SHAPES = frozenset({"vm.builtin.match", "vm.builtin.shape_of", "relax.shape_of"})

Places = frozenset[int]


def read_by_value(code: bc.Code, name: str) -> tuple[str, ...]:
    """Names of the parameters of ``name`` whose values decide what is compiled, in order.

    Empty for a function that is no bytecode: its programs are for shapes alone.
    """
    index = code.find(name)
    if index is None:
        return ()
    found = _Flow(code).reads(index)
    return tuple(p for i, p in enumerate(code.functions[index].params) if i in found)


class _Flow:
    """What the results of instructions depend on, as places of the function's parameters."""

    def __init__(self, code: bc.Code) -> None:
        self.code = code
        self.known: dict[int, Places] = {}

    def reads(self, index: int) -> Places:
        """The places of the parameters that a "vm" function reads; of one that calls itself too."""
        if index not in self.known:
            self.known[index] = frozenset()
            # Until nothing is added: a call of itself reads what is known of it so far.
            while (more := self._pass(self.code.functions[index])) != self.known[index]:
                self.known[index] = more
        return self.known[index]

    def _pass(self, function: bc.FunctionRow) -> Places:
        needs: dict[int, Places] = {i: frozenset({i}) for i in range(len(function.params))}
        read: Places = frozenset()

        def of(args: Sequence[bc.Arg]) -> Places:
            regs = (a.index for a in args if isinstance(a, bc.Reg))
            return frozenset[int]().union(*(needs.get(r, frozenset()) for r in regs))

        while True:
            before = (dict(needs), read)
            for step in function.body:
                if not isinstance(step, bc.Call):
                    continue
                callee = self.code.functions[step.func]
                if callee.name in READS:
                    read |= of(step.args)
                elif callee.kind == "vm":
                    places = self.reads(step.func)
                    read |= of([a for i, a in enumerate(step.args) if i in places])
                if step.dst is not None and callee.name not in SHAPES:
                    needs[step.dst] = needs.get(step.dst, frozenset()) | of(step.args)
            if (needs, read) == before:
                return read

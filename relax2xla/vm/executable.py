"""What ``build`` makes: functions ready to be specialised and compiled, and their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from relax2xla.errors import TVMError
from relax2xla.ir import Function, IRModule, TensorStructInfo
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.runtime.device import Device
from relax2xla.transform.legalize import flatten_info
from relax2xla.transform.lift_weights import Lifted
from relax2xla.transform.pipeline import StaticRewrites


@dataclass(frozen=True, slots=True)
class Entry:
    """One public function: ``lifted.main`` takes the user's arguments, then the weights."""

    name: str
    lifted: Lifted

    @property
    def func(self) -> Function:
        """The function over arguments and weights."""
        return self.lifted.main

    @property
    def params(self) -> tuple[Any, ...]:
        """The parameters that a caller gives."""
        return self.func.params[: self.lifted.num_input]

    @property
    def is_static(self) -> bool:
        """Whether one program serves every call."""
        leaves = [leaf for p in self.params for leaf in flatten_info(p.struct_info)]
        return all(
            isinstance(i, TensorStructInfo) and i.dims is not None and not free_symbolic_vars(i)
            for i in leaves
        )


class VMExecutable:
    """A built module: public functions by name, ready for a :class:`VirtualMachine`.

    ``mod`` is the module after the pipeline, ``device`` the device that the target names (None: the
    machine's choice), ``static`` the pipeline's rewrites of specialised functions.
    """

    def __init__(
        self,
        mod: IRModule,
        entries: Mapping[str, Entry],
        device: Device | None,
        static: StaticRewrites | None = None,
    ) -> None:
        self.static = static or {}
        self.mod = mod
        self.entries = dict(entries)
        self.device = device

    def __getitem__(self, name: str) -> Entry:
        if name not in self.entries:
            names = ", ".join(self.entries) or "none"
            raise TVMError(f"the executable has no function {name!r}; it has {names}")
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def stats(self) -> str:
        """What runs where, function by function: parameters, weights, programs."""
        lines = [f"relax2xla executable: {len(self.entries)} function(s)"]
        for e in self.entries.values():
            kind = "one XLA program" if e.is_static else "one XLA program per call shape"
            lines.append(f"{e.name}: {kind}")
            for p in e.params:
                lines.append(f"  parameter {p.name_hint}: {p.struct_info}")
            count, size = e.lifted.raw_size()
            lines.append(f"  weights: {count} arrays, {size / 2**20:.1f} MiB")
            if e.lifted.transform is not None:
                n = sum(len(b.bindings) for b in e.lifted.transform.body.blocks)
                lines.append(f"  computed once at load: {n} operations on weights, as one program")
        return "\n".join(lines)

    def as_text(self) -> str:
        """The functions as Relax text, as they are specialised and lowered for each call shape."""
        functions: dict[str, Any] = {}
        for e in self.entries.values():
            functions[e.name] = e.func
            if e.lifted.transform is not None:
                functions[f"{e.name}_transform_params"] = e.lifted.transform
        return IRModule(functions).script()

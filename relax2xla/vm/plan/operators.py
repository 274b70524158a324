"""An executable with each operator as an XLA program of its own, to look at values in between."""

from __future__ import annotations

from relax2xla.errors import UnsupportedError
from relax2xla.ir import GlobalVar
from relax2xla.runtime.device import Mesh
from relax2xla.transform.params.lift_weights import lift_weights
from relax2xla.vm.call.executable import Entry, Executable
from relax2xla.vm.plan.host_reasons import HostReasons
from relax2xla.vm.plan.lower import lower
from relax2xla.vm.save.executable import VMExecutable


def by_operator(built: Executable) -> VMExecutable:
    """``built`` with bytecode over operators in the place of its XLA programs.

    Functions that are one program take their weights as further arguments. A region is named after
    its operator or kernel, with a number where that is another's name already (``matmul_1``).
    UnsupportedError for a program over several devices.
    """
    if built.devices or isinstance(built.device, Mesh):
        raise UnsupportedError("operators run one by one on one device; this program names several")
    functions = dict(built.mod.functions)
    known = {g.name_hint: g for g in functions}
    for name, entry in built.entries.items():
        # A saved executable's module has what its functions call, and not these themselves.
        gvar = known.get(name) or GlobalVar(name, entry.func.struct_info_)
        functions[gvar] = entry.func.with_attr("global_symbol", name)
    mod = built.mod.replace(functions)
    lowered = lower(mod, HostReasons(mod, apart=True))
    lifted = lift_weights(lowered.regions, mod)
    return VMExecutable(
        mod,
        {},
        built.device,
        built.static,
        lowered.code,
        {name: Entry.of(name, lifted[name]) for name in lowered.regions},
        {name: tuple(lines) for name, lines in lowered.notes.items()},
        allowed=built.allowed,
        context=built.context,
        external=built.external,
    )

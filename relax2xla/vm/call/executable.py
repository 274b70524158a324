"""What ``build`` makes: functions for XLA, their weights, and bytecode for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relax2xla.analysis.variables import all_global_vars
from relax2xla.budget import weights_text
from relax2xla.errors import TVMError
from relax2xla.ir import Function, IRModule, TensorStructInfo, Var
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.ir.source_names import full_names
from relax2xla.ir.struct_info import flatten_info
from relax2xla.runtime.device import Device
from relax2xla.script import html
from relax2xla.stablehlo.emitter import emit
from relax2xla.stablehlo.prelude import derived
from relax2xla.transform.core import Pass, PassContext
from relax2xla.transform.export import to_stablehlo
from relax2xla.transform.lower.kernels import KernelForm, by_name, kernel_forms, prim_funcs
from relax2xla.transform.params.lift_weights import Lifted
from relax2xla.vm.call.in_place import Places
from relax2xla.vm.call.packing import Packs, packs_of
from relax2xla.vm.call.specialise import Packed, specialise
from relax2xla.vm.call.weights import WeightStore
from relax2xla.vm.code import bytecode
from relax2xla.vm.code.by_value import read_by_value
from relax2xla.vm.code.bytecode import Code
from relax2xla.vm.pjrt.compiler import Loaded

# By name, key of the call shape and device: a program that is loaded, and what packs its results.
FindProgram = Callable[[str, Any, Device | None], tuple[Loaded, Packed] | None]


@dataclass(frozen=True, slots=True)
class State:
    """What a function's attributes say of state: names, places of parameters and results, values.

    Set by importers for buffers that the program changes; ``VirtualMachine.bind_state`` uses it.
    """

    places: Mapping[str, tuple[int, int]]
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One public function: ``lifted.main`` takes the user's arguments, then the weights.

    ``packs``: weights that programs for the CPU take together (``vm.call.packing``).
    """

    name: str
    lifted: Lifted
    packs: Packs

    @classmethod
    def of(cls, name: str, lifted: Lifted) -> Entry:
        """The function with the packs that suit its weights."""
        weights = lifted.main.params[lifted.num_input :]
        return cls(name, lifted, packs_of([w.struct_info for w in weights]))

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


class _Module:
    """A field that is a module, or reads it when it is asked for."""

    def __get__(self, instance: object, owner: type) -> IRModule:
        if instance is None:
            raise AttributeError  # for dataclasses: no default
        held = instance.__dict__["mod"]
        return held if isinstance(held, IRModule) else held()

    def __set__(self, instance: object, value: IRModule | Callable[[], IRModule]) -> None:
        instance.__dict__["mod"] = value


@dataclass(frozen=True, eq=False, repr=False)
class Executable:
    """A built module: public functions by name, ready for a :class:`VirtualMachine`.

    ``mod`` is the module after the pipeline, given as it is or as what reads it from a file;
    ``entries`` are the public functions that are one XLA program (a call shape) each. ``device`` is
    what the target names (None: the machine's choice), ``static`` the pipeline's passes over
    specialised functions, ``context`` what ``build`` was told of passes, which holds for these as
    well. ``code`` holds the functions that are no single program, over the programs ``regions``;
    ``notes`` say for each of these how it was split, and why.

    By function: ``results`` are the source's names of what it gives, ``donated`` and ``narrowed``
    places of parameters (``vm.call.donation``, ``vm.pjrt.jax_arguments``), ``in_place`` results
    that took the place of parameters (``vm.plan.in_place``), ``states`` what the functions say of
    state, ``platforms`` what functions for several of them were built for, ``signatures`` the
    parameters of bytecode that the source has, ``devices`` where what does not run on the
    machine's own device runs. ``allowed``: targets of custom calls that a caller in Python allows.
    ``prim_funcs``: the functions, where they are loop-level functions that were built alone.
    ``find_program`` gives programs that a file holds; ``store`` has the weights on devices, for
    all machines. ``external``: modules with packed functions (``runtime.external``), of which a
    file holds those of native code.
    """

    mod: _Module = _Module()
    entries: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    device: Device | None = None
    static: tuple[Pass, ...] = ()
    code: Code = field(default_factory=Code)
    regions: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    results: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    donated: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    narrowed: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    in_place: Mapping[str, Places] = field(default_factory=dict[str, Places])
    states: Mapping[str, State] = field(default_factory=dict[str, State])
    platforms: Mapping[str, str] = field(default_factory=dict[str, str])
    signatures: Mapping[str, Callable[[], Sequence[Var]]] = field(
        default_factory=dict[str, Callable[[], Sequence[Var]]]
    )
    devices: Mapping[str, Device] = field(default_factory=dict[str, Device])
    allowed: frozenset[str] = frozenset()
    prim_funcs: tuple[str, ...] = ()
    find_program: FindProgram | None = None
    store: WeightStore = field(default_factory=WeightStore)
    context: PassContext = field(default_factory=PassContext)
    external: tuple[Any, ...] = ()

    @property
    def compiled(self) -> tuple[Entry, ...]:
        """All that XLA compiles: public functions, then regions."""
        return (*self.entries.values(), *self.regions.values())

    def __getitem__(self, name: str) -> Entry:
        """The public function ``name``, or a region, as what XLA compiles."""
        found = self.entries.get(name) or self.regions.get(name)
        if found is None:
            names = ", ".join(self) or "none"
            if self.code.find(name) is not None:
                raise TVMError(
                    f"{name!r} is bytecode over several XLA programs, no single one; its regions "
                    f"are {', '.join(self.regions) or 'none'} (see stats())"
                )
            raise TVMError(f"the executable has no function {name!r}; it has {names}")
        return found

    def params(self, name: str) -> tuple[Var, ...]:
        """The parameters of the public function ``name``; TVMError where nothing states them."""
        if name in self.signatures:
            return tuple(self.signatures[name]())
        if name not in self.entries and (index := self.code.find(name)) is not None:
            if not self.code.functions[index].params:
                return ()
            raise TVMError(
                f"{name} is bytecode that was written by hand; nothing states what its parameters "
                "are"
            )
        return tuple(self[name].params)

    def result_names(self, name: str, count: int) -> list[str]:
        """What the source calls the ``count`` results of ``name``; output_0, ... without a name."""
        return full_names(self.results.get(name, ()), count)

    def by_value(self, name: str) -> tuple[str, ...]:
        """Names of the parameters of ``name`` whose values too decide what is compiled."""
        return read_by_value(self.code, name)

    def __iter__(self) -> Iterator[str]:
        """Names of the public functions."""
        yield from self.entries
        yield from (f.name for f in self.code.functions if f.kind == "vm" and not f.private)

    def stats(self) -> str:
        """What runs where, function by function: parameters, weights, programs."""
        lines = [f"relax2xla executable: {len(list(self))} function(s)"]
        for line in bytecode.stats(self.code):
            name = line.partition(":")[0]
            lines.append(line)
            if values := self.by_value(name):
                lines.append(f"  specialised by the value of: {', '.join(values)}")
            lines += [f"  {note}" for note in self.notes.get(name, ())]
        for e in self.compiled:
            kind = "one XLA program" if e.is_static else "one XLA program per call shape"
            where = f" on {self.devices[e.name]}" if e.name in self.devices else ""
            lines.append(f"{e.name}: {kind}{where}")
            for p in e.params:
                lines.append(f"  parameter {p.name_hint}: {p.struct_info}")
            lines += [f"  kernel {k}: rows by its name, if it fits" for k in by_name(e.func)]
            count, size = e.lifted.raw_size()
            lines.append(f"  {weights_text(count, size)}, passed to the program")
            if e.lifted.transform is not None:
                n = sum(len(b.bindings) for b in e.lifted.transform.body.blocks)
                lines.append(f"  computed once at load: {n} operations on weights, as one program")
        for kernel in self.kernels():
            lines += kernel.lines()
        return "\n".join(lines)

    def kernels(self) -> list[KernelForm]:
        """What each loop-level function becomes where it is called; symbolic sizes are sampled.

        A loop that stays a loop is told with what holds it back.
        """
        return kernel_forms(self.mod.relax_functions().values(), prim_funcs(self.mod))

    def __repr__(self) -> str:
        where = "any device" if self.device is None else str(self.device)
        return f"<{type(self).__name__} of {', '.join(self) or 'no functions'} for {where}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: what runs where, and the functions."""
        stats = html.program("what runs where", self.stats(), "text")
        return html.joined(repr(self)[1:-1], [stats, html.program("text", self.as_text())])

    def as_text(self) -> str:
        """The bytecode, then the functions for XLA as Relax text, as they are specialised."""
        text = bytecode.as_text(self.code) if self.code.functions else ""
        functions: dict[str, Any] = {}
        for e in self.compiled:
            functions[e.name] = e.func
            if e.lifted.transform is not None:
                functions[f"{e.name}_transform_params"] = e.lifted.transform
        return (
            text
            + ("\n" if text and functions else "")
            + (IRModule(functions).script() if functions else "")
        )

    def as_python(self) -> str:
        """A program that builds the bytecode with ``ExecBuilder``; regions are named only."""
        return bytecode.as_python(self.code)

    def stablehlo(self) -> dict[str, str]:
        """The StableHLO of every function and region, by name.

        Those of symbolic shapes are shown with ``?`` dimensions; each call shape runs a program of
        its own. Where that cannot be written, a comment says why.
        """
        made: dict[str, str] = {}
        for e in self.compiled:
            if e.is_static:
                made[e.name] = str(
                    emit(specialise(self.mod, e.name, e.func, {}).module, resources=False)
                )
                continue
            functions: dict[Any, Any] = {"main": e.func.with_attr("global_symbol", "main")}
            todo = all_global_vars(e.func)
            while todo:
                callee = todo.pop()
                if callee not in functions and callee in self.mod:
                    functions[callee] = self.mod[callee].without_attr("global_symbol")
                    todo += all_global_vars(functions[callee])
            try:
                made[e.name] = str(to_stablehlo(derived(self.mod, functions)))
            except TVMError as error:
                reason = str(error).splitlines()[0]
                made[e.name] = f"// a program for each call shape; {reason}\n"
        return made

"""``relax2xla.build``: from a module to an executable."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax2xla.analysis.sizes_fit import check_sizes
from relax2xla.builder import BlockBuilder
from relax2xla.errors import LegalizeError, TVMError
from relax2xla.ir import Function, IRModule, no_collection
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.source_names import result_names
from relax2xla.runtime.device import Device, Mesh, device
from relax2xla.runtime.external import EXTERNAL_MODS
from relax2xla.stablehlo.untrusted.gate import Passed, check_module
from relax2xla.stablehlo.untrusted.targets import checked_targets
from relax2xla.tir import PrimFunc
from relax2xla.transform.core import Pass, PassContext, run_enabled
from relax2xla.transform.core.context import EXTERNAL_ON_HOST
from relax2xla.transform.core.registry import refuse_without_needed
from relax2xla.transform.lower.calls_as_values import CallsAsValues
from relax2xla.transform.lower.distributed import LowerDistIR
from relax2xla.transform.lower.one_device import OneDevice
from relax2xla.transform.lower.tail_recursion import TailRecursionToLoops
from relax2xla.transform.lower.workers import WORKERS, LowerWorkers
from relax2xla.transform.normal.attach_global_symbol import AttachGlobalSymbol
from relax2xla.transform.params.lift_weights import lift_weights
from relax2xla.transform.pipeline import Pipeline, get_pipeline
from relax2xla.vm.call.executable import Entry, State
from relax2xla.vm.code.bytecode import Code
from relax2xla.vm.pjrt.jax_arguments import NARROWED
from relax2xla.vm.pjrt.mesh import mesh_of
from relax2xla.vm.pjrt.platforms import bind_platforms
from relax2xla.vm.pjrt.xla import planned_platform
from relax2xla.vm.plan.donated import Donate, donated_params, places
from relax2xla.vm.plan.external_rows import external_rows
from relax2xla.vm.plan.host_reasons import HostReasons
from relax2xla.vm.plan.in_place import results_in_place
from relax2xla.vm.plan.kernel_entries import with_entries
from relax2xla.vm.plan.lower import Lowered, lower
from relax2xla.vm.plan.returns import with_checked_returns
from relax2xla.vm.plan.tuning import Tuner, tuner
from relax2xla.vm.plan.vdevices import one_device, place_values
from relax2xla.vm.save.executable import VMExecutable

log = logging.getLogger("relax2xla.vm")


# The first two are TVM's.
EXEC_MODES: Final = ("bytecode", "compiled", "whole")


@no_collection()
def build(
    mod: IRModule | Function | PrimFunc,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
    donate: Donate | None = None,
    mesh: Any = None,
    allow_custom_calls: Sequence[str] = (),
    tune: bool = False,
) -> VMExecutable:
    """Build an executable for the :class:`VirtualMachine`.

    mod: the module; every public Relax function (one with ``global_symbol``) can be called, all
        where none is public. Where there are loop-level functions alone (or it is one), these can:
        they take the buffers, and give those that they write.
    target: None (JAX's default device), "llvm" or "cpu", "cuda", a Device or a Target.
    params: weights to bind. By function name (as ``detach_params`` gives them) a list that fills
        the last parameters; or by parameter name for the function ``main``. Their memory is shared:
        do not write to them afterwards.
    relax_pipeline: None, the name of a pipeline (see ``get_pipeline``), or a Pass.
    tir_pipeline, system_lib: accepted for programs written for TVM and without effect; there is no
        TIR stage, and nothing is linked into the process.
    exec_mode: "bytecode" and "compiled", TVM's two, let a function be split where XLA cannot hold
        it whole, and are the same here: bytecode is compiled to Python when it is loaded. "whole"
        demands one XLA program for each function, and names what prevents it.
    donate: names or places of parameters whose memory a call may take for results, for ``main`` or
        by function name; the function attribute ``donate`` says the same. True: those that an
        imported program marks (``donate_argnums`` of ``jax.jit``), which a notice names otherwise.
        A jax array that is passed for one is deleted by the call.
    mesh: several devices to run on together: a ``jax.sharding.Mesh``, a DeviceMesh or a number of
        devices. The module's annotations (Shardy's, ``mhlo.sharding``, distributed tensors) say how
        values are spread over it; results are jax arrays that are spread as the program leaves
        them. A function with ``R.ccl`` is run by each device as a worker, on values of its own (see
        docs/vm.md). None: one device, where annotations say nothing.
    allow_custom_calls: targets of StableHLO's custom calls that may run beside those that are known
        to compute and nothing else (``stablehlo.targets``); such a call runs code of this process,
        with what the program gives it.
    tune: on a CPU, with the default pipeline: each convolution and product of known shape with a
        constant weight is measured by all its forms (functions in C++, Winograd's form, rows), some
        half a second each, and the fastest one is taken. The disk cache keeps what was found for
        this processor. False: forms follow facts that were measured before.

    Raises TVMError for a module that cannot be lowered. XLA compiles at the first call of a
    function with given shapes; ``VirtualMachine.warm`` does it ahead.
    """
    given = _checked(mod, tir_pipeline, exec_mode)
    on = target_device(target) if mesh is None else mesh_of(mesh, _platform(target))
    several = on if isinstance(on, Mesh) and len(on.ids) > 1 else None
    passed = _admitted(given, allow_custom_calls, several)
    context = PassContext.current()
    refuse_without_needed(context.disabled_pass)
    donated = donated_params(given, donate)
    bound, platforms = bind_platforms(_bind(given, params) if params else given, on)
    allowed = passed.allowed
    if _external_in_programs(bound, target, mesh):
        bound, called = external_rows(bound)
        allowed |= called
    tuned = _tuner(relax_pipeline, bound, planned_platform(on)) if tune else None
    if tuned is None:
        pipeline = _pipeline(relax_pipeline)
    else:
        pipeline = get_pipeline("default", choose=tuned)
    if isinstance(pipeline, Pipeline):
        pipeline = pipeline.on(planned_platform(on), several is not None)
    alone = OneDevice()(bound) if several is None else bound
    whole_values = LowerDistIR(1 if several is None else len(several.ids))(alone)
    if several is not None:
        whole_values = LowerWorkers(several.axes)(whole_values)
    ready = with_checked_returns(_with_loops(whole_values))
    values = CallsAsValues()(ready if pipeline is None else pipeline(ready))
    if tuned is not None:
        tuned.finish()
    split = _split(_with_public(values), exec_mode)
    split.refuse_workers()
    split.refuse_donated(donated)
    public = split.public()
    regions = {name: f for name, f in split.rest.regions.items() if name not in split.whole}
    whole = {name: split.mod[name] for name in split.whole}
    lifted = lift_weights({**whole, **regions}, split.mod)
    entries = {name: Entry.of(name, lifted[name]) for name in split.whole}
    return VMExecutable(
        split.mod,
        entries,
        on,
        pipeline.static if isinstance(pipeline, Pipeline) else (),
        split.rest.code,
        {name: Entry.of(name, lifted[name]) for name in regions},
        {name: tuple(lines) for name, lines in split.rest.notes.items()},
        results={
            gvar.name_hint: names
            for gvar, f in given.relax_functions().items()
            if (names := result_names(f))
        },
        donated=places(split.mod, given, donated, bound),
        narrowed={
            name: tuple(i for i, p in enumerate(e.params) if p.name_hint in e.func.attrs[NARROWED])
            for name, e in entries.items()
            if NARROWED in e.func.attrs
        },
        in_place=results_in_place(bound),
        states={
            name: State(dict(f.attrs["state"]), tuple(f.attrs["state_values"]))
            for name, f in public.items()
            if "state" in f.attrs
        },
        platforms=platforms,
        signatures={
            name: functools.partial(tuple, f.params)
            for name, f in public.items()
            if name not in entries
        },
        devices=split.devices,
        allowed=allowed,
        context=context.kept(),
        prim_funcs=_built_alone(mod, given),
        external=tuple(split.mod.attrs.get(EXTERNAL_MODS, ())),
    )


def compile(
    mod: IRModule | Function | PrimFunc,
    target: Any = None,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = "default",
    *,
    allow_custom_calls: Sequence[str] = (),
) -> VMExecutable:
    """``build`` under the name of ``tvm.compile``."""
    return build(
        mod,
        target,
        None,
        relax_pipeline,
        tir_pipeline,
        allow_custom_calls=allow_custom_calls,
    )


def target_device(target: Any) -> Device | None:
    """The device that a target names; None leaves the choice to JAX."""
    if target is None or isinstance(target, Device):
        return target
    kind = getattr(target, "kind", target)
    return device(str(getattr(kind, "name", kind)))


# -- steps of build --------------------------------------------------------------------------------
def _checked(mod: IRModule | Function | PrimFunc, tir_pipeline: Any, exec_mode: str) -> IRModule:
    """The module of what a caller gives; ValueError or TypeError for what is none."""
    if exec_mode not in EXEC_MODES:
        raise ValueError(f"exec_mode must be one of {', '.join(EXEC_MODES)}; got {exec_mode!r}")
    if not (tir_pipeline is None or isinstance(tir_pipeline, str) or callable(tir_pipeline)):
        raise TypeError(
            f"tir_pipeline is None, a name or a Pass; got {type(tir_pipeline).__name__}"
        )
    if isinstance(mod, PrimFunc):
        name = str(mod.attrs.get("global_symbol") or "main")
        return with_entries(IRModule({name: mod}))
    if isinstance(mod, Function):
        return IRModule.from_expr(mod.with_attr("global_symbol", global_symbol(mod) or "main"))
    if not isinstance(mod, IRModule):
        raise TypeError(
            f"build takes an IRModule or a Function; got {type(mod).__name__}. Read text with "
            "relax2xla.script.from_source, files with relax2xla.load"
        )
    mod = with_entries(mod)
    # As in TVM, where nobody says which functions can be called, all can.
    public = any(map(_is_public, mod.relax_functions().values()))
    return mod if public else AttachGlobalSymbol()(mod)


def _built_alone(mod: IRModule | Function | PrimFunc, given: IRModule) -> tuple[str, ...]:
    """The functions of ``given``, where ``mod`` has loop-level functions alone."""
    alone = isinstance(mod, PrimFunc) or (isinstance(mod, IRModule) and not mod.relax_functions())
    return tuple(g.name_hint for g in given.relax_functions()) if alone else ()


def _platform(target: Any) -> str | None:
    """The platform of a target, for devices by number."""
    named = target_device(target)
    return None if named is None else named.platform


def _admitted(mod: IRModule, allow_custom_calls: Sequence[str], mesh: Mesh | None) -> Passed:
    """What the gate says of a module that may run; errors for one that may not, or cannot."""
    count = 1 if mesh is None else len(mesh.ids)
    passed = check_module(mod, checked_targets(allow_custom_calls), count)
    if passed.spread > 1 and mesh is None:
        log.warning(
            "the module spreads values over %d devices; its annotations have no effect on "
            "one; build(mod, mesh=...) runs it on several",
            passed.spread,
        )
    for gvar, func in mod.relax_functions().items():
        check_sizes(func, gvar.name_hint)
    return passed


def _external_in_programs(mod: IRModule, target: Any, mesh: Any) -> bool:
    """Whether what ``mod`` calls of its external modules can run inside of XLA's programs."""
    if mesh is not None or not mod.attrs.get(EXTERNAL_MODS):
        return False
    if PassContext.current().config.get(EXTERNAL_ON_HOST):
        return False
    return planned_platform(target_device(target)) == "cpu"


def _bind(mod: IRModule, params: Mapping[str, Any]) -> IRModule:
    """``params`` bound to the functions of the module."""
    by_function = all(isinstance(v, Sequence) and name in mod for name, v in params.items())
    work = params if by_function else {"main": params}
    new = dict(mod.functions)
    for name, values in work.items():
        gvar = mod.get_global_var(name)
        func = mod[gvar]
        if by_function:
            names = func.params[len(func.params) - len(values) :]
            if len(values) > len(func.params):
                raise TVMError(
                    f"{name} has {len(func.params)} parameters; got {len(values)} values to bind"
                )
            values = dict(zip(names, values, strict=True))
        new[gvar] = func.bind_params(values).without_attr("params")
    return mod.replace(new)


def _with_loops(mod: IRModule) -> IRModule:
    """``mod`` with loops for tail recursion, where XLA can hold what they repeat."""
    looped = run_enabled([TailRecursionToLoops()], mod)
    changed = [g for g, f in looped.items() if f is not mod[g]]
    if not changed:
        return mod
    try:
        reasons = HostReasons(looped).reasons
    except LegalizeError:  # an operator that the pipeline may still rewrite
        return looped
    kept = {g: mod[g] for g in changed if reasons[g] is not None}
    return looped.replace({**looped.functions, **kept}) if kept else looped


def _pipeline(given: str | Pass | None) -> Pass | None:
    """The pipeline that a caller names, or gives."""
    if given is not None and not callable(given) and not isinstance(given, str):
        raise TypeError(f"relax_pipeline is None, a name or a Pass; got {type(given).__name__}")
    return get_pipeline(given) if isinstance(given, str) else given


def _tuner(given: str | Pass | None, mod: IRModule, platform: str) -> Tuner:
    """What measures forms for the default pipeline."""
    if given not in ("default", "default_build"):
        raise TVMError("tune=True is for the default pipeline; leave relax_pipeline out")
    return tuner(mod, platform, lambda program: build(program, "cpu", relax_pipeline="zero"))


def _with_public(mod: IRModule) -> IRModule:
    """``mod``; TVMError where no function of it can be called."""
    if not any(map(_is_public, mod.relax_functions().values())):
        raise TVMError("the module has no function to build")
    return mod


def _is_public(func: Function) -> bool:
    return global_symbol(func) is not None


@dataclass(frozen=True, slots=True)
class _Split:
    """A module whose public functions are one XLA program each (``whole``), or bytecode (``rest``).

    ``devices``: of programs that do not run on the machine's own.
    """

    mod: IRModule
    hosts: HostReasons
    whole: tuple[str, ...]
    rest: Lowered
    devices: Mapping[str, Device]

    def public(self) -> dict[str, Function]:
        """The functions that can be called, by name."""
        found = {g.name_hint: f for g, f in self.hosts.mod.relax_functions().items()}
        return {name: f for name, f in found.items() if global_symbol(f) is not None}

    def refuse_workers(self) -> None:
        """TVMError where a function that workers run is no single program."""
        for name, func in self.public().items():
            if WORKERS in func.attrs and name not in self.whole:
                reason = self.hosts.reasons[self.hosts.mod.get_global_var(name)]
                raise TVMError(
                    f"{name} has R.ccl, so it has to be one XLA program over the mesh: {reason}"
                )

    def refuse_donated(self, donated: Mapping[str, Any]) -> None:
        """TVMError where a function that donates arguments is no single program."""
        name = next((n for n in donated if n not in self.whole), None)
        if name is not None:
            reason = self.hosts.reasons[self.hosts.mod.get_global_var(name)]
            raise TVMError(
                f"donate: {name} is no single XLA program, so its arguments cannot be donated: "
                f"{reason}"
            )


def _split(mod: IRModule, exec_mode: str) -> _Split:
    """What XLA holds whole, and bytecode for the rest; TVMError where that may not be."""
    mod, several = place_values(mod)
    hosts = HostReasons(mod, several)
    public = [g for g, f in mod.relax_functions().items() if global_symbol(f) is not None]
    cut = [g for g in public if hosts.reasons[g] is not None]
    if cut and exec_mode == "whole":
        lines = [f"  {g.name_hint}: {hosts.reasons[g]}" for g in cut]
        raise TVMError(
            'exec_mode="whole" needs one XLA program for each function; use "bytecode" for\n'
            + "\n".join(lines)
        )
    rest = Lowered(Code(), {})
    if cut:
        normal = BlockBuilder().normalize
        flat = {g: f if hosts.reasons.get(g) is None else normal(f) for g, f in mod.items()}
        if any(flat[g] is not f for g, f in mod.items()):
            mod = mod.replace(flat)
            hosts = HostReasons(mod, several)
        rest = lower(mod, hosts)
    whole = tuple(g.name_hint for g in public if g not in cut)
    where = {n: hosts.device(mod[n]) for n in whole} | rest.devices
    devices = {n: d for n, d in where.items() if d is not None}
    return _Split(one_device(mod) if several else mod, hosts, whole, rest, devices)

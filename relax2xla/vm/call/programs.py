"""The programs of one function on one device: each call shape is specialised and compiled once.

Design decision D7. What is kept goes by when it was used last; why a function compiles again is
logged, and where it does so again and again there is a warning.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from relax2xla.errors import CallError, OpError, StructInfoError
from relax2xla.ir import IRModule, StructInfo, TensorStructInfo, no_collection
from relax2xla.ir.struct_info import flatten_info
from relax2xla.runtime.progress import waiting
from relax2xla.stablehlo.emitter import emit
from relax2xla.stablehlo.loops.scalars import exact_quotients
from relax2xla.vm.call.arguments import Arguments
from relax2xla.vm.call.call_shapes import Key, difference, infos_of, key_of
from relax2xla.vm.call.donation import Donation
from relax2xla.vm.call.executable import Executable
from relax2xla.vm.call.packing import Packs, with_packs
from relax2xla.vm.call.specialise import Packed, Program, match, specialise
from relax2xla.vm.call.symbol_values import named
from relax2xla.vm.code.size_bounds import check_ranges
from relax2xla.vm.pjrt import compiler, xla

log = logging.getLogger("relax2xla.vm")

# Programs kept for one function; the least recently used one goes first.
CACHE_SIZE = 64
# Programs of one function after which a warning is due.
WARN_AFTER = 32


class Programs:
    """Programs of the function that ``arguments`` are for, by call shape.

    ``packs``: weights that programs take together. ``donation``: arguments whose memory they take.
    ``limit``: programs that are kept, ``warn_after``: those after which a warning is due.
    ``listeners`` are called when a program that was given out is not the one to use any more.
    """

    def __init__(
        self,
        executable: Executable,
        arguments: Arguments,
        packs: Packs = (),
        donation: Donation | None = None,
        limit: int = CACHE_SIZE,
        warn_after: int = WARN_AFTER,
    ) -> None:
        self.name, self.device = arguments.name, arguments.device
        self.executable, self.arguments, self.packs = executable, arguments, packs
        self.entry = executable[self.name]
        self.reuse = None if donation is None else donation.reuse
        # What a file calls programs that take the memory of these arguments.
        self.variant = self.name if donation is None else donation.variant
        self.limit, self.warn_after = limit, warn_after
        self.listeners: list[Callable[[], None]] = []
        self.held: OrderedDict[Key, tuple[compiler.Loaded, Packed]] = OrderedDict()
        self._lock = threading.RLock()
        # For the log: the arguments that were compiled for last, and how often it compiled.
        self._last: tuple[StructInfo, ...] | None = None
        self._count = 0

    @property
    def weights(self) -> int:
        """How many arrays programs take for the weights."""
        return len(self.entry.lifted.weights) - sum(len(p) - 1 for p in self.packs)

    # -- programs

    @no_collection()
    def program(self, infos: Sequence[StructInfo]) -> Program:
        """The static program for arguments of these struct infos; it takes the weights last."""
        params, func = self.arguments.params, self.entry.func
        env = match(self.name, params, infos)
        leaves = (leaf for i in infos for leaf in flatten_info(i))
        dtypes = (leaf.dtype for leaf in leaves if isinstance(leaf, TensorStructInfo))
        xla.refuse_arguments(dtypes, self.device)
        check_ranges(self.name, func, env)
        platform = xla.jax_device(self.device).platform
        several = xla.count(self.device) > 1
        passes = [p for p in self.executable.static if p.info.is_for(platform, several)]
        try:
            with self.executable.context.resumed(), exact_quotients(platform == "cpu"):
                made = specialise(self.executable.mod, self.name, func, env, passes, infos)
        except (StructInfoError, OpError) as e:
            if not env:
                raise
            sizes = ", ".join(f"{name} = {n}" for name, n in named(func, env).items())
            raise CallError(f"{self.name}: there is no program for {sizes}: {e}") from e
        if not self.packs:
            return made
        weights = len(self.entry.lifted.weights)
        return replace(made, module=with_packs(made.module, weights, self.packs))

    def lowered(self, infos: Sequence[StructInfo]) -> tuple[Any, Program]:
        """The program for arguments of these struct infos as MLIR; it takes the weights first."""
        program = self.program(infos)
        weights = self.weights
        module = emit(_weights_first(program.module, weights), resources=False)
        if self.reuse is not None:
            compiler.mark_donated(module, {weights + a: r for a, r in self.reuse(program).items()})
        return module, program

    # -- compiled

    def find(self, key: Key) -> tuple[compiler.Loaded, Packed]:
        """The program for a call, compiled if it is not kept; CallError where none fits it."""
        found = self.held.get(key)
        if found is None:
            return self._compile(key)
        if len(self.held) > 1:
            with self._lock, contextlib.suppress(KeyError):
                self.held.move_to_end(key)
        return found

    def warm(self, infos: Sequence[StructInfo]) -> None:
        """Compile for arguments of these struct infos; none: those of a static function."""
        self.find(key_of(infos or [p.struct_info for p in self.arguments.params]))

    def named(self, key: Key) -> compiler.Loaded:
        """The program for a call with the names of this source.

        One of the disk cache may have been compiled from another source, with its names and lines.
        """
        loaded, _ = self.find(key)
        if loaded.from_cache:
            module, program = self.lowered(infos_of(self.arguments.params, key))
            loaded = self._loaded(module, program, fresh=True)
            with self._lock:
                self.held[key] = (loaded, program)
                self._tell()
        return loaded

    def loaded(self) -> list[compiler.Loaded]:
        """The programs that are loaded, one a call shape."""
        return [loaded for loaded, _ in self.held.values()]

    def _compile(self, key: Key) -> tuple[compiler.Loaded, Packed]:
        infos = infos_of(self.arguments.params, key)
        with self._lock:
            if key in self.held:
                return self.held[key]
            match(self.name, self.arguments.params, infos)  # what does not fit compiles nothing
            self._say(infos)
            find = self.executable.find_program
            found = None if find is None else find(self.variant, key, self.device)
            if found is None:
                with waiting(f"compiling {self.name}"):
                    module, program = self.lowered(infos)
                    found = (self._loaded(module, program), program)
            self.held[key] = found
            if len(self.held) > self.limit:
                self.held.popitem(last=False)
                # JAX's dispatch holds the programs of all shapes that it has seen.
                self._tell()
            return found

    def _loaded(self, module: Any, program: Program, fresh: bool = False) -> compiler.Loaded:
        avals = [xla.aval(o) for o in program.outputs]
        allowed = self.executable.allowed
        return compiler.Loaded(module, avals, self.device, fresh=fresh, allowed=allowed)

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()

    def _say(self, infos: Sequence[StructInfo]) -> None:
        """Log why a function compiles again, and warn where it does so again and again."""
        before, self._last = self._last, tuple(infos)
        self._count += 1
        if before is None:
            return
        params, func = self.arguments.params, self.entry.func
        numbers = [named(func, match(self.name, params, i)) for i in (before, infos)]
        changed = difference(params, before, infos, *numbers)
        log.info("%s: compiling again (%d), %s", self.name, self._count, changed)
        if self._count == self.warn_after:
            log.warning(
                "%s has compiled for %d call shapes, the last because %s; compile ahead with "
                "vm.warm, or let several sizes share a program with vm.bucket",
                self.name,
                self._count,
                changed,
            )


def _weights_first(mod: IRModule, weights: int) -> IRModule:
    """``mod`` whose ``main`` takes its last ``weights`` parameters first: they never change."""
    gvar = mod.get_global_var("main")
    func = mod[gvar]
    count = len(func.params) - weights
    return mod.replace(
        {**mod, gvar: func.replace(params=func.params[count:] + func.params[:count])}
    )

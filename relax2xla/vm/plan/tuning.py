"""``build(mod, tune=True)``: which form of a convolution or product is fastest, by measurement.

Without it forms are chosen by facts that were measured on some processors
(:mod:`relax2xla.kernels.products`). Here each shape that a program has runs by all its forms, in
programs of its own, in turn, and the disk cache keeps for this processor which was the fastest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from relax2xla import processor
from relax2xla.builder import BlockBuilder
from relax2xla.errors import TVMError
from relax2xla.ir import Call, GlobalVar, IRModule, TensorStructInfo, Var
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.kernels.products import FAMILY, Convolution, Described, Product, winograds
from relax2xla.runtime.progress import report
from relax2xla.transform.cpu.calls.products import form
from relax2xla.transform.cpu.calls.sites import composite_of
from relax2xla.vm.pjrt import cache, native_calls

if TYPE_CHECKING:
    from relax2xla.vm.save.executable import VMExecutable

log = logging.getLogger("relax2xla.vm")

#: What a form is called where it is kept: a call of a function in C++, or rows, which are XLA's.
ROWS: Final = "rows"
Build: TypeAlias = "Callable[[IRModule], VMExecutable]"
Forms: TypeAlias = "dict[str, Described | None]"
_OPERATORS: Final = ("relax.nn.conv2d", "relax.matmul", "relax.einsum")
# Seconds that the rounds of one shape take, about; how many rounds there are at least.
_SECONDS: Final = 0.4
_ROUNDS: Final = 5
# Bytes of weights that no cache holds: a network's weights come from memory. How many weights they
# are spread over at most.
_COLD: Final = 64 << 20
_WEIGHTS: Final = 16


class Tuner:
    """Chooses forms, and measures those that nobody has measured here.

    build: makes an executable for the CPU of a program as it is; total: how many operators there
    may be, for those who watch
    """

    def __init__(self, build: Build, total: int) -> None:
        self.build, self.total, self.seen = build, total, 0
        self.known: dict[Described, str] = {}

    def __call__(self, call: Convolution | Product) -> Described | None:
        """The fastest form of ``call``; None: its form in rows."""
        forms = forms_of(call)
        if call not in self.known:
            self.known[call] = self._best(call, forms)
        self.seen = min(self.seen + 1, self.total)
        self._tell()
        return forms[self.known[call]]

    def finish(self) -> None:
        """Tell those who watch that no operator is left; some have no form to choose."""
        if self.seen < self.total:
            self.seen = self.total
            self._tell()

    def _tell(self) -> None:
        report("choosing forms by measurement", self.seen, self.total, "operators")

    def _best(self, call: Convolution | Product, forms: Forms) -> str:
        store = cache.current()
        key = _key(call)
        kept = None if store is None else store.get(key)
        # The name of a form; those of other versions may have others.
        name = "" if kept is None else kept.decode(errors="replace")
        if name in forms:
            return name
        took = measured(call, forms, self.build)
        best = min(took, key=took.__getitem__)
        log.info("forms of %r in ms: %s; %s is the fastest", call, took, best)
        if store is not None:
            store.put(key, best.encode())
        return best


def forms_of(call: Convolution | Product) -> Forms:
    """The forms that there are of ``call``, by name; None for rows."""
    found = winograds(call) if isinstance(call, Convolution) else []
    named = {f"C++, Winograd {w.size}x{w.size}": w for w in found}
    return {ROWS: None, "C++": call, **named}


def measured(call: Convolution | Product, forms: Forms, build: Build) -> dict[str, float]:
    """The least milliseconds of each form in some rounds, each with weights from memory."""
    runs = {name: _runner(call, found, build) for name, found in forms.items()}
    took: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + _SECONDS
    rounds = 0
    while rounds < _ROUNDS or time.perf_counter() < end:
        for name, run in runs.items():
            start = time.perf_counter()
            run(rounds)
            took[name].append(1e3 * (time.perf_counter() - start))
        rounds += 1
    return {name: min(times) for name, times in took.items()}


def _runner(
    call: Convolution | Product, found: Described | None, build: Build
) -> Callable[[int], None]:
    """What runs a form with the weight of a round."""
    import jax

    from relax2xla.vm.call.machine import VirtualMachine

    described = replace(call, lies="last") if found is None else found
    program = _program(described, found is not None)
    machine = VirtualMachine(build(program))
    image, weight, *rest = (np.full(t.shape, 0.01, t.dtype) for t in described.operands)
    count = weights_of(weight.nbytes)
    weights = [jax.numpy.asarray(weight + i) for i in range(count)]
    given: Sequence[Any] = list(map(jax.numpy.asarray, (image, *rest)))

    def run(number: int) -> None:
        made = machine["main"](given[0], weights[number % count], *given[1:])
        jax.block_until_ready(made)

    run(0)
    return run


def weights_of(size: int) -> int:
    """How many weights of ``size`` bytes a form is run with in turn; one that no cache holds."""
    return min(_WEIGHTS, -(-_COLD // max(1, size)))


def _program(described: Described, called: bool) -> IRModule:
    """``main`` computes a form of what is given with each call."""
    rows = form(described)
    if not called:
        return IRModule({"main": rows.with_attr("global_symbol", "main")})
    symbol = f"main{FAMILY.forms}0"
    infos = [TensorStructInfo(t.shape, t.dtype) for t in described.operands]
    params = [Var(f"x{i}", info) for i, info in enumerate(infos)]
    builder = BlockBuilder(IRModule({GlobalVar(symbol): rows}))
    with builder.function("main", params):
        with builder.dataflow():
            made: Call = composite_of(described, params, symbol)
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    return builder.get()


def _key(call: Convolution | Product) -> str:
    """Under which the disk cache keeps what was found: for this processor and these functions."""
    names = (FAMILY.source, *FAMILY.headers)
    sources = b"\n".join((native_calls.HOME / n).read_bytes() for n in names)
    circumstances = (processor.machine(), str(processor.count()), processor.jaxlib_version())
    return cache.key_of("forms", repr(call), sources, *circumstances)


def tuner(mod: IRModule, platform: str, build: Build) -> Tuner:
    """One for a module that is built; TVMError where there is nothing to choose among."""
    if platform != "cpu":
        raise TVMError(f"tune=True measures forms on CPUs; the module is built for {platform!r}")
    values = [b.value for f in mod.relax_functions().values() for b in bindings_deep(f)]
    return Tuner(build, sum(any(is_op(v, n) for n in _OPERATORS) for v in values))

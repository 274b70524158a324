"""``tir.Schedule``: the steps that a program says, checked and kept as a trace."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from relax2xla.errors import ScheduleError, UnsupportedError
from relax2xla.tir.function import PrimFunc
from relax2xla.tir.node import IntImm, PrimExpr, Var
from relax2xla.tir.schedule.nest import BlockRV, LoopRV, Nest
from relax2xla.tir.schedule.steps import NOTHING, STEPS
from relax2xla.tir.schedule.trace import Instruction, Trace
from relax2xla.tir.stmt import Block, Evaluate, For, ForKind

# Parameters of steps that may be a block by its name.
_BLOCKS: Final = ("block", "scope_block", "consumer_blocks")
# What TVM 0.25 calls otherwise.
_NEWER: Final = {
    "get_sblock": "get_block",
    "transform_sblock_layout": "transform_block_layout",
    "reorder_sblock_iter_var": "reorder_block_iter_var",
    "get_child_sblocks": "get_child_blocks",
    "get_output_sblocks": "get_output_blocks",
}


@dataclass(frozen=True, slots=True, eq=False)
class StmtSRef:
    """A block or a loop where it stands in a kernel: ``stmt``."""

    stmt: Block | For


class Schedule:
    """Steps that say how loops run: checked, kept, and not taken, as XLA decides how loops run.

    mod: a PrimFunc, or a mapping of names to them. ``sch.mod`` is what was given (an IRModule with
    ``main`` for a PrimFunc), ``sch.trace`` the steps. A block may be said by its name. A step that
    names what is not there, or sizes that do not go together, is a ScheduleError; one that would
    change what a function is to its callers, or which TVM does not have, an UnsupportedError.
    seed, debug_mask, error_render_level, enable_check: of TVM's scheduler, and unused.
    """

    def __init__(
        self,
        mod: Any,
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> None:
        if isinstance(mod, PrimFunc):  # IRModule is of a layer above
            mod = importlib.import_module("relax2xla.ir").IRModule({"main": mod})
        self._mod: Mapping[Any, Any] = mod
        self._nest = Nest(mod)
        self._func: str | None = None
        self._seed = 1 if seed is None else seed
        self.trace = Trace()

    @property
    def mod(self) -> Mapping[Any, Any]:
        """The functions, as they were given."""
        return self._mod

    # -- the function and the schedule itself ------------------------------------------------------
    @property
    def func_working_on(self) -> str | None:
        """The function that :meth:`work_on` named."""
        return self._func

    def work_on(self, func_name: str) -> None:
        """Look for blocks in this function from now on."""
        if func_name not in self._nest.funcs:
            raise ScheduleError(
                f"there is no loop-level function {func_name!r}; there are "
                f"{', '.join(self._nest.funcs) or 'none'}"
            )
        self._func = func_name

    def copy(self) -> Schedule:
        """Another schedule of the same functions that was told the same steps."""
        made = Schedule(self._mod, seed=self._seed)
        made._func = self._func
        self.trace.apply_to_schedule(made)
        return made

    def seed(self, seed: int) -> None:
        """Nothing is drawn at random here; the seed is what :meth:`fork_seed` goes on from."""
        self._seed = seed

    def fork_seed(self) -> int:
        """Another seed."""
        self._seed = self._seed * 48271 % (2**31 - 1)
        return self._seed

    def show(self, *args: Any, **options: Any) -> None:
        """Print the functions and the trace."""
        show: Any = getattr(self._mod, "show", None)
        if show is not None:
            show(*args, **options)
        print(self.trace)  # noqa: T201

    # -- what handles stand for --------------------------------------------------------------------
    def get(self, rand_var_or_sref: BlockRV | LoopRV | PrimExpr | StmtSRef | str) -> Any:
        """A block or a loop of the kernel, or the number that was drawn.

        Of a loop that a step has made it is a ``For`` with its size and without a body, as no
        statement is moved; ScheduleError for a block of a step, and where the size is not known.
        """
        if isinstance(rand_var_or_sref, str):
            rand_var_or_sref = BlockRV(self._nest.block(rand_var_or_sref, self._func))
        self._nest.check(rand_var_or_sref)
        match rand_var_or_sref:
            case StmtSRef():
                return rand_var_or_sref.stmt
            case BlockRV(place):
                if place.stmt is None:
                    raise ScheduleError(
                        f"the block {place.name!r} is of a step, which changes no kernel here"
                    )
                return place.stmt
            case LoopRV(loop):
                if loop.extent is None:
                    raise ScheduleError(
                        f"the size of the loop {loop.name!r} is not known: it is of a step, which "
                        "changes no kernel here"
                    )
                made = For(
                    Var(loop.name, "int32"),
                    0,
                    loop.extent,
                    ForKind.SERIAL,
                    Evaluate(IntImm("int32", 0)),
                )
                return made if loop.stmt is None else loop.stmt
            case _:
                return self._nest.value(rand_var_or_sref)

    def get_sref(self, rand_var_or_stmt: BlockRV | LoopRV | Block | For | str) -> StmtSRef:
        """:meth:`get` as TVM's reference to a statement."""
        if isinstance(rand_var_or_stmt, Block | For):
            return StmtSRef(rand_var_or_stmt)
        return StmtSRef(self.get(rand_var_or_stmt))

    def remove_rv(self, rand_var: BlockRV | LoopRV | PrimExpr) -> None:
        """A handle that is not used any more; the block, loop or number stays."""

    # -- steps -------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Callable[..., Any]:
        name = _NEWER.get(name, name)
        if name in STEPS or name in NOTHING:
            return functools.partial(self._take, name)
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedError(
            f"tir.Schedule.{name} is not part of relax2xla: how the loops of a kernel run is XLA's "
            "decision, so a schedule changes nothing here. Leave the step out"
        )

    def _take(self, step: str, *args: Any, **options: Any) -> Any:
        """Take a step: its arguments are checked as those of a function of Python, and kept."""
        function = STEPS.get(step)
        if function is None:
            bound = NOTHING[step].bind(*args, **options)
        else:
            bound = inspect.signature(function).bind(self._nest, *args, **options)
        bound.apply_defaults()
        given = {k: self._handle(k, x) for k, x in bound.arguments.items()}
        if step == "get_block" and given["func_name"] is None:
            given["func_name"] = self._func or next(
                (n for n in self._nest.funcs if len(self._nest.funcs) == 1), None
            )
        rest: tuple[Any, ...] = ()
        if function is None:
            made = None
        else:
            bound.arguments.update(given)
            made = function(*bound.args, **bound.kwargs)
            del given["nest"]
            rest = next((given.pop(k) for k in ("loops", "ordered_loops") if k in given), ())
        if step.startswith("sample_") and given["decision"] is None:
            given["decision"] = (
                None if step == "sample_compute_location" else self._drawn(step, made, given)
            )
        listed = isinstance(made, list)
        outputs = tuple(made) if isinstance(made, list) else () if made is None else (made,)
        self.trace.append(Instruction(step, given, rest, outputs, listed))
        return made

    def _drawn(self, step: str, made: Any, given: Mapping[str, Any]) -> Any:
        """What was decided where the program left it open, so that the trace says it."""
        if step == "sample_categorical":
            return list(given["candidates"]).index(self._nest.value(made))
        return [self._nest.value(x) for x in made]

    def _handle(self, name: str, given: Any) -> Any:
        """An argument, checked to be there; a block that is given by name as its handle."""
        if isinstance(given, list | tuple) and not (name == "buffer" or name == "factors"):
            return type(given)(self._handle(name, x) for x in given)
        if name in _BLOCKS and isinstance(given, str):
            return self._take("get_block", given)  # which the trace has, too, as in TVM
        self._nest.check(given)
        return given

"""A program of the machine's inside a JAX trace: rows for JAX, C++ for one CPU.

The machine's own program for a function calls functions in C++ (``vm.pjrt.native_calls``), on
weights that were laid out for them or that come with each call. JAX can neither differentiate nor
map nor spread such calls. So the program is one primitive here, which has the function in
``jax.lax`` operations as well: what JAX does to it, it does to these, and ``jax.export``, several
devices and other platforms see these. Where nothing is left to do but to compile for one CPU, it is
the machine's program.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeAlias

import jax
import jax.core
from jax.experimental import jet
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import DynamicJaxprTracer
from jaxlib.mlir import ir

from relax2xla.vm.pjrt import varying
from relax2xla.vm.pjrt.jit import inline

#: A program with calls in the place of the module that is lowered: its results on values.
Inline: TypeAlias = Callable[[ir.Module, Sequence[Any]], Sequence[Any]]
#: What a program is made of on values of one, by that.
Calls: TypeAlias = Callable[[Inline, Sequence[Any]], Sequence[Any]]


class Held:
    """A function of arrays in two forms.

    rows: in ``jax.lax`` operations, with 64 bits; outputs: avals of its results; calls: makes the
    form with calls, for one CPU, or None where rows are all; run: the results on known arrays; None
    for those of a program that ``jax.jit`` makes
    """

    def __init__(
        self,
        rows: Callable[..., Sequence[Any]],
        outputs: Iterable[Any],
        calls: Callable[[], Calls | None],
        run: Callable[..., Sequence[Any]] | None = None,
    ) -> None:
        self.rows, self.outputs = rows, tuple(outputs)
        self.run = run or jax.jit(self)
        self.calls = functools.cache(calls)

    def __call__(self, *args: Any) -> list[Any]:
        """The results, of arrays and of values that JAX traces."""
        _tell_sparse()
        return _held_p.bind(*args, held=self)

    def __repr__(self) -> str:
        return "<rows, or the machine's program>"


def is_staged(value: Any) -> bool:
    """Whether a value is known, or of a program that JAX writes down and does nothing else to."""
    return not isinstance(value, jax.core.Tracer) or isinstance(value, DynamicJaxprTracer)


@contextlib.contextmanager
def as_rows() -> Generator[None]:
    """Programs that JAX lowers here have rows alone: they are for others than this process."""
    token = _AS_ROWS.set(True)
    try:
        yield
    finally:
        _AS_ROWS.reset(token)


_AS_ROWS: contextvars.ContextVar[bool] = contextvars.ContextVar("as_rows", default=False)
_held_p = Primitive("relax2xla_held")
_held_p.multiple_results = True


@_held_p.def_impl
def _(*args: Any, held: Held) -> Sequence[Any]:
    return held.run(*args)


@_held_p.def_abstract_eval
def _(*avals: Any, held: Held) -> Sequence[Any]:
    return varying.outputs_on(avals, held.outputs)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, held: Held) -> tuple[Any, Any]:
    moving = [i for i, t in enumerate(tangents) if not isinstance(t, ad.Zero)]

    def of_moving(*values: Any) -> Sequence[Any]:
        given = list(primals)
        for i, value in zip(moving, values, strict=True):
            given[i] = value
        return held.rows(*given)

    outs, ways = jax.jvp(
        of_moving, tuple(primals[i] for i in moving), tuple(tangents[i] for i in moving)
    )
    still = jax.dtypes.float0
    pairs = zip(outs, ways, strict=True)
    return outs, [
        ad.Zero(jax.typeof(y).to_tangent_aval()) if t.dtype == still else t for y, t in pairs
    ]


def _batched(args: Sequence[Any], axes: Sequence[Any], *, held: Held) -> tuple[Any, list[int]]:
    made = jax.vmap(held.rows, tuple(axes))(*args)
    return made, [0] * len(made)


def _in_rows(ctx: Any, *args: Any, held: Held) -> Any:
    with jax.enable_x64(True):  # lowerings of JAX ask for the flag, too
        return mlir.lower_fun(held.rows, multiple_results=True)(ctx, *args)


def _on_cpu(ctx: Any, *args: Any, held: Held) -> Any:
    module = ctx.module_context
    spread = getattr(module.axis_context, "num_devices", 2) != 1
    if spread or module.lowering_parameters.for_export or _AS_ROWS.get():
        return _in_rows(ctx, *args, held=held)
    calls = held.calls()
    if calls is None:
        return _in_rows(ctx, *args, held=held)

    def inlined(program: ir.Module, values: Sequence[Any]) -> Sequence[Any]:
        known = [v if isinstance(v, ir.Value) else mlir.ir_constant(v) for v in values]
        return inline(ctx, known, str(program))

    return calls(inlined, args)


def _jet(primals: Sequence[Any], series: Sequence[Any], *, held: Held) -> tuple[Any, Any]:
    return jet.jet(
        lambda *xs: list(held.rows(*xs)), tuple(primals), tuple(series), factorial_scaled=False
    )


def _sparse(env: Any, *values: Any, held: Held) -> Sequence[Any]:
    from jax.experimental.sparse import transform

    return transform.sparsify_raw(lambda *xs: list(held.rows(*xs)))(env, *values)[0]


def _tell_sparse() -> None:
    """Give ``jax.experimental.sparse`` its rules, where somebody has loaded it."""
    module: Any = sys.modules.get("jax.experimental.sparse.transform")
    for name in ("sparse_rules_bcoo", "sparse_rules_bcsr"):
        getattr(module, name, {}).setdefault(_held_p, _sparse)


jet.jet_rules[_held_p] = _jet
ad.primitive_jvps[_held_p] = _jvp
batching.primitive_batchers[_held_p] = _batched
mlir.register_lowering(_held_p, _in_rows)
mlir.register_lowering(_held_p, _on_cpu, platform="cpu")

"""A function of a module as a function of JAX, with its weights as arguments (decision D18)."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from relax2xla.analysis.variables import all_global_vars
from relax2xla.builder import BlockBuilder
from relax2xla.errors import Gap, TVMError, UnsupportedError
from relax2xla.interop.draws import Draws, is_random_key, with_keys
from relax2xla.interop.programs import Programs
from relax2xla.interop.sized import apart
from relax2xla.interop.weights import Policy, Weights, kind_of, modules_of, nested, want_used
from relax2xla.ir import (
    Binding,
    Call,
    Constant,
    DeviceMesh,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    Span,
    VarBinding,
)
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.rewrite import bindings_deep, post_order_deep
from relax2xla.stablehlo.draws import is_draw
from relax2xla.stablehlo.own_derivatives import LOST
from relax2xla.transform.lower.legalize import is_row
from relax2xla.vm.pjrt import xla

Wide = Literal["exact", "jax"]


class JaxFunction:
    """``fn(params, *args, **kwargs)``; what :func:`extract_jax` gives.

    ``buffers``: weights that are not trained, by the same names; ``with_buffers`` gives the same
    function over others. ``apply(params, buffers, *args, **kwargs)`` gives the result and the
    buffers after the call, which a model in training mode changes. ``draws``: whether it draws
    random numbers, so that it takes a key, and ``rng`` the name of that argument.
    """

    def __init__(self, programs: Programs, name: str, policy: Policy) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"The Relax function {name} as a function of JAX: fn(params, *args)."
        self._programs, self._policy = programs, policy
        weights = programs.weights
        self.buffers: dict[str, Any] = nested(weights.arrays("buffer", policy))
        self.draws, self.rng = programs.draws.used, programs.draws.keyword

    def __call__(self, params: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.apply(params, self.buffers, *args, **kwargs)[0]

    def __repr__(self) -> str:
        return f"<JAX function {self.__name__} of {len(self._programs.weights.paths)} weights>"

    def __copy__(self) -> JaxFunction:
        # It never changes, so that copies of models that hold it share it.
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> JaxFunction:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the function of JAX {self.__name__} cannot be pickled: pickle its module and extract "
            "it again, or save what jax.export makes of it"
        )

    @property
    def argument_names(self) -> Sequence[str]:
        """Names of the model's own arguments."""
        return self._programs.names

    def with_buffers(self, buffers: Mapping[str, Any]) -> JaxFunction:
        """The same function over other buffers."""
        made = JaxFunction.__new__(JaxFunction)
        made.__dict__.update(self.__dict__, buffers=dict(buffers))
        return made

    def apply(self, params: Any, buffers: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The result, and the buffers after the call."""
        weights = self._programs.weights
        given = weights.gathered("param", params, "params", self._policy)
        given |= weights.gathered("buffer", buffers, "buffers", self._policy)
        return self._programs.run(given, args, kwargs, buffers, self._policy)


def extract_jax(
    mod: IRModule | Function,
    name: str = "main",
    *,
    x64: Wide = "exact",
    dtype: Any = None,
    trainable: Sequence[str] | Callable[[str], bool] | None = None,
    remat: Sequence[str] | None = None,
    rng: str = "rng",
) -> tuple[JaxFunction, dict[str, Any]]:
    """``(fn, params)``: a function of a module as a pure function of JAX, and its weights.

    ``fn(params, *args, **kwargs)`` takes and gives what the source's function did: torch's and
    JAX's trees, ONNX's inputs by place or name. It is made of ``jax.lax`` operations while JAX
    traces, so ``jit``, ``grad``, ``jvp``, ``vmap``, ``scan``, ``jax.checkpoint`` and ``jax.export``
    work on it, with the derivatives that torch has (``Op.smooth``). What is compiled for one CPU
    calls functions in C++ where these are faster (:mod:`relax2xla.interop.held`). Dynamic shapes
    are specialised for the shapes at hand.

    ``params``: a nested dictionary by the source's names (``params["layers"]["0"]["weight"]``),
    tied weights once, under their first name. What a program computes from weights alone (folded
    batch norms, other layouts) is computed from them inside ``fn``, and large ones are read as they
    lie (``transform.pipeline.default(for_jax=True)``). Buffers (running statistics,
    integer tables) are in ``fn.buffers``.

    x64: "exact": 64-bit integers and floats are computed as such, whatever JAX's flag says; "jax":
        JAX's flag decides, and UnsupportedError refuses constants that do not fit.
    dtype: "bfloat16" or "float16": float32 weights and arguments are stored and computed in it.
        Constants of the program, and what is computed from them alone, stay float32 until they
        meet a value of the other dtype; sums are accumulated, and results given, in float32.
    trainable: patterns of names (or a predicate) for what is in ``params``; the rest are buffers.
        None: what the source calls parameters; where it does not say, floats that it names, or all
        where it names none.
    remat: patterns of module paths (``["layers.*"]``) whose values are computed again in backward
        passes (``jax.checkpoint``).
    rng: the argument that takes a key of ``jax.random``, where the function draws random numbers
        (dropout in training): ``fn(params, x, rng=key)``. Each draw has a key of its own, folded
        from this one. Without a key it draws the same numbers at each call, or, where the source
        wants others each time (ONNX without a seed), it is a CallError.

    Sizes that depend on values (``nonzero`` and the like) are those of the arguments at hand: what
    they are computed from has to be known, as for ``jnp.nonzero``, or it is an UnsupportedError.

    Raises TVMError for a function that is no single program (effects, packed functions), and
    ValueError for a pattern that fits nothing, and where a model that draws random numbers has an
    argument ``rng`` itself. CallError names the path of weights and arguments that do not fit. See
    :func:`gaps` for rows that have no derivative.
    """
    from relax2xla.transform.pipeline import default
    from relax2xla.vm.plan.build import build

    mod, name, source = entry_of(mod, name)
    for what, where in source.attrs.get("lost_backward", ()):
        warnings.warn(
            f"torch.export leaves out {what} ({where}), so the derivative here is that of forward. "
            "Give it another one by Tensor.detach: x + (y - x).detach() is y with that of x",
            stacklevel=2,
        )
    policy = Policy(x64, dtype, remat or ())
    draws = _draws(mod, name, rng)
    mod, name, func = entry_of(with_keys(mod), name)

    devices = _devices(mod)

    def built(mod: IRModule, calls: bool = False) -> Any:
        pipeline = default(for_jax=True, calls=calls)
        return build(_scalars_apart(mod), relax_pipeline=pipeline, mesh=devices)

    def machine() -> Any:
        return build(_scalars_apart(mod))

    executable, sizes = built(mod), None
    if name not in executable.entries and not isinstance(cut := apart(mod, name), str):
        whole, sizes = cut
        executable = built(whole)
    if name not in executable.entries:
        lines = "\n".join(g.as_text() for g in gaps(mod, name)) or executable.stats()
        raise UnsupportedError(f"{name} is not one program, so JAX cannot trace it:\n{lines}")
    if not policy.exact:
        _refuse_wide(executable[name].func)
    weights = Weights(executable, name, func, _chooser(trainable))
    if trainable is not None and not callable(trainable):
        want_used("trainable", trainable, list(weights.paths.values()), "weight")
    if policy.remat:
        want_used("remat", policy.remat, modules_of(func), "module")
    plain = policy.exact and policy.dtype is None and sizes is None and not weights.state
    alone = plain and devices is None
    if sizes is not None and any(is_draw(b.value) for b in bindings_deep(sizes.func)):
        raise UnsupportedError(
            f"{name}: sizes depend on random numbers, and a program of JAX has one shape, whatever "
            f"the key: {', '.join(sizes.what)}"
        )
    on_one_cpu = (machine, lambda: built(mod, True)) if alone else (None, None)
    programs = Programs(executable, name, func, weights, sizes, draws, *on_one_cpu)
    if draws.used and rng in programs.names:
        raise ValueError(
            f"{name} draws random numbers and has an argument {rng!r} of its own, so the key needs "
            f'another name, as in rng="{rng}_key"'
        )
    fn, params = JaxFunction(programs, name, policy), weights.arrays("param", policy)
    xla.to_large_pages(params.values())
    return fn, nested(params)


def _draws(mod: IRModule, name: str, keyword: str) -> Draws:
    """What a function draws."""
    values = [b.value for f in _reached(mod, name) for b in bindings_deep(f)]
    anew = any(map(is_random_key, values))
    return Draws(keyword, anew or any(map(is_draw, values)), anew)


def _devices(mod: IRModule) -> Any:
    """The devices that a module is written for, of which there need be none yet; None for one.

    JAX says which they are when it calls: rows become its own collectives and mapped functions.
    """
    from relax2xla.runtime.device import Mesh
    from relax2xla.stablehlo.untrusted.gate import devices_of

    distributed = (m for known in mod.global_infos.values() for m in known)
    sizes = [len(m.device_ids) for m in distributed if isinstance(m, DeviceMesh)]
    count = max([devices_of(mod), *sizes])
    return Mesh("cpu", 0, tuple(range(count)), (("device", count),)) if count > 1 else None


def entry_of(mod: IRModule | Function, name: str) -> tuple[IRModule, str, Function]:
    """A module, and the function of it that is meant; TVMError where there is none."""
    if isinstance(mod, Function):
        name = global_symbol(mod) or "main"
        mod = IRModule.from_expr(mod.with_attr("global_symbol", name))
    if name not in mod:
        known = ", ".join(g.name_hint for g in mod)
        raise TVMError(f"the module has no function {name!r}; it has {known}")
    func = mod[name]
    assert isinstance(func, Function)
    return mod, name, func


def traced_call(executable: Any, name: str, func: Function) -> Callable[..., Any]:
    """A function of an executable on flat arguments, for values that JAX traces."""
    import jax

    policy = Policy("exact", None, ())
    source = func.replace(span=None, attrs={})
    weights = Weights(executable, name, source, None)
    programs = Programs(executable, name, source, weights, machine=lambda: executable)
    # Made in the first trace, and no part of it.
    with jax.ensure_compile_time_eval():
        held = {g: weights.arrays(g, policy) for g in ("param", "buffer")}

    def call(*args: Any, **kwargs: Any) -> Any:
        return programs.run({**held["param"], **held["buffer"]}, args, kwargs, {}, policy)[0]

    return call


def gaps(mod: IRModule | Function, name: str = "main") -> list[Gap]:
    """What of a function JAX cannot trace or differentiate, all of it, without tracing.

    Rows without a rule over ``jax.lax`` (or whose rule does not know this call, such as custom
    calls of unknown targets and callbacks into Python), and what makes the function no single
    program: packed functions, effects, sizes that depend on values. Each with the source's names
    of the places. Operators that are not lowered yet are lowered first, where their shapes are
    known.
    """
    from relax2xla.interop.lax_rows import EXCEPTIONS, OPAQUE, RULES
    from relax2xla.transform.lower.legalize import LegalizeOps

    mod, name, _ = entry_of(mod, name)
    mod = with_keys(mod)
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    hosted = list(_on_the_host(mod, name))
    cut = apart(mod, name) if hosted else ""
    why = cut if isinstance(cut, str) else _OF_VALUES
    for what, span, b in hosted:
        found[what, why].append(_place(span, b))
    if not found:
        # What runs on the host has no lowering, and may have sizes that no lowering knows.
        mod = LegalizeOps(every=True)(mod)
    for func in _reached(mod, name):
        for lost in func.attrs.get(LOST, ()):
            found[lost, _RULE_LOST].append(name)
        for b in bindings_deep(func):
            call = b.value
            if not isinstance(call, Call) or not isinstance(call.op, Op) or not is_row(call.op):
                continue
            op = call.op.name
            why = OPAQUE.get(op, "") if op not in RULES else EXCEPTIONS.get(op, _known)(call)
            if why:
                found[op, why].append(_place(b.span, b))
    return [Gap(op, why, tuple(nodes)) for (op, why), nodes in found.items()]


_RULE_LOST = (
    "it has a derivative of its own, which the module has not (its shapes are symbolic, or the "
    "rule cannot be traced alone): that of its rows may be another one, or none"
)
_OF_VALUES = "its size depends on values, which have to be known where JAX traces the function"


def _known(call: Call) -> str:
    return ""


def _place(span: Span | None, b: Binding) -> str:
    span = span or b.span or b.var.span
    return str(span) if span is not None else b.var.name_hint


def _reached(mod: IRModule, name: str) -> Iterator[Function]:
    """The functions that a call of ``name`` runs."""
    todo = [mod.get_global_var(name)]
    for gvar in todo:
        func = mod.functions.get(gvar)
        if isinstance(func, Function):
            yield func
            todo += [g for g in all_global_vars(func) if g not in todo]


def _on_the_host(mod: IRModule, name: str) -> Iterator[tuple[str, Span | None, Binding]]:
    """What XLA cannot hold: what it is, where, and the binding."""
    from relax2xla.vm.plan.host_reasons import HostReasons

    hosts = HostReasons(mod)
    for func in _reached(mod, name):
        for b in bindings_deep(func):
            call = b.value
            if not isinstance(b, VarBinding) or not isinstance(call, Call):
                continue
            # Functions are looked into themselves.
            if isinstance(call.op, GlobalVar) or any(isinstance(a, Function) for a in call.args):
                continue
            if (reason := hosts.value(call, b)) is not None:
                yield reason.what, reason.span, b


def _refuse_wide(func: Function) -> None:
    """UnsupportedError for 64-bit constants that JAX's 32 bits cannot hold, all at once."""
    from relax2xla.vm.pjrt.jax_arguments import is_wide

    if not is_wide(np.zeros(0, np.int64)):
        return
    bad: list[str] = []
    states = {n.args[0] for n in post_order_deep(func) if isinstance(n, Call) and is_draw(n)}
    for node in post_order_deep(func):
        if isinstance(node, Constant) and node.data.dtype.name in ("int64", "uint64"):
            if node in states:
                continue
            limits, ends = (np.iinfo(node.data.dtype.name.replace("64", n)) for n in ("32", "64"))
            # The largest and least of 64 bits become those of 32 (evaluate.constant).
            values = node.data[(node.data != ends.min) & (node.data != ends.max)]
            if values.size and (values.min() < limits.min or values.max() > limits.max):
                where = f" ({node.span})" if node.span is not None else ""
                worst = values.max() if values.max() > limits.max else values.min()
                bad.append(f"{worst}{where}")
    if bad:
        raise UnsupportedError(
            f"constants do not fit the 32 bits that JAX has: {', '.join(bad)}; use x64='exact', or "
            "switch on jax_enable_x64"
        )


def _chooser(trainable: Any) -> Callable[[str], bool] | None:
    if trainable is None:
        return None
    if callable(trainable):
        return lambda name: bool(trainable(name))
    if isinstance(trainable, str):
        raise TypeError(f'trainable is a list of patterns, such as ["head.*"]; got {trainable!r}')
    import fnmatch

    patterns = tuple(trainable)
    return lambda name: any(fnmatch.fnmatchcase(name, p) for p in patterns)


def _scalars_apart(mod: IRModule) -> IRModule:
    """Parameters of no axes as vectors of one: machines keep numbers in their programs."""
    from relax2xla.ir.rewrite import Rewriter
    from relax2xla.op import reshape

    def apart(node: Expr) -> Expr | None:
        if not isinstance(node, Constant) or node.data.ndim or kind_of(node) != "parameter":
            return None
        if id(node) not in made:
            made[id(node)] = Constant(node.data.reshape(1), span=node.span)
        return reshape(made[id(node)], ())

    made: dict[int, Constant] = {}
    functions = {
        g: Rewriter(rule=apart).function(f) if isinstance(f, Function) else f
        for g, f in mod.items()
    }
    if not made:
        return mod
    return mod.replace({g: BlockBuilder().normalize(f) for g, f in functions.items()})

"""JAX functions to Relax modules, and Relax modules to JAX functions.

The module's name is that of the framework, so that ``relax2xla.interop.jax.from_jax`` reads well;
jax itself is imported on first use.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Sequence
from typing import Any

from relax2xla.errors import TVMError
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.ir import (
    Expr,
    Function,
    IRModule,
    Var,
)
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.rewrite import rewrite_function


def from_jax(
    fn: Callable[..., Any], /, *args: Any, raise_ops: bool = False, **kwargs: Any
) -> IRModule:
    """The Relax module of a JAX function, traced on ``args`` and ``kwargs``.

    ``fn``: any function that ``jax.jit`` takes; also one that is jitted already. ``args``: arrays,
    numbers, ``jax.ShapeDtypeStruct``, and pytrees of them. Dimensions of ``jax.export``'s symbolic
    shapes become Relax's, under the same names: ``main`` then runs for any size.

    ``main`` has one parameter a leaf, named by its path (``params["w"][0]`` is ``params_w_0``), and
    gives one tensor or, where ``fn`` returns several leaves, a flat tuple of them in the order of
    ``jax.tree.leaves``. Its operators are StableHLO's, one row an operation; ``raise_ops`` puts
    high-level ones in place of them, as in ``from_stablehlo``. JAX's x64 flag decides, as always,
    whether 64-bit inputs stay so; parameters that it narrowed take 64-bit arrays whose values fit.
    A typed key is its integers; such a parameter takes either. What ``fn``, jitted already, donates
    is marked in the program, for ``build(mod, donate=True)``.

    Raises :class:`OpNotImplemented` for what Relax cannot hold; errors of the tracing are JAX's.
    """
    import jax

    from relax2xla.vm.pjrt import jax_arguments

    leaves = jax.tree_util.tree_flatten_with_path((args, kwargs))[0]
    names = _names(fn, [path for path, _ in leaves])
    jitted = jax.jit(fn, keep_unused=True)
    if any(_is_symbolic(d) for _, leaf in leaves for d in getattr(leaf, "shape", ())):
        from jax import export

        exported = export.export(jitted)(*args, **kwargs)
        mod = from_stablehlo(exported, raise_ops=False)
    else:
        mod = from_stablehlo(jitted.lower(*args, **kwargs), raise_ops=False)
    mod = _named_params(mod, names)
    mod = _marked_donated(mod, fn, args, kwargs)
    wide = [n for n, (_, leaf) in zip(names, leaves, strict=True) if jax_arguments.is_wide(leaf)]
    if wide:
        mod["main"] = mod["main"].with_attr(jax_arguments.NARROWED, wide)
    if raise_ops:
        from relax2xla.transform import RaiseStableHLO

        mod = RaiseStableHLO()(mod)
    return mod


def to_jax(
    mod: IRModule | Function, name: str = "main", *, allow_custom_calls: Sequence[str] = ()
) -> Callable[..., Any]:
    """A function of a module as a JAX function: takes and gives jax arrays, one an operand.

    It can be called, and used inside ``jax.jit`` and what is built on it (``jax.lax`` loops,
    shardings, ``jax.export``): its program is inlined there. It has no derivative and cannot be
    vmapped; JAX says so where that is tried. Weights are constants of the program. Parameters of 64
    bits take what JAX without its x64 flag narrows, and results have the dtypes of the program.
    ``allow_custom_calls``: as of ``build``.
    """
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    if isinstance(mod, Function):
        name = global_symbol(mod) or "main"
    elif name not in mod:
        known = ", ".join(g.name_hint for g in mod)
        raise TVMError(f"the module has no function {name!r}; it has {known}")
    call = VirtualMachine(build(mod, allow_custom_calls=allow_custom_calls))[name]

    def function(*args: Any) -> Any:
        return call(*args)

    function.__name__ = function.__qualname__ = name
    function.__signature__ = call.__signature__
    function.__doc__ = f"The Relax function {name}, compiled by XLA."
    return function


# ---- names of parameters
def _names(fn: Callable[..., Any], paths: Sequence[Any]) -> list[str]:
    """Names of the leaves at ``paths`` of ``(args, kwargs)``: unique identifiers."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    taken: set[str] = set()
    made: list[str] = []
    for root, first, *rest in paths:
        if root.idx == 0:
            words = [_argument(parameters, first.idx)]
        else:
            words = [str(first.key)]
        words += [str(_key(k)) for k in rest]
        name = re.sub(r"\W", "_", "_".join(words), flags=re.ASCII)
        if not name.isidentifier() or keyword.iskeyword(name):
            name = f"arg_{name}"
        number, base = 1, name
        while name in taken:
            name = f"{base}_{number}"
            number += 1
        taken.add(name)
        made.append(name)
    return made


def _argument(parameters: Sequence[inspect.Parameter], index: int) -> str:
    """Name of positional argument ``index``."""
    for i, p in enumerate(parameters):
        if p.kind is p.VAR_POSITIONAL:
            return f"{p.name}_{index - i}"
        if i == index:
            return p.name
    return f"arg{index}"


def _key(key: Any) -> Any:
    """What one step of a pytree's path says: a key, an index, or the name of an attribute."""
    for slot in ("key", "idx", "name"):
        if hasattr(key, slot):
            return getattr(key, slot)
    return key


def _named_params(mod: IRModule, names: Sequence[str]) -> IRModule:
    main = mod["main"]
    if len(main.params) != len(names):
        raise TVMError(
            f"JAX made {len(main.params)} parameters of {len(names)} leaves; close over what is "
            "no array, such as strings and flags"
        )
    attrs = dict(main.attrs)
    if "arg_attrs" in attrs:
        new = dict(zip((p.name_hint for p in main.params), names, strict=True))
        attrs["arg_attrs"] = {new[k]: v for k, v in attrs["arg_attrs"].items()}
    params = [Var(name, p.struct_info, p.span) for p, name in zip(main.params, names, strict=True)]
    values: dict[Var, Expr] = dict(zip(main.params, params, strict=True))
    renamed = rewrite_function(main.replace(params=params, attrs=attrs), values=values)
    mod["main"] = renamed
    return mod


def _marked_donated(
    mod: IRModule, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> IRModule:
    """``mod`` with the marks of arguments that ``fn``, if it is jitted already, donates."""
    from jax import stages, tree

    if not isinstance(fn, stages.Wrapped):
        return mod
    infos = tree.leaves(fn.trace(*args, **kwargs).args_info)
    main = mod["main"]
    donated = [p.name_hint for p, i in zip(main.params, infos, strict=True) if i.donated]
    if donated:
        known = dict(main.attrs.get("arg_attrs", {}))
        marks = {n: {**known.get(n, {}), "jax.buffer_donor": True} for n in donated}
        mod["main"] = main.with_attr("arg_attrs", {**known, **marks})
    return mod


def _is_symbolic(d: Any) -> bool:
    from jax import export

    return export.is_symbolic_dim(d)

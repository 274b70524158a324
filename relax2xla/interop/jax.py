"""JAX functions to Relax modules, and Relax modules to JAX functions.

The module's name is that of the framework, so that ``relax2xla.interop.jax.from_jax`` reads well;
jax itself is imported on first use.
"""

from __future__ import annotations

import inspect
import itertools
import keyword
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from relax2xla.dtypes import dtype_name
from relax2xla.errors import TVMError, UnsupportedError
from relax2xla.importers.shared.trees import register_node, with_trees
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.interop.extract import JaxFunction as JaxFunction
from relax2xla.interop.extract import entry_of, traced_call
from relax2xla.interop.extract import extract_jax as extract_jax
from relax2xla.interop.extract import gaps as gaps
from relax2xla.interop.keys import is_key_dtype as _is_key
from relax2xla.interop.keys import key_impl
from relax2xla.interop.modules import as_equinox, as_nnx
from relax2xla.interop.shard import shard as shard
from relax2xla.interop.static import Static
from relax2xla.ir import (
    Expr,
    Function,
    IRModule,
    TensorStructInfo,
    Var,
)
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.stablehlo.exported import platform_param


def from_jax(fn: Any, /, *args: Any, raise_ops: bool = False, **kwargs: Any) -> IRModule:
    """The Relax module of a JAX function, traced on ``args`` and ``kwargs``.

    ``fn``: any function that ``jax.jit`` takes; also one that is jitted already, whose static
    arguments are those of the call: the module is for these values. Or what ``jax.export`` made,
    an ``Exported`` or the bytes of its ``serialize()``, without further arguments. ``args``:
    arrays, numbers, ``jax.ShapeDtypeStruct``, and pytrees of them. Dimensions of ``jax.export``'s
    symbolic shapes become Relax's, under the same names: ``main`` then runs for any size.

    ``main`` has one parameter a leaf, named by its path (``params["w"][0]`` is ``params_w_0``), and
    gives one tensor or, where ``fn`` returns several leaves, a flat tuple of them in the order of
    ``jax.tree.leaves``. Its operators are StableHLO's, one row an operation; ``raise_ops`` puts
    high-level ones in place of them, as in ``from_stablehlo``. JAX's x64 flag decides, as always,
    whether 64-bit inputs stay so; parameters that it narrowed take 64-bit arrays whose values fit.
    A typed key is its integers; such a parameter takes either. What ``fn``, jitted already, donates
    is marked in the program, for ``build(mod, donate=True)``. :func:`extract_jax` of the module has
    the function's own trees, static arguments (which may be left out) and typed keys.

    Raises :class:`OpNotImplemented` for what Relax cannot hold; errors of the tracing are JAX's.
    """
    from jax import export

    if isinstance(fn, bytes | bytearray | memoryview):
        fn = export.deserialize(bytearray(fn))
    if isinstance(fn, export.Exported):
        if args or kwargs:
            raise TypeError("from_jax takes no arguments beside what jax.export made")
        mod = from_export(fn)
    else:
        mod = traced(fn, args, kwargs, own_derivatives=not raise_ops)
    if raise_ops:
        from relax2xla.transform import RaiseStableHLO

        mod = RaiseStableHLO()(mod)
    return mod


def traced(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    own_derivatives: bool,
) -> IRModule:
    """The module of a function, for these arguments.

    ``own_derivatives``: whether it has the rules of functions with a derivative of their own.
    """
    import jax

    from relax2xla.stablehlo.own_derivatives import LOST
    from relax2xla.vm.pjrt import jax_arguments
    from relax2xla.vm.pjrt.held import as_rows
    from relax2xla.vm.pjrt.own_derivatives import lowered

    known = Static.of(fn, args, kwargs)
    given = known.dynamic(args, kwargs)
    leaves = jax.tree_util.tree_flatten_with_path(given)[0]
    parameters = _parameters(fn)
    names = _names(parameters, [path for path, _ in leaves])
    jitted = jax.jit(known.bound(fn), keep_unused=True)
    symbolic = any(_is_symbolic(d) for _, leaf in leaves for d in getattr(leaf, "shape", ()))
    with as_rows():
        made, results, lost = lowered(jitted, *given, symbolic, own_derivatives)
    mod = _named_params(from_stablehlo(made, raise_ops=False), names)
    trees = _trees(parameters, jax.tree.structure(given), made.out_tree, list(results))
    mod["main"] = with_trees(mod["main"], known.in_trees(trees))
    mod = _marked_donated(mod, fn, args, kwargs)
    wide = [n for n, (_, leaf) in zip(names, leaves, strict=True) if jax_arguments.is_wide(leaf)]
    if wide:
        mod["main"] = mod["main"].with_attr(jax_arguments.NARROWED, wide)
    if lost:
        mod["main"] = mod["main"].with_attr(LOST, list(lost))
    return mod


def to_jax(
    mod: IRModule | Function, name: str = "main", *, allow_custom_calls: Sequence[str] = ()
) -> Callable[..., Any]:
    """A function of a module as a JAX function: takes and gives jax arrays, one an operand.

    A call runs as the machine's. Where JAX traces (``jit``, ``grad``, ``vmap``, ``lax`` loops,
    ``jax.export``), the function is made of ``jax.lax`` operations, as that of :func:`extract_jax`
    is, with its weights as constants. Parameters of 64 bits take what JAX without its x64 flag
    narrows, and results have the dtypes of the program. ``allow_custom_calls``: as of ``build``.
    """
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.pjrt.xla import is_tracer
    from relax2xla.vm.plan.build import build

    mod, name, func = entry_of(mod, name)
    executable = build(mod, allow_custom_calls=allow_custom_calls)
    call = VirtualMachine(executable)[name]
    under_trace: list[Callable[..., Any]] = []

    def function(*args: Any, **kwargs: Any) -> Any:
        if name not in executable.entries or not any(map(is_tracer, _leaves((args, kwargs)))):
            return call(*args, **kwargs)
        if not under_trace:
            under_trace.append(traced_call(executable, name, func))
        return under_trace[0](*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__signature__ = call.__signature__
    function.__doc__ = f"The Relax function {name}, compiled by XLA."
    return function


def jax_function(
    model: Any,
    example_args: Sequence[Any] | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    trust: bool = False,
    **options: Any,
) -> tuple[JaxFunction, dict[str, Any]]:
    """:func:`extract_jax` of any model: ``fn, params = relax2xla.jax_function("model.onnx")``.

    model: an IRModule; the path of a file that ``relax2xla.load`` reads (``trust`` for those that
        can run code); an ``onnx.ModelProto``; a ``torch.nn.Module`` with its example inputs, or an
        ``ExportedProgram``.
    example_args, example_kwargs, dynamic_shapes: for a module, as ``torch.export`` takes them.
    options: those of :func:`extract_jax`.
    """
    if isinstance(model, IRModule | Function):
        return extract_jax(model, **options)
    if isinstance(model, str | os.PathLike):
        from relax2xla.importers.files import load

        path: Any = model
        return extract_jax(load(path, trust=trust), **options)
    if type(model).__module__.startswith("onnx.") and type(model).__name__ == "ModelProto":
        from relax2xla.importers.onnx import from_onnx

        return extract_jax(from_onnx(model), **options)
    from relax2xla.importers.torch import from_exported_program

    given = (example_args, example_kwargs, dynamic_shapes)
    if all(g is None for g in given):
        return extract_jax(from_exported_program(model), **options)
    mod = from_exported_program(
        model, example_args, example_kwargs=example_kwargs, dynamic_shapes=dynamic_shapes
    )
    return extract_jax(mod, **options)


def to_nnx(
    model: Any,
    example_args: Sequence[Any] | None = None,
    *,
    rngs: Any = None,
    rng: str = "rngs",
    **options: Any,
) -> Any:
    """Any model as a ``flax.nnx.Module``: ``nnx.jit``, ``nnx.grad``, ``nnx.Optimizer`` work on it.

    ``module.params`` is a tree of ``nnx.Param`` by the source's names, ``module.buffers`` one of
    ``nnx.BatchStat``, which a call of a model in training mode changes. Takes what
    :func:`jax_function` takes. UnsupportedError without the package flax.

    rngs: an ``nnx.Rngs`` for a model that draws random numbers, whose stream ``dropout`` gives each
        call a key; ``module(x, rngs=...)`` takes others, or a key itself
    """
    return as_nnx(*jax_function(model, example_args, rng=rng, **options), rngs)


def to_equinox(
    model: Any, example_args: Sequence[Any] | None = None, *, rng: str = "key", **options: Any
) -> Any:
    """Any model as an ``equinox.Module``: a tree of ``params`` and ``buffers`` that can be called.

    No gradient reaches ``buffers``; ``module.apply(*args)`` gives the result and the module after
    the call, whose buffers a model in training mode changes. Takes what :func:`jax_function` takes.
    UnsupportedError without the package equinox. A model that draws random numbers takes a key:
    ``module(x, key=key)``.
    """
    return as_equinox(*jax_function(model, example_args, rng=rng, **options))


# ---- trees
def _leaves(tree: Any) -> list[Any]:
    from jax.tree_util import tree_leaves

    return tree_leaves(tree)


def _trees(
    parameters: Sequence[inspect.Parameter], args: Any, made: Any, results: Sequence[Any]
) -> dict[str, Any]:
    """What a function takes and gives, for ``extract_jax``.

    ``args``, ``made``: JAX's trees of ``(args, kwargs)`` and of the result; ``results``: what has
    the dtypes of its leaves.
    """
    counts = itertools.count(), itertools.count()
    given, gives = (_tree(t, c) for t, c in zip((args, made), counts, strict=True))
    count = len(given["tuple"][0]["tuple"])
    names = [_argument(parameters, i) for i in range(count)]
    keys = {str(i): key_impl(r.dtype) for i, r in enumerate(results) if _is_key(r.dtype)}
    return {"in": given, "out": gives, "names": names, **({"keys": keys} if keys else {})}


def _tree(definition: Any, count: Iterator[int]) -> dict[str, Any]:
    """A tree of JAX's as ``importers.trees`` has it."""
    from jax.tree_util import treedef_is_leaf

    if treedef_is_leaf(definition) and definition.num_leaves == 1:
        return {"leaf": next(count)}
    data = definition.node_data()
    if data is None:
        return {"const": None}
    kind, context = data
    text = kind is dict and all(isinstance(k, str) for k in context)
    if text or kind in (tuple, list):
        parts = [_tree(child, count) for child in definition.children()]
        if kind is dict:
            return {"dict": [[k, p] for k, p in zip(context, parts, strict=True)]}
        return {kind.__name__: parts}
    # A type of the user's is put together by JAX, and known in this process alone.
    key = f"{kind.__module__}.{kind.__qualname__} {next(_SERIAL)}"

    def flatten(value: Any) -> Sequence[Any]:
        import jax

        leaves, found = jax.tree.flatten(value)
        if found != definition:
            raise ValueError(f"expected {definition}, given {found}")
        return leaves

    register_node(key, flatten, definition.unflatten)
    return {"node": [key, [{"leaf": next(count)} for _ in range(definition.num_leaves)]]}


_SERIAL = itertools.count()


# ---- what jax.export made
def from_export(exported: Any) -> IRModule:
    """The module of a ``jax.export.Exported``, with parameters for arguments that it dropped."""
    import jax

    mod = from_stablehlo(exported, raise_ops=False)
    main = mod["main"]
    platform = platform_param(main)
    own = [p for p in main.params if p is not platform]
    kept = dict(zip(exported.module_kept_var_idx, own, strict=True))
    params = [kept.get(i) or _unused(a, i) for i, a in enumerate(exported.in_avals)]
    places = jax.tree_util.tree_unflatten(exported.in_tree, range(len(params)))
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(places)[0]]
    names = _names((), paths)
    if platform is not None:
        params.insert(0, platform)
        names.insert(0, "platform" if platform.name_hint in names else platform.name_hint)
    mod["main"] = main.replace(params=params)
    mod = _named_params(mod, names)
    trees = _trees((), exported.in_tree, exported.out_tree, exported.out_avals)
    mod["main"] = with_trees(mod["main"], trees)
    return mod


def _unused(aval: Any, place: int) -> Var:
    """A parameter for an argument that the program does not use."""
    import jax

    if _is_key(aval.dtype):
        aval = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    if any(map(_is_symbolic, aval.shape)):
        info = TensorStructInfo(None, dtype_name(aval.dtype), ndim=len(aval.shape))
        return Var(f"unused_{place}", info)
    return Var(f"unused_{place}", TensorStructInfo.make(tuple(aval.shape), dtype_name(aval.dtype)))


# ---- names of parameters
def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []


def _names(parameters: Sequence[inspect.Parameter], paths: Sequence[Any]) -> list[str]:
    """Names of the leaves at ``paths`` of ``(args, kwargs)``: unique identifiers."""
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
    _refuse_ordered(mod)
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


def _refuse_ordered(mod: IRModule) -> None:
    """UnsupportedError for effects that JAX orders by tokens, such as callbacks with ordered=True.

    What has them takes and gives a token for each kind, which no array stands for.
    """
    marks = mod["main"].attrs.get("arg_attrs", {}).values()
    if not any(m.get("jax.token") for m in marks):
        return
    lines = "\n".join(g.as_text() for g in gaps(mod))
    raise UnsupportedError(
        "the function has ordered effects (ordered=True of jax.debug.print, debug.callback or "
        f"io_callback), which a module has no arguments for; trace it without them:\n{lines}"
    )


def _marked_donated(
    mod: IRModule, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
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

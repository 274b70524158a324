"""Programs under JAX: the C++ dispatch of ``jax.jit``, and a program inside a JAX trace.

* :func:`dispatcher` runs loaded programs (:class:`relax2xla.vm.pjrt.compiler.Loaded`) through
  jaxlib's own dispatch, the fastest way for few arguments, which it checks too. Where jaxlib's
  dispatch is not as this file knows it, :func:`jitted` serves instead.
* :func:`inline_program` is one primitive that inlines a program into what JAX traces.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching as jax_batching
from jax.interpreters import mlir as jax_mlir
from jaxlib import version as jaxlib_version
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func as func_dialect

from relax2xla.errors import DeviceError
from relax2xla.runtime.device import Device
from relax2xla.stablehlo.mlir import operations
from relax2xla.stablehlo.shardings import without_shardings
from relax2xla.vm.pjrt import compiler, varying, xla

# Versions of jaxlib whose dispatch is known to be as :func:`dispatcher` uses it.
KNOWN_DISPATCH = ("0.10.", "0.11.", "0.12.")
_PROBE = "func.func public @main(%a: tensor<1xf32>) -> tensor<1xf32> { return %a : tensor<1xf32> }"


class _FastPath(NamedTuple):
    """What jaxlib's dispatch reads to run a program without asking Python again.

    The names are jaxlib's. ``const_args`` go before the arguments of a call.
    """

    xla_executable: Any
    out_pytree_def: Any
    in_shardings: Sequence[Any]
    out_shardings: Sequence[Any]
    out_avals: Sequence[Any]
    out_committed: Sequence[bool]
    kept_var_bitvec: Sequence[bool]
    in_device_local_layouts: Sequence[Any]
    const_args: Sequence[Any]


# Arrays on the device to the program that fits them, and from its arrays to the result.
Compiled = Callable[[Sequence[Any]], tuple[compiler.Loaded, Callable[[Sequence[Any]], Any]]]


def dispatcher(
    name: str,
    compiled: Compiled,
    traced: Callable[..., Any],
    weights: Sequence[Any],
    device: Device | None,
) -> Callable[..., Any]:
    """A function of arrays under JAX's C++ dispatch: ``compiled`` is asked once a call shape.

    The programs take ``weights``, then the arguments. ``traced``: the function on weights and
    arguments, for values that JAX traces.
    """
    if not _dispatch_fits():
        return functools.partial(jitted(traced, device), *weights)
    weights = list(weights)
    where = xla.sharding(device)

    def miss(*args: Any) -> tuple[Any, _FastPath | None, bool]:
        if any(map(xla.is_tracer, args)):
            return traced(*weights, *args), None, False
        placed = [
            xla.on_device(a, device) if xla.is_array(a) else xla.device_put(np.asarray(a), device)
            for a in args
        ]
        loaded, pack = compiled(placed)
        arrays = loaded.run([*weights, *placed])
        result = pack(arrays)
        leaves, tree = jax.tree.flatten(result)
        # Results that are no arrays (shapes, numbers), or arrays given twice, need ``pack``; and
        # what was moved here from another device would not be moved by the fast path.
        plain = len(leaves) == len(arrays) and all(map(_is, leaves, arrays))
        stayed = all(a is p or not xla.is_array(a) for a, p in zip(args, placed, strict=True))
        if not plain or not stayed:
            return result, None, False
        count = len(weights) + len(args)
        path = _FastPath(
            loaded.executable,
            tree,
            [where] * count,
            [where] * len(arrays),
            loaded.outputs,
            [True] * len(arrays),
            [True] * count,
            [None] * count,
            weights,
        )
        return result, path, False

    return _make_dispatch(name, miss)


def _is(a: Any, b: Any) -> bool:
    return a is b


class _NoKeys(NamedTuple):
    """jaxlib shares dispatch tables by such keys; ours are never shared."""


def _make_dispatch(name: str, miss: Callable[..., Any]) -> Callable[..., Any]:
    def shard(value: Any, to: Any, layout: Any) -> Any:
        return jax.device_put(value, to)

    registry = xla.extension.pytree.default_registry()
    return xla.extension.pjit(name, None, miss, [], [], _NoKeys(), registry, shard)


@functools.cache
def _dispatch_fits() -> bool:
    """Whether jaxlib's dispatch is the one that this file knows; tried out where it is newer."""
    if not hasattr(xla.extension, "pjit"):
        return False
    if jaxlib_version.__version__.startswith(KNOWN_DISPATCH):
        return True
    value = xla.device_put(np.zeros(1, np.float32), None)
    where = xla.sharding(None)
    tree = jax.tree.structure(value)
    program = ir.Module.parse(_PROBE, jax_mlir.make_ir_context())
    loaded = compiler.Loaded(program, [jax.core.ShapedArray((1,), np.dtype("float32"))], None)

    def miss(*args: Any) -> tuple[Any, _FastPath, bool]:
        missed.append(1)
        path = _FastPath(
            loaded.executable, tree, [where], [where], loaded.outputs, [True], [True], [None], []
        )
        return loaded.run(list(args))[0], path, False

    missed: list[int] = []
    try:
        call = _make_dispatch("probe", miss)
        return [float(call(value)[0]) for _ in range(2)] == [0.0, 0.0] and len(missed) == 1
    except Exception:  # whatever a newer jaxlib says, jax.jit itself serves
        return False


_program_p = Primitive("relax2xla_program")
_program_p.multiple_results = True
_serial = itertools.count()


@_program_p.def_abstract_eval
def _program_abstract(*args: Any, program: str, outputs: tuple[Any, ...]) -> Sequence[Any]:
    return varying.outputs_on(args, outputs)


@_program_p.def_impl
def _program_impl(*args: Any, program: str, outputs: tuple[Any, ...]) -> Any:
    bound = functools.partial(_program_p.bind, program=program, outputs=outputs)
    return jax.jit(bound, compiler_options=compiler.COMPILER_OPTIONS)(*args)


def _program_lowering(
    ctx: Any, *args: Any, program: str, outputs: tuple[Any, ...]
) -> Sequence[ir.Value[Any]]:
    return inline(ctx, args, program)


def inline(ctx: Any, args: Sequence[Any], program: str) -> Sequence[ir.Value[Any]]:
    """Clone the functions of a program into the module being lowered, and call the entry."""
    target = ctx.module_context.module
    source = without_shardings(ir.Module.parse(program, context=target.context))
    prefix = f"relax2xla_{next(_serial)}_"
    entry = None
    with ir.InsertionPoint(target.body):
        for op in source.body.operations:
            clone = op.operation.clone()
            name = ir.StringAttr(clone.attributes["sym_name"]).value
            clone.attributes["sym_name"] = ir.StringAttr.get(prefix + name)
            clone.attributes["sym_visibility"] = ir.StringAttr.get("private")
            _prefix_callees(clone, prefix)
            if name == "main":
                entry = clone
    if entry is None:
        raise DeviceError("the program has no function main")
    entry_type = ir.FunctionType(ir.TypeAttr(entry.attributes["function_type"]).value)
    callee = ir.FlatSymbolRefAttr.get(prefix + "main")
    given = [_widened(a, t) for a, t in zip(args, entry_type.inputs, strict=True)]
    return list(func_dialect.CallOp(entry_type.results, callee, given).results)


def _widened(value: Any, wanted: ir.Type) -> Any:
    """An argument that JAX narrowed, as the program wants it."""
    if value.type == wanted:
        return value
    return ir.Operation.create("stablehlo.convert", [wanted], [value]).results[0]


def _prefix_callees(root: Any, prefix: str) -> None:
    for op in operations(root):
        for name in ("callee", "decomposition"):
            if name in op.attributes:
                symbol = ir.FlatSymbolRefAttr(op.attributes[name]).value
                op.attributes[name] = ir.FlatSymbolRefAttr.get(prefix + symbol)
        if "called_computations" in op.attributes:
            symbols = [
                ir.FlatSymbolRefAttr(a).value
                for a in ir.ArrayAttr(op.attributes["called_computations"])
            ]
            op.attributes["called_computations"] = ir.ArrayAttr.get(
                [ir.FlatSymbolRefAttr.get(prefix + s) for s in symbols]
            )


jax_mlir.register_lowering(_program_p, _program_lowering)


def _program_batched(
    args: Sequence[Any], axes: Sequence[int | None], *, program: str, outputs: tuple[Any, ...]
) -> tuple[Any, list[int]]:
    """One call after the other: the program is for these shapes, and nothing looks into it."""
    mapped = {
        i: jax.numpy.moveaxis(a, axis, 0)
        for i, (a, axis) in enumerate(zip(args, axes, strict=True))
        if axis is not None
    }

    def one(row: dict[int, Any]) -> list[Any]:
        given = [row.get(i, a) for i, a in enumerate(args)]
        return _program_p.bind(*given, program=program, outputs=outputs)

    made = jax.lax.map(one, mapped)
    return made, [0] * len(made)


jax_batching.primitive_batchers[_program_p] = _program_batched


def inline_program(args: Sequence[Any], program: str, outputs: Sequence[Any]) -> list[Any]:
    """The results of a program (StableHLO text, function main) on jax values, traced or not."""
    if compiler.LAPACK.decode() in program:
        compiler.load_lapack()
    return _program_p.bind(*args, program=program, outputs=tuple(outputs))


def jitted(call: Callable[..., Any], device: Device | None) -> Any:
    """``call`` under ``jax.jit`` on ``device``, with the options that every program gets.

    Arrays on another device are moved; ValueError for those that are spread over several.
    """
    return jax.jit(
        call, in_shardings=xla.sharding(device), compiler_options=compiler.COMPILER_OPTIONS
    )

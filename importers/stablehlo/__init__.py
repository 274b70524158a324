"""StableHLO programs as Relax modules: one binding an operation, nothing lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from relax2xla.dtypes import dtype_name
from relax2xla.errors import CallError, StableHLOParseError
from relax2xla.importers.stablehlo.named import named, named_dims
from relax2xla.ir import Function, IRModule, TensorStructInfo
from relax2xla.stablehlo.exported import (
    PLATFORMS,
    Exported,
    is_exported,
    platform_param,
    read_exported,
)
from relax2xla.stablehlo.rows import DISCARDABLE

# The attribute of a module with the file of constants that it leaves out.
WEIGHTS: Final = "relax2xla.weights"
# Gives a constant outside of a program: by file, name, dtype and shape.
Weights = Callable[[str, str, str, tuple[int, ...]], Any]
InputInfo = Sequence[tuple[Sequence[int], str]]


def from_stablehlo(
    stablehlo_module: Any,
    input_info: InputInfo | None = None,
    *,
    raise_ops: bool = True,
    isolate: bool | None = None,
    allow_custom_calls: Sequence[str] = (),
    weights: Weights | None = None,
) -> IRModule:
    """A StableHLO program as a Relax module, ready for editing; its entry function is ``main``.

    ``stablehlo_module``: text (str), bytes (text, MLIR bytecode, a portable artefact, or what
    ``jax.export.Exported.serialize`` gives), a path, an MLIR module, a ``jax.stages.Lowered`` or a
    ``jax.export.Exported``. ``input_info``: (shape, dtype) of each input of ``main``; it binds
    dynamic dimensions and checks the others.

    A program that JAX exported for several platforms takes the place of its own among these first.
    ``relax2xla.build`` gives it, so callers and ``input_info`` leave it out.

    ``raise_ops``: put high-level operators in place of rows where that is exact, and inline small
    private functions (``transform.RaiseStableHLO``). Without it the module has one row for each
    operation of the program. Either way ``relax2xla.to_stablehlo`` gives back the program
    unchanged, text and locations, as long as the module is not edited.

    ``isolate``: read MLIR bytecode and portable artefacts in a child process first, because damaged
    ones can end the process that reads them; None: those that come as bytes or in a file.

    ``allow_custom_calls``: targets of the program's custom calls that ``relax2xla.build`` may run
    beside those that are known to compute and nothing else. It holds for this module and what is
    made of it in this process, and is not written with it.

    ``weights`` gives the data of constants that the program leaves out (``dense_resource<name>``),
    for the file that the module's attribute ``relax2xla.weights`` names ("" without it), the
    resource's name, dtype and shape. ``relax2xla.load`` finds the file beside the program.

    A program without ``main`` that has one public function gets that under the name ``main`` (its
    own name is kept in the attribute ``sym_name``, and written again).

    Parameters and results are called as the program calls them (``loc("x")`` of an argument,
    ``jax.arg_info``, ``jax.result_info``, TensorFlow's attributes), dimensions as jax.export or the
    attribute ``relax2xla.shape`` say; parameters without a name are ``arg0``, ``arg1``.

    Raises :class:`StableHLOParseError` for what is no valid program or cannot take these inputs,
    :class:`OpNotImplemented` with everything that Relax cannot hold, and :class:`CallError` where
    ``input_info`` does not fit.
    """
    from relax2xla.stablehlo import emit, read
    from relax2xla.stablehlo.untrusted.targets import checked_targets

    allowed = checked_targets(allow_custom_calls)
    module, exported = _module_of(stablehlo_module, isolate)
    mod = _entry_is_main(_read(module, allowed, weights))
    if exported is not None:
        mod = named_dims(mod, exported.inputs, exported.outputs)
    mod = named(mod)
    index = platform_param(mod["main"]) if "main" in mod else None
    if input_info is not None:
        main = _main(mod)
        if index is not None and len(input_info) == len(main.params) - 1:
            input_info = [((), "int32"), *input_info]
        inputs = _checked_inputs(main, input_info)
        if [p.struct_info for p in main.params] != inputs:
            from relax2xla.stablehlo.described import without_shapes
            from relax2xla.stablehlo.specialise import specialise

            gvar = mod.get_global_var("main")
            plain = mod.replace({**mod.functions, gvar: main.without_attr("sym_name")})
            mod = named(read(specialise(emit(without_shapes(plain)), inputs), allowed))
    if exported is not None and index is not None:
        mod["main"] = mod["main"].with_attr(PLATFORMS, exported.platforms)
    if not raise_ops:
        return mod
    from relax2xla.stablehlo.origin import remember
    from relax2xla.transform import RaiseStableHLO

    return remember(RaiseStableHLO()(mod), mod)


def _read(module: Any, allowed: frozenset[Any], weights: Weights | None) -> IRModule:
    """The module as it is, with the constants that lie outside."""
    from relax2xla.stablehlo import read

    held = module.operation.attributes
    if weights is None:
        return read(module, allowed)
    file = str(held[WEIGHTS].value) if WEIGHTS in held else ""
    mod = read(module, allowed, lambda name, dtype, shape: weights(file, name, dtype, shape))
    rest = {k: v for k, v in mod.attrs.get(DISCARDABLE, {}).items() if k != WEIGHTS}
    return mod.with_attr(DISCARDABLE, rest) if file else mod


def _module_of(source: Any, isolate: bool | None) -> tuple[Any, Exported | None]:
    """The MLIR module of anything that :func:`from_stablehlo` takes, and what JAX says of it."""
    from relax2xla.stablehlo import parse
    from relax2xla.stablehlo.mlir import ir

    match source:
        case str():
            return parse(source, isolate=isolate is not False), None
        case bytes() | bytearray() | memoryview() | os.PathLike():
            plain = isinstance(source, os.PathLike)
            data = Path(source).read_bytes() if plain else bytes(source)
            if is_exported(data):
                exported = read_exported(data)
                return parse(exported.module, isolate=isolate is not False), exported
            return parse(data, isolate=isolate is not False), None
        case ir.Module():
            return source, None
        case _:
            pass
    if callable(compiler_ir := getattr(source, "compiler_ir", None)):
        return compiler_ir("stablehlo"), None
    if isinstance(getattr(source, "mlir_module_serialized", None), bytes):
        exported = Exported.of(source)
        return parse(exported.module, isolate=bool(isolate)), exported
    raise TypeError(
        "from_stablehlo takes StableHLO text or bytes, a path, an MLIR module, a jax Lowered or a "
        f"jax Exported; got {type(source).__name__}"
    )


def _entry_is_main(mod: IRModule) -> IRModule:
    """``mod`` with its only public function under the name ``main``; with several, as it is."""
    public = [g for g, f in mod.items() if "global_symbol" in f.attrs]
    if "main" in mod or len(public) != 1:
        return mod
    (entry,) = public
    own = mod[entry].attrs.get("sym_name", entry.name_hint)
    # Every call refers to the GlobalVar itself, so its name can change in place.
    entry.name_hint = "main"
    main = mod[entry].with_attrs({"global_symbol": "main", "sym_name": own})
    return mod.replace({**mod.functions, entry: main})


def _main(mod: IRModule) -> Function:
    """The function that ``input_info`` speaks of."""
    if "main" in mod:
        return mod["main"]
    names = ", ".join(g.name_hint for g, f in mod.items() if "global_symbol" in f.attrs) or "none"
    raise StableHLOParseError(
        "input_info needs a function @main, or exactly one public function; the program has "
        f"{names}"
    )


def _checked_inputs(main: Function, input_info: InputInfo) -> list[TensorStructInfo]:
    """``input_info`` as struct infos; CallError where they do not fit the parameters."""
    if len(input_info) != len(main.params):
        raise CallError(f"main takes {len(main.params)} inputs; input_info has {len(input_info)}")
    inputs: list[TensorStructInfo] = []
    for param, (shape, dtype) in zip(main.params, input_info, strict=True):
        info = param.struct_info
        wanted = TensorStructInfo(tuple(shape), dtype_name(dtype))
        fits = isinstance(info, TensorStructInfo) and info.dtype == wanted.dtype
        dims = info.dims if isinstance(info, TensorStructInfo) else None
        if not fits or (dims is not None and len(dims) != len(shape)):
            raise CallError(f"main: {param.name_hint} is {info}; input_info says {wanted}")
        for axis, (dim, size) in enumerate(zip(dims or (), shape, strict=False)):
            if isinstance(dim, int) and dim != size:
                raise CallError(
                    f"main: dimension {axis} of {param.name_hint} is {dim}; input_info says {size}"
                )
        inputs.append(wanted)
    return inputs

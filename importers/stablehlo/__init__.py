"""StableHLO programs as Relax modules: one binding an operation, nothing lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relax2xla.dtypes import dtype_name
from relax2xla.errors import CallError, StableHLOParseError
from relax2xla.ir import Function, IRModule, TensorStructInfo

InputInfo = Sequence[tuple[Sequence[int], str]]


def from_stablehlo(
    stablehlo_module: Any, input_info: InputInfo | None = None, *, raise_ops: bool = False
) -> IRModule:
    """A Relax module of StableHLO rows; the entry function is ``main``.

    ``stablehlo_module``: text (str), bytes (text, MLIR bytecode or a portable artefact), a path, an
    MLIR module, a ``jax.stages.Lowered`` or a ``jax.export.Exported``. ``input_info``: (shape,
    dtype) of each input of ``main``; it binds dynamic dimensions and checks the others.
    ``raise_ops``: put high-level operators in place of rows where that is exact
    (``transform.RaiseStableHLO``), which is easier to read and edit; without it,
    ``to_stablehlo`` gives back the program unchanged.

    Raises :class:`StableHLOParseError` for what is no valid program or cannot take these inputs,
    :class:`OpNotImplemented` with everything that Relax cannot hold, and :class:`CallError` where
    ``input_info`` does not fit.
    """
    from relax2xla.stablehlo import emit, read

    mod = _entry_is_main(read(_module_of(stablehlo_module)))
    if input_info is not None:
        inputs = _checked_inputs(mod["main"], input_info)
        if [p.struct_info for p in mod["main"].params] != inputs:
            from relax2xla.stablehlo.specialise import specialise

            mod = read(specialise(emit(mod), inputs))
    if raise_ops:
        from relax2xla.transform import RaiseStableHLO

        mod = RaiseStableHLO()(mod)
    return mod


def _module_of(source: Any) -> Any:
    """The MLIR module of anything that :func:`from_stablehlo` takes."""
    from relax2xla.stablehlo import parse
    from relax2xla.stablehlo.mlir import ir

    match source:
        case str() | bytes():
            return parse(source)
        case bytearray() | memoryview():
            return parse(bytes(source))
        case os.PathLike():
            return parse(Path(source).read_bytes())
        case ir.Module():
            return source
        case _:
            pass
    if callable(compiler_ir := getattr(source, "compiler_ir", None)):
        return compiler_ir("stablehlo")
    if isinstance(serialized := getattr(source, "mlir_module_serialized", None), bytes):
        return parse(serialized)
    raise TypeError(
        "from_stablehlo takes StableHLO text or bytes, a path, an MLIR module, a jax Lowered or a "
        f"jax Exported; got {type(source).__name__}"
    )


def _entry_is_main(mod: IRModule) -> IRModule:
    """``mod`` with its only public function under the name ``main``."""
    if "main" in mod:
        return mod
    public = [g for g, f in mod.items() if "global_symbol" in f.attrs]
    if len(public) != 1:
        names = ", ".join(g.name_hint for g in public) or "none"
        raise StableHLOParseError(
            "the program has no function @main, and not exactly one public function; "
            f"it has {names}"
        )
    # Every call refers to the GlobalVar itself, so its name can change in place.
    public[0].name_hint = "main"
    functions = {
        g: f.without_attr("sym_name").with_attr("global_symbol", "main") if g is public[0] else f
        for g, f in mod.items()
    }
    return mod.replace(functions)


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

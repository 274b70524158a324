"""Dynamic StableHLO programs for given static input shapes (StableHLO's own shape refinement)."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.errors import StableHLOParseError
from relax2xla.ir.expr import Call, Function, GlobalVar
from relax2xla.ir.module import IRModule
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.stablehlo.codecs import sinfo_to_type
from relax2xla.stablehlo.emitter import emit
from relax2xla.stablehlo.mlir import first_line, ir, to_bytecode
from relax2xla.stablehlo.reader import read


def specialise(module: ir.Module, inputs: Sequence[TensorStructInfo]) -> ir.Module:
    """A copy of ``module`` whose ``main`` takes tensors of the static shapes ``inputs``.

    Every function is inlined or refined; ``?`` dimensions that follow from the inputs get their
    value, and shape assertions (of ``jax.export``) are checked. Raises
    :class:`StableHLOParseError` where an assertion fails or a shape does not follow.
    """
    from jax.extend.mlir import refine_polymorphic_shapes

    with module.context, ir.Location.unknown():
        copy = ir.Module.parse(to_bytecode(module))
        main = next(
            op.operation
            for op in copy.body.operations
            if ir.StringAttr(op.operation.attributes["sym_name"]).value == "main"
        )
        block = main.regions[0].blocks[0]
        point = ir.InsertionPoint.at_block_begin(block)
        types = [sinfo_to_type(i) for i in inputs]
        for argument, t in zip(block.arguments, types, strict=True):
            old = argument.type
            if old == t:
                continue
            argument.set_type(t)
            # The refinement removes the conversion again; until then it keeps the module valid.
            bridge = ir.Operation.create("stablehlo.convert", [old], [argument], ip=point)
            argument.replace_all_uses_except(bridge.results[0], bridge)
        results = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))
        try:
            refined = refine_polymorphic_shapes(to_bytecode(copy), True, True)
        except (ValueError, RuntimeError) as e:
            shapes = ", ".join(map(str, inputs))
            raise StableHLOParseError(
                f"the program cannot be specialised for the inputs {shapes}: {first_line(e)}"
            ) from e
        return ir.Module.parse(refined)


def static_program(mod: IRModule, func: Function, inputs: Sequence[TensorStructInfo]) -> IRModule:
    """``func`` of ``mod``, a program of rows, as the function ``main`` for static ``inputs``."""
    return read(specialise(emit(with_main(mod, func)), inputs))


def with_main(mod: IRModule, func: Function) -> IRModule:
    """``func`` as the function ``main``, and the functions of ``mod`` that it may need."""
    functions = mod.relax_functions()
    named = {s for f in functions.values() for s in _named(f)}
    rest = {
        g: f
        for g, f in functions.items()
        if "global_symbol" not in f.attrs or (g.name_hint in named and g.name_hint != "main")
    }
    main = func.replace(attrs={"global_symbol": "main"})
    return IRModule({GlobalVar("main"): main, **rest}, mod.attrs)


def _named(func: Function) -> list[str]:
    """Functions that the attributes of calls in ``func`` name."""
    calls = (node for node in post_order_deep(func) if isinstance(node, Call))
    return [s for c in calls for s in c.attrs.get("called_computations") or ()]

"""Dynamic StableHLO programs for given static input shapes (StableHLO's own shape refinement)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from relax2xla.errors import CallError, StableHLOParseError
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
    value, and shape assertions (of ``jax.export``) are checked. Raises :class:`CallError` where an
    assertion does not hold, and :class:`StableHLOParseError` where a shape does not follow.
    """
    from jax.extend.mlir import refine_polymorphic_shapes

    with module.context, ir.Location.unknown():
        copy = ir.Module.parse(to_bytecode(module))
        main = _main(copy)
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
            if unmet := _unmet(copy, str(e)):
                raise CallError(f"{unmet}; given {shapes}") from None
            raise StableHLOParseError(
                f"the program cannot be specialised for the inputs {shapes}: {first_line(e)}"
            ) from e
        return ir.Module.parse(refined)


def _main(module: ir.Module) -> ir.Operation:
    return next(
        op.operation
        for op in module.body.operations
        if ir.StringAttr(op.operation.attributes["sym_name"]).value == "main"
    )


_ASSERTION = re.compile(
    r"Input shapes do not match the polymorphic shapes specification\. (?P<why>.*?)\. "
    r"Using the following polymorphic shapes specifications: (?P<shapes>.*?)\. "
    r"(?:Obtained|Please)",
    re.DOTALL,
)
_VARIABLE = re.compile(r"(?:value of|dimension variable) '(\w+)'")
_SHAPE = re.compile(r"(?P<of>[^,=]+)\.shape = \((?P<dims>.*?)\)(?=$|,[^ ])")
_COMMA = re.compile(r", *(?![^()]*\))")


def _unmet(module: ir.Module, error: str) -> str:
    """The shape assertion of ``main`` that does not hold, with the dimension; "" where all do.

    error: what the refinement of the whole program says, which may stop before it comes to that
    """
    from jax.extend.mlir import refine_polymorphic_shapes

    found = _ASSERTION.search(error)
    if found is None:
        try:
            refine_polymorphic_shapes(to_bytecode(_assertions(module)), True, True)
        except (ValueError, RuntimeError) as e:
            found = _ASSERTION.search(str(e))
    if found is None:
        return ""
    variable = _VARIABLE.search(found["why"])
    places = [
        f"dimension {i} ({dim}) of {shape['of']}"
        for shape in _SHAPE.finditer(found["shapes"])
        for i, dim in enumerate(filter(None, _COMMA.split(shape["dims"])))
        if variable is not None and re.search(rf"\b{variable[1]}\b", dim)
    ]
    where = " and ".join(places) or found["shapes"]
    return f"the arguments do not fit {where}: {found['why'][:1].lower()}{found['why'][1:]}"


def _assertions(module: ir.Module) -> ir.Module:
    """A copy of ``module`` whose ``main`` checks its shapes, and does nothing else."""
    copy = ir.Module.parse(to_bytecode(module))
    main = _main(copy)
    inputs = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).inputs
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]
    *rest, end = (op.operation for op in main.regions[0].blocks[0].operations)
    ir.Operation.create("func.return", [], [], ip=ir.InsertionPoint(end))
    end.erase()
    for op in reversed(rest):
        target = op.attributes["call_target_name"] if op.name == "stablehlo.custom_call" else None
        asserts = target is not None and ir.StringAttr(target).value == "shape_assertion"
        if not asserts and all(not list(r.uses) for r in op.results):
            op.erase()
    return copy


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

"""Programs with 6-bit floats as XLA can compile them: their values held in 8 bits.

XLA reads types of six bits, but ends the process where a constant has one, and XLA:CPU has code for
none. Every such value is a value of float8_e4m3fn too; so the types change, constants are written
anew, and what converts to six bits rounds as ml_dtypes and XLA's own evaluator do: to the nearest,
ties to even, what is out of range to the largest, NaN to -0.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import UnsupportedError
from relax2xla.stablehlo.codecs import dtype_of, type_to_sinfo
from relax2xla.stablehlo.constants import read_elements, write_elements
from relax2xla.stablehlo.mlir import ir

# Bits of mantissa, the least normal number, the largest number.
FORMS: Final = {"float6_e2m3fn": (3, 1.0, 7.5), "float6_e3m2fn": (2, 0.25, 28.0)}
WIDE: Final = "f8E4M3FN"
# Operations that only move values, or compare them.
_MOVES: Final = """
    abs broadcast_in_dim case clamp compare concatenate constant convert dynamic_slice
    dynamic_update_slice gather get_tuple_element if maximum minimum negate optimization_barrier
    pad reshape return reverse select slice sort transpose tuple while
"""
_EXACT: Final = frozenset(f"stablehlo.{name}" for name in _MOVES.split()) | {
    "func.call",
    "func.func",
    "func.return",
}

_ROUND: Final = """
func.func private @{name}(%x: {wide}) -> {narrow} {{
  %a = stablehlo.abs %x : {wide}
  %least = stablehlo.constant dense<{least}> : {wide}
  %most = stablehlo.constant dense<{most}> : {wide}
  %scale = stablehlo.constant dense<{scale}> : {wide}
  %zero = stablehlo.constant dense<-0.0> : {wide}
  %mask = stablehlo.constant dense<0x7F800000> : {bits}
  %b = stablehlo.clamp %least, %a, %most : {wide}
  %c = stablehlo.bitcast_convert %b : ({wide}) -> {bits}
  %d = stablehlo.and %c, %mask : {bits}
  %power = stablehlo.bitcast_convert %d : ({bits}) -> {wide}
  %step = stablehlo.multiply %power, %scale : {wide}
  %e = stablehlo.divide %x, %step : {wide}
  %f = stablehlo.round_nearest_even %e : {wide}
  %g = stablehlo.multiply %f, %step : {wide}
  %minus = stablehlo.negate %most : {wide}
  %h = stablehlo.clamp %minus, %g, %most : {wide}
  %nan = stablehlo.compare NE, %x, %x : ({wide}, {wide}) -> {flags}
  %i = stablehlo.select %nan, %zero, %h : {flags}, {wide}
  %j = stablehlo.convert %i : ({wide}) -> {narrow}
  return %j : {narrow}
}}
"""


def widen(module: ir.Module) -> None:
    """Change ``module`` so that no value has six bits; UnsupportedError where it cannot be done."""
    with module.context, ir.Location.unknown():
        ops = _operations(module)
        for op in ops:
            _check(op)
        count = 0
        for op in ops:
            if op.name == "stablehlo.constant" and _form(op.results[0].type):
                info: Any = type_to_sinfo(op.results[0].type)
                values = read_elements(op, info).astype(numpy_dtype("float8_e4m3fn"))
                op.attributes["value"] = write_elements(values, _wide(op.results[0].type))
            elif op.name == "stablehlo.convert" and (form := _form(op.results[0].type)):
                if not _form(op.operands[0].type):
                    _round(module, op, form, f"relax2xla_six_bits_{count}")
                    count += 1
        for op in ops:
            for region in op.regions:
                for block in region.blocks:
                    for argument in block.arguments:
                        argument.set_type(_wide(argument.type))
            for value in op.results:
                value.set_type(_wide(value.type))
            if op.name == "func.func":
                t: Any = ir.TypeAttr(op.attributes["function_type"]).value
                made = ir.FunctionType.get(
                    [_wide(i) for i in t.inputs], [_wide(r) for r in t.results]
                )
                op.attributes["function_type"] = ir.TypeAttr.get(made)


def _operations(module: ir.Module) -> list[Any]:
    found: list[Any] = []
    stack = [module.operation]
    while stack:
        for region in stack.pop().regions:
            for block in region.blocks:
                inner = [op.operation for op in block.operations]
                found += inner
                stack += [op for op in inner if len(op.regions)]
    return found


def _check(op: Any) -> None:
    """UnsupportedError for what does more with 6-bit floats than to move them."""
    types = [v.type for v in (*op.operands, *op.results)]
    if op.name == "func.func":
        t: Any = ir.TypeAttr(op.attributes["function_type"]).value
        types += [*t.inputs, *t.results]
        if ir.StringAttr(op.attributes["sym_name"]).value == "main" and any(map(_form, types)):
            raise UnsupportedError(
                "main takes or gives 6-bit floats, which XLA has no arrays of; convert them to "
                "float32 in the program"
            )
    if op.name not in _EXACT and any(map(_form, types)):
        raise UnsupportedError(
            f"{op.name} of 6-bit floats has no code in XLA; convert them to float32 before it"
        )


def _form(t: ir.Type) -> str:
    """The 6-bit dtype of a tensor, or nothing."""
    if isinstance(t, ir.TupleType):
        return next((f for i in range(t.num_types) if (f := _form(t.get_type(i)))), "")
    if not isinstance(t, ir.RankedTensorType):
        return ""
    dtype = dtype_of(t.element_type)
    return dtype if dtype in FORMS else ""


def _wide(t: ir.Type) -> ir.Type:
    """``t`` with eight bits in place of six."""
    if not _form(t):
        return t
    if isinstance(t, ir.TupleType):
        return ir.TupleType.get_tuple([_wide(t.get_type(i)) for i in range(t.num_types)])
    assert isinstance(t, ir.RankedTensorType)
    return ir.RankedTensorType.get(t.shape, ir.Type.parse(WIDE))


def _round(module: ir.Module, op: Any, form: str, name: str) -> None:
    """Let a function compute what ``op`` converts to six bits."""
    mantissa, least, most = FORMS[form]
    shape: Any = ir.RankedTensorType(op.results[0].type).shape

    def tensor(element: str) -> str:
        return "tensor<" + "".join(f"{d}x" for d in shape) + element + ">"

    text = _ROUND.format(
        name=name,
        wide=tensor("f32"),
        narrow=tensor(WIDE),
        bits=tensor("i32"),
        flags=tensor("i1"),
        least=least,
        most=most,
        scale=float(np.ldexp(1.0, -mantissa)),
    )
    helper = ir.Module.parse(text)
    module.body.append(helper.body.operations[0].operation.clone())
    at = ir.InsertionPoint(op)
    f32 = ir.Type.parse(tensor("f32"))
    source = ir.Operation.create("stablehlo.convert", [f32], [op.operands[0]], ip=at)
    called = ir.Operation.create(
        "func.call",
        [ir.Type.parse(tensor(WIDE))],
        [source.results[0]],
        attributes={"callee": ir.FlatSymbolRefAttr.get(name)},
        ip=at,
    )
    op.operands[0] = called.results[0]

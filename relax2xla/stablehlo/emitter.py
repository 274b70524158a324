"""Relax -> StableHLO: one generic writer for every row of table.py (design decision D2).

``emit`` writes rows, constants, calls of functions of the module, and tuples; a high-level operator
is an error (``transform.LegalizeOps`` turns it into rows). Result types are the struct info of the
bindings, symbolic dimensions become ``?``. The walk is iterative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from relax2xla.errors import EmitError
from relax2xla.ir.base import Span
from relax2xla.ir.collection import no_collection
from relax2xla.ir.expr import (
    Binding,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
)
from relax2xla.ir.module import IRModule
from relax2xla.ir.source_names import ARG_INFO
from relax2xla.ir.struct_info import FuncStructInfo, StructInfo, TupleStructInfo
from relax2xla.stablehlo.codecs import sinfo_to_type, write_any, write_attr
from relax2xla.stablehlo.constants import name_resource, write_elements, write_resource
from relax2xla.stablehlo.locations import module_span, write_location
from relax2xla.stablehlo.mlir import context, first_line, ir
from relax2xla.stablehlo.prelude import symbols_of, write_symbol
from relax2xla.stablehlo.rows import DISCARDABLE, RowOp
from relax2xla.stablehlo.table import CONSTANT, FUNC_RETURN, RETURN, RETURNS, TERMINATORS

# Gives the name of the resource for a constant that is not written, else None.
LeftOut = Callable[[Constant], "str | None"]
# Codecs of values that compare equal without being the same (-0.0 and 0.0, 1 and True).
_UNCACHED = frozenset({"any", "f32", "result_accuracy"})
# One MLIR value, and the result of one operation: its value, or the list of several results.
MlirValue = Any
Value = Any


def emit(
    mod: IRModule,
    ctx: ir.Context | None = None,
    left_out: LeftOut | None = None,
    resources: bool = True,
) -> ir.Module:
    """The verified MLIR module of ``mod``, in ``ctx`` or a context of its own.

    ``left_out`` gives the names of resources for constants whose data the program does not hold.
    ``resources``: whether constants that were read as resources are that again. Neither XLA nor
    portable artefacts take them; without, all constants are dense.

    Raises :class:`EmitError`, which names the function and the binding.
    """
    with ctx or context(), ir.Location.unknown(), no_collection():
        return _Emitter(mod, left_out, resources).module()


@dataclass(slots=True)
class _Frame:
    """A block that is being written."""

    block: ir.Block
    point: ir.InsertionPoint
    bindings: Iterator[Binding]
    body: Expr
    terminator: str


class _Emitter:
    """The state of one :func:`emit`."""

    def __init__(self, mod: IRModule, left_out: LeftOut | None, resources: bool) -> None:
        self.mod, self.left_out, self.keeps_resources = mod, left_out, resources
        self.env: dict[Expr, Value] = {}
        self.regions: dict[Expr, Function] = {}
        self.types: dict[StructInfo, ir.Type] = {}
        self.attrs: dict[tuple[str, Any], ir.Attribute] = {}
        self.locations: dict[int, tuple[Span, ir.Location]] = {}
        # Struct info of variables that a match_cast refines.
        self.casts: dict[Var, StructInfo] = {}
        self.resources: dict[tuple[str, ir.Type], tuple[Any, Any]] = {}
        self.unknown = ir.Location.unknown()
        self.symbols: dict[GlobalVar, ir.Attribute] = {}
        self.where = ""
        # Where the binding is that is being written; operations without a place of their own.
        self.place: Span | None = None

    # ---- module and functions
    def module(self) -> ir.Module:
        made = ir.Module.create(self.module_location())
        held = made.operation.attributes
        if "sym_name" in self.mod.attrs:
            held["sym_name"] = ir.StringAttr.get(self.mod.attrs["sym_name"])
        for name, value in self.mod.attrs.get(DISCARDABLE, {}).items():
            held[name] = write_any(value)
        point = ir.InsertionPoint(made.body)
        symbols = symbols_of(self.mod)
        for gvar, func in self.mod.items():
            symbol = gvar.name_hint
            if isinstance(func, Function):
                # The empty name is one, too.
                own = func.attrs.get("sym_name", func.attrs.get("global_symbol"))
                symbol = symbol if own is None else own
            self.symbols[gvar] = ir.FlatSymbolRefAttr.get(symbol)
        for index, (gvar, func) in enumerate(self.mod.items()):
            while symbols and symbols[0].before <= index:
                write_symbol(symbols.pop(0), point)
            if not isinstance(func, Function):
                raise EmitError(
                    f"{gvar.name_hint} is a {type(func).__name__}; StableHLO holds Relax functions "
                    "only. Lower it to Relax, or let the virtual machine call it."
                )
            self.where = gvar.name_hint
            self.function(gvar, func, point)
        # Of the functions that stood before these, some may be gone.
        for symbol in symbols:
            write_symbol(symbol, point)
        try:
            made.operation.verify()
        except ir.MLIRError as e:
            raise EmitError(f"MLIR refuses the program: {first_line(e)}") from e
        return made

    def module_location(self) -> ir.Location:
        """What the module says, else what the reader leaves out."""
        where = self.mod.attrs.get("location")
        if where is not None:
            try:
                return write_location(Span(name=where, kind="opaque"))
            except (ir.MLIRError, ValueError) as e:
                raise EmitError(f"the module's attribute location: {first_line(e)}") from e
        first = next(iter(self.mod.functions.values()), None)
        return write_location(module_span(first.span if isinstance(first, Function) else None))

    def function(self, gvar: GlobalVar, func: Function, point: ir.InsertionPoint) -> None:
        attrs = func.attrs
        held: dict[str, ir.Attribute] = {
            "sym_name": ir.StringAttr.get(ir.FlatSymbolRefAttr(self.symbols[gvar]).value)
        }
        visibility = attrs.get("sym_visibility")
        if visibility is None and "global_symbol" not in attrs:
            visibility = "private"
        if visibility is not None:
            held["sym_visibility"] = ir.StringAttr.get(visibility)
        types = [self.type(p.struct_info) for p in func.params]
        # The result types are known when the body is written.
        held["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        if arguments := attrs.get("arg_attrs"):
            held["arg_attrs"] = self.argument_attrs(func, arguments)
        for name, value in attrs.get(DISCARDABLE, {}).items():
            held[name] = write_any(value)
        op = ir.Operation.create(
            "func.func", attributes=held, regions=1, loc=self.location(func.span), ip=point
        )
        locations = [self.location(_own_place(p.span)) for p in func.params]
        block = op.regions[0].blocks.append(*types, arg_locs=locations)
        self.env.clear()
        self.regions.clear()
        self.env.update(zip(func.params, block.arguments, strict=True))
        returned = self.block(func, block)
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, returned))
        if "res_attrs" in attrs:
            results = attrs["res_attrs"]
            if len(results) != len(returned):
                raise self.error(
                    f"res_attrs has {len(results)} entries for {len(returned)} results"
                )
            op.attributes["res_attrs"] = ir.ArrayAttr.get([write_any(r) for r in results])

    def argument_attrs(self, func: Function, given: Mapping[str, Any]) -> ir.Attribute:
        names = [p.name_hint for p in func.params]
        for name in given:
            if names.count(name) != 1:
                raise self.error(
                    f"the attribute arg_attrs speaks of {name!r}, which is not the name of exactly "
                    f"one parameter; there are {', '.join(names) or 'none'}"
                )
        return ir.ArrayAttr.get([write_any(given.get(n, {})) for n in names])

    # ---- blocks
    def block(self, func: Function, block: ir.Block) -> list[ir.Type]:
        """Write the body of a function and all regions in it; gives the types it returns."""
        terminator = func.attrs.get("terminator", FUNC_RETURN)
        if terminator not in TERMINATORS:
            known = ", ".join(sorted(TERMINATORS))
            raise self.error(f"the attribute terminator must be one of {known}; got {terminator!r}")
        stack = [self.frame(func, block, terminator)]
        returned: list[ir.Type] = []
        while stack:
            frame = stack[-1]
            for binding in frame.bindings:
                opened = self.binding(binding, frame)
                if opened:
                    stack.extend(reversed(opened))
                    break
            else:
                stack.pop()
                values = self.spread(frame.body, frame.point)
                span = frame.body.span
                ir.Operation.create(
                    frame.terminator, [], values, loc=self.location(span), ip=frame.point
                )
                if not stack:
                    returned = [v.type for v in values]
        return returned

    def frame(self, func: Function, block: ir.Block, terminator: str) -> _Frame:
        bindings = chain.from_iterable(b.bindings for b in func.body.blocks)
        for b in chain.from_iterable(b.bindings for b in func.body.blocks):
            if isinstance(b, MatchCast) and isinstance(b.value, Var):
                self.casts.setdefault(b.value, b.struct_info)
        body = func.body
        return _Frame(block, ir.InsertionPoint(block), bindings, body, terminator)

    def binding(self, binding: Binding, frame: _Frame) -> list[_Frame]:
        """Write one binding; gives the frames of the regions that must be filled next."""
        var, value = binding.var, binding.value
        self.place = binding.span or var.span
        match value:
            case Call(op=RowOp()):
                return self.row(var, value, self.result(binding), frame.point)
            case Call(op=GlobalVar()):
                self.env[var] = self.call(value, self.result(binding), frame.point)
            case Function():
                self.regions[var] = value
            case Var() if value in self.regions:
                self.regions[var] = self.regions[value]
            case _:
                self.env[var] = self.value(value, frame.point)
        return []

    def result(self, binding: Binding) -> StructInfo:
        """What is known of the call that is bound, a match_cast of the variable included."""
        if isinstance(binding, MatchCast):
            return binding.struct_info
        return self.casts.get(binding.var) or binding.value.struct_info

    def row(
        self, var: Var | None, call: Call, info: StructInfo, point: ir.InsertionPoint
    ) -> list[_Frame]:
        op = call.op
        if not isinstance(op, RowOp):
            raise TypeError("not a row")
        row = op.row
        if "elements" in row.attrs.values():
            self.env[var or call] = self.constant(call, point)
            return []
        operands: list[MlirValue] = []
        regions: list[Function] = []
        for arg in call.args:
            region = self.regions.get(arg) if isinstance(arg, Var) else None
            if region is not None or isinstance(arg, Function):
                regions.append(arg if isinstance(arg, Function) else self.regions[arg])
            elif regions:
                raise self.error("regions must come after all operands", call)
            elif isinstance(arg.struct_info_, FuncStructInfo):
                raise self.error(f"the region {arg!r} must be a local function", call)
            else:
                operands.append(self.operand(arg, point))
        if row.regions >= 0 and len(regions) != row.regions:
            raise self.error(f"{row.mlir_name} has {row.regions} regions; got {len(regions)}", call)
        infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
        made = ir.Operation.create(
            row.mlir_name,
            [self.type(i) for i in infos],
            operands,
            self.row_attrs(call) if call.attrs else None,
            regions=len(regions),
            loc=self.location(call.span or self.place),
            ip=point,
        )
        results = made.results
        self.env[var or call] = list(results) if isinstance(info, TupleStructInfo) else results[0]
        if not regions:
            return []
        terminator = RETURNS.get(row.mlir_name, RETURN)
        opened: list[_Frame] = []
        for region, func in zip(made.regions, regions, strict=True):
            block = region.blocks.append(
                *[self.type(p.struct_info) for p in func.params],
                arg_locs=[self.location(p.span) for p in func.params],
            )
            self.env.update(zip(func.params, block.arguments, strict=True))
            opened.append(self.frame(func, block, terminator))
        return opened

    def row_attrs(self, call: Call) -> dict[str, ir.Attribute]:
        """The attributes of a call by the codecs of its row."""
        codecs = call.op.row.attrs if isinstance(call.op, RowOp) else {}
        made: dict[str, ir.Attribute] = {}
        for name, value in call.attrs.items():
            if name == DISCARDABLE:
                made.update((n, write_any(v)) for n, v in value.items())
                continue
            codec = codecs.get(name)
            if codec is None:
                raise self.error(f"there is no attribute {name!r}", call)
            codec = codec.removeprefix("?")
            try:
                if codec in _UNCACHED:
                    made[name] = write_attr(codec, value)
                    continue
                key = (codec, value)
                known = self.attrs.get(key)
                if known is None:
                    self.attrs[key] = known = write_attr(codec, value)
                made[name] = known
            except EmitError as e:
                raise self.error(f"the attribute {name!r}: {e}", call) from e
        return made

    def call(self, call: Call, info: StructInfo, point: ir.InsertionPoint) -> Value:
        """Write a call of another function of the module."""
        callee = self.symbols.get(call.op) if isinstance(call.op, GlobalVar) else None
        if callee is None:
            raise self.error(f"the module has no function {call.op!r}", call)
        infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
        attrs = {"callee": callee}
        for name, value in call.attrs.get(DISCARDABLE, {}).items():
            attrs[name] = write_any(value)
        made = ir.Operation.create(
            "func.call",
            [self.type(i) for i in infos],
            [self.operand(a, point) for a in call.args],
            attrs,
            loc=self.location(call.span or self.place),
            ip=point,
        )
        return list(made.results) if isinstance(info, TupleStructInfo) else made.results[0]

    # ---- values
    def value(self, expr: Expr, point: ir.InsertionPoint) -> Value:
        """The value of an expression: one MLIR value, or the list of a tuple's."""
        match expr:
            case Var():
                if expr not in self.env:
                    raise self.error(f"{expr.name_hint} is used before it is bound")
                return self.env[expr]
            case Tuple():
                return [self.operand(f, point) for f in expr.fields]
            case TupleGetItem():
                held = self.value(expr.tuple_value, point)
                if isinstance(held, list):
                    return held[expr.index]
                return self.element(held, expr.index, point)
            case Constant():
                return self.constant(Call(expr, [expr], struct_info=expr.struct_info), point)
            case Call(op=RowOp()):
                if self.row(None, expr, expr.struct_info, point):
                    raise self.error("a call with regions must be bound to a variable", expr)
                return self.env[expr]
            case Call(op=GlobalVar()):
                return self.call(expr, expr.struct_info, point)
            case Call():
                raise self.error(
                    f"{expr.op!r} is no StableHLO row; run transform.LegalizeOps before, "
                    "which leaves what XLA cannot hold",
                    expr,
                )
            case _:
                raise self.error(f"StableHLO has no {type(expr).__name__}", expr)

    def operand(self, expr: Expr, point: ir.InsertionPoint) -> MlirValue:
        """``expr`` as one MLIR value; several are packed into a tuple value."""
        held = self.env.get(expr) if isinstance(expr, Var) else None
        if held is None:
            held = self.value(expr, point)
        if not isinstance(held, list):
            return held
        t = ir.TupleType.get_tuple([v.type for v in held])
        return ir.Operation.create(
            "stablehlo.tuple", [t], held, loc=self.unknown, ip=point
        ).results[0]

    def spread(self, expr: Expr, point: ir.InsertionPoint) -> list[MlirValue]:
        """The values that a function with the body ``expr`` returns."""
        held = self.value(getattr(expr, "body", expr), point)
        if isinstance(held, list):
            return held
        if isinstance(t := held.type, ir.TupleType):
            return [self.element(held, i, point) for i in range(t.num_types)]
        return [held]

    def element(self, held: MlirValue, index: int, point: ir.InsertionPoint) -> MlirValue:
        i32 = ir.IntegerType.get_signless(32)
        return ir.Operation.create(
            "stablehlo.get_tuple_element",
            [ir.TupleType(held.type).get_type(index)],
            [held],
            {"index": ir.IntegerAttr.get(i32, index)},
            loc=self.unknown,
            ip=point,
        ).results[0]

    def constant(self, call: Call, point: ir.InsertionPoint) -> MlirValue:
        """A constant, of a call of a constant row or a bare Constant."""
        value = call.args[0]
        if not isinstance(value, Constant):
            raise self.error("a constant row takes a Constant", call)
        t = self.type(value.struct_info)
        resource = call.attrs.get("resource") if self.keeps_resources else None
        outside = self.left_out(value) if self.left_out is not None else None
        attrs = {
            "value": self.named_resource(outside, t)
            if outside is not None
            else write_elements(value.data, t)
            if resource is None
            else self.resource(resource, value, t)
        }
        for name, held in call.attrs.get(DISCARDABLE, {}).items():
            attrs[name] = write_any(held)
        name = call.op.row.mlir_name if isinstance(call.op, RowOp) else CONSTANT
        # A quantised constant holds the integers that store it.
        result = self.type(call.struct_info)
        loc = self.location(value.span or self.place)
        return ir.Operation.create(name, [result], [], attrs, loc=loc, ip=point).results[0]

    def resource(self, resource: Mapping[str, Any], value: Constant, t: ir.Type) -> ir.Attribute:
        """The attribute of a resource. MLIR renames a second one of the same name; so the first
        serves all constants that hold its data.
        """
        made, data = self.resources.get((resource["name"], t), (None, None))
        if made is None or not (data is value.data or data.tobytes() == value.data.tobytes()):
            made = write_resource(value.data, t, **resource)
            self.resources[resource["name"], t] = made, value.data
        return made

    def named_resource(self, name: str, t: ir.Type) -> ir.Attribute:
        """The attribute of a resource without data, which MLIR would rename, too."""
        made, _ = self.resources.get((name, t), (None, None))
        if made is None:
            made = name_resource(name, t)
            self.resources[name, t] = made, None
        return made

    # ---- small things
    def type(self, info: StructInfo) -> ir.Type:
        known = self.types.get(info)
        if known is None:
            try:
                self.types[info] = known = sinfo_to_type(info)
            except EmitError as e:
                raise self.error(str(e)) from e
        return known

    def location(self, span: Span | None) -> ir.Location:
        if span is None:
            return self.unknown
        known = self.locations.get(id(span))
        if known is None:
            # The span is kept, so that its id stays its own.
            self.locations[id(span)] = known = (span, write_location(span))
        return known[1]

    def error(self, message: str, call: Expr | None = None) -> EmitError:
        shown = "" if call is None else f"\n  in {call!r}"
        return EmitError(f"{self.where}: {message}{shown}")


def _own_place(span: Span | None) -> Span | None:
    """The location that a program said of an argument whose name it says in an attribute."""
    if span is None or span.metadata != ARG_INFO:
        return span
    return span.children[0] if span.children else None

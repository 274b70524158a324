"""StableHLO -> Relax: one generic reader for every row of table.py (design decision D2).

MLIR's own result types are taken as they are; no inference runs unless dimensions are dynamic.
Each operation becomes one binding, whose Span is the operation's location. Regions become local
functions, bound just before the call that takes them. The walk is iterative, so neither long nor
deeply nested programs meet the recursion limit.
"""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from relax2xla import tir
from relax2xla.dtypes import DTYPES
from relax2xla.errors import (
    BudgetError,
    Gap,
    OpNotImplemented,
    StableHLOParseError,
    TVMError,
    UnsupportedError,
)
from relax2xla.ir.base import EMPTY_ATTRS, Attrs, Span
from relax2xla.ir.collection import no_collection
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import definable_vars, erase
from relax2xla.ir.module import IRModule
from relax2xla.ir.struct_info import (
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.stablehlo.codecs import (
    DYNAMIC,
    TEXT,
    read_any,
    read_attr,
    sinfo_to_type,
    type_to_sinfo,
)
from relax2xla.stablehlo.constants import named_resource, read_elements, read_resource
from relax2xla.stablehlo.dims import tied
from relax2xla.stablehlo.infer import RULES, results
from relax2xla.stablehlo.locations import module_span, read_location
from relax2xla.stablehlo.mlir import ir
from relax2xla.stablehlo.prelude import SYMBOL_OPS, Symbol, read_symbol
from relax2xla.stablehlo.prelude import attributes as symbol_attrs
from relax2xla.stablehlo.rows import BY_MLIR_OP, DISCARDABLE
from relax2xla.stablehlo.table import (
    BY_MLIR_NAME,
    CONSTANT,
    CUSTOM_CALL,
    FUNC_RETURN,
    NOTES,
    OPEN,
    TERMINATORS,
    Row,
)
from relax2xla.stablehlo.untrusted.targets import AllowedTarget

# Gives the data of a resource by its name, dtype and shape.
Outside = Callable[[str, str, tuple[int, ...]], Any]

_FUNC_ATTRS = {"sym_name", "function_type", "sym_visibility", "arg_attrs", "res_attrs"}


def read(
    module: ir.Module,
    allowed: frozenset[AllowedTarget] = frozenset(),
    outside: Outside | None = None,
) -> IRModule:
    """The Relax module of an MLIR module of StableHLO, CHLO, func and Shardy operations.

    ``allowed``: targets of custom calls that ``build`` then takes as allowed by the caller.
    ``outside``: gives constants whose data the module does not hold, by the name of the resource,
    dtype and shape.

    Raises :class:`OpNotImplemented` with *all* operations, attributes and types of the module that
    have no counterpart, and BudgetError for what is nested too deep.
    """
    try:
        with module.context, ir.Location.unknown(), no_collection():
            reader = _Reader(frozenset(), allowed, outside)
            made = reader.module(module)
            if impure := reader.impure_symbols():
                # Callers may stand before what they call.
                reader = _Reader(impure, allowed, outside)
                made = reader.module(module)
    except RecursionError:
        raise BudgetError("attributes or locations of the module are nested too deep") from None
    if reader.gaps:
        raise OpNotImplemented(
            "this StableHLO module uses what relax2xla cannot read:",
            [Gap(op, reason, tuple(where)) for (op, reason), where in reader.gaps.items()],
        )
    return made


@dataclass(slots=True)
class _Frame:
    """A block that is being read: its operations to come and the bindings so far."""

    ops: Iterator[Any]
    params: list[Var]
    span: Span | None
    bindings: list[Binding] = field(default_factory=list)
    # The operation whose regions are being read, and the functions made of them so far.
    waiting: Any = None
    regions: list[Expr] = field(default_factory=list)
    # Whether one of the bindings has side effects.
    impure: bool = False
    # Symbolic variables that its casts define, which nobody knows outside.
    hidden: set[tir.Var] = field(default_factory=set)


class _Reader:
    """The state of one :func:`read`."""

    def __init__(
        self,
        impure: frozenset[str],
        allowed: frozenset[AllowedTarget],
        outside: Outside | None,
    ) -> None:
        self.outside = outside
        self.allowed = {str(target): target for target in allowed}
        # Symbols of the functions with side effects: known, found here, and who calls what.
        self.impure = impure
        self.effects: set[str] = set()
        self.calls: defaultdict[str, set[str]] = defaultdict(set)
        self.current = ""
        self.gaps: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self.types: dict[ir.Type, StructInfo] = {}
        self.attrs: dict[tuple[str, ir.Attribute], Any] = {}
        self.spans: dict[ir.Attribute, Span | None] = {}
        self.symbols: dict[str, GlobalVar] = {}
        # Whether a type has been met whose result the rules may not reproduce.
        self.loose_types = False
        self.resources: dict[str, Any] = {}
        self.env: dict[Any, Var] = {}
        self.terminator = FUNC_RETURN
        self.count = 0

    def impure_symbols(self) -> frozenset[str]:
        """Functions with side effects, their own or by calling others."""
        found = set(self.effects)
        while more := {s for s, called in self.calls.items() if called & found} - found:
            found |= more
        return frozenset(found)

    # ---- module and functions
    def module(self, module: ir.Module) -> IRModule:
        functions: list[Any] = []
        prelude: list[Symbol] = []
        for view in module.body.operations:
            op = view.operation
            if op.name == "func.func":
                functions.append(op)
            elif op.name in SYMBOL_OPS:
                prelude.append(read_symbol(op, len(functions)))
            else:
                self.gap(op.name, "not supported at the top of a module", op)
        # A mangled name must not hide a function that has this name by itself.
        taken = {_symbol(op) for op in functions}
        for op in functions:
            symbol = _symbol(op)
            self.symbols[symbol] = GlobalVar(_identifier(symbol, taken))
        attrs: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in self.attributes(module.operation):
            if name == "sym_name":
                attrs[name] = _symbol(module.operation)
            else:
                rest[name] = self.any(module.operation, name, value)
        if rest:
            attrs[DISCARDABLE] = rest
        if where := _module_location(module, functions):
            attrs["location"] = where
        attrs.update(symbol_attrs(prelude))
        made = IRModule(attrs=attrs)
        read = {self.symbols[_symbol(op)]: self.function(op) for op in functions}
        for gvar, func in (tied(read) if self.loose_types else read).items():
            made[gvar] = func
        return made

    def attributes(self, op: Any) -> list[tuple[str, Any]]:
        """Names and values of the attributes of ``op``, in MLIR's order."""
        held = op.attributes
        made: list[tuple[str, Any]] = []
        for index, name in enumerate(held):
            try:
                made.append((name, held[name]))
            except TypeError:
                # jaxlib wraps no dense attribute of complex elements, but shows its text.
                text = repr(held[index])
                made.append((name, _Text(text[len(f"NamedAttribute({name}=") : -1])))
        return made

    def function(self, op: Any) -> Function:
        self.env, self.count = {}, 0
        attrs: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        inherent = dict(self.attributes(op))
        self.current = symbol = inherent["sym_name"].value
        visibility = inherent.get("sym_visibility")
        if visibility is None or visibility.value != "private":
            attrs["global_symbol"] = self.symbols[symbol].name_hint
            if visibility is not None:
                attrs["sym_visibility"] = visibility.value
        if self.symbols[symbol].name_hint != symbol:
            attrs["sym_name"] = symbol
        for name, value in inherent.items():
            if name not in _FUNC_ATTRS:
                rest[name] = self.any(op, name, value)
        if rest:
            attrs[DISCARDABLE] = rest
        region = op.regions[0]
        blocks = list(region.blocks)
        if len(blocks) != 1:
            what = f"a function of {len(blocks)} blocks" if blocks else "a function without a body"
            self.gap("func.func", what, op)
            return Function([], Tuple(()))
        params = [
            Var(f"arg{i}", self.sinfo(a.type, op), self.span(a.location))
            for i, a in enumerate(blocks[0].arguments)
        ]
        arguments = inherent.get("arg_attrs")
        if arguments is not None:
            held = {
                p.name_hint: self.any(op, "arg_attrs", a)
                for p, a in zip(params, arguments, strict=True)
            }
            attrs["arg_attrs"] = {name: value for name, value in held.items() if value}
        if "res_attrs" in inherent:
            attrs["res_attrs"] = [self.any(op, "res_attrs", a) for a in inherent["res_attrs"]]
        made = self.block(blocks[0], params, self.span(op.location))
        if self.terminator != FUNC_RETURN:
            attrs["terminator"] = self.terminator
        return made.replace(attrs=attrs) if attrs else made

    def block(self, block: Any, params: list[Var], span: Span | None) -> Function:
        """The function that a block is, with all regions nested in it."""
        self.env.update(zip(block.arguments, params, strict=True))
        stack = [_Frame(_operations(block), params, span)]
        while True:
            frame = stack[-1]
            made: Function | None = None
            for view in frame.ops:
                op = view.operation
                name = op.name
                if name in TERMINATORS:
                    made = self.finish(frame, op)
                    break
                row = BY_MLIR_NAME.get(name)
                if row is None:
                    self.other(frame, op, name)
                elif row.attrs.get("value") == "elements":
                    self.constant(frame, op, row)
                elif row.regions and len(op.regions):
                    frame.waiting, frame.regions = op, []
                    stack.append(self.region(op, 0))
                    break
                else:
                    self.row(frame, op, row, [])
            else:
                self.gap("a block without a terminator", "malformed", None)
                made = Function(frame.params, SeqExpr([BindingBlock(frame.bindings)], Tuple(())))
            while made is not None:
                stack.pop()
                if not stack:
                    return made
                frame = stack[-1]
                op = frame.waiting
                var = Var(self.fresh("region"), made.struct_info_, made.span)
                frame.bindings.append(VarBinding(var, made))
                frame.regions.append(var)
                made = None
                if len(frame.regions) < len(op.regions):
                    stack.append(self.region(op, len(frame.regions)))
                else:
                    self.row(frame, op, BY_MLIR_NAME[op.name], frame.regions)
                    frame.waiting = None

    def region(self, op: Any, index: int) -> _Frame:
        blocks = list(op.regions[index].blocks)
        if len(blocks) != 1:
            self.gap(op.name, f"a region of {len(blocks)} blocks", op)
            return _Frame(iter(()), [], None)
        params = [
            Var(self.fresh("a"), self.sinfo(a.type, op), self.span(a.location))
            for a in blocks[0].arguments
        ]
        self.env.update(zip(blocks[0].arguments, params, strict=True))
        return _Frame(_operations(blocks[0]), params, None)

    def finish(self, frame: _Frame, op: Any) -> Function:
        """The function of a block whose terminator is ``op``."""
        # That of the function itself is the last to be met.
        self.terminator = op.name
        values = [self.env[v] for v in op.operands]
        one = len(values) == 1 and not isinstance(values[0].struct_info_, TupleStructInfo)
        body = SeqExpr(
            [BindingBlock(frame.bindings)] if frame.bindings else [],
            values[0] if one else Tuple(values),
            self.span(op.location),
        )
        ret = body.struct_info_
        if self.loose_types and ret is not None:
            ret = erase(ret, lambda v: v not in frame.hidden)
        return Function(frame.params, body, ret, not frame.impure, span=frame.span)

    # ---- operations
    def row(self, frame: _Frame, op: Any, row: Row, regions: list[Expr]) -> None:
        """Bind the call of a row, and each of its results if there are several."""
        env = self.env
        args: list[Expr] = [env[v] for v in op.operands]
        args += regions
        held = op.attributes
        attrs = self.row_attrs(op, row) if len(held) else EMPTY_ATTRS
        span = self.span(op.location)
        values = list(op.results)
        known = [self.sinfo(v.type, op, coarse=True) for v in values]
        info, cast = results(known), None
        given = row.infer is None or (
            row.loose
            and any(_dtype(i) != _dtype(a.struct_info_) for i, a in zip(known, args, strict=False))
        )
        if self.loose_types:
            info, cast, given = self.dynamic(op, row, args, attrs, values, info)
        call = Call(
            BY_MLIR_OP[row.mlir_name], args, attrs, (info,) if given else (), span, struct_info=info
        )
        if (regions or not row.pure) and not BY_MLIR_OP[row.mlir_name].is_pure_call(call):
            frame.impure = True
            self.effects.add(self.current)
        self.bind(frame, values, call, cast)

    def dynamic(
        self, op: Any, row: Row, args: list[Expr], attrs: Attrs, values: list[Any], info: StructInfo
    ) -> tuple[StructInfo, StructInfo | None, bool]:
        """In a module with dynamic or quantised types: struct info, cast, and if it is given.

        Where the row's rule reproduces MLIR's result types, its struct info ties the dimensions.
        Otherwise the result is given, and a MatchCast names its dynamic dimensions.
        """
        if row.infer is not None:
            try:
                inferred = RULES[row.infer]([a.struct_info for a in args], attrs)
                parts = _parts(inferred)
                if [sinfo_to_type(p) for p in parts] == [v.type for v in values]:
                    return inferred, None, False
            except TVMError:
                pass  # The rule does not cover these types; MLIR's own are taken.
        return info, self.cast(op, values), True

    def cast(self, op: Any, values: list[Any]) -> StructInfo | None:
        """Struct info with a variable for each dynamic dimension; None if there is none."""
        if not any(self.is_dynamic(v.type) for v in values):
            return None
        return results([self.sinfo(v.type, op) for v in values])

    def is_dynamic(self, t: ir.Type) -> bool:
        return isinstance(t, ir.RankedTensorType) and not t.has_static_shape

    def bind(self, frame: _Frame, values: list[Any], call: Call, cast: StructInfo | None) -> None:
        """Bind ``call`` to a variable and, if it has several results, each of them to one."""
        info, span = call.struct_info, call.span
        var = Var(self.fresh("v"), info, span)
        frame.bindings.append(VarBinding(var, call, span))
        if cast is not None:
            info, loose = cast, var
            var = Var(self.fresh("v"), info, span)
            frame.bindings.append(MatchCast(var, loose, cast, span))
            frame.hidden.update(definable_vars(cast))
        if not isinstance(info, TupleStructInfo):
            self.env[values[0]] = var
            return
        for i, value in enumerate(values):
            item = Var(self.fresh("v"), info.fields[i], span)
            frame.bindings.append(VarBinding(item, TupleGetItem(var, i, span), span))
            self.env[value] = item

    def any(self, op: Any, name: str, value: Any) -> Any:
        """The value of an attribute of any kind."""
        made = Attrs({TEXT: str(value)}) if isinstance(value, _Text) else read_any(value)
        if "dense_resource<" in repr(made):
            self.gap(op.name, f"the attribute {name!r} holds a resource; constants alone can", op)
        return made

    def row_attrs(self, op: Any, row: Row) -> Attrs:
        """The attributes of an operation by the codecs of its row."""
        made: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in self.attributes(op):
            codec = row.attrs.get(name)
            if codec is None:
                if "." in name or name in NOTES or row.mlir_name in OPEN:
                    rest[name] = self.any(op, name, value)
                else:
                    self.gap(op.name, f"the attribute {name!r} is not known", op)
                continue
            if isinstance(value, _Text):
                made[name] = Attrs({TEXT: str(value)})
                continue
            key = (codec, value)
            if key not in self.attrs:
                self.attrs[key] = self.row_attr(op, name, codec.removeprefix("?"), value)
            made[name] = self.attrs[key]
        if self.allowed and row.mlir_name == CUSTOM_CALL:
            target = made["call_target_name"]
            made["call_target_name"] = self.allowed.get(target, target)
        if rest:
            made[DISCARDABLE] = rest
        return Attrs(made)

    def row_attr(self, op: Any, name: str, codec: str, value: Any) -> Any:
        """One attribute by its codec."""
        made = read_attr(codec, value)
        numbers = {"i64": (made,), "i64s": made}.get(codec, ())
        if DYNAMIC in numbers:
            raise StableHLOParseError(
                f"{op.name}: {name} holds {DYNAMIC}, MLIR's mark of a size that is not known; no "
                "operation can compute with it"
            )
        return made

    def constant(self, frame: _Frame, op: Any, row: Row) -> None:
        value = op.results[0]
        info = self.sinfo(value.type, op)
        span = self.span(op.location)
        made: Expr
        held: StructInfo = info
        attrs: dict[str, Any] = {}
        try:
            if isinstance(info, TensorStructInfo) and info.dtype not in DTYPES:
                held = self.sinfo(op.attributes["value"].type, op)
            if not isinstance(held, TensorStructInfo):
                raise UnsupportedError(f"a constant of type {value.type}")
            if self.outside is not None and (name := named_resource(op)) is not None:
                shape = tuple(d for d in held.dims or () if isinstance(d, int))
                data = self.outside(name, held.dtype or "", shape)
            elif resource := read_resource(op, held):
                data, attrs["resource"] = self.resource(resource)
            else:
                data = read_elements(op, held)
            made = Constant(data, held, span)
        except (UnsupportedError, TypeError) as e:
            self.gap(op.name, str(e), op)
            made = Constant(0, info, span)
        rest = {n: self.any(op, n, a) for n, a in self.attributes(op) if n != "value"}
        if rest:
            attrs[DISCARDABLE] = rest
        given = () if held is info else (info,)
        if attrs or given or row.mlir_name != CONSTANT:
            made = Call(BY_MLIR_OP[row.mlir_name], [made], attrs, given, span, struct_info=info)
        var = Var(self.fresh("v"), info, span)
        frame.bindings.append(VarBinding(var, made, span))
        self.env[value] = var

    def resource(self, read: tuple[Any, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
        """Constants of one resource share their array, as they do in the program."""
        data, named = read
        known = self.resources.setdefault(named["name"], data)
        same = known.shape == data.shape and known.dtype == data.dtype
        return (known if same else data), named

    def other(self, frame: _Frame, op: Any, name: str) -> None:
        """A call of a function; anything else is a gap."""
        values = list(op.results)
        callee = None
        if name == "func.call":
            callee = self.symbols.get(op.attributes["callee"].value)
            if callee is None:
                self.gap(name, f"there is no function {op.attributes['callee']}", op)
        else:
            self.gap(name, "there is no row for this operation", op)
        if callee is None:
            for value in values:
                self.env[value] = Var(self.fresh("v"), ObjectStructInfo())
            return
        rest = {n: self.any(op, n, a) for n, a in self.attributes(op) if n != "callee"}
        info = results([self.sinfo(v.type, op, coarse=True) for v in values])
        cast = self.cast(op, values) if self.loose_types else None
        args = [self.env[v] for v in op.operands]
        attrs = {DISCARDABLE: rest} if rest else None
        call = Call(callee, args, attrs, (), self.span(op.location), struct_info=info)
        symbol = op.attributes["callee"].value
        self.calls[self.current].add(symbol)
        frame.impure = frame.impure or symbol in self.impure
        self.bind(frame, values, call, cast)

    # ---- small things
    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count - 1}"

    def symbol(self) -> tir.Var:
        return tir.Var(self.fresh("s"), "int64")

    def sinfo(self, t: ir.Type, op: Any, *, coarse: bool = False) -> StructInfo:
        """Struct info of a type; ``coarse`` keeps only the rank of a dynamic shape."""
        known = self.types.get(t)
        if known is not None:
            return known
        made = type_to_sinfo(t, None if coarse else self.symbol)
        text = str(t)
        if any(mark in text for mark in "?*!#"):
            self.loose_types = self.loose_types or text != "!stablehlo.token"
        if "?" not in text:
            self.types[t] = made
        return made

    def span(self, loc: ir.Location) -> Span | None:
        if isinstance(loc, ir.UnknownLoc):
            return None
        key = loc.attr
        if key not in self.spans:
            self.spans[key] = read_location(loc)
        return self.spans[key]

    def gap(self, op: str, reason: str, at: Any) -> None:
        where = "" if at is None else str(self.span(at.location) or "unknown location")
        self.gaps[op, reason].append(where)


class _Text(str):
    """The MLIR text of an attribute that jaxlib cannot wrap."""

    __slots__ = ()


def _operations(block: Any) -> Iterator[Any]:
    """The operations of a block; jaxlib's own iterator starts anew in every ``for``."""
    yield from block.operations


def _symbol(op: Any) -> str:
    """The name of a function or module."""
    try:
        return op.attributes["sym_name"].value
    except RuntimeError as e:
        raise UnsupportedError(f"the name of a {op.name} is not UTF-8") from e


def _module_location(module: ir.Module, functions: list[Any]) -> str:
    """The location of a module; "" for what the writer supposes."""
    first = read_location(functions[0].location) if functions else None
    own = read_location(module.operation.location)
    return "" if own == module_span(first) else str(module.operation.location)


def _parts(info: StructInfo) -> tuple[StructInfo, ...]:
    return info.fields if isinstance(info, TupleStructInfo) else (info,)


def _dtype(info: StructInfo | None) -> str | None:
    return info.dtype if isinstance(info, TensorStructInfo) else None


def _identifier(symbol: str, taken: set[str]) -> str:
    """``symbol`` as a Python identifier that is not in ``taken``, and put there."""
    name = symbol
    if not symbol.isidentifier() or keyword.iskeyword(symbol):
        name = base = "f_" + re.sub(r"\W", "_", symbol)
        number = 0
        while name in taken:
            number += 1
            name = f"{base}_{number}"
    taken.add(name)
    return name

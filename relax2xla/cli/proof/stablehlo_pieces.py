"""The values inside of a StableHLO program as its results, and parts of it as programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax2xla.analysis import free_vars
from relax2xla.cli.page.graph import name_of
from relax2xla.cli.page.heat import line_of
from relax2xla.cli.proof.reproduce import Piece, grown
from relax2xla.ir import (
    BindingBlock,
    Call,
    Expr,
    Function,
    IRModule,
    Op,
    SeqExpr,
    Span,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.runtime.convert import to_host
from relax2xla.stablehlo.serialize import to_stablehlo
from relax2xla.stablehlo.table import TABLE
from relax2xla.transform import DeadCodeElimination, InlinePrivateFunctions, ToNonDataflow

# Larger programs are bytecode: one constant of text is easily a million characters.
_MOST_TEXT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Inside:
    """A program whose private functions are inlined.

    program: its results are those of the program and then ``values``, which are all tensors of
             ``main`` that are computed, in order
    bindings: all of ``main``, by variable
    """

    program: IRModule
    outputs: Sequence[Expr]
    values: Sequence[Var]
    bindings: Mapping[Var, VarBinding]

    def maker(self, value: Var) -> VarBinding:
        """The binding that computes a tensor: of a field of a tuple, the one of the tuple."""
        binding = self.bindings[value]
        while isinstance(binding.value, TupleGetItem) and isinstance(
            binding.value.tuple_value, Var
        ):
            if binding.value.tuple_value not in self.bindings:
                break
            binding = self.bindings[binding.value.tuple_value]
        return binding

    def layer(self, value: Var) -> str:
        """The source's name of what computes ``value``, else file and line; "" without either."""
        spans = self._spans(value)
        return next((found for s in spans if (found := name_of(s) or line_of(s))), "")

    def where(self, value: Var) -> str:
        """The operation, and where it comes from, for people."""
        made = self.maker(value).value
        op = made.op if isinstance(made, Call) else None
        name = TABLE[op.name].mlir_name if isinstance(op, Op) and op.name in TABLE else "a call"
        spans = self._spans(value)
        places = [next((t for s in spans if (t := say(s))), "") for say in (name_of, line_of)]
        told = ", ".join(dict.fromkeys(filter(None, places)))
        return f"{name}, {told}" if told else name

    def _spans(self, value: Var) -> list[Any]:
        made = self.maker(value)
        found = (made.value.span, made.span, made.var.span)
        return [span for span in found if span is not None]


def inside_of(mod: IRModule) -> Inside:
    """``main`` of a program of rows with static shapes, giving all that it computes."""
    mod = ToNonDataflow()(InlinePrivateFunctions()(mod))
    main = mod["main"]
    bindings = {b.var: b for block in main.body.blocks for b in block.bindings}
    made = {v: b for v, b in bindings.items() if isinstance(b, VarBinding)}
    values = [
        v
        for v, b in made.items()
        if isinstance(v.struct_info_, TensorStructInfo)
        and isinstance(b.value, (Call, TupleGetItem))
    ]
    outputs: list[Expr] = []
    fields: list[VarBinding] = []
    for value in _fields(main.body.body, made):
        if isinstance(value, TupleGetItem):
            fields.append(VarBinding(Var(f"result{len(fields)}", value.struct_info), value))
            value = fields[-1].var
        outputs.append(value)
    # What is said of results is of the program's own.
    attrs = {k: v for k, v in main.attrs.items() if k != "res_attrs"}
    blocks = [*main.body.blocks, *([BindingBlock(fields)] if fields else [])]
    whole = Function(main.params, SeqExpr(blocks, Tuple([*outputs, *values])), attrs=attrs)
    made |= {b.var: b for b in fields}
    return Inside(_called(mod, whole), outputs, values, made)


def stablehlo_pieces(inside: Inside, start: Expr, known: Mapping[Var, Any]) -> Iterator[Piece]:
    """What computes ``start``, then with more and more of what that is computed from.

    known: what the reference has for the parameters and values; those that a piece takes from
           elsewhere are its inputs
    """
    order = {v: i for i, v in enumerate(inside.bindings)}
    if not isinstance(start, Var) or start not in inside.bindings:
        return  # a parameter or a constant, which is given back as it is
    last = inside.maker(start)

    def before(binding: VarBinding) -> list[VarBinding]:
        taken = _needed(inside, [binding], known)[1]
        return [inside.maker(v) for v in taken if v in inside.bindings]

    for chosen in grown(last, before, lambda b: order[b.var]):
        held, taken = _needed(inside, chosen, known)
        # What a piece gives of a tuple is the field that departs.
        held = list({b.var: b for b in (*held, inside.bindings[start])}.values())
        rows = SeqExpr([BindingBlock(sorted(held, key=lambda b: order[b.var]))], start)
        # The span is the name that a file has for an argument.
        params = [Var(n, v.struct_info, Span(n)) for n, v in _names(taken).items()]
        bare = Function(params, rows, start.struct_info, attrs={"global_symbol": "main"})
        func = rewrite_function(bare, values=dict(zip(taken, params, strict=True)))
        mod = _called(inside.program, func)
        data: str | bytes = to_stablehlo(mod, debug_info=True)
        file = "model.mlir"
        if len(data) > _MOST_TEXT:
            file, data = "model.mlirbc", to_stablehlo(mod, "bytecode")
        arrays = {p.name_hint: to_host(known[v]) for p, v in zip(params, taken, strict=True)}
        names = [inside.layer(b.var) or inside.where(b.var) for b in chosen]
        yield Piece(names, file, data.encode() if isinstance(data, str) else data, arrays)


def _needed(
    inside: Inside, chosen: Sequence[VarBinding], known: Mapping[Var, Any]
) -> tuple[list[VarBinding], list[Var]]:
    """The bindings of a piece, with those that it cannot do without, and the tensors it takes."""
    held = {b.var: b for b in chosen}
    taken: dict[Var, None] = {}
    todo = list(chosen)
    while todo:
        for var in free_vars(todo.pop().value):
            if var in held or var in taken:
                continue
            made = inside.bindings.get(var)
            if made is not None and inside.maker(var).var in held:
                held[var] = made  # a field of what the piece computes
            elif var in known:
                taken[var] = None
            elif made is not None:
                held[var] = made  # a region, or a tuple, which no file has as an input
                todo.append(made)
    return list(held.values()), list(taken)


def _names(taken: Sequence[Var]) -> dict[str, Var]:
    """Their own names, each once."""
    found: dict[str, Var] = {}
    for v in taken:
        name = v.name_hint
        while name in found:
            name += "_"
        found[name] = v
    return found


def _fields(value: Expr, bindings: Mapping[Var, VarBinding]) -> Iterator[Expr]:
    """The tensors of a result, in order."""
    made = bindings.get(value) if isinstance(value, Var) else None
    if made is not None and isinstance(made.value, Tuple):
        value = made.value
    if isinstance(value, Tuple):
        for field in value.fields:
            yield from _fields(field, bindings)
    elif isinstance(value.struct_info_, TupleStructInfo):
        for i in range(len(value.struct_info_.fields)):
            yield from _fields(TupleGetItem(value, i), bindings)
    else:
        yield value


def _called(mod: IRModule, main: Function) -> IRModule:
    """``mod`` with another ``main``, and of the other functions those that it may call."""
    changed = mod.replace({**mod.functions, mod.get_global_var("main"): main})
    return DeadCodeElimination()(changed)

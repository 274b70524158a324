"""The function ``main`` of one program: its parameters, results, symbols and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import dtype_name
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.trees import with_trees
from relax2xla.importers.torch.engine.context import dtype_of_torch
from relax2xla.importers.torch.engine.graph_walk import Options, Walk
from relax2xla.importers.torch.engine.tensor_data import as_numpy
from relax2xla.importers.torch.source.dims import environments
from relax2xla.importers.torch.source.program import Input, Output, Program
from relax2xla.ir import (
    Expr,
    IRModule,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    const,
)

#: Numbers as inputs, and their dtypes. Symbolic ones that are no integers come from another part.
NUMBERS = {
    bool: "bool",
    int: "int64",
    float: "float64",
    torch.SymBool: "bool",
    torch.SymFloat: "float64",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """A program that was walked over, and the module where it has no gaps."""

    program: Program
    walk: Walk
    mod: IRModule | None


def import_once(program: Program, options: Options) -> Imported:
    """One walk over a program as it is."""
    main = _Main(program, options)
    return Imported(program, main.walk, main.run())


class _Main:
    """``main`` in the making."""

    def __init__(self, program: Program, options: Options) -> None:
        self.program = program
        self.options = options
        self.walk = Walk(options)
        self.branches = _has_branches(program.module)

    def out(self, value: Expr) -> Var:
        """Bind a value that is read behind the graph's own block, if it has one."""
        builder = self.walk.builder
        return builder.emit(value) if self.branches else builder.emit_output(value)

    def run(self) -> IRModule | None:
        """The module, or None where there are gaps."""
        walk = self.walk
        for i in self.program.inputs:
            value = i.node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                continue
            if value.layout != torch.strided:
                why = f"a tensor of layout {value.layout}"
                walk.gaps.add(f"input {i.name}", why, "", "give a dense tensor (x.to_dense())")
                continue
            try:
                dtype_of_torch(value.dtype)
            except Unsupported as e:
                hint = e.hint or "give it in a dtype of relax2xla.dtypes"
                walk.gaps.add(f"input {i.name}", e.reason, "", hint)
        if walk.gaps:
            return None
        if self.options.name_dims:
            self.name_symbols()
        self.derive_symbols()
        inputs, states, params = self.inputs()
        self.traced_for()
        attrs: dict[str, Any] = {}
        if self.options.keep_params:
            values = [as_numpy(i.value) for i, _ in params]
            attrs = {"num_input": len(inputs) + len(states), "params": values}
        variables = [v for _, v in (*inputs, *states, *params)]
        attrs.update(self.bounds(variables))
        attrs.update(self.changes(inputs, states))
        with walk.builder.function("main", variables, attrs):
            # A dataflow block holds no branches.
            block = nullcontext() if self.branches else walk.builder.dataflow()
            with block:
                outputs = walk.graph(self.program.module, whole=True)
                with walk.builder.source("output"):
                    result = self.result(self.ordered(outputs))
                asserted = [(self.out(x), text) for x, text in walk.asserted]
            for condition, text in asserted:
                walk.builder.emit(R.assert_op(condition, format=text))
            walk.builder.emit_func_output(result)
        if walk.gaps:
            return None
        mod = walk.builder.get()
        if asserted:
            # What is checked changes nothing that a caller sees.
            mod["main"] = mod["main"].with_attr("relax.force_pure", True)
        if walk.ctx.conditions:
            told = {"tir_var_conditions": list(walk.ctx.conditions)}
            mod["main"] = mod["main"].with_attrs(told)
        if self.program.trees is not None:
            mod["main"] = with_trees(mod["main"], self.program.trees)
        return mod

    def traced_for(self) -> None:
        """Let calls check what torch assumed of the sizes of the inputs."""
        users = [i.node for i in self.program.inputs if i.meaning in ("input", "number")]
        for condition in self.program.conditions:
            self.walk.ctx.require(
                condition(lambda i, a: self.walk.symbols.dims(users[i].meta["val"].shape)[a])
            )

    def name_symbols(self) -> None:
        """Give symbols the names of the user's ``torch.export.Dim``, where torch knows them."""
        env = next(environments(self.program.module.graph), None)
        if env is None:
            return
        names = getattr(env, "source_name_to_debug_name", {})
        sources = getattr(env, "source_to_var", {})
        for source, name in names.items():
            if source in sources:
                self.walk.symbols.name(env.replace(sources[source]), name)
        for source, symbol in sources.items():
            # What dimensions such as 2 * n are derived from.
            self.walk.symbols.name(env.replace(symbol), source)

    def derive_symbols(self) -> None:
        """Let dimensions such as 2 * n and n // 2 be variables where none has the size n."""
        values = [i.node.meta["val"] for i in self.program.inputs if i.meaning == "input"]
        sizes: list[Any] = [
            size
            for value in values
            for size in (value.shape if isinstance(value, torch.Tensor) else [value])
        ]
        exprs = [s.node.expr for s in sizes if isinstance(s, torch.SymInt)]
        solved = {e for e in exprs if e.is_Symbol}
        parts: list[tuple[Any, Any, Any]] = []
        for expr in exprs:
            offset, rest = expr.as_coeff_Add()
            factor, part = rest.as_coeff_Mul()
            # Numbers among the inputs may be the negative of something.
            told = factor.is_Integer and (factor > 0 or not part.is_Symbol)
            if told and part.free_symbols - solved:
                parts.append((part, factor, offset))
        # Symbols first: what is computed of them needs no variable.
        for part, factor, offset in sorted(parts, key=lambda p: not p[0].is_Symbol):
            if not part.free_symbols - solved:
                continue
            solved |= {part}
            exact = self.walk.symbols.derive(part, int(factor), int(offset))
            if exact is not None:
                self.walk.ctx.require(exact)

    def bounds(self, params: Sequence[Var]) -> dict[str, Any]:
        """Function attributes with the ranges of the symbolic variables."""
        used = {v for p in params for v in _variables(p.struct_info)}
        low: dict[str, int] = {}
        high: dict[str, int] = {}
        ranges = self.program.ranges
        for symbol, interval in ranges.items():
            known = self.walk.symbols.variables.get(str(symbol)), 1, 0
            variable, factor, offset = self.walk.symbols.derived.get(symbol, known)
            if variable is None or variable not in used:
                continue
            # Torch knows that of a derived dimension itself better: a symbol alone begins at 2.
            own = ranges.get(factor * symbol + offset)
            if own is not None:
                interval, factor, offset = own, 1, 0
            if interval.lower.is_Integer:
                low[variable.name] = factor * int(interval.lower) + offset
            if interval.upper.is_Integer:
                high[variable.name] = factor * int(interval.upper) + offset
        named = (("tir_var_lower_bound", low), ("tir_var_upper_bound", high))
        return {name: bound for name, bound in named if bound}

    def inputs(self) -> tuple[list[tuple[Input, Var]], ...]:
        """The parameters of ``main``: the user's inputs, changing buffers, parameters kept."""
        inputs: list[tuple[Input, Var]] = []
        states: list[tuple[Input, Var]] = []
        params: list[tuple[Input, Var]] = []
        changes = self.program.changes
        for i in self.program.inputs:
            if i.meaning == "refused":
                # A generator is refused by those operators that would use it.
                if not isinstance(i.value, torch.Generator):
                    self.walk.gaps.add(f"input {i.name}", "an input of this kind", "")
                self.walk.env[i.node] = i.value
            elif i.meaning == "number":
                self.walk.env[i.node] = self.walk.symbols.value(i.value)
            elif i.meaning == "input":
                names = self.options.names
                var = self.parameter(i.node, names[len(inputs)] if names else i.name)
                inputs.append((i, var))
            elif (i.meaning, i.name) in changes:
                states.append((i, self.parameter(i.node, i.node.name, i.name)))
            elif self.options.keep_params and i.meaning == "parameter":
                name = i.name if self.options.by_name else i.node.name
                params.append((i, self.parameter(i.node, name, i.name)))
            else:
                self.walk.env[i.node] = self.walk.weights.constant(i.value, i.name, i.meaning)
        if self.options.by_name:
            params.sort(key=lambda p: p[0].name)
        return inputs, states, params

    def gives(self, output: Output) -> bool:
        """Whether ``main`` returns an output of the program."""
        return output.meaning != "input" or not self.options.own

    def changes(
        self, inputs: Sequence[tuple[Input, Var]], states: Sequence[tuple[Input, Var]]
    ) -> dict[str, Any]:
        """Function attributes that tell which results are new values of what."""
        results = [o for o in self.program.outputs if o.meaning == "result"]
        changed = [o for o in self.program.outputs if o.meaning != "result" and self.gives(o)]
        places = {(o.meaning, o.target): len(results) + n for n, o in enumerate(changed)}
        state = {
            i.name: (len(inputs) + n, places[(i.meaning, i.name)])
            for n, (i, _) in enumerate(states)
        }
        mutated = {
            var.name_hint: places["input", i.target]
            for i, var in inputs
            if ("input", i.target) in places
        }
        values = [as_numpy(i.value).copy() for i, _ in states]
        attrs: dict[str, Any] = {"state": state, "state_values": values} if state else {}
        if trained := [i.name for i, _ in states if i.meaning == "parameter"]:
            attrs["state_trained"] = trained
        return {**attrs, "mutated_inputs": mutated} if mutated else attrs

    def parameter(self, node: Node, name: str, source: str = "") -> Var:
        """A parameter of ``main`` for a placeholder; ``source`` is a weight's own name."""
        info = self.struct_info(node.meta["val"])
        var = Var(name, info, self.walk.spans.named(source or name))
        # A symbolic integer is worth its expression everywhere else.
        known = info.value if isinstance(info, PrimStructInfo) else None
        self.walk.env[node] = var if known is None else known
        return var

    def struct_info(self, value: Any) -> StructInfo:
        """Struct info of a fake tensor or of a number, symbolic or not."""
        if isinstance(value, torch.Tensor):
            return TensorStructInfo(self.walk.symbols.dims(value.shape), dtype_name(value.dtype))
        if isinstance(value, torch.SymInt):
            return PrimStructInfo(value=self.walk.symbols.integer(value))
        dtype = NUMBERS.get(type(value))
        if dtype is None:
            raise Unsupported(f"an input of type {type(value).__name__}")
        return PrimStructInfo(dtype)

    def ordered(self, outputs: Sequence[Any]) -> list[Any]:
        """The results of ``main``: the user's, then the new values of what the program changes."""
        kept: list[Any] = []
        changed: list[Any] = []
        inputs = {(i.meaning, i.target): i.node for i in self.program.inputs}
        for spec, value in zip(self.program.outputs, outputs, strict=True):
            if not self.gives(spec):
                continue
            if spec.meaning == "refused":
                self.walk.gaps.add(f"output of kind {spec.target}", "has no counterpart", "")
            if spec.meaning == "result":
                kept.append(value)
                continue
            # A module may assign a tensor of another dtype, or shape, to the name of a buffer.
            into = inputs.get((spec.meaning, spec.target))
            if into is not None and isinstance(value, Expr):
                value = self.walk.ctx.cast(value, dtype_name(into.meta["val"].dtype))
            changed.append(value)
        return [*kept, *changed]

    def result(self, outputs: list[Any]) -> Any:
        """Bind what the function returns."""
        if self.options.whole and (whole := _whole(outputs)) is not None:
            return self.out(whole)
        if self.options.whole and len(outputs) == 1 and isinstance(outputs[0], bool | int):
            wide = abs(outputs[0]) >= 1 << 31  # TVM's is an int32
            return self.out(const(outputs[0], "int64" if wide else None))
        fields = [self.returned(v) for v in outputs]
        if self.options.unwrap and len(fields) == 1:
            return self.out(fields[0])
        if self.options.no_bind:
            return Tuple([self.out(f) for f in fields])
        return self.out(Tuple(fields))

    def returned(self, value: Any) -> Expr:
        """An output; None is the empty tuple."""
        if value is None:
            return Tuple(())
        if isinstance(value, Expr):
            return value
        return StringImm(value) if isinstance(value, str) else PrimValue(value)


def _has_branches(module: GraphModule) -> bool:
    """Whether a graph, or one within it, chooses between two of them."""
    graphs = [m.graph for m in module.modules() if isinstance(m, GraphModule)]
    return any(getattr(n.target, "__name__", "") == "cond" for g in graphs for n in g.nodes)


def _whole(outputs: Sequence[Any]) -> Expr | None:
    """The tuple that these are all the fields of, in order, or the shape of these sizes."""
    if len(outputs) > 1 and all(isinstance(v, int | tir.PrimExpr) for v in outputs):
        return None if any(isinstance(v, bool) for v in outputs) else ShapeExpr(tuple(outputs))
    parts = [v for v in outputs if isinstance(v, TupleGetItem)]
    places = [v.index for v in parts]
    if not parts or len(parts) < len(outputs) or places != list(range(len(parts))):
        return None
    whole = parts[0].tuple_value
    info = whole.struct_info
    all_of_it = isinstance(info, TupleStructInfo) and len(info.fields) == len(parts)
    return whole if all_of_it and all(v.tuple_value is whole for v in parts) else None


def _variables(info: StructInfo) -> list[tir.Var]:
    """Symbolic variables in the struct info of a parameter."""
    if isinstance(info, TensorStructInfo) and info.dims is not None:
        dims = info.dims
    else:
        dims = (info.value,) if isinstance(info, PrimStructInfo) and info.value is not None else ()
    return [v for d in dims if isinstance(d, tir.PrimExpr) for v in tir.free_vars(d)]

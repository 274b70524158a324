"""From an ExportedProgram to an IRModule: a walk over the fx graph.

The graph is taken as torch.export leaves it, so that composite operators (linear, layer_norm,
scaled_dot_product_attention, gelu) arrive whole. Torch rewrites it in two cases only: to make it
functional where it writes in place through views, and to decompose the very operators that have no
converter here.

Each value that is made is compared with what torch says of it (dtype and shape). This catches a
wrong converter or inference rule at import, and gives shapes to Relax that only torch could prove.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from relax2xla import op as R
from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import BY_TORCH, dtype_name
from relax2xla.errors import TVMError
from relax2xla.importers._gaps import Gaps, Unsupported
from relax2xla.importers.torch import control, converters, data_dependent
from relax2xla.importers.torch.capture import capture
from relax2xla.importers.torch.context import Context, UnknownSize, as_bool, dtype_of_torch
from relax2xla.importers.torch.decompositions import OWN, decompositions
from relax2xla.importers.torch.inplace import (
    PARTS,
    RESHAPES,
    functional_form,
    needs_functionalization,
    written,
)
from relax2xla.importers.torch.registry import CONVERTERS, bind, operator_name
from relax2xla.importers.torch.source import Input, Program, exported
from relax2xla.importers.torch.spans import Spans
from relax2xla.importers.torch.symbols import Symbols
from relax2xla.importers.torch.weights import Weights, as_numpy
from relax2xla.ir import (
    Constant,
    Expr,
    IRModule,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    Var,
)

# What they check is settled when the program is exported (dtypes, devices), or stands in the
# bounds of the symbolic variables.
MASKED = {"index.Tensor", "_unsafe_index.Tensor"}
CHECKS = {"_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size"}
ASSERTIONS = {
    "_assert_async",
    "_assert_async.msg",
    "_assert_scalar",
    "_functional_assert_async.msg",
    "_functional_assert_scalar",
}


@dataclass(frozen=True, slots=True)
class Options:
    """``from_exported_program``'s options, and what other front ends add to them.

    names:    those of the user's inputs in order, where they are not torch's
    by_name:  parameters kept as inputs have their own names, and are sorted by them
    symbols:  symbolic variables to use, by the name of torch's symbol or ``Dim``
    custom:   converts a node before anything else does; None where it does not concern it
    lenient:  an operator whose conversion goes wrong is a gap too (torch.compile has another way)
    """

    keep_params: bool = False
    unwrap: bool = False
    no_bind: bool = False
    names: Sequence[str] = ()
    by_name: bool = False
    symbols: Mapping[str, tir.Var] = field(default_factory=dict[str, tir.Var])
    custom: Callable[[Importer, Node], Any] | None = None
    lenient: bool = False


def from_exported_program(
    exported_program: ExportedProgram | torch.nn.Module,
    example_args: Sequence[Any] | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
) -> IRModule:
    """A program of ``torch.export.export`` as an IRModule with the function ``main``.

    The parameters of ``main`` are the tensors among the user's inputs, nested ones flattened in
    order; its result is the tuple of the flattened outputs. A dimension of ``torch.export.Dim`` is
    one symbolic variable everywhere; its range is in the function attributes
    ``tir_var_lower_bound`` and ``tir_var_upper_bound``, conditions on several that torch found
    (``if x.shape[0] > y.shape[0]``) in ``tir_var_conditions``; calls check both.

    A ``torch.nn.Module`` is exported first, for ``example_args``, ``example_kwargs`` and
    ``dynamic_shapes`` as ``torch.export.export`` takes them.

    Buffers that the program changes become parameters after the inputs, and their new values
    results after the user's. The attribute ``state`` maps each of their names to the places of
    parameter and result, ``state_values`` holds their values at the export. Inputs that the program
    changes are in ``mutated_inputs``: from the parameter's name to the place of its new value among
    the results. ``VirtualMachine.bind_state("main")`` keeps such state on the device.

    keep_params_as_input:     parameters of the module follow the inputs as parameters of ``main``,
                              and their values are its attribute ``params`` (see ``detach_params``);
                              otherwise they are constants that share torch's memory
    unwrap_unit_return_tuple: return the value itself where the tuple would have one field
    no_bind_return_tuple:     return the tuple without binding it to a variable first

    Raises ``OpNotImplemented`` with everything that cannot be converted, ``UnsupportedError`` for a
    module that torch does not export, TypeError for anything else than a program or a module with
    its example arguments.
    """
    if isinstance(exported_program, torch.nn.Module):
        if example_args is None and example_kwargs is None:
            raise TypeError(
                "from_exported_program takes the result of torch.export.export; got "
                f"{type(exported_program).__name__}. Give a module's example inputs too, as "
                "from_exported_program(module, (x,))"
            )
        exported_program = capture(
            exported_program, example_args or (), example_kwargs or {}, dynamic_shapes
        )
    elif not isinstance(exported_program, ExportedProgram):
        raise TypeError(
            f"from_exported_program takes the result of torch.export.export; "
            f"got {type(exported_program).__name__}"
        )
    elif example_args is not None or example_kwargs is not None or dynamic_shapes is not None:
        raise TypeError(
            "an ExportedProgram has its inputs already; example_args, example_kwargs and "
            "dynamic_shapes go with a torch.nn.Module"
        )
    options = Options(keep_params_as_input, unwrap_unit_return_tuple, no_bind_return_tuple)
    return convert_program(exported(exported_program), options)


def convert_program(program: Program, options: Options) -> IRModule:
    """``from_exported_program`` for any program; raises ``OpNotImplemented``."""
    importer, mod = import_program(program, options)
    if mod is None:
        importer.gaps.raise_all()
    return mod


def import_program(program: Program, options: Options) -> tuple[Importer, IRModule | None]:
    """The last walk, with the program that it walked over, and the module where it has no gaps."""
    converters.load()
    if program.decompose is not None and needs_functionalization(program.module):
        program = program.decompose({})
    importer = Importer(program, options)
    mod = importer.run()
    tried: set[Any] = set()
    while mod is None and (table := decompositions(importer.open - tried)):
        if program.decompose is None:
            break
        tried |= set(table)
        before = importer.gaps
        try:
            program = program.decompose(table)
        except (AssertionError, RuntimeError) as e:
            # Some of torch's decompositions write in place, which torch itself then refuses.
            before.add("torch's decomposition", str(e).partition("\n")[0], "")
            break
        importer = Importer(program, options)
        mod = importer.run()
        importer.gaps.keep(before)
    return importer, mod


class Importer:
    """One walk over one program.

    ``open`` holds the operators that had no (full) converter, ``failed`` the nodes with gaps.
    """

    def __init__(self, program: Program, options: Options) -> None:
        self.program = program
        self.options = options
        self.gaps = Gaps("PyTorch program")
        self.open: set[Any] = set()
        self.failed: set[Node] = set()
        self.symbols = Symbols(options.symbols)
        self.weights = Weights()
        self.spans = Spans()
        self.builder = BlockBuilder()
        self.ctx = Context(self.builder, self.symbols)
        self.env: dict[Node, Any] = {}
        self.regions = 0
        self.asserted: list[tuple[Expr, str]] = []

    # -- the program -------------------------------------------------------------------------
    def run(self) -> IRModule | None:
        """The module, or None where there are gaps."""
        for i in self.program.inputs:
            value = i.node.meta.get("val")
            if isinstance(value, torch.Tensor) and value.layout != torch.strided:
                why = f"a tensor of layout {value.layout}"
                self.gaps.add(f"input {i.name}", why, "", "give a dense tensor (x.to_dense())")
        if self.gaps:
            return None
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
        with self.builder.function("main", variables, attrs):
            with self.builder.dataflow():
                outputs = self.walk(self.program.module)
                with self.builder.source("output"):
                    result = self.result(self.ordered(outputs))
                asserted = [(self.builder.emit_output(x), text) for x, text in self.asserted]
            for condition, text in asserted:
                self.builder.emit(R.assert_op(condition, format=text))
            self.builder.emit_func_output(result)
        if self.gaps:
            return None
        mod = self.builder.get()
        if self.ctx.conditions:
            told = {"tir_var_conditions": list(self.ctx.conditions)}
            mod["main"] = mod["main"].with_attrs(told)
        return mod

    def traced_for(self) -> None:
        """Let calls check what torch assumed of the sizes of the inputs."""
        users = [i.node for i in self.program.inputs if i.meaning in ("input", "number")]
        for condition in self.program.conditions:
            self.ctx.require(
                condition(lambda i, a: self.symbols.dims(users[i].meta["val"].shape)[a])
            )

    def name_symbols(self) -> None:
        """Give symbols the names of the user's ``torch.export.Dim``, where torch knows them."""
        for node in self.program.module.graph.nodes:
            value = node.meta.get("val")
            if node.op != "placeholder" or not isinstance(value, torch.Tensor):
                continue
            for size in value.shape:
                if isinstance(size, torch.SymInt):
                    env = size.node.shape_env
                    names = getattr(env, "source_name_to_debug_name", {})
                    sources = getattr(env, "source_to_var", {})
                    for source, name in names.items():
                        if source in sources:
                            self.symbols.name(env.replace(sources[source]), name)
                    for source, symbol in sources.items():
                        # What dimensions such as 2 * n are derived from.
                        self.symbols.name(env.replace(symbol), source)
                    return

    def derive_symbols(self) -> None:
        """Let dimensions such as 2 * n be variables where there is none of the size n."""
        values = [i.node.meta["val"] for i in self.program.inputs if i.meaning == "input"]
        sizes: list[Any] = [
            size
            for value in values
            for size in (value.shape if isinstance(value, torch.Tensor) else [value])
        ]
        exprs = [s.node.expr for s in sizes if isinstance(s, torch.SymInt)]
        for expr in exprs:
            if not expr.free_symbols:
                continue  # torch has settled it
            symbol, *others = expr.free_symbols
            if others or symbol in exprs or symbol in self.symbols.derived:
                continue
            factor = expr.coeff(symbol)
            offset = expr - factor * symbol
            if factor.is_Integer and factor > 0 and offset.is_Integer:
                exact = self.symbols.derive(symbol, int(factor), int(offset))
                if exact is not None:
                    self.ctx.require(exact)

    def bounds(self, params: Sequence[Var]) -> dict[str, Any]:
        """Function attributes with the ranges of the symbolic variables."""
        used = {v for p in params for v in _variables(p.struct_info)}
        low: dict[str, int] = {}
        high: dict[str, int] = {}
        for symbol, interval in self.program.ranges.items():
            known = self.symbols.variables.get(str(symbol)), 1, 0
            variable, factor, offset = self.symbols.derived.get(symbol, known)
            if variable is None or variable not in used:
                continue
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
                self.gaps.add(f"input {i.name}", "an input of this kind", "")
            elif i.meaning == "number":
                self.env[i.node] = self.symbols.value(i.value)
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
                self.env[i.node] = self.weights.constant(i.value, i.name)
        if self.options.by_name:
            params.sort(key=lambda p: p[0].name)
        return inputs, states, params

    def changes(
        self, inputs: Sequence[tuple[Input, Var]], states: Sequence[tuple[Input, Var]]
    ) -> dict[str, Any]:
        """Function attributes that tell which results are new values of what."""
        results = [o for o in self.program.outputs if o.meaning == "result"]
        changed = [o for o in self.program.outputs if o.meaning != "result"]
        places = {(o.meaning, o.target): len(results) + n for n, o in enumerate(changed)}
        state = {
            i.name: (len(inputs) + n, places[(i.meaning, i.name)])
            for n, (i, _) in enumerate(states)
        }
        mutated = {
            var.name_hint: places["input", i.node.name]
            for i, var in inputs
            if ("input", i.node.name) in places
        }
        values = [as_numpy(i.value).copy() for i, _ in states]
        attrs: dict[str, Any] = {"state": state, "state_values": values} if state else {}
        return {**attrs, "mutated_inputs": mutated} if mutated else attrs

    def parameter(self, node: Node, name: str, source: str = "") -> Var:
        """A parameter of ``main`` for a placeholder; ``source`` is a weight's own name."""
        value = node.meta["val"]
        var = Var(name, self.struct_info(value), self.spans.named(source or name))
        # A symbolic integer is worth its expression everywhere else.
        self.env[node] = self.symbols.value(value) if isinstance(value, torch.SymInt) else var
        return var

    def struct_info(self, value: Any) -> StructInfo:
        """Struct info of a fake tensor or of a symbolic integer."""
        if isinstance(value, torch.Tensor):
            return TensorStructInfo(self.symbols.dims(value.shape), dtype_name(value.dtype))
        if isinstance(value, torch.SymInt):
            known = self.symbols.value(value)
            return PrimStructInfo(value=known)
        dtype = {bool: "bool", int: "int64", float: "float64"}.get(type(value))
        if dtype is None:
            raise Unsupported(f"an input of type {type(value).__name__}")
        return PrimStructInfo(dtype)

    def ordered(self, outputs: Sequence[Any]) -> list[Any]:
        """The results of ``main``: the user's, then the new values of what the program changes."""
        kept: list[Any] = []
        changed: list[Any] = []
        for spec, value in zip(self.program.outputs, outputs, strict=True):
            if spec.meaning == "refused":
                self.gaps.add(f"output of kind {spec.target}", "has no counterpart", "")
            (kept if spec.meaning == "result" else changed).append(value)
        return [*kept, *changed]

    def result(self, outputs: list[Any]) -> Any:
        """Bind what the function returns."""
        fields = [self.returned(v) for v in outputs]
        if self.options.unwrap and len(fields) == 1:
            return self.builder.emit_output(fields[0])
        if self.options.no_bind:
            return Tuple([self.builder.emit_output(f) for f in fields])
        return self.builder.emit_output(Tuple(fields))

    def returned(self, value: Any) -> Expr:
        """An output; None is the empty tuple."""
        if value is None:
            return Tuple(())
        if isinstance(value, Expr):
            return value
        return StringImm(value) if isinstance(value, str) else PrimValue(value)

    # -- graphs ------------------------------------------------------------------------------
    def walk(self, module: GraphModule) -> Sequence[Any]:
        """Convert every node of a graph whose placeholders have values; gives its outputs."""
        for node in module.graph.nodes:
            if node.op == "output":
                fields = node.args[0]
                return [
                    self.read(a) for a in (fields if isinstance(fields, tuple | list) else [fields])
                ]
            if node.op == "placeholder":
                continue
            if node.op == "get_attr":
                self.env[node] = self.attribute(module, node)
                continue
            with self.builder.source(self.spans.of(node)):
                self.env[node] = self.convert(node)
        raise TVMError("the graph has no output node")

    def attribute(self, module: GraphModule, node: Node) -> Any:
        """A submodule, or a tensor as a constant."""
        value = operator.attrgetter(str(node.target))(module)
        name = str(node.target)
        return self.weights.constant(value, name) if isinstance(value, torch.Tensor) else value

    def read(self, arg: Any) -> Any:
        """The value of an argument, with nodes replaced by theirs."""
        if isinstance(arg, Node):
            return self.env[arg]
        if isinstance(arg, list | tuple):
            return [self.read(a) for a in arg]
        return arg

    def convert(self, node: Node) -> Any:
        """The value of a node; where there is none, a gap and a stand-in."""
        expected = node.meta.get("val")
        try:
            return self.bound(node, self.value(node, expected), expected)
        except Unsupported as e:
            return self.gap(node, expected, e)
        except (TVMError, RuntimeError) as e:
            if self.gaps and not self.options.lenient:
                # It works with the stand-in for what could not be converted.
                return self.stand_in(node, expected)
            if not self.options.lenient:
                raise
            return self.gap(node, expected, Unsupported(str(e).partition("\n")[0]))

    def gap(self, node: Node, expected: Any, why: Unsupported) -> Any:
        """Note that ``node`` cannot be converted; gives a stand-in."""
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            # A result that the converter does not compute: its operator is what is lacking.
            self.failed.add(node)
            at, node = node, node.args[0]
            self.open.add(node.target)
            self.gaps.add(str(node.target), why.reason, self.spans.where(at), why.hint)
        else:
            self.gaps.add(str(node.target), why.reason, self.spans.where(node), why.hint)
        elsewhere = not why.hint or isinstance(why, UnknownSize) or node.target in OWN
        if isinstance(node.target, OpOverload) and elsewhere:
            self.open.add(node.target)
        self.failed.add(node)
        return self.stand_in(node, expected)

    def value(self, node: Node, expected: Any) -> Any:
        """Convert one node."""
        target = node.target
        custom = self.options.custom
        if custom is not None and (made := custom(self, node)) is not None:
            return made
        if isinstance(target, OpOverload) and operator_name(target) in data_dependent.ITEMS:
            x = self.read(node.args[0])
            settled = data_dependent.settled(expected)
            if settled is None:
                return data_dependent.item(self.ctx, x, expected)
            same = R.equal(x, self.ctx.tensor(settled, x.struct_info.dtype))
            self.demand(same, f"`{node}` is not {settled}, as torch.export took it to be")
            return settled
        if isinstance(expected, torch.SymInt | torch.SymBool):
            return self.symbols.value(expected)
        if isinstance(expected, torch.SymFloat):
            return data_dependent.number(self.ctx, expected)
        if target is operator.getitem:
            container, index = self.read(node.args[0]), node.args[1]
            if container[index] is None and node.users:
                raise Unsupported(
                    f"its output {index} is not computed", "use the first output only"
                )
            return container[index]
        if isinstance(expected, bool | int | float):
            return expected  # arithmetic on sizes that the export has settled
        if isinstance(target, OpOverload):
            return self.call(node, target)
        if isinstance(target, HigherOrderOperator):
            return control.convert(self, node, target)
        raise Unsupported("no converter for this function")

    def call(self, node: Node, op: Any) -> Any:
        """Convert a call of an operator."""
        name = operator_name(op)
        if name in CHECKS:
            return None
        if name in ASSERTIONS:
            return self.assertion(node)
        changed = functional_form(op)
        converter = CONVERTERS.get(operator_name(changed or op))
        if converter is None:
            raise Unsupported("no converter")
        args = [self.read(a) for a in node.args]
        kwargs = {k: self.read(v) for k, v in node.kwargs.items()}
        self.ctx.out, self.ctx.node = node.meta["val"], node
        if name in MASKED and any(i is not None and data_dependent.is_mask(i) for i in args[1]):
            args[1] = data_dependent.without_masks(self.ctx, args[1])
        try:
            value = converter.function(self.ctx, **bind(changed or op, converter, args, kwargs))
        except TVMError as e:
            notes = "; ".join(n.strip() for n in getattr(e, "__notes__", ()))
            raise Unsupported(f"{e}{f' ({notes})' if notes else ''}") from e
        if changed is not None:
            value = self.ctx.cast(value, self.ctx.dtype())
        return value

    def assertion(self, node: Node) -> Any:
        """A condition; the machine looks at those on data when the results are there.

        Those on sizes torch derives from the bounds, which ``main`` carries.
        """
        condition, *rest = map(self.read, node.args)
        if isinstance(condition, Expr):
            self.demand(as_bool(condition), rest[0] if rest else "")
        return rest[1] if len(rest) > 1 else None

    def demand(self, condition: Expr, text: str) -> None:
        """Let the machine look at a condition on data when the results are there."""
        if self.regions:
            raise Unsupported("an assertion on data in a branch or a loop")
        # It is no format for values.
        text = text.replace("{", "{{").replace("}", "}}")
        self.asserted.append((self.builder.emit(self.ctx.reshape(condition, ())), text))

    def region(self, module: GraphModule, args: Sequence[Any]) -> Sequence[Any]:
        """Convert the nodes of a graph inside the graph where they stand, for these arguments."""
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.env.update(zip(placeholders, args, strict=True))
        self.regions += 1
        try:
            return self.walk(module)
        finally:
            self.regions -= 1

    # -- values ------------------------------------------------------------------------------
    def bound(self, node: Node, value: Any, expected: Any) -> Any:
        """Bind a value to a variable named after the node, and compare it with torch's."""
        if isinstance(value, list | tuple):
            fields = expected if isinstance(expected, list | tuple) else [None] * len(value)
            return [self.bound(node, v, e) for v, e in zip(value, fields, strict=True)]
        if isinstance(value, Expr):
            if not isinstance(value, Var | Constant | ShapeExpr | PrimValue):
                value = self.builder.emit(value, node.name)
            if isinstance(expected, torch.Tensor):
                value = self.compared(node, value, expected)
        target = node.target
        if isinstance(target, OpOverload) and functional_form(target) is not None:
            self.overwrite(node, value)
        return value

    def overwrite(self, node: Node, value: Any) -> None:
        """After an in-place operator, the variables that it changed hold the result too."""
        changed = written(node)
        while changed and not any(node < user for user in changed[-1].users):
            changed.pop()  # nobody reads the whole any more
        for at, whole in itertools.zip_longest(changed, changed[1:]):
            self.env[at] = value
            if whole is None:
                break
            put: Any = PARTS.get(at.target)
            if put is not None:
                value = self.put(node, put, whole, value, at)
            elif at.target in RESHAPES:
                expected = whole.meta["val"]
                value = self.ctx.reshape(value, self.symbols.dims(expected.shape))
                value = self.compared(whole, self.builder.emit(value, whole.name), expected)

    def put(self, node: Node, op: Any, whole: Node, part: Any, view: Node) -> Any:
        """The value of ``whole`` with a new part, where ``view`` was taken of it."""
        args = [self.env[whole], part, *(self.read(a) for a in view.args[1:])]
        kwargs = {k: self.read(v) for k, v in view.kwargs.items()}
        converter = CONVERTERS[operator_name(op)]
        self.ctx.out, self.ctx.node = whole.meta["val"], node
        made = converter.function(self.ctx, **bind(op, converter, args, kwargs))
        return self.compared(whole, self.builder.emit(made, whole.name), self.ctx.out)

    def compared(self, node: Node, value: Expr, expected: torch.Tensor) -> Expr:
        """``value`` if its struct info is what torch says; refined where Relax knows less."""
        info = value.struct_info
        dtype, dims = dtype_of_torch(expected.dtype), self.symbols.dims(expected.shape)
        wanted = TensorStructInfo(dims, dtype)
        if not isinstance(info, TensorStructInfo) or info.dtype != dtype or info.ndim != len(dims):
            raise self.wrong(node, info, wanted)
        if info.dims is None:
            return self.builder.match_cast(value, wanted, node.name)
        refine = False
        for ours, theirs in zip(info.dims, dims, strict=True):
            if isinstance(ours, int) and isinstance(theirs, int):
                if ours != theirs:
                    raise self.wrong(node, info, wanted)
            elif not tir.can_prove_equal(ours, theirs):
                refine = True
        return self.builder.match_cast(value, wanted, node.name) if refine else value

    def wrong(self, node: Node, info: StructInfo, wanted: StructInfo) -> TVMError:
        """The error for a converter that gives another shape or dtype than torch."""
        return TVMError(
            f"internal error of the PyTorch importer: {node.target} gives {info}, but torch says "
            f"{wanted}, at {self.spans.where(node)}. Please report this with the operator's call: "
            f"{node.format_node()}"
        )

    def stand_in(self, node: Node, expected: Any) -> Any:
        """A value to go on with after a gap."""
        if isinstance(expected, list | tuple):
            return [self.stand_in(node, e) for e in expected]
        if isinstance(expected, torch.Tensor):
            known = BY_TORCH.get(str(expected.dtype).removeprefix("torch."))
            dtype = known.name if known else ""
            try:
                info = TensorStructInfo(self.symbols.dims(expected.shape), dtype)
            except Unsupported:  # the node is a gap already
                info = TensorStructInfo(None, dtype, ndim=expected.ndim)
            return Var(node.name, info)
        if isinstance(expected, torch.SymInt | torch.SymBool | torch.SymFloat):
            return tir.Var(node.name, "int64")
        return expected


def _variables(info: StructInfo) -> list[tir.Var]:
    """Symbolic variables in the struct info of a parameter."""
    if isinstance(info, TensorStructInfo) and info.dims is not None:
        dims = info.dims
    else:
        dims = (info.value,) if isinstance(info, PrimStructInfo) and info.value is not None else ()
    return [v for d in dims if isinstance(d, tir.PrimExpr) for v in tir.free_vars(d)]

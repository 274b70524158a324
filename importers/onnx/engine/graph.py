"""The interpreter: an environment of values by name, read, convert, write, node by node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

from relax2xla.analysis.sizes_fit import check_info
from relax2xla.builder import BlockBuilder
from relax2xla.errors import FileFormatError, OpError, TVMError
from relax2xla.importers.onnx.engine.bound_numbers import (
    LIST_LIMIT,
    bound_floats,
    bound_integers,
    bound_sizes,
    limited,
    pinned,
    sizes_together,
)
from relax2xla.importers.onnx.engine.context import Context, LoopMemory, Missing
from relax2xla.importers.onnx.engine.converters import (
    FLOATS,
    INTS,
    KNOWN,
    LAZY,
    LEGACY,
    SIZES,
    Converter,
    Input,
    custom,
    find,
)
from relax2xla.importers.onnx.engine.evaluate import constant_value
from relax2xla.importers.onnx.engine.folding import Budget
from relax2xla.importers.onnx.engine.functions import (
    Functions,
    Opsets,
    domain_of,
    has_body,
    module_of,
    opsets_of,
    schema_body,
    schema_of,
    where,
)
from relax2xla.importers.onnx.engine.known_values import Host, NeedsValue, Text, sprawls
from relax2xla.importers.onnx.engine.objects import Kind
from relax2xla.importers.onnx.read import attributes, tensors
from relax2xla.importers.onnx.read.numbers import weights_without_axes
from relax2xla.importers.shared.gaps import Gaps, Unsupported, reason_of
from relax2xla.ir import Constant, Expr, Span, TensorStructInfo, Tuple, TupleStructInfo, Var
from relax2xla.runtime.progress import counted

Value = Expr | Host
# How symbolic numbers of the values of an input are bound, by the form that a converter asks for.
BINDERS = {SIZES: bound_sizes, INTS: bound_integers, FLOATS: bound_floats}
LOOPS = frozenset({"Loop", "Scan"})
DEPTH_LIMIT = 64
# Functions that call others, and loops that are written out, may come to so many nodes more than
# the model has.
NODE_LIMIT = 1 << 17
# What a converter's own arithmetic raises on attributes and shapes that make no sense.
NONSENSE = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    RuntimeError,
    StopIteration,
    MemoryError,
)


class Frame:
    """Names and their values: one graph, or one call of a function.

    ``outer``: the frame whose names are visible too, ``opsets``: version by domain, ``scope``: the
    attributes that a function was called with, ``prefix``: its call for spans.
    """

    def __init__(
        self,
        opsets: Opsets,
        outer: Frame | None = None,
        scope: attributes.Attributes | None = None,
        prefix: str = "",
    ) -> None:
        self.values: dict[str, Value | None] = {}
        self.opsets = opsets
        self.outer = outer
        self.scope = scope or {}
        self.prefix = prefix
        self.produced: set[str] = set()
        # Whether values at run time can be bound here, and those that have been.
        self.binds = outer is None or outer.binds
        self.bound: dict[tuple[Expr, str], list[Any]] = {}
        # What random numbers are made from in a loop of XLA.
        self.key: Expr | None = None

    def found(self, x: Expr, form: str) -> list[Any] | None:
        """The symbolic numbers of ``x`` that were bound before, here or in a frame around."""
        frame: Frame | None = self
        while frame is not None:
            if (x, form) in frame.bound:
                return frame.bound[x, form]
            frame = frame.outer
        return None

    def read(self, name: str) -> Value:
        """The value of a name. ``Missing`` where a gap is in its place."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.values:
                found = frame.values[name]
                if found is None:
                    raise Missing(name)
                return found
            frame = frame.outer
        later: Frame | None = self
        while later is not None:
            if name in later.produced:
                raise FileFormatError(
                    f"the value {name!r} is read before the node that produces it: the nodes are "
                    "not in topological order, or form a cycle"
                )
            later = later.outer
        raise FileFormatError(
            f"the value {name!r} is read, but no input, initializer or node has that name"
        )

    def write(self, name: str, value: Value | None) -> None:
        """Give a name its value, once."""
        if name in self.values:
            raise FileFormatError(f"the value {name!r} is produced twice")
        self.values[name] = value


class Interpreter:
    """Converts nodes with one builder; ``gaps`` collects what converters refuse.

    ``binding``: whether integers that are computed at run time are bound to symbolic ones.
    """

    def __init__(
        self, builder: BlockBuilder, functions: Functions, directory: tensors.Folder | None
    ) -> None:
        self.builder = builder
        self.functions = functions
        self.directory = directory
        self.gaps = Gaps("ONNX model")
        self.binding = True
        # What objects of the machine hold: sequences, optionals, strings.
        self.kinds: dict[Expr, Kind] = {}
        # Values at run time that converters had to know.
        self.needed: list[Expr] = []
        self.budget = Budget()
        self.loops = LoopMemory()
        self.depth = 0
        # Nodes that may still be converted.
        self.left = NODE_LIMIT

    def initializers(self, graph: GraphProto) -> dict[str, Host]:
        """The initializers of a graph by name, sparse ones made dense."""
        made: dict[str, Host] = {}
        dense = [(t.name, t, None) for t in graph.initializer]
        spread = [(s.values.name, None, s) for s in graph.sparse_initializer]
        is_number = weights_without_axes(graph)
        for name, t, s in (*dense, *spread):
            if not name.strip():
                raise FileFormatError("Tensor's name is required.")
            if name in made:
                raise FileFormatError(f"two initializers have the name {name!r}")
            if t is not None and t.data_type == TensorProto.STRING:
                made[name] = Text(tensors.strings(t))
                continue
            data = (
                tensors.tensor(t, self.directory)
                if t is not None
                else tensors.sparse(s, self.directory)  # pyright: ignore[reportArgumentType]
            )
            made[name] = Host.weight(data, name, is_number)
        return made

    def run(self, nodes: Iterable[NodeProto], frame: Frame) -> None:
        """Convert nodes in order."""
        nodes = list(nodes)
        self.left -= len(nodes)
        if self.left < 0:
            raise FileFormatError(
                f"the model's functions and loops come to more than {NODE_LIMIT} nodes when they "
                "are written out"
            )
        frame.produced = {o for n in nodes for o in n.output if o}
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise FileFormatError(
                f"subgraphs or functions are nested more than {DEPTH_LIMIT} deep, or a function "
                "calls itself"
            )
        whole = self.depth == 1
        for node in counted("importing", nodes, "nodes") if whole else nodes:
            label = frame.prefix + where(node)
            with self.builder.source(Span(name=label, children=module_of(node))):
                self.node(node, frame, label)
        self.depth -= 1

    def node(self, node: NodeProto, frame: Frame, label: str) -> None:
        """Convert one node; an unsupported one is noted and its outputs are missing."""
        results: Sequence[Value | None]
        try:
            inputs = [frame.read(i) if i else None for i in node.input]
            results = self.convert(node, frame, inputs, label)
        except Missing:
            results = [None] * len(node.output)
        except Unsupported as e:
            self.gaps.add(node.op_type, e.reason, label, e.hint)
            if isinstance(e, NeedsValue):
                self.needed.append(e.value)
            results = [None] * len(node.output)
        except FileFormatError:
            raise
        except (TVMError, *NONSENSE) as e:
            if isinstance(e, TVMError) and getattr(e, "onnx_node", None):
                raise
            kinds = OpError if isinstance(e, TVMError) else FileFormatError
            why = reason_of(e)
            error = kinds(f"the ONNX node {label!r} ({node.op_type}) cannot be converted: {why}")
            raise error from e
        for name, value in zip(node.output, results, strict=True):
            if isinstance(value, Expr):
                check_info(value.struct_info, f"the ONNX node {label!r} ({node.op_type}): {name}")
            if name:
                frame.write(name, value)

    def convert(
        self, node: NodeProto, frame: Frame, inputs: list[Value | None], label: str
    ) -> list[Value | None]:
        """The values of a node's outputs, None for those without a name."""
        domain = domain_of(node.domain)
        given = attributes.resolved(node, frame.scope)
        opset = frame.opsets.get(domain, 1)
        own = custom(domain, node.op_type, opset)
        local = self.functions.local(node)
        if local is not None and own is None:
            return self.call(local, given, frame, inputs, node, label)
        values = {n: attributes.value(a, self.directory) for n, a in given.items()}
        for name in LEGACY & set(values):
            del values[name]
        if not domain and own is None:
            folded = self.fold(node, inputs, values, opset)
            if folded is not None:
                return folded
        converter = find(domain, node.op_type, opset)
        schema = schema_of(node, frame.opsets)
        if converter is not None:
            try:
                converter.check([v is not None for v in inputs], list(values))
                if node.op_type in LOOPS:
                    self.bind_around(node, frame)
                made = self.apply(converter, node, frame, inputs, values, label)
                return self.bound(node, made, self.binding and frame.binds)
            except Unsupported:
                if not has_body(schema, values):
                    raise
        if not has_body(schema, values):
            raise Unsupported(f"no converter (opset {opset})")
        exprs = [v.expr if isinstance(v, Host) else v for v in inputs]
        plain = NodeProto()
        plain.CopyFrom(node)
        del plain.attribute[:]
        for name, a in given.items():
            plain.attribute.add().CopyFrom(a)
            plain.attribute[-1].name = name
        body = schema_body(schema, plain, opset, exprs)
        defaults = {
            n: a.default_value for n, a in schema.attributes.items() if a.default_value.type
        }
        return self.call(body, {**defaults, **given}, frame, inputs, node, label)

    def fold(
        self, node: NodeProto, inputs: Sequence[Value | None], values: dict[str, Any], opset: int
    ) -> list[Value | None] | None:
        """The values of a node whose inputs are all known, if they can be computed here."""
        hosts: list[Host | None] = []
        for v in inputs:
            if v is not None and not (isinstance(v, Host) and v.fold):
                return None
            hosts.append(v)
        converter = find("", node.op_type, opset)
        if converter is not None:
            # What a node lacks is said by the converter; a folder takes well-formed nodes.
            try:
                converter.check([v is not None for v in inputs], list(values))
            except Unsupported:
                return None
        results = self.budget.fold(node.op_type, hosts, values)
        if results is None or len(results) != len(node.output):
            return None
        return list(results)

    def apply(
        self,
        converter: Converter,
        node: NodeProto,
        frame: Frame,
        inputs: Sequence[Value | None],
        values: dict[str, Any],
        label: str,
    ) -> Any:
        """Call a converter with each input in the form that it asks for."""
        forms = [(i.form, i.name) for i in converter.inputs]
        opset = frame.opsets.get(converter.domain, 1)
        args: list[Any] = []
        late: Expr | None = None
        for at, v in enumerate(inputs):
            form, name = forms[at] if at < len(forms) else (None, "")
            if v is None or form is None:
                args.append(v.expr if isinstance(v, Host) else v)
                continue
            if not isinstance(v, Host):
                found = constant_value(self.builder, v)
                if found is None:
                    args.append(self.late(v, form, frame, f"the input {name}"))
                    late = late or v
                    continue
                v = Host(found)
            if form == KNOWN and v.symbolic:
                raise NeedsValue(v.expr, f"the input {name}")
            if form == FLOATS and v.symbolic:
                args.append(self.late(v.expr, form, frame, f"the input {name}"))
                continue
            if form != KNOWN and v.data.size > LIST_LIMIT:
                raise Unsupported(
                    f"the input {name} has {v.data.size} values; {LIST_LIMIT} are supported"
                )
            args.append(v.known() if form == KNOWN else v.known().reshape(-1).tolist())
        while not converter.variadic and args and args[-1] is None:
            args.pop()
        wanted = [bool(o) for o in node.output]
        ctx = Context(
            builder=self.builder,
            op=node.op_type,
            opset=opset,
            wanted=wanted,
            subgraph=lambda g, xs, host=False, key=None: self.subgraph(g, frame, xs, host, key),
            loops=self.loops,
            mark=self.mark,
            label=label,
            binds=self.binding and frame.binds,
            host=frame.binds,
            kinds=self.kinds,
            key=frame.key,
        )
        try:
            return converter.function(ctx, *args, **values)
        except Unsupported as e:
            if late is None or isinstance(e, NeedsValue):
                raise
            # What the converter does not take is a number that depends on the value.
            raise NeedsValue(late, "an input that says a shape or position") from e

    def late(self, v: Expr, form: str, frame: Frame, what: str) -> Any:
        """An input that is computed at run time, as symbolic numbers or as it is."""
        found = frame.found(v, form)
        if found is not None:
            return found
        if form == KNOWN or not (self.binding and frame.binds):
            raise NeedsValue(v, what)
        if form == LAZY:
            limited(v, what)
            return v
        made = BINDERS[form](self.builder, v, what)
        frame.bound[v, form] = made
        return made

    def bind_around(self, node: NodeProto, frame: Frame) -> None:
        """Bind what the body of a loop needs as numbers and does not compute itself.

        A loop of XLA can look at no value, but may know those that were bound before it.
        """
        if not (self.binding and frame.binds):
            return
        stack = [(a.g, frozenset[str]()) for a in node.attribute if a.HasField("g")]
        while stack:
            graph, hidden = stack.pop()
            own = {i.name for i in (*graph.input, *graph.initializer)}
            hidden = hidden.union(own, (o for n in graph.node for o in n.output))
            for inner in graph.node:
                stack += [(a.g, hidden) for a in inner.attribute if a.HasField("g")]
                domain = domain_of(inner.domain)
                converter = find(domain, inner.op_type, frame.opsets.get(domain, 1))
                if converter is None or self.functions.local(inner) is not None:
                    continue
                for name, wanted in zip(inner.input, converter.inputs, strict=False):
                    if name and name not in hidden and wanted.form in BINDERS:
                        self.bind_early(name, wanted, frame)

    def bind_early(self, name: str, wanted: Input, frame: Frame) -> None:
        """Bind the value of a name where the builder stands; what cannot be is left as it is."""
        with contextlib.suppress(Missing, Unsupported, FileFormatError):
            found = frame.read(name)
            if not isinstance(found, Host) and constant_value(self.builder, found) is None:
                self.late(found, str(wanted.form), frame, f"the input {wanted.name}")

    def bound(self, node: NodeProto, result: Any, reads: bool) -> list[Value | None]:
        """A converter's result, bound to variables, one for each output of the node.

        reads: whether sizes that are not known may be read off the values at run time
        """
        if isinstance(result, Expr) and isinstance(result.struct_info_, TupleStructInfo):
            result = list(result if isinstance(result, Tuple) else self.builder.emit(result))
        results = list(result) if isinstance(result, tuple | list) else [result]
        results = results[: len(node.output)]
        results += [None] * (len(node.output) - len(results))
        if any(n and r is None for n, r in zip(node.output, results, strict=True)):
            # TVM's words, for programs that look for them.
            raise Unsupported(
                f"Number of output mismatch {len(node.output)} vs "
                f"{sum(r is not None for r in results)} in {node.op_type}."
            )
        made: list[Value | None] = []
        for name, r in zip(node.output, results, strict=True):
            if not name:
                made.append(None)
            elif isinstance(r, np.ndarray):
                made.append(Host(r))
            elif isinstance(r, Constant):
                made.append(Host(r.data, expr=r, fold=r.span is None or not r.span.name))
            elif isinstance(r, Host):
                made.append(r)
            else:
                var = r if isinstance(r, Var) else self.builder.emit(r)
                info = var.struct_info_
                if isinstance(info, TensorStructInfo) and any(map(sprawls, info.dims or ())):
                    raise Unsupported("the sizes of its result are too long to be written down")
                if isinstance(info, TensorStructInfo) and not info.dims and info.ndim > 0:
                    sizes = sizes_together(r) or [None] * info.ndim
                    if reads or None not in sizes:
                        var = pinned(self.builder, var, sizes)
                made.append(var)
        return made

    def mark(self) -> Callable[[], None]:
        """A way back to the gaps that are known now, for a converter that tries another way."""
        gaps, needed, depth = self.gaps.snapshot(), len(self.needed), self.depth

        def undo() -> None:
            self.gaps.restore(gaps)
            del self.needed[needed:]
            self.depth = depth

        return undo

    # -- graphs inside the graph -----------------------------------------------------------------
    def call(
        self,
        function: FunctionProto,
        given: dict[str, AttributeProto],
        frame: Frame,
        inputs: Sequence[Value | None],
        node: NodeProto,
        label: str,
    ) -> list[Value | None]:
        """Convert a function's body in place of a node that calls it."""
        defaults = {a.name: a for a in function.attribute_proto}
        opsets = {**frame.opsets, **opsets_of(function.opset_import)}
        inner = Frame(opsets, scope={**defaults, **given}, prefix=f"{label}/")
        inner.binds, inner.bound, inner.key = frame.binds, frame.bound, frame.key
        if len(inputs) > len(function.input):
            raise FileFormatError(
                f"{label!r} calls {function.name} with {len(inputs)} inputs; it has "
                f"{len(function.input)}"
            )
        if len(node.output) > len(function.output):
            raise FileFormatError(
                f"{label!r} names {len(node.output)} outputs of {function.name}; it has "
                f"{len(function.output)}"
            )
        renamed = _without_missing(function, inputs)
        for name, v in zip(function.input, inputs, strict=False):
            if v is not None:
                inner.write(name, v)
        self.run(renamed, inner)
        return [
            inner.read(name) if wanted else None
            for name, wanted in zip(function.output, node.output, strict=False)
        ]

    def subgraph(
        self,
        graph: GraphProto,
        frame: Frame,
        inputs: Sequence[Expr],
        host: bool = False,
        key: Expr | None = None,
    ) -> list[Expr]:
        """Convert the body of a branch: it sees the values around it (``get_output_expr``).

        host: with inputs too, it is no operation of XLA, in which nothing can be read on the host
        """
        inner = Frame(frame.opsets, frame, frame.scope, frame.prefix)
        inner.binds = frame.binds and (host or not inputs)
        inner.key = key or frame.key
        for name, weight in self.initializers(graph).items():
            inner.write(name, weight)
        names = [i.name for i in graph.input if i.name not in inner.values]
        if len(names) != len(inputs):
            raise FileFormatError(
                f"the subgraph {graph.name!r} has {len(names)} inputs; expected {len(inputs)}"
            )
        for name, x in zip(names, inputs, strict=True):
            inner.write(name, Host(x.data, expr=x) if isinstance(x, Constant) else x)
        self.run(graph.node, inner)
        outputs = [inner.read(o.name) for o in graph.output]
        return [v.expr if isinstance(v, Host) else v for v in outputs]


def _without_missing(
    function: FunctionProto, inputs: Sequence[Value | None]
) -> Sequence[NodeProto]:
    """The body of a function, with the inputs that the caller left out left out inside too."""
    absent = {
        name for i, name in enumerate(function.input) if i >= len(inputs) or inputs[i] is None
    }
    if not absent:
        return list(function.node)
    body: list[NodeProto] = []
    for node in function.node:
        if absent.intersection(node.input):
            copy = NodeProto()
            copy.CopyFrom(node)
            del copy.input[:]
            copy.input.extend("" if i in absent else i for i in node.input)
            node = copy
        body.append(node)
    return body

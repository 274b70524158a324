"""``from_onnx``: a model's inputs, weights and outputs, around the interpreter.

Order, as in TVM: the checker, initializers, inputs, the user's shapes, what is unsupported, nodes,
outputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto
from onnx.defs import onnx_opset_version

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import dtype_name, is_integer
from relax2xla.errors import FileFormatError
from relax2xla.importers.onnx.engine.converters import load_entry_points
from relax2xla.importers.onnx.engine.functions import Functions, gaps_of, opsets_of
from relax2xla.importers.onnx.engine.graph import Frame, Interpreter
from relax2xla.importers.onnx.engine.known_values import Array, Host
from relax2xla.importers.onnx.engine.objects import Kind
from relax2xla.importers.onnx.read.dimensions import Expressions, is_unknown
from relax2xla.importers.onnx.read.source import Model, Source, complaints, read
from relax2xla.importers.onnx.read.tensors import dtype_of_code
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.modules import load_modules
from relax2xla.ir import Expr, IRModule, ObjectStructInfo, Span, TensorStructInfo, Tuple, Var
from relax2xla.ir.source_names import identifier, with_result_names
from relax2xla.tir import Dim

# An integer initializer of at most so many values may say a shape: it is folded even where
# parameters stay inputs.
SHAPE_LIKE = 64
# A branch, and the local function of a loop that the machine runs, are in no dataflow block.
WITH_BRANCHES = frozenset({"If", "Loop", "SequenceMap"})


def from_onnx(
    model: Model,
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: str | Mapping[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule:
    """An ONNX model as an IRModule with the function ``main``.

    model:         a ModelProto, the path of a file (needed for external data), or its contents
    shape_dict:    shapes by input name, in place of the model's; an entry is an integer, a string
                   (the name of a symbolic dimension) or a symbolic variable
    dtype_dict:    dtypes by input name, in place of the model's; a single string changes nothing
    opset:         version of the ai.onnx operators, in place of the model's
    keep_params_in_input: initializers follow the inputs as parameters of ``main`` (those that
                   ``graph.input`` lists keep their place there) and their values are its attribute
                   ``params`` (see ``detach_params``); otherwise they are constants
    sanitize_input_names: turn input names into identifiers

    A named dimension (``dim_param``) is one symbolic variable everywhere; ``?`` is another one each
    time, and arithmetic on names that are sizes themselves (``past + 1``) is just that. The result
    is the bare output, or a tuple of several. Every binding carries the name of its node as its
    span. The function attribute ``num_input`` counts the inputs that are no parameters.

    Raises ``FileFormatError`` for what is no valid model and ``OpNotImplemented`` with everything
    that cannot be converted; complaints of onnx's own checker are warnings only.
    """
    source = checked(model)
    opsets = _opsets(source.proto, opset)
    dtypes = {} if dtype_dict is None or isinstance(dtype_dict, str) else dict(dtype_dict)
    importer = Importer(source, opsets, dict(shape_dict or {}), dtypes)
    importer.keep = keep_params_in_input
    importer.sanitize = sanitize_input_names
    return importer.run()


def checked(model: Model) -> Source:
    """The model, read; what onnx's checker says against it is a warning."""
    load_converters()
    source = read(model)
    complaint = complaints(source.proto)
    if complaint is not None:
        warnings.warn(complaint, stacklevel=3)
    return source


def load_converters() -> None:
    """Register the converters of this package."""
    load_modules("relax2xla.importers.onnx.ops")
    load_entry_points()


def _opsets(proto: ModelProto, opset: int | None) -> dict[str, int]:
    opsets = opsets_of(proto.opset_import)
    in_model, newest = opsets.setdefault("", 1), onnx_opset_version()
    if opset is None and in_model > newest:
        warnings.warn(
            f"the model is of opset {in_model}, and the newest that this onnx knows is {newest}: "
            "what is different in later ones is read as it was",
            stacklevel=4,
        )
    if opset is not None:
        if opset < in_model:
            warnings.warn(
                f"You are overwritting original opset ver = {in_model} by lower ver = {opset}. "
                "That might cause model conversion errors.",
                stacklevel=3,
            )
        opsets[""] = opset
    return opsets


class Importer:
    """One import.

    ``keep``: parameters stay inputs; ``sanitize``: names become identifiers; ``binding``: integers
    that are computed at run time may say shapes; ``known``: values of inputs that are constants of
    this import.
    """

    keep = False
    sanitize = True
    binding = True
    known: Mapping[str, Array] = {}

    def __init__(
        self,
        source: Source,
        opsets: dict[str, int] | None = None,
        shapes: Mapping[str, Sequence[Any]] | None = None,
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        self.proto = source.proto
        self.opsets = opsets = opsets or _opsets(source.proto, None)
        self.shapes, self.dtypes = dict(shapes or {}), dict(dtypes or {})
        self.functions = Functions.of(self.proto)
        self.builder = BlockBuilder()
        self.interpreter = Interpreter(self.builder, self.functions, source.directory)
        self.frame = Frame(opsets)
        self.symbols: dict[str, Dim] = {}
        self.expressions = Expressions(self.dimensions())
        self.names: set[str] = set()
        self.operators: set[str] = set()

    def run(self) -> IRModule:
        """The module."""
        self.interpreter.binding = self.binding
        graph = self.proto.graph
        weights = self.interpreter.initializers(graph)
        self.check_user_inputs({i.name for i in graph.input})
        gaps, operators = gaps_of(self.proto, self.opsets, self.functions)
        self.operators = set(operators)
        self.interpreter.left += operators.total()
        gaps.raise_if_any()
        self.bind_symbols(weights)
        params: list[Var] = []
        values: dict[Var, Any] = {}
        inputs = 0
        for info in graph.input:
            if info.name in self.known:
                self.frame.write(info.name, Host(self.known[info.name]))
            elif info.name in weights:
                if self.keep:
                    params.append(self.weight(info.name, weights[info.name], values))
                else:
                    self.frame.write(info.name, weights[info.name])
            else:
                params.append(self.input(info))
                inputs += 1
        listed = {i.name for i in graph.input}
        unlisted: list[Var] = []
        for name, host in weights.items():
            if name not in listed:
                if self.keep:
                    unlisted.append(self.weight(name, host, values))
                else:
                    self.frame.write(name, host)
        # Parameters are known only when the body is: what no output needs is left out.
        with self.builder.function("main", None, {"num_input": inputs}):
            result = self.body()
            needed = self.used(result) if values else set[Var]()
            params += [v for v in unlisted if v in needed]
            self.builder.emit_func_output(result, params)
        mod = self.builder.get()
        if self.keep:
            main = mod["main"]
            if kept := [values[v] for v in main.params if v in values]:
                mod["main"] = main.with_attr("params", kept)
        mod["main"] = with_result_names(mod["main"], [o.name for o in self.proto.graph.output])
        return mod

    # -- the body ----------------------------------------------------------------------------
    def body(self) -> Expr:
        """Convert the nodes; gives the function's result."""
        if self.operators & WITH_BRANCHES:
            return self.builder.emit(self.converted())
        with self.builder.dataflow():
            return self.builder.emit_output(self.converted())

    def converted(self) -> Expr:
        """The graph's output as it is, or the tuple of several."""
        graph = self.proto.graph
        self.interpreter.run(graph.node, self.frame)
        self.interpreter.gaps.raise_if_any()
        if not graph.output:
            raise FileFormatError("the graph has no outputs")
        values = [self.frame.read(o.name) for o in graph.output]
        outputs = [v.expr if isinstance(v, Host) else v for v in values]
        return outputs[0] if len(outputs) == 1 else Tuple(outputs)

    def needed_inputs(self) -> list[str]:
        """Inputs that decide values which converters of the failed import had to know."""
        used = self.used(*self.interpreter.needed)
        values = self.frame.values
        return [i.name for i in self.proto.graph.input if values.get(i.name) in used]

    def used(self, *results: Expr) -> set[Var]:
        """The variables that results of the function depend on."""
        from relax2xla.ir.rewrite import post_order_deep

        found: set[Var] = set()
        stack: list[Expr] = list(results)
        while stack:
            for node in post_order_deep(stack.pop()):
                if isinstance(node, Var) and node not in found:
                    found.add(node)
                    value = self.builder.lookup_binding(node)
                    if value is not None:
                        stack.append(value)
        return found

    # -- inputs and weights ------------------------------------------------------------------
    def weight(self, name: str, host: Host, values: dict[Var, Any]) -> Var:
        """A parameter that holds an initializer."""
        info = TensorStructInfo(tuple(host.data.shape), host.dtype)
        var = Var(self.identifier(name), info, Span(name=name))
        values[var] = host.data
        small = is_integer(host.dtype) and host.data.size <= SHAPE_LIKE
        self.frame.write(name, Host(host.data, expr=var, fold=small))
        return var

    def input(self, info: ValueInfoProto) -> Var:
        """A parameter that is an input."""
        name = info.name
        if not name:
            raise FileFormatError("an input of the graph has no name")
        tensor = info.type.tensor_type
        what = f"the input {name!r}"
        try:
            if info.type.WhichOneof("value") is None:
                raise Unsupported("an input of no type")
            if (
                info.type.WhichOneof("value") != "tensor_type"
                or tensor.elem_type == TensorProto.STRING
            ):
                var = Var(self.identifier(name), ObjectStructInfo(), Span(name=name))
                self.interpreter.kinds[var] = Kind.of(info.type, what)
                self.frame.write(name, var)
                return var
            if name in self.dtypes:
                dtype = dtype_name(self.dtypes[name])
            else:
                dtype = dtype_of_code(tensor.elem_type, what).name
        except Unsupported as e:
            self.interpreter.gaps.add("input", e.reason, name)
            self.interpreter.gaps.raise_if_any()
            raise
        var = Var(self.identifier(name), self.input_info(name, tensor, dtype), Span(name=name))
        self.frame.write(name, var)
        return var

    def input_info(self, name: str, tensor: TypeProto.Tensor, dtype: str) -> TensorStructInfo:
        """Struct info of an input: the user's shape, else the model's."""
        if name in self.shapes:
            return TensorStructInfo([self.given(d) for d in self.shapes[name]], dtype)
        if not tensor.HasField("shape"):
            return TensorStructInfo(None, dtype)
        dims: list[Dim] = []
        unknown = False
        for at, d in enumerate(tensor.shape.dim):
            kind = d.WhichOneof("value")
            if kind == "dim_value":
                if d.dim_value < 0:
                    raise FileFormatError(f"the input {name!r} has the dimension {d.dim_value}")
                dims.append(int(d.dim_value))
            elif kind == "dim_param" and not is_unknown(d.dim_param):
                dims.append(self.symbol(d.dim_param))
            else:
                unknown = True
                dims.append(self.symbol(f"{name}_{at}", fresh=True))
        if unknown:
            names = [d.dim_param for d in tensor.shape.dim if d.WhichOneof("value") != "dim_value"]
            warnings.warn(
                f"Input {name} has unknown dimension shapes: {names}. "
                "Specifying static values may improve performance",
                stacklevel=6,
            )
        return TensorStructInfo(dims, dtype)

    def given(self, dim: Any) -> Dim:
        """One dimension of the user's shape."""
        if isinstance(dim, str):
            return self.symbol(dim)
        return tir.as_dim(dim) if isinstance(dim, tir.PrimExpr) else int(dim)

    def dimensions(self) -> Iterator[str]:
        """Names of dimensions that get a value: the model's, and the user's in place of them."""
        for info in self.proto.graph.input:
            dims = info.type.tensor_type.shape.dim
            given = self.shapes.get(info.name)
            for at, d in enumerate(dims):
                if given is None or (len(given) == len(dims) and not isinstance(given[at], str)):
                    yield d.dim_param
        for shape in self.shapes.values():
            yield from (d for d in shape if isinstance(d, str))

    def symbol(self, name: str, fresh: bool = False) -> Dim:
        """The symbolic variable of a dimension's name, or what its arithmetic comes to."""
        if not fresh and name in self.expressions:
            return self.expressions.value(name, self.symbol)
        if fresh or name not in self.symbols:
            made = tir.Var(self.unique(name, "dim"), "int64")
            if fresh:
                return made
            self.symbols[name] = made
        return self.symbols[name]

    def bind_symbols(self, weights: Mapping[str, Host]) -> None:
        """Give a named dimension the size that the user's shape of some input has there."""
        for info in self.proto.graph.input:
            shape = self.shapes.get(info.name)
            dims = info.type.tensor_type.shape.dim
            if shape is not None and info.name in weights:
                own = weights[info.name].data.shape
                if tuple(shape) != own:
                    raise ValueError(
                        f"shape_dict gives {info.name!r} the shape {tuple(shape)}; it is an "
                        f"initializer of shape {own}"
                    )
                continue
            if shape is None or not dims:
                continue
            if len(shape) != len(dims):
                raise ValueError(
                    f"shape_dict gives {info.name!r} {len(shape)} dimensions; the model says "
                    f"{len(dims)}"
                )
            for asked, d in zip(shape, dims, strict=True):
                name = d.dim_param
                if is_unknown(name) or isinstance(asked, str) or name in self.expressions:
                    continue
                size = self.given(asked)
                known = self.symbols.setdefault(name, size)
                if isinstance(known, int) and isinstance(size, int) and known != size:
                    raise ValueError(
                        f"shape_dict gives the dimension {name!r} two sizes: {known} and "
                        f"{size} (of {info.name!r})"
                    )

    def check_user_inputs(self, names: set[str]) -> None:
        """Refuse shapes and dtypes for inputs that are not there."""
        for what, given in (("shape_dict", self.shapes), ("dtype_dict", self.dtypes)):
            unknown = [n for n in given if n not in names]
            if unknown:
                raise ValueError(
                    f"{what} names {', '.join(map(repr, unknown))}; the model's inputs are "
                    f"{', '.join(map(repr, sorted(names))) or 'none'}"
                )

    # -- names -------------------------------------------------------------------------------
    def identifier(self, name: str) -> str:
        """A unique name of a parameter; an identifier unless the user keeps the model's names."""
        if not self.sanitize:
            self.names.add(name)
            return name
        made = self.unique(name, "input")
        if made != name:
            warnings.warn(f"Renaming name {name} to {made}", stacklevel=6)
        return made

    def unique(self, name: str, prefix: str) -> str:
        """``name`` as an identifier that is not taken, and is from now on."""
        made = identifier(name, self.names, prefix=prefix, each=True)
        self.names.add(made)
        return made

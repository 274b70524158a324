"""Operators that others define: a model's functions, the bodies of schemas; and the dry walk."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto

from relax2xla.dtypes import DTYPES
from relax2xla.errors import FileFormatError
from relax2xla.importers.onnx.engine.converters import LEGACY, custom, find
from relax2xla.importers.shared.gaps import Gaps, Unsupported
from relax2xla.ir import Expr, Span, TensorStructInfo

Opsets = Mapping[str, int]


def domain_of(name: str) -> str:
    """A domain by its one name: "" is ai.onnx."""
    return "" if name == "ai.onnx" else name


def opsets_of(imports: Iterable[Any]) -> dict[str, int]:
    """Version by domain."""
    return {domain_of(i.domain): int(i.version) for i in imports}


def where(node: NodeProto) -> str:
    """The node's name for messages and spans: its own, or that of its first output."""
    return node.name or next((o for o in node.output if o), "") or node.op_type


# What torch.onnx.export writes: a list in Python's notation, of the paths of the modules around a
# node, the outermost ("") first, and the name of the operator in torch's graph.
_SCOPES: Final = "pkg.torch.onnx.name_scopes"
_QUOTED: Final = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")


def module_of(node: NodeProto) -> tuple[Span, ...]:
    """The torch module that a node was exported from, as the place of a span; () where none is."""
    told = next((p.value for p in node.metadata_props if p.key == _SCOPES), "")
    paths = [a or b for a, b in _QUOTED.findall(told)]
    module = paths[-2] if len(paths) > 1 else ""
    return (Span(name=module),) if module else ()


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions that a model defines, by domain, name and overload."""

    table: Mapping[tuple[str, str, str], FunctionProto]

    @staticmethod
    def of(model: ModelProto) -> Functions:
        """The functions of ``model``; each may be defined once."""
        table: dict[tuple[str, str, str], FunctionProto] = {}
        for f in model.functions:
            key = (domain_of(f.domain), f.name, f.overload)
            if key in table:
                raise FileFormatError(f"the function {f.domain}.{f.name} is defined twice")
            table[key] = f
        return Functions(table)

    def local(self, node: NodeProto) -> FunctionProto | None:
        """The model's own function that ``node`` calls."""
        return self.table.get((domain_of(node.domain), node.op_type, node.overload))


def schema_of(node: NodeProto, opsets: Opsets) -> Any:
    """The schema of a node's operator, or None."""
    domain = domain_of(node.domain)
    return _schema(node.op_type, domain, opsets.get(domain, 1))


def _schema(op: str, domain: str, opset: int) -> Any:
    if not onnx.defs.has(op, domain) or abs(opset) >= 2**31:
        return None
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None


def has_body(schema: Any, attributes: Iterable[str]) -> bool:
    """Whether there is a schema that defines the operator, with these attributes, by others."""
    if schema is None or not set(attributes) - LEGACY <= set(schema.attributes):
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def schema_body(
    schema: Any, node: NodeProto, opset: int, inputs: Sequence[Expr | None]
) -> FunctionProto:
    """The schema's definition of ``node`` by other operators."""
    if schema.has_function:
        return schema.function_body
    types = [b"" if x is None else type_proto(x).SerializeToString() for x in inputs]
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    body = schema.get_context_dependent_function_with_opset_version(
        max(versions or [schema.since_version]), node.SerializeToString(), types
    )
    if not body:
        raise Unsupported("the schema's definition does not cover this form")
    made = FunctionProto()
    made.ParseFromString(body)
    return made


def type_proto(x: Expr) -> TypeProto:
    """The ONNX type of a tensor."""
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise Unsupported("the schema's definition is of tensors; an operand is none")
    dims = None if info.dims is None else [d if isinstance(d, int) else str(d) for d in info.dims]
    return onnx.helper.make_tensor_type_proto(DTYPES[info.dtype].onnx or 0, dims)


def gaps_of(model: ModelProto, opsets: Opsets, functions: Functions) -> tuple[Gaps, Counter[str]]:
    """Everything that cannot be converted, before anything is: operators, attributes, inputs.

    Counts the nodes of each operator too, those inside functions and subgraphs included.
    """
    gaps = Gaps("ONNX model")
    operators: Counter[str] = Counter()
    seen: set[tuple[str, str, str]] = set()
    stack: list[tuple[Iterable[NodeProto], Opsets]] = [(model.graph.node, opsets)]
    while stack:
        nodes, versions = stack.pop()
        for node in nodes:
            operators[node.op_type] += 1
            _check_types(node, versions)
            for a in node.attribute:
                graphs: list[GraphProto] = [a.g] if a.HasField("g") else list(a.graphs)
                stack.extend((g.node, versions) for g in graphs)
            body = _check(node, versions, functions, gaps)
            key = (domain_of(node.domain), node.op_type, node.overload)
            if body is not None and key not in seen:
                seen.add(key)
                inner = opsets_of(body.opset_import)
                stack.append((body.node, {**versions, **inner}))
    return gaps, operators


# Integers where the schema asks for floats mean the same.
_FLOATS = {AttributeProto.FLOAT: AttributeProto.INT, AttributeProto.FLOATS: AttributeProto.INTS}


def _check_types(node: NodeProto, opsets: Opsets) -> None:
    """FileFormatError where an attribute has another type than its schema says."""
    domain = domain_of(node.domain)
    wanted = _attribute_types(node.op_type, domain, opsets.get(domain, 1)) if node.attribute else {}
    for a in node.attribute:
        kind = wanted.get(a.name, a.type)
        if a.type not in (kind, _FLOATS.get(kind)):
            names = AttributeProto.AttributeType.Name
            raise FileFormatError(
                f"the attribute {a.name!r} of the node {where(node)!r} ({node.op_type}) is of type "
                f"{names(a.type)}; expected {names(kind)}"
            )


@functools.lru_cache(4096)
def _attribute_types(op: str, domain: str, opset: int) -> Mapping[str, Any]:
    """The types of an operator's attributes by its schema; empty where there is none."""
    schema = _schema(op, domain, opset)
    found = {} if schema is None else schema.attributes
    return {name: int(a.type.value) for name, a in found.items()}


def _check(
    node: NodeProto, opsets: Opsets, functions: Functions, gaps: Gaps
) -> FunctionProto | None:
    """Note the gap that a node is; gives the body that it is defined by, to be looked at too."""
    domain = domain_of(node.domain)
    opset = opsets.get(domain, 1)
    local = functions.local(node)
    if local is not None and custom(domain, node.op_type, opset) is None:
        return local
    name = f"{domain}.{node.op_type}" if domain else node.op_type
    converter = find(domain, node.op_type, opset)
    schema = schema_of(node, opsets)
    reason = ""
    if converter is not None:
        try:
            converter.check([bool(i) for i in node.input], [a.name for a in node.attribute])
            return None
        except Unsupported as e:
            reason = e.reason
    if has_body(schema, [a.name for a in node.attribute]):
        return schema.function_body if schema.has_function else None
    if not reason:
        known = schema is not None or domain not in ("", "ai.onnx.ml")
        reason = "no converter" if known else "not an operator of ONNX"
    gaps.add(
        name, f"{reason} (opset {opset})", where(node), _workaround(node, domain, opset, schema)
    )
    return None


def _workaround(node: NodeProto, domain: str, opset: int, schema: Any) -> str:
    """What the user can do about a node that is a gap."""
    own = "register a converter of your own: register_converter, or --plugin on the command line"
    if domain == "com.microsoft.nchwc":
        return (
            "ONNX Runtime has laid this model out for one processor, and the file does not say "
            "which; save it optimised at the level ORT_ENABLE_EXTENDED at most"
        )
    if domain not in ("", "ai.onnx.ml"):
        return f"{own}; or give the model a function of this name"
    if schema is None:
        since = _since(node.op_type, domain)
        if since > opset:
            return (
                f"it is of opset {since} and newer: onnx.version_converter.convert_version(model, "
                f"{since})"
            )
        return own
    more = {a.name for a in node.attribute} - set(schema.attributes)
    if more:
        return f"its schema has no attribute {', '.join(sorted(more))}: take it out of the node"
    return own


def _since(op: str, domain: str) -> int:
    """The opset that the newest schema of an operator is of; 0 where there is none."""
    return int(onnx.defs.get_schema(op, domain).since_version) if onnx.defs.has(op, domain) else 0

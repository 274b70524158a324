"""A walk over an fx graph of ATen operators: each node's value in Relax.

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
from torch.fx import GraphModule, Node

from relax2xla import op as R
from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import BY_TORCH
from relax2xla.errors import TVMError
from relax2xla.importers.shared.gaps import Gaps, Unsupported
from relax2xla.importers.torch.aten.places import data_dependent
from relax2xla.importers.torch.engine import control
from relax2xla.importers.torch.engine.arguments import bind
from relax2xla.importers.torch.engine.context import Context, UnknownSize, as_bool, dtype_of_torch
from relax2xla.importers.torch.engine.converters import CONVERTERS, operator_name
from relax2xla.importers.torch.engine.tensor_data import Weights
from relax2xla.importers.torch.source.decompositions import OWN
from relax2xla.importers.torch.source.inplace import (
    PARTS,
    RESHAPES,
    functional_form,
    written,
)
from relax2xla.importers.torch.source.spans import Spans
from relax2xla.importers.torch.source.symbols import Symbols
from relax2xla.importers.torch.source.torch_internals import (
    HigherOrderOperator,
    OpOverload,
    free_unbacked_symbols,
)
from relax2xla.ir import (
    Constant,
    Expr,
    PrimValue,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    TupleGetItem,
    Var,
)
from relax2xla.runtime.progress import counted

# They take masks as indices.
MASKED = {"index.Tensor", "_unsafe_index.Tensor"}
# What they check is settled when the program is exported (dtypes, devices), or stands in the
# bounds of the symbolic variables.
CHECKS = {"_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size"}
# What to do instead of operators that nothing stands for, by parts of their names.
INSTEAD = {
    "linalg_ldl": "use torch.linalg.solve, or factors by torch.linalg.lu_factor or cholesky",
    "sparse": "Relax has no sparse tensors: keep them dense (leave to_sparse out; torch.mm)",
    "int4pack": "torch's kernels alone know the layout of such weights: give them dequantised, "
    "or in int8 (_weight_int8pack_mm)",
    "_dyn_quant": "torch's kernels alone know the layout of such weights: give them "
    "dequantised, or by PT2E (torchao.quantization.pt2e)",
    "aten::quantize_per": "Relax has no tensors of torch.quint8 and its like: quantise by PT2E "
    "(torchao.quantization.pt2e), which leaves plain integers",
    "nested": "Relax has no nested tensors: pad them (torch.nn.utils.rnn.pad_sequence) and mask",
}
ASSERTIONS = {
    "_assert_async",
    "_assert_async.msg",
    "_assert_scalar",
    "_functional_assert_async.msg",
    "_functional_assert_scalar",
}


class OfAnotherLibrary(Unsupported):
    """An operator whose converter is the user's to write, unless torch can decompose it."""


@dataclass(frozen=True, slots=True)
class Options:
    """``from_exported_program``'s options, and what other front ends add to them.

    names:    those of the user's inputs in order, where they are not torch's
    by_name:  parameters kept as inputs have their own names, and are sorted by them
    symbols:  symbolic variables to use, by the name of torch's symbol or ``Dim``
    custom:   converts a node before anything else does; None where it does not concern it
    lenient:  an operator whose conversion goes wrong is a gap too (torch.compile has another way)
    whole:    the graph returns one value: where that is all that an operator gives (``split``), the
              tuple of the operator, where it is a size, a shape, where it is a number, a tensor
    own:      the results are the graph's own: what it writes to its inputs is not returned
    name_dims: symbols have the user's names of dimensions where torch knows these
    stops:    what torch detaches has no gradient in Relax either
    """

    keep_params: bool = False
    unwrap: bool = False
    no_bind: bool = False
    names: Sequence[str] = ()
    by_name: bool = False
    symbols: Mapping[str, tir.Var] = field(default_factory=dict[str, tir.Var])
    custom: Callable[[Walk, Node], Any] | None = None
    lenient: bool = False
    whole: bool = False
    own: bool = False
    name_dims: bool = True
    stops: bool = False


class Walk:
    """One walk over one graph and those within it.

    ``open`` holds the operators that had no (full) converter, ``failed`` the nodes with gaps.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.gaps = Gaps("PyTorch program")
        self.open: set[Any] = set()
        self.failed: set[Node] = set()
        self.symbols = Symbols(options.symbols)
        self.weights = Weights()
        self.spans = Spans()
        self.builder = BlockBuilder()
        self.env: dict[Node, Any] = {}
        self.ctx = Context(
            builder=self.builder, symbols=self.symbols, values=self.env, stops=options.stops
        )
        self.regions = 0
        self.asserted: list[tuple[Expr, str]] = []
        # Symbols of numbers that are read from tensors, outside of branches and loops.
        self.items: set[Any] = set()

    # -- graphs ------------------------------------------------------------------------------
    def graph(self, module: GraphModule, whole: bool = False) -> Sequence[Any]:
        """Convert every node of a graph whose placeholders have values; gives its outputs.

        whole: it is the program's own, not that of a region
        """
        nodes = list(module.graph.nodes)
        end = nodes.pop() if nodes else None
        if end is None or end.op != "output":
            raise TVMError("the graph has no output node")
        for node in counted("importing", nodes, "nodes") if whole else nodes:
            if node.op == "placeholder":
                continue
            if node.op == "get_attr":
                self.env[node] = self.attribute(module, node)
                continue
            with self.builder.source(self.spans.of(node)):
                self.env[node] = self.convert(node)
        fields = end.args[0]
        return [self.read(a) for a in (fields if isinstance(fields, tuple | list) else [fields])]

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
        others = isinstance(why, UnknownSize | OfAnotherLibrary)
        elsewhere = not why.hint or others or node.target in OWN
        if isinstance(node.target, OpOverload) and elsewhere:
            self.open.add(node.target)
        self.failed.add(node)
        return self.stand_in(node, expected)

    def value(self, node: Node, expected: Any) -> Any:
        """Convert one node."""
        custom = self.options.custom
        if custom is not None and (made := custom(self, node)) is not None:
            return made
        return self.own_value(node, expected)

    def own_value(self, node: Node, expected: Any) -> Any:
        """Convert one node by the importer's own converters."""
        target = node.target
        if isinstance(target, OpOverload) and operator_name(target) in data_dependent.ITEMS:
            x = self.read(node.args[0])
            settled = data_dependent.settled(expected)
            if settled is None:
                made = data_dependent.item(self.ctx, x, expected)
                if not self.regions:
                    self.items |= free_unbacked_symbols(expected)
                return made
            same = R.equal(x, self.ctx.tensor(settled, x.struct_info.dtype))
            self.demand(same, f"`{node}` is not {settled}, as torch.export took it to be")
            return settled
        if isinstance(expected, torch.SymInt | torch.SymBool):
            return self.symbols.value(expected)
        if isinstance(expected, torch.SymFloat):
            return data_dependent.number(self.ctx, expected)
        if target is operator.getitem:
            container, index = self.read(node.args[0]), node.args[1]
            if container is None:
                raise Unsupported("its operator gives no value that is known")
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
            hint = next((h for part, h in INSTEAD.items() if part in op.name()), "")
            if op.namespace not in ("aten", "prims", "quantized_decomposed"):
                raise OfAnotherLibrary(
                    "no converter", f"give it one: @register_converter({name!r})"
                )
            raise Unsupported("no converter", hint)
        args = [self.read(a) for a in node.args]
        kwargs = {k: self.read(v) for k, v in node.kwargs.items()}
        self.ctx.out, self.ctx.node = node.meta["val"], node
        if name in MASKED and any(i is not None and data_dependent.is_mask(i) for i in args[1]):
            args[1] = data_dependent.without_masks(self.ctx, args[1])
        try:
            value = converter(self.ctx, bind(changed or op, converter, args, kwargs))
        except TVMError as e:
            notes = "; ".join(n.strip() for n in getattr(e, "__notes__", ()))
            raise Unsupported(f"{e}{f' ({notes})' if notes else ''}") from e
        if changed is not None:
            value = self.ctx.cast(value, self.ctx.dtype())
        return value

    def assertion(self, node: Node) -> Any:
        """A condition; the machine looks at those on data when the results are there.

        Those on sizes of inputs torch derives from the bounds, which ``main`` carries.
        """
        condition, *rest = map(self.read, node.args)
        given: Any = node.args[0]
        expected: Any = given.meta.get("val") if isinstance(given, Node) else given
        if isinstance(condition, Expr):
            self.demand(as_bool(condition), rest[0] if rest else "")
        elif isinstance(condition, tir.PrimExpr) and not self.regions:
            unbacked = free_unbacked_symbols(expected)
            if unbacked and unbacked <= self.items:
                holds = self.ctx.tensor(tir.if_then_else(condition, 1, 0), "int64")
                self.demand(as_bool(holds), rest[0] if rest else "")
        return rest[1] if len(rest) > 1 else None

    def demand(self, condition: Expr, text: str) -> None:
        """Let the machine look at a condition on data when the results are there."""
        if self.regions:
            raise Unsupported("an assertion on data in a branch or a loop")
        # It is no format for values.
        text = text.replace("{", "{{").replace("}", "}}")
        self.asserted.append((self.ctx.emit(self.ctx.reshape(condition, ())), text))

    def region(self, module: GraphModule, args: Sequence[Any]) -> Sequence[Any]:
        """Convert the nodes of a graph inside the graph where they stand, for these arguments."""
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.env.update(zip(placeholders, args, strict=True))
        self.regions += 1
        try:
            return self.graph(module)
        finally:
            self.regions -= 1

    # -- values ------------------------------------------------------------------------------
    def bound(self, node: Node, value: Any, expected: Any) -> Any:
        """Bind a value to a variable named after the node, and compare it with torch's."""
        if isinstance(value, list | tuple):
            fields = expected if isinstance(expected, list | tuple) else [None] * len(value)
            # A field of a tuple is bound where the graph takes it out.
            return [
                v if isinstance(v, TupleGetItem) else self.bound(node, v, e)
                for v, e in zip(value, fields, strict=True)
            ]
        if isinstance(value, Expr):
            if self.options.whole and isinstance(value, TupleGetItem) and _is_result(node):
                return value
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
        made = converter(self.ctx, bind(op, converter, args, kwargs))
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


def _is_result(node: Node) -> bool:
    """Whether nothing but the graph's output reads a node, once."""
    return all(u.op == "output" for u in node.users)

"""FX graph modules to Relax, by way of torch.export: one set of converters serves both.

``custom_convert_map`` comes first: a node that it names is traced as one opaque operator, which the
user's function converts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from relax2xla import tir
from relax2xla.dtypes import dtype_info
from relax2xla.errors import UnsupportedError
from relax2xla.importers.torch.engine.custom import BaseFXGraphImporter, Converter, made_by
from relax2xla.importers.torch.engine.export import convert_program
from relax2xla.importers.torch.engine.graph_walk import Options, Walk
from relax2xla.importers.torch.engine.image_layout import (
    callee,
    channels_last,
    resizing_channels_last,
)
from relax2xla.importers.torch.source.program import exported
from relax2xla.importers.torch.source.torch_internals import pytree
from relax2xla.ir import IRModule

InputInfo = Sequence[tuple[Sequence[int | tir.PrimExpr], str]]

# Sizes to trace symbolic dimensions with; no two alike, so that none is taken for another, and with
# many divisors.
SAMPLES = (8, 12, 16, 24, 36, 48, 60, 72)
LARGEST = 2**31


def from_fx(
    model: GraphModule,
    input_info: InputInfo,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[Any, Converter] | None = None,
    default_image_layout: str = "NCHW",
) -> IRModule:
    """A graph module of ``torch.fx.symbolic_trace`` as an IRModule with the function ``main``.

    ``input_info`` lists shape and dtype of each placeholder in order; the inputs keep the
    placeholders' names. A dimension is an integer, a ``tir.Var`` (which stays the same variable in
    the module) or an expression ``n * integer + integer`` of one. A graph that returns one value
    without a tuple gives a ``main`` that does so too, and an integer (``x.numel()``) is a tensor
    of rank 0 there. Results are the graph's own: as in TVM, what it writes to its inputs is not
    among them (it is with ``from_exported_program``). The other options are those of
    ``from_exported_program``.

    ``custom_convert_map``: from the class of a module (``nn.Linear``), the name of a function or
    method (``"relu"``, ``"add"``) or a function itself to a converter, which goes before all
    others. It is called as in TVM: ``converter(node)`` for modules and methods,
    ``converter(node, importer)`` for functions; ``importer`` is a :class:`TorchFXImporter`. A
    converter that takes two parameters gets both in any case.

    ``default_image_layout``: with ``"NHWC"`` or ``"NDHWC"``, ``interpolate`` and ``nn.Upsample``
    resize the axes between the first and the last, which has the channels. All other operators
    keep torch's meaning, as in TVM.

    Raises ``ValueError`` where ``input_info`` does not fit the placeholders, or where the graph
    fixes a dimension that is symbolic in it.
    """
    placeholders = [n for n in model.graph.nodes if n.op == "placeholder"]
    names = [n.name for n in placeholders]
    if len(names) != len(input_info):
        raise ValueError(
            f"input_info has {len(input_info)} entries, but the graph has {len(names)} "
            f"placeholders: {', '.join(names) or 'none'}"
        )
    symbols = _Symbols()
    inputs = tuple(
        symbols.example(name, shape, dtype)
        for name, (shape, dtype) in zip(names, input_info, strict=True)
    )
    (output,) = (n for n in model.graph.nodes if n.op == "output")
    alone = not isinstance(output.args[0], tuple | list | dict)
    last = channels_last(default_image_layout)
    custom = None if not custom_convert_map else _Custom(model, custom_convert_map, last)
    graph = model if custom is None else custom.graph
    graph = resizing_channels_last(graph) if last else graph
    dynamic = tuple(symbols.shapes) if symbols.dims else None
    try:
        program = torch.export.export(graph, inputs, dynamic_shapes=dynamic)
    except RuntimeError as e:  # also TorchDynamo's UserError
        if not symbols.dims:
            raise
        raise ValueError(
            f"the graph does not allow the symbolic dimensions of input_info: {e}"
        ) from e
    options = Options(
        keep_params_as_input,
        unwrap_unit_return_tuple or alone,
        no_bind_return_tuple,
        names,
        True,
        symbols.variables,
        None if custom is None else custom.convert,
        whole=alone,
        own=True,
        stops=True,
    )
    return convert_program(exported(program), options)


class _Symbols:
    """Examples for torch.export to trace with, and the ``torch.export.Dim`` of each dimension."""

    def __init__(self) -> None:
        self.variables: dict[str, tir.Var] = {}
        self.dims: dict[tir.Var, tuple[Any, int]] = {}
        self.shapes: list[dict[int, Any]] = []

    def example(self, name: str, shape: Sequence[Any], dtype: Any) -> torch.Tensor:
        """A tensor for one placeholder."""
        sizes: list[int] = []
        dynamic: dict[int, Any] = {}
        for axis, d in enumerate(shape):
            if isinstance(d, int):
                sizes.append(d)
                continue
            if not isinstance(d, tir.PrimExpr):
                raise UnsupportedError(
                    f"dimension {axis} of {name} is {d!r}; expected an integer or a tir.Var"
                )
            dim, size = self._dim(name, axis, d)
            dynamic[axis] = dim
            sizes.append(size)
        self.shapes.append(dynamic)
        if isinstance(dtype, torch.dtype):
            dtype = str(dtype).removeprefix("torch.")
        kind = dtype_info(dtype.removeprefix("torch.")).torch
        if kind is None:
            raise ValueError(f"torch has no dtype for {dtype!r} of {name}")
        return torch.zeros(sizes, dtype=getattr(torch, kind))

    def _dim(self, name: str, axis: int, expr: tir.PrimExpr) -> tuple[Any, int]:
        """A ``Dim`` and a size; of an expression, those that its variable gives."""
        free = list(tir.free_vars(expr))
        if len(free) != 1:
            raise UnsupportedError(f"dimension {axis} of {name} is {expr}; use one variable in it")
        (var,) = free
        if var not in self.dims:
            taken = {v.name for v in self.dims}
            if var.name in taken:
                raise ValueError(f"input_info has two variables called {var.name}; rename one")
            self.variables[var.name] = var
            size = SAMPLES[len(self.dims) % len(SAMPLES)] * (1 + len(self.dims) // len(SAMPLES))
            self.dims[var] = (torch.export.Dim(var.name, max=LARGEST), size)
        dim, size = self.dims[var]
        if isinstance(expr, tir.Var):
            return dim, size
        at: list[int] = []
        for value in (0, 1, 2, size):
            found = tir.simplify(tir.substitute(expr, {var: value}))
            at.append(int(cast("Any", found.value if isinstance(found, tir.IntImm) else found)))
        offset, factor = at[0], at[1] - at[0]
        if at[2] != offset + 2 * factor or at[3] != offset + size * factor or factor <= 0:
            raise UnsupportedError(
                f"dimension {axis} of {name} is {expr}; torch.export takes n, n * integer and "
                "n * integer + integer"
            )
        dim = dim if factor == 1 else factor * dim
        return (dim + offset if offset > 0 else dim - -offset if offset else dim), at[3]


# -- the user's own converters -------------------------------------------------------------------
class TorchFXImporter(BaseFXGraphImporter):
    """What a converter of ``custom_convert_map`` works with.

    ``env`` has the Relax values of the node's arguments, ``named_modules`` are the graph module's.
    """

    def __init__(self, walk: Walk, env: dict[Node, Any], modules: Mapping[str, Any]) -> None:
        super().__init__(walk, env)
        self.named_modules = modules


_LIBRARY = torch.library.Library("relax2xla_fx", "DEF")
_SERIAL = itertools.count()


class _Custom:
    """A graph in which every node with a converter of the user's is one opaque operator."""

    def __init__(self, model: GraphModule, table: Mapping[Any, Converter], last: bool) -> None:
        self.modules = dict(model.named_modules())
        self._channels_last = last
        self._table = table
        self._nodes: dict[str, tuple[Node, Converter, bool, list[Node]]] = {}
        graph = torch.fx.Graph()
        copy: dict[Node, Node] = {}
        graph.output(graph.graph_copy(model.graph, copy))
        self.graph = GraphModule(model, graph)
        for node in model.graph.nodes:
            found = self._converter(node)
            if found is not None:
                self._hide(node, copy[node], found)
        self.graph.graph.lint()
        self.graph.recompile()

    def _converter(self, node: Node) -> Converter | None:
        """The user's converter of a node."""
        if node.op == "call_module":
            return self._table.get(type(self.modules[str(node.target)]))
        if node.op == "call_method":
            return self._table.get(node.target)
        if node.op == "call_function":
            target: Any = node.target
            return self._table.get(target) or self._table.get(getattr(target, "__name__", None))
        return None

    def _hide(self, node: Node, copied: Node, converter: Converter) -> None:
        """Put an operator of our own in the node's place."""
        name = f"node_{next(_SERIAL)}"
        tensors = [n for n in node.all_input_nodes]
        _LIBRARY.define(f"{name}(Tensor[] xs) -> Tensor[]")

        def fake(xs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            found = self._compute(node, dict(zip(tensors, xs, strict=True)))
            leaves = [found] if isinstance(found, torch.Tensor) else list(found)
            return [torch.empty_like(x) for x in leaves]

        torch.library.register_fake(f"relax2xla_fx::{name}", fake, lib=_LIBRARY)
        op = getattr(torch.ops.relax2xla_fx, name).default
        self._nodes[op.name()] = (node, converter, node.op == "call_function", tensors)
        many = any(getattr(u.target, "__name__", "") == "getitem" for u in node.users)
        graph = self.graph.graph
        with graph.inserting_before(copied):
            made = graph.call_function(op, (copied.all_input_nodes,))
            if not many:
                made = graph.call_function(_first, (made,))
        copied.replace_all_uses_with(made)
        graph.erase_node(copied)

    def _compute(self, node: Node, values: Mapping[Node, torch.Tensor]) -> Any:
        """What the node gives, for tensors (fake ones, when torch traces)."""
        args, kwargs = pytree.tree_map_only(Node, lambda n: values[n], (node.args, node.kwargs))
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return callee(node, self.modules, self._channels_last)(*args, **kwargs)

    def convert(self, walk: Walk, node: Node) -> Any:
        """The value of an opaque operator; None for any other node."""
        name = getattr(node.target, "name", lambda: "")()
        found = self._nodes.get(name)
        if found is None:
            return None
        original, converter, is_function, tensors = found
        values = dict(zip(tensors, walk.read(node.args[0]), strict=True))
        view = TorchFXImporter(walk, values, self.modules)
        two = is_function or _takes_two(converter)
        made = converter(original, view) if two else converter(original)
        made = made_by(walk, made, original)
        expected: Any = node.meta["val"]
        return [made] if len(expected) == 1 else [made[i] for i in range(len(expected))]


def _first(values: Sequence[Any]) -> Any:
    return values[0]


def _takes_two(converter: Converter) -> bool:
    code: Any = getattr(converter, "__code__", None)
    bound = hasattr(converter, "__self__")
    return code is not None and code.co_argcount - bound > 1

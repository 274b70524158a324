"""What the converters of a user's ``custom_convert_map`` work with, under TVM's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from relax2xla.builder import BlockBuilder
from relax2xla.errors import TVMError
from relax2xla.importers.torch.engine.converters import CONVERTERS
from relax2xla.importers.torch.engine.graph_walk import Walk
from relax2xla.importers.torch.source.torch_internals import pytree
from relax2xla.ir import Expr, TensorStructInfo

Converter = Callable[..., Any]


class BaseFXGraphImporter:
    """``env`` has the Relax values of nodes, ``block_builder`` emits, ``params`` gives the constant
    of a torch tensor.
    """

    def __init__(self, walk: Walk, env: dict[Node, Any]) -> None:
        self._walk = walk
        self.env = env
        self.block_builder: BlockBuilder = walk.builder
        self.params = _Params(walk)

    def retrieve_args(self, node: Node) -> Any:
        """The node's positional arguments with nodes replaced by their Relax values."""
        return pytree.tree_map_only(Node, lambda n: self.env[n], node.args)

    @staticmethod
    def shape_of(tensor: Expr) -> Any:
        """The shape of a Relax tensor."""
        info = tensor.struct_info
        if not isinstance(info, TensorStructInfo):
            raise TypeError(f"shape_of takes a tensor; got {info}")
        return info.shape

    @property
    def convert_map(self) -> Mapping[str, Any]:
        """The importer's own converters, by the names of ATen operators."""
        return CONVERTERS


class ExportedProgramImporter(BaseFXGraphImporter):
    """What a converter of ``from_exported_program`` is given; ``env`` has every node before it."""

    def convert(self, node: Node) -> Any:
        """What the importer's own converter makes of a node, for a converter that changes it.

        A list for several results, with None for those that nothing reads.
        """
        return self._walk.own_value(node, node.meta.get("val"))


class _Params:
    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def __getitem__(self, tensor: torch.Tensor) -> Expr:
        """A weight as a constant."""
        return self._walk.weights.constant(tensor)


def operator_key(target: Any) -> str:
    """The name by which ``custom_convert_map`` has an operator: "add.Tensor", "relu.default"."""
    return str(getattr(target, "__name__", target))


def by_operator(table: Mapping[str, Converter]) -> Callable[[Walk, Node], Any]:
    """The user's converters as a part of the walk: ``converter(node, importer)``."""

    def convert(walk: Walk, node: Node) -> Any:
        converter = table.get(operator_key(node.target))
        if converter is None:
            return None
        return made_by(walk, converter(node, ExportedProgramImporter(walk, walk.env)), node)

    return convert


def made_by(walk: Walk, made: Any, node: Node) -> Any:
    """What a user's converter gave, bound; raises ``TVMError`` where it gave nothing."""
    if made is None:
        raise TVMError(f"the converter of {node.format_node()} gave None, not a value")
    return walk.ctx.emit(made) if isinstance(made, Expr) else made

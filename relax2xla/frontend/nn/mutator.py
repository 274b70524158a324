"""Mutator: put other modules, parameters and effects in the places of those of a tree."""

from __future__ import annotations

from typing import Any

from relax2xla.frontend.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList
from relax2xla.frontend.nn.module import Module
from relax2xla.frontend.nn.tree import Effect
from relax2xla.frontend.nn.values import Parameter


class Mutator:
    """Visits a tree of modules; what a method gives takes the place of what it was given.

    Override the ``visit_*`` of a kind; each calls ``visit`` as it stands, which goes on inside.
    ``name`` is the dotted path of the node.
    """

    def visit_module(self, name: str, node: Module) -> Any:
        """A module that is no container."""
        return self.visit(name, node)

    def visit_effect(self, name: str, node: Effect) -> Any:
        """An effect. (TVM's documentation swaps the annotations of this and ``visit_param``.)"""
        return node

    def visit_param(self, name: str, node: Parameter) -> Any:
        """A parameter."""
        return node

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        """A ModuleDict."""
        return self.visit(name, node)

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        """A ModuleList."""
        return self.visit(name, node)

    def visit_parameterdict(self, name: str, node: ParameterDict) -> Any:
        """A ParameterDict."""
        return self.visit(name, node)

    def visit_parameterlist(self, name: str, node: ParameterList) -> Any:
        """A ParameterList."""
        return self.visit(name, node)

    def visit(self, name: str, node: Any) -> Any:
        """Visit what ``node`` holds, put the results in its place, and give ``node``."""
        if not isinstance(node, Module):
            return node
        for child, item in node.__children__():
            method = next((m for kind, m in _METHODS if isinstance(item, kind)), None)
            if method is not None:
                path = f"{name}.{child}" if name else child
                node.__set_child__(child, getattr(self, method)(path, item))
        return node


# The first kind that fits decides.
_METHODS: tuple[tuple[type[Any], str], ...] = (
    (ParameterDict, "visit_parameterdict"),
    (ParameterList, "visit_parameterlist"),
    (ModuleDict, "visit_moduledict"),
    (ModuleList, "visit_modulelist"),
    (Module, "visit_module"),
    (Effect, "visit_effect"),
    (Parameter, "visit_param"),
)

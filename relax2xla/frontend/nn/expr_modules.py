"""Modules over Relax expressions, built with BlockBuilder: what ``tvm.relax.testing.nn`` has.

Unlike ``nn.Module`` they have no export of their own: ``forward`` takes and gives expressions in a
function that the caller has opened. Parameters are variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import numpy_dtype
from relax2xla.frontend.nn.subroutine import SubroutineMixin
from relax2xla.frontend.nn.values import current_builder
from relax2xla.ir import Expr, Function, IRModule, TensorStructInfo, Var


def emit(expr: Expr, name_hint: str = "") -> Var:
    """Bind ``expr`` in the function that is open."""
    return current_builder("emit").emit(expr, name_hint)


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
    """Bind what the tensor expression ``func`` computes."""
    return current_builder("emit_te").emit_te(func, *args, **kwargs)


def _named(what: str, shape: Any, dtype: str, name: str) -> Var:
    """A variable that is a tensor; its name is unique in the function that is open, if one is."""
    if not isinstance(shape, list | tuple):
        raise TypeError(f"the shape of a {what} is a list or a tuple; got {type(shape).__name__}")
    sizes: Sequence[Any] = shape
    builder = BlockBuilder.current()
    unique = name if builder is None else builder.get_unique_name(name)
    return Var(unique, TensorStructInfo(sizes, dtype))


def Placeholder(shape: Sequence[Any], dtype: str = "float32", name: str = "data") -> Var:
    """An input of a model: a variable."""
    return _named("Placeholder", shape, dtype, name)


def Parameter(shape: Sequence[Any], dtype: str = "float32", name: str = "param") -> Var:
    """A weight of a model: a variable."""
    return _named("Parameter", shape, dtype, name)


class Module(SubroutineMixin):
    """A part of a model: ``forward`` of expressions; variables in attributes are its parameters.

    So are those in modules, lists, tuples and dicts. ``define_subroutine = True`` makes
    ``forward`` a function of its own.
    """

    def parameters(self) -> list[Var]:
        """All parameters, in the order of attributes."""
        return list(_parameters(self.__dict__))

    def forward(self, input: Any) -> Any:
        """What the module computes."""
        raise NotImplementedError(f"{type(self).__name__} has no method `forward`")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """``forward``."""
        return self.forward(*args, **kwargs)


def _parameters(value: Any) -> Iterator[Var]:
    if isinstance(value, Var):
        yield value
    elif isinstance(value, Module):
        yield from value.parameters()
    elif isinstance(value, dict | list | tuple):
        items: Any = value.values() if isinstance(value, dict) else value
        for item in items:
            yield from _parameters(item)


def init_params(mod: IRModule) -> list[Any]:
    """Arrays of zeros for the parameters of ``main`` that are not called ``data...``.

    Raises TypeError where a shape is not known.
    """
    from relax2xla import nd

    main = mod["main"]
    assert isinstance(main, Function)
    made: list[Any] = []
    for var in main.params:
        info = var.struct_info
        if var.name_hint.startswith("data"):
            continue
        dims = info.dims if isinstance(info, TensorStructInfo) else None
        if dims is None or not all(isinstance(d, int) for d in dims):
            raise TypeError(f"init_params: the shape of {var.name_hint} is not known: {info}")
        assert isinstance(info, TensorStructInfo)
        shape = [d for d in dims if isinstance(d, int)]
        made.append(nd.array(np.zeros(shape, numpy_dtype(info.dtype))))
    return made


class Sequential(Module):
    """Modules one after the other."""

    def __init__(self, *modules: Module) -> None:
        self.modules = modules

    def forward(self, input: Any) -> Any:
        """``input`` through all modules."""
        for module in self.modules:
            input = module(input)
        return input


class ReLU(Module):
    """``max(x, 0)``."""

    def forward(self, input: Expr) -> Var:
        """Bound, as all layers' results."""
        return emit(op.nn.relu(input))


class LogSoftmax(Module):
    """The logarithm of softmax along the last axis."""

    def forward(self, input: Expr) -> Var:
        """The same shape."""
        return emit(op.nn.log_softmax(input))


class Linear(Module):
    """``x @ weight + bias``; weight: ``(in_features, out_features)``."""

    def __init__(self, in_features: Any, out_features: Any, bias: bool = True) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Expr) -> Var:
        """``(..., in_features)`` to ``(..., out_features)``."""
        out = emit(op.matmul(input, self.weight))
        return out if self.bias is None else emit(op.add(out, self.bias))

"""SubroutineMixin: a module's ``forward`` as a function of its own, which callers call."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Generator, Iterable
from typing import Any

from relax2xla.builder import BlockBuilder
from relax2xla.errors import BuilderError
from relax2xla.frontend.nn.tree import Effect, ModuleTree, named
from relax2xla.frontend.nn.values import Parameter, Tensor, expr_of, wrap_nested
from relax2xla.ir import Call, Expr, Function, Tuple, Var
from relax2xla.ir.copy import copy_with_new_vars


class SubroutineMixin:
    """Lets ``forward`` of a subclass become a private function of the module that is built.

    Where ``define_subroutine`` is True (on the class or an instance), a call of ``forward`` becomes
    a call of that function, whose parameters are the arguments and then the module's parameters.
    Modules whose functions come out the same share one. (TVM caches the function by class and
    shapes, and so gives a module with other settings the wrong one.) Arguments that are no values
    of the program are part of it. BuilderError for a module that has effects.
    """

    define_subroutine: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        forward = cls.__dict__.get("forward")
        if forward is not None and not hasattr(forward, "_is_subroutine_mixin"):
            cls.forward = _dispatching(forward)


def _dispatching(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.define_subroutine:
            return forward(self, *args, **kwargs)
        return _call_subroutine(self, forward, args, kwargs)

    call.__dict__["_is_subroutine_mixin"] = True
    return call


def _call_subroutine(
    module: Any, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    builder = BlockBuilder.current()
    if builder is None:
        raise BuilderError(
            f"{type(module).__name__} has define_subroutine=True, and is called outside of a "
            "function under construction, which the subroutine would be put beside"
        )
    if isinstance(module, ModuleTree) and (effects := dict(named(module, Effect))):
        raise BuilderError(
            f"{type(module).__name__} has define_subroutine=True, and state, which a subroutine "
            f"cannot change: {', '.join(effects)}; leave define_subroutine False there"
        )
    bound = inspect.signature(forward).bind(module, *args, **kwargs)
    taken: list[Expr] = []
    inner: list[Var] = []

    def inside(name: str, value: Any) -> Any:
        """The parameter that stands for ``value`` in the subroutine."""
        if isinstance(value, tuple | list):
            made = [inside(f"{name}_{i}", v) for i, v in enumerate(value)]
            return type(value)(made)
        is_tensor = isinstance(value, Tensor)
        expr = expr_of(value) if is_tensor else value
        if not isinstance(expr, Expr):
            return value
        taken.append(expr if expr.struct_info_ is not None else builder.emit(expr))
        inner.append(Var(name, taken[-1].struct_info))
        return Tensor(_expr=inner[-1]) if is_tensor else inner[-1]

    for name, value in list(bound.arguments.items())[1:]:
        bound.arguments[name] = inside(name, value)
    before = set(builder.get())
    is_dataflow = builder.current_block_is_dataflow()
    name = _snake_case(type(module).__name__)
    with _own_params(module, inner, taken), builder.function(name, inner, private=True):
        with builder.dataflow() if is_dataflow else contextlib.nullcontext():
            out = forward(*bound.args, **bound.kwargs)
            tensors = _has_tensors(out)
            result = _expr(out)
            if is_dataflow:
                result = builder.emit_output(result)
        gvar = builder.emit_func_output(result)
    if gvar not in before:
        func = builder.get()[gvar]
        assert isinstance(func, Function)
        # The symbolic variables of the caller are parameters' of its own in the copy.
        builder.update_func(gvar, copy_with_new_vars(func))
    call = Call(gvar, taken)
    return wrap_nested(call, f"{gvar.name_hint}_output") if tensors else call


@contextlib.contextmanager
def _own_params(module: Any, inner: list[Var], taken: list[Expr]) -> Generator[None]:
    """Parameters of ``module`` stand for parameters of the subroutine inside of this."""
    if not isinstance(module, ModuleTree):  # relax2xla.testing.nn: its parameters are variables
        params: Iterable[Var] = module.parameters()
        inner.extend(params)
        taken.extend(params)
        yield
        return
    outer = [(name, param, expr_of(param)) for name, param in named(module, Parameter)]
    try:
        for name, param, expr in outer:
            inner.append(Var(name.replace(".", "_"), expr.struct_info))
            taken.append(expr)
            param.rebind(inner[-1])
        yield
    finally:
        for _, param, expr in outer:
            param.rebind(expr)


def _has_tensors(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_has_tensors(v) for v in value)
    return isinstance(value, Tensor)


def _expr(value: Any) -> Expr:
    if isinstance(value, tuple | list):
        return Tuple([_expr(v) for v in value])
    return expr_of(value)


def _snake_case(name: str) -> str:
    parts = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", parts).lower()

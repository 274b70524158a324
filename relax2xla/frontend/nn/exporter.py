"""Exporter: from a Module to Relax functions."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.errors import WellFormedError
from relax2xla.frontend.nn import spec as _spec
from relax2xla.frontend.nn.effects import IOEffect
from relax2xla.frontend.nn.extern import ExternModule, linked
from relax2xla.frontend.nn.tree import Effect, ModuleTree, named
from relax2xla.frontend.nn.values import Object, Parameter, Tensor, expr_of, unwrap_nested
from relax2xla.ir import (
    Expr,
    IRModule,
    ObjectStructInfo,
    ShapeStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.check import check_well_formed

_CURRENT: ContextVar[Exporter | None] = ContextVar("relax2xla_exporter", default=None)

NamedParams = list[tuple[str, Parameter]]
# The name of the function that makes the first state of all effects.
INITIALIZE = "_initialize_effect"


class DebugOff(RuntimeError):
    """A debug function in an export without ``debug=True``."""


def add_extern(mod: ExternModule) -> None:
    """Use an external module in the model that is being exported: once, from one of its methods.

    Raises RuntimeError outside of an export, ValueError where a symbol is there already.
    """
    exporter = _CURRENT.get()
    if exporter is None:
        raise RuntimeError("nn.add_extern is called while a module is exported")
    exporter.add_external_module(mod)


class Exporter:
    """One export. debug: the functions have the effect of printing."""

    def __init__(self, debug: bool) -> None:
        self.builder = BlockBuilder()
        self.io_effect = IOEffect() if debug else None
        self.extern_mods: list[ExternModule] = []

    @staticmethod
    def current() -> Exporter:
        """The export at work; RuntimeError where there is none."""
        exporter = _CURRENT.get()
        if exporter is None:
            raise RuntimeError("no module is being exported here")
        return exporter

    def add_external_module(self, mod: ExternModule) -> None:
        """Use ``mod``; ValueError where another one has one of its symbols."""
        known = {symbol for other in self.extern_mods for symbol in other.symbols}
        if taken := sorted(known & set(mod.symbols)):
            raise ValueError(f"these symbols are defined already: {taken}")
        self.extern_mods.append(mod)

    @contextmanager
    def scope(self, effects: Sequence[tuple[str, Effect]]) -> Generator[None]:
        """Inside, this is the current export; effects forget a state that an error left."""
        token = _CURRENT.set(self)
        try:
            yield
        except BaseException:
            for _, effect in effects:
                effect.forget()
            raise
        finally:
            _CURRENT.reset(token)

    def effects_of(self, module: ModuleTree | None) -> list[tuple[str, Effect]]:
        """All effects, that of printing first."""
        io: list[tuple[str, Effect]] = [("", self.io_effect)] if self.io_effect else []
        return io + (list(named(module, Effect)) if module is not None else [])

    def build(self, spec: _spec.ModuleSpec) -> tuple[IRModule, NamedParams, list[ExternModule]]:
        """The module of all methods of ``spec``, the parameters, and the external modules."""
        params = list(named(spec.module, Parameter))
        effects = self.effects_of(spec.module)
        with self.scope(effects):
            self.initialize(effects)
            for name, method in zip(spec.method_names, spec.method_specs, strict=True):
                args, inputs = _inputs(method)
                state = {"packed": 1, "none": 0, "plain": len(effects)}[method.effect_mode]
                with self.builder.function(name, attrs={"num_input": len(args) + state}):
                    with self.builder.dataflow():
                        inputs += self.enter_effects(effects, method.effect_mode)
                        inputs += self.enter_params(params, method.param_mode)
                        result = method.call(
                            [self._unpacked(a, v) for a, v in zip(args, inputs, strict=False)]
                        )
                        output: Expr = unwrap_nested(result, f"the result of {name}")
                        state_out = [v for _, e in effects for v in e.finalize()]
                        if state_out and method.effect_mode != "none":
                            output = Tuple([output, Tuple(state_out)])
                        output = self.builder.emit_output(output)
                    self.builder.emit_func_output(output, inputs)
        return self.finish(), params, self.extern_mods

    def finish(self) -> IRModule:
        """The module that was built, checked."""
        mod = self.builder.finalize()
        try:
            check_well_formed(mod)
        except WellFormedError as e:
            e.add_note(
                "a method uses a value of another function: a Tensor kept from another call, "
                "parameters or effects whose mode is 'none', or effects inside a subroutine"
            )
            raise
        return mod

    def linked(self) -> IRModule:
        """``finish()`` with the external modules that can be loaded attached, ready to be built."""
        return linked(self.finish(), self.extern_mods)

    def initialize(self, effects: Sequence[tuple[str, Effect]]) -> None:
        """The function that makes the first state of all effects, if there are any."""
        if not effects:
            return
        with self.builder.function(INITIALIZE):
            with self.builder.dataflow():
                made = [v for name, e in effects for v in e.emit_init(name, self.builder)]
                output = self.builder.emit_output(self.builder.emit(Tuple(made)))
            self.builder.emit_func_output(output, params=[])

    def enter_params(self, params: NamedParams, mode: str) -> list[Var]:
        """New variables for the parameters; gives those that the function takes for them.

        A name of a symbolic size means the same size in all of them.
        """
        sizes: dict[str, tir.Var] = {}
        entered: list[Var] = []
        for name, param in params:
            shape = [_renewed(d, sizes) for d in param.shape]
            entered.append(_var(Tensor.placeholder(shape, param.dtype, name)))
            param.rebind(entered[-1])
        if mode != "packed":
            return entered if mode == "plain" else []
        packed = _packed("packed_params", entered)
        for i, (name, param) in enumerate(params):
            param.rebind(self.builder.emit(TupleGetItem(packed, i), name))
        return [packed]

    def enter_effects(self, effects: Sequence[tuple[str, Effect]], mode: str) -> list[Var]:
        """New variables for the state of effects; gives those that the function takes for it."""
        inputs: list[Var] = []
        for name, effect in effects:
            made = effect.create(name)
            effect.set_state(made)
            inputs += made
        if mode != "packed":
            return inputs if mode == "plain" else []
        packed = _packed("packed_effects", inputs)
        fields = iter(
            [self.builder.emit(TupleGetItem(packed, i), v.name_hint) for i, v in enumerate(inputs)]
        )
        for name, effect in effects:
            effect.set_state([next(fields) for _ in effect.create(name)])
        return [packed]

    def _unpacked(self, arg: Any, var: Var) -> Any:
        """What a method gets for an argument: fields of a tuple one by one."""
        if not isinstance(arg, _spec.Tuple):
            return arg
        made: list[Any] = []
        for i, element in enumerate(arg.elements):
            field = self.builder.emit(TupleGetItem(var, i), f"{arg.name}_{i}")
            if isinstance(element, Tensor):
                made.append(Tensor(_expr=field))
            elif isinstance(element, Object):
                element._expr = field  # pyright: ignore[reportPrivateUsage]
                made.append(element)
            else:
                made.append(self._unpacked(element, field))
        return type(arg.elements)(made)


def _packed(name: str, fields: Sequence[Var]) -> Var:
    return Var(name, TupleStructInfo([v.struct_info for v in fields]))


def _renewed(dim: Any, sizes: dict[str, tir.Var]) -> Any:
    if isinstance(dim, int):
        return dim
    new = {v: sizes.setdefault(v.name, tir.Var(v.name, "int64")) for v in tir.free_vars(dim)}
    return tir.substitute(dim, new)


def _inputs(spec: _spec.MethodSpec) -> tuple[list[Any], list[Var]]:
    """What a method is called with, and the parameter of the function for each."""
    sizes: dict[str, tir.Var] = {}

    def size(name: str) -> tir.Var:
        return sizes.setdefault(name, tir.Var(name, "int64"))

    def made(name: str, arg: Any) -> Any:
        match arg:
            case _spec.Int():
                return size(name)
            case _spec.Tensor():
                shape = [size(d) if isinstance(d, str) else d for d in arg.shape]
                return Tensor.placeholder(shape, arg.dtype, name)
            case _spec.Object():
                return arg.object_type(_expr=Var(name, ObjectStructInfo()), _name=name)
            case _spec.Tuple():
                items = [made(f"{name}_{i}", e) for i, e in enumerate(arg.elements)]
                return _spec.Tuple(name, type(arg.elements)(items))
            case _:
                raise TypeError(f"not a specification for the argument {name}: {arg!r}")

    args = [made(n, s) for n, s in zip(spec.arg_names, spec.arg_specs, strict=True)]
    return args, [_var(arg) for arg in args]


def _var(arg: Any) -> Var:
    match arg:
        case tir.Var():
            return Var(arg.name, ShapeStructInfo([arg]))
        case _spec.Tuple():
            fields = [_var(e).struct_info for e in arg.elements]
            return Var(arg.name, TupleStructInfo(fields))
        case _:
            expr = expr_of(arg)
            assert isinstance(expr, Var)
            return expr

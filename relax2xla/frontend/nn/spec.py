"""Specifications: what the arguments of exported methods are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relax2xla.runtime.convert import is_torch

if TYPE_CHECKING:
    from relax2xla.frontend.nn.tree import ModuleTree

MODES = ("plain", "packed", "none")


class Int:
    """An integer, which the program takes as a shape of one."""

    def __repr__(self) -> str:
        return "int"


class Tensor:
    """A tensor of known rank and dtype.

    shape: ints, ``tir.Var``s, and strings; strings that are the same mean one size, in all
    arguments of a method.
    """

    def __init__(self, shape: Sequence[Any], dtype: str) -> None:
        if isinstance(shape, str) or not isinstance(shape, Sequence):
            raise TypeError(f"the shape of a spec.Tensor is a list of sizes; got {shape!r}")
        self.shape: list[Any] = list(shape)
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"Tensor([{', '.join(map(str, self.shape))}], '{self.dtype}')"


class Object:
    """An object that is no tensor. object_type: the class of :class:`nn.Object` that wraps it."""

    def __init__(self, object_type: type[Any]) -> None:
        self.object_type = object_type

    def __repr__(self) -> str:
        return "object"


class Tuple:
    """A tuple, or a list, of specifications; the method gets what ``elements`` is."""

    def __init__(self, name: str, elements: list[Any] | tuple[Any, ...]) -> None:
        if not isinstance(elements, tuple | list):
            raise TypeError(f"elements must be a tuple or a list; got {type(elements).__name__}")
        self.name = name
        self.elements = elements

    def __repr__(self) -> str:
        return repr(self.elements)


SpecAny = Int | Tensor | Object | Tuple
ArgSpecType = Any


class MethodSpec:
    """One exported method.

    arg_names, arg_specs: its arguments. param_mode: "plain" (each parameter of the model is a
    parameter of the function), "packed" (one tuple of them), "none". effect_mode: the same for
    effects.
    """

    def __init__(
        self,
        method: Callable[..., Any],
        arg_names: Sequence[str],
        arg_specs: Sequence[SpecAny],
        param_mode: str,
        effect_mode: str,
    ) -> None:
        for what, mode in (("param_mode", param_mode), ("effect_mode", effect_mode)):
            if mode not in MODES:
                raise ValueError(f"{what} is one of {', '.join(MODES)}; got {mode!r}")
        if len(arg_names) != len(arg_specs):
            raise ValueError(f"{len(arg_names)} names for {len(arg_specs)} specifications")
        self.method = method
        self.arg_names = list(arg_names)
        self.arg_specs = list(arg_specs)
        self.param_mode = param_mode
        self.effect_mode = effect_mode

    def describe(self, name: str) -> str:
        """The signature, under ``name``."""
        pairs = zip(self.arg_names, self.arg_specs, strict=True)
        return f"{name}({', '.join(f'{n}: {s}' for n, s in pairs)})"

    def __repr__(self) -> str:
        return self.describe("MethodSpec")

    def call(self, args: Sequence[Any]) -> Any:
        """The method's result; arguments go by name where one before them was left out."""
        params = list(inspect.signature(self.method).parameters)
        if self.arg_names == params[: len(self.arg_names)] or not set(self.arg_names) <= {*params}:
            return self.method(*args)
        return self.method(**dict(zip(self.arg_names, args, strict=True)))

    @staticmethod
    def from_raw(spec: Any, method: Callable[..., Any]) -> MethodSpec:
        """The specification of ``{argument: spec}``; a MethodSpec is given back as it is.

        A spec is ``nn.spec.Tensor``, ``"int"`` or ``int``, ``nn.spec.Object``, or a tuple or list
        of specs. ``"$"``: the modes, ``{"param_mode": ..., "effect_mode": ...}``. An argument that
        is left out has the method's default. Raises TypeError for names that the method has not,
        and for arguments that need a value and have no spec.
        """
        if isinstance(spec, MethodSpec):
            return spec
        given: dict[str, Any] = dict(spec)
        config: Mapping[str, Any] = given.pop("$", {})
        params = inspect.signature(method).parameters
        what = getattr(method, "__name__", "the method")
        if unknown := [n for n in given if n not in params]:
            raise TypeError(f"{what} has no arguments {unknown}; it has {list(params)}")
        needed = [n for n, p in params.items() if p.default is p.empty and p.kind not in _VARIADIC]
        if missing := [n for n in needed if n not in given]:
            raise TypeError(f"the spec of {what} lacks its arguments {missing}")
        names = [n for n in params if n in given]
        return MethodSpec(
            method,
            names,
            [_arg_spec(given[n], n) for n in names],
            param_mode=config.get("param_mode", "plain"),
            effect_mode=config.get("effect_mode", "plain"),
        )

    @staticmethod
    def from_torch(args: list[Any], method: Callable[..., Any]) -> MethodSpec:
        """The specification that torch tensors and ints make as arguments of ``method``."""
        names = list(inspect.signature(method).parameters)
        if len(names) != len(args):
            raise TypeError(f"{len(names)} arguments are needed, {names}; got {len(args)}")
        return MethodSpec(method, names, [_spec_of(a) for a in args], "plain", "plain")


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ModuleSpec:
    """The methods of ``module`` that are exported."""

    def __init__(
        self, module: ModuleTree, method_names: Sequence[str], method_specs: Sequence[MethodSpec]
    ) -> None:
        self.module = module
        self.method_names = list(method_names)
        self.method_specs = list(method_specs)

    @staticmethod
    def from_raw(spec: ModuleSpecType, module: ModuleTree) -> ModuleSpec:
        """The specification of ``{method: {argument: spec}}``; a ModuleSpec is given back.

        Raises AttributeError for a method that ``module`` has not.
        """
        if isinstance(spec, ModuleSpec):
            return spec
        specs = [MethodSpec.from_raw(s, getattr(module, name)) for name, s in spec.items()]
        return ModuleSpec(module, list(spec), specs)

    def __repr__(self) -> str:
        pairs = zip(self.method_names, self.method_specs, strict=True)
        return "\n  ".join(["ModuleSpec:", *(spec.describe(name) for name, spec in pairs)])


MethodSpecType = MethodSpec | Mapping[str, ArgSpecType]
ModuleSpecType = ModuleSpec | Mapping[str, MethodSpecType]


def _arg_spec(spec: Any, name: str) -> SpecAny:
    if spec is Int or spec is int or spec == "int":
        return Int()
    if isinstance(spec, Int | Tensor | Object):
        return spec
    if isinstance(spec, Tuple):
        return Tuple(spec.name, _elements(spec.elements, spec.name))
    if isinstance(spec, tuple | list):
        return Tuple(name, _elements(spec, name))
    raise TypeError(f"not a specification for the argument {name}: {spec!r}")


def _spec_of(value: Any) -> SpecAny:
    """The specification that an argument itself makes, a torch tensor or an int."""
    if is_torch(value):
        return Tensor(list(value.shape), str(value.dtype).removeprefix("torch."))
    if isinstance(value, int) and not isinstance(value, bool):
        return Int()
    raise TypeError(f"an argument must be a torch.Tensor or an int; got {type(value).__name__}")


def _elements(specs: Any, name: str) -> Any:
    return type(specs)([_arg_spec(s, f"{name}_{i}") for i, s in enumerate(specs)])

"""Passes: functions from module to module, or from function to function, under a name.

A pass never changes the module that it is given, and gives that very module where it has nothing to
change. Passes of the project are classes under :func:`~relax2xla.transform.core.registry.register`;
users make theirs of functions and classes with :func:`module_pass`, :func:`function_pass` and
:func:`dataflowblock_pass`.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, ClassVar, Literal, TypeVar, cast

from relax2xla.errors import TransformError
from relax2xla.ir import (
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    Function,
    GlobalVar,
    IRModule,
)
from relax2xla.ir.collection import no_collection
from relax2xla.ir.module import BaseFunc
from relax2xla.ir.rewrite import Rewriter
from relax2xla.tir import PrimFunc
from relax2xla.transform.core.context import PassContext, PassInfo
from relax2xla.transform.core.registry import get_pass

ModuleRule = Callable[[IRModule, PassContext], IRModule]
FunctionRule = Callable[[Function, IRModule, PassContext], Function]
DataflowBlockRule = Callable[[DataflowBlock, IRModule, PassContext], DataflowBlock]


class Pass:
    """A transformation of modules: ``new_mod = some_pass(mod)``.

    ``kind``: of TVM's passes without a meaning for XLA, "identity" or "refused"; others are "real".
    """

    info: PassInfo
    kind: ClassVar[Literal["real", "identity", "refused"]] = "real"

    def __call__(self, mod: IRModule) -> IRModule:
        """Run on ``mod``; instruments of the current context see it."""
        return self.run(mod, PassContext.current())

    def run(self, mod: IRModule, context: PassContext, whole: bool = True) -> IRModule:
        """Run in ``context``; ``whole``: ``mod`` holds all that its functions call."""

        if not isinstance(mod, IRModule):
            raise TypeError(
                f"the pass {self.info.name} takes an IRModule; got {type(mod).__name__} "
                "(IRModule.from_expr makes one of a Function)"
            )

        def checked() -> IRModule:
            with no_collection():
                return _is_a(self.transform_module(mod, context), IRModule, self.info)

        return context.run(checked, mod, self.info, whole)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """What the pass does; the class says it."""
        raise NotImplementedError(f"{type(self).__name__} has no transform_module")

    def __repr__(self) -> str:
        return f"Pass({self.info.name}, opt_level={self.info.opt_level})"


class FunctionPass(Pass):
    """A pass over each Relax function of a module on its own."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """Every Relax function in the place of the old one; others stay."""
        new = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            made = _is_a(self.transform_function(func, mod, context), Function, self.info)
            pairs = zip_longest(_parts(made), _parts(func))
            same = made is func or all(a is b for a, b in pairs)
            new[gvar] = func if same else made
        return mod.replace(new)

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        """What the pass does with one function; the class says it."""
        raise NotImplementedError(f"{type(self).__name__} has no transform_function")


class DataflowBlockPass(Pass):
    """A pass over each dataflow block of a module on its own, those in branches included."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """Every dataflow block in the place of the old one; what is around it stays."""
        new = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            new[gvar] = _EachBlock(self, mod, context).function(func)
        return mod.replace(new)

    def transform_dataflowblock(
        self, block: DataflowBlock, mod: IRModule, context: PassContext
    ) -> DataflowBlock:
        """What the pass does with one block; the class says it."""
        raise NotImplementedError(f"{type(self).__name__} has no transform_dataflowblock")


class _EachBlock(Rewriter):
    def __init__(self, given: DataflowBlockPass, mod: IRModule, context: PassContext) -> None:
        super().__init__()
        self.given, self.mod, self.context = given, mod, context

    def block(self, block: BindingBlock) -> BindingBlock:
        old = super().block(block)
        if not isinstance(old, DataflowBlock):
            return old
        new = self.given.transform_dataflowblock(old, self.mod, self.context)
        new = _is_a(new, DataflowBlock, self.given.info)
        same = len(new.bindings) == len(old.bindings) and all(
            map(operator.is_, new.bindings, old.bindings)
        )
        if same:
            return old
        kept = {b.var for b in new.bindings}
        for b in old.bindings:
            if not isinstance(b.var, DataflowVar) and b.var not in kept:
                raise TransformError(
                    f"the pass {self.given.info.name} removed {b.var.name_hint}, which its block "
                    "gives to the outside; a block pass keeps these variables as they are"
                )
        return new


T = TypeVar("T")


def _is_a(made: Any, kind: type[T], info: PassInfo) -> T:
    if not isinstance(made, kind):
        wanted = f"{'an' if kind is IRModule else 'a'} {kind.__name__}"
        got = type(made).__name__
        raise TransformError(f"the pass {info.name} must return {wanted}; got {got}")
    return made


def _parts(func: Function) -> Iterator[object]:
    """What makes a function what it is, down to its bindings."""
    yield from (*func.params, func.body.body, func.ret_struct_info, func.is_pure, func.attrs)
    for block in func.body.blocks:
        yield type(block)
        yield from block.bindings


# -- several passes --------------------------------------------------------------------------------
class Sequential(Pass):
    """Passes one after the other; each runs only if the context enables it."""

    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> None:
        self.passes = tuple(passes or ())
        self.info = PassInfo(name, opt_level, tuple(required or ()), traceable=traceable)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """Those that are enabled, each after the passes that it needs."""
        return run_enabled(self.passes, mod, context)


class PrintIR(Pass):
    """Print the module under ``header``, between the passes of a sequence; nothing is changed.

    ``show_meta_data``: with what the text leaves out otherwise (constants, see ``script``).
    """

    def __init__(self, header: str = "", show_meta_data: bool = False) -> None:
        self.header, self.show_meta_data = header, show_meta_data
        self.info = PassInfo("PrintIR")

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The module as it is, printed."""
        text = mod.script(show_meta=self.show_meta_data)
        sys.stdout.write(f"PrintIR({self.header}):\n{text}\n")
        return mod


class ApplyPassToFunction(Pass):
    """Run ``transform`` on those functions alone whose whole names fit a regular expression.

    It sees of the others that they are there, as packed functions of their names; private ones that
    it is to change look public to it, so that they stay. What it makes beside them is added.
    ``error_if_no_function_matches_regex``: ValueError where no name fits. ValueError, too, for what
    is no regular expression.
    """

    def __init__(
        self,
        transform: Pass,
        func_name_regex: str,
        error_if_no_function_matches_regex: bool = False,
    ) -> None:
        try:
            self.names = re.compile(func_name_regex)
        except re.error as e:
            raise ValueError(
                f"ApplyPassToFunction: {func_name_regex!r} is no regular expression: {e}"
            ) from None
        self.transform, self.strict = transform, error_if_no_function_matches_regex
        self.info = PassInfo(f"ApplyPassTo{func_name_regex}", transform.info.opt_level)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The chosen functions after ``transform``, the others as they are."""
        chosen = {g: f for g, f in mod.items() if self.names.fullmatch(g.name_hint)}
        if not chosen:
            if self.strict:
                names = ", ".join(g.name_hint for g in mod)
                raise ValueError(
                    f"ApplyPassToFunction: no function's name fits {self.names.pattern!r}; the "
                    f"module has {names or 'none'}"
                )
            return mod
        shown: dict[GlobalVar, BaseFunc] = {}
        for gvar, func in mod.items():
            if gvar not in chosen:
                # With what is known of it: the name is that of the module, and keeps it.
                shown[gvar] = ExternFunc(gvar.name_hint, gvar.struct_info_)
            elif isinstance(func, Function) and func.attrs.get("global_symbol") is None:
                shown[gvar] = func.with_attr("global_symbol", gvar.name_hint)
            else:
                shown[gvar] = func
        made = self.transform.run(mod.replace(shown), context)
        new = {g: f for g, f in mod.items() if g not in chosen or g in made}
        for gvar, func in made.items():
            if gvar in mod and (gvar not in chosen or func is shown[gvar]):
                continue
            private = gvar in chosen and shown[gvar] is not chosen[gvar]
            hide = private and isinstance(func, Function)
            new[gvar] = func.without_attr("global_symbol") if hide else func
        return mod.replace(new)


def run_enabled(
    passes: Sequence[Pass], mod: IRModule, context: PassContext | None = None, whole: bool = True
) -> IRModule:
    """``mod`` after those of ``passes`` that the context (None: the current one) enables."""
    context = context or PassContext.current()
    for p in passes:
        if context.enabled(p.info):
            for name in p.info.required:
                mod = get_pass(name)().run(mod, context, whole)
            mod = p.run(mod, context, whole)
    return mod


def run_on_function(
    passes: Sequence[Pass],
    func: Function,
    name: str,
    kernels: Mapping[GlobalVar, PrimFunc] | None = None,
) -> Function:
    """``func`` after those of ``passes`` that are enabled or needed.

    They see it alone, with the loop-level functions that it may call.
    """
    return run_alone(passes, func, name, kernels)[name]


def run_alone(
    passes: Sequence[Pass],
    func: Function,
    name: str,
    kernels: Mapping[GlobalVar, PrimFunc] | None = None,
) -> IRModule:
    """The same, with the functions that ``passes`` have made beside it."""
    context = PassContext.current()
    functions: dict[GlobalVar, Function | PrimFunc] = {**(kernels or {}), GlobalVar(name): func}
    mod = IRModule(functions)
    for p in passes:
        if p.info.needed or context.enabled(p.info):
            mod = p.run(mod, context, whole=False)
    return mod


# -- passes of functions and classes ---------------------------------------------------------------
def module_pass(
    pass_func: ModuleRule | type[Any] | None = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Make a Pass of ``rule(mod, context) -> mod``; also used bare as a decorator.

    A class with a method ``transform_module(mod, context)`` becomes a class of passes.
    """
    return _maker(Pass, "transform_module", pass_func, opt_level, name, required, traceable)


def function_pass(
    pass_func: FunctionRule | type[Any] | None = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Make a Pass of ``rule(func, mod, context) -> func`` over the Relax functions of a module.

    A class with a method ``transform_function`` becomes a class of passes.
    """
    return _maker(
        FunctionPass, "transform_function", pass_func, opt_level, name, required, traceable
    )


def dataflowblock_pass(
    pass_func: DataflowBlockRule | type[Any] | None = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Make a Pass of ``rule(block, mod, context) -> block`` over the dataflow blocks of a module.

    The variables that a block gives to the outside must stay (TransformError). A class with a
    method ``transform_dataflowblock`` becomes a class of passes.
    """
    method = "transform_dataflowblock"
    return _maker(DataflowBlockPass, method, pass_func, opt_level, name, required, traceable)


def _maker(
    kind: type[Pass],
    method: str,
    given: Any,
    opt_level: int,
    name: str | None,
    required: Sequence[str] | None,
    traceable: bool,
) -> Any:
    """The pass of a function, the class of passes of a class; the decorator where none is given."""

    def made(rule: Any) -> Any:
        info = PassInfo(
            name or rule.__name__, opt_level, tuple(required or ()), traceable=traceable
        )
        told = {"info": info, "__doc__": rule.__doc__, "__module__": rule.__module__}
        if isinstance(rule, type):
            return type(rule.__name__, (cast(Any, rule), kind), told)
        return type(rule.__name__, (kind,), {**told, method: staticmethod(rule)})()

    return made if given is None else made(given)

"""RunCodegen: functions for code generators of one's own become what these make of them.

A code generator is a Python function under a name, the one that functions have as their attribute
``Codegen`` (FuseOpsByPattern and MergeCompositeFunctions make such functions)::

    @register_codegen("mylib")
    def mylib(functions, options, constant_names):
        return {f.attrs["global_symbol"]: compiled(f) for f in functions}

It gets the functions, its entry of ``target_options``, and names for the constants in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relax2xla.errors import TransformError, TVMError
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    IRModule,
    Op,
    Tuple,
)
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.normal import NameSupply
from relax2xla.ir.rewrite import Rewriter, post_order_deep
from relax2xla.runtime.external import EXTERNAL_MODS, PackedFunctions, is_external
from relax2xla.runtime.registry import get_global_func, register_func
from relax2xla.stablehlo import parse, read
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.fusion.grouping import CODEGEN
from relax2xla.transform.normal.dead_code import DeadCodeElimination

Generator = Callable[[Sequence[Function], Mapping[str, Any], Mapping[Constant, str]], Any]
PREFIX = "relax.ext."


def register_codegen(name: str, generator: Generator | None = None, override: bool = False) -> Any:
    """Register a code generator; also a decorator. The same as ``register_func("relax.ext.NAME")``.

    ``generator(functions, options, constant_names)`` gives a mapping from the functions' symbols
    (the attribute ``global_symbol``), or a sequence with an item for each function, of:

    - a Python function: it is called with the arguments, and gives the results;
    - a Relax Function of the same parameters and results, or a StableHLO program of them (text or
      bytes): it takes the place of the function, and XLA compiles it with what is around it.

    Or, as code generators for TVM do, a sequence of external modules (``get_function(symbol)``
    gives a function); their functions write into new arrays, their last arguments.
    """
    return register_func(PREFIX + name, generator, override)


@register()
class RunCodegen(Pass):
    """Put in place of functions with the attribute ``Codegen`` what their code generator makes.

    target_options: options by the name of the code generator; entry_functions: names of functions
    to keep beside the public ones. See :func:`register_codegen` for what it may make. Python
    functions and external modules are kept as the module's attribute ``external_mods``; a file that
    ``export_library`` writes holds their names alone, so who loads it registers the functions.
    Functions that nothing calls any more go. TransformError for a name without a code generator,
    and for a result that does not fit.
    """

    def __init__(
        self,
        target_options: Mapping[str, Mapping[str, Any]] | None = None,
        entry_functions: Sequence[str] | None = None,
    ) -> None:
        self.target_options = {k: dict(v) for k, v in (target_options or {}).items()}
        self.entry_functions = tuple(entry_functions or ())

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        given: dict[str, dict[GlobalVar, Function]] = {}
        for gvar, func in mod.relax_functions().items():
            if (target := func.attrs.get(CODEGEN)) is not None:
                given.setdefault(target, {})[gvar] = func
        if not given:
            return mod
        made = _Made(mod)
        for target, functions in given.items():
            made.add(functions, _generated(target, functions, self.target_options.get(target, {})))
        return DeadCodeElimination(self.entry_functions).run(made.module(), context)


def _generated(
    target: str, functions: Mapping[GlobalVar, Function], options: Mapping[str, Any]
) -> Any:
    """What the code generator ``target`` makes of the functions."""
    generator = get_global_func(PREFIX + target, allow_missing=True)
    if generator is None:
        raise TransformError(
            f"Codegen is not found: {PREFIX}{target}; register a code generator with "
            f"relax2xla.transform.register_codegen({target!r}), or leave RunCodegen out: XLA "
            "compiles the functions then"
        )
    names: dict[Constant, str] = {}
    for gvar, func in functions.items():
        constants = (n for n in post_order_deep(func) if isinstance(n, Constant))
        for i, constant in enumerate(constants):
            names.setdefault(constant, f"{_symbol(gvar, func)}_{target}_const_{i}")
    return generator(list(functions.values()), options, names)


def _symbol(gvar: GlobalVar, func: Function) -> str:
    return global_symbol(func) or gvar.name_hint


class _Made:
    """A module on its way: functions that were replaced, calls that are packed calls now."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.functions: dict[GlobalVar, Any] = dict(mod.functions)
        self.packed: dict[GlobalVar, tuple[str, bool]] = {}
        self.external: list[Any] = []
        self.names = NameSupply()
        for gvar in mod:
            self.names.reserve(gvar.name_hint)

    def add(self, functions: Mapping[GlobalVar, Function], results: Any) -> None:
        """What a code generator has made of ``functions``."""
        if isinstance(results, Sequence) and not isinstance(results, str | bytes):
            listed: Sequence[Any] = results
            if listed and all(map(is_external, listed)):
                self.external += listed
                for gvar, func in functions.items():
                    self.packed[gvar] = (_symbol(gvar, func), True)
                return
            if len(listed) != len(functions):
                raise TransformError(
                    f"a code generator must give a result for each of {len(functions)} functions, "
                    f"or external modules; got {len(listed)} results"
                )
            symbols = (_symbol(g, f) for g, f in functions.items())
            results = dict(zip(symbols, listed, strict=True))
        if not isinstance(results, Mapping):
            raise TransformError(
                "a code generator must give a mapping from symbols or a sequence; got "
                f"{type(results).__name__}"
            )
        host: dict[str, Callable[..., Any]] = {}
        for gvar, func in functions.items():
            symbol = _symbol(gvar, func)
            if symbol not in results:
                raise TransformError(f"the code generator gave nothing for {symbol!r}")
            result: Any = results[symbol]
            if isinstance(result, str | bytes):
                result = read(parse(result))
            if isinstance(result, Function | IRModule):
                self._replace(gvar, func, result)
            elif callable(result):
                host[symbol] = result
                self.packed[gvar] = (symbol, False)
            else:
                raise TransformError(
                    f"the code generator gave {type(result).__name__} for {symbol!r}; it may give "
                    "a Python function, a Relax Function, or StableHLO as text or bytes"
                )
        if host:
            self.external.append(PackedFunctions(host))

    def _replace(self, gvar: GlobalVar, func: Function, made: Function | IRModule) -> None:
        """``made`` in place of ``func``; of a module, its entry and what that calls."""
        if isinstance(made, IRModule):
            made = self._adopted(gvar, made)
        params = [p.struct_info for p in made.params]
        wanted = [p.struct_info for p in func.params]
        if params != wanted or made.ret_struct_info != func.ret_struct_info:
            raise TransformError(
                f"what the code generator gave for {gvar.name_hint!r} is {made.struct_info}; the "
                f"function is {func.struct_info}"
            )
        kept = {k: v for k, v in made.attrs.items() if k not in (CODEGEN, "global_symbol")}
        self.functions[gvar] = made.replace(attrs=kept)

    def _adopted(self, gvar: GlobalVar, made: IRModule) -> Function:
        """The entry of a module, the others of which become private functions of this one."""
        public = [g for g, f in made.relax_functions().items() if global_symbol(f) is not None]
        entry = made.get_global_var("main") if "main" in made else None
        if entry is None and len(public) == 1:
            (entry,) = public
        if entry is None:
            raise TransformError(
                f"the module given for {gvar.name_hint!r} needs a function main, or one public one"
            )
        renamed: dict[GlobalVar, GlobalVar] = {}

        def rule(node: Expr) -> Expr | None:
            return renamed.get(node) if isinstance(node, GlobalVar) else None

        for other in made:
            if other is not entry:
                renamed[other] = GlobalVar(self.names.fresh(other.name_hint), other.struct_info_)
        for other, func in made.items():
            if other is not entry:
                plain = func.without_attr("global_symbol")
                if isinstance(plain, Function):
                    plain = Rewriter(rule=rule).function(plain)
                self.functions[renamed[other]] = plain
        return Rewriter(rule=rule).function(made[entry])

    def module(self) -> IRModule:
        """The module with its calls of what is packed now as such."""
        for gvar, func in self.functions.items():
            if gvar in self.packed:
                self.functions[gvar] = func.without_attr(CODEGEN).without_attr("global_symbol")
            elif isinstance(func, Function):
                self.functions[gvar] = Rewriter(rule=self._call).function(func)
        made = self.mod.replace(self.functions)
        before: tuple[Any, ...] = self.mod.attrs.get(EXTERNAL_MODS, ())
        return made.with_attr(EXTERNAL_MODS, (*before, *self.external)) if self.external else made

    def _call(self, node: Expr) -> Expr | None:
        """A call of a function that is packed now."""
        if not (isinstance(node, Call) and isinstance(node.op, GlobalVar)):
            return None
        if node.op not in self.packed:
            return None
        symbol, writes = self.packed[node.op]
        extern = ExternFunc(symbol)
        if writes:
            op, args = Op.get("relax.call_dps_packed"), [extern, Tuple(node.args)]
        else:
            op, args = Op.get("relax.call_pure_packed"), [extern, *node.args]
        return Call(op, args, None, [node.struct_info], node.span)


@register()
class AttachExternModules(Pass):
    """Keep external modules with the module, as its attribute ``external_mods``.

    extern_modules: what has ``get_function(name)``, or ``load()`` that gives such an object; packed
    calls of an executable find their functions there before those that are registered. Raises
    TVMError where two of them, or one and another that is attached already, say that they have the
    same symbol (``functions``, a mapping by symbol, which not all have).
    """

    def __init__(self, extern_modules: Sequence[Any]) -> None:
        self.extern_modules = tuple(extern_modules)
        for module in self.extern_modules:
            if not (is_external(module) or callable(getattr(module, "load", None))):
                raise TypeError(
                    "an external module has get_function(name), or load(); got "
                    f"{type(module).__name__}"
                )

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        loaded = [m if is_external(m) else m.load() for m in self.extern_modules]
        if not loaded:
            return mod
        attached = (*mod.attrs.get(EXTERNAL_MODS, ()), *loaded)
        known: set[str] = set()
        for module in attached:
            symbols = set(getattr(module, "functions", ()))
            if taken := sorted(known & symbols):
                raise TVMError(
                    f"external modules define the symbols {taken} more than once; attach each "
                    "module once, and give every function a name of its own"
                )
            known |= symbols
        return mod.with_attr(EXTERNAL_MODS, attached)

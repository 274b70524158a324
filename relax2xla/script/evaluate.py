"""Expressions of TVMScript: names, literals, operators, and calls of what TVMScript knows.

Nothing of the user's runs: values that the surrounding Python code holds can be named, indexed and
computed with, but only operators, annotations, the members of R, T and I, and function values of
Relax can be called. A definition in a Python file, which runs as it is, may call numpy as well, as
in ``R.const(np.zeros(3))``; a text never can.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from relax2xla import ir, tir
from relax2xla.builder import BlockBuilder
from relax2xla.errors import DiagnosticError, TVMError
from relax2xla.ir.bind import as_value
from relax2xla.ir.op import Op
from relax2xla.ir.op_param import Param, as_dtype
from relax2xla.script import arithmetic as arith
from relax2xla.script import ir_names, relax_names, tir_names
from relax2xla.script.annotations import Annotation, Context
from relax2xla.script.markers import Decorator, Macro, Marker, Namespace
from relax2xla.script.source import Source, message_of, suggestion
from relax2xla.script.tir_functions import Dtype

TENSOR_FIELDS: Final = ("dtype", "ndim", "shape", "strides", "byte_offset", "elem_offset")
DTYPE_FIELDS: Final = ("type_code", "bits", "lanes")
# What building a call or computing with values raises for the user's mistakes.
MISTAKES: Final = (
    TVMError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    LookupError,
)
NAMESPACES: Final = {"I": ir_names.ir, "R": relax_names.relax, "T": tir_names.tir}
BUILTINS: Final[dict[str, Any]] = {"float": float, "int": int, "len": len, "bool": bool}
_UNSUPPORTED: Final[dict[type[ast.expr], str]] = {
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a generator",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.NamedExpr: "an assignment inside an expression",
    ast.Set: "a set",
    ast.Starred: "unpacking with *",
    ast.Slice: "a slice",
    ast.IfExp: "a conditional expression",
}


class ModuleAlias:
    """The module that is being parsed, as its functions name it."""

    def __init__(self, name: str, get: Callable[[str], ir.GlobalVar]) -> None:
        self.name = name
        self.get = get


class MatchCastPair:
    """``R.match_cast(value, struct_info)`` before it is bound."""

    def __init__(self, value: ir.Expr, info: ir.StructInfo) -> None:
        self.value = value
        self.info = info


class Scope:
    """Names of one function or branch; ``symbols`` are the symbolic variables of a function.

    ``ended``: names that dataflow blocks before have kept to themselves.
    """

    def __init__(self, parent: Scope | None, symbols: dict[str, tir.Var] | None = None) -> None:
        self.parent = parent
        self.names: dict[str, Any] = {}
        self.ended: set[str] = set()
        if symbols is None:
            symbols = {} if parent is None else parent.symbols
        self.symbols = symbols

    def lookup(self, name: str) -> Any:
        """The value of ``name``; KeyError if no scope has it.

        A function's symbols are behind the names of all its branches.
        """
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            parent = scope.parent
            if name in scope.symbols and (parent is None or parent.symbols is not scope.symbols):
                return scope.symbols[name]
            scope = parent
        raise KeyError(name)

    def holds(self, value: object) -> bool:
        """Whether some name stands for this very object, alone or in a list."""
        scope: Scope | None = self
        while scope is not None:
            for known in (*scope.names.values(), *scope.symbols.values()):
                several: Any = known if isinstance(known, list | tuple) else (known,)
                if any(x is value for x in several):
                    return True
            scope = scope.parent
        return False

    def symbol(self, name: str) -> tir.Var | None:
        """The symbolic variable ``name`` of this function or one around it."""
        try:
            found = self.lookup(name)
        except KeyError:
            return None
        return found if isinstance(found, tir.Var) else None


class Evaluator:
    """Expressions of one source text. ``outside``: what the surrounding Python code can name.

    ``numpy``: whether functions of numpy may be called.
    """

    # How many macros are being expanded in each other.
    depth_of_macros: int = 0

    def __init__(self, source: Source, outside: Mapping[str, Any], numpy: bool = False) -> None:
        self.source = source
        self.outside = outside
        self.numpy = numpy
        self.scope = Scope(None)
        self.metadata: dict[str, list[Any]] | None = None
        # What the module holds beside functions: lists of devices and of meshes by name.
        self.infos: Mapping[str, Any] = {}
        # Dtypes of the symbols of a signature, as far as the body states them.
        self.declared: Mapping[str, str] = {}
        self.gvars: dict[str, ir.GlobalVar] = {}
        # Where R.emit_te adds functions; None outside of modules.
        self.kernels: BlockBuilder | None = None

    @contextmanager
    def inner(self) -> Generator[None]:
        """A scope of names inside the current one."""
        outer, self.scope = self.scope, Scope(self.scope)
        try:
            yield
        finally:
            self.scope = outer

    # -- annotations -----------------------------------------------------------------------------
    def resolve(self, name: str) -> tir.Var:
        """A symbolic variable that a string names in a function's body."""
        found = self.scope.symbol(name)
        if found is None:
            raise NameError(
                f"the symbolic variable {name!r} is not defined; write `{name} = T.int64()` first",
                name=name,
            )
        return found

    def defining(self, name: str) -> tir.Var:
        """The same in a signature, where the first use of a name defines it."""
        dtype = self.declared.get(name, "int64")
        return self.scope.symbols.setdefault(name, tir.Var(name, dtype))

    def device(self, text: str) -> ir.VDevice:
        """``kind:index:scope``, the index counting the module's own devices of that kind.

        The kind "vdevice" counts all of them.
        """
        from relax2xla.script.annotations import parse_device

        made = parse_device(text)
        known = self.infos.get("vdevice", ())
        alike = [d for d in known if isinstance(d, ir.VDevice) and d.kind == made.kind]
        if made.kind == "vdevice":
            alike = list(known)
            if made.vdevice_id >= len(alike):
                raise ValueError(
                    f"{text!r} names no device: I.module_global_infos has {len(alike)} of them"
                )
        return alike[made.vdevice_id] if made.vdevice_id < len(alike) else made

    def mesh(self, text: str) -> ir.DeviceMesh:
        """``name[index]`` among the module's global infos."""
        name, _, index = text.removesuffix("]").partition("[")
        known = self.infos.get(name, ())
        at = int(index) if index.isdecimal() else len(known)
        if at >= len(known) or not isinstance(known[at], ir.DeviceMesh):
            raise ValueError(
                f"the module's global infos have no mesh {text!r}; write "
                'I.module_global_infos({"mesh": [R.device_mesh((2,), [0, 1])]}) and "mesh[0]"'
            )
        return known[at]

    # -- expressions -----------------------------------------------------------------------------
    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        handler = self._HANDLERS.get(type(node))
        if handler is None:
            what = _UNSUPPORTED.get(type(node), f"`{type(node).__name__}`")
            self.source.fail(node, f"{what} is not supported in TVMScript")
        return handler(self, node)

    def _attempt(self, node: ast.expr, compute: Callable[[], Any]) -> Any:
        try:
            return compute()
        except DiagnosticError:
            raise
        except NameError as e:
            # The string that holds the unknown name is inside the annotation.
            texts = (n for n in ast.walk(node) if isinstance(n, ast.Constant))
            at = [n for n in texts if isinstance(n.value, str) and e.name in _words(n.value)]
            self.source.fail(at[0] if at else node, message_of(e), e)
        except MISTAKES as e:
            self.source.fail(node, message_of(e), e)

    def _name(self, node: ast.Name) -> Any:
        try:
            return self.scope.lookup(node.id)
        except KeyError:
            pass
        for names in (self.outside, NAMESPACES, BUILTINS):
            if node.id in names:
                return names[node.id]
        if node.id == "metadata":
            if self.metadata is None:
                self.source.fail(
                    node,
                    "this text refers to metadata that it does not hold; print the program with "
                    "script(show_meta=True)",
                )
            return self.metadata
        known = [*self.outside, *NAMESPACES]
        scope: Scope | None = self.scope
        while scope is not None:
            if node.id in scope.ended:
                self.source.fail(
                    node,
                    f"{node.id!r} is visible only in its dataflow block; R.output({node.id}) at "
                    "its end makes it visible behind it",
                )
            known += [*scope.names, *scope.symbols]
            scope = scope.parent
        self.source.fail(node, f"undefined name {node.id!r}{suggestion(node.id, known)}")

    def _joined(self, node: ast.JoinedStr) -> str:
        """An f-string of strings and numbers; a format could ask for any length."""
        parts: list[str] = []
        for part in node.values:
            value: Any = self.value(part.value if isinstance(part, ast.FormattedValue) else part)
            is_plain = not isinstance(part, ast.FormattedValue) or (
                part.conversion == -1 and part.format_spec is None
            )
            if not is_plain or not isinstance(value, str | int | float):
                self.source.fail(node, "an f-string holds names of strings and numbers")
            parts.append(str(value))
        return "".join(parts)

    def _constant(self, node: ast.Constant) -> Any:
        if node.value is Ellipsis or isinstance(node.value, bytes | complex):
            self.source.fail(node, f"a {type(node.value).__name__} is not supported in TVMScript")
        return node.value

    def _sequence(self, node: ast.Tuple | ast.List) -> Any:
        values = [self.value(e) for e in node.elts]
        return tuple(values) if isinstance(node, ast.Tuple) else values

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self.source.fail(value, "unpacking with ** is not supported in TVMScript")
            name = self.value(key)
            if not isinstance(name, str):
                self.source.fail(key, "keys of dictionaries must be strings")
            made[name] = self.value(value)
        return made

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self._tensor_field(node.value, node.attr in DTYPE_FIELDS)
        name = node.attr
        if isinstance(owner, ModuleAlias):
            return self._attempt(node, lambda: owner.get(name))
        # What Python calls private may run anything; a row may be named so.
        if name.startswith("_") and not isinstance(owner, relax_names.OpNamespace):
            self.source.fail(node, f"the private name {name!r} cannot be used in TVMScript")
        if isinstance(owner, ir.Expr) and not isinstance(owner, Op):
            return self._member(node, owner, name)
        try:
            return getattr(owner, name)
        except AttributeError as e:
            if isinstance(owner, Namespace | relax_names.OpNamespace):
                hint = suggestion(name, dir(owner))
                self.source.fail(node, f"{message_of(e)}{hint}", e)
            self.source.fail(node, f"{type(owner).__name__} has no attribute {name!r}", e)

    def _member(self, node: ast.Attribute, owner: ir.Expr, name: str) -> Any:
        """``x.shape``, ``x.dtype``, ``x.ndim``, what is known of them as values; ``x.astype``.

        What is not known, and the other fields, are read when the program runs.
        """
        info = owner.struct_info_
        if name == "astype":
            return owner.astype
        if isinstance(info, ir.TensorStructInfo):
            known = {"shape": info.dims, "dtype": info.dtype or None, "ndim": info.ndim}.get(name)
            if known is not None and known != -1:
                return known
            if name in TENSOR_FIELDS:
                return self._attempt(node, lambda: getattr(owner, name))
        if name == "struct_info" and info is not None:
            return info
        if isinstance(info, ir.ShapeStructInfo) and name == "values" and info.values is not None:
            return info.values
        self.source.fail(node, f"a Relax value has no attribute {name!r} in TVMScript")

    def _tensor_field(self, node: ast.expr, as_expression: bool) -> Any:
        """The value of ``node``; ``as_expression``: of ``x.shape`` what it is read from."""
        if as_expression and isinstance(node, ast.Attribute) and node.attr in TENSOR_FIELDS:
            owner = self.value(node.value)
            if isinstance(owner, ir.Expr) and isinstance(owner.struct_info_, ir.TensorStructInfo):
                return self._attempt(node, lambda: getattr(owner, node.attr))
        return self.value(node)

    def _subscript(self, node: ast.Subscript) -> Any:
        index = self.value(node.slice)
        if isinstance(index, tir.IntImm):
            index = index.value
        owner = self._tensor_field(node.value, isinstance(index, ir.Expr | tir.PrimExpr))
        if isinstance(owner, ir.Expr) and not isinstance(index, int):
            self.source.fail(node.slice, "the index of a tuple must be an integer literal")
        return self._attempt(node, lambda: arith.item(owner, index))

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        return self._attempt(node, lambda: arith.binary(node.op, left, right))

    def _unary(self, node: ast.UnaryOp) -> Any:
        operand = self.value(node.operand)
        return self._attempt(node, lambda: arith.unary(node.op, operand))

    def _boolean(self, node: ast.BoolOp) -> Any:
        values = [self.value(v) for v in node.values]
        return self._attempt(node, lambda: arith.boolean(node.op, values))

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1:
            self.source.fail(node, "comparisons cannot be chained in TVMScript")
        left, right = self.value(node.left), self.value(node.comparators[0])
        return self._attempt(node, lambda: arith.compare(node.ops[0], left, right))

    def _lambda(self, node: ast.Lambda) -> Callable[..., Any]:
        """A function of indices, as ``layout_transform`` takes it."""
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.defaults or a.posonlyargs:
            self.source.fail(node, "a lambda in TVMScript takes plain positional arguments only")
        names = [p.arg for p in a.args]

        def call(*values: Any) -> Any:
            outer, self.scope = self.scope, Scope(self.scope)
            self.scope.names.update(zip(names, values, strict=True))
            try:
                return self.value(node.body)
            finally:
                self.scope = outer

        kind = inspect.Parameter.POSITIONAL_ONLY
        signature = inspect.Signature([inspect.Parameter(n, kind) for n in names])
        call.__signature__ = signature
        return call

    # -- calls -----------------------------------------------------------------------------------
    def _call(self, node: ast.Call) -> Any:
        func = self.value(node.func)
        if isinstance(func, Marker):
            return self._marker(node, func)
        args = [self.value(a) for a in node.args]
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg is None:
                self.source.fail(k, "unpacking with ** is not supported in TVMScript")
            kwargs[k.arg] = self.value(k.value)
        return self._attempt(node, lambda: self.apply(node, func, args, kwargs))

    def apply(self, node: ast.Call, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """``func(*args, **kwargs)`` for what TVMScript may call."""
        match func:
            case Op():
                return self._operator(func, args, kwargs)
            case Annotation():
                return func.make(Context(self.resolve, self.device, self.mesh), *args, **kwargs)
            case ir.Expr():
                infos = kwargs.pop("sinfo_args", ())
                _want_attributes(kwargs)
                return relax_names.call_value(func, args, kwargs, infos, None)
            case Dtype():
                return func(*args, **kwargs)
            case ModuleAlias() | Decorator():
                self.source.fail(node.func, f"{func!r} cannot be called here")
            case _ if func is ir.GlobalVar:
                made = ir.GlobalVar(*args, **kwargs)
                return self.gvars.setdefault(made.name_hint, made)
            case _ if self.numpy and (own := relax_names.of_function(func)) is not None:
                return own(*args, **kwargs)
            case _ if self._may_call(func):
                value = func(*args, **kwargs)
                if isinstance(value, ir.Call):
                    _want_attributes(value.attrs)
                return value
            case _:
                name = ast.unparse(node.func)
                self.source.fail(
                    node.func,
                    f"{name} cannot be called in TVMScript; only operators, functions of Relax and "
                    "members of R, T and I can, and in Python files numpy's functions, expressions "
                    "and devices. Compute the value outside and use its name",
                )

    def _may_call(self, func: Any) -> bool:
        if isinstance(func, types.MethodType) and func.__func__ in _METHODS:
            return True
        if self.numpy and (_is_of_numpy(func) or _is_made_in_files(func)):
            return True
        return any(func is f for f in (*_ALLOWED, *relax_names.composed_operators().values()))

    def attributes(self, node: ast.expr, what: str) -> dict[str, Any]:
        """The dictionary of attributes that ``what`` takes."""
        value = self.value(node)
        if not isinstance(value, dict):
            self.source.fail(node, f"{what} takes a dictionary")
        self._attempt(node, lambda: _want_attributes(value))
        return value

    def _operator(self, op: Op[...], args: list[Any], kwargs: dict[str, Any]) -> ir.Call:
        for i, p in enumerate(op.params):
            if p.variadic:
                break
            if i < len(args):
                args[i] = _argument(p, args[i])
        for p in op.params:
            if p.name in kwargs:
                kwargs[p.name] = _argument(p, kwargs[p.name])
        for name, find in (("dst_vdevice", self.device), ("device_mesh", self.mesh)):
            if isinstance(kwargs.get(name), str):
                kwargs[name] = find(kwargs[name])
            for i, p in enumerate(op.params[: len(args)]):
                if p.name == name and isinstance(args[i], str):
                    args[i] = find(args[i])
        infos = kwargs.get("sinfo_args")
        if infos is not None:
            infos = infos if isinstance(infos, tuple | list) else (infos,)
            kwargs["sinfo_args"] = tuple(relax_names.as_struct_info(i) for i in infos)
        made = op(*args, **kwargs)
        _want_attributes(made.attrs)
        return made

    def _marker(self, node: ast.Call, marker: Marker) -> Any:
        """A call that only the parser understands, inside an expression."""
        if marker.name == "R.emit_te":
            return self.emit_te(node)
        if marker.name != "R.match_cast":
            self.source.fail(node, f"{marker.name} is a statement of its own; it has no value")
        if len(node.args) != 2 or node.keywords:
            self.source.fail(node, "R.match_cast takes a value and a struct info")
        value = self.expr(node.args[0])
        return MatchCastPair(value, self.struct_info(node.args[1], defining=True))

    def emit_te(self, node: ast.Call) -> ir.Expr:
        """``R.emit_te(f, x)``: a call of what ``f``, a function of te, computes.

        The loop-level function joins the module that is being parsed.
        """
        if self.kernels is None:
            self.source.fail(
                node,
                "R.emit_te adds a function to the module; write it in a class below @I.ir_module",
            )
        args = [self.value(a) for a in node.args]
        kwargs = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        func = args[0] if args else None
        if not callable(func) or isinstance(func, ir.Expr):
            self.source.fail(node, "R.emit_te takes a function over tensors of te first")
        if not self.numpy and not _is_of_topi(func):
            self.source.fail(
                node.args[0],
                "a text of TVMScript runs nothing but functions of relax2xla.topi by R.emit_te; "
                "define the module in a Python file",
            )
        builder = self.kernels
        return self._attempt(node, lambda: builder.call_te(*args, **kwargs))

    def struct_info(self, node: ast.expr, *, defining: bool = False) -> ir.StructInfo:
        """The struct info of an annotation; ``defining``: strings in it define symbols."""
        if isinstance(node, ast.Constant) and node.value is None:
            return ir.TupleStructInfo(())
        before = self.resolve
        if defining:
            self.resolve = self._resolve_or_define
        try:
            value = self.value(node)
        finally:
            self.resolve = before
        return self._attempt(node, lambda: relax_names.as_struct_info(value))

    def _resolve_or_define(self, name: str) -> tir.Var:
        return self.scope.symbol(name) or self.defining(name)

    def expr(self, node: ast.expr) -> ir.Expr:
        """A Relax expression: numbers become constants, symbolic integers PrimValues."""
        return self.as_expr(node, self.value(node))

    def as_expr(self, node: ast.expr, value: Any) -> ir.Expr:
        """``value`` as a Relax expression."""
        if isinstance(value, ir.Expr):
            return value
        if isinstance(value, bool | int | float | str | tuple | list | tir.PrimExpr | np.ndarray):
            return self._attempt(node, lambda: as_value(value))
        self.source.fail(
            node, f"expected a Relax value; `{ast.unparse(node)}` is a {type(value).__name__}"
        )

    _HANDLERS: Mapping[type[ast.expr], Callable[[Any, Any], Any]] = {
        ast.Name: _name,
        ast.Constant: _constant,
        ast.JoinedStr: _joined,
        ast.Tuple: _sequence,
        ast.List: _sequence,
        ast.Dict: _dict,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: _boolean,
        ast.Compare: _compare,
        ast.Call: _call,
        ast.Lambda: _lambda,
    }


def _argument(p: Param, value: Any) -> Any:
    """A value for a parameter of an operator, from the ways in which texts spell attributes."""
    if p.kind.operand:
        return value
    if p.kind.convert is as_dtype and value == "void":
        return None  # how TVM writes a dtype that is not given
    if isinstance(value, ir.StringImm | ir.DataTypeImm):
        return value.value
    if isinstance(value, ir.PrimValue) and isinstance(value.value, tir.IntImm | tir.FloatImm):
        return value.value.value
    return value


# What names of R, T and I and of Python stand for that is no value.
_NO_VALUES: Final = (
    *(Annotation, Op, Marker, Decorator, Macro, Namespace, relax_names.OpNamespace),
    *(Dtype, ModuleAlias, MatchCastPair, type, types.ModuleType),
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType),
)


def _want_attributes(attrs: Mapping[str, Any]) -> None:
    """TypeError where an attribute is no value, such as ``R.Prim``, which has no text either."""
    for name, value in attrs.items():
        todo = [value]
        while todo:
            held = todo.pop()
            if isinstance(held, tuple | list):
                todo += held
            elif isinstance(held, Mapping):
                todo += held.values()
            elif isinstance(held, _NO_VALUES):
                raise TypeError(
                    f"the attribute {name!r} must be a number, a string, a struct info or a list "
                    f"or dictionary of such; got {held!r}, of type {type(held).__name__}"
                )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


_ALLOWED: Final = (
    *relax_names.CALLABLE,
    *tir_names.CALLABLE,
    *ir_names.CALLABLE,
    *BUILTINS.values(),
    ir.const,
)

# Methods that may be called: of values, and of modules that a Python file has made before.
_METHODS: Final = (ir.Expr.astype, ir.IRModule.get_global_var)


_MADE_IN_FILES: Final = ("relax2xla.nd", "relax2xla.runtime.device")


def _is_made_in_files(func: Any) -> bool:
    """An expression by its class (``relax.Call``), an operator by its name, a device or an array.

    Functions of symbolic scalars, and methods of these, too.
    """
    if isinstance(func, type):
        return issubclass(func, ir.Expr | ir.VDevice)
    if isinstance(getattr(func, "__self__", None), tir.PrimExpr):
        return True
    home = getattr(func, "__module__", None) or ""
    return func is Op.get or home in _MADE_IN_FILES or home.startswith("relax2xla.tir.")


def _is_of_topi(func: Any) -> bool:
    name = getattr(func, "__module__", None) or ""
    return name == "relax2xla.topi" or name.startswith("relax2xla.topi.")


def _is_of_numpy(func: Any) -> bool:
    """A function, ufunc or type of numpy, or a method of one of its arrays."""
    owner = getattr(func, "__self__", None)
    if isinstance(owner, np.ndarray | np.generic | np.dtype):
        return True
    if isinstance(func, np.ufunc):
        return True
    return (getattr(func, "__module__", None) or "").partition(".")[0] == "numpy"

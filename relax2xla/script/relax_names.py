"""``R`` of TVMScript: annotations, literals, and every operator of the registry.

``R.nn.softmax`` is the operator "relax.nn.softmax", in TVMScript and in plain Python alike.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from relax2xla import ir, tir
from relax2xla.errors import TVMError
from relax2xla.ir.bind import as_value
from relax2xla.ir.op import Op
from relax2xla.script.annotations import ANNOTATIONS, Annotation, as_struct_info
from relax2xla.script.ir_builder.base import IRBuilder
from relax2xla.script.ir_builder.relax import ir as statements
from relax2xla.script.markers import Decorator, Marker, Namespace


class Emitter(Marker):
    """A marker that Python can call inside an IRBuilder, where ``build`` does what it says."""

    def __init__(self, name: str, build: Callable[..., Any]) -> None:
        super().__init__(name)
        self._build = build

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        does = self._build if IRBuilder.is_in_scope() else super().__call__
        return does(*args, **kwargs)


class OpNamespace:
    """Operators that share a prefix: ``R.nn``, ``R.stablehlo``."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return _operator(f"{self._prefix}.{name}")

    def __dir__(self) -> list[str]:
        start = f"{self._prefix}."
        names = (n for n in Op.list_op_names() if n.startswith(start))
        return sorted({n.removeprefix(start).split(".")[0] for n in names})

    def __repr__(self) -> str:
        return f"R{self._prefix.removeprefix('relax')}"


_NAMESPACES: set[str] = set()
SHORT_NAMESPACES: Final = {"dist": "relax.distributed"}


def composed_operators() -> dict[str, Any]:
    """Functions of ``relax2xla.op`` that are no operators, such as ``linear``; short names."""
    return importlib.import_module("relax2xla.op").COMPOSED


def attention(query: Any, key: Any, value: Any, bias: Any = None, **attrs: Any) -> ir.Call:
    """``R.nn.attention``, which is one of two operators: with a bias or without."""
    if bias is None:
        return Op.get("relax.nn.attention")(query, key, value, **attrs)
    return Op.get("relax.nn.attention_bias")(query, key, value, bias, **attrs)


def distributed_const(value: Any, struct_info: Any) -> ir.Constant:
    """``R.dist.const``: a constant of which a DTensor annotation says how it is spread."""
    info = as_struct_info(struct_info)
    if not isinstance(info, ir.DTensorStructInfo):
        raise TypeError(f"R.dist.const takes an R.DTensor; got {info}")
    made = const(value, info.tensor_sinfo.dtype or None)
    if not info.tensor_sinfo.is_base_of(made.struct_info):
        raise TypeError(f"a constant of {made.struct_info} is no {info}")
    return ir.Constant(made.data, info)


def _operator(name: str) -> Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    try:
        return Op.get(name)
    except TVMError:
        pass
    if name not in _NAMESPACES:
        for known in Op.list_op_names():
            parts = known.split(".")
            _NAMESPACES.update(".".join(parts[:i]) for i in range(2, len(parts)))
    if name in _NAMESPACES:
        return OpNamespace(name)
    short = name.removeprefix("relax.")
    if short in SHORT_NAMESPACES:
        return OpNamespace(SHORT_NAMESPACES[short])
    composed = composed_operators()
    if short in composed:
        return composed[short]
    raise AttributeError(f"there is no operator R.{name.removeprefix('relax.')}")


def const(value: Any, dtype: Any = None) -> ir.Constant:
    """A constant; ``"inf"``, ``"-inf"`` and ``"nan"`` are floats, as TVM prints them."""
    return ir.const(float(value) if isinstance(value, str) else value, dtype)


def shape(values: Any) -> ir.ShapeExpr:
    """A shape value."""
    if not isinstance(values, tuple | list):
        raise TypeError(f"R.shape takes a list of dimensions; got {type(values).__name__}")
    return ir.ShapeExpr([v.value if isinstance(v, ir.PrimValue) else v for v in values])


def prim_value(value: Any) -> ir.PrimValue:
    """A scalar known to the compiler."""
    return ir.PrimValue(value)


def packed(
    name: str, *args: Any, sinfo_args: Any = (), span: ir.Span | None = None, **attrs: Any
) -> ir.Call:
    """A call of a registered Python function, which may have effects."""
    return call_value(ir.ExternFunc(name), args, attrs, sinfo_args, span)


def call_value(
    func: ir.Expr, args: Sequence[Any], attrs: dict[str, Any], sinfo_args: Any, span: Any
) -> ir.Call:
    """A call of a function value."""
    attrs.pop("attrs_type_key", None)  # TVM names the C++ class of attributes; here is but one.
    infos = sinfo_args if isinstance(sinfo_args, tuple | list) else (sinfo_args,)
    return ir.Call(
        func, [as_value(a) for a in args], attrs, [as_struct_info(i) for i in infos], span
    )


def _callee_first(name: str) -> Callable[..., ir.Call]:
    """Calls whose first operand is a function, of which a string is the registered name."""

    def call(func: Any, *args: Any, **kwargs: Any) -> ir.Call:
        operand = ir.ExternFunc(func) if isinstance(func, str) else func
        if "sinfo_args" in kwargs:
            infos = kwargs["sinfo_args"]
            infos = infos if isinstance(infos, tuple | list) else (infos,)
            kwargs["sinfo_args"] = tuple(map(as_struct_info, infos))
        # As for R.call_packed: a list of operands is a tuple of them, a number a scalar.
        return Op.get(name)(operand, *map(as_value, args), **kwargs)

    return call


def _destination_passing(name: str, home: str = "intrinsic") -> Callable[..., ir.Call]:
    """``R.call_tir`` and its like: the result is stated as ``out_sinfo``, by annotations."""

    def call(*args: Any, **kwargs: Any) -> ir.Call:
        return getattr(importlib.import_module(f"relax2xla.op.{home}"), name)(
            *map(_struct_infos, args), **{k: _struct_infos(v) for k, v in kwargs.items()}
        )

    return call


def call_py_func(
    func_name: Any, *args: Any, out_sinfo: Any = None, sinfo_args: Any = None
) -> ir.Call:
    """``R.call_py_func("f", x, y, out_sinfo=...)``; the operands may be one tuple, and TVM prints
    the result as ``sinfo_args``.
    """
    from relax2xla.op import intrinsic

    if (out_sinfo is None) == (sinfo_args is None):
        raise TypeError("R.call_py_func takes out_sinfo, the struct info of its results")
    operands = args[0] if len(args) == 1 else list(args)
    stated = _struct_infos(sinfo_args if out_sinfo is None else out_sinfo)
    if out_sinfo is None and isinstance(stated, tuple):
        stated = as_struct_info(stated[0]) if len(stated) == 1 else list(stated)
    if isinstance(stated, ir.TupleStructInfo):
        stated = list(stated.fields)
    return intrinsic.call_py_func(func_name, operands, stated)


def _struct_infos(value: Any) -> Any:
    """``value`` with annotations as the struct info that they mean."""
    if isinstance(value, Annotation):
        return as_struct_info(value)
    if isinstance(value, list) and any(isinstance(v, Annotation | ir.StructInfo) for v in value):
        return [as_struct_info(v) for v in value]
    return value


def _tuple(*fields: Any) -> ir.Tuple:
    return ir.Tuple([as_value(f) for f in fields])


# Names of R below a namespace that are functions around operators.
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "relax.nn.attention": attention,
    "relax.distributed.const": distributed_const,
    "relax.distributed.device_mesh": ir.DeviceMesh,
    "relax.distributed.DTensor": ANNOTATIONS["DTensor"],
    "relax.distributed.call_tir": _destination_passing("call_tir"),
    "relax.distributed.call_tir_local_view": _destination_passing(
        "call_tir_local_view", "distributed"
    ),
}
_TABLE: Final[dict[str, Any]] = {
    **ANNOTATIONS,
    "function": Decorator("R.function"),
    "macro": Decorator("R.macro"),
    "rewriter": Decorator("R.rewriter"),
    "const": const,
    "shape": shape,
    "prim_value": prim_value,
    "device_mesh": ir.DeviceMesh,
    "Range": tir.Range,
    "str": ir.StringImm,
    "dtype": ir.DataTypeImm,
    "tuple": _tuple,
    "ExternFunc": ir.ExternFunc,
    "ShapeExpr": ir.ShapeExpr,
    "TupleGetItem": ir.TupleGetItem,
    "call_packed": packed,
    "call_py_func": call_py_func,
    **{n: _callee_first(f"relax.{n}") for n in ("call_pure_packed", "call_inplace_packed")},
    **{
        n: _destination_passing(n)
        for n in ("call_tir", "call_tir_inplace", "call_tir_with_grad", "call_dps_packed")
    },
    "match_cast": Marker("R.match_cast"),
    # TVM's module of these names: an annotation is there what ``R.Tensor`` is before it is called.
    "entry": Namespace(
        "R.entry",
        {"StructInfoProxy": Annotation, **{f"{n}Proxy": a for n, a in ANNOTATIONS.items()}},
    ),
    **{
        n: Emitter(f"R.{n}", getattr(statements, n))
        for n in statements.__all__
        if n not in ("function", "to_vdevice")
    },
}


relax: Final = Namespace(
    "R", _TABLE, lambda name: _operator(f"relax.{name}"), lambda: dir(OpNamespace("relax"))
)
CALLABLE: Final = [*_FUNCTIONS.values()] + [
    f for f in _TABLE.values() if not isinstance(f, Marker | Decorator)
]


def of_function(func: Any) -> Any:
    """What R has in the place of a function of ``relax2xla.op``, such as ``relax.call_tir``.

    It takes annotations for struct infos. None where it has nothing.
    """
    if getattr(func, "__module__", None) != "relax2xla.op.intrinsic":
        return None
    return _TABLE.get(getattr(func, "__name__", ""))

"""Calls of external functions as rows, so that what is around them stays one XLA program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.ir import (
    Call,
    Expr,
    ExternFunc,
    IRModule,
    Op,
    PrimValue,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)
from relax2xla.ir.rewrite import post_order_deep, rewrite_function
from relax2xla.runtime.external import EXTERNAL_MODS, find_external
from relax2xla.runtime.native import NativeFunction
from relax2xla.stablehlo.untrusted.targets import TYPED
from relax2xla.vm.pjrt.external_calls import DTYPES, LONGEST_PLAIN, TARGET, bind

_DPS: Final = "relax.call_dps_packed"


def external_rows(mod: IRModule) -> tuple[IRModule, frozenset[str]]:
    """``mod`` with custom calls for what it calls of its external modules, and their targets.

    For programs of a CPU.

    Before: ``R.call_dps_packed("f", (x, 3), out_sinfo=...)``. After: ``R.stablehlo.custom_call(x)``
    of XLA's handler for external functions. What else than tensors, constants and strings is given,
    and functions in Python, stay on the host. XLA may leave out a call whose result nothing reads.
    """
    modules: Sequence[Any] = mod.attrs.get(EXTERNAL_MODS, ())
    if not modules:
        return mod, frozenset()
    keys: dict[str, str | None] = {}

    def row(node: Expr) -> Expr | None:
        if not _is_dps(node):
            return None
        assert isinstance(node, Call)
        callee, given = node.args
        if not isinstance(callee, ExternFunc) or not isinstance(given, Tuple):
            return None
        name = callee.global_symbol
        function = find_external(modules, name)
        results = _tensors(node.sinfo_args[0])
        items = _items(given.fields)
        if not isinstance(function, NativeFunction) or results is None or items is None:
            return None
        if not function.typed and (
            any(i != "t" for i in items) or len(items) + len(results) > LONGEST_PLAIN
        ):
            return None
        if name not in keys:
            keys[name] = bind(function)
        key = keys[name]
        if key is None:
            return None
        operands = [f for f, i in zip(given.fields, items, strict=True) if i == "t"]
        infos = [o.struct_info for o in operands]
        return Op.get("relax.stablehlo.custom_call")(
            *operands,
            call_target_name=TARGET,
            api_version=TYPED,
            backend_config={"arguments": " ".join(items), "function": key},
            operand_layouts=[_layout(i) for i in infos],
            result_layouts=[_layout(r) for r in results],
            sinfo_args=node.sinfo_args,
            span=node.span,
        )

    made = {
        g: rewrite_function(f, rule=row)
        for g, f in mod.relax_functions().items()
        if any(map(_is_dps, post_order_deep(f)))
    }
    if all(f is mod[g] for g, f in made.items()):
        return mod, frozenset()
    return mod.replace({**mod.functions, **made}), frozenset([TARGET])


def _is_dps(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == _DPS


def _tensors(info: StructInfo) -> list[StructInfo] | None:
    """The results, if there are any, and each is a tensor of known shape that XLA's handler has."""
    fields = list(info.fields) if isinstance(info, TupleStructInfo) else [info]
    fit = all(isinstance(f, TensorStructInfo) and f.dims is not None and _fits(f) for f in fields)
    return fields if fields and fit else None


def _fits(info: StructInfo) -> bool:
    return (
        isinstance(info, TensorStructInfo)
        and info.ndim >= 0
        and info.vdevice is None
        and info.dtype in DTYPES
    )


def _items(fields: Sequence[Expr]) -> list[str] | None:
    """What the function gets, as ``external_calls.cpp`` reads it; None for what it cannot."""
    made: list[str] = []
    for field in fields:
        match field:
            case PrimValue(value=tir.IntImm() as number):
                made.append(f"i{int(number.value)}")
            case PrimValue(value=tir.FloatImm() as number):
                made.append(f"f{float(number.value).hex()}")
            case StringImm():
                made.append(f"s{field.value.encode('utf-8').hex()}")
            case _ if _fits(field.struct_info):
                made.append("t")
            case _:
                return None
    return made


def _layout(info: StructInfo) -> tuple[int, ...]:
    """Axes from the fastest to the slowest: in order of rows."""
    assert isinstance(info, TensorStructInfo)
    return tuple(reversed(range(info.ndim)))

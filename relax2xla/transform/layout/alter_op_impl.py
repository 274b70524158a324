"""AlterOpImpl: other kernels in the place of those of a kind, with tensors in other layouts.

Source of the semantics: ``AlterOpImpl`` of TVM v0.20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from relax2xla import op, te, tir
from relax2xla.builder import BlockBuilder
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
)
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import Rewriter
from relax2xla.ir.struct_info import show
from relax2xla.op.intrinsic import call_tir
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.normal.normalize import Normalize

OPERATOR_NAME: Final = "operator_name"
Transform: TypeAlias = "tir.IndexMap | Callable[..., Any] | None"
Separators: TypeAlias = Mapping[str, Sequence[Any] | None] | None


@register()
class AlterOpImpl(Pass):
    """Call other loop-level functions in the place of those with an attribute ``operator_name``.

    op_impl_map: by that name, the function to call; op_buffer_transforms: by that name, an
    IndexMap (or a function of the indices, or None) for each buffer of the function, operands
    first: operands go through ``layout_transform``, results go back through its inverse, and what
    was padded is cut off. A map must split and permute indices (``(i // 4, i % 4)``), or have an
    inverse of its own; TransformError otherwise, and where maps and buffers are not as many.
    op_buffer_axis_separators, op_buffer_input_axis_separators: kept with ``layout_transform``.
    """

    def __init__(
        self,
        op_impl_map: Mapping[str, tir.PrimFunc],
        op_buffer_transforms: Mapping[str, Sequence[Any]],
        op_buffer_axis_separators: Separators = None,
        op_buffer_input_axis_separators: Separators = None,
    ) -> None:
        self.kernels = dict(op_impl_map)
        self.transforms = {
            name: [_index_map(t) for t in given] for name, given in op_buffer_transforms.items()
        }
        self.separators = dict(op_buffer_axis_separators or {})
        self.input_separators = dict(op_buffer_input_axis_separators or {})

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        work = _Altered(self, mod)
        new: dict[GlobalVar, Any] = {}
        for gvar, func in mod.items():
            new[gvar] = func
            if isinstance(func, Function):
                made = Rewriter(rule=work.call).function(func)
                if made is not func:
                    new[gvar] = Normalize().transform_function(made, mod, context)
        if not work.added:
            return mod
        return mod.replace({**work.builder.get().functions, **new})


def _index_map(given: Any) -> tir.IndexMap | None:
    if isinstance(given, tuple | list) and given and isinstance(given[0], tir.IndexMap):
        given = given[0]
    if given is None or isinstance(given, tir.IndexMap):
        return given
    if not callable(given):
        raise TypeError(f"a transform is an IndexMap, a function or None; got {given!r}")
    return tir.IndexMap.from_func(given)


class _Altered:
    """One run: the functions that it adds, and calls of them."""

    def __init__(self, given: AlterOpImpl, mod: IRModule) -> None:
        self.given, self.mod, self.builder = given, mod, BlockBuilder(mod)
        self.added: dict[str, GlobalVar] = {}
        self.inverses: dict[tir.IndexMap, tir.IndexMap] = {}
        # Moves that were made: what moves a value of that struct info, by the map.
        self.moves: dict[tuple[object, ...], Call] = {}

    def call(self, node: Expr) -> Expr | None:
        """What takes the place of ``node``; None where it stays."""
        if not isinstance(node, Call) or not is_op(node, "relax.call_tir"):
            return None
        old = self.mod.functions.get(node.args[0]) if isinstance(node.args[0], GlobalVar) else None
        name = old.attrs.get(OPERATOR_NAME) if isinstance(old, tir.PrimFunc) else None
        if not isinstance(name, str) or name not in self.given.kernels:
            return None
        kernel = self.given.kernels[name]
        assert isinstance(old, tir.PrimFunc)
        maps = self.given.transforms.get(name) or [None] * len(kernel.params)
        if len(old.params) != len(kernel.params) or len(maps) != len(kernel.params):
            raise TransformError(
                f"AlterOpImpl: the functions of {name!r} take {len(old.params)} parameters, the "
                f"one in their place {len(kernel.params)}, and there are {len(maps)} transforms; "
                "these must be as many"
            )
        key = f"{name}_replacement"
        if key not in self.added:
            func = kernel.with_attr(OPERATOR_NAME, name)
            self.added[key] = self.builder.add_func(func, key.replace(".", "_"))
        args = node.args[1].fields if isinstance(node.args[1], Tuple) else node.args[1:2]
        separators = self._separators(name, len(maps))
        operands = [self._moved(a, m, s) for a, m, s in zip(args, maps, separators, strict=False)]
        info = node.sinfo_args[0]
        fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
        infos = list(map(_tensor, fields))
        outputs = list(zip(infos, maps[-len(infos) :], separators[-len(infos) :], strict=True))
        wanted = [_new_info(i, m) for i, m, _ in outputs]
        several = isinstance(info, TupleStructInfo)
        made = call_tir(self.added[key], Tuple(operands), wanted if several else wanted[0])
        if not several:
            return self._back(made, *outputs[0])
        return Tuple([self._back(TupleGetItem(made, n), *o) for n, o in enumerate(outputs)])

    def _separators(self, name: str, count: int) -> list[tuple[Any, Any]]:
        found = [
            table.get(name) or [()] * count
            for table in (self.given.separators, self.given.input_separators)
        ]
        return list(zip(*found, strict=True))

    def _back(
        self,
        value: Expr,
        old: TensorStructInfo,
        moved: tir.IndexMap | None,
        separators: tuple[Any, Any],
    ) -> Expr:
        """``value`` in the layout that it had."""
        if moved is None:
            return value
        if moved not in self.inverses:
            self.inverses[moved] = moved.inverse()
        back = self._moved(value, self.inverses[moved], separators)
        if back.struct_info == old:
            return back
        return call_tir(self._remove_pad(old), Tuple([back]), old)

    def _moved(self, value: Expr, moved: tir.IndexMap | None, separators: tuple[Any, Any]) -> Expr:
        """``value`` in the layout that ``moved`` says; scalar constants have none."""
        if moved is None or (isinstance(value, Constant) and value.data.ndim == 0):
            return value
        out, inside = (tuple(s or ()) for s in separators)
        key = (value.struct_info, moved, out, inside)
        known = self.moves.get(key)
        if known is not None:
            return Call(known.op, [value], known.attrs, struct_info=known.struct_info)
        made = op.layout_transform(value, moved, axis_separators=out, input_axis_separators=inside)
        self.moves[key] = made
        return made

    def _remove_pad(self, info: TensorStructInfo) -> GlobalVar:
        """A kernel that gives the front of a tensor, for all tensors of that rank and dtype."""
        key = f"remove_pad {info.ndim} {info.dtype}"
        if key not in self.added:
            whole = [tir.Var(f"p{n}", "int64") for n in range(info.ndim)]
            part = [tir.Var(f"i{n}", "int64") for n in range(info.ndim)]
            padded = te.placeholder(whole, info.dtype, "input")
            output = te.compute(part, lambda *i: padded(*i), "output")
            func = te.create_prim_func([padded, output]).without_attr("global_symbol")
            func = func.with_attr(OPERATOR_NAME, "remove_pad")
            self.added[key] = self.builder.add_func(func, "remove_pad")
        return self.added[key]


def _tensor(info: StructInfo) -> TensorStructInfo:
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        raise TransformError(
            f"AlterOpImpl: a call_tir gives {show(info)}; its results must be tensors of known "
            "shapes"
        )
    return info


def _new_info(info: TensorStructInfo, moved: tir.IndexMap | None) -> TensorStructInfo:
    if moved is None or info.dims is None:
        return info
    return TensorStructInfo(moved.map_shape(info.dims), info.dtype, info.vdevice)

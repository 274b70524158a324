"""AlterOpImpl: other kernels in the place of those of a kind, with tensors in other layouts.

Source of the semantics: ``AlterOpImpl`` of TVM v0.20.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from relax2xla import op, te, tir
from relax2xla.builder import BlockBuilder
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.base import Span
from relax2xla.ir.normal import NameSupply
from relax2xla.ir.rewrite import Rewriter
from relax2xla.ir.struct_info import show
from relax2xla.op.intrinsic import call_tir, call_tir_op
from relax2xla.transform.core import Pass, PassContext, register

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
        new = {
            gvar: work.altered(func) if isinstance(func, Function) else func
            for gvar, func in mod.items()
        }
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


class _Kind(NamedTuple):
    """What calls of a kind of functions become."""

    kernel: GlobalVar
    maps: Sequence[tir.IndexMap | None]
    separators: Sequence[tuple[Any, Any]]


class _Ahead:
    """The new bindings of a block: where what a binding needs is bound ahead of it."""

    def __init__(self, block: BindingBlock, names: NameSupply) -> None:
        self.names, self.bindings = names, list[Binding]()
        self.kind = DataflowVar if isinstance(block, DataflowBlock) else Var
        self.prefix = "lv" if self.kind is DataflowVar else "gv"
        self.span: Span | None = None

    def bind(self, value: Expr) -> Var:
        """A new variable that holds ``value``."""
        var = self.kind(self.names.fresh(self.prefix), value.struct_info, self.span)
        self.bindings.append(VarBinding(var, value, self.span))
        return var

    def add(self, binding: Binding) -> None:
        """A binding with its own variable."""
        self.names.reserve(binding.var.name_hint)
        self.bindings.append(binding)


class _Altered(Rewriter):
    """One run: the functions that it adds, and calls of them."""

    def __init__(self, given: AlterOpImpl, mod: IRModule) -> None:
        super().__init__()
        self.given, self.mod, self.builder = given, mod, BlockBuilder(mod)
        self.names = NameSupply()
        self.added: dict[str, GlobalVar] = {}
        self.inverses: dict[tir.IndexMap, tir.IndexMap] = {}
        # Moves that were made: what moves a value of that struct info, by the map.
        self.moves: dict[tuple[object, ...], Call] = {}
        self.infos: dict[tuple[object, ...], TensorStructInfo] = {}
        # By function of the module what its calls become.
        self.kinds: dict[Expr, _Kind | None] = {}

    def altered(self, func: Function) -> Function:
        """A function of the module, in A-normal form as it was."""
        self.names = NameSupply()
        return self.function(func)

    def block(self, block: BindingBlock) -> BindingBlock:
        ahead = _Ahead(block, self.names)
        for old in block.bindings:
            b = self.binding(old)
            call = b.value
            if isinstance(b, VarBinding) and isinstance(call, Call) and call.op is call_tir_op:
                kind = self._kind(call.args[0])
                if kind is not None:
                    ahead.span = b.span
                    b = VarBinding(b.var, self._call(call, kind, ahead), b.span)
            ahead.add(b)
        if len(ahead.bindings) == len(block.bindings) and all(
            map(operator.is_, ahead.bindings, block.bindings)
        ):
            return block
        return type(block)(ahead.bindings, block.span)

    def _kind(self, callee: Expr) -> _Kind | None:
        """What calls of ``callee`` become; None where they stay."""
        if callee not in self.kinds:
            self.kinds[callee] = self._found(callee)
        return self.kinds[callee]

    def _found(self, callee: Expr) -> _Kind | None:
        old = self.mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
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
        return _Kind(self.added[key], maps, self._separators(name, len(maps)))

    def _call(self, call: Call, kind: _Kind, ahead: _Ahead) -> Expr:
        """What takes the place of ``call``, over what is bound ahead of it."""
        args = call.args[1].fields if isinstance(call.args[1], Tuple) else call.args[1:2]
        operands: list[Expr] = []
        for arg, moved, separators in zip(args, kind.maps, kind.separators, strict=False):
            made = self._moved(arg, moved, separators)
            operands.append(made if made is arg else ahead.bind(made))
        info = call.sinfo_args[0]
        fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
        infos, count = list(map(_tensor, fields)), len(fields)
        outputs = list(zip(infos, kind.maps[-count:], kind.separators[-count:], strict=True))
        wanted = [self._new_info(i, m) for i, m, _ in outputs]
        if not isinstance(info, TupleStructInfo):
            made = call_tir(kind.kernel, Tuple(operands), wanted[0])
            return self._back(made, *outputs[0], ahead)
        made = ahead.bind(call_tir(kind.kernel, Tuple(operands), wanted))
        # Each field is moved before the next one is read, as in TVM.
        return Tuple(
            [
                ahead.bind(self._back(TupleGetItem(made, n), *o, ahead))
                for n, o in enumerate(outputs)
            ]
        )

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
        ahead: _Ahead,
    ) -> Expr:
        """``value`` in the layout that it had."""
        if moved is None:
            return value
        if moved not in self.inverses:
            self.inverses[moved] = moved.inverse()
        back = self._moved(ahead.bind(value), self.inverses[moved], separators)
        if back.struct_info == old:
            return back
        return call_tir(self._remove_pad(old), Tuple([ahead.bind(back)]), old)

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

    def _new_info(self, info: TensorStructInfo, moved: tir.IndexMap | None) -> TensorStructInfo:
        if moved is None or info.dims is None:
            return info
        key = (info, moved)
        if key not in self.infos:
            dims = moved.map_shape(info.dims)
            self.infos[key] = TensorStructInfo(dims, info.dtype, info.vdevice)
        return self.infos[key]

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

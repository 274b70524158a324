"""Loop-level functions: parameters, buffers, a body of statements."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from relax2xla.tir.buffer import Buffer
from relax2xla.tir.node import Dim, Node, Var
from relax2xla.tir.stmt import Stmt


class PrimFunc(Node):
    """A ``tir.PrimFunc``: a function of handles and scalars that reads and writes buffers.

    ``params`` are the variables it takes; a ``Buffer`` among them stands for a handle of its own.
    ``buffer_map`` says which buffer a handle points to, ``ret_type`` is the dtype it returns (None
    for nothing), ``attrs`` what ``T.func_attr`` holds. Immutable; equality is by identity, as for
    every function (``structural_equal`` compares up to renaming).

    ``origin``: the Relax function of which the body was made, where there is one; copies with the
    same body keep it. It is no part of what is compared, printed or saved.
    """

    __slots__ = ("attrs", "body", "buffer_map", "origin", "params", "ret_type")
    params: tuple[Var, ...]
    body: Stmt
    ret_type: str | None
    buffer_map: Mapping[Var, Buffer]
    attrs: Mapping[str, object]
    origin: Any

    def __init__(
        self,
        params: Sequence[Var | Buffer],
        body: Stmt,
        ret_type: str | None = None,
        buffer_map: Mapping[Var, Buffer] | None = None,
        attrs: Mapping[str, object] | None = None,
        *,
        origin: Any = None,
    ) -> None:
        if not isinstance(body, Stmt):
            raise TypeError(
                f"tir.PrimFunc: the body is a statement (tir.Stmt); got {type(body).__name__}"
            )
        variables: list[Var] = []
        buffers = dict(buffer_map or {})
        for p in params:
            if isinstance(p, Buffer):
                handle = Var(f"{p.name}_handle", "handle")
                buffers[handle] = p
                variables.append(handle)
            else:
                variables.append(p)
        unknown = [v.name for v in buffers if not any(v is p for p in variables)]
        if unknown:
            raise ValueError(
                f"tir.PrimFunc: buffer_map names {', '.join(unknown)}, which is no parameter"
            )
        for name, value in (
            ("params", tuple(variables)),
            ("body", body),
            ("ret_type", getattr(ret_type, "dtype", ret_type)),
            ("buffer_map", MappingProxyType({p: buffers[p] for p in variables if p in buffers})),
            ("attrs", dict(attrs or {})),
            ("origin", origin),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"PrimFunc.{name} cannot be set: it is immutable, use with_attr")

    def with_body(self, body: Stmt) -> PrimFunc:
        """A copy with another body."""
        return PrimFunc(self.params, body, self.ret_type, self.buffer_map, self.attrs)

    def with_attr(self, key: str | Mapping[str, object], value: object = None) -> PrimFunc:
        """A copy with one attribute (or a mapping of them) set."""
        attrs = {**self.attrs, **({key: value} if isinstance(key, str) else key)}
        return self._with(attrs, self.origin)

    def without_attr(self, key: str) -> PrimFunc:
        """A copy without that attribute."""
        rest = {k: v for k, v in self.attrs.items() if k != key}
        return self._with(rest, self.origin)

    def with_origin(self, origin: Any) -> PrimFunc:
        """A copy of which it is known that the body was made of a Relax function."""
        return self._with(self.attrs, origin)

    def _with(self, attrs: Mapping[str, object], origin: Any) -> PrimFunc:
        return PrimFunc(
            self.params, self.body, self.ret_type, self.buffer_map, attrs, origin=origin
        )

    @property
    def __name__(self) -> str:
        """The name it is known by from outside; AttributeError where it has none."""
        if "global_symbol" not in self.attrs:
            raise AttributeError("a private PrimFunc has no __name__: it has no global_symbol")
        return str(self.attrs["global_symbol"])

    @property
    def struct_info(self) -> Any:
        """``ir.FuncStructInfo`` of the signature; pure where only own memory is written."""
        return importlib.import_module("relax2xla.ir.kernel_info").kernel_info(self)

    def show(self, *args: Any, **options: Any) -> None:
        """Print the text in colours, as ``IRModule.show`` does."""
        importlib.import_module("relax2xla.script.display").show(self, *args, **options)

    def specialize(self, param_map: Mapping[Var, Dim | Buffer]) -> PrimFunc:
        """The function with parameters bound: scalars to values, handles to buffers.

        ``ValueError`` for what is no parameter, and for a buffer that does not fit.
        """
        return importlib.import_module("relax2xla.tir.kernel.specialize").specialized(
            self, param_map
        )

    def __str__(self) -> str:
        return self.script()

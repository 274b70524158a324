"""Loop-level functions, held as they are: an IRModule can carry them, nothing here runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .node import Var


class PrimFunc:
    """A ``tir.PrimFunc``: parameters, attributes and the body as TVMScript text.

    ``params`` are the handles and scalars it takes, ``ret_type`` the dtype it returns (None for
    nothing), ``body`` the text of its statements, ``attrs`` what ``T.func_attr`` holds. Immutable;
    equality is by identity, as for every function (the module's structural comparison compares
    the fields).
    """

    __slots__ = ("attrs", "body", "params", "ret_type")
    params: tuple[Var, ...]
    body: str
    ret_type: str | None
    attrs: Mapping[str, object]

    def __init__(
        self,
        params: Sequence[Var],
        body: str,
        ret_type: str | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> None:
        for name, value in (
            ("params", tuple(params)),
            ("body", body),
            ("ret_type", ret_type),
            ("attrs", dict(attrs or {})),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"PrimFunc.{name} cannot be set: it is immutable, use with_attr")

    def with_attr(self, key: str, value: object) -> PrimFunc:
        """A copy with one attribute set."""
        return PrimFunc(self.params, self.body, self.ret_type, {**self.attrs, key: value})

    def without_attr(self, key: str) -> PrimFunc:
        """A copy without that attribute."""
        rest = {k: v for k, v in self.attrs.items() if k != key}
        return PrimFunc(self.params, self.body, self.ret_type, rest)

"""What the passes of this room share."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.analysis.variables import computable_at_compile_time
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import Call, Expr, Function, TensorStructInfo
from relax2xla.ir.op import call_attrs
from relax2xla.tir import Dim


def replaced(func: Function, rules: Sequence[Rule]) -> Function:
    """``func`` under ``rules`` as long as one applies, without what nothing reads any more."""
    new, modified = rewrite(func, rules, again=True)
    return remove_all_unused(new) if modified else func


class Weights:
    """Which values of a function depend on weights alone, so that they are computed once.

    Those are constants, the parameters behind the first ``num_input`` (an attribute of the
    function; without it all are inputs), and what is computed from these.
    """

    def __init__(self, func: Function) -> None:
        self._known = set(computable_at_compile_time(func))
        if (inputs := func.attrs.get("num_input")) is not None:
            self._known.update(func.params[int(inputs) :])

    def hold(self, m: Match, *values: Expr) -> bool:
        """Whether all ``values`` are such."""
        return all(v in self._known or m.from_constants(v) for v in values)


def tensor(value: Expr) -> TensorStructInfo | None:
    """The struct info of a tensor of known rank."""
    info = value.struct_info_
    return info if isinstance(info, TensorStructInfo) and info.ndim >= 0 else None


def shape(value: Expr) -> tuple[Dim, ...] | None:
    """The dimensions of a tensor, where they are known."""
    info = tensor(value)
    return None if info is None else info.dims


def permutation(call: Call) -> tuple[int, ...] | None:
    """The axes of a ``permute_dims``, counted from the front; None where the rank is unknown."""
    info = tensor(call.args[0])
    if info is None:
        return None
    axes = call_attrs(call)["axes"]
    if axes is None:
        return tuple(reversed(range(info.ndim)))
    return tuple(a % info.ndim for a in axes)


def one_dtype(*values: Expr) -> bool:
    """Whether all are tensors of the same dtype: a product of them accumulates in no other."""
    infos = [v.struct_info_ for v in values]
    return len({i.dtype if isinstance(i, TensorStructInfo) else None for i in infos}) == 1

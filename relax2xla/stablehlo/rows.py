"""Every row of table.py as a Relax operator: ``R.stablehlo.add(x, y)``, ``R.chlo.erf(x)``.

Importing this module registers them all; it imports no jaxlib. For use from Python code, a row is
an attribute: ``rows.stablehlo.add(x, y)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

from relax2xla.errors import OpError, TVMError
from relax2xla.ir.expr import Call, Expr
from relax2xla.ir.op import Op, register
from relax2xla.ir.op_param import ATTR, EXPR, Param
from relax2xla.ir.struct_info import FuncStructInfo, StructInfo, TupleStructInfo
from relax2xla.stablehlo.infer import RULES
from relax2xla.stablehlo.table import CUSTOM_CALL, TABLE, Row

DISCARDABLE: Final = "discardable"
_EMPTY = inspect.Parameter.empty


def _params(row: Row) -> list[Param]:
    """Parameters: operands, regions, attributes; groups are folded into one ``*operands``."""
    named = [n for n in row.operands if not n.startswith("*")]
    if len(named) == len(row.operands) and row.regions >= 0:
        regions = ["region"] if row.regions == 1 else [f"region{i}" for i in range(row.regions)]
        made = [Param(n, EXPR, _EMPTY, False) for n in (*named, *regions)]
    else:
        made = [Param("operands", EXPR, _EMPTY, True)]
    for name, codec in row.attrs.items():
        if codec != "elements":
            default = None if codec.startswith("?") else _EMPTY
            made.append(Param(name, ATTR, default, False, keyword=True))
    made.append(Param(DISCARDABLE, ATTR, None, False, keyword=True))
    return made


class RowOp(Op[...]):
    """The operator of one row.

    A call takes operands, then regions (local functions), then attributes by keyword;
    ``discardable`` is a dictionary of attributes of other dialects (``mhlo.sharding``, ...).
    """

    __slots__ = ("row",)
    row: Row

    def __init__(self, row: Row) -> None:
        params = _params(row)
        constant = row.attrs.get("value") == "elements"
        if constant:
            params.insert(0, Param("value", EXPR, _EMPTY, False))
        kinds = {
            False: inspect.Parameter.POSITIONAL_OR_KEYWORD,
            True: inspect.Parameter.KEYWORD_ONLY,
        }
        signature = inspect.Signature(
            [
                inspect.Parameter(
                    p.name,
                    inspect.Parameter.VAR_POSITIONAL if p.variadic else kinds[p.keyword],
                    default=p.default,
                )
                for p in params
            ]
        )
        doc = f"The MLIR operation ``{row.mlir_name}``; see the StableHLO specification."
        super().__init__(row.name, None, params, signature, doc, row.pure, traits=row.traits)
        self.row = row

    def __call__(  # type: ignore[override]
        self,
        *operands: Expr,
        sinfo_args: StructInfo | Sequence[StructInfo] = (),
        span: Any = None,
        **attrs: Any,
    ) -> Call:
        """Build a call and infer its struct info; OpError names what does not fit."""
        if "operands" not in {p.name for p in self.operands}:
            by_name = [p.name for p in self.operands[len(operands) :] if p.name in attrs]
            operands = (*operands, *(attrs.pop(n) for n in by_name))
            if len(operands) != len(self.operands):
                names = ", ".join(p.name for p in self.operands) or "none"
                raise OpError(f"{self.name} takes the operands {names}; got {len(operands)}")
        for i, operand in enumerate(operands):
            if not isinstance(operand, Expr):
                raise OpError(
                    f"{self.name}: operand {i} must be a Relax expression; got "
                    f"{type(operand).__name__}. Write numbers as R.const(value, dtype)."
                )
        attrs = {k: v for k, v in attrs.items() if v is not None}
        self._check(attrs)
        if isinstance(sinfo_args, StructInfo):
            sinfo_args = (sinfo_args,)
        return Call(self, operands, attrs, sinfo_args, span)

    def _check(self, attrs: dict[str, Any]) -> None:
        known = self.row.attrs
        for name in attrs:
            if name not in known and name != DISCARDABLE:
                names = ", ".join(known) or "none"
                raise OpError(f"{self.name} has no attribute {name!r}; it has: {names}")
        for name, codec in known.items():
            if name not in attrs and codec[0] != "?" and codec != "elements":
                raise OpError(f"{self.name}: the attribute `{name}` is missing")

    def is_pure_call(self, call: Call) -> bool:
        """A custom call says itself if it has effects; a region has those of what it holds."""
        if self.row.regions and any(
            isinstance(i, FuncStructInfo) and not i.purity
            for i in (a.struct_info_ for a in call.args)
        ):
            return False
        return self.pure or (
            self.row.mlir_name == CUSTOM_CALL and not call.attrs.get("has_side_effect", False)
        )

    def infer_call(self, call: Call) -> StructInfo:
        """Struct info of ``call``: what ``sinfo_args`` says, else by the row's rule."""
        given = call.sinfo_args
        if given:
            return given[0] if len(given) == 1 else TupleStructInfo(given)
        if self.row.infer is None:
            raise OpError(
                f"{self.name}: the result cannot be inferred; "
                'give it, as in sinfo_args=(R.Tensor((2, 3), dtype="float32"),)'
            )
        try:
            self._check(dict(call.attrs))
            return RULES[self.row.infer]([a.struct_info for a in call.args], call.attrs)
        except TVMError as e:
            e.add_note(f"  in {self.describe(call)}")
            raise
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as e:
            error = OpError(f"{self.name}: the attributes do not fit the operands ({e!r})")
            error.add_note(f"  in {self.describe(call)}")
            raise error from e

    def _operand_names(self, count: int) -> list[str]:
        names = [p.name for p in self.operands]
        return names + names[-1:] * (count - len(names)) if names else ["operand"] * count


class Namespace:
    """The rows of one dialect as attributes."""

    def __init__(self, dialect: str) -> None:
        prefix = f"relax.{dialect}."
        self._ops = {n.removeprefix(prefix): o for n, o in OPS.items() if n.startswith(prefix)}

    def __getattr__(self, name: str) -> RowOp:
        try:
            return self._ops[name]
        except KeyError:
            raise AttributeError(
                f"there is no row {name!r}; see relax2xla.stablehlo.table"
            ) from None

    def __dir__(self) -> list[str]:
        return sorted(self._ops)


OPS: Final[dict[str, RowOp]] = {name: RowOp(row) for name, row in TABLE.items()}
BY_MLIR_OP: Final[dict[str, RowOp]] = {made.row.mlir_name: made for made in OPS.values()}
for _op in OPS.values():
    register(_op)
stablehlo: Final = Namespace("stablehlo")
chlo: Final = Namespace("chlo")
sdy: Final = Namespace("sdy")
interpreter: Final = Namespace("interpreter")

"""Families share a unit; each member has its own defaults and its number of axes."""

from __future__ import annotations

import pytest

from relax2xla import op
from relax2xla.errors import OpError
from relax2xla.ir import Op, TensorStructInfo, Var
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Rule
from relax2xla.op.shared.families import member
from relax2xla.op.shared.spatial import Ints


def _unit(which: str, data: Expr, size: Ints = 1) -> Rule:
    return data.struct_info, lambda: data


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_attributes_are_spread_over_the_axes_of_the_member(ndim: int) -> None:
    x = Var("x", TensorStructInfo((1, 2, *(8,) * ndim), "float32"))
    call = getattr(op.nn, f"max_pool{ndim}d")(x, 2, strides=2)
    assert call.attrs["pool_size"] == call.attrs["strides"] == (2,) * ndim
    assert call.attrs["padding"] == (0,) * (2 * ndim)
    assert call.attrs["layout"] == call.attrs["out_layout"] == "NC" + "DHW"[3 - ndim :]
    with pytest.raises(OpError, match="parameter `pool_size`"):
        getattr(op.nn, f"max_pool{ndim}d")(x, (2,) * (ndim + 1))


def test_a_member_shows_the_signature_without_what_it_is() -> None:
    shown = str(op.nn.conv3d.signature)
    assert shown.startswith("(data: ")
    assert "ndim" not in shown
    assert shown.endswith("-> 'StructInfo'")


def test_a_default_of_no_parameter_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"relax\.test\.none has no parameter strides"):
        member("relax.test.none", _unit, "a", 2, traits=[], doc="", defaults={"strides": 1})
    assert "relax.test.none" not in Op.registry

"""Packages of operators show what their modules define."""

from __future__ import annotations

import relax2xla.op
from relax2xla.ir import Op
from relax2xla.op.shared.exports import exports


def test_a_function_around_an_operator_has_its_name() -> None:
    assert isinstance(relax2xla.op.call_tir_op, Op)
    assert not isinstance(relax2xla.op.call_tir, Op)
    assert relax2xla.op.nn.attention_op.name == "relax.nn.attention"


def test_each_name_is_of_one_module() -> None:
    for package in ("relax2xla.op", "relax2xla.op.nn", "relax2xla.op.image", "relax2xla.op.vision"):
        names = [e.name for e in exports(package)]
        assert len(names) == len(set(names))


def test_helpers_of_modules_stay_there() -> None:
    for name in ("broadcasted", "wide_index", "cast", "hlo", "attention_op"):
        assert not hasattr(relax2xla.op, name)

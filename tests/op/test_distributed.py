"""Annotations of meshes: one device, several, text."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import op
from relax2xla.errors import LegalizeError, OpError, TVMError
from relax2xla.ir import DeviceMesh, IRModule, Placement
from relax2xla.op.distributed import sharding_text
from relax2xla.script import parse
from relax2xla.testing import evaluate
from relax2xla.vm import build
from tests.op.harness import Case, check, tensor, var_like

ONE = DeviceMesh((1,), [0])
GRID = DeviceMesh((2, 2), range(4))


def test_values_stay():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    check(
        [
            Case("one", lambda a: op.distributed.annotate_sharding(a, ONE, "S[0]"), [x], x),
            Case("four", lambda a: op.distributed.annotate_sharding(a, GRID, "S[0], R"), [x], x),
            Case("again", lambda a: op.distributed.redistribute(a, GRID, "R, R"), [x], x),
            Case(
                "part",
                lambda a: op.distributed.redistribute_replica_to_shard(a, 1, 0),
                [x],
                x,
            ),
        ]
    )


def test_sharding_of_xla():
    info = tensor((4, 6)).struct_info
    texts = {
        "R, R": "{replicated}",
        "S[0], S[1]": "{devices=[2,2]0,1,2,3}",
        "S[1], S[0]": "{devices=[2,2]0,2,1,3}",
        "S[0], R": "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}",
        "R, S[0]": "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}",
    }
    for placement, text in texts.items():
        assert sharding_text(info, GRID, placement) == text


def test_text():
    text = """# from relax2xla.script import relax as R

@R.function
def main(x: R.Tensor((4, 5), dtype="float32")) -> R.Tensor((4, 5), dtype="float32"):
    gv: R.Tensor((4, 5), dtype="float32") = R.dist.annotate_sharding(MESH)
    return gv"""
    mesh = 'x, device_mesh=R.device_mesh((2, 2), [0, 1, 2, 3]), placement="S[0], R"'
    text = text.replace("MESH", mesh)
    made = parse(text)
    assert made.script() == text
    # A range stays one, as in TVM.
    tvm = text.replace("[0, 1, 2, 3]", "R.Range(0, 4)")
    assert parse(tvm).script() == tvm


def test_errors():
    x = tensor((4, 5))
    for call, message in (
        (lambda: op.distributed.annotate_sharding(x, GRID, "S[0]"), "each of the 2 axes"),
        (lambda: op.distributed.annotate_sharding(x, GRID, "S[0], S[2]"), "cuts axis 2"),
        (lambda: op.distributed.annotate_sharding(x, GRID, "S[0], S[0]"), "twice"),
        (lambda: op.distributed.annotate_sharding(x, 3, "R"), "DeviceMesh"),
        (lambda: op.distributed.redistribute_replica_to_shard(x, 2, 1), "no multiple"),
    ):
        with pytest.raises(OpError, match=message):
            call()
    with pytest.raises(TVMError, match="written like"):
        Placement.from_text("X")
    with pytest.raises(TVMError, match="4 devices"):
        DeviceMesh((2, 2), range(3))
    y = var_like(np.zeros((4, 2), np.float32))
    with pytest.raises(LegalizeError, match="a program of several devices"):
        evaluate(op.distributed.redistribute_replica_to_shard(y, 2, 0), {y: np.zeros((4, 2), "f4")})


def test_call_tir_local_view():
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def half(a: T.handle, b: T.handle):
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4, 2), "float32")) -> R.Tensor((2, 2), "float32"):
        y = R.dist.call_tir_local_view(Module.half, (x,), out_sinfo=R.Tensor((2, 2), "float32"))
        return y
"""
    mod = parse(text)
    assert isinstance(mod, IRModule)
    again = parse(mod.script())
    assert again.script() == mod.script()
    assert "R.dist.call_tir_local_view(cls.half, (x,), out_sinfo=R.Tensor((2, 2)" in mod.script()
    with pytest.raises(TVMError, match="call_tir_local_view"):
        build(mod, "cpu")

"""LegalizeRedistribute and ForEachWorker: programs, and what cannot be said of parts."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import Constant, IRModule, TensorStructInfo, Tuple
from relax2xla.analysis import check_well_formed
from relax2xla.errors import TransformError
from relax2xla.ir import DeviceMesh, DTensorStructInfo, assert_structural_equal
from relax2xla.script import from_source
from relax2xla.transform import ForEachWorker, LegalizeRedistribute
from tests.vm.pjrt.test_mesh import finished, started


def module(params: str, body: str, mesh: str = "R.device_mesh((2,), I.Range(0, 2))") -> IRModule:
    made = from_source(f"""
@I.ir_module
class Module:
    I.module_global_infos({{"mesh": [{mesh}, R.device_mesh((2,), I.Range(2, 4))]}})
    @R.function
    def main({params}):
        {body.strip()}
""")
    assert isinstance(made, IRModule)
    return made


COPIES = 'x: R.DTensor((4, 6), "float32", "mesh[0]", "R")'
ROWS = 'x: R.DTensor((4, 6), "float32", "mesh[0]", "S[0]")'


@pytest.mark.parametrize(
    ("params", "move", "instead"),
    [
        (COPIES, '"mesh[0]", "S[1]"', "R.dist.redistribute_replica_to_shard(x, 2, 1)"),
        (ROWS, '"mesh[0]", "S[0]"', "x"),
        (COPIES, '"mesh[0]", "R"', "x"),
    ],
)
def test_moves(params: str, move: str, instead: str) -> None:
    tail = "\n        z = R.exp(y)\n        return z"
    before = module(params, f"y = R.dist.redistribute(x, {move}){tail}")
    after = LegalizeRedistribute()(before)
    assert_structural_equal(after, module(params, f"y = {instead}{tail}"))
    assert LegalizeRedistribute()(after) is after


@pytest.mark.parametrize(
    ("params", "move"),
    [
        (ROWS, '"mesh[0]", "R"'),
        (ROWS, '"mesh[0]", "S[1]"'),
        (COPIES, '"mesh[1]", "S[0]"'),
        ('x: R.Tensor((4, 6), "float32")', '"mesh[0]", "S[0]"'),
    ],
)
def test_moves_that_need_others(params: str, move: str) -> None:
    mod = module(params, f"y = R.dist.redistribute(x, {move})\n        return y")
    with pytest.raises(TransformError, match=r"redistribute.*(build\(mod, mesh|PropagateSharding)"):
        LegalizeRedistribute()(mod)


def test_parts() -> None:
    before = module(
        f'{COPIES}, t: R.Tuple(R.DTensor((6, 8), "float32", "mesh[0]", "S[1]"), '
        'R.DTensor(("n", 8), "float32", "mesh[0]", "S[0]"))',
        """
        one = R.dist.const(1.0, R.DTensor((), "float32", "mesh[0]", "R"))
        y = R.add(x, one)
        with R.dataflow():
            w = t[0]
            z = R.matmul(y, w)
            s = R.reshape(z, R.shape([4, 2, 4]))
            R.output(s)
        return (s, t[1])
        """,
    )
    after = ForEachWorker()(before)
    check_well_formed(after)
    expected = from_source("""
@I.ir_module
class Module:
    I.module_global_infos({"mesh": [
        R.device_mesh((2,), I.Range(0, 2)), R.device_mesh((2,), I.Range(2, 4))]})
    @R.function
    def main(
        x: R.Tensor((4, 6), "float32"),
        t: R.Tuple(R.Tensor((6, 8), "float32"), R.Tensor(("n", 8), "float32")),
    ):
        x0 = R.ccl.broadcast_from_worker0(x)
        t0 = t[0]
        w = R.ccl.scatter_from_worker0(t0, num_workers=2, axis=1)
        t1 = t[1]
        v = R.ccl.scatter_from_worker0(t1, num_workers=2, axis=0)
        one = R.const(1.0, "float32")
        y = R.add(x0, one)
        with R.dataflow():
            z = R.matmul(y, w)
            s = R.reshape(z, R.shape([4, 1, 4]))
            R.output(s)
        return (s, v)
""")
    assert_structural_equal(after, expected)
    assert ForEachWorker()(after) is after


BOTH = f'{ROWS}, w: R.DTensor((6, 4), "float32", "mesh[0]", "S[0]")'


@pytest.mark.parametrize(
    ("params", "body", "why"),
    [
        (ROWS, "y = R.sum(x, axis=[0])\n        return y", "needs more of an operand"),
        (COPIES + ROWS.replace("x", ", w"), "y = R.add(x, w)\n        return y", "needs more"),
        (BOTH, "y = R.matmul(x, w)\n        return y", "needs more of an operand"),
        (ROWS.replace("4, 6", "5, 6"), "y = R.exp(x)\n        return y", "no 2 equal parts"),
        (ROWS, 'y = R.dist.redistribute(x, "mesh[0]", "R")\n        return y', "LegalizeRedis"),
    ],
)
def test_what_parts_do_not_tell(params: str, body: str, why: str) -> None:
    with pytest.raises(TransformError, match=why) as error:
        ForEachWorker()(module(params, body))
    assert "main" in str(error.value.__notes__)


def test_constants_are_copies() -> None:
    mod = module(ROWS, "return R.exp(x)")
    spread = DTensorStructInfo(TensorStructInfo((2,), "float32"), DeviceMesh((2,), [0, 1]), "S[0]")
    whole = Constant(np.ones(2, "float32"), spread)
    (param,) = mod["main"].params
    mod["main"] = mod["main"].replace(body=Tuple([param, whole]))
    with pytest.raises(TransformError, match=r"a constant is cut as .S\[0\]"):
        ForEachWorker()(mod)


def test_meshes_of_two_axes() -> None:
    mod = module(
        'x: R.DTensor((4, 6), "float32", "mesh[0]", "S[0], R")',
        "return R.exp(x)",
        "R.device_mesh((2, 1), I.Range(0, 2))",
    )
    with pytest.raises(TransformError, match="a mesh of one axis"):
        ForEachWorker()(mod)


def test_values_on_two_devices() -> None:
    finished(started("spread_programs", 2))

"""Distributed tensors: the struct info, its lattice, saving, and programs of one device.

What operators make of them is compared with TVM in tests/parity (programs ``distributed``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relax2xla as relax
from relax2xla import analysis, tir
from relax2xla.errors import DiagnosticError, FileFormatError, TransformError, TVMError
from relax2xla.ir import (
    DeviceMesh,
    DTensorStructInfo,
    Placement,
    PlacementSpec,
    load_json,
    save_json,
)
from relax2xla.ir.lattice import struct_info_lca
from relax2xla.script import from_source
from relax2xla.script import relax as R
from relax2xla.script.annotations import as_struct_info
from relax2xla.transform import LowerDistIR

N = tir.Var("n")
T = relax.TensorStructInfo
LIST, RANGE = DeviceMesh((2,), [0, 1]), DeviceMesh((2,), range(2))


def spread(
    info: T, placement: str | Placement = "S[0]", mesh: DeviceMesh = LIST
) -> DTensorStructInfo:
    return DTensorStructInfo(info, mesh, placement)


def program(mesh: str) -> str:
    return f"""
@I.ir_module
class Module:
    I.module_global_infos({{"mesh": [{mesh}], "vdevice": [I.vdevice("cpu")]}})
    @R.function
    def main(
        x: R.DTensor(("n", 4), "float32", "mesh[0]", "S[0]"),
        w: R.DTensor((4, 3), "float32", "mesh[0]", "R"),
    ):
        cls = Module
        y = R.dist.redistribute(x, "mesh[0]", "R")
        z = R.matmul(y, w)
        one = R.dist.const(1.0, R.DTensor((), "float32", "mesh[0]", "R"))
        out = cls.double(R.add(z, one))
        s = R.call_pure_packed("f", y, sinfo_args=R.DTensor((1,), "float32", "mesh[0]", "R"))
        return (out, s)

    @R.function(private=True)
    def double(x: R.DTensor(("k", 3), "float32", "mesh[0]", "R")):
        return R.dist.annotate_sharding(R.multiply(x, x), "mesh[0]", "S[0]")
"""


def test_equality_and_hash() -> None:
    a = spread(T((4, N)))
    assert a == spread(T((4, N)))
    assert hash(a) == hash(spread(T((4, N))))
    others = (
        spread(T((4, 5))), spread(T((4, N), "int8")), spread(T((4, N)), "R"),
        spread(T((4, N)), mesh=DeviceMesh((2,), [0, 2])), spread(T((4, N)), mesh=RANGE), T((4, N)),
    )  # fmt: skip
    for other in others:
        assert a != other
        assert not relax.ir.structural_equal(a, other)
        assert relax.ir.structural_hash(a) != relax.ir.structural_hash(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeviceMesh((2, 2), [0, 1]),
        lambda: DeviceMesh((2, -1), [0, 1]),
        lambda: DeviceMesh((2,), range(10**18)),
        lambda: Placement.from_text("S[0], X"),
        lambda: spread(T((4,)), "S[1]"),
        lambda: spread(T((4,)), "S[0], R"),
        lambda: PlacementSpec.sharding(-1),
        lambda: Placement([-2]),
    ],
)
def test_contradictions(make: Callable[[], Any]) -> None:
    with pytest.raises(TVMError, match=r"mesh|placement"):
        make()


def test_placement_by_specs() -> None:
    specs = [PlacementSpec.sharding(1), PlacementSpec.replica()]
    made = Placement(specs)
    assert made == Placement.from_text("S[1], R") == Placement([1, None])
    assert list(made.dim_specs) == specs
    assert [(s.axis, s.kind.name) for s in specs] == [(1, "kSharding"), (-1, "kReplica")]
    grid = DeviceMesh((2, 2), range(4))
    info = spread(T((4, 8)), made, grid)
    assert load_json(save_json(info)) == info == spread(T((4, 8)), "S[1], R", grid)


def test_the_range_of_a_mesh_is_one_of_tir() -> None:
    given = DeviceMesh((2, 2), range(4, 8)).device_range
    same, other = tir.Range(4, 8), tir.Range(4, 9)
    relax.ir.assert_structural_equal(given, same)
    assert relax.ir.structural_hash(given) == relax.ir.structural_hash(same)
    assert not relax.ir.structural_equal(given, other)
    assert relax.ir.structural_hash(given) != relax.ir.structural_hash(other)


def test_void_is_no_dtype() -> None:
    info = spread(T((4,), "void"))
    assert info == spread(T((4,), ""))
    assert info.script() == (
        'R.DTensor((4,), device_mesh=R.device_mesh((2,), [0, 1]), placement="S[0]")'
    )


def test_lattice() -> None:
    known, ranked = spread(T((4, N))), spread(T(None, ndim=2))
    assert ranked.is_base_of(known)
    assert not known.is_base_of(ranked)
    assert relax.ObjectStructInfo().is_base_of(known)
    for other in (spread(T((4, N)), "R"), spread(T((4, N)), mesh=RANGE), T((4, N))):
        assert not known.is_base_of(other)
        assert not other.is_base_of(known)
        assert struct_info_lca(known, other) == relax.ObjectStructInfo()
    assert struct_info_lca(known, spread(T((4, 5)))) == ranked
    assert struct_info_lca(known, spread(T((4,)))) == relax.ObjectStructInfo()
    assert struct_info_lca(spread(T((4,)), "R"), spread(T(()), "R")) == spread(T(None), "R")


def test_analysis() -> None:
    info = spread(T((4, N)))
    assert analysis.erase_to_well_defined(info) == spread(T(None, ndim=2))
    assert analysis.erase_to_well_defined(info, {N: 7}) == spread(T((4, 7)))
    assert analysis.tir_vars_in_struct_info(info) == [N]
    assert analysis.collect_non_negative_expressions(info) == [N]
    assert analysis.get_static_type(info) == relax.ObjectType()


def test_saved_and_copied() -> None:
    mod = from_source(program("R.device_mesh((1,), I.Range(4, 5)), R.device_mesh((1,), [4])"))
    for made in (load_json(save_json(mod)), copy.deepcopy(mod), from_source(mod.script())):
        relax.ir.assert_structural_equal(mod, made)
        given, listed = (m.device_range for m in made.global_infos["mesh"])
        relax.ir.assert_structural_equal(given, tir.Range(4, 5))
        assert listed is None
    text = save_json(RANGE).replace("[0, 1]", "[0, 2]").replace("0,1", "0,2")
    with pytest.raises(FileFormatError, match="range"):
        load_json(text)


def test_one_device_is_its_tensor() -> None:
    relax.register_func("f", lambda y: np.asarray(y).sum()[None], override=True)
    mod = from_source(program("R.device_mesh((1,), [0])"))
    before = mod.script()
    lowered = LowerDistIR()(mod)
    text = lowered.script()
    assert "DTensor" not in text
    assert "mesh" not in text
    assert "vdevice" in text
    analysis.check_well_formed(lowered)
    assert (mod.script(), LowerDistIR()(lowered)) == (before, lowered)
    machine = relax.VirtualMachine(relax.build(mod), relax.cpu())
    x, w = np.arange(8, dtype="float32").reshape(2, 4), np.ones((4, 3), "float32")
    out, total = machine["main"](x, w)
    np.testing.assert_array_equal(out, (x @ w + 1) ** 2)
    np.testing.assert_array_equal(total, [28.0])
    func = from_source(
        '@R.function\ndef main(x: R.DTensor((2, 2), "float32", R.device_mesh((1,), [0]), "R")):\n'
        "    return R.matmul(x, x)\n"
    )
    assert "stablehlo.dot_general" in relax.to_stablehlo(relax.IRModule.from_expr(func))


def test_more_devices_are_refused() -> None:
    mod = from_source(program("R.device_mesh((2,), [0, 1])"))
    with pytest.raises(TransformError, match=r"2 devices.*mesh=2"):
        relax.build(mod)


def test_mistakes_in_text() -> None:
    head = "@R.function\ndef main(x: {}):\n    return x\n"
    for annotation, message in (
        ('R.DTensor((2,), "float32", "mesh[0]", "R")', "no mesh 'mesh\\[0\\]'"),
        ('R.DTensor((2,), "float32", 3, "R")', "the mesh must be"),
        ("R.DTensor", "needs arguments"),
    ):
        with pytest.raises(DiagnosticError, match=message):
            from_source(head.format(annotation))
    with pytest.raises(ValueError, match="no module"):
        as_struct_info(R.DTensor((2,), "float32", "mesh[0]", "R"))


@pytest.mark.parametrize("axis", ["a", 1.5])
def test_an_axis_that_is_no_number_is_told_of_the_placement(axis: Any) -> None:
    with pytest.raises(TVMError, match="the axes of a placement are integers; got"):
        PlacementSpec.sharding(axis)
    with pytest.raises(TVMError, match="the axes of a placement are integers; got"):
        Placement([axis])

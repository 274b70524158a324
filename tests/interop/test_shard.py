"""Weights over several devices by rules, and training over them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relax2xla as rx
from relax2xla.errors import CallError, DeviceError
from relax2xla.interop.jax import shard
from tests.quick_options import quick_environment

PARAMS = {"layers": {"0": {"weight": np.ones((4, 3)), "bias": np.ones(4)}}, "n": np.int64(3)}


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model"))


def test_the_first_rule_that_fits_counts() -> None:
    made = shard(PARAMS, {"*.weight": P("model"), "layers.*": None}, mesh())
    layer = made["layers"]["0"]
    assert layer["weight"].sharding.spec == P("model")
    assert layer["bias"].sharding.spec == made["n"].sharding.spec == P()
    assert layer["weight"].dtype == np.float64
    assert made["n"].dtype == np.int64


def test_all_that_does_not_fit_is_said_at_once() -> None:
    rules = {"*.bias": P(None, "data"), "*.weight": P("rows"), "head.*": None}
    with pytest.raises(CallError) as e:
        shard(PARAMS, rules, mesh())
    said = str(e.value)
    assert "layers.0.bias (4,), by the rule '*.bias': " in said
    assert "is for 2 axes" in said
    assert "the mesh has no axis 'rows'; it has data, model" in said
    assert "the rule 'head.*' fits no weight; there are layers.0.bias" in said


class Layer(NamedTuple):
    weight: Any
    rate: Any = 0.5


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (("model", None), "gives a PartitionSpec, or None; got tuple"),
        (NamedSharding(mesh(), P()), "got NamedSharding"),
        ("model", "got str"),
        (P("model", "model"), "names model twice"),
        (P(("data", "model"), "data"), "names data twice"),
    ],
)
def test_rules_of_another_kind_are_said(rule: Any, said: str) -> None:
    with pytest.raises(CallError) as e:
        shard(Layer(np.ones((4, 3)), 0.5), {"weight": rule}, mesh())
    assert "weight (4, 3), by the rule 'weight': " in str(e.value)
    assert said in str(e.value)
    assert "rate is no array, but float" in str(e.value)


def test_what_is_no_mesh_is_refused() -> None:
    for wrong in (None, 8, mesh().abstract_mesh):
        with pytest.raises(CallError, match=r"the mesh is a jax\.sharding\.Mesh"):
            shard(PARAMS, {}, wrong)
    for count in (0, -1):
        with pytest.raises(DeviceError, match="one at least; got"):
            rx.build(rx.IRModule(), mesh=count)


def test_axes_that_are_explicit_are_refused() -> None:
    made = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with pytest.raises(CallError, match="axes of the mesh are explicit"):
        shard(PARAMS, {}, made)


def test_training_over_eight_devices_is_that_of_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.parallel_training"],
        env=quick_environment(8),
        cwd=Path(rx.__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr

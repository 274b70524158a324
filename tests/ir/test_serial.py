"""save_json, pickle and deepcopy: inverses on random modules, exact arrays, hostile texts."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relax2xla
from relax2xla import ir, op, tir
from relax2xla.errors import FileFormatError
from relax2xla.ir import assert_structural_equal, load_json, save_json
from relax2xla.ir.mesh import DeviceMesh, Placement
from relax2xla.script import relax as R
from tests.ir.chains import chain
from tests.script.test_roundtrip import modules

WAYS: dict[str, Callable[[Any], Any]] = {
    "json": lambda x: load_json(save_json(x)),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60, deadline=None)
@given(mod=modules())
def test_random_modules(way: str, mod: ir.IRModule) -> None:
    new = WAYS[way](mod)
    assert_structural_equal(new, mod)
    assert new.script(show_meta=True) == mod.script(show_meta=True)
    old_vars = {id(v) for f in mod.values() for v in relax2xla.analysis.all_vars(f)}
    assert not any(id(v) in old_vars for f in new.values() for v in relax2xla.analysis.all_vars(f))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "uint8", "int64", "float8_e4m3fn", "bfloat16", "float64", "complex64"]
)
def test_arrays_bit_for_bit(way: str, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if dtype in ("bool", "int4"):
        data = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind)
    else:  # NaN payloads and signed zeros among them
        raw = np.random.default_rng(0).integers(0, 256, 6 * kind.itemsize, np.uint8)
        data = raw.view(kind).reshape(2, 3)
    new = WAYS[way](ir.Constant(data))
    assert new.data.dtype == data.dtype
    assert new.data.tobytes() == data.tobytes()
    assert new.struct_info == ir.Constant(data).struct_info


@pytest.mark.parametrize("way", WAYS)
def test_other_arrays(way: str) -> None:
    splat = np.broadcast_to(np.float32(2), (1 << 20, 1 << 20))
    new = WAYS[way](ir.Constant(splat))
    assert new.data.shape == splat.shape
    assert new.data.strides == (0, 0)
    assert WAYS[way](ir.const(3.0)).data.shape == ()
    assert WAYS[way](ir.Constant(np.zeros((0, 4)))).data.shape == (0, 4)
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert (WAYS[way](ir.Constant(fortran)).data == fortran).all()
    big = np.arange(3).astype(">i4")
    assert_structural_equal(WAYS[way](ir.Constant(big)), ir.Constant(big))


@pytest.mark.parametrize("way", WAYS)
def test_values_of_attributes(way: str) -> None:
    n = tir.Var("n")
    attrs = {
        "none": None,
        "big": 1 << 80,
        "nan": float("nan"),
        "inf": -float("inf"),
        "zero": -0.0,
        "text": "é\ud800\n",
        "nested": {"t": ((1, "a"), ()), "d": {}},
        "scalar": np.float32(1.5),
        "complex": complex(1, -0.0),
        "bytes": b"\x00\xff",
        "sym": n * 2 + tir.max(n, 3),
        "info": R.Tensor((n, 4), "int8"),
        "array": np.arange(3, dtype="int16"),
        "device": ir.VDevice("cuda", 1),
        "mesh": DeviceMesh((2, 2), range(4)),
        "placement": Placement((0, None)),
    }
    x = ir.Var("x", R.Tensor((n, 4), "float32"))
    func = ir.Function([x], x, attrs=attrs)
    new = WAYS[way](func)
    assert_structural_equal(new, func)
    assert new.attrs.sym.a.a is new.params[0].struct_info.dims[0]
    assert str(new.attrs.zero) == "-0.0"
    assert new.attrs.bytes == b"\x00\xff"


@pytest.mark.parametrize("way", WAYS)
def test_sharing_spans_and_modules(way: str) -> None:
    n = tir.SizeVar("n")
    x = ir.Var("x", R.Tensor((n,), "float32"), ir.Span("x", "f.py", 3))
    y = op.exp(x)
    func = ir.Function([x], op.add(y, y), attrs={"global_symbol": "f"}).replace(span=ir.Span("s"))
    prim = tir.PrimFunc(
        [tir.Var("A", "handle")], tir.Text("T.evaluate(0)\n", "test"), None, None, {"k": 1}
    )
    mod = ir.IRModule(
        {"f": func, "p": prim, "ext": ir.ExternFunc("vm.f")},
        {"a": 1},
        {"vdevice": [ir.VDevice("cpu")]},
    )
    new = WAYS[way](mod)
    assert_structural_equal(new, mod)
    body = new["f"].body.body
    assert body.args[0] is body.args[1]
    assert body.args[0].args[0] is new["f"].params[0]
    assert new["f"].params[0].span == x.span
    assert new["f"].span == ir.Span("s")
    assert type(new["f"].params[0].struct_info.dims[0]) is tir.SizeVar
    assert new.get_global_var("f").struct_info == new["f"].struct_info
    assert new.global_infos == mod.global_infos


def test_deepcopy_keeps_what_it_has_copied() -> None:
    x = ir.Var("x", R.Tensor((2,), "float32"))
    func = ir.Function([x], op.exp(x))
    new, params = copy.deepcopy((func, [x]))
    assert params[0] is new.params[0]
    assert copy.deepcopy(op.exp(x).op) is op.exp(x).op


def test_shallow_copies() -> None:
    x = ir.Var("x", R.Tensor((2,), "float32"))
    func = ir.Function([x], op.exp(x))
    new = copy.copy(func)
    assert new is not func
    assert new.body is func.body
    mod = ir.IRModule({"f": func})
    other = copy.copy(mod)
    other["g"] = func
    assert "g" not in mod
    assert copy.copy(x.struct_info) == x.struct_info
    assert copy.copy(x).vid is x.vid
    assert copy.copy(op.exp(x).op) is op.exp(x).op


def test_a_long_chain() -> None:
    mod = chain(ir.const(1.0))
    assert_structural_equal(load_json(save_json(mod)), mod)


def test_what_cannot_be_saved() -> None:
    func = ir.Function([], ir.Tuple(()), attrs={"k": object()})
    with pytest.raises(TypeError, match="class object"):
        save_json(func)


def _document() -> dict[str, Any]:
    x = ir.Var("x", R.Tensor((2,), "float32"))
    func = ir.Function([x], op.add(x, ir.const(np.ones(2, "float32"))))
    return json.loads(save_json(ir.IRModule({"main": func})))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        "{}",
        '{"root": 1, "nodes": []}',
        "[" * 200_000,
        '{"format":"relax2xla.ir","version":2,"root":0,"nodes":[],"blobs":[]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":[],"blobs":[]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":[[]],"blobs":[]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":[["tuple",[0]]],"blobs":[]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":[["Op","os.system"]],"blobs":[]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":[["Eval","1"]],"blobs":[]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":3,"blobs":[]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":[["Id",7]],"blobs":[]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":[["array","float32",0,1,'
        '4611686018427387904,4611686018427387904]],"blobs":["AAAA"]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":[["array","object",0,0]],'
        '"blobs":["AAAA"]}',
        '{"format":"relax2xla.ir","version":1,"root":0,"nodes":[["array","int8",0,0]],'
        '"blobs":["!"]}',
    ],
)
def test_hostile_texts(text: str) -> None:
    with pytest.raises(FileFormatError, match="cannot load this IR"):
        load_json(text)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_documents(data: st.DataObject) -> None:
    """Whatever field is replaced: a module comes back, or the one error."""
    document = _document()
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=3),
        st.floats(allow_nan=False, allow_infinity=False),
        st.lists(st.integers(-2, 40), max_size=2), st.just({}),
    )  # fmt: skip
    for _ in range(data.draw(st.integers(1, 3))):
        node = data.draw(st.sampled_from(document["nodes"]))
        node[data.draw(st.integers(0, len(node) - 1))] = data.draw(junk)
    with contextlib.suppress(FileFormatError):
        load_json(json.dumps(document))

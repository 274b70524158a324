"""The names of TVM's documentation, and the thin ones that belong to no other room."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

import relax2xla
from relax2xla.errors import DiagnosticError, TVMError
from relax2xla.script import from_source
from relax2xla.target import Target
from tests.parity import api, corpus

ENTRIES = list(api.entries())
# Of each wrong program: the line, the column and the text that its error marks.
PLACES = {
    f"wrong/{name}": (int(line), int(column), marked)
    for name, line, column, marked in (
        x.split("\t") for x in (api.HERE / "places.tsv").read_text("utf-8").splitlines()
    )
}


def test_each_name_is_present_or_explained() -> None:
    absent = [e.name for e in ENTRIES if api.status(e)[0] == "absent"]
    assert absent == []


def test_tests_that_cover_promises_exist() -> None:
    root = api.HERE.parents[1]
    for name, tests in api.COVER.items():
        assert tests, name
        for test in tests:
            file, _, function = test.partition("::")
            source = (root / file).read_text("utf-8")
            assert re.search(rf"^def {function}\(", source, re.M), f"{name}: there is no {test}"
    uncovered = [
        e.name
        for e in ENTRIES
        if api.status(e)[0] in ("present", "other parameters") and not api.cover(e.name)
    ]
    assert uncovered == []


def test_names_that_programs_use() -> None:
    absent: list[str] = []
    for name, _ in api.used():
        try:
            api.find(api.home_of_used(name))
        except LookupError:
            if api.elsewhere(name) is None:
                absent.append(name)
    assert absent == []


def test_what_stands_elsewhere_is_not_here() -> None:
    for name, status, _ in api.ELSEWHERE:
        if status == "replaced" and name[-1] not in "._":
            with pytest.raises(LookupError):
                api.find(api.home(name))


def test_target() -> None:
    made = Target("cuda -arch=sm_80 -libs=cudnn", host="llvm")
    assert (made.kind, made.attrs["arch"], str(made.host)) == ("cuda", "sm_80", "llvm")
    assert Target(str(made)) == Target({"kind": "cuda", "arch": "sm_80", "libs": "cudnn"})
    assert Target('{"kind": "llvm", "mcpu": "x"}') == Target("llvm -mcpu=x")
    assert Target("nvidia/geforce-rtx-3090-ti") == Target("cuda")
    assert Target("raspberry-pi/4b-aarch64") == Target("llvm")
    assert Target(made) == made
    assert hash(Target(made)) == hash(made)
    assert repr(made) == "Target('cuda -arch=sm_80 -libs=cudnn', host='llvm')"
    assert (made.arch, made.libs, Target("llvm -mcpu=x").mcpu) == ("sm_80", ["cudnn"], "x")
    for wrong in ("hexagon", "", "llvm mcpu=x", "{3", '{"mcpu": "x"}'):
        with pytest.raises(TVMError, match=r"target"):
            Target(wrong)


def test_limits_of_threads_of_a_target() -> None:
    plain = Target("cuda")
    assert (plain.max_num_threads, plain.thread_warp_size, str(plain)) == (1024, 32, "cuda")
    assert plain.attrs.get("max_num_threads") == 1024
    stated = Target("cuda -max_num_threads=256")
    assert (stated.max_num_threads, str(stated)) == (256, "cuda -max_num_threads=256")
    assert Target(stated) == stated != plain
    with pytest.raises(TVMError, match=r"'llvm' states no max_num_threads; write it as Target"):
        _ = Target("llvm").max_num_threads


def test_build_takes_a_target() -> None:
    mod = from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        '    def main(x: R.Tensor((2,), "float32")):\n'
        "        y = R.add(x, x)\n        return y\n"
    )
    executable = relax2xla.build(mod, Target("llvm"))
    machine = relax2xla.VirtualMachine(executable, relax2xla.cpu())
    result = machine["main"](relax2xla.nd.array(np.ones(2, "float32")))
    relax2xla.testing.assert_allclose(result, [2.0, 2.0])
    with pytest.raises(AssertionError):
        relax2xla.testing.assert_allclose(result, [2.0, 2.5])


def test_arrays() -> None:
    held = np.arange(3)
    made = relax2xla.nd.array(held)
    held[0] = 7
    assert made.tolist() == [0, 1, 2]
    assert isinstance(made, jax.Array)
    assert isinstance(relax2xla.nd.empty((2, 3), "bfloat16"), jax.Array)
    assert relax2xla.nd.empty((2, 3), "bfloat16").shape == (2, 3)
    assert not relax2xla.nd.empty((2, 3), "int8").any()
    # 64-bit types stay what they are, whatever JAX's x64 flag says.
    for dtype in ("int64", "uint64", "float64", "complex128", "int4", "float8_e4m3fn", "bool"):
        held = np.array([[1, 0], [0, 1]]).astype(relax2xla.dtypes.numpy_dtype(dtype))
        made = relax2xla.nd.array(held, relax2xla.cpu())
        assert isinstance(made, jax.Array)
        assert made.dtype == held.dtype
        assert np.asarray(made).tobytes() == held.tobytes()
    assert relax2xla.nd.array([1.5]).dtype == np.float64
    with pytest.raises(relax2xla.errors.DeviceError):
        relax2xla.nd.array([1], relax2xla.cuda(99))


def test_shape_tuples() -> None:
    made = relax2xla.runtime.ShapeTuple([np.int64(2), 3])
    assert (made, made[1], len(made), hash(made)) == ((2, 3), 3, 2, hash((2, 3)))
    assert repr(made) == "ShapeTuple([2, 3])"
    assert [type(v) for v in made] == [int, int]
    for wrong in ([2.0], [True], ["2"]):
        with pytest.raises(TypeError, match="integers"):
            relax2xla.runtime.ShapeTuple(wrong)
    mod = from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        "    def main(s: R.Shape(['n', 'm'])):\n        n, m = T.int64(), T.int64()\n"
        "        return R.shape([m, n + 1])\n"
    )
    machine = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())
    assert machine["main"](made) == relax2xla.runtime.ShapeTuple([3, 3])


def test_error_classes_are_the_same() -> None:
    assert relax2xla.error.TVMError is relax2xla.TVMError
    assert relax2xla.error.OpNotImplemented is relax2xla.OpNotImplemented


@pytest.mark.parametrize(
    "program", [p for p in corpus.programs() if p.category == "wrong"], ids=lambda p: p.name
)
def test_wrong_programs_show_their_place(program: corpus.Program) -> None:
    with pytest.raises(DiagnosticError) as caught:
        from_source(program.text, filename="net.py")
    place, _, shown, carets = str(caught.value).split("\n")[0], *str(caught.value).split("\n")[-3:]
    found = re.match(r"net\.py:(\d+):(\d+): ", place)
    assert found
    line = int(found[1])
    source = program.text.split("\n")[line - 1]
    assert shown.endswith(f"{line} | {source}")
    assert re.fullmatch(r" +\| +\^+", carets)
    start = carets.index("^") - shown.index(source)
    marked = source[start : start + carets.count("^")]
    assert (line, int(found[2]), marked) == PLACES[program.name]
    assert start + 1 == int(found[2])


def test_calls_of_loop_level_functions_keep_their_text() -> None:
    program = next(p for p in corpus.programs() if p.name == "module/call_tir_inplace")
    text = from_source(program.text).script()
    assert 'def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):' in text
    assert "inplace_indices=[0, -1])" in text
    with pytest.raises(DiagnosticError, match="unexpected keyword argument 'place'"):
        from_source(program.text.replace("inplace_indices", "place"))

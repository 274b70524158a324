"""Calls of code outside the program happen once each and in order, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import transform
from relax2xla.errors import CallError, LegalizeError
from relax2xla.runtime import remove_global_func
from relax2xla.script import from_source

HEAD = "from tvm.script import ir as I, relax as R, tir as T\n@I.ir_module\nclass M:\n"
INFO = 'R.Tensor((2, 3), "float32")'
X = np.arange(6, dtype=np.float32).reshape(2, 3)
LOG: list[str] = []


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    """Functions that note their call: e gives its first argument, d nothing, f takes a context."""
    LOG.clear()
    made: list[str] = []

    def add(name: str, tag: str, given: int | None) -> None:
        def note(*values: Any) -> Any:
            LOG.append(tag)
            return None if given is None else values[given]

        rx.register_func(name, note)
        made.append(name)

    for tag in "ab":
        for kind, given in (("e", 0), ("d", None), ("f", 1)):
            add(f"{kind}.{tag}", tag, given)
    yield
    for name in made:
        remove_global_func(name)


# Calls by kind; # is the name that they leave in the log.
CALLS = {
    "packed": f'R.call_packed("e.#", x, sinfo_args={INFO})',
    "of nothing": 'R.call_packed("d.#", x, sinfo_args=R.Tuple())',
    "extern": 'R.ExternFunc("e.#")(x)',
    "context": f'R.call_builtin_with_ctx("f.#", (x,), sinfo_args={INFO})',
    "destination": f'R.call_dps_packed("d.#", (x,), {INFO})',
    "inplace": f'R.call_inplace_packed("e.#", x, inplace_indices=[0], sinfo_args={INFO})',
    "promised pure": f'R.call_pure_packed("e.#", x, sinfo_args={INFO})',
    "python": f'R.call_py_func("e.#", (x,), out_sinfo={INFO})',
}
IMPURE = {"packed", "of nothing", "extern", "context"}

SUB = f"""
    @R.function(private=True, pure=PURE)
    def sub(x: {INFO}):
        p = CALL_A
        return x
"""
COUNT = f"""
    @R.function(private=True, pure=PURE)
    def count(n: R.Tensor((), "int32"), x: {INFO}) -> {INFO}:
        c = R.greater(n, R.const(0, "int32"))
        if c:
            p = CALL_A
            m = R.subtract(n, R.const(1, "int32"))
            r = M.count(m, x)
        else:
            q = CALL_B
            r = x
        return r
"""
ARGS = f'n: R.Tensor((), "int32"), x: {INFO}'

# Places by name: parameters of main, its body, other functions, and what the log says for n = 3.
PLACES = {
    "unused": (f"x: {INFO}", "p = CALL_A\nq = CALL_B\nreturn x", "", "ab"),
    "discarded": (f"x: {INFO}", "CALL_A\n_ = CALL_B\nreturn R.tuple()", "", "ab"),
    "among regions": (
        f"x: {INFO}",
        "y = R.add(x, x)\np = CALL_A\nz = R.exp(y)\nq = CALL_B\nreturn z",
        "",
        "ab",
    ),
    "around dataflow": (
        f"x: {INFO}",
        "with R.dataflow():\n    y = R.exp(x)\n    R.output(y)\np = CALL_A\n"
        "with R.dataflow():\n    w = R.add(y, y)\n    R.output(w)\nq = CALL_B\nreturn w",
        "",
        "ab",
    ),
    "late, then early": (
        f"x: {INFO}",
        "w = x\nx = R.exp(w)\np = CALL_A\nx = w\nq = CALL_B\nreturn x",
        "",
        "ab",
    ),
    "branch": (
        ARGS,
        "c = R.greater(n, R.const(1, 'int32'))\n"
        "if c:\n    p = CALL_A\n    r = x\nelse:\n    q = CALL_B\n    r = x\nreturn x",
        "",
        "a",
    ),
    "function": (f"x: {INFO}", "p = M.sub(x)\nq = CALL_B\nreturn x", SUB, "ab"),
    "function in function": (
        f"x: {INFO}",
        "p = M.outer(x)\nq = CALL_B\nreturn x",
        SUB + SUB.replace("sub", "outer").replace("CALL_A", "M.sub(x)"),
        "ab",
    ),
    "symbolic function": (
        f"x: {INFO}",
        "p = M.sub(x)\nq = CALL_B\nreturn x",
        SUB.replace("(2, 3)", '("n", 3)').replace("p =", "n = T.int64()\n        p =", 1),
        "ab",
    ),
    "local function": (
        f"x: {INFO}",
        f"@R.function(pure=PURE)\ndef f(x: {INFO}) -> {INFO}:\n    p = CALL_A\n    return x\n"
        "z = f(x)\nq = CALL_B\nreturn x",
        "",
        "ab",
    ),
    "closure": (
        f"x: {INFO}",
        f"@R.function(pure=PURE)\ndef f(x: {INFO}) -> {INFO}:\n    p = CALL_A\n    return x\n"
        f"g = f\nz = R.invoke_pure_closure(g, (x,), sinfo_args={INFO})\nq = CALL_B\nreturn x",
        "",
        "ab",
    ),
    "recursion, unused": (ARGS, "z = M.count(n, x)\nreturn x", COUNT, "aaab"),
    "recursion": (ARGS, "z = M.count(n, x)\nreturn z", COUNT, "aaab"),
}


def program(call: str, place: str) -> tuple[rx.IRModule, tuple[Any, ...], str]:
    params, body, others, expected = PLACES[place]
    main = "\n".join(f"        {line}" for line in body.split("\n"))
    text = f"{HEAD}{others}\n    @R.function(pure=PURE)\n    def main({params}):\n{main}\n"
    text = text.replace("CALL_A", CALLS[call].replace("#", "a"))
    text = text.replace("CALL_B", CALLS[call].replace("#", "b"))
    if "symbolic" in place:
        head, rest = text.split("    @R.function(pure=PURE)\n    def main")
        text = head.replace(INFO, 'R.Tensor((n, 3), "float32")')
        text += "    @R.function(pure=PURE)\n    def main" + rest
    mod = from_source(text.replace("PURE", str(call not in IMPURE)))
    assert isinstance(mod, rx.IRModule)
    return mod, ((np.array(3, np.int32), X) if "n:" in params else (X,)), expected


def ran(mod: rx.IRModule, args: tuple[Any, ...], pipeline: Any) -> str:
    LOG.clear()
    rx.VirtualMachine(rx.build(mod, relax_pipeline=pipeline))["main"](*args)
    return "".join(LOG)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", CALLS)
def test_each_call_happens_once_and_in_order(call: str, place: str) -> None:
    mod, args, expected = program(call, place)
    for pipeline in ("default", "zero"):
        found = ran(mod, args, pipeline)
        # What is promised to be pure is called, but may move.
        same = sorted(found) == sorted(expected) if call == "promised pure" else found == expected
        assert same, (pipeline, found, expected)


ALONE = {
    "none": lambda mod: mod,
    "DeadCodeElimination": transform.DeadCodeElimination(keep_foreign=True),
    "CanonicalizeBindings": transform.CanonicalizeBindings(),
    "InlineSymbolicFunctions": transform.InlineSymbolicFunctions(),
    "FoldBatchNorm": transform.FoldBatchNorm(),
    "ConvertLayout": transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]}),
    "FuseTransposeMatmul": transform.FuseTransposeMatmul(),
    "RaiseStableHLO": transform.RaiseStableHLO(),
    "DecomposeOpsForInference": transform.DecomposeOpsForInference(),
    "UseWinograd": transform.UseWinograd(),
}


@pytest.mark.parametrize("name", ALONE)
def test_no_pass_loses_a_call(name: str) -> None:
    for call in ("packed", "destination"):
        for place in ("unused", "branch", "function in function", "symbolic function", "closure"):
            mod, args, expected = program(call, place)
            assert (place, ran(ALONE[name](mod), args, None)) == (place, expected)


def test_unused_calls_in_dataflow_blocks_go() -> None:
    """There nothing may have effects, and TVM's pass drops them, too."""
    text = f"""{HEAD}
    @R.function
    def main(x: {INFO}):
        with R.dataflow():
            p = {CALLS["destination"].replace("#", "a")}
            y = R.exp(x)
            R.output(y)
        return y
"""
    mod = from_source(text)
    assert isinstance(mod, rx.IRModule)
    assert ran(mod, (X,), "default") == ""


def test_the_pass_by_itself_drops_what_is_promised_pure() -> None:
    """As TVM's ``remove_all_unused``; calls that are impure stay."""
    for call in CALLS:
        mod, _, _ = program(call, "unused")
        kept = len(transform.DeadCodeElimination()(mod)["main"].body.blocks)
        assert kept == int(call in IMPURE), call


def test_print_and_assert_keep_their_place(capfd: pytest.CaptureFixture[str]) -> None:
    text = f"""{HEAD}
    @R.function(pure=False)
    def main(x: {INFO}, ok: R.Tensor((), "bool")):
        y = R.add(x, x)
        p = R.call_packed("e.a", y, sinfo_args={INFO})
        _ = R.print(ok, format="ok is {{}}")
        _1 = R.assert_op(ok, format="not ok")
        q = R.call_dps_packed("d.b", (x,), {INFO})
        return x
"""
    mod = from_source(text)
    assert isinstance(mod, rx.IRModule)
    assert ran(mod, (X, np.array(True)), "default") == "ab"
    assert capfd.readouterr().out == "ok is True\n"
    with pytest.raises(AssertionError, match="not ok"):
        ran(mod, (X, np.array(False)), "default")
    assert LOG == ["a"]


@pytest.mark.parametrize("host", ["R.nonzero(x)", CALLS["destination"].replace("#", "a")])
def test_tail_recursion_around_host_work_is_no_loop_of_xla(host: str) -> None:
    text = f"""{HEAD}
    @R.function
    def main(n: R.Tensor((), "int32"), x: {INFO}) -> {INFO}:
        c = R.greater(n, R.const(0, "int32"))
        if c:
            p = {host}
            m = R.subtract(n, R.const(1, "int32"))
            y = R.add(x, x)
            r = M.main(m, y)
        else:
            r = x
        return r
"""
    mod = from_source(text)
    assert isinstance(mod, rx.IRModule)
    machine = rx.VirtualMachine(rx.build(mod))
    np.testing.assert_array_equal(machine["main"](np.array(3, np.int32), X), X * 8)


def test_a_row_cannot_repeat_host_work() -> None:
    text = f"""{HEAD}
    @R.function
    def main(x: {INFO}):
        @R.function
        def test(i: R.Tensor((), "int32")) -> R.Tensor((), "bool"):
            go = R.less(i, R.const(3, "int32"))
            return go
        @R.function
        def step(i: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
            p = R.call_dps_packed("d.a", (x,), {INFO})
            j = R.add(i, R.const(1, "int32"))
            return j
        z = R.stablehlo.while_(R.const(0, "int32"), test, step)
        return z
"""
    mod = from_source(text)
    assert isinstance(mod, rx.IRModule)
    with pytest.raises(LegalizeError, match=r"while_ holds .*call_dps_packed of 'd.a'"):
        rx.build(mod)


def test_a_cast_whose_value_nobody_reads_is_checked() -> None:
    """Also where it is all that a region does."""
    text = f"""{HEAD}
    @R.function
    def main(x: {INFO}):
        h = R.call_pure_packed("e.a", x, sinfo_args=R.Tensor(ndim=2, dtype="float32"))
        y = R.add(h, h)
        z = R.match_cast(y, R.Tensor((2, 4), "float32"))
        return x
"""
    mod = from_source(text)
    assert isinstance(mod, rx.IRModule)
    with pytest.raises(CallError, match="has 3 in dimension 1, expected 4"):
        ran(mod, (X,), "default")

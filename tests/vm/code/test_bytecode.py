"""Bytecode: what verification finds, and that text and Python say what the code does."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import BytecodeError
from relax2xla.script import from_source
from relax2xla.vm.code import bytecode as bc
from relax2xla.vm.code.bytecode import Call, Code, Const, Func, FunctionRow, Goto, If, Imm, Reg, Ret
from relax2xla.vm.plan.exec_builder import renumbered

ADD = FunctionRow("vm.builtin.add", "builtin")


def code(*body: bc.Instruction, params: int = 1, registers: int = 4) -> Code:
    names = tuple(f"p{i}" for i in range(params))
    return Code((ADD, FunctionRow("f", "vm", names, registers, body)), (1,))


GOOD = {
    "straight": code(Call(0, (Reg(0), Const(0)), 1), Ret(Reg(1))),
    "both branches write": code(
        If(Reg(0), 3),
        Call(0, (Imm(1), Imm(2)), 1),
        Goto(2),
        Call(0, (Imm(3), Imm(4)), 1),
        Ret(Reg(1)),
    ),
    "a loop": code(Call(0, (Reg(0), Imm(1)), 0), If(Reg(0), 2), Goto(-2), Ret(Reg(0))),
    "a function value": code(Ret(Func(0))),
}


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD)
def test_good_code(good: Code) -> None:
    bc.verify(good)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (code(Ret(Reg(1))), r"f, instruction 0 \(ret  %1\): %1 is read before it is written"),
        (
            code(If(Reg(0), 2), Call(0, (Imm(1), Imm(2)), 1), Ret(Reg(1))),
            "instruction 2.*%1 is read before it is written",
        ),
        (
            code(If(Reg(0), 3), Call(0, (Imm(1), Imm(2)), 1), Goto(-2), Ret(Reg(1))),
            "%1 is read before it is written",
        ),
        (code(Goto(2), Ret(Reg(0))), "control goes to the end of the function without a `ret`"),
        (code(Goto(-1), Ret(Reg(0))), "control goes to -1, outside"),
        (code(If(Reg(0), 7), Ret(Reg(0))), "control goes to 7, outside"),
        (code(Call(0, (Imm(1), Imm(2)), 1)), "control goes to the end of the function"),
        (code(Call(5, ()), Ret(Reg(0))), "there is no function 5"),
        (code(Call(0, (Func(9),)), Ret(Reg(0))), r"there is no function f\[9\]"),
        (code(Call(0, (Const(1),)), Ret(Reg(0))), r"there is no constant c\[1\]"),
        (code(Ret(Reg(4))), "no register %4"),
        (code(Call(0, (Imm(1),), 4), Ret(Reg(0))), "no register %4"),
        (code(Call(1, ()), Ret(Reg(0))), "f takes 1 arguments, not 0"),
        (code(), "f has no instructions"),
        (code(Ret(Reg(0)), registers=0), "1 parameters but 0 registers"),
        (Code((ADD, ADD)), "'vm.builtin.add' .builtin. twice"),
        (Code((FunctionRow("f", "wasm"),)), "none of vm, xla, packed, builtin"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_bad_code_is_named(bad: Code, message: str) -> None:
    with pytest.raises(BytecodeError, match=message):
        bc.verify(bad)


def test_text() -> None:
    text = bc.as_text(GOOD["straight"])
    assert text.splitlines() == [
        "functions:",
        "  f[0] builtin vm.builtin.add",
        "",
        "constants:",
        "  c[0] 1",
        "",
        "@f(%0 p0):",
        "    0  call vm.builtin.add           in: %0, c[0]           dst: %1",
        "    1  ret  %1",
    ]
    assert bc.stats(GOOD["straight"]) == [
        "f: bytecode, 1 parameters, 4 registers, 2 instructions; calls: 1 builtin"
    ]


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD)
def test_python_builds_the_same_code(good: Code) -> None:
    made = built(good)
    assert [r.body for r in made.functions] == [r.body for r in good.functions]
    assert made.constants == good.constants


def built(given: Code) -> Code:
    """What the Python program of ``given`` builds, with nothing but what it imports itself."""
    scope: dict[str, Any] = {}
    exec(bc.as_python(given), scope)
    return scope["ib"].get().code


CONSTANTS = [
    np.array([1.5, np.inf, -np.inf, np.nan], np.float32),
    np.zeros((0, 3), np.int8),
    np.array(7),
    np.array(["a", "bc"]),
    np.array([1, 2], "bfloat16"),
    float("nan"),
    -float("inf"),
    (1, ("x", None), (2.5,), ()),
    {"axis": 1, "mode": ("a", {"b": np.ones(2)})},
]


def test_python_has_every_constant() -> None:
    good = Code((FunctionRow("f", "vm", (), 0, (Ret(Const(0)),)),), tuple(CONSTANTS))
    assert repr(built(good).constants) == repr(good.constants)


def test_python_of_what_build_makes() -> None:
    """Regions, operators on the host with their attributes, branches, several functions."""
    code = rx.build(
        from_source("""
@I.ir_module
class Module:
    @R.function(private=True)
    def found(x: R.Tensor(("n",), "float32")) -> R.Tensor(("k", ), "int64"):
        k = T.int64()
        y = R.match_cast(R.nonzero(x), R.Tensor((1, k), "int64"))
        return R.reshape(y, R.shape([k]))

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
        cls = Module
        y = cls.found(R.exp(x))
        if c:
            _ = R.print(y, format="{}")
            z = R.unique(y)
        else:
            z = y
        return z
""")
    ).code
    made = built(code)
    assert [(r.name, r.kind, r.params) for r in made.functions] == [
        (r.name, r.kind, r.params) for r in code.functions
    ]
    assert [plain(made, r) for r in made.functions] == [plain(code, r) for r in code.functions]


def plain(of: Code, row: FunctionRow) -> list[Any]:
    """The instructions without places in the source, registers numbered by appearance."""
    found: list[Any] = []
    for ins in renumbered(len(row.params), row.body)[1]:
        if isinstance(ins, Call):
            args = [repr(of.constants[a.index]) if isinstance(a, Const) else a for a in ins.args]
            found.append((ins.func, args, ins.dst))
        else:
            found.append(dataclasses.replace(ins, span="") if isinstance(ins, If) else ins)
    return found

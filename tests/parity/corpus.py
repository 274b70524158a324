"""Programs, pairs of programs and symbolic expressions on which TVM and relax2xla are compared.

``programs.txt`` holds hand-written programs; ``operators.txt`` calls of operators, of which this
file makes programs with static, symbolic, and unknown shapes. Nothing here imports either library,
so that the same file feeds both.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Program(NamedTuple):
    """One program: ``name`` is ``category/rest``."""

    name: str
    text: str

    @property
    def category(self) -> str:
        """The first part of the name."""
        return self.name.split("/")[0]


def written() -> Iterator[Program]:
    """The programs of ``programs.txt``."""
    parts = re.split(r"^===== (.+)\n", (HERE / "programs.txt").read_text("utf-8"), flags=re.M)
    for head, text in zip(parts[1::2], parts[2::2], strict=True):
        yield Program(head.replace(" ", "/", 1), text)


def _dims(dims: str, form: str, dtype: str) -> str:
    sizes = [d for d in dims.split(",") if d]
    if form == "unknown":
        return f'R.Tensor(dtype="{dtype}")'
    if form == "ranked":
        return f'R.Tensor(dtype="{dtype}", ndim={len(sizes)})'
    if form == "symbolic":
        sizes = [d if d == "1" else f'"d{d}"' for d in sizes]
    comma = "," if len(sizes) == 1 else ""
    return f'R.Tensor(({", ".join(sizes)}{comma}), "{dtype}")'


# Equal sizes get one symbolic variable, so that what fits keeps fitting.
FORMS = ("static", "symbolic", "ranked", "unknown")


def of_operators() -> Iterator[Program]:
    """Programs with one call each, in each form that its parameters allow."""
    count: dict[str, int] = {}
    for line in (HERE / "operators.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        params, call = line.split("|", 1)
        found = re.search(r"R\.([\w.]+)", call)
        op = "arithmetic" if found is None else found[1]
        number = count[op] = count.get(op, 0) + 1
        fields = [p.strip().split(" ") for p in params.split(";") if p.strip()]
        for form in FORMS if fields else FORMS[:1]:
            heads = ", ".join(f"{n}: {_dims(dims, form, dtype)}" for n, dims, dtype in fields)
            # The call may name sizes; where they are symbols it still states numbers.
            yield Program(
                f"op_{form}/{op}.{number}",
                f"@R.function\ndef main({heads}):\n    lv = {call.strip()}\n    return lv\n",
            )


def programs() -> list[Program]:
    """Everything, each name once."""
    found = [*written(), *of_operators()]
    assert len({p.name for p in found}) == len(found)
    return found


BASE = """@R.function
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
    R.func_attr({"a": 1})
    with R.dataflow():
        lv = R.add(x, y)
        gv = R.sum(lv, axis=[1], keepdims=True)
        R.output(gv)
    return gv
"""
# Edits of BASE: (name, text, replacement); the verdict of TVM on base and edit is a fact.
EDITS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("same", ()),
    ("rename_binding", (("lv", "other"),)),
    ("rename_parameter", (("main(x:", "main(z:"), ("(x, y)", "(z, y)"))),
    ("rename_symbol", (('"n"', '"k"'),)),
    ("rename_function", (("main", "other"),)),
    ("swap_operands", (("R.add(x, y)", "R.add(y, x)"),)),
    ("other_operator", (("R.add", "R.multiply"),)),
    ("other_axis", (("axis=[1]", "axis=[0]"),)),
    ("negative_axis", (("axis=[1]", "axis=[-1]"),)),
    ("no_keepdims", ((", keepdims=True", ""),)),
    ("other_dtype", (("float32", "float16"),)),
    ("static", (('"n"', "3"),)),
    ("two_symbols", (('y: R.Tensor(("n"', 'y: R.Tensor(("m"'), ("R.add(x, y)", "R.add(x, x)"))),
    ("attribute_value", (('{"a": 1}', '{"a": 2}'),)),
    ("attribute_name", (('{"a": 1}', '{"b": 1}'),)),
    ("attribute_type", (('{"a": 1}', '{"a": "1"}'),)),
    ("attribute_bool", (('{"a": 1}', '{"a": True}'),)),
    ("attribute_gone", (('    R.func_attr({"a": 1})\n', ""),)),
    ("private", (("@R.function", "@R.function(private=True)"),)),
    ("impure", (("@R.function", "@R.function(pure=False)"),)),
    (
        "no_dataflow",
        (
            ("    with R.dataflow():\n", ""),
            ("        R.output(gv)\n", ""),
            ("        ", "    "),
        ),
    ),
    ("two_outputs", (("R.output(gv)", "R.output(lv, gv)"),)),
    ("parameters_swapped", (("def main(x:", "def main(y:"), (', y: R', ', x: R'))),
    ("weaker_annotation", (("lv = ", 'lv: R.Tensor("float32", ndim=2) = '),)),
    ("result_annotation", (('2")):', '2")) -> R.Tensor("float32", ndim=2):'),)),
    ("extra_binding", (("        R.output", "        d = R.exp(x)\n        R.output"),)),
    ("constant_one", (("R.add(x, y)", 'R.add(x, R.const(1, "float32"))'),)),
    ("constant_two", (("R.add(x, y)", 'R.add(x, R.const(2, "float32"))'),)),
    ("constant_float", (("R.add(x, y)", 'R.add(x, R.const(1.0, "float32"))'),)),
    ("dim_plus", (('"n"', '"n + 1"'), ("def main(", 'def main(s: R.Shape(["n"]), '))),
    ("dim_plus_other_order", (('"n"', '"1 + n"'), ("def main(", 'def main(s: R.Shape(["n"]), '))),
    ("dim_twice", (('"n"', '"n * 2"'), ("def main(", 'def main(s: R.Shape(["n"]), '))),
    ("dim_sum", (('"n"', '"n + n"'), ("def main(", 'def main(s: R.Shape(["n"]), '))),
    ("no_parameter_y", ((', y: R.Tensor(("n", 4), "float32")', ""), ("(x, y)", "(x, x)"))),
    ("match_cast", (("lv = R.add(x, y)", 'lv = R.match_cast(x, R.Tensor((4, 4), "float32"))'),)),
    ("nested_call", (("lv = R.add(x, y)", "lv = R.exp(R.add(x, y))"),)),
)  # fmt: skip


def edited() -> dict[str, str]:
    """The text of each edit of BASE."""
    made: dict[str, str] = {}
    for name, changes in EDITS:
        text = BASE
        for old, new in changes:
            assert old in text, name
            text = text.replace(old, new)
        made[name] = text
    return made


def pairs() -> list[tuple[str, str]]:
    """All pairs of edits, each once, and each with itself."""
    return list(itertools.combinations_with_replacement([name for name, _ in EDITS], 2))


TERMS = (
    "n", "n + 1", "n * 2", "n + n", "2 * n - n", "n - n", "n * m", "m * n", "(n + 1) * m",
    "n * m + m", "floordiv(n, 2)", "floordiv(n, 2) * 2 + floormod(n, 2)", "floormod(n, 2)",
    "floordiv(n * 2, 2)", "floordiv(n * 4 + 2, 2)", "n * 2 + 1", "floordiv(n + 4, 4)",
    "floordiv(n, 4) + 1", "max(n, m)", "max(m, n)", "min(n, n)", "max(n, n + 1)",
    "min(n, m) + max(n, m)", "n + m", "(n + m) * (n + m)", "n * n + 2 * n * m + m * m",
    "floordiv(n - 1, 2) + 1", "floordiv(n + 1, 2)", "ceildiv(n, 2)", "-n", "0 - n", "n - 1 + 2",
    "Select(n > m, n, m)", "if_then_else(n > m, n, n)", "floordiv(floordiv(n, 2), 3)",
    "floordiv(n, 6)", "floormod(n * 6, 3)", "floormod(n + 6, 3)", "floormod(n, 3)",
    "floordiv(h + 3 - 1, 2) + 1 - k", "floordiv(h - 3 + 2 * 1, 2) + 1", "floordiv(h - 1, 2) + 1",
    "n * 0", "n * 1", "1 * n", "truncdiv(n, 2)", "truncmod(n, 2)", "(n + 1) * (n - 1)",
    "n * n - 1", "max(n, 0)", "n * 3 - n * 2", "floordiv(n * m, m)", "m * floordiv(n, m)",
)  # fmt: skip


def proofs() -> list[tuple[str, str]]:
    """Pairs of terms to prove equal."""
    return list(itertools.combinations_with_replacement(TERMS, 2))

"""Analyses of loop-level functions. What is expected is what TVM's own analysis says."""

from __future__ import annotations

import pytest

from relax2xla import tir
from relax2xla.analysis import has_reshape_pattern
from relax2xla.errors import UnsupportedError
from relax2xla.script import from_source

# Shapes of the input and of the output, the loops, and what is copied to where.
COPIES = {
    "splits": ("8, 3", "1, 2, 3, 4", "8, 3", "b[i, j] = a[i, j]", False),
    "another order of sizes": (
        *("1, 2, 3, 4", "8, 3", "8, 3"),
        "b[i, j] = a[0, (i * 3 + j) // 12, (i * 3 + j) % 12 // 4, (i * 3 + j) % 4]",
        True,
    ),
    "new axes": ("2, 3", "2, 1, 3", "2, 3", "b[i, 0, j] = a[i, j]", True),
    "a symbolic size": ("n, 4", "1, n, 4", "n, 4", "b[0, i, j] = a[(i + j // 4) % n, j % 4]", True),
    "one element further": ("n, 4", "n, 4", "n, 4", "b[i, j] = a[(i + 1) % n, j]", False),
    "transposed": ("2, 3", "3, 2", "3, 2", "b[i, j] = a[j, i]", False),
    "computed": ("2, 3", "2, 3", "2, 3", "b[i, j] = a[i, j] + T.float32(1)", False),
}


def kernel(body: str, a: str, b: str) -> tir.PrimFunc:
    made = from_source(f"""
@T.prim_func
def copy(x: T.handle, y: T.handle):
    n = T.int64()
    a = T.match_buffer(x, ({a},))
    b = T.match_buffer(y, ({b},))
{body}
""")
    assert isinstance(made, tir.PrimFunc)
    return made


@pytest.mark.parametrize("case", COPIES)
def test_copies_in_order(case: str) -> None:
    a, b, loops, statement, expected = COPIES[case]
    if case == "splits":
        statement = "b[0, i // 4, i % 4 * 3 // 4 + j, j] = a[i, j]"
    body = f"""
    for p, q in T.grid({loops}):
        with T.block("copy"):
            i, j = T.axis.remap("SS", [p, q])
            {statement}
"""
    assert has_reshape_pattern(kernel(body, a, b)) is expected


def test_what_is_more_than_a_copy() -> None:
    two = """
    for i in range(4):
        b[i] = a[i]
    for i in range(4):
        b[i] = a[i]
"""
    assert not has_reshape_pattern(kernel(two, "4", "4"))
    total = """
    for p in range(4):
        with T.block("sum"):
            i = T.axis.reduce(4, p)
            with T.init():
                b[0] = T.float32(0)
            b[0] = a[i]
"""
    assert not has_reshape_pattern(kernel(total, "4", "1"))


def test_errors() -> None:
    with pytest.raises(TypeError, match=r"takes a tir\.PrimFunc; got int"):
        has_reshape_pattern(1)  # type: ignore[arg-type]
    empty = tir.PrimFunc([], tir.Evaluate(tir.IntImm("int32", 0)))
    assert not has_reshape_pattern(empty)
    kept = empty.with_body(tir.Text("...", "a statement that is not known"))
    with pytest.raises(UnsupportedError, match="kept as text, for a statement that is not known"):
        has_reshape_pattern(kept)

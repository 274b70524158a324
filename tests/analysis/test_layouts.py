"""Layouts that go with those of results. What is expected is what TVM 0.25 suggests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relax2xla import tir
from relax2xla.analysis import suggest_layout_transforms
from relax2xla.errors import TVMError, UnsupportedError
from relax2xla.script import from_source

Map = Callable[..., Any]

# The kinds and sizes of the axes i, j, k, ..., the statement, the shapes of its buffers, the map of
# the result `y`; and the map of the axes and those of what is read, or None for no suggestion.
CASES: dict[str, tuple[str, list[int], str, dict[str, str], Map, dict[str, Map] | None]] = {
    "element by element": (
        *("SSSS", [4, 8, 6, 6], "y[i, j, k, l] = x[i, j, k, l] * x[i, j, k, l]"),
        {"x": "4, 8, 6, 6", "y": "4, 8, 6, 6"},
        lambda n, c, h, w: (n, h, w, c),
        {"block": lambda n, c, h, w: (n, h, w, c), "x": lambda n, c, h, w: (n, h, w, c)},
    ),
    "broadcast": (
        *("SSS", [4, 8, 6], "y[i, j, k] = x[i, j, k] + b[j] + d[k, 0]"),
        {"x": "4, 8, 6", "b": "8", "d": "6, 1", "y": "4, 8, 6"},
        lambda n, c, h: (n, h, c // 4, c % 4),
        {
            "block": lambda n, c, h: (n, h, c // 4, c % 4),
            "x": lambda n, c, h: (n, h, c // 4, c % 4),
            "b": lambda c: (c // 4, c % 4),
            "d": lambda h, one: (h, one),
        },
    ),
    "sum over axes between": (
        *("SRSR", [4, 6, 8, 6], "y[i, k] = y[i, k] + x[i, j, k, l]"),
        {"x": "4, 6, 8, 6", "y": "4, 8"},
        lambda n, c: (n, c // 4, c % 4),
        {
            "block": lambda n, r, c, s: (n, r, c // 4, s, c % 4),
            "x": lambda n, r, c, s: (n, r, c // 4, s, c % 4),
        },
    ),
    "pool": (
        *("SSSRR", [8, 6, 5, 2, 2], "y[i, j, k] = T.max(y[i, j, k], x[i, j * 2 + l * 2, k + m])"),
        {"x": "8, 12, 6", "y": "8, 6, 5"},
        lambda c, h, w: (h, w, c),
        {
            "block": lambda c, h, w, r, s: (h, w, c, r, s),
            "x": lambda c, h, w: (h, w, c),
        },
    ),
    "convolution": (
        *("SSSRR", [4, 8, 6, 8, 3], "y[i, j, k] = y[i, j, k] + x[i, l, k + m] * w[j, l, m]"),
        {"x": "4, 8, 8", "w": "8, 8, 3", "y": "4, 8, 6"},
        lambda n, c, h: (n, h, c),
        {
            "block": lambda n, c, h, r, s: (n, h, c, r, s),
            "x": lambda n, r, h: (n, r, h),
            "w": lambda c, r, s: (c, r, s),
        },
    ),
    "strides, shifts and blocks": (
        *("SSS", [4, 5, 8], "y[i, j, k] = x[i, j * 5 + 2, k + 32] + u[i, j, k // 2]"),
        {"x": "4, 27, 40", "u": "4, 5, 4", "y": "4, 5, 8"},
        lambda n, h, c: (c, n, h),
        {
            "block": lambda n, h, c: (c, n, h),
            "x": lambda n, h, c: (c, n, h),
            "u": lambda n, h, c: (c, n, h),
        },
    ),
    "padded at the edges": (
        *("SS", [8, 10], "y[i, j] = T.if_then_else(2 <= j, x[i, j - 2], T.float32(2))"),
        {"x": "8, 8", "y": "8, 10"},
        lambda n, c: (c, n),
        {"block": lambda n, c: (c, n), "x": lambda n, c: (c, n)},
    ),
    "read in another order": (
        *("SSS", [4, 6, 8], "y[i, j, k] = x[i, k, j]"),
        {"x": "4, 8, 6", "y": "4, 6, 8"},
        lambda n, h, c: (c, n, h),
        {"block": lambda n, h, c: (c, n, h)},
    ),
    "read along other axes": (
        *("SSS", [4, 8, 4], "y[i, j] = x[j, k]"),
        {"x": "8, 4", "y": "4, 8"},
        lambda a, b: a * 8 + b,
        {"block": lambda a, b, c: (a * 8 + b, c)},
    ),
    "read in several ways": (
        *("SS", [4, 4], "y[i, j] = x[i, j] + x[j, i] + u[i, i] + v[T.max(i, 1), j] + w[i + j, 0]"),
        {"x": "4, 4", "u": "4, 4", "v": "4, 4", "w": "7, 1", "y": "4, 4"},
        lambda a, b: (b, a),
        {"block": lambda a, b: (b, a)},
    ),
    "digits of one index": (
        *("SS", [20, 3], "y[i, j] = x[i // 4, j] + u[(i + 1) // 8, j] + v[i // 2, i % 4]"),
        {"x": "5, 3", "u": "3, 3", "v": "10, 4", "y": "20, 3"},
        lambda a, b: (b, a),
        {"block": lambda a, b: (b, a), "x": lambda a, b: (b, a), "u": lambda a, b: (b, a)},
    ),
    "places that are data": (
        *("SS", [4, 8], "y[i, j] = x[n[i], j]"),
        {"x": "4, 8", "n": "4", "y": "4, 8"},
        lambda a, b: (b, a),
        {"block": lambda a, b: (b, a)},
    ),
    "a split joined with another axis": (
        *("SS", [4, 8], "y[i, j] = x[i, j]"),
        {"x": "4, 8", "y": "4, 8"},
        lambda a, b: (a * 2 + b // 4, b % 4),
        {
            "block": lambda a, b: (a * 2 + b // 4, b % 4),
            "x": lambda a, b: (a * 2 + b // 4, b % 4),
        },
    ),
    "symbolic sizes": (
        *("SS", [-1, 8], "y[i, j] = x[i, j] + u[i // 2, j]"),
        {"x": "s, 8", "u": "s, 8", "y": "s, 8"},
        lambda a, b: (b // 4, a, b % 4),
        {
            "block": lambda a, b: (b // 4, a, b % 4),
            "x": lambda a, b: (b // 4, a, b % 4),
            "u": lambda a, b: (b // 4, a, b % 4),
        },
    ),
    "blocks that do not divide": (
        *("SS", [4, 8], "y[i, j] = x[i, j]"),
        {"x": "4, 8", "y": "4, 8"},
        lambda a, b: (a, b // 5, b % 5),
        None,
    ),
    "an index is lost": (
        *("SS", [4, 8], "y[i, j] = x[i, j]"),
        {"x": "4, 8", "y": "4, 8"},
        lambda a, b: (a, b // 2),
        None,
    ),
    "an index twice": (
        *("SS", [4, 8], "y[i, j] = x[i, j]"),
        {"x": "4, 8", "y": "4, 8"},
        lambda a, b: (a, b, a),
        None,
    ),
    "written in another order": (
        *("SS", [4, 8], "y[j, i] = x[i, j]"),
        {"x": "4, 8", "y": "8, 4"},
        lambda a, b: (b, a),
        None,
    ),
    "written at a sum of axes": (
        *("SS", [4, 8], "y[i * 8 + j] = x[i, j]"),
        {"x": "4, 8", "y": "32"},
        lambda a: (a // 8, a % 8),
        None,
    ),
    "written at a product of axes": (
        *("SSS", [4, 8, 2], "y[i * j, k] = x[i, j]"),
        {"x": "4, 8", "y": "32, 2"},
        lambda a, b: (b, a),
        None,
    ),
}


def kernel(statements: str, shapes: dict[str, str]) -> tir.PrimFunc:
    dtypes = {name: "int32" if name == "n" else "float32" for name in shapes}
    buffers = [f'{n} = T.match_buffer(p_{n}, ({x},), "{dtypes[n]}")' for n, x in shapes.items()]
    declared = "".join(f"    {line}\n" for line in buffers)
    made = from_source(f"""
@T.prim_func
def main({", ".join(f"p_{name}: T.handle" for name in shapes)}):
    s = T.int64()
{declared}{statements}""")
    assert isinstance(made, tir.PrimFunc)
    return made


def block(kinds: str, sizes: list[int], statement: str, name: str = "compute") -> str:
    """A nest of loops around a block; a size below zero is the symbolic one."""
    names = "ijklm"[: len(kinds)]
    extents = ["s" if size < 0 else str(size) for size in sizes]
    first = ["            with T.init():", f"                {statement.split(' =')[0]} = 0.0"]
    return "\n".join(
        [
            f"    for {', '.join(f'{x}0' for x in names)} in T.grid({', '.join(extents)}):",
            f'        with T.block("{name}"):',
            f"            {', '.join(names)} = T.axis.remap("
            f'"{kinds}", [{", ".join(f"{x}0" for x in names)}])',
            *(first if "R" in kinds else []),
            f"            {statement}\n",
        ]
    )


def named(layouts: dict[Any, tir.IndexMap]) -> dict[str, tir.IndexMap]:
    return {"block" if isinstance(x, tir.Block) else x.name: made for x, made in layouts.items()}


@pytest.mark.parametrize("case", CASES)
def test_one_block(case: str) -> None:
    kinds, sizes, statement, shapes, given, expected = CASES[case]
    func = kernel(block(kinds, sizes, statement), shapes)
    found = [named(x) for x in suggest_layout_transforms(func, [given]).values()]
    if expected is None:
        assert found == []
        return
    (maps,) = found
    assert list(maps) == ["block", "y", *(name for name in maps if name not in ("block", "y"))]
    wanted = {"y": given, **expected}
    assert maps.keys() == wanted.keys()
    for name, made in maps.items():
        assert made.is_equivalent_to(tir.IndexMap.from_func(wanted[name])), (name, made)


def test_what_an_earlier_block_suggests_stays() -> None:
    first = block("SS", [4, 8], "a[i, j] = x[i, j]", "first")
    second = block("SS", [4, 8], "b[i, j] = x[i, j] + a[i, j]", "second")
    func = kernel(first + second, {"x": "4, 8", "a": "4, 8", "b": "4, 8"})
    maps = [lambda i, j: (j, i), lambda i, j: (i, j // 4, j % 4)]
    found = suggest_layout_transforms(func, [tir.IndexMap.from_func(m) for m in maps])
    assert [x.name_hint for x in found] == ["first", "second"]
    one, two = map(named, found.values())
    assert list(one) == ["block", "a", "x"]
    assert one["x"].is_equivalent_to(tir.IndexMap.from_func(maps[0]))
    assert list(two) == ["block", "b"]
    # A buffer between two blocks has a layout only if one that is known leads to it.
    between = suggest_layout_transforms(func, [maps[1]])
    assert [x.name_hint for x in between] == ["second"]
    assert list(named(between[next(iter(between))])) == ["block", "b", "x", "a"]


def test_blocks_that_are_left_out() -> None:
    nested = """
    for i0 in range(4):
        with T.block("outer"):
            i = T.axis.spatial(4, i0)
            for j0 in range(8):
                with T.block("inner"):
                    j = T.axis.spatial(8, j0)
                    y[i, j] = x[i, j]
"""
    shapes = {"x": "4, 8", "y": "4, 8"}
    transposed = [lambda a, b: (b, a)]
    assert suggest_layout_transforms(kernel(nested, shapes), transposed) == {}
    inside = block("SS", [4, 8], "y[i, j] = x[i, j]").splitlines()
    in_root = "\n".join(['    with T.block("root"):', *(f"    {line}" for line in inside)])
    assert len(suggest_layout_transforms(kernel(in_root, shapes), transposed)) == 1
    two = block("SS", [4, 8], "y[i, j] = x[i, j]") + "            z[i, j] = x[i, j]\n"
    func = kernel(two, {**shapes, "z": "4, 8"})
    assert suggest_layout_transforms(func, [*transposed, *transposed]) == {}
    both, opaque = 'i, j = T.axis.remap("SS", [i0, j0])', "i = T.axis.opaque(4, i0)"
    axes = f"{opaque}\n            j = T.axis.spatial(8, j0)"
    opaque = block("SS", [4, 8], "y[i, j] = x[i, j]").replace(both, axes)
    assert suggest_layout_transforms(kernel(opaque, shapes), transposed) == {}
    # A constant among the indices, in the buffer or in the map: TVM's check fails there.
    fixed = kernel(block("S", [8], "y[0, i] = x[0, i]"), shapes)
    assert suggest_layout_transforms(fixed, transposed) == {}
    plain = kernel(block("SS", [4, 8], "y[i, j] = x[i, j]"), shapes)
    assert suggest_layout_transforms(plain, [lambda a, b: (b, 0, a)]) == {}
    # TVM takes this for one-to-one, and it is not: places 0 and 1, for -1, are of no element.
    assert suggest_layout_transforms(plain, [lambda a, b: (a, (b + 1) // 4, (b + 1) % 4)]) == {}
    assert suggest_layout_transforms(plain, []) == {}


def test_errors() -> None:
    func = kernel(block("SS", [4, 8], "y[i, j] = x[i, j]"), {"x": "4, 8", "y": "4, 8"})
    same = tir.IndexMap.from_func(lambda a, b: (a, b))
    with pytest.raises(TVMError, match=r"Incompatible PrimFunc .*: 3 index maps for 2 parameters"):
        suggest_layout_transforms(func, [same, same, same])
    with pytest.raises(TVMError, match=r"Mismatch .* y has 2 dimensions, and .* takes 3 indices"):
        suggest_layout_transforms(func, [lambda a, b, c: (a, c, b)])
    with pytest.raises(TypeError, match=r"are tir\.IndexMaps or functions of indices; got int"):
        suggest_layout_transforms(func, [2])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"takes a tir\.PrimFunc; got int"):
        suggest_layout_transforms(1, [same])  # type: ignore[arg-type]
    scalar = tir.PrimFunc([tir.Var("size")], func.body)
    with pytest.raises(TVMError, match="the parameter size is no buffer"):
        suggest_layout_transforms(scalar, [same])
    kept = func.with_body(tir.Text("...", "a statement that is not known"))
    with pytest.raises(UnsupportedError, match="kept as text, for a statement that is not known"):
        suggest_layout_transforms(kept, [same])

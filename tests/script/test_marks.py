"""Underlines and notes in the texts of programs, by object and by the way to it."""

from __future__ import annotations

from itertools import pairwise

import pytest

import relax2xla as relax
from relax2xla import tir
from relax2xla.ir.object_path import ObjectPath
from relax2xla.script import from_source
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.script import tir as T


@I.ir_module
class Module:
    @T.prim_func
    def twice(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i, j in T.grid(2, 2):
            B[i * 2 + j] = A[i * 2 + j] * T.float32(2)
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.twice, (x,), R.Tensor((4,), "float32"))
            z = R.add(y, x)
            R.output(z)
        return z


def body(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line and not line.startswith("#")]


def underlined(text: str) -> list[str]:
    """What stands above carets."""
    found: list[str] = []
    lines = text.split("\n")
    for above, marks in pairwise(lines):
        if marks.strip("^ ") == "" and "^" in marks:
            found.append("".join(c for c, m in zip(above, marks, strict=False) if m == "^"))
    return found


KERNEL = Module["twice"]
MAIN = Module["main"]


def parts(func: tir.PrimFunc) -> tuple[tir.For, tir.For, tir.BufferStore]:
    root = func.body
    seq = root.block.body if isinstance(root, tir.BlockRealize) else root
    assert isinstance(seq, tir.SeqStmt)
    outer = seq.seq[0]
    assert isinstance(outer, tir.For)
    inner = outer.body
    assert isinstance(inner, tir.For)
    assert isinstance(inner.body, tir.BufferStore)
    return outer, inner, inner.body


def test_parts_of_a_kernel():
    assert isinstance(KERNEL, tir.PrimFunc)
    outer, inner, store = parts(KERNEL)
    plain = Module.script()
    text = Module.script(obj_to_underline=[store.value])
    product = "A[i * 2 + j] * T.float32(2.0)"
    assert underlined(text) == [product]
    # Only the marks are more than the text has without them.
    assert [x for x in text.split("\n") if not x or x.strip("^ ")] == plain.split("\n")
    assert underlined(Module.script(obj_to_underline=[outer.loop_var])) == ["ii"]
    # An inner loop that is marked is not written with the one around it.
    text = Module.script(obj_to_underline=[inner])
    assert underlined(text) == [
        "for j in range(2):",
        "B[i * 2 + j] = A[i * 2 + j] * T.float32(2.0)",
    ]


def test_bindings_and_functions():
    assert isinstance(MAIN, relax.Function)
    second = MAIN.body.blocks[0].bindings[1]
    text = Module.script(obj_to_underline=[second], num_context_lines=0, print_line_numbers=True)
    lines = text.split("\n")
    assert lines[0].strip().startswith("(... ")
    assert lines[1].strip().startswith("18             z: R.Tensor")
    assert underlined(text) == [lines[1][2:].strip()]
    way = ObjectPath.root().attr("functions").map_value(Module.get_global_var("twice"))
    # What the end of a way cannot show, what holds it does.
    for path in (way, way.attr("params")):
        shown = underlined(Module.script(path_to_underline=[path]))
        assert shown == body(KERNEL.script(name="twice"))
    assert len(underlined(Module.script(path_to_underline=[ObjectPath.root()]))) == 15


def test_notes_are_comments_that_the_parser_skips():
    assert isinstance(KERNEL, tir.PrimFunc)
    assert isinstance(MAIN, relax.Function)
    outer, _, store = parts(KERNEL)
    first = MAIN.body.blocks[0].bindings[0]
    notes = {outer: "two\nlines", store: "a store", first: "a call"}
    text = Module.script(obj_to_annotate=notes)
    lines = [line.strip() for line in text.split("\n")]
    at = lines.index("# two")
    assert lines[at + 1] == "# lines"
    assert lines[at + 2] == "for i, j in T.grid(2, 2):"
    assert lines[at + 3].endswith("* T.float32(2.0)  # a store")
    assert any(line.startswith("y = R.call_tir") and line.endswith("  # a call") for line in lines)
    relax.ir.assert_structural_equal(from_source(text), Module)


def test_a_let_with_a_note_has_its_body_inside():
    @T.prim_func
    def func():
        x: T.int32 = 1
        y: T.int32 = x + 1
        T.evaluate(y)

    let = func.body
    assert isinstance(let, tir.LetStmt)
    way = ObjectPath.root().attr("body").attr("body")
    lines = body(func.script(path_to_annotate={way: "here"}))
    assert lines[2:] == ["x: T.int32 = 1", "# here", "with T.LetStmt(x + 1) as y:", "T.evaluate(y)"]


def test_what_cannot_be_marked():
    assert isinstance(KERNEL, tir.PrimFunc)
    _, _, store = parts(KERNEL)
    with pytest.raises(ValueError, match="cannot mark a Buffer"):
        KERNEL.script(obj_to_underline=[store.buffer])
    with pytest.raises(ValueError, match="cannot mark a Mul"):
        KERNEL.script(obj_to_annotate={store.value: "a note"})

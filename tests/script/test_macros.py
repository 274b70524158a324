"""R.macro."""

from __future__ import annotations

import pytest

from relax2xla.errors import DiagnosticError
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.script import from_source
from relax2xla.script import relax as R

x = R.prim_value(7)


@R.macro
def scaled(a, k: float = 2.0):
    b = R.multiply(a, R.const(k, "float32"))
    c = R.add(b, b)
    return c


def text(value: str) -> str:
    """A function of one parameter around statements."""
    return f"""
@R.macro(hygienic=False)
def plus_y(a, k=2.0):
    b = R.multiply(y, R.const(k, "float32"))
    return R.add(a, b)

@R.macro()
def pair(a):
    b = R.exp(a)
    return a, b

@R.function(private=True)
def main(z: R.Tensor((4,), "float32")):
{value}
"""


def test_hygienic_macro_as_tvm_parses_it() -> None:
    @R.function(private=True)
    def func(z: R.Tensor((4, 4), dtype="float32")):
        s = scaled(z)
        y = R.exp(s)
        w = scaled(y, k=3.0)
        return w

    # What TVM 0.25 prints.
    expected = """
@R.function(private=True)
def main(z: R.Tensor((4, 4), dtype="float32")) -> R.Tensor((4, 4), dtype="float32"):
    b: R.Tensor((4, 4), dtype="float32") = R.multiply(z, R.const(2.0, "float32"))
    c: R.Tensor((4, 4), dtype="float32") = R.add(b, b)
    s: R.Tensor((4, 4), dtype="float32") = c
    y: R.Tensor((4, 4), dtype="float32") = R.exp(s)
    b_1: R.Tensor((4, 4), dtype="float32") = R.multiply(y, R.const(3.0, "float32"))
    c_1: R.Tensor((4, 4), dtype="float32") = R.add(b_1, b_1)
    w: R.Tensor((4, 4), dtype="float32") = c_1
    return w"""
    assert func.script().endswith(expected)


def test_names_of_the_definition_and_of_the_use() -> None:
    x = R.prim_value(2)

    @R.macro(hygienic=True)
    def of_definition(dtype: str):
        made = R.builtin.alloc_tensor(R.shape([4, 4]), dtype, x)
        return R.shape_of(made)

    @R.macro(hygienic=False)
    def of_use(dtype: str):
        made = R.builtin.alloc_tensor(R.shape([4, 4]), dtype, x)
        return R.shape_of(made)

    x = R.prim_value(1)

    @R.function(private=True)
    def first(z: R.Tensor((4, 4), dtype="float32")):
        shape = of_definition(dtype="float32")
        return shape

    @R.function(private=True)
    def second(z: R.Tensor((4, 4), dtype="float32")):
        shape = of_use(dtype="float32")
        return shape

    assert "R.prim_value(2)" in first.script()
    assert "R.prim_value(1)" in second.script()
    assert not any("R.prim_value(7)" in f.script() for f in (first, second))


def test_macros_in_texts_and_expressions() -> None:
    made = from_source(
        text(
            "    y = R.exp(z)\n    w = R.sin(plus_y(z))\n    t = pair(w)\n"
            "    with R.dataflow():\n        d = plus_y(t[1], k=3.0)\n        R.output(d)\n"
            "    return d"
        )
    )
    want = from_source("""
@R.function(private=True)
def main(z: R.Tensor((4,), "float32")):
    y = R.exp(z)
    b = R.multiply(y, R.const(2.0, "float32"))
    w = R.sin(R.add(z, b))
    b1 = R.exp(w)
    t = w, b1
    with R.dataflow():
        b2 = R.multiply(y, R.const(3.0, "float32"))
        d = R.add(t[1], b2)
        R.output(d)
    return d
""")
    assert_structural_equal(made, want)
    assert_structural_equal(from_source(made.script()), made)


def test_names_of_a_macro_stay_inside() -> None:
    with pytest.raises(DiagnosticError, match=r"undefined name 'c'"):
        from_source(text("    y = scaled(z)\n    return c"), {"scaled": scaled})
    with pytest.raises(DiagnosticError, match="undefined name 'y'") as caught:
        from_source(text("    w = plus_y(z)\n    return w"))
    # The macro's own line, and a note on its use.
    assert str(caught.value).startswith("<str>:4:20: ")
    assert caught.value.__notes__ == ["in the macro 'plus_y', used at <str>:14:9"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("b = R.exp(a)", "must end with `return value`"),
        ("return a\n    b = R.exp(a)\n    return b", "only the last statement of a macro"),
        ("return again(a)", "the macro 'again' calls itself without end"),
        ("R.func_attr({})\n    return a", "R.func_attr must be a statement of a function"),
        ("return R.add(a, q)", "undefined name 'q'"),
    ],
)
def test_bad_bodies(body: str, message: str) -> None:
    source = f"@R.macro(hygienic=False)\ndef again(a):\n    {body}\n" + text(
        "    q = R.exp(z)\n    y = again(z)\n    return y"
    )
    if "'q'" in message:
        source = source.replace("hygienic=False", "hygienic=True", 1)
    with pytest.raises(DiagnosticError, match=message):
        from_source(source)


def test_bad_uses() -> None:
    for call, message in (
        ("scaled(z, w=3)", "'scaled': got an unexpected keyword argument 'w'"),
        ("scaled()", "'scaled': missing a required argument: 'a'"),
    ):
        with pytest.raises(DiagnosticError, match=message) as caught:
            from_source(text(f"    y = {call}\n    return y"), {"scaled": scaled})
        assert str(caught.value).startswith("<str>:14:9: ")
    with pytest.raises(TypeError, match="can be called in TVMScript only"):
        scaled(2)
    with pytest.raises(TypeError, match="hygienic must be True or False"):
        R.macro(hygienic=1)(lambda a: a)
    with pytest.raises(ValueError, match=r"R\.macro decorates a function"):
        R.macro(3)
    for option in ("hygienic=2", "pure=True"):
        with pytest.raises(DiagnosticError, match=r"@R\.macro has one option"):
            from_source(f"@R.macro({option})\ndef f(a):\n    return a\n" + text("    return z"))
    assert repr(scaled).startswith("@R.macro\ndef scaled(a, k: float=2.0):")

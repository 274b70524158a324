"""Texts that are no programs: each error has its cause, its place, and carets under it."""

import textwrap

import pytest

from relax2xla import ir
from relax2xla.errors import DiagnosticError, TVMError
from relax2xla.script import from_source

FUNCTION = '@R.function\ndef main(x: R.Tensor((2, 3), "float32"), o: R.Object):\n'
ERRORS = [
    # body, message, what the carets mark
    ("y = R.ad(x)\nreturn y", "there is no operator R.ad; did you mean 'add'?", "R.ad"),
    ("y = R.nn.rel(x)\nreturn y", "there is no operator R.nn.rel", "R.nn.rel"),
    ("y = R.add(x, z1)\nreturn y", "undefined name 'z1'", "z1"),
    ("y = R.add(x)\nreturn y", "missing a required argument", "R.add(x)"),
    ("y = R.exp(x, axis=1)\nreturn y", "unexpected keyword argument 'axis'", "R.exp(x, axis=1)"),
    (
        "y = R.nn.softmax(x, axis=5)\nreturn y",
        "out of range",
        "R.nn.softmax(x, axis=5)",
    ),
    ("for i in x:\n    pass\nreturn x", "a for loop is not supported", "for i in x:"),
    ("while x:\n    pass\nreturn x", "a while loop is not supported", "while x:"),
    ("y = [a for a in x]\nreturn y", "a comprehension is not supported", "[a for a in x]"),
    ("y = R.add(x, (lambda: x)())\nreturn y", "cannot be called in TVMScript", "lambda: x"),
    ("x += x\nreturn x", "an augmented assignment is not supported", "x += x"),
    ("y = R.exp(x)", "must end with `return value`", "y = R.exp(x)"),
    ("return x\ny = x", "only the last statement", "return x"),
    ("y: R.Tensor(('k',)) = x\nreturn y", "symbolic variable 'k' is not defined", "'k'"),
    ("y: R.Tensor((3, 2)) = R.exp(x)\nreturn y", "'y' is declared as Tensor", "R.Tensor((3, 2))"),
    ("y: 3 = R.exp(x)\nreturn y", "expected an annotation such as R.Tensor", "3"),
    ("y: R.Prim = x\nreturn y", "R.Prim needs arguments", "R.Prim"),
    ("y = x.__class__\nreturn y", "private name '__class__'", "x.__class__"),
    ("y = print(x)\nreturn y", "undefined name 'print'", "print"),
    ("y = danger(x)\nreturn y", "danger cannot be called in TVMScript", "danger"),
    ("y = R.add(x, x)[0]\nreturn y", "only tuples can be indexed", "R.add(x, x)[0]"),
    ("y = (x, x)\nz = y[2]\nreturn z", "out of range", "y[2]"),
    ("y, z = x\nreturn z", "cannot unpack Tensor((2, 3)", "x"),
    ("if x:\n    y = x\nelse:\n    y = x\nreturn y", "must be a bool tensor of rank 0", "x"),
    ("if o:\n    y = x\nreturn x", "an if needs an else", "if o:"),
    ("if o:\n    y = x\nelse:\n    z = x\nreturn x", "binds 'y', the other 'z'", "z = x"),
    ("if o:\n    return x\nelse:\n    y = x\nreturn x", "only at the end", "return x"),
    ("with R.dataflow():\n    y = R.exp(x)\nreturn y", "'y' is visible only in its dataflow", "y"),
    ("with R.dataflow():\n    R.output(q)\nreturn x", "'q' is not bound in this", "q"),
    (
        "with R.dataflow():\n    a = R.exp(x)\n    b = R.exp(a)\n    R.output(b)\nreturn a",
        "R.output(a) at its end makes it visible behind it",
        "a",
    ),
    ("with open(x):\n    pass\nreturn x", "undefined name 'open'", "open"),
    ("n = T.int64()\nm = 10 ** 100000\nreturn x", "the power is too large", "10 ** 100000"),
    ("m = 'a' * 10000000\nreturn x", "the repetition is too long", "'a' * 10000000"),
    ("y = R.output(x)\nreturn y", "R.output is a statement", "R.output(x)"),
    ('y = metadata["relax.expr.Constant"][0]\nreturn y', "show_meta=True", "metadata"),
    ("import os\nreturn x", "an import is not supported", "import os"),
    ("3 + 4\nreturn x", "has no effect", "3 + 4"),
    ("y = R.add(x, None)\nreturn y", "must be a Relax expression", "R.add(x, None)"),
    ("y = R.Tensor((2, x))\nreturn y", "a dimension must be an integer", "R.Tensor((2, x))"),
    ("@R.function\ndef f(a):\n    return a\nreturn f", "needs an annotation", "a"),
    ("@R.function\ndef f(a: R.Object = 3):\n    return a\nreturn f", "cannot have defaults", "3"),
    ("n = T.int64()\nn = T.int32()\nreturn x", "'n' is int64, not int32", "n"),
    ("x.y = x\nreturn x", "only names can be assigned", "x.y"),
    ("del x\nreturn x", "del is not supported", "del x"),
    ("y = R.match_cast(x)\nreturn y", "takes a value and a struct info", "R.match_cast(x)"),
    ("y = f'{x}'\nreturn y", "an f-string holds names of strings and numbers", "f'{x}'"),
    ("y = f'{1:9}'\nreturn y", "an f-string holds names of strings and numbers", "f'{1:9}'"),
    # What is no value: Python's own words for it would say nothing of the text.
    ("y = -R.call_packed\nreturn y", "`-` takes numbers, symbolic integers", "-R.call_packed"),
    ("y = R.Tensor > (2,)\nreturn y", "of type Annotation and an object", "R.Tensor > (2,)"),
    ("n = 1 // 0\nreturn x", "`//` of 1 and 0", "1 // 0"),
    ("d = T.float32[1]\nreturn x", "of type Dtype has no items", "T.float32[1]"),
    ("d = (1, 2)[7]\nreturn x", "no item 7 among the 2", "(1, 2)[7]"),
    ('R.func_attr({"s": [R.Prim]})\nreturn x', "'s' must be a number", '{"s": [R.Prim]}'),
    (
        'y = R.call_packed("f", x, a=T.int64)\nreturn y',
        "'a' must be",
        'R.call_packed("f", x, a=T.int64)',
    ),
    ('y = R.isinf("a", "b")\nreturn y', "too many positional", 'R.isinf("a", "b")'),
    ("y = R.split(x, 2**31)\nreturn y", "sections are more than the", "R.split(x, 2**31)"),
    ("y = I.GlobalVar(x)\nreturn y", "name of a function must be a string", "I.GlobalVar(x)"),
    ("y = R.str(3)\nreturn y", "must be a string", "R.str(3)"),
    ("y = R.ExternFunc(3)\nreturn y", "must be a string", "R.ExternFunc(3)"),
    ("y = R.prim_value(x)\nreturn y", "a literal is a number", "R.prim_value(x)"),
    ("y: R.Tensor((2,), ()) = x\nreturn y", "a dtype is a name", "R.Tensor((2,), ())"),
    ("y: R.Tensor((2,), [0]) = x\nreturn y", "a dtype is a name", "R.Tensor((2,), [0])"),
    ('y: R.Tensor("nm", "int8") = x\nreturn y', "shape must be a tuple", 'R.Tensor("nm", "int8")'),
    ("y: R.Tensor(ndim=R.add) = x\nreturn y", "ndim is the number", "R.Tensor(ndim=R.add)"),
    ("y: R.Tensor(vdevice=3) = x\nreturn y", "the vdevice must be", "R.Tensor(vdevice=3)"),
    ("y: R.Shape(5) = x\nreturn y", "R.Shape takes a list", "R.Shape(5)"),
    ("y: R.Callable(purity=2) = x\nreturn y", "purity is True or", "R.Callable(purity=2)"),
    (
        'm = R.device_mesh((2,), ["a", "b"])\nreturn x',
        "are integers",
        'R.device_mesh((2,), ["a", "b"])',
    ),
    ("m = R.device_mesh((2,), 5)\nreturn x", "a list or range", "R.device_mesh((2,), 5)"),
    ('m = I.Range(0, "n")\nreturn x', "a dimension must be an integer", 'I.Range(0, "n")'),
    ('m = I.vdevice("cuda", R.exp)\nreturn x', "a virtual device is", 'I.vdevice("cuda", R.exp)'),
    ("m = I.vdevice({})\nreturn x", 'a target needs a "kind"', "I.vdevice({})"),
    (
        "y: R.DTensor((8,), 'int8', R.device_mesh((1,), [0]), (8,)) = x\nreturn y",
        "the placement is a text",
        "R.DTensor((8,), 'int8', R.device_mesh((1,), [0]), (8,))",
    ),
]


def danger(x: object) -> object:
    raise RuntimeError("nothing of the text may run")


def check(text: str, message: str, marked: str, **names: object) -> None:
    """The error has ``message``, and its carets are under ``marked``."""
    with pytest.raises(DiagnosticError) as caught:
        from_source(text, names, filename="net.py")
    error = str(caught.value)
    assert message in error
    place, _, _ = error.partition(" ")
    _, line, column, _ = place.split(":")
    lines = text.split("\n")
    begin = int(column) - 1
    assert lines[int(line) - 1][begin : begin + len(marked)] == marked
    shown = error.split("\n")[-2:]
    at = shown[1].index("^")
    assert shown[1].count("^") == len(marked)
    assert shown[0][at : at + len(marked)] == marked
    assert isinstance(caught.value, TVMError)


@pytest.mark.parametrize(("body", "message", "marked"), ERRORS, ids=[e[0] for e in ERRORS])
def test_errors_point_at_their_cause(body: str, message: str, marked: str) -> None:
    check(FUNCTION + textwrap.indent(body, "    ") + "\n", message, marked, danger=danger)


def test_error_of_inference_keeps_message_and_note() -> None:
    text = FUNCTION + "    y = R.nn.softmax(x, axis=5)\n    return y\n"
    with pytest.raises(DiagnosticError, match=r"in relax\.nn\.softmax\(data: ") as caught:
        from_source(text)
    assert isinstance(caught.value.__cause__, TVMError)


MODULE = "@I.ir_module\nclass Module:\n"
MODULE_ERRORS = [
    ("x = 3", "a module holds functions only", "x = 3"),
    ("print(3)", "undefined name 'print'", "print"),
    ("def f(x: R.Object):\n    return x", "must have a decorator", "def f(x: R.Object):"),
    ("@I.ir_module\ndef f(x: R.Object):\n    return x", "expected @R.function", "I.ir_module"),
    ("@R.function(private=3)\ndef f():\n    return ()", "must be True or False", "3"),
    ("@R.function(fast=True)\ndef f():\n    return ()", "has no option 'fast'", "fast=True"),
    ("@R.function\ndef f(x: R.Object):\n    return Module.g(x)", "no function 'g'", "Module.g"),
    ("@R.function\ndef f(x: R.Object, *y):\n    return x", "only plain parameters", "y"),
]


@pytest.mark.parametrize(
    ("body", "message", "marked"), MODULE_ERRORS, ids=[e[0] for e in MODULE_ERRORS]
)
def test_errors_of_modules(body: str, message: str, marked: str) -> None:
    check(MODULE + textwrap.indent(body, "    ") + "\n", message, marked)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither a module nor a function"),
        ("def f(:\n", "not valid Python"),
        ("x = 1\n", "one module or function"),
        ("class M:\n    pass\n", "must be decorated with @I.ir_module"),
        ("@R.function\ndef f():\n    return ()\n" * 2, "more than one definition"),
        ("(" * 5000, "not valid Python"),
        ("\0", "not valid Python"),
        ("@R.function\ndef f():\n    return " + "-" * 5000 + "1\n", "nested too deeply"),
        ("@R.function\ndef f():\n    return " + "-" * 900 + "1\n", "3:912: .*nested too deeply"),
        ('@R.function\ndef f():\n    return ()\nmetadata = I.metadata("[]")\n', "JSON object"),
    ],
)
def test_texts_that_are_no_programs(text: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        from_source(text)


IMPURE = """
@R.function
def main(x: R.Object):
    y = R.call_packed("f", x)
    return y
"""


def test_rules_are_checked() -> None:
    with pytest.raises(DiagnosticError, match="not well-formed"):
        from_source(IMPURE)
    assert isinstance(from_source(IMPURE, check_well_formed=False), ir.Function)
    text = IMPURE.replace("@R.function", "@R.function(check_well_formed=False)")
    assert isinstance(from_source(text), ir.Function)
    text = "@I.ir_module(check_well_formed=False)\nclass Module:\n" + textwrap.indent(
        IMPURE, "    "
    )
    assert isinstance(from_source(text), ir.IRModule)


def test_carets_under_tabs_and_wide_characters() -> None:
    text = '@R.function\ndef main(x: R.Object):\n\ty = R.call_packed("日本", nope)\n\treturn y\n'
    with pytest.raises(DiagnosticError) as caught:
        from_source(text)
    lines = str(caught.value).split("\n")
    assert lines[0].startswith("<str>:3:26: undefined name 'nope'")
    # "日本" takes four cells, so the line of carets is two characters longer before them.
    assert lines[-1] == "   | \t" + " " * 26 + "^^^^"


@pytest.mark.parametrize(
    ("signature", "body", "message"),
    [
        ("x: R.Tensor", "R.add(x, x)", "the result of relax.add is lost"),
        ("x: R.Tensor(ndim=-2)", "pass", "ndim is the number of axes, .* got -2"),
        ('x: R.Tensor(ndim="1")', "pass", "ndim is the number of axes, .* got '1'"),
        ("x: R.Shape(ndim=-3)", "pass", "ndim is the number of axes, .* got -3"),
        ("x: R.Tensor", 'R.func_attr({"global_symbol": "f"})', "is private and has the attribute"),
    ],
)
def test_what_tvm_refuses_too(signature: str, body: str, message: str) -> None:
    head = "from tvm.script import relax as R\n@R.function(private=True)\n"
    with pytest.raises(DiagnosticError, match=message):
        from_source(f"{head}def f({signature}):\n    {body}\n    return x\n")

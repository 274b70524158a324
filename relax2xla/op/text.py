"""``relax.text``: operators on tensors of strings. They run on the host.

A tensor of strings is an object: XLA has no strings, so the virtual machine keeps it as a numpy
array of dtype object and computes with it between compiled parts. Semantics: the string operators
of ONNX (opset 20) and StringNormalizer.
"""

from __future__ import annotations

from typing import Final

from relax2xla.dtypes import is_kind
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import op
from relax2xla.ir.op_param import DTypeLike
from relax2xla.ir.struct_info import ObjectStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.traits import Opaque

CASES: Final = ("NONE", "LOWER", "UPPER")


@op("relax.text.constant", Opaque())
def constant(values: tuple[str, ...], shape: tuple[int, ...]) -> StructInfo:
    """A tensor of strings, written out in row-major order.

    result: ``shape``, strings
    """
    return ObjectStructInfo()


@op("relax.text.concat", Opaque())
def concat(x1: Expr, x2: Expr) -> StructInfo:
    """The strings of two tensors behind each other, with numpy's broadcasting.

    x1, x2: strings that broadcast together
    result: the common shape, strings
    """
    return ObjectStructInfo()


@op("relax.text.equal", Opaque())
def equal(x1: Expr, x2: Expr) -> StructInfo:
    """Whether strings are equal, with numpy's broadcasting: bool.

    x1, x2: strings that broadcast together
    result: the common shape, bool
    """
    return TensorStructInfo(None, "bool")


@op("relax.text.regex_full_match", Opaque())
def regex_full_match(x: Expr, pattern: str = "") -> StructInfo:
    """Whether all of a string matches a regular expression of RE2 (without ``\\p``).

    x: (*s), strings
    result: (*s), bool
    """
    return TensorStructInfo(None, "bool")


@op("relax.text.normalize", Opaque())
def normalize(
    x: Expr, case: str = "NONE", case_sensitive: int = 0, stopwords: tuple[str, ...] = ()
) -> StructInfo:
    """Strings without ``stopwords``, in lower or upper case (``CASES``).

    x: (c,) or (1, c), strings
    result: (d,) or (1, d), with one empty string where none is left
    """
    return ObjectStructInfo()


@op("relax.text.split", Opaque())
def split(x: Expr, delimiter: str = "", maxsplit: int = -1) -> StructInfo:
    """The parts of each string, as Python's ``str.split``, filled up with empty strings.

    An empty ``delimiter`` is white space; ``maxsplit`` -1: every part.

    x: (*s), strings
    result: (*s, m) strings, and how many parts each string has, (*s), int64
    """
    return TupleStructInfo([ObjectStructInfo(), TensorStructInfo(None, "int64")])


@op("relax.text.encode", Opaque())
def encode(x: Expr, values: Expr, default: Expr, keys: tuple[str, ...] = ()) -> StructInfo:
    """The entry of ``values`` (n,) at a string's place in ``keys``, or ``default`` (()).

    x: (*s), strings
    result: (*s), dtype of ``values``
    """
    info = values.struct_info
    return TensorStructInfo(None, info.dtype if isinstance(info, TensorStructInfo) else "")


@op("relax.text.decode", Opaque())
def decode(x: Expr, keys: Expr, values: tuple[str, ...] = (), default: str = "") -> StructInfo:
    """The string of ``values`` at a number's place in ``keys`` (n,), or ``default``.

    x: (*s), a dtype of ``keys``
    result: (*s), strings
    """
    return ObjectStructInfo()


@op("relax.text.places", Opaque())
def places(x: Expr) -> StructInfo:
    """Where each string stands among all of them in row-major order: 0, 1, 2, ...

    What moves strings moves these; :func:`take` looks the strings up.

    x: (*s), strings
    result: (*s), int64
    """
    return TensorStructInfo(None, "int64")


@op("relax.text.ranks", Opaque())
def ranks(x: Expr) -> StructInfo:
    """How many different strings of the tensor come before each in the order of their bytes.

    What compares strings with each other compares these.

    x: (*s), strings
    result: (*s), int64
    """
    return TensorStructInfo(None, "int64")


@op("relax.text.take", Opaque())
def take(x: Expr, at: Expr) -> StructInfo:
    """The strings at places in row-major order.

    x: (*s), strings
    at: (*t), integers of 0 and above, below the number of strings
    result: (*t), strings
    """
    return ObjectStructInfo()


@op("relax.text.join", Opaque())
def join(x1: Expr, x2: Expr) -> StructInfo:
    """All strings of one tensor, then those of another, in row-major order.

    x1: (*s), strings
    x2: (*t), strings
    result: (n,), strings
    """
    return ObjectStructInfo()


@op("relax.text.parse", Opaque())
def parse(x: Expr, dtype: DTypeLike) -> StructInfo:
    """The numbers that strings are the text of, as ONNX's Cast reads them.

    x: (*s), strings; ``inf`` and ``nan`` in any case are floats, 0 is False, other integers True
    result: (*s), ``dtype``
    """
    if not dtype or is_kind(dtype, "complex"):
        raise OpError(f"`dtype` must be one of floats, integers or bool; got {dtype or None!r}")
    return TensorStructInfo(None, dtype)


@op("relax.text.write", Opaque())
def write(x: Expr) -> StructInfo:
    """Numbers as text: floats with up to eight digits, as ONNX Runtime writes them.

    x: (*s), numbers or booleans, which are 1 and 0
    result: (*s), strings
    """
    return ObjectStructInfo()

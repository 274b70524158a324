"""Weights in few bits: groups of q3, q4 and q8, and AWQ, as MLC-LLM lays them out.

``quantize(model, "q4f16_1")`` puts layers with packed weights in the places of a model's linear
layers, experts and embeddings. On CPUs functions in C++ read the packed words as they multiply
(D22); the same in operators is what they are tested against, and runs wherever they cannot.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla import op
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import UnsupportedError
from relax2xla.frontend.nn import op as nn_op
from relax2xla.frontend.nn.exporter import Exporter, add_extern
from relax2xla.frontend.nn.extern import SourceModule
from relax2xla.frontend.nn.llm.experts import ChosenLinear, check_choice, chosen_matmul
from relax2xla.frontend.nn.module import Module
from relax2xla.frontend.nn.modules import Embedding, Linear
from relax2xla.frontend.nn.mutator import Mutator
from relax2xla.frontend.nn.values import Parameter, Tensor, expr_of, wrap_nested
from relax2xla.ir import Expr, TensorStructInfo, const
from relax2xla.runtime.compiler import INCLUDE, has_compiler

Array = npt.NDArray[Any]
_WORD: Final = 32
_SYMBOL: Final = "relax2xla_quantised_matmul"
_CHOSEN: Final = "relax2xla_quantised_chosen"
# Words of a group that the function in C++ reads, by bits.
_NATIVE_WORDS: Final = {3: 4, 4: 4, 8: 8}
_DTYPES: Final = {"f16": "float16", "f32": "float32", "bf16": "bfloat16"}
# Of the last product, whose errors go straight into the logits, under the names of models.
_LAST: Final = ("head", "lm_head", "lm_head.linear", "embed_out")
# Routers of experts are small, and a wrong choice is a large error.
_ROUTER: Final = 256


@dataclass(frozen=True)
class GroupScheme:
    """Groups of ``group`` values that share a scale, the largest of them over ``top``.

    Values are rounded to integers from -top to top, and kept with ``top`` added, ``per_word`` of
    them in a word of 32 bits, the first in the lowest. dtype: of the scales. by_rows: groups lie
    along the rows of a weight (out, in); else words and scales are transposed.
    """

    bits: int
    dtype: str
    group: int
    by_rows: bool
    embedding: bool
    last: bool

    def __post_init__(self) -> None:
        _check_integers("GroupScheme", bits=self.bits, group=self.group)
        if not 2 <= self.bits <= 8:
            raise UnsupportedError(f"GroupScheme: bits are 2 to 8; got {self.bits}")
        if self.group < 1 or self.group % self.per_word:
            raise UnsupportedError(
                f"GroupScheme: a group is a multiple of {self.per_word}, the values of {self.bits} "
                f"bits in a word; got {self.group}"
            )
        _check_scales("GroupScheme", self.dtype)

    @property
    def top(self) -> int:
        """The largest value."""
        return 2 ** (self.bits - 1) - 1

    @property
    def per_word(self) -> int:
        """Values of a word."""
        return _WORD // self.bits

    @property
    def native(self) -> bool:
        """Whether the function in C++ reads it: MLC's sizes of groups, scales of f16 and f32."""
        words = _NATIVE_WORDS.get(self.bits, 0)
        return self.group == words * self.per_word and self.dtype != "bfloat16"

    def packed(self, weight: Array) -> tuple[Array, Array]:
        """Words (rows, words), uint32, and scales (rows, groups) of a weight (rows, columns).

        Axes in front of these stay. A last group that is not full counts as if zeros followed; a
        group of zeros has scale 0. ValueError for what is not finite in the dtype of the scales.
        """
        kind = numpy_dtype(self.dtype)
        *outer, columns = weight.shape
        weight = weight.reshape(-1, columns)
        rows = len(weight)
        groups = -(-columns // self.group)
        full = np.zeros((rows, groups * self.group), kind)
        with np.errstate(over="ignore"):
            full[:, :columns] = weight
        if not np.isfinite(full).all():
            raise ValueError(
                f"a weight holds {np.abs(weight).max():g}, which {self.dtype} does not; quantise "
                "with scales of float32, such as q4f32_1"
            )
        parts = full.reshape(rows, groups, self.group)
        scales = np.abs(parts).max(-1) / kind.type(self.top)
        safe = np.where(scales == 0, kind.type(1), scales)[..., None]
        # Halves away from zero: all these are positive.
        moved = (parts / safe + kind.type(self.top)).astype(np.float32)
        values = np.clip(np.floor(moved + np.float32(0.5)), 0, 2 * self.top).astype(np.uint32)
        values = values.reshape(rows, -1)
        values[:, columns:] = 0
        shifts = np.arange(self.per_word, dtype=np.uint32) * np.uint32(self.bits)
        words = (values.reshape(rows, -1, self.per_word) << shifts).sum(-1, dtype=np.uint32)
        return words.reshape(*outer, -1), scales.astype(kind).reshape(*outer, groups)

    def dequantised(self, words: Tensor, scales: Tensor, columns: int, dtype: str) -> Tensor:
        """The weight (rows, columns) of words (rows, words), in ``dtype``; see ``packed``."""
        rows = words.shape[0]
        values = expr_of(_unpacked(words, self.bits, range(self.per_word)))
        groups = scales.shape[1]
        centred = op.subtract(op.astype(values, self.dtype), const(self.top, self.dtype))
        by_group = op.reshape(centred, (rows, groups, self.group))
        made = op.multiply(by_group, op.expand_dims(expr_of(scales), [2]))
        flat = op.reshape(made, (rows, groups * self.group))
        if groups * self.group > columns:
            flat = op.strided_slice(flat, [1], [0], [columns])
        return wrap_nested(op.astype(flat, dtype), "dequantised")


@dataclass(frozen=True)
class AwqScheme:
    """AWQ of 4 bits: a weight is (q - zero) * scale, both of ``group`` values along ``in``.

    Words go along ``out``: eight values, in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits.
    """

    group: int = 128
    dtype: str = "float16"
    bits: int = 4

    def __post_init__(self) -> None:
        _check_integers("AwqScheme", bits=self.bits, group=self.group)
        if self.bits != 4 or self.group < 1:
            raise UnsupportedError(
                f"AwqScheme: bits are 4, and a group has at least one value; got bits={self.bits}, "
                f"group={self.group}"
            )
        _check_scales("AwqScheme", self.dtype)

    # The place in its word of value 0, 1, ...
    places = (0, 4, 1, 5, 2, 6, 3, 7)

    def packed(self, values: Array) -> Array:
        """Words (rows, columns / 8) of integers below 16 (rows, columns)."""
        rows, columns = values.shape
        shifts = np.array(self.places, np.uint32) * np.uint32(self.bits)
        parts = values.astype(np.uint32).reshape(rows, columns // 8, 8)
        return (parts << shifts).sum(-1, dtype=np.uint32)

    def dequantised(self, words: Tensor, zeros: Tensor, scales: Tensor, dtype: str) -> Tensor:
        """The weight (in, out)."""
        size, out = words.shape[0], scales.shape[1]
        groups = size // self.group

        def wide(packed: Tensor) -> Expr:
            return op.astype(expr_of(_unpacked(packed, self.bits, self.places)), self.dtype)

        centred = op.subtract(
            op.reshape(wide(words), (groups, self.group, out)), op.expand_dims(wide(zeros), [1])
        )
        made = op.multiply(centred, op.expand_dims(expr_of(scales), [1]))
        return wrap_nested(op.astype(op.reshape(made, (size, out)), dtype), "dequantised")


def _check_integers(what: str, **given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise UnsupportedError(f"{what}: {name} is an integer; got {value!r}")


def _check_scales(what: str, dtype: Any) -> None:
    if dtype not in _DTYPES.values():
        known = ", ".join(_DTYPES.values())
        raise UnsupportedError(f"{what}: scales are {known}; got {dtype!r}")


def _unpacked(words: Tensor, bits: int, places: Any) -> Tensor:
    """Values (rows, columns) of words (rows, words), uint32."""
    rows, count = words.shape
    shifts = const(np.array([p * bits for p in places], np.uint32).reshape(1, 1, -1))
    shifted = op.right_shift(op.expand_dims(expr_of(words), [2]), shifts)
    values = op.bitwise_and(shifted, const(2**bits - 1, "uint32"))
    return wrap_nested(op.reshape(values, (rows, count * len(places))), "values")


def scheme(name: str) -> GroupScheme:
    """The scheme that MLC-LLM calls so: q3, q4 or q8, f16, f32 or bf16, and _0 to _2.

    _0: words go along the columns of a weight; _1: along its rows; _2: as 1, embeddings and the
    last product stay as they are. Groups are of 32 values, of q3 of 40. Raises UnsupportedError for
    another name.
    """
    found = re.fullmatch(r"q([348])(f16|f32|bf16)_([012])", name)
    if not found:
        raise UnsupportedError(
            f"quantisation {name!r} is unknown: known are q3, q4 and q8, with f16, f32 or bf16 and "
            "_0, _1 or _2, as in q4f16_1"
        )
    bits, variant = int(found[1]), found[3]
    whole = variant != "2"
    return GroupScheme(
        bits, _DTYPES[found[2]], 40 if bits == 3 else 32, variant != "0", whole, whole
    )


# -- layers ----------------------------------------------------------------------------------------
class GroupQuantizedLinear(Module):
    """``x @ weight.T + bias`` with a weight in groups: ``q_weight``, ``q_scale``.

    native: multiply by the function in C++ where x is float32, which rounds activations to 16 bits
    within each group (half of 1 / 32767 of the largest there is the error); else by operators.
    Words along the columns are transposed for it: once, where the weights are bound.
    """

    def __init__(self, size: int, out: int, how: GroupScheme, bias: bool, native: bool) -> None:
        self.in_features, self.out_features = size, out
        self.scheme, self.native = how, native and how.native
        groups = -(-size // how.group)
        shapes = [(out, groups * how.group // how.per_word), (out, groups)]
        words, scales = shapes if how.by_rows else [s[::-1] for s in shapes]
        self.q_weight = Parameter(words, "uint32")
        self.q_scale = Parameter(scales, how.dtype)
        self.bias: Parameter | None = Parameter((out,)) if bias else None

    @staticmethod
    def from_linear(linear: Linear, how: GroupScheme, native: bool) -> GroupQuantizedLinear:
        """The layer of a linear one; it holds data where that does."""
        out, size = linear.weight.shape
        made = GroupQuantizedLinear(size, out, how, linear.bias is not None, native)
        if made.bias is not None and linear.bias is not None:
            made.bias.to(linear.bias.dtype)
            made.bias.data = linear.bias.data
        _fill(made, linear.weight, how, transposed=not how.by_rows)
        return made

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        words, scales = self.q_weight, self.q_scale
        if not self.scheme.by_rows:
            words, scales = nn_op.permute_dims(words), nn_op.permute_dims(scales)
        y = _product(x, words, scales, self.scheme, self.native)
        return y if self.bias is None else y + self.bias

    def to(self, dtype: str | None = None) -> None:
        """The dtype of the bias; packed weights keep theirs."""
        if self.bias is not None:
            self.bias.to(dtype)


class GroupQuantizedChosenLinear(Module):
    """``ChosenLinear`` with weights in groups: ``q_weight``, ``q_scale``, with an axis in front.

    native: as of ``GroupQuantizedLinear``; by operators all weights are unpacked in each call, not
    only those that are chosen.
    """

    def __init__(self, groups: int, size: int, out: int, how: GroupScheme, native: bool) -> None:
        self.groups, self.in_features, self.out_features = groups, size, out
        self.scheme, self.native = how, native and how.native
        count = -(-size // how.group)
        shapes = [(out, count * how.group // how.per_word), (out, count)]
        words, scales = shapes if how.by_rows else [s[::-1] for s in shapes]
        self.q_weight = Parameter((groups, *words), "uint32")
        self.q_scale = Parameter((groups, *scales), how.dtype)

    @staticmethod
    def from_chosen(linear: ChosenLinear, how: GroupScheme, native: bool) -> Module:
        """The layer of one with plain weights; it holds data where that does."""
        groups, out, size = linear.weight.shape
        made = GroupQuantizedChosenLinear(groups, size, out, how, native)
        _fill(made, linear.weight, how, transposed=not how.by_rows)
        return made

    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        """x: (b, s, in), or (b, 1, in) for the same in all s; which: (b, s); (b, s, out)."""
        how, words, scales = self.scheme, self.q_weight, self.q_scale
        check_choice(x, (self.groups, self.out_features, self.in_features), which)
        if not how.by_rows:
            words, scales = (nn_op.permute_dims(t, [0, 2, 1]) for t in (words, scales))
        if self.native and x.dtype == "float32":
            return _called(_CHOSEN, x, words, scales, which.astype("int32"), how.bits)
        flat = [nn_op.reshape(t, [-1, t.shape[-1]]) for t in (words, scales)]
        weight = how.dequantised(flat[0], flat[1], self.in_features, x.dtype)
        shape = [self.groups, self.out_features, self.in_features]
        return chosen_matmul(x, nn_op.reshape(weight, shape), which)

    def to(self, dtype: str | None = None) -> None:
        """Nothing: packed weights keep their dtypes."""


class GroupQuantizedEmbedding(Module):
    """A table of vectors in groups, of which only the rows that are taken are unpacked."""

    def __init__(self, num: int, dim: int, how: GroupScheme, dtype: str, native: bool) -> None:
        self.num, self.dim, self.scheme = num, dim, how
        self.out_dtype, self.native = dtype, native and how.native
        groups = -(-dim // how.group)
        self.q_weight = Parameter((num, groups * how.group // how.per_word), "uint32")
        self.q_scale = Parameter((num, groups), how.dtype)

    @staticmethod
    def from_embedding(table: Embedding, how: GroupScheme, native: bool) -> GroupQuantizedEmbedding:
        """The table of another one; it holds data where that does."""
        num, dim = table.weight.shape
        made = GroupQuantizedEmbedding(num, dim, how, table.weight.dtype, native)
        _fill(made, table.weight, how)
        return made

    def forward(self, x: Tensor) -> Tensor:
        """Integers of any shape to the vectors that they count: one more axis."""
        flat = nn_op.reshape(x, [-1]) if x.ndim != 1 else x
        words, scales = (nn_op.take(t, flat, axis=0) for t in (self.q_weight, self.q_scale))
        made = self.scheme.dequantised(words, scales, self.dim, self.out_dtype)
        return made if x.ndim == 1 else nn_op.reshape(made, [*x.shape, self.dim])

    def product(self, x: Tensor) -> Tensor:
        """``x @ table.T``, (..., dim) to (..., num): logits with tied weights."""
        return _product(x, self.q_weight, self.q_scale, self.scheme, self.native)

    def to(self, dtype: str | None = None) -> None:
        """The dtype of what it gives; packed weights keep theirs."""
        self.out_dtype = dtype or self.out_dtype


class AwqLinear(Module):
    """``x @ weight + bias`` with a weight of AWQ: ``qweight``, ``qzeros`` and ``scales``."""

    def __init__(self, size: int, out: int, how: AwqScheme, bias: bool = False) -> None:
        if size % how.group or out % 8:
            raise UnsupportedError(
                f"AWQ of ({size}, {out}): the first must be a multiple of {how.group}, the group, "
                "the second one of 8"
            )
        self.scheme = how
        self.qweight = Parameter((size, out // 8), "uint32")
        self.qzeros = Parameter((size // how.group, out // 8), "uint32")
        self.scales = Parameter((size // how.group, out), how.dtype)
        self.bias: Parameter | None = Parameter((out,), how.dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        weight = self.scheme.dequantised(self.qweight, self.qzeros, self.scales, x.dtype)
        y = nn_op.matmul(x, weight)
        return y if self.bias is None else y + self.bias.astype(x.dtype)


def _fill(made: Any, weight: Parameter, how: GroupScheme, transposed: bool = False) -> None:
    if weight.data is None:
        return
    words, scales = how.packed(np.asarray(weight.data))
    made.q_weight.data = words.swapaxes(-1, -2) if transposed else words
    made.q_scale.data = scales.swapaxes(-1, -2) if transposed else scales


# -- products --------------------------------------------------------------------------------------
def _product(x: Tensor, words: Tensor, scales: Tensor, how: GroupScheme, native: bool) -> Tensor:
    """``x`` (..., in) times the transposed weight of words and scales (out, ...)."""
    out = words.shape[0]
    if native and x.dtype == "float32":
        *outer, size = x.shape
        flat = nn_op.reshape(x, [functools.reduce(lambda a, b: a * b, outer, 1), size])
        return nn_op.reshape(_called(_SYMBOL, flat, words, scales, how.bits), [*outer, out])
    weight = how.dequantised(words, scales, x.shape[-1], x.dtype)
    return nn_op.matmul(x, nn_op.permute_dims(weight, [1, 0]))


def _called(symbol: str, *args: Any) -> Tensor:
    """What a function in C++ gives."""
    kernels = _kernels()
    if kernels not in Exporter.current().extern_mods:
        add_extern(kernels)
    return kernels[symbol](*args)


@functools.cache
def _kernels() -> SourceModule:
    """The functions in C++, compiled once for this machine's processor when first run."""

    def like(x: Tensor, words: Tensor, scales: Tensor, bits: int) -> Tensor:
        return Tensor.placeholder([x.shape[0], words.shape[0]], "float32")

    def chosen(x: Tensor, words: Tensor, scales: Tensor, which: Tensor, bits: int) -> Tensor:
        return Tensor.placeholder([*which.shape, words.shape[1]], "float32")

    options = [*SourceModule.get_compile_options("cpp"), "-march=native"]
    source = INCLUDE / "relax2xla" / "quantised.cpp"
    return SourceModule({_SYMBOL: like, _CHOSEN: chosen}, source, "cpp", options)


def quantize(model: Module, how: str | GroupScheme, native: bool | None = None) -> Module:
    """Give a model's linear layers, experts and embeddings weights in groups: it, changed.

    how: a name as "q4f16_1" (see ``scheme``), or a scheme. The dtype of activations stays. Layers
    with ``no_quantization = True``, routers of experts, and layers of symbolic sizes stay as they
    are. native: multiply by the function in C++; None: on CPUs where there is a compiler.
    """
    chosen = scheme(how) if isinstance(how, str) else how
    if not isinstance(chosen, GroupScheme):
        raise UnsupportedError(
            f"quantize takes a name such as q4f16_1, or a GroupScheme; got {type(how).__name__}"
        )
    if not isinstance(model, Module):
        raise UnsupportedError(f"quantize takes an nn.Module; got {type(model).__name__}")
    native = _native() if native is None else native
    quantizer = _Quantizer(chosen, native)
    made = quantizer.visit("", model)
    if not quantizer.count:
        raise UnsupportedError(
            f"quantize: {type(model).__name__} holds no linear layers, experts or embeddings that "
            "are to be quantised and are not yet"
        )
    return made


def _native() -> bool:
    import jax

    return jax.default_backend() == "cpu" and has_compiler()


class _Quantizer(Mutator):
    def __init__(self, how: GroupScheme, native: bool) -> None:
        self._how, self._native = how, native
        self.count = 0

    def visit_module(self, name: str, node: Module) -> Any:
        if getattr(node, "no_quantization", False):
            return node
        made = self._quantised(name, node)
        if made is None:
            return self.visit(name, node)
        self.count += 1
        return made

    def _quantised(self, name: str, node: Module) -> Module | None:
        """The layer that takes the place of ``node``; None: it is none of those that have one."""
        if isinstance(node, Linear) and self._wanted(name, node):
            return GroupQuantizedLinear.from_linear(node, self._how, self._native)
        if isinstance(node, ChosenLinear) and _fixed(node.weight):
            return GroupQuantizedChosenLinear.from_chosen(node, self._how, self._native)
        if isinstance(node, Embedding) and self._how.embedding and _fixed(node.weight):
            return GroupQuantizedEmbedding.from_embedding(node, self._how, self._native)
        return None

    def _wanted(self, name: str, node: Linear) -> bool:
        if not _fixed(node.weight) or (name in _LAST and not self._how.last):
            return False
        return not (name.endswith("gate") and node.weight.shape[0] <= _ROUTER)


def _fixed(weight: Tensor) -> bool:
    info = expr_of(weight).struct_info
    return isinstance(info, TensorStructInfo) and all(isinstance(n, int) for n in weight.shape)

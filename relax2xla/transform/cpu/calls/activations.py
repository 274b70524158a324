"""Activations behind calls: in rows, by the operators that they are, and written out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from relax2xla import op as R
from relax2xla.dpl.rules import Match
from relax2xla.ir import Call, Expr, Op, Var
from relax2xla.ir.make import const
from relax2xla.transform.core.values import number_of


def ended(value: Expr, ending: str) -> Expr:
    """``value`` with what follows it."""
    return _FORMS[ending](value)


def _hard_swish(x: Expr) -> Expr:
    three, six = const(3.0, "float32"), const(6.0, "float32")
    return R.divide(R.multiply(x, R.nn.relu6(R.add(x, three))), six)


def _hard_sigmoid(x: Expr) -> Expr:
    three, six = const(3.0, "float32"), const(6.0, "float32")
    return R.divide(R.nn.relu6(R.add(x, three)), six)


_FORMS: Final[Mapping[str, Callable[[Expr], Expr]]] = {
    "": lambda x: x,
    "relu": R.nn.relu,
    "relu6": R.nn.relu6,
    "hardswish": _hard_swish,
    "sigmoid": R.sigmoid,
    "silu": R.nn.silu,
    "gelu": R.nn.gelu,
    "gelu_tanh": R.nn.gelu_tanh,
    "hardsigmoid": _hard_sigmoid,
}
#: Endings that are one operator.
OPERATORS: Final[Mapping[str, str]] = {
    "relu": "relax.nn.relu",
    "relu6": "relax.nn.relu6",
    "sigmoid": "relax.sigmoid",
    "silu": "relax.nn.silu",
    "gelu": "relax.nn.gelu",
    "gelu_tanh": "relax.nn.gelu_tanh",
}


# -- activations written out -----------------------------------------------------------------------
Samples: TypeAlias = npt.NDArray[np.float64]
# Where activations bend, and so far out that no bound beyond that is taken for none.
_FAR: Final[Samples] = np.logspace(1, 30, 59)
_SAMPLES: Final[Samples] = np.concatenate([-_FAR[::-1], np.linspace(-9.0, 9.0, 73), _FAR])
# Values, numbers and variables of the longest spelling; gelu with tanh has about 30.
_LONGEST: Final = 48


def _erf(x: Samples) -> Samples:
    return np.array([math.erf(v) for v in x])


def _sigmoid(x: Samples) -> Samples:
    return 1 / (1 + np.exp(-x))


def _relu6(x: Samples) -> Samples:
    return np.clip(x, 0, 6)


_ARITHMETIC: Final[Mapping[str, Callable[..., Samples]]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.negative": np.negative,
    "relax.power": np.power,
    "relax.square": np.square,
    "relax.exp": np.exp,
    "relax.erf": _erf,
    "relax.tanh": np.tanh,
    "relax.sigmoid": _sigmoid,
    "relax.nn.relu6": _relu6,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
}
_ACTIVATIONS: Final[Mapping[str, Callable[[Samples], Samples]]] = {
    "hardswish": lambda x: x * _relu6(x + 3) / 6,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * (1 + _erf(x * math.sqrt(0.5))) / 2,
    "gelu_tanh": lambda x: x * _sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
    "hardsigmoid": lambda x: _relu6(x + 3) / 6,
}


class Spelling(NamedTuple):
    """Arithmetic on one value: the leaf, how often it is read, and what is bound on the way."""

    root: Call
    leaf: Expr
    reads: int
    between: Mapping[Expr, Call]

    def ending(self) -> str:
        """The activation whose values these are; "" for none."""
        known: dict[Expr, Samples] = {self.leaf: _SAMPLES}

        def value_of(expr: Expr) -> Samples:
            number = number_of(expr)
            if number is not None:
                return np.full_like(_SAMPLES, number)
            if expr not in known:
                call = self.between.get(expr, expr)
                assert isinstance(call, Call)
                assert isinstance(call.op, Op)
                known[expr] = _ARITHMETIC[call.op.name](*map(value_of, call.args))
            return known[expr]

        # Far out powers are infinite, and what is made of them may be no number.
        with np.errstate(all="ignore"):
            values = value_of(self.root)
            for name, function in _ACTIVATIONS.items():
                if np.allclose(values, function(_SAMPLES), rtol=2e-6, atol=2e-6):
                    return name
        return ""


def spelling(m: Match, leaves: Collection[Expr]) -> Spelling | None:
    """What a match computes of one of ``leaves``, if it is arithmetic that nothing else reads."""
    leaf: Expr | None = None
    reads, times = 0, Counter[Expr]()
    between: dict[Expr, Call] = {}
    todo: list[Expr] = [m.value]
    for _ in range(_LONGEST):
        if not todo:
            break
        expr = todo.pop()
        if expr in leaves:
            if leaf not in (None, expr):
                return None
            leaf, reads = expr, reads + 1
        elif number_of(expr) is None:
            times[expr] += isinstance(expr, Var)
            call = m.bound(expr)
            if not isinstance(call, Call) or not isinstance(call.op, Op):
                return None
            if call.op.name not in _ARITHMETIC:
                return None
            if expr in between:
                continue
            if isinstance(expr, Var):
                between[expr] = call
            todo += call.args
    if todo or leaf is None or any(m.uses(v) != times[v] for v in between):
        return None
    return Spelling(m.call, leaf, reads, between)

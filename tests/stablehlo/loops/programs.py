"""Random kernels as text: loops, affine and data-dependent indices, conditions, accumulations.

Every index stays in range: an expression over loop variables is drawn with its bounds, moved to
start at 0 or taken modulo the axis, or put under a condition that asks for the range.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

Bounds = tuple[int, int]


@dataclass
class Program:
    """Text of a kernel, and shape and dtype of each of its parameters."""

    text: str
    parameters: list[tuple[tuple[int, ...], str]]


@dataclass
class _Writer:
    rng: random.Random
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    loops: dict[str, Bounds] = field(default_factory=dict)
    count: int = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"


def program(seed: int) -> Program:
    """The kernel of a seed."""
    rng = random.Random(seed)
    w = _Writer(rng)
    inputs: dict[str, tuple[tuple[int, ...], str]] = {}
    for name in ("A", "B")[: rng.randint(1, 2)]:
        inputs[name] = (_shape(rng), rng.choice(("float32", "int32", "float32")))
    inputs["I"] = ((rng.randint(2, 6),), "int32")
    outputs = {
        name: (_shape(rng), rng.choice(("float32", "int32")))
        for name in ("C", "D")[: rng.randint(1, 2)]
    }
    scratch = {"S": (_shape(rng), "float32")} if rng.random() < 0.3 else {}
    for name, (shape, dtype) in scratch.items():
        w.line(f"{name} = T.alloc_buffer({shape}, {dtype!r})")
        _fill(w, name, shape, dtype)
    readable = {**inputs, **outputs, **scratch}
    writable = {**outputs, **scratch}
    for _ in range(rng.randint(1, 3)):
        _nest(w, readable, writable, rng.randint(1, 3))
    if scratch:
        name, (shape, dtype) = "C", outputs["C"]
        target = ", ".join("0" for _ in shape)
        source = ", ".join("0" for _ in scratch["S"][0])
        w.line(f"C[{target}] = {_cast(dtype, f'S[{source}]', 'float32')}")
    params = {**inputs, **outputs}
    sizes = {n: "".join(f"{d}, " for d in s) for n, (s, _) in params.items()}
    given = ", ".join(f'{n}: T.Buffer(({sizes[n]}), "{d}")' for n, (_, d) in params.items())
    text = f"@T.prim_func\ndef main({given}):\n" + "\n".join(w.lines) + "\n"
    return Program(text, list(params.values()))


def _shape(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice((1, 2, 3, 4, 6, 12)) for _ in range(rng.randint(1, 3)))


def _cast(dtype: str, value: str, held: str = "") -> str:
    """A conversion; floats that are no small numbers have no integer value."""
    if held == "float32":
        value = f"T.if_then_else(T.fabs({value}) < T.float32(1000), {value}, T.float32(0))"
    return f'T.Cast("{dtype}", {value})'


def _fill(w: _Writer, name: str, shape: tuple[int, ...], dtype: str) -> None:
    names = [w.fresh("i") for _ in shape]
    w.line(f"for {', '.join(names)} in T.grid({', '.join(map(str, shape))}):")
    w.line(f"    {name}[{', '.join(names)}] = T.{dtype}(1)")


Buffers = dict[str, tuple[tuple[int, ...], str]]


def _nest(w: _Writer, readable: Buffers, writable: Buffers, depth: int) -> None:
    """Loops, then one to three statements."""
    rng = w.rng
    outer, base = dict(w.loops), w.depth
    for _ in range(depth):
        name, extent = w.fresh("i"), rng.choice((1, 2, 3, 4, 5, 6, 9, 12))
        kind = rng.choice(("range({})", "range({})", "T.serial({})", "T.unroll({})"))
        if rng.random() < 0.1 and w.loops:
            other = rng.choice(list(w.loops))
            w.line(f"for {name} in range({other} + 1):")
            w.loops[name] = (0, w.loops[other][1])
        else:
            w.line(f"for {name} in {kind.format(extent)}:")
            w.loops[name] = (0, extent - 1)
        w.depth += 1
    if rng.random() < 0.2:
        w.line(f"if {_condition(w, readable)}:")
        w.depth += 1
    for _ in range(rng.randint(1, 2)):
        _store(w, readable, writable)
    if rng.random() < 0.2 and depth < 3:
        _nest(w, readable, writable, 1)
    w.loops, w.depth = outer, base


def _store(w: _Writer, readable: Buffers, writable: Buffers) -> None:
    rng = w.rng
    name = rng.choice(list(writable))
    shape, dtype = writable[name]
    target = f"{name}[{_indices(w, shape, readable)}]"
    value = _value(w, readable, dtype, 2)
    roll = rng.random()
    if roll < 0.35:
        w.line(f"{target} = {target} + {value}")
    elif roll < 0.45:
        w.line(f"{target} = T.{rng.choice(('max', 'min'))}({target}, {value})")
    elif roll < 0.5:
        factors = f"{_value(w, readable, dtype, 1)} * {_value(w, readable, dtype, 1)}"
        w.line(f"{target} = {target} + {factors}")
    else:
        w.line(f"{target} = {value}")


def _affine(w: _Writer) -> tuple[str, Bounds]:
    """An integer expression of the loop variables, and its bounds."""
    rng = w.rng
    names = list(w.loops)
    if not names or rng.random() < 0.15:
        c = rng.randint(0, 3)
        return str(c), (c, c)
    name = rng.choice(names)
    low, high = w.loops[name]
    roll = rng.random()
    if roll < 0.45:
        return name, (low, high)
    if roll < 0.55:
        by = rng.choice((2, 3, 4))
        return f"{name} // {by}", (low // by, high // by)
    if roll < 0.65:
        by = rng.choice((2, 3, 4))
        return f"{name} % {by}", (0, min(by - 1, high))
    a, (al, ah) = _affine(w)
    k = rng.choice((1, 1, 2, 3))
    if roll < 0.9:
        return f"({name} * {k} + {a})", (low * k + al, high * k + ah)
    return f"({name} - {a})", (low - ah, high - al)


def _index(w: _Writer, size: int, readable: Buffers) -> str:
    """An index that stays within an axis."""
    rng = w.rng
    fitting = [n for n, (low, high) in w.loops.items() if low >= 0 and high < size]
    if fitting and rng.random() < 0.5:
        return rng.choice(fitting)
    if rng.random() < 0.1:
        place = (
            _index(w, readable["I"][0][0], {**readable, "I": ((1,), "int32")})
            if readable["I"][0][0] > 1
            else "0"
        )
        return f"I[{place}] % {size}"
    text, (low, high) = _affine(w)
    if low < 0:
        text, high = f"({text} + {-low})", high - low
        low = 0
    if high < size:
        return text
    return f"{text} % {size}" if rng.random() < 0.7 else f"T.min({text}, {size - 1})"


def _indices(w: _Writer, shape: tuple[int, ...], readable: Buffers) -> str:
    return ", ".join(_index(w, n, readable) for n in shape)


def _condition(w: _Writer, readable: Buffers) -> str:
    rng = w.rng
    if rng.random() < 0.6 and w.loops:
        a, (low, high) = _affine(w)
        return f"{a} {rng.choice(('<', '<=', '>', '>=', '==', '!='))} {rng.randint(low, high)}"
    return f"{_value(w, readable, 'float32', 1)} < T.float32(1)"


def _value(w: _Writer, readable: Buffers, dtype: str, depth: int) -> str:
    rng = w.rng
    roll = rng.random()
    if depth == 0 or roll < 0.35:
        name = rng.choice(list(readable))
        shape, held = readable[name]
        text = f"{name}[{_indices(w, shape, readable)}]"
        return text if held == dtype else _cast(dtype, text, held)
    if roll < 0.45:
        return f"T.{dtype}({rng.randint(-3, 3)})"
    if roll < 0.55:
        return _cast(dtype, _affine(w)[0])
    a, b = (_value(w, readable, dtype, depth - 1) for _ in range(2))
    if roll < 0.62:
        return f"T.if_then_else({_condition(w, readable)}, {a}, {b})"
    if roll < 0.68:
        return f"T.{rng.choice(('max', 'min'))}({a}, {b})"
    if roll < 0.74:
        return _guarded_read(w, readable, dtype)
    if dtype == "int32" and roll < 0.85:
        by = rng.choice((2, 3, 4, 7))
        divided = rng.choice(("{} // {}", "{} % {}", "T.truncdiv({}, {})", "T.truncmod({}, {})"))
        return f"({divided.format(a, by)})" if "T." not in divided else divided.format(a, by)
    return f"({a} {rng.choice('+-*' if depth > 1 else '+-')} {b})"


def _guarded_read(w: _Writer, readable: Buffers, dtype: str) -> str:
    """A read that leaves the buffer, under the condition that it does not."""
    rng = w.rng
    name = rng.choice([n for n in readable if n != "I"])
    shape, held = readable[name]
    axis = rng.randrange(len(shape))
    text, _ = _affine(w)
    text = f"{text} - {rng.randint(0, 3)}"
    places = [_index(w, n, readable) for n in shape]
    places[axis] = text
    load = f"{name}[{', '.join(places)}]"
    load = load if held == dtype else _cast(dtype, load, held)
    inside = f"{text} >= 0 and {text} < {shape[axis]}"
    return f"T.if_then_else({inside}, {load}, T.{dtype}({rng.randint(-2, 2)}))"

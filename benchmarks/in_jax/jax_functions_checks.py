"""What is asked of one imported model as a function of JAX."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

#: What is compared with what.
CHECKS = {
    "values": "called as it is, beside the source: eager torch, or the JAX function itself",
    "jit": "under `jax.jit`, beside the source",
    "grad": "`jax.grad` of a weighting of the results by all weights and floats, beside torch's "
    "`autograd` or JAX's gradient of the source; `in float64`: where they differ in float32, which "
    "values near kinks do, both in float64",
    "jvp": "`jax.jvp` of that number in a direction, beside the gradient (or, in dtypes of few "
    "digits, beside `jax.jvp` of the source)",
    "vmap": "`jax.vmap` over two arguments, beside calls one after the other (or, of JAX's "
    "generators of random bits, beside `jax.vmap` of the source)",
    "scan": "the same in `jax.lax.scan`",
    "remat": "the gradient through `jax.checkpoint`, beside that without; in float64 likewise",
    "export": "to the bytes of `jax.export`, back by `from_jax` and `extract_jax`, beside the "
    "source",
}
#: Largest differences beside values of size one.
TOLERANCE = {"values": 1e-4, "jit": 1e-4, "vmap": 1e-4, "scan": 1e-4, "export": 1e-4}
SLACK = 2e-3  # of derivatives in float32: sums of many terms, in another order
WIDE_SLACK = 1e-7  # of those in float64
#: JAX's own refusals, which hold for the source as well.
FORWARD_ONLY = "Reverse-mode differentiation does not work for lax.while_loop"


@dataclass
class Case:
    """A model, what it is called with, and the truth about it.

    fn:     ``fn(params, *args)``, imported
    args:   arrays (trees of them), in the order of the source
    truth:  ``truth(args) -> leaves of the result``, the source's
    slopes: ``slopes(args, weights) -> gradients by name``: of ``sum((y * w).sum())`` over floats
            ``y`` of the result; None where the source has none. Names are paths of weights, and
            numbers of the leaves of ``args``
    wide:   the same in float64, where it can be had
    source: the source itself, for JAX to trace
    """

    fn: Callable[..., Any]
    params: Any
    args: tuple[Any, ...]
    truth: Callable[[tuple[Any, ...]], list[Any]]
    slopes: Callable[[tuple[Any, ...], list[Any]], dict[str, Any] | None]
    tolerance: float = 1.0
    wide: Callable[[], Case] | None = None
    source: Callable[[tuple[Any, ...]], list[Any]] | None = None


def leaves(tree: Any) -> list[Any]:
    """The arrays in a result of torch's or JAX's trees."""
    from torch.utils import _pytree as pytree

    parts = [x for y in pytree.tree_leaves(tree) for x in jax.tree.leaves(y)]
    return [x for x in parts if hasattr(x, "dtype")]


def is_float(x: Any) -> bool:
    """Whether it has a derivative: a real or complex number that is no key."""
    if hasattr(x, "is_floating_point"):  # torch's
        return x.is_floating_point() or x.is_complex()
    return jax.numpy.issubdtype(x.dtype, jax.numpy.inexact)


def weighted(made: list[Any], weights: list[Any]) -> Any:
    """One real number of all floats of a result, those of 8 bits as others."""
    floats = [y for y in made if is_float(y)]
    total = sum(
        ((y.astype("f") if y.dtype.itemsize == 1 else y) * w).sum()
        for y, w in zip(floats, weights, strict=True)
    )
    return jax.numpy.real(total)


def _largest(arrays: Any) -> float:
    """The largest finite size of a number."""
    known = (x[np.isfinite(x)] for x in map(_plain, arrays))
    return max((float(np.abs(x).max(initial=0.0)) for x in known), default=0.0)


def _plain(x: Any) -> np.ndarray[Any, Any]:
    if hasattr(x, "detach"):
        x = x.detach().resolve_conj()
    elif jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    made = np.asarray(x)
    return made.astype("float32") if made.dtype.name == "bfloat16" else made


def difference(got: Any, want: Any, floor: float = 1.0) -> float:
    """The largest difference beside values of size ``floor`` or more; NaN is NaN."""
    worst = 0.0
    for g, w in zip(leaves(got), leaves(want), strict=True):
        g, w = _plain(g), _plain(w)
        if g.shape != w.shape:
            raise ValueError(f"the shape {g.shape} in place of {w.shape}")
        if w.dtype.kind not in "fc":
            worst = max(worst, float(np.inf) if not np.array_equal(g, w) else 0.0)
            continue
        same = (g == w) | (np.isnan(g) & np.isnan(w))
        known = w[np.isfinite(w)]
        scale = max(float(np.abs(known).max(initial=0.0)), floor)
        apart = np.abs(np.where(same, 0, g - w)) / scale
        worst = max(worst, float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0)))
    return worst


class Checks:
    """The checks of one case, each by its name."""

    def __init__(self, case: Case) -> None:
        self.case, self.args = case, case.args
        self.want = case.truth(case.args)
        self.weights = [
            np.cos(np.arange(y.size)).reshape(y.shape).astype("f") / max(1, y.size) ** 0.5
            for y in map(_plain, self.want)
            if is_float(y)
        ]
        flat, self.tree = jax.tree.flatten(self.args)
        self.flat = [x if hasattr(x, "dtype") else np.asarray(x) for x in flat]
        self.places = [i for i, x in enumerate(self.flat) if is_float(x)]
        self.floats = [self.flat[i] for i in self.places]
        self.gradient: Any = None
        #: What the source says of its own derivative, where it has none.
        self.refusal: Exception | None = None
        #: Checks that were made in float64.
        self.wide: set[str] = set()
        self.jitted = jax.jit(self.call)

    def call(self, params: Any, flat: Any) -> list[Any]:
        """The leaves of the result."""
        return leaves(self.case.fn(params, *self.unflat(flat)))

    def unflat(self, flat: Any) -> Any:
        """Arguments of their leaves."""
        return jax.tree.unflatten(self.tree, flat)

    def loss(self, params: Any, floats: Any, call: Any = None) -> Any:
        """One number of all floats of the result."""
        flat = list(self.flat)
        for i, x in zip(self.places, floats, strict=True):
            flat[i] = x
        return weighted((call or self.call)(params, flat), self.weights)

    def says(self, check: str, error: Exception) -> bool:
        """Whether an error of a check is the source's own."""
        if check in ("grad", "remat") and FORWARD_ONLY in str(error):
            return True
        refusal = self.refusal
        return error is refusal or (
            check in ("jvp", "remat")
            and refusal is not None
            and (type(error), str(error)) == (type(refusal), str(refusal))
        )

    def _wanted(self) -> bool:
        return bool(self.weights and (self.floats or jax.tree.leaves(self.case.params)))

    # -- one method a check: the error, or None where there is nothing to be checked
    def values(self) -> float:
        return difference(self.call(self.case.params, self.flat), self.want)

    def jit(self) -> float:
        return difference(self.jitted(self.case.params, self.flat), self.want)

    def grad(self) -> float | None:
        if not self._wanted():
            return None
        return self._or_in_float64("grad", self._beside_slopes())

    def _or_in_float64(self, check: str, error: float | None) -> float | None:
        """The error of a check; that in float64 where float32 does not do, and there is one."""
        if error is None or error <= SLACK * self.case.tolerance or self.case.wide is None:
            return error
        with jax.enable_x64(True):
            inner = getattr(Checks(replace(self.case.wide(), wide=None)), check)()
        self.wide.add(check)
        return inner

    def _beside_slopes(self) -> float | None:
        try:
            slopes = self.case.slopes(self.args, self.weights)
        except Exception as e:
            self.refusal = e
            raise
        if slopes is None:
            return None
        got = self._gradient()
        found = dict(_named(got[0]))
        found |= {str(i): g for i, g in zip(self.places, got[1], strict=True)}
        if missing := {*slopes} - {*found}:
            raise ValueError(f"no gradient of {sorted(missing)[:5]}")
        floor = max(1e-2 * _largest(slopes.values()), 1e-6)
        return max((difference(found[n], slopes[n], floor) for n in slopes), default=0.0)

    def _gradient(self) -> Any:
        if self.gradient is None:
            run = jax.jit(jax.grad(self.loss, (0, 1)))
            self.gradient = run(self.case.params, self.floats)
        return self.gradient

    def jvp(self) -> float | None:
        if not self._wanted():
            return None
        given = (self.case.params, self.floats)
        ways = jax.tree.map(
            lambda x: np.sin(np.arange(x.size) + 1).reshape(x.shape).astype(x.dtype), given
        )

        def slope(loss: Callable[..., Any]) -> float:
            return float(jax.jit(lambda g, w: jax.jvp(loss, g, w)[1])(given, ways))

        made = slope(self.loss)
        try:
            gradient = self._gradient()
        except ValueError as e:
            if FORWARD_ONLY not in str(e):
                raise
            return self._by_differences(given, ways, made)
        parts = [
            np.real(_plain(g).astype("D") * w)
            for g, w in zip(jax.tree.leaves(gradient), jax.tree.leaves(ways), strict=True)
        ]
        along = sum(float(p.sum()) for p in parts)
        size = sum(float(np.abs(p).sum()) for p in parts)
        if np.isnan(along) and np.isnan(made):
            return 0.0
        error = abs(made - along) / max(size, 1e-6)
        if error <= SLACK or self.case.source is None:
            return error
        source = self.case.source  # few digits: forward and reverse mode round in other places
        own = slope(lambda p, x: self.loss(p, x, lambda _, flat: source(self.unflat(flat))))
        return abs(made - own) / max(size, 1e-6)

    def _by_differences(self, given: Any, ways: Any, made: float) -> float:
        """Beside the slope between two points, where there is no reverse mode."""
        h = 1e-2
        run = jax.jit(self.loss)

        def moved(step: float) -> Any:
            return jax.tree.map(lambda x, w: x + step * w, given, ways)

        ends = [run(*moved(step)) for step in (h, -h)]
        slope = float(ends[0] - ends[1]) / (2 * h)
        # Differences in float32 have few digits.
        return max(0.0, abs(made - slope) / max(abs(slope), 1.0) - 0.05)

    def _pairs(self) -> tuple[list[Any], list[list[Any]]]:
        other = [
            x * np.asarray(0.75, x.dtype) if i in self.places else x
            for i, x in enumerate(self.flat)
        ]
        rows = [self.flat, other]
        return [jax.numpy.stack(x) for x in zip(*rows, strict=True)], rows

    def vmap(self) -> float | None:
        if not self.flat:
            return None
        stacked, rows = self._pairs()
        got = jax.jit(jax.vmap(self.call, (None, 0)))(self.case.params, stacked)
        error = self._beside_a_loop(got, rows)
        if error <= TOLERANCE["vmap"] or self.case.source is None:
            return error
        source = self.case.source
        return difference(got, jax.vmap(lambda flat: source(self.unflat(flat)))(stacked))

    def scan(self) -> float | None:
        if not self.flat:
            return None
        stacked, rows = self._pairs()

        @jax.jit
        def run(params: Any, xs: Any) -> Any:
            return jax.lax.scan(lambda c, x: (c, self.call(params, x)), None, xs)[1]

        return self._beside_a_loop(run(self.case.params, stacked), rows)

    def _beside_a_loop(self, got: Any, rows: Any) -> float:
        want = [self.jitted(self.case.params, row) for row in rows]
        parts = [[y[i] for y in got] for i in range(len(rows))]
        return max(difference(g, w) for g, w in zip(parts, want, strict=True))

    def remat(self) -> float | None:
        if not self._wanted():
            return None
        want = self._gradient()
        call = jax.checkpoint(self.call)
        run = jax.jit(jax.grad(lambda p, x: self.loss(p, x, call), (0, 1)))
        got = run(self.case.params, self.floats)
        floor = max(1e-2 * _largest(jax.tree.leaves(want)), 1e-6)
        return self._or_in_float64("remat", difference(got, want, floor))

    def export(self) -> float:
        from jax import export

        from relax2xla.interop.jax import extract_jax, from_jax

        given = (self.case.params, self.flat)
        data = export.export(self.jitted)(*given).serialize()
        fn, params = extract_jax(from_jax(data))
        return difference(jax.jit(lambda p, g: fn(p, *g))(params, given), self.want)


def _named(tree: Any, path: str = "") -> Any:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _named(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, tree


def outcome(name: str, make: Callable[[], Case]) -> dict[str, Any]:
    """The outcome of every check of a case, as JSON has it."""
    start = time.process_time()
    row: dict[str, Any] = {"name": name, "checks": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            case = make()
            checks = Checks(case)
        except Exception as e:
            row["checks"]["values"] = _failed(e)
            return row
        for check in CHECKS:
            try:
                error = getattr(checks, check)()
            except Exception as e:
                row["checks"][check] = {"status": "none"} if checks.says(check, e) else _failed(e)
                continue
            if error is None:
                row["checks"][check] = {"status": "none"}
                continue
            limit = TOLERANCE.get(check, SLACK) * case.tolerance
            found: dict[str, Any] = {"status": "pass", "error": error}
            if check in checks.wide:
                limit = WIDE_SLACK
                found["in"] = "float64"
            if not error <= limit:
                found = {
                    "status": "wrong",
                    "reason": f"differs by {error:.1e}",
                    "error": str(error),
                }
            row["checks"][check] = found
    jax.clear_caches()
    return row | {"seconds": round(time.process_time() - start, 1)}


def _failed(e: Exception) -> dict[str, str]:
    # Places in files are named from the package or the repository on, not from this machine's root.
    text = re.sub(r"/[\w./-]*/(?=(?:site-packages|tests|benchmarks|relax2xla)/)", "", str(e))
    return {"status": "error", "reason": f"{type(e).__name__}: {text[:400]}"}

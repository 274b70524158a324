"""What tests of raising share: programs as rows, several in one, and results side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np

import relax2xla as rx
from relax2xla.ir import Call, Expr, Function, IRModule, TensorStructInfo, Tuple, Var
from relax2xla.ir.rewrite import Rewriter, bindings_of
from relax2xla.stablehlo import parse, read
from relax2xla.transform import RaiseStableHLO

T = TensorStructInfo
F, INT, B, H, U = "float32", "int32", "bool", "float16", "uint32"


def names(func: Function) -> list[str]:
    """Operators of a function in order."""
    return [
        b.value.op.name.removeprefix("relax.")
        for b in bindings_of(func.body)
        if isinstance(b.value, Call) and isinstance(b.value.op, rx.ir.Op)
    ]


def number(value: float) -> Expr:
    """A float32 number."""
    return rx.const(np.float32(value))


def param(i: int, spec: Any) -> Var:
    """A parameter of a shape, or of a (shape, dtype)."""
    shape, dtype = spec, F
    if len(spec) == 2 and isinstance(spec[1], str):
        shape, dtype = spec
    return Var(f"x{i}", T((shape,) if isinstance(shape, int) else shape, dtype))


def joined(programs: list[tuple[str, IRModule]]) -> IRModule:
    """All programs in one module, which XLA compiles at once; ``main`` calls each."""
    functions: dict[Any, Any] = {}
    params: list[Var] = []
    calls: list[Expr] = []
    for label, mod in programs:
        new = {g: rx.GlobalVar(f"{label}_{g.name_hint}", f.struct_info_) for g, f in mod.items()}
        for g, f in mod.items():
            attrs = {k: v for k, v in f.attrs.items() if k == "private"}
            rename = Rewriter(rule=lambda e, new=new: new.get(e))  # type: ignore[arg-type]
            functions[new[g]] = rename.function(f).replace(attrs=attrs)
        own = [Var(f"{label}_{i}", p.struct_info_) for i, p in enumerate(mod["main"].params)]
        params += own
        calls.append(Call(new[mod.get_global_var("main")], own))
    builder = rx.BlockBuilder(rx.IRModule(functions))
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(Tuple([builder.emit(c) for c in calls])))
    return builder.get()


def leaves(value: Any) -> list[Any]:
    """Arrays of nested tuples."""
    if isinstance(value, tuple):
        return [leaf for v in value for leaf in leaves(v)]
    return [value]


def close(a: Any, b: Any) -> bool:
    """Whether two results are the same up to rounding; integers exactly."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool((a == b).all())
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(finite, a, 0), np.where(finite, b, 0)
    size = np.abs(a).max(initial=1.0)
    rtol = 2e-3 if a.dtype.itemsize == 2 else 2e-6
    return bool((same | (finite & (np.abs(a - b) <= rtol * size))).all())


def same_values(programs: list[tuple[str, IRModule, list[Any]]], *ways: bool) -> int:
    """Run each program and its raised forms, inlined or not (``ways``).

    Gives how many operators took the place of rows in the first form.
    """
    all_of: list[IRModule] = []
    inputs: list[Any] = []
    rows: list[tuple[str, int, list[int]]] = []
    operators = 0
    for label, mod, arguments in programs:
        forms: list[IRModule] = []
        for inline in ways:
            made = RaiseStableHLO(inline=inline)(mod)
            assert rx.analysis.well_formed(made), label
            again = RaiseStableHLO(inline=inline)(made)
            rx.ir.assert_structural_equal(again, made)
            text = rx.script.from_source(made.script(show_meta=True))
            rx.ir.assert_structural_equal(text["main"], made["main"])
            if not any(rx.ir.structural_equal(made, form) for form in forms):
                forms.append(made)
        for f in forms[0].relax_functions().values():
            operators += sum(not n.startswith(("stablehlo.", "chlo.")) for n in names(f))
        at = len(all_of)
        rows.append((label, at, list(range(at + 1, at + 1 + len(forms)))))
        all_of += [mod, *forms]
        inputs += [*arguments] * (1 + len(forms))
    named = [(f"p{i}", mod) for i, mod in enumerate(all_of)]
    results = rx.testing.evaluate(joined(named), inputs)
    wrong: list[str] = []
    for label, at, raised in rows:
        for other in raised:
            pairs = zip(leaves(results[at]), leaves(results[other]), strict=True)
            wrong += [label for x, y in pairs if not close(np.asarray(x), np.asarray(y))][:1]
    assert not wrong, wrong
    return operators


def lowered(fn: Callable[..., Any], args: Any) -> IRModule:
    """A JAX function as rows."""
    return read(jax.jit(fn).lower(*args).compiler_ir("stablehlo"))


def raised_text(text: str, **options: Any) -> Function:
    """The raised ``main`` of a StableHLO program."""
    return RaiseStableHLO(**options)(read(parse(text)))["main"]

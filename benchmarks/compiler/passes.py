"""Every pass of the registry on programs of 1,000 to 100,000 bindings: microseconds a binding.

Most passes get a chain of sums, sines and products in a dataflow block, with what passes look for
in between: copies, constants, fields of tuples, values that are computed twice, and some that
nothing uses. Passes that leave such a program as it is get one on which they have to work: with
weights, with a loss, with calls of kernels (:data:`PROGRAMS`). A pass that is linear has the same
figure in each column. Where one binding becomes several, the last column says what each of those
that come out takes. Times are processor seconds of this process; the second of two runs counts, so
that nothing is imported in it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from relax2xla import op, te, topi
from relax2xla.builder import BlockBuilder
from relax2xla.dpl import DFPattern, is_op, wildcard
from relax2xla.ir import (
    Expr,
    IRModule,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    Var,
    VDevice,
    const,
)
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.transform import (
    AlterOpImpl,
    AnnotateTIROpPattern,
    AttachExternModules,
    BindParams,
    BindSymbolicVars,
    CallTIRRewrite,
    ConvertLayout,
    FuseOps,
    FuseOpsByPattern,
    Gradient,
    ObjectsToArrays,
    Pass,
    UpdateParamStructInfo,
    UpdateParamType,
    UpdateVDevice,
)
from relax2xla.transform.core.registry import all_passes

SIZES = (1_000, 10_000, 100_000)
GOAL = 20.0  # microseconds a binding
# Above this many at 10,000 bindings a pass is not measured on 100,000.
PATIENCE = 1000.0
PLACE, OTHER = VDevice("llvm"), VDevice("cuda")


def patterns() -> list[tuple[str, DFPattern]]:
    """Twenty patterns, the longer ones first: activations and scales, alone and behind products."""
    ones: dict[str, Callable[[DFPattern], DFPattern]] = {
        "relu": lambda y: is_op("relax.nn.relu")(y),
        "gelu": lambda y: is_op("relax.nn.gelu")(y),
        "silu": lambda y: is_op("relax.nn.silu")(y),
        "sin": lambda y: is_op("relax.sin")(y),
        "softmax": lambda y: is_op("relax.nn.softmax")(y),
    }
    product = is_op("relax.matmul")(wildcard(), wildcard())
    biased = is_op("relax.add")(product, wildcard())
    scaled = is_op("relax.multiply")(product, wildcard())
    made = [
        (f"{kind}_{name}", one(start))
        for kind, start in (("biased", biased), ("scaled", scaled), ("product", product))
        for name, one in ones.items()
    ]
    made += [("biased", biased), ("scaled", scaled), ("product", product)]
    norm = is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard())
    return [*made, ("norm", norm), ("sum", is_op("relax.add")(wildcard(), wildcard()))]


def _altered() -> Pass:
    """A sine of the transposed tensor for each sine."""
    x = te.placeholder((16, 4), "float32", "x")
    kernel = te.create_prim_func([x, topi.sin(x)]).without_attr("global_symbol")
    return AlterOpImpl({"relax.sin": kernel}, {"relax.sin": [lambda i, j: (j, i)] * 2})


GIVEN: dict[str, Callable[[], Pass]] = {
    "AlterOpImpl": _altered,
    "AttachExternModules": lambda: AttachExternModules([]),
    "BindParams": lambda: BindParams("main", {}),
    "BindSymbolicVars": lambda: BindSymbolicVars({}),
    "ConvertLayout": lambda: ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
    "FuseOpsByPattern": lambda: FuseOpsByPattern(patterns()),
    "Gradient": lambda: Gradient("main"),
    "ObjectsToArrays": lambda: ObjectsToArrays("main", {}),
    "UpdateParamStructInfo": lambda: UpdateParamStructInfo(
        lambda v: TensorStructInfo((8, 16)) if v.name_hint == "x" else None
    ),
    "UpdateParamType": lambda: UpdateParamType(
        lambda v: TensorStructInfo((8, 16)) if v.name_hint == "x" else None
    ),
    "UpdateVDevice": lambda: UpdateVDevice(OTHER, 0),
}


@cache
def chain(bindings: int) -> IRModule:
    """``main`` with about that many bindings."""
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((4, 16)))
    steps: tuple[Callable[[Expr], Expr], ...] = (
        lambda y: op.add(y, x),
        op.sin,
        lambda y: op.multiply(y, const(0.5, "float32")),
        lambda y: y,
        op.sin,
        lambda y: Tuple([y, x]),
        lambda y: TupleGetItem(y, 0),
        lambda y: op.add(const(1.0, "float32"), const(2.0, "float32")),
        lambda y: op.multiply(y, x),
    )
    with bb.function("main", [x]):
        with bb.dataflow():
            y: Expr = x
            for i in range(bindings - 1):
                y = bb.emit(steps[i % len(steps)](y))
            y = bb.emit_output(op.add(y, x))
        bb.emit_func_output(y)
    return bb.get()


@cache
def weights(bindings: int) -> IRModule:
    """``main`` of an input and two weights; half of it depends on weights alone."""
    bb, info = BlockBuilder(), TensorStructInfo((4, 16))
    x, v, w = (Var(name, info) for name in "xvw")
    with bb.function("main", [x, v, w], {"num_input": 1}):
        with bb.dataflow():
            y, z = x, v
            for i in range((bindings - 1) // 4):
                z = bb.emit(op.sin(z) if i % 2 else op.multiply(z, w))
                u = bb.emit(op.add(z, const(0.5, "float32")))
                y = bb.emit(op.multiply(y, u))
                y = bb.emit(op.sin(y))
            y = bb.emit_output(op.add(y, x))
        bb.emit_func_output(y)
    return bb.get()


@cache
def loss(bindings: int) -> IRModule:
    """``main`` that ends in one number, of sums, sines, products and activations."""
    bb, info = BlockBuilder(), TensorStructInfo((4, 4))
    x, w = Var("x", info), Var("w", info)
    steps: tuple[Callable[[Expr], Expr], ...] = (
        lambda y: op.matmul(y, w),
        lambda y: op.add(y, x),
        op.nn.relu,
        lambda y: op.multiply(y, const(0.5, "float32")),
        op.sin,
        lambda y: op.multiply(y, x),
    )
    with bb.function("main", [x, w]):
        with bb.dataflow():
            y: Expr = x
            for i in range(bindings - 1):
                y = bb.emit(steps[i % len(steps)](y))
            y = bb.emit_output(op.sum(y))
        bb.emit_func_output(y)
    return bb.get()


@cache
def kernels(bindings: int) -> IRModule:
    """``main`` that calls kernels, each of them elementwise, with their patterns."""
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((4, 16)))
    steps: tuple[Callable[[Expr], Expr], ...] = (
        lambda y: bb.call_te(topi.add, y, x),
        lambda y: bb.call_te(topi.sin, y, primfunc_attrs={"operator_name": "relax.sin"}),
        lambda y: bb.call_te(topi.multiply, y, te.const(0.5, "float32")),
        lambda y: bb.call_te(topi.nn.relu, y),
    )
    info = TensorStructInfo((4, 16))
    with bb.function("main", [x]):
        with bb.dataflow():
            # Each kernel is made once; calls of it are repeated.
            made = [step(Var("y", info)) for step in steps]
            y: Expr = x
            for i in range(bindings - 1):
                y = bb.emit(_called(made[i % len(made)], y))
            y = bb.emit_output(_called(made[1], y))
        bb.emit_func_output(y)
    return AnnotateTIROpPattern()(bb.get())


def _called(call: Any, y: Expr) -> Expr:
    """``call`` of a kernel, with ``y`` as its first operand."""
    operands = Tuple([y, *call.args[1].fields[1:]])
    return type(call)(call.op, [call.args[0], operands], call.attrs, call.sinfo_args)


@cache
def fused(bindings: int) -> IRModule:
    """:func:`kernels`, whose calls FuseOps has put into functions."""
    return FuseOps()(kernels(bindings))


@cache
def written(bindings: int) -> IRModule:
    """:func:`kernels`, each of which writes into a tensor that is allocated before.

    A call is three bindings: the allocation, the call, and the name of what it has written.
    """
    return CallTIRRewrite()(kernels(bindings // 3))


@cache
def placed(bindings: int) -> IRModule:
    """A chain of sums and sines of tensors on a device of the module."""
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((4, 16), "float32", PLACE))
    with bb.function("main", [x]):
        with bb.dataflow():
            y: Expr = x
            for i in range(bindings - 1):
                y = bb.emit(op.sin(y) if i % 2 else op.add(y, x))
            y = bb.emit_output(op.add(y, x))
        bb.emit_func_output(y)
    mod = bb.get()
    mod.update_global_info("vdevice", [PLACE])
    return mod


@cache
def transformer(layers: int) -> IRModule:
    """``main`` of so many layers of attention and two products, about 30 bindings each."""
    bb, wide = BlockBuilder(), 64
    x = Var("x", TensorStructInfo((16, wide)))
    w, v = Var("w", TensorStructInfo((wide, wide))), Var("v", TensorStructInfo((wide,)))
    with bb.function("main", [x, w, v]):
        with bb.dataflow():
            y: Expr = x
            for _ in range(layers):
                h = bb.emit(op.nn.layer_norm(y, v, v, [-1]))
                a, b, c = (bb.emit(op.add(bb.emit(op.matmul(h, w)), v)) for _ in range(3))
                scores = bb.emit(op.matmul(a, bb.emit(op.permute_dims(b))))
                scores = bb.emit(op.multiply(scores, const(0.125, "float32")))
                mixed = bb.emit(op.matmul(bb.emit(op.nn.softmax(scores)), c))
                y = bb.emit(op.add(y, bb.emit(op.add(bb.emit(op.matmul(mixed, w)), v))))
                h = bb.emit(op.nn.layer_norm(y, v, v, [-1]))
                h = bb.emit(op.nn.gelu(bb.emit(op.add(bb.emit(op.matmul(h, w)), v))))
                y = bb.emit(op.add(y, bb.emit(op.add(bb.emit(op.matmul(h, w)), v))))
            y = bb.emit_output(y)
        bb.emit_func_output(y)
    return bb.get()


PROGRAMS: dict[str, Callable[[int], IRModule]] = {
    "AlterOpImpl": kernels,
    "BundleModelParams": weights,
    "CallTIRRewrite": kernels,
    "CallsAsValues": written,
    "FuseOps": kernels,
    "FuseOpsByPattern": loss,
    "FuseTIR": fused,
    "Gradient": loss,
    "LazyTransformParams": weights,
    "LiftTransformParams": weights,
    "RealizeVDevice": placed,
    "SpecializePrimFuncBasedOnCallSite": kernels,
    "UpdateVDevice": placed,
}


def bindings_in(mod: IRModule) -> int:
    """How many bindings the functions of a module have."""
    return sum(1 for func in mod.relax_functions().values() for _ in bindings_deep(func))


def seconds(made: Pass, mod: IRModule) -> tuple[float, IRModule]:
    """Processor seconds of the pass, and what it makes."""
    start = time.process_time()
    new = made(mod)
    return time.process_time() - start, new


def row(name: str, cls: type[Any], sizes: Iterable[int]) -> tuple[list[float | str], str]:
    """Microseconds a binding for each size, or why there is none; the same of what comes out."""
    found: list[float | str] = []
    out = ""
    program = PROGRAMS.get(name, chain)
    for size in sizes:
        if found and (isinstance(found[-1], str) or found[-1] > PATIENCE):
            found.append("")
            continue
        try:
            # What is there already is not searched for garbage while a pass runs.
            gc.collect()
            gc.freeze()
            mod, made = program(size), GIVEN.get(name, cls)()
            if len(found) == 0:
                seconds(made, mod)
            taken, new = seconds(made, mod)
        except Exception as e:
            found.append(type(e).__name__)
            continue
        found.append(1e6 * taken / size)
        more = bindings_in(new) - (bindings_in(mod) if name in KEEPS else 0)
        out = f"{1e6 * taken / more:.1f}" if more > 1.2 * size else ""
    return found, out


# These leave the function that they are about in the module.
KEEPS = frozenset({"Gradient"})


def main(quick: bool = False, only: Iterable[str] = ()) -> None:
    """Print the table; ``only``: of these passes."""
    sizes = SIZES[:2] if quick else SIZES
    print(
        "| pass | "
        + " | ".join(f"{s:,} bindings, us each" for s in sizes)
        + f" | goal {GOAL:g} | us each that comes out |"
    )
    print("|---" * (len(sizes) + 3) + "|")
    chosen = set(only)
    for name, cls in all_passes().items():
        if (chosen and name not in chosen) or cls.kind == "refused":
            continue
        figures, out = row(name, cls, sizes)
        shown = [f if isinstance(f, str) else f"{f:.1f}" for f in figures]
        last = [f for f in figures if not isinstance(f, str)]
        verdict = "" if not last else "met" if last[-1] <= GOAL else "missed"
        print(f"| `{name}` | {' | '.join(shown)} | {verdict} | {out} |", flush=True)
    if not chosen or "FuseOpsByPattern" in chosen:
        mod, given = transformer(24), patterns()
        taken = min(seconds(FuseOpsByPattern(given), mod)[0] for _ in range(3))
        print(
            f"\nFuseOpsByPattern, {len(given)} patterns, 24 layers ({bindings_in(mod)} bindings): "
            f"{taken:.3f} s, goal 1 s"
        )

"""What ``jax.export`` writes, against JAX's own reader and JAX's own results."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import CallError, DeviceError, FileFormatError, StableHLOParseError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.importers.files import format_of
from relax2xla.interop.jax import to_jax
from relax2xla.ir.source_names import source_name
from relax2xla.stablehlo.exported import Exported, is_exported, read_exported

pytest.importorskip("flatbuffers", reason="JAX writes with it")

S = jax.ShapeDtypeStruct
N, M = jax.export.symbolic_shape("n, m")
X = np.arange(6, dtype=np.float32)
SQUARE = 3 * np.eye(3, dtype=np.float32) + 0.5
KEY = jax.random.key(3)
# The CPU is neither the first nor the only one.
PLATFORMS = ["cuda", "cpu", "tpu"]


def by_platform(a: Any) -> Any:
    more = jax.lax.platform_dependent(a, cpu=lambda v: v + 1, default=lambda v: v + 100)
    return more * a.shape[0]


# A function, what it is exported for, and what it is called with.
PROGRAMS: dict[str, tuple[Any, Any, Any]] = {
    "static": (by_platform, [X], [X]),
    "unused arguments": (lambda a, b, c: {"r": a + c}, [X, X, X], [X, X, X]),
    "symbolic": (by_platform, [S((N,), "float32")], [X]),
    "a window": (jnp.cumsum, [S((N,), "float32")], [X]),
    "LAPACK or cuSOLVER": (jnp.linalg.cholesky, [SQUARE], [SQUARE]),
    "the same, symbolic": (jnp.linalg.cholesky, [S((N, N), "float32")], [SQUARE]),
    "products": (
        lambda a, b: a @ b,
        [S((N, 2 * M), "float32"), S((2 * M, M), "float32")],
        [np.ones((3, 4), "f"), np.ones((4, 2), "f")],
    ),
    "a key": (
        lambda k, a: a + jax.random.normal(k, a.shape),
        [S((), KEY.dtype), S((N,), "float32")],
        [KEY, X],
    ),
}


def exported(case: str, platforms: list[str] | None = None) -> Any:
    fn, specs, _ = PROGRAMS[case]
    return jax.export.export(jax.jit(fn), platforms=platforms)(*specs)


@pytest.mark.parametrize("platforms", [None, PLATFORMS], ids=["one platform", "several"])
@pytest.mark.parametrize("case", PROGRAMS)
def test_read_as_jax_reads_it(case: str, platforms: list[str] | None) -> None:
    made = exported(case, platforms)
    for order in (0, 1):
        data = bytes(made.serialize(vjp_order=order if case == "static" else 0))
        assert is_exported(data)
        assert read_exported(data) == Exported.of(jax.export.deserialize(bytearray(data)))
    assert read_exported(data) == Exported.of(made)


@pytest.mark.parametrize("platforms", [None, PLATFORMS], ids=["one platform", "several"])
@pytest.mark.parametrize("case", PROGRAMS)
def test_runs_as_in_jax(case: str, platforms: list[str] | None) -> None:
    fn, _, args = PROGRAMS[case]
    made = exported(case, platforms)
    wanted = jax.tree.leaves(jax.jit(fn)(*args))[0]
    given = [args[i] for i in made.module_kept_var_idx]
    for source in (made, bytes(made.serialize())):
        mod = from_stablehlo(source, raise_ops=False)
        assert rx.to_stablehlo(mod, debug_info=True) == made.mlir_module()
        vm = rx.VirtualMachine(rx.build(mod))
        np.testing.assert_allclose(vm["main"](*given), wanted, rtol=1e-5)
    np.testing.assert_allclose(to_jax(mod)(*given), wanted, rtol=1e-5)


def test_dimensions_keep_their_names() -> None:
    mod = from_stablehlo(bytes(exported("symbolic").serialize()))
    assert str(mod["main"].params[0].struct_info) == 'Tensor((n,), dtype="float32")'
    mod = from_stablehlo(bytes(exported("symbolic", PLATFORMS).serialize()))
    assert str(mod["main"].params[1].struct_info) == 'Tensor((n,), dtype="float32")'
    # Bound in Relax, a program still checks its shapes, which XLA cannot.
    bound = mod.replace(
        {g: f.bind_symbolic_vars({"n": 6}) if g.name_hint == "main" else f for g, f in mod.items()}
    )
    np.testing.assert_array_equal(rx.VirtualMachine(rx.build(bound))["main"](X), by_platform(X))


def test_parameters_keep_their_names() -> None:
    """Of symbolic shapes JAX names those of the function inside alone."""
    (n,) = jax.export.symbolic_shape("n")
    shape = jax.ShapeDtypeStruct((n, 3), "float32")
    params = {"w": jax.ShapeDtypeStruct((3,), "float32")}
    exported = jax.export.export(jax.jit(lambda params, x: x * params["w"]))(params, shape)
    main = from_stablehlo(exported.serialize())["main"]
    assert [p.name_hint for p in main.params] == ["params_w", "x"]
    assert [source_name(p) for p in main.params] == ["params['w']", "x"]


def test_input_info_leaves_the_platform_out() -> None:
    data = bytes(exported("symbolic", PLATFORMS).serialize())
    for info in ([((6,), "float32")], [((), "int32"), ((6,), "float32")]):
        mod = from_stablehlo(data, info)
        assert str(mod["main"].params[-1].struct_info) == 'Tensor((6,), dtype="float32")'
        np.testing.assert_array_equal(rx.VirtualMachine(rx.build(mod))["main"](X), by_platform(X))
    with pytest.raises(CallError, match="takes 2 inputs; input_info has 0"):
        from_stablehlo(data, [])


def test_the_platform_is_that_of_the_machine(tmp_path: Path) -> None:
    mod = from_stablehlo(exported("static", ["cuda", "tpu"]))
    with pytest.raises(DeviceError, match=r"main was exported for cuda, tpu, not for cpu"):
        rx.build(mod)
    mod = from_stablehlo(exported("static", PLATFORMS))
    executable = rx.build(mod)
    assert [p.name_hint for p in executable.params("main")] == ["a"]
    path = tmp_path / "m.r2x"
    executable.export_library(str(path))
    loaded = rx.runtime.load_module(str(path))
    assert loaded.platforms == {"main": "cpu"}
    np.testing.assert_array_equal(rx.VirtualMachine(loaded)["main"](X), by_platform(X))
    # Built for another platform: this machine has none to try it on.
    loaded = replace(loaded, platforms={"main": "cuda"})
    with pytest.raises(DeviceError, match="built for cuda; this machine is on cpu"):
        rx.VirtualMachine(loaded)


def test_a_platform_that_nothing_knows_is_an_argument() -> None:
    # The text does not say which platforms there are, so its caller has to.
    mod = from_stablehlo(exported("static", PLATFORMS).mlir_module())
    vm = rx.VirtualMachine(rx.build(mod))
    np.testing.assert_array_equal(vm["main"](np.int32(1), X), by_platform(X))
    np.testing.assert_array_equal(vm["main"](np.int32(0), X), (X + 100) * 6)


def test_files_are_known_by_their_content(tmp_path: Path) -> None:
    data = bytes(exported("static").serialize())
    for name in ("model.jax_export", "model.bin", "model", "model.mlirbc", "model.stablehlo"):
        path = tmp_path / name
        path.write_bytes(data)
        assert format_of(path).name == "exported"
        mod = rx.load(path)
        np.testing.assert_array_equal(rx.VirtualMachine(rx.build(mod))["main"](X), by_platform(X))
        assert from_stablehlo(path).functions.keys()
    (tmp_path / "model.jax_export").write_text("nothing of the kind, but long enough for a head")
    with pytest.raises(FileFormatError, match="its extension says a serialised program of jax"):
        rx.load(tmp_path / "model.jax_export")
    (tmp_path / "model").write_bytes(b"\1\2")
    with pytest.raises(FileFormatError, match="a name without extension is not known"):
        rx.load(tmp_path / "model")


def test_damage_is_an_error() -> None:
    data = bytes(exported("products", PLATFORMS).serialize())
    start = data.index(b"ML\xefR")
    rng = random.Random(0)
    for cut in range(0, start, 3):
        assert not is_exported(data[:cut])
    with pytest.raises(StableHLOParseError, match="damaged or cut short"):
        read_exported(data[: start + 40])
    found = 0
    for _ in range(2000):
        mutant = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            # The module has a reader of its own.
            at = rng.choice([rng.randrange(start), rng.randrange(start, len(data))])
            mutant[at] = rng.randrange(256)
        try:
            read_exported(bytes(mutant))
        except StableHLOParseError:
            found += 1
    assert found
    # Shapes that are not those of the program, and dimensions that are no expressions.
    shapes = data.replace(b"2*m", b"((m")
    mod = from_stablehlo(shapes)
    assert str(mod["main"].params[1].struct_info).startswith("Tensor((n, s")
    lost = Exported.of(exported("static"))
    assert lost.inputs == (("6",),)


def test_what_a_hostile_file_may_say_of_shapes() -> None:
    from relax2xla.importers.stablehlo.named import named_dims

    mod = from_stablehlo(exported("symbolic"), raise_ops=False)
    with pytest.raises(StableHLOParseError, match="shapes that were exported are not those of"):
        named_dims(mod, [["n"]] * 4, [["n"]])
    for text in (
        "n**(9**9**9)",
        "n**99999999",
        "(" * 300,
        "-" * 399 + "n",
        "n//0",
        "n" * 500,
        "mod(n, 0)",
        "floordiv(1, 0)",
        "9" * 300,
        "__import__('os')",
        "n\0",
    ):
        named_dims(mod, [[text]], [["n"]])

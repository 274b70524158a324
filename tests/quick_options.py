"""XLA's options for what runs once, where compiling is what takes a test's time.

What users run is compiled better: tests whose yardstick are whole models (at one size each), the
suites of ONNX and torch, and what passes and the machine do keep the options that users have, but
for those of passes and of padding named below.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

import pytest

#: Tests of one operator each, and of modules, caches, gradients, layouts, legal and raised rows,
#: random loops, padding, functions in C++ and of JAX, and ways from torch whose yardstick are
#: values, by their paths below this folder: XLA took two to four fifths of their time. Well
#: compiled the same operators are in the importers' suites (onnx/test_suite, torch/opinfo), in
#: models (torch/test_models) and in the other examples, loops as rows in tests of te, tir and
#: stablehlo/loops, and functions of JAX in examples of their own (finetune_in_jax,
#: tensor_parallel) and in the programs of docs/jax.md.
QUICK: Final = (
    "examples/test_dynamic.py",
    "frontend/nn/*",
    "integration/test_passes.py",
    "integration/test_round.py",
    "interop/*",
    "kv_state/*",
    "op/*",
    "stablehlo/loops/test_random.py",
    *(f"stablehlo/test_{name}.py" for name in ("exported", "gate", "roundtrip")),
    "topi/*",
    *(
        f"importers/onnx/test_{name}.py"
        for name in (
            *("by_value", "contracts", "detection", "edges", "image", "late", "loops"),
            *("microsoft", "ml", "narrow", "old_opsets", "ops", "sequences", "signal_sample"),
        )
    ),
    *(f"importers/torch/{room}/*" for room in ("aten", "compile", "engine", "source")),
    "transform/cpu/test_integers.py",
    "transform/cpu/test_integers_torch.py",
    "transform/cpu/test_planes.py",
    "transform/grad/test_operators.py",
    "transform/layout/*",
    "transform/lower/test_legalized_modules.py",
    "transform/raising/test_raise_stablehlo.py",
    "transform/raising/test_raising_rules.py",
    "vm/call/test_padding.py",
    *(f"vm/pjrt/test_{name}.py" for name in ("depthwise", "integers", "products")),
    "vm/pjrt/test_wide_derivatives.py",
)
#: Of these, tests of the last digits, which users get.
EXACT: Final = (
    "importers/torch/aten/numbers/test_special.py",
    "importers/torch/source/test_quantized.py",
)


def is_quick(path: str) -> bool:
    """Whether a file of tests, by its path below this folder, is compiled quickly."""
    return path not in EXACT and any(fnmatchcase(path, pattern) for pattern in QUICK)


@cache
def _of_xla() -> list[tuple[str, Any]]:
    """The options as JAX passes them to XLA; none where this XLA no longer has them."""
    import jax

    from relax2xla.vm.pjrt import compiler

    try:
        jax.jit(lambda: 0).lower().compile(compiler.RUN_ONCE_OPTIONS)
    except jax.errors.JaxRuntimeError:
        return []
    return list(compiler.RUN_ONCE_OPTIONS.items())


def quick_environment(devices: int) -> dict[str, str]:
    """That of a child process that compiles quickly, whose host has so many devices."""
    own = [f"--{name}={value}" for name, value in _of_xla()]
    count = f"--xla_force_host_platform_device_count={devices}"
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), count, *own])
    return {**os.environ, "XLA_FLAGS": flags, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


@contextmanager
def quick_options() -> Iterator[None]:
    """Compile as for programs that run once, until the end; what JAX compiles by itself, too."""
    import jax
    from jax._src import compiler as compiler_of_jax

    from relax2xla.vm.pjrt import compiler

    known = _of_xla()
    options = {**compiler.COMPILER_OPTIONS, **dict(known)}
    of_jax = "jax_disable_most_optimizations"
    before = jax.config.read(of_jax)
    make = compiler_of_jax.get_compile_options

    def made(*args: Any, **kwargs: Any) -> Any:
        """JAX sets the level alone; XLA's emitters of fusions take half of the time then."""
        found = make(*args, **kwargs)
        found.env_option_overrides += known
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "COMPILER_OPTIONS", options)
        patch.setattr(compiler_of_jax, "get_compile_options", made)
        jax.config.update(of_jax, True)
        try:
            yield
        finally:
            jax.config.update(of_jax, before)

"""``relax2xla doctor``: what this installation has, and what is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections import Counter
from typing import Any, Final

from relax2xla.cli.process.console import good, out, print_json, size, status

#: Packages, and the extra of relax2xla that brings them ("" for what it needs itself).
PACKAGES: Final = (
    ("jax", ""),
    ("jaxlib", ""),
    ("numpy", ""),
    ("ml_dtypes", ""),
    ("torch", "torch"),
    ("onnx", "onnx"),
    ("onnxscript", "onnx"),
    ("onnxruntime", "onnx"),
    ("flax", "jax"),
    ("equinox", "jax"),
    ("optax", "jax"),
    ("tokenizers", "llm"),
    ("pillow", "image"),
    ("torchvision", "models"),
    ("timm", "models"),
    ("transformers", "models"),
)
# Instruction sets that decide how fast programs are.
_SETS: Final = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd")


def run_doctor(as_json: bool) -> int:
    """Print what there is; gives 0, or 1 where programs cannot run."""
    with status("looking around"):
        found = examined()
    if as_json:
        print_json(found)
    else:
        _print(found)
    return 0 if found["works"] else 1


def examined() -> dict[str, Any]:
    """Everything that ``doctor`` says, as plain data."""
    from relax2xla import __version__, processor
    from relax2xla.budget import physical_memory
    from relax2xla.importers.files import how_to_install
    from relax2xla.runtime.compiler import has_compiler

    packages = [{"name": n, "version": _version(n), "extra": extra} for n, extra in PACKAGES]
    missing = sorted({str(p["extra"]) for p in packages if not p["version"] and p["extra"]})
    known = processor.description()
    found: dict[str, Any] = {
        "relax2xla": __version__,
        "python": platform.python_version(),
        "packages": packages,
        "missing_extras": {extra: how_to_install(extra) for extra in missing},
        "processor": {
            "name": known.get("model name", platform.machine()),
            "cores": processor.count(),
            "memory": physical_memory(),
            "features": [name for name in _SETS if name in processor.features()],
        },
        "compiler": has_compiler(),
        "problems": [],
    }
    version = _version("jaxlib") or ""
    if version and not version.startswith(processor.KNOWN):
        tried = ", ".join(f"{k}x" for k in processor.KNOWN)
        found["problems"].append(f"jaxlib {version} was not tried with this version ({tried} were)")
    found |= {"devices": [], "cache": None, "onednn": []}
    try:
        found["devices"] = _devices()
        _tried()
        found["works"] = True
        found["cache"] = _cache()
        from relax2xla.kernels.onednn import choice
        from relax2xla.vm.pjrt import onednn

        found["onednn"] = sorted(onednn.features()) if choice.may_call() else []
    except Exception as e:  # whatever a broken installation raises
        found["works"] = bool(found.get("works"))
        found["problems"].append(f"{type(e).__name__}: {str(e).splitlines()[0][:300]}")
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    import jax

    return [f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices()]


def _tried() -> None:
    """Build and run the smallest program; what goes wrong is raised."""
    import numpy as np

    from relax2xla import op
    from relax2xla.builder import BlockBuilder
    from relax2xla.ir import TensorStructInfo, Var
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    builder, x = BlockBuilder(), Var("x", TensorStructInfo((2,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.add(x, x)))
    given = np.array([1, 2], np.float32)
    result = np.asarray(VirtualMachine(build(builder.get()))["main"](given))
    if result.tolist() != [2, 4]:
        raise RuntimeError(f"[1, 2] + [1, 2] gives {result.tolist()}")


def _cache() -> dict[str, Any] | None:
    from relax2xla.vm.pjrt.cache import from_environment

    store = from_environment()
    if store is None:
        return None
    entries = store.entries()
    held = sum(e.size for e in entries)
    return {"folder": str(store.folder), "programs": len(entries), "bytes": held}


def _kinds(features: list[str]) -> str:
    """``convolution 7, product 4``: how many there are of each kind; the JSON names them."""
    kinds = Counter(kind for f in features for kind in re.findall(r"^(?:\w+ )?product|^\w+", f))
    return ", ".join(f"{kind} {n}" for kind, n in kinds.items())


def _print(found: dict[str, Any]) -> None:
    chip = found["processor"]
    out(f"relax2xla    {found['relax2xla']} on Python {found['python']} ({sys.platform})")
    for p in found["packages"]:
        without = f"missing ({p['extra']})" if p["extra"] else "MISSING"
        out(f"{p['name']:12s} {p['version'] or without}")
    out(f"processor    {chip['name']}, {chip['cores']} cores, {size(chip['memory'] or 0)}")
    out(f"features     {' '.join(chip['features']) or 'none that is known'}")
    out(f"devices      {', '.join(found['devices']) or 'none'}")
    out(f"oneDNN       {_kinds(found['onednn']) or 'not called (RELAX2XLA_ONEDNN=1 does)'}")
    out(f"compiler     {'C++ found' if found['compiler'] else 'none; kernels in C++ are left out'}")
    held = found["cache"]
    said = "off"
    if held is not None:
        said = f"{held['programs']} programs, {size(held['bytes'])}, in {held['folder']}"
    out(f"cache        {said}")
    for extra, line in found["missing_extras"].items():
        out(f"without {extra}: {line}")
    for problem in found["problems"]:
        out(good(f"PROBLEM: {problem}", False))
    out(good("programs run" if found["works"] else "programs do NOT run", found["works"]))

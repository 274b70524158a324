"""Shardy's own executable tests, run over several devices of this machine's CPU.

``python -m benchmarks shardings --shardy FOLDER`` takes a checkout of openxla/shardy. Its tests
``executable_*/*.mlir`` each have functions that state how their values are spread. Each is built
for a mesh of its size, called with whole numbers, and compared with what StableHLO's reference
interpreter says of the same function on one device, without its annotations; of complex numbers,
which it has no way to give, with what the machine says of that on one device.

Prints a line a function and the counts. Programs for more than eight devices are left out, and so
are those that ask which device they run on, of which one device cannot be the truth.
"""

from __future__ import annotations

import collections
import math
import multiprocessing
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

DEVICES = 8
_MESH = re.compile(r"^sdy\.mesh (@\w+) = <\[(.*?)\].*>$", re.M)
_FUNCTION = re.compile(r"^func\.func (?:public |private )?@(\w+)\(.*?^}", re.M | re.S)
_NAMES_DEVICES = ("partition_id", "replica_id", "manual_computation")


def programs(folder: Path) -> Iterator[tuple[str, str, int]]:
    """Name, text (with the function as main) and devices of each function."""
    for path in sorted(folder.glob("**/test/executable_*/**/*.mlir")):
        source = path.read_text().partition("//--- part1.mlir")[2].partition("//---")[0]
        # CHECK lines and comments
        source = re.sub(r"//.*", "", source)
        meshes = {m[1]: m for m in _MESH.finditer(source)}
        functions = {m[1]: m[0] for m in _FUNCTION.finditer(source)}
        for name, text in functions.items():
            used = [m for key, m in meshes.items() if re.search(rf"{key}\b", text)]
            sizes = [math.prod(map(int, re.findall(r"=(\d+)", m[2]))) for m in used]
            if not used or any(n in text for n in _NAMES_DEVICES) or "call @" in text:
                continue
            count = max(sizes)
            if 1 < count <= DEVICES:
                text = re.sub(rf"@{name}\b", "@main", text, count=1)
                whole = "\n".join([*(m[0] for m in meshes.values()), text])
                yield f"{path.parent.name}/{path.stem}:{name}", whole, count


def outcome(text: str, count: int) -> str:
    """What became of a program: "pass", or what is wrong."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    import relax2xla as rx
    from relax2xla.stablehlo import parse, read
    from relax2xla.stablehlo.shardings import without_shardings

    mod = read(parse(text))
    draw = np.random.default_rng(0)
    args = []
    for p in mod["main"].params:
        shape = [int(d) for d in p.struct_info.dims]
        args.append(draw.integers(-9, 9, shape).astype(p.struct_info.dtype))
    module = without_shardings(parse(text))
    if any(a.dtype.kind == "c" for a in args):
        made = rx.VirtualMachine(rx.build(read(module)))["main"](*args)
        want = [np.asarray(w) for w in (made if isinstance(made, tuple) else (made,))]
    else:
        with module.context:
            given = [ir.DenseElementsAttr.get(a) for a in args]
            want = [np.array(w) for w in stablehlo.eval_module(module, given)]
    try:
        vm = rx.VirtualMachine(rx.build(mod, mesh=count))
        got = vm["main"](*args)
    except Exception as e:
        return f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    got = got if isinstance(got, tuple) else (got,)
    for g, w in zip(got, want, strict=True):
        if g.shape != w.shape or not np.array_equal(g, w):
            return f"another value: {np.asarray(g).ravel()[:8]}, expected {w.ravel()[:8]}"
    return "pass"


def main(quick: bool = False, shardy: str = "") -> None:
    """Run all, and print what came of them."""
    if not shardy:
        raise SystemExit("--shardy FOLDER names a checkout of openxla/shardy")
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    )
    counts: collections.Counter[str] = collections.Counter()
    pool = None
    for n, (name, text, devices) in enumerate(programs(Path(shardy))):
        if quick and n == 3:
            break
        pool = pool or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            made = pool.submit(outcome, text, devices).result()
        except BrokenProcessPool:
            pool, made = None, "the process ended"
        except Exception as e:
            made = f"no truth: {type(e).__name__}: {' '.join(str(e).split())[:200]}"
        counts[made.partition(":")[0]] += 1
        print(f"{name} on {devices}: {made}", flush=True)
    print(dict(counts))
    if pool is not None:
        pool.shutdown()

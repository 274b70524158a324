"""``python -m benchmarks NAME``: measure and print a table with ratios to the peers."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import Any

BENCHMARKS = {
    "dispatch": "what a call costs, beside jax.jit",
    "peers": "14 networks by all roads beside ONNX Runtime, torch and (--inductor) Inductor",
    "quantised": "ResNet-50 and layers of BERT-base in 8 bits beside ONNX Runtime and Inductor",
    "models": "latency, compile time and memory of ResNet-50 and BERT-base, beside the peers",
    "stablehlo": "programs of openxla/stablehlo there and back; cost of reading, writing, raising",
    "aot": "a saved BERT-base to its first result, beside the build from the exported program",
    "dots": "products of matrices by XLA:CPU's two libraries, behind vm/pjrt/dot_library.py",
    "forms": "convolutions and products in rows and by oneDNN, behind kernels/onednn/choice.py",
    "pass_networks": "small networks before and after passes, and what passes cost",
    "kernels": "kernels of TVMScript beside jax.numpy, and TVM (--tvm names its Python)",
    "memory": "memory of a process that loads a saved BERT-base",
    "jax_functions": "JAX's transformations on imported models; writes docs/jax.md's table",
    "jax_peers": "20 networks as functions of JAX, beside torchax and others (--peers)",
    "jax_speed": "models as functions of JAX beside the machine and Flax; cost of tracing",
    "jax_training": "20 steps of four torch models in JAX, beside torch",
    "networks": "small networks of many architectures by every route; writes docs/networks.md",
    "shardings": "Shardy's executable tests (--shardy its checkout) over devices of the CPU",
    "opinfo": "torch's operator database through the importer; writes docs/torch.md's table",
    "torch_models": "torchvision, timm, transformers beside torch; writes docs/results",
    "roads": "torch networks by torch.export beside the same by ONNX",
    "volumes": "calls and steps of convolutions of volumes beside eager torch",
    "training": "steps of layers and networks by torch.compile, beside eager torch and Inductor",
    "language": "building, printing, parsing and saving programs of 1,000 to 100,000 bindings",
    "llm": "tokens a second of two Llamas, in few bits as well, beside peers (--peers PYTHON)",
    "passes": "every pass on programs of 1,000 to 100,000 bindings, microseconds a binding",
    "onnx_imports": "from_onnx beside TVM's (RELAX2XLA_TVM names its Python), and its memory",
    "mlc": "MLC-LLM's models (--mlc its checkout) beside transformers; writes docs/nn.md's table",
    "mlc_kernels": "kernels of MLC-LLM (--mlc its checkout) beside jax.numpy; writes docs/nn.md",
    "imports": "what `import relax2xla` and `relax2xla --help` cost",
}

_SOME = (
    "torch_models",
    "roads",
    "mlc",
    "passes",
    "peers",
    "quantised",
    "jax_functions",
    "jax_training",
    "training",
)


def module_of(name: str) -> str:
    """The module of a benchmark: a file of that name in a room, or a room itself."""
    found = next(Path(__file__).parent.glob(f"*/{name}.py"), None)
    return f"benchmarks.{name}" if found is None else f"benchmarks.{found.parent.name}.{name}"


def main() -> None:
    """Run one benchmark."""
    listing = "\n".join(f"  {name:12s} {text}" for name, text in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Measure relax2xla side by side with its peers.\n\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it works")
    parser.add_argument("--dynamic", action="store_true", help="opinfo: symbolic sizes")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="PATTERN",
        help=f"{', '.join(_SOME)}: some, as in 'timm/*'",
    )
    parser.add_argument("--write", action="store_true", help="jax_functions: only the tables")
    parser.add_argument("--again", action="store_true", help="jax_functions: also what failed")
    parser.add_argument("--ours", action="store_true", help="torch_models: without the peers")
    parser.add_argument("--inductor", action="store_true", help="peers: with TorchInductor")
    parser.add_argument("--batch", type=int, metavar="N", help="peers: so many inputs at once")
    parser.add_argument("--cores", type=int, metavar="N", help="peers: on so many cores")
    parser.add_argument("--tvm", metavar="PYTHON", help="kernels: a Python that has apache-tvm")
    parser.add_argument(
        "--mlc", metavar="FOLDER", help="mlc(_kernels): a checkout of mlc-ai/mlc-llm"
    )
    parser.add_argument("--shardy", metavar="FOLDER", help="shardings: a checkout of Shardy")
    parser.add_argument(
        "--peers", metavar="PATH", help="jax_peers: their environments; llm: a Python"
    )
    args = parser.parse_args()
    if args.dynamic and args.name != "opinfo":
        parser.error("--dynamic goes with opinfo")
    if args.only and args.name not in _SOME:
        parser.error(f"--only goes with {', '.join(_SOME)}")
    if (args.write or args.again) and args.name != "jax_functions":
        parser.error("--write and --again go with jax_functions")
    if (args.inductor or args.batch or args.cores) and args.name != "peers":
        parser.error("--inductor, --batch and --cores go with peers")
    if min(args.batch or 1, args.cores or 1) < 1 or (args.cores or 1) > (os.cpu_count() or 1):
        parser.error("--batch and --cores are at least 1, and cores those that there are")
    if args.mlc and args.name not in ("mlc", "mlc_kernels"):
        parser.error("--mlc goes with mlc and mlc_kernels")
    if args.shardy and args.name != "shardings":
        parser.error("--shardy goes with shardings")
    if args.peers and args.name not in ("jax_peers", "llm"):
        parser.error("--peers goes with jax_peers and llm")
    if args.ours and args.name != "torch_models":
        parser.error("--ours goes with torch_models")
    if args.tvm and args.name != "kernels":
        parser.error("--tvm goes with kernels")
    given = {
        "dynamic": args.dynamic,
        "only": args.only,
        "ours": args.ours,
        "peers": args.peers,
        "shardy": args.shardy,
        "write": args.write,
        "again": args.again,
        "inductor": args.inductor,
        "batch": args.batch,
        "cores": args.cores,
        "tvm": args.tvm,
        "mlc": args.mlc,
    }
    more: dict[str, Any] = {key: value for key, value in given.items() if value}
    importlib.import_module(module_of(args.name)).main(quick=args.quick, **more)


if __name__ == "__main__":
    main()

"""TVM's side of the corpus of kernels: run by the Python of an environment with apache-tvm.

``python tests/tir/corpus/make.py FOLDER [--operators] [--tests FOLDER]... [--mlc FOLDER]`` collects
PrimFuncs: what TVM's LegalizeOps makes of each operator in ``tests/parity/operators.txt``, TVM's
own kernels of caches, those of the modules in its tests (folders of ``test_*.py``, of 0.20 or
later) and those of a checkout of MLC-LLM. It compiles each for the processor, runs it, and writes
``corpus.jsonl`` and an ``.npz`` of results for each into FOLDER. Nothing of that is kept in this
repository. ``--exact NUMBER,...`` adds runs of some of them with float64 in the place of smaller
floats: what ``compare.py`` asks where roundings may be all that differs.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "parity")]
from inputs import SIZE, arguments, doubled, in_double, ways  # noqa: E402

SECONDS = 60
"""The longest that one kernel may take to be compiled and run."""

MOST_ELEMENTS = 1 << 24
"""Larger buffers are not run."""


def _tvm(name: str) -> Any:
    """A module of TVM, whose names differ by version."""
    return importlib.import_module(name)


Kernel = dict[str, Any]


def apart(work: Callable[[], Any], seconds: float) -> Any:
    """What ``work`` gives in a process of its own; a text if that ends or takes too long."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(int(seconds))
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            result = work()
        except BaseException as e:
            last = traceback.format_exception_only(e)[-1].strip().splitlines()
            result = f"error: {last[0][:200] if last else type(e).__name__}"
        with os.fdopen(writer, "w") as out:
            json.dump(result, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as held:
        data = held.read()
    status = os.waitpid(child, 0)[1]
    if not data:
        return f"error: ended by signal {status & 127}"
    return json.loads(data)


# ---- collecting
def newer(text: str) -> str:
    """A script of TVM 0.20 in the words of 0.25; one that has these words already stays."""
    if re.search(r"\bT\.sblock|\bs_tir\b", text):
        return text
    text = re.sub(r"\bT\.block(_attr)?\(", r"T.sblock\1(", text)
    text = re.sub(r"\.(get|blockize|decompose|is)_block\(", r".\1_sblock(", text)
    text = text.replace("T.alloc_buffer(", "T.sblock_alloc_buffer(")
    text = re.sub(r"@T\.prim_func\b(?!\()", "@T.prim_func()", text)
    text = re.sub(r"@T\.prim_func\((.*?),?\)", r"@T.prim_func(\1, s_tir=True)", text)
    return text.replace("@T.prim_func(, ", "@T.prim_func(")


def names() -> dict[str, Any]:
    """What scripts of tests name without saying where it is from."""
    tvm, tirx = _tvm("tvm"), _tvm("tvm.tirx")
    script = _tvm("tvm.script")
    return {
        "tvm": tvm, "np": np, "tir": tirx, "tirx": tirx, "relax": _tvm("tvm.relax"),
        "T": script.tirx, "R": script.relax, "I": script.ir, "te": _tvm("tvm.te"),
    }  # fmt: skip


def kernels_of(node: Any) -> Iterator[tuple[str, str]]:
    """The PrimFuncs of a function or module, and those that LegalizeOps adds: name and text."""
    tvm, tirx = _tvm("tvm"), _tvm("tvm.tirx")
    if isinstance(node, tirx.PrimFunc):
        yield "main", node.with_attr("global_symbol", "main").script()
        return
    if not isinstance(node, tvm.IRModule):
        node = tvm.IRModule({"main": node})
    modules = [node]
    try:
        modules.append(_tvm("tvm.relax").transform.LegalizeOps()(node))
    except Exception:
        print("LegalizeOps refuses a module", file=sys.stderr)
    for module in modules:
        for name, func in module.functions_items():
            if isinstance(func, tirx.PrimFunc):
                yield name.name_hint, func.with_attr("global_symbol", "main").script()


def of_text(text: str) -> list[tuple[str, str]]:
    """The kernels of a script."""
    return list(kernels_of(_tvm("tvm.script").from_source(text, names())))


def scripts(path: Path) -> Iterator[tuple[str, str]]:
    """The modules and lone PrimFuncs of a file of tests: where each stands, and its text."""
    source = newer(path.read_text("utf-8"))
    stack: list[tuple[str, ast.AST]] = [(path.name, ast.parse(source))]
    while stack:
        where, node = stack.pop()
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.ClassDef):
                stack.append((where, child))
                continue
            below = f"{where}::{child.name}"
            marks = [ast.unparse(d) for d in child.decorator_list]
            if any(re.search(r"\b(ir_module|prim_func)\b", m) for m in marks):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                text = "\n".join(source.splitlines()[first - 1 : child.end_lineno])
                yield below, textwrap.dedent(text)
            else:
                stack.append((below, child))


def of_tests(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Kernels of TVM's tests: where from, name, text."""
    for path in sorted(folder.rglob("test_*.py")):
        for where, text in scripts(path):
            made = apart(lambda text=text: of_text(text), SECONDS)
            if not isinstance(made, str):
                yield from (("/".join([*folder.parts[-4:], where]), *kernel) for kernel in made)


def of_operators() -> Iterator[tuple[str, str, str]]:
    """What LegalizeOps makes of single operators."""
    for program in importlib.import_module("corpus").of_operators():  # tests/parity/corpus.py
        if program.category in ("op_static", "op_symbolic"):
            made = apart(lambda text=program.text: of_text(text), SECONDS)
            if not isinstance(made, str):
                yield from ((program.name, *kernel) for kernel in made)


_CACHE_SIZES: dict[str, Any] = {
    "num_kv_heads": 2, "num_key_value_heads": 2, "num_qo_heads": 4, "num_heads": 2, "h_kv": 2,
    "h_q": 4, "head_dim": 16, "d": 16, "d_qk": 16, "d_v": 16, "d_latent": 16, "d_rope": 8,
    "page_size": 4, "num_hidden_layers": 2, "rope_scaling": {}, "qkv_dtype": "float32",
    "dtype": "float32", "v_dtype": "float32", "sliding_window": False,
}  # fmt: skip


def of_caches() -> Iterator[tuple[str, str, str]]:
    """TVM's kernels of paged caches and tree attention, for the processor and for threads."""
    import inspect

    target = _tvm("tvm").target.Target({"kind": "cuda", "arch": "sm_80"})
    room = "tvm.relax.frontend.nn.llm."
    for module in ("_decode_kernels", "_page_kernels", "_prefill_kernels", "tree_attn"):
        for name, factory in vars(_tvm(room + module)).items():
            if not inspect.isfunction(factory) or factory.__module__ != room + module:
                continue
            wanted = inspect.signature(factory).parameters
            given = {"target": target, **_CACHE_SIZES}
            call = {k: given[k] for k in wanted if k in given}
            made = apart(lambda f=factory, c=call: list(kernels_of(f(**c))), SECONDS)
            if not isinstance(made, str):
                yield from ((f"cache:{name}", *kernel) for kernel in made)


# ---- MLC-LLM
_FACTORY_SIZES: dict[str, Any] = {
    "num_heads": 2, "head_size": 8, "out_dtype": "float32", "state_dtype": "float32",
    "dtype": "float32", "vocab_size": 64, "chunk_size": 64, "global_symbol": "main",
}  # fmt: skip

_MLC_WORDS = {
    r"\btvm\._ffi\b": "tvm_ffi",
    r"\btirx\.Expr\b": "tirx.PrimExpr",
    r"\b(rx|relax)\.(Tensor|Object|Shape|Tuple)Type\b": r"\1.\2StructInfo",
    r"\b(rx|relax)\.prim_value\b": r"\1.PrimValue",
    r"\bout_ty=": "out_sinfo=",
    r"\bty_args=": "sinfo_args=",
}
"""What MLC-LLM says for versions of TVM before and after 0.25, and what that is in 0.25."""

_FACTORIES = (
    "compiler_pass.attach_logit_processor", "compiler_pass.attach_spec_decode_aux_funcs",
    "compiler_pass.attach_softmax_with_temperature", "compiler_pass.attach_sampler",
    "op.batch_spec_verify", "op.top_p_pivot", "model.rwkv5.rwkv5_model", "model.rwkv6.rwkv6_model",
)  # fmt: skip


def _import_mlc(folder: Path, scratch: Path) -> None:
    """Make ``mlc_llm`` importable: a copy in this TVM's words, without its root and library."""
    import logging
    import types
    from unittest.mock import MagicMock

    logging.disable(logging.INFO)
    tvm = _tvm("tvm")
    for old, new in (("tvm.tir", "tvm.tirx"), ("tvm.script.tir", "tvm.script.tirx")):
        room, _, name = old.rpartition(".")
        sys.modules[old] = _tvm(new)
        setattr(_tvm(room), name, _tvm(new))
    tvm.tirx.Schedule = _tvm("tvm.s_tir").Schedule
    tvm.dlight = _tvm("tvm.s_tir.dlight")
    _tvm("tvm_ffi").register_func = _tvm("tvm_ffi").register_global_func
    tvm.runtime.NDArray = tvm.runtime.Tensor
    array = types.ModuleType("tvm.runtime.ndarray")
    vars(array).update(array=tvm.runtime.tensor, NDArray=tvm.runtime.Tensor)
    sys.modules["tvm.runtime.ndarray"] = tvm.nd = array
    for path in (folder / "python" / "mlc_llm").rglob("*.py"):
        target = scratch / "mlc_llm" / path.relative_to(folder / "python" / "mlc_llm")
        target.parent.mkdir(parents=True, exist_ok=True)
        text = newer(path.read_text("utf-8"))
        for said, known in _MLC_WORDS.items():
            text = re.sub(said, known, text)
        target.write_text(text, "utf-8")
    for name in ("ndk", "tar", "xcode", "emcc"):  # of code generators, not in each wheel
        if importlib.util.find_spec(f"tvm.contrib.{name}") is None:
            sys.modules[f"tvm.contrib.{name}"] = MagicMock()
            setattr(tvm.contrib, name, sys.modules[f"tvm.contrib.{name}"])
    for name in ("tqdm", "requests", "torch", "safetensors", "transformers", "pydantic", "psutil"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = MagicMock()
    package = types.ModuleType("mlc_llm")
    package.__path__ = [str(scratch / "mlc_llm")]
    sys.modules["mlc_llm"] = package


def _model(name: str, small: Any, scheme: str) -> list[tuple[str, str]]:
    """The kernels of a model of MLC-LLM, exported and legalised."""
    import copy

    entry = _tvm("mlc_llm.model.model").MODELS[name]
    config = entry.config.from_dict(copy.deepcopy(small.config | small.mlc_only))
    quantization = _tvm("mlc_llm.quantization").QUANTIZATION[scheme]
    model, _ = entry.quantize[quantization.kind](config, quantization)
    return list(kernels_of(model.export_tvm(model.get_default_spec(), allow_extern=True)[0]))


def of_mlc(folder: Path, scratch: Path) -> Iterator[tuple[str, str, str]]:
    """Kernels of a checkout of MLC-LLM: of its passes and of small models of all its kinds."""
    import inspect

    sys.path.insert(0, str(Path(__file__).parents[3]))
    from benchmarks.language_models.mlc_models import SMALL

    _import_mlc(folder, scratch)
    for target in ({"kind": "cuda", "arch": "sm_80"}, {"kind": "webgpu"}):
        given = {"target": _tvm("tvm").target.Target(target), **_FACTORY_SIZES}
        for module in _FACTORIES:
            try:
                found = _tvm(f"mlc_llm.{module}")
            except ImportError as e:
                print(f"mlc {module}: {e}", file=sys.stderr)
                continue
            for name, factory in vars(found).items():
                if not inspect.isfunction(factory) or factory.__module__ != found.__name__:
                    continue
                wanted = inspect.signature(factory).parameters
                if not all(k in given or p.default is not p.empty for k, p in wanted.items()):
                    continue
                call = {k: given[k] for k in wanted if k in given}

                def work(factory: Any = factory, call: Any = call) -> list[tuple[str, str]]:
                    made = factory(**call)
                    made = made if isinstance(made, tuple) else (made,)
                    return [kernel for one in made for kernel in kernels_of(one)]

                made = apart(work, SECONDS)
                if isinstance(made, str):
                    print(f"mlc {module}.{name}: {made}", file=sys.stderr)
                else:
                    yield from ((f"mlc:{name}", *kernel) for kernel in made)
    for name, small in SMALL.items():
        for scheme in ("q0f32", "q4f32_1"):
            made = apart(lambda n=name, s=small, q=scheme: _model(n, s, q), SECONDS)
            if isinstance(made, str):
                print(f"mlc {name} {scheme}: {made}", file=sys.stderr)
            else:
                yield from ((f"mlc:{name}_{scheme}", *kernel) for kernel in made)


# ---- running
def parameters(func: Any) -> list[list[Any]]:
    """Parameters of a kernel, with a number for each symbolic size."""
    tirx = _tvm("tvm.tirx")

    sizes: dict[Any, Any] = {}

    def learn(e: Any) -> None:
        if isinstance(e, tirx.Var):
            sizes[e] = tirx.IntImm(e.dtype, SIZE)

    def size(e: Any) -> int:
        return int(_tvm("tvm.arith").Analyzer().simplify(tirx.stmt_functor.substitute(e, sizes)))

    for buffer in func.buffer_map.values():
        for e in buffer.shape:
            tirx.stmt_functor.post_order_visit(tirx.Evaluate(e), learn)
    made: list[list[Any]] = []
    for param in func.params:
        if param in func.buffer_map:
            buffer = func.buffer_map[param]
            made.append(["buffer", [size(d) for d in buffer.shape], str(buffer.dtype)])
        elif "handle" in str(param.dtype):
            raise TypeError(f"the parameter {param.name} is a pointer")
        else:
            made.append(["number", *([SIZE] if param in sizes else []), str(param.dtype)])
    return made


def run(func: Any, given_by: Callable[[str], list[Any]], files: dict[str, Path]) -> None:
    """Compile a kernel, run it in each way, and write all its buffers, or the error as text."""
    tvm = _tvm("tvm")
    made = tvm.compile(tvm.IRModule({"main": func}), target="llvm")["main"]
    tensor = tvm.runtime.tensor
    for way, file in files.items():
        given = given_by(way)
        held = [tensor(a) if isinstance(a, np.ndarray) else a for a in given]
        try:
            result = made(*held)
        except Exception as e:
            file.write_text(f"error: {type(e).__name__}: {str(e).splitlines()[0][:200]}")
            continue
        arrays = [a.numpy() for a in held if not isinstance(a, int | float)]
        if isinstance(result, int | float):
            arrays.append(np.asarray(result))
        bits = [a if a.dtype.isbuiltin else a.view(f"u{a.dtype.itemsize}") for a in arrays]
        part = file.with_suffix(".part.npz")
        np.savez(part, *bits)
        part.rename(file)


def outcome(kernel: Kernel, folder: Path) -> None:
    """Add parameters to a kernel, and for each way whether TVM runs it."""

    def func() -> Any:
        return _tvm("tvm.script").from_source(kernel["text"], names())

    params = apart(lambda: parameters(func()), SECONDS)
    runs: dict[str, str] = {}
    kernel.update(runs=runs, parameters=params)
    if isinstance(params, str):
        return
    sizes = [int(np.prod(p[1])) for p in params if p[0] == "buffer"]
    if max(sizes, default=0) > MOST_ELEMENTS:
        runs.update(dict.fromkeys(ways(params), "error: too large"))
        return

    def given_by(way: str) -> list[Any]:
        return arguments(params, way)

    left = {way: folder / f"{kernel['number']:04}.{way}.npz" for way in ways(params)}
    for file in left.values():
        file.unlink(missing_ok=True)
    while left:  # an end of the process is that of the first way which wrote nothing
        made = apart(lambda files=dict(left): run(func(), given_by, files), SECONDS)
        for way in [w for w, f in left.items() if f.exists()]:
            data = left.pop(way).read_bytes()[:300]
            runs[way] = "ok" if data[:2] == b"PK" else data.decode()
        if left:
            ended = list(left)[:1] if made.startswith("error: ended by") else list(left)
            for way in ended:
                runs[way] = made
                del left[way]


def exact(folder: Path, numbers: set[str]) -> None:
    """Run kernels of a corpus once more, with float64 in the place of smaller floats."""
    for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines():
        kernel = json.loads(line)
        if str(kernel["number"]) not in numbers:
            continue
        params = kernel["parameters"]
        text = in_double(kernel["text"])
        done = [way for way, state in kernel["runs"].items() if state == "ok"]
        files = {way: folder / f"{kernel['number']:04}.{way}.exact.npz" for way in done}

        def given_by(way: str, params: Any = params) -> list[Any]:
            return doubled(arguments(params, way))

        def work(text: str = text, given_by: Any = given_by, files: Any = files) -> None:
            run(_tvm("tvm.script").from_source(text, names()), given_by, files)

        print(kernel["number"], apart(work, 10 * SECONDS) or "ok", file=sys.stderr, flush=True)


def main() -> None:
    """Write the corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tests", type=Path, action="append", default=[], help="tests of TVM")
    parser.add_argument("--mlc", type=Path, help="a checkout of MLC-LLM")
    parser.add_argument("--operators", action="store_true", help="of operators and caches")
    parser.add_argument("--few", type=int, default=1, help="one kernel in so many")
    parser.add_argument("--exact", default="", help="numbers of kernels, to run in float64")
    options = parser.parse_args()
    if options.exact:
        names()
        exact(options.folder, set(options.exact.split(",")))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    names()  # imports TVM once, before processes are forked
    sources = list(map(of_tests, options.tests))
    if options.operators:
        sources[:0] = [of_operators(), of_caches()]
    if options.mlc is not None:
        sources.append(of_mlc(options.mlc, options.folder))
    seen: set[str] = set()
    with (options.folder / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for source in sources:
            for where, name, text in source:
                if text in seen:
                    continue
                seen.add(text)
                if len(seen) % options.few:
                    continue
                kernel = {"number": len(seen), "source": where, "name": name, "text": text}
                outcome(kernel, options.folder)
                out.write(json.dumps(kernel) + "\n")
                out.flush()
                print(f"{len(seen)}\t{where} {name}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

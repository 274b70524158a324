"""Random ONNX models against ONNX Runtime and the reference implementation of onnx."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.fuzz.elements import first_wrong
from tests.fuzz.target import Target, Wrong

# Differences that rounding may make, of one value and of the largest one.
RTOL: Final = {"float32": 2e-4, "float64": 1e-10}


class OnnxValues(Target):
    """A model, with its inputs."""

    name, title, suffix = "onnx-values", "random ONNX models against ONNX Runtime", ".onnx"
    is_right = True
    seconds = 90.0

    def make(self, draw: random.Random) -> Any:
        """A model and its inputs."""
        from tests.fuzz.onnx_graphs import graph, inputs

        seed = draw.getrandbits(31)
        model = graph(seed)
        return model, inputs(model, seed)

    def show(self, made: Any) -> bytes:
        return made[0].SerializeToString()

    def attempt(self, made: Any, folder: Path) -> str:
        import relax2xla
        from relax2xla.frontend.onnx import from_onnx
        from relax2xla.testing import to_numpy

        model, given = made
        self.phase("truth")
        truths = [t for t in (_runtime(model, given), _reference(model, given)) if t is not None]
        if not truths:
            return "nobody runs it"
        self.phase("import")
        mod = from_onnx(model)
        self.phase("build")
        machine = relax2xla.VirtualMachine(relax2xla.build(mod))
        self.phase("call")
        found = to_numpy(machine["main"](*(given[i.name] for i in model.graph.input)))
        found = found if isinstance(found, tuple) else (found,)
        problems = [_difference(found, truth) for truth in truths]
        if "" in problems:
            return "same" if problems == [""] * len(problems) else "as one of the two"
        raise Wrong(f"{problems[0]} ({[n.op_type for n in model.graph.node]})")


def _runtime(model: Any, given: Any) -> list[Any] | None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        return list(session.run(None, given))
    except Exception:  # it has classes of its own for each reason
        return None


def _reference(model: Any, given: Any) -> list[Any] | None:
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, given)]
    except Exception:
        return None


def _difference(found: tuple[Any, ...], truth: list[Any]) -> str:
    if len(found) != len(truth):
        return f"{len(found)} results instead of {len(truth)}"
    for i, (f, t) in enumerate(zip(found, truth, strict=True)):
        if f.shape != t.shape or f.dtype != t.dtype:
            return f"result {i} is {f.dtype}{f.shape} instead of {t.dtype}{t.shape}"
        tolerance = RTOL.get(f.dtype.name, 0.0)
        scale = float(np.abs(t[np.isfinite(t)]).max(initial=0)) if tolerance else 0.0
        with np.errstate(all="ignore"):
            same = np.isclose(f, t, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        if not same.all():
            at = first_wrong(same)
            return f"result {i} at {at} is {f[at]!r} instead of {t[at]!r}"
    return ""

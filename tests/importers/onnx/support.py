"""What the tests of the ONNX importer share: small models, and running them both ways."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from relax2xla.frontend.onnx import from_onnx
from relax2xla.testing import evaluate

Arrays = Sequence[np.ndarray[Any, Any]]


def value(name: str, array: np.ndarray[Any, Any], dims: Sequence[Any] | None = None) -> Any:
    """A ValueInfoProto that fits ``array``."""
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, code, array.shape if dims is None else dims)


def model_of(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[str] = ("y",),
    opset: int = 21,
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    **more: Any,
) -> onnx.ModelProto:
    """A model whose outputs have the types that shape inference finds."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        list(inputs),
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(w, n) for n, w in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *more.pop("imports", ())]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9, **more)
    inferred = onnx.shape_inference.infer_shapes(model)
    for o in inferred.graph.output:
        if not o.type.HasField("tensor_type"):
            o.type.tensor_type.elem_type = TensorProto.FLOAT
    return inferred


def one(
    op: str,
    arrays: Sequence[np.ndarray[Any, Any] | None],
    opset: int = 21,
    outputs: int = 1,
    known: Sequence[int] = (),
    **attributes: Any,
) -> tuple[onnx.ModelProto, list[np.ndarray[Any, Any]]]:
    """A model of one node and its inputs; those at ``known`` are initializers."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    weights = {names[i]: given[names[i]] for i in known}
    inputs = [value(n, a) for n, a in given.items() if n not in weights]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, name="the_node", **attributes)
    model = model_of([node], inputs, made, opset, weights)
    return model, [a for n, a in given.items() if n not in weights]


def ours(model: Any, inputs: Arrays, **options: Any) -> list[np.ndarray[Any, Any]]:
    """Outputs of the imported model, run by XLA."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = from_onnx(model, **options)
    made = evaluate(mod, list(inputs))
    return list(made) if isinstance(made, tuple) else [made]


def theirs(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    """Outputs by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # to start threads takes longer than these models
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [i.name for i in session.get_inputs()]
    return list(session.run(None, dict(zip(names, inputs, strict=True))))


def agree(model: onnx.ModelProto, inputs: Arrays, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Both runtimes give the same dtypes, shapes and, within tolerance, values."""
    got, want = ours(model, inputs), theirs(model, inputs)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)

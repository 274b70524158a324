"""Damaged models, imported one after the other: each must be one clear error, or an import.

``python -m tests.importers.onnx.mutants NAME COUNT`` imports mutants of one model in a process
that has little memory and little time for each, and prints one line of JSON: how many there were,
how many were imported, and what went wrong. Which mutant is at work is on standard error, so that
one which ends the process is known as well.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

# Bytes that the process may have, and seconds for one mutant.
MEMORY = 3 << 30
SECONDS = 10

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info


def model(
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    weights: dict[str, Any] | None = None,
    **more: Any,
) -> ModelProto:
    """A model of opset 21."""
    tensors = [numpy_helper.from_array(np.asarray(w), n) for n, w in (weights or {}).items()]
    sparse = more.pop("sparse", None)
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors, sparse_initializer=sparse)
    opsets = [helper.make_opsetid("", 21), *more.pop("opsets", ())]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def convolutions() -> ModelProto:
    """Convolution, normalisation, pooling, resizing, a dense layer."""
    rng = np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "k", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], group=1),
        node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"], epsilon=1e-3),
        node("MaxPool", ["n"], ["m"], kernel_shape=[2, 2], ceil_mode=1),
        node("Resize", ["m", "", "scales"], ["r"], mode="linear"),
        node("Pad", ["r", "pads"], ["p"], mode="reflect"),
        node("GlobalAveragePool", ["p"], ["a"]),
        node("Flatten", ["a"], ["f"], axis=1),
        node("Gemm", ["f", "w", "b"], ["y"], transB=1, alpha=0.5),
    ]
    weights = {
        "k": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "b": np.ones(4, np.float32),
        "v": np.ones(4, np.float32),
        "w": rng.standard_normal((4, 4)).astype(np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    }
    return model(nodes, [info("x", F, ["n", 3, 8, 8])], [info("y", F, ["n", 4])], weights)


def shapes() -> ModelProto:
    """Arithmetic on shapes, and what takes them."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["rows"], axis=0),
        node("Concat", ["rows", "minus"], ["two"], axis=0),
        node("Reshape", ["x", "two"], ["r"], allowzero=0),
        node("Slice", ["r", "zero", "minus", "one"], ["t"]),
        node(
            "ConstantOfShape",
            ["two2"],
            ["z"],
            value=numpy_helper.from_array(np.array([2], np.float32)),
        ),
        node("Expand", ["z", "two2"], ["e"]),
        node("Tile", ["e", "two2"], ["l"]),
        node("Split", ["t"], ["u", "v"], axis=0, num_outputs=2),
        node("Transpose", ["u"], ["w"], perm=[1, 0]),
        node("Unsqueeze", ["w", "one"], ["q"]),
        node("TopK", ["q", "one"], ["top", "at"], axis=-1, largest=1),
        node("ReduceSum", ["l", "one"], ["k"], keepdims=0),
        node("OneHot", ["at", "depth", "values"], ["hot"]),
        node("Range", ["start", "depth", "start1"], ["y"]),
    ]
    weights = {
        "zero": np.array([0]),
        "one": np.array([1]),
        "minus": np.array([-1]),
        "two2": np.array([2, 3]),
        "depth": np.array(5),
        "start": np.array(0),
        "start1": np.array(1),
        "values": np.array([0, 1], np.float32),
    }
    outputs = [info(n, F, None) for n in ("top", "k", "hot", "y", "v")]
    return model(nodes, [info("x", F, ["n", 4])], outputs, weights)


def control() -> ModelProto:
    """If, Loop and Scan, which read values around them."""
    then = helper.make_graph([node("Add", ["x", "w"], ["t"])], "then", [], [info("t", F, [2])])
    other = helper.make_graph([node("Neg", ["x"], ["e"])], "else", [], [info("e", F, [2])])
    body = helper.make_graph(
        [
            node("Add", ["state", "x"], ["next"]),
            node("Identity", ["keep"], ["go"]),
            node("Mul", ["next", "w"], ["seen"]),
        ],
        "body",
        [info("i", INT, []), info("keep", B, []), info("state", F, [2])],
        [info("go", B, []), info("next", F, [2]), info("seen", F, [2])],
    )
    step = helper.make_graph(
        [node("Add", ["a", "b"], ["c"]), node("Identity", ["c"], ["d"])],
        "step",
        [info("a", F, [2]), info("b", F, [2])],
        [info("c", F, [2]), info("d", F, [2])],
    )
    nodes = [
        node("If", ["c0"], ["p"], then_branch=then, else_branch=other),
        node("Loop", ["trip", "yes", "p"], ["last", "all"], body=body),
        node("Scan", ["last", "all"], ["y", "z"], body=step, num_scan_inputs=1),
    ]
    weights = {"w": np.array([2, 3], np.float32), "trip": np.array(3), "yes": np.array(True)}
    inputs = [info("c0", B, []), info("x", F, [2])]
    return model(nodes, inputs, [info("y", F, None), info("z", F, None)], weights)


def recurrent() -> ModelProto:
    """LSTM, Einsum, layer normalisation, attention by hand."""
    rng = np.random.default_rng(1)
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["h", "last"], hidden_size=3, direction="forward"),
        node("Squeeze", ["h", "one"], ["s"]),
        node("LayerNormalization", ["s", "g"], ["n"], axis=-1),
        node("Einsum", ["n", "n"], ["e"], equation="sbh,tbh->bst"),
        node("Softmax", ["e"], ["p"], axis=-1),
        node("Clip", ["p", "low"], ["c"]),
        node("CumSum", ["c", "at"], ["u"], reverse=1),
        node("Cast", ["u"], ["y"], to=TensorProto.DOUBLE),
    ]
    weights = {
        "w": rng.standard_normal((1, 12, 2)).astype(np.float32),
        "r": rng.standard_normal((1, 12, 3)).astype(np.float32),
        "b": rng.standard_normal((1, 24)).astype(np.float32),
        "g": np.ones(3, np.float32),
        "one": np.array([1]),
        "low": np.array(0.1, np.float32),
        "at": np.array(1),
    }
    outputs = [info("y", TensorProto.DOUBLE, None), info("last", F, None)]
    return model(nodes, [info("x", F, [5, 2, 2])], outputs, weights)


def functions() -> ModelProto:
    """Functions of the model, quantisation, a sparse initializer, sequences, types in bytes."""
    double = helper.make_function(
        "own",
        "Double",
        ["a"],
        ["c"],
        [node("Add", ["a", "a"], ["t"]), node("LeakyRelu", ["t"], ["c"], alpha=0.1)],
        [helper.make_opsetid("", 21)],
    )
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5, 6], np.float32), "sp"),
        numpy_helper.from_array(np.array([1, 7]), "spi"),
        [4, 2],
    )
    nodes = [
        node("Double", ["x"], ["d"], domain="own", name="call"),
        node("MatMul", ["d", "sp"], ["m"]),
        node("QuantizeLinear", ["m", "scale", "zero"], ["q"], axis=1),
        node("DequantizeLinear", ["q", "scale", "zero"], ["f"], axis=1),
        node("SplitToSequence", ["f"], ["seq"], axis=0, keepdims=1),
        node("ConcatFromSequence", ["seq"], ["cat"], axis=0),
        node("Gelu", ["cat"], ["y"], approximate="tanh"),
    ]
    weights = {
        "scale": np.array(0.1, np.float32),
        "zero": np.array(3, np.uint8),
        "unused": np.array([1, 2], np.float16),
    }
    return model(
        nodes,
        [info("x", F, [3, 4])],
        [info("y", F, None)],
        weights,
        sparse=[sparse],
        functions=[double],
        opsets=[helper.make_opsetid("own", 1)],
    )


MODELS = {f.__name__: f for f in (convolutions, shapes, control, recurrent, functions)}

# -- mutations -------------------------------------------------------------------------------------
INTEGERS = (0, 1, -1, 2, 7, 64, 2**20, 2**31 - 1, -(2**31), 2**62, -(2**63))
FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e38)
TEXTS = ("", " ", "x", "y", "nowhere", "\0", "../x", "a" * 5000, "é")


def fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Each field of a message that is set, and of those inside it."""
    stack = [message]
    while stack:
        top = stack.pop()
        for field, v in top.ListFields():
            yield top, field
            if field.message_type is not None:
                stack += list(v) if field.is_repeated else [v]


def mutated(original: ModelProto, rng: random.Random) -> bytes:
    """The bytes of a damaged copy."""
    contents = bytearray(original.SerializeToString())
    kind = rng.random()
    if kind < 0.1:
        return bytes(contents[: rng.randrange(len(contents))])
    if kind < 0.3:
        for _ in range(rng.choice((1, 1, 2, 8))):
            contents[rng.randrange(len(contents))] = rng.randrange(256)
        return bytes(contents)
    copy = ModelProto()
    copy.CopyFrom(original)
    for _ in range(rng.choice((1, 1, 1, 2))):
        message, field = rng.choice(list(fields(copy)))
        change(message, field, rng)
    return copy.SerializeToString()


def change(message: Any, field: Any, rng: random.Random) -> None:
    """Give a field another value, or none."""
    if field.is_repeated:
        values = getattr(message, field.name)
        at = rng.randrange(len(values))
        what = rng.choice(("drop", "twice", "clear", "swap", "value", "value"))
        if what == "clear":
            message.ClearField(field.name)
        elif what == "drop":
            del values[at]
        elif what == "twice":
            values.extend([values[at]])
        elif what == "swap":
            items = list(values)
            items = items[at:] + items[:at]
            del values[:]
            values.extend(items)
        elif field.message_type is None:
            values[at] = other(field, values[at], rng)
        return
    if field.message_type is not None or rng.random() < 0.1:
        message.ClearField(field.name)
        return
    setattr(message, field.name, other(field, getattr(message, field.name), rng))


def other(field: Any, value: Any, rng: random.Random) -> Any:
    """Another value for a field."""
    if isinstance(value, float):
        return rng.choice(FLOATS)
    if isinstance(value, str):
        return rng.choice(TEXTS)
    if isinstance(value, bytes):
        return rng.choice((b"", value[:-1], value + value, rng.randbytes(len(value)), b"\xff"))
    if field.enum_type is not None:
        return rng.choice([v.number for v in field.enum_type.values])
    narrow = field.cpp_type == field.CPPTYPE_INT32
    return rng.choice([v for v in INTEGERS if not narrow or -(2**31) <= v < 2**31])


# -- importing -------------------------------------------------------------------------------------
class TooLong(Exception):
    """A mutant took more than its time."""


def late(*args: object) -> None:
    """The handler of the alarm."""
    raise TooLong


def attempt(contents: bytes, convert: Callable[[bytes], Any]) -> tuple[bool, str]:
    """Whether it was imported, and what was wrong with how it failed."""
    from relax2xla.errors import TVMError

    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        convert(contents)
    except (TVMError, ValueError) as e:
        text = str(e)
        if not text.strip() or (type(e) not in {ValueError} and not isinstance(e, TVMError)):
            return False, f"{type(e).__name__}: {text[:200]}"
        return False, "" if len(text) < 20_000 else f"a message of {len(text)} characters"
    except BaseException as e:  # anything else is what the test is about
        return False, f"{type(e).__name__}: {str(e)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return True, ""


def main(name: str, count: int) -> None:
    """Import ``count`` mutants of a model."""
    from relax2xla.frontend.onnx import from_onnx
    from relax2xla.stablehlo.untrusted.guard_child import limit_memory

    warnings.simplefilter("ignore")
    original = MODELS[name]()
    from_onnx(original)
    limit_memory(MEMORY)
    signal.signal(signal.SIGALRM, late)
    imported, bad = 0, list[tuple[int, str]]()
    for seed in range(count):
        sys.stderr.write(f"\n{seed}\n")
        sys.stderr.flush()
        good, problem = attempt(mutated(original, random.Random(seed)), from_onnx)
        imported += good
        if problem:
            bad.append((seed, problem))
    sys.stdout.write(json.dumps({"count": count, "imported": imported, "bad": bad}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

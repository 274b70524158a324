"""Random ONNX models with small sizes, 0 and 1 among them, from seeds.

A model is grown node by node: an operator of the table draws its operands among the values so far,
and ONNX's own reference evaluates the node, which says whether it is valid and what comes out. So
inputs that say shapes and positions fit, wherever they come from: initializers, inputs of the
model, or arithmetic on shapes such as exporters write. The same seed gives the same model and the
same inputs with the same releases of onnx and numpy.

Values are small. What is rounded on the way (``exact`` is False) never meets an operator that
jumps, such as ``Floor`` or ``ArgMax``, so that results of two runtimes can be compared closely.
"""

from __future__ import annotations

from typing import Any

from onnx import ModelProto, helper, numpy_helper

from tests.fuzz.onnx_growth import KINDS, OPSET, Array, Graph, NoFit, info, model
from tests.fuzz.onnx_operators import RULES

# Draws of one node before the model is left as it is.
TRIES = 30


def _grown(seed: int) -> Graph:
    g = Graph(seed)
    for _ in range(g.between(1, 3)):
        g.leaf(g.numbers(g.shape(), g.pick(KINDS)), 0.3)
    wanted, tries = g.between(2, 9), 0
    names = list(RULES)
    while len(g.nodes) < wanted and tries < TRIES:
        tries += 1
        before = (dict(g.weights), dict(g.inputs), list(g.values), list(g.nodes), set(g.used))
        try:
            RULES[g.pick(names)](g)
        except NoFit:
            g.weights, g.inputs, g.values, g.nodes, g.used = before
    if not g.nodes:
        g.emit("Identity", [g.leaf(g.numbers((2, 1), "float32"), 0.0)])
    return g


def graph(seed: int) -> ModelProto:
    """A valid model of opset ``OPSET`` with two to about twenty nodes.

    Sizes of the inputs are static in half of the models and named in the others, each by a name
    of its own. Its outputs are the values that no node reads, and some of the others.
    """
    g = _grown(seed)
    named = g.chance(0.5)
    opened = set(g.inputs) - g.static if named else set[str]()
    inputs = [
        info(
            n,
            a,
            [f"{n}_{i}" if n in opened and g.chance(0.7) else d for i, d in enumerate(a.shape)],
        )
        for n, a in g.inputs.items()
        if n in g.used
    ]
    made = {o for n in g.nodes for o in n.output}
    outputs = [v for v in g.values if v.name in made and (v.name not in g.used or g.chance(0.2))]
    proto = helper.make_graph(
        g.nodes,
        f"seed{seed}",
        inputs,
        [info(v.name, v.data, _open(v.data, named)) for v in outputs],
        [numpy_helper.from_array(a, n) for n, a in g.weights.items() if n in g.used],
    )
    return model(proto)


def _open(data: Array, named: bool) -> list[Any]:
    """Dimensions of an output, which are not known where those of the inputs are not."""
    return [None] * data.ndim if named else list(data.shape)


def inputs(model: ModelProto, seed: int) -> dict[str, Array]:
    """The inputs that :func:`graph` made the model for, by name."""
    drawn = _grown(seed).inputs
    return {i.name: drawn[i.name] for i in model.graph.input}


__all__ = ["OPSET", "graph", "inputs"]

"""Steps, times and memory of compiled programs, by XLA's own record and the source's names."""

from __future__ import annotations

import io
import json
import time

import jax
import numpy as np

import relax2xla as rx
from relax2xla import op as R
from relax2xla.vm.observe.trace import (
    LEFT_OUT,
    by_source,
    largest_values,
    mark,
    record,
    source_names,
    write_chrome_trace,
)

T = rx.TensorStructInfo


def machine() -> rx.VirtualMachine:
    """Two named layers; the second does the work of the first a hundred times."""
    builder = rx.BlockBuilder()
    x = rx.Var("x", T((200, 200), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            with builder.source(rx.Span("first")):
                y = builder.emit(R.sort(x))
            with builder.source(rx.Span("second")):
                for _ in range(20):
                    y = builder.emit(R.matmul(y, y))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return rx.VirtualMachine(rx.build(builder.get()))


def test_steps_have_the_names_of_the_source() -> None:
    vm = machine()
    x = np.zeros((200, 200), np.float32)
    vm["main"](x)
    (loaded,) = vm.programs()["main"]
    start = time.perf_counter()

    def run() -> None:
        with mark(LEFT_OUT):
            jax.block_until_ready(vm["main"](x))
        with mark(0):
            jax.block_until_ready(vm["main"](x))

    steps = record(run, [loaded.hlo_text()])
    products = [s.op for s in steps if s.source == "second"]
    assert len(set(products)) == len(products)
    wall = 1e9 * (time.perf_counter() - start)
    rows = by_source(steps)
    names = [n for n, _, _ in rows]
    assert any("first" in n for n in names)
    assert any("second" in n for n in names)
    assert 0 < max(s.duration for s in steps) < wall
    assert sum(c for _, _, c in rows) == len(steps)
    assert [t for _, t, _ in rows] == sorted((t for _, t, _ in rows), reverse=True)
    file = io.BytesIO()
    write_chrome_trace(file, steps)
    events = json.loads(file.getvalue())["traceEvents"]
    drawn = [e for e in events if e["ph"] == "X"]
    assert len(drawn) == len(steps)
    assert {e["name"] for e in drawn} == set(names)
    assert {e["tid"] for e in drawn} == {e["tid"] for e in events if e["ph"] == "M"}


HLO = """HloModule main

%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %big = f32[999,999]{1,0} negate(%p)
}

%inner (q: f32[4]) -> f32[4] {
  %q = f32[4]{0} parameter(0)
  %sum = f32[4]{0} add(%q, %q), metadata={op_name="layer.2" stack_frame_id=2}
  ROOT %bare = f32[4]{0} negate(%sum)
}

ENTRY %main (a: f32[4]) -> (f32[4,4], c64[2]) {
  %a = f32[4]{0} parameter(0), metadata={op_name="x"}
  %fusion = f32[4,4]{1,0} fusion(%a), kind=kLoop, calls=%fused, metadata={op_name="layer/\\"1\\""}
  %nameless = f32[4]{0} fusion(%a), kind=kLoop, calls=%inner
  %line = f32[1]{0} fusion(%a), calls=%inner, metadata={source_file="/a b/net.py" source_line=7}
  %pair = (s8[3]{0}, bf16[2,2]{1,0}) custom-call(%a), custom_call_target="f"
  ROOT %t = (f32[4,4]{1,0}, c64[2]{0}) tuple(%fusion, %pair)
}
"""


def test_values_of_hlo() -> None:
    assert source_names(HLO) == {
        "a": "x",
        "fusion": 'layer/\\"1\\"',
        "sum": "layer.2",
        "nameless": "layer.2",
        "line": "net.py:7",
    }
    found = largest_values(HLO)
    assert [(v.op, v.kind, v.bytes) for v in found] == [
        ("fusion", "fusion", 64),
        ("nameless", "fusion", 16),
        ("pair", "custom-call", 11),
        ("line", "fusion", 4),
    ]


def test_a_step_of_onednn_has_its_target_behind_the_name() -> None:
    line = """  %conv.3 = f32[4]{0} custom-call(%a), custom_call_target="__onednn$convolution", """
    text = HLO.replace("  %nameless", f"""{line}metadata={{op_name="conv1"}}\n  %nameless""", 1)
    names = source_names(text)
    assert names["conv.3"] == names["conv.3__onednn$convolution"] == "conv1"


def test_values_of_a_program() -> None:
    vm = machine()
    vm.warm("main")
    (loaded,) = vm.programs()["main"]
    found = largest_values(loaded.hlo_text(), 3)
    assert found[0].bytes == 200 * 200 * 4
    assert any("second" in v.source for v in found)
    # And biases of zeros, where products are calls.
    assert loaded.memory().argument_size_in_bytes >= 200 * 200 * 4

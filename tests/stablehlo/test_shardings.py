"""Programs with sharding annotations on one device: the values are those without them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import DeviceError, StableHLOParseError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.stablehlo import parse
from relax2xla.stablehlo.shardings import without_shardings
from relax2xla.vm.pjrt import compiler, xla

X = np.arange(4, dtype=np.float32)
T = "tensor<4xf32>"
PER_VALUE = '#sdy.sharding_per_value<[<@m, [{"x"}]>]>'
# As XLA's own round trip of Shardy writes it: in frontend attributes, as text.
AS_TEXT = 'mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding_per_value<[<@m, [{}]>]>"}'
BODIES = {
    "constraint": '%y = sdy.sharding_constraint %x <@m, [{"x"}]> : T',
    "attribute": f"%y = stablehlo.negate %z {{sdy.sharding = {PER_VALUE}}} : T",
    "barrier": "%y = sdy.propagation_barrier %x allowed_direction=NONE : T",
    "group": "sdy.sharding_group %x group_id=1 : T\n %y = stablehlo.negate %z : T",
    "reshard": '%y = sdy.reshard %x <@m, [{"x"}]> : T',
    "constant": """
      %c = sdy.constant dense<[0.0, 1.0, 2.0, 3.0]> : T
      %w = stablehlo.multiply %x, %c : T
      %v = stablehlo.add %w, %x : T
      %y = stablehlo.subtract %v, %w : T""",
    "scopes": """
      %y = sdy.manual_computation(%x) in_shardings=[<@m, [{"x"}]>]
          out_shardings=[<@m, [{"x"}]>] manual_axes={"x"} (%a: T) {
        %n = sdy.named_computation<"inner">(%a) (%b: T) {
          %c = sdy.sharding_constraint %b <@m, [{}]> : T
          sdy.return %c : T
        } : (T) -> T
        sdy.return %n : T
      } : (T) -> T""",
    "gspmd": """
      %a = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (T) -> T
      %b = stablehlo.custom_call @SPMDFullToShardShape(%a) {mhlo.sharding = "{manual}"} : (T) -> T
      %y = stablehlo.custom_call @SPMDShardToFullShape(%b) : (T) -> T""",
    "frontend": f"""
      %a = stablehlo.custom_call @Sharding(%x) {{{AS_TEXT}}} : (T) -> T
      %y = stablehlo.custom_call @xla.sdy.FuncResultSharding(%a) {{{AS_TEXT}}} : (T) -> T""",
}


def program(body: str, size: int = 1, head: str = "") -> str:
    """``%y`` of ``body``, which is ``%x``, twice; ``%z`` is ``-%x``."""
    text = f"""
    module {head} {{
      sdy.mesh @m = <["x"={size}]>
      func.func public @main(%x: T {{sdy.sharding = #sdy.sharding<@m, [{{"x"}}]>}})
          -> (T {{jax.result_info = "r", sdy.sharding = #sdy.sharding<@m, [{{}}]>}}) {{
        %z = stablehlo.negate %x : T
        {body}
        %r = stablehlo.add %y, %y : T
        return %r : T
      }}
    }}"""
    return text.replace(" T", f" {T}").replace("(T", f"({T}")


def run(mod: Any, *args: Any) -> Any:
    return rx.VirtualMachine(rx.build(mod))["main"](*args)


# Over several devices a manual computation is no annotation.
@pytest.mark.parametrize(
    ("case", "size"), [(c, n) for c in BODIES for n in (1, 4) if (c, n) != ("scopes", 4)]
)
def test_right_values(case: str, size: int) -> None:
    text = program(BODIES[case], size)
    module = parse(text)
    cleaned = str(without_shardings(module))
    assert not any(word in cleaned for word in ("sdy", "harding", "SPMD"))
    assert 'jax.result_info = "r"' in cleaned
    # What was given is as it was.
    assert str(module) == str(parse(text))
    for raise_ops in (False, True):
        mod = from_stablehlo(text, raise_ops=raise_ops)
        np.testing.assert_array_equal(run(mod, X), 2 * X)
        assert rx.to_stablehlo(mod) == str(module)


def test_an_unknown_mesh_does_not_end_the_process() -> None:
    # XLA's own CHECK of it does.
    text = f"""func.func public @main(%x: {T}) -> {T} {{
      %y = stablehlo.custom_call @xla.sdy.FuncResultSharding(%x) {{{AS_TEXT}}} : ({T}) -> {T}
      return %y : {T} }}"""
    np.testing.assert_array_equal(run(from_stablehlo(text), X), X)
    loaded = compiler.Loaded(parse(text), [jax.core.ShapedArray((4,), np.float32)], None)
    np.testing.assert_array_equal(loaded.run([xla.device_put(X, None)])[0], X)


def test_a_program_without_annotations_is_not_copied() -> None:
    module = parse(f"func.func @main(%x: {T}) -> {T} {{ return %x : {T} }}")
    assert without_shardings(module) is module


def test_parts_of_an_array_need_several_devices() -> None:
    text = program(
        """
      %y = sdy.manual_computation(%x) in_shardings=[<@m, [{"x"}]>]
          out_shardings=[<@m, [{"x"}]>] manual_axes={"x"} (%a: tensor<1xf32>) {
        sdy.return %a : tensor<1xf32>
      } : (T) -> T""",
        size=4,
    )
    with pytest.raises(DeviceError, match="parts of an array on several devices"):
        without_shardings(parse(text))


def test_attributes_of_another_kind_than_they_have() -> None:
    text = """func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.add %a, %a {mhlo.frontend_attributes = "sdy"} : tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    machine = rx.VirtualMachine(rx.build(from_stablehlo(text)))
    with pytest.raises(StableHLOParseError, match="expected a dictionary of attributes"):
        machine["main"](np.ones(4, np.float32))

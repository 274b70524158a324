"""Integer divisions by constants that hold zero: XLA must not end the process."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.transform.core import run_on_function
from relax2xla.transform.lower.safe_division import ShieldDivisions
from tests.processes import run_python


def test_relax_operators() -> None:
    lines = run_python(
        """
        import numpy as np
        import relax2xla as rx
        from relax2xla import op

        a = rx.const(np.array([5, 6, 7, 8], "int32"))
        b = op.add(rx.const(np.array([1, 0, 2, 0], "int32")), rx.const(np.zeros(4, "int32")))
        for fn in (op.divide, op.floor_divide, op.mod, op.floor_mod):
            bb = rx.BlockBuilder()
            with bb.function("main", []):
                with bb.dataflow():
                    out = bb.emit_output(fn(a, bb.emit(b)))
                bb.emit_func_output(out)
            result = np.asarray(rx.VirtualMachine(rx.build(bb.get()), rx.cpu())["main"]())
            print(result[[0, 2]].tolist())
        """
    ).splitlines()
    assert lines[:4] == ["[5, 3]", "[5, 3]", "[0, 1]", "[0, 1]"]


def test_inside_regions_and_callees() -> None:
    lines = run_python(
        """
        import numpy as np
        import relax2xla as rx
        from relax2xla.frontend.stablehlo import from_stablehlo

        text = '''
        func.func public @main(%p: tensor<i1>) -> (tensor<2xi32>, tensor<2xi32>) {
          %0 = "stablehlo.if"(%p) ({
            %a = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
            %z = stablehlo.constant dense<[2, 0]> : tensor<2xi32>
            %q = stablehlo.divide %a, %z : tensor<2xi32>
            stablehlo.return %q : tensor<2xi32>
          }, {
            %a = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
            stablehlo.return %a : tensor<2xi32>
          }) : (tensor<i1>) -> tensor<2xi32>
          %1 = func.call @inner() : () -> tensor<2xi32>
          return %0, %1 : tensor<2xi32>, tensor<2xi32>
        }
        func.func private @inner() -> tensor<2xi32> {
          %a = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
          %z = stablehlo.constant dense<[2, 0]> : tensor<2xi32>
          %q = stablehlo.remainder %a, %z : tensor<2xi32>
          return %q : tensor<2xi32>
        }
        '''
        mod = from_stablehlo(text, raise_ops=False)
        a, b = rx.VirtualMachine(rx.build(mod), rx.cpu())["main"](np.array(True))
        print(a.tolist()[0], b.tolist()[0])
        """
    ).splitlines()
    assert lines[0] == "3 1"


@pytest.mark.parametrize(
    ("dividend", "divisor", "shielded"),
    [
        ("%x", "dense<[2, 0]>", False),
        ("dense<[7, 8]>", "dense<[2, 0]>", True),
        ("dense<[7, 8]>", "dense<[2, 1]>", False),
        ("dense<[7, 8]>", "%x", False),
    ],
)
def test_only_what_xla_would_fold(dividend: str, divisor: str, shielded: bool) -> None:
    def operand(name: str, value: str) -> str:
        return "" if value == "%x" else f"%{name} = stablehlo.constant {value} : tensor<2xi32>"

    names = [v if v == "%x" else f"%{n}" for n, v in (("a", dividend), ("b", divisor))]
    text = f"""
    func.func public @main(%x: tensor<2xi32>) -> tensor<2xi32> {{
      {operand("a", dividend)}
      {operand("b", divisor)}
      %q = stablehlo.divide {", ".join(names)} : tensor<2xi32>
      return %q : tensor<2xi32>
    }}"""
    mod = from_stablehlo(text, raise_ops=False)
    func = mod["main"]
    new = run_on_function([ShieldDivisions()], func, "main")
    assert (new is not func) == shielded
    vm = rx.VirtualMachine(rx.build(mod), rx.cpu())
    assert np.asarray(vm["main"](np.array([1, 2], "int32"))).dtype == np.int32

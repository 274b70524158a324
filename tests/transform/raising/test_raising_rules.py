"""Every rule of RaiseStableHLO, wherever rows may stand: the result is well formed and right."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from jax.tree_util import tree_leaves

import relax2xla as rx
from relax2xla.dtypes import numpy_dtype
from relax2xla.ir import IRModule, TensorStructInfo
from relax2xla.stablehlo import parse, read
from relax2xla.transform import LegalizeOps, RaiseStableHLO
from relax2xla.transform.raising import raise_stablehlo
from relax2xla.transform.raising.composites import PATTERNS
from relax2xla.transform.raising.graph import row_name
from relax2xla.transform.raising.inline import inline_private
from relax2xla.transform.raising.rows import TABLE
from tests.transform.raising.operators import OPERATORS
from tests.transform.raising.support import close, joined, leaves, lowered, param

from .raise_programs import PROGRAMS
from .raising_rules import FUNCTIONS, MORE, RULES

# In the function itself, in one that it calls, in a branch, and in a loop.
PLACES = 4
Rule = tuple[str, str]


@cache
def rows(name: str) -> tuple[IRModule, list[Any]]:
    """The rows of a program as one function, and its arguments."""
    rng = np.random.default_rng(0)
    if name.startswith("jax "):
        programs = {p[0]: p[1:] for p in (*PROGRAMS, *FUNCTIONS)}
        fn, args = programs[name.removeprefix("jax ")]
        return inline_private(lowered(fn, args)), tree_leaves(args)
    make, params = {c[0]: c[1:] for c in (*OPERATORS, *MORE)}[name]
    variables = [param(i, p) for i, p in enumerate(params)]
    builder = rx.BlockBuilder()
    with builder.function("main", variables):
        builder.emit_func_output(builder.emit(make(*variables)))
    infos = [v.struct_info for v in variables]
    values = [
        (np.abs(rng.standard_normal(i.dims)) * 2).astype(numpy_dtype(i.dtype))
        for i in infos
        if isinstance(i, TensorStructInfo)
    ]
    return LegalizeOps()(builder.get()), values


_MAIN = re.compile(
    r"func\.func (?:public )?@main\((.*?)\) -> [^\n]*\{\n"
    r"(.*)\n    return ([^\n:]*) : ([^\n]*)\n  \}",
    re.DOTALL,
)


def everywhere(mod: IRModule) -> IRModule:
    """The rows of ``main`` there, in a private function, in a branch, and in a loop."""
    found = _MAIN.search(rx.to_stablehlo(mod))
    assert found is not None
    head, body, values, types = found.groups()
    params = dict(re.findall(r"(%arg\d+): (tensor<[^>]*>)", head))
    results = re.findall(r"tensor<[^>]*>", types)

    def copy(prefix: str, text: str) -> str:
        def own(m: re.Match[str]) -> str:
            return m[0] if m[0] in params else f"%{prefix}{m[1]}"

        return re.sub(r"%(\w+)", own, text)

    given = ", ".join(f"{n}: {t}" for n, t in params.items())
    call = f"@f({', '.join(params)}) : ({', '.join(params.values())}) -> ({', '.join(results)})"
    many = f":{len(results)}"
    fields = {p: ", ".join(f"%{p}#{i}" for i in range(len(results))) for p in ("call", "if", "o")}
    carried = ["tensor<i32>", *results]
    block = ", ".join(f"%{{0}}{i}: {t}" for i, t in enumerate(carried))
    kinds = ", ".join(carried)
    out = [copy("a", values), copy("a", values), fields["call"], fields["if"]]
    out += [f"%loop#{i + 1}" for i in range(len(results))]
    return read(
        parse(f"""module {{
  func.func private @f({given}) -> ({", ".join(results)}) {{
{body}
    return {values} : {types}
  }}
  func.func public @main({", ".join(["%flag: tensor<i1>", *filter(None, [given])])})
      -> ({", ".join(results * 5)}) {{
{copy("a", body)}
    %call{many} = func.call {call}
    %if{many} = "stablehlo.if"(%flag) ({{
{copy("b", body)}
      stablehlo.return {copy("b", values)} : {types}
    }}, {{
      %o{many} = func.call {call}
      stablehlo.return {fields["o"]} : {types}
    }}) : (tensor<i1>) -> ({", ".join(results)})
    %begin = stablehlo.constant dense<0> : tensor<i32>
    %end = stablehlo.constant dense<2> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %loop:{len(carried)} = "stablehlo.while"(%begin, {copy("a", values)}) ({{
    ^bb0({block.format("s")}):
      %less = stablehlo.compare LT, %s0, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    }}, {{
    ^bb0({block.format("t")}):
{copy("c", body)}
      %next = stablehlo.add %t0, %one : tensor<i32>
      stablehlo.return %next, {copy("c", values)} : {kinds}
    }}) : ({kinds}) -> ({kinds})
    return {", ".join(out)} : {", ".join(results * 5)}
  }}
}}""")
    )


@cache
def places(name: str, inline: bool) -> tuple[IRModule, IRModule, Counter[Rule]]:
    """A program everywhere, what is raised of it, and in how many sequences each rule did so."""
    fired: dict[Rule, set[Any]] = {}
    guess = raise_stablehlo._Raiser.guess  # pyright: ignore[reportPrivateUsage]

    def noted(self: Any, var: Any, value: Any) -> Any:
        found = guess(self, var, value)
        if found is not None:
            rule = (row_name(value) or "item", self.patterns.get(var, "table"))
            # The object, not its id, which another one may get when it is gone.
            fired.setdefault(rule, set()).add((self, self.graph.home[var]))
        return found

    mod = everywhere(rows(name)[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raise_stablehlo._Raiser, "guess", noted)  # pyright: ignore[reportPrivateUsage]
        made = RaiseStableHLO(inline=inline)(mod)
    return mod, made, Counter({rule: len(where) for rule, where in fired.items()})


def test_each_rule_has_a_program() -> None:
    rules = {(row, p.name) for row, patterns in PATTERNS.items() for p in patterns}
    rules |= {(row, "table") for row in TABLE}
    named = [
        (row, p) for found in RULES.values() for p, last in found.items() for row in last.split(" ")
    ]
    assert rules == set(named)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_fires_wherever_its_rows_stand(name: str) -> None:
    for inline in (False, True):
        _, made, fired = places(name, inline)
        assert rx.analysis.well_formed(made)
        for pattern, last in RULES[name].items():
            for row in last.split(" "):
                assert fired[row, pattern] >= PLACES - inline, (row, pattern)
        # Functions that have become small enough to be inlined are another matter.
        rx.ir.assert_structural_equal(RaiseStableHLO(inline=False)(made), made)


@pytest.mark.parametrize("inline", [False, True])
def test_what_a_rule_puts_in_place_of_rows_computes_the_same(inline: bool) -> None:
    programs: list[tuple[str, IRModule]] = []
    inputs: list[Any] = []
    names = list(RULES)[inline::2]  # Each is compiled once; the modules differ little.
    for i, name in enumerate(names):
        before, after, _ = places(name, inline)
        programs += [(f"a{i}", before), (f"b{i}", after)]
        inputs += [np.asarray(True), *rows(name)[1]] * 2
    results = rx.testing.evaluate(joined(programs), inputs)
    for name, a, b in zip(names, results[::2], results[1::2], strict=True):
        for x, y in zip(leaves(a), leaves(b), strict=True):
            assert close(np.asarray(x), np.asarray(y)), name

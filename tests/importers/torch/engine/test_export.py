"""Programs as a whole: parameters, results, names, spans, shapes, writes in place, gaps."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import relax2xla  # noqa: E402
from relax2xla import Constant, Function, IRModule, OpNotImplemented, TVMError, op, tir  # noqa: E402
from relax2xla.errors import CallError, UnsupportedError  # noqa: E402
from relax2xla.frontend import detach_params  # noqa: E402
from relax2xla.frontend.torch import from_exported_program  # noqa: E402
from relax2xla.importers.torch import register_converter  # noqa: E402
from relax2xla.importers.torch.engine import converters  # noqa: E402
from relax2xla.importers.torch.engine.converters import CONVERTERS, Converter  # noqa: E402
from relax2xla.importers.torch.source.decompositions import OWN  # noqa: E402
from relax2xla.ir import (  # noqa: E402
    PrimStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from tests.importers.torch.helpers import Fn, check, imported, run  # noqa: E402


def bindings(mod: IRModule) -> list[Any]:
    return [b for block in mod["main"].body.blocks for b in block.bindings]


def constants(mod: IRModule) -> list[Constant]:
    found: dict[int, Constant] = {}
    for b in bindings(mod):
        for x in getattr(b.value, "args", ()):
            if isinstance(x, Constant):
                found[id(x)] = x
    return list(found.values())


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(10, 7)
        self.register_buffer("shift", torch.ones(7))

    def forward(self, x: Any) -> Any:
        return torch.relu(self.up(x)) + self.shift


X = torch.randn(128, 10, generator=torch.Generator().manual_seed(0))


# -- the signature -------------------------------------------------------------------------------
def test_the_documented_example() -> None:
    program = torch.export.export(MLP(), args=(torch.rand(128, 10, dtype=torch.float32),))
    mod = from_exported_program(program)
    main = mod["main"]
    assert isinstance(main, Function)
    assert [p.name_hint for p in main.params] == ["x"]
    assert main.ret_struct_info == TupleStructInfo([TensorStructInfo((128, 7), "float32")])


def test_parameters_kept_as_inputs_and_detached() -> None:
    module = MLP()
    mod = imported(module, [X], keep_params_as_input=True)
    assert [p.name_hint for p in mod["main"].params] == ["x", "p_up_weight", "p_up_bias"]
    assert mod["main"].attrs["num_input"] == 1
    detached, params = detach_params(mod)
    assert "params" not in detached["main"].attrs
    assert "params" in mod["main"].attrs  # the given module stays as it is
    assert list(params) == ["main"]
    weight, bias = params["main"]
    np.testing.assert_array_equal(weight, module.up.weight.detach().numpy())
    (got,) = run(detached, [X, torch.from_numpy(weight), torch.from_numpy(bias)])
    np.testing.assert_allclose(got, module(X).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_detach_params_without_and_with_wrong_params() -> None:
    assert detach_params(imported(MLP(), [X]))[1] == {}
    mod = imported(MLP(), [X])
    mod["main"] = mod["main"].with_attr("params", "none")
    with pytest.raises(ValueError, match="must be a list of arrays"):
        detach_params(mod)


def test_unwrap_unit_return_tuple() -> None:
    tensor = TensorStructInfo((128, 7), "float32")
    assert imported(MLP(), [X], unwrap_unit_return_tuple=True)["main"].ret_struct_info == tensor
    two = imported(lambda x: (x, x + 1), [X], unwrap_unit_return_tuple=True)
    assert isinstance(two["main"].ret_struct_info, TupleStructInfo)


def test_no_bind_return_tuple() -> None:
    from relax2xla import Tuple, Var

    bound = imported(lambda x: (x * 2, x + 1), [X])["main"].body.body
    assert isinstance(bound, Var)
    free = imported(lambda x: (x * 2, x + 1), [X], no_bind_return_tuple=True)["main"].body.body
    assert isinstance(free, Tuple)
    assert all(isinstance(f, Var) for f in free.fields)


def test_anything_else_than_a_program_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes the result of torch\.export\.export; got MLP"):
        from_exported_program(MLP())  # type: ignore[arg-type]


# -- inputs and results --------------------------------------------------------------------------
class Nested(nn.Module):
    def forward(self, pair: Any, options: Any, *, scale: Any) -> Any:
        a, b = pair
        return {"sum": a + b, "rest": [options["x"] * scale, None, 3], "shape": a.shape[0]}


def test_nested_inputs_and_results() -> None:
    a, b, x, s = (torch.randn(2, 3) for _ in range(4))
    program = torch.export.export(Nested(), ((a, b), {"x": x}), {"scale": s})
    mod = from_exported_program(program)
    assert [p.name_hint for p in mod["main"].params] == ["pair_0", "pair_1", "options_x", "scale"]
    info = mod["main"].ret_struct_info
    assert isinstance(info, TupleStructInfo)
    assert info.fields[2] == TupleStructInfo(())  # None
    assert [type(f) for f in info.fields[3:]] == [PrimStructInfo, PrimStructInfo]
    assert len(info.fields) == 5


def test_a_number_that_the_export_fixed_is_no_parameter() -> None:
    mod = check(lambda x, n, y: x * n + y, [torch.ones(2), 3, torch.ones(2)])
    assert len(mod["main"].params) == 2


def test_a_result_that_is_an_input_or_a_weight() -> None:
    class Same(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return x, self.w, x

    check(Same(), [torch.randn(2)])


# -- weights -------------------------------------------------------------------------------------
def test_weights_share_torchs_memory() -> None:
    module = MLP()
    shared = [c for c in constants(imported(module, [X])) if c.data.size > 1]
    pointers = {c.data.__array_interface__["data"][0] for c in shared}
    assert pointers == {t.data_ptr() for t in (module.up.weight, module.up.bias, module.shift)}


def test_tied_weights_are_one_constant() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(11, 4)
            self.head = nn.Linear(4, 11, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.tokens(ids))

    mod = check(Tied(), [torch.tensor([[1, 5]])])
    assert [c.data.shape for c in constants(mod)] == [(11, 4)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_weights_of_other_dtypes(dtype: str) -> None:
    kind = getattr(torch, dtype)
    mod = check(nn.Linear(4, 3).to(kind), [torch.randn(2, 4).to(kind)])
    assert {c.data.dtype.name for c in constants(mod)} == {dtype}


def test_bfloat16_weights_keep_their_bits() -> None:
    class Add(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(5).bfloat16())

        def forward(self, x: Any) -> Any:
            return x + self.w

    module = Add()
    (constant,) = constants(imported(module, [torch.zeros(5).bfloat16()]))
    assert constant.data.dtype == ml_dtypes.bfloat16
    assert np.array_equal(constant.data.astype(np.float32), module.w.detach().float().numpy())


# -- names and spans -----------------------------------------------------------------------------
class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(MLP(), nn.Linear(7, 2))

    def forward(self, x: Any) -> Any:
        return self.layers(x).softmax(-1)


def test_every_binding_has_its_module_and_line() -> None:
    mod = imported(Two(), [X])
    where = {b.var.name_hint: b.span for b in bindings(mod)}
    assert where["linear"].name == "layers.0.up"
    assert where["relu"].name == "layers.0"
    assert where["linear_1"].name == "layers.1"
    assert where["softmax"].name == ""
    assert where.pop("gv").name == "output"
    assert all(s.file.endswith("test_export.py") and s.line > 0 for s in where.values())


# -- shapes --------------------------------------------------------------------------------------
def test_a_dim_is_one_variable_everywhere_and_its_range_is_kept() -> None:
    n, m = torch.export.Dim("n", min=2, max=9), torch.export.Dim("m", max=100)
    x, y = torch.randn(4, 5), torch.randn(5, 4)
    mod = imported(lambda x, y: x @ y, [x, y], [{0: n, 1: m}, {0: m, 1: n}])
    infos = [p.struct_info for p in mod["main"].params]
    a, b = infos[0].dims
    assert (str(a), str(b)) == ("n", "m")
    assert infos[1].dims == (b, a)
    assert mod["main"].ret_struct_info.fields[0].dims == (a, a)
    assert mod["main"].attrs["tir_var_lower_bound"]["n"] == 2
    assert mod["main"].attrs["tir_var_upper_bound"] == {"n": 9, "m": 100}


def test_ranges_are_checked_at_the_call() -> None:
    rows = torch.export.Dim("rows", min=4, max=16)
    mod = imported(lambda x, y: x.sum(0) + y, [X[:8], X[:1]], [{0: rows}, None])
    assert run(mod, [X[:16], X[:1]])[0].shape == (1, 10)
    want = r"main: .* parameter `args_0` has 17 as dimension 0 \(`rows`\), .* 4 to 16 of"
    with pytest.raises(CallError, match=want):
        run(mod, [X[:17], X[:1]])
    with pytest.raises(CallError, match=r"has 3 as dimension 0"):
        run(mod, [X[:3], X[:1]])
    anything = torch.export.Dim("n")
    mod = imported(lambda x: x * 2, [X[:8]], [{0: anything}])
    assert run(mod, [X[:1]])[0].shape == (1, 10)


class Taller(torch.nn.Module):
    """Branches on sizes of nested and named inputs."""

    def forward(self, x: Any, *rest: Any, more: Any = None) -> Any:
        z = rest[0] * 2 if x.shape[0] > rest[0].shape[0] else rest[0]
        return z + 1 if more["k"][0].shape[0] < 2 * x.shape[0] else z


@pytest.mark.parametrize("how", ["traced", "strict", "saved"])
def test_branches_on_sizes_are_conditions_of_the_call(how: str) -> None:
    auto = torch.export.Dim.AUTO
    program = torch.export.export(
        Taller(),
        (X[:8], X[:5]),
        {"more": {"k": [X[:3]]}},
        dynamic_shapes={"x": {0: auto}, "rest": ({0: auto},), "more": {"k": [{0: auto}]}},
        strict=how == "strict",
    )
    if how == "saved":
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        program = torch.export.load(file)
    mod = from_exported_program(program)
    assert np.array_equal(run(mod, [X[:4], X[:3], X[:7]])[0], X[:3] * 2 + 1)
    assert len(mod["main"].attrs["tir_var_conditions"]) == 2
    for wrong in ([X[:4], X[:4], X[:7]], [X[:4], X[:3], X[:8]]):
        with pytest.raises(CallError, match=r"main: `.*<.*` does not hold for dimension 0 .* `x`"):
            run(mod, wrong)


@pytest.mark.parametrize("whole", [math.trunc, math.floor, math.ceil, round])
def test_whole_numbers_of_floats_are_conditions_of_the_call(whole: Callable[[Any], int]) -> None:
    def quarter(size: Any) -> Any:
        return (size - 8) / 4

    def most(size: Any) -> Any:
        return size * 0.7

    class Padded(nn.Module):
        def forward(self, x: Any) -> Any:
            pad = int(whole(quarter(x.shape[0]))) + int(whole(most(x.shape[0])))
            return torch.nn.functional.pad(x, (0, 10 + pad))

    x = torch.ones(13, 2)
    auto = torch.export.Dim.AUTO
    program = torch.export.export(Padded(), (x,), dynamic_shapes=({0: auto},))
    machine = relax2xla.VirtualMachine(relax2xla.build(from_exported_program(program)))
    for size in range(2, 24):
        given = torch.ones(size, 2)
        if all(whole(f(size)) == whole(f(13)) for f in (quarter, most)):
            found = machine["main"](given.numpy())
            np.testing.assert_array_equal(found[0], Padded()(given))
        else:
            with pytest.raises(CallError, match="does not hold for dimension 0"):
                machine["main"](given.numpy())


@pytest.mark.parametrize("down", [2, 4, 3])
def test_sizes_that_are_rounded(down: int) -> None:
    module = Fn(lambda x: x[: round(x.shape[0] / down)])
    auto = torch.export.Dim.AUTO
    program = torch.export.export(module, (torch.ones(13),), dynamic_shapes=(({0: auto},),))
    machine = relax2xla.VirtualMachine(relax2xla.build(from_exported_program(program)))
    for size in range(6, 20):
        assert machine["main"](np.ones(size, np.float32))[0].shape == (round(size / down),)


class Joined:
    """Like the caches of transformers: made of tensors alone, which it copies."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.whole = torch.cat(tuple(parts))


def test_conditions_on_sizes_in_a_registered_class() -> None:
    def keyed(joined: Any) -> tuple[list[tuple[Any, Any]], Any]:
        return [(pytree.SequenceKey(0), joined.whole)], None

    pytree.register_pytree_node(
        Joined,
        lambda joined: ([joined.whole], None),
        lambda parts, _: Joined(list(parts)),
        flatten_with_keys_fn=keyed,
    )
    auto = torch.export.Dim.AUTO

    class Longer(nn.Module):
        def forward(self, x: Any, held: Any, scale: Any) -> Any:
            return x * scale if held.whole.shape[0] > x.shape[0] else x

    program = torch.export.export(
        Longer(),
        (X[:5],),
        {"scale": X[0], "held": Joined([X[:4], X[:3]])},  # in another order than the signature
        dynamic_shapes={"x": {0: auto}, "held": [{0: auto}], "scale": None},
    )
    mod = from_exported_program(program)
    order = [p.name_hint for p in mod["main"].params]
    given = {"x": X[:3], "scale": X[0]}
    inputs = [given.get(name, X[:4]) for name in order]
    np.testing.assert_array_equal(run(mod, inputs)[0], X[:3] * X[0])
    with pytest.raises(CallError, match=r"main: `.*<.*` does not hold"):
        run(mod, [given.get(name, X[:3]) for name in order])


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_inputs_that_are_not_dense(layout: str) -> None:
    sparse = torch.eye(3).to_sparse(layout=getattr(torch, layout))
    with pytest.raises(OpNotImplemented, match=rf"layout torch.{layout}.*\n?.*to_dense"):
        imported(lambda x: x * 2, [sparse])


def test_a_condition_that_is_not_on_sizes() -> None:
    program = torch.export.export(Fn(lambda x: x + 1), (X,))
    program._guards_code = [
        "L['args'][0].stride()[0] == 5",  # no matter
        "L['args'][0].size()[0] == 128",
        "len(L['args']) == 1",
    ]
    with pytest.warns(UserWarning, match=r"`len\(.*\) == 1`, which is not checked: .* no arith"):
        mod = from_exported_program(program)
    assert "tir_var_conditions" not in mod["main"].attrs


@pytest.mark.parametrize("of", ["max(", "torch.sym_max("])
def test_the_larger_of_sizes_as_releases_of_torch_spell_it(of: str) -> None:
    auto = torch.export.Dim.AUTO
    program = torch.export.export(
        Fn(lambda x: x + 1), (X,), dynamic_shapes=(({0: auto, 1: auto},),)
    )
    rows, columns = (f"L['args'][0].size()[{axis}]" for axis in range(2))
    program._guards_code = [f"{of}{rows}, {columns}) <= 5"]
    mod = from_exported_program(program)
    wide = torch.ones(2, 5)
    assert np.array_equal(run(mod, [wide])[0], wide + 1)
    with pytest.raises(CallError, match="does not hold"):
        run(mod, [torch.ones(2, 6)])


def test_bounds_beyond_int64() -> None:
    # The second count is at most 27 times the first, which has no bound.
    module = Fn(lambda x: x[x > 0].reshape(-1, 1).repeat(1, 27).nonzero())
    x = torch.tensor([1.0, -2.0, 3.0])
    auto = torch.export.Dim.AUTO
    program = torch.export.export(module, (x,), dynamic_shapes=(({0: auto},),))
    assert any(int(n) >= 2**63 for n in re.findall(r"\b\d+\b", str(program.graph)))
    assert np.array_equal(run(from_exported_program(program), [x])[0], module(x))


def test_a_constant_whose_values_torch_lost_is_refused() -> None:
    class Written(nn.Module):
        def forward(self, x: Any) -> Any:
            place = x.new_zeros(3)
            place.data[1:].copy_(x[1:])
            return x + place

    program = torch.export.export(Written(), (torch.ones(3),), strict=True)
    # The program is torch's mistake: it does not see what was written.
    assert program.module()(torch.ones(3)).tolist() == [1.0, 1.0, 1.0]
    assert Written()(torch.ones(3)).tolist() == [1.0, 2.0, 2.0]
    with pytest.raises(UnsupportedError, match=r"test_export.py:\d+.*lost the values.*x\[1:\] = y"):
        from_exported_program(program)
    with pytest.raises(UnsupportedError, match=r"cannot export Written[^$]*writes through \.data"):
        from_exported_program(Written(), (torch.ones(3),))


def test_weights_without_values_are_refused_by_name() -> None:
    with FakeTensorMode():
        program = torch.export.export(nn.Linear(3, 4), (torch.ones(2, 3),))
    with pytest.raises(UnsupportedError, match=r"the parameter weight is a FakeTensor.*load"):
        from_exported_program(program)


def test_a_generator_is_refused_where_it_is_used() -> None:
    def noise(x: Any) -> Any:
        return torch.bernoulli(x, generator=torch.Generator().manual_seed(0))

    program = torch.export.export(Fn(noise), (torch.ones(3),))
    with pytest.raises(OpNotImplemented, match=r"(?s)a torch.Generator: .* \(at .*pass them in"):
        from_exported_program(program)


def test_dimensions_that_have_to_be_equal() -> None:
    n = torch.export.Dim("n")
    mod = imported(lambda x, y: x + y, [X, X], [{0: n}, {0: n}])
    with pytest.raises(
        CallError, match=r"parameter `args_1` has 5 in dimension 0, expected 4 \(n\)"
    ):
        run(mod, [X[:4], X[:5]])


def test_a_derived_dim_of_which_there_is_nothing_else() -> None:
    """The parameter has a variable of its own, and torch's symbol is computed from it."""

    def pairs(x: Any, y: Any) -> Any:
        sums = x.unflatten(0, (-1, 4)).flip(1)[:, :3].sum(1)
        return sums.flatten(), y[1:].unflatten(0, (-1, 2)).amax(1) + sums.shape[0]

    n, m = torch.export.Dim("n", min=2, max=9), torch.export.Dim("m", min=2, max=9)
    dims = ({0: 4 * n}, {0: 2 * m + 1})
    other = [torch.randn(20, 3), torch.randn(11)]
    mod = check(pairs, [torch.randn(12, 3), torch.randn(7)], dims, [other])
    assert relax2xla.analysis.well_formed(mod)
    assert [p.struct_info.dims[0].name for p in mod["main"].params] == [
        "n_times_4",
        "m_times_2_plus_1",
    ]
    with pytest.raises(CallError, match="n_times_4 % 4 == 0"):
        run(mod, [torch.randn(13, 3), torch.randn(7)])
    with pytest.raises(CallError, match="m_times_2_plus_1"):
        run(mod, [torch.randn(12, 3), torch.randn(21)])


def test_a_derived_dim() -> None:
    half = torch.export.Dim("half", min=2, max=30)
    x, y = torch.randn(8, 3), torch.randn(4, 3)
    mod = imported(lambda x, y: x[::2] + y, [x, y], [{0: 2 * half}, {0: half}])
    first, second = (p.struct_info.dims[0] for p in mod["main"].params)
    assert tir.can_prove_equal(first, second * 2)


def test_arithmetic_on_sizes() -> None:
    n = torch.export.Dim("n", min=4, max=64)

    def f(x: Any) -> Any:
        size = x.shape[0]
        return (
            x.new_zeros(size * 3 + 1),
            x.new_ones(size // 2 + 3),
            x.new_zeros(torch.sym_max(size, 6)),
            torch.cat([x, x]).view(size, 2),
            x.view(-1, 1)[: size - 1],
        )

    check(f, [torch.randn(10)], [{0: n}], [[torch.randn(4)], [torch.randn(33)]])


def test_sizes_as_results() -> None:
    n = torch.export.Dim("n", min=2, max=9)
    mod = imported(lambda x: (x.shape[0] + 1, x), [torch.randn(4)], [{0: n}])
    info = mod["main"].ret_struct_info.fields[0]
    assert isinstance(info, PrimStructInfo)
    assert not isinstance(info, ShapeStructInfo)


def test_a_converter_that_is_wrong_is_found_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Converter(lambda ctx, self: ctx.cast(self, "float64"), frozenset({"self"}))
    imported(torch.cos, [X])
    monkeypatch.setitem(CONVERTERS, "cos", bad)
    with pytest.raises(TVMError, match=r"aten\.cos\.default gives .*float64.*but torch says"):
        imported(lambda x: torch.cos(x), [X])


# -- what is decomposed, and gaps ----------------------------------------------------------------
def test_no_grad_regions_are_converted_in_place() -> None:
    def f(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y + x

    check(f, [torch.randn(3)])


def test_what_has_no_converter_is_decomposed_by_torch() -> None:
    assert "heaviside" not in CONVERTERS
    assert "diag_embed" not in CONVERTERS

    def f(x: Any) -> Any:
        return torch.heaviside(x, x.abs()), torch.diag_embed(x)

    check(f, [torch.randn(4, 4)], scale=10)


@torch.library.custom_op("relax2xla_gaps::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@opaque.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Inner(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.ops.relax2xla_gaps.opaque(x) + torch.ops.relax2xla_gaps.opaque(x + 1)


class Gappy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Any) -> Any:
        return self.inner(x), x.to_sparse().to_dense()


def test_one_error_names_every_gap() -> None:
    program = torch.export.export(Gappy(), (torch.eye(4),))
    with pytest.raises(OpNotImplemented) as caught:
        from_exported_program(program)
    gaps = {g.op: g for g in caught.value.gaps}
    assert any("to_sparse" in op for op in gaps)
    custom = gaps["relax2xla_gaps.opaque.default"]
    assert len(custom.nodes) == 2
    assert "in inner" in custom.nodes[0]
    assert "test_export.py:" in custom.nodes[0]
    assert "@register_converter('relax2xla_gaps::opaque')" in custom.hint
    json.dumps(caught.value.report())


def test_a_converter_of_ones_own() -> None:
    program = torch.export.export(Inner(), (X,))

    @register_converter("relax2xla_gaps::opaque")
    def converted(ctx: Any, x: Any) -> Any:
        return op.multiply(x, ctx.tensor(1, ctx.dtype()))

    try:
        mod = from_exported_program(program, unwrap_unit_return_tuple=True)
        np.testing.assert_allclose(run(mod, [X])[0], X * 2 + 1, atol=1e-6)
        with pytest.raises(ValueError, match="override=True"):
            register_converter("relax2xla_gaps::opaque")(converted)
    finally:
        del CONVERTERS["relax2xla_gaps::opaque"]


def test_an_argument_that_is_not_handled_is_a_gap() -> None:
    with pytest.raises(OpNotImplemented, match="an LU factorisation without pivots"):
        imported(lambda x: torch.linalg.lu(x, pivot=False), [torch.randn(3, 3)])


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_a_dtype_without_counterpart_is_a_gap() -> None:
    with pytest.raises(OpNotImplemented, match=r"torch\.complex32.*\n.*complex64") as refused:
        imported(lambda x: x.to(torch.complex32).real + 1, [torch.ones(3)])
    assert "decomposition" not in str(refused.value)
    for dtype in ("complex32", "int4", "bits8"):
        x = torch.zeros(4, dtype=torch.uint8).view(getattr(torch, dtype))
        with pytest.raises(OpNotImplemented, match=rf"(?s)input args_0.*torch\.{dtype}.*hint:"):
            imported(lambda x: x, [x])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.linalg.ldl_factor(x), r"linalg_ldl_factor.*\n.*torch\.linalg\.solve"),
        (lambda x: torch.sparse.mm(x.to_sparse(), x), r"to_sparse.*\n.*keep them dense"),
    ],
    ids=["ldl", "sparse"],
)
def test_operators_that_nothing_stands_for_say_what_to_do(function: Any, message: str) -> None:
    with pytest.raises(OpNotImplemented, match=message):
        imported(function, [torch.eye(3)])


def test_a_decomposition_that_torch_refuses_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(x: Any, y: Any) -> Any:
        raise AssertionError("no such thing")

    converters.load()
    monkeypatch.delitem(CONVERTERS, "complex")
    monkeypatch.setitem(OWN, torch.ops.aten.complex.default, refused)
    with pytest.raises(
        OpNotImplemented, match=r"aten\.complex.*\n.*decomposition x1: no such thing"
    ):
        imported(lambda x, y: torch.complex(x, y), [torch.ones(3), torch.zeros(3)])


def test_every_registered_name_is_an_overload() -> None:
    unknown: list[str] = []
    newest = torch.__version__ >= "2.14"
    other_releases = {"cholesky"} if newest else {"linalg_polar", "linalg_matrix_sqrth"}
    for name in CONVERTERS.keys() - other_releases:
        namespace, _, rest = name.rpartition("::")
        if namespace == "transformers":  # its operators are there once it is imported
            continue
        packet, _, overload = rest.partition(".")
        found = getattr(getattr(torch.ops, namespace or "aten"), packet, None)
        if found is None or (overload or "default") not in found.overloads():
            unknown.append(name)
    assert unknown == []


def test_other_names_of_operators() -> None:
    def f(x: Any, y: Any) -> Any:
        return torch.multiply(x, y), torch.min(x, y), torch.divide(x, y, rounding_mode="floor")

    check(f, [torch.randn(3), torch.randn(3)])


def test_rows_in_groups_with_a_matrix_each() -> None:
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    rows, matrices = torch.randn(6, 8), torch.randn(3, 8, 8)
    mod = imported(
        lambda x, w, e: torch.nn.functional.grouped_mm(x, w, offs=e),
        [rows.bfloat16(), matrices.bfloat16(), ends],
    )
    (found,) = run(mod, [rows.bfloat16(), matrices.bfloat16(), ends])
    wanted = [rows[0:2] @ matrices[0], rows[2:5] @ matrices[2]]
    np.testing.assert_allclose(
        found.astype(np.float32)[:5], torch.cat(wanted).numpy(), rtol=5e-2, atol=5e-2
    )

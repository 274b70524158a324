"""What exported programs are: functions, parameters, effects, subroutines; trees of modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla import BlockBuilder, VirtualMachine, build, errors, tir
from relax2xla import op as relax_op
from relax2xla.frontend import nn
from relax2xla.frontend.nn.spec import MethodSpec, ModuleSpec, Object, Tensor, Tuple
from relax2xla.ir import Function, assert_structural_equal
from relax2xla.script import from_source


def parse(body: str) -> Any:
    head = "from tvm.script import ir as I, relax as R, tir as T\n@I.ir_module\nclass M:\n"
    return from_source(head + body)


class Scaled(nn.Module):
    """Two methods, a parameter of symbolic size, a nested one."""

    def __init__(self) -> None:
        self.inner = nn.ModuleList([nn.Linear(4, "m", bias=False)])
        self.scale = nn.Parameter(["m"])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.inner(x) * self.scale

    def pair(self, x: nn.Tensor, n: tir.Var, flag: bool = True):
        assert flag
        return x, [nn.op.reshape(x, [n, -1])]


def test_methods_become_functions() -> None:
    spec = {
        "forward": {"x": Tensor(["n", 4], "float32")},
        "pair": {"n": int, "x": Tensor([2, 6], "int32")},
    }
    mod, params = Scaled().export_tvm(spec)
    assert [n for n, _ in params] == ["inner.0.weight", "scale"]
    expected = parse("""
    @R.function
    def forward(x: R.Tensor(("n", 4), "float32"), w: R.Tensor(("m", 4), "float32"),
            s: R.Tensor(("m",), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t = R.permute_dims(w)
            p = R.matmul(x, t)
            y = R.multiply(p, s)
            gv = y
            R.output(gv)
        return gv
""")
    assert_structural_equal(mod["forward"], expected["forward"], map_free_vars=True)
    assert [p.name_hint for p in mod["pair"].params] == ["x", "n", "inner.0.weight", "scale"]
    assert mod["pair"].attrs["num_input"] == 2
    vm = VirtualMachine(build(mod))
    x = np.arange(12, dtype=np.int32).reshape(2, 6)
    w, s = np.ones((3, 4), np.float32), np.array([1, 2, 3], np.float32)
    _, (second,) = vm["pair"](x, (3,), w, s)
    assert np.asarray(second).tolist() == x.reshape(3, 4).tolist()
    made = vm["forward"](np.ones((2, 4), np.float32), w, s)
    assert np.asarray(made).tolist() == [[4, 8, 12]] * 2
    assert spec["forward"].keys() == {"x"}


@pytest.mark.parametrize("params", ["plain", "packed", "none"])
@pytest.mark.parametrize("effects", ["plain", "packed", "none"])
def test_modes(params: str, effects: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.scale, self.shift = nn.Parameter([2]), nn.Parameter([2])

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return x if params == "none" else x * self.scale + self.shift

    modes = {"param_mode": params, "effect_mode": effects}
    spec = {"forward": {"x": Tensor([2], "float32"), "$": modes}}
    for _ in range(2):  # the specification stays what it was
        mod, found = Model().export_tvm(spec, debug=True)
    func = mod["forward"]
    assert isinstance(func, Function)
    counts = {"plain": 2, "packed": 1, "none": 0}
    assert len(func.params) == 1 + counts[params] + (effects != "none")
    assert func.attrs["num_input"] == 1 + (effects != "none")
    vm = VirtualMachine(build(mod))
    weights = [np.array([2, 3], np.float32), np.ones(2, np.float32)]
    given = {"plain": weights, "packed": [tuple(weights)], "none": []}[params]
    io = vm["_initialize_effect"]()
    state = {"plain": list(io), "packed": [io], "none": []}[effects]
    out = vm["forward"](np.ones(2, np.float32), *state, *given)
    assert np.asarray(out[0] if state else out).tolist() == ([1, 1] if params == "none" else [3, 4])
    assert len(found) == 2


def test_parameters_used_in_mode_none_are_an_error() -> None:
    model = nn.Linear(2, 2)
    spec = {"forward": {"x": Tensor([2], "float32"), "$": {"param_mode": "none"}}}
    with pytest.raises(errors.WellFormedError) as e:
        model.export_tvm(spec)
    assert "mode is 'none'" in "".join(e.value.__notes__)


def test_specifications() -> None:
    def method(x: nn.Tensor, n: tir.Var, y: Any = 1, *rest: Any, **more: Any) -> None: ...

    made = MethodSpec.from_raw({"n": "int", "x": [Tensor([1], "int8"), (int, "int")]}, method)
    assert made.arg_names == ["x", "n"]
    assert repr(made) == "MethodSpec(x: [Tensor([1], 'int8'), (int, int)], n: int)"
    assert MethodSpec.from_raw(made, method) is made
    for spec, message in (
        ({"x": "int"}, r"lacks its arguments \['n'\]"),
        ({"x": "int", "n": int, "z": int}, r"no arguments \['z'\]"),
        ({"x": 3, "n": int}, "not a specification for the argument x: 3"),
    ):
        with pytest.raises(TypeError, match=message):
            MethodSpec.from_raw(spec, method)
    with pytest.raises(ValueError, match="param_mode is one of"):
        MethodSpec(method, [], [], "bare", "plain")
    with pytest.raises(ValueError, match="1 names for 0"):
        MethodSpec(method, ["x"], [], "plain", "plain")
    with pytest.raises(TypeError, match="must be a tuple or a list"):
        Tuple("t", {})  # pyright: ignore[reportArgumentType]
    whole = ModuleSpec.from_raw({"forward": {"x": Tensor(["n"], "int8")}}, nn.ReLU())
    assert repr(whole) == "ModuleSpec:\n  forward(x: Tensor([n], 'int8'))"
    assert repr(Object(nn.Object)) == "object"
    with pytest.raises(AttributeError, match="prefill"):
        nn.ReLU().export_tvm({"prefill": {}})


def test_arguments_that_are_left_out_have_their_defaults() -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor, y: Any = None, z: Any = None) -> nn.Tensor:
            assert y is None
            return x + z

    t = Tensor([2], "float32")
    mod, _ = Model().export_tvm({"forward": {"z": t, "x": t}})
    assert [p.name_hint for p in mod["forward"].params] == ["x", "z"]


class Box(nn.Object):
    """An object of a class of its own."""


def test_objects_and_tuples_as_arguments() -> None:
    class Model(nn.Module):
        def forward(self, box: Box, both: tuple[nn.Tensor, list[Any]]):
            first, (second, n) = both
            assert isinstance(box, Box)
            return box, (nn.op.add(first, second), nn.op.reshape(first, [n, 2]))

    t = Tensor([4], "float32")
    mod, _ = Model().export_tvm({"forward": {"box": Object(Box), "both": (t, [t, int])}})
    vm, x, thing = VirtualMachine(build(mod)), np.arange(4, dtype=np.float32), object()
    out, (added, shaped) = vm["forward"](thing, (x, (x, (2,))))
    assert out is thing
    assert np.asarray(added).tolist() == [0, 2, 4, 6]
    assert shaped.shape == (2, 2)


def test_wrong_results_and_reuse_after_an_error() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.cache = nn.KVCache(2, [2])

        def forward(self, x: nn.Tensor, n: Any = None) -> Any:
            self.cache.append(x)
            return {"x": x} if n is None else self.cache.view(n)

    model = Model()
    x = Tensor([1, 2], "float32")
    with pytest.raises(TypeError, match="the result of forward must be a Tensor"):
        model.export_tvm({"forward": {"x": x}})
    model.export_tvm({"forward": {"x": x, "n": int}})
    with pytest.raises(TypeError, match="the KVCache is of float32, and the element float16"):
        model.export_tvm({"forward": {"x": Tensor([1, 2], "float16")}})
    with pytest.raises(RuntimeError, match="outside of a method that is being exported"):
        model.cache.view(2)


def test_sizes_of_parameters_that_are_expressions() -> None:
    n = tir.Var("n", "int64")

    class Model(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.Parameter([n]), nn.Parameter([n * 2])

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return nn.op.concat([self.a, self.a], 0) + self.b + x

    mod, _ = Model().export_tvm({"forward": {"x": Tensor([1], "float32")}})
    vm = VirtualMachine(build(mod))
    a, b = np.ones(3, np.float32), np.arange(6, dtype=np.float32)
    assert np.asarray(vm["forward"](a[:1], a, b)).tolist() == [2, 3, 4, 5, 6, 7]


# -- subroutines -----------------------------------------------------------------------------------
class Norm(nn.Module):
    define_subroutine = True

    def __init__(self, eps: float) -> None:
        self.weight, self.eps = nn.Parameter([4]), eps

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.rms_norm(x, self.weight, -1, self.eps)


class Block(nn.Module):
    define_subroutine = True

    def __init__(self, eps: float) -> None:
        self.norm = Norm(eps)

    def forward(self, x: nn.Tensor, times: int):
        return self.norm(x) * times, x


class Net(nn.Module):
    def __init__(self) -> None:
        self.blocks = nn.ModuleList([Block(1e-5), Block(1e-5), Block(1.0)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        for block in self.blocks:
            x, _ = block(x, 2)
        return x


def test_subroutines() -> None:
    net = Net()
    weights = [np.full(4, i + 1, np.float32) for i in range(3)]
    for p, w in zip(net.parameters(), weights, strict=True):
        p.data = w
    n = Tensor(["n", 4], "float32")
    mod, _ = net.export_tvm({"forward": {"x": n}})
    # Blocks that compute the same are one function; the one with another setting is not.
    assert sorted(g.name_hint for g in mod) == ["block", "block1", "forward", "norm", "norm1"]
    assert all("global_symbol" not in mod[g].attrs for g in mod if g.name_hint != "forward")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    wanted = x
    for w, eps in zip(weights, (1e-5, 1e-5, 1.0), strict=True):
        wanted = wanted / np.sqrt((wanted**2).mean(-1, keepdims=True) + eps) * w * 2
    made = VirtualMachine(build(mod))["forward"](x, *weights)
    np.testing.assert_allclose(made, wanted, rtol=1e-5)
    np.testing.assert_allclose(net(x), wanted, rtol=1e-5)
    packed = {"forward": {"x": n, "$": {"param_mode": "packed"}}}
    mod, _ = net.export_tvm(packed)
    made = VirtualMachine(build(mod))["forward"](x, tuple(weights))
    np.testing.assert_allclose(made, wanted, rtol=1e-5)


def test_a_subroutine_needs_a_builder() -> None:
    with pytest.raises(errors.BuilderError, match="define_subroutine=True"):
        Norm(1.0)(nn.Tensor.placeholder([4], "float32"))


def test_a_subroutine_changes_no_state() -> None:
    class Holder(nn.Module):
        define_subroutine = True

        def __init__(self) -> None:
            self.caches = nn.ModuleList([Cached()])

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return self.caches(x)

    class Cached(nn.Module):
        def __init__(self) -> None:
            self.k = nn.KVCache(4, [3])

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            self.k.append(x)
            return self.k.view(2)

    class Whole(nn.Module):
        def __init__(self) -> None:
            self.held = Holder()

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return self.held(x)

    with pytest.raises(errors.BuilderError, match=r"Holder has .* state.*: caches\.0\.k"):
        Whole()(np.ones((2, 3), np.float32))


def test_a_specified_shape_is_a_list() -> None:
    for shape in (3, "n"):
        with pytest.raises(TypeError, match="a list of sizes"):
            Tensor(shape, "float32")  # pyright: ignore


# -- trees -----------------------------------------------------------------------------------------
def test_mutator() -> None:
    class Tree(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([nn.ReLU(), nn.ModuleDict({"a": nn.Linear(2, 2)})])
            self.cache = nn.KVCache(2, [2])
            self.scales = nn.ParameterList([nn.Parameter([1])])
            self.other = nn.ParameterDict({"k": nn.Parameter([1])})
            self.number = 3

    seen: list[str] = []

    class Halves(nn.Mutator):
        def visit_module(self, name: str, node: nn.Module) -> Any:
            seen.append(name)
            return nn.SiLU() if isinstance(node, nn.ReLU) else self.visit(name, node)

        def visit_param(self, name: str, node: nn.Parameter) -> Any:
            seen.append(name)
            return nn.Parameter(node.shape, "float16")

        def visit_effect(self, name: str, node: nn.Effect) -> Any:
            seen.append(name)
            return nn.KVCache(4, [2])

    tree = Tree()
    assert Halves().visit("tree", tree) is tree
    assert isinstance(tree.layers[0], nn.SiLU)
    assert {p.dtype for p in tree.parameters()} == {"float16"}
    assert tree.cache.init_seq_len == 4
    assert seen == [
        "tree.layers.0",
        "tree.layers.1.a",
        "tree.layers.1.a.weight",
        "tree.layers.1.a.bias",
        "tree.cache",
        "tree.scales.0",
        "tree.other.k",
    ]


def test_containers() -> None:
    relu, silu = nn.ReLU(), nn.SiLU()
    modules = nn.ModuleList([relu])
    modules.append(silu)
    assert (list(modules), len(modules), modules[-1]) == ([relu, silu], 2, silu)
    named = nn.ModuleDict({"a": relu})
    named.update({"b": silu})
    assert list(named) == [relu, silu]
    assert (list(named.keys()), "b" in named, named.pop("b")) == (["a", "b"], True, silu)
    assert list(named.items()) == [("a", relu)]
    assert named.get("c") is None
    named.clear()
    assert not len(named)
    for make, message in (
        (lambda: nn.ParameterList([relu]), "items of a ParameterList must be Parameter; got ReLU"),
        (lambda: nn.ParameterDict({"a": 1}), "items of a ParameterDict must be Parameter; got int"),
        (lambda: nn.ParameterDict({1: nn.Parameter([1])}), "keys of a ParameterDict must be str"),
    ):
        with pytest.raises(TypeError, match=message):
            make()


def test_attributes_may_have_any_name() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.named = self.children = nn.Linear(2, 2)
            self.state = self.run = nn.Parameter([2])

    assert [n for n, _ in Model().named_parameters()] == [
        *("named.weight", "named.bias", "children.weight", "children.bias", "state", "run")
    ]


# -- tensors, objects, external modules ------------------------------------------------------------
def test_tensors() -> None:
    made = nn.Tensor.from_const(np.array([1, 2]))
    assert (made.dtype, made.shape, made.ndim) == ("int32", [2], 1)
    assert repr(made) == 'Tensor([2], "int32")'
    assert nn.Tensor.from_const([1.0], "float64").dtype == "float64"
    assert nn.Tensor.from_scalar(2, "float16").dtype == "float16"
    with pytest.raises(ValueError, match="values beyond int32"):
        nn.Tensor.from_const(np.array([2**40]))
    with pytest.raises(TypeError, match=r"an nn\.Tensor is a tensor of known shape"):
        nn.Tensor(_expr=relax_op.null_value())
    with pytest.raises(TypeError, match=r"an nn\.Object is an object"):
        nn.Object(_expr=nn.Tensor.placeholder([1], "int8")._expr, _name="x")
    with pytest.raises(errors.BuilderError, match="belongs to a method"):
        nn.Object(_expr=relax_op.null_value(), _name="x")


def test_sizes_that_nothing_shows_to_fit_are_named() -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor):
            up = nn.op.reshape(x, (x.shape[0] // 2 * 2, 2))
            return nn.op.concat([x, up], 1)

    spec = {"forward": {"x": nn.spec.Tensor(["n", 2], "float32")}}
    with pytest.raises(TypeError, match=r"concat: the shape of the result is .*n // 2 \* 2"):
        Model().export_tvm(spec)


def test_python_operators() -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor):
            return (x + 1, 1 + x, x - 2, 2 - x, x * 3, 3 * x, x / 2, 2 / x, -x, x @ x,
                    x < 2, x <= 2, x > 2, x >= 2, x.maximum(2), x.minimum(2), x.astype("int32"),
                    x.reshape(4), x.permute_dims(1, 0), x.permute_dims(),
                    x.repeat(2, 1))  # fmt: skip

    x = np.array([[1, 2], [4, 8]], np.float32)
    wanted = (x + 1, 1 + x, x - 2, 2 - x, x * 3, 3 * x, x / 2, 2 / x, -x, x @ x,
              x < 2, x <= 2, x > 2, x >= 2, np.maximum(x, 2), np.minimum(x, 2), x.astype("int32"),
              x.reshape(4), x.T, x.T, x.repeat(2, 1))  # fmt: skip
    for a, b in zip(Model()(x), wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_external_modules() -> None:
    module = nn.ExternModule({"tests_add": lambda a, b: nn.Tensor.placeholder(a.shape, a.dtype)})

    class Model(nn.Module):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            nn.add_extern(module)
            return module["tests_add"](x, x)

    spec = {"forward": {"x": Tensor(["n"], "float32")}}
    mod, params, found = Model().export_tvm(spec, allow_extern=True)
    assert (params, found) == ([], [module])
    assert 'R.call_dps_packed("tests_add", (x, x), out_sinfo=R.Tensor((n,)' in mod.script()
    with pytest.raises(ValueError, match="allow_extern=True"):
        Model().export_tvm(spec)
    with pytest.raises(RuntimeError, match="while a module is exported"):
        nn.add_extern(module)
    with pytest.raises(KeyError, match="tests_add"):
        module["other"]
    with pytest.raises(NotImplementedError):
        module.load()

    class Twice(Model):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            nn.add_extern(module)
            return super().forward(x)

    with pytest.raises(ValueError, match=r"defined already: \['tests_add'\]"):
        Twice().export_tvm(spec)


def test_a_module_without_forward() -> None:
    with pytest.raises(NotImplementedError, match="Module has no method `forward`"):
        nn.Module()(1)
    effect = nn.Effect()
    effect.to("float16")
    for call in (
        lambda: effect.emit_init("x", BlockBuilder()),
        lambda: effect.create("x"),
        lambda: effect.set_state([]),
        effect.finalize,
    ):
        with pytest.raises(NotImplementedError):
            call()

"""Programs in the form that TVM's importers give them, where that costs nothing.

The expected operators and attributes are those of TVM's own importer tests.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import fx, nn  # noqa: E402

from relax2xla import IRModule, TVMError, op, transform  # noqa: E402
from relax2xla.frontend.torch import (  # noqa: E402
    ExportedProgramImporter,
    from_exported_program,
    from_fx,
)
from relax2xla.ir import (  # noqa: E402
    Call,
    Constant,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    Tuple,
    Var,
    const,
)
from tests.importers.torch.helpers import Fn, check, compare, imported, run  # noqa: E402

F = torch.nn.functional


def operators(mod: IRModule) -> list[str]:
    """The calls of ``main`` in order, with the attributes and operands that are no tensors."""
    found: list[str] = []
    for block in mod["main"].body.blocks:
        for b in block.bindings:
            if isinstance(b.value, Call):
                call: Any = b.value
                plain = [x for x in call.args if isinstance(x, Tuple | PrimValue | ShapeExpr)]
                shown = [f"{k}={v}" for k, v in call.attrs.items() if v is not None]
                found.append(
                    " ".join([call.op.name.removeprefix("relax."), *map(str, plain), *shown])
                )
    return found


def names(mod: IRModule) -> list[str]:
    return [text.split()[0] for text in operators(mod)]


@pytest.fixture(scope="module")
def x() -> Any:
    return torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))


def test_one_operator_each(x: Any) -> None:
    """Of those that were several operators, or rows, each is the one that Relax has for it."""

    def program(x: Any, at: Any) -> Any:
        return (
            torch.round(x),
            torch.square(x),
            F.selu(x),
            F.softplus(x, 2.0),
            F.prelu(x, torch.tensor([0.2, 0.1, 0.5])),
            x.argmax(-1),
            x.argmin(),
            x.repeat(2, 1, 3),
            x.unsqueeze(-1),
            x[:, :1].squeeze(1),
            torch.zeros(2, 3),
            x.gather(-1, at),
            torch.index_select(x, 1, at[0, 0]),
            x.mean(-1),
            x.prod(),
            torch.sign(x),
            x**1,
            F.one_hot(at[0, 0], 4),
            x.median(-1, keepdim=True).values,
            x.median(),
            torch.cumsum(x * 10, 1, dtype=torch.int32),
            x > x.square(),
        )

    inputs = x, torch.tensor([[[0, 2]]]).expand(2, 3, 2)
    check(program, inputs)
    assert names(imported(program, inputs)) == [
        *("round", "square", "nn.selu", "nn.softplus", "nn.prelu", "argmax", "argmin", "tile"),
        *("expand_dims", "strided_slice", "squeeze", "full", "gather_elements"),
        *("take", "take", "take", "mean", "prod", "sign", "power", "take", "take", "one_hot"),
        # The derivative of a median of all is shared by its equals.
        *("median", "median", "isnan", "isnan", "equal", "where", "where", "sum", "astype"),
        *("sum", "divide", "grad.differentiate_as"),
        *("multiply", "cumsum", "square", "greater"),
    ]


def test_products_say_their_dtype(x: Any) -> None:
    """``out_dtype`` of float32 is said, but by baddbmm; products of other dtypes say nothing."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.conv = nn.Linear(4, 5), nn.Conv1d(3, 6, 2)

        def forward(self, x: Any) -> Any:
            square = x.mT @ x
            return self.linear(x), self.conv(x), torch.bmm(x, square), torch.baddbmm(x, x, square)

    model = Model().eval()
    products = [t for t in operators(imported(model, (x,))) if t.startswith(("matmul", "nn.conv"))]
    assert ["out_dtype=float32" in t for t in products] == [True] * 4 + [False]
    mod = imported(model.double(), (x.double(),))
    assert not any("out_dtype" in t for t in operators(mod))


def test_values_do_not_depend_on_it(x: Any) -> None:
    """NaN is the extreme, the slope of selu is finite everywhere, ties round to even."""
    odd = x.clone()
    odd[0, 1, 2] = torch.nan
    check(lambda a: (a.argmax(1), a.argmin(-1, keepdim=True), a.max(1), a.argmax()), (odd,))
    check(lambda a: (torch.round(a), F.selu(a * 100), F.softplus(a * 40)), (x * 2,))


def test_a_size_and_a_tuple_as_a_whole() -> None:
    """A graph that returns what ``size`` or ``split`` gives returns it as one value."""
    for method, kinds in (("size", ShapeStructInfo), ("chunk", None)):
        graph = fx.Graph()
        node = graph.placeholder("x")
        graph.output(graph.call_method(method, (node, 2) if method == "chunk" else (node,)))
        mod = from_fx(fx.GraphModule(nn.Module(), graph), [((4, 3), "float32")])
        body = mod["main"].body
        (last,) = [b for b in body.blocks[-1].bindings if b.var is body.body]
        if kinds is not None:
            assert isinstance(last.value, ShapeExpr)
            assert isinstance(last.var.struct_info, kinds)
        else:
            assert isinstance(last.value, Var)
            y = torch.randn(4, 3)
            compare(run(mod, [y]), y.chunk(2))


def test_decomposed_first(x: Any) -> None:
    """``run_ep_decomposition`` gives torch's core operators; they stay whole otherwise."""
    program = torch.export.export(Fn(lambda x: F.layer_norm(F.silu(x), [4])), (x,))
    whole = from_exported_program(program)
    parts = from_exported_program(program, run_ep_decomposition=True)
    assert names(whole)[0] == "nn.silu"
    assert names(parts)[:2] == ["sigmoid", "multiply"]
    compare(run(parts, [x]), run(whole, [x]))


def test_converters_of_the_users(x: Any) -> None:
    """They come first, also where torch would decompose the operator; None is refused."""
    seen: list[Any] = []

    def minus(node: Any, importer: ExportedProgramImporter) -> Any:
        seen.append(node.target)
        a, b = importer.retrieve_args(node)
        assert importer.shape_of(a) == ShapeExpr([2, 3, 4])
        return importer.block_builder.emit(op.subtract(a, b))

    def gate(node: Any, importer: ExportedProgramImporter) -> Any:
        return op.sigmoid(importer.env[node.args[0]])

    program = torch.export.export(Fn(lambda x, y: F.silu(x + y)), (x, x * 3))
    table = {"add.Tensor": minus, "silu.default": gate}
    for decompose in (False, True):
        mod = from_exported_program(
            program, custom_convert_map=table, run_ep_decomposition=decompose
        )
        assert names(mod) == ["subtract", "sigmoid"]
    assert seen == [torch.ops.aten.add.Tensor] * 2
    compare(run(mod, [x, x * 3]), torch.sigmoid(x - x * 3))
    with pytest.raises(TVMError, match="gave None"):
        from_exported_program(program, custom_convert_map={"add.Tensor": lambda n, i: None})


def test_a_converter_changes_what_the_importer_makes(x: Any) -> None:
    """``convert`` gives the value of the importer's own converter; None for what nothing reads."""

    def doubled(node: Any, importer: Any) -> Any:
        return op.multiply(importer.convert(node), const(2.0, "float32"))

    def first(node: Any, importer: Any) -> Any:
        values, places = importer.convert(node)
        assert places is None
        return [op.negative(values), places]

    program = torch.export.export(Fn(lambda x: F.max_pool2d(x + 1, 2)), (x,))
    table = {"add.Tensor": doubled, "max_pool2d_with_indices.default": first}
    mod = from_exported_program(program, custom_convert_map=table, run_ep_decomposition=True)
    compare(run(mod, [x]), -F.max_pool2d((x + 1) * 2, 2))


def test_neutral_parameters_are_constants(x: Any) -> None:
    """Norms without parameters have ones and zeros, which their lowering leaves out."""

    class Norms(nn.Module):
        def forward(self, x: Any) -> Any:
            return F.layer_norm(x, [4]), F.group_norm(x, 3), F.instance_norm(x)

    mod = imported(Norms(), (x,))
    found = operators(mod)
    assert names(mod) == ["nn.layer_norm", "nn.group_norm", "nn.instance_norm"]
    assert all("center=True scale=True" in t for t in found)
    rows = [n for n in names(transform.LegalizeOps()(mod)) if n == "stablehlo.multiply"]
    assert len(rows) == 3 * 4  # two means, the square, and by the deviation


def test_indices_that_cannot_be_negative_are_not_wrapped(x: Any) -> None:
    def program(x: Any, at: Any) -> Any:
        return x[x[:, 0, 0].argsort()], x[at], F.pad(x, (1, 2), mode="reflect")

    inputs = x, torch.tensor([-1, 0])
    check(program, inputs)
    parts = from_exported_program(torch.export.export(Fn(program), inputs))
    assert names(parts).count("less") == 1


def test_spreads_are_one_operator(x: Any) -> None:
    """``R.variance``, and a factor for the correction."""
    inputs = (torch.stack([x, x + 1e3]),)
    check(lambda a: (a.var(), a.var(-1), a.std((1, 2)), a.var(0, correction=0)), inputs)
    mod = imported(lambda a: a.var(-1), inputs)
    assert names(mod) == ["variance", "multiply"]


def test_medians_and_signs_of_nan() -> None:
    """The first NaN is the median's place; the sign of NaN is 0."""
    odd = torch.tensor([[1.0, torch.nan, torch.nan, 0.0], [3.0, 2.0, 2.0, -1.0]])
    check(lambda a: (*a.median(1), a.median(), torch.sign(a)), (odd,))


def test_bits_of_floats_are_refused_when_they_are_lowered() -> None:
    """torch.export lets them pass, and TVM's importer; nothing computes them."""
    inputs = torch.ones(2), torch.ones(2)
    mod = imported(lambda a, b: (a & b, torch.bitwise_not(a)), inputs)
    assert names(mod) == ["bitwise_and", "bitwise_not"]
    with pytest.raises(TVMError, match=r"bitwise_and of float32: use R\.astype"):
        run(mod, list(inputs))


def test_windows_and_strides_that_change_nothing(x: Any) -> None:
    def program(x: Any) -> Any:
        windows = [torch.hamming_window(n, p) for n, p in ((8, True), (9, False), (1, True))]
        return *windows, torch.as_strided(x, (3, 2, 4), (8, 4, 1)), x.as_strided((2, 3), (1, 4), 5)

    check(program, (x,))
    found = names(imported(program, (x,)))
    assert found[:4] == ["hamming_window", "hamming_window", "ones", "reshape"]
    assert "take" in found[4:]


def test_fills_and_bounds_are_one_operator(x: Any) -> None:
    """Numbers that fill are spread first, a decomposed one is bound; bounds of integers clip."""

    def program(x: Any, at: Any) -> Any:
        return x.masked_fill(x > 0, 300), at.clamp(1, 5), F.pad(at, (1, 2), mode="replicate")

    inputs = x, torch.arange(24).reshape(2, 3, 4)
    check(program, inputs)
    exported = torch.export.export(Fn(program), inputs)
    whole = from_exported_program(exported)
    assert names(whole)[:4] == ["greater", "full_like", "where", "clip"]
    parts = from_exported_program(exported, run_ep_decomposition=True)
    assert names(parts) == ["greater", "where", *["clip"], *["arange", "clip", "take"]]
    bound = [b.value for block in parts["main"].body.blocks for b in block.bindings]
    assert [v.data.item() for v in bound if isinstance(v, Constant)] == [300]
    compare(run(parts, list(inputs)), program(*inputs))


def test_a_number_that_is_data_fills(x: Any) -> None:
    check(lambda a, v: a.masked_fill(a > 0, v), (x, torch.tensor(2.5)))


@pytest.mark.parametrize("align", [True, False])
def test_grids_of_maps_are_one_operator(align: bool) -> None:
    def program(a: Any, b: Any) -> Any:
        return (
            F.affine_grid(a, [2, 1, 5, 4], align_corners=align),
            F.affine_grid(b, [2, 1, 5, 4, 3], align_corners=align),
        )

    maps = torch.randn(2, 12, generator=torch.Generator().manual_seed(1))
    inputs = maps[:, :6].reshape(2, 2, 3), maps.reshape(2, 3, 4)
    check(program, inputs)
    assert names(imported(program, inputs)) == ["image.affine_grid", "permute_dims"] * 2


def test_nearest_pixels_are_resized() -> None:
    """By TVM's operator where its places are torch's, by places otherwise."""
    image = torch.arange(90.0).reshape(1, 1, 10, 9)
    for size, found in (
        ((20, 27), ["image.resize2d"]),
        ((5, 3), ["image.resize2d"]),  # the first of two, and of three
        ((20, 3), ["take", "take"]),
        ((7, 13), ["take", "take"]),
    ):

        def program(a: Any, size: Any = size) -> Any:
            return F.interpolate(a, size=size)

        check(program, (image,))
        assert names(imported(program, (image,))) == found


def test_products_of_matrices_that_are_dense(x: Any) -> None:
    """``torch.sparse.addmm`` takes dense matrices, too."""
    a, b = x[0], x[1].mT

    def program(a: Any, b: Any) -> Any:
        return torch.sparse.addmm(a @ b, a, b, beta=0.8, alpha=0.5)

    check(program, (a, b))
    assert names(imported(program, (a, b)))[1:] == ["matmul", "multiply", "multiply", "add"]

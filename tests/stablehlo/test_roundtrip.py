"""``emit(read(m))`` against MLIR's own printer: text with and without locations is identical."""

# ruff: noqa: E501 (MLIR text)
from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import pytest

from relax2xla.errors import EmitError, OpNotImplemented
from relax2xla.ir import BindingBlock, Constant, Function, IRModule, SeqExpr, Span, Var, VarBinding
from relax2xla.ir.check import check_well_formed
from relax2xla.ir.equal import assert_structural_equal, structural_hash
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.script import from_source
from relax2xla.stablehlo import context, emit, parse, read
from relax2xla.stablehlo.mlir import ir
from relax2xla.stablehlo.rows import stablehlo as hlo

from . import jax_more, jax_programs

PROGRAMS = [*jax_programs.PROGRAMS, *jax_more.PROGRAMS]

TESTDATA = Path(__file__).parents[3] / "shared" / "stablehlo_testdata" / "testdata"
F32 = TensorStructInfo((4,), "float32")


def located(module: ir.Module) -> str:
    """Text with locations, but for the module's own (nothing in Relax carries that)."""
    return "\n".join(
        op.operation.get_asm(enable_debug_info=True, use_local_scope=True)
        for op in module.body.operations
    )


def check(module: ir.Module) -> IRModule:
    mod = read(module)
    again = emit(mod)
    assert str(again) == str(module)
    assert located(again) == located(module)
    return mod


@pytest.mark.parametrize(("fn", "args"), [p[1:] for p in PROGRAMS], ids=[p[0] for p in PROGRAMS])
def test_jax_program(fn: Any, args: Any) -> None:
    check(jax.jit(fn).lower(*args).compiler_ir("stablehlo"))


@pytest.mark.parametrize(
    ("fn", "args"), [p[1:] for p in jax_more.X64], ids=[p[0] for p in jax_more.X64]
)
def test_jax_program_of_64_bits(fn: Any, args: Any) -> None:
    with jax.enable_x64(True):
        module = jax.jit(fn).lower(*args).compiler_ir("stablehlo")
    assert "64" in str(module)
    check(module)


@pytest.mark.parametrize(
    ("make", "value"), [p[1:] for p in jax_more.SHARDED], ids=[p[0] for p in jax_more.SHARDED]
)
def test_jax_collectives_on_eight_devices(make: Any, value: Any) -> None:
    mesh = jax.sharding.AbstractMesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    traced = jax.jit(make(mesh)).trace(value)
    check(traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo"))


def test_enough_programs() -> None:
    assert len(PROGRAMS) + len(jax_more.X64) + len(jax_more.SHARDED) >= 130


def test_jax_sharding() -> None:
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("x")

    def body(a: Any) -> Any:
        return jax.lax.psum(a, "x") + jax.lax.all_gather(a, "x", tiled=True)

    mapped = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    sharding = jax.sharding.NamedSharding(mesh, spec)

    def fn(a: Any) -> Any:
        return jax.lax.with_sharding_constraint(mapped(a), sharding)

    text = str(check(jax.jit(fn).lower(np.ones((8,), "f")).compiler_ir("stablehlo")).attrs)
    assert "sdy.mesh" in text


def test_jax_symbolic_shapes() -> None:
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(lambda a: jax.nn.softmax(a @ a.T).reshape(-1)))(
        jax.ShapeDtypeStruct((n, 4), "float32")
    )
    check(parse(exported.mlir_module()))


def samples() -> list[Path]:
    files = sorted(TESTDATA.glob("*.mlir")) if TESTDATA.exists() else []
    return files[:: max(1, len(files) // 100)]


@pytest.mark.skipif(
    not samples(), reason="no folder ../shared/stablehlo_testdata beside the checkout"
)
def test_testdata() -> None:
    for path in samples():
        check(parse(path.read_text()))


TEXTS = {
    "layouts_of_xla": """
      func.func @main(%arg0: tensor<3x4xf32>) -> tensor<4x3xf32> {
        %0 = stablehlo.transpose %arg0, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[4,3]{0,1}"} : (tensor<3x4xf32>) -> tensor<4x3xf32>
        return %0 : tensor<4x3xf32>
      }
    """,
    "dynamic": """
func.func @main(%a: tensor<?x4xf32>, %s: tensor<2xi32>) -> tensor<?x?xf32> {
  %0 = stablehlo.add %a, %a : tensor<?x4xf32>
  %1 = stablehlo.dynamic_reshape %0, %s : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %2 = stablehlo.tanh %1 : tensor<?x?xf32>
  return %2 : tensor<?x?xf32>
}""",
    "tuples_and_tokens": """
func.func @main(%a: tensor<2xf32>, %t: tuple<tensor<2xf32>, !stablehlo.token>) -> (tuple<tensor<2xf32>>, !stablehlo.token) {
  %0 = stablehlo.tuple %a : tuple<tensor<2xf32>>
  %1 = stablehlo.get_tuple_element %t[1] : (tuple<tensor<2xf32>, !stablehlo.token>) -> !stablehlo.token
  %2 = "stablehlo.outfeed"(%a, %1) {outfeed_config = "x"} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  %3:2 = "stablehlo.infeed"(%2) {infeed_config = "y", layout = [[0]]} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
  return %0, %3#1 : tuple<tensor<2xf32>>, !stablehlo.token
}""",
    "module_attributes": """
module @name attributes {mhlo.num_partitions = 1 : i32, jax.uses_shape_polymorphism = true} {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(%a: tensor<8xf32> {jax.buffer_donor = true, mhlo.sharding = "{replicated}"},
      %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<8xf32> {jax.result_info = "r"})
      attributes {jax.arg_info = {a = 1.5 : f32, b = [unit, 3 : i8, "s"]}} {
    %0 = stablehlo.add %a, %b {mhlo.frontend_attributes = {k = "v"}, tf.x = array<i64: 1>} : tensor<8xf32>
    %1 = call @"odd.name"(%0) {mhlo.sharding = "q"} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = sdy.sharding_constraint %1 <@mesh, [{"x"}]> : tensor<8xf32>
    return %2 : tensor<8xf32>
  }
  func.func private @"odd.name"(%a: tensor<8xf32>) -> tensor<8xf32> attributes {no_inline} {
    %c = stablehlo.constant {mhlo.sharding = "z"} dense<1.0> : tensor<8xf32>
    %0 = stablehlo.add %a, %c : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}""",
    "custom_call": """
func.func @main(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0:2 = "stablehlo.custom_call"(%a) {call_target_name = "f", api_version = 4 : i32, backend_config = {x = 1 : i32, y = "z"},
    called_computations = [@g], operand_layouts = [dense<[1, 0]> : tensor<2xindex>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>],
    output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>]}
    : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<f32>)
  "stablehlo.custom_call"(%a) {call_target_name = "h", has_side_effect = true} : (tensor<2x3xf32>) -> ()
  return %0#0 : tensor<2x3xf32>
}
func.func private @g(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }""",
    "collectives": """
func.func @main(%a: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = "stablehlo.collective_permute"(%0) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %2 = "stablehlo.all_to_all"(%1) {split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2x4xf32>) -> tensor<4x2xf32>
  %3 = stablehlo.reshape %2 : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %4 = stablehlo.partition_id : tensor<ui32>
  return %3 : tensor<2x4xf32>
}""",
    "empty_splats": """
func.func @main() -> (tensor<2x0xi4>, tensor<0xi1>, tensor<0xcomplex<f32>>, tensor<0xf32>) {
  %0 = stablehlo.constant dense<2> : tensor<2x0xi4>
  %1 = stablehlo.constant dense<true> : tensor<0xi1>
  %2 = stablehlo.constant dense<> : tensor<0xcomplex<f32>>
  %3 = stablehlo.constant dense<> : tensor<0xf32>
  return %0, %1, %2, %3 : tensor<2x0xi4>, tensor<0xi1>, tensor<0xcomplex<f32>>, tensor<0xf32>
}""",
    "splat_of_a_terabyte": """
func.func @main() -> tensor<1048576x1048576xi8> {
  %c = stablehlo.constant dense<3> : tensor<1048576x1048576xi8>
  return %c : tensor<1048576x1048576xi8>
}""",
    "locations": """
func.func @main(%a: tensor<f32> loc("x")) -> tensor<f32> {
  %0 = stablehlo.sine %a : tensor<f32> loc("layer"("f.py":3:7))
  %1 = stablehlo.sine %0 : tensor<f32> loc(callsite("g" at "h.py":1:2))
  %2 = stablehlo.sine %1 : tensor<f32> loc(fused<"meta">["p", "q.py":1:1])
  %3 = stablehlo.sine %2 : tensor<f32> loc("f.py":1:2 to 3:4)
  return %3 : tensor<f32> loc(unknown)
} loc("fn")""",
    "bounded_dimensions": """
func.func @main(%a: tensor<?x4xf32, #stablehlo.bounds<8, ?>>) -> tensor<?x4xf32, #stablehlo.bounds<8, ?>> {
 %0 = stablehlo.add %a, %a : tensor<?x4xf32, #stablehlo.bounds<8, ?>>
 %t = stablehlo.transpose %0, dims=[1,0] : (tensor<?x4xf32, #stablehlo.bounds<8, ?>>) -> tensor<4x?xf32, #stablehlo.bounds<?, 8>>
 %s = stablehlo.get_dimension_size %0, dim = 0 : (tensor<?x4xf32, #stablehlo.bounds<8, ?>>) -> tensor<i32>
 %u = stablehlo.set_dimension_size %0, %s, dim = 0 : (tensor<?x4xf32, #stablehlo.bounds<8, ?>>, tensor<i32>) -> tensor<?x4xf32, #stablehlo.bounds<8, ?>>
 return %u : tensor<?x4xf32, #stablehlo.bounds<8, ?>> }""",
    "quantised": """
func.func @main(%a: tensor<2x!quant.uniform<i8:f32, 0.5:3>>, %f: tensor<2xf32>) -> tensor<2xf32> {
 %0 = stablehlo.add %a, %a : tensor<2x!quant.uniform<i8:f32, 0.5:3>>
 %1 = stablehlo.uniform_quantize %f : (tensor<2xf32>) -> tensor<2x!quant.uniform<i8:f32, 0.5:3>>
 %2 = stablehlo.uniform_dequantize %1 : (tensor<2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2xf32>
 return %2 : tensor<2xf32> }""",
    "quantised_constant": """
func.func @main() -> tensor<2x!quant.uniform<i8:f32, 0.5:3>> {
 %0 = stablehlo.constant() {value = dense<[1,2]> : tensor<2xi8>} : () -> tensor<2x!quant.uniform<i8:f32, 0.5:3>>
 return %0 : tensor<2x!quant.uniform<i8:f32, 0.5:3>> }""",
    "quantised_by_axis": """
func.func @main(%a: tensor<2x2x!quant.uniform<i8:f32:1, {0.5:3, 0.25}>>) { return }""",
    "resources": """
func.func @main() -> tensor<3xi32> {
 %0 = stablehlo.constant dense_resource<blob1> : tensor<3xi32>
 %1 = stablehlo.constant dense_resource<blob1> : tensor<3xi32>
 return %0 : tensor<3xi32> }
{-#
  dialect_resources: {
    builtin: {
      blob1: "0x08000000010000000000000002000000"
    }
  }
#-}""",
    "async": """
func.func @main(%a: tensor<4xf32>) -> tensor<8xf32> {
  %0 = "stablehlo.async_start"(%a) ({
    ^bb0(%x: tensor<4xf32>):
    %g = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[0,1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<8xf32>
    stablehlo.return %g : tensor<8xf32>
  }) : (tensor<4xf32>) -> !stablehlo.future<tensor<8xf32>>
  %1 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<8xf32>>) -> tensor<8xf32>
  return %1 : tensor<8xf32> }""",
    "bare_scalars": """
func.func @main(%a: f32, %b: index, %v: vector<4xf32>) -> f32 { return %a : f32 }""",
    "send_and_receive": """
func.func @main(%a: tensor<4xf32>, %t: !stablehlo.token) -> tensor<4xf32> {
 %0 = "stablehlo.send"(%a, %t) {channel_handle = #stablehlo.channel_handle<handle = 5, type = 2>, is_host_transfer = true} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
 %1:2 = "stablehlo.recv"(%0) {channel_handle = #stablehlo.channel_handle<handle = 5, type = 3>, is_host_transfer = true} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
 return %1#0 : tensor<4xf32> }""",
    "reduce_scatter": """
func.func @main(%a: tensor<4x16xf32>) -> tensor<4x4xf32> {
 %0 = "stablehlo.reduce_scatter"(%a) ({
   ^bb0(%x: tensor<f32>, %y: tensor<f32>): %s = stablehlo.add %x, %y : tensor<f32>
   "stablehlo.return"(%s) : (tensor<f32>) -> () }) {replica_groups = dense<[[0,1,2,3]]> : tensor<1x4xi64>, scatter_dimension = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids} : (tensor<4x16xf32>) -> tensor<4x4xf32>
 return %0 : tensor<4x4xf32> }""",
    "chlo_scan": """
func.func @main(%x: tensor<3x2xf32>, %i: tensor<2xf32>) -> tensor<3x2xf32> {
 %0:2 = chlo.scan (%x) inits (%i) dimension=0 {
  ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>):
    %s = stablehlo.add %a, %b : tensor<2xf32>
    stablehlo.return %s, %s : tensor<2xf32>, tensor<2xf32>
 } : (tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3x2xf32>, tensor<2xf32>)
 return %0#0 : tensor<3x2xf32> }""",
    "symbols_after_functions": """
module { func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }
 sdy.mesh @mesh = <["x"=8]>
 sdy.mesh @mesh2 = <["x"=8]>
 }""",
    "location_of_the_module": """
module { func.func @main() { return } } loc("here"("x.py":1:2))""",
    "odd_elements": """
func.func @main(%a: tensor<2xi17>, %b: tensor<2xcomplex<i8>>, %c: tensor<2xvector<2xf32>>) { return }""",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text(text: str) -> None:
    check(parse(text))


# TVMScript does not tell a splat without elements from no elements.
@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"empty_splats"}))
def test_text_by_way_of_tvmscript(name: str) -> None:
    text = TEXTS[name]
    mod = read(parse(text))
    again = from_source(mod.script(show_meta=True))
    assert_structural_equal(mod, again)
    assert str(emit(again)) == str(parse(text))


def test_location_of_the_module() -> None:
    mod = read(parse(TEXTS["location_of_the_module"]))
    assert str(emit(mod).operation.location) == 'loc("here"("x.py":1:2))'


FUNC = "func.func @main() { return }"


@pytest.mark.parametrize(
    "text",
    [
        FUNC,
        f"module {{ {FUNC} }}",
        f"// a comment\n  module @a {{ {FUNC} }}",
        f'module {{ {FUNC} loc("f") }}',
        f"module {{ {FUNC} loc(unknown) }}",
        f"module {{ {FUNC} }} loc(unknown)",
        f'module {{ {FUNC} }} loc("-":7:7)',
        f'module {{ {FUNC} }} loc("-":0:0)',
        f'module {{ {FUNC} }} loc("-":1:1 to :8)',
        f'module {{ {FUNC} }} loc(fused["a", "b"])',
        f'module {{ {FUNC} loc("-":1:1) }} loc(callsite("a" at "b"("f.py":1:2)))',
        "module { }",
        '\n sdy.mesh @m = <["x"=1]>',
        f'sdy.mesh @m = <["x"=1]> loc("m"("x.py":1:2))\n {FUNC}',
    ],
)
def test_every_location_is_written_again(text: str) -> None:
    module = parse(text)
    again = emit(read(module))
    for debug in (False, True):
        texts = [m.operation.get_asm(enable_debug_info=debug) for m in (again, module)]
        assert texts[0] == texts[1]
    assert again.operation.location == module.operation.location or str(
        again.operation.location
    ) == str(module.operation.location)


def test_where_a_module_comes_from_makes_no_difference() -> None:
    text = f'sdy.mesh @m = <["x"=1]>\n{FUNC}'
    mods = [read(parse(t)) for t in (text, f"// one line further down\n module {{ {text} }}")]
    assert mods[0].attrs != mods[1].attrs
    assert_structural_equal(*mods)
    assert structural_hash(mods[0]) == structural_hash(mods[1])


def test_a_location_that_is_none() -> None:
    mod = read(parse(FUNC)).with_attr("location", "loc(")
    with pytest.raises(EmitError, match="the module's attribute location: "):
        emit(mod)


def test_side_effects_make_functions_impure() -> None:
    mod = read(parse(TEXTS["custom_call"]))
    assert not mod["main"].is_pure
    assert mod["g"].is_pure
    check_well_formed(mod)


def test_callers_of_impure_functions_are_impure() -> None:
    text = """
func.func @main(%t: !stablehlo.token) -> !stablehlo.token {
  %0 = call @f(%t) : (!stablehlo.token) -> !stablehlo.token
  return %0 : !stablehlo.token
}
func.func private @f(%t: !stablehlo.token) -> !stablehlo.token {
  %0 = "stablehlo.outfeed"(%t) : (!stablehlo.token) -> !stablehlo.token
  return %0 : !stablehlo.token
}"""
    assert not check(parse(text))["main"].is_pure


def test_deep_nesting() -> None:
    depth = 200
    text = "func.func @main(%p: tensor<i1>, %a: tensor<f32>) -> tensor<f32> {\n"
    for i in range(depth):
        text += f'%r{i} = "stablehlo.if"(%p) ({{\n'
    text += "stablehlo.return %a : tensor<f32>\n"
    for i in reversed(range(depth)):
        text += "}, { stablehlo.return %a : tensor<f32> }) : (tensor<i1>) -> tensor<f32>\n"
        text += f"{'stablehlo.return' if i else 'return'} %r{i} : tensor<f32>\n"
    check(parse(text + "}"))


def test_long_chain() -> None:
    n = 20_000
    lines = [f"%{i + 1} = stablehlo.sine %{i} : tensor<f32>" for i in range(n)]
    text = "func.func @main(%0: tensor<f32>) -> tensor<f32> {\n" + "\n".join(lines)
    check(parse(f"{text}\nreturn %{n} : tensor<f32>}}"))


def test_symbolic_dimensions_are_tied() -> None:
    mod = read(parse(TEXTS["dynamic"]))
    param, (added, *_) = mod["main"].params[0], mod["main"].body.blocks[0].bindings
    assert added.var.struct_info == param.struct_info


def dims_of(text: str) -> list[str]:
    """Dimensions of the parameters and of the result of ``main``, after the round trip."""
    main = check(parse(text))["main"]
    infos = [*(p.struct_info for p in main.params), main.ret_struct_info]
    return [str(d) for i in infos for d in i.dims or ["unknown"]]


def test_dimensions_that_the_program_proves_equal() -> None:
    t = "tensor<?xf32>"
    added = f"func.func @main(%a: {t}, %b: {t}) -> {t} {{ %0 = stablehlo.add %a, %b : {t} return %0 : {t} }}"
    assert len(set(dims_of(added))) == 1
    dotted = """func.func @main(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
      return %0 : tensor<?x?xf32> }"""
    m, k, k2, n, m2, n2 = dims_of(dotted)
    assert (k, m, n) == (k2, m2, n2)
    assert len({m, k, n}) == 3
    shaped = f"""func.func @main(%a: tensor<?x4xf32>) -> {t} {{
      %c = stablehlo.constant dense<4> : tensor<i32>
      %0 = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
      %1 = stablehlo.multiply %0, %c : tensor<i32>
      %2 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
      %3 = stablehlo.dynamic_reshape %a, %2 : (tensor<?x4xf32>, tensor<1xi32>) -> {t}
      return %3 : {t} }}"""
    assert dims_of(shaped) == ["s0", "4", "s0 * 4"]


def test_what_a_branch_may_say_is_no_proof() -> None:
    t = "tensor<?xf32>"
    text = f"""func.func @main(%p: tensor<i1>, %a: {t}, %b: {t}) -> {t} {{
      %0 = "stablehlo.if"(%p) ({{
        %1 = stablehlo.add %a, %b : {t}
        stablehlo.return %1 : {t}
      }}, {{ stablehlo.return %a : {t} }}) : (tensor<i1>) -> {t}
      return %0 : {t} }}"""
    _, a, b, _ = dims_of(text)
    assert a != b


def test_splat_costs_nothing() -> None:
    mod = read(parse(TEXTS["splat_of_a_terabyte"]))
    value = mod["main"].body.blocks[0].bindings[0].value
    assert isinstance(value, Constant)
    assert value.data.strides == (0, 0)
    assert value.data[5, 5] == 3


def test_span_of_a_binding() -> None:
    mod = read(parse(TEXTS["locations"]))
    span = mod["main"].body.blocks[0].bindings[0].span
    assert span is not None
    assert (span.name, span.children[0].file, span.children[0].line) == ("layer", "f.py", 3)


def test_all_gaps_in_one_report() -> None:
    text = """
func.func private @outside(tensor<2xf32>) -> tensor<2xf32>
func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %a, %a {strange = 1} : tensor<2xf32> loc("here")
  %1 = "arith.addf"(%0, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}"""
    with pytest.raises(OpNotImplemented) as caught:
        read(parse(text))
    gaps = {g.op: g for g in caught.value.gaps}
    assert "strange" in gaps["stablehlo.add"].reason
    assert gaps["stablehlo.add"].nodes == ("here",)
    assert "no row" in gaps["arith.addf"].reason
    assert "without a body" in gaps["func.func"].reason


def function(value: Any, *params: Var) -> IRModule:
    var = Var("y", value.struct_info_)
    body = SeqExpr([BindingBlock([VarBinding(var, value, value.span)])], var)
    return IRModule({"main": Function(params, body, attrs={"global_symbol": "main"})})


def test_emit_of_built_rows() -> None:
    x = Var("x", TensorStructInfo((2, 3), "float32"))
    mod = function(hlo.transpose(x, permutation=(1, 0), span=Span("t")), x)
    assert "stablehlo.transpose %arg0, dims = [1, 0]" in str(emit(mod))
    assert 'loc("t")' in emit(mod).operation.get_asm(enable_debug_info=True)


def test_emit_names_what_it_cannot_write() -> None:
    x = Var("x", F32)
    wrong = hlo.add(x, x)
    wrong.struct_info_ = TensorStructInfo((5,), "float32")
    with pytest.raises(EmitError, match="MLIR refuses"):
        emit(function(wrong, x))
    with pytest.raises(EmitError, match="used before it is bound"):
        emit(function(hlo.add(x, x)))
    with pytest.raises(EmitError, match="slice_sizes"):
        emit(function(hlo.dynamic_slice(x, slice_sizes=("a",), sinfo_args=F32), x))


def test_context_can_be_given() -> None:
    ctx = context()
    x = Var("x", F32)
    assert emit(function(hlo.add(x, x), x), ctx).context == ctx


@pytest.mark.parametrize(
    "value", [np.zeros((2, 0), "f"), np.float32(1), np.arange(6.0).reshape(2, 3)]
)
def test_constants_of_any_shape(value: Any) -> None:
    again = read(emit(function(Constant(value))))["main"].body.blocks[0].bindings[0].value
    np.testing.assert_array_equal(again.data, value)
    assert again.data.dtype == value.dtype

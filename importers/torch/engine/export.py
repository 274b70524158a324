"""From an ExportedProgram to an IRModule: a walk over the fx graph.

The graph is taken as torch.export leaves it, so that composite operators (linear, layer_norm,
scaled_dot_product_attention, gelu) arrive whole. Torch rewrites it in two cases only: to make it
functional where it writes in place through views, and to decompose the very operators that have no
converter here.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from relax2xla.errors import UnsupportedError
from relax2xla.importers.torch.engine import converters
from relax2xla.importers.torch.engine.custom import Converter, by_operator, operator_key
from relax2xla.importers.torch.engine.graph_walk import Options
from relax2xla.importers.torch.engine.main_function import Imported, import_once
from relax2xla.importers.torch.source.capture import capture
from relax2xla.importers.torch.source.decompositions import Table, decompositions
from relax2xla.importers.torch.source.inplace import (
    lost_write,
    spell_out_statistics,
    unfollowed_write,
    writes_to,
)
from relax2xla.importers.torch.source.program import (
    Input,
    Program,
    exported,
)
from relax2xla.importers.torch.source.spans import Spans
from relax2xla.importers.torch.source.splicing import NotSpliced, spliced
from relax2xla.importers.torch.source.torch_internals import FakeTensor, core_decompositions
from relax2xla.ir import IRModule


def from_exported_program(
    exported_program: ExportedProgram | torch.nn.Module,
    example_args: Sequence[Any] | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Converter] | None = None,
    run_ep_decomposition: bool = False,
    keep_input_writes: bool = True,
    name_dims: bool = True,
) -> IRModule:
    """A program of ``torch.export.export`` as an IRModule with the function ``main``.

    The parameters of ``main`` are the tensors among the user's inputs, nested ones flattened in
    order; its result is the tuple of the flattened outputs. A dimension of ``torch.export.Dim`` is
    one symbolic variable everywhere; its range is in the function attributes
    ``tir_var_lower_bound`` and ``tir_var_upper_bound``, conditions on several that torch found
    (``if x.shape[0] > y.shape[0]``) in ``tir_var_conditions``; calls check both.

    A ``torch.nn.Module`` is exported first, for ``example_args``, ``example_kwargs`` and
    ``dynamic_shapes`` as ``torch.export.export`` takes them. What it says of gradients
    and torch.export leaves out (the backward of a ``torch.autograd.Function``, hooks) is then in
    the attribute ``lost_backward``, with the places.

    Buffers that the program changes become parameters after the inputs, and their new values
    results after the user's. The attribute ``state`` maps each of their names to the places of
    parameter and result, ``state_values`` holds their values at the export, and ``state_trained``
    the names of those that are parameters of the module. Inputs that the program
    changes are in ``mutated_inputs``: from the parameter's name to the place of its new value among
    the results. ``VirtualMachine.bind_state("main")`` keeps such state on the device.

    keep_params_as_input:     parameters of the module follow the inputs as parameters of ``main``,
                              and their values are its attribute ``params`` (see ``detach_params``);
                              otherwise they are constants that share torch's memory
    unwrap_unit_return_tuple: return the value itself where the tuple would have one field
    no_bind_return_tuple:     return the tuple without binding it to a variable first
    custom_convert_map:       from operators ("add.Tensor", "relu.default") to converters that come
                              before all others, called as ``converter(node, importer)`` with an
                              :class:`ExportedProgramImporter`. An operator that torch would
                              decompose reaches its converter whole
    run_ep_decomposition:     decompose into torch's core operators first, as TVM 0.25 does unless
                              told otherwise. Here operators stay whole unless asked for, as in TVM
                              0.20: they are faster, and some decompositions lose digits
    keep_input_writes:        False leaves out the new values of inputs that the program changes, so
                              that the results are the program's own, as TVM's importer has them
    name_dims:                False gives symbolic variables torch's names (``s77``), as TVM's
                              importer does, and not those of their ``Dim``

    Raises ``OpNotImplemented`` with everything that cannot be converted, ``UnsupportedError`` for a
    module that torch does not export, TypeError for anything else than a program or a module with
    its example arguments.
    """
    lost: dict[str, str] = {}
    if isinstance(exported_program, torch.nn.Module):
        if example_args is None and example_kwargs is None:
            raise TypeError(
                "from_exported_program takes the result of torch.export.export; got "
                f"{type(exported_program).__name__}. Give a module's example inputs too, as "
                "from_exported_program(module, (x,))"
            )
        exported_program = capture(
            exported_program,
            () if example_args is None else example_args,
            example_kwargs or {},
            dynamic_shapes,
            lost,
        )
    elif not isinstance(exported_program, ExportedProgram):
        raise TypeError(
            f"from_exported_program takes the result of torch.export.export; "
            f"got {type(exported_program).__name__}"
        )
    elif example_args is not None or example_kwargs is not None or dynamic_shapes is not None:
        raise TypeError(
            "an ExportedProgram has its inputs already; example_args, example_kwargs and "
            "dynamic_shapes go with a torch.nn.Module"
        )
    custom = custom_convert_map or {}
    options = Options(
        keep_params_as_input,
        unwrap_unit_return_tuple,
        no_bind_return_tuple,
        custom=by_operator(custom) if custom else None,
        own=not keep_input_writes,
        name_dims=name_dims,
        stops=True,
    )
    program = exported(exported_program)
    if run_ep_decomposition:
        program = _decomposed(program, custom)
    mod = convert_program(program, options)
    if lost:
        mod["main"] = mod["main"].with_attr("lost_backward", [list(one) for one in lost.items()])
    return mod


def _decomposed(program: Program, custom: Collection[str]) -> Program:
    """The program of torch's core operators, and of those that have a converter of the user's.

    One with sparse tensors stays as it is: torch cannot decompose it.
    """
    values = [i.node.meta.get("val") for i in program.inputs]
    if any(isinstance(v, torch.Tensor) and v.layout != torch.strided for v in values):
        return program
    assert program.decompose is not None
    table = core_decompositions()
    return program.decompose({op: f for op, f in table.items() if operator_key(op) not in custom})


def convert_program(program: Program, options: Options) -> IRModule:
    """``from_exported_program`` for any program; raises ``OpNotImplemented``."""
    made = import_program(program, options)
    if made.mod is None:
        made.walk.gaps.raise_all()
    return made.mod


def _functional(program: Program, decompose: Callable[[dict[Any, Any]], Program]) -> Program:
    """The program without writes in place; raises UnsupportedError where torch cannot make it."""
    lost = lost_write(program.module)
    if lost is not None:
        raise UnsupportedError(
            f"{Spans().where(lost)} writes through the windows of Tensor.unfold, which "
            "torch.export gets wrong; write to slices, such as x[::step], or by index_put"
        )
    try:
        return decompose({})
    except (AssertionError, RuntimeError) as e:
        held = {i.node: i.name for i in program.inputs if i.meaning == "constant"}
        for node in program.module.graph.nodes:
            base = writes_to(node)
            if base in held:
                raise UnsupportedError(
                    f"{Spans().where(node)} writes to {held[base]}, a tensor that torch.export "
                    "took for a constant, since it did not find it among the buffers: give it to "
                    "its module by register_buffer and use self.<name>, or, if a buffer is used "
                    "through another object (a cache), export with strict=True"
                ) from e
        first = unfollowed_write(program.module)
        assert first is not None
        raise UnsupportedError(
            "torch cannot take the writes in place out of this program (run_decompositions): "
            f"{str(e).partition(chr(10))[0]}\nThe first of them that needs it is {first.target} "
            f"at {Spans().where(first)}: make a new tensor there, such as x = x.add(y) for "
            "x.add_(y)"
        ) from e


def _returning_writes(program: Program) -> Program | None:
    """The program with the last values of the inputs that it writes to as results too.

    None where one of them may share its memory with another, or is not the user's to change.
    """
    graph, copies = Graph(), dict[Node, Node]()
    output = graph.output(graph.graph_copy(program.module.graph, copies))
    spell_out_statistics(graph)
    written = {writes_to(n) for n in graph.nodes}
    changed = [i for i in program.inputs if copies[i.node] in written]
    # One that nobody reads is another name, as caches have.
    memory = Counter(_storage(i) for i in program.inputs if i.node.users)
    values = [v for i in changed if (v := i.new_value) is not None]
    if len(values) < len(changed) or any(memory[_storage(i)] > 1 for i in changed):
        return None
    results: Any = output.args[0]
    output.args = ((*results, *(copies[i.node] for i in changed)),)
    module = GraphModule(program.module, graph)
    if unfollowed_write(module, {copies[i.node] for i in changed}) is not None:
        return None
    return dataclasses.replace(
        program,
        module=module,
        inputs=[dataclasses.replace(i, node=copies[i.node]) for i in program.inputs],
        outputs=[*program.outputs, *values],
    )


def _check_values(program: Program) -> None:
    """Raise UnsupportedError for the first weight of which torch has kept no values."""
    for i in program.inputs:
        if not isinstance(i.value, FakeTensor) or i.meaning in ("input", "number"):
            continue
        if i.meaning != "constant":
            raise UnsupportedError(
                f"the {i.meaning} {i.name} is a FakeTensor and so has no values; load the weights "
                "first, and export outside of FakeTensorMode"
            )
        users = list(i.node.users)
        raise UnsupportedError(
            f"{f'{Spans().where(users[0])}: ' if users else ''}torch.export has lost the values of "
            f"{i.name}, which it took for a constant; without them its program is wrong. A write "
            "through .data does this: write to the tensor itself, x[1:] = y for x.data[1:] = y"
        )


def _storage(i: Input) -> object:
    """What two inputs in the same memory have in common; the user's are always apart."""
    tensor = isinstance(i.value, torch.Tensor) and i.value.layout == torch.strided
    return i.value.untyped_storage().data_ptr() or i.node if tensor else i.node


def import_program(program: Program, options: Options) -> Imported:
    """The last walk over a program, which torch may have rewritten for it."""
    converters.load()
    _check_values(program)
    if program.decompose is not None and unfollowed_write(program.module) is not None:
        program = _returning_writes(program) or _functional(program, program.decompose)
    made = import_once(program, options)
    whole, asked, given = program, Table(), Table()
    while made.mod is None and whole.decompose is not None:
        before, table = made.walk.gaps, decompositions(made.walk.open)
        try:
            program = spliced(program, made.walk.failed, table)
        except NotSpliced:
            if not set(table) - set(given):
                break
            given = {**asked, **table}
            try:
                program = whole = whole.decompose(given)
            except (AssertionError, RuntimeError) as e:
                # Some of torch's decompositions write in place, which torch itself then refuses.
                if not isinstance(e, RecursionError):  # which says nothing to the user
                    before.add("torch's decomposition", str(e).partition("\n")[0], "")
                break
        asked |= table
        made = import_once(program, options)
        made.walk.gaps.keep(before)
    return made

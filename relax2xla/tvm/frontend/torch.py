"""``tvm.relax.frontend.torch``, where its answers are other than those of relax2xla's own face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relax2xla.tvm.frontend.torch_converters import CONVERTERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from relax2xla.ir import IRModule


def from_exported_program(exported_program: Any, **options: Any) -> IRModule:
    """``relax2xla.frontend.torch.from_exported_program`` with TVM's results.

    They are the program's own: a program for TVM unpacks no new values of inputs that the model
    writes to. ``keep_input_writes=True`` returns these, too. Symbolic sizes have torch's names, in
    ``tir_var_lower_bound`` as well; ``name_dims=True`` gives them those of the ``Dim``s. The
    operators of ``torch_converters`` have TVM's form; the user's converters come before these.
    """
    from relax2xla.frontend.torch import from_exported_program as convert

    given: dict[str, Any] = {"keep_input_writes": False, "name_dims": False, **options}
    given["custom_convert_map"] = {**CONVERTERS, **(given.get("custom_convert_map") or {})}
    return convert(exported_program, **given)


def dynamo_capture_subgraphs(
    model: Callable[..., Any],
    *params: Any,
    keep_params_as_input: bool | None = None,
    **kwargs: Any,
) -> IRModule:
    """``relax2xla.frontend.torch.dynamo_capture_subgraphs`` with TVM's parameters.

    Since torch 2.5 graphs of ``torch.compile`` take weights as inputs, and TVM leaves them so,
    where torch comes to them. Said outright, ``keep_params_as_input`` is what it is documented as:
    False for constants, True for parameters behind the inputs.
    """
    from relax2xla.importers.torch.compile.dynamo import captured

    return captured(model, params, kwargs, keep_params_as_input)

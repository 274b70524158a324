"""All that the importer uses of torch beyond its documented interface, each with the reason.

Nothing else in importers/torch may name a private module or attribute of torch, which
tests/importers/torch/source/test_torch_internals.py reads the files for: where a torch moves
something, this file is what changes. What takes long to import is imported by the function that
needs it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import traceback
from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import Any

import torch

# For enable_python_dispatcher: make_fx shows composite operators only to a function that runs
# within it. There is no public way.
from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher

# For TracingContext: a backend learns which inputs are weights, and which are written to, from what
# AOTAutograd leaves there. For detect_fake_mode: fake tensors belong to a mode, and those that are
# traced anew must be of that of their graph. torch.export has a public one for its own values only.
from torch._guards import TracingContext as TracingContext
from torch._guards import detect_fake_mode as detect_fake_mode

# The types of what fx graphs call, which torch.ops gives objects of, and documents no names for.
from torch._ops import HigherOrderOperator as HigherOrderOperator
from torch._ops import OpOverload as OpOverload

# A tensor without values, in graphs of torch.export; there is no public test for it.
from torch._subclasses import FakeTensor as FakeTensor

# Constants of a graph are read while AOTAutograd traces with fake tensors. There is no public way.
from torch._subclasses.fake_tensor import unset_fake_temporarily as unset_fake_temporarily

# The functional form of a decomposition that writes in place, as torch.export makes programs
# functional. torch.func.functionalize is public, and another one.
from torch._subclasses.functional_tensor import dispatch_functionalize as dispatch_functionalize

# A graph of ATen operators of a function of fake tensors. torch.export is the public way, and takes
# fifty times as long for one operator.
from torch.fx.experimental.proxy_tensor import make_fx as make_fx

# What torch knows of its symbolic sizes, which have no documented interface.
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols as free_unbacked_symbols
from torch.fx.experimental.symbolic_shapes import statically_known_true as statically_known_true

# Nested inputs and results, as torch.export flattens them; torch itself tells users to register
# their containers here.
from torch.utils import _pytree as pytree

# Tensors that are made of several (torchao's) have no numpy form. There is no public test.
from torch.utils._python_dispatch import (
    is_traceable_wrapper_subclass as is_traceable_wrapper_subclass,
)

__all__ = ["pytree"]

#: How often a tensor was written to: torch's own count, for which there is no public name.
writes_of: Callable[[torch.Tensor], int] = operator.attrgetter("_version")


# -- operators -----------------------------------------------------------------------------------
def schema_of(op: Any) -> Any:
    """The schema of an operator, which only its repr shows otherwise."""
    return op._schema


def is_composite(op: Any) -> bool:
    """Whether an operator is a function of others, as the dispatcher has it: it may give views."""
    dispatcher: Any = torch._C  # pyright: ignore[reportPrivateUsage]
    kind = "CompositeImplicitAutograd"
    return dispatcher._dispatch_has_kernel_for_dispatch_key(op.name(), kind)


def kernel_of_any_device(op: Any) -> Callable[..., Any]:
    """The kernel of an operator that calls others, for all devices; there is no public way."""
    return functools.partial(op._op_dk, torch.DispatchKey.CompositeExplicitAutograd)


def decomposition_table() -> dict[Any, Callable[..., Any]]:
    """All decompositions of torch; torch.export.default_decompositions has those of core ATen."""
    from torch._decomp import decomposition_table

    return decomposition_table


def core_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """What torch.export.default_decompositions has, which that takes 40 ms to find out each time.

    It looks at each namespace of operators for new ones that are functions of others: what it found
    is right until one is registered, which the dispatcher says in half a millisecond.
    """
    dispatcher: Any = torch._C  # pyright: ignore[reportPrivateUsage]
    find = dispatcher._dispatch_get_registrations_for_dispatch_key
    return _core_decompositions(frozenset(find("CompositeImplicitAutograd")))


@functools.lru_cache(maxsize=1)
def _core_decompositions(registered: frozenset[str]) -> Mapping[Any, Callable[..., Any]]:
    return MappingProxyType(dict(torch.export.default_decompositions().items()))


def kernels_of(op: Any) -> dict[Any, Callable[..., Any]]:
    """The Python functions that torch calls for an operator, by dispatch keys; none in some."""
    return getattr(op, "py_kernels", {})


def put_kernel(op: Any, key: Any, function: Callable[..., Any]) -> None:
    """Let torch call a function for an operator: torch.library refuses a second one for a key."""
    op.py_kernels[key] = function
    op._dispatch_cache.clear()


@contextlib.contextmanager
def lost_gradients(lost: Callable[[str, list[Any]], None]) -> Generator[None]:
    """Call ``lost`` with what the user says of gradients, and torch.export leaves out: functions
    with a backward, and hooks; and with the frames that do, innermost first, with their lines.

    ``Function.apply`` itself may be in the user's hands already, so what is watched is the making
    of what it calls ``ctx``, whose class there is no public name for.
    """
    from torch.autograd.function import BackwardCFunction

    def frames() -> list[Any]:
        return list(traceback.walk_stack(inspect.currentframe()))[2:]

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        function = type(self)._forward_cls
        if function.__name__ == "BackwardHookFunction":
            lost("a module's backward hook", frames())
        # Others of torch have the derivatives of what they do, as its checkpoints have.
        elif not f"{function.__module__}.".startswith("torch."):
            name = f"the backward of {function.__qualname__}, a torch.autograd.Function"
            lost(name, frames())

    def hooked(self: Any, hook: Any) -> Any:
        lost("a hook on a gradient", frames())
        return register(self, hook)

    kind: Any = BackwardCFunction
    before, register = kind.__init__, torch.Tensor.register_hook
    kind.__init__, torch.Tensor.register_hook = made, hooked
    try:
        yield
    finally:
        kind.__init__, torch.Tensor.register_hook = before, register


def has_hooks(tensor: torch.Tensor) -> bool:
    """Whether the user hooked the gradient of a tensor; there is no public way to ask."""
    return bool(tensor._backward_hooks)


# -- programs ------------------------------------------------------------------------------------
def guards_of(program: torch.export.ExportedProgram) -> list[str]:
    """The conditions on sizes that a program was traced under: none in versions without them."""
    return getattr(program, "_guards_code", [])


def is_vmap_trace(op: Any) -> bool:
    """Whether a node is what torch.vmap leaves in a graph; its functions have no public names."""
    return getattr(op, "__module__", "") == "torch._functorch.predispatch"


def reset_dynamo() -> None:
    """Let TorchDynamo forget what it has traced. torch.compiler.reset does, and clears more."""
    from torch._dynamo import reset

    reset()


def aot_autograd(**compilers: Any) -> Callable[..., Any]:
    """A backend of torch.compile of compilers for AOTAutograd's graphs, as torch's own are made.
    functorch.compile, which torch is leaving, has what it is made of.
    """
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**compilers)


def min_cut_partition(joint: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
    """A joint graph as a forward and a backward one, as Inductor has them made.
    functorch.compile, which torch is leaving, shows the function too.
    """
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition(joint, inputs, **options)

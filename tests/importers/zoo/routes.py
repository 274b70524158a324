"""Ways of a torch network into relax2xla, and whether what comes out agrees with eager torch.

A route is an exporter (``onnx-dynamo``, ``onnx-torchscript``: both forms of ``torch.onnx.export``;
``export``: ``torch.export``; ``compile``: ``torch.compile``), static or with dynamic dimensions. A
dynamic program is made once and run at three sizes.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import relax2xla
from relax2xla.errors import OpNotImplemented, UnsupportedError
from tests.quick_options import quick_options

from .network import Network, export_dims

PASS, WRONG, REFUSED, ERROR, NO_EXPORT = "pass", "wrong", "refused", "error", "no export"
Tensors = tuple[torch.Tensor, ...]
Run = Callable[[Tensors], list[Any]]


class NotExported(Exception):
    """torch itself does not export the network."""


@dataclass(frozen=True)
class Outcome:
    """What became of a network on a route; ``error``: the largest, beside values of size one."""

    network: str
    route: str
    dynamic: bool
    status: str
    reason: str = ""
    error: float = 0.0
    seconds: float = 0.0


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    """Quiet exporters, whose failures are torch's own."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters warn of their own deprecations
        try:
            yield
        except Exception as e:
            raise NotExported(f"{type(e).__name__}: {e}") from e


def onnx_model(network: Network, exporter: str, dynamic: bool) -> bytes:
    """The network as ``torch.onnx.export`` writes it (``exporter``: "dynamo", "torchscript")."""
    module, args = network.build(), network.arguments()
    names = [f"x{i}" for i in range(len(args))]
    common: dict[str, Any] = {"input_names": names}
    with _exporting():
        if exporter == "dynamo":
            shapes = export_dims(network, "onnx-dynamo") if dynamic else None
            program = torch.onnx.export(
                module, args, dynamo=True, dynamic_shapes=shapes, verbose=False, **common
            )
            assert program is not None
            return program.model_proto.SerializeToString()
        target = io.BytesIO()
        axes = {
            name: {axis: text.replace("*", "x") for axis, text in of.items()}
            for name, of in zip(names, network.dims, strict=True)
        }
        torch.onnx.export(
            module, args, target, dynamo=False, dynamic_axes=axes if dynamic else None, **common
        )
    return target.getvalue()


def _want_variable(network: Network, route: str, contents: bytes) -> None:
    """NotExported where torch wrote down the size of a dimension that is to vary."""
    import onnx

    fixed = network.fixed.get(route, ())
    graph = onnx.load_from_string(contents).graph
    for x, of in zip(graph.input, network.dims, strict=True):
        dims = x.type.tensor_type.shape.dim
        for axis, text in of.items():
            if text not in fixed and not dims[axis].dim_param:
                raise NotExported(f"torch fixes {text} ({x.name}) to {dims[axis].dim_value}")


def _from_onnx(exporter: str) -> Callable[[Network, bool], Run]:
    def make(network: Network, dynamic: bool) -> Run:
        from relax2xla.frontend.onnx import from_onnx

        contents = onnx_model(network, exporter, dynamic)
        if dynamic:
            _want_variable(network, f"onnx-{exporter}", contents)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # onnx's checker, of torch's own models
            return _machine(from_onnx(contents))

    return make


def _from_export(network: Network, dynamic: bool) -> Run:
    from relax2xla.frontend.torch import from_exported_program

    with _exporting():
        program = torch.export.export(
            network.build(),
            network.arguments(),
            dynamic_shapes=export_dims(network, "export") if dynamic else None,
        )
    return _machine(from_exported_program(program))


def _machine(mod: relax2xla.IRModule) -> Run:
    machine = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())

    def run(args: Tensors) -> list[Any]:
        made = machine["main"](*args)
        return [np.asarray(y) for y in (made if isinstance(made, tuple | list) else [made])]

    return run


def _compiled(network: Network, dynamic: bool) -> Run:
    """As one graph, so that nothing is left to torch without a word."""
    torch._dynamo.reset()
    call = torch.compile(
        network.build(), backend="relax2xla", fullgraph=True, options={"fallback": False}
    )

    def run(args: Tensors) -> list[Any]:
        for x, of in zip(args, network.dims, strict=True):
            for axis in of if dynamic else ():
                torch._dynamo.maybe_mark_dynamic(x, axis)
        with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
            try:
                return [y.numpy() for y in pytree.tree_leaves(call(*args))]
            except torch._dynamo.exc.Unsupported as e:
                raise NotExported(f"{type(e).__name__}: {e}") from e

    return run


ROUTES: dict[str, Callable[[Network, bool], Run]] = {
    "onnx-dynamo": _from_onnx("dynamo"),
    "onnx-torchscript": _from_onnx("torchscript"),
    "export": _from_export,
    "compile": _compiled,
}


def errors(got: Sequence[Any], want: Any) -> float:
    """The largest difference beside values of size one; AssertionError for another type or shape.

    Integers and booleans agree exactly.
    """
    wanted = [y.numpy() for y in pytree.tree_leaves(want)]
    assert len(got) == len(wanted), f"{len(got)} results, not {len(wanted)}"
    largest = 0.0
    for g, w in zip(got, wanted, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape), (
            f"{g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}"
        )
        if w.dtype.kind != "f":
            np.testing.assert_array_equal(g, w)
        elif w.size:
            np.testing.assert_array_equal(np.isnan(g), np.isnan(w))
            apart = np.abs(g - w) / np.maximum(1.0, np.abs(w))
            largest = max(largest, float(np.nanmax(np.where(g == w, 0.0, apart))))
    return largest


def check(
    network: Network, route: str, dynamic: bool, variants: Sequence[int] = (0, 1, 2)
) -> float:
    """The largest error at all sizes. Raises AssertionError where it exceeds the tolerance.

    ``variants``: which sizes of the inputs, 0 those of the example; static ones have no other. The
    first is compiled as users' programs are, the others quickly.
    """
    run = ROUTES[route](network, dynamic)
    module = network.build()
    largest = 0.0
    for i, variant in enumerate(variants if dynamic else (0,)):
        args = network.arguments(variant, route)
        with torch.no_grad():
            want = module(*args)
        # The rows at other sizes are the same, and so is what XLA's optimisations do to them.
        with quick_options() if i else contextlib.nullcontext():
            apart = errors(run(args), want)
        assert apart <= network.tolerance, f"the error is {apart:.1e}"
        largest = max(largest, apart)
    return largest


def outcome(name: str, network: Network, route: str, dynamic: bool) -> Outcome:
    """``check``, with what it raises as a status and a reason."""
    start = time.perf_counter()
    error, status, reason = 0.0, PASS, ""
    try:
        error = check(network, route, dynamic)
    except NotExported as e:
        status, reason = NO_EXPORT, str(e)
    except (OpNotImplemented, UnsupportedError) as e:
        status, reason = REFUSED, str(e)
    except AssertionError as e:
        status, reason = WRONG, str(e)
    except Exception as e:
        status, reason = ERROR, f"{type(e).__name__}: {e}"
    seconds = time.perf_counter() - start
    return Outcome(name, route, dynamic, status, " ".join(reason.split()), error, seconds)

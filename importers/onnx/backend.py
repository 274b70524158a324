"""The onnx package's ``Backend`` interface: its suite and its users run models here as elsewhere.

::

    from relax2xla import onnx_backend

    rep = onnx_backend.prepare(model, "CPU")
    (y,) = rep.run([x])

Where the shape of a result depends on the value of a small input (``Reshape``, ``Slice``, ``Tile``,
...), the input stays an input of :meth:`Prepared.run`: the model is imported again for each value,
and the last programs are kept.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from relax2xla.errors import CallError, DeviceError, OpError, OpNotImplemented
from relax2xla.importers.onnx.engine.known_values import Array
from relax2xla.importers.onnx.engine.model import Importer, checked
from relax2xla.runtime.device import Device, device
from relax2xla.vm.call.machine import VirtualMachine
from relax2xla.vm.pjrt.xla import jax_device
from relax2xla.vm.plan.build import build

# An input of more values than this never becomes a constant of a program.
SPECIALISE_LIMIT = 4096
# Programs of one model kept for values of such inputs; the least recently used one goes first.
CACHE_SIZE = 32

Key = tuple[Any, ...]


class Prepared(BackendRep):
    """A model that is ready to run.

    ``inputs``: names of the inputs that :meth:`run` takes, in order; ``outputs``: names of results.
    """

    def __init__(self, model: ModelProto | bytes | str, target: Device, where: str) -> None:
        self._device = target
        self._where = where
        self._programs: OrderedDict[Key, Callable[..., Any]] = OrderedDict()
        self._known: list[str] = []
        self._source = checked(model)
        importer = Importer(self._source)
        graph = importer.proto.graph
        weights = {t.name for t in graph.initializer}
        weights |= {s.values.name for s in graph.sparse_initializer}
        self.inputs = [i.name for i in graph.input if i.name not in weights]
        self.outputs = [o.name for o in graph.output]
        try:
            self._programs[()] = self._compiled(importer)
        except (OpNotImplemented, OpError):
            self._specialised()

    def _specialised(self) -> bool:
        """Make programs for the values of inputs from now on; False where none matters."""
        importer = Importer(self._source)
        importer.binding = False
        try:
            self._programs[()] = self._compiled(importer)
        except OpNotImplemented:
            self._known = importer.needed_inputs()
            if not self._known:
                raise
        return bool(self._known)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Results as numpy arrays, in a named tuple that also takes names as indices.

        inputs: arrays in order of :attr:`inputs`, or by name
        """
        if kwargs:
            raise TypeError(f"run takes inputs only; got {', '.join(kwargs)}")
        given = self._by_name(inputs)
        try:
            made = self._called(given)
        except CallError:
            # A value that the one program for all values cannot take may have one of its own.
            if self._known or not self._specialised():
                raise
            made = self._called(given)
        results = made if len(self.outputs) > 1 else (made,)
        named = namedtupledict("Outputs", self.outputs)
        return named(*(_host(r) for r in results))

    def _called(self, given: Mapping[str, Any]) -> Any:
        program = self._program(given)
        return program(*(given[n] for n in self.inputs if n not in self._known))

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            found = dict(inputs)
            if set(found) != set(self.inputs):
                raise CallError(
                    f"{self._where} takes the inputs {', '.join(self.inputs) or 'none'}; got "
                    f"{', '.join(map(str, found)) or 'none'}"
                )
            return found
        values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(values) != len(self.inputs):
            raise CallError(
                f"{self._where} takes {len(self.inputs)} inputs ({', '.join(self.inputs)}); got "
                f"{len(values)}"
            )
        return dict(zip(self.inputs, values, strict=True))

    def _program(self, given: Mapping[str, Any]) -> Callable[..., Any]:
        """The program for the values of the inputs that shapes depend on."""
        while True:
            values = {n: np.asarray(given[n]) for n in self._known}
            key = tuple((v.dtype.str, v.shape, v.tobytes()) for v in values.values())
            if key in self._programs:
                self._programs.move_to_end(key)
                return self._programs[key]
            shapes = {n: np.shape(v) for n, v in given.items() if n not in self._known}
            importer = Importer(self._source, shapes=shapes)
            importer.known = values
            importer.binding = False
            try:
                made = self._compiled(importer)
            except OpNotImplemented:
                more = [n for n in importer.needed_inputs() if n not in self._known]
                large = any(np.size(given[n]) > SPECIALISE_LIMIT for n in more)
                if not more or large:
                    raise
                self._known = [n for n in self.inputs if n in (*self._known, *more)]
                continue
            self._programs[key] = made
            if len(self._programs) > CACHE_SIZE:
                self._programs.popitem(last=False)
            return made

    def _compiled(self, importer: Importer) -> Callable[..., Any]:
        mod = importer.run()
        return VirtualMachine(build(mod, self._device), self._device)["main"]


class Relax2XLABackend(Backend):
    """The backend; see the module."""

    @classmethod
    def prepare(
        cls, model: ModelProto | bytes | str, device: str = "CPU", **kwargs: Any
    ) -> Prepared:
        """Import and build a model: a ModelProto, the path of a file, or its contents.

        Raises ``OpNotImplemented`` with everything that cannot be converted.
        """
        _no_options(kwargs)
        return Prepared(model, _device(device), "the model")

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Results of a model for one set of inputs."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Results of one node. ``inputs``: arrays in the order of its inputs, without missing ones;

        ``opset_version``: of the node's domain, the newest unless given.
        """
        opset = kwargs.pop("opset_version", None)
        _no_options(kwargs)
        names = list(dict.fromkeys(i for i in node.input if i))
        given = dict(inputs) if isinstance(inputs, Mapping) else None
        arrays = [np.asarray(given[n] if given else a) for n, a in _pairs(names, inputs)]
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays, strict=True)
        ]
        results = [o for o in node.output if o]
        graph = helper.make_graph(
            [node], "node", infos, [helper.make_empty_tensor_value_info(o) for o in results]
        )
        version = opset or onnx.defs.onnx_opset_version()
        imports = [helper.make_opsetid(node.domain, version)]
        if node.domain:
            imports.append(helper.make_opsetid("", onnx.defs.onnx_opset_version()))
            if not opset:
                imports[0].version = _newest(node)
        model = helper.make_model(graph, opset_imports=imports)
        with warnings.catch_warnings():
            # The checker misses the types of outputs, which a node alone does not have.
            warnings.simplefilter("ignore")
            return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether XLA can run on ``device`` here: "CPU", "CUDA", "CUDA:1"."""
        try:
            jax_device(_device(device))
        except DeviceError:
            return False
        return True


def _host(result: Any) -> Any:
    """A result as numpy's array, a sequence as a list of such, maps and None as they are."""
    if isinstance(result, tuple | list):
        return [_host(r) for r in result]
    return result if result is None or isinstance(result, dict) else np.asarray(result)


def _pairs(names: Sequence[str], inputs: Any) -> list[tuple[str, Any]]:
    if isinstance(inputs, Mapping):
        return [(n, None) for n in names]
    values: list[Array] = list(inputs)
    if len(values) != len(names):
        raise CallError(f"the node takes the inputs {', '.join(names)}; got {len(values)} arrays")
    return list(zip(names, values, strict=True))


def _newest(node: NodeProto) -> int:
    if onnx.defs.has(node.op_type, node.domain):
        return int(onnx.defs.get_schema(node.op_type, domain=node.domain).since_version)
    return 1


def _device(name: str) -> Device:
    return device(name.lower())


def _no_options(kwargs: Mapping[str, Any]) -> None:
    # The suite gives its tolerances to every backend.
    unknown = set(kwargs) - {"rtol", "atol"}
    if unknown:
        raise TypeError(f"this backend has no option {', '.join(sorted(unknown))}")


prepare = Relax2XLABackend.prepare
run_model = Relax2XLABackend.run_model
run_node = Relax2XLABackend.run_node
supports_device = Relax2XLABackend.supports_device
is_compatible = Relax2XLABackend.is_compatible

"""``relax2xla run --weights FILE``: other weights for a model, by the source's names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from relax2xla.cli.process.console import note
from relax2xla.errors import FileFormatError
from relax2xla.importers.files import check_file

if TYPE_CHECKING:
    from relax2xla.vm.call.machine import VirtualMachine

_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin")


def set_weights(machine: VirtualMachine, path: Path) -> None:
    """Use the weights in ``path`` from now on; says which names the one has and the other not.

    Raises FileFormatError for a file that cannot be read or has none of them, CallError for
    weights that do not fit.
    """
    found = read_weights(path)
    known = machine.params()
    used = [n for n in known if n in found]
    if not used:
        if not known:
            raise FileFormatError(f"{path}: the model has no weights that have a name")
        few = ", ".join(list(known)[:5])
        raise FileFormatError(
            f"{path} has none of the weights of the model, which are {few}"
            f"{', ...' if len(known) > 5 else ''}; it has {', '.join(list(found)[:5]) or 'none'}"
        )
    machine.set_params({n: found[n] for n in used})
    note(f"weights: {len(used)} of {len(known)} from {path.name}")
    if left := [n for n in known if n not in found]:
        note(f"as the model has them: {_few(left)}")
    if more := [n for n in found if n not in known]:
        note(f"not in the model: {_few(more)}")


def _few(names: list[str]) -> str:
    return f"{', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"


def read_weights(path: Path) -> dict[str, Any]:
    """Arrays by name of .safetensors, .npz, torch checkpoints, and ONNX models."""
    check_file(path)
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        from relax2xla.importers.onnx import load_initializers

        return load_initializers(path)
    if suffix in _CHECKPOINTS:
        from relax2xla.importers.torch import load_state_dict

        return load_state_dict(path)
    from relax2xla.runtime.weights import load_weights

    return dict(load_weights(path))

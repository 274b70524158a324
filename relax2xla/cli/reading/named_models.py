"""Models by name in place of a file: ``torchvision:resnet50``, ``timm:NAME``, ``hf:FOLDER``.

The model is exported to a file in a temporary folder, so that every command takes it as it takes
files, with the same reference to compare with. Nothing is downloaded.
"""

from __future__ import annotations

import atexit
import difflib
import importlib
import importlib.util
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from relax2xla.cli.process.console import called, note, status
from relax2xla.cli.process.signals import Interrupted
from relax2xla.errors import TVMError

# Files that were made here, whose code the user has named.
_MADE: Final[set[Path]] = set()


def made_here(file: Path) -> bool:
    """Whether ``file`` was exported from a model that the user named."""
    return file in _MADE


def resolved(file: Path) -> Path:
    """``file``, or the one that is exported of the model that it names."""
    kind, colon, name = str(file).partition(":")
    if not colon or file.exists():
        return file
    if kind not in _MAKERS:
        # A path may have a colon, too.
        near = difflib.get_close_matches(kind, _MAKERS, 1)
        like = f"; did you mean {near[0]}:{name}?" if near else ""
        raise TVMError(
            f"{file}: there is no such file, and no models of such a name; names begin with "
            f"{', '.join(f'{k}:' for k in _MAKERS)}{like}"
        )
    # transformers is installed without torch, too.
    for package in (_PACKAGES[kind], *(() if kind == "jax" else ("torch",))):
        if importlib.util.find_spec(package) is None:
            raise TVMError(f"{file} needs the package {package}; pip install {package}")
    if not name:
        raise TVMError(f"{kind}: is followed by nothing; name a model, such as {_EXAMPLES[kind]}")
    folder = Path(tempfile.mkdtemp(prefix="relax2xla-"))
    atexit.register(shutil.rmtree, folder, True)
    with status(f"exporting {file}"):
        try:
            made = _MAKERS[kind](name, folder)
        except (TVMError, Interrupted):
            raise
        except SystemExit as e:
            raise TVMError(f"{file} cannot be made: its code ends the process") from e
        except Exception as e:  # whatever a package raises for a name that it does not know
            first = (str(e).strip() or type(e).__name__).splitlines()[0][:300]
            raise TVMError(f"{file} cannot be made: {type(e).__name__}: {first}") from e
    _MADE.add(made)
    called(str(made), str(file))
    return made


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[-80:] or "model"


def _exported(model: Any, args: Any, kwargs: Any, path: Path) -> Path:
    import torch

    program = torch.export.export(model.eval(), args, kwargs)
    torch.export.save(program, path)
    return path


def _weights(name: str) -> tuple[str, bool]:
    """``resnet50@pretrained`` as the name, and whether its weights are asked for."""
    plain, _, asked = name.partition("@")
    if asked not in ("", "pretrained"):
        raise TVMError(f"{name}: what follows @ can be pretrained")
    if not asked:
        note(f"{plain}: weights are random (seed 0); {plain}@pretrained takes the package's own")
    return plain, bool(asked)


def _known(name: str, names: Sequence[str], package: str) -> None:
    """TVMError with the names that are near for one that is none of ``names``."""
    if name in names:
        return
    near = difflib.get_close_matches(name, names, 5)
    said = f"; near are {', '.join(near)}" if near else ""
    raise TVMError(f"{package} has no model {name!r}, of {len(names):,} that it has{said}")


def _torchvision(name: str, folder: Path) -> Path:
    import torch

    models: Any = importlib.import_module("torchvision.models")
    plain, pretrained = _weights(name)
    torch.manual_seed(0)
    _known(plain, models.list_models(), "torchvision")
    model = models.get_model(plain, weights="DEFAULT" if pretrained else None)
    return _exported(model, (torch.zeros(1, 3, 224, 224),), None, folder / f"{_safe(plain)}.pt2")


def _timm(name: str, folder: Path) -> Path:
    import torch

    timm: Any = importlib.import_module("timm")
    plain, pretrained = _weights(name)
    torch.manual_seed(0)
    # Names with a tag (resnet18.a1_in1k) say which weights; others may be hf-hub: and the like.
    if ":" not in plain:
        _known(plain.partition(".")[0], timm.list_models(), "timm")
    model = timm.create_model(plain, pretrained=pretrained)
    shape = model.default_cfg.get("input_size", (3, 224, 224))
    return _exported(model, (torch.zeros(1, *shape),), None, folder / f"{_safe(plain)}.pt2")


def _hf(name: str, folder: Path) -> Path:
    """A folder, or a model of transformers' cache; nothing is downloaded and no code of it run."""
    if name.startswith((".", "/", "~")):
        name = os.path.expanduser(name)
        if not os.path.isfile(os.path.join(name, "config.json")):
            raise TVMError(
                f"hf:{name}: expected a folder that save_pretrained of transformers wrote; there "
                f"is no file {os.path.join(name, 'config.json')}"
            )
    transformers: Any = importlib.import_module("transformers")
    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()
    try:
        model = transformers.AutoModel.from_pretrained(name, local_files_only=True)
    except OSError as e:
        if os.path.isdir(name):
            raise
        raise TVMError(
            f"hf:{name} is neither a folder (hf:./{name}) nor complete in the cache of "
            "transformers, and nothing is downloaded"
        ) from e
    # Encoders and decoders inside have configurations of their own; caches are no tensors.
    for part in model.modules():
        config = getattr(part, "config", None)
        for option, value in (("return_dict", True), ("use_cache", False)):
            if hasattr(config, option):
                setattr(config, option, value)
    return _exported(model, (), _hf_inputs(model, name), folder / f"{_safe(name)}.pt2")


def _hf_inputs(model: Any, name: str) -> dict[str, Any]:
    """Inputs of a model of transformers, by what it says is its main one."""
    import torch

    main = model.main_input_name
    if main == "pixel_values":
        config = getattr(model.config, "vision_config", model.config)
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, tuple | list) else (size, size)
        return {main: torch.zeros(1, getattr(config, "num_channels", 3), height, width)}
    given = {k: v for k, v in dict(model.dummy_inputs).items() if v is not None}
    if main not in given:
        raise TVMError(
            f"hf:{name} takes {main}, of which nobody says the shape: export it with "
            "torch.export.export and torch.export.save, and give the .pt2 file"
        )
    return given


def _jax(name: str, folder: Path) -> Path:
    """``module:function``: with the attribute ``example_args``, or giving a function and these."""
    import jax

    module, colon, function = name.partition(":")
    if not colon:
        raise TVMError(f"jax:{name}: expected jax:MODULE:FUNCTION, such as {_EXAMPLES['jax']}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    fn: Any = importlib.import_module(module)
    for step in function.split("."):
        fn = getattr(fn, step)
    args = getattr(fn, "example_args", None)
    if args is None:
        needed = [
            p.name
            for p in inspect.signature(fn).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        made = None if needed else fn()
        if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
            raise TVMError(
                f"jax:{name} says no shapes: give the function an attribute example_args, such as "
                f"{function}.example_args = (jax.ShapeDtypeStruct((2, 3), 'float32'),), or let it "
                "take nothing and return (function, example_args)"
            )
        fn, args = made
    path = folder / f"{_safe(function)}.mlir"
    path.write_text(jax.jit(fn).lower(*args).as_text(debug_info=True))
    return path


_MAKERS: Final[dict[str, Callable[[str, Path], Path]]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "hf": _hf,
    "jax": _jax,
}
_PACKAGES: Final = {k: "transformers" if k == "hf" else k for k in _MAKERS}
_EXAMPLES: Final = {
    "torchvision": "torchvision:resnet50",
    "timm": "timm:mobilenetv3_small_100",
    "hf": "hf:./my-model-folder",
    "jax": "jax:my_package.model:forward",
}

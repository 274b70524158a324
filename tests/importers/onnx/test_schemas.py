"""Every operator of ONNX, in every version that onnx knows, against the table of converters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from relax2xla.importers import onnx as importer
from relax2xla.importers.onnx.engine import converters
from relax2xla.importers.onnx.engine.model import load_converters

# What there is no converter for, and why.
MISSING = {
    ("ai.onnx.preview.training", "Gradient", 1): "a derivative of a part of the model",
}
# Attributes that a schema calls optional, without which the operator says nothing.
NEEDED = {
    "Reshape": {"shape"},
    "LpPool": {"kernel_shape"},
    "SVMClassifier": {"coefficients", "rho"},
    "SVMRegressor": {"coefficients", "rho"},
}


def schemas() -> list[Any]:
    found = onnx.defs.get_all_schemas_with_history()
    return sorted(
        (s for s in found if not s.deprecated), key=lambda s: (s.domain, s.name, s.since_version)
    )


@pytest.fixture(autouse=True, scope="module")
def _converters() -> None:
    load_converters()


def has_body(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)


def test_every_version_of_every_operator_has_a_converter_or_a_body() -> None:
    missing = {
        (s.domain, s.name, s.since_version)
        for s in schemas()
        if converters.find(s.domain, s.name, s.since_version) is None and not has_body(s)
    }
    assert missing <= set(MISSING)


def test_converters_take_every_attribute_and_input_of_their_schemas() -> None:
    wrong: list[str] = []
    for s in schemas():
        converter = converters.find(s.domain, s.name, s.since_version)
        if converter is None or has_body(s):
            continue
        name = f"{s.domain}.{s.name}-{s.since_version}"
        lacks = set(s.attributes) - set(converter.attributes) - converters.LEGACY
        wrong += [f"{name} lacks {a}" for a in sorted(lacks)]
        if not converter.variadic and len(s.inputs) > len(converter.inputs):
            wrong.append(f"{name} takes {len(converter.inputs)} of {len(s.inputs)} inputs")
        if s.name.startswith("TreeEnsemble"):
            continue  # a tree is its lists
        for a, default in converter.attributes.items():
            needed = a in NEEDED.get(s.name, ()) or (a in s.attributes and s.attributes[a].required)
            if default is converters.REQUIRED and not needed:
                wrong.append(f"{name} needs {a}")
    assert not wrong


def written() -> Iterator[ast.FunctionDef]:
    for file in Path(importer.__file__).parent.glob("ops/*.py"):
        for made in ast.walk(ast.parse(file.read_text("utf-8"))):
            decorators = getattr(made, "decorator_list", ())
            if isinstance(made, ast.FunctionDef) and any(
                name in ast.dump(d) for d in decorators for name in ("onnx_op", "_on_numbers")
            ):
                yield made


def test_what_a_converter_does_not_use_its_documentation_names() -> None:
    """An input or attribute that is taken and then forgotten would be silently wrong."""
    count, forgotten = 0, list[str]()
    for made in written():
        count += 1
        own = made.args
        names = {
            a.arg for a in (*own.args[1:], *own.kwonlyargs, own.vararg, own.kwarg) if a is not None
        }
        used = {n.id for part in made.body for n in ast.walk(part) if isinstance(n, ast.Name)}
        told = ast.get_docstring(made) or ""
        forgotten += [f"{made.name}: {n}" for n in sorted(names - used) if f"``{n}``" not in told]
    assert count > 150
    assert not forgotten

"""The source's own names of what a function takes and gives (design decision D10).

A parameter's is the name of its span. Those of results are the field ``results`` of the JSON in the
``metadata`` of the function's span, where importers keep the trees of arguments and results too.
StableHLO says them in attributes of results, and JAX in locations of arguments.
"""

from __future__ import annotations

import dataclasses
import json
import keyword
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

from relax2xla import syntax
from relax2xla.ir.base import Span
from relax2xla.ir.expr import Function, Var
from relax2xla.ir.struct_info import TupleStructInfo, flatten_info

#: Attributes of a StableHLO program's arguments and results: JAX's, and the dimensions, ours.
ARG_INFO: Final = "jax.arg_info"
RESULT_INFO: Final = "jax.result_info"
SHAPE: Final = "relax2xla.shape"
#: The same in TensorFlow's programs, whose value is a path of one step or several.
INDEX_PATH: Final = "tf_saved_model.index_path"
#: What a text calls by these names is something else, so that no parameter is called so.
RESERVED: Final = frozenset(("I", "R", "T", "cls", "metadata", "Module"))
#: The function attribute that has these names in Relax text, and there alone.
SOURCE_NAMES: Final = "source_names"
#: The metadata of a parameter's span whose name a StableHLO program says as a location; ARG_INFO
#: where it says it in an attribute, so that it is written as it was read.
LOCATION: Final = "loc"

# Places in a tree as JAX writes them: result['logits'][0].value
_STEP: Final = re.compile(r"""\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]'"]+)\]|\.(\w+)""")
_PATH: Final = re.compile(rf"(?:result)?(?:{_STEP.pattern})*")


def identifier(name: str, *taken: Container[str], prefix: str = "input", each: bool = False) -> str:
    """``name`` of a source as a name in Relax: a Python identifier of ASCII, none of ``taken``.

    What none may have is an underscore, several in a row are one, and none stands at an end:
    ``params['w']`` is ``params_w``. ``prefix`` comes before digits and keywords (``input_0``), a
    number behind what is taken (``w_1``). All importers follow this rule; ``each``: that of TVM's
    ``from_onnx``, an underscore for each such character wherever it stands.
    """
    made = name
    if not (name.isascii() and name.isidentifier()):
        made = re.sub(r"\W" if each else r"\W+", "_", name, flags=re.ASCII)
        made = made if each else made.strip("_")
    if not made or made[0].isdigit() or keyword.iskeyword(made):
        made = f"{prefix}_{made}" if made else prefix
    base, number = made, 0
    while any(made in names for names in taken):
        number += 1
        made = f"{base}_{number}"
    return made


def source_name(param: Var) -> str:
    """The source's name of a parameter; "" where it has none but ``name_hint``."""
    span = param.span
    return span.name if span is not None and span.kind == "name" else ""


def result_names(func: Function) -> tuple[str, ...]:
    """The source's names of the results of ``func``, "" for one that has none; () for none at all.

    Where results are nested, there is a name for each leaf.
    """
    told = _told(func)
    names = told.get("results")
    if isinstance(names, list) and all(isinstance(n, str) for n in names):
        return tuple(names)
    rows = func.attrs.get("res_attrs")
    if isinstance(rows, Sequence) and rows:
        found = tuple(_of_attributes(row) for row in rows)
        return found if any(found) else ()
    if any(found := listed_names(func, "outputs")):
        return tuple(found)
    if "out" in told:
        found = tuple(_by_field(func, dict(_leaves(told["out"]))))
        return found if any(found) else ()
    return ()


def _by_field(func: Function, names: Mapping[int, str]) -> Iterator[str]:
    """Names of all leaves, given those of the fields of the result: one of nothing has no leaf.

    What the program changes comes after its results, by the names of what is changed.
    """
    changed = {
        **{place: name for name, (_, place) in func.attrs.get("state", {}).items()},
        **{place: name for name, place in func.attrs.get("mutated_inputs", {}).items()},
    }
    info = func.ret_struct_info
    for i, field in enumerate(info.fields if isinstance(info, TupleStructInfo) else [info]):
        name, leaves = names.get(i, changed.get(i, "")), len(flatten_info(field))
        yield from [name] if leaves == 1 else [name and f"{name}.{j}" for j in range(leaves)]


def full_names(names: Sequence[str], count: int) -> list[str]:
    """``names`` of ``count`` results, each another: output_0, output_1 for those without one."""
    # What a program changes comes after its results.
    known = [*names, *[""] * (count - len(names))] if len(names) <= count else [""] * count
    made: list[str] = []
    for i, name in enumerate(known):
        free = name and name not in made and name not in known[:i]
        made.append(name if free else f"output_{i}")
    return made


def with_result_names(func: Function, names: Sequence[str]) -> Function:
    """``func`` with names of its results in its span."""
    return _telling(func, "results", list(names))


def with_dims_told(func: Function) -> Function:
    """``func``, read from a program beside which something else tells its dimensions."""
    return _telling(func, "dims", True)


def dims_are_told(func: Function) -> bool:
    """Whether the program that ``func`` was read from does not itself name its dimensions."""
    return _told(func).get("dims") is True


def _telling(func: Function, key: str, value: Any) -> Function:
    span = func.span or Span(kind="file")
    if span.kind == "fused" and span.metadata:  # which is an attribute of MLIR's
        return func
    text = json.dumps({**_told(func), key: value})
    return func.replace(span=dataclasses.replace(span, metadata=text))


def result_info(name: str) -> str:
    """What :data:`RESULT_INFO` says of a result so that :func:`result_names` gives ``name``."""
    return name if _name_at(name) == name else f"result[{name!r}]"


def names_of(span: Span | None) -> tuple[str, ...]:
    """The source's names of one weight: that of its span, then those of the spans inside."""
    found: list[str] = []
    while span is not None and span.name:
        found.append(span.name)
        span = span.children[0] if span.children else None
    return tuple(found)


def chain_of(names: Sequence[str]) -> Span | None:
    """The span of which :func:`names_of` gives ``names``."""
    made: Span | None = None
    for name in reversed(names):
        made = Span(name, children=() if made is None else (made,))
    return made


def module_of(span: Span | None) -> str:
    """The module of the source that a span's name is in, where one is told behind the name."""
    if span is None or span.kind != "name" or len(span.children) != 1:
        return ""
    (child,) = span.children
    # The name of a frame, which JAX writes there, has a place in a file.
    plain = child.kind == "name" and not child.children and not child.file
    return child.name if plain else ""


def names_as_attribute(
    func: Function, shown: Sequence[str], dims: Mapping[str, str]
) -> dict[str, Any]:
    """The names of a function for :data:`SOURCE_NAMES`: what is not in its text by itself.

    ``shown``: the parameters' names in the text, where some are taken (``R``) or no identifiers;
    ``dims``: those of symbolic dimensions, by their names in the text
    """
    told = zip(shown, func.params, strict=True)
    inputs = {name: source_name(p) or p.name_hint for name, p in told}
    # Of two parameters x the second is x_1, and neither is another's name.
    inputs = {s: name for s, name in inputs.items() if name != s and name not in shown}
    results = result_names(func) if "res_attrs" not in func.attrs else ()
    taken = {s: name for s, name in dims.items() if name != s and name not in dims}
    found: dict[str, Any] = {"inputs": inputs, "results": list(results), "dims": taken}
    return {k: v for k, v in found.items() if v}


def with_names_of(func: Function, told: Any) -> Function:
    """``func``, just parsed, with the names that :func:`names_as_attribute` gave."""
    inputs = told.get("inputs", {}) if isinstance(told, Mapping) else {}
    for p in func.params:
        name = inputs.get(p.name_hint)
        if isinstance(name, str) and name:
            p.span = dataclasses.replace(p.span or Span(), name=name, kind="name")
    results = told.get("results", ()) if isinstance(told, Mapping) else ()
    if results and all(isinstance(n, str) for n in results):
        return with_result_names(func, results)
    return func


def _told(func: Function) -> dict[str, Any]:
    text = func.span.metadata if func.span is not None else ""
    if not text.startswith("{"):
        return {}
    try:
        made = json.loads(text)
    except (ValueError, RecursionError):  # an MLIR attribute in braces
        return {}
    return made if isinstance(made, dict) else {}


def _of_attributes(row: Any) -> str:
    if not isinstance(row, Mapping):
        return ""
    said = row.get(RESULT_INFO)
    if isinstance(said, str):
        return _name_at(said)
    return path_name(row.get(INDEX_PATH))


def listed_names(func: Function, key: str, count: int | None = None) -> list[str]:
    """Names of "inputs" or "outputs" as TensorFlow lists them, if they are ``count``; else ""."""
    entry = func.attrs.get("discardable", {}).get("tf.entry_function")
    said = entry.get(key) if isinstance(entry, Mapping) else None
    names = said.split(",") if isinstance(said, str) and said else []
    return names if count in (None, len(names)) else [""] * (count or 0)


def path_name(path: Any) -> str:
    """A path of TensorFlow's as a name."""
    steps = [str(p) for p in path] if isinstance(path, Sequence) and path else []
    return ".".join(steps) if any(not s.isdecimal() for s in steps) else ""


def _name_at(said: str) -> str:
    """``result['a'][0]`` as a.0; "" where there are numbers alone; other names as they are."""
    if not _PATH.fullmatch(said):
        return said
    steps: list[str] = []
    for quoted, field in _STEP.findall(said):
        text = field or quoted
        if text[:1] in "'\"":
            try:
                text = str(syntax.literal(text))
            except (SyntaxError, ValueError):
                return said
        steps.append(text)
    return ".".join(steps) if any(not s.isdecimal() for s in steps) else ""


def _leaves(tree: Any) -> Iterator[tuple[int, str]]:
    """The places of leaves of a tree (``importers.shared.trees``), and keys on the way to them."""
    stack: list[tuple[Any, tuple[str, ...]]] = [(tree, ())]
    while stack:
        node, path = stack.pop()
        ((kind, inner),) = node.items()
        if kind == "leaf":
            yield inner, ".".join(path) if any(not p.isdecimal() for p in path) else ""
        elif kind == "dict":
            stack += [(part, (*path, str(key))) for key, part in inner]
        elif kind in ("tuple", "list"):
            stack += [(part, (*path, str(i))) for i, part in enumerate(inner)]
        elif kind == "named":
            stack += [(p, (*path, str(f))) for f, p in zip(inner[1], inner[2], strict=True)]
        elif kind == "node":
            stack += [(part, (*path, str(i))) for i, part in enumerate(inner[1])]

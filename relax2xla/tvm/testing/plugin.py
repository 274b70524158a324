"""``tvm.testing.plugin``: pytest runs tests on the targets that are here, with their parameters.

A conftest that says ``pytest_plugins = ["tvm.testing.plugin"]`` loads it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pytest

from relax2xla.runtime.device import Device, device
from relax2xla.tvm.testing.fixtures import COLUMNS
from relax2xla.tvm.testing.machine import has_target
from relax2xla.tvm.testing.marks import EXCLUDED, FAILING, FEATURES
from relax2xla.tvm.testing.values import enabled_targets


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest the markers."""
    for feature in FEATURES.values():
        config.addinivalue_line("markers", f"{feature.name}: needs {feature.long_name}")


@pytest.fixture
def dev(target: Any) -> Device:
    """The device of ``target``."""
    return device(str(target).split()[0])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test the parameters that go together, and targets, if it says none itself."""
    groups: dict[object, list[str]] = {}
    for name in metafunc.fixturenames:
        found = _defined(metafunc, name)
        if found in COLUMNS:
            groups.setdefault(COLUMNS[found].of, []).append(name)
    for names in groups.values():
        columns = [COLUMNS[_defined(metafunc, name)] for name in names]
        sets = list(zip(*(c.values for c in columns), strict=True))
        values = [s[0] for s in sets] if len(names) == 1 else sets
        metafunc.parametrize(",".join(names), values, indirect=True, ids=columns[0].ids)
    if "target" in metafunc.fixturenames and not _chosen(metafunc, "target"):
        excluded = getattr(metafunc.function, EXCLUDED, ())
        targets = [t for t, _ in enabled_targets() if t.split()[0] not in excluded]
        metafunc.parametrize("target", targets, scope="session")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Skip tests on targets that are not here; those known to fail on one are to fail."""
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {})
        if "target" not in given:
            continue
        kind = _kind(given["target"])
        if not has_target(kind):
            item.add_marker(pytest.mark.skip(reason=f"there is no target {kind} here"))
        if kind in getattr(getattr(item, "function", None), FAILING, ()):
            item.add_marker(pytest.mark.xfail(reason=f"known to fail on {kind}"))


def _kind(target: Any) -> str:
    """The kind of a target that is a text or a Target."""
    text = str(getattr(target, "kind", target)).split()
    return text[0] if text else ""


def _defined(metafunc: pytest.Metafunc, name: str) -> Any:
    """What the test's class, or its module, has by this name."""
    for owner in (metafunc.cls, metafunc.module):
        found = None if owner is None else inspect.getattr_static(owner, name, None)
        if found is not None:
            return found
    return None


def _chosen(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether the test's marks, or a fixture beside it, say which values ``name`` has."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0]
        parts: Sequence[str] = names.split(",") if isinstance(names, str) else names
        if name in [part.strip() for part in parts]:
            return True
    return _defined(metafunc, name) is not None

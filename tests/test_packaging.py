"""The wheel: it holds every source file, installs alone, and imports without the frameworks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FRAMEWORKS = ("jax", "jaxlib", "torch", "onnx", "onnxruntime")

# One wheel for all tests of this file, also where tests run in several processes.
pytestmark = pytest.mark.xdist_group("packaging")


def run(*command: object) -> str:
    """Run a command; its output is the message of a failure."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build_wheel(folder: Path, *, symlink: bool) -> Path:
    """A wheel of a copy of the tree, ``folder/tree``: building writes into what it builds."""
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in ("relax2xla", "importers"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignore)
    if not symlink:
        (tree / "relax2xla" / "importers").unlink()
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps", "-w", folder, tree)
    (wheel,) = folder.glob("*.whl")
    return wheel


def modules_of_tree(tree: Path) -> set[str]:
    """Every Python file of the package, named as in the wheel."""
    core = {path.relative_to(tree).as_posix() for path in (tree / "relax2xla").rglob("*.py")}
    core = {name for name in core if not name.startswith("relax2xla/importers/")}
    importers = {path.relative_to(tree).as_posix() for path in (tree / "importers").rglob("*.py")}
    return core | {f"relax2xla/{name}" for name in importers}


def modules_of_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.endswith(".py")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"), symlink=True)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel, and sees our dependencies.

    The dependencies come by a path and not by an installation. Editable installations are not seen
    that way, so that `relax2xla` can only be the wheel's.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (python,) = folder.glob("bin/python")
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "-q", "--no-index", "--no-deps", wheel)
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    return python


def imported_by(python: Path, module: str) -> tuple[Path, set[str]]:
    """Where ``module`` came from, and the frameworks that importing it loaded."""
    code = (
        f"import json, sys, {module}\n"
        f"loaded = [name for name in {FRAMEWORKS} if name in sys.modules]\n"
        f"print(json.dumps([sys.modules[{module!r}].__file__, loaded]))"
    )
    # -I: neither the working directory nor the environment's variables decide what is imported.
    file, loaded = json.loads(run(python, "-I", "-W", "error", "-c", code))
    return Path(file), set(loaded)


def test_every_source_file_is_in_the_wheel(wheel: Path) -> None:
    modules = modules_of_tree(wheel.parent / "tree")
    assert "relax2xla/importers/__init__.py" in modules
    assert modules_of_wheel(wheel) == modules


def test_the_wheel_is_complete_without_the_symlink(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, symlink=False)
    assert modules_of_wheel(wheel) == modules_of_tree(tmp_path / "tree")


def test_the_wheel_is_typed_licensed_and_has_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "relax2xla/py.typed" in names
    assert {f"relax2xla/cli/page/view.{kind}" for kind in ("html", "css", "js")} <= set(names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)


@pytest.mark.parametrize("module", ["relax2xla", "relax2xla.importers"])
def test_the_installed_wheel_imports_without_the_frameworks(python: Path, module: str) -> None:
    file, loaded = imported_by(python, module)
    assert python.parent.parent in file.parents
    assert loaded == set()


def test_the_symlink_shows_importers() -> None:
    link = ROOT / "relax2xla" / "importers"
    assert link.is_symlink()
    assert link.resolve() == ROOT / "importers"

"""The wheel: it holds every source file, installs alone, and imports without the frameworks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import relax2xla

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "LICENSE", "CHANGELOG.md", "constraints.txt")
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


def copy_tree(folder: Path) -> Path:
    """A copy of what is built, ``folder/tree``: building writes into what it builds."""
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", *DOCUMENTS):
        shutil.copy(ROOT / name, tree)
    for name in ("relax2xla", "importers"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignore)
    return tree


def wheel_of(tree: Path, folder: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps", "-w", folder, tree)
    (wheel,) = folder.glob("*.whl")
    return wheel


def files_of_tree(tree: Path) -> set[str]:
    """Every file of the package, named as in the wheel."""
    core = {p.relative_to(tree).as_posix() for p in (tree / "relax2xla").rglob("*") if p.is_file()}
    core = {name for name in core if not name.startswith("relax2xla/importers/")}
    importers = {p.relative_to(tree).as_posix() for p in (tree / "importers").rglob("*.*")}
    return core | {f"relax2xla/{name}" for name in importers}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return wheel_of(copy_tree(folder), folder)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a source distribution unpacks to; the symlink to importers/ is not in it."""
    folder = tmp_path_factory.mktemp("sdist")
    code = f"import setuptools.build_meta as b; b.build_sdist({str(folder)!r})"
    run(sys.executable, "-c", f"import os; os.chdir({str(copy_tree(folder))!r}); {code}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


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
    run(*pip, "install", "-q", "--no-compile", "--no-index", "--no-deps", wheel)
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


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {n for n in archive.namelist() if ".dist-info/" not in n}


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    """Sources, types, the headers of external modules, the page of `view`: whatever is there."""
    files = files_of_tree(wheel.parent / "tree")
    assert {"relax2xla/importers/__init__.py", "relax2xla/py.typed"} <= files
    assert {Path(name).suffix for name in files} >= {".py", ".pyi", ".h", ".cpp", ".html"}
    assert files_of(wheel) == files
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())


def test_the_wheel_of_the_source_distribution_is_the_same(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    assert all((unpacked / name).is_file() for name in DOCUMENTS)
    assert not (unpacked / "tests").exists()
    assert not (unpacked / "relax2xla" / "importers").exists()
    assert files_of(wheel_of(unpacked, tmp_path)) == files_of(wheel)


def test_the_extras_are_those_that_texts_name() -> None:
    """Of an extra that is misspelt pip says one line, and installs without it."""
    from packaging.requirements import Requirement

    from relax2xla.cli.commands.doctor import PACKAGES
    from tests.installed import brought_by, canonical

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    options = project["optional-dependencies"]
    everything = brought_by(["all"])
    for package, extra in PACKAGES:
        assert canonical(package) in everything
        named_by = [Requirement(r).name for r in options.get(extra, project["dependencies"])]
        assert package in named_by
    named: set[str] = set()
    for folder in ("", "docs", "examples"):
        for path in (p for p in (ROOT / folder).iterdir() if p.suffix in (".md", ".py")):
            for line in re.findall(r"'\.\[([\w,]+)\]'", path.read_text("utf-8")):
                named.update(line.split(","))
    assert {"torch", "onnx", "dev"} <= named <= set(options)


@pytest.mark.parametrize("module", ["relax2xla", "relax2xla.importers"])
def test_the_installed_wheel_imports_without_the_frameworks(python: Path, module: str) -> None:
    file, loaded = imported_by(python, module)
    assert python.parent.parent in file.parents
    assert loaded == set()


def test_programs_of_users_type_check(python: Path, tmp_path: Path) -> None:
    """With the installed wheel, which says that it is typed, by both checkers."""
    pytest.importorskip("mypy")
    names = ("from_onnx", "from_pytorch", "from_jax_stablehlo", "symbolic_batch", "nn_llama")
    files = [shutil.copy(ROOT / "examples" / f"{name}.py", tmp_path) for name in names]
    mypy = (sys.executable, "-m", "mypy", "--python-executable", python)
    # Not all packages beside it are typed.
    # Nor is there a second run, for which mypy would keep what it found of them.
    options = ("--follow-imports", "silent", "--ignore-missing-imports", "--cache-dir", os.devnull)
    # Both see types, and not Any: of all files one has an error.
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import relax2xla\n\nmod: int = relax2xla.load('model.onnx')\n")
    pyright = (sys.executable, "-m", "pyright", "--pythonpath", python)
    for checker, total in (
        ((*mypy, *options), f"Found 1 error in 1 file (checked {len(names) + 1} source files)"),
        (pyright, "1 error, 0 warnings"),
    ):
        with pytest.raises(AssertionError, match="IRModule") as raised:
            run(*checker, *files, wrong)
        found = str(raised.value)
        assert total in found
        assert re.search(r"wrong\.py:3.*error", found)


def test_the_symlink_shows_importers() -> None:
    link = ROOT / "relax2xla" / "importers"
    assert link.is_symlink()
    assert link.resolve() == ROOT / "importers"


def test_the_image_is_made_of_what_the_wheel_is() -> None:
    """No Docker runs in tests; `make newcomer` does what the image's commands do."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    built = {"pyproject.toml", "setup.py", "MANIFEST.in", *DOCUMENTS, "relax2xla", "importers"}
    assert names == built
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == built
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)", text, re.MULTILINE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_the_conda_recipe_asks_for_what_the_project_does() -> None:
    yaml = pytest.importorskip("yaml")
    from packaging.requirements import Requirement

    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert recipe["context"]["version"] == project["version"] == relax2xla.__version__
    assert recipe["about"]["summary"] == project["description"]
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == project["scripts"]

    def wanted(requirement: str) -> tuple[str, set[str]]:
        found = Requirement(requirement.replace(" ", ""))
        return found.name, {str(s) for s in found.specifier}

    needed = dict(map(wanted, project["dependencies"]))
    needed["python"] = {project["requires-python"]}
    assert dict(map(wanted, recipe["requirements"]["run"])) == needed
    extras = [r for rows in project["optional-dependencies"].values() for r in rows]
    optional = dict(wanted(r) for r in extras if not r.startswith("relax2xla["))
    optional["pytorch"] = optional["torch"]  # its name among conda's packages
    for name, limits in map(wanted, recipe["requirements"]["run_constraints"]):
        assert limits == optional[name], name
